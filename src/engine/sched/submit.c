/* SPDX-License-Identifier: Apache-2.0
 * submit.c - checks and copies a request and allocates all that its decoding needs; cancel. Runs on the caller's
 * thread and touches only `shared` (under its lock) and what never changes after open. */
#include "engine/access.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/options.h"
#include "engine/engine.h"
#include "engine/request_rows.h"
#include "engine/sched/prefix_cache.h"
#include <string.h>

/* rows: of the prompt table whose ids follow those of the vocabulary; 0: there is none. */
static proa_status check_ids(const proa_engine *e, const char *what, const int32_t *ids, int64_t count,
                             int64_t rows, proa_err *err)
{
    int64_t vocab = e->model->config.vocab;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab + rows)
            return PROA_FAIL(err, INVALID,
                             "%s: token id %d at position %lld is outside of the vocabulary%s (0 to %lld)",
                             what, ids[i], (long long)i, rows ? " and the prompt table" : "",
                             (long long)(vocab + rows) - 1);
    return PROA_OK;
}

static int32_t *copy_ids(const int32_t *ids, int64_t count)
{
    int32_t *copy = proa_malloc((size_t)count * sizeof *copy);
    if (count) memcpy(copy, ids, (size_t)count * sizeof *copy); /* ids is NULL for a text without tokens */
    return copy;
}

/* Token types of an input. Models without token types ignore them, since tokenizers that several models share send
 * them anyway. */
static proa_status take_types(const proa_engine *e, int32_t **types, const int32_t *from, int64_t count,
                              proa_err *err)
{
    const proa_config *c = &e->model->config;
    if (c->types == 0) return PROA_OK;
    for (int64_t i = 0; i < count; i++)
        if (from[i] < 0 || from[i] >= c->types)
            return PROA_FAIL(err, INVALID, "token type %d at position %lld is outside of the model's (0 to %lld)",
                             from[i], (long long)i, (long long)c->types - 1);
    *types = copy_ids(from, count);
    return PROA_OK;
}

static bool has_types(const proa_ids *types)
{
    for (int64_t i = 0; i < types->len; i++)
        if (types->ptr[i]) return true;
    return false;
}

/* The ids of the request's text, or of its pair of texts, with their types. */
static proa_status encode_text(const proa_engine *e, const proa_request *r, bool special, proa_ids *ids,
                               proa_ids *types, proa_err *err)
{
    proa_str text = {r->text, r->text_len ? r->text_len : strlen(r->text)};
    if (!e->tokenizer) return PROA_FAIL(err, UNSUPPORTED, "the model's folder has no tokenizer: give ids");
    if (!r->text_pair) return proa_tokenizer_encode_types(e->tokenizer, text, special, ids, types, err);
    proa_str pair = {r->text_pair, r->text_pair_len ? r->text_pair_len : strlen(r->text_pair)};
    return proa_tokenizer_encode_pair(e->tokenizer, text, pair, true, ids, types, err);
}

static proa_status check_sources(const proa_engine *e, const proa_request *r, proa_err *err)
{
    if (!r->text == !r->ids) return PROA_FAIL(err, INVALID, "a request needs either text or ids");
    if ((r->text_pair || r->type_ids) && e->model->arch->kind != PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s takes no %s", e->model->arch->name,
                         r->text_pair ? "second text" : "token types");
    if (r->ids ? r->text_pair != NULL : r->type_ids != NULL)
        return PROA_FAIL(err, INVALID, "a second text goes with text, token types go with ids");
    return PROA_OK;
}

/* Copies the request's ids, or tokenizes its text, into *ids; token types into *types. special: a text gets the
 * tokenizer's special tokens. virtuals: tokens of a prompt table, which ids may be of, too. */
static proa_status read_input(const proa_engine *e, const proa_request *r, bool special, int64_t virtuals,
                              int32_t **ids, int64_t *count, int32_t **types, proa_err *err)
{
    proa_ids list = {0}, list_types = {0};
    PROA_TRY(check_sources(e, r, err));
    if (r->ids) {
        if (r->ids_count < 0 || r->ids_count > PROA_CONTEXT_MAX)
            return PROA_FAIL(err, LIMIT, "%lld ids, at most %d are taken", (long long)r->ids_count,
                             PROA_CONTEXT_MAX);
        PROA_TRY(check_ids(e, "prompt", r->ids, r->ids_count, virtuals, err));
        *ids = copy_ids(r->ids, r->ids_count);
        *count = r->ids_count;
        return r->type_ids ? take_types(e, types, r->type_ids, r->ids_count, err) : PROA_OK;
    }
    proa_status status = encode_text(e, r, special, &list, &list_types, err);
    if (status == PROA_OK)
        status = check_ids(e, "prompt (is the tokenizer of another model?)", list.ptr, list.len, 0, err);
    if (status == PROA_OK && has_types(&list_types))
        status = take_types(e, types, list_types.ptr, list_types.len, err);
    *count = list.len;
    if (status == PROA_OK) *ids = copy_ids(list.ptr, list.len);
    proa_ids_release(&list);
    proa_ids_release(&list_types);
    return status;
}

