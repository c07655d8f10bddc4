/* SPDX-License-Identifier: Apache-2.0
 * test_json_read.c - the reader of JSON: numbers of every form against strtod, strings with escapes, structure and
 * its errors by text and place, depth, and `data` of each datatype. */
#include "api/http/json_read.h"
#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static proa_arena arena;
static proa_err err;

static proa_jread reader(const char *text, bool strict)
{
    proa_jread j;
    proa_err_clear(&err);
    proa_jread_init(&j, proa_str_c(text), &arena, strict, 1 << 20);
    return j;
}

static proa_jnumber number(const char *text)
{
    proa_jnumber n;
    proa_jread j = reader(text, false);
    assert_int_equal(proa_jread_peek(&j), PROA_JREAD_NUMBER);
    assert_int_equal(proa_jread_number(&j, &n, &err), PROA_OK);
    assert_int_equal(proa_jread_finish(&j, &err), PROA_OK);
    return n;
}

static void test_integers(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } ints[] = {{"0", 0},
                {"-0", 0},
                {"7", 7},
                {" 12345678901 ", 12345678901},
                {"-9223372036854775808", INT64_MIN},
                {"9223372036854775807", INT64_MAX},
                {"-1", -1}};
    for (size_t i = 0; i < PROA_COUNT(ints); i++) {
        proa_jnumber n = number(ints[i].text);
        assert_int_equal(n.kind, PROA_JNUMBER_INT);
        assert_true(n.i == ints[i].value);
        assert_true(n.d == (double)ints[i].value);
    }
    static const char *const uints[] = {"9223372036854775808", "18446744073709551615", "10000000000000000000",
                                        "18446744073709551614"};
    for (size_t i = 0; i < PROA_COUNT(uints); i++) {
        proa_jnumber n = number(uints[i]);
        assert_int_equal(n.kind, PROA_JNUMBER_UINT);
        assert_true(n.u == strtoull(uints[i], NULL, 10));
    }
    static const char *const doubles[] = {
        "18446744073709551616",           "-9223372036854775809", "1.0", "1e3",
        "123456789012345678901234567890", "99999999999999999999"};
    for (size_t i = 0; i < PROA_COUNT(doubles); i++) {
        proa_jnumber n = number(doubles[i]);
        assert_int_equal(n.kind, PROA_JNUMBER_DOUBLE);
        assert_true(n.d == strtod(doubles[i], NULL));
    }
    (void)state;
}

/* Random doubles of every size with 1 to 21 digits, and the hard cases that lie near a half. */
static void test_doubles_equal_strtod(void **state)
{
    static const char *const hard[] = {"9007199254740993",
                                       "9007199254740993.0",
                                       "9007199254740992.9999999",
                                       "0.1",
                                       "2.2250738585072014e-308",
                                       "2.2250738585072011e-308",
                                       "4.9e-324",
                                       "1.7976931348623157e308",
                                       "1e-400",
                                       "0.000000000000000000001",
                                       "9223372036854775807.5",
                                       "1.00000000000000011102230246251565",
                                       "1.00000000000000011102230246251566",
                                       "8.5e-27",
                                       "1e22",
                                       "1e23",
                                       "5e-20",
                                       "123456789.0e-27",
                                       "0e999",
                                       "0.0000e-5"};
    for (size_t i = 0; i < PROA_COUNT(hard); i++) assert_true(number(hard[i]).d == strtod(hard[i], NULL));
    uint64_t x = 88172645463325252U;
    for (int i = 0; i < 200000; i++) {
        double d;
        char text[64];
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t bits = i % 2 ? (x & 0x800fffffffffffff) | ((x >> 8 & 127) + 960) << 52 : x;
        memcpy(&d, &bits, sizeof d);
        if (!isfinite(d)) continue;
        snprintf(text, sizeof text, "%.*g", (int)(x % 21) + 1, d);
        if (isinf(strtod(text, NULL))) continue;
        double read = number(text).d;
        assert_true(read == strtod(text, NULL));
    }
    assert_true(isnan(number("NaN").d));
    assert_true(number("Infinity").d > 1e308 && number("Inf").d > 1e308);
    assert_true(number("-Infinity").d < -1e308);
    (void)state;
}

