/* SPDX-License-Identifier: Apache-2.0
 * table.c - the table of the reference: one function for each op. */
#include "kernels/reference/reference.h"

static const proa_decode_ops decode_ops = {.sample = proa_sample_reference,
                                           .process_logits = proa_process_logits_reference,
                                           .mask_logits = proa_mask_logits_reference,
                                           .gather_logprobs = proa_gather_logprobs_reference,
                                           .gather_token_ids = proa_gather_token_ids_reference,
                                           .beam_step = proa_beam_step_reference,
                                           .reorder_kv = proa_reorder_kv_reference,
                                           .log_probs = proa_log_probs_reference};

void proa_reference_fill(proa_ops *ops)
{
    *ops = (proa_ops){.name = "generic",
                      .isa = PROA_ISA_GENERIC,
                      .layout = PROA_REFERENCE_LAYOUT,
                      .pack_bytes = proa_pack_bytes_reference,
                      .embed = proa_embed_reference,
                      .rms_norm = proa_rms_norm_reference,
                      .layer_norm = proa_layer_norm_reference,
                      .linear = proa_linear_reference,
                      .pack = proa_pack_reference,
                      .rope_table = proa_rope_table_reference,
                      .rope = proa_rope_reference,
                      .query_scale = proa_query_scale_reference,
                      .kv_append = proa_kv_append_reference,
                      .rope_append = proa_rope_append_reference,
                      .attend = proa_attend_reference,
                      .act = proa_act_in_place_reference,
                      .act_mul = proa_act_mul_reference,
                      .route = proa_route_reference,
                      .experts = proa_experts_reference,
                      .heads_linear = proa_heads_linear_reference,
                      .conv_state = proa_conv_state_reference,
                      .gated_delta = proa_gated_delta_reference,
                      .selective_scan = proa_selective_scan_reference,
                      .sigmoid_mul = proa_sigmoid_mul_reference,
                      .lora = proa_lora_reference,
                      .soft_cap = proa_soft_cap_reference,
                      .clip = proa_clip_reference,
                      .scale = proa_scale_reference,
                      .add = proa_add_reference,
                      .gather = proa_gather_reference,
                      .unfold = proa_unfold_reference,
                      .span_mean = proa_span_mean_reference,
                      .log_sum_exp = proa_log_sum_exp_reference,
                      .top_k = proa_top_k_reference,
                      .linear_lora = proa_linear_lora_reference,
                      .lora_stack = proa_lora_stack_reference,
                      .decode = &decode_ops};
}
