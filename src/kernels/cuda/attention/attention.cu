/* SPDX-License-Identifier: Apache-2.0
 * attention.cu - keys and values are written into their pages (with rotary positions in the same kernel),
 * attention for any shape and type (attention_plain_kernel, the reference of the others), and the dispatch. */
#include "kernels/cuda/attention/attention.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys and values in ---- */

/* The place of a row's key: its page, and which of the page's keys it is. */
struct append_slot {
    int page, key;
    /* Where element 0 of a head's key is stored in the pages. */
    __device__ int64_t of(int h, int heads, int dim) const
    {
        return (((int64_t)page * heads + h) * PAGE + key) * dim;
    }
};

/* The rows of a step and the spans that they belong to. */
struct append_rows {
    const proa_span *spans;
    const int32_t *pages;
    int count;
};

/* Finds where a row's key goes. Its span: first guess, all spans before it have one row; else a binary search for the
 * last span that begins at the row or before. False: the row has none. No kernel of a pass writes spans and page
 * tables, so this needs no gpu_wait. */
__device__ static inline bool find_slot(const append_rows &a, int row, append_slot *slot)
{
    int low = row < a.count ? row : a.count - 1, high = a.count;
    if (a.spans[low].row != row || a.spans[low].rows == 0) low = 0;
    else high = low;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a.spans[middle].row <= row) low = middle;
        else high = middle;
    }
    proa_span s = a.spans[low];
    int p = s.context - s.rows + row - s.row;
    if (row < s.row || row >= s.row + s.rows) return false;
    *slot = {a.pages[s.table + p / PAGE], p % PAGE};
    return true;
}

template <typename T, typename X>
__global__ void append_kernel(T *kp, T *vp, const X *k, int64_t k_row, int64_t k_head, const X *v,
                              int64_t v_row, int64_t v_head, append_rows a, int heads, int dim)
{
    int64_t row = blockIdx.x;
    append_slot slot;
    bool found = find_slot(a, (int)row, &slot);
    gpu_wait();
    if (!found) return;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < heads * dim; i += gridDim.y * blockDim.x) {
        int h = i / dim, e = i % dim;
        int64_t to = slot.of(h, heads, dim) + e;
        kp[to] = gpu_from_f32<T>(gpu_to_f32(k[row * k_row + h * k_head + e]));
        vp[to] = gpu_from_f32<T>(gpu_to_f32(v[row * v_row + h * v_head + e]));
    }
}

/* Eight numbers, and what is to be added to them, as they would be stored; NULL: nothing is. */
template <typename X> __device__ static inline void load_sum8(float (&v)[8], const X *from, const X *more)
{
    float w[8];
    gpu_load8(v, from);
    if (!more) return;
    gpu_load8(w, more);
#pragma unroll
    for (int e = 0; e < 8; e++) v[e] = gpu_to_f32(gpu_saturate<X>(v[e] + w[e]));
}

/* Eight numbers of a 16-bit type, to the same type or to e4m3. more: what is added to them, or NULL. */
template <typename T, typename X>
__device__ static inline void copy_vec8(T *to, const X *from, const X *more = nullptr)
{
    float v[8];
    if (std::is_same<T, X>::value && !more) *(uint4 *)to = *(const uint4 *)from;
    else load_sum8(v, from, more), gpu_store8(to, v);
}

template <typename T, typename X>
__global__ void append_vec8_kernel(T *kp, T *vp, const X *k, int64_t k_row, int64_t k_head, const X *v,
                                   int64_t v_row, int64_t v_head, append_rows a, int heads, int dim)
{
    int64_t row = blockIdx.x;
    append_slot slot;
    bool found = find_slot(a, (int)row, &slot);
    gpu_wait();
    if (!found) return;
    for (int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8; i < heads * dim; i += gridDim.y * blockDim.x * 8) {
        int h = i / dim, e = i % dim;
        int64_t to = slot.of(h, heads, dim) + e;
        copy_vec8(kp + to, k + row * k_row + h * k_head + e);
        copy_vec8(vp + to, v + row * v_row + h * v_head + e);
    }
}

