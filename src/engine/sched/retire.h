/* SPDX-License-Identifier: Apache-2.0
 * retire.h - running requests end, by themselves or because the device has failed. Private to src/engine.
 * Threads: the stepping thread. */
#ifndef PROA_ENGINE_SCHED_RETIRE_H
#define PROA_ENGINE_SCHED_RETIRE_H

#include "engine/speculate/proposer.h"

/* Called when results have arrived, before they are used. If the device has failed, the end of all running requests is
 * decided, with its error, and so is that of `req`, which may be in no list (NULL: none). */
void proa_retire_check_device(proa_engine *e, proa_engine_request *req);
/* Once a step: requests whose end was decided (proa_engine_request.ending) leave the running list and emit DONE. */
void proa_retire_ended(proa_engine *e);

#endif
