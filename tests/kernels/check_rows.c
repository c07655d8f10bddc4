/* SPDX-License-Identifier: Apache-2.0
 * check_rows.c - the ops that work row by row, by the driver of scene.h: norms, activations, rotary positions, embed,
 * gather, top-k, products. */
#include "scene.h"

#include "base/checked.h"
#include "kernels/coded.h"
#include <math.h>
#include <string.h>

/* ---- one input, one output ---- */

static void run_rms_norm(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->rms_norm(c, out, rows_of(s->input[0], begin, end), s->shared[0], s->value);
}

static void run_layer_norm(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->layer_norm(c, out, rows_of(s->input[0], begin, end), s->shared[0], s->shared[1], s->value);
}

/* each: every head has weights of its own. */
static void check_norm(tester *t, canvas x, canvas out, bool layer, bool bias, bool each)
{
    int64_t d = x.view.shape[x.view.rank - 1];
    const int64_t shape[] = {each ? x.view.shape[1] : d, d};
    canvas w = canvas_make(1 + each, shape, 0, d % 4), b = canvas_make(1 + each, shape, 0, d % 3);
    canvas_fill(&w, 5, false), canvas_fill(&b, 6, false);
    canvas_fill(&x, (uint64_t)d, true);
    scene s = {.run = layer ? run_layer_norm : run_rms_norm,
               .T = x.view.shape[0],
               .out = out,
               .input = {x.view},
               .alias = {0, -1},
               .shared = {w.view},
               .value = 1e-6f};
    if (bias) s.shared[1] = b.view;
    LABEL(&s, "rank %d rows %d width %d bias %d each %d", (int)x.view.rank, (int)s.T, (int)d, bias, each);
    check_scene(t, &s, TOL_NORM);
    canvas_free(&w), canvas_free(&b), canvas_free(&x), canvas_free(&out);
}

static void norm_shape(tester *t, int64_t rows, int64_t cols, bool layer)
{
    check_norm(t, odd_canvas(rows, cols), odd_canvas(rows, cols), layer, cols % 2 == 0, false);
    if (cols > 65) return;
    const int64_t shape[] = {rows, 3, cols};
    for (int each = 0; each < 2; each++)
        check_norm(t, canvas_make(3, shape, 5, 1), canvas_make(3, shape, 3, 2), layer, cols % 2 == 1, each);
}

static void rms_shape(tester *t, int64_t rows, int64_t cols)
{
    norm_shape(t, rows, cols, false);
}

static void layer_shape(tester *t, int64_t rows, int64_t cols)
{
    norm_shape(t, rows, cols, true);
}

void check_rms_norm(tester *t)
{
    for_shapes(t, rms_shape);
}

/* So many rows that blocks stay and take one after the other. */
static void many_rows(tester *t)
{
    enum { MANY = 9001 };
    if (device_mode.narrow == PROA_DTYPE_F32) return;
    layer_shape(t, MANY, 768);
    layer_shape(t, MANY, 1024);
}

void check_layer_norm(tester *t)
{
    for_shapes(t, layer_shape);
    many_rows(t);
}

/* act works in place: the scene's out holds the input. */
static void run_act(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(begin), PROA_UNUSED(end);
    c->ops->act(c, out, s->act);
}

static void act_shape(tester *t, int64_t rows, int64_t cols)
{
    for (int a = 0; a < PROA_ACT_COUNT; a++) {
        scene s = {
            .run = run_act, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}, .act = (proa_act)a};
        canvas_fill(&s.out, (uint64_t)(cols + a), true);
        LABEL(&s, "%s rows %d width %d", proa_act_name(s.act), (int)rows, (int)cols);
        check_scene(t, &s, tolerance_of_act(s.act));
        canvas_free(&s.out);
    }
}

void check_act(tester *t)
{
    for_shapes(t, act_shape);
}

static void run_soft_cap(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(begin), PROA_UNUSED(end);
    c->ops->soft_cap(c, out, s->value);
}

static void soft_cap_shape(tester *t, int64_t rows, int64_t cols)
{
    for (int i = 0; i < 2; i++) {
        scene s = {.run = run_soft_cap, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}};
        s.value = i ? 30.0f : 0.7f;
        canvas_fill(&s.out, (uint64_t)(cols + i), true);
        LABEL(&s, "cap %g rows %d width %d", (double)s.value, (int)rows, (int)cols);
        check_scene(t, &s, TOL_MATH);
        canvas_free(&s.out);
    }
}

void check_soft_cap(tester *t)
{
    for_shapes(t, soft_cap_shape);
}

static void run_clip(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(begin), PROA_UNUSED(end);
    c->ops->clip(c, out, s->value);
}

static void clip_shape(tester *t, int64_t rows, int64_t cols)
{
    for (int i = 0; i < 2; i++) {
        scene s = {.run = run_clip, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}};
        s.value = i ? 1.0f : 0.25f;
        canvas_fill(&s.out, (uint64_t)(cols + i), true);
        LABEL(&s, "limit %g rows %d width %d", (double)s.value, (int)rows, (int)cols);
        check_scene(t, &s, TOL_EXACT);
        canvas_free(&s.out);
    }
}

void check_clip(tester *t)
{
    for_shapes(t, clip_shape);
}

static void run_xielu(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(begin), PROA_UNUSED(end);
    c->ops->xielu(c, out, s->shared[0]);
}

static void xielu_shape(tester *t, int64_t rows, int64_t cols)
{
    static const float shapes[][4] = {{0.2f, -0.9f, 0.5f, -1e-6f}, {1.5f, 40.0f, 0.25f, -0.125f}};
    const bool half = device_mode.narrow == PROA_DTYPE_F16; /* rounds -1e-6 of x = 0 by 1 %: too small for it */
    for (int i = 0; i < 2; i++) {
        const int64_t four[] = {4};
        canvas a = canvas_make(1, four, 0, 0);
        memcpy(a.view.data, shapes[i], sizeof shapes[i]);
        if (half && i == 0) proa_view_f32(a.view)[3] = -1e-3f;
        scene s = {
            .run = run_xielu, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}, .shared = {a.view}};
        canvas_fill(&s.out, (uint64_t)(cols + i), true);
        LABEL(&s, "alpha %g rows %d width %d", (double)shapes[i][0], (int)rows, (int)cols);
        check_scene(t, &s, TOL_MATH);
        canvas_free(&a), canvas_free(&s.out);
    }
}

void check_xielu(tester *t)
{
    for_shapes(t, xielu_shape);
}

static void run_round(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(begin), PROA_UNUSED(end);
    c->ops->round_rows(c, out, (int32_t)s->value);
}

static void round_shape(tester *t, int64_t rows, int64_t cols)
{
    static const int bits[] = {8, 4, 16};
    for (int i = 0; i < (int)PROA_COUNT(bits); i++) {
        scene s = {.run = run_round, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}};
        s.value = (float)bits[i];
        canvas_fill(&s.out, (uint64_t)(cols + i), true);
        canvas_round_narrow(&s.out); /* else other codes are nearest */
        LABEL(&s, "%d bits rows %d width %d", bits[i], (int)rows, (int)cols);
        check_scene(t, &s, TOL_EXACT);
        canvas_free(&s.out);
    }
}

void check_round_rows(tester *t)
{
    for_shapes(t, round_shape);
}

static void run_act_mul(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->act_mul(c, out, rows_of(s->input[0], begin, end), rows_of(s->input[1], begin, end), s->act);
}

static void run_add(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->add(c, out, rows_of(s->input[0], begin, end), rows_of(s->input[1], begin, end));
}

