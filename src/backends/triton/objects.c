/* SPDX-License-Identifier: Apache-2.0
 * objects.c - the small objects of Triton's interface: errors, messages, parameters, names of enumerations, the log. */
#include "backends/triton/abi.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/trace.h"
#include <stdarg.h>
#include <string.h>

TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor)
{
    *major = 1;
    *minor = 34;
    return NULL;
}

/* ---- errors ---- */

TRITONSERVER_Error *TRITONSERVER_ErrorNew(int code, const char *text)
{
    size_t bytes = strlen(text ? text : "") + 1;
    TRITONSERVER_Error *e = proa_malloc(sizeof *e + bytes);
    e->code = code;
    memcpy(e->text, text ? text : "", bytes);
    return e;
}

TRITONSERVER_Error *proa_triton_error(int code, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return TRITONSERVER_ErrorNew(code, text);
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error)
{
    free(error);
}

int TRITONSERVER_ErrorCode(TRITONSERVER_Error *error)
{
    return error->code;
}

const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error)
{
    static const char *const names[] = {"Unknown",     "Internal",    "Not found",      "Invalid argument",
                                        "Unavailable", "Unsupported", "Already exists", "Cancelled"};
    return error->code >= 0 && (size_t)error->code < PROA_COUNT(names) ? names[error->code] : "<invalid code>";
}

const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error)
{
    return error->text;
}

proa_status proa_triton_status(TRITONSERVER_Error *error, proa_err *err)
{
    static const proa_status statuses[] = {PROA_INTERNAL, PROA_INTERNAL,    PROA_NOT_FOUND,
                                           PROA_INVALID,  PROA_UNAVAILABLE, PROA_UNSUPPORTED,
                                           PROA_EXISTS,   PROA_CANCELLED};
    if (!error) return PROA_OK;
    bool known = error->code >= 0 && (size_t)error->code < PROA_COUNT(statuses);
    proa_status status = known ? statuses[error->code] : PROA_INTERNAL;
    (void)proa_err_set(err, status, "backend", 0, "%s", error->text);
    TRITONSERVER_ErrorDelete(error);
    return status;
}

TRITONSERVER_Error *proa_triton_error_of(const proa_err *err)
{
    int code = PROA_TRITON_INTERNAL;
    switch (err->status) {
    case PROA_NOT_FOUND: code = PROA_TRITON_NOT_FOUND; break;
    case PROA_INVALID:
    case PROA_LIMIT: code = PROA_TRITON_INVALID_ARG; break;
    case PROA_UNAVAILABLE:
    case PROA_NO_MEMORY:
    case PROA_DEADLINE: code = PROA_TRITON_UNAVAILABLE; break;
    case PROA_UNSUPPORTED: code = PROA_TRITON_UNSUPPORTED; break;
    case PROA_EXISTS: code = PROA_TRITON_ALREADY_EXISTS; break;
    case PROA_CANCELLED: code = PROA_TRITON_CANCELLED; break;
    default: break;
    }
    char *text = proa_err_whole_text(err);
    TRITONSERVER_Error *error = TRITONSERVER_ErrorNew(code, text);
    free(text);
    return error;
}

/* ---- names ---- */

const char *TRITONSERVER_DataTypeString(int type)
{
    return type > PROA_TYPE_INVALID && type < PROA_TYPE_COUNT ? proa_type_name((proa_type)type) : "<invalid>";
}

int TRITONSERVER_StringToDataType(const char *name)
{
    return (int)proa_type_find(proa_str_c(name));
}

uint32_t TRITONSERVER_DataTypeByteSize(int type)
{
    if (type <= PROA_TYPE_INVALID || type >= PROA_TYPE_COUNT || type == PROA_TYPE_BYTES) return 0;
    return (uint32_t)proa_type_bytes((proa_type)type);
}

static const char *name_at(const char *const *names, int count, int index)
{
    return index >= 0 && index < count ? names[index] : "<invalid>";
}

const char *TRITONSERVER_MemoryTypeString(int type)
{
    static const char *const names[] = {"CPU", "CPU_PINNED", "GPU"};
    return name_at(names, 3, type);
}

const char *TRITONSERVER_ParameterTypeString(int type)
{
    static const char *const names[] = {"STRING", "INT", "BOOL", "DOUBLE", "BYTES"};
    return name_at(names, 5, type);
}

const char *TRITONSERVER_InstanceGroupKindString(int kind)
{
    static const char *const names[] = {"AUTO", "CPU", "GPU", "MODEL"};
    return name_at(names, 4, kind);
}

/* ---- the log ---- */

