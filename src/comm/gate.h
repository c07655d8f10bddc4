/* SPDX-License-Identifier: Apache-2.0
 * gate.h - a counter that threads wait for, of this process or of several that see its memory.
 * Owner:   the caller's memory, zeroed.
 * Threads: any. */
#ifndef PROA_COMM_GATE_H
#define PROA_COMM_GATE_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct proa_gate {
    atomic_uint value, sleeping; /* sleeping: threads that wait in the kernel */
} proa_gate;

/* Adds 1 and wakes all threads that wait. They see everything that was written before. */
void proa_gate_open(proa_gate *g);
/* Returns the value once it is no longer `seen`, or as it is once *stop is not 0 (stop NULL: never). Spins for 50 us,
 * then sleeps, and looks at *stop ten times a second. */
uint32_t proa_gate_wait(proa_gate *g, uint32_t seen, const atomic_int *stop);
/* Wakes all threads that wait, so that they look at their `stop`. */
void proa_gate_wake(proa_gate *g);

#endif
