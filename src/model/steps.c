/* SPDX-License-Identifier: Apache-2.0
 * steps.c - what each step of a program does: it finds registers and weights, and calls the kernel. */
#include "model/steps.h"

#include "base/checked.h"
#include "base/clock.h"
#include "model/lora/lora.h"
#include "model/ranks/collective.h"
#include "model/ranks/stage.h"
#include "model/relative.h"
#include "model/trace.h"
#include <math.h>

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
    case PROA_REG_PART: return part_dtype(f);
    case PROA_REG_X:
    case PROA_REG_D:
    case PROA_REG_EXPERT_D: return f->m->stream;
    case PROA_REG_E: return f->inputs_embeds_count ? PROA_DTYPE_F32 : f->narrow; /* as the stream */
    case PROA_REG_HN:
    case PROA_REG_HE: return f->m->hidden_wanted ? PROA_DTYPE_F32 : f->narrow; /* the host may ask for it */
    case PROA_REG_MEANS:  /* the head, a pass of other rows, reads it */
    case PROA_REG_ROUTER: /* so that roundings do not choose experts */
    case PROA_REG_EXPERT_W:
    case PROA_REG_EXPERT_IDS:
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

/* Where a step writes that makes one of the two rows of PAIR, or a register. */
static proa_view output_view(const proa_step_frame *f, const proa_step *s)
{
    proa_view v = proa_frame_register(f, s->out);
    int64_t half = v.shape[1] / 2;
    if (s->out != PROA_REG_PAIR) return v;
    return s->flags & PROA_SECOND ? proa_view_cols(v, half, 2 * half) : proa_view_cols(v, 0, half);
}

static proa_param *layer_param(const proa_step_frame *f, proa_weight_slot slot)
{
    return proa_params_find(&f->m->params[f->stack], f->layer, slot);
}

static proa_view param_values(const proa_param *p)
{
    return p->parts ? proa_view_1d(p->values, PROA_DTYPE_F32, p->rows) : (proa_view){.rank = 0};
}

/* Columns of QKV or CKV as [rows, count, dim]. */
static proa_view head_range(proa_view v, int64_t first, int64_t count, int64_t dim)
{
    return proa_view_heads(proa_view_cols(v, first * dim, (first + count) * dim), count);
}

/* Numbers [first, first + count) of each head. */
static proa_view head_columns(proa_view v, int64_t first, int64_t count)
{
    v.data = (char *)v.data + first * v.stride[2] * proa_dtype_bytes(v.dtype);
    v.shape[2] = count;
    return v;
}

/* The rows of q, k and v of QKV, which gates of attention may come before. */
static proa_view qkv_rows(const proa_step_frame *f, const proa_step *s, int64_t rows)
{
    const proa_config *c = &f->m->config;
    proa_view v = proa_frame_rows(f, s->in, rows);
    return c->attention_gate ? proa_view_cols(v, c->heads * c->head_dim, v.shape[1]) : v;
}

/* The same for the rows of this frame. */
static proa_view qkv_register(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    return proa_view_rows(qkv_rows(f, s, end), f->first, end);
}

/* Of self-attention in this layer: layers may have heads of two shapes, and an encoder other heads than its decoder, of
 * the same columns. */
typedef struct head_sizes {
    int64_t heads, kv_heads, dim;
} head_sizes;

static head_sizes self_heads(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    if (f->stack != PROA_STACK_ENCODER || !c->encoder_heads)
        return (head_sizes){c->heads, proa_config_kv_heads(c, f->layer), proa_config_head_dim(c, f->layer)};
    return (head_sizes){c->encoder_heads, c->encoder_heads, c->heads * c->head_dim / c->encoder_heads};
}

/* q (0), k (1) or v (2) of QKV, as heads. */
static proa_view qkv_part(const proa_step_frame *f, proa_view qkv, int which)
{
    const head_sizes h = self_heads(f);
    int64_t first = which == 0 ? 0 : h.heads + (which - 1) * h.kv_heads;
    return head_range(qkv, first, which == 0 ? h.heads : h.kv_heads, h.dim);
}

/* The heads that rope rotates: q, and k if the layer makes it. */
static proa_view rotated_heads(const proa_step_frame *f, proa_view qkv)
{
    const head_sizes h = self_heads(f);
    int64_t keys = proa_config_owns_kv(&f->m->config, f->layer) ? h.kv_heads : 0;
    return head_range(qkv, 0, h.heads + keys, h.dim);
}

/* Gemma's is rounded to the embedding table's type, in which transformers keeps it; with --dtype f32 that is f32. */
static float embed_scale(const proa_step_frame *f, const proa_step *s, proa_dtype table)
{
    const proa_config *c = &f->m->config;
    float scale = (float)(s->w == PROA_SLOT_LAYER_TOKENS ? c->layer_embed_scale : c->embed_scale);
    uint16_t narrow;
    if (!(s->flags & PROA_SCALED)) return 1;
    bool wide = f->m->formats.given && f->m->formats.main == PROA_WFMT_F32;
    if (wide || table == PROA_DTYPE_F32 || s->flags & PROA_EXACT) return scale;
    proa_from_f32(&narrow, table, &scale, 1);
    proa_to_f32(&scale, &narrow, table, 1);
    return scale;
}

void proa_frame_upload_embeds(const proa_step_frame *f, proa_reg r, bool of_table, float scale)
{
    proa_model *m = f->m;
    for (int64_t i = 0; i < f->inputs_embeds_count; i++) {
        const proa_inputs_embeds *e = &f->inputs_embeds[i];
        if (e->of_table != of_table) continue;
        proa_view rows = proa_view_rows(proa_frame_register(f, r), e->row, e->row + e->count);
        if (e->on_device) {
            proa_view values = proa_view_2d((void *)e->values, PROA_DTYPE_F32, e->count, rows.shape[1]);
            m->ctx.ops->scale(&m->ctx, rows, values, scale);
            continue;
        }
        m->device->upload(m->device, rows.data, e->values, e->count * rows.shape[1] * (int64_t)sizeof(float));
        if (scale != 1) m->ctx.ops->scale(&m->ctx, rows, rows, scale);
    }
}

