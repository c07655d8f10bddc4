/* SPDX-License-Identifier: Apache-2.0
 * pages.c - the pool of KV pages and its page tables: reference counts, sharing, copy on write, reordering for
 * beams. */
#include "kv/pages.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/reorder_kv.h"

#include <stdlib.h>

/* Keys or values of one page in one layer: [Hk][64][dh]. -1 on overflow. */
static int64_t block_bytes_of(int64_t kv_heads, int64_t head_dim, proa_dtype dtype)
{
    int64_t bytes;
    if (!proa_mul(kv_heads, head_dim, &bytes) || !proa_mul(bytes, PROA_PAGE_TOKENS, &bytes) ||
        !proa_mul(bytes, proa_dtype_bytes(dtype), &bytes))
        return -1;
    return bytes;
}

static int64_t block_total(const proa_kv_pages *p)
{
    return 2 * p->layers * p->count * p->block_bytes;
}

static bool dtype_fits(proa_dtype dtype)
{
    return dtype == PROA_DTYPE_F32 || dtype == PROA_DTYPE_BF16 || dtype == PROA_DTYPE_F16 ||
           dtype == PROA_DTYPE_FP8;
}

int64_t proa_kv_shape_numbers(const proa_kv_shape *shape)
{
    return 2 * (shape->layers * shape->kv_heads * shape->head_dim +
                shape->other_layers * shape->other_kv_heads * shape->other_head_dim);
}

/* The layers of the other shape as a pool of their own. */
static proa_kv_shape other_shape(const proa_kv_shape *shape)
{
    return proa_kv_one_shape(shape->other_layers, shape->other_kv_heads, shape->other_head_dim, shape->dtype);
}

static int64_t bytes_of_one_shape(int64_t count, proa_kv_shape shape)
{
    if (!dtype_fits(shape.dtype) || count < 0 || shape.layers < 0) return -1;
    int64_t bytes = block_bytes_of(shape.kv_heads, shape.head_dim, shape.dtype);
    int64_t tables;
    if (!proa_mul(bytes, 2 * (int64_t)shape.layers, &bytes) || !proa_mul(bytes, count, &bytes) ||
        !proa_mul(count, 2 * (int64_t)sizeof(int32_t) + 1, &tables) || !proa_add(bytes, tables, &bytes))
        return -1;
    return bytes;
}

int64_t proa_kv_pages_bytes(int64_t count, proa_kv_shape shape)
{
    int64_t bytes = bytes_of_one_shape(count, shape), other = 0;
    if (shape.other_layers) other = bytes_of_one_shape(count, other_shape(&shape));
    return bytes < 0 || other < 0 || !proa_add(bytes, other, &bytes) ? -1 : bytes;
}

static proa_status check_range(const char *what, int64_t value, int64_t min, int64_t max, proa_err *err)
{
    if (value >= min && value <= max) return PROA_OK;
    return PROA_FAIL(err, INVALID, "keys and values: %s is %lld, must lie in %lld..%lld", what,
                     (long long)value, (long long)min, (long long)max);
}

static proa_status check_shape(const proa_kv_pages *p, proa_err *err)
{
    int64_t least = p->count && p->layers ? 1 : 0; /* an empty pool may have any shape, and so may one of no layers */
    PROA_TRY(check_range("number of pages", p->count, 0, INT32_MAX, err));
    PROA_TRY(check_range("number of layers", p->layers, 0, PROA_LAYERS_MAX, err));
    PROA_TRY(check_range("number of heads", p->kv_heads, least, PROA_HEADS_MAX, err));
    PROA_TRY(check_range("head size", p->head_dim, least, PROA_HEAD_DIM_MAX, err));
    if (!dtype_fits(p->dtype))
        return PROA_FAIL(err, INVALID, "keys and values: dtype %s, must be f32, bf16 or f16",
                         (unsigned)p->dtype < PROA_DTYPE_COUNT ? proa_dtype_name(p->dtype) : "unknown");
    return PROA_OK;
}

