/* SPDX-License-Identifier: Apache-2.0
 * attend.cu - keys and values into their pages, and attention through pages. Three kernels: `plain` takes any shape and
 * type and is what the others are compared with; `decode` takes spans of one row, splits long contexts over blocks and
 * adds the parts in a fixed order; `prefill` takes longer spans with tensor cores (mma.sync; the online softmax of
 * FlashAttention-2, Dao 2023). */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/mma.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = PROA_PAGE_TOKENS, DECODE_THREADS = 256, DECODE_WARPS = 8, PREFILL_THREADS = 128, SPLITS_MAX = 64,
       SPLIT = 32 /* keys: what a block of eight warps reads at once of the widest heads */ };

/* What all three read. */
struct task {
    float *y;
    int64_t y_row, y_head;
    const float *q;
    int64_t q_row, q_head;
    const void *k, *v;
    int heads, kv_heads, dim, group; /* group: query heads of a key head */
    const proa_span *spans;
    const int32_t *pages;
    float scale;
    bool causal;
    int window;
    const float *rel_bias;  /* [buckets][heads] */
    const int16_t *buckets; /* of distance -reach..reach */
    int reach;
};

/* ---- keys and values in ---- */

template <typename T>
__global__ void append_kernel(T *kp, T *vp, const float *k, int64_t k_row, int64_t k_head, const float *v, int64_t v_row,
                              int64_t v_head, const proa_span *spans, const int32_t *pages, int heads, int dim)
{
    int j = blockIdx.z * blockDim.x + threadIdx.x, h = j / dim, e = j % dim;
    gpu_wait();
    gpu_release();
    proa_span s = spans[blockIdx.x];
    if (h >= heads) return;
    for (int i = blockIdx.y; i < s.rows; i += gridDim.y) {
        int p = s.context - s.rows + i;
        int64_t page = pages[s.table + p / PAGE];
        int64_t to = ((page * heads + h) * PAGE + p % PAGE) * dim + e;
        kp[to] = gpu_from_f32<T>(k[(s.row + i) * k_row + h * k_head + e]);
        vp[to] = gpu_from_f32<T>(v[(s.row + i) * v_row + h * v_head + e]);
    }
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    gpu *g = flushed(c);
    unsigned rows = (unsigned)(spans->rows_max < 1024 ? spans->rows_max : 1024);
    dim3 grid((unsigned)spans->count, rows ? rows : 1, (unsigned)((kv->kv_heads * kv->head_dim + 255) / 256));
#define APPEND(T)                                                                                            \
    gpu_launch(g, "kv_append", append_kernel<T>, grid, 256, 0, (T *)kv->k, (T *)kv->v, (const float *)k.data,   \
               k.stride[0], k.stride[1], (const float *)v.data, v.stride[0], v.stride[1], spans->span,          \
               spans->pages, (int)kv->kv_heads, (int)kv->head_dim)
    if (kv->dtype == PROA_DTYPE_F16) APPEND(__half);
    else if (kv->dtype == PROA_DTYPE_BF16) APPEND(__nv_bfloat16);
    else APPEND(float);
#undef APPEND
}

/* ---- rope and append at once: the first heads * half threads of a row turn a pair of the queries each, the others one
 * element of the keys and of the values ---- */

struct turning {
    float *x;
    int64_t x_row, x_head;
    const float *v;
    int64_t v_row, v_head;
    const float *table;
    int64_t table_row;
    int heads, kv_heads, dim, half;
    bool interleaved;
};

__device__ static inline float turned(const turning &t, const float *head, const float *turn, int e)
{
    if (e >= 2 * t.half) return head[e];
    bool second = t.interleaved ? e & 1 : e >= t.half;
    int j = t.interleaved ? e / 2 : second ? e - t.half : e;
    int other = t.interleaved ? e ^ 1 : second ? e - t.half : e + t.half;
    float a = head[e], b = head[other];
    return a * turn[j] + (second ? b : -b) * turn[t.half + j];
}

