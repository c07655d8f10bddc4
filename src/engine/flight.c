/* SPDX-License-Identifier: Apache-2.0
 * flight.c - steps whose tokens are chosen where the model runs. Such a step is in flight from its launch until the host
 * has its tokens (it lands), and the next step's rows take their ids on the device, so that it can be launched before.
 * Penalties, biases and bans are made pairs of what the host knows by then (proa_logits_edits). What still needs the host's
 * choice (allowed words, typical-p, log-probabilities of edited rows) is answer.c's, step by step.
 *
 * Of beam searches, diverse groups among them, the device makes the step (search in ops.def) and moves the page tables
 * (follow). The host hears of the same candidates, makes the same step with all that belongs to it (what has ended, when it
 * is over), and moves its own tables after those of the device: by the same rule, so that both name the same pages. */
#include "engine/job.h"

#include "base/checked.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* For tests and for measuring. PROA_AHEAD=host: the host chooses all tokens; 0: a device does, and tokens land before the
 * next step is launched; 1: after, and the host's own model works so too. */
proa_ahead proa_flight_mode(const proa_device *d)
{
    const char *wanted = getenv("PROA_AHEAD");
    if (!wanted) return d->host ? PROA_AHEAD_NONE : PROA_AHEAD_FLIES;
    if (strcmp(wanted, "1") == 0) return PROA_AHEAD_FLIES;
    return d->host || strcmp(wanted, "host") == 0 ? PROA_AHEAD_NONE : PROA_AHEAD_LANDS;
}

static bool searches_there(const proa_job *job)
{
    proa_search step;
    if (job->logits || job->options.prompt_logprobs || job->candidates > PROA_TOP_MAX) return false;
    return proa_beam_search(job->beam, 1, &step) && job->width == step.beams;
}

/* Log-probabilities of what was chosen: to be told, or to tell the best of several by. */
static bool weighs(const proa_job *job)
{
    return job->options.logprobs || job->options.best_of > job->options.n;
}

/* Log-probabilities are those of rows as they were, which edits take away. */
static bool edits_there(proa_job *job)
{
    job->pairs = 0;
    if (!job->logits) return true;
    int64_t each = proa_logits_pairs(job->logits, job->prompt_count + job->new_max);
    job->pairs = each * job->width;
    return each >= 0 && job->pairs <= PROA_EDIT_PAIRS_MAX && !weighs(job) && !job->options.top_logprobs;
}

static bool draws_there(proa_job *job)
{
    const proa_options *o = &job->options;
    bool whole = o->prompt_logprobs || o->return_logits || o->return_hidden; /* rows, not what is best of them */
    bool plain = job->task == PROA_TASK_GENERATE && job->seq && !job->candidates && !whole;
    return plain && o->top_logprobs <= PROA_TOP_MAX && edits_there(job) && proa_sampler_choice(&job->choice, o);
}

void proa_flight_prepare(proa_job *job)
{
    job->from = -1;
    job->chosen_there = job->beam ? searches_there(job) : draws_there(job);
}

void proa_flight_reserve(proa_engine *e, proa_job *job)
{
    if (!job->chosen_there) return;
    if (e->pairs_reserved + job->pairs > PROA_EDIT_PAIRS_MAX) job->chosen_there = false;
    else e->pairs_reserved += job->pairs;
}

bool proa_flight_fits(const proa_engine *e)
{
    for (const proa_job *job = e->running.first; job; job = job->next)
        if (!job->chosen_there) return false;
    return true;
}

/* ---- launching ---- */

/* Behind a prompt every token is known; else the row's may be one of those chosen last. */
static void add_edits(proa_engine *e, const proa_flight *f, proa_job *job, int32_t sequence)
{
    const proa_seq *seq = &job->seq[sequence];
    proa_edits *row = &e->edits[f->count];
    *row = (proa_edits){.scale = 1};
    e->edit_last[f->count] = -1;
    if (!job->logits) return;
    const proa_history history = {job->prompt, job->prompt_count, seq->ids, seq->count};
    row->first = (int32_t)e->pairs_count;
    e->edit_last[f->count] = seq->from;
    proa_logits_edits(job->logits, &history, seq->from >= 0, row, e->pairs + e->pairs_count);
    e->pairs_count += row->biases + row->marks + row->bans;
    e->any_edits = true;
}

