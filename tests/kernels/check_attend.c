/* SPDX-License-Identifier: Apache-2.0
 * check_attend.c - keys and values in pages, and attention over them. Slots that no span sees hold NaN. */
#include "check.h"

#include "base/checked.h"
#include <math.h>

#define SPANS_MAX 24
#define PAGES_MAX 96

/* A ragged batch over pages in a shuffled order. */
typedef struct world {
    proa_kv kv;
    int64_t bytes; /* of k and of v */
    proa_span span[SPANS_MAX];
    int32_t pages[PAGES_MAX];
    proa_spans spans;
    uint64_t seen[SPANS_MAX * PROA_TREE_MAX]; /* of the rows of trees */
    int64_t T, heads;
    int32_t page_count;
    char label[160];
} world;

static const int32_t decode_like[][2] = {{1, 1},  {1, 64},  {1, 65}, {1, 200},
                                         {1, 37}, {1, 128}, {1, 0},  {1, 129}};
/* More than a device takes as few. */
static const int32_t decode_many[][2] = {{1, 1},  {1, 64}, {1, 65}, {1, 200}, {1, 37}, {1, 128}, {1, 0},
                                         {1, 33}, {1, 2},  {1, 31}, {1, 100}, {1, 5},  {1, 63},  {1, 17},
                                         {1, 66}, {1, 48}, {1, 32}, {1, 127}, {1, 9},  {1, 80}};
/* Contexts that a device splits. */
static const int32_t decode_long[][2] = {{1, 4200}, {1, 3}, {1, 700}};
static const int32_t ragged[][2] = {{3, 3}, {1, 5}, {65, 130}, {2, 0}, {17, 64}, {1, 63}, {5, 70}, {7, 7}};

static void world_add(world *w, int32_t rows, int32_t context)
{
    int32_t pages = (int32_t)proa_ceil_div(context, PROA_PAGE_TOKENS);
    w->span[w->spans.count++] = (proa_span){(int32_t)w->T, rows, context, w->page_count, 0, 0, 0};
    w->T += rows;
    w->page_count += pages;
}

static void world_fill(world *w, uint64_t seed, bool specials)
{
    specials = specials && !device_mode.on; /* there a NaN among the values may spread within its span */
    int64_t elements = w->bytes / proa_dtype_bytes(w->kv.dtype), dh = w->kv.head_dim;
    float *row = malloc((size_t)proa_max64(dh, 1) * 4);
    PROA_ASSERT(row);
    for (int64_t i = 0; i < elements; i++) {
        float nan = NAN;
        proa_from_f32((char *)w->kv.k + i * proa_dtype_bytes(w->kv.dtype), w->kv.dtype, &nan, 1);
    }
    memcpy(w->kv.v, w->kv.k, (size_t)w->bytes);
    for (int64_t s = 0; s < w->spans.count; s++)
        for (int64_t p = 0; p < w->span[s].context; p++)
            for (int64_t h = 0; h < w->kv.kv_heads * 2; h++) {
                int64_t page = w->pages[w->span[s].table + p / PROA_PAGE_TOKENS];
                int64_t at = ((page * w->kv.kv_heads + h / 2) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) * dh;
                for (int64_t j = 0; j < dh; j++) row[j] = rng_normal(&seed);
                if (specials && h == 1 && p == 3) row[0] = 1e30f;     /* a huge value */
                if (specials && h == 0 && p == 60) row[dh / 2] = NAN; /* a key that spoils those who see it */
                proa_from_f32((char *)(h % 2 ? w->kv.v : w->kv.k) + at * proa_dtype_bytes(w->kv.dtype),
                              w->kv.dtype, row, dh);
            }
    free(row);
}

static void world_init(world *w, const int32_t (*shape)[2], size_t count, int64_t kv_heads, int64_t group,
                       int64_t dh, proa_dtype dtype)
{
    *w = (world){.kv = {.dtype = dtype, .kv_heads = kv_heads, .head_dim = dh}, .heads = kv_heads * group};
    w->spans = (proa_spans){.span = w->span, .pages = w->pages};
    for (size_t i = 0; i < count; i++) world_add(w, shape[i][0], shape[i][1]);
    PROA_ASSERT(w->page_count <= PAGES_MAX);
    for (int32_t i = 0; i < w->page_count; i++) w->pages[i] = (i * 7 + 3) % w->page_count;
    if (w->page_count % 7 == 0)
        for (int32_t i = 0; i < w->page_count; i++) w->pages[i] = w->page_count - 1 - i;
    w->bytes = w->page_count * kv_heads * PROA_PAGE_TOKENS * dh * proa_dtype_bytes(dtype);
    w->kv.k = aligned_alloc(64, (size_t)proa_round_up(w->bytes, 64));
    w->kv.v = aligned_alloc(64, (size_t)proa_round_up(w->bytes, 64));
    PROA_ASSERT(w->kv.k && w->kv.v);
}

static void world_release(world *w)
{
    free(w->kv.k);
    free(w->kv.v);
}

/* ---- kv_append ---- */

/* aligned: a device takes 8 at once. */
static void append_case(tester *t, int64_t kv_heads, int64_t dh, proa_dtype dtype, bool aligned)
{
    static const int32_t shape[][2] = {{3, 3}, {1, 65}, {64, 128}, {0, 10}, {5, 70}, {1, 1}};
    world right, mine;
    world_init(&right, shape, PROA_COUNT(shape), kv_heads, 1, dh, dtype);
    const int64_t dims[] = {right.T, kv_heads, dh};
    canvas k = canvas_make(3, dims, aligned ? 0 : 3, !aligned), v = canvas_make(3, dims, 0, aligned ? 0 : 2);
    canvas_fill(&k, 1, !device_mode.on), canvas_fill(&v, 2, !device_mode.on);
    canvas_round_narrow(&k), canvas_round_narrow(&v);
    memset(right.kv.k, 0x5a, (size_t)right.bytes), memset(right.kv.v, 0x5a, (size_t)right.bytes);
    t->reference.ops->kv_append(&t->reference, &right.kv, k.view, v.view, &right.spans);
    for (int n = 0; n < CHECK_THREADS; n++) {
        world_init(&mine, shape, PROA_COUNT(shape), kv_heads, 1, dh, dtype);
        memset(mine.kv.k, 0x5a, (size_t)mine.bytes), memset(mine.kv.v, 0x5a, (size_t)mine.bytes);
        t->tables[n].ops->kv_append(&t->tables[n], &mine.kv, k.view, v.view, &mine.spans);
        expect(t,
               memcmp(mine.kv.k, right.kv.k, (size_t)right.bytes) == 0 &&
                   memcmp(mine.kv.v, right.kv.v, (size_t)right.bytes) == 0,
               "heads %d dim %d %s: bytes differ with %d threads", (int)kv_heads, (int)dh,
               proa_dtype_name(dtype), n + 1);
        world_release(&mine);
    }
    world_release(&right);
    canvas_free(&k), canvas_free(&v);
}

static const proa_dtype kv_dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16, PROA_DTYPE_F16, PROA_DTYPE_FP8};

/* e4m3 is for devices. */
static size_t kv_dtypes_here(void)
{
    return PROA_COUNT(kv_dtypes) - !device_mode.on;
}

void check_kv_append(tester *t)
{
    static const int64_t dims[] = {1, 4, 7, 16, 32, 33, 64, 80, 128};
    for (size_t d = 0; d < kv_dtypes_here(); d++)
        for (size_t i = 0; i < PROA_COUNT(dims); i++)
            for (int aligned = 0; aligned <= (device_mode.narrow != PROA_DTYPE_F32); aligned++)
                append_case(t, 1 + (int64_t)i % 3, dims[i], kv_dtypes[d], aligned);
}

