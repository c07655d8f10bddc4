/* SPDX-License-Identifier: Apache-2.0
 * queue.h - inside serve: requests that wait, by priority, each level with its policy of time-outs and size.
 * Order:   levels from 1 (highest) up; in a level first come first served, and after them those that waited too long
 *          under the policy DELAY.
 * Owner:   the scheduler's. A request in it is held by the scheduler.
 * Threads: under the scheduler's lock. */
#ifndef PROA_SERVE_SCHED_QUEUE_H
#define PROA_SERVE_SCHED_QUEUE_H

#include "proto/model_config.pb-c.h"
#include "serve/infer.h"

typedef struct proa_sched_queue_policy {
    bool delay;         /* a time-out puts a request after the others; else it is rejected */
    int64_t timeout_ns; /* 0: none */
    int64_t size_max;
} proa_sched_queue_policy;

typedef struct proa_sched_queue_level {
    uint64_t level; /* 0 where the model has no priorities */
    proa_sched_queue_policy policy;
    bool kept; /* has a policy of its own: not removed when it is empty */
    int64_t count;
    proa_infer *head[2], *tail[2]; /* [0] in time, [1] late */
} proa_sched_queue_level;

typedef struct proa_sched_queue {
    proa_sched_queue_level *levels; /* ascending; those that hold requests, and the kept ones */
    int levels_count, levels_cap;
    uint64_t level_max, level_default; /* priorities of the model; 0: none */
    proa_sched_queue_policy policy;    /* where a level has none of its own */
    int64_t count, rows;               /* requests, and the sum of their batches */
    int64_t expires_ns;                /* nothing expires before; INT64_MAX: never */
} proa_sched_queue;

void proa_sched_queue_init(proa_sched_queue *q,
                           const Inference__ModelDynamicBatching *config); /* NULL: no policy at all */
void proa_sched_queue_release(proa_sched_queue *q);
/* The end of r's level. r->times.queued is set. UNAVAILABLE "Exceeds maximum queue size". */
proa_status proa_sched_queue_push(proa_sched_queue *q, proa_infer *r, proa_err *err);
void proa_sched_queue_remove(proa_sched_queue *q, proa_infer *r); /* which is in it */
proa_infer *proa_sched_queue_first(const proa_sched_queue *q);    /* or NULL */
proa_infer *proa_sched_queue_next(const proa_sched_queue *q, const proa_infer *r);
/* May r be executed now? false: it has timed out, and has left the queue (rejected: *rejected is true) or has moved
 * behind the others of its level. Look up the next one before the call. */
bool proa_sched_queue_check(proa_sched_queue *q, proa_infer *r, int64_t now_ns, bool *rejected);
/* Handles all requests that have timed out: returns the rejected ones, linked by next. */
proa_infer *proa_sched_queue_expire(proa_sched_queue *q, int64_t now_ns);
/* Sets r->ticket.expires_ns, when r leaves its queue. Unlike Triton, the request's own time-out and deadline always
 * count, unless the model's time-out (0: none) is shorter: a client's own limit is always respected. */
void proa_sched_queue_set_expiry(proa_infer *r, int64_t timeout_ns);
/* The error of a request that was rejected by its time. */
void proa_sched_queue_expired(const proa_infer *r, proa_err *err);
/* "[request id: x] ", which begins some of Triton's texts: the id, or what stands for none. */
const char *proa_infer_log_id(const proa_infer *r);

#endif
