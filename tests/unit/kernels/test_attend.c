/* SPDX-License-Identifier: Apache-2.0
 * test_attend.c - paged attention of each vector table against dense attention in double, where kerncheck does not
 * reach: contexts of several chunks, the split over threads, wide heads, far relative positions, infinite scores, spans
 * that share pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"
#include "kernels/ops.h"
#include <math.h>
#include <stdlib.h>

#define SPANS_MAX   40
#define CONTEXT_MAX 9000
#define THREADS     3
#define TABLES_MAX  2

static uint64_t seed;

static uint32_t random_bits(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static float random_unit(void) /* [-1, 1) */
{
    return (float)random_bits() * 0x1p-30f - 1.0f;
}

static float *floats(int64_t n)
{
    float *p = calloc((size_t)n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* A ragged batch: keys and values dense [slot][Hk][dh], slot = first[span] + position, and the same in pages. */
typedef struct world {
    proa_kv kv;
    int64_t heads, T, slots;
    int64_t first[SPANS_MAX];
    proa_span span[SPANS_MAX];
    proa_spans spans;
    int32_t *pages;
    float *k, *v, *q, *y;
} world;

typedef struct shape {
    int64_t kv_heads, group, dh;
    proa_dtype dtype;
    int count;
    int32_t spans[SPANS_MAX][2]; /* rows, context */
} shape;

static void *page_slot(const world *w, void *base, int64_t span, int64_t p, int64_t head)
{
    int64_t page = w->pages[w->span[span].table + p / PROA_PAGE_TOKENS];
    int64_t at = ((page * w->kv.kv_heads + head) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) * w->kv.head_dim;
    return (char *)base + at * proa_dtype_bytes(w->kv.dtype);
}

/* Dense keys and values, rounded to the dtype of the pages, into the pages. */
static void write_pages(const world *w)
{
    int64_t dh = w->kv.head_dim;
    for (int64_t s = 0; s < w->spans.count; s++)
        for (int64_t p = 0; p < w->span[s].context; p++)
            for (int64_t h = 0; h < w->kv.kv_heads; h++) {
                int64_t at = ((w->first[s] + p) * w->kv.kv_heads + h) * dh;
                void *k = page_slot(w, w->kv.k, s, p, h), *v = page_slot(w, w->kv.v, s, p, h);
                proa_from_f32(k, w->kv.dtype, w->k + at, dh), proa_to_f32(w->k + at, k, w->kv.dtype, dh);
                proa_from_f32(v, w->kv.dtype, w->v + at, dh), proa_to_f32(w->v + at, v, w->kv.dtype, dh);
            }
}

/* And back: after page tables were changed. */
static void read_pages(world *w)
{
    int64_t dh = w->kv.head_dim;
    for (int64_t s = 0; s < w->spans.count; s++)
        for (int64_t p = 0; p < w->span[s].context; p++)
            for (int64_t h = 0; h < w->kv.kv_heads; h++) {
                int64_t at = ((w->first[s] + p) * w->kv.kv_heads + h) * dh;
                proa_to_f32(w->k + at, page_slot(w, w->kv.k, s, p, h), w->kv.dtype, dh);
                proa_to_f32(w->v + at, page_slot(w, w->kv.v, s, p, h), w->kv.dtype, dh);
            }
}

static void place_spans(world *w, const shape *s)
{
    int32_t pages = 0;
    for (int i = 0; i < s->count; i++) {
        w->span[i] = (proa_span){(int32_t)w->T, s->spans[i][0], s->spans[i][1], pages, 0, 0, 0};
        w->first[i] = w->slots;
        w->T += s->spans[i][0];
        w->slots += s->spans[i][1];
        pages += (int32_t)proa_ceil_div(s->spans[i][1], PROA_PAGE_TOKENS);
    }
    w->pages = calloc((size_t)pages + 1, sizeof *w->pages);
    assert_non_null(w->pages);
    for (int32_t i = 0; i < pages; i++) w->pages[i] = i;
    for (int32_t i = pages - 1; i > 0; i--) {
        int32_t j = (int32_t)(random_bits() % (uint32_t)(i + 1)), page = w->pages[i];
        w->pages[i] = w->pages[j], w->pages[j] = page;
    }
    int64_t n = pages * w->kv.kv_heads * PROA_PAGE_TOKENS * w->kv.head_dim * proa_dtype_bytes(w->kv.dtype);
    w->kv.k = malloc((size_t)n + 1), w->kv.v = malloc((size_t)n + 1);
    assert_true(w->kv.k && w->kv.v);
    memset(w->kv.k, 0xff, (size_t)n), memset(w->kv.v, 0xff, (size_t)n); /* NaN in every dtype */
}

static void world_init(world *w, const shape *s)
{
    *w = (world){.kv = {.dtype = s->dtype, .kv_heads = s->kv_heads, .head_dim = s->dh}};
    w->heads = s->kv_heads * s->group;
    seed = (uint64_t)(s->dh * 31 + s->count);
    place_spans(w, s);
    w->spans = (proa_spans){.span = w->span, .count = s->count, .pages = w->pages};
    int64_t kv = w->slots * s->kv_heads * s->dh, rows = w->T * w->heads * s->dh;
    w->k = floats(kv), w->v = floats(kv), w->q = floats(rows), w->y = floats(rows);
    for (int64_t i = 0; i < kv; i++) w->k[i] = 2 * random_unit(), w->v[i] = random_unit();
    for (int64_t i = 0; i < rows; i++) w->q[i] = 2 * random_unit();
    write_pages(w);
}

static void world_release(world *w)
{
    free(w->pages), free(w->kv.k), free(w->kv.v);
    free(w->k), free(w->v), free(w->q), free(w->y);
}

/* ---- running it ---- */

static proa_ctx contexts[TABLES_MAX * THREADS]; /* [table][threads - 1] */
static int tables;

static int open_contexts(void **state)
{
    PROA_UNUSED(state);
    const proa_ctx_need need = {.rows = 64, .inputs = 64, .heads = 16, .head_dim = 128, .columns = 64};
    for (int isa = PROA_ISA_AVX2; isa <= PROA_ISA_AVX512; isa++) {
        if (!proa_ops_cpu((proa_isa)isa)) continue;
        for (int n = 1; n <= THREADS; n++)
            if (proa_ctx_init(&contexts[tables * THREADS + n - 1], proa_ops_cpu((proa_isa)isa),
                              proa_pool_new(n), &need, NULL) != PROA_OK)
                return 1;
        tables++;
    }
    return 0;
}

static int close_contexts(void **state)
{
    PROA_UNUSED(state);
    for (int i = 0; i < tables * THREADS; i++) {
        proa_pool_free(contexts[i].pool);
        proa_ctx_release(&contexts[i]);
    }
    return 0;
}

static void attend(proa_ctx *c, const world *w, const proa_spans *spans, const proa_attention *a)
{
    int64_t n = w->T * w->heads * w->kv.head_dim;
    for (int64_t i = 0; i < n; i++) w->y[i] = 77.0f;
    c->ops->attend(c, proa_view_3d(w->y, PROA_DTYPE_F32, w->T, w->heads, w->kv.head_dim),
                   proa_view_3d(w->q, PROA_DTYPE_F32, w->T, w->heads, w->kv.head_dim), &w->kv, spans, a);
}

static float *row_of(const world *w, float *base, int64_t t, int64_t h)
{
    return base + (t * w->heads + h) * w->kv.head_dim;
}

static double score(const world *w, const proa_attention *a, int64_t s, int64_t i, int64_t h, int64_t p)
{
    int64_t dh = w->kv.head_dim, kv_head = h / (w->heads / w->kv.kv_heads);
    const float *q = row_of(w, w->q, w->span[s].row + i, h),
                *k = w->k + ((w->first[s] + p) * w->kv.kv_heads + kv_head) * dh;
    double dot = 0;
    for (int64_t j = 0; j < dh; j++) dot += (double)q[j] * (double)k[j];
    dot *= (double)a->scale;
    int64_t at = w->span[s].context - w->span[s].rows + i;
    if (a->soft_cap > 0) dot = (double)a->soft_cap * tanh(dot / (double)a->soft_cap);
    if (a->alibi) dot -= (double)a->alibi[h] * fabs((double)(p - at));
    if (!a->rel_bias) return dot;
    int32_t bucket = proa_rel_bucket((int32_t)(p - at), a->rel_buckets, a->rel_distance, a->rel_bidirectional);
    return dot + (double)a->rel_bias[bucket * w->heads + h];
}

/* Row i of span s, head h, in double. */
static void dense(const world *w, const proa_attention *a, int64_t s, int64_t i, int64_t h, double *out)
{
    int64_t dh = w->kv.head_dim, kv_head = h / (w->heads / w->kv.kv_heads), begin = 0, end = w->span[s].context;
    int64_t at = end - w->span[s].rows + i;
    if (a->causal) end = at + 1;
    if (a->window > 0) begin = proa_max64(0, at + 1 - a->window), end = proa_min64(end, at + a->window);
    double largest = -INFINITY, sum = 0;
    static double scores[CONTEXT_MAX];
    assert_true(end <= CONTEXT_MAX);
    for (int64_t j = 0; j < dh; j++) out[j] = 0;
    for (int64_t p = begin; p < end; p++) largest = fmax(largest, scores[p] = score(w, a, s, i, h, p));
    for (int64_t p = begin; p < end; p++) {
        double weight = exp(scores[p] - largest);
        const float *v = w->v + ((w->first[s] + p) * w->kv.kv_heads + kv_head) * dh;
        sum += weight;
        for (int64_t j = 0; j < dh; j++) out[j] += weight * (double)v[j];
    }
    for (int64_t j = 0; j < dh && begin < end; j++) out[j] /= sum;
}

/* Every 5th row and the last ones of each span, in what each of the tables gave. */
static void check_dense(const world *w, const proa_attention *a, float *const *given, int count)
{
    double out[PROA_HEAD_DIM_MAX];
    for (int64_t s = 0; s < w->spans.count; s++)
        for (int64_t i = 0; i < w->span[s].rows; i += i + 5 < w->span[s].rows ? 5 : 1)
            for (int64_t h = 0; h < w->heads; h++) {
                dense(w, a, s, i, h, out);
                for (int64_t n = 0; n < count * w->kv.head_dim; n++) {
                    int64_t j = n % w->kv.head_dim;
                    float y = row_of(w, given[n / w->kv.head_dim], w->span[s].row + i, h)[j];
                    if (!(fabs((double)y - out[j]) <= 4e-6))
                        fail_msg("table %d span %d row %d head %d element %d: %.9g, expected %.9g",
                                 (int)(n / w->kv.head_dim), (int)s, (int)i, (int)h, (int)j, (double)y, out[j]);
                }
            }
}

/* Right on one thread, and the same bits on more, and without scratch. */
static void check_world(world *w, const proa_attention *a)
{
    size_t bytes = (size_t)(w->T * w->heads * w->kv.head_dim) * sizeof(float);
    float *first[TABLES_MAX];
    for (int t = 0; t < tables; t++) {
        first[t] = floats(w->T * w->heads * w->kv.head_dim);
        attend(&contexts[t * THREADS], w, &w->spans, a);
        memcpy(first[t], w->y, bytes);
        for (int n = 1; n < THREADS; n++) {
            proa_ctx c = contexts[t * THREADS + n];
            attend(&c, w, &w->spans, a);
            assert_memory_equal(w->y, first[t], bytes);
            c.scratch_bytes = 0;
            attend(&c, w, &w->spans, a);
            assert_memory_equal(w->y, first[t], bytes);
        }
    }
    check_dense(w, a, first, tables);
    for (int t = 0; t < tables; t++) free(first[t]);
}

static void check_shape(const shape *s, const proa_attention *a)
{
    world w;
    world_init(&w, s);
    check_world(&w, a);
    world_release(&w);
}

/* ---- tests ---- */

static const proa_dtype dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16, PROA_DTYPE_F16};

static void long_contexts(void **state)
{
    PROA_UNUSED(state);
    for (int d = 0; d < 3; d++) {
        shape s = {2, 2, 64, dtypes[d], 4, {{1, 2500}, {21, 1040}, {1, 1024}, {6, 3073}}};
        check_shape(&s, &(proa_attention){.scale = 0.125f, .causal = true});
        check_shape(&s, &(proa_attention){.scale = 0.125f, .causal = true, .window = 1100});
        check_shape(&s, &(proa_attention){.scale = 0.125f, .window = 40});
        check_shape(&s, &(proa_attention){.scale = 0.125f});
    }
}

/* One key head, one sequence: only the context can be split over threads. 20 heads are two blocks of one row. */
static void one_long_step(void **state)
{
    PROA_UNUSED(state);
    shape s = {1, 20, 32, PROA_DTYPE_BF16, 1, {{1, 7000}}};
    check_shape(&s, &(proa_attention){.scale = 0.2f, .causal = true});
    check_shape(&s, &(proa_attention){.scale = 0.2f, .causal = true, .window = 2049});
    shape mixed = {1, 1, 128, PROA_DTYPE_F32, 4, {{2, 90}, {1, 9000}, {0, 70}, {3, 5}}};
    check_shape(&mixed, &(proa_attention){.scale = 0.1f, .causal = true});
}

static void head_dims(void **state)
{
    PROA_UNUSED(state);
    static const int64_t dims[] = {1, 15, 17, 40, 72, 96, 112, 192, 257, 600, 1024};
    for (size_t i = 0; i < PROA_COUNT(dims); i++) {
        shape s = {1, 3, dims[i], dtypes[i % 3], 2, {{7, 75}, {1, 130}}};
        check_shape(&s, &(proa_attention){.scale = 1.0f / sqrtf((float)dims[i]), .causal = i % 2 == 0});
    }
}

static void relative_bias(void **state)
{
    PROA_UNUSED(state);
    float *bias = floats(64 * 6);
    for (int i = 0; i < 64 * 6; i++) bias[i] = 3 * random_unit();
    static const int32_t distances[] = {20, 128, 1024, 1025, 5000};
    for (size_t i = 0; i < PROA_COUNT(distances); i++) {
        shape s = {3, 2, 16, PROA_DTYPE_F32, 4, {{40, 40}, {1, 1700}, {11, 1200}, {90, 30}}};
        proa_attention a = {.scale = 1, .rel_bias = bias, .rel_buckets = 32, .rel_distance = distances[i]};
        a.rel_bidirectional = true;
        check_shape(&s, &a);
        a.rel_bidirectional = false, a.rel_buckets = i ? 64 - (int32_t)i : 31; /* distance > buckets / 2 */
        check_shape(&s, &a);
        s.spans[3][0] = 30;
        a.causal = true;
        check_shape(&s, &a);
        a.window = 150;
        check_shape(&s, &a);
    }
    free(bias);
}

static void slopes_of(float *slopes, int64_t heads)
{
    for (int64_t h = 0; h < heads; h++) slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
}

/* Grouped queries have slopes of their own. Caps near the scores, and one that leaves them alone. */
static void alibi_and_soft_cap(void **state)
{
    PROA_UNUSED(state);
    float slopes[6], *bias = floats(32 * 6);
    slopes_of(slopes, 6);
    for (int i = 0; i < 32 * 6; i++) bias[i] = 3 * random_unit();
    static const float caps[] = {0, 0.5f, 3, 1e6f};
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < PROA_COUNT(caps); i++) {
            if (PROA_SANITIZED && i % 3 != (size_t)d) continue; /* each cap, and each format */
            shape s = {2, 3, i % 2 ? 40 : 64, dtypes[d], 4, {{1, 2500}, {21, 1040}, {40, 40}, {6, 3073}}};
            proa_attention a = {.scale = 0.125f, .causal = true, .soft_cap = caps[i]};
            check_shape(&s, &a);
            a.alibi = slopes;
            check_shape(&s, &a);
            a.window = 1100;
            check_shape(&s, &a);
            a.rel_bias = bias, a.rel_buckets = 32, a.rel_distance = i % 2 ? 128 : 1500;
            check_shape(&s, &a);
            a.causal = false, a.rel_bidirectional = true;
            check_shape(&s, &a);
        }
    free(bias);
}