static void do_embed(const proa_step_frame *f, const proa_step *s)
{
    static const int32_t zeros[PROA_STEP_TOKENS_MAX];
    proa_param *p = layer_param(f, s->w);
    const int32_t *ids = s->flags & PROA_OF_POS ? f->batch->positions : f->batch->ids;
    if (s->flags & PROA_OF_TYPE) ids = f->batch->types ? f->batch->types : zeros;
    proa_ctx *c = &f->m->ctx;
    float scale = embed_scale(f, s, p->table.dtype);
    proa_view table = p->table;
    if (s->flags & PROA_OF_POS) table = proa_view_rows(table, f->m->config.position_offset, table.shape[0]);
    if (s->flags & PROA_OF_NONE) table.stride[0] = 0; /* the first row, whatever the id */
    c->ops->embed(c, output_view(f, s), table, ids, scale, s->flags & PROA_ADD);
    if (s->w == PROA_SLOT_TOKENS)
        proa_frame_upload_embeds(f, s->out, true, s->flags & PROA_INPUTS ? scale : 1);
}

static void do_drop_masked(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->drop_masked(&f->m->ctx, proa_frame_rows(f, s->out, f->first + f->rows), f->batch->ids,
                               &f->batch->self, (int32_t)c->mask_id, (float)c->mask_keep);
}

static void do_rope_table(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *c = &f->m->ctx;
    const proa_rope_freqs *freqs = s->out == PROA_REG_LOCAL_ROPE ? &f->m->local_rope : &f->m->rope;
    proa_rope_freqs stored = *freqs;
    if (s->w == PROA_SLOT_INV_FREQ && layer_param(f, s->w)->parts)
        stored.inv_freq = layer_param(f, s->w)->values, freqs = &stored;
    const int32_t *positions = s->flags & PROA_BLOCK ? f->batch->block_positions : f->batch->positions;
    c->ops->rope_table(c, proa_frame_register(f, s->out), positions, f->batch->lengths, freqs);
}

/* The weights of a norm of x: [d], or one row for each head of x, if the parameter has as many. */
static proa_view norm_weights(const proa_param *p, proa_view x)
{
    proa_view w = param_values(p);
    int64_t d = x.shape[x.rank - 1];
    if (x.rank == 3 && x.shape[1] > 1 && p->rows == x.shape[1] * d)
        w = proa_view_2d(w.data, w.dtype, x.shape[1], d);
    return w;
}

static void norm_rows(const proa_step_frame *f, proa_view y, proa_view x, proa_weight_slot slot)
{
    proa_ctx *c = &f->m->ctx;
    float eps = (float)f->m->config.norm_eps;
    proa_view w = norm_weights(layer_param(f, slot), x);
    if (f->m->arch->norm == PROA_NORM_RMS) c->ops->rms_norm(c, y, x, w, eps);
    else c->ops->layer_norm(c, y, x, w, norm_weights(layer_param(f, slot + 1), x), eps);
}

static void do_norm(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = output_view(f, s), x = proa_frame_register(f, s->in), normed = s->flags & PROA_ADD ? x : y;
    int64_t width = layer_param(f, s->w)->rows, groups = width ? x.shape[1] / width : 1;
    if (groups > 1) norm_rows(f, proa_view_heads(normed, groups), proa_view_heads(x, groups), s->w);
    else norm_rows(f, normed, x, s->w);
    if (s->flags & PROA_ADD) f->m->ctx.ops->add(&f->m->ctx, y, y, x);
}

/* Rows of a register that is as wide as its widest use, without gaps between them. */
static proa_view dense_rows(const proa_step_frame *f, proa_reg r, int64_t width)
{
    proa_view v = proa_frame_register(f, r);
    return proa_view_2d(v.data, v.dtype, v.shape[0], width);
}

/* A norm of all heads of q or k as one row, of which this rank has x: every rank gathers and norms the whole row. */
static void norm_heads_of_ranks(const proa_step_frame *f, proa_view x, proa_weight_slot slot)
{
    proa_ctx *c = &f->m->ctx;
    int64_t width = x.shape[1], first = f->m->plan.part.tensor * width;
    proa_view part = dense_rows(f, PROA_REG_HEADS_PART, width);
    proa_view all = dense_rows(f, PROA_REG_HEADS_ALL, width * f->m->plan.part.tensors);
    c->ops->scale(c, part, x, 1);
    f->m->comm->gather_columns(f->m->comm, all, part);
    norm_rows(f, all, all, slot);
    c->ops->scale(c, x, proa_view_cols(all, first, first + width), 1);
}

static void do_heads_norm(const proa_step_frame *f, const proa_step *s)
{
    const head_sizes h = self_heads(f);
    bool k = s->flags & PROA_OF_K, v = s->flags & PROA_OF_V;
    int64_t dim = h.dim, count = k || v ? h.kv_heads : h.heads;
    int64_t first = (k || v ? h.heads + (v ? count : 0) : 0) * dim;
    proa_view x = proa_view_cols(qkv_register(f, s), first, first + count * dim);
    if (s->flags & PROA_WHOLE && f->m->comm) {
        norm_heads_of_ranks(f, x, s->w);
        return;
    }
    if (!(s->flags & PROA_WHOLE)) {
        /* of latent keys those without position */
        int64_t normed = proa_min64(layer_param(f, s->w)->rows, dim);
        x = head_columns(proa_view_heads(x, count), dim - normed, normed);
    }
    norm_rows(f, x, x, s->w);
}

/* The columns of a register that a product has: some are as wide as their widest use. */
static proa_view first_columns(proa_view v, int64_t count)
{
    return v.rank ? proa_view_cols(v, 0, count) : v;
}

/* A device has kernels of its own for few rows: their launches overlap, and they leave memory bandwidth that the
 * weights of another branch can use. */
enum { FEW_ROWS_MAX = 16 };