enum {
    NORMED_THREADS = 128,
    APPEND_THREADS = 256,
    APPEND_BLOCKS = 8192 /* more of them cost more to start than they gain */
};

/* Blocks for each row: a thread for each piece of work, unless there are enough rows. */
static dim3 append_grid(int64_t rows, int64_t work)
{
    int64_t each = (work + APPEND_THREADS - 1) / APPEND_THREADS, most = rows ? APPEND_BLOCKS / rows : 1;
    each = each > most ? most : each;
    return dim3((unsigned)rows, (unsigned)(each < 1 ? 1 : each));
}

static bool pages_are_vec8(const proa_kv *kv)
{
    return kv->head_dim % 8 == 0 && ((uintptr_t)kv->k | (uintptr_t)kv->v) % 16 == 0;
}

/* Rows of 16 bits are copied eight numbers at a time, if their pages have the same type or e4m3. */
template <typename T, typename X> static constexpr bool appends_vec8()
{
    return sizeof(X) == 2 && (std::is_same<T, X>::value || sizeof(T) == 1);
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    gpu *g = gpu_flushed(c);
    append_rows rows = {spans->span, spans->pages, (int)spans->count};
    int64_t work = kv->kv_heads * kv->head_dim;
    if (spans->count == 0) return;
    bool vec8 = gpu_is_vec8(k) && gpu_is_vec8(v) && pages_are_vec8(kv);
    gpu_by_page_type(kv->dtype, [&](auto page) {
        gpu_by_type(k.dtype, [&](auto from) {
            using T = decltype(page);
            using X = decltype(from);
            auto kernel = append_kernel<T, X>;
            int64_t threads = work;
            if constexpr (appends_vec8<T, X>())
                if (vec8) kernel = append_vec8_kernel<T, X>, threads = work / 8;
            gpu_launch(g, "kv_append", kernel, append_grid(k.shape[0], threads), APPEND_THREADS, 0,
                       (T *)kv->k, (T *)kv->v, (const X *)k.data, k.stride[0], k.stride[1], (const X *)v.data,
                       v.stride[0], v.stride[1], rows, (int)kv->kv_heads, (int)kv->head_dim);
        });
    });
}

/* ---- rope and append in one kernel: the first heads * half threads of a row each rotate a pair of the
 * queries, the others handle one element of the keys and of the values ---- */

template <typename X> struct rope_args {
    X *x;
    int64_t x_row, x_head;
    const X *v;
    int64_t v_row, v_head;
    const float *table;
    int64_t table_row;
    int heads, kv_heads, dim, half;
    bool interleaved;
    const X *more; /* what is to be added to x and v first, from x on; NULL: nothing is */
    int64_t more_row;
};

/* Which of the cosines turns number e of a head; -1: none. */
template <typename X> __device__ static inline int turn_of(const rope_args<X> &t, int e)
{
    return e >= 2 * t.half ? -1 : t.interleaved ? e / 2 : e < t.half ? e : e - t.half;
}

/* Number e of the head, turned. */
template <typename X>
__device__ static inline float turned(const rope_args<X> &t, const X *head, int e, float cosine, float sine)
{
    if (e >= 2 * t.half) return gpu_to_f32(head[e]);
    bool second = t.interleaved ? e & 1 : e >= t.half;
    int other = t.interleaved ? e ^ 1 : second ? e - t.half : e + t.half;
    float a = gpu_to_f32(head[e]), b = gpu_to_f32(head[other]);
    return a * cosine + (second ? b : -b) * sine;
}

template <typename X>
__device__ static inline float rotated(const rope_args<X> &t, const X *head, const float *turn, int e)
{
    int j = turn_of(t, e);
    return turned(t, head, e, j >= 0 ? turn[j] : 1.0f, j >= 0 ? turn[t.half + j] : 0.0f);
}

