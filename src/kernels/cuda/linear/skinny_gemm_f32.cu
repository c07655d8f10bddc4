/* SPDX-License-Identifier: Apache-2.0
 * skinny_gemm_f32.cu - products of up to 128 rows (a short text) with weights in f32. All data is in the L2
 * cache and latency is what counts. The deferred norm that makes the rows may be part of the kernel. */
#include "kernels/cuda/linear/linear.h"

enum {
    TILE = 8,
    OUTPUTS = TILE * TILE,
    FOUR = 4,
    LANES_MAX = 256,
    READ_MAX = 32 << 20 /* bytes that all blocks read together: beyond, the rate of the L2 cache is the limit */
};

struct skinny_f32_call {
    float *y;
    int64_t y_row;
    const float *x;
    int64_t x_row;
    const float *w;
    int64_t ld;
    int M, N, K;
    epilogue e;
    gpu_pending_norm norm;
};

/* Adds v over the lanes of a warp, each lane ending with other elements: the halves of v are exchanged with
 * the lane O away, so that each lane keeps the sums of one half; then the halves of that, until one number or
 * one lane is left. It is a template because a loop with a halving bound is not unrolled, and v would be
 * placed in local memory. */
template <int HALF, int O> __device__ static inline void fold(float *v)
{
    bool upper = threadIdx.x & O;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float mine = upper ? v[i + HALF] : v[i], other = upper ? v[i] : v[i + HALF];
        v[i] = mine + __shfl_xor_sync(0xffffffffu, other, O);
    }
    if constexpr (HALF > 1 && O > 1) fold<HALF / 2, O / 2>(v);
}

/* The sums of TILE rows over a block's threads, in every thread. */
template <int LANES> __device__ static inline void row_sums(float v[TILE], float (*scratch)[TILE])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    fold<TILE / 2, 16>(v);
    float sum = v[0] + __shfl_xor_sync(0xffffffffu, v[0], 2); /* of row lane / 4 */
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane % 4 == 0) scratch[warp][lane / 4] = sum;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) v[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < LANES / 32; k++)
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] += scratch[k][i];
}

/* Norms this thread's four numbers of each row. */
template <int LANES>
__device__ static inline void norm_rows(float4 x[TILE], const skinny_f32_call &a, float4 scale, float4 shift,
                                        bool in, float (*scratch)[LANES / 32][TILE])
{
    float mean[TILE] = {}, sum[TILE];
    if (a.norm.layer) {
#pragma unroll
        for (int i = 0; i < TILE; i++) mean[i] = in ? x[i].x + x[i].y + x[i].z + x[i].w : 0.0f;
        row_sums<LANES>(mean, scratch[0]);
#pragma unroll
        for (int i = 0; i < TILE; i++) mean[i] /= (float)a.K;
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        x[i].x -= mean[i], x[i].y -= mean[i], x[i].z -= mean[i], x[i].w -= mean[i];
        sum[i] = in ? x[i].x * x[i].x + x[i].y * x[i].y + x[i].z * x[i].z + x[i].w * x[i].w : 0.0f;
    }
    row_sums<LANES>(sum, scratch[1]);
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        float inverse = 1.0f / sqrtf(sum[i] / (float)a.K + a.norm.eps);
        x[i].x = x[i].x * inverse * scale.x + shift.x, x[i].y = x[i].y * inverse * scale.y + shift.y;
        x[i].z = x[i].z * inverse * scale.z + shift.z, x[i].w = x[i].w * inverse * scale.w + shift.w;
    }
}

/* y[m, n] = epilogue(sum over k of x[m, k] w[n, k]) in f32; with NORM x is norm(x) and K <= 4 LANES.
 *
 *   block        LANES threads make 8 x 8 outputs: rows 8 blockIdx.y on, outputs 8 blockIdx.x on
 *   thread       four numbers of K at a time, of 8 rows of x and 8 of w, from memory straight into registers: 64 sums
 *   registers    64 sums, 32 of x, 32 of w
 *   shared       warps x 64 floats
 *
 * The weights are loaded before gpu_wait. With NORM the blocks of the first outputs also write the normed
 * rows. */
