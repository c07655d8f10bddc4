/* SPDX-License-Identifier: Apache-2.0
 * gate.c - waiting for a counter: spinning, then a futex. */
#include "comm/gate.h"

#include "base/clock.h"
#include "base/compiler.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* As long as the threads of a pool spin (thread.c), which is longer than the gap between two kernels. */
#define SPIN_NS       50000
#define SPINS_CLOCK   64 /* spins between two readings of the clock */

#define STOP_CHECK_NS 100000000

static void call_futex(proa_gate *g, int op, uint32_t value, const struct timespec *timeout)
{
    syscall(SYS_futex, &g->value, op, value, timeout, NULL, 0);
}

void proa_gate_open(proa_gate *g)
{
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleeping) > 0) proa_gate_wake(g);
}

void proa_gate_wake(proa_gate *g)
{
    call_futex(g, FUTEX_WAKE, INT_MAX, NULL);
}

static bool is_stopped(const atomic_int *stop)
{
    return stop && atomic_load(stop) != 0;
}

/* A process may die after it has changed the counter and before it wakes the others, so the sleep has a time limit. */
static uint32_t sleep_until_changed(proa_gate *g, uint32_t seen, const atomic_int *stop)
{
    const struct timespec limit = {.tv_nsec = STOP_CHECK_NS};
    uint32_t value;
    atomic_fetch_add(&g->sleeping, 1);
    while ((value = atomic_load(&g->value)) == seen && !is_stopped(stop))
        call_futex(g, FUTEX_WAIT, seen, stop ? &limit : NULL);
    atomic_fetch_sub(&g->sleeping, 1);
    return value;
}

uint32_t proa_gate_wait(proa_gate *g, uint32_t seen, const atomic_int *stop)
{
    uint32_t value;
    int64_t until = proa_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_CLOCK; i++) {
            if ((value = atomic_load_explicit(&g->value, memory_order_acquire)) != seen) return value;
            PROA_PAUSE();
        }
        if (is_stopped(stop)) return value;
    } while (proa_clock_ns() < until);
    return sleep_until_changed(g, seen, stop);
}
