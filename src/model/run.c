/* SPDX-License-Identifier: Apache-2.0
 * run.c - the one loop that runs every model: for each step of a program, the kernel that does it. */
#include "model/model.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "model/stage.h"
#include "model/trace.h"
#include <stdlib.h>

/* What a step needs to know beyond itself. */
typedef struct frame {
    proa_model *m;
    const proa_kv *kv;
    const proa_batch *batch;
    proa_stack_id stack;
    int64_t layer;
    int64_t first, rows;     /* of the registers that this program writes */
    const int32_t *gather;   /* rows that the head is asked for */
    const proa_given *given; /* rows that the encoder gets as vectors */
    int64_t given_count;
    const proa_batch *here; /* the batch as the host has it */
    proa_dtype narrow; /* of what lies between the residual stream and the head's outputs: f32, or a device's 16 bits */
} frame;

static frame make_frame(proa_model *m, proa_stack_id stack, int64_t rows)
{
    proa_device *d = m->device;
    frame f = {.m = m, .stack = stack, .rows = rows};
    f.narrow = d->activations ? d->activations(d, m->format, rows) : PROA_DTYPE_F32;
    bool meets = m->kv_dtype == f.narrow || m->kv_dtype == PROA_DTYPE_FP8; /* which queries of 16 bits read too */
    if (!meets) f.narrow = PROA_DTYPE_F32;
    return f;
}

static proa_dtype reg_dtype(const frame *f, proa_reg r)
{
    switch (r) {
    case PROA_REG_X:
    case PROA_REG_D: return f->m->stream;
    case PROA_REG_HN: return f->m->hidden_wanted ? PROA_DTYPE_F32 : f->narrow; /* the host may ask for it */
    case PROA_REG_ROPE:
    case PROA_REG_H:
    case PROA_REG_OUT: return PROA_DTYPE_F32;
    default: return f->narrow;
    }
}

/* Rows [0, rows) of a register, as spans count them. */
static proa_view reg_rows(const frame *f, proa_reg r, int64_t rows)
{
    const proa_plan *p = &f->m->plan;
    PROA_DASSERT(p->offset[r] >= 0);
    return proa_view_2d(f->m->activations + p->offset[r], reg_dtype(f, r), rows, p->width[r]);
}

static proa_view reg(const frame *f, proa_reg r)
{
    int64_t end = f->first + f->rows;
    return proa_view_rows(reg_rows(f, r, end), f->first, end);
}

static proa_param *param(const frame *f, proa_slot slot)
{
    return proa_params_find(&f->m->params[f->stack], f->layer, slot);
}

static proa_view values(const proa_param *p)
{
    return p->parts ? proa_view_1d(p->values, PROA_DTYPE_F32, p->rows) : (proa_view){.rank = 0};
}

/* Columns of QKV or CKV seen as heads. */
static proa_view heads(proa_view v, int64_t first, int64_t count, int64_t dim)
{
    return proa_view_heads(proa_view_cols(v, first * dim, (first + count) * dim), count);
}

/* q (0), k (1) or v (2) of QKV, as heads. */
static proa_view part_of_qkv(const frame *f, proa_view qkv, int which)
{
    const proa_config *c = &f->m->config;
    if (c->qkv_by_head) {
        proa_view v = proa_view_heads(qkv, c->heads);
        v.data = (char *)v.data + which * c->head_dim * proa_dtype_bytes(v.dtype);
        v.shape[2] = c->head_dim;
        return v;
    }
    int64_t first = which == 0 ? 0 : c->heads + (which - 1) * c->kv_heads;
    return heads(qkv, first, which == 0 ? c->heads : c->kv_heads, c->head_dim);
}

/* As the table's type has it: transformers multiplies in that. */
static float embed_scale(const frame *f, proa_dtype table)
{
    float scale = (float)f->m->config.embed_scale;
    uint16_t narrow;
    if (table == PROA_DTYPE_F32) return scale;
    proa_from_f32(&narrow, table, &scale, 1);
    proa_to_f32(&scale, &narrow, table, 1);
    return scale;
}