/* Skips a whole document and wants that error at that place; "" wants none. */
static void syntax(const char *text, const char *what, int at)
{
    char want[256];
    proa_jread j = reader(text, false);
    proa_status status = proa_jread_skip(&j, &err);
    if (status == PROA_OK) status = proa_jread_finish(&j, &err);
    if (!what[0]) {
        if (status != PROA_OK) fail_msg("'%s': %s", text, err.text);
        return;
    }
    snprintf(want, sizeof want, "failed to parse the request JSON buffer: %s at %d", what, at);
    assert_int_equal(status, PROA_INVALID);
    assert_string_equal(err.text, want);
}

static void test_syntax(void **state)
{
    syntax("{\"a\":[1,2,{\"b\":null}],\"c\":true , \"d\":\"x\"} ", "", 0);
    syntax("[]", "", 0);
    syntax("{}", "", 0);
    syntax("[[],{},[{}]]", "", 0);
    syntax("3", "", 0);
    syntax("", "Invalid value.", 0);
    syntax("[", "Invalid value.", 1);
    syntax("[1", "Missing a comma or ] after an array element.", 2);
    syntax("[1,]", "Invalid value.", 3);
    syntax("[1 2]", "Missing a comma or ] after an array element.", 3);
    syntax("{", "Missing a name for object member.", 1);
    syntax("{\"a\"", "Missing a colon after a name of object member.", 4);
    syntax("{\"a\":1", "Missing a comma or } after an object member.", 6);
    syntax("{\"a\":1,}", "Missing a name for object member.", 7);
    syntax("{a:1}", "Missing a name for object member.", 1);
    syntax("[1}", "Missing a comma or ] after an array element.", 2);
    syntax("[1] 2", "The document root must not be followed by other values.", 4);
    syntax("tru", "Invalid value.", 0);
    syntax("nul", "Invalid value.", 0);
    syntax("01", "The document root must not be followed by other values.", 1);
    syntax("1.", "Miss fraction part in number.", 2);
    syntax("1e", "Miss exponent in number.", 2);
    syntax("1e+", "Miss exponent in number.", 3);
    syntax("-", "Invalid value.", 1);
    syntax("+1", "Invalid value.", 0);
    syntax(".5", "Invalid value.", 0);
    syntax("1e400", "Number too big to be stored in double.", 5);
    syntax("-NaN", "Invalid value.", 1);
    syntax("\"abc", "Missing a closing quotation mark in string.", 0);
    syntax("\"a\\", "Missing a closing quotation mark in string.", 0);
    syntax("\"a\tb\"", "Invalid encoding in string.", 2);
    syntax("\"\\x\"", "Invalid escape character in string.", 3);
    syntax("\"\\u12g4\"", "Incorrect hex digit after \\u escape in string.", 3);
    syntax("\"\\ud800\"", "The surrogate pair in string is invalid.", 7);
    syntax("\"\\ud800\\u0041\"", "The surrogate pair in string is invalid.", 9);
    syntax("\"\\udc00\"", "The surrogate pair in string is invalid.", 7);
    (void)state;
}

static void test_strict_is_500(void **state)
{
    proa_jread j = reader("[", true);
    assert_int_equal(proa_jread_skip(&j, &err), PROA_INTERNAL);
    (void)state;
}

static void test_strings(void **state)
{
    proa_str s;
    proa_jread j = reader("\"plain \xc3\xa4 \xff\"", false);
    assert_int_equal(proa_jread_string(&j, &s, &err), PROA_OK);
    assert_ptr_equal(s.ptr, j.begin + 1); /* a slice of the text: bytes that are not UTF-8 too */
    assert_int_equal(s.len, 10);
    j = reader("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e4\\u20AC\\ud83d\\ude00\\u0000x\"", false);
    assert_int_equal(proa_jread_string(&j, &s, &err), PROA_OK);
    static const char want[] = "\"\\/\b\f\n\r\tA\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\0x";
    assert_int_equal(s.len, sizeof want - 1);
    assert_memory_equal(s.ptr, want, s.len);
    assert_int_equal(proa_jread_finish(&j, &err), PROA_OK);
    j = reader("\"a\\u0000b\"", false);
    assert_int_equal(proa_jread_name(&j, "name", &s, &err), PROA_INVALID);
    (void)state;
}

