/* SPDX-License-Identifier: Apache-2.0
 * streams.cu - mix_streams, match_rms, threshold_rows, row_moments and round_rows: several streams of rows (AltUp),
 * gates of which the largest are kept, and rows as codes. */
#include "kernels/cuda/runtime/cuda.h"

enum { THREADS = 256 };

/* [T, streams, d] */
struct stream_rows {
    float *at;
    int64_t row, stream;
    int count;
};

static stream_rows rows_of(proa_view v)
{
    return {(float *)v.data, v.stride[0], v.stride[1], (int)v.shape[1]};
}

/* Grid: row, THREADS columns. All streams are read before one is written. */
__global__ void mix_streams_kernel(stream_rows y, stream_rows x, const float *w, int64_t w_row, float plus,
                                   int64_t d)
{
    int64_t t = blockIdx.x, j = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (j >= d) return;
    gpu_wait();
    float in[PROA_STREAMS_MAX];
    for (int k = 0; k < x.count; k++) in[k] = x.at[t * x.row + k * x.stream + j];
    for (int i = 0; i < y.count; i++) {
        float *out = y.at + t * y.row + i * y.stream + j, sum = *out;
        for (int k = 0; k < x.count; k++)
            sum = fmaf(plus + (w ? w[t * w_row + i * x.count + k] : 0.0f), in[k], sum);
        *out = sum;
    }
}

static void mix_streams(proa_ctx *c, proa_view y, proa_view x, proa_view w, float plus)
{
    gpu *g = gpu_flushed(c, y);
    if (y.shape[0] == 0) return;
    dim3 grid((unsigned)y.shape[0], (unsigned)((y.shape[2] + THREADS - 1) / THREADS));
    gpu_launch(g, "mix_streams", mix_streams_kernel, grid, THREADS, 0, rows_of(y), rows_of(x),
               w.rank ? (const float *)w.data : (const float *)nullptr, w.rank ? w.stride[0] : (int64_t)0,
               plus, y.shape[2]);
}

/* The sum over the block, the same in all threads; in a fixed order. */
__device__ static inline float add_threads(float v, float *sums)
{
    v = gpu_warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0.0f;
    for (int i = 0; i < THREADS / 32; i++) v += sums[i];
    return v;
}

template <typename T>
__device__ static inline float mean_square(const T *x, int64_t d, float mean, float *sums)
{
    float sum = 0.0f, share = 1.0f / (float)d;
    for (int64_t j = threadIdx.x; j < d; j += THREADS) {
        float v = gpu_to_f32(x[j]) - mean;
        sum += v * share * v; /* infinite only where the mean is */
    }
    return add_threads(sum, sums);
}

/* Grid: row, stream. */
__global__ void match_rms_kernel(stream_rows y, stream_rows x, const float *r, int64_t r_row, float least,
                                 int64_t d)
{
    __shared__ float sums[THREADS / 32];
    gpu_wait();
    const float *from = x.at + blockIdx.x * x.row + blockIdx.y * x.stream;
    float wanted = mean_square(r + blockIdx.x * r_row, d, 0.0f, sums), own = mean_square(from, d, 0.0f, sums);
    float factor = sqrtf(wanted) / sqrtf(own < least ? least : own);
    float *to = y.at + blockIdx.x * y.row + blockIdx.y * y.stream;
    for (int64_t j = threadIdx.x; j < d; j += THREADS) to[j] = from[j] * factor;
}

static void match_rms(proa_ctx *c, proa_view y, proa_view x, proa_view r, float least)
{
    gpu *g = gpu_flushed(c, y);
    if (x.shape[0] == 0) return;
    gpu_launch(g, "match_rms", match_rms_kernel, dim3((unsigned)x.shape[0], (unsigned)x.shape[1]), THREADS, 0,
               rows_of(y), rows_of(x), (const float *)r.data, r.stride[0], least, x.shape[2]);
}

/* The mean of a row of a block. */
template <typename T> static __device__ float mean_of_row(const T *x, int64_t d, float *sums)
{
    float sum = 0.0f, share = 1.0f / (float)d;
    for (int64_t j = threadIdx.x; j < d; j += THREADS) sum += gpu_to_f32(x[j]) * share;
    return add_threads(sum, sums);
}

