/* SPDX-License-Identifier: Apache-2.0
 * encoder_short_f32.cu - attention of a short text in f32, head sizes 16, 32, 64, 128. A block has all keys
 * and values of one head in shared memory (up to 160 KB) and one query for each of its 8 warps. Lanes take
 * keys for the scores and dimensions for the result; the softmax is exact, in two passes over the weights. */
#include "kernels/cuda/attention/attention.h"

enum { THREADS = 256, QUERIES = THREADS / 32, SHARED_MAX = 160 << 10 };

/* Shared memory: keys [keys][dim + 4], values [keys][dim + 4], queries [QUERIES][dim], weights
 * [QUERIES][keys]. The padding of 16 bytes keeps the same columns of neighbouring rows in different banks. */
static size_t shared_bytes(int keys, int dim)
{
    return (size_t)(2 * keys * (dim + 4) + QUERIES * dim + QUERIES * keys) * sizeof(float);
}

/* Four numbers into shared memory, on their own. */
__device__ static inline void copy_four(float *to, const float *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from));
}

template <int DIM> __global__ void __launch_bounds__(THREADS) encoder_short_kernel(attention_task t, int keys)
{
    const int LD = DIM + 4, FOURS = DIM / 4, EACH = DIM < 32 ? 1 : DIM / 32; /* numbers of y a lane */
    extern __shared__ __align__(16) float memory[];
    float *ks = memory, *vs = ks + keys * LD, *qs = vs + keys * LD, *weights = qs + QUERIES * DIM;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, h = blockIdx.y, kv = h / t.group,
        first = blockIdx.x * QUERIES;
    proa_span s = t.spans[blockIdx.z]; /* uploaded before the pass began */
    float slope = t.has_score_mod ? slope_of(t, h) : 0.0f;
    gpu_wait();
    if ((s.rows == 1 && !t.kv_row) || first >= s.rows) return;
    for (int i = threadIdx.x; i < QUERIES * FOURS; i += THREADS) {
        int m = i / FOURS, e = i % FOURS * 4;
        if (first + m < s.rows)
            copy_four(qs + m * DIM + e, (const float *)t.q + (s.row + first + m) * t.q_row + h * t.q_head + e);
    }
    for (int i = threadIdx.x; i < s.context * FOURS; i += THREADS) {
        int p = i / FOURS, e = i % FOURS * 4;
        copy_four(ks + p * LD + e, key_row<float>(t, t.k, s, p, kv) + e);
        copy_four(vs + p * LD + e, key_row<float>(t, t.v, s, p, kv) + e);
    }
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    int row = first + warp, begin, end, at = s.context - s.rows + row;
    if (row >= s.rows) return;
    visible_keys(t, s, row, &begin, &end);
    float *mine = weights + warp * keys, largest = -INFINITY, total = 0.0f, sum[EACH] = {};
    const float *q = qs + warp * DIM;
    for (int p = begin + lane; p < end; p += 32) {
        float dot = 0.0f;
#pragma unroll
        for (int e = 0; e < DIM; e += 4) {
            float4 a = *reinterpret_cast<const float4 *>(q + e),
                   b = *reinterpret_cast<const float4 *>(ks + p * LD + e);
            dot = fmaf(a.x, b.x, dot), dot = fmaf(a.y, b.y, dot), dot = fmaf(a.z, b.z, dot),
            dot = fmaf(a.w, b.w, dot);
        }
        dot *= t.scale;
        if (t.has_score_mod) dot = score_mod(t, dot, bias_of(t, h, p - at), slope, p - at);
        mine[p] = dot;
        largest = dot > largest || isnan(dot) ? dot : largest; /* no number stays none */
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, largest, o);
        largest = other > largest || isnan(other) ? other : largest;
    }
    if (largest == -INFINITY) largest = 0.0f;
    for (int p = begin + lane; p < end; p += 32) {
        float weight = expf(mine[p] - largest);
        mine[p] = weight, total += weight;
    }
    total = gpu_warp_sum(total);
    __syncwarp();
#pragma unroll 4
    for (int p = begin; p < end; p++) {
        float weight = mine[p];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (DIM >= 32 || lane < DIM) sum[i] = fmaf(weight, vs[p * LD + i * 32 + lane], sum[i]);
    }
    float *y = (float *)t.y + (s.row + row) * t.y_row + h * t.y_head;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (DIM >= 32 || lane < DIM) y[i * 32 + lane] = begin < end ? sum[i] / total : 0.0f;
}

template <int DIM> static bool launch(gpu *g, const attention_task &t, int spans, int rows, int keys)
{
    size_t bytes = shared_bytes(keys, DIM);
    int most = min((int)SHARED_MAX, g->shared_max);
    if (bytes > (size_t)most) return false;
    gpu_note(g,
             cudaFuncSetAttribute(encoder_short_kernel<DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
             "attend (encoder f32)");
    gpu_launch(g, "attend (encoder f32)", encoder_short_kernel<DIM>,
               dim3((unsigned)((rows + QUERIES - 1) / QUERIES), (unsigned)t.heads, (unsigned)spans), THREADS,
               bytes, t, keys);
    return true;
}

bool gpu_encoder_short(gpu *g, const attention_task &t, proa_dtype pages, int spans, int rows, int context)
{
    bool fours = t.q_vec4 && t.kv_row % 4 == 0 && ((uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0;
    int keys = t.kv_row ? rows : context;
    if (t.sinks || t.type != PROA_DTYPE_F32 || pages != PROA_DTYPE_F32 || !fours || spans > 65535)
        return false;
    switch (t.dim) {
    case 16: return launch<16>(g, t, spans, rows, keys);
    case 32: return launch<32>(g, t, spans, rows, keys);
    case 64: return launch<64>(g, t, spans, rows, keys);
    case 128: return launch<128>(g, t, spans, rows, keys);
    default: return false;
    }
}
