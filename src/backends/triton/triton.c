/* SPDX-License-Identifier: Apache-2.0
 * triton.c - the server's table of functions (serve/backend.h) in terms of those that a backend of Triton exports. */
#include "backends/triton/triton.h"

#include "backends/gpu/gpu.h"
#include "backends/triton/abi.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "proto/message.h"
#include <dlfcn.h>
#include <string.h>

proa_status proa_triton_prepare(const proa_elf *elf, const char *path, proa_err *err)
{
    PROA_TRY(proa_triton_check_imports(elf, path, err));
    return proa_triton_provide_sonames(elf, err);
}

/* All models, of all backends. Metrics belong to none of the open ones: the first one prints them. */
static pthread_mutex_t models_lock = PTHREAD_MUTEX_INITIALIZER;
static TRITONBACKEND_Model *models;    /* open */
static TRITONBACKEND_Model *completed; /* initialized to complete their configuration, and not opened yet */

static void list_model(TRITONBACKEND_Model **list, TRITONBACKEND_Model *m)
{
    pthread_mutex_lock(&models_lock);
    m->next = *list;
    *list = m;
    pthread_mutex_unlock(&models_lock);
}

/* Takes a model out of a list; NULL: it is not there. */
static TRITONBACKEND_Model *unlist_model(TRITONBACKEND_Model **list, const proa_served_model *served)
{
    pthread_mutex_lock(&models_lock);
    while (*list && (*list)->served != served) list = &(*list)->next;
    TRITONBACKEND_Model *m = *list;
    if (m) *list = m->next;
    pthread_mutex_unlock(&models_lock);
    return m;
}

static void log_error(const char *what, TRITONSERVER_Error *error)
{
    proa_err err = {0};
    if (proa_triton_status(error, &err) != PROA_OK) PROA_LOG(ERROR, "%s: %s", what, err.text);
}

/* ---- the backend: initialized with its first model, which knows the server's settings ---- */

static void put_setting(void *arg, const char *key, const char *value)
{
    proa_json_put_str(arg, key, proa_str_c(value));
}

/* {"cmdline":{...}}: Triton's own settings and those of --backend-config. */
static TRITONSERVER_Message *backend_config(const TRITONBACKEND_Backend *b, const struct proa_server *server)
{
    proa_json *config = proa_json_new_object(), *settings = proa_json_new_object();
    proa_buf out;
    proa_buf_init(&out, (size_t)PROA_BACKEND_CONFIG_MAX);
    put_setting(settings, "auto-complete-config", proa_completing_model() ? "true" : "false");
    put_setting(settings, "backend-directory", b->library->directory);
    put_setting(settings, "min-compute-capability", "6.000000");
    put_setting(settings, "default-max-batch-size", "4");
    proa_backend_each_setting(server, b->library->name, put_setting, settings);
    proa_json_put(config, "cmdline", settings);
    proa_json_print(&out, config);
    TRITONSERVER_Message *m = proa_triton_message(out.ptr, out.len);
    proa_buf_release(&out);
    proa_json_free(config);
    return m;
}

static proa_status initialize_backend(TRITONBACKEND_Backend *b, const struct proa_server *server, proa_err *err)
{
    proa_status status = PROA_OK;
    pthread_mutex_lock(&b->lock);
    if (!b->initialized) {
        free(b->config);
        b->config = backend_config(b, server);
        if (b->initialize) status = proa_triton_status(b->initialize(b), err);
        if (status == PROA_OK && b->get_attribute)
            log_error("TRITONBACKEND_GetBackendAttribute", b->get_attribute(b, &b->attribute));
        b->initialized = status == PROA_OK;
    }
    pthread_mutex_unlock(&b->lock);
    return status;
}

/* ---- models and instances ---- */

static bool is_decoupled(const proa_served_model *model)
{
    const Inference__ModelConfig *c = proa_served_model_config(model);
    return c->model_transaction_policy && c->model_transaction_policy->decoupled;
}

