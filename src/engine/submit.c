/* SPDX-License-Identifier: Apache-2.0
 * submit.c - a request checked, copied and made into a job. Runs on the caller's thread; touches nothing that steps. */
#include "engine/job.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include <string.h>

void proa_job_free(proa_job *job)
{
    if (!job) return;
    proa_beam_free(job->beam);
    proa_detok_free(job->detok);
    proa_buf_release(&job->text);
    free(job->input);
    free(job->prompt);
    free(job->beam_ids);
    free(job->beam_values);
    free(job->beam_parent);
    free(job->beam_token);
    free(job);
}

static proa_status check_ids(const proa_engine *e, const char *what, const int32_t *ids, int64_t count,
                             proa_err *err)
{
    int64_t vocab = e->model->config.vocab;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return PROA_FAIL(err, INVALID,
                             "%s: token id %d at position %lld is outside of the vocabulary (0 to %lld)",
                             what, ids[i], (long long)i, (long long)vocab - 1);
    return PROA_OK;
}

static int32_t *copy_ids(const int32_t *ids, int64_t count)
{
    int32_t *copy = proa_malloc((size_t)count * sizeof *copy);
    memcpy(copy, ids, (size_t)count * sizeof *copy);
    return copy;
}

/* The request's text or ids, to *ids. */
static proa_status read_input(const proa_engine *e, const proa_request *r, int32_t **ids, int64_t *count,
                              proa_err *err)
{
    proa_ids list = {0};
    if (!r->text == !r->ids) return PROA_FAIL(err, INVALID, "a request needs either text or ids");
    if (r->ids) {
        if (r->ids_count < 0 || r->ids_count > PROA_CONTEXT_MAX)
            return PROA_FAIL(err, LIMIT, "%lld ids, at most %d are taken", (long long)r->ids_count,
                             PROA_CONTEXT_MAX);
        PROA_TRY(check_ids(e, "prompt", r->ids, r->ids_count, err));
        *ids = copy_ids(r->ids, r->ids_count);
        *count = r->ids_count;
        return PROA_OK;
    }
    if (!e->tokenizer) return PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer: give ids");
    proa_str text = {r->text, r->text_len ? r->text_len : strlen(r->text)};
    proa_status status = proa_tokenizer_encode(e->tokenizer, text, true, &list, err);
    if (status == PROA_OK)
        status = check_ids(e, "prompt (is the tokenizer of another model?)", list.ptr, list.len, err);
    *count = list.len;
    if (status == PROA_OK) *ids = copy_ids(list.ptr, list.len);
    proa_ids_release(&list);
    return status;
}

static proa_status read_prompt(const proa_engine *e, proa_job *job, const proa_request *r, proa_err *err)
{
    int32_t start = (int32_t)e->model->config.decoder_start;
    proa_kind kind = e->model->arch->kind;
    if (kind == PROA_KIND_DECODER) return read_input(e, r, &job->prompt, &job->prompt_count, err);
    PROA_TRY(read_input(e, r, &job->input, &job->input_count, err));
    if (kind == PROA_KIND_ENCODER) return PROA_OK;
    job->prompt_count = r->decoder_ids ? r->decoder_ids_count : 1;
    if (job->prompt_count < 1 || job->prompt_count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "%lld decoder ids, at least 1 is needed", (long long)job->prompt_count);
    if (!r->decoder_ids && start < 0)
        return PROA_FAIL(err, INVALID, "config.json has no 'decoder_start_token_id': give decoder ids");
    job->prompt = copy_ids(r->decoder_ids ? r->decoder_ids : &start, job->prompt_count);
    return check_ids(e, "decoder prompt", job->prompt, job->prompt_count, err);
}

static proa_status check_length(const char *what, int64_t count, int64_t least, int64_t most, proa_err *err)
{
    if (count < least) return PROA_FAIL(err, INVALID, "the %s is empty", what);
    if (count <= most) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the %s has %lld tokens, the model takes at most %lld", what,
                     (long long)count, (long long)most);
}

