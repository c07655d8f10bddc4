/* SPDX-License-Identifier: Apache-2.0
 * python.c - the backend `python`: Triton's model.py, each instance a process of its own. */
#include "backends/python/python.h"
#include "backends/backends.h"
#include "backends/common.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/file.h"
#include "proto/proto_json.h"
#include "python/env.h"
#include "serve/config/config.h"
#include <string.h>
#include <unistd.h>

#define FILE_DEFAULT  "model.py"
#define LIMIT_MS_MAX  ((int64_t)7 * 86400 * 1000)
#define GPUS_MAX      64
#define MEMORY_MB_MAX ((int64_t)1 << 24)

/* ---- settings ---- */

static const char *config_parameter(const Inference__ModelConfig *c, const char *key)
{
    return proa_config_parameter(c, key);
}

/* A number of --backend-config python,KEY=N; *value stays if it is absent. */
static proa_status setting_number(int64_t *value, const proa_server *server, const char *key, int64_t max,
                                  proa_err *err)
{
    const char *text = proa_backend_setting(server, "python", key);
    char *end;
    if (!text) return PROA_OK;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || number < 0 || number > max)
        return PROA_FAIL(err, INVALID,
                         "backend configuration '%s' of python must be a number from 0 to %lld, got '%s'",
                         key, (long long)max, text);
    *value = number;
    return PROA_OK;
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
static proa_status check_ignored(const Inference__ModelConfig *c, const proa_server *server, proa_err *err)
{
    static const char *const numbers[] = {"shm-growth-byte-size", "shm_message_queue_size", "thread-pool-size"};
    const char *force = config_parameter(c, "FORCE_CPU_ONLY_INPUT_TENSORS");
    int64_t ignored;
    for (size_t i = 0; i < PROA_COUNT(numbers); i++)
        PROA_TRY(setting_number(&ignored, server, numbers[i], INT64_MAX, err));
    if (force && strcmp(force, "yes") != 0 && strcmp(force, "no") != 0)
        return PROA_FAIL(err, INVALID, "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: %s", force);
    return PROA_OK;
}

