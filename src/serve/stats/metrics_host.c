/* SPDX-License-Identifier: Apache-2.0
 * metrics_host.c - CPU and memory use of the machine, from /proc. */
#include "serve/stats/metrics_host.h"

#include "base/clock.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_NS ((int64_t)100000000) /* clock ticks are too coarse for less */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t busy, all;
    int64_t at_ns;
    double share;
} before;

/* Ticks of all processors since the boot: those with work, and all. */
static void read_ticks(uint64_t *busy, uint64_t *all)
{
    unsigned long long t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    FILE *f = fopen("/proc/stat", "re");
    *busy = *all = 0;
    if (!f) return;
    int n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
                   &t[6], &t[7]);
    fclose(f);
    for (int i = 0; i < n; i++) *all += t[i];
    *busy = *all - t[3] - t[4];
}

static double read_utilization(void)
{
    pthread_mutex_lock(&lock);
    int64_t now = proa_clock_ns();
    if (before.at_ns == 0 || now - before.at_ns >= PAUSE_NS) {
        uint64_t busy, all;
        read_ticks(&busy, &all);
        if (all > before.all) before.share = (double)(busy - before.busy) / (double)(all - before.all);
        before.busy = busy;
        before.all = all;
        before.at_ns = now;
    }
    double share = before.share;
    pthread_mutex_unlock(&lock);
    return share < 0 ? 0 : share > 1 ? 1 : share; /* iowait may run backwards */
}

static void read_memory(proa_host_stats *figures)
{
    char line[128];
    long long total = 0, available = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        long long kib;
        if (sscanf(line, "MemTotal: %lld", &kib) == 1) total = kib;
        else if (sscanf(line, "MemAvailable: %lld", &kib) == 1) available = kib;
    }
    fclose(f);
    figures->memory_total = total * 1024;
    figures->memory_used = (total - available) * 1024;
}

void proa_host_read(proa_host_stats *figures)
{
    memset(figures, 0, sizeof *figures);
    figures->utilization = read_utilization();
    read_memory(figures);
}
