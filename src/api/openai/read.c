/* SPDX-License-Identifier: Apache-2.0
 * read.c - a body becomes a job: its model, what its form reads of it, and its prompts. */
#include "api/openai/openai.h"

#include "net/block.h"
#include "net/compress.h"
#include <string.h>

bool proa_oai_has_input(const proa_served_model *model, const char *name)
{
    const Inference__ModelConfig *config = proa_served_model_config(model);
    for (size_t i = 0; i < config->n_input; i++)
        if (strcmp(config->input[i]->name, name) == 0) return true;
    return false;
}

static bool has_output(const proa_served_model *model, const char *name)
{
    const Inference__ModelConfig *config = proa_served_model_config(model);
    for (size_t i = 0; i < config->n_output; i++)
        if (strcmp(config->output[i]->name, name) == 0) return true;
    return false;
}

/* The only model that is served, for operations whose clients may leave the name out. */
static bool only_model(proa_oai *job)
{
    Inference__RepositoryIndexResponse *index;
    if (!job->form->typed ||
        proa_server_index(proa_api_server(job->api), true, &index, &job->arena, NULL) != PROA_OK)
        return false;
    for (size_t i = 0; i < index->n_models; i++)
        if (strcmp(index->models[i]->name, index->models[0]->name) != 0) return false;
    if (index->n_models == 0) return false;
    job->name = proa_str_c(index->models[0]->name);
    return true;
}

static bool read_name(proa_oai *job)
{
    const proa_json *model = proa_json_get(job->body, "model");
    if (!model && only_model(job)) return true;
    if (proa_json_kind(model) != PROA_JSON_STRING)
        return proa_oai_bad(&job->error, "model", "you must provide a model parameter");
    job->name = proa_json_str(model);
    if (proa_str_has_nul(job->name))
        return proa_oai_bad(&job->error, "model", "Invalid 'model': the name has a NUL byte.");
    job->name.ptr = proa_arena_strdup(&job->arena, job->name);
    return true;
}

proa_status proa_oai_find_model(proa_api *api, const char *name, proa_served_model **out, bool *adapter,
                                proa_err *err)
{
    proa_server *server = proa_api_server(api);
    proa_err why = {.status = PROA_OK};
    if (adapter) *adapter = false;
    if (proa_server_find(server, name, -1, out, &why) == PROA_OK) return PROA_OK;
    *out = proa_server_find_adapter(server, name);
    if (*out && adapter) *adapter = true;
    if (!*out) *out = proa_server_find_repo(server, name);
    return *out ? PROA_OK : proa_err_copy(err, &why);
}

static bool find_model(proa_oai *job)
{
    proa_err err = {.status = PROA_OK};
    bool adapter;
    if (!read_name(job)) return false;
    if (proa_oai_find_model(job->api, job->name.ptr, &job->model, &adapter, &err) == PROA_OK) {
        if (adapter) job->adapter = job->name.ptr;
        return true;
    }
    proa_oai_error_of(&job->error, &err);
    job->error.param = "model";
    if (err.status == PROA_NOT_FOUND || err.status == PROA_INVALID) {
        job->error = (proa_oai_error){
            .status = 404, .type = "invalid_request_error", .param = "model", .code = "model_not_found"};
        snprintf(job->error.text, sizeof job->error.text, "The model '%.200s' does not exist", job->name.ptr);
    }
    return false;
}

/* Which of the two sets of inputs the model has. */
static bool find_contract(proa_oai *job)
{
    bool engine = proa_oai_has_input(job->model, "task") && proa_oai_has_input(job->model, "options");
    bool completes = job->kind == PROA_OAI_COMPLETION && proa_oai_has_input(job->model, "text_input"),
         fits = engine || completes;
    job->contract = engine ? PROA_OAI_NATIVE : PROA_OAI_TEXT;
    if (job->form->choices) fits = fits && has_output(job->model, "text_output");
    if (job->kind == PROA_OAI_EMBEDDING) fits = fits && has_output(job->model, "embedding");
    if (job->form->typed) fits = fits && proa_served_model_takes_generation(job->model);
    if (!fits)
        return proa_oai_bad(&job->error, "model", "The model '%.200s' does not do %s.", job->name.ptr,
                            job->form->what);
    return true;
}

proa_oai_input *proa_oai_add_inputs(proa_oai *job, int32_t count)
{
    proa_oai_input *inputs = PROA_ARENA_NEW(&job->arena, proa_oai_input, count);
    job->inputs = inputs;
    job->prompts_count = count;
    return inputs;
}