template <typename T, typename X>
__global__ void rope_append_kernel(T *kp, T *vp, rope_args<X> t, append_rows a)
{
    int pairs = t.heads * t.half;
    const float *turn = t.table + blockIdx.x * t.table_row;
    X *row = t.x + blockIdx.x * t.x_row;
    append_slot slot;
    bool found = find_slot(a, (int)blockIdx.x, &slot);
    gpu_wait();
    if (!found) return;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < pairs + t.kv_heads * t.dim;
         i += gridDim.y * blockDim.x) {
        if (i < pairs) {
            int h = i / t.half, j = i % t.half;
            X *head = row + h * t.x_head;
            int first = t.interleaved ? 2 * j : j, second = t.interleaved ? 2 * j + 1 : j + t.half;
            float x = gpu_to_f32(head[first]), y = gpu_to_f32(head[second]), cosine = turn[j],
                  sine = turn[t.half + j];
            head[first] = gpu_saturate<X>(x * cosine - y * sine);
            head[second] = gpu_saturate<X>(y * cosine + x * sine);
        } else {
            int h = (i - pairs) / t.dim, e = (i - pairs) % t.dim;
            int64_t to = slot.of(h, t.kv_heads, t.dim) + e;
            kp[to] = gpu_from_f32<T>(rotated(t, row + (t.heads + h) * t.x_head, turn, e));
            vp[to] = gpu_from_f32<T>(gpu_to_f32(t.v[blockIdx.x * t.v_row + h * t.v_head + e]));
        }
    }
}

/* ---- the same of few rows, and before it an RMS norm of each head of the queries and keys ---- */

struct head_norms {
    const float *q, *k; /* weights [dim] */
    float q_eps, k_eps;
};

enum { NORMED_DIM_MAX = 256, NORMED_EACH = NORMED_DIM_MAX / 32 };

/* A lane's numbers of a head: 32 i + lane is number i. */
template <typename X> __device__ static inline void load_head(float (&v)[NORMED_EACH], const X *head, int dim)
{
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++) {
        int e = 32 * i + threadIdx.x % 32;
        v[i] = e < dim ? gpu_to_f32(head[e]) : 0.0f;
    }
}

/* The cosines and sines that turn them; of numbers that are not turned, 1 and 0. */
template <typename X>
__device__ static inline void load_turns(float (&cosine)[NORMED_EACH], float (&sine)[NORMED_EACH],
                                         const rope_args<X> &t, const float *turn)
{
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++) {
        int e = 32 * i + threadIdx.x % 32, j = turn_of(t, e);
        cosine[i] = j >= 0 ? turn[j] : 1.0f, sine[i] = j >= 0 ? turn[t.half + j] : 0.0f;
    }
}

/* Norms the head v, with weights w of this lane's numbers, into shared memory, rounded as it would be stored. */
template <typename X>
__device__ static inline void norm_head(X *to, const float (&v)[NORMED_EACH], const float (&w)[NORMED_EACH],
                                        int dim, float eps)
{
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++) sum = fmaf(v[i], v[i], sum);
    float inverse = 1.0f / sqrtf(gpu_warp_sum(sum) / (float)dim + eps);
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++)
        if (32 * i + lane < dim) to[32 * i + lane] = gpu_saturate<X>(v[i] * inverse * w[i]);
    __syncwarp();
}

/* A warp for each head of q, of k and of v. All that it reads is requested at once: where the row's key goes before
 * gpu_wait, the head and its cosines behind it. */
template <typename T, typename X>
__global__ void __launch_bounds__(NORMED_THREADS)
    norm_rope_append_kernel(T *kp, T *vp, rope_args<X> t, append_rows a, head_norms n)
{
    __shared__ X normed[NORMED_THREADS / 32][NORMED_DIM_MAX];
    int lane = threadIdx.x % 32, h = blockIdx.y * (NORMED_THREADS / 32) + threadIdx.x / 32;
    bool query = h < t.heads, value = h >= t.heads + t.kv_heads;
    float w[NORMED_EACH], v[NORMED_EACH], cosine[NORMED_EACH], sine[NORMED_EACH];
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++)
        w[i] = !value && 32 * i + lane < t.dim ? (query ? n.q : n.k)[32 * i + lane] : 0.0f;
    append_slot slot;
    bool found = find_slot(a, (int)blockIdx.x, &slot);
    gpu_wait();
    if (h >= t.heads + 2 * t.kv_heads || !found) return;
    if (value) {
        int kv = h - t.heads - t.kv_heads;
        const X *from = t.v + blockIdx.x * t.v_row + kv * t.v_head;
        T *to = vp + slot.of(kv, t.kv_heads, t.dim);
        for (int e = lane; e < t.dim; e += 32) to[e] = gpu_from_f32<T>(gpu_to_f32(from[e]));
        return;
    }
    X *head = t.x + blockIdx.x * t.x_row + h * t.x_head, *row = normed[threadIdx.x / 32];
    load_head(v, head, t.dim);
    load_turns(cosine, sine, t, t.table + blockIdx.x * t.table_row);
    norm_head(row, v, w, t.dim, query ? n.q_eps : n.k_eps);
    T *to = query ? NULL : kp + slot.of(h - t.heads, t.kv_heads, t.dim);
