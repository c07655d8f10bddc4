/* SPDX-License-Identifier: Apache-2.0
 * openai_infer.c - a job's prompts as requests of inference: tensors by the model's contract. */
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

/* BYTES: each text behind its length. */
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

/* ---- the engine's contract ---- */

static void want(proa_infer *r, const char *const *names)
{
    for (; *names; names++) proa_infer_add_output(r, proa_str_c(*names));
}

static void want_outputs(const proa_oai *job, proa_infer *r)
{
    static const char *const text[] = {"text_output",   "sequence_index",    "finish_reason",
                                       "prompt_tokens", "completion_tokens", NULL};
    static const char *const logprobs[] = {"sequence_length", "output_log_probs", "token_text", NULL};
    static const char *const tops[] = {"top_log_probs", "top_text", NULL};
    static const char *const prompt[] = {"prompt_log_probs", "prompt_text", NULL};
    static const char *const prompt_tops[] = {"prompt_top_log_probs", "prompt_top_text", NULL};
    const proa_oai_params *p = &job->params;
    if (p->score) proa_infer_add_output(r, proa_str_c("prompt_tokens"));
    else want(r, text);
    if (p->logprobs && !p->score) want(r, logprobs);
    if (p->top_logprobs && !p->score) want(r, tops);
    if (p->echo && (p->logprobs || p->score)) want(r, prompt);
    if (p->echo && p->top_logprobs) want(r, prompt_tops);
}

static void add_seed(const proa_oai *job, proa_infer *r)
{
    proa_param *seed = proa_infer_add_param(r, proa_str_c("seed"));
    seed->kind = PROA_PARAM_UINT;
    seed->u = job->params.seeded ? (uint64_t)job->params.seed : proa_oai_random();
}

static void ask_engine(const proa_oai *job, proa_infer *r)
{
    const proa_oai_params *p = &job->params;
    if (job->kind == PROA_OAI_EMBEDDING) {
        proa_param *normalize = proa_infer_add_param(r, proa_str_c("normalize"));
        normalize->kind = PROA_PARAM_BOOL; /* OpenAI's vectors have length 1 */
        normalize->b = true;
        add_text(r, "task", proa_str_c("embed"));
        want(r, (const char *const[]){"embedding", "prompt_tokens", NULL});
        return;
    }
    if (p->score) add_text(r, "task", proa_str_c("score"));
    else add_seed(job, r);
    if (p->echo && !p->score) add_flag(r, "echo");
    if (job->stream && !p->score) add_flag(r, "stream");
    add_text(r, "options", job->options);
    want_outputs(job, r);
}

/* ---- any model with text_input and text_output ---- */

static bool put_as(void *to, proa_type type, double value, int64_t whole)
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
    const Inference__ModelConfig *config = proa_model_config(job->model);
    const int64_t shape[] = {1, 1};
    char bytes[8];
    for (size_t i = 0; i < config->n_input; i++) {
        proa_type type = (proa_type)config->input[i]->data_type;
        if (strcmp(config->input[i]->name, name) != 0 || !put_as(bytes, type, value, whole)) continue;
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
    add_texts(r, "stop_words", texts, count, proa_model_config(job->model)->max_batch_size > 0);
}

static void ask_text(const proa_oai *job, proa_infer *r)
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
        add_text(r, "sampling_parameters", job->options);
    add_stop(job, r);
    proa_infer_add_output(r, proa_str_c("text_output"));
}

/* ---- sending ---- */

static const proa_json *prompt_at(const proa_oai *job, int32_t i)
{
    const proa_json *all = proa_json_get(job->body, job->kind == PROA_OAI_EMBEDDING ? "input" : "prompt");
    bool list = proa_json_kind(all) == PROA_JSON_ARRAY && proa_json_kind(proa_json_at(all, 0)) != PROA_JSON_INT;
    return list ? proa_json_at(all, i) : all;
}

static void add_prompt(proa_oai *job, proa_infer *r, proa_oai_prompt *p, int32_t i)
{
    const proa_json *prompt = prompt_at(job, i);
    bool batched = job->contract == PROA_OAI_TEXT && proa_model_config(job->model)->max_batch_size > 0;
    if (proa_json_kind(prompt) == PROA_JSON_ARRAY) {
        add_ids(r, prompt);
        return;
    }
    proa_str text = proa_json_str(prompt);
    if (job->params.score) p->text = (proa_str){proa_arena_strdup(&job->arena, text), text.len};
    add_texts(r, "text_input", &text, 1, batched);
}

static proa_infer *make_request(proa_oai *job, int32_t i, const proa_str *messages)
{
    proa_infer *r = proa_infer_new();
    r->id = proa_arena_strdup(&r->arena, proa_str_c(job->id));
    r->model_name = proa_arena_strdup(&r->arena, job->name);
    r->model_version = -1;
    if (messages) add_text(r, "messages", *messages);
    else add_prompt(job, r, &job->prompts[i], i);
    if (job->contract == PROA_OAI_ENGINE) ask_engine(job, r);
    else ask_text(job, r);
    return r;
}

static bool ids_for_text_model(const proa_oai *job)
{
    for (int32_t i = 0; job->contract == PROA_OAI_TEXT && i < job->prompts_count; i++)
        if (proa_json_kind(prompt_at(job, i)) == PROA_JSON_ARRAY) return true;
    return false;
}

static void send_one(proa_oai *job, int32_t i, const proa_str *messages)
{
    proa_oai_prompt *p = &job->prompts[i];
    proa_infer *r = make_request(job, i, messages);
    proa_err err = {.status = PROA_OK};
    p->job = job;
    proa_oai_choice_init(&p->said);
    proa_sink_init(&p->sink, proa_http_loop(job->x), r, proa_oai_on_reply);
    p->live = true;
    job->live++;
    if (proa_server_infer(proa_api_server(job->api), r, &err) == PROA_OK) return;
    p->live = false;
    job->live--;
    proa_sink_abandon(&p->sink);
    if (job->failed) return;
    proa_oai_error_of(&job->error, &err);
    proa_oai_give_up(job);
}

void proa_oai_send(proa_oai *job)
{
    proa_str messages = {NULL, 0};
    bool chat = job->kind == PROA_OAI_CHAT;
    if ((chat && !proa_oai_read_chat(job, &messages)) ||
        (!chat && ids_for_text_model(job) &&
         !proa_oai_bad(&job->error, "prompt", "The model '%.200s' takes texts only.", job->name.ptr))) {
        proa_oai_give_up(job);
        return;
    }
    job->prompts = PROA_ARENA_NEW(&job->arena, proa_oai_prompt, job->prompts_count);
    for (int32_t i = 0; i < job->prompts_count && job->x; i++) send_one(job, i, chat ? &messages : NULL);
}
