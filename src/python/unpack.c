/* SPDX-License-Identifier: Apache-2.0
 * unpack.c - unpacks tar and zip archives through libarchive, which is loaded at run time. */
#include "python/unpack.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/str.h"
#include <archive.h>
#include <archive_entry.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* libarchive and its dependencies (XML, ICU, five compressors) would add 3 ms and 3 MB to every start of
 * the program, so it is loaded when the first archive is opened. */
#define LIBARCHIVE "libarchive.so.13"
#define LIBARCHIVE_LIST(X)                                                                                   \
    X(read_new)                                                                                              \
    X(read_free)                                                                                             \
    X(read_support_format_tar)                                                                               \
    X(read_support_format_zip)                                                                               \
    X(read_support_filter_gzip)                                                                              \
    X(read_support_filter_bzip2)                                                                             \
    X(read_support_filter_xz)                                                                                \
    X(read_support_filter_zstd)                                                                              \
    X(read_open_filename)                                                                                    \
    X(read_next_header)                                                                                      \
    X(read_data)                                                                                             \
    X(error_string)                                                                                          \
    X(entry_pathname)                                                                                        \
    X(entry_pathname_utf8)                                                                                   \
    X(entry_symlink)                                                                                         \
    X(entry_symlink_utf8)                                                                                    \
    X(entry_hardlink)                                                                                        \
    X(entry_hardlink_utf8)                                                                                   \
    X(entry_filetype)                                                                                        \
    X(entry_perm)                                                                                            \
    X(entry_mtime)

#define LIBARCHIVE_FIELD(name) __typeof__(archive_##name) *name;
typedef struct library {
    LIBARCHIVE_LIST(LIBARCHIVE_FIELD)
    void *handle; /* of dlopen; stays open for further archives */
} library;

#define LIBARCHIVE_NAME(name) "archive_" #name,
static const char *const library_names[] = {LIBARCHIVE_LIST(LIBARCHIVE_NAME)};
#define NAMES (sizeof library_names / sizeof *library_names)
_Static_assert(offsetof(library, handle) == NAMES * sizeof(void *), "a pointer for each name");

typedef struct pending_link {
    char *path, *target;
} pending_link;

typedef struct unpacker {
    library lib;
    struct archive *archive;
    int root;   /* the folder */
    char *real; /* its path without links */
    int64_t entries, bytes;
    proa_unpack_limits limits;
    pending_link *links; /* symbolic ones, made at the end */
    int64_t links_count, links_cap;
} unpacker;

static proa_status library_open(library *lib, proa_err *err)
{
    lib->handle = dlopen(LIBARCHIVE, RTLD_NOW | RTLD_LOCAL);
    if (!lib->handle)
        return PROA_FAIL(err, UNSUPPORTED, "%s is not installed (Debian: libarchive13)", LIBARCHIVE);
    for (size_t i = 0; i < NAMES; i++) {
        void *symbol = dlsym(lib->handle, library_names[i]);
        if (!symbol) return PROA_FAIL(err, UNSUPPORTED, "%s has no %s", LIBARCHIVE, library_names[i]);
        memcpy((char *)lib + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return PROA_OK;
}

/* ---- names ---- */

/* A name of the archive as a path below the folder, without empty parts and "."; "" is the folder itself. */
static proa_status clean_name(char out[PROA_PATH_MAX], const char *name, proa_err *err)
{
    size_t len = 0;
    if (!name) return PROA_FAIL(err, CORRUPT, "an entry has a name that cannot be read");
    if (*name == '/') return PROA_FAIL(err, CORRUPT, "'%.200s' is an absolute path", name);
    for (const char *part = name; *part;) {
        size_t n = strcspn(part, "/");
        if (n == 2 && memcmp(part, "..", 2) == 0)
            return PROA_FAIL(err, CORRUPT, "'%.200s' leaves the folder", name);
        if (n > 0 && !(n == 1 && *part == '.')) {
            if (len + n + 2 > PROA_PATH_MAX)
                return PROA_FAIL(err, LIMIT, "'%.200s' is longer than %d bytes", name, PROA_PATH_MAX);
            if (len > 0) out[len++] = '/';
            memcpy(out + len, part, n);
            len += n;
        }
        part += n + (part[n] == '/');
    }
    out[len] = '\0';
    return PROA_OK;
}

/* Whether a link at `path` with this relative target stays inside the folder, judged by the text of both
 * paths. */
static bool stays_inside(const char *path, const char *target)
{
    int64_t depth = 0;
    for (const char *c = path; *c; c++) depth += *c == '/';
    for (const char *part = target; *part;) {
        size_t n = strcspn(part, "/");
        if (n == 2 && memcmp(part, "..", 2) == 0) depth--;
        else if (n > 0 && !(n == 1 && *part == '.')) depth++;
        if (depth < 0) return false;
        part += n + (part[n] == '/');
    }
    return true;
}

static bool is_interpreter(const char *path)
{
    return strncmp(path, "bin/python", strlen("bin/python")) == 0;
}

/* Makes the folders above `path`. None of them may be a link, so that `path` is written where it says. */
static proa_status make_parents(const unpacker *u, const char *path, proa_err *err)
{
    char part[PROA_PATH_MAX];
    struct stat st;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdirat(u->root, part, 0755) == 0) continue;
        if (errno != EEXIST) return PROA_FAIL(err, IO, "cannot make '%s': %s", part, strerror(errno));
        if (fstatat(u->root, part, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode))
            return PROA_FAIL(err, CORRUPT, "'%s' is no folder, but '%.200s' lies in it", part, path);
    }
    return PROA_OK;
}

