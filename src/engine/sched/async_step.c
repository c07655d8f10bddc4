/* SPDX-License-Identifier: Apache-2.0
 * async_step.c - steps whose tokens are sampled where the model runs.
 *
 * Such a step is in flight from its submission until the host has received its tokens (completion). The rows of the
 * next step take their ids from the sampled ids on the device, so the next step can be submitted before this one
 * completes.
 *
 * Logits processors that depend on the history (penalties, biases, bans) are sent as entries (id, value): what the host
 * knows at submission, with a condition where an entry depends on the token that is still in flight. The host samples
 * rows that this cannot express: typical-p, log-probabilities of processed rows (process_logits.c).
 *
 * Rows that a grammar or allowed words constrain are sampled with a mask, which depends on all tokens before. So the
 * pass is submitted at once, and its sampling once the host has received the tokens of the step before; while the
 * device runs the pass, the host computes the masks. Without such rows sampling follows its pass immediately.
 *
 * Beam search, diverse groups included: the device makes the step (beam_step in kernels/decode.def) and reorders the
 * page tables (reorder_kv). On completion the host gets the same candidates, makes the same step with its own
 * bookkeeping (finished hypotheses, end of the search) and reorders its page tables by the same rule
 * (kernels/reorder_kv.h), so that host and device agree on every page. */
#include "engine/sched/async_step.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/wakeup.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include "engine/sched/device_failure.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether steps of different sequences run in the stages of a pipeline at the same time. What drafts reads states of
 * the last pass, so it needs one after the other. */
static bool fills_stages(const proa_engine *e)
{
    bool drafts = e->draft_model || e->medusa || e->eagle;
    bool decodes = e->model->arch->kind != PROA_KIND_ENCODER;
    return e->model->plan.part.stages > 1 && decodes && !drafts;
}

/* The environment variable PROA_AHEAD is for tests and measurements. host: the host samples all tokens; 0: the
 * device does, and each step completes before the next is submitted; 1: asynchronously, also with the model on the
 * host. */
static proa_sample_mode choose_mode(const proa_engine *e)
{
    const char *wanted = getenv("PROA_AHEAD");
    const proa_device *d = e->device;
    if (!wanted && fills_stages(e)) return PROA_SAMPLE_STAGES;
    if (!wanted) return d->host ? PROA_SAMPLE_HOST : PROA_SAMPLE_ASYNC;
    if (strcmp(wanted, "1") == 0) return PROA_SAMPLE_ASYNC;
    return d->host || strcmp(wanted, "host") == 0 ? PROA_SAMPLE_HOST : PROA_SAMPLE_DEVICE;
}

void proa_async_steps_init(proa_engine *e)
{
    proa_async_steps *a = &e->async;
    a->mode = choose_mode(e);
    a->most = 2;
    if (a->mode != PROA_SAMPLE_STAGES) return;
    a->groups = (int32_t)proa_min64(e->model->plan.part.stages, PROA_STEPS_MAX - 1);
    a->most = a->groups + (!e->device->host && !e->model->pipe_waits);
}

/* Not with recurrent states: the host reorders them, before the next step. */
static bool beams_fit_device(const proa_engine *e, const proa_engine_request *req)
{
    proa_beam_params step;
    if (e->states.numbers) return false;
    if (req->logits || req->options.prompt_logprobs || req->search.candidates > PROA_TOP_MAX) return false;
    return proa_beam_search(req->search.beam, 1, &step) && req->width == step.beams;
}

/* Whether the log-probabilities of sampled tokens are needed: for the caller, or to rank best_of. */
static bool wants_logprobs(const proa_engine_request *req)
{
    return req->options.logprobs || req->options.best_of > req->options.n;
}

/* Sets req->entries. Log-probabilities are those of unprocessed rows, which the device overwrites, so they exclude
 * entries. */
static bool processors_fit_device(proa_engine_request *req)
{
    req->entries = 0;
    if (!req->logits) return true;
    int64_t each = proa_logits_processor_entries_max(req->logits, req->prompt_count + req->new_max);
    req->entries = each * req->width;
    return each >= 0 && req->entries <= PROA_LOGITS_ENTRIES_MAX && !wants_logprobs(req) &&
           !req->options.top_logprobs;
}