/* Pages of all layers on the device, if there are any; reference counts and the stack of free pages on the host. */
static proa_status allocate_pool(proa_kv_pages *p, proa_err *err)
{
    p->bytes = bytes_of_one_shape(p->count, proa_kv_one_shape(p->layers, p->kv_heads, p->head_dim, p->dtype));
    int64_t available = p->device->available(p->device);
    p->block_bytes = block_bytes_of(p->kv_heads, p->head_dim, p->dtype);
    bool fits = p->bytes >= 0 && p->bytes <= available;
    if (fits && p->layers) p->memory = p->device->alloc(p->device, block_total(p));
    if (!fits || (p->layers && !p->memory))
        return PROA_FAIL(err, NO_MEMORY,
                         "keys and values: %lld pages of %d tokens need %lld bytes, %lld are available",
                         (long long)p->count, PROA_PAGE_TOKENS, (long long)p->bytes, (long long)available);
    p->refs = proa_calloc(2 * (size_t)p->count, sizeof *p->refs);
    p->stack = p->refs + p->count;
    p->held = proa_calloc((size_t)p->count, sizeof *p->held);
    return PROA_OK;
}

static proa_status init_one_shape(proa_kv_pages *p, proa_device *device, int64_t count, proa_kv_shape shape,
                                  proa_err *err)
{
    *p = (proa_kv_pages){.device = device,
                         .count = count,
                         .layers = shape.layers,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .dtype = shape.dtype};
    proa_status status = PROA_OK;
    PROA_TRY_OUT(check_shape(p, err));
    if (count == 0) return PROA_OK;
    PROA_TRY_OUT(allocate_pool(p, err));
    /* Low pages are taken first, so that the upper end of a pool that is never full never becomes resident. */
    for (int64_t i = 0; i < count; i++) p->stack[i] = (int32_t)(count - 1 - i);
    p->free = count;
    return PROA_OK;
out:
    *p = (proa_kv_pages){0};
    return status;
}

proa_status proa_kv_pages_init(proa_kv_pages *p, proa_device *device, int64_t count, proa_kv_shape shape,
                               proa_err *err)
{
    PROA_TRY(init_one_shape(p, device, count, shape, err));
    if (!shape.other_layers) return PROA_OK;
    proa_kv_pages *other = proa_calloc(1, sizeof *other);
    p->attached = p->other = other;
    proa_status status = init_one_shape(other, device, count, other_shape(&shape), err);
    if (status != PROA_OK) proa_kv_pages_release(p);
    return status;
}

proa_status proa_kv_pages_init_attached(proa_kv_pages *attached, proa_kv_pages *p, proa_device *device,
                                        proa_kv_shape shape, proa_err *err)
{
    PROA_TRY(proa_kv_pages_init(attached, device, p->count, shape, err));
    while (p->attached) p = p->attached;
    p->attached = attached;
    return PROA_OK;
}

void proa_kv_pages_detach(proa_kv_pages *p, const proa_kv_pages *attached)
{
    while (p && p->attached != attached) p = p->attached;
    if (p) p->attached = attached->other ? attached->other->attached : attached->attached;
}

void proa_kv_pages_release(proa_kv_pages *p)
{
    if (p->other) proa_kv_pages_release(p->other);
    free(p->other);
    if (p->memory) p->device->free(p->device, p->memory, block_total(p));
    free(p->refs);
    free(p->held);
    *p = (proa_kv_pages){0};
}

/* Keys (value 0) or values (1) of a layer, all pages. */
static char *layer_blocks(const proa_kv_pages *p, int32_t layer, int value)
{
    return p->memory + (2 * (int64_t)layer + value) * p->count * p->block_bytes;
}

proa_kv proa_kv_pages_layer(const proa_kv_pages *p, int32_t layer)
{
    if (layer >= p->layers && p->other) return proa_kv_pages_layer(p->other, layer - p->layers);
    PROA_ASSERT(layer >= 0 && layer < p->layers);
    proa_kv kv = {.dtype = p->dtype, .kv_heads = p->kv_heads, .head_dim = p->head_dim};
    if (p->memory) {
        kv.k = layer_blocks(p, layer, 0);
        kv.v = layer_blocks(p, layer, 1);
    }
    return kv;
}

int64_t proa_kv_pages_for(int64_t tokens)
{
    return tokens / PROA_PAGE_TOKENS + (tokens % PROA_PAGE_TOKENS != 0);
}

int64_t proa_kv_pages_available(const proa_kv_pages *p)
{
    return p->free + p->idle;
}

/* ---- references ---- */

void proa_kv_pages_set_keeper(proa_kv_pages *p, proa_kv_keeper keeper)
{
    p->keeper = keeper;
}

