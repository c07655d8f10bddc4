/* SPDX-License-Identifier: Apache-2.0
 * python.c - the backend `python`: Triton's model.py, each instance a process of its own. */
#include "backends/backends.h"
#include "backends/common.h"
#include "backends/process/process.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/file.h"
#include "proto/proto_json.h"
#include "python/env.h"
#include "python/launch.h"
#include "serve/config/config.h"
#include <string.h>
#include <unistd.h>

#define FILE_DEFAULT "model.py"
#define GPUS_MAX     64

/* ---- its processes ---- */

static proa_status start_stub(proa_process **out, const void *env, const char *name,
                              const proa_process_options *options, proa_err *err)
{
    return proa_python_start(out, env, name, options, err);
}

static const proa_worker_kind python_kind = {
    .process = "Stub process",
    .model = "Python model",
    .late = "the interpreter did not start in time (stub-timeout-seconds)",
    .writes_inputs = true,
    .start = start_stub};

/* ---- settings ---- */

static const char *config_parameter(const Inference__ModelConfig *c, const char *key)
{
    return proa_config_parameter(c, key);
}

static proa_status setting_number(int64_t *value, const proa_server *server, const char *key, int64_t max,
                                  proa_err *err)
{
    return proa_worker_setting(value, server, "python", key, max, err);
}

static proa_status parameter_number(int64_t *value, const Inference__ModelConfig *c, const char *key,
                                    int64_t max, proa_err *err)
{
    const char *text = config_parameter(c, key);
    char *end;
    if (!text) return PROA_OK;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || number < 0 || number > max)
        return PROA_FAIL(err, INVALID, "parameter '%s' must be a number from 0 to %lld, got '%s'", key,
                         (long long)max, text);
    *value = number;
    return PROA_OK;
}

/* The model's parameter `strict_outputs`, or else --backend-config python,strict-outputs. */
static proa_status read_strict_outputs(bool *strict, const Inference__ModelConfig *c,
                                       const proa_server *server, proa_err *err)
{
    const char *own = config_parameter(c, "strict_outputs");
    const char *text = own ? own : proa_backend_setting(server, "python", "strict-outputs");
    *strict = text && strcmp(text, "true") == 0;
    if (!text || *strict || strcmp(text, "false") == 0) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s must be true or false, got '%s'",
                     own ? "parameter 'strict_outputs'" : "backend configuration 'strict-outputs' of python",
                     text);
}

/* Accepted because configurations have them; they have no effect here. */
static proa_status check_ignored(const proa_server *server, proa_err *err)
{
    static const char *const numbers[] = {"shm-growth-byte-size", "shm_message_queue_size", "thread-pool-size"};
    int64_t ignored;
    for (size_t i = 0; i < PROA_COUNT(numbers); i++)
        PROA_TRY(setting_number(&ignored, server, numbers[i], INT64_MAX, err));
    return PROA_OK;
}

/* *only: inputs come in host memory, which is Triton's default. Of an iterative sequence they always do, since a model
 * may write them, and a request that comes again has its inputs as before. */
static proa_status read_cpu_only(bool *only, const Inference__ModelConfig *c, proa_err *err)
{
    const char *force = config_parameter(c, "FORCE_CPU_ONLY_INPUT_TENSORS");
    const Inference__ModelSequenceBatching *sequence = proa_config_sequence(c);
    *only = !force || strcmp(force, "no") != 0 || (sequence && sequence->iterative_sequence);
    if (force && strcmp(force, "yes") != 0 && strcmp(force, "no") != 0)
        return PROA_FAIL(err, INVALID, "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: %s", force);
    return PROA_OK;
}

