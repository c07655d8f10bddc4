/* SPDX-License-Identifier: Apache-2.0
 * hosted.c - a device's table behind the host's memory: each call copies what its views cover to the device, runs the
 * op there and copies all of it back, so that kerncheck's cases, guard bands and aliases hold for a GPU as for the
 * CPU. With device_mode.narrow the views that ops.def marks 16 go over as copies of that type, inside a guard of
 * their own. */
#include "check.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/device.h"
#include "kernels/lora_stack.h"
#include <stdlib.h>
#include <string.h>

enum { RANGES_MAX = 32, COPIES_MAX = 8, COPY_GUARD = 64, COPY_PATTERN = 0x7e5a /* a NaN in both types */ };

typedef struct range {
    char *begin, *end; /* on the host */
    char *device_ptr;
} range;

/* A view in 16 bits on the device. */
typedef struct copy {
    proa_view here;
    uint16_t *bits; /* as sent: guard, the view and what lies between its rows, guard */
    char *device_ptr;
    int64_t count, skip; /* elements in all; before the first */
} copy;

static proa_device *device;
static copy copies[COPIES_MAX];
static int copies_count;
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

/* Elements from the first to the last, both included. */
static int64_t extent(proa_view v)
{
    int64_t last = 0;
    if (v.rank == 0 || proa_view_count(v) == 0) return 0;
    for (int i = 0; i < v.rank; i++) last += (v.shape[i] - 1) * v.stride[i];
    return last + 1;
}

static void cover_view(proa_view v)
{
    cover(v.data, extent(v) * proa_dtype_bytes(v.dtype));
}

/* ---- copies in 16 bits ---- */

/* Rows of a view, all axes but the last flattened, and where each begins, in elements. */
static int64_t row_places(proa_view v)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < v.rank; i++) rows *= v.shape[i];
    return rows;
}

static int64_t row_place(proa_view v, int64_t row)
{
    return v.rank == 3 ? row / v.shape[1] * v.stride[0] + row % v.shape[1] * v.stride[1] : row * v.stride[0];
}

static void cover_narrow(proa_view v, bool narrow)
{
    if (!narrow || device_mode.narrow == PROA_DTYPE_F32 || extent(v) == 0) {
        cover_view(v);
        return;
    }
    for (int i = 0; i < copies_count; i++)
        if (copies[i].here.data == v.data) return;
    PROA_ASSERT(copies_count < COPIES_MAX && v.rank >= 2);
    copies[copies_count++] = (copy){.here = v};
}

static void bring_copy(copy *c)
{
    int64_t columns = c->here.shape[c->here.rank - 1];
    c->skip = COPY_GUARD +
              (int64_t)((uintptr_t)c->here.data % 64 / 4); /* as far off alignment as the host's, in elements */
    c->count = c->skip + extent(c->here) + COPY_GUARD;
    c->bits = proa_malloc((size_t)c->count * 2);
    for (int64_t i = 0; i < c->count; i++) c->bits[i] = COPY_PATTERN;
    for (int64_t r = 0; r < row_places(c->here); r++) {
        int64_t at = row_place(c->here, r);
        proa_from_f32(c->bits + c->skip + at, device_mode.narrow, proa_view_f32(c->here) + at, columns);
    }
    c->device_ptr = device->alloc(device, c->count * 2);
    PROA_ASSERT(c->device_ptr);
    device->upload(device, c->device_ptr, c->bits, c->count * 2);
}

static void take_copy_back(copy *c)
{
    int64_t columns = c->here.shape[c->here.rank - 1];
    device->download(device, c->bits, c->device_ptr, c->count * 2);
    device->free(device, c->device_ptr, 0);
    for (int64_t r = 0; r < row_places(c->here); r++) {
        int64_t at = row_place(c->here, r);
        proa_to_f32(proa_view_f32(c->here) + at, c->bits + c->skip + at, device_mode.narrow, columns);
        for (int64_t j = 0; j < columns; j++) c->bits[c->skip + at + j] = COPY_PATTERN;
    }
    for (int64_t i = 0; i < c->count; i++)
        if (c->bits[i] != COPY_PATTERN) {
            fprintf(stderr, "kerncheck: a kernel wrote outside a view of 16 bits, at element %lld\n",
                    (long long)(i - c->skip));
            exit(1);
        }
    free(c->bits);
}

static void *device_ptr(const void *here)
{
    char *p = (char *)(uintptr_t)here;
    for (int i = 0; i < ranges_count && p; i++)
        if (p >= ranges[i].begin && p < ranges[i].end) return ranges[i].device_ptr + (p - ranges[i].begin);
    return NULL;
}

static proa_view device_view(proa_view v)
{
    for (int i = 0; i < copies_count; i++)
        if (copies[i].here.data == v.data) {
            v.data = copies[i].device_ptr + copies[i].skip * 2;
            v.dtype = device_mode.narrow;
            return v;
        }
    v.data = device_ptr(v.data);
    return v;
}

/* Kernels ask for their element's alignment: a range keeps the host's place within 64 bytes. */
static void upload_covered(void)
{
    for (int i = 0; i < ranges_count; i++) {
        range *r = &ranges[i];
        int64_t skip = (int64_t)((uintptr_t)r->begin % 64);
        r->device_ptr = device->alloc(device, r->end - r->begin + 64);
        PROA_ASSERT(r->device_ptr);
        r->device_ptr += skip;
        device->upload(device, r->device_ptr, r->begin, r->end - r->begin);
    }
    for (int i = 0; i < copies_count; i++) bring_copy(&copies[i]);
}

static void download_covered(void)
{
    proa_err err = {0};
    for (int i = 0; i < ranges_count; i++) {
        range *r = &ranges[i];
        device->download(device, r->begin, r->device_ptr, r->end - r->begin);
        device->free(device, r->device_ptr - (uintptr_t)r->begin % 64, 0);
    }
    ranges_count = 0;
    for (int i = 0; i < copies_count; i++) take_copy_back(&copies[i]);
    copies_count = 0;
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
    cover_narrow(y, !accumulate || y.shape[1] >= 16); /* a sum of two may be all rounding */
    cover_view(table), cover(ids, y.shape[0] * 4);
    upload_covered();
    device->ops->embed(ctx(), device_view(y), device_view(table), device_ptr(ids), scale, accumulate);
    download_covered();
}