/* whole: rows are wanted on the host, not single tokens. */
static bool sampling_fits_device(proa_engine_request *req)
{
    const proa_options *o = &req->options;
    bool whole = o->prompt_logprobs || o->return_hidden || (o->return_logits && !req->rows_in_place);
    bool plain = req->task == PROA_TASK_GENERATE && !req->search.candidates && !whole;
    return plain && o->top_logprobs <= PROA_TOP_MAX && processors_fit_device(req) &&
           proa_sampler_choice(&req->sample_params, o);
}

/* On the host log-probabilities come from sums in f64, whatever number of stages there is: whole rows are fetched. */
static bool needs_rows(const proa_engine *e, const proa_engine_request *req)
{
    bool logprobs = wants_logprobs(req) || req->options.top_logprobs > 0;
    return e->async.mode == PROA_SAMPLE_STAGES && e->device->host && logprobs && !req->search.beam;
}

/* Whether rows are wanted elsewhere than in memory where the model runs. */
static bool needs_host(const proa_engine_request *req)
{
    return (req->scores || req->rows.logits) && !req->rows_in_place;
}

void proa_async_step_prepare(const proa_engine *e, proa_engine_request *req)
{
    bool fits = req->search.beam ? beams_fit_device(e, req) : sampling_fits_device(req);
    req->samples_on_device = fits && !needs_host(req) && !needs_rows(e, req);
}

void proa_async_step_reserve(proa_engine *e, proa_engine_request *req)
{
    if (!req->samples_on_device) return;
    if (e->async.entries_reserved + req->entries > PROA_LOGITS_ENTRIES_MAX) req->samples_on_device = false;
    else e->async.entries_reserved += req->entries;
}

/* ---- submission ---- */

static void add_row_mask(proa_engine *e, const proa_inflight_step *f, const proa_seq *seq, int64_t position)
{
    proa_async_steps *a = &e->async;
    const proa_engine_request *req = seq->req;
    a->mask_of[f->count] = -1;
    if (!proa_logits_processor_has_mask(req->logits)) return;
    int64_t words = proa_ceil_div(e->model->plan.width[PROA_REG_OUT], 32);
    a->mask_of[f->count] = (int32_t)a->masks_count;
    a->mask_jobs[a->masks_count] = (proa_logits_job){.processor = req->logits,
                                                     .mask = a->masks + a->masks_count * words};
    a->mask_jobs[a->masks_count++].history = proa_request_history(req, seq->ids, position - req->prompt_count);
}

/* The logits processors of the next sampled row. After a prompt the host knows the whole history; later its last
 * token may be on the device only (sampled_at). */
static void add_row_processors(proa_engine *e, const proa_inflight_step *f, const proa_seq *seq, int64_t position)
{
    const proa_engine_request *req = seq->req;
    proa_logits_row *row = &e->async.row_processors[f->count];
    *row = (proa_logits_row){.scale = 1};
    e->async.last_sampled_at[f->count] = -1;
    if (!req->logits) return;
    int64_t in_flight = seq->sampled_at >= 0;
    const proa_history history = proa_request_history(req, seq->ids, position - req->prompt_count - in_flight);
    row->first = (int32_t)e->async.entries_count;
    e->async.last_sampled_at[f->count] = seq->sampled_at;
    proa_logits_processor_entries(req->logits, &history, seq->sampled_at >= 0, row,
                                  e->async.entries + e->async.entries_count);
    int32_t entries = row->bias_count + row->seen_count + row->mask_count;
    e->async.entries_count += entries;
    if (entries || row->scale != 1 || row->only || row->last) e->async.any_processed = true;
}

/* Where the next sampled row goes for the caller. Scores of a sequence that is drawn are what its filters leave. */
static void add_row_targets(proa_engine *e, const proa_inflight_step *f, const proa_seq *seq, int64_t position)
{
    const proa_engine_request *req = seq->req;
    int64_t step = position - req->prompt_count;
    e->async.raw_to[f->count] = proa_request_row(e, req, req->rows.logits, step, seq->index);
    float *scores = proa_request_row(e, req, req->rows.scores, step, seq->index);
    bool drawn = req->sample_params.temperature > 0;
    e->async.sample_params[f->count].kept = drawn ? scores : NULL;
    e->async.scores_to[f->count] = drawn ? NULL : scores;
    e->async.any_rows = e->async.any_rows || req->rows.logits || req->rows.scores;
}

/* The sequence's token at this position is sampled from the row of a. Without draft tokens it is the next one,
 * which the device knows from now on. */
