/* SPDX-License-Identifier: Apache-2.0
 * stage.c - which layers and weights a stage of a pipeline has, its programs, and the micro-batches of a pass. */
#include "model/ranks/stage.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "model/staging/staging.h"
#include <stdlib.h>

/* ---- which layers ---- */

static proa_layer_range divide_layers(int64_t layers, int32_t stage, int32_t stages)
{
    int64_t each = layers / stages, more = layers % stages;
    int64_t first = stage * each + proa_min64(stage, more);
    return (proa_layer_range){first, first + each + (stage < more)};
}

/* The first layer whose keys and values a later one reads: those behind it stay together. */
static int64_t first_shared(const proa_config *c, int64_t layers)
{
    int64_t first = layers;
    for (int64_t i = 0; i < layers; i++)
        if (proa_config_kv_source(c, i) < i) first = proa_min64(first, proa_config_kv_source(c, i));
    return first;
}

proa_layer_range proa_stage_layers(const proa_config *c, int64_t layers, int32_t stage, int32_t stages)
{
    int64_t shared = first_shared(c, layers);
    if (divide_layers(layers, stages - 1, stages).first <= shared)
        return divide_layers(layers, stage, stages);
    return stage == stages - 1 ? (proa_layer_range){shared, layers} : divide_layers(shared, stage, stages - 1);
}

static bool is_first(const proa_plan *plan)
{
    return plan->part.stage == 0;
}

static bool is_last(const proa_plan *plan)
{
    return plan->part.stage == plan->part.stages - 1;
}

/* ---- which weights ---- */

static bool reads_weight(const proa_step *s)
{
    switch (s->op) {
    case PROA_STEP_EMBED:
    case PROA_STEP_NORM:
    case PROA_STEP_HEADS_NORM:
    case PROA_STEP_LINEAR:
    case PROA_STEP_LINEAR_GATED:
    case PROA_STEP_HEADS_LINEAR:
    case PROA_STEP_ROUTE:
    case PROA_STEP_EXPERTS:
    case PROA_STEP_STREAM_LINEAR:
    case PROA_STEP_SCALE_COLUMNS:
    case PROA_STEP_SIGMOID_MUL: return true;
    default: return false;
    }
}

/* The slots that the steps of a program read, but for those that a step implies (rel_bias). */
static void add_slots(bool read[PROA_SLOT_COUNT], const proa_step *s)
{
    for (; s && s->op != PROA_STEP_END; s++)
        if (reads_weight(s)) read[s->w] = read[s->w + 1] = true;
}

/* Weights outside of the layers that no other than the first stage reads, or the last one. */
static void remove_outer_weights(const proa_plan *plan, proa_params params[PROA_STACK_COUNT],
                                 const proa_arch *arch)
{
    bool all[PROA_SLOT_COUNT] = {false}, first[PROA_SLOT_COUNT] = {false}, last[PROA_SLOT_COUNT] = {false};
    add_slots(all, arch->cross);
    add_slots(first, arch->fuse);
    add_slots(last, arch->head);
    add_slots(last, arch->pool);
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        add_slots(all, arch->stacks[s].layer);
        add_slots(first, arch->stacks[s].embed);
        add_slots(last, arch->stacks[s].after);
    }
    for (int slot = 0; slot < PROA_SLOT_COUNT; slot++) {
        bool elsewhere = first[slot] || last[slot];
        bool own = all[slot] || (first[slot] && is_first(plan)) || (last[slot] && is_last(plan));
        for (int s = 0; s < PROA_STACK_COUNT && elsewhere && !own; s++)
            proa_params_at(&params[s], params[s].layers, (proa_weight_slot)slot)->parts = 0;
    }
}

static void remove_layers(const proa_plan *plan, proa_params *p, proa_stack_id stack)
{
    for (int64_t layer = 0; layer < p->layers; layer++) {
        if (layer >= plan->layers[stack].first && layer < plan->layers[stack].end) continue;
        for (int slot = 0; slot < PROA_SLOT_COUNT; slot++)
            proa_params_at(p, layer, (proa_weight_slot)slot)->parts = 0;
    }
}

