/* SPDX-License-Identifier: Apache-2.0
 * staging.c - life of the staging buffers, and the batch on its way to the device.
 *
 * The block of a batch, each part rounded up to 16 bytes; the device has the same block at the same offsets:
 *
 *   ids | positions | block positions | lengths | types | decoder ids | rows of states | self spans | cross spans |
 *   masks of trees | adapters' rows | page tables | beam reorders
 *
 * Block positions and decoder ids are present only if the model has them, lengths only if its rotary frequencies depend
 * on them, masks only if the batch has trees.
 * The page tables are those of the self spans, then those of the cross spans, then, for beams whose last step the
 * host has not received, copies of their tables before that step. The reorders come last, so that everything before
 * them is where a recorded pass of this shape expects it, whether beams are reordered or not. */
#include "model/staging/state.h"

#include "model/lora/lora.h"
#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_ENTRIES_MAX = 1 << 24
}; /* entries of all page tables of a step: 64 MB, a billion tokens of context */

static int64_t page_entries(const proa_model *m)
{
    int64_t longest = proa_max64(m->config.context, m->plan.rows_max);
    int64_t entries = 3 * m->plan.rows_max * (proa_ceil_div(longest, PROA_PAGE_TOKENS) + 1);
    return proa_min64(entries, PAGE_ENTRIES_MAX);
}

/* ---- life ---- */

/* Bytes of the device's allocation that begins at `rows`. */
static int64_t device_bytes(const proa_model *m)
{
    int64_t each = (int64_t)(sizeof(proa_sample_params) + sizeof(proa_logits_row) +
                             sizeof(proa_beam_params) / 2 + sizeof(float) + sizeof(proa_beam_hyp) + 12);
    return m->plan.rows_max * 3 * 4 + m->plan.sampled_rows * each + 256 + proa_top_k_bytes(m) +
           proa_deferred_bytes(m) + proa_sampled_bytes(m);
}

static int64_t mask_bytes(const proa_model *m)
{
    return 4 * m->plan.sampled_rows * proa_ceil_div(m->plan.width[PROA_REG_OUT], 32);
}

static bool samples_on_device(const proa_model *m)
{
    return !m->device->host && m->arch->kind != PROA_KIND_ENCODER;
}

int64_t proa_staging_processor_bytes(const proa_model *m)
{
    return samples_on_device(m) ? PROA_STAGING_ENTRIES_BYTES + mask_bytes(m) : 0;
}

static void carve_device_arrays(proa_model *m, char *memory)
{
    proa_staging *s = m->staging;
    int64_t at = 0, rows = m->plan.sampled_rows, word = 4;
    s->rows = proa_staging_carve(memory, &at, 3 * m->plan.rows_max);
    s->sample_params = proa_staging_carve(memory, &at, rows * (int64_t)sizeof(proa_sample_params) / word);
    s->beam_params = proa_staging_carve(memory, &at, rows / 2 * (int64_t)sizeof(proa_beam_params) / word);
    s->row_processors = proa_staging_carve(memory, &at, rows * (int64_t)sizeof(proa_logits_row) / word);
    s->last_sampled_at = proa_staging_carve(memory, &at, rows);
    s->last_ids = proa_staging_carve(memory, &at, rows);
    s->mask_of = proa_staging_carve(memory, &at, rows);
    s->beam_scores = proa_staging_carve(memory, &at, rows);
    s->beam_hyps = proa_staging_carve(memory, &at, rows * (int64_t)sizeof(proa_beam_hyp) / word);
    s->top_k = proa_staging_carve(memory, &at, proa_top_k_bytes(m) / word);
    s->deferred_ids = proa_staging_carve(memory, &at, proa_deferred_bytes(m) / word);
    s->sampled = memory + at;
}

/* Uploads 0, 1, 2, ..., the row numbers that are needed most often. */
static void number_rows(proa_model *m)
{
    int64_t rows = m->plan.rows_max;
    int32_t *numbers = proa_malloc((size_t)rows * sizeof *numbers);
    for (int64_t i = 0; i < rows; i++) numbers[i] = (int32_t)i;
    m->device->upload(m->device, m->staging->rows + rows, numbers, rows * 4);
    free(numbers);
}

