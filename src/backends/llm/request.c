/* SPDX-License-Identifier: Apache-2.0
 * request.c - a request's way through the engine: read and submitted on the caller's thread; the engine's
 * thread then turns events into replies. */
#include "backends/llm/contract.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include <sched.h>
#include <string.h>

/* ---- prompts ---- */

static void init_arrays(proa_prompt *p)
{
    proa_buf *const all[] = {&p->logprobs, &p->top, &p->rows, &p->pooled};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_init(all[i], (size_t)PROA_REPLY_ARRAY_BYTES_MAX);
}

proa_generation *proa_llm_add_generations(proa_llm_request *req, int64_t count)
{
    req->generations = PROA_ARENA_NEW(&req->infer->arena, proa_generation, count);
    req->count = count;
    return req->generations;
}

static void add_prompts(proa_llm_request *req)
{
    req->prompts = PROA_ARENA_NEW(&req->infer->arena, proa_prompt, req->count);
    for (int64_t i = 0; i < req->count; i++) {
        proa_prompt *p = &req->prompts[i];
        p->req = req;
        p->row = i;
        p->generation = &req->generations[i];
        init_arrays(p);
    }
}

static void release_output(proa_llm_output *output)
{
    proa_ids_release(&output->ids);
    proa_message_parser_free(output->parser);
    output->parser = NULL;
    proa_buf *const all[] = {&output->text, &output->logprobs, &output->top, &output->logits, &output->hidden};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
}

static void release_prompt(proa_prompt *p)
{
    for (int32_t i = 0; i < p->output_count; i++) release_output(&p->output[i]);
    free(p->output);
    p->output = NULL;
    p->output_count = 0;
    proa_ids_release(&p->tokens);
    proa_ids_release(&p->types);
    proa_buf *const all[] = {&p->logprobs, &p->top, &p->rows, &p->pooled};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_release(all[i]);
}

static proa_llm_output *output_of(proa_prompt *p, int32_t index)
{
    while (p->output_count <= index) {
        p->output = proa_realloc(p->output, (size_t)(p->output_count + 1) * sizeof *p->output);
        proa_llm_output *s = &p->output[p->output_count];
        *s = (proa_llm_output){.index = p->output_count++};
        proa_buf_init(&s->text, SIZE_MAX / 2);
        proa_buf *const all[] = {&s->logprobs, &s->top, &s->logits, &s->hidden};
        for (size_t i = 0; i < PROA_COUNT(all); i++)
            proa_buf_init(all[i], (size_t)PROA_REPLY_ARRAY_BYTES_MAX);
    }
    return &p->output[index];
}

static void clear_output(proa_llm_output *output)
{
    proa_ids_clear(&output->ids);
    proa_buf *const all[] = {&output->text, &output->logprobs, &output->top, &output->logits, &output->hidden};
    for (size_t i = 0; i < PROA_COUNT(all); i++) proa_buf_clear(all[i]);
}

int64_t proa_llm_visible_tokens(const proa_llm_output *output)
{
    return output->finish == PROA_FINISH_END && output->ids.len > 0 ? output->ids.len - 1 : output->ids.len;
}

/* ---- the end of a request ---- */

static void fail_request(proa_llm_request *req, const proa_err *err)
{
    if (!atomic_exchange(&req->failed, true)) req->err = *err;
}

static void leave_list(proa_llm_request *req)
{
    pthread_mutex_lock(&req->llm_model->lock);
    if (req->link) {
        *req->link = req->next;
        if (req->next) req->next->link = req->link;
        req->link = NULL;
    }
    pthread_mutex_unlock(&req->llm_model->lock);
}

/* When this returns, no cancel of this request is running and none will come. */
static void end_watch(proa_llm_request *req)
{
    leave_list(req);
    if (proa_infer_watch(req->infer, NULL)) return;
    while (!atomic_load(&req->cancel_done)) sched_yield();
}

static void release_request(proa_llm_request *req)
{
    for (int64_t i = 0; i < req->count && req->prompts; i++) release_prompt(&req->prompts[i]);
    proa_buffer_drop(req->rows);
    req->rows = NULL;
    proa_arena_release(&req->arena);
}

void proa_llm_reply(proa_llm_request *req, proa_reply *reply, bool final)
{
    proa_infer *r = req->infer;
    if (final) {
        end_watch(req);
        release_request(req);
    }
    proa_infer_reply(r, reply, final);
}

