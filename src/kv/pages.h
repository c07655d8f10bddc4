/* SPDX-License-Identifier: Apache-2.0
 * pages.h - the pool of KV pages (keys and values of 64 tokens in all layers), and the page tables of sequences.
 * Owner:   one pool per engine, made when the model is opened; a table belongs to its sequence.
 * Threads: the stepping thread only.
 * Way in:  proa_kv_pages_init; for a sequence proa_page_table_grow, proa_page_table_share, proa_page_table_own. */
#ifndef PROA_KV_PAGES_H
#define PROA_KV_PAGES_H

#include "base/limits.h"
#include "kernels/device.h"

/* The owner of cached pages: the prefix tree, which keeps pages that no table refers to any more. A page is idle while
 * the keeper alone refers to it. The pool calls: */
typedef struct proa_kv_keeper {
    void (*turns_idle)(void *arg, int32_t page, bool idle); /* a kept page became idle, or is used again */
    void (*evict)(void *arg); /* must make one idle page free; called only while there is one */
    void *arg;
} proa_kv_keeper;

/* A page holds the keys and values of PROA_PAGE_TOKENS tokens in every layer: page i is the i-th block of each
 * layer's K and of each layer's V. Memory layout, layer by layer: K [count][Hk][64][dh], then V likewise. A page
 * with n references is in n tables (and the prefix tree); with none it is free. Pages are not cleared when they are
 * taken: attention reads no further than the context of its span. */
typedef struct proa_kv_pages proa_kv_pages;
typedef void proa_kv_copied(void *arg, const proa_kv_copy *copy);
typedef void proa_kv_settle(void *arg);
struct proa_kv_pages {
    int64_t count;  /* pages in all; 0 is a pool for models that need none */
    int32_t layers; /* 0: pages only count tokens (of a model without attention); not those of `other` */
    int64_t kv_heads, head_dim; /* Hk, dh */
    proa_dtype dtype;           /* f32, bf16 or f16 */
    /* counters, for statistics */
    int64_t free, used;
    int64_t idle; /* of the used ones: pages that the keeper alone refers to; they are evicted when pages are needed */
    int64_t used_peak; /* the most pages that were used and not idle at one time */
    int64_t copies;    /* pages copied on write since the start */
    /* private */
    proa_device *device;
    char *memory;
    int64_t bytes, block_bytes; /* of everything; of one page's K (or V) in one layer */
    int32_t *refs;              /* [count] */
    int32_t *stack;             /* [free] free pages; the last is taken first */
    bool *held;                 /* [count] the keeper refers to it */
    proa_kv_keeper keeper;      /* evict NULL: there is none */
    proa_kv_pages *attached; /* the next pool that shares the page numbers (a rank, a draft model); or NULL */
    proa_kv_pages *other; /* of these: the layers of the other shape, which this pool owns; NULL: all have one */
    proa_kv_copied *copied; /* called after tokens were copied; NULL: none */
    void *copied_arg;
    proa_kv_settle *settle; /* called before this thread reads or writes pages; NULL: no other thread uses them */
    void *settle_arg;
};

/* What a pool holds for each token: keys and values [layers][kv_heads][head_dim], and behind them those of layers whose
 * heads have another shape (Gemma 4), or the keys of an indexer (DeepSeek V3.2), those of two model layers in one,
 * [other_layers][other_kv_heads][other_head_dim]. */
typedef struct proa_kv_shape {
    int32_t layers;
    int64_t kv_heads, head_dim;
    proa_dtype dtype;
    int32_t other_layers; /* 0: all have one shape */
    int64_t other_kv_heads, other_head_dim;
} proa_kv_shape;
/* Of layers that all have one shape. */
static inline proa_kv_shape proa_kv_one_shape(int32_t layers, int64_t kv_heads, int64_t head_dim, proa_dtype dtype)
{
    return (proa_kv_shape){.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim, .dtype = dtype};
}
/* Numbers of a token's keys and values in all layers. */
int64_t proa_kv_shape_numbers(const proa_kv_shape *shape);

/* Memory of such a pool in bytes, its bookkeeping (9 bytes a page) included: what proa_kv_pages_init takes. -1 if the
 * number does not fit, a size is negative, or the dtype is not one of keys and values. */
int64_t proa_kv_pages_bytes(int64_t count, proa_kv_shape shape);
/* INVALID for shapes and dtypes outside of limits.h; NO_MEMORY, with the sum, if the device has less. The device
 * stays the caller's. On failure p is zero and needs no release. The memory is zeroed and becomes resident as
 * tokens are written. */
PROA_MUST_CHECK proa_status proa_kv_pages_init(proa_kv_pages *p, proa_device *device, int64_t count,
                                               proa_kv_shape shape, proa_err *err);
/* Makes a pool that shares the page numbers of p: for the keys and values that another model (a draft model) or another
 * rank has of the same tokens. Page i of `attached` is taken, shared and copied together with page i of p, so it has no
 * page tables of its own. attached must outlive p, and is released by itself. There may be several. Errors as above. */
