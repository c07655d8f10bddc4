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

static void set_text(proa_event *event, const proa_job *job)
{
    event->text = job->text.ptr ? job->text.ptr : "";
    event->text_len = job->text.len;
}

void proa_deliver_token(proa_job *job, int32_t id, float logprob)
{
    proa_event event = event_of(job, PROA_EVENT_TOKEN);
    event.id = id;
    event.logprob = logprob;
    if (job->new_tokens == 1) job->first_ns = proa_clock_ns();
    proa_buf_clear(&job->text);
    if (job->detok && proa_detok_push(job->detok, id, &job->text, NULL) == PROA_OK) set_text(&event, job);
    job->on_event(&event);
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

/* Texts of all results in one buffer; a second pass sets the pointers, since the buffer moves while it grows. */
static void decode_beams(const proa_engine *e, proa_beam_result *results, int32_t count, proa_buf *texts)
{
    proa_buf_init(texts, SIZE_MAX / 2);
    for (int32_t i = 0; i < count && e->tokenizer; i++) {
        size_t begin = texts->len;
        proa_err ignored = {.status = PROA_OK};
        if (proa_tokenizer_decode(e->tokenizer, results[i].ids, results[i].count, true, texts, &ignored) != PROA_OK)
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
    for (proa_job **p = &e->live; *p; p = &(*p)->live_next)
        if (*p == job) {
            *p = job->live_next;
            break;
        }
    pthread_mutex_unlock(&e->lock);
}

void proa_deliver_done(proa_engine *e, proa_job *job, proa_finish finish, const proa_err *error)
{
    proa_event event = event_of(job, PROA_EVENT_DONE);
    proa_beam_result results[PROA_BEAMS_MAX];
    proa_buf texts = {0};
    event.finish = finish;
    event.error = error;
    event.prompt_tokens = job->input_count + job->prompt_count;
    event.new_tokens = job->new_tokens;
    times(&event, job);
    if (job->detok) {
        proa_buf_clear(&job->text);
        if (proa_detok_flush(job->detok, &job->text, NULL) == PROA_OK) set_text(&event, job);
    }
    if (job->beam && finish != PROA_FINISH_ERROR && finish != PROA_FINISH_CANCELLED) {
        event.beams_count = proa_beam_finish(job->beam);
        for (int32_t i = 0; i < event.beams_count; i++) results[i] = proa_beam_get(job->beam, i);
        decode_beams(e, results, event.beams_count, &texts);
        event.beams = results;
    }
    unlink_live(e, job);
    count_finish(e, finish);
    job->on_event(&event);
    proa_buf_release(&texts);
    proa_job_free(job);
}
