/* SPDX-License-Identifier: Apache-2.0
 * file.c - reads whole files, maps files, and resolves paths. */
#include "base/file.h"

#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a regular file. A folder, a pipe or a device is refused: reading could hang, or the size would be
 * wrong. */
static proa_status open_regular(int *fd, int64_t *bytes, const char *path, proa_err *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        if (errno == ENOENT) return PROA_FAIL(err, NOT_FOUND, "cannot open '%s': no such file", path);
        return PROA_FAIL(err, IO, "cannot open '%s': %s", path, strerror(errno));
    }
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *bytes = st.st_size;
        return PROA_OK;
    }
    close(*fd);
    *fd = -1;
    return PROA_FAIL(err, INVALID, "cannot open '%s': not a regular file", path);
}

static proa_status read_all(proa_buf *buf, int fd, int64_t bytes, const char *path, proa_err *err)
{
    if (!proa_buf_reserve(buf, (size_t)bytes)) return PROA_FAIL(err, LIMIT, "'%s' is too large", path);
    while (buf->len < (size_t)bytes) {
        ssize_t n = read(fd, buf->ptr + buf->len, (size_t)bytes - buf->len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return PROA_FAIL(err, IO, "cannot read '%s': %s", path, strerror(errno));
        if (n == 0) break; /* the file became shorter: take what is there */
        buf->len += (size_t)n;
    }
    if (buf->ptr) buf->ptr[buf->len] = '\0';
    return PROA_OK;
}

proa_status proa_file_read(proa_buf *buf, const char *path, int64_t bytes_max, proa_err *err)
{
    int fd = -1;
    int64_t bytes = 0;
    proa_buf_init(buf, (size_t)bytes_max);
    PROA_TRY(open_regular(&fd, &bytes, path, err));
    proa_status status = bytes > bytes_max ? PROA_FAIL(err, LIMIT, "'%s' has %lld bytes, at most %lld are read",
                                                       path, (long long)bytes, (long long)bytes_max)
                                           : read_all(buf, fd, bytes, path, err);
    close(fd);
    return status;
}

static int64_t written_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

proa_status proa_mmap_open(proa_mmap *map, const char *path, proa_err *err)
{
    int fd = -1;
    int64_t bytes = 0;
    struct stat st;
    *map = (proa_mmap){0};
    PROA_TRY(open_regular(&fd, &bytes, path, err));
    bool known = fstat(fd, &st) == 0;
    void *ptr = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int why = errno;
    close(fd);
    if (ptr == MAP_FAILED) return PROA_FAIL(err, IO, "cannot map '%s': %s", path, strerror(why));
    *map = (proa_mmap){.ptr = ptr, .bytes = bytes, .guard = ptr ? proa_guard_add(ptr, (size_t)bytes) : NULL};
    if (known) map->device = st.st_dev, map->inode = st.st_ino, map->written_ns = written_ns(&st);
    return PROA_OK;
}

proa_status proa_mmap_check(const proa_mmap *map, const char *path, proa_err *err)
{
    struct stat st;
    if (proa_guard_broken(map->guard))
        return PROA_FAIL(err, IO, "'%s' was shortened while it was read", path);
    bool same = stat(path, &st) == 0 && st.st_dev == map->device && st.st_ino == map->inode;
    if (!same || (written_ns(&st) == map->written_ns && st.st_size == map->bytes)) return PROA_OK;
    return PROA_FAIL(err, IO, "'%s' was written to while it was read", path);
}

void proa_mmap_close(proa_mmap *map)
{
    proa_guard_remove(map->guard);
    if (map->ptr) munmap((void *)(uintptr_t)map->ptr, (size_t)map->bytes);
    *map = (proa_mmap){0};
}

void proa_mmap_drop(const proa_mmap *map, const void *ptr, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)ptr + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)ptr + (uintptr_t)bytes) / page * page;
    PROA_ASSERT((const unsigned char *)ptr >= map->ptr &&
                (const unsigned char *)ptr + bytes <= map->ptr + map->bytes);
    if (end > begin) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

bool proa_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool proa_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

void proa_dir_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

proa_status proa_path_join(char *out, const char *dir, const char *name, proa_err *err)
{
    size_t n = strlen(dir);
    const char *slash = n == 0 || dir[n - 1] == '/' ? "" : "/"; /* "" is the working folder, not the root */
    int len = snprintf(out, PROA_PATH_MAX, "%s%s%s", dir, slash, name);
    if (len < 0 || len >= PROA_PATH_MAX) return PROA_FAIL(err, INVALID, "path too long: '%.200s...'", dir);
    return PROA_OK;
}

proa_status proa_path_resolve(char *out, const char *dir, const char *path, proa_err *err)
{
    static const char word[] = "$$TRITON_MODEL_DIRECTORY";
    const char *at = strstr(path, word);
    if (!at && *path != '/') {
        PROA_TRY(proa_path_join(out, dir, path, err));
        if (access(out, F_OK) == 0) return PROA_OK;
    }
    int len = at ? snprintf(out, PROA_PATH_MAX, "%.*s%s%s", (int)(at - path), path, dir, at + strlen(word))
                 : snprintf(out, PROA_PATH_MAX, "%s", path);
    if (len < 0 || len >= PROA_PATH_MAX) return PROA_FAIL(err, INVALID, "path too long: '%.200s...'", path);
    return PROA_OK;
}