/* Removes what an earlier entry of the same name made: the last one counts, as with tar. */
static proa_status replace_file(const unpacker *u, const char *path, proa_err *err)
{
    if (unlinkat(u->root, path, 0) == 0 || errno == ENOENT) return PROA_OK;
    return PROA_FAIL(err, CORRUPT, "'%.200s' is there already, and a folder", path);
}

/* ---- entries ---- */

static proa_status write_data(unpacker *u, int fd, const char *path, proa_err *err)
{
    char buffer[1 << 16];
    for (;;) {
        la_ssize_t n = u->lib.read_data(u->archive, buffer, sizeof buffer);
        if (n == 0) return PROA_OK;
        if (n < 0) return PROA_FAIL(err, CORRUPT, "'%.200s': %s", path, u->lib.error_string(u->archive));
        u->bytes += n;
        if (u->bytes > u->limits.bytes)
            return PROA_FAIL(err, LIMIT, "the files have more than %lld bytes", (long long)u->limits.bytes);
        for (la_ssize_t done = 0; done < n;) {
            ssize_t w = write(fd, buffer + done, (size_t)(n - done));
            if (w < 0 && errno == EINTR) continue;
            if (w < 0) return PROA_FAIL(err, IO, "cannot write '%.200s': %s", path, strerror(errno));
            done += w;
        }
    }
}

static proa_status put_file(unpacker *u, const char *path, struct archive_entry *entry, proa_err *err)
{
    /* readable and writable for us, executable as it says; never set-user-id */
    mode_t mode = (u->lib.entry_perm(entry) & 0755) | 0600;
    PROA_TRY(replace_file(u, path, err));
    int fd = openat(u->root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) return PROA_FAIL(err, IO, "cannot make '%.200s': %s", path, strerror(errno));
    proa_status status = write_data(u, fd, path, err);
    /* compiled Python files contain the time of their source */
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = u->lib.entry_mtime(entry)}};
    if (status == PROA_OK) (void)futimens(fd, times);
    if (close(fd) != 0 && status == PROA_OK)
        status = PROA_FAIL(err, IO, "cannot write '%.200s': %s", path, strerror(errno));
    return status;
}

