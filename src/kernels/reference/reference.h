/* SPDX-License-Identifier: Apache-2.0
 * reference.h - the plain table: every op as a textbook states it. All other tables are compared with it, and a CPU
 *               without AVX2 runs it. Slow is fine here, doubtful is not.
 * Shapes:  as in ops.def and decode.def.  Threads: as ops.h. */
#ifndef PROA_KERNELS_REFERENCE_REFERENCE_H
#define PROA_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/ops.h"

/* Sets every entry of the table. */
void proa_reference_fill(proa_ops *ops);

/* ---- rows.c, norm.c, act.c ---- */

proa_embed_fn proa_embed_reference;
proa_gather_fn proa_gather_reference;
proa_unfold_fn proa_unfold_reference;
proa_span_mean_fn proa_span_mean_reference;
proa_drop_masked_fn proa_drop_masked_reference;
proa_block_sums_fn proa_block_sums_reference;
proa_add_fn proa_add_reference;
proa_scale_fn proa_scale_reference;
proa_rms_norm_fn proa_rms_norm_reference;
proa_layer_norm_fn proa_layer_norm_reference;
proa_group_squares_fn proa_group_squares_reference;
proa_mix_streams_fn proa_mix_streams_reference;
proa_match_rms_fn proa_match_rms_reference;
proa_threshold_rows_fn proa_threshold_rows_reference;
proa_row_moments_fn proa_row_moments_reference;
proa_group_scale_fn proa_group_scale_reference;
proa_act_fn proa_act_in_place_reference;
proa_act_mul_fn proa_act_mul_reference;
proa_soft_cap_fn proa_soft_cap_reference;
proa_clip_fn proa_clip_reference;
proa_xielu_fn proa_xielu_reference;
proa_round_rows_fn proa_round_rows_reference;
/* One activation in double precision, rounded once: the formula of PROA_ACT_LIST. */
float proa_act_reference(proa_act act, float x);

/* ---- linear.c, groups.c ---- */

#define PROA_REFERENCE_LAYOUT "plain rows 1" /* proa_ops.layout */
proa_linear_fn proa_linear_reference;
proa_pack_fn proa_pack_reference;
int64_t proa_pack_bytes_reference(proa_wfmt format, int64_t N, int64_t K); /* proa_ops.pack_bytes */
proa_copy_packed_fn proa_reference_copy;
proa_row_scale_fn proa_reference_row_scale;

/* Weights in groups (groups.h): bytes of a packed weight; packs row `row` of a source as row n of w; y[i] = the sum of
 * row n + i of w with x [K], for `rows` rows, at most PROA_REFERENCE_ROWS. */
enum { PROA_REFERENCE_ROWS = 16 };
int64_t proa_reference_group_bytes(int64_t N, int64_t K);
void proa_reference_pack_groups(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row);
void proa_reference_dot_groups(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x);
/* Packs row `row` of a source as row n of a weight in a format of coded.h: the f32 numbers that the codes stand for. */
void proa_reference_pack_coded(const proa_weight *w, int64_t n, const proa_tensor_source *source, int64_t row);

/* ---- picked.c ---- */

proa_pick_keys_fn proa_pick_keys_reference;
proa_gather_keys_fn proa_gather_keys_reference;

/* ---- attention.c ---- */

proa_rope_table_fn proa_rope_table_reference;
proa_rope_fn proa_rope_reference;
proa_query_scale_fn proa_query_scale_reference;
proa_kv_append_fn proa_kv_append_reference;
proa_rope_append_fn proa_rope_append_reference; /* by rope and kv_append of the context's table */
proa_attend_fn proa_attend_reference;

/* ---- experts.c, lora.c ---- */

proa_route_fn proa_route_reference;
proa_experts_fn proa_experts_reference;
proa_heads_linear_fn proa_heads_linear_reference;
proa_sigmoid_mul_fn proa_sigmoid_mul_reference;
proa_lora_fn proa_lora_reference;
proa_linear_lora_fn proa_linear_lora_reference; /* by linear, lora and act of the context's table */
proa_lora_stack_fn proa_lora_stack_reference;

/* ---- state.c ---- */

proa_conv_state_fn proa_conv_state_reference;
proa_gated_delta_fn proa_gated_delta_reference;
proa_selective_scan_fn proa_selective_scan_reference;

/* ---- logits.c, sample.c, beam.c ---- */

proa_log_sum_exp_fn proa_log_sum_exp_reference;
proa_top_k_fn proa_top_k_reference;
#define PROA_SAMPLE_COLUMN_BYTES 12 /* bytes of scratch that sample needs for each column */
proa_sample_fn proa_sample_reference;
proa_process_logits_fn proa_process_logits_reference;
proa_mask_logits_fn proa_mask_logits_reference;
proa_gather_logprobs_fn proa_gather_logprobs_reference;
proa_gather_token_ids_fn proa_gather_token_ids_reference;
proa_log_probs_fn proa_log_probs_reference;
proa_beam_step_fn proa_beam_step_reference;
proa_reorder_kv_fn proa_reorder_kv_reference;

#endif
