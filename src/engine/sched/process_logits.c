/* SPDX-License-Identifier: Apache-2.0
 * process_logits.c - what happens to a step's logits on the host: tokens are sampled for sequences, candidates are
 * taken for beam and contrastive search, rows and log-probabilities are emitted to requests that want them. */
#include "engine/sched/process_logits.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/wakeup.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include "engine/sched/device_failure.h"
#include "engine/sched/output.h"
#include "engine/sched/request_pages.h"
#include <math.h>
#include <string.h>

/* What the head read for row i of the request that is processed. */
static const float *fetched_hidden(const proa_engine *e, int64_t i)
{
    const float *copy = e->head.fetched.hidden_copy;
    int64_t row = e->head.first_row + i;
    return copy ? copy + row * proa_model_hidden_width(e->model) : proa_model_hidden(e->model, row);
}

/* ---- one sequence or several ---- */

static void end_sequence(proa_engine *e, proa_seq *seq)
{
    proa_engine_request *req = seq->req;
    proa_speculate_end(e, seq);
    proa_request_pages_release(e, seq);
    if (--req->running == 0 && req->ending == PROA_FINISH_NONE) req->ending = req->seq[0].finish;
}

void proa_append_token(proa_engine *e, const proa_draw *draw, const proa_sample *sample)
{
    const proa_seq *seq = draw->seq;
    e->now.new_tokens++;
    proa_request_row_put(e, seq->req, seq->req->rows.logits, seq->count, seq->index, draw->raw);
    proa_request_row_put(e, seq->req, seq->req->rows.scores, seq->count, seq->index, draw->scores);
    proa_emit_token(draw, sample);
    if (draw->seq->finish != PROA_FINISH_NONE) end_sequence(e, draw->seq);
}

void proa_fail_sampling(const proa_seq *seq, int64_t position, const proa_err *why)
{
    proa_engine_request *req = seq->req;
    const proa_history history = proa_request_history(req, seq->ids, position - req->prompt_count);
    proa_err *error = &req->error;
    req->ending = PROA_FINISH_ERROR;
    if (proa_logits_processor_check(req->logits, &history, error) == PROA_OK) *error = *why;
}

/* Appends the sampled tokens to their sequences, in order. */
static void append_draws(proa_engine *e, int64_t n)
{
    proa_wakeups_begin();
    for (int64_t i = 0; i < n; i++) {
        proa_draw *d = &e->head.draws[i];
        proa_engine_request *req = d->seq->req;
        if (req->ending == PROA_FINISH_ERROR || !proa_speculate_row_counts(d->seq, d->position, d->node))
            continue;
        if (e->head.draw_rows[i].status == PROA_OK) {
            d->seq->known++;
            proa_speculate_sampled(e, d->seq, d->position, e->head.draw_rows[i].out.id);
            proa_append_token(e, d, &e->head.draw_rows[i].out);
            continue;
        }
        proa_fail_sampling(d->seq, d->position, &d->err);
    }
    proa_wakeups_end();
}

void proa_sampler_rows_run(proa_engine *e, int64_t count, int64_t vocab)
{
    proa_head_buffers *h = &e->head;
    if (h->processing_count) proa_logits_jobs_run(e->pool, h->processing, h->processing_count);
    h->processing_count = 0;
    proa_sampler_choose_rows(e->pool, e->samplers, h->draw_rows, count, vocab);
}

/* Samples all collected rows, spread over the thread pool, then appends the tokens. */
static void sample_draws(proa_engine *e)
{
    int64_t n = e->head.draw_count;
    e->head.draw_count = 0;
    proa_sampler_rows_run(e, n, e->model->plan.width[PROA_REG_OUT]);
    append_draws(e, n);
}

void proa_sampler_row_make(proa_engine *e, int64_t i, proa_seq *seq, int64_t position, const float *raw,
                           float *processed)
{
    const proa_options *o = &seq->req->options;
    proa_sampler_row *row = &e->head.draw_rows[i];
    *row = (proa_sampler_row){.logits = raw, .raw = raw, .position = position, .options = o};
    row->seed = seq->seed;
    row->race = seq->req->race;
    row->logprobs = o->logprobs || o->best_of > o->n;
    row->history = proa_request_history(seq->req, seq->ids, position - seq->req->prompt_count);
    if (o->top_logprobs) row->top = e->head.top + i * PROA_TOP_LOGPROBS_MAX;
    if (seq->req->scores) row->scores = e->head.processed_logits + i * e->model->plan.width[PROA_REG_OUT];
    if (seq->req->logits) {
        e->head.processing[e->head.processing_count++] = (proa_logits_job){
            .processor = seq->req->logits, .history = row->history, .raw = raw, .row = processed};
        row->logits = processed;
    }
}

