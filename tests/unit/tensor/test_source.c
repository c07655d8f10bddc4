/* SPDX-License-Identifier: Apache-2.0
 * test_source.c - stored tensors: row orders, factors, and the walk that gives kernels plain matrices. */
#include "tensor/scaled.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

/* A matrix whose element (r, k) is 100 r + k. */
static proa_view numbered(float *data, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) data[i] = (float)(i / cols * 100 + i % cols);
    return proa_view_2d(data, PROA_DTYPE_F32, rows, cols);
}

/* The walk must give what the single reads give, whatever views it cuts the rows into. */
static int64_t check_walk(const proa_tensor_source *sources, int count)
{
    proa_tensor_source_walk walk = {.source = sources, .count = count};
    proa_view view;
    int64_t views = 0, row = 0;
    int at = 0;
    float want[8], have[8];
    for (; proa_tensor_source_next(&walk, &view); views++)
        for (int64_t i = 0; i < view.shape[0]; i++, row++) {
            while (row == proa_tensor_source_rows(&sources[at])) at++, row = 0;
            proa_tensor_source plain = proa_tensor_source_of(view);
            proa_tensor_source_read(&plain, i, 0, view.shape[1], have);
            proa_tensor_source_read(&sources[at], row, 0, view.shape[1], want);
            assert_memory_equal(have, want, (size_t)view.shape[1] * sizeof(float));
        }
    assert_int_equal(row, proa_tensor_source_rows(&sources[count - 1]));
    assert_null(walk.decoded);
    return views;
}

/* Two heads of q, k, v, three rows each: the keys are rows 3..5 and 12..14. */
static void row_order(void **state)
{
    PROA_UNUSED(state);
    float data[18 * 4], out[2];
    proa_tensor_source s = proa_tensor_source_of(numbered(data, 18, 4));
    assert_true(proa_tensor_source_is_plain(&s));
    assert_int_equal(proa_tensor_source_rows(&s), 18);
    s.order = (proa_row_order){.first = 3, .count = {1, 2, 3}, .step = {0, 9, 1}};
    assert_false(proa_tensor_source_is_plain(&s));
    assert_int_equal(proa_tensor_source_rows(&s), 6);
    const int64_t stored[6] = {3, 4, 5, 12, 13, 14};
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(proa_tensor_source_row(&s, i), stored[i]);
        proa_tensor_source_read(&s, i, 1, 2, out);
        assert_true(out[0] == (float)(stored[i] * 100 + 1) && out[1] == (float)(stored[i] * 100 + 2));
    }
    assert_int_equal(check_walk(&s, 1), 2); /* one view for each head */
}

static void even_rows_first(void **state)
{
    PROA_UNUSED(state);
    float data[6 * 3], out[3];
    proa_tensor_source s = proa_tensor_source_of(numbered(data, 6, 3));
    s.order = (proa_row_order){.count = {1, 2, 3}, .step = {0, 1, 2}};
    const int64_t stored[6] = {0, 2, 4, 1, 3, 5};
    for (int64_t i = 0; i < 6; i++) {
        proa_tensor_source_read(&s, i, 0, 3, out);
        assert_true(out[0] == (float)(stored[i] * 100));
    }
    assert_int_equal(check_walk(&s, 1), 2);
}

/* A transposed matrix, a plain one, one with a factor for each row and 1 added, and f64: the latter two are decoded. */
static void decoded(void **state)
{
    PROA_UNUSED(state);
    float a[12], b[12], c[12], factor[3] = {2, 3, 4}, out[4];
    double wide[12];
    for (int i = 0; i < 12; i++) wide[i] = i / 3.0;
    proa_tensor_source s[4] = {proa_tensor_source_of(proa_view_transpose(numbered(a, 4, 3))),
                               proa_tensor_source_of(numbered(b, 3, 4)),
                               proa_tensor_source_of(numbered(c, 3, 4)),
                               proa_tensor_source_of(proa_view_2d(wide, PROA_DTYPE_F64, 3, 4))};
    s[2].factor = factor, s[2].plus = 1;
    proa_tensor_source_read(&s[2], 1, 2, 2, out);
    assert_true(out[0] == 3 * 102 + 1 && out[1] == 3 * 103 + 1);
    proa_tensor_source_read(&s[0], 2, 1, 3, out);
    assert_true(out[0] == 102 && out[1] == 202 && out[2] == 302);
    assert_int_equal(check_walk(s, 4), 4);
}

