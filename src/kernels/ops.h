/* SPDX-License-Identifier: Apache-2.0
 * ops.h - the tables of kernels: types of the arguments of ops.def and decode.def, and how a table is chosen.
 * Owner:   tables are static; a proa_ctx belongs to its caller.
 * Threads: one op at a time on one proa_ctx; an op runs on the threads of the context's pool.
 * Way in:  proa_ctx_init, then c->ops->linear(c, ...). */
#ifndef PROA_KERNELS_OPS_H
#define PROA_KERNELS_OPS_H

#include "base/cpu.h"
#include "base/limits.h"
#include "base/status.h"
#include "base/thread.h"
#include "kernels/weight.h"

/* enum, name in config.json files (there may be several, see proa_act_find), formula */
#define PROA_ACT_LIST(X)                                                                                     \
    X(NONE, "none")                                                                                          \
    X(RELU, "relu")                                                                                          \
    X(GELU, "gelu")             /* 0.5 x (1 + erf(x / sqrt 2)) */                                            \
    X(GELU_TANH, "gelu_new")    /* 0.5 x (1 + tanh(0.7978845608 (x + 0.044715 x^3))) */                      \
    X(QUICK_GELU, "quick_gelu") /* x sigmoid(1.702 x) */                                                     \
    X(SILU, "silu")             /* x sigmoid(x) */                                                           \
    X(TANH, "tanh")                                                                                          \
    X(RELU2, "relu2") /* max(x, 0)^2 */

typedef enum proa_act {
#define PROA_ACT_ENUM(name, text) PROA_ACT_##name,
    PROA_ACT_LIST(PROA_ACT_ENUM)
#undef PROA_ACT_ENUM
        PROA_ACT_COUNT
} proa_act;

const char *proa_act_name(proa_act act);
/* transformers' names: relu, relu2, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, silu, swish, tanh,
 * linear. */
bool proa_act_find(proa_str name, proa_act *act);

/* What linear does after the product; zero: nothing. */
typedef struct proa_epilogue {
    float alpha; /* 0 means 1 */
    proa_act act;
    const float *bias;  /* [N] or NULL */
    proa_view residual; /* [T,N] or rank 0; may be y */
    /* W is [2F,K], the gate's F rows and the F rows of up: with v = alpha x W^T + bias [T,2F],
     * y[t,f] = act(v[t,f]) * v[t,F+f], [T,F]. There is no residual then. */
    bool gated;
    proa_view workspace; /* gated: [T,2F] of the type of y, overlapping no other operand; its contents are undefined
                            afterwards */
    /* The next operation is a linear whose x is y, and nothing else reads y: a device may keep y in the type in which
     * that product reads it. */
    bool feeds_product;
} proa_epilogue;

/* How the experts of a row are chosen from its scores, and with which weights. Zero is softmax over all scores, whose
 * largest are taken as they are. */
typedef enum proa_router_kind {
    PROA_ROUTER_SOFTMAX, /* p = softmax(scores) (Shazeer et al. 2017) */
    PROA_ROUTER_SIGMOID, /* p = sigmoid(scores) (DeepSeek-V3, 2024) */
    /* PhiMoE (Liu, Gao, Chen 2023): k rounds. In each the largest score m of those experts that are left wins; its
     * weight is its softmax among those left whose score s is near to it: (m - s) / max(|s|, m) <= 2 * jitter.
     * Correction, groups and renormalisation are not used. */
    PROA_ROUTER_SPARSEMIXER
} proa_router_kind;
typedef struct proa_router {
    proa_router_kind kind;
    int32_t chosen;          /* k */
    bool renormalise;        /* the weights are divided by their sum + 1e-20 */
    float scale;             /* then multiplied by that; 0: 1 */
    float jitter;            /* of SPARSEMIXER */
    const float *correction; /* [E] added to p for the choice, not in the weights (DeepSeek-V3); NULL: none */
    /* E / groups experts follow each other in a group. Only the chosen_groups best groups take part. A group is as good
     * as the sum of its group_best (1 or 2) largest p + correction. groups 0: no groups. */
    int32_t groups, chosen_groups, group_best;
} proa_router;

