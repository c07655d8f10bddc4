/* SPDX-License-Identifier: Apache-2.0
 * test_placement.c - the CPUs of a pool's threads: a thread leaves the CPU of a thread with a lower
 * index, and gets its affinity mask back. */
#include "base/clock.h"
#include "base/placement.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* Thread 0 seems to be on this thread's CPU; a yield is due, and the last move long ago. */
static void meet(proa_placement places[2], int cpu)
{
    memset(places, 0, 2 * sizeof *places);
    atomic_init(&places[0].cpu, cpu + 1);
    places[1].last_yield_ns = proa_clock_ns();
    places[1].last_move_ns = places[1].last_yield_ns - INT64_C(1000000000);
}

static void test_leaves_a_taken_cpu(void **state)
{
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2) skip();
    proa_placement places[2];
    int cpu;
    do { /* again if the kernel moved it between the two looks */
        meet(places, cpu = sched_getcpu());
        proa_placement_yield(places, 1, 2);
    } while (!places[1].confined);
    assert_int_not_equal(sched_getcpu(), cpu);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_false(CPU_ISSET((size_t)cpu, &after));
    assert_int_equal(CPU_COUNT(&after), CPU_COUNT(&before) - 1);

    places[1].last_move_ns -= INT64_C(1000000000); /* a second later it may run anywhere again */
    proa_placement_yield(places, 1, 2);
    assert_false(places[1].confined);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    (void)state;
}

/* More threads than CPUs: nobody can have one alone, and nobody moves. */
static void test_stays_where_threads_outnumber_cpus(void **state)
{
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    proa_placement places[2];
    meet(places, sched_getcpu());
    proa_placement_yield(places, 1, CPU_COUNT(&before) + 1);
    assert_false(places[1].confined);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    (void)state;
}

static void test_due_after_two_milliseconds(void **state)
{
    proa_placement p = {.last_yield_ns = INT64_C(5000000)};
    assert_false(proa_placement_should_yield(&p, INT64_C(6900000)));
    assert_true(proa_placement_should_yield(&p, INT64_C(7000000)));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leaves_a_taken_cpu),
        cmocka_unit_test(test_stays_where_threads_outnumber_cpus),
        cmocka_unit_test(test_due_after_two_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
