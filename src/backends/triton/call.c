/* SPDX-License-Identifier: Apache-2.0
 * call.c - requests that a backend makes of other models of the server, as the python backend does for BLS: the
 * request, the memory for its outputs (an allocator of the backend), and its responses.
 * Owner:   the backend keeps the bytes of inputs until the release callback, which it gets when the server has dropped
 *          all of them. A response is the backend's until it deletes it.
 * Threads: callbacks come on the thread of the model that responds. */
#include "backends/triton/abi.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "serve/server.h"
#include <string.h>

struct TRITONSERVER_InferenceRequest {
    proa_server *server;
    pthread_mutex_t lock; /* of infer, once the request was sent */
    proa_infer *infer;    /* NULL after the final response */
    bool sent;
    atomic_int holders; /* the request itself and each buffer of an input */
    TRITONSERVER_ResponseAllocator *allocator;
    void *allocator_arg;
    proa_triton_respond_fn *respond;
    void *respond_arg;
    proa_triton_release_fn *release;
    void *release_arg;
};

struct TRITONSERVER_ResponseAllocator {
    proa_triton_alloc_fn *allocate;
    proa_triton_free_fn *release;
    proa_triton_start_fn *start;
    proa_triton_query_fn *query;
};

typedef struct output_memory {
    void *data, *arg; /* the backend's */
    int memory_type;
    int64_t memory_id;
    bool allocated;
} output_memory;

struct TRITONSERVER_InferenceResponse {
    proa_reply *reply;
    TRITONSERVER_Error *error; /* NULL: none */
    TRITONSERVER_ResponseAllocator *allocator;
    output_memory outputs[]; /* one for each of the reply */
};

/* ---- allocators ---- */

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(TRITONSERVER_ResponseAllocator **out,
                                                      proa_triton_alloc_fn *allocate,
                                                      proa_triton_free_fn *release, proa_triton_start_fn *start)
{
    *out = proa_malloc(sizeof **out);
    **out = (TRITONSERVER_ResponseAllocator){.allocate = allocate, .release = release, .start = start};
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetQueryFunction(TRITONSERVER_ResponseAllocator *allocator,
                                                                   proa_triton_query_fn *query)
{
    allocator->query = query;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator *allocator)
{
    free(allocator);
    return NULL;
}

/* ---- a request, before it is sent ---- */

TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest **out, proa_server *server,
                                                     const char *model_name, int64_t model_version)
{
    proa_err err = {0};
    proa_infer *infer = proa_infer_new();
    *out = NULL;
    infer->model_name = proa_arena_strdup(&infer->arena, proa_str_c(model_name));
    infer->model_version = model_version;
    infer->id = "";
    if (proa_server_find_model(server, infer, &err) != PROA_OK) {
        proa_infer_drop(infer);
        return proa_triton_error_of(&err);
    }
    TRITONSERVER_InferenceRequest *r = proa_calloc(1, sizeof *r);
    r->server = server;
    r->infer = infer;
    pthread_mutex_init(&r->lock, NULL);
    atomic_init(&r->holders, 1);
    *out = r;
    return NULL;
}

/* A request that was never sent has no callbacks. */
TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest *request)
{
    if (!request) return NULL;
    if (request->infer && request->sent)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "the request to model '%s' has not ended",
                                 request->infer->model_name);
    proa_infer_drop(request->infer);
    pthread_mutex_destroy(&request->lock);
    free(request);
    return NULL;
}

static TRITONSERVER_Error *check_unsent(const TRITONSERVER_InferenceRequest *request)
{
    return request->sent ? proa_triton_error(PROA_TRITON_INVALID_ARG, "the request was sent: make a new one")
                         : NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(TRITONSERVER_InferenceRequest *request, const char *id)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (!error) request->infer->id = proa_arena_strdup(&request->infer->arena, proa_str_c(id));
    return error;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetFlags(TRITONSERVER_InferenceRequest *request, uint32_t flags)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (error) return error;
    request->infer->sequence_start = flags & PROA_TRITON_SEQUENCE_START;
    request->infer->sequence_end = flags & PROA_TRITON_SEQUENCE_END;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationId(TRITONSERVER_InferenceRequest *request,
                                                                  uint64_t id)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (error) return error;
    request->infer->sequence_id = id;
    request->infer->sequence_name = NULL;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(TRITONSERVER_InferenceRequest *request,
                                                                        const char *id)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (error) return error;
    request->infer->sequence_name = proa_arena_strdup(&request->infer->arena, proa_str_c(id));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriorityUInt64(TRITONSERVER_InferenceRequest *request,
                                                                   uint64_t priority)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (!error) request->infer->priority = priority;
    return error;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(TRITONSERVER_InferenceRequest *request,
                                                                        uint64_t timeout_us)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (!error) request->infer->timeout_us = timeout_us;
    return error;
}

