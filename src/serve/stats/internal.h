/* SPDX-License-Identifier: Apache-2.0
 * internal.h - the cells of the statistics, for stats.c (records), message.c (reports) and windows.c (quantiles).
 * Threads: a cell under its lock, the rest under the lock of the whole. */
#ifndef PROA_SERVE_STATS_INTERNAL_H
#define PROA_SERVE_STATS_INTERNAL_H

#include "serve/stats/stats.h"
#include <pthread.h>

#define PROA_STATS_CELLS 8 /* threads that record at the same time without waiting for each other */

typedef struct proa_batch_row {
    int64_t size;
    proa_duration input, infer, output;
} proa_batch_row;

typedef struct proa_reply_row {
    proa_duration infer, output, success, fail, empty, cancel;
    bool used;
} proa_reply_row;

typedef struct proa_stats_cell {
    PROA_ALIGNED(64) atomic_flag lock;
    int batches_count, batches_cap;
    proa_batch_row *batches;
    proa_stats_sums sums;
} proa_stats_cell;

typedef struct proa_bounds {
    int count;
    int64_t ns[PROA_BUCKETS_OF_LATENCY];
} proa_bounds;

struct proa_model_stats {
    proa_stats_cell cells[PROA_STATS_CELLS];
    proa_bounds bounds[PROA_LATENCY_COUNT];
    atomic_bool windows_on;
    pthread_mutex_t lock;    /* guards what follows */
    proa_reply_row *replies; /* by the number of the reply */
    int replies_count;
    struct proa_windows *windows; /* [PROA_LATENCY_COUNT]; windows.c */
};

/* The batch sizes that were executed, in no order; *rows from the arena. */
int proa_stats_batches(proa_model_stats *stats, proa_arena *arena, proa_batch_row **rows);
void proa_windows_add(proa_model_stats *stats, proa_latency which, int64_t ns);
void proa_windows_free(proa_model_stats *stats);

#endif