/* model NULL: the one that is being completed. */
static proa_status read_settings(proa_worker_settings *s, const proa_served_model *model,
                                 const Inference__ModelConfig *c, const char *model_path,
                                 const proa_server *server, proa_err *err)
{
    char path[PROA_PATH_MAX];
    const char *env = config_parameter(c, "EXECUTION_ENV_PATH");
    int64_t start_secs = PROA_PYTHON_START_MS / 1000, memory_mb = 0;
    proa_pyenv *opened;
    *s = (proa_worker_settings){.kind = &python_kind, .keep_bytes = PROA_PROCESS_KEEP_BYTES};
    PROA_TRY(check_ignored(server, err));
    PROA_TRY(setting_number(&s->keep_bytes, server, "shm-default-byte-size", PROA_PROCESS_ARENA_BYTES, err));
    if (s->keep_bytes < PROA_PROCESS_KEEP_BYTES) s->keep_bytes = PROA_PROCESS_KEEP_BYTES;
    PROA_TRY(setting_number(&start_secs, server, "stub-timeout-seconds", PROA_PROCESS_LIMIT_MS_MAX / 1000, err));
    PROA_TRY(setting_number(&s->execute_ms, server, "execute-timeout-ms", PROA_PROCESS_LIMIT_MS_MAX, err));
    PROA_TRY(setting_number(&memory_mb, server, "memory-limit-mb", PROA_PROCESS_MEMORY_MB_MAX, err));
    PROA_TRY(parameter_number(&s->execute_ms, c, "execute_timeout_ms", PROA_PROCESS_LIMIT_MS_MAX, err));
    PROA_TRY(parameter_number(&memory_mb, c, "memory_limit_mb", PROA_PROCESS_MEMORY_MB_MAX, err));
    s->start_ms = s->finish_ms = start_secs * 1000;
    s->memory_bytes = memory_mb * PROA_MIB;
    if (env) PROA_TRY(proa_served_model_resolve(path, model, model_path, "EXECUTION_ENV_PATH", env, err));
    PROA_TRY(proa_pyenv_open(&opened, env ? path : NULL, model_path,
                             proa_backend_setting(server, "python", "python"), err));
    s->arg = opened;
    return PROA_OK;
}

static proa_status find_file(char *path, const Inference__ModelConfig *c, const char *version_path, proa_err *err)
{
    const char *name = c->default_model_filename && *c->default_model_filename ? c->default_model_filename
                                                                               : FILE_DEFAULT;
    PROA_TRY(proa_path_join(path, version_path, name, err));
    if (!proa_file_exists(path))
        return PROA_FAIL(err, NOT_FOUND, "Python model file not found in '%s'", path);
    return PROA_OK;
}

/* ---- auto_complete_config ---- */

/* Starting an interpreter takes time: only done if the file contains auto_complete_config. */
static bool wants_completion(const char *path)
{
    proa_buf text;
    bool wants = proa_file_read(&text, path, PROA_CONFIG_BYTES_MAX, NULL) == PROA_OK &&
                 memmem(text.ptr, text.len, "auto_complete_config", strlen("auto_complete_config"));
    proa_buf_release(&text);
    return wants;
}