static void reply_error(proa_llm_request *req)
{
    proa_reply *reply = proa_reply_new(req->infer);
    reply->error = req->err;
    if (reply->error.status == PROA_OK) reply->error.status = PROA_INTERNAL;
    proa_llm_reply(req, reply, true);
}

/* ---- a prompt is done ---- */

static void emit_outputs(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final)
{
    req->contract->emit(req, p, output, count, final);
    for (int32_t i = 0; i < count && !final; i++) {
        output[i].emitted = output[i].finish != PROA_FINISH_NONE ? PROA_EMITTED_END : PROA_EMITTED_SOME;
        if (req->delivery != PROA_DELIVER_SNAPSHOTS) clear_output(&output[i]);
    }
}

/* Emits the sequences whose end was not emitted yet; the very last reply is final. */
static void emit_rest(proa_llm_request *req, proa_prompt *p, bool last)
{
    int32_t n = p->output_count,
            step = req->contract->bundles_beams && p->whole && p->request.options.beams > 1 ? n : 1;
    for (int32_t i = 0; i < n; i += step) {
        bool final = last && i + step >= n;
        emit_outputs(req, p, &p->output[i], step, final);
        if (final) return;
    }
}

/* Removes the sequences whose end was emitted with their last token. */
static void drop_ended(proa_prompt *p)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < p->output_count; i++) {
        if (p->output[i].emitted == PROA_EMITTED_END) release_output(&p->output[i]);
        else p->output[kept++] = p->output[i];
    }
    p->output_count = kept;
}

static void prompt_done(proa_prompt *p)
{
    proa_llm_request *req = p->req;
    bool last = atomic_fetch_sub(&req->pending, 1) == 1;
    if (atomic_load(&req->failed)) {
        if (last) reply_error(req);
        return;
    }
    if (last) proa_infer_output_begins(&(proa_infer *){req->infer}, 1);
    switch (req->delivery) {
    case PROA_DELIVER_ALL:
        if (last) req->contract->end(req);
        break;
    case PROA_DELIVER_PROMPTS:
    case PROA_DELIVER_TOKENS: emit_rest(req, p, last); break;
    case PROA_DELIVER_SNAPSHOTS: req->contract->emit(req, p, p->output, p->output_count, last); break;
    }
}

/* ---- beams and best_of have no log-probabilities: a scoring pass over prompt and output computes them ---- */

typedef struct scoring {
    proa_prompt *p;
    int32_t output;
    int64_t prompt_ids;
} scoring;

static void on_score(const proa_event *e)
{
    scoring *s = e->arg;
    proa_llm_output *output = &s->p->output[s->output];
    if (e->kind == PROA_EVENT_PROMPT) {
        int64_t skip = s->prompt_ids - e->rows_first;
        if (skip < 0) skip = 0;
        if (skip > e->rows_count) skip = e->rows_count;
        size_t n = (size_t)(e->rows_count - skip), tops = (size_t)e->top_count;
        if (n) proa_buf_append(&output->logprobs, e->prompt_logprobs + skip, n * sizeof(float));
        if (n && tops)
            proa_buf_append(&output->top, e->prompt_top + (size_t)skip * tops, n * tops * sizeof *e->prompt_top);
    }
    if (e->kind != PROA_EVENT_DONE) return;
    if (e->finish == PROA_FINISH_ERROR && e->error) fail_request(s->p->req, e->error);
    if (e->finish == PROA_FINISH_CANCELLED) proa_buf_clear(&output->logprobs), proa_buf_clear(&output->top);
    if (--s->p->scoring == 0) prompt_done(s->p);
}