static void add_pending_token(proa_engine *e, proa_inflight_step *f, proa_seq *seq, int64_t position,
                              const proa_logits_request *a)
{
    const proa_engine_request *req = seq->req;
    proa_sample_params *sample_params = &e->async.sample_params[f->count];
    *sample_params = req->sample_params;
    if (sample_params->temperature > 0) {
        sample_params->uniform = proa_sampler_uniform(seq->seed, position);
        e->async.any_random = true;
    }
    int64_t top = proa_min64(req->options.top_logprobs, e->model->plan.width[PROA_REG_OUT]);
    f->logits = f->logits || wants_logprobs(req);
    f->top = (int32_t)proa_max64(f->top, top);
    add_row_processors(e, f, seq, position);
    add_row_targets(e, f, seq, position);
    add_row_mask(e, f, seq, position);
    if (seq->drafts) seq->verifying = true;
    else seq->sampled_at = (int32_t)f->count, seq->sampled_ticket = f->ticket, seq->known++;
    e->step.logits_rows[f->count] = a->row;
    f->pending_tokens[f->count++] = (proa_pending_token){seq, position, a->node};
}

/* Sampling may have waited for a step that ended the sequence: its row was surplus. */
static bool has_ended(const proa_seq *seq)
{
    return seq->finish != PROA_FINISH_NONE || seq->req->ending != PROA_FINISH_NONE;
}

/* All sequences of a request sample their first token from the last row of the prompt. */
static void add_pending_tokens(proa_engine *e, proa_inflight_step *f, const proa_logits_request *a)
{
    proa_engine_request *req = a->seq->req;
    int64_t position = (int64_t)a->position + 1;
    if (position > req->prompt_count) add_pending_token(e, f, a->seq, position, a);
    else
        for (int32_t i = 0; i < req->width; i++) add_pending_token(e, f, &req->seq[i], position, a);
}

/* Moves the requests for single tokens into the in-flight step. Beams, and rows for the host, stay in
 * step.logits_requests. */
static void take_token_requests(proa_engine *e, proa_inflight_step *f)
{
    int64_t others = 0;
    for (int64_t i = 0; i < e->step.logits_count; i++) {
        proa_logits_request a = e->step.logits_requests[i];
        if (!a.seq->req->samples_on_device || a.seq->req->search.beam) e->step.logits_requests[others++] = a;
        else if (!has_ended(a.seq)) add_pending_tokens(e, f, &a);
    }
    e->step.logits_count = others;
}

/* Appends a beam step. Its rows, candidates and tokens follow those of the step before in the device's lists. prompt:
 * its only row is the last one of the prompt. */
static void add_beam_step(proa_engine *e, proa_inflight_step *f, proa_engine_request *req, bool prompt,
                          const proa_beam_params *before)
{
    proa_beam_params *s = &f->search[f->searches];
    int64_t step = req->seq[0].length - req->prompt_count;
    proa_beam_search(req->search.beam, step + 1, s);
    e->async.search_to[f->searches] = (proa_beam_rows){
        .logits = proa_request_row(e, req, req->rows.logits, step, 0),
        .logprobs = proa_request_row(e, req, req->rows.scores, step, 0)};
    e->async.any_rows = e->async.any_rows || req->rows.logits || req->rows.scores;
    s->rows = prompt ? 1 : s->beams;
    s->row = before ? before->row + before->rows : 0;
    s->at = before ? before->at + before->rows * before->each : 0;
    s->to = before ? before->to + before->beams : (int32_t)f->count;
    s->state = req->slot;
    f->search_owner[f->searches++] = req;
    for (int32_t i = 0; i < req->width; i++) {
        req->seq[i].sampled_at = s->to + i;
        req->seq[i].sampled_ticket = f->ticket;
        req->seq[i].known++;
    }
}

static void take_beam_requests(proa_engine *e, proa_inflight_step *f)
{
    int64_t others = 0, rows = f->count;
    for (int64_t i = 0; i < e->step.logits_count; i++) {
        proa_logits_request a = e->step.logits_requests[i];
        if (!a.seq->req->samples_on_device) {
            e->step.logits_requests[others++] = a;
            continue;
        }
        if (a.seq->req->ending != PROA_FINISH_NONE) continue;
        if (a.seq->index == 0)
            add_beam_step(e, f, a.seq->req, a.position < a.seq->req->prompt_count,
                          f->searches ? &f->search[f->searches - 1] : NULL);
        e->step.logits_rows[rows++] = a.row;
    }
    e->step.logits_count = others;
}