static char *args_of(const Inference__ModelConfig *c)
{
    proa_buf config, args;
    proa_buf_init(&config, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_init(&args, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_config_print_json(&config, c);
    proa_buf_printf(&args, "{\"model_config\":");
    proa_buf_json_str(&args, proa_buf_view(&config));
    proa_buf_char(&args, '}');
    proa_buf_release(&config);
    return args.ptr;
}

static void close_env(void *env)
{
    proa_pyenv_close(env);
}

static proa_status complete_config(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    char file[PROA_PATH_MAX], folder[PROA_PATH_MAX];
    proa_json *head = NULL;
    proa_worker_settings settings;
    ProtobufCMessage *made;
    PROA_TRY(find_file(file, config, version_path, err));
    if (!wants_completion(file)) return PROA_OK;
    snprintf(folder, sizeof folder, "%s", version_path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    PROA_TRY(read_settings(&settings, NULL, config, folder, proa_completing_server(), err));
    char *args = args_of(config);
    proa_status status = proa_worker_ask(&head, &settings,
                                         &(proa_worker_question){"complete", config->name, file, args}, err);
    free(args);
    /* lives as long as the model, so that an archive is unpacked once */
    proa_arena_defer(arena, close_env, (void *)(uintptr_t)settings.arg);
    if (status == PROA_OK)
        status = proa_proto_json_parse(&made, &inference__model_config__descriptor,
                                       proa_json_str(proa_json_get(head, "config")), "auto_complete_config",
                                       arena, err);
    if (status == PROA_OK) proa_backend_take_completed(config, (const Inference__ModelConfig *)made);
    proa_json_free(head);
    return status;
}

/* ---- models ---- */

static void model_close(void *state)
{
    proa_worker_model *m = state;
    close_env((void *)(uintptr_t)m->settings.arg);
    proa_families_free(m->families);
    proa_worker_model_release(m);
    free(m);
}

static proa_status model_parts(proa_worker_model *m, proa_err *err)
{
    char file[PROA_PATH_MAX];
    proa_buf json;
    bool cpu_only = true;
    const Inference__ModelSequenceBatching *sequence = proa_config_sequence(m->config);
    PROA_TRY(find_file(file, m->config, proa_served_model_version_path(m->model), err));
    m->file = proa_strdup(file);
    m->iterative = sequence && sequence->iterative_sequence;
    proa_buf_init(&json, (size_t)PROA_CHANNEL_HEAD_MAX);
    if (!proa_config_print_json(&json, m->config)) {
        proa_buf_release(&json);
        return PROA_FAIL(err, LIMIT, "the configuration is too large");
    }
    m->config_json = json.ptr;
    PROA_TRY(read_strict_outputs(&m->strict_outputs, m->config, m->server, err));
    PROA_TRY(read_cpu_only(&cpu_only, m->config, err));
    if (!cpu_only) proa_served_model_set_device_inputs(m->model);
    return read_settings(&m->settings, m->model, m->config, proa_served_model_path(m->model), m->server, err);
}

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    proa_worker_model *m = proa_calloc(1, sizeof *m);
    proa_worker_model_init(m, model);
    m->families = proa_families_new();
    proa_status status = model_parts(m, err);
    if (status == PROA_OK) *state = m;
    else model_close(m);
    return status;
}

/* GPUs of this machine, counted by their device files. */
static int gpu_count(void)
{
    int count = 0;
    for (int gpu = 0; gpu < GPUS_MAX; gpu++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", gpu);
        count += access(path, F_OK) == 0;
    }
    return count;
}

/* The GPU's number is passed to initialize; the server itself computes nothing there. */
static proa_status check_device(const proa_instance *instance, const proa_worker_model *m, proa_err *err)
{
    int device = proa_instance_device(instance), gpus = device < 0 ? 0 : gpu_count();
    if (device < 0 || device < gpus) return PROA_OK;
    if (!gpus)
        return PROA_FAIL(err, INVALID, "instance %s of model %s has kind KIND_GPU but no GPUs are available",
                         proa_instance_name(instance), m->config->name);
    return PROA_FAIL(err, INVALID, "instance %s of model %s asks for GPU %d of %d",
                     proa_instance_name(instance), m->config->name, device, gpus);
}

static proa_status instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    PROA_TRY(check_device(instance, model_state, err));
    *state = proa_worker_open(model_state, instance);
    return PROA_OK;
}

/* The processes start in parallel. */
static proa_status instances_opened(void *model_state, proa_err *err)
{
    return proa_worker_start_all(model_state, err);
}

static void instance_close(void *state)
{
    proa_worker_close(state);
}

static void execute_python(void *state, proa_infer *const *requests, int count)
{
    proa_worker_execute(state, requests, count);
}

static bool is_ready(void *model_state, proa_err *reason)
{
    return proa_worker_all_ready(model_state, reason);
}

static void python_metrics(void *model_state, const char *labels, proa_buf *out)
{
    proa_worker_model *m = model_state;
    proa_worker_metrics(m, "proa_python", labels, out);
    proa_families_print(m->families, out);
}

const proa_backend proa_backend_python = {
    .name = "python",
    .flags = PROA_BACKEND_GPU,
    .complete = complete_config,
    .model_open = model_open,
    .model_close = model_close,
    .instance_open = instance_open,
    .instances_opened = instances_opened,
    .instance_close = instance_close,
    .execute = execute_python,
    .ready = is_ready,
    .metrics = python_metrics,
};
