/* SPDX-License-Identifier: Apache-2.0
 * flight.c - steps whose tokens are chosen where the model runs. Such a step is in flight from its launch until the host
 * has its tokens (it lands), and the next step's rows take their ids on the device, so that it can be launched before.
 * What needs a token of the host's choice (penalties, bans, beams, log-probabilities) is answer.c's, step by step. */
#include "engine/job.h"

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

void proa_flight_prepare(proa_job *job)
{
    const proa_options *o = &job->options;
    bool told = o->logprobs || o->top_logprobs || o->prompt_logprobs || o->return_logits || o->return_hidden;
    bool plain = job->task == PROA_TASK_GENERATE && job->seq && !job->candidates && !job->logits && !told;
    job->chosen_there = plain && o->best_of <= o->n && proa_sampler_choice(&job->choice, o);
}

bool proa_flight_fits(const proa_engine *e)
{
    for (const proa_job *job = e->running.first; job; job = job->next)
        if (!job->chosen_there) return false;
    return true;
}

/* ---- launching ---- */

static void add_due(proa_engine *e, proa_flight *f, proa_job *job, int32_t sequence, int32_t row)
{
    proa_choice *choice = &e->choices[f->count];
    *choice = job->choice;
    if (choice->temperature > 0) {
        choice->uniform = proa_sampler_uniform(proa_seed_of(job->options.seed, sequence), job->length);
        e->any_drawn = true;
    }
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

void proa_flight_launch(proa_engine *e)
{
    proa_flight *f = &e->flight[e->flights];
    int64_t others = 0;
    f->count = 0;
    e->any_drawn = false;
    for (int64_t i = 0; i < e->ask_count; i++) {
        proa_ask a = e->asks[i];
        if (!a.job->chosen_there) e->asks[others++] = a;
        else if (a.job->phase == PROA_PHASE_PROMPT) add_prompt_dues(e, f, a.job, a.row);
        else add_due(e, f, a.job, a.index, a.row);
    }
    e->ask_count = others;
    if (!f->count) return;
    e->model->hidden_wanted = false;
    proa_model_choose(e->model, e->ask_rows, f->count, e->any_drawn ? e->choices : NULL, f->ticket);
    e->flights++;
}

/* ---- landing ---- */

static void fail(proa_job *job, float sum)
{
    job->ending = PROA_FINISH_ERROR;
    (void)PROA_FAIL(&job->error, INTERNAL, "logits are not numbers: their log-sum-exp is %g", (double)sum);
}

static void land_one(proa_engine *e, const proa_due *due, int32_t id, float sum)
{
    proa_job *job = due->job;
    proa_seq *seq = job ? &job->seq[due->sequence] : NULL;
    if (!job || job->ending == PROA_FINISH_ERROR || seq->finish != PROA_FINISH_NONE) return;
    if (!isfinite(sum)) {
        fail(job, sum);
        return;
    }
    if (!e->flights) seq->from = -1; /* or it is in the next flight, or this is its last */
    proa_draw draw = {.job = job, .sequence = due->sequence};
    proa_sample sample = {.id = id};
    proa_answer_token(e, &draw, &sample);
}

/* Of a flight that nobody waits for the tokens are not asked, unless there is nothing else to do: then the device rests
 * before the engine does. */
static bool awaited(const proa_engine *e, const proa_flight *f)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->due[i].job) return true;
    return e->running.count == 0;
}

void proa_flight_land(proa_engine *e)
{
    proa_flight f = e->flight[0];
    const int32_t *ids;
    const float *sums;
    e->flight[0] = e->flight[1];
    e->flight[1] = f;
    e->flights--;
    if (!awaited(e, &f)) return;
    proa_model_chosen(e->model, f.ticket, f.count, &ids, &sums);
    for (int64_t i = 0; i < f.count; i++) land_one(e, &f.due[i], ids[i], sums[i]);
}

void proa_flight_forget(proa_engine *e, const proa_job *job)
{
    for (int32_t n = 0; n < e->flights; n++)
        for (int64_t i = 0; i < e->flight[n].count; i++)
            if (e->flight[n].due[i].job == job) e->flight[n].due[i].job = NULL;
}
