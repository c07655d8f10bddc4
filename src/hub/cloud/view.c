/* SPDX-License-Identifier: Apache-2.0
 * view.c - links to snapshots, and the removal of snapshots that no link leads to. */
#include "hub/cloud/view.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_MODE = 0777, LOCK_MODE = 0664 };

#define EMPTY_FOLDER "../../empty"

/* ---- a set of names ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct name_set {
    char **names; /* [count] */
    int count, cap;
} name_set;

static void add_name(name_set *set, const char *name)
{
    if (set->count == set->cap) {
        set->cap = set->cap ? 2 * set->cap : 64;
        set->names = proa_realloc(set->names, (size_t)set->cap * sizeof *set->names);
    }
    set->names[set->count++] = proa_strdup(name);
}

static void sort_names(name_set *set)
{
    if (set->count) qsort(set->names, (size_t)set->count, sizeof *set->names, by_name);
}

/* The set is sorted. */
static bool has_name(const name_set *set, const char *name)
{
    return set->count && bsearch(&name, set->names, (size_t)set->count, sizeof *set->names, by_name);
}

static void free_names(name_set *set)
{
    for (int i = 0; i < set->count; i++) free(set->names[i]);
    free(set->names);
    *set = (name_set){.count = 0};
}

/* ---- paths and locks ---- */

static void cache_path(char out[PROA_PATH_MAX], const proa_hub_cache *c, const char *below)
{
    snprintf(out, PROA_PATH_MAX, "%s/%s/%s", c->root, c->folder, below);
}

/* Opens and locks a file; -1 if it is held by another or cannot be locked. */
static int take_lock(const char *path, int operation)
{
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, LOCK_MODE);
    if (fd >= 0 && flock(fd, operation) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static int lock_views(const proa_hub_cache *c, const char *name, int operation)
{
    char path[PROA_PATH_MAX], below[64];
    snprintf(below, sizeof below, "views/%s", name);
    cache_path(path, c, below);
    return take_lock(path, operation);
}

int proa_cloud_view_hold(const proa_cloud_view *v)
{
    return lock_views(v->cache, ".fetch", LOCK_SH);
}

/* ---- open and close ---- */

void proa_cloud_view_init(proa_cloud_view *v)
{
    *v = (proa_cloud_view){.fd = -1, .lock_fd = -1};
}

/* Views whose processes have ended: their locks can be had. */
static void remove_stale_views(const proa_hub_cache *c)
{
    char views[PROA_PATH_MAX], path[PROA_PATH_MAX], lock[PROA_PATH_MAX];
    cache_path(views, c, "views");
    DIR *dir = opendir(views);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (d->d_name[0] == '.' || proa_path_join(path, views, d->d_name, NULL) != PROA_OK ||
            proa_path_join(lock, path, ".lock", NULL) != PROA_OK)
            continue;
        int fd = take_lock(lock, LOCK_EX | LOCK_NB);
        if (fd < 0) continue;
        proa_dir_remove(path);
        close(fd);
    }
    if (dir) closedir(dir);
}

static proa_status make_view(proa_cloud_view *v, proa_err *err)
{
    char lock[PROA_PATH_MAX];
    cache_path(v->path, v->cache, "views/XXXXXX");
    if (!mkdtemp(v->path)) {
        v->path[0] = '\0';
        return PROA_FAIL(err, IO, "cannot make a folder in %s/%s/views: %s", v->cache->root, v->cache->folder,
                         strerror(errno));
    }
    PROA_TRY(proa_path_join(lock, v->path, ".lock", err));
    v->lock_fd = take_lock(lock, LOCK_EX | LOCK_NB);
    v->fd = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return v->fd >= 0 ? PROA_OK : PROA_FAIL(err, IO, "cannot open %s: %s", v->path, strerror(errno));
}

proa_status proa_cloud_view_open(proa_cloud_view *v, const proa_hub_cache *cache, proa_err *err)
{
    static const char *const folders[] = {"views", "empty", "blobs", "snapshots"};
    v->cache = cache;
    for (size_t i = 0; i < PROA_COUNT(folders); i++)
        if (mkdirat(cache->repo_fd, folders[i], FOLDER_MODE) != 0 && errno != EEXIST)
            return PROA_FAIL(err, IO, "cannot make the folder %s/%s/%s: %s", cache->root, cache->folder,
                             folders[i], strerror(errno));
    int lock = lock_views(cache, ".lock", LOCK_EX);
    remove_stale_views(cache);
    proa_status status = make_view(v, err);
    if (lock >= 0) close(lock);
    return status;
}

void proa_cloud_view_close(proa_cloud_view *v)
{
    if (v->path[0]) proa_dir_remove(v->path);
    if (v->fd >= 0) close(v->fd);
    if (v->lock_fd >= 0) close(v->lock_fd);
    proa_cloud_view_clear(v);
    free(v->names);
    proa_cloud_view_init(v);
}

/* ---- links ---- */

static proa_status set_link(proa_cloud_view *v, const char *name, const char *target, proa_err *err)
{
    static const char tmp[] = ".link.tmp";
    unlinkat(v->fd, tmp, 0);
    if (symlinkat(target, v->fd, tmp) == 0 && renameat(v->fd, tmp, v->fd, name) == 0) return PROA_OK;
    return PROA_FAIL(err, IO, "cannot link %s/%s: %s", v->path, name, strerror(errno));
}

/* False: there is no such link. */
static bool read_target(const proa_cloud_view *v, char out[PROA_PATH_MAX], const char *name)
{
    ssize_t n = readlinkat(v->fd, name, out, PROA_PATH_MAX - 1);
    if (n >= 0) out[n] = '\0';
    return n >= 0;
}