bool proa_kv_pages_is_idle(const proa_kv_pages *p, int32_t page)
{
    return p->held[page] && p->refs[page] == 1;
}

static void count_peak(proa_kv_pages *p)
{
    p->used_peak = proa_max64(p->used_peak, p->used - p->idle);
}

void proa_kv_pages_hold(proa_kv_pages *p, int32_t page)
{
    PROA_ASSERT(p->refs[page] > 0 && !p->held[page]);
    p->refs[page]++;
    p->held[page] = true;
}

void proa_kv_pages_unhold(proa_kv_pages *p, int32_t page)
{
    PROA_ASSERT(p->held[page]);
    if (p->refs[page] == 1) p->idle--;
    p->held[page] = false;
    proa_kv_pages_drop(p, page);
}

void proa_kv_pages_refer(proa_kv_pages *p, int32_t page)
{
    PROA_DASSERT(p->refs[page] > 0);
    bool idle = proa_kv_pages_is_idle(p, page);
    p->refs[page]++;
    if (!idle) return;
    p->idle--;
    count_peak(p);
    p->keeper.turns_idle(p->keeper.arg, page, false);
}

void proa_kv_pages_drop(proa_kv_pages *p, int32_t page)
{
    PROA_ASSERT(page >= 0 && page < p->count && p->refs[page] > 0);
    if (--p->refs[page] == 0) {
        p->stack[p->free++] = page;
        p->used--;
    } else if (proa_kv_pages_is_idle(p, page)) {
        p->idle++;
        p->keeper.turns_idle(p->keeper.arg, page, true);
    }
}

/* The caller has checked that a page is available. */
static int32_t take_page(proa_kv_pages *p)
{
    if (p->free == 0) p->keeper.evict(p->keeper.arg);
    PROA_ASSERT(p->free > 0);
    int32_t page = p->stack[--p->free];
    PROA_DASSERT(p->refs[page] == 0);
    p->refs[page] = 1;
    p->used++;
    count_peak(p);
    return page;
}

/* ---- page tables ---- */

bool proa_page_table_grow(proa_kv_pages *p, proa_page_table *table, int64_t tokens)
{
    int64_t count = proa_kv_pages_for(tokens);
    if (count > table->cap || count - table->count > proa_kv_pages_available(p)) return false;
    while (table->count < count) table->page[table->count++] = take_page(p);
    return true;
}

void proa_page_table_release(proa_kv_pages *p, proa_page_table *table)
{
    /* Last page first: the next table then gets them in the same order. */
    while (table->count > 0) proa_kv_pages_drop(p, table->page[--table->count]);
}

void proa_page_table_share(proa_kv_pages *p, proa_page_table *dst, const proa_page_table *src, int64_t tokens)
{
    int64_t count = proa_kv_pages_for(tokens);
    PROA_ASSERT(dst->count == 0 && count <= dst->cap && count <= src->count);
    for (int64_t i = 0; i < count; i++) {
        dst->page[i] = src->page[i];
        proa_kv_pages_refer(p, src->page[i]);
    }
    dst->count = (int32_t)count;
}

/* Bytes from the beginning of layer 0's K to a token of head 0. */
static int64_t token_offset(const proa_kv_pages *p, int32_t page, int64_t token)
{
    return page * p->block_bytes + p->block_bytes / p->kv_heads / PROA_PAGE_TOKENS * token;
}

void proa_kv_pages_set_copied(proa_kv_pages *p, proa_kv_copied *copied, void *arg)
{
    p->copied = copied, p->copied_arg = arg;
}

void proa_kv_pages_set_settle(proa_kv_pages *p, proa_kv_settle *settle, void *arg)
{
    p->settle = settle, p->settle_arg = arg;
}

void proa_kv_pages_settle(const proa_kv_pages *p)
{
    if (p->settle) p->settle(p->settle_arg);
}

/* Copies tokens in every layer, keys and values; those of one head are contiguous. The same for what other models and
 * ranks have in the page. */
void proa_kv_pages_copy(const proa_kv_pages *p, const proa_kv_copy *copy)
{
    const proa_kv_pages *first = p;
    if (copy->count <= 0) return;
    proa_kv_pages_settle(p);
    for (; p; p = p->attached) {
        if (!p->layers) continue;
        int64_t head = p->block_bytes / p->kv_heads;
        proa_blocks b = {.bytes = head / PROA_PAGE_TOKENS * copy->count,
                         .count = {2 * (int64_t)p->layers, p->kv_heads},
                         .stride = {p->count * p->block_bytes, head}};
        p->device->copy(p->device, p->memory + token_offset(p, copy->to_page, copy->to),
                        p->memory + token_offset(p, copy->from_page, copy->from), &b);
    }
    if (first->copied) first->copied(first->copied_arg, copy);
}

