/* SPDX-License-Identifier: Apache-2.0
 * output.c - the events of a request: tokens with their text, rows, prompt log-probabilities, the end with its
 * results. */
#include "engine/sched/output.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include <string.h>

static proa_event event_of(const proa_engine_request *req, proa_event_kind kind)
{
    return (proa_event){.kind = kind, .request = req->id, .arg = req->arg, .text = ""};
}

static void set_text(proa_event *event, const proa_buf *text)
{
    event->text = text->ptr ? text->ptr : "";
    event->text_len = text->len;
}

void proa_emit_begin(proa_engine_request *req)
{
    proa_event event = event_of(req, PROA_EVENT_BEGIN);
    req->on_event(&event);
}

/* ---- tokens ---- */

static bool ends_with(const proa_seq *seq, const int32_t *word, int64_t n)
{
    return n <= seq->count && memcmp(seq->ids + seq->count - n, word, (size_t)n * sizeof *word) == 0;
}

static bool hits_stop_word(const proa_engine_request *req, const proa_seq *seq)
{
    const proa_words *w = &req->options.stop_words;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++])
        if (ends_with(seq, w->ids + begin, w->ends[i] - begin)) return true;
    return false;
}

static bool is_end(const proa_engine_request *req, int32_t id)
{
    for (int32_t i = 0; i < req->options.end_ids_count; i++)
        if (req->options.end_ids[i] == id) return true;
    return false;
}

/* Puts the text to emit with this token into seq->piece. Returns true if a stop string is complete. At the end of
 * a sequence the text that was held back (a possible start of a stop string, an incomplete character) is emitted
 * too, unless a stop string ended it. */
static bool make_text(proa_seq *seq, int32_t id, bool ends, bool collect)
{
    proa_buf *raw = &seq->shown; /* its end serves as scratch for the raw text */
    bool stopped = false;
    proa_buf_clear(&seq->piece);
    if (!seq->detok) return false;
    if (!collect) proa_buf_clear(raw);
    size_t keep = raw->len;
    if (proa_detok_push(seq->detok, id, raw, NULL) != PROA_OK) raw->len = keep;
    if (ends && proa_detok_flush(seq->detok, raw, NULL) != PROA_OK) raw->len = keep;
    proa_str piece = {raw->ptr + keep, raw->len - keep};
    stopped = proa_stop_push(&seq->stop, piece, &seq->piece);
    if (ends && !stopped) proa_stop_flush(&seq->stop, &seq->piece);
    raw->len = keep;
    if (collect) proa_buf_append(raw, seq->piece.ptr, seq->piece.len);
    return stopped;
}

static proa_finish finish_of(const proa_engine_request *req, const proa_seq *seq, int32_t id)
{
    if (is_end(req, id)) return PROA_FINISH_END;
    if (hits_stop_word(req, seq)) return PROA_FINISH_STOP;
    return seq->count >= req->new_max ? PROA_FINISH_LENGTH : PROA_FINISH_NONE;
}

void proa_emit_token(const proa_draw *draw, const proa_sample *sample)
{
    proa_seq *seq = draw->seq;
    proa_engine_request *req = seq->req;
    proa_event event = event_of(req, PROA_EVENT_TOKEN);
    seq->ids[seq->count++] = sample->id;
    seq->logprob_sum += (double)sample->logprob;
    req->usage.new_tokens++;
    if (!req->usage.first_ns) req->usage.first_ns = proa_clock_ns();
    seq->finish = finish_of(req, seq, sample->id);
    bool whole = seq->finish != PROA_FINISH_NONE;
    bool stopped = make_text(seq, sample->id, whole, req->sequences > 1);
    if (stopped) seq->finish = PROA_FINISH_STOP;
    event.stop_string = stopped ? req->options.stop_strings.text[seq->stop.hit] : NULL;
    event.id = sample->id;
    event.logprob = req->options.logprobs ? sample->logprob : 0;
    event.sequence = seq->index;
    event.finish = seq->finish;
    event.top_count = req->options.top_logprobs;
    event.top = !event.top_count ? NULL : draw->top ? draw->top : req->top + seq->index * event.top_count;
    event.logits = req->emits_logits ? draw->raw : NULL;
    event.hidden = req->options.return_hidden ? draw->hidden : NULL;
    event.scores = req->emits_scores ? draw->scores : NULL;
    set_text(&event, &seq->piece);
    if (req->options.best_of <= req->options.n)
        req->on_event(&event); /* best_of: which sequences are returned is known at the end only */
}

