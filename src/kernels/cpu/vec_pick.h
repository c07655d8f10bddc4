/* SPDX-License-Identifier: Apache-2.0
 * vec_pick.h - what is done with a row of logits: log_sum_exp and top_k, written in simd_*.h; included by vec_avx2.c
 * and vec_avx512.c. */
#ifndef PROA_KERNELS_CPU_VEC_PICK_H
#define PROA_KERNELS_CPU_VEC_PICK_H

#include "kernels/cpu/vec_rows.h"

#define LSE_BLOCK  4096 /* columns summed in f32 before they join the sum in double */
#define TOP_BLOCK  256  /* columns that share a maximum, at least */
#define TOP_BLOCKS 1024 /* of a row, at most */

typedef struct pick_job {
    proa_view x, values;
    float *out;
    int32_t *ids;
    int64_t k;
} pick_job;

/* ---- log_sum_exp ---- */

/* NaN is passed over. */
static float largest_of(const float *x, int64_t d)
{
    vf m = v_set1(-INFINITY);
    int64_t j = 0;
    for (; j + V_WIDTH <= d; j += V_WIDTH) m = v_max(v_load(x + j), m);
    if (j < d) m = v_max(v_select(v_first(d - j), v_load_n(x + j, d - j), v_set1(-INFINITY)), m);
    return v_hmax(m);
}

static bool has_nan(const float *x, int64_t d)
{
    for (int64_t j = 0; j < d; j++)
        if (isnan(x[j])) return true;
    return false;
}

static float sum_exp(const float *x, int64_t d, float base)
{
    vf sum = v_zero(), b = v_set1(base);
    int64_t j = 0;
    for (; j + V_WIDTH <= d; j += V_WIDTH) sum = v_add(v_exp_weight(v_sub(v_load(x + j), b)), sum);
    if (j < d)
        sum = v_add(v_select(v_first(d - j), v_exp_weight(v_sub(v_load_n(x + j, d - j), b)), v_zero()), sum);
    return v_sum(sum);
}

static float log_sum_exp_row(const float *x, int64_t d)
{
    float m = largest_of(x, d);
    if (m == INFINITY) return has_nan(x, d) ? NAN : m;
    float base = m == -INFINITY ? 0.0f : m; /* all -infinity, or NaN among them: the sum says which */
    double sum = 0;
    for (int64_t j = 0; j < d; j += LSE_BLOCK)
        sum += (double)sum_exp(x + j, proa_min64(LSE_BLOCK, d - j), base);
    return (float)((double)base + log(sum));
}

static void log_sum_exp_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const pick_job *job = arg;
    for (int64_t t = begin; t < end; t++) job->out[t] = log_sum_exp_row(row_at(job->x, t), job->x.shape[1]);
}

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    pick_job job = {.x = x, .out = out};
    proa_pool_run(c->pool, x.shape[0], proa_max64(1, VEC_SHARE / proa_max64(x.shape[1], 1)), log_sum_exp_rows,
                  &job);
}

/* ---- top_k: the k-th largest of the maxima of blocks is a floor under the k best, so one pass over the row and a
 * second one over the few blocks that reach the floor find them. A heap of the k best so far, its worst on top, is in
 * the outputs themselves; a vector comparison with that worst finds the few candidates among the rest ---- */

/* Whether (a, at i) comes after (b, at j) in top_k's order, in which NaN is the smallest. */
static bool ranks_after(float a, int32_t i, float b, int32_t j)
{
    if (a == b || (isnan(a) && isnan(b))) return i > j;
    return isnan(a) || a < b;
}

typedef struct pick_heap {
    float *value;
    int32_t *id;
} pick_heap;

/* Puts (v, id) in at place i of the heap of n, at or below i. */
static void heap_sink(pick_heap h, int64_t i, int64_t n, float v, int32_t id)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && ranks_after(h.value[child + 1], h.id[child + 1], h.value[child], h.id[child]))
            child++;
        if (!ranks_after(h.value[child], h.id[child], v, id)) break;
        h.value[i] = h.value[child];
        h.id[i] = h.id[child];
        i = child;
    }
    h.value[i] = v;
    h.id[i] = id;
}

