/* SPDX-License-Identifier: Apache-2.0
 * tensors.c - prompts and replies as tensors, for models that take no typed generations: Python models and ensembles
 *             with the native contract's tensors, and any model with text_input and text_output. */
#include "api/openai/openai.h"

#include <string.h>

/* ---- inputs ---- */

static void *add_array(proa_infer *r, const char *name, proa_type type, const int64_t *shape, int32_t rank)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    t->type = type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = (size_t)proa_shape_elements(shape, rank) * (size_t)proa_type_bytes(type);
    t->buffer = proa_buffer_new(t->bytes);
    t->data = t->buffer->data;
    return t->buffer->data;
}

/* BYTES: each text after its length. */
static void add_texts(proa_infer *r, const char *name, const proa_str *texts, int64_t count, bool batched)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    size_t bytes = 0, at = 0;
    for (int64_t i = 0; i < count; i++) bytes += 4 + texts[i].len;
    t->type = PROA_TYPE_BYTES;
    t->rank = batched ? 2 : 1;
    t->shape[0] = batched ? 1 : count;
    t->shape[1] = count;
    t->bytes = bytes;
    t->buffer = proa_buffer_new(bytes);
    t->data = t->buffer->data;
    for (int64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)texts[i].len;
        memcpy(t->buffer->data + at, &len, 4);
        if (len) memcpy(t->buffer->data + at + 4, texts[i].ptr, len);
        at += 4 + len;
    }
}

static void add_text(proa_infer *r, const char *name, proa_str text)
{
    add_texts(r, name, &text, 1, false);
}

static void add_flag(proa_infer *r, const char *name)
{
    *(char *)add_array(r, name, PROA_TYPE_BOOL, (int64_t[]){1}, 1) = 1;
}

static void add_ids(proa_infer *r, const proa_json *ids)
{
    int64_t n = proa_json_len(ids);
    int32_t *to = add_array(r, "input_ids", PROA_TYPE_INT32, &n, 1);
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)proa_json_int(proa_json_at(ids, i));
}

/* ---- the native contract ---- */

static void add_outputs(proa_infer *r, const char *const *names)
{
    for (; *names; names++) proa_infer_add_output(r, proa_str_c(*names));
}

static void add_native_outputs(const proa_oai *job, proa_infer *r)
{
    static const char *const text[] = {"text_output",   "sequence_index",    "finish_reason",
                                       "prompt_tokens", "completion_tokens", NULL};
    static const char *const logprobs[] = {"sequence_length", "output_log_probs", "token_text", NULL};
    static const char *const tops[] = {"top_log_probs", "top_text", NULL};
    static const char *const prompt[] = {"prompt_log_probs", "prompt_text", NULL};
    static const char *const prompt_tops[] = {"prompt_top_log_probs", "prompt_top_text", NULL};
    const proa_oai_params *p = &job->params;
    if (p->score) proa_infer_add_output(r, proa_str_c("prompt_tokens"));
    else add_outputs(r, text);
    if (p->logprobs && !p->score) add_outputs(r, logprobs);
    if (p->top_logprobs && !p->score) add_outputs(r, tops);
    if (p->echo && (p->logprobs || p->score)) add_outputs(r, prompt);
    if (p->echo && p->top_logprobs) add_outputs(r, prompt_tops);
}

static void add_seed(const proa_oai *job, proa_infer *r)
{
    proa_infer_param *seed = proa_infer_add_param(r, proa_str_c("seed"));
    seed->kind = PROA_PARAM_UINT;
    seed->u = job->params.seeded ? (uint64_t)job->params.seed : proa_oai_random();
}

static void add_pooling(const proa_oai *job, proa_infer *r)
{
    static const char *const names[] = {"", "mean", "cls", "pooler", "last"};
    proa_infer_param *pooling = proa_infer_add_param(r, proa_str_c("pooling"));
    pooling->kind = PROA_PARAM_STRING;
    pooling->s = proa_str_c(names[job->params.pooling]);
}

/* The native contract: a text, ids or messages, and everything else in `options`. */
static void add_native_inputs(const proa_oai *job, proa_infer *r)
{
    const proa_oai_params *p = &job->params;
    if (job->kind == PROA_OAI_EMBEDDING) {
        proa_infer_param *normalize = proa_infer_add_param(r, proa_str_c("normalize"));
        normalize->kind = PROA_PARAM_BOOL; /* OpenAI's vectors have length 1 */
        normalize->b = !p->plain_vectors;
        if (p->pooling != PROA_POOLING_DEFAULT) add_pooling(job, r);
        add_text(r, "task", proa_str_c("embed"));
        add_outputs(r, (const char *const[]){"embedding", "prompt_tokens", NULL});
        return;
    }
    if (p->score) add_text(r, "task", proa_str_c("score"));
    else add_seed(job, r);
    if (p->echo && !p->score) add_flag(r, "echo");
    if (job->stream && !p->score) add_flag(r, "stream");
    add_text(r, "options", job->options_text);
    add_native_outputs(job, r);
}

/* ---- any model with text_input and text_output ---- */

