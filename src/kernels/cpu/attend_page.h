/* SPDX-License-Identifier: Apache-2.0
 * attend_page.h - attention of a block of queries over pages, written in simd_*.h; the body of attend_avx2.c and
 * attend_avx512.c. Online softmax (Milakov, Gimelshein 2018; FlashAttention, Dao et al. 2022), a page a step.
 *
 * The bits of one query do not depend on the queries beside it:
 * - a dot product is V_WIDTH chains of fused multiply-adds along head_dim, folded as in v_sum, whatever the tile;
 * - a sum of values is one chain over the keys in rising order, over exactly the keys that the query sees: a key that
 *   is masked is not read into it, so that its NaN or infinity stays out;
 * - 16-bit pages are widened exactly, at once for many queries or on the way into the registers for few. */
#ifndef PROA_KERNELS_CPU_ATTEND_PAGE_H
#define PROA_KERNELS_CPU_ATTEND_PAGE_H

#include "base/checked.h"
#include "kernels/cpu/attend_plan.h"
#include <math.h>

#define PAGE       PROA_PAGE_TOKENS
#define QUERIES    PROA_ATTEND_QUERIES
#define TILE_KEYS  16  /* keys that are widened at a time */
#define TILE_COLS  64  /* columns of values that are worked on at a time */
#define WIDE_MAX   256 /* head_dim up to which keys are widened for all queries at once */
#define WIDEN_FROM 5   /* queries that make widening apart worth its stores */

_Static_assert(V_TILE == V_WIDTH, "the sums of one tile of scores fill one vector");

/* One page as the queries [from, to) of a block see it: neighbours that have the same page at this place of their
 * context. A page that all spans of the block share has all of the block's queries. */
typedef struct attend_page {
    const proa_attend_block *b;
    int from, to;
    const void *k, *v; /* [64][head_dim] of the KV head, at this pitch */
    int64_t pitch;
    int64_t key;                  /* position of the page's first key */
    int lo[QUERIES], hi[QUERIES]; /* query i sees the keys [lo, hi) of this page; lo = hi: none */
    int first, last;              /* smallest lo, largest hi, of those in [from, to) that see any */
    float s[QUERIES][PAGE];       /* scores, then weights */
} attend_page;

/* A matrix of any of the three dtypes: element (i, j) at index i * pitch + j. */
typedef struct attend_mat {
    const void *data;
    int64_t pitch;
} attend_mat;

static inline const void *mat_row(attend_mat m, proa_dtype dtype, int64_t row)
{
    return (const char *)m.data + row * m.pitch * (dtype == PROA_DTYPE_F32 ? 4 : 2);
}

/* ---- scores: s[i][j] = q_i . k_j for nq queries and nk keys, nq * nk = V_TILE = V_WIDTH ---- */

V_INLINE void dot_step(int nq, int nk, const float *q, int64_t q_pitch, attend_mat k, proa_dtype dtype,
                       int64_t d, int64_t lanes, vf *sum)
{
    vf key[V_TILE];
    V_UNROLL for (int j = 0; j < nk; j++)
    {
        const void *row = mat_row(k, dtype, j);
        key[j] = lanes == V_WIDTH ? v_load_as(row, dtype, d) : v_load_as_n(row, dtype, d, lanes);
    }
    V_UNROLL for (int i = 0; i < nq; i++)
    {
        vf query = v_load(q + i * q_pitch + d);
        V_UNROLL for (int j = 0; j < nk; j++) sum[i * nk + j] = v_fma(query, key[j], sum[i * nk + j]);
    }
}

V_INLINE void dot_tile(int nq, int nk, const float *q, int64_t q_pitch, attend_mat k, proa_dtype dtype,
                       int64_t dh, float *s, int64_t s_pitch)
{
    vf sum[V_TILE];
    V_UNROLL for (int i = 0; i < V_TILE; i++) sum[i] = v_zero();
    int64_t d = 0;
    for (; d + V_WIDTH <= dh; d += V_WIDTH) dot_step(nq, nk, q, q_pitch, k, dtype, d, V_WIDTH, sum);
    if (d < dh) dot_step(nq, nk, q, q_pitch, k, dtype, d, dh - d, sum);
    float out[V_WIDTH];
    v_store(out, v_sum_each(sum));
    for (int i = 0; i < nq; i++) memcpy(s + i * s_pitch, out + i * nk, (size_t)nk * sizeof(float));
}

