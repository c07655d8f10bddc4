/* SPDX-License-Identifier: Apache-2.0
 * contract_ft.c - the backend `fastertransformer`: FasterTransformer's tensors for GPT (GPT-J, GPT-NeoX, BLOOM), T5,
 * its encoder and BERT (triton-inference-server/fastertransformer_backend, all_models). */
#include "backends/backends.h"
#include "backends/llm/contract_ft.h"
#include "backends/tensors/io_shapes.h"

#include "base/checked.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

static const proa_io_row gpt_inputs[] = {{"input_ids", T(UINT32), ANY_1D, 0},
                                         {"start_id", T(UINT32), SCALAR},
                                         {"end_id", T(UINT32), SCALAR},
                                         {"input_lengths", T(UINT32), NEEDED},
                                         {"request_output_len", T(UINT32), ANY_1D, 0},
                                         {"request_prompt_embedding", T(FP16), 2, {-1, -1}, PROA_IO_OPTIONAL},
                                         {"request_prompt_lengths", T(UINT32), SCALAR},
                                         {"request_prompt_type", T(UINT32), SCALAR},
                                         {.name = NULL}};
static const proa_io_row t5_inputs[] = {{"input_ids", T(UINT32), ANY_1D, 0},
                                        {"sequence_length", T(UINT32), NEEDED},
                                        {"max_output_len", T(UINT32), NEEDED},
                                        {"start_id", T(UINT32), SCALAR},
                                        {"end_id", T(UINT32), SCALAR},
                                        {"request_prompt_lengths", T(UINT32), SCALAR},
                                        {"request_prompt_embedding", T(FP16), 2, {-1, -1}, PROA_IO_OPTIONAL},
                                        {"ia3_tasks", T(INT32), SCALAR},
                                        {.name = NULL}};
static const proa_io_row sampling_inputs[] = {{"runtime_top_k", T(UINT32), SCALAR},
                                              {"runtime_top_p", T(FP32), SCALAR},
                                              {"beam_search_diversity_rate", T(FP32), SCALAR},
                                              {"temperature", T(FP32), SCALAR},
                                              {"len_penalty", T(FP32), SCALAR},
                                              {"repetition_penalty", T(FP32), SCALAR},
                                              {"random_seed", T(UINT64), SCALAR},
                                              {"is_return_log_probs", T(BOOL), SCALAR},
                                              {"beam_width", T(UINT32), SCALAR},
                                              {"bad_words_list", T(INT32), WORDS, OPTIONAL},
                                              {"stop_words_list", T(INT32), WORDS, OPTIONAL},
                                              {"prompt_learning_task_name_ids", T(UINT32), SCALAR},
                                              {"top_p_decay", T(FP32), SCALAR},
                                              {"top_p_min", T(FP32), SCALAR},
                                              {"top_p_reset_ids", T(UINT32), SCALAR},
                                              {.name = NULL}};
static const proa_io_row encoder_inputs[] = {{"input_ids", T(UINT32), ANY_1D, 0},
                                             {"sequence_length", T(UINT32), NEEDED},
                                             {"is_return_attentions", T(BOOL), SCALAR},
                                             {"ia3_tasks", T(INT32), SCALAR},
                                             {.name = NULL}};
static const proa_io_row bert_inputs[] = {
    {"input_hidden_state", T(INVALID), ANY_2D, 0}, {"sequence_lengths", T(INT32), NEEDED}, {.name = NULL}};
static const proa_io_row gpt_outputs[] = {{"output_ids", T(UINT32), ANY_2D, 0},
                                          {"sequence_length", T(UINT32), ANY_1D, 0},
                                          {"cum_log_probs", T(FP32), ANY_1D, 0},
                                          {"output_log_probs", T(FP32), ANY_2D, 0},
                                          {.name = NULL}};
