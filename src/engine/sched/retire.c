/* SPDX-License-Identifier: Apache-2.0
 * retire.c - ends requests whose end was decided during a step. */
#include "engine/sched/retire.h"

#include "base/wakeup.h"
#include "engine/engine.h"
#include "engine/sched/prefix_cache.h"

static void fail_request(proa_engine_request *req, const proa_err *why)
{
    if (req->ending == PROA_FINISH_ERROR) return;
    req->ending = PROA_FINISH_ERROR;
    req->error = *why;
}

void proa_retire_check_device(proa_engine *e, proa_engine_request *req)
{
    proa_err why = {.status = PROA_OK};
    if (proa_rank_set_failed(&e->ranks, &why) == PROA_OK) return;
    atomic_fetch_add_explicit(&e->shared.failures, 1, memory_order_relaxed);
    proa_prefix_cache_disable(e);
    for (proa_engine_request *other = e->running.first; other; other = other->next) fail_request(other, &why);
    if (req) fail_request(req, &why);
}

void proa_retire_ended(proa_engine *e)
{
    proa_request_list kept;
    proa_request_list_init(&kept);
    proa_wakeups_begin();
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->running));) {
        if (req->ending == PROA_FINISH_NONE) proa_request_list_push(&kept, req);
        else
            proa_admission_finish(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
    }
    proa_wakeups_end();
    e->running = kept;
}
