/* SPDX-License-Identifier: Apache-2.0
 * tensor_write.c - output tensors of a reply, made only if they were requested. */
#include "backends/llm/tensor_write.h"

#include "tensor/dtype.h"
#include <string.h>

static void *add_array(const proa_llm_request *req, proa_reply *reply, const proa_output_spec *spec)
{
    void *data = NULL;
    if (!proa_infer_wants(req->infer, spec->name)) return NULL;
    proa_reply_add_array(reply, spec->name, spec->type, spec->shape, spec->rank, &data);
    return data; /* NULL too where there are no elements */
}

int32_t *proa_reply_ints(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, int32_t fill)
{
    int32_t *data = add_array(req, reply, &(proa_output_spec){name, PROA_TYPE_INT32, shape, rank});
    int64_t n = data ? proa_shape_elements(shape, rank) : 0;
    for (int64_t i = 0; i < n; i++) data[i] = fill;
    return data;
}

float *proa_reply_floats(const proa_llm_request *req, proa_reply *reply, const char *name,
                         const int64_t *shape, int32_t rank, float fill)
{
    float *data = add_array(req, reply, &(proa_output_spec){name, PROA_TYPE_FP32, shape, rank});
    int64_t n = data ? proa_shape_elements(shape, rank) : 0;
    for (int64_t i = 0; i < n; i++) data[i] = fill;
    return data;
}

proa_tensor *proa_reply_texts(const proa_llm_request *req, proa_reply *reply, const char *name,
                              const proa_str *texts, int64_t count)
{
    return proa_infer_wants(req->infer, name) ? proa_reply_add_strings(reply, name, texts, count) : NULL;
}

void proa_reply_typed_ints(const proa_llm_request *req, proa_reply *reply, const proa_output_spec *spec,
                           const int32_t *from)
{
    char *to = add_array(req, reply, spec);
    int64_t n = to ? proa_shape_elements(spec->shape, spec->rank) : 0, size = proa_type_bytes(spec->type);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = from[i]; /* little-endian: the low bytes come first */
        memcpy(to + i * size, &value, (size_t)size);
    }
}

void proa_reply_typed_floats(const proa_llm_request *req, proa_reply *reply, const proa_output_spec *spec,
                             const float *from)
{
    proa_dtype dtype = spec->type == PROA_TYPE_FP16   ? PROA_DTYPE_F16
                       : spec->type == PROA_TYPE_BF16 ? PROA_DTYPE_BF16
                                                      : PROA_DTYPE_F32;
    proa_output_spec wire = *spec;
    if (dtype == PROA_DTYPE_F32) wire.type = PROA_TYPE_FP32;
    void *to = add_array(req, reply, &wire);
    if (to) proa_from_f32(to, dtype, from, proa_shape_elements(spec->shape, spec->rank));
}
