/* SPDX-License-Identifier: Apache-2.0
 * calls.h - what a model in a worker process asks of the server: requests to other models (bls.c), loads and unloads,
 *           metrics, log lines (calls.c).
 * Owner:   a proa_bls belongs to its worker and is freed after the last of its requests has ended.
 * Threads: messages are handled on the worker's thread; replies of other models come on any. */
#ifndef PROA_BACKENDS_PROCESS_CALLS_H
#define PROA_BACKENDS_PROCESS_CALLS_H

#include "backends/process/payload.h"
#include "backends/process/process.h"

typedef struct proa_bls proa_bls; /* the requests of one worker to other models */

/* ---- calls.c ---- */

/* Handles a CALL or a POST; INVALID for any other message. */
PROA_MUST_CHECK proa_status proa_calls_handle(proa_worker *worker, uint64_t process,
                                              const proa_channel_message *m, proa_payload *w, proa_err *err);

/* The same for a process that is only asked (proa_worker_ask): its log lines are written, its calls are refused. */
PROA_MUST_CHECK proa_status proa_calls_handle_alone(proa_process *p, const proa_channel_message *m,
                                                    proa_err *err);

/* ---- bls.c: requests to other models ---- */

proa_bls *proa_bls_new(proa_worker *worker);
void proa_bls_free(proa_bls *b); /* after the last call has ended */
PROA_MUST_CHECK proa_status proa_bls_handle(proa_bls *b, uint64_t process, const proa_channel_message *m,
                                            proa_payload *w, proa_err *err);
void proa_bls_cancel(proa_bls *b, uint64_t id);
/* Cancels the calls whose requests are all cancelled. */
void proa_bls_check_cancelled(proa_bls *b);
void proa_bls_cancel_all(proa_bls *b); /* their process has died: further replies are dropped */

#endif
