/* SPDX-License-Identifier: Apache-2.0
 * scheduler.h - one step of the engine. Private to src/engine. */
#ifndef PROA_ENGINE_SCHED_SCHEDULER_H
#define PROA_ENGINE_SCHED_SCHEDULER_H

#include "proa/proa.h"

/* The stepping thread. False: there was nothing to do. */
bool proa_sched_step(proa_engine *e);

#endif
