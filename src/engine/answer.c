/* SPDX-License-Identifier: Apache-2.0
 * answer.c - what becomes of a step's logits: tokens drawn for sequences, candidates for beams and contrastive search,
 * rows and log-probabilities for those who asked for them. */
#include "engine/job.h"

#include "base/checked.h"
#include "base/clock.h"
#include <math.h>
#include <string.h>

static proa_history history_of(const proa_job *job, const int32_t *generated, int64_t count)
{
    return (proa_history){job->prompt, job->prompt_count, generated, count};
}

/* ---- one sequence or several ---- */

static void end_sequence(proa_engine *e, proa_job *job, int32_t i)
{
    proa_table_release(&e->pages, &e->self[job->slot + i]);
    if (--job->running == 0 && job->ending == PROA_FINISH_NONE) job->ending = job->seq[0].finish;
}

void proa_answer_token(proa_engine *e, const proa_draw *draw, const proa_sample *sample)
{
    proa_seq *seq = &draw->job->seq[draw->sequence];
    e->now.new_tokens++;
    seq->token = sample->id;
    proa_deliver_token(draw, sample);
    if (seq->finish != PROA_FINISH_NONE) end_sequence(e, draw->job, draw->sequence);
}

/* Tells what was drawn, in order. */
static void tell_draws(proa_engine *e, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        proa_draw *d = &e->draws[i];
        proa_job *job = d->job;
        if (job->ending == PROA_FINISH_ERROR) continue;
        if (e->draw_rows[i].status == PROA_OK) {
            proa_answer_token(e, d, &e->draw_rows[i].out);
            continue;
        }
        job->ending = PROA_FINISH_ERROR;
        job->error = d->err;
    }
}

/* Draws what was collected, over all threads, then tells it. */
static void draw_all(proa_engine *e)
{
    int64_t n = e->draw_count, vocab = e->model->plan.width[PROA_REG_OUT];
    e->draw_count = 0;
    proa_sampler_choose_rows(e->pool, e->samplers, e->draw_rows, n, vocab);
    tell_draws(e, n);
}

/* Sequence i's next token is to be drawn from this row. Log-probabilities are of the row as the model made it. */
static void add_draw(proa_engine *e, proa_job *job, int32_t i, const float *raw, const float *hidden)
{
    if (e->draw_count == PROA_HEAD_ROWS) draw_all(e);
    proa_draw *d = &e->draws[e->draw_count];
    proa_sampler_row *row = &e->draw_rows[e->draw_count];
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    *d = (proa_draw){.job = job, .sequence = i, .raw = raw, .hidden = hidden, .options = job->options};
    d->options.seed = proa_seed_of(job->options.seed, i);
    d->options.logprobs = job->options.logprobs || job->options.best_of > job->options.n;
    *row = (proa_sampler_row){
        .logits = raw, .raw = raw, .position = job->length, .options = &d->options, .err = &d->err};
    row->history = history_of(job, job->seq[i].ids, job->seq[i].count);
    if (job->options.top_logprobs) row->top = job->top + (int64_t)i * job->options.top_logprobs;
    if (job->logits) {
        float *changed = e->changed + e->draw_count * vocab;
        memcpy(changed, raw, (size_t)vocab * sizeof *raw);
        proa_logits_apply(job->logits, changed, &row->history);
        row->logits = changed;
    }
    e->draw_count++;
}

void proa_answer_share(proa_engine *e, proa_job *job)
{
    for (int32_t i = 1; i < job->width; i++)
        proa_table_share(&e->pages, &e->self[job->slot + i], &e->self[job->slot], job->length);
}

/* All sequences draw from the prompt's last row. */
static void fork_sequences(proa_engine *e, proa_job *job, const float *logits, const float *hidden)
{
    proa_answer_share(e, job);
    for (int32_t i = 0; i < job->width; i++) add_draw(e, job, i, logits, hidden);
}

/* ---- beams ---- */

