/* SPDX-License-Identifier: Apache-2.0
 * result.c - gathers the events of a request, and runs many requests with their results in order. */
#include "cli/result.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/status.h"
#include "cli/session.h"
#include <math.h>
#include <string.h>

/* One sequence's rows of logits; memory ends earlier. */
#define ROWS_BYTES_MAX (SIZE_MAX / 2)

void proa_result_init(proa_result *r)
{
    *r = (proa_result){.arg = NULL};
    proa_buf_init(&r->text, (size_t)PROA_CONTEXT_MAX * 64);
    proa_buf *const all[] = {&r->prompt_ids, &r->prompt_logprobs, &r->prompt_top};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_init(all[i], ROWS_BYTES_MAX);
}

static void clear_beams(proa_result *r)
{
    for (int32_t i = 0; i < r->beams_count; i++) free(r->beams[i].text);
    free(r->beams);
    r->beams = NULL;
    r->beams_count = 0;
}

static void clear_tokens(proa_sequence_result *t)
{
    t->count = 0;
    proa_buf_clear(&t->top);
    proa_buf_clear(&t->logits);
    proa_buf_clear(&t->hidden);
}

void proa_result_clear(proa_result *r)
{
    clear_beams(r);
    for (int32_t i = 0; i < r->seq_count; i++) clear_tokens(&r->seq[i]);
    proa_buf *const all[] = {&r->text, &r->prompt_ids, &r->prompt_logprobs, &r->prompt_top};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_clear(all[i]);
    free(r->pooled);
    r->pooled = NULL;
    r->seq_count = r->top_count = 0;
    r->count = r->prompt_scored = r->rows_count = r->columns = r->prompt_tokens = r->new_tokens = 0;
    r->drafted_tokens = r->accepted_tokens = 0;
    r->queue_s = r->prompt_s = r->decode_s = 0;
    r->done = r->stop = false;
    r->finish = PROA_FINISH_NONE;
    proa_err_clear(&r->err);
}

void proa_result_release(proa_result *r)
{
    proa_result_clear(r);
    for (int32_t i = 0; i < r->seq_cap; i++) {
        proa_sequence_result *t = &r->seq[i];
        free(t->ids);
        free(t->logprobs);
        proa_buf_release(&t->top);
        proa_buf_release(&t->logits);
        proa_buf_release(&t->hidden);
    }
    free(r->seq);
    free(r->rows);
    proa_buf *const all[] = {&r->text, &r->prompt_ids, &r->prompt_logprobs, &r->prompt_top};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
    proa_result_init(r);
}

/* The result of this sequence; added if it is new. */
static proa_sequence_result *tokens_of(proa_result *r, int32_t sequence)
{
    if (sequence >= r->seq_cap) {
        int32_t cap = 2 * sequence + 1;
        r->seq = proa_realloc(r->seq, (size_t)cap * sizeof *r->seq);
        for (int32_t i = r->seq_cap; i < cap; i++) {
            proa_sequence_result *t = &r->seq[i];
            *t = (proa_sequence_result){.ids = NULL};
            proa_buf_init(&t->top, ROWS_BYTES_MAX);
            proa_buf_init(&t->logits, ROWS_BYTES_MAX);
            proa_buf_init(&t->hidden, ROWS_BYTES_MAX);
        }
        r->seq_cap = cap;
    }
    if (sequence >= r->seq_count) r->seq_count = sequence + 1;
    return &r->seq[sequence];
}

static void append_id(proa_result *r, int32_t sequence, int32_t id, float logprob)
{
    proa_sequence_result *t = tokens_of(r, sequence);
    if (t->count == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->ids = proa_realloc(t->ids, (size_t)t->cap * sizeof *t->ids);
        t->logprobs = proa_realloc(t->logprobs, (size_t)t->cap * sizeof *t->logprobs);
    }
    t->ids[t->count] = id;
    t->logprobs[t->count++] = logprob;
    r->ids = r->seq[0].ids;
    r->logprobs = r->seq[0].logprobs;
    r->count = r->seq[0].count;
}

static void add_token(proa_result *r, const proa_event *e)
{
    append_id(r, e->sequence, e->id, e->logprob);
    proa_sequence_result *t = &r->seq[e->sequence];
    r->top_count = e->top_count;
    if (e->top) proa_buf_append(&t->top, e->top, (size_t)e->top_count * sizeof *e->top);
    if (e->logits) proa_buf_append(&t->logits, e->logits, (size_t)r->vocab * sizeof *e->logits);
    if (e->hidden) proa_buf_append(&t->hidden, e->hidden, (size_t)r->hidden * sizeof *e->hidden);
}