/* linear. Where rows of the pass use adapters and some adapter changes this matrix, with them. */
static void multiply_adapted(const proa_step_frame *f, proa_view y, proa_view x, proa_weight_slot slot,
                             const proa_epilogue *e)
{
    proa_ctx *c = &f->m->ctx;
    const proa_param *p = layer_param(f, slot);
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
    const proa_param *bias = layer_param(f, s->w + 1);
    const proa_weight *w = &layer_param(f, s->w)->matrix;
    const proa_config *c = &f->m->config;
    int64_t outputs = e.gated ? w->N / 2 : w->N, first = s->flags & PROA_OF_K ? c->heads * c->head_dim : 0;
    if (s->flags & PROA_BEHIND) first = c->hidden;
    proa_view y = proa_frame_register(f, s->out);
    if (bias->parts && adds_bias(f, s)) e.bias = bias->values;
    e.residual = first_columns(e.residual, outputs), e.workspace = first_columns(e.workspace, w->N);
    proa_view x = first_columns(proa_frame_register(f, s->in), w->K);
    const proa_observer *o = f->m->observer;
    if (o && f->m->device->host) o->see(o->context, f->m, f->stack, layer_param(f, s->w), x);
    multiply_adapted(f, proa_view_cols(y, first, first + outputs), x, s->w, &e);
}

static float scaled_by_factor(float alpha, double factor)
{
    if (factor == 0) return alpha;
    return (float)((alpha == 0 ? 1.0 : (double)alpha) * factor);
}

static void do_linear(const proa_step_frame *f, const proa_step *s)
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

static void do_linear_gated(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_epilogue e = {.act = c->act, .gated = true, .workspace = proa_frame_register(f, PROA_REG_U)};
    if (s->flags & PROA_FACTOR) e.alpha = (float)proa_slot_factor(c, s->w);
    multiply_matrix(f, s, e);
}

static void do_scale(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, output_view(f, s), proa_frame_register(f, s->in),
                         (float)f->m->config.stream_scale);
}

/* The weights are a gate of which all rows have the same. */
static void do_scale_columns(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view w = {.data = layer_param(f, s->w)->values,
                   .dtype = PROA_DTYPE_F32,
                   .rank = 2,
                   .shape = {y.shape[0], y.shape[1]},
                   .stride = {0, 1}};
    PROA_DASSERT(y.dtype == PROA_DTYPE_F32 && x.dtype == PROA_DTYPE_F32);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, w, x, PROA_ACT_NONE);
}

/* Skipped where no row of the pass has a factor other than 1: context_max is that of the longest span, or more; 0: it
 * was not counted. */
static void do_query_scale(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t longest = f->batch->self.context_max;
    if (longest > 0 && longest - 1 + c->query_scale.offset < c->query_scale.length) return;
    proa_view q = proa_view_cols(qkv_register(f, s), 0, c->heads * c->head_dim);
    f->m->ctx.ops->query_scale(&f->m->ctx, q, f->batch->positions + f->first, &c->query_scale);
}

static void do_clip(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->clip(&f->m->ctx, proa_frame_register(f, s->out), (float)f->m->config.qkv_clip);
}

static void do_xielu(const proa_step_frame *f, const proa_step *s)
{
    const int64_t four = 4;
    proa_view a = proa_view_of((void *)layer_param(f, s->w)->values, PROA_DTYPE_F32, 1, &four);
    f->m->ctx.ops->xielu(&f->m->ctx, proa_frame_register(f, s->out), a);
}

/* The cosines and sines of this layer. */
static proa_view rope_of_layer(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    bool local = c->local_rope.theta > 0 && proa_config_window(c, f->layer) > 0;
    return proa_frame_register(f, local ? PROA_REG_LOCAL_ROPE : PROA_REG_ROPE);
}

/* Without KEEP the product takes the last numbers of each head: of latent keys those without position. */
static void do_heads_linear(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_weight *w = &layer_param(f, s->w)->matrix;
    int64_t kept = s->flags & PROA_KEEP ? c->qk_rope : 0;
    proa_view x = proa_view_heads(proa_frame_register(f, s->in), c->heads);
    proa_view y = proa_view_heads(first_columns(proa_frame_register(f, s->out), c->heads * (kept + w->N)),
                                  c->heads);
    x = head_columns(x, x.shape[2] - w->K - kept, w->K + kept);
    f->m->ctx.ops->heads_linear(&f->m->ctx, y, x, w, kept);
}

static void do_route(const proa_step_frame *f, const proa_step *s)
{
    proa_router r = f->m->config.router;
    const proa_param *correction = layer_param(f, s->w);
    const proa_param *scales = layer_param(f, PROA_SLOT_EXPERT_SCALES);
    if (correction->parts) r.correction = correction->values;
    if (scales->parts) r.scales = scales->values;
    f->m->ctx.ops->route(&f->m->ctx, proa_frame_register(f, s->out),
                         proa_frame_register(f, PROA_REG_EXPERT_IDS).data, proa_frame_register(f, s->in), &r);
}

static void do_experts(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_param *up_bias = layer_param(f, PROA_SLOT_EXPERT_UP_B),
                     *down_bias = layer_param(f, PROA_SLOT_EXPERT_DOWN_B),
                     *bias = layer_param(f, PROA_SLOT_EXPERT_BIAS);
    proa_view y = first_columns(proa_frame_register(f, s->out), layer_param(f, PROA_SLOT_EXPERT_DOWN)->matrix.N);
    proa_experts e = {.up = &layer_param(f, s->w)->matrix,
                      .down = &layer_param(f, PROA_SLOT_EXPERT_DOWN)->matrix};
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

static void do_gate_layer(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view own = proa_view_cols(x, f->layer * c->layer_input, (f->layer + 1) * c->layer_input);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, y, own, c->act);
}

