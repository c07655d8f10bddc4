/* SPDX-License-Identifier: Apache-2.0
 * test_draft.c - prompt lookup against a naive search, and how many tokens are drafted. That drafts change no token is
 *                in test_traffic. */
#include "engine_test.h"

#include "engine/decode/draft.h"

/* Where the longest suffix of `least` to `most` tokens ends that occurs before, of these the last; -1: none does. */
static int64_t naive_end(const int32_t *text, int64_t count, int32_t most, int32_t least)
{
    for (int32_t n = most; n >= least; n--)
        for (int64_t end = count - 2; end >= n - 1; end--)
            if (count >= n && memcmp(text + end + 1 - n, text + count - n, (size_t)n * sizeof *text) == 0)
                return end;
    return -1;
}

static void lookup_finds_the_longest_suffix(void **state)
{
    PROA_UNUSED(state);
    uint32_t random = 1;
    int found = 0;
    for (int round = 0; round < 20000; round++) {
        int32_t text[40], draft[8];
        random = random * 1664525u + 1013904223u;
        int64_t count = 1 + (int64_t)(random >> 8) % 40;
        uint32_t letters = 2 + (random >> 20) % 6;
        for (int64_t i = 0; i < count; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = (int32_t)((random >> 16) % letters);
        }
        int32_t least = 1 + round % 3, most = least + round % 4;
        int64_t end = naive_end(text, count, most, least);
        int32_t n = proa_draft_lookup(draft, 8, text, count, most, least);
        assert_int_equal(n, end < 0 ? 0 : (count - 1 - end < 8 ? count - 1 - end : 8));
        assert_memory_equal(draft, text + end + 1, (size_t)n * sizeof *text);
        found += n > 0;
    }
    assert_true(found > 5000);
}

static void times_are_interpolated(void **state)
{
    PROA_UNUSED(state);
    proa_draft_times t = {{0}};
    assert_true(proa_draft_time_of(&t, 3) == 0);
    proa_draft_time(&t, 2, 100);
    proa_draft_time(&t, 6, 140);
    proa_draft_time(&t, 65, 1);
    assert_true(proa_draft_time_of(&t, 1) == 100);
    assert_true(proa_draft_time_of(&t, 2) == 100);
    assert_true(proa_draft_time_of(&t, 4) == 120);
    assert_true(proa_draft_time_of(&t, 38) == 140 * 1.5);
    assert_true(proa_draft_time_of(&t, 70) == 140 * 2);
    proa_draft_time(&t, 2, 108);
    assert_true(proa_draft_time_of(&t, 2) == 101);
}

/* Rows that cost nothing beside the first: as many as allowed. Rows that cost as much as the first: none, but a try now
 * and then. */
static void sizes_follow_time_and_luck(void **state)
{
    PROA_UNUSED(state);
    proa_draft_times free_rows = {{0}}, dear_rows = {{0}};
    proa_draft_state s = PROA_DRAFT_STATE;
    for (int64_t n = 1; n <= PROA_DRAFT_ROWS; n++) {
        proa_draft_time(&free_rows, n, 100);
        proa_draft_time(&dear_rows, n, 100.0 * (double)n);
    }
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 0, 0), 0);
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 3, 0), 3);
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 16, 0), 4);
    proa_draft_result(&s, 4, 4);
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 16, 0), 8);
    proa_draft_result(&s, 8, 1);
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 16, 0), 3);
    int tries = 0;
    for (int step = 0; step < 640; step++) {
        int32_t n = proa_draft_size(&s, &dear_rows, 1, 16, 0);
        assert_true(n == 0 || n == 2);
        tries += n > 0;
        if (n) proa_draft_result(&s, n, 0);
    }
    assert_int_equal(tries, 10);
    assert_true(s.rate < 0.3F);
    assert_int_equal(proa_draft_size(&s, &free_rows, 1, 16, 50), 0); /* drafting takes time, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_finds_the_longest_suffix),
        cmocka_unit_test(times_are_interpolated),
        cmocka_unit_test(sizes_follow_time_and_luck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
