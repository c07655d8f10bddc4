/* SPDX-License-Identifier: Apache-2.0
 * decode_fallback.cu - attention for spans of one row on CUDA cores, for head sizes and types that
 * decode_mma.cu does not take. */
#include "kernels/cuda/attention/decode_mma.h"

enum {
    FALLBACK_THREADS = 256,
    FALLBACK_WARPS = 8,
    UNIT = 32 /* keys: what a block of eight warps reads at once of the widest heads */
};

/* y = softmax(score_mod(scale q K^T)) V for one row of a span and up to HEADS query heads of one key head.
 *
 *   lanes      LANES lanes hold one key, VECS pieces of 16 bytes each; a warp reads 32 / LANES keys at once, UNROLL times
 *   heads      HEADS query heads use each key that was read
 *   registers  q and sums, HEADS x VECS x 16 bytes of T as f32 each; UNROLL x VECS x 2 pieces in flight
 *   shared     8 warps x 32 / LANES parts of HEADS heads (combine_parts)
 *
 * Each group of lanes keeps its own running maximum; they are combined at the end. Grid: span, key head and
 * its query heads, split of the context. */
template <typename T, int LANES, int VECS, int HEADS>
__global__ void __launch_bounds__(FALLBACK_THREADS)
    decode_fallback_kernel(attention_task t, float *partials, unsigned *counters)
{
    const int COUNT = 16 / sizeof(T), NUMBERS = VECS * COUNT, AT_ONCE = 32 / LANES, UNROLL = HEADS >= 4 ? 2 : 4;
    extern __shared__ __align__(16) float shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = lane / LANES, slot = lane % LANES;
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    if (!is_single_row(s)) return;
    const block_work b = block_work_of(t, HEADS);
    int begin, end, at = s.context - 1;
    visible_keys(t, s, 0, &begin, &end);
    int each = ((end + UNIT - 1) / UNIT - begin / UNIT + b.splits - 1) / b.splits;
    int from = (begin / UNIT + b.split * each) * UNIT, to = min(from + each * UNIT, end);
    from = max(from, begin);
    auto number = [&](int i) { return (i / COUNT * LANES + slot) * COUNT + i % COUNT; };
    float q[HEADS][NUMBERS], sum[HEADS][NUMBERS], largest[HEADS], total[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        int64_t head = s.row * t.q_row + (b.first + (h < b.heads ? h : 0)) * t.q_head;
        largest[h] = -INFINITY, total[h] = 0.0f;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) {
            q[h][i] = number(i) < t.dim ? read_q(t, head + number(i)) * t.scale : 0.0f;
            sum[h][i] = 0.0f;
        }
    }
    const int STEP = FALLBACK_WARPS * AT_ONCE;
    for (int base = from; base < to; base += STEP * UNROLL) {
        uint4 key[UNROLL][VECS], value[UNROLL][VECS];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            const T *kr = p < to ? key_row<T>(t, t.k, s, p, b.kv) : NULL,
                    *vr = p < to ? key_row<T>(t, t.v, s, p, b.kv) : NULL;
#pragma unroll
            for (int n = 0; n < VECS; n++) {
                bool in = p < to && number(n * COUNT) < t.dim;
                key[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(kr + number(n * COUNT)))
                               : make_uint4(0, 0, 0, 0);
                value[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(vr + number(n * COUNT)))
                                 : make_uint4(0, 0, 0, 0);
            }
        }
        float weight[UNROLL][HEADS];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            const T *numbers = reinterpret_cast<const T *>(key[u]);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < NUMBERS; i++) dot = fmaf(q[h][i], gpu_to_f32(numbers[i]), dot);
#pragma unroll
                for (int o = LANES / 2; o > 0; o >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, o);
                int head = b.first + (h < b.heads ? h : 0);
                if (t.has_score_mod && p < to)
                    dot = score_mod(t, dot, bias_of(t, head, p - at), slope_of(t, head), p - at);
                weight[u][h] = p < to ? dot : -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float now = largest[h];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) now = fmaxf(now, weight[u][h]);
            float usable = now == -INFINITY ? 0.0f : now, shrink = __expf(largest[h] - usable);
            total[h] *= shrink, largest[h] = now;
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) sum[h][i] *= shrink;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const T *numbers = reinterpret_cast<const T *>(value[u]);
                float w = __expf(weight[u][h] - usable);
                total[h] += w;
#pragma unroll
                for (int i = 0; i < NUMBERS; i++) sum[h][i] = fmaf(w, gpu_to_f32(numbers[i]), sum[h][i]);
            }
        }
    }
    const int ld = t.dim + PART_TAIL;
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= b.heads) continue;
        float *mine = shared + ((warp * AT_ONCE + part) * b.heads + h) * ld;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++)
            if (number(i) < t.dim) mine[number(i)] = sum[h][i];
        if (slot == 0) mine[t.dim] = largest[h] * LOG2_E, mine[t.dim + 1] = total[h];
    }
    combine_parts(t, b, shared, FALLBACK_WARPS * AT_ONCE, partials, counters);
}

template <typename T, int LANES, int VECS, int HEADS>
static void launch_fallback(gpu *g, const attention_task &t, int spans, int splits)
{
    auto kernel = decode_fallback_kernel<T, LANES, VECS, HEADS>;
    unsigned blocks = (unsigned)(t.kv_heads * ((t.group + HEADS - 1) / HEADS));
    size_t shared = combine_bytes(FALLBACK_WARPS * (32 / LANES), HEADS, t.dim);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
             "attend (fallback)");
    gpu_launch(g, "attend (fallback)", kernel, dim3((unsigned)spans, blocks, (unsigned)splits),
               FALLBACK_THREADS, shared, t, partials_for(g, t, spans, splits), g->counters);
}

/* Up to four query heads read a key together. */
template <typename T, int LANES, int VECS>
static void fallback_groups(gpu *g, const attention_task &t, int spans, int splits)
{
    if (t.group == 1) launch_fallback<T, LANES, VECS, 1>(g, t, spans, splits);
    else launch_fallback<T, LANES, VECS, 4>(g, t, spans, splits);
}

/* Enough blocks for all SMs; the same number for all contexts of a length class. */
static int splits_for(const gpu *g, const attention_task &t, int spans, int context)
{
    int blocks = spans * t.kv_heads * ((t.group + 3) / 4), most = (context + UNIT - 1) / UNIT;
    int splits = (2 * g->sms + blocks - 1) / blocks;
    splits = min(splits, min(most, (int)SPLITS_MAX));
    return splits < 1 || blocks > GPU_COUNTERS ? 1 : splits;
}

template <typename T> static void fallback_dims(gpu *g, const attention_task &t, int spans, int splits)
{
    int pieces = t.dim * (int)sizeof(T) / 16;
    if (pieces <= 4) fallback_groups<T, 4, 1>(g, t, spans, splits);
    else if (pieces <= 8) fallback_groups<T, 8, 1>(g, t, spans, splits);
    else if (pieces <= 16) fallback_groups<T, 16, 1>(g, t, spans, splits);
    else if (pieces <= 32) fallback_groups<T, 32, 1>(g, t, spans, splits);
    else fallback_groups<T, 32, 2>(g, t, spans, splits);
}

void gpu_decode_fallback(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context)
{
    gpu_by_page_type(pages, [&](auto page) {
        fallback_dims<decltype(page)>(g, t, spans, splits_for(g, t, spans, context));
    });
}