#pragma unroll
    for (int i = 0; i < NORMED_EACH; i++) {
        int e = 32 * i + lane;
        if (e >= t.dim) break;
        float y = turned(t, row, e, cosine[i], sine[i]);
        if (query) head[e] = gpu_saturate<X>(y);
        else to[e] = gpu_from_f32<T>(y);
    }
}

/* Rotates 8 pairs at j and j + half of a head, or 4 interleaved pairs. more: what is added to the head, or NULL. */
template <typename T, typename X>
__device__ static inline void rotate_vec8(T *to, const X *head, const X *more, const float *turn, int half,
                                          int j, bool interleaved)
{
    float a[8], b[8], cosine[8], sine[8];
    if (interleaved) {
        load_sum8(a, head + j, more ? more + j : nullptr);
#pragma unroll
        for (int e = 0; e < 8; e += 2) {
            float c = turn[(j + e) / 2], s = turn[half + (j + e) / 2];
            b[e] = a[e] * c - a[e + 1] * s;
            b[e + 1] = a[e + 1] * c + a[e] * s;
        }
        gpu_store8(to + j, b);
        return;
    }
    load_sum8(a, head + j, more ? more + j : nullptr);
    load_sum8(b, head + j + half, more ? more + j + half : nullptr);
    gpu_load8(cosine, turn + j), gpu_load8(sine, turn + half + j);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        float first = a[e] * cosine[e] - b[e] * sine[e];
        b[e] = b[e] * cosine[e] + a[e] * sine[e];
        a[e] = first;
    }
    gpu_store8(to + j, a), gpu_store8(to + j + half, b);
}

/* The work of a row in pieces of eight: rotated parts of the queries, of the keys, the rest of the keys, the
 * values. */
template <typename T, typename X>
__global__ void rope_append_vec8_kernel(T *kp, T *vp, rope_args<X> t, append_rows a)
{
    int turns = (t.interleaved ? 2 * t.half : t.half) / 8, rest = (t.dim - 2 * t.half) / 8, whole = t.dim / 8;
    int queries = t.heads * turns, keys = queries + t.kv_heads * turns, others = keys + t.kv_heads * rest;
    const float *turn = t.table + blockIdx.x * t.table_row;
    X *row = t.x + blockIdx.x * t.x_row;
    const X *more = t.more + blockIdx.x * t.more_row; /* of numbers of the row */
    auto added = [&](const X *at) { return t.more ? more + (at - row) : nullptr; };
    append_slot slot;
    bool found = find_slot(a, (int)blockIdx.x, &slot);
    gpu_wait();
    if (!found) return;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < others + t.kv_heads * whole;
         i += gridDim.y * blockDim.x) {
        if (i < queries) {
            X *head = row + i / turns * t.x_head;
            rotate_vec8(head, head, added(head), turn, t.half, i % turns * 8, t.interleaved);
        } else if (i < keys) {
            int h = (i - queries) / turns;
            const X *head = row + (t.heads + h) * t.x_head;
            rotate_vec8(kp + slot.of(h, t.kv_heads, t.dim), head, added(head), turn, t.half,
                        (i - queries) % turns * 8, t.interleaved);
        } else if (i < others) {
            int h = (i - keys) / rest, e = 2 * t.half + (i - keys) % rest * 8;
            const X *from = row + (t.heads + h) * t.x_head + e;
            copy_vec8(kp + slot.of(h, t.kv_heads, t.dim) + e, from, added(from));
        } else {
            int h = (i - others) / whole, e = (i - others) % whole * 8;
            const X *from = t.v + blockIdx.x * t.v_row + h * t.v_head + e;
            copy_vec8(vp + slot.of(h, t.kv_heads, t.dim) + e, from, added(from));
        }
    }
}

