/* SPDX-License-Identifier: Apache-2.0
 * decode_short.cu - attention for a few spans of one row over short contexts, where latency is everything.
 * Keys and values of earlier steps are loaded before gpu_wait, a cluster of blocks shares a head's keys, and
 * its parts are added through distributed shared memory, so nothing goes through global memory (compute
 * capability 9.0). */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/tile.h"

#include <cooperative_groups.h>

namespace groups = cooperative_groups;

enum { THREADS = 512, WARPS = THREADS / 32, CLUSTER_MAX = 8, DIM_MAX = 512 /* 38 KB of shared memory */ };

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

__device__ static inline uint4 load_past_l1(const void *p)
{
    return __ldcg(reinterpret_cast<const uint4 *>(p));
}

__device__ static inline void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* e^x in two instructions. */
__device__ static inline float exp_short(float x)
{
    return exp2_approx(x * 1.4426950408889634f);
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
        weight[i] = exp_short(part[i].largest - base), total += weight[i] * part[i].total;
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
    float scale = exp_short(largest - (top == -INFINITY ? 0.0f : top));
    total *= scale;
#pragma unroll
    for (int o = LANES; o < 32; o <<= 1) total += __shfl_xor_sync(0xffffffffu, total, o);
#pragma unroll
    for (int n = 0; n < VECS; n++) {
        int e = (n * LANES + slot) * COUNT;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            sum[n][i] *= scale;
#pragma unroll
            for (int o = LANES; o < 32; o <<= 1) sum[n][i] += __shfl_xor_sync(0xffffffffu, sum[n][i], o);
        }
        if (part == 0 && e < dim)
#pragma unroll
            for (int i = 0; i < COUNT; i += 4)
                *reinterpret_cast<float4 *>(sums + warp * dim + e + i) = make_float4(
                    sum[n][i], sum[n][i + 1], sum[n][i + 2], sum[n][i + 3]);
    }
    if (lane == 0) tops[warp] = top, totals[warp] = total;
}

