/* SPDX-License-Identifier: Apache-2.0
 * check_group_norm.c - a norm of groups of which a rank has some columns: what they give to the means of the squares,
 * and the scaling by these; both together, on all columns, are rms_norm. */
#include "scene.h"

#include "base/checked.h"

/* The columns [first, first + d) of groups of `width`; set for each scene. */
static int64_t first, width;

static void run_squares(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->group_squares(c, out, rows_of(s->input[0], begin, end), first, width);
}

/* In place: the scene's out holds the rows. */
static void run_scale(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->group_scale(c, out, rows_of(s->input[0], begin, end), s->shared[0], first, width, s->value);
}

static void squares_of(tester *t, int64_t rows, int64_t cols, int64_t groups)
{
    scene s = {.run = run_squares, .T = rows, .out = odd_canvas(rows, groups), .alias = {-1, -1}};
    canvas x = odd_canvas(rows, cols);
    canvas_fill(&x, (uint64_t)(cols + first), true);
    s.input[0] = x.view;
    LABEL(&s, "rows %d columns %d from %d, groups of %d", (int)rows, (int)cols, (int)first, (int)width);
    check_scene(t, &s, TOL_NORM);
    canvas_free(&x), canvas_free(&s.out);
}

static void scale_by(tester *t, int64_t rows, int64_t cols, int64_t groups)
{
    scene s = {.run = run_scale, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}, .value = 1e-5f};
    canvas m = odd_canvas(rows, groups), w = canvas_make(1, &cols, 0, cols % 4);
    canvas_fill(&s.out, (uint64_t)cols, false), canvas_fill(&m, (uint64_t)groups, false),
        canvas_fill(&w, 7, false);
    for (int64_t i = 0; i < rows; i++) /* means of squares */
        for (int64_t g = 0; g < groups; g++) {
            float *at = proa_view_f32(m.view) + i * m.view.stride[0] + g;
            *at *= *at;
        }
    s.input[0] = m.view, s.shared[0] = w.view;
    LABEL(&s, "rows %d columns %d from %d, groups of %d", (int)rows, (int)cols, (int)first, (int)width);
    check_scene(t, &s, TOL_NORM);
    canvas_free(&m), canvas_free(&w), canvas_free(&s.out);
}

/* A part of one group; parts of two with whole ones between them; whole groups. */
static void for_parts(tester *t, int64_t rows, int64_t cols,
                      void (*check)(tester *t, int64_t rows, int64_t cols, int64_t groups))
{
    first = 3 * cols + 1, width = 2 * cols + 1;
    check(t, rows, cols, 4);
    width = proa_max64(1, cols / 3), first = 2 * width + width / 2;
    check(t, rows, cols, (first + cols + width - 1) / width + 1);
    first = 0;
    check(t, rows, cols, (cols + width - 1) / width);
}

static void squares_shape(tester *t, int64_t rows, int64_t cols)
{
    for_parts(t, rows, cols, squares_of);
}

static void scale_shape(tester *t, int64_t rows, int64_t cols)
{
    for_parts(t, rows, cols, scale_by);
}

/* The mean of the squares of 1, 2 | 3, 4, 5, 6 | 7, 8, of which a rank has the first four: 2 columns of its group 0. */
static void check_formula(tester *t)
{
    float x[4] = {1, 2, 3, 4}, m[3] = {9, 9, 9};
    proa_view row = proa_view_2d(x, PROA_DTYPE_F32, 1, 4), means = proa_view_2d(m, PROA_DTYPE_F32, 1, 3);
    const float ones[4] = {1, 1, 2, 1};
    t->tables[0].ops->group_squares(&t->tables[0], means, row, 2, 4);
    expect(t, m[0] == 1.25f && m[1] == 6.25f && m[2] == 0, "not the shares of two groups");
    t->tables[0].ops->group_scale(&t->tables[0], row, means,
                                  proa_view_1d((float *)(uintptr_t)ones, PROA_DTYPE_F32, 4), 2, 4, 0);
    expect(t, x[2] > 2.39f && x[2] < 2.41f && x[3] > 1.59f && x[3] < 1.61f, "not 2 * 3 and 4 by 2.5");
}

void check_group_squares(tester *t)
{
    check_formula(t);
    for_shapes(t, squares_shape);
}

/* With the squares of whole groups it is the norm of these. */
static void check_whole(tester *t, int64_t rows, int64_t groups, int64_t columns)
{
    const int64_t shape[] = {rows, groups * columns}, all = groups * columns;
    canvas x = canvas_make(2, shape, 0, 0), y = canvas_make(2, shape, 0, 0), w = canvas_make(1, &all, 0, 0);
    canvas m = odd_canvas(rows, groups);
    proa_ctx *c = &t->tables[1];
    canvas_fill(&x, 3, false), canvas_fill(&w, 4, false);
    proa_view each = proa_view_2d(w.view.data, PROA_DTYPE_F32, groups, columns);
    t->reference.ops->rms_norm(&t->reference, proa_view_heads(y.view, groups),
                               proa_view_heads(x.view, groups), each, 1e-5f);
    c->ops->group_squares(c, m.view, x.view, 0, columns);
    c->ops->group_scale(c, x.view, m.view, w.view, 0, columns, 1e-5f);
    double worst = compare_rows(x.view, y.view, TOL_NORM);
    expect(t, worst <= 1, "%d groups of %d: not rms_norm, off by %g tolerances", (int)groups, (int)columns,
           worst);
    canvas_free(&x), canvas_free(&y), canvas_free(&w), canvas_free(&m);
}

void check_group_scale(tester *t)
{
    check_whole(t, 5, 3, 48);
    check_whole(t, 2, 1, 1000);
    for_shapes(t, scale_shape);
}
