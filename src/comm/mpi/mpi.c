/* SPDX-License-Identifier: Apache-2.0
 * mpi.c - opens the plug-in. */
#include "comm/mpi/mpi.h"

#include "base/checked.h"
#include "base/limits.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static proa_mpi world; /* ranks 0: not opened */

/* The number of processes, as launchers tell it: Open MPI, MPICH and Intel MPI, Slurm. */
bool proa_mpi_launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && strtol(value, NULL, 10) > 1) return true;
    }
    return false;
}

/* Beside the program, in the library folder next to it, or where the system finds libraries. */
static void *open_plugin(void)
{
    static const char *const places[] = {"", "../", "../lib/", "../lib/x86_64-linux-gnu/"};
    char path[PROA_PATH_MAX + 64];
    ssize_t len = readlink("/proc/self/exe", path, PROA_PATH_MAX);
    char *slash = len > 0 ? (path[len] = 0, strrchr(path, '/')) : NULL;
    for (size_t i = 0; slash && i < PROA_COUNT(places); i++) {
        snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s%s", places[i], PROA_MPI_PLUGIN);
        if (access(path, R_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    return dlopen(PROA_MPI_PLUGIN, RTLD_NOW | RTLD_GLOBAL);
}

proa_status proa_mpi_open(const proa_mpi **out, proa_err *err)
{
    *out = &world;
    if (world.ranks) return PROA_OK;
    void *plugin = open_plugin(); /* stays open: MPI has threads */
    if (!plugin)
        return PROA_FAIL(err, UNSUPPORTED,
                         "started by MPI, but " PROA_MPI_PLUGIN " cannot be opened: %s (docs/ranks.md)",
                         dlerror());
    proa_mpi_start_fn *start;
    *(void **)&start = dlsym(plugin, PROA_MPI_ENTRY);
    if (!start) return PROA_FAIL(err, UNSUPPORTED, PROA_MPI_PLUGIN " is not Proa's plug-in");
    return start(PROA_MPI_VERSION, &world, err);
}

const proa_mpi *proa_mpi_world(void)
{
    return world.ranks ? &world : NULL;
}
