/* SPDX-License-Identifier: Apache-2.0
 * test_json.c - JSON: strictness, limits, and the errors of the getters. */
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static proa_json *parsed(const char *text)
{
    proa_json *root = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_json_parse(&root, proa_str_c(text), "t", &err) != PROA_OK) fail_msg("%s: %s", text, err.text);
    return root;
}

static void refused(proa_str text, proa_status want, const char *message)
{
    /* of exactly that many bytes, without a NUL behind them */
    char *copy = proa_malloc(text.len);
    if (text.len) memcpy(copy, text.ptr, text.len);
    proa_json *root = (proa_json *)1;
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_json_parse(&root, (proa_str){copy, text.len}, "t", &err);
    free(copy);
    if (status != want || !strstr(err.text, message))
        print_error("%.*s\n  gave: %d %s\n", (int)(text.len < 80 ? text.len : 80), text.ptr, (int)status,
                    err.text);
    assert_int_equal(status, want);
    assert_non_null(strstr(err.text, message));
    assert_null(root);
}

static void test_accepts(void **state)
{
    static const char *const good[] = {
        "[]",
        "{}",
        " [ ] ",
        "\t\r\n{\n}\n",
        "[[]]",
        "[1]",
        "0",
        "-0",
        "12",
        "12 ",
        "1.5e-3",
        "[1E+2]",
        "[0e1]",
        "true",
        "[false]",
        "null",
        "\"\"",
        "\"a\"",
        "[\"\\u00e9\\uD83D\\uDE00\\/\\b\\f\\n\\r\\t\\\\\\\"\"]",
        "\"\x7f\"",
        "{\"\":0}",
        "{\"a\":{\"b\":[{}]}}",
        "[null,1,\"x\",true,{},[]]",
        "\"\xF4\x8F\xBF\xBF\"",
        "[-1.0]",
        "\"NaN [Infinity], :\"",
        "123456789012345678901234567890",
        "[1e400]",
    };
    for (size_t i = 0; i < PROA_COUNT(good); i++) proa_json_free(parsed(good[i]));
    (void)state;
}

/* Close to JSON, and not it. */
static const char *const bad[] = {
    " ",
    "[",
    "]",
    "{",
    "}",
    "[1,]",
    "[,1]",
    "[,]",
    "[1,,2]",
    "[1 2]",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{1:2}",
    "{a:1}",
    "{'a':1}",
    "['a']",
    "{\"a\":1 \"b\":2}",
    "{\"a\" 1}",
    "[1]]",
    "[] []",
    "{}x",
    "1 2",
    "01",
    "-01",
    "[012]",
    "[-]",
    "-",
    "[+1]",
    "[1.]",
    "[.5]",
    "[-.5]",
    "[1e]",
    "[1e+]",
    "[1.e5]",
    "[0x1]",
    "[1-2]",
    "[1.2.3]",
    "[1e5e5]",
    "[2e3.4]",
    "[1_000]",
    "[1a]",
    "TRUE",
    "True",
    "[nul]",
    "[nulll]",
    "[tru]",
    "[truefalse]",
    "NULL",
    "NaN",
    "[NaN]",
    "-Infinity",
    "Infinity",
    "inf",
    "[nan]",
    "\"",
    "\"a",
    "[\"a]",
    "\"\\\"",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12G4\"",
    "\"\\\n\"",
    "\"a\nb\"",
    "[\"\t\"]",
    "\"\x1f\"",
    "\"\\a\"",
    "[1]// x",
    "/* x */ []",
    "[1 /* x */]",
    "# x\n[]",
    "\xEF\xBB\xBF[]",
    "\"\xff\"",
    "\"\xC0\x80\"",
    "\"\xED\xA0\x80\"",
    "\"\xF4\x90\x80\x80\"",
    "\"\xC3\"",
    "\"\xE2\x82\"",
    "[\xC3\xA9]",
    "\xC3",
    "{\"a\":1}}",
    "{\"a\"::1}",
    "{\"a\":1:2}",
    "[1:2]",
    "[}",
    "{]",
    "\f[]",
    "\v1",
    "[1\f]",
    "\xC2\xA0[]",
    "*",
    "[*]",
    "[1.5.5]",
    "[1.-5]",
    "[--1]",
    "-a",
};

static void test_refuses(void **state)
{
    for (size_t i = 0; i < PROA_COUNT(bad); i++) refused(proa_str_c(bad[i]), PROA_CORRUPT, "t: not JSON");
    refused((proa_str){"[1]\0", 4}, PROA_CORRUPT, "t: not JSON at byte 3: a NUL byte");
    refused((proa_str){"\"\0\"", 3}, PROA_CORRUPT, "a NUL byte");
    refused((proa_str){"", 0}, PROA_CORRUPT, "t: not JSON: it is empty");
    refused((proa_str){NULL, 0}, PROA_CORRUPT, "it is empty");
    (void)state;
}