/* s[i][j] = q_i . row j of m for nq queries and the rows [first, last), or a little around them. m holds the rows from
 * `base` on, those up to `rows_end` may be read; `dtype` and nq are constants. A tile that would reach beyond begins
 * earlier, or takes one row and again the same one. */
V_INLINE void dot_rows(int nq, const float *q, int64_t q_pitch, attend_mat m, proa_dtype dtype, int base,
                       int first, int last, int rows_end, int64_t dh, float *s, int64_t s_pitch)
{
    const int nk = V_TILE / nq;
    for (int j = first / nk * nk, step = nk; j < last; j += step) {
        int at = j + nk <= rows_end ? j : rows_end - nk;
        if (at < 0) at = j, step = 1;
        attend_mat rows = {mat_row(m, dtype, at - base), step > 1 ? m.pitch : 0};
        dot_tile(nq, nk, q, q_pitch, rows, dtype, dh, s + at, s_pitch);
    }
}

/* Scores of nq queries from query i on with the keys [first, last) of this page. Rows of the step end where the last of
 * them does. */
V_INLINE void dot_keys(attend_page *p, int nq, int i, attend_mat k, proa_dtype dtype, int base, int first, int last)
{
    const proa_attend_block *b = p->b;
    dot_rows(nq, b->query + i * b->pitch, b->pitch, k, dtype, base, first, last, b->kv->row ? last : PAGE,
             b->kv->head_dim, p->s[i], PAGE);
}

/* All queries of the page with the keys [first, last), in groups of 4, 2 and 1. */
V_INLINE void dot_all(attend_page *p, attend_mat k, proa_dtype dtype, int base, int first, int last)
{
    int i = p->from, n = p->to;
    for (; i + 4 <= n; i += 4) dot_keys(p, 4, i, k, dtype, base, first, last);
    for (; i + 2 <= n; i += 2) dot_keys(p, 2, i, k, dtype, base, first, last);
    for (; i < n; i++) dot_keys(p, 1, i, k, dtype, base, first, last);
}

V_INLINE void widen_rows(float *out, int64_t out_pitch, attend_mat m, proa_dtype dtype, int rows, int64_t cols)
{
    for (int r = 0; r < rows; r++) {
        const void *row = mat_row(m, dtype, r);
        int64_t d = 0;
        for (; d + V_WIDTH <= cols; d += V_WIDTH) v_store(out + r * out_pitch + d, v_load_as(row, dtype, d));
        if (d < cols) v_store_n(out + r * out_pitch + d, v_load_as_n(row, dtype, d, cols - d), cols - d);
    }
}

V_INLINE void page_scores(attend_page *p, proa_dtype dtype)
{
    int64_t dh = p->b->kv->head_dim;
    attend_mat k = {p->k, p->pitch};
    if (dtype == PROA_DTYPE_F32 || p->to - p->from < WIDEN_FROM || dh > WIDE_MAX) {
        dot_all(p, k, dtype, 0, p->first, p->last);
        return;
    }
    PROA_ALIGNED(64) float tile[TILE_KEYS * WIDE_MAX];
    for (int base = p->first / TILE_KEYS * TILE_KEYS; base < p->last; base += TILE_KEYS) {
        attend_mat rows = {mat_row(k, dtype, base), p->pitch}, wide = {tile, dh};
        widen_rows(tile, dh, rows, dtype, TILE_KEYS, dh);
        int last = p->last < base + TILE_KEYS ? p->last : base + TILE_KEYS;
        dot_all(p, wide, PROA_DTYPE_F32, base, p->first > base ? p->first : base, last);
    }
}

