/* SPDX-License-Identifier: Apache-2.0
 * triton_probe.c - a backend of Triton for tests, written against its binary interface without its headers. It
 * copies INPUT to OUTPUT and reports as parameters of the response what the server says of the model and the
 * request. The id of a request chooses what goes wrong: "error", "refuse" (execute fails), "silent" (no response),
 * "short" (an output with too few bytes), "twice". A parameter of the model with the value "gpu" has it ask for
 * OUTPUT on a GPU; one is where INPUT is otherwise. With a decoupled model it sends three responses from a thread,
 * after the request was released. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct error error;
typedef struct object object; /* a backend, model, instance, request, response, ... */

#define IMPORT extern
#define EXPORT __attribute__((visibility("default")))
IMPORT error *TRITONSERVER_ErrorNew(int code, const char *text);
IMPORT void TRITONSERVER_ErrorDelete(error *e);
IMPORT error *TRITONSERVER_LogMessage(int level, const char *file, int line, const char *text);
IMPORT error *TRITONSERVER_MessageSerializeToJson(object *message, const char **json, size_t *bytes);
IMPORT error *TRITONSERVER_MessageDelete(object *message);
IMPORT error *TRITONSERVER_MetricFamilyNew(object **family, int kind, const char *name, const char *text);
IMPORT error *TRITONSERVER_MetricNew(object **metric, object *family, const object **labels, uint64_t count);
IMPORT error *TRITONSERVER_InferenceTraceReportActivity(object *trace, uint64_t ns, const char *name);
IMPORT error *TRITONBACKEND_RequestTrace(object *request, object **trace);
IMPORT error *TRITONSERVER_MetricIncrement(object *metric, double value);
IMPORT object *TRITONSERVER_ParameterNew(const char *name, int type, const void *value);
IMPORT void TRITONSERVER_ParameterDelete(object *parameter);
IMPORT const char *TRITONSERVER_DataTypeString(int type);
IMPORT error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);
IMPORT error *TRITONBACKEND_BackendConfig(object *backend, object **message);
IMPORT error *TRITONBACKEND_BackendMemoryManager(object *backend, object **manager);
IMPORT error *TRITONBACKEND_MemoryManagerAllocate(object *manager, void **buffer, int memory, int64_t id,
                                                  uint64_t bytes);
IMPORT error *TRITONBACKEND_MemoryManagerFree(object *manager, void *buffer, int memory, int64_t id);
IMPORT error *TRITONBACKEND_ModelBackend(object *model, object **backend);
IMPORT error *TRITONBACKEND_ModelConfig(object *model, uint32_t version, object **message);
IMPORT error *TRITONBACKEND_ModelName(object *model, const char **name);
IMPORT error *TRITONBACKEND_ModelSetState(object *model, void *state);
IMPORT error *TRITONBACKEND_ModelState(object *model, void **state);
IMPORT error *TRITONBACKEND_ModelInstanceModel(object *instance, object **model);
IMPORT error *TRITONBACKEND_ModelInstanceName(object *instance, const char **name);
IMPORT error *TRITONBACKEND_RequestId(object *request, const char **id);
IMPORT error *TRITONBACKEND_RequestFlags(object *request, uint32_t *flags);
IMPORT error *TRITONBACKEND_RequestCorrelationId(object *request, uint64_t *id);
IMPORT error *TRITONBACKEND_RequestParameterCount(object *request, uint32_t *count);
IMPORT error *TRITONBACKEND_RequestParameter(object *request, uint32_t i, const char **name, int *type,
                                             const void **value);
IMPORT error *TRITONBACKEND_RequestInput(object *request, const char *name, object **input);
IMPORT error *TRITONBACKEND_RequestOutputCount(object *request, uint32_t *count);
IMPORT error *TRITONBACKEND_RequestRelease(object *request, uint32_t flags);
IMPORT error *TRITONBACKEND_InputProperties(object *input, const char **name, int *type, const int64_t **shape,
                                            uint32_t *rank, uint64_t *bytes, uint32_t *buffers);
IMPORT error *TRITONBACKEND_InputBuffer(object *input, uint32_t i, const void **buffer, uint64_t *bytes,
                                        int *memory, int64_t *memory_id);