template <typename X>
static void rope_append_as(gpu *g, const rope_args<X> &t, const proa_kv *kv, const append_rows &a,
                           int64_t rows, bool vec8)
{
    int turns = (t.interleaved ? 2 * t.half : t.half) / 8;
    gpu_by_page_type(kv->dtype, [&](auto page) {
        using T = decltype(page);
        auto kernel = rope_append_kernel<T, X>;
        int64_t work = (int64_t)t.heads * t.half + (int64_t)t.kv_heads * t.dim;
        if constexpr (appends_vec8<T, X>())
            if (vec8) {
                kernel = rope_append_vec8_kernel<T, X>;
                work = (int64_t)(t.heads + t.kv_heads) * turns +
                       (int64_t)t.kv_heads * (2 * t.dim - 2 * t.half) / 8;
            }
        gpu_launch(g, "rope_append", kernel, append_grid(rows, work), APPEND_THREADS, 0, (T *)kv->k,
                   (T *)kv->v, t, a);
    });
}

/* Do the norms that wait make the heads of q and then those of k of x? */
static bool are_norms_of(const gpu_pending_heads &n, proa_view x, const proa_kv *kv)
{
    int64_t heads = x.shape[1] - kv->kv_heads;
    return n.count == 2 && n.x[0].data == x.data && n.x[0].dtype == x.dtype && n.x[0].stride[0] == x.stride[0] &&
           n.x[0].shape[0] == x.shape[0] && n.x[0].shape[1] == heads && n.x[1].shape[1] == kv->kv_heads &&
           n.x[0].shape[2] == kv->head_dim && x.stride[1] == kv->head_dim && kv->head_dim <= NORMED_DIM_MAX;
}

template <typename X>
static void norm_rope_append(gpu *g, const rope_args<X> &t, const proa_kv *kv, const append_rows &a,
                             int64_t rows, const gpu_pending_heads &norms)
{
    head_norms n = {norms.w[0], norms.w[1], norms.eps[0], norms.eps[1]};
    int heads = t.heads + 2 * t.kv_heads, each = NORMED_THREADS / 32;
    gpu_by_page_type(kv->dtype, [&](auto page) {
        using T = decltype(page);
        gpu_launch(g, "norm and rope_append", norm_rope_append_kernel<T, X>,
                   dim3((unsigned)rows, (unsigned)((heads + each - 1) / each)), NORMED_THREADS, 0, (T *)kv->k,
                   (T *)kv->v, t, a, n);
    });
}

/* Can rope_append take eight numbers at a time? */
static bool appends_in_pieces(proa_view x, proa_view v, proa_view table, const proa_kv *kv)
{
    int64_t half = table.shape[1] / 2;
    return gpu_is_16bit(x) && (kv->dtype == x.dtype || kv->dtype == PROA_DTYPE_FP8) && gpu_is_vec8(x) &&
           gpu_is_vec8(v) && pages_are_vec8(kv) && half % 8 == 0 && table.stride[0] % 4 == 0 &&
           (uintptr_t)table.data % 16 == 0;
}

/* The rows that x and v are parts of, v behind x; rank 0: they are not. */
static proa_view rows_with_values(proa_view x, proa_view v)
{
    int64_t dim = x.shape[2], columns = x.shape[1] * dim;
    bool follows = (const char *)x.data + columns * proa_dtype_bytes(x.dtype) == (const char *)v.data &&
                   x.stride[0] == v.stride[0] && x.stride[1] == dim && v.stride[1] == dim && v.shape[2] == dim;
    if (!follows) return {};
    proa_view rows = proa_view_2d(x.data, x.dtype, x.shape[0], columns + v.shape[1] * dim);
    rows.stride[0] = x.stride[0];
    return rows;
}