static void test_where(void **state)
{
    refused(proa_str_c("{\"a\": [1, 2"), PROA_CORRUPT, "t: not JSON at byte 11: cut short");
    refused(proa_str_c("[1, x]"), PROA_CORRUPT, "t: not JSON at byte 4: ");
    refused(proa_str_c("[1, NaN]"), PROA_CORRUPT, "t: not JSON at byte 4: NaN and Infinity are not numbers");
    refused(proa_str_c("[\"a\nb\"]"), PROA_CORRUPT, "t: not JSON at byte 3: a control character in a string");
    (void)state;
}

/* open repeated n times, then middle, then close repeated n times */
static proa_str nest(char *out, const char *open, const char *middle, const char *close, int n)
{
    proa_buf buf;
    proa_buf_init(&buf, 1 << 12);
    for (int i = 0; i < n; i++) proa_buf_str(&buf, proa_str_c(open));
    proa_buf_str(&buf, proa_str_c(middle));
    for (int i = 0; i < n; i++) proa_buf_str(&buf, proa_str_c(close));
    memcpy(out, buf.ptr, buf.len + 1);
    size_t len = buf.len;
    proa_buf_release(&buf);
    return (proa_str){out, len};
}

static void test_depth(void **state)
{
    char text[1 << 12];
    /* json-c counts the innermost value as a level of its own */
    nest(text, "[", "", "]", PROA_JSON_DEPTH_MAX - 1);
    proa_json_free(parsed(text));
    refused(nest(text, "[", "1", "]", PROA_JSON_DEPTH_MAX + 1), PROA_LIMIT, "t: nested deeper than 64");
    refused(nest(text, "{\"a\":", "1", "}", PROA_JSON_DEPTH_MAX + 1), PROA_LIMIT, "t: nested deeper than 64");
    (void)state;
}

static void repeat_refused(const char *unit, int64_t n, const char *message)
{
    proa_buf buf;
    proa_buf_init(&buf, 256 << 20);
    proa_buf_char(&buf, '[');
    for (int64_t i = 0; i < n; i++) proa_buf_str(&buf, proa_str_c(unit));
    proa_buf_str(&buf, proa_str_c("0]"));
    assert_false(buf.full);
    refused(proa_buf_view(&buf), PROA_LIMIT, message);
    proa_buf_release(&buf);
}

/* Few bytes must not become a tree of gigabytes. */
static void test_nodes(void **state)
{
    uint64_t before = (uint64_t)proa_memory_peak();
    repeat_refused("0,", PROA_JSON_NODES_MAX, "at most 8388608 values are read");
    repeat_refused("[[[[]]]],", PROA_JSON_NODES_MAX / 32, "at most 8388608 values are read");
    repeat_refused("{},", PROA_JSON_NODES_MAX / 8, "at most 8388608 values are read");
    /* the text itself, in two copies and a doubling buffer; the trees would be 370 to 820 MB */
#ifndef __SANITIZE_THREAD__ /* which keeps four bytes for each */
    assert_true((uint64_t)proa_memory_peak() - before < (uint64_t)(160 * PROA_MIB));
#endif
    (void)before;
    (void)state;
}

