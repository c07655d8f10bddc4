/* SPDX-License-Identifier: Apache-2.0
 * env.c - finds the interpreter, and unpacks environment archives into shared private folders. */
#include "python/env.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "python/activate.h"
#include "python/unpack.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define FOLDER_PREFIX "proa-env-"

/* An archive that is or is being unpacked. */
typedef struct unpacked {
    struct unpacked *next;
    char *archive; /* path and identity of the file: another file of that name is another environment */
    int64_t mtime_ns, bytes;
    char *folder; /* FOLDER/env has the files; FOLDER/lock is locked while this process lives */
    int lock;
    int users;
    bool busy; /* the first user is still unpacking; once false, folder == NULL means that it failed */
} unpacked;

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t list_moved = PTHREAD_COND_INITIALIZER;
static unpacked *list; /* guarded by list_lock */

struct proa_pyenv {
    unpacked *shared; /* NULL: the user's own folder, or no environment */
    char *python;
    proa_envlist settings;
};

/* ---- the private folder ---- */

static const char *temporary_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir == '/' ? dir : "/tmp";
}

/* Removes a folder that a killed server left: one whose lock is free. */
static void sweep_one(const char *dir, const char *name)
{
    char folder[PROA_PATH_MAX], lock[PROA_PATH_MAX];
    struct stat st;
    if (proa_path_join(folder, dir, name, NULL) != PROA_OK || proa_path_join(lock, folder, "lock", NULL) != PROA_OK)
        return;
    if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid()) return;
    int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return; /* being made */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) proa_unpack_remove(folder);
    close(fd);
}

static void sweep_dir(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *entry; (entry = readdir(d));)
        if (strncmp(entry->d_name, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) == 0) sweep_one(dir, entry->d_name);
    closedir(d);
}

static proa_status folder_new(unpacked *u, char env[PROA_PATH_MAX], proa_err *err)
{
    char folder[PROA_PATH_MAX], new_lock[PROA_PATH_MAX], lock[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(folder, temporary_dir(), FOLDER_PREFIX "XXXXXX", err));
    sweep_dir(temporary_dir());
    if (!mkdtemp(folder))
        return PROA_FAIL(err, IO, "cannot make a folder in '%s': %s", temporary_dir(), strerror(errno));
    u->folder = proa_strdup(folder);
    PROA_TRY(proa_path_join(new_lock, folder, "lock.new", err));
    PROA_TRY(proa_path_join(lock, folder, "lock", err));
    u->lock = open(new_lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    /* renamed only when it is locked: no other process may find it unlocked */
    if (u->lock < 0 || flock(u->lock, LOCK_EX | LOCK_NB) != 0 || rename(new_lock, lock) != 0)
        return PROA_FAIL(err, IO, "cannot lock '%s': %s", lock, strerror(errno));
    PROA_TRY(proa_path_join(env, folder, "env", err));
    if (mkdir(env, 0700) != 0) return PROA_FAIL(err, IO, "cannot make '%s': %s", env, strerror(errno));
    return PROA_OK;
}

/* ---- programs ---- */

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The interpreter of an environment: bin/python3, bin/python, or the first bin/python3.N. */
static proa_status find_in(char out[PROA_PATH_MAX], const char *root, proa_err *err)
{
    char bin[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(bin, root, "bin", err));
    static const char *const names[] = {"python3", "python"};
    for (size_t i = 0; i < 2; i++) {
        PROA_TRY(proa_path_join(out, bin, names[i], err));
        if (is_program(out)) return PROA_OK;
    }
    DIR *d = opendir(bin);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (strncmp(entry->d_name, "python3.", 8) != 0 ||
            strspn(entry->d_name + 8, "0123456789") != strlen(entry->d_name + 8))
            continue;
        if (proa_path_join(out, bin, entry->d_name, NULL) == PROA_OK && is_program(out)) {
            closedir(d);
            return PROA_OK;
        }
    }
    if (d) closedir(d);
    return PROA_FAIL(err, NOT_FOUND, "the environment '%s' has no interpreter (bin/python3)", root);
}

/* A path that holds in every folder. Links are not followed: an interpreter finds its virtual environment by the
 * path that it was started with, and the environment's bin/python is a link to another one. */