IMPORT error *TRITONBACKEND_ResponseNew(object **response, object *request);
IMPORT error *TRITONBACKEND_ResponseFactoryNew(object **factory, object *request);
IMPORT error *TRITONBACKEND_ResponseFactoryDelete(object *factory);
IMPORT error *TRITONBACKEND_ResponseFactorySendFlags(object *factory, uint32_t flags);
IMPORT error *TRITONBACKEND_ResponseNewFromFactory(object **response, object *factory);
IMPORT error *TRITONBACKEND_ResponseSetStringParameter(object *response, const char *name, const char *value);
IMPORT error *TRITONBACKEND_ResponseSetIntParameter(object *response, const char *name, int64_t value);
IMPORT error *TRITONBACKEND_ResponseOutput(object *response, object **output, const char *name, int type,
                                           const int64_t *shape, uint32_t rank);
IMPORT error *TRITONBACKEND_OutputBuffer(object *output, void **buffer, uint64_t bytes, int *memory, int64_t *id);
IMPORT error *TRITONBACKEND_ResponseSend(object *response, uint32_t flags, error *e);
IMPORT error *TRITONBACKEND_ModelInstanceReportStatistics(object *instance, object *request, bool success,
                                                          uint64_t start, uint64_t compute_start,
                                                          uint64_t compute_end, uint64_t end);

enum { INTERNAL = 1, INVALID_ARG = 3, UNAVAILABLE = 4, ALL = 1, FINAL = 1, COUNTER = 0, STRING = 0 };

typedef struct probe {
    bool decoupled, wants_gpu;
} probe;
static object *requests_metric;
static char settings[4096];

static void check(error *e)
{
    if (e) abort(); /* the test sees a server that ended */
}

static bool refused(error *e)
{
    if (e) TRITONSERVER_ErrorDelete(e);
    return e != NULL;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

EXPORT error *TRITONBACKEND_Initialize(object *backend)
{
    uint32_t major, minor;
    object *message, *family, *label = TRITONSERVER_ParameterNew("kind", STRING, "a \"probe\"");
    const object *labels[] = {label};
    const char *json;
    size_t bytes;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != 1 || minor < 9) return TRITONSERVER_ErrorNew(INTERNAL, "unknown version of the interface");
    check(TRITONBACKEND_BackendConfig(backend, &message));
    check(TRITONSERVER_MessageSerializeToJson(message, &json, &bytes));
    snprintf(settings, sizeof settings, "%.*s", (int)bytes, json);
    check(TRITONSERVER_MetricFamilyNew(&family, COUNTER, "probe_requests", "requests of the probe"));
    check(TRITONSERVER_MetricNew(&requests_metric, family, labels, 1));
    TRITONSERVER_ParameterDelete(label);
    return NULL;
}

EXPORT error *TRITONBACKEND_ModelInitialize(object *model)
{
    object *message;
    const char *json, *name;
    size_t bytes;
    check(TRITONBACKEND_ModelName(model, &name));
    check(TRITONBACKEND_ModelConfig(model, 1, &message));
    check(TRITONSERVER_MessageSerializeToJson(message, &json, &bytes));
    probe *p = calloc(1, sizeof *p);
    p->decoupled = strstr(json, "\"decoupled\":true") != NULL;
    p->wants_gpu = strstr(json, "\"string_value\":\"gpu\"") != NULL;
    bool bad = strstr(json, "\"string_value\":\"unloadable\"") != NULL;
    check(TRITONSERVER_MessageDelete(message));
    if (bad) {
        free(p);
        return TRITONSERVER_ErrorNew(UNAVAILABLE, "the probe does not load this");
    }
    check(TRITONSERVER_LogMessage(0, __FILE__, __LINE__, name));
    return TRITONBACKEND_ModelSetState(model, p);
}

EXPORT error *TRITONBACKEND_ModelFinalize(object *model)
{
    void *state;
    check(TRITONBACKEND_ModelState(model, &state));
    free(state);
    return NULL;
}

/* A function of the GPU's driver. */
static void load(void *to, const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = driver ? dlsym(driver, name) : NULL;
    if (!found) abort();
    memcpy(to, &found, sizeof found);
}

