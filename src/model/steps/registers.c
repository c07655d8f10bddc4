/* SPDX-License-Identifier: Apache-2.0
 * registers.c - what a step reads and writes: registers, weights and heads as views. */
#include "model/steps/registers.h"

proa_step_frame proa_frame_make(proa_model *m, proa_stack_id stack, int64_t rows)
{
    proa_device *d = m->device;
    proa_step_frame f = {.m = m, .stack = stack, .rows = rows};
    f.narrow = d->activations ? d->activations(d, m->formats.main, rows) : PROA_DTYPE_F32;
    bool kv_fits = m->formats.kv == f.narrow ||
                   m->formats.kv == PROA_DTYPE_FP8; /* fp8 pages take 16-bit queries too */
    if (!kv_fits) f.narrow = PROA_DTYPE_F32;
    return f;
}

/* Terms of sums have few bits, so that ranks exchange half as much; but those of T5's FFN pass the range of f16. */
static proa_dtype part_dtype(const proa_step_frame *f)
{
    const proa_arch *arch = f->m->arch;
    bool large = arch->kind != PROA_KIND_DECODER && arch->norm == PROA_NORM_RMS;
    return large ? PROA_DTYPE_F32 : f->narrow;
}

static proa_dtype reg_dtype(const proa_step_frame *f, proa_reg r)
{
    switch (r) {
    case PROA_REG_PART:
    case PROA_REG_EXPERT_PART: return part_dtype(f);
    case PROA_REG_X:
    case PROA_REG_D:
    case PROA_REG_EXPERT_D:
    case PROA_REG_NARROW: return f->m->stream;
    case PROA_REG_E: return f->inputs_embeds_count ? PROA_DTYPE_F32 : f->narrow; /* as the stream */
    case PROA_REG_HN:
    case PROA_REG_HE: return f->m->hidden_wanted ? PROA_DTYPE_F32 : f->narrow; /* the host may ask for it */
    case PROA_REG_MEANS:  /* the head, a pass of other rows, reads it */
    case PROA_REG_ROUTER: /* so that roundings do not choose experts */
    case PROA_REG_EXPERT_W:
    case PROA_REG_EXPERT_IDS:
    case PROA_REG_INDEX_W: /* nor keys */
    case PROA_REG_PICKED:
    case PROA_REG_PICKED_KEYS:
    case PROA_REG_GATE:
    case PROA_REG_LAYER_INPUTS:
    case PROA_REG_LAYER_PROJECT:
    case PROA_REG_LAYER_GATE:
    case PROA_REG_STREAMS:
    case PROA_REG_STREAM_MODES:
    case PROA_REG_STREAM_COEFS:
    case PROA_REG_HEAD_STREAMS:
    case PROA_REG_HEAD_OTHERS:
    case PROA_REG_SQUARES:
    case PROA_REG_MOMENTS_PART:
    case PROA_REG_MOMENTS:
    case PROA_REG_RATES: /* a decay near 1 has few digits to lose */
    case PROA_REG_ROPE:
    case PROA_REG_LOCAL_ROPE:
    case PROA_REG_BLOCK_ROPE:
    case PROA_REG_H:
    case PROA_REG_HEADS_PART:
    case PROA_REG_HEADS_ALL:
    case PROA_REG_OUT_PART:
    case PROA_REG_OUT: return PROA_DTYPE_F32;
    default: return f->narrow;
    }
}

proa_view proa_frame_rows(const proa_step_frame *f, proa_reg r, int64_t rows)
{
    const proa_plan *p = &f->m->plan;
    PROA_DASSERT(p->offset[r] >= 0);
    return proa_view_2d(f->m->activations + p->offset[r], reg_dtype(f, r), rows, p->width[r]);
}

proa_view proa_frame_register(const proa_step_frame *f, proa_reg r)
{
    int64_t end = f->first + f->rows;
    return proa_view_rows(proa_frame_rows(f, r, end), f->first, end);
}

