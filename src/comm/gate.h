/* SPDX-License-Identifier: Apache-2.0
 * gate.h - a counter that threads wait for.
 * Owner:   the caller's memory, zeroed.
 * Threads: any. */
#ifndef PROA_COMM_GATE_H
#define PROA_COMM_GATE_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct proa_gate {
    atomic_uint value, sleeping; /* sleeping: threads that wait in the kernel */
} proa_gate;

/* One more; all who wait go on. What was written before is seen by them. */
void proa_gate_open(proa_gate *g);
/* Returns the value once it is no longer `seen`. Spins for 50 us, then sleeps. */
uint32_t proa_gate_wait(proa_gate *g, uint32_t seen);

#endif
