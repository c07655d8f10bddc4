/* SPDX-License-Identifier: Apache-2.0
 * encode.c - passes of the encoder: which inputs are in a pass, and what happens to their outputs.
 *
 * For an encoder-only model on a device, a second pass can be submitted before the outputs of the first have
 * arrived, like the steps of async_step.c: the device works while outputs travel and are emitted. It is submitted
 * only when many rows wait. Few rows are better delayed and merged, since a pass over few rows takes almost as long
 * as one over more.
 *
 * In a pipeline there is a pass in each stage, and one more. Their outputs stay with the last stage: if its rows
 * returned to the first stage, that would have to wait for them before its next pass. Many waiting rows are divided
 * among the stages. */
#include "engine/sched/encode.h"

#include "base/checked.h"
#include "engine/engine.h"
#include "engine/sched/device_failure.h"
#include "engine/sched/output.h"
#include "engine/sched/prefix_cache.h"
#include "engine/sched/request_pages.h"
#include "engine/sched/retire.h"
#include <string.h>

enum {
    AHEAD_ROWS_MIN = 4096
}; /* waiting rows from which a second pass is submitted (or half a step, if that is less) */

/* The request needs nothing but the encoder's outputs. */
static bool ends_after_encoder(const proa_engine *e, const proa_engine_request *req)
{
    return e->model->arch->kind == PROA_KIND_ENCODER || req->task == PROA_TASK_ENCODE;
}

/* ---- submission ---- */

static int64_t waiting_rows(const proa_engine *e)
{
    int64_t rows = 0;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        if (req->phase == PROA_PHASE_ENCODE_WAITING) rows += req->input.count;
    return rows;
}

/* Whether several stages have passes at the same time. */
static bool fills_stages(const proa_engine *e)
{
    return e->encoder.most > 1 && e->model->plan.part.stages > 1;
}

/* Rows of the next pass, which has one input at least. Each stage of a pipeline gets a pass if rows suffice. */
static int64_t rows_of_pass(const proa_engine *e)
{
    int64_t most = e->model->plan.rows_max;
    if (!fills_stages(e) || e->encoder.count > 0) return most;
    int64_t each = proa_ceil_div(waiting_rows(e), e->model->plan.part.stages);
    return proa_min64(most, proa_max64(each, AHEAD_ROWS_MIN));
}

/* What a decoder over the input reads: for each row the token before it. */
static void add_decoder_ids(proa_engine *e, const proa_encoder_source *input)
{
    const proa_config *c = &e->model->config;
    int32_t *to = e->step.decoder_ids + e->step.rows;
    to[0] = c->starts_with_last ? input->ids[input->count - 1] : (int32_t)c->decoder_start;
    if (input->count > 1) memcpy(to + 1, input->ids, (size_t)(input->count - 1) * sizeof *to);
}

static void add_input(proa_engine *e, proa_encoder_pass *pass, proa_engine_request *req)
{
    bool decodes = proa_arch_decodes_input(e->model->arch);
    proa_page_table *table = &e->slots.cross[req->slot];
    bool alone = e->model->arch->kind == PROA_KIND_ENCODER, hidden = req->task == PROA_TASK_ENCODE;
    pass->input[pass->count++] = (proa_encoder_input){req, e->step.rows};
    pass->wants_outputs = pass->wants_outputs || (alone && !hidden);
    pass->exclusive = pass->exclusive || hidden || !proa_model_sends_encoder_outputs(e->model);
    pass->has_places = pass->has_places || proa_request_has_place(req);
    req->phase = PROA_PHASE_ENCODE_INFLIGHT;
    proa_request_pages_take(e, table, 0, req->input.count);
    proa_batch_set_adapter(e, req);
    proa_batch_add_span(e, table, req->input.count, req->input.count, table, decodes ? req->input.count : 0);
    e->step.self_spans[e->step.spans - 1].globals = (int32_t)proa_config_globals(
        &e->model->config, req->input.ids, req->input.count);
    e->step.self_spans[e->step.spans - 1].state = proa_state_slots_of(&e->states, req->slot);
    if (decodes) add_decoder_ids(e, &req->input);
    if (req->input.embedded)
        e->step.inputs_embeds[e->step.inputs_embeds_count++] = (proa_inputs_embeds){
            .row = e->step.rows,
            .count = req->input.count,
            .values = req->input.embedded,
            .on_device = req->input.memory.kind == PROA_MEMORY_CUDA};
    int32_t *types = e->step.types + e->step.rows;
    for (int64_t i = 0; i < req->input.count; i++) {
        int64_t row = req->input.ids[i] -
                      proa_config_input_vocab(&e->model->config); /* of the request's prompt table */
        if (row >= 0) proa_batch_add_virtual(e, req->virtuals, row);
        proa_batch_add_row(e, row < 0 ? req->input.ids[i] : 0, i, req->input.count);
    }
    if (!req->input.types) return;
    memcpy(types, req->input.types, (size_t)req->input.count * sizeof *types);
    e->step.any_types = true;
}