static proa_status put_hard_link(const unpacker *u, const char *path, const char *target, proa_err *err)
{
    char from[PROA_PATH_MAX];
    struct stat st;
    PROA_TRY(clean_name(from, target, err));
    if (fstatat(u->root, from, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return PROA_FAIL(err, CORRUPT, "'%.200s' is a link to '%.200s', which is no file before it", path, from);
    if (strcmp(from, path) == 0) return PROA_OK;
    PROA_TRY(replace_file(u, path, err));
    if (linkat(u->root, from, u->root, path, 0) != 0)
        return PROA_FAIL(err, IO, "cannot link '%.200s': %s", path, strerror(errno));
    return PROA_OK;
}

static proa_status note_link(unpacker *u, const char *path, const char *target, proa_err *err)
{
    if (!target || !*target)
        return PROA_FAIL(err, CORRUPT, "'%.200s' is a link to nothing that can be read", path);
    bool inside = *target != '/' && stays_inside(path, target);
    if (!inside && !is_interpreter(path))
        return PROA_FAIL(err, CORRUPT, "'%.200s' is a link to '%.200s', which lies outside", path, target);
    if (u->links_count == u->links_cap) {
        u->links_cap = u->links_cap ? 2 * u->links_cap : 64;
        u->links = proa_realloc(u->links, (size_t)u->links_cap * sizeof *u->links);
    }
    u->links[u->links_count++] = (pending_link){proa_strdup(path), proa_strdup(target)};
    return PROA_OK;
}

static proa_status put_folder(const unpacker *u, const char *path, proa_err *err)
{
    char inside[PROA_PATH_MAX + 1];
    snprintf(inside, sizeof inside, "%s/", path);
    return make_parents(u, inside, err);
}

static proa_status put_entry(unpacker *u, struct archive_entry *entry, proa_err *err)
{
    const library *lib = &u->lib;
    char path[PROA_PATH_MAX];
    const char *name = lib->entry_pathname(entry);
    if (!name) name = lib->entry_pathname_utf8(entry); /* the locale has no such characters */
    PROA_TRY(clean_name(path, name, err));
    if (!*path) return PROA_OK;
    PROA_TRY(make_parents(u, path, err));
    const char *target = lib->entry_hardlink(entry);
    if (!target) target = lib->entry_hardlink_utf8(entry);
    if (target) return put_hard_link(u, path, target, err);
    switch (lib->entry_filetype(entry)) {
    case AE_IFREG: return put_file(u, path, entry, err);
    case AE_IFDIR: return put_folder(u, path, err);
    case AE_IFLNK:
        target = lib->entry_symlink(entry);
        return note_link(u, path, target ? target : lib->entry_symlink_utf8(entry), err);
    default: return PROA_FAIL(err, CORRUPT, "'%.200s' is neither file nor folder nor link", path);
    }
}

/* ---- symbolic links, when all else is written ---- */

static proa_status make_link(const unpacker *u, const pending_link *l, proa_err *err)
{
    PROA_TRY(make_parents(u, l->path, err));
    PROA_TRY(replace_file(u, l->path, err));
    if (symlinkat(l->target, u->root, l->path) != 0)
        return PROA_FAIL(err, IO, "cannot link '%.200s': %s", l->path, strerror(errno));
    return PROA_OK;
}

/* A link that passes through another link may lead elsewhere than its text says. */
static proa_status check_link(const unpacker *u, const pending_link *l, proa_err *err)
{
    size_t n = strlen(u->real);
    if (is_interpreter(l->path)) return PROA_OK;
    if (n + strlen(l->path) + 2 > PROA_PATH_MAX)
        return PROA_FAIL(err, LIMIT, "'%.200s' is too long a path", l->path);
    char path[PROA_PATH_MAX];
    memcpy(path, u->real, n);
    path[n] = '/';
    memcpy(path + n + 1, l->path, strlen(l->path) + 1);
    char *real = realpath(path, NULL);
    bool inside = !real || (strncmp(real, u->real, n) == 0 &&
                            (real[n] == '/' || real[n] == '\0')); /* else it leads nowhere */
    free(real);
    if (!inside) return PROA_FAIL(err, CORRUPT, "'%.200s' is a link that leads outside", l->path);
    return PROA_OK;
}

static proa_status make_links(const unpacker *u, proa_err *err)
{
    for (int64_t i = 0; i < u->links_count; i++) PROA_TRY(make_link(u, &u->links[i], err));
    for (int64_t i = 0; i < u->links_count; i++) PROA_TRY(check_link(u, &u->links[i], err));
    return PROA_OK;
}

/* ---- the whole ---- */

static proa_status read_entries(unpacker *u, proa_err *err)
{
    for (;;) {
        struct archive_entry *entry;
        int code = u->lib.read_next_header(u->archive, &entry);
        if (code == ARCHIVE_EOF) return PROA_OK;
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
            return PROA_FAIL(err, CORRUPT, "%s", u->lib.error_string(u->archive));
        if (++u->entries > u->limits.entries)
            return PROA_FAIL(err, LIMIT, "it has more than %lld entries", (long long)u->limits.entries);
        PROA_TRY(put_entry(u, entry, err));
    }
}

static proa_status read_archive(unpacker *u, const char *archive, proa_err *err)
{
    const library *lib = &u->lib;
    u->archive = lib->read_new();
    if (!u->archive) return PROA_FAIL(err, NO_MEMORY, "no memory for an archive");
    lib->read_support_format_tar(u->archive);
    lib->read_support_format_zip(u->archive);
    lib->read_support_filter_gzip(u->archive);
    lib->read_support_filter_bzip2(u->archive);
    lib->read_support_filter_xz(u->archive);
    lib->read_support_filter_zstd(u->archive);
    if (lib->read_open_filename(u->archive, archive, 1 << 16) != ARCHIVE_OK)
        return PROA_FAIL(err, CORRUPT, "%s", lib->error_string(u->archive));
    PROA_TRY(read_entries(u, err));
    return make_links(u, err);
}

static void unpacker_release(unpacker *u)
{
    if (u->archive) u->lib.read_free(u->archive);
    if (u->root >= 0) close(u->root);
    for (int64_t i = 0; i < u->links_count; i++) {
        free(u->links[i].path);
        free(u->links[i].target);
    }
    free(u->links);
    free(u->real);
}

proa_status proa_unpack(const char *archive, const char *folder, const proa_unpack_limits *limits, proa_err *err)
{
    unpacker u = {.root = -1, .limits = {PROA_ENV_ENTRIES_MAX, PROA_ENV_BYTES_MAX}};
    if (limits) u.limits = *limits;
    proa_status status = library_open(&u.lib, err);
    if (status == PROA_OK) {
        u.real = realpath(folder, NULL);
        u.root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (!u.real || u.root < 0)
            status = PROA_FAIL(err, IO, "cannot open '%s': %s", folder, strerror(errno));
    }
    if (status == PROA_OK) status = read_archive(&u, archive, err);
    if (status != PROA_OK) proa_err_prefix(err, "cannot unpack '%.200s'", archive);
    unpacker_release(&u);
    return status;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    (void)remove(path); /* what cannot be removed stays; the rest goes */
    return 0;
}

void proa_unpack_remove(const char *folder)
{
    (void)nftw(folder, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}
