/* SPDX-License-Identifier: Apache-2.0
 * check_lora.c - low-rank adapters: matrices of one to four pieces, adapters of different ranks that change some of
 * the pieces, rows with and without an adapter, in every dtype. */
#include "scene.h"

#include "base/checked.h"
#include "kernels/lora_stack.h"
#include <math.h>
#include <stdlib.h>

enum { ADAPTERS = 5 };

typedef struct lora_case {
    int64_t T, K;
    int32_t rank, pieces;
    int64_t end[PROA_LORA_PIECES_MAX];
} lora_case;

/* What the run of a scene needs besides. */
static struct {
    proa_lora l;
    char *memory;
    int64_t stride;
} now;

/* Segments of the rows [begin, end) of the scene, numbered from 0: adapter by adapter, at most PROA_LORA_ROWS rows in
 * each, then an empty one. ints: the adapter of each row, -1: none. */
static void run_segments(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    int32_t *order = malloc((size_t)(end - begin + 1) * sizeof *order), count = 0;
    proa_lora_segment *segments = malloc((size_t)(end - begin + ADAPTERS + 1) * sizeof *segments);
    proa_lora_rows rows = {.order = order, .segment = segments, .slot = s->ints + begin};
    PROA_ASSERT(order && segments);
    for (int adapter = 0; adapter < ADAPTERS; adapter++)
        for (int64_t t = begin; t < end; t++) {
            proa_lora_segment *last = rows.count ? &segments[rows.count - 1] : NULL;
            const char *base = now.memory + adapter * now.stride;
            if (s->ints[t] != adapter) continue;
            if (!last || last->base != base || last->rows == PROA_LORA_ROWS)
                segments[rows.count++] = (proa_lora_segment){base, count, 1};
            else last->rows++;
            order[count++] = (int32_t)(t - begin);
        }
    segments[rows.count++] = (proa_lora_segment){now.memory, count, 0};
    proa_view x = rows_of(s->input[0], begin, end);
    proa_epilogue e = s->epilogue;
    e.residual = rows_of(e.residual, begin, end), e.workspace = rows_of(e.workspace, begin, end);
    if (!s->weights[0]) c->ops->lora(c, out, x, &now.l, &rows);
    else c->ops->linear_lora(c, out, x, s->weights[c->ops != s->reference], &e, &now.l, &rows);
    free(order), free(segments);
}

/* The last adapter is of rank 0 in the first piece, others of ranks from 1 to the largest. */
static void fill_adapter(char *base, int adapter, int64_t panels, uint64_t *seed)
{
    const proa_lora *l = &now.l;
    proa_lora_use *use = (proa_lora_use *)(void *)(base + l->use);
    for (int32_t p = 0; p < l->pieces; p++) {
        bool none = (adapter + p) % ADAPTERS == ADAPTERS - 1;
        use[p].rank = none ? 0 : adapter == 0 ? l->rank : 1 + (int32_t)rng_below(seed, l->rank);
        use[p].scale = 0.25f * (float)(adapter + 1);
    }
    for (int64_t i = 0; i < proa_round_up(l->K, 16) * l->pieces * l->rank; i++) {
        int64_t columns = (int64_t)l->pieces * l->rank, column = i % columns;
        float v = i / columns < l->K && column % l->rank < use[column / l->rank].rank ? rng_normal(seed) : 0;
        proa_from_f32(base + l->a + i * proa_dtype_bytes(l->dtype), l->dtype, &v, 1);
    }
    for (int64_t i = 0; i < panels * l->rank * PROA_LORA_PANEL; i++) {
        float v = rng_normal(seed);
        proa_from_f32(base + l->b + i * proa_dtype_bytes(l->dtype), l->dtype, &v, 1);
    }
}

