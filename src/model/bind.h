/* SPDX-License-Identifier: Apache-2.0
 * bind.h - finds the checkpoint's tensors, checks them, and puts them into weight slots.
 * Owner:   proa_params live in the model's arena; their data in the model's weight buffer (tables: in the mapped file).
 * Way in:  proa_bind; then proa_params_at(stack, layer, slot). */
#ifndef PROA_MODEL_BIND_H
#define PROA_MODEL_BIND_H

#include "kernels/ops.h"
#include "model/arch.h"
#include "weights/weights.h"

/* A part of a weight: rows of one tensor of the checkpoint. Vectors are matrices [rows, 1]. */
typedef struct proa_weight_part {
    proa_tensor_source source;
    const proa_weights_tensor *tensor;
    const proa_name *row;  /* of the architecture's map, which requires the tensor */
    int32_t expert, place; /* place: its number among all parts of the slot as they were bound */
    bool normalised;       /* the loader divides each row by its norm (source.factor) */
} proa_weight_part;

enum { PROA_CUT_RANGES_MAX = 5 }; /* heads of q, k, v, rates and gates */

/* The rows and columns of the whole weight of which a rank's part is made (ranks/shard.h). */
typedef struct proa_param_cut {
    int64_t row[PROA_CUT_RANGES_MAX],
        rows[PROA_CUT_RANGES_MAX]; /* [row, row + rows) of the stacked rows, one range after the other */
    int32_t ranges;                /* 0: all rows */
    int64_t col;                   /* the first column */
    int64_t matrix;                /* of experts or heads: the first one */
} proa_param_cut;

/* One weight slot of one layer. */
typedef struct proa_param {
    proa_weight_part *part; /* [parts] stacked along the rows; all parts of expert 0, then those of expert 1, ... */
    int32_t parts;          /* 0: the model has no such weight */
    int32_t cap;            /* of part */
    int64_t experts;        /* 0: not a weight of experts, or of heads */
    bool heads;             /* of heads: all are used for each row */
    proa_role role;
    int64_t rows, cols; /* of all parts stacked, of one expert; cols 0 for vectors */
    proa_param_cut cut; /* of a rank */
    bool packed;        /* the checkpoint is packed: matrix.format is what it is packed in */
    int64_t block_at;   /* where its bytes begin in the block of a packed checkpoint (proa_packed_check) */
    bool load_only;     /* read while the model is loaded; takes no memory */
    bool projected; /* kept as relative positions projected by it: values [relative_rows][rows] (relative.h) */
    bool shared; /* TABLE: uses the memory of the same slot in the other stack, which is bound to the same tensor */
    /* after loading, one of these by role */
    proa_weight matrix;
    proa_view table;
    float *values;   /* VECTOR, F32 and projected */
    proa_lora *lora; /* adapters of the matrix; NULL: it can have none */
    int64_t bytes;   /* in memory, a multiple of 64; 0 for tables that are read in the mapped file */
} proa_param;

/* All slots of one stack: param[layer * PROA_SLOT_COUNT + slot]. Slots outside of the layers have layer == layers. */
typedef struct proa_params {
    proa_param *param;
    int64_t layers;
} proa_params;

static inline proa_param *proa_params_at(const proa_params *p, int64_t layer, proa_weight_slot slot)
{
    return &p->param[layer * PROA_SLOT_COUNT + slot];
}
/* Whether its matrix is packed for products. */
static inline bool proa_param_is_matrix(const proa_param *p)
{
    bool matrix = p->role == PROA_ROLE_MATRIX || p->role == PROA_ROLE_TRANSPOSED;
    return p->parts && matrix && !p->projected && !p->load_only;
}
/* Whether it has bytes in the memory of the weights. A table that is read where the file is mapped has none. */
static inline bool proa_param_has_memory(const proa_param *p)
{
    return p->parts && !(p->role == PROA_ROLE_TABLE && p->bytes == 0) && !p->load_only;
}
/* The slot of a layer, or the stack's own if the layer has none. */
proa_param *proa_params_find(const proa_params *p, int64_t layer, proa_weight_slot slot);

/* Fills out[PROA_STACK_COUNT]. weights NULL: shapes only, without data. INVALID names a tensor that is missing,
 * has another shape, or is in no row of the name map; UNSUPPORTED one whose numbers are neither f32, f16, bf16 nor
 * encoded. c->tied becomes false if the checkpoint has a head that is not the embedding. */
PROA_MUST_CHECK proa_status proa_bind(proa_params out[PROA_STACK_COUNT], const proa_arch *arch, proa_config *c,
                                      const proa_weights *weights, proa_arena *arena, proa_err *err);

enum { PROA_LOAD_ORDERS_MAX = 4 };
/* The rows of a stored tensor as a load action takes them: those of order[0], then those of order[1], ... Returns how
 * many orders there are; 0: all rows as they are stored. rows: of the stored tensor. */
int proa_load_orders(proa_row_order order[PROA_LOAD_ORDERS_MAX], proa_load load, const proa_config *c,
                     int64_t rows);
/* Whether the tensor of a row has all experts: [experts, rows, cols]. */
bool proa_name_has_all_experts(const proa_name *row);

#endif
