/* SPDX-License-Identifier: Apache-2.0
 * decode_short.cu - attention for a few spans of one row over short contexts, where latency is everything.
 * Keys and values of earlier steps are loaded before gpu_wait, a cluster of blocks shares a head's keys, and
 * its parts are added through distributed shared memory, so nothing goes through global memory (compute
 * capability 9.0). */
#include "kernels/cuda/attention/attention.h"

#include <cooperative_groups.h>

namespace groups = cooperative_groups;

enum { THREADS = 256, WARPS = THREADS / 32, CLUSTER_MAX = 8 };

/* 16 bytes of keys or values as floats. */
template <typename T> struct key_vec {
    static const int COUNT = 16 / sizeof(T);
    __device__ static void open(float out[COUNT], uint4 v)
    {
        const T *t = reinterpret_cast<const T *>(&v);
#pragma unroll
        for (int i = 0; i < COUNT; i++) out[i] = gpu_to_f32(t[i]);
    }
};

/* The lane's part of the query, scaled. */
template <int COUNT>
__device__ static inline void load_q(float out[COUNT], const attention_task &t, int64_t at, bool in)
{
    if (COUNT == 8 && t.q_vec8) { /* 16 bits */
        uint4 v = in ? *reinterpret_cast<const uint4 *>((const __half *)t.q + at) : make_uint4(0, 0, 0, 0);
        const __half *h = reinterpret_cast<const __half *>(&v);
        const __nv_bfloat16 *b = reinterpret_cast<const __nv_bfloat16 *>(&v);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            out[i] = t.scale * (t.type == PROA_DTYPE_F16 ? __half2float(h[i % 8]) : __bfloat162float(b[i % 8]));
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
        float4 f = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (in && t.q_vec4) f = *reinterpret_cast<const float4 *>((const float *)t.q + at + i);
        else if (in)
            f = make_float4(read_q(t, at + i), read_q(t, at + i + 1), read_q(t, at + i + 2),
                            read_q(t, at + i + 3));
        out[i] = f.x * t.scale, out[i + 1] = f.y * t.scale, out[i + 2] = f.z * t.scale,
        out[i + 3] = f.w * t.scale;
    }
}

__device__ static inline uint4 load_past_l1(const void *p)
{
    return __ldcg(reinterpret_cast<const uint4 *>(p));
}

/* What a block knows of its keys besides sums [dim] in shared memory: the largest score and the sum of
 * weights. */
struct part_result {
    float largest, total;
};

#if __CUDA_ARCH__ >= 900
/* Adds the parts of the cluster. Each block writes its share of the head's dimensions. */
__device__ static void combine_cluster(const attention_task &t, const float *sums, const part_result *mine,
                                       int64_t at, float sink)
{
    groups::cluster_group cluster = groups::this_cluster();
    int count = (int)cluster.num_blocks(), rank = (int)cluster.block_rank(), each = (t.dim + count - 1) / count;
    cluster.sync();
    float largest = -INFINITY, total = 0.0f;
    part_result part[CLUSTER_MAX];
    float weight[CLUSTER_MAX]; /* of a part: 0 where there is none */
#pragma unroll
    for (int i = 0; i < CLUSTER_MAX; i++) {
        part[i].largest = -INFINITY, part[i].total = 0.0f;
        if (i < count) part[i] = *cluster.map_shared_rank(mine, i);
        largest = fmaxf(largest, part[i].largest);
    }
    float base = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
    for (int i = 0; i < CLUSTER_MAX; i++)
        weight[i] = __expf(part[i].largest - base), total += weight[i] * part[i].total;
    total += weight_of_sink(sink, base * 1.4426950408889634f);
    for (int j = rank * each + (int)threadIdx.x; j < t.dim && j < (rank + 1) * each; j += blockDim.x) {
        float v = 0.0f;
#pragma unroll
        for (int i = 0; i < CLUSTER_MAX; i++)
            if (i < count) v = fmaf(weight[i], *cluster.map_shared_rank(sums + j, i), v);
        write_y(t, at + j, total > 0.0f || isnan(total) ? v / total : 0.0f);
    }
    cluster.sync(); /* no block leaves while its memory is read */
}
#endif

