/* SPDX-License-Identifier: Apache-2.0
 * reference.h - the plain table: what every other table is compared with, and what an unknown CPU runs.
 * Shapes:  as in ops.def.  Threads: as ops.h. */
#ifndef PROA_KERNELS_REFERENCE_H
#define PROA_KERNELS_REFERENCE_H

#include "kernels/ops.h"

/* Sets every entry of the table. */
void proa_reference_fill(proa_ops *ops);
#define PROA_REFERENCE_LAYOUT "plain rows 1" /* proa_ops.layout */
proa_copy_packed_fn proa_reference_copy;

/* reference_sample.c; sample works in scratch, with so many bytes for each column. */
#define PROA_SAMPLE_COLUMN_BYTES 12
proa_sample_fn proa_sample_reference;
proa_process_logits_fn proa_process_logits_reference;
proa_mask_logits_fn proa_mask_logits_reference;
proa_gather_logprobs_fn proa_gather_logprobs_reference;
proa_gather_token_ids_fn proa_gather_token_ids_reference;
proa_log_probs_fn proa_log_probs_reference;

/* The ops search and follow (reference_beam.c). */
proa_beam_step_fn proa_beam_step_reference;
proa_reorder_kv_fn proa_reorder_kv_reference;

/* linear's weights in groups (reference_groups.c): bytes of a packed weight; row n of w from a row of a source;
 * y[i] = the sum of row n + i with x [K], for at most PROA_REFERENCE_ROWS rows. */
enum { PROA_REFERENCE_ROWS = 16 };
int64_t proa_reference_group_bytes(int64_t N, int64_t K);
void proa_reference_pack_groups(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row);
void proa_reference_dot_groups(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x);
/* Row n of an int4 weight, kept as f32 numbers, from row `row` of a source (coded.h). */
void proa_reference_pack_coded(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row);
/* The ops of mixtures of experts (reference_experts.c). */
proa_route_fn proa_route_reference;
proa_experts_fn proa_experts_reference;
proa_heads_linear_fn proa_heads_linear_reference;
proa_sigmoid_mul_fn proa_sigmoid_mul_reference;
/* Low-rank adapters (reference_lora.c). */
proa_lora_fn proa_lora_reference;
proa_linear_lora_fn proa_linear_lora_reference; /* by the ops of the context's table */
proa_lora_stack_fn proa_lora_stack_reference;

/* One activation in double precision, rounded once: act's formula as PROA_ACT_LIST states it. */
float proa_act_reference(proa_act act, float x);

#endif