void hosted_embed_all(proa_view y, const proa_view *table, const int32_t *ids, const float *scale, int count)
{
    cover_view(y), cover(ids, count * y.shape[0] * 4);
    for (int i = 0; i < count; i++) cover_view(table[i]);
    upload_covered();
    for (int i = 0; i < count; i++)
        device->ops->embed(ctx(), device_view(y), device_view(table[i]), device_ptr(ids + i * y.shape[0]),
                           scale[i], i > 0);
    download_covered();
}

/* A row of few numbers in 16 bits has another mean: x is of 16 bits where it is long, and norms itself or its heads. */
static void cover_norm(proa_view y, proa_view x)
{
    bool both = (x.data == y.data || x.rank == 3) && x.shape[x.rank - 1] >= 16;
    cover_narrow(y, both || x.data != y.data), cover_narrow(x, both);
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    PROA_UNUSED(c);
    cover_norm(y, x), cover_view(w);
    upload_covered();
    device->ops->rms_norm(ctx(), device_view(y), device_view(x), device_view(w), eps);
    download_covered();
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    PROA_UNUSED(c);
    cover_norm(y, x), cover_view(w), cover_view(b);
    upload_covered();
    device->ops->layer_norm(ctx(), device_view(y), device_view(x), device_view(w), device_view(b), eps);
    download_covered();
}

static void group_squares(proa_ctx *c, proa_view m, proa_view x, int64_t first, int64_t width)
{
    PROA_UNUSED(c);
    cover_view(m), cover_narrow(x, x.shape[1] >= 16 && width >= 16); /* as cover_norm */
    upload_covered();
    device->ops->group_squares(ctx(), device_view(m), device_view(x), first, width);
    download_covered();
}

static void mix_streams(proa_ctx *c, proa_view y, proa_view x, proa_view w, float plus)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover_view(w);
    upload_covered();
    device->ops->mix_streams(ctx(), device_view(y), device_view(x), device_view(w), plus);
    download_covered();
}

static void match_rms(proa_ctx *c, proa_view y, proa_view x, proa_view r, float least)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover_view(r);
    upload_covered();
    device->ops->match_rms(ctx(), device_view(y), device_view(x), device_view(r), least);
    download_covered();
}

static void threshold_rows(proa_ctx *c, proa_view x, proa_view m, float deviations)
{
    PROA_UNUSED(c);
    cover_narrow(x, x.shape[1] >= 16), cover_view(m); /* as cover_norm */
    upload_covered();
    device->ops->threshold_rows(ctx(), device_view(x), device_view(m), deviations);
    download_covered();
}

static void row_moments(proa_ctx *c, proa_view m, proa_view x)
{
    PROA_UNUSED(c);
    cover_view(m), cover_narrow(x, x.shape[1] >= 16); /* as cover_norm */
    upload_covered();
    device->ops->row_moments(ctx(), device_view(m), device_view(x));
    download_covered();
}

static void group_scale(proa_ctx *c, proa_view x, proa_view m, proa_view w, int64_t first, int64_t width,
                        float eps)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover_view(m), cover_view(w);
    upload_covered();
    device->ops->group_scale(ctx(), device_view(x), device_view(m), device_view(w), first, width, eps);
    download_covered();
}

/* Do products of this format read rows of the type under test? */
static bool reads_narrow(proa_wfmt format)
{
    return (format == PROA_WFMT_F16 && device_mode.narrow == PROA_DTYPE_F16) ||
           (format == PROA_WFMT_BF16 && device_mode.narrow == PROA_DTYPE_BF16) ||
           (proa_wfmt_is_quantised(format) && device_mode.narrow == PROA_DTYPE_F16);
}

static void linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    PROA_UNUSED(c);
    proa_weight weight = *w;
    proa_epilogue epilogue = *e;
    bool own = reads_narrow(w->format);
    int64_t which = (y.shape[0] + w->N) % 3; /* both, or either */
    bool x16 = own && which != 1, y16 = own && which != 2;
    cover_narrow(y, y16), cover_narrow(x, x16), cover_narrow(e->residual, y16), cover_narrow(e->workspace, y16);
    cover(w->data, w->bytes), cover(e->bias, w->N * 4);
    upload_covered();
    weight.data = device_ptr(w->data), epilogue.bias = device_ptr(e->bias),
    epilogue.residual = device_view(e->residual);
    epilogue.workspace = device_view(e->workspace);
    device->ops->linear(ctx(), device_view(y), device_view(x), &weight, &epilogue);
    download_covered();
}

void hosted_norm_linear(proa_view y, proa_view n, proa_view x, proa_view w, proa_view b, float eps,
                        const proa_weight *weight, const proa_epilogue *e)
{
    proa_weight packed = *weight;
    proa_epilogue epilogue = *e;
    bool own = proa_wfmt_is_quantised(weight->format) && device_mode.narrow == PROA_DTYPE_F16 && !b.rank;
    cover_narrow(n, own && y.shape[0] == 1);
    cover_view(y), cover_view(x), cover_view(w), cover_view(b), cover_view(e->residual),
        cover_view(e->workspace);
    cover(weight->data, weight->bytes), cover(e->bias, weight->N * 4);
    upload_covered();
    packed.data = device_ptr(weight->data), epilogue.bias = device_ptr(e->bias),
    epilogue.residual = device_view(e->residual), epilogue.workspace = device_view(e->workspace);
    if (b.rank)
        device->ops->layer_norm(ctx(), device_view(n), device_view(x), device_view(w), device_view(b), eps);
    else device->ops->rms_norm(ctx(), device_view(n), device_view(x), device_view(w), eps);
    device->ops->linear(ctx(), device_view(y), device_view(n), &packed, &epilogue);
    download_covered();
}

