/* SPDX-License-Identifier: Apache-2.0
 * table.c - backends with the interface of proa/backend.h: the functions of the host, and the server's table of
 * functions (serve/backend.h) in terms of the library's. A request and a response are the server's own; the handle of a
 * model adds the state of the library to it. */
#include "backends/library/host.h"
#include "backends/library/library.h"

#include "backends/common.h"
#include "backends/tensors/output_spec.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/config/config.h"
#include <dlfcn.h>
#include <string.h>

typedef struct instance_state {
    const proa_backend_table *table;
    void *state;
} instance_state;

static const proa_infer *infer_of(const proa_backend_request *request)
{
    return (const proa_infer *)(const void *)request;
}

static proa_reply *reply_of(proa_backend_response *response)
{
    return (proa_reply *)(void *)response;
}

static proa_infer *const *infers_of(proa_backend_request *const *requests)
{
    return (proa_infer *const *)(const void *)requests;
}

static const proa_instance *instance_of(const proa_backend_instance *instance)
{
    return (const proa_instance *)(const void *)instance;
}

/* ---- errors and the log ---- */

static proa_status host_fail(proa_err *err, proa_status status, const char *text)
{
    if (status <= PROA_OK || status >= PROA_STATUS_COUNT) status = PROA_INTERNAL;
    return proa_err_set(err, status, "backend", 0, "%s", text ? text : "");
}

static void host_log(proa_backend_log_level level, const char *file, int line, const char *text)
{
    if (proa_log_on((int)level))
        proa_log_line((int)level, file ? file : "backend", line, "%s", text ? text : "");
}

/* ---- a model and an instance ---- */

static const char *host_model_name(const proa_backend_model *model)
{
    return proa_served_model_name(model->served);
}

static int64_t host_model_version(const proa_backend_model *model)
{
    return proa_served_model_version(model->served);
}

static const char *host_model_path(const proa_backend_model *model)
{
    return proa_served_model_path(model->served);
}

static const char *host_model_version_path(const proa_backend_model *model)
{
    return proa_served_model_version_path(model->served);
}

static const char *host_model_config(const proa_backend_model *model)
{
    return model->config.ptr;
}

static const char *host_model_parameter(const proa_backend_model *model, const char *key)
{
    return proa_served_model_parameter(model->served, key);
}

static const char *host_setting(const proa_backend_model *model, const char *key)
{
    return proa_backend_setting(proa_served_model_server(model->served), proa_library_of(model->served)->name,
                                key);
}

static const char *host_instance_name(const proa_backend_instance *instance)
{
    return proa_instance_name(instance_of(instance));
}

static int host_instance_device(const proa_backend_instance *instance)
{
    return proa_instance_device(instance_of(instance));
}

static proa_backend_kind host_instance_kind(const proa_backend_instance *instance)
{
    switch (proa_instance_kind(instance_of(instance))) {
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU: return PROA_BACKEND_KIND_GPU;
    case INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_MODEL: return PROA_BACKEND_KIND_MODEL;
    default: return PROA_BACKEND_KIND_CPU;
    }
}

/* ---- a request ---- */

static const char *host_request_id(const proa_backend_request *request)
{
    const char *id = infer_of(request)->id;
    return id ? id : "";
}

static bool host_request_cancelled(const proa_backend_request *request)
{
    return proa_infer_cancelled(infer_of(request));
}

static int32_t host_request_inputs(const proa_backend_request *request)
{
    return infer_of(request)->inputs_count;
}

static bool fill_tensor(proa_backend_tensor *out, const proa_tensor *t)
{
    if (t)
        *out = (proa_backend_tensor){t->name, (proa_backend_type)t->type, t->rank, t->shape, t->data,
                                     t->bytes};
    return t != NULL;
}

static bool host_request_input(const proa_backend_request *request, int32_t index, proa_backend_tensor *out)
{
    const proa_infer *r = infer_of(request);
    return fill_tensor(out, index >= 0 && index < r->inputs_count ? &r->inputs[index] : NULL);
}

static bool host_request_find_input(const proa_backend_request *request, const char *name,
                                    proa_backend_tensor *out)
{
    return fill_tensor(out, proa_infer_input(infer_of(request), name));
}

