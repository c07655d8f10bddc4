/* SPDX-License-Identifier: Apache-2.0
 * rows.c - steps of single rows: embeddings, norms, gates, sums of spans. */
#include "model/steps/functions.h"

#include "model/steps/registers.h"

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

void proa_do_embed(const proa_step_frame *f, const proa_step *s)
{
    static const int32_t zeros[PROA_STEP_TOKENS_MAX];
    proa_param *p = proa_frame_param(f, s->w);
    const int32_t *ids = s->flags & PROA_OF_POS ? f->batch->positions : f->batch->ids;
    if (s->flags & PROA_OF_TYPE) ids = f->batch->types ? f->batch->types : zeros;
    proa_ctx *c = &f->m->ctx;
    float scale = embed_scale(f, s, p->table.dtype);
    proa_view table = p->table;
    if (s->flags & PROA_OF_POS) table = proa_view_rows(table, f->m->config.position_offset, table.shape[0]);
    if (s->flags & PROA_OF_NONE) table.stride[0] = 0; /* the first row, whatever the id */
    c->ops->embed(c, proa_frame_output(f, s), table, ids, scale, s->flags & PROA_ADD);
    if (s->w == PROA_SLOT_TOKENS)
        proa_frame_upload_embeds(f, s->out, true, s->flags & PROA_INPUTS ? scale : 1);
}

void proa_do_drop_masked(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    f->m->ctx.ops->drop_masked(&f->m->ctx, proa_frame_rows(f, s->out, f->first + f->rows), f->batch->ids,
                               &f->batch->self, (int32_t)c->mask_id, (float)c->mask_keep);
}

void proa_do_rope_table(const proa_step_frame *f, const proa_step *s)
{
    proa_ctx *c = &f->m->ctx;
    const proa_rope_freqs *freqs = s->out == PROA_REG_LOCAL_ROPE ? &f->m->local_rope : &f->m->rope;
    proa_rope_freqs stored = *freqs;
    if (s->w == PROA_SLOT_INV_FREQ && proa_frame_param(f, s->w)->parts)
        stored.inv_freq = proa_frame_param(f, s->w)->values, freqs = &stored;
    const int32_t *positions = s->flags & PROA_BLOCK ? f->batch->block_positions : f->batch->positions;
    c->ops->rope_table(c, proa_frame_register(f, s->out), positions, f->batch->lengths, freqs);
}

void proa_do_norm(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_output(f, s), x = proa_frame_register(f, s->in),
              normed = s->flags & PROA_ADD ? x : y;
    int64_t width = proa_frame_param(f, s->w)->rows, groups = width ? x.shape[1] / width : 1;
    if (groups > 1) proa_frame_norm(f, proa_view_heads(normed, groups), proa_view_heads(x, groups), s->w);
    else proa_frame_norm(f, normed, x, s->w);
    if (s->flags & PROA_ADD) f->m->ctx.ops->add(&f->m->ctx, y, y, x);
}

void proa_do_scale(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->scale(&f->m->ctx, proa_frame_output(f, s), proa_frame_register(f, s->in),
                         (float)f->m->config.stream_scale);
}

/* A row of weights as many equal ones. */
static proa_view repeat_row(const proa_param *p, int64_t rows)
{
    return (proa_view){
        .data = p->values, .dtype = PROA_DTYPE_F32, .rank = 2, .shape = {rows, p->rows}, .stride = {0, 1}};
}

/* The weights are a gate of which all rows have the same. */
void proa_do_scale_columns(const proa_step_frame *f, const proa_step *s)
{
    const proa_param *w = proa_frame_param(f, s->w), *bias = proa_frame_param(f, s->w + 1);
    proa_ctx *c = &f->m->ctx;
    proa_view y = proa_view_first_columns(proa_frame_register(f, s->out), w->rows),
              x = proa_view_first_columns(proa_frame_register(f, s->in), w->rows);
    PROA_DASSERT(y.dtype == PROA_DTYPE_F32 && x.dtype == PROA_DTYPE_F32);
    c->ops->act_mul(c, y, repeat_row(w, y.shape[0]), x, PROA_ACT_NONE);
    if (bias->parts) c->ops->add(c, y, y, repeat_row(bias, y.shape[0]));
}

void proa_do_clip(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->clip(&f->m->ctx, proa_frame_register(f, s->out), (float)f->m->config.qkv_clip);
}