static void heap_offer(pick_heap h, int64_t k, float v, int64_t id)
{
    if (ranks_after(h.value[0], h.id[0], v, (int32_t)id)) heap_sink(h, 0, k, v, (int32_t)id);
}

/* Offers those columns [j, d) of x that are above floor. The worst of the heap is a number: NaNs lose to it. */
static void heap_scan(pick_heap h, int64_t k, const float *x, int64_t j, int64_t d, float floor)
{
    vf worst = v_set1(fmaxf(floor, h.value[0]));
    for (; j + 4 * V_WIDTH <= d; j += 4 * V_WIDTH) {
        uint64_t hits = 0;
        V_UNROLL for (int i = 0; i < 4; i++)
            hits |= (uint64_t)v_bits(v_gt(v_load(x + j + i * V_WIDTH), worst)) << (i * V_WIDTH);
        if (PROA_LIKELY(!hits)) continue;
        for (; hits; hits &= hits - 1) {
            int64_t at = j + __builtin_ctzll(hits);
            heap_offer(h, k, x[at], at);
        }
        worst = v_set1(fmaxf(floor, h.value[0]));
    }
    for (; j < d; j++) heap_offer(h, k, x[j], j);
}

/* The k best of the first columns as they stand, then of all. */
static void heap_fill(pick_heap h, int64_t k, const float *x, int64_t d)
{
    int64_t j = k;
    for (int64_t i = 0; i < k; i++) {
        h.value[i] = x[i];
        h.id[i] = (int32_t)i;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--) heap_sink(h, i, k, h.value[i], h.id[i]);
    for (; j < d && isnan(h.value[0]); j++) heap_offer(h, k, x[j], j);
    heap_scan(h, k, x, j, d, -INFINITY);
}

static int64_t block_of(int64_t d)
{
    return proa_round_up(proa_max64(TOP_BLOCK, proa_ceil_div(d, TOP_BLOCKS)), 4 * V_WIDTH);
}

/* As heap_fill, for blocks many times k; false where whole blocks are -infinity or NaN. */
static bool heap_fill_by_blocks(pick_heap h, int64_t k, const float *x, int64_t d)
{
    float largest[TOP_BLOCKS];
    int64_t block = block_of(d), blocks = proa_ceil_div(d, block);
    for (int64_t b = 0; b < blocks; b++)
        largest[b] = largest_of(x + b * block, proa_min64(block, d - b * block));
    heap_fill(h, k, largest, blocks);
    float floor = nextafterf(h.value[0], -INFINITY); /* k values are above it */
    if (!(floor > -INFINITY)) return false;
    for (int64_t i = 0; i < k; i++) { /* all of them pushed out */
        h.value[i] = -INFINITY;
        h.id[i] = INT32_MAX;
    }
    for (int64_t b = 0; b < blocks; b++)
        if (largest[b] > floor) heap_scan(h, k, x, b * block, proa_min64((b + 1) * block, d), floor);
    return true;
}

static void top_k_row(pick_heap h, const float *x, int64_t d, int64_t k)
{
    bool by_blocks = d / block_of(d) >= 4 * k;
    if (!by_blocks || !heap_fill_by_blocks(h, k, x, d)) heap_fill(h, k, x, d);
    for (int64_t n = k - 1; n > 0; n--) { /* the worst of what is left goes last */
        float v = h.value[n];
        int32_t id = h.id[n];
        h.value[n] = h.value[0];
        h.id[n] = h.id[0];
        heap_sink(h, 0, n, v, id);
    }
}

static void top_k_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const pick_job *job = arg;
    for (int64_t t = begin; t < end; t++)
        top_k_row((pick_heap){row_at(job->values, t), job->ids + t * job->k}, row_at(job->x, t),
                  job->x.shape[1], job->k);
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    pick_job job = {.x = x, .values = values, .ids = ids, .k = k};
    proa_pool_run(c->pool, x.shape[0], proa_max64(1, VEC_SHARE / proa_max64(x.shape[1], 1)), top_k_rows, &job);
}

#endif
