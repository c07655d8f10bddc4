/* SPDX-License-Identifier: Apache-2.0
 * check_span_rows.c - the rows around each row (neighbours in the same span, zeros beyond its ends), and the mean of a
 * span's rows; other rows stay untouched. Sums of blocks of rows, and zeros where a span has no block. */
#include "check.h"

/* Rows 3 to 7 and 9 to 9 belong to no span. */
/* Not const: what a device covers is copied back to the host. */
static proa_span spans_of[] = {{0, 3, 3, 0, 0, 0, 0},
                               {8, 1, 1, 0, 0, 0, 0},
                               {10, 0, 0, 0, 0, 0, 0},
                               {10, 40, 40, 0, 0, 0, 0},
                               {50, 2, 2, 0, 0, 0, 0}};
enum { ROWS = 52 };

static canvas run(proa_ctx *c, const canvas *out, const canvas *x, const proa_spans *spans, int64_t width)
{
    canvas y = canvas_clone(out);
    c->ops->unfold(c, y.view, x->view, spans, width);
    return y;
}

static void unfold_case(tester *t, int64_t d, int64_t width)
{
    const proa_spans spans = {.span = spans_of, .count = PROA_COUNT(spans_of), .rows_max = 40, .context_max = 40};
    const int64_t in[] = {ROWS, d}, to[] = {ROWS, d * width};
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, in, 3, 1), out = canvas_make(2, to, 2, 3);
    canvas_fill(&x, (uint64_t)(d * 16 + width), !device_mode.on);
    canvas right = run(&t->reference, &out, &x, &spans, width);
    for (int n = 0; n < CHECK_THREADS; n++) {
        canvas mine = run(&t->tables[n], &out, &x, &spans, width);
        bool same = true;
        for (size_t s = 0; s < PROA_COUNT(spans_of); s++) {
            proa_view have = mine.view, want = right.view;
            int64_t begin = spans_of[s].row, end = begin + spans_of[s].rows;
            same = same && compare_rows(proa_view_rows(have, begin, end), proa_view_rows(want, begin, end),
                                        device_mode.on ? TOL_ELEMENT : TOL_EXACT) <= (device_mode.on ? 1 : 0);
        }
        expect(t, same, "%d columns, width %d: differs with %d threads", (int)d, (int)width, n + 1);
        expect(t, canvas_guards_hold(&mine), "%d columns, width %d: wrote outside the view", (int)d, (int)width);
        expect(t, same_bits(mine.view, out.view, 3, 8) && same_bits(mine.view, out.view, 9, 10),
               "%d columns, width %d: wrote rows of no span", (int)d, (int)width);
        canvas_free(&mine);
    }
    canvas_free(&x), canvas_free(&out), canvas_free(&right);
}

/* The formula itself, which the other tables are compared with: the middle of three is the row, both ends are zeros. */
static void check_formula(tester *t)
{
    float x[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[3][6];
    static const float want[3][6] = {{0, 1, 3, 0, 2, 4}, {1, 3, 5, 2, 4, 6}, {3, 5, 0, 4, 6, 0}};
    const proa_span span = {0, 3, 3, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 3, .context_max = 3};
    t->tables[0].ops->unfold(&t->tables[0], proa_view_2d(y, PROA_DTYPE_F32, 3, 6),
                             proa_view_2d(x, PROA_DTYPE_F32, 3, 2), &spans, 3);
    expect(t, memcmp(y, want, sizeof want) == 0, "not the rows before, at and after each row");
}

void check_unfold(tester *t)
{
    static const int64_t columns[] = {1, 5, 64, 200};
    check_formula(t);
    for (size_t i = 0; i < PROA_COUNT(columns); i++)
        for (int64_t width = 1; width <= 7; width += 2) unfold_case(t, columns[i], width);
}

/* ---- the mean of a span's rows ---- */

static canvas run_mean(proa_ctx *c, const canvas *out, const canvas *x, const proa_spans *spans)
{
    canvas y = canvas_clone(out);
    c->ops->span_mean(c, y.view, x->view, spans);
    return y;
}

static void mean_case(tester *t, int64_t d)
{
    const proa_spans spans = {.span = spans_of, .count = PROA_COUNT(spans_of), .rows_max = 40, .context_max = 40};
    const int64_t dims[] = {ROWS, d};
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, dims, 3, 1), out = canvas_make(2, dims, 2, 3);
    canvas_fill(&x, (uint64_t)d, !device_mode.on);
    canvas right = run_mean(&t->reference, &out, &x, &spans);
    for (int n = 0; n < CHECK_THREADS; n++) {
        canvas mine = run_mean(&t->tables[n], &out, &x, &spans);
        for (size_t s = 0; s < PROA_COUNT(spans_of); s++) {
            int64_t row = spans_of[s].row;
            if (spans_of[s].rows == 0) continue;
            double worst = compare_rows(proa_view_rows(mine.view, row, row + 1),
                                        proa_view_rows(right.view, row, row + 1), TOL_NORM);
            expect(t, worst <= 1, "%d columns, span %d: off by %g tolerances", (int)d, (int)s, worst);
            expect(t, same_bits(mine.view, out.view, row + 1, row + spans_of[s].rows),
                   "%d columns, span %d: wrote other rows", (int)d, (int)s);
        }
        expect(t, canvas_guards_hold(&mine), "%d columns: wrote outside the view", (int)d);
        canvas_free(&mine);
    }
    canvas_free(&x), canvas_free(&out), canvas_free(&right);
}

/* ---- mask tokens ---- */

static canvas run_drop(proa_ctx *c, const canvas *out, const int32_t *ids, const proa_spans *spans)
{
    canvas y = canvas_clone(out);
    c->ops->drop_masked(c, y.view, ids, spans, 2, 0.88f);
    return y;
}

