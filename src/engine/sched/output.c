/* SPDX-License-Identifier: Apache-2.0
 * deliver.c - what a request's caller hears: tokens with their text, rows, the end. */
#include "engine/job.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <string.h>

static proa_event event_of(const proa_job *job, proa_event_kind kind)
{
    return (proa_event){.kind = kind, .request = job->id, .arg = job->arg, .text = ""};
}

static void set_text(proa_event *event, const proa_buf *text)
{
    event->text = text->ptr ? text->ptr : "";
    event->text_len = text->len;
}

void proa_deliver_begin(proa_job *job)
{
    proa_event event = event_of(job, PROA_EVENT_BEGIN);
    job->on_event(&event);
}

/* ---- tokens ---- */

static bool ends_with(const proa_seq *seq, const int32_t *word, int64_t n)
{
    return n <= seq->count && memcmp(seq->ids + seq->count - n, word, (size_t)n * sizeof *word) == 0;
}

static bool hits_stop_word(const proa_job *job, const proa_seq *seq)
{
    const proa_words *w = &job->options.stop_words;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++])
        if (ends_with(seq, w->ids + begin, w->ends[i] - begin)) return true;
    return false;
}

static bool is_end(const proa_job *job, int32_t id)
{
    for (int32_t i = 0; i < job->options.end_ids_count; i++)
        if (job->options.end_ids[i] == id) return true;
    return false;
}

/* The text that may be shown after this token; true when a stop string was completed. At the end of a sequence all
 * that was held back comes out, unless a stop string ended it. */
