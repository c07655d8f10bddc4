/* SPDX-License-Identifier: Apache-2.0
 * call.c - a call as a message. */
#include "model/ranks/call.h"

#include "base/checked.h"
#include "model/lora/lora.h"
#include <string.h>

static int64_t span_pages(const proa_span *span)
{
    return proa_ceil_div(span->context, PROA_PAGE_TOKENS);
}

/* Spans whose tables follow each other, as write_tables sends them. */
static void write_spans(proa_rank_message *m, const proa_spans *spans)
{
    int64_t entries = 0, bytes = spans->count * (int64_t)sizeof *spans->span;
    if (!spans->span) {
        proa_rank_message_array(m, NULL, bytes);
        return;
    }
    proa_span *to = proa_rank_message_reserve(m, bytes);
    for (int64_t i = 0; i < spans->count; i++) {
        to[i] = spans->span[i];
        to[i].table = (int32_t)entries;
        entries += span_pages(&to[i]);
    }
}

/* The tables of the spans, one behind the other, in place of the memory of all tables. */
static void write_tables(proa_rank_message *m, const proa_spans *spans)
{
    int64_t entries = 0, at = 0;
    for (int64_t i = 0; i < spans->count; i++) entries += span_pages(&spans->span[i]);
    int32_t *to = proa_rank_message_reserve(m, entries * (int64_t)sizeof *to);
    for (int64_t i = 0; i < spans->count; i++) {
        int64_t n = span_pages(&spans->span[i]);
        for (int64_t k = 0; k < n; k++) to[at + k] = spans->pages[spans->span[i].table + k];
        at += n;
    }
}

static void read_tables(proa_rank_message *m, proa_spans *spans)
{
    int64_t entries = 0;
    if (!spans->span && spans->count) m->broken = true;
    for (int64_t i = 0; i < spans->count && spans->span; i++) {
        if (spans->span[i].table != entries || spans->span[i].context < 0) m->broken = true;
        entries += span_pages(&spans->span[i]);
    }
    spans->pages = NULL;
    PROA_RANK_MESSAGE_ARRAY(m, spans->pages, entries);
}

static void spans_message(proa_rank_message *m, proa_spans *spans, int64_t rows)
{
    PROA_RANK_MESSAGE_VALUE(m, spans->count);
    if (m->reads) PROA_RANK_MESSAGE_ARRAY(m, spans->span, spans->count);
    else write_spans(m, spans);
    PROA_RANK_MESSAGE_ARRAY(m, spans->seen, rows);
    if (m->reads) read_tables(m, spans);
    else write_tables(m, spans);
}

static void embeds_message(proa_rank_message *m, proa_batch *b, const proa_model *model)
{
    PROA_RANK_MESSAGE_VALUE(m, b->inputs_embeds_count);
    PROA_RANK_MESSAGE_ARRAY(m, b->inputs_embeds, b->inputs_embeds_count);
    proa_inputs_embeds *read = NULL; /* with this reader's pointers to the values */
    if (m->reads && b->inputs_embeds && b->inputs_embeds_count > 0)
        b->inputs_embeds = read = proa_rank_message_own(m, b->inputs_embeds,
                                                        b->inputs_embeds_count * (int64_t)sizeof *read);
    for (int64_t i = 0; i < b->inputs_embeds_count && b->inputs_embeds; i++) {
        proa_rank_message_check_bool(m, &b->inputs_embeds[i].on_device);
        proa_rank_message_check_bool(m, &b->inputs_embeds[i].of_table);
        if (m->broken) return;
        proa_inputs_embeds e = b->inputs_embeds[i];
        int64_t width = e.of_table ? proa_prompt_table_width(model, false) : model->plan.width[PROA_REG_X];
        if (e.on_device && !model->device->host) PROA_RANK_MESSAGE_VALUE(m, e.values); /* ranks are threads */
        else e.values = proa_rank_message_elements(m, e.values, e.count, width * (int64_t)sizeof *e.values);
        if (read) read[i] = e;
    }
}