static proa_status absolute_path(char out[PROA_PATH_MAX], const char *name, proa_err *err)
{
    char here[PROA_PATH_MAX];
    bool fits = strlen(name) < PROA_PATH_MAX;
    if (fits && *name == '/') memcpy(out, name, strlen(name) + 1);
    else fits = fits && getcwd(here, sizeof here) && proa_path_join(out, here, name, NULL) == PROA_OK;
    return fits ? PROA_OK : PROA_FAIL(err, INVALID, "the path '%.200s' is too long", name);
}

/* A program by its path, or by its name in PATH. */
static proa_status find_program(char out[PROA_PATH_MAX], const char *name, proa_err *err)
{
    if (strchr(name, '/')) {
        if (!is_program(name))
            return PROA_FAIL(err, NOT_FOUND, "the Python interpreter '%s' is not there", name);
        return absolute_path(out, name, err);
    }
    const char *path = getenv("PATH");
    for (const char *part = path ? path : "/usr/bin:/bin"; *part;) {
        size_t n = strcspn(part, ":");
        char dir[PROA_PATH_MAX];
        if (n > 0 && n < sizeof dir && *part == '/') {
            memcpy(dir, part, n);
            dir[n] = '\0';
            if (proa_path_join(out, dir, name, NULL) == PROA_OK && is_program(out)) return PROA_OK;
        }
        part += n + (part[n] == ':');
    }
    return PROA_FAIL(err, NOT_FOUND,
                     "no Python interpreter: '%s' is not in PATH (install python3 with numpy, or name one by "
                     "EXECUTION_ENV_PATH or PROA_PYTHON)",
                     name);
}

/* Archives of conda-pack contain the path where they were made; their own program conda-unpack changes it
 * to the new one. */
static proa_status conda_unpack(const char *env, proa_err *err)
{
    char python[PROA_PATH_MAX], script[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(script, env, "bin/conda-unpack", err));
    if (!proa_file_exists(script)) return PROA_OK;
    PROA_TRY(find_in(python, env, err));
    char *argv[] = {python, script, NULL};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 2, 1); /* standard output belongs to the server */
    pid_t child;
    int code = posix_spawn(&child, python, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (code != 0) return PROA_FAIL(err, IO, "cannot run '%s': %s", python, strerror(code));
    if (proa_child_wait(child, PROA_ENV_UNPACK_MS) != 0)
        return PROA_FAIL(err, INTERNAL, "'%s' failed", script);
    return PROA_OK;
}

/* ---- archives, each unpacked once ---- */

static unpacked *find_unpacked(const char *archive, const struct stat *st)
{
    int64_t mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    for (unpacked *u = list; u; u = u->next)
        if (u->mtime_ns == mtime_ns && u->bytes == st->st_size && strcmp(u->archive, archive) == 0) return u;
    unpacked *u = proa_calloc(1, sizeof *u);
    *u = (unpacked){
        .next = list, .archive = proa_strdup(archive), .mtime_ns = mtime_ns, .bytes = st->st_size, .lock = -1};
    return list = u;
}

static void remove_files(unpacked *u)
{
    if (u->folder) proa_unpack_remove(u->folder);
    if (u->lock >= 0) close(u->lock);
    free(u->folder);
    u->folder = NULL;
    u->lock = -1;
}

static void let_go(unpacked *u)
{
    pthread_mutex_lock(&list_lock);
    bool last = --u->users == 0;
    if (last)
        for (unpacked **at = &list; *at; at = &(*at)->next)
            if (*at == u) {
                *at = u->next;
                break;
            }
    pthread_mutex_unlock(&list_lock);
    if (!last) return;
    remove_files(u);
    free(u->archive);
    free(u);
}

static proa_status unpack_archive(unpacked *u, proa_err *err)
{
    char env[PROA_PATH_MAX];
    proa_status status = folder_new(u, env, err);
    if (status == PROA_OK) status = proa_unpack(u->archive, env, NULL, err);
    if (status == PROA_OK) status = conda_unpack(env, err);
    if (status != PROA_OK) remove_files(u);
    return status;
}