void proa_cloud_view_clear(proa_cloud_view *v)
{
    for (int i = 0; i < v->count; i++) free(v->names[i]);
    v->count = 0;
}

proa_status proa_cloud_view_name(proa_cloud_view *v, const char *name, proa_err *err)
{
    char target[PROA_PATH_MAX];
    if (v->count == v->cap) {
        v->cap = v->cap ? 2 * v->cap : 64;
        v->names = proa_realloc(v->names, (size_t)v->cap * sizeof *v->names);
    }
    v->names[v->count++] = proa_strdup(name);
    return read_target(v, target, name) ? PROA_OK : set_link(v, name, EMPTY_FOLDER, err);
}

void proa_cloud_view_remove(proa_cloud_view *v, const char *name)
{
    unlinkat(v->fd, name, 0);
}

void proa_cloud_view_sweep(proa_cloud_view *v)
{
    name_set gone = {.count = 0};
    const name_set named = {.names = v->names, .count = v->count};
    DIR *dir = opendir(v->path);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.' && !has_name(&named, d->d_name)) add_name(&gone, d->d_name);
    if (dir) closedir(dir);
    for (int i = 0; i < gone.count; i++) proa_cloud_view_remove(v, gone.names[i]);
    free_names(&gone);
}

static void snapshot_target(char out[64], const char *commit)
{
    snprintf(out, 64, "../../snapshots/%s", commit);
}

bool proa_cloud_view_is(const proa_cloud_view *v, const char *name, const char *commit)
{
    char target[64], now[PROA_PATH_MAX];
    snapshot_target(target, commit);
    return read_target(v, now, name) && strcmp(now, target) == 0;
}

proa_status proa_cloud_view_link(proa_cloud_view *v, const char *name, const char *commit, proa_err *err)
{
    char target[64], now[PROA_PATH_MAX], before[300];
    snapshot_target(target, commit);
    snprintf(before, sizeof before, ".%s", name);
    if (read_target(v, now, name) && strcmp(now, EMPTY_FOLDER) != 0) PROA_TRY(set_link(v, before, now, err));
    return set_link(v, name, target, err);
}

/* ---- unused snapshots ---- */

/* The snapshots that links of a view lead to. */
static void add_targets(name_set *commits, const char *view)
{
    DIR *dir = opendir(view);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char target[PROA_PATH_MAX];
        ssize_t n = readlinkat(dirfd(dir), d->d_name, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        const char *slash = strrchr(target, '/');
        add_name(commits, slash ? slash + 1 : target);
    }
    if (dir) closedir(dir);
}

static void each_below(const char *folder, void (*fn)(name_set *set, const char *path), name_set *set)
{
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[PROA_PATH_MAX];
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        if (proa_path_join(path, folder, d->d_name, NULL) == PROA_OK) fn(set, path);
    }
    if (dir) closedir(dir);
}

/* The blobs that a snapshot's files lead to. */
static void add_blobs(name_set *blobs, const char *path)
{
    char target[PROA_PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        if (errno == EINVAL) each_below(path, add_blobs, blobs); /* a folder */
        return;
    }
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    add_name(blobs, slash ? slash + 1 : target);
}

/* Removes the entries of a folder of the cache that are not in the set. */
static void remove_others(const proa_hub_cache *c, const char *below, const name_set *kept)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    cache_path(folder, c, below);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (d->d_name[0] != '.' && !has_name(kept, d->d_name) &&
            proa_path_join(path, folder, d->d_name, NULL) == PROA_OK)
            proa_dir_remove(path);
    if (dir) closedir(dir);
}

static void remove_unused(const proa_hub_cache *c)
{
    name_set commits = {.count = 0}, blobs = {.count = 0};
    char path[PROA_PATH_MAX];
    cache_path(path, c, "views");
    each_below(path, add_targets, &commits);
    sort_names(&commits);
    remove_others(c, "snapshots", &commits);
    cache_path(path, c, "snapshots");
    each_below(path, add_blobs, &blobs);
    sort_names(&blobs);
    remove_others(c, "blobs", &blobs);
    free_names(&commits);
    free_names(&blobs);
}

/* Bytes of all files in blobs/, and of those of the tree that are not among them. */
static int64_t bytes_after(const proa_hub_cache *c, const proa_hub_tree *tree)
{
    char folder[PROA_PATH_MAX];
    int64_t bytes = 0;
    cache_path(folder, c, "blobs");
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += st.st_size;
    }
    if (dir) closedir(dir);
    for (int64_t i = 0; i < tree->count; i++)
        if (!proa_hub_cache_has_blob(c, &tree->entries[i])) bytes += tree->entries[i].size;
    return bytes;
}

proa_status proa_cloud_view_make_room(proa_cloud_view *v, const proa_hub_tree *tree, int64_t bytes_max,
                                      proa_err *err)
{
    if (bytes_after(v->cache, tree) <= bytes_max) return PROA_OK;
    int views = lock_views(v->cache, ".lock", LOCK_EX),
        fetch = lock_views(v->cache, ".fetch", LOCK_EX | LOCK_NB);
    if (views >= 0 && fetch >= 0) remove_unused(v->cache);
    if (views >= 0) close(views);
    if (fetch >= 0) close(fetch);
    int64_t bytes = bytes_after(v->cache, tree);
    if (bytes <= bytes_max) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the cache would hold %lld bytes, --cloud-cache-size is %lld",
                     (long long)bytes, (long long)bytes_max);
}
