/* SPDX-License-Identifier: Apache-2.0
 * step.c - the scheduler: who is in the next step, with how many rows, and what becomes of the logits.
 *
 * A step: take what was submitted, end what was cancelled, admit in order of arrival whoever fits; run the encoder
 * over new inputs; run the decoder over one row for each sequence that decodes and, with what is left of the budget,
 * over chunks of prompts; sample. A request is admitted only if the pages that it may ever use are free or not
 * promised to others, so nothing that runs is ever evicted. Where the device chooses the tokens, a step is launched before
 * the host knows those of the one before (flight.c). */
#include "engine/job.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void proa_job_list_init(proa_job_list *list)
{
    *list = (proa_job_list){.last = NULL};
}

void proa_job_list_push(proa_job_list *list, proa_job *job)
{
    job->next = NULL;
    if (list->first) *list->last = job;
    else list->first = job;
    list->last = &job->next;
    list->count++;
}

proa_job *proa_job_list_pop(proa_job_list *list)
{
    proa_job *job = list->first;
    if (!job) return NULL;
    list->first = job->next;
    list->count--;
    job->next = NULL;
    return job;
}

static bool has_decoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_ENCODER;
}

/* ---- coming and going ---- */

void proa_step_drop(proa_engine *e, proa_job *job)
{
    for (int32_t i = 0; i < job->width; i++) {
        proa_table_release(&e->pages, &e->self[job->slot + i]);
        proa_table_release(&e->pages, &e->cross[job->slot + i]);
        e->slot_used[job->slot + i] = false;
    }
    if (job->slot < e->slots_full) e->slots_full = job->slot;
    e->pages_reserved -= job->reserved;
    if (job->chosen_there) e->pairs_reserved -= job->pairs;
}

static void fail_with(proa_job *job, const proa_err *why)
{
    if (job->ending == PROA_FINISH_ERROR) return;
    job->ending = PROA_FINISH_ERROR;
    job->error = *why;
}

void proa_step_ask_device(proa_engine *e, proa_job *job)
{
    proa_err why = {.status = PROA_OK};
    if (e->device->failed(e->device, &why) == PROA_OK) return;
    for (proa_job *other = e->running.first; other; other = other->next) fail_with(other, &why);
    if (job) fail_with(job, &why);
}

static void end_job(proa_engine *e, proa_job *job, proa_finish finish, const proa_err *error)
{
    if (job->phase != PROA_PHASE_WAITING) proa_step_drop(e, job);
    proa_flight_forget(e, job);
    proa_encode_forget(e, job);
    proa_deliver_done(e, job, finish, error);
}

/* Splits a list: those that `ends` says have ended leave it. Their DONE events come after the list is whole again,
 * since a callback may submit. */
static void sweep(proa_job_list *list, proa_job_list *ended)
{
    proa_job_list kept;
    proa_job_list_init(&kept);
    for (proa_job *job; (job = proa_job_list_pop(list));) {
        bool cancelled = atomic_load_explicit(&job->cancelled, memory_order_acquire);
        proa_job_list_push(cancelled ? ended : &kept, job);
    }
    *list = kept;
}

static void drop_cancelled(proa_engine *e)
{
    proa_job_list ended;
    proa_job_list_init(&ended);
    sweep(&e->waiting, &ended);
    sweep(&e->running, &ended);
    for (proa_job *job; (job = proa_job_list_pop(&ended));) end_job(e, job, PROA_FINISH_CANCELLED, NULL);
}

static void take_inbox(proa_engine *e)
{
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->called, false, memory_order_relaxed);
    for (proa_job *job; (job = proa_job_list_pop(&e->inbox));) proa_job_list_push(&e->waiting, job);
    pthread_mutex_unlock(&e->lock);
}

/* `width` neighbouring free slots, or -1. */
static int32_t find_slots(const proa_engine *e, int32_t width)
{
    int32_t run = 0;
    for (int32_t i = e->slots_full; i < e->sizes.sequences_max; i++) {
        run = e->slot_used[i] ? 0 : run + 1;
        if (run == width) return i - width + 1;
    }
    return -1;
}

static bool admit_one(proa_engine *e, proa_job *job)
{
    int32_t slot = find_slots(e, job->width);
    if (slot < 0 || e->pages_reserved + job->reserved > e->pages.count) return false;
    for (int32_t i = 0; i < job->width; i++) e->slot_used[slot + i] = true;
    proa_flight_reserve(e, job);
    if (slot == e->slots_full) e->slots_full = slot + job->width;
    e->pages_reserved += job->reserved;
    job->slot = slot;
    job->phase = proa_encode_has(e) ? PROA_PHASE_ENCODE : PROA_PHASE_PROMPT;
    job->admitted_ns = proa_clock_ns();
    return true;
}