/* A row as part of a long prompt and as a step of its own, over chunks: the same bits. */
static void prompt_equals_steps(void **state)
{
    PROA_UNUSED(state);
    for (int d = 0; d < 3; d++) {
        shape s = {2, 3, 80, dtypes[d], 2, {{70, 2100}, {9, 1030}}};
        world w;
        world_init(&w, &s);
        float slopes[6];
        slopes_of(slopes, 6);
        proa_attention a = {.scale = 0.1f, .causal = true, .window = d == 1 ? 1050 : 0};
        if (d > 0) a.alibi = slopes;
        if (d == 2) a.soft_cap = 2;
        int64_t row = w.heads * s.dh, n = w.T * row;
        float *all = floats(n);
        for (int t = 0; t < tables; t++) {
            attend(&contexts[t * THREADS + 1], &w, &w.spans, &a);
            memcpy(all, w.y, (size_t)n * sizeof *all);
            for (int i = 0; i < w.T; i++) {
                proa_span one = w.span[i < 70 ? 0 : 1];
                int32_t at = i - one.row;
                one = (proa_span){i, 1, one.context - one.rows + at + 1, one.table, 0, 0, 0};
                attend(&contexts[t * THREADS + i % THREADS], &w,
                       &(proa_spans){.span = &one, .count = 1, .pages = w.pages}, &a);
                assert_memory_equal(w.y + i * row, all + i * row, (size_t)row * sizeof *all);
            }
        }
        free(all);
        world_release(&w);
    }
}