void hosted_fed_product(proa_view y, proa_view u, proa_view x, const proa_weight *up, const proa_weight *down,
                        const proa_epilogue *e)
{
    proa_weight first = *up, second = *down;
    proa_epilogue feeding = *e, plain = {.alpha = 0};
    bool own = reads_narrow(up->format);
    cover_narrow(y, own), cover_narrow(u, own), cover_narrow(x, own);
    cover(up->data, up->bytes), cover(down->data, down->bytes), cover(e->bias, up->N * 4);
    upload_covered();
    first.data = device_ptr(up->data), second.data = device_ptr(down->data);
    feeding.bias = device_ptr(e->bias), feeding.feeds_product = true;
    device->ops->linear(ctx(), device_view(u), device_view(x), &first, &feeding);
    device->ops->linear(ctx(), device_view(y), device_view(u), &second, &plain);
    download_covered();
}

/* Sources are the host's for a device too. */
static void pack(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    proa_weight weight = *w;
    proa_ctx with_pool = *ctx(); /* codes are packed on the host's threads */
    with_pool.pool = c->pool;
    cover(w->data, w->bytes);
    upload_covered();
    weight.data = device_ptr(w->data);
    device->ops->pack(&with_pool, &weight, sources, count);
    download_covered();
}

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const int32_t *length,
                       const proa_rope_freqs *freqs)
{
    PROA_UNUSED(c);
    int64_t half = table.shape[1] / 2;
    proa_rope_freqs on_device = *freqs;
    cover_view(table), cover(pos, table.shape[0] * 4), cover(freqs->inv_freq, half * 4);
    if (length) cover(length, table.shape[0] * 4);
    if (freqs->long_inv_freq) cover(freqs->long_inv_freq, half * 4);
    upload_covered();
    on_device.inv_freq = device_ptr(freqs->inv_freq);
    if (freqs->long_inv_freq) on_device.long_inv_freq = device_ptr(freqs->long_inv_freq);
    device->ops->rope_table(ctx(), device_view(table), device_ptr(pos), length ? device_ptr(length) : NULL,
                            &on_device);
    download_covered();
}

static void rope(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover_view(table);
    upload_covered();
    device->ops->rope(ctx(), device_view(x), device_view(table), interleaved);
    download_covered();
}

static proa_spans cover_spans(const proa_spans *s, const proa_kv *kv)
{
    int32_t entries = 0, pages = 0;
    proa_spans out = *s;
    out.rows_max = out.context_max = out.long_count = out.long_rows = 0;
    for (int64_t i = 0; i < s->count; i++) {
        const proa_span *span = &s->span[i];
        int32_t n = (span->context + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
        entries = span->table + n > entries ? span->table + n : entries;
        for (int32_t p = 0; p < n; p++)
            pages = s->pages[span->table + p] >= pages ? s->pages[span->table + p] + 1 : pages;
        out.rows_max = span->rows > out.rows_max ? span->rows : out.rows_max;
        out.context_max = span->context > out.context_max ? span->context : out.context_max;
        if (span->rows > 1) out.long_count++, out.long_rows += span->rows;
    }
    cover(s->span, s->count * (int64_t)sizeof *s->span), cover(s->pages, entries * 4L);
    const proa_span *last = &s->span[s->count - 1];
    if (s->seen) cover(s->seen, (last->row + last->rows) * (int64_t)sizeof *s->seen);
    out.rows_min = out.rows_max;
    for (int64_t i = 0; i < s->count; i++)
        out.rows_min = s->span[i].rows < out.rows_min ? s->span[i].rows : out.rows_min;
    if (kv->row) return out;
    int64_t bytes = pages * kv->kv_heads * PROA_PAGE_TOKENS * kv->head_dim * proa_dtype_bytes(kv->dtype);
    cover(kv->k, bytes), cover(kv->v, bytes);
    return out;
}

/* Rows of 16 bits meet pages of their own type or of e4m3. */
static bool meets(const proa_kv *kv)
{
    return kv->dtype == device_mode.narrow || kv->dtype == PROA_DTYPE_FP8;
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover_narrow(k, meets(kv)), cover_narrow(v, meets(kv));
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), pages.k = device_ptr(kv->k),
    pages.v = device_ptr(kv->v);
    device->ops->kv_append(ctx(), &pages, device_view(k), device_view(v), &s);
    download_covered();
}

static void rope_append(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved,
                        const proa_kv *kv, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover_narrow(x, true), cover_narrow(v, true), cover_view(table);
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), pages.k = device_ptr(kv->k),
    pages.v = device_ptr(kv->v);
    device->ops->rope_append(ctx(), device_view(x), device_view(v), device_view(table), interleaved, &pages, &s);
    download_covered();
}

void hosted_norm_rope_append(proa_view x, proa_view v, proa_view table, bool interleaved, const proa_kv *kv,
                             const proa_spans *spans, proa_view q_norm, proa_view k_norm, float eps,
                             proa_view y, const proa_attention *a)
{
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover_narrow(x, true), cover_narrow(v, true), cover_view(table);
    if (q_norm.rank) cover_view(q_norm), cover_view(k_norm);
    if (a) cover_narrow(y, true);
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), pages.k = device_ptr(kv->k),
    pages.v = device_ptr(kv->v);
    proa_view all = device_view(x), q = all, k = all;
    q.shape[1] = x.shape[1] - kv->kv_heads, k.shape[1] = kv->kv_heads;
    k.data = (char *)k.data + q.shape[1] * k.stride[1] * proa_dtype_bytes(k.dtype);
    if (q_norm.rank) device->ops->rms_norm(ctx(), q, q, device_view(q_norm), eps);
    if (q_norm.rank) device->ops->rms_norm(ctx(), k, k, device_view(k_norm), eps);
    device->ops->rope_append(ctx(), all, device_view(v), device_view(table), interleaved, &pages, &s);
    if (a) device->ops->attend(ctx(), device_view(y), q, &pages, &s, a);
    download_covered();
}

/* Keys or values that are rows of the step: of the host's in f32. */
static proa_view rows_of_kv(const proa_kv *kv, void *data, int64_t rows)
{
    proa_view v = proa_view_3d(data, PROA_DTYPE_F32, rows, kv->kv_heads, kv->head_dim);
    v.stride[0] = kv->row;
    return v;
}

/* Elements of a table of relative positions. */
static int64_t relative_count(const proa_relative *r, int64_t columns)
{
    return (r->rows - 1) * r->stride + columns;
}

