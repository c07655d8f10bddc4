/* SPDX-License-Identifier: Apache-2.0
 * request.c - requests of an execution and their inputs, which are read where the server has them. */
#include "backends/triton/abi.h"

#include <string.h>

/* ---- properties ---- */

TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id)
{
    *id = request->infer->id ? request->infer->id : "";
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request *request, bool *cancelled)
{
    *cancelled = proa_infer_cancelled(request->infer);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request *request, uint64_t *id)
{
    if (request->infer->sequence_name)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "correlation ID in request is not an unsigned int");
    *id = request->infer->sequence_id;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request *request, const char **id)
{
    if (!request->infer->sequence_name)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "correlation ID in request is not a string");
    *id = request->infer->sequence_name;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestFlags(TRITONBACKEND_Request *request, uint32_t *flags)
{
    *flags = (request->infer->sequence_start ? PROA_TRITON_SEQUENCE_START : 0U) |
             (request->infer->sequence_end ? PROA_TRITON_SEQUENCE_END : 0U);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(TRITONBACKEND_Request *request,
                                                                      uint64_t *timeout)
{
    *timeout = request->infer->timeout_us;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestTrace(TRITONBACKEND_Request *request, void **trace)
{
    *trace = request->infer->trace; /* NULL: it is not traced */
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request *request, uint32_t *count)
{
    *count = (uint32_t)request->infer->params_count;
    return NULL;
}

void proa_triton_read_param(const proa_infer_param *p, const char **name, int *type, const void **value)
{
    static const int types[] = {[PROA_PARAM_BOOL] = PROA_TRITON_BOOL,
                                [PROA_PARAM_INT] = PROA_TRITON_INT,
                                [PROA_PARAM_UINT] = PROA_TRITON_INT,
                                [PROA_PARAM_DOUBLE] = PROA_TRITON_DOUBLE,
                                [PROA_PARAM_STRING] = PROA_TRITON_STRING};
    *name = p->name.ptr;
    *type = types[p->kind];
    *value = p->kind == PROA_PARAM_STRING ? (const void *)p->s.ptr : (const void *)&p->u;
}

TRITONSERVER_Error *TRITONBACKEND_RequestParameter(TRITONBACKEND_Request *request, uint32_t index,
                                                   const char **name, int *type, const void **value)
{
    if (index >= (uint32_t)request->infer->params_count)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "out of bounds index %u: request has %d parameters",
                                 index, request->infer->params_count);
    proa_triton_read_param(&request->infer->params[index], name, type, value);
    return NULL;
}

/* ---- requested outputs: all of the model, if the request names none ---- */

TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *request, uint32_t *count)
{
    const Inference__ModelConfig *config = proa_served_model_config(request->model->served);
    int32_t named = request->infer->outputs_count;
    *count = named ? (uint32_t)named : (uint32_t)config->n_output;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *request, uint32_t index,
                                                    const char **name)
{
    const Inference__ModelConfig *config = proa_served_model_config(request->model->served);
    int32_t named = request->infer->outputs_count;
    *name = NULL;
    if (index >= (named ? (uint32_t)named : config->n_output))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "out of bounds index %u of the requested outputs",
                                 index);
    *name = named ? request->infer->outputs[index] : config->output[index]->name;
    return NULL;
}

/* ---- inputs ---- */

TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *count)
{
    *count = (uint32_t)request->infer->inputs_count;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request *request, uint32_t index,
                                                      TRITONBACKEND_Input **input)
{
    *input = NULL;
    if (index >= (uint32_t)request->infer->inputs_count)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "out of bounds index %u: request has %d inputs",
                                 index, request->infer->inputs_count);
    *input = &request->inputs[index];
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputName(TRITONBACKEND_Request *request, uint32_t index,
                                                   const char **name)
{
    TRITONBACKEND_Input *input;
    TRITONSERVER_Error *error = TRITONBACKEND_RequestInputByIndex(request, index, &input);
    *name = error ? NULL : input->tensor->name;
    return error;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *request, const char *name,
                                               TRITONBACKEND_Input **input)
{
    const proa_tensor *found = proa_infer_input(request->infer, name);
    *input = found ? &request->inputs[found - request->infer->inputs] : NULL;
    return found ? NULL : proa_triton_error(PROA_TRITON_INVALID_ARG, "unknown request input name %s", name);
}

TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *input, const char **name, int *type,
                                                  const int64_t **shape, uint32_t *rank, uint64_t *bytes,
                                                  uint32_t *buffers)
{
    const proa_tensor *t = input->tensor;
    if (name) *name = t->name;
    if (type) *type = (int)t->type;
    if (shape) *shape = t->shape;
    if (rank) *rank = (uint32_t)t->rank;
    if (bytes) *bytes = t->bytes;
    if (buffers) *buffers = t->bytes ? 1 : 0;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_InputPropertiesForHostPolicy(TRITONBACKEND_Input *input, const char *policy,
                                                               const char **name, int *type,
                                                               const int64_t **shape, uint32_t *rank,
                                                               uint64_t *bytes, uint32_t *buffers)
{
    (void)policy; /* an input is the same for all */
    return TRITONBACKEND_InputProperties(input, name, type, shape, rank, bytes, buffers);
}

/* A buffer that is not there is an empty one, as in Triton. */
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
                                              uint64_t *bytes, int *memory_type, int64_t *memory_id)
{
    const proa_tensor *t = input->tensor;
    *buffer = index == 0 ? t->data : NULL;
    *bytes = index == 0 ? t->bytes : 0;
    proa_triton_locate(t, memory_type, memory_id);
    return NULL;
}

/* Attributes in place of the last three values. */
TRITONSERVER_Error *TRITONBACKEND_InputBufferAttributes(TRITONBACKEND_Input *input, uint32_t index,
                                                        const void **buffer,
                                                        TRITONSERVER_BufferAttributes **attributes)
{
    uint64_t bytes;
    int memory_type;
    int64_t memory_id;
    *attributes = &input->attributes;
    return TRITONBACKEND_InputBuffer(input, index, buffer, &bytes, &memory_type, &memory_id);
}

TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(TRITONBACKEND_Input *input, const char *policy,
                                                           uint32_t index, const void **buffer, uint64_t *bytes,
                                                           int *memory_type, int64_t *memory_id)
{
    (void)policy;
    return TRITONBACKEND_InputBuffer(input, index, buffer, bytes, memory_type, memory_id);
}

/* ---- implicit state: no model has any (triton.c), so these are Triton's answers for a model without ---- */

TRITONSERVER_Error *TRITONBACKEND_StateNew(void **state, TRITONBACKEND_Request *request, const char *name,
                                           int type, const int64_t *shape, uint32_t rank)
{
    (void)type, (void)shape, (void)rank;
    *state = NULL;
    return proa_triton_error(PROA_TRITON_INVALID_ARG,
                             "unable to add state '%s'. State configuration is missing for model '%s'.", name,
                             proa_served_model_name(request->model->served));
}

TRITONSERVER_Error *TRITONBACKEND_StateBuffer(void *state, void **buffer, uint64_t bytes, int *memory_type,
                                              int64_t *memory_id)
{
    (void)state, (void)bytes, (void)memory_type, (void)memory_id;
    *buffer = NULL;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "there is no state");
}

TRITONSERVER_Error *TRITONBACKEND_StateUpdate(void *state)
{
    (void)state;
    return proa_triton_error(PROA_TRITON_INVALID_ARG, "there is no state");
}