/* What the functions that a library gets cannot do. */
static proa_status check_model(const proa_served_model *model, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(model);
    if (c->scheduling_choice_case != INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        return PROA_OK;
    if (c->sequence_batching->n_state > 0)
        return PROA_FAIL(err, UNSUPPORTED,
                         "sequence_batching with 'state' is not supported for backends of Triton");
    if (c->sequence_batching->iterative_sequence)
        return PROA_FAIL(err, UNSUPPORTED, "'iterative_sequence' is not supported for backends of Triton");
    return PROA_OK;
}

/* completing, arena: what ModelInitialize may complete; NULL: nothing. */
static proa_status initialize_model(TRITONBACKEND_Model **out, proa_served_model *model,
                                    Inference__ModelConfig *completing, proa_arena *arena, proa_err *err)
{
    TRITONBACKEND_Backend *b = proa_library_of(model)->triton;
    PROA_TRY(check_model(model, err));
    PROA_TRY(initialize_backend(b, proa_served_model_server(model), err));
    TRITONBACKEND_Model *m = proa_calloc(1, sizeof *m);
    *m = (TRITONBACKEND_Model){.backend = b, .served = model, .completing = completing, .arena = arena};
    proa_status status = b->model_initialize ? proa_triton_status(b->model_initialize(m), err) : PROA_OK;
    m->completing = NULL;
    if (status == PROA_OK) *out = m;
    else free(m);
    return status;
}

static void finalize_model(TRITONBACKEND_Model *m)
{
    if (m->backend->model_finalize) log_error("TRITONBACKEND_ModelFinalize", m->backend->model_finalize(m));
    free(m);
}

/* The model's arena ends: if it was completed and never opened, nobody else finalizes it. */
static void finalize_unopened(void *served)
{
    TRITONBACKEND_Model *m = unlist_model(&completed, served);
    if (m) finalize_model(m);
}

/* The group that the backend prefers, where the configuration has none. */
static void set_preferred_group(Inference__ModelConfig *config,
                                const TRITONBACKEND_BackendAttribute *attribute, proa_arena *arena)
{
    if (config->n_instance_group || attribute->kind == PROA_TRITON_KIND_AUTO) return;
    Inference__ModelInstanceGroup *group = (Inference__ModelInstanceGroup *)proa_message_add(
        &config->base, "instance_group", arena);
    group->name = config->name;
    group->kind = (Inference__ModelInstanceGroup__Kind)attribute->kind; /* numbered alike */
    group->count = attribute->count < INT32_MAX ? (int32_t)attribute->count : 0;
}

/* ModelInitialize completes the configuration. The model stays initialized until it is opened. */
static proa_status triton_complete(Inference__ModelConfig *config, const char *version_path,
                                   proa_arena *arena, proa_err *err)
{
    proa_served_model *served = (proa_served_model *)(uintptr_t)proa_completing_model();
    TRITONBACKEND_Model *m;
    (void)version_path;
    PROA_TRY(initialize_model(&m, served, config, arena, err));
    list_model(&completed, m);
    proa_arena_defer(arena, finalize_unopened, served);
    set_preferred_group(config, &m->backend->attribute, arena);
    return PROA_OK;
}

static proa_status triton_model_open(void **state, proa_served_model *model, proa_err *err)
{
    TRITONBACKEND_Model *m = unlist_model(&completed, model);
    if (!m) PROA_TRY(initialize_model(&m, model, NULL, NULL, err));
    m->decoupled = is_decoupled(model);
    if (proa_config_uses_gpu(proa_served_model_config(model))) proa_served_model_set_device_inputs(model);
    list_model(&models, m);
    *state = m;
    return PROA_OK;
}

static void triton_model_close(void *state)
{
    TRITONBACKEND_Model *m = state;
    unlist_model(&models, m->served);
    finalize_model(m);
}

static void free_instance(TRITONBACKEND_ModelInstance *i)
{
    TRITONSERVER_MessageDelete(i->policy);
    free(i);
}

static proa_status triton_instance_open(void **state, void *model_state, const proa_instance *instance,
                                        proa_err *err)
{
    TRITONBACKEND_Model *m = model_state;
    TRITONBACKEND_ModelInstance *i = proa_calloc(1, sizeof *i);
    char policy[32];
    int device = proa_instance_device(instance);
    snprintf(policy, sizeof policy, device < 0 ? "{\"cpu\":{}}" : "{\"gpu_%d\":{}}", device);
    *i = (TRITONBACKEND_ModelInstance){.model = m, .instance = instance, .next = m->instances};
    i->policy = proa_triton_message(policy, strlen(policy));
    proa_status status = PROA_OK;
    if (m->backend->instance_initialize) status = proa_triton_status(m->backend->instance_initialize(i), err);
    if (status != PROA_OK) free_instance(i);
    else *state = m->instances = i;
    return status;
}

static void triton_instance_close(void *state)
{
    TRITONBACKEND_ModelInstance *i = state, **at = &i->model->instances;
    const TRITONBACKEND_Backend *b = i->model->backend;
    if (b->instance_finalize) log_error("TRITONBACKEND_ModelInstanceFinalize", b->instance_finalize(i));
    while (*at != i) at = &(*at)->next;
    *at = i->next;
    free_instance(i);
}

/* ---- execution ---- */

/* Triton gives each request of a failed execution, which the backend has not released, the error as its response. */
static void fail_requests(TRITONBACKEND_Request **requests, int count, const proa_err *err)
{
    for (int k = 0; k < count; k++) {
        proa_reply *reply = proa_reply_new(requests[k]->infer);
        reply->error = *err;
        proa_triton_reply(requests[k], reply, true);
        TRITONSERVER_Error *error = TRITONBACKEND_RequestRelease(requests[k], PROA_TRITON_RELEASE_ALL);
        PROA_ASSERT(!error);
    }
}

/* An instance on the CPU of a model that has others on GPUs. */
static bool bring_to_host(const TRITONBACKEND_ModelInstance *i, proa_infer *r)
{
    proa_err err = {0};
    if (proa_instance_device(i->instance) >= 0 || proa_infer_inputs_to_host(r, &err) == PROA_OK) return true;
    proa_infer_fail(r, &err);
    return false;
}

/* The backend owns the requests from here on, unless it returns an error. */
static void triton_execute(void *state, proa_infer *const *infers, int count)
{
    TRITONBACKEND_ModelInstance *i = state;
    proa_err err = {0};
    int n = 0;
    TRITONBACKEND_Request **requests = proa_malloc((size_t)count * sizeof(TRITONBACKEND_Request *));
    for (int k = 0; k < count; k++)
        if (bring_to_host(i, infers[k])) requests[n++] = proa_triton_request_new(i->model, infers[k]);
    TRITONSERVER_Error *error = n ? i->model->backend->execute(i, requests, (uint32_t)n) : NULL;
    if (proa_triton_status(error, &err) != PROA_OK) fail_requests(requests, n, &err);
    free(requests);
}

static bool triton_ready(void *state, proa_err *reason)
{
    const TRITONBACKEND_Model *m = state;
    for (TRITONBACKEND_ModelInstance *i = m->instances; i; i = i->next)
        if (proa_triton_status(m->backend->instance_ready(i), reason) != PROA_OK) return false;
    return true;
}

/* ---- opening a library ---- */

static void *find_export(const proa_library *l, const char *name)
{
    return dlsym(l->handle, name);
}

static TRITONBACKEND_Backend *new_backend(const proa_library *l)
{
    TRITONBACKEND_Backend *b = proa_calloc(1, sizeof *b);
    b->library = l;
    pthread_mutex_init(&b->lock, NULL);
    *(void **)&b->initialize = find_export(l, "TRITONBACKEND_Initialize");
    *(void **)&b->get_attribute = find_export(l, "TRITONBACKEND_GetBackendAttribute");
    *(void **)&b->model_initialize = find_export(l, "TRITONBACKEND_ModelInitialize");
    *(void **)&b->model_finalize = find_export(l, "TRITONBACKEND_ModelFinalize");
    *(void **)&b->instance_initialize = find_export(l, "TRITONBACKEND_ModelInstanceInitialize");
    *(void **)&b->instance_finalize = find_export(l, "TRITONBACKEND_ModelInstanceFinalize");
    *(void **)&b->instance_ready = find_export(l, "TRITONBACKEND_ModelInstanceReady");
    *(void **)&b->execute = find_export(l, PROA_TRITON_ENTRY);
    return b;
}

static void triton_metrics(void *state, const char *labels, proa_buf *out)
{
    const TRITONBACKEND_Model *m = state;
    (void)labels; /* a family has labels of its own */
    pthread_mutex_lock(&models_lock);
    bool first = m == models;
    pthread_mutex_unlock(&models_lock);
    if (first) proa_triton_metrics_print(out);
}

proa_status proa_triton_open(proa_library *l, proa_err *err)
{
    if (!find_export(l, PROA_TRITON_ENTRY))
        return PROA_FAIL(err, INVALID, "'%s' is not a backend: it does not export " PROA_TRITON_ENTRY, l->path);
    l->triton = new_backend(l);
    l->backend = (proa_backend){
        .name = l->name,
        .flags = PROA_BACKEND_GPU,
        .complete = triton_complete,
        .model_open = triton_model_open,
        .model_close = triton_model_close,
        .instance_open = triton_instance_open,
        .instance_close = triton_instance_close,
        .execute = triton_execute,
        .ready = l->triton->instance_ready ? triton_ready : NULL,
        .metrics = triton_metrics,
    };
    return PROA_OK;
}
