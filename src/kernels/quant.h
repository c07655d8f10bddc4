/* SPDX-License-Identifier: Apache-2.0
 * quant.h - the one definition of int8, e4m3 and int4 rounding (weight.h), shared by all tables and by CUDA kernels.
 * Method:  symmetric, one scale a row (int4: a group), without outliers (int8: as in Dettmers et al. 2022). */
#ifndef PROA_KERNELS_QUANT_H
#define PROA_KERNELS_QUANT_H

#include "tensor/fp8.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* To the finite numbers of f16. NaN stays. */
static inline PROA_HOST_DEVICE float proa_clamp_f16(float v)
{
    return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
}

/* The smallest and the largest of n numbers (0 of none); false if one of them is not finite. */
static inline bool proa_find_range(const float *v, int64_t n, float *least, float *most)
{
    *least = *most = n ? v[0] : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(v[i]) < INFINITY)) return false;
        if (v[i] < *least) *least = v[i];
        if (v[i] > *most) *most = v[i];
    }
    return true;
}

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

/* ---- int4: the step of a group by least squared error ----
 * Let e be the group's number of the largest magnitude. With x = rint(v * (-4096 / e)), a whole number, e becomes
 * x = -4096 and a scale becomes a step s in the same units: 512 gives e the code -8, smaller steps clip e, larger
 * ones leave the code -8 unused. Tried are the PROA_I4_STEPS steps of proa_i4_step, and taken is the first with the
 * least sum of (x - q s)^2, q the clamped code of x. The sums are whole numbers, so hosts and devices agree in any
 * order. The idea is that of llama.cpp's make_qx_quants; candidates and arithmetic are our own. */
#define PROA_I4_STEPS 16
#define PROA_I4_UNIT  4096.0f /* magnitude of e in x */

/* Step number i, in [0, PROA_I4_STEPS): from 352 to 592. */
static inline PROA_HOST_DEVICE int proa_i4_step(int i)
{
    return 352 + 16 * i;
}

/* What v is multiplied by to get x. 0 of numbers too small for the scale of f16 anyway. */
static inline PROA_HOST_DEVICE float proa_i4_unit_scale(float extreme)
{
    return fabsf(extreme) > 0x1p-100f ? -PROA_I4_UNIT / extreme : 0.0f;
}

/* (x - q s)^2 for the step s, and inverse = 2^22 / s; |x| <= 4096. A sum of 800 numbers fits 31 bits. */
static inline PROA_HOST_DEVICE int32_t proa_i4_error(int16_t x, int16_t step, int16_t inverse)
{
    int16_t q = (int16_t)((int32_t)x * inverse >> 16); /* 64 times the code */
    q = (int16_t)((int16_t)(q + 32) >> 6);
    q = q > 7 ? 7 : q < -8 ? -8 : q;
    int16_t d = (int16_t)(x - q * step);
    return (int32_t)d * d;
}

/* The scale of a step, before it is rounded to f16. */
static inline PROA_HOST_DEVICE float proa_i4_scale(float extreme, int step, int finite)
{
    float s = proa_clamp_f16(extreme * ((float)step / -PROA_I4_UNIT));
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
