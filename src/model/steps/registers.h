/* SPDX-License-Identifier: Apache-2.0
 * registers.h - inside steps/: what a step reads and writes, as views of registers and weights of its frame.
 *
 * The views belong to the model and hold until the frame changes. Their rows are those of the frame; where a count is
 * given, rows [0, count) of the pass. */
#ifndef PROA_MODEL_STEPS_REGISTERS_H
#define PROA_MODEL_STEPS_REGISTERS_H

#include "model/steps/steps.h"

/* The heads of self-attention in this layer. Layers may have heads of two shapes, and an encoder may have other heads
 * than its decoder, of the same columns. */
typedef struct proa_head_sizes {
    int64_t heads, kv_heads, dim;
} proa_head_sizes;

proa_head_sizes proa_frame_heads(const proa_step_frame *f);

/* Where a step writes: its register, or one of the two rows of PAIR. */
proa_view proa_frame_output(const proa_step_frame *f, const proa_step *s);
/* The weights of a slot in the frame's layer; `parts` of it is 0 where the model has none. */
proa_param *proa_frame_param(const proa_step_frame *f, proa_weight_slot slot);
/* The values of a vector, [rows] in f32; of rank 0 where the model has none. */
proa_view proa_param_values(const proa_param *p);

/* Columns of QKV or CKV as heads: [rows, count, dim]. */
proa_view proa_view_head_range(proa_view v, int64_t first, int64_t count, int64_t dim);
/* Columns [first, first + count) of each head of [rows, heads, dim]. */
proa_view proa_view_head_columns(proa_view v, int64_t first, int64_t count);
/* The first columns, where a register is as wide as its widest use. A view of rank 0 stays one. */
proa_view proa_view_first_columns(proa_view v, int64_t count);
/* [rows, width] of a register without gaps between the rows, as collectives want them. */
proa_view proa_frame_dense_rows(const proa_step_frame *f, proa_reg r, int64_t width);

/* Rank i has rows [first[i], first[i + 1]) of the dense FFN of this layer (proa_rank_shares). */
const int64_t *proa_frame_ffn_shares(const proa_step_frame *f);

/* q, k and v of QKV side by side, behind the gates of attention if the model has them. */
proa_view proa_frame_qkv_rows(const proa_step_frame *f, const proa_step *s, int64_t count);
/* The same for the rows of this frame. */
proa_view proa_frame_qkv(const proa_step_frame *f, const proa_step *s);
/* q (0), k (1) or v (2) of these columns, as heads. */
proa_view proa_frame_qkv_part(const proa_step_frame *f, proa_view qkv, int which);

/* y = norm(x) with the architecture's kind of norm and the weights of a slot (its bias is the next one): [rows, d], or
 * [rows, heads, d] with one row of weights for all heads or for each. */
void proa_frame_norm(const proa_step_frame *f, proa_view y, proa_view x, proa_weight_slot slot);

#endif
