/* SPDX-License-Identifier: Apache-2.0
 * test_checked.c - checked sums and products at their limits; statuses and errors. */
#include "base/checked.h"
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static void test_mul_add(void **state)
{
    int64_t out = 0;
    assert_true(proa_mul(0, INT64_MAX, &out) && out == 0);
    assert_true(proa_mul(INT64_MAX, 1, &out) && out == INT64_MAX);
    assert_true(proa_mul(3037000499, 3037000499, &out) && out == 9223372030926249001);
    assert_false(proa_mul(3037000500, 3037000500, &out));
    assert_false(proa_mul(INT64_MAX, 2, &out));
    assert_false(proa_mul(-1, 1, &out));
    assert_false(proa_mul(1, -1, &out));
    assert_false(proa_mul(-1, -1, &out));
    assert_true(proa_add(INT64_MAX, 0, &out) && out == INT64_MAX);
    assert_true(proa_add(INT64_MAX - 5, 5, &out) && out == INT64_MAX);
    assert_false(proa_add(INT64_MAX, 1, &out));
    assert_false(proa_add(-1, 5, &out));
    assert_false(proa_add(5, -1, &out));
    out = 6; /* in place */
    assert_true(proa_mul(out, 7, &out) && out == 42);
    (void)state;
}

static void test_rounding(void **state)
{
    for (int64_t step = 1; step < 20; step++)
        for (int64_t n = 0; n < 100; n++) {
            int64_t up = proa_round_up(n, step);
            assert_true(up >= n && up < n + step && up % step == 0);
            assert_int_equal(proa_ceil_div(n, step), up / step);
        }
    assert_int_equal(proa_min64(-1, 1), -1);
    assert_int_equal(proa_max64(-1, 1), 1);
    (void)state;
}

static proa_status fails(proa_err *err)
{
    return PROA_FAIL(err, LIMIT, "%d things, at most %d", 7, 3);
}

static proa_status passes_on(proa_err *err)
{
    PROA_TRY(fails(err));
    return PROA_OK;
}

static void test_errors(void **state)
{
    proa_err err = {.status = PROA_OK};
    assert_int_equal(passes_on(&err), PROA_LIMIT);
    assert_int_equal(err.status, PROA_LIMIT);
    assert_string_equal(err.text, "7 things, at most 3");
    assert_true(err.line > 0 && strstr(err.file, "test_checked.c"));
    assert_int_equal(PROA_FAIL(&err, IO, "later"), PROA_IO); /* the first message stays */
    assert_string_equal(err.text, "7 things, at most 3");
    proa_err_prefix(&err, "file '%s'", "a\nb");
    assert_string_equal(err.text, "file 'a?b': 7 things, at most 3"); /* still one line */
    proa_err_clear(&err);
    proa_err_prefix(&err, "nothing");
    assert_string_equal(err.text, "");
    assert_int_equal(passes_on(NULL), PROA_LIMIT);
    proa_err_prefix(NULL, "nothing");
    proa_err_clear(NULL);
    (void)state;
}

static void test_long_errors(void **state)
{
    char big[2000];
    proa_err err = {.status = PROA_OK};
    memset(big, 'x', sizeof big);
    big[0] = '\x1b';
    big[1999] = '\0';
    assert_int_equal(PROA_FAIL(&err, INVALID, "%s", big), PROA_INVALID);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(err.text[0], '?');
    proa_err_prefix(&err, "short");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text, "short: ?xxx", 11);
    proa_err_prefix(&err, "%s", big);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(err.text[0], '?');
    (void)state;
}

static void test_statuses(void **state)
{
    assert_int_equal(PROA_OK, 0);
    for (int i = 0; i < PROA_STATUS_COUNT; i++) {
        assert_true(strlen(proa_status_text((proa_status)i)) > 1);
        assert_in_range(proa_status_grpc((proa_status)i), 0, 16);
        assert_in_range(proa_status_http((proa_status)i), 200, 599);
        assert_int_equal(proa_status_grpc((proa_status)i) == 0, i == PROA_OK);
    }
    assert_string_equal(proa_status_text((proa_status)99), "unknown status");
    assert_int_equal(proa_status_grpc((proa_status)99), 2);
    assert_int_equal(proa_status_http((proa_status)-1), 500);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mul_add),     cmocka_unit_test(test_rounding), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_long_errors), cmocka_unit_test(test_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