/* More rows than are decoded at a time, and none at all. */
/* Position 1 of 4 columns: angles 1 and 0.01; sines before cosines, or in turn. */
/* Rows 2 to 5 of eight encoded rows of 64, then their transposed: the same numbers. */
static void turned(void **state)
{
    PROA_UNUSED(state);
    static uint8_t blocks[8 * 2 * 34];
    for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (uint8_t)(i * 37 + i / 5);
    for (size_t i = 1; i < sizeof blocks; i += 34) blocks[i] = 0x2c; /* f16 scales near 0.06 */
    proa_scaled_codes codes = {.kind = PROA_CODE_I8, .row_group = 3, .col_group = 64};
    float scales[3] = {1, 2, 3};
    codes.code = (proa_code_layout){.data = blocks, .row = {8 * 64, 64}, .col = {1}, .cols = 1};
    codes.scale = proa_view_2d(scales, PROA_DTYPE_F32, 3, 1);
    proa_tensor_source all[2] = {
        {.encoding = PROA_ENCODING_Q8_0, .view = proa_view_2d(blocks, PROA_DTYPE_F32, 8, 64)},
        {.encoding = PROA_ENCODING_SCALED, .scaled = &codes, .view = proa_view_2d(blocks, PROA_DTYPE_F16, 8, 64)}};
    for (int a = 0; a < 2; a++) {
        proa_tensor_source rows = proa_tensor_source_rows_of(&all[a], 2, 4), columns = rows;
        columns.view = proa_view_transpose(rows.view);
        assert_false(proa_tensor_source_is_turned(&rows));
        assert_true(proa_tensor_source_is_turned(&columns));
        assert_int_equal(proa_tensor_source_rows(&columns), 64);
        for (int64_t r = 0; r < 4; r++) {
            float want[64], part[64], have[4];
            proa_tensor_source_read(&all[a], 2 + r, 0, 64, want);
            proa_tensor_source_read(&rows, r, 0, 64, part);
            assert_memory_equal(part, want, sizeof want);
            for (int64_t k = 0; k < 64; k++) {
                proa_tensor_source_read(&columns, k, 0, 4, have);
                assert_true(have[r] == want[k]);
            }
        }
    }
}

static void sinusoids(void **state)
{
    const float halves[] = {0.84147098F, 0.0099998333F, 0.54030231F, 0.99995F};
    const float pairs[] = {0.84147098F, 0.54030231F, 0.0099998333F, 0.99995F};
    float have[4];
    PROA_UNUSED(state);
    proa_tensor_source s = proa_tensor_source_of(proa_view_2d(NULL, PROA_DTYPE_F32, 2, 4));
    assert_int_equal(proa_tensor_source_rows(&s), 2);
    s.encoding = PROA_ENCODING_SINUSOID_HALVES;
    assert_int_equal(proa_tensor_source_bytes(&s), 0);
    proa_tensor_source_read(&s, 1, 0, 4, have);
    for (int i = 0; i < 4; i++) assert_float_equal(have[i], halves[i], 1e-7F);
    s.encoding = PROA_ENCODING_SINUSOID_PAIRS;
    proa_tensor_source_read(&s, 1, 1, 3, have + 1);
    for (int i = 1; i < 4; i++) assert_float_equal(have[i], pairs[i], 1e-7F);
    proa_tensor_source_read(&s, 0, 0, 2, have);
    assert_float_equal(have[0], 0, 0);
    assert_float_equal(have[1], 1, 0);
}

