/* SPDX-License-Identifier: Apache-2.0
 * shard.c - cuts the weights of a bound model to those of one rank. */
#include "model/ranks/shard.h"

#include "base/checked.h"
#include "kernels/coded.h"
#include <string.h>

typedef struct range {
    int64_t first, count;
} range;

/* Attention of one shape: the sizes of all ranks, and the heads of this one. */
typedef struct head_part {
    int64_t heads, kv_heads, dim;
    range q, kv;
} head_part;

typedef struct sharder {
    proa_config whole;
    int32_t rank, ranks;
    head_part usual, other, encoder; /* layers may have heads of two shapes, and stacks of two */
    range value_heads, key_heads, expert_ffn, experts, shared_ffn, outputs, sums,
        expert_sums;   /* experts: whole ones; none: parts of each. sums: columns; none: a term of all */
    int64_t ffn_block; /* inputs of a dense FFN's last product that belong together */
    bool whole_experts, whole_sums;
    bool pages_of_both; /* the encoder uses the decoder's pages */
    bool whole_norms;   /* all heads of q and k are normed as one row */
    bool parted_groups; /* groups of the norm of a recurrent layer's output are of several ranks */
    proa_arena *arena;
    proa_err *err;
} sharder;

/* Where a weight is; layer PROA_SOME_LAYER: outside of the layers. */
typedef struct place {
    proa_stack_id stack;
    int64_t layer;
    proa_weight_slot slot;
} place;

/* ---- which part a rank has ---- */

/* Of `total`, in units of `unit`: the first ranks have one unit more. */
static range share_units(int64_t total, int64_t unit, int32_t rank, int32_t ranks)
{
    int64_t units = proa_ceil_div(total, unit), each = units / ranks, more = units % ranks;
    int64_t first = unit * (rank * each + proa_min64(rank, more)), count = unit * (each + (rank < more));
    first = proa_min64(first, total);
    return (range){first, proa_min64(count, total - first)};
}

static proa_status fail_few(const sharder *s, const char *what, int64_t count)
{
    return PROA_FAIL(s->err, UNSUPPORTED, "%lld %s cannot be divided among %d ranks", (long long)count, what,
                     s->ranks);
}

/* H heads of which each has one of K key heads: whole groups of a key head and its heads; or where there are fewer than
 * ranks, a part of the heads of one group. */
static proa_status share_groups(const sharder *s, range *heads, range *key_heads, int64_t H, int64_t K,
                                const char *what)
{
    *heads = *key_heads = (range){0, 0};
    if (K == 0) return PROA_OK; /* no layer has any */
    int64_t each = H / K;
    *key_heads = share_units(K, 1, s->rank, s->ranks);
    *heads = (range){key_heads->first * each, key_heads->count * each};
    if (K >= s->ranks) return PROA_OK;
    int32_t group = 0, first = 0; /* first: the first of the ranks that have this group */
    range owners = share_units(s->ranks, 1, 0, (int32_t)K);
    while (s->rank >= first + owners.count)
        first += (int32_t)owners.count, owners = share_units(s->ranks, 1, ++group, (int32_t)K);
    range part = share_units(each, 1, s->rank - first, (int32_t)owners.count);
    *key_heads = (range){group, 1};
    *heads = (range){group * each + part.first, part.count};
    return each < owners.count ? fail_few(s, what, H) : PROA_OK;
}