/* Combines the parts of the warps: into y, or, for a cluster, into sums [dim] and *mine of this block. */
__device__ static inline void combine_warps(const attention_task &t, float *sums, const float *tops,
                                            const float *totals, part_result *mine, bool alone, int64_t y,
                                            float sink)
{
    float top = -INFINITY, all = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w]);
    float base = top == -INFINITY ? 0.0f : top,
          more = t.sinks ? weight_of_sink(sink, top * 1.4426950408889634f) : 0.0f;
    for (int j = threadIdx.x; j < t.dim; j += THREADS) {
        float v = 0.0f;
        all = 0.0f;
#pragma unroll 4
        for (int w = 0; w < WARPS; w++) {
            float weight = exp_short(tops[w] - base);
            all = fmaf(weight, totals[w], all), v = fmaf(weight, sums[w * t.dim + j], v);
        }
        if (alone) write_y(t, y + j, all > 0.0f || isnan(all) ? __fdividef(v, all + more) : 0.0f);
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
        float inverse = rsqrtf(sum * (1.0f / (LANES * COUNT)) + eps);
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

/* N numbers as they are stored in a page. */
template <typename T, int N> struct alignas(N * sizeof(T)) page_piece {
    T at[N];
    __device__ explicit page_piece(const float (&v)[N])
    {
#pragma unroll
        for (int i = 0; i < N; i++) at[i] = gpu_from_f32<T>(v[i]);
    }
};

/* The span and the head of a block, and the keys that it has: [from, to). */
struct short_part {
    proa_span s;
    int h, kv, from, to;
    int at;  /* the row's position */
    int old; /* keys before it were written by earlier passes: all but the newest one; in an encoder none */
    __device__ short_part(const attention_task &t)
        : s(t.spans[blockIdx.z]), h(blockIdx.y), kv(t.group == 1 ? h : h / t.group), at(s.context - 1)
    {
        visible_keys(t, s, 0, &from, &to);
        if (gridDim.x > 1) take_part();
        old = !is_single_row(s) ? 0 : t.causal ? at : s.context > 1 ? s.context : 0;
    }
    __device__ void take_part()
    {
        int rank = blockIdx.x, blocks = gridDim.x, each = (to - from + blocks - 1) / blocks;
        from += rank * each, to = min(from + each, to);
    }
};

/* The rows that the warps 0, 1 and 2 make of new_rows: the query, scaled, the newest key and its value. */
enum { MADE_QUERY, MADE_KEY, MADE_VALUE, MADE_ROWS };

/* The key or the value in shared memory, as it is stored in a page. */
template <typename T> __device__ static inline T *made_of(float *made, int row, int dim)
{
    return reinterpret_cast<T *>(made + row * dim);
}

/* Makes the warp's row of DIM numbers into shared memory, `made` [MADE_ROWS][DIM]; with `stores` the key and the value
 * are also written to where they are stored. All three run the same instructions: what a block runs once it must
 * fetch. */
template <typename T, int DIM>
__device__ static inline void make_row(float *made, const attention_task &t, const new_rows &f,
                                       const short_part &b, bool stores)
{
    const int EACH = DIM / 32 > 4 ? DIM / 32 : 4, LANES = DIM / EACH; /* numbers of a lane, lanes */
    int row = threadIdx.x / 32, e = (int)threadIdx.x % LANES * EACH;
    bool value = row == MADE_VALUE, query = row == MADE_QUERY;
    const float *turn = f.table + b.s.row * f.table_row + (e < DIM / 2 ? e : e - DIM / 2);
    int64_t at = value ? b.s.row * f.v_row + b.kv * f.v_head
                       : b.s.row * f.x_row + (query ? b.h : t.heads + b.kv) * f.x_head;
    float v[EACH], w[EACH], cosine[EACH], sine[EACH];
    load_numbers(v, value ? f.v : f.x, at + e, t.type);
    if (!value) {
        load_floats(cosine, turn), load_floats(sine, turn + DIM / 2);
        if (f.q_norm) load_floats(w, (query ? f.q_norm : f.k_norm) + e);
        norm_and_turn<LANES>(v, w, f.q_norm, query ? f.q_eps : f.k_eps, cosine, sine, e >= DIM / 2);
    }
    if (threadIdx.x % 32 >= LANES) return;
    if (query) {
#pragma unroll
        for (int i = 0; i < EACH; i++) made[e + i] = v[i] * t.scale;
        return;
    }
    const page_piece<T, EACH> piece(v);
    *(page_piece<T, EACH> *)(made_of<T>(made, row, DIM) + e) = piece;
    if (stores) *(page_piece<T, EACH> *)(key_row<T>(t, value ? t.v : t.k, b.s, b.at, b.kv) + e) = piece;
}

/* What a thread has of a round of keys: UNROLL keys, of each of them VECS pieces. */
template <typename T, int LANES, int VECS, int UNROLL> struct short_round {
    static const int COUNT = key_vec<T>::COUNT, ROUND = THREADS / LANES * UNROLL;
    uint4 key[UNROLL][VECS], value[UNROLL][VECS];
    float bias[UNROLL], score[UNROLL];

    /* Of the round that begins at `base`, a multiple of UNROLL, the position of key u. A thread's keys follow each
     * other, so they are in one page. */
    __device__ static int position(int base, int u)
    {
        return base + (int)threadIdx.x / LANES * UNROLL + u;
    }
    __device__ void clear()
    {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int n = 0; n < VECS; n++) key[u][n] = value[u][n] = make_uint4(0, 0, 0, 0);
    }
    /* The keys below `high`, and their values. */
    __device__ void fetch(const attention_task &t, const short_part &b, int base, int high)
    {
        int p = position(base, 0), e = (int)threadIdx.x % LANES * COUNT;
        int64_t step = t.kv_row ? t.kv_row : t.dim;
        if (p >= high || e >= t.dim) return;
        const T *k = key_row<T>(t, t.k, b.s, p, b.kv) + e, *v = (const T *)t.v + (k - (const T *)t.k);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (p + u < b.from || p + u >= high) continue;
#pragma unroll
            for (int n = 0; n < VECS; n++)
                if (n == 0 || n * LANES * COUNT + e < t.dim) {
                    key[u][n] = load_past_l1(k + u * step + n * LANES * COUNT);
                    value[u][n] = load_past_l1(v + u * step + n * LANES * COUNT);
                }
        }
    }
    __device__ static void fetch_one(uint4 (&to)[VECS], const T *row, int dim)
    {
#pragma unroll
        for (int n = 0; n < VECS; n++) {
            int e = (n * LANES + (int)threadIdx.x % LANES) * COUNT;
            if (e < dim) to[n] = load_past_l1(row + e);
        }
    }
    /* Those from `base` on into the L2 cache: no registers hold them before they are needed. */
    __device__ static void prefetch(const attention_task &t, const short_part &b, int base, int high)
    {
        int e = (int)threadIdx.x % LANES * COUNT * VECS;
        for (int p = base + (int)threadIdx.x / LANES; p < high && e < t.dim; p += THREADS / LANES) {
            const T *k = key_row<T>(t, t.k, b.s, p, b.kv) + e;
            prefetch_l2(k), prefetch_l2((const T *)t.v + (k - (const T *)t.k));
        }
    }
    __device__ void fetch_bias(const attention_task &t, const short_part &b, int base)
    {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = position(base, u);
            bias[u] = p >= b.from && p < b.to ? bias_of(t, b.h, p - b.at) : 0.0f;
        }
    }
    /* The newest key and its value, if they are the thread's: those that were made, or from their pages. */
    template <bool FRESH>
    __device__ void put_newest(const attention_task &t, const short_part &b, int base, float *made)
    {
        bool new_here = b.at >= b.old && b.at >= b.from && b.at < b.to;
        if (!new_here || (b.at - base) / UNROLL != (int)threadIdx.x / LANES) return;
        uint4 k[VECS] = {}, v[VECS] = {};
        if constexpr (FRESH) {
            int e = (int)threadIdx.x % LANES * COUNT;
            k[0] = *(const uint4 *)(made_of<T>(made, MADE_KEY, t.dim) + e);
            v[0] = *(const uint4 *)(made_of<T>(made, MADE_VALUE, t.dim) + e);
        } else {
            fetch_one(k, key_row<T>(t, t.k, b.s, b.at, b.kv), t.dim);
            fetch_one(v, key_row<T>(t, t.v, b.s, b.at, b.kv), t.dim);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int n = 0; n < VECS; n++)
                if (position(base, u) == b.at) key[u][n] = k[n], value[u][n] = v[n];
    }
    /* The scores, the same in the lanes of a key; -INFINITY: there is no such key. Returns the largest of them and
     * `largest`. */
    __device__ float multiply(const attention_task &t, const short_part &b, int base,
                              const float (&q)[VECS][COUNT], float largest)
    {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
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
        }
        if (t.has_score_mod) modify(t, b, base);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            int p = position(base, u);
            if (p < b.from || p >= b.to) score[u] = -INFINITY;
            largest = fmaxf(largest, score[u]);
        }
        return largest;
    }
    __device__ void modify(const attention_task &t, const short_part &b, int base)
    {
        float slope = slope_of(t, b.h);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            score[u] = score_mod(t, score[u], bias[u], slope, position(base, u) - b.at);
    }
    /* Adds the values, each times its weight relative to `base_score`, and the weights to *total. */
    __device__ void add_values(float base_score, float (&sum)[VECS][COUNT], float *total) const
    {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float weight = exp_short(score[u] - base_score);
            *total += weight;
#pragma unroll
            for (int n = 0; n < VECS; n++) {
                float v[COUNT];
                key_vec<T>::open(v, value[u][n]);
#pragma unroll
                for (int i = 0; i < COUNT; i++) sum[n][i] = fmaf(weight, v[i], sum[n][i]);
            }
        }
    }
};

