/* SPDX-License-Identifier: Apache-2.0
 * attention.c - steps of attention: heads of QKV, positions, pages, self and cross attention. */
#include "model/steps/functions.h"

#include "base/checked.h"
#include "model/relative.h"
#include "model/steps/registers.h"
#include <math.h>

/* A norm of all heads of q or k as one row, of which this rank has x: every rank gathers and norms the whole row. */
static void norm_heads_of_ranks(const proa_step_frame *f, proa_view x, proa_weight_slot slot)
{
    proa_ctx *c = &f->m->ctx;
    int64_t width = x.shape[1], first = f->m->plan.part.tensor * width;
    proa_view part = proa_frame_dense_rows(f, PROA_REG_HEADS_PART, width);
    proa_view all = proa_frame_dense_rows(f, PROA_REG_HEADS_ALL, width * f->m->plan.part.tensors);
    c->ops->scale(c, part, x, 1);
    f->m->comm->gather_columns(f->m->comm, all, part);
    proa_frame_norm(f, all, all, slot);
    c->ops->scale(c, x, proa_view_cols(all, first, first + width), 1);
}

void proa_do_heads_norm(const proa_step_frame *f, const proa_step *s)
{
    const proa_head_sizes h = proa_frame_heads(f);
    bool k = s->flags & PROA_OF_K, v = s->flags & PROA_OF_V;
    int64_t dim = h.dim, count = k || v ? h.kv_heads : h.heads;
    int64_t first = (k || v ? h.heads + (v ? count : 0) : 0) * dim;
    proa_view x = proa_view_cols(proa_frame_qkv(f, s), first, first + count * dim);
    if (s->flags & PROA_WHOLE && f->m->comm) {
        norm_heads_of_ranks(f, x, s->w);
        return;
    }
    if (!(s->flags & PROA_WHOLE)) {
        /* of latent keys those without position */
        int64_t normed = proa_min64(proa_frame_param(f, s->w)->rows, dim);
        x = proa_view_head_columns(proa_view_heads(x, count), dim - normed, normed);
    }
    proa_frame_norm(f, x, x, s->w);
}

/* Skipped where no row of the pass has a factor other than 1: context_max is that of the longest span, or more; 0: it
 * was not counted. */
void proa_do_query_scale(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    int64_t longest = f->batch->self.context_max;
    if (longest > 0 && longest - 1 + c->query_scale.offset < c->query_scale.length) return;
    proa_view q = proa_view_cols(proa_frame_qkv(f, s), 0, c->heads * c->head_dim);
    f->m->ctx.ops->query_scale(&f->m->ctx, q, f->batch->positions + f->first, &c->query_scale);
}

void proa_do_gate_heads(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    if (!c->attention_gate) return;
    proa_view gates = proa_view_cols(proa_frame_register(f, s->in), 0, c->heads * c->head_dim);
    f->m->ctx.ops->sigmoid_mul(&f->m->ctx, proa_frame_register(f, s->out), gates);
}

/* The heads that rope rotates: q, and k if the layer makes it. */
static proa_view rotated_heads(const proa_step_frame *f, proa_view qkv)
{
    const proa_head_sizes h = proa_frame_heads(f);
    int64_t keys = proa_config_owns_kv(&f->m->config, f->layer) ? h.kv_heads : 0;
    return proa_view_head_range(qkv, 0, h.heads + keys, h.dim);
}

static int32_t window_of_layer(const proa_step_frame *f)
{
    return proa_config_stack_window(&f->m->config, f->stack == PROA_STACK_DECODER, f->layer);
}

/* The cosines and sines of this layer. */
static proa_view rope_of_layer(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    bool local = c->local_rope.theta > 0 && window_of_layer(f) > 0;
    return proa_frame_register(f, local ? PROA_REG_LOCAL_ROPE : PROA_REG_ROPE);
}

/* The second half of each head of [rows, heads, dim]. */
static proa_view second_halves(proa_view v)
{
    int64_t half = v.shape[2] / 2;
    v.data = (char *)v.data + half * v.stride[2] * proa_dtype_bytes(v.dtype);
    v.shape[2] -= half;
    return v;
}