static proa_status score_output(proa_prompt *p, int32_t index, proa_err *err)
{
    proa_llm_request *req = p->req;
    const proa_llm_model *llm_model = req->llm_model;
    bool s2s = llm_model->info.kind == PROA_KIND_ENCODER_DECODER;
    const proa_id_list *head = s2s ? &p->decoder_ids : &p->ids;
    proa_ids ids = {0};
    for (int64_t i = 0; i < head->len; i++) proa_ids_push(&ids, head->ptr[i]);
    if (s2s && !head->len) proa_ids_push(&ids, llm_model->info.decoder_start_id);
    scoring *s = PROA_ARENA_NEW(&req->arena, scoring, 1);
    *s = (scoring){p, index, ids.len};
    for (int64_t i = 0; i < p->output[index].ids.len; i++) proa_ids_push(&ids, p->output[index].ids.ptr[i]);
    proa_request request = {.task = PROA_TASK_SCORE, .on_event = on_score, .arg = s};
    request.options.top_logprobs = p->request.options.top_logprobs;
    request.options.adapter = p->request.options.adapter;
    request.ids = s2s ? p->ids.ptr : ids.ptr;
    request.ids_count = s2s ? p->ids.len : ids.len;
    if (s2s) request.decoder_ids = ids.ptr, request.decoder_ids_count = ids.len;
    proa_status status = proa_fleet_submit(llm_model->fleet, &request, NULL, err);
    proa_ids_release(&ids);
    return status;
}