static proa_status check_lengths(const proa_engine *e, const proa_job *job, proa_err *err)
{
    int64_t context = e->model->config.context;
    bool generate = job->task == PROA_TASK_GENERATE;
    if (e->model->arch->kind != PROA_KIND_DECODER)
        PROA_TRY(check_length("input", job->input_count, 1, proa_min64(context, e->model->plan.rows_max), err));
    if (e->model->arch->kind == PROA_KIND_ENCODER) return PROA_OK;
    return check_length(job->input ? "decoder prompt" : "prompt", job->prompt_count, 1,
                        generate ? context - 1 : context, err);
}

static proa_status number_range(const char *name, double value, double min, double max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %g, must be %g to %g", name, value, min, max);
}

/* Puts defaults in and checks ranges. */
static proa_status read_options(const proa_engine *e, proa_job *job, proa_err *err)
{
    proa_options *o = &job->options;
    const proa_config *c = &e->model->config;
    if (!(o->given & PROA_GIVEN_LENGTH_PENALTY) && o->length_penalty == 0) o->length_penalty = 1;
    if (o->beams == 0) o->beams = 1;
    PROA_TRY(number_range("max_tokens", o->max_tokens, 0, INT32_MAX, err));
    PROA_TRY(number_range("beams", o->beams, 1, (double)proa_min64(PROA_BEAMS_MAX, e->sizes.sequences_max), err));
    PROA_TRY(number_range("beams_returned", o->beams_returned, 0, o->beams, err));
    PROA_TRY(number_range("length_penalty", (double)o->length_penalty, -100, 100, err));
    PROA_TRY(number_range("early_stopping", o->early_stopping, PROA_EARLY_FALSE, PROA_EARLY_NEVER, err));
    PROA_TRY(number_range("end_ids_count", o->end_ids_count, 0, PROA_END_IDS_MAX, err));
    PROA_TRY(proa_sampler_check(o, err));
    if (o->beams > 1 && o->temperature > 0)
        return PROA_FAIL(err, INVALID,
                         "options 'beams' %d and 'temperature' %g contradict: beam search does not sample",
                         o->beams, (double)o->temperature);
    PROA_TRY(check_ids(e, "end_ids", o->end_ids, o->end_ids_count, err));
    if (o->ignore_eos) o->end_ids_count = 0;
    else if (o->end_ids_count == 0) {
        o->end_ids_count = c->end_count;
        memcpy(o->end_ids, c->end_ids, sizeof o->end_ids);
    }
    return PROA_OK;
}

static proa_status make_beams(const proa_engine *e, proa_job *job, proa_err *err)
{
    const proa_options *o = &job->options;
    proa_beam_options b = {.beams = o->beams,
                           .vocab = e->model->plan.width[PROA_REG_OUT],
                           .max_new = job->new_max,
                           .length_penalty = o->length_penalty,
                           .early = o->early_stopping,
                           .end_ids = o->end_ids,
                           .end_ids_count = o->end_ids_count,
                           .returned = o->beams_returned};
    PROA_TRY(proa_beam_new(&job->beam, &b, err));
    size_t width = (size_t)o->beams;
    job->candidates = proa_beam_candidates(job->beam);
    job->beam_ids = proa_calloc(width * (size_t)job->candidates, sizeof *job->beam_ids);
    job->beam_values = proa_calloc(width * (size_t)job->candidates, sizeof *job->beam_values);
    job->beam_parent = proa_calloc(width, sizeof *job->beam_parent);
    job->beam_token = proa_calloc(width, sizeof *job->beam_token);
    return PROA_OK;
}

/* The most pages that the job can come to hold: the prompt's full ones once, and for each beam all that it writes
 * itself, a copy of the prompt's last page included. */