/* Whether the raw logits of a row are not needed: for log-probabilities, as an output, or for another sequence. */
static bool is_spare(const proa_engine_request *req, int64_t position)
{
    const proa_options *o = &req->options;
    bool reported = o->logprobs || o->top_logprobs || o->return_logits || o->best_of > o->n;
    return !reported && (position > req->prompt_count || req->width == 1);
}

/* Collects a row from which the sequence's token at this position is sampled, the next one or one after draft
 * tokens. Logits processors change the row itself if it is spare, else a copy. */
static void add_draw(proa_engine *e, proa_seq *seq, int64_t position, int32_t node, float *raw, const float *hidden)
{
    if (e->head.draw_count == PROA_HEAD_ROWS) sample_draws(e);
    int64_t i = e->head.draw_count;
    proa_draw *d = &e->head.draws[i];
    float *copy = e->head.processed_logits + i * e->model->plan.width[PROA_REG_OUT];
    *d = (proa_draw){.seq = seq, .position = position, .node = node, .raw = raw, .hidden = hidden};
    proa_sampler_row_make(e, i, seq, position, raw, is_spare(seq->req, position) ? raw : copy);
    d->top = e->head.draw_rows[i].top;
    d->scores = e->head.draw_rows[i].scores;
    e->head.draw_rows[e->head.draw_count++].err = &d->err;
}

/* ---- beams ---- */

/* Row i as log-probabilities. */
static void subtract_sum(proa_view logits, int64_t i, float log_sum_exp)
{
    float *row = proa_view_f32(logits) + i * logits.stride[0];
    for (int64_t v = 0; v < logits.shape[1]; v++) row[v] -= log_sum_exp;
}

static void apply_processors(proa_engine_request *req, proa_view logits, int64_t first_beam, const float *lse)
{
    for (int64_t i = 0; i < logits.shape[0]; i++) {
        float *row = proa_view_f32(logits) + i * logits.stride[0];
        const int32_t *path = req->search.path + (first_beam + i) * (req->new_max + 1);
        proa_history history = proa_request_history(req, path, req->search.depth);
        if (lse) subtract_sum(logits, i, lse[i]);
        proa_logits_processor_apply(req->logits, row, &history);
    }
}

/* The row of a beam to the caller's memory. The one row after the prompt is that of all beams. */
static void put_beam_row(proa_engine *e, const proa_engine_request *req, float *rows, int64_t beam,
                         const float *values)
{
    proa_request_row_put(e, req, rows, req->search.depth, (int32_t)beam, values);
    for (int32_t i = 1; i < req->width && req->search.depth == 0; i++)
        proa_request_row_put(e, req, rows, 0, i, values);
}

/* Rows as the beams' requests want them, before the processors changed them. */
static void emit_beam_logits(proa_engine *e, proa_engine_request *req, proa_view logits, int64_t first_beam)
{
    for (int64_t i = 0; i < logits.shape[0]; i++) {
        const float *row = proa_view_f32(logits) + i * logits.stride[0];
        put_beam_row(e, req, req->rows.logits, first_beam + i, row);
        if (req->emits_scores && req->emits_logits)
            proa_emit_scores(req, first_beam + i, row, NULL, logits.shape[1]);
    }
}

/* What the candidates are taken from, as log-probabilities. normed: the rows are that already; else lse are their
 * log-sum-exps. */
static void emit_beam_scores(proa_engine *e, proa_engine_request *req, proa_view logits, int64_t first_beam,
                             bool normed)
{
    const float *lse = e->head.lse;
    for (int64_t i = 0; i < logits.shape[0] && req->scores; i++) {
        const float *row = proa_view_f32(logits) + i * logits.stride[0];
        for (int64_t v = 0; v < logits.shape[1]; v++)
            req->search.scores_row[v] = normed ? row[v] : row[v] - lse[i];
        put_beam_row(e, req, req->rows.scores, first_beam + i, req->search.scores_row);
        if (req->emits_scores)
            proa_emit_scores(req, first_beam + i, NULL, req->search.scores_row, logits.shape[1]);
    }
}

/* Logits processors, and the log-sum-exps of the rows in head.lse. Style hf applies logits processors to
 * log-probabilities and does not normalise again; the others apply them to logits. */