/* The weights of a layer's experts, and the formula of each: with v = x up^T + up_bias, [2F] of them if gated, and
 * g = v[f], u = v[F+f]:
 *   h[f] = act(min(g, limit)) * (max(-limit, min(u, limit)) + offset)   gated; limit 0: nothing is cut
 *   h[f] = act(v[f])                                                    else
 *   out  = h down^T + down_bias */
typedef struct proa_experts {
    const proa_weight *up,
        *down; /* [experts][2F,K] (the gate's F rows first; not gated: [F,K]) and [experts][N,F] */
    const float *up_bias, *down_bias; /* [experts][2F] and [experts][N]; NULL: none */
    proa_act act;
    bool gated;
    float limit, offset; /* gpt-oss: 7 and 1 with QUICK_GELU; else 0 */
    proa_view residual;  /* [T,N] or rank 0; may be y */
    /* The weights are those of experts [first, first + experts) of `all`; other chosen ones add nothing (they are those
     * of other ranks). all 0: of all experts. */
    int32_t first, all;
} proa_experts;

/* The place of an expert among the weights; e->up->experts: it is none of these. */
static inline int64_t proa_expert_place(const proa_experts *e, int32_t id)
{
    int64_t place = (int64_t)id - e->first;
    return e->all && (place < 0 || place > e->up->experts) ? e->up->experts : place;
}

/* Rows of the step grouped by adapter. A segment is up to PROA_LORA_ROWS rows order[first], order[first + 1], ... that
 * use the adapter whose memory begins at base. Rows without an adapter are in no segment. A segment may be empty. */
#define PROA_LORA_ROWS  16
#define PROA_LORA_PANEL 16 /* columns of B that follow each other */
typedef struct proa_lora_segment {
    const char *base;
    int32_t first, rows;
} proa_lora_segment;
typedef struct proa_lora_rows {
    const int32_t *order;
    const proa_lora_segment *segment;
    int64_t count;
    const int32_t *slot; /* of each row of the pass, -1: none; NULL: not known. Only linear_lora reads it */
} proa_lora_rows;

/* How an adapter changes one piece of a matrix. */
typedef struct proa_lora_use {
    float scale;
    int32_t rank; /* 0: not at all */
} proa_lora_use;

/* The adapters of one matrix [N,K]. Its columns of y are in pieces that have an A and a B of their own: q, k and v of
 * a fused matrix, or the gate and up. In the memory of each adapter, at these offsets in bytes from its base:
 *   use  proa_lora_use [pieces]
 *   a    A_p[j,k] at [k][p * rank + j], `dtype`, for K rounded up to 16
 *   b    panels of PROA_LORA_PANEL columns of y, those of piece 0 first; each piece begins a panel:
 *        B_p[n,j] at [panel][j][column], [rank][PROA_LORA_PANEL] in each panel. Padding is 0.
 * rank is a multiple of 16, the same for all adapters and pieces. Everything is aligned to 64 bytes. */
#define PROA_LORA_PIECES_MAX 4
typedef struct proa_lora {
    int64_t use, a, b;
    proa_dtype dtype; /* f32, f16 or bf16 */
    int32_t rank, pieces;
    int64_t K;
    int64_t end[PROA_LORA_PIECES_MAX]; /* piece p has the columns [end[p - 1], end[p]) of y, piece 0 from 0 */
    float alpha;                       /* times each adapter's scale; 0 means 1 */
    bool set;   /* y is not read: it is 0 but for what the adapters add, in all rows and columns */
    void *sums; /* linear_lora: memory of a device for f32 [T, N + slots * pieces * rank]; NULL: none */
    /* linear_lora: adapter slots whose A and B are also stored behind W (proa_lora_stack_b). 0: none. */
    int32_t slots;
} proa_lora;

static inline int64_t proa_lora_first(const proa_lora *l, int32_t piece)
{
    return piece > 0 ? l->end[piece - 1] : 0;
}
static inline int64_t proa_lora_panels(const proa_lora *l, int32_t piece)
{
    return (l->end[piece] - proa_lora_first(l, piece) + PROA_LORA_PANEL - 1) / PROA_LORA_PANEL;
}