/* The gates are in the first columns of in, what they multiply is behind them. */
static void do_gate_sparse(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t d = proa_config_ffn(c, f->layer);
    proa_view y = first_columns(proa_frame_register(f, s->out), d), x = proa_frame_register(f, s->in);
    proa_view gates = proa_view_cols(x, 0, d);
    f->m->ctx.ops->threshold_rows(&f->m->ctx, gates, (float)c->deviations[f->layer]);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, gates, proa_view_cols(x, d, 2 * d), c->act);
}

static void do_add(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out);
    f->m->ctx.ops->add(&f->m->ctx, y, y, proa_frame_register(f, s->in));
}

/* ---- streams (AltUp) ---- */

/* Streams [first, count) of a register, as [rows, count - first, hidden]. */
static proa_view streams_from(const proa_step_frame *f, proa_reg r, int64_t first)
{
    int64_t hidden = f->m->config.hidden;
    proa_view v = proa_frame_register(f, r);
    return proa_view_heads(proa_view_cols(v, first * hidden, v.shape[1]), v.shape[1] / hidden - first);
}

static proa_view first_stream(const proa_step_frame *f, proa_reg r)
{
    return first_columns(proa_frame_register(f, r), f->m->config.hidden);
}

static void do_first_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, first_stream(f, s->out), proa_frame_register(f, s->in), 1);
}

static void do_take_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, proa_frame_register(f, s->out), first_stream(f, s->in), 1);
}

static const float LEAST_SQUARE = 1e-5f; /* modeling_gemma3n.py */

static void do_match_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_view others = streams_from(f, s->out, 1);
    f->m->ctx.ops->match_rms(&f->m->ctx, others, others, first_stream(f, s->out), LEAST_SQUARE);
}

static void do_mix_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_view all = streams_from(f, s->out, 0);
    f->m->ctx.ops->mix_streams(&f->m->ctx, all, all, proa_frame_register(f, s->in), 0);
}

static void do_correct_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *ctx = &f->m->ctx;
    proa_view change = proa_frame_register(f, PROA_REG_D), coefs = proa_frame_register(f, PROA_REG_STREAM_COEFS);
    ctx->ops->scale(ctx, change, first_stream(f, s->out), -1);
    ctx->ops->add(ctx, change, change, proa_frame_register(f, s->in));
    ctx->ops->mix_streams(ctx, streams_from(f, s->out, 0), proa_view_heads(change, 1),
                          first_columns(coefs, f->m->config.streams), 1);
}

static void do_spread_stream(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->mix_streams(&f->m->ctx, streams_from(f, s->out, 1),
                               proa_view_heads(proa_frame_register(f, s->in), 1), (proa_view){.rank = 0}, 1);
}

static void do_stream_linear(const proa_step_frame *f, const proa_step *s)
{
    int64_t hidden = f->m->config.hidden, at = ((int64_t)s->w - PROA_SLOT_STREAM_OUT_1) / 2;
    proa_view x = proa_frame_register(f, s->in), y = proa_frame_register(f, s->out);
    const proa_epilogue e = {.act = PROA_ACT_NONE};
    f->m->ctx.ops->linear(&f->m->ctx, proa_view_cols(y, at * hidden, (at + 1) * hidden),
                          proa_view_cols(x, (at + 1) * hidden, (at + 2) * hidden),
                          &layer_param(f, s->w)->matrix, &e);
}

static void do_join_streams(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *ctx = &f->m->ctx;
    proa_view y = proa_frame_register(f, s->out), others = streams_from(f, PROA_REG_HEAD_OTHERS, 0);
    ctx->ops->match_rms(ctx, others, others, first_stream(f, s->in), LEAST_SQUARE);
    ctx->ops->scale(ctx, y, first_stream(f, s->in), 1);
    ctx->ops->mix_streams(ctx, proa_view_heads(y, 1), others, (proa_view){.rank = 0}, 1);
    ctx->ops->scale(ctx, y, y, 1.0f / (float)f->m->config.streams);
}

static void do_sigmoid_mul(const proa_step_frame *f, const proa_step *s)
{
    proa_view x = first_columns(proa_frame_register(f, s->out), f->m->config.shared_ffn);
    f->m->ctx.ops->sigmoid_mul(&f->m->ctx, x, proa_frame_register(f, s->in));
}

/* The second half of each head of [rows, heads, dim]. */
static proa_view second_halves(proa_view v)
{
    int64_t half = v.shape[2] / 2;
    v.data = (char *)v.data + half * v.stride[2] * proa_dtype_bytes(v.dtype);
    v.shape[2] -= half;
    return v;
}

static void do_rope(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_ctx *ctx = &f->m->ctx;
    if (!proa_config_rotates(c, f->layer)) return;
    proa_view q_and_k = rotated_heads(f, qkv_register(f, s));
    proa_view table = s->flags & PROA_BLOCK ? proa_frame_register(f, PROA_REG_BLOCK_ROPE) : rope_of_layer(f);
    if (s->flags & PROA_BLOCK) q_and_k = second_halves(q_and_k);
    ctx->ops->rope(ctx, q_and_k, table, s->flags & PROA_INTERLEAVED);
}

/* The pages of a decoder layer, of which a rank has those of its layers with attention; those with heads of the other
 * shape come last. */
static const proa_kv *layer_pages(const proa_step_frame *f, int64_t layer)
{
    const proa_model *m = f->m;
    int64_t first = m->plan.layers[PROA_STACK_DECODER].first, source = proa_config_kv_source(&m->config, layer);
    bool other = proa_config_has_other_heads(&m->config, source);
    int64_t before = other ? m->kv_layers - m->other_kv_layers : 0;
    return &f->kv[before + proa_config_kv_layers(&m->config, first, source, other)];
}

/* All layers of an encoder use the first layer's pages: they are read before the next layer overwrites them. So do
 * those of a decoder over an encoder's input, which keeps nothing after the pass. */
static bool uses_scratch_pages(const proa_step_frame *f)
{
    return f->stack == PROA_STACK_ENCODER || f->m->arch->kind == PROA_KIND_ENCODER;
}

