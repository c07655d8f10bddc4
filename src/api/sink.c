/* SPDX-License-Identifier: Apache-2.0
 * sink.c - delivers replies from any thread to the loop of their request; counters of each thread. */
#include "api/console/recent.h"
#include "api/trace.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <stdatomic.h>

/* The word `arrived` is a stack of replies that wait for the loop, newest first. Its lowest bits end it: */
enum {
    ENDS_WITH = 1,  /* the newest reply is the final one */
    ENDS_AFTER = 2, /* the end arrived after the newest reply, without a reply of its own */
    ENDS = 3
};

static proa_thread_counters all_counters[PROA_LOOPS_MAX + 1];
static _Thread_local int counters_index; /* 0: not a loop's thread */

void proa_thread_counters_use(int counters)
{
    PROA_ASSERT(counters >= 0 && counters <= PROA_LOOPS_MAX);
    counters_index = counters;
}

bool proa_thread_counters_is_shared(void)
{
    return counters_index == 0;
}

proa_thread_counters *proa_thread_counters_get(void)
{
    return &all_counters[counters_index];
}

void proa_thread_counters_sum(uint64_t *bytes_in, uint64_t *bytes_out, uint64_t answers[6])
{
    *bytes_in = *bytes_out = 0;
    for (int a = 0; a < 6; a++) answers[a] = 0;
    for (size_t i = 0; i < PROA_COUNT(all_counters); i++) {
        *bytes_in += atomic_load_explicit(&all_counters[i].bytes_in, memory_order_relaxed);
        *bytes_out += atomic_load_explicit(&all_counters[i].bytes_out, memory_order_relaxed);
        for (int a = 0; a < 6; a++)
            answers[a] += atomic_load_explicit(&all_counters[i].answers[a], memory_order_relaxed);
    }
}

int64_t proa_sinks_live(void)
{
    int64_t live = 0;
    for (size_t i = 0; i < PROA_COUNT(all_counters); i++) live += atomic_load(&all_counters[i].sinks);
    return live;
}

static void release_sink(proa_infer *r, proa_handoff *handoff)
{
    proa_infer_drop(r);
    proa_handoff_drop(handoff);
    /* last: a thread that waits for 0 may then free what we used */
    atomic_fetch_sub(&proa_thread_counters_get()->sinks, 1);
}

/* ---- replies that are prepared on a worker ---- */

/* A reply on a worker, and the later replies that wait for it. */
typedef struct proa_sink_parked {
    proa_work_item work; /* first */
    proa_sink *sink;
    proa_reply *reply, *rest; /* rest: oldest first */
    uintptr_t ends;           /* how the list ends: ENDS_WITH, ENDS_AFTER or neither */
} sink_parked;

/* What a typed reply would have as tensors, about. */
static size_t generated_bytes(const proa_generated *g)
{
    int64_t values = g->embedding_count + g->rows_count * g->rows_columns + (g->classes ? g->classes->count : 0);
    size_t texts = 0;
    if (g->prompt) values += g->prompt->count * (2 + 2 * g->prompt->tops);
    for (int64_t i = 0; i < g->count; i++) {
        const proa_generated_sequence *s = &g->sequences[i];
        texts += s->text.len;
        values += s->ids_count * (2 + g->logits_columns + g->hidden_columns + 2 * g->tops);
    }
    return texts + (size_t)values * sizeof(float);
}

size_t proa_reply_bytes(const proa_reply *reply)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < reply->outputs_count; i++) bytes += reply->outputs[i].bytes;
    return reply->generated ? generated_bytes(reply->generated) : bytes;
}

static void run_prepare(proa_work_item *work)
{
    sink_parked *p = (sink_parked *)work;
    p->sink->prepare(p->sink, p->reply);
}

static void finish_parked(proa_work_item *work);

/* False: nothing is to be prepared, the reply is short, or too many wait for a worker. Then it has been prepared
 * here. */
static bool park_reply(proa_sink *sink, proa_reply *reply, proa_reply *rest, uintptr_t ends)
{
    if (!sink->prepare) return false;
    if (proa_reply_bytes(reply) >= PROA_WORKER_BYTES_MIN) {
        sink_parked *p = proa_calloc(1, sizeof *p);
        *p = (sink_parked){.work = {.loop = sink->loop, .run = run_prepare, .done = finish_parked},
                           .sink = sink,
                           .reply = reply,
                           .rest = rest,
                           .ends = ends};
        sink->parked = p;
        if (proa_workers_start(sink->workers, &p->work)) return true;
        sink->parked = NULL;
        free(p);
    }
    sink->prepare(sink, reply);
    return false;
}

