/* SPDX-License-Identifier: Apache-2.0
 * trace.h - what each kind of step took on the host, with PROA_TRACE=1: where a pass's time goes. (On a GPU kernels are
 * timed instead: kernels/cuda/runtime/device.cu.)
 * Owner:   the model. Threads: the stepping thread. */
#ifndef PROA_MODEL_TRACE_H
#define PROA_MODEL_TRACE_H

#include "model/arch.h"

typedef struct proa_step_trace proa_step_trace;
/* NULL if PROA_TRACE is not set. */
proa_step_trace *proa_step_trace_open(void);
void proa_step_trace_add(proa_step_trace *t, const proa_step *step, int64_t ns);
/* Prints one line for each kind of step to standard error. NULL is fine. */
void proa_step_trace_close(proa_step_trace *t);

#endif
