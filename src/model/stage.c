/* SPDX-License-Identifier: Apache-2.0 */
#include "model/stage.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { PAGES_MAX = 1 << 24 }; /* entries of all page tables of a step: 64 MB, a billion tokens of context */

struct proa_stage {
    char *here, *there; /* the step's arrays; on the host ids alone, as they will run */
    int32_t *there_rows; /* [rows_max] what the head gathers; then 0, 1, ..., rows_max - 1; what ids come from */
    proa_choice *there_choices; /* [rows_max] */
    int32_t *there_chosen;      /* the last chosen ids, then their rows' sums (proa_stage_chosen) */
    char *sent[2];              /* these, on the host */
    float *out, *hidden;        /* [head_rows][outputs], [head_rows][hidden] on the host */
    float *rows;                /* [rows_max][outputs], of a head that only gathers */
    int64_t bytes, used, pages_max, out_width, hidden_width;
};

static int64_t page_entries(const proa_model *m)
{
    int64_t longest = proa_max64(m->config.context, m->plan.rows_max);
    int64_t entries = 2 * m->plan.rows_max * (proa_ceil_div(longest, PROA_PAGE_TOKENS) + 1);
    return proa_min64(entries, PAGES_MAX);
}

/* ids, a gap to 16 bytes, sums; or the likeliest ids, their logits and the rows' sums */
static int64_t chosen_bytes(const proa_model *m)
{
    return proa_max64(8 * m->plan.rows_max + 16, m->plan.head_rows * (8 * PROA_TOP_MAX + 4));
}

static int64_t rows_bytes(const proa_model *m)
{
    return m->plan.rows_max * (3 * 4 + (int64_t)sizeof(proa_choice)) + 64 + chosen_bytes(m);
}

static int64_t out_bytes(const proa_model *m)
{
    int64_t rows = m->plan.head_rows + (m->plan.bare_head ? m->plan.rows_max : 0);
    return rows * m->stage->out_width * (int64_t)sizeof(float);
}

static void number_rows(proa_model *m)
{
    proa_stage *s = m->stage;
    int64_t rows = m->plan.rows_max;
    int32_t *here = proa_malloc((size_t)rows * sizeof *here);
    for (int64_t i = 0; i < rows; i++) here[i] = (int32_t)i;
    m->device->upload(m->device, s->there_rows + rows, here, rows * 4);
    free(here);
}

const int32_t *proa_stage_all_rows(const proa_model *m)
{
    return m->stage->there_rows + m->plan.rows_max;
}

/* What the host's own model needs: ids that were chosen, and room to put them among others. */
static proa_status make_shared(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage;
    char *memory = d->alloc(d, rows_bytes(m));
    s->there_rows = (int32_t *)(void *)memory;
    s->there = d->alloc(d, s->bytes);
    for (int i = 0; i < 2; i++) s->sent[i] = d->host_alloc(d, chosen_bytes(m));
    if (!memory || !s->there || !s->sent[0] || !s->sent[1])
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for a step's arrays on %s",
                         (double)s->bytes / 1e6, d->name);
    s->there_choices = (proa_choice *)(void *)(memory + proa_round_up(3 * 4 * m->plan.rows_max, 32));
    s->there_chosen = (int32_t *)(void *)(s->there_choices + m->plan.rows_max);
    number_rows(m);
    return PROA_OK;
}

proa_status proa_stage_make(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage = proa_calloc(1, sizeof *s);
    int64_t rows = m->plan.rows_max;
    s->pages_max = page_entries(m);
    s->bytes = d->host ? 4 * rows : rows * (3 * 4 + 2 * (int64_t)sizeof(proa_span)) + 4 * s->pages_max + 1024;
    PROA_TRY(make_shared(m, err));
    if (d->host) return PROA_OK;
    s->out_width = proa_max64(m->plan.width[PROA_REG_OUT], m->config.hidden);
    s->hidden_width = m->config.hidden;
    s->here = proa_malloc((size_t)s->bytes);
    s->out = d->host_alloc(d, out_bytes(m));
    s->hidden = d->host_alloc(d, m->plan.head_rows * s->hidden_width * (int64_t)sizeof *s->hidden);
    s->rows = s->out ? s->out + m->plan.head_rows * s->out_width : NULL;
    if (s->out && s->hidden) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB of host memory for a step's results",
                     (double)out_bytes(m) / 1e6);
}

