/* SPDX-License-Identifier: Apache-2.0
 * cache.c - reads and writes the cache of Hugging Face. Folders are opened one below the other without following links.
 */
#include "hub/cache.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "hub/digest.h"
#include "hub/name.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FOLDER_MODE = 0777, FILE_MODE = 0666, LOCK_MODE = 0664, DEPTH_MAX = 64 };

/* ---- folders ---- */

static proa_status fail_system(const proa_hub_cache *c, const char *verb, const char *name, proa_err *err)
{
    return PROA_FAIL(err, IO, "cannot %s %s/%s/%s: %s", verb, c->root, c->folder, name, strerror(errno));
}

/* Opens a folder below another; -1 with errno. ELOOP: it is a link. */
static int open_folder(int parent, const char *name, bool create)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd >= 0 || errno != ENOENT || !create) {
        struct stat st;
        if (fd < 0 && errno == ENOTDIR && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            errno = S_ISLNK(st.st_mode) ? ELOOP : ENOTDIR;
        return fd;
    }
    if (mkdirat(parent, name, FOLDER_MODE) != 0 && errno != EEXIST) return -1;
    return openat(parent, name, flags);
}

static proa_status fail_folder(const proa_hub_cache *c, const char *path, proa_err *err)
{
    if (errno == ELOOP)
        return PROA_FAIL(err, CORRUPT, "%s/%s is a symbolic link, which may leave the cache: remove it",
                         c->root, path);
    if (errno == ENOENT) return PROA_FAIL(err, NOT_FOUND, "%s has no %s", c->root, path);
    return PROA_FAIL(err, IO, "cannot open %s/%s: %s", c->root, path, strerror(errno));
}

/* Opens the folder of `path`, which is relative to the repository's folder, and says its last part in *name. */
static proa_status open_parent(int *fd, const char **name, const proa_hub_cache *c, const char *path,
                               bool create, proa_err *err)
{
    char shown[PROA_PATH_MAX], part[256];
    int at = c->repo_fd >= 0 ? dup(c->repo_fd) : -1;
    if (at < 0) return PROA_FAIL(err, NOT_FOUND, "%s has no %s", c->root, c->folder);
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        int next = open_folder(at, part, create);
        int error = errno;
        close(at);
        at = next, errno = error;
        snprintf(shown, sizeof shown, "%s/.../%s", c->folder, part);
        if (at < 0) return fail_folder(c, shown, err);
    }
    *fd = at, *name = path;
    return PROA_OK;
}

static proa_status make_folders(const char *path, proa_err *err)
{
    char part[PROA_PATH_MAX];
    size_t len = strlen(path);
    for (size_t i = 1; i <= len; i++) {
        if (i < len && path[i] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, FOLDER_MODE) != 0 && errno != EEXIST)
            return PROA_FAIL(err, IO, "cannot make the folder %s: %s", part, strerror(errno));
    }
    return PROA_OK;
}

proa_status proa_hub_cache_open(proa_hub_cache *c, const char *root, const char *repo, bool create, proa_err *err)
{
    *c = (proa_hub_cache){.root_fd = -1, .repo_fd = -1};
    proa_hub_name_folder(c->folder, repo);
    if (create && !proa_dir_exists(root)) PROA_TRY(make_folders(root, err));
    char *real = realpath(root, NULL);
    snprintf(c->root, sizeof c->root, "%s", real ? real : root);
    free(real);
    c->root_fd = open(c->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->root_fd < 0 && errno == ENOENT && !create) return PROA_OK;
    if (c->root_fd < 0) return PROA_FAIL(err, IO, "cannot open the cache %s: %s", c->root, strerror(errno));
    c->repo_fd = open_folder(c->root_fd, c->folder, create);
    if (c->repo_fd >= 0 || (errno == ENOENT && !create)) return PROA_OK;
    proa_status status = fail_folder(c, c->folder, err);
    proa_hub_cache_close(c);
    return status;
}

void proa_hub_cache_close(proa_hub_cache *c)
{
    if (c->root_fd >= 0) close(c->root_fd);
    if (c->repo_fd >= 0) close(c->repo_fd);
    c->root_fd = c->repo_fd = -1;
}

