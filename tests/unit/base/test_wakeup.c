/* SPDX-License-Identifier: Apache-2.0
 * test_wakeup.c - wake-ups that a thread collects until the end of its batch. */
#include "base/compiler.h"
#include "base/limits.h"
#include "base/wakeup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

typedef struct sleeper {
    int woken;
} sleeper;

static void wake(void *arg)
{
    sleeper *s = arg;
    s->woken++;
}

static void without_a_batch_the_caller_wakes(void **state)
{
    sleeper s = {0};
    PROA_UNUSED(state);
    assert_int_equal(proa_wakeup_defer(wake, &s), PROA_WAKEUP_NOW);
    assert_int_equal(s.woken, 0);
}

static void each_is_woken_once_at_the_end(void **state)
{
    sleeper a = {0}, b = {0};
    PROA_UNUSED(state);
    proa_wakeups_begin();
    assert_int_equal(proa_wakeup_defer(wake, &a), PROA_WAKEUP_ADDED);
    assert_int_equal(proa_wakeup_defer(wake, &b), PROA_WAKEUP_ADDED);
    assert_int_equal(proa_wakeup_defer(wake, &a), PROA_WAKEUP_LISTED);
    assert_int_equal(a.woken + b.woken, 0);
    proa_wakeups_end();
    assert_int_equal(a.woken, 1);
    assert_int_equal(b.woken, 1);
    assert_int_equal(proa_wakeup_defer(wake, &a), PROA_WAKEUP_NOW);
}

static void batches_nest(void **state)
{
    sleeper s = {0};
    PROA_UNUSED(state);
    proa_wakeups_begin();
    proa_wakeups_begin();
    assert_int_equal(proa_wakeup_defer(wake, &s), PROA_WAKEUP_ADDED);
    proa_wakeups_end();
    assert_int_equal(s.woken, 0);
    proa_wakeups_end();
    assert_int_equal(s.woken, 1);
}

static void a_full_list_is_not_lost(void **state)
{
    sleeper s[PROA_WAKEUPS_MAX + 1] = {0};
    PROA_UNUSED(state);
    proa_wakeups_begin();
    for (int i = 0; i < PROA_WAKEUPS_MAX; i++)
        assert_int_equal(proa_wakeup_defer(wake, &s[i]), PROA_WAKEUP_ADDED);
    assert_int_equal(proa_wakeup_defer(wake, &s[PROA_WAKEUPS_MAX]), PROA_WAKEUP_NOW);
    proa_wakeups_end();
    for (int i = 0; i < PROA_WAKEUPS_MAX; i++) assert_int_equal(s[i].woken, 1);
    assert_int_equal(s[PROA_WAKEUPS_MAX].woken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_batch_the_caller_wakes),
        cmocka_unit_test(each_is_woken_once_at_the_end),
        cmocka_unit_test(batches_nest),
        cmocka_unit_test(a_full_list_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
