/* SPDX-License-Identifier: Apache-2.0
 * vec_avx2.c - every op but linear and pack, compiled for this level. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/attend_plan.h"
#include "kernels/cpu/overlay.h"
#include "kernels/pick_plan.h"
#include "kernels/cpu/vec_lora.h"
#include "kernels/cpu/vec_pick.h"
#include "kernels/cpu/vec_position.h"
#include "kernels/cpu/vec_rows.h"
#include "kernels/cpu/vec_state.h"
#include "kernels/cpu/vec_streams.h"

void proa_overlay_vec_avx2(proa_ops *ops)
{
    ops->embed = embed_op;
    ops->gather = gather_op;
    ops->soft_cap = soft_cap;
    ops->clip = clip_op;
    ops->xielu = xielu_op;
    ops->round_rows = round_rows;
    ops->scale = scale_op;
    ops->add = add_op;
    ops->rms_norm = rms_norm;
    ops->layer_norm = layer_norm;
    ops->group_squares = group_squares;
    ops->mix_streams = mix_streams;
    ops->match_rms = match_rms;
    ops->threshold_rows = threshold_rows;
    ops->row_moments = row_moments;
    ops->group_scale = group_scale;
    ops->act = act_in_place;
    ops->act_mul = act_mul;
    ops->rope_table = rope_table;
    ops->rope = rope_op;
    ops->kv_append = kv_append;
    ops->lora = lora_op;
    ops->conv_state = conv_state;
    ops->gated_delta = gated_delta;
    ops->selective_scan = selective_scan;
    ops->attend = proa_attend_avx2;
    ops->pick_keys = proa_pick_keys_avx2;
    ops->log_sum_exp = log_sum_exp;
    ops->top_k = top_k;
}
