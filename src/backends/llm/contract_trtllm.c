/* SPDX-License-Identifier: Apache-2.0
 * contract_trtllm.c - the backend `tensorrtllm`: TensorRT-LLM's tensors (triton-inference-server/tensorrtllm_backend,
 * all_models/inflight_batcher_llm/tensorrt_llm). */
#include "backends/backends.h"
#include "backends/llm/contract_trtllm.h"
#include "backends/tensors/io_shapes.h"

#include "base/checked.h"
#include "base/limits.h"
#include <string.h>

/* ---- tensors ---- */

static const proa_io_row inputs[] = {
    {"input_ids", T(INT32), ANY_1D, RAGGED},
    {"input_lengths", T(INT32), NEEDED},
    {"request_output_len", T(INT32), NEEDED},
    {"num_return_sequences", T(INT32), SCALAR},
    {"decoder_input_ids", T(INT32), ANY_1D, RAGGED},
    {"decoder_input_lengths", T(INT32), SCALAR},
    {"end_id", T(INT32), SCALAR},
    {"pad_id", T(INT32), SCALAR},
    {"stop_words_list", T(INT32), WORDS, RAGGED},
    {"bad_words_list", T(INT32), WORDS, RAGGED},
    {"embedding_bias", T(FP32), ANY_1D, RAGGED},
    {"beam_width", T(INT32), SCALAR},
    {"temperature", T(FP32), SCALAR},
    {"runtime_top_k", T(INT32), SCALAR},
    {"runtime_top_p", T(FP32), SCALAR},
    {"runtime_top_p_min", T(FP32), SCALAR},
    {"runtime_top_p_decay", T(FP32), SCALAR},
    {"runtime_top_p_reset_ids", T(INT32), SCALAR},
    {"len_penalty", T(FP32), SCALAR},
    {"early_stopping", T(BOOL), SCALAR},
    {"repetition_penalty", T(FP32), SCALAR},
    {"min_tokens", T(INT32), SCALAR},
    {"beam_search_diversity_rate", T(FP32), SCALAR},
    {"presence_penalty", T(FP32), SCALAR},
    {"frequency_penalty", T(FP32), SCALAR},
    {"seed", T(UINT64), SCALAR},
    {"draft_input_ids", T(INT32), ANY_1D, RAGGED},
    {"guided_decoding_guide_type", T(STRING), ONE, OPTIONAL},
    {"guided_decoding_guide", T(STRING), ONE, OPTIONAL},
    {"return_log_probs", T(BOOL), SCALAR},
    {"return_context_logits", T(BOOL), SCALAR},
    {"return_generation_logits", T(BOOL), SCALAR},
    {"return_perf_metrics", T(BOOL), SCALAR},
    {"exclude_input_in_output", T(BOOL), SCALAR},
    {"prompt_embedding_table", T(FP16), 2, {-1, -1}, PROA_IO_OPTIONAL | PROA_IO_RAGGED},
    {"prompt_table_extra_ids", T(UINT64), ANY_1D, RAGGED},
    {"prompt_vocab_size", T(INT32), SCALAR},
    {"lora_task_id", T(UINT64), SCALAR},
    {"lora_weights", T(FP16), 2, {-1, -1}, PROA_IO_OPTIONAL | PROA_IO_RAGGED},
    {"lora_config", T(INT32), 2, {-1, 3}, PROA_IO_OPTIONAL | PROA_IO_RAGGED},
    {"stop", T(BOOL), SCALAR},
    {"streaming", T(BOOL), SCALAR},
    {.name = NULL}};
static const proa_io_row outputs[] = {{"output_ids", T(INT32), ANY_2D, 0},
                                      {"sequence_length", T(INT32), ANY_1D, 0},
                                      {"cum_log_probs", T(FP32), ANY_1D, 0},
                                      {"output_log_probs", T(FP32), ANY_2D, 0},
                                      {"context_logits", T(FP32), ANY_2D, 0},
                                      {"generation_logits", T(FP32), ANY_3D, 0},
                                      {"batch_index", T(INT32), ONE, 0},
                                      {"sequence_index", T(INT32), ONE, 0},
                                      {"kv_cache_alloc_new_blocks", T(INT32), ONE, 0},
                                      {"kv_cache_reused_blocks", T(INT32), ONE, 0},
                                      {"kv_cache_alloc_total_blocks", T(INT32), ONE, 0},
                                      {"arrival_time_ns", T(INT64), ONE, 0},
                                      {"first_scheduled_time_ns", T(INT64), ONE, 0},
                                      {"first_token_time_ns", T(INT64), ONE, 0},
                                      {"last_token_time_ns", T(INT64), ONE, 0},
                                      {"acceptance_rate", T(FP32), ONE, 0},
                                      {"total_accepted_draft_tokens", T(INT32), ONE, 0},
                                      {"total_draft_tokens", T(INT32), ONE, 0},
                                      {"num_input_tokens", T(INT32), ONE, 0},
                                      {"num_output_tokens", T(INT32), ONE, 0},
                                      {.name = NULL}};

