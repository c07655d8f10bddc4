/* SPDX-License-Identifier: Apache-2.0
 * dtype.c - names and sizes of element types; conversions to and from f32. */
#include "tensor/dtype.h"

#include "tensor/fp8.h"

static const struct {
    const char *name, *st;
    int8_t bytes, floating;
} table[PROA_DTYPE_COUNT] = {
#define ROW(name, text, st, bytes, floating, wire, number) [PROA_DTYPE_##name] = {text, st, bytes, floating},
    PROA_DTYPE_LIST(ROW)
#undef ROW
};

int64_t proa_dtype_bytes(proa_dtype dtype)
{
    PROA_ASSERT((unsigned)dtype < PROA_DTYPE_COUNT);
    return table[dtype].bytes;
}

const char *proa_dtype_name(proa_dtype dtype)
{
    return (unsigned)dtype < PROA_DTYPE_COUNT ? table[dtype].name : "unknown";
}

bool proa_dtype_floating(proa_dtype dtype)
{
    return (unsigned)dtype < PROA_DTYPE_COUNT && table[dtype].floating;
}

bool proa_dtype_find(proa_str name, proa_dtype *dtype)
{
    for (int i = 0; i < PROA_DTYPE_COUNT; i++) {
        if (!proa_str_is(name, table[i].name) && !proa_str_is(name, table[i].st)) continue;
        *dtype = (proa_dtype)i;
        return true;
    }
    return false;
}

/* IEEE 754 binary16: sign, 5 bits of exponent (bias 15), 10 of fraction. */
float proa_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1f, fraction = h & 0x3ff;
    if (exponent == 31)
        return proa_bits_f32(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
    if (exponent) return proa_bits_f32(sign | (exponent + 112) << 23 | fraction << 13);
    float tiny = (float)fraction * 0x1p-24f; /* subnormal: exact */
    return sign ? -tiny : tiny;
}

uint16_t proa_f32_to_f16(float f)
{
    uint32_t u = proa_f32_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds to 2^16 or more */
    if (magnitude < 0x38800000u) { /* below 2^-14: the sum with 2^-1 leaves a multiple of 2^-24, rounded to even */
        float shifted = proa_bits_f32(magnitude) + 0.5f;
        return (uint16_t)(sign | (proa_f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static uint16_t load_half(const void *src, int64_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)src + 2 * i, 2);
    return h;
}

static void store_half(void *dst, int64_t i, uint16_t h)
{
    memcpy((char *)dst + 2 * i, &h, 2);
}

static void from_f64(float *dst, const void *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, (const char *)src + 8 * i, 8);
        dst[i] = (float)d;
    }
}

void proa_to_f32(float *dst, const void *src, proa_dtype dtype, int64_t n)
{
    PROA_ASSERT(proa_dtype_floating(dtype));
    if (dtype == PROA_DTYPE_F32) memcpy(dst, src, (size_t)n * 4);
    else if (dtype == PROA_DTYPE_F64) from_f64(dst, src, n);
    else if (dtype == PROA_DTYPE_FP8)
        for (int64_t i = 0; i < n; i++) dst[i] = proa_fp8_to_f32(((const uint8_t *)src)[i]);
    else if (dtype == PROA_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++) dst[i] = proa_bf16_to_f32(load_half(src, i));
    else
        for (int64_t i = 0; i < n; i++) dst[i] = proa_f16_to_f32(load_half(src, i));
}

void proa_from_f32(void *dst, proa_dtype dtype, const float *src, int64_t n)
{
    PROA_ASSERT(proa_dtype_floating(dtype) && dtype != PROA_DTYPE_F64);
    if (dtype == PROA_DTYPE_F32) memcpy(dst, src, (size_t)n * 4);
    else if (dtype == PROA_DTYPE_FP8)
        for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = proa_f32_to_fp8(src[i]);
    else if (dtype == PROA_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++) store_half(dst, i, proa_f32_to_bf16(src[i]));
    else
        for (int64_t i = 0; i < n; i++) store_half(dst, i, proa_f32_to_f16(src[i]));
}
