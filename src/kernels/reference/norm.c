/* SPDX-License-Identifier: Apache-2.0
 * norm.c - rms_norm, whole or by the parts of groups, and layer_norm: sums in double, rounded once. */
#include "kernels/reference/reference.h"

#include "base/checked.h"
#include "kernels/reference/view_at.h"
#include <math.h>

static void rms_norm_row(float *y, const float *x, const float *w, int64_t d, float eps)
{
    double squares = 0;
    for (int64_t j = 0; j < d; j++) squares += (double)x[j] * (double)x[j];
    float mean = (float)(squares / (double)d); /* infinity where an f32 model has it too */
    double inverse = 1.0 / sqrt((double)mean + (double)eps);
    for (int64_t j = 0; j < d; j++) y[j] = (float)((double)x[j] * inverse * (double)w[j]);
}

void proa_rms_norm_reference(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    PROA_UNUSED(c);
    y = as_heads(y), x = as_heads(x);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            rms_norm_row(at_plane(y, t, h, 0), at_plane(x, t, h, 0), proa_norm_weights(w, h), x.shape[2], eps);
}

void proa_group_squares_reference(proa_ctx *c, proa_view m, proa_view x, int64_t first, int64_t width)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t g = 0; g < m.shape[1]; g++) {
            double squares = 0;
            int64_t begin = proa_max64(g * width - first, 0),
                    end = proa_min64((g + 1) * width - first, x.shape[1]);
            for (int64_t j = begin; j < end; j++)
                squares += (double)*at_row(x, t, j) * (double)*at_row(x, t, j);
            *at_row(m, t, g) = (float)(squares / (double)width);
        }
}

void proa_group_scale_reference(proa_ctx *c, proa_view x, proa_view m, proa_view w, int64_t first,
                                int64_t width, float eps)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) {
            double mean = (double)*at_row(m, t, (first + j) / width);
            float *at = at_row(x, t, j);
            *at = (float)((double)*at / sqrt(mean + (double)eps) * (double)proa_view_f32(w)[j]);
        }
}

static void layer_norm_row(float *y, const float *x, const float *w, const float *b, int64_t d, float eps)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)x[j];
    double mean = sum / (double)d;
    for (int64_t j = 0; j < d; j++) squares += ((double)x[j] - mean) * ((double)x[j] - mean);
    float variance = (float)(squares / (double)d);
    double inverse = 1.0 / sqrt((double)variance + (double)eps);
    for (int64_t j = 0; j < d; j++)
        y[j] = (float)(((double)x[j] - mean) * inverse * (double)w[j] + (b ? (double)b[j] : 0.0));
}

void proa_layer_norm_reference(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    PROA_UNUSED(c);
    y = as_heads(y), x = as_heads(x);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            layer_norm_row(at_plane(y, t, h, 0), at_plane(x, t, h, 0), proa_norm_weights(w, h),
                           proa_norm_weights(b, h), x.shape[2], eps);
}
