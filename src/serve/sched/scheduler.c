/* SPDX-License-Identifier: Apache-2.0
 * scheduler.c - what all kinds of schedulers share: admission, cache, statistics, order, delivery of replies. */
#include "serve/scheduler.h"

#include "base/clock.h"
#include "serve/cache.h"
#include "serve/sched/order.h"
#include "serve/sched/sched.h"

int64_t proa_scheduler_pending(const proa_scheduler *s)
{
    return atomic_load_explicit(&s->waiting, memory_order_relaxed);
}

/* ---- in ---- */

static proa_status refuse_stopping(const proa_infer *r, proa_err *err)
{
    return PROA_FAIL(
        err, UNAVAILABLE,
        "[request id: %s] Server is stopping, scheduler for model has stopped accepting new inference "
        "requests",
        proa_infer_log_id(r));
}

static proa_fail_reason reason_of(const proa_infer *r, proa_status status)
{
    if (r->ticket.reason) return (proa_fail_reason)(r->ticket.reason - 1);
    if (status == PROA_CANCELLED) return PROA_FAIL_CANCELED;
    return r->times.compute_start ? PROA_FAIL_BACKEND : PROA_FAIL_OTHER;
}

/* ---- the cache before the kind ---- */

static void deliver_cached(proa_scheduler *s, proa_infer *r, proa_reply *reply, int64_t start_ns)
{
    r->times.compute_start = start_ns;
    r->times.compute_end = r->times.ended = proa_clock_ns();
    proa_stats_hit(s->model->stats, r, r->times.ended - start_ns);
    if (s->order) {
        proa_order_reply(s->order, r, reply, true);
        return;
    }
    proa_scheduler_ended(s);
    proa_infer_deliver(r, reply, true);
}

static proa_status admit_request(proa_scheduler *s, proa_infer *r, proa_err *err);

/* Requests that waited for a reply which cannot be used. */
static void enqueue_again(proa_scheduler *s, proa_infer *waited)
{
    for (proa_infer *r = waited, *next; r; r = next) {
        proa_err err = {0};
        next = r->next;
        r->next = NULL;
        proa_status status = admit_request(s, r, &err);
        if (status != PROA_OK) proa_scheduler_fail(r, &err, reason_of(r, status));
    }
}

static proa_status admit_request(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    proa_reply *reply = NULL;
    if (!s->cached || r->silent) return s->kind->enqueue(s, r, err);
    int64_t start_ns = proa_clock_ns();
    switch (proa_cache_lookup(s->model->cache, r, &reply)) {
    case PROA_CACHE_HIT: deliver_cached(s, r, reply, start_ns); return PROA_OK;
    case PROA_CACHE_WAIT: return PROA_OK;
    case PROA_CACHE_CANCELLED: return proa_infer_refuse_cancelled(r, err);
    case PROA_CACHE_MISS: break;
    }
    r->ticket.lookup_ns = proa_clock_ns() - start_ns;
    proa_status status = s->kind->enqueue(s, r, err);
    if (status != PROA_OK) enqueue_again(s, proa_cache_abandon(s->model->cache, r));
    return status;
}

/* The end of a request that equal ones wait for. */
static void end_cache_inflight(proa_scheduler *s, proa_infer *leader, const proa_reply *reply)
{
    int64_t start_ns = proa_clock_ns();
    if (!reply || leader->ticket.failed || leader->ticket.replies != 1) {
        enqueue_again(s, proa_cache_abandon(s->model->cache, leader));
        return;
    }
    proa_infer *waited = proa_cache_store(s->model->cache, leader, reply);
    proa_stats_miss(s->model->stats, leader->ticket.lookup_ns + proa_clock_ns() - start_ns);
    for (proa_infer *r = waited, *next; r; r = next) {
        next = r->next;
        deliver_cached(s, r, proa_reply_copy(r, reply), start_ns);
    }
}