#include "kernels/cpu/attend_relative.h"

/* ---- softmax: scores to weights, and the state moved to the new maximum ---- */

static void scale_row(float *x, float factor, int64_t n)
{
    vf f = v_set1(factor);
    for (int64_t d = 0; d < n; d += V_WIDTH) v_store(x + d, v_mul(v_load(x + d), f));
}

static float exp_weight(float x)
{
    float out[V_WIDTH];
    v_store(out, v_exp_weight(v_set1(x)));
    return out[0];
}

/* What scores are taken relative to: the maximum, but never -infinity, whose differences would be NaN. */
static inline float base_of(float m)
{
    return m == -INFINITY ? 0.0f : m;
}

V_INLINE float sum_page(const vf x[PAGE / V_WIDTH])
{
    vf t[PAGE / V_WIDTH];
    V_UNROLL for (int i = 0; i < PAGE / V_WIDTH; i++) t[i] = x[i];
    V_UNROLL for (int n = PAGE / V_WIDTH / 2; n > 0; n /= 2)
    {
        V_UNROLL for (int i = 0; i < n; i++) t[i] = v_add(t[i], t[i + n]);
    }
    return v_sum(t[0]);
}

/* Turns the scores of query i into weights. Vectors without a visible key are left out: their weights are 0. */
static void softmax_row(attend_page *p, int i, proa_attend_state *state)
{
    const proa_attend_block *b = p->b;
    float *s = p->s[i], tmp[PAGE], cap = b->a->soft_cap;
    const int lo = p->lo[i], hi = p->hi[i];
    const float *bias = b->bias ? proa_attend_bias_of(b, i, p->key, tmp) : NULL;
    vf x[PAGE / V_WIDTH], none = v_set1(-INFINITY), largest = none, scale = v_set1(b->a->scale);
    V_UNROLL for (int v = 0; v < PAGE / V_WIDTH; v++)
    {
        const int at = v * V_WIDTH;
        x[v] = none;
        if (at >= hi || at + V_WIDTH <= lo) continue;
        /* One rounding with a bias or without: a bare product might be fused with the subtraction below. */
        vf add = bias ? v_load(bias + at) : v_zero();
        if (cap > 0.0f)
            x[v] = v_fma(v_tanh(v_mul(v_load(s + at), v_set1(b->a->scale / cap))), v_set1(cap), add);
        else x[v] = v_fma(v_load(s + at), scale, add);
        if (at < lo || at + V_WIDTH > hi) x[v] = v_select(v_within(at, lo, hi), x[v], none);
        largest = v_max(x[v], largest); /* passes over NaN, which exp brings back */
    }
    float highest = v_hmax(largest), m = highest > state->m[i] ? highest : state->m[i];
    float base = base_of(m), factor = 1.0f;
    V_UNROLL for (int v = 0; v < PAGE / V_WIDTH; v++)
    {
        const int at = v * V_WIDTH;
        bool seen = at < hi && at + V_WIDTH > lo;
        x[v] = seen ? v_exp_weight(v_sub(x[v], v_set1(base))) : v_zero();
        if (seen) v_store(s + at, x[v]);
    }
    if (m != state->m[i]) {
        factor = exp_weight(state->m[i] - base);
        scale_row(state->acc + i * b->pitch, factor, b->pitch);
        state->m[i] = m;
    }
    state->l[i] = fmaf(state->l[i], factor, sum_page(x));
}

/* ---- values: acc_i += sum over j of weight[i][j] v_j ---- */

