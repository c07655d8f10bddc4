/* SPDX-License-Identifier: Apache-2.0
 * No batching: one queue for all instances, each execution has one request. */
#include "serve/sched/sched.h"

static proa_status open_direct(proa_scheduler *s, proa_err *err)
{
    s->eager = true;
    return proa_crew_open(s, 1, err);
}

static void close_direct(proa_scheduler *s)
{
    PROA_ASSERT(s->queue.count == 0);
}

static int take(proa_scheduler *s, proa_seat *seat, int64_t now_ns, bool look, int64_t *again_ns)
{
    PROA_UNUSED(again_ns);
    for (proa_infer *r; (r = proa_queue_first(&s->queue)) != NULL;) {
        if (!proa_crew_keep(s, r, now_ns)) continue;
        if (look) return 1;
        if (!proa_crew_pick(s, r)) continue;
        seat->batch[0] = r;
        return 1;
    }
    return 0;
}

const proa_scheduler_kind proa_sched_direct = {
    .name = "direct",
    .open = open_direct,
    .close = close_direct,
    .enqueue = proa_crew_enqueue,
    .take = take,
};
