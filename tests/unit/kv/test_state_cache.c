/* SPDX-License-Identifier: Apache-2.0
 * test_state_cache.c - recurrent states behind pages: copies to them and back, which one goes first, pages that go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/state_cache.h"
#include <cmocka.h>

enum { SEQUENCES = 2, KEPT = 3, NUMBERS = 4, PAGES = 20 };

typedef struct fixture {
    proa_device *device;
    proa_state_slots slots;
    proa_state_cache cache;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_device_open(&f.device, "cpu", &err), PROA_OK);
    assert_int_equal(proa_state_slots_init(&f.slots, f.device, &(proa_state_counts){SEQUENCES, KEPT, false},
                                           NUMBERS, &err),
                     PROA_OK);
    proa_state_cache_init(&f.cache, &f.slots, PAGES);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    proa_state_cache_release(&f->cache);
    proa_state_slots_release(&f->slots);
    proa_device_close(f->device);
    return 0;
}

static float *state_of(fixture *f, int64_t sequence)
{
    return f->slots.memory + (int64_t)proa_state_slots_of(&f->slots, sequence) * NUMBERS;
}

static void save(fixture *f, int32_t page, float number)
{
    for (int i = 0; i < NUMBERS; i++) state_of(f, 1)[i] = number;
    proa_state_cache_save(&f->cache, page, 1);
}

static void expect_loaded(fixture *f, int32_t page, float number)
{
    assert_true(proa_state_cache_has(&f->cache, page));
    state_of(f, 0)[0] = state_of(f, 0)[NUMBERS - 1] = -1;
    proa_state_cache_load(&f->cache, page, 0);
    assert_true(state_of(f, 0)[0] == number && state_of(f, 0)[NUMBERS - 1] == number);
}

static void states_come_back(void **state)
{
    fixture *f = *state;
    save(f, 7, 70), save(f, 19, 190);
    expect_loaded(f, 7, 70), expect_loaded(f, 19, 190), expect_loaded(f, 7, 70);
    assert_true(state_of(f, 1)[0] == 190);
    assert_false(proa_state_cache_has(&f->cache, 8));
    assert_int_equal(f->cache.used, 2);
}

static void a_page_has_one_state(void **state)
{
    fixture *f = *state;
    save(f, 7, 70);
    int64_t copies = f->slots.copies;
    save(f, 7, 70); /* the tokens say what it is */
    assert_int_equal(f->slots.copies, copies);
    assert_int_equal(f->cache.used, 1);
}

static void the_least_recently_used_goes(void **state)
{
    fixture *f = *state;
    save(f, 1, 10), save(f, 2, 20), save(f, 3, 30);
    expect_loaded(f, 1, 10);
    save(f, 4, 40);
    assert_false(proa_state_cache_has(&f->cache, 2));
    expect_loaded(f, 1, 10), expect_loaded(f, 3, 30), expect_loaded(f, 4, 40);
    assert_int_equal(f->cache.used, KEPT);
}

static void states_go_with_their_pages(void **state)
{
    fixture *f = *state;
    save(f, 1, 10), save(f, 2, 20), save(f, 3, 30);
    proa_state_cache_drop(&f->cache, 3), proa_state_cache_drop(&f->cache, 3),
        proa_state_cache_drop(&f->cache, 9);
    assert_false(proa_state_cache_has(&f->cache, 3));
    assert_int_equal(f->cache.used, 2);
    save(f, 5, 50); /* in its place: the others stay */
    expect_loaded(f, 1, 10), expect_loaded(f, 2, 20), expect_loaded(f, 5, 50);
}

static void no_room_keeps_nothing(void **state)
{
    (void)state;
    proa_state_slots none = {.count = 0};
    proa_state_cache c;
    proa_state_cache_init(&c, &none, PAGES);
    proa_state_cache_save(&c, 3, 0);
    proa_state_cache_drop(&c, 3);
    assert_false(proa_state_cache_has(&c, 3));
    proa_state_cache_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(states_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_page_has_one_state, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_least_recently_used_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(states_go_with_their_pages, set_up, tear_down),
        cmocka_unit_test(no_room_keeps_nothing),
    };
    return cmocka_run_group_tests_name("state_cache", tests, NULL, NULL);
}