static proa_kv self_pages(const proa_step_frame *f)
{
    if (uses_scratch_pages(f)) {
        proa_kv scratch = f->kv[0];
        const head_sizes h = self_heads(f);
        scratch.kv_heads = h.kv_heads, scratch.head_dim = h.dim;
        return scratch;
    }
    if (f->m->config.kv_lora == 0) return *layer_pages(f, f->layer);
    /* Latent keys are the values too, so two layers share what the pool has for one. */
    int64_t own = f->layer - f->m->plan.layers[PROA_STACK_DECODER].first;
    proa_kv kv = f->kv[own / 2];
    if (own % 2) kv.k = kv.v;
    else kv.v = kv.k;
    return kv;
}

bool proa_frame_attends_without_pages(const proa_step_frame *f)
{
    if (!uses_scratch_pages(f)) return false;
    if (f->narrow != PROA_DTYPE_F32) return true;
    return f->m->formats.kv == PROA_DTYPE_F32 && (!f->m->device->host || f->rows <= PROA_PAGE_TOKENS);
}

/* Keys and values of the pass itself, as heads. */
static proa_kv pass_rows(proa_view k, proa_view v)
{
    return (proa_kv){k.data, v.data, k.dtype, k.shape[1], k.shape[2], k.stride[0]};
}

static proa_kv self_rows(const proa_step_frame *f, proa_view qkv)
{
    return pass_rows(qkv_part(f, qkv, 1), qkv_part(f, qkv, 2));
}

static void do_kv_append(const proa_step_frame *f, const proa_step *s)
{
    proa_view qkv = qkv_rows(f, s, f->first + f->rows);
    if (proa_frame_attends_without_pages(f) || !proa_config_owns_kv(&f->m->config, f->layer)) return;
    proa_kv pages = self_pages(f);
    proa_view k = qkv_part(f, qkv, 1), v = qkv_part(f, qkv, f->m->config.kv_lora > 0 ? 1 : 2);
    f->m->ctx.ops->kv_append(&f->m->ctx, &pages, k, v, &f->batch->self);
}

static void do_rope_append(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    if (proa_frame_attends_without_pages(f)) {
        do_rope(f, s);
        return;
    }
    bool alone = !proa_config_rotates(c, f->layer) || !proa_config_owns_kv(c, f->layer);
    if (alone || f->first > 0) { /* the kernel of both takes rows from the first one on */
        do_rope(f, s);
        do_kv_append(f, s);
        return;
    }
    proa_view qkv = qkv_register(f, s);
    proa_view x = rotated_heads(f, qkv), v = qkv_part(f, qkv, 2);
    proa_kv pages = self_pages(f);
    f->m->ctx.ops->rope_append(&f->m->ctx, x, v, rope_of_layer(f), s->flags & PROA_INTERLEAVED, &pages,
                               &f->batch->self);
}

/* The sums of blocks as side keys. */
static proa_side_keys side_blocks(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    const proa_param *bias = layer_param(f, PROA_SLOT_BLOCK_BIAS);
    proa_view qkv = proa_frame_rows(f, PROA_REG_BLOCK_QKV, (f->first + f->rows) / c->side_block);
    proa_view k = qkv_part(f, qkv, 1), v = qkv_part(f, qkv, 2);
    return (proa_side_keys){k.data, v.data, k.stride[0], (int32_t)c->side_block,
                            bias->parts ? bias->values : NULL};
}

/* The formula of a layer's scores, but for its tables. */
static proa_attention attention_of_layer(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    const proa_param *rel = layer_param(f, PROA_SLOT_REL_BIAS);
    bool causal = f->m->arch->stacks[f->stack].causal && !c->bidirectional;
    proa_attention a = {.scale = (float)proa_config_attention_scale(c, f->layer), .causal = causal};
    if (f->stack == PROA_STACK_ENCODER && c->encoder_heads)
        a.scale = (float)(1 / sqrt((double)self_heads(f).dim));
    a.soft_cap = (float)c->attention_cap;
    if (c->alibi_max > 0) a.alibi = f->m->alibi;
    if (layer_param(f, PROA_SLOT_SINKS)->parts) a.sinks = layer_param(f, PROA_SLOT_SINKS)->values;
    if (proa_config_has_window(c, f->stack == PROA_STACK_DECODER)) a.window = proa_config_window(c, f->layer);
    a.chunked = c->window_chunked;
    if (rel->parts) {
        a.rel_bias = rel->values;
        a.rel_buckets = (int32_t)c->rel_buckets, a.rel_distance = (int32_t)c->rel_distance;
        a.rel_bidirectional = !causal;
    }
    return a;
}

/* The first rows of each sequence, of which all have the keys. */
static void attend_globals(const proa_step_frame *f, proa_view y, proa_view qkv, proa_attention *a)
{
    proa_kv kv = self_rows(f, qkv);
    a->window = 0;
    a->of_globals = true;
    f->m->ctx.ops->attend(&f->m->ctx, y, qkv_part(f, qkv, 0), &kv, &f->batch->self, a);
}

/* Side keys of an encoder; false: it has none. */
static bool find_side_keys(const proa_step_frame *f, const proa_step *s, proa_view qkv, proa_side_keys *side)
{
    const proa_config *c = &f->m->config;
    if (f->stack != PROA_STACK_ENCODER) return false;
    if (s->flags & PROA_OF_BLOCKS && c->side_block > 0) *side = side_blocks(f);
    else if (c->globals == 0) return false;
    else {
        proa_view k = qkv_part(f, qkv, 1), v = qkv_part(f, qkv, 2);
        *side = (proa_side_keys){k.data, v.data, k.stride[0], 0, NULL};
    }
    return true;
}

/* Attention over the pages, or over the keys and values of the same rows where a model needs no pages. Prefixes of
 * prompts (GLM) run in a second call, since their rows see each other in both directions. */
