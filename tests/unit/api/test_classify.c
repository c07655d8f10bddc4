/* SPDX-License-Identifier: Apache-2.0
 * test_classify.c - classes of an output: order, ties, NaN, labels, batches, each datatype's form, and what is
 * refused. */
#include "api/frontend.h"
#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static proa_err err;
/* A model whose output O has two labels. */
const char *proa_served_model_label(const proa_served_model *model, const char *output, int64_t index)
{
    static const char *const labels[] = {"cat", "dog"};
    (void)model;
    return strcmp(output, "O") == 0 && index < 2 ? labels[index] : NULL;
}

static proa_tensor tensor(const char *name, proa_type type, const void *data, size_t bytes, int64_t rows,
                          int64_t n)
{
    return (proa_tensor){.name = name, .type = type, .rank = 2, .shape = {rows, n}, .data = data, .bytes = bytes};
}

/* The strings of the classes, joined by blanks. */
static const char *classes(const proa_tensor *t, int64_t k, bool batched, proa_tensor *out)
{
    static char text[1024];
    size_t at = 0, n = 0;
    proa_str s;
    proa_err_clear(&err);
    if (proa_classify(out, t, NULL, k, batched, &err) != PROA_OK) return err.text;
    assert_int_equal(out->type, PROA_TYPE_BYTES);
    text[0] = 0;
    while (proa_tensor_next_string(out, &at, &s))
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%.*s", n ? " " : "", (int)s.len, s.ptr);
    assert_int_equal(at, out->bytes);
    proa_tensor_release(out);
    return text;
}

static void test_order_and_labels(void **state)
{
    static const float v[] = {0.1F, 0.5F, NAN, 0.5F, -3, INFINITY};
    proa_tensor out, t = tensor("O", PROA_TYPE_FP32, v, sizeof v, 1, 6);
    assert_string_equal(classes(&t, 3, true, &out), "inf:5 0.500000:1:dog 0.500000:3");
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.shape[0], 1);
    assert_int_equal(out.shape[1], 3);
    assert_string_equal(classes(&t, 100, false, &out),
                        "inf:5 0.500000:1:dog 0.500000:3 0.100000:0:cat -3.000000:4 nan:2");
    assert_int_equal(out.rank, 1);
    assert_int_equal(out.shape[0], 6);
    t.name = "other";
    assert_string_equal(classes(&t, 1, true, &out), "inf:5");
    (void)state;
}

static void test_batches(void **state)
{
    static const int32_t v[] = {1, 3, 2, 9, 8, 7};
    proa_tensor out, t = tensor("P", PROA_TYPE_INT32, v, sizeof v, 2, 3);
    assert_string_equal(classes(&t, 2, true, &out), "3:1 2:2 9:0 8:1");
    assert_int_equal(out.shape[0], 2);
    assert_int_equal(out.shape[1], 2);
    assert_string_equal(classes(&t, 2, false, &out), "9:3 8:4");
    (void)state;
}

static void test_each_type(void **state)
{
    proa_tensor out, t;
#define CASE(type_, ctype, want, ...)                                                                        \
    do {                                                                                                     \
        static const ctype v[] = {__VA_ARGS__};                                                              \
        t = tensor("P", PROA_TYPE_##type_, v, sizeof v, 1, (int64_t)PROA_COUNT(v));                          \
        assert_string_equal(classes(&t, 9, true, &out), want);                                               \
    } while (0)
    CASE(UINT8, uint8_t, "200:1 5:0", 5, 200);
    CASE(UINT16, uint16_t, "60000:1 5:0", 5, 60000);
    CASE(UINT32, uint32_t, "4000000000:1 5:0", 5, 4000000000);
    CASE(UINT64, uint64_t, "18446744073709551615:1 5:0", 5, UINT64_MAX);
    CASE(INT8, int8_t, "5:0 -7:1", 5, -7);
    CASE(INT16, int16_t, "5:0 -7:1", 5, -7);
    CASE(INT32, int32_t, "5:0 -7:1", 5, -7);
    CASE(INT64, int64_t, "5:1 -9223372036854775808:0", INT64_MIN, 5);
    CASE(FP64, double, "2.500000:1 -1.000000:0", -1, 2.5);
    (void)state;
}

static void test_refusals(void **state)
{
    static const proa_type types[] = {PROA_TYPE_BOOL, PROA_TYPE_BYTES, PROA_TYPE_FP16, PROA_TYPE_BF16};
    proa_tensor out, t;
    for (size_t i = 0; i < PROA_COUNT(types); i++) {
        char want[128];
        t = tensor("P", types[i], "\0\0\0", 2, 1, 1);
        snprintf(want, sizeof want, "class result not available for output due to unsupported type '%s'",
                 proa_type_name(types[i]));
        assert_string_equal(classes(&t, 1, true, &out), want);
    }
    t = tensor("P", PROA_TYPE_UINT8, "", PROA_CLASSES_MAX + 1, 1, PROA_CLASSES_MAX + 1);
    assert_string_equal(classes(&t, 1, true, &out), "classification output tensor too large");
    t = tensor("P", PROA_TYPE_FP32, "\0\0\0\0", 4, 1, 2);
    assert_string_equal(classes(&t, 1, true, &out), "output 'P' has 4 bytes, which its shape does not");
    t = tensor("P", PROA_TYPE_FP32, "", 0, 0, 5);
    assert_string_equal(classes(&t, 1, true, &out), "");
    (void)state;
}

/* Random values against a full sort. */
static void test_equals_a_sort(void **state)
{
    static float v[5000];
    proa_tensor out, t = tensor("P", PROA_TYPE_FP32, v, sizeof v, 1, 5000);
    uint32_t x = 1;
    for (int i = 0; i < 5000; i++) v[i] = (float)((x = x * 1664525 + 1013904223) >> 20); /* many ties */
    for (int64_t k = 1; k <= 5000; k = 3 * k + 1) {
        size_t at = 0;
        proa_str s;
        float last = INFINITY;
        long last_index = -1;
        assert_int_equal(proa_classify(&out, &t, NULL, k, true, &err), PROA_OK);
        int64_t count = 0;
        for (; proa_tensor_next_string(&out, &at, &s); count++) {
            char text[64];
            snprintf(text, sizeof text, "%.*s", (int)s.len, s.ptr);
            char *colon;
            float value = strtof(text, &colon);
            long index = strtol(colon + 1, NULL, 10);
            assert_true(v[index] == value);
            assert_true(value < last || (value == last && index > last_index));
            last = value, last_index = index;
        }
        assert_int_equal(count, k);
        int64_t better = 0;
        for (int i = 0; i < 5000; i++) better += v[i] > last || (v[i] == last && i < last_index);
        assert_int_equal(better, k - 1);
        proa_tensor_release(&out);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_labels), cmocka_unit_test(test_batches),
        cmocka_unit_test(test_each_type),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_equals_a_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