/* The online softmax of a thread's keys: the sums of values and of weights relative to the largest score. */
template <int VECS, int COUNT> struct short_sums {
    float sum[VECS][COUNT] = {}, largest = -INFINITY, total = 0.0f;
    /* Makes them relative to a score that is as large or larger. Returns it as a number. */
    __device__ float raise(float now)
    {
        float usable = now == -INFINITY ? 0.0f : now, shrink = exp_short(largest - usable);
        total *= shrink, largest = now;
#pragma unroll
        for (int n = 0; n < VECS; n++)
#pragma unroll
            for (int i = 0; i < COUNT; i++) sum[n][i] *= shrink;
        return usable;
    }
};

/* Whether the block writes the newest key: it is the first of those that have it. */
__device__ static inline bool stores_newest(const attention_task &t, const short_part &b)
{
    return b.h % t.group == 0 && b.from <= b.at && b.at < b.to;
}

/* A thread's part of the query. */
template <int LANES, int VECS, int COUNT>
__device__ static inline void read_query(float (&q)[VECS][COUNT], const float *made, int dim)
{
#pragma unroll
    for (int n = 0; n < VECS; n++)
#pragma unroll
        for (int i = 0; i < COUNT; i += 4) {
            int e = (n * LANES + (int)threadIdx.x % LANES) * COUNT + i;
            float4 v = e < dim ? *reinterpret_cast<const float4 *>(made + e)
                               : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            q[n][i] = v.x, q[n][i + 1] = v.y, q[n][i + 2] = v.z, q[n][i + 3] = v.w;
        }
}

/* The query of the block's row and head, scaled, into shared memory. */
__device__ static inline void load_query(float *made, const attention_task &t, const short_part &b)
{
    for (int j = threadIdx.x; j < t.dim; j += THREADS)
        made[j] = t.scale * read_q(t, b.s.row * t.q_row + b.h * t.q_head + j);
}

