/* SPDX-License-Identifier: Apache-2.0
 * run.c - passes over a batch: the programs of its layers, those of the head, and the outputs that are sent to the
 *         host. */
#include "model/run.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "model/lora/lora.h"
#include "model/ranks/stage.h"
#include "model/staging/staging.h"
#include "model/steps/steps.h"
#include <stdlib.h>
#include <string.h>

/* Hidden states of the target: those of one layer are X, of several X is made. */
static void read_states(const proa_step_frame *f)
{
    const proa_batch *b = f->batch;
    bool fuses = f->m->plan.fuse.count > 0 && b->states.shape[1] != f->m->config.hidden;
    proa_view to = proa_frame_register(f, fuses ? PROA_REG_STATES : PROA_REG_X);
    f->m->ctx.ops->gather(&f->m->ctx, to, b->states, b->state_rows);
    if (fuses) proa_frame_run(f, &f->m->plan.fuse);
}

/* Copies the stream before this layer, if a later step or output reads it. */
static void keep_taps(const proa_step_frame *f)
{
    const proa_taps *t = &f->m->taps;
    int64_t width = f->m->plan.width[PROA_REG_X];
    for (int32_t i = 0; i < t->count && f->stack == PROA_STACK_DECODER; i++) {
        if (t->layer[i] != f->layer) continue;
        proa_view rows = proa_view_rows(t->rows, f->first, f->first + f->rows);
        proa_view to = proa_view_cols(rows, i * width, (i + 1) * width);
        f->m->ctx.ops->scale(&f->m->ctx, to, proa_frame_register(f, PROA_REG_X), 1);
    }
}

/* Layers [from, end) of those of this rank, and the programs before and after them. */
static void run_layers(proa_step_frame *f, int64_t from)
{
    const proa_program *p = f->m->plan.program[f->stack];
    int64_t end = f->m->plan.layers[f->stack].end;
    proa_frame_run(f, &p[PROA_SECTION_ENTER]);
    for (f->layer = from; f->layer < end; f->layer++) {
        keep_taps(f);
        if (!proa_config_is_empty(&f->m->config, f->layer)) proa_frame_run(f, &p[PROA_SECTION_LAYER]);
    }
    keep_taps(f);
    proa_frame_run(f, &p[PROA_SECTION_AFTER]);
}

/* ---- a pass in parts: rows of some spans ---- */

/* The numbers of spans and rows from which kernels choose how they run. */
static void count_long_spans(proa_spans *to, const proa_span *span, int64_t count)
{
    to->long_count = to->long_rows = to->rows_max = to->rows_min = 0;
    for (int64_t i = 0; i < count; i++) {
        to->rows_max = span[i].rows > to->rows_max ? span[i].rows : to->rows_max;
        to->rows_min = i == 0 || span[i].rows < to->rows_min ? span[i].rows : to->rows_min;
        if (span[i].rows > 1 || span[i].tree > 1) to->long_count++, to->long_rows += span[i].rows;
    }
}

/* Layers from `from` on over micro-batch i, whose rows follow each other. */
static void run_part(const proa_step_frame *f, proa_step_frame *part, int32_t i, int64_t from)
{
    int64_t begin = i ? f->micro.end[i - 1] : 0, end = f->micro.end[i];
    const proa_span *span = f->host_batch->self.span;
    int64_t plain = f->batch->self.count - f->batch->prefixes; /* the spans before the prefixes */
    proa_batch batch = *f->batch;
    batch.self.span += begin, batch.self.count = end - begin;
    batch.prefixes = proa_max64(0, end - proa_max64(begin, plain));
    count_long_spans(&batch.self, span + begin, end - begin);
    if (batch.cross.count) batch.cross.span += begin, batch.cross.count = end - begin;
    const proa_span *last = &span[end - 1];
    if (batch.lora_rows.count)
        batch.lora_rows = proa_lora_rows_of(&f->batch->lora_rows, &f->micro, i, span[begin].row);
    *part = *f;
    part->batch = &batch;
    part->first = span[begin].row;
    part->rows = last->row + last->rows - part->first;
    run_layers(part, from);
    part->batch = f->batch;
}

static void run_micro_batches(const proa_step_frame *f, int64_t from)
{
    for (int32_t i = 0; i < f->micro.count; i++) {
        proa_step_frame part;
        run_part(f, &part, i, from);
    }
}

