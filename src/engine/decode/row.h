/* SPDX-License-Identifier: Apache-2.0
 * row.h - arithmetic over one row of logits, in a fixed order whatever the CPU: its bits do not depend on the level
 *         of the vector unit, so a seed gives the same tokens everywhere. Private to the sampler.
 * Threads: pure functions. */
#ifndef PROA_ENGINE_DECODE_ROW_H
#define PROA_ENGINE_DECODE_ROW_H

#include "tensor/dtype.h"

#include <stdbool.h>

bool proa_row_has_nan(const float *x, int64_t n);
/* Largest of x[n] that is not NaN; -infinity if there is none. */
float proa_row_largest(const float *x, int64_t n);

/* sum of exp(x[i] / temperature - top), where top >= x[i] / temperature for all i; in f64 over 8 lanes. */
double proa_row_sum_exp(const float *x, int64_t n, float temperature, float top);

/* Bits that are ordered like the values. */
static inline uint32_t proa_row_key(float value)
{
    uint32_t bits = proa_f32_bits(value);
    return bits ^ ((uint32_t) - (int32_t)(bits >> 31) | 0x80000000u);
}

/* e^x for x <= 0, to 2 units in the last place; 0 below e^-87, near the smallest normal number. x = k ln 2 + r,
 * |r| <= ln 2 / 2; k comes out of the low bits of a sum with 1.5 * 2^23. Polynomial and two-part ln 2: expf of
 * Moshier's Cephes. */
static inline float proa_row_exp(float x)
{
    float t = x * 1.44269504F + 12582912.0F;
    float k = t - 12582912.0F;
    float r = x - k * 0.693359375F + k * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    float scale = proa_bits_f32((proa_f32_bits(t) - 0x4b400000u + 127u) << 23);
    uint32_t in_range = (uint32_t) - (x >= -87.0F); /* a mask hides what came of others: no branch, so vectors */
    return proa_bits_f32(proa_f32_bits(p * scale) & in_range);
}

#endif
