/* SPDX-License-Identifier: Apache-2.0
 * engine_call.c - a request's way through the engine: read and submitted on the caller's thread, then events on the
 * engine's thread, which become replies there. */
#include "backends/llm/llm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/thread.h"
#include <sched.h>
#include <string.h>

/* ---- prompts ---- */

static void init_arrays(proa_prompt *p)
{
    proa_buf *const all[] = {&p->logprobs, &p->top, &p->rows, &p->pooled};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_init(all[i], (size_t)PROA_REPLY_ARRAY_BYTES_MAX);
}

proa_prompt *proa_call_prompts(proa_call *call, int64_t count)
{
    call->prompts = PROA_ARENA_NEW(&call->infer->arena, proa_prompt, count);
    call->count = count;
    for (int64_t i = 0; i < count; i++) {
        proa_prompt *p = &call->prompts[i];
        p->call = call;
        p->row = i;
        init_arrays(p);
    }
    return call->prompts;
}

static void release_said(proa_said *said)
{
    proa_ids_release(&said->ids);
    proa_buf *const all[] = {&said->text, &said->logprobs, &said->top, &said->logits, &said->hidden};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
}

static void release_prompt(proa_prompt *p)
{
    for (int32_t i = 0; i < p->said_count; i++) release_said(&p->said[i]);
    free(p->said);
    p->said = NULL;
    p->said_count = 0;
    proa_ids_release(&p->ids);
    proa_ids_release(&p->decoder_ids);
    proa_buf *const all[] = {&p->logprobs, &p->top, &p->rows, &p->pooled};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
}

static proa_said *said_of(proa_prompt *p, int32_t index)
{
    while (p->said_count <= index) {
        p->said = proa_realloc(p->said, (size_t)(p->said_count + 1) * sizeof *p->said);
        proa_said *s = &p->said[p->said_count];
        *s = (proa_said){.index = p->said_count++};
        proa_buf_init(&s->text, SIZE_MAX / 2);
        proa_buf *const all[] = {&s->logprobs, &s->top, &s->logits, &s->hidden};
        for (size_t i = 0; i < PROA_COUNT(all); i++)
            proa_buf_init(all[i], (size_t)PROA_REPLY_ARRAY_BYTES_MAX);
    }
    return &p->said[index];
}

static void clear_said(proa_said *said)
{
    said->begun = true;
    proa_ids_clear(&said->ids);
    proa_buf *const all[] = {&said->text, &said->logprobs, &said->top, &said->logits, &said->hidden};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_clear(all[i]);
}

int64_t proa_said_visible(const proa_said *said)
{
    return said->finish == PROA_FINISH_END && said->ids.len > 0 ? said->ids.len - 1 : said->ids.len;
}

const char *proa_said_reason(proa_finish finish)
{
    switch (finish) {
    case PROA_FINISH_END:
    case PROA_FINISH_STOP: return "stop";
    case PROA_FINISH_LENGTH: return "length";
    case PROA_FINISH_CANCELLED: return "cancelled";
    case PROA_FINISH_ERROR: return "error";
    case PROA_FINISH_NONE: break;
    }
    return "";
}

/* ---- the end of a call ---- */

static void fail_call(proa_call *call, const proa_err *err)
{
    if (!atomic_exchange(&call->failed, true)) call->err = *err;
}

static void leave_list(proa_call *call)
{
    pthread_mutex_lock(&call->served->lock);
    if (call->link) {
        *call->link = call->next;
        if (call->next) call->next->link = call->link;
        call->link = NULL;
    }
    pthread_mutex_unlock(&call->served->lock);
}

/* From here on nobody cancels: a cancel that is under way has finished with us when this returns. */
static void end_watch(proa_call *call)
{
    leave_list(call);
    if (proa_infer_watch(call->infer, NULL)) return;
    while (!atomic_load(&call->cancel_done)) sched_yield();
}

static void release_call(proa_call *call)
{
    for (int64_t i = 0; i < call->count; i++) release_prompt(&call->prompts[i]);
    proa_arena_release(&call->arena);
}

void proa_call_reply(proa_call *call, proa_reply *reply, bool final)
{
    proa_infer *r = call->infer;
    if (final) {
        end_watch(call);
        release_call(call);
    }
    proa_infer_reply(r, reply, final);
}

static void reply_error(proa_call *call)
{
    proa_reply *reply = proa_reply_new(call->infer);
    reply->error = call->err;
    if (reply->error.status == PROA_OK) reply->error.status = PROA_INTERNAL;
    proa_call_reply(call, reply, true);
}

/* ---- a prompt is done ---- */

