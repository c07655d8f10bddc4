/* SPDX-License-Identifier: Apache-2.0
 * recovery.h - an engine whose ranks are processes goes on after one of them was lost: its requests end with the
 * reason, new ones are refused, and the processes are started again, later after each failure.
 * Owner:   the engine. Threads: the stepping thread, but for proa_recovery_notify. */
#ifndef PROA_ENGINE_RECOVERY_H
#define PROA_ENGINE_RECOVERY_H

#include "base/status.h"
#include "proa/proa.h"

typedef struct proa_recovery {
    int64_t next_ns, pause_ns; /* when the next try is, and how long after the last failure; 0: none is needed */
    int64_t restarted_ns;      /* the last restart; 0: none */
    bool given_up;             /* ranks of MPI failed: only mpirun starts them, with a new rank 0 */
} proa_recovery;

/* For proa_rank_set.notify, with the engine: any thread. The stepping thread is woken. */
void proa_recovery_notify(void *engine, const proa_err *why);
/* When nothing is in flight and the time has come, restarts ranks that have failed. Loading them can take as long as
 * opening the model. Returns the time (proa_clock_ns) of the next try; 0: none is needed, or none is possible. */
int64_t proa_recovery_step(proa_engine *e);

#endif