static void do_attend(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const head_sizes h = self_heads(f);
    proa_attention a = attention_of_layer(f);
    proa_view qkv = qkv_rows(f, s, f->first + f->rows);
    proa_view q = qkv_part(f, qkv, 0);
    proa_view y = first_columns(proa_frame_rows(f, s->out, f->first + f->rows), h.heads * h.dim);
    y = proa_view_heads(y, h.heads);
    if (s->flags & PROA_OF_GLOBALS) {
        attend_globals(f, y, qkv, &a);
        return;
    }
    proa_relative relative;
    proa_side_keys side;
    if (proa_relative_of_layer(f->m, f->stack, f->layer, &relative)) a.relative = &relative;
    if (a.relative) relative.types = c->segments ? f->batch->types : NULL;
    if (find_side_keys(f, s, qkv, &side)) a.side = &side;
    proa_kv kv = a.relative || proa_frame_attends_without_pages(f) ? self_rows(f, qkv) : self_pages(f);
    proa_spans spans = f->batch->self;
    spans.count -= f->batch->prefixes;
    if (spans.count) f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &spans, &a);
    if (!f->batch->prefixes) return;
    spans.span += spans.count;
    spans.count = f->batch->prefixes;
    a.causal = false, a.rel_bidirectional = true;
    f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &spans, &a);
}

/* ---- recurrent states ---- */

static void do_gate_heads(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    if (!c->attention_gate) return;
    proa_view gates = proa_view_cols(proa_frame_register(f, s->in), 0, c->heads * c->head_dim);
    f->m->ctx.ops->sigmoid_mul(&f->m->ctx, proa_frame_register(f, s->out), gates);
}

/* What the sequences keep of this layer: `skip` numbers of each slot's part are those of another step. */
static proa_layer_state layer_state(const proa_step_frame *f, int64_t skip)
{
    const proa_config *c = &f->m->config;
    int64_t first = f->m->plan.layers[PROA_STACK_DECODER].first;
    int64_t number = proa_config_recurring(c, first, f->layer);
    return (proa_layer_state){f->host_batch->states_memory + number * proa_config_layer_state(c) + skip,
                              proa_model_state(f->m)};
}

static void do_conv_state(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_param *bias = layer_param(f, s->w + 1);
    int64_t end = f->first + f->rows;
    proa_conv conv = {.w = layer_param(f, s->w)->values, .taps = c->conv_taps, .act = c->conv_act};
    if (bias->parts) conv.bias = bias->values;
    proa_view y = proa_frame_rows(f, s->out, end), x = first_columns(proa_frame_rows(f, s->in, end), y.shape[1]);
    proa_layer_state state = layer_state(f, 0);
    f->m->ctx.ops->conv_state(&f->m->ctx, y, x, &conv, &state, &f->batch->self);
}

static void do_scale_parts(const proa_step_frame *f, const proa_step *s)
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

static void do_gate_inputs(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    int64_t d = y.shape[1];
    f->m->ctx.ops->act_mul(&f->m->ctx, y, proa_view_cols(x, 0, d), proa_view_cols(x, d, 2 * d), PROA_ACT_NONE);
}

static void do_gate_outputs(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view gates = proa_view_cols(x, x.shape[1] - y.shape[1], x.shape[1]);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, gates, y, f->m->config.conv_act);
}

static void do_gated_delta(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t end = f->first + f->rows;
    proa_view y = proa_frame_rows(f, s->out, end), x = proa_frame_rows(f, s->in, end);
    proa_delta d = {c->key_heads, c->value_heads, c->key_dim, c->value_dim, NULL, NULL};
    d.rate = layer_param(f, s->w)->values, d.bias = layer_param(f, s->w + 1)->values;
    proa_layer_state state = layer_state(f, (c->conv_taps - 1) * x.shape[1]);
    f->m->ctx.ops->gated_delta(&f->m->ctx, y, x, proa_frame_rows(f, PROA_REG_RATES, end), &d, &state,
                               &f->batch->self);
}

/* Of Mamba-1, what makes the steps, B and C, which follow each other in PARAMS. */
static void do_norm_params(const proa_step_frame *f, const proa_step *s)
{
    static const proa_weight_slot slots[] = {PROA_SLOT_STEP_NORM, PROA_SLOT_B_NORM, PROA_SLOT_C_NORM};
    proa_view x = proa_frame_register(f, s->out);
    for (int64_t i = 0, at = 0; i < (int64_t)PROA_COUNT(slots); i++) {
        const proa_param *w = layer_param(f, slots[i]);
        proa_view part = proa_view_cols(x, at, at + w->rows);
        f->m->ctx.ops->rms_norm(&f->m->ctx, part, part, param_values(w), (float)f->m->config.params_eps);
        at += w->rows;
    }
}

/* Of Mamba-2 B and C are behind the values, and the rates behind the columns of MIX that were convolved. */
static void do_selective_scan(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const bool by_channel = s->flags & PROA_BY_CHANNEL;
    int64_t end = f->first + f->rows, values = proa_dim_size(c, PROA_DIM_RECALLED);
    proa_view y = proa_frame_rows(f, s->out, end), x = proa_frame_rows(f, s->in, end), params = x, rates;
    int64_t at = by_channel ? c->step_rank : values, keys = c->key_heads * c->key_dim;
    if (by_channel)
        params = proa_frame_rows(f, PROA_REG_PARAMS, end), rates = proa_frame_rows(f, PROA_REG_RATES, end);
    else
        rates = proa_view_cols(proa_frame_rows(f, PROA_REG_MIX, end), x.shape[1], x.shape[1] + c->value_heads);
    proa_state_space p = {.groups = c->key_heads,
                          .heads = c->value_heads,
                          .state_dim = c->key_dim,
                          .value_dim = c->value_dim,
                          .least = (float)c->step_min,
                          .most = (float)c->step_max,
                          .by_channel = by_channel};
    p.rate = layer_param(f, s->w)->values, p.bias = layer_param(f, s->w + 1)->values;
    p.skip = layer_param(f, PROA_SLOT_SKIP)->values;
    proa_layer_state state = layer_state(f, (c->conv_taps - 1) * x.shape[1]);
    f->m->ctx.ops->selective_scan(&f->m->ctx, y, first_columns(x, values),
                                  proa_view_cols(params, at, at + 2 * keys), rates, &p, &state, &f->batch->self);
}