template <typename T>
__global__ void rope_append_kernel(T *kp, T *vp, turning t, const proa_span *spans, const int32_t *pages)
{
    int i = blockIdx.z * blockDim.x + threadIdx.x, pairs = t.heads * t.half;
    gpu_wait();
    gpu_release();
    proa_span s = spans[blockIdx.x];
    for (int r = blockIdx.y; r < s.rows; r += gridDim.y) {
        const float *turn = t.table + (s.row + r) * t.table_row;
        float *row = t.x + (s.row + r) * t.x_row;
        if (i < pairs) {
            int h = i / t.half, j = i % t.half;
            float *head = row + h * t.x_head;
            int first = t.interleaved ? 2 * j : j, second = t.interleaved ? 2 * j + 1 : j + t.half;
            float a = head[first], b = head[second], cosine = turn[j], sine = turn[t.half + j];
            head[first] = a * cosine - b * sine;
            head[second] = b * cosine + a * sine;
        } else if (i - pairs < t.kv_heads * t.dim) {
            int h = (i - pairs) / t.dim, e = (i - pairs) % t.dim, p = s.context - s.rows + r;
            int64_t to = (((int64_t)pages[s.table + p / PAGE] * t.kv_heads + h) * PAGE + p % PAGE) * t.dim + e;
            kp[to] = gpu_from_f32<T>(turned(t, row + (t.heads + h) * t.x_head, turn, e));
            vp[to] = gpu_from_f32<T>(t.v[(s.row + r) * t.v_row + h * t.v_head + e]);
        }
    }
}

static void rope_append(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved, const proa_kv *kv,
                        const proa_spans *spans)
{
    gpu *g = flushed(c);
    turning t = {(float *)x.data, x.stride[0], x.stride[1], (const float *)v.data, v.stride[0], v.stride[1],
                 (const float *)table.data, table.stride[0]};
    t.kv_heads = (int)kv->kv_heads, t.heads = (int)x.shape[1] - t.kv_heads, t.dim = (int)kv->head_dim;
    t.half = (int)table.shape[1] / 2, t.interleaved = interleaved;
    unsigned rows = (unsigned)(spans->rows_max < 1024 ? spans->rows_max : 1024);
    int work = t.heads * t.half + t.kv_heads * t.dim;
    dim3 grid((unsigned)spans->count, rows ? rows : 1, (unsigned)((work + 255) / 256));
    if (kv->dtype == PROA_DTYPE_F16)
        gpu_launch(g, "rope_append", rope_append_kernel<__half>, grid, 256, 0, (__half *)kv->k, (__half *)kv->v, t,
                   spans->span, spans->pages);
    else if (kv->dtype == PROA_DTYPE_BF16)
        gpu_launch(g, "rope_append", rope_append_kernel<__nv_bfloat16>, grid, 256, 0, (__nv_bfloat16 *)kv->k,
                   (__nv_bfloat16 *)kv->v, t, spans->span, spans->pages);
    else
        gpu_launch(g, "rope_append", rope_append_kernel<float>, grid, 256, 0, (float *)kv->k, (float *)kv->v, t,
                   spans->span, spans->pages);
}

/* ---- shared pieces ---- */

__device__ static inline float bias_of(const task &t, int h, int distance)
{
    int d = distance < -t.reach ? -t.reach : distance > t.reach ? t.reach : distance;
    return t.rel_bias[t.buckets[d + t.reach] * t.heads + h];
}

/* First and last key that row i of a span sees. */
__device__ static inline void range_of(const task &t, const proa_span &s, int i, int *begin, int *end)
{
    int at = s.context - s.rows + i;
    *begin = 0, *end = s.context;
    if (!t.causal) return;
    *end = at + 1;
    if (t.window > 0 && at + 1 > t.window) *begin = at + 1 - t.window;
}

template <typename T> __device__ static inline const T *key_row(const task &t, const void *base, const proa_span &s, int p, int kv)
{
    int64_t page = t.pages[s.table + p / PAGE];
    return (const T *)base + ((page * t.kv_heads + kv) * PAGE + p % PAGE) * t.dim;
}

/* ---- any shape: a block for a row and a head, keys over threads ---- */

