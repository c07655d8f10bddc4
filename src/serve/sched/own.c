/* SPDX-License-Identifier: Apache-2.0
 * own.c - the scheduler of backends that queue requests themselves (the LLM engine). A request is handed to the
 * backend at once. The scheduler only counts which requests still wait in the backend's queue; the backend reports the
 * end of the wait with proa_infer_begins. Waiting requests count against the size limit of the queue policy. When the
 * time-out or deadline of one passes, the scheduler cancels it in the backend. */
#include "base/clock.h"
#include "serve/sched/sched.h"

static proa_status open_own(proa_scheduler *s, proa_err *err)
{
    if (s->model->instances_count < 1)
        return PROA_FAIL(err, INVALID, "model '%s' has no instance", s->model->name);
    return PROA_OK;
}

static void close_own(proa_scheduler *s)
{
    PROA_ASSERT(s->queue.count == 0);
}

/* True if r was still waiting in the backend. */
static bool leave_queue(proa_scheduler *s, proa_infer *r)
{
    pthread_mutex_lock(&s->lock);
    bool queued = r->ticket.queued;
    if (queued) {
        proa_sched_queue_remove(&s->queue, r);
        atomic_fetch_sub(&s->waiting, 1);
    }
    pthread_mutex_unlock(&s->lock);
    return queued;
}

static proa_status enqueue_own(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    pthread_mutex_lock(&s->lock);
    proa_status status = proa_sched_queue_push(&s->queue, r, err);
    int at = (int)(s->pushes % (uint64_t)s->model->instances_count);
    if (status == PROA_OK) proa_executor_pushed(s);
    int64_t expires_ns = s->queue.expires_ns;
    pthread_mutex_unlock(&s->lock);
    PROA_TRY(status);
    if (expires_ns != PROA_ALARM_NEVER) proa_alarm_before(&s->alarm, expires_ns);
    r->ticket.rows = r->batch > 0 ? r->batch : 1;
    s->model->backend->execute(s->model->instances[at].state, &r, 1);
    return PROA_OK;
}

void proa_infer_begins(proa_infer *r)
{
    r->times.compute_start = proa_clock_ns();
    if (r->model->scheduler->kind == &proa_sched_own) leave_queue(r->model->scheduler, r);
}

static bool on_replied(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final)
{
    if (!final) return true;
    leave_queue(s, r);
    if (r->ticket.expired && reply && reply->error.status != PROA_OK) {
        proa_err_clear(&reply->error);
        proa_sched_queue_expired(r, &reply->error);
        r->ticket.reason = PROA_FAIL_REJECTED + 1;
    }
    return true;
}

/* The backend holds these requests: it must cancel them and send the replies. */
static int64_t expire_waiting(proa_scheduler *s, int64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    proa_infer *out = proa_sched_queue_expire(&s->queue, now_ns);
    int64_t next = s->queue.expires_ns;
    for (proa_infer *r = out; r; r = r->next) {
        atomic_fetch_sub(&s->waiting, 1);
        r->ticket.expired = true;
        proa_infer_hold(r);
    }
    pthread_mutex_unlock(&s->lock);
    for (proa_infer *r = out, *after; r; r = after) {
        after = r->next;
        proa_infer_cancel(r);
        proa_infer_drop(r);
    }
    return next;
}

const proa_scheduler_kind proa_sched_own = {
    .name = "own",
    .open = open_own,
    .close = close_own,
    .enqueue = enqueue_own,
    .replied = on_replied,
    .expire = expire_waiting,
};