static bool write_number(void *to, proa_type type, double value, int64_t whole)
{
    switch (type) {
    case PROA_TYPE_BOOL: *(uint8_t *)to = whole != 0; return true;
    case PROA_TYPE_INT32:
    case PROA_TYPE_UINT32: *(int32_t *)to = (int32_t)whole; return true;
    case PROA_TYPE_INT64:
    case PROA_TYPE_UINT64: *(int64_t *)to = whole; return true;
    case PROA_TYPE_FP32: *(float *)to = (float)value; return true;
    case PROA_TYPE_FP64: *(double *)to = value; return true;
    default: return false;
    }
}

/* A number into the input of this name, in the type that the configuration says, if there is such an input. */
static void add_number(const proa_oai *job, proa_infer *r, const char *name, double value, int64_t whole)
{
    const Inference__ModelConfig *config = proa_served_model_config(job->model);
    const int64_t shape[] = {1, 1};
    char bytes[8];
    for (size_t i = 0; i < config->n_input; i++) {
        proa_type type = (proa_type)config->input[i]->data_type;
        if (strcmp(config->input[i]->name, name) != 0 || !write_number(bytes, type, value, whole)) continue;
        void *to = add_array(r, name, type, shape, config->max_batch_size > 0 ? 2 : 1);
        memcpy(to, bytes, (size_t)proa_type_bytes(type));
    }
}

static void add_stop(const proa_oai *job, proa_infer *r)
{
    const proa_json *stop = job->params.stop;
    bool one = proa_json_kind(stop) == PROA_JSON_STRING;
    int64_t count = one ? 1 : proa_json_len(stop);
    if (!stop || count == 0 || !proa_oai_has_input(job->model, "stop_words")) return;
    proa_str *texts = PROA_ARENA_NEW(&r->arena, proa_str, count);
    for (int64_t i = 0; i < count; i++) texts[i] = proa_json_str(one ? stop : proa_json_at(stop, i));
    add_texts(r, "stop_words", texts, count, proa_served_model_config(job->model)->max_batch_size > 0);
}

static void add_text_model_inputs(const proa_oai *job, proa_infer *r)
{
    const proa_oai_params *p = &job->params;
    int64_t seed = p->seeded ? p->seed : (int64_t)(proa_oai_random() >> 33);
    add_number(job, r, "max_tokens", (double)p->max_tokens, p->max_tokens);
    if (p->temperature > 0) { /* who says no top_p means 1; TensorRT-LLM takes its absence for greedy */
        add_number(job, r, "temperature", p->temperature, (int64_t)p->temperature);
        add_number(job, r, "top_p", p->has_top_p ? p->top_p : 1, 1);
    } else add_number(job, r, "top_k", 1, 1);
    if (p->has_presence) add_number(job, r, "presence_penalty", p->presence, (int64_t)p->presence);
    if (p->has_frequency) add_number(job, r, "frequency_penalty", p->frequency, (int64_t)p->frequency);
    add_number(job, r, "seed", (double)seed, seed);
    add_number(job, r, "random_seed", (double)seed, seed);
    add_number(job, r, "stream", job->stream, job->stream);
    add_number(job, r, "exclude_input_in_output", !p->echo, !p->echo);
    if (proa_oai_has_input(job->model, "sampling_parameters"))
        add_text(r, "sampling_parameters", job->options_text);
    add_stop(job, r);
    proa_infer_add_output(r, proa_str_c("text_output"));
}

static void add_prompt(const proa_oai *job, proa_infer *r, const proa_json *prompt)
{
    bool batched = job->contract == PROA_OAI_TEXT && proa_served_model_config(job->model)->max_batch_size > 0;
    proa_str text = proa_json_str(prompt);
    if (proa_json_kind(prompt) == PROA_JSON_ARRAY) add_ids(r, prompt);
    else add_texts(r, "text_input", &text, 1, batched);
}

void proa_oai_add_tensors(const proa_oai *job, proa_infer *r, const proa_json *prompt)
{
    if (!job->inputs) add_text(r, "messages", job->chat_text);
    else add_prompt(job, r, prompt);
    if (job->contract == PROA_OAI_NATIVE) add_native_inputs(job, r);
    else add_text_model_inputs(job, r);
}

/* ---- replies ---- */

static int64_t int_at(const proa_reply *reply, const char *name, int64_t i, int64_t otherwise)
{
    const proa_tensor *t = proa_reply_output(reply, name);
    if (!t || t->type != PROA_TYPE_INT32 || t->bytes < (size_t)(i + 1) * 4) return otherwise;
    return ((const int32_t *)(const void *)t->data)[i];
}

/* All strings of a BYTES output, of which there may be fewer than `count`: the others are empty. *found is how many
 * there are. */
static proa_str *strings_of(proa_reply *reply, const proa_tensor *t, int64_t count, int64_t *found)
{
    proa_str *list = PROA_ARENA_NEW(&reply->arena, proa_str, count);
    size_t at = 0;
    int64_t n = 0;
    while (n < count && t && t->type == PROA_TYPE_BYTES && proa_tensor_next_string(t, &at, &list[n])) n++;
    for (int64_t i = n; i < count; i++) list[i] = (proa_str){"", 0};
    if (found) *found = n;
    return list;
}