/* Hidden states of a target model occur with one rank only. */
static void batch_message(proa_rank_message *m, proa_batch *b, const proa_model *model)
{
    PROA_ASSERT(!b->state_rows);
    PROA_RANK_MESSAGE_VALUE(m, b->rows);
    PROA_RANK_MESSAGE_VALUE(m, b->prefixes);
    PROA_RANK_MESSAGE_VALUE(m, b->encoded);
    PROA_RANK_MESSAGE_VALUE(m, b->pending_count);
    PROA_RANK_MESSAGE_ARRAY(m, b->ids, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->positions, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->block_positions, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->lengths, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->sampled_at, b->rows);
    PROA_RANK_MESSAGE_VALUE(m, b->sampled_deferred);
    PROA_RANK_MESSAGE_VALUE(m, b->sampled_ticket);
    PROA_RANK_MESSAGE_VALUE(m, b->overlaps);
    PROA_RANK_MESSAGE_ARRAY(m, b->types, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->decoder_ids, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->pending, b->pending_count);
    spans_message(m, &b->self, b->rows);
    spans_message(m, &b->cross, b->rows);
    PROA_RANK_MESSAGE_ARRAY(m, b->lora, b->self.count);
    embeds_message(m, b, model);
}

/* The rows of all beam steps are behind those of the single tokens. */
static int64_t sampled_rows(const proa_sample_request *r)
{
    if (!r->searches || !r->search) return r->count;
    const proa_beam_params *last = &r->search[r->searches - 1];
    return r->count + last->row + last->rows;
}

static void sample_message(proa_rank_message *m, proa_sample_request *r, const proa_model *model)
{
    int64_t mask_bytes = proa_ceil_div(model->plan.width[PROA_REG_OUT], 32) * (int64_t)sizeof *r->masks;
    PROA_RANK_MESSAGE_VALUE(m, r->count);
    PROA_RANK_MESSAGE_VALUE(m, r->searches);
    PROA_RANK_MESSAGE_VALUE(m, r->entries_count);
    PROA_RANK_MESSAGE_VALUE(m, r->masks_count);
    PROA_ASSERT(!r->raw_to && !r->processed_to && !r->search_to);
    PROA_RANK_MESSAGE_VALUE(m, r->logits);
    PROA_RANK_MESSAGE_VALUE(m, r->top);
    PROA_RANK_MESSAGE_VALUE(m, r->deferred);
    PROA_RANK_MESSAGE_ARRAY(m, r->search, r->searches);
    PROA_RANK_MESSAGE_ARRAY(m, r->rows, sampled_rows(r));
    PROA_RANK_MESSAGE_ARRAY(m, r->sample_params, r->count);
    PROA_RANK_MESSAGE_ARRAY(m, r->row_processors, r->count);
    PROA_RANK_MESSAGE_ARRAY(m, r->entries, r->entries_count);
    PROA_RANK_MESSAGE_ARRAY(m, r->last_sampled_at, r->count);
    r->masks = proa_rank_message_elements(m, r->masks, r->masks_count, mask_bytes);
    PROA_RANK_MESSAGE_ARRAY(m, r->mask_of, r->count);
}

/* The message is broken if the model has no such layer. */
static void adapter_message(proa_rank_message *m, proa_rank_call *call, const proa_model *model)
{
    int64_t layers = model->params[proa_lora_stack_id(model)].layers;
    PROA_RANK_MESSAGE_VALUE(m, call->adapter_slot);
    PROA_RANK_MESSAGE_VALUE(m, call->layer);
    bool fits = call->layer >= 0 && call->layer < layers && call->adapter_slot >= 0 &&
                call->adapter_slot < model->lora.slots;
    if (!fits) m->broken = true;
    else
        PROA_RANK_MESSAGE_ARRAY(m, call->image,
                                model->lora.layer_at[call->layer + 1] - model->lora.layer_at[call->layer]);
}