/* Between host memory and that of GPU 0; memory: 0, or 2 for the GPU. */
static void copy_bytes(void *to, int to_memory, const void *from, int from_memory, uint64_t bytes)
{
    static const char *const names[2][2] = {{NULL, "cuMemcpyDtoH_v2"}, {"cuMemcpyHtoD_v2", "cuMemcpyDtoD_v2"}};
    const char *name = names[to_memory == 2][from_memory == 2];
    int (*init)(unsigned), (*retain)(void **, int), (*push)(void *), (*pop)(void **), (*wait)(void),
        (*copy)(void *, const void *, size_t);
    void *context;
    if (!name) {
        memcpy(to, from, bytes);
        return;
    }
    load(&init, "cuInit"), load(&retain, "cuDevicePrimaryCtxRetain"), load(&push, "cuCtxPushCurrent_v2");
    load(&pop, "cuCtxPopCurrent_v2"), load(&wait, "cuCtxSynchronize"), load(&copy, name);
    if (init(0) || retain(&context, 0) || push(context) || copy(to, from, bytes) || wait()) abort();
    pop(&context);
}

/* Memory of the manager, where the input is. */
/* All memory of a GPU is one pool of 64 MiB. Others may take memory of it at the same time. */
static void use_pool(object *manager, int64_t id)
{
    const uint64_t pool = (uint64_t)64 << 20;
    void *parts[4];
    for (int i = 0; i < 4; i++) {
        check(TRITONBACKEND_MemoryManagerAllocate(manager, &parts[i], 2, id, 1000 * (uint64_t)(i + 1)));
        ptrdiff_t apart = (char *)parts[i] - (char *)parts[0];
        if (apart % 512 || (i && !apart) || apart >= (ptrdiff_t)pool || -apart >= (ptrdiff_t)pool) abort();
    }
    for (int i = 4; i-- > 0;) check(TRITONBACKEND_MemoryManagerFree(manager, parts[i], 2, id));
    if (!refused(TRITONBACKEND_MemoryManagerAllocate(manager, &parts[0], 2, id, pool + 1))) abort();
}

static void use_manager(object *model, int memory, int64_t id)
{
    object *backend, *manager;
    void *buffer;
    check(TRITONBACKEND_ModelBackend(model, &backend));
    check(TRITONBACKEND_BackendMemoryManager(backend, &manager));
    check(TRITONBACKEND_MemoryManagerAllocate(manager, &buffer, memory, id, 64));
    check(TRITONBACKEND_MemoryManagerFree(manager, buffer, memory, id));
    if (memory == 2 && !refused(TRITONBACKEND_MemoryManagerFree(manager, buffer, memory, id))) abort();
    if (memory == 2) use_pool(manager, id);
}