static void add_due(proa_engine *e, proa_flight *f, proa_job *job, int32_t sequence, int32_t row)
{
    proa_choice *choice = &e->choices[f->count];
    *choice = job->choice;
    if (choice->temperature > 0) {
        choice->uniform = proa_sampler_uniform(proa_seed_of(job->options.seed, sequence), job->length);
        e->any_drawn = true;
    }
    int64_t top = proa_min64(job->options.top_logprobs, e->model->plan.width[PROA_REG_OUT]);
    f->logits = f->logits || weighs(job);
    f->top = (int32_t)proa_max64(f->top, top);
    add_edits(e, f, job, sequence);
    job->seq[sequence].from = (int32_t)f->count;
    e->ask_rows[f->count] = row;
    f->due[f->count++] = (proa_due){job, sequence};
}

/* All sequences of a prompt draw from its last row. */
static void add_prompt_dues(proa_engine *e, proa_flight *f, proa_job *job, int32_t row)
{
    proa_answer_share(e, job);
    for (int32_t i = 0; i < job->width; i++) add_due(e, f, job, i, row);
    job->phase = PROA_PHASE_DECODE;
}

/* Draws first. What is not chosen there stays in e->asks, and so do beams. */
static void take_draws(proa_engine *e, proa_flight *f)
{
    int64_t others = 0;
    for (int64_t i = 0; i < e->ask_count; i++) {
        proa_ask a = e->asks[i];
        if (!a.job->chosen_there || a.job->beam) e->asks[others++] = a;
        else if (a.job->phase == PROA_PHASE_PROMPT) add_prompt_dues(e, f, a.job, a.row);
        else add_due(e, f, a.job, a.index, a.row);
    }
    e->ask_count = others;
}

/* What it gives lies behind what the search before gives. */
static void add_search(proa_engine *e, proa_flight *f, proa_job *job, const proa_search *before)
{
    proa_search *s = &f->search[f->searches];
    bool prompt = job->phase == PROA_PHASE_PROMPT;
    proa_beam_search(job->beam, job->length - job->prompt_count + 1, s);
    s->rows = prompt ? 1 : s->beams;
    s->row = before ? before->row + before->rows : 0;
    s->at = before ? before->at + before->rows * before->each : 0;
    s->to = before ? before->to + before->beams : (int32_t)f->count;
    s->state = job->slot;
    job->from = s->to;
    f->searcher[f->searches++] = job;
    if (!prompt) return;
    proa_answer_share(e, job);
    job->phase = PROA_PHASE_DECODE;
}

static void take_searches(proa_engine *e, proa_flight *f)
{
    int64_t others = 0, rows = f->count;
    for (int64_t i = 0; i < e->ask_count; i++) {
        proa_ask a = e->asks[i];
        if (!a.job->chosen_there) {
            e->asks[others++] = a;
            continue;
        }
        if (a.job->phase == PROA_PHASE_PROMPT || a.index == 0)
            add_search(e, f, a.job, f->searches ? &f->search[f->searches - 1] : NULL);
        e->ask_rows[rows++] = a.row;
    }
    e->ask_count = others;
}

void proa_flight_launch(proa_engine *e)
{
    proa_flight *f = &e->flight[e->flights];
    f->count = f->searches = 0;
    f->logits = false, f->top = 0;
    e->any_drawn = e->any_edits = false;
    e->pairs_count = 0;
    take_draws(e, f);
    take_searches(e, f);
    if (!f->count && !f->searches) return;
    proa_asked asked = {.rows = e->ask_rows, .count = f->count, .search = f->search, .searches = f->searches};
    asked.logits = f->logits, asked.top = f->top;
    if (e->any_drawn) asked.how = e->choices;
    if (e->any_edits) asked.edits = e->edits, asked.pairs = e->pairs, asked.last = e->edit_last;
    asked.pairs_count = e->pairs_count;
    e->model->hidden_wanted = false;
    proa_model_choose(e->model, &asked, f->ticket);
    e->flights++;
}

/* ---- landing ---- */

static void fail(proa_job *job, float sum)
{
    job->ending = PROA_FINISH_ERROR;
    (void)PROA_FAIL(&job->error, INTERNAL, "logits are not numbers: their log-sum-exp is %g", (double)sum);
}

static float logprob(float logit, float sum)
{
    return (float)((double)logit - (double)sum);
}