void proa_do_xielu(const proa_step_frame *f, const proa_step *s)
{
    const int64_t four = 4;
    proa_view a = proa_view_of((void *)proa_frame_param(f, s->w)->values, PROA_DTYPE_F32, 1, &four);
    f->m->ctx.ops->xielu(&f->m->ctx, proa_frame_register(f, s->out), a);
}

void proa_do_round_rows(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->round_rows(&f->m->ctx, proa_frame_register(f, s->out), (int32_t)f->m->config.input_bits);
}

void proa_do_add(const proa_step_frame *f, const proa_step *s)
{
    proa_view y = proa_frame_register(f, s->out);
    f->m->ctx.ops->add(&f->m->ctx, y, y, proa_frame_register(f, s->in));
}

void proa_do_gate_layer(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view y = proa_frame_register(f, s->out), x = proa_frame_register(f, s->in);
    proa_view own = proa_view_cols(x, f->layer * c->layer_input, (f->layer + 1) * c->layer_input);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, y, own, c->act);
}

/* The gates are in the first columns of a register, what they multiply is behind them. */
static proa_view gates_of(const proa_step_frame *f, proa_reg r)
{
    return proa_view_first_columns(proa_frame_register(f, r), proa_config_ffn(&f->m->config, f->layer));
}

void proa_do_gate_moments(const proa_step_frame *f, const proa_step *s)
{
    f->m->ctx.ops->row_moments(&f->m->ctx, proa_frame_register(f, s->out), gates_of(f, s->in));
}

/* Of all ranks' gates those of this one, as one rank would make them. */
static void threshold_all_gates(const proa_step_frame *f, proa_view gates, float deviations)
{
    proa_ctx *ctx = &f->m->ctx;
    const int64_t *share = proa_frame_ffn_shares(f);
    int64_t first = share[f->m->plan.part.tensor];
    proa_view all = proa_view_first_columns(proa_frame_register(f, PROA_REG_SUM_IN),
                                            share[f->m->plan.part.tensors]);
    ctx->ops->threshold_rows(ctx, all, (proa_view){.rank = 0}, deviations);
    ctx->ops->scale(ctx, gates, proa_view_cols(all, first, first + gates.shape[1]), 1);
}

void proa_do_gate_sparse(const proa_step_frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view gates = gates_of(f, s->in), y = gates_of(f, s->out), none = {.rank = 0};
    int64_t d = gates.shape[1];
    float deviations = (float)c->deviations[f->layer];
    if (c->gate_parts && c->sum_split) threshold_all_gates(f, gates, deviations);
    else
        f->m->ctx.ops->threshold_rows(
            &f->m->ctx, gates, c->gate_parts ? proa_frame_register(f, PROA_REG_MOMENTS) : none, deviations);
    f->m->ctx.ops->act_mul(&f->m->ctx, y, gates, proa_view_cols(proa_frame_register(f, s->in), d, 2 * d), c->act);
}

void proa_do_sigmoid_mul(const proa_step_frame *f, const proa_step *s)
{
    proa_view x = proa_view_first_columns(proa_frame_register(f, s->out), f->m->config.shared_ffn);
    f->m->ctx.ops->sigmoid_mul(&f->m->ctx, x, proa_frame_register(f, s->in));
}

void proa_do_unfold(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    f->m->ctx.ops->unfold(&f->m->ctx, proa_frame_rows(f, s->out, end), proa_frame_rows(f, s->in, end),
                          &f->batch->self, f->m->config.conv_width);
}

void proa_do_block_sums(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows, block = f->m->config.side_block;
    f->m->ctx.ops->block_sums(&f->m->ctx, proa_frame_rows(f, s->out, end / block),
                              proa_frame_rows(f, s->in, end), &f->batch->self, block);
}

void proa_do_span_mean(const proa_step_frame *f, const proa_step *s)
{
    int64_t end = f->first + f->rows;
    f->m->ctx.ops->span_mean(&f->m->ctx, proa_frame_rows(f, s->out, end), proa_frame_rows(f, s->in, end),
                             &f->batch->self);
}

void proa_do_gather(const proa_step_frame *f, const proa_step *s)
{
    proa_view x = proa_frame_rows(f, s->in, f->m->plan.rows_max);
    f->m->ctx.ops->gather(&f->m->ctx, proa_frame_register(f, s->out), x, f->gather);
}