/* ---- a large encoder pass in two parts: the first part's rows are copied to the host while the second runs ---- */

/* A row of 1,024 f32 takes as long to copy as to run through some two layers. With fewer rows a part would leave
 * much of a GPU idle. */
enum { TAIL_LAYERS = 4, TAIL_ROWS_MIN = 16384 };

static bool splits_tail(const proa_step_frame *f)
{
    const proa_model *m = f->m;
    return m->encoder_ticket >= 0 && m->plan.part.stages == 1 && m->plan.headless && !m->device->host &&
           f->stack == PROA_STACK_ENCODER && proa_frame_attends_without_pages(f) &&
           !f->batch->lora_rows.count && f->rows >= TAIL_ROWS_MIN && f->host_batch->self.count > 1;
}

/* Sends the rows that this frame's programs wrote, from the rank that has them for the host. First waits for earlier
 * copies, which may still read register OUT. */
static void send_rows(const proa_step_frame *f)
{
    proa_model *m = f->m;
    m->rows_sent_early = f->first + f->rows;
    if (!proa_staging_sends_outputs(m)) return;
    proa_view out = proa_frame_register(f, PROA_REG_OUT), x = proa_frame_rows(f, PROA_REG_X, f->first + f->rows);
    m->device->wait_copies_on_stream(m->device);
    m->ctx.ops->gather(&m->ctx, out, x, proa_staging_all_rows(m) + f->first);
    proa_staging_outputs_send_rows(m, out, f->first, m->encoder_ticket);
}

/* The first part has two thirds of the rows, as nearly as the inputs' lengths allow. */
static void run_split_tail(proa_step_frame *f, int64_t from)
{
    const proa_spans *spans = &f->host_batch->self;
    proa_step_frame part;
    int64_t split = 1;
    while (split + 1 < spans->count && 3 * spans->span[split + 1].row <= 2 * f->rows) split++;
    f->micro = (proa_micro_batches){.count = 2, .end = {split, spans->count}};
    run_part(f, &part, 0, from);
    send_rows(&part);
    run_part(f, &part, 1, from); /* proa_model_send_encoder_outputs sends these rows */
}

static void run_all_layers(proa_step_frame *f)
{
    const proa_layer_range *layers = &f->m->plan.layers[f->stack];
    if (f->micro.count > 1) {
        run_micro_batches(f, layers->first);
        return;
    }
    if (!splits_tail(f)) {
        run_layers(f, layers->first);
        return;
    }
    int64_t whole = proa_max64(layers->end - TAIL_LAYERS, 0);
    for (f->layer = 0; f->layer < whole; f->layer++)
        proa_frame_run(f, &f->m->plan.program[f->stack][PROA_SECTION_LAYER]);
    run_split_tail(f, whole);
}

/* Only the last stage needs the rows of this pass: no decoder in other stages reads them. */
static bool stays_in_last_stage(const proa_step_frame *f)
{
    bool decoded = proa_arch_decodes_input(f->m->arch);
    return f->stack == PROA_STACK_ENCODER && f->m->encoder_ticket >= 0 && f->m->outputs_stay && !decoded;
}

/* What proa_pass.kind says of a pass: its stack, and whether its rows stay with the last stage. */
static int32_t program_number(const proa_step_frame *f)
{
    return (int32_t)f->stack + (stays_in_last_stage(f) ? PROA_STACK_COUNT : 0);
}

static void run_stack(proa_step_frame *f)
{
    const proa_program *p = f->m->plan.program[f->stack];
    PROA_ASSERT(f->rows <= f->m->plan.rows_max);
    f->layer = f->m->params[f->stack].layers;
    if (f->batch->state_rows) read_states(f);
    proa_frame_run(f, &p[PROA_SECTION_EMBED]);
    if (f->m->plan.part.stage == 0) proa_frame_upload_embeds(f, PROA_REG_X, false, 1);
    run_all_layers(f);
    if (!stays_in_last_stage(f)) proa_frame_run(f, &p[PROA_SECTION_SHARE]);
}

/* The decoder of an encoder that decodes its input: over the same rows, whose outputs of the encoder it keeps. */
static void run_decoder(proa_step_frame *f)
{
    const proa_batch *encoded = f->batch;
    proa_batch batch = *encoded;
    batch.ids = batch.decoder_ids;
    f->stack = PROA_STACK_DECODER;
    f->batch = &batch;
    run_stack(f);
    f->batch = encoded;
}