static void make_adapters(const lora_case *k, proa_dtype dtype)
{
    int64_t bytes = proa_dtype_bytes(dtype), panels = 0;
    uint64_t seed = 91;
    now.l = (proa_lora){
        .dtype = dtype, .rank = k->rank, .pieces = k->pieces, .K = k->K, .alpha = k->T % 2 ? 0 : 0.5f};
    memcpy(now.l.end, k->end, sizeof now.l.end);
    for (int32_t p = 0; p < k->pieces; p++) panels += proa_lora_panels(&now.l, p);
    now.l.a = 64;
    now.l.b = now.l.a + proa_round_up(proa_round_up(k->K, 16) * k->pieces * k->rank * bytes, 64);
    now.stride = now.l.b + panels * k->rank * PROA_LORA_PANEL * bytes;
    now.memory = aligned_alloc(64, (size_t)(ADAPTERS * now.stride));
    PROA_ASSERT(now.memory);
    for (int i = 0; i < ADAPTERS; i++) fill_adapter(now.memory + i * now.stride, i, panels, &seed);
}

/* kind 0: rows of all adapters and of none; 1: all rows of one adapter; 2: no row has one. */
static void run_case(tester *t, const lora_case *k, proa_dtype dtype, int kind, bool set)
{
    int32_t *ids = malloc((size_t)(k->T + 1) * sizeof *ids);
    uint64_t seed = (uint64_t)k->K;
    PROA_ASSERT(ids);
    for (int64_t i = 0; i < k->T; i++)
        ids[i] = kind == 1 ? 0 : kind == 2 ? -1 : (int32_t)rng_below(&seed, ADAPTERS + 1) - 1;
    make_adapters(k, dtype);
    now.l.set = set;
    device_mode.limit = dtype == PROA_DTYPE_BF16 ? 8e-3 : 1e-3;
    device_mode.floor = sqrt((double)(k->K * k->rank)) / 4;
    canvas x = odd_canvas(k->T, k->K);
    canvas_fill(&x, 92, k->T % 2 && !device_mode.on);
    scene s = {.run = run_segments,
               .T = k->T,
               .out = odd_canvas(k->T, k->end[k->pieces - 1] + k->T % 3), /* columns of no piece */
               .alias = {-1, -1},
               .input = {x.view},
               .ints = ids};
    canvas_fill(&s.out, 93, false);
    LABEL(&s, "%s rows %d [%d,%d] rank %d pieces %d kind %d%s", proa_dtype_name(dtype), (int)k->T, (int)k->K,
          (int)k->end[k->pieces - 1], (int)k->rank, (int)k->pieces, kind, set ? " set" : "");
    check_scene(t, &s, TOL_EXACT);
    free(now.memory), free(ids);
    canvas_free(&x), canvas_free(&s.out);
}

/* The formula itself, which the other tables are compared with: rank 1, two columns. */
static void check_formula(tester *t)
{
    const lora_case k = {1, 2, 16, 1, {2}};
    int32_t order[] = {0}; /* not const: what a device covers is copied back to the host */
    float *x = malloc(2 * sizeof *x), *y = malloc(2 * sizeof *y);
    PROA_ASSERT(x && y);
    make_adapters(&k, PROA_DTYPE_F32);
    float *a = (float *)(void *)(now.memory + now.l.a), *b = (float *)(void *)(now.memory + now.l.b);
    *(proa_lora_use *)(void *)now.memory = (proa_lora_use){0.5f, 1};
    x[0] = 3, x[1] = 5, y[0] = 100, y[1] = 200;
    a[0] = 2, a[16] = 1, b[0] = 4, b[1] = -2; /* h = 11 */
    const proa_lora_segment segment = {now.memory, 0, 1};
    t->tables[0].ops->lora(&t->tables[0], proa_view_2d(y, PROA_DTYPE_F32, 1, 2),
                           proa_view_2d(x, PROA_DTYPE_F32, 1, 2), &now.l,
                           &(proa_lora_rows){order, &segment, 1, NULL});
    expect(t, fabsf(y[0] - 122) < 0.5f && fabsf(y[1] - 189) < 0.5f, "not y + scale (x A^T) B^T: %g %g",
           (double)y[0], (double)y[1]);
    free(x), free(y), free(now.memory);
}

