/* SPDX-License-Identifier: Apache-2.0
 * queue.c - the queue of a scheduler: priority levels with their time-outs and sizes. */
#include "serve/sched/queue.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/status.h"
#include "serve/stats/stats.h"
#include <string.h>

static proa_sched_queue_policy policy_of(const Inference__ModelQueuePolicy *p)
{
    if (!p) return (proa_sched_queue_policy){.size_max = PROA_QUEUE_MAX};
    uint64_t us_max = INT64_MAX / 4000; /* longer is for ever */
    return (proa_sched_queue_policy){
        .delay = p->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY,
        .timeout_ns = p->default_timeout_microseconds < us_max ? (int64_t)p->default_timeout_microseconds * 1000
                                                               : 0,
        .size_max = p->max_queue_size ? (int64_t)p->max_queue_size : PROA_QUEUE_MAX,
    };
}

/* The place of a level, or where it would stand. */
static int find_level(const proa_sched_queue *q, uint64_t level)
{
    int low = 0, high = q->levels_count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (q->levels[mid].level < level) low = mid + 1;
        else high = mid;
    }
    return low;
}

static proa_sched_queue_level *get_level(proa_sched_queue *q, uint64_t level)
{
    int at = find_level(q, level);
    if (at < q->levels_count && q->levels[at].level == level) return &q->levels[at];
    if (q->levels_count == q->levels_cap) {
        q->levels_cap = q->levels_cap ? 2 * q->levels_cap : 4;
        q->levels = proa_realloc(q->levels, (size_t)q->levels_cap * sizeof *q->levels);
    }
    memmove(&q->levels[at + 1], &q->levels[at], (size_t)(q->levels_count - at) * sizeof *q->levels);
    q->levels_count++;
    q->levels[at] = (proa_sched_queue_level){.level = level, .policy = q->policy};
    return &q->levels[at];
}

void proa_sched_queue_init(proa_sched_queue *q, const Inference__ModelDynamicBatching *config)
{
    *q = (proa_sched_queue){.expires_ns = INT64_MAX,
                            .policy = policy_of(config ? config->default_queue_policy : NULL)};
    if (!config || config->priority_levels == 0) {
        get_level(q, 0)->kept = true;
        return;
    }
    q->level_max = config->priority_levels;
    q->level_default = config->default_priority_level;
    for (size_t i = 0; i < config->n_priority_queue_policy; i++) {
        proa_sched_queue_level *l = get_level(q, config->priority_queue_policy[i]->key);
        l->policy = policy_of(config->priority_queue_policy[i]->value);
        l->kept = true;
    }
}

void proa_sched_queue_release(proa_sched_queue *q)
{
    free(q->levels);
    *q = (proa_sched_queue){.expires_ns = INT64_MAX};
}

const char *proa_infer_log_id(const proa_infer *r)
{
    return *r->id ? r->id : "<id_unknown>";
}

void proa_sched_queue_set_expiry(proa_infer *r, int64_t timeout_ns)
{
    uint64_t us = r->timeout_us;
    if (us && us < INT64_MAX / 4000 && (!timeout_ns || (int64_t)us * 1000 < timeout_ns))
        timeout_ns = (int64_t)us * 1000;
    r->ticket.expires_ns = timeout_ns ? r->times.queued + timeout_ns : 0;
    r->ticket.deadline = r->deadline_ns && (!timeout_ns || r->deadline_ns < r->ticket.expires_ns);
    if (r->ticket.deadline) r->ticket.expires_ns = r->deadline_ns;
}

static void link_last(proa_sched_queue_level *l, proa_infer *r, bool timed_out)
{
    r->ticket.timed_out = timed_out;
    r->next = NULL;
    r->ticket.prev = l->tail[timed_out];
    if (l->tail[timed_out]) l->tail[timed_out]->next = r;
    else l->head[timed_out] = r;
    l->tail[timed_out] = r;
}

static void unlink_request(proa_sched_queue_level *l, proa_infer *r)
{
    bool timed_out = r->ticket.timed_out;
    if (r->ticket.prev) r->ticket.prev->next = r->next;
    else l->head[timed_out] = r->next;
    if (r->next) r->next->ticket.prev = r->ticket.prev;
    else l->tail[timed_out] = r->ticket.prev;
    r->next = r->ticket.prev = NULL;
}