static void do_embed(const frame *f, const proa_step *s)
{
    static const int32_t zeros[PROA_STEP_TOKENS_MAX];
    proa_param *p = param(f, s->w);
    const int32_t *ids = s->flags & PROA_OF_POS ? f->batch->positions : f->batch->ids;
    if (s->flags & PROA_OF_TYPE) ids = f->batch->types ? f->batch->types : zeros;
    proa_ctx *c = &f->m->ctx;
    float scale = s->flags & PROA_SCALED ? embed_scale(f, p->part[0].dtype) : 1;
    c->ops->embed(c, reg(f, s->out), p->part[0], ids, scale, s->flags & PROA_ADD);
}

static void do_rope_table(const frame *f, const proa_step *s)
{
    proa_ctx *c = &f->m->ctx;
    c->ops->rope_table(c, reg(f, s->out), f->batch->positions, f->m->inv_freq, 1);
}

static void norm(const frame *f, proa_view y, proa_view x, proa_slot slot)
{
    proa_ctx *c = &f->m->ctx;
    float eps = (float)f->m->config.norm_eps;
    proa_view w = values(param(f, slot));
    if (f->m->arch->norm == PROA_NORM_RMS) c->ops->rms_norm(c, y, x, w, eps);
    else c->ops->layer_norm(c, y, x, w, values(param(f, slot + 1)), eps);
}

static void do_norm(const frame *f, const proa_step *s)
{
    proa_view y = reg(f, s->out), x = reg(f, s->in);
    norm(f, s->flags & PROA_ADD ? x : y, x, s->w);
    if (s->flags & PROA_ADD) f->m->ctx.ops->add(&f->m->ctx, y, y, x);
}

static void do_heads_norm(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    bool k = s->flags & PROA_OF_K;
    proa_view x = heads(reg(f, s->in), k ? c->heads : 0, k ? c->kv_heads : c->heads, c->head_dim);
    norm(f, x, x, s->w);
}

static void multiply(const frame *f, const proa_step *s, proa_epilogue e)
{
    const proa_param *bias = param(f, s->w + 1);
    if (bias->parts) e.bias = bias->values;
    f->m->ctx.ops->linear(&f->m->ctx, reg(f, s->out), reg(f, s->in), &param(f, s->w)->matrix, &e);
}

static void do_linear(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view y = reg(f, s->out);
    proa_epilogue e = {.act = s->flags & PROA_ACT    ? c->act
                              : s->flags & PROA_TANH ? PROA_ACT_TANH
                                                     : PROA_ACT_NONE};
    if (s->flags & PROA_SCALED) e.alpha = (float)c->logit_scale;
    if (s->flags & PROA_ADD) e.residual = y;
    if (s->flags & PROA_ADD_X) e.residual = reg(f, PROA_REG_X);
    multiply(f, s, e);
    if (s->flags & PROA_CAPPED && c->logit_cap > 0)
        f->m->ctx.ops->soft_cap(&f->m->ctx, y, (float)c->logit_cap);
}

static void do_linear_gated(const frame *f, const proa_step *s)
{
    multiply(f, s, (proa_epilogue){.act = f->m->config.act, .gated = true, .room = reg(f, PROA_REG_U)});
}

static void do_rope(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_ctx *ctx = &f->m->ctx;
    proa_view q_and_k = heads(reg(f, s->in), 0, c->heads + c->kv_heads, c->head_dim);
    ctx->ops->rope(ctx, q_and_k, reg(f, PROA_REG_ROPE), s->flags & PROA_INTERLEAVED);
}

/* An encoder's layers all use the same pages: they are read before the next layer writes them. */
static const proa_kv *self_pages(const frame *f)
{
    return &f->kv[f->stack == PROA_STACK_ENCODER ? 0 : f->layer];
}