void proa_do_rope(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_ctx *ctx = &f->m->ctx;
    if (!proa_config_rotates(c, f->layer)) return;
    proa_view q_and_k = rotated_heads(f, proa_frame_qkv(f, s));
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
        const proa_head_sizes h = proa_frame_heads(f);
        scratch.kv_heads = h.kv_heads, scratch.head_dim = h.dim;
        return scratch;
    }
    if (f->m->config.kv_lora == 0) return *layer_pages(f, f->layer);
    /* Latent keys are the values too, so two layers share what the pool has for one. */
    const int64_t first = f->m->plan.layers[PROA_STACK_DECODER].first;
    const int64_t own = proa_config_kv_layers(&f->m->config, first, f->layer, false);
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

/* The values among q, k and v: latent keys are these, too. */
static int value_part(const proa_step_frame *f)
{
    return f->m->config.kv_lora > 0 ? 1 : 2;
}

static proa_kv self_rows(const proa_step_frame *f, proa_view qkv)
{
    return pass_rows(proa_frame_qkv_part(f, qkv, 1), proa_frame_qkv_part(f, qkv, value_part(f)));
}

void proa_do_kv_append(const proa_step_frame *f, const proa_step *s)
{
    proa_view qkv = proa_frame_qkv_rows(f, s, f->first + f->rows);
    if (proa_frame_attends_without_pages(f) || !proa_config_owns_kv(&f->m->config, f->layer)) return;
    proa_kv pages = self_pages(f);
    proa_view k = proa_frame_qkv_part(f, qkv, 1), v = proa_frame_qkv_part(f, qkv, value_part(f));
    f->m->ctx.ops->kv_append(&f->m->ctx, &pages, k, v, &f->batch->self);
}

void proa_do_rope_append(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    if (proa_frame_attends_without_pages(f)) {
        proa_do_rope(f, s);
        return;
    }
    bool alone = !proa_config_rotates(c, f->layer) || !proa_config_owns_kv(c, f->layer);
    if (alone || f->first > 0) { /* the kernel of both takes rows from the first one on */
        proa_do_rope(f, s);
        proa_do_kv_append(f, s);
        return;
    }
    proa_view qkv = proa_frame_qkv(f, s);
    proa_view x = rotated_heads(f, qkv), v = proa_frame_qkv_part(f, qkv, 2);
    proa_kv pages = self_pages(f);
    f->m->ctx.ops->rope_append(&f->m->ctx, x, v, rope_of_layer(f), s->flags & PROA_INTERLEAVED, &pages,
                               &f->batch->self);
}

/* The sums of blocks as side keys. */
static proa_side_keys side_blocks(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    const proa_param *bias = proa_frame_param(f, PROA_SLOT_BLOCK_BIAS);
    proa_view qkv = proa_frame_rows(f, PROA_REG_BLOCK_QKV, (f->first + f->rows) / c->side_block);
    proa_view k = proa_frame_qkv_part(f, qkv, 1), v = proa_frame_qkv_part(f, qkv, 2);
    return (proa_side_keys){k.data, v.data, k.stride[0], (int32_t)c->side_block,
                            bias->parts ? bias->values : NULL};
}

/* The formula of a layer's scores, but for its tables. */
static proa_attention attention_of_layer(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    const proa_param *rel = proa_frame_param(f, PROA_SLOT_REL_BIAS);
    bool causal = f->m->arch->stacks[f->stack].causal && !c->bidirectional;
    proa_attention a = {.scale = (float)proa_config_attention_scale(c, f->layer), .causal = causal};
    if (f->stack == PROA_STACK_ENCODER && c->encoder_heads)
        a.scale = (float)(1 / sqrt((double)proa_frame_heads(f).dim));
    a.soft_cap = (float)c->attention_cap;
    if (c->alibi_max > 0) a.alibi = f->m->alibi;
    if (proa_frame_param(f, PROA_SLOT_SINKS)->parts) a.sinks = proa_frame_param(f, PROA_SLOT_SINKS)->values;
    a.window = window_of_layer(f);
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
    f->m->ctx.ops->attend(&f->m->ctx, y, proa_frame_qkv_part(f, qkv, 0), &kv, &f->batch->self, a);
}

