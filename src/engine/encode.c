/* SPDX-License-Identifier: Apache-2.0
 * encode.c - passes of the encoder: who is in one, and what they get of it. Of a model that is an encoder alone the next pass
 * can be launched before the answers of the one before are here, as flight.c does with tokens: while these travel and are
 * given to those who asked, the device works. It is, when many rows wait: few would rather have company, since a pass of few
 * rows takes as long as one of some more. */
#include "engine/job.h"

#include "base/checked.h"

enum { AHEAD_ROWS_MIN = 4096 };

bool proa_encode_has(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_DECODER;
}

/* What the encoder gives is all that it asks for. */
static bool ends_here(const proa_engine *e, const proa_job *job)
{
    return e->model->arch->kind == PROA_KIND_ENCODER || job->task == PROA_TASK_ENCODE;
}

/* ---- launching ---- */

static void add_input(proa_engine *e, proa_encoding *pass, proa_job *job)
{
    proa_table *table = &e->cross[job->slot];
    bool alone = e->model->arch->kind == PROA_KIND_ENCODER, hidden = job->task == PROA_TASK_ENCODE;
    pass->input[pass->count++] = (proa_input){job, e->rows};
    pass->asked = pass->asked || (alone && !hidden);
    pass->held = pass->held || hidden || !proa_model_harvests(e->model);
    job->phase = PROA_PHASE_ENCODED;
    proa_step_take_pages(e, table, 0, job->input_count);
    proa_step_add_span(e, table, job->input_count, job->input_count, table, 0);
    if (job->embedded) e->given[e->given_count++] = (proa_given){e->rows, job->input_count, job->embedded};
    for (int64_t i = 0; i < job->input_count; i++) proa_step_add_row(e, job->input[i], i);
}

static void take_inputs(proa_engine *e, proa_encoding *pass)
{
    pass->count = 0;
    pass->asked = pass->held = false;
    proa_step_clear(e);
    for (proa_job *job = e->running.first; job; job = job->next) {
        if (job->phase != PROA_PHASE_ENCODE) continue;
        if (e->rows + job->input_count > e->model->plan.rows_max) break;
        add_input(e, pass, job);
    }
    pass->asked = pass->asked && proa_model_harvests(e->model);
}

static void ask_harvest(proa_engine *e, const proa_encoding *pass)
{
    for (int64_t i = 0; i < pass->count; i++) e->ask_rows[i] = (int32_t)pass->input[i].row;
    proa_model_harvest(e->model, e->ask_rows, pass->count, e->rows, e->ahead == PROA_AHEAD_FLIES);
}

static void launch(proa_engine *e)
{
    proa_encoding *pass = &e->encoding[e->encodings];
    take_inputs(e, pass);
    if (!pass->count) return;
    proa_batch batch = proa_step_batch(e);
    batch.given = e->given;
    batch.given_count = e->given_count;
    e->model->harvest_ticket = pass->asked ? pass->ticket : -1;
    proa_model_encode(e->model, e->kv, &batch);
    if (pass->asked) ask_harvest(e, pass);
    e->encodings++;
    e->now.steps++;
    e->now.rows += (uint64_t)e->rows;
    e->now.prompt_tokens += (uint64_t)e->rows;
}

/* ---- landing ---- */

static void deliver_by_head(proa_engine *e, proa_job *job, int64_t row)
{
    int32_t rows[PROA_HEAD_ROWS];
    for (int64_t first = 0; first < job->input_count; first += PROA_HEAD_ROWS) {
        int64_t count = proa_min64(job->input_count - first, PROA_HEAD_ROWS);
        for (int64_t i = 0; i < count; i++) rows[i] = (int32_t)(row + first + i);
        const float *out = proa_view_f32(proa_model_head(e->model, rows, count));
        proa_step_ask_device(e, job);
        if (job->ending == PROA_FINISH_ERROR) return;
        proa_deliver_rows(job, out, NULL, first, count, e->model->plan.width[PROA_REG_OUT]);
    }
}

/* What the head gives of an input, the pass's at `index`, whose rows begin at `row`. */
static void deliver_encoded(proa_engine *e, proa_job *job, const proa_harvest *h, int64_t index, int64_t row)
{
    int64_t columns = e->model->plan.width[PROA_REG_OUT], n = h->first ? 1 : job->input_count;
    if (h->first) proa_deliver_rows(job, h->first + index * columns, NULL, 0, 1, columns);
    else if (h->rows) proa_deliver_rows(job, h->rows + row * columns, NULL, 0, n, columns);
    else deliver_by_head(e, job, row);
    if (h->pooled && job->ending != PROA_FINISH_ERROR)
        proa_deliver_rows(job, NULL, h->pooled + index * columns, n, 0, columns);
}

/* The encoder's last states. */
static void deliver_hidden(proa_engine *e, proa_job *job, int64_t row)
{
    proa_model_encoded(e->model, job->encoded, row, job->input_count);
    proa_step_ask_device(e, job);
    if (job->ending == PROA_FINISH_ERROR) return;
    proa_deliver_rows(job, job->encoded, NULL, 0, job->input_count, e->model->config.hidden);
}

static void answer(proa_engine *e, proa_job *job, const proa_harvest *h, int64_t index, int64_t row)
{
    job->phase = ends_here(e, job) ? PROA_PHASE_ENCODE : PROA_PHASE_PROMPT;
    if (job->phase == PROA_PHASE_PROMPT) return;
    if (job->ending != PROA_FINISH_ERROR && job->task == PROA_TASK_ENCODE) deliver_hidden(e, job, row);
    else if (job->ending != PROA_FINISH_ERROR) deliver_encoded(e, job, h, index, row);
    if (job->ending == PROA_FINISH_NONE) job->ending = PROA_FINISH_END;
}

static void land(proa_engine *e)
{
    proa_encoding pass = e->encoding[0];
    proa_harvest h = {NULL, NULL, NULL};
    e->encoding[0] = e->encoding[1];
    e->encoding[1] = pass;
    e->encodings--;
    if (pass.asked) h = proa_model_harvested(e->model, pass.ticket);
    proa_step_ask_device(e, NULL);
    for (int64_t i = 0; i < pass.count; i++)
        if (pass.input[i].job) answer(e, pass.input[i].job, &h, i, pass.input[i].row);
    proa_step_leave(e);
}

void proa_encode_forget(proa_engine *e, const proa_job *job)
{
    if (job->phase != PROA_PHASE_ENCODED) return;
    for (int32_t n = 0; n < e->encodings; n++)
        for (int64_t i = 0; i < e->encoding[n].count; i++)
            if (e->encoding[n].input[i].job == job) e->encoding[n].input[i].job = NULL;
}

/* ---- both ---- */

static int64_t waiting_rows(const proa_engine *e)
{
    int64_t rows = 0;
    for (const proa_job *job = e->running.first; job; job = job->next)
        if (job->phase == PROA_PHASE_ENCODE) rows += job->input_count;
    return rows;
}

static bool may_fly(const proa_engine *e)
{
    int64_t enough = proa_min64(AHEAD_ROWS_MIN, e->model->plan.rows_max / 2);
    bool harvests = e->model->arch->kind == PROA_KIND_ENCODER && !e->encoding[0].held;
    return e->ahead == PROA_AHEAD_FLIES && harvests && waiting_rows(e) >= enough;
}

void proa_encode_step(proa_engine *e)
{
    if (!e->encodings) launch(e);
    if (e->encodings == 1 && may_fly(e)) launch(e);
    if (e->encodings) land(e);
    while (e->encodings && !e->running.count)
        land(e); /* nobody waits for it: the device rests before the engine does */
}
