/* SPDX-License-Identifier: Apache-2.0
 * op_attention.h - the arguments of attention: KV pages, the ragged batch of a step, trees of draft tokens, the formula
 *          of scores, and rotary positions (ops `kv_append`, `rope_append`, `attend`, `rope_table`).
 * Shapes:  T rows of a step, H query heads, Hk heads of keys and values, dh numbers of a head.
 * Owner:   the structs own nothing. kv/pages.h owns pages, model/staging/staging.h the spans of a step.
 * Threads: plain values. Way in: ops.def, attend. */
#ifndef PROA_KERNELS_OP_ATTENTION_H
#define PROA_KERNELS_OP_ATTENTION_H

#include "base/compiler.h"
#include "base/limits.h"
#include "tensor/view.h"

/* ---- keys, values and rows ---- */

/* Keys and values of one layer in pages of PROA_PAGE_TOKENS tokens. k and v are [page][Hk][PROA_PAGE_TOKENS][dh], so
 * each head of a page is one contiguous block. Pages are f32, bf16 or f16; on a device also e4m3 (without a scale). The
 * rows that ops write there or read beside them are f32 or of the pages' type; beside e4m3 pages, f32 or 16 bits. */
typedef struct proa_kv {
    void *k, *v;
    proa_dtype dtype;
    int64_t kv_heads, head_dim; /* Hk, dh */
    /* Not 0: there are no pages (encoders). k and v are rows of the step itself, `row` elements apart, and each span
     * sees its own rows only (context == rows). Then q of `attend` has the same dtype: f32, on a device also 16 bits.
     * */
    int64_t row;
} proa_kv;

/* `count` consecutive tokens within one page that are copied to another page, in all layers. */
typedef struct proa_kv_copy {
    int32_t to_page, from_page;
    int64_t to, from, count; /* token offsets in the pages */
} proa_kv_copy;

/* The rows of a step that belong to one sequence, and where the keys of that sequence are. */
typedef struct proa_span {
    int32_t row, rows; /* rows [row, row + rows) of the step */
    int32_t context; /* keys of the sequence, including those of this step. If attention is causal, row i of the span
                        is at position context - rows + i (in a tree: proa_tree_position) */
    int32_t table; /* token p is in page proa_spans.pages[table + p / PROA_PAGE_TOKENS] */
    int32_t tree; /* nodes of the tree of draft tokens that ends the context, at most PROA_TREE_MAX; 0: none. If there
                        are more nodes than rows, earlier steps ran the first ones */
    int32_t state; /* the slot of the sequence's recurrent state (op_state.h) */
    int32_t globals; /* the first rows of the span that all of its rows see, if there are side keys (proa_side_keys) */
} proa_span;

/* The ragged batch of a step: one span for each sequence. */
typedef struct proa_spans {
    const proa_span *span; /* [count], in the order of their rows */
    int64_t count;
    const int32_t *pages;          /* page tables of all spans */
    const uint64_t *seen;          /* [T] masks of rows in trees (see below); NULL: there are no trees */
    int32_t rows_max, context_max; /* maxima over the spans; the host reads these where the spans are on a device */
    int32_t rows_min;              /* 0: unknown */
    int32_t long_count, long_rows; /* spans with more than one row, and the rows of these; 0: not counted */
} proa_spans;

/* ---- trees of draft tokens (SpecInfer, Miao et al. 2023; Medusa, Cai et al. 2024) ----
 * The nodes of a tree are the last `tree` keys of a span: node j has its key at position first + j, first =
 * context - tree. Ancestors come before their descendants. Bit j of the mask of a row says whether the row sees node j;
 * it sees its ancestors and itself, and all keys before `first`. For rotary and other positions a node counts as
 * first + its depth, so a row computes the same bits as if its ancestors alone had been run one after the other. Trees
 * need causal attention over pages. */

/* Position of the key of the tree's first node. */
static inline int64_t proa_tree_first(const proa_span *span)
{
    return (int64_t)span->context - span->tree;
}
/* The mask of row i of a span; 0: the row is not in a tree. */
static inline uint64_t proa_tree_seen(const proa_spans *spans, const proa_span *span, int64_t i)
{
    return i < span->rows - span->tree ? 0 : spans->seen[span->row + i];
}
/* The position of row i of a span. */
static inline int64_t proa_tree_position(const proa_spans *spans, const proa_span *span, int64_t i)
{
    uint64_t seen = proa_tree_seen(spans, span, i);
    if (!seen) return (int64_t)span->context - span->rows + i;
    return proa_tree_first(span) + PROA_POPCOUNT64(seen) - 1;
}
/* Where the pages hold the key that a row with this mask sees at position p. */
static inline int64_t proa_tree_slot(int64_t first, uint64_t seen, int64_t p)
{
    if (!seen || p < first) return p;
    for (int64_t skip = p - first; skip > 0; skip--) seen &= seen - 1;
    return first + PROA_LOWEST_BIT64(seen);
}