template <typename T> __global__ void plain_kernel(task t, bool long_spans)
{
    extern __shared__ float shared[]; /* q [dim], sums [dim], then a weight for each thread */
    __shared__ float room[33];
    gpu_wait();
    gpu_release();
    proa_span s = t.spans[blockIdx.x];
    if (long_spans && s.rows == 1) return; /* the decode kernel has it */
    float *q = shared, *out = shared + t.dim, *weight = out + t.dim;
    int h = blockIdx.z, kv = h / t.group;
    for (int i = blockIdx.y; i < s.rows; i += gridDim.y) {
        int begin, end, at = s.context - s.rows + i;
        range_of(t, s, i, &begin, &end);
        __syncthreads();
        for (int j = threadIdx.x; j < t.dim; j += blockDim.x)
            q[j] = t.q[(s.row + i) * t.q_row + h * t.q_head + j], out[j] = 0.0f;
        __syncthreads();
        float largest = -INFINITY, total = 0.0f;
        for (int base = begin; base < end; base += blockDim.x) {
            int p = base + threadIdx.x;
            float dot = -INFINITY;
            if (p < end) {
                const T *key = key_row<T>(t, t.k, s, p, kv);
                dot = 0.0f;
                for (int j = 0; j < t.dim; j++) dot = fmaf(q[j], gpu_to_f32(key[j]), dot);
                dot *= t.scale;
                if (t.rel_bias) dot += bias_of(t, h, p - at);
            }
            float top = dot;
#pragma unroll
            for (int o = 16; o > 0; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
            __syncthreads();
            if ((threadIdx.x & 31) == 0) room[threadIdx.x / 32] = top;
            __syncthreads();
            for (int w = 0; w < (int)blockDim.x / 32; w++) top = fmaxf(top, room[w]);
            float now = fmaxf(largest, top), shrink = largest == -INFINITY ? 0.0f : expf(largest - now);
            weight[threadIdx.x] = p < end ? expf(dot - (now == -INFINITY ? 0.0f : now)) : 0.0f; /* NaN stays NaN */
            total = total * shrink + gpu_block_sum(weight[threadIdx.x], room);
            __syncthreads();
            int count = end - base < (int)blockDim.x ? end - base : (int)blockDim.x;
            for (int j = threadIdx.x; j < t.dim; j += blockDim.x) {
                float sum = out[j] * shrink;
                for (int k = 0; k < count; k++)
                    sum = fmaf(weight[k], gpu_to_f32(key_row<T>(t, t.v, s, base + k, kv)[j]), sum);
                out[j] = sum;
            }
            largest = now;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < t.dim; j += blockDim.x)
            t.y[(s.row + i) * t.y_row + h * t.y_head + j] = begin < end ? out[j] / total : 0.0f;
    }
}

/* ---- one row: lanes along the head, several keys at once, contexts split over blocks ---- */

template <typename T> struct vec;
template <> struct vec<float> {
    static const int COUNT = 4;
    __device__ static void open(float *out, uint4 v)
    {
        out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
        out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
    }
};
template <> struct vec<__half> {
    static const int COUNT = 8;
    __device__ static void open(float *out, uint4 v)
    {
        const __half2 *h = reinterpret_cast<const __half2 *>(&v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 f = __half22float2(h[i]);
            out[2 * i] = f.x, out[2 * i + 1] = f.y;
        }
    }
};
template <> struct vec<__nv_bfloat16> {
    static const int COUNT = 8;
    __device__ static void open(float *out, uint4 v)
    {
        const unsigned *u = reinterpret_cast<const unsigned *>(&v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = __uint_as_float(u[i] << 16);
            out[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
        }
    }
};

/* A partial result of one head: sums [dim], then the maximum and the total. */
__device__ static inline int64_t partial_at(const task &t, int span, int h, int split, int splits)
{
    return (((int64_t)span * t.heads + h) * splits + split) * (t.dim + 2);
}

/* Adds the splits of one span and head in their order; all threads of a block. */
__device__ static void add_splits(const task &t, const float *partials, int span, int row, int h, int splits)
{
    float largest = -INFINITY, total = 0.0f;
    for (int i = 0; i < splits; i++) largest = fmaxf(largest, __ldcg(partials + partial_at(t, span, h, i, splits) + t.dim));
    float base = largest == -INFINITY ? 0.0f : largest;
    for (int i = 0; i < splits; i++) {
        const float *part = partials + partial_at(t, span, h, i, splits);
        total += expf(__ldcg(part + t.dim) - base) * __ldcg(part + t.dim + 1);
    }
    for (int j = threadIdx.x; j < t.dim; j += blockDim.x) {
        float sum = 0.0f;
        for (int i = 0; i < splits; i++) {
            const float *part = partials + partial_at(t, span, h, i, splits);
            sum += expf(__ldcg(part + t.dim) - base) * __ldcg(part + j);
        }
        t.y[row * t.y_row + h * t.y_head + j] = total > 0.0f || isnan(total) ? sum / total : 0.0f;
    }
}

/* LANES lanes hold a key, each NV pieces of 16 bytes; G query heads read it together. Each group of lanes keeps a
 * running maximum of its own; they meet at the end. */
template <typename T, int LANES, int NV, int G>
__global__ void __launch_bounds__(DECODE_THREADS) decode_kernel(task t, float *partials, unsigned *counters)
{
    const int COUNT = vec<T>::COUNT, AT_ONCE = 32 / LANES, U = G >= 4 ? 2 : 4;
    extern __shared__ float shared[];
    __shared__ bool is_last;
    int span = blockIdx.x, split = blockIdx.z, splits = gridDim.z;
    int blocks_of_kv = (t.group + G - 1) / G, kv = blockIdx.y / blocks_of_kv;
    int first = kv * t.group + blockIdx.y % blocks_of_kv * G; /* of the query heads */
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, part = lane / LANES, slot = lane % LANES;
    gpu_wait();
    gpu_release();
    proa_span s = t.spans[span];
    if (s.rows != 1) return;
    int begin, end, at = s.context - 1;
    range_of(t, s, 0, &begin, &end);
    int each = ((end + SPLIT - 1) / SPLIT - begin / SPLIT + splits - 1) / splits;
    int from = (begin / SPLIT + split * each) * SPLIT, to = from + each * SPLIT;
    from = from < begin ? begin : from, to = to > end ? end : to;
    float q[G][NV * COUNT], sum[G][NV * COUNT], largest[G], total[G];
#pragma unroll
    for (int gi = 0; gi < G; gi++) {
        int h = first + gi < (kv + 1) * t.group ? first + gi : first;
        largest[gi] = -INFINITY, total[gi] = 0.0f;
#pragma unroll
        for (int i = 0; i < NV * COUNT; i++) {
            int e = (i / COUNT * LANES + slot) * COUNT + i % COUNT;
            q[gi][i] = e < t.dim ? t.q[s.row * t.q_row + h * t.q_head + e] * t.scale : 0.0f;
            sum[gi][i] = 0.0f;
        }
    }
    const int STEP = DECODE_WARPS * AT_ONCE;
    for (int base = from; base < to; base += STEP * U) {
        uint4 key[U][NV], value[U][NV];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
            const T *kr = p < to ? key_row<T>(t, t.k, s, p, kv) : NULL, *vr = p < to ? key_row<T>(t, t.v, s, p, kv) : NULL;
#pragma unroll
            for (int n = 0; n < NV; n++) {
                int e = (n * LANES + slot) * COUNT;
                bool in = p < to && e < t.dim;
                key[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(kr + e)) : make_uint4(0, 0, 0, 0);
                value[u][n] = in ? __ldg(reinterpret_cast<const uint4 *>(vr + e)) : make_uint4(0, 0, 0, 0);
            }
        }
        float score[U][G];
#pragma unroll
        for (int u = 0; u < U; u++) {
            int p = base + u * STEP + warp * AT_ONCE + part;
#pragma unroll
            for (int gi = 0; gi < G; gi++) score[u][gi] = 0.0f;
#pragma unroll
            for (int n = 0; n < NV; n++) {
                float k[COUNT];
                vec<T>::open(k, key[u][n]);
#pragma unroll
                for (int gi = 0; gi < G; gi++)
#pragma unroll
                    for (int i = 0; i < COUNT; i++) score[u][gi] = fmaf(q[gi][n * COUNT + i], k[i], score[u][gi]);
            }
#pragma unroll
            for (int gi = 0; gi < G; gi++) {
#pragma unroll
                for (int o = LANES / 2; o > 0; o >>= 1) score[u][gi] += __shfl_xor_sync(0xffffffffu, score[u][gi], o);
                if (t.rel_bias && p < to) score[u][gi] += bias_of(t, first + gi < t.heads ? first + gi : first, p - at);
                if (p >= to) score[u][gi] = -INFINITY;
            }
        }
#pragma unroll
        for (int gi = 0; gi < G; gi++) {
            float now = largest[gi];
#pragma unroll
            for (int u = 0; u < U; u++) now = fmaxf(now, score[u][gi]);
            float usable = now == -INFINITY ? 0.0f : now;
            float shrink = __expf(largest[gi] - usable);
            total[gi] *= shrink;
#pragma unroll
            for (int i = 0; i < NV * COUNT; i++) sum[gi][i] *= shrink;
#pragma unroll
            for (int u = 0; u < U; u++) score[u][gi] = __expf(score[u][gi] - usable), total[gi] += score[u][gi];
            largest[gi] = now;
        }
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int n = 0; n < NV; n++) {
                float v[COUNT];
                vec<T>::open(v, value[u][n]);
#pragma unroll
                for (int gi = 0; gi < G; gi++)
#pragma unroll
                    for (int i = 0; i < COUNT; i++)
                        sum[gi][n * COUNT + i] = fmaf(score[u][gi], v[i], sum[gi][n * COUNT + i]);
            }
    }
    /* the lane groups of all warps meet in shared memory: [group of lanes][dim + 2], one query head at a time */
    int groups = DECODE_WARPS * AT_ONCE, width = t.dim + 2;
#pragma unroll 1
    for (int gi = 0; gi < G; gi++) {
        int h = first + gi;
        if (h >= (kv + 1) * t.group) break;
        float *mine = shared + (warp * AT_ONCE + part) * width;
        __syncthreads();
#pragma unroll
        for (int gj = 0; gj < G; gj++) { /* registers are named by constants */
            if (gj != gi) continue;
#pragma unroll
            for (int i = 0; i < NV * COUNT; i++) {
                int e = (i / COUNT * LANES + slot) * COUNT + i % COUNT;
                if (e < t.dim) mine[e] = sum[gj][i];
            }
            if (slot == 0) mine[t.dim] = largest[gj], mine[t.dim + 1] = total[gj];
        }
        __syncthreads();
        float top = -INFINITY, all = 0.0f;
        for (int w = 0; w < groups; w++) top = fmaxf(top, shared[w * width + t.dim]);
        float usable = top == -INFINITY ? 0.0f : top;
        for (int w = 0; w < groups; w++) all += expf(shared[w * width + t.dim] - usable) * shared[w * width + t.dim + 1];
        float *out = splits > 1 ? partials + partial_at(t, span, h, split, splits) : NULL;
        for (int j = threadIdx.x; j < t.dim; j += blockDim.x) {
            float v = 0.0f;
            for (int w = 0; w < groups; w++) v += expf(shared[w * width + t.dim] - usable) * shared[w * width + j];
            if (out) out[j] = v;
            else t.y[s.row * t.y_row + h * t.y_head + j] = all > 0.0f || isnan(all) ? v / all : 0.0f;
        }
        if (out && threadIdx.x == 0) out[t.dim] = top, out[t.dim + 1] = all;
    }
    if (splits == 1) return;
    __threadfence();
    __syncthreads();
    unsigned *counter = counters + (span * gridDim.y + blockIdx.y);
    if (threadIdx.x == 0) is_last = atomicAdd(counter, 1u) + 1 == (unsigned)splits;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (threadIdx.x == 0) *counter = 0;
    for (int gi = 0; gi < G && first + gi < (kv + 1) * t.group; gi++) add_splits(t, partials, span, s.row, first + gi, splits);
}