/* ---- rope_append: as rope and kv_append one after the other with f32 pages ---- */

static canvas rotate_append(proa_ctx *c, world *w, const canvas *x, const canvas *v, const canvas *table,
                            bool interleaved)
{
    canvas mine = canvas_clone(x);
    memset(w->kv.k, 0, (size_t)w->bytes), memset(w->kv.v, 0, (size_t)w->bytes);
    c->ops->rope_append(c, mine.view, v->view, table->view, interleaved, &w->kv, &w->spans);
    return mine;
}

static proa_view heads_of(proa_view v, int64_t count)
{
    v.shape[1] = count;
    return v;
}

/* 0, or infinity: beyond half a step of e4m3, whose numbers have four bits and whose smallest is 2^-9. */
static double compare_fp8(const float *mine, const float *right, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++) {
        double allowed = fabs((double)right[i]) * 0.0626 + 0.001;
        if (!(fabs((double)mine[i] - (double)right[i]) <= allowed)) return (double)INFINITY;
    }
    return 0;
}

/* Pages of any dtype with pages in f32. */
static double compare_pages(const void *mine, proa_dtype dtype, void *right, int64_t elements)
{
    float *wide = malloc((size_t)elements * 4);
    PROA_ASSERT(wide);
    proa_to_f32(wide, mine, dtype, elements);
    double worst = dtype == PROA_DTYPE_FP8
                       ? compare_fp8(wide, right, elements)
                       : compare_rows(proa_view_2d(wide, PROA_DTYPE_F32, 1, elements),
                                      proa_view_2d(right, PROA_DTYPE_F32, 1, elements), TOL_ELEMENT);
    free(wide);
    return worst;
}

static void rope_append_case(tester *t, int64_t heads, int64_t kv_heads, int64_t dh, int64_t r,
                             bool interleaved, proa_dtype pages)
{
    static const int32_t shape[][2] = {{3, 3}, {1, 65}, {64, 128}, {5, 70}, {1, 1}};
    world right, mine;
    world_init(&right, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, PROA_DTYPE_F32);
    bool narrow = device_mode.narrow != PROA_DTYPE_F32; /* then aligned too: 8 go at once */
    world_init(&mine, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, pages);
    const int64_t T = right.T, xs[] = {T, heads + kv_heads, dh}, vs[] = {T, kv_heads, dh}, ts[] = {T, r};
    canvas x = canvas_make(3, xs, narrow ? 0 : 3, !narrow), v = canvas_make(3, vs, 0, narrow ? 0 : 2);
    canvas table = canvas_make(2, ts, !narrow, !narrow);
    canvas_fill(&x, 4, false), canvas_fill(&v, 5, false), canvas_fill(&table, 6, false);
    canvas_round_narrow(&x), canvas_round_narrow(&v);
    canvas a = rotate_append(&t->reference, &right, &x, &v, &table, interleaved);
    for (int n = 0; n < CHECK_THREADS; n++) {
        canvas b = rotate_append(&t->tables[n], &mine, &x, &v, &table, interleaved);
        int64_t elements = right.bytes / 4;
        double worst = compare_rows(heads_of(b.view, heads), heads_of(a.view, heads), TOL_ELEMENT);
        double keys = compare_pages(mine.kv.k, mine.kv.dtype, right.kv.k, elements);
        double values = compare_pages(mine.kv.v, mine.kv.dtype, right.kv.v, elements);
        expect(t,
               worst <= 1 && keys <= 1 && values <= 1 &&
                   (pages != PROA_DTYPE_F32 || memcmp(mine.kv.v, right.kv.v, (size_t)right.bytes) == 0),
               "heads %d+%d dim %d rotated %d %s: queries off by %g, keys by %g, values by %g tolerances",
               (int)heads, (int)kv_heads, (int)dh, (int)r, proa_dtype_name(pages), worst, keys, values);
        expect(t, canvas_guards_hold(&b), "heads %d dim %d: wrote outside the view", (int)heads, (int)dh);
        canvas_free(&b);
    }
    world_release(&right), world_release(&mine);
    canvas_free(&a), canvas_free(&x), canvas_free(&v), canvas_free(&table);
}

static void rope_append_cases(tester *t, proa_dtype pages)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        rope_append_case(t, 4, 2, 64, 64, interleaved, pages);
        rope_append_case(t, 2, 2, 256, 64, interleaved, pages);
        rope_append_case(t, 3, 1, 10, 6, interleaved, pages);
        rope_append_case(t, 8, 1, 128, 128, interleaved, pages);
    }
}

/* A device may do the norms of the heads and rope_append as one, where there are few rows. */
static void norm_rope_append_case(tester *t, int64_t heads, int64_t kv_heads, int64_t dh, int64_t r,
                                  bool interleaved)
{
    static const int32_t shape[][2] = {{1, 65}, {3, 3}, {2, 130}, {1, 1}};
    const float eps = 1e-6f;
    bool narrow = device_mode.narrow != PROA_DTYPE_F32;
    world right, mine;
    if (!takes_turn(t)) return;
    world_init(&right, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, PROA_DTYPE_F32);
    world_init(&mine, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, device_mode.narrow);
    const int64_t T = right.T, xs[] = {T, heads + kv_heads, dh}, vs[] = {T, kv_heads, dh}, ts[] = {T, r};
    canvas x = canvas_make(3, xs, 0, 0), v = canvas_make(3, vs, 0, 0), table = canvas_make(2, ts, 0, 0);
    canvas q_norm = canvas_make(1, &dh, 0, 1), k_norm = canvas_make(1, &dh, 0, 3);
    canvas_fill(&x, 14, false), canvas_fill(&v, 15, false), canvas_fill(&table, 16, false);
    canvas_fill(&q_norm, 17, false), canvas_fill(&k_norm, 18, false);
    canvas_round_narrow(&x), canvas_round_narrow(&v);
    canvas a = canvas_clone(&x), b = canvas_clone(&x);
    proa_view q = heads_of(a.view, heads), k = heads_of(a.view, kv_heads);
    k.data = proa_view_f32(k) + heads * dh;
    memset(right.kv.k, 0, (size_t)right.bytes), memset(right.kv.v, 0, (size_t)right.bytes);
    memset(mine.kv.k, 0, (size_t)mine.bytes), memset(mine.kv.v, 0, (size_t)mine.bytes);
    t->reference.ops->rms_norm(&t->reference, q, q, q_norm.view, eps);
    t->reference.ops->rms_norm(&t->reference, k, k, k_norm.view, eps);
    t->reference.ops->rope_append(&t->reference, a.view, v.view, table.view, interleaved, &right.kv,
                                  &right.spans);
    hosted_norm_rope_append(b.view, v.view, table.view, interleaved, &mine.kv, &mine.spans, q_norm.view,
                            k_norm.view, eps, (proa_view){0}, NULL);
    if (narrow) device_mode.limit = device_mode.narrow == PROA_DTYPE_F16 ? 2e-3 : 1.6e-2; /* rounded twice */
    double worst = compare_rows(heads_of(b.view, heads), heads_of(a.view, heads), TOL_NORM);
    double keys = compare_pages(mine.kv.k, mine.kv.dtype, right.kv.k, right.bytes / 4);
    double values = compare_pages(mine.kv.v, mine.kv.dtype, right.kv.v, right.bytes / 4);
    expect(t, worst <= 1 && keys <= 1 && values <= 1,
           "heads %d+%d dim %d rotated %d normed: queries off by %g, keys by %g, values by %g tolerances",
           (int)heads, (int)kv_heads, (int)dh, (int)r, worst, keys, values);
    world_release(&right), world_release(&mine);
    canvas *all[] = {&a, &b, &x, &v, &table, &q_norm, &k_norm};
    for (size_t i = 0; i < PROA_COUNT(all); i++) canvas_free(all[i]);
}