/* Read here, beside the options. */
static const char *const own_inputs[] = {"input_ids",
                                         "input_lengths",
                                         "request_output_len",
                                         "decoder_input_ids",
                                         "decoder_input_lengths",
                                         "pad_id",
                                         "stop",
                                         "streaming",
                                         "exclude_input_in_output",
                                         "return_context_logits",
                                         "return_perf_metrics",
                                         "return_kv_cache_reuse_stats",
                                         "return_num_input_tokens",
                                         "return_num_output_tokens",
                                         "runtime_top_k_min",
                                         "prompt_embedding_table",
                                         "prompt_table_extra_ids",
                                         "prompt_vocab_size",
                                         "lora_weights",
                                         "lora_config",
                                         "guided_decoding_guide_type",
                                         "guided_decoding_guide",
                                         NULL};

/* What this engine cannot do: configured, but refused when it comes. */
static const char *const refused_inputs[] = {"encoder_input_features",
                                             "encoder_output_lengths",
                                             "draft_logits",
                                             "draft_acceptance_threshold",
                                             "multimodal_embedding",
                                             "cross_attention_mask",
                                             "mrope_rotary_cos_sin",
                                             "mrope_position_deltas",
                                             "context_phase_params",
                                             "skip_cross_attn_blocks",
                                             "retention_token_range_starts",
                                             "retention_token_range_ends",
                                             "retention_token_range_priorities",
                                             "retention_token_range_durations_ms",
                                             "retention_decode_priority",
                                             "retention_decode_duration_ms",
                                             "lookahead_window_size",
                                             "lookahead_ngram_size",
                                             "lookahead_verification_set_size",
                                             NULL};

/* ---- the configuration ---- */

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(version_path);
    PROA_UNUSED(err);
    if (!config->n_input) {
        if (config->max_batch_size == 0) config->max_batch_size = 64;
        proa_config_inputs(config, inputs, arena);
    }
    if (!config->n_output) proa_config_outputs(config, outputs, arena);
    return PROA_OK;
}