static void apply_steps(proa_job *job, proa_view logits, int64_t first_beam, const float *lse)
{
    for (int64_t i = 0; i < logits.shape[0]; i++) {
        float *row = proa_view_f32(logits) + i * logits.stride[0];
        const int32_t *path = job->path + (first_beam + i) * (job->new_max + 1);
        proa_history history = history_of(job, path, job->depth);
        for (int64_t v = 0; v < logits.shape[1] && lse; v++) row[v] -= lse[i];
        proa_logits_apply(job->logits, row, &history);
    }
}

/* Rows of one beam job within the chunk: the best M tokens of each, as log-probabilities. transformers applies its
 * processors to log-probabilities and does not normalise again; the others apply theirs to logits. */
static void take_candidates(proa_engine *e, proa_job *job, proa_view logits, int64_t first_beam)
{
    proa_ctx *c = &e->model->host;
    int64_t n = logits.shape[0], M = job->candidates;
    bool hf = job->options.style == PROA_STYLE_HF, steps = job->logits != NULL;
    float *values = job->beam_values + first_beam * M;
    if (hf || !steps) c->ops->log_sum_exp(c, e->lse, logits);
    if (steps) apply_steps(job, logits, first_beam, hf ? e->lse : NULL);
    if (!hf && steps) c->ops->log_sum_exp(c, e->lse, logits);
    c->ops->top_k(c, proa_view_2d(values, PROA_DTYPE_F32, n, M), job->beam_ids + first_beam * M, logits, M);
    if (hf && steps) return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < M; j++) values[i * M + j] -= e->lse[i];
}

/* The tokens before each row, for those steps that look back. */
static void reorder_paths(proa_job *job)
{
    int64_t stride = job->new_max + 1, depth = job->depth++;
    if (!job->path) return;
    for (int32_t i = 0; i < job->width; i++) {
        int32_t *to = job->path_other + i * stride;
        memcpy(to, job->path + job->beam_parent[i] * stride, (size_t)depth * sizeof *to);
        to[depth] = job->beam_token[i];
    }
    int32_t *swap = job->path;
    job->path = job->path_other;
    job->path_other = swap;
}

/* Page tables follow their beams: shared first, then given up by the old ones; a page that two beams go on writing
 * is copied when the next step's rows are added. */
static void reorder_tables(proa_engine *e, proa_job *job)
{
    proa_table *self = &e->self[job->slot], *spare = &e->spare[job->slot];
    for (int32_t i = 0; i < job->width; i++)
        proa_table_share(&e->pages, &spare[i], &self[job->beam_parent[i]], job->length);
    for (int32_t i = 0; i < job->width; i++) {
        proa_table_release(&e->pages, &self[i]);
        proa_table swap = self[i];
        self[i] = spare[i];
        spare[i] = swap;
    }
}

bool proa_answer_beams(proa_engine *e, proa_job *job)
{
    bool more = false;
    job->new_tokens += job->width;
    e->now.new_tokens += (uint64_t)job->width;
    if (!job->first_ns) job->first_ns = proa_clock_ns();
    proa_status status = proa_beam_advance(job->beam, &more, job->beam_parent, job->beam_token, job->beam_ids,
                                           job->beam_values, &job->error);
    bool full = job->new_tokens >= job->new_max * job->width;
    /* all first tokens come after the prompt, whose pages only row 0 holds: groups name their own first beam */
    if (job->depth == 0) memset(job->beam_parent, 0, (size_t)job->width * sizeof *job->beam_parent);
    if (status != PROA_OK) job->ending = PROA_FINISH_ERROR;
    else if (!more) job->ending = full ? PROA_FINISH_LENGTH : PROA_FINISH_END;
    return job->ending == PROA_FINISH_NONE;
}

static void advance_beams(proa_engine *e, proa_job *job)
{
    if (proa_answer_beams(e, job)) reorder_paths(job), reorder_tables(e, job);
}

/* ---- contrastive search ---- */

