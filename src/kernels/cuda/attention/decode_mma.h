/* SPDX-License-Identifier: Apache-2.0
 * decode_mma.h - what decode_mma.cu and decode_fallback.cu share: how the results of parts of a context are
 * combined. A part of one head is sums [dim], its largest score in powers of 2, and the total of its weights
 * relative to that. */
#ifndef PROA_KERNELS_CUDA_ATTENTION_DECODE_MMA_H
#define PROA_KERNELS_CUDA_ATTENTION_DECODE_MMA_H

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/tile.h"

enum {
    PART_TAIL = 4 /* two are used; the rest keeps pieces of 16 bytes, and heads of a part in different banks */,
    SPLITS_MAX = 64,
    HEADS_MAX = 16 /* of a block */
};

static const float LOG2_E = 1.4426950408889634f;

/* What a block works on: the query heads [first, first + heads) of one key head, in one span. */
struct block_work {
    int span, row, kv, first, heads, split, splits;
};

/* Blocks are (span, key head and up to `most` of its query heads, split). */
__device__ static inline block_work block_work_of(const attention_task &t, int most)
{
    block_work b;
    int tiles = (t.group + most - 1) / most, of_group = (int)blockIdx.y % tiles * most;
    b.span = blockIdx.x, b.row = t.spans[b.span].row, b.kv = blockIdx.y / tiles;
    b.first = b.kv * t.group + of_group, b.heads = min(t.group - of_group, most);
    b.split = blockIdx.z, b.splits = gridDim.z;
    return b;
}

/* The factor of each part of a head, and what the head's sums are divided by. */
struct shares {
    float of[HEADS_MAX][SPLITS_MAX], top[HEADS_MAX], total[HEADS_MAX];
};

/* A number of a part. GLOBAL: other blocks wrote it, so it is not read through this SM's L1 cache. */
template <bool GLOBAL, typename T> __device__ static inline T part_of(const T *p)
{
    if constexpr (GLOBAL) return __ldcg(p);
    else return *p;
}

/* Computes the factors of `count` parts of each head; parts are `step` apart, heads `ld`. One warp for each
 * head, then a block barrier. */
template <bool GLOBAL>
__device__ static inline void weigh_parts(shares &to, const float *parts, int64_t step, int64_t ld, int count,
                                          int heads, int dim)
{
    int lane = threadIdx.x & 31;
    for (int h = threadIdx.x / 32; h < heads; h += blockDim.x / 32) {
        const float *tail = parts + h * ld + dim;
        float top[SPLITS_MAX / 32], total[SPLITS_MAX / 32], largest = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int k = 0; k < SPLITS_MAX / 32; k++) {
            int i = k * 32 + lane;
            top[k] = i < count ? part_of<GLOBAL>(tail + i * step) : -INFINITY;
            total[k] = i < count ? part_of<GLOBAL>(tail + i * step + 1) : 0.0f;
            largest = fmaxf(largest, top[k]);
        }
#pragma unroll
        for (int o = 16; o > 0; o >>= 1) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, o));
#pragma unroll
        for (int k = 0; k < SPLITS_MAX / 32; k++) {
            float share = exp2_approx(top[k] - (largest == -INFINITY ? 0.0f : largest));
            to.of[h][k * 32 + lane] = share;
            sum = fmaf(share, total[k], sum);
        }
        sum = gpu_warp_sum(sum);
        if (lane == 0) to.top[h] = largest, to.total[h] = sum;
    }
    __syncthreads();
}

/* Numbers e to e + 3 of a head, added in the order of its parts. */
template <bool GLOBAL>
__device__ static inline float4 add_parts(const shares &from, const float *parts, int64_t step, int count,
                                          int h, int e)
{
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int i = 0; i < count; i++) {
        float4 v = part_of<GLOBAL>(reinterpret_cast<const float4 *>(parts + i * step + e));
        float w = from.of[h][i];
        sum.x = fmaf(w, v.x, sum.x), sum.y = fmaf(w, v.y, sum.y), sum.z = fmaf(w, v.z, sum.z),
        sum.w = fmaf(w, v.w, sum.w);
    }
    return sum;
}