/* What adapters have of a matrix W [N,K] of 16 bits, K a multiple of 8, once more in W's memory:
 *   behind W             A as if W had more rows: [slot][pieces * rank][K]
 *   proa_lora_stack_b    panels of B of all slots, proa_lora_stack_panel bytes each: [slot][rank][PROA_LORA_PANEL], the
 *                        row of rank j at proa_lora_stack_row, so that in shared memory neighbouring slots are in other
 *                        banks; then the scale of each slot in the panel's piece, f32 */
static inline int64_t proa_lora_stack_b(const proa_lora *l, const proa_weight *w)
{
    return ((w->N + (int64_t)l->slots * l->pieces * l->rank) * w->K * 2 + 127) / 128 * 128;
}
static inline int64_t proa_lora_stack_scale(const proa_lora *l) /* from the begin of a panel on */
{
    return (int64_t)l->slots * l->rank * PROA_LORA_PANEL * 2;
}
static inline int64_t proa_lora_stack_panel(const proa_lora *l)
{
    return (proa_lora_stack_scale(l) + l->slots * (int64_t)sizeof(float) + 15) / 16 * 16;
}
static inline int64_t proa_lora_stack_end(const proa_lora *l, const proa_weight *w)
{
    int64_t panels = w->N / PROA_LORA_PANEL + l->pieces; /* at most */
    return proa_lora_stack_b(l, w) + panels * proa_lora_stack_panel(l);
}
static inline int32_t proa_lora_stack_row(int32_t j, int32_t slot)
{
    return j ^ (slot & 3);
}
static inline const proa_lora_use *proa_lora_use_of(const proa_lora *l, const proa_lora_segment *s)
{
    return (const proa_lora_use *)(const void *)(s->base + l->use);
}

/* Keys and values of one layer in pages of PROA_PAGE_TOKENS: k and v are [page][Hk][64][dh], so one (page, head)
 * is one contiguous block. dtype f32, bf16 or f16; on a device e4m3 too, without a scale. Rows there are f32, of the
 * pages' type, or of 16 bits beside e4m3. */
typedef struct proa_kv {
    void *k, *v;
    proa_dtype dtype;
    int64_t kv_heads, head_dim; /* Hk, dh */
    /* Not 0: there are no pages. k and v are the rows of the step, that many elements apart, and a span sees those
     * that it has itself (context == rows). attend where q is of the same dtype: f32, on a device 16 bits too. */
    int64_t row;
} proa_kv;

/* Tokens that follow each other within a page and are copied to another page, in all layers. */
typedef struct proa_kv_copy {
    int32_t to_page, from_page;
    int64_t to, from, count; /* tokens of the pages */
} proa_kv_copy;

/* The ragged batch: which rows of the step belong to which sequence, and in which pages its context is. */
typedef struct proa_span {
    int32_t row, rows; /* rows [row, row+rows) of the step */
    int32_t context;   /* keys of the sequence, those of this step included. Row i of the span is at position
                        context - rows + i when causal (proa_tree_position). */
    int32_t table;     /* page of token p: spans->pages[table + p / PROA_PAGE_TOKENS] */
    int32_t tree; /* its last so many rows, at most PROA_TREE_MAX, are a tree of draft tokens; 0: none. More than
                        it has rows: the first nodes were run in earlier steps */
} proa_span;
typedef struct proa_spans {
    const proa_span *span; /* in the order of their rows */
    int64_t count;
    const int32_t *pages;
    const uint64_t *seen; /* [rows of the step] what the rows of trees see (proa_tree_position); NULL: no trees */
    int32_t rows_max, context_max; /* of all spans; read where the spans themselves are on a device */
    int32_t rows_min;              /* 0: may be anything */
    int32_t long_count, long_rows; /* the spans of more than one row, and their rows; 0: not counted */
} proa_spans;

