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
    for (int32_t i = 0; i < job->sequences && job->seq; i++) {
        proa_detok_free(job->seq[i].detok);
        proa_stop_release(&job->seq[i].stop);
        proa_buf_release(&job->seq[i].piece);
        proa_buf_release(&job->seq[i].shown);
        free(job->seq[i].ids);
    }
    void *all[] = {job->seq,         job->top,         job->input,      job->prompt, job->beam_ids,
                   job->beam_values, job->beam_parent, job->beam_token, job->path,   job->path_other,
                   job->probs,       job->hidden,      job->embedded,   job->encoded};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
    proa_beam_free(job->beam);
    proa_contrastive_free(job->contrast);
    proa_logits_free(job->logits);
    proa_arena_release(&job->arena);
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
    if (count) memcpy(copy, ids, (size_t)count * sizeof *copy); /* ids is NULL for a text without tokens */
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

/* Vectors in place of ids, which are 0 then. */
static proa_status read_embedded(const proa_engine *e, proa_job *job, const proa_request *r, proa_err *err)
{
    int64_t hidden = e->model->config.hidden, rows = e->model->plan.rows_max;
    if (r->text || r->ids) return PROA_FAIL(err, INVALID, "a request has vectors, and text or ids as well");
    if (r->ids_count < 1 || r->ids_count > rows)
        return PROA_FAIL(err, LIMIT, "%lld vectors, must be 1 to %lld", (long long)r->ids_count, (long long)rows);
    job->input_count = r->ids_count;
    job->input = proa_calloc((size_t)r->ids_count, sizeof *job->input);
    job->embedded = proa_malloc((size_t)(r->ids_count * hidden) * sizeof *job->embedded);
    memcpy(job->embedded, r->embedded, (size_t)(r->ids_count * hidden) * sizeof *job->embedded);
    return PROA_OK;
}