template <typename T, int LANES, int NV, int G> static void launch_decode(gpu *g, const task &t, int spans, int splits)
{
    int blocks = t.kv_heads * ((t.group + G - 1) / G);
    size_t shared = (size_t)DECODE_WARPS * (32 / LANES) * (t.dim + 2) * sizeof(float);
    float *partials = NULL;
    if (splits > 1) partials = gpu_partials_room(g, (size_t)spans * t.heads * splits * (t.dim + 2) * sizeof(float));
    gpu_launch(g, "attend (decode)", decode_kernel<T, LANES, NV, G>, dim3((unsigned)spans, (unsigned)blocks, (unsigned)splits),
               DECODE_THREADS, shared, t, partials, g->counters);
}

template <typename T, int LANES, int NV> static void decode_groups(gpu *g, const task &t, int spans, int splits)
{
    if (t.group == 1) launch_decode<T, LANES, NV, 1>(g, t, spans, splits);
    else if (t.group == 2) launch_decode<T, LANES, NV, 2>(g, t, spans, splits);
    else launch_decode<T, LANES, NV, 4>(g, t, spans, splits);
}

template <typename T> static void decode_lanes(gpu *g, const task &t, int spans, int splits)
{
    int pieces = t.dim / vec<T>::COUNT;
    if (pieces <= 4) decode_groups<T, 4, 1>(g, t, spans, splits);
    else if (pieces <= 8) decode_groups<T, 8, 1>(g, t, spans, splits);
    else if (pieces <= 16) decode_groups<T, 16, 1>(g, t, spans, splits);
    else if (pieces <= 32) decode_groups<T, 32, 1>(g, t, spans, splits);
    else decode_groups<T, 32, 2>(g, t, spans, splits);
}