static int32_t host_request_input_device(const proa_backend_request *request, int32_t index)
{
    const proa_infer *r = infer_of(request);
    if (index < 0 || index >= r->inputs_count) return -1;
    const proa_device_memory *memory = proa_tensor_device(&r->inputs[index]);
    return memory ? memory->gpu : -1;
}

static bool host_request_wants(const proa_backend_request *request, const char *output)
{
    return proa_infer_wants(infer_of(request), output);
}

static bool host_request_parameter(const proa_backend_request *request, int32_t index, proa_backend_parameter *out)
{
    const proa_infer *r = infer_of(request);
    if (index < 0 || index >= r->params_count) return false;
    const proa_infer_param *p = &r->params[index];
    *out = (proa_backend_parameter){.name = p->name.ptr};
    switch (p->kind) {
    case PROA_PARAM_BOOL: out->kind = PROA_BACKEND_PARAMETER_BOOL, out->value.boolean = p->b; break;
    case PROA_PARAM_INT: out->kind = PROA_BACKEND_PARAMETER_INT, out->value.integer = p->i; break;
    case PROA_PARAM_DOUBLE: out->kind = PROA_BACKEND_PARAMETER_DOUBLE, out->value.number = p->d; break;
    case PROA_PARAM_STRING: out->kind = PROA_BACKEND_PARAMETER_TEXT, out->value.text = p->s.ptr; break;
    case PROA_PARAM_UINT:
        out->kind = p->u <= INT64_MAX ? PROA_BACKEND_PARAMETER_INT : PROA_BACKEND_PARAMETER_DOUBLE;
        if (p->u <= INT64_MAX) out->value.integer = (int64_t)p->u;
        else out->value.number = (double)p->u;
    }
    return true;
}

/* ---- responses ---- */

static proa_backend_response *host_response_new(proa_backend_request *request)
{
    return (proa_backend_response *)(void *)proa_reply_new(infer_of(request));
}

static void host_response_free(proa_backend_response *response)
{
    proa_reply_free(reply_of(response));
}

/* Checks what a library says of an output; *out: its bytes. */
static proa_status output_bytes(size_t *out, const proa_output_spec *spec, size_t bytes, proa_err *err)
{
    const char *name = spec->name;
    const proa_backend_type type = (proa_backend_type)spec->type;
    const int32_t rank = spec->rank;
    if (type < PROA_BACKEND_BOOL || type > PROA_BACKEND_BF16)
        return PROA_FAIL(err, INVALID, "output '%s' has the unknown type %d", name, (int)type);
    if (rank < 0 || rank > PROA_SERVE_RANK_MAX)
        return PROA_FAIL(err, INVALID, "output '%s' has %d dimensions; 0 to %d are possible", name, rank,
                         PROA_SERVE_RANK_MAX);
    int64_t elements = proa_shape_elements(spec->shape, rank);
    int64_t size = type == PROA_BACKEND_BYTES ? 1 : proa_type_bytes((proa_type)type);
    if (elements < 0 || elements > INT64_MAX / 2 / size)
        return PROA_FAIL(err, INVALID, "output '%s' has a shape without a size", name);
    *out = type == PROA_BACKEND_BYTES ? bytes : (size_t)(elements * size);
    if (type != PROA_BACKEND_BYTES && bytes && bytes != *out)
        return PROA_FAIL(err, INVALID, "output '%s' has %zu bytes by its shape, got %zu", name, *out, bytes);
    return PROA_OK;
}

static proa_tensor *add_output(proa_backend_response *response, const proa_output_spec *spec, size_t bytes)
{
    proa_tensor *t = proa_reply_add(reply_of(response), spec->name);
    t->type = spec->type;
    t->rank = spec->rank;
    if (spec->rank) memcpy(t->shape, spec->shape, (size_t)spec->rank * sizeof *spec->shape);
    t->bytes = bytes;
    return t;
}

static proa_status host_response_output(proa_backend_response *response, const char *name,
                                        proa_backend_type type, const int64_t *shape, int32_t rank,
                                        size_t bytes, void **data, proa_err *err)
{
    const proa_output_spec spec = {name, (proa_type)type, shape, rank};
    proa_buffer *buffer = NULL;
    *data = NULL;
    PROA_TRY(output_bytes(&bytes, &spec, bytes, err));
    if (bytes) PROA_TRY(proa_buffer_try(&buffer, bytes, err));
    proa_tensor *t = add_output(response, &spec, bytes);
    t->buffer = buffer;
    t->data = *data = buffer ? buffer->data : NULL;
    return PROA_OK;
}

