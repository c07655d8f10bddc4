/* SPDX-License-Identifier: Apache-2.0
 * v2_raw.c - inference requests whose body is one tensor and nothing else (raw binary request). */
#include "api/http/v2.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "proto/model_config.pb-c.h"
#include <string.h>

static const char *request_label(const proa_infer *r)
{
    return r->id[0] ? r->id : "<id_unknown>";
}

/* Shape by the configuration: a batch of one, and of the dimensions at most one that the number of bytes gives: *open
 * is its index, -1 without one; *known the elements of all others. */
static proa_status plan_shape(proa_tensor *t, const Inference__ModelConfig *config, int64_t *known, int *open,
                              const proa_infer *r, proa_err *err)
{
    const Inference__ModelInput *in = config->input[0];
    *open = -1;
    *known = 1;
    if (config->max_batch_size > 0) t->shape[t->rank++] = 1;
    for (size_t d = 0; d < in->n_dims; d++) {
        if (t->rank == (int32_t)PROA_COUNT(t->shape)) return PROA_FAIL(err, LIMIT, "too many dimensions");
        if (in->dims[d] >= 0) {
            if (!proa_mul(*known, in->dims[d], known)) return PROA_FAIL(err, LIMIT, "too many elements");
        } else {
            if (*open >= 0)
                return PROA_FAIL(
                    err, INVALID,
                    "[request id: %s] The shape of the raw input '%s' can not be deduced because there are "
                    "more than one variable-sized dimension",
                    request_label(r), in->name);
            *open = t->rank;
        }
        t->shape[t->rank++] = in->dims[d];
    }
    return PROA_OK;
}

static void give_bytes(proa_tensor *t, proa_buffer *body, proa_str bytes)
{
    if (!bytes.len) return;
    t->buffer = proa_buffer_hold(body);
    t->data = bytes.ptr;
    t->bytes = bytes.len;
}

/* One string: its length has to stand before it, which the body does not have. */
static proa_status give_string(proa_tensor *t, proa_str bytes, proa_err *err)
{
    uint32_t len = (uint32_t)bytes.len;
    t->bytes = sizeof len + bytes.len;
    PROA_TRY(proa_buffer_try(&t->buffer, t->bytes, err));
    memcpy(t->buffer->data, &len, sizeof len);
    if (bytes.len) memcpy(t->buffer->data + sizeof len, bytes.ptr, bytes.len);
    t->data = t->buffer->data;
    return PROA_OK;
}

/* The body as the model's only input, whose name, type and shape are the configuration's. Texts are Triton's. */
static proa_status fill_input(proa_infer *r, const Inference__ModelConfig *config, proa_buffer *body,
                              proa_str bytes, proa_err *err)
{
    int64_t known;
    int open;
    if (config->n_input != 1)
        return PROA_FAIL(err, INVALID,
                         "[request id: %s] Raw request must only have 1 input (found 1) to be deduced but "
                         "got %zu inputs in '%s' model configuration",
                         request_label(r), config->n_input, r->model_name);
    const Inference__ModelInput *in = config->input[0];
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(in->name));
    t->type = (proa_type)in->data_type;
    PROA_TRY(plan_shape(t, config, &known, &open, r, err));
    if (t->type == PROA_TYPE_BYTES) {
        if (open >= 0 || known != 1)
            return PROA_FAIL(
                err, INVALID,
                "[request id: %s] For BYTE datatype raw input '%s', the model must have input shape [1]",
                request_label(r), in->name);
        return give_string(t, bytes, err);
    }
    give_bytes(t, body, bytes);
    int64_t size;
    if (!proa_mul(known, proa_type_bytes(t->type), &size))
        return PROA_FAIL(err, INVALID, "byte size for tensor '%s' exceeds maximum size of %lld", in->name,
                         (long long)INT64_MAX);
    if (open >= 0) t->shape[open] = size > 0 ? (int64_t)bytes.len / size : 0;
    return PROA_OK;
}

proa_status proa_v2_raw_input(proa_infer *r, proa_buffer *body, proa_str bytes, proa_err *err)
{
    return fill_input(r, proa_served_model_config(r->model), body, bytes, err);
}
