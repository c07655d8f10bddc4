/* SPDX-License-Identifier: Apache-2.0
 * retire.h - requests end, and return their pages and slots. Private to src/engine.
 * Threads: the stepping thread. */
#ifndef PROA_ENGINE_SCHED_RETIRE_H
#define PROA_ENGINE_SCHED_RETIRE_H

#include "engine/sched/request.h"

/* Returns the pages and slots of an admitted request, at its end or when it is preempted. Its results that are in
 * flight are dropped. */
void proa_retire_release_request(proa_engine *e, proa_engine_request *req);
/* Emits DONE. The request is in no list any more; it may have been running or waiting. error: why it failed, or
 * NULL. */
void proa_retire_finish(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error);
/* Once a step: running requests whose end was decided (proa_engine_request.ending) leave the list and finish. */
void proa_retire_ended(proa_engine *e);

#endif