static void take_inputs(proa_engine *e, proa_encoder_pass *pass, int64_t rows_most)
{
    pass->count = 0;
    pass->wants_outputs = pass->exclusive = pass->has_places = false;
    proa_batch_clear(e);
    for (proa_engine_request *req = e->running.first; req; req = req->next) {
        if (req->phase != PROA_PHASE_ENCODE_WAITING) continue;
        proa_prefix_input cached = PROA_PREFIX_INPUT_MISS;
        if (!ends_after_encoder(e, req)) cached = proa_prefix_cache_reuse_input(e, req);
        if (cached == PROA_PREFIX_INPUT_HIT) req->phase = PROA_PHASE_DECODER;
        if (cached != PROA_PREFIX_INPUT_MISS) continue;
        if (e->step.rows + req->input.count > (pass->count ? rows_most : e->model->plan.rows_max)) break;
        if (pass->count && e->step.encoded != req->input.is_encoded) break;
        e->step.encoded = req->input.is_encoded;
        add_input(e, pass, req);
    }
    pass->wants_outputs = pass->wants_outputs && proa_model_sends_encoder_outputs(e->model);
}

/* Which of its rows the head of one row reads of an input: the first one, that of the last end token, or the last one
 * whose token is not one that it passes over (padding). Of an input that has no other tokens it reads the first row, of
 * embeddings the last one. */
static int64_t head_row(const proa_engine *e, const proa_engine_request *req)
{
    int64_t row = req->input.count - 1, skipped = e->model->config.passed_over;
    bool known = !req->input.embedded && req->input.virtual_count == 0;
    if (e->model->arch->head_rows != PROA_ROWS_LAST) return req->input.head_row;
    while (known && row > 0 && req->input.ids[row] == skipped) row--;
    return row;
}

static void request_outputs(proa_engine *e, const proa_encoder_pass *pass)
{
    for (int64_t i = 0; i < pass->count; i++) {
        const proa_encoder_input *input = &pass->input[i];
        e->step.logits_rows[i] = (int32_t)(input->row + head_row(e, input->req));
        e->step.places[i] = input->req->input.place;
        e->step.places[i].first = input->row;
        e->step.places[i].count = input->req->input.count;
    }
    proa_model_send_encoder_outputs(e->model, e->step.logits_rows, e->step.places, pass->count, e->step.rows,
                                    e->async.mode == PROA_SAMPLE_ASYNC);
}

static void submit_pass(proa_engine *e)
{
    proa_encoder_pass *pass = &e->encoder.pass[e->encoder.count];
    take_inputs(e, pass, rows_of_pass(e));
    if (!pass->count) return;
    proa_batch batch = proa_batch_of_step(e);
    e->model->encoder_ticket = pass->wants_outputs ? pass->ticket : -1;
    e->model->outputs_stay = fills_stages(e) && pass->wants_outputs && !pass->exclusive && !pass->has_places;
    batch.overlaps |= fills_stages(e) && (e->encoder.count > 0 || waiting_rows(e) >= AHEAD_ROWS_MIN);
    proa_model_encode(e->model, e->kv, &batch);
    if (pass->wants_outputs) request_outputs(e, pass);
    e->encoder.count++;
    e->now.steps++;
    e->now.rows += (uint64_t)e->step.rows;
    e->now.prompt_tokens += (uint64_t)e->step.rows;
}

/* ---- completion ---- */

static void emit_head_rows(proa_engine *e, proa_engine_request *req, int64_t row)
{
    int32_t rows[PROA_HEAD_ROWS];
    for (int64_t first = 0; first < req->input.count; first += PROA_HEAD_ROWS) {
        int64_t count = proa_min64(req->input.count - first, PROA_HEAD_ROWS);
        for (int64_t i = 0; i < count; i++) rows[i] = (int32_t)(row + first + i);
        const float *out = proa_view_f32(proa_model_head(e->model, rows, count));
        proa_device_failure_check(e, req);
        if (req->ending == PROA_FINISH_ERROR) return;
        proa_emit_rows(req, out, NULL, first, count, e->model->plan.width[PROA_REG_OUT]);
    }
}