/* Side keys of an encoder; false: it has none. */
static bool find_side_keys(const proa_step_frame *f, const proa_step *s, proa_view qkv, proa_side_keys *side)
{
    const proa_config *c = &f->m->config;
    if (f->stack != PROA_STACK_ENCODER) return false;
    if (s->flags & PROA_OF_BLOCKS && c->side_block > 0) *side = side_blocks(f);
    else if (c->globals == 0) return false;
    else {
        proa_view k = proa_frame_qkv_part(f, qkv, 1), v = proa_frame_qkv_part(f, qkv, 2);
        *side = (proa_side_keys){k.data, v.data, k.stride[0], 0, NULL};
    }
    return true;
}

/* ---- sparse attention ---- */

static const float INDEX_NORM_EPS = 1e-6f; /* modeling_deepseek_v32.py: not the configuration's */

/* The longest context of the pass, or more. */
static int64_t longest_context(const proa_step_frame *f)
{
    const proa_spans *spans = &f->host_batch->self;
    int64_t longest = 0;
    if (f->batch->self.context_max > 0) return f->batch->self.context_max;
    for (int64_t i = 0; i < spans->count; i++) longest = proa_max64(longest, spans->span[i].context);
    return longest;
}

/* Whether some row sees more keys than are picked. If none does, attention is that over all of them. */
static bool picks_keys(const proa_step_frame *f)
{
    return longest_context(f) > f->m->config.index_topk;
}

/* The pages of the indexer, which are keys alone: two layers share what the pool has for one of the other shape. */
static proa_kv index_pages(const proa_step_frame *f)
{
    const proa_model *m = f->m;
    int64_t own = proa_config_picking(&m->config, m->plan.layers[PROA_STACK_DECODER].first, f->layer);
    proa_kv kv = f->kv[m->kv_layers - m->other_kv_layers + own / 2];
    if (own % 2) kv.k = kv.v;
    else kv.v = kv.k;
    return kv;
}

void proa_do_pick_keys(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_ctx *ctx = &f->m->ctx;
    int64_t end = f->first + f->rows;
    proa_view k = proa_frame_register(f, PROA_REG_INDEX_K), table = rope_of_layer(f);
    proa_view weight = proa_param_values(proa_frame_param(f, s->w)),
              bias = proa_param_values(proa_frame_param(f, s->w + 1));
    proa_kv pages = index_pages(f);
    ctx->ops->layer_norm(ctx, k, k, weight, bias, INDEX_NORM_EPS);
    ctx->ops->rope(ctx, proa_view_heads(k, 1), table, c->index_pairs);
    proa_view keys = proa_view_heads(proa_frame_rows(f, PROA_REG_INDEX_K, end), 1);
    ctx->ops->kv_append(ctx, &pages, keys, keys, &f->batch->self);
    if (!picks_keys(f)) return;
    ctx->ops->rope(ctx, proa_view_heads(proa_frame_register(f, s->in), c->index_heads), table, c->index_pairs);
    ctx->ops->pick_keys(ctx, proa_frame_rows(f, s->out, end).data,
                        proa_view_heads(proa_frame_rows(f, s->in, end), c->index_heads),
                        proa_frame_rows(f, PROA_REG_INDEX_W, end), &pages, &f->batch->self, c->index_topk);
}

/* Where PICKED_KEYS holds the keys of `rows` rows: keys, spans, pages. Latent keys are the values, too. */
static proa_picked_keys picked_keys(const proa_step_frame *f, const proa_kv *from, int64_t rows)
{
    const proa_config *c = &f->m->config;
    int64_t pages = proa_ceil_div(c->index_topk, PROA_PAGE_TOKENS);
    char *at = proa_frame_rows(f, PROA_REG_PICKED_KEYS, PROA_PICKED_ROWS).data;
    proa_picked_keys to = {.kv = *from, .rows = rows};
    to.kv.k = to.kv.v = at;
    at += PROA_PICKED_ROWS * pages * PROA_PAGE_TOKENS * from->kv_heads * from->head_dim * (int64_t)sizeof(float);
    to.span = (proa_span *)(void *)at;
    to.pages = (int32_t *)(void *)(at + PROA_PICKED_ROWS * (int64_t)sizeof *to.span);
    return to;
}