/* Prompts of the member `key`: a text, ids, or a list of either. */
static bool is_ids(const proa_json *j)
{
    return proa_json_kind(j) == PROA_JSON_ARRAY && proa_json_len(j) > 0 &&
           proa_json_kind(proa_json_at(j, 0)) == PROA_JSON_INT;
}

static bool check_ids(proa_oai *job, const proa_json *ids, const char *key)
{
    for (int64_t i = 0; i < proa_json_len(ids); i++) {
        const proa_json *id = proa_json_at(ids, i);
        if (proa_json_kind(id) != PROA_JSON_INT || proa_json_int(id) < 0 || proa_json_int(id) > INT32_MAX)
            return proa_oai_bad(&job->error, key, "Invalid '%s': element %lld is no token id.", key,
                                (long long)i);
    }
    return true;
}

static bool check_prompt(proa_oai *job, const proa_json *prompt, const char *key)
{
    if (proa_json_kind(prompt) == PROA_JSON_STRING) return true;
    if (is_ids(prompt)) return check_ids(job, prompt, key);
    return proa_oai_bad(&job->error, key,
                        "Invalid '%s': expected a string, a list of strings, a list of token ids, "
                        "or a list of lists of token ids.",
                        key);
}

bool proa_oai_read_ids(proa_oai *job, const proa_json *ids, const char *key)
{
    proa_oai_add_inputs(job, 1)->prompt = ids;
    return check_ids(job, ids, key);
}

bool proa_oai_read_prompts(proa_oai *job, const char *key)
{
    const proa_json *prompts = proa_json_get(job->body, key);
    bool one = proa_json_kind(prompts) == PROA_JSON_STRING || is_ids(prompts);
    if (!prompts) return proa_oai_bad(&job->error, key, "Missing required parameter: '%s'.", key);
    if (one) {
        proa_oai_add_inputs(job, 1)->prompt = prompts;
        return check_prompt(job, prompts, key);
    }
    if (proa_json_kind(prompts) != PROA_JSON_ARRAY || proa_json_len(prompts) == 0)
        return check_prompt(job, NULL, key);
    if (proa_json_len(prompts) > PROA_OPENAI_PROMPTS_MAX)
        return proa_oai_bad(&job->error, key, "Invalid '%s': at most %d in one request.", key,
                            PROA_OPENAI_PROMPTS_MAX);
    proa_oai_input *inputs = proa_oai_add_inputs(job, (int32_t)proa_json_len(prompts));
    for (int64_t i = 0; i < job->prompts_count; i++) {
        inputs[i].prompt = proa_json_at(prompts, i);
        if (!check_prompt(job, inputs[i].prompt, key)) return false;
    }
    return true;
}

/* Events carry no obfuscation, and there is no usage before the last one. */
static bool is_stream_option(proa_str name, const proa_json *value)
{
    bool off = proa_str_is(name, "include_obfuscation") || proa_str_is(name, "continuous_usage_stats");
    return proa_str_is(name, "include_usage") || (off && !proa_json_bool(value));
}