/* Attention reads an encoder's keys and values where the product left them, if pages would be of their type; on the host where
 * they are no more than a page, as longer ones are read faster from pages than from rows far apart. Bits are the same. */
static bool without_pages(const frame *f)
{
    if (f->stack != PROA_STACK_ENCODER) return false;
    if (f->narrow != PROA_DTYPE_F32) return true;
    return f->m->kv_dtype == PROA_DTYPE_F32 && (!f->m->device->host || f->rows <= PROA_PAGE_TOKENS);
}

static proa_kv self_rows(const frame *f, proa_view qkv)
{
    const proa_config *c = &f->m->config;
    proa_view k = part_of_qkv(f, qkv, 1), v = part_of_qkv(f, qkv, 2);
    return (proa_kv){k.data, v.data, k.dtype, c->kv_heads, c->head_dim, k.stride[0]};
}

static void do_kv_append(const frame *f, const proa_step *s)
{
    proa_view qkv = reg(f, s->in);
    if (without_pages(f)) return;
    proa_view k = part_of_qkv(f, qkv, 1), v = part_of_qkv(f, qkv, 2);
    f->m->ctx.ops->kv_append(&f->m->ctx, self_pages(f), k, v, &f->batch->self);
}

static void do_rope_append(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view x = heads(reg(f, s->in), 0, c->heads + c->kv_heads, c->head_dim);
    proa_view v = heads(reg(f, s->in), c->heads + c->kv_heads, c->kv_heads, c->head_dim);
    f->m->ctx.ops->rope_append(&f->m->ctx, x, v, reg(f, PROA_REG_ROPE), s->flags & PROA_INTERLEAVED,
                               self_pages(f), &f->batch->self);
}

static void do_attend(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    const proa_param *rel = param(f, PROA_SLOT_REL_BIAS);
    bool causal = f->m->arch->stacks[f->stack].causal;
    proa_attention a = {.scale = (float)c->attention_scale, .causal = causal};
    a.soft_cap = (float)c->attention_cap;
    if (c->alibi_max > 0) a.alibi = f->m->alibi;
    a.window = f->stack == PROA_STACK_DECODER ? proa_config_window(c, f->layer) : 0;
    if (rel->parts) {
        a.rel_bias = rel->values;
        a.rel_buckets = (int32_t)c->rel_buckets, a.rel_distance = (int32_t)c->rel_distance;
        a.rel_bidirectional = !causal;
    }
    proa_view qkv = reg_rows(f, s->in, f->first + f->rows);
    proa_view q = part_of_qkv(f, qkv, 0);
    proa_view y = proa_view_heads(reg_rows(f, s->out, f->first + f->rows), c->heads);
    proa_kv rows = self_rows(f, qkv);
    f->m->ctx.ops->attend(&f->m->ctx, y, q, without_pages(f) ? &rows : self_pages(f), &f->batch->self, &a);
}

static void do_cross_append(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_view kv = reg(f, s->in);
    proa_view k = heads(kv, 0, c->kv_heads, c->head_dim), v = heads(kv, c->kv_heads, c->kv_heads, c->head_dim);
    f->m->ctx.ops->kv_append(&f->m->ctx, &f->kv[f->layer], k, v, &f->batch->self);
}

static void do_cross_attend(const frame *f, const proa_step *s)
{
    const proa_config *c = &f->m->config;
    proa_attention a = {.scale = (float)c->attention_scale};
    proa_view q = proa_view_heads(reg(f, s->in), c->heads), y = proa_view_heads(reg(f, s->out), c->heads);
    f->m->ctx.ops->attend(&f->m->ctx, y, q, &f->kv[f->layer], &f->batch->cross, &a);
}