/* Of what is stored in pages of this type and read again. */
static double limit_of_pages(proa_dtype pages)
{
    return pages == PROA_DTYPE_F32    ? 2e-5
           : pages == PROA_DTYPE_F16  ? 2e-3
           : pages == PROA_DTYPE_BF16 ? 1.6e-2
                                      : 6e-2;
}

/* A device may do the norms, rope_append and the attention of single rows as one. */
static void rope_attend_case(tester *t, int64_t heads, int64_t kv_heads, int64_t dh, int64_t r,
                             proa_dtype pages, bool normed, int window)
{
    static const int32_t shape[][2] = {{1, 65}, {1, 1}, {1, 200}, {1, 64}, {1, 130}};
    const float eps = 1e-6f;
    world right, mine;
    if (!takes_turn(t)) return;
    world_init(&right, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, pages);
    world_init(&mine, shape, PROA_COUNT(shape), kv_heads, heads / kv_heads, dh, pages);
    world_fill(&right, 19, false), world_fill(&mine, 19, false);
    const int64_t T = right.T, xs[] = {T, heads + kv_heads, dh}, vs[] = {T, kv_heads, dh}, ts[] = {T, r},
                  ys[] = {T, heads, dh};
    canvas x = canvas_make(3, xs, 0, 0), v = canvas_make(3, vs, 0, 0), table = canvas_make(2, ts, 0, 0);
    canvas q_norm = canvas_make(1, &dh, 0, 0), k_norm = canvas_make(1, &dh, 0, 0);
    canvas y = canvas_make(3, ys, 0, 0), right_y = canvas_clone(&y);
    canvas_fill(&x, 14, false), canvas_fill(&v, 15, false), canvas_fill(&table, 16, false);
    canvas_fill(&q_norm, 17, false), canvas_fill(&k_norm, 18, false);
    canvas a = canvas_clone(&x);
    proa_view q = heads_of(a.view, heads), k = heads_of(a.view, kv_heads), none = {0};
    k.data = proa_view_f32(k) + heads * dh;
    proa_attention attention = {.scale = 1.0f / sqrtf((float)dh), .causal = true, .window = window};
    if (normed) t->reference.ops->rms_norm(&t->reference, q, q, q_norm.view, eps);
    if (normed) t->reference.ops->rms_norm(&t->reference, k, k, k_norm.view, eps);
    t->reference.ops->rope_append(&t->reference, a.view, v.view, table.view, false, &right.kv, &right.spans);
    t->reference.ops->attend(&t->reference, right_y.view, q, &right.kv, &right.spans, &attention);
    hosted_norm_rope_append(x.view, v.view, table.view, false, &mine.kv, &mine.spans,
                            normed ? q_norm.view : none, normed ? k_norm.view : none, eps, y.view, &attention);
    device_mode.limit = fmax(limit_of_pages(pages), limit_of_pages(device_mode.narrow));
    double worst = compare_rows(y.view, right_y.view, TOL_ATTEND);
    device_mode.limit = 4e-6;
    int64_t elements = right.bytes / proa_dtype_bytes(pages);
    for (int64_t i = 0; i < elements; i++) { /* NaN: no span has it */
        float pair[4];
        proa_to_f32(pair, (char *)right.kv.k + i * proa_dtype_bytes(pages), pages, 1);
        proa_to_f32(pair + 1, (char *)mine.kv.k + i * proa_dtype_bytes(pages), pages, 1);
        proa_to_f32(pair + 2, (char *)right.kv.v + i * proa_dtype_bytes(pages), pages, 1);
        proa_to_f32(pair + 3, (char *)mine.kv.v + i * proa_dtype_bytes(pages), pages, 1);
        bool same = isnan(pair[0]) == isnan(pair[1]) && isnan(pair[2]) == isnan(pair[3]);
        float off = isnan(pair[0]) ? 0.0f : fabsf(pair[0] - pair[1]), allowed = 0.13f * fabsf(pair[0]) + 0.01f;
        if (!same || off > allowed ||
            (!isnan(pair[2]) && fabsf(pair[2] - pair[3]) > 0.13f * fabsf(pair[2]) + 0.01f))
            worst = (double)INFINITY;
    }
    expect(t, worst <= 1,
           "heads %d+%d dim %d rotated %d %s%s window %d, attended at once: off by %g tolerances", (int)heads,
           (int)kv_heads, (int)dh, (int)r, proa_dtype_name(pages), normed ? " normed" : "", window, worst);
    world_release(&right), world_release(&mine);
    canvas *all[] = {&a, &x, &v, &table, &q_norm, &k_norm, &y, &right_y};
    for (size_t i = 0; i < PROA_COUNT(all); i++) canvas_free(all[i]);
}

static void rope_attend_cases(tester *t)
{
    for (size_t d = 0; d < kv_dtypes_here(); d++)
        for (int normed = 0; normed < 2; normed++) {
            bool is_for = device_mode.narrow == PROA_DTYPE_F32 || kv_dtypes[d] == device_mode.narrow ||
                          kv_dtypes[d] == PROA_DTYPE_FP8;
            if (!is_for) continue;
            rope_attend_case(t, 8, 2, 128, 128, kv_dtypes[d], normed, 0);
            rope_attend_case(t, 4, 4, 64, 64, kv_dtypes[d], normed, 48);
            rope_attend_case(t, 6, 2, 80, 80, kv_dtypes[d], normed, 0);
            rope_attend_case(t, 4, 2, 64, 32, kv_dtypes[d], normed, 0);
        }
}

void check_rope_append(tester *t)
{
    rope_append_cases(t, device_mode.narrow);
    if (!device_mode.on) return;
    rope_append_cases(t, PROA_DTYPE_FP8);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        norm_rope_append_case(t, 4, 2, 64, 64, interleaved);
        norm_rope_append_case(t, 32, 4, 128, 128, interleaved);
        norm_rope_append_case(t, 2, 2, 256, 64, interleaved);
        norm_rope_append_case(t, 3, 1, 10, 6, interleaved);
    }
    rope_attend_cases(t);
}

/* ---- attend ---- */

static canvas attend_run(proa_ctx *c, const world *w, const canvas *out, const canvas *q,
                         const proa_spans *spans, const proa_attention *a)
{
    canvas y = canvas_clone(out);
    c->ops->attend(c, y.view, q->view, &w->kv, spans, a);
    return y;
}

/* Each span alone in its batch; and each causal row as a decode step of its own: the same bits. On a device, where
 * each call brings all of its memory, some of them. */
static void check_spans_alone(tester *t, const world *w, const canvas *out, const canvas *q,
                              const canvas *all, const proa_attention *a)
{
    const int32_t step = device_mode.on ? 13 : 1;
    for (int64_t s = 0; s < w->spans.count; s += device_mode.on ? 3 : 1) {
        proa_span one = w->span[s];
        proa_spans spans = {.span = &one, .count = 1, .pages = w->pages};
        canvas y = attend_run(&t->tables[s % CHECK_THREADS], w, out, q, &spans, a);
        expect(t, same_bits(y.view, all->view, one.row, one.row + one.rows), "%s: span %d alone differs",
               w->label, (int)s);
        expect(t,
               same_bits(y.view, out->view, 0, one.row) && same_bits(y.view, out->view, one.row + one.rows, w->T),
               "%s: span %d alone wrote other rows", w->label, (int)s);
        canvas_free(&y);
        for (int32_t i = 0; a->causal && i < w->span[s].rows && w->span[s].context; i += step) {
            one = (proa_span){w->span[s].row + i,
                              1,
                              w->span[s].context - w->span[s].rows + i + 1,
                              w->span[s].table,
                              0,
                              0,
                              0};
            y = attend_run(&t->tables[0], w, out, q, &spans, a);
            expect(t, same_bits(y.view, all->view, one.row, one.row + 1),
                   "%s: span %d row %d as a step differs", w->label, (int)s, (int)i);
            canvas_free(&y);
        }
    }
}