/* The last frequency is 1/10000; an odd number of columns ends with 0. One sine has the frequency 1. */
static void sinusoids_with_both_ends(void **state)
{
    const float want[] = {0.84147098F, 0.000099999999833F, 0.54030231F, 0.999999995F, 0};
    float have[5];
    PROA_UNUSED(state);
    proa_tensor_source s = proa_tensor_source_of(proa_view_2d(NULL, PROA_DTYPE_F32, 2, 5));
    s.encoding = PROA_ENCODING_SINUSOID_ENDS;
    assert_int_equal(proa_tensor_source_bytes(&s), 0);
    proa_tensor_source_read(&s, 1, 0, 5, have);
    for (int i = 0; i < 5; i++) assert_float_equal(have[i], want[i], 1e-7F);
    proa_tensor_source_read(&s, 1, 3, 2, have);
    for (int i = 0; i < 2; i++) assert_float_equal(have[i], want[i + 3], 1e-7F);
    s.view.shape[1] = 3;
    proa_tensor_source_read(&s, 1, 0, 3, have);
    assert_float_equal(have[0], want[0], 1e-7F);
    assert_float_equal(have[1], want[2], 1e-7F);
    assert_float_equal(have[2], 0, 0);
}

static void many_and_none(void **state)
{
    PROA_UNUSED(state);
    const int64_t rows = 1500, cols = 4096;
    double *wide = calloc((size_t)(rows * cols), sizeof *wide);
    proa_tensor_source s[2] = {proa_tensor_source_of(proa_view_2d(wide, PROA_DTYPE_F64, rows, cols)),
                               proa_tensor_source_of(proa_view_2d(wide, PROA_DTYPE_F32, 0, cols))};
    proa_tensor_source_walk walk = {.source = s, .count = 2};
    proa_view view;
    int64_t sum = 0, views = 0;
    for (; proa_tensor_source_next(&walk, &view); views++) sum += view.shape[0];
    assert_int_equal(sum, rows);
    assert_int_equal(views, 2);
    assert_int_equal(proa_tensor_source_bytes(&s[0]), rows * cols * 8);
    assert_int_equal(proa_tensor_source_bytes(&s[1]), 0);
    free(wide);
}

/* A matrix [4, 5] in four pieces, one of them stored transposed: as it is, turned, as a vector, and in another order of
 * rows it must read as the whole matrix does. */
static void in_pieces(void **state)
{
    PROA_UNUSED(state);
    float whole[20], corner[6], out[5], want[5];
    proa_view v = numbered(whole, 4, 5);
    for (int64_t i = 0; i < 6; i++)
        corner[i] = (float)(i % 2 * 100 + i / 2); /* rows 0..1, columns 0..2, turned */
    const proa_tensor_piece piece[4] = {{proa_view_transpose(proa_view_2d(corner, PROA_DTYPE_F32, 3, 2)), 0, 0},
                                        {proa_view_cols(proa_view_rows(v, 0, 2), 3, 5), 0, 3},
                                        {proa_view_cols(proa_view_rows(v, 2, 4), 0, 3), 2, 0},
                                        {proa_view_cols(proa_view_rows(v, 2, 4), 3, 5), 2, 3}};
    proa_tensor_pieces pieces = {.cols = 5, .count = 4, .piece = piece};
    for (int turned = 0; turned < 2; turned++) {
        proa_tensor_source one = proa_tensor_source_of(v), s = one;
        s.encoding = PROA_ENCODING_PIECES, s.view.data = &pieces;
        if (turned) one.view = proa_view_transpose(v), s.view = proa_view_transpose(s.view);
        for (int64_t row = 0; row < one.view.shape[0]; row++)
            for (int64_t col = 0, n; col < one.view.shape[1]; col++) {
                n = one.view.shape[1] - col;
                proa_tensor_source_read(&s, row, col, n, out);
                proa_tensor_source_read(&one, row, col, n, want);
                assert_memory_equal(out, want, (size_t)n * sizeof(float));
            }
        s.order = (proa_row_order){.first = 1, .count = {1, 1, 2}, .step = {0, 0, 2}};
        assert_int_equal(check_walk(&s, 1), 1);
        assert_int_equal(proa_tensor_source_bytes(&s), 80);
    }
    proa_tensor_source vector = {.encoding = PROA_ENCODING_PIECES,
                                 .view = proa_view_2d(&pieces, PROA_DTYPE_F32, 20, 1)};
    for (int64_t i = 0; i < 20; i++) {
        proa_tensor_source_read(&vector, i, 0, 1, out);
        assert_true(out[0] == whole[i]);
    }
}

