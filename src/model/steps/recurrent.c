/* SPDX-License-Identifier: Apache-2.0
 * recurrent.c - steps of layers with a recurrent state: convolutions, delta rule, state spaces, their norms. */
#include "model/steps/functions.h"

#include "model/steps/registers.h"

/* What the sequences keep of this layer: `skip` numbers of each slot's part are those of another step. */
static proa_layer_state layer_state(const proa_step_frame *f, int64_t skip)
{
    const proa_config *c = &f->m->config;
    int64_t first = f->m->plan.layers[PROA_STACK_DECODER].first;
    int64_t number = proa_config_recurring(c, first, f->layer);
    return (proa_layer_state){f->host_batch->states_memory + number * proa_config_layer_state(c) + skip,
                              proa_model_state(f->m)};
}

void proa_do_conv_state(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_param *bias = proa_frame_param(f, s->w + 1);
    int64_t end = f->first + f->rows;
    proa_conv conv = {.w = proa_frame_param(f, s->w)->values, .taps = c->conv_taps, .act = c->conv_act};
    if (bias->parts) conv.bias = bias->values;
    proa_view y = proa_frame_rows(f, s->out, end),
              x = proa_view_first_columns(proa_frame_rows(f, s->in, end), y.shape[1]);
    proa_layer_state state = layer_state(f, 0);
    f->m->ctx.ops->conv_state(&f->m->ctx, y, x, &conv, &state, &f->batch->self);
}

void proa_do_scale_parts(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t widths[5];
    proa_mix_parts(widths, c);
    proa_view x = proa_frame_register(f, s->out);
    for (int64_t i = 0, at = 0; i < (int64_t)PROA_COUNT(widths); at += widths[i++]) {
        proa_view part = proa_view_cols(x, at, at + widths[i]);
        if (c->factors.parts[i] != 1)
            f->m->ctx.ops->scale(&f->m->ctx, part, part, (float)c->factors.parts[i]);
    }
}

void proa_do_gate_inputs(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    int64_t d = y.shape[1];
    f->m->ctx.ops->act_mul(&f->m->ctx, y, proa_view_cols(x, 0, d), proa_view_cols(x, d, 2 * d), PROA_ACT_NONE);
}

/* The gates are the last columns of what a recurrent layer made of its input. */
void proa_do_gate_outputs(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view gates = proa_view_cols(x, x.shape[1] - y.shape[1], x.shape[1]);
    if (c->recall_sigmoid) f->m->ctx.ops->sigmoid_mul(&f->m->ctx, y, gates);
    else f->m->ctx.ops->act_mul(&f->m->ctx, y, gates, y, c->conv_act);
}

void proa_do_gated_delta(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t end = f->first + f->rows;
    proa_view y = proa_frame_rows(f, s->out, end), x = proa_frame_rows(f, s->in, end);
    proa_delta d = {.key_heads = c->key_heads,
                    .value_heads = c->value_heads,
                    .key_dim = c->key_dim,
                    .value_dim = c->value_dim,
                    .beta_scale = c->negative_eigen ? 2 : 1,
                    .floor = (float)c->decay_floor,
                    .by_channel = c->channel_decays};
    d.rate = proa_frame_param(f, s->w)->values, d.bias = proa_frame_param(f, s->w + 1)->values;
    proa_layer_state state = layer_state(f, (c->conv_taps - 1) * x.shape[1]);
    f->m->ctx.ops->gated_delta(&f->m->ctx, y, x, proa_frame_rows(f, PROA_REG_RATES, end), &d, &state,
                               &f->batch->self);
}

