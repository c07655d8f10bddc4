/* SPDX-License-Identifier: Apache-2.0
 * steps.c - the table of steps, and the loop over a program. */
#include "model/steps/steps.h"

#include "base/clock.h"
#include "model/steps/functions.h"
#include "model/trace.h"

/* A device has kernels of its own for few rows: their launches overlap, and they leave memory bandwidth that the
 * weights of another branch can use. */
enum { FEW_ROWS_MAX = 16 };

static proa_step_fn *const steps[PROA_STEP_COUNT] = {
    [PROA_STEP_EMBED] = proa_do_embed,
    [PROA_STEP_ROPE_TABLE] = proa_do_rope_table,
    [PROA_STEP_NORM] = proa_do_norm,
    [PROA_STEP_HEADS_NORM] = proa_do_heads_norm,
    [PROA_STEP_LINEAR] = proa_do_linear,
    [PROA_STEP_LINEAR_GATED] = proa_do_linear_gated,
    [PROA_STEP_QUERY_SCALE] = proa_do_query_scale,
    [PROA_STEP_CLIP] = proa_do_clip,
    [PROA_STEP_XIELU] = proa_do_xielu,
    [PROA_STEP_ROUND_ROWS] = proa_do_round_rows,
    [PROA_STEP_SCALE] = proa_do_scale,
    [PROA_STEP_SCALE_COLUMNS] = proa_do_scale_columns,
    [PROA_STEP_ROPE] = proa_do_rope,
    [PROA_STEP_KV_APPEND] = proa_do_kv_append,
    [PROA_STEP_ROPE_APPEND] = proa_do_rope_append,
    [PROA_STEP_PICK_KEYS] = proa_do_pick_keys,
    [PROA_STEP_ATTEND] = proa_do_attend,
    [PROA_STEP_GATE_HEADS] = proa_do_gate_heads,
    [PROA_STEP_CONV_STATE] = proa_do_conv_state,
    [PROA_STEP_SCALE_PARTS] = proa_do_scale_parts,
    [PROA_STEP_GATE_INPUTS] = proa_do_gate_inputs,
    [PROA_STEP_GATE_OUTPUTS] = proa_do_gate_outputs,
    [PROA_STEP_GATED_DELTA] = proa_do_gated_delta,
    [PROA_STEP_NORM_PARAMS] = proa_do_norm_params,
    [PROA_STEP_SELECTIVE_SCAN] = proa_do_selective_scan,
    [PROA_STEP_NORM_GATED] = proa_do_norm_gated,
    [PROA_STEP_GROUP_SQUARES] = proa_do_group_squares,
    [PROA_STEP_GROUP_SCALE] = proa_do_group_scale,
    [PROA_STEP_GROUP_NORM] = proa_do_group_norm,
    [PROA_STEP_UNFOLD] = proa_do_unfold,
    [PROA_STEP_SPAN_MEAN] = proa_do_span_mean,
    [PROA_STEP_DROP_MASKED] = proa_do_drop_masked,
    [PROA_STEP_BLOCK_SUMS] = proa_do_block_sums,
    [PROA_STEP_CROSS_APPEND] = proa_do_cross_append,
    [PROA_STEP_CROSS_ATTEND] = proa_do_cross_attend,
    [PROA_STEP_HEADS_LINEAR] = proa_do_heads_linear,
    [PROA_STEP_ROUTE] = proa_do_route,
    [PROA_STEP_EXPERTS] = proa_do_experts,
    [PROA_STEP_GATE_LAYER] = proa_do_gate_layer,
    [PROA_STEP_GATE_MOMENTS] = proa_do_gate_moments,
    [PROA_STEP_GATE_SPARSE] = proa_do_gate_sparse,
    [PROA_STEP_ADD] = proa_do_add,
    [PROA_STEP_FIRST_STREAM] = proa_do_first_stream,
    [PROA_STEP_TAKE_STREAM] = proa_do_take_stream,
    [PROA_STEP_MATCH_STREAMS] = proa_do_match_streams,
    [PROA_STEP_MIX_STREAMS] = proa_do_mix_streams,
    [PROA_STEP_CORRECT_STREAMS] = proa_do_correct_streams,
    [PROA_STEP_SPREAD_STREAM] = proa_do_spread_stream,
    [PROA_STEP_STREAM_LINEAR] = proa_do_stream_linear,
    [PROA_STEP_JOIN_STREAMS] = proa_do_join_streams,
    [PROA_STEP_SIGMOID_MUL] = proa_do_sigmoid_mul,
    [PROA_STEP_GATHER] = proa_do_gather,
    [PROA_STEP_ALL_REDUCE] = proa_do_all_reduce,
    [PROA_STEP_GATHER_COLUMNS] = proa_do_gather_columns,
    [PROA_STEP_GATHER_INPUTS] = proa_do_gather_inputs,
    [PROA_STEP_TAKE_COLUMNS] = proa_do_take_columns,
    [PROA_STEP_SEND] = proa_do_send,
    [PROA_STEP_RECV] = proa_do_recv,
    [PROA_STEP_BROADCAST] = proa_do_broadcast,
};

/* A step of the rows of blocks: those of the blocks of the frame's rows. */
static void run_of_blocks(const proa_step_frame *f, const proa_step *s)
{
    proa_step_frame blocks = *f;
    int64_t block = f->m->config.side_block;
    blocks.first = f->first / block;
    blocks.rows = (f->first + f->rows) / block - blocks.first;
    if (blocks.rows > 0) steps[s->op](&blocks, s);
}

void proa_frame_run(const proa_step_frame *f, const proa_program *program)
{
    proa_device *d = f->m->device;
    /* forked steps pay only for few rows */
    bool branches = d->branch_begin && f->rows <= FEW_ROWS_MAX, forked = false;
    for (const proa_step *s = program->step; s->op != PROA_STEP_END; s++) {
        if (forked && s->flags & PROA_JOIN) d->branch_join(d), forked = false;
        if (s->flags & PROA_CONDITIONS_BY_LAYER && !proa_step_applies(s, &f->m->config, f->layer)) continue;
        if (branches && s->flags & PROA_FORK) d->branch_begin(d), forked = true;
        int64_t begin = f->m->trace ? proa_clock_ns() : 0;
        if (s->flags & PROA_OF_BLOCKS && s->op != PROA_STEP_ATTEND) run_of_blocks(f, s);
        else steps[s->op](f, s);
        if (f->m->trace) proa_step_trace_add(f->m->trace, s, proa_clock_ns() - begin);
        if (branches && s->flags & PROA_FORK) d->branch_end(d);
    }
}
