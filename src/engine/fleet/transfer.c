/* SPDX-License-Identifier: Apache-2.0
 * transfer.c - requests whose prompt runs on one replica and whose tokens are generated on another.
 *
 *     submit:  the request is held at a decode replica (engine/sched/handoff.h), and a request for one token of the
 * same              prompt is submitted to a prefill replica, which leaves the prompt's pages in its prefix cache
 *     DONE     of that one: its pages are handed on. If it failed, there is nothing to hand on
 *     arrived: the held request is released
 *
 * Cancelling ends both. */
#include "engine/fleet/inner.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>

/* ---- the list ---- */

static void link_transfer(proa_fleet *f, proa_transfer *t)
{
    t->next = f->transfers;
    t->link = &f->transfers;
    if (t->next) t->next->link = &t->next;
    f->transfers = t;
}

/* Under the lock. The call, if it goes on, knows what was cached from now on. */
static void unlink_transfer(proa_transfer *t)
{
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    if (!t->call) return;
    t->call->transfer = NULL;
    atomic_store_explicit(&t->call->cached_most, t->cached, memory_order_relaxed);
}

static void end_transfer(proa_transfer *t)
{
    proa_fleet *f = t->fleet;
    pthread_mutex_lock(&f->lock);
    unlink_transfer(t);
    pthread_mutex_unlock(&f->lock);
    proa_engine_release(f->replica[t->decode].engine, t->id);
    free(t);
}

void proa_fleet_transfers_free(proa_fleet *f)
{
    for (proa_transfer *t = f->transfers, *next; t; t = next) {
        next = t->next;
        proa_kv_handoff_free(t->handoff);
        free(t);
    }
    f->transfers = NULL;
}

/* ---- the way of a transfer ---- */

/* On the thread of the decode replica. */
static void pages_arrived(void *arg)
{
    end_transfer(arg);
}

/* On the thread of the prefill replica. */
static void prompt_event(const proa_event *e)
{
    proa_transfer *t = e->arg;
    if (e->kind != PROA_EVENT_DONE) return;
    proa_replica *replica = &t->fleet->replica[t->prefill];
    bool done = e->finish != PROA_FINISH_ERROR && e->finish != PROA_FINISH_CANCELLED;
    pthread_mutex_lock(&t->fleet->lock); /* its submit has returned, and it is not cancelled from now on */
    t->prompt_id = 0;
    if (done) t->cached = proa_max64(t->cached_there, e->cached_tokens);
    proa_kv_handoff *h = t->handoff;
    t->handoff = NULL;
    pthread_mutex_unlock(&t->fleet->lock);
    atomic_fetch_sub_explicit(&replica->queued, t->queued, memory_order_relaxed);
    atomic_fetch_sub_explicit(&replica->active, 1, memory_order_relaxed);
    if (done) {
        proa_kv_handoff_pin(h);
        proa_kv_handoff_send(h, pages_arrived, t);
        return;
    }
    proa_kv_handoff_free(h);
    end_transfer(t);
}

/* The prompt alone, with what decides about its place in the queue and about its keys and values. */
static proa_request prompt_request(const proa_request *r, proa_transfer *t)
{
    return (proa_request){.ids = r->ids,
                          .ids_count = r->ids_count,
                          .cache_salt = r->cache_salt,
                          .client = r->client,
                          .on_event = prompt_event,
                          .arg = t,
                          .options = {.max_tokens = 1,
                                      .adapter = r->options.adapter,
                                      .priority = r->options.priority,
                                      .timeout_ms = r->options.timeout_ms}};
}

/* Under the lock, so that the end of the prompt finds the transfer complete. */
static proa_status submit_prompt(proa_transfer *t, const proa_request *r)
{
    proa_replica *replica = &t->fleet->replica[t->prefill];
    proa_request prompt = prompt_request(r, t);
    atomic_fetch_add_explicit(&replica->queued, t->queued, memory_order_relaxed);
    atomic_fetch_add_explicit(&replica->active, 1, memory_order_relaxed);
    proa_status status = proa_engine_submit(replica->engine, &prompt, &t->prompt_id, NULL);
    if (status == PROA_OK) return PROA_OK;
    atomic_fetch_sub_explicit(&replica->queued, t->queued, memory_order_relaxed);
    atomic_fetch_sub_explicit(&replica->active, 1, memory_order_relaxed);
    return status;
}

/* The prompt's queue is full, or the like: the decode replica runs it itself. */
static void go_without(proa_transfer *t)
{
    proa_kv_handoff_free(t->handoff);
    end_transfer(t);
}

proa_status proa_fleet_transfer(proa_fleet *f, int32_t prefill, proa_fleet_call *call,
                                const proa_request *request, uint64_t *id, proa_err *err)
{
    proa_engine *from = f->replica[prefill].engine, *to = f->replica[call->replica].engine;
    proa_kv_handoff *h = proa_kv_handoff_new(from, to, request);
    if (!h) return proa_engine_submit(to, request, id, err);
    proa_transfer *t = proa_calloc(1, sizeof *t);
    int64_t cost = request->ids_count - proa_engine_cached_tokens(from, request);
    *t = (proa_transfer){.fleet = f, .handoff = h, .prefill = prefill, .decode = call->replica};
    t->queued = cost > 1 ? cost : 1;
    t->cached = INT64_MAX;
    t->cached_there = proa_engine_cached_tokens(to, request);
    proa_status status = proa_engine_hold(to, request, &t->id, err);
    if (status != PROA_OK) {
        proa_kv_handoff_free(h);
        free(t);
        return status;
    }
    if (id) *id = t->id;
    pthread_mutex_lock(&f->lock);
    t->call = call;
    call->transfer = t;
    link_transfer(f, t);
    bool runs = submit_prompt(t, request) == PROA_OK;
    pthread_mutex_unlock(&f->lock);
    if (!runs) go_without(t);
    return PROA_OK;
}

void proa_fleet_transfer_cancel(proa_fleet *f, int32_t decode, uint64_t id)
{
    pthread_mutex_lock(&f->lock);
    for (proa_transfer *t = f->transfers; t; t = t->next)
        if (t->decode == decode && t->id == id && t->prompt_id)
            proa_engine_cancel(f->replica[t->prefill].engine, t->prompt_id);
    pthread_mutex_unlock(&f->lock);
}