static proa_status host_response_output_of(proa_backend_response *response, const char *name,
                                           proa_backend_type type, const int64_t *shape, int32_t rank,
                                           const void *data, size_t bytes, const proa_backend_memory *memory,
                                           void (*release)(void *arg), void *arg, proa_err *err)
{
    const proa_output_spec spec = {name, (proa_type)type, shape, rank};
    const proa_device_memory *device = NULL;
    proa_status status = output_bytes(&bytes, &spec, bytes, err);
    if (status == PROA_OK && memory) status = proa_library_memory(&device, memory, err);
    if (status != PROA_OK || !bytes) {
        release(arg);
        if (status != PROA_OK) return status;
    }
    proa_tensor *t = add_output(response, &spec, bytes);
    if (bytes) t->buffer = proa_buffer_wrap_memory(device, (void *)(uintptr_t)data, bytes, release, arg);
    t->data = bytes ? t->buffer->data : NULL;
    return PROA_OK;
}

static proa_status host_response_parameter(proa_backend_response *response,
                                           const proa_backend_parameter *parameter, proa_err *err)
{
    proa_reply *reply = reply_of(response);
    if (parameter->kind > PROA_BACKEND_PARAMETER_TEXT)
        return PROA_FAIL(err, INVALID, "parameter '%s' has the unknown kind %d", parameter->name,
                         (int)parameter->kind);
    proa_infer_param *p = proa_reply_add_param(reply, parameter->name);
    switch (parameter->kind) {
    case PROA_BACKEND_PARAMETER_BOOL: p->kind = PROA_PARAM_BOOL, p->b = parameter->value.boolean; break;
    case PROA_BACKEND_PARAMETER_INT: p->kind = PROA_PARAM_INT, p->i = parameter->value.integer; break;
    case PROA_BACKEND_PARAMETER_DOUBLE: p->kind = PROA_PARAM_DOUBLE, p->d = parameter->value.number; break;
    case PROA_BACKEND_PARAMETER_TEXT:
        p->kind = PROA_PARAM_STRING;
        p->s = proa_str_c(proa_arena_strdup(&reply->arena, proa_str_c(parameter->value.text)));
    }
    return PROA_OK;
}

static void host_response_error(proa_backend_response *response, proa_status status, const char *text)
{
    (void)host_fail(&reply_of(response)->error, status, text);
}

static void host_response_send(proa_backend_request *request, proa_backend_response *response, bool final)
{
    if (response) proa_backend_check_outputs(reply_of(response));
    if (response || final) proa_infer_reply((proa_infer *)(void *)request, reply_of(response), final);
}

static void host_compute_begins(proa_backend_request *const *requests, int count)
{
    proa_infer_input_done(infers_of(requests), count);
}

static void host_compute_ends(proa_backend_request *const *requests, int count)
{
    proa_infer_output_begins(infers_of(requests), count);
}

static const proa_backend_host host = {
    .bytes = sizeof host,
    .version = PROA_BACKEND_VERSION,
    .fail = host_fail,
    .log = host_log,
    .model_name = host_model_name,
    .model_version = host_model_version,
    .model_path = host_model_path,
    .model_version_path = host_model_version_path,
    .model_config = host_model_config,
    .model_parameter = host_model_parameter,
    .setting = host_setting,
    .instance_name = host_instance_name,
    .instance_device = host_instance_device,
    .request_id = host_request_id,
    .request_cancelled = host_request_cancelled,
    .request_inputs = host_request_inputs,
    .request_input = host_request_input,
    .request_find_input = host_request_find_input,
    .request_wants = host_request_wants,
    .request_parameter = host_request_parameter,
    .response_new = host_response_new,
    .response_free = host_response_free,
    .response_output = host_response_output,
    .response_parameter = host_response_parameter,
    .response_error = host_response_error,
    .response_send = host_response_send,
    .model_io = proa_host_model_io,
    .model_max_batch = proa_host_model_max_batch,
    .model_file = proa_host_model_file,
    .model_platform = proa_host_model_platform,
    .instance_kind = host_instance_kind,
    .model_takes_device_inputs = proa_host_model_takes_device_inputs,
    .request_input_device = host_request_input_device,
    .response_output_of = host_response_output_of,
    .compute_begins = host_compute_begins,
    .compute_ends = host_compute_ends,
    .count_device_copy = proa_device_copies_add,
};

