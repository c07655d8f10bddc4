/* SPDX-License-Identifier: Apache-2.0
 * hosted.c - a device's table behind the host's memory: each call copies what its views cover to the device, runs the op
 * there and copies all of it back, so that kerncheck's cases, guard bands and aliases hold for a GPU as for the CPU. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/device.h"
#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 32 };

typedef struct range {
    char *begin, *end; /* on the host */
    char *there;
} range;

static proa_device *device;
static range ranges[RANGES_MAX];
static int ranges_count;

/* ---- ranges of host memory: overlapping ones become one ---- */

static void cover(const void *memory, int64_t bytes)
{
    range r = {(char *)(uintptr_t)memory, (char *)(uintptr_t)memory + bytes, NULL};
    if (!memory || bytes <= 0) return;
    for (int i = 0; i < ranges_count; i++) {
        if (r.begin >= ranges[i].end || ranges[i].begin >= r.end) continue;
        r.begin = r.begin < ranges[i].begin ? r.begin : ranges[i].begin;
        r.end = r.end > ranges[i].end ? r.end : ranges[i].end;
        ranges[i] = ranges[--ranges_count];
        i = -1;
    }
    PROA_ASSERT(ranges_count < RANGES_MAX);
    ranges[ranges_count++] = r;
}

static void cover_view(proa_view v)
{
    int64_t last = 0;
    if (v.rank == 0 || proa_view_count(v) == 0) return;
    for (int i = 0; i < v.rank; i++) last += (v.shape[i] - 1) * v.stride[i];
    cover(v.data, (last + 1) * proa_dtype_bytes(v.dtype));
}

static void *there(const void *here)
{
    char *p = (char *)(uintptr_t)here;
    for (int i = 0; i < ranges_count && p; i++)
        if (p >= ranges[i].begin && p < ranges[i].end) return ranges[i].there + (p - ranges[i].begin);
    return NULL;
}

static proa_view view_there(proa_view v)
{
    v.data = there(v.data);
    return v;
}

/* Kernels ask for their element's alignment: a range keeps the host's place within 64 bytes. */
static void bring(void)
{
    for (int i = 0; i < ranges_count; i++) {
        range *r = &ranges[i];
        int64_t skip = (int64_t)((uintptr_t)r->begin % 64);
        r->there = device->alloc(device, r->end - r->begin + 64);
        PROA_ASSERT(r->there);
        r->there += skip;
        device->upload(device, r->there, r->begin, r->end - r->begin);
    }
}

static void take_back(void)
{
    proa_err err = {0};
    for (int i = 0; i < ranges_count; i++) {
        range *r = &ranges[i];
        device->download(device, r->begin, r->there, r->end - r->begin);
        device->free(device, r->there - (uintptr_t)r->begin % 64, 0);
    }
    ranges_count = 0;
    if (device->check(device, &err) != PROA_OK) {
        fprintf(stderr, "kerncheck: %s\n", err.text);
        exit(1);
    }
}

static proa_ctx *ctx(void)
{
    static proa_ctx c;
    c.ops = device->ops, c.device = device;
    return &c;
}

/* ---- the ops ---- */

static void embed(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale, bool accumulate)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(table), cover(ids, y.shape[0] * 4);
    bring();
    device->ops->embed(ctx(), view_there(y), view_there(table), there(ids), scale, accumulate);
    take_back();
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover_view(w);
    bring();
    device->ops->rms_norm(ctx(), view_there(y), view_there(x), view_there(w), eps);
    take_back();
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover_view(w), cover_view(b);
    bring();
    device->ops->layer_norm(ctx(), view_there(y), view_there(x), view_there(w), view_there(b), eps);
    take_back();
}

static void linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    PROA_UNUSED(c);
    proa_weight weight = *w;
    proa_epilogue epilogue = *e;
    cover_view(y), cover_view(x), cover_view(e->residual), cover(w->data, w->bytes), cover(e->bias, w->N * 4);
    bring();
    weight.data = there(w->data), epilogue.bias = there(e->bias), epilogue.residual = view_there(e->residual);
    device->ops->linear(ctx(), view_there(y), view_there(x), &weight, &epilogue);
    take_back();
}

