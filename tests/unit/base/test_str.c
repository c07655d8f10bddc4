/* SPDX-License-Identifier: Apache-2.0
 * test_str.c - slices, growing buffers, UTF-8 over its whole range, edit distance. */
#include "base/alloc.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void test_slices(void **state)
{
    proa_str s = proa_str_c("model.weight"), none = {NULL, 0};
    assert_int_equal(proa_str_c(NULL).len, 0);
    assert_true(proa_str_eq(proa_str_c(NULL), none));
    assert_true(proa_str_is(s, "model.weight"));
    assert_false(proa_str_is(s, "model.weigh"));
    assert_false(proa_str_eq((proa_str){"a\0b", 3}, (proa_str){"a\0c", 3}));
    assert_true(proa_str_starts(s, proa_str_c("model.")));
    assert_true(proa_str_starts(s, none) && proa_str_starts(none, none));
    assert_false(proa_str_starts(none, s));
    assert_true(proa_str_ends(s, proa_str_c(".weight")));
    assert_true(proa_str_ends(s, none));
    assert_false(proa_str_ends(proa_str_c("ght"), s));
    assert_true(proa_str_hash(s) == proa_str_hash(proa_str_c("model.weight")));
    assert_true(proa_str_hash(s) != proa_str_hash(proa_str_c("model.weighs")));
    assert_true(proa_str_hash(none) == proa_str_hash(proa_str_c("")));
    (void)state;
}

static void test_lines(void **state)
{
    (void)state;
    proa_str rest = proa_str_c("one\r\n\ntwo"), line;
    assert_true(proa_str_next_line(&rest, &line) && proa_str_is(line, "one\r"));
    assert_true(proa_str_next_line(&rest, &line) && line.len == 0);
    assert_true(proa_str_next_line(&rest, &line) && proa_str_is(line, "two"));
    assert_false(proa_str_next_line(&rest, &line));
    assert_int_equal(rest.len, 0);
}

static void test_buf(void **state)
{
    proa_buf buf;
    proa_buf_init(&buf, 10);
    assert_int_equal(proa_buf_view(&buf).len, 0);
    assert_non_null(proa_buf_view(&buf).ptr);
    assert_true(proa_buf_append(&buf, "01234", 5));
    assert_true(proa_buf_printf(&buf, "%d%c", 567, '8'));
    assert_true(proa_buf_char(&buf, '9')); /* just full */
    assert_string_equal(buf.ptr, "0123456789" + 0);
    assert_int_equal(buf.len, 10);
    assert_false(buf.full);
    assert_false(proa_buf_char(&buf, 'x'));
    assert_true(buf.full);
    assert_false(proa_buf_printf(&buf, "%s", "y"));
    assert_string_equal(buf.ptr, "0123456789");
    assert_true(proa_buf_append(&buf, NULL, 0));
    assert_false(proa_buf_reserve(&buf, SIZE_MAX));
    proa_buf_clear(&buf);
    assert_false(buf.full);
    assert_string_equal(buf.ptr, "");
    assert_true(proa_buf_str(&buf, (proa_str){"a\0b", 3}));
    assert_memory_equal(buf.ptr, "a\0b", 4);
    proa_buf_release(&buf);
    assert_null(buf.ptr);
    proa_buf_init(&buf, 0);
    assert_true(proa_buf_append(&buf, "", 0));
    assert_false(proa_buf_char(&buf, 'x'));
    proa_buf_release(&buf);
    (void)state;
}

static void test_buf_grows(void **state)
{
    proa_buf buf;
    proa_buf_init(&buf, 1 << 20);
    for (int i = 0; i < 100000; i++) assert_true(proa_buf_char(&buf, (char)('a' + i % 26)));
    for (int i = 0; i < 100000; i++) assert_int_equal(buf.ptr[i], 'a' + i % 26);
    assert_int_equal(buf.ptr[100000], 0);
    char *big = proa_malloc(100000);
    memset(big, 'z', 100000);
    assert_true(proa_buf_printf(&buf, "%.*s|", 99999, big)); /* longer than any inner buffer */
    assert_int_equal(buf.len, 200000);
    assert_int_equal(buf.ptr[199999], '|');
    free(big);
    proa_buf_release(&buf);
    (void)state;
}

static void json_is(proa_str s, const char *want)
{
    proa_buf buf;
    proa_buf_init(&buf, 1 << 10);
    assert_true(proa_buf_json_str(&buf, s));
    assert_string_equal(buf.ptr, want);
    proa_buf_release(&buf);
}