/* aligned: tensor cores take queries of 16 bits, and other kernels four of f32 at once. */
static void check_world(tester *t, const world *w, const proa_attention *a, bool specials, bool aligned)
{
    const int64_t dims[] = {w->T, w->heads, w->kv.head_dim};
    canvas q = canvas_make(3, dims, aligned ? 0 : 5, !aligned);
    canvas out = canvas_make(3, dims, aligned ? 0 : 3, aligned ? 0 : 2);
    canvas_fill(&q, 17, false);
    if (specials && w->T > 9) proa_view_f32(q.view)[9 * q.view.stride[0]] = NAN;
    canvas right = attend_run(&t->reference, w, &out, &q, &w->spans, a);
    canvas mine = attend_run(&t->tables[0], w, &out, &q, &w->spans, a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "%s: off by %g tolerances", w->label, worst);
    if (worst > t->worst) t->worst = worst;
    expect(t, canvas_guards_hold(&mine), "%s: wrote outside the view", w->label);
    for (int n = 1; n < CHECK_THREADS; n++) {
        canvas other = attend_run(&t->tables[n], w, &out, &q, &w->spans, a);
        expect(t, same_bits(other.view, mine.view, 0, w->T), "%s: %d threads differ", w->label, n + 1);
        canvas_free(&other);
    }
    check_spans_alone(t, w, &out, &q, &mine, a);
    canvas_free(&q), canvas_free(&out), canvas_free(&right), canvas_free(&mine);
}

#define ATTEND_VARIANTS 22

typedef struct attend_shape {
    int64_t kv_heads, group, dh;
} attend_shape;

/* Slopes as Press et al. choose them for a power of 2. */
static void fill_slopes(float *slopes, int64_t heads)
{
    for (int64_t h = 0; h < heads; h++) slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
}

/* The forms by variant: causal, bidirectional, a window, relative bias; from 8 on ALiBi, caps, and all of them; from 16
 * on a window to both sides; from 18 on sinks. The windows of 6 and 14 are chunks. */
static proa_attention form_of(attend_shape shape, int variant, const float *bias, const float *slopes,
                              const float *sinks)
{
    proa_attention a = {.scale = 1.0f / sqrtf((float)shape.dh), .causal = variant % 4 != 1 && variant != 16};
    if (variant % 4 == 2) a.window = 5 + variant * 9, a.chunked = variant % 8 == 6;
    if (variant % 4 == 3 || variant == 5)
        a.rel_bias = bias, a.rel_buckets = 32, a.rel_distance = 128, a.rel_bidirectional = !a.causal;
    if (variant == 16 || variant == 17) a.window = 30;
    if (variant == 8 || variant == 9 || variant == 14 || variant == 15) a.alibi = slopes;
    if (variant >= 10 && variant < 16) a.soft_cap = 1.5f; /* of scores that are about 1: it bends them */
    if (variant >= 18) a.sinks = sinks;
    return a;
}

static void attend_spans(tester *t, attend_shape shape, proa_dtype dtype, int variant, const int32_t (*of)[2],
                         size_t count)
{
    float bias[32 * 64], slopes[64], sinks[64];
    if (!takes_turn(t)) return;
    device_mode.limit = dtype == PROA_DTYPE_F32 ? 2e-5 : dtype == PROA_DTYPE_BF16 ? 2.5e-2 : 4e-3;
    uint64_t seed = 99;
    for (size_t i = 0; i < PROA_COUNT(bias); i++) bias[i] = rng_normal(&seed);
    fill_slopes(slopes, shape.kv_heads * shape.group);
    for (int h = 0; h < 64; h++) sinks[h] = 4.0f * rng_normal(&seed); /* from nothing to almost all weight */
    proa_attention a = form_of(shape, variant, bias, slopes, sinks);
    bool specials = variant / 4 % 2;
    world w;
    world_init(&w, of, count, shape.kv_heads, shape.group, shape.dh, dtype);
    world_fill(&w, (uint64_t)shape.dh, specials);
    snprintf(
        w.label, sizeof w.label,
        "%s kv heads %d group %d dim %d variant %d (causal %d window %d bias %d alibi %d cap %g special %d)",
        proa_dtype_name(dtype), (int)shape.kv_heads, (int)shape.group, (int)shape.dh, variant, a.causal,
        (int)a.window, a.rel_bias != NULL, a.alibi != NULL, (double)a.soft_cap, specials);
    bool aligned = device_mode.on && (variant % 4 < 2 || variant % 8 >= 6);
    check_world(t, &w, &a, specials, aligned);
    world_release(&w);
}

static void attend_case(tester *t, attend_shape shape, proa_dtype dtype, int variant)
{
    if (variant % 2 == 0) attend_spans(t, shape, dtype, variant, ragged, PROA_COUNT(ragged));
    else attend_spans(t, shape, dtype, variant, decode_like, PROA_COUNT(decode_like));
    if (device_mode.on && variant % 2)
        attend_spans(t, shape, dtype, variant, decode_many, PROA_COUNT(decode_many));
}

/* Keys and values read where the step has them, without pages: what the same rows give through pages. form: 0 plain,
 * 1 relative bias, 2 ALiBi and cap, 3 a window. */
static void check_rows_as_keys(tester *t, attend_shape shape, int form)
{
    static const int32_t whole[][2] = {{3, 3}, {1, 1}, {130, 130}, {64, 64}, {17, 17}, {65, 65}};
    float values[32 * 64], slopes[64];
    if (!takes_turn(t)) return;
    uint64_t seed = 7;
    world w;
    for (size_t i = 0; i < PROA_COUNT(values); i++) values[i] = rng_normal(&seed);
    device_mode.limit = device_mode.narrow == PROA_DTYPE_F32   ? 2e-5
                        : device_mode.narrow == PROA_DTYPE_F16 ? 4e-3
                                                               : 2.5e-2;
    world_init(&w, whole, PROA_COUNT(whole), shape.kv_heads, shape.group, shape.dh, PROA_DTYPE_F32);
    const int64_t all = w.heads + 2 * shape.kv_heads;
    const int64_t dims[] = {w.T, all, shape.dh}, out_dims[] = {w.T, w.heads, shape.dh};
    canvas qkv = canvas_make(3, dims, 0, 0), out = canvas_make(3, out_dims, 0, 0);
    canvas_fill(&qkv, 3, false);
    proa_view parts[3] = {qkv.view, qkv.view, qkv.view};
    for (int i = 0; i < 3; i++) {
        parts[i].shape[1] = i ? shape.kv_heads : w.heads;
        parts[i].data = proa_view_f32(qkv.view) + (i ? w.heads + (i - 1) * shape.kv_heads : 0) * shape.dh;
    }
    proa_attention a = {.scale = 1.0f / sqrtf((float)shape.dh)};
    fill_slopes(slopes, w.heads);
    if (form == 1) a.rel_bias = values, a.rel_buckets = 32, a.rel_distance = 128, a.rel_bidirectional = true;
    if (form == 2) a.alibi = slopes, a.soft_cap = 1.5f;
    if (form == 3) a.window = 21;
    canvas right = canvas_clone(&out), mine = canvas_clone(&out);
    t->reference.ops->kv_append(&t->reference, &w.kv, parts[1], parts[2], &w.spans);
    t->reference.ops->attend(&t->reference, right.view, parts[0], &w.kv, &w.spans, &a);
    proa_kv rows = {parts[1].data,  parts[2].data, device_mode.narrow,
                    shape.kv_heads, shape.dh,      parts[1].stride[0]};
    proa_ctx *c = &t->tables[form % CHECK_THREADS];
    c->ops->attend(c, mine.view, parts[0], &rows, &w.spans, &a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "rows as keys: kv heads %d group %d dim %d form %d: off by %g tolerances",
           (int)shape.kv_heads, (int)shape.group, (int)shape.dh, form, worst);
    if (!device_mode.on) { /* and through pages each bit is the same */
        c->ops->attend(c, right.view, parts[0], &w.kv, &w.spans, &a);
        expect(t, same_bits(right.view, mine.view, 0, w.T), "rows as keys: dim %d form %d: pages differ",
               (int)shape.dh, form);
    }
    canvas_free(&qkv), canvas_free(&out), canvas_free(&right), canvas_free(&mine);
    world_release(&w);
}