/* Combines the results of a warp's groups of lanes, into sums [WARPS][dim], tops and totals. */
template <int LANES, int VECS, int COUNT>
__device__ static inline void combine_lanes(float (*sum)[COUNT], float largest, float total, int dim,
                                            float *sums, float *tops, float *totals)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = lane / LANES, slot = lane % LANES;
    float top = largest;
#pragma unroll
    for (int o = LANES; o < 32; o <<= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
    float scale = __expf(largest - (top == -INFINITY ? 0.0f : top));
    total *= scale;
#pragma unroll
    for (int o = LANES; o < 32; o <<= 1) total += __shfl_xor_sync(0xffffffffu, total, o);
#pragma unroll
    for (int n = 0; n < VECS; n++)
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            float v = sum[n][i] * scale;
#pragma unroll
            for (int o = LANES; o < 32; o <<= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
            int e = (n * LANES + slot) * COUNT + i;
            if (part == 0 && e < dim) sums[warp * dim + e] = v;
        }
    if (lane == 0) tops[warp] = top, totals[warp] = total;
}

/* Combines the parts of the warps: into y, or, for a cluster, into sums [dim] and *mine of this block. */
__device__ static inline void combine_warps(const attention_task &t, float *sums, const float *tops,
                                            const float *totals, part_result *mine, bool alone, int64_t y,
                                            float sink)
{
    float weight[WARPS], all = 0.0f, top = -INFINITY;
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w]);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        weight[w] = __expf(tops[w] - (top == -INFINITY ? 0.0f : top));
        all = fmaf(weight[w], totals[w], all);
    }
    float more = weight_of_sink(sink, top * 1.4426950408889634f);
    for (int j = threadIdx.x; j < t.dim; j += THREADS) {
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v = fmaf(weight[w], sums[w * t.dim + j], v);
        if (alone) write_y(t, y + j, all > 0.0f || isnan(all) ? v / (all + more) : 0.0f);
        else sums[j] = v; /* its own column, which no other thread reads */
    }
    if (!alone && threadIdx.x == 0) mine->largest = top, mine->total = all;
}

/* A lane's COUNT numbers of a head of LANES x COUNT: normed if `normed`, and turned. second: they are of the head's
 * second half. All lanes of the warp call it. */
template <int LANES, int COUNT>
__device__ static inline void norm_and_turn(float (&v)[COUNT], const float (&w)[COUNT], bool normed, float eps,
                                            const float (&cosine)[COUNT], const float (&sine)[COUNT], bool second)
{
    if (normed) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i++) sum = fmaf(v[i], v[i], sum);
#pragma unroll
        for (int o = LANES / 2; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        float inverse = 1.0f / sqrtf(sum / (float)(LANES * COUNT) + eps);
#pragma unroll
        for (int i = 0; i < COUNT; i++) v[i] = v[i] * inverse * w[i];
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        float other = __shfl_xor_sync(0xffffffffu, v[i], LANES / 2);
        v[i] = v[i] * cosine[i] + (second ? other : -other) * sine[i];
    }
}

template <int COUNT> __device__ static inline void load_floats(float (&to)[COUNT], const float *from)
{
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        float4 v = reinterpret_cast<const float4 *>(from)[i];
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
}