/* As proa_sampler_top does it. ids, logits: [top] of a row. */
static void take_top(const proa_job *job, int32_t sequence, const int32_t *ids, const float *logits,
                     int32_t top, float sum)
{
    int32_t n = job->options.top_logprobs;
    proa_logprob *to = job->top + (int64_t)sequence * n;
    for (int32_t i = 0; i < n; i++)
        to[i] = i < top ? (proa_logprob){ids[i], logprob(logits[i], sum)} : (proa_logprob){-1, -INFINITY};
}

/* The flight's i-th. */
static void land_one(proa_engine *e, const proa_flight *f, const proa_told *told, int64_t i)
{
    const proa_due *due = &f->due[i];
    float sum = told->sums[i];
    proa_job *job = due->job;
    proa_seq *seq = job ? &job->seq[due->sequence] : NULL;
    if (!job || job->ending == PROA_FINISH_ERROR || seq->finish != PROA_FINISH_NONE) return;
    if (!isfinite(sum)) {
        fail(job, sum);
        return;
    }
    if (!e->flights) seq->from = -1; /* or it is in the next flight, or this is its last */
    proa_draw draw = {.job = job, .sequence = due->sequence};
    proa_sample sample = {.id = told->ids[i]};
    if (weighs(job)) sample.logprob = logprob(told->logits[i], sum);
    if (job->options.top_logprobs)
        take_top(job, due->sequence, told->top_ids + i * f->top, told->top_logits + i * f->top, f->top, sum);
    proa_answer_token(e, &draw, &sample);
}

static void take_lists(proa_job *job, const proa_search *s, const proa_lists *l)
{
    int64_t n = (int64_t)s->rows * s->each;
    memcpy(job->beam_ids, l->ids + s->at, (size_t)n * sizeof *l->ids);
    for (int64_t i = 0; i < n; i++)
        job->beam_values[i] = l->logits[s->at + i] - l->sums[s->row + i / s->each];
}

/* The device has gone on with these; after a prompt all have the same parent. */
static bool same_step(const proa_job *job, const proa_search *s, const proa_lists *l)
{
    size_t bytes = (size_t)job->width * sizeof(int32_t);
    return memcmp(job->beam_token, l->tokens + s->to, bytes) == 0 &&
           (job->depth == 0 || memcmp(job->beam_parent, l->parents + s->to, bytes) == 0);
}

static void land_search(proa_engine *e, const proa_search *s, proa_job *job, const proa_lists *l)
{
    bool flies = e->flights > 0; /* the next step, whose pages the device has moved; or this is the last */
    if (!job || job->ending != PROA_FINISH_NONE) return;
    if (!flies) job->from = -1;
    take_lists(job, s, l);
    if (!proa_answer_beams(e, job)) return;
    if (!same_step(job, s, l)) {
        job->ending = PROA_FINISH_ERROR;
        (void)PROA_FAIL(&job->error, INTERNAL, "device and host disagree about the beams of step %lld",
                        (long long)job->depth);
        return;
    }
    int64_t tokens = job->prompt_count + job->depth;
    if (job->depth++ > 0)
        proa_tables_follow(&e->pages, &e->self[job->slot], &e->spare[job->slot], job->beam_parent, job->width,
                           tokens, flies);
}

/* Of a flight that nobody waits for the tokens are not asked, unless there is nothing else to do: then the device rests
 * before the engine does. */
static bool awaited(const proa_engine *e, const proa_flight *f)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->due[i].job) return true;
    for (int64_t i = 0; i < f->searches; i++)
        if (f->searcher[i]) return true;
    return e->running.count == 0;
}

void proa_flight_land(proa_engine *e)
{
    proa_flight f = e->flight[0];
    e->flight[0] = e->flight[1];
    e->flight[1] = f;
    e->flights--;
    if (!awaited(e, &f)) return;
    proa_told told = proa_model_chosen(e->model, f.ticket);
    proa_step_ask_device(e, NULL);
    for (int64_t i = 0; i < f.count; i++) land_one(e, &f, &told, i);
    for (int64_t i = 0; i < f.searches; i++) land_search(e, &f.search[i], f.searcher[i], &told.lists);
}

void proa_flight_forget(proa_engine *e, const proa_job *job)
{
    for (int32_t n = 0; n < e->flights; n++) {
        proa_flight *f = &e->flight[n];
        for (int64_t i = 0; i < f->count; i++)
            if (f->due[i].job == job) f->due[i].job = NULL;
        for (int64_t i = 0; i < f->searches; i++)
            if (f->searcher[i] == job) f->searcher[i] = NULL;
    }
}