/* nd vectors of columns for nq queries, keys [first, last). v and acc point at the first column. */
V_INLINE void sum_tile(int nq, int nd, const float *w, attend_mat v, proa_dtype dtype, int first, int last,
                       float *acc, int64_t acc_pitch, int64_t lanes)
{
    vf sum[V_TILE], value[V_TILE];
    V_UNROLL for (int i = 0; i < nq * nd; i++) sum[i] = v_load(acc + i / nd * acc_pitch + i % nd * V_WIDTH);
    for (int j = first; j < last; j++) {
        const void *row = mat_row(v, dtype, j);
        V_UNROLL for (int c = 0; c < nd; c++) value[c] = lanes == V_WIDTH ? v_load_as(row, dtype, c * V_WIDTH)
                                                                          : v_load_as_n(row, dtype, 0, lanes);
        V_UNROLL for (int i = 0; i < nq; i++)
        {
            vf weight = v_set1(w[i * PAGE + j]);
            V_UNROLL for (int c = 0; c < nd; c++) sum[i * nd + c] = v_fma(weight, value[c], sum[i * nd + c]);
        }
    }
    V_UNROLL for (int i = 0; i < nq * nd; i++) v_store(acc + i / nd * acc_pitch + i % nd * V_WIDTH, sum[i]);
}

V_INLINE attend_mat mat_at(attend_mat m, proa_dtype dtype, int64_t col)
{
    return (attend_mat){(const char *)m.data + col * (dtype == PROA_DTYPE_F32 ? 4 : 2), m.pitch};
}

V_INLINE void sum_tiles(int nq, const float *w, attend_mat v, proa_dtype dtype, int first, int last,
                        float *acc, int64_t acc_pitch, int64_t cols)
{
    const int nd = V_TILE / nq < 8 ? V_TILE / nq : 8;
    int64_t d = 0;
    if (first >= last) return;
    if (nd == 8)
        for (; d + 8 * V_WIDTH <= cols; d += 8 * V_WIDTH)
            sum_tile(nq, 8, w, mat_at(v, dtype, d), dtype, first, last, acc + d, acc_pitch, V_WIDTH);
    if (nd >= 4)
        for (; d + 4 * V_WIDTH <= cols; d += 4 * V_WIDTH)
            sum_tile(nq, 4, w, mat_at(v, dtype, d), dtype, first, last, acc + d, acc_pitch, V_WIDTH);
    for (; d + 2 * V_WIDTH <= cols; d += 2 * V_WIDTH)
        sum_tile(nq, 2, w, mat_at(v, dtype, d), dtype, first, last, acc + d, acc_pitch, V_WIDTH);
    if (d + V_WIDTH <= cols) {
        sum_tile(nq, 1, w, mat_at(v, dtype, d), dtype, first, last, acc + d, acc_pitch, V_WIDTH);
        d += V_WIDTH;
    }
    if (d < cols) sum_tile(nq, 1, w, mat_at(v, dtype, d), dtype, first, last, acc + d, acc_pitch, cols - d);
}

/* sum_tiles of NQ queries and a dtype. Compiled once for each, not once for each of the forty places that call it. */
typedef void sum_cols_fn(const float *w, attend_mat v, int first, int last, float *acc, int64_t acc_pitch,
                         int64_t cols);