/* The mean of a row and so many standard deviations, by the moments of its parts. */
static __device__ double least_of_parts(const float *m, int64_t parts, float deviations)
{
    double all = 0, mean = 0, variance = 0;
    for (int64_t i = 0; i < parts; i++) all += (double)m[4 * i];
    for (int64_t i = 0; i < parts; i++) mean += (double)m[4 * i] / all * (double)m[4 * i + 1];
    for (int64_t i = 0; i < parts; i++) {
        double between = (double)m[4 * i + 1] - mean;
        variance += (double)m[4 * i] / all * ((double)m[4 * i + 2] + between * between);
    }
    return mean + (double)deviations * sqrt(variance);
}

/* A block for each row. parts 0: x is the row. */
template <typename T>
__global__ void threshold_rows_kernel(T *x, int64_t x_row, int64_t d, const float *m, int64_t m_row,
                                      int64_t parts, float deviations)
{
    __shared__ float sums[THREADS / 32];
    float least, rest = 0.0f; /* what its rounding leaves: a number near the threshold has little else */
    gpu_wait();
    x += blockIdx.x * x_row;
    if (parts) { /* by one thread: cards are slow in double */
        if (threadIdx.x == 0) {
            double exact = least_of_parts(m + blockIdx.x * m_row, parts, deviations);
            sums[0] = (float)exact, sums[1] = (float)(exact - (double)sums[0]);
        }
        __syncthreads();
        least = sums[0], rest = sums[1];
    } else {
        float mean = mean_of_row(x, d, sums);
        least = mean + deviations * sqrtf(mean_square(x, d, mean, sums));
    }
    for (int64_t j = threadIdx.x; j < d; j += THREADS) {
        float above = gpu_to_f32(x[j]) - least - rest;
        x[j] = gpu_saturate<T>(above < 0.0f ? 0.0f : above);
    }
}

static void threshold_rows(proa_ctx *c, proa_view x, proa_view m, float deviations)
{
    gpu *g = gpu_flushed(c, x);
    if (x.shape[0] == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "threshold_rows", threshold_rows_kernel<T>, dim3((unsigned)x.shape[0]), THREADS, 0,
                   (T *)x.data, x.stride[0], x.shape[1], (const float *)m.data, m.rank ? m.stride[0] : 0,
                   m.rank ? m.shape[1] / 4 : 0, deviations);
    });
}

/* A block for each row. */
template <typename T>
__global__ void row_moments_kernel(float *m, int64_t m_row, const T *x, int64_t x_row, int64_t d)
{
    __shared__ float sums[THREADS / 32];
    gpu_wait();
    x += blockIdx.x * x_row, m += blockIdx.x * m_row;
    float mean = mean_of_row(x, d, sums), variance = mean_square(x, d, mean, sums);
    if (threadIdx.x) return;
    m[0] = (float)d, m[1] = mean, m[2] = variance, m[3] = 0.0f;
}

static void row_moments(proa_ctx *c, proa_view m, proa_view x)
{
    gpu *g = gpu_flushed(c, m);
    if (x.shape[0] == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "row_moments", row_moments_kernel<T>, dim3((unsigned)x.shape[0]), THREADS, 0,
                   (float *)m.data, m.stride[0], (const T *)x.data, x.stride[0], x.shape[1]);
    });
}

/* A block for each row. */
template <typename T> __global__ void round_rows_kernel(T *x, int64_t x_row, int64_t d, float most)
{
    __shared__ float scratch[THREADS / 32];
    gpu_wait();
    x += blockIdx.x * x_row;
    float largest = 1e-5f; /* fmaxf passes NaN over */
    for (int64_t j = threadIdx.x; j < d; j += THREADS) largest = fmaxf(largest, fabsf(gpu_to_f32(x[j])));
    const float scale = __fdiv_rn(most, gpu_block_max(largest, scratch));
    for (int64_t j = threadIdx.x; j < d; j += THREADS) {
        float code = rintf(__fmul_rn(gpu_to_f32(x[j]), scale));
        code = code > most ? most : code < -most - 1.0f ? -most - 1.0f : code;
        x[j] = gpu_saturate<T>(__fdiv_rn(code, scale));
    }
}

static void round_rows(proa_ctx *c, proa_view x, int32_t bits)
{
    gpu *g = gpu_flushed(c, x);
    if (x.shape[0] == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using T = decltype(type);
        gpu_launch(g, "round_rows", round_rows_kernel<T>, dim3((unsigned)x.shape[0]), THREADS, 0, (T *)x.data,
                   x.stride[0], x.shape[1], (float)((1 << (bits - 1)) - 1));
    });
}

void gpu_fill_streams(proa_ops *ops)
{
    ops->mix_streams = mix_streams, ops->match_rms = match_rms, ops->threshold_rows = threshold_rows;
    ops->row_moments = row_moments, ops->round_rows = round_rows;
}