static void rows_without_keys(void **state)
{
    PROA_UNUSED(state);
    shape s = {1, 2, 24, PROA_DTYPE_F32, 4, {{3, 0}, {0, 0}, {5, 2}, {1, 1}}}; /* 5 rows of a context of 2 */
    world w;
    world_init(&w, &s);
    proa_attention a = {.scale = 1, .causal = true};
    for (int t = 0; t < tables; t++) {
        attend(&contexts[t * THREADS + 1], &w, &w.spans, &a);
        for (int64_t i = 0; i < 6 * w.heads * s.dh; i++) assert_true(w.y[i] == 0.0f);
        check_dense(&w, &a, &w.y, 1);
        attend(&contexts[t * THREADS], &w, &(proa_spans){.span = w.span, .pages = w.pages}, &a);
        for (int64_t i = 0; i < w.T * w.heads * s.dh; i++) assert_true(w.y[i] == 77.0f);
    }
    world_release(&w);
}

/* A bad key or value reaches the rows that see it and no other, not even in the same page and block. */
static void masked_keys_stay_out(void **state)
{
    PROA_UNUSED(state);
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    shape s = {1, 2, 64, PROA_DTYPE_F32, 1, {{60, 100}}};
    world w;
    world_init(&w, &s);
    proa_attention a = {.scale = 0.125f, .causal = true, .window = 20};
    int64_t row = w.heads * s.dh, n = w.T * row;
    float *clean = floats(n);
    for (int t = 0; t < tables; t++) {
        attend(&contexts[t * THREADS + 1], &w, &w.spans, &a);
        memcpy(clean, w.y, (size_t)n * sizeof *clean);
        for (int b = 0; b < 3; b++) {
            float *at = (b == 0 ? w.k : w.v) + 70 * s.dh + 5, saved = *at; /* key 70: rows 30..49 see it */
            *at = bad[b];
            write_pages(&w);
            attend(&contexts[t * THREADS + 1], &w, &w.spans, &a);
            for (int64_t i = 0; i < w.T; i++) {
                if (i < 30 || i >= 50)
                    assert_memory_equal(w.y + i * row, clean + i * row, (size_t)row * sizeof *clean);
                else assert_true(!(fabsf(w.y[i * row + 5]) < INFINITY));
            }
            *at = saved;
            write_pages(&w);
        }
    }
    free(clean);
    world_release(&w);
}

