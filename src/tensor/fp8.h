/* SPDX-License-Identifier: Apache-2.0
 * fp8.h - e4m3: a sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities, largest 448 (OCP 8-bit floating
 * point, 2023). For the host and for CUDA kernels. */
#ifndef PROA_TENSOR_FP8_H
#define PROA_TENSOR_FP8_H

#include "base/compiler.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The nearest, ties to even; beyond 448 the largest; NaN stays NaN. */
static inline PROA_HOST_DEVICE uint8_t proa_f32_to_fp8(float v)
{
    float a = fabsf(v);
    uint8_t sign = v < 0.0f ? 0x80 : 0;
    int e;
    if (a >= 448.0f) return (uint8_t)(sign | 0x7e);
    if (!(a < 448.0f)) return 0x7f;
    frexpf(a, &e);                            /* a in [2^(e-1), 2^e) */
    e = e < -5 ? -5 : e;                      /* below 2^-6 steps stay 2^-9 */
    int steps = (int)rintf(ldexpf(a, 4 - e)); /* of 2^(e-4): 8 to 16, fewer when subnormal */
    if (steps == 16) steps = 8, e++;
    int bits = steps < 8 ? steps : (e + 6) << 3 | (steps - 8);
    return (uint8_t)(sign | (bits > 0x7e ? 0x7e : bits));
}

/* Exponent and mantissa are shifted to their place in an f32, whose bias is 120 more. Integers are selected, so
 * compilers make vector code of it, and no subnormal f32 arises, which would be slow. */
static inline PROA_HOST_DEVICE float proa_fp8_to_f32(uint8_t q)
{
    uint32_t magnitude = q & 0x7fu, bits, nan = 0x7fc00000u;
    float v = (float)(q & 7) * 0x1p-9f; /* below 2^-6 */
    memcpy(&bits, &v, sizeof bits);
    bits = magnitude >= 8 ? (magnitude << 20) + (120u << 23) : bits;
    bits = magnitude == 0x7f ? nan : bits;
    bits |= (uint32_t)(q & 0x80) << 24;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
