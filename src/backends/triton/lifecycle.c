/* SPDX-License-Identifier: Apache-2.0
 * lifecycle.c - the life of a request of a library: references to it, and the delivery of its replies. */
#include "backends/triton/abi.h"

#include "backends/common.h"
#include "base/alloc.h"

/* ---- delivery ---- */

void proa_triton_flush(TRITONBACKEND_Request *request)
{
    proa_reply *reply = atomic_exchange(&request->last, NULL);
    if (reply) proa_infer_reply(request->infer, reply, true);
}

bool proa_triton_reply(TRITONBACKEND_Request *request, proa_reply *reply, bool final)
{
    final = final || !request->model->decoupled;
    if (reply) proa_backend_check_outputs(reply);
    if (final ? atomic_exchange(&request->ended, true) : atomic_load(&request->ended)) {
        proa_reply_free(reply);
        return false;
    }
    if (final && !request->model->decoupled && reply) atomic_store(&request->last, reply);
    else if (reply || final) proa_infer_reply(request->infer, reply, final);
    return true;
}

/* ---- references ---- */

TRITONBACKEND_Request *proa_triton_request_new(TRITONBACKEND_Model *model, proa_infer *infer)
{
    TRITONBACKEND_Request *r = proa_calloc(1, sizeof *r + (size_t)infer->inputs_count * sizeof r->inputs[0]);
    r->model = model;
    r->infer = proa_infer_hold(infer);
    for (int32_t k = 0; k < infer->inputs_count; k++) {
        r->inputs[k].tensor = &infer->inputs[k];
        r->inputs[k].attributes.bytes = infer->inputs[k].bytes;
        proa_triton_locate(&infer->inputs[k], &r->inputs[k].attributes.memory_type,
                           &r->inputs[k].attributes.memory_id);
    }
    atomic_init(&r->refs, 1);
    return r;
}

TRITONBACKEND_Request *proa_triton_request_hold(TRITONBACKEND_Request *request)
{
    atomic_fetch_add(&request->refs, 1);
    return request;
}

void proa_triton_request_drop(TRITONBACKEND_Request *request)
{
    if (atomic_fetch_sub(&request->refs, 1) > 1) return;
    if (!atomic_load(&request->ended)) {
        proa_reply *reply = proa_reply_new(request->infer);
        (void)PROA_FAIL(&reply->error, INTERNAL, "backend '%s' released the request without a final response",
                        request->model->backend->library->name);
        proa_triton_reply(request, reply, true);
    }
    proa_triton_flush(request);
    proa_infer_drop(request->infer);
    free(request);
}

TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *request, uint32_t flags)
{
    if (flags & PROA_TRITON_RELEASE_RESCHEDULE)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "requests of libraries cannot be rescheduled");
    proa_triton_flush(request);
    proa_triton_request_drop(request);
    return NULL;
}