/* Scores of -infinity weigh nothing, even where whole pages and chunks have no other; all of them give NaN. */
static void infinite_scores(void **state)
{
    PROA_UNUSED(state);
    shape s = {1, 1, 8, PROA_DTYPE_F32, 1, {{1, 2300}}};
    world w;
    world_init(&w, &s);
    proa_attention a = {.scale = 1};
    w.q[0] = 1.0f;
    for (int64_t p = 0; p < 2300; p++)
        if (p < 1200 || p > 2200) w.k[p * 8] = -INFINITY;
    write_pages(&w);
    check_world(&w, &a);
    for (int64_t p = 0; p < 2300; p++) w.k[p * 8] = -INFINITY;
    write_pages(&w);
    for (int t = 0; t < tables; t++) {
        attend(&contexts[t * THREADS], &w, &w.spans, &a);
        for (int j = 0; j < 8; j++) assert_true(isnan(w.y[j]));
    }
    world_release(&w);
}

/* Two keys with the scores 0 and x: the weight of the second is exp(x) / (1 + exp(x)), good to 3 ulp. */
static void weights_are_accurate(void **state)
{
    PROA_UNUSED(state);
    shape s = {1, 1, 1, PROA_DTYPE_F32, 1, {{1, 2}}};
    world w;
    world_init(&w, &s);
    w.q[0] = 1.0f, w.k[0] = 0.0f, w.v[0] = 0.0f, w.v[1] = 1.0f;
    for (int t = 0; t < tables; t++)
        for (float x = -87.0f; x <= 87.0f; x += 0.0137f) {
            w.k[1] = x;
            write_pages(&w);
            attend(&contexts[t * THREADS], &w, &w.spans, &(proa_attention){.scale = 1});
            double expected = 1.0 / (1.0 + exp(-(double)x));
            assert_true(fabs((double)w.y[0] - expected) <= 3 * 0x1p-23 * expected);
        }
    world_release(&w);
}