/* Input embeddings, or the encoder's outputs, in place of ids; the ids are 0 then. */
static proa_status read_embedded(const proa_engine *e, proa_engine_request *req, const proa_request *r,
                                 proa_err *err)
{
    int64_t hidden = e->model->config.hidden, rows = e->model->plan.rows_max;
    const float *from = r->embedded ? r->embedded : r->encoder_outputs;
    if (r->text || r->ids || r->text_pair || r->type_ids)
        return PROA_FAIL(err, INVALID, "a request has vectors, and text or ids as well");
    if (r->embedded && r->encoder_outputs)
        return PROA_FAIL(err, INVALID, "a request has both embedded and encoder_outputs");
    if (r->encoder_outputs && (e->model->arch->kind == PROA_KIND_ENCODER || r->task == PROA_TASK_ENCODE))
        return PROA_FAIL(err, UNSUPPORTED, "encoder_outputs: there is no decoder that would read them");
    req->input.is_encoded = r->encoder_outputs != NULL;
    if (r->ids_count < 1 || r->ids_count > rows)
        return PROA_FAIL(err, LIMIT, "%lld vectors, must be 1 to %lld", (long long)r->ids_count, (long long)rows);
    req->input.count = r->ids_count;
    req->input.ids = proa_calloc((size_t)r->ids_count, sizeof *req->input.ids);
    if (r->encoder_outputs) req->input.memory = r->encoder_outputs_memory;
    if (req->input.memory.kind == PROA_MEMORY_CUDA) {
        req->input.embedded = (float *)(uintptr_t)from; /* the caller's; it is only read */
        return PROA_OK;
    }
    req->input.embedded = proa_malloc((size_t)(r->ids_count * hidden) * sizeof *req->input.embedded);
    memcpy(req->input.embedded, from, (size_t)(r->ids_count * hidden) * sizeof *req->input.embedded);
    return PROA_OK;
}

/* The tokens that the request continues; NULL, and *count 0, if there are none. */
static const int32_t *session_tokens(const proa_engine_request *req, int64_t *count)
{
    *count = 0;
    return req->session && !req->session_begins ? proa_session_tokens(req->session, count) : NULL;
}

static proa_status hold_session(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    if (!r->session_id && (r->session_continues || r->session_begins || r->session_ends))
        return PROA_FAIL(err, INVALID, "session_continues, session_begins and session_ends need a session_id");
    if (r->session_continues && r->session_begins)
        return PROA_FAIL(err, INVALID, "session_continues and session_begins exclude each other");
    if (!r->session_id) return PROA_OK;
    if (e->model->arch->kind != PROA_KIND_DECODER || r->task != PROA_TASK_GENERATE)
        return PROA_FAIL(err, UNSUPPORTED, "session_id: sessions are for texts that a decoder generates");
    req->session_begins = r->session_begins;
    req->session_ends = r->session_ends;
    return proa_sessions_begin(&e->sessions, &req->session, r->session_id, r->session_continues, err);
}

/* Puts the tokens of the session before the prompt. */
static proa_status continue_session(proa_engine_request *req, proa_err *err)
{
    int64_t before;
    const int32_t *tokens = session_tokens(req, &before);
    if (!before) return PROA_OK;
    int64_t count = before + req->prompt_count;
    if (count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT, "the session has %lld tokens and the prompt %lld, at most %d are taken",
                         (long long)before, (long long)req->prompt_count, PROA_CONTEXT_MAX);
    int32_t *ids = proa_malloc((size_t)count * sizeof *ids);
    memcpy(ids, tokens, (size_t)before * sizeof *ids);
    if (req->prompt_count) memcpy(ids + before, req->prompt, (size_t)req->prompt_count * sizeof *ids);
    free(req->prompt);
    req->prompt = ids;
    req->prompt_count = count;
    return PROA_OK;
}

/* ---- virtual tokens ---- */

/* The table's numbers stay in the caller's memory on the GPU. */
static proa_status use_device_table(const proa_engine *e, proa_engine_request *req, const proa_request *r,
                                    proa_err *err)
{
    PROA_TRY(proa_prompt_table_check(e->model, r->prompt_table_rows, false, err));
    proa_prompt_table *table = PROA_ARENA_NEW(&req->arena, proa_prompt_table, 1);
    table->tokens = r->prompt_table_rows;
    table->width = proa_prompt_table_width(e->model, false);
    table->device_values = r->prompt_table;
    req->table_memory = r->prompt_table_memory;
    req->virtuals = table;
    return PROA_OK;
}