static const proa_io_row t5_outputs[] = {{"output_ids", T(INT32), ANY_2D, 0},
                                         {"sequence_length", T(INT32), ANY_1D, 0},
                                         {"cum_log_probs", T(FP32), ANY_1D, 0},
                                         {"output_log_probs", T(FP32), ANY_2D, 0},
                                         {.name = NULL}};
static const proa_io_row hidden_outputs[] = {{"output_hidden_state", T(INVALID), ANY_2D, 0}, {.name = NULL}};

/* Names that a configuration may have beside those of the tables. */
static const char *const more_inputs[] = {"request_output_len",
                                          "input_lengths",
                                          "sequence_length",
                                          "sequence_lengths",
                                          "max_output_len",
                                          "is_return_context_embeddings",
                                          "is_return_context_cum_log_probs",
                                          "is_return_attentions",
                                          "request_prompt_embedding",
                                          "request_prompt_lengths",
                                          "request_prompt_type",
                                          "prompt_learning_task_name_ids",
                                          "ia3_tasks",
                                          "start_id",
                                          "input_ids",
                                          "input_hidden_state",
                                          "session_len",
                                          "memory_len"};

/* ---- the configuration ---- */

static const struct {
    const char *model_type;
    proa_ft_variant variant;
} model_types[] = {{"GPT", PROA_FT_GPT},   {"GPT-J", PROA_FT_GPT}, {"GPT-NeoX", PROA_FT_GPT},
                   {"Llama", PROA_FT_GPT}, {"T5", PROA_FT_T5},     {"T5-Encoder", PROA_FT_T5_ENCODER},
                   {"bert", PROA_FT_BERT}};

static proa_status find_variant(int *variant, const char *model_type, proa_err *err)
{
    for (size_t i = 0; i < PROA_COUNT(model_types); i++) {
        if (strcmp(model_types[i].model_type, model_type) != 0) continue;
        *variant = (int)model_types[i].variant;
        return PROA_OK;
    }
    return PROA_FAIL(
        err, INVALID,
        "parameter 'model_type' is '%.80s', must be GPT, GPT-J, GPT-NeoX, Llama, T5, T5-Encoder or bert",
        model_type);
}

/* Hidden states are of the type that the model computes in, where the configuration leaves it open. */
static Inference__DataType hidden_type(const Inference__ModelConfig *config)
{
    const char *type = proa_config_parameter(config, "data_type");
    if (type && strcmp(type, "fp16") == 0) return T(FP16);
    return type && strcmp(type, "bf16") == 0 ? T(BF16) : T(FP32);
}

static void complete_types(Inference__ModelConfig *config)
{
    for (size_t i = 0; i < config->n_input; i++)
        if (config->input[i]->data_type == T(INVALID) &&
            strcmp(config->input[i]->name, "input_hidden_state") == 0)
            config->input[i]->data_type = hidden_type(config);
    for (size_t i = 0; i < config->n_output; i++)
        if (config->output[i]->data_type == T(INVALID) &&
            strcmp(config->output[i]->name, "output_hidden_state") == 0)
            config->output[i]->data_type = hidden_type(config);
}

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    static const proa_io_row *const inputs[] = {gpt_inputs, t5_inputs, encoder_inputs, bert_inputs};
    static const proa_io_row *const outputs[] = {gpt_outputs, t5_outputs, hidden_outputs, hidden_outputs};
    const char *model_type = proa_config_parameter(config, "model_type");
    int variant = PROA_FT_GPT;
    PROA_UNUSED(version_path);
    if (model_type) PROA_TRY(find_variant(&variant, model_type, err));
    if (!config->n_input) {
        if (config->max_batch_size == 0) config->max_batch_size = 1024;
        proa_config_inputs(config, inputs[variant], arena);
        if (variant <= PROA_FT_T5) proa_config_inputs(config, sampling_inputs, arena);
    }
    if (!config->n_output) proa_config_outputs(config, outputs[variant], arena);
    complete_types(config);
    return PROA_OK;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(more_inputs); i++)
        if (strcmp(more_inputs[i], name) == 0) return true;
    return proa_option_by_alias(name) != NULL;
}