/* ---- relative positions that meet the query and the key ---- */

enum {
    RELATIVE_REACH = 90,
    RELATIVE_COLUMNS_MAX = 512,
    RELATIVE_ROWS_MAX = 2 * RELATIVE_REACH + 1,
    RELATIVE_TYPES_MAX = 512
};

typedef struct relative_case {
    proa_relative r;
    int32_t row[2 * RELATIVE_REACH + 1];
    float tables[RELATIVE_ROWS_MAX * 2 * RELATIVE_COLUMNS_MAX], biases[2 * RELATIVE_COLUMNS_MAX];
    float segments[3 * RELATIVE_COLUMNS_MAX]; /* and their bias */
    int32_t types[RELATIVE_TYPES_MAX];
} relative_case;

/* form 0: as XLNet, a row for each distance and the two biases; 1: as DeBERTa, queries and keys side by side and rows
 * that stand for more distances the farther they are; 2: a row in all; 3: as 0, with three segments. */
static void relative_init(relative_case *c, int form, int64_t columns)
{
    uint64_t seed = 31;
    PROA_ASSERT(columns <= RELATIVE_COLUMNS_MAX);
    c->r = (proa_relative){.row = c->row, .reach = RELATIVE_REACH, .stride = form == 1 ? 2 * columns : columns};
    for (int32_t d = -RELATIVE_REACH; d <= RELATIVE_REACH; d++) {
        int32_t far = (int32_t)(5 + sqrt(fabs((double)d))), near = abs(d) < 8 ? abs(d) : far;
        c->row[d + RELATIVE_REACH] = form % 3 == 0 ? d + RELATIVE_REACH
                                     : form == 1   ? 16 + (d < 0 ? -near : near)
                                                   : 0;
    }
    c->r.rows = c->row[2 * RELATIVE_REACH] + 1;
    for (size_t i = 0; i < PROA_COUNT(c->tables); i++) c->tables[i] = rng_normal(&seed) / 2;
    for (size_t i = 0; i < PROA_COUNT(c->biases); i++) c->biases[i] = rng_normal(&seed) / 2;
    for (size_t i = 0; i < PROA_COUNT(c->segments); i++) c->segments[i] = rng_normal(&seed) / 2;
    for (size_t i = 0; i < PROA_COUNT(c->types); i++) c->types[i] = (int32_t)(rng_next(&seed) % 3);
    c->r.keys = c->tables;
    if (form == 3)
        c->r.types = c->types, c->r.segments = c->segments, c->r.segment_bias = c->segments + 2 * columns;
    if (form == 1) c->r.queries = c->tables + columns;
    if (form == 2) c->r.queries = c->tables, c->r.keys = NULL;
    if (form % 3 == 0) c->r.content_bias = c->biases, c->r.position_bias = c->biases + columns;
}

/* Each thread count and each span alone: the same bits. */
static void check_relative_alone(tester *t, const world *w, const canvas *out, const canvas *q,
                                 const proa_kv *rows, const proa_attention *a, const canvas *all)
{
    world mine = *w;
    mine.kv = *rows, mine.spans.span = mine.span, mine.spans.pages = mine.pages;
    for (int n = 1; n < CHECK_THREADS; n++) {
        canvas y = attend_run(&t->tables[n], &mine, out, q, &mine.spans, a);
        expect(t, same_bits(y.view, all->view, 0, w->T), "%s: %d threads differ", w->label, n + 1);
        canvas_free(&y);
    }
    for (int64_t s = 0; s < w->spans.count; s++) {
        proa_spans one = {.span = &mine.span[s], .count = 1, .pages = mine.pages};
        canvas y = attend_run(&t->tables[s % CHECK_THREADS], &mine, out, q, &one, a);
        int64_t first = w->span[s].row;
        expect(t, same_bits(y.view, all->view, first, first + w->span[s].rows), "%s: span %d alone differs",
               w->label, (int)s);
        canvas_free(&y);
    }
}

static void check_relative(tester *t, attend_shape shape, int form, int32_t window)
{
    static const int32_t whole[][2] = {{3, 3}, {1, 1}, {150, 150}, {64, 64}, {17, 17}, {65, 65}, {0, 0}};
    static relative_case c;
    world w;
    if (!takes_turn(t)) return;
    device_mode.limit = device_mode.narrow == PROA_DTYPE_F32   ? 2e-5
                        : device_mode.narrow == PROA_DTYPE_F16 ? 4e-3
                                                               : 2.5e-2;
    world_init(&w, whole, PROA_COUNT(whole), shape.kv_heads, shape.group, shape.dh, PROA_DTYPE_F32);
    snprintf(w.label, sizeof w.label, "relative: kv heads %d group %d dim %d form %d window %d",
             (int)shape.kv_heads, (int)shape.group, (int)shape.dh, form, (int)window);
    relative_init(&c, form, w.heads * shape.dh);
    const int64_t dims[] = {w.T, w.heads, shape.dh}, kv_dims[] = {w.T, shape.kv_heads, shape.dh};
    canvas q = canvas_make(3, dims, 5, 1), k = canvas_make(3, kv_dims, 0, 0), v = canvas_make(3, kv_dims, 0, 0);
    canvas out = canvas_make(3, dims, 2, 2);
    canvas_fill(&q, 41, false), canvas_fill(&k, 42, false), canvas_fill(&v, 43, false);
    proa_attention a = {.scale = 1.0f / sqrtf(3.0f * (float)shape.dh), .window = window, .relative = &c.r};
    world_release(&w);
    w.kv = (proa_kv){k.view.data,    v.view.data, device_mode.narrow,
                     shape.kv_heads, shape.dh,    k.view.stride[0]};
    world plain = w;
    plain.kv.dtype = PROA_DTYPE_F32, plain.spans.span = plain.span, plain.spans.pages = plain.pages;
    canvas right = attend_run(&t->reference, &plain, &out, &q, &plain.spans, &a);
    canvas mine = attend_run(&t->tables[0], &w, &out, &q, &w.spans, &a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "%s: off by %g tolerances", w.label, worst);
    expect(t, canvas_guards_hold(&mine), "%s: wrote outside the view", w.label);
    check_relative_alone(t, &w, &out, &q, &w.kv, &a, &mine);
    canvas_free(&q), canvas_free(&k), canvas_free(&v), canvas_free(&out), canvas_free(&right),
        canvas_free(&mine);
}