static bool make_text(proa_seq *seq, int32_t id, bool ends, bool collect)
{
    proa_buf *raw = &seq->shown; /* used as scratch before it gets its due */
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

static proa_finish finish_of(const proa_job *job, const proa_seq *seq, int32_t id)
{
    if (is_end(job, id)) return PROA_FINISH_END;
    if (hits_stop_word(job, seq)) return PROA_FINISH_STOP;
    return seq->count >= job->new_max ? PROA_FINISH_LENGTH : PROA_FINISH_NONE;
}

void proa_deliver_token(const proa_draw *draw, const proa_sample *sample)
{
    proa_job *job = draw->job;
    proa_seq *seq = &job->seq[draw->sequence];
    proa_event event = event_of(job, PROA_EVENT_TOKEN);
    seq->ids[seq->count++] = sample->id;
    seq->logprob_sum += (double)sample->logprob;
    job->new_tokens++;
    if (!job->first_ns) job->first_ns = proa_clock_ns();
    seq->finish = finish_of(job, seq, sample->id);
    bool whole = seq->finish != PROA_FINISH_NONE;
    if (make_text(seq, sample->id, whole, job->sequences > 1)) seq->finish = PROA_FINISH_STOP;
    event.id = sample->id;
    event.logprob = job->options.logprobs ? sample->logprob : 0;
    event.sequence = draw->sequence;
    event.finish = seq->finish;
    event.top_count = job->options.top_logprobs;
    event.top = event.top_count ? job->top + draw->sequence * event.top_count : NULL;
    event.logits = job->options.return_logits ? draw->raw : NULL;
    event.hidden = job->options.return_hidden ? draw->hidden : NULL;
    set_text(&event, &seq->piece);
    if (job->options.best_of <= job->options.n)
        job->on_event(&event); /* else nobody knows yet which is shown */
}

void proa_deliver_rows(proa_job *job, const float *rows, const float *pooled, int64_t first, int64_t count,
                       int64_t columns)
{
    proa_event event = event_of(job, PROA_EVENT_ROWS);
    if (!job->first_ns) job->first_ns = proa_clock_ns();
    event.rows = rows;
    event.pooled = pooled;
    event.rows_first = first;
    event.rows_count = count;
    event.columns = columns;
    job->on_event(&event);
}

void proa_deliver_prompt(proa_job *job, const float *logprobs, int64_t first, int64_t count)
{
    proa_event event = event_of(job, PROA_EVENT_PROMPT);
    if (count <= 0) return;
    event.prompt_logprobs = logprobs;
    event.prompt_ids = job->prompt + first;
    event.prompt_top = job->top;
    event.top_count = job->options.top_logprobs;
    event.rows_first = first;
    event.rows_count = count;
    job->on_event(&event);
}

/* ---- results ---- */

/* Texts of beams in one buffer; a second pass sets the pointers, since the buffer moves while it grows. */
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

static int32_t beam_results(const proa_engine *e, const proa_job *job, proa_beam_result *results, proa_buf *texts)
{
    int32_t n = proa_beam_finish(job->beam);
    for (int32_t i = 0; i < n; i++) results[i] = proa_beam_get(job->beam, i);
    decode_beams(e, results, n, texts);
    return n;
}

static int by_score(const void *a, const void *b)
{
    const proa_beam_result *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->sequence < y->sequence ? -1 : 1;
}

/* Of several sequences: all in order, or of best_of the n with the highest log-probability a token. */
static int32_t seq_results(const proa_job *job, proa_beam_result *results)
{
    for (int32_t i = 0; i < job->sequences; i++) {
        const proa_seq *s = &job->seq[i];
        results[i] = (proa_beam_result){.ids = s->ids, .count = s->count, .logprob_sum = s->logprob_sum};
        results[i].score = s->count ? (float)(s->logprob_sum / (double)s->count) : 0;
        results[i].finish = s->finish;
        results[i].sequence = i;
        if (s->detok) results[i].text = s->shown.ptr ? s->shown.ptr : "", results[i].text_len = s->shown.len;
    }
    if (job->options.best_of <= job->options.n) return job->sequences;
    qsort(results, (size_t)job->sequences, sizeof *results, by_score);
    return job->options.n;
}

/* ---- the end ---- */

static void times(proa_event *event, const proa_job *job)
{
    int64_t now = proa_clock_ns();
    int64_t admitted = job->admitted_ns ? job->admitted_ns : now, first = job->first_ns ? job->first_ns : now;
    event->queue_s = (double)(admitted - job->submitted_ns) * 1e-9;
    event->prompt_s = (double)(first - admitted) * 1e-9;
    event->decode_s = (double)(now - first) * 1e-9;
}

static void count_finish(proa_engine *e, proa_finish finish)
{
    e->now.finished++;
    e->now.cancelled += finish == PROA_FINISH_CANCELLED;
    e->now.failed += finish == PROA_FINISH_ERROR;
}

static void unlink_live(proa_engine *e, const proa_job *job)
{
    pthread_mutex_lock(&e->lock);
    *job->live_link = job->live_next;
    if (job->live_next) job->live_next->live_link = job->live_link;
    pthread_mutex_unlock(&e->lock);
}

/* What a sequence that was cut off (cancelled, failed) still held back. */
static void last_text(proa_event *event, proa_job *job)
{
    proa_seq *seq = job->seq;
    if (!seq || job->sequences != 1 || seq->finish != PROA_FINISH_NONE || !seq->detok) return;
    proa_buf_clear(&seq->piece);
    if (proa_detok_flush(seq->detok, &seq->stop.held, NULL) != PROA_OK) return;
    proa_stop_flush(&seq->stop, &seq->piece);
    set_text(event, &seq->piece);
}

void proa_deliver_done(proa_engine *e, proa_job *job, proa_finish finish, const proa_err *error)
{
    proa_event event = event_of(job, PROA_EVENT_DONE);
    bool whole = finish != PROA_FINISH_ERROR && finish != PROA_FINISH_CANCELLED;
    proa_beam_result *results = NULL;
    proa_buf texts = {0};
    event.finish = finish;
    event.error = error;
    event.prompt_tokens = job->input_count + job->prompt_count;
    event.new_tokens = job->beam ? job->new_tokens / job->width : job->new_tokens; /* of one hypothesis */
    times(&event, job);
    last_text(&event, job);
    if (job->seq && job->sequences == 1) event.logprob_sum = job->seq->logprob_sum;
    if (whole && (job->beam || job->sequences > 1)) {
        results = proa_calloc((size_t)job->width, sizeof *results);
        event.beams_count = job->beam ? beam_results(e, job, results, &texts) : seq_results(job, results);
        event.beams = results;
    }
    unlink_live(e, job);
    count_finish(e, finish);
    job->on_event(&event);
    proa_buf_release(&texts);
    free(results);
    proa_job_free(job);
}