/* Enough blocks for all SMs; the same for all contexts of a length class. */
static int splits_for(const gpu *g, const task &t, int spans, int context)
{
    int blocks = spans * t.kv_heads * ((t.group + 3) / 4), most = (context + SPLIT - 1) / SPLIT;
    int splits = (2 * g->sms + blocks - 1) / blocks;
    splits = splits > most ? most : splits;
    return splits < 1 ? 1 : splits > SPLITS_MAX ? SPLITS_MAX : splits;
}

/* ---- many rows: 64 queries of a head at a time, pages of 64 keys, 16 queries a warp ---- */

__device__ static inline unsigned shared_at(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ static inline void load_matrix(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

__device__ static inline void load_matrix_turned(unsigned r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* A page of keys or values of one head; rows behind the context are zeros. */
template <typename T, int DIM, int LD> __device__ static void load_page(T *to, const T *from, int valid)
{
    const int PIECES = DIM / 8;
    for (int i = threadIdx.x; i < PAGE * PIECES; i += PREFILL_THREADS) {
        int row = i / PIECES, piece = i % PIECES, bytes = row < valid ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_at(to + row * LD + piece * 8)),
                     "l"(from + row * DIM + piece * 8), "r"(bytes));
    }
    asm volatile("cp.async.commit_group;");
}

template <int LEFT> __device__ static inline void wait_pages()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
    __syncthreads();
}