/* The kernels of what waited: norms of heads, rotary positions, append. */
static void run_rope(gpu *g, const gpu_pending_rope &p)
{
    append_rows rows = {p.spans.span, p.spans.pages, (int)p.spans.count};
    gpu_by_type(p.x.dtype, [&](auto from) {
        using X = decltype(from);
        rope_args<X> t = {(X *)p.x.data,
                          p.x.stride[0],
                          p.x.stride[1],
                          (const X *)p.v.data,
                          p.v.stride[0],
                          p.v.stride[1],
                          (const float *)p.table.data,
                          p.table.stride[0]};
        t.kv_heads = (int)p.kv.kv_heads, t.heads = (int)p.x.shape[1] - t.kv_heads, t.dim = (int)p.kv.head_dim;
        t.half = (int)p.table.shape[1] / 2, t.interleaved = p.interleaved;
        t.more = (const X *)(p.more.rank ? p.more.data : NULL), t.more_row = p.more.rank ? p.more.stride[0] : 0;
        if (p.norms.count) norm_rope_append<X>(g, t, &p.kv, rows, p.x.shape[0], p.norms);
        else rope_append_as<X>(g, t, &p.kv, rows, p.x.shape[0], appends_in_pieces(p.x, p.v, p.table, &p.kv));
    });
}

void gpu_run_rope(gpu *g)
{
    g->rope.waits = false;
    run_rope(g, g->rope);
}

/* Whether the attention of short contexts may do it: spans of one row, heads that are turned as halves. */
static bool may_wait(const gpu *g, const gpu_pending_rope &p)
{
    int64_t dim = p.kv.head_dim;
    int64_t strides = p.x.stride[0] | p.x.stride[1] | p.v.stride[0] | p.v.stride[1];
    bool aligned = strides * proa_dtype_bytes(p.x.dtype) % 16 == 0 && p.table.stride[0] % 4 == 0 &&
                   ((uintptr_t)p.x.data | (uintptr_t)p.v.data | (uintptr_t)p.table.data) % 16 == 0;
    return g->clusters && aligned && !p.interleaved && p.v.dtype == p.x.dtype && !p.spans.seen &&
           p.table.shape[1] == dim && dim % 8 == 0 && p.spans.rows_max <= 1 &&
           p.spans.count <= SHORT_SPANS_MAX && p.x.shape[0] <= SHORT_SPANS_MAX && !p.kv.row && !p.more.rank;
}

static void rope_append(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved,
                        const proa_kv *kv, const proa_spans *spans)
{
    gpu *g = gpu_of(c);
    gpu_pending_rope p = {true, x, v, table, {}, interleaved, *kv, *spans, {}};
    if (are_norms_of(g->heads, x, kv) && spans->count > 0) p.norms = g->heads, g->heads.count = 0;
    if (appends_in_pieces(x, v, table, kv) && table.shape[1] == kv->head_dim && spans->count > 0)
        p.more = gpu_take_sum(g, rows_with_values(x, v));
    gpu_flush(g);
    gpu_invalidate(g, x);
    if (spans->count == 0) return;
    if (may_wait(g, p)) g->rope = p;
    else run_rope(g, p);
}

/* ---- any shape: one block for a row and a head, keys over the threads ---- */

