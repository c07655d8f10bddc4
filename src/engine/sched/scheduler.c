/* SPDX-License-Identifier: Apache-2.0
 * scheduler.c - one step of the engine: admission, the batch of a pass, and the order of submit and complete.
 *
 * The life of a request, and what a step does with it:
 *
 *   proa_engine_submit --> inbox                            any thread, under shared.lock
 *   --------------------------|--------------------------------------------------------------
 *                take_inbox   v                             the stepping thread
 *                          waiting (QUEUED)
 *             admit_waiting   |   in order of arrival, once `width` slots are free and the
 *                             v   pool has all pages that the request can ever need
 *          +------------- running ---------------+
 *          | with an encoder                     | decoder only
 *          v                                     |
 *   ENCODE_WAITING                               |
 *          | encode.c: submit a pass             |
 *          v                                     |
 *   ENCODE_INFLIGHT                              |
 *          | encode.c: complete it               |
 *          |  (encoder-only requests end here)   |
 *          +----------------> PREFILL <----------+
 *                             |       chunks of the prompt, in what the token budget leaves
 *                last chunk   v
 *                          DECODE <-----------------------------+
 *                             |       one row per sequence      |
 *                             v                                 |
 *                submit the decoder pass                        |
 *                    |                   |                      |
 *          sampled on the device   sampled on the host          |
 *             (async_step.c)        (process_logits.c)          |
 *                    v                   |                      |
 *             in-flight step             |                      |
 *            (the next pass may          |                      |
 *             be submitted now)          |                      |
 *          complete  |                   |                      |
 *                    v                   v                      |
 *                 append the token, emit it (output.c) ---------+
 *                             | end token, stop rule, length limit, error, cancel
 *                             v
 *                proa_sched_retire: return pages and slots, emit DONE
 *
 * Admission reserves the worst case, so nothing that runs is ever evicted and taking pages cannot fail. */
#include "engine/sched/request.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/thread.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static bool has_decoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_ENCODER;
}

/* ---- admission and retirement ---- */

void proa_sched_release(proa_engine *e, proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width; i++) {
        proa_page_table_release(&e->pages, &e->slots.self[req->slot + i]);
        proa_page_table_release(&e->pages, &e->slots.cross[req->slot + i]);
        e->slots.used[req->slot + i] = false;
    }
    if (req->slot < e->slots.first_free) e->slots.first_free = req->slot;
    e->slots.pages_reserved -= req->reserved;
    if (req->samples_on_device) e->async.entries_reserved -= req->entries;
}

static void fail_request(proa_engine_request *req, const proa_err *why)
{
    if (req->ending == PROA_FINISH_ERROR) return;
    req->ending = PROA_FINISH_ERROR;
    req->error = *why;
}

void proa_sched_check_device(proa_engine *e, proa_engine_request *req)
{
    proa_err why = {.status = PROA_OK};
    if (e->device->failed(e->device, &why) == PROA_OK) return;
    for (proa_engine_request *other = e->running.first; other; other = other->next) fail_request(other, &why);
    if (req) fail_request(req, &why);
}

static void finish_request(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error)
{
    if (req->phase != PROA_PHASE_QUEUED) proa_sched_release(e, req);
    proa_async_step_detach(e, req);
    proa_encode_detach(e, req);
    proa_emit_done(e, req, finish, error);
}

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
        finish_request(e, req, PROA_FINISH_CANCELLED, NULL);
}

static void take_inbox(proa_engine *e)
{
    pthread_mutex_lock(&e->shared.lock);
    atomic_store_explicit(&e->shared.work_signalled, false, memory_order_relaxed);
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->shared.inbox));)
        proa_request_list_push(&e->waiting, req);
    pthread_mutex_unlock(&e->shared.lock);
}

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