static void tell(proa_call *call, proa_prompt *p, proa_said *said, int32_t count, bool final)
{
    for (int32_t i = 0; i < count; i++) said[i].told = said[i].finish != PROA_FINISH_NONE;
    call->contract->tell(call, p, said, count, final);
    for (int32_t i = 0; i < count && !final && !call->keep; i++) clear_said(&said[i]);
}

/* Sequences that were not told of their end yet; the very last reply is final. */
static void tell_rest(proa_call *call, proa_prompt *p, bool last)
{
    int32_t n = p->said_count, step = call->bundle && p->whole && p->request.options.beams > 1 ? n : 1;
    for (int32_t i = 0; i < n; i += step) {
        bool final = last && i + step >= n;
        tell(call, p, &p->said[i], step, final);
        if (final) return;
    }
}

/* Those that told of their end with their last token stand no more. */
static void drop_told(proa_prompt *p)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < p->said_count; i++) {
        if (p->said[i].told) release_said(&p->said[i]);
        else p->said[kept++] = p->said[i];
    }
    p->said_count = kept;
}

static void prompt_done(proa_prompt *p)
{
    proa_call *call = p->call;
    bool last = atomic_fetch_sub(&call->pending, 1) == 1;
    if (atomic_load(&call->failed)) {
        if (last) reply_error(call);
        return;
    }
    if (last) proa_infer_output_begins(&(proa_infer *){call->infer}, 1);
    if (call->keep) {
        call->contract->tell(call, p, p->said, p->said_count, last);
    } else if (call->stream || call->apart) {
        tell_rest(call, p, last);
    } else if (last) {
        call->contract->end(call);
    }
}

/* ---- log-probabilities of sequences that came whole: a pass over prompt and output ---- */

typedef struct scoring {
    proa_prompt *p;
    int32_t said;
    int64_t prompt_ids;
} scoring;

static void on_score(const proa_event *e)
{
    scoring *s = e->arg;
    proa_said *said = &s->p->said[s->said];
    if (e->kind == PROA_EVENT_PROMPT) {
        int64_t skip = s->prompt_ids - e->rows_first;
        if (skip < 0) skip = 0;
        if (skip > e->rows_count) skip = e->rows_count;
        size_t n = (size_t)(e->rows_count - skip), tops = (size_t)e->top_count;
        if (n) proa_buf_append(&said->logprobs, e->prompt_logprobs + skip, n * sizeof(float));
        if (n && tops)
            proa_buf_append(&said->top, e->prompt_top + (size_t)skip * tops, n * tops * sizeof *e->prompt_top);
    }
    if (e->kind != PROA_EVENT_DONE) return;
    if (e->finish == PROA_FINISH_ERROR && e->error) fail_call(s->p->call, e->error);
    if (e->finish == PROA_FINISH_CANCELLED) proa_buf_clear(&said->logprobs), proa_buf_clear(&said->top);
    if (--s->p->scoring == 0) prompt_done(s->p);
}

static proa_status score_said(proa_prompt *p, int32_t index, proa_err *err)
{
    proa_call *call = p->call;
    const proa_served *served = call->served;
    bool s2s = served->info.kind == PROA_KIND_ENCODER_DECODER;
    const proa_ids *head = s2s ? &p->decoder_ids : &p->ids;
    proa_ids ids = {0};
    for (int64_t i = 0; i < head->len; i++) proa_ids_push(&ids, head->ptr[i]);
    if (s2s && !head->len) proa_ids_push(&ids, served->info.decoder_start_id);
    scoring *s = PROA_ARENA_NEW(&call->arena, scoring, 1);
    *s = (scoring){p, index, ids.len};
    for (int64_t i = 0; i < p->said[index].ids.len; i++) proa_ids_push(&ids, p->said[index].ids.ptr[i]);
    proa_request request = {.task = PROA_TASK_SCORE, .on_event = on_score, .arg = s};
    request.options.top_logprobs = p->request.options.top_logprobs;
    request.ids = s2s ? p->ids.ptr : ids.ptr;
    request.ids_count = s2s ? p->ids.len : ids.len;
    if (s2s) request.decoder_ids = ids.ptr, request.decoder_ids_count = ids.len;
    proa_status status = proa_engine_submit(served->engine, &request, NULL, err);
    proa_ids_release(&ids);
    return status;
}

/* Log-probabilities of sequences that came whole. */
static void score_whole(proa_prompt *p)
{
    const proa_options *o = &p->request.options;
    proa_err err = {.status = PROA_OK};
    if (!p->whole || (!o->logprobs && !o->top_logprobs)) return;
    for (int32_t i = 0; i < p->said_count; i++) {
        if (!p->said[i].ids.len) continue;
        if (score_said(p, i, &err) == PROA_OK) p->scoring++;
        else fail_call(p->call, &err);
    }
}