/* Sources are the host's for a device too. */
static void pack(proa_ctx *c, proa_weight *w, const proa_view *sources, int count)
{
    PROA_UNUSED(c);
    proa_weight weight = *w;
    cover(w->data, w->bytes);
    bring();
    weight.data = there(w->data);
    device->ops->pack(ctx(), &weight, sources, count);
    take_back();
}

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const float *inv_freq, float scale)
{
    PROA_UNUSED(c);
    cover_view(table), cover(pos, table.shape[0] * 4), cover(inv_freq, table.shape[1] / 2 * 4);
    bring();
    device->ops->rope_table(ctx(), view_there(table), there(pos), there(inv_freq), scale);
    take_back();
}

static void rope(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    PROA_UNUSED(c);
    cover_view(x), cover_view(table);
    bring();
    device->ops->rope(ctx(), view_there(x), view_there(table), interleaved);
    take_back();
}

static proa_spans cover_spans(const proa_spans *s, const proa_kv *kv)
{
    int32_t entries = 0, pages = 0;
    proa_spans out = *s;
    out.rows_max = out.context_max = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const proa_span *span = &s->span[i];
        int32_t n = (span->context + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
        entries = span->table + n > entries ? span->table + n : entries;
        for (int32_t p = 0; p < n; p++)
            pages = s->pages[span->table + p] >= pages ? s->pages[span->table + p] + 1 : pages;
        out.rows_max = span->rows > out.rows_max ? span->rows : out.rows_max;
        out.context_max = span->context > out.context_max ? span->context : out.context_max;
    }
    int64_t bytes = pages * kv->kv_heads * PROA_PAGE_TOKENS * kv->head_dim * proa_dtype_bytes(kv->dtype);
    cover(s->span, s->count * (int64_t)sizeof *s->span), cover(s->pages, entries * 4L);
    cover(kv->k, bytes), cover(kv->v, bytes);
    return out;
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover_view(k), cover_view(v);
    bring();
    s.span = there(s.span), s.pages = there(s.pages), pages.k = there(kv->k), pages.v = there(kv->v);
    device->ops->kv_append(ctx(), &pages, view_there(k), view_there(v), &s);
    take_back();
}

static void rope_append(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved,
                        const proa_kv *kv, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover_view(x), cover_view(v), cover_view(table);
    bring();
    s.span = there(s.span), s.pages = there(s.pages), pages.k = there(kv->k), pages.v = there(kv->v);
    device->ops->rope_append(ctx(), view_there(x), view_there(v), view_there(table), interleaved, &pages, &s);
    take_back();
}

static void attend(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                   const proa_attention *a)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    proa_attention attention = *a;
    cover_view(y), cover_view(q), cover(a->rel_bias, a->rel_buckets * q.shape[1] * 4);
    bring();
    s.span = there(s.span), s.pages = there(s.pages), pages.k = there(kv->k), pages.v = there(kv->v);
    attention.rel_bias = there(a->rel_bias);
    device->ops->attend(ctx(), view_there(y), view_there(q), &pages, &s, &attention);
    take_back();
}

static void act(proa_ctx *c, proa_view x, proa_act act)
{
    PROA_UNUSED(c);
    cover_view(x);
    bring();
    device->ops->act(ctx(), view_there(x), act);
    take_back();
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(gate), cover_view(up);
    bring();
    device->ops->act_mul(ctx(), view_there(y), view_there(gate), view_there(up), act);
    take_back();
}

static void add(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(a), cover_view(b);
    bring();
    device->ops->add(ctx(), view_there(y), view_there(a), view_there(b));
    take_back();
}

static void gather(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover(rows, y.shape[0] * 4);
    bring();
    device->ops->gather(ctx(), view_there(y), view_there(x), there(rows));
    take_back();
}

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    PROA_UNUSED(c);
    cover(out, x.shape[0] * 4), cover_view(x);
    bring();
    device->ops->log_sum_exp(ctx(), there(out), view_there(x));
    take_back();
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    PROA_UNUSED(c);
    cover_view(values), cover(ids, x.shape[0] * k * 4), cover_view(x);
    bring();
    device->ops->top_k(ctx(), view_there(values), there(ids), view_there(x), k);
    take_back();
}

const proa_ops *hosted_table(const char *name, proa_err *err)
{
    static proa_ops table;
    if (proa_device_open(&device, name, err) != PROA_OK) return NULL;
    table = (proa_ops){.name = device->ops->name, .pack_bytes = device->ops->pack_bytes};
#define PROA_OP(name, args) table.name = name;
#include "kernels/ops.def"
#undef PROA_OP
    return &table;
}

void hosted_close(void)
{
    proa_device_close(device);
    device = NULL;
}