static bool try_admit(proa_engine *e, proa_engine_request *req)
{
    int32_t slot = find_slots(e, req->width);
    if (slot < 0 || e->slots.pages_reserved + req->reserved > e->pages.count) return false;
    for (int32_t i = 0; i < req->width; i++) e->slots.used[slot + i] = true;
    proa_async_step_reserve(e, req);
    if (slot == e->slots.first_free) e->slots.first_free = slot + req->width;
    e->slots.pages_reserved += req->reserved;
    req->slot = slot;
    req->phase = proa_encode_has_encoder(e) ? PROA_PHASE_ENCODE_WAITING : PROA_PHASE_PREFILL;
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

/* ---- building a batch ---- */

void proa_sched_batch_clear(proa_engine *e)
{
    e->step.rows = e->step.spans = e->step.prefixes = e->step.logits_count = e->step.inputs_embeds_count =
        e->step.pending_count = 0;
    e->step.any_sampled_at = e->step.any_types = false;
}

static int32_t table_at(const proa_engine *e, const proa_page_table *table)
{
    return (int32_t)(table->page - e->slots.memory);
}

static void request_logits(proa_engine *e, proa_engine_request *req, int64_t row, int64_t index)
{
    e->step.logits_requests[e->step.logits_count++] = (proa_logits_request){req, (int32_t)row, (int32_t)index};
}

void proa_sched_add_span(proa_engine *e, const proa_page_table *table, int64_t rows, int64_t context,
                         const proa_page_table *cross, int64_t cross_context)
{
    e->step.self_spans[e->step.spans] = (proa_span){(int32_t)e->step.rows, (int32_t)rows, (int32_t)context,
                                                    table_at(e, table)};
    e->step.cross_spans[e->step.spans] = (proa_span){(int32_t)e->step.rows, (int32_t)rows,
                                                     (int32_t)cross_context, table_at(e, cross)};
    e->step.spans++;
}

void proa_sched_add_row(proa_engine *e, int32_t id, int64_t position, int64_t length)
{
    e->step.ids[e->step.rows] = id;
    e->step.positions[e->step.rows] = (int32_t)position;
    e->step.block_positions[e->step.rows] = 0;
    e->step.lengths[e->step.rows] = (int32_t)length;
    e->step.sampled_at[e->step.rows] = -1;
    e->step.types[e->step.rows] = 0;
    e->step.rows++;
}

/* The length by which the rotary frequencies of a row are chosen. */
static int64_t rope_length(const proa_engine *e, const proa_engine_request *req, int64_t position)
{
    return proa_rope_length(&e->model->config.rope, position, req->prompt_count,
                            req->prompt_count + req->new_max);
}

/* The row of the token with this index in the request's sequences. */
static void add_token_row(proa_engine *e, const proa_engine_request *req, int32_t id, int64_t index)
{
    int64_t row = e->step.rows;
    proa_sched_add_row(e, id, proa_prefix_position(&req->prefix, index), rope_length(e, req, index));
    e->step.block_positions[row] = (int32_t)proa_prefix_block_position(&req->prefix, index);
}

/* The row of a decoding sequence. If only the device knows its token (sampled_at >= 0), the id is filled in there. */
static void add_decode_row(proa_engine *e, const proa_engine_request *req, int32_t token, int32_t sampled_at)
{
    add_token_row(e, req, sampled_at < 0 ? token : 0, req->length);
    e->step.sampled_at[e->step.rows - 1] = sampled_at;
    e->step.any_sampled_at = e->step.any_sampled_at || sampled_at >= 0;
}

/* The row of beam i. If the host has not received the last beam step, the device also reorders the page tables;
 * not after the prompt, when all beams go on from the same pages. */
static void add_beam_row(proa_engine *e, const proa_engine_request *req, int32_t i)
{
    bool unknown = req->sampled_at >= 0;
    if (unknown && i == 0 && req->depth > 0)
        e->step.pending[e->step.pending_count++] = (proa_pending_beams){(int32_t)e->step.spans - 1,
                                                                        req->width, req->sampled_at};
    add_decode_row(e, req, req->beam_token[i], unknown ? req->sampled_at + i : -1);
}

proa_batch proa_sched_batch(const proa_engine *e)
{
    proa_batch b = {.rows = e->step.rows, .ids = e->step.ids, .positions = e->step.positions};
    if (proa_model_wants_lengths(e->model)) b.lengths = e->step.lengths;
    if (e->model->config.prefix_end >= 0) b.block_positions = e->step.block_positions;
    b.prefixes = e->step.prefixes;
    if (e->step.any_types) b.types = e->step.types;
    if (e->step.any_sampled_at) b.sampled_at = e->step.sampled_at;
    b.pending = e->step.pending;
    b.pending_count = e->step.pending_count;
    b.self = (proa_spans){.span = e->step.self_spans, .count = e->step.spans, .pages = e->slots.memory};
    b.cross = (proa_spans){.span = e->step.cross_spans, .count = e->step.spans, .pages = e->slots.memory};
    return b;
}

void proa_sched_take_pages(proa_engine *e, proa_page_table *table, int64_t length, int64_t rows)
{
    bool ok = proa_page_table_own(&e->pages, table, length) &&
              proa_page_table_grow(&e->pages, table, length + rows);
    PROA_ASSERT(ok);
}

/* ---- the decoder ---- */

/* Whether row i takes part in this step. A token that the host has not received may turn out to be an end token,
 * which costs one surplus row; that it reaches the length limit is known beforehand. */
static bool decodes_now(const proa_engine_request *req, int32_t i)
{
    if (req->candidates) return req->sampled_at < 0 || req->depth + 1 < req->new_max;
    const proa_seq *seq = &req->seq[i];
    return seq->finish == PROA_FINISH_NONE && (seq->sampled_at < 0 || seq->count + 1 < req->new_max);
}

static void add_decode_rows(proa_engine *e, proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width; i++) {
        proa_page_table *table = &e->slots.self[req->slot + i];
        if (!decodes_now(req, i)) continue;
        proa_sched_take_pages(e, table, req->length, 1);
        proa_sched_add_span(e, table, 1, req->length + 1, &e->slots.cross[req->slot], req->input_count);
        request_logits(e, req, e->step.rows, i);
        if (req->candidates) add_beam_row(e, req, i);
        else add_decode_row(e, req, req->seq[i].token, req->seq[i].sampled_at);
    }
}