/* The prompt table that the request brings. */
static proa_status take_table(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    proa_prompt_table *table;
    if (!r->prompt_table) return PROA_OK;
    if (req->virtuals)
        return PROA_FAIL(err, INVALID, "prompt_table: adapter '%.64s' has a prompt table itself",
                         req->adapter->name);
    if (req->session) return PROA_FAIL(err, UNSUPPORTED, "prompt_table: a session's prompts have none");
    if (!r->ids)
        return PROA_FAIL(err, INVALID, "prompt_table: its rows are used by ids, a text has none of them");
    if (r->prompt_table_memory.kind == PROA_MEMORY_CUDA) return use_device_table(e, req, r, err);
    PROA_TRY(proa_prompt_table_new(&table, e->model, r->prompt_table_rows, false, err));
    memcpy(table->values, r->prompt_table, (size_t)(table->tokens * table->width) * sizeof *table->values);
    req->table = proa_adapters_ref_table(&e->adapters, table);
    req->virtuals = req->table->table;
    return PROA_OK;
}

static bool has_virtuals(const proa_engine *e, const proa_engine_request *req)
{
    for (int64_t i = 0; i < req->prompt_count; i++)
        if (req->prompt[i] >= e->model->config.vocab) return true;
    return false;
}

/* Puts the ids of the adapter's table before the prompt, unless it has some of them itself. */
static proa_status put_virtuals_first(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_prompt_table *table = req->adapter ? req->adapter->table : NULL;
    if (!table || has_virtuals(e, req)) return PROA_OK;
    if (table->keys && req->prompt_count == 0)
        return PROA_FAIL(err, INVALID, "the prompt is empty: adapter '%.64s' needs a token after its own",
                         req->adapter->name);
    int64_t count = table->tokens + req->prompt_count;
    int32_t *ids = proa_malloc((size_t)count * sizeof *ids);
    for (int64_t i = 0; i < table->tokens; i++) ids[i] = (int32_t)(e->model->config.vocab + i);
    if (req->prompt_count) memcpy(ids + table->tokens, req->prompt, (size_t)req->prompt_count * sizeof *ids);
    free(req->prompt);
    req->prompt = ids;
    req->prompt_count = count;
    req->virtual_count = req->rows_done = table->tokens;
    return PROA_OK;
}

/* Log-probabilities of a prompt's tokens: those of its table have none. */
static proa_status check_scored(const proa_engine *e, const proa_engine_request *req, const proa_request *r,
                                proa_err *err)
{
    bool scored = r->task == PROA_TASK_SCORE || r->options.prompt_logprobs;
    for (int64_t i = req->virtual_count; scored && i < req->prompt_count; i++)
        if (req->prompt[i] >= e->model->config.vocab)
            return PROA_FAIL(
                err, INVALID, "prompt_table: token %lld of the prompt is of the table and has no log-probability",
                (long long)(i - req->virtual_count));
    return PROA_OK;
}

static proa_status read_decoder_prompt(proa_engine *e, proa_engine_request *req, const proa_request *r,
                                       proa_err *err)
{
    int64_t before;
    bool begins = !session_tokens(req, &before);
    if (req->adapter) req->virtuals = req->adapter->table;
    PROA_TRY(take_table(e, req, r, err));
    int64_t virtuals = req->virtuals && !req->virtuals->keys ? req->virtuals->tokens : 0;
    PROA_TRY(read_input(e, r, begins, virtuals, &req->prompt, &req->prompt_count, &req->input.types, err));
    PROA_TRY(continue_session(req, err));
    PROA_TRY(put_virtuals_first(e, req, err));
    PROA_TRY(check_scored(e, req, r, err));
    return proa_prefix_find(&req->prefix, &e->model->config, req->prompt, req->prompt_count, err);
}

/* What the encoder and the decoder read. The text of an encoder-decoder goes to its encoder; its decoder begins with
 * the start token, or with the ids that the caller gives. */