proa_status proa_sched_queue_push(proa_sched_queue *q, proa_infer *r, proa_err *err)
{
    uint64_t level = r->priority == 0 || r->priority > q->level_max ? q->level_default : r->priority;
    proa_sched_queue_level *l = get_level(q, level);
    if (l->count >= l->policy.size_max) {
        r->ticket.reason = PROA_FAIL_REJECTED + 1;
        return PROA_FAIL(err, UNAVAILABLE, "[request id: %s] Exceeds maximum queue size", proa_infer_log_id(r));
    }
    r->ticket.level = level;
    r->ticket.queued = true;
    proa_sched_queue_set_expiry(r, l->policy.timeout_ns);
    link_last(l, r, false);
    l->count++;
    q->count++;
    q->rows += r->batch > 0 ? r->batch : 1;
    if (r->ticket.expires_ns && r->ticket.expires_ns < q->expires_ns) q->expires_ns = r->ticket.expires_ns;
    return PROA_OK;
}

void proa_sched_queue_remove(proa_sched_queue *q, proa_infer *r)
{
    int at = find_level(q, r->ticket.level);
    proa_sched_queue_level *l = &q->levels[at];
    unlink_request(l, r);
    r->ticket.queued = false;
    l->count--;
    q->count--;
    q->rows -= r->batch > 0 ? r->batch : 1;
    if (l->count == 0 && !l->kept) {
        q->levels_count--;
        memmove(l, l + 1, (size_t)(q->levels_count - at) * sizeof *l);
    }
}

/* The first request of level `at` or a later one. */
static proa_infer *first_from(const proa_sched_queue *q, int at)
{
    for (; at < q->levels_count; at++) {
        if (q->levels[at].head[0]) return q->levels[at].head[0];
        if (q->levels[at].head[1]) return q->levels[at].head[1];
    }
    return NULL;
}

proa_infer *proa_sched_queue_first(const proa_sched_queue *q)
{
    return first_from(q, 0);
}

proa_infer *proa_sched_queue_next(const proa_sched_queue *q, const proa_infer *r)
{
    if (r->next) return r->next;
    int at = find_level(q, r->ticket.level);
    if (!r->ticket.timed_out && q->levels[at].head[1]) return q->levels[at].head[1];
    return first_from(q, at + 1);
}

bool proa_sched_queue_check(proa_sched_queue *q, proa_infer *r, int64_t now_ns, bool *rejected)
{
    *rejected = false;
    if (!r->ticket.expires_ns || now_ns < r->ticket.expires_ns) return true;
    proa_sched_queue_level *l = &q->levels[find_level(q, r->ticket.level)];
    if (!l->policy.delay || r->ticket.deadline) {
        proa_sched_queue_remove(q, r);
        *rejected = true;
        return false;
    }
    unlink_request(l, r);
    link_last(l, r, true);
    r->ticket.deadline = r->deadline_ns != 0; /* the client does not wait longer than that */
    r->ticket.expires_ns = r->deadline_ns;
    return false;
}

proa_infer *proa_sched_queue_expire(proa_sched_queue *q, int64_t now_ns)
{
    proa_infer *rejected = NULL, **last = &rejected;
    int64_t soonest = INT64_MAX;
    for (proa_infer *r = proa_sched_queue_first(q), *next; r; r = next) {
        bool out;
        next = proa_sched_queue_next(q, r);
        proa_sched_queue_check(q, r, now_ns, &out);
        if (out) {
            *last = r;
            last = &r->next;
        } else if (r->ticket.expires_ns && r->ticket.expires_ns < soonest) {
            soonest = r->ticket.expires_ns;
        }
    }
    q->expires_ns = soonest;
    return rejected;
}

void proa_sched_queue_expired(const proa_infer *r, proa_err *err)
{
    if (r->ticket.deadline) PROA_FAIL(err, DEADLINE, "Deadline Exceeded");
    else PROA_FAIL(err, UNAVAILABLE, "Request timeout expired");
}