static void test_json_str(void **state)
{
    json_is(proa_str_c(""), "\"\"");
    json_is(proa_str_c("a\"b\\c/\n\r\t"), "\"a\\\"b\\\\c/\\n\\r\\t\"");
    json_is((proa_str){"\0\x01\x1f\x7f", 4}, "\"\\u0000\\u0001\\u001f\\u007f\"");
    json_is(proa_str_c("\xC3\xA9\xF0\x9F\x98\x80"), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
    json_is(proa_str_c("a\xFF\xC3"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
    proa_buf small;
    proa_buf_init(&small, 6);
    assert_false(proa_buf_json_str(&small, proa_str_c("\x01")));
    assert_true(small.full);
    proa_buf_release(&small);
    (void)state;
}

/* Each code point goes out and comes back, and no shorter slice of its bytes is taken for it. */
static void test_utf8_all(void **state)
{
    for (int32_t cp = 0; cp <= 0x10FFFF; cp++) {
        char bytes[4];
        int32_t back = -1;
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        int n = proa_utf8_encode(cp, bytes);
        if (n != (cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4))
            fail_msg("length of U+%04X", (unsigned)cp);
        if (proa_utf8_decode(bytes, (size_t)n, &back) != n || back != cp) fail_msg("U+%04X", (unsigned)cp);
        for (int cut = 1; cut < n; cut++)
            if (proa_utf8_decode(bytes, (size_t)cut, &back)) fail_msg("U+%04X cut to %d", (unsigned)cp, cut);
    }
    (void)state;
}

/* Of all sequences of two bytes, and of three from E0 on, exactly those of the Unicode standard's table 3-7. */
static void test_utf8_bytes(void **state)
{
    int two = 0, three = 0, four = 0;
    int32_t cp;
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            char s[4] = {(char)a, (char)b, (char)0x80, (char)0x80};
            two += proa_utf8_decode(s, 2, &cp) == 2;
            three += proa_utf8_decode(s, 3, &cp) == 3;
            four += proa_utf8_decode(s, 4, &cp) == 4;
        }
    assert_int_equal(two, (0xDF - 0xC2 + 1) * 64);
    assert_int_equal(three, 32 + 14 * 64 + 32); /* E0 A0..BF, twelve and two leads in full, ED 80..9F */
    assert_int_equal(four, 48 + 3 * 64 + 16);   /* F0 90..BF, F1..F3, F4 80..8F */
    static const char *const bad[] = {"\x80",
                                      "\xBF",
                                      "\xC0\xAF",
                                      "\xC1\xBF",
                                      "\xE0\x80\xAF",
                                      "\xE0\x9F\xBF",
                                      "\xED\xA0\x80",
                                      "\xED\xBF\xBF",
                                      "\xF0\x80\x80\x80",
                                      "\xF0\x8F\xBF\xBF",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\xFE",
                                      "\xFF",
                                      "\xE2\x28\xA1"};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) assert_false(proa_utf8_valid(proa_str_c(bad[i])));
    assert_true(proa_utf8_valid((proa_str){NULL, 0}));
    assert_true(proa_utf8_valid((proa_str){"a\0\xE2\x82\xAC", 5}));
    assert_false(proa_utf8_valid((proa_str){"a\0\xE2\x82\xAC", 4}));
    (void)state;
}

static void test_distance(void **state)
{
    assert_int_equal(proa_str_distance("", ""), 0);
    assert_int_equal(proa_str_distance("", "abc"), 3);
    assert_int_equal(proa_str_distance("abc", ""), 3);
    assert_int_equal(proa_str_distance("kitten", "sitting"), 3);
    assert_int_equal(proa_str_distance("sitting", "kitten"), 3);
    assert_int_equal(proa_str_distance("flaw", "lawn"), 2);
    char a[200], b[200]; /* beyond 64 characters nothing counts */
    memset(a, 'a', sizeof a), memset(b, 'a', sizeof b);
    a[199] = b[199] = '\0';
    b[100] = 'b';
    assert_int_equal(proa_str_distance(a, b), 0);
    b[63] = 'b';
    assert_int_equal(proa_str_distance(a, b), 1);
    (void)state;
}

/* The vectors of RFC 4648, and every digit. */
static void base64(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"},
                                           {"\xFF\xEF\xBE", "/+++"}};
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(pairs); i++) {
        proa_buf buf;
        proa_buf_init(&buf, 100);
        assert_true(proa_buf_base64(&buf, proa_str_c(pairs[i][0])));
        assert_true(proa_str_is(proa_buf_view(&buf), pairs[i][1]));
        proa_buf_release(&buf);
    }
    proa_buf small;
    proa_buf_init(&small, 7);
    assert_false(proa_buf_base64(&small, proa_str_c("foobar")));
    proa_buf_release(&small);
    int found = 0;
    for (int c = 0; c < 256; c++) {
        int digit = proa_base64_digit((char)c);
        if (digit >= 0) assert_int_equal(digits[digit], c);
        found += digit >= 0;
    }
    assert_int_equal(found, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64),        cmocka_unit_test(test_slices),     cmocka_unit_test(test_lines),
        cmocka_unit_test(test_buf),      cmocka_unit_test(test_buf_grows),  cmocka_unit_test(test_json_str),
        cmocka_unit_test(test_utf8_all), cmocka_unit_test(test_utf8_bytes), cmocka_unit_test(test_distance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
