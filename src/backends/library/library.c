/* SPDX-License-Identifier: Apache-2.0
 * library.c - finds, checks and loads the shared library of a backend, once for the program. */
#include "backends/library/library.h"

#include "backends/library/elf.h"
#include "backends/triton/triton.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proa_library *libraries; /* under the lock; entries stay */

/* The name of a backend or a file is one component of a path: it may come with a load request. */
static bool is_component(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && strlen(name) < 128;
}

/* The path of the file, whether it exists or not. */
static proa_status library_path(char *path, const char *folder, const char *name, const char *runtime,
                                proa_err *err)
{
    char file[160];
    if (*runtime && !is_component(runtime))
        return PROA_FAIL(err, INVALID, "runtime '%s' is not the name of a file in '%s'", runtime, folder);
    if (*runtime) return proa_path_join(path, folder, runtime, err);
    snprintf(file, sizeof file, "libproa_%s.so", name);
    PROA_TRY(proa_path_join(path, folder, file, err));
    if (proa_file_exists(path)) return PROA_OK;
    snprintf(file, sizeof file, "libtriton_%s.so", name);
    return proa_path_join(path, folder, file, err);
}

static proa_library *find_loaded(const char *path, const char *name)
{
    for (proa_library *l = libraries; l; l = l->next)
        if (strcmp(l->path, path) == 0 && strcmp(l->name, name) == 0) return l;
    return NULL;
}

/* Before its code runs: the file is for this machine, is a backend, and everything of Triton that it imports is there.
 * *triton: by its exports. */
static proa_status check_file(const char *path, bool *triton, proa_err *err)
{
    proa_elf elf;
    PROA_TRY(proa_elf_open(&elf, path, err));
    bool ours = proa_elf_exports(&elf, PROA_BACKEND_ENTRY);
    proa_status status = PROA_OK;
    *triton = !ours && proa_elf_exports(&elf, PROA_TRITON_ENTRY);
    if (*triton) status = proa_triton_prepare(&elf, path, err);
    else if (!ours)
        status = PROA_FAIL(
            err, INVALID,
            "'%s' is not a backend: it exports neither " PROA_BACKEND_ENTRY " nor " PROA_TRITON_ENTRY, path);
    proa_elf_close(&elf);
    return status;
}

static void library_free(proa_library *l)
{
    if (l->handle) dlclose(l->handle);
    free((char *)l->name);
    free((char *)l->path);
    free((char *)l->folder);
    free((char *)l->directory);
    free(l);
}

static proa_status library_load(proa_library **out, const char *path, const char *folder,
                                const char *directory, const char *name, proa_err *err)
{
    bool triton;
    PROA_TRY(check_file(path, &triton, err));
    proa_library *l = proa_calloc(1, sizeof *l);
    l->name = proa_strdup(name), l->path = proa_strdup(path), l->folder = proa_strdup(folder);
    l->directory = directory ? proa_strdup(directory) : NULL; /* a plug-in needs none */
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    proa_status status;
    if (!l->handle) status = PROA_FAIL(err, INVALID, "cannot load backend '%s': %s", name, dlerror());
    else status = triton ? proa_triton_open(l, err) : proa_library_open_table(l, err);
    if (status != PROA_OK) {
        library_free(l);
        return status;
    }
    PROA_LOG(INFO, "backend '%s' loaded from '%s'", name, path);
    l->next = libraries;
    *out = libraries = l;
    return PROA_OK;
}

/* The library of a directory, else a plug-in of Proa; path "" if there is neither. */
static proa_status find_path(char *path, const char *directory, const char *name, const char *runtime,
                             proa_err *err)
{
    char folder[PROA_PATH_MAX];
    path[0] = 0;
    if (directory) {
        PROA_TRY(proa_path_join(folder, directory, name, err));
        PROA_TRY(library_path(path, folder, name, runtime, err));
        if (proa_file_exists(path)) return PROA_OK;
    }
    path[0] = 0;
    return *runtime ? PROA_OK : proa_library_plugin(path, directory, name, err);
}

proa_status proa_library_locate(char *path, const char *directory, const char *name, const char *runtime,
                                proa_err *err)
{
    path[0] = 0;
    return is_component(name) ? find_path(path, directory, name, runtime, err)
                              : PROA_OK; /* no folder has this name */
}

proa_status proa_library_find(const proa_backend **out, const char *directory, const char *name,
                              const char *runtime, proa_err *err)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX];
    *out = NULL;
    PROA_TRY(proa_library_locate(path, directory, name, runtime, err));
    if (!path[0]) return PROA_OK;
    memcpy(folder, path, sizeof folder);
    *strrchr(folder, '/') = 0;
    pthread_mutex_lock(&lock);
    proa_library *l = find_loaded(path, name);
    proa_status status = l ? PROA_OK : library_load(&l, path, folder, directory, name, err);
    pthread_mutex_unlock(&lock);
    if (status == PROA_OK) *out = &l->backend;
    return status;
}