/* COUNT numbers of a register's type from element `at` on, aligned to 16 bytes (four numbers of 16 bits: to 8). */
template <int COUNT>
__device__ static inline void load_numbers(float (&to)[COUNT], const void *from, int64_t at, int type)
{
    if (type == PROA_DTYPE_F32) return load_floats(to, (const float *)from + at);
    __align__(16) __half h[COUNT];
    const char *p = (const char *)from + at * 2;
#pragma unroll
    for (int i = 0; i < COUNT / 8; i++)
        reinterpret_cast<uint4 *>(h)[i] = reinterpret_cast<const uint4 *>(p)[i];
    if (COUNT < 8) *reinterpret_cast<uint2 *>(h) = *reinterpret_cast<const uint2 *>(p);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        to[i] = type == PROA_DTYPE_F16 ? __half2float(h[i])
                                       : __bfloat162float(reinterpret_cast<__nv_bfloat16 *>(h)[i]);
}

/* As they are stored in a page. */
template <typename T> __device__ static inline uint4 page_piece(const float (&v)[16 / sizeof(T)])
{
    __align__(16) T out[16 / sizeof(T)];
#pragma unroll
    for (int i = 0; i < (int)(16 / sizeof(T)); i++) out[i] = gpu_from_f32<T>(v[i]);
    return *reinterpret_cast<uint4 *>(out);
}

/* What a lane of new_rows makes: its part of the query, scaled, and of the newest key and value. */
template <typename T, int LANES> struct fresh_part {
    static const int COUNT = 16 / sizeof(T);
    float q_norm[COUNT], k_norm[COUNT];
    uint4 key, value;
    __device__ void load_norms(const new_rows &f, int e) /* before gpu_wait */
    {
        if (f.q_norm) load_floats(q_norm, f.q_norm + e), load_floats(k_norm, f.k_norm + e);
    }
    __device__ void make(float (&q)[COUNT], const new_rows &f, const attention_task &t, int64_t row, int h,
                         int kv, int slot)
    {
        float k[COUNT], v[COUNT], cosine[COUNT], sine[COUNT];
        int e = slot * COUNT, half = LANES * COUNT / 2, turn = e < half ? e : e - half;
        const float *table = f.table + row * f.table_row + turn;
        int64_t x = row * f.x_row + e;
        load_numbers(q, f.x, x + h * f.x_head, t.type);
        load_numbers(k, f.x, x + (t.heads + kv) * f.x_head, t.type);
        load_numbers(v, f.v, row * f.v_row + kv * f.v_head + e, t.type);
        load_floats(cosine, table), load_floats(sine, table + half);
        norm_and_turn<LANES>(q, q_norm, f.q_norm, f.q_eps, cosine, sine, e >= half);
        norm_and_turn<LANES>(k, k_norm, f.q_norm, f.k_eps, cosine, sine, e >= half);
        key = page_piece<T>(k), value = page_piece<T>(v);
#pragma unroll
        for (int i = 0; i < COUNT; i++) q[i] *= t.scale;
    }
    /* Writes them to where the key at position p is stored. */
    __device__ void store(const attention_task &t, const proa_span &s, int p, int kv, int slot) const
    {
        *(uint4 *)(key_row<T>(t, t.k, s, p, kv) + slot * COUNT) = key;
        *(uint4 *)(key_row<T>(t, t.v, s, p, kv) + slot * COUNT) = value;
    }
};

/* y = softmax(score_mod(scale q K^T)) V for one row and one head; pages of any type, head sizes of up to 64
 * pieces of 16 bytes.
 *
 *   lanes      LANES lanes hold one key, VECS pieces of 16 bytes each
 *   round      a block of 8 warps takes 8 x 32 / LANES x UNROLL keys
 *   registers  UNROLL x VECS x 2 pieces of keys and values in flight, q and sums as f32
 *   shared     8 x dim floats
 *
 * Grid: the blocks of a cluster (1 to 8), heads, spans. The first round of keys is loaded before gpu_wait,
 * except those that this pass writes. FRESH: this kernel makes the query, the newest key and its value from new_rows;
 * the first head of those that share a key writes them. */
