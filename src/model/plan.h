/* SPDX-License-Identifier: Apache-2.0
 * plan.h - the memory of a model, planned before any of it is allocated: bytes of packed weights, and one buffer for
 * all
 *          activations. A register of a program (arch.h) is live from the first to the last step that uses it;
 *          registers of a forked branch (PROA_FORK) are live until the join. Registers that are never live together
 *          share memory.
 * Owner:   plain values in the model. Threads: the one that opens the model. */
#ifndef PROA_MODEL_PLAN_H
#define PROA_MODEL_PLAN_H

#include "model/format.h"

/* A program without the steps that do not apply to the configuration. */
#define PROA_PROGRAM_MAX 48
typedef struct proa_program {
    proa_step step[PROA_PROGRAM_MAX]; /* ends with PROA_STEP_END */
    int32_t count;                    /* without the END */
} proa_program;

typedef enum proa_section {
    PROA_SECTION_EMBED,
    PROA_SECTION_ENTER, /* before the layers: rows that come from the stage before (ranks/stage.h) */
    PROA_SECTION_LAYER,
    PROA_SECTION_AFTER,
    PROA_SECTION_SHARE, /* of an encoder, after its layers: all stages get its output */
    PROA_SECTION_COUNT
} proa_section;

/* Which part of a model a rank has. The `tensors` ranks of a stage share each of its layers (tensor parallelism), and
 * stages have ranges of layers (pipeline parallelism). */
typedef struct proa_rank_part {
    int32_t tensor, tensors, stage, stages; /* tensors and stages are at least 1 */
} proa_rank_part;

/* Rank i has the heads, or the inner rows of an FFN, [first[i], first[i + 1]). */
typedef struct proa_rank_share {
    int64_t first[PROA_RANKS_MAX + 1];
} proa_rank_share;

/* How the ranks of a stage share a layer. Only set where ranks exchange whole sums. */
typedef struct proa_rank_shares {
    proa_rank_share heads, other_heads, value_heads; /* of attention, of both shapes; of recurrent states */
    proa_rank_share encoder_heads, encoder_ffn;      /* if the encoder has others than the decoder */
    proa_rank_share shared_ffn;
    proa_rank_share *ffn; /* [layers], or one of all where these have one size; in the model's arena */
} proa_rank_shares;

typedef struct proa_layer_range {
    int64_t first, end;
} proa_layer_range;

typedef struct proa_plan {
    proa_program program[PROA_STACK_COUNT][PROA_SECTION_COUNT];
    proa_program cross, head, pool, fuse;
    int64_t rows_max;         /* of a step */
    int64_t block_rows;       /* of the registers of blocks */
    int64_t head_rows;        /* of logits that are copied to the host at once */
    int64_t sampled_rows;     /* that can be sampled in one step where the model runs */
    int64_t device_head_rows; /* that the head takes at once when only sampled ids come back */
    proa_rank_part part;
    proa_rank_shares shares;
    proa_layer_range layers[PROA_STACK_COUNT];             /* that this rank has */
    int64_t width[PROA_REG_COUNT], offset[PROA_REG_COUNT]; /* offset in bytes into the activations; -1: not used */
    int64_t activation_bytes;
    int64_t weight_bytes; /* matrices as packed, vectors */
    int64_t matrix_bytes; /* of these, matrices */
    int64_t step_bytes; /* weights that a decoding step of one row reads: all layers and the head, chosen experts */
    int64_t expert_bytes; /* of these, those of the experts */
    int64_t parameters;
    bool headless;      /* the head only gathers rows of X; OUT has room for all rows of a step */
    bool normed_stream; /* each layer norms X itself (BERT), so X may have the type that matrix products read */
} proa_plan;

/* The last step of a program that is not a collective; -1: none. */
int32_t proa_program_product(const proa_program *p);
/* The register with the input of the head's last matrix product, which is kept to the end of the head's program; in a
 * headless model the gathered rows of X. */
proa_reg proa_plan_hidden(const proa_plan *plan);

/* How many numbers all bound weights have. */
int64_t proa_plan_parameters(const proa_params params[PROA_STACK_COUNT], const proa_arch *arch,
                             const proa_config *c);
/* What a plan is made from. */
typedef struct proa_plan_of {
    const proa_arch *arch;
    const proa_config *config;
    const proa_ops *ops;
    const proa_formats *formats;
    bool own_tables; /* embedding tables are copied to memory too, in place of being read in the mapped file */
} proa_plan_of;
/* Makes the plan. The caller has set the four numbers of rows, the parameters, the part and the layers in *plan. Also
 * sets param->matrix.{format,N,K,bytes} and param->bytes. LIMIT if a size overflows. */
PROA_MUST_CHECK proa_status proa_plan_make(proa_plan *plan, proa_params params[PROA_STACK_COUNT],
                                           const proa_plan_of *of, proa_err *err);

#endif