/* The same with one row for all rows: the factors or the addends of columns. */
static void repeat_row(scene *s, bool mul)
{
    s->input[mul ? 0 : 1].stride[0] = 0;
    s->alias[0] = mul ? 1 : 0, s->alias[1] = -1;
    s->act = PROA_ACT_NONE;
    snprintf(s->label + strlen(s->label), sizeof s->label - strlen(s->label), " of one row");
}

static void pair_shape(tester *t, int64_t rows, int64_t cols, bool mul)
{
    canvas a = odd_canvas(rows, cols), b = odd_canvas(rows + (device_mode.narrow == PROA_DTYPE_F32), cols),
           out = odd_canvas(rows, cols);
    canvas_fill(&a, 11, true), canvas_fill(&b, 12, false);
    scene s = {.run = mul ? run_act_mul : run_add,
               .T = rows,
               .out = out,
               .alias = {0, 1},
               .input = {a.view, proa_view_rows(b.view, 0, rows)},
               .act = (proa_act)((rows + cols) % PROA_ACT_COUNT)};
    LABEL(&s, "%s rows %d width %d", mul ? proa_act_name(s.act) : "add", (int)rows, (int)cols);
    check_scene(t, &s, mul ? tolerance_of_act(s.act) : TOL_ELEMENT);
    if (device_mode.narrow == PROA_DTYPE_F32) { /* what a step repeats is f32 */
        repeat_row(&s, mul);
        check_scene(t, &s, TOL_ELEMENT);
    }
    canvas_free(&a), canvas_free(&b), canvas_free(&out);
}

static void act_mul_shape(tester *t, int64_t rows, int64_t cols)
{
    pair_shape(t, rows, cols, true);
}

static void add_shape(tester *t, int64_t rows, int64_t cols)
{
    pair_shape(t, rows, cols, false);
}

void check_act_mul(tester *t)
{
    for_shapes(t, act_mul_shape);
}

/* A device may add when the norm or the gated activation reads the rows: both results must be there. */
static void add_first_case(tester *t, int64_t rows, int64_t cols, bool norm, int64_t offset, bool wide)
{
    int64_t columns = norm ? cols : 2 * cols;
    canvas x = canvas_make(2, (const int64_t[]){rows, columns}, 0, offset),
           more = canvas_make(2, x.view.shape, 0, 0);
    canvas y = canvas_make(2, (const int64_t[]){rows, cols}, 0, 0), w = canvas_make(1, &cols, 0, 0);
    canvas_fill(&x, 15, false), canvas_fill(&more, 16, false), canvas_fill(&w, 17, false),
        canvas_fill(&y, 18, false);
    canvas sum = canvas_clone(&x), right = canvas_clone(&y);
    proa_ctx *c = &t->reference;
    c->ops->add(c, sum.view, sum.view, more.view);
    if (norm) c->ops->rms_norm(c, right.view, sum.view, w.view, 1e-5f);
    else
        c->ops->act_mul(c, right.view, proa_view_cols(sum.view, 0, cols),
                        proa_view_cols(sum.view, cols, 2 * cols), PROA_ACT_SILU);
    hosted_add_first(y.view, x.view, more.view, norm ? w.view : (proa_view){.rank = 0}, 1e-5f, PROA_ACT_SILU,
                     wide);
    double sums = compare_rows(x.view, sum.view, TOL_ELEMENT),
           worst = compare_rows(y.view, right.view, TOL_NORM);
    expect(t, sums <= 1.0 && worst <= 1.0 && canvas_guards_hold(&x) && canvas_guards_hold(&y),
           "added first, %s of rows %d width %d offset %d wide %d: off by %g and %g tolerances",
           norm ? "norm" : "act_mul", (int)rows, (int)cols, (int)offset, (int)wide, sums, worst);
    canvas_free(&x), canvas_free(&more), canvas_free(&y), canvas_free(&w), canvas_free(&sum),
        canvas_free(&right);
}

void check_add(tester *t)
{
    static const int64_t shapes[][2] = {{3, 64}, {17, 64}, {33, 250}, {40, 768}, {20, 4096}, {64, 5120}};
    for_shapes(t, add_shape);
    for (size_t i = 0; i < PROA_COUNT(shapes) && device_mode.on; i++)
        for (int offset = 0; offset < 2; offset++) {
            add_first_case(t, shapes[i][0], shapes[i][1], true, offset, false);
            add_first_case(t, shapes[i][0], shapes[i][1], true, offset, true);
            add_first_case(t, shapes[i][0], shapes[i][1], false, offset, false);
        }
}

static void run_scale(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->scale(c, out, rows_of(s->input[0], begin, end), s->value);
}

static void scale_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas x = odd_canvas(rows, cols);
    canvas_fill(&x, 13, true);
    scene s = {.run = run_scale,
               .T = rows,
               .out = odd_canvas(rows, cols),
               .alias = {0, -1},
               .input = {x.view},
               .value = cols % 2 ? 7.4833147f : -0.3f};
    LABEL(&s, "factor %g rows %d width %d", (double)s.value, (int)rows, (int)cols);
    check_scene(t, &s, TOL_ELEMENT);
    canvas_free(&s.out), canvas_free(&x);
}

void check_scale(tester *t)
{
    for_shapes(t, scale_shape);
}

/* ---- rows named by integers ---- */

#define TABLE_ROWS 29

static void run_embed(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(end);
    c->ops->embed(c, out, s->shared[0], s->ints + begin, s->value, s->flag);
}

static void run_gather(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(end);
    c->ops->gather(c, out, s->shared[0], s->ints + begin);
}

static void embed_dtype(tester *t, int64_t rows, int64_t cols, proa_dtype dtype)
{
    int32_t ids[64];
    canvas f32 = odd_canvas(TABLE_ROWS, cols);
    canvas_fill(&f32, 3, true);
    /* the same rows in the dtype, at an address that is a multiple of the element alone */
    int64_t bytes = proa_dtype_bytes(dtype), stride = cols + 3;
    char *data = malloc((size_t)((TABLE_ROWS * stride + 1) * bytes));
    PROA_ASSERT(data);
    for (int64_t i = 0; i < TABLE_ROWS; i++)
        proa_from_f32(data + (1 + i * stride) * bytes, dtype,
                      proa_view_f32(f32.view) + i * f32.view.stride[0], cols);
    proa_view table = proa_view_2d(data + bytes, dtype, TABLE_ROWS, cols);
    table.stride[0] = stride;
    for (int i = 0; i < 64; i++)
        ids[i] = (i * 5 + 1) % TABLE_ROWS + (i % 9 == 4 ? TABLE_ROWS : 0); /* some too many */
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        scene s = {.run = run_embed,
                   .T = rows,
                   .out = odd_canvas(rows, cols),
                   .alias = {-1, -1},
                   .ints = ids,
                   .shared = {table},
                   .value = accumulate ? 1.0f : 3.25f,
                   .flag = accumulate};
        if (accumulate) canvas_fill(&s.out, 77, false);
        LABEL(&s, "%s rows %d width %d accumulate %d", proa_dtype_name(dtype), (int)rows, (int)cols, accumulate);
        check_scene(t, &s, TOL_ELEMENT);
        canvas_free(&s.out);
    }
    free(data);
    canvas_free(&f32);
}

static void embed_shape(tester *t, int64_t rows, int64_t cols)
{
    embed_dtype(t, rows, cols, PROA_DTYPE_F32);
    embed_dtype(t, rows, cols, PROA_DTYPE_F16);
    embed_dtype(t, rows, cols, PROA_DTYPE_BF16);
}

