/* SPDX-License-Identifier: Apache-2.0
 * contract_native.c - the backend `engine`: Proa's own contract of tensors and parameters (README.md). */
#include "backends/backends.h"
#include "backends/llm/contract_native.h"
#include "backends/llm/settings.h"
#include "backends/tensors/io_shapes.h"

#include "base/file.h"
#include "base/limits.h"
#include "serve/config/config.h"
#include <string.h>

static const proa_io_row inputs[] = {{"text_input", T(STRING), ONE, OPTIONAL},
                                     {"input_ids", T(INT32), ANY_1D, OPTIONAL},
                                     {"messages", T(STRING), ONE, OPTIONAL},
                                     {"decoder_input_ids", T(INT32), ANY_1D, OPTIONAL},
                                     {"task", T(STRING), ONE, OPTIONAL},
                                     {"stream", T(BOOL), ONE, OPTIONAL},
                                     {"echo", T(BOOL), ONE, OPTIONAL},
                                     {"options", T(STRING), ONE, OPTIONAL},
                                     {.name = NULL}};
static const proa_io_row generator_outputs[] = {{"text_output", T(STRING), ANY_1D, 0},
                                                {"output_ids", T(INT32), ANY_2D, 0},
                                                {"sequence_length", T(INT32), ANY_1D, 0},
                                                {"sequence_index", T(INT32), ANY_1D, 0},
                                                {"finish_reason", T(STRING), ANY_1D, 0},
                                                {"prompt_tokens", T(INT32), ONE, 0},
                                                {"completion_tokens", T(INT32), ANY_1D, 0},
                                                {"cum_log_probs", T(FP32), ANY_1D, 0},
                                                {"output_log_probs", T(FP32), ANY_2D, 0},
                                                {"scores", T(FP32), ANY_1D, 0},
                                                {"token_text", T(STRING), ANY_2D, 0},
                                                {"top_ids", T(INT32), ANY_3D, 0},
                                                {"top_log_probs", T(FP32), ANY_3D, 0},
                                                {"top_text", T(STRING), ANY_3D, 0},
                                                {"prompt_ids", T(INT32), ANY_1D, 0},
                                                {"prompt_log_probs", T(FP32), ANY_1D, 0},
                                                {"prompt_text", T(STRING), ANY_1D, 0},
                                                {"prompt_top_ids", T(INT32), ANY_2D, 0},
                                                {"prompt_top_log_probs", T(FP32), ANY_2D, 0},
                                                {"prompt_top_text", T(STRING), ANY_2D, 0},
                                                {"logits", T(FP32), ANY_3D, 0},
                                                {"hidden", T(FP32), ANY_3D, 0},
                                                {"rows", T(FP32), ANY_2D, 0},
                                                {"embedding", T(FP32), ANY_1D, 0},
                                                {.name = NULL}};
static const proa_io_row encoder_outputs[] = {
    {"rows", T(FP32), ANY_2D, 0},        {"embedding", T(FP32), ANY_1D, 0},
    {"logits", T(FP32), ANY_1D, 0},      {"scores", T(FP32), ANY_1D, 0},
    {"label", T(STRING), ONE, 0},        {"labels", T(STRING), ANY_1D, 0},
    {"prompt_tokens", T(INT32), ONE, 0}, {.name = NULL}};

/* Encoders have these inputs as well. */
static const proa_io_row pair_inputs[] = {
    {"text_pair", T(STRING), ONE, OPTIONAL}, {"token_type_ids", T(INT32), ANY_1D, OPTIONAL}, {.name = NULL}};

/* An encoder with a batch dimension: rows of prompts, each answered by one row. */
static const proa_io_row batch_inputs[] = {{"text_input", T(STRING), ONE, OPTIONAL},
                                           {"input_ids", T(INT32), ANY_1D, OPTIONAL},
                                           {"input_lengths", T(INT32), ONE, OPTIONAL},
                                           {.name = NULL}};
static const proa_io_row batch_outputs[] = {{"embedding", T(FP32), ANY_1D, 0},
                                            {"logits", T(FP32), ANY_1D, 0},
                                            {"scores", T(FP32), ANY_1D, 0},
                                            {"label", T(STRING), ONE, 0},
                                            {"labels", T(STRING), ANY_1D, 0},
                                            {"prompt_tokens", T(INT32), ONE, 0},
                                            {.name = NULL}};

/* ---- the configuration ---- */

