/* SPDX-License-Identifier: Apache-2.0
 * elements.h - arithmetic on the elements of tensors, as the data ops map_elements and softmax_elements compute it. It
 *              is compiled for their reference (reference/elements.c) and for CUDA (elements.cu), so that both give the
 *              bits of the backend `transform` on the CPU: elements become doubles, each operation is rounded once, and
 *              the result is rounded to its type.
 * Shapes:  tensors are flat; data is aligned to its elements. Threads: pure functions. */
#ifndef PROA_KERNELS_ELEMENTS_H
#define PROA_KERNELS_ELEMENTS_H

#include "base/limits.h"
#include "kernels/libm_exp.h"
#include <stdbool.h>

/* Types of elements, with KServe's numbers (serve/tensor.h). */
typedef enum proa_element_type {
    PROA_ELEMENT_BOOL = 1,
    PROA_ELEMENT_U8 = 2,
    PROA_ELEMENT_U16 = 3,
    PROA_ELEMENT_U32 = 4,
    PROA_ELEMENT_U64 = 5,
    PROA_ELEMENT_I8 = 6,
    PROA_ELEMENT_I16 = 7,
    PROA_ELEMENT_I32 = 8,
    PROA_ELEMENT_I64 = 9,
    PROA_ELEMENT_F16 = 10,
    PROA_ELEMENT_F32 = 11,
    PROA_ELEMENT_F64 = 12,
    PROA_ELEMENT_BF16 = 14
} proa_element_type;

typedef enum proa_element_op {
    PROA_MAP_AVERAGE, /* the sum of weights[k] * x_k */
    PROA_MAP_SUM,
    PROA_MAP_PRODUCT,
    PROA_MAP_LINEAR,  /* scale * x + offset */
    PROA_MAP_CLIP,    /* into [low, high] */
    PROA_MAP_SIGMOID, /* 1 / (1 + exp(-x)) */
    PROA_MAP_CAST     /* integers that are out of range are clamped, NaN is 0 */
} proa_element_op;

typedef struct proa_elements {
    proa_element_op op;
    int32_t args; /* more than 1 for the first three */
    const void *data[PROA_TRANSFORM_ARGS_MAX];
    uint8_t type[PROA_TRANSFORM_ARGS_MAX]; /* proa_element_type */
    double weights[PROA_TRANSFORM_ARGS_MAX];
    double scale, offset, low, high;
    void *out;
    uint8_t out_type;
    int64_t count;
} proa_elements;

/* ---- 16 bits ---- */

static inline PROA_DEVICE_CODE float proa_element_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline PROA_DEVICE_CODE uint32_t proa_element_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* The formulas of tensor/dtype.c. */
static inline PROA_DEVICE_CODE float proa_element_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    if (exponent == 31)
        return proa_element_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return proa_element_float(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
}