static void cover_relative(const proa_relative *r, int64_t columns, int64_t rows)
{
    cover(r->row, (2 * (int64_t)r->reach + 1) * 4);
    cover(r->keys, relative_count(r, columns) * 4), cover(r->queries, relative_count(r, columns) * 4);
    cover(r->content_bias, columns * 4), cover(r->position_bias, columns * 4);
    cover(r->types, rows * 4), cover(r->segments, 2 * columns * 4), cover(r->segment_bias, columns * 4);
}

static proa_relative device_relative(const proa_relative *r)
{
    proa_relative out = *r;
    out.row = device_ptr(r->row), out.keys = device_ptr(r->keys), out.queries = device_ptr(r->queries);
    out.content_bias = device_ptr(r->content_bias), out.position_bias = device_ptr(r->position_bias);
    out.types = device_ptr(r->types), out.segments = device_ptr(r->segments);
    out.segment_bias = device_ptr(r->segment_bias);
    return out;
}

static void attend(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                   const proa_attention *a)
{
    PROA_UNUSED(c);
    proa_relative relative;
    proa_side_keys side;
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    proa_attention attention = *a;
    cover_narrow(y, meets(kv)), cover_narrow(q, meets(kv)), cover(a->rel_bias, a->rel_buckets * q.shape[1] * 4);
    cover(a->alibi, q.shape[1] * 4), cover(a->sinks, q.shape[1] * 4);
    if (a->relative) cover_relative(a->relative, q.shape[1] * kv->head_dim, q.shape[0]);
    proa_view k = rows_of_kv(kv, kv->k, q.shape[0]), v = rows_of_kv(kv, kv->v, q.shape[0]);
    if (kv->row) cover_narrow(k, true), cover_narrow(v, true);
    bool other_keys = a->side && a->side->k != kv->k; /* those of blocks */
    proa_view side_k = other_keys ? rows_of_kv(kv, a->side->k, q.shape[0]) : k;
    if (other_keys) cover_narrow(side_k, true), cover(a->side->rel_bias, a->rel_buckets * q.shape[1] * 4);
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), pages.k = device_ptr(kv->k),
    pages.v = device_ptr(kv->v), s.seen = device_ptr(s.seen);
    if (kv->row) pages.k = device_view(k).data, pages.v = device_view(v).data;
    attention.rel_bias = device_ptr(a->rel_bias), attention.alibi = device_ptr(a->alibi);
    attention.sinks = device_ptr(a->sinks);
    if (a->relative) relative = device_relative(a->relative), attention.relative = &relative;
    if (a->side) {
        side = *a->side, attention.side = &side;
        side.k = device_view(side_k).data, side.v = pages.v, side.rel_bias = device_ptr(a->side->rel_bias);
    }
    device->ops->attend(ctx(), device_view(y), device_view(q), &pages, &s, &attention);
    download_covered();
}

static void pick_keys(proa_ctx *c, int32_t *picked, proa_view q, proa_view w, const proa_kv *kv,
                      const proa_spans *spans, int64_t most)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, kv);
    proa_kv pages = *kv;
    cover(picked, q.shape[0] * most * 4), cover_narrow(q, true), cover_view(w);
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), s.seen = device_ptr(s.seen);
    pages.k = device_ptr(kv->k), pages.v = device_ptr(kv->v);
    device->ops->pick_keys(ctx(), device_ptr(picked), device_view(q), device_view(w), &pages, &s, most);
    download_covered();
}

static void gather_keys(proa_ctx *c, const proa_picked_keys *to, const proa_kv *from, const proa_spans *spans,
                        const int32_t *picked, int64_t most, int64_t first)
{
    PROA_UNUSED(c);
    proa_spans s = cover_spans(spans, from);
    proa_kv pages = *from;
    proa_picked_keys out = *to;
    const proa_span *last = &spans->span[spans->count - 1];
    int64_t each = proa_ceil_div(most, PROA_PAGE_TOKENS);
    int64_t bytes = to->rows * each * PROA_PAGE_TOKENS * from->head_dim * proa_dtype_bytes(from->dtype);
    cover(to->kv.k, bytes), cover(to->span, to->rows * (int64_t)sizeof *to->span),
        cover(to->pages, to->rows * each * 4);
    if (to->kv.v != to->kv.k) cover(to->kv.v, bytes);
    cover(picked, (last->row + last->rows) * most * 4);
    upload_covered();
    s.span = device_ptr(s.span), s.pages = device_ptr(s.pages), s.seen = device_ptr(s.seen);
    pages.k = device_ptr(from->k), pages.v = device_ptr(from->v);
    out.kv.k = device_ptr(to->kv.k), out.kv.v = device_ptr(to->kv.v);
    out.span = device_ptr(to->span), out.pages = device_ptr(to->pages);
    device->ops->gather_keys(ctx(), &out, &pages, &s, device_ptr(picked), most, first);
    download_covered();
}

static void unfold(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t width)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    cover(s.span, s.count * (int64_t)sizeof *s.span);
    cover_narrow(y, true), cover_narrow(x, true);
    upload_covered();
    s.span = device_ptr(s.span);
    device->ops->unfold(ctx(), device_view(y), device_view(x), &s, width);
    download_covered();
}

/* States of all slots up to the last one that a span has, on the device. */
static proa_layer_state device_state(const proa_layer_state *state, const proa_spans *spans, int64_t numbers)
{
    int32_t last = 0;
    for (int64_t i = 0; i < spans->count; i++)
        last = spans->span[i].state > last ? spans->span[i].state : last;
    cover(spans->span, spans->count * (int64_t)sizeof *spans->span);
    cover(state->base, (last * state->stride + numbers) * (int64_t)sizeof *state->base);
    upload_covered();
    return (proa_layer_state){(float *)device_ptr(state->base), state->stride};
}

static void conv_state(proa_ctx *c, proa_view y, proa_view x, const proa_conv *conv,
                       const proa_layer_state *state, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    proa_conv w = *conv;
    const int64_t d = x.shape[1];
    cover_narrow(y, true), cover_narrow(x, true), cover(w.w, d * w.taps * 4), cover(w.bias, d * 4);
    proa_layer_state states = device_state(state, spans, (w.taps - 1) * d);
    s.span = device_ptr(s.span), w.w = device_ptr(w.w), w.bias = device_ptr(w.bias);
    device->ops->conv_state(ctx(), device_view(y), device_view(x), &w, &states, &s);
    download_covered();
}