static void do_gather(const frame *f, const proa_step *s)
{
    const proa_plan *p = &f->m->plan;
    proa_view x = proa_view_2d(f->m->activations + p->offset[s->in], reg_dtype(f, s->in), p->rows_max,
                               p->width[s->in]);
    f->m->ctx.ops->gather(&f->m->ctx, reg(f, s->out), x, f->gather);
}

typedef void step_fn(const frame *f, const proa_step *s);
static step_fn *const steps[PROA_STEP_COUNT] = {
    [PROA_STEP_EMBED] = do_embed,
    [PROA_STEP_ROPE_TABLE] = do_rope_table,
    [PROA_STEP_NORM] = do_norm,
    [PROA_STEP_HEADS_NORM] = do_heads_norm,
    [PROA_STEP_LINEAR] = do_linear,
    [PROA_STEP_LINEAR_GATED] = do_linear_gated,
    [PROA_STEP_ROPE] = do_rope,
    [PROA_STEP_KV_APPEND] = do_kv_append,
    [PROA_STEP_ROPE_APPEND] = do_rope_append,
    [PROA_STEP_ATTEND] = do_attend,
    [PROA_STEP_CROSS_APPEND] = do_cross_append,
    [PROA_STEP_CROSS_ATTEND] = do_cross_attend,
    [PROA_STEP_GATHER] = do_gather,
};

/* Kernels of few rows leave gaps that another's reading of weights fills; those of many rows do not. */
enum { BESIDE_ROWS_MAX = 16 };

static void run(const frame *f, const proa_program *program)
{
    proa_device *d = f->m->device;
    bool branches = d->beside && f->rows <= BESIDE_ROWS_MAX;
    for (const proa_step *s = program->step; s->op != PROA_STEP_END; s++) {
        if (branches && s->flags & PROA_JOIN) d->join(d);
        if (branches && s->flags & PROA_BESIDE) d->beside(d, true);
        int64_t begin = f->m->trace ? proa_clock_ns() : 0;
        steps[s->op](f, s);
        if (f->m->trace) proa_step_trace_add(f->m->trace, s, proa_clock_ns() - begin);
        if (branches && s->flags & PROA_BESIDE) d->beside(d, false);
    }
}

/* Rows that stand in for embedded ones. */
static void put_given(const frame *f)
{
    proa_model *m = f->m;
    int64_t row = m->plan.width[PROA_REG_X] * (int64_t)sizeof(float);
    for (int64_t i = 0; i < f->given_count; i++) {
        char *to = m->activations + m->plan.offset[PROA_REG_X] + f->given[i].row * row;
        m->device->upload(m->device, to, f->given[i].values, f->given[i].count * row);
    }
}

/* Layers [from, all), and what comes behind them. */
static void run_layers(frame *f, int64_t from)
{
    const proa_program *p = f->m->plan.program[f->stack];
    int64_t layers = f->m->params[f->stack].layers;
    for (f->layer = from; f->layer < layers; f->layer++) run(f, &p[PROA_SECTION_LAYER]);
    run(f, &p[PROA_SECTION_AFTER]);
}

/* ---- rows that the host asks for: those of the first inputs travel while the others run through the last layers ---- */

/* Rows of 1,024 f32 take as long on their way as in some two layers. Of fewer rows a part would leave much of a GPU idle. */
enum { TAIL_LAYERS = 4, TAIL_ROWS_MIN = 16384 };

static bool goes_in_parts(const frame *f)
{
    const proa_model *m = f->m;
    return m->harvest_ticket >= 0 && m->plan.bare_head && !m->device->host && f->stack == PROA_STACK_ENCODER &&
           without_pages(f) && f->rows >= TAIL_ROWS_MIN && f->here->self.count > 1;
}

/* Rows that this frame's programs wrote. What of rows before is on its way may lie where these go. */
static void send_rows(const frame *f)
{
    proa_model *m = f->m;
    proa_view out = reg(f, PROA_REG_OUT), x = reg_rows(f, PROA_REG_X, f->first + f->rows);
    m->device->after_sent(m->device);
    m->ctx.ops->gather(&m->ctx, out, x, proa_stage_all_rows(m) + f->first);
    proa_stage_send_rows(m, out, f->first, m->harvest_ticket);
    m->rows_sent = f->first + f->rows;
}

