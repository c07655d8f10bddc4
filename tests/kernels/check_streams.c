/* SPDX-License-Identifier: Apache-2.0
 * check_streams.c - streams of rows that are mixed and made as large as another one; thresholds of rows, whole ones and
 * of several parts. */
#include "scene.h"

#include "base/checked.h"
#include <math.h>

static int64_t streams; /* of the input; set for each scene */

static void run_mix(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    proa_view w = s->input[1].rank ? rows_of(s->input[1], begin, end) : (proa_view){.rank = 0};
    proa_view x = s->input[0].rank ? rows_of(s->input[0], begin, end) : out; /* in place */
    c->ops->mix_streams(c, proa_view_heads(out, 3), proa_view_heads(x, s->input[0].rank ? streams : 3), w,
                        s->value);
}

/* form 0: in place; 1: other rows; 2: without weights. */
static void mix_of(tester *t, int64_t rows, int64_t cols, int form)
{
    canvas y = odd_canvas(rows, 3 * cols), x = odd_canvas(rows, 2 * cols), w = odd_canvas(rows, form ? 6 : 9);
    canvas_fill(&y, 1, false), canvas_fill(&x, 2, false), canvas_fill(&w, 3, false);
    scene s = {.run = run_mix, .T = rows, .out = y, .alias = {-1, -1}, .value = form ? 1.0f : 0.0f};
    streams = 2;
    if (form) s.input[0] = x.view;
    if (form < 2) s.input[1] = w.view;
    LABEL(&s, "rows %d columns %d form %d", (int)rows, (int)cols, form);
    check_scene(t, &s, TOL_MATH);
    canvas_free(&y), canvas_free(&x), canvas_free(&w);
}

static void mix_shape(tester *t, int64_t rows, int64_t cols)
{
    for (int form = 0; form < 3; form++) mix_of(t, rows, cols, form);
}

void check_mix_streams(tester *t)
{
    for_shapes(t, mix_shape);
}

static void run_match(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    proa_view x = rows_of(s->input[0], begin, end), r = rows_of(s->input[1], begin, end);
    c->ops->match_rms(c, proa_view_heads(out, 2), proa_view_heads(x, 2), r, s->value);
}

static void match_shape(tester *t, int64_t rows, int64_t cols)
{
    for (int i = 0; i < 2; i++) { /* rows that are larger and smaller than the least */
        canvas y = odd_canvas(rows, 2 * cols), x = odd_canvas(rows, 2 * cols), r = odd_canvas(rows, cols);
        canvas_fill(&x, 4, false), canvas_fill(&r, 5, false);
        scene s = {.run = run_match, .T = rows, .out = y, .alias = {-1, -1}, .value = i ? 1e3f : 1e-5f};
        s.input[0] = x.view, s.input[1] = r.view;
        LABEL(&s, "rows %d columns %d least %g", (int)rows, (int)cols, (double)s.value);
        check_scene(t, &s, TOL_NORM);
        canvas_free(&y), canvas_free(&x), canvas_free(&r);
    }
}

void check_match_rms(tester *t)
{
    for_shapes(t, match_shape);
}

/* In place: the scene's out holds the rows. */
static void run_threshold(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    proa_view m = s->input[0].rank ? rows_of(s->input[0], begin, end) : (proa_view){.rank = 0};
    c->ops->threshold_rows(c, out, m, s->value);
}

static void threshold_of(tester *t, int64_t rows, int64_t cols, int64_t parts)
{
    canvas m = odd_canvas(rows, 4 * proa_max64(parts, 1));
    scene s = {.run = run_threshold, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}, .value = 0.5f};
    canvas_fill(&s.out, (uint64_t)cols, false), canvas_fill(&m, 6, false);
    for (int64_t i = 0; i < rows * parts; i++) { /* a count, a mean, a variance */
        float *part = (float *)m.view.data + i / parts * m.view.stride[0] + i % parts * 4;
        part[0] = (float)(i % 5 + 1), part[3] = 0;
        part[1] *= 0.25f, part[2] = fabsf(part[2]) / 4; /* so that much of a row is well above the threshold */
    }
    if (parts) s.input[0] = m.view;
    LABEL(&s, "rows %d columns %d parts %d", (int)rows, (int)cols, (int)parts);
    check_scene(t, &s, TOL_NORM);
    canvas_free(&s.out), canvas_free(&m);
}

static void threshold_shape(tester *t, int64_t rows, int64_t cols)
{
    threshold_of(t, rows, cols, 0);
    threshold_of(t, rows, cols, 3);
}

void check_threshold_rows(tester *t)
{
    for_shapes(t, threshold_shape);
}

static void run_moments(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->row_moments(c, out, rows_of(s->input[0], begin, end));
}

static void moments_shape(tester *t, int64_t rows, int64_t cols)
{
    canvas x = odd_canvas(rows, cols);
    scene s = {.run = run_moments, .T = rows, .out = odd_canvas(rows, 4), .alias = {-1, -1}};
    canvas_fill(&x, (uint64_t)cols, false);
    s.input[0] = x.view;
    LABEL(&s, "rows %d columns %d", (int)rows, (int)cols);
    check_scene(t, &s, TOL_NORM);
    canvas_free(&s.out), canvas_free(&x);
}

/* The parts of a row give the threshold of the row. */
static void check_parted_row(tester *t)
{
    enum { COLUMNS = 70, CUT = 25 };
    float row[2][COLUMNS], m[8];
    for (int j = 0; j < COLUMNS; j++) row[0][j] = row[1][j] = sinf((float)(j * j)) + 0.01f * (float)j;
    proa_ctx *c = &t->tables[0];
    proa_view whole = proa_view_2d(row[0], PROA_DTYPE_F32, 1, COLUMNS),
              parts = proa_view_2d(row[1], PROA_DTYPE_F32, 1, COLUMNS),
              moments = proa_view_2d(m, PROA_DTYPE_F32, 1, 8);
    proa_view first = proa_view_cols(parts, 0, CUT), second = proa_view_cols(parts, CUT, COLUMNS);
    c->ops->threshold_rows(c, whole, (proa_view){.rank = 0}, 0.3f);
    c->ops->row_moments(c, proa_view_cols(moments, 0, 4), first);
    c->ops->row_moments(c, proa_view_cols(moments, 4, 8), second);
    c->ops->threshold_rows(c, first, moments, 0.3f);
    c->ops->threshold_rows(c, second, moments, 0.3f);
    for (int j = 0; j < COLUMNS; j++)
        expect(t, fabsf(row[0][j] - row[1][j]) < 1e-5f, "column %d: %g of the parts, %g of the row", j,
               (double)row[1][j], (double)row[0][j]);
}

void check_row_moments(tester *t)
{
    for_shapes(t, moments_shape);
    check_parted_row(t);
}
