/* SPDX-License-Identifier: Apache-2.0
 * queue.c - arrival, cancellation and deadlines of requests. */
#include "engine/sched/queue.h"

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/sched/retire.h"

/* ---- arrival ---- */

static void take_inbox(proa_engine *e)
{
    pthread_mutex_lock(&e->shared.lock);
    atomic_store_explicit(&e->shared.work_signalled, false, memory_order_relaxed);
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->shared.inbox));)
        proa_waiting_push(&e->waiting, req);
    pthread_mutex_unlock(&e->shared.lock);
}

/* ---- cancellation and deadlines ---- */

/* What ends requests at a time. */
typedef struct end_conditions {
    int64_t now_ns;
    proa_err lost; /* why no rank works; status OK: they do */
} end_conditions;

/* arg: the endings. Sets req->ending. */
static bool is_over(void *arg, proa_engine_request *req)
{
    const end_conditions *by = arg;
    if (atomic_load_explicit(&req->cancelled, memory_order_acquire)) {
        req->ending = PROA_FINISH_CANCELLED;
    } else if (req->deadline_ns && by->now_ns >= req->deadline_ns) {
        req->ending = PROA_FINISH_ERROR;
        (void)PROA_FAIL(&req->error, DEADLINE, "option 'timeout_ms': not done after %d ms",
                        req->options.timeout_ms);
    } else if (by->lost.status != PROA_OK && req->ending == PROA_FINISH_NONE) {
        req->ending = PROA_FINISH_ERROR;
        req->error = by->lost;
    }
    return req->ending != PROA_FINISH_NONE;
}

/* DONE events are emitted when the lists are consistent again: a callback may call the engine. */
static void end_overdue(proa_engine *e)
{
    proa_request_list ended;
    end_conditions by = {.now_ns = proa_clock_ns()};
    if (e->ranks.processes) (void)!proa_rank_set_failed(&e->ranks, &by.lost);
    proa_request_list_init(&ended);
    proa_waiting_split(&e->waiting, &ended, is_over, &by);
    proa_request_list_split(&e->running, &ended, is_over, &by);
    for (proa_engine_request *req; (req = proa_request_list_pop(&ended));)
        proa_retire_finish(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
}

bool proa_queue_update(proa_engine *e)
{
    take_inbox(e);
    bool any = e->waiting.count + e->running.count > 0;
    end_overdue(e);
    proa_admission_step(e);
    return any;
}