/* Tables whose rows are added, one behind the other: a device may do up to three at once. odd: of one of them the
 * rows lie at no multiple of 8 numbers; other: the last one is of another type. */
static void embed_all_case(tester *t, int64_t rows, int64_t cols, int count, int odd, bool other)
{
    enum { MOST = 5 };
    static const float scale[MOST] = {3.25f, 1.0f, 1.0f, 0.5f, 1.0f};
    canvas table[MOST], y = canvas_make(2, (const int64_t[]){rows, cols}, 0, 0), right = canvas_clone(&y);
    uint16_t *halves = malloc((size_t)(TABLE_ROWS * cols) * sizeof *halves);
    proa_view views[MOST];
    int32_t ids[MOST * 64];
    PROA_ASSERT(halves && rows <= 64 && count <= MOST);
    for (int i = 0; i < count; i++) {
        table[i] = canvas_make(2, (const int64_t[]){TABLE_ROWS, cols}, i == odd ? 3 : 0, 0);
        canvas_fill(&table[i], (uint64_t)(50 + i), false);
        views[i] = table[i].view;
        for (int64_t k = 0; k < rows; k++) ids[i * rows + k] = (int32_t)((k * 5 + i * 3 + 1) % TABLE_ROWS);
    }
    if (other) {
        proa_view *last = &views[count - 1];
        for (int64_t k = 0; k < TABLE_ROWS; k++)
            proa_from_f32(halves + k * cols, PROA_DTYPE_F16, proa_view_f32(*last) + k * last->stride[0], cols);
        *last = proa_view_2d(halves, PROA_DTYPE_F16, TABLE_ROWS, cols);
    }
    for (int i = 0; i < count; i++)
        t->reference.ops->embed(&t->reference, right.view, views[i], ids + i * rows, scale[i], i > 0);
    if (device_mode.on) hosted_embed_all(y.view, views, ids, scale, count);
    for (int i = 0; i < count && !device_mode.on; i++)
        t->tables[0].ops->embed(&t->tables[0], y.view, views[i], ids + i * rows, scale[i], i > 0);
    double worst = compare_rows(y.view, right.view, TOL_NORM);
    expect(t, worst <= 1.0 && canvas_guards_hold(&y),
           "%d tables, rows %d width %d odd %d other %d: off by %g tolerances", count, (int)rows, (int)cols,
           odd, other, worst);
    for (int i = 0; i < count; i++) canvas_free(&table[i]);
    canvas_free(&y), canvas_free(&right);
    free(halves);
}

void check_embed(tester *t)
{
    static const int64_t shapes[][2] = {{1, 8}, {7, 24}, {40, 33}, {13, 768}, {3, 4096}};
    for_shapes(t, embed_shape);
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int count = 2; count <= 5; count++)
            if (takes_turn(t))
                embed_all_case(t, shapes[i][0], shapes[i][1], count, (int)i % 3 - 1, count == 4);
}

static void gather_shape(tester *t, int64_t rows, int64_t cols)
{
    int32_t ids[64];
    canvas x = odd_canvas(TABLE_ROWS, cols);
    canvas_fill(&x, 3, true);
    for (int i = 0; i < 64; i++) ids[i] = (i * 7 + 3) % TABLE_ROWS;
    scene s = {.run = run_gather,
               .T = rows,
               .out = odd_canvas(rows, cols),
               .alias = {-1, -1},
               .ints = ids,
               .shared = {x.view}};
    LABEL(&s, "rows %d width %d", (int)rows, (int)cols);
    check_scene(t, &s, TOL_EXACT);
    canvas_free(&s.out), canvas_free(&x);
}

void check_gather(tester *t)
{
    for_shapes(t, gather_shape);
}

/* ---- positions of queries ---- */

static void run_query_scale(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(end);
    c->ops->query_scale(c, out, s->ints + begin, s->query_scale);
}

static void query_scale_shape(tester *t, int64_t rows, int64_t cols)
{
    static const proa_query_scale forms[] = {{0.1f, 8192, 1, false}, {0.5f, 64, 0, false}, {0.25f, 55, 1, true}};
    int32_t pos[64];
    for (int i = 0; i < 64; i++) pos[i] = i < 8 ? 60 + i : i < 16 ? 8183 + i : i * 9973 * 26;
    for (size_t i = 0; i < PROA_COUNT(forms); i++) {
        scene s = {.run = run_query_scale, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}};
        s.ints = pos, s.query_scale = &forms[i];
        canvas_fill(&s.out, (uint64_t)cols + i, true);
        LABEL(&s, "%s %d rows %d width %d", forms[i].smooth ? "smooth from" : "steps of",
              (int)forms[i].length, (int)rows, (int)cols);
        check_scene(t, &s, TOL_ELEMENT);
        canvas_free(&s.out);
    }
}

void check_query_scale(tester *t)
{
    for_shapes(t, query_scale_shape);
}

/* ---- rotary positions ---- */

static void run_rope_table(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    PROA_UNUSED(end);
    c->ops->rope_table(c, out, s->ints + begin, s->lengths ? s->lengths + begin : NULL, s->freqs);
}

static void rope_table_case(tester *t, int64_t rows, int64_t r, const int32_t *lengths,
                            const proa_rope_freqs *freqs)
{
    int32_t pos[64];
    for (int i = 0; i < 64; i++) pos[i] = i < 8 ? i : i < 32 ? i * 331 : i * 9973 * 26; /* up to 16 million */
    scene s = {.run = run_rope_table,
               .T = rows,
               .out = odd_canvas(rows, r),
               .alias = {-1, -1},
               .ints = pos,
               .lengths = lengths,
               .freqs = freqs};
    LABEL(&s, "rows %d width %d border %d ntk %g", (int)rows, (int)r, freqs->border, (double)freqs->ntk_factor);
    check_scene(t, &s, TOL_MATH);
    canvas_free(&s.out);
}

/* Frequencies of all rows, of rows by their sequence's length with two tables, and with a base that grows. */
static void rope_table_shape(tester *t, int64_t rows, int64_t cols)
{
    float inv_freq[512], longer[512];
    int32_t lengths[64];
    int64_t r = proa_min64(2 * ((cols + 1) / 2), 2 * (int64_t)PROA_COUNT(inv_freq));
    for (int64_t i = 0; i < r / 2; i++) {
        inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)r);
        longer[i] = inv_freq[i] / (1 + 0.37f * (float)i);
    }
    for (int i = 0; i < 64; i++)
        lengths[i] = 4096 + (i % 3 - 1) * (1 + i * i * 31); /* below, at, above the border */
    proa_rope_freqs freqs = {.inv_freq = inv_freq, .scale = cols % 2 ? 1.0f : 1.1189f};
    rope_table_case(t, rows, r, NULL, &freqs);
    freqs.border = 4096;
    freqs.ntk_factor = 2.5f;
    if (r > 2) rope_table_case(t, rows, r, lengths, &freqs);
    freqs.long_inv_freq = longer;
    freqs.long_scale = 1.19f;
    rope_table_case(t, rows, r, lengths, &freqs);
}

void check_rope_table(tester *t)
{
    for_shapes(t, rope_table_shape);
}

static void run_rope(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->rope(c, out, rows_of(s->input[0], begin, end), s->flag);
}

static void rope_case(tester *t, int64_t rows, int64_t heads, int64_t dim, int64_t r, bool interleaved)
{
    canvas table = odd_canvas(rows, r);
    canvas_fill(&table, 9, false);
    const int64_t shape[] = {rows, heads, dim};
    scene s = {.run = run_rope,
               .T = rows,
               .out = canvas_make(3, shape, rows % 4, dim % 3),
               .alias = {-1, -1},
               .input = {table.view},
               .flag = interleaved};
    canvas_fill(&s.out, 4, true);
    LABEL(&s, "rows %d heads %d dim %d rotated %d interleaved %d", (int)rows, (int)heads, (int)dim, (int)r,
          interleaved);
    check_scene(t, &s, TOL_ELEMENT);
    canvas_free(&s.out), canvas_free(&table);
}