int64_t proa_hub_cache_room(const proa_hub_cache *c)
{
    struct statvfs s;
    int64_t bytes;
    if (fstatvfs(c->root_fd, &s) != 0 || !proa_mul((int64_t)s.f_bavail, (int64_t)s.f_frsize, &bytes))
        return INT64_MAX;
    return bytes;
}

/* ---- small texts: refs and trees ---- */

static proa_status read_text(proa_buf *out, const proa_hub_cache *c, const char *path, int64_t bytes_max,
                             proa_err *err)
{
    int folder, fd;
    const char *name;
    char block[4096];
    ssize_t n = 0;
    proa_buf_init(out, (size_t)bytes_max);
    PROA_TRY(open_parent(&folder, &name, c, path, false, err));
    fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    close(folder);
    if (fd < 0 && errno == ENOENT)
        return PROA_FAIL(err, NOT_FOUND, "%s/%s has no %s", c->root, c->folder, path);
    if (fd < 0) return fail_system(c, "open", path, err);
    while ((n = read(fd, block, sizeof block)) > 0) proa_buf_append(out, block, (size_t)n);
    close(fd);
    if (n < 0) return fail_system(c, "read", path, err);
    return out->full ? PROA_FAIL(err, LIMIT, "%s/%s is too large", c->folder, path) : PROA_OK;
}

