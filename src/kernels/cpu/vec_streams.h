/* SPDX-License-Identifier: Apache-2.0
 * vec_streams.h - mix_streams, match_rms, threshold_rows and row_moments in simd_*.h; included by vec_avx2.c and
 * vec_avx512.c behind vec_rows.h. */
#ifndef PROA_KERNELS_CPU_VEC_STREAMS_H
#define PROA_KERNELS_CPU_VEC_STREAMS_H

#include "kernels/cpu/vec_rows.h"

typedef struct stream_job {
    proa_view y, x, w;
    float value; /* plus, least or deviations */
} stream_job;

static float *stream_at(proa_view v, int64_t t, int64_t i)
{
    return proa_view_f32(v) + t * v.stride[0] + i * v.stride[1];
}

/* Columns [j, j + count) of a row. All streams are read before one is written. */
V_INLINE void mix_columns(const stream_job *job, int64_t t, int64_t j, int64_t count)
{
    int64_t n = job->y.shape[1], m = job->x.shape[1];
    const float *w = job->w.rank ? row_at(job->w, t) : NULL;
    vf sums[PROA_STREAMS_MAX];
    for (int64_t i = 0; i < n; i++) {
        sums[i] = v_load_n(stream_at(job->y, t, i) + j, count);
        for (int64_t k = 0; k < m; k++) {
            float weight = job->value + (w ? w[i * m + k] : 0.0f);
            sums[i] = v_fma(v_set1(weight), v_load_n(stream_at(job->x, t, k) + j, count), sums[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) v_store_n(stream_at(job->y, t, i) + j, sums[i], count);
}

static void mix_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const stream_job *job = arg;
    int64_t d = job->y.shape[2];
    for (int64_t t = begin; t < end; t++)
        for (int64_t j = 0; j < d; j += V_WIDTH) mix_columns(job, t, j, proa_min64(V_WIDTH, d - j));
}

static void run_stream_rows(proa_ctx *c, int64_t rows, int64_t cols, proa_task_fn *fn, stream_job *job)
{
    proa_pool_run(c->pool, rows, proa_max64(1, VEC_SHARE / proa_max64(cols, 1)), fn, job);
}

static void mix_streams(proa_ctx *c, proa_view y, proa_view x, proa_view w, float plus)
{
    stream_job job = {y, x, w, plus};
    run_stream_rows(c, y.shape[0], y.shape[1] * y.shape[2], mix_rows, &job);
}

V_INLINE void scale_row(float *y, const float *x, int64_t d, float factor)
{
    vf f = v_set1(factor);
    for (int64_t j = 0; j < d; j += V_WIDTH) {
        int64_t n = proa_min64(V_WIDTH, d - j);
        v_store_n(y + j, v_mul(v_load_n(x + j, n), f), n);
    }
}

/* w has the rows whose size is wanted. */
static void match_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const stream_job *job = arg;
    int64_t d = job->x.shape[2];
    for (int64_t t = begin; t < end; t++) {
        float wanted = sqrtf(mean_of(row_at(job->w, t), d, 0.0f, true));
        for (int64_t i = 0; i < job->x.shape[1]; i++) {
            const float *x = stream_at(job->x, t, i);
            float own = mean_of(x, d, 0.0f, true);
            scale_row(stream_at(job->y, t, i), x, d, wanted / sqrtf(own < job->value ? job->value : own));
        }
    }
}

static void match_rms(proa_ctx *c, proa_view y, proa_view x, proa_view r, float least)
{
    stream_job job = {y, x, r, least};
    run_stream_rows(c, x.shape[0], x.shape[1] * x.shape[2], match_rows, &job);
}

/* Of a part of a row: how many numbers it has, their mean and variance. */
static void find_moments(float to[4], const float *x, int64_t d)
{
    float mean = mean_of(x, d, 0.0f, false);
    to[0] = (float)d, to[1] = mean, to[2] = mean_of(x, d, mean, true), to[3] = 0.0f;
}

/* The mean of a row and so many standard deviations, by the moments of its parts. */
static float least_of_parts(const float *m, int64_t parts, float deviations)
{
    double all = 0, mean = 0, variance = 0;
    for (int64_t i = 0; i < parts; i++) all += (double)m[4 * i];
    for (int64_t i = 0; i < parts; i++) mean += (double)m[4 * i] / all * (double)m[4 * i + 1];
    for (int64_t i = 0; i < parts; i++) {
        double between = (double)m[4 * i + 1] - mean;
        variance += (double)m[4 * i] / all * ((double)m[4 * i + 2] + between * between);
    }
    return (float)(mean + (double)deviations * sqrt(variance));
}

/* w has the moments of all parts. */
static void threshold_range(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const stream_job *job = arg;
    int64_t d = job->x.shape[1];
    for (int64_t t = begin; t < end; t++) {
        float *x = row_at(job->x, t), least;
        if (job->w.rank) {
            least = least_of_parts(row_at(job->w, t), job->w.shape[1] / 4, job->value);
        } else {
            float mean = mean_of(x, d, 0.0f, false);
            least = mean + job->value * sqrtf(mean_of(x, d, mean, true));
        }
        for (int64_t j = 0; j < d; j++) x[j] = x[j] - least < 0.0f ? 0.0f : x[j] - least; /* NaN stays */
    }
}

static void threshold_rows(proa_ctx *c, proa_view x, proa_view m, float deviations)
{
    stream_job job = {.x = x, .w = m, .value = deviations};
    run_stream_rows(c, x.shape[0], x.shape[1], threshold_range, &job);
}

static void moments_range(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const stream_job *job = arg;
    for (int64_t t = begin; t < end; t++) find_moments(row_at(job->y, t), row_at(job->x, t), job->x.shape[1]);
}

static void row_moments(proa_ctx *c, proa_view m, proa_view x)
{
    stream_job job = {.y = m, .x = x};
    run_stream_rows(c, x.shape[0], x.shape[1], moments_range, &job);
}

#endif
