/* SPDX-License-Identifier: Apache-2.0
 * device_failure.h - the device has failed, or a rank of the model. Private to src/engine.
 * Threads: the stepping thread. */
#ifndef PROA_ENGINE_SCHED_DEVICE_FAILURE_H
#define PROA_ENGINE_SCHED_DEVICE_FAILURE_H

#include "proa/proa.h"

typedef struct proa_engine_request proa_engine_request;

/* Called when results have arrived, before they are used. If the device has failed, the end of all running requests is
 * decided, with its error, and so is that of `req`, which may be in no list (NULL: none); nothing is reused from the
 * prefix cache from then on. */
void proa_device_failure_check(proa_engine *e, proa_engine_request *req);

#endif
