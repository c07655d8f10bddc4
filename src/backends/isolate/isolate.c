/* SPDX-License-Identifier: Apache-2.0
 * isolate.c - the server's side of isolated backends: a table whose models are workers (../process) that run
 * `proa backend-host`. */
#include "backends/isolate/isolate.h"

#include "backends/common.h"
#include "backends/library/library.h"
#include "backends/process/process.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "proto/proto_json.h"
#include "serve/config/config.h"
#include "serve/hosted.h"
#include <string.h>
#include <unistd.h>

#define START_MS  30000
#define FINISH_MS 5000 /* what a library has for its end: one that hangs is killed then */

/* ---- processes ---- */

/* The file of this program is another one after an upgrade; its open file is not. */
static proa_status start_host(proa_process **out, const void *arg, const char *name,
                              const proa_process_options *options, proa_err *err)
{
    char parent[16], protocol[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(protocol, sizeof protocol, "%d", PROA_CHANNEL_PROTOCOL);
    const char *const argv[] = {"proa", "backend-host", parent, protocol, name, NULL};
    proa_process_options o = *options;
    (void)arg;
    o.program = "/proc/self/exe";
    o.removes_regions = true;
    o.argv = argv;
    return proa_process_start(out, &o, err);
}

static const proa_worker_kind host_kind = {.process = "Backend process",
                                           .model = "model",
                                           .late = "it did not start in time",
                                           .start = start_host,
                                           .shares = true,
                                           .checks_outputs = true,
                                           .reports_devices = true,
                                           .closes = true};

static proa_worker_settings host_settings(const char *host)
{
    return (proa_worker_settings){.kind = &host_kind,
                                  .host = host,
                                  .keep_bytes = PROA_PROCESS_KEEP_BYTES,
                                  .start_ms = START_MS,
                                  .finish_ms = FINISH_MS};
}

/* The limits of --backend-config, as for Python models. */
static proa_status read_limits(proa_worker_settings *s, const proa_served_model *model, proa_err *err)
{
    const proa_server *server = proa_served_model_server(model);
    const char *name = proa_served_model_config(model)->backend;
    int64_t memory_mb = 0;
    PROA_TRY(proa_worker_setting(&s->execute_ms, server, name, "execute-timeout-ms",
                                 PROA_PROCESS_LIMIT_MS_MAX, err));
    PROA_TRY(proa_worker_setting(&memory_mb, server, name, "memory-limit-mb", PROA_PROCESS_MEMORY_MB_MAX, err));
    s->memory_bytes = memory_mb * PROA_MIB;
    return PROA_OK;
}

/* OPEN's member "host", to be freed: the log's levels, and what is to be opened. */
static char *host_json(const proa_served_model *model, const char *load)
{
    proa_log_settings log;
    proa_buf out;
    proa_log_get(&log);
    proa_buf_init(&out, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_printf(&out, "{\"log\":[%d,%d,%d,%d]", log.error, log.warning, log.info, log.verbose);
    if (model) proa_buf_printf(&out, ",\"model\":");
    if (model) proa_hosted_describe(&out, model);
    if (load) proa_buf_printf(&out, ",\"library\":%s", load);
    proa_buf_char(&out, '}');
    return out.ptr;
}

/* ---- a library's traits ---- */

proa_status proa_isolate_probe(proa_isolate_traits *out, const char *directory, const char *name,
                               const char *runtime, proa_err *err)
{
    const char *const parts[] = {directory, name, runtime};
    proa_buf library;
    proa_json *head;
    proa_buf_init(&library, (size_t)PROA_CHANNEL_HEAD_MAX);
    for (size_t i = 0; i < PROA_COUNT(parts); i++) {
        proa_buf_char(&library, i ? ',' : '[');
        if (parts[i]) proa_buf_json_str(&library, proa_str_c(parts[i]));
        else proa_buf_printf(&library, "null");
    }
    proa_buf_char(&library, ']');
    char *host = host_json(NULL, library.ptr);
    proa_worker_settings settings = host_settings(host);
    proa_status status = proa_worker_ask(&head, &settings, &(proa_worker_question){"probe", name, NULL, NULL},
                                         err);
    if (status == PROA_OK) {
        out->flags = (unsigned)proa_json_int(proa_json_get(head, "flags"));
        out->completes = proa_json_bool(proa_json_get(head, "completes"));
    }
    proa_json_free(head);
    proa_buf_release(&library);
    free(host);
    return status;
}

/* ---- the configuration ---- */

static proa_status config_args(proa_buf *args, const Inference__ModelConfig *config, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_buf_init(args, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_config_print_json(&text, config);
    proa_buf_printf(args, "{\"model_config\":");
    proa_buf_json_str(args, proa_buf_view(&text));
    proa_buf_char(args, '}');
    bool full = text.full || args->full;
    proa_buf_release(&text);
    return full ? PROA_FAIL(err, LIMIT, "the configuration is too large") : PROA_OK;
}

/* The process fills what it would fill here: its configuration replaces this one. */
static proa_status take_config(Inference__ModelConfig *config, const proa_json *head, proa_arena *arena,
                               proa_err *err)
{
    ProtobufCMessage *made;
    PROA_TRY(proa_proto_json_parse(&made, &inference__model_config__descriptor,
                                   proa_json_str(proa_json_get(head, "config")),
                                   "the completed configuration", arena, err));
    *config = *(Inference__ModelConfig *)made;
    return PROA_OK;
}

static proa_status isolated_complete(Inference__ModelConfig *config, const char *version_path,
                                     proa_arena *arena, proa_err *err)
{
    const proa_served_model *model = proa_completing_model();
    proa_buf args;
    proa_json *head = NULL;
    (void)version_path;
    proa_status status = config_args(&args, config, err);
    char *host = host_json(model, NULL);
    proa_worker_settings settings = host_settings(host);
    if (status == PROA_OK) status = read_limits(&settings, model, err);
    if (status == PROA_OK)
        status = proa_worker_ask(
            &head, &settings,
            &(proa_worker_question){"complete", proa_served_model_name(model), NULL, args.ptr}, err);
    if (status == PROA_OK) status = take_config(config, head, arena, err);
    proa_json_free(head);
    proa_buf_release(&args);
    free(host);
    return status;
}

/* ---- metrics that backends create: they belong to no model, and the first open one prints them ---- */

typedef struct isolated_model {
    proa_worker_model worker; /* the first member */
    struct isolated_model *next;
} isolated_model;

static pthread_mutex_t models_lock = PTHREAD_MUTEX_INITIALIZER;
static isolated_model *models;  /* open; under the lock, as families */
static proa_families *families; /* of all of them; NULL: none is open */

static void list_model(isolated_model *m)
{
    pthread_mutex_lock(&models_lock);
    if (!families) families = proa_families_new();
    m->worker.families = families;
    m->next = models;
    models = m;
    pthread_mutex_unlock(&models_lock);
}

static void unlist_model(isolated_model *m)
{
    pthread_mutex_lock(&models_lock);
    isolated_model **at = &models;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    if (!models) proa_families_free(families);
    if (!models) families = NULL;
    pthread_mutex_unlock(&models_lock);
}

static bool is_first(const isolated_model *m)
{
    pthread_mutex_lock(&models_lock);
    bool first = m == models;
    pthread_mutex_unlock(&models_lock);
    return first;
}

/* ---- models ---- */

static void isolated_model_close(void *state)
{
    isolated_model *m = state;
    unlist_model(m);
    free((char *)(uintptr_t)m->worker.settings.host);
    proa_worker_model_release(&m->worker);
    free(m);
}

static proa_status isolated_model_open(void **state, proa_served_model *model, proa_err *err)
{
    isolated_model *i = proa_calloc(1, sizeof *i);
    proa_worker_model *m = &i->worker;
    proa_buf json;
    proa_worker_model_init(m, model);
    list_model(i);
    m->settings = host_settings(host_json(model, NULL));
    proa_buf_init(&json, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_status status = read_limits(&m->settings, model, err);
    if (status == PROA_OK && !proa_config_print_json(&json, m->config))
        status = PROA_FAIL(err, LIMIT, "the configuration is too large");
    m->config_json = json.ptr;
    if (status == PROA_OK) *state = i;
    else isolated_model_close(i);
    return status;
}

static proa_status isolated_instance_open(void **state, void *model_state, const proa_instance *instance,
                                          proa_err *err)
{
    (void)err;
    *state = proa_worker_open(model_state, instance);
    return PROA_OK;
}

/* Only the process knows what the backend takes. */
static proa_status isolated_instances_opened(void *model_state, proa_err *err)
{
    const proa_worker_model *m = model_state;
    PROA_TRY(proa_worker_start_all(m, err));
    if (proa_worker_takes_devices(m)) proa_served_model_set_device_inputs(m->model);
    return PROA_OK;
}

static void isolated_instance_close(void *state)
{
    proa_worker_close(state);
}

static void isolated_execute(void *state, proa_infer *const *requests, int count)
{
    proa_worker_execute(state, requests, count);
}

static bool isolated_ready(void *state, proa_err *reason)
{
    return proa_worker_all_ready(state, reason);
}

static void isolated_metrics(void *state, const char *labels, proa_buf *out)
{
    isolated_model *m = state;
    proa_worker_metrics(&m->worker, "proa_isolated", labels, out);
    if (is_first(m)) proa_families_print(m->worker.families, out);
}

const proa_backend *proa_isolate_wrap(const char *name, const proa_isolate_traits *traits)
{
    /* execute waits for the process: it never runs on the thread that brings a request */
    const unsigned kept = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY | PROA_BACKEND_GPU;
    proa_backend *b = proa_calloc(1, sizeof *b);
    *b = (proa_backend){
        .name = proa_strdup(name),
        .flags = traits->flags & kept,
        .complete = traits->completes ? isolated_complete : NULL,
        .model_open = isolated_model_open,
        .model_close = isolated_model_close,
        .instance_open = isolated_instance_open,
        .instances_opened = isolated_instances_opened,
        .instance_close = isolated_instance_close,
        .execute = isolated_execute,
        .ready = isolated_ready,
        .metrics = isolated_metrics,
    };
    return b;
}