static void add_prompt(proa_result *r, const proa_event *e)
{
    size_t n = (size_t)e->rows_count;
    r->top_count = e->top_count;
    r->prompt_scored += e->rows_count;
    proa_buf_append(&r->prompt_ids, e->prompt_ids, n * sizeof *e->prompt_ids);
    proa_buf_append(&r->prompt_logprobs, e->prompt_logprobs, n * sizeof *e->prompt_logprobs);
    if (e->top_count)
        proa_buf_append(&r->prompt_top, e->prompt_top, n * (size_t)e->top_count * sizeof *e->prompt_top);
}

static void add_text(proa_result *r, const char *text, size_t len, int32_t id)
{
    proa_str s = {text ? text : "", text ? len : 0};
    proa_buf_str(&r->text, s);
    if (r->on_text) r->on_text(r, s, id);
}

static void add_rows(proa_result *r, const proa_event *e)
{
    if (r->on_rows) {
        r->on_rows(r, e);
        return;
    }
    int64_t end = e->rows_first + e->rows_count;
    size_t columns = (size_t)e->columns;
    if (end > r->rows_count) {
        r->rows = proa_realloc(r->rows, (size_t)end * columns * sizeof *r->rows);
        r->rows_count = end;
    }
    r->columns = e->columns;
    if (e->rows_count > 0)
        memcpy(r->rows + (size_t)e->rows_first * columns, e->rows,
               (size_t)e->rows_count * columns * sizeof *r->rows);
    if (e->pooled) {
        r->pooled = proa_realloc(r->pooled, columns * sizeof *r->pooled);
        memcpy(r->pooled, e->pooled, columns * sizeof *r->pooled);
    }
}