/* The next candidates are the likeliest after row `from`: they continue it, all on its pages. */
static void run_candidates(proa_engine *e, proa_job *job, int32_t from)
{
    const int32_t *ids = job->beam_ids + from * job->candidates;
    const float *logprobs = job->beam_values + from * job->candidates;
    for (int32_t i = 0; i < job->width; i++) {
        job->beam_parent[i] = from;
        job->beam_token[i] = ids[i];
        job->probs[i] = expf(logprobs[i]);
    }
    reorder_paths(job);
    reorder_tables(e, job);
}

/* All candidates have run: one of them is the token. */
static void choose_candidate(proa_engine *e, proa_job *job)
{
    int32_t best = 0;
    if (proa_contrastive_choose(job->contrast, &best, job->probs, job->hidden, &job->error) != PROA_OK) {
        job->ending = PROA_FINISH_ERROR;
        return;
    }
    proa_draw draw = {.job = job};
    proa_sample sample = {job->beam_token[best], logf(job->probs[best])};
    e->now.new_tokens++;
    proa_deliver_token(&draw, &sample);
    if (job->seq->finish != PROA_FINISH_NONE) end_sequence(e, job, 0);
    else run_candidates(e, job, best);
}

static void answer_candidates(proa_engine *e, proa_job *job, const proa_ask *a, int64_t n, proa_view logits)
{
    int64_t hidden = e->model->config.hidden;
    memcpy(job->hidden + a->index * hidden, proa_model_hidden(e->model, e->answered),
           (size_t)(n * hidden) * sizeof(float));
    take_candidates(e, job, logits, a->index);
    if (a[n - 1].index + 1 == job->width) choose_candidate(e, job);
}

static void start_contrast(proa_engine *e, proa_job *job, proa_view last_row)
{
    take_candidates(e, job, last_row, 0);
    run_candidates(e, job, 0);
}

/* ---- answers ---- */

/* Log-probabilities of the prompt's own tokens: row at position i tells of token i + 1. */
static void answer_prompt(proa_engine *e, proa_job *job, int64_t first, proa_view logits)
{
    int64_t known = proa_min64(logits.shape[0], job->prompt_count - 1 - first);
    const float *row = proa_view_f32(logits);
    for (int64_t i = 0; i < known; i++, row += logits.stride[0]) {
        e->prompt_logprobs[i] = proa_sampler_logprob(row, logits.shape[1], job->prompt[first + i + 1]);
        int32_t n = job->options.top_logprobs;
        if (n) proa_sampler_top(job->top + i * n, n, row, logits.shape[1]);
    }
    proa_deliver_prompt(job, e->prompt_logprobs, first + 1, known);
}

static void answer_rows(proa_job *job, int64_t first, proa_view logits)
{
    proa_deliver_rows(job, proa_view_f32(logits), NULL, first, logits.shape[0], logits.shape[1]);
}

/* The rows of a prompt, of which the last may be the prompt's last. */
static void answer_prompt_rows(proa_engine *e, proa_job *job, int64_t first, proa_view logits)
{
    int64_t n = logits.shape[0];
    bool last = first + n == job->prompt_count;
    const float *hidden = proa_model_hidden(e->model, e->answered + n - 1);
    proa_view row = proa_view_rows(logits, n - 1, n);
    if (job->task == PROA_TASK_ROWS) answer_rows(job, first, logits);
    else if (job->task == PROA_TASK_SCORE || job->options.prompt_logprobs)
        answer_prompt(e, job, first, logits);
    if (job->contrast && proa_contrastive_add(job->contrast, proa_model_hidden(e->model, e->answered), n,
                                              &job->error) != PROA_OK)
        job->ending = PROA_FINISH_ERROR;
    if (!last || job->ending == PROA_FINISH_ERROR) return;
    if (job->task != PROA_TASK_GENERATE) job->ending = PROA_FINISH_END;
    else if (job->contrast) start_contrast(e, job, row);
    else if (job->beam) take_candidates(e, job, row, 0), advance_beams(e, job);
    else fork_sequences(e, job, proa_view_f32(row), hidden);
}