/* Attention of each row over the keys that it picked, some rows at a time. */
static void attend_picked(const proa_step_frame *f, proa_view y, proa_view q, const proa_kv *kv,
                          const proa_attention *a)
{
    const proa_config *c = &f->m->config;
    proa_ctx *ctx = &f->m->ctx;
    const int32_t *picked = proa_frame_rows(f, PROA_REG_PICKED, f->first + f->rows).data;
    int64_t longest = proa_min64(longest_context(f), c->index_topk), end = f->first + f->rows;
    for (int64_t first = f->first, rows; first < end; first += rows) {
        rows = proa_min64(PROA_PICKED_ROWS, end - first);
        proa_picked_keys to = picked_keys(f, kv, rows);
        const proa_spans spans = {.span = to.span,
                                  .count = rows,
                                  .pages = to.pages,
                                  .rows_max = 1,
                                  .rows_min = 1,
                                  .context_max = (int32_t)longest};
        ctx->ops->gather_keys(ctx, &to, kv, &f->batch->self, picked, c->index_topk, first);
        ctx->ops->attend(ctx, proa_view_rows(y, first, first + rows), proa_view_rows(q, first, first + rows),
                         &to.kv, &spans, a);
    }
}

/* Attention over the pages, or over the keys and values of the same rows where a model needs no pages. Prefixes of
 * prompts (GLM) run in a second call, since their rows see each other in both directions. */
void proa_do_attend(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_head_sizes h = proa_frame_heads(f);
    proa_attention a = attention_of_layer(f);
    proa_view qkv = proa_frame_qkv_rows(f, s, f->first + f->rows);
    proa_view q = proa_frame_qkv_part(f, qkv, 0);
    proa_view y = proa_view_first_columns(proa_frame_rows(f, s->out, f->first + f->rows), h.heads * h.dim);
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
    if (s->flags & PROA_OF_PICKED && picks_keys(f)) {
        attend_picked(f, y, q, &kv, &a);
        return;
    }
    proa_spans spans = f->batch->self;
    spans.count -= f->batch->prefixes;
    if (spans.count) f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &spans, &a);
    if (!f->batch->prefixes) return;
    spans.span += spans.count;
    spans.count = f->batch->prefixes;
    a.causal = false, a.rel_bidirectional = true;
    f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &spans, &a);
}

/* k (0) or v (1) of CKV, as heads. */
static proa_view ckv_part(const proa_step_frame *f, int which)
{
    const proa_config *c = &f->m->config;
    proa_view kv = proa_frame_rows(f, PROA_REG_CKV, f->first + f->rows);
    return proa_view_head_range(kv, which * c->kv_heads, c->kv_heads, c->head_dim);
}

static proa_kv cross_pages(const proa_step_frame *f)
{
    const proa_config *c = &f->m->config;
    proa_kv scratch = f->kv[0];
    if (!uses_scratch_pages(f)) return *layer_pages(f, f->layer);
    scratch.kv_heads = c->kv_heads, scratch.head_dim = c->head_dim;
    return scratch;
}

void proa_do_cross_append(const proa_step_frame *f, const proa_step *s)
{
    PROA_UNUSED(s);
    if (proa_frame_attends_without_pages(f)) return;
    proa_kv pages = cross_pages(f);
    f->m->ctx.ops->kv_append(&f->m->ctx, &pages, ckv_part(f, 0), ckv_part(f, 1), &f->batch->self);
}

void proa_do_cross_attend(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_attention a = {.scale = (float)c->attention_scale, .soft_cap = (float)c->attention_cap};
    int64_t end = f->first + f->rows;
    proa_view q = proa_view_head_range(proa_frame_rows(f, s->in, end), 0, c->heads, c->head_dim),
              y = proa_view_head_range(proa_frame_rows(f, s->out, end), 0, c->heads, c->head_dim);
    bool direct = proa_frame_attends_without_pages(f);
    proa_kv kv = direct ? pass_rows(ckv_part(f, 0), ckv_part(f, 1)) : cross_pages(f);
    f->m->ctx.ops->attend(&f->m->ctx, y, q, &kv, &f->batch->cross, &a);
}