/* Spans [begin, end), whose rows follow each other. */
static void run_part(const frame *f, int64_t begin, int64_t end, int64_t from)
{
    const proa_span *span = f->here->self.span;
    frame part = *f;
    proa_batch batch = *f->batch;
    batch.self.span += begin, batch.self.count = end - begin;
    part.batch = &batch;
    part.first = span[begin].row;
    part.rows = span[end - 1].row + span[end - 1].rows - part.first;
    run_layers(&part, from);
    if (end < f->here->self.count)
        send_rows(&part); /* the last ones when all is asked for (proa_model_harvest) */
}

/* Two thirds of the rows in the first part, as near as their inputs allow. */
static void run_tail(const frame *f, int64_t from)
{
    const proa_spans *spans = &f->here->self;
    int64_t split = 1;
    while (split + 1 < spans->count && 3 * spans->span[split + 1].row <= 2 * f->rows) split++;
    run_part(f, 0, split, from);
    run_part(f, split, spans->count, from);
}

static void run_stack(frame *f)
{
    int64_t layers = f->m->params[f->stack].layers;
    PROA_ASSERT(f->rows <= f->m->plan.rows_max);
    f->layer = layers;
    run(f, &f->m->plan.program[f->stack][PROA_SECTION_EMBED]);
    put_given(f);
    if (!goes_in_parts(f)) {
        run_layers(f, 0);
        return;
    }
    int64_t whole = proa_max64(layers - TAIL_LAYERS, 0);
    for (f->layer = 0; f->layer < whole; f->layer++)
        run(f, &f->m->plan.program[f->stack][PROA_SECTION_LAYER]);
    run_tail(f, whole);
}

static void encode(frame *f)
{
    proa_model *m = f->m;
    run_stack(f);
    f->stack = PROA_STACK_DECODER;
    for (f->layer = 0; m->plan.cross.count && f->layer < m->config.layers; f->layer++) run(f, &m->plan.cross);
}

/* On a device passes of one shape launch alike: steps of decoding rows, inputs of one length. Such a pass is recorded when
 * it comes again and replayed from then on. Long ones gain nothing from it. */
static void run_recorded(proa_model *m, const proa_kv *kv, const proa_batch *batch, proa_stack_id stack,
                         void (*body)(frame *f))
{
    enum { RECORDED_ROWS_MAX = 1024 };
    proa_batch there;
    frame f = make_frame(m, stack, batch->rows);
    m->rows_sent = 0;
    f.kv = kv;
    f.here = batch;
    f.given = batch->given;
    f.given_count = batch->given_count;
    f.batch = proa_stage_batch(m, kv, batch, &there);
    m->stream = m->plan.normed_stream && !batch->given_count ? f.narrow : PROA_DTYPE_F32;
    bool recorded = m->device->pass_begin && batch->rows <= RECORDED_ROWS_MAX && !batch->given_count;
    if (recorded) {
        proa_pass pass = {(int32_t)stack,      (int32_t)batch->rows,   (int32_t)batch->self.count,
                          there.self.rows_max, there.self.context_max, there.cross.context_max,
                          there.self.rows_min};
        if (m->device->pass_begin(m->device, &pass)) return;
    }
    body(&f);
    if (recorded) m->device->pass_end(m->device);
}

void proa_model_encode(proa_model *m, const proa_kv *kv, const proa_batch *batch)
{
    if (m->harvest_ticket >= 0) proa_stage_harvest(m, m->harvest_ticket);
    run_recorded(m, kv, batch, PROA_STACK_ENCODER, encode);
}

void proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch)
{
    run_recorded(m, kv, batch, PROA_STACK_DECODER, run_stack);
}

/* What the head's last product read: X itself where the head only gathers. */
static proa_view hidden_rows(const proa_model *m, int64_t count)
{
    const proa_plan *p = &m->plan;
    proa_reg read = p->head.count ? p->head.step[p->head.count - 1].in : PROA_REG_OUT;
    if (read == PROA_REG_X) read = PROA_REG_OUT;
    return proa_view_2d(m->activations + p->offset[read], PROA_DTYPE_F32, count, p->width[read]);
}

/* rows: where the model runs. */
static proa_view run_head_there(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count)
{
    frame f = make_frame(m, m->arch->kind == PROA_KIND_ENCODER ? PROA_STACK_ENCODER : PROA_STACK_DECODER, count);
    PROA_ASSERT(count <= m->plan.best_rows);
    f.gather = rows;
    f.layer = m->params[f.stack].layers;
    run(&f, program);
    return reg(&f, PROA_REG_OUT);
}

static proa_view run_head(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count)
{
    const int32_t *there = proa_stage_rows(m, rows, count);
    return proa_stage_fetch(m, run_head_there(m, program, there, count), hidden_rows(m, count));
}

/* The candidates of searches of which some rows, in order from the first search's first row on, are rows [at, at + n) of the
 * logits; those that want as many go together. */
static void find_candidates(proa_model *m, const proa_asked *asked, const proa_told *told, proa_view logits,
                            int64_t first)
{
    const proa_search *s = asked->search, *end = s + asked->searches;
    int64_t n = logits.shape[0];
    m->ctx.ops->log_sum_exp(&m->ctx, told->lists.sums + first, logits);
    while (first >= s->row + s->rows) s++;
    for (int64_t i = 0, k; i < n; i = k) {
        int64_t M = s->each, at = s->at + (first + i - s->row) * M;
        for (k = i; k < n && s < end && s->each == M; s++) k = proa_min64(n, s->row + s->rows - first);
        proa_view values = proa_view_2d(told->lists.logits + at, PROA_DTYPE_F32, k - i, M);
        m->ctx.ops->top_k(&m->ctx, values, told->lists.ids + at, proa_view_rows(logits, i, k), M);
    }
}

/* Rows [at, ...) of those of which one token each is chosen. */
static void choose_singles(proa_model *m, const proa_asked *asked, const proa_told *told, proa_view logits,
                           const proa_choice *how, const proa_edits_there *edits, int64_t at)
{
    proa_ctx *c = &m->ctx;
    int64_t n = logits.shape[0], top = asked->top;
    if (edits->rows) c->ops->edit(c, logits, edits->rows + at, edits->pairs, edits->last + at);
    c->ops->choose(c, told->ids + at, told->sums + at, logits, how ? how + at : NULL);
    if (asked->logits) c->ops->pick(c, told->logits + at, logits, told->ids + at);
    if (!top) return;
    proa_view values = proa_view_2d(told->top_logits + at * top, PROA_DTYPE_F32, n, top);
    c->ops->top_k(c, values, told->top_ids + at * top, logits, top);
}

static int64_t rows_of_searches(const proa_asked *asked)
{
    const proa_search *last = asked->search + asked->searches - 1;
    return asked->searches ? last->row + last->rows : 0;
}

