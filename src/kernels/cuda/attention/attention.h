/* SPDX-License-Identifier: Apache-2.0
 * attention.h - what the attention kernels share: the task, where a key is stored, which keys a row sees, how
 * a score is modified. */
#ifndef PROA_KERNELS_CUDA_ATTENTION_ATTENTION_H
#define PROA_KERNELS_CUDA_ATTENTION_ATTENTION_H

#include "kernels/cuda/runtime/cuda.h"

enum { PAGE = PROA_PAGE_TOKENS };

struct attention_task {
    void *y;
    int64_t y_row, y_head;
    const void *q;
    int64_t q_row, q_head;
    proa_dtype type; /* of y and q: f32, or the type of keys and values, or 16 bits with pages of e4m3 */
    const void *k, *v;
    int64_t kv_row;                  /* 0: pages; else elements between the rows of k and v */
    int64_t rows;                    /* of the step */
    int heads, kv_heads, dim, group; /* group: query heads of a key head */
    const proa_span *spans;
    const int32_t *pages;
    const uint64_t *seen; /* [rows] of the rows of trees; NULL: no span has a tree */
    float scale;
    bool causal;
    int window;
    bool chunked;           /* the window begins at its last multiple */
    const float *rel_bias;  /* [buckets][heads] */
    const int16_t *buckets; /* of distance -reach..reach */
    int reach;
    const float *alibi; /* [heads]; NULL: none */
    const float *sinks; /* [heads]; NULL: none */
    float soft_cap;
    bool has_score_mod; /* a score is more than the scaled product: score_mod must be called */
    bool q_vec4;        /* q is f32, and groups of four numbers are aligned to 16 bytes */
    bool q_vec8;        /* q has 16 bits, and groups of eight numbers are aligned to 16 bytes */
};

__device__ static inline float read_q(const attention_task &t, int64_t at)
{
    if (t.type == PROA_DTYPE_F32) return ((const float *)t.q)[at];
    if (t.type == PROA_DTYPE_F16) return __half2float(((const __half *)t.q)[at]);
    return __bfloat162float(((const __nv_bfloat16 *)t.q)[at]);
}

__device__ static inline void write_y(const attention_task &t, int64_t at, float v)
{
    if (t.type == PROA_DTYPE_F32) ((float *)t.y)[at] = v;
    else if (t.type == PROA_DTYPE_F16) ((__half *)t.y)[at] = gpu_saturate<__half>(v);
    else ((__nv_bfloat16 *)t.y)[at] = gpu_saturate<__nv_bfloat16>(v);
}

__device__ static inline float bias_of(const attention_task &t, int h, int distance)
{
    if (!t.rel_bias) return 0.0f;
    int d = distance < -t.reach ? -t.reach : distance > t.reach ? t.reach : distance;
    return t.rel_bias[t.buckets[d + t.reach] * t.heads + h];
}

__device__ static inline float slope_of(const attention_task &t, int h)
{
    return t.alibi ? t.alibi[h] : 0.0f;
}

/* The score for the scaled product x of a query and the key at distance = k_pos - q_pos: soft cap, then
 * relative bias, then ALiBi (op_attention.h). bias and slope are bias_of and slope_of. Without t.has_score_mod it is x
 * itself. The mask comes after it. */
__device__ static inline float score_mod(const attention_task &t, float x, float bias, float slope, int distance)
{
    if (t.soft_cap > 0.0f) x = t.soft_cap * tanhf(x / t.soft_cap);
    return fmaf(-slope, fabsf((float)distance), x + bias);
}

/* The sink of a head; without sinks -INFINITY, whose weight is 0. */
__device__ static inline float sink_of(const attention_task &t, int h)
{
    return t.sinks ? t.sinks[h] : -INFINITY;
}

/* What a sink adds to the sum of weights that are relative to 2^top. */
__device__ static inline float weight_of_sink(float sink, float top)
{
    return exp2f(sink * 1.4426950408889634f - (top == -INFINITY ? 0.0f : top));
}

/* The same of a head's. */
__device__ static inline float sink_weight(const attention_task &t, int h, float top)
{
    return t.sinks ? weight_of_sink(t.sinks[h], top) : 0.0f;
}

/* The keys [first_key, end_key) that a row at position `at` sees. Both rise with `at`, so neighbouring rows together
 * see those from first_key of the first row to end_key of the last. */
__device__ static inline int first_key(const attention_task &t, int at)
{
    if (t.window > 0 && t.chunked) return at - at % t.window;
    return t.window > 0 ? max(0, at + 1 - t.window) : 0;
}

__device__ static inline int end_key(const attention_task &t, int context, int at)
{
    if (t.causal) return at + 1;
    return t.window > 0 ? min(context, at + t.window) : context;
}