void check_rope(tester *t)
{
    static const int64_t dims[][2] = {{2, 2},   {4, 2},   {8, 8},   {10, 6},  {16, 16},   {30, 22},
                                      {64, 64}, {64, 32}, {80, 20}, {96, 96}, {128, 128}, {256, 64}};
    for (size_t h = 0; h < PROA_COUNT(scene_heights); h++)
        for (size_t i = 0; i < PROA_COUNT(dims); i++)
            for (int interleaved = 0; interleaved < 2; interleaved++)
                rope_case(t, scene_heights[h], 1 + (int64_t)i % 4, dims[i][0], dims[i][1], interleaved);
}

/* ---- the head's helpers ---- */

static void run_log_sum_exp(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->log_sum_exp(c, proa_view_f32(out), rows_of(s->input[0], begin, end));
}

static void log_sum_exp_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas x = odd_canvas(rows, cols);
    canvas_fill(&x, 3, true);
    scene s = {.run = run_log_sum_exp,
               .T = rows,
               .out = canvas_make(1, &rows, 0, 1),
               .alias = {-1, -1},
               .input = {x.view}};
    LABEL(&s, "rows %d width %d", (int)rows, (int)cols);
    check_scene(t, &s, TOL_MATH);
    canvas_free(&s.out), canvas_free(&x);
}

void check_log_sum_exp(tester *t)
{
    for_shapes(t, log_sum_exp_shape);
}

/* out holds the values in its first k columns and the ids, as floats, in the next k. */
static void run_top_k(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    int64_t k = out.shape[1] / 2, count = (end - begin) * k;
    int32_t *ids = malloc((size_t)(count + 2) * 4);
    PROA_ASSERT(ids);
    ids[0] = ids[count + 1] = 0x5a5a5a5a;
    c->ops->top_k(c, proa_view_cols(out, 0, k), ids + 1, rows_of(s->input[0], begin, end), k);
    PROA_ASSERT(ids[0] == 0x5a5a5a5a && ids[count + 1] == 0x5a5a5a5a);
    for (int64_t i = 0; i < count; i++)
        proa_view_f32(out)[i / k * out.stride[0] + k + i % k] = (float)ids[1 + i];
    free(ids);
}

static void top_k_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas x = odd_canvas(rows, cols);
    canvas_fill(&x, 3, true);
    for (int64_t i = 0; i < rows; i += 2) /* many equal values, and some NaN */
        for (int64_t j = 0; j < cols; j++) {
            float *v = proa_view_f32(x.view) + i * x.view.stride[0] + j;
            *v = j % 11 == 5 ? NAN : rintf(*v * 2.0f);
        }
    const int64_t ks[] = {1, 2, 5, 50, cols};
    for (size_t i = 0; i < PROA_COUNT(ks); i++) {
        if (ks[i] > cols || ks[i] > 300) continue;
        scene s = {
            .run = run_top_k, .T = rows, .out = odd_canvas(rows, 2 * ks[i]), .alias = {-1, -1}, .input = {x.view}};
        LABEL(&s, "rows %d width %d k %d", (int)rows, (int)cols, (int)ks[i]);
        check_scene(t, &s, TOL_EXACT);
        canvas_free(&s.out);
    }
    canvas_free(&x);
}

void check_top_k(tester *t)
{
    for_shapes(t, top_k_shape);
    top_k_shape(t, 3, 12289); /* long enough to go by blocks, k 5 and 50 */
    top_k_shape(t, 2, 70001);
}

/* ---- linear and pack ---- */

static void run_linear(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    proa_epilogue e = s->epilogue;
    e.residual = rows_of(e.residual, begin, end), e.workspace = rows_of(e.workspace, begin, end);
    c->ops->linear(c, out, rows_of(s->input[0], begin, end), s->weights[c->ops != s->reference], &e);
}

/* Three sources stacked: f32 rows with padding, a transposed one (Conv1D), and one in the format's own dtype, of which
 * the even rows are taken first if their number is even. */
typedef struct sources {
    canvas canvases[2];
    void *halves;
    proa_tensor_source source[3];
    int count;
} sources;

static sources sources_make(proa_wfmt format, int64_t N, int64_t K, bool specials)
{
    sources s = {.count = 3};
    int64_t n0 = N / 3, n1 = N / 3, n2 = N - n0 - n1;
    proa_dtype dtype = format == PROA_WFMT_F16   ? PROA_DTYPE_F16
                       : format == PROA_WFMT_F32 ? PROA_DTYPE_F32
                                                 : PROA_DTYPE_BF16;
    s.canvases[0] = canvas_make(2, (const int64_t[]){n0, K}, 3, 1);
    s.canvases[1] = canvas_make(2, (const int64_t[]){K, n1}, 2, 1);
    canvas_fill(&s.canvases[0], 21, specials), canvas_fill(&s.canvases[1], 22, false);
    s.source[0] = proa_tensor_source_of(s.canvases[0].view);
    s.source[1] = proa_tensor_source_of(proa_view_transpose(s.canvases[1].view));
    s.halves = malloc((size_t)(n2 * K * 4 + 4));
    PROA_ASSERT(s.halves);
    uint64_t seed = 23;
    for (int64_t i = 0; i < n2 * K; i++) {
        float v = rng_normal(&seed);
        proa_from_f32((char *)s.halves + i * proa_dtype_bytes(dtype), dtype, &v, 1);
    }
    s.source[2] = proa_tensor_source_of(proa_view_2d(s.halves, dtype, n2, K));
    if (n2 % 2 == 0 && n2) s.source[2].order = (proa_row_order){.count = {1, 2, n2 / 2}, .step = {0, 1, 2}};
    return s;
}

static void sources_free(sources *s)
{
    canvas_free(&s->canvases[0]), canvas_free(&s->canvases[1]);
    free(s->halves);
}

/* Of a sum of up to 5000 products: in f32, and with x rounded to the weights' type. */
static double device_limit_of(proa_wfmt format)
{
    switch (format) {
    case PROA_WFMT_F32: return 6e-5;
    case PROA_WFMT_F16:
    case PROA_WFMT_I8W:
    case PROA_WFMT_I4:
    case PROA_WFMT_I4A:
    case PROA_WFMT_I4A32:
    case PROA_WFMT_MXFP4W:
    case PROA_WFMT_I8G:
    case PROA_WFMT_FP8G: return 3e-3;
    case PROA_WFMT_FP8: return 1e-1; /* x too has four bits where many rows come */
    default: return 2e-2;
    }
}

/* Any numbers; or, for int8 in some variants, such as lie on the border of two int8 (in every second row exactly), or
 * the next one below or above it. */
static void fill_inputs(canvas *x, proa_wfmt format, uint64_t seed, int variant)
{
    canvas_fill(x, seed, variant % 2);
    if (format != PROA_WFMT_I8 || variant % 8 != 6) return;
    for (int64_t i = 0; i < x->view.shape[0]; i++)
        for (int64_t j = 0; j < x->view.shape[1]; j++) {
            float border = (float)((i * 11 + j * 37) % 254 - 127) + 0.5f;
            if (j % 3) border = nextafterf(border, j % 3 == 1 ? 200.0f : -200.0f);
            if (j == 0) border = 127.0f; /* the scale is 1 */
            proa_view_f32(x->view)[i * x->view.stride[0] + j] = border * (i % 2 ? 1.0f : 0.37f);
        }
}

