/* SPDX-License-Identifier: Apache-2.0
 * step.c - the scheduler: who is in the next step, with how many rows, and what becomes of the logits.
 *
 * A step: take what was submitted, end what was cancelled, admit in order of arrival whoever fits; run the encoder
 * over new inputs; run the decoder over one row for each sequence that decodes and, with what is left of the budget,
 * over chunks of prompts; sample. A request is admitted only if the pages that it may ever use are free or not
 * promised to others, so nothing that runs is ever evicted. */
#include "engine/job.h"

#include "base/checked.h"
#include "base/clock.h"
#include <math.h>
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

static bool has_encoder(const proa_engine *e)
{
    return e->model->arch->kind != PROA_KIND_DECODER;
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
    e->pages_reserved -= job->reserved;
}

static void end_job(proa_engine *e, proa_job *job, proa_finish finish, const proa_err *error)
{
    if (job->phase != PROA_PHASE_WAITING) proa_step_drop(e, job);
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
    for (proa_job *job; (job = proa_job_list_pop(&e->inbox));) proa_job_list_push(&e->waiting, job);
    pthread_mutex_unlock(&e->lock);
}

/* `width` neighbouring free slots, or -1. */
static int32_t find_slots(const proa_engine *e, int32_t width)
{
    int32_t run = 0;
    for (int32_t i = 0; i < e->sizes.sequences_max; i++) {
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
    e->pages_reserved += job->reserved;
    job->slot = slot;
    job->phase = has_encoder(e) ? PROA_PHASE_ENCODE : PROA_PHASE_PROMPT;
    job->admitted_ns = proa_clock_ns();
    return true;
}

/* In order of arrival: a large request is not overtaken for ever by small ones. */
static void admit(proa_engine *e)
{
    while (e->waiting.first && admit_one(e, e->waiting.first))
        proa_job_list_push(&e->running, proa_job_list_pop(&e->waiting));
}

/* ---- building a batch ---- */

static void clear_batch(proa_engine *e)
{
    e->rows = e->spans = e->ask_count = 0;
}

static int32_t table_at(const proa_engine *e, const proa_table *table)
{
    return (int32_t)(table->page - e->table_memory);
}

static void ask(proa_engine *e, proa_job *job, int64_t row, int64_t index)
{
    e->asks[e->ask_count++] = (proa_ask){job, (int32_t)row, (int32_t)index};
}

static void add_span(proa_engine *e, const proa_table *table, int64_t rows, int64_t context,
                     const proa_table *cross, int64_t cross_context)
{
    e->self_spans[e->spans] = (proa_span){(int32_t)e->rows, (int32_t)rows, (int32_t)context, table_at(e, table)};
    e->cross_spans[e->spans] = (proa_span){(int32_t)e->rows, (int32_t)rows, (int32_t)cross_context,
                                           table_at(e, cross)};
    e->spans++;
}

static void add_row(proa_engine *e, int32_t id, int64_t position)
{
    e->ids[e->rows] = id;
    e->positions[e->rows] = (int32_t)position;
    e->rows++;
}

static proa_batch batch_of(const proa_engine *e)
{
    proa_batch b = {.rows = e->rows, .ids = e->ids, .positions = e->positions};
    b.self = (proa_spans){e->self_spans, e->spans, e->table_memory};
    b.cross = (proa_spans){e->cross_spans, e->spans, e->table_memory};
    return b;
}

/* Makes room for the rows at [length, length + rows) of a sequence; admission promised the pages. */
static void take_pages(proa_engine *e, proa_table *table, int64_t length, int64_t rows)
{
    bool ok = proa_table_own(&e->pages, table, length) && proa_table_grow(&e->pages, table, length + rows);
    PROA_ASSERT(ok);
}

/* ---- the encoder ---- */

static void add_input(proa_engine *e, proa_job *job)
{
    proa_table *table = &e->cross[job->slot];
    take_pages(e, table, 0, job->input_count);
    add_span(e, table, job->input_count, job->input_count, table, 0);
    for (int64_t i = 0; i < job->input_count; i++) add_row(e, job->input[i], i);
}

/* Head rows of one encoder-only job whose input stands at rows [row, row + n) of the step. */
static void deliver_encoded(proa_engine *e, proa_job *job, int64_t row)
{
    proa_model *m = e->model;
    int32_t rows[PROA_HEAD_ROWS];
    int64_t n = m->arch->head_rows == PROA_ROWS_FIRST ? 1 : job->input_count;
    int64_t columns = m->plan.width[PROA_REG_OUT];
    for (int64_t first = 0; first < n; first += PROA_HEAD_ROWS) {
        int64_t count = proa_min64(n - first, PROA_HEAD_ROWS);
        for (int64_t i = 0; i < count; i++) rows[i] = (int32_t)(row + first + i);
        const float *out = proa_view_f32(proa_model_head(m, rows, count));
        proa_deliver_rows(job, out, NULL, first, count, columns);
    }
    if (!proa_model_has_pool(m)) return;
    rows[0] = (int32_t)row;
    proa_deliver_rows(job, NULL, proa_view_f32(proa_model_pool(m, rows, 1)), n, 0, columns);
}

/* Those of the encoded that ask for no decoder are done. */
static void after_encode(proa_engine *e)
{
    proa_job_list kept;
    int64_t row = 0;
    proa_job_list_init(&kept);
    for (proa_job *job; (job = proa_job_list_pop(&e->running));) {
        bool in_step = job->phase == PROA_PHASE_ENCODE && row < e->rows;
        if (in_step && !has_decoder(e)) {
            deliver_encoded(e, job, row);
            row += job->input_count;
            end_job(e, job, PROA_FINISH_END, NULL);
            continue;
        }
        if (in_step) row += job->input_count, job->phase = PROA_PHASE_PROMPT;
        proa_job_list_push(&kept, job);
    }
    e->running = kept;
}

static bool encode(proa_engine *e)
{
    clear_batch(e);
    for (proa_job *job = e->running.first; job; job = job->next) {
        if (job->phase != PROA_PHASE_ENCODE) continue;
        if (e->rows + job->input_count > e->model->plan.rows_max) break;
        add_input(e, job);
    }
    if (!e->rows) return false;
    proa_batch batch = batch_of(e);
    proa_model_encode(e->model, e->kv, &batch);
    e->now.steps++;
    e->now.rows += (uint64_t)e->rows;
    e->now.prompt_tokens += (uint64_t)e->rows;
    after_encode(e);
    return true;
}

/* ---- the decoder ---- */

static bool runs(const proa_job *job, int32_t i)
{
    return job->candidates || job->seq[i].finish == PROA_FINISH_NONE;
}

static void add_decoding(proa_engine *e, proa_job *job)
{
    for (int32_t i = 0; i < job->width; i++) {
        proa_table *table = &e->self[job->slot + i];
        if (!runs(job, i)) continue;
        take_pages(e, table, job->length, 1);
        add_span(e, table, 1, job->length + 1, &e->cross[job->slot], job->input_count);
        ask(e, job, e->rows, i);
        add_row(e, job->candidates ? job->beam_token[i] : job->seq[i].token, job->length);
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
    take_pages(e, table, begin, rows);
    add_span(e, table, rows, begin + rows, &e->cross[job->slot], job->input_count);
    for (int64_t i = begin; i < begin + rows; i++) {
        if (asks_all(job) || i + 1 == job->prompt_count) ask(e, job, e->rows, i);
        add_row(e, job->prompt[i], i);
    }
}

static void build_decode(proa_engine *e)
{
    clear_batch(e);
    for (proa_job *job = e->running.first; job; job = job->next)
        if (job->phase == PROA_PHASE_DECODE) add_decoding(e, job);
    for (proa_job *job = e->running.first; job && e->rows < e->sizes.step_tokens; job = job->next)
        if (job->phase == PROA_PHASE_PROMPT) add_prompt(e, job, e->sizes.step_tokens - e->rows);
}

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

/* Draws what was collected, over all threads, then tells it in order. */
static void draw_all(proa_engine *e)
{
    int64_t n = e->draw_count, vocab = e->model->plan.width[PROA_REG_OUT];
    e->draw_count = 0;
    proa_sampler_choose_rows(e->pool, e->samplers, e->draw_rows, n, vocab);
    for (int64_t i = 0; i < n; i++) {
        proa_draw *d = &e->draws[i];
        proa_job *job = d->job;
        if (job->ending == PROA_FINISH_ERROR) continue;
        if (e->draw_rows[i].status != PROA_OK) {
            job->ending = PROA_FINISH_ERROR;
            job->error = d->err;
            continue;
        }
        e->now.new_tokens++;
        job->seq[d->sequence].token = e->draw_rows[i].out.id;
        proa_deliver_token(d, &e->draw_rows[i].out);
        if (job->seq[d->sequence].finish != PROA_FINISH_NONE) end_sequence(e, job, d->sequence);
    }
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

/* After the prompt: all sequences draw from its last row, and share its pages. */
static void fork_sequences(proa_engine *e, proa_job *job, const float *logits, const float *hidden)
{
    for (int32_t i = 1; i < job->width; i++)
        proa_table_share(&e->pages, &e->self[job->slot + i], &e->self[job->slot], job->length);
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
    proa_ctx *c = &e->model->ctx;
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

static void advance_beams(proa_engine *e, proa_job *job)
{
    bool more = false;
    job->new_tokens += job->width;
    e->now.new_tokens += (uint64_t)job->width;
    if (!job->first_ns) job->first_ns = proa_clock_ns();
    proa_status status = proa_beam_advance(job->beam, &more, job->beam_parent, job->beam_token, job->beam_ids,
                                           job->beam_values, &job->error);
    bool full = job->new_tokens >= job->new_max * job->width;
    if (status != PROA_OK) job->ending = PROA_FINISH_ERROR;
    else if (!more) job->ending = full ? PROA_FINISH_LENGTH : PROA_FINISH_END;
    else reorder_paths(job), reorder_tables(e, job);
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

static void answer(proa_engine *e)
{
    for (int64_t at = 0; at < e->ask_count;) {
        int64_t n = proa_min64(e->ask_count - at, PROA_HEAD_ROWS);
        for (int64_t i = 0; i < n; i++) e->ask_rows[i] = e->asks[at + i].row;
        proa_view logits = proa_model_head(e->model, e->ask_rows, n);
        for (int64_t i = 0, k; i < n; i = k) {
            for (k = i + 1; k < n && e->asks[at + k].job == e->asks[at + i].job;) k++;
            e->answered = i;
            answer_job(e, &e->asks[at + i], k - i, proa_view_rows(logits, i, k));
        }
        draw_all(e); /* the next rows of the head overwrite these */
        at += n;
    }
}

/* Lengths and phases move on; what has ended leaves. Beams move their tables in advance_beams, which needs the length
 * after this step: so lengths move before the answers. */
static void move_on(proa_engine *e)
{
    for (int64_t s = 0; s < e->spans; s++) e->now.rows += (uint64_t)e->self_spans[s].rows;
    for (proa_job *job = e->running.first; job; job = job->next) {
        if (job->phase == PROA_PHASE_DECODE) job->length++;
        if (job->phase != PROA_PHASE_PROMPT) continue;
        int64_t held = 0;
        for (int64_t s = 0; s < e->spans && !held; s++)
            if (e->self_spans[s].table == table_at(e, &e->self[job->slot])) held = e->self_spans[s].rows;
        job->length += held;
        e->now.prompt_tokens += (uint64_t)held;
    }
}

static void leave(proa_engine *e)
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

static bool decode(proa_engine *e)
{
    build_decode(e);
    if (!e->rows) return false;
    proa_batch batch = batch_of(e);
    proa_model_decode(e->model, e->kv, &batch);
    e->now.steps++;
    move_on(e);
    answer(e);
    leave(e);
    return true;
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
    if (has_encoder(e)) encode(e);
    if (has_decoder(e)) decode(e);
    if (any) e->now.step_s += (double)(proa_clock_ns() - begin) * 1e-9;
    publish(e);
    return any;
}