static proa_io_row option_input(const proa_option_row *row)
{
    proa_io_row in = {row->name, T(INT32), 1, {1}, OPTIONAL};
    switch (row->kind) {
    case PROA_OPTION_KIND_INT: break;
    case PROA_OPTION_KIND_FLOAT: in.type = T(FP32); break;
    case PROA_OPTION_KIND_U64: in.type = T(UINT64); break;
    case PROA_OPTION_KIND_BOOL: in.type = T(BOOL); break;
    case PROA_OPTION_KIND_TOKENS:
    case PROA_OPTION_KIND_IDS: in.dims[0] = -1; break;
    case PROA_OPTION_KIND_STYLE:
    case PROA_OPTION_KIND_EARLY:
    case PROA_OPTION_KIND_SEQUENCE_BIAS:
    case PROA_OPTION_KIND_TEXT:
    case PROA_OPTION_KIND_BIAS: in.type = T(STRING); break;
    case PROA_OPTION_KIND_WORDS:
    case PROA_OPTION_KIND_STRINGS: in.type = T(STRING), in.dims[0] = -1; break;
    }
    return in;
}

static void add_option_inputs(Inference__ModelConfig *config, proa_arena *arena)
{
    proa_io_row rows[PROA_OPTION_COUNT + 1];
    for (int i = 0; i < PROA_OPTION_COUNT; i++) rows[i] = option_input(&proa_option_rows[i]);
    rows[PROA_OPTION_COUNT] = (proa_io_row){.name = NULL};
    proa_config_inputs(config, rows, arena);
}

static bool is_declared(const Inference__ModelInput *in, const proa_io_row *row)
{
    return in && in->data_type == row->type && in->optional && !in->reshape && (int)in->n_dims == row->rank &&
           in->dims[0] == row->dims[0];
}

/* Is an input that a configuration may leave out (pairs, options) declared as the contract has it? Others are free. */
static bool has_own_type(const Inference__ModelInput *in)
{
    const proa_option_row *option = proa_option_by_alias(in->name);
    proa_io_row own = {.name = NULL};
    for (const proa_io_row *row = pair_inputs; row->name; row++)
        if (strcmp(row->name, in->name) == 0) own = *row;
    if (option) own = option_input(option);
    return own.name ? is_declared(in, &own) : in->optional;
}

static bool has_native_outputs(const Inference__ModelConfig *config)
{
    bool encoder = proa_config_output(config, "labels") != NULL, same = true;
    for (const proa_io_row *row = encoder ? encoder_outputs : generator_outputs; row->name && same; row++) {
        const Inference__ModelOutput *out = proa_config_output(config, row->name);
        same = out && out->data_type == row->type && !out->reshape;
    }
    return same;
}

/* A configuration that leaves out or changes a tensor means it: a typed generation would go around it. */
static bool has_native_tensors(const Inference__ModelConfig *config)
{
    bool same = config->max_batch_size == 0;
    for (const proa_io_row *row = inputs; row->name && same; row++)
        same = is_declared(proa_config_input(config, row->name), row);
    for (size_t i = 0; i < config->n_input && same; i++) same = has_own_type(config->input[i]);
    return same && has_native_outputs(config);
}

/* Before a model is opened its config.json says what it is. If the folder cannot be read, open reports the error. */
static bool is_encoder(const Inference__ModelConfig *config, const char *version_path)
{
    char path[PROA_PATH_MAX], folder[PROA_PATH_MAX];
    const char *given = proa_config_parameter(config, "model_path");
    proa_json *json = NULL;
    snprintf(folder, sizeof folder, "%s", version_path);
    snprintf(path, sizeof path, "%.4000s/..", version_path);
    if (given && proa_served_model_resolve(folder, NULL, path, "model_path", given, NULL) != PROA_OK)
        return false;
    if (proa_path_join(path, folder, "config.json", NULL) != PROA_OK) return false;
    if (!proa_file_exists(path)) snprintf(path, sizeof path, "%.4000s/../config.json", version_path);
    if (!proa_file_exists(path) || proa_json_load(&json, path, PROA_CONFIG_BYTES_MAX, NULL) != PROA_OK)
        return false;
    bool modules = proa_path_join(path, folder, "modules.json", NULL) == PROA_OK && proa_file_exists(path);
    proa_kind kind;
    bool encoder = proa_engine_kind_of(&kind, json, modules) && kind == PROA_KIND_ENCODER;
    proa_json_free(json);
    return encoder;
}

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(err);
    bool encoder = is_encoder(config, version_path), batched = encoder && config->max_batch_size > 0;
    if (!config->n_input) {
        proa_config_inputs(config, batched ? batch_inputs : inputs, arena);
        if (encoder) proa_config_inputs(config, pair_inputs, arena);
        else add_option_inputs(config, arena);
    }
    if (!config->n_output)
        proa_config_outputs(config,
                            batched   ? batch_outputs
                            : encoder ? encoder_outputs
                                      : generator_outputs,
                            arena);
    proa_config_decoupled(config, !batched, arena);
    return PROA_OK;
}