static int log_level(int level)
{
    static const int levels[] = {PROA_LOG_INFO, PROA_LOG_WARNING, PROA_LOG_ERROR, PROA_LOG_VERBOSE};
    return level >= 0 && level < (int)PROA_COUNT(levels) ? levels[level] : PROA_LOG_INFO;
}

bool TRITONSERVER_LogIsEnabled(int level)
{
    return proa_log_on(log_level(level));
}

TRITONSERVER_Error *TRITONSERVER_LogMessage(int level, const char *file, int line, const char *text)
{
    if (proa_log_on(log_level(level)))
        proa_log_line(log_level(level), file ? file : "backend", line, "%s", text ? text : "");
    return NULL;
}

/* ---- messages and parameters ---- */

TRITONSERVER_Message *proa_triton_message(const char *json, size_t bytes)
{
    TRITONSERVER_Message *m = proa_malloc(sizeof *m + bytes + 1);
    m->bytes = bytes;
    memcpy(m->json, json, bytes);
    m->json[bytes] = 0;
    return m;
}

TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message **out, const char *json,
                                                              size_t bytes)
{
    *out = proa_triton_message(json, bytes);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message *message, const char **json,
                                                        size_t *bytes)
{
    *json = message->json;
    *bytes = message->bytes;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message)
{
    free(message);
    return NULL;
}

TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(const char *name, int type, const void *value)
{
    TRITONSERVER_Parameter *p = proa_calloc(1, sizeof *p);
    p->name = proa_strdup(name);
    p->type = type;
    if (type == PROA_TRITON_STRING) p->text = proa_strdup(value);
    if (type == PROA_TRITON_INT) memcpy(&p->value.i, value, sizeof p->value.i);
    if (type == PROA_TRITON_BOOL) memcpy(&p->value.b, value, sizeof p->value.b);
    if (type == PROA_TRITON_DOUBLE) memcpy(&p->value.d, value, sizeof p->value.d);
    return p;
}

/* The bytes stay the caller's until the parameter is deleted. */
TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(const char *name, const void *bytes, uint64_t count)
{
    TRITONSERVER_Parameter *p = proa_calloc(1, sizeof *p);
    p->name = proa_strdup(name);
    p->type = PROA_TRITON_BYTES;
    p->bytes = (size_t)count;
    p->value.bytes = bytes;
    return p;
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter)
{
    if (!parameter) return;
    free(parameter->name);
    free(parameter->text);
    free(parameter);
}

/* ---- where a buffer is ---- */

TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes **attributes)
{
    *attributes = proa_calloc(1, sizeof **attributes);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes *attributes)
{
    free(attributes);
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryType(TRITONSERVER_BufferAttributes *attributes, int type)
{
    attributes->memory_type = type;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryTypeId(TRITONSERVER_BufferAttributes *attributes,
                                                                 int64_t id)
{
    attributes->memory_id = id;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetCudaIpcHandle(TRITONSERVER_BufferAttributes *attributes,
                                                                  void *handle)
{
    attributes->ipc_handle = handle;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetByteSize(TRITONSERVER_BufferAttributes *attributes,
                                                             size_t bytes)
{
    attributes->bytes = bytes;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryType(TRITONSERVER_BufferAttributes *attributes, int *type)
{
    *type = attributes->memory_type;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryTypeId(TRITONSERVER_BufferAttributes *attributes,
                                                              int64_t *id)
{
    *id = attributes->memory_id;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesCudaIpcHandle(TRITONSERVER_BufferAttributes *attributes,
                                                               void **handle)
{
    *handle = attributes->ipc_handle;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_BufferAttributesByteSize(TRITONSERVER_BufferAttributes *attributes, size_t *bytes)
{
    *bytes = attributes->bytes;
    return NULL;
}

/* ---- traces: a trace is the span of its request (TRITONBACKEND_RequestTrace), until that is released ---- */

TRITONSERVER_Error *TRITONSERVER_InferenceTraceContext(void *trace, const char **context)
{
    proa_trace_span *span = trace;
    proa_buf text;
    proa_buf_init(&text, 4 * PROA_TRACESTATE_BYTES_MAX);
    proa_trace_context_json(&text, span);
    pthread_mutex_lock(&span->trace->lock);
    *context = proa_arena_strdup(&span->trace->arena, proa_buf_view(&text));
    pthread_mutex_unlock(&span->trace->lock);
    proa_buf_release(&text);
    return NULL;
}

/* Calls that a library makes of other models are not traced. */
TRITONSERVER_Error *TRITONSERVER_InferenceTraceSpawnChildTrace(void *trace, void **child)
{
    (void)trace;
    *child = NULL;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(void *trace, uint64_t time_ns, const char *name)
{
    proa_trace_report(trace, (int64_t)time_ns, name);
    return NULL;
}