static proa_status check_inputs(const proa_llm_model *s, proa_err *err)
{
    const Inference__ModelConfig *config = proa_served_model_config(s->model);
    for (size_t i = 0; i < config->n_input; i++) {
        const char *name = config->input[i]->name;
        if (!is_known(name))
            return PROA_FAIL(err, INVALID, "input '%s' is none of FasterTransformer's", name);
    }
    return PROA_OK;
}

static proa_status open_variant(proa_llm_model *s, proa_err *err)
{
    static const proa_ft_variant usual[] = {
        [PROA_KIND_DECODER] = PROA_FT_GPT,
        [PROA_KIND_ENCODER_DECODER] = PROA_FT_T5,
        [PROA_KIND_ENCODER] = PROA_FT_BERT,
    };
    static const proa_kind kinds[] = {[PROA_FT_GPT] = PROA_KIND_DECODER,
                                      [PROA_FT_T5] = PROA_KIND_ENCODER_DECODER,
                                      [PROA_FT_T5_ENCODER] = PROA_KIND_ENCODER_DECODER,
                                      [PROA_FT_BERT] = PROA_KIND_ENCODER};
    const char *model_type = proa_served_model_parameter(s->model, "model_type");
    s->variant = (int)usual[s->info.kind];
    if (model_type) PROA_TRY(find_variant(&s->variant, model_type, err));
    if (kinds[s->variant] != s->info.kind)
        return PROA_FAIL(err, INVALID, "parameter 'model_type' is '%s', but '%s' holds a %s", model_type,
                         s->folder, s->info.arch);
    return check_inputs(s, err);
}

/* ---- reading ---- */

/* Rows of the batch and columns of input_ids; of hidden states, vectors in each row. */
static proa_status read_shape(const proa_llm_request *req, int64_t *rows, int64_t *columns, proa_err *err)
{
    const proa_tensor *hidden = proa_infer_input(req->infer, "input_hidden_state");
    const proa_tensor *ids = hidden ? hidden : proa_infer_input(req->infer, "input_ids");
    int32_t inner = hidden ? 2 : 1;
    if (!ids || ids->rank < inner) return PROA_FAIL(err, INVALID, "input 'input_ids' is not there");
    *rows = ids->rank > inner ? ids->shape[0] : 1;
    if (*rows < 1 || *rows > PROA_FT_ROWS_MAX)
        return PROA_FAIL(err, LIMIT, "a batch of %lld, must be 1 to %d", (long long)*rows, PROA_FT_ROWS_MAX);
    *columns = hidden ? ids->shape[ids->rank - 2] : proa_tensor_count(ids) / *rows;
    return PROA_OK;
}

/* Row `row` of input_hidden_state, as far as its length says. */
static proa_status read_hidden(proa_generation *g, proa_llm_request *req, int64_t row, int64_t columns,
                               proa_err *err)
{
    const proa_tensor *t = proa_infer_input(req->infer, "input_hidden_state");
    int64_t hidden = req->llm_model->info.hidden, length = columns, vectors = 0;
    proa_input_int(req->infer, "sequence_lengths", row, &length);
    if (length < 1 || length > columns)
        return PROA_FAIL(err, INVALID, "input 'sequence_lengths' is %lld in row %lld, must be 1 to %lld",
                         (long long)length, (long long)row, (long long)columns);
    PROA_TRY(proa_input_vectors((proa_tensor_row){t, row, req->count}, hidden, &req->arena, &g->embedded,
                                &vectors, err));
    g->ids_count = length;
    return PROA_OK;
}

