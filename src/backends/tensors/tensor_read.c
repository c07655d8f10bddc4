/* SPDX-License-Identifier: Apache-2.0
 * tensor_read.c - numbers, texts and token ids from a request's tensors. */
#include "backends/tensors/tensor_read.h"

#include "base/limits.h"
#include "tensor/dtype.h"
#include <math.h>
#include <string.h>

int64_t proa_tensor_count(const proa_tensor *t)
{
    return proa_shape_elements(t->shape, t->rank);
}

#define LOAD(ctype)                                                                                          \
    ctype value;                                                                                             \
    memcpy(&value, t->data + (size_t)i * sizeof value, sizeof value)

static bool has_element(const proa_tensor *t, int64_t i)
{
    int64_t bytes = proa_type_bytes(t->type);
    return bytes > 0 && i >= 0 && i < proa_tensor_count(t) && (size_t)((i + 1) * bytes) <= t->bytes;
}

/* What the older configurations call UINT32 uses 4294967295 where the newer ones say -1. */
static int64_t from_u32(uint32_t value)
{
    return value > INT32_MAX ? (int64_t)value - ((int64_t)1 << 32) : (int64_t)value;
}

bool proa_element_int(const proa_tensor *t, int64_t i, int64_t *out)
{
    if (!has_element(t, i)) return false;
    switch (t->type) {
    case PROA_TYPE_BOOL:
    case PROA_TYPE_UINT8: *out = (unsigned char)t->data[i]; return true;
    case PROA_TYPE_INT8: *out = (int64_t)((unsigned char)t->data[i] ^ 0x80u) - 0x80; return true;
    case PROA_TYPE_UINT16: {
        LOAD(uint16_t);
        *out = value;
        return true;
    }
    case PROA_TYPE_INT16: {
        LOAD(int16_t);
        *out = value;
        return true;
    }
    case PROA_TYPE_UINT32: {
        LOAD(uint32_t);
        *out = from_u32(value);
        return true;
    }
    case PROA_TYPE_INT32: {
        LOAD(int32_t);
        *out = value;
        return true;
    }
    case PROA_TYPE_UINT64:
    case PROA_TYPE_INT64: {
        LOAD(int64_t);
        *out = value;
        return true;
    }
    default: return false;
    }
}

bool proa_element_double(const proa_tensor *t, int64_t i, double *out)
{
    int64_t whole = 0;
    if (!has_element(t, i)) return false;
    switch (t->type) {
    case PROA_TYPE_FP16: {
        LOAD(uint16_t);
        *out = (double)proa_f16_to_f32(value);
        return true;
    }
    case PROA_TYPE_BF16: {
        LOAD(uint16_t);
        *out = (double)proa_bf16_to_f32(value);
        return true;
    }
    case PROA_TYPE_FP32: {
        LOAD(float);
        *out = (double)value;
        return true;
    }
    case PROA_TYPE_FP64: {
        LOAD(double);
        *out = value;
        return true;
    }
    case PROA_TYPE_UINT64: {
        LOAD(uint64_t);
        *out = (double)value;
        return true;
    }
    default: break;
    }
    if (!proa_element_int(t, i, &whole)) return false;
    *out = (double)whole;
    return true;
}

bool proa_input_int(const proa_infer *r, const char *name, int64_t row, int64_t *out)
{
    const proa_tensor *t = proa_infer_input(r, name);
    return t && proa_element_int(t, proa_tensor_count(t) == 1 ? 0 : row, out);
}

bool proa_input_bool(const proa_infer *r, const char *name, int64_t row, bool *out)
{
    int64_t value = 0;
    if (!proa_input_int(r, name, row, &value)) return false;
    *out = value != 0;
    return true;
}

proa_str proa_input_text(const proa_infer *r, const char *name)
{
    const proa_tensor *t = proa_infer_input(r, name);
    proa_str text = {NULL, 0};
    size_t at = 0;
    if (!t || t->type != PROA_TYPE_BYTES || !proa_tensor_next_string(t, &at, &text))
        return (proa_str){NULL, 0};
    if (!text.len) text.ptr = "";
    return text;
}

proa_status proa_input_ids(proa_tensor_row in, proa_arena *arena, const int32_t **ids, int64_t *count,
                           proa_err *err)
{
    const proa_tensor *t = in.t;
    int64_t each = in.rows > 0 ? proa_tensor_count(t) / in.rows : 0, id = 0;
    if (each > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT, "input '%s' has %lld ids, at most %d are taken", t->name,
                         (long long)each, PROA_CONTEXT_MAX);
    int32_t *to = each > 0 ? PROA_ARENA_NEW(arena, int32_t, each) : NULL;
    for (int64_t i = 0; i < each; i++) {
        if (!proa_element_int(t, in.row * each + i, &id))
            return PROA_FAIL(err, INVALID, "input '%s' must be made of integers", t->name);
        if (id < INT32_MIN || id > INT32_MAX)
            return PROA_FAIL(err, INVALID, "input '%s' has the token id %lld", t->name, (long long)id);
        to[i] = (int32_t)id;
    }
    *ids = to;
    *count = each;
    return PROA_OK;
}

static bool float_type(proa_type type, proa_dtype *dtype)
{
    *dtype = type == PROA_TYPE_FP16   ? PROA_DTYPE_F16
             : type == PROA_TYPE_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F32;
    return type == PROA_TYPE_FP16 || type == PROA_TYPE_BF16 || type == PROA_TYPE_FP32;
}

proa_status proa_input_vectors(proa_tensor_row in, int64_t width, proa_arena *arena, const float **values,
                               int64_t *count, proa_err *err)
{
    const proa_tensor *t = in.t;
    proa_dtype dtype;
    int64_t all = proa_tensor_count(t), each = in.rows > 0 ? all / in.rows : 0;
    if (!float_type(t->type, &dtype))
        return PROA_FAIL(err, UNSUPPORTED, "input '%s' must be FP32, FP16 or BF16", t->name);
    if (t->rank < 2 || width < 1 || t->shape[t->rank - 1] != width || each * in.rows != all || each % width != 0)
        return PROA_FAIL(err, INVALID, "input '%s' has vectors of %lld, the model's have %lld", t->name,
                         (long long)(t->rank ? t->shape[t->rank - 1] : 0), (long long)width);
    if (t->bytes < (size_t)(all * proa_dtype_bytes(dtype)))
        return PROA_FAIL(err, INVALID, "input '%s' has %zu bytes, too few for its shape", t->name, t->bytes);
    float *to = PROA_ARENA_NEW(arena, float, each);
    proa_to_f32(to, t->data + (size_t)(in.row * each * proa_dtype_bytes(dtype)), dtype, each);
    *values = to;
    *count = each / width;
    return PROA_OK;
}

static bool holds_anything(const proa_tensor *t)
{
    int64_t n = proa_tensor_count(t);
    size_t at = 0;
    proa_str text;
    if (t->type != PROA_TYPE_BYTES) return n > 0;
    while (proa_tensor_next_string(t, &at, &text))
        if (text.len) return true;
    return false;
}

proa_status proa_refuse_inputs(const proa_infer *r, const char *const *names, proa_err *err)
{
    for (; *names; names++) {
        const proa_tensor *t = proa_infer_input(r, *names);
        if (t && holds_anything(t))
            return PROA_FAIL(err, UNSUPPORTED, "input '%s' is not supported by this engine", *names);
    }
    return PROA_OK;
}