/* Answers the asks [at, at + n) of one job, whose logits are these rows; they begin at row e->answered of the head. */
static void answer_job(proa_engine *e, const proa_ask *a, int64_t n, proa_view logits)
{
    proa_job *job = a->job;
    if (job->ending == PROA_FINISH_ERROR) return;
    if (job->phase == PROA_PHASE_PROMPT) {
        answer_prompt_rows(e, job, a->index, logits);
    } else if (job->contrast) {
        answer_candidates(e, job, a, n, logits);
    } else if (job->beam) {
        take_candidates(e, job, logits, a->index);
        if (a[n - 1].index + 1 == job->width) advance_beams(e, job);
    } else {
        for (int64_t i = 0; i < n; i++)
            add_draw(e, job, a[i].index, proa_view_f32(logits) + i * logits.stride[0],
                     proa_model_hidden(e->model, e->answered + i));
    }
}

/* ---- the asks of a step ---- */

/* Beams want no more of a row than its best candidates, unless options change it: these are found where the model runs. */
static bool wants_top_only(const proa_engine *e, const proa_ask *a)
{
    const proa_job *job = a->job;
    return e->ahead != PROA_AHEAD_NONE && job->beam && !job->logits && !job->options.prompt_logprobs &&
           job->candidates <= PROA_TOP_MAX;
}

/* How many asks from here on are of that kind and want as many, at most n. */
static int64_t count_top_only(const proa_engine *e, const proa_ask *a, int64_t n)
{
    int64_t count = 0;
    while (count < n && wants_top_only(e, &a[count]) && a[count].job->candidates == a[0].job->candidates)
        count++;
    return count;
}

/* Rows [at, at + n) of what was found are the candidates of these asks of one job. */
static void put_candidates(proa_engine *e, const proa_ask *a, int64_t n, int64_t at)
{
    proa_job *job = a->job;
    int64_t M = job->candidates, first = job->phase == PROA_PHASE_PROMPT ? 0 : a->index;
    bool last = job->phase == PROA_PHASE_PROMPT || a[n - 1].index + 1 == job->width;
    if (job->ending == PROA_FINISH_ERROR) return;
    memcpy(job->beam_ids + first * M, e->top_ids + at * M, (size_t)(n * M) * sizeof *e->top_ids);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < M; j++)
            job->beam_values[(first + i) * M + j] = e->top_logits[(at + i) * M + j] - e->lse[at + i];
    if (last) advance_beams(e, job);
}

static void answer_top_only(proa_engine *e, const proa_ask *a, int64_t n)
{
    proa_model_top(e->model, e->ask_rows, n, a->job->candidates, e->top_ids, e->top_logits, e->lse);
    proa_step_ask_device(e, NULL);
    for (int64_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && a[k].job == a[i].job;) k++;
        put_candidates(e, &a[i], k - i, i);
    }
}

static void answer_rows_of_head(proa_engine *e, const proa_ask *a, int64_t n)
{
    proa_view logits = proa_model_head(e->model, e->ask_rows, n);
    proa_step_ask_device(e, NULL);
    for (int64_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && a[k].job == a[i].job;) k++;
        e->answered = i;
        answer_job(e, &a[i], k - i, proa_view_rows(logits, i, k));
    }
    draw_all(e); /* the next rows of the head overwrite these */
}

static bool wants_hidden(const proa_engine *e)
{
    for (int64_t i = 0; i < e->ask_count; i++)
        if (e->asks[i].job->options.return_hidden || e->asks[i].job->contrast) return true;
    return false;
}

void proa_answer_asks(proa_engine *e)
{
    e->model->hidden_wanted = wants_hidden(e);
    for (int64_t at = 0, n; at < e->ask_count; at += n) {
        const proa_ask *a = &e->asks[at];
        int64_t most = proa_min64(e->ask_count - at, PROA_HEAD_ROWS), top = count_top_only(e, a, most);
        for (n = top ? top : 1; !top && n < most && !wants_top_only(e, &a[n]);) n++;
        for (int64_t i = 0; i < n; i++) e->ask_rows[i] = a[i].row;
        if (top) answer_top_only(e, a, n);
        else answer_rows_of_head(e, a, n);
    }
}