/* Trees of draft tokens (SpecInfer, Miao et al. 2023; Medusa, Cai et al. 2024). The keys of a tree are stored where the
 * span has its rows: row j of the tree at first + j, first = context - tree. Bit j of a row's mask `seen` says whether
 * it sees row j of its tree: its ancestors, which come before it, and itself. A row sees all keys before `first` too.
 * Its position is that of its depth, as if its ancestors alone had been run one after the other, and what it computes
 * has the same bits as then. Trees need causal attention over pages. */

static inline int64_t proa_tree_first(const proa_span *span)
{
    return (int64_t)span->context - span->tree;
}
/* The mask of row i of a span; 0: it is not in a tree. */
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
/* Where the key at position p is stored that a row with this mask sees. */
static inline int64_t proa_tree_slot(int64_t first, uint64_t seen, int64_t p)
{
    if (!seen || p < first) return p;
    for (int64_t skip = p - first; skip > 0; skip--) seen &= seen - 1;
    return first + PROA_LOWEST_BIT64(seen);
}

/* The weights of head h of a norm, whose w is [d] or [H,dh]; NULL if w is absent. */
static inline const float *proa_norm_weights(proa_view w, int64_t h)
{
    if (w.rank == 0) return NULL;
    return (const float *)w.data + (w.rank == 2 ? h * w.stride[0] : 0);
}

/* Relative positions that meet the query and the key (Transformer-XL, Dai et al. 2019; XLNet; DeBERTa, He et al. 2021).
 * With r = row[clamp(q_pos - k_pos, -reach, reach) + reach], the product q.k of a score becomes
 *   (q + u).k + (q + v).keys[r] + k.queries[r]
 * where a table or bias that is NULL leaves its term out. The caller projects the tables; a head h has the numbers
 * [h dh, (h + 1) dh) of their rows and of the biases. The keys must be rows of the step (proa_kv.row).
 * With segments, a key whose token type is not the query's adds (q + w).(segments[1] - segments[0]). XLNet adds
 * (q + w).segments[0] for all others; that is the same number less for all keys, which no softmax sees. */
typedef struct proa_relative {
    const int32_t *row; /* [2 * reach + 1] rows of the tables; from each distance to the next it rises by 0 or 1 */
    int32_t reach;
    int32_t rows;               /* of the tables */
    const float *keys;          /* [rows][H dh]: XLNet's r, DeBERTa's "c2p" */
    const float *queries;       /* [rows][H dh]: DeBERTa's "p2c" */
    int64_t stride;             /* numbers from one row of a table to the next */
    const float *content_bias;  /* u [H dh]: XLNet's r_w_bias */
    const float *position_bias; /* v [H dh]: r_r_bias */
    const int32_t *types;       /* of the rows of the step; NULL: there is no term of segments */
    const float *segments;      /* [2][H dh]: XLNet's seg_embed */
    const float *segment_bias;  /* w [H dh]: r_s_bias */
} proa_relative;

/* The row of the tables for distance = q_pos - k_pos. */
static inline int32_t proa_relative_row(const proa_relative *r, int64_t distance)
{
    return r->row[(distance < -r->reach ? -r->reach : distance > r->reach ? r->reach : distance) + r->reach];
}

/* How attention scores are computed, in this order: score = scale * q.k; soft cap; biases; mask. All zero is plain
 * bidirectional attention with scale 0, so the scale must be set. */
typedef struct proa_attention {
    float scale;    /* T5: 1; others 1/sqrt(dh) */
    float soft_cap; /* > 0: score = soft_cap * tanh(score / soft_cap) (Gemma 2, Gemma Team 2024) */
    bool causal;    /* a row sees positions up to its own */
    /* > 0: and only those less than `window` positions away: when causal the last `window`, its own included (Mistral),
     * else as many to each side (ModernBERT) */
    int32_t window;
    /* T5: bias[bucket(k_pos - q_pos)][h] is added; NULL: none. Row i of a span is at context - rows + i. */
    const float *rel_bias; /* [buckets][H] f32 */
    int32_t rel_buckets, rel_distance;
    bool rel_bidirectional;
    /* ALiBi (Press et al. 2022): alibi[h] * (k_pos - q_pos) is added; NULL: none. A bias of alibi[h] * k_pos
     * (BLOOM) gives the same: a constant added to all scores of a row does not change its softmax. */
    const float *alibi; /* [H] f32 */
    /* Attention sinks (gpt-oss; Xiao et al. 2023): exp(sinks[h]) is added to the sum by which the weights are divided,
     * as of a key with this score and no value. NULL: none. */
    const float *sinks;            /* [H] f32 */
    const proa_relative *relative; /* more terms of q.k; NULL: none */
} proa_attention;