static bool write_all(int fd, proa_str text)
{
    while (text.len > 0) {
        ssize_t n = write(fd, text.ptr, text.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text.ptr += n, text.len -= (size_t)n;
    }
    return true;
}

/* Replaces a file in one step: another process sees the old text or the new one. */
static proa_status write_text(const proa_hub_cache *c, const char *path, proa_str text, proa_err *err)
{
    char tmp[320];
    int folder;
    const char *name;
    PROA_TRY(open_parent(&folder, &name, c, path, true, err));
    snprintf(tmp, sizeof tmp, "%s.%ld.tmp", name, (long)getpid());
    int fd = openat(folder, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    bool written = fd >= 0 && write_all(fd, text);
    if (fd >= 0) written = close(fd) == 0 && written;
    if (written) written = renameat(folder, tmp, folder, name) == 0;
    int error = errno;
    if (!written && fd >= 0) unlinkat(folder, tmp, 0);
    close(folder);
    errno = error;
    return written ? PROA_OK : fail_system(c, "write", path, err);
}

proa_status proa_hub_cache_ref(char commit[41], const proa_hub_cache *c, const char *revision, proa_err *err)
{
    char path[PROA_HUB_REVISION_MAX + 8];
    proa_buf text;
    snprintf(path, sizeof path, "refs/%s", revision);
    proa_status status = read_text(&text, c, path, 256, err);
    proa_str s = proa_buf_view(&text);
    while (s.len && (unsigned char)s.ptr[s.len - 1] <= ' ') s.len--;
    if (status == PROA_OK && !proa_hub_is_commit(s))
        status = PROA_FAIL(err, CORRUPT, "%s/%s/%s holds no commit: remove it", c->root, c->folder, path);
    if (status == PROA_OK) memcpy(commit, s.ptr, 40), commit[40] = '\0';
    proa_buf_release(&text);
    return status;
}

proa_status proa_hub_cache_set_ref(const proa_hub_cache *c, const char *revision, const char *commit,
                                   proa_err *err)
{
    char path[PROA_HUB_REVISION_MAX + 8], now[41] = "";
    if (strcmp(revision, commit) == 0) return PROA_OK;
    if (proa_hub_cache_ref(now, c, revision, NULL) == PROA_OK && strcmp(now, commit) == 0) return PROA_OK;
    snprintf(path, sizeof path, "refs/%s", revision);
    errno = 0;
    if (write_text(c, path, proa_str_c(commit), NULL) == PROA_OK || errno == EROFS || errno == EACCES)
        return PROA_OK;
    return write_text(c, path, proa_str_c(commit), err);
}

proa_status proa_hub_cache_tree(proa_hub_tree *tree, const proa_hub_cache *c, const char *commit, proa_err *err)
{
    char path[64];
    proa_buf text;
    snprintf(path, sizeof path, "trees/%s.json", commit);
    proa_status status = read_text(&text, c, path, PROA_HUB_LIST_BYTES_MAX, err);
    if (status == PROA_OK) status = proa_hub_tree_read(tree, commit, proa_buf_view(&text), err);
    proa_buf_release(&text);
    return status;
}

void proa_hub_cache_keep_tree(const proa_hub_cache *c, const proa_hub_tree *tree)
{
    char path[64];
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_HUB_LIST_BYTES_MAX);
    snprintf(path, sizeof path, "trees/%s.json", tree->commit);
    if (proa_hub_tree_write(tree, &text)) {
        proa_status status = write_text(c, path, proa_buf_view(&text), NULL);
        PROA_UNUSED(status);
    }
    proa_buf_release(&text);
}

/* ---- files of a snapshot ---- */

char *proa_hub_cache_path(const proa_hub_cache *c, const char *commit, const char *file)
{
    size_t size = strlen(c->root) + strlen(c->folder) + strlen(commit) + (file ? strlen(file) : 0) + 16;
    char *path = proa_malloc(size);
    snprintf(path, size, "%s/%s/snapshots/%s%s%s", c->root, c->folder, commit, file ? "/" : "", file ? file : "");
    return path;
}

static void pointer_name(char out[PROA_PATH_MAX], const char *commit, const char *file)
{
    snprintf(out, PROA_PATH_MAX, "snapshots/%s/%s", commit, file);
}

/* The link's target without links; CORRUPT if that is outside of the cache. NULL in *real: it ends nowhere. */
static proa_status resolve_link(char **real, const proa_hub_cache *c, const char *path, proa_err *err)
{
    size_t n = strlen(c->root);
    *real = realpath(path, NULL);
    if (!*real || (strncmp(*real, c->root, n) == 0 && (*real)[n] == '/')) return PROA_OK;
    proa_status status = PROA_FAIL(err, CORRUPT, "%s leads out of the cache, to %s: remove it", path, *real);
    free(*real);
    *real = NULL;
    return status;
}

/* A file of a snapshot: its name in an open folder, and the whole path. */
typedef struct pointer {
    int folder;
    const char *name;
    char *path;
} pointer;

static bool has_etag(const char *real, const proa_hub_entry *e, const pointer *p)
{
    char target[PROA_PATH_MAX];
    ssize_t n = readlinkat(p->folder, p->name, target, sizeof target - 1);
    if (!e->etag[0] || n < 0) return true;
    target[n] = '\0';
    const char *base = strrchr(target, '/'), *real_base = strrchr(real, '/');
    return strcmp(base ? base + 1 : target, e->etag) == 0 || (real_base && strcmp(real_base + 1, e->etag) == 0);
}

static proa_status check_pointer(bool *has, const proa_hub_cache *c, const pointer *p,
                                 const proa_hub_entry *e, proa_err *err)
{
    struct stat st;
    char *real = NULL;
    if (fstatat(p->folder, p->name, &st, AT_SYMLINK_NOFOLLOW) != 0) return PROA_OK;
    if (S_ISLNK(st.st_mode)) {
        PROA_TRY(resolve_link(&real, c, p->path, err));
        bool same = real && has_etag(real, e, p) && stat(real, &st) == 0;
        free(real);
        if (!same) return PROA_OK;
    }
    *has = S_ISREG(st.st_mode) && (e->size < 0 || st.st_size == e->size);
    return PROA_OK;
}

proa_status proa_hub_cache_has(bool *has, const proa_hub_cache *c, const char *commit,
                               const proa_hub_entry *e, proa_err *err)
{
    char relative[PROA_PATH_MAX];
    pointer p;
    proa_err why = {0};
    *has = false;
    if (c->repo_fd < 0) return PROA_OK;
    pointer_name(relative, commit, e->path);
    proa_status status = open_parent(&p.folder, &p.name, c, relative, false, &why);
    if (status == PROA_NOT_FOUND) return PROA_OK;
    if (status != PROA_OK) return proa_err_copy(err, &why);
    p.path = proa_hub_cache_path(c, commit, e->path);
    status = check_pointer(has, c, &p, e, err);
    free(p.path);
    close(p.folder);
    return status;
}

bool proa_hub_cache_has_blob(const proa_hub_cache *c, const proa_hub_entry *e)
{
    char path[PROA_PATH_MAX + 512];
    struct stat st;
    char *real = NULL;
    int folder = open_folder(c->repo_fd, "blobs", false);
    if (folder < 0) return false;
    close(folder);
    snprintf(path, sizeof path, "%s/%s/blobs/%s", c->root, c->folder, e->etag);
    bool has = resolve_link(&real, c, path, NULL) == PROA_OK && real && stat(real, &st) == 0 &&
               S_ISREG(st.st_mode) && st.st_size == e->size;
    free(real);
    return has;
}

/* Moves a blob to where its link should be, on a file system without links. */
static bool move_blob(const proa_hub_cache *c, int folder, const char *name, const char *etag)
{
    int blobs = open_folder(c->repo_fd, "blobs", false);
    bool moved = blobs >= 0 && renameat(blobs, etag, folder, name) == 0;
    if (blobs >= 0) close(blobs);
    return moved;
}

proa_status proa_hub_cache_link(const proa_hub_cache *c, const char *commit, const proa_hub_entry *e,
                                proa_err *err)
{
    char relative[PROA_PATH_MAX], target[PROA_PATH_MAX], tmp[320];
    int folder;
    const char *name;
    size_t n = 0;
    pointer_name(relative, commit, e->path);
    PROA_TRY(open_parent(&folder, &name, c, relative, true, err));
    for (const char *s = strchr(relative, '/'); s; s = strchr(s + 1, '/'))
        n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "blobs/%s", e->etag);
    snprintf(tmp, sizeof tmp, ".%ld.%.8s.tmp", (long)getpid(), e->etag);
    unlinkat(folder, tmp, 0);
    bool made = symlinkat(target, folder, tmp) == 0;
    bool no_links = !made && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS);
    if (made) made = renameat(folder, tmp, folder, name) == 0;
    else if (no_links) made = move_blob(c, folder, name, e->etag);
    int error = errno;
    if (!made) unlinkat(folder, tmp, 0);
    close(folder);
    errno = error;
    return made ? PROA_OK : fail_system(c, "link", relative, err);
}

