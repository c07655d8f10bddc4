/* SPDX-License-Identifier: Apache-2.0
 * regions.c - files of /dev/shm that a process which was killed leaves behind. */
#include "process/regions.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER    "/dev/shm/"
#define COUNT_MAX 256 /* of one process: a library has one or two */
#define WAITS     50  /* for children, 10 ms each */

/* The path of a line of /proc/PID/maps, if it is a file of /dev/shm that has its name still; else NULL. */
static char *region_of(char *line)
{
    char *path = strstr(line, FOLDER);
    if (!path) return NULL;
    path[strcspn(path, "\n")] = 0;
    return strstr(path, " (deleted)") ? NULL : path;
}

/* Calls see for each line of a process; false ends it, and is returned then. */
static bool each_region(pid_t pid, bool (*see)(void *arg, const char *path), void *arg)
{
    char name[32], line[PROA_PATH_MAX + 128];
    bool go_on = true;
    snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(name, "re");
    while (f && go_on && fgets(line, sizeof line, f)) {
        const char *path = region_of(line);
        if (path) go_on = see(arg, path);
    }
    if (f) fclose(f);
    return go_on;
}

static bool made_since(const char *path, int64_t since)
{
    struct statx st;
    return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_TYPE, &st) == 0 &&
           (st.stx_mask & STATX_BTIME) && S_ISREG(st.stx_mode) && st.stx_btime.tv_sec >= since;
}

typedef struct region_scan {
    proa_regions *to;
    int64_t since;
} region_scan;

static bool note_region(void *arg, const char *path)
{
    const region_scan *n = arg;
    proa_regions *r = n->to;
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->paths[i], path) == 0) return true;
    if (r->count == COUNT_MAX || !made_since(path, n->since)) return true;
    r->paths = proa_realloc(r->paths, (size_t)(r->count + 1) * sizeof *r->paths);
    r->paths[r->count++] = proa_strdup(path);
    return true;
}

void proa_regions_note(proa_regions *r, pid_t pid, int64_t since)
{
    region_scan n = {.to = r, .since = since};
    (void)each_region(pid, note_region, &n);
}

static bool is_other(void *path, const char *mapped)
{
    return strcmp(path, mapped) != 0;
}

static bool anybody_maps(char *path)
{
    bool found = false;
    DIR *proc = opendir("/proc");
    for (const struct dirent *d; proc && !found && (d = readdir(proc));) {
        char *end;
        long pid = strtol(d->d_name, &end, 10);
        if (pid > 0 && !*end) found = !each_region((pid_t)pid, is_other, path);
    }
    if (proc) closedir(proc);
    return found;
}

void proa_regions_remove(proa_regions *r)
{
    for (int i = 0; i < r->count; i++) {
        bool used = anybody_maps(r->paths[i]);
        for (int k = 0; used && k < WAITS; k++) {
            usleep(10000);
            used = anybody_maps(r->paths[i]);
        }
        if (!used) (void)unlink(r->paths[i]); /* gone already: so much the better */
    }
    proa_regions_release(r);
}

void proa_regions_release(proa_regions *r)
{
    for (int i = 0; i < r->count; i++) free(r->paths[i]);
    free(r->paths);
    *r = (proa_regions){0};
}