static void encode_body(proa_step_frame *f)
{
    proa_model *m = f->m;
    if (f->host_batch->encoded) proa_frame_upload_embeds(f, PROA_REG_X, false, 1);
    else run_stack(f);
    if (proa_arch_decodes_input(m->arch)) run_decoder(f);
    f->stack = PROA_STACK_DECODER;
    const proa_layer_range *layers = &m->plan.layers[PROA_STACK_DECODER];
    for (f->layer = layers->first; m->plan.cross.count && f->layer < layers->end; f->layer++)
        proa_frame_run(f, &m->plan.cross);
}

/* Runs a pass, or replays its recording (a CUDA graph). Passes of the same shape (decoding steps, inputs of one
 * length) launch the same kernels; a device records such a pass when it comes again. Long passes gain nothing from
 * it. */
static void run_recorded(proa_model *m, const proa_kv *kv, const proa_batch *batch, proa_stack_id stack,
                         void (*body)(proa_step_frame *f))
{
    enum { RECORDED_ROWS_MAX = 1024 };
    proa_batch staged, own = *batch;
    proa_step_frame f = proa_frame_make(m, stack, batch->rows);
    if (batch->lora) proa_lora_group(m, batch, &own.lora_rows);
    bool cuts = m->arch->stacks[stack].causal &&
                stack == PROA_STACK_DECODER; /* an encoder has no pages to go on from */
    proa_micro_batches_make(&f.micro, m, &own, cuts);
    if (batch->lora && f.micro.count > 1) proa_lora_divide(m, &own.lora_rows, own.self.span, &f.micro);
    batch = &own;
    m->rows_sent_early = 0;
    f.kv = kv;
    f.host_batch = batch;
    f.inputs_embeds = batch->inputs_embeds;
    f.inputs_embeds_count = batch->inputs_embeds_count;
    f.batch = proa_staging_batch(m, kv, batch, &staged);
    m->stream = m->plan.normed_stream && !batch->inputs_embeds_count ? f.narrow : PROA_DTYPE_F32;
    bool recorded = m->device->pass_begin && batch->rows <= RECORDED_ROWS_MAX &&
                    !batch->inputs_embeds_count && !batch->prefixes && f.micro.count == 1;
    if (recorded) {
        proa_pass pass = {m->number,
                          program_number(&f),
                          (int32_t)batch->rows,
                          (int32_t)batch->self.count,
                          staged.self.rows_max,
                          staged.self.context_max,
                          staged.cross.context_max,
                          staged.self.rows_min,
                          staged.self.long_count,
                          staged.self.long_rows,
                          (int32_t)staged.lora_rows.count,
                          staged.self.seen != NULL,
                          m->lora.version,
                          batch->state_rows ? (int32_t)batch->states.shape[1] : 0};
        if (m->device->pass_begin(m->device, &pass)) return;
    }
    body(&f);
    if (recorded) m->device->pass_end(m->device);
}

void proa_run_encode(proa_model *m, proa_rank_call *call)
{
    if (m->encoder_ticket >= 0) proa_staging_outputs_clear(m, m->encoder_ticket);
    run_recorded(m, call->kv, &call->batch, PROA_STACK_ENCODER, encode_body);
}

void proa_run_decode(proa_model *m, proa_rank_call *call)
{
    run_recorded(m, call->kv, &call->batch, PROA_STACK_DECODER, run_stack);
}

/* Of rows of the keys and values of all heads those of a rank: [rows][2 * kv_heads * head_dim]. */
static void copy_own_heads(float *to, const float *from, int64_t rows, const proa_config *c)
{
    int64_t own = c->kv_heads * c->head_dim, all = c->all_kv_heads * c->head_dim;
    from += c->first_kv_head * c->head_dim;
    for (int64_t i = 0; i < 2 * rows; i++) memcpy(to + i * own, from + i * all, (size_t)own * sizeof *to);
}