/* Whether a mask of some row depends on a token that only the device knows. */
static bool must_wait(const proa_engine *e)
{
    for (int64_t i = 0; i < e->step.logits_count; i++) {
        const proa_seq *seq = e->step.logits_requests[i].seq;
        if (seq->sampled_at >= 0 && seq->req->samples_on_device &&
            proa_logits_processor_has_mask(seq->req->logits))
            return true;
    }
    return false;
}

static void begin_step(proa_engine *e, proa_inflight_step *f)
{
    f->count = f->searches = 0;
    f->logits = false, f->top = 0;
    f->rows = e->step.logits_count == e->step.rows ? e->step.rows : 0;
    f->submitted_ns = e->async.pass_ns;
    f->shape = e->step.shape;
    f->timed = !e->async.untimed;
    e->async.any_random = e->async.any_processed = e->async.any_rows = false;
    e->async.entries_count = e->async.masks_count = 0;
}

static proa_sample_request make_request(const proa_engine *e, const proa_inflight_step *f)
{
    const proa_async_steps *a = &e->async;
    proa_sample_request request = {
        .rows = e->step.logits_rows, .count = f->count, .search = f->search, .searches = f->searches};
    request.logits = f->logits, request.top = f->top;
    if (a->any_random) request.sample_params = a->sample_params;
    if (a->any_processed)
        request.row_processors = a->row_processors, request.entries = a->entries,
        request.last_sampled_at = a->last_sampled_at;
    request.entries_count = a->entries_count;
    if (a->masks_count) request.masks = a->masks, request.mask_of = a->mask_of;
    request.masks_count = a->masks_count;
    request.deferred = a->mode == PROA_SAMPLE_STAGES;
    if (a->any_rows)
        request.raw_to = a->raw_to, request.processed_to = a->scores_to, request.search_to = a->search_to;
    return request;
}

void proa_async_step_submit(proa_engine *e)
{
    if (!e->async.waits) e->async.pass_ns = proa_clock_ns();
    e->async.waits = !e->async.waits && must_wait(e);
    if (e->async.waits) return;
    proa_inflight_step *f = &e->async.step[e->async.count];
    begin_step(e, f);
    take_token_requests(e, f);
    take_beam_requests(e, f);
    e->async.untimed = !f->count && !f->searches;
    if (e->async.untimed) return;
    if (e->async.masks_count) proa_logits_jobs_run(e->pool, e->async.mask_jobs, e->async.masks_count);
    proa_sample_request request = make_request(e, f);
    e->model->hidden_wanted = false;
    proa_model_sample(e->model, &request, f->ticket);
    e->async.count++;
}

/* ---- completion ---- */

static float logprob_of(float logit, float sum)
{
    return (float)((double)logit - (double)sum);
}

/* The same result as proa_sampler_top. ids, logits: [top] of one row, likeliest first. */
static const proa_logprob *copy_top_logprobs(const proa_seq *seq, const int32_t *ids, const float *logits,
                                             int32_t top, float sum)
{
    int32_t n = seq->req->options.top_logprobs;
    proa_logprob *to = seq->req->top + (int64_t)seq->index * n;
    for (int32_t i = 0; i < n; i++)
        to[i] = i < top ? (proa_logprob){ids[i], logprob_of(logits[i], sum)} : (proa_logprob){-1, -INFINITY};
    return to;
}

/* Token i of the in-flight step. Sequences that ended meanwhile are skipped: their row was surplus. */
static void complete_token(proa_engine *e, const proa_inflight_step *f, const proa_sampled *sampled, int64_t i)
{
    proa_seq *seq = f->pending_tokens[i].seq;
    int64_t position = f->pending_tokens[i].position;
    float sum = sampled->sums[i];
    if (!seq || seq->req->ending == PROA_FINISH_ERROR || seq->finish != PROA_FINISH_NONE) return;
    if (seq->verifying && !proa_speculate_row_counts(seq, position, f->pending_tokens[i].node)) return;
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    proa_err why = {.status = PROA_OK};
    if (proa_sampler_check_sum(sum, vocab, position, &why) != PROA_OK) {
        proa_fail_sampling(seq, position, &why);
        return;
    }
    /* else the step after this one has sampled a newer token */
    if (seq->known == seq->req->prompt_count + seq->count + 1) seq->sampled_at = -1;
    if (seq->verifying) seq->known++;
    proa_speculate_sampled(e, seq, position, sampled->ids[i]);
    proa_draw draw = {.seq = seq, .position = position};
    proa_sample sample = {.id = sampled->ids[i]};
    if (wants_logprobs(seq->req)) sample.logprob = logprob_of(sampled->logits[i], sum);
    if (seq->req->options.top_logprobs)
        draw.top = copy_top_logprobs(seq, sampled->top_ids + i * f->top, sampled->top_logits + i * f->top,
                                     f->top, sum);
    proa_append_token(e, &draw, &sample);
}

