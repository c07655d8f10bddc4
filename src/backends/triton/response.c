/* SPDX-License-Identifier: Apache-2.0
 * response.c - responses and their factories. A response is a reply of the server; its outputs are written in place. */
#include "backends/triton/abi.h"

#include "backends/common.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

/* A factory is its request, with a reference more. */
static TRITONBACKEND_Request *request_of(TRITONBACKEND_ResponseFactory *factory)
{
    return (TRITONBACKEND_Request *)(void *)factory;
}

/* ---- factories ---- */

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory **factory,
                                                     TRITONBACKEND_Request *request)
{
    *factory = (TRITONBACKEND_ResponseFactory *)(void *)proa_triton_request_hold(request);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory *factory)
{
    if (!factory) return NULL;
    proa_triton_request_drop(request_of(factory));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(TRITONBACKEND_ResponseFactory *factory,
                                                             bool *cancelled)
{
    *cancelled = proa_infer_cancelled(request_of(factory)->infer);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory *factory, uint32_t flags)
{
    TRITONBACKEND_Request *request = request_of(factory);
    if (!(flags & PROA_TRITON_FINAL) || !request->model->decoupled)
        return NULL; /* its one response ends it */
    if (proa_triton_reply(request, NULL, true)) return NULL;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "the final response of the request was sent before");
}

/* ---- a response ---- */

static TRITONSERVER_Error *new_response(TRITONBACKEND_Response **response, TRITONBACKEND_Request *request)
{
    *response = proa_malloc(sizeof **response);
    **response = (TRITONBACKEND_Response){proa_triton_request_hold(request), proa_reply_new(request->infer)};
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **response, TRITONBACKEND_Request *request)
{
    return new_response(response, request);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response **response,
                                                         TRITONBACKEND_ResponseFactory *factory)
{
    return new_response(response, request_of(factory));
}

static void delete_response(TRITONBACKEND_Response *response)
{
    proa_triton_request_drop(response->request);
    free(response);
}

TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response)
{
    if (!response) return NULL;
    proa_reply_free(response->reply);
    delete_response(response);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *response, uint32_t flags,
                                               TRITONSERVER_Error *error)
{
    if (error) { /* it stays the caller's */
        TRITONSERVER_Error *copy = TRITONSERVER_ErrorNew(error->code, error->text);
        (void)proa_triton_status(copy, &response->reply->error);
    }
    bool sent = proa_triton_reply(response->request, response->reply, flags & PROA_TRITON_FINAL);
    delete_response(response);
    if (sent) return NULL;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "the final response of the request was sent before");
}

/* ---- parameters ---- */

TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(TRITONBACKEND_Response *response,
                                                             const char *name, const char *value)
{
    proa_infer_param *p = proa_reply_add_param(response->reply, name);
    p->kind = PROA_PARAM_STRING;
    p->s = proa_str_c(proa_arena_strdup(&response->reply->arena, proa_str_c(value)));
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response *response, const char *name,
                                                          int64_t value)
{
    proa_infer_param *p = proa_reply_add_param(response->reply, name);
    p->kind = PROA_PARAM_INT;
    p->i = value;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(TRITONBACKEND_Response *response, const char *name,
                                                           bool value)
{
    proa_infer_param *p = proa_reply_add_param(response->reply, name);
    p->kind = PROA_PARAM_BOOL;
    p->b = value;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(TRITONBACKEND_Response *response,
                                                             const char *name, double value)
{
    proa_infer_param *p = proa_reply_add_param(response->reply, name);
    p->kind = PROA_PARAM_DOUBLE;
    p->d = value;
    return NULL;
}

/* ---- outputs ---- */

TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *response,
                                                 TRITONBACKEND_Output **output, const char *name, int type,
                                                 const int64_t *shape, uint32_t rank)
{
    proa_reply *reply = response->reply;
    *output = NULL;
    if (type <= PROA_TYPE_INVALID || type >= PROA_TYPE_COUNT || rank > PROA_SERVE_RANK_MAX)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "output '%s' has type %d and %u dimensions", name,
                                 type, rank);
    proa_tensor *t = proa_reply_add(reply, name);
    t->type = (proa_type)type;
    t->rank = (int32_t)rank;
    if (rank) memcpy(t->shape, shape, rank * sizeof *shape);
    *output = PROA_ARENA_NEW(&reply->arena, TRITONBACKEND_Output, 1);
    **output = (TRITONBACKEND_Output){
        .infer = response->request->infer, .reply = reply, .index = reply->outputs_count - 1};
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *output, void **buffer, uint64_t bytes,
                                               int *memory_type, int64_t *memory_id)
{
    proa_tensor *t = &output->reply->outputs[output->index];
    proa_err err = {0};
    *buffer = NULL;
    if (t->buffer)
        return proa_triton_error(PROA_TRITON_ALREADY_EXISTS, "output '%s' has a buffer already", t->name);
    if (bytes && proa_triton_output_memory(&t->buffer, output, bytes, *memory_type, *memory_id, &err) != PROA_OK)
        return proa_triton_error(PROA_TRITON_UNAVAILABLE, "%s", err.text);
    proa_triton_locate(t, memory_type, memory_id);
    output->attributes = (TRITONSERVER_BufferAttributes){bytes, *memory_type, *memory_id, NULL};
    if (!bytes) return NULL;
    t->bytes = bytes;
    t->data = *buffer = t->buffer->data;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_OutputBufferAttributes(TRITONBACKEND_Output *output,
                                                         TRITONSERVER_BufferAttributes **attributes)
{
    *attributes = &output->attributes;
    return NULL;
}