/* *out: the new parameter of the request, without a value. */
static TRITONSERVER_Error *new_param(proa_infer_param **out, TRITONSERVER_InferenceRequest *request,
                                     const char *key)
{
    TRITONSERVER_Error *error = check_unsent(request);
    *out = error ? NULL : proa_infer_add_param(request->infer, proa_str_c(key));
    if (error || *out) return error;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "too many parameters: '%s' is beyond the limit", key);
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetStringParameter(TRITONSERVER_InferenceRequest *request,
                                                                    const char *key, const char *value)
{
    proa_infer_param *p;
    TRITONSERVER_Error *error = new_param(&p, request, key);
    if (error) return error;
    p->kind = PROA_PARAM_STRING;
    p->s = proa_str_c(proa_arena_strdup(&request->infer->arena, proa_str_c(value)));
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(TRITONSERVER_InferenceRequest *request,
                                                                 const char *key, int64_t value)
{
    proa_infer_param *p;
    TRITONSERVER_Error *error = new_param(&p, request, key);
    if (error) return error;
    p->kind = PROA_PARAM_INT;
    p->i = value;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetBoolParameter(TRITONSERVER_InferenceRequest *request,
                                                                  const char *key, bool value)
{
    proa_infer_param *p;
    TRITONSERVER_Error *error = new_param(&p, request, key);
    if (error) return error;
    p->kind = PROA_PARAM_BOOL;
    p->b = value;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetDoubleParameter(TRITONSERVER_InferenceRequest *request,
                                                                    const char *key, double value)
{
    proa_infer_param *p;
    TRITONSERVER_Error *error = new_param(&p, request, key);
    if (error) return error;
    p->kind = PROA_PARAM_DOUBLE;
    p->d = value;
    return NULL;
}

/* ---- its inputs and requested outputs ---- */

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest *request,
                                                          const char *name, int type, const int64_t *shape,
                                                          uint64_t rank)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (error) return error;
    if (type <= PROA_TYPE_INVALID || type >= PROA_TYPE_COUNT || rank > PROA_SERVE_RANK_MAX)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "input '%s' has type %d and %llu dimensions", name,
                                 type, (unsigned long long)rank);
    if (proa_infer_input(request->infer, name))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "input '%s' already exists in request", name);
    proa_tensor *t = proa_infer_add_input(request->infer, proa_str_c(name));
    if (!t)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "more than %d inputs", PROA_TENSORS_PER_REQUEST_MAX);
    t->type = (proa_type)type;
    t->rank = (int32_t)rank;
    if (rank) memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    return NULL;
}

/* The last holder: the server has nothing of the request any more. The callback may delete it. */
static void drop_request(void *arg)
{
    TRITONSERVER_InferenceRequest *request = arg;
    if (atomic_fetch_sub(&request->holders, 1) > 1) return;
    if (request->release) request->release(request, PROA_TRITON_RELEASE_ALL, request->release_arg);
}

