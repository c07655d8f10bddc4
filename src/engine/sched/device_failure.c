/* SPDX-License-Identifier: Apache-2.0
 * device_failure.c - what a failure of the device means: running requests end, and cached pages are not used. */
#include "engine/sched/device_failure.h"

#include "engine/engine.h"

static void fail_request(proa_engine_request *req, const proa_err *why)
{
    if (req->ending == PROA_FINISH_ERROR) return;
    req->ending = PROA_FINISH_ERROR;
    req->error = *why;
}

/* Pages that a pass wrote may hold anything. */
static void disable_prefix_cache(proa_engine *e)
{
    e->prefix_broken = true;
    proa_host_cache_disable(&e->host_cache);
}

void proa_device_failure_check(proa_engine *e, proa_engine_request *req)
{
    proa_err why = {.status = PROA_OK};
    if (proa_rank_set_failed(&e->ranks, &why) == PROA_OK) return;
    atomic_fetch_add_explicit(&e->shared.failures, 1, memory_order_relaxed);
    disable_prefix_cache(e);
    for (proa_engine_request *other = e->running.first; other; other = other->next) fail_request(other, &why);
    if (req) fail_request(req, &why);
}
