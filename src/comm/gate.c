/* SPDX-License-Identifier: Apache-2.0
 * gate.c - waiting for a counter: spinning, then a futex. */
#include "comm/gate.h"

#include "base/clock.h"
#include "base/compiler.h"
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As the pool's threads (thread.c): longer than the gap between two kernels. */
#define SPIN_NS     50000
#define SPINS_CLOCK 64 /* spins between two readings of the clock */

void proa_gate_open(proa_gate *g)
{
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleeping) > 0)
        syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

uint32_t proa_gate_wait(proa_gate *g, uint32_t seen)
{
    uint32_t value;
    int64_t until = proa_clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPINS_CLOCK; i++) {
            if ((value = atomic_load_explicit(&g->value, memory_order_acquire)) != seen) return value;
            PROA_PAUSE();
        }
    } while (proa_clock_ns() < until);
    atomic_fetch_add(&g->sleeping, 1);
    while ((value = atomic_load(&g->value)) == seen)
        syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleeping, 1);
    return value;
}
