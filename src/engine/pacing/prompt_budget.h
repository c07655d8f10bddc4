/* SPDX-License-Identifier: Apache-2.0
 * prompt_budget.h - how many rows of prompts a step with decoding rows gets.
 * Owner:   the caller owns all memory. Threads: any.
 * Way in:  proa_prompt_budget_rows before each step that has decoding rows and waiting prompts.
 *
 * Rows of prompts lengthen the step for all that decode; too few of them leave sequences waiting that could decode, and
 * the weights are read for a small batch. The rule weighs the two by one number, the time that a step would take if all
 * running sequences decoded: what each of them can expect between two tokens once the prompts are done.
 *
 *   A step with prompts takes at most `slowdown` times as long as that. While fewer than nine in ten of the running
 *   sequences decode, the bound grows in proportion, because prompts are what limits throughput.
 *
 * So the time between tokens stays even while some prompts arrive beside many streams. The more sequences wait in
 * their prompts, the larger the step that all of them could fill, and the more rows prompts get. Times come from
 * earlier steps (step_time.h). */
#ifndef PROA_ENGINE_PACING_PROMPT_BUDGET_H
#define PROA_ENGINE_PACING_PROMPT_BUDGET_H

#include "engine/pacing/step_time.h"

#define PROA_PROMPT_SLOWDOWN   1.5
/* Prompts make progress in every step. More rows are a multiple of it: whole tiles of kernels, and few different shapes
 * of passes, so that a device can replay the recording of one. */
#define PROA_PROMPT_ROWS_LEAST 32

typedef struct proa_prompt_budget {
    int64_t most; /* rows beside decoding rows */
    double slowdown; /* a step with prompts may take that many times as long as one without; 0: always `most` rows */
    int32_t run; /* steps with prompts since the last one without */
} proa_prompt_budget;

/* What waits for the next step. */
typedef struct proa_prompt_load {
    proa_step_shape decode; /* the decoding rows alone */
    int64_t decoding;       /* sequences */
    int64_t in_prompt;      /* running sequences whose prompts are not done */
    double row_work;        /* of one row of the prompt that is next, as proa_step_shape.prompt_work */
    double row_pairs;       /* the same of proa_step_shape.prompt_pairs */
} proa_prompt_load;

/* Rows of prompts for the next step, at most `room`: what the token budget leaves. Now and
 * then a step gets none, so that the time without prompts is measured again and again. */
int64_t proa_prompt_budget_rows(proa_prompt_budget *b, const proa_step_times *times,
                                const proa_prompt_load *load, int64_t room);

#endif