static proa_status read_prompt(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    int32_t start = (int32_t)e->model->config.decoder_start;
    proa_kind kind = e->model->arch->kind;
    if (kind == PROA_KIND_DECODER && (r->embedded || r->encoder_outputs))
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder to take vectors", e->model->arch->name);
    if (kind == PROA_KIND_DECODER) return read_decoder_prompt(e, req, r, err);
    PROA_TRY(take_table(e, req, r, err));
    int64_t virtuals = req->virtuals ? req->virtuals->tokens : 0;
    if (r->embedded || r->encoder_outputs) PROA_TRY(read_embedded(e, req, r, err));
    else
        PROA_TRY(read_input(e, r, true, virtuals, &req->input.ids, &req->input.count, &req->input.types, err));
    if (kind == PROA_KIND_ENCODER) return PROA_OK;
    req->prompt_count = r->decoder_ids ? r->decoder_ids_count : 1;
    if (req->prompt_count < 1 || req->prompt_count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "%lld decoder ids, at least 1 is needed", (long long)req->prompt_count);
    if (!r->decoder_ids && start < 0)
        return PROA_FAIL(err, INVALID, "config.json has no 'decoder_start_token_id': give decoder ids");
    req->prompt = copy_ids(r->decoder_ids ? r->decoder_ids : &start, req->prompt_count);
    return check_ids(e, "decoder prompt", req->prompt, req->prompt_count, 0, err);
}

static proa_status check_length(const char *what, int64_t count, int64_t least, int64_t most, proa_err *err)
{
    if (count < least) return PROA_FAIL(err, INVALID, "the %s is empty", what);
    if (count <= most) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the %s has %lld tokens, the model takes at most %lld", what,
                     (long long)count, (long long)most);
}

static proa_status check_lengths(const proa_engine *e, const proa_engine_request *req, proa_err *err)
{
    int64_t context = e->model->config.context;
    bool generate = req->task == PROA_TASK_GENERATE;
    if (e->model->arch->kind != PROA_KIND_DECODER)
        PROA_TRY(check_length("input", req->input.count, 1, proa_min64(context, e->model->plan.rows_max), err));
    if (e->model->arch->kind == PROA_KIND_ENCODER) return PROA_OK;
    return check_length(req->input.ids ? "decoder prompt" : "prompt", req->prompt_count, 1,
                        generate ? context - 1 : context, err);
}

/* Appends the ids of a banned string to the list. Each string is added with and without a space before it, since most
 * tokenizers encode the two differently. */
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

static proa_status ban_strings(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    proa_options *o = &req->options;
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
        proa_options_copy(&copy, &words, &req->arena);
        o->banned_words = copy.banned_words;
    }
    proa_ids_release(&ids);
    proa_ids_release(&ends);
    return status;
}

/* A request's kind of search replaces the model's default one. */
static void replace_search(proa_options *o, const proa_options *given)
{
    bool other = given->temperature > 0 || given->n > 1 || given->best_of > 1 || given->penalty_alpha > 0;
    if (other && given->beams == 0) o->beams = 1;
    if (given->beams > 1 && given->n == 0) o->n = 1;
    if (other || given->beams > 1) o->given[PROA_OPTION_penalty_alpha] = true;
}

/* The least number of new tokens of a decoder whose generation_config.json has min_length. */
static void take_length_min(proa_options *o, const proa_options *given, int64_t more)
{
    bool least_given = given->min_tokens || given->given[PROA_OPTION_min_tokens];
    if (!least_given && more > 0) o->min_tokens = (int32_t)proa_min64(more, PROA_CONTEXT_MAX);
}

static void resolve_options(proa_options *o, const proa_options *given, const proa_options *defaults)
{
    replace_search(o, given);
    proa_options_resolve(o, defaults);
    if (given->beams_returned == 0 && o->beams_returned > o->beams) o->beams_returned = 0;
    bool search = o->penalty_alpha > 0 || (o->beams > 1 && o->style == PROA_STYLE_HF);
    if (search && given->temperature == 0) o->temperature = 0;
}

static void take_end_ids(proa_options *o, const proa_config *c)
{
    bool endless = o->ignore_eos &&
                   !proa_options_constrain(o); /* a grammar's text ends by an end token all the same */
    if (endless) o->end_ids_count = 0;
    else if (o->end_ids_count == 0) {
        o->end_ids_count = c->end_count;
        memcpy(o->end_ids, c->end_ids, sizeof o->end_ids);
    }
}