/* The first bytes of an input are read where they are; further ones are appended to a copy. */
static TRITONSERVER_Error *append_bytes(TRITONSERVER_InferenceRequest *request, proa_tensor *t,
                                        const void *base, size_t bytes)
{
    proa_err err = {0};
    proa_buffer *whole;
    if (!t->buffer) {
        atomic_fetch_add(&request->holders, 1);
        t->buffer = proa_buffer_wrap((void *)(uintptr_t)base, bytes, drop_request, request);
    } else {
        if (bytes > SIZE_MAX - t->bytes || proa_buffer_try(&whole, t->bytes + bytes, &err) != PROA_OK)
            return proa_triton_error(PROA_TRITON_UNAVAILABLE, "not enough memory for input '%s'", t->name);
        memcpy(whole->data, t->data, t->bytes);
        memcpy(whole->data + t->bytes, base, bytes);
        proa_buffer_drop(t->buffer);
        t->buffer = whole;
    }
    t->data = t->buffer->data;
    t->bytes += bytes;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(TRITONSERVER_InferenceRequest *request,
                                                                 const char *name, const void *base,
                                                                 size_t bytes, int memory_type, int64_t memory_id)
{
    (void)memory_id;
    TRITONSERVER_Error *error = check_unsent(request);
    if (error) return error;
    proa_tensor *t = (proa_tensor *)(uintptr_t)proa_infer_input(request->infer, name);
    if (!t) return proa_triton_error(PROA_TRITON_INVALID_ARG, "input '%s' does not exist in request", name);
    if (memory_type == PROA_TRITON_GPU_MEMORY)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED,
                                 "input '%s' is in GPU memory, which Proa does not pass on", name);
    return bytes ? append_bytes(request, t, base, bytes) : NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRequestedOutput(TRITONSERVER_InferenceRequest *request,
                                                                    const char *name)
{
    TRITONSERVER_Error *error = check_unsent(request);
    if (error || proa_infer_add_output(request->infer, proa_str_c(name))) return error;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "more than %d requested outputs",
                             PROA_TENSORS_PER_REQUEST_MAX);
}

/* ---- sending ---- */

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(TRITONSERVER_InferenceRequest *request,
                                                                    proa_triton_release_fn *release, void *arg)
{
    request->release = release;
    request->release_arg = arg;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(TRITONSERVER_InferenceRequest *request,
                                                                     TRITONSERVER_ResponseAllocator *allocator,
                                                                     void *allocator_arg,
                                                                     proa_triton_respond_fn *respond, void *arg)
{
    request->allocator = allocator;
    request->allocator_arg = allocator_arg;
    request->respond = respond;
    request->respond_arg = arg;
    return NULL;
}

/* Memory of the backend for an output. Its preference counts if it is host memory. */
static TRITONSERVER_Error *allocate_output(output_memory *out, TRITONSERVER_ResponseAllocator *allocator,
                                           const proa_tensor *t, void *arg)
{
    int type = PROA_TRITON_CPU;
    int64_t id = 0;
    size_t bytes = t->bytes;
    if (allocator->query) {
        TRITONSERVER_Error *error = allocator->query(allocator, arg, t->name, &bytes, &type, &id);
        if (error) return error;
        if (type == PROA_TRITON_GPU_MEMORY) type = PROA_TRITON_CPU, id = 0;
    }
    TRITONSERVER_Error *error = allocator->allocate(allocator, t->name, t->bytes, type, id, arg, &out->data,
                                                    &out->arg, &out->memory_type, &out->memory_id);
    if (error) return error;
    out->allocated = true;
    if (t->bytes && out->memory_type == PROA_TRITON_GPU_MEMORY)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED,
                                 "output '%s' is wanted in GPU memory, to which Proa does not copy", t->name);
    if (t->bytes && !out->data)
        return proa_triton_error(PROA_TRITON_UNAVAILABLE, "there is no memory for output '%s'", t->name);
    if (t->bytes) memcpy(out->data, t->data, t->bytes);
    proa_copies_add(t->bytes);
    return NULL;
}

static TRITONSERVER_InferenceResponse *new_response(const TRITONSERVER_InferenceRequest *request, proa_reply *reply)
{
    int32_t count = reply->error.status == PROA_OK ? reply->outputs_count : 0;
    TRITONSERVER_InferenceResponse *response = proa_calloc(1, sizeof *response +
                                                                  (size_t)count * sizeof response->outputs[0]);
    response->reply = reply;
    response->allocator = request->allocator;
    if (reply->error.status != PROA_OK) response->error = proa_triton_error_of(&reply->error);
    else if (count && request->allocator->start)
        response->error = request->allocator->start(request->allocator, request->allocator_arg);
    for (int32_t k = 0; k < count && !response->error; k++)
        response->error = allocate_output(&response->outputs[k], request->allocator, &reply->outputs[k],
                                          request->allocator_arg);
    return response;
}