#define SUM_COLS(name, NQ, DTYPE)                                                                            \
    static PROA_NO_INLINE void name(const float *w, attend_mat v, int first, int last, float *acc,           \
                                    int64_t acc_pitch, int64_t cols)                                         \
    {                                                                                                        \
        sum_tiles(NQ, w, v, PROA_DTYPE_##DTYPE, first, last, acc, acc_pitch, cols);                          \
    }
SUM_COLS(sum_1_f32, 1, F32)
SUM_COLS(sum_2_f32, 2, F32)
SUM_COLS(sum_4_f32, 4, F32)
SUM_COLS(sum_1_bf16, 1, BF16)
SUM_COLS(sum_2_bf16, 2, BF16)
SUM_COLS(sum_4_bf16, 4, BF16)
SUM_COLS(sum_1_f16, 1, F16)
SUM_COLS(sum_2_f16, 2, F16)
SUM_COLS(sum_4_f16, 4, F16)

/* `cols` columns, at most TILE_COLS, for nq (1, 2, 4) queries that all see the keys [first, last). */
V_INLINE void sum_cols(int nq, const float *w, attend_mat v, proa_dtype dtype, int first, int last,
                       float *acc, int64_t acc_pitch, int64_t cols)
{
    static sum_cols_fn *const of[][3] = {[PROA_DTYPE_F32] = {sum_1_f32, sum_2_f32, sum_4_f32},
                                         [PROA_DTYPE_BF16] = {sum_1_bf16, sum_2_bf16, sum_4_bf16},
                                         [PROA_DTYPE_F16] = {sum_1_f16, sum_2_f16, sum_4_f16}};
    of[dtype][nq / 2](w, v, first, last, acc, acc_pitch, cols);
}

/* nq queries from i on: what they all see together, what each sees before and after that by itself. */
V_INLINE void sum_group(attend_page *p, int nq, int i, attend_mat v, proa_dtype dtype, float *acc, int64_t cols)
{
    int64_t pitch = p->b->pitch;
    int first = p->lo[i], last = p->hi[i];
    for (int g = 1; g < nq; g++) {
        first = p->lo[i + g] > first ? p->lo[i + g] : first;
        last = p->hi[i + g] < last ? p->hi[i + g] : last;
    }
    if (first >= last) first = last = PAGE; /* nothing in common: all of it is "before" */
    for (int g = 0; nq > 1 && g < nq; g++) {
        int end = p->hi[i + g] < first ? p->hi[i + g] : first;
        sum_cols(1, p->s[i + g], v, dtype, p->lo[i + g], end, acc + (i + g) * pitch, pitch, cols);
    }
    sum_cols(nq, p->s[i], v, dtype, first, last, acc + i * pitch, pitch, cols);
    for (int g = 0; nq > 1 && g < nq; g++)
        sum_cols(1, p->s[i + g], v, dtype, last, p->hi[i + g], acc + (i + g) * pitch, pitch, cols);
}

V_INLINE void sum_all(attend_page *p, attend_mat v, proa_dtype dtype, float *acc, int64_t cols)
{
    int i = p->from, n = p->to;
    for (; i + 4 <= n; i += 4) sum_group(p, 4, i, v, dtype, acc, cols);
    for (; i + 2 <= n; i += 2) sum_group(p, 2, i, v, dtype, acc, cols);
    for (; i < n; i++) sum_group(p, 1, i, v, dtype, acc, cols);
}

V_INLINE void page_values(attend_page *p, proa_dtype dtype, proa_attend_state *state)
{
    int64_t dh = p->b->kv->head_dim;
    attend_mat v = {p->v, p->pitch};
    if (dtype == PROA_DTYPE_F32 || p->to - p->from < WIDEN_FROM) {
        sum_all(p, v, dtype, state->acc, dh);
        return;
    }
    PROA_ALIGNED(64) float tile[PAGE * TILE_COLS];
    for (int64_t d = 0; d < dh; d += TILE_COLS) {
        int64_t cols = proa_min64(TILE_COLS, dh - d);
        attend_mat from = {mat_row(mat_at(v, dtype, d), dtype, p->first), p->pitch}, wide = {tile, TILE_COLS};
        widen_rows(tile + p->first * TILE_COLS, TILE_COLS, from, dtype, p->last - p->first, cols);
        sum_all(p, wide, PROA_DTYPE_F32, state->acc + d, cols);
    }
}

/* ---- pages ---- */

/* Whether query i sees keys of its tree at the positions of this page: they are stored elsewhere, perhaps. */
static bool sees_tree(const proa_attend_block *b, int i, int64_t place)
{
    return b->seen[i] && b->end[i] > place * PAGE && b->tree[i] < (place + 1) * PAGE;
}

/* What query i sees of the page at this place. */
static void query_limits(attend_page *p, int i)
{
    const proa_attend_block *b = p->b;
    p->lo[i] = (int)(proa_max64(b->begin[i], p->key) - p->key);
    p->hi[i] = (int)(proa_min64(b->end[i], p->key + PAGE) - p->key);
    if (p->lo[i] >= p->hi[i]) p->lo[i] = p->hi[i] = 0;
}

/* The same of all queries, but for those that attend_tree takes. */
static void page_limits(attend_page *p, const proa_attend_block *b, int64_t place)
{
    p->b = b;
    p->key = place * PAGE;
    for (int i = 0; i < b->n; i++)
        if (sees_tree(b, i, place)) p->lo[i] = p->hi[i] = 0;
        else query_limits(p, i);
}

/* The page's keys and values for query i. */
static void page_find(attend_page *p, int i, int64_t place)
{
    const proa_attend_block *b = p->b;
    const proa_kv *kv = b->kv;
    int64_t at, dh = kv->head_dim;
    p->pitch = kv->row ? kv->row : dh;
    if (kv->row) at = (b->row[i] + place * PAGE) * kv->row + b->kv_head * dh;
    else at = (b->pages[i][place] * kv->kv_heads + b->kv_head) * PAGE * dh;
    p->k = (const char *)kv->k + at * proa_dtype_bytes(kv->dtype);
    p->v = (const char *)kv->v + at * proa_dtype_bytes(kv->dtype);
}

static bool same_page(const proa_attend_block *b, int i, int j, int64_t place)
{
    if (b->kv->row) return b->row[i] == b->row[j];
    return b->pages[i] == b->pages[j] || b->pages[i][place] == b->pages[j][place];
}

/* Opens the page of the first query from `from` on that sees a key at this place, for it and for those after it that
 * have the same page; who sees nothing is passed over, and its table is not read: it may end before. False if
 * nobody is left. */
static bool page_open(attend_page *p, int from, int64_t place)
{
    const proa_attend_block *b = p->b;
    while (from < b->n && p->hi[from] == 0) from++;
    if (from == b->n) return false;
    page_find(p, from, place);
    p->first = PAGE, p->last = 0;
    p->from = from;
    for (p->to = from; p->to < b->n; p->to++) {
        int i = p->to;
        if (p->hi[i] == 0) continue;
        if (!same_page(b, i, from, place)) break;
        p->first = p->lo[i] < p->first ? p->lo[i] : p->first;
        p->last = p->hi[i] > p->last ? p->hi[i] : p->last;
    }
    return true;
}

/* ---- a row of a tree: its keys in the order of their positions, wherever they are stored ---- */

/* Keys that follow each other in one page and at the positions of another: row `from` + j there is key `to` + j. */
typedef struct tree_run {
    int64_t place; /* of the page that they are in */
    int from, to, count;
} tree_run;

/* The run that begins at key j of the page of positions p->key, for query i. */
static tree_run tree_run_at(const attend_page *p, int i, int j)
{
    const proa_attend_block *b = p->b;
    int64_t slot = proa_tree_slot(b->tree[i], b->seen[i], p->key + j);
    tree_run run = {slot / PAGE, (int)(slot % PAGE), j, 1};
    while (j + run.count < p->hi[i] && run.from + run.count < PAGE &&
           proa_tree_slot(b->tree[i], b->seen[i], p->key + j + run.count) == slot + run.count)
        run.count++;
    return run;
}

/* The scores of query i with the keys of its runs. Runs of one page share their products. */
V_INLINE void tree_scores(attend_page *p, int i, const tree_run *runs, int count, proa_dtype dtype)
{
    const proa_attend_block *b = p->b;
    float raw[PAGE];
    for (int r = 0, end; r < count; r = end) {
        for (end = r + 1; end < count && runs[end].place == runs[r].place;) end++;
        page_find(p, i, runs[r].place);
        dot_rows(1, b->query + i * b->pitch, b->pitch, (attend_mat){p->k, p->pitch}, dtype, 0, runs[r].from,
                 runs[end - 1].from + runs[end - 1].count, PAGE, b->kv->head_dim, raw, PAGE);
        for (int n = r; n < end; n++)
            memcpy(p->s[i] + runs[n].to, raw + runs[n].from, (size_t)runs[n].count * sizeof *raw);
    }
}

V_INLINE void tree_values(attend_page *p, int i, const tree_run *runs, int count, proa_dtype dtype,
                          proa_attend_state *state)
{
    const proa_attend_block *b = p->b;
    for (int r = 0; r < count; r++) {
        page_find(p, i, runs[r].place);
        attend_mat v = {p->v, p->pitch};
        v.data = mat_row(v, dtype, runs[r].from);
        sum_cols(1, p->s[i] + runs[r].to, v, dtype, 0, runs[r].count, state->acc + i * b->pitch, b->pitch,
                 b->kv->head_dim);
    }
}

/* Query i with the keys at the positions of the page, some of which are its tree's. */
V_INLINE void attend_tree(attend_page *p, int i, proa_dtype dtype, proa_attend_state *state)
{
    tree_run runs[PAGE];
    int count = 0;
    query_limits(p, i);
    for (int j = p->lo[i]; j < p->hi[i]; j += runs[count++].count) runs[count] = tree_run_at(p, i, j);
    if (count > 0) {
        tree_scores(p, i, runs, count, dtype);
        softmax_row(p, i, state);
        tree_values(p, i, runs, count, dtype, state);
    }
    p->lo[i] = p->hi[i] = 0;
}

V_INLINE void attend_pages(const proa_attend_block *b, proa_dtype dtype, int64_t begin, int64_t end,
                           proa_attend_state *state)
{
    attend_page p;
    for (int64_t place = begin; place < end; place++) {
        page_limits(&p, b, place);
        for (int i = 0; i < b->n; i++)
            if (sees_tree(b, i, place)) attend_tree(&p, i, dtype, state);
        for (int from = 0; page_open(&p, from, place); from = p.to) {
            page_scores(&p, dtype);
            if (dtype == PROA_DTYPE_F32 && b->a->relative) page_relative(&p);
            for (int i = p.from; i < p.to; i++)
                if (p.lo[i] < p.hi[i]) softmax_row(&p, i, state);
            page_values(&p, dtype, state);
        }
    }
}

static void attend_chunk(const proa_attend_block *b, int64_t begin, int64_t end, proa_attend_state *state)
{
    for (int i = 0; i < b->n; i++) state->m[i] = -INFINITY, state->l[i] = 0.0f;
    memset(state->acc, 0, (size_t)(b->n * b->pitch) * sizeof(float));
    switch (b->kv->dtype) {
    case PROA_DTYPE_F32: attend_pages(b, PROA_DTYPE_F32, begin, end, state); break;
    case PROA_DTYPE_BF16: attend_pages(b, PROA_DTYPE_BF16, begin, end, state); break;
    default: attend_pages(b, PROA_DTYPE_F16, begin, end, state); break;
    }
}

static void attend_merge(proa_attend_state *total, const proa_attend_state *part, int i, int64_t pitch)
{
    float m = part->m[i] > total->m[i] ? part->m[i] : total->m[i], base = base_of(m);
    float old = exp_weight(total->m[i] - base), new = exp_weight(part->m[i] - base);
    total->m[i] = m;
    total->l[i] = fmaf(total->l[i], old, part->l[i] * new);
    float *acc = total->acc + i * pitch;
    for (int64_t d = 0; d < pitch; d += V_WIDTH) {
        vf add = v_mul(v_load(part->acc + i * pitch + d), v_set1(new));
        v_store(acc + d, v_fma(v_load(acc + d), v_set1(old), add));
    }
}

static void attend_finish(float *y, const proa_attend_state *total, int i, int64_t pitch, int64_t head_dim)
{
    vf l = v_set1(total->l[i]);
    const float *acc = total->acc + i * pitch;
    int64_t d = 0;
    for (; d + V_WIDTH <= head_dim; d += V_WIDTH) v_store(y + d, v_div(v_load(acc + d), l));
    if (d < head_dim) v_store_n(y + d, v_div(v_load(acc + d), l), head_dim - d);
}

static const proa_attend_isa attend_isa = {attend_chunk, attend_merge, attend_finish};

#endif