/* The gates are the last columns of what a recurrent layer made of its input. */
static void do_norm_gated(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *ctx = &f->m->ctx;
    const proa_config *c = &f->m->config;
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view gates = proa_view_cols(x, x.shape[1] - y.shape[1], x.shape[1]);
    proa_view groups = proa_view_heads(y, c->recall_groups ? c->recall_groups : c->value_heads);
    if (c->gate_first) ctx->ops->act_mul(ctx, y, gates, y, c->conv_act);
    norm_rows(f, groups, groups, s->w);
    if (!c->gate_first) ctx->ops->act_mul(ctx, y, gates, y, c->conv_act);
}

/* Of groups that several ranks have: what the columns of this one give to their means of squares. */
static void do_group_squares(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->group_squares(&f->m->ctx, proa_frame_register(f, s->out), proa_frame_register(f, s->in),
                                 c->first_value, c->recall_width);
}

static void do_group_scale(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->group_scale(&f->m->ctx, proa_frame_register(f, s->out), proa_frame_register(f, s->in),
                               param_values(layer_param(f, s->w)), c->first_value, c->recall_width,
                               (float)c->norm_eps);
}

/* The same of what all ranks have, in the order of one rank. */
static void do_group_norm(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t all = c->recall_groups * c->recall_width;
    proa_view y = proa_frame_register(f, s->out), x = first_columns(proa_frame_register(f, s->in), all);
    proa_view groups = proa_view_heads(x, c->recall_groups);
    norm_rows(f, groups, groups, s->w);
    f->m->ctx.ops->scale(&f->m->ctx, y, proa_view_cols(x, c->first_value, c->first_value + y.shape[1]), 1);
}

static void do_unfold(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    f->m->ctx.ops->unfold(&f->m->ctx, proa_frame_rows(f, s->out, end), proa_frame_rows(f, s->in, end),
                          &f->batch->self, f->m->config.conv_width);
}

static void do_block_sums(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows, block = f->m->config.side_block;
    f->m->ctx.ops->block_sums(&f->m->ctx, proa_frame_rows(f, s->out, end / block),
                              proa_frame_rows(f, s->in, end), &f->batch->self, block);
}

static void do_span_mean(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    f->m->ctx.ops->span_mean(&f->m->ctx, proa_frame_rows(f, s->out, end), proa_frame_rows(f, s->in, end),
                             &f->batch->self);
}

/* k (0) or v (1) of CKV, as heads. */
static proa_view ckv_part(const proa_step_frame *f, int which)
{
    const proa_config *c = &f->m->config;
    proa_view kv = proa_frame_rows(f, PROA_REG_CKV, f->first + f->rows);
    return head_range(kv, which * c->kv_heads, c->kv_heads, c->head_dim);
}

static const proa_kv *cross_pages(const proa_step_frame *f)
{
    return uses_scratch_pages(f) ? &f->kv[0] : layer_pages(f, f->layer);
}

static void do_cross_append(const proa_step_frame *f, const proa_step *s)
{
    PROA_UNUSED(s);
    if (proa_frame_attends_without_pages(f)) return;
    f->m->ctx.ops->kv_append(&f->m->ctx, cross_pages(f), ckv_part(f, 0), ckv_part(f, 1), &f->batch->self);
}

static void do_cross_attend(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_attention a = {.scale = (float)c->attention_scale};
    int64_t end = f->first + f->rows;
    proa_view q = proa_view_heads(proa_frame_rows(f, s->in, end), c->heads),
              y = proa_view_heads(proa_frame_rows(f, s->out, end), c->heads);
    bool direct = proa_frame_attends_without_pages(f);
    proa_kv kv = direct ? pass_rows(ckv_part(f, 0), ckv_part(f, 1)) : *cross_pages(f);
    f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &f->batch->cross, &a);
}

static void do_gather(const proa_step_frame *f, const proa_step *s)
{
    const proa_plan *p = &f->m->plan;
    proa_view x = proa_view_2d(f->m->activations + p->offset[s->in], reg_dtype(f, s->in), p->rows_max,
                               p->width[s->in]);
    f->m->ctx.ops->gather(&f->m->ctx, proa_frame_register(f, s->out), x, f->gather);
}

static void do_all_reduce(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out), residual = {.rank = 0};
    if (s->flags & PROA_ADD) residual = y;
    if (s->flags & PROA_ADD_X) residual = proa_frame_register(f, PROA_REG_X);
    f->m->comm->all_reduce(f->m->comm, y, proa_frame_register(f, s->in), residual);
}

static void do_gather_columns(const proa_step_frame *f, const proa_step *s)
{
    f->m->comm->gather_columns(f->m->comm, proa_frame_register(f, s->out), proa_frame_register(f, s->in));
}

/* The columns of the residual stream of which this rank makes the sums. */
static void do_take_columns(const proa_step_frame *f, const proa_step *s)
{
    proa_view x = proa_frame_register(f, s->in), y = proa_frame_register(f, s->out);
    int64_t first = f->m->plan.part.tensor * y.shape[1], end = proa_min64(first + y.shape[1], x.shape[1]);
    f->m->ctx.ops->scale(&f->m->ctx, first_columns(y, end - first), proa_view_cols(x, first, end), 1);
}

/* The first unit (head, row of an FFN) of each rank, of the inputs of a product by columns. */
static const int64_t *shares_of(const proa_plan *p, proa_weight_slot slot)
{
    if (slot == PROA_SLOT_DOWN) return p->shares.ffn;
    if (slot == PROA_SLOT_MIX_OUT || slot == PROA_SLOT_PARAMS) return p->shares.value_heads;
    return slot == PROA_SLOT_SHARED_DOWN ? p->shares.shared_ffn : p->shares.heads;
}

