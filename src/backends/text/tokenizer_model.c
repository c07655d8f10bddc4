/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_model.c - opens the tokenizer that a model configuration names, and finds its inputs and
 * outputs. */
#include "backends/text/tokenizer_model.h"

#include "backends/common.h"
#include "backends/model_folder.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include <string.h>
#include <strings.h>

/* ---- special tokens ---- */

/* "</s>" or {"content": "</s>", ...} */
static proa_str token_text(const proa_json *config, const char *key)
{
    const proa_json *token = proa_json_get(config, key);
    if (proa_json_kind(token) == PROA_JSON_OBJECT) token = proa_json_get(token, "content");
    return proa_json_str(token);
}

static void find_tokens(proa_tokenizer_model *t, const char *folder)
{
    char path[PROA_PATH_MAX];
    proa_json *json = NULL;
    if (proa_path_join(path, folder, "tokenizer_config.json", NULL) != PROA_OK || !proa_file_exists(path) ||
        proa_json_load(&json, path, PROA_TOKENIZER_BYTES_MAX, NULL) != PROA_OK)
        return;
    proa_str end = token_text(json, "eos_token"), pad = token_text(json, "pad_token");
    if (end.len && !proa_tokenizer_find(t->tokenizer, end, &t->end_id)) t->end_id = -1;
    if (pad.len && !proa_tokenizer_find(t->tokenizer, pad, &t->pad_id)) t->pad_id = -1;
    proa_json_free(json);
}

static int32_t id_of(const proa_json *config, const char *key)
{
    const proa_json *value = proa_json_get(config, key);
    if (proa_json_kind(value) == PROA_JSON_ARRAY) value = proa_json_at(value, 0);
    int64_t id = proa_json_kind(value) == PROA_JSON_INT ? proa_json_int(value) : -1;
    return id >= 0 && id <= PROA_VOCAB_MAX ? (int32_t)id : -1;
}

/* Takes end and padding ids from the model's files if the tokenizer's files do not have them. */
static void find_ids(proa_tokenizer_model *t, const char *folder)
{
    char path[PROA_PATH_MAX];
    proa_json *json = NULL;
    find_tokens(t, folder);
    if (proa_path_join(path, folder, "config.json", NULL) == PROA_OK && proa_file_exists(path) &&
        proa_json_load(&json, path, PROA_CONFIG_BYTES_MAX, NULL) == PROA_OK) {
        if (t->end_id < 0) t->end_id = id_of(json, "eos_token_id");
        if (t->pad_id < 0) t->pad_id = id_of(json, "pad_token_id");
    }
    proa_json_free(json);
    if (t->pad_id < 0) t->pad_id = t->end_id;
}

/* ---- open ---- */

static bool says_unsigned(const Inference__ModelConfig *c)
{
    for (size_t i = 0; i < c->n_output; i++)
        if (strcasecmp(c->output[i]->name, "INPUT_ID") == 0)
            return c->output[i]->data_type == INFERENCE__DATA_TYPE__TYPE_UINT32;
    return false;
}

static proa_status open_tokens(proa_tokenizer_model *t, proa_err *err)
{
    static const char *const keys[] = {"tokenizer_dir", "tokenizer_path", NULL};
    char folder[4096];
    int64_t threads = 0;
    PROA_TRY(proa_model_folder(folder, t->model, keys, err));
    PROA_TRY(proa_tokenizer_open(&t->tokenizer, folder, err));
    PROA_TRY(proa_parameter_flag(&t->add_special, t->model, "add_special_tokens", err));
    PROA_TRY(proa_parameter_flag(&t->skip_special, t->model, "skip_special_tokens", err));
    PROA_TRY(proa_parameter_flag(&t->continuation, t->model, "continuation", err));
    PROA_TRY(proa_parameter_number(&threads, t->model, "threads", PROA_THREADS_MAX, err));
    t->threads = (int32_t)threads;
    t->unsigned_ids = says_unsigned(proa_served_model_config(t->model));
    t->pieces = proa_token_bytes_new(t->tokenizer);
    find_ids(t, folder);
    return PROA_OK;
}

proa_status proa_tokenizer_model_open(void **out, proa_served_model *model, proa_err *err)
{
    proa_tokenizer_model *t = proa_calloc(1, sizeof *t);
    *t = (proa_tokenizer_model){
        .model = model, .end_id = -1, .pad_id = -1, .add_special = true, .skip_special = true};
    proa_status status = open_tokens(t, err);
    if (status != PROA_OK) return proa_tokenizer_model_close(t), status;
    *out = t;
    return PROA_OK;
}

void proa_tokenizer_model_close(void *tokens)
{
    proa_tokenizer_model *t = tokens;
    if (!t) return;
    proa_token_bytes_free(t->pieces);
    proa_tokenizer_free(t->tokenizer);
    free(t);
}

/* ---- names ---- */

/* The names of the T5 encoder's tokenizer and of GPT-NeoX's postprocessing differ only in case; one of them
 * also has an s. */
static bool is_name(const char *name, const char *usual)
{
    if (strcasecmp(name, usual) == 0) return true;
    return strcmp(usual, "INPUT_ID") == 0 && strcmp(name, "input_ids") == 0;
}

const proa_tensor *proa_tokenizer_model_input(const proa_infer *r, const char *name)
{
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (is_name(r->inputs[i].name, name)) return &r->inputs[i];
    return NULL;
}

const char *proa_tokenizer_model_output(const proa_tokenizer_model *t, const proa_infer *r, const char *name,
                                        proa_type *type)
{
    const Inference__ModelConfig *c = proa_served_model_config(t->model);
    for (size_t i = 0; i < c->n_output; i++) {
        if (!is_name(c->output[i]->name, name) || !proa_infer_wants(r, c->output[i]->name)) continue;
        *type = (proa_type)c->output[i]->data_type;
        return c->output[i]->name;
    }
    return NULL;
}

void proa_tokenizer_model_share(proa_reply *reply, const char *name, const proa_tensor *tensor)
{
    proa_tensor *out = proa_reply_add(reply, name);
    const char *kept = out->name;
    proa_tensor_share(out, tensor);
    out->name = kept;
}

/* ---- the configuration ---- */

void proa_tokenizer_model_complete(Inference__ModelConfig *config, const proa_io_row *inputs,
                                   const proa_io_row *outputs, proa_arena *arena)
{
    if (!config->n_input) {
        if (config->max_batch_size == 0) config->max_batch_size = 64;
        proa_config_inputs(config, inputs, arena);
    }
    if (!config->n_output) proa_config_outputs(config, outputs, arena);
}