/* The model responds. A decoupled one may end without another response. */
static void on_reply(proa_infer *infer, proa_reply *reply, bool final)
{
    TRITONSERVER_InferenceRequest *request = infer->user;
    request->respond(reply ? new_response(request, reply) : NULL, final ? PROA_TRITON_FINAL : 0,
                     request->respond_arg);
    if (!final) return;
    pthread_mutex_lock(&request->lock);
    request->infer = NULL;
    pthread_mutex_unlock(&request->lock);
    proa_infer_drop(infer);
    drop_request(request);
}

/* trace: no request has one, so none is a child of it. */
TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(proa_server *server, TRITONSERVER_InferenceRequest *request,
                                                  void *trace)
{
    proa_err err = {0};
    TRITONSERVER_Error *error = check_unsent(request);
    (void)trace;
    if (error) return error;
    if (!request->respond || !request->allocator)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "the request has no response callback");
    request->infer->on_reply = on_reply;
    request->infer->user = request;
    request->infer->inner = true; /* of a request that was accepted */
    request->sent = true;
    if (proa_server_infer(server, request->infer, &err) == PROA_OK) return NULL; /* it may be gone */
    request->sent = false;
    return proa_triton_error_of(&err);
}

TRITONSERVER_Error *TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest *request)
{
    pthread_mutex_lock(&request->lock);
    proa_infer *infer = request->infer ? proa_infer_hold(request->infer) : NULL;
    pthread_mutex_unlock(&request->lock);
    if (!infer) return NULL; /* it has ended */
    proa_infer_cancel(infer);
    proa_infer_drop(infer);
    return NULL;
}

/* ---- a response ---- */

TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse *response)
{
    TRITONSERVER_Error *error = NULL;
    if (!response) return NULL;
    for (int32_t k = 0; k < response->reply->outputs_count && response->reply->error.status == PROA_OK; k++) {
        const output_memory *o = &response->outputs[k];
        if (!o->allocated || !response->allocator->release) continue;
        TRITONSERVER_Error *failed = response->allocator->release(response->allocator, o->data, o->arg,
                                                                  response->reply->outputs[k].bytes,
                                                                  o->memory_type, o->memory_id);
        if (error) TRITONSERVER_ErrorDelete(failed);
        else error = failed;
    }
    TRITONSERVER_ErrorDelete(response->error);
    proa_reply_free(response->reply);
    free(response);
    return error;
}

/* A copy, as in Triton: its header says that the error is the response's, but backends delete it. */
TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse *response)
{
    return response->error ? TRITONSERVER_ErrorNew(response->error->code, response->error->text) : NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputCount(TRITONSERVER_InferenceResponse *response,
                                                              uint32_t *count)
{
    *count = response->error ? 0 : (uint32_t)response->reply->outputs_count;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(TRITONSERVER_InferenceResponse *response, uint32_t index,
                                                         const char **name, int *type, const int64_t **shape,
                                                         uint64_t *rank, const void **base, size_t *bytes,
                                                         int *memory_type, int64_t *memory_id, void **arg)
{
    if (response->error || index >= (uint32_t)response->reply->outputs_count)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "out of bounds index %u: response has %d outputs",
                                 index, response->error ? 0 : response->reply->outputs_count);
    const proa_tensor *t = &response->reply->outputs[index];
    const output_memory *o = &response->outputs[index];
    *name = t->name;
    *type = (int)t->type;
    *shape = t->shape;
    *rank = (uint64_t)t->rank;
    *base = o->data;
    *bytes = t->bytes;
    *memory_type = o->memory_type;
    *memory_id = o->memory_id;
    *arg = o->arg;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameterCount(TRITONSERVER_InferenceResponse *response,
                                                                 uint32_t *count)
{
    *count = (uint32_t)response->reply->params_count;
    return NULL;
}

TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameter(TRITONSERVER_InferenceResponse *response,
                                                            uint32_t index, const char **name, int *type,
                                                            const void **value)
{
    if (index >= (uint32_t)response->reply->params_count)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "out of bounds index %u: response has %d parameters",
                                 index, response->reply->params_count);
    proa_triton_read_param(&response->reply->params[index], name, type, value);
    return NULL;
}