static void gated_delta(proa_ctx *c, proa_view y, proa_view x, proa_view rates, const proa_delta *d,
                        const proa_layer_state *state, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    proa_delta delta = *d;
    cover_narrow(y, true), cover_narrow(x, true), cover_view(rates);
    cover(d->rate, d->value_heads * 4), cover(d->bias, d->value_heads * (d->by_channel ? d->key_dim : 1) * 4);
    proa_layer_state states = device_state(state, spans, d->value_heads * d->key_dim * d->value_dim);
    s.span = device_ptr(s.span), delta.rate = device_ptr(d->rate), delta.bias = device_ptr(d->bias);
    device->ops->gated_delta(ctx(), device_view(y), device_view(x), device_view(rates), &delta, &states, &s);
    download_covered();
}

static void selective_scan(proa_ctx *c, proa_view y, proa_view x, proa_view params, proa_view rates,
                           const proa_state_space *p, const proa_layer_state *state, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    proa_state_space scan = *p;
    const int64_t each = p->by_channel ? p->heads * p->value_dim : p->heads;
    cover_narrow(y, true), cover_narrow(x, true), cover_narrow(params, true);
    if (p->by_channel) cover_view(rates);
    else cover_narrow(rates, true);
    cover(p->rate, each * (p->by_channel ? p->state_dim : 1) * 4), cover(p->bias, each * 4),
        cover(p->skip, each * 4);
    proa_layer_state states = device_state(state, spans, p->heads * p->state_dim * p->value_dim);
    s.span = device_ptr(s.span), scan.rate = device_ptr(p->rate), scan.bias = device_ptr(p->bias);
    scan.skip = device_ptr(p->skip);
    device->ops->selective_scan(ctx(), device_view(y), device_view(x), device_view(params),
                                device_view(rates), &scan, &states, &s);
    download_covered();
}

static void span_mean(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    cover(s.span, s.count * (int64_t)sizeof *s.span);
    cover_narrow(y, true), cover_narrow(x, true);
    upload_covered();
    s.span = device_ptr(s.span);
    device->ops->span_mean(ctx(), device_view(y), device_view(x), &s);
    download_covered();
}

static void drop_masked(proa_ctx *c, proa_view y, const int32_t *ids, const proa_spans *spans, int32_t mask,
                        float keep)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    cover(s.span, s.count * (int64_t)sizeof *s.span);
    cover(ids, y.shape[0] * (int64_t)sizeof *ids);
    cover_narrow(y, true);
    upload_covered();
    s.span = device_ptr(s.span);
    device->ops->drop_masked(ctx(), device_view(y), device_ptr(ids), &s, mask, keep);
    download_covered();
}

static void block_sums(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t block)
{
    PROA_UNUSED(c);
    proa_spans s = *spans;
    cover(s.span, s.count * (int64_t)sizeof *s.span);
    cover_narrow(y, true), cover_narrow(x, true);
    upload_covered();
    s.span = device_ptr(s.span);
    device->ops->block_sums(ctx(), device_view(y), device_view(x), &s, block);
    download_covered();
}

static void act(proa_ctx *c, proa_view x, proa_act act)
{
    PROA_UNUSED(c);
    cover_narrow(x, true);
    upload_covered();
    device->ops->act(ctx(), device_view(x), act);
    download_covered();
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    PROA_UNUSED(c);
    cover_narrow(y, true), cover_narrow(gate, true), cover_narrow(up, true);
    upload_covered();
    device->ops->act_mul(ctx(), device_view(y), device_view(gate), device_view(up), act);
    download_covered();
}

static void route(proa_ctx *c, proa_view weights, int32_t *ids, proa_view scores, const proa_router *r)
{
    PROA_UNUSED(c);
    proa_router router = *r;
    cover_view(weights), cover(ids, scores.shape[0] * r->chosen * 4), cover_view(scores);
    cover(r->correction, scores.shape[1] * 4), cover(r->scales, scores.shape[1] * 4);
    upload_covered();
    router.correction = device_ptr(r->correction), router.scales = device_ptr(r->scales);
    device->ops->route(ctx(), device_view(weights), device_ptr(ids), device_view(scores), &router);
    download_covered();
}

void hosted_router(proa_view weights, int32_t *ids, proa_view y, proa_view n, proa_view x, proa_view norm,
                   float eps, const proa_weight *w, const float *bias, const proa_router *r, proa_view out,
                   const proa_experts *of)
{
    proa_experts on_device = of ? *of : (proa_experts){.up = NULL};
    proa_weight packed = *w, up = {.data = NULL}, down = {.data = NULL};
    proa_epilogue e = {.bias = bias};
    cover_view(weights), cover(ids, y.shape[0] * r->chosen * 4), cover_view(y), cover_narrow(n, true);
    cover_view(x), cover_view(norm), cover(w->data, w->bytes), cover(bias, w->N * 4);
    if (of) {
        up = *of->up, down = *of->down;
        cover_view(out), cover(up.data, up.experts * up.stride), cover(down.data, down.experts * down.stride);
    }
    upload_covered();
    packed.data = device_ptr(w->data), e.bias = device_ptr(bias);
    device->ops->rms_norm(ctx(), device_view(n), device_view(x), device_view(norm), eps);
    device->ops->linear(ctx(), device_view(y), device_view(n), &packed, &e);
    device->ops->route(ctx(), device_view(weights), device_ptr(ids), device_view(y), r);
    if (of) {
        up.data = device_ptr(up.data), down.data = device_ptr(down.data);
        on_device.up = &up, on_device.down = &down;
        device->ops->experts(ctx(), device_view(out), device_view(n), device_view(weights), device_ptr(ids),
                             &on_device);
    }
    download_covered();
}