static void nest(char *out, int depth)
{
    memset(out, '[', (size_t)depth);
    memset(out + depth, ']', (size_t)depth);
    out[2 * depth] = 0;
}

static void test_depth(void **state)
{
    char text[256];
    nest(text, 100);
    syntax(text, "", 0);
    nest(text, 101);
    proa_jread j = reader(text, false);
    assert_int_equal(proa_jread_skip(&j, &err), PROA_INVALID);
    assert_string_equal(err.text, "JSON nesting depth exceeds maximum allowed limit (100)");
    (void)state;
}

/* ---- data ---- */

static proa_tensor tensor(proa_type type, int64_t count)
{
    return (proa_tensor){.name = "X", .type = type, .rank = 1, .shape = {count}};
}

static void data_is(const char *text, proa_type type, int64_t count, const void *want, size_t bytes)
{
    proa_tensor t = tensor(type, count);
    proa_jread j = reader(text, false);
    proa_status status = proa_jread_data(&j, &t, &err);
    if (status != PROA_OK) fail_msg("%s as %s: %s", text, proa_type_name(type), err.text);
    assert_int_equal(t.bytes, bytes);
    if (bytes) assert_memory_equal(t.data, want, bytes);
    assert_int_equal(proa_jread_finish(&j, &err), PROA_OK);
    proa_tensor_release(&t);
}

static void data_fails(const char *text, proa_type type, int64_t count, bool strict, proa_status status,
                       const char *want)
{
    proa_tensor t = tensor(type, count);
    proa_jread j = reader(text, strict);
    assert_int_equal(proa_jread_data(&j, &t, &err), status);
    assert_string_equal(err.text, want);
    proa_tensor_release(&t);
}