/* Only a pipeline defers tokens. */
static int tickets_of(const proa_model *m)
{
    return m->plan.part.stages > 1 ? PROA_STEPS_MAX : 2;
}

/* What a model on the host needs too: the sampled tokens, and a block in which they replace ids of the batch. */
static proa_status make_device_buffers(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_staging *s = m->staging;
    char *memory = d->alloc(d, device_bytes(m));
    s->rows = (int32_t *)(void *)memory;
    s->device = d->alloc(d, s->bytes);
    bool receives = true;
    for (int i = 0; i < tickets_of(m); i++) {
        s->received[i] = d->host_alloc(d, proa_sampled_bytes(m));
        receives = receives && s->received[i];
    }
    s->received_top_k = d->host_alloc(d, proa_top_k_bytes(m));
    receives = receives && s->received_top_k;
    bool samples = samples_on_device(m);
    if (samples) s->entries = d->alloc(d, PROA_STAGING_ENTRIES_BYTES), s->masks = d->alloc(d, mask_bytes(m));
    if (!memory || (samples && !(s->entries && s->masks)) || !s->device || !receives)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for a step's arrays on %s",
                         (double)s->bytes / 1e6, d->name);
    carve_device_arrays(m, memory);
    number_rows(m);
    return PROA_OK;
}

proa_status proa_staging_make(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_staging *s = m->staging = proa_calloc(1, sizeof *s);
    int64_t rows = m->plan.rows_max;
    s->page_entries_max = page_entries(m);
    s->bytes = rows * (9 * 4 + (int64_t)sizeof(uint64_t) + 2 * (int64_t)sizeof(proa_span)) +
               proa_lora_segments_max(m) * (int64_t)sizeof(proa_lora_segment) +
               m->plan.sampled_rows * (int64_t)sizeof(proa_kv_reorder) + 4 * s->page_entries_max + 1024;
    s->host = proa_malloc((size_t)s->bytes);
    PROA_TRY(make_device_buffers(m, err));
    if (!d->host)
        s->uploaded_beam_params = proa_calloc((size_t)(m->plan.sampled_rows / 2 + 1), sizeof(proa_beam_params));
    return proa_staging_outputs_make(m, err);
}

void proa_staging_free(proa_model *m)
{
    proa_staging *s = m->staging;
    proa_device *d = m->device;
    if (!s) return;
    d->free(d, s->device, s->bytes);
    d->free(d, s->rows, device_bytes(m));
    d->free(d, s->entries, PROA_STAGING_ENTRIES_BYTES);
    d->free(d, s->masks, mask_bytes(m));
    for (int i = 0; i < PROA_STEPS_MAX; i++) d->host_free(d, s->received[i]);
    d->host_free(d, s->received_top_k);
    proa_staging_outputs_free(m);
    free(s->host);
    free(s->uploaded_beam_params);
    free(s);
    m->staging = NULL;
}

/* ---- row numbers ---- */

const int32_t *proa_staging_all_rows(const proa_model *m)
{
    return m->staging->rows + m->plan.rows_max;
}

const int32_t *proa_staging_device_rows(proa_model *m, const int32_t *rows, int64_t count, int32_t *room)
{
    int64_t i = 0;
    if (m->device->host) return rows;
    while (i < count && rows[i] == (int32_t)i) i++;
    if (i == count) return proa_staging_all_rows(m);
    m->device->upload(m->device, room, rows, count * 4);
    return room;
}

const int32_t *proa_staging_rows(proa_model *m, const int32_t *rows, int64_t count)
{
    return proa_staging_device_rows(m, rows, count, m->staging->rows);
}

/* ---- the block of a batch ---- */

/* One part of the block, on both sides. */
typedef struct part {
    void *host, *device;
} part;

/* The next `len` bytes of the block, not written yet. */
static part reserve_part(proa_staging *s, int64_t len)
{
    part p = {s->host + s->used, s->device + s->used};
    s->used = proa_round_up(s->used + len, 16);
    PROA_ASSERT(s->used <= s->bytes);
    return p;
}

/* Appends an array of `len` bytes, zeros if it is NULL. */
static part put_array(proa_staging *s, const void *array, int64_t len)
{
    part p = reserve_part(s, len);
    if (array) memcpy(p.host, array, (size_t)len);
    else memset(p.host, 0, (size_t)len);
    return p;
}

