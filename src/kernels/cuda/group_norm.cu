/* SPDX-License-Identifier: Apache-2.0
 * group_norm.cu - an RMS norm of groups whose columns several ranks have: what the columns of one give to the means of
 * the squares, and the scaling by the means of all. */
#include "kernels/cuda/runtime/cuda.h"

enum { THREADS = 256 };

/* Grid: row, group. Threads and warps add in a fixed order. */
template <typename X>
__global__ void group_squares_kernel(float *m, int64_t m_row, const X *x, int64_t x_row, int64_t d,
                                     int64_t first, int64_t width)
{
    __shared__ float sums[THREADS / 32];
    int64_t begin = blockIdx.y * width - first, end = begin + width;
    if (begin < 0) begin = 0;
    if (end > d) end = d;
    float sum = 0.0f, share = 1.0f / (float)width;
    gpu_wait();
    x += blockIdx.x * x_row;
    for (int64_t j = begin + threadIdx.x; j < end; j += THREADS) {
        float v = gpu_to_f32(x[j]);
        sum += v * share * v; /* infinite only where the mean is */
    }
    sum = gpu_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / 32; i++) sum += sums[i];
    m[blockIdx.x * m_row + blockIdx.y] = sum;
}

static void group_squares(proa_ctx *c, proa_view m, proa_view x, int64_t first, int64_t width)
{
    gpu *g = gpu_flushed(c, m);
    if (x.shape[0] == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "group_squares", group_squares_kernel<X>,
                   dim3((unsigned)x.shape[0], (unsigned)m.shape[1]), THREADS, 0, (float *)m.data, m.stride[0],
                   (const X *)x.data, x.stride[0], x.shape[1], first, width);
    });
}

/* Grid: row, THREADS columns. */
template <typename X>
__global__ void group_scale_kernel(X *x, int64_t x_row, const float *m, int64_t m_row, const float *w,
                                   int64_t d, int64_t first, int64_t width, float eps)
{
    int64_t j = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    if (j >= d) return;
    gpu_wait();
    float inverse = 1.0f / sqrtf(m[blockIdx.x * m_row + (first + j) / width] + eps);
    X *at = x + blockIdx.x * x_row + j;
    *at = gpu_saturate<X>(gpu_to_f32(*at) * inverse * w[j]);
}

static void group_scale(proa_ctx *c, proa_view x, proa_view m, proa_view w, int64_t first, int64_t width,
                        float eps)
{
    gpu *g = gpu_flushed(c, x);
    if (x.shape[0] == 0) return;
    gpu_by_type(x.dtype, [&](auto type) {
        using X = decltype(type);
        gpu_launch(g, "group_scale", group_scale_kernel<X>,
                   dim3((unsigned)x.shape[0], (unsigned)((x.shape[1] + THREADS - 1) / THREADS)), THREADS, 0,
                   (X *)x.data, x.stride[0], (const float *)m.data, m.stride[0], (const float *)w.data,
                   x.shape[1], first, width, eps);
    });
}

void gpu_fill_group_norm(proa_ops *ops)
{
    ops->group_squares = group_squares, ops->group_scale = group_scale;
}