/* Whether the logits (or hidden states) of every prompt row are needed, not only of the last one. */
static bool wants_all_rows(const proa_engine_request *req)
{
    return req->task != PROA_TASK_GENERATE || req->options.prompt_logprobs || req->contrast;
}

static void add_prefill_chunk(proa_engine *e, proa_engine_request *req, int64_t rows)
{
    proa_page_table *table = &e->slots.self[req->slot];
    int64_t begin = req->length;
    proa_sched_take_pages(e, table, begin, rows);
    proa_sched_add_span(e, table, rows, begin + rows, &e->slots.cross[req->slot], req->input_count);
    req->chunk_rows = rows;
    for (int64_t i = begin; i < begin + rows; i++) {
        if (wants_all_rows(req) || i + 1 == req->prompt_count) request_logits(e, req, e->step.rows, i);
        add_token_row(e, req, req->prompt[i], i);
    }
}

/* Whether the next tokens of the prompt are its prefix, whose rows see each other both ways. */
static bool is_at_prefix(const proa_engine_request *req)
{
    return req->phase == PROA_PHASE_PREFILL && req->length < req->prefix.rows;
}

static void add_prefill_chunks(proa_engine *e)
{
    int64_t budget = e->sizes.step_tokens;
    for (proa_engine_request *req = e->running.first; req && e->step.rows < budget; req = req->next)
        if (req->phase == PROA_PHASE_PREFILL && !is_at_prefix(req))
            add_prefill_chunk(e, req, proa_min64(req->prompt_count - req->length, budget - e->step.rows));
}

/* A prefix runs in one piece, so it may exceed the budget: beside a full step there is room for the longest one
 * (plan.rows_max). Such spans come last. */
static void add_prefixes(proa_engine *e)
{
    for (proa_engine_request *req = e->running.first; req && e->step.rows < e->sizes.step_tokens;
         req = req->next) {
        if (!is_at_prefix(req) || e->step.rows + req->prefix.rows > e->model->plan.rows_max) continue;
        add_prefill_chunk(e, req, req->prefix.rows);
        e->step.prefixes++;
    }
}

