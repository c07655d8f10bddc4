/* SPDX-License-Identifier: Apache-2.0
 * pages.h - the pool of pages that hold keys and values, and the page tables of sequences.
 * Owner:   one pool per engine, made when the model is opened; a table belongs to its sequence.
 * Threads: the stepping thread only.
 * Way in:  proa_pages_init; for a sequence proa_table_grow, proa_table_share, proa_table_own. */
#ifndef PROA_ENGINE_PAGES_H
#define PROA_ENGINE_PAGES_H

#include "base/limits.h"
#include "kernels/device.h"

/* A page holds the keys and values of PROA_PAGE_TOKENS tokens in every layer: page number i means the i-th block of
 * each layer's K and of each layer's V. Memory, in order of layers: K [count][Hk][64][dh], then V the same.
 * A page with n references is in n tables; with none it is free. What a free page holds is kept until it is written
 * again, and a page that was taken holds whatever was there: readers look no further than their context. */
typedef struct proa_pages {
    int64_t count; /* pages in all; 0 is a pool for models without keys and values */
    int32_t layers;
    int64_t kv_heads, head_dim; /* Hk, dh */
    proa_dtype dtype;           /* f32, bf16 or f16 */
    /* counters, for statistics */
    int64_t free, used, used_peak;
    int64_t copies; /* private pages that proa_table_own made since the start */
    /* private */
    proa_device *device;
    char *memory;
    int64_t bytes, block_bytes; /* of all; of one page's K (or V) in one layer */
    int32_t *refs;              /* [count] */
    int32_t *stack;             /* [free] free pages; the last is taken first */
} proa_pages;

/* Memory of such a pool in bytes, its bookkeeping (8 bytes a page) included: what proa_pages_init takes. -1 if the
 * number does not fit, an argument is negative, or the dtype is not one of keys and values. */
int64_t proa_pages_bytes(int64_t count, int32_t layers, int64_t kv_heads, int64_t head_dim, proa_dtype dtype);
/* INVALID for shapes and dtypes outside of limits.h; NO_MEMORY, with the sum, if the kernel refuses or less is
 * available on the device, which is the caller's. On failure p is zero and needs no release. The memory is zeroed, and becomes
 * resident page by page as tokens are written. */
PROA_MUST_CHECK proa_status proa_pages_init(proa_pages *p, proa_device *device, int64_t count, int32_t layers,
                                            int64_t kv_heads, int64_t head_dim, proa_dtype dtype, proa_err *err);
void proa_pages_release(proa_pages *p); /* tables that still refer to it are forgotten; a zero pool is fine */

/* What the kernels of a layer (0..layers) read and write. */
proa_kv proa_pages_layer(const proa_pages *p, int32_t layer);
/* Pages that hold so many tokens. */
int64_t proa_pages_for(int64_t tokens);

/* A sequence's pages: token t lies in page[t / 64]. page[] is the caller's memory of fixed size cap; nothing here
 * allocates. Zero count is an empty table. */
typedef struct proa_table {
    int32_t *page;
    int32_t count, cap;
} proa_table;

/* Takes pages until `tokens` fit (never gives any back). False, and nothing was taken, if the pool is dry or cap too
 * small. */
PROA_MUST_CHECK bool proa_table_grow(proa_pages *p, proa_table *table, int64_t tokens);
/* Drops the references; count = 0. */
void proa_table_release(proa_pages *p, proa_table *table);
/* dst, which is empty and has room, comes to refer to the pages of src that hold its first `tokens` tokens (src has
 * at least these). Neither may write to a page before it owns it. */
void proa_table_share(proa_pages *p, proa_table *dst, const proa_table *src, int64_t tokens);
/* Tables of the sequences of one search, of `tokens` tokens each, which now go on from parent[i] (count at most
 * PROA_SEARCH_BEAMS_MAX). Full pages are shared; each has a page of its own that the next token is written to (or has none yet,
 * where the last page is full) and has one afterwards (branch.h): none is taken. copied: what was to be copied, the device
 * has. spare [count], empty and with room; what it refers to is the tables' memory of before. */
void proa_tables_follow(proa_pages *p, proa_table *tables, proa_table *spare, const int32_t *parent,
                        int32_t count, int64_t tokens, bool copied);
/* Before tokens from_token.. are written: each page from that of from_token on that others refer to as well is
 * replaced by a private one. Tokens before from_token are copied along, in all layers; from_token and what follows
 * is about to be written and is not copied. False, and nothing was changed, if the pool is dry. A from_token
 * beyond the table's pages has nothing to do. */
PROA_MUST_CHECK bool proa_table_own(proa_pages *p, proa_table *table, int64_t from_token);
/* Pages that proa_table_own(from_token) and then proa_table_grow(tokens) would take: both succeed if p->free is not
 * less and cap suffices. The sum over several tables that share a page may be one too high for each such page (the
 * last of them finds itself the only owner), never too low. */
int64_t proa_table_need(const proa_pages *p, const proa_table *table, int64_t from_token, int64_t tokens);

#endif