static inline PROA_DEVICE_CODE uint16_t proa_element_to_f16(float f)
{
    uint32_t u = proa_element_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (proa_element_bits(proa_element_float(magnitude) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13);
}

static inline PROA_DEVICE_CODE uint16_t proa_element_to_bf16(float f)
{
    uint32_t u = proa_element_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

/* ---- elements as doubles, and back ---- */

static inline PROA_DEVICE_CODE double proa_element_load(const void *data, uint8_t type, int64_t i)
{
    switch (type) {
    case PROA_ELEMENT_BOOL:
    case PROA_ELEMENT_U8: return (double)((const uint8_t *)data)[i];
    case PROA_ELEMENT_U16: return (double)((const uint16_t *)data)[i];
    case PROA_ELEMENT_U32: return (double)((const uint32_t *)data)[i];
    case PROA_ELEMENT_U64: return (double)((const uint64_t *)data)[i];
    case PROA_ELEMENT_I8: return (double)((const int8_t *)data)[i];
    case PROA_ELEMENT_I16: return (double)((const int16_t *)data)[i];
    case PROA_ELEMENT_I32: return (double)((const int32_t *)data)[i];
    case PROA_ELEMENT_I64: return (double)((const int64_t *)data)[i];
    case PROA_ELEMENT_F32: return (double)((const float *)data)[i];
    case PROA_ELEMENT_F64: return ((const double *)data)[i];
    case PROA_ELEMENT_F16: return (double)proa_element_of_f16(((const uint16_t *)data)[i]);
    default: return (double)proa_element_float((uint32_t)((const uint16_t *)data)[i] << 16);
    }
}

/* least, above: the type's limits as doubles; max: its largest number. */
#define PROA_ELEMENT_CLAMP(c_type, least, above, max)                                                        \
    ((c_type *)data)[i] = !(d > (double)(least)) ? (d != d ? (c_type)0 : (c_type)(least))                    \
                          : !(d < (above))       ? (c_type)(max)                                             \
                                                 : (c_type)d;                                                      \
    break

static inline PROA_DEVICE_CODE void proa_element_store(void *data, uint8_t type, int64_t i, double d)
{
    switch (type) {
    case PROA_ELEMENT_BOOL: ((uint8_t *)data)[i] = d != 0; break;
    case PROA_ELEMENT_U8: PROA_ELEMENT_CLAMP(uint8_t, 0, 0x1p8, UINT8_MAX);
    case PROA_ELEMENT_U16: PROA_ELEMENT_CLAMP(uint16_t, 0, 0x1p16, UINT16_MAX);
    case PROA_ELEMENT_U32: PROA_ELEMENT_CLAMP(uint32_t, 0, 0x1p32, UINT32_MAX);
    case PROA_ELEMENT_U64: PROA_ELEMENT_CLAMP(uint64_t, 0, 0x1p64, UINT64_MAX);
    case PROA_ELEMENT_I8: PROA_ELEMENT_CLAMP(int8_t, INT8_MIN, 0x1p7, INT8_MAX);
    case PROA_ELEMENT_I16: PROA_ELEMENT_CLAMP(int16_t, INT16_MIN, 0x1p15, INT16_MAX);
    case PROA_ELEMENT_I32: PROA_ELEMENT_CLAMP(int32_t, INT32_MIN, 0x1p31, INT32_MAX);
    case PROA_ELEMENT_I64: PROA_ELEMENT_CLAMP(int64_t, INT64_MIN, 0x1p63, INT64_MAX);
    case PROA_ELEMENT_F32: ((float *)data)[i] = (float)d; break;
    case PROA_ELEMENT_F64: ((double *)data)[i] = d; break;
    case PROA_ELEMENT_F16: ((uint16_t *)data)[i] = proa_element_to_f16((float)d); break;
    default: ((uint16_t *)data)[i] = proa_element_to_bf16((float)d); break;
    }
}

/* ---- one element ---- */

/* 64-bit integers are cast without doubles, which would lose the low bits. */
static inline PROA_DEVICE_CODE bool proa_element_cast_wide(const proa_elements *e, int64_t i)
{
    bool from_signed = e->type[0] == PROA_ELEMENT_I64, to_signed = e->out_type == PROA_ELEMENT_I64;
    if (e->op != PROA_MAP_CAST || !(from_signed || e->type[0] == PROA_ELEMENT_U64)) return false;
    if (!(to_signed || e->out_type == PROA_ELEMENT_U64)) return false;
    uint64_t x = ((const uint64_t *)e->data[0])[i];
    if (from_signed && !to_signed && (int64_t)x < 0) x = 0;
    if (!from_signed && to_signed && x > INT64_MAX) x = INT64_MAX;
    ((uint64_t *)e->out)[i] = x;
    return true;
}

static inline PROA_DEVICE_CODE double proa_element_first(const proa_elements *e, double y)
{
    switch (e->op) {
    case PROA_MAP_AVERAGE: return e->weights[0] * y + 0;
    case PROA_MAP_LINEAR: return e->scale * y + e->offset;
    case PROA_MAP_CLIP: return y < e->low ? e->low : y > e->high ? e->high : y;
    case PROA_MAP_SIGMOID: return 1 / (1 + proa_exp(-y));
    default: return y;
    }
}

static inline PROA_DEVICE_CODE void proa_element_map(const proa_elements *e, int64_t i)
{
    if (proa_element_cast_wide(e, i)) return;
    double x = proa_element_first(e, proa_element_load(e->data[0], e->type[0], i));
    for (int32_t k = 1; k < e->args; k++) {
        double y = proa_element_load(e->data[k], e->type[k], i);
        x = e->op == PROA_MAP_AVERAGE ? e->weights[k] * y + x : e->op == PROA_MAP_SUM ? x + y : x * y;
    }
    proa_element_store(e->out, e->out_type, i, x);
}

/* Row `row` of [rows][width]: exp(x - largest) / sum, the sum in the order of the row. */
static inline PROA_DEVICE_CODE void proa_element_softmax(const proa_elements *e, int64_t row, int64_t width)
{
    double most = -(double)INFINITY, sum = 0;
    for (int64_t i = row * width; i < (row + 1) * width; i++) {
        double x = proa_element_load(e->data[0], e->type[0], i);
        most = x > most ? x : most;
    }
    for (int64_t i = row * width; i < (row + 1) * width; i++)
        sum += proa_exp(proa_element_load(e->data[0], e->type[0], i) - most);
    for (int64_t i = row * width; i < (row + 1) * width; i++)
        proa_element_store(e->out, e->out_type, i,
                           proa_exp(proa_element_load(e->data[0], e->type[0], i) - most) / sum);
}

#endif