/* Columns that are taken of a matrix, with those before and behind: the matrix. */
/* A matrix with a product of two small ones added: rows in another order, some of the columns. */
static void low_rank(void **state)
{
    PROA_UNUSED(state);
    enum { ROWS = 4, COLS = 300, RANK = 2 };
    static float base[ROWS * COLS], left[ROWS * RANK], right[RANK * COLS], row[COLS];
    for (int i = 0; i < ROWS * COLS; i++) base[i] = (float)(i % 7);
    for (int i = 0; i < ROWS * RANK; i++) left[i] = (float)(i + 1);
    for (int i = 0; i < RANK * COLS; i++) right[i] = (float)(i % 5 - 2);
    proa_low_rank_sum sum = {.base = proa_view_2d(base, PROA_DTYPE_F32, ROWS, COLS),
                             .left = proa_view_2d(left, PROA_DTYPE_F32, ROWS, RANK),
                             .right = proa_view_2d(right, PROA_DTYPE_F32, RANK, COLS),
                             .scale = 0.5f};
    proa_tensor_source s = proa_tensor_source_of(proa_view_2d(&sum, PROA_DTYPE_F32, ROWS, COLS));
    s.encoding = PROA_ENCODING_LOW_RANK;
    s.order = (proa_row_order){0, {1, 2, 2}, {0, 1, 2}}; /* 0, 2, 1, 3 */
    assert_true(proa_tensor_source_is_float(&s) && !proa_tensor_source_is_plain(&s));
    proa_tensor_source part = proa_tensor_source_cols_of(&s, 10, 290);
    proa_tensor_source_read(&part, 1, 5, 285, row);
    for (int c = 0; c < 285; c++) {
        int k = 15 + c;
        float wanted = base[2 * COLS + k] + 0.5f * (left[4] * right[k] + left[5] * right[COLS + k]);
        assert_true(row[c] == wanted);
    }
}

static void whole_rows(void **state)
{
    PROA_UNUSED(state);
    float numbers[20], out[5], want[5];
    proa_view v = numbered(numbers, 4, 5);
    const proa_tensor_piece piece[2] = {{proa_view_cols(v, 0, 3), 0, 0}, {proa_view_cols(v, 3, 5), 0, 3}};
    proa_tensor_pieces pieces = {.cols = 5, .count = 2, .piece = piece};
    proa_tensor_source all[4];
    for (int i = 0; i < 4; i++) all[i] = proa_tensor_source_of(i == 3 ? proa_view_transpose(v) : v);
    all[1].col_order = (proa_row_order){.first = 4, .count = {1, 5, 1}, .step = {0, -1, 0}};
    all[2].encoding = PROA_ENCODING_PIECES, all[2].view.data = &pieces;
    for (int i = 0; i < 4; i++) {
        int64_t cols = proa_tensor_source_cols(&all[i]);
        proa_tensor_source part = proa_tensor_source_cols_of(&all[i], 1, 2);
        part.cols_before = 1, part.cols_behind = cols - 3;
        const proa_tensor_source whole = proa_tensor_source_whole_rows(&part);
        assert_int_equal(proa_tensor_source_cols(&whole), cols);
        assert_true(whole.cols_before == 0 && whole.cols_behind == 0);
        for (int64_t row = 0; row < proa_tensor_source_rows(&whole); row++) {
            proa_tensor_source_read(&whole, row, 0, cols, out);
            proa_tensor_source_read(&all[i], row, 0, cols, want);
            assert_memory_equal(out, want, (size_t)cols * sizeof(float));
        }
        check_walk(&whole, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_order), cmocka_unit_test(even_rows_first),
        cmocka_unit_test(decoded),   cmocka_unit_test(many_and_none),
        cmocka_unit_test(in_pieces), cmocka_unit_test(whole_rows),
        cmocka_unit_test(sinusoids), cmocka_unit_test(sinusoids_with_both_ends),
        cmocka_unit_test(turned),    cmocka_unit_test(low_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