/* model NULL: the one that is being completed. */
static proa_status read_settings(proa_pysettings *s, const proa_served_model *model,
                                 const Inference__ModelConfig *c, const char *model_path,
                                 const proa_server *server, proa_err *err)
{
    char path[PROA_PATH_MAX];
    const char *env = config_parameter(c, "EXECUTION_ENV_PATH");
    int64_t start_secs = PROA_PYTHON_START_MS / 1000, memory_mb = 0;
    *s = (proa_pysettings){.keep_bytes = PROA_PYTHON_KEEP_BYTES};
    PROA_TRY(check_ignored(c, server, err));
    PROA_TRY(setting_number(&s->keep_bytes, server, "shm-default-byte-size", PROA_PYTHON_ARENA_BYTES, err));
    if (s->keep_bytes < PROA_PYTHON_KEEP_BYTES) s->keep_bytes = PROA_PYTHON_KEEP_BYTES;
    PROA_TRY(setting_number(&start_secs, server, "stub-timeout-seconds", LIMIT_MS_MAX / 1000, err));
    PROA_TRY(setting_number(&s->execute_ms, server, "execute-timeout-ms", LIMIT_MS_MAX, err));
    PROA_TRY(setting_number(&memory_mb, server, "memory-limit-mb", MEMORY_MB_MAX, err));
    PROA_TRY(parameter_number(&s->execute_ms, c, "execute_timeout_ms", LIMIT_MS_MAX, err));
    PROA_TRY(parameter_number(&memory_mb, c, "memory_limit_mb", MEMORY_MB_MAX, err));
    s->start_ms = start_secs * 1000;
    s->memory_bytes = memory_mb * PROA_MIB;
    if (env) PROA_TRY(proa_served_model_resolve(path, model, model_path, "EXECUTION_ENV_PATH", env, err));
    return proa_pyenv_open(&s->env, env ? path : NULL, model_path,
                           proa_backend_setting(server, "python", "python"), err);
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
    proa_buf_init(&config, (size_t)PROA_PYTHON_HEAD_MAX);
    proa_buf_init(&args, (size_t)PROA_PYTHON_HEAD_MAX);
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
    char file[PROA_PATH_MAX], folder[PROA_PATH_MAX], *text = NULL;
    proa_pysettings settings;
    ProtobufCMessage *made;
    PROA_TRY(find_file(file, config, version_path, err));
    if (!wants_completion(file)) return PROA_OK;
    snprintf(folder, sizeof folder, "%s", version_path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    PROA_TRY(read_settings(&settings, NULL, config, folder, proa_completing_server(), err));
    char *args = args_of(config);
    proa_status status = proa_pyinstance_complete(&text, &settings, config->name, file, args, err);
    free(args);
    proa_arena_defer(arena, close_env,
                     settings.env); /* lives as long as the model, so that an archive is unpacked once */
    if (status == PROA_OK)
        status = proa_proto_json_parse(&made, &inference__model_config__descriptor, proa_str_c(text),
                                       "auto_complete_config", arena, err);
    if (status == PROA_OK) proa_backend_take_completed(config, (const Inference__ModelConfig *)made);
    free(text);
    return status;
}

/* ---- models ---- */

static void model_close(void *state)
{
    proa_pymodel *m = state;
    proa_pyfamilies_free(m->families);
    proa_pyenv_close(m->settings.env);
    pthread_mutex_destroy(&m->lock);
    free(m->config_json);
    free(m->file);
    free(m);
}

static proa_status model_parts(proa_pymodel *m, proa_err *err)
{
    char file[PROA_PATH_MAX];
    proa_buf json;
    const Inference__ModelSequenceBatching *sequence = proa_config_sequence(m->config);
    PROA_TRY(find_file(file, m->config, proa_served_model_version_path(m->model), err));
    m->file = proa_strdup(file);
    m->decoupled = m->config->model_transaction_policy && m->config->model_transaction_policy->decoupled;
    m->iterative = sequence && sequence->iterative_sequence;
    proa_buf_init(&json, (size_t)PROA_PYTHON_HEAD_MAX);
    if (!proa_config_print_json(&json, m->config)) {
        proa_buf_release(&json);
        return PROA_FAIL(err, LIMIT, "the configuration is too large");
    }
    m->config_json = json.ptr;
    PROA_TRY(read_strict_outputs(&m->strict_outputs, m->config, m->server, err));
    return read_settings(&m->settings, m->model, m->config, proa_served_model_path(m->model), m->server, err);
}

static proa_status model_open(void **state, proa_served_model *model, proa_err *err)
{
    proa_pymodel *m = proa_calloc(1, sizeof *m);
    m->model = model;
    m->server = proa_served_model_server(model);
    m->config = proa_served_model_config(model);
    m->families = proa_pyfamilies_new();
    pthread_mutex_init(&m->lock, NULL);
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
static proa_status check_device(const proa_instance *instance, const proa_pymodel *m, proa_err *err)
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
    proa_pyinstance *i;
    PROA_TRY(check_device(instance, model_state, err));
    PROA_TRY(proa_pyinstance_open(&i, model_state, instance, err));
    *state = i;
    return PROA_OK;
}

/* Waits for the processes, which start in parallel. */
static proa_status instances_opened(void *model_state, proa_err *err)
{
    const proa_pymodel *m = model_state;
    for (proa_pyinstance *i = m->instances; i; i = proa_pyinstance_next(i))
        PROA_TRY(proa_pyinstance_wait_opened(i, err));
    return PROA_OK;
}

static void instance_close(void *state)
{
    proa_pyinstance_close(state);
}

static void execute_python(void *state, proa_infer *const *requests, int count)
{
    proa_pyinstance_execute(state, requests, count);
}

static bool is_ready(void *model_state, proa_err *reason)
{
    proa_pymodel *m = model_state;
    bool all = true;
    pthread_mutex_lock(&m->lock);
    for (proa_pyinstance *i = m->instances; i && all; i = proa_pyinstance_next(i))
        all = proa_pyinstance_ready(i, reason);
    pthread_mutex_unlock(&m->lock);
    return all;
}

static void put_counter(proa_buf *out, const char *labels, const char *name, const char *help,
                        unsigned long long value)
{
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s{%s} %llu\n", name, help, name, name, labels, value);
}

/* A sample for each process; a family without samples is left out. */
static void put_processes(proa_pymodel *m, const char *labels, proa_buf *out)
{
    static const char memory[] = "proa_python_process_memory_bytes",
                      cpu[] = "proa_python_process_cpu_seconds_total";
    proa_buf seconds;
    int running = 0;
    proa_buf_init(&seconds, PROA_METRICS_BYTES_MAX);
    proa_buf_printf(out, "# HELP %s Memory of the process that is in RAM, shared memory included\n# TYPE %s gauge\n",
                    memory, memory);
    pthread_mutex_lock(&m->lock);
    for (proa_pyinstance *i = m->instances; i; i = proa_pyinstance_next(i)) {
        proa_pyprocess_use use;
        const char *name;
        if (!proa_pyinstance_read_use(i, &name, &use)) continue;
        running++;
        proa_buf_printf(out, "%s{%s,instance=\"%s\"} %lld\n", memory, labels, name, (long long)use.memory_bytes);
        proa_buf_printf(&seconds, "%s{%s,instance=\"%s\"} %.2f\n", cpu, labels, name, use.cpu_s);
    }
    pthread_mutex_unlock(&m->lock);
    proa_buf_printf(out, "# HELP %s Processor time of the process, since it was started\n# TYPE %s counter\n",
                    cpu, cpu);
    proa_buf_str(out, proa_buf_view(&seconds));
    proa_buf_release(&seconds);
    proa_buf_printf(out,
                    "# HELP proa_python_processes Processes that run\n# TYPE proa_python_processes gauge\n"
                    "proa_python_processes{%s} %d\n",
                    labels, running);
}

static void python_metrics(void *model_state, const char *labels, proa_buf *out)
{
    proa_pymodel *m = model_state;
    put_counter(out, labels, "proa_python_input_bytes_total",
                "Bytes of inputs that were copied into shared memory, once each", atomic_load(&m->bytes_in));
    put_counter(
        out, labels, "proa_python_output_bytes_total",
        "Bytes of outputs that Python wrote into shared memory, from where they are answered without a copy",
        atomic_load(&m->bytes_out));
    put_counter(out, labels, "proa_python_passed_bytes_total",
                "Bytes of outputs that are inputs, passed on without a copy", atomic_load(&m->bytes_passed));
    put_counter(out, labels, "proa_python_process_starts_total", "Processes that were started",
                atomic_load(&m->starts));
    put_processes(m, labels, out);
    proa_pyfamilies_print(m->families, out);
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
