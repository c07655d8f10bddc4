/* SPDX-License-Identifier: Apache-2.0
 * scheduler.h - inside serve: the scheduler of a model version, between an accepted request and the instances.
 * The kinds, by configuration: direct, dynamic (dynamic_batching), sequence (sequence_batching), ensemble, own (a
 * backend that queues itself). Each is a table; sched/create.c picks it.
 * Owner:   a model version owns its scheduler. Enqueue takes a reference of the request until its final reply.
 * Threads: enqueue from any thread; stop and free from the thread that unloads. */
#ifndef PROA_SERVE_SCHEDULER_H
#define PROA_SERVE_SCHEDULER_H

#include "serve/models/model.h"

/* model->instances are open. Starts the threads. */
proa_status proa_scheduler_new(proa_scheduler **out, proa_served_model *model, proa_err *err);
/* Queues r, which was checked (models/model.h). On failure r is the caller's as before: UNAVAILABLE "Exceeds maximum
 * queue size", or the text of a stopping scheduler. With PROA_BACKEND_INLINE and a free instance it may have run on
 * return. */
proa_status proa_scheduler_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err);
int64_t proa_scheduler_pending(const proa_scheduler *s); /* waiting and not yet executing */
void proa_scheduler_stop(proa_scheduler *s);             /* refuses new requests; those that wait still run */
/* Waits until all accepted requests have ended. Call it when model->refs is 0: a request that is still referenced may
 * be cancelled, and a cancel uses the scheduler. NULL is fine. */
void proa_scheduler_free(proa_scheduler *s);

#endif
