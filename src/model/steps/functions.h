/* SPDX-License-Identifier: Apache-2.0
 * functions.h - inside steps/: the function of each step, by the file that has it.
 *
 * A function finds its registers and weights in the frame and calls one kernel, or a few. PROA_STEP_LIST (arch.h) says
 * what each step does, with its formula. */
#ifndef PROA_MODEL_STEPS_FUNCTIONS_H
#define PROA_MODEL_STEPS_FUNCTIONS_H

#include "model/steps/steps.h"

typedef void proa_step_fn(const proa_step_frame *f, const proa_step *s);

/* rows.c */
proa_step_fn proa_do_embed;
proa_step_fn proa_do_drop_masked;
proa_step_fn proa_do_rope_table;
proa_step_fn proa_do_norm;
proa_step_fn proa_do_scale;
proa_step_fn proa_do_scale_columns;
proa_step_fn proa_do_clip;
proa_step_fn proa_do_xielu;
proa_step_fn proa_do_round_rows;
proa_step_fn proa_do_add;
proa_step_fn proa_do_gate_layer;
proa_step_fn proa_do_gate_moments;
proa_step_fn proa_do_gate_sparse;
proa_step_fn proa_do_sigmoid_mul;
proa_step_fn proa_do_unfold;
proa_step_fn proa_do_block_sums;
proa_step_fn proa_do_span_mean;
proa_step_fn proa_do_gather;

/* products.c */
proa_step_fn proa_do_linear;
proa_step_fn proa_do_linear_gated;
proa_step_fn proa_do_heads_linear;
proa_step_fn proa_do_stream_linear;
proa_step_fn proa_do_route;
proa_step_fn proa_do_experts;

/* attention.c */
proa_step_fn proa_do_heads_norm;
proa_step_fn proa_do_query_scale;
proa_step_fn proa_do_gate_heads;
proa_step_fn proa_do_rope;
proa_step_fn proa_do_kv_append;
proa_step_fn proa_do_rope_append;
proa_step_fn proa_do_pick_keys;
proa_step_fn proa_do_attend;
proa_step_fn proa_do_cross_append;
proa_step_fn proa_do_cross_attend;

/* recurrent.c */
proa_step_fn proa_do_conv_state;
proa_step_fn proa_do_scale_parts;
proa_step_fn proa_do_gate_inputs;
proa_step_fn proa_do_gate_outputs;
proa_step_fn proa_do_gated_delta;
proa_step_fn proa_do_norm_params;
proa_step_fn proa_do_selective_scan;
proa_step_fn proa_do_norm_gated;
proa_step_fn proa_do_group_squares;
proa_step_fn proa_do_group_scale;
proa_step_fn proa_do_group_norm;

/* streams.c */
proa_step_fn proa_do_first_stream;
proa_step_fn proa_do_take_stream;
proa_step_fn proa_do_match_streams;
proa_step_fn proa_do_mix_streams;
proa_step_fn proa_do_correct_streams;
proa_step_fn proa_do_spread_stream;
proa_step_fn proa_do_join_streams;

/* collectives.c */
proa_step_fn proa_do_all_reduce;
proa_step_fn proa_do_gather_columns;
proa_step_fn proa_do_take_columns;
proa_step_fn proa_do_gather_inputs;
proa_step_fn proa_do_send;
proa_step_fn proa_do_recv;
proa_step_fn proa_do_broadcast;

#endif
