/* SPDX-License-Identifier: Apache-2.0
 * pacing.h - how long this engine's passes take, and how many rows of prompts they get. Private to src/engine.
 * Owner:   the engine. Threads: the stepping thread.
 * Way in:  step_time.h learns the times, prompt_budget.h has the rule. */
#ifndef PROA_ENGINE_PACING_PACING_H
#define PROA_ENGINE_PACING_PACING_H

#include "engine/pacing/prompt_budget.h"
#include "proa/proa.h"

typedef struct proa_prompt_pacing {
    proa_prompt_budget budget;
    proa_step_times times;
    double pair_work;    /* a row's attention to one token, as a part of all its other work */
    int64_t last_end_ns; /* of the last pass */
} proa_prompt_pacing;

/* When the engine opens, once the model is known. */
void proa_pacing_init(proa_engine *e);
/* A decoder's pass of this shape has ended; it was submitted at begin_ns. NULL: what ended cannot be timed. */
void proa_pacing_pass_ended(proa_engine *e, const proa_step_shape *shape, int64_t begin_ns);

#endif
