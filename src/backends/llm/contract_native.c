/* SPDX-License-Identifier: Apache-2.0
 * contract_native.c - the backend `engine`: Proa's own contract of tensors and parameters (README.md). */
#include "backends/backends.h"
#include "backends/llm/contract_native.h"
#include "backends/llm/io_shapes.h"

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

/* Of encoders only. */
static const proa_io_row pair_inputs[] = {
    {"text_pair", T(STRING), ONE, OPTIONAL}, {"token_type_ids", T(INT32), ANY_1D, OPTIONAL}, {.name = NULL}};

/* An encoder with a batch dimension: rows of prompts, each answered by one row. */
static const proa_io_row batch_inputs[] = {
    {"text_input", T(STRING), ONE, OPTIONAL}, {"input_ids", T(INT32), ANY_1D, OPTIONAL}, {.name = NULL}};
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

/* A configuration that leaves out or changes a tensor means it: a typed generation would go around it. */
static bool has_native_tensors(const Inference__ModelConfig *config)
{
    bool encoder = proa_config_output(config, "labels") != NULL, same = config->max_batch_size == 0;
    for (const proa_io_row *row = inputs; row->name && same; row++) {
        const Inference__ModelInput *in = proa_config_input(config, row->name);
        same = in && in->data_type == row->type && in->optional && !in->reshape &&
               (int)in->n_dims == row->rank && in->dims[0] == row->dims[0];
    }
    for (size_t i = 0; i < config->n_input && same; i++) same = config->input[i]->optional;
    for (const proa_io_row *row = encoder ? encoder_outputs : generator_outputs; row->name && same; row++) {
        const Inference__ModelOutput *out = proa_config_output(config, row->name);
        same = out && out->data_type == row->type && !out->reshape;
    }
    return same;
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
    proa_kind kind;
    bool encoder = proa_engine_kind_of(&kind, json) && kind == PROA_KIND_ENCODER;
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

/* A folder without a template is fine, as long as no request has messages; a template that the configuration names must
 * exist. */
static proa_status open_chat(proa_llm_model *s, proa_err *err)
{
    const char *choice = proa_served_model_parameter(s->model, "chat_template");
    char path[PROA_PATH_MAX];
    proa_err why = {.status = PROA_OK};
    if (choice && !proa_chat_is_built_in(choice)) {
        PROA_TRY(proa_served_model_resolve(path, s->model, proa_served_model_path(s->model), "chat_template",
                                           choice, err));
        choice = path;
    }
    if (!s->tokenizer) return PROA_OK;
    if (proa_chat_open_files(&s->chat, proa_engine_files(s->engine), choice, &why) == PROA_OK) return PROA_OK;
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

static const char *const native_params[] = {
    "task",    "stream",    "streaming", "echo", "exclude_input_in_output",
    "pooling", "normalize", "options",   NULL};

/* Text of an input, or else of a parameter; NULL ptr: neither. */
static proa_str text_of(const proa_infer *r, const char *name)
{
    proa_str text = proa_input_text(r, name);
    const proa_infer_param *param = text.ptr ? NULL : proa_infer_find_param(r, name);
    if (param && param->kind == PROA_PARAM_STRING) text = param->s;
    return text;
}

static bool flag_of(const proa_infer *r, const char *name, bool preset)
{
    bool value = preset;
    if (proa_input_bool(r, name, 0, &value)) return value;
    const proa_infer_param *param = proa_infer_find_param(r, name);
    if (!param) return preset;
    if (param->kind == PROA_PARAM_BOOL) return param->b;
    if (param->kind == PROA_PARAM_INT) return param->i != 0;
    return param->kind == PROA_PARAM_STRING ? proa_str_is(param->s, "true") : preset;
}

/* The index of a name in the list; *value is kept if the request does not have it. */
static proa_status choice_of(const proa_infer *r, const char *name, const char *const *names, int *value,
                             proa_err *err)
{
    proa_str text = text_of(r, name);
    if (!text.len) return PROA_OK;
    for (int i = 0; names[i]; i++)
        if (proa_str_is(text, names[i])) return *value = i, PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' is '%.*s', must be one of %s, %s, ...", name,
                     (int)(text.len < 40 ? text.len : 40), text.ptr, names[0], names[1]);
}

/* What the request asks for, and with which settings; the same for all rows of a batch. */
static proa_status read_task(proa_generation *g, const proa_llm_request *req, proa_err *err)
{
    static const char *const poolings[] = {"mean", "cls", "pooler", "last", NULL};
    static const proa_generation_task encoder_tasks[] = {PROA_GENERATION_EMBED, PROA_GENERATION_CLASSIFY};
    const proa_llm_model *s = req->llm_model;
    bool encoder = s->info.kind == PROA_KIND_ENCODER;
    int task = encoder ? (int)encoder_tasks[s->labels > 0] : PROA_GENERATION_TEXT, pooling = -1;
    const char *tasks[PROA_GENERATION_CLASSIFY + 2] = {NULL};
    memcpy(tasks, proa_llm_task_names, (PROA_GENERATION_CLASSIFY + 1) * sizeof *tasks);
    PROA_TRY(choice_of(req->infer, "task", tasks, &task, err));
    PROA_TRY(choice_of(req->infer, "pooling", poolings, &pooling, err));
    g->task = (proa_generation_task)task;
    g->pooling = (proa_pooling)(pooling + 1); /* DEFAULT precedes the names */
    g->normalize = flag_of(req->infer, "normalize", false);
    return PROA_OK;
}

static proa_status read_json_options(proa_options *o, const proa_llm_request *req, proa_arena *arena,
                                     proa_err *err)
{
    proa_str text = text_of(req->infer, "options");
    proa_json *json = NULL;
    if (!text.len) return PROA_OK;
    PROA_TRY(proa_llm_parse_json(&json, text, "options", err));
    proa_status status = PROA_OK;
    if (proa_json_kind(json) != PROA_JSON_OBJECT)
        status = PROA_FAIL(err, INVALID, "'options' must be a JSON object");
    else status = proa_options_read_json(o, json, true, arena, err);
    proa_json_free(json);
    return status;
}

static proa_status read_options(proa_options *o, proa_llm_request *req, proa_err *err)
{
    const proa_infer *r = req->infer;
    PROA_TRY(read_json_options(o, req, &req->arena, err));
    PROA_TRY(proa_options_read_params(o, r, native_params, &req->arena, err));
    for (int32_t i = 0; i < r->inputs_count; i++) {
        const proa_option_row *row = proa_option_by_alias(r->inputs[i].name);
        if (row) PROA_TRY(proa_option_read(o, row, &r->inputs[i], 0, 1, &req->arena, err));
    }
    return PROA_OK;
}

/* Where the texts of a batch are that the next row reads: one for each row. */
typedef struct text_cursor {
    size_t text, pair;
} text_cursor;

/* The second text of a row, and the token types of its ids, if the request has them. */
static proa_status read_pair(proa_generation *g, const proa_llm_request *req, int64_t row, text_cursor *at,
                             proa_err *err)
{
    const proa_tensor *second = proa_infer_input(req->infer, "text_pair");
    const proa_tensor *types = proa_infer_input(req->infer, "token_type_ids");
    int64_t count = 0;
    if (!second && !types) return PROA_OK;
    if (req->llm_model->info.kind != PROA_KIND_ENCODER)
        return PROA_FAIL(err, INVALID, "text_pair and token_type_ids are for encoders");
    if ((second && !g->text.ptr) || (types && !g->ids))
        return PROA_FAIL(err, INVALID, "text_pair goes with text_input, token_type_ids with input_ids");
    if (second && (second->type != PROA_TYPE_BYTES || !proa_tensor_next_string(second, &at->pair, &g->text_pair)))
        return PROA_FAIL(err, INVALID, "input 'text_pair' has no text for row %lld", (long long)row);
    if (second && !g->text_pair.len) g->text_pair = (proa_str){"", 0};
    if (!types) return PROA_OK;
    PROA_TRY(proa_input_ids(types, row, req->count, &req->infer->arena, &g->type_ids, &count, err));
    if (count == g->ids_count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "token_type_ids has %lld numbers, input_ids %lld", (long long)count,
                     (long long)g->ids_count);
}

static proa_status read_prompt(proa_generation *g, const proa_llm_request *req, int64_t row, text_cursor *at,
                               proa_err *err)
{
    const proa_infer *r = req->infer;
    const proa_tensor *ids = proa_infer_input(r, "input_ids"), *given = proa_infer_input(r, "text_input");
    proa_str text = {NULL, 0};
    bool has_text = given && given->type == PROA_TYPE_BYTES && proa_tensor_next_string(given, &at->text, &text);
    g->chat_text = proa_input_text(r, "messages");
    if (has_text + (g->chat_text.ptr != NULL) + (ids != NULL) != 1)
        return PROA_FAIL(err, INVALID, "a request needs one of text_input, input_ids and messages");
    if (has_text) g->text = text.len ? text : (proa_str){"", 0};
    if (ids) PROA_TRY(proa_input_ids(ids, row, req->count, &req->infer->arena, &g->ids, &g->ids_count, err));
    return read_pair(g, req, row, at, err);
}

static proa_status read_decoder(proa_generation *g, const proa_llm_request *req, proa_err *err)
{
    const proa_tensor *ids = proa_infer_input(req->infer, "decoder_input_ids");
    if (!ids) return PROA_OK;
    if (req->llm_model->info.kind != PROA_KIND_ENCODER_DECODER)
        return PROA_FAIL(err, INVALID, "decoder_input_ids are for encoder-decoder models");
    return proa_input_ids(ids, 0, 1, &req->infer->arena, &g->decoder_ids, &g->decoder_ids_count, err);
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
    const proa_infer *r = req->infer;
    proa_generation common = {.task = PROA_GENERATION_TEXT};
    int64_t rows;
    text_cursor at = {0, 0};
    PROA_TRY(read_task(&common, req, err));
    PROA_TRY(read_rows(req, common.task, &rows, err));
    if (req->llm_model->info.kind != PROA_KIND_ENCODER) PROA_TRY(read_options(&common.options, req, err));
    common.stream = flag_of(r, "stream", flag_of(r, "streaming", false));
    common.echo = flag_of(r, "echo", !flag_of(r, "exclude_input_in_output", true));
    proa_generation *g = proa_llm_add_generations(req, rows);
    for (int64_t i = 0; i < rows; i++) {
        g[i] = common;
        PROA_TRY(read_prompt(&g[i], req, i, &at, err));
        PROA_TRY(read_decoder(&g[i], req, err));
    }
    return PROA_OK;
}

static const proa_contract contract = {
    .open = open_native, .read = read_request, .emit = proa_native_emit, .end = proa_native_end};

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    PROA_TRY(proa_llm_model_open(state, model, &contract, err));
    if (has_native_tensors(proa_served_model_config(model))) proa_served_model_set_generations(model);
    return PROA_OK;
}

const proa_backend proa_backend_engine = {.name = "engine",
                                          .flags = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY | PROA_BACKEND_GPU,
                                          .complete = complete_config,
                                          .model_open = model_open,
                                          .model_close = proa_llm_model_close,
                                          .instance_open = proa_llm_instance_open,
                                          .instance_close = proa_llm_instance_close,
                                          .execute = proa_llm_execute,
                                          .metrics = proa_llm_metrics,
                                          .figures = proa_llm_figures};