/* Copies the first `tokens` tokens of a page. */
static void copy_page(const proa_kv_pages *p, int32_t to, int32_t from, int64_t tokens)
{
    proa_kv_pages_copy(p, &(proa_kv_copy){.to_page = to, .from_page = from, .count = tokens});
}

/* The page that the next token will be written to, the only page that no other table may share; -1: not taken yet. */
static int32_t writable_page(const proa_page_table *table, int64_t full)
{
    return table->count > full ? table->page[full] : -1;
}

void proa_page_tables_reorder(proa_kv_pages *p, const proa_beam_tables *beams, const int32_t *parent, bool copied)
{
    proa_page_table *tables = beams->tables, *spare = beams->spare;
    int64_t full = beams->tokens / PROA_PAGE_TOKENS, used = beams->tokens % PROA_PAGE_TOKENS;
    int32_t take[PROA_DEVICE_BEAMS_MAX], count = beams->count;
    PROA_ASSERT(count <= PROA_DEVICE_BEAMS_MAX);
    proa_reorder_pages(take, parent, count);
    for (int32_t i = 0; i < count; i++) {
        int32_t from = used ? take[i] : i, page = writable_page(&tables[from], full);
        PROA_ASSERT(tables[i].count <= full + 1 && (page < 0 ? used == 0 : p->refs[page] == 1));
        proa_page_table_share(p, &spare[i], &tables[parent[i]], full * PROA_PAGE_TOKENS);
        if (page >= 0) spare[i].page[spare[i].count++] = page;
        if (!used || from == parent[i]) continue;
        if (!copied) copy_page(p, page, writable_page(&tables[parent[i]], full), used);
        p->copies++;
    }
    for (int32_t i = 0; i < count; i++) {
        if (tables[i].count > full) tables[i].count--; /* its writable page has moved to another beam */
        proa_page_table_release(p, &tables[i]);
        proa_page_table swap = tables[i];
        tables[i] = spare[i];
        spare[i] = swap;
    }
}

static int64_t shared_pages(const proa_kv_pages *p, const proa_page_table *table, int64_t from_token)
{
    int64_t shared = 0;
    for (int64_t i = from_token / PROA_PAGE_TOKENS; i < table->count; i++)
        shared += p->refs[table->page[i]] > 1;
    return shared;
}

bool proa_page_table_own(proa_kv_pages *p, proa_page_table *table, int64_t from_token)
{
    return proa_page_table_own_attached(p, table, from_token, from_token);
}

bool proa_page_table_own_attached(proa_kv_pages *p, proa_page_table *table, int64_t from_token, int64_t tokens)
{
    if (shared_pages(p, table, from_token) > proa_kv_pages_available(p)) return false;
    for (int64_t i = from_token / PROA_PAGE_TOKENS; i < table->count; i++) {
        int32_t old = table->page[i];
        int64_t used = proa_min64(tokens - i * PROA_PAGE_TOKENS, PROA_PAGE_TOKENS);
        if (p->refs[old] == 1) continue;
        table->page[i] = take_page(p);
        if (used > 0) copy_page(p, table->page[i], old, used);
        proa_kv_pages_drop(p, old);
        p->copies++;
    }
    return true;
}

/* One by one: in rising order no token is overwritten before it was copied. */
void proa_page_table_compact(proa_kv_pages *p, const proa_page_table *table, int64_t first,
                             const int32_t *rows, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        int64_t to = first + i, from = first + rows[i];
        PROA_ASSERT(rows[i] >= i && from < (int64_t)table->count * PROA_PAGE_TOKENS);
        if (from == to) continue;
        proa_kv_pages_copy(p, &(proa_kv_copy){.to_page = table->page[to / PROA_PAGE_TOKENS],
                                              .from_page = table->page[from / PROA_PAGE_TOKENS],
                                              .to = to % PROA_PAGE_TOKENS,
                                              .from = from % PROA_PAGE_TOKENS,
                                              .count = 1});
    }
}