/* Row `row` of input_ids, as far as its length says. */
static proa_status read_ids(proa_generation *g, const proa_llm_request *req, int64_t row,
                            const char *length_name, proa_err *err)
{
    const proa_tensor *ids = proa_infer_input(req->infer, "input_ids");
    int64_t length = 0;
    PROA_TRY(proa_input_ids((proa_tensor_row){ids, row, req->count}, &req->infer->arena, &g->ids,
                            &g->ids_count, err));
    if (!proa_input_int(req->infer, length_name, row, &length)) length = g->ids_count;
    if (length < 0 || length > g->ids_count)
        return PROA_FAIL(err, INVALID, "input '%s' is %lld in row %lld, must be 0 to %lld", length_name,
                         (long long)length, (long long)row, (long long)g->ids_count);
    g->ids_count = length;
    return PROA_OK;
}

/* What a client may send as zeros, since the guides' clients do. A T5 takes two, a GPT three (read_table). */
static proa_status refuse_unsupported(const proa_llm_request *req, proa_err *err)
{
    static const char *const zeros[] = {"request_prompt_lengths",
                                        "prompt_learning_task_name_ids",
                                        "request_prompt_type",
                                        "is_return_context_embeddings",
                                        "is_return_context_cum_log_probs",
                                        "is_return_attentions",
                                        "session_len",
                                        "memory_len"};
    static const char *const empty[] = {"request_prompt_embedding", "ia3_tasks", NULL};
    int64_t value = 0;
    const bool gpt = req->llm_model->variant == PROA_FT_GPT, t5 = req->llm_model->variant == PROA_FT_T5;
    for (size_t i = gpt ? 3 : t5 ? 2 : 0; i < PROA_COUNT(zeros); i++)
        for (int64_t row = 0; row < req->count; row++)
            if (proa_input_int(req->infer, zeros[i], row, &value) && value != 0)
                return PROA_FAIL(err, UNSUPPORTED, "input '%s' is %lld: not supported by this engine",
                                 zeros[i], (long long)value);
    return proa_refuse_inputs(req->infer, empty + (gpt || t5), err);
}

/* ---- prompt learning ---- */

/* FasterTransformer's PromptLearningType, of request_prompt_type. */
enum { NO_PROMPT, SOFT_PROMPT, PREFIX_PROMPT, P_PROMPT_TUNING };

/* Ids of a prompt table begin with prompt_learning_start_id of the configuration, or of the folder's config.ini; the
 * engine's with the vocabulary's size, which is the default. */
static proa_status read_start_id(const proa_llm_model *s, int64_t *start, proa_err *err)
{
    const char *text = proa_served_model_parameter(s->model, "prompt_learning_start_id");
    bool named;
    *start = proa_engine_task_ids(s->engine, &named);
    if (*start < 0) *start = s->info.vocab;
    if (!text) return PROA_OK;
    char *end = NULL;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || value < 0 || value > INT32_MAX)
        return PROA_FAIL(err, INVALID, "parameter 'prompt_learning_start_id' is '%.40s', must be 0 to %d",
                         text, INT32_MAX);
    *start = value;
    return PROA_OK;
}

/* The prompt's ids, those of a table numbered as the engine does; before them the first `first` rows of the table. */
static proa_status place_virtuals(proa_generation *g, const proa_llm_request *req, int64_t first, proa_err *err)
{
    int64_t start = 0, vocab = req->llm_model->info.vocab;
    PROA_TRY(read_start_id(req->llm_model, &start, err));
    int32_t *ids = PROA_ARENA_NEW(&req->infer->arena, int32_t, proa_max64(first + g->ids_count, 1));
    for (int64_t i = 0; i < first; i++) ids[i] = (int32_t)(vocab + i);
    for (int64_t i = 0; i < g->ids_count; i++) {
        bool is_virtual = g->ids[i] >= start;
        int64_t id = is_virtual ? vocab + g->ids[i] - start : g->ids[i];
        ids[first + i] = (int32_t)proa_min64(id, INT32_MAX);
    }
    g->ids = ids;
    g->ids_count += first;
    return PROA_OK;
}