/* ---- the server's table ---- */

static void model_free(proa_backend_model *m)
{
    proa_host_model_release(m);
    proa_buf_release(&m->config);
    free(m);
}

static proa_status table_model_open(void **state, proa_served_model *model, proa_err *err)
{
    proa_backend_model *m = proa_calloc(1, sizeof *m);
    m->served = model;
    proa_host_model_init(m);
    m->table = proa_library_of(model)->table;
    proa_buf_init(&m->config, (size_t)PROA_BACKEND_CONFIG_MAX);
    proa_status status = PROA_OK;
    if (!proa_config_print_json(&m->config, proa_served_model_config(model)))
        status = PROA_FAIL(err, LIMIT, "the configuration has more than %lld bytes as JSON",
                           (long long)PROA_BACKEND_CONFIG_MAX);
    else if (m->table->model_open) status = m->table->model_open(&m->state, m, err);
    if (status != PROA_OK) model_free(m);
    else *state = m;
    return status;
}

static void table_model_close(void *state)
{
    proa_backend_model *m = state;
    if (m->table->model_close) m->table->model_close(m->state);
    model_free(m);
}

static proa_status table_instance_open(void **state, void *model_state, const proa_instance *instance,
                                       proa_err *err)
{
    const proa_backend_model *m = model_state;
    instance_state *i = proa_calloc(1, sizeof *i);
    *i = (instance_state){m->table, m->state};
    proa_status status = PROA_OK;
    if (m->table->instance_open)
        status = m->table->instance_open(&i->state, m->state,
                                         (const proa_backend_instance *)(const void *)instance, err);
    if (status != PROA_OK) free(i);
    else *state = i;
    return status;
}

static void table_instance_close(void *state)
{
    instance_state *i = state;
    if (i->table->instance_close) i->table->instance_close(i->state);
    free(i);
}

static void table_execute(void *state, proa_infer *const *requests, int count)
{
    const instance_state *i = state;
    i->table->execute(i->state, (proa_backend_request *const *)(const void *)requests, count);
}

static bool table_ready(void *state, proa_err *reason)
{
    const proa_backend_model *m = state;
    return m->table->ready(m->state, reason);
}

/* ---- opening a library ---- */

/* The table of a library that was built with an older header is shorter: what it lacks is NULL. */
static proa_status copy_table(proa_library *l, const proa_backend_table *t, proa_err *err)
{
    size_t least = offsetof(proa_backend_table, execute) + sizeof t->execute;
    if (t->version != PROA_BACKEND_VERSION)
        return PROA_FAIL(err, INVALID, "'%s' has version %u of the backend interface, this is version %d",
                         l->path, t->version, PROA_BACKEND_VERSION);
    if (t->bytes < least || !t->execute)
        return PROA_FAIL(err, INVALID, "'%s': the table of its backend has no function execute", l->path);
    proa_backend_table *copy = proa_calloc(1, sizeof *copy);
    memcpy(copy, t, t->bytes < sizeof *copy ? t->bytes : sizeof *copy);
    l->table = copy;
    return PROA_OK;
}

proa_status proa_library_open_table(proa_library *l, proa_err *err)
{
    proa_backend_entry_fn *entry;
    *(void **)&entry = dlsym(l->handle, PROA_BACKEND_ENTRY);
    if (!entry)
        return PROA_FAIL(err, INVALID, "'%s' is not a backend: it does not export " PROA_BACKEND_ENTRY, l->path);
    const proa_backend_table *t = entry(&host, err);
    if (!t)
        return PROA_FAIL(err, INVALID, "backend '%s' refuses version %d of the backend interface", l->name,
                         PROA_BACKEND_VERSION);
    PROA_TRY(copy_table(l, t, err));
    l->backend = (proa_backend){
        .name = l->name,
        .flags = l->table->flags &
                 (PROA_BACKEND_INLINE | PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY | PROA_BACKEND_GPU),
        .model_open = table_model_open,
        .model_close = table_model_close,
        .instance_open = table_instance_open,
        .instance_close = table_instance_close,
        .execute = table_execute,
        .ready = l->table->ready ? table_ready : NULL,
    };
    return PROA_OK;
}