/* In order of arrival: a large request is not overtaken for ever by small ones. */
static void admit(proa_engine *e)
{
    while (e->waiting.first && admit_one(e, e->waiting.first)) {
        proa_job *job = proa_job_list_pop(&e->waiting);
        proa_job_list_push(&e->running, job);
        proa_deliver_begin(job);
    }
}

/* ---- building a batch ---- */

void proa_step_clear(proa_engine *e)
{
    e->rows = e->spans = e->ask_count = e->given_count = e->pending_count = 0;
    e->any_from = false;
}

static int32_t table_at(const proa_engine *e, const proa_table *table)
{
    return (int32_t)(table->page - e->table_memory);
}

static void ask(proa_engine *e, proa_job *job, int64_t row, int64_t index)
{
    e->asks[e->ask_count++] = (proa_ask){job, (int32_t)row, (int32_t)index};
}

void proa_step_add_span(proa_engine *e, const proa_table *table, int64_t rows, int64_t context,
                        const proa_table *cross, int64_t cross_context)
{
    e->self_spans[e->spans] = (proa_span){(int32_t)e->rows, (int32_t)rows, (int32_t)context, table_at(e, table)};
    e->cross_spans[e->spans] = (proa_span){(int32_t)e->rows, (int32_t)rows, (int32_t)cross_context,
                                           table_at(e, cross)};
    e->spans++;
}

void proa_step_add_row(proa_engine *e, int32_t id, int64_t position)
{
    e->ids[e->rows] = id;
    e->positions[e->rows] = (int32_t)position;
    e->from[e->rows] = -1;
    e->rows++;
}

/* The row of a sequence that decodes: its token may be known to the device alone. */
static void add_token(proa_engine *e, int32_t token, int32_t from, int64_t position)
{
    proa_step_add_row(e, from < 0 ? token : 0, position);
    e->from[e->rows - 1] = from;
    e->any_from = e->any_from || from >= 0;
}

/* Of beams too. What they went on from is known after the prompt: all from it, on its pages. */
static void add_beam(proa_engine *e, const proa_job *job, int32_t i)
{
    bool unknown = job->from >= 0;
    if (unknown && i == 0 && job->depth > 0)
        e->pending[e->pending_count++] = (proa_pending){(int32_t)e->spans - 1, job->width, job->from};
    add_token(e, job->beam_token[i], unknown ? job->from + i : -1, job->length);
}

proa_batch proa_step_batch(const proa_engine *e)
{
    proa_batch b = {.rows = e->rows, .ids = e->ids, .positions = e->positions};
    if (e->any_from) b.from = e->from;
    b.pending = e->pending;
    b.pending_count = e->pending_count;
    b.self = (proa_spans){.span = e->self_spans, .count = e->spans, .pages = e->table_memory};
    b.cross = (proa_spans){.span = e->cross_spans, .count = e->spans, .pages = e->table_memory};
    return b;
}

void proa_step_take_pages(proa_engine *e, proa_table *table, int64_t length, int64_t rows)
{
    bool ok = proa_table_own(&e->pages, table, length) && proa_table_grow(&e->pages, table, length + rows);
    PROA_ASSERT(ok);
}

/* ---- the decoder ---- */

/* A token that the host has not seen may turn out to be the last; that it is the last for its number is known. */
static bool runs(const proa_job *job, int32_t i)
{
    if (job->candidates) return job->from < 0 || job->depth + 1 < job->new_max;
    const proa_seq *seq = &job->seq[i];
    return seq->finish == PROA_FINISH_NONE && (seq->from < 0 || seq->count + 1 < job->new_max);
}

static void add_decoding(proa_engine *e, proa_job *job)
{
    for (int32_t i = 0; i < job->width; i++) {
        proa_table *table = &e->self[job->slot + i];
        if (!runs(job, i)) continue;
        proa_step_take_pages(e, table, job->length, 1);
        proa_step_add_span(e, table, 1, job->length + 1, &e->cross[job->slot], job->input_count);
        ask(e, job, e->rows, i);
        if (job->candidates) add_beam(e, job, i);
        else add_token(e, job->seq[i].token, job->seq[i].from, job->length);
    }
}

/* Every row of the prompt is asked, not only the last. */
static bool asks_all(const proa_job *job)
{
    return job->task != PROA_TASK_GENERATE || job->options.prompt_logprobs || job->contrast;
}