/* Frequencies of rotary positions (Su et al. 2021), and of those that models use beyond the length that they were
 * trained with. A row whose sequence has at most `border` positions uses inv_freq and scale, a longer one
 *   - with long_inv_freq: these and long_scale (LongRoPE, Ding et al. 2024);
 *   - else inv_freq[i] * g^(-2i / (r - 2)) and scale, g = ntk_factor * length / border - (ntk_factor - 1): the
 *     frequencies of the base theta * g^(r / (r - 2)) (dynamic NTK, the base of transformers' "dynamic"). r > 2. */
typedef struct proa_rope_freqs {
    const float *inv_freq;      /* [r/2] */
    const float *long_inv_freq; /* [r/2] or NULL */
    float scale, long_scale;    /* of cosines and sines: 1, or the attention factor of YaRN and LongRoPE */
    float ntk_factor;
    int32_t border; /* 0: the length does not matter */
} proa_rope_freqs;

/* Frequency i of a row whose sequence has `length` positions. */
float proa_rope_freq(const proa_rope_freqs *f, int32_t length, int64_t i, int64_t r);
static inline bool proa_rope_is_long(const proa_rope_freqs *f, int32_t length)
{
    return f->border > 0 && length > f->border;
}

/* The bucket of T5's relative positions (Raffel et al. 2020): relative = k_pos - q_pos. Logarithms are f32, as in
 * transformers. distance > buckets / 2 (a quarter of the buckets when bidirectional). */
int32_t proa_rel_bucket(int32_t relative, int32_t buckets, int32_t distance, bool bidirectional);

/* How one token is drawn from a row of logits. The cuts are made in the order of the members; engine/decode/sampler.h
 * defines them. Plain numbers that a device can read. */
typedef struct proa_sample_params {
    float temperature; /* 0: the first index of the largest (greedy); the other members are ignored */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 0: all */
    float rest;        /* 1 - top_p, computed before top_p was rounded to float */
    float min_p;       /* 0: all */
    int32_t falling; /* 1: mass is counted from the most likely token down, exactly top_k are kept, and the weight of
                        the last is cut */
    double uniform; /* in [0,1): the candidate at which the running sum of weights, by rising id, exceeds this part */
    float *kept; /* [V] set: logits over the temperature, -infinity where a cut dropped the token; where the op runs.
                    NULL: not wanted. Greedy rows, and those whose sum is no number, leave it alone */
} proa_sample_params;

/* The logits processors of a row (formulas: engine/decode/logits_processor.h), applied in this order: biases, the scale
 * of all logits, penalties of tokens that the history has (seen tokens), masks. A column has at most one bias and is at
 * most once among the seen tokens. */
enum { PROA_LOGITS_LAST_TOKEN = -2 }; /* id of a mask: the last token itself */
typedef struct proa_logits_entry {
    int32_t id;
    union {
        float value; /* of a bias */
        int32_t number; /* of a seen token: how often it occurs, 0: only the repetition penalty applies. Of a mask: the
                           last token after which it applies, -1: any */
    };
} proa_logits_entry;
typedef struct proa_logits_row {
    int32_t first; /* the row's first entry; its entries are biases, then seen tokens, then masks */
    int32_t bias_count, seen_count, mask_count;
    float scale;
    float repetition; /* 0: none */
    float presence, frequency;
    int32_t presence_first; /* of these two penalties */
    int32_t last;           /* 1: the last token, whose id only the device has, counts as seen once more */
    int32_t only; /* 1 + the only token that may come next: its logit is 0 and all others -infinity; 0: any may */
} proa_logits_row;