PROA_MUST_CHECK proa_status proa_kv_pages_init_attached(proa_kv_pages *attached, proa_kv_pages *p,
                                                        proa_device *device, proa_kv_shape shape, proa_err *err);
/* Separates the pool from p again. */
void proa_kv_pages_detach(proa_kv_pages *p, const proa_kv_pages *attached);
void proa_kv_pages_release(proa_kv_pages *p); /* page tables into it become invalid; a zero pool is fine */

/* For ranks in other processes, whose pools share the page numbers: `copied` is called with each copy of tokens, so
 * that the other rank can make the same copy with proa_kv_pages_copy. */
void proa_kv_pages_set_copied(proa_kv_pages *p, proa_kv_copied *copied, void *arg);
void proa_kv_pages_copy(const proa_kv_pages *p, const proa_kv_copy *copy);
/* For ranks that are threads and may still run a pass: `settle` must wait until none does. */
void proa_kv_pages_set_settle(proa_kv_pages *p, proa_kv_settle *settle, void *arg);
void proa_kv_pages_settle(const proa_kv_pages *p);

/* The pages of one layer, as kernels take them: 0 to layers, then those of the other shape. */
proa_kv proa_kv_pages_layer(const proa_kv_pages *p, int32_t layer);
/* Pages that hold that many tokens. */
int64_t proa_kv_pages_for(int64_t tokens);
/* Pages that can be taken: the free ones and the idle ones. */
int64_t proa_kv_pages_available(const proa_kv_pages *p);

/* For the keeper, and for code that adds cached pages to a table. hold, unhold: add or drop the keeper's reference to a
 * page. refer, drop: add or drop a reference of a table. */
void proa_kv_pages_set_keeper(proa_kv_pages *p, proa_kv_keeper keeper);
void proa_kv_pages_hold(proa_kv_pages *p, int32_t page);
void proa_kv_pages_unhold(proa_kv_pages *p, int32_t page);
bool proa_kv_pages_is_idle(const proa_kv_pages *p, int32_t page);
void proa_kv_pages_refer(proa_kv_pages *p, int32_t page);
void proa_kv_pages_drop(proa_kv_pages *p, int32_t page);

/* The pages of a sequence: token t is in page[t / 64]. page[] is memory of the caller, of fixed size cap; no
 * function here allocates. */
typedef struct proa_page_table {
    int32_t *page;
    int32_t count, cap;
} proa_page_table;

/* Takes pages until the table holds `tokens` tokens; it never becomes shorter. Idle pages are evicted if too few are
 * free. False, and nothing is changed, if the pool has too few of both or cap is too small. */
PROA_MUST_CHECK bool proa_page_table_grow(proa_kv_pages *p, proa_page_table *table, int64_t tokens);
/* Drops the references; count = 0. */
void proa_page_table_release(proa_kv_pages *p, proa_page_table *table);
/* dst, which is empty and large enough, refers to the pages that hold the first `tokens` tokens of src. Before
 * either writes to a shared page it must call proa_page_table_own. */
void proa_page_table_share(proa_kv_pages *p, proa_page_table *dst, const proa_page_table *src, int64_t tokens);
/* The page tables of a beam search. */
typedef struct proa_beam_tables {
    proa_page_table *tables; /* [count], at most PROA_DEVICE_BEAMS_MAX; each has `tokens` tokens */
    proa_page_table *spare; /* [count]: empty and large enough; their memory is swapped with that of `tables` */
    int32_t count;
    int64_t tokens;
} proa_beam_tables;
/* Reorders them: table i becomes that of its parent[i]. Full pages are shared. The page that the next token is written
 * to is never shared: the first child keeps its parent's, other children take one of a beam without children and copy
 * into it (kernels/reorder_kv.h). So no page is taken from the pool. copied: the device has made these copies
 * already. */
void proa_page_tables_reorder(proa_kv_pages *p, const proa_beam_tables *beams, const int32_t *parent,
                              bool copied);
/* Copy on write, before tokens from_token, from_token + 1, ... are written: each shared page from that of
 * from_token on is replaced by a private one. The first gets a copy of the tokens before from_token, in all layers;
 * everything else will be overwritten. False, and nothing is changed, if too few pages are available. */
PROA_MUST_CHECK bool proa_page_table_own(proa_kv_pages *p, proa_page_table *table, int64_t from_token);
/* The same for pools that share page numbers (`attached`) with models that have run different numbers of tokens:
 * from_token is the first token that any of them will write, and the tokens before `tokens` are copied. */
PROA_MUST_CHECK bool proa_page_table_own_attached(proa_kv_pages *p, proa_page_table *table,
                                                  int64_t from_token, int64_t tokens);
/* Makes the accepted path of a tree of draft tokens contiguous: copies the keys and values of token first + rows[i] to
 * token first + i, in all layers. rows [count] is rising; the pages must be the sequence's own (proa_page_table_own).
 * */
void proa_page_table_compact(proa_kv_pages *p, const proa_page_table *table, int64_t first,
                             const int32_t *rows, int32_t count);
#endif