/* Of Mamba-1, what makes the steps, B and C, which follow each other in PARAMS. */
void proa_do_norm_params(const proa_step_frame *f, const proa_step *s)
{
    static const proa_weight_slot slots[] = {PROA_SLOT_STEP_NORM, PROA_SLOT_B_NORM, PROA_SLOT_C_NORM};
    proa_view x = proa_frame_register(f, s->out);
    for (int64_t i = 0, at = 0; i < (int64_t)PROA_COUNT(slots); i++) {
        const proa_param *w = proa_frame_param(f, slots[i]);
        proa_view part = proa_view_cols(x, at, at + w->rows);
        f->m->ctx.ops->rms_norm(&f->m->ctx, part, part, proa_param_values(w), (float)f->m->config.params_eps);
        at += w->rows;
    }
}

/* Of Mamba-2 B and C are behind the values, and the rates behind the columns of MIX that were convolved. Linear
 * attention with fixed decays has no rates; k and q, which are B and C, are before the values. */
void proa_do_selective_scan(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const bool by_channel = s->flags & PROA_BY_CHANNEL;
    const bool fixed = !by_channel && !c->mix_rates;
    int64_t end = f->first + f->rows, values = proa_dim_size(c, PROA_DIM_RECALLED);
    proa_view y = proa_frame_rows(f, s->out, end), x = proa_frame_rows(f, s->in, end), params = x,
              rates = {.rank = 0};
    int64_t keys = c->key_heads * c->key_dim, from = fixed ? 2 * keys : 0,
            at = by_channel ? c->step_rank
                 : fixed    ? 0
                            : values;
    if (by_channel)
        params = proa_frame_rows(f, PROA_REG_PARAMS, end), rates = proa_frame_rows(f, PROA_REG_RATES, end);
    else if (!fixed)
        rates = proa_view_cols(proa_frame_rows(f, PROA_REG_MIX, end), x.shape[1], x.shape[1] + c->value_heads);
    proa_state_space p = {.groups = c->key_heads,
                          .heads = c->value_heads,
                          .state_dim = c->key_dim,
                          .value_dim = c->value_dim,
                          .least = (float)c->step_min,
                          .most = (float)c->step_max,
                          .by_channel = by_channel};
    p.rate = proa_frame_param(f, s->w)->values, p.bias = proa_frame_param(f, s->w + 1)->values;
    p.skip = proa_frame_param(f, PROA_SLOT_SKIP)->values;
    proa_layer_state state = layer_state(f, (c->conv_taps - 1) * x.shape[1]);
    f->m->ctx.ops->selective_scan(&f->m->ctx, y, proa_view_cols(x, from, from + values),
                                  proa_view_cols(params, at, at + 2 * keys), rates, &p, &state, &f->batch->self);
}

void proa_do_norm_gated(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view groups = proa_view_heads(proa_frame_register(f, s->out),
                                       c->recall_groups ? c->recall_groups : c->value_heads);
    if (c->gate_first) proa_do_gate_outputs(f, s);
    proa_frame_norm(f, groups, groups, s->w);
    if (!c->gate_first) proa_do_gate_outputs(f, s);
}

/* Of groups that several ranks have: what the columns of this one give to their means of squares. */
void proa_do_group_squares(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->group_squares(&f->m->ctx, proa_frame_register(f, s->out), proa_frame_register(f, s->in),
                                 c->first_value, c->recall_width);
}

void proa_do_group_scale(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->group_scale(&f->m->ctx, proa_frame_register(f, s->out), proa_frame_register(f, s->in),
                               proa_param_values(proa_frame_param(f, s->w)), c->first_value, c->recall_width,
                               (float)proa_norm_epsilon(c, s->w));
}

/* The same of what all ranks have, in the order of one rank. */
void proa_do_group_norm(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t all = c->recall_groups * c->recall_width;
    proa_view y = proa_frame_register(f, s->out),
              x = proa_view_first_columns(proa_frame_register(f, s->in), all);
    proa_view groups = proa_view_heads(x, c->recall_groups);
    proa_frame_norm(f, groups, groups, s->w);
    f->m->ctx.ops->scale(&f->m->ctx, y, proa_view_cols(x, c->first_value, c->first_value + y.shape[1]), 1);
}