static char *copy_text(const char *text, size_t len)
{
    char *copy = proa_malloc(len + 1);
    if (len) memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

/* Sequences that were streamed are in seq already; those of a beam search and of best_of arrive at the end.
 * */
static void add_beams(proa_result *r, const proa_event *e)
{
    r->beams = proa_calloc((size_t)e->beams_count, sizeof *r->beams);
    r->beams_count = e->beams_count;
    bool streamed = r->count > 0;
    for (int32_t i = 0; i < e->beams_count; i++) {
        const proa_beam_result *from = &e->beams[i];
        if (!streamed) tokens_of(r, i);
        for (int64_t k = 0; k < from->count && !streamed; k++) append_id(r, i, from->ids[k], 0);
        r->beams[i] = (proa_hypothesis){.count = from->count,
                                        .score = from->score,
                                        .logprob_sum = from->logprob_sum,
                                        .finish = from->finish,
                                        .text = copy_text(from->text, from->text ? from->text_len : 0)};
    }
    for (int32_t i = 0; i < e->beams_count; i++) r->beams[i].ids = r->seq[i].ids;
    const proa_hypothesis *best = &r->beams[0];
    add_text(r, best->text, strlen(best->text), best->count ? best->ids[best->count - 1] : -1);
}

static void finish_result(proa_result *r, const proa_event *e)
{
    r->finish = e->finish;
    if (e->error) r->err = *e->error;
    r->prompt_tokens = e->prompt_tokens;
    r->drafted_tokens = e->drafted_tokens, r->accepted_tokens = e->accepted_tokens;
    r->new_tokens = e->new_tokens;
    r->queue_s = e->queue_s;
    r->prompt_s = e->prompt_s;
    r->decode_s = e->decode_s;
    if (e->beams_count > 0) add_beams(r, e);
    else if (e->text_len > 0) add_text(r, e->text, e->text_len, -1);
    r->done = true;
}

void proa_result_event(const proa_event *e)
{
    proa_result *r = e->arg;
    if (e->kind == PROA_EVENT_TOKEN) {
        add_token(r, e);
        if (!r->several) add_text(r, e->text, e->text_len, e->id);
    } else if (e->kind == PROA_EVENT_PROMPT) {
        add_prompt(r, e);
    } else if (e->kind == PROA_EVENT_ROWS) {
        add_rows(r, e);
    } else if (e->kind == PROA_EVENT_DONE) {
        finish_result(r, e);
    }
}

proa_status proa_result_status(const proa_result *r, proa_err *err)
{
    if (r->finish == PROA_FINISH_CANCELLED) return PROA_FAIL(err, CANCELLED, "cancelled");
    if (r->finish != PROA_FINISH_ERROR) return PROA_OK;
    proa_status status = r->err.status == PROA_OK ? PROA_INTERNAL : r->err.status;
    return proa_err_set(err, status, r->err.file, r->err.line, "%s",
                        r->err.text[0] ? r->err.text : "the request failed without a reason");
}

const char *proa_finish_name(proa_finish finish_kind)
{
    static const char *const names[] = {
        [PROA_FINISH_NONE] = "none",           [PROA_FINISH_END] = "end",
        [PROA_FINISH_STOP] = "stop",           [PROA_FINISH_LENGTH] = "length",
        [PROA_FINISH_CANCELLED] = "cancelled", [PROA_FINISH_ERROR] = "error"};
    const char *name = (size_t)finish_kind < PROA_COUNT(names) ? names[finish_kind] : NULL;
    return name ? name : "other";
}

double proa_result_rate(const proa_result *r)
{
    if (r->new_tokens > 1 && r->decode_s > 0) return (double)(r->new_tokens - 1) / r->decode_s;
    double all = r->prompt_s + r->decode_s;
    return all > 0 ? (double)r->new_tokens / all : 0;
}

void proa_request_set_text(proa_request *request, proa_str text)
{
    request->text = text.len ? text.ptr : "";
    request->text_len = text.len;
}

/* Sets what the events of this request do not contain. */
static void set_expected(proa_result *r, const proa_engine *engine, const proa_request *request)
{
    proa_info info;
    proa_engine_info(engine, &info);
    r->vocab = info.outputs;
    r->hidden = info.hidden;
    r->several = request->options.n > 1;
}

proa_status proa_result_run(proa_engine *engine, const proa_request *request, proa_result *r, proa_err *err)
{
    proa_request own = *request;
    own.on_event = proa_result_event;
    own.arg = r;
    set_expected(r, engine, request);
    uint64_t id = 0;
    bool cancelled = false;
    PROA_TRY(proa_engine_submit(engine, &own, &id, err));
    while (!r->done) {
        if ((r->stop || proa_interrupted()) && !cancelled) proa_engine_cancel(engine, id), cancelled = true;
        if (!proa_engine_step(engine) && !r->done)
            return PROA_FAIL(err, INTERNAL, "the engine has nothing to do and the request is not done");
    }
    return proa_result_status(r, err);
}

proa_status proa_result_score(proa_engine *engine, const proa_request *request, proa_result *r, int32_t i,
                              proa_err *err)
{
    proa_info info;
    proa_engine_info(engine, &info);
    proa_sequence_result *t = &r->seq[i];
    const bool s2s = info.kind == PROA_KIND_ENCODER_DECODER;
    const int32_t *head = !s2s                   ? request->ids
                          : request->decoder_ids ? request->decoder_ids
                                                 : &info.decoder_start_id;
    int64_t head_count = !s2s ? request->ids_count : request->decoder_ids ? request->decoder_ids_count : 1;
    int64_t count = head_count + t->count;
    int32_t *ids = proa_malloc((size_t)count * sizeof *ids);
    memcpy(ids, head, (size_t)head_count * sizeof *ids);
    if (t->count) memcpy(ids + head_count, t->ids, (size_t)t->count * sizeof *ids);
    proa_request again = {.task = PROA_TASK_SCORE, .ids = request->ids, .ids_count = request->ids_count};
    again.options.top_logprobs = request->options.top_logprobs;
    if (s2s) again.decoder_ids = ids, again.decoder_ids_count = count;
    else again.ids = ids, again.ids_count = count;
    proa_result scored;
    proa_result_init(&scored);
    proa_status status = proa_result_run(engine, &again, &scored, err);
    if (status == PROA_OK && t->count && scored.prompt_scored == count - 1) {
        /* entry k is of token k + 1 */
        const float *logprobs = (const void *)scored.prompt_logprobs.ptr;
        memcpy(t->logprobs, logprobs + head_count - 1, (size_t)t->count * sizeof *logprobs);
        size_t row = (size_t)scored.top_count * sizeof(proa_logprob);
        r->top_count = scored.top_count;
        proa_buf_clear(&t->top);
        if (row)
            proa_buf_append(&t->top, scored.prompt_top.ptr + (size_t)(head_count - 1) * row,
                            (size_t)t->count * row);
    }
    proa_result_release(&scored);
    free(ids);
    return status;
}

double proa_row_logprob(const float *row, int64_t count, int32_t id)
{
    float top = row[0];
    for (int64_t i = 1; i < count; i++)
        if (row[i] > top) top = row[i];
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)expf(row[i] - top);
    return (double)(row[id] - top) - log(sum);
}