static bool has_virtuals(const proa_generation *g, int64_t start)
{
    for (int64_t i = 0; i < g->ids_count; i++)
        if (g->ids[i] >= start) return true;
    return false;
}

/* Task n of the model's folder, as FasterTransformer takes it: a table of the request goes before it, and the rows of
 * p-tuning are those that the prompt's ids name, perhaps none. *name NULL: no adapter is used. */
static proa_status find_folder_task(const proa_generation *g, const proa_llm_request *req, bool has_table,
                                    const char **name, proa_err *err)
{
    int64_t start;
    bool named;
    proa_engine_task_ids(req->llm_model->engine, &named);
    PROA_TRY(read_start_id(req->llm_model, &start, err));
    if (has_table || (named && !has_virtuals(g, start))) *name = NULL;
    return PROA_OK;
}

/* prompt_learning_task_name_ids: task n of the model's folder, else the adapter of that name. Clients send 0 where
 * there are no tasks. */
static proa_status read_task(proa_generation *g, const proa_llm_request *req, int64_t row, bool has_table,
                             proa_err *err)
{
    int64_t task = -1;
    const char *name;
    if (!proa_input_int(req->infer, "prompt_learning_task_name_ids", row, &task) || task < 0) return PROA_OK;
    if (proa_engine_task(req->llm_model->engine, task, &name)) {
        PROA_TRY(find_folder_task(g, req, has_table, &name, err));
    } else {
        name = proa_arena_printf(&req->infer->arena, "%lld", (long long)task);
        bool known = proa_llm_has_adapter(req->llm_model, name);
        if (!known && task > 0)
            return PROA_FAIL(err, INVALID,
                             "input 'prompt_learning_task_name_ids' is %s: there is no adapter '%s'", name,
                             name);
        if (!known) name = NULL;
    }
    if (!name) return PROA_OK;
    g->options.adapter = name;
    g->options.given[PROA_OPTION_adapter] = true;
    return PROA_OK;
}

/* request_prompt_type of a row. A T5 names none: its tables are of p-tuning. */
static proa_status read_prompt_type(int64_t *type, const proa_llm_request *req, int64_t row, bool has_table,
                                    bool has_adapter, proa_err *err)
{
    *type = NO_PROMPT;
    proa_input_int(req->infer, "request_prompt_type", row, type);
    if (*type != NO_PROMPT && *type != SOFT_PROMPT && *type != P_PROMPT_TUNING)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "input 'request_prompt_type' is %lld: 0, 1 (soft prompt) and 3 (p-tuning) are supported",
            (long long)*type);
    if (has_table && req->llm_model->variant == PROA_FT_T5) *type = P_PROMPT_TUNING;
    if (*type == NO_PROMPT || has_table || has_adapter) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "input 'request_prompt_type' is %lld, and there is no request_prompt_embedding",
                     (long long)*type);
}

static proa_status read_vectors(proa_generation *g, const proa_llm_request *req, const proa_tensor *t,
                                int64_t row, proa_err *err)
{
    int64_t rows = 0, length = 0;
    PROA_TRY(proa_input_vectors((proa_tensor_row){t, row, req->count}, req->llm_model->info.embedding,
                                &req->infer->arena, &g->prompt_table, &rows, err));
    length = rows;
    proa_input_int(req->infer, "request_prompt_lengths", row, &length);
    if (length < 0 || length > rows)
        return PROA_FAIL(err, INVALID, "input 'request_prompt_lengths' is %lld in row %lld, must be 0 to %lld",
                         (long long)length, (long long)row, (long long)rows);
    g->prompt_table_rows = length;
    if (length == 0) g->prompt_table = NULL;
    return PROA_OK;
}