static void on_rows(const proa_event *e)
{
    proa_prompt *p = e->arg;
    if (e->kind == PROA_EVENT_ROWS) {
        p->columns = e->columns;
        proa_buf_append(&p->rows, e->rows, (size_t)(e->rows_count * e->columns) * sizeof *e->rows);
    }
    if (e->kind != PROA_EVENT_DONE) return;
    if (e->finish == PROA_FINISH_ERROR && e->error) fail_call(p->call, e->error);
    if (--p->scoring == 0) prompt_done(p);
}

/* The logits of each position of the prompt. */
static void ask_rows(proa_prompt *p)
{
    proa_err err = {.status = PROA_OK};
    proa_request request = p->request;
    if (!p->wants_rows) return;
    request.task = PROA_TASK_ROWS;
    request.options = (proa_options){.given = 0};
    request.on_event = on_rows;
    request.arg = p;
    if (proa_engine_submit(p->call->served->engine, &request, NULL, &err) == PROA_OK) p->scoring++;
    else fail_call(p->call, &err);
}

/* True if answers are still to come. */
static bool run_further(proa_prompt *p)
{
    if (atomic_load(&p->call->failed)) return false;
    p->scoring = 1; /* ours, until all are submitted */
    score_whole(p);
    ask_rows(p);
    return --p->scoring > 0;
}

/* ---- events ---- */

static void add_token(proa_prompt *p, const proa_event *e)
{
    proa_said *said = said_of(p, e->sequence);
    const proa_info *info = &p->call->served->info;
    proa_ids_push(&said->ids, e->id);
    proa_buf_append(&said->text, e->text, e->text_len);
    said->tokens++;
    said->finish = e->finish;
    if (e->finish != PROA_FINISH_NONE) p->open--;
    if (p->request.options.logprobs) {
        proa_buf_append(&said->logprobs, &e->logprob, sizeof e->logprob);
        said->sum += (double)e->logprob;
    }
    if (e->top) proa_buf_append(&said->top, e->top, (size_t)e->top_count * sizeof *e->top);
    if (e->logits) proa_buf_append(&said->logits, e->logits, (size_t)info->outputs * sizeof *e->logits);
    if (e->hidden) proa_buf_append(&said->hidden, e->hidden, (size_t)info->hidden * sizeof *e->hidden);
    /* the end of a prompt's last sequence is told by DONE, which comes at once */
    bool more = e->finish == PROA_FINISH_NONE || p->open > 0;
    if (p->call->stream && more) tell(p->call, p, said, 1, false);
}

static void add_prompt(proa_prompt *p, const proa_event *e)
{
    size_t n = (size_t)e->rows_count, tops = (size_t)e->top_count;
    proa_buf_append(&p->logprobs, e->prompt_logprobs, n * sizeof *e->prompt_logprobs);
    if (tops) proa_buf_append(&p->top, e->prompt_top, n * tops * sizeof *e->prompt_top);
}

static void add_rows(proa_prompt *p, const proa_event *e)
{
    size_t columns = (size_t)e->columns;
    p->columns = e->columns;
    if (e->rows_count > 0)
        proa_buf_append(&p->rows, e->rows, (size_t)e->rows_count * columns * sizeof *e->rows);
    if (e->pooled) proa_buf_append(&p->pooled, e->pooled, columns * sizeof *e->pooled);
}

/* Several sequences: their ends; and all of them, where no token was told. */
static void add_results(proa_prompt *p, const proa_event *e)
{
    p->whole = p->said_count == 0;
    for (int32_t i = 0; i < e->beams_count; i++) {
        const proa_beam_result *b = &e->beams[i];
        proa_said *said = said_of(p, i);
        said->finish = b->finish;
        said->score = b->score;
        said->sum = b->logprob_sum;
        if (!p->whole) continue;
        for (int64_t k = 0; k < b->count; k++) proa_ids_push(&said->ids, b->ids[k]);
        said->tokens = b->count;
        if (b->text) proa_buf_append(&said->text, b->text, b->text_len);
    }
}

static bool is_full(const proa_prompt *p)
{
    bool full = p->logprobs.full || p->top.full || p->rows.full || p->pooled.full;
    for (int32_t i = 0; i < p->said_count; i++) {
        const proa_said *s = &p->said[i];
        full = full || s->logprobs.full || s->top.full || s->logits.full || s->hidden.full;
    }
    return full;
}

