/* SPDX-License-Identifier: Apache-2.0
 * dtype.h - element types, and conversions between the floating ones. */
#ifndef PROA_TENSOR_DTYPE_H
#define PROA_TENSOR_DTYPE_H

#include "base/str.h"
#include <string.h>

/* The list of element types, for the engine and for the protocols. Columns: enum; our name; safetensors' name; bytes
 * of an element (0: it varies); 1 if it is floating; KServe v2's name, which is also that of Triton's TYPE_ constant;
 * the number of that constant in model_config.proto.
 * COMMON: the engine reads it and protocols carry it. ENGINE_ONLY: no protocol names it. WIRE_ONLY: tensors of requests
 * may have it, but no checkpoint is read and no kernel computes with it. */
/* clang-format off */
#define PROA_DTYPE_COMMON_LIST(X)                      \
    X(F32,  "f32",  "F32",     4, 1, FP32,   11)       \
    X(F16,  "f16",  "F16",     2, 1, FP16,   10)       \
    X(BF16, "bf16", "BF16",    2, 1, BF16,   14)       \
    X(F64,  "f64",  "F64",     8, 1, FP64,   12)       \
    X(I8,   "i8",   "I8",      1, 0, INT8,    6)       \
    X(U8,   "u8",   "U8",      1, 0, UINT8,   2)       \
    X(I16,  "i16",  "I16",     2, 0, INT16,   7)       \
    X(I32,  "i32",  "I32",     4, 0, INT32,   8)       \
    X(I64,  "i64",  "I64",     8, 0, INT64,   9)       \
    X(BOOL, "bool", "BOOL",    1, 0, BOOL,    1)
#define PROA_DTYPE_ENGINE_ONLY_LIST(X)                 \
    X(FP8,  "fp8",  "F8_E4M3", 1, 1, NONE,    0)
#define PROA_DTYPE_WIRE_ONLY_LIST(X)                   \
    X(U16,  "u16",  "U16",     2, 0, UINT16,  3)       \
    X(U32,  "u32",  "U32",     4, 0, UINT32,  4)       \
    X(U64,  "u64",  "U64",     8, 0, UINT64,  5)       \
    X(BYTES, "bytes", "",      0, 0, BYTES,  13)
/* clang-format on */

/* What the engine computes with; the enum proa_type of serve/tensor.h is made of COMMON and WIRE_ONLY. */
#define PROA_DTYPE_LIST(X) PROA_DTYPE_COMMON_LIST(X) PROA_DTYPE_ENGINE_ONLY_LIST(X)

typedef enum proa_dtype {
#define PROA_DTYPE_ENUM(name, text, st, bytes, floating, wire, number) PROA_DTYPE_##name,
    PROA_DTYPE_LIST(PROA_DTYPE_ENUM)
#undef PROA_DTYPE_ENUM
        PROA_DTYPE_COUNT
} proa_dtype;

int64_t proa_dtype_bytes(proa_dtype dtype); /* of one element */
const char *proa_dtype_name(proa_dtype dtype);
bool proa_dtype_floating(proa_dtype dtype);
/* By our name ("bf16") or safetensors' ("BF16"); false if it is neither. */
bool proa_dtype_find(proa_str name, proa_dtype *dtype);

static inline float proa_bits_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t proa_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* bf16: the upper half of an f32. Exact one way; the other rounds to nearest, ties to even; NaN stays NaN. */
static inline float proa_bf16_to_f32(uint16_t h)
{
    return proa_bits_f32((uint32_t)h << 16);
}

static inline uint16_t proa_f32_to_bf16(float f)
{
    uint32_t u = proa_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float proa_f16_to_f32(uint16_t h);
uint16_t proa_f32_to_f16(float f); /* to nearest, ties to even; overflow gives infinity */

/* n elements of any floating dtype to f32 and back. src and dst may be unaligned; they do not overlap. */
void proa_to_f32(float *dst, const void *src, proa_dtype dtype, int64_t n);
void proa_from_f32(void *dst, proa_dtype dtype, const float *src, int64_t n);

#endif