/* ---- spans that share pages ---- */

/* Span s comes to have the pages of span `with` as its first n, as far as those are full. */
static void share(world *w, int64_t s, int64_t with, int64_t n)
{
    int32_t *to = w->pages + w->span[s].table, *from = w->pages + w->span[with].table;
    n = proa_min64(n, proa_min64(w->span[s].context, w->span[with].context) / PROA_PAGE_TOKENS);
    for (int64_t p = 0; p < n; p++) to[p] = from[p];
}

/* Right, and each span has the same bits in a call of its own as beside the spans that share with it. */
static void check_shared(world *w, const proa_attention *a)
{
    read_pages(w);
    check_world(w, a);
    int64_t row = w->heads * w->kv.head_dim, n = w->T * row;
    float *all = floats(n);
    for (int c = 0; c < tables * THREADS; c++) {
        attend(&contexts[c], w, &w->spans, a);
        memcpy(all, w->y, (size_t)n * sizeof *all);
        for (int64_t s = 0; s < w->spans.count; s++) {
            size_t at = (size_t)(w->span[s].row * row), rows = (size_t)(w->span[s].rows * row);
            attend(&contexts[c], w, &(proa_spans){.span = w->span + s, .count = 1, .pages = w->pages}, a);
            assert_memory_equal(w->y + at, all + at, rows * sizeof *all);
        }
    }
    free(all);
}