static void drop_case(tester *t, int64_t d)
{
    const proa_spans spans = {.span = spans_of, .count = PROA_COUNT(spans_of), .rows_max = 40, .context_max = 40};
    const int64_t dims[] = {ROWS, d};
    int32_t ids[ROWS];
    if (!takes_turn(t)) return;
    for (int i = 0; i < ROWS; i++) ids[i] = i * 7 % 5; /* one in five is the mask */
    canvas out = canvas_make(2, dims, 3, 1);
    canvas_fill(&out, (uint64_t)d, !device_mode.on);
    canvas right = run_drop(&t->reference, &out, ids, &spans);
    for (int n = 0; n < CHECK_THREADS; n++) {
        canvas mine = run_drop(&t->tables[n], &out, ids, &spans);
        double worst = compare_rows(mine.view, right.view, TOL_NORM);
        expect(t, worst <= 1, "%d columns: off by %g tolerances", (int)d, worst);
        expect(t, canvas_guards_hold(&mine), "%d columns: wrote outside the view", (int)d);
        canvas_free(&mine);
    }
    canvas_free(&out), canvas_free(&right);
}

/* Of four rows one is masked: the others become 0.75 / (3 / 4) of what they were. */
void check_drop_masked(tester *t)
{
    static const int64_t columns[] = {1, 5, 64, 300};
    const int32_t ids[] = {4, 9, 4, 7};
    float y[4][2] = {{1, 2}, {3, 5}, {8, 5}, {9, 9}};
    static const float want[4][2] = {{1, 2}, {0, 0}, {8, 5}, {9, 9}};
    const proa_span span = {.rows = 4, .context = 4};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 4, .context_max = 4};
    t->tables[0].ops->drop_masked(&t->tables[0], proa_view_2d(y, PROA_DTYPE_F32, 4, 2), ids, &spans, 9, 0.75f);
    expect(t, memcmp(y, want, sizeof want) == 0, "not the rows without the masked one");
    for (size_t i = 0; i < PROA_COUNT(columns); i++) drop_case(t, columns[i]);
}

void check_span_mean(tester *t)
{
    static const int64_t columns[] = {1, 5, 64, 300};
    float x[4][2] = {{1, 2}, {3, 5}, {8, 5}, {9, 9}}, y[4][2] = {{0}};
    const proa_span span = {0, 3, 3, 0, 0, 0, 0};
    const proa_spans spans = {.span = &span, .count = 1, .rows_max = 3, .context_max = 3};
    t->tables[0].ops->span_mean(&t->tables[0], proa_view_2d(y, PROA_DTYPE_F32, 4, 2),
                                proa_view_2d(x, PROA_DTYPE_F32, 4, 2), &spans);
    expect(t, y[0][0] == 4 && y[0][1] == 4 && y[1][0] == 0, "not the mean of three rows");
    for (size_t i = 0; i < PROA_COUNT(columns); i++) mean_case(t, columns[i]);
}

/* ---- sums of blocks ---- */

/* Spans follow each other, so every row of y belongs to one of them. */
static proa_span tiles_of[] = {{0, 3, 3, 0, 0, 0, 0},
                               {3, 5, 5, 0, 0, 0, 0},
                               {8, 0, 0, 0, 0, 0, 0},
                               {8, 40, 40, 0, 0, 0, 0},
                               {48, 4, 4, 0, 0, 0, 0}};

static canvas run_sums(proa_ctx *c, const canvas *out, const canvas *x, const proa_spans *spans, int64_t block)
{
    canvas y = canvas_clone(out);
    c->ops->block_sums(c, y.view, x->view, spans, block);
    return y;
}

static void sums_case(tester *t, int64_t d, int64_t block)
{
    const proa_spans spans = {.span = tiles_of, .count = PROA_COUNT(tiles_of), .rows_max = 40, .context_max = 40};
    const int64_t in[] = {ROWS, d}, to[] = {ROWS / block, d};
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, in, 3, 1), out = canvas_make(2, to, 2, 3);
    canvas_fill(&x, (uint64_t)(d + block), !device_mode.on);
    canvas right = run_sums(&t->reference, &out, &x, &spans, block);
    for (int n = 0; n < CHECK_THREADS; n++) {
        canvas mine = run_sums(&t->tables[n], &out, &x, &spans, block);
        double worst = compare_rows(mine.view, right.view, TOL_NORM);
        expect(t, worst <= 1, "%d columns, blocks of %d: off by %g tolerances", (int)d, (int)block, worst);
        expect(t, canvas_guards_hold(&mine), "%d columns, blocks of %d: wrote outside the view", (int)d,
               (int)block);
        canvas_free(&mine);
    }
    canvas_free(&x), canvas_free(&out), canvas_free(&right);
}

void check_block_sums(tester *t)
{
    static const int64_t columns[] = {1, 5, 64, 300};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[4] = {9, 9, 9, 9};
    const proa_span two[] = {{0, 3, 3, 0, 0, 0, 0}, {3, 5, 5, 0, 0, 0, 0}};
    const proa_spans spans = {.span = two, .count = 2, .rows_max = 5, .context_max = 5};
    t->reference.ops->block_sums(&t->reference, proa_view_2d(y, PROA_DTYPE_F32, 4, 1),
                                 proa_view_2d(x, PROA_DTYPE_F32, 8, 1), &spans, 2);
    expect(t, y[0] == 6 && y[1] == 9 && y[2] == 21 && y[3] == 0, "not the sums of blocks of two rows");
    for (size_t i = 0; i < PROA_COUNT(columns); i++)
        for (int64_t block = 1; block <= 16; block *= 2) sums_case(t, columns[i], block);
}
