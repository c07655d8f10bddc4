/* SPDX-License-Identifier: Apache-2.0
 * quant.h - the one definition of int8, e4m3 and int4 rounding (weight.h), shared by all tables and by CUDA kernels.
 * Method:  symmetric, one scale a row (int4: a group), without outliers (int8: as in Dettmers et al. 2022). */
#ifndef PROA_KERNELS_QUANT_H
#define PROA_KERNELS_QUANT_H

#include "tensor/fp8.h"
#include <math.h>
#include <stdint.h>

/* Scale of a row whose largest magnitude is `largest`; `finite` is false if the row holds NaN or infinity: its
 * scale is NaN then, and so is all that is made of it. */
static inline PROA_HOST_DEVICE float proa_i8_scale(float largest, int finite)
{
    return finite ? largest / 127.0f : NAN;
}

/* To nearest, ties to even. A scale of 0 or NaN gives 0. */
static inline PROA_HOST_DEVICE int8_t proa_i8_round(float v, float scale)
{
    if (!(scale > 0.0f)) return 0;
    float q = rintf(v / scale);
    return (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
}

/* Largest magnitude of a row with a stride; *finite as above. */
static inline float proa_i8_largest(const float *v, int64_t n, int64_t stride, int *finite)
{
    float largest = 0.0f;
    *finite = 1;
    for (int64_t i = 0; i < n; i++) {
        float a = fabsf(v[i * stride]);
        if (!(a < INFINITY)) *finite = 0;
        else if (a > largest) largest = a;
    }
    return largest;
}

/* Scale of a row in e4m3, whose largest number is 448. */
static inline PROA_HOST_DEVICE float proa_fp8_scale(float largest, int finite)
{
    return finite ? largest / 448.0f : NAN;
}

static inline PROA_HOST_DEVICE uint8_t proa_fp8_round(float v, float scale)
{
    return scale > 0.0f ? proa_f32_to_fp8(v / scale) : 0;
}

/* int4: the scale of a group, before it is rounded to f16; extreme: the group's number of the largest magnitude. */
static inline PROA_HOST_DEVICE float proa_i4_scale(float extreme, int finite)
{
    float s = extreme / -8.0f;
    s = s > 65504.0f ? 65504.0f : s < -65504.0f ? -65504.0f : s;
    return finite ? s : NAN;
}

/* -8..7 */
static inline PROA_HOST_DEVICE int proa_i4_round(float v, float scale)
{
    if (!(fabsf(scale) > 0.0f)) return 0;
    float q = rintf(v / scale);
    return (int)(q > 7.0f ? 7.0f : q < -8.0f ? -8.0f : q);
}

#endif
