/* SPDX-License-Identifier: Apache-2.0
 * rate.h - inside serve: the rate limiter (--rate-limit=execution_count). Instances share resources, of a device or of
 * the whole server; an execution takes its instance's and gives them back. Who waits is served by priority: an
 * instance of priority p gets a p-th of the executions of one with priority 1. Who was away catches up on a hundred
 * turns at most.
 * Owner:   the server's; it outlives its models.
 * Threads: any; acquire blocks. */
#ifndef PROA_SERVE_RATE_H
#define PROA_SERVE_RATE_H

#include "serve/models/model.h"

/* "R:count[:device]", as given with --rate-limit-resource. */
PROA_MUST_CHECK proa_status proa_rate_new(proa_rate **out, const char *const *resources, int count,
                                          proa_err *err);
void proa_rate_free(proa_rate *rate); /* NULL is fine */
/* An instance with its group's rate_limiter. A resource that was not given has as many as the largest need. */
PROA_MUST_CHECK proa_status proa_rate_add(proa_rate *rate, const proa_instance *instance, proa_err *err);
void proa_rate_remove(proa_rate *rate, const proa_instance *instance);
void proa_rate_acquire(proa_rate *rate, const proa_instance *instance);
void proa_rate_release(proa_rate *rate, const proa_instance *instance);

#endif