/* Log-probabilities of `rows` sequences of the same width, from [rows, width] and [rows, width, tops]; false if the
 * outputs are not there. */
typedef struct token_rows {
    const float *values, *top_values;
    const proa_str *texts, *top_texts;
    int64_t width, tops, found; /* found: texts in all */
} token_rows;

static bool find_rows(token_rows *r, proa_reply *reply, const char *const names[4], int64_t rows)
{
    const proa_tensor *values = proa_reply_output(reply, names[0]), *texts = proa_reply_output(reply, names[1]);
    const proa_tensor *tops = proa_reply_output(reply, names[2]),
                      *top_texts = proa_reply_output(reply, names[3]);
    if (!values || !texts || values->type != PROA_TYPE_FP32 || texts->type != PROA_TYPE_BYTES) return false;
    *r = (token_rows){.values = (const float *)(const void *)values->data};
    r->width = (int64_t)(values->bytes / sizeof(float)) / rows;
    r->texts = strings_of(reply, texts, rows * r->width, &r->found);
    if (!tops || !top_texts || tops->type != PROA_TYPE_FP32 || r->width == 0) return true;
    r->tops = (int64_t)(tops->bytes / sizeof(float)) / (rows * r->width);
    r->top_values = (const float *)(const void *)tops->data;
    r->top_texts = strings_of(reply, top_texts, rows * r->width * r->tops, NULL);
    return true;
}

static proa_generated_tokens tokens_of_row(const token_rows *r, int64_t row, int64_t length)
{
    int64_t at = row * r->width, count = length < r->width ? length : r->width;
    if (count > r->found - at) count = r->found > at ? r->found - at : 0;
    proa_generated_tokens tokens = {.count = count > 0 ? count : 0, .tops = r->tops};
    if (tokens.count == 0) return tokens;
    tokens.logprobs = r->values + at;
    tokens.texts = r->texts + at;
    if (r->tops == 0) return tokens;
    tokens.top_logprobs = r->top_values + at * r->tops;
    tokens.top_texts = r->top_texts + at * r->tops;
    return tokens;
}

/* "" and "cancelled": it runs, or its end is not awaited. */
static proa_finish finish_of(proa_str reason)
{
    if (reason.len == 0 || proa_str_is(reason, "cancelled")) return PROA_FINISH_NONE;
    return proa_str_is(reason, "length") ? PROA_FINISH_LENGTH : PROA_FINISH_STOP;
}

static void type_sequences(const proa_oai *job, proa_generated *g, proa_reply *reply)
{
    static const char *const names[] = {"output_log_probs", "token_text", "top_log_probs", "top_text"};
    const proa_tensor *texts = proa_reply_output(reply, "text_output");
    int64_t count = texts && texts->type == PROA_TYPE_BYTES ? proa_shape_elements(texts->shape, texts->rank) : 0;
    if (count <= 0) return;
    const proa_str *text = strings_of(reply, texts, count, NULL);
    const proa_str *reason = strings_of(reply, proa_reply_output(reply, "finish_reason"), count, NULL);
    proa_generated_sequence *list = PROA_ARENA_NEW(&reply->arena, proa_generated_sequence, count);
    token_rows rows;
    bool logprobs = job->params.logprobs && find_rows(&rows, reply, names, count);
    for (int64_t i = 0; i < count; i++) {
        list[i] = (proa_generated_sequence){.text = text[i], .finish = finish_of(reason[i])};
        list[i].index = (int32_t)int_at(reply, "sequence_index", i, i);
        list[i].tokens = int_at(reply, "completion_tokens", i, -1);
        if (logprobs)
            list[i].added = tokens_of_row(&rows, i, int_at(reply, "sequence_length", i, rows.width));
    }
    g->sequences = list;
    g->count = count;
}

static void type_prompt(proa_generated *g, proa_reply *reply)
{
    static const char *const names[] = {"prompt_log_probs", "prompt_text", "prompt_top_log_probs",
                                        "prompt_top_text"};
    token_rows rows;
    if (!find_rows(&rows, reply, names, 1)) return;
    proa_generated_tokens *tokens = PROA_ARENA_NEW(&reply->arena, proa_generated_tokens, 1);
    *tokens = tokens_of_row(&rows, 0, rows.width);
    g->prompt = tokens;
}

const proa_generated *proa_oai_generated(const proa_oai *job, proa_reply *reply)
{
    if (reply->generated) return reply->generated;
    proa_generated *g = PROA_ARENA_NEW(&reply->arena, proa_generated, 1);
    const proa_tensor *embedding = proa_reply_output(reply, "embedding");
    g->prompt_tokens = int_at(reply, "prompt_tokens", 0, -1);
    if (embedding && embedding->type == PROA_TYPE_FP32) {
        g->embedding = (const float *)(const void *)embedding->data;
        g->embedding_count = (int64_t)(embedding->bytes / sizeof(float));
    }
    if (job->kind == PROA_OAI_EMBEDDING) return g;
    if (job->params.echo) type_prompt(g, reply);
    type_sequences(job, g, reply);
    return g;
}