/* Rounds a context up to 256, 512, 1024, ...: passes with the same classes can share one recording. */
static int32_t length_class(int32_t context)
{
    int32_t up = 256;
    while (up < context) up *= 2;
    return up;
}

/* Appends the spans and describes them in *staged, but for the page tables. Returns the host's copy. */
static proa_span *put_spans(proa_staging *s, const proa_spans *spans, proa_spans *staged)
{
    part p = put_array(s, spans->span, spans->count * (int64_t)sizeof(proa_span));
    proa_span *span = p.host;
    *staged = (proa_spans){.span = p.device, .count = spans->count};
    for (int64_t i = 0; i < spans->count; i++) {
        staged->rows_max = span[i].rows > staged->rows_max ? span[i].rows : staged->rows_max;
        staged->rows_min = i == 0 || span[i].rows < staged->rows_min ? span[i].rows : staged->rows_min;
        staged->context_max = span[i].context > staged->context_max ? span[i].context : staged->context_max;
        if (span[i].rows > 1 || span[i].tree > 1) staged->long_count++, staged->long_rows += span[i].rows;
    }
    if (staged->context_max) staged->context_max = length_class(staged->context_max);
    return span;
}

/* The rows that use adapters; their lists are as long in all passes of this shape. */
static void put_lora(proa_staging *s, const proa_batch *batch, proa_batch *staged)
{
    const proa_lora_rows *l = &batch->lora_rows;
    if (!l->count) return;
    staged->lora_rows.order = put_array(s, l->order, batch->rows * 4).device;
    staged->lora_rows.segment = put_array(s, l->segment, l->count * (int64_t)sizeof *l->segment).device;
    staged->lora_rows.slot = put_array(s, l->slot, batch->rows * 4).device;
    staged->lora_rows.count = l->count;
}

/* Page tables that are collected on the host, behind each other. */
typedef struct page_list {
    int32_t *page;
    int32_t count;
    int64_t max;
} page_list;

/* Appends n entries; returns where they begin in the list. */
static int32_t put_pages(page_list *list, const int32_t *pages, int32_t n)
{
    int32_t at = list->count;
    PROA_ASSERT(at + n <= list->max);
    memcpy(list->page + at, pages, (size_t)n * sizeof *pages);
    list->count += n;
    return at;
}