/* Columns that each rank sends, and of its own those that it has: some ranks have fewer. */
static void do_gather_inputs(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *c = &f->m->ctx;
    const proa_rank_part *part = &f->m->plan.part;
    const int64_t *share = shares_of(&f->m->plan, s->w);
    int64_t K = layer_param(f, s->w)->matrix.K, unit = K / share[part->tensors], most = 0, least = K;
    for (int32_t i = 0; i < part->tensors; i++) {
        int64_t count = (share[i + 1] - share[i]) * unit;
        most = proa_max64(most, count), least = proa_min64(least, count);
    }
    int64_t own = (share[part->tensor + 1] - share[part->tensor]) * unit;
    proa_view x = dense_rows(f, PROA_REG_SUM_PART, most), all = first_columns(proa_frame_register(f, s->out), K);
    c->ops->scale(c, first_columns(x, own), first_columns(proa_frame_register(f, s->in), own), 1);
    if (most == least) {
        f->m->comm->gather_columns(f->m->comm, all, x);
        return;
    }
    proa_view padded = dense_rows(f, PROA_REG_SUM_PADDED, part->tensors * most);
    f->m->comm->gather_columns(f->m->comm, padded, x);
    for (int32_t i = 0; i < part->tensors; i++) {
        int64_t first = share[i] * unit, count = share[i + 1] * unit - first;
        c->ops->scale(c, proa_view_cols(all, first, first + count),
                      proa_view_cols(padded, i * most, i * most + count), 1);
    }
}

static void do_send(const proa_step_frame *f, const proa_step *s)
{
    f->m->pipe->send(f->m->pipe, proa_frame_register(f, s->in), f->m->plan.part.stage + 1);
}

static void do_recv(const proa_step_frame *f, const proa_step *s)
{
    f->m->pipe->recv(f->m->pipe, proa_frame_register(f, s->out), f->m->plan.part.stage - 1);
}

static void do_broadcast(const proa_step_frame *f, const proa_step *s)
{
    proa_stage_broadcast(f->m, proa_frame_register(f, s->out));
}

typedef void step_fn(const proa_step_frame *f, const proa_step *s);
static step_fn *const steps[PROA_STEP_COUNT] = {
    [PROA_STEP_EMBED] = do_embed,
    [PROA_STEP_ROPE_TABLE] = do_rope_table,
    [PROA_STEP_NORM] = do_norm,
    [PROA_STEP_HEADS_NORM] = do_heads_norm,
    [PROA_STEP_LINEAR] = do_linear,
    [PROA_STEP_LINEAR_GATED] = do_linear_gated,
    [PROA_STEP_QUERY_SCALE] = do_query_scale,
    [PROA_STEP_CLIP] = do_clip,
    [PROA_STEP_XIELU] = do_xielu,
    [PROA_STEP_SCALE] = do_scale,
    [PROA_STEP_SCALE_COLUMNS] = do_scale_columns,
    [PROA_STEP_ROPE] = do_rope,
    [PROA_STEP_KV_APPEND] = do_kv_append,
    [PROA_STEP_ROPE_APPEND] = do_rope_append,
    [PROA_STEP_ATTEND] = do_attend,
    [PROA_STEP_GATE_HEADS] = do_gate_heads,
    [PROA_STEP_CONV_STATE] = do_conv_state,
    [PROA_STEP_SCALE_PARTS] = do_scale_parts,
    [PROA_STEP_GATE_INPUTS] = do_gate_inputs,
    [PROA_STEP_GATE_OUTPUTS] = do_gate_outputs,
    [PROA_STEP_GATED_DELTA] = do_gated_delta,
    [PROA_STEP_NORM_PARAMS] = do_norm_params,
    [PROA_STEP_SELECTIVE_SCAN] = do_selective_scan,
    [PROA_STEP_NORM_GATED] = do_norm_gated,
    [PROA_STEP_GROUP_SQUARES] = do_group_squares,
    [PROA_STEP_GROUP_SCALE] = do_group_scale,
    [PROA_STEP_GROUP_NORM] = do_group_norm,
    [PROA_STEP_UNFOLD] = do_unfold,
    [PROA_STEP_SPAN_MEAN] = do_span_mean,
    [PROA_STEP_DROP_MASKED] = do_drop_masked,
    [PROA_STEP_BLOCK_SUMS] = do_block_sums,
    [PROA_STEP_CROSS_APPEND] = do_cross_append,
    [PROA_STEP_CROSS_ATTEND] = do_cross_attend,
    [PROA_STEP_HEADS_LINEAR] = do_heads_linear,
    [PROA_STEP_ROUTE] = do_route,
    [PROA_STEP_EXPERTS] = do_experts,
    [PROA_STEP_GATE_LAYER] = do_gate_layer,
    [PROA_STEP_GATE_SPARSE] = do_gate_sparse,
    [PROA_STEP_ADD] = do_add,
    [PROA_STEP_FIRST_STREAM] = do_first_stream,
    [PROA_STEP_TAKE_STREAM] = do_take_stream,
    [PROA_STEP_MATCH_STREAMS] = do_match_streams,
    [PROA_STEP_MIX_STREAMS] = do_mix_streams,
    [PROA_STEP_CORRECT_STREAMS] = do_correct_streams,
    [PROA_STEP_SPREAD_STREAM] = do_spread_stream,
    [PROA_STEP_STREAM_LINEAR] = do_stream_linear,
    [PROA_STEP_JOIN_STREAMS] = do_join_streams,
    [PROA_STEP_SIGMOID_MUL] = do_sigmoid_mul,
    [PROA_STEP_GATHER] = do_gather,
    [PROA_STEP_ALL_REDUCE] = do_all_reduce,
    [PROA_STEP_GATHER_COLUMNS] = do_gather_columns,
    [PROA_STEP_GATHER_INPUTS] = do_gather_inputs,
    [PROA_STEP_TAKE_COLUMNS] = do_take_columns,
    [PROA_STEP_SEND] = do_send,
    [PROA_STEP_RECV] = do_recv,
    [PROA_STEP_BROADCAST] = do_broadcast,
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
