/* SPDX-License-Identifier: Apache-2.0
 * products.c - steps that multiply by weights: dense, adapted, by heads, of experts. */
#include "model/steps/functions.h"

#include "model/lora/lora.h"
#include "model/ranks/collective.h"
#include "model/steps/registers.h"

/* linear. Where rows of the pass use adapters and some adapter changes this matrix, with them. */
static void multiply_adapted(const proa_step_frame *f, proa_view y, proa_view x, proa_weight_slot slot,
                             const proa_epilogue *e)
{
    proa_ctx *c = &f->m->ctx;
    const proa_param *p = proa_frame_param(f, slot);
    if (!f->batch || !f->batch->lora_rows.count || !p->lora || !f->m->lora.changed[slot]) {
        c->ops->linear(c, y, x, &p->matrix, e);
        return;
    }
    proa_lora l = *p->lora;
    if (f->rows <= f->m->lora.sums_rows) l.sums = f->m->lora.sums;
    c->ops->linear_lora(c, y, x, &p->matrix, e, &l, &f->batch->lora_rows);
}

/* The bias of a product whose ranks have terms of one sum is added by the first of them; of one whose ranks have whole
 * sums each adds its part. */
static bool adds_bias(const proa_step_frame *f, const proa_step *s)
{
    return f->m->plan.part.tensor == 0 || f->m->config.sum_split || !proa_step_is_partial(s);
}

static void multiply_matrix(const proa_step_frame *f, const proa_step *s, proa_epilogue e)
{
    const proa_param *bias = proa_frame_param(f, s->w + 1);
    const proa_weight *w = &proa_frame_param(f, s->w)->matrix;
    const proa_config *c = &f->m->config;
    int64_t outputs = e.gated ? w->N / 2 : w->N, first = s->flags & PROA_OF_K ? c->heads * c->head_dim : 0;
    proa_view y = proa_frame_register(f, s->out);
    if (s->flags & PROA_BEHIND) first = y.shape[1] - outputs;
    if (bias->parts && adds_bias(f, s)) e.bias = bias->values;
    e.residual = proa_view_first_columns(e.residual, outputs),
    e.workspace = proa_view_first_columns(e.workspace, w->N);
    proa_view in = proa_frame_register(f, s->in), x = proa_view_first_columns(in, w->K);
    if (s->flags & PROA_OF_REST) x = proa_view_cols(in, in.shape[1] - w->K, in.shape[1]);
    const proa_observer *o = f->m->observer;
    if (o && f->m->device->host) o->see(o->context, f->m, f->stack, proa_frame_param(f, s->w), x);
    multiply_adapted(f, proa_view_cols(y, first, first + outputs), x, s->w, &e);
}

static float scaled_by_factor(float alpha, double factor)
{
    if (factor == 0) return alpha;
    return (float)((alpha == 0 ? 1.0 : (double)alpha) * factor);
}

void proa_do_linear(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view y = proa_frame_register(f, s->out);
    proa_epilogue e = {.act = s->flags & PROA_ACT ? c->act : PROA_ACT_OF_FLAGS(s->flags)};
    if (s->flags & PROA_HEAD_ACT) e.act = c->head_act;
    if (s->flags & PROA_CONV_ACT) e.act = c->conv_act;
    if (s->flags & PROA_SCALED) e.alpha = (float)c->logit_scale;
    if (s->flags & PROA_RESIDUAL) e.alpha = (float)c->residual_scale;
    if (s->flags & PROA_FACTOR) e.alpha = scaled_by_factor(e.alpha, proa_slot_factor(c, s->w));
    if (s->flags & PROA_ADD) e.residual = y;
    if (s->flags & PROA_ADD_X) e.residual = proa_frame_register(f, PROA_REG_X);
    bool adapted = f->batch && f->batch->lora_rows.count; /* adapters read what products read */
    e.feeds_product = s->flags & PROA_FEEDS_PRODUCT && !adapted;
    multiply_matrix(f, s, e);
    if (s->flags & PROA_CAPPED && c->logit_cap > 0)
        f->m->ctx.ops->soft_cap(&f->m->ctx, y, (float)c->logit_cap);
}