static void experts(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                    const proa_experts *e)
{
    PROA_UNUSED(c);
    proa_experts on_device = *e;
    proa_weight up = *e->up, down = *e->down;
    bool own = (up.format == PROA_WFMT_F16 && device_mode.narrow == PROA_DTYPE_F16) ||
               (up.format == PROA_WFMT_BF16 && device_mode.narrow == PROA_DTYPE_BF16) ||
               (proa_wfmt_is_quantised(up.format) && device_mode.narrow == PROA_DTYPE_F16);
    int64_t which = (y.shape[0] + up.N) % 3; /* both, or either */
    cover_narrow(y, own && which != 2), cover_narrow(x, own && which != 1),
        cover_narrow(e->residual, own && which != 2);
    cover_view(weights), cover(ids, y.shape[0] * weights.shape[1] * 4);
    cover(up.data, up.experts * up.stride), cover(down.data, down.experts * down.stride);
    cover(e->up_bias, up.experts * up.N * 4), cover(e->down_bias, down.experts * down.N * 4);
    cover(e->bias, down.N * 4);
    upload_covered();
    up.data = device_ptr(up.data), down.data = device_ptr(down.data);
    on_device.up = &up, on_device.down = &down, on_device.residual = device_view(e->residual);
    on_device.up_bias = device_ptr(e->up_bias), on_device.down_bias = device_ptr(e->down_bias);
    on_device.bias = device_ptr(e->bias);
    device->ops->experts(ctx(), device_view(y), device_view(x), device_view(weights), device_ptr(ids),
                         &on_device);
    download_covered();
}

static void heads_linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, int64_t kept)
{
    PROA_UNUSED(c);
    proa_weight weight = *w;
    bool own = (w->format == PROA_WFMT_F16 && device_mode.narrow == PROA_DTYPE_F16) ||
               (w->format == PROA_WFMT_BF16 && device_mode.narrow == PROA_DTYPE_BF16) ||
               (proa_wfmt_is_quantised(w->format) && device_mode.narrow == PROA_DTYPE_F16);
    cover_narrow(y, own && y.shape[0] % 3 != 0), cover_narrow(x, own && y.shape[0] % 3 != 1);
    cover(w->data, w->experts * w->stride);
    upload_covered();
    weight.data = device_ptr(w->data);
    device->ops->heads_linear(ctx(), device_view(y), device_view(x), &weight, kept);
    download_covered();
}

static void sigmoid_mul(proa_ctx *c, proa_view x, proa_view gate)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover_narrow(gate, gate.shape[1] > 1);
    upload_covered();
    device->ops->sigmoid_mul(ctx(), device_view(x), device_view(gate));
    download_covered();
}

/* A weight on the device with the adapters of some segments behind it (lora_stack.h). What other slots
 * have there are NaN. */
static char *stack_on_device(const proa_weight *w, const proa_lora *l, const proa_lora_rows *rows,
                             const proa_lora_segment *segments)
{
    int64_t bytes = proa_lora_stack_of(l, w).end;
    char *image = proa_malloc((size_t)bytes);
    proa_weight weight = *w;
    char *on_device = device->alloc(device, bytes);
    PROA_ASSERT(on_device);
    memset(image, 0xff, (size_t)bytes);
    memcpy(image, w->data, (size_t)w->bytes);
    device->upload(device, on_device, image, bytes);
    weight.data = on_device;
    for (int64_t i = 0; i < rows->count; i++) {
        /* the adapter of an empty segment is that of slot 0 (run_segments) */
        int32_t slot = segments[i].rows ? rows->slot[rows->order[segments[i].first]] : 0;
        device->ops->lora_stack(ctx(), &weight, l, slot, segments[i].base);
    }
    free(image);
    return on_device;
}

/* Adapters are read only: they go over one by one, since their segments name the memory of each. linear_lora, with a
 * weight and an epilogue of the device; NULL: lora. y, x and what else the op has are covered. */
static void run_adapters(proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows,
                         const proa_weight *w, const proa_epilogue *e)
{
    proa_lora_segment *segments = proa_malloc((size_t)(rows->count + 1) * sizeof *segments);
    proa_lora_rows here = *rows;
    char *stack = NULL;
    proa_weight weight = {0};
    proa_epilogue epilogue = {0};
    int64_t bytes = l->b, order = 0;
    for (int32_t p = 0; p < l->pieces; p++)
        bytes += proa_lora_panels(l, p) * l->rank * PROA_LORA_PANEL * proa_dtype_bytes(l->dtype);
    for (int64_t i = 0; i < rows->count; i++) {
        cover(rows->segment[i].base, bytes);
        order = proa_max64(order, rows->segment[i].first + rows->segment[i].rows);
    }
    memcpy(segments, rows->segment, (size_t)rows->count * sizeof *segments);
    if (w) cover(rows->slot, y.shape[0] * 4);
    cover(rows->order, order * 4), cover(segments, rows->count * (int64_t)sizeof *segments);
    upload_covered();
    for (int64_t i = 0; i < rows->count; i++) segments[i].base = device_ptr(rows->segment[i].base);
    here.order = device_ptr(rows->order), here.segment = device_ptr(segments);
    device->upload(device, (void *)(uintptr_t)here.segment, segments, rows->count * (int64_t)sizeof *segments);
    if (w) {
        weight = *w, weight.data = device_ptr(w->data);
        here.slot = device_ptr(rows->slot);
        if (l->slots) weight.data = stack = stack_on_device(w, l, rows, segments);
        epilogue = *e, epilogue.bias = device_ptr(e->bias);
        epilogue.residual = device_view(e->residual), epilogue.workspace = device_view(e->workspace);
        device->ops->linear_lora(ctx(), device_view(y), device_view(x), &weight, &epilogue, l, &here);
        device->free(device, stack, 0);
    } else device->ops->lora(ctx(), device_view(y), device_view(x), l, &here);
    download_covered();
    free(segments);
}

static void lora(proa_ctx *c, proa_view y, proa_view x, const proa_lora *l, const proa_lora_rows *rows)
{
    PROA_UNUSED(c);
    cover_narrow(y, y.shape[0] % 3 != 2), cover_narrow(x, y.shape[0] % 3 != 1);
    run_adapters(y, x, l, rows, NULL, NULL);
}

