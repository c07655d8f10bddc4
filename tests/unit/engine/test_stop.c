/* SPDX-License-Identifier: Apache-2.0
 * test_stop.c - stop strings, whatever the text is cut into. */
#include "engine_test.h"

#include "engine/decode/stop.h"

/* Cuts text into pieces by the bits of `cuts`; what is shown must be the text before the earliest stop string, and
 * never more on the way. */
static void check(const char *text, proa_strings strings, uint32_t cuts)
{
    proa_stop s;
    proa_buf out;
    const char *end = text + strlen(text);
    for (int32_t i = 0; i < strings.count; i++) {
        const char *at = strstr(text, strings.text[i]);
        if (at && at < end) end = at;
    }
    proa_stop_init(&s, strings);
    proa_buf_init(&out, 1 << 20);
    bool stopped = false;
    for (size_t i = 0, n = strlen(text); i < n && !stopped;) {
        size_t k = i + 1;
        while (k < n && !(cuts >> (k % 32) & 1)) k++;
        stopped = proa_stop_push(&s, (proa_str){text + i, k - i}, &out);
        assert_true(out.len <= (size_t)(end - text));
        i = k;
    }
    if (!stopped) proa_stop_flush(&s, &out);
    assert_int_equal(stopped, *end != '\0');
    assert_int_equal(out.len, end - text);
    assert_memory_equal(out.ptr ? out.ptr : "", text, out.len);
    proa_buf_release(&out);
    proa_stop_release(&s);
}

static void all_cuts(void **state)
{
    PROA_UNUSED(state);
    const char *a[] = {"END"}, *b[] = {"\n\n", "\nUser:", "abab"}, *c[] = {"aab", "aa"};
    for (uint32_t cuts = 0; cuts < 4096; cuts++) {
        check("some ENEND text", (proa_strings){a, 1}, cuts * 2654435761u);
        check("no stop here EN", (proa_strings){a, 1}, cuts * 2654435761u);
        check("x ababab\nUse \nUser: y", (proa_strings){b, 3}, cuts * 2654435761u);
        check("line\n \nUse\nUser", (proa_strings){b, 3}, cuts * 2654435761u);
        check("xaaab", (proa_strings){c, 2}, cuts * 2654435761u);
    }
}

static void without_strings_all_passes(void **state)
{
    PROA_UNUSED(state);
    check("anything", (proa_strings){0}, 0xffffffffu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_cuts), cmocka_unit_test(without_strings_all_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