static void copy_candidates(proa_engine_request *req, const proa_beam_params *s, const proa_beam_lists *l)
{
    int64_t n = (int64_t)s->rows * s->each;
    memcpy(req->search.ids, l->ids + s->at, (size_t)n * sizeof *l->ids);
    for (int64_t i = 0; i < n; i++)
        req->search.logprobs[i] = l->logits[s->at + i] - l->sums[s->row + i / s->each];
}

/* Whether the device made the same step. After a prompt all beams have the same parent, whatever it is called. */
static bool same_as_device(const proa_engine_request *req, const proa_beam_params *s, const proa_beam_lists *l)
{
    size_t bytes = (size_t)req->width * sizeof(int32_t);
    return memcmp(req->search.token, l->tokens + s->to, bytes) == 0 &&
           (req->search.depth == 0 || memcmp(req->search.parent, l->parents + s->to, bytes) == 0);
}

static void complete_beam_step(proa_engine *e, const proa_beam_params *s, proa_engine_request *req,
                               const proa_beam_lists *l)
{
    if (!req || req->ending != PROA_FINISH_NONE) return;
    /* the next step was submitted: the device has already reordered its page tables */
    bool next_submitted = req->seq[0].length > req->prompt_count + req->search.depth;
    for (int32_t i = 0; i < req->width && !next_submitted; i++) req->seq[i].sampled_at = -1;
    copy_candidates(req, s, l);
    if (!proa_advance_beams(e, req)) return;
    if (!same_as_device(req, s, l)) {
        req->ending = PROA_FINISH_ERROR;
        (void)PROA_FAIL(&req->error, INTERNAL, "device and host disagree about the beams of step %lld",
                        (long long)req->search.depth);
        return;
    }
    const proa_beam_tables beams = {.tables = &e->slots.self[req->slot],
                                    .spare = &e->slots.spare[req->slot],
                                    .count = req->width,
                                    .tokens = req->prompt_count + req->search.depth};
    if (req->search.depth++ > 0)
        proa_page_tables_reorder(&e->pages, &beams, req->search.parent, next_submitted);
}

/* Whether a step must be waited for. If none of its requests is left, its tokens are discarded unread; but when
 * the running list is empty, the step is waited for all the same, so that the device is idle before the engine is. */
static bool has_owner(const proa_engine *e, const proa_inflight_step *f)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->pending_tokens[i].seq) return true;
    for (int64_t i = 0; i < f->searches; i++)
        if (f->search_owner[i]) return true;
    return e->running.count == 0 || e->async.mode == PROA_SAMPLE_STAGES; /* its tokens must be received */
}

void proa_async_step_complete(proa_engine *e)
{
    proa_inflight_step f = e->async.step[0];
    int32_t last = e->async.most - 1;
    memmove(e->async.step, e->async.step + 1, (size_t)last * sizeof f);
    e->async.step[last] = f;
    e->async.count--;
    if (!has_owner(e, &f)) {
        e->async.untimed = true;
        return;
    }
    proa_sampled sampled = proa_model_wait_sampled(e->model, f.ticket);
    proa_device_failure_check(e, NULL);
    proa_wakeups_begin();
    for (int64_t i = 0; i < f.count; i++) complete_token(e, &f, &sampled, i);
    for (int64_t i = 0; i < f.count; i++)
        if (f.pending_tokens[i].seq) f.pending_tokens[i].seq->verifying = false;
    proa_wakeups_end();
    if (f.rows) proa_speculate_step_time(e, f.rows, f.submitted_ns);
    if (e->async.mode != PROA_SAMPLE_DEVICE)
        proa_pacing_pass_ended(e, f.timed ? &f.shape : NULL, f.submitted_ns);
    for (int64_t i = 0; i < f.searches; i++)
        complete_beam_step(e, &f.search[i], f.search_owner[i], &sampled.lists);
}