static void process_beam_rows(proa_engine *e, proa_engine_request *req, proa_view logits, int64_t first_beam)
{
    proa_ctx *c = &e->model->host;
    bool hf = req->options.style == PROA_STYLE_HF, steps = req->logits != NULL;
    emit_beam_logits(e, req, logits, first_beam);
    if (hf || !steps) c->ops->log_sum_exp(c, e->head.lse, logits);
    if (steps) apply_processors(req, logits, first_beam, hf ? e->head.lse : NULL);
    if (!hf && steps) c->ops->log_sum_exp(c, e->head.lse, logits);
    for (int64_t i = 0; i < logits.shape[0] && steps; i++) /* a beam that a constraint left no token */
        if (e->head.lse[i] == -INFINITY) e->head.lse[i] = 0;
}

/* A sampled beam search: filters each row, and draws M of its tokens by their Gumbel numbers. normed: the rows are
 * log-probabilities; else head.lse has their log-sum-exps. */
static void draw_candidates(proa_engine *e, proa_engine_request *req, proa_view rows, int64_t first_beam,
                            bool normed)
{
    int64_t M = req->search.candidates;
    for (int64_t i = 0; i < rows.shape[0] && req->ending != PROA_FINISH_ERROR; i++) {
        int64_t beam = first_beam + i, at = beam * M;
        float *logits = proa_view_f32(rows) + i * rows.stride[0];
        const int32_t *path = req->search.path + beam * (req->new_max + 1);
        const proa_drawn_candidates out = {req->search.ids + at, req->search.logprobs + at,
                                           req->search.numbers + at, M};
        if (!normed) subtract_sum(rows, i, e->head.lse[i]);
        const proa_sampler_row row = {.position = req->prompt_count + req->search.depth,
                                      .history = proa_request_history(req, path, req->search.depth),
                                      .options = &req->options,
                                      .seed = req->seq[beam].seed,
                                      .err = &req->error};
        proa_status status = proa_sampler_candidates(e->samplers, &out, logits, rows.shape[1], &row);
        if (status != PROA_OK) req->ending = PROA_FINISH_ERROR;
    }
    emit_beam_scores(e, req, rows, first_beam, true);
}

/* The best M tokens of each row, as log-probabilities. normed: as above. */
static void choose_best(proa_engine *e, proa_engine_request *req, proa_view rows, int64_t first_beam, bool normed)
{
    proa_ctx *c = &e->model->host;
    int64_t n = rows.shape[0], M = req->search.candidates;
    float *values = req->search.logprobs + first_beam * M;
    emit_beam_scores(e, req, rows, first_beam, normed);
    c->ops->top_k(c, proa_view_2d(values, PROA_DTYPE_F32, n, M), req->search.ids + first_beam * M, rows, M);
    if (normed) return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < M; j++) values[i * M + j] -= e->head.lse[i];
}

/* M candidates of each row; the rows belong to beams first_beam, first_beam + 1, ... of one request. */
static void take_candidates(proa_engine *e, proa_engine_request *req, proa_view logits, int64_t first_beam)
{
    bool normed = req->options.style == PROA_STYLE_HF && req->logits;
    process_beam_rows(e, req, logits, first_beam);
    if (req->search.numbers) draw_candidates(e, req, logits, first_beam, normed);
    else choose_best(e, req, logits, first_beam, normed);
}

/* Moves the history of each beam to its successor, for logits processors that look back. */
static void reorder_paths(proa_engine_request *req)
{
    int64_t stride = req->new_max + 1, depth = req->search.depth++;
    if (!req->search.path) return;
    for (int32_t i = 0; i < req->width; i++) {
        int32_t *to = req->search.path_next + i * stride;
        memcpy(to, req->search.path + req->search.parent[i] * stride, (size_t)depth * sizeof *to);
        to[depth] = req->search.token[i];
    }
    int32_t *swap = req->search.path;
    req->search.path = req->search.path_next;
    req->search.path_next = swap;
}

/* Moves the page tables of each beam to its successor: first all are shared, then the old references are dropped.
 * A page that two beams will write to is copied when the next step's rows are added. */
