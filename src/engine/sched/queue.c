/* SPDX-License-Identifier: Apache-2.0
 * queue.c - requests that wait, admission, and what an admitted request holds: slots and pages. */
#include "engine/sched/request.h"

#include "base/checked.h"
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

proa_engine_request *proa_request_list_pop(proa_request_list *list)
{
    proa_engine_request *req = list->first;
    if (!req) return NULL;
    list->first = req->next;
    list->count--;
    req->next = NULL;
    return req;
}

/* ---- what an admitted request holds ---- */

void proa_queue_take_pages(proa_engine *e, proa_page_table *table, int64_t from, int64_t to)
{
    bool ok = proa_page_table_own(&e->pages, table, from) && proa_page_table_grow(&e->pages, table, to);
    PROA_ASSERT(ok);
}

/* All sequences start from the prompt's pages, whose last one is copied by each that writes to it. */
void proa_queue_fork(proa_engine *e, proa_engine_request *req)
{
    const proa_seq *leader = &req->seq[0];
    for (int32_t i = 1; i < req->width; i++) {
        proa_seq *seq = &req->seq[i];
        proa_page_table_share(&e->pages, seq->table, leader->table, req->prompt_count);
        seq->length = req->prompt_count;
        seq->cached = leader->cached;
    }
}

void proa_queue_end_seq(proa_engine *e, proa_seq *seq)
{
    proa_prefix_cache_keep(e, seq);
    proa_page_table_release(&e->pages, seq->table);
    seq->cached = (proa_prefix_cursor){PROA_PREFIX_SELF, 0}; /* it may be computed anew */
}

/* Returns the pages and slots of an admitted request. */
static void release_request(proa_engine *e, proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width; i++) {
        proa_queue_end_seq(e, &req->seq[i]);
        req->seq[i].table = NULL;
        proa_page_table_release(&e->pages, &e->slots.cross[req->slot + i]);
        e->slots.used[req->slot + i] = false;
    }
    if (req->slot < e->slots.first_free) e->slots.first_free = req->slot;
    e->slots.pages_reserved -= req->reserved;
    if (req->samples_on_device) e->async.entries_reserved -= req->entries;
}

void proa_queue_finish(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error)
{
    if (req->phase != PROA_PHASE_QUEUED) release_request(e, req);
    proa_async_step_detach(e, req);
    proa_encode_detach(e, req);
    proa_emit_done(e, req, finish, error);
}

/* ---- arrival and cancellation ---- */

/* Moves cancelled requests from a list to `ended`. Their DONE events are emitted later, when the list is
 * consistent again: a callback may call the engine. */
static void split_cancelled(proa_request_list *list, proa_request_list *ended)
{
    proa_request_list kept;
    proa_request_list_init(&kept);
    for (proa_engine_request *req; (req = proa_request_list_pop(list));) {
        bool cancelled = atomic_load_explicit(&req->cancelled, memory_order_acquire);
        proa_request_list_push(cancelled ? ended : &kept, req);
    }
    *list = kept;
}

static void finish_cancelled(proa_engine *e)
{
    proa_request_list ended;
    proa_request_list_init(&ended);
    split_cancelled(&e->waiting, &ended);
    split_cancelled(&e->running, &ended);
    for (proa_engine_request *req; (req = proa_request_list_pop(&ended));)
        proa_queue_finish(e, req, PROA_FINISH_CANCELLED, NULL);
}

static void take_inbox(proa_engine *e)
{
    pthread_mutex_lock(&e->shared.lock);
    atomic_store_explicit(&e->shared.work_signalled, false, memory_order_relaxed);
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->shared.inbox));)
        proa_request_list_push(&e->waiting, req);
    pthread_mutex_unlock(&e->shared.lock);
}

/* ---- admission ---- */

/* The first of `width` neighbouring free slots, or -1. */
static int32_t find_slots(const proa_engine *e, int32_t width)
{
    int32_t run = 0;
    for (int32_t i = e->slots.first_free; i < e->sizes.sequences_max; i++) {
        run = e->slots.used[i] ? 0 : run + 1;
        if (run == width) return i - width + 1;
    }
    return -1;
}

/* The request gets its slots, and its sequences their page tables, which are empty. */
static void start_request(proa_engine *e, proa_engine_request *req, int32_t slot)
{
    req->slot = slot;
    for (int32_t i = 0; i < req->width; i++) {
        e->slots.used[slot + i] = true;
        req->seq[i].table = &e->slots.self[slot + i];
        req->seq[i].cached = (proa_prefix_cursor){PROA_PREFIX_SELF, 0};
    }
    if (slot == e->slots.first_free) e->slots.first_free = slot + req->width;
    proa_async_step_reserve(e, req);
    req->phase = proa_encode_has_encoder(e) ? PROA_PHASE_ENCODE_WAITING : PROA_PHASE_DECODER;
}

static bool try_admit(proa_engine *e, proa_engine_request *req)
{
    int32_t slot = find_slots(e, req->width);
    if (slot < 0 || e->slots.pages_reserved + req->reserved > e->pages.count) return false;
    e->slots.pages_reserved += req->reserved;
    start_request(e, req, slot);
    req->admitted_ns = proa_clock_ns();
    return true;
}

/* Strictly in order of arrival, so that small requests cannot overtake a large one for ever. */
static void admit_waiting(proa_engine *e)
{
    while (e->waiting.first && try_admit(e, e->waiting.first)) {
        proa_engine_request *req = proa_request_list_pop(&e->waiting);
        proa_request_list_push(&e->running, req);
        proa_emit_begin(req);
    }
}

bool proa_queue_update(proa_engine *e)
{
    take_inbox(e);
    bool any = e->waiting.count + e->running.count > 0;
    finish_cancelled(e);
    admit_waiting(e);
    return any;
}
