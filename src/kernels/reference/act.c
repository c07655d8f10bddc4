/* SPDX-License-Identifier: Apache-2.0
 * act.c - activations, and what caps, clips or rounds numbers. */
#include "kernels/reference/reference.h"

#include "kernels/reference/view_at.h"
#include <math.h>

float proa_act_reference(proa_act act, float xf)
{
    double x = (double)xf;
    switch (act) {
    case PROA_ACT_RELU:
        return xf < 0.0f ? 0.0f : xf; /* NaN stays NaN */
    /* 1 + erf(z) = erfc(-z) and (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), without their cancellation for z, u < 0 */
    case PROA_ACT_GELU: return (float)(0.5 * x * erfc(-x * 0.70710678118654752440));
    case PROA_ACT_GELU_TANH:
        return (float)(x / (1.0 + exp(-2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))));
    case PROA_ACT_QUICK_GELU: return (float)(x / (1.0 + exp(-1.702 * x)));
    case PROA_ACT_SILU: return (float)(x / (1.0 + exp(-x)));
    case PROA_ACT_TANH: return (float)tanh(x);
    case PROA_ACT_RELU2: return xf < 0.0f ? 0.0f : (float)(x * x);
    case PROA_ACT_NONE:
    case PROA_ACT_COUNT: break;
    }
    return xf;
}

void proa_act_in_place_reference(proa_ctx *c, proa_view x, proa_act act)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) *at_row(x, t, j) = proa_act_reference(act, *at_row(x, t, j));
}

void proa_act_mul_reference(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[1]; j++)
            *at_row(y, t, j) = proa_act_reference(act, *at_row(gate, t, j)) * *at_row(up, t, j);
}

void proa_soft_cap_reference(proa_ctx *c, proa_view x, float cap)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++)
            *at_row(x, t, j) = (float)((double)cap * tanh((double)*at_row(x, t, j) / (double)cap));
}

void proa_clip_reference(proa_ctx *c, proa_view x, float limit)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) {
            float *v = at_row(x, t, j);
            if (*v < -limit) *v = -limit;
            if (*v > limit) *v = limit;
        }
}

static double soft_plus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

void proa_xielu_reference(proa_ctx *c, proa_view x, proa_view a)
{
    PROA_UNUSED(c);
    const float *v = a.data;
    double beta = (double)v[2], eps = (double)v[3], p = soft_plus((double)v[0]),
           n = beta + soft_plus((double)v[1]);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) {
            double u = (double)*at_row(x, t, j), low = u > eps ? eps : u; /* NaN stays */
            *at_row(x, t, j) = (float)(u > 0 ? p * u * u + beta * u : n * (expm1(low) - u) + beta * u);
        }
}

/* Not in double: the formula names each rounding. */
void proa_round_rows_reference(proa_ctx *c, proa_view x, int32_t bits)
{
    PROA_UNUSED(c);
    const float most = (float)((1 << (bits - 1)) - 1);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        float largest = 1e-5f;
        for (int64_t j = 0; j < x.shape[1]; j++) largest = fmaxf(largest, fabsf(*at_row(x, t, j)));
        const float scale = most / largest;
        for (int64_t j = 0; j < x.shape[1]; j++) {
            float code = rintf(*at_row(x, t, j) * scale);
            if (code > most) code = most;
            if (code < -most - 1) code = -most - 1;
            *at_row(x, t, j) = code / scale;
        }
    }
}