static void test_values(void **state)
{
    proa_json *j = parsed("{\"i\":-9223372036854775808,\"d\":2.5,\"s\":\"a\\u0000b\",\"t\":true,\"n\":null,"
                          "\"a\":[1,2.0,\"x\"],\"big\":18446744073709551615,\"huge\":123456789012345678901}");
    assert_int_equal(proa_json_kind(j), PROA_JSON_OBJECT);
    assert_int_equal(proa_json_len(j), 8);
    assert_true(proa_json_int(proa_json_get(j, "i")) == INT64_MIN);
    assert_true(proa_json_int(proa_json_get(j, "big")) == INT64_MAX);
    assert_true(proa_json_int(proa_json_get(j, "huge")) == INT64_MAX);
    assert_true(proa_json_double(proa_json_get(j, "d")) == 2.5);
    assert_true(proa_json_double(proa_json_get(j, "i")) == -0x1p63);
    assert_true(proa_json_bool(proa_json_get(j, "t")));
    assert_true(proa_str_eq(proa_json_str(proa_json_get(j, "s")), (proa_str){"a\0b", 3}));
    assert_null(proa_json_get(j, "n"));
    assert_null(proa_json_get(j, "none"));
    assert_null(proa_json_get(proa_json_get(j, "a"), "x"));
    assert_null(proa_json_get(NULL, "x"));
    proa_json *a = proa_json_get(j, "a");
    assert_int_equal(proa_json_len(a), 3);
    assert_int_equal(proa_json_int(proa_json_at(a, 0)), 1);
    assert_int_equal(proa_json_kind(proa_json_at(a, 1)), PROA_JSON_DOUBLE);
    assert_null(proa_json_at(a, 3));
    assert_null(proa_json_at(a, -1));
    assert_null(proa_json_at(j, 0));
    /* of another kind: nothing, not a conversion */
    assert_int_equal(proa_json_int(proa_json_get(j, "d")), 0);
    assert_int_equal(proa_json_int(proa_json_at(a, 2)), 0);
    assert_true(proa_json_double(proa_json_get(j, "s")) == 0);
    assert_false(proa_json_bool(proa_json_at(a, 0)));
    assert_int_equal(proa_json_str(a).len, 0);
    assert_int_equal(proa_json_len(proa_json_get(j, "s")), 0);
    proa_json_free(j);
    proa_json_free(NULL);
    (void)state;
}

static void test_order_and_twice(void **state)
{
    proa_json *j = parsed("{\"z\":1,\"a\":2,\"m\":3,\"z\":4}");
    static const char *const keys[] = {"z", "a", "m"};
    static const int64_t values[] = {4, 2, 3}; /* of two the last stays */
    int n = 0;
    for (proa_json_iter it = proa_json_begin(j); proa_json_next(&it); n++) {
        assert_true(n < 3 && proa_str_is(it.key, keys[n]));
        assert_int_equal(proa_json_int(it.value), values[n]);
    }
    assert_int_equal(n, 3);
    proa_json_iter none = proa_json_begin(proa_json_get(j, "z"));
    assert_false(proa_json_next(&none));
    proa_json_free(j);
    (void)state;
}

static void test_surrogates(void **state)
{
    proa_json *j = parsed("[\"\\uD83D\\uDE00\",\"\\uD800\",\"\\uDC00x\",\"\\uD800\\uD83D\\uDE00\"]");
    assert_true(proa_str_is(proa_json_str(proa_json_at(j, 0)), "\xF0\x9F\x98\x80"));
    for (int i = 0; i < 4; i++) assert_true(proa_utf8_valid(proa_json_str(proa_json_at(j, i))));
    proa_json_free(j);
    (void)state;
}

static void test_get_int(void **state)
{
    proa_json *j = parsed("{\"n\":7,\"f\":1e6,\"h\":1.5,\"s\":\"7\",\"x\":null,\"e\":1e300,\"b\":true}");
    int64_t v = 42;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_json_get_int(&v, j, "none", 0, 9, &err), PROA_OK);
    assert_int_equal(proa_json_get_int(&v, j, "x", 0, 9, &err), PROA_OK);
    assert_int_equal(v, 42);
    assert_int_equal(proa_json_get_int(&v, j, "n", 0, 9, &err), PROA_OK);
    assert_int_equal(v, 7);
    assert_int_equal(proa_json_get_int(&v, j, "f", 0, 1000000, &err), PROA_OK);
    assert_int_equal(v, 1000000);
    assert_int_equal(proa_json_get_int(&v, j, "n", 8, 9, &err), PROA_INVALID);
    assert_string_equal(err.text, "'n' is 7, must be 8 to 9");
    proa_err_clear(&err);
    assert_int_equal(proa_json_get_int(&v, j, "s", 0, 9, &err), PROA_INVALID);
    assert_string_equal(err.text, "'s' must be an integer, not a string");
    assert_int_equal(proa_json_get_int(&v, j, "h", 0, 9, NULL), PROA_INVALID);
    assert_int_equal(proa_json_get_int(&v, j, "e", INT64_MIN, INT64_MAX, NULL), PROA_INVALID);
    assert_int_equal(proa_json_get_int(&v, j, "b", 0, 9, NULL), PROA_INVALID);
    assert_int_equal(v, 1000000);
    proa_json_free(j);
    (void)state;
}