/* sums: memory of a device, which lives as long as the program. */
static void linear_lora(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e,
                        const proa_lora *l, const proa_lora_rows *rows)
{
    static char *sums;
    enum { SUMS_BYTES = 4 << 20 };
    proa_lora own = *l;
    bool narrow = reads_narrow(w->format), y16 = narrow && w->N % 3 != 2;
    PROA_UNUSED(c);
    if (!proa_lora_stack_takes(w) || w->N % 7 == 0) own.slots = 0;
    if (!sums) sums = device->alloc(device, SUMS_BYTES);
    if (y.shape[0] * proa_lora_stack_of(&own, w).rows * 4 <= SUMS_BYTES && w->N % 5) own.sums = sums;
    cover_narrow(y, y16), cover_narrow(x, narrow), cover_narrow(e->residual, y16),
        cover_narrow(e->workspace, y16);
    cover(w->data, w->bytes), cover(e->bias, w->N * 4);
    run_adapters(y, x, &own, rows, w, e);
}

static void lora_stack(proa_ctx *c, const proa_weight *w, const proa_lora *l, int32_t slot, const char *base)
{
    proa_weight weight = *w;
    int64_t bytes = l->b;
    PROA_UNUSED(c);
    for (int32_t p = 0; p < l->pieces; p++)
        bytes += proa_lora_panels(l, p) * l->rank * PROA_LORA_PANEL * proa_dtype_bytes(l->dtype);
    cover(w->data, proa_lora_stack_of(l, w).end), cover(base, bytes);
    upload_covered();
    weight.data = device_ptr(w->data);
    device->ops->lora_stack(ctx(), &weight, l, slot, device_ptr(base));
    download_covered();
}

static void soft_cap(proa_ctx *c, proa_view x, float cap)
{
    PROA_UNUSED(c);
    cover_view(x);
    upload_covered();
    device->ops->soft_cap(ctx(), device_view(x), cap);
    download_covered();
}

static void clip(proa_ctx *c, proa_view x, float limit)
{
    PROA_UNUSED(c);
    cover_narrow(x, true);
    upload_covered();
    device->ops->clip(ctx(), device_view(x), limit);
    download_covered();
}

static void xielu(proa_ctx *c, proa_view x, proa_view a)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover_view(a);
    upload_covered();
    device->ops->xielu(ctx(), device_view(x), device_view(a));
    download_covered();
}

static void round_rows(proa_ctx *c, proa_view x, int32_t bits)
{
    PROA_UNUSED(c);
    cover_narrow(x, true);
    upload_covered();
    device->ops->round_rows(ctx(), device_view(x), bits);
    download_covered();
}

static void query_scale(proa_ctx *c, proa_view x, const int32_t *pos, const proa_query_scale *s)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover(pos, x.shape[0] * 4);
    upload_covered();
    device->ops->query_scale(ctx(), device_view(x), device_ptr(pos), s);
    download_covered();
}

static void scale(proa_ctx *c, proa_view y, proa_view x, float factor)
{
    PROA_UNUSED(c);
    cover_narrow(x, true), cover_narrow(y, y.data == x.data);
    upload_covered();
    device->ops->scale(ctx(), device_view(y), device_view(x), factor);
    download_covered();
}

static void add(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    PROA_UNUSED(c);
    cover_narrow(y, true), cover_narrow(a, true), cover_narrow(b, true);
    upload_covered();
    device->ops->add(ctx(), device_view(y), device_view(a), device_view(b));
    download_covered();
}

void hosted_add_first(proa_view y, proa_view x, proa_view more, proa_view w, float eps, proa_act act, bool wide)
{
    int64_t half = x.shape[1] / 2;
    cover_narrow(y, true), cover_narrow(x, !wide), cover_narrow(more, !wide);
    if (w.rank) cover_view(w);
    upload_covered();
    proa_view sums = device_view(x);
    device->ops->add(ctx(), sums, sums, device_view(more));
    if (w.rank) device->ops->rms_norm(ctx(), device_view(y), sums, device_view(w), eps);
    else
        device->ops->act_mul(ctx(), device_view(y), proa_view_cols(sums, 0, half),
                             proa_view_cols(sums, half, 2 * half), act);
    download_covered();
}

static void gather(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    PROA_UNUSED(c);
    cover_narrow(y, y.shape[0] % 2), cover_narrow(x, y.shape[0] % 3 != 0), cover(rows, y.shape[0] * 4);
    upload_covered();
    device->ops->gather(ctx(), device_view(y), device_view(x), device_ptr(rows));
    download_covered();
}

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    PROA_UNUSED(c);
    cover(out, x.shape[0] * 4), cover_view(x);
    upload_covered();
    device->ops->log_sum_exp(ctx(), device_ptr(out), device_view(x));
    download_covered();
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    PROA_UNUSED(c);
    cover_view(values), cover(ids, x.shape[0] * k * 4), cover_view(x);
    upload_covered();
    device->ops->top_k(ctx(), device_view(values), device_ptr(ids), device_view(x), k);
    download_covered();
}

static void sample(proa_ctx *c, int32_t *ids, float *sums, proa_view x, const proa_sample_params *how)
{
    int64_t T = x.shape[0], bytes = T * (int64_t)sizeof *how;
    proa_sample_params *there = proa_malloc((size_t)bytes + 1);
    const float *first = NULL, *end = NULL; /* of the rows `kept`, which lie in one array */
    PROA_UNUSED(c);
    for (int64_t t = 0; t < T && how; t++) {
        const float *kept = how[t].kept;
        if (!kept) continue;
        first = first && first < kept ? first : kept;
        end = end && end > kept + x.shape[1] ? end : kept + x.shape[1];
    }
    cover(ids, T * 4), cover(sums, T * 4), cover_view(x), cover(how, bytes), cover(first, 4 * (end - first));
    upload_covered();
    for (int64_t t = 0; t < T && how; t++) there[t] = how[t], there[t].kept = device_ptr(how[t].kept);
    if (how) device->upload(device, device_ptr(how), there, bytes);
    device->ops->decode->sample(ctx(), device_ptr(ids), device_ptr(sums), device_view(x), device_ptr(how));
    if (how) device->upload(device, device_ptr(how), how, bytes);
    download_covered();
    free(there);
}

