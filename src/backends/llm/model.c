/* SPDX-License-Identifier: Apache-2.0
 * model.c - a version of a model on the engine: its folder, its adapters, its end. */
#include "backends/llm/contract.h"
#include "backends/llm/settings.h"

#include "backends/backends.h"
#include "backends/model_folder.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <string.h>

static const char *const folder_keys[] = {"model_path", "gpt_model_path", "model_checkpoint_path",
                                          "encoder_model_path", NULL};

/* ---- what the folder says beside the weights ---- */

static void read_labels(proa_llm_model *s, const proa_json *config)
{
    const proa_json *names = proa_json_get(config, "id2label");
    proa_str problem = proa_json_str(proa_json_get(config, "problem_type"));
    s->labels = s->info.labels;
    const char **label = PROA_ARENA_NEW(&s->arena, const char *, s->labels);
    for (int64_t i = 0; i < s->labels; i++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)i);
        proa_str name = proa_json_str(proa_json_get(names, key));
        label[i] = name.len ? proa_arena_strdup(&s->arena, name)
                            : proa_arena_printf(&s->arena, "LABEL_%lld", (long long)i);
    }
    s->label = label;
    s->scores = PROA_SCORES_SOFTMAX;
    if (proa_str_is(problem, "multi_label_classification")) s->scores = PROA_SCORES_SIGMOID;
    if (proa_str_is(problem, "regression") || s->labels == 1) s->scores = PROA_SCORES_PLAIN;
}

static proa_status read_folder(proa_llm_model *s, proa_err *err)
{
    proa_json *config = NULL;
    int32_t ends = 0;
    const int32_t *end = proa_engine_end_ids(s->engine, &ends);
    int64_t pad = -1;
    PROA_TRY(proa_files_json(&config, proa_engine_files(s->engine), "config.json", PROA_CONFIG_BYTES_MAX, err));
    const proa_json *given = proa_json_get(config, "pad_token_id");
    if (proa_json_kind(given) == PROA_JSON_INT) pad = proa_json_int(given);
    s->end_id = ends ? end[0] : -1;
    s->pad_id = pad >= 0 && pad < s->info.vocab ? (int32_t)pad : s->end_id;
    if (s->info.labels > 0) read_labels(s, config);
    proa_status status = proa_llm_read_sentence(s, config, err);
    proa_json_free(config);
    return status;
}

/* ---- adapters ---- */

proa_status proa_llm_load_adapter(void *state, const char *name, const char *path, proa_err *err)
{
    proa_llm_model *s = state;
    PROA_TRY(proa_fleet_load_adapter(s->fleet, name, path, err));
    PROA_LOG(INFO, "model '%s': adapter '%s' of %s", proa_served_model_name(s->model), name, path);
    return PROA_OK;
}

proa_status proa_llm_unload_adapter(void *state, const char *name, proa_err *err)
{
    proa_llm_model *s = state;
    return proa_fleet_unload_adapter(s->fleet, name, err);
}

static void compare_name(void *arg, const char *name, const char *path)
{
    const char **sought = arg;
    PROA_UNUSED(path);
    if (*sought && strcmp(*sought, name) == 0) *sought = NULL;
}

bool proa_llm_has_adapter(const proa_llm_model *s, const char *name)
{
    for (int32_t i = 0; name && i < proa_fleet_count(s->fleet); i++)
        proa_engine_adapters(proa_fleet_engine(s->fleet, i), compare_name, &name);
    return !name;
}

void proa_llm_adapters(void *state, proa_see_adapter_fn *see, void *arg)
{
    const proa_llm_model *s = state;
    proa_engine_adapters(s->engine, see, arg);
}

/* ---- open and close ---- */

static proa_status open_served(proa_llm_model *s, proa_err *err)
{
    proa_engine_options options;
    proa_fleet_options fleet;
    const Inference__ModelConfig *config = proa_served_model_config(s->model);
    PROA_TRY(proa_model_folder(s->folder, s->model, folder_keys, err));
    PROA_TRY(proa_llm_read_options(&options, s, err));
    PROA_TRY(proa_llm_read_queue(s, err));
    s->decoupled = config->model_transaction_policy && config->model_transaction_policy->decoupled;
    PROA_TRY(proa_llm_read_replicas(&fleet, s, &options, err));
    PROA_TRY(proa_fleet_open(&s->fleet, s->folder, &options, &fleet, err));
    s->engine = proa_fleet_engine(s->fleet, 0);
    proa_engine_info(s->engine, &s->info);
    s->tokenizer = proa_engine_tokenizer(s->engine);
    if (s->tokenizer) s->token_bytes = proa_token_bytes_new(s->tokenizer);
    PROA_TRY(read_folder(s, err));
    if (s->contract->open) PROA_TRY(s->contract->open(s, err));
    proa_llm_places_open(s);
    PROA_TRY(proa_fleet_start(s->fleet, err));
    PROA_LOG(
        INFO,
        "model '%s': %s of %.1f M parameters (%s, quant %s, %d threads), room for %lld tokens of keys and "
        "values",
        proa_served_model_name(s->model), s->info.arch, (double)s->info.parameters * 1e-6, s->info.dtype,
        s->info.quant, s->info.threads, (long long)s->info.kv_tokens);
    PROA_LOG(INFO, "model '%s': planned %s", proa_served_model_name(s->model), s->info.plan);
    if (options.tensor_parallel > 1 || options.pipeline_parallel > 1)
        PROA_LOG(INFO, "model '%s': divided among %d ranks (tensors) in %d stages",
                 proa_served_model_name(s->model), options.tensor_parallel > 1 ? options.tensor_parallel : 1,
                 options.pipeline_parallel > 1 ? options.pipeline_parallel : 1);
    if (fleet.count > 1)
        PROA_LOG(INFO, "model '%s': %d replicas, each as planned; %d of them run prompts for the others",
                 proa_served_model_name(s->model), fleet.count, fleet.prefill);
    return PROA_OK;
}

proa_status proa_llm_model_open(void **state, proa_served_model *model, const proa_contract *contract,
                                proa_err *err)
{
    proa_llm_model *s = proa_calloc(1, sizeof *s);
    s->contract = contract;
    s->model = model;
    proa_arena_init(&s->arena);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->gpu_lock, NULL);
    proa_llm_readers_start(s, proa_llm_request_read);
    proa_status status = open_served(s, err);
    if (status != PROA_OK) return proa_llm_model_close(s), status;
    *state = s;
    return PROA_OK;
}

void proa_llm_model_close(void *state)
{
    proa_llm_model *s = state;
    if (!s) return;
    proa_llm_readers_stop(s);
    if (s->fleet) proa_fleet_stop(s->fleet);
    proa_token_bytes_free(s->token_bytes);
    proa_chat_free(s->chat);
    proa_fleet_close(s->fleet);
    proa_llm_places_close(s);
    proa_arena_release(&s->arena);
    pthread_mutex_destroy(&s->gpu_lock);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool proa_llm_ready(void *state, proa_err *reason)
{
    const proa_llm_model *s = state;
    if (proa_fleet_ready(s->fleet)) return true;
    if (proa_engine_ready(proa_fleet_engine(s->fleet, 0), reason) != PROA_OK) return false;
    (void)PROA_FAIL(reason, UNAVAILABLE, "the devices of all %d replicas have failed",
                    proa_fleet_count(s->fleet));
    return false;
}