/* A gated product is its two ops in one: on the host bit for bit. */
static void check_gated_apart(tester *t, const scene *s)
{
    canvas mine = scene_run(s, &t->tables[0], 0, s->T), apart = canvas_clone(&s->out);
    proa_view workspace = s->epilogue.workspace;
    int64_t F = s->out.view.shape[1];
    const proa_epilogue sums = {.alpha = s->epilogue.alpha, .bias = s->epilogue.bias};
    t->tables[0].ops->linear(&t->tables[0], workspace, s->input[0], s->weights[1], &sums);
    t->tables[0].ops->act_mul(&t->tables[0], apart.view, proa_view_cols(workspace, 0, F),
                              proa_view_cols(workspace, F, 2 * F), s->epilogue.act);
    expect(t, same_bits(mine.view, apart.view, 0, s->T), "%s: gated differs from linear and act_mul", s->label);
    canvas_free(&mine), canvas_free(&apart);
}

enum { GATED = 1 << 12, NOT_GATED = GATED - 1 };

static void set_epilogue(scene *s, int variant, const canvas *bias, const canvas *residual, const canvas *workspace)
{
    proa_epilogue *e = &s->epilogue;
    e->gated = variant & GATED;
    variant &= NOT_GATED;
    if (e->gated) e->workspace = workspace->view;
    else if (variant & 2) e->residual = residual->view, s->alias[0] = 1;
    if (variant & 1) e->bias = proa_view_f32(bias->view);
    if (variant & 4) e->alpha = 0.125f;
    if (variant >= 8) e->act = (proa_act)(1 + variant % (PROA_ACT_COUNT - 1));
    if (variant >= 64) e->act = (proa_act)(variant / 64);
}

/* variant: 1 bias, 2 residual, 4 alpha, from 8 on an activation, from 64 on which one; GATED (then without
 * residual). */
static void linear_case(tester *t, proa_wfmt format, int64_t T, int64_t N, int64_t K, int variant)
{
    if (t->tables[0].ops->pack_bytes(format, N, K) < 0 || !takes_turn(t))
        return; /* not a format of this device */
    device_mode.limit = device_limit_of(format);
    device_mode.floor = sqrt((double)K) * (variant & 4 ? 0.125 : 1.0) / 4; /* of K products of normal numbers */
    bool gated = variant & GATED;
    if (gated) device_mode.floor *= 1 + 8 * device_mode.floor; /* of two such sums */
    /* bf16dot leaves open what becomes of sums that overflow: no huge weights there */
    sources from = sources_make(format, N, K, variant % 4 == 3 && format != PROA_WFMT_BF16DOT);
    test_weight ref = test_weight_pack(&t->reference, format, K, from.source, from.count);
    test_weight mine = test_weight_pack(&t->tables[0], format, K, from.source, from.count);
    canvas x = odd_canvas(T, K), residual = odd_canvas(T, N), workspace = odd_canvas(T, N),
           out = odd_canvas(T, gated ? N / 2 : N);
    canvas bias = canvas_make(1, &N, 0, 3);
    fill_inputs(&x, format, (uint64_t)(N + K), variant);
    canvas_fill(&residual, 8, false), canvas_fill(&bias, 9, false);
    scene s = {.run = run_linear,
               .T = T,
               .out = out,
               .input = {x.view, residual.view},
               .alias = {-1, -1},
               .weights = {&ref.w, &mine.w},
               .reference = t->reference.ops};
    set_epilogue(&s, variant, &bias, &residual, &workspace);
    /* of an activation that is small where the sums are large, what the sums' rounding leaves is larger */
    if (s.epilogue.act && format != PROA_WFMT_F32) device_mode.limit *= 6;
    LABEL(&s, "%s [%d,%d] x [%d] act %s variant %d%s", proa_wfmt_name(format), (int)T, (int)K, (int)N,
          proa_act_name(s.epilogue.act), variant & NOT_GATED, gated ? " gated" : "");
    tolerance kind = tolerance_of_format(format);
    tolerance behind_act = tolerance_of_act(s.epilogue.act);
    if (s.epilogue.act && kind == TOL_EXACT) kind = behind_act;
    else if (s.epilogue.act && behind_act == TOL_GELU) kind = TOL_BF16DOT_GELU;
    check_scene(t, &s, kind);
    if (gated) check_gated_apart(t, &s);
    expect(t, canvas_guards_hold(&workspace), "%s: wrote outside the workspace", s.label);
    expect(t, test_weight_guard_holds(&mine), "%s: pack wrote beyond pack_bytes", s.label);
    canvas_free(&x), canvas_free(&residual), canvas_free(&workspace), canvas_free(&out), canvas_free(&bias);
    test_weight_free(&ref), test_weight_free(&mine);
    sources_free(&from);
}

static void norm_linear(proa_ctx *c, proa_view y, proa_view n, proa_view x, proa_view w, proa_view b,
                        float eps, const proa_weight *weight, const proa_epilogue *e)
{
    if (b.rank) c->ops->layer_norm(c, n, x, w, b, eps);
    else c->ops->rms_norm(c, n, x, w, eps);
    c->ops->linear(c, y, n, weight, e);
}

typedef enum normed {
    PLAIN,
    LAYER,
    GATE,
    INTO
} normed; /* rms_norm but for LAYER; INTO: y is x and the residual (then N == K) */

/* Both, by the reference and by the table under test. */
typedef struct normed_pair {
    canvas x, n, y, right_x, right_n, right_y, workspace, w, b, bias;
    proa_view to, right_to; /* y, or x */
    proa_epilogue e, right_e;
} normed_pair;

static normed_pair normed_make(int64_t T, int64_t N, int64_t K, normed kind)
{
    const int64_t in[] = {T, K}, sums[] = {T, N}, of[] = {T, kind == GATE ? N / 2 : N};
    normed_pair p = {.x = canvas_make(2, in, 4, 0), .n = canvas_make(2, in, 0, 0), .y = canvas_make(2, of, 3, 1)};
    p.workspace = canvas_make(2, sums, 1, 2);
    p.w = canvas_make(1, &K, 0, 0), p.b = canvas_make(1, &K, 0, 0), p.bias = canvas_make(1, &N, 0, 1);
    canvas_fill(&p.x, 31, false), canvas_fill(&p.w, 32, false);
    canvas_fill(&p.b, 33, false), canvas_fill(&p.bias, 34, false);
    p.right_x = canvas_clone(&p.x), p.right_n = canvas_clone(&p.n), p.right_y = canvas_clone(&p.y);
    p.to = p.y.view, p.right_to = p.right_y.view;
    p.e.bias = proa_view_f32(p.bias.view);
    if (kind == LAYER) p.e.act = PROA_ACT_GELU;
    if (kind == GATE) p.e.act = PROA_ACT_SILU, p.e.gated = true, p.e.workspace = p.workspace.view;
    p.right_e = p.e;
    if (kind != INTO) return p;
    p.to = p.e.residual = p.x.view, p.right_to = p.right_e.residual = p.right_x.view;
    return p;
}

static void normed_free(normed_pair *p)
{
    canvas *all[] = {&p->x,       &p->n,         &p->y, &p->right_x, &p->right_n,
                     &p->right_y, &p->workspace, &p->w, &p->b,       &p->bias};
    for (size_t i = 0; i < PROA_COUNT(all); i++) canvas_free(all[i]);
}