static proa_status enqueue_request(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    bool admits = r->inner || (s->kind->admits && s->kind->admits(r));
    if (atomic_load(&s->stopping) && !admits) {
        r->ticket.reason = PROA_FAIL_REJECTED + 1;
        return refuse_stopping(r, err);
    }
    if (proa_infer_cancelled(r)) return proa_infer_refuse_cancelled(r, err);
    if (!s->order) return admit_request(s, r, err);
    proa_order_join(s->order, r);
    proa_status status = admit_request(s, r, err);
    if (status != PROA_OK) proa_order_leave(s->order, r);
    return status;
}

proa_status proa_scheduler_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    atomic_fetch_add(&s->busy, 2); /* the request, and this call: it touches s after the request may have ended */
    r->times.queued = proa_clock_ns();
    if (!r->times.received) r->times.received = r->times.queued;
    proa_infer_hold(r);
    proa_status status = enqueue_request(s, r, err);
    if (PROA_UNLIKELY(status != PROA_OK)) {
        if (!r->silent) proa_stats_failure(s->model->stats, r, reason_of(r, status));
        proa_infer_drop(r);
        atomic_fetch_sub(&s->busy, 1);
    }
    atomic_fetch_sub(&s->busy, 1);
    return status;
}

/* ---- out ---- */

/* Is the shape one that the reshape of this output starts from? */
static bool can_reshape(const proa_tensor *t, const proa_io *io, bool batched)
{
    if (t->rank != io->inner_rank) return false;
    for (int32_t i = batched; i < io->inner_rank; i++)
        if (io->inner[i] != -1 && io->inner[i] != t->shape[i]) return false;
    return true;
}

/* From the backend's shape to the one on the wire. Any other shape is the backend's own choice and stays. */
static void reshape_outputs(const proa_served_model *model, proa_reply *reply)
{
    bool batched = model->batch_max > 0;
    for (int32_t i = 0; i < reply->outputs_count; i++) {
        const proa_io *io = proa_served_model_output(model, reply->outputs[i].name);
        proa_tensor *t = &reply->outputs[i];
        if (io && io->reshaped && can_reshape(t, io, batched))
            proa_tensor_reshape(t, io->inner, io->inner_rank, io->shape, io->rank, batched);
    }
}

static void count_reply(proa_scheduler *s, proa_infer *r, const proa_reply *reply, int64_t now)
{
    int64_t since = r->ticket.last_ns ? r->ticket.last_ns : r->times.compute_start;
    if (s->model->decoupled && !r->silent)
        proa_stats_reply(s->model->stats, r->ticket.replies, reply, since ? now - since : 0, 0);
    if (!r->ticket.first_ns && reply) r->ticket.first_ns = now;
    r->ticket.last_ns = now;
    if (reply) r->ticket.replies++;
}

static void count_request(proa_scheduler *s, proa_infer *r, const proa_reply *reply)
{
    proa_model_stats *stats = s->model->stats;
    if (r->silent) return;
    if (r->ticket.rows) proa_stats_execution(stats, r->ticket.rows, &r->times);
    if (r->ticket.failed)
        proa_stats_failure(stats, r, reason_of(r, reply ? reply->error.status : PROA_INTERNAL));
    else proa_stats_success(stats, r, r->ticket.first_ns);
}

bool proa_scheduler_replied(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final)
{
    if (reply && reply->error.status != PROA_OK) r->ticket.failed = true;
    if (reply && s->reshapes && reply->error.status == PROA_OK) reshape_outputs(s->model, reply);
    if (s->kind->replied && !s->kind->replied(s, r, reply, final)) return false;
    int64_t now = proa_clock_ns();
    count_reply(s, r, reply, now);
    if (final) {
        r->times.ended = now;
        if (!r->times.compute_end) r->times.compute_end = now; /* an ensemble has set it */
        count_request(s, r, reply);
        if (r->ticket.cache_inflight) end_cache_inflight(s, r, reply);
    }
    if (s->order) {
        proa_order_reply(s->order, r, reply, final);
        return false;
    }
    if (final) proa_scheduler_ended(s);
    return true;
}
