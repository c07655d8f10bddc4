/* SPDX-License-Identifier: Apache-2.0
 * test_state_slots.c - recurrent states of sequences: a slot for each, copies for those that part, the order of
 * beams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/state_slots.h"
#include <cmocka.h>

enum { SLOTS = 7, NUMBERS = 5 };

static proa_state_slots open_slots(proa_device **device)
{
    proa_state_slots s;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_device_open(device, "cpu", &err), PROA_OK);
    assert_int_equal(proa_state_slots_init(&s, *device, &(proa_state_counts){SLOTS, 2, true}, NUMBERS, &err),
                     PROA_OK);
    return s;
}

static float *state_of(const proa_state_slots *s, int64_t sequence)
{
    return s->memory + (int64_t)proa_state_slots_of(s, sequence) * NUMBERS;
}

/* Each sequence writes its number. */
static void write_all(const proa_state_slots *s)
{
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; k < NUMBERS; k++) state_of(s, i)[k] = (float)(10 * i + k);
}

static void expect_state(const proa_state_slots *s, int64_t sequence, int of)
{
    for (int k = 0; k < NUMBERS; k++) assert_true(state_of(s, sequence)[k] == (float)(10 * of + k));
}

static void expect_own_slots(const proa_state_slots *s)
{
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; k < i; k++) assert_true(proa_state_slots_of(s, i) != proa_state_slots_of(s, k));
}

static void beams_change_places(void **state)
{
    (void)state;
    static const struct {
        int32_t parent[4];
        int64_t copies;
    } orders[] = {{{0, 1, 2, 3}, 0}, {{3, 2, 1, 0}, 0}, {{0, 0, 0, 0}, 3}, {{2, 2, 0, 2}, 2}, {{1, 0, 1, 0}, 2}};
    proa_device *device;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        proa_state_slots s = open_slots(&device);
        write_all(&s);
        for (int again = 0; again < 2; again++) {
            proa_state_slots_reorder(&s, 2, orders[i].parent, 4);
            expect_own_slots(&s);
        }
        assert_int_equal(s.copies, 2 * orders[i].copies);
        for (int b = 0; b < 4; b++) expect_state(&s, 2 + b, 2 + orders[i].parent[orders[i].parent[b]]);
        expect_state(&s, 0, 0), expect_state(&s, 1, 1), expect_state(&s, 6, 6);
        proa_state_slots_release(&s);
        proa_device_close(device);
    }
}

static void sequences_part(void **state)
{
    (void)state;
    proa_device *device;
    proa_state_slots s = open_slots(&device);
    write_all(&s);
    proa_state_slots_share(&s, 4, 1);
    expect_state(&s, 4, 1), expect_state(&s, 1, 1), expect_state(&s, 5, 5);
    state_of(&s, 4)[0] = -1;
    expect_state(&s, 1, 1);
    expect_own_slots(&s);
    proa_state_slots_release(&s);
    proa_device_close(device);
}

static void a_pass_is_undone(void **state)
{
    (void)state;
    static const int32_t parent[] = {1, 0, 1};
    proa_device *device;
    proa_state_slots s = open_slots(&device);
    write_all(&s);
    proa_state_slots_save(&s, 1, 6);
    for (int i = 0; i < SLOTS; i += 2) proa_state_slots_mark(&s, i);
    for (int i = 0; i < SLOTS; i++) state_of(&s, i)[2] = -1;
    for (int i = 0; i < SLOTS; i += 2) proa_state_slots_undo(&s, i);
    for (int i = 0; i < SLOTS; i += 2) expect_state(&s, i, i);
    assert_true(state_of(&s, 1)[2] == -1);
    expect_own_slots(&s);
    for (int again = 0; again < 3; again++) {
        proa_state_slots_mark(&s, 4);
        state_of(&s, 4)[0] = -1;
        if (again != 1) proa_state_slots_undo(&s, 4);
        else state_of(&s, 4)[0] = 40;
        expect_state(&s, 4, 4);
    }
    proa_state_slots_load(&s, 5, 1);
    expect_state(&s, 5, 6);
    proa_state_slots_reorder(&s, 4, parent, 3);
    expect_state(&s, 4, 6), expect_state(&s, 5, 4), expect_state(&s, 6, 6);
    expect_own_slots(&s);
    proa_state_slots_release(&s);
    proa_device_close(device);
}

static void models_without_states_need_none(void **state)
{
    (void)state;
    static const int32_t parent[] = {1, 1};
    proa_state_slots s;
    proa_device *device;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_device_open(&device, "cpu", &err), PROA_OK);
    assert_int_equal(proa_state_slots_init(&s, device, &(proa_state_counts){16, 0, true}, 0, &err), PROA_OK);
    assert_null(s.memory);
    proa_state_slots_share(&s, 1, 0);
    proa_state_slots_reorder(&s, 0, parent, 2);
    assert_int_equal(proa_state_slots_of(&s, 3), 0);
    proa_state_slots_release(&s);
    assert_int_equal(proa_state_slots_init(&s, device, &(proa_state_counts){INT64_MAX / 4, 1, true}, 3, &err),
                     PROA_NO_MEMORY);
    proa_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beams_change_places),
        cmocka_unit_test(sequences_part),
        cmocka_unit_test(a_pass_is_undone),
        cmocka_unit_test(models_without_states_need_none),
    };
    return cmocka_run_group_tests_name("state_slots", tests, NULL, NULL);
}
