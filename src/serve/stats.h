/* SPDX-License-Identifier: Apache-2.0
 * stats.h - inside serve: the counts and durations of a model version, for the statistics extension and the metrics.
 * Threads: any; one short lock for a record. */
#ifndef PROA_SERVE_STATS_H
#define PROA_SERVE_STATS_H

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

proa_model_stats *proa_stats_new(void);
void proa_stats_free(proa_model_stats *stats);
/* A request has ended; its times say how long each part took. first_ns: until its first reply. */
void proa_stats_success(proa_model_stats *stats, const proa_infer *r, int64_t first_ns);
void proa_stats_failure(proa_model_stats *stats, const proa_infer *r, proa_fail_reason reason);
void proa_stats_execution(proa_model_stats *stats, int64_t batch,
                          const proa_infer_times *times); /* one call of execute */
void proa_stats_cache(proa_model_stats *stats, bool hit, int64_t ns, int64_t batch);
void proa_stats_reply(proa_model_stats *stats, int index, const proa_reply *reply, int64_t infer_ns,
                      int64_t output_ns);

#endif