/* A layer that sees the keys which an earlier one picked is in one stage with it: what was picked is not sent. */
static proa_status check_picks(const proa_config *c, int64_t layers, int32_t stages, proa_err *err)
{
    for (int32_t stage = 0; stage < stages && c->index_topk; stage++) {
        int64_t first = proa_stage_layers(c, layers, stage, stages).first;
        if (!proa_config_picks(c, first))
            return PROA_FAIL(
                err, UNSUPPORTED,
                "layer %lld sees the keys that the layer before it picked, which would be in another of "
                "%d stages (--pp)",
                (long long)first, stages);
    }
    return PROA_OK;
}

static proa_status check_layers(const proa_config *c, int64_t layers, int32_t stages, proa_err *err)
{
    int64_t shared = first_shared(c, layers);
    if (layers > 0 && layers < stages)
        return PROA_FAIL(err, UNSUPPORTED, "%lld layers cannot be divided among %d stages (--pp)",
                         (long long)layers, stages);
    if (shared >= stages - 1) return check_picks(c, layers, stages, err);
    return PROA_FAIL(err, UNSUPPORTED,
                     "%lld layers cannot be divided among %d stages (--pp): those from layer %lld on share "
                     "keys and values, so they are of one stage",
                     (long long)layers, stages, (long long)shared);
}

proa_status proa_stage_cut(proa_plan *plan, proa_params params[PROA_STACK_COUNT], const proa_arch *arch,
                           const proa_config *c, proa_err *err)
{
    int32_t stages = plan->part.stages;
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        int64_t layers = params[s].layers;
        if (layers > 0) PROA_TRY(check_layers(c, layers, stages, err));
        plan->layers[s] = proa_stage_layers(c, layers, plan->part.stage, stages);
        remove_layers(plan, &params[s], (proa_stack_id)s);
    }
    if (stages > 1) remove_outer_weights(plan, params, arch);
    return PROA_OK;
}

/* ---- programs ---- */

/* What every stage makes for itself before its layers: no weights. A copy is of what all stages have: the output of the
 * stack before; embeddings that layers read later come with the rows. */
static void keep_tables(proa_program *embed, const proa_config *c)
{
    int32_t count = 0;
    for (int32_t i = 0; i < embed->count; i++) {
        const proa_step *s = &embed->step[i];
        bool copies = s->op == PROA_STEP_SCALE && s->in == PROA_REG_X && !c->keeps_embeds;
        if (s->op == PROA_STEP_ROPE_TABLE || copies) embed->step[count++] = *s;
    }
    embed->count = count;
    embed->step[count] = (proa_step){PROA_STEP_END, 0, 0, 0, 0};
}

static void add_step(proa_program *p, proa_step_op op, proa_reg in, proa_reg out)
{
    PROA_ASSERT(p->count < PROA_PROGRAM_MAX - 1);
    p->step[p->count++] = (proa_step){op, in, out, 0, 0};
    p->step[p->count] = (proa_step){PROA_STEP_END, 0, 0, 0, 0};
}

static void set_step(proa_program *p, proa_step_op op, proa_reg in, proa_reg out)
{
    p->count = 0;
    add_step(p, op, in, out);
}

/* X is the first of several streams. */
static void receive_rows(proa_program *p, const proa_config *c)
{
    set_step(p, PROA_STEP_RECV, PROA_REG_NONE, c->streams ? PROA_REG_STREAMS : PROA_REG_X);
    if (c->streams) add_step(p, PROA_STEP_TAKE_STREAM, PROA_REG_STREAMS, PROA_REG_X);
    if (c->layer_input) add_step(p, PROA_STEP_RECV, PROA_REG_NONE, PROA_REG_LAYER_INPUTS);
    if (c->keeps_embeds) add_step(p, PROA_STEP_RECV, PROA_REG_NONE, PROA_REG_KEPT);
}