/* A folder without a template is fine, as long as no request has messages; a template that the configuration or
 * --chat-template names must exist. */
static proa_status open_chat(proa_llm_model *s, proa_err *err)
{
    const char *own = proa_served_model_parameter(s->model, "chat_template");
    const char *choice = proa_llm_setting(s->model, "chat_template");
    char path[PROA_PATH_MAX];
    proa_err why = {.status = PROA_OK};
    if (own && !proa_chat_is_built_in(own)) {
        PROA_TRY(proa_served_model_resolve(path, s->model, proa_served_model_path(s->model), "chat_template",
                                           own, err));
        choice = path;
    }
    if (!s->tokenizer) return PROA_OK;
    if (proa_chat_open_files(&s->chat, proa_engine_files(s->engine), choice, &why) == PROA_OK)
        return proa_llm_read_form(s, err);
    s->chat = NULL;
    if (why.status == PROA_NOT_FOUND && !choice) return PROA_OK;
    return proa_err_set(err, why.status, why.file, why.line, "%s", why.text);
}

static proa_status open_native(proa_llm_model *s, proa_err *err)
{
    const Inference__ModelConfig *config = proa_served_model_config(s->model);
    bool batched = config->max_batch_size > 0;
    if (batched && s->info.kind != PROA_KIND_ENCODER)
        return PROA_FAIL(err, INVALID,
                         "'max_batch_size' is %d, must be 0: backend 'engine' takes one prompt in a request "
                         "and batches by "
                         "itself (an encoder takes rows of them)",
                         config->max_batch_size);
    if (batched && s->decoupled)
        return PROA_FAIL(err, INVALID,
                         "a model of rows ('max_batch_size' %d) answers once: it cannot be decoupled",
                         config->max_batch_size);
    return open_chat(s, err);
}

/* ---- reading ---- */

static proa_str text_input(const void *arg, const char *name)
{
    return proa_input_text(arg, name);
}

static bool flag_input(const void *arg, const char *name, bool *value)
{
    return proa_input_bool(arg, name, 0, value);
}

/* Options that are tensors of their own: they go before parameters and `options`. */
static proa_status read_options(proa_options *o, proa_llm_request *req, proa_err *err)
{
    const proa_infer *r = req->infer;
    for (int32_t i = 0; i < r->inputs_count; i++) {
        const proa_option_row *row = proa_option_by_alias(r->inputs[i].name);
        if (row) PROA_TRY(proa_option_read(o, row, (proa_tensor_row){&r->inputs[i], 0, 1}, &req->arena, err));
    }
    return PROA_OK;
}

/* Where the texts of a batch are that the next row reads: one for each row. */
typedef struct text_cursor {
    size_t text, pair;
} text_cursor;

static const int32_t no_ids[1]; /* of an input that has none */

/* Row `row` of an input with token ids; *ids is NULL if there is no such input. */
static proa_status read_ids(const proa_llm_request *req, const char *name, int64_t row, int64_t rows,
                            const int32_t **ids, int64_t *count, proa_err *err)
{
    const proa_tensor *t = proa_infer_input(req->infer, name);
    if (!t) return PROA_OK;
    PROA_TRY(proa_input_ids((proa_tensor_row){t, row, rows}, &req->infer->arena, ids, count, err));
    if (!*ids && strcmp(name, "decoder_input_ids") != 0) *ids = no_ids; /* none: the model's start token */
    return PROA_OK;
}

/* The next text of an input; *text keeps its NULL ptr if there is no such input. */
static proa_status read_text(const proa_llm_request *req, const char *name, int64_t row, size_t *at,
                             proa_str *text, proa_err *err)
{
    const proa_tensor *t = proa_infer_input(req->infer, name);
    if (!t) return PROA_OK;
    if (t->type != PROA_TYPE_BYTES || !proa_tensor_next_string(t, at, text))
        return PROA_FAIL(err, INVALID, "input '%s' has no text for row %lld", name, (long long)row);
    if (!text->len) text->ptr = "";
    return PROA_OK;
}

/* The ids of a padded row end where its length says. */
static proa_status cut_padding(proa_generation *g, const proa_llm_request *req, int64_t row, proa_err *err)
{
    int64_t length = 0;
    if (!g->ids || !proa_input_int(req->infer, "input_lengths", row, &length)) return PROA_OK;
    if (length < 0 || length > g->ids_count)
        return PROA_FAIL(err, INVALID, "input 'input_lengths' is %lld in row %lld, must be 0 to %lld",
                         (long long)length, (long long)row, (long long)g->ids_count);
    if (g->type_ids && g->type_ids_count == g->ids_count) g->type_ids_count = length;
    g->ids_count = length;
    return PROA_OK;
}

