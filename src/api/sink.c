/* SPDX-License-Identifier: Apache-2.0 */
#include "api/trace.h"

#include "base/limits.h"
#include <stdatomic.h>

/* The word `arrived` is a stack of replies that wait for the loop, newest first. Its lowest bits end it: */
enum {
    ENDS_WITH = 1,  /* the newest reply is the final one */
    ENDS_AFTER = 2, /* the end came after the newest reply, without one of its own */
    ENDS = 3
};

static proa_lane lanes[PROA_LOOPS_MAX + 1];
static _Thread_local int lane_now; /* 0: not a loop's thread */

void proa_lane_take(int lane)
{
    PROA_ASSERT(lane >= 0 && lane <= PROA_LOOPS_MAX);
    lane_now = lane;
}

bool proa_lane_shared(void)
{
    return lane_now == 0;
}

proa_lane *proa_lane_here(void)
{
    return &lanes[lane_now];
}

void proa_lanes_sum(uint64_t *bytes_in, uint64_t *bytes_out, uint64_t answers[6])
{
    *bytes_in = *bytes_out = 0;
    for (int a = 0; a < 6; a++) answers[a] = 0;
    for (size_t i = 0; i < PROA_COUNT(lanes); i++) {
        *bytes_in += atomic_load_explicit(&lanes[i].bytes_in, memory_order_relaxed);
        *bytes_out += atomic_load_explicit(&lanes[i].bytes_out, memory_order_relaxed);
        for (int a = 0; a < 6; a++)
            answers[a] += atomic_load_explicit(&lanes[i].answers[a], memory_order_relaxed);
    }
}

int64_t proa_sinks_live(void)
{
    int64_t live = 0;
    for (size_t i = 0; i < PROA_COUNT(lanes); i++) live += atomic_load(&lanes[i].sinks);
    return live;
}

static void forget(proa_infer *r, proa_handoff *handoff)
{
    proa_infer_drop(r);
    proa_handoff_drop(handoff);
    /* last, so that who waits for 0 finds nothing of ours in use */
    atomic_fetch_sub(&proa_lane_here()->sinks, 1);
}

/* After a final one the sink may be gone. */
static void deliver(proa_sink *sink, proa_reply *reply, bool final)
{
    proa_infer *r = sink->infer;
    proa_handoff *handoff = sink->handoff;
    if (PROA_UNLIKELY(final && proa_trace_on())) proa_trace_note(r, reply);
    sink->on_reply(sink, reply, final);
    if (final) forget(r, handoff);
}

static proa_reply *oldest_first(proa_reply *newest)
{
    proa_reply *list = NULL;
    while (newest) {
        proa_reply *older = newest->next;
        newest->next = list;
        list = newest;
        newest = older;
    }
    return list;
}

static void drain(proa_loop_task *task)
{
    proa_sink *sink = (proa_sink *)(void *)((char *)task - offsetof(proa_sink, task));
    if (PROA_UNLIKELY(proa_handoff_pending(sink->handoff))) {
        proa_handoff_wait(sink->handoff, task);
        return;
    }
    /* releases too: whoever finds the stack empty after this posts the task again, which the loop has just walked */
    uintptr_t word = atomic_exchange_explicit(&sink->arrived, 0, memory_order_acq_rel);
    proa_reply *reply = oldest_first((proa_reply *)(word & ~(uintptr_t)ENDS)); // NOLINT(performance-no-int-to-ptr)
    sink->draining = !(word & ENDS);
    while (reply) {
        proa_reply *next = reply->next;
        reply->next = NULL;
        deliver(sink, reply, !next && (word & ENDS_WITH));
        reply = next;
    }
    if (word & ENDS_AFTER) deliver(sink, NULL, true);
    else if (!(word & ENDS)) sink->draining = false;
}

/* Once pushed onto a stack that was not empty the sink must not be touched here: whoever pushed first has posted the
 * task, and that may deliver this reply and free the sink at once. */
static void push(proa_sink *sink, proa_reply *reply, bool final)
{
    uintptr_t old = atomic_load_explicit(&sink->arrived, memory_order_relaxed), word;
    do {
        if (reply) {
            reply->next = (proa_reply *)old; // NOLINT(performance-no-int-to-ptr)
            word = (uintptr_t)reply | (final ? ENDS_WITH : 0);
        } else word = old | ENDS_AFTER;
    } while (!atomic_compare_exchange_weak_explicit(&sink->arrived, &old, word, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (!old) proa_loop_post(sink->loop, &sink->task);
}

static void reply_came(proa_infer *r, proa_reply *reply, bool final)
{
    proa_sink *sink = r->user;
    PROA_ASSERT(reply || final);
    if (!proa_loop_here(sink->loop) || sink->draining || proa_handoff_pending(sink->handoff) ||
        atomic_load_explicit(&sink->arrived, memory_order_relaxed)) {
        push(sink, reply, final);
        return;
    }
    sink->draining = !final; /* a reply that comes while on_reply runs (a cancel makes one) has to wait */
    deliver(sink, reply, final);
    if (!final) sink->draining = false;
}

void proa_sink_init(proa_sink *sink, proa_loop *loop, proa_infer *r,
                    void (*on_reply)(proa_sink *sink, proa_reply *reply, bool final))
{
    *sink = (proa_sink){
        .loop = loop, .on_reply = on_reply, .infer = r, .task = {.run = drain}, .handoff = proa_handoff_current()};
    r->on_reply = reply_came;
    r->user = sink;
    atomic_fetch_add_explicit(&proa_lane_here()->sinks, 1, memory_order_relaxed);
}

void proa_sink_abandon(proa_sink *sink)
{
    forget(sink->infer, sink->handoff);
}