static void check_done(proa_prompt *p, const proa_event *e)
{
    proa_call *call = p->call;
    proa_err err = {.status = PROA_OK};
    if (e->finish == PROA_FINISH_ERROR) {
        PROA_FAIL(&err, INTERNAL, "the request failed without a reason");
        fail_call(call, e->error ? e->error : &err);
    } else if (e->finish == PROA_FINISH_CANCELLED && !atomic_load(&call->stop_quietly)) {
        PROA_FAIL(&err, CANCELLED, "request was cancelled");
        fail_call(call, &err);
    } else if (is_full(p)) {
        PROA_FAIL(&err, LIMIT, "the reply would have more than %lld bytes in one tensor: stream it",
                  (long long)PROA_REPLY_ARRAY_BYTES_MAX);
        fail_call(call, &err);
    }
}

static void done(proa_prompt *p, const proa_event *e)
{
    bool generates = p->request.task == PROA_TASK_GENERATE;
    p->finish = e->finish;
    p->prompt_tokens = e->prompt_tokens;
    p->new_tokens = e->new_tokens;
    p->queue_s = e->queue_s, p->prompt_s = e->prompt_s, p->decode_s = e->decode_s;
    proa_served_count(p->call->served, e->prompt_tokens, e->new_tokens);
    check_done(p, e);
    if (e->beams_count > 0) add_results(p, e);
    else if (generates) said_of(p, 0);
    for (int32_t i = 0; i < p->said_count; i++)
        if (p->said[i].finish == PROA_FINISH_NONE) p->said[i].finish = e->finish;
    if (generates && e->text_len) proa_buf_append(&p->said[0].text, e->text, e->text_len);
    if (p->call->stream && !p->call->keep) drop_told(p);
    if (!run_further(p)) prompt_done(p);
}

/* The first of its prompts runs. */
static void begin(proa_call *call)
{
    if (call->begun) return;
    call->begun = true;
    proa_infer_begins(call->infer);
    proa_infer_input_done(&(proa_infer *){call->infer}, 1);
}

static void on_event(const proa_event *e)
{
    proa_prompt *p = e->arg;
    switch (e->kind) {
    case PROA_EVENT_BEGIN: begin(p->call); break;
    case PROA_EVENT_TOKEN: add_token(p, e); break;
    case PROA_EVENT_PROMPT: add_prompt(p, e); break;
    case PROA_EVENT_ROWS: add_rows(p, e); break;
    case PROA_EVENT_DONE: done(p, e); break;
    }
}

/* ---- cancelling ---- */

static void cancel_prompts(proa_call *call)
{
    atomic_store(&call->cancel_asked, true);
    if (!atomic_load(&call->made))
        return; /* a reader makes the prompts: it looks at cancel_asked afterwards */
    for (int64_t i = 0; i < call->count; i++) {
        uint64_t id = atomic_load(&call->prompts[i].id);
        if (id) proa_engine_cancel(call->served->engine, id);
    }
}

static void on_cancel(proa_infer *r)
{
    proa_call *call = r->work;
    cancel_prompts(call);
    atomic_store(&call->cancel_done, true);
}