void proa_stage_free(proa_model *m)
{
    proa_stage *s = m->stage;
    if (!s) return;
    m->device->free(m->device, s->there, s->bytes);
    m->device->free(m->device, s->there_rows, rows_bytes(m));
    for (int i = 0; i < 2; i++) m->device->host_free(m->device, s->sent[i]);
    free(s->here);
    m->device->host_free(m->device, s->out);
    m->device->host_free(m->device, s->hidden);
    free(s);
    m->stage = NULL;
}

/* Appends bytes to the block; returns where they will lie on the device. */
static void *put(proa_stage *s, const void *bytes, int64_t len)
{
    int64_t at = s->used;
    s->used = proa_round_up(at + len, 16);
    PROA_ASSERT(s->used <= s->bytes);
    if (bytes) memcpy(s->here + at, bytes, (size_t)len);
    else memset(s->here + at, 0, (size_t)len);
    return s->there + at;
}

/* Contexts of one length class launch alike: 256, 512, 1024, ... */
static int32_t length_class(int32_t context)
{
    int32_t up = 256;
    while (up < context) up *= 2;
    return up;
}

/* The spans, with page tables that lie behind each other from *pages on. */
static void put_spans(proa_stage *s, const proa_spans *from, proa_spans *to)
{
    proa_span *span = (proa_span *)(void *)(s->here + s->used);
    *to = (proa_spans){.count = from->count};
    to->span = put(s, from->span, from->count * (int64_t)sizeof *span);
    for (int64_t i = 0; i < from->count; i++) {
        to->rows_max = span[i].rows > to->rows_max ? span[i].rows : to->rows_max;
        to->rows_min = i == 0 || span[i].rows < to->rows_min ? span[i].rows : to->rows_min;
        to->context_max = span[i].context > to->context_max ? span[i].context : to->context_max;
    }
    if (to->context_max) to->context_max = length_class(to->context_max);
}

