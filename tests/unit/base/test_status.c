/* SPDX-License-Identifier: Apache-2.0
 * test_status.c - errors: one line for logs, the whole text for replies; long texts that are kept, cut
 * and dropped. */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/long_text.h"
#include "base/status.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static proa_err fail_with(const char *text)
{
    proa_err err = {0};
    assert_int_equal(PROA_FAIL(&err, INTERNAL, "%s", text), PROA_INTERNAL);
    return err;
}

static void assert_whole(const proa_err *err, const char *text)
{
    char *whole = proa_err_whole_text(err);
    assert_string_equal(whole, text);
    free(whole);
}

/* len bytes of a two-byte character, after an 'x' if len is odd. */
static char *long_text(size_t len)
{
    char *text = proa_malloc(len + 1);
    for (size_t i = 0; i < len; i++) text[i] = (len - i) % 2 ? '\xbc' : '\xc3';
    if (len % 2) text[0] = 'x';
    text[len] = '\0';
    return text;
}

static void test_one_line(void **state)
{
    (void)state;
    proa_err err = fail_with("first\nsecond \x01\x7f t\xc3\xbcr");
    assert_string_equal(err.text, "first?second ?? t\xc3\xbcr");
    assert_whole(&err, "first\nsecond \x01\x7f t\xc3\xbcr");
    err = fail_with("traceback\n\n");
    assert_string_equal(err.text, "traceback");
    assert_whole(&err, "traceback\n\n");
    err = fail_with("plain");
    assert_int_equal(err.whole, 0);
    assert_whole(&err, "plain");
}

static void test_lengths(void **state)
{
    (void)state;
    const size_t lengths[] = {sizeof((proa_err *)0)->text - 2,
                              sizeof((proa_err *)0)->text - 1,
                              sizeof((proa_err *)0)->text,
                              sizeof((proa_err *)0)->text + 1,
                              10000,
                              PROA_ERR_TEXT_MAX - 1,
                              PROA_ERR_TEXT_MAX};
    for (size_t i = 0; i < PROA_COUNT(lengths); i++) {
        char *text = long_text(lengths[i]);
        proa_err err = fail_with(text), copy = err;
        assert_true(strlen(err.text) + 2 >= sizeof err.text || strcmp(err.text, text) == 0);
        assert_true(proa_utf8_valid(proa_str_c(err.text)));
        assert_whole(&copy, text);
        free(text);
    }
}

static void test_longest(void **state)
{
    (void)state;
    char *text = long_text(PROA_ERR_TEXT_MAX + 1);
    proa_err err = fail_with(text);
    char *whole = proa_err_whole_text(&err);
    assert_int_equal(strlen(whole), PROA_ERR_TEXT_MAX - 1); /* the last character has no room */
    assert_memory_equal(whole, text, PROA_ERR_TEXT_MAX - 1);
    free(whole);
    free(text);
}

static void test_prefix(void **state)
{
    (void)state;
    char *text = long_text(3000), want[3100];
    proa_err err = fail_with(text);
    proa_err_prefix(&err, "file '%s'", "a\nb");
    snprintf(want, sizeof want, "file 'a\nb': %s", text);
    assert_whole(&err, want);
    assert_int_equal(strncmp(err.text, "file 'a?b': \xc3\xbc", 14), 0);
    free(text);
}

/* A copy of an error that nobody answered does not keep memory for ever: it falls back to its line. */
static void test_old_texts_leave(void **state)
{
    (void)state;
    char *text = long_text(1001), *large = long_text(PROA_ERR_TEXT_MAX);
    proa_err first = fail_with(text);
    for (int i = 0; i < PROA_ERR_KEPT_MAX - 1; i++) (void)fail_with("two\nlines");
    assert_whole(&first, text);
    (void)fail_with("two\nlines");
    assert_whole(&first, first.text);
    first = fail_with(text);
    for (int64_t bytes = 0; bytes < PROA_ERR_KEPT_BYTES; bytes += PROA_ERR_TEXT_MAX) (void)fail_with(large);
    assert_whole(&first, first.text);
    assert_null(proa_long_text_copy(0));
    assert_null(proa_long_text_copy(UINT64_MAX));
    free(text);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_line), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_longest), cmocka_unit_test(test_prefix),
                                       cmocka_unit_test(test_old_texts_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