/* Columns of the tile: a head padded to a multiple of 16. DIM of the page is the head's own. */
template <typename T, int DIM> __global__ void __launch_bounds__(PREFILL_THREADS) prefill_kernel(task t)
{
    const int LD = DIM + 8, STEPS = DIM / 16, TILES = DIM / 8;
    extern __shared__ __align__(128) char memory[];
    T *qs = reinterpret_cast<T *>(memory), *ks = qs + 64 * LD, *vs = ks + PAGE * LD;
    int h = blockIdx.y, kv = h / t.group, warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    const float LOG2E = 1.4426950408889634f;
    gpu_wait();
    gpu_release();
    proa_span s = t.spans[blockIdx.x];
    int tile = (int)(gridDim.z - 1 - blockIdx.z) * 64; /* long ones first */
    if (s.rows == 1 || tile >= s.rows) return;
    int rows = s.rows - tile < 64 ? s.rows - tile : 64, offset = s.context - s.rows + tile;
    for (int i = threadIdx.x; i < 64 * DIM / 2; i += PREFILL_THREADS) {
        int row = i / (DIM / 2), e = i % (DIM / 2) * 2;
        const float *from = t.q + (s.row + tile + row) * t.q_row + h * t.q_head + e;
        float x = row < rows ? from[0] * t.scale * LOG2E : 0.0f, y = row < rows ? from[1] * t.scale * LOG2E : 0.0f;
        *reinterpret_cast<unsigned *>(qs + row * LD + e) = gpu_mma<T>::pair(x, y);
    }
    int first = 0, last = s.context; /* keys that any row of the tile sees */
    if (t.causal) last = offset + rows;
    if (t.causal && t.window > 0 && offset + 1 > t.window) first = offset + 1 - t.window;
    float out[TILES][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};
    int row0 = warp * 16 + lane / 4; /* of the tile: this thread's rows are row0 and row0 + 8 */
    int page = first / PAGE, pages = (last + PAGE - 1) / PAGE;
    const T *keys = (const T *)t.k, *values = (const T *)t.v;
    if (page < pages)
        load_page<T, DIM, LD>(ks, keys + ((int64_t)t.pages[s.table + page] * t.kv_heads + kv) * PAGE * DIM,
                              s.context - page * PAGE);
    for (; page < pages; page++) {
        int64_t block = ((int64_t)t.pages[s.table + page] * t.kv_heads + kv) * PAGE * DIM;
        load_page<T, DIM, LD>(vs, values + block, s.context - page * PAGE);
        wait_pages<1>(); /* the keys are there, and the queries */
        float score[8][4] = {};
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            unsigned a[4];
            load_matrix(a, shared_at(qs + (warp * 16 + lane % 16) * LD + k * 16 + lane / 16 * 8));
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                unsigned b[4];
                load_matrix(b, shared_at(ks + (n * 8 + lane / 16 * 8 + lane % 8) * LD + k * 16 + lane / 8 % 2 * 8));
                gpu_mma<T>::run(score[n], a, b[0], b[1]);
                gpu_mma<T>::run(score[n + 1], a, b[2], b[3]);
            }
        }
        __syncthreads();
        if (page + 1 < pages)
            load_page<T, DIM, LD>(ks, keys + ((int64_t)t.pages[s.table + page + 1] * t.kv_heads + kv) * PAGE * DIM,
                                  s.context - (page + 1) * PAGE);
        bool edge = page * PAGE + PAGE > s.context || t.rel_bias || (t.causal && page * PAGE + PAGE > offset) ||
                    (t.causal && t.window > 0);
