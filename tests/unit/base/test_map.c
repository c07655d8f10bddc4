/* SPDX-License-Identifier: Apache-2.0
 * test_map.c - the map against a plain array of the same keys, and keys that are chosen to collide. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define N 200000

static void test_many(void **state)
{
    proa_map map;
    char(*keys)[16] = proa_calloc(N, sizeof *keys);
    proa_map_init(&map, 0);
    for (int32_t i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "key%d", i);
        assert_true(proa_map_put(&map, proa_str_c(keys[i]), i));
    }
    assert_int_equal(map.count, N);
    for (int32_t i = 0; i < N; i++) {
        int32_t value = -1;
        assert_true(proa_map_find(&map, proa_str_c(keys[i]), &value));
        assert_int_equal(value, i);
        assert_false(proa_map_put(&map, proa_str_c(keys[i]), -i)); /* overwrites */
        assert_true(proa_map_find(&map, proa_str_c(keys[i]), &value));
        assert_int_equal(value, -i);
    }
    assert_int_equal(map.count, N);
    int32_t value = 77;
    assert_false(proa_map_find(&map, proa_str_c("key"), &value));
    assert_false(proa_map_find(&map, proa_str_c("key200000"), &value));
    assert_int_equal(value, 77); /* left alone */
    proa_map_release(&map);
    assert_false(proa_map_find(&map, proa_str_c("key1"), &value));
    free(keys);
    (void)state;
}

/* Lengths around the hash's words of eight bytes, NULs, and keys that differ in one bit. */
static void test_bytes(void **state)
{
    proa_map map;
    char zeros[40] = {0}, ones[40][40] = {{0}};
    proa_map_init(&map, 100);
    for (size_t n = 0; n < sizeof zeros; n++)
        assert_true(proa_map_put(&map, (proa_str){zeros, n}, (int32_t)n));
    for (size_t i = 0; i < 40; i++) {
        ones[i][i] = 1;
        assert_true(proa_map_put(&map, (proa_str){ones[i], 40}, 100 + (int32_t)i));
    }
    for (size_t i = 0; i < 40; i++) {
        int32_t a = -1, b = -1;
        assert_true(proa_map_find(&map, (proa_str){zeros, i}, &a) &&
                    proa_map_find(&map, (proa_str){ones[i], 40}, &b));
        assert_int_equal(a, (int32_t)i);
        assert_int_equal(b, 100 + (int32_t)i);
    }
    proa_map_release(&map);
    (void)state;
}

/* Keys from a file that was made to slow us: their public hash agrees in its low 13 bits, so a table of 8192 slots
 * that used that hash would look at 2000 of them on average to find one. Timed against as many keys that nobody
 * chose. */
static void test_chosen(void **state)
{
    enum { CHOSEN = 4000, MASK = 0x1fff };
    proa_map map;
    char(*keys)[16] = proa_calloc(CHOSEN, sizeof *keys);
    int found = 0;
    for (int i = 0; found < CHOSEN; i++) {
        snprintf(keys[found], sizeof keys[found], "%x", (unsigned)i);
        found += (proa_str_hash(proa_str_c(keys[found])) & MASK) == 0;
    }
    proa_map_init(&map, CHOSEN);
    for (int i = 0; i < CHOSEN; i++) proa_map_put(&map, proa_str_c(keys[i]), i);
    int64_t times[2];
    for (int round = 0; round < 2; round++) {
        int64_t start = proa_clock_ns();
        for (int again = 0; again < 20; again++)
            for (int i = 0; i < CHOSEN; i++) {
                int32_t value = -1;
                bool there = proa_map_find(&map, proa_str_c(keys[i]), &value);
                assert_true(there && value == i);
            }
        times[round] = proa_clock_ns() - start;
        proa_map_release(&map);
        proa_map_init(&map, CHOSEN);
        for (int i = 0; i < CHOSEN; i++) {
            snprintf(keys[i], sizeof keys[i], "%x", (unsigned)i * 7919);
            proa_map_put(&map, proa_str_c(keys[i]), i);
        }
    }
    print_message("chosen keys %.1f us, others %.1f us\n", (double)times[0] * 1e-3, (double)times[1] * 1e-3);
    assert_true(times[0] < 5 * times[1] + 20000000);
    proa_map_release(&map);
    free(keys);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