/* OUTPUT is INPUT, less `cut` bytes, where INPUT is if that may be. */
static void add_output(object *response, object *instance, object *request, uint64_t cut)
{
    object *model;
    object *input, *output;
    void *state;
    const char *name;
    const int64_t *shape;
    const void *from = NULL;
    void *to;
    uint32_t rank, buffers;
    uint64_t bytes, part = 0;
    int type, memory, from_memory = 0;
    int64_t id = 0;
    check(TRITONBACKEND_RequestInput(request, "INPUT", &input));
    check(TRITONBACKEND_InputProperties(input, &name, &type, &shape, &rank, &bytes, &buffers));
    check(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT", type, shape, rank));
    if (buffers) check(TRITONBACKEND_InputBuffer(input, 0, &from, &part, &from_memory, &id));
    if (part != bytes || (from_memory != 0 && from_memory != 2)) abort();
    check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    check(TRITONBACKEND_ModelState(model, &state));
    memory = ((probe *)state)->wants_gpu ? 2 : from_memory;
    check(TRITONBACKEND_OutputBuffer(output, &to, bytes - cut, &memory, &id));
    if (bytes) copy_bytes(to, memory, from, from_memory, bytes - cut);
    use_manager(model, from_memory, from_memory == 2 ? id : 0);
    check(TRITONBACKEND_ResponseSetIntParameter(response, "memory", from_memory));
    check(TRITONBACKEND_ResponseSetStringParameter(response, "type", TRITONSERVER_DataTypeString(type)));
}

static void add_facts(object *response, object *instance, object *request)
{
    const char *name, *key;
    uint32_t flags, outputs, parameters;
    uint64_t sequence;
    int type;
    const void *value;
    check(TRITONBACKEND_ModelInstanceName(instance, &name));
    check(TRITONBACKEND_ResponseSetStringParameter(response, "instance", name));
    check(TRITONBACKEND_ResponseSetStringParameter(response, "settings", settings));
    check(TRITONBACKEND_RequestFlags(request, &flags));
    check(TRITONBACKEND_RequestCorrelationId(request, &sequence));
    check(TRITONBACKEND_ResponseSetIntParameter(response, "flags", flags));
    check(TRITONBACKEND_ResponseSetIntParameter(response, "sequence", (int64_t)sequence));
    check(TRITONBACKEND_RequestOutputCount(request, &outputs));
    check(TRITONBACKEND_ResponseSetIntParameter(response, "outputs", outputs));
    check(TRITONBACKEND_RequestParameterCount(request, &parameters));
    for (uint32_t i = 0; i < parameters; i++) {
        check(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
        if (type == STRING) check(TRITONBACKEND_ResponseSetStringParameter(response, key, value));
        else if (type == 1)
            check(TRITONBACKEND_ResponseSetIntParameter(response, key, *(const int64_t *)value));
    }
    if (!refused(TRITONBACKEND_RequestParameter(request, parameters, &key, &type, &value))) abort();
}

static void respond_once(object *instance, object *request, const char *id)
{
    object *response;
    error *e = strcmp(id, "error") == 0 ? TRITONSERVER_ErrorNew(INVALID_ARG, "the probe was asked to fail")
                                        : NULL;
    check(TRITONBACKEND_ResponseNew(&response, request));
    add_output(response, instance, request, strcmp(id, "short") == 0 ? 4 : 0);
    add_facts(response, instance, request);
    check(TRITONBACKEND_ResponseSend(response, FINAL, e));
    if (e) TRITONSERVER_ErrorDelete(e);
    if (strcmp(id, "twice") != 0) return;
    check(TRITONBACKEND_ResponseNew(&response, request));
    if (!refused(TRITONBACKEND_ResponseSend(response, FINAL, NULL))) abort();
}

/* Sends OUTPUT = 0, 1, 2 of shape [1], then the end without a response. */
static void *send_later(void *factory)
{
    for (int32_t i = 0; i < 3; i++) {
        object *response, *output;
        void *to;
        int memory = 0;
        int64_t id = 0, shape = 1;
        check(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
        check(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT", 8, &shape, 1));
        check(TRITONBACKEND_OutputBuffer(output, &to, sizeof i, &memory, &id));
        memcpy(to, &i, sizeof i);
        check(TRITONBACKEND_ResponseSend(response, 0, NULL));
    }
    check(TRITONBACKEND_ResponseFactorySendFlags(factory, FINAL));
    check(TRITONBACKEND_ResponseFactoryDelete(factory));
    return NULL;
}

static void respond_later(object *request)
{
    object *factory;
    pthread_t thread;
    check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    if (pthread_create(&thread, NULL, send_later, factory) != 0) abort();
    pthread_detach(thread);
}

static void report_activity(object *request)
{
    object *trace;
    check(TRITONBACKEND_RequestTrace(request, &trace));
    if (trace) check(TRITONSERVER_InferenceTraceReportActivity(trace, now_ns(), "PROBE \"LOOKS\""));
}

EXPORT error *TRITONBACKEND_ModelInstanceExecute(object *instance, object **requests, uint32_t count)
{
    object *model;
    void *state;
    const char *id;
    check(TRITONBACKEND_ModelInstanceModel(instance, &model));
    check(TRITONBACKEND_ModelState(model, &state));
    check(TRITONBACKEND_RequestId(requests[0], &id));
    if (strcmp(id, "refuse") == 0) return TRITONSERVER_ErrorNew(UNAVAILABLE, "the probe refuses");
    for (uint32_t i = 0; i < count; i++) {
        uint64_t start = now_ns();
        check(TRITONSERVER_MetricIncrement(requests_metric, 1));
        report_activity(requests[i]);
        check(TRITONBACKEND_RequestId(requests[i], &id));
        if (((probe *)state)->decoupled) respond_later(requests[i]);
        else if (strcmp(id, "silent") != 0) respond_once(instance, requests[i], id);
        check(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[i], true, start, start + 1,
                                                          now_ns(), now_ns()));
        check(TRITONBACKEND_RequestRelease(requests[i], ALL));
    }
    return NULL;
}