/* One step of a beam search (engine/decode/beam.h; formulas: beam_step in decode.def and beam_step.h): K beams with M
 * candidates each, in G groups of Q = K / G beams that are stepped one after the other. Plain numbers that a device can
 * read. */
enum { PROA_BEAM_CANDIDATES_MAX = 2048, PROA_DEVICE_BEAMS_MAX = 64 };
typedef struct proa_beam_params {
    double length;  /* groups: sum / length is the score of a finished sequence, */
    double reach;   /* sum / reach the best score that a running one can reach */
    int32_t beams;  /* K, 2..PROA_DEVICE_BEAMS_MAX */
    int32_t each;   /* M; Q * M is at most PROA_BEAM_CANDIDATES_MAX */
    int32_t groups; /* G, which divides K; 1: no groups */
    int32_t kept;   /* C, Q..Q * M: candidates of a group from which its next beams are taken */
    int32_t rows; /* of its lists: K; or 1 in the first step, in which all beams share that row and only the first beam
                       of each group is alive */
    int32_t row, at;   /* in proa_beam_lists: its first row, and the first candidate of that row */
    int32_t state, to; /* its first beam in scores and hyps; in tokens and parents */
    float none;        /* the score of a beam that is not alive, -1e9 or less */
    float divisor;     /* of a sum, for its key */
    float rate;        /* this times the candidate's rank in its list, modulo K, is added to a key; */
    int32_t by_beam;   /* 1: times its beam instead */
    int32_t by_token; /* among equal keys of a beam, 1: the lower token is first, and keys are sums (divisor 1, rate 0);
                          0: the lower rank is */
    int32_t pushed; /* 1: candidates that end have `none` added; 0: they come after all others */
    float penalty; /* groups: subtracted from a candidate's log-probability for each beam of the earlier groups that has
                       chosen its token */
    int32_t pad; /* groups: the token that the beams of a group choose when the group is done */
    int32_t first_come; /* groups, 1: a group is done when it has Q finished sequences; 0: when also no running sequence
                           can reach a better score */
    /* 1: a beam that has ended is kept among the others. Its only candidate is its end token, at no cost. Once the
     * first beam has ended, all keys use its divisor. There are no groups, C is K, and nothing is pushed. */
    int32_t keep_ended;
    int32_t end_count, end_ids[PROA_EOS_MAX]; /* the struct has no padding: steps are compared as bytes */
} proa_beam_params;

/* Finished hypotheses, one slot for each beam. With groups: slot i holds the i-th finished score of its group, in
 * order of arrival, and the slot of the group's first beam also holds worst, count and done. With keep_ended: the
 * beam's own end. */
typedef struct proa_beam_hyp {
    double score;
    double worst;  /* of the scores */
    int32_t count; /* of the scores, at most Q */
    int32_t done;  /* 1: the group is done, or the beam has ended */
    float divisor; /* of the beam's length */
    int32_t token; /* that ended it */
} proa_beam_hyp;

/* What the searches of a step read and write; proa_beam_params has the offsets of each search. */
typedef struct proa_beam_lists {
    int32_t *ids;              /* [row][M] tokens, */
    float *logits;             /* [row][M] largest first, */
    float *sums;               /* [row] log(sum(exp)) of the whole row */
    float *scores;             /* of the beams: read, and replaced by those of the next step */
    proa_beam_hyp *hyps;       /* of the beams, likewise; used only with groups or keep_ended */
    int32_t *tokens, *parents; /* of the next step's beams */
} proa_beam_lists;

/* A search whose beams continue those of the step before. Its page tables have tokens / PROA_PAGE_TOKENS + 1 pages
 * each and are contiguous. */
typedef struct proa_kv_reorder {
    int32_t source, table; /* in the pages: the first beam's table before, and after */
    int32_t beams, tokens; /* K; tokens in the pages of each */
    int32_t from;          /* in parents: the index of the first beam's parent */
} proa_kv_reorder;

