/* SPDX-License-Identifier: Apache-2.0
 * prompt.c - what the model of a request reads: ids or tokenized text, vectors in place of ids, the tokens of a session
 * and of a prompt table before them. Lengths are checked here. */
#include "engine/submit/submit.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/engine.h"
#include <string.h>

/* ---- ids, text and vectors ---- */

/* rows: of the prompt table whose ids follow those of the vocabulary; 0: there is none. */
/* rows: those of a prompt table, whose ids come after the vocabulary. */
static proa_status check_ids(const char *what, const int32_t *ids, int64_t count, int64_t vocab, int64_t rows,
                             proa_err *err)
{
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
    const int64_t vocab = proa_config_input_vocab(&e->model->config);
    proa_ids list = {0}, list_types = {0};
    PROA_TRY(check_sources(e, r, err));
    if (r->ids) {
        if (r->ids_count < 0 || r->ids_count > PROA_CONTEXT_MAX)
            return PROA_FAIL(err, LIMIT, "%lld ids, at most %d are taken", (long long)r->ids_count,
                             PROA_CONTEXT_MAX);
        PROA_TRY(check_ids("prompt", r->ids, r->ids_count, vocab, virtuals, err));
        *ids = copy_ids(r->ids, r->ids_count);
        *count = r->ids_count;
        return r->type_ids ? take_types(e, types, r->type_ids, r->ids_count, err) : PROA_OK;
    }
    proa_status status = encode_text(e, r, special, &list, &list_types, err);
    if (status == PROA_OK)
        status = check_ids("prompt (is the tokenizer of another model?)", list.ptr, list.len, vocab, 0, err);
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

/* ---- sessions ---- */

/* The tokens that the request continues; NULL, and *count 0, if there are none. */
static const int32_t *session_tokens(const proa_engine_request *req, int64_t *count)
{
    *count = 0;
    return req->session && !req->session_begins ? proa_session_tokens(req->session, count) : NULL;
}

proa_status proa_submit_hold_session(proa_engine *e, proa_engine_request *req, const proa_request *r,
                                     proa_err *err)
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

/* Puts the ids of a table, which come after the vocabulary, before others, unless they have some of them themselves.
 * Returns how many it has put. */
static int64_t put_virtuals_first(const proa_prompt_table *table, int32_t **ids, int64_t *count, int64_t vocab)
{
    int64_t tokens = table->tokens;
    for (int64_t i = 0; i < *count; i++)
        if ((*ids)[i] >= vocab) return 0;
    int32_t *all = proa_malloc((size_t)(tokens + *count) * sizeof *all);
    for (int64_t i = 0; i < tokens; i++) all[i] = (int32_t)(vocab + i);
    if (*count) memcpy(all + tokens, *ids, (size_t)*count * sizeof *all);
    free(*ids);
    *ids = all, *count += tokens;
    return tokens;
}

/* The adapter's table before what the decoder reads. */
static proa_status begin_prompt(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_prompt_table *table = req->adapter ? req->adapter->table : NULL;
    if (!table) return PROA_OK;
    if (table->keys && req->prompt_count == 0)
        return PROA_FAIL(err, INVALID, "the prompt is empty: adapter '%.64s' needs a token after its own",
                         req->adapter->name);
    req->virtual_count = put_virtuals_first(table, &req->prompt, &req->prompt_count, e->model->config.vocab);
    req->rows_done = req->virtual_count;
    return PROA_OK;
}

/* And before what the encoder reads: vectors that the caller has made are not continued. */
static proa_status begin_input(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const int64_t vocab = proa_config_input_vocab(&e->model->config);
    const proa_prompt_table *table = req->adapter ? req->adapter->table : NULL;
    if (!table) return PROA_OK;
    if (req->input.embedded)
        return PROA_FAIL(err, UNSUPPORTED,
                         "a request has vectors: adapter '%.64s' needs text or ids after its own",
                         req->adapter->name);
    req->input.virtual_count = put_virtuals_first(table, &req->input.ids, &req->input.count, vocab);
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

/* ---- all of it ---- */

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
    PROA_TRY(begin_prompt(e, req, err));
    PROA_TRY(check_scored(e, req, r, err));
    return proa_prefix_find(&req->prefix, &e->model->config, req->prompt, req->prompt_count, err);
}

/* Of an encoder that tells its global tokens by ids. */
static proa_status check_globals(const proa_engine *e, const proa_engine_request *req, proa_err *err)
{
    const proa_config *c = &e->model->config;
    if (proa_config_globals(c, req->input.ids, req->input.count) >= 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "the input must have %lld separators (token %lld): question, then text",
                     (long long)c->globals_ends, (long long)c->globals_end);
}

static bool is_end(const proa_config *c, int32_t id)
{
    for (int32_t i = 0; i < c->end_count; i++)
        if (c->end_ids[i] == id) return true;
    return false;
}

/* The row of an input that the head computes, if that of the last end token: the first row for other heads. */
static proa_status find_head_row(const proa_engine *e, proa_encoder_source *input, proa_err *err)
{
    const proa_config *c = &e->model->config;
    proa_head_rows rows = e->model->arch->head_rows;
    int64_t row = rows == PROA_ROWS_END ? input->count - 1 : 0;
    while (rows == PROA_ROWS_END && row >= 0 && !is_end(c, input->ids[row])) row--;
    input->head_row = proa_max64(row, 0);
    if (row >= 0 || input->count == 0) return PROA_OK;
    if (c->end_count == 0)
        return PROA_FAIL(err, INVALID, "config.json has no 'eos_token_id', whose row is classified");
    return PROA_FAIL(err, INVALID, "the input has no end token (%d), whose row is classified", c->end_ids[0]);
}

/* What a decoder over the input begins with. */
static proa_status check_decoded_input(const proa_engine *e, const proa_request *r, proa_err *err)
{
    const proa_config *c = &e->model->config;
    if (!proa_arch_decodes_input(e->model->arch)) return PROA_OK;
    if (r->embedded)
        return PROA_FAIL(err, UNSUPPORTED, "a %s takes no vectors: its decoder reads the ids",
                         e->model->arch->name);
    if (c->decoder_start < 0 && !c->starts_with_last)
        return PROA_FAIL(err, INVALID, "config.json has no 'decoder_start_token_id'");
    return PROA_OK;
}

static proa_status read_encoder_input(proa_engine *e, proa_engine_request *req, const proa_request *r,
                                      proa_err *err)
{
    PROA_TRY(check_decoded_input(e, r, err));
    if (req->adapter) req->virtuals = req->adapter->table;
    PROA_TRY(take_table(e, req, r, err));
    int64_t virtuals = req->virtuals && !req->virtuals->keys ? req->virtuals->tokens : 0;
    if (r->embedded || r->encoder_outputs) PROA_TRY(read_embedded(e, req, r, err));
    else
        PROA_TRY(read_input(e, r, true, virtuals, &req->input.ids, &req->input.count, &req->input.types, err));
    PROA_TRY(check_globals(e, req, err));
    PROA_TRY(find_head_row(e, &req->input, err));
    return virtuals ? begin_input(e, req, err) : PROA_OK;
}

/* The decoder of an encoder-decoder begins with the start token, or with the ids that the caller gives. */
static proa_status read_decoder_start(proa_engine *e, proa_engine_request *req, const proa_request *r,
                                      proa_err *err)
{
    int32_t start = (int32_t)e->model->config.decoder_start;
    req->prompt_count = r->decoder_ids ? r->decoder_ids_count : 1;
    if (req->prompt_count < 1 || req->prompt_count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "%lld decoder ids, at least 1 is needed", (long long)req->prompt_count);
    if (!r->decoder_ids && start < 0)
        return PROA_FAIL(err, INVALID, "config.json has no 'decoder_start_token_id': give decoder ids");
    req->prompt = copy_ids(r->decoder_ids ? r->decoder_ids : &start, req->prompt_count);
    PROA_TRY(check_ids("decoder prompt", req->prompt, req->prompt_count, e->model->config.vocab, 0, err));
    bool keys = req->virtuals && req->virtuals->keys && r->task != PROA_TASK_ENCODE;
    return keys ? begin_prompt(e, req, err) : PROA_OK;
}

/* What the encoder and the decoder read. The text of an encoder-decoder goes to its encoder. */
static proa_status read_sources(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    proa_kind kind = e->model->arch->kind;
    if (kind == PROA_KIND_DECODER && (r->embedded || r->encoder_outputs))
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder to take vectors", e->model->arch->name);
    if (kind == PROA_KIND_DECODER) return read_decoder_prompt(e, req, r, err);
    PROA_TRY(read_encoder_input(e, req, r, err));
    return kind == PROA_KIND_ENCODER ? PROA_OK : read_decoder_start(e, req, r, err);
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
    int64_t context = e->model->config.context, inputs = proa_config_input_context(&e->model->config);
    bool generate = req->task == PROA_TASK_GENERATE;
    if (e->model->arch->kind != PROA_KIND_DECODER)
        PROA_TRY(check_length("input", req->input.count, 1, proa_min64(inputs, e->model->plan.rows_max), err));
    if (e->model->arch->kind == PROA_KIND_ENCODER) return PROA_OK;
    return check_length(req->input.ids ? "decoder prompt" : "prompt", req->prompt_count, 1,
                        generate ? context - 1 : context, err);
}

proa_status proa_submit_read_prompt(proa_engine *e, proa_engine_request *req, const proa_request *r, proa_err *err)
{
    PROA_TRY(read_sources(e, req, r, err));
    return check_lengths(e, req, err);
}