static int64_t pages_needed(const proa_job *job)
{
    int64_t shared = job->prompt_count / PROA_PAGE_TOKENS;
    int64_t own = proa_pages_for(job->prompt_count + job->new_max) - shared;
    return proa_pages_for(job->input_count) + (job->prompt_count ? shared + own * job->width : 0);
}

/* max_tokens, or its default. An encoder-decoder's output is about as long as its input; one that does not end by then
 * runs on in circles, so it is given twice that. */
static int64_t new_tokens_wanted(const proa_job *job)
{
    if (job->options.max_tokens) return job->options.max_tokens;
    return job->input ? proa_max64(64, 2 * job->input_count) : INT32_MAX;
}

static proa_status plan_job(const proa_engine *e, proa_job *job, proa_err *err)
{
    int64_t room = e->model->config.context - job->prompt_count;
    bool generate = job->task == PROA_TASK_GENERATE;
    job->width = 1;
    if (generate && e->model->arch->kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s does not generate: ask for rows", e->model->arch->name);
    if (generate) {
        PROA_TRY(read_options(e, job, err));
        job->new_max = proa_min64(new_tokens_wanted(job), room);
        job->width = job->options.beams;
        if (job->width > 1) PROA_TRY(make_beams(e, job, err));
    }
    job->reserved = pages_needed(job);
    if (job->reserved > e->pages.count)
        return PROA_FAIL(
            err, LIMIT, "needs room for %lld tokens of keys and values, there is room for %lld (--kv-tokens)",
            (long long)job->reserved * PROA_PAGE_TOKENS, (long long)e->pages.count * PROA_PAGE_TOKENS);
    return PROA_OK;
}

static proa_status make_job(const proa_engine *e, proa_job *job, const proa_request *r, proa_err *err)
{
    if (!r->on_event) return PROA_FAIL(err, INVALID, "a request needs on_event");
    if (r->task != PROA_TASK_GENERATE && r->task != PROA_TASK_ROWS)
        return PROA_FAIL(err, INVALID, "unknown task %d", (int)r->task);
    job->task = r->task;
    job->options = r->options;
    job->on_event = r->on_event;
    job->arg = r->arg;
    PROA_TRY(read_prompt(e, job, r, err));
    PROA_TRY(check_lengths(e, job, err));
    PROA_TRY(plan_job(e, job, err));
    proa_buf_init(&job->text, PROA_TEXT_BYTES_MAX);
    if (e->tokenizer && job->task == PROA_TASK_GENERATE && !job->beam) {
        job->detok = proa_detok_new(e->tokenizer, true);
        if (!proa_buf_reserve(&job->text, 1024)) return PROA_FAIL(err, INTERNAL, "no room for text");
    }
    return PROA_OK;
}

static proa_status enqueue(proa_engine *e, proa_job *job, uint64_t *id, proa_err *err)
{
    proa_status status = PROA_OK;
    pthread_mutex_lock(&e->lock);
    if (e->stats.waiting >= PROA_WAITING_MAX) {
        status = PROA_FAIL(err, LIMIT, "%d requests are waiting already", PROA_WAITING_MAX);
    } else {
        job->id = ++e->next_id;
        if (id) *id = job->id;
        job->submitted_ns = proa_clock_ns();
        job->live_next = e->live;
        e->live = job;
        proa_job_list_push(&e->inbox, job);
        e->stats.submitted++;
        e->stats.waiting++;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id, proa_err *err)
{
    proa_job *job = proa_calloc(1, sizeof *job);
    proa_status status = make_job(engine, job, request, err);
    if (status == PROA_OK) status = enqueue(engine, job, id, err);
    if (status != PROA_OK) proa_job_free(job);
    return status;
}

void proa_engine_cancel(proa_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->lock);
    for (proa_job *job = engine->live; job; job = job->live_next)
        if (job->id == id) atomic_store_explicit(&job->cancelled, true, memory_order_release);
    pthread_mutex_unlock(&engine->lock);
}