/* y = softmax(score_mod(scale q K^T)) V for one row and one head; pages of any type, head sizes of up to 64
 * pieces of 16 bytes and DIM_MAX.
 *
 *   lanes      LANES lanes hold one key, VECS pieces of 16 bytes each
 *   round      a block of 16 warps takes 16 x 32 / LANES x UNROLL keys
 *   registers  UNROLL x VECS x 2 pieces of keys and values in flight, q and sums as f32; at most 96, so that a block
 *              can start before the last ones of the kernel before have ended
 *   shared     made [3][dim], sums [16][dim]
 *
 * Grid: the blocks of a cluster (1 to 8), heads, spans. The first round of keys is loaded before gpu_wait, and later
 * ones requested from the L2 cache, except those that this pass writes. FRESH: this kernel makes the query, the newest
 * key and its value from new_rows; the first head of those that share a key writes them.
 *
 * A block runs nearly all instructions once, and has to fetch them from the L2 cache first. So their number counts more
 * than that of the instructions that are issued: many threads with few keys each, one copy of each stage. */
template <typename T, int LANES, int VECS, int UNROLL, bool FRESH>
__global__ void __maxnreg__(96) decode_short_kernel(attention_task t, new_rows f)
{
#if __CUDA_ARCH__ >= 900
    typedef short_round<T, LANES, VECS, UNROLL> keys;
    const int COUNT = keys::COUNT, ROUND = keys::ROUND;
    extern __shared__ float made[]; /* [MADE_ROWS][dim], then sums [WARPS][dim] */
    __shared__ float tops[WARPS], totals[WARPS];
    __shared__ part_result mine;
    const short_part b(t); /* spans are uploaded before the pass begins */
    float *sums = made + MADE_ROWS * t.dim, q[VECS][COUNT];
    keys round;
    short_sums<VECS, COUNT> out;
    round.clear();
    int first = b.from / UNROLL * UNROLL, base = first;
    do {
        round.fetch(t, b, base, min(b.to, b.old));
        if (t.has_score_mod) round.fetch_bias(t, b, base);
        if (base == first) {
            round.prefetch(t, b, base + ROUND, min(b.to, b.old));
            gpu_wait();
            if (!is_single_row(b.s)) return; /* the whole cluster */
            if constexpr (!FRESH) load_query(made, t, b);
            else if (threadIdx.x / 32 < MADE_ROWS)
                make_row<T, LANES * COUNT>(made, t, f, b, stores_newest(t, b));
            __syncthreads();
            read_query<LANES>(q, made, t.dim);
        }
        if (b.at < base + ROUND) round.template put_newest<FRESH>(t, b, base, made);
        float base_score = out.raise(round.multiply(t, b, base, q, out.largest));
        round.add_values(base_score, out.sum, &out.total);
        base += ROUND;
    } while (base < b.to);
    combine_lanes<LANES, VECS, COUNT>(out.sum, out.largest, out.total, t.dim, sums, tops, totals);
    __syncthreads();
    int64_t y = b.s.row * t.y_row + b.h * t.y_head;
    combine_warps(t, sums, tops, totals, &mine, gridDim.x == 1, y, sink_of(t, b.h));
    if (gridDim.x > 1) combine_cluster(t, sums, &mine, y, sink_of(t, b.h));
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
     * (model/staging/staging.h), so often no key is left for it. */
    int blocks = 1, keys = context <= 2 * ROUND ? 2 * ROUND : ROUND;
    while (blocks < CLUSTER_MAX && blocks * keys < context) blocks *= 2;
    /* nearly all keys are in flight at once, 64 KB an SM; longer contexts are bound by bytes and belong to
     * decode_mma.cu */
    if (blocks * keys < context ||
        (int64_t)spans * t.heads * context * t.dim * (int)sizeof(T) * 2 > (int64_t)g->sms << 16)
        return false;
    gpu_launch_clusters(g, "attend (short)", kernel, dim3((unsigned)blocks, (unsigned)t.heads, (unsigned)spans),
                        (unsigned)blocks, THREADS, (size_t)(MADE_ROWS + WARPS) * t.dim * sizeof(float), t, f);
    return true;
}

bool gpu_decode_short(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context,
                      const new_rows &fresh)
{
    bool done = false;
    if (!g->clusters || spans > SHORT_SPANS_MAX || t.dim > DIM_MAX) return false;
    gpu_by_page_type(pages, [&](auto page) {
        using T = decltype(page);
        int pieces = t.dim * (int)sizeof(T) / 16;
        if (pieces <= 4) done = launch_short<T, 4, 1, 1>(g, t, spans, context, fresh);
        else if (pieces <= 8) done = launch_short<T, 8, 1, 2>(g, t, spans, context, fresh);
        else if (pieces <= 16) done = launch_short<T, 16, 1, 4>(g, t, spans, context, fresh);
        else if (pieces <= 32) done = launch_short<T, 32, 1, 4>(g, t, spans, context, fresh);
        else if (pieces <= 64) done = launch_short<T, 32, 2, 2>(g, t, spans, context, fresh);
    });
    return done;
}