/* Submits a scoring pass for each sequence. */
static void score_whole(proa_prompt *p)
{
    const proa_options *o = &p->request.options;
    proa_err err = {.status = PROA_OK};
    if (!p->whole || (!o->logprobs && !o->top_logprobs)) return;
    for (int32_t i = 0; i < p->output_count; i++) {
        if (!p->output[i].ids.len) continue;
        if (score_output(p, i, &err) == PROA_OK) p->scoring++;
        else fail_request(p->req, &err);
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
    if (e->finish == PROA_FINISH_ERROR && e->error) fail_request(p->req, e->error);
    if (--p->scoring == 0) prompt_done(p);
}

/* Submits a pass for the logits of each position of the prompt. */
static void submit_rows(proa_prompt *p)
{
    proa_err err = {.status = PROA_OK};
    proa_request request = p->request;
    if (!p->wants_rows) return;
    request.task = PROA_TASK_ROWS;
    request.session_id = NULL;
    request.session_begins = request.session_continues = request.session_ends = false;
    request.options = (proa_options){.adapter = p->request.options.adapter};
    request.on_event = on_rows;
    request.arg = p;
    if (proa_fleet_submit(p->req->llm_model->fleet, &request, NULL, &err) == PROA_OK) p->scoring++;
    else fail_request(p->req, &err);
}

/* True if further passes run, after which the prompt is done. */
static bool run_further(proa_prompt *p)
{
    if (atomic_load(&p->req->failed)) return false;
    p->scoring = 1; /* ours, until all are submitted */
    score_whole(p);
    submit_rows(p);
    return --p->scoring > 0;
}

/* ---- events ---- */

/* The stop string of an event, as the request has it: the engine's own copy ends with its request. */
static const char *stop_string_of(const proa_prompt *p, const char *text)
{
    const proa_strings *all = &p->request.options.stop_strings;
    for (int32_t i = 0; i < all->count && text; i++)
        if (strcmp(all->text[i], text) == 0) return all->text[i];
    return NULL;
}

static void add_token(proa_prompt *p, const proa_event *e)
{
    proa_llm_output *output = output_of(p, e->sequence);
    const proa_info *info = &p->req->llm_model->info;
    proa_ids_push(&output->ids, e->id);
    proa_buf_append(&output->text, e->text, e->text_len);
    output->tokens++;
    output->finish = e->finish;
    output->stop = stop_string_of(p, e->stop_string);
    if (e->finish != PROA_FINISH_NONE) p->open--;
    if (p->request.options.logprobs) {
        proa_buf_append(&output->logprobs, &e->logprob, sizeof e->logprob);
        output->sum += (double)e->logprob;
    }
    if (e->top) proa_buf_append(&output->top, e->top, (size_t)e->top_count * sizeof *e->top);
    if (e->logits) proa_buf_append(&output->logits, e->logits, (size_t)info->outputs * sizeof *e->logits);
    if (e->hidden) proa_buf_append(&output->hidden, e->hidden, (size_t)info->hidden * sizeof *e->hidden);
    /* the end of a prompt's last sequence is emitted at DONE, which follows at once */
    bool more = e->finish == PROA_FINISH_NONE || p->open > 0;
    if (p->req->delivery >= PROA_DELIVER_TOKENS && more) emit_outputs(p->req, p, output, 1, false);
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

/* Results of several sequences: their ends, and where no TOKEN events came, all of their tokens. */
static void add_results(proa_prompt *p, const proa_event *e)
{
    p->whole = p->output_count == 0;
    for (int32_t i = 0; i < e->beams_count; i++) {
        const proa_beam_result *b = &e->beams[i];
        proa_llm_output *output = output_of(p, i);
        output->finish = b->finish;
        output->score = b->score;
        output->sum = b->logprob_sum;
        if (!p->whole) continue;
        for (int64_t k = 0; k < b->count; k++) proa_ids_push(&output->ids, b->ids[k]);
        output->tokens = b->count;
        if (b->text) proa_buf_append(&output->text, b->text, b->text_len);
    }
}

static bool is_full(const proa_prompt *p)
{
    bool full = p->logprobs.full || p->top.full || p->rows.full || p->pooled.full;
    for (int32_t i = 0; i < p->output_count; i++) {
        const proa_llm_output *s = &p->output[i];
        full = full || s->logprobs.full || s->top.full || s->logits.full || s->hidden.full;
    }
    return full;
}

static void check_done(proa_prompt *p, const proa_event *e)
{
    proa_llm_request *req = p->req;
    proa_err err = {.status = PROA_OK};
    if (e->finish == PROA_FINISH_ERROR) {
        PROA_FAIL(&err, INTERNAL, "the request failed without a reason");
        fail_request(req, e->error ? e->error : &err);
    } else if (e->finish == PROA_FINISH_CANCELLED && !atomic_load(&req->stop_quietly)) {
        PROA_FAIL(&err, CANCELLED, "request was cancelled");
        fail_request(req, &err);
    } else if (is_full(p)) {
        PROA_FAIL(&err, LIMIT, "the reply would have more than %lld bytes in one tensor: stream it",
                  (long long)PROA_REPLY_ARRAY_BYTES_MAX);
        fail_request(req, &err);
    }
}

/* The first token of a request is that of the prompt which had one first. */
static void add_usage(proa_infer_usage *usage, const proa_prompt *p, const proa_event *e)
{
    usage->prompt_tokens += e->prompt_tokens;
    usage->cached_tokens += e->cached_tokens;
    usage->new_tokens += e->new_tokens;
    if (!e->new_tokens) return;
    int64_t first_ns = proa_clock_ns() - (int64_t)(e->decode_s * 1e9);
    usage->sequences += p->request.options.n > 1 ? p->request.options.n : 1;
    if (!usage->first_token_ns || first_ns < usage->first_token_ns) usage->first_token_ns = first_ns;
}

static void on_prompt_done(proa_prompt *p, const proa_event *e)
{
    bool generates = p->request.task == PROA_TASK_GENERATE;
    p->finish = e->finish;
    p->prompt_tokens = e->prompt_tokens;
    p->new_tokens = e->new_tokens;
    p->cached_tokens = e->cached_tokens;
    p->drafted_tokens = e->drafted_tokens, p->accepted_tokens = e->accepted_tokens;
    p->queue_s = e->queue_s, p->prompt_s = e->prompt_s, p->decode_s = e->decode_s;
    proa_llm_count_tokens(p->req->llm_model, e->prompt_tokens, e->new_tokens);
    add_usage(&p->req->infer->usage, p, e);
    check_done(p, e);
    if (e->beams_count > 0) add_results(p, e);
    else if (generates) output_of(p, 0);
    for (int32_t i = 0; i < p->output_count; i++)
        if (p->output[i].finish == PROA_FINISH_NONE) p->output[i].finish = e->finish;
    if (generates && e->text_len) proa_buf_append(&p->output[0].text, e->text, e->text_len);
    if (p->req->delivery == PROA_DELIVER_TOKENS) drop_ended(p);
    if (!run_further(p)) prompt_done(p);
}

/* The first of its prompts is in a step: the time in the queue ends. */
static void mark_running(proa_llm_request *req)
{
    if (req->running) return;
    req->running = true;
    proa_infer_begins(req->infer);
    proa_infer_input_done(&(proa_infer *){req->infer}, 1);
}

static void on_event(const proa_event *e)
{
    proa_prompt *p = e->arg;
    switch (e->kind) {
    case PROA_EVENT_BEGIN: mark_running(p->req); break;
    case PROA_EVENT_TOKEN: add_token(p, e); break;
    case PROA_EVENT_PROMPT: add_prompt(p, e); break;
    case PROA_EVENT_ROWS: add_rows(p, e); break;
    case PROA_EVENT_DONE: on_prompt_done(p, e); break;
    case PROA_EVENT_SCORES: break; /* not wanted by these requests */
    }
}

/* ---- cancelling ---- */

static void cancel_prompts(proa_llm_request *req)
{
    atomic_store(&req->cancel_requested, true);
    if (!atomic_load(&req->made))
        return; /* a reader makes the prompts: it looks at cancel_requested afterwards */
    for (int64_t i = 0; i < req->count; i++) {
        uint64_t id = atomic_load(&req->prompts[i].id);
        if (id) proa_fleet_cancel(req->llm_model->fleet, id);
    }
}

static void on_cancel(proa_infer *r)
{
    proa_llm_request *req = r->work;
    cancel_prompts(req);
    atomic_store(&req->cancel_done, true);
}

int proa_llm_stop_others(const proa_llm_request *self)
{
    proa_llm_model *s = self->llm_model;
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (proa_llm_request *req = s->live_requests; req; req = req->next) {
        if (req == self || strcmp(req->infer->id, self->infer->id) != 0) continue;
        atomic_store(&req->stop_quietly, true);
        cancel_prompts(req);
        n++;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- the beginning ---- */

static void join_list(proa_llm_request *req)
{
    proa_llm_model *s = req->llm_model;
    pthread_mutex_lock(&s->lock);
    req->next = s->live_requests;
    req->link = &s->live_requests;
    if (req->next) req->next->link = &req->next;
    s->live_requests = req;
    pthread_mutex_unlock(&s->lock);
}

/* The text has the words of Triton and of TensorRT-LLM: clients of either look for them. */
static proa_status check_queue(const proa_llm_model *s, int64_t more, proa_err *err)
{
    proa_stats stats;
    proa_fleet_stats(s->fleet, &stats);
    if (stats.waiting + more <= s->queue_max) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "Exceeds maximum queue size: Maximum queue size of %lld has been reached",
                     (long long)s->queue_max);
}

/* A sequence continues one conversation; several prompts would continue it at the same time. */
static proa_status check_sequence(const proa_llm_request *req, const proa_prompt *p, proa_err *err)
{
    if (!p->request.session_id || req->count == 1) return PROA_OK;
    return PROA_FAIL(
        err, INVALID, "inference request for sequence %s to model '%s' has %lld prompts, must have 1",
        p->request.session_id, proa_served_model_name(req->llm_model->model), (long long)req->count);
}

/* Triton's words. */
static proa_status refuse_sequence(const proa_llm_request *req, const proa_prompt *p, proa_err *err)
{
    return PROA_FAIL(
        err, INVALID,
        "inference request for sequence %s to model '%s' must specify the START flag on the first "
        "request of the sequence",
        p->request.session_id, proa_served_model_name(req->llm_model->model));
}

static proa_status submit_prompt(proa_llm_request *req, proa_prompt *p, proa_err *err)
{
    uint64_t id = 0;
    proa_err why = {.status = PROA_OK};
    p->request.on_event = on_event;
    p->request.arg = p;
    p->open = p->request.options.n > 1 ? p->request.options.n : 1;
    p->arrived_ns = proa_clock_ns();
    PROA_TRY(check_sequence(req, p, err));
    proa_status status = proa_fleet_submit(req->llm_model->fleet, &p->request, &id, &why);
    bool of_tools = p->call_grammar && strncmp(why.text, "option 'grammar'", 16) == 0;
    if (status != PROA_OK && of_tools) proa_err_prefix(&why, "tools");
    if (status == PROA_OK) atomic_store(&p->id, id);
    else if (status == PROA_NOT_FOUND && p->request.session_continues) status = refuse_sequence(req, p, err);
    else *err = why;
    return status;
}

static void submit_all(proa_llm_request *req)
{
    proa_err err = {.status = PROA_OK};
    int64_t count = req->count, sent = 0;
    proa_llm_places_take(req);
    atomic_store(&req->pending, (int)count);
    atomic_store(&req->made, true);
    while (sent < count && submit_prompt(req, &req->prompts[sent], &err) == PROA_OK) sent++;
    if (sent < count) {
        fail_request(req, &err);
        cancel_prompts(req);
        if (atomic_fetch_sub(&req->pending, (int)(count - sent)) == (int)(count - sent)) reply_error(req);
    } else if (atomic_load(&req->cancel_requested)) {
        cancel_prompts(req);
    }
}

/* Generations come typed from the protocol, or the contract reads them from tensors; from here on they are the same. */
static proa_status read_generations(proa_llm_request *req, proa_err *err)
{
    proa_generation *g = req->infer->generation;
    if (!g) return req->contract->read(req, err);
    if (g->refused) return *err = *g->refused, err->status;
    if (g->task == PROA_GENERATION_ENCODE)
        return PROA_FAIL(err, UNSUPPORTED, "task %s has no typed answer: send tensors",
                         proa_generation_task_names[g->task]);
    req->generations = g;
    req->count = 1;
    return PROA_OK;
}

/* The task, where the request leaves it to the model; then what the contract refuses. */
static proa_status settle_generation(const proa_llm_request *req, proa_generation *g, proa_err *err)
{
    const proa_llm_model *s = req->llm_model;
    proa_generation_task of_encoder = s->labels > 0 ? PROA_GENERATION_CLASSIFY : PROA_GENERATION_EMBED;
    if (g->task == PROA_GENERATION_DEFAULT)
        g->task = s->info.kind == PROA_KIND_ENCODER ? of_encoder : PROA_GENERATION_TEXT;
    return req->contract->check ? req->contract->check(req, g, err) : PROA_OK;
}

static proa_status read_request(proa_llm_request *req, proa_err *err)
{
    PROA_TRY(read_generations(req, err));
    for (int64_t i = 0; i < req->count; i++) PROA_TRY(settle_generation(req, &req->generations[i], err));
    bool stream = req->count > 0 && req->generations[0].stream;
    if (stream && !req->llm_model->decoupled)
        return PROA_FAIL(err, INVALID, "Streaming is only supported if model is deployed using decoupled mode.");
    if (stream && req->generations[0].task == PROA_GENERATION_TEXT) req->delivery = PROA_DELIVER_TOKENS;
    add_prompts(req);
    for (int64_t i = 0; i < req->count; i++) PROA_TRY(proa_llm_make_prompt(&req->prompts[i], err));
    return PROA_OK;
}

void proa_llm_request_read(proa_llm_request *req)
{
    proa_infer *r = req->infer;
    proa_err err = {.status = PROA_OK};
    proa_status status = read_request(req, &err);
    bool computes = req->count > 0 && proa_llm_task_computes(req->generations[0].task);
    if (status == PROA_OK && computes) status = check_queue(req->llm_model, req->count, &err);
    if (status == PROA_OK && atomic_load(&req->cancel_requested))
        status = PROA_FAIL(&err, CANCELLED, "request was cancelled");
    if (status != PROA_OK) {
        fail_request(req, &err);
        reply_error(req);
    } else if (!computes) {
        req->contract->end(req);
    } else {
        submit_all(req);
    }
    proa_infer_drop(r);
}

/* ---- who reads it ---- */

static bool is_long(const proa_infer *r)
{
    size_t bytes = r->generation ? r->generation->prompt_bytes : 0;
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (r->inputs[i].type == PROA_TYPE_BYTES || r->inputs[i].rank > 2)
            bytes += r->inputs[i].bytes; /* texts, vectors: tables and adapters */
    return bytes > PROA_READ_AT_ONCE_BYTES;
}

static bool is_chat(const proa_infer *r)
{
    const proa_generation *g = r->generation;
    return g ? g->chat || g->chat_text.ptr : proa_infer_input(r, "messages") != NULL;
}

static void start_request(proa_llm_model *llm_model, proa_infer *r)
{
    proa_llm_request *req = PROA_ARENA_NEW(&r->arena, proa_llm_request, 1);
    req->contract = llm_model->contract;
    req->llm_model = llm_model;
    req->infer = r;
    r->work = req;
    proa_arena_init(&req->arena);
    proa_infer_hold(r); /* events may end the request before this returns */
    join_list(req);
    proa_infer_watch(r, on_cancel);
    proa_reader *reader = is_long(r)   ? &llm_model->readers[PROA_READER_LONG]
                          : is_chat(r) ? &llm_model->readers[PROA_READER_CHATS]
                                       : NULL;
    if (!reader || !proa_llm_reader_take(reader, req)) proa_llm_request_read(req);
}

void proa_llm_execute(void *instance_state, proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++) start_request(instance_state, requests[i]);
}