static void normed_run(tester *t, normed_pair *p, const proa_weight *ref, const proa_weight *mine, bool layer)
{
    static const float eps = 1e-5f;
    proa_view shift = layer ? p->b.view : (proa_view){.rank = 0};
    norm_linear(&t->reference, p->right_to, p->right_n.view, p->right_x.view, p->w.view, shift, eps, ref,
                &p->right_e);
    if (device_mode.on) hosted_norm_linear(p->to, p->n.view, p->x.view, p->w.view, shift, eps, mine, &p->e);
    else norm_linear(&t->tables[0], p->to, p->n.view, p->x.view, p->w.view, shift, eps, mine, &p->e);
}

/* A norm of a few rows and the linear behind it: a device may do both at once, and writes the normed rows as well. */
static void normed_case(tester *t, proa_wfmt format, int64_t T, int64_t N, int64_t K, normed kind)
{
    if (t->tables[0].ops->pack_bytes(format, N, K) < 0 || !takes_turn(t)) return;
    device_mode.limit = device_limit_of(format), device_mode.floor = sqrt((double)K) / 4;
    if (kind == GATE) device_mode.floor *= 1 + 8 * device_mode.floor;
    sources from = sources_make(format, N, K, false);
    test_weight ref = test_weight_pack(&t->reference, format, K, from.source, from.count);
    test_weight mine = test_weight_pack(&t->tables[0], format, K, from.source, from.count);
    normed_pair p = normed_make(T, N, K, kind);
    normed_run(t, &p, &ref.w, &mine.w, kind == LAYER);
    /* the host's norms sum in an order of their own, and its products go on with what that gives */
    tolerance of_sums = device_mode.on ? kind == LAYER ? TOL_GELU : TOL_EXACT : TOL_BF16DOT;
    double worst = compare_rows(p.to, p.right_to, of_sums);
    double norms = compare_rows(p.n.view, p.right_n.view, TOL_NORM);
    expect(t, worst <= 1.0 && norms <= 1.0,
           "%s normed [%d,%d] x [%d] kind %d: off by %g tolerances, its rows by %g", proa_wfmt_name(format),
           (int)T, (int)K, (int)N, (int)kind, worst, norms);
    bool held = canvas_guards_hold(&p.x) && canvas_guards_hold(&p.y) && canvas_guards_hold(&p.n);
    expect(t, held && canvas_guards_hold(&p.workspace), "normed [%d,%d]: wrote outside", (int)T, (int)K);
    normed_free(&p);
    test_weight_free(&ref), test_weight_free(&mine);
    sources_free(&from);
}

/* A product of which only the next one reads the result: a device may keep that in another type. variant: 1 bias, 4
 * alpha, from 64 on an activation. */
static void fed_case(tester *t, proa_wfmt format, int64_t T, int64_t F, int64_t K, int variant)
{
    enum { N = 48 };
    if (t->tables[0].ops->pack_bytes(format, F, K) < 0 || !takes_turn(t)) return;
    device_mode.limit = device_limit_of(format) * 2, device_mode.floor = sqrt((double)(F * K)) / 8;
    sources of_up = sources_make(format, F, K, false), of_down = sources_make(format, N, F, false);
    test_weight up[2] = {test_weight_pack(&t->reference, format, K, of_up.source, of_up.count),
                         test_weight_pack(&t->tables[0], format, K, of_up.source, of_up.count)};
    test_weight down[2] = {test_weight_pack(&t->reference, format, F, of_down.source, of_down.count),
                           test_weight_pack(&t->tables[0], format, F, of_down.source, of_down.count)};
    const int64_t in[] = {T, K}, middle[] = {T, F}, out[] = {T, N};
    int aligned = variant % 2; /* else the second product may not read what a device has kept */
    canvas x = canvas_make(2, in, 0, 0), u = canvas_make(2, middle, 0, 0),
           y = canvas_make(2, out, 0, 1 - aligned);
    canvas right = canvas_clone(&y), bias = canvas_make(1, &F, 0, 1);
    canvas_fill(&x, 41, false), canvas_fill(&bias, 42, false);
    proa_epilogue e = {.bias = variant & 1 ? proa_view_f32(bias.view) : NULL, .act = (proa_act)(variant / 64)};
    const proa_epilogue plain = {.alpha = 0};
    if (variant & 4) e.alpha = -0.5f;
    t->reference.ops->linear(&t->reference, u.view, x.view, &up[0].w, &e);
    t->reference.ops->linear(&t->reference, right.view, u.view, &down[0].w, &plain);
    hosted_fed_product(y.view, u.view, x.view, &up[1].w, &down[1].w, &e);
    double worst = compare_rows(y.view, right.view, TOL_EXACT);
    expect(t, worst <= 1.0, "%s fed [%d,%d] x [%d] act %s variant %d: off by %g tolerances",
           proa_wfmt_name(format), (int)T, (int)K, (int)F, proa_act_name(e.act), variant, worst);
    expect(t, canvas_guards_hold(&y) && canvas_guards_hold(&u), "fed [%d,%d]: wrote outside", (int)T, (int)K);
    canvas_free(&x), canvas_free(&u), canvas_free(&y), canvas_free(&right), canvas_free(&bias);
    for (int i = 0; i < 2; i++) test_weight_free(&up[i]), test_weight_free(&down[i]);
    sources_free(&of_up), sources_free(&of_down);
}

static void check_fed(tester *t, proa_wfmt format)
{
    static const int64_t shapes[][3] = {{4100, 144, 80}, {4097, 272, 144}, {4224, 128, 1040}, {300, 144, 80}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int v = 0; v < 8; v += v == 1 ? 3 : 1)
            fed_case(t, format, shapes[i][0], shapes[i][1], shapes[i][2], v);
    for (int a = 1; a < PROA_ACT_COUNT; a++) fed_case(t, format, 4100, 144, 80, 64 * a + a % 2);
}

/* Rows of a short text, in the scene_widths that a device's kernels for them choose by. */
static void check_texts(tester *t, proa_wfmt format)
{
    static const int64_t shapes[][3] = {{28, 131, 128},
                                        {12, 65, 252},
                                        {28, 45, 260},
                                        {100, 24, 1016},
                                        {28, 37, 1028},
                                        /* their borders: of rows (and one tile more), of outputs, of K */
                                        {4, 8, 4},
                                        {8, 8, 256},
                                        {16, 7, 512},
                                        {128, 40, 1024},
                                        {132, 16, 60},
                                        {4, 5, 1024}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++)
        for (int v = 0; v < 4; v++)
            linear_case(t, format, shapes[i][0], shapes[i][1], shapes[i][2], v == 3 ? 64 * PROA_ACT_GELU + 1 : v);
    /* the most that their blocks read together, and more */
    for (int more = 0; more < 2 && device_mode.on; more++) linear_case(t, format, 64, 512 + more, 1024, 1);
}

/* One row, and some, in the sizes that a device's kernels choose by; outputs so many that blocks have several turns. */
static void check_normed(tester *t, proa_wfmt format)
{
    static const int64_t some[][3] = {{27, 131, 128}, {11, 65, 252}, {27, 45, 260},   {99, 24, 1016},
                                      {27, 37, 1028}, {2, 65, 252},  {3, 40, 64},     {4, 9, 4},
                                      {8, 16, 256},   {9, 40, 512},  {128, 17, 1024}, {129, 17, 128},
                                      {5, 24, 1028}},
                         one[][2] = {{131, 36},   {65, 252},    {131, 128},   {5003, 64},
                                     {45, 516},   {70, 1028},   {33, 2048},   {33, 2052},
                                     {6, 1030},   {5000, 1030}, {5120, 2048}, {770, 1040},
                                     {6000, 256}, {5120, 2880}, {46, 3072},   {46, 4096}};
    for (size_t i = 0; i < PROA_COUNT(some); i++)
        for (int kind = PLAIN; kind <= LAYER; kind++)
            normed_case(t, format, some[i][0], some[i][1], some[i][2], (normed)kind);
    for (size_t i = 0; i < PROA_COUNT(one); i++)
        for (int kind = PLAIN; kind <= GATE; kind++)
            normed_case(t, format, 1, kind == GATE ? one[i][0] / 2 * 2 : one[i][0], one[i][1], (normed)kind);
    for (int rows = 2; rows < 6; rows++) normed_case(t, format, rows, 2 * 67, 128, GATE);
    normed_case(t, format, 1, 128, 128, INTO);
    normed_case(t, format, 7, 256, 256, INTO);
}