void proa_emit_rows(proa_engine_request *req, const float *rows, const float *pooled, int64_t first,
                    int64_t count, int64_t columns)
{
    proa_event event = event_of(req, PROA_EVENT_ROWS);
    if (!req->usage.first_ns) req->usage.first_ns = proa_clock_ns();
    event.rows = rows;
    event.pooled = pooled;
    event.rows_first = first;
    event.rows_count = count;
    event.columns = columns;
    req->on_event(&event);
}

void proa_emit_scores(proa_engine_request *req, int64_t beam, const float *logits, const float *scores,
                      int64_t columns)
{
    proa_event event = event_of(req, PROA_EVENT_SCORES);
    event.logits = logits;
    event.scores = scores;
    event.rows_first = beam;
    event.rows_count = 1;
    event.columns = columns;
    req->on_event(&event);
}

void proa_emit_prompt(proa_engine_request *req, const float *logprobs, int64_t first, int64_t count)
{
    proa_event event = event_of(req, PROA_EVENT_PROMPT);
    if (count <= 0) return;
    event.prompt_logprobs = logprobs;
    event.prompt_ids = req->prompt + first;
    event.prompt_top = req->top;
    event.top_count = req->options.top_logprobs;
    event.rows_first = first - req->virtual_count;
    event.rows_count = count;
    req->on_event(&event);
}

/* ---- results ---- */

/* Decodes all beams into one buffer. The pointers are set in a second pass, since the buffer moves while it grows. */
static void decode_beams(const proa_engine *e, proa_beam_result *results, int32_t count, proa_buf *texts)
{
    proa_buf_init(texts, SIZE_MAX / 2);
    for (int32_t i = 0; i < count && e->tokenizer; i++) {
        size_t begin = texts->len;
        if (proa_tokenizer_decode(e->tokenizer, results[i].ids, results[i].count, true, texts, NULL) != PROA_OK)
            texts->len = begin;
        results[i].text_len = texts->len - begin;
        proa_buf_char(texts, '\0');
    }
    size_t at = 0;
    for (int32_t i = 0; i < count && e->tokenizer; i++) {
        results[i].text = texts->ptr + at;
        at += results[i].text_len + 1;
    }
}

static int32_t beam_results(const proa_engine *e, const proa_engine_request *req, proa_beam_result *results,
                            proa_buf *texts)
{
    int32_t n = proa_beam_finish(req->search.beam);
    for (int32_t i = 0; i < n; i++) results[i] = proa_beam_get(req->search.beam, i);
    decode_beams(e, results, n, texts);
    return n;
}

static int by_score(const void *a, const void *b)
{
    const proa_beam_result *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->sequence < y->sequence ? -1 : 1;
}

/* All sequences in order; with best_of, the n with the highest mean log-probability per token. */
static int32_t seq_results(const proa_engine_request *req, proa_beam_result *results)
{
    for (int32_t i = 0; i < req->sequences; i++) {
        const proa_seq *s = &req->seq[i];
        results[i] = (proa_beam_result){.ids = s->ids, .count = s->count, .logprob_sum = s->logprob_sum};
        results[i].score = s->count ? (float)(s->logprob_sum / (double)s->count) : 0;
        results[i].finish = s->finish;
        results[i].sequence = i;
        if (s->detok) results[i].text = s->shown.ptr ? s->shown.ptr : "", results[i].text_len = s->shown.len;
    }
    if (req->options.best_of <= req->options.n) return req->sequences;
    qsort(results, (size_t)req->sequences, sizeof *results, by_score);
    return req->options.n;
}

