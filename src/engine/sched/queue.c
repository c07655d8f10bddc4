/* SPDX-License-Identifier: Apache-2.0
 * queue.c - lists of requests; arrival, cancellation and deadlines. */
#include "engine/sched/request.h"

#include "base/clock.h"

void proa_request_list_init(proa_request_list *list)
{
    *list = (proa_request_list){.last = NULL};
}

void proa_request_list_push(proa_request_list *list, proa_engine_request *req)
{
    req->next = NULL;
    if (list->first) *list->last = req;
    else list->first = req;
    list->last = &req->next;
    list->count++;
}

void proa_request_list_push_first(proa_request_list *list, proa_engine_request *req)
{
    if (!list->first) list->last = &req->next;
    req->next = list->first;
    list->first = req;
    list->count++;
}

proa_engine_request *proa_request_list_pop(proa_request_list *list)
{
    proa_engine_request *req = list->first;
    if (!req) return NULL;
    list->first = req->next;
    list->count--;
    req->next = NULL;
    return req;
}

int32_t proa_request_list_split(proa_request_list *list, proa_request_list *to,
                                bool (*moves)(void *arg, proa_engine_request *req), void *arg)
{
    proa_request_list kept;
    int32_t before = list->count;
    proa_request_list_init(&kept);
    for (proa_engine_request *req; (req = proa_request_list_pop(list));)
        proa_request_list_push(moves(arg, req) ? to : &kept, req);
    *list = kept;
    /* `last` of an empty list is not read; that of another one points into its last request */
    return before - kept.count;
}

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
typedef struct endings {
    int64_t now_ns;
    proa_err lost; /* why no rank works; status OK: they do */
} endings;

/* arg: the endings. Sets req->ending. */
static bool is_over(void *arg, proa_engine_request *req)
{
    const endings *by = arg;
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
    endings by = {.now_ns = proa_clock_ns()};
    if (e->ranks.processes) (void)!proa_rank_set_failed(&e->ranks, &by.lost);
    proa_request_list_init(&ended);
    proa_waiting_split(&e->waiting, &ended, is_over, &by);
    proa_request_list_split(&e->running, &ended, is_over, &by);
    for (proa_engine_request *req; (req = proa_request_list_pop(&ended));)
        proa_admission_finish(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
}

bool proa_queue_update(proa_engine *e)
{
    take_inbox(e);
    bool any = e->waiting.count + e->running.count > 0;
    end_overdue(e);
    proa_admission_step(e);
    return any;
}