static void reorder_tables(proa_engine *e, proa_engine_request *req)
{
    proa_page_table *self = &e->slots.self[req->slot], *spare = &e->slots.spare[req->slot];
    for (int32_t i = 0; i < req->width; i++)
        proa_page_table_share(&e->pages, &spare[i], &self[req->search.parent[i]], req->seq[0].length);
    for (int32_t i = 0; i < req->width; i++) {
        proa_page_table_release(&e->pages, &self[i]);
        proa_page_table swap = self[i];
        self[i] = spare[i];
        spare[i] = swap;
    }
    proa_state_slots_reorder(&e->states, req->slot, req->search.parent, req->width);
}

/* Each beam or candidate becomes that of beam_parent, with the next token of beam_token. */
static void go_on(proa_engine *e, proa_engine_request *req)
{
    reorder_paths(req);
    reorder_tables(e, req);
    for (int32_t i = 0; i < req->width; i++) req->seq[i].known++;
}

/* A search without a result ends with the error of its constraint, which left no beam a token. The paths are those
 * before the step, the best beam's first. */
static void check_results(proa_engine_request *req)
{
    const proa_history history = proa_request_history(req, req->search.path, req->search.depth);
    if (proa_beam_finish(req->search.beam) > 0) return;
    req->ending = PROA_FINISH_ERROR;
    if (proa_logits_processor_check(req->logits, &history, &req->error) == PROA_OK)
        (void)PROA_FAIL(&req->error, INTERNAL, "logits are not numbers: no beam has a token after %lld",
                        (long long)req->search.depth);
}

bool proa_advance_beams(proa_engine *e, proa_engine_request *req)
{
    bool more = false;
    req->usage.new_tokens += req->width;
    e->now.new_tokens += (uint64_t)req->width;
    if (!req->usage.first_ns) req->usage.first_ns = proa_clock_ns();
    const proa_beam_candidate_rows rows = {req->search.ids, req->search.logprobs, req->search.numbers};
    proa_status status = proa_beam_advance(req->search.beam, &more, req->search.parent, req->search.token,
                                           &rows, &req->error);
    bool full = req->usage.new_tokens >= req->new_max * req->width;
    /* after the prompt only row 0 has pages; groups would name their own first beam as parent */
    if (req->search.depth == 0)
        memset(req->search.parent, 0, (size_t)req->width * sizeof *req->search.parent);
    if (status != PROA_OK) req->ending = PROA_FINISH_ERROR;
    else if (!more) req->ending = full ? PROA_FINISH_LENGTH : PROA_FINISH_END;
    if (!more && req->logits && req->ending != PROA_FINISH_ERROR) check_results(req);
    return req->ending == PROA_FINISH_NONE;
}

static void advance_beams(proa_engine *e, proa_engine_request *req)
{
    if (proa_advance_beams(e, req)) go_on(e, req);
}

/* ---- contrastive search ---- */

/* The next step runs the likeliest tokens after row `from` as candidates; they share that row's pages. */
static void run_candidates(proa_engine *e, proa_engine_request *req, int32_t from)
{
    const int32_t *ids = req->search.ids + from * req->search.candidates;
    const float *logprobs = req->search.logprobs + from * req->search.candidates;
    for (int32_t i = 0; i < req->width; i++) {
        req->search.parent[i] = from;
        req->search.token[i] = ids[i];
        req->search.probs[i] = expf(logprobs[i]);
    }
    go_on(e, req);
}

/* All candidates have been run: one of them becomes the token. */
static void choose_candidate(proa_engine *e, proa_engine_request *req)
{
    int32_t best = 0;
    if (proa_contrastive_choose(req->search.contrast, &best, req->search.probs, req->search.hidden,
                                &req->error) != PROA_OK) {
        req->ending = PROA_FINISH_ERROR;
        return;
    }
    proa_draw draw = {.seq = req->seq};
    proa_sample sample = {req->search.token[best], logf(req->search.probs[best])};
    e->now.new_tokens++;
    proa_emit_token(&draw, &sample);
    if (req->seq->finish != PROA_FINISH_NONE) end_sequence(e, req->seq);
    else run_candidates(e, req, best);
}

static void process_candidates(proa_engine *e, proa_engine_request *req, const proa_logits_request *a,
                               int64_t n, proa_view logits)
{
    int64_t hidden = proa_model_hidden_width(e->model);
    memcpy(req->search.hidden + a->seq->index * hidden, fetched_hidden(e, 0),
           (size_t)(n * hidden) * sizeof(float));
    take_candidates(e, req, logits, a->seq->index);
    if (a[n - 1].seq->index + 1 == req->width) choose_candidate(e, req);
}

static void start_contrast(proa_engine *e, proa_engine_request *req, proa_view last_row)
{
    take_candidates(e, req, last_row, 0);
    run_candidates(e, req, 0);
}