/* ---- the end ---- */

static void set_times(proa_event *event, const proa_engine_request *req)
{
    int64_t now = proa_clock_ns();
    int64_t admitted = req->usage.admitted_ns ? req->usage.admitted_ns : now,
            first = req->usage.first_ns ? req->usage.first_ns : now;
    event->queue_s = (double)(admitted - req->usage.submitted_ns) * 1e-9;
    event->prompt_s = (double)(first - admitted) * 1e-9;
    event->decode_s = (double)(now - first) * 1e-9;
}

static void count_finish(proa_engine *e, proa_finish finish)
{
    e->now.finished++;
    e->now.cancelled += finish == PROA_FINISH_CANCELLED;
    e->now.failed += finish == PROA_FINISH_ERROR;
}

static void unlink_live(proa_engine *e, proa_engine_request *req)
{
    pthread_mutex_lock(&e->shared.lock);
    *req->live_link = req->live_next;
    if (req->live_next) req->live_next->live_link = req->live_link;
    proa_client_queue_drop(&e->shared, req->queue);
    pthread_mutex_unlock(&e->shared.lock);
}

/* Text that a cancelled or failed sequence still held back. */
static void set_held_text(proa_event *event, proa_engine_request *req)
{
    proa_seq *seq = req->seq;
    if (req->sequences != 1 || seq->finish != PROA_FINISH_NONE || !seq->detok) return;
    proa_buf_clear(&seq->piece);
    if (proa_detok_flush(seq->detok, &seq->stop.held, NULL) != PROA_OK) return;
    proa_stop_flush(&seq->stop, &seq->piece);
    set_text(event, &seq->piece);
}

/* What the request's session has from now on. Its callback may already submit the next turn. */
static void end_session(proa_engine_request *req, bool whole)
{
    proa_engine_session *session = req->session;
    if (!session) return;
    req->session = NULL;
    if (whole && req->session_ends) proa_sessions_drop(session);
    else if (whole)
        proa_sessions_end(session, req->prompt + req->virtual_count, req->prompt_count - req->virtual_count,
                          req->seq->ids, req->seq->count);
    else proa_sessions_end(session, NULL, 0, NULL, 0);
}

void proa_emit_done(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error)
{
    proa_event event = event_of(req, PROA_EVENT_DONE);
    bool whole = finish != PROA_FINISH_ERROR && finish != PROA_FINISH_CANCELLED;
    proa_beam_result *results = NULL;
    proa_buf texts = {0};
    event.finish = finish;
    event.error = error;
    event.prompt_tokens = req->input.count + req->prompt_count - req->input.virtual_count - req->virtual_count;
    event.cached_tokens = req->usage.cached_tokens;
    event.drafted_tokens = req->usage.drafted, event.accepted_tokens = req->usage.accepted;
    event.new_tokens = req->search.beam ? req->usage.new_tokens / req->width : req->usage.new_tokens; /* per beam */
    set_times(&event, req);
    set_held_text(&event, req);
    if (req->sequences == 1) event.logprob_sum = req->seq->logprob_sum;
    if (whole && (req->search.beam || req->sequences > 1)) {
        results = proa_calloc((size_t)req->width, sizeof *results);
        event.beams_count = req->search.beam ? beam_results(e, req, results, &texts) : seq_results(req, results);
        event.beams = results;
    }
    unlink_live(e, req);
    count_finish(e, finish);
    end_session(req, whole);
    proa_request_rows_end(e, req);
    req->on_event(&event);
    proa_buf_release(&texts);
    free(results);
    proa_engine_request_free(req);
}