void proa_run_append(proa_model *m, const proa_rank_call *call)
{
    static const int32_t zeros[PROA_STEP_TOKENS_MAX];
    const proa_config *c = &m->config;
    const proa_layer_range layers = m->plan.layers[PROA_STACK_DECODER];
    int64_t rows = call->batch.rows, own = c->kv_heads * c->head_dim;
    proa_batch staged, batch = {.rows = rows, .ids = zeros, .positions = zeros, .self = call->batch.self};
    PROA_ASSERT(rows <= m->plan.rows_max && rows <= PROA_STEP_TOKENS_MAX);
    const proa_batch *b = proa_staging_batch(m, call->kv, &batch, &staged);
    proa_view both = proa_view_2d(m->activations + m->plan.offset[PROA_REG_QKV], PROA_DTYPE_F32, rows, 2 * own);
    proa_view k = proa_view_cols(both, 0, own), v = proa_view_cols(both, own, 2 * own);
    int64_t bytes = rows * 2 * own * (int64_t)sizeof(float);
    float *part = c->all_kv_heads > c->kv_heads ? proa_malloc((size_t)bytes) : NULL;
    for (int64_t layer = layers.first; layer < layers.end; layer++) {
        const float *values = call->values + layer * call->values_stride;
        if (part) copy_own_heads(part, values, rows, c);
        m->device->upload(m->device, both.data, part ? part : values, bytes);
        m->ctx.ops->kv_append(&m->ctx, &call->kv[proa_config_attending(c, layers.first, layer)],
                              proa_view_heads(k, c->kv_heads), proa_view_heads(v, c->kv_heads), &b->self);
    }
    free(part);
}

void proa_run_copy_stream(proa_model *m, proa_view to, const int32_t *rows, int64_t count)
{
    const proa_plan *p = &m->plan;
    proa_view x = proa_view_2d(m->activations + p->offset[PROA_REG_X], m->stream, p->rows_max,
                               p->width[PROA_REG_X]);
    m->ctx.ops->gather(&m->ctx, to, x, proa_staging_rows(m, rows, count));
}

static proa_view hidden_rows(const proa_model *m, int64_t count)
{
    const proa_plan *p = &m->plan;
    proa_reg read = proa_plan_hidden(&m->plan);
    return proa_view_2d(m->activations + p->offset[read], PROA_DTYPE_F32, count, p->width[read]);
}

proa_view proa_run_head(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count)
{
    bool encoder = m->arch->kind == PROA_KIND_ENCODER;
    proa_step_frame f = proa_frame_make(m, encoder ? PROA_STACK_ENCODER : PROA_STACK_DECODER, count);
    PROA_ASSERT(count <= m->plan.device_head_rows);
    f.gather = rows;
    f.layer = m->params[f.stack].layers;
    if (proa_stage_is_last(m)) proa_frame_run(&f, program);
    return proa_frame_register(&f, PROA_REG_OUT);
}

proa_view proa_run_hidden(proa_model *m, const int32_t *rows, int64_t count)
{
    proa_program before = m->plan.head;
    proa_step_frame f = proa_frame_make(m, PROA_STACK_DECODER, count);
    PROA_ASSERT(count <= m->plan.device_head_rows && before.count > 1);
    before.count = proa_program_product(&before);
    before.step[before.count].op = PROA_STEP_END;
    f.gather = rows;
    f.layer = m->params[f.stack].layers;
    if (proa_stage_is_last(m)) proa_frame_run(&f, &before);
    return proa_frame_register(&f, proa_plan_hidden(&m->plan));
}

void proa_run_copy_rows(proa_model *m, float *to, proa_view x)
{
    proa_view y = proa_view_2d(to, PROA_DTYPE_F32, x.shape[0], x.shape[1]);
    if (to) m->ctx.ops->gather(&m->ctx, y, x, proa_staging_all_rows(m));
}

void proa_run_output_head(proa_model *m, proa_rank_call *call)
{
    const int32_t *rows = proa_staging_rows(m, call->rows, call->count);
    proa_view out = proa_run_head(m, &m->plan.head, rows, call->count);
    proa_stage_return(m, out);
    if (m->hidden_wanted || call->in_place) proa_stage_return(m, hidden_rows(m, call->count));
    if (m->rank != 0) return;
    if (!call->in_place) {
        call->logits = proa_staging_fetch_logits(m, out, hidden_rows(m, call->count));
        return;
    }
    proa_run_copy_rows(m, call->to_logits, out);
    proa_run_copy_rows(m, call->to_hidden, hidden_rows(m, call->count));
}

static float *place_of(const proa_encoder_place *place, bool pooled)
{
    return pooled ? place->pooled : place->head;
}

