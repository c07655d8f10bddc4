/* SPDX-License-Identifier: Apache-2.0
 * test_arena.c - arenas, budgeted pages, and the count of allocations. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void test_alloc(void **state)
{
    proa_arena arena;
    proa_arena_init(&arena);
    unsigned char *last = NULL;
    for (size_t n = 0; n < 3000; n++) {
        unsigned char *p = proa_arena_alloc(&arena, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xAA, n); /* the sanitiser sees it if this is not ours; the next must be zero all the same */
        if (last && n > 1) assert_int_equal(last[0], 0xAA);
        last = p;
    }
    unsigned char *big = proa_arena_alloc(&arena, 10 << 20);
    big[(10 << 20) - 1] = 1;
    assert_true(arena.bytes >= (10 << 20) + 3000 * 2999 / 2);
    proa_arena_release(&arena);
    assert_int_equal(arena.bytes, 0);
    assert_non_null(proa_arena_alloc(&arena, 1)); /* usable again */
    proa_arena_release(&arena);
    proa_arena_release(&arena);
    (void)state;
}

static void count_up(void *arg)
{
    ++*(int *)arg;
}

/* Used again and again: clean-ups run each time, memory comes zeroed, and (but for a sanitiser) nothing is
 * allocated. */
static void test_reset(void **state)
{
    proa_arena arena;
    proa_arena_init(&arena);
    proa_arena_reset(&arena);
    int cleaned = 0;
    uint64_t count = 0;
    for (int i = 0; i < 100; i++) {
        if (i == 1) count = proa_alloc_count();
        for (int k = 0; k < 20; k++) {
            unsigned char *p = proa_arena_alloc(&arena, 1000);
            for (int b = 0; b < 1000; b++) assert_int_equal(p[b], 0);
            memset(p, 0xAA, 1000);
        }
        proa_arena_defer(&arena, count_up, &cleaned);
        proa_arena_reset(&arena);
        assert_int_equal(cleaned, i + 1);
        assert_int_equal(arena.bytes, 0);
    }
    if (!PROA_ASAN) assert_int_equal(proa_alloc_count(), count);
    proa_arena_alloc(&arena, 1 << 20); /* a block of its own is not kept, the usual one is */
    proa_arena_alloc(&arena, 1);
    proa_arena_reset(&arena);
    count = proa_alloc_count();
    proa_arena_alloc(&arena, 60000);
    if (!PROA_ASAN) assert_int_equal(proa_alloc_count(), count);
    proa_arena_release(&arena);
    (void)state;
}

static void test_strings(void **state)
{
    proa_arena arena;
    char big[200001];
    proa_arena_init(&arena);
    assert_string_equal(proa_arena_strdup(&arena, (proa_str){"abcdef", 3}), "abc");
    assert_string_equal(proa_arena_strdup(&arena, (proa_str){NULL, 0}), "");
    assert_string_equal(proa_arena_url_decode(&arena, proa_str_c("a%20b%2Fc%2f%41")), "a b/c/A");
    assert_string_equal(proa_arena_url_decode(&arena, proa_str_c("100%, %4, %zz, %4g %")),
                        "100%, %4, %zz, %4g %");
    assert_string_equal(proa_arena_url_decode(&arena, (proa_str){"%41", 2}), "%4"); /* the slice ends there */
    assert_null(proa_arena_url_decode(&arena, proa_str_c("a%00b")));
    assert_string_equal(proa_arena_printf(&arena, "%s-%d", "x", 7), "x-7");
    assert_string_equal(proa_arena_printf(&arena, "%s", ""), "");
    memset(big, 'b', 200000);
    big[200000] = '\0';
    assert_string_equal(proa_arena_printf(&arena, "%s", big), big);
    int64_t *numbers = PROA_ARENA_NEW(&arena, int64_t, 100);
    numbers[99] = 1;
    assert_non_null(PROA_ARENA_NEW(&arena, int64_t, 0));
    proa_arena_release(&arena);
    (void)state;
}

static char order[8];
static void note(void *arg)
{
    order[strlen(order)] = *(const char *)arg;
}

static void test_defer(void **state)
{
    proa_arena arena;
    proa_arena_init(&arena);
    for (const char *c = "abc"; *c; c++)
        proa_arena_defer(&arena, note, proa_arena_strdup(&arena, (proa_str){c, 1}));
    proa_arena_release(&arena); /* their arguments lie in the arena and must still be there */
    assert_string_equal(order, "cba");
    proa_arena_release(&arena);
    assert_string_equal(order, "cba");
    (void)state;
}

static void test_pages(void **state)
{
    static const int64_t sizes[] = {1, 4095, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5 << 20};
    for (size_t i = 0; i < PROA_COUNT(sizes); i++) {
        int64_t n = sizes[i];
        unsigned char *p = proa_pages_alloc(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (n >= 2 << 20 ? 2 << 20 : 4096), 0);
        assert_int_equal(p[0] | p[n / 2] | p[n - 1], 0);
        p[0] = p[n - 1] = 1;
        proa_pages_free(p, n);
    }
    assert_null(proa_pages_alloc(INT64_MAX)); /* refused, not tried */
    assert_null(proa_pages_alloc((int64_t)1 << 60));
    proa_pages_free(NULL, 1);
    (void)state;
}

static void test_counts(void **state)
{
    uint64_t before = proa_alloc_count();
    free(proa_malloc(0));
    free(proa_calloc(0, 8));
    char *s = proa_strdup("x");
    s = proa_realloc(s, 100);
    assert_string_equal(s, "x");
    free(s);
    proa_pages_free(proa_pages_alloc(1), 1);
    assert_int_equal(proa_alloc_count() - before, 5);
    assert_true(proa_memory_available() > 0);
    assert_true(proa_memory_peak() > PROA_MIB / 4);
    (void)state;
}

static void test_lent(void **state)
{
    _Alignas(16) char memory[512];
    proa_arena a;
    uint64_t before = proa_alloc_count();
    proa_arena_init_in(&a, memory, sizeof memory);
    char *p = proa_arena_alloc(&a, 100);
    assert_true(p > memory && p + 100 <= memory + sizeof memory);
    assert_int_equal(proa_alloc_count(), before); /* all in the lent block */
    char *big = proa_arena_alloc(&a, 1000);
    assert_true(big + 1000 <= memory || big >= memory + sizeof memory);
    memset(big, 1, 1000);
    assert_int_equal(proa_alloc_count(), before + 1);
    proa_arena_release(&a); /* the lent block is not freed: the sanitisers would see it */
    assert_null(a.block);
    (void)state;
}

static void test_aligned(void **state)
{
    for (size_t n = 0; n < 300; n += 37) {
        char *p = proa_malloc_aligned(n);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 7, n);
        free(p);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc), cmocka_unit_test(test_reset),   cmocka_unit_test(test_strings),
        cmocka_unit_test(test_defer), cmocka_unit_test(test_pages),   cmocka_unit_test(test_counts),
        cmocka_unit_test(test_lent),  cmocka_unit_test(test_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