static void process_logits(proa_ctx *c, proa_view x, const proa_logits_row *rows,
                           const proa_logits_entry *entries, const int32_t *last)
{
    int64_t T = x.shape[0], count = 0;
    PROA_UNUSED(c);
    for (int64_t t = 0; t < T; t++)
        count = proa_max64(count, rows[t].first + rows[t].bias_count + rows[t].seen_count + rows[t].mask_count);
    cover_view(x), cover(rows, T * (int64_t)sizeof *rows), cover(entries, count * (int64_t)sizeof *entries),
        cover(last, T * 4);
    upload_covered();
    device->ops->decode->process_logits(ctx(), device_view(x), device_ptr(rows), device_ptr(entries),
                                        device_ptr(last));
    download_covered();
}

static void mask_logits(proa_ctx *c, proa_view x, const uint32_t *masks, const int32_t *which)
{
    int64_t T = x.shape[0], count = 0;
    PROA_UNUSED(c);
    for (int64_t t = 0; t < T; t++) count = proa_max64(count, which[t] + 1);
    cover_view(x), cover(masks, count * ((x.shape[1] + 31) / 32) * 4), cover(which, T * 4);
    upload_covered();
    device->ops->decode->mask_logits(ctx(), device_view(x), device_ptr(masks), device_ptr(which));
    download_covered();
}

static void gather_logprobs(proa_ctx *c, float *out, proa_view x, const int32_t *ids)
{
    PROA_UNUSED(c);
    cover(out, x.shape[0] * 4), cover_view(x), cover(ids, x.shape[0] * 4);
    upload_covered();
    device->ops->decode->gather_logprobs(ctx(), device_ptr(out), device_view(x), device_ptr(ids));
    download_covered();
}

static void log_probs(proa_ctx *c, proa_view y, proa_view x, const float *sums)
{
    PROA_UNUSED(c);
    cover_view(y), cover_view(x), cover(sums, x.shape[0] * 4);
    upload_covered();
    device->ops->decode->log_probs(ctx(), device_view(y), device_view(x), device_ptr(sums));
    download_covered();
}

static void gather_token_ids(proa_ctx *c, int32_t *ids, const int32_t *from, const int32_t *rows, int64_t count)
{
    int32_t most = 0;
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++) most = rows[i] >= most ? rows[i] + 1 : most;
    cover(ids, count * 4), cover(from, most * 4L), cover(rows, count * 4);
    upload_covered();
    device->ops->decode->gather_token_ids(ctx(), device_ptr(ids), device_ptr(from), device_ptr(rows), count);
    download_covered();
}

/* Wherever one of them reads or writes: rows, candidates, scores, tokens. */
static void beam_step(proa_ctx *c, const proa_beam_params *s, int64_t count, const proa_beam_lists *l)
{
    int64_t rows = 0, entries = 0, scores = 0, tokens = 0;
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++) {
        rows = proa_max64(rows, s[i].row + s[i].rows);
        entries = proa_max64(entries, s[i].at + s[i].rows * s[i].each);
        scores = proa_max64(scores, s[i].state + s[i].beams);
        tokens = proa_max64(tokens, s[i].to + s[i].beams);
    }
    cover(s, count * (int64_t)sizeof *s), cover(l->ids, entries * 4), cover(l->logits, entries * 4);
    cover(l->sums, rows * 4), cover(l->scores, scores * 4), cover(l->tokens, tokens * 4),
        cover(l->parents, tokens * 4), cover(l->hyps, scores * (int64_t)sizeof *l->hyps);
    upload_covered();
    proa_beam_lists lists = {.ids = device_ptr(l->ids),
                             .logits = device_ptr(l->logits),
                             .sums = device_ptr(l->sums),
                             .scores = device_ptr(l->scores),
                             .hyps = device_ptr(l->hyps),
                             .tokens = device_ptr(l->tokens),
                             .parents = device_ptr(l->parents)};
    device->ops->decode->beam_step(ctx(), device_ptr(s), count, &lists);
    download_covered();
}

/* All of kv lies in one piece, of as many bytes a half layer as there are from its keys to its values. */
static void reorder_kv(proa_ctx *c, int32_t *pages, const proa_kv_reorder *b, int64_t count, int32_t most,
                       const int32_t *parents, const proa_kv *kv, int64_t layers)
{
    int64_t entries = 0, beams = 0, half = (char *)kv->v - (char *)kv->k;
    proa_kv device_kv[8];
    PROA_UNUSED(c);
    PROA_ASSERT(layers <= (int64_t)PROA_COUNT(device_kv));
    for (int64_t i = 0; i < count; i++) {
        int64_t size = (int64_t)b[i].beams * (b[i].tokens / PROA_PAGE_TOKENS + 1);
        entries = proa_max64(entries, proa_max64(b[i].source, b[i].table) + size);
        beams = proa_max64(beams, b[i].from + b[i].beams);
    }
    cover(pages, entries * 4), cover(b, count * (int64_t)sizeof *b), cover(parents, beams * 4);
    cover(kv->k, 2 * layers * half);
    upload_covered();
    for (int64_t i = 0; i < layers; i++)
        device_kv[i] = kv[i], device_kv[i].k = device_ptr(kv[i].k), device_kv[i].v = device_ptr(kv[i].v);
    device->ops->decode->reorder_kv(ctx(), device_ptr(pages), device_ptr(b), count, most, device_ptr(parents),
                                    device_kv, layers);
    download_covered();
}

const proa_ops *hosted_table(const char *name, proa_err *err)
{
    static proa_ops table;
    static proa_decode_ops decode;
    if (proa_device_open(&device, name, err) != PROA_OK) return NULL;
    table = (proa_ops){.name = device->ops->name,
                       .layout = device->ops->layout,
                       .pack_bytes = device->ops->pack_bytes,
                       .decode = &decode};
#define PROA_OP(name, args) table.name = name;
#include "kernels/ops.def"
#undef PROA_OP
#define PROA_OP(name, args) decode.name = name;
#include "kernels/decode.def"
#undef PROA_OP
    return &table;
}

void hosted_close(void)
{
    proa_device_close(device);
    device = NULL;
}