static void check_relatives(tester *t)
{
    static const attend_shape shapes[] = {{4, 1, 16}, {2, 1, 64}, {3, 1, 7},
                                          {1, 2, 33}, {2, 2, 80}, {1, 1, 256}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int form = 0; form < 4; form++) check_relative(t, shapes[i], form, i % 3 == 2 ? 20 : 0);
}

/* ---- side keys, and the first rows of spans alone ---- */

enum { SIDE_BUCKETS = 32 };

/* Ends of spans before, at and after those of blocks, and more blocks than a page has keys. */
static const int32_t side_spans[][2] = {{3, 3},   {1, 1}, {149, 149}, {64, 64},
                                        {17, 17}, {0, 0}, {65, 65},   {2, 2}};

/* form 0: sums of blocks, with biases; 1: the same without them; 2: the first rows of each span; 3: these are the only
 * rows that are computed, of all keys. */
static proa_attention side_form(attend_shape shape, int form, proa_side_keys *side, const float *bias)
{
    proa_attention a = {.scale = 1.0f / sqrtf((float)shape.dh), .window = form < 3 ? 9 : 0};
    a.rel_buckets = SIDE_BUCKETS, a.rel_distance = 40, a.rel_bidirectional = true;
    if (form < 2) side->block = form ? 4 : 2;
    if (form == 0) a.rel_bias = bias, side->rel_bias = bias + SIDE_BUCKETS * 8;
    if (form == 3) a.of_globals = true;
    else a.side = side;
    return a;
}

/* Through pages the same numbers, but for those of side keys, which are rows. */
static void check_side_pages(tester *t, world *w, const canvas *out, const canvas *q, proa_view k,
                             proa_view v, const proa_attention *a, const canvas *right)
{
    world paged = *w;
    int32_t pages = 0;
    for (int64_t s = 0; s < w->spans.count; s++) {
        paged.span[s].table = pages;
        for (int64_t p = 0; p < w->span[s].context; p += PROA_PAGE_TOKENS, pages++)
            paged.pages[pages] = pages;
    }
    paged.spans.span = paged.span, paged.spans.pages = paged.pages;
    paged.bytes = pages * w->kv.kv_heads * PROA_PAGE_TOKENS * w->kv.head_dim * 4;
    paged.kv.row = 0, paged.kv.dtype = PROA_DTYPE_F32;
    paged.kv.k = aligned_alloc(64, (size_t)proa_round_up(paged.bytes, 64));
    paged.kv.v = aligned_alloc(64, (size_t)proa_round_up(paged.bytes, 64));
    PROA_ASSERT(paged.kv.k && paged.kv.v);
    t->reference.ops->kv_append(&t->reference, &paged.kv, k, v, &paged.spans);
    canvas mine = attend_run(&t->tables[1], &paged, out, q, &paged.spans, a);
    double worst = compare_rows(mine.view, right->view, TOL_ATTEND);
    expect(t, worst <= 1.0, "%s: through pages off by %g tolerances", w->label, worst);
    canvas_free(&mine);
    world_release(&paged);
}

static void check_side(tester *t, attend_shape shape, int form)
{
    float bias[2 * SIDE_BUCKETS * 8];
    uint64_t seed = 5;
    world w;
    if (!takes_turn(t)) return;
    for (size_t i = 0; i < PROA_COUNT(bias); i++) bias[i] = rng_normal(&seed);
    device_mode.limit = device_mode.narrow == PROA_DTYPE_F32   ? 2e-5
                        : device_mode.narrow == PROA_DTYPE_F16 ? 4e-3
                                                               : 2.5e-2;
    world_init(&w, side_spans, PROA_COUNT(side_spans), shape.kv_heads, shape.group, shape.dh, PROA_DTYPE_F32);
    world_release(&w);
    snprintf(w.label, sizeof w.label, "side: kv heads %d group %d dim %d form %d", (int)shape.kv_heads,
             (int)shape.group, (int)shape.dh, form);
    for (int64_t s = 0; s < w.spans.count; s++) w.span[s].globals = (int32_t)(s * 7 % 12);
    const int64_t dims[] = {w.T, w.heads, shape.dh}, kv_dims[] = {w.T, shape.kv_heads, shape.dh};
    canvas q = canvas_make(3, dims, 5, 1), k = canvas_make(3, kv_dims, 0, 0), v = canvas_make(3, kv_dims, 0, 0);
    canvas sums = canvas_make(3, kv_dims, 0, 0), out = canvas_make(3, dims, 2, 2);
    canvas_fill(&q, 41, false), canvas_fill(&k, 42, false), canvas_fill(&v, 43, false);
    canvas_fill(&sums, 44, false);
    proa_side_keys side = {form < 2 ? sums.view.data : k.view.data, v.view.data, k.view.stride[0], 0, NULL};
    proa_attention a = side_form(shape, form, &side, bias);
    w.kv = (proa_kv){k.view.data,    v.view.data, device_mode.narrow,
                     shape.kv_heads, shape.dh,    k.view.stride[0]};
    world plain = w;
    plain.kv.dtype = PROA_DTYPE_F32, plain.spans.span = plain.span, plain.spans.pages = plain.pages;
    w.spans.span = w.span, w.spans.pages = w.pages;
    w.spans.rows_max = w.spans.context_max = plain.spans.rows_max = plain.spans.context_max = 149;
    canvas right = attend_run(&t->reference, &plain, &out, &q, &plain.spans, &a);
    canvas mine = attend_run(&t->tables[0], &w, &out, &q, &w.spans, &a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "%s: off by %g tolerances", w.label, worst);
    expect(t, canvas_guards_hold(&mine), "%s: wrote outside the view", w.label);
    for (int64_t s = 0; form == 3 && s < w.spans.count; s++) {
        int64_t end = w.span[s].row + w.span[s].rows,
                first = w.span[s].row + proa_attention_rows(&a, &w.span[s]);
        expect(t, same_bits(mine.view, out.view, first, end), "%s: span %d: wrote other rows", w.label, (int)s);
    }
    check_relative_alone(t, &w, &out, &q, &w.kv, &a, &mine);
    if (form < 3 && !device_mode.on) check_side_pages(t, &w, &out, &q, k.view, v.view, &a, &right);
    canvas *all[] = {&q, &k, &v, &sums, &out, &right, &mine};
    for (size_t i = 0; i < PROA_COUNT(all); i++) canvas_free(all[i]);
}

/* A query of the reference by hand: two rows in one block of two, of which each sees itself, the other and the sum. */
static void check_side_formula(tester *t)
{
    float q[2][1] = {{1}, {2}}, k[2][1] = {{1}, {0}}, v[2][1] = {{1}, {2}}, y[2][1], side_k = 0.5f, side_v = 4;
    float bias[SIDE_BUCKETS] = {0.5f};
    const proa_span span = {0, 2, 2, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 2, .context_max = 2};
    const proa_side_keys side = {&side_k, &side_v, 1, 2, bias};
    const proa_attention a = {.scale = 1, .rel_buckets = SIDE_BUCKETS, .rel_distance = 40, .side = &side};
    const proa_kv kv = {k, v, PROA_DTYPE_F32, 1, 1, 1};
    t->reference.ops->attend(&t->reference, proa_view_3d(y, PROA_DTYPE_F32, 2, 1, 1),
                             proa_view_3d(q, PROA_DTYPE_F32, 2, 1, 1), &kv, &spans, &a);
    for (int i = 0; i < 2; i++) {
        double x = (double)q[i][0], w[3] = {exp(x), 1, exp(x * 0.5 + 0.5)};
        double want = (w[0] + 2 * w[1] + 4 * w[2]) / (w[0] + w[1] + w[2]);
        expect(t, fabs((double)y[i][0] - want) < 1e-6, "side: row %d is %g, not %g", i, (double)y[i][0], want);
    }
}