template <int LANES, bool NORM>
__global__ void __launch_bounds__(LANES) skinny_gemm_f32_kernel(skinny_f32_call a)
{
    const int STEP = LANES * FOUR;
    const float4 ZERO = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __shared__ __align__(8) float scratch[LANES / 32][OUTPUTS];
    __shared__ float sums[NORM ? 2 : 1][LANES / 32][TILE];
    int m0 = blockIdx.y * TILE, n0 = blockIdx.x * TILE, k = threadIdx.x * FOUR;
    float4 w[TILE], x[TILE], scale = ZERO, shift = ZERO;
    const float *ws[TILE], *xs[TILE];
    float sum[OUTPUTS] = {};
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        ws[i] = a.w + (int64_t)(n0 + i < a.N ? n0 + i : a.N - 1) * a.ld;
        xs[i] = a.x + (int64_t)(m0 + i < a.M ? m0 + i : a.M - 1) * a.x_row;
    }
    auto fetch = [&](float4 v[TILE], const float *const from[TILE], int at) {
#pragma unroll
        for (int i = 0; i < TILE; i++)
            v[i] = at < a.K ? *reinterpret_cast<const float4 *>(from[i] + at) : ZERO;
    };
    fetch(w, ws, k);
    if (NORM && k < a.K) {
        scale = *reinterpret_cast<const float4 *>(a.norm.w + k);
        if (a.norm.b) shift = *reinterpret_cast<const float4 *>(a.norm.b + k);
    }
    int m_end = m0 + (int)threadIdx.x / TILE, n_end = n0 + (int)threadIdx.x % TILE; /* what this thread finishes */
    bool ends = threadIdx.x < OUTPUTS && m_end < a.M && n_end < a.N;
    epilogue_operands operands = {};
    if (ends) prefetch_bias(&operands, a.e, n_end);
    gpu_wait();
    if (ends) prefetch_residual(&operands, a.e, m_end, n_end);
    for (; k < a.K || NORM; k += STEP) {
        fetch(x, xs, k);
        if (NORM) {
            norm_rows<LANES>(x, a, scale, shift, k < a.K, sums);
#pragma unroll
            for (int i = 0; i < TILE; i++)
                if (blockIdx.x == 0 && k < a.K && m0 + i < a.M)
                    *reinterpret_cast<float4 *>(a.norm.y + (int64_t)(m0 + i) * a.norm.y_row + k) = x[i];
        }
#pragma unroll
        for (int m = 0; m < TILE; m++)
#pragma unroll
            for (int n = 0; n < TILE; n++) {
                float &s = sum[m * TILE + n];
                s = fmaf(x[m].x, w[n].x, s), s = fmaf(x[m].y, w[n].y, s);
                s = fmaf(x[m].z, w[n].z, s), s = fmaf(x[m].w, w[n].w, s);
            }
        if (NORM) break;
        if (k + STEP < a.K) fetch(w, ws, k + STEP);
    }
    fold<OUTPUTS / 2, 16>(sum); /* lane l has the sums 2 l and 2 l + 1 */
    *reinterpret_cast<float2 *>(&scratch[threadIdx.x / 32][threadIdx.x % 32 * 2]) = make_float2(sum[0], sum[1]);
    __syncthreads();
    if (!ends) return;
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < LANES / 32; i++) v += scratch[i][threadIdx.x];
    a.y[(int64_t)m_end * a.y_row + n_end] = apply_epilogue(a.e, v, 0.0f, operands);
}

template <int LANES> static void launch_skinny_f32(gpu *g, const skinny_f32_call &a)
{
    dim3 grid((unsigned)((a.N + TILE - 1) / TILE), (unsigned)((a.M + TILE - 1) / TILE));
    if (a.norm.x) gpu_launch(g, "norm and linear", skinny_gemm_f32_kernel<LANES, true>, grid, LANES, 0, a);
    else gpu_launch(g, "linear (skinny f32)", skinny_gemm_f32_kernel<LANES, false>, grid, LANES, 0, a);
}

static bool is_vec4(const void *at, int64_t row)
{
    return (uintptr_t)at % 16 == 0 && row % FOUR == 0;
}

bool gpu_skinny_f32_takes_norm(const gpu_pending_norm &n)
{
    bool fours = is_vec4(n.x, n.x_row) && is_vec4(n.y, n.y_row) && is_vec4(n.w, n.d) && is_vec4(n.b, n.d);
    return n.rows <= SKINNY_F32_ROWS && n.d <= LANES_MAX * FOUR && fours;
}

bool gpu_skinny_gemm_f32(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e,
                         const gpu_pending_norm *norm)
{
    skinny_f32_call a = {(float *)y.data,
                         y.stride[0],
                         (const float *)x.data,
                         x.stride[0],
                         (const float *)w->data,
                         gpu_leading_dim(w->format, w->K),
                         (int)y.shape[0],
                         (int)w->N,
                         (int)w->K,
                         e};
    if (norm) a.norm = *norm, a.x = norm->x, a.x_row = norm->x_row;
    if (e.gate_rows || w->format != PROA_WFMT_F32 || gpu_is_16bit(x) || gpu_is_16bit(y) ||
        a.M > SKINNY_F32_ROWS || w->K % FOUR != 0)
        return false;
    if (!is_vec4(a.x, a.x_row) || y.shape[0] * w->N * w->K > READ_MAX) return false;
    if (w->K <= 64 * FOUR) launch_skinny_f32<64>(g, a);
    else if (w->K <= 128 * FOUR) launch_skinny_f32<128>(g, a);
    else launch_skinny_f32<LANES_MAX>(g, a);
    return true;
}