#define DATA(text, type, ctype, ...)                                                                         \
    do {                                                                                                     \
        const ctype want[] = {__VA_ARGS__};                                                                  \
        data_is(text, PROA_TYPE_##type, (int64_t)PROA_COUNT(want), want, sizeof want);                       \
    } while (0)

static void test_data_of_each_type(void **state)
{
    DATA("[true,false,true]", BOOL, uint8_t, 1, 0, 1);
    DATA("[0,255,7]", UINT8, uint8_t, 0, 255, 7);
    DATA("[0,65535]", UINT16, uint16_t, 0, 65535);
    DATA("[4294967295]", UINT32, uint32_t, UINT32_MAX);
    DATA("[18446744073709551615,0]", UINT64, uint64_t, UINT64_MAX, 0);
    DATA("[-128,127]", INT8, int8_t, -128, 127);
    DATA("[-32768,32767]", INT16, int16_t, INT16_MIN, INT16_MAX);
    DATA("[-2147483648,2147483647]", INT32, int32_t, INT32_MIN, INT32_MAX);
    DATA("[-9223372036854775808,9223372036854775807]", INT64, int64_t, INT64_MIN, INT64_MAX);
    DATA("[1,-2.5,1e10,0.1,NaN,-Infinity]", FP32, float, 1, -2.5F, 1e10F, 0.1F, NAN, -INFINITY);
    DATA("[1,0.1,-1e300]", FP64, double, 1, 0.1, -1e300);
    DATA("[ [1, 2] , [3 ,4],[[5],[6]] ]", INT32, int32_t, 1, 2, 3, 4, 5, 6);
    DATA("[[],1,[[]],2]", INT32, int32_t, 1, 2);
    DATA("7", INT32, int32_t, 7);
    data_is("[\"ab\",[\"\",\"\\u0000\"]]", PROA_TYPE_BYTES, 3, "\2\0\0\0ab\0\0\0\0\1\0\0\0\0", 15);
    data_is("[]", PROA_TYPE_FP32, 0, NULL, 0);
    data_is("[]", PROA_TYPE_BYTES, 5, NULL, 0); /* counted later, against the configuration */
    (void)state;
}

static void test_data_errors(void **state)
{
    static const char many[] = "Unable to parse 'data': Shape does not match true shape of 'data' field";
    static const char few[] = "Failed to parse 'data' field: shape does not match true shape";
    data_fails("[1,2,3]", PROA_TYPE_INT32, 2, false, PROA_INTERNAL, many);
    data_fails("[1,2]", PROA_TYPE_INT32, 3, false, PROA_INTERNAL, few);
    data_fails("[]", PROA_TYPE_INT32, 1, false, PROA_INTERNAL, few);
    data_fails("[1,2]", PROA_TYPE_INT32, 100000, false, PROA_INTERNAL, few);
    data_fails("[1.5]", PROA_TYPE_INT32, 1, false, PROA_INVALID,
               "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer");
    data_fails("[1.5]", PROA_TYPE_INT32, 1, true, PROA_INTERNAL,
               "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer");
    data_fails("[-1]", PROA_TYPE_UINT8, 1, false, PROA_INVALID,
               "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer");
    data_fails("[1]", PROA_TYPE_BOOL, 1, false, PROA_INVALID,
               "Unable to parse 'data': attempt to access JSON non-boolean as boolean");
    data_fails("[\"1\"]", PROA_TYPE_FP32, 1, false, PROA_INVALID,
               "Unable to parse 'data': attempt to access JSON non-number as double");
    data_fails("[1]", PROA_TYPE_BYTES, 1, false, PROA_INVALID,
               "Unable to parse JSON bytes array: attempt to access JSON non-string as string");
    data_fails("[256]", PROA_TYPE_UINT8, 1, false, PROA_INVALID,
               "Unable to parse 'data': 256 is out of range of datatype UINT8");
    data_fails("[-129]", PROA_TYPE_INT8, 1, false, PROA_INVALID,
               "Unable to parse 'data': -129 is out of range of datatype INT8");
    data_fails("[9223372036854775808]", PROA_TYPE_INT32, 1, false, PROA_INVALID,
               "Unable to parse 'data': 9223372036854775808 is out of range of datatype INT32");
    data_fails(
        "[1]", PROA_TYPE_FP16, 1, false, PROA_INVALID,
        "receiving FP16 data via JSON is not supported. Please use the binary data format for input X");
    data_fails(
        "[1]", PROA_TYPE_BF16, 1, false, PROA_INVALID,
        "receiving BF16 data via JSON is not supported. Please use the binary data format for input X");
    data_fails("[1]", PROA_TYPE_INVALID, 1, false, PROA_INVALID, "invalid datatype for input X");
    data_fails("[1,2", PROA_TYPE_INT32, 2, false, PROA_INVALID,
               "failed to parse the request JSON buffer: Missing a comma or ] after an array element. at 4");
    data_fails("[1,x]", PROA_TYPE_INT32, 2, false, PROA_INVALID,
               "failed to parse the request JSON buffer: Invalid value. at 3");
    data_fails("[1]", PROA_TYPE_INT32, 1 << 20, false, PROA_INVALID,
               "JSON input 'X' has a byte_size (4194304 bytes) that exceeds the maximum allowed value of "
               "1048576 bytes. Use "
               "--http-max-input-size to increase the limit.");
    (void)state;
}

/* Triton keeps the lower bytes of an integer that does not fit. */
static void test_strict_truncates(void **state)
{
    proa_tensor t = tensor(PROA_TYPE_UINT8, 2);
    proa_jread j = reader("[256,511]", true);
    assert_int_equal(proa_jread_data(&j, &t, &err), PROA_OK);
    assert_memory_equal(t.data, "\x00\xff", 2);
    proa_tensor_release(&t);
    (void)state;
}

static void test_data_depth(void **state)
{
    char text[512];
    int32_t one = 1;
    for (int depth = 99; depth <= 100; depth++) {
        memset(text, '[', (size_t)depth);
        text[depth] = '1';
        memset(text + depth + 1, ']', (size_t)depth);
        text[2 * depth + 1] = 0;
        if (depth == 99) data_is(text, PROA_TYPE_INT32, 1, &one, 4);
        else
            data_fails(text, PROA_TYPE_INT32, 1, false, PROA_INVALID,
                       "Unable to parse 'data': JSON nesting depth exceeds maximum allowed limit (100)");
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_doubles_equal_strtod),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_strict_is_500),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_data_of_each_type),
        cmocka_unit_test(test_data_errors),
        cmocka_unit_test(test_strict_truncates),
        cmocka_unit_test(test_data_depth),
    };
    proa_arena_init(&arena);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    proa_arena_release(&arena);
    return failed;
}