void check_lora(tester *t)
{
    static const lora_case cases[] = {
        {0, 8, 16, 1, {8}},
        {1, 64, 16, 3, {64, 96, 128}},
        {7, 33, 16, 3, {24, 32, 40}},
        {13, 128, 32, 2, {100, 200}},
        {40, 48, 16, 1, {130}},
        {40, 100, 48, 2, {16, 20}},
        {33, 256, 16, 4, {16, 32, 48, 64}},
        {20, 1024, 16, 3, {512, 640, 768}},
        {36, 384, 16, 3, {512, 640, 768}}, /* of this one and the next x and y are aligned and have no gaps */
        {60, 1536, 32, 2, {480, 960}},
        {18, 700, 64, 1, {300}},
    };
    static const proa_dtype dtypes[] = {PROA_DTYPE_F32, PROA_DTYPE_BF16, PROA_DTYPE_F16};
    check_formula(t);
    for (size_t i = 0; i < PROA_COUNT(cases); i++)
        for (size_t d = 0; d < PROA_COUNT(dtypes); d++)
            for (int kind = 0; kind < 6; kind++)
                if (takes_turn(t)) run_case(t, &cases[i], dtypes[d], kind % 3, kind >= 3);
}

/* ---- linear_lora ---- */

/* Adapters are as the weights where these have one of their types; beside coded weights they have 16 bits. Of FP8 x has
 * four bits too where rows are many. The numbers of a gated product are two such sums multiplied. */
static proa_dtype dtype_beside(proa_wfmt format)
{
    return format == PROA_WFMT_F32    ? PROA_DTYPE_F32
           : format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F16;
}

static void set_limits(const lora_case *k, proa_wfmt format, bool gated)
{
    device_mode.limit = format == PROA_WFMT_FP8 ? 1e-1 : format == PROA_WFMT_BF16 ? 2e-2 : 4e-3;
    device_mode.floor = sqrt((double)(k->K * k->rank)) / 4;
    if (gated && proa_wfmt_is_quantised(format)) device_mode.floor *= 1 + 8 * device_mode.floor;
}

/* variant: 1 bias, 2 residual (not gated), 4 gated; kind: as in run_case. */
static void linear_case(tester *t, const lora_case *k, proa_wfmt format, int kind, int variant)
{
    bool gated = variant & 4;
    int64_t N = k->end[k->pieces - 1], outputs = gated ? N / 2 : N;
    int32_t *ids = malloc((size_t)(k->T + 1) * sizeof *ids);
    uint64_t seed = (uint64_t)(k->K + kind);
    PROA_ASSERT(ids);
    for (int64_t i = 0; i < k->T; i++)
        ids[i] = kind == 1 ? 0 : kind == 2 ? -1 : (int32_t)rng_below(&seed, ADAPTERS + 1) - 1;
    make_adapters(k, dtype_beside(format));
    now.l.slots = ADAPTERS;
    set_limits(k, format, gated);
    canvas x = canvas_make(2, (const int64_t[]){k->T, k->K}, 0, 0),
           weights = canvas_make(2, (const int64_t[]){N, k->K}, 0, 0);
    canvas bias = canvas_make(1, (const int64_t[]){N}, 0, 0),
           out = canvas_make(2, (const int64_t[]){k->T, outputs}, 0, 0);
    canvas residual = canvas_make(2, (const int64_t[]){k->T, outputs}, 0, 0),
           workspace = canvas_make(2, (const int64_t[]){k->T, N}, 0, 0);
    canvas_fill(&x, 92, false), canvas_fill(&weights, 93, false), canvas_fill(&bias, 94, false),
        canvas_fill(&residual, 95, false);
    canvas_fill(&out, 96, false), canvas_fill(&workspace, 97, false);
    proa_tensor_source source = proa_tensor_source_of(weights.view);
    test_weight ref = test_weight_pack(&t->reference, format, k->K, &source, 1),
                mine = test_weight_pack(&t->tables[0], format, k->K, &source, 1);
    scene s = {.run = run_segments,
               .T = k->T,
               .out = out,
               .alias = {-1, -1},
               .input = {x.view},
               .ints = ids,
               .weights = {&ref.w, &mine.w},
               .reference = t->reference.ops};
    s.epilogue = (proa_epilogue){
        .alpha = now.l.alpha, .gated = gated, .act = gated ? PROA_ACT_SILU : PROA_ACT_NONE};
    if (variant & 1) s.epilogue.bias = proa_view_f32(bias.view);
    if (variant & 2 && !gated) s.epilogue.residual = residual.view;
    if (gated) s.epilogue.workspace = workspace.view;
    LABEL(&s, "%s rows %d [%d,%d] rank %d pieces %d kind %d variant %d", proa_wfmt_name(format), (int)k->T,
          (int)k->K, (int)N, (int)k->rank, (int)k->pieces, kind, variant);
    check_scene(t, &s, gated ? TOL_MATH : tolerance_of_format(format));
    free(now.memory), free(ids);
    test_weight_free(&ref), test_weight_free(&mine);
    canvas_free(&x), canvas_free(&weights), canvas_free(&bias), canvas_free(&out), canvas_free(&residual),
        canvas_free(&workspace);
}