static bool read_stream(proa_oai *job)
{
    const proa_json *options = proa_json_get(job->body, "stream_options");
    if (!proa_oai_flag(&job->error, job->body, "stream", &job->stream)) return false;
    if (options && !job->stream)
        return proa_oai_bad(&job->error, "stream_options",
                            "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    for (proa_json_iter it = proa_json_begin(options); proa_json_next(&it);)
        if (!is_stream_option(it.key, it.value))
            return proa_oai_bad(&job->error, "stream_options",
                                "Invalid 'stream_options': '%.40s' is not supported, or not with this value.",
                                it.key.ptr);
    return proa_oai_flag(&job->error, options, "include_usage", &job->usage);
}

bool proa_oai_read_pooling(proa_oai *job)
{
    static const char *const names[] = {"mean", "cls", "pooler", "last"};
    const proa_json *pooling = proa_json_get(job->body, "pooling");
    bool normalize = true;
    for (size_t i = 0; i < PROA_COUNT(names) && pooling; i++)
        if (proa_str_is(proa_json_str(pooling), names[i])) job->params.pooling = (proa_pooling)(i + 1);
    if (pooling && job->params.pooling == PROA_POOLING_DEFAULT)
        return proa_oai_bad(&job->error, "pooling",
                            "Invalid 'pooling': expected 'mean', 'cls', 'pooler' or 'last'.");
    if (!proa_oai_flag(&job->error, job->body, "normalize", &normalize)) return false;
    job->params.plain_vectors = !normalize;
    return true;
}

bool proa_oai_read_embedding(proa_oai *job)
{
    const proa_json *encoding = proa_json_get(job->body, "encoding_format");
    proa_str name = proa_json_str(encoding);
    job->params.base64 = proa_str_is(name, "base64");
    job->task = PROA_GENERATION_EMBED;
    if (encoding && !job->params.base64 && !proa_str_is(name, "float"))
        return proa_oai_bad(&job->error, "encoding_format",
                            "Invalid 'encoding_format': expected 'float' or 'base64'.");
    return proa_oai_whole(job, "dimensions", 1, PROA_HIDDEN_MAX, &job->params.dimensions, NULL) &&
           proa_oai_read_pooling(job) && proa_oai_read_prompts(job, "input");
}

/* What a model that takes no options of the engine cannot do. */
static bool check_text_model(proa_oai *job)
{
    const proa_oai_params *p = &job->params;
    if (job->contract == PROA_OAI_NATIVE) return true;
    if (p->n > 1 || p->best_of > 1)
        return proa_oai_bad(&job->error, "n", "The model '%.200s' gives one answer to a prompt.", job->name.ptr);
    if (p->logprobs || p->score)
        return proa_oai_bad(&job->error, "logprobs", "The model '%.200s' returns no log-probabilities.",
                            job->name.ptr);
    return true;
}

bool proa_oai_read_generation(proa_oai *job)
{
    if (!read_stream(job) || !proa_oai_read_options(job) || !check_text_model(job)) return false;
    job->task = job->params.score ? PROA_GENERATION_SCORE : PROA_GENERATION_TEXT;
    return job->form->chat || proa_oai_read_prompts(job, "prompt");
}

static bool read_all(proa_oai *job)
{
    if (!find_model(job) || !find_contract(job) || !proa_oai_check_fields(job)) return false;
    job->params.n = 1;
    job->prompts_count = 1;
    if (!job->form->read(job)) return false;
    if (job->prompts_count * job->params.n > PROA_OPENAI_CHOICES_MAX)
        return proa_oai_bad(&job->error, "n", "Invalid 'n': at most %d answers in one request.",
                            PROA_OPENAI_CHOICES_MAX);
    return true;
}

/* The body as it was before it was compressed; plain holds it then. */
static bool unpack_body(proa_oai *job, proa_str *text, proa_buf *plain)
{
    proa_err err = {.status = PROA_OK};
    proa_str encoding = proa_http_get(job->x, "content-encoding");
    proa_coding coding;
    *text = (proa_str){job->x->body, job->x->body_len};
    if (!proa_coding_find(&coding, encoding)) {
        proa_oai_bad(&job->error, NULL, "Unsupported 'Content-Encoding' '%.*s': gzip and deflate are taken.",
                     (int)encoding.len, encoding.ptr);
        job->error.status = 415;
        return false;
    }
    if (coding == PROA_CODING_IDENTITY) return true;
    if (proa_decompress(plain, coding, text->ptr, text->len, plain->bytes_max, &err) != PROA_OK) {
        proa_oai_bad(&job->error, NULL, "We could not decompress the body of your request: %s", err.text);
        if (err.status == PROA_LIMIT) job->error.status = 413;
        return false;
    }
    if (proa_block_hold(&job->arena, plain->len, &err) != PROA_OK) {
        proa_oai_error_of(&job->error, &err);
        return false;
    }
    *text = (proa_str){plain->ptr, plain->len};
    return true;
}

static bool parse_body(proa_oai *job, proa_str text)
{
    proa_err err = {.status = PROA_OK};
    job->body_bytes = text.len;
    if (proa_json_parse_within(&job->body, text, PROA_REQUEST_NODES_MAX, "body", &err) != PROA_OK)
        return proa_oai_bad(&job->error, NULL, "We could not parse the JSON body of your request: %s", err.text);
    if (proa_json_kind(job->body) != PROA_JSON_OBJECT)
        return proa_oai_bad(&job->error, NULL, "The body of the request must be a JSON object.");
    return true;
}

bool proa_oai_read(proa_oai *job)
{
    proa_str text;
    proa_buf plain;
    proa_buf_init(&plain, proa_api_body_max(job->api));
    bool read = unpack_body(job, &text, &plain) && parse_body(job, text);
    proa_buf_release(&plain);
    return read && read_all(job);
}