/* ---- sparse attention: the keys that rows have picked ---- */

/* Where gather_keys puts them: row i has the pages [i * each, (i + 1) * each) of kv, each = ceil(most /
 * PROA_PAGE_TOKENS), which pages names, and span[i]: row i, context = how many keys it picked. */
typedef struct proa_picked_keys {
    proa_kv kv;      /* of the type and shape of the pages that the keys come from */
    proa_span *span; /* [rows] */
    int32_t *pages;  /* [rows * each] */
    int64_t rows;
} proa_picked_keys;

/* Rows whose keys are gathered at once. */
#define PROA_PICKED_ROWS 32
/* Numbers of 4 bytes that a row takes: `numbers` for each key, a span, the pages. */
static inline int64_t proa_picked_numbers(int64_t most, int64_t numbers)
{
    int64_t pages = (most + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
    return pages * PROA_PAGE_TOKENS * numbers + pages + (int64_t)sizeof(proa_span) / 4;
}

/* The span of a row, spans being in the order of their rows; NULL: the row has none. */
static inline const proa_span *proa_spans_find(const proa_spans *spans, int64_t row)
{
    int64_t low = 0, high = spans->count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (spans->span[middle].row <= row) low = middle;
        else high = middle;
    }
    const proa_span *span = &spans->span[low];
    return spans->count && row >= span->row && row < span->row + span->rows ? span : NULL;
}

/* ---- scores ---- */

/* Relative positions that act on query and key (Transformer-XL, Dai et al. 2019; XLNet; DeBERTa, He et al. 2021). With
 * r = row[clamp(q_pos - k_pos, -reach, reach) + reach], the product q.k of a score becomes
 *   (q + u).k + (q + v).keys[r] + k.queries[r]
 * and a table or bias that is NULL leaves out its term. The caller projects the tables; head h uses the numbers
 * [h dh, (h + 1) dh) of their rows and of the biases. The keys must be rows of the step (proa_kv.row).
 * With segments, a key whose token type differs from the query's adds (q + w).(segments[1] - segments[0]). XLNet adds
 * (q + w).segments[0] for the other keys too; softmax does not change when all scores of a row lose the same number. */
typedef struct proa_relative {
    const int32_t *row; /* [2 * reach + 1] rows of the tables; neighbours differ by 0 or 1 and never fall */
    int32_t reach;
    int32_t rows;               /* of the tables */
    const float *keys;          /* [rows][H dh]: XLNet's r, DeBERTa's "c2p" */
    const float *queries;       /* [rows][H dh]: DeBERTa's "p2c" */
    int64_t stride;             /* numbers from one row of a table to the next */
    const float *content_bias;  /* u [H dh]: XLNet's r_w_bias */
    const float *position_bias; /* v [H dh]: XLNet's r_r_bias */
    const int32_t *types;       /* [T] token types; NULL: there is no term of segments */
    const float *segments;      /* [2][H dh]: XLNet's seg_embed */
    const float *segment_bias;  /* w [H dh]: XLNet's r_s_bias */
} proa_relative;

/* The row of the tables for distance = q_pos - k_pos. */
static inline int32_t proa_relative_row(const proa_relative *r, int64_t distance)
{
    return r->row[(distance < -r->reach ? -r->reach : distance > r->reach ? r->reach : distance) + r->reach];
}

/* Keys and values that a row sees beside those of its window. They are rows of the type of q (f32 in the host's
 * tables), `row` elements apart. There are two kinds:
 *   - block 0: the first `globals` rows of the span, whose keys are in k as those of all rows are. A window does not
 *     see them a second time (Longformer, Beltagy et al. 2020).
 *   - block > 0: rows / block keys for each span, which op block_sums has put from row span.row / block on. Row i of a
 *     span is in block i / block, at most the last, and rel_bias is added by the distance from its block to that of the
 *     key, in the buckets of the attention (LongT5, Guo et al. 2022). */
typedef struct proa_side_keys {
    void *k, *v;
    int64_t row;
    int32_t block;
    const float *rel_bias; /* [rel_buckets][H]; NULL: none */
} proa_side_keys;

/* Side keys of a span, and the row of the first one. */
PROA_HOST_DEVICE static inline int64_t proa_side_count(const proa_side_keys *s, const proa_span *span)
{
    return s->block > 0 ? span->rows / s->block : span->globals < span->rows ? span->globals : span->rows;
}
PROA_HOST_DEVICE static inline int64_t proa_side_first(const proa_side_keys *s, const proa_span *span)
{
    return s->block > 0 ? span->row / s->block : span->row;
}
/* The place of row i among them. */
PROA_HOST_DEVICE static inline int64_t proa_side_at(const proa_side_keys *s, const proa_span *span, int64_t i)
{
    if (s->block <= 0) return 0;
    int64_t last = span->rows / s->block - 1;
    return i / s->block < last ? i / s->block : last;
}
/* Keys at the beginning of the span that its window leaves to them. */
PROA_HOST_DEVICE static inline int64_t proa_side_skipped(const proa_side_keys *s, const proa_span *span)
{
    return s && s->block <= 0 ? proa_side_count(s, span) : 0;
}