/* Checks the options, fills in defaults, and checks again: the model's own defaults can contradict what was given. */
static proa_status read_options(const proa_engine *e, proa_engine_request *req, const proa_options *given,
                                proa_err *err)
{
    proa_options *o = &req->options;
    const proa_config *c = &e->model->config;
    PROA_TRY(proa_options_check(given, c->vocab, e->sizes.sequences_max, err));
    proa_options_copy(o, given, &req->arena);
    resolve_options(o, given, &e->defaults);
    req->emits_logits = o->return_logits;
    o->return_logits = o->return_logits || req->rows.logits;
    bool there = (req->rows.memory.kind == PROA_MEMORY_HOST) == e->model->device->host;
    req->rows_in_place = there && !e->model->group && !req->emits_scores && !req->emits_logits;
    take_length_min(o, given, e->length_min - req->prompt_count);
    PROA_TRY(proa_options_check(o, c->vocab, e->sizes.sequences_max, err));
    take_end_ids(o, c);
    if (o->stop_strings.count && !e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'stop_strings' needs a tokenizer: give stop_words");
    return ban_strings(e, req, err);
}

/* transformers' do_sample with num_beams. */
static bool is_sampled_search(const proa_options *o)
{
    return o->beams > 1 && o->style == PROA_STYLE_HF && o->temperature > 0;
}

/* Arrays for M candidates of each row. */
static void make_candidates(proa_engine_request *req, int64_t candidates)
{
    size_t width = (size_t)req->width, length = (size_t)req->new_max + 1;
    req->search.candidates = candidates;
    req->search.ids = proa_calloc(width * (size_t)candidates, sizeof *req->search.ids);
    req->search.logprobs = proa_calloc(width * (size_t)candidates, sizeof *req->search.logprobs);
    req->search.parent = proa_calloc(width, sizeof *req->search.parent);
    req->search.token = proa_calloc(width, sizeof *req->search.token);
    if (is_sampled_search(&req->options))
        req->search.numbers = proa_calloc(width * (size_t)candidates, sizeof *req->search.numbers);
    if (!req->logits && !req->search.numbers) return;
    req->search.path = proa_calloc(width * length, sizeof *req->search.path);
    req->search.path_next = proa_calloc(width * length, sizeof *req->search.path_next);
}

static proa_status make_beams(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_options *o = &req->options;
    proa_beam_options b = {.beams = o->beams,
                           .vocab = e->model->plan.width[PROA_REG_OUT],
                           .max_new = req->new_max,
                           .length_penalty = o->length_penalty,
                           .early = o->early_stopping,
                           .end_ids = o->end_ids,
                           .end_ids_count = o->end_ids_count,
                           .returned = o->beams_returned,
                           .style = o->style,
                           .sampled = is_sampled_search(o),
                           .groups = o->beam_groups,
                           .diversity_penalty = o->diversity_penalty,
                           .pad_id = (int32_t)e->model->config.pad,
                           .diversity_rate = o->diversity_rate,
                           .pool = e->model->arch->kind == PROA_KIND_ENCODER_DECODER,
                           .prompt_tokens = req->prompt_count};
    PROA_TRY(proa_beam_new(&req->search.beam, &b, err));
    if (req->scores) req->search.scores_row = proa_malloc((size_t)b.vocab * sizeof *req->search.scores_row);
    make_candidates(req, proa_beam_candidates(req->search.beam));
    return PROA_OK;
}

static proa_status make_contrast(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    int64_t hidden = proa_model_hidden_width(e->model);
    proa_contrastive_options c = {.k = req->width,
                                  .alpha = req->options.penalty_alpha,
                                  .hidden = hidden,
                                  .tokens_max = req->prompt_count + req->new_max};
    PROA_TRY(proa_contrastive_new(&req->search.contrast, &c, err));
    make_candidates(req, req->width);
    req->search.probs = proa_calloc((size_t)req->width, sizeof *req->search.probs);
    req->search.hidden = proa_calloc((size_t)(req->width * hidden), sizeof *req->search.hidden);
    return PROA_OK;
}

/* The most pages that the request can hold at once: the full pages of the prompt once, and for each sequence or
 * beam the pages that it writes itself, a copy of the prompt's last page included. */
static int64_t pages_needed(const proa_engine_request *req)
{
    int64_t shared = req->prompt_count / PROA_PAGE_TOKENS;
    int64_t own = proa_kv_pages_for(req->prompt_count + req->new_max) - shared;
    return proa_kv_pages_for(req->input.count) + (req->prompt_count ? shared + own * req->width : 0);
}

/* max_tokens, or its default: max_length of a decoder's generation_config.json. Without one the output of an
 * encoder-decoder model is about as long as its input; one that has not ended by twice that length repeats itself,
 * so it is cut there. */
static int64_t new_tokens_wanted(const proa_engine *e, const proa_engine_request *req)
{
    if (req->options.max_tokens) return req->options.max_tokens;
    if (e->length_max) return proa_max64(1, e->length_max - req->prompt_count);
    return req->input.ids ? proa_max64(64, 2 * req->input.count) : INT32_MAX;
}

static void make_seqs(proa_engine_request *req)
{
    req->seq = proa_calloc((size_t)req->width, sizeof *req->seq);
    for (int32_t i = 0; i < req->width; i++)
        req->seq[i] = (proa_seq){.req = req,
                                 .index = i,
                                 .known = req->prompt_count,
                                 .sampled_at = -1,
                                 .rows_valid = INT64_MAX,
                                 .seed = proa_seed_of(req->options.seed, i)};
}

/* What a sequence needs that emits tokens. */
static void make_output(const proa_engine *e, const proa_engine_request *req, proa_seq *seq)
{
    seq->ids = proa_malloc((size_t)req->new_max * sizeof *seq->ids);
    proa_stop_init(&seq->stop, req->options.stop_strings);
    proa_buf_init(&seq->piece, PROA_TEXT_BYTES_MAX);
    proa_buf_init(&seq->shown, PROA_TEXT_BYTES_MAX);
    if (!e->tokenizer) return;
    seq->detok = proa_detok_new(e->tokenizer, true);
    proa_detok_show(seq->detok, req->visible, req->visible_count);
    int64_t text = req->sequences > 1 ? proa_min64(8 * req->new_max, 64 * PROA_KIB) : 0;
    proa_buf_reserve(&seq->piece, 1024); /* the decode loop allocates nothing */
    proa_buf_reserve(&seq->shown, (size_t)text + 1024);
}

/* The grammar of the options; which option it is. False: none. */
static bool grammar_of(const proa_options *o, proa_grammar_source *source, const char **option)
{
    const char *text = NULL;
    *source = (proa_grammar_source){.choices = o->choice.text, .choices_count = o->choice.count};
    if (o->json_schema)
        source->kind = PROA_GRAMMAR_JSON_SCHEMA, text = o->json_schema, *option = "json_schema";
    else if (o->regex) source->kind = PROA_GRAMMAR_REGEX, text = o->regex, *option = "regex";
    else if (o->grammar) source->kind = PROA_GRAMMAR_EBNF, text = o->grammar, *option = "grammar";
    else if (o->json_object) source->kind = PROA_GRAMMAR_JSON_OBJECT, *option = "json_object";
    else if (o->choice.count) source->kind = PROA_GRAMMAR_CHOICE, *option = "choice";
    else return false;
    source->text = proa_str_c(text);
    return true;
}

/* Compiles the request's grammar, or finds it among those that were used before. */
static proa_status make_grammar(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    proa_grammar_source source;
    proa_matcher *grammar;
    const char *option;
    if (!grammar_of(&req->options, &source, &option)) return PROA_OK;
    if (!e->grammars)
        return PROA_FAIL(err, UNSUPPORTED,
                         "option '%s' needs a tokenizer, which the model's folder does not have", option);
    if (req->options.end_ids_count == 0)
        return PROA_FAIL(err, INVALID, "option '%s' needs an end token: give end_ids", option);
    proa_status status = proa_grammars_get(e->grammars, &source, &grammar, err);
    if (status == PROA_OK) proa_logits_processor_set_grammar(req->logits, grammar);
    else proa_err_prefix(err, "option '%s'", option);
    return status;
}

/* Allocates all that decoding needs, so that steps allocate nothing. */
static proa_status make_state(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_options *o = &req->options;
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    proa_options processed = *o;
    processed.max_tokens = (int32_t)req->new_max;
    PROA_TRY(proa_logits_processor_new(&req->logits, &processed, vocab, err));
    PROA_TRY(make_grammar(e, req, err));
    int64_t tops = (int64_t)o->top_logprobs * proa_max64(req->width, o->prompt_logprobs ? PROA_HEAD_ROWS : 1);
    if (tops) req->top = proa_calloc((size_t)tops, sizeof *req->top);
    if (o->beams > 1) return make_beams(e, req, err);
    req->sequences = o->penalty_alpha > 0 ? 1 : req->width;
    req->running = req->sequences;
    for (int32_t i = 0; i < req->sequences; i++) make_output(e, req, &req->seq[i]);
    return o->penalty_alpha > 0 ? make_contrast(e, req, err) : PROA_OK;
}

/* Rows of a decoding step. Candidates are distinct tokens of one row, so there are at most as many as outputs. */
static int32_t width_of(const proa_options *o, int64_t outputs)
{
    if (o->penalty_alpha > 0) return (int32_t)proa_min64(o->top_k, outputs);
    return o->beams > 1 ? o->beams : o->best_of > 1 ? o->best_of : 1;
}

/* Task ENCODE: room for the hidden states of its event. */
static void make_encoded(const proa_engine *e, proa_engine_request *req)
{
    if (req->task != PROA_TASK_ENCODE || req->rows.hidden) return;
    req->encoded = proa_malloc((size_t)(req->input.count * e->model->config.hidden) * sizeof *req->encoded);
}

/* Sets the sizes of the request (sequences, new tokens, pages that it may need) and allocates what decoding will use,
 * so that steps allocate nothing. */
static proa_status plan_request(const proa_engine *e, proa_engine_request *req, const proa_options *options,
                                proa_err *err)
{
    int64_t room = e->model->config.context - req->prompt_count;
    bool encoder = e->model->arch->kind == PROA_KIND_ENCODER;
    req->width = 1;
    if (encoder && req->task != PROA_TASK_ROWS && req->task != PROA_TASK_ENCODE)
        return PROA_FAIL(err, UNSUPPORTED, "a %s does not generate: ask for rows", e->model->arch->name);
    if (req->task == PROA_TASK_ENCODE && e->model->arch->kind == PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder", e->model->arch->name);
    if (!encoder && req->task != PROA_TASK_ENCODE) PROA_TRY(read_options(e, req, options, err));
    make_encoded(e, req);
    if (req->task == PROA_TASK_GENERATE) {
        req->new_max = proa_min64(new_tokens_wanted(e, req), room);
        req->width = width_of(&req->options, e->model->plan.width[PROA_REG_OUT]);
        make_seqs(req);
        PROA_TRY(make_state(e, req, err));
    } else if (req->options.top_logprobs) {
        req->top = proa_calloc((size_t)req->options.top_logprobs * PROA_HEAD_ROWS, sizeof *req->top);
    }
    if (!req->seq) make_seqs(req);
    req->options.priority = options->priority, req->options.timeout_ms = options->timeout_ms;
    proa_async_step_prepare(e, req);
    PROA_TRY(proa_speculate_prepare(e, req, err));
    req->reserved = pages_needed(req);
    req->keeps_pages = !e->sizes.evicts || req->search.candidates || req->new_max == 0;
    if (req->reserved > e->pages.count)
        return PROA_FAIL(
            err, LIMIT, "needs room for %lld tokens of keys and values, there is room for %lld (--kv-tokens)",
            (long long)req->reserved * PROA_PAGE_TOKENS, (long long)e->pages.count * PROA_PAGE_TOKENS);
    return PROA_OK;
}

/* Memory of the device for outputs of an encoder. */
static proa_status take_place(const proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    if ((r->head_to || r->pooled_to || r->rows_to) && r->task != PROA_TASK_ROWS)
        return PROA_FAIL(err, UNSUPPORTED, "head_to, pooled_to and rows_to are for task rows");
    if (r->head_to && !proa_engine_has_head_row(e))
        return PROA_FAIL(err, UNSUPPORTED, "head_to: this model's head does not compute one row of an input");
    if (r->pooled_to && !proa_engine_has_pooler(e))
        return PROA_FAIL(err, UNSUPPORTED, "pooled_to: this model has no pooler");
    if (r->rows_to && !proa_engine_is_headless(e))
        return PROA_FAIL(err, UNSUPPORTED, "rows_to: the rows of this model are not its outputs");
    req->input.place = (proa_encoder_place){.head = r->head_to, .pooled = r->pooled_to, .rows = r->rows_to};
    return PROA_OK;
}

static void take_visible(proa_engine_request *req, const proa_request *r)
{
    if (r->visible_ids_count <= 0) return;
    int32_t *ids = PROA_ARENA_NEW(&req->arena, int32_t, r->visible_ids_count);
    memcpy(ids, r->visible_ids, (size_t)r->visible_ids_count * sizeof *ids);
    req->visible = ids;
    req->visible_count = r->visible_ids_count;
}

static proa_status make_request(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    if (!r->on_event) return PROA_FAIL(err, INVALID, "a request needs on_event");
    if (r->task < PROA_TASK_GENERATE || r->task > PROA_TASK_ENCODE)
        return PROA_FAIL(err, INVALID, "unknown task %d", (int)r->task);
    req->task = r->task;
    req->emits_scores = r->scores;
    req->scores = r->scores || r->rows.scores;
    req->rows = r->rows;
    req->on_event = r->on_event;
    req->arg = r->arg;
    if (r->client && strlen(r->client) > PROA_CLIENT_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "client: a name of %zu bytes, at most %d are taken", strlen(r->client),
                         PROA_CLIENT_BYTES_MAX);
    take_visible(req, r);
    PROA_TRY(proa_request_rows_check(e, r, err));
    PROA_TRY(take_place(e, req, r, err));
    PROA_TRY(hold_session(e, req, r, err));
    PROA_TRY(proa_adapters_ref(&e->adapters, r->options.adapter, &req->adapter, err));
    PROA_TRY(read_prompt(e, req, r, err));
    PROA_TRY(check_lengths(e, req, err));
    PROA_TRY(plan_request(e, req, &r->options, err));
    if (req->session && req->sequences != 1)
        return PROA_FAIL(err, INVALID, "a session has one sequence: 'n', 'best_of' and 'beams' must be 1");
    proa_prefix_cache_prepare(e, req, r);
    return PROA_OK;
}

/* Under the lock: whether `count` more requests may wait. */
static proa_status check_room(const proa_engine *e, int64_t count, proa_err *err)
{
    if (e->shared.lost.status != PROA_OK) return PROA_FAIL(err, UNAVAILABLE, "%s", e->shared.lost.text);
    if (count <= PROA_WAITING_MAX - e->shared.stats.waiting) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "%d requests are waiting already, at most %d may wait",
                     e->shared.stats.waiting, PROA_WAITING_MAX);
}

/* Under the lock. to: the inbox, or the list of those that are held. */
static uint64_t enqueue_request(proa_engine *e, proa_engine_request *req, proa_request_list *to, const char *client)
{
    req->id = ++e->shared.next_id;
    req->usage.submitted_ns = proa_clock_ns();
    if (req->options.timeout_ms > 0)
        req->deadline_ns = req->usage.submitted_ns + (int64_t)1000000 * req->options.timeout_ms;
    req->queue = proa_client_queue_take(&e->shared, client ? client : "", req->options.priority);
    req->live_next = e->shared.live;
    req->live_link = &e->shared.live;
    if (e->shared.live) e->shared.live->live_link = &req->live_next;
    e->shared.live = req;
    proa_request_list_push(to, req);
    e->shared.stats.submitted++;
    e->shared.stats.waiting++;
    return req->id;
}

/* All or none. The stepping thread finds them together. ids: [count] or NULL. */
static proa_status enqueue_all(proa_engine *e, proa_engine_request *const *reqs, const proa_request *requests,
                               int64_t count, proa_request_list *to, uint64_t *ids, proa_err *err)
{
    pthread_mutex_lock(&e->shared.lock);
    proa_status status = check_room(e, count, err);
    for (int64_t i = 0; i < count && status == PROA_OK; i++) {
        uint64_t id = enqueue_request(e, reqs[i], to, requests[i].client);
        if (ids) ids[i] = id;
    }
    if (status == PROA_OK) {
        atomic_store_explicit(&e->shared.work_signalled, true, memory_order_relaxed);
        pthread_cond_signal(&e->shared.work);
    }
    pthread_mutex_unlock(&e->shared.lock);
    return status;
}

static proa_status submit_to(proa_engine *e, const proa_request *requests, int64_t count,
                             proa_request_list *to, uint64_t *ids, proa_err *err)
{
    proa_status status = PROA_OK;
    proa_engine_request **reqs = proa_calloc((size_t)count, sizeof(proa_engine_request *));
    for (int64_t i = 0; i < count && status == PROA_OK; i++) {
        reqs[i] = proa_calloc(1, sizeof *reqs[i]);
        status = make_request(e, reqs[i], &requests[i], err);
    }
    if (status == PROA_OK) status = enqueue_all(e, reqs, requests, count, to, ids, err);
    for (int64_t i = 0; i < count && status != PROA_OK; i++)
        if (reqs[i]) proa_engine_request_free(reqs[i]);
    free(reqs);
    return status;
}

proa_status proa_engine_submit(proa_engine *engine, const proa_request *request, uint64_t *id, proa_err *err)
{
    return submit_to(engine, request, 1, &engine->shared.inbox, id, err);
}

proa_status proa_engine_submit_all(proa_engine *engine, const proa_request *requests, int64_t count,
                                   uint64_t *ids, proa_err *err)
{
    if (count < 1 || count > PROA_WAITING_MAX)
        return PROA_FAIL(err, LIMIT, "'count' of requests is %lld, must be 1 to %d", (long long)count,
                         PROA_WAITING_MAX);
    return submit_to(engine, requests, count, &engine->shared.inbox, ids, err);
}

proa_status proa_engine_hold(proa_engine *engine, const proa_request *request, uint64_t *id, proa_err *err)
{
    return submit_to(engine, request, 1, &engine->shared.held, id, err);
}

static bool has_id(void *arg, proa_engine_request *req)
{
    return req->id == *(const uint64_t *)arg;
}

/* Under the lock. A held request that is cancelled ends as soon as others do. */
static void release_held(proa_engine_shared *shared, uint64_t id)
{
    if (!proa_request_list_split(&shared->held, &shared->inbox, has_id, &id)) return;
    atomic_store_explicit(&shared->work_signalled, true, memory_order_relaxed);
    pthread_cond_signal(&shared->work);
}

void proa_engine_release(proa_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->shared.lock);
    release_held(&engine->shared, id);
    pthread_mutex_unlock(&engine->shared.lock);
}

void proa_engine_cancel(proa_engine *engine, uint64_t id)
{
    pthread_mutex_lock(&engine->shared.lock);
    release_held(&engine->shared, id);
    for (proa_engine_request *req = engine->shared.live; req; req = req->live_next)
        if (req->id == id) atomic_store_explicit(&req->cancelled, true, memory_order_release);
    pthread_mutex_unlock(&engine->shared.lock);
}
