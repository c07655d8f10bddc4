/* SPDX-License-Identifier: Apache-2.0
 * scheduler.h - one step of the engine, and work between two. Private to src/engine. */
#ifndef PROA_ENGINE_SCHED_SCHEDULER_H
#define PROA_ENGINE_SCHED_SCHEDULER_H

#include "base/status.h"
#include "proa/proa.h"

/* The stepping thread. False: there was nothing to do. */
bool proa_sched_step(proa_engine *e);
/* Runs run(arg) between two steps while nothing is in flight, on the engine's thread if there is one, else on this one,
 * and returns after it. INVALID on the stepping thread itself, that is in a callback. Any thread. */
PROA_MUST_CHECK proa_status proa_sched_run_job(proa_engine *e, void (*run)(void *arg), void *arg, proa_err *err);

#endif
