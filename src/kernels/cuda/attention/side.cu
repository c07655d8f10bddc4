/* SPDX-License-Identifier: Apache-2.0
 * side.cu - attention with side keys (proa_side_keys): Longformer, LongT5; and that of the first rows of each span
 * alone (proa_attention.of_globals), where prefill_mma.cu does not take it: f32, pages, other head sizes. A block has one row and one head, its threads the keys: those of the window, then
 * the side keys. f32 on CUDA cores, with an online softmax. */
#include "kernels/cuda/attention/attention.h"

enum { THREADS = 128 };

/* What a row sees: the keys [begin, end), then `count` side keys. */
struct seen_keys {
    int begin, end, count;
};

__device__ static inline float read_as_q(const attention_task &t, const void *rows, int64_t at)
{
    if (t.type == PROA_DTYPE_F32) return ((const float *)rows)[at];
    if (t.type == PROA_DTYPE_F16) return __half2float(((const __half *)rows)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)rows)[at]);
}

__device__ static inline seen_keys find_keys(const attention_task &t, const proa_side_keys &side,
                                             const proa_span &s, int i)
{
    seen_keys keys = {0, 0, 0};
    visible_keys(t, s, i, &keys.begin, &keys.end);
    if (!side.k) return keys;
    keys.begin = max(keys.begin, (int)proa_side_skipped(&side, &s));
    keys.end = max(keys.end, keys.begin);
    keys.count = (int)proa_side_count(&side, &s);
    return keys;
}

/* The score of the n-th key for the query in shared memory. */
template <typename T>
__device__ static float score_key(const attention_task &t, const proa_side_keys &side, const proa_span &s,
                                  const seen_keys &keys, const float *q, int n, int i, int h)
{
    int kv = h / t.group, p = keys.begin + n, j = p - keys.end;
    float dot = 0.0f, bias = 0.0f;
    if (j < 0) {
        const T *key = key_row<T>(t, t.k, s, p, kv);
        for (int e = 0; e < t.dim; e++) dot = fmaf(q[e], gpu_to_f32(key[e]), dot);
        bias = bias_of(t, h, p - (s.context - s.rows + i));
    } else {
        int64_t row = (proa_side_first(&side, &s) + j) * side.row + kv * t.dim;
        for (int e = 0; e < t.dim; e++) dot = fmaf(q[e], read_as_q(t, side.k, row + e), dot);
        if (side.rel_bias) {
            int d = max(-t.reach, min(j - (int)proa_side_at(&side, &s, i), t.reach));
            bias = side.rel_bias[t.buckets[d + t.reach] * t.heads + h];
        }
    }
    dot *= t.scale;
    return t.has_score_mod || j >= 0 ? score_mod(t, dot, bias, 0.0f, 0) : dot;
}

template <typename T>
__device__ static inline float value_of(const attention_task &t, const proa_side_keys &side,
                                        const proa_span &s, const seen_keys &keys, int n, int kv, int e)
{
    int p = keys.begin + n;
    if (p < keys.end) return gpu_to_f32(key_row<T>(t, t.v, s, p, kv)[e]);
    return read_as_q(t, side.v, (proa_side_first(&side, &s) + p - keys.end) * side.row + kv * t.dim + e);
}

/* The largest of a number over the block. scratch: one for each warp. */
__device__ static float block_max(float x, float *scratch)
{
    float top = gpu_warp_max(x);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; w++) top = fmaxf(top, scratch[w]);
    return top;
}

/* One row of a span. memory: q [dim], out [dim], a weight for each thread. */
template <typename T>
__device__ static void attend_row(const attention_task &t, const proa_side_keys &side, const proa_span &s,
                                  float *memory, float *scratch, int i, int h)
{
    float *q = memory, *out = q + t.dim, *weight = out + t.dim, largest = -INFINITY, total = 0.0f;
    seen_keys keys = find_keys(t, side, s, i);
    int kv = h / t.group, all = keys.end - keys.begin + keys.count;
    __syncthreads();
    for (int e = threadIdx.x; e < t.dim; e += THREADS)
        q[e] = read_q(t, (s.row + i) * t.q_row + h * t.q_head + e), out[e] = 0.0f;
    __syncthreads();
    for (int base = 0; base < all; base += THREADS) {
        int n = base + (int)threadIdx.x, count = min(all - base, (int)THREADS);
        float score = n < all ? score_key<T>(t, side, s, keys, q, n, i, h) : -INFINITY;
        float now = fmaxf(largest, block_max(score, scratch));
        float shrink = largest == -INFINITY ? 0.0f : expf(largest - now);
        weight[threadIdx.x] = expf(score - (now == -INFINITY ? 0.0f : now)); /* NaN stays NaN */
        total = total * shrink + gpu_block_sum(weight[threadIdx.x], scratch);
        __syncthreads();
        for (int e = threadIdx.x; e < t.dim; e += THREADS) {
            float sum = out[e] * shrink;
            for (int k = 0; k < count; k++)
                sum = fmaf(weight[k], value_of<T>(t, side, s, keys, base + k, kv, e), sum);
            out[e] = sum;
        }
        largest = now;
    }
    __syncthreads();
    total += sink_weight(t, h, largest * 1.4426950408889634f);
    for (int e = threadIdx.x; e < t.dim; e += THREADS)
        write_y(t, (s.row + i) * t.y_row + h * t.y_head + e, all > 0 ? out[e] / total : 0.0f);
}

/* Grid: span, row, head. */
template <typename T>
__global__ void __launch_bounds__(THREADS) side_kernel(attention_task t, proa_side_keys side, bool of_globals)
{
    extern __shared__ float memory[];
    __shared__ float scratch[33];
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    int rows = of_globals ? min(s.globals, s.rows) : s.rows;
    for (int i = blockIdx.y; i < rows; i += gridDim.y)
        attend_row<T>(t, side, s, memory, scratch, i, (int)blockIdx.z);
}

void gpu_attend_side(gpu *g, const attention_task &t, proa_dtype keys, const proa_attention &a,
                     const proa_spans *spans)
{
    int rows = spans->rows_max < 4096 ? spans->rows_max : 4096;
    proa_side_keys side = {};
    if (rows < 1 || gpu_prefill_side(g, t, keys, a, spans)) return;
    if (a.side) side = *a.side;
    gpu_by_page_type(keys, [&](auto type) {
        gpu_launch(g, "attend (side)", side_kernel<decltype(type)>,
                   dim3((unsigned)spans->count, (unsigned)rows, (unsigned)t.heads), THREADS,
                   (size_t)(2 * t.dim + THREADS) * sizeof(float), t, side, a.of_globals);
    });
}