/* The files of an archive. The first user unpacks them, the others wait; after a failure the next one tries
 * again. */
static proa_status share_unpacked(unpacked **out, const char *archive, const struct stat *st, proa_err *err)
{
    proa_status status = PROA_OK;
    pthread_mutex_lock(&list_lock);
    unpacked *u = find_unpacked(archive, st);
    u->users++;
    while (u->busy) pthread_cond_wait(&list_moved, &list_lock);
    if (!u->folder) {
        u->busy = true;
        pthread_mutex_unlock(&list_lock);
        PROA_LOG(INFO, "unpacking the Python environment '%s'", archive);
        status = unpack_archive(u, err);
        pthread_mutex_lock(&list_lock);
        u->busy = false;
        pthread_cond_broadcast(&list_moved);
    }
    pthread_mutex_unlock(&list_lock);
    if (status == PROA_OK) *out = u;
    else let_go(u);
    return status;
}

/* ---- the environment ---- */

/* Sets the variables that sourcing bin/activate would set. */
static proa_status activate_env(proa_pyenv *env, const char *root, proa_err *err)
{
    char python[PROA_PATH_MAX], path[PROA_PATH_MAX];
    PROA_TRY(find_in(python, root, err));
    env->python = proa_strdup(python);
    PROA_TRY(proa_path_join(path, root, "pyvenv.cfg", err));
    proa_envlist_set(&env->settings, proa_file_exists(path) ? "VIRTUAL_ENV" : "CONDA_PREFIX", root, "");
    const char *old = getenv("PATH");
    PROA_TRY(proa_path_join(path, root, "bin:", err));
    proa_envlist_set(&env->settings, "PATH", path, old ? old : "/usr/bin:/bin");
    proa_envlist_set(&env->settings, "PYTHONHOME", "",
                     ""); /* may be set for another interpreter; empty counts as not set */
    return proa_activate(&env->settings, root, err);
}

static proa_status open_path(proa_pyenv *env, const char *path, proa_err *err)
{
    struct stat st;
    char root[PROA_PATH_MAX];
    char *real = realpath(path, NULL);
    if (!real || stat(real, &st) != 0) {
        free(real);
        return PROA_FAIL(err, NOT_FOUND, "cannot open the execution environment '%s': %s", path, strerror(errno));
    }
    proa_status status;
    if (S_ISDIR(st.st_mode)) {
        status = activate_env(env, real, err);
    } else {
        status = share_unpacked(&env->shared, real, &st, err);
        if (status == PROA_OK) status = proa_path_join(root, env->shared->folder, "env", err);
        if (status == PROA_OK) status = activate_env(env, root, err);
    }
    free(real);
    return status;
}

static proa_status open_default(proa_pyenv *env, const char *interpreter, proa_err *err)
{
    char python[PROA_PATH_MAX];
    if (!interpreter || !*interpreter) interpreter = getenv("PROA_PYTHON");
    if (!interpreter || !*interpreter) interpreter = "python3";
    PROA_TRY(find_program(python, interpreter, err));
    env->python = proa_strdup(python);
    return PROA_OK;
}

proa_status proa_pyenv_open(proa_pyenv **out, const char *path, const char *model_dir,
                            const char *interpreter, proa_err *err)
{
    char where[PROA_PATH_MAX];
    proa_pyenv *env = proa_calloc(1, sizeof *env);
    proa_status status;
    if (path && *path) {
        status = proa_path_resolve(where, model_dir, path, err);
        if (status == PROA_OK) status = open_path(env, where, err);
    } else {
        status = open_default(env, interpreter, err);
    }
    if (status == PROA_OK) *out = env;
    else proa_pyenv_close(env);
    return status;
}

void proa_pyenv_close(proa_pyenv *env)
{
    if (!env) return;
    if (env->shared) let_go(env->shared);
    proa_envlist_release(&env->settings);
    free(env->python);
    free(env);
}

const char *proa_pyenv_python(const proa_pyenv *env)
{
    return env->python;
}

const char *const *proa_pyenv_settings(const proa_pyenv *env)
{
    static const char *const none[] = {NULL};
    return env->settings.items ? (const char *const *)env->settings.items : none;
}