/* Of the pass only what run.c reads. The message is broken if there is no such span. */
static void keys_message(proa_rank_message *m, proa_rank_call *call, const proa_model *model)
{
    proa_batch *b = &call->batch;
    int64_t width = proa_prompt_table_width(model, true), layers = model->config.layers;
    PROA_RANK_MESSAGE_VALUE(m, b->rows);
    if (b->rows < 1 || b->rows > model->plan.rows_max) {
        m->broken = true;
        return;
    }
    spans_message(m, &b->self, b->rows);
    const proa_span *span = b->self.span;
    if (!span || b->self.count != 1 || span->rows != b->rows || span->context < span->rows) {
        m->broken = true;
        return;
    }
    int64_t bytes = b->rows * width * (int64_t)sizeof *call->values;
    if (m->reads) {
        call->values = proa_rank_message_elements(m, NULL, layers, bytes);
        call->values_stride = b->rows * width;
        m->broken = m->broken || !call->values;
        return;
    }
    char *to = proa_rank_message_reserve(m, layers * bytes);
    for (int64_t layer = 0; layer < layers; layer++)
        memcpy(to + layer * bytes, call->values + layer * call->values_stride, (size_t)bytes);
}

static void rows_message(proa_rank_message *m, proa_rank_call *call)
{
    PROA_RANK_MESSAGE_VALUE(m, call->count);
    PROA_RANK_MESSAGE_VALUE(m, call->k);
    PROA_RANK_MESSAGE_VALUE(m, call->outputs);
    PROA_RANK_MESSAGE_VALUE(m, call->again);
    PROA_RANK_MESSAGE_VALUE(m, call->in_place);
    PROA_RANK_MESSAGE_ARRAY(m, call->rows, call->count);
}

static void taps_message(proa_rank_message *m, proa_taps *taps)
{
    PROA_RANK_MESSAGE_VALUE(m, taps->count);
    PROA_RANK_MESSAGE_VALUE(m, taps->layer);
    if (taps->count < 0 || taps->count > PROA_TAPS_MAX) m->broken = true;
}

void proa_rank_call_message(proa_rank_message *m, proa_rank_call *call, const proa_model *model)
{
    PROA_RANK_MESSAGE_VALUE(m, call->kind);
    PROA_RANK_MESSAGE_VALUE(m, call->encoder_ticket);
    PROA_RANK_MESSAGE_VALUE(m, call->outputs_stay);
    PROA_RANK_MESSAGE_VALUE(m, call->hidden_wanted);
    switch (call->kind) {
    case PROA_CALL_ENCODE:
    case PROA_CALL_DECODE: batch_message(m, &call->batch, model); return;
    case PROA_CALL_HEAD:
    case PROA_CALL_TOP_K:
    case PROA_CALL_HIDDEN:
    case PROA_CALL_TAPPED:
    case PROA_CALL_OUTPUTS: rows_message(m, call); return;
    case PROA_CALL_SAMPLE:
        PROA_RANK_MESSAGE_VALUE(m, call->ticket);
        sample_message(m, &call->sample, model);
        return;
    case PROA_CALL_SAMPLED:
    case PROA_CALL_ENCODED: PROA_RANK_MESSAGE_VALUE(m, call->ticket); return;
    case PROA_CALL_COPY: PROA_RANK_MESSAGE_VALUE(m, call->copy); return;
    case PROA_CALL_ADAPTER: adapter_message(m, call, model); return;
    case PROA_CALL_KEYS: keys_message(m, call, model); return;
    case PROA_CALL_COPY_STATE: PROA_RANK_MESSAGE_VALUE(m, call->state_copy); return;
    case PROA_CALL_STATES:
    case PROA_CALL_PAGES: PROA_RANK_MESSAGE_VALUE(m, call->count); return;
    case PROA_CALL_LOAD: taps_message(m, &call->taps); return;
    case PROA_CALL_CONNECT:
    case PROA_CALL_END: return;
    default: m->broken = true;
    }
}

int64_t proa_rank_call_room(const proa_model *model, int64_t pages)
{
    enum { VALUES = 4096, NUMBERS = 12, SAMPLED_NUMBERS = 6 }; /* of a row: at most so many of 4 bytes */
    int64_t row = 4 * NUMBERS + 2 * (int64_t)sizeof(proa_span);
    int64_t sampled = 4 * SAMPLED_NUMBERS + (int64_t)(sizeof(proa_sample_params) + sizeof(proa_logits_row));
    int64_t batch = model->plan.rows_max * row + 2 * 4 * pages;
    return VALUES + proa_max64(batch, model->plan.sampled_rows * sampled);
}
