/* SPDX-License-Identifier: Apache-2.0
 * test_view.c - views and their slices.
 * Views: each element is reached where the shape and strides say. */
#include "tensor/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static float numbers[24] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                            12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};

/* The element at (i, j, k); k 0 for a matrix. */
static int at(proa_view v, int64_t i, int64_t j, int64_t k)
{
    return (int)proa_view_f32(v)[i * v.stride[0] + j * v.stride[1] + k * v.stride[2]];
}

static void test_dense(void **state)
{
    proa_view v = proa_view_3d(numbers, PROA_DTYPE_F32, 2, 3, 4);
    assert_int_equal(v.rank, 3);
    assert_int_equal(proa_view_count(v), 24);
    assert_int_equal(v.stride[0], 12);
    assert_int_equal(v.stride[2], 1);
    assert_int_equal(v.shape[3], 1);
    assert_int_equal(v.stride[3], 0);
    assert_int_equal(at(v, 1, 2, 3), 23);
    assert_true(proa_view_dense(v));
    assert_int_equal(proa_view_count(proa_view_1d(numbers, PROA_DTYPE_F32, 0)), 0);
    assert_int_equal(proa_view_count((proa_view){.data = NULL}), 0); /* no tensor */
    proa_view scalar = proa_view_of(numbers, PROA_DTYPE_F32, 0, NULL);
    assert_int_equal(proa_view_count(scalar), 1);
    assert_true(proa_view_dense(scalar));
    (void)state;
}

static void test_rows_and_columns(void **state)
{
    proa_view m = proa_view_2d(numbers, PROA_DTYPE_F32, 6, 4);
    proa_view rows = proa_view_rows(m, 2, 5);
    assert_int_equal(rows.shape[0], 3);
    assert_int_equal(at(rows, 0, 0, 0), 8);
    assert_true(proa_view_dense(rows));
    assert_int_equal(proa_view_count(proa_view_rows(m, 6, 6)), 0);
    proa_view columns = proa_view_cols(m, 1, 3);
    assert_int_equal(columns.shape[1], 2);
    assert_int_equal(columns.stride[0], 4);
    assert_int_equal(at(columns, 5, 1, 0), 22);
    assert_false(proa_view_dense(columns));
    assert_true(proa_view_dense(proa_view_cols(m, 0, 4)));
    assert_true(proa_view_dense(proa_view_cols(proa_view_rows(m, 3, 4), 1, 3))); /* one row: no gap */
    proa_view bytes = proa_view_rows(proa_view_2d(numbers, PROA_DTYPE_BF16, 6, 4), 1, 2);
    assert_ptr_equal(bytes.data, (char *)numbers + 8); /* by the element's size */
    (void)state;
}

static void test_heads_and_transpose(void **state)
{
    proa_view m = proa_view_2d(numbers, PROA_DTYPE_F32, 4, 6);
    proa_view heads = proa_view_heads(m, 3);
    assert_int_equal(heads.rank, 3);
    assert_int_equal(heads.shape[2], 2);
    assert_int_equal(at(heads, 3, 2, 1), 23);
    assert_int_equal(at(heads, 1, 2, 0), 10);
    assert_true(proa_view_dense(heads));
    proa_view part = proa_view_heads(proa_view_cols(m, 2, 6), 2); /* keeps the row stride */
    assert_int_equal(at(part, 1, 1, 1), 11);
    assert_false(proa_view_dense(part));
    proa_view t = proa_view_transpose(m);
    assert_int_equal(t.shape[0], 6);
    assert_int_equal(at(t, 5, 1, 0), 11);
    assert_false(proa_view_dense(t));
    proa_view back = proa_view_transpose(t);
    assert_true(proa_view_dense(back));
    assert_int_equal(at(back, 1, 5, 0), 11);
    (void)state;
}

static void test_text(void **state)
{
    char out[64];
    assert_string_equal(proa_shape_text(out, 0, NULL), "[]");
    assert_string_equal(proa_shape_text(out, 1, (const int64_t[]){0}), "[0]");
    assert_string_equal(proa_shape_text(out, 2, (const int64_t[]){200, 64}), "[200, 64]");
    const int64_t most[] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}; /* 84 characters: cut, not overrun */
    memset(out, 'x', sizeof out);
    proa_shape_text(out, 4, most);
    assert_memory_equal(out, "[9223372036854775807, 9223372036854775807, 92233720368547758", 58);
    assert_true(memchr(out, '\0', sizeof out) != NULL);
    assert_string_equal(proa_shape_text(out, 4, (const int64_t[]){1, 2, 3, 4}), "[1, 2, 3, 4]");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_rows_and_columns),
        cmocka_unit_test(test_heads_and_transpose),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