template <typename T> __global__ void attention_plain_kernel(attention_task t, bool long_spans)
{
    extern __shared__ float shared[]; /* q [dim], sums [dim], then a weight for each thread; q in whole pieces of 16 bytes */
    __shared__ float scratch[33];
    gpu_wait();
    proa_span s = t.spans[blockIdx.x];
    if (long_spans && is_single_row(s)) return; /* the decode kernel has it */
    float *q = shared, *out = shared + (t.dim + 3) / 4 * 4, *weight = out + t.dim;
    int h = blockIdx.z, kv = h / t.group;
    for (int i = blockIdx.y; i < s.rows; i += gridDim.y) {
        const tree_row row = tree_row_of(t, s, i);
        int begin = first_key(t, row.at), end = end_key(t, s.context, s.context - s.rows + i);
        __syncthreads();
        for (int j = threadIdx.x; j < t.dim; j += blockDim.x)
            q[j] = read_q(t, (s.row + i) * t.q_row + h * t.q_head + j), out[j] = 0.0f;
        __syncthreads();
        float largest = -INFINITY, total = 0.0f;
        for (int base = begin; base < end; base += blockDim.x) {
            int p = base + threadIdx.x;
            float dot = -INFINITY;
            int position = p < end ? row.position(p) : -1, far = position - row.at;
            if (position >= begin) {
                const T *key = key_row<T>(t, t.k, s, p, kv);
                dot = 0.0f;
                for (int j = 0; j < t.dim; j++) dot = fmaf(q[j], gpu_to_f32(key[j]), dot);
                dot *= t.scale;
                if (t.has_score_mod) dot = score_mod(t, dot, bias_of(t, h, far), slope_of(t, h), far);
            }
            float top = gpu_warp_max(dot);
            __syncthreads();
            if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = top;
            __syncthreads();
            for (int w = 0; w < (int)blockDim.x / 32; w++) top = fmaxf(top, scratch[w]);
            float now = fmaxf(largest, top), shrink = largest == -INFINITY ? 0.0f : expf(largest - now);
            weight[threadIdx.x] = expf(dot - (now == -INFINITY ? 0.0f : now)); /* NaN stays NaN */
            total = total * shrink + gpu_block_sum(weight[threadIdx.x], scratch);
            __syncthreads();
            int count = min(end - base, (int)blockDim.x);
            for (int j = threadIdx.x; j < t.dim; j += blockDim.x) {
                float sum = out[j] * shrink;
                for (int k = 0; k < count; k++)
                    sum = fmaf(weight[k], gpu_to_f32(key_row<T>(t, t.v, s, base + k, kv)[j]), sum);
                out[j] = sum;
            }
            largest = now;
        }
        __syncthreads();
        total += sink_weight(t, h, largest * 1.4426950408889634f);
        for (int j = threadIdx.x; j < t.dim; j += blockDim.x)
            write_y(t, (s.row + i) * t.y_row + h * t.y_head + j, begin < end ? out[j] / total : 0.0f);
    }
}

/* ---- choosing ---- */

template <typename T>
static void attend_plain(gpu *g, const attention_task &t, int spans, int rows, bool long_spans)
{
    unsigned y = (unsigned)(rows < 4096 ? rows : 4096);
    gpu_launch(g, "attend (plain)", attention_plain_kernel<T>,
               dim3((unsigned)spans, y ? y : 1, (unsigned)t.heads), 128,
               (size_t)(2 * t.dim + 3 + 128) * sizeof(float), t, long_spans);
}

template <typename T>
static void attend_typed(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans)
{
    int count = (int)spans->count, rows = spans->rows_max;
    bool singles = !t.kv_row && gpu_decode(g, t, pages, spans); /* spans of one row are decode's */
    if (singles && rows <= 1 && !t.seen) return;
    bool done = (!t.seen && gpu_prefill_wgmma(g, t, pages, spans)) || gpu_prefill_mma(g, t, pages, spans) ||
                (!t.seen && gpu_encoder_short(g, t, pages, count, rows, spans->context_max));
    if (!done || (!singles && !t.kv_row)) attend_plain<T>(g, t, count, rows, singles);
}

/* T5's bucket for each distance, computed on the host by the host's function and copied once. */
static void use_rel_bias(gpu *g, attention_task *t, const proa_attention *a)
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
        PROA_ASSERT(!g->is_recording); /* a pass is recorded the second time */
        gpu_graphs_drop(g);            /* they know the old ones */
        cudaFree(g->buckets[which]);
        gpu_note(g, cudaMalloc((void **)&g->buckets[which], bytes), "relative positions");
        /* In the stream's order: cudaMemcpy returns when the host's memory has been staged, and these streams
         * do not wait for its own stream. */
        gpu_note(g, cudaMemcpyAsync(g->buckets[which], table, bytes, cudaMemcpyHostToDevice, g->stream),
                 "relative positions");
        memcpy(g->bucket_key[which], key, sizeof key);
        free(table);
    }
    t->buckets = g->buckets[which];
}