static void add_prompt(proa_engine *e, proa_job *job, int64_t budget)
{
    proa_table *table = &e->self[job->slot];
    int64_t begin = job->length, rows = proa_min64(job->prompt_count - begin, budget);
    proa_step_take_pages(e, table, begin, rows);
    proa_step_add_span(e, table, rows, begin + rows, &e->cross[job->slot], job->input_count);
    job->in_step = rows;
    for (int64_t i = begin; i < begin + rows; i++) {
        if (asks_all(job) || i + 1 == job->prompt_count) ask(e, job, e->rows, i);
        proa_step_add_row(e, job->prompt[i], i);
    }
}

static void build_decode(proa_engine *e)
{
    proa_step_clear(e);
    for (proa_job *job = e->running.first; job; job = job->next)
        if (job->phase == PROA_PHASE_DECODE) add_decoding(e, job);
    for (proa_job *job = e->running.first; job && e->rows < e->sizes.step_tokens; job = job->next)
        if (job->phase == PROA_PHASE_PROMPT) add_prompt(e, job, e->sizes.step_tokens - e->rows);
}

/* Lengths and phases move on; what has ended leaves. Beams move their tables in advance_beams, which needs the length
 * after this step: so lengths move before the answers. */
static void move_on(proa_engine *e)
{
    for (int64_t s = 0; s < e->spans; s++) e->now.rows += (uint64_t)e->self_spans[s].rows;
    for (proa_job *job = e->running.first; job; job = job->next) {
        if (job->phase == PROA_PHASE_DECODE) job->length++;
        if (job->phase != PROA_PHASE_PROMPT) continue;
        job->length += job->in_step;
        e->now.prompt_tokens += (uint64_t)job->in_step;
        job->in_step = 0;
    }
}

void proa_step_leave(proa_engine *e)
{
    proa_job_list kept;
    proa_job_list_init(&kept);
    for (proa_job *job; (job = proa_job_list_pop(&e->running));) {
        if (job->phase == PROA_PHASE_PROMPT && job->length == job->prompt_count)
            job->phase = PROA_PHASE_DECODE;
        if (job->ending == PROA_FINISH_NONE) proa_job_list_push(&kept, job);
        else end_job(e, job, job->ending, job->ending == PROA_FINISH_ERROR ? &job->error : NULL);
    }
    e->running = kept;
}

/* One pass over all that decodes, and what is left of the budget for prompts. */
static void decode(proa_engine *e)
{
    build_decode(e);
    if (!e->rows) return;
    proa_batch batch = proa_step_batch(e);
    proa_model_decode(e->model, e->kv, &batch);
    e->now.steps++;
    move_on(e);
    if (e->ahead != PROA_AHEAD_NONE) proa_flight_launch(e);
    if (e->flights && !e->ask_count) return; /* no more is asked; it lands by and by */
    if (e->flights) proa_flight_land(e);
    proa_answer_asks(e);
    proa_step_leave(e);
}

/* One step's tokens are delivered. If the device chooses them, the next step is under way before the host has seen them:
 * that one's rows are known but for their ids. A sequence that turns out to have ended has a row too many in it, on a page
 * that it still had; nobody hears of it. */
static void decode_ahead(proa_engine *e)
{
    if (!e->flights) decode(e);
    if (e->flights == 1 && e->ahead == PROA_AHEAD_FLIES && proa_flight_fits(e)) decode(e);
    if (!e->flights) return;
    proa_flight_land(e);
    proa_step_leave(e);
}

static void publish(proa_engine *e)
{
    e->now.running = e->running.count;
    e->now.waiting = e->waiting.count;
    e->now.pages_used = e->pages.used;
    e->now.pages_free = e->pages.free;
    e->now.pages_used_peak = e->pages.used_peak;
    pthread_mutex_lock(&e->lock);
    uint64_t submitted = e->stats.submitted;
    e->stats = e->now;
    e->stats.submitted = submitted;
    e->stats.waiting += e->inbox.count;
    pthread_mutex_unlock(&e->lock);
}

bool proa_step_run(proa_engine *e)
{
    take_inbox(e);
    bool any = e->waiting.count + e->running.count > 0;
    drop_cancelled(e);
    admit(e);
    int64_t begin = proa_clock_ns();
    if (proa_encode_has(e)) proa_encode_step(e);
    if (has_decoder(e)) decode_ahead(e);
    if (any) e->now.step_s += (double)(proa_clock_ns() - begin) * 1e-9;
    publish(e);
    return any;
}