/* Copies the rows of `out` that have a place; neighbours whose places follow each other are one copy. */
static void keep_outputs(proa_model *m, proa_view out, const proa_encoder_place *places, bool pooled)
{
    int64_t rows = out.shape[0], width = out.shape[1];
    for (int64_t i = 0, n; i < rows; i += n) {
        float *to = place_of(&places[i], pooled);
        for (n = 1; to && i + n < rows && place_of(&places[i + n], pooled) == to + n * width;) n++;
        if (!to) continue;
        const proa_blocks all = {.bytes = n * width * (int64_t)sizeof *to, .count = {1, 1}};
        m->device->copy(m->device, to, (const float *)out.data + i * width, &all);
    }
}

/* Whether outputs of one of `count` inputs go to the host: those that have no place on the device. */
static bool host_wants(const proa_encoder_place *places, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!places || (!places[i].head && !places[i].pooled && !places[i].rows)) return true;
    return false;
}

/* The head's or the pooler's output for the first row of each input. In a headless model the pooler writes to OUT,
 * from which rows may still be copied. */
static void send_input_outputs(proa_model *m, const proa_program *program, const proa_rank_call *call)
{
    bool pooled = program == &m->plan.pool;
    if (m->plan.headless) m->device->wait_copies_on_stream(m->device);
    for (int64_t at = 0, n; at < call->count; at += n) {
        n = proa_min64(call->count - at, m->plan.device_head_rows);
        proa_view out = proa_run_head(m, program, proa_staging_rows(m, call->rows + at, n), n);
        if (!m->outputs_stay) proa_stage_return(m, out);
        const proa_encoder_place *places = call->places ? call->places + at : NULL;
        if (places) keep_outputs(m, out, places, pooled);
        if (!proa_staging_sends_outputs(m)) continue;
        proa_staging_outputs_send_inputs(m, out, at, host_wants(places, n), pooled, m->encoder_ticket);
    }
}

/* Copies the rows of inputs that have a place for them, in f32; neighbours whose places follow each other are one
 * copy. x: all rows of the pass. */
static void keep_rows(proa_model *m, proa_view x, const proa_encoder_place *places, int64_t inputs)
{
    for (int64_t i = 0, n; i < inputs; i += n) {
        float *to = places[i].rows;
        int64_t rows = places[i].count;
        for (n = 1; to && i + n < inputs && places[i + n].rows == to + rows * x.shape[1]; n++)
            rows += places[i + n].count;
        if (!to) continue;
        proa_view y = proa_view_2d(to, PROA_DTYPE_F32, rows, x.shape[1]);
        m->ctx.ops->gather(&m->ctx, y, x, proa_staging_all_rows(m) + places[i].first);
    }
}

static void send_row_outputs(proa_model *m, const proa_rank_call *call)
{
    proa_step_frame f = proa_frame_make(m, PROA_STACK_ENCODER, call->outputs);
    proa_view x = proa_frame_register(&f, PROA_REG_X); /* in all stages (PROA_SECTION_SHARE), or in the last one */
    if (!proa_staging_sends_outputs(m)) return;
    if (call->places) keep_rows(m, x, call->places, call->count);
    if (!host_wants(call->places, call->count)) {
        proa_staging_outputs_end(m, m->encoder_ticket);
    } else if (m->device->host) {
        proa_staging_outputs_keep_rows(m, x, call->again, m->encoder_ticket);
    } else {
        f.first = m->rows_sent_early;
        f.rows = call->outputs - f.first;
        send_rows(&f);
    }
}

/* Whole rows are sent last, since their copy takes longest. */
void proa_run_send_outputs(proa_model *m, proa_rank_call *call)
{
    proa_staging_outputs_count(m, call->count, call->outputs, m->encoder_ticket);
    if (m->outputs_stay && !proa_stage_is_last(m)) return;
    if (proa_arch_has_one_row(m->arch)) send_input_outputs(m, &m->plan.head, call);
    if (proa_model_has_pool(m)) send_input_outputs(m, &m->plan.pool, call);
    if (m->plan.headless) send_row_outputs(m, call);
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

void proa_model_encoded_to(proa_model *m, float *to, int64_t first, int64_t count)
{
    const proa_plan *p = &m->plan;
    proa_view all = proa_view_2d(m->activations + p->offset[PROA_REG_X], m->stream, first + count,
                                 p->width[PROA_REG_X]);
    proa_run_copy_rows(m, to, proa_view_rows(all, first, first + count));
}

const float *proa_model_hidden(const proa_model *m, int64_t i)
{
    return proa_staging_hidden(m, hidden_rows(m, m->plan.head_rows), i);
}