int proa_call_stop_others(const proa_call *self)
{
    proa_served *s = self->served;
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (proa_call *call = s->calls; call; call = call->next) {
        if (call == self || strcmp(call->infer->id, self->infer->id) != 0) continue;
        atomic_store(&call->stop_quietly, true);
        cancel_prompts(call);
        n++;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- the beginning ---- */

static void join_list(proa_call *call)
{
    proa_served *s = call->served;
    pthread_mutex_lock(&s->lock);
    call->next = s->calls;
    call->link = &s->calls;
    if (call->next) call->next->link = &call->next;
    s->calls = call;
    pthread_mutex_unlock(&s->lock);
}

/* Triton's words and TensorRT-LLM's: clients of either look for theirs. */
static proa_status check_queue(const proa_served *s, int64_t more, proa_err *err)
{
    proa_stats stats;
    proa_engine_stats(s->engine, &stats);
    if (stats.waiting + more <= s->queue_max) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "Exceeds maximum queue size: Maximum queue size of %lld has been reached",
                     (long long)s->queue_max);
}

static proa_status submit(proa_call *call, proa_prompt *p, proa_err *err)
{
    uint64_t id = 0;
    p->request.on_event = on_event;
    p->request.arg = p;
    p->open = p->request.options.n > 1 ? p->request.options.n : 1;
    p->arrived_ns = proa_clock_ns();
    PROA_TRY(proa_engine_submit(call->served->engine, &p->request, &id, err));
    atomic_store(&p->id, id);
    return PROA_OK;
}

static void submit_all(proa_call *call)
{
    proa_err err = {.status = PROA_OK};
    int64_t count = call->count, sent = 0;
    atomic_store(&call->pending, (int)count);
    atomic_store(&call->made, true);
    while (sent < count && submit(call, &call->prompts[sent], &err) == PROA_OK) sent++;
    if (sent < count) {
        fail_call(call, &err);
        cancel_prompts(call);
        if (atomic_fetch_sub(&call->pending, (int)(count - sent)) == (int)(count - sent)) reply_error(call);
    } else if (atomic_load(&call->cancel_asked)) {
        cancel_prompts(call);
    }
}

static void begin_call(proa_call *call)
{
    proa_infer *r = call->infer;
    proa_err err = {.status = PROA_OK};
    proa_status status = call->contract->read(call, &err);
    if (status == PROA_OK && call->count) status = check_queue(call->served, call->count, &err);
    if (status == PROA_OK && atomic_load(&call->cancel_asked))
        status = PROA_FAIL(&err, CANCELLED, "request was cancelled");
    if (status != PROA_OK) {
        fail_call(call, &err);
        reply_error(call);
    } else if (!call->count) { /* nothing to compute */
        call->contract->end(call);
    } else {
        submit_all(call);
    }
    proa_infer_drop(r);
}

/* ---- the readers: long texts and templates are not for a loop's thread, where others wait ---- */

/* Under the lock. After some long texts the memory that they took goes back to the system, once none came for a while. */
static void wait_for_calls(proa_served *s, proa_reader *r)
{
    if (!r->used) {
        pthread_cond_wait(&r->came, &s->lock);
        return;
    }
    if (!proa_cond_wait_ms(&r->came, &s->lock, PROA_TRIM_MS)) return;
    r->used = false;
    pthread_mutex_unlock(&s->lock);
    proa_memory_trim();
    pthread_mutex_lock(&s->lock);
}

static proa_call *next_to_read(proa_reader *r)
{
    proa_served *s = r->served;
    pthread_mutex_lock(&s->lock);
    while (!r->first && !s->readers_stop) wait_for_calls(s, r);
    proa_call *call = r->first;
    if (call) r->first = call->read_next;
    if (!r->first) r->last = &r->first;
    r->used |= r == &s->readers[PROA_READER_LONG];
    pthread_mutex_unlock(&s->lock);
    return call;
}

static void *reading_thread(void *arg)
{
    for (proa_call *call; (call = next_to_read(arg)) != NULL;) begin_call(call);
    return NULL;
}

/* False if there is no such thread: then it is read here. */
static bool hand_to_reader(proa_reader *r, proa_call *call)
{
    proa_served *s = r->served;
    pthread_mutex_lock(&s->lock);
    if (!r->runs) r->runs = pthread_create(&r->thread, NULL, reading_thread, r) == 0;
    bool runs = r->runs;
    if (runs) {
        *r->last = call;
        r->last = &call->read_next;
        pthread_cond_signal(&r->came);
    }
    pthread_mutex_unlock(&s->lock);
    return runs;
}

void proa_calls_begin(proa_served *s)
{
    for (int i = 0; i < PROA_READERS; i++) {
        proa_reader *r = &s->readers[i];
        *r = (proa_reader){.served = s};
        r->last = &r->first;
        proa_cond_init(&r->came);
    }
}

void proa_calls_end(proa_served *s)
{
    pthread_mutex_lock(&s->lock);
    s->readers_stop = true;
    for (int i = 0; i < PROA_READERS; i++) pthread_cond_signal(&s->readers[i].came);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < PROA_READERS; i++) {
        if (s->readers[i].runs) pthread_join(s->readers[i].thread, NULL);
        pthread_cond_destroy(&s->readers[i].came);
    }
}

static bool is_long(const proa_infer *r)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (r->inputs[i].type == PROA_TYPE_BYTES) bytes += r->inputs[i].bytes;
    return bytes > PROA_READ_AT_ONCE_BYTES;
}

void proa_call_start(proa_served *served, proa_infer *r)
{
    proa_call *call = PROA_ARENA_NEW(&r->arena, proa_call, 1);
    call->contract = served->contract;
    call->served = served;
    call->infer = r;
    r->work = call;
    proa_arena_init(&call->arena);
    proa_infer_hold(r); /* events may end the call before we are through */
    join_list(call);
    proa_infer_watch(r, on_cancel);
    proa_reader *reader = is_long(r)                        ? &served->readers[PROA_READER_LONG]
                          : proa_infer_input(r, "messages") ? &served->readers[PROA_READER_CHATS]
                                                            : NULL;
    if (!reader || !hand_to_reader(reader, call)) begin_call(call);
}
