/* SPDX-License-Identifier: Apache-2.0
 * bind.h - finds the checkpoint's tensors, checks them, and puts them into weight slots.
 * Owner:   proa_params live in the model's arena; their data in the model's weight buffer (tables: in the mapped file).
 * Way in:  proa_bind; then proa_params_at(stack, layer, slot). */
#ifndef PROA_MODEL_BIND_H
#define PROA_MODEL_BIND_H

#include "model/arch.h"
#include "weights/weights.h"

#define PROA_PARTS_MAX 3 /* q, k, v of one fused matrix */

/* One weight slot of one layer. */
typedef struct proa_param {
    int32_t parts; /* 0: the model has no such weight */
    proa_role role;
    int64_t rows, cols; /* of all parts stacked; cols 0 for vectors */
    float plus;         /* VECTOR: added to each number at load */
    bool shared; /* TABLE: uses the memory of the same slot in the other stack, which is bound to the same tensor */
    const proa_weights_tensor *tensor[PROA_PARTS_MAX];
    proa_view part[PROA_PARTS_MAX]; /* [rows, cols] in the mapped file, transposed if the role says so */
    /* after loading, one of these by role */
    proa_weight matrix;
    float *values; /* VECTOR and F32 */
    int64_t bytes; /* in memory, a multiple of 64; 0 for tables that are read in the mapped file */
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
/* The slot of a layer, or the stack's own if the layer has none. */
proa_param *proa_params_find(const proa_params *p, int64_t layer, proa_weight_slot slot);

/* Fills out[PROA_STACK_COUNT]. weights NULL: shapes only, without data. INVALID names a tensor that is missing,
 * has another shape, or is in no row of the name map; UNSUPPORTED one whose dtype is not f32, f16 or bf16. */
PROA_MUST_CHECK proa_status proa_bind(proa_params out[PROA_STACK_COUNT], const proa_arch *arch,
                                      const proa_config *c, const proa_weights *weights, proa_arena *arena,
                                      proa_err *err);

#endif