static void build_batch(proa_engine *e)
{
    proa_sched_batch_clear(e);
    for (proa_engine_request *req = e->running.first; req; req = req->next)
        if (req->phase == PROA_PHASE_DECODE) add_decode_rows(e, req);
    add_prefill_chunks(e);
    add_prefixes(e);
}

/* Called before logits are processed: reordering the page tables of beams needs the length after this step. */
static void advance_lengths(proa_engine *e)
{
    for (int64_t s = 0; s < e->step.spans; s++) e->now.rows += (uint64_t)e->step.self_spans[s].rows;
    for (proa_engine_request *req = e->running.first; req; req = req->next) {
        if (req->phase == PROA_PHASE_DECODE) req->length++;
        if (req->phase != PROA_PHASE_PREFILL) continue;
        req->length += req->chunk_rows;
        e->now.prompt_tokens += (uint64_t)req->chunk_rows;
        req->chunk_rows = 0;
    }
}

void proa_sched_retire(proa_engine *e)
{
    proa_request_list kept;
    proa_request_list_init(&kept);
    proa_wakeups_begin();
    for (proa_engine_request *req; (req = proa_request_list_pop(&e->running));) {
        if (req->phase == PROA_PHASE_PREFILL && req->length == req->prompt_count)
            req->phase = PROA_PHASE_DECODE;
        if (req->ending == PROA_FINISH_NONE) proa_request_list_push(&kept, req);
        else finish_request(e, req, req->ending, req->ending == PROA_FINISH_ERROR ? &req->error : NULL);
    }
    proa_wakeups_end();
    e->running = kept;
}

/* Runs one pass over all decoding rows and, in what is left of the token budget, prompt chunks. Rows whose tokens
 * the device samples become an in-flight step; the others stay in step.logits_requests. False: there are no rows
 * to run. */
static bool submit_decoder_pass(proa_engine *e)
{
    build_batch(e);
    if (!e->step.rows) return false;
    proa_batch batch = proa_sched_batch(e);
    proa_model_decode(e->model, e->kv, &batch);
    e->now.steps++;
    advance_lengths(e);
    if (e->async.mode != PROA_SAMPLE_HOST) proa_async_step_submit(e);
    return true;
}

/* The step has rows that the host must sample, or none to sample at all: it ends before the next one begins. */
static void finish_on_host(proa_engine *e)
{
    if (e->async.count) proa_async_step_complete(e);
    proa_process_logits(e);
    proa_sched_retire(e);
}

/* The tokens of one step are emitted. If the device samples them all, the next step is submitted before the host
 * receives them: its rows are known but for their ids. A sequence that turns out to have ended has a surplus row
 * in that step, on a page that it still held; its token is discarded. */
static void decoder_step(proa_engine *e)
{
    if (!e->async.count) {
        if (!submit_decoder_pass(e)) return;
        if (!e->async.count || e->step.logits_count) {
            finish_on_host(e);
            return;
        }
    }
    if (e->async.count == 1 && e->async.mode == PROA_SAMPLE_ASYNC && proa_async_step_allowed(e))
        submit_decoder_pass(e);
    proa_async_step_complete(e);
    proa_sched_retire(e);
}

static void publish_stats(proa_engine *e)
{
    e->now.running = e->running.count;
    e->now.waiting = e->waiting.count;
    e->now.pages_used = e->pages.used;
    e->now.pages_free = e->pages.free;
    e->now.pages_used_peak = e->pages.used_peak;
    pthread_mutex_lock(&e->shared.lock);
    uint64_t submitted = e->shared.stats.submitted;
    e->shared.stats = e->now;
    e->shared.stats.submitted = submitted;
    e->shared.stats.waiting += e->shared.inbox.count;
    pthread_mutex_unlock(&e->shared.lock);
}

bool proa_sched_step(proa_engine *e)
{
    take_inbox(e);
    bool any = e->waiting.count + e->running.count > 0;
    finish_cancelled(e);
    admit_waiting(e);
    int64_t begin = proa_clock_ns();
    if (proa_encode_has_encoder(e)) proa_encode_step(e);
    if (has_decoder(e)) decoder_step(e);
    if (any) e->now.step_s += (double)(proa_clock_ns() - begin) * 1e-9;
    publish_stats(e);
    return any;
}