proa_status proa_hub_cache_make_folder(const proa_hub_cache *c, const char *commit, const char *path,
                                       proa_err *err)
{
    char relative[PROA_PATH_MAX];
    int folder;
    const char *name;
    snprintf(relative, sizeof relative, "snapshots/%s/%s/", commit, path);
    PROA_TRY(open_parent(&folder, &name, c, relative, true, err));
    close(folder);
    return PROA_OK;
}

proa_status proa_hub_cache_verify(const proa_hub_cache *c, const char *commit, const proa_hub_entry *e,
                                  proa_err *err)
{
    proa_hub_digest digest;
    char *path = proa_hub_cache_path(c, commit, e->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    proa_status status = fd < 0 ? PROA_FAIL(err, IO, "cannot open %s: %s", path, strerror(errno)) : PROA_OK;
    proa_hub_digest_init(&digest, e->etag, e->size);
    if (status == PROA_OK) status = proa_hub_digest_add_file(&digest, fd, e->size, e->path, err);
    if (status == PROA_OK) status = proa_hub_digest_check(&digest, e->path, err);
    if (status == PROA_CORRUPT) {
        char *real = realpath(path, NULL);
        if (real) unlink(real);
        unlink(path);
        free(real);
    }
    proa_hub_digest_release(&digest);
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

static proa_status check_folder_links(const proa_hub_cache *c, const char *path, int depth, proa_err *err)
{
    proa_status status = PROA_OK;
    DIR *dir = opendir(path);
    if (!dir || depth > DEPTH_MAX) {
        if (dir) closedir(dir);
        return PROA_FAIL(err, IO, "cannot read %s", path);
    }
    for (struct dirent *d; status == PROA_OK && (d = readdir(dir));) {
        char below[PROA_PATH_MAX], *real = NULL;
        struct stat st;
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        status = proa_path_join(below, path, d->d_name, err);
        if (status != PROA_OK || lstat(below, &st) != 0) continue;
        if (S_ISLNK(st.st_mode)) status = resolve_link(&real, c, below, err);
        else if (S_ISDIR(st.st_mode)) status = check_folder_links(c, below, depth + 1, err);
        free(real);
    }
    closedir(dir);
    return status;
}

proa_status proa_hub_cache_check_links(const proa_hub_cache *c, const char *commit, proa_err *err)
{
    char *path = proa_hub_cache_path(c, commit, NULL);
    proa_status status = check_folder_links(c, path, 0, err);
    free(path);
    return status;
}

/* ---- blobs ---- */

/* The lock's file may be removed by its holder: then another one has to be locked. */
static bool is_same_file(int fd, int folder, const char *name)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(folder, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* -1: it is held. -2: not to be opened; errno. */
static int lock_file(int folder, const char *name)
{
    for (;;) {
        int fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, LOCK_MODE);
        if (fd < 0) return -2;
        bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; /* without flock: go on without */
        if (!held && is_same_file(fd, folder, name)) return fd;
        close(fd);
        if (held) return -1;
    }
}

proa_status proa_hub_cache_lock(int *fd, const proa_hub_cache *c, const char *etag, proa_err *err)
{
    char name[PROA_HUB_REVISION_MAX + 8];
    int locks = open_folder(c->root_fd, ".locks", true);
    int folder = locks >= 0 ? open_folder(locks, c->folder, true) : -1;
    int error = errno;
    if (locks >= 0) close(locks);
    errno = error;
    if (folder < 0) return fail_folder(c, ".locks", err);
    snprintf(name, sizeof name, "%s.lock", etag);
    *fd = lock_file(folder, name);
    error = errno;
    close(folder);
    if (*fd >= -1) return PROA_OK;
    return PROA_FAIL(err, IO, "cannot lock %s/.locks/%s/%s: %s", c->root, c->folder, name, strerror(error));
}

static void incomplete_name(char out[PROA_HUB_REVISION_MAX + 16], const char *etag)
{
    snprintf(out, PROA_HUB_REVISION_MAX + 16, "%s.incomplete", etag);
}

proa_status proa_hub_cache_open_blob(int *fd, const proa_hub_cache *c, const char *etag, proa_err *err)
{
    char name[PROA_HUB_REVISION_MAX + 16];
    incomplete_name(name, etag);
    int folder = open_folder(c->repo_fd, "blobs", true);
    if (folder < 0) return fail_folder(c, "blobs", err);
    *fd = openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    int error = errno;
    close(folder);
    errno = error;
    return *fd >= 0 ? PROA_OK : fail_system(c, "open", name, err);
}

proa_status proa_hub_cache_finish_blob(const proa_hub_cache *c, const char *etag, int fd, proa_err *err)
{
    char name[PROA_HUB_REVISION_MAX + 16];
    incomplete_name(name, etag);
    if (fsync(fd) != 0)
        return fail_system(c, "write", name, err); /* before it gets the name of a complete file */
    int folder = open_folder(c->repo_fd, "blobs", false);
    if (folder < 0) return fail_folder(c, "blobs", err);
    bool moved = renameat(folder, name, folder, etag) == 0;
    int error = errno;
    close(folder);
    errno = error;
    return moved ? PROA_OK : fail_system(c, "rename", name, err);
}

void proa_hub_cache_drop_blob(const proa_hub_cache *c, const char *etag)
{
    char name[PROA_HUB_REVISION_MAX + 16];
    incomplete_name(name, etag);
    int folder = open_folder(c->repo_fd, "blobs", false);
    if (folder < 0) return;
    unlinkat(folder, name, 0);
    close(folder);
}

int64_t proa_hub_cache_begun(const proa_hub_cache *c, const char *etag)
{
    char name[PROA_HUB_REVISION_MAX + 16];
    struct stat st;
    incomplete_name(name, etag);
    int folder = open_folder(c->repo_fd, "blobs", false);
    if (folder < 0) return 0;
    bool begun = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
    close(folder);
    return begun ? st.st_size : 0;
}
