/* SPDX-License-Identifier: Apache-2.0
 * test_source.c - stored tensors: row orders, factors, and the walk that gives kernels plain matrices. */
#include "tensor/source.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(row_order), cmocka_unit_test(even_rows_first),
                                       cmocka_unit_test(decoded), cmocka_unit_test(many_and_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