void check_linear_lora(tester *t)
{
    static const lora_case cases[] = {
        {0, 64, 16, 1, {32}},
        {1, 64, 16, 3, {64, 96, 128}},
        {7, 33, 16, 2, {24, 48}},
        {20, 128, 16, 3, {256, 320, 384}}, /* of some dozens of rows all or some blocks have columns of y, */
        {32, 320, 16, 2, {128, 256}},
        {33, 64, 16, 2, {4496, 8992}}, /* in several passes */
        {47, 640, 64, 1, {112}},
        {64, 576, 32, 3, {16, 32, 48}},
        {40, 100, 48, 2, {16, 32}}, /* and other sizes that one kernel does not take */
        {60, 384, 32, 2, {48, 96}},
    };
    /* A table that lacks one skips it: int8 of the host is I8, of a device I8W. */
    static const proa_wfmt formats[] = {PROA_WFMT_F32, PROA_WFMT_BF16, PROA_WFMT_F16, PROA_WFMT_I8,
                                        PROA_WFMT_I8W, PROA_WFMT_FP8,  PROA_WFMT_I4};
    for (size_t i = 0; i < PROA_COUNT(cases); i++)
        for (size_t f = 0; f < PROA_COUNT(formats); f++)
            for (int variant = 0; variant < 5; variant++) {
                bool halves = cases[i].pieces == 2 && cases[i].end[1] == 2 * cases[i].end[0];
                if (t->tables[0].ops->pack_bytes(formats[f], 16, cases[i].K) < 0) break;
                if (checked_below(t, formats[f])) break;
                if (variant == 4 && !halves) continue;
                if (takes_turn(t)) linear_case(t, &cases[i], formats[f], variant % 3, variant);
            }
}

/* ---- lora_stack ---- */

static char *stack_all(proa_ctx *c, proa_wfmt format, int64_t N, int64_t *size)
{
    proa_weight w = {.format = format, .N = N, .K = now.l.K};
    int64_t bytes = *size = proa_lora_stack_of(&now.l, &w).end;
    char *memory = aligned_alloc(128, (size_t)proa_round_up(bytes, 128));
    PROA_ASSERT(memory);
    memset(memory, 0x5a, (size_t)bytes);
    w.data = memory;
    for (int32_t slot = 0; slot + 1 < ADAPTERS; slot++)
        c->ops->lora_stack(c, &w, &now.l, slot, now.memory + slot * now.stride);
    return memory;
}

void check_lora_stack(tester *t)
{
    static const lora_case cases[] = {{1, 64, 16, 3, {64, 96, 128}},
                                      {1, 40, 48, 2, {24, 48}},
                                      {1, 8, 32, 1, {40}},
                                      {1, 320, 16, 2, {800, 1600}}};
    for (size_t i = 0; i < 2 * PROA_COUNT(cases); i++) {
        const lora_case *k = &cases[i / 2];
        proa_wfmt format = i % 2 ? PROA_WFMT_FP8 : PROA_WFMT_F16;
        int64_t N = k->end[k->pieces - 1], bytes;
        make_adapters(k, PROA_DTYPE_F16);
        now.l.slots = ADAPTERS;
        char *ref = stack_all(&t->reference, format, N, &bytes),
             *mine = stack_all(&t->tables[0], format, N, &bytes);
        expect(t, memcmp(ref, mine, (size_t)bytes) == 0, "case %d as %s: other bytes", (int)(i / 2),
               proa_wfmt_name(format));
        free(ref), free(mine), free(now.memory);
    }
}