static bool in_list(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

static proa_status open_trtllm(proa_llm_model *s, proa_err *err)
{
    const Inference__ModelConfig *config = proa_served_model_config(s->model);
    for (size_t i = 0; i < config->n_input; i++) {
        const char *name = config->input[i]->name;
        if (!in_list(name, own_inputs) && !in_list(name, refused_inputs) && !proa_option_by_alias(name))
            return PROA_FAIL(err, INVALID, "input '%s' is none of TensorRT-LLM's", name);
    }
    if (s->info.kind == PROA_KIND_ENCODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s does not generate: use backend 'engine'", s->info.arch);
    return proa_parameter_flag(&s->exclude_input, s->model, "exclude_input_in_output", err);
}

/* ---- reading ---- */

static proa_status read_shape(const proa_llm_request *req, int64_t *rows, proa_err *err)
{
    const proa_tensor *ids = proa_infer_input(req->infer, "input_ids");
    if (!ids)
        return PROA_FAIL(err, INVALID, "input_ids or encoder_input_features is not present in the request.");
    *rows = ids->rank > 1 ? ids->shape[0] : 1;
    if (*rows >= 1 && *rows <= PROA_FT_ROWS_MAX) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "a batch of %lld, must be 1 to %d", (long long)*rows, PROA_FT_ROWS_MAX);
}

/* One row of a batch on its way to a typed generation. */
typedef struct batch_row {
    proa_llm_request *req;
    int64_t row;
    proa_generation *g;
} batch_row;

static proa_tensor_row row_of(const batch_row *b, const proa_tensor *t)
{
    return (proa_tensor_row){t, b->row, b->req->count};
}

static proa_status read_ids(const batch_row *b, const char *name, const char *length_name,
                            const int32_t **ids, int64_t *count, proa_err *err)
{
    proa_infer *r = b->req->infer;
    const proa_tensor *t = proa_infer_input(r, name);
    int64_t length = 0;
    if (!t) return PROA_OK;
    PROA_TRY(proa_input_ids(row_of(b, t), &r->arena, ids, count, err));
    if (!proa_input_int(r, length_name, b->row, &length)) return PROA_OK;
    if (length < 0 || length > *count)
        return PROA_FAIL(err, INVALID, "input '%s' is %lld, must be 0 to %lld", length_name,
                         (long long)length, (long long)*count);
    *count = length;
    return PROA_OK;
}

/* top_p 0 and below mean that it was not given; one of the backend's own sources has runtime_top_k_min where its
 * configuration says runtime_top_p_min. */
static proa_status read_option(const batch_row *b, const proa_tensor *t, proa_err *err)
{
    bool misnamed = strcmp(t->name, "runtime_top_k_min") == 0;
    const proa_option_row *row = misnamed ? &proa_option_rows[PROA_OPTION_top_p_min]
                                          : proa_option_by_alias(t->name);
    double value = 1;
    if (!row || (in_list(t->name, own_inputs) && !misnamed)) return PROA_OK;
    if (row->option == PROA_OPTION_top_p)
        proa_element_double(t, proa_tensor_count(t) == 1 ? 0 : b->row, &value);
    if (value <= 0) return PROA_OK;
    return proa_option_read(&b->g->options, row, row_of(b, t), &b->req->arena, err);
}

/* The row's text. An input that has a single element gives it to every row. */
static proa_str row_text(const batch_row *b, const char *name)
{
    const proa_tensor *t = proa_infer_input(b->req->infer, name);
    proa_str text = {"", 0};
    size_t at = 0;
    if (!t || t->type != PROA_TYPE_BYTES) return text;
    int64_t row = proa_tensor_count(t) == 1 ? 0 : b->row;
    for (int64_t i = 0; i <= row; i++)
        if (!proa_tensor_next_string(t, &at, &text)) return (proa_str){"", 0};
    return text;
}

static proa_status read_options(const batch_row *b, proa_err *err)
{
    static const char *const known[] = {"request_type", NULL};
    proa_options *o = &b->g->options;
    const proa_infer *r = b->req->infer;
    o->style = PROA_STYLE_TRTLLM;
    o->given[PROA_OPTION_style] = true;
    PROA_TRY(proa_options_read_params(o, r, known, &b->req->arena, err));
    for (int32_t i = 0; i < r->inputs_count; i++) PROA_TRY(read_option(b, &r->inputs[i], err));
    PROA_TRY(proa_options_set_guide(o, row_text(b, "guided_decoding_guide_type"),
                                    row_text(b, "guided_decoding_guide"), &b->req->arena, err));
    if (o->beams == 0) o->beams = 1, o->given[PROA_OPTION_beams] = true;
    if (o->beams > 1 && o->n > 0) { /* how many of the beams to return */
        o->beams_returned = o->n < o->beams ? o->n : 0;
        o->n = 0;
        o->given[PROA_OPTION_n] = false;
    }
    if (o->beams > 1 && o->return_logits)
        return PROA_FAIL(err, UNSUPPORTED, "return_generation_logits does not go with beam_width %d", o->beams);
    return PROA_OK;
}

static proa_status read_output_len(const batch_row *b, proa_err *err)
{
    int64_t value = 0;
    if (!proa_input_int(b->req->infer, "request_output_len", b->row, &value))
        return PROA_FAIL(err, INVALID, "request_output_len is not present in the request");
    if (value < 1 || value > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, INVALID, "request_output_len is %lld, must be 1 to %d", (long long)value,
                         PROA_CONTEXT_MAX);
    b->g->options.max_tokens = (int32_t)value;
    return PROA_OK;
}

/* Only encoder-decoders use the input. The preprocessing of a decoder sends it too; it is ignored there. */
static proa_status read_decoder(const batch_row *b, proa_err *err)
{
    proa_generation *g = b->g;
    int64_t pad = -1;
    if (b->req->llm_model->info.kind != PROA_KIND_ENCODER_DECODER) return PROA_OK;
    PROA_TRY(read_ids(b, "decoder_input_ids", "decoder_input_lengths", &g->decoder_ids, &g->decoder_ids_count,
                      err));
    if (g->decoder_ids_count) return PROA_OK;
    g->decoder_ids = NULL;
    if (!proa_input_int(b->req->infer, "pad_id", b->row, &pad) || pad < 0) return PROA_OK;
    int32_t *id = PROA_ARENA_NEW(&b->req->infer->arena, int32_t, 1);
    *id = (int32_t)pad;
    g->decoder_ids = id;
    g->decoder_ids_count = 1;
    return PROA_OK;
}

/* prompt_embedding_table, whose rows the ids from the vocabulary's size on name. prompt_vocab_size is how many there
 * are; prompt_table_extra_ids tell tables of one shape apart, which the engine does by their numbers. */
static proa_status read_table(const batch_row *b, proa_err *err)
{
    const proa_tensor *t = proa_infer_input(b->req->infer, "prompt_embedding_table");
    proa_generation *g = b->g;
    int64_t size = 0, rows = 0;
    bool sized = proa_input_int(b->req->infer, "prompt_vocab_size", b->row, &size);
    if (!t || proa_tensor_count(t) == 0) {
        if (size == 0) return PROA_OK;
        return PROA_FAIL(err, INVALID, "prompt_vocab_size is %lld, and there is no prompt_embedding_table",
                         (long long)size);
    }
    PROA_TRY(proa_input_vectors(row_of(b, t), b->req->llm_model->info.embedding, &b->req->infer->arena,
                                &g->prompt_table, &rows, err));
    if (sized && (size < 1 || size > rows))
        return PROA_FAIL(err, INVALID, "prompt_vocab_size is %lld, must be 1 to %lld, the rows of the table",
                         (long long)size, (long long)rows);
    g->prompt_table_rows = sized ? size : rows;
    return PROA_OK;
}

/* lora_config [rows, 3], or with a fourth column that says whether it is weight-decomposed. */
static proa_status read_lora_config(const batch_row *b, const proa_tensor *t, proa_adapter_rows *rows,
                                    proa_err *err)
{
    int64_t count = proa_tensor_count(t) / b->req->count, columns = t->rank ? t->shape[t->rank - 1] : 0,
            value = 0;
    if (t->rank < 2 || (columns != 3 && columns != 4) || count % columns != 0)
        return PROA_FAIL(err, INVALID, "input 'lora_config' has %lld columns, must be 3 or 4",
                         (long long)columns);
    rows->rows = count / columns;
    int32_t *config = PROA_ARENA_NEW(&b->req->arena, int32_t, proa_max64(3 * rows->rows, 1));
    for (int64_t i = 0; i < count; i++) {
        if (!proa_element_int(t, b->row * count + i, &value) || value != (int32_t)value)
            return PROA_FAIL(err, INVALID, "input 'lora_config' must be made of 32-bit integers");
        if (i % columns < 3) config[i / columns * 3 + i % columns] = (int32_t)value;
        else if (value)
            return PROA_FAIL(err, UNSUPPORTED,
                             "input 'lora_config': row %lld is of a DoRA, which is not supported",
                             (long long)(i / columns));
    }
    rows->config = config;
    return PROA_OK;
}

static proa_status load_adapter(const batch_row *b, const proa_tensor *weights, const proa_tensor *config,
                                proa_err *err)
{
    const char *name = b->g->options.adapter;
    proa_adapter_rows rows = {.width = weights->rank ? weights->shape[weights->rank - 1] : 0};
    int64_t count = 0;
    proa_err late = {.status = PROA_OK};
    PROA_TRY(read_lora_config(b, config, &rows, err));
    PROA_TRY(proa_input_vectors(row_of(b, weights), rows.width, &b->req->arena, &rows.weights, &count, err));
    if (count != rows.rows)
        return PROA_FAIL(err, INVALID, "input 'lora_weights' has %lld rows, 'lora_config' has %lld",
                         (long long)count, (long long)rows.rows);
    proa_status status = proa_fleet_load_adapter_rows(b->req->llm_model->fleet, name, &rows, &late);
    if (status == PROA_OK || status == PROA_EXISTS)
        return PROA_OK; /* another request may have brought it meanwhile */
    *err = late;
    proa_err_prefix(err, "lora_task_id %s", name);
    return status;
}

/* The first request with a lora_task_id brings lora_weights and lora_config, later ones the id alone. */
static proa_status read_adapter(const batch_row *b, proa_err *err)
{
    const proa_tensor *weights = proa_infer_input(b->req->infer, "lora_weights"),
                      *config = proa_infer_input(b->req->infer, "lora_config");
    bool has_weights = weights && proa_tensor_count(weights) > 0,
         has_config = config && proa_tensor_count(config) > 0;
    const char *name = b->g->options.adapter;
    if (has_weights != has_config)
        return PROA_FAIL(err, INVALID, "input '%s' needs '%s' as well",
                         has_weights ? "lora_weights" : "lora_config",
                         has_weights ? "lora_config" : "lora_weights");
    if (has_weights && !name)
        return PROA_FAIL(err, INVALID, "input 'lora_weights' needs 'lora_task_id' as well");
    if (!name || proa_llm_has_adapter(b->req->llm_model, name)) return PROA_OK;
    if (has_weights) return load_adapter(b, weights, config, err);
    return PROA_FAIL(
        err, INVALID,
        "there is no adapter '%.64s': the first request with a lora_task_id brings lora_weights and "
        "lora_config",
        name);
}

static proa_status read_row(const batch_row *b, proa_trtllm_prompt *trtllm, proa_err *err)
{
    const proa_infer *r = b->req->infer;
    proa_generation *g = b->g;
    PROA_TRY(read_ids(b, "input_ids", "input_lengths", &g->ids, &g->ids_count, err));
    PROA_TRY(read_options(b, err));
    PROA_TRY(read_output_len(b, err));
    PROA_TRY(read_decoder(b, err));
    PROA_TRY(read_table(b, err));
    PROA_TRY(read_adapter(b, err));
    if (!g->ids_count) return PROA_FAIL(err, INVALID, "row %lld of the batch is empty", (long long)b->row);
    trtllm->exclude_input = b->req->llm_model->exclude_input;
    proa_input_bool(r, "exclude_input_in_output", b->row, &trtllm->exclude_input);
    proa_input_bool(r, "return_context_logits", b->row, &trtllm->context_logits);
    proa_input_bool(r, "return_kv_cache_reuse_stats", b->row, &trtllm->perf_metrics);
    proa_input_bool(r, "return_perf_metrics", b->row, &trtllm->perf_metrics);
    trtllm->log_probs = g->options.logprobs;
    trtllm->generation_logits = g->options.return_logits;
    g->prompt_logits = trtllm->context_logits;
    return PROA_OK;
}

static proa_status check_type(const proa_infer *r, proa_err *err)
{
    const proa_infer_param *type = proa_infer_find_param(r, "request_type");
    if (!type || type->kind != PROA_PARAM_STRING || proa_str_is(type->s, "context_and_generation"))
        return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "request_type '%.*s' is not supported by this engine",
                     (int)(type->s.len < 40 ? type->s.len : 40), type->s.ptr);
}

