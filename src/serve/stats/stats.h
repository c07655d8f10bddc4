/* SPDX-License-Identifier: Apache-2.0
 * stats.h - inside serve: the counts and durations of a model version, for the statistics extension and the metrics.
 * Written often, read seldom: each thread adds to one of a few cells, a reader sums them up.
 * Threads: any; one short lock for a record, which two threads seldom share. */
#ifndef PROA_SERVE_STATS_STATS_H
#define PROA_SERVE_STATS_STATS_H

#include "proto/grpc_service.pb-c.h"
#include "proto/model_config.pb-c.h"
#include "serve/infer.h"

typedef struct proa_model_stats proa_model_stats;
typedef struct proa_duration {
    uint64_t count, ns;
} proa_duration;
typedef enum proa_fail_reason {
    PROA_FAIL_REJECTED,
    PROA_FAIL_CANCELED,
    PROA_FAIL_BACKEND,
    PROA_FAIL_OTHER,
    PROA_FAIL_COUNT
} proa_fail_reason;

/* What has a distribution: histograms always, summaries where they are on. */
typedef enum proa_latency {
    PROA_LATENCY_REQUEST,
    PROA_LATENCY_QUEUE,
    PROA_LATENCY_INPUT,
    PROA_LATENCY_INFER,
    PROA_LATENCY_OUTPUT,
    PROA_LATENCY_FIRST, /* until the first reply */
    PROA_LATENCY_HIT,   /* of the cache */
    PROA_LATENCY_MISS,
    PROA_LATENCY_COUNT
} proa_latency;

#define PROA_BUCKETS_OF_LATENCY 24 /* bounds of one histogram, at most; beyond the last is infinity */

typedef struct proa_histogram {
    uint64_t counts[PROA_BUCKETS_OF_LATENCY + 1]; /* not cumulative; the last: above all bounds */
    uint64_t count, sum_ns;
} proa_histogram;

/* All sums of a version at one moment. */
typedef struct proa_stats_sums {
    uint64_t last_ms; /* of the last request, since 1970 */
    uint64_t inferences, executions;
    proa_duration success, fail, queue, input, infer, output, hit, miss;
    uint64_t failures[PROA_FAIL_COUNT];
    proa_histogram histograms[PROA_LATENCY_COUNT];
} proa_stats_sums;

/* The parts of a request's time, ns. What the backend did not report counts as infer. */
typedef struct proa_infer_parts {
    int64_t request, queue, input, infer, output;
} proa_infer_parts;
proa_infer_parts proa_infer_parts_of(const proa_infer_times *times);

/* A histogram family of the metrics. */
typedef struct proa_histogram_family {
    const char *name, *help;
    proa_latency latency;
    int64_t unit_ns; /* of its bounds and sum */
} proa_histogram_family;
#define PROA_HISTOGRAMS_COUNT 4
extern const proa_histogram_family proa_histogram_families[PROA_HISTOGRAMS_COUNT];

proa_model_stats *proa_stats_new(void);
void proa_stats_free(proa_model_stats *stats); /* NULL is fine */

/* ---- recording ---- */

/* A request has ended well; its times hold how long each part took. first_ns: when its first reply arrived; 0: none. */
void proa_stats_success(proa_model_stats *stats, const proa_infer *r, int64_t first_ns);
void proa_stats_failure(proa_model_stats *stats, const proa_infer *r, proa_fail_reason reason);
void proa_stats_execution(proa_model_stats *stats, int64_t batch,
                          const proa_infer_times *times); /* one call of execute */
/* A cache hit; a cache miss, where ns is the time of lookup and insertion. */
void proa_stats_hit(proa_model_stats *stats, const proa_infer *r, int64_t ns);
void proa_stats_miss(proa_model_stats *stats, int64_t ns);
/* Reply number `index` of a decoupled model; NULL: it ended without another. */
void proa_stats_reply(proa_model_stats *stats, int index, const proa_reply *reply, int64_t infer_ns,
                      int64_t output_ns);

/* ---- settings: before the version is ready ---- */

/* The bounds of model_metrics, or the defaults. */
void proa_stats_configure(proa_model_stats *stats, const Inference__ModelConfig *config);

/* Ascending bounds in ns; more than PROA_BUCKETS_OF_LATENCY are cut. If they differ from those before, the histogram
 * begins anew. */
void proa_stats_bounds(proa_model_stats *stats, proa_latency which, const int64_t *bounds_ns, int count);
void proa_stats_summaries(proa_model_stats *stats); /* from now on */

/* ---- reading ---- */

void proa_stats_read(proa_model_stats *stats, proa_stats_sums *sums);
int proa_stats_bounds_of(const proa_model_stats *stats, proa_latency which, const int64_t **bounds_ns);
/* Values below which the given share (0..1) of the last minute's records lie; false if summaries are off. Without
 * records the values are -1. */
bool proa_stats_quantiles(proa_model_stats *stats, proa_latency which, const double *shares, int count,
                          double *ns);
/* One element of a statistics reply, with memory from the arena. */
Inference__ModelStatistics *proa_stats_message(proa_model_stats *stats, const char *name, int64_t version,
                                               proa_arena *arena);

#endif