/* Halves that end within tiles and panels and at their borders, few rows and many; long rows, and short ones of many
 * outputs. */
static void check_gated(tester *t, proa_wfmt format)
{
    static const int64_t Ts[] = {1, 2, 3, 4, 8, 13, 16, 40}, halves[] = {1, 3, 8, 17, 32, 65, 96, 160},
                         Ks[] = {1, 7, 16, 33, 64, 300};
    int variant = 0;
    for (size_t n = 0; n < PROA_COUNT(halves); n++)
        for (size_t k = 0; k < PROA_COUNT(Ks); k++, variant = (variant + 1) % 16)
            linear_case(t, format, Ts[(n * 3 + k) % PROA_COUNT(Ts)], 2 * halves[n], Ks[k], GATED | variant);
    for (size_t i = 0; i < PROA_COUNT(Ts); i++)
        linear_case(t, format, Ts[i], 2 * 72, 2600, GATED | 64 * PROA_ACT_SILU | (int)(i % 2));
    for (int rows = 1; rows < 3 && device_mode.on; rows++)
        linear_case(t, format, rows, 2 * 5000, 136, GATED | 64 * PROA_ACT_SILU | 1);
    for (int a = 1; a < PROA_ACT_COUNT; a++)
        linear_case(t, format, 2 + 3 * a, 128, 136, GATED | 64 * a | a % 2);
    linear_case(t, format, PROA_LINEAR_ROWS + 9, 2 * 32, 20, GATED | 64 * PROA_ACT_SILU | 1);
    if (device_mode.narrow == PROA_DTYPE_F32) return;
    for (int a = 1; a < PROA_ACT_COUNT; a++)
        linear_case(t, format, 300 + a, 528, 120, GATED | 64 * a | a % 2);
}

/* One and two rows over long sums: a device's ring of weights turns several times, its blocks have one tile or
 * several, a stage that ends within; outputs that are no whole tile. */
static void check_rings(tester *t, proa_wfmt format)
{
    static const int64_t shapes[][2] = {{5008, 4104}, {96, 5000}, {88, 11008}, {8, 4096},
                                        {5001, 2056}, {45, 4100}, {24, 3969}};
    if (!proa_wfmt_is_quantised(format)) return;
    for (int rows = 1; rows < 3; rows++)
        for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
            linear_case(t, format, rows, shapes[i][0], shapes[i][1], (int)i % 4);
            linear_case(t, format, rows, shapes[i][0] / 2 * 2, shapes[i][1],
                        GATED | 64 * PROA_ACT_SILU | (int)(i % 2));
        }
}

/* Rows, outputs and K that are no multiples of a tile, in views of 16 bits that a device's widest kernels take. */
static void check_many_rows(tester *t, proa_wfmt format)
{
    for (int v = 0; v < 8; v++) linear_case(t, format, 300, 264, 120, v);
    for (int a = 1; a < PROA_ACT_COUNT; a++)
        for (int bias = 0; bias < 2; bias++) linear_case(t, format, 300, 264, 120, 64 * a + bias);
    static const int64_t few[][3] = {
        {96, 264, 1032}, {128, 264, 520}, {36, 72, 264}, {48, 264, 4104}, {100, 1032, 2056}};
    for (size_t i = 0; i < PROA_COUNT(few); i++)
        for (int v = 0; v < 4; v++)
            linear_case(t, format, few[i][0], few[i][1], few[i][2], v == 1 ? 64 * PROA_ACT_GELU + 1 : v);
    /* more rows than tensor cores' kernel of few takes, where they are small: 17, 32, 64 and one more; odd K; what
     * its blocks read together at most, and more */
    static const int64_t text[][3] = {{17, 136, 264}, {18, 135, 37},   {24, 72, 8},    {32, 64, 520},
                                      {33, 63, 1032}, {63, 48, 264},   {64, 128, 136}, {64, 131, 999},
                                      {65, 64, 264},  {64, 638, 1000}, {64, 656, 1000}};
    for (size_t i = 0; i < PROA_COUNT(text); i++)
        for (int v = 0; v < 4; v++)
            linear_case(t, format, text[i][0], text[i][1], text[i][2], v == 1 ? 64 * PROA_ACT_GELU + 1 : v);
    linear_case(t, format, 1200, 264, 72, 64 * PROA_ACT_GELU + 1);
    linear_case(t, format, 132, 72, 1032, 2);
    /* outputs in multiples of 16: products of e4m3 */
    static const int64_t wide[][3] = {{300, 272, 144}, {129, 528, 1040}, {260, 16, 520}, {1200, 272, 80}};
    for (size_t i = 0; i < PROA_COUNT(wide); i++)
        for (int v = 0; v < 8; v++) linear_case(t, format, wide[i][0], wide[i][1], wide[i][2], v);
    for (int a = 1; a < PROA_ACT_COUNT; a++) linear_case(t, format, 300, 272, 144, 64 * a + a % 2);
    if (device_mode.on) check_fed(t, format);
}

/* Some dozens of rows or more with weights of few bits: rows and outputs that are no whole tiles, sums that a
 * device's blocks share, and more outputs than it has blocks for. */
static void check_dozens(tester *t, proa_wfmt format)
{
    static const int64_t Ts[] = {17, 24, 32, 48, 64, 100, 128, 200, 256, 400},
                         long_sums[][3] = {{32, 1001, 4100}, {64, 643, 4100},  {200, 517, 2100},
                                           {24, 9001, 1300}, {64, 8465, 600},  {32, 130, 20},
                                           {520, 517, 2100}, {700, 1101, 600}, {257, 2300, 300}};
    if (!proa_wfmt_is_quantised(format) || !device_mode.on) return;
    for (int i = 0; i < (int)PROA_COUNT(Ts); i++)
        for (int v = 0; v < 4; v++)
            linear_case(t, format, Ts[i], 133 + 31 * i, 300 + 65 * i + v, v + i % 2 * 4);
    for (int i = 0; i < (int)PROA_COUNT(Ts); i++)
        linear_case(t, format, Ts[i], 2 * (64 + 12 * i), 500 + 35 * i, GATED | 64 * PROA_ACT_SILU | i % 2);
    linear_case(t, format, 32, 2 * 1000, 2100, GATED | 64 * PROA_ACT_SILU | 5);
    linear_case(t, format, 64, 2 * 4500, 600, GATED | 64 * PROA_ACT_SILU);
    linear_case(t, format, 600, 2 * 200, 900, GATED | 64 * PROA_ACT_SILU | 5);
    for (int i = 0; i < (int)PROA_COUNT(long_sums); i++)
        linear_case(t, format, long_sums[i][0], long_sums[i][1], long_sums[i][2], i % 4);
    for (int a = 1; a < PROA_ACT_COUNT; a++) linear_case(t, format, 40 + a, 131, 300, 64 * a + a % 4);
}