static void test_get_others(void **state)
{
    proa_json *j = parsed("{\"d\":0.5,\"i\":3,\"inf\":1e999,\"t\":true,\"s\":\"x\",\"a\":[]}");
    double d = 9;
    bool b = false;
    proa_str s = proa_str_c("default");
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_json_get_double(&d, j, "d", 0, 1, &err), PROA_OK);
    assert_true(d == 0.5);
    assert_int_equal(proa_json_get_double(&d, j, "i", 0, 5, &err), PROA_OK);
    assert_true(d == 3);
    assert_int_equal(proa_json_get_double(&d, j, "i", 0, 1, &err), PROA_INVALID);
    assert_string_equal(err.text, "'i' is 3, must be 0 to 1");
    proa_err_clear(&err);
    assert_int_equal(proa_json_get_double(&d, j, "inf", -1e308, 1e308, NULL), PROA_INVALID);
    assert_int_equal(proa_json_get_double(&d, j, "s", 0, 1, &err), PROA_INVALID);
    assert_string_equal(err.text, "'s' must be a number, not a string");
    proa_err_clear(&err);
    assert_int_equal(proa_json_get_bool(&b, j, "t", &err), PROA_OK);
    assert_true(b);
    assert_int_equal(proa_json_get_bool(&b, j, "i", &err), PROA_INVALID);
    assert_string_equal(err.text, "'i' must be true or false, not an integer");
    proa_err_clear(&err);
    assert_int_equal(proa_json_get_str(&s, j, "none", &err), PROA_OK);
    assert_true(proa_str_is(s, "default"));
    assert_int_equal(proa_json_get_str(&s, j, "s", &err), PROA_OK);
    assert_true(proa_str_is(s, "x"));
    assert_int_equal(proa_json_get_str(&s, j, "a", &err), PROA_INVALID);
    assert_string_equal(err.text, "'a' must be a string, not an array");
    proa_json_free(j);
    (void)state;
}

static void test_python(void **state)
{
    static const char text[] =
        "{\"limit\": [0.0, Infinity, -Infinity], \"scale\": NaN, \"text\": \"NaN Infinity\", "
        "\"large\": 1e999, \"in\": [{\"deep\": Infinity, \"b\": 2}]}";
    static const char *const wrong[] = {"[Infinit]", "[-inf]", "[+Infinity]", "[NaN1]", "[InfinityNaN]"};
    proa_json *j = NULL;
    double large = 0;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_json_parse_python(&j, proa_str_c(text), "j", NULL), PROA_OK);
    proa_json *limit = proa_json_get(j, "limit");
    assert_int_equal(proa_json_len(limit), 3);
    assert_int_equal(proa_json_kind(proa_json_at(limit, 0)), PROA_JSON_DOUBLE);
    assert_null(proa_json_at(limit, 1));
    assert_null(proa_json_at(limit, 2));
    assert_null(proa_json_get(j, "scale"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(j, "text")), "NaN Infinity"));
    assert_int_equal(proa_json_get_double(&large, j, "large", 0, 1e9, &err), PROA_INVALID);
    proa_json *deep = proa_json_at(proa_json_get(j, "in"), 0);
    assert_null(proa_json_get(deep, "deep"));
    assert_int_equal(proa_json_int(proa_json_get(deep, "b")), 2);
    proa_json_free(j);
    assert_int_equal(proa_json_parse_python(&j, proa_str_c("-Infinity"), "j", NULL), PROA_OK);
    assert_null(j);
    for (size_t i = 0; i < PROA_COUNT(wrong); i++)
        assert_int_equal(proa_json_parse_python(&j, proa_str_c(wrong[i]), "j", &err), PROA_CORRUPT);
    (void)state;
}

static void test_keep(void **state)
{
    static const char *const names[] = {"a", "c", "d"};
    proa_json *j = NULL;
    assert_int_equal(
        proa_json_parse(&j, proa_str_c("{\"a\":[1,{}],\"b\":2,\"c\":null,\"d\":\"x\"}"), "j", NULL), PROA_OK);
    size_t all = proa_json_bytes(j);
    proa_json_keep(j, names, 3);
    assert_int_equal(proa_json_len(j), 2);
    assert_non_null(proa_json_get(j, "a"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(j, "d")), "x"));
    assert_true(proa_json_bytes(j) < all && proa_json_bytes(j) > 2 * 800);
    proa_json_keep(proa_json_get(j, "a"), names, 3); /* no object */
    assert_int_equal(proa_json_len(proa_json_get(j, "a")), 2);
    assert_int_equal(proa_json_bytes(NULL), 0);
    proa_json_free(j);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),         cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_where),           cmocka_unit_test(test_depth),
        cmocka_unit_test(test_nodes),           cmocka_unit_test(test_values),
        cmocka_unit_test(test_order_and_twice), cmocka_unit_test(test_surrogates),
        cmocka_unit_test(test_get_int),         cmocka_unit_test(test_get_others),
        cmocka_unit_test(test_python),          cmocka_unit_test(test_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