#pragma unroll
        for (int n = 0; n < 8 && edge; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int p = page * PAGE + n * 8 + lane % 4 * 2 + i % 2, at = offset + row0 + i / 2 * 8;
                bool seen = p < s.context && (!t.causal || (p <= at && (t.window <= 0 || p > at - t.window)));
                if (t.rel_bias) score[n][i] += bias_of(t, h, p - at) * LOG2E;
                if (!seen) score[n][i] = -INFINITY;
            }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float now = largest[r], sum = 0.0f;
#pragma unroll
            for (int n = 0; n < 8; n++) now = fmaxf(now, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
            now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
            float usable = now == -INFINITY ? 0.0f : now, shrink = exp2f(largest[r] - usable);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                score[n][2 * r] = exp2f(score[n][2 * r] - usable);
                score[n][2 * r + 1] = exp2f(score[n][2 * r + 1] - usable);
                sum += score[n][2 * r] + score[n][2 * r + 1];
            }
            total[r] = total[r] * shrink + sum;
            largest[r] = now;
#pragma unroll
            for (int n = 0; n < TILES; n++) out[n][2 * r] *= shrink, out[n][2 * r + 1] *= shrink;
        }
        if (page + 1 < pages) wait_pages<1>(); /* the values are there; the next keys may still come */
        else wait_pages<0>();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            unsigned a[4] = {gpu_mma<T>::pair(score[2 * k][0], score[2 * k][1]), gpu_mma<T>::pair(score[2 * k][2], score[2 * k][3]),
                             gpu_mma<T>::pair(score[2 * k + 1][0], score[2 * k + 1][1]),
                             gpu_mma<T>::pair(score[2 * k + 1][2], score[2 * k + 1][3])};
#pragma unroll
            for (int n = 0; n < TILES; n += 2) {
                unsigned b[4];
                load_matrix_turned(b, shared_at(vs + (k * 16 + lane % 16) * LD + n * 8 + lane / 16 * 8));
                gpu_mma<T>::run(out[n], a, b[0], b[1]);
                gpu_mma<T>::run(out[n + 1], a, b[2], b[3]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
        int row = row0 + 8 * r;
        if (row >= rows) continue;
        float inverse = total[r] > 0.0f || isnan(total[r]) ? 1.0f / total[r] : 0.0f;
        float *to = t.y + (s.row + tile + row) * t.y_row + h * t.y_head;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            int e = n * 8 + lane % 4 * 2;
            to[e] = out[n][2 * r] * inverse, to[e + 1] = out[n][2 * r + 1] * inverse;
        }
    }
}

