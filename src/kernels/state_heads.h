/* SPDX-License-Identifier: Apache-2.0
 * state_heads.h - the loop of ops whose heads have a state each (`gated_delta`, `selective_scan`), for the reference
 * and for the kernels of a CPU level.
 * Threads: a head is one thread's, so that the order of its sums never depends on how many there are. */
#ifndef PROA_KERNELS_STATE_HEADS_H
#define PROA_KERNELS_STATE_HEADS_H

#include "base/checked.h"
#include "base/thread.h"
#include "kernels/ops.h"
#include <math.h>
#include <string.h>

typedef struct proa_state_job proa_state_job;
/* Rows [row, row + count) of head h, whose state is S. */
typedef void proa_state_rows_fn(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h);
struct proa_state_job {
    proa_view y, x, rates, params; /* params: of selective_scan */
    const proa_layer_state *state;
    const proa_spans *spans;
    const proa_delta *delta;      /* of gated_delta */
    const proa_state_space *scan; /* of selective_scan */
    int64_t heads, size;          /* numbers of a head's state */
    proa_state_rows_fn *rows;
};

/* Items are heads. */
static inline void proa_state_some_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const proa_state_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++) {
        const proa_span *span = &job->spans->span[s];
        for (int64_t h = begin; h < end && span->rows > 0; h++) {
            float *S = job->state->base + span->state * job->state->stride + h * job->size;
            if (!proa_span_continues(span)) memset(S, 0, (size_t)job->size * sizeof *S);
            job->rows(job, S, span->row, span->rows, h);
        }
    }
}

static inline void proa_state_heads(proa_ctx *c, proa_state_job *job)
{
    proa_pool_run(c->pool, job->heads, 1, proa_state_some_heads, job);
}

/* gated_delta by `rows`. */
static inline void proa_delta_heads(proa_ctx *c, proa_view y, proa_view x, proa_view rates,
                                    const proa_delta *d, const proa_layer_state *state,
                                    const proa_spans *spans, proa_state_rows_fn *rows)
{
    proa_state_job job = {
        .y = y, .x = x, .rates = rates, .state = state, .spans = spans, .delta = d, .rows = rows};
    job.heads = d->value_heads, job.size = d->key_dim * d->value_dim;
    proa_state_heads(c, &job);
}

/* selective_scan by `rows`. */
static inline void proa_scan_heads(proa_ctx *c, proa_view y, proa_view x, proa_view params, proa_view rates,
                                   const proa_state_space *p, const proa_layer_state *state,
                                   const proa_spans *spans, proa_state_rows_fn *rows)
{
    proa_state_job job = {.y = y, .x = x, .rates = rates, .params = params, .state = state, .spans = spans};
    job.scan = p, job.rows = rows;
    job.heads = p->heads, job.size = p->state_dim * p->value_dim;
    proa_state_heads(c, &job);
}

static inline double proa_soft_plus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* The logarithm of a decay of head h of gated_delta; sum: a + bias. */
static inline double proa_delta_log_decay(const proa_delta *d, int64_t h, double sum)
{
    const double rate = exp((double)d->rate[h]);
    return d->floor < 0 ? (double)d->floor / (1 + exp(-rate * sum)) : -rate * proa_soft_plus(sum);
}

/* How far the state of head i, by channel of column i, goes at a row whose rate is dt. */
static inline double proa_scan_step(const proa_state_space *p, float dt, int64_t i)
{
    const double step = proa_soft_plus((double)dt + (double)p->bias[i]);
    return fmin(fmax(step, (double)p->least), (double)p->most);
}

#endif