proa_view proa_frame_output(const proa_step_frame *f, const proa_step *s)
{
    proa_view v = proa_frame_register(f, s->out);
    int64_t half = v.shape[1] / 2;
    if (s->out != PROA_REG_PAIR || s->flags & PROA_WHOLE) return v;
    return s->flags & PROA_SECOND ? proa_view_cols(v, half, 2 * half) : proa_view_cols(v, 0, half);
}

proa_param *proa_frame_param(const proa_step_frame *f, proa_weight_slot slot)
{
    return proa_params_find(&f->m->params[f->stack], f->layer, slot);
}

proa_view proa_param_values(const proa_param *p)
{
    return p->parts ? proa_view_1d(p->values, PROA_DTYPE_F32, p->rows) : (proa_view){.rank = 0};
}

proa_view proa_view_head_range(proa_view v, int64_t first, int64_t count, int64_t dim)
{
    return proa_view_heads(proa_view_cols(v, first * dim, (first + count) * dim), count);
}

proa_view proa_view_head_columns(proa_view v, int64_t first, int64_t count)
{
    v.data = (char *)v.data + first * v.stride[2] * proa_dtype_bytes(v.dtype);
    v.shape[2] = count;
    return v;
}

proa_view proa_view_first_columns(proa_view v, int64_t count)
{
    return v.rank ? proa_view_cols(v, 0, count) : v;
}

proa_view proa_frame_dense_rows(const proa_step_frame *f, proa_reg r, int64_t width)
{
    proa_view v = proa_frame_register(f, r);
    return proa_view_2d(v.data, v.dtype, v.shape[0], width);
}

const int64_t *proa_frame_ffn_shares(const proa_step_frame *f)
{
    const proa_rank_shares *s = &f->m->plan.shares;
    if (f->stack == PROA_STACK_ENCODER && f->m->config.encoder_ffn) return s->encoder_ffn.first;
    return s->ffn[f->m->config.ffn_sizes ? f->layer : 0].first;
}

proa_view proa_frame_qkv_rows(const proa_step_frame *f, const proa_step *s, int64_t count)
{
    const proa_config *c = &f->m->config;
    proa_view v = proa_frame_rows(f, s->in, count);
    return c->attention_gate ? proa_view_cols(v, c->heads * c->head_dim, v.shape[1]) : v;
}

proa_view proa_frame_qkv(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    return proa_view_rows(proa_frame_qkv_rows(f, s, end), f->first, end);
}

proa_head_sizes proa_frame_heads(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    if (f->stack != PROA_STACK_ENCODER || !c->encoder_heads)
        return (proa_head_sizes){proa_config_heads(c, f->layer), proa_config_kv_heads(c, f->layer),
                                 proa_config_head_dim(c, f->layer)};
    return (proa_head_sizes){c->encoder_heads, c->encoder_heads, c->encoder_head_dim};
}

proa_view proa_frame_qkv_part(const proa_step_frame *f, proa_view qkv, int which)
{
    const proa_head_sizes h = proa_frame_heads(f);
    int64_t first = which == 0 ? 0 : h.heads + (which - 1) * h.kv_heads;
    return proa_view_head_range(qkv, first, which == 0 ? h.heads : h.kv_heads, h.dim);
}

/* The weights of a norm of x: [d], or one row for each head of x, if the parameter has as many. */
static proa_view norm_weights(const proa_param *p, proa_view x)
{
    proa_view w = proa_param_values(p);
    int64_t d = x.shape[x.rank - 1];
    if (x.rank == 3 && x.shape[1] > 1 && p->rows == x.shape[1] * d)
        w = proa_view_2d(w.data, w.dtype, x.shape[1], d);
    return w;
}

void proa_frame_norm(const proa_step_frame *f, proa_view y, proa_view x, proa_weight_slot slot)
{
    proa_ctx *c = &f->m->ctx;
    float eps = (float)proa_norm_epsilon(&f->m->config, slot);
    proa_view w = norm_weights(proa_frame_param(f, slot), x);
    if (f->m->arch->norm == PROA_NORM_RMS) c->ops->rms_norm(c, y, x, w, eps);
    else c->ops->layer_norm(c, y, x, w, norm_weights(proa_frame_param(f, slot + 1), x), eps);
}