static proa_status read_prompt(proa_generation *g, const proa_llm_request *req, int64_t row, text_cursor *at,
                               proa_err *err)
{
    g->chat_text = proa_input_text(req->infer, "messages");
    PROA_TRY(read_text(req, "text_input", row, &at->text, &g->text, err));
    PROA_TRY(read_text(req, "text_pair", row, &at->pair, &g->text_pair, err));
    PROA_TRY(read_ids(req, "input_ids", row, req->count, &g->ids, &g->ids_count, err));
    PROA_TRY(read_ids(req, "token_type_ids", row, req->count, &g->type_ids, &g->type_ids_count, err));
    PROA_TRY(cut_padding(g, req, row, err));
    return read_ids(req, "decoder_input_ids", 0, 1, &g->decoder_ids, &g->decoder_ids_count, err);
}

/* What was given, by the names of the contract. */
static proa_status check_generation(const proa_llm_request *req, const proa_generation *g, proa_err *err)
{
    proa_kind kind = req->llm_model->info.kind;
    bool chat = g->chat || g->chat_text.ptr;
    if ((g->text.ptr != NULL) + chat + (g->ids != NULL) != 1)
        return PROA_FAIL(err, INVALID, "a request needs one of text_input, input_ids and messages");
    if ((g->text_pair.ptr || g->type_ids) && kind != PROA_KIND_ENCODER)
        return PROA_FAIL(err, INVALID, "text_pair and token_type_ids are for encoders");
    if ((g->text_pair.ptr && !g->text.ptr) || (g->type_ids && !g->ids))
        return PROA_FAIL(err, INVALID, "text_pair goes with text_input, token_type_ids with input_ids");
    if (g->type_ids && g->type_ids_count != g->ids_count)
        return PROA_FAIL(err, INVALID, "token_type_ids has %lld numbers, input_ids %lld",
                         (long long)g->type_ids_count, (long long)g->ids_count);
    if (g->decoder_ids && kind != PROA_KIND_ENCODER_DECODER)
        return PROA_FAIL(err, INVALID, "decoder_input_ids are for encoder-decoder models");
    if (g->decoder_ids_count > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT, "input 'decoder_input_ids' has %lld ids, at most %d are taken",
                         (long long)g->decoder_ids_count, PROA_CONTEXT_MAX);
    return PROA_OK;
}

/* Rows of an encoder with a batch dimension; otherwise one. */
static proa_status read_rows(const proa_llm_request *req, proa_generation_task task, int64_t *rows, proa_err *err)
{
    *rows = 1;
    if (proa_served_model_config(req->llm_model->model)->max_batch_size == 0) return PROA_OK;
    *rows = req->infer->batch;
    if (*rows < 1 || *rows > PROA_FT_ROWS_MAX)
        return PROA_FAIL(err, LIMIT, "a batch of %lld, must be 1 to %d", (long long)*rows, PROA_FT_ROWS_MAX);
    if (task == PROA_GENERATION_ROWS)
        return PROA_FAIL(err, UNSUPPORTED, "task rows is for a model without a batch dimension");
    return PROA_OK;
}

static proa_status read_request(proa_llm_request *req, proa_err *err)
{
    const proa_generation_inputs named = {text_input, flag_input, req->infer};
    proa_generation common = {.task = PROA_GENERATION_TEXT};
    bool generates = req->llm_model->info.kind != PROA_KIND_ENCODER;
    int64_t rows;
    text_cursor at = {0, 0};
    PROA_TRY(proa_generation_read_settings(&common, req->infer, &named, generates, &req->arena, err));
    PROA_TRY(read_rows(req, common.task, &rows, err));
    if (generates) PROA_TRY(read_options(&common.options, req, err));
    proa_generation *g = proa_llm_add_generations(req, rows);
    for (int64_t i = 0; i < rows; i++) {
        g[i] = common;
        PROA_TRY(read_prompt(&g[i], req, i, &at, err));
    }
    return PROA_OK;
}

static const proa_contract contract = {.open = open_native,
                                       .read = read_request,
                                       .check = check_generation,
                                       .places = proa_native_places,
                                       .emit = proa_native_emit,
                                       .end = proa_native_end};

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    PROA_TRY(proa_llm_model_open(state, model, &contract, err));
    const proa_llm_model *s = *state;
    if (has_native_tensors(proa_served_model_config(model)))
        proa_served_model_set_generations(model, s->labels);
    return PROA_OK;
}

const proa_backend proa_backend_engine = {.name = "engine",
                                          .flags = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY | PROA_BACKEND_GPU,
                                          .complete = complete_config,
                                          .model_open = model_open,
                                          .metrics = proa_llm_metrics,
                                          PROA_LLM_BACKEND_CALLS};
