/* SPDX-License-Identifier: Apache-2.0
 * step_time.h - how long a decoder's pass takes, learnt from the passes that ran.
 * Owner:   the caller owns all memory. Threads: any, one at a time on one object.
 * Way in:  proa_step_time_add after each pass, proa_step_time_of before one.
 *
 * The time of a pass is taken to be a sum of non-negative shares: one for the pass itself, one for each decoding row,
 * one for each token whose keys and values these rows read, one if there are rows of prompts at all, one for the work
 * of these rows, and one for each pair of such a row and a token of its context: attention need not run at the rate of
 * the matrix products, which `prompt_work` takes it to. The shares are those with the least squared relative error over
 * the last passes (exponentially weighted least squares; Lawson and Hanson's active set keeps them from falling below
 * 0). Passes with and without rows of prompts are forgotten separately, so that what a row of a prompt takes is still
 * known after a long time without prompts. A slow pass, such as one that tuned a kernel, has little weight. */
#ifndef PROA_ENGINE_PACING_STEP_TIME_H
#define PROA_ENGINE_PACING_STEP_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* What the time of a pass depends on. */
typedef struct proa_step_shape {
    int64_t decode_rows;
    int64_t decode_tokens; /* whose keys and values the decoding rows read */
    int64_t prompt_rows;
    double prompt_work; /* of the prompt rows, in rows without context: attention to the context counts too */
    double prompt_pairs; /* pairs of a prompt row and a token of its context */
} proa_step_shape;

enum { PROA_STEP_TERMS = 6 };

/* Zero: nothing was measured. */
typedef struct proa_step_times {
    /* of passes without [0] and with [1] prompts: sums of products of the terms, and of the terms */
    double products[2][PROA_STEP_TERMS][PROA_STEP_TERMS], sums[2][PROA_STEP_TERMS];
    int64_t count[2];
    double share[PROA_STEP_TERMS]; /* ns */
    double prompt_rows_tried;      /* the most that were measured; decays */
} proa_step_times;

/* A pass of this shape took so long. */
void proa_step_time_add(proa_step_times *t, const proa_step_shape *shape, double ns);
/* Whether enough passes of both kinds were measured. */
bool proa_step_time_is_known(const proa_step_times *t);
/* The time that a pass of this shape is expected to take, in ns. */
double proa_step_time_of(const proa_step_times *t, const proa_step_shape *shape);

#endif