typedef struct proa_ops proa_ops;
typedef struct proa_ctx {
    const proa_ops *ops;
    proa_pool *pool;
    /* Scratch for kernels, made by proa_ctx_init for the widest step; no op allocates. Aligned to 64. */
    void *scratch;
    int64_t scratch_bytes;
    struct proa_device *device; /* of a device's table: its state; NULL: the host */
    /* CPU: linear reads one panel of weights at a time and leaves prefetching to the CPU. No effect on results. Set by
     * the owner where that is faster (proa_cpu_prefers_one_stream) and a pass reads more weights than the last-level
     * cache holds. */
    bool one_stream;
} proa_ctx;

#define PROA_OP(name, args) typedef void proa_##name##_fn args;
#include "kernels/decode.def"
#include "kernels/ops.def"
#undef PROA_OP

/* The decoding ops of a table. */
typedef struct proa_decode_ops {
#define PROA_OP(name, args) proa_##name##_fn *name;
#include "kernels/decode.def"
#undef PROA_OP
} proa_decode_ops;

struct proa_ops {
    const char *name; /* of the highest overlay: "avx512_vnni" */
    proa_isa isa;
    /* Names the layout of packed weights and its version: tables of one name read what any of them packed. The version
     * rises when the layout of a format changes. */
    const char *layout;
    /* Bytes that pack needs for such a weight; the layout belongs to the table. Shapes were checked. -1: the table has
     * no such format. */
    int64_t (*pack_bytes)(proa_wfmt format, int64_t N, int64_t K);
#define PROA_OP(name, args) proa_##name##_fn *name;
#include "kernels/ops.def"
#undef PROA_OP
    const proa_decode_ops *decode;
};

/* Copies a rectangle between two weights of one format and layout, both in host memory, codes as they are. Columns are
 * whole groups with one scale (proa_wfmt_group), and a partial last group is the last one of both. */
typedef void proa_copy_packed_fn(proa_pool *pool, proa_weight *to, const proa_weight *from,
                                 const proa_packed_rect *rect);
/* That of a layout, a device's too; NULL: it is unknown. */
proa_copy_packed_fn *proa_copy_packed_find(const char *layout);

/* The table of a level: the reference overlaid by every level up to it. NULL if the CPU lacks the level. */
const proa_ops *proa_ops_cpu(proa_isa isa);
/* Names of the ops in the order of ops.def, then of decode.def, NULL-terminated. */
extern const char *const proa_op_names[];

/* linear takes this many rows of x at a time into scratch (quantised, rounded), and each worker this much memory
 * for sums; so scratch does not grow with the step. */
#define PROA_LINEAR_ROWS         512
#define PROA_LINEAR_WORKER_BYTES (64 * PROA_KIB)
#define PROA_LINEAR_TILE_ROWS    16 /* rows there are read in whole tiles of so many (AMX) */

/* experts takes rows in pieces of at most this many pairs of a row and an expert, so scratch does not grow with the
 * step either. More pairs in a piece mean that the weights of an expert are read less often. */
#define PROA_EXPERT_PAIRS        4096

/* The same on a GPU, whose grouped products want many rows an expert. */
#define PROA_DEVICE_EXPERT_PAIRS 8192

/* What the widest step needs: rows T, inputs K of a linear, and heads of an attention. */
typedef struct proa_ctx_need {
    int64_t rows, inputs, heads, head_dim, columns;    /* columns: widest row of top_k (vocabulary) */
    int64_t experts, chosen, expert_width, expert_ffn; /* E, k, the larger of K and N, 2F (F); 0: no experts */
    int64_t lora; /* the most pieces * rank of proa_lora; 0: no adapters */
} proa_ctx_need;
/* Pairs of a row and an expert in a piece of `experts`. */
int64_t proa_expert_pairs(int64_t rows, int64_t chosen);
int64_t proa_ctx_scratch_bytes(const proa_ctx_need *need, int threads);
/* ops NULL: proa_ops_cpu(proa_isa_choose()). The pool stays the caller's. */
PROA_MUST_CHECK proa_status proa_ctx_init(proa_ctx *c, const proa_ops *ops, proa_pool *pool,
                                          const proa_ctx_need *need, proa_err *err);
void proa_ctx_release(proa_ctx *c);

#endif