/* The same of row i of a span. */
__device__ static inline void visible_keys(const attention_task &t, const proa_span &s, int i, int *begin,
                                           int *end)
{
    int at = s.context - s.rows + i;
    *begin = first_key(t, at), *end = end_key(t, s.context, at);
}

/* Whether the decode kernels have the span: one row, which is no node of a tree behind other nodes. */
__device__ static inline bool is_single_row(const proa_span &s)
{
    return s.rows == 1 && s.tree <= 1;
}

/* A row of a tree of draft tokens, or any other row (proa_tree_seen and the functions after it, for keys by their
 * place). */
struct tree_row {
    uint64_t seen; /* 0: it is in no tree */
    int first, at; /* where the tree begins; the row's position */

    /* The position of the key that is stored at p; -1: it is in the tree, and the row does not see it. */
    __device__ inline int position(int p) const
    {
        if (!seen || p < first) return p;
        int j = p - first;
        bool sees = j < PROA_TREE_MAX && (seen >> j & 1);
        return sees ? first + __popcll(seen & (((uint64_t)1 << j) - 1)) : -1;
    }
};

__device__ static inline tree_row tree_row_of(const attention_task &t, const proa_span &s, int i)
{
    tree_row row = {0, s.context - s.tree, s.context - s.rows + i};
    if (i < s.rows - s.tree || i >= s.rows) return row;
    row.seen = t.seen[s.row + i];
    row.at = row.first + __popcll(row.seen) - 1;
    return row;
}

/* Where the 64 keys (or values) of a head in a page begin; they are `step` elements apart. */
template <typename T>
__device__ static inline const T *page_of(const attention_task &t, const void *base, const proa_span &s,
                                          int page, int kv)
{
    if (t.kv_row) return (const T *)base + (int64_t)(s.row + page * PAGE) * t.kv_row + kv * t.dim;
    return (const T *)base + ((int64_t)t.pages[s.table + page] * t.kv_heads + kv) * PAGE * t.dim;
}

template <typename T>
__device__ static inline const T *key_row(const attention_task &t, const void *base, const proa_span &s,
                                          int p, int kv)
{
    int64_t step = t.kv_row ? t.kv_row : t.dim;
    return page_of<T>(t, base, s, p / PAGE, kv) + p % PAGE * step;
}

/* Spans of one row. False: the sizes do not fit (decode_mma.cu). */
bool gpu_decode(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans);

/* What rope_append does to the rows of spans of one row, when the attention kernel does it itself: the RMS norms
 * of the heads of q and k, their rotary positions (halves, all of the head), and the newest key and value, which are
 * used and written into their pages. */
struct new_rows {
    const void *x; /* NULL: rope_append has run. The heads of q, and behind them those of k, of q's type */
    int64_t x_row, x_head;
    const void *v;
    int64_t v_row, v_head;
    const float *table; /* of a row: cosines [dim / 2], sines [dim / 2] */
    int64_t table_row;
    const float *q_norm, *k_norm; /* [dim]; NULL: no norms */
    float q_eps, k_eps;
};

enum { SHORT_SPANS_MAX = 16 };
/* Few spans of one row over short contexts (decode_short.cu). False: the sizes do not fit. */
bool gpu_decode_short(gpu *g, const attention_task &t, proa_dtype pages, int spans, int context,
                      const new_rows &fresh);
/* Spans of more than one row on tensor cores; with kv_row all spans. False: the sizes do not fit and nothing
 * was launched. For Hopper (prefill_wgmma.cu), and for any GPU (prefill_mma.cu), which takes trees too. */
bool gpu_prefill_wgmma(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans);
bool gpu_prefill_mma(gpu *g, const attention_task &t, proa_dtype pages, const proa_spans *spans);
/* With side keys or of the global rows alone, in 16 bits, whose keys are rows of the step (prefill_mma.cu). */
bool gpu_prefill_side(gpu *g, const attention_task &t, proa_dtype keys, const proa_attention &a,
                      const proa_spans *spans);
/* Whole rows of the step in f32, if all keys of a head fit into a block's shared memory (encoder_short_f32.cu). */
bool gpu_encoder_short(gpu *g, const attention_task &t, proa_dtype pages, int spans, int rows, int context);
/* With relative positions: keys and values are rows of the step (relative.cu). */
void gpu_attend_relative(gpu *g, const attention_task &t, proa_dtype rows, const proa_relative &r,
                         const proa_spans *spans);
/* With side keys, or of the first rows of each span alone: by tensor cores, else by the plain kernel (side.cu). */
void gpu_attend_side(gpu *g, const attention_task &t, proa_dtype keys, const proa_attention &a,
                     const proa_spans *spans);
/* The keys that rows pick (picked.cu). */
void gpu_fill_picked(proa_ops *ops);

#endif
