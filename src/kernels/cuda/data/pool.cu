/* SPDX-License-Identifier: Apache-2.0
 * pool.cu - one vector from the rows of an input (pool_rows.h): a block an input, a thread a column. */
#include "kernels/cuda/data/data.h"

enum { THREADS = PROA_POOL_LANES };

__global__ static void __launch_bounds__(THREADS)
    pool_kernel(float *out, const float *x, const int64_t *first, int64_t width, proa_pool_mode mode, bool unit)
{
    __shared__ double lane[THREADS];
    int64_t begin, rows;
    float *to = out + blockIdx.x * width;
    gpu_wait();
    begin = first[blockIdx.x], rows = first[blockIdx.x + 1] - begin;
    for (int64_t k = threadIdx.x; k < width; k += THREADS)
        to[k] = proa_pool_column(x + begin * width + k, rows, width, mode);
    if (!unit) return;
    /* Each thread reads the columns that it has written. */
    lane[threadIdx.x] = proa_pool_lane(to, width, threadIdx.x);
    for (int n = THREADS / 2; n > 0; n /= 2) {
        __syncthreads();
        if (threadIdx.x < n) lane[threadIdx.x] += lane[threadIdx.x + n];
    }
    __syncthreads();
    for (int64_t k = threadIdx.x; k < width; k += THREADS) to[k] = proa_pool_unit(to[k], lane[0]);
}

static void pool_rows_op(proa_ctx *c, float *out, const float *x, const int64_t *first, int64_t count,
                         int64_t width, proa_pool_mode mode, bool unit)
{
    gpu_launch(gpu_flushed(c), "pool_rows", pool_kernel, dim3((unsigned)count), dim3(THREADS), 0, out, x,
               first, width, mode, unit);
}

void gpu_fill_pool(proa_data_ops *ops)
{
    ops->pool_rows = pool_rows_op;
}