/* How attention scores are computed, in this order: score = scale * q.k; soft cap; biases; mask. All zero but the scale
 * is plain bidirectional attention. */
typedef struct proa_attention {
    float scale;    /* must be set. T5: 1; others: 1 / sqrt(dh) */
    float soft_cap; /* > 0: score = soft_cap * tanh(score / soft_cap) (Gemma 2, Gemma Team 2024) */
    bool causal;    /* a row sees positions up to its own */
    /* > 0: a row sees only positions less than `window` away: if causal, the last `window` with its own (Mistral);
     * else as many on each side (ModernBERT) */
    int32_t window;
    bool chunked; /* causal: the window of a row begins at the last multiple of `window` at or before it (Llama 4) */
    /* T5 (Raffel et al. 2020): rel_bias[bucket(k_pos - q_pos)][h] is added, see proa_rel_bucket; NULL: none. Row i of a
     * span is at position context - rows + i. */
    const float *rel_bias; /* [rel_buckets][H] */
    int32_t rel_buckets, rel_distance;
    bool rel_bidirectional;
    /* ALiBi (Press et al. 2022): -alibi[h] * |k_pos - q_pos| is added, in attention to both sides, too; NULL: none.
     * BLOOM's alibi[h] * k_pos is equal in causal attention: it differs by a constant for each row, which softmax does
     * not see. */
    const float *alibi; /* [H] */
    /* Attention sinks (gpt-oss; Xiao et al. 2023): exp(sinks[h]) is added to the denominator of the softmax, like a key
     * with this score and no value; NULL: none. */
    const float *sinks;            /* [H] */
    const proa_relative *relative; /* more terms of q.k; NULL: none */
    /* Not causal, without alibi, relative and trees; each span's context are its rows. NULL: none. */
    const proa_side_keys *side;
    /* Only the first `globals` rows of each span are computed, the others of y are left alone. Not causal; the keys are
     * rows of the step. */
    bool of_globals;
} proa_attention;

/* The rows of a span that are computed. */
PROA_HOST_DEVICE static inline int64_t proa_attention_rows(const proa_attention *a, const proa_span *span)
{
    return a->of_globals && span->globals < span->rows ? span->globals : span->rows;
}

/* The bucket of T5's relative positions (Raffel et al. 2020): relative = k_pos - q_pos. Logarithms are f32, as in
 * transformers. distance > buckets / 2 (bidirectional: > buckets / 4). */
int32_t proa_rel_bucket(int32_t relative, int32_t buckets, int32_t distance, bool bidirectional);

/* The weights of head h of a norm per head, whose w is [dh] for all heads or [H,dh]; NULL: w is absent. */
static inline const float *proa_norm_weights(proa_view w, int64_t h)
{
    if (w.rank == 0) return NULL;
    return (const float *)w.data + (w.rank == 2 ? h * w.stride[0] : 0);
}

/* Queries that are scaled by their position, so that attention over long contexts stays sharp (Nakanishi 2025; Llama 4,
 * Ministral 3): the factor at position p is 1 + beta * log(1 + floor((p + offset) / length)). Smooth (Su 2021; Qwen 1):
 * it is max(1, beta * log(p + offset)). */
typedef struct proa_query_scale {
    float beta;
    int32_t length, offset; /* length >= 1; smooth: the factor is 1 where p + offset is at most that */
    bool smooth;
} proa_query_scale;

/* ---- rotary positions ---- */

/* Frequencies of rotary positions (Su et al. 2021), r rotated numbers of a head, and their extension beyond the length
 * of training. A row whose sequence has at most `border` positions uses inv_freq and scale. A longer one uses
 *   - with long_inv_freq: that and long_scale (LongRoPE, Ding et al. 2024);
 *   - else inv_freq[i] * g^(-2i / (r - 2)) and scale, g = ntk_factor * length / border - (ntk_factor - 1): the
 *     frequencies of the base theta * g^(r / (r - 2)) (dynamic NTK, as transformers' "dynamic"). r > 2. */
typedef struct proa_rope_freqs {
    const float *inv_freq;      /* [r/2] */
    const float *long_inv_freq; /* [r/2]; NULL: none */
    float scale, long_scale; /* multiply cosines and sines: 1, or the attention factor of YaRN and LongRoPE */
    float ntk_factor;
    int32_t border; /* 0: the length does not matter */
} proa_rope_freqs;

/* Frequency i of a row whose sequence has `length` positions. */
float proa_rope_freq(const proa_rope_freqs *f, int32_t length, int64_t i, int64_t r);
/* Whether a sequence of this length is beyond the border. */
static inline bool proa_rope_is_long(const proa_rope_freqs *f, int32_t length)
{
    return f->border > 0 && length > f->border;
}

#endif