/* Are the queries of the task those whose rotary positions wait, and the spans and pages the same? */
static bool is_of_rope(const gpu_pending_rope &p, const attention_task &t, const proa_kv *kv,
                       const proa_spans *spans)
{
    bool queries = t.q == p.x.data && t.type == p.x.dtype && t.heads + t.kv_heads == p.x.shape[1] &&
                   t.q_row == p.x.stride[0] && t.q_head == p.x.stride[1] && t.rows == p.x.shape[0];
    return p.waits && queries && kv->k == p.kv.k && kv->v == p.kv.v && spans->span == p.spans.span &&
           spans->count == p.spans.count;
}

/* Attention that makes its queries and newest keys from the rows whose rotary positions wait. False: they do not belong
 * together or do not fit, and nothing was done. */
static bool attend_fresh(gpu *g, const attention_task &t, const proa_kv *kv, const proa_spans *spans)
{
    const gpu_pending_rope &p = g->rope;
    bool fits = t.causal && ((uintptr_t)t.k | (uintptr_t)t.v) % 16 == 0;
    if (!fits || !is_of_rope(p, t, kv, spans)) return false;
    new_rows f = {p.x.data,
                  p.x.stride[0],
                  p.x.stride[1],
                  p.v.data,
                  p.v.stride[0],
                  p.v.stride[1],
                  (const float *)p.table.data,
                  p.table.stride[0]};
    if (p.norms.count)
        f.q_norm = p.norms.w[0], f.k_norm = p.norms.w[1], f.q_eps = p.norms.eps[0], f.k_eps = p.norms.eps[1];
    if (((uintptr_t)f.q_norm | (uintptr_t)f.k_norm) % 16) return false;
    if (!gpu_decode_short(g, t, kv->dtype, (int)spans->count, spans->context_max, f)) return false;
    g->rope.waits = false;
    return true;
}

static attention_task make_task(gpu *g, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                                const proa_attention *a)
{
    attention_task t = {y.data,  y.stride[0], y.stride[1], q.data,  q.stride[0], q.stride[1],
                        q.dtype, kv->k,       kv->v,       kv->row, q.shape[0]};
    PROA_ASSERT(q.dtype == y.dtype);
    t.heads = (int)q.shape[1], t.kv_heads = (int)kv->kv_heads, t.dim = (int)kv->head_dim;
    t.group = t.heads / t.kv_heads;
    t.spans = spans->span, t.pages = spans->pages, t.seen = spans->seen;
    t.scale = a->scale, t.causal = a->causal, t.window = a->window, t.chunked = a->chunked;
    t.q_vec8 = t.type != PROA_DTYPE_F32 && t.q_row % 8 == 0 && t.q_head % 8 == 0 && (uintptr_t)t.q % 16 == 0;
    t.q_vec4 = t.type == PROA_DTYPE_F32 && t.q_row % 4 == 0 && t.q_head % 4 == 0 && (uintptr_t)t.q % 16 == 0;
    if (a->rel_bias || (a->side && a->side->rel_bias)) use_rel_bias(g, &t, a);
    t.sinks = a->sinks;
    t.alibi = a->alibi, t.soft_cap = a->soft_cap;
    bool side_bias = a->side && a->side->rel_bias;
    t.has_score_mod = a->rel_bias || side_bias || a->alibi || a->soft_cap > 0.0f;
    return t;
}

static void attend_op(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                      const proa_attention *a)
{
    gpu *g = gpu_of(c);
    gpu_invalidate(g, y);
    if (spans->count == 0) return;
    attention_task t = make_task(g, y, q, kv, spans, a);
    bool side = a->side || a->of_globals;
    if (!a->relative && !side && attend_fresh(g, t, kv, spans)) return;
    gpu_flush(g), gpu_invalidate(g, y);
    if (a->relative) {
        PROA_ASSERT(kv->row && kv->dtype == q.dtype);
        gpu_attend_relative(g, t, kv->dtype, *a->relative, spans);
    } else if (side) {
        gpu_attend_side(g, t, kv->dtype, *a, spans);
    } else {
        gpu_by_page_type(kv->dtype, [&](auto page) { attend_typed<decltype(page)>(g, t, kv->dtype, spans); });
    }
}

void gpu_fill_attention(proa_ops *ops)
{
    ops->kv_append = kv_append, ops->rope_append = rope_append;
    ops->attend = attend_op;
    gpu_fill_picked(ops);
}