/* The end of a head: its sums divided by all weights, the sink's too. */
__device__ static inline void write_four(const attention_task &t, const block_work &b, int h, int e,
                                         float4 sum, const shares &share)
{
    float total = share.total[h] + sink_weight(t, b.first + h, share.top[h]);
    int64_t at = b.row * t.y_row + (b.first + h) * t.y_head + e;
    float inverse = total > 0.0f || isnan(total) ? 1.0f / total : 0.0f;
    write_y(t, at, sum.x * inverse), write_y(t, at + 1, sum.y * inverse);
    write_y(t, at + 2, sum.z * inverse), write_y(t, at + 3, sum.w * inverse);
}

/* Is this block the last of `count` to arrive at the counter? Then what the others wrote before is visible to
 * it. */
__device__ static inline bool arrives_last(unsigned *counter, int count)
{
    __threadfence();
    bool last = atomicAdd(counter, 1u) + 1 == (unsigned)count;
    __threadfence();
    if (last) *counter = 0;
    return last;
}

/* Shared memory for the end of a block. */
static inline size_t combine_bytes(int parts, int heads, int dim)
{
    return (size_t)parts * heads * (dim + PART_TAIL) * sizeof(float) + sizeof(shares);
}

/* The end of a block. Its parts, [part][head][dim + PART_TAIL] in shared memory with room for `shares` behind
 * them, are combined and written. With a split context they go to `partials` [span][head][split][dim +
 * PART_TAIL], and the block that arrives last adds those in the order of the splits. */
__device__ static inline void combine_parts(const attention_task &t, const block_work &b, float *parts,
                                            int count, float *partials, unsigned *counters)
{
    __shared__ bool is_last;
    const int width = t.dim + PART_TAIL, fours = t.dim / 4;
    shares &share = *reinterpret_cast<shares *>(parts + count * b.heads * width);
    float *mine = partials + (((int64_t)b.span * t.heads + b.first) * b.splits + b.split) * width;
    __syncthreads();
    weigh_parts<false>(share, parts, b.heads * width, width, count, b.heads, t.dim);
    for (int i = threadIdx.x; i < b.heads * fours; i += blockDim.x) {
        int h = i / fours, e = i % fours * 4;
        float4 sum = add_parts<false>(share, parts + h * width, b.heads * width, count, h, e);
        if (b.splits == 1) write_four(t, b, h, e, sum, share);
        else *reinterpret_cast<float4 *>(mine + (int64_t)h * b.splits * width + e) = sum;
    }
    if (b.splits == 1) return;
    for (int h = threadIdx.x; h < b.heads; h += blockDim.x)
        *reinterpret_cast<float2 *>(mine + (int64_t)h * b.splits * width +
                                    t.dim) = make_float2(share.top[h], share.total[h]);
    __syncthreads();
    if (threadIdx.x == 0) is_last = arrives_last(counters + b.span * gridDim.y + blockIdx.y, b.splits);
    __syncthreads();
    if (!is_last) return;
    mine -= (int64_t)b.split * width;
    weigh_parts<true>(share, mine, width, (int64_t)b.splits * width, b.splits, b.heads, t.dim);
    for (int i = threadIdx.x; i < b.heads * fours; i += blockDim.x) {
        int h = i / fours, e = i % fours * 4;
        float4 sum = add_parts<true>(share, mine + (int64_t)h * b.splits * width, width, b.splits, h, e);
        write_four(t, b, h, e, sum, share);
    }
}

/* Workspace for the parts of split contexts; NULL if contexts are not split. */
static inline float *partials_for(gpu *g, const attention_task &t, int spans, int splits)
{
    return splits > 1
               ? gpu_partials_workspace(g, (size_t)spans * t.heads * splits * (t.dim + PART_TAIL) * sizeof(float))
               : NULL;
}

/* Spans of one row on CUDA cores: pages of any type, head sizes of up to 64 whole pieces of 16 bytes. */
void gpu_decode_fallback(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context);

#endif