static void send_rows(proa_program *p, const proa_config *c)
{
    set_step(p, PROA_STEP_SEND, c->streams ? PROA_REG_STREAMS : PROA_REG_X, PROA_REG_NONE);
    if (c->layer_input) add_step(p, PROA_STEP_SEND, PROA_REG_LAYER_INPUTS, PROA_REG_NONE);
    if (c->keeps_embeds) add_step(p, PROA_STEP_SEND, PROA_REG_KEPT, PROA_REG_NONE);
}

void proa_stage_steps(proa_plan *plan, const proa_config *c)
{
    for (int s = 0; s < PROA_STACK_COUNT && plan->part.stages > 1; s++) {
        proa_program *p = plan->program[s];
        if (!p[PROA_SECTION_LAYER].count) continue;
        if (!is_first(plan)) {
            keep_tables(&p[PROA_SECTION_EMBED], c);
            receive_rows(&p[PROA_SECTION_ENTER], c);
        }
        if (!is_last(plan)) send_rows(&p[PROA_SECTION_AFTER], c);
        /* For decoders' cross-attention, and for rank 0, which gives an encoder's rows out. */
        if (s == PROA_STACK_ENCODER)
            set_step(&p[PROA_SECTION_SHARE], PROA_STEP_BROADCAST, PROA_REG_X, PROA_REG_X);
    }
}

/* ---- in a pass ---- */

static int64_t cut_spans_room(const proa_model *m)
{
    return m->plan.rows_max + PROA_MICRO_BATCHES_MAX;
}

void proa_stage_make(proa_model *m)
{
    if (m->plan.part.stages > 1)
        m->cut_spans = proa_calloc((size_t)(2 * cut_spans_room(m)), sizeof *m->cut_spans);
}

void proa_stage_free(proa_model *m)
{
    free(m->cut_spans);
}

bool proa_stage_is_last(const proa_model *m)
{
    return is_last(&m->plan);
}

void proa_stage_receive(proa_model *m, proa_view rows, int32_t from)
{
    proa_staging_receive_sampled(m);
    m->pipe->recv(m->pipe, rows, from);
}

void proa_stage_return(proa_model *m, proa_view rows)
{
    proa_comm *c = m->pipe;
    if (!c) return;
    if (c->rank == c->ranks - 1) c->send(c, rows, 0);
    else if (c->rank == 0) proa_stage_receive(m, rows, c->ranks - 1);
}

void proa_stage_broadcast(proa_model *m, proa_view rows)
{
    proa_comm *c = m->pipe;
    if (!c) return;
    int32_t last = c->ranks - 1;
    if (c->rank < last) proa_stage_receive(m, rows, last);
    else
        for (int32_t to = 0; to < last; to++) c->send(c, rows, to);
}

/* ---- micro-batches ---- */

/* Rows for which a product takes about as long as for one row, since its weights are read either way: a pass of fewer
 * is not divided. A GPU multiplies some 300 rows while it reads their weights in 16 bits. */
#define HOST_ROWS          16
#define DEVICE_ROWS        512
/* Products of more rows use a GPU better: GPT-J-6B in fp8 runs prompts 17 % faster by 4,096 rows than by 512 (two
 * H200s). A pass that others overlap need not keep the stages busy by itself, so it is divided from here on only. That
 * of an encoder is not divided at all: BERT-large in fp8 runs 13 to 30 % more texts so than by 4,096 rows. */
#define OVERLAPPING_ROWS   4096

/* With n micro-batches S stages take (n + S - 1) / n of the time that they would if all worked all the time. */
#define MICRO_BATCHES_EACH 4
/* Two neighbours have more rows together than one may have, so spans that cannot be cut give at most twice as many. */
#define MICRO_BATCHES_MOST ((PROA_MICRO_BATCHES_MAX - 1) / 2)

