/* SPDX-License-Identifier: Apache-2.0
 * direct.c - the scheduler without batching: one queue for all instances, one request per execution. */
#include "serve/sched/sched.h"

static proa_status open_direct(proa_scheduler *s, proa_err *err)
{
    s->eager = true;
    return proa_executor_open(s, 1, err);
}

static void close_direct(proa_scheduler *s)
{
    PROA_ASSERT(s->queue.count == 0);
}

static int take_direct(proa_scheduler *s, proa_instance_slot *slot, int64_t now_ns, bool peek, int64_t *again_ns)
{
    PROA_UNUSED(again_ns);
    for (proa_infer *r; (r = proa_sched_queue_first(&s->queue)) != NULL;) {
        if (!proa_executor_check(s, r, now_ns)) continue;
        if (peek) return 1;
        if (!proa_executor_dequeue(s, r)) continue;
        slot->batch[0] = r;
        return 1;
    }
    return 0;
}

const proa_scheduler_kind proa_sched_direct = {
    .name = "direct",
    .open = open_direct,
    .close = close_direct,
    .enqueue = proa_executor_enqueue,
    .take = take_direct,
};
