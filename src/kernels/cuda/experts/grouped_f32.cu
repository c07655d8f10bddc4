/* SPDX-License-Identifier: Apache-2.0
 * grouped_f32.cu - grouped products with weights in f32, on CUDA cores: for checkpoints in f32, whose results are
 * compared with the host's. Nothing here was made fast. */
#include "kernels/cuda/experts/experts.h"

enum { F32_WARPS = 8, F32_ROWS = 8 };

__device__ static inline float x_at(const expert_call &a, int64_t at)
{
    if (a.x_type == PROA_DTYPE_F32) return ((const float *)a.x)[at];
    if (a.x_type == PROA_DTYPE_F16) return __half2float(((const __half *)a.x)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)a.x)[at]);
}

/* Block (n, tile): a warp makes one output of up to 8 rows; its lanes share K, and their sums are added by shuffles. */
__global__ void __launch_bounds__(F32_WARPS * 32) expert_f32_kernel(expert_call a)
{
    int lane = threadIdx.x & 31, n = blockIdx.x * F32_WARPS + threadIdx.x / 32;
    expert_tile tile;
    gpu_wait();
    if (!expert_tile_at(a.lists, blockIdx.y, &tile) || n >= outputs_of(a.e, a.N)) return;
    const char *w = a.w + tile.expert * a.expert_bytes;
    const float *first = (const float *)(w + n * a.row_bytes);
    const float *second = (const float *)(w + (int64_t)(n + a.e.gate_rows) * a.row_bytes);
    int64_t from[F32_ROWS];
    float v[F32_ROWS] = {}, u[F32_ROWS] = {};
#pragma unroll
    for (int m = 0; m < F32_ROWS; m++)
        from[m] = m < tile.rows ? expert_rows_of(a, tile.first + m).x * a.x_row + tile.expert * a.x_expert : 0;
    for (int k = lane; k < a.K; k += 32) {
        float ws = first[k], us = a.e.gate_rows ? second[k] : 0.0f;
#pragma unroll
        for (int m = 0; m < F32_ROWS; m++) {
            if (m >= tile.rows) break;
            float x = x_at(a, from[m] + k);
            v[m] = fmaf(x, ws, v[m]), u[m] = fmaf(x, us, u[m]);
        }
    }
    expert_operands o = expert_operands_of<PROA_WFMT_F32>(a, w, tile.expert, n);
#pragma unroll
    for (int m = 0; m < F32_ROWS; m++) {
        if (m >= tile.rows) break;
        float sum = gpu_warp_sum(v[m]), factor = gpu_warp_sum(u[m]);
        if (lane == 0)
            expert_store(a, tile.expert, expert_rows_of(a, tile.first + m).y, n,
                         expert_finish(a, sum, factor, o, expert_weight_of(a, tile.first + m)));
    }
}

void expert_product_f32(gpu *g, const expert_call &a, int tiles)
{
    dim3 grid((unsigned)((outputs_of(a.e, a.N) + F32_WARPS - 1) / F32_WARPS), (unsigned)tiles);
    gpu_launch(g, "experts (f32)", expert_f32_kernel, grid, F32_WARPS * 32, 0, a);
}
