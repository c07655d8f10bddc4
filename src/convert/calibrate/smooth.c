/* SPDX-License-Identifier: Apache-2.0
 * smooth.c - the scales of AWQ and SmoothQuant, and a norm that takes them. */
#include "convert/calibrate/smooth.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POWERS = 20 }; /* AWQ: a is 0, 1/20, ..., 19/20 */

/* ---- AWQ ---- */

/* A scale that is tried. */
typedef struct trial {
    const proa_smooth_sample *s;
    const float *scale;
    proa_codes m;   /* of the scaled rows */
    float *numbers; /* [N][K] these rows */
    float *weight;  /* [K] the diagonal of H over scale^2 */
    double *error;  /* [N] */
} trial;

/* d^T H d; K is a multiple of 8. */
static double weigh_error(const float *d, const float *hessian, int64_t K)
{
    double error = 0;
    for (int64_t k = 0; k < K; k++) {
        const float *h = hessian + k * K;
        float sum[8] = {0}, all = 0;
        for (int64_t l = 0; l < K; l += 8)
            for (int j = 0; j < 8; j++) sum[j] += h[l + j] * d[l + j];
        for (int j = 0; j < 8; j++) all += sum[j];
        error += (double)all * (double)d[k];
    }
    return error;
}

/* Rounds rows of the sample, and measures (v - w)^T H (v - w), both divided by the scale. */
static void measure_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const trial *t = arg;
    int64_t K = t->s->K;
    float *d = proa_malloc((size_t)K * sizeof *d);
    PROA_UNUSED(worker);
    for (int64_t n = begin; n < end; n++) {
        const float *w = t->s->numbers + n * K;
        for (int64_t k = 0; k < K; k++) t->numbers[n * K + k] = w[k] * t->scale[k];
        proa_codes_scales(&t->m, n, t->weight);
        for (int64_t k = 0; k < K; k++)
            d[k] = proa_codes_round(&t->m, n, k, t->numbers[n * K + k]) / t->scale[k] - w[k];
        t->error[n] = weigh_error(d, t->s->hessian, K);
    }
    free(d);
}

static double measure_scale(trial *t, const float *scale, proa_pool *pool)
{
    double sum = 0;
    int64_t K = t->s->K;
    t->scale = scale;
    for (int64_t k = 0; k < K; k++) t->weight[k] = t->s->hessian[k * K + k] / (scale[k] * scale[k]);
    proa_pool_run(pool, t->s->N, 1, measure_rows, t);
    for (int64_t n = 0; n < t->s->N; n++) sum += t->error[n];
    return sum;
}

static void raise_mean(float *scale, const proa_smooth_sample *s, float power)
{
    float least = INFINITY, most = 0;
    for (int64_t k = 0; k < s->K; k++) {
        scale[k] = powf(fmaxf(s->mean[k], 1e-4f), power);
        least = fminf(least, scale[k]), most = fmaxf(most, scale[k]);
    }
    float middle = sqrtf(least) * sqrtf(most);
    for (int64_t k = 0; k < s->K; k++) scale[k] /= middle;
}

static void begin_trials(trial *t, const proa_smooth_sample *s)
{
    int64_t count = s->N * s->K, scales = s->N * (s->K / s->group);
    *t = (trial){.s = s};
    t->numbers = proa_malloc((size_t)count * sizeof *t->numbers);
    t->weight = proa_malloc((size_t)s->K * sizeof *t->weight);
    t->error = proa_malloc((size_t)s->N * sizeof *t->error);
    t->m = (proa_codes){.kind = s->kind, .N = s->N, .K = s->K, .group = s->group, .asymmetric = s->asymmetric};
    t->m.scale_dtype = PROA_DTYPE_F32, t->m.numbers = t->numbers;
    t->m.codes = proa_malloc((size_t)count);
    t->m.scales = proa_malloc((size_t)scales * sizeof *t->m.scales);
    t->m.zeros = s->asymmetric ? proa_malloc((size_t)scales) : NULL;
}

static void end_trials(trial *t)
{
    free(t->numbers), free(t->weight), free(t->error);
    free(t->m.codes), free(t->m.scales), free(t->m.zeros);
}

float proa_smooth_awq(float *scale, const proa_smooth_sample *s, proa_pool *pool)
{
    trial t;
    int chosen = 0;
    double best = INFINITY;
    begin_trials(&t, s);
    for (int i = 0; i < POWERS; i++) {
        raise_mean(scale, s, (float)i / POWERS);
        double error = measure_scale(&t, scale, pool);
        if (error < best) best = error, chosen = i;
    }
    raise_mean(scale, s, (float)chosen / POWERS);
    end_trials(&t);
    return (float)chosen / POWERS;
}

/* ---- SmoothQuant ---- */

void proa_smooth_activations(float *scale, const float *most_x, const float *most_w, int64_t K)
{
    for (int64_t k = 0; k < K; k++) scale[k] = sqrtf(fmaxf(most_x[k], 1e-5f) / fmaxf(most_w[k], 1e-5f));
}

/* ---- the norm ---- */

void proa_smooth_norm(float *weight, float *bias, float plus, proa_dtype dtype, float *scale, int64_t K)
{
    for (int64_t k = 0; k < K; k++) {
        float whole = weight[k] + plus, stored = proa_codes_round_float(dtype, whole / scale[k] - plus);
        bool divides = isfinite(stored) && stored + plus != 0 && whole != 0;
        scale[k] = divides ? whole / (stored + plus) : 1;
        if (divides) weight[k] = stored;
        if (bias) bias[k] /= scale[k];
    }
}