static proa_status share_attention(const sharder *s, head_part *h, int64_t heads, int64_t kv_heads, int64_t dim)
{
    *h = (head_part){.heads = heads, .kv_heads = kv_heads, .dim = dim};
    return share_groups(s, &h->q, &h->kv, heads, kv_heads, "heads");
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Heads of two stacks that use the same pages: a rank has the same columns of both. */
static proa_status share_both_stacks(sharder *s)
{
    head_part *stack[] = {&s->usual, &s->encoder};
    int64_t unit = s->usual.dim / common_divisor(s->usual.dim, s->encoder.dim) * s->encoder.dim;
    int64_t units = s->usual.heads * s->usual.dim / unit;
    range r = share_units(units, 1, s->rank, s->ranks);
    for (int i = 0; i < 2; i++) {
        int64_t each = unit / stack[i]->dim;
        stack[i]->q = stack[i]->kv = (range){r.first * each, r.count * each};
    }
    return units < s->ranks ? fail_few(s, "parts that are whole heads of both stacks", units) : PROA_OK;
}

static proa_status share_encoder(sharder *s)
{
    const proa_config *c = &s->whole;
    if (!c->encoder_heads) return PROA_OK;
    PROA_TRY(share_attention(s, &s->encoder, c->encoder_heads, c->encoder_heads, c->encoder_head_dim));
    return s->pages_of_both ? share_both_stacks(s) : PROA_OK;
}

/* Of attention, queries by their key heads; of recurrent states, values by theirs (of Mamba-2 by B and C). */
static proa_status share_heads(sharder *s)
{
    const proa_config *c = &s->whole;
    PROA_TRY(share_attention(s, &s->usual, c->heads, c->kv_heads, c->head_dim));
    if (c->other_heads)
        PROA_TRY(share_attention(s, &s->other, c->other_query_heads, c->other_kv_heads, c->other_head_dim));
    PROA_TRY(share_encoder(s));
    if (!c->recurrent_layers) return PROA_OK;
    return share_groups(s, &s->value_heads, &s->key_heads, c->value_heads, c->key_heads,
                        "heads of a recurrent state");
}

/* Columns of a group of the norm of a recurrent layer's output. */
static int64_t recall_width(const proa_config *c)
{
    return c->value_heads * c->value_dim / (c->recall_groups ? c->recall_groups : c->value_heads);
}

/* Whether some rank has a part of a group. */
static proa_status find_parted_groups(sharder *s)
{
    const proa_config *c = &s->whole;
    bool normed = c->recurrent_layers && c->key_dim > 0 && !c->recall_plain && c->recall_groups;
    for (int32_t i = 0; i < s->ranks && normed; i++) {
        sharder of = *s;
        of.rank = i;
        PROA_TRY(share_heads(&of));
        if (of.value_heads.first * c->value_dim % recall_width(c)) s->parted_groups = true;
    }
    return PROA_OK;
}

static int64_t block_of_slot(const proa_params *p, proa_weight_slot slot)
{
    int64_t most = 1;
    for (int64_t layer = 0; layer <= p->layers; layer++) {
        const proa_param *param = proa_params_at(p, layer, slot);
        for (int32_t i = 0; i < param->parts; i++)
            most = proa_max64(most, proa_tensor_source_col_block(&param->part[i].source));
    }
    return most;
}

static int64_t block_of_stacks(const proa_params params[PROA_STACK_COUNT], proa_weight_slot slot)
{
    int64_t block = 1;
    for (int i = 0; i < PROA_STACK_COUNT; i++) block = proa_max64(block, block_of_slot(&params[i], slot));
    return block;
}

/* Rows of an FFN. Parts are multiples of 64, which suits the tiles of fast kernels, where that leaves no rank idle. */
static proa_status share_ffn(const sharder *s, range *out, int64_t total, int64_t block)
{
    int64_t unit = 64;
    while (unit > 1 && total / unit < 2 * s->ranks) unit /= 2;
    unit = proa_round_up(unit, block);
    *out = share_units(total, unit, s->rank, s->ranks);
    if (total > 0 && proa_ceil_div(total, unit) < s->ranks) return fail_few(s, "rows of the FFN", total);
    return PROA_OK;
}

static proa_status share_experts(sharder *s)
{
    int64_t experts = s->whole.experts;
    s->experts = share_units(experts, 1, s->rank, s->ranks);
    s->expert_ffn = (range){0, s->whole.expert_ffn};
    return experts < s->ranks ? fail_few(s, "experts", experts) : PROA_OK;
}

/* Rows of a head over the vocabulary. All parts but the last are of one size. */
static void share_outputs(sharder *s, const proa_arch *arch, int64_t *split)
{
    int64_t outputs = s->whole.vocab, width = proa_ceil_div(outputs, s->ranks);
    width = proa_ceil_div(width, 64) * 64;
    s->outputs = (range){0, 0};
    if (arch->outputs != PROA_DIM_VOCAB || width * (s->ranks - 1) >= outputs) return;
    s->outputs = (range){s->rank * width, proa_min64(width, outputs - s->rank * width)};
    *split = width;
}

/* Columns of sums of `total`. All parts but the last are of one size. */
static proa_status share_columns(const sharder *s, range *out, int64_t *split, int64_t total)
{
    int64_t width = proa_ceil_div(total, s->ranks);
    if (proa_round_up(width, 16) * (s->ranks - 1) < total) width = proa_round_up(width, 16);
    if (width * (s->ranks - 1) >= total) return fail_few(s, "columns of a sum", total);
    *out = (range){s->rank * width, proa_min64(width, total - s->rank * width)};
    *split = width;
    return PROA_OK;
}

/* Those of the residual stream, or of the narrower one in layers, and of experts if these have another width. */
static proa_status share_sums(sharder *s, proa_config *c)
{
    PROA_TRY(share_columns(s, &s->sums, &c->sum_split, proa_dim_size(&s->whole, PROA_DIM_NARROW)));
    s->expert_sums = s->sums;
    if (!s->whole.expert_latent) return PROA_OK;
    return share_columns(s, &s->expert_sums, &c->latent_split, s->whole.expert_latent);
}

/* ---- cutting a weight ---- */

static void add_part(proa_param *to, const proa_weight_part *part, const proa_row_order *order)
{
    proa_weight_part *p = &to->part[to->parts++];
    *p = *part;
    p->source.order = *order;
}

/* Rows [r.first, ...) of a part, as few loop nests: whole groups, or the rest of one. */
static void cut_rows_of_part(proa_param *to, const proa_weight_part *part, range r)
{
    proa_row_order o = part->source.order;
    if (o.count[0] == 0 && part->source.encoding == PROA_ENCODING_PLAIN) {
        proa_weight_part *p = &to->part[to->parts++];
        *p = *part;
        p->source.view = proa_view_rows(p->source.view, r.first, r.first + r.count);
        return;
    }
    if (o.count[0] == 0) o = (proa_row_order){0, {1, 1, part->source.view.shape[0]}, {0, 0, 1}};
    for (int64_t end = r.first + r.count, n; r.first < end; r.first += n) {
        int64_t at = r.first % o.count[2], group = r.first / o.count[2] % o.count[1];
        int64_t whole = at == 0 ? proa_min64((end - r.first) / o.count[2], o.count[1] - group) : 0;
        proa_row_order cut = {proa_tensor_source_row(&part->source, r.first), {1, 1, 0}, {0, 0, o.step[2]}};
        cut.count[2] = whole ? o.count[2] : proa_min64(end - r.first, o.count[2] - at);
        if (whole) cut.count[1] = whole, cut.step[1] = o.step[1];
        n = cut.count[1] * cut.count[2];
        add_part(to, part, &cut);
    }
}

/* The most parts that the ranges of a stack of parts can become. */
static int64_t parts_bound(const proa_weight_part *part, int64_t parts, int64_t ranges)
{
    int64_t bound = 0;
    for (int64_t i = 0; i < parts; i++) bound += ranges * (2 + proa_max64(1, part[i].source.order.count[0]));
    return bound;
}

/* Ranges of the stacked rows of `parts` parts, of one matrix. */
static void cut_stacked_rows(proa_param *to, const proa_weight_part *part, int64_t parts, const range *ranges,
                             int count)
{
    for (int k = 0; k < count; k++) {
        int64_t first = 0;
        for (int64_t i = 0; i < parts; i++) {
            int64_t rows = proa_tensor_source_rows(&part[i].source);
            int64_t begin = proa_max64(ranges[k].first, first),
                    end = proa_min64(ranges[k].first + ranges[k].count, first + rows);
            if (begin < end) cut_rows_of_part(to, &part[i], (range){begin - first, end - begin});
            first += rows;
        }
    }
}

static void cut_rows(sharder *s, proa_param *param, const range *ranges, int count)
{
    proa_param to = *param;
    int64_t experts = proa_max64(param->experts, 1), each = param->parts / experts;
    to.cap = (int32_t)parts_bound(param->part, param->parts, count);
    to.part = PROA_ARENA_NEW(s->arena, proa_weight_part, to.cap);
    to.parts = 0, to.rows = 0;
    for (int64_t e = 0; e < experts; e++) cut_stacked_rows(&to, param->part + e * each, each, ranges, count);
    to.cut = (proa_param_cut){.ranges = count};
    for (int k = 0; k < count; k++) {
        to.cut.row[k] = ranges[k].first, to.cut.rows[k] = ranges[k].count;
        to.rows += ranges[k].count;
    }
    *param = to;
}

static proa_status cut_columns(const sharder *s, proa_param *param, range r)
{
    for (int32_t i = 0; i < param->parts; i++) {
        proa_weight_part *p = &param->part[i];
        int64_t block = proa_tensor_source_col_block(&p->source);
        if (proa_coded_is_permuted(&p->source))
            return PROA_FAIL(s->err, UNSUPPORTED,
                             "tensor '%s': its inputs are in the order of their activations and "
                             "cannot be divided among ranks",
                             p->tensor->name);
        if (r.first % block || (r.count % block && r.first + r.count < param->cols))
            return PROA_FAIL(s->err, UNSUPPORTED,
                             "tensor '%s': its blocks of %lld numbers cannot be divided among %d "
                             "ranks",
                             p->tensor->name, (long long)block, s->ranks);
        p->source = proa_tensor_source_cols_of(&p->source, r.first, r.count);
        p->source.cols_before = r.first, p->source.cols_behind = param->cols - r.first - r.count;
    }
    param->cols = r.count, param->cut.col = r.first;
    return PROA_OK;
}

/* Some of the matrices of a weight that has one for each head. */
static void cut_matrices(proa_param *param, range r)
{
    int64_t each = param->parts / param->experts;
    param->part += r.first * each;
    param->parts = param->cap = (int32_t)(r.count * each);
    param->experts = r.count;
    param->cut.matrix = r.first;
}

/* ---- which part of a weight ---- */

/* Heads of a block of `heads` times `size` numbers that begins at `at`. */
static range heads_range(range heads, int64_t size, int64_t at)
{
    return (range){at + heads.first * size, heads.count * size};
}

/* Values, B and C, rates and gates (Mamba-2). */
static int mamba_ranges(range out[PROA_CUT_RANGES_MAX], const sharder *s, proa_weight_slot slot)
{
    const proa_config *c = &s->whole;
    int64_t d = c->value_dim, keys = c->key_heads * c->key_dim, values = c->value_heads * d,
            at = values + 2 * keys;
    out[0] = heads_range(s->value_heads, d, 0);
    out[1] = heads_range(s->key_heads, c->key_dim, values);
    out[2] = heads_range(s->key_heads, c->key_dim, values + keys);
    out[3] = heads_range(s->value_heads, 1, at);
    out[4] = heads_range(s->value_heads, d, at + c->value_heads);
    return slot == PROA_SLOT_MIX ? 5 : 3;
}

/* Whether its rows are those of one head of values after the other. */
static bool is_of_values(proa_weight_slot slot)
{
    return slot == PROA_SLOT_DECAY || slot == PROA_SLOT_DECAY_UP || slot == PROA_SLOT_GATE_UP;
}

/* A weight of a layer with a recurrent state: q, k, v and gates side by side, as far as it has them; of values, blocks
 * of all heads. */
static int recurrent_ranges(range out[PROA_CUT_RANGES_MAX], const sharder *s, proa_weight_slot slot, int64_t rows)
{
    const proa_config *c = &s->whole;
    int64_t d = c->value_dim, keys = proa_config_convolved_keys(c), values = c->value_heads * d;
    bool mixed = slot == PROA_SLOT_MIX || slot == PROA_SLOT_MIX_CONV;
    if (mixed && c->mix_rates) return mamba_ranges(out, s, slot);
    if (mixed && !c->mix_gated && !c->step_rank) {
        out[0] = heads_range(s->key_heads, c->key_dim, 0);
        out[1] = heads_range(s->key_heads, c->key_dim, keys);
        out[2] = heads_range(s->value_heads, d, 2 * keys);
        out[3] = heads_range(s->value_heads, d, 2 * keys + values);
        return slot == PROA_SLOT_MIX && !c->gates_apart ? 4 : 3;
    }
    if (is_of_values(slot)) {
        out[0] = heads_range(s->value_heads, rows / c->value_heads, 0);
        return 1;
    }
    bool columns = mixed || slot == PROA_SLOT_RECALL_NORM ||
                   c->step_rank; /* of all heads; or one number for each head */
    int64_t size = columns ? d : 1, all = c->value_heads * size;
    int blocks = (int)(rows / all);
    for (int i = 0; i < blocks; i++) out[i] = heads_range(s->value_heads, size, i * all);
    return blocks;
}

static bool is_recurrent(proa_weight_slot slot)
{
    return slot == PROA_SLOT_MIX || slot == PROA_SLOT_MIX_CONV || slot == PROA_SLOT_RATES ||
           slot == PROA_SLOT_DECAY || slot == PROA_SLOT_SKIP || slot == PROA_SLOT_RECALL_NORM ||
           slot == PROA_SLOT_MIX_OUT || slot == PROA_SLOT_PARAMS || slot == PROA_SLOT_DECAY_UP ||
           slot == PROA_SLOT_GATE_UP;
}

/* The heads of a layer. */
static const head_part *heads_at(const sharder *s, const place *at)
{
    if (at->stack == PROA_STACK_ENCODER && s->whole.encoder_heads) return &s->encoder;
    return proa_config_has_other_heads(&s->whole, at->layer) ? &s->other : &s->usual;
}

/* q, k and v of attention, behind the gates of the heads of q if it has these; or q alone; or q and k. rows: of all
 * ranks. */
static int attention_ranges(range out[PROA_CUT_RANGES_MAX], const sharder *s, const head_part *h, int64_t rows)
{
    int64_t d = h->dim, at = 0;
    int count = 0;
    if (s->whole.attention_gate) out[count++] = heads_range(h->q, d, 0), at = h->heads * d;
    out[count++] = heads_range(h->q, d, at);
    at += h->heads * d;
    if (rows == at) return count;
    out[count++] = heads_range(h->kv, d, at);
    if (rows == at + h->kv_heads * d) return count; /* values are a product of their own */
    out[count++] = heads_range(h->kv, d, at + h->kv_heads * d);
    return count;
}

/* A weight by heads: those above; keys and values of encoder memory; else blocks of all heads. */
static int head_ranges(range out[PROA_CUT_RANGES_MAX], const sharder *s, const place *at, const proa_param *param)
{
    const head_part *h = heads_at(s, at);
    const proa_weight_slot slot = at->slot & ~1U;
    int64_t d = h->dim, q = h->heads * d, kv = h->kv_heads * d, rows = param->rows;
    if (slot == PROA_SLOT_QKV || slot == PROA_SLOT_QKV_GLOBAL) return attention_ranges(out, s, h, rows);
    if (is_recurrent(slot)) return recurrent_ranges(out, s, slot, rows);
    if (slot == PROA_SLOT_CROSS_KV) {
        out[0] = heads_range(h->kv, d, 0);
        out[1] = heads_range(h->kv, d, kv);
        return 2;
    }
    int blocks = slot == PROA_SLOT_REL && rows == 2 * q ? 2 : 1;
    for (int i = 0; i < blocks; i++) out[i] = heads_range(h->q, rows / blocks / h->heads, i * rows / blocks);
    return blocks;
}

/* Rows of an FFN: of the gate and of the up product where both are in one matrix. */
static int ffn_ranges(range out[PROA_CUT_RANGES_MAX], range r, int64_t total, const proa_param *param)
{
    int blocks = param->rows == 2 * total ? 2 : 1;
    for (int i = 0; i < blocks; i++) out[i] = (range){i * total + r.first, r.count};
    return blocks;
}

/* Rows of the dense FFN of a layer, and of this rank. */
static proa_status dense_ffn_at(const sharder *s, const place *at, range *out, int64_t *total)
{
    bool of_encoder = at->stack == PROA_STACK_ENCODER && s->whole.encoder_ffn;
    *total = of_encoder ? s->whole.encoder_ffn : proa_config_ffn(&s->whole, at->layer);
    return share_ffn(s, out, *total, s->ffn_block);
}

/* The FFN to which a slot belongs, and its rows of this rank; total 0: to none. */
static proa_status ffn_of(const sharder *s, const place *at, range *out, int64_t *total)
{
    *total = 0;
    if (proa_slot_ffn(at->slot)) return dense_ffn_at(s, at, out, total);
    switch (at->slot & ~1U) {
    case PROA_SLOT_EXPERT_UP:
    case PROA_SLOT_EXPERT_DOWN: *total = s->whole.expert_ffn, *out = s->expert_ffn; return PROA_OK;
    case PROA_SLOT_SHARED_UP:
    case PROA_SLOT_SHARED_DOWN: *total = s->whole.shared_ffn, *out = s->shared_ffn; return PROA_OK;
    default: return PROA_OK;
    }
}

/* Norms of heads that have weights of their own are divided as the heads are. */
static bool is_norm_by_head(const sharder *s, proa_weight_slot slot, const proa_param *param)
{
    const proa_name *row = param->part[0].row;
    if (s->whole_norms) return false;
    if (slot != PROA_SLOT_Q_NORM && slot != PROA_SLOT_K_NORM) return false;
    return row->rows == PROA_DIM_Q || row->rows == PROA_DIM_KV ||
           row->flags & (PROA_PER_HEAD | PROA_PER_KV_HEAD);
}

static bool has_whole_experts(const sharder *s, proa_weight_slot slot)
{
    return s->experts.count && (slot == PROA_SLOT_EXPERT_UP || slot == PROA_SLOT_EXPERT_DOWN);
}

/* A weight of a product by columns, or its bias, of which this rank has rows. */
static bool gives_sums(const sharder *s, proa_weight_slot slot, const proa_param *param)
{
    bool bias = slot & 1;
    if (!s->whole_sums) return false;
    if (slot == PROA_SLOT_EXPERT_BIAS) return true; /* of the sums that EXPERT_DOWN makes */
    return proa_slot_split(slot & ~1U) == PROA_SPLIT_COLUMNS && (bias || proa_param_is_matrix(param));
}

static range columns_of_heads(const sharder *s, const place *at, int64_t cols)
{
    const head_part *h = heads_at(s, at);
    if (is_recurrent(at->slot)) return heads_range(s->value_heads, cols / s->whole.value_heads, 0);
    return heads_range(h->q, cols / h->heads, 0);
}

/* Each rank has all weights of a norm that are those of any head, or where it norms what all ranks have. */
static proa_split split_of(const sharder *s, proa_weight_slot slot, const proa_param *param)
{
    bool all = param->rows == s->whole.value_dim || (s->parted_groups && s->whole_sums);
    return slot == PROA_SLOT_RECALL_NORM && all ? PROA_SPLIT_NONE : proa_slot_split(slot);
}

/* Whether a product reads a part of its inputs. */
static bool reads_parts(const sharder *s, proa_split split)
{
    return split == PROA_SPLIT_COLUMNS || (split == PROA_SPLIT_INNER && !s->whole_sums);
}

/* The columns of the sums of a slot. */
static const range *sums_of(const sharder *s, proa_weight_slot slot)
{
    bool of_experts = (slot & ~1U) == PROA_SLOT_EXPERT_DOWN || slot == PROA_SLOT_EXPERT_BIAS;
    return of_experts ? &s->expert_sums : &s->sums;
}

static const range *heads_normed_by(const head_part *h, proa_weight_slot matrix)
{
    return matrix == PROA_SLOT_Q_NORM ? &h->q : &h->kv;
}

/* Reduces a weight to the part that this rank has. The first rule that applies decides. */
static proa_status shard_param(sharder *s, const place *at, proa_param *param)
{
    const proa_weight_slot slot = at->slot, matrix = slot & ~1U; /* a bias slot follows that of its matrix */
    proa_split split = split_of(s, slot, param);
    const head_part *h = heads_at(s, at);
    range ranges[PROA_CUT_RANGES_MAX] = {{0, 0}}, ffn = {0, 0};
    int count = 0;
    int64_t total = 0;
    PROA_TRY(ffn_of(s, at, &ffn, &total));
    if (gives_sums(s, slot, param)) {
        ranges[count++] = *sums_of(s, slot);
    } else if (has_whole_experts(s, matrix)) {
        cut_matrices(param, s->experts);
    } else if (is_norm_by_head(s, matrix, param)) {
        ranges[count++] = heads_range(*heads_normed_by(h, matrix), h->dim, 0);
    } else if (reads_parts(s, split)) {
        return cut_columns(s, param, total ? ffn : columns_of_heads(s, at, param->cols));
    } else if (split == PROA_SPLIT_HEADS && param->heads) {
        cut_matrices(param, h->q);
    } else if (split == PROA_SPLIT_HEADS) {
        count = head_ranges(ranges, s, at, param);
    } else if (total && split == PROA_SPLIT_ROWS) {
        count = ffn_ranges(ranges, ffn, total, param);
    } else if ((matrix == PROA_SLOT_HEAD || matrix == PROA_SLOT_HEAD_REST) && s->outputs.count) {
        ranges[count++] = s->outputs;
    }
    if (count) cut_rows(s, param, ranges, count);
    return PROA_OK;
}

/* How many sizes of dense FFNs there are to divide: those of single layers, or one. */
static int64_t ffn_count(const proa_config *c)
{
    return c->ffn_sizes ? c->layers : 1;
}

/* FFN i of these. */
static proa_status share_dense(const sharder *s, int64_t i, range *out)
{
    const place at = {.stack = PROA_STACK_DECODER, .layer = s->whole.ffn_sizes ? i : PROA_SOME_LAYER};
    int64_t total;
    return dense_ffn_at(s, &at, out, &total);
}

static proa_status share_encoder_ffn(const sharder *s, range *out)
{
    const place at = {.stack = PROA_STACK_ENCODER, .layer = PROA_SOME_LAYER};
    int64_t total;
    *out = (range){0, 0};
    return s->whole.encoder_ffn ? dense_ffn_at(s, &at, out, &total) : PROA_OK;
}

static proa_status share_sizes(sharder *s, const proa_params *params, const proa_arch *arch, int64_t *split)
{
    const proa_config *c = &s->whole;
    int64_t expert_ffn = c->experts ? c->expert_ffn : 0;
    range dense;
    PROA_TRY(share_heads(s));
    s->ffn_block = block_of_stacks(params, PROA_SLOT_DOWN);
    for (int64_t i = 0; i < ffn_count(c); i++) PROA_TRY(share_dense(s, i, &dense));
    PROA_TRY(share_encoder_ffn(s, &dense));
    if (s->whole_experts) PROA_TRY(share_experts(s));
    else if (s->whole_sums) s->expert_ffn = (range){0, expert_ffn};
    else PROA_TRY(share_ffn(s, &s->expert_ffn, expert_ffn, block_of_stacks(params, PROA_SLOT_EXPERT_DOWN)));
    PROA_TRY(share_ffn(s, &s->shared_ffn, c->shared_ffn, block_of_stacks(params, PROA_SLOT_SHARED_DOWN)));
    share_outputs(s, arch, split);
    return PROA_OK;
}

/* Whether all heads of q and k are normed as one row. Ranks gather that row, of which all have parts of one size. */
static bool norms_whole_rows(const proa_arch *arch)
{
    bool whole = false;
    for (int i = 0; i < PROA_STACK_COUNT; i++)
        for (const proa_step *s = arch->stacks[i].layer; s && s->op != PROA_STEP_END; s++)
            whole = whole || (s->op == PROA_STEP_HEADS_NORM && s->flags & PROA_WHOLE);
    return whole;
}

/* Whether a step needs the whole row of what attention or the FFN's gate gives, of which a rank has a part. */
static bool needs_whole_rows(const proa_arch *arch, const proa_config *c)
{
    bool needs = false;
    for (int i = 0; i < PROA_STACK_COUNT; i++)
        for (const proa_step *s = arch->stacks[i].layer; s && s->op != PROA_STEP_END; s++) {
            bool part = s->out == PROA_REG_A || s->out == PROA_REG_F, whole = s->op == PROA_STEP_ROUND_ROWS;
            whole = whole || (s->op == PROA_STEP_NORM && s->in == s->out);
            needs = needs || (part && whole && proa_step_applies(s, c, PROA_SOME_LAYER));
        }
    return needs;
}

/* The end of a range of the next rank to be added: `unit` inputs for each number of it. */
static void add_share(proa_rank_share *share, int32_t rank, range r, int64_t unit, proa_config *c)
{
    share->first[rank + 1] = r.first + r.count;
    c->sum_part = proa_max64(c->sum_part, r.count * unit);
    c->sum_inputs = proa_max64(c->sum_inputs, share->first[rank + 1] * unit);
}

/* Inputs that a product takes of a head: its values, or latent attention's. */
static int64_t inputs_of_head(const sharder *s)
{
    return proa_max64(s->usual.dim, s->whole.kv_lora > 0 ? s->whole.v_dim : 0);
}

/* What all ranks have of the inputs, and the widths that follow from it. */
static proa_status share_inputs(const sharder *s, proa_rank_shares *shares, const proa_params *params,
                                const proa_arch *arch, proa_config *c)
{
    int64_t unused = 0;
    *shares = (proa_rank_shares){.ffn = PROA_ARENA_NEW(s->arena, proa_rank_share, ffn_count(c))};
    for (int32_t i = 0; i < s->ranks; i++) {
        sharder of = *s;
        range dense;
        of.rank = i;
        PROA_TRY(share_sizes(&of, params, arch, &unused));
        add_share(&shares->heads, i, of.usual.q, inputs_of_head(s), c);
        add_share(&shares->other_heads, i, of.other.q, s->other.dim, c);
        add_share(&shares->value_heads, i, of.value_heads, s->whole.value_dim, c);
        add_share(&shares->shared_ffn, i, of.shared_ffn, 1, c);
        PROA_TRY(share_encoder_ffn(&of, &dense));
        add_share(&shares->encoder_ffn, i, dense, 1, c);
        add_share(&shares->encoder_heads, i, of.encoder.q, s->encoder.dim, c);
        for (int64_t k = 0; k < ffn_count(&s->whole); k++) {
            PROA_TRY(share_dense(&of, k, &dense));
            add_share(&shares->ffn[k], i, dense, 1, c);
        }
    }
    c->sum_padded = c->sum_part * s->ranks;
    return PROA_OK;
}

/* Heads of recurrent states, and of the groups in which their output is normed the whole ones of this rank. */
static void share_recalled(const sharder *s, proa_config *c)
{
    int64_t width = c->recall_groups ? recall_width(c) : 0;
    c->value_heads = s->value_heads.count, c->key_heads = s->key_heads.count;
    if (s->parted_groups) c->recall_width = width, c->first_value = s->value_heads.first * c->value_dim;
    else if (width) c->recall_groups = c->value_heads * c->value_dim / width;
}

/* The sizes of the dense FFNs, of which `ffn` is the largest. */
static proa_status take_ffn(const sharder *s, proa_config *c)
{
    int64_t *sizes = c->ffn_sizes ? PROA_ARENA_NEW(s->arena, int64_t, c->layers) : NULL;
    range dense;
    c->ffn = 0;
    for (int64_t i = 0; i < ffn_count(&s->whole); i++) {
        PROA_TRY(share_dense(s, i, &dense));
        if (sizes) sizes[i] = dense.count;
        c->ffn = proa_max64(c->ffn, dense.count);
    }
    c->ffn_sizes = sizes;
    PROA_TRY(share_encoder_ffn(s, &dense));
    c->encoder_ffn = dense.count;
    return PROA_OK;
}

static void take_heads(const sharder *s, proa_config *c)
{
    c->all_heads = c->heads, c->first_head = s->usual.q.first;
    c->all_kv_heads = c->kv_heads, c->first_kv_head = s->usual.kv.first;
    c->heads = s->usual.q.count, c->kv_heads = s->usual.kv.count;
    c->encoder_heads = s->encoder.q.count;
    if (!c->other_heads) return; /* the keys of an indexer are whole in each rank */
    c->other_query_heads = s->other.q.count, c->other_kv_heads = s->other.kv.count;
}

static proa_status shard_params(sharder *s, proa_params *params, proa_stack_id stack)
{
    for (int64_t i = 0; i < (params->layers + 1) * PROA_SLOT_COUNT; i++) {
        int64_t layer = i / PROA_SLOT_COUNT;
        place at = {stack, layer < params->layers ? layer : PROA_SOME_LAYER,
                    (proa_weight_slot)(i % PROA_SLOT_COUNT)};
        if (params->param[i].parts) PROA_TRY(shard_param(s, &at, &params->param[i]));
    }
    return PROA_OK;
}

proa_status proa_shard(proa_params params[PROA_STACK_COUNT], const proa_arch *arch, proa_config *c,
                       const proa_sharding *how, proa_err *err)
{
    sharder s = {.whole = *c, .rank = how->rank, .ranks = how->ranks, .arena = how->arena, .err = err};
    s.whole_sums = how->shares != NULL;
    s.whole_norms = norms_whole_rows(arch);
    s.pages_of_both = arch->kind == PROA_KIND_ENCODER_DECODER;
    s.whole_experts = how->whole_experts && c->experts > 0;
    if (s.whole_norms && (c->heads % s.ranks || c->kv_heads % s.ranks))
        return PROA_FAIL(err, UNSUPPORTED,
                         "%s norms all heads as one row: its %lld and %lld heads must be multiples of "
                         "the %d ranks",
                         arch->name, (long long)c->heads, (long long)c->kv_heads, s.ranks);
    if (s.ranks > 1 && needs_whole_rows(arch, c))
        return PROA_FAIL(err, UNSUPPORTED,
                         "%s norms or rounds whole rows of what attention and the FFN give, which cannot be "
                         "divided among ranks (--tp)",
                         arch->name);
    PROA_TRY(share_sizes(&s, params, arch, &c->head_split));
    PROA_TRY(find_parted_groups(&s));
    if (how->shares) PROA_TRY(share_sums(&s, c));
    if (how->shares) PROA_TRY(share_inputs(&s, how->shares, params, arch, c));
    for (int i = 0; i < PROA_STACK_COUNT; i++) PROA_TRY(shard_params(&s, &params[i], (proa_stack_id)i));
    take_heads(&s, c);
    share_recalled(&s, c);
    PROA_TRY(take_ffn(&s, c));
    c->expert_ffn = c->experts ? s.expert_ffn.count : c->expert_ffn;
    c->own_experts = s.experts.count, c->first_expert = s.experts.first;
    c->shared_ffn = s.shared_ffn.count;
    if (c->deviations) c->gate_parts = s.ranks;
    return PROA_OK;
}