template <typename T, int LANES, int VECS, int UNROLL, bool FRESH>
__global__ void __launch_bounds__(THREADS) decode_short_kernel(attention_task t, new_rows f)
{
#if __CUDA_ARCH__ >= 900
    const int COUNT = key_vec<T>::COUNT, AT_ONCE = 32 / LANES, STEP = WARPS * AT_ONCE;
    extern __shared__ float sums[]; /* [WARPS][dim] */
    __shared__ float tops[WARPS], totals[WARPS];
    __shared__ part_result mine;
    int span = blockIdx.z, h = blockIdx.y, rank = blockIdx.x, blocks = gridDim.x, kv = h / t.group;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = lane / LANES, slot = lane % LANES;
    proa_span s = t.spans[span]; /* uploaded before the pass began */
    int begin, end, at = s.context - 1;
    visible_keys(t, s, 0, &begin, &end);
    int each = (end - begin + blocks - 1) / blocks, from = begin + rank * each,
        to = from + each < end ? from + each : end;
    /* keys before `old` were written by earlier passes: all but the newest one; in an encoder none */
    int old = !is_single_row(s) ? 0 : t.causal ? s.context - 1 : s.context > 1 ? s.context : 0;
    uint4 key[UNROLL][VECS], value[UNROLL][VECS];
    float bias[UNROLL], slope = t.has_score_mod ? slope_of(t, h) : 0.0f, sink = sink_of(t, h);
    auto fetch_bias = [&](int base) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            bias[u] = t.has_score_mod && p < to ? bias_of(t, h, p - at) : 0.0f;
        }
    };
    auto fetch = [&](int base, int low, int high) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            if (p < low || p >= high) continue;
            const T *kr = key_row<T>(t, t.k, s, p, kv), *vr = key_row<T>(t, t.v, s, p, kv);
#pragma unroll
            for (int n = 0; n < VECS; n++) {
                int e = (n * LANES + slot) * COUNT;
                if (e < t.dim) key[u][n] = load_past_l1(kr + e), value[u][n] = load_past_l1(vr + e);
            }
        }
    };
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
#pragma unroll
        for (int n = 0; n < VECS; n++) key[u][n] = value[u][n] = make_uint4(0, 0, 0, 0);
    fetch(from, 0, to < old ? to : old);
    fetch_bias(from);
    fresh_part<T, LANES> fresh;
    if constexpr (FRESH) fresh.load_norms(f, slot * COUNT);
    gpu_wait();
    if (!is_single_row(s)) return; /* the whole cluster */
    float q[VECS][COUNT], sum[VECS][COUNT] = {}, largest = -INFINITY, total = 0.0f;
    if constexpr (FRESH) fresh.make(q[0], f, t, s.row, h, kv, slot);
    else
#pragma unroll
        for (int n = 0; n < VECS; n++) {
            int e = (n * LANES + slot) * COUNT;
            load_q<COUNT>(q[n], t, s.row * t.q_row + h * t.q_head + e, e < t.dim);
        }
    for (int base = from; base < to; base += STEP * UNROLL) {
        fetch(base, base == from ? old : 0, FRESH ? min(to, at) : to);
        if constexpr (FRESH)
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (base + u * STEP + warp * AT_ONCE + part == at)
                    key[u][0] = fresh.key, value[u][0] = fresh.value;
        if (base != from) fetch_bias(base);
        float score[UNROLL], now = largest;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            score[u] = -INFINITY;
            if (base + u * STEP >= to) continue; /* the whole block */
            score[u] = 0.0f;
#pragma unroll
            for (int n = 0; n < VECS; n++) {
                float k[COUNT];
                key_vec<T>::open(k, key[u][n]);
#pragma unroll
                for (int i = 0; i < COUNT; i++) score[u] = fmaf(q[n][i], k[i], score[u]);
            }
#pragma unroll
            for (int o = LANES / 2; o > 0; o >>= 1) score[u] += __shfl_xor_sync(0xffffffffu, score[u], o);
            if (t.has_score_mod && p < to) score[u] = score_mod(t, score[u], bias[u], slope, p - at);
            if (p >= to) score[u] = -INFINITY;
            now = fmaxf(now, score[u]);
        }
        float usable = now == -INFINITY ? 0.0f : now, shrink = __expf(largest - usable);
        total *= shrink;