/* ---- rows of one request ---- */

/* Log-probabilities of the prompt's own tokens: the row at position i predicts token i + 1. */
static void emit_prompt_logprobs(proa_engine *e, proa_engine_request *req, int64_t first, proa_view logits)
{
    int64_t known = proa_min64(logits.shape[0], req->prompt_count - 1 - first);
    const float *row = proa_view_f32(logits);
    for (int64_t i = 0; i < known; i++, row += logits.stride[0]) {
        e->head.prompt_logprobs[i] = proa_sampler_logprob(row, logits.shape[1], req->prompt[first + i + 1]);
        int32_t n = req->options.top_logprobs;
        if (n) proa_sampler_top(req->top + i * n, n, row, logits.shape[1]);
    }
    proa_emit_prompt(req, e->head.prompt_logprobs, first + 1, known);
}

static void emit_logits_rows(proa_engine_request *req, int64_t first, proa_view logits)
{
    proa_emit_rows(req, proa_view_f32(logits), NULL, first - req->virtual_count, logits.shape[0],
                   logits.shape[1]);
}

/* Rows of a prompt, from position `first` on. The prompt's last row starts the generation. */
static void process_prompt_rows(proa_engine *e, proa_engine_request *req, int64_t first, proa_view logits)
{
    int64_t n = logits.shape[0];
    bool last = first + n == req->prompt_count;
    const float *hidden = fetched_hidden(e, n - 1);
    proa_view row = proa_view_rows(logits, n - 1, n);
    req->rows_done = first + n;
    if (req->task == PROA_TASK_ROWS) emit_logits_rows(req, first, logits);
    else if (req->task == PROA_TASK_SCORE || req->options.prompt_logprobs)
        emit_prompt_logprobs(e, req, first, logits);
    if (req->search.contrast &&
        proa_contrastive_add(req->search.contrast, fetched_hidden(e, 0), n, &req->error) != PROA_OK)
        req->ending = PROA_FINISH_ERROR;
    if (!last || req->ending == PROA_FINISH_ERROR) return;
    if (req->task != PROA_TASK_GENERATE) req->ending = PROA_FINISH_END;
    else if (req->search.contrast) start_contrast(e, req, row);
    else if (req->search.beam) take_candidates(e, req, row, 0), advance_beams(e, req);
    else /* all sequences sample their first token from it */
        for (int32_t i = 0; i < req->width; i++)
            add_draw(e, &req->seq[i], req->prompt_count, 0, proa_view_f32(row), hidden);
}

/* n logits requests of one request, whose logits are these rows. They are the head's rows from head.first_row on. */
static void process_request(proa_engine *e, const proa_logits_request *a, int64_t n, proa_view logits)
{
    proa_engine_request *req = a->seq->req;
    if (req->ending == PROA_FINISH_ERROR) return;
    if (a->position < req->prompt_count) {
        process_prompt_rows(e, req, a->position, logits);
    } else if (req->search.contrast) {
        process_candidates(e, req, a, n, logits);
    } else if (req->search.beam) {
        take_candidates(e, req, logits, a->seq->index);
        if (a[n - 1].seq->index + 1 == req->width) advance_beams(e, req);
    } else {
        for (int64_t i = 0; i < n; i++)
            add_draw(e, a[i].seq, a[i].position + 1, a[i].node, proa_view_f32(logits) + i * logits.stride[0],
                     fetched_hidden(e, i));
    }
}

/* ---- the logits requests of a step ---- */

/* Beams whose logits processors change nothing now need only the best candidates of a row. These are found where the
 * model runs, so that the rows themselves need not be copied to the host. */
static bool wants_top_k_only(const proa_engine *e, const proa_logits_request *a)
{
    const proa_engine_request *req = a->seq->req;
    return e->async.mode != PROA_SAMPLE_HOST && req->search.beam && !req->options.prompt_logprobs &&
           !req->scores && !req->rows.logits && !req->search.numbers && req->search.candidates <= PROA_TOP_MAX &&
           !proa_logits_processor_changes(req->logits, req->prompt_count - req->virtual_count, req->search.depth);
}

/* Splits off the next group of logits requests, at most PROA_HEAD_ROWS, that the head can run at once: rows that
 * need top-k only, all with the same k, or rows that need whole logits. Returns its size. */