/* Appends the page tables of spans; `span` is the host's copy, whose tables then refer to the list. */
static void put_tables(page_list *list, const proa_spans *spans, proa_span *span)
{
    for (int64_t i = 0; i < spans->count; i++) {
        int32_t n = (span[i].context + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
        span[i].table = put_pages(list, spans->pages + span[i].table, n);
    }
}

/* Entries of the tables of all beams of a search before the step that the host has not received. */
static int32_t old_table_entries(const proa_pending_beams *p, const proa_span *span)
{
    return p->beams * ((span[p->span].context - 1) / PROA_PAGE_TOKENS + 1);
}

/* Appends copies of the tables of pending beams: the reorder reads these and writes the originals. Returns where
 * they begin. */
static int32_t put_old_tables(page_list *list, const proa_batch *batch, const proa_span *span)
{
    int32_t begin = list->count;
    for (int64_t i = 0; i < batch->pending_count; i++) {
        const proa_pending_beams *p = &batch->pending[i];
        put_pages(list, list->page + span[p->span].table, old_table_entries(p, span));
    }
    return begin;
}

/* Appends what is to be done to the tables of pending beams, whose copies begin at `source`. Returns the device's
 * array. */
static const proa_kv_reorder *put_reorders(proa_staging *s, const proa_batch *batch, const proa_span *span,
                                           int32_t source)
{
    part p = reserve_part(s, batch->pending_count * (int64_t)sizeof(proa_kv_reorder));
    proa_kv_reorder *reorder = p.host;
    for (int64_t i = 0; i < batch->pending_count; i++) {
        const proa_pending_beams *b = &batch->pending[i];
        int32_t tokens = span[b->span].context - 1;
        reorder[i] = (proa_kv_reorder){source, span[b->span].table, b->beams, tokens, b->sampled_at};
        source += old_table_entries(b, span);
    }
    return p.device;
}

static int32_t most_beams(const proa_batch *batch)
{
    int32_t most = 0;
    for (int64_t i = 0; i < batch->pending_count; i++)
        most = batch->pending[i].beams > most ? batch->pending[i].beams : most;
    return most;
}

/* What sampled_at counts in. */
static const int32_t *sampled_ids_of(proa_model *m, const proa_batch *batch)
{
    if (batch->device_ids) return batch->device_ids;
    if (batch->sampled_deferred) return proa_staging_deferred_ids(m, batch->sampled_ticket);
    return (const int32_t *)(const void *)m->staging->sampled; /* the ids are its first list */
}

/* Replaces the ids that only the device knows. Deferred ones are in the first stage only, which alone reads ids. */
static void take_sampled_ids(proa_model *m, const proa_batch *batch, int32_t *ids)
{
    proa_staging *s = m->staging;
    if (batch->sampled_deferred && m->plan.part.stage > 0) return;
    const int32_t *from = sampled_ids_of(m, batch);
    const int32_t *at = proa_staging_device_rows(m, batch->sampled_at, batch->rows,
                                                 s->rows + 2 * m->plan.rows_max);
    m->ctx.ops->decode->gather_token_ids(&m->ctx, ids, from, at, batch->rows);
}

/* Pages follow their beams in the layers of each shape; the tables become the same each time. */
static void reorder_pages(proa_model *m, const proa_batch *batch, int32_t *pages,
                          const proa_kv_reorder *reorders, const proa_kv *kv)
{
    int64_t others = m->other_kv_layers, usual = m->kv_layers - others, count = batch->pending_count;
    int32_t most = most_beams(batch);
    const int32_t *parents = m->staging->beam_parents;
    const proa_decode_ops *ops = m->ctx.ops->decode;
    if (usual || !others) ops->reorder_kv(&m->ctx, pages, reorders, count, most, parents, kv, usual);
    if (others) ops->reorder_kv(&m->ctx, pages, reorders, count, most, parents, kv + usual, others);
}

const proa_batch *proa_staging_batch(proa_model *m, const proa_kv *kv, const proa_batch *batch, proa_batch *staged)
{
    proa_staging *s = m->staging;
    if (m->device->host && !batch->sampled_at) return batch;
    s->used = 0;
    *staged = (proa_batch){.rows = batch->rows};
    int32_t *ids = put_array(s, batch->ids, batch->rows * 4).device;
    staged->ids = ids;
    staged->positions = put_array(s, batch->positions, batch->rows * 4).device;
    if (batch->block_positions)
        staged->block_positions = put_array(s, batch->block_positions, batch->rows * 4).device;
    staged->prefixes = batch->prefixes;
    if (batch->lengths) staged->lengths = put_array(s, batch->lengths, batch->rows * 4).device;
    staged->types = put_array(s, batch->types, batch->rows * 4).device;
    if (batch->decoder_ids) staged->decoder_ids = put_array(s, batch->decoder_ids, batch->rows * 4).device;
    if (batch->state_rows) {
        staged->states = batch->states;
        staged->state_rows = put_array(s, batch->state_rows, batch->rows * 4).device;
    }
    proa_span *self = put_spans(s, &batch->self, &staged->self);
    proa_span *cross = put_spans(s, &batch->cross, &staged->cross);
    if (batch->self.seen)
        staged->self.seen = put_array(s, batch->self.seen, batch->rows * (int64_t)sizeof(uint64_t)).device;
    put_lora(s, batch, staged);
    page_list list = {.page = (int32_t *)(void *)(s->host + s->used), .max = s->page_entries_max};
    put_tables(&list, &batch->self, self);
    put_tables(&list, &batch->cross, cross);
    int32_t source = put_old_tables(&list, batch, self);
    int32_t *pages = reserve_part(s, 4 * (int64_t)list.count).device;
    staged->self.pages = staged->cross.pages = pages;
    const proa_kv_reorder *reorders = put_reorders(s, batch, self, source);
    m->device->upload(m->device, s->device, s->host, s->used);
    if (batch->sampled_at) take_sampled_ids(m, batch, ids);
    if (batch->pending_count) reorder_pages(m, batch, pages, reorders, kv);
    return staged;
}
