/* SPDX-License-Identifier: Apache-2.0
 * smooth.h - scales of input channels that change no product: x_k is divided by scale_k, column k of the matrices that
 *            read it is multiplied by it.
 * Owner:   the caller's buffers. Threads: shared among those of the pool.
 * Way in:  proa_smooth_awq or proa_smooth_activations; then proa_smooth_norm puts the scales into the norm before. */
#ifndef PROA_CONVERT_CALIBRATE_SMOOTH_H
#define PROA_CONVERT_CALIBRATE_SMOOTH_H

#include "base/thread.h"
#include "convert/calibrate/codes.h"

/* What the scales of AWQ are chosen by: rows of the matrices, how they will be rounded, and their inputs X. */
typedef struct proa_smooth_sample {
    proa_codes_kind kind;
    int64_t N, K, group; /* as in proa_codes; K is a multiple of 8 */
    bool asymmetric;
    const float *numbers; /* [N][K] */
    const float *hessian; /* [K][K] X^T X */
    const float *mean;    /* [K] of the magnitudes of X */
} proa_smooth_sample;

/* AWQ (Lin et al. 2023): scale_k = mean_k^a, divided by the geometric mean of the largest and the smallest, with the a
 * of 0, 1/20, ..., 19/20 that changes the products of the sample least when its rows are rounded to nearest. Channels
 * with large inputs are rounded finer so. Means count as 1e-4 at least. Returns a. */
float proa_smooth_awq(float *scale, const proa_smooth_sample *s, proa_pool *pool);
/* SmoothQuant (Xiao et al. 2022), migration strength 0.5: scale_k = sqrt(max |x_k| / max |w_k|), both at least 1e-5. It
 * makes activations easier to round, which have outliers in a few channels. */
void proa_smooth_activations(float *scale, const float *most_x, const float *most_w, int64_t K);
/* Divides a norm's weights, plus + weight[k], by scale[k]; rounds what is stored to dtype; and makes scale[k] what they
 * were divided by indeed, so that no product changes. Weights of 0 stay. bias: NULL, or [K], divided too. */
void proa_smooth_norm(float *weight, float *bias, float plus, proa_dtype dtype, float *scale, int64_t K);

#endif
