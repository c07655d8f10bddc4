/* SPDX-License-Identifier: Apache-2.0
 * small.cu - products of a short text's rows with weights in f32: everything lies in the second cache and what counts is
 * latency. A block makes 8 x 8 outputs, its threads share K in fours that go from memory straight into registers; the weights
 * are on their way before the kernel before has ended. The norm that the rows still wait for is taken along. */
#include "kernels/cuda/linear/linear.h"

enum { TILE = 8, OUTPUTS = TILE * TILE, FOUR = 4, LANES_MAX = 256,
       READ_MAX = 32 << 20 /* bytes that all blocks read together: beyond, the second cache's rate counts (README.md) */ };

struct small_call {
    float *y;
    int64_t y_row;
    const float *x;
    int64_t x_row;
    const float *w;
    int64_t ld;
    int M, N, K;
    epilogue e;
    gpu_norm norm;
};

/* The halves of v are exchanged with the lane O away, so that each keeps the sums of one half; then on with the halves of that,
 * until one number or one lane is left. By templates: a loop whose bounds halve stays a loop, and v goes to memory. */
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

/* The sums of TILE rows over a block's threads, in all of them. */
template <int LANES> __device__ static inline void row_sums(float v[TILE], float (*room)[TILE])
{
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    fold<TILE / 2, 16>(v);
    float sum = v[0] + __shfl_xor_sync(0xffffffffu, v[0], 2); /* of row lane / 4 */
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane % 4 == 0) room[warp][lane / 4] = sum;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++) v[i] = 0.0f;
#pragma unroll
    for (int k = 0; k < LANES / 32; k++)
#pragma unroll
        for (int i = 0; i < TILE; i++) v[i] += room[k][i];
}

/* This thread's four numbers of each row become those of the normed rows. */
template <int LANES>
__device__ static inline void norm_rows(float4 x[TILE], const small_call &a, float4 scale, float4 shift, bool in,
                                        float (*room)[LANES / 32][TILE])
{
    float mean[TILE] = {}, sum[TILE];
    if (a.norm.layer) {
#pragma unroll
        for (int i = 0; i < TILE; i++) mean[i] = in ? x[i].x + x[i].y + x[i].z + x[i].w : 0.0f;
        row_sums<LANES>(mean, room[0]);
#pragma unroll
        for (int i = 0; i < TILE; i++) mean[i] /= (float)a.K;
    }
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        x[i].x -= mean[i], x[i].y -= mean[i], x[i].z -= mean[i], x[i].w -= mean[i];
        sum[i] = in ? x[i].x * x[i].x + x[i].y * x[i].y + x[i].z * x[i].z + x[i].w * x[i].w : 0.0f;
    }
    row_sums<LANES>(sum, room[1]);
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        float inverse = 1.0f / sqrtf(sum[i] / (float)a.K + a.norm.eps);
        x[i].x = x[i].x * inverse * scale.x + shift.x, x[i].y = x[i].y * inverse * scale.y + shift.y;
        x[i].z = x[i].z * inverse * scale.z + shift.z, x[i].w = x[i].w * inverse * scale.w + shift.w;
    }
}

/* Rows TILE blockIdx.y on, outputs TILE blockIdx.x on. With NORM K <= 4 LANES; blocks of the first outputs write the normed
 * rows too. */
template <int LANES, bool NORM> __global__ void __launch_bounds__(LANES) small_kernel(small_call a)
{
    const int STEP = LANES * FOUR;
    const float4 ZERO = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __shared__ __align__(8) float room[LANES / 32][OUTPUTS];
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
        for (int i = 0; i < TILE; i++) v[i] = at < a.K ? *reinterpret_cast<const float4 *>(from[i] + at) : ZERO;
    };
    fetch(w, ws, k);
    if (NORM && k < a.K) {
        scale = *reinterpret_cast<const float4 *>(a.norm.w + k);
        if (a.norm.b) shift = *reinterpret_cast<const float4 *>(a.norm.b + k);
    }
    int m_end = m0 + (int)threadIdx.x / TILE, n_end = n0 + (int)threadIdx.x % TILE; /* what this thread finishes */
    bool ends = threadIdx.x < OUTPUTS && m_end < a.M && n_end < a.N;
    epilogue_ahead ahead = {};
    if (ends) bias_ahead(&ahead, a.e, n_end);
    gpu_wait();
    if (ends) residual_ahead(&ahead, a.e, m_end, n_end);
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
    *reinterpret_cast<float2 *>(&room[threadIdx.x / 32][threadIdx.x % 32 * 2]) = make_float2(sum[0], sum[1]);
    __syncthreads();
    if (!ends) return;
    float v = 0.0f;
#pragma unroll
    for (int i = 0; i < LANES / 32; i++) v += room[i][threadIdx.x];
    a.y[(int64_t)m_end * a.y_row + n_end] = finished(a.e, v, 0.0f, ahead);
}

template <int LANES> static void launch(gpu *g, const small_call &a)
{
    dim3 grid((unsigned)((a.N + TILE - 1) / TILE), (unsigned)((a.M + TILE - 1) / TILE));
    if (a.norm.x) gpu_launch(g, "norm and linear", small_kernel<LANES, true>, grid, LANES, 0, a);
    else gpu_launch(g, "linear (small)", small_kernel<LANES, false>, grid, LANES, 0, a);
}

static bool in_fours(const void *at, int64_t row)
{
    return (uintptr_t)at % 16 == 0 && row % FOUR == 0;
}

bool gpu_small_norm(const gpu_norm &n)
{
    bool fours = in_fours(n.x, n.x_row) && in_fours(n.y, n.y_row) && in_fours(n.w, n.d) && in_fours(n.b, n.d);
    return n.rows <= SMALL_ROWS && n.d <= LANES_MAX * FOUR && fours;
}

bool gpu_small(gpu *g, proa_view y, proa_view x, const proa_weight *w, const epilogue &e, const gpu_norm *norm)
{
    small_call a = {(float *)y.data, y.stride[0], (const float *)x.data, x.stride[0], (const float *)w->data,
                    gpu_leading(w->format, w->K), (int)y.shape[0], (int)w->N, (int)w->K, e};
    if (norm) a.norm = *norm, a.x = norm->x, a.x_row = norm->x_row;
    if (e.half || w->format != PROA_WFMT_F32 || gpu_narrow(x) || gpu_narrow(y) || a.M > SMALL_ROWS || w->K % FOUR != 0) return false;
    if (!in_fours(a.x, a.x_row) || y.shape[0] * w->N * w->K > READ_MAX) return false;
    if (w->K <= 64 * FOUR) launch<64>(g, a);
    else if (w->K <= 128 * FOUR) launch<128>(g, a);
    else launch<LANES_MAX>(g, a);
    return true;
}