/* Beams: all of the prompt's full pages, or all pages (memory of an encoder, one table), or all but some. */
static void beams(void **state)
{
    PROA_UNUSED(state);
    static const int64_t groups[] = {1, 2, 3, 5, 9, 17, 33};
    for (int g = 0; g < (int)PROA_COUNT(groups); g++) {
        shape s = {g % 2 + 1, groups[g], 32, dtypes[g % 3], g < 2 ? 37 : 7, {{0}}};
        for (int i = 0; i < s.count; i++) s.spans[i][0] = 1, s.spans[i][1] = g == 1 ? 2170 : 300;
        world w;
        world_init(&w, &s);
        proa_attention a = {.scale = 0.2f};
        for (int i = 1; i < s.count; i++) share(&w, i, 0, i % 4 == 3 ? i % 5 : 40);
        check_shared(&w, &a);
        a.causal = true, a.window = 100;
        check_shared(&w, &a);
        for (int i = 1; i < s.count; i++) share(&w, i, 0, 40);
        a.window = 0;
        check_shared(&w, &a);
        for (int i = 1; i < s.count; i++) w.span[i].table = w.span[0].table;
        a.causal = false;
        check_shared(&w, &a);
        world_release(&w);
    }
}

static int32_t below(int32_t n)
{
    return (int32_t)(random_bits() % (uint32_t)n);
}

