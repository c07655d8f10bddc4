/* SPDX-License-Identifier: Apache-2.0
 * detokenizer.c - the backend `detokenizer`: what the Python model `postprocessing` of FasterTransformer's and
 * TensorRT-LLM's ensembles does, with the same tensors. */
#include "backends/backends.h"
#include "backends/common.h"
#include "backends/tensors/io_shapes.h"
#include "backends/tensors/tensor_read.h"
#include "backends/text/tokenizer_model.h"

#include "base/limits.h"
#include <string.h>

static const proa_io_row inputs[] = {
    {"TOKENS_BATCH", T(INT32), ANY_2D, 0}, {"SEQUENCE_LENGTH", T(INT32), ANY_1D, 0}, {.name = NULL}};
static const proa_io_row outputs[] = {{"OUTPUT", T(STRING), ANY_1D, 0}, {.name = NULL}};

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    PROA_UNUSED(version_path);
    PROA_UNUSED(err);
    proa_tokenizer_model_complete(config, inputs, outputs, arena);
    return PROA_OK;
}

/* ---- one request ---- */

/* Appends the bytes of each token to text that the client has already; the client joins them to characters.
 * */
static void append_pieces(const proa_tokenizer_model *t, const proa_ids *ids, proa_buf *out)
{
    for (int64_t i = 0; i < ids->len; i++)
        if (!t->skip_special || !proa_tokenizer_is_special(t->tokenizer, ids->ptr[i]))
            proa_buf_str(out, proa_token_bytes_of(t->pieces, ids->ptr[i]));
}

static proa_status decode_row(const proa_tokenizer_model *t, const proa_tensor *tokens, int64_t begin,
                              int64_t count, proa_ids *ids, proa_buf *out, proa_err *err)
{
    proa_ids_clear(ids);
    for (int64_t i = begin; i < begin + count; i++) {
        int64_t id = 0;
        if (!proa_element_int(tokens, i, &id))
            return PROA_FAIL(err, INVALID, "input '%s' must be made of integers", tokens->name);
        if (id >= 0 && id <= INT32_MAX) proa_ids_push(ids, (int32_t)id); /* padding may be -1 */
    }
    if (!t->continuation)
        return proa_tokenizer_decode(t->tokenizer, ids->ptr, ids->len, t->skip_special, out, err);
    append_pieces(t, ids, out);
    return PROA_OK;
}

/* Rows of tokens and their lengths, where there are any. */
static proa_status read_rows(const proa_tensor *tokens, const proa_tensor *lengths, int64_t *rows,
                             int64_t *width, proa_err *err)
{
    if (!tokens || tokens->rank < 1) return PROA_FAIL(err, INVALID, "input 'TOKENS_BATCH' is not there");
    *width = tokens->shape[tokens->rank - 1];
    *rows = 1;
    for (int32_t i = 0; i + 1 < tokens->rank; i++) *rows *= tokens->shape[i];
    if (*rows > PROA_FT_ROWS_MAX * (int64_t)PROA_BEAMS_MAX)
        return PROA_FAIL(err, LIMIT, "input 'TOKENS_BATCH' has %lld rows", (long long)*rows);
    if (lengths && proa_tensor_count(lengths) != *rows)
        return PROA_FAIL(err, INVALID, "input '%s' has %lld lengths for %lld rows of tokens", lengths->name,
                         (long long)proa_tensor_count(lengths), (long long)*rows);
    return PROA_OK;
}

static proa_status decode_batch(const proa_tokenizer_model *t, const proa_infer *r, proa_reply *reply,
                                const char *name, proa_err *err)
{
    const proa_tensor *tokens = proa_tokenizer_model_input(r, "TOKENS_BATCH");
    const proa_tensor *lengths = proa_tokenizer_model_input(r, "SEQUENCE_LENGTH");
    int64_t rows = 0, width = 0;
    PROA_TRY(read_rows(tokens, lengths, &rows, &width, err));
    proa_str *texts = PROA_ARENA_NEW(&reply->arena, proa_str, rows);
    size_t *ends = PROA_ARENA_NEW(&reply->arena, size_t, rows + 1);
    proa_ids ids = {0};
    proa_buf all;
    proa_status status = PROA_OK;
    proa_buf_init(&all, (size_t)PROA_REPLY_ARRAY_BYTES_MAX);
    for (int64_t i = 0; i < rows && status == PROA_OK; i++) {
        int64_t count = width;
        if (lengths && (!proa_element_int(lengths, i, &count) || count < 0 || count > width))
            status = PROA_FAIL(err, INVALID, "input '%s' is %lld in row %lld, must be 0 to %lld",
                               lengths->name, (long long)count, (long long)i, (long long)width);
        else status = decode_row(t, tokens, i * width, count, &ids, &all, err);
        ends[i + 1] = all.len;
    }
    for (int64_t i = 0; i < rows && all.len; i++)
        texts[i] = (proa_str){all.ptr + ends[i], ends[i + 1] - ends[i]};
    if (status == PROA_OK) proa_reply_add_strings(reply, name, texts, rows);
    proa_ids_release(&ids);
    proa_buf_release(&all);
    return status;
}

/* Passes log-probabilities and logits through as OUT_NAME, as repositories until 2024 expect. */
static void pass_on(const proa_tokenizer_model *t, const proa_infer *r, proa_reply *reply)
{
    static const char *const names[][2] = {
        {"CUM_LOG_PROBS", "OUT_CUM_LOG_PROBS"},   {"OUTPUT_LOG_PROBS", "OUT_OUTPUT_LOG_PROBS"},
        {"CONTEXT_LOGITS", "OUT_CONTEXT_LOGITS"}, {"GENERATION_LOGITS", "OUT_GENERATION_LOGITS"},
        {"BATCH_INDEX", "OUT_BATCH_INDEX"},       {"SEQUENCE_INDEX", "OUT_SEQUENCE_INDEX"}};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        proa_type type;
        const proa_tensor *given = proa_tokenizer_model_input(r, names[i][0]);
        const char *name = proa_tokenizer_model_output(t, r, names[i][1], &type);
        if (given && name) proa_tokenizer_model_share(reply, name, given);
    }
}

static void answer_request(const proa_tokenizer_model *t, proa_infer *r)
{
    proa_err err = {.status = PROA_OK};
    proa_type type;
    proa_reply *reply = proa_reply_new(r);
    const char *name = proa_tokenizer_model_output(t, r, "OUTPUT", &type);
    proa_status status = name ? decode_batch(t, r, reply, name, &err) : PROA_OK;
    if (status == PROA_OK) pass_on(t, r, reply);
    else reply->error = err;
    proa_infer_reply(r, reply, true);
}

/* ---- the table ---- */

static void execute_detokenizer(void *instance_state, proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++) answer_request(instance_state, requests[i]);
}

const proa_backend proa_backend_detokenizer = {.name = "detokenizer",
                                               .flags = PROA_BACKEND_INLINE,
                                               .complete = complete_config,
                                               .model_open = proa_tokenizer_model_open,
                                               .model_close = proa_tokenizer_model_close,
                                               .instance_open = proa_shared_instance_open,
                                               .instance_close = proa_shared_instance_close,
                                               .execute = execute_detokenizer};
