/* SPDX-License-Identifier: Apache-2.0
 * gpus.h - inside serve: the use of NVIDIA GPUs, as the driver's NVML reports it. NVML is opened at run time; without
 *          it there are no GPUs. A call of it may take milliseconds, so a thread reads all of them at an interval.
 * Owner:   proa_gpus_start and proa_gpus_stop.
 * Threads: read on any thread. */
#ifndef PROA_SERVE_STATS_GPUS_H
#define PROA_SERVE_STATS_GPUS_H

#include "base/limits.h"
#include <stdbool.h>

/* Figures that a GPU does not report (a part of one, MIG, has no utilization) are negative. */
typedef struct proa_gpu_stats {
    char uuid[96];                    /* "GPU-..." */
    char name[96];                    /* "NVIDIA H100 80GB HBM3" */
    double utilization;               /* 0 to 1 */
    double memory_total, memory_used; /* bytes */
    double power_usage, power_limit;  /* watts */
    double energy;                    /* joules since the driver was loaded */
} proa_gpu_stats;

typedef struct proa_gpus proa_gpus;

/* NULL: there is no driver, or no GPU. */
proa_gpus *proa_gpus_start(int64_t interval_ms);
/* The last reading; returns the number of GPUs, at most cap. g NULL: 0. */
int proa_gpus_read(proa_gpus *g, proa_gpu_stats *list, int cap);
void proa_gpus_stop(proa_gpus *g); /* NULL is fine */

#endif