/* After a final one the sink may have been freed. */
static void deliver_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    proa_infer *r = sink->infer;
    proa_handoff *handoff = sink->handoff;
    if (final) proa_recent_add(r, reply);
    bool answers = final && r->trace;
    if (PROA_UNLIKELY(answers)) proa_trace_sending(r);
    sink->on_reply(sink, reply, final);
    if (PROA_UNLIKELY(answers)) proa_trace_sent(r);
    if (final) release_sink(r, handoff);
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

/* Delivers a list, oldest first, that ends as `ends` says. True: all were delivered, and the sink waits for more. */
static bool deliver_list(proa_sink *sink, proa_reply *reply, uintptr_t ends)
{
    while (reply) {
        proa_reply *next = reply->next;
        reply->next = NULL;
        if (park_reply(sink, reply, next, ends)) return false;
        deliver_reply(sink, reply, !next && (ends & ENDS_WITH));
        reply = next;
    }
    if (ends & ENDS_AFTER) deliver_reply(sink, NULL, true);
    return !(ends & ENDS);
}

static void drain_replies(proa_loop_task *task)
{
    proa_sink *sink = (proa_sink *)(void *)((char *)task - offsetof(proa_sink, task));
    if (PROA_UNLIKELY(proa_handoff_pending(sink->handoff))) {
        proa_handoff_wait(sink->handoff, task);
        return;
    }
    if (PROA_UNLIKELY(sink->parked != NULL)) { /* finish_parked continues */
        sink->drain_again = true;
        return;
    }
    /* releases too: a thread that finds the stack empty after this posts the task again, which the loop has just
     * walked */
    uintptr_t word = atomic_exchange_explicit(&sink->arrived, 0, memory_order_acq_rel);
    proa_reply *reply = oldest_first((proa_reply *)(word & ~(uintptr_t)ENDS)); // NOLINT(performance-no-int-to-ptr)
    sink->draining = true;
    if (deliver_list(sink, reply, word & ENDS)) sink->draining = false;
}

/* On the loop: the reply is prepared. */
static void finish_parked(proa_work_item *work)
{
    sink_parked *p = (sink_parked *)work;
    proa_sink *sink = p->sink;
    bool final = !p->rest && (p->ends & ENDS_WITH);
    sink->parked = NULL;
    deliver_reply(sink, p->reply, final);
    if (!final && deliver_list(sink, p->rest, p->ends)) {
        bool again = sink->drain_again;
        sink->draining = sink->drain_again = false;
        if (again) drain_replies(&sink->task);
    }
    free(p);
}

/* Once pushed onto a stack that was not empty the sink must not be touched here: the thread that pushed first has
 * posted the task, and that may deliver this reply and free the sink at once. */
static void push_reply(proa_sink *sink, proa_reply *reply, bool final)
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

static void on_infer_reply(proa_infer *r, proa_reply *reply, bool final)
{
    proa_sink *sink = r->user;
    PROA_ASSERT(reply || final);
    if (!proa_loop_is_current(sink->loop) || sink->draining || proa_handoff_pending(sink->handoff) ||
        atomic_load_explicit(&sink->arrived, memory_order_relaxed)) {
        push_reply(sink, reply, final);
        return;
    }
    sink->draining = true; /* a reply that arrives while on_reply runs (a cancel makes one) has to wait */
    if (deliver_list(sink, reply, !final ? 0 : reply ? ENDS_WITH : ENDS_AFTER)) sink->draining = false;
}

void proa_sink_init(proa_sink *sink, proa_loop *loop, proa_infer *r,
                    void (*on_reply)(proa_sink *sink, proa_reply *reply, bool final))
{
    *sink = (proa_sink){.loop = loop,
                        .on_reply = on_reply,
                        .infer = r,
                        .task = {.run = drain_replies},
                        .handoff = proa_handoff_current()};
    r->on_reply = on_infer_reply;
    r->user = sink;
    if (PROA_UNLIKELY(r->origin != NULL)) proa_trace_sample(r);
    atomic_fetch_add_explicit(&proa_thread_counters_get()->sinks, 1, memory_order_relaxed);
}

void proa_sink_prepare_with(proa_sink *sink, proa_workers *workers,
                            void (*prepare)(proa_sink *sink, proa_reply *reply))
{
    sink->workers = workers;
    sink->prepare = prepare;
}

void proa_sink_abandon(proa_sink *sink)
{
    release_sink(sink->infer, sink->handoff);
}
