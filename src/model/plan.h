/* SPDX-License-Identifier: Apache-2.0
 * plan.h - what a model will take, before anything is taken: weights as packed, and one buffer for all activations.
 * The registers' lives are read off the programs; two that are never alive together share memory. What a branch (PROA_BESIDE) touches
 * lives until it is joined. */
#ifndef PROA_MODEL_PLAN_H
#define PROA_MODEL_PLAN_H

#include "model/bind.h"

/* A program without the steps that do not apply to the configuration. */
#define PROA_PROGRAM_MAX 24
typedef struct proa_program {
    proa_step step[PROA_PROGRAM_MAX]; /* ends with PROA_STEP_END */
    int32_t count;                    /* without the END */
} proa_program;

typedef enum proa_section {
    PROA_SECTION_EMBED,
    PROA_SECTION_LAYER,
    PROA_SECTION_AFTER,
    PROA_SECTION_COUNT
} proa_section;

typedef struct proa_plan {
    proa_program program[PROA_STACK_COUNT][PROA_SECTION_COUNT];
    proa_program cross, head, pool;
    int64_t rows_max;    /* of a step */
    int64_t head_rows;   /* whose logits are fetched at once */
    int64_t chosen_rows; /* of which a step's tokens can be chosen where the model runs */
    int64_t best_rows;   /* that the head takes at once, if only ids come back */
    int64_t width[PROA_REG_COUNT], offset[PROA_REG_COUNT]; /* offset in bytes into the activations; -1: not used */
    int64_t activation_bytes;
    int64_t weight_bytes; /* matrices as packed, vectors */
    int64_t matrix_bytes; /* of these, matrices */
    int64_t layer_bytes; /* one decoder layer's (encoder-only: encoder layer's) weights: read in every step */
    int64_t step_bytes;  /* weights that one decoding step reads: all layers and the head */
    int64_t parameters;
    bool bare_head; /* the head only gathers rows of X: OUT has room for all of a step's */
    bool normed_stream; /* each layer norms the residual stream itself (BERT): what products read, and no finer, is added to */
} proa_plan;

/* plan holds the four numbers of rows. tables: embedding tables are copied too (to a device), not read in place. Sizes from
 * shapes; sets param->matrix.{format,N,K,bytes} and param->bytes. LIMIT when a product overflows. */
PROA_MUST_CHECK proa_status proa_plan_make(proa_plan *plan, proa_params params[PROA_STACK_COUNT],
                                           const proa_arch *arch, const proa_config *c, const proa_ops *ops,
                                           proa_wfmt format, bool tables, proa_err *err);

#endif