template <typename T, int DIM> static void launch_prefill(gpu *g, const task &t, int spans, int rows)
{
    size_t shared = (size_t)(64 + 2 * PAGE) * (DIM + 8) * sizeof(T);
    gpu_note(g, cudaFuncSetAttribute(prefill_kernel<T, DIM>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
             "attend (prefill)");
    gpu_launch(g, "attend (prefill)", prefill_kernel<T, DIM>,
               dim3((unsigned)spans, (unsigned)t.heads, (unsigned)((rows + 63) / 64)), PREFILL_THREADS, shared, t);
}

/* False: this head size is plain's. */
template <typename T> static bool prefill(gpu *g, const task &t, int spans, int rows)
{
    switch (t.dim) {
    case 16: launch_prefill<T, 16>(g, t, spans, rows); return true;
    case 32: launch_prefill<T, 32>(g, t, spans, rows); return true;
    case 64: launch_prefill<T, 64>(g, t, spans, rows); return true;
    case 80: launch_prefill<T, 80>(g, t, spans, rows); return true;
    case 96: launch_prefill<T, 96>(g, t, spans, rows); return true;
    case 128: launch_prefill<T, 128>(g, t, spans, rows); return true;
    case 256: launch_prefill<T, 256>(g, t, spans, rows); return true;
    default: return false;
    }
}

/* ---- choosing ---- */

template <typename T> static void plain(gpu *g, const task &t, int spans, int rows, bool long_spans)
{
    unsigned y = (unsigned)(rows < 4096 ? rows : 4096);
    gpu_launch(g, "attend (plain)", plain_kernel<T>, dim3((unsigned)spans, y ? y : 1, (unsigned)t.heads), 128,
               (size_t)(2 * t.dim + 128) * sizeof(float), t, long_spans);
}

template <typename T> static void attend_as(gpu *g, const task &t, const proa_spans *spans)
{
    int count = (int)spans->count, rows = spans->rows_max;
    bool whole = t.dim % vec<T>::COUNT == 0 && t.dim <= 64 * vec<T>::COUNT && t.dim <= 512;
    bool counted = (int64_t)count * t.kv_heads * ((t.group + 3) / 4) * 4 <= GPU_COUNTERS;
    int splits = counted ? splits_for(g, t, count, spans->context_max) : 1;
    if (whole) decode_lanes<T>(g, t, count, splits);
    if (whole && rows <= 1) return;
    bool done = false;
    if constexpr (sizeof(T) == 2) done = prefill<T>(g, t, count, rows);
    if (!done || !whole) plain<T>(g, t, count, rows, whole);
}

/* T5's buckets of all distances that differ, made on the host as the host's kernels have them. */
static void use_bias(gpu *g, task *t, const proa_attention *a)
{
    int which = a->rel_bidirectional, reach = a->rel_distance;
    int32_t key[2] = {a->rel_buckets, a->rel_distance};
    size_t bytes = (size_t)(2 * reach + 1) * sizeof(int16_t);
    t->rel_bias = a->rel_bias;
    t->reach = reach;
    if (!g->buckets[which] || memcmp(key, g->bucket_key[which], sizeof key) != 0) {
        int16_t *table = (int16_t *)malloc(bytes);
        for (int d = -reach; d <= reach; d++)
            table[d + reach] = (int16_t)proa_rel_bucket(d, a->rel_buckets, a->rel_distance, a->rel_bidirectional);
        cudaStreamSynchronize(g->stream);
        cudaFree(g->buckets[which]);
        gpu_note(g, cudaMalloc((void **)&g->buckets[which], bytes), "relative positions");
        gpu_note(g, cudaMemcpy(g->buckets[which], table, bytes, cudaMemcpyHostToDevice), "relative positions");
        memcpy(g->bucket_key[which], key, sizeof key);
        free(table);
    }
    t->buckets = g->buckets[which];
}

static void attend(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                   const proa_attention *a)
{
    gpu *g = flushed(c);
    if (spans->count == 0) return;
    task t = {(float *)y.data, y.stride[0], y.stride[1], (const float *)q.data, q.stride[0], q.stride[1], kv->k, kv->v};
    t.heads = (int)q.shape[1], t.kv_heads = (int)kv->kv_heads, t.dim = (int)kv->head_dim;
    t.group = t.heads / t.kv_heads;
    t.spans = spans->span, t.pages = spans->pages;
    t.scale = a->scale, t.causal = a->causal, t.window = a->window;
    if (a->rel_bias) use_bias(g, &t, a);
    if (kv->dtype == PROA_DTYPE_F16) attend_as<__half>(g, t, spans);
    else if (kv->dtype == PROA_DTYPE_BF16) attend_as<__nv_bfloat16>(g, t, spans);
    else attend_as<float>(g, t, spans);
}

void gpu_fill_attend(proa_ops *ops)
{
    ops->kv_append = kv_append, ops->rope_append = rope_append;
    ops->attend = attend;
}