void proa_model_choose(proa_model *m, const proa_asked *asked, int ticket)
{
    int64_t single = asked->count, count = single + rows_of_searches(asked);
    proa_edits_there edits = proa_stage_edits(m, asked);
    proa_told told = proa_stage_told(m, asked, ticket);
    const int32_t *there = proa_stage_rows(m, asked->rows, count);
    const proa_choice *how = proa_stage_choices(m, asked->how, single);
    const proa_search *search = proa_stage_searches(m, asked->search, asked->searches);
    for (int64_t at = 0, n; at < count; at += n) {
        n = proa_min64(count - at, m->plan.best_rows);
        int64_t of_single = proa_max64(0, proa_min64(single - at, n));
        proa_view logits = run_head_there(m, &m->plan.head, there + at, n),
                  few = proa_view_rows(logits, 0, of_single);
        if (of_single) choose_singles(m, asked, &told, few, how, &edits, at);
        if (of_single < n)
            find_candidates(m, asked, &told, proa_view_rows(logits, of_single, n), proa_max64(0, at - single));
    }
    if (asked->searches) m->ctx.ops->search(&m->ctx, search, asked->searches, &told.lists);
    proa_stage_send(m, ticket);
}

void proa_model_top(proa_model *m, const int32_t *rows, int64_t count, int64_t k, int32_t *ids, float *logits,
                    float *sums)
{
    proa_top top = proa_stage_top(m, count, k);
    proa_view out = run_head_there(m, &m->plan.head, proa_stage_rows(m, rows, count), count);
    m->ctx.ops->log_sum_exp(&m->ctx, top.sums, out);
    m->ctx.ops->top_k(&m->ctx, proa_view_2d(top.logits, PROA_DTYPE_F32, count, k), top.ids, out, k);
    proa_stage_fetch_top(m, count, k, ids, logits, sums);
}

proa_view proa_model_head(proa_model *m, const int32_t *rows, int64_t count)
{
    return run_head(m, &m->plan.head, rows, count);
}

/* Of the inputs' first rows; a head that only gathers has the pooler's answers in the rows' place. */
static void harvest_inputs(proa_model *m, const proa_program *program, const int32_t *firsts, int64_t inputs)
{
    if (m->plan.bare_head) m->device->after_sent(m->device);
    for (int64_t at = 0, n; at < inputs; at += n) {
        n = proa_min64(inputs - at, m->plan.best_rows);
        proa_view out = run_head_there(m, program, proa_stage_rows(m, firsts + at, n), n);
        proa_stage_send_inputs(m, out, at, program == &m->plan.pool, m->harvest_ticket);
    }
}

static void harvest_rows(proa_model *m, int64_t rows, bool again)
{
    frame f = make_frame(m, PROA_STACK_ENCODER, rows);
    if (m->device->host) {
        proa_stage_keep_rows(m, reg(&f, PROA_REG_X), again, m->harvest_ticket);
        return;
    }
    f.first = m->rows_sent;
    f.rows = rows - f.first;
    send_rows(&f);
}

bool proa_model_harvests(const proa_model *m)
{
    return m->plan.bare_head || m->arch->head_rows == PROA_ROWS_FIRST;
}

/* Rows last: they may be long under way. */
void proa_model_harvest(proa_model *m, const int32_t *firsts, int64_t inputs, int64_t rows, bool again)
{
    if (m->arch->head_rows == PROA_ROWS_FIRST) harvest_inputs(m, &m->plan.head, firsts, inputs);
    if (proa_model_has_pool(m)) harvest_inputs(m, &m->plan.pool, firsts, inputs);
    if (m->plan.bare_head) harvest_rows(m, rows, again);
}

void proa_model_encoded(const proa_model *m, float *to, int64_t first, int64_t count)
{
    const proa_plan *p = &m->plan;
    int64_t width = p->width[PROA_REG_X], row = width * proa_dtype_bytes(m->stream);
    const char *from = m->activations + p->offset[PROA_REG_X] + first * row;
    if (m->stream == PROA_DTYPE_F32) {
        m->device->download(m->device, to, from, count * row);
        return;
    }
    void *narrow = proa_malloc((size_t)(count * row));
    m->device->download(m->device, narrow, from, count * row);
    proa_to_f32(to, narrow, m->stream, count * width);
    free(narrow);
}

const float *proa_model_hidden(const proa_model *m, int64_t i)
{
    return proa_stage_hidden(m, hidden_rows(m, m->plan.head_rows), i);
}