static proa_status stop_other(const proa_llm_request *req, proa_err *err)
{
    if (!*req->infer->id)
        return PROA_FAIL(err, INVALID, "Trying to stop a request but request ID is not provided");
    proa_llm_stop_others(req);
    return PROA_OK;
}

static proa_status read_request(proa_llm_request *req, proa_err *err)
{
    int64_t rows = 0;
    bool stop = false, streaming = false;
    proa_input_bool(req->infer, "stop", 0, &stop);
    if (stop) return stop_other(req, err);
    PROA_TRY(proa_refuse_inputs(req->infer, refused_inputs, err));
    PROA_TRY(check_type(req->infer, err));
    PROA_TRY(read_shape(req, &rows, err));
    proa_input_bool(req->infer, "streaming", 0, &streaming);
    proa_trtllm_request *trtllm = PROA_ARENA_NEW(&req->infer->arena, proa_trtllm_request, 1);
    trtllm->batched = proa_served_model_config(req->llm_model->model)->max_batch_size > 0;
    trtllm->prompt = PROA_ARENA_NEW(&req->infer->arena, proa_trtllm_prompt, rows);
    req->contract_data = trtllm;
    proa_generation *g = proa_llm_add_generations(req, rows);
    for (int64_t i = 0; i < rows; i++) {
        g[i].stream = streaming;
        PROA_TRY(read_row(&(batch_row){req, i, &g[i]}, &trtllm->prompt[i], err));
    }
    if (req->llm_model->decoupled) req->delivery = PROA_DELIVER_PROMPTS;
    return PROA_OK;
}

static const proa_contract contract = {.open = open_trtllm,
                                       .read = read_request,
                                       .emit = proa_trtllm_emit,
                                       .end = proa_trtllm_end,
                                       .bundles_beams = true};

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    return proa_llm_model_open(state, model, &contract, err);
}

static void trtllm_metrics(void *state, const char *labels, proa_buf *out)
{
    proa_llm_metrics(state, labels, out);
    proa_llm_metrics_trtllm(state, labels, out);
}

const proa_backend proa_backend_tensorrtllm = {.name = "tensorrtllm",
                                               .flags = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY |
                                                        PROA_BACKEND_GPU,
                                               .complete = complete_config,
                                               .model_open = model_open,
                                               .metrics = trtllm_metrics,
                                               PROA_LLM_BACKEND_CALLS};
