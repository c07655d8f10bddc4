/* SPDX-License-Identifier: Apache-2.0
 * lanes.cu - attention of spans of one row on CUDA cores, for sizes and types that decode.cu does not take: the numbers of a
 * key lie along some lanes, several keys are read at once, contexts are split over blocks. */
#include "kernels/cuda/attention/decode_mma.h"

enum { LANES_THREADS = 256, LANES_WARPS = 8,
       UNIT = 32 /* keys: what a block of eight warps reads at once of the widest heads */ };

/* LANES lanes hold a key, each NV pieces of 16 bytes; G query heads read it together. Each group of lanes keeps a
 * running maximum of its own; they meet at the end. */
template <typename T, int LANES, int NV, int G>
__global__ void __launch_bounds__(LANES_THREADS) lanes_kernel(task t, float *partials, unsigned *counters)
{
    const int COUNT = 16 / sizeof(T), NUMBERS = NV * COUNT, AT_ONCE = 32 / LANES, U = G >= 4 ? 2 : 4;
    extern __shared__ __align__(16) float shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = lane / LANES, slot = lane % LANES;
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    if (s.rows != 1) return;
    const stretch b = stretch_of(t, G);
    int begin, end, at = s.context - 1;
    range_of(t, s, 0, &begin, &end);
    int each = ((end + UNIT - 1) / UNIT - begin / UNIT + b.splits - 1) / b.splits;
    int from = (begin / UNIT + b.split * each) * UNIT, to = min(from + each * UNIT, end);
    from = max(from, begin);
    auto number = [&](int i) { return (i / COUNT * LANES + slot) * COUNT + i % COUNT; };
    float q[G][NUMBERS], sum[G][NUMBERS], largest[G], total[G];
#pragma unroll
    for (int h = 0; h < G; h++) {
        int64_t head = s.row * t.q_row + (b.first + (h < b.heads ? h : 0)) * t.q_head;
        largest[h] = -INFINITY, total[h] = 0.0f;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++) {
            q[h][i] = number(i) < t.dim ? read_q(t, head + number(i)) * t.scale : 0.0f;
            sum[h][i] = 0.0f;
        }
    }
    const int STEP = LANES_WARPS * AT_ONCE;
    for (int base = from; base < to; base += STEP * U) {
        uint4 key[U][NV], value[U][NV];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            const T *kr = p < to ? key_row<T>(t, t.k, s, p, b.kv) : NULL, *vr = p < to ? key_row<T>(t, t.v, s, p, b.kv) : NULL;
#pragma unroll
            for (int n = 0; n < NV; n++) {
                bool in = p < to && number(n * COUNT) < t.dim;
                key[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(kr + number(n * COUNT))) : make_uint4(0, 0, 0, 0);
                value[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(vr + number(n * COUNT))) : make_uint4(0, 0, 0, 0);
            }
        }
        float weight[U][G];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            const T *numbers = reinterpret_cast<const T *>(key[u]);
#pragma unroll
            for (int h = 0; h < G; h++) {
                float dot = 0.0f;
#pragma unroll
                for (int i = 0; i < NUMBERS; i++) dot = fmaf(q[h][i], gpu_to_f32(numbers[i]), dot);
#pragma unroll
                for (int o = LANES / 2; o > 0; o >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, o);
                int head = b.first + (h < b.heads ? h : 0);
                if (t.shaped && p < to) dot = score_of(t, dot, bias_of(t, head, p - at), slope_of(t, head), p - at);
                weight[u][h] = p < to ? dot : -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < G; h++) {
            float now = largest[h];
#pragma unroll
            for (int u = 0; u < U; u++) now = fmaxf(now, weight[u][h]);
            float usable = now == -INFINITY ? 0.0f : now, shrink = __expf(largest[h] - usable);
            total[h] *= shrink, largest[h] = now;
#pragma unroll
            for (int i = 0; i < NUMBERS; i++) sum[h][i] *= shrink;
#pragma unroll
            for (int u = 0; u < U; u++) {
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
    for (int h = 0; h < G; h++) {
        if (h >= b.heads) continue;
        float *mine = shared + ((warp * AT_ONCE + part) * b.heads + h) * ld;
#pragma unroll
        for (int i = 0; i < NUMBERS; i++)
            if (number(i) < t.dim) mine[number(i)] = sum[h][i];
        if (slot == 0) mine[t.dim] = largest[h] * LOG2_E, mine[t.dim + 1] = total[h];
    }
    meet(t, b, shared, LANES_WARPS * AT_ONCE, partials, counters);
}

template <typename T, int LANES, int NV, int G> static void launch_lanes(gpu *g, const task &t, int spans, int splits)
{
    auto kernel = lanes_kernel<T, LANES, NV, G>;
    unsigned blocks = (unsigned)(t.kv_heads * ((t.group + G - 1) / G));
    size_t shared = meeting_bytes(LANES_WARPS * (32 / LANES), G, t.dim);
    gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "attend (lanes)");
    gpu_launch(g, "attend (lanes)", kernel, dim3((unsigned)spans, blocks, (unsigned)splits), LANES_THREADS, shared, t,
               parts_room(g, t, spans, splits), g->counters);
}

/* Up to four query heads read a key together. */
template <typename T, int LANES, int NV> static void lanes_groups(gpu *g, const task &t, int spans, int splits)
{
    if (t.group == 1) launch_lanes<T, LANES, NV, 1>(g, t, spans, splits);
    else launch_lanes<T, LANES, NV, 4>(g, t, spans, splits);
}

/* Enough blocks for all SMs; the same for all contexts of a length class. */
static int splits_for(const gpu *g, const task &t, int spans, int context)
{
    int blocks = spans * t.kv_heads * ((t.group + 3) / 4), most = (context + UNIT - 1) / UNIT;
    int splits = (2 * g->sms + blocks - 1) / blocks;
    splits = min(splits, min(most, (int)SPLITS_MAX));
    return splits < 1 || blocks > GPU_COUNTERS ? 1 : splits;
}

template <typename T> static void lanes(gpu *g, const task &t, int spans, int splits)
{
    int pieces = t.dim * (int)sizeof(T) / 16;
    if (pieces <= 4) lanes_groups<T, 4, 1>(g, t, spans, splits);
    else if (pieces <= 8) lanes_groups<T, 8, 1>(g, t, spans, splits);
    else if (pieces <= 16) lanes_groups<T, 16, 1>(g, t, spans, splits);
    else if (pieces <= 32) lanes_groups<T, 32, 1>(g, t, spans, splits);
    else lanes_groups<T, 32, 2>(g, t, spans, splits);
}

void gpu_decode_lanes(gpu *g, const task &t, proa_dtype pages, int spans, int context)
{
    gpu_by_page_type(pages, [&](auto page) { lanes<decltype(page)>(g, t, spans, splits_for(g, t, spans, context)); });
}
