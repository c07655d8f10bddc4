/* SPDX-License-Identifier: Apache-2.0
 * attend_plan.h - attention cut into work, the same way for every instruction set; attend_page.h does the arithmetic.
 * Terms:   a query is one (row, head). Neighbouring spans that share pages (beams, forks, a common prefix) are a group.
 *          A block is up to PROA_ATTEND_QUERIES queries of one KV head and of one span, or of whole spans of a group;
 *          those that have the same page read it once. A chunk is PROA_ATTEND_CHUNK pages of the context.
 * Threads: blocks are spread over the pool by their cost; where blocks are too few or too uneven, (block, chunk)s are.
 * Bits:    each query has its own softmax per chunk, page by page in rising order, over just the keys that it sees,
 *          and its chunks are merged in rising order, those of side keys (proa_side_keys) behind the others. So neither
 *          blocks, threads nor skipped pages change a bit. */
#ifndef PROA_KERNELS_CPU_ATTEND_PLAN_H
#define PROA_KERNELS_CPU_ATTEND_PLAN_H

#include "kernels/ops.h"

#define PROA_ATTEND_QUERIES 32 /* of one block: keys come from the first cache for 31 of 32 */
#define PROA_ATTEND_ROWS                                                                                     \
    16 /* and of one with several rows of a span: more of them would see fewer of their keys in common */
#define PROA_ATTEND_FLOATS                                                                                   \
    4096 /* queries * padded head_dim of one block: 16 KB of a worker's stack, thrice */
#define PROA_ATTEND_CHUNK                                                                                    \
    16 /* pages: 1,024 keys, some 10 us of work; a part costs a merge of head_dim floats */
#define PROA_ATTEND_REACH                                                                                    \
    1024 /* relative distances up to here come from a table (T5 and its heirs use 128) */

/* Softmax in progress: m = largest score, l = sum of exp(s - m), acc = sum of exp(s - m) v. */
typedef struct proa_attend_state {
    float m[PROA_ATTEND_QUERIES], l[PROA_ATTEND_QUERIES];
    PROA_ALIGNED(64) float acc[PROA_ATTEND_FLOATS]; /* [n][pitch] of the block */
} proa_attend_state;

/* The bias of one head by distance k_pos - q_pos, over the distances that a block needs: of relative positions. */
typedef struct proa_attend_bias {
    int32_t reach; /* distances beyond +-reach have the bias of +-reach */
    bool by_table; /* false: the model's rel_distance is beyond PROA_ATTEND_REACH, or it has none */
    float at[2 * PROA_ATTEND_REACH + 2 * PROA_PAGE_TOKENS]; /* of distance i - reach - PROA_PAGE_TOKENS */
} proa_attend_bias;

typedef struct proa_attend_block {
    int n;         /* queries, at least 1 */
    int64_t pitch; /* head_dim rounded up to 16 */
    const proa_kv *kv;
    int64_t kv_head;
    const proa_attention *a;
    int64_t head;  /* of all queries if scores differ by head (biases, relative positions) */
    int64_t heads; /* H */
    const float *q[PROA_ATTEND_QUERIES];
    float *y[PROA_ATTEND_QUERIES];
    const int32_t *pages[PROA_ATTEND_QUERIES]; /* of the query's span */
    int64_t query_head[PROA_ATTEND_QUERIES];
    int64_t row[PROA_ATTEND_QUERIES]; /* its span's first row: there are its keys where there are no pages */
    /* Query i is at position at[i] and sees the keys [begin[i], end[i]); none if they are equal. */
    int64_t at[PROA_ATTEND_QUERIES], begin[PROA_ATTEND_QUERIES], end[PROA_ATTEND_QUERIES];
    bool sees[PROA_ATTEND_QUERIES]; /* any key, side keys included */
    /* Rows of draft trees: from position tree[i] on, query i sees the keys that its mask names (proa_tree_slot). For
     * other rows seen[i] is 0. */
    int64_t tree[PROA_ATTEND_QUERIES];
    uint64_t seen[PROA_ATTEND_QUERIES];
    int64_t first, last;    /* smallest begin, largest end, of the queries that see keys; else equal */
    proa_attend_bias *bias; /* NULL: none */
    PROA_ALIGNED(64) float query[PROA_ATTEND_FLOATS]; /* the queries, [n][pitch], padded with zeros */
    /* With relative positions: `query` has the content bias added, `placed` the position bias. */
    PROA_ALIGNED(64) float placed[PROA_ATTEND_FLOATS];
    float segment[PROA_ATTEND_QUERIES]; /* what a key of another segment adds to the product */
} proa_attend_block;

/* What an instruction set brings. */
typedef struct proa_attend_isa {
    /* state = the softmax of every query over those of its keys that lie in pages [begin, end). */
    void (*chunk)(const proa_attend_block *b, int64_t begin, int64_t end, proa_attend_state *state);
    /* Query i of total takes in query i of part, which is later in the context. */
    void (*merge)(proa_attend_state *total, const proa_attend_state *part, int i, int64_t pitch);
    /* y of query i = acc / l */
    void (*finish)(float *y, const proa_attend_state *total, int i, int64_t pitch, int64_t head_dim);
} proa_attend_isa;

/* The op `attend` with the arithmetic of `isa`. Uses all of c->scratch; more scratch only improves the distribution
 * over workers. */
void proa_attend_run(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                     const proa_attention *a, const proa_attend_isa *isa);

/* Bias of the 64 keys from position `key` on for query i: points into the table, or into tmp. */
const float *proa_attend_bias_of(const proa_attend_block *b, int i, int64_t key, float tmp[PROA_PAGE_TOKENS]);

proa_attend_fn proa_attend_avx2, proa_attend_avx512;

#endif