void proa_do_linear_gated(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_epilogue e = {.act = c->act, .gated = true, .workspace = proa_frame_register(f, PROA_REG_U)};
    if (s->flags & PROA_FACTOR) e.alpha = (float)proa_slot_factor(c, s->w);
    multiply_matrix(f, s, e);
}

/* Without KEEP the product takes the last numbers of each head: of latent keys those without position. */
void proa_do_heads_linear(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_weight *w = &proa_frame_param(f, s->w)->matrix;
    int64_t kept = s->flags & PROA_KEEP ? c->qk_rope : 0;
    proa_view x = proa_view_heads(proa_frame_register(f, s->in), c->heads);
    proa_view y = proa_view_heads(
        proa_view_first_columns(proa_frame_register(f, s->out), c->heads * (kept + w->N)), c->heads);
    x = proa_view_head_columns(x, x.shape[2] - w->K - kept, w->K + kept);
    f->m->ctx.ops->heads_linear(&f->m->ctx, y, x, w, kept);
}

void proa_do_stream_linear(const proa_step_frame *f, const proa_step *s)
{
    int64_t hidden = f->m->config.hidden, at = ((int64_t)s->w - PROA_SLOT_STREAM_OUT_1) / 2;
    proa_view x = proa_frame_register(f, s->in), y = proa_frame_register(f, s->out);
    const proa_epilogue e = {.act = PROA_ACT_NONE};
    f->m->ctx.ops->linear(&f->m->ctx, proa_view_cols(y, at * hidden, (at + 1) * hidden),
                          proa_view_cols(x, (at + 1) * hidden, (at + 2) * hidden),
                          &proa_frame_param(f, s->w)->matrix, &e);
}

void proa_do_route(const proa_step_frame *f, const proa_step *s)
{
    proa_router r = f->m->config.router;
    const proa_param *correction = proa_frame_param(f, s->w);
    const proa_param *scales = proa_frame_param(f, PROA_SLOT_EXPERT_SCALES);
    if (correction->parts) r.correction = correction->values;
    if (scales->parts) r.scales = scales->values;
    f->m->ctx.ops->route(&f->m->ctx, proa_frame_register(f, s->out),
                         proa_frame_register(f, PROA_REG_EXPERT_IDS).data, proa_frame_register(f, s->in), &r);
}

void proa_do_experts(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_param *up_bias = proa_frame_param(f, PROA_SLOT_EXPERT_UP_B),
                     *down_bias = proa_frame_param(f, PROA_SLOT_EXPERT_DOWN_B),
                     *bias = proa_frame_param(f, PROA_SLOT_EXPERT_BIAS);
    proa_view y = proa_view_first_columns(proa_frame_register(f, s->out),
                                          proa_frame_param(f, PROA_SLOT_EXPERT_DOWN)->matrix.N);
    proa_experts e = {.up = &proa_frame_param(f, s->w)->matrix,
                      .down = &proa_frame_param(f, PROA_SLOT_EXPERT_DOWN)->matrix};
    e.up_bias = up_bias->parts ? up_bias->values : NULL,
    e.down_bias = down_bias->parts && (adds_bias(f, s) || c->own_experts) ? down_bias->values : NULL;
    e.first = (int32_t)c->first_expert, e.all = c->own_experts ? (int32_t)c->experts : 0;
    e.act = c->act, e.gated = c->gated;
    e.limit = (float)c->expert_limit, e.offset = (float)c->expert_offset;
    e.bias = bias->parts && adds_bias(f, s) ? bias->values : NULL;
    e.scales_inputs = s->flags & PROA_INPUTS;
    if (s->flags & PROA_ADD) e.residual = y;
    if (s->flags & PROA_ADD_X) e.residual = proa_frame_register(f, PROA_REG_X);
    f->m->ctx.ops->experts(&f->m->ctx, y, proa_frame_register(f, s->in),
                           proa_frame_register(f, PROA_REG_EXPERT_W),
                           proa_frame_register(f, PROA_REG_EXPERT_IDS).data, &e);
}