static shape random_shape(void)
{
    static const int64_t dims[] = {8, 40, 64, 128};
    shape s = {1 + below(2), 1 + below(6), dims[below(4)], dtypes[below(3)], 2 + below(6), {{0}}};
    int32_t usual = 1 + below(below(4) ? 400 : 2300);
    for (int i = 0; i < s.count; i++) {
        s.spans[i][0] = below(3) ? 1 : below(40);
        s.spans[i][1] = below(3) ? usual + below(90) : below(3) ? 1 + below(600) : 0;
    }
    return s;
}

/* Forks of forks, prefixes of all lengths, prompts beside steps, spans without rows or keys. */
static void random_sharing(void **state)
{
    PROA_UNUSED(state);
    float bias[32 * 12], slopes[12];
    seed = 3;
    slopes_of(slopes, 12);
    for (size_t i = 0; i < PROA_COUNT(bias); i++) bias[i] = random_unit();
    for (int n = 0; n < (PROA_SANITIZED ? 20 : 60); n++) {
        seed = 1000 + (uint64_t)n;
        shape s = random_shape();
        proa_attention a = {.scale = 0.1f, .causal = below(3) > 0, .window = below(3) ? 0 : 1 + below(500)};
        if (below(3) == 0) a.rel_bias = bias, a.rel_buckets = 32, a.rel_distance = below(2) ? 128 : 1500;
        a.rel_bidirectional = !a.causal;
        if (below(4) == 0) a.alibi = slopes;
        if (below(4) == 0) a.soft_cap = 1 + (float)below(4);
        world w;
        world_init(&w, &s);
        for (int i = 1; i < s.count; i++)
            if (below(5)) share(&w, i, below(2) ? i - 1 : below(i), below(2) ? 40 : below(5));
        check_shared(&w, &a);
        world_release(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_contexts),
        cmocka_unit_test(one_long_step),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(relative_bias),
        cmocka_unit_test(alibi_and_soft_cap),
        cmocka_unit_test(prompt_equals_steps),
        cmocka_unit_test(rows_without_keys),
        cmocka_unit_test(masked_keys_stay_out),
        cmocka_unit_test(infinite_scores),
        cmocka_unit_test(weights_are_accurate),
        cmocka_unit_test(beams),
        cmocka_unit_test(random_sharing),
    };
    return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
