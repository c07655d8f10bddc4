/* SPDX-License-Identifier: Apache-2.0
 * placement.h - keeps the threads of a pool on different CPUs when other processes use the machine too.
 * Two things make a pool slow on a busy machine. When another process occupies a worker's CPU, Linux may wake
 * the worker on the caller's CPU, and the two share it. And a worker that is preempted in the middle of a chunk
 * delays the whole job by a time slice. Therefore a thread yields its CPU every few milliseconds, between two
 * chunks, when it holds no work: preemption within a chunk becomes rare. It also moves away from a CPU that a
 * thread of a lower index uses.
 * Owner:   the pool has an array with one placement for each thread.
 * Threads: each thread calls with its own index; only `cpu` is read by the others. */
#ifndef PROA_BASE_PLACEMENT_H
#define PROA_BASE_PLACEMENT_H

#include "base/compiler.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_placement {
    PROA_ALIGNED(64) atomic_int cpu; /* the CPU at the last yield, + 1; 0: none yet */
    atomic_int streak; /* consecutive yields that another process used; negative: that none used */
    bool confined;     /* the affinity mask is narrower than full_mask */
    int64_t last_yield_ns, last_move_ns; /* last yield; last move */
    cpu_set_t full_mask;                 /* the affinity mask before the first move */
} proa_placement;

/* Whether to call proa_placement_yield before the next chunk. now: proa_clock_ns(). */
bool proa_placement_should_yield(const proa_placement *p, int64_t now);
/* Yields the CPU, and moves to another one if needed. The thread must hold no chunk and have reported its finished
 * ones. threads: the active threads, at most the length of the array. */
void proa_placement_yield(proa_placement *all, int index, int threads);

#endif
