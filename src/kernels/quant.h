/* SPDX-License-Identifier: Apache-2.0
 * quant.h - the one definition of int8 rounding (weight.h), shared so that all tables agree bit for bit.
 * Method:  symmetric, one scale a row, 127 steps on each side (as in Dettmers et al. 2022, without outliers). */
#ifndef PROA_KERNELS_QUANT_H
#define PROA_KERNELS_QUANT_H

#include <math.h>
#include <stdint.h>

/* Scale of a row whose largest magnitude is `largest`; `finite` is false if the row holds NaN or infinity: its
 * scale is NaN then, and so is all that is made of it. */
static inline float proa_i8_scale(float largest, int finite)
{
    return finite ? largest / 127.0f : NAN;
}

/* To nearest, ties to even. A scale of 0 or NaN gives 0. */
static inline int8_t proa_i8_round(float v, float scale)
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

#endif