static void check_sides(tester *t)
{
    static const attend_shape shapes[] = {{4, 1, 16}, {2, 1, 64}, {3, 1, 7},
                                          {1, 2, 33}, {2, 2, 80}, {1, 1, 256}};
    check_side_formula(t);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int form = 0; form < 4; form++) check_side(t, shapes[i], form);
}

/* ---- trees of draft tokens ---- */

/* Makes the last rows of each span a tree: each hangs below a node before it or below the context. Of a tree with more
 * nodes than the span has rows, the first ones were run before. */
static void world_plant(world *w, const int32_t *tree, uint64_t seed)
{
    w->spans.seen = w->seen;
    PROA_ASSERT(w->T <= (int64_t)PROA_COUNT(w->seen));
    for (int64_t s = 0; s < w->spans.count; s++) {
        proa_span *span = &w->span[s];
        span->tree = tree[s];
        uint64_t seen[PROA_TREE_MAX];
        for (int32_t j = 0, row = span->rows - span->tree; j < span->tree; j++, row++) {
            int32_t parent = (int32_t)(rng_next(&seed) % (uint64_t)(j + 1)) - 1;
            seen[j] = (uint64_t)1 << j | (parent >= 0 ? seen[parent] : 0);
            if (row >= 0) w->seen[span->row + row] = seen[j];
        }
    }
}

/* Copies what the pages hold at one place to another, in all heads. */
static void copy_slot(world *w, const proa_span *span, int64_t to, int64_t from)
{
    int64_t bytes = w->kv.head_dim * proa_dtype_bytes(w->kv.dtype);
    for (int64_t h = 0; h < w->kv.kv_heads; h++) {
        int64_t at[2], p[2] = {to, from};
        for (int i = 0; i < 2; i++)
            at[i] = ((w->pages[span->table + p[i] / PROA_PAGE_TOKENS] * w->kv.kv_heads + h) * PROA_PAGE_TOKENS +
                     p[i] % PROA_PAGE_TOKENS) *
                    bytes;
        memcpy((char *)w->kv.k + at[0], (char *)w->kv.k + at[1], (size_t)bytes);
        memcpy((char *)w->kv.v + at[0], (char *)w->kv.v + at[1], (size_t)bytes);
    }
}

/* A row of a tree gives the bits of a step of one row, whose context are the row's ancestors one after the other. On
 * a device it need only be as close as any kernel. */
static void check_tree_row(tester *t, const world *w, const canvas *out, const canvas *q, const canvas *all,
                           const proa_attention *a, const proa_span *span, int32_t i)
{
    world path = *w;
    int64_t first = proa_tree_first(span), at = proa_tree_position(&w->spans, span, i);
    uint64_t seen = proa_tree_seen(&w->spans, span, i);
    path.kv.k = malloc((size_t)w->bytes), path.kv.v = malloc((size_t)w->bytes);
    PROA_ASSERT(path.kv.k && path.kv.v);
    memcpy(path.kv.k, w->kv.k, (size_t)w->bytes), memcpy(path.kv.v, w->kv.v, (size_t)w->bytes);
    for (int64_t p = first; p <= at; p++) copy_slot(&path, span, p, proa_tree_slot(first, seen, p));
    const proa_span one = {span->row + i, 1, (int32_t)at + 1, span->table, 0, 0, 0};
    const proa_spans spans = {.span = &one, .count = 1, .pages = w->pages};
    canvas y = attend_run(&t->tables[0], &path, out, q, &spans, a);
    proa_view mine = proa_view_rows(all->view, one.row, one.row + 1),
              step = proa_view_rows(y.view, one.row, one.row + 1);
    bool same = device_mode.on ? compare_rows(mine, step, TOL_ATTEND) <= 1.0
                               : same_bits(y.view, all->view, one.row, one.row + 1);
    expect(t, same, "%s: row %d of a tree as a step differs", w->label, one.row);
    canvas_free(&y);
    world_release(&path);
}

static void tree_case(tester *t, attend_shape shape, proa_dtype dtype, int variant)
{
    /* trees within a page, over its border, after rows of their own, of one row, the largest, none, and some of which
     * only the last nodes are rows */
    static const int32_t of[][2] = {{9, 60}, {12, 69}, {20, 131}, {1, 64},  {64, 100}, {9, 1030},
                                    {7, 7},  {5, 70},  {3, 90},   {8, 140}, {1, 300}};
    static const int32_t tree[] = {9, 12, 15, 1, 64, 9, 7, 0, 11, 60, 64};
    float bias[32 * 64], slopes[64], sinks[64];
    if (!takes_turn(t)) return;
    device_mode.limit = dtype == PROA_DTYPE_F32 ? 2e-5 : dtype == PROA_DTYPE_BF16 ? 2.5e-2 : 4e-3;
    uint64_t seed = 7;
    for (size_t i = 0; i < PROA_COUNT(bias); i++) bias[i] = rng_normal(&seed);
    fill_slopes(slopes, shape.kv_heads * shape.group);
    for (int h = 0; h < 64; h++) sinks[h] = 4.0f * rng_normal(&seed);
    proa_attention a = form_of(shape, variant, bias, slopes, sinks);
    a.causal = true, a.rel_bidirectional = false;
    world w;
    world_init(&w, of, PROA_COUNT(of), shape.kv_heads, shape.group, shape.dh, dtype);
    world_fill(&w, (uint64_t)shape.dh, false);
    world_plant(&w, tree, (uint64_t)variant);
    snprintf(w.label, sizeof w.label, "trees: %s kv heads %d group %d dim %d variant %d",
             proa_dtype_name(dtype), (int)shape.kv_heads, (int)shape.group, (int)shape.dh, variant);
    const int64_t dims[] = {w.T, w.heads, shape.dh};
    canvas q = canvas_make(3, dims, 0, 0), out = canvas_make(3, dims, 0, 0);
    canvas_fill(&q, 29, false);
    canvas right = attend_run(&t->reference, &w, &out, &q, &w.spans, &a);
    canvas mine = attend_run(&t->tables[0], &w, &out, &q, &w.spans, &a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "%s: off by %g tolerances", w.label, worst);
    for (int n = 1; n < CHECK_THREADS; n++) {
        canvas other = attend_run(&t->tables[n], &w, &out, &q, &w.spans, &a);
        expect(t, same_bits(other.view, mine.view, 0, w.T), "%s: %d threads differ", w.label, n + 1);
        canvas_free(&other);
    }
    for (int64_t s = 0; s < w.spans.count; s++)
        for (int32_t i = (int32_t)proa_max64(0, w.span[s].rows - w.span[s].tree); i < w.span[s].rows;
             i += device_mode.on ? 7 : 1)
            check_tree_row(t, &w, &out, &q, &mine, &a, &w.span[s], i);
    canvas_free(&q), canvas_free(&out), canvas_free(&right), canvas_free(&mine);
    world_release(&w);
}

static void check_trees(tester *t)
{
    static const attend_shape shapes[] = {{2, 2, 64}, {1, 3, 16}, {1, 4, 128}, {1, 2, 33}};
    for (size_t d = 0; d < kv_dtypes_here(); d++)
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            for (int variant = 0; variant < ATTEND_VARIANTS; variant += 3)
                if (d == 0 || (variant / 3 + (int)i) % 3 == 0) tree_case(t, shapes[i], kv_dtypes[d], variant);
}