/* request_prompt_embedding: a soft prompt comes before the prompt, a table of p-tuning is named by its ids. */
static proa_status read_table(proa_generation *g, const proa_llm_request *req, int64_t row, proa_err *err)
{
    const proa_tensor *t = proa_infer_input(req->infer, "request_prompt_embedding");
    bool has_table = t && proa_tensor_count(t) > 0;
    int64_t type;
    PROA_TRY(read_task(g, req, row, has_table, err));
    const bool has_adapter = g->options.adapter != NULL;
    PROA_TRY(read_prompt_type(&type, req, row, has_table, has_adapter, err));
    if (type == NO_PROMPT || !has_table) return has_adapter ? place_virtuals(g, req, 0, err) : PROA_OK;
    PROA_TRY(read_vectors(g, req, t, row, err));
    return place_virtuals(g, req, type == SOFT_PROMPT ? g->prompt_table_rows : 0, err);
}

/* FasterTransformer puts its own default in place of a dynamic top-p outside of (0, 1]. */
static bool is_out_of_use(const proa_option_row *row, const proa_tensor *t, int64_t at)
{
    double value = 0;
    bool dynamic = row->option == PROA_OPTION_top_p_decay || row->option == PROA_OPTION_top_p_min;
    return dynamic && proa_element_double(t, proa_tensor_count(t) == 1 ? 0 : at, &value) &&
           (value <= 0 || value > 1);
}

static proa_status read_options(proa_options *o, proa_llm_request *req, int64_t batch_row, proa_err *err)
{
    const proa_infer *r = req->infer;
    o->style = PROA_STYLE_FT;
    o->given[PROA_OPTION_style] = true;
    for (int32_t i = 0; i < r->inputs_count; i++) {
        const proa_tensor *t = &r->inputs[i];
        const proa_option_row *row = proa_option_by_alias(t->name);
        if (!row || is_out_of_use(row, t, batch_row)) continue;
        PROA_TRY(proa_option_read(o, row, (proa_tensor_row){t, batch_row, req->count}, &req->arena, err));
    }
    if (o->beams == 0)
        o->beams = 1, o->given[PROA_OPTION_beams] = true; /* a model's own default search is not FT's */
    return PROA_OK;
}

static proa_status read_output_len(proa_generation *g, proa_ft_request *ft, const proa_llm_request *req,
                                   int64_t row, const char *name, proa_err *err)
{
    int64_t value = 0;
    if (!proa_input_int(req->infer, name, row, &value))
        return PROA_FAIL(err, INVALID, "input '%s' is not there", name);
    if (value < 1 || value > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "input '%s' is %lld, must be 1 to %d", name, (long long)value,
                         PROA_CONTEXT_MAX);
    g->options.max_tokens = (int32_t)value;
    ft->output_width = proa_max64(ft->output_width, value);
    return PROA_OK;
}

/* The start token begins T5's decoder, and a GPT's prompt that has nothing to continue. */
static void set_start(proa_generation *g, proa_ft_request *ft, const proa_llm_request *req, int64_t row)
{
    const proa_llm_model *s = req->llm_model;
    bool t5 = s->variant == PROA_FT_T5;
    int64_t start = t5 ? -1 : s->info.bos_id >= 0 ? s->info.bos_id : s->end_id;
    proa_input_int(req->infer, "start_id", row, &start);
    if (start < 0 || (!t5 && g->ids_count)) return;
    int32_t *id = PROA_ARENA_NEW(&req->infer->arena, int32_t, 1);
    *id = (int32_t)start;
    if (t5) {
        g->decoder_ids = id;
        g->decoder_ids_count = 1;
        return;
    }
    g->ids = id;
    g->ids_count = 1;
    ft->input_width = proa_max64(ft->input_width, 1);
}