#pragma unroll
        for (int n = 0; n < VECS; n++)
#pragma unroll
            for (int i = 0; i < COUNT; i++) sum[n][i] *= shrink;
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (base + u * STEP >= to) continue;
            float weight = __expf(score[u] - usable);
            total += weight;
#pragma unroll
            for (int n = 0; n < VECS; n++) {
                float v[COUNT];
                key_vec<T>::open(v, value[u][n]);
#pragma unroll
                for (int i = 0; i < COUNT; i++) sum[n][i] = fmaf(weight, v[i], sum[n][i]);
            }
        }
        largest = now;
    }
    combine_lanes<LANES, VECS, COUNT>(sum, largest, total, t.dim, sums, tops, totals);
    __syncthreads();
    int64_t y = s.row * t.y_row + h * t.y_head;
    combine_warps(t, sums, tops, totals, &mine, blocks == 1, y, sink);
    if (blocks > 1) combine_cluster(t, sums, &mine, y, sink);
    if constexpr (FRESH)
        if (h % t.group == 0 && from <= at && at < to && threadIdx.x < LANES) fresh.store(t, s, at, kv, slot);
#endif
}

template <typename T, int LANES, int VECS, int UNROLL>
static bool launch_short(gpu *g, const attention_task &t, int spans, int context, const new_rows &f)
{
    auto kernel = decode_short_kernel<T, LANES, VECS, UNROLL, false>;
    if constexpr (VECS == 1)
        if (f.x) kernel = decode_short_kernel<T, LANES, VECS, UNROLL, true>;
    if (f.x && (VECS > 1 || t.dim != LANES * key_vec<T>::COUNT)) return false;
    const int ROUND = WARPS * (32 / LANES) * UNROLL;
    /* Keys of a block. A second round costs less than the barriers of a cluster of two: context is rounded up
     * (model/staging.h), so often no key is left for it. */
    int blocks = 1, keys = context <= 2 * ROUND ? 2 * ROUND : ROUND;
    while (blocks < CLUSTER_MAX && blocks * keys < context) blocks *= 2;
    /* nearly all keys are in flight at once, 64 KB an SM; longer contexts are bound by bytes and belong to
     * decode_mma.cu */
    if (blocks * keys < context ||
        (int64_t)spans * t.heads * context * t.dim * (int)sizeof(T) * 2 > (int64_t)g->sms << 16)
        return false;
    gpu_launch_clusters(g, "attend (short)", kernel, dim3((unsigned)blocks, (unsigned)t.heads, (unsigned)spans),
                        (unsigned)blocks, THREADS, (size_t)WARPS * t.dim * sizeof(float), t, f);
    return true;
}

bool gpu_decode_short(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context,
                      const new_rows &fresh)
{
    bool done = false;
    if (!g->clusters || spans > SHORT_SPANS_MAX) return false;
    gpu_by_page_type(pages, [&](auto page) {
        using T = decltype(page);
        int pieces = t.dim * (int)sizeof(T) / 16;
        if (pieces <= 4) done = launch_short<T, 4, 1, 2>(g, t, spans, context, fresh);
        else if (pieces <= 8) done = launch_short<T, 8, 1, 4>(g, t, spans, context, fresh);
        else if (pieces <= 16) done = launch_short<T, 16, 1, 8>(g, t, spans, context, fresh);
        else if (pieces <= 32) done = launch_short<T, 32, 1, 8>(g, t, spans, context, fresh);
        else if (pieces <= 64) done = launch_short<T, 32, 2, 4>(g, t, spans, context, fresh);
    });
    return done;
}