/* Spans of hundreds of rows, as prompts and batches of an encoder have them. */
static const int32_t long_spans[][2] = {{200, 250}, {1, 70}, {129, 129}, {2, 0}, {80, 80}, {3, 3}, {4, 9},
                                        {2, 65},    {5, 5},  {2, 2},     {3, 4}, {2, 6},   {2, 3}};
/* Few rows of prompts beside decoding rows, over contexts whose keys a device splits, and which end in a page, in a
 * tile of keys, and behind one. */
static const int32_t chunks[][2] = {{1, 300}, {33, 2900}, {1, 37}, {5, 1025}, {40, 40}, {2, 2}, {70, 1280}};

/* window < 0: chunks of -window. */
static void long_case(tester *t, attend_shape shape, bool causal, int32_t window, const int32_t (*of)[2],
                      size_t count)
{
    if (!takes_turn(t)) return;
    world w;
    world_init(&w, of, count, shape.kv_heads, shape.group, shape.dh, device_mode.narrow);
    world_fill(&w, (uint64_t)shape.dh, false);
    device_mode.limit = device_mode.narrow == PROA_DTYPE_F16 ? 4e-3 : 2.5e-2;
    const int64_t dims[] = {w.T, w.heads, shape.dh};
    canvas q = canvas_make(3, dims, 0, 0), out = canvas_make(3, dims, 0, 0);
    canvas_fill(&q, 23, false);
    proa_attention a = {.scale = 1.0f / sqrtf((float)shape.dh), .causal = causal, .window = abs(window)};
    a.chunked = window < 0;
    float sinks[64];
    fill_slopes(sinks, 64);
    if (causal && (window || shape.group > 1)) a.sinks = sinks;
    canvas right = attend_run(&t->reference, &w, &out, &q, &w.spans, &a);
    canvas mine = attend_run(&t->tables[0], &w, &out, &q, &w.spans, &a);
    canvas again = attend_run(&t->tables[0], &w, &out, &q, &w.spans, &a);
    double worst = compare_rows(mine.view, right.view, TOL_ATTEND);
    expect(t, worst <= 1.0, "long: kv heads %d group %d dim %d causal %d window %d: off by %g tolerances",
           (int)shape.kv_heads, (int)shape.group, (int)shape.dh, causal, window, worst);
    expect(t, same_bits(again.view, mine.view, 0, w.T), "long: dim %d: twice differs", (int)shape.dh);
    canvas_free(&q), canvas_free(&out), canvas_free(&right), canvas_free(&mine), canvas_free(&again);
    world_release(&w);
}

/* Heads enough for a device to take its largest blocks, and few. */
static void check_long(tester *t)
{
    static const attend_shape shapes[] = {{2, 3, 64}, {1, 6, 128}, {3, 2, 256},
                                          {1, 2, 64}, {2, 1, 128}, {1, 1, 256}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        bool many = shapes[i].kv_heads * shapes[i].group > 2;
        if (many || i == 5) long_case(t, shapes[i], true, 0, long_spans, PROA_COUNT(long_spans));
        if (i == 0 || i == 1 || i == 4) long_case(t, shapes[i], true, 90, long_spans, PROA_COUNT(long_spans));
        if (i == 1 || i == 2 || i == 3)
            long_case(t, shapes[i], true, -90, long_spans, PROA_COUNT(long_spans));
        if (many || i == 3) long_case(t, shapes[i], false, 0, long_spans, PROA_COUNT(long_spans));
        if (many || i == 4) long_case(t, shapes[i], false, 70, long_spans, PROA_COUNT(long_spans));
    }
}

/* Groups of which a device packs all heads, two, and one into the rows of a tile. */
static void check_chunks(tester *t)
{
    static const attend_shape shapes[] = {{2, 4, 128}, {1, 6, 128}, {1, 3, 64},
                                          {2, 8, 64},  {1, 2, 256}, {1, 5, 256}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        long_case(t, shapes[i], true, 0, chunks, PROA_COUNT(chunks));
        long_case(t, shapes[i], true, i % 2 ? 700 : 1000, chunks, PROA_COUNT(chunks));
        long_case(t, shapes[i], true, i % 2 ? -1000 : -512, chunks, PROA_COUNT(chunks));
        if (i % 2 == 0) long_case(t, shapes[i], false, 0, chunks, PROA_COUNT(chunks));
    }
}

/* Heads enough for a device to take 128 rows at once. */
static void check_many_heads(tester *t)
{
    static const attend_shape many[] = {{3, 8, 64}, {8, 3, 128}};
    for (size_t i = 0; i < PROA_COUNT(many); i++) {
        check_rows_as_keys(t, many[i], i == 0);
        for (int variant = 0; variant < ATTEND_VARIANTS; variant += 2) {
            attend_case(t, many[i], device_mode.narrow, variant);
            if (variant % 4 == 0) attend_case(t, many[i], PROA_DTYPE_FP8, variant);
        }
    }
}

void check_attend(tester *t)
{
    static const attend_shape shapes[] = {{1, 1, 64},  {2, 1, 32}, {2, 3, 16}, {1, 8, 64},  {2, 2, 80},
                                          {1, 4, 128}, {3, 1, 7},  {1, 2, 33}, {1, 1, 256}, {1, 5, 8}};
    for (size_t d = 0; d < kv_dtypes_here(); d++)
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            for (int variant = 0; variant < ATTEND_VARIANTS; variant++)
                if (d == 0 || (variant + (int)i) % 3 == 0) attend_case(t, shapes[i], kv_dtypes[d], variant);
    /* latent keys: one head of keys, wider than a device's tiles */
    for (int variant = 0; variant < 4; variant++)
        attend_case(t, (attend_shape){1, 4, 576}, kv_dtypes[0], variant);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int form = 0; form < 4; form++) check_rows_as_keys(t, shapes[i], form);
    check_relatives(t);
    check_sides(t);
    check_trees(t);
    /* groups of more heads than a tile has too */
    static const attend_shape tiled[] = {{2, 4, 128}, {1, 12, 64}, {1, 16, 128},
                                         {1, 9, 256}, {2, 9, 80},  {1, 3, 96}};
    for (size_t d = 0; d < kv_dtypes_here() && device_mode.on; d++)
        for (size_t i = 0; i < PROA_COUNT(tiled); i++) {
            int variant = (int)(4 * i + d) % ATTEND_VARIANTS;
            attend_spans(t, tiled[i], kv_dtypes[d], variant, decode_many, PROA_COUNT(decode_many));
            attend_spans(t, tiled[i], kv_dtypes[d], variant, decode_long, PROA_COUNT(decode_long));
        }
    /* f32: the longest context whose keys and values fit a block of a device, and one more; whole and cut tiles of
     * rows */
    static const int32_t fits[][2] = {{8, 8}, {9, 20}, {16, 146}, {1, 30}, {7, 0}, {2, 3}},
                         too_long[][2] = {{8, 8}, {9, 147}, {1, 30}};
    for (int variant = 0; variant < (device_mode.on ? ATTEND_VARIANTS : 2); variant++) {
        attend_spans(t, (attend_shape){1, 2, 128}, PROA_DTYPE_F32, variant, fits, PROA_COUNT(fits));
        attend_spans(t, (attend_shape){1, 2, 128}, PROA_DTYPE_F32, variant, too_long, PROA_COUNT(too_long));
    }
    if (device_mode.narrow != PROA_DTYPE_F32) check_many_heads(t), check_long(t), check_chunks(t);
}