proa_status proa_encode_text(const proa_engine *engine, proa_str text, int32_t **ids, int64_t *count,
                             proa_err *err)
{
    /* a first guess that is nearly always enough: at most one token per byte, and a few special ones */
    int64_t cap = (int64_t)text.len + 16;
    *ids = proa_malloc((size_t)cap * sizeof **ids);
    proa_request request = {.text_len = 0};
    proa_request_set_text(&request, text);
    proa_status status = proa_engine_encode(engine, request.text, request.text_len, *ids, cap, count, err);
    if (status == PROA_OK && *count > cap) {
        cap = *count;
        *ids = proa_realloc(*ids, (size_t)cap * sizeof **ids);
        status = proa_engine_encode(engine, request.text, request.text_len, *ids, cap, count, err);
    }
    return status;
}

typedef struct slot {
    proa_result result;
    uint64_t id;
} slot;

typedef struct runner {
    const proa_request_queue *queue;
    slot *slots;
    int64_t head, next; /* items [head, next) are in flight: slot index % window */
    bool ended, stopped;
} runner;

static void submit_next(runner *n, slot *s)
{
    const proa_request_queue *q = n->queue;
    proa_request request = {.task = PROA_TASK_GENERATE};
    proa_result *r = &s->result;
    proa_result_clear(r);
    r->arg = q->arg;
    r->index = n->next;
    r->on_rows = q->on_rows;
    if (!q->next(q->arg, n->next, &request, &r->err)) {
        n->ended = true;
        return;
    }
    n->next++;
    request.on_event = proa_result_event;
    request.arg = r;
    set_expected(r, q->engine, &request);
    if (r->err.status == PROA_OK && proa_engine_submit(q->engine, &request, &s->id, &r->err) == PROA_OK)
        return;
    r->finish = PROA_FINISH_ERROR;
    r->done = true;
}

static void hand_over(runner *n)
{
    const proa_request_queue *q = n->queue;
    while (n->head < n->next && !n->stopped) {
        proa_result *r = &n->slots[n->head % q->window].result;
        if (!r->done) return;
        if (!q->done(q->arg, n->head, r)) n->stopped = true;
        n->head++;
    }
}

/* The slots are freed by the caller, so the engine must have ended every request before. */
static void cancel_all(runner *n)
{
    for (int64_t i = n->head; i < n->next; i++) {
        slot *s = &n->slots[i % n->queue->window];
        if (!s->result.done) proa_engine_cancel(n->queue->engine, s->id);
    }
    while (proa_engine_step(n->queue->engine)) continue;
}

static proa_status run_slots(runner *n, proa_err *err)
{
    const proa_request_queue *q = n->queue;
    for (;;) {
        while (!n->ended && n->next - n->head < q->window) submit_next(n, &n->slots[n->next % q->window]);
        hand_over(n);
        if (n->stopped || (n->ended && n->head == n->next)) break;
        if (proa_interrupted()) {
            cancel_all(n);
            return PROA_FAIL(err, CANCELLED, "cancelled after %lld", (long long)n->head);
        }
        if (!proa_engine_step(q->engine) && !n->slots[n->head % q->window].result.done)
            return PROA_FAIL(err, INTERNAL, "the engine has nothing to do and item %lld is not done",
                             (long long)n->head);
        if (q->idle) q->idle(q->arg);
    }
    cancel_all(n);
    return PROA_OK;
}

proa_status proa_request_queue_run(const proa_request_queue *queue, proa_err *err)
{
    runner n = {.queue = queue, .slots = proa_calloc((size_t)queue->window, sizeof(slot))};
    for (int64_t i = 0; i < queue->window; i++) proa_result_init(&n.slots[i].result);
    proa_status status = run_slots(&n, err);
    for (int64_t i = 0; i < queue->window; i++) proa_result_release(&n.slots[i].result);
    free(n.slots);
    return status;
}