static void put_pages(proa_stage *s, const proa_spans *from, const proa_spans *there, int32_t *count,
                      int32_t *pages)
{
    proa_span *span = (proa_span *)(void *)(s->here + ((const char *)there->span - s->there));
    for (int64_t i = 0; i < from->count; i++) {
        int32_t n = (span[i].context + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
        PROA_ASSERT(*count + n <= s->pages_max);
        memcpy(pages + *count, from->pages + span[i].table, (size_t)n * sizeof *pages);
        span[i].table = *count;
        *count += n;
    }
}

/* Numbers of rows where the model runs. Mostly they are 0, 1, 2, ..., which lie there already. */
static const int32_t *rows_there(proa_model *m, const int32_t *rows, int64_t count, int32_t *room)
{
    int64_t i = 0;
    if (m->device->host) return rows;
    while (i < count && rows[i] == (int32_t)i) i++;
    if (i == count) return proa_stage_all_rows(m);
    m->device->upload(m->device, room, rows, count * 4);
    return room;
}

/* Ids that only the device knows take their places among the others. */
static void take_chosen(proa_model *m, const proa_batch *batch, int32_t *ids)
{
    const int32_t *from = rows_there(m, batch->from, batch->rows, m->stage->there_rows + 2 * m->plan.rows_max);
    m->ctx.ops->take_ids(&m->ctx, ids, m->stage->there_chosen, from, batch->rows);
}

/* The host reads the batch where it is, but for ids that are not in it. */
static const proa_batch *stage_here(proa_model *m, const proa_batch *batch, proa_batch *there)
{
    *there = *batch;
    if (!batch->from) return batch;
    memcpy(m->stage->there, batch->ids, (size_t)batch->rows * 4);
    there->ids = (const int32_t *)(const void *)m->stage->there;
    take_chosen(m, batch, (int32_t *)(void *)m->stage->there);
    return there;
}

const proa_batch *proa_stage_batch(proa_model *m, const proa_batch *batch, proa_batch *there)
{
    proa_stage *s = m->stage;
    int32_t count = 0;
    if (m->device->host) return stage_here(m, batch, there);
    s->used = 0;
    *there = (proa_batch){.rows = batch->rows};
    there->ids = put(s, batch->ids, batch->rows * 4);
    there->positions = put(s, batch->positions, batch->rows * 4);
    there->types = put(s, batch->types, batch->rows * 4);
    put_spans(s, &batch->self, &there->self);
    put_spans(s, &batch->cross, &there->cross);
    int32_t *pages = (int32_t *)(void *)(s->here + s->used);
    there->self.pages = there->cross.pages = (const int32_t *)(const void *)(s->there + s->used);
    put_pages(s, &batch->self, &there->self, &count, pages);
    put_pages(s, &batch->cross, &there->cross, &count, pages);
    m->device->upload(m->device, s->there, s->here, s->used + 4 * (int64_t)count);
    if (batch->from) take_chosen(m, batch, (int32_t *)(void *)s->there); /* ids lie first */
    return there;
}

const int32_t *proa_stage_rows(proa_model *m, const int32_t *rows, int64_t count)
{
    return rows_there(m, rows, count, m->stage->there_rows);
}

const proa_choice *proa_stage_choices(proa_model *m, const proa_choice *how, int64_t count)
{
    if (!how || m->device->host) return how;
    m->device->upload(m->device, m->stage->there_choices, how, count * (int64_t)sizeof *how);
    return m->stage->there_choices;
}

proa_chosen proa_stage_chosen(proa_model *m, int64_t count)
{
    int32_t *ids = m->stage->there_chosen;
    return (proa_chosen){ids, (float *)(void *)(ids + proa_round_up(count, 4))};
}

void proa_stage_send_chosen(proa_model *m, int64_t count, int ticket)
{
    proa_stage *s = m->stage;
    m->device->send(m->device, s->sent[ticket], s->there_chosen, 4 * (proa_round_up(count, 4) + count), ticket);
}

void proa_model_chosen(proa_model *m, int ticket, int64_t count, const int32_t **ids, const float **sums)
{
    const char *sent = m->stage->sent[ticket];
    m->device->sent(m->device, ticket);
    *ids = (const int32_t *)(const void *)sent;
    *sums = (const float *)(const void *)(sent + 4 * proa_round_up(count, 4));
}

proa_view proa_stage_fetch(proa_model *m, proa_view out, proa_view hidden)
{
    proa_stage *s = m->stage;
    proa_device *d = m->device;
    if (d->host) return out;
    if (m->hidden_wanted && hidden.rank) d->download(d, s->hidden, hidden.data, proa_view_count(hidden) * 4);
    d->download(d, s->out, out.data, proa_view_count(out) * 4);
    out.data = s->out;
    return out;
}

const float *proa_stage_fetch_rows(proa_model *m, proa_view out)
{
    proa_stage *s = m->stage;
    if (m->device->host) return proa_view_f32(out);
    m->device->download(m->device, s->rows, out.data, proa_view_count(out) * 4);
    return s->rows;
}

void proa_stage_send_rows(proa_model *m, proa_view out, int64_t first)
{
    float *to = m->stage->rows + first * out.shape[1];
    m->device->send(m->device, to, out.data, proa_view_count(out) * 4, PROA_SEND_BESIDE);
}

const float *proa_stage_sent_rows(proa_model *m)
{
    m->device->sent(m->device, PROA_SEND_BESIDE);
    return m->stage->rows;
}

proa_top proa_stage_top(proa_model *m, int64_t count, int64_t k)
{
    int32_t *ids = m->stage->there_chosen;
    float *logits = (float *)(void *)(ids + count * k);
    return (proa_top){ids, logits, logits + count * k};
}

void proa_stage_fetch_top(proa_model *m, int64_t count, int64_t k, int32_t *ids, float *logits, float *sums)
{
    char *here = m->stage->sent[0];
    m->device->send(m->device, here, m->stage->there_chosen, 4 * (2 * count * k + count), 0);
    m->device->sent(m->device, 0);
    memcpy(ids, here, (size_t)(count * k) * sizeof *ids);
    memcpy(logits, here + 4 * count * k, (size_t)(count * k) * sizeof *logits);
    memcpy(sums, here + 8 * count * k, (size_t)count * sizeof *sums);
}

const float *proa_stage_hidden(const proa_model *m, proa_view hidden, int64_t row)
{
    const float *rows = m->device->host ? proa_view_f32(hidden) : m->stage->hidden;
    return rows + row * hidden.stride[0];
}