static proa_status read_generation(proa_generation *g, proa_ft_request *ft, proa_llm_request *req,
                                   int64_t row, proa_err *err)
{
    const proa_llm_model *s = req->llm_model;
    bool t5 = s->variant == PROA_FT_T5;
    const proa_options *o = &g->options;
    PROA_TRY(read_ids(g, req, row, t5 ? "sequence_length" : "input_lengths", err));
    PROA_TRY(read_options(&g->options, req, row, err));
    PROA_TRY(read_output_len(g, ft, req, row, t5 ? "max_output_len" : "request_output_len", err));
    set_start(g, ft, req, row);
    ft->input[row] = (proa_id_list){g->ids, g->ids_count};
    PROA_TRY(read_table(g, req, row, err));
    ft->beams = proa_max64(ft->beams, o->beams);
    ft->log_probs = ft->log_probs || o->logprobs;
    ft->end_id[row] = o->end_ids_count ? o->end_ids[0] : s->end_id >= 0 ? s->end_id : 0;
    return PROA_OK;
}

static proa_status read_row(proa_generation *g, proa_ft_request *ft, proa_llm_request *req, int64_t row,
                            proa_err *err)
{
    int variant = req->llm_model->variant;
    bool bert = variant == PROA_FT_BERT;
    if (variant <= PROA_FT_T5) {
        PROA_TRY(read_generation(g, ft, req, row, err));
    } else {
        g->task = PROA_GENERATION_ENCODE;
        if (bert && proa_infer_input(req->infer, "input_hidden_state"))
            return read_hidden(g, req, row, ft->input_width, err);
        PROA_TRY(read_ids(g, req, row, bert ? "sequence_lengths" : "sequence_length", err));
    }
    if (g->ids_count) return PROA_OK;
    return PROA_FAIL(err, INVALID, "row %lld of the batch is empty", (long long)row);
}

/* What the outputs will take is known before anything is computed. */
static proa_status check_size(const proa_llm_request *req, const proa_ft_request *ft, proa_err *err)
{
    int64_t width = ft->output_width + ft->input_width, all = 0;
    if (req->llm_model->variant > PROA_FT_T5) width = ft->input_width * req->llm_model->info.hidden;
    bool fits = proa_mul(req->count, ft->beams, &all) && proa_mul(all, width, &all) && proa_mul(all, 4, &all);
    if (fits && all <= PROA_REPLY_ARRAY_BYTES_MAX) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "an output of [%lld,%lld,%lld] is over the limit of %lld bytes",
                     (long long)req->count, (long long)ft->beams, (long long)width,
                     (long long)PROA_REPLY_ARRAY_BYTES_MAX);
}

static proa_status read_request(proa_llm_request *req, proa_err *err)
{
    int64_t rows = 0, columns = 0;
    proa_ft_request *ft = PROA_ARENA_NEW(&req->infer->arena, proa_ft_request, 1);
    req->contract_data = ft;
    PROA_TRY(read_shape(req, &rows, &columns, err));
    proa_generation *g = proa_llm_add_generations(req, rows);
    PROA_TRY(refuse_unsupported(req, err));
    ft->input_width = columns;
    ft->end_id = PROA_ARENA_NEW(&req->arena, int32_t, rows);
    ft->input = PROA_ARENA_NEW(&req->arena, proa_id_list, rows);
    ft->beams = 1;
    for (int64_t i = 0; i < rows; i++) PROA_TRY(read_row(&g[i], ft, req, i, err));
    PROA_TRY(check_size(req, ft, err));
    bool generates = req->llm_model->variant <= PROA_FT_T5;
    if (req->llm_model->decoupled && generates) req->delivery = PROA_DELIVER_SNAPSHOTS;
    return PROA_OK;
}

static const proa_contract contract = {
    .open = open_variant, .read = read_request, .emit = proa_ft_emit, .end = proa_ft_end};

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    return proa_llm_model_open(state, model, &contract, err);
}

const proa_backend proa_backend_fastertransformer = {.name = "fastertransformer",
                                                     .flags = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_GPU,
                                                     .complete = complete_config,
                                                     .model_open = model_open,
                                                     .metrics = proa_llm_metrics,
                                                     PROA_LLM_BACKEND_CALLS};