/* Outputs of input number `index` of the pass, whose rows begin at `row`: the head's over its first row or all
 * rows, then the pooler's. */
static void emit_outputs(proa_engine *e, proa_engine_request *req, const proa_encoder_outputs *h,
                         int64_t index, int64_t row)
{
    int64_t columns = e->model->plan.width[PROA_REG_OUT], n = h->first ? 1 : req->input.count;
    if (h->first) proa_emit_rows(req, h->first + index * columns, NULL, 0, 1, columns);
    else if (h->rows) proa_emit_rows(req, h->rows + row * columns, NULL, 0, n, columns);
    else emit_head_rows(e, req, row);
    if (h->pooled && req->ending != PROA_FINISH_ERROR)
        proa_emit_rows(req, NULL, h->pooled + index * columns, n, 0, columns);
}

/* Task ENCODE: the encoder's hidden states, to the caller's memory or as an event; none of an adapter's table. */
static void emit_hidden(proa_engine *e, proa_engine_request *req, int64_t row)
{
    int64_t count = req->input.count - req->input.virtual_count;
    row += req->input.virtual_count;
    if (req->rows.hidden && (req->rows.memory.kind == PROA_MEMORY_CUDA || e->model->device->host)) {
        proa_model_encoded_to(e->model, req->rows.hidden, row, count);
        return;
    }
    if (req->rows.hidden) {
        proa_model_encoded(e->model, req->rows.hidden, row, count);
        proa_device_failure_check(e, req);
        return;
    }
    proa_model_encoded(e->model, req->encoded, row, count);
    proa_device_failure_check(e, req);
    if (req->ending == PROA_FINISH_ERROR) return;
    proa_emit_rows(req, req->encoded, NULL, 0, count, e->model->config.hidden);
}

static void process_input(proa_engine *e, proa_engine_request *req, const proa_encoder_outputs *h,
                          int64_t index, int64_t row)
{
    req->phase = ends_after_encoder(e, req) ? PROA_PHASE_ENCODE_WAITING : PROA_PHASE_DECODER;
    if (req->phase == PROA_PHASE_DECODER) {
        proa_prefix_cache_keep_input(e, req);
        return;
    }
    if (req->ending != PROA_FINISH_ERROR && req->task == PROA_TASK_ENCODE) emit_hidden(e, req, row);
    else if (req->ending != PROA_FINISH_ERROR && !proa_request_has_place(req))
        emit_outputs(e, req, h, index, row);
    if (req->ending == PROA_FINISH_NONE) req->ending = PROA_FINISH_END;
}

/* The oldest pass, whose place becomes that of the next one. */
static proa_encoder_pass take_oldest_pass(proa_encoder_passes *p)
{
    proa_encoder_pass oldest = p->pass[0];
    memmove(p->pass, p->pass + 1, (size_t)(p->most - 1) * sizeof *p->pass);
    p->pass[p->most - 1] = oldest;
    p->count--;
    return oldest;
}

static void complete_pass(proa_engine *e)
{
    proa_encoder_pass pass = take_oldest_pass(&e->encoder);
    proa_encoder_outputs h = {NULL, NULL, NULL};
    if (pass.wants_outputs) h = proa_model_wait_encoder_outputs(e->model, pass.ticket);
    proa_device_failure_check(e, NULL);
    for (int64_t i = 0; i < pass.count; i++)
        if (pass.input[i].req) process_input(e, pass.input[i].req, &h, i, pass.input[i].row);
    proa_retire_ended(e);
}

/* ---- the step ---- */

static bool may_submit_ahead(const proa_engine *e)
{
    const proa_encoder_passes *p = &e->encoder;
    int64_t enough = proa_min64(AHEAD_ROWS_MIN, e->model->plan.rows_max / 2);
    bool room = p->count > 0 && p->count < p->most && !p->pass[p->count - 1].exclusive;
    return room && !proa_jobs_wait(e) && waiting_rows(e) >= enough;
}

void proa_encode_step(proa_engine *e)
{
    if (!e->encoder.count) submit_pass(e);
    while (may_submit_ahead(e)) submit_pass(e);
    if (e->encoder.count) complete_pass(e);
    while (e->encoder.count && !e->running.count)
        complete_pass(e); /* no request is left; the device becomes idle before the engine does */
}
