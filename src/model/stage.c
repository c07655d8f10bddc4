/* SPDX-License-Identifier: Apache-2.0 */
#include "model/stage.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { PAGES_MAX = 1 << 24 }; /* entries of all page tables of a step: 64 MB, a billion tokens of context */

struct proa_stage {
    char *here, *there;  /* the step's arrays */
    int32_t *there_rows; /* [best_rows] what the head gathers; then the best ids, sums and logits */
    int32_t *there_all;  /* 0, 1, ..., rows_max - 1, where the head only gathers */
    float *out, *hidden; /* [head_rows][outputs], [head_rows][hidden] on the host */
    int64_t bytes, used, pages_max, out_width, hidden_width;
};

static int64_t page_entries(const proa_model *m)
{
    int64_t longest = proa_max64(m->config.context, m->plan.rows_max);
    int64_t entries = 2 * m->plan.rows_max * (proa_ceil_div(longest, PROA_PAGE_TOKENS) + 1);
    return proa_min64(entries, PAGES_MAX);
}

static int64_t rows_bytes(const proa_model *m)
{
    return m->plan.best_rows * 16 + (m->plan.bare_head ? 4 * m->plan.rows_max : 0);
}

static int64_t out_bytes(const proa_model *m)
{
    int64_t rows = m->plan.bare_head ? m->plan.rows_max : m->plan.head_rows;
    return proa_max64(rows * m->stage->out_width * (int64_t)sizeof(float), 8 * m->plan.best_rows);
}

static void number_rows(proa_model *m)
{
    proa_stage *s = m->stage;
    if (!m->plan.bare_head) return;
    int64_t bytes = 4 * m->plan.rows_max;
    int32_t *here = proa_malloc((size_t)bytes);
    for (int64_t i = 0; i < m->plan.rows_max; i++) here[i] = (int32_t)i;
    s->there_all = s->there_rows + 4 * m->plan.best_rows;
    m->device->upload(m->device, s->there_all, here, bytes);
    free(here);
}

const int32_t *proa_stage_all_rows(const proa_model *m)
{
    return m->stage->there_all;
}

proa_status proa_stage_make(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage = proa_calloc(1, sizeof *s);
    int64_t rows = m->plan.rows_max;
    s->pages_max = page_entries(m);
    s->bytes = rows * (3 * 4 + 2 * (int64_t)sizeof(proa_span)) + 4 * s->pages_max + 1024;
    s->out_width = proa_max64(m->plan.width[PROA_REG_OUT], m->config.hidden);
    s->hidden_width = m->config.hidden;
    s->here = proa_malloc((size_t)s->bytes);
    s->out = d->host_alloc(d, out_bytes(m));
    s->hidden = d->host_alloc(d, m->plan.head_rows * s->hidden_width * (int64_t)sizeof *s->hidden);
    s->there = d->alloc(d, s->bytes);
    s->there_rows = d->alloc(d, rows_bytes(m));
    if (s->there && s->there_rows && s->out && s->hidden) return number_rows(m), PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for a step's arrays on %s", (double)s->bytes / 1e6,
                     d->name);
}

void proa_stage_free(proa_model *m)
{
    proa_stage *s = m->stage;
    if (!s) return;
    m->device->free(m->device, s->there, s->bytes);
    m->device->free(m->device, s->there_rows, rows_bytes(m));
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

const proa_batch *proa_stage_batch(proa_model *m, const proa_batch *batch, proa_batch *there)
{
    proa_stage *s = m->stage;
    int32_t count = 0;
    if (!s) return *there = *batch, batch;
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
    return there;
}

const int32_t *proa_stage_rows(proa_model *m, const int32_t *rows, int64_t count)
{
    if (!m->stage) return rows;
    m->device->upload(m->device, m->stage->there_rows, rows, count * 4);
    return m->stage->there_rows;
}

proa_view proa_stage_fetch(proa_model *m, proa_view out, proa_view hidden)
{
    proa_stage *s = m->stage;
    proa_device *d = m->device;
    if (!s) return out;
    if (m->hidden_wanted && hidden.rank) d->download(d, s->hidden, hidden.data, proa_view_count(hidden) * 4);
    d->download(d, s->out, out.data, proa_view_count(out) * 4);
    out.data = s->out;
    return out;
}

proa_best proa_stage_best(proa_model *m)
{
    int64_t rows = m->plan.best_rows;
    int32_t *ids = m->stage->there_rows + rows;
    float *sums = (float *)(void *)(ids + rows);
    return (proa_best){ids, sums + rows, sums};
}

/* In one transfer: the sums lie behind the ids. */
void proa_stage_best_fetch(proa_model *m, int64_t count, int32_t *ids, float *sums)
{
    int64_t rows = m->plan.best_rows;
    char *here = (char *)m->stage->out;
    m->device->download(m->device, here, m->stage->there_rows + rows, (rows + count) * 4);
    memcpy(ids, here, (size_t)count * sizeof *ids);
    memcpy(sums, here + rows * 4, (size_t)count * sizeof *sums);
}

const float *proa_stage_hidden(const proa_model *m, proa_view hidden, int64_t row)
{
    const float *rows = m->stage ? m->stage->hidden : proa_view_f32(hidden);
    return rows + row * hidden.stride[0];
}