static int64_t next_group(const proa_engine *e, const proa_logits_request *a, int64_t left, bool *top_k_only)
{
    int64_t most = proa_min64(left, PROA_HEAD_ROWS), n = 1;
    *top_k_only = wants_top_k_only(e, a);
    while (n < most && wants_top_k_only(e, &a[n]) == *top_k_only &&
           (!*top_k_only || a[n].seq->req->search.candidates == a[0].seq->req->search.candidates))
        n++;
    return n;
}

/* Rows [at, at + n) of the top-k lists are the candidates of these logits requests, which belong to one request. */
static void store_candidates(proa_engine *e, const proa_logits_request *a, int64_t n, int64_t at)
{
    proa_engine_request *req = a->seq->req;
    int64_t M = req->search.candidates, first = a->seq->index;
    bool last = a->position < req->prompt_count || a[n - 1].seq->index + 1 == req->width;
    if (req->ending == PROA_FINISH_ERROR) return;
    memcpy(req->search.ids + first * M, e->head.top_ids + at * M, (size_t)(n * M) * sizeof *e->head.top_ids);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < M; j++)
            req->search.logprobs[(first + i) * M + j] = e->head.top_logits[(at + i) * M + j] -
                                                        e->head.lse[at + i];
    if (last) advance_beams(e, req);
}

static void process_top_k(proa_engine *e, const proa_logits_request *a, int64_t n)
{
    proa_model_top_k(e->model, e->step.logits_rows, n, a->seq->req->search.candidates, e->head.top_ids,
                     e->head.top_logits, e->head.lse);
    proa_device_failure_check(e, NULL);
    for (int64_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && a[k].seq->req == a[i].seq->req;) k++;
        store_candidates(e, &a[i], k - i, i);
    }
}

/* ---- fetched rows ---- */

/* Copies the rows that the next pass would overwrite. */
static void keep_rows(proa_engine *e)
{
    proa_fetched_logits *f = &e->head.fetched;
    int64_t vocab = f->rows.shape[1], hidden = proa_model_hidden_width(e->model);
    for (int64_t i = 0; i < f->count; i++) {
        memcpy(f->logits_copy + i * vocab, proa_view_f32(f->rows) + i * f->rows.stride[0],
               (size_t)vocab * sizeof(float));
        if (e->model->hidden_wanted)
            memcpy(f->hidden_copy + i * hidden, proa_model_hidden(e->model, i), (size_t)hidden * sizeof(float));
    }
    f->rows = proa_view_2d(f->logits_copy, PROA_DTYPE_F32, f->count, vocab);
}

static void fetch_head_rows(proa_engine *e, const proa_logits_request *a, int64_t n)
{
    proa_fetched_logits *f = &e->head.fetched;
    f->rows = proa_model_head(e->model, e->step.logits_rows, n);
    f->count = n;
    memcpy(f->requests, a, (size_t)n * sizeof *a);
    if (f->logits_copy) keep_rows(e);
    proa_device_failure_check(e, NULL);
}

static bool is_of_request(const proa_logits_request *a, const proa_engine_request *req)
{
    return a->seq && a->seq->req == req;
}

void proa_process_logits(proa_engine *e)
{
    proa_fetched_logits *f = &e->head.fetched;
    for (int64_t i = 0, k; i < f->count; i = k) {
        const proa_logits_request *a = &f->requests[i];
        for (k = i + 1; a->seq && k < f->count && is_of_request(&f->requests[k], a->seq->req);) k++;
        e->head.first_row = i;
        if (a->seq) process_request(e, a, k - i, proa_view_rows(f->rows, i, k));
    }
    sample_draws(e); /* the next rows of the head overwrite these */
    f->count = 0;
}

static bool wants_hidden(const proa_engine *e)
{
    for (int64_t i = 0; i < e->step.logits_count; i++)
        if (e->step.logits_requests[i].seq->req->options.return_hidden ||
            e->step.logits_requests[i].seq->req->search.contrast)
            return true;
    return false;
}

void proa_fetch_logits(proa_engine *e)
{
    e->model->hidden_wanted = wants_hidden(e);
    for (int64_t at = 0, n; at < e->step.logits_count; at += n) {
        const proa_logits_request *a = &e->step.logits_requests[at];
        bool top_k_only;
        proa_process_logits(e); /* the group before */
        n = next_group(e, a, e->step.logits_count - at, &top_k_only);
        for (int64_t i = 0; i < n; i++) e->step.logits_rows[i] = a[i].row;
        if (top_k_only) process_top_k(e, a, n);
        else fetch_head_rows(e, a, n);
    }
}