static proa_status read_prompt(const proa_engine *e, proa_job *job, const proa_request *r, proa_err *err)
{
    int32_t start = (int32_t)e->model->config.decoder_start;
    proa_kind kind = e->model->arch->kind;
    if (kind == PROA_KIND_DECODER && r->embedded)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder to take vectors", e->model->arch->name);
    if (kind == PROA_KIND_DECODER) return read_input(e, r, &job->prompt, &job->prompt_count, err);
    if (r->embedded) PROA_TRY(read_embedded(e, job, r, err));
    else PROA_TRY(read_input(e, r, &job->input, &job->input_count, err));
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

/* Words as text become words of ids: as they stand, and with a space before, since most tokenizers tell these apart.
 * The list keeps the ids that were given. */
static proa_status add_banned(const proa_engine *e, proa_ids *ids, proa_ids *ends, const char *prefix,
                              const char *text, proa_err *err)
{
    char word[1024];
    int32_t unknown = -1;
    int64_t before = ids->len;
    int n = snprintf(word, sizeof word, "%s%s", prefix, text);
    if (n < 0 || n >= (int)sizeof word)
        return PROA_FAIL(err, LIMIT, "option 'banned_strings': '%.40s...' is too long", text);
    PROA_TRY(proa_tokenizer_encode(e->tokenizer, proa_str_c(word), false, ids, err));
    bool known = ids->len > before;
    if (proa_tokenizer_find(e->tokenizer, proa_str_c("<unk>"), &unknown) ||
        proa_tokenizer_find(e->tokenizer, proa_str_c("[UNK]"), &unknown))
        for (int64_t i = before; i < ids->len; i++) known = known && ids->ptr[i] != unknown;
    if (!known)
        return PROA_FAIL(err, INVALID, "option 'banned_strings': '%s' is not in the vocabulary", text);
    proa_ids_push(ends, (int32_t)ids->len);
    return PROA_OK;
}

static proa_status ban_strings(const proa_engine *e, proa_job *job, proa_err *err)
{
    proa_options *o = &job->options;
    proa_ids ids = {0}, ends = {0};
    proa_status status = PROA_OK;
    if (o->banned_strings.count == 0) return PROA_OK;
    if (!e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'banned_strings' needs a tokenizer: give banned_words");
    for (int32_t i = 0, n = o->banned_words.count ? o->banned_words.ends[o->banned_words.count - 1] : 0;
         i < n; i++)
        proa_ids_push(&ids, o->banned_words.ids[i]);
    for (int32_t i = 0; i < o->banned_words.count; i++) proa_ids_push(&ends, o->banned_words.ends[i]);
    for (int32_t i = 0; i < o->banned_strings.count && status == PROA_OK; i++) {
        status = add_banned(e, &ids, &ends, "", o->banned_strings.text[i], err);
        if (status == PROA_OK) status = add_banned(e, &ids, &ends, " ", o->banned_strings.text[i], err);
    }
    if (status == PROA_OK) {
        proa_options words = {.banned_words = {ids.ptr, ends.ptr, (int32_t)ends.len}}, copy;
        proa_options_copy(&copy, &words, &job->arena);
        o->banned_words = copy.banned_words;
    }
    proa_ids_release(&ids);
    proa_ids_release(&ends);
    return status;
}

/* Checks, then puts defaults in. Contradictions are looked for again afterwards: the model's own defaults count. */
static proa_status read_options(const proa_engine *e, proa_job *job, const proa_options *given, proa_err *err)
{
    proa_options *o = &job->options;
    const proa_config *c = &e->model->config;
    PROA_TRY(proa_options_check(given, c->vocab, e->sizes.sequences_max, err));
    proa_options_copy(o, given, &job->arena);
    /* the model's default search gives way to the one that was asked for */
    bool other = given->temperature > 0 || given->n > 1 || given->best_of > 1 || given->penalty_alpha > 0;
    if (other && given->beams == 0) o->beams = 1;
    proa_options_resolve(o, &e->defaults);
    bool search = o->penalty_alpha > 0 || (o->beams > 1 && o->style == PROA_STYLE_HF);
    if (search && given->temperature == 0) o->temperature = 0;
    PROA_TRY(proa_options_check(o, c->vocab, e->sizes.sequences_max, err));
    if (o->ignore_eos) o->end_ids_count = 0;
    else if (o->end_ids_count == 0) {
        o->end_ids_count = c->end_count;
        memcpy(o->end_ids, c->end_ids, sizeof o->end_ids);
    }
    if (o->stop_strings.count && !e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'stop_strings' needs a tokenizer: give stop_words");
    return ban_strings(e, job, err);
}

/* M candidates for each of the job's rows. */
static void make_candidates(proa_job *job, int64_t candidates)
{
    size_t width = (size_t)job->width, length = (size_t)job->new_max + 1;
    job->candidates = candidates;
    job->beam_ids = proa_calloc(width * (size_t)candidates, sizeof *job->beam_ids);
    job->beam_values = proa_calloc(width * (size_t)candidates, sizeof *job->beam_values);
    job->beam_parent = proa_calloc(width, sizeof *job->beam_parent);
    job->beam_token = proa_calloc(width, sizeof *job->beam_token);
    if (!job->logits) return;
    job->path = proa_calloc(width * length, sizeof *job->path);
    job->path_other = proa_calloc(width * length, sizeof *job->path_other);
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
                           .returned = o->beams_returned,
                           .style = o->style,
                           .groups = o->beam_groups,
                           .diversity_penalty = o->diversity_penalty,
                           .pad_id = (int32_t)e->model->config.pad,
                           .diversity_rate = o->diversity_rate,
                           .pool = e->model->arch->kind == PROA_KIND_ENCODER_DECODER,
                           .prompt_tokens = job->prompt_count};
    PROA_TRY(proa_beam_new(&job->beam, &b, err));
    make_candidates(job, proa_beam_candidates(job->beam));
    return PROA_OK;
}

static proa_status make_contrast(const proa_engine *e, proa_job *job, proa_err *err)
{
    int64_t hidden = e->model->config.hidden;
    proa_contrastive_options c = {.k = job->width,
                                  .alpha = job->options.penalty_alpha,
                                  .hidden = hidden,
                                  .tokens_max = job->prompt_count + job->new_max};
    PROA_TRY(proa_contrastive_new(&job->contrast, &c, err));
    make_candidates(job, job->width);
    job->probs = proa_calloc((size_t)job->width, sizeof *job->probs);
    job->hidden = proa_calloc((size_t)(job->width * hidden), sizeof *job->hidden);
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

static void make_seq(const proa_engine *e, proa_job *job, proa_seq *seq)
{
    seq->from = -1;
    seq->ids = proa_malloc((size_t)job->new_max * sizeof *seq->ids);
    proa_stop_init(&seq->stop, job->options.stop_strings);
    proa_buf_init(&seq->piece, PROA_TEXT_BYTES_MAX);
    proa_buf_init(&seq->shown, PROA_TEXT_BYTES_MAX);
    if (!e->tokenizer) return;
    seq->detok = proa_detok_new(e->tokenizer, true);
    int64_t text = job->sequences > 1 ? proa_min64(8 * job->new_max, 64 * PROA_KIB) : 0;
    proa_buf_reserve(&seq->piece, 1024); /* so that the decode loop need not */
    proa_buf_reserve(&seq->shown, (size_t)text + 1024);
}

/* All memory that the job's decoding will want. */
static proa_status make_state(const proa_engine *e, proa_job *job, proa_err *err)
{
    const proa_options *o = &job->options;
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    PROA_TRY(proa_logits_new(&job->logits, o, vocab, err));
    int64_t tops = (int64_t)o->top_logprobs * proa_max64(job->width, o->prompt_logprobs ? PROA_HEAD_ROWS : 1);
    if (tops) job->top = proa_calloc((size_t)tops, sizeof *job->top);
    if (o->beams > 1) return make_beams(e, job, err);
    job->sequences = o->penalty_alpha > 0 ? 1 : job->width;
    job->running = job->sequences;
    job->seq = proa_calloc((size_t)job->sequences, sizeof *job->seq);
    for (int32_t i = 0; i < job->sequences; i++) make_seq(e, job, &job->seq[i]);
    return o->penalty_alpha > 0 ? make_contrast(e, job, err) : PROA_OK;
}

/* Candidates are tokens of one row, so there are no more than outputs; beams and sequences may be more. */
static int32_t width_of(const proa_options *o, int64_t outputs)
{
    if (o->penalty_alpha > 0) return (int32_t)proa_min64(o->top_k, outputs);
    return o->beams > 1 ? o->beams : o->best_of > 1 ? o->best_of : 1;
}

static proa_status plan_job(const proa_engine *e, proa_job *job, const proa_options *options, proa_err *err)
{
    int64_t room = e->model->config.context - job->prompt_count;
    bool encoder = e->model->arch->kind == PROA_KIND_ENCODER;
    job->width = 1;
    if (encoder && job->task != PROA_TASK_ROWS && job->task != PROA_TASK_ENCODE)
        return PROA_FAIL(err, UNSUPPORTED, "a %s does not generate: ask for rows", e->model->arch->name);
    if (job->task == PROA_TASK_ENCODE && e->model->arch->kind == PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder", e->model->arch->name);
    if (!encoder && job->task != PROA_TASK_ENCODE) PROA_TRY(read_options(e, job, options, err));
    if (job->task == PROA_TASK_ENCODE)
        job->encoded = proa_malloc((size_t)(job->input_count * e->model->config.hidden) * sizeof *job->encoded);
    if (job->task == PROA_TASK_GENERATE) {
        job->new_max = proa_min64(new_tokens_wanted(job), room);
        job->width = width_of(&job->options, e->model->plan.width[PROA_REG_OUT]);
        PROA_TRY(make_state(e, job, err));
    } else if (job->options.top_logprobs) {
        job->top = proa_calloc((size_t)job->options.top_logprobs * PROA_HEAD_ROWS, sizeof *job->top);
    }
    proa_flight_prepare(job);
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
    if (r->task < PROA_TASK_GENERATE || r->task > PROA_TASK_ENCODE)
        return PROA_FAIL(err, INVALID, "unknown task %d", (int)r->task);
    job->task = r->task;
    job->on_event = r->on_event;
    job->arg = r->arg;
    PROA_TRY(read_prompt(e, job, r, err));
    PROA_TRY(check_lengths(e, job, err));
    return plan_job(e, job, &r->options, err);
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
        job->live_link = &e->live;
        if (e->live) e->live->live_link = &job->live_next;
        e->live = job;
        proa_job_list_push(&e->inbox, job);
        e->stats.submitted++;
        e->stats.waiting++;
        atomic_store_explicit(&e->called, true, memory_order_relaxed);
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