static int64_t rows_of_micro_batch(const proa_model *m, const proa_batch *batch)
{
    if (batch->overlaps && m->arch->kind == PROA_KIND_ENCODER) return batch->rows;
    int64_t most = proa_min64((int64_t)MICRO_BATCHES_EACH * m->plan.part.stages, MICRO_BATCHES_MOST);
    int64_t least = m->device->host ? HOST_ROWS : batch->overlaps ? OVERLAPPING_ROWS : DEVICE_ROWS;
    return proa_max64(least, proa_ceil_div(batch->rows, most));
}

/* Cuts of a span the rows [0, n) to *first; the rest stays. */
static void cut_span(proa_span *first, proa_span *span, int32_t n)
{
    *first = *span;
    first->rows = n;
    first->context = span->context - span->rows + n;
    span->row += n, span->rows -= n;
}

/* The first span that may be cut: those before it are known by their numbers (proa_pending_beams). */
static int64_t first_to_cut(const proa_batch *batch)
{
    int64_t first = 0;
    for (int64_t i = 0; i < batch->pending_count; i++)
        first = proa_max64(first, batch->pending[i].span + batch->pending[i].beams);
    return first;
}

/* Rows of a tree or of a prefix see each other. */
static bool can_cut(const proa_batch *batch, const proa_span *span, int64_t index)
{
    return span->tree == 0 && index < batch->self.count - batch->prefixes;
}

typedef struct micro_batch_builder {
    proa_micro_batches *out;
    proa_span *self, *cross;   /* the spans of the divided pass; cross NULL: there are none */
    int64_t count, rows, each; /* spans so far; rows of the open micro-batch; of each */
} micro_batch_builder;

static void close_micro_batch(micro_batch_builder *d)
{
    if (!d->rows) return;
    d->out->end[d->out->count++] = d->count;
    d->rows = 0;
}

static void add_span(micro_batch_builder *d, const proa_span *self, const proa_span *cross)
{
    d->self[d->count] = *self;
    if (cross) d->cross[d->count] = *cross;
    d->count++, d->rows += self->rows;
}

/* A span goes into the open micro-batch as far as it fits, if it can be cut. */
static void divide_span(micro_batch_builder *d, proa_span self, const proa_span *cross, bool cuts)
{
    proa_span first, memory = cross ? *cross : (proa_span){0};
    while (cuts && d->rows + self.rows > d->each) {
        int32_t n = (int32_t)(d->each - d->rows);
        cut_span(&first, &self, n);
        proa_span of_memory = memory;
        of_memory.rows = n, memory.row += n, memory.rows -= n;
        add_span(d, &first, cross ? &of_memory : NULL);
        close_micro_batch(d);
    }
    if (d->rows + self.rows > d->each) close_micro_batch(d);
    add_span(d, &self, cross ? &memory : NULL);
    if (d->rows >= d->each) close_micro_batch(d);
}

void proa_micro_batches_make(proa_micro_batches *out, proa_model *m, proa_batch *batch, bool causal)
{
    int64_t each = rows_of_micro_batch(m, batch);
    out->count = 1, out->end[0] = batch->self.count;
    if (m->plan.part.stages == 1 || batch->rows <= each || batch->self.count == 0) return;
    micro_batch_builder d = {
        .out = out, .self = m->cut_spans, .cross = m->cut_spans + cut_spans_room(m), .each = each};
    int64_t uncut = first_to_cut(batch);
    out->count = 0;
    for (int64_t i = 0; i < batch->self.count; i++) {
        const proa_span *span = &batch->self.span[i];
        const proa_span *cross = batch->cross.count ? &batch->cross.span[i] : NULL;
        divide_span(&d, *span, cross, causal && i >= uncut && can_cut(batch, span, i));
    }
    close_micro_batch(&d);
    batch->self.span = d.self, batch->self.count = d.count;
    if (batch->cross.count) batch->cross.span = d.cross, batch->cross.count = d.count;
}
