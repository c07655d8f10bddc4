/* SPDX-License-Identifier: Apache-2.0
 * numa.c - NUMA nodes, from the lists of the kernel. */
#include "comm/numa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES "/sys/devices/system/node"
enum { NODES_MAX = 64, LIST_MAX = 4096 };

/* A list of the kernel, such as "0-3,8": *text after the next range. False: there is none. */
static bool next_range(const char **text, long *first, long *last)
{
    char *end;
    *first = strtol(*text, &end, 10);
    if (end == *text || *first < 0) return false;
    *last = *first;
    if (*end == '-') {
        const char *begin = end + 1;
        *last = strtol(begin, &end, 10);
        if (end == begin || *last < *first) return false;
    }
    *text = *end == ',' ? end + 1 : end;
    return true;
}

static bool read_list(char out[LIST_MAX], const char *root, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "re");
    bool got = f && fgets(out, LIST_MAX, f);
    if (f) fclose(f);
    return got;
}

bool proa_numa_cpus(const char *root, int32_t node, cpu_set_t *cpus)
{
    char list[LIST_MAX], name[32];
    cpu_set_t allowed;
    const char *at = list;
    CPU_ZERO(cpus);
    snprintf(name, sizeof name, "node%d/cpulist", node);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || !read_list(list, root, name)) return false;
    for (long first, last; next_range(&at, &first, &last);)
        for (long i = first; i <= last && i < CPU_SETSIZE; i++)
            if (CPU_ISSET((size_t)i, &allowed)) CPU_SET((size_t)i, cpus);
    return CPU_COUNT(cpus) > 0;
}

int32_t proa_numa_node_in(const char *root, int32_t rank, int32_t ranks)
{
    char list[LIST_MAX];
    int32_t node[NODES_MAX], count = 0;
    cpu_set_t cpus;
    const char *at = list;
    if (!read_list(list, root, "online")) return -1;
    for (long first, last; next_range(&at, &first, &last);)
        for (long i = first; i <= last && count < NODES_MAX; i++)
            if (proa_numa_cpus(root, (int32_t)i, &cpus)) node[count++] = (int32_t)i;
    return count > 1 ? node[(int64_t)rank * count / ranks] : -1;
}

int32_t proa_numa_node_of(int32_t rank, int32_t ranks)
{
    return proa_numa_node_in(NODES, rank, ranks);
}

void proa_numa_bind(int32_t node)
{
    cpu_set_t cpus;
    if (node >= 0 && proa_numa_cpus(NODES, node, &cpus)) sched_setaffinity(0, sizeof cpus, &cpus);
}
