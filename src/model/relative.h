/* SPDX-License-Identifier: Apache-2.0
 * relative.h - tables of relative positions that meet the query and the key (proa_relative in kernels/op_attention.h),
 * for DeBERTa and XLNet. What a row of these tables is depends on weights alone, so they are projected once, when the
 * model is loaded, and not in each pass.
 * Owner:   the model; the projected tables are parameters with PROA_PROJECTED.
 * Way in:  proa_relative_begin, then proa_relative_project for each such parameter, then proa_relative_end. */
#ifndef PROA_MODEL_RELATIVE_H
#define PROA_MODEL_RELATIVE_H

#include "model/model.h"

/* The bucket of DeBERTa's relative positions (He et al. 2021), of distance = q_pos - k_pos: distances up to half of
 * `buckets` are their own, farther ones grow with the logarithm up to `buckets` - 1 at distance `most` - 1. In float32,
 * as transformers' make_log_bucket_position. 2 <= buckets, buckets / 2 + 1 < most. */
int32_t proa_relative_bucket(int32_t distance, int32_t buckets, int32_t most);
/* Distances that inputs of c->context tokens have: up to this to either side. */
static inline int64_t proa_relative_reach(const proa_config *c)
{
    return c->context - 1;
}
/* Rows of the projected tables: different positions among these distances. At most 2 * reach + 1. */
int64_t proa_relative_rows(const proa_config *c);
/* Makes the positions that are projected, and m->relative_row on the device. Nothing if the model has none. */
void proa_relative_begin(proa_model *m);
/* Projects them with the parts of `param`, whose bias is the next slot: param->values [rows][param->rows] in f32. */
void proa_relative_project(proa_model *m, proa_param *param);
void proa_relative_end(proa_model *m);
/* What attention needs of them in a layer; false: the model has none. */
bool proa_relative_of_layer(const proa_model *m, proa_stack_id stack, int64_t layer, proa_relative *out);

#endif