/* What a device has kernels of its own for in f32; on the host in the types whose sums are the reference's. */
static void check_few(tester *t, proa_wfmt format)
{
    bool plain = format == PROA_WFMT_F32 || format == PROA_WFMT_BF16 || format == PROA_WFMT_F16;
    if (device_mode.narrow != PROA_DTYPE_F32) return;
    if (device_mode.on || format == PROA_WFMT_F32) check_texts(t, format);
    if (device_mode.on || plain) check_normed(t, format);
}

void check_linear(tester *t)
{
    static const int64_t Ts[] = {0, 1, 2, 3, 4, 5, 7, 13, 40},
                         Ns[] = {1, 3, 15, 16, 17, 31, 32, 33, 63, 65, 130, 257},
                         Ks[] = {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 65, 300};
    for (int format = 0; format < PROA_WFMT_COUNT; format++) {
        int variant = 0;
        if (t->format && strcmp(t->format, proa_wfmt_name((proa_wfmt)format)) != 0) continue;
        if (checked_below(t, (proa_wfmt)format)) continue;
        for (size_t n = 0; n < PROA_COUNT(Ns); n++)
            for (size_t k = 0; k < PROA_COUNT(Ks); k++, variant = (variant + 1) % 16)
                linear_case(t, (proa_wfmt)format, Ts[(n * 5 + k) % PROA_COUNT(Ts)], Ns[n], Ks[k], variant);
        /* more rows than linear takes at a time, and sums long enough for several blocks */
        linear_case(t, (proa_wfmt)format, PROA_LINEAR_ROWS + 9, 35, 20, 1);
        linear_case(t, (proa_wfmt)format, 50, 40, 2600, 2);
        linear_case(t, (proa_wfmt)format, 3, 300, 5000, 4);
        /* aligned: on a device the widest products, with what they can do behind the sums */
        for (int v = 0; v < 4; v++) linear_case(t, (proa_wfmt)format, 64, 128, 512, v);
        for (int a = 1; a < PROA_ACT_COUNT && device_mode.on; a++)
            for (int bias = 0; bias < 2; bias++)
                linear_case(t, (proa_wfmt)format, 60, 120, 504, 64 * a + bias);
        check_few(t, (proa_wfmt)format);
        check_gated(t, (proa_wfmt)format);
        if (device_mode.on) check_rings(t, (proa_wfmt)format);
        check_dozens(t, (proa_wfmt)format);
        if (device_mode.on || proa_wfmt_is_grouped((proa_wfmt)format)) check_stored(t, (proa_wfmt)format);
        if (device_mode.narrow != PROA_DTYPE_F32) check_many_rows(t, (proa_wfmt)format);
    }
}

/* Nor on whether the same numbers come as f64. */
static void pack_f64(tester *t, const test_weight *right, proa_view x)
{
    int64_t N = x.shape[0], K = x.shape[1];
    double *wide = malloc((size_t)proa_max64(N * K, 1) * sizeof *wide);
    PROA_ASSERT(wide);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) wide[n * K + k] = (double)proa_view_f32(x)[n * x.stride[0] + k];
    proa_tensor_source source = proa_tensor_source_of(proa_view_2d(wide, PROA_DTYPE_F64, N, K));
    test_weight mine = test_weight_pack(&t->tables[0], right->w.format, K, &source, 1);
    expect(t, memcmp(mine.w.data, right->w.data, (size_t)right->w.bytes) == 0,
           "%s [%d,%d]: f64 gives other bytes", proa_wfmt_name(right->w.format), (int)N, (int)K);
    test_weight_free(&mine);
    free(wide);
}

/* Of rows with one scale a rank that has some columns takes that of the whole row: its part is what copying gives. The
 * columns of the source are side by side, or (as of Conv1D) its rows are. */
static void pack_columns(tester *t, const test_weight *whole, proa_view x)
{
    const proa_wfmt format = whole->w.format;
    proa_copy_packed_fn *copy = proa_copy_packed_find(t->tables[0].ops->layout);
    int64_t N = x.shape[0], K = x.shape[1], first = K / 3, count = K - first - K / 4;
    if (proa_wfmt_group(format) != 0 || count < 1) return;
    canvas turned = odd_canvas(K, N);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++)
            proa_view_f32(turned.view)[k * turned.view.stride[0] + n] = proa_view_f32(x)[n * x.stride[0] + k];
    const proa_view from[] = {x, proa_view_transpose(turned.view)};
    for (int i = 0; i < 2; i++) {
        proa_tensor_source source = proa_tensor_source_of(proa_view_cols(from[i], first, first + count));
        source.cols_before = first, source.cols_behind = K - first - count;
        test_weight part = test_weight_pack(&t->tables[0], format, count, &source, 1);
        proa_weight want = part.w, all = whole->w;
        const proa_packed_rect rect = {.rows = N, .cols = count, .from_col = first};
        want.data = calloc(1, (size_t)want.bytes);
        PROA_ASSERT(want.data);
        copy(t->tables[0].pool, &want, &all, &rect);
        expect(t, test_weight_guard_holds(&part), "%s [%d,%d]: wrote beyond pack_bytes",
               proa_wfmt_name(format), (int)N, (int)K);
        memset(part.w.data, 0, (size_t)part.w.bytes); /* what is between codes and scales may stay as it is */
        t->tables[0].ops->pack(&t->tables[0], &part.w, &source, 1);
        expect(t, memcmp(part.w.data, want.data, (size_t)want.bytes) == 0,
               "%s [%d,%d]: a rank's columns are not those of the whole", proa_wfmt_name(format), (int)N,
               (int)K);
        free(want.data);
        test_weight_free(&part);
    }
    canvas_free(&turned);
}

/* The packed bytes must not depend on the threads, nor on how the rows were split into sources. */
static void pack_case(tester *t, proa_wfmt format, int64_t N, int64_t K)
{
    if (t->tables[0].ops->pack_bytes(format, N, K) < 0 || !takes_turn(t)) return;
    canvas x = odd_canvas(N, K);
    canvas_fill(&x, 31, true);
    proa_tensor_source whole = proa_tensor_source_of(x.view);
    proa_tensor_source split[2] = {proa_tensor_source_of(proa_view_rows(x.view, 0, N / 2)),
                                   proa_tensor_source_of(proa_view_rows(x.view, N / 2, N))};
    test_weight one = test_weight_pack(&t->tables[0], format, K, &whole, 1);
    for (int n = 0; n < CHECK_THREADS; n++) {
        test_weight two = test_weight_pack(&t->tables[n], format, K, split, 2);
        expect(t, one.w.bytes == two.w.bytes && memcmp(one.w.data, two.w.data, (size_t)one.w.bytes) == 0,
               "%s [%d,%d]: %d threads and two sources give other bytes", proa_wfmt_name(format), (int)N,
               (int)K, n + 1);
        expect(t, test_weight_guard_holds(&two), "%s [%d,%d]: wrote beyond pack_bytes",
               proa_wfmt_name(format), (int)N, (int)K);
        test_weight_free(&two);
    }
    pack_f64(t, &one, x.view);
    pack_columns(t, &one, x.view);
    test_weight_free(&one);
    canvas_free(&x);
}

void check_pack(tester *t)
{
    for (int format = 0; format < PROA_WFMT_COUNT; format++)
        for (size_t n = 0; n < PROA_COUNT(scene_widths) - 1; n++)
            for (size_t k = 0; k < PROA_COUNT(scene_widths); k += 2)
                pack_case(t, (proa_wfmt)format, scene_widths[n], scene_widths[k]);
}
