/* SPDX-License-Identifier: Apache-2.0
 * bind.c - binds the checkpoint's tensors to weight slots by the name map of the architecture. */
#include "model/bind.h"

#include "base/checked.h"
#include "kernels/coded.h"
#include <math.h>
#include <string.h>

typedef struct binder {
    proa_params *out;
    const proa_arch *arch;
    const proa_config *c;
    const proa_weights *weights;
    proa_arena *arena;
    bool *used; /* [tensors of the checkpoint] */
    proa_err *err;
} binder;

/* One tensor that a row of the name map requires: its name and the shape of the matrix (rank 2) or vector (rank 1). */
typedef struct wanted {
    const proa_name *row;
    int64_t layer; /* -1: of none */
    char name[PROA_TENSOR_NAME_MAX];
    int64_t shape[3];
    int32_t rank;
    int64_t experts; /* > 0: shape[0] of a tensor that holds all experts */
    bool final;      /* the shape is that of the weight */
} wanted;

proa_param *proa_params_find(const proa_params *p, int64_t layer, proa_weight_slot slot)
{
    proa_param *param = proa_params_at(p, layer, slot);
    return param->parts ? param : proa_params_at(p, p->layers, slot);
}

/* ---- names ---- */

/* Replaces an ending: "x.LayerNorm.weight" by "x.LayerNorm.gamma". */
static const proa_weights_tensor *find_alias(const binder *b, const char *name)
{
    char other[PROA_TENSOR_NAME_MAX];
    for (const char *const *a = b->arch->aliases; a && *a; a += 2) {
        if (!proa_str_ends(proa_str_c(name), proa_str_c(a[0]))) continue;
        int keep = (int)(strlen(name) - strlen(a[0]));
        snprintf(other, sizeof other, "%.*s%s", keep, name, a[1]);
        const proa_weights_tensor *t = proa_weights_find(b->weights, other);
        if (t) return t;
    }
    return NULL;
}

static const proa_weights_tensor *find_one(const binder *b, const char *name)
{
    const proa_weights_tensor *t = proa_weights_find(b->weights, name);
    return t ? t : find_alias(b, name);
}

/* By its name with another beginning: "language_model.model.x" as "model.language_model.x". */
static const proa_weights_tensor *find_prefix_alias(const binder *b, const char *name)
{
    char other[PROA_TENSOR_NAME_MAX];
    for (const char *const *a = b->arch->prefix_aliases; a && *a; a += 2) {
        if (!proa_str_starts(proa_str_c(name), proa_str_c(a[0]))) continue;
        snprintf(other, sizeof other, "%s%s", a[1], name + strlen(a[0]));
        const proa_weights_tensor *t = find_one(b, other);
        if (t) return t;
    }
    return NULL;
}

/* By its name, with another beginning, or without a prefix that some checkpoints leave out. */
static const proa_weights_tensor *find_tensor(const binder *b, const char *name)
{
    const proa_weights_tensor *t = find_one(b, name);
    if (!t) t = find_prefix_alias(b, name);
    for (const char *const *p = b->arch->prefixes; !t && p && *p; p++)
        if (proa_str_starts(proa_str_c(name), proa_str_c(*p))) t = find_one(b, name + strlen(*p));
    return t;
}

static bool has_ignored_end(const proa_arch *arch, const char *name)
{
    for (const char *const *end = arch->ignored; end && *end; end++)
        if (proa_str_ends(proa_str_c(name), proa_str_c(*end))) return true;
    return false;
}

/* ---- tied heads ---- */

/* The head as a tensor of its own (UNTIED), or as the embedding (TIED); NULL if the row has no such head. */
static const proa_name *find_head(const proa_arch *arch, proa_flags condition)
{
    for (const proa_name *row = arch->names; row->name; row++)
        if (row->slot == PROA_SLOT_HEAD && row->role == PROA_ROLE_MATRIX && row->flags & condition)
            return row;
    return NULL;
}

/* Whether a tensor that is ignored has the name of such a head, not that of an embedding. */
static bool has_head_end(const char *name)
{
    proa_str s = proa_str_c(name);
    return proa_str_ends(s, proa_str_c("lm_head.weight")) || proa_str_ends(s, proa_str_c("decoder.weight"));
}

static bool is_plain(const proa_weights_tensor *t)
{
    return t->source.encoding == PROA_ENCODING_PLAIN && proa_view_dense(t->source.view);
}

static bool has_shape_of(const proa_weights_tensor *a, const proa_weights_tensor *b)
{
    const proa_view *x = &a->source.view, *y = &b->source.view;
    return x->rank == y->rank && memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) == 0;
}

/* Whether two tensors are one, or copies of each other. */
static bool is_copy(const proa_weights_tensor *a, const proa_weights_tensor *b)
{
    const proa_view *x = &a->source.view, *y = &b->source.view;
    if (x->dtype != y->dtype || !has_shape_of(a, b) || a->source.encoding != b->source.encoding) return false;
    if (x->data == y->data) return true;
    size_t bytes = (size_t)(proa_view_count(*x) * proa_dtype_bytes(x->dtype));
    return is_plain(a) && is_plain(b) && memcmp(x->data, y->data, bytes) == 0;
}

/* Where a checkpoint holds a head beside the embedding and their numbers differ, the configuration is wrong, and the
 * head is not tied. transformers 5 does so too: it writes tie_word_embeddings true for every T5 and mT5, of which
 * v1.1 and all mT5 have heads of their own. Where config.json says nothing, multimodal classes have defaults of their
 * own: a checkpoint without a head has a tied one. */
static void settle_head(const binder *b, proa_config *c)
{
    const proa_name *own = find_head(b->arch, PROA_IF(UNTIED)), *tied = find_head(b->arch, PROA_IF(TIED));
    if (!b->weights || !own || !tied) return;
    const proa_weights_tensor *head = find_tensor(b, own->name), *table = find_tensor(b, tied->name);
    if (b->arch->text && !head && table) c->tied = true;
    if (!c->tied) return;
    if (head && table && has_shape_of(head, table) && !is_copy(head, table)) c->tied = false;
}

static void fill_name(char out[PROA_TENSOR_NAME_MAX], const char *name, int64_t layer, int64_t expert);
static bool has_placeholders(const char *name, int count);

/* The first layer that has the tensor, or -1. */
static int64_t first_layer_of(const binder *b, const proa_name *row)
{
    for (int64_t i = 0; i < b->out[row->stack].layers; i++)
        if (proa_name_applies(row, b->c, i)) return i;
    return -1;
}

/* Stacked experts [experts, rows, cols] are published transposed, but transformers 5 saves them as they are (Qwen3-VL).
 * Where the map has both forms, the first tensor whose matrices are no squares tells which it is. */
static void find_expert_order(const binder *b, proa_config *c)
{
    char name[PROA_TENSOR_NAME_MAX];
    c->experts_in_rows = true;
    for (const proa_name *row = b->arch->names; b->weights && row->name; row++) {
        int64_t layer = row->flags & PROA_IF(EXPERTS_IN_ROWS) ? first_layer_of(b, row) : -1;
        if (layer < 0) continue;
        fill_name(name, row->name, layer, 0);
        const proa_weights_tensor *t = find_tensor(b, name);
        int64_t rows = proa_dim_size(c, row->rows), cols = proa_dim_size(c, row->cols);
        if (!t || rows == cols) continue;
        const proa_view *v = &t->source.view;
        c->experts_in_rows = v->rank == 3 && v->shape[1] == rows && v->shape[2] == cols;
        return;
    }
    c->experts_in_rows = false;
}

/* Where the map has tensors of each expert and stacked ones, the names in the checkpoint tell which it is. */
static void find_expert_names(const binder *b, proa_config *c)
{
    char name[PROA_TENSOR_NAME_MAX];
    c->experts_apart = true;
    for (const proa_name *row = b->arch->names; b->weights && row->name; row++) {
        int64_t layer = row->flags & PROA_IF(EXPERTS_APART) ? first_layer_of(b, row) : -1;
        if (layer < 0) continue;
        fill_name(name, row->name, layer, 0);
        c->experts_apart = find_tensor(b, name) != NULL;
        return;
    }
    c->experts_apart = false;
}

/* Writes the numbers of the layer and of the expert or head in place of the first and the second "%d". */
static void fill_name(char out[PROA_TENSOR_NAME_MAX], const char *name, int64_t layer, int64_t expert)
{
    const char *first = strstr(name, "%d"), *second = first ? strstr(first + 2, "%d") : NULL;
    if (!first) snprintf(out, PROA_TENSOR_NAME_MAX, "%s", name);
    else if (!second)
        snprintf(out, PROA_TENSOR_NAME_MAX, "%.*s%lld%s", (int)(first - name), name, (long long)layer, first + 2);
    else
        snprintf(out, PROA_TENSOR_NAME_MAX, "%.*s%lld%.*s%lld%s", (int)(first - name), name, (long long)layer,
                 (int)(second - first - 2), first + 2, (long long)expert, second + 2);
}

/* ---- shapes ---- */

static proa_status fail_missing(const binder *b, const wanted *w)
{
    char text[64];
    const char *near = proa_weights_nearest(b->weights, w->name);
    proa_shape_text(text, w->rank, w->shape);
    if (near)
        return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is missing (there is '%s')", w->name, text, near);
    return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is missing", w->name, text);
}

/* Merges neighbouring axes of the stored shape until it is the wanted one; false if that cannot be. A stored number
 * without axes is one of one. A stored tensor
 * that is not dense has the wanted rank or is refused. */
static bool merge_axes(proa_view *v, int32_t rank, const int64_t *shape)
{
    int32_t from = 0;
    if (v->rank == rank) return memcmp(v->shape, shape, (size_t)rank * sizeof *shape) == 0;
    if ((v->rank < rank && v->rank > 0) || !proa_view_dense(*v)) return false;
    for (int32_t i = 0; i < rank; i++) {
        int64_t size = 1;
        while (from < v->rank && size < shape[i]) size *= v->shape[from++];
        while (i == rank - 1 && from < v->rank && v->shape[from] == 1) from++;
        if (size != shape[i]) return false;
    }
    if (from != v->rank) return false;
    *v = proa_view_of(v->data, v->dtype, rank, shape);
    return true;
}

/* The experts of a tensor whose rows are those of all of them, one behind the other. */
static void split_experts(proa_view *v, const wanted *w)
{
    const int64_t *shape = w->shape;
    if (!w->experts || w->rank != 3 || v->rank != 2 || !proa_view_dense(*v)) return;
    if (v->shape[0] == shape[0] * shape[1] && v->shape[1] == shape[2])
        *v = proa_view_of(v->data, v->dtype, 3, shape);
}

/* The axis of a stored tensor along which its blocks must be: that of the inputs of a row. A head's rows are cut out
 * before they may be transposed. */
static int32_t block_axis(const wanted *w, const proa_weights_tensor *t, const proa_view *v)
{
    bool transposed = w->row->role == PROA_ROLE_TRANSPOSED && !t->final && !(w->row->flags & PROA_OF_HEADS);
    return transposed ? v->rank - 2 : v->rank - 1;
}

/* Whether rows of n numbers are whole blocks. Heads of one column could not be transposed (source.h). */
static bool has_whole_blocks(const proa_tensor_source *s, int64_t n, bool of_heads)
{
    if (s->encoding == PROA_ENCODING_SCALED) return !of_heads || n > 1;
    return proa_encoding_row_bytes(s->encoding, n) >= 0;
}

/* The blocks of an encoded matrix must be along the inputs of each row: vectors and matrices that a row of the map takes
 * transposed cannot be decoded row by row. */
static proa_status check_blocks(const binder *b, const proa_weights_tensor *t, const wanted *w,
                                const proa_tensor_source *s)
{
    const proa_view *v = &s->view;
    bool of_heads = w->row->flags & PROA_OF_HEADS;
    int32_t along = block_axis(w, t, v);
    if (proa_encoding_is_computed(s->encoding) || s->encoding == PROA_ENCODING_PLAIN) return PROA_OK;
    if (!proa_encoding_is_readable(s->encoding)) return PROA_OK;
    if (s->encoding == PROA_ENCODING_PIECES && !w->experts && !of_heads) return PROA_OK;
    bool dense = v->stride[along] == 1 || v->shape[along] == 1;
    if (w->row->role != PROA_ROLE_VECTOR && dense && has_whole_blocks(s, v->shape[along], of_heads))
        return PROA_OK;
    return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is encoded as %s, its blocks are not along its rows",
                     t->name, proa_encoding_name(s->encoding));
}

static proa_status check_tensor(const binder *b, const proa_weights_tensor *t, const wanted *w,
                                proa_tensor_source *out)
{
    char have[64], want[64];
    *out = t->source;
    /* of a packed tensor the view is a shape only */
    if (out->encoding == PROA_ENCODING_PLAIN || out->encoding == PROA_ENCODING_PACKED)
        split_experts(&out->view, w);
    if (!merge_axes(&out->view, w->rank, w->shape))
        return PROA_FAIL(b->err, INVALID, "tensor '%s' is %s, expected %s", t->name,
                         proa_shape_text(have, t->source.view.rank, t->source.view.shape),
                         proa_shape_text(want, w->rank, w->shape));
    proa_dtype d = out->view.dtype;
    if (proa_tensor_source_is_float(out) && d != PROA_DTYPE_F32 && d != PROA_DTYPE_F16 && d != PROA_DTYPE_BF16)
        return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is %s; f32, f16 and bf16 are supported", t->name,
                         proa_dtype_name(d));
    return check_blocks(b, t, w, out);
}

/* ---- adapters of a task ---- */

/* The matrix of the chosen task in a tensor [tasks, rows, cols] beside t. */
static proa_status find_of_task(const binder *b, const proa_weights_tensor *t, int which, int64_t rows,
                                int64_t cols, proa_view *out)
{
    char name[PROA_TENSOR_NAME_MAX];
    const char *const *ends = b->arch->merged;
    int keep = (int)(strlen(t->name) - strlen(ends[0]));
    snprintf(name, sizeof name, "%.*s%s", keep, t->name, ends[which]);
    const proa_weights_tensor *of = proa_weights_find(b->weights, name);
    if (!of)
        return PROA_FAIL(b->err, INVALID, "tensor '%s', which has the adapters of tasks, is missing", name);
    const proa_view *v = &of->source.view;
    bool floats = proa_tensor_source_is_plain(&of->source) && proa_dtype_floating(v->dtype);
    if (!floats || v->rank != 3 || v->shape[0] < b->c->merged_task || v->shape[1] != rows || v->shape[2] != cols)
        return PROA_FAIL(b->err, INVALID, "tensor '%s' must have floats [%lld tasks or more, %lld, %lld]",
                         name, (long long)b->c->merged_task, (long long)rows, (long long)cols);
    *out = proa_tensor_source_slice(&of->source, b->c->merged_task - 1).view;
    return PROA_OK;
}

/* Adds the adapter of the chosen task to a matrix that has some; a packed one has it already. */
static proa_status merge_task(const binder *b, const proa_weights_tensor *t, const wanted *w,
                              proa_tensor_source *source)
{
    bool has_some = b->arch->merged && proa_str_ends(proa_str_c(t->name), proa_str_c(b->arch->merged[0]));
    bool packed = t->final || source->encoding == PROA_ENCODING_PACKED;
    if (!b->c->merged_task || !has_some || packed) return PROA_OK;
    if (source->encoding != PROA_ENCODING_PLAIN)
        return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is encoded: an adapter cannot be added to it",
                         t->name);
    proa_low_rank_sum *sum = PROA_ARENA_NEW(b->arena, proa_low_rank_sum, 1);
    int64_t rows = w->shape[0], cols = w->shape[1], rank = b->c->merged_rank;
    bool table = w->row->role == PROA_ROLE_TABLE;
    *sum = (proa_low_rank_sum){.base = source->view, .scale = (float)b->c->merged_scale};
    PROA_TRY(find_of_task(b, t, table ? 1 : 2, rows, rank, &sum->left));
    PROA_TRY(find_of_task(b, t, table ? 2 : 1, rank, cols, &sum->right));
    source->encoding = PROA_ENCODING_LOW_RANK;
    source->view = proa_view_of(sum, source->view.dtype, 2, w->shape);
    return PROA_OK;
}

/* ---- adapters of layers that share a block ---- */

/* One of the two matrices of an adapter, floats [rows, cols]; rows or cols 0: any number. */
static proa_status find_of_use(const binder *b, const char *name, int64_t rows, int64_t cols, proa_view *out)
{
    const proa_weights_tensor *of = find_tensor(b, name);
    if (!of) return PROA_FAIL(b->err, INVALID, "tensor '%s', an adapter of a shared block, is missing", name);
    const proa_view *v = &of->source.view;
    bool floats = proa_tensor_source_is_plain(&of->source) && proa_dtype_floating(v->dtype) && v->rank == 2;
    if (!floats || (rows && v->shape[0] != rows) || (cols && v->shape[1] != cols))
        return PROA_FAIL(b->err, INVALID, "tensor '%s' must have floats of the adapter of a matrix [%lld, %lld]",
                         name, (long long)rows, (long long)cols);
    b->used[of - proa_weights_at(b->weights, 0)] = true;
    *out = *v;
    return PROA_OK;
}

static const char *adapter_of(const binder *b, const wanted *w)
{
    for (const char *const *a = b->c->block_adapters; a && *a && w->row->flags & PROA_OF_BLOCK; a += 2)
        if (proa_str_ends(proa_str_c(w->name), proa_str_c(a[0]))) return *a;
    return NULL;
}

/* Adds the adapter that a layer has for a matrix which it shares with others; a packed one has it already. */
static proa_status merge_use(const binder *b, const proa_weights_tensor *t, const wanted *w,
                             proa_tensor_source *source)
{
    char pattern[PROA_TENSOR_NAME_MAX], name[PROA_TENSOR_NAME_MAX + 16];
    const char *const *a = b->c->block_adapters;
    const char *end = b->weights ? adapter_of(b, w) : NULL;
    if (!end || t->final || source->encoding == PROA_ENCODING_PACKED) return PROA_OK;
    if (source->encoding != PROA_ENCODING_PLAIN)
        return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is encoded: an adapter cannot be added to it",
                         t->name);
    while (*a != end) a += 2;
    snprintf(pattern, sizeof pattern, "%.*s%s", (int)(strlen(w->name) - strlen(end)), w->name, a[1]);
    fill_name(name, pattern, b->c->block_uses[w->layer], 0);
    size_t length = strlen(name);
    proa_low_rank_sum *sum = PROA_ARENA_NEW(b->arena, proa_low_rank_sum, 1);
    *sum = (proa_low_rank_sum){.base = source->view, .scale = 1};
    snprintf(name + length, sizeof name - length, ".0.weight");
    PROA_TRY(find_of_use(b, name, 0, w->shape[1], &sum->right));
    snprintf(name + length, sizeof name - length, ".1.weight");
    PROA_TRY(find_of_use(b, name, w->shape[0], sum->right.shape[0], &sum->left));
    source->encoding = PROA_ENCODING_LOW_RANK;
    source->view = proa_view_of(sum, source->view.dtype, 2, w->shape);
    return PROA_OK;
}

/* ---- parts ---- */

static void add_part(const binder *b, proa_param *param, proa_weight_part part)
{
    if (param->parts == param->cap) {
        int32_t cap = param->cap ? 2 * param->cap : 3;
        proa_weight_part *more = PROA_ARENA_NEW(b->arena, proa_weight_part, cap);
        if (param->parts) memcpy(more, param->part, (size_t)param->parts * sizeof *more);
        param->part = more, param->cap = cap;
    }
    part.place = param->parts;
    param->part[param->parts++] = part;
}

/* Column (input, tap) of the weight is the stored one of (last tap - tap, input). */
static void turn_taps(const proa_config *c, proa_tensor_source *source)
{
    int64_t taps = c->conv_width, inputs = source->view.shape[1] / taps;
    source->col_order = (proa_row_order){(taps - 1) * inputs, {inputs, taps, 1}, {1, -inputs, 0}};
}

/* Columns [col, col + count) of some rows in a matrix. */
static void put_piece(proa_tensor_piece *piece, proa_view view, int64_t row, int64_t col)
{
    *piece = (proa_tensor_piece){.view = view, .row = row, .col = col};
}

/* A matrix in which the rows of a group read the inputs of the group, and zeros elsewhere. */
static void spread_groups(const binder *b, int64_t cols, proa_tensor_source *source)
{
    proa_view v = source->view;
    int64_t each = v.shape[1], groups = cols / each, rows = v.shape[0] / groups, shape[2] = {v.shape[0], cols};
    if (groups == 1) return;
    if (source->encoding == PROA_ENCODING_PACKED) { /* it has the zeros */
        source->view = proa_view_of(NULL, v.dtype, 2, shape);
        return;
    }
    proa_tensor_pieces *pieces = PROA_ARENA_NEW(b->arena, proa_tensor_pieces, 1);
    proa_tensor_piece *piece = PROA_ARENA_NEW(b->arena, proa_tensor_piece, 3 * groups);
    proa_view zeros = proa_view_2d(PROA_ARENA_NEW(b->arena, float, cols), v.dtype, rows, cols);
    zeros.stride[0] = 0;
    *pieces = (proa_tensor_pieces){.cols = cols, .count = (int32_t)(3 * groups), .piece = piece};
    for (int64_t g = 0; g < groups; g++) {
        int64_t row = g * rows, first = g * each, end = first + each;
        put_piece(piece++, proa_view_cols(zeros, 0, first), row, 0);
        put_piece(piece++, proa_view_rows(v, row, row + rows), row, first);
        put_piece(piece++, proa_view_cols(zeros, end, cols), row, end);
    }
    source->encoding = PROA_ENCODING_PIECES;
    source->view = proa_view_of(pieces, v.dtype, 2, shape);
}

/* The parts of one matrix, vector or table, by the load action. */
static void add_parts(const binder *b, proa_param *param, const proa_name *row, proa_weight_part part)
{
    proa_row_order order[PROA_LOAD_ORDERS_MAX];
    int orders = part.tensor->final ? 0 : proa_load_orders(order, row->load, b->c, part.source.view.shape[0]);
    part.normalised = row->load == PROA_LOAD_NORMALISED;
    if (row->load == PROA_LOAD_TAPS_TURNED && !part.tensor->final) turn_taps(b->c, &part.source);
    if (row->load == PROA_LOAD_GROUPED && !part.tensor->final) spread_groups(b, param->cols, &part.source);
    if (orders == 0) add_part(b, param, part);
    for (int i = 0; i < orders; i++) {
        part.source.order = order[i];
        add_part(b, param, part);
    }
}

/* What the stored numbers are divided by before they become -1, 0 or 1: the mean of their magnitudes, at least 1e-5, is
 * that of the whole tensor, whatever part of it a rank has. */
static float find_ternary_unit(const proa_tensor_source *whole)
{
    float row[256];
    double sum = 0;
    int64_t rows = proa_tensor_source_rows(whole), cols = proa_tensor_source_cols(whole);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t at = 0, n; at < cols; at += n) {
            n = proa_min64((int64_t)PROA_COUNT(row), cols - at);
            proa_tensor_source_read(whole, i, at, n, row);
            for (int64_t k = 0; k < n; k++) sum += (double)fabsf(row[k]);
        }
    return 1.0f / fmaxf((float)(sum / (double)proa_max64(rows * cols, 1)), 1e-5f);
}

static bool is_ternary_master(const binder *b, const proa_name *row, const proa_tensor_source *s)
{
    bool stored = proa_encoding_is_readable(s->encoding) && proa_tensor_source_is_float(s) && s->view.data;
    return b->c->ternary_masters && stored && row->role == PROA_ROLE_MATRIX && has_placeholders(row->name, 1);
}

static void add_matrix(const binder *b, proa_param *param, const proa_name *row, proa_weight_part part)
{
    proa_view *v = &part.source.view;
    if (row->role == PROA_ROLE_TRANSPOSED && !part.tensor->final) *v = proa_view_transpose(*v);
    if (v->rank == 1) v->rank = 2, v->shape[1] = 1, v->stride[1] = 1;
    if (row->flags & PROA_PLUS_ONE && !part.tensor->final) part.source.plus += 1.0f;
    if (is_ternary_master(b, row, &part.source)) part.source.ternary = find_ternary_unit(&part.source);
    add_parts(b, param, row, part);
}

/* Rows of each head, one matrix after the other; a final tensor has a matrix for each head. */
static void add_heads(const binder *b, proa_param *param, const proa_name *row, proa_weight_part part)
{
    const proa_config *c = b->c;
    bool keys = row->load == PROA_LOAD_HEAD_KEYS;
    const proa_tensor_source all = part.source;
    param->experts = c->heads, param->heads = true;
    param->rows = proa_dim_size(c, row->rows);
    for (int64_t h = 0; h < c->heads; h++) {
        int64_t first = h * (c->qk_nope + c->v_dim) + (keys ? 0 : c->qk_nope);
        if (part.tensor->final) part.source = proa_tensor_source_slice(&all, h);
        else part.source = proa_tensor_source_rows_of(&all, first, keys ? c->qk_nope : c->v_dim);
        part.expert = (int32_t)h;
        add_matrix(b, param, row, part);
    }
}

/* The axis of the rows of a stored tensor: after that of the experts. */
static int row_axis(const wanted *w)
{
    bool transposed = w->row->role == PROA_ROLE_TRANSPOSED && !w->final;
    return (w->experts ? 1 : 0) + (transposed ? 1 : 0);
}

static void add_tensor(const binder *b, proa_param *param, const wanted *w, const proa_weights_tensor *t,
                       const proa_tensor_source *source, int64_t expert)
{
    proa_weight_part part = {.source = *source, .tensor = t, .row = w->row, .expert = (int32_t)expert};
    bool matrix = w->row->role != PROA_ROLE_VECTOR, first = expert == 0;
    param->role = w->row->role;
    param->load_only = w->row->flags & PROA_LOAD_ONLY;
    param->projected = w->row->flags & PROA_PROJECTED;
    param->shared = w->row->role == PROA_ROLE_TABLE && w->row->flags & PROA_SHARED;
    if (first) param->rows += w->row->load == PROA_LOAD_SPREAD ? b->c->hidden : w->shape[row_axis(w)];
    param->cols = matrix ? proa_dim_in_layer(b->c, w->row->cols, w->layer) : 0;
    if (w->row->flags & PROA_PER_EXPERT) param->experts = b->c->experts;
    if (b->weights && !proa_encoding_is_computed(source->encoding))
        b->used[t - proa_weights_at(b->weights, 0)] = true; /* the tensors are one sorted array */
    if (w->row->flags & PROA_OF_HEADS) {
        add_heads(b, param, w->row, part);
        return;
    }
    if (!w->experts) {
        add_matrix(b, param, w->row, part);
        return;
    }
    for (int64_t e = 0; e < w->experts; e++) {
        part.source = proa_tensor_source_slice(source, e);
        part.expert = (int32_t)e;
        add_matrix(b, param, w->row, part);
    }
}

/* ---- rows of the name map ---- */

static bool has_placeholders(const char *name, int count)
{
    for (; count > 0 && (name = strstr(name, "%d")); count--) name += 2;
    return count == 0;
}

/* Without a checkpoint: a matrix of a layer in codes, those of four bits with zero points. */
static void make_codes(const binder *b, const wanted *w, proa_tensor_source *source)
{
    proa_scaled_codes *codes = PROA_ARENA_NEW(b->arena, proa_scaled_codes, 1);
    *codes = (proa_scaled_codes){.kind = PROA_CODE_U4, .row_group = 1, .col_group = b->c->code_group};
    if (b->c->code_bits == 8) codes->kind = b->c->code_e4m3 ? PROA_CODE_FP8 : PROA_CODE_I8;
    else codes->has_zeros = true;
    if (w->row->role != PROA_ROLE_MATRIX || !has_placeholders(w->row->name, 1)) return;
    source->encoding = PROA_ENCODING_SCALED, source->scaled = codes;
}

/* A tensor of this shape without data: computed, or where there is no checkpoint (synthetic.h). */
static const proa_weights_tensor *make_tensor(const binder *b, const wanted *w, proa_encoding encoding)
{
    proa_weights_tensor *t = PROA_ARENA_NEW(b->arena, proa_weights_tensor, 1);
    t->name = proa_arena_strdup(b->arena, proa_str_c(w->name));
    t->source = proa_tensor_source_of(proa_view_of(NULL, PROA_DTYPE_F16, w->rank, w->shape));
    t->source.encoding = encoding;
    if (!b->weights && b->c->code_group) make_codes(b, w, &t->source);
    return t;
}

/* Logarithms of the decays of lightning attention: those of ALiBi's slopes, which fall from layer to layer to almost
 * nothing in the last one. */
static const proa_weights_tensor *make_slopes(const binder *b, const wanted *w)
{
    int64_t heads = w->shape[0];
    double last = (double)b->c->layers - 1 + 1e-5, factor = 1 - (double)w->layer / last + 1e-5;
    float *values = PROA_ARENA_NEW(b->arena, float, heads);
    for (int64_t h = 0; h < heads; h++)
        values[h] = (float)(log(factor) - 8 * log(2) * (double)(h + 1) / (double)heads);
    proa_weights_tensor *t = PROA_ARENA_NEW(b->arena, proa_weights_tensor, 1);
    t->name = proa_arena_strdup(b->arena, proa_str_c(w->name));
    t->source = proa_tensor_source_of(proa_view_1d(values, PROA_DTYPE_F32, heads));
    t->source.encoding = PROA_ENCODING_MADE;
    return t;
}

/* The embedding by another of its names, where the file has not its own: tools that write tensors which share
 * memory once (safetensors' save_model) keep the first in order, which may be that of a tied head. */
static const proa_weights_tensor *find_copy(const binder *b, const wanted *w)
{
    const proa_name *own = find_head(b->arch, PROA_IF(UNTIED));
    const proa_weights_tensor *head = own ? find_tensor(b, own->name) : NULL;
    if (w->row->slot != PROA_SLOT_TOKENS && !(w->row->flags & PROA_IF(TIED))) return NULL;
    if (head && b->c->tied) return head;
    for (int64_t i = 0; i < proa_weights_count(b->weights); i++) {
        const proa_weights_tensor *t = proa_weights_at(b->weights, i);
        const proa_view *v = &t->source.view;
        bool alike = v->rank == w->rank && memcmp(v->shape, w->shape, (size_t)w->rank * sizeof *w->shape) == 0;
        bool tied = b->c->tied || !has_head_end(t->name);
        if (alike && tied && t != head && has_ignored_end(b->arch, t->name)) return t;
    }
    return NULL;
}

/* The tensor of the checkpoint. If it has none, the tensor is made if the row says how, or if there is no checkpoint
 * at all. NULL: there is none. */
static const proa_weights_tensor *find_or_make(const binder *b, const wanted *w)
{
    const proa_weights_tensor *t = b->weights ? find_tensor(b, w->name) : NULL;
    if (!t && b->weights) t = find_copy(b, w);
    if (t) return t;
    if (w->row->load == PROA_LOAD_SINUSOID_HALVES) return make_tensor(b, w, PROA_ENCODING_SINUSOID_HALVES);
    if (w->row->load == PROA_LOAD_SINUSOID_PAIRS) return make_tensor(b, w, PROA_ENCODING_SINUSOID_PAIRS);
    if (w->row->load == PROA_LOAD_SINUSOID_ENDS) return make_tensor(b, w, PROA_ENCODING_SINUSOID_ENDS);
    if (w->row->load == PROA_LOAD_ONES) return make_tensor(b, w, PROA_ENCODING_ONES);
    if (w->row->load == PROA_LOAD_ZEROS) return make_tensor(b, w, PROA_ENCODING_ZEROS);
    if (w->row->load == PROA_LOAD_SLOPES) return make_slopes(b, w);
    return b->weights || w->row->flags & PROA_IF(PRESENT) ? NULL : make_tensor(b, w, PROA_ENCODING_PLAIN);
}

bool proa_name_has_all_experts(const proa_name *row)
{
    return row->flags & PROA_PER_EXPERT && !has_placeholders(row->name, 2);
}

/* A tensor that is stored as it is used has the shape of the weight, or those of all heads. */
static void want_final(const binder *b, wanted *w)
{
    w->final = true;
    if (w->row->flags & PROA_OF_HEADS) {
        const int64_t shape[3] = {b->c->heads, proa_dim_size(b->c, w->row->rows),
                                  proa_dim_size(b->c, w->row->cols)};
        w->rank = 3, w->experts = b->c->heads;
        memcpy(w->shape, shape, sizeof shape);
        return;
    }
    if (w->row->load == PROA_LOAD_SPREAD) w->shape[0] = b->c->hidden;
    if (w->row->role != PROA_ROLE_TRANSPOSED) return;
    int64_t *shape = &w->shape[w->rank - 2], rows = shape[1];
    shape[1] = shape[0], shape[0] = rows;
}

/* The stored shape says how many groups there are. */
static proa_status want_groups(const binder *b, wanted *w, const proa_weights_tensor *t)
{
    int64_t rows = w->shape[0], cols = w->shape[1],
            each = t->source.view.rank > 1 ? t->source.view.shape[1] : cols;
    if (each < 1 || cols % each || rows % (cols / each)) return PROA_OK; /* check_tensor names both shapes */
    bool known = t->source.encoding == PROA_ENCODING_PLAIN || t->source.encoding == PROA_ENCODING_PACKED;
    if (!known && each < cols)
        return PROA_FAIL(b->err, UNSUPPORTED, "tensor '%s' is encoded as %s: its groups cannot be taken apart",
                         t->name, proa_encoding_name(t->source.encoding));
    w->shape[1] = each;
    return PROA_OK;
}

/* Puts the language of the configuration into a name. */
static void fill_language(const binder *b, char name[PROA_TENSOR_NAME_MAX])
{
    char *at = strstr(name, PROA_LANGUAGE), rest[PROA_TENSOR_NAME_MAX];
    if (!at) return;
    snprintf(rest, sizeof rest, "%s", at + strlen(PROA_LANGUAGE));
    snprintf(at, (size_t)(name + PROA_TENSOR_NAME_MAX - at), "%s%s", b->c->language, rest);
}

static wanted want_tensor(const binder *b, const proa_name *row, int64_t layer, int64_t number)
{
    wanted w = {.row = row, .layer = has_placeholders(row->name, 1) ? layer : PROA_SOME_LAYER};
    int64_t rows = proa_dim_in_layer(b->c, row->rows, w.layer),
            cols = proa_dim_in_layer(b->c, row->cols, w.layer);
    bool vector = row->role == PROA_ROLE_VECTOR, transposed = row->role == PROA_ROLE_TRANSPOSED;
    fill_name(w.name, row->name, row->flags & PROA_OF_BLOCK ? b->c->block_layers[layer] : layer, number);
    fill_language(b, w.name);
    if (row->flags & PROA_OF_HEADS) { /* all heads, keys and values */
        w.rank = 2, w.shape[0] = b->c->heads * (b->c->qk_nope + b->c->v_dim), w.shape[1] = b->c->kv_lora;
        return w;
    }
    if (proa_name_has_all_experts(row)) w.experts = w.shape[w.rank++] = b->c->experts;
    w.shape[w.rank++] = row->load == PROA_LOAD_SPREAD ? 1 : transposed ? cols : rows;
    if (!vector) w.shape[w.rank++] = transposed ? rows : cols;
    return w;
}

/* number: of the expert or head. */
/* A final tensor may be stored in parts, whose rows follow each other: NAME, NAME#2, ... The part of w that t is. */
static wanted want_part(const wanted *w, const proa_weights_tensor *t, int64_t rows)
{
    wanted part = *w;
    const proa_view *v = &t->source.view;
    int axis = row_axis(w);
    part.shape[axis] = rows;
    if (t->final && v->rank == w->rank && v->shape[axis] > 0 && v->shape[axis] < rows)
        part.shape[axis] = v->shape[axis];
    return part;
}

static proa_status bind_parts(const binder *b, const wanted *w, const proa_weights_tensor *t,
                              proa_param *param, int64_t expert)
{
    int64_t rows = w->shape[row_axis(w)];
    proa_tensor_source source;
    for (int number = 2;; number++) {
        char name[PROA_TENSOR_NAME_MAX + 16];
        wanted part = want_part(w, t, rows);
        PROA_TRY(check_tensor(b, t, &part, &source));
        PROA_TRY(merge_task(b, t, &part, &source));
        PROA_TRY(merge_use(b, t, &part, &source));
        add_tensor(b, param, &part, t, &source, expert);
        rows -= part.shape[row_axis(w)];
        if (rows == 0) return PROA_OK;
        snprintf(name, sizeof name, "%s#%d", w->name, number);
        t = find_tensor(b, name);
        if (!t)
            return PROA_FAIL(b->err, INVALID, "tensor '%s' has %lld rows too few", w->name, (long long)rows);
    }
}

/* Where keys and values of the heads are final, they are two tensors: NAME and NAME#2. */
static const proa_weights_tensor *find_values(const binder *b, const wanted *w)
{
    char name[PROA_TENSOR_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s#2", w->name);
    return find_tensor(b, name);
}

static void skip_tensor(const binder *b, const char *name)
{
    const proa_weights_tensor *t = b->weights ? find_tensor(b, name) : NULL;
    if (t) b->used[t - proa_weights_at(b->weights, 0)] = true;
}

static proa_status bind_one(const binder *b, const proa_name *row, int64_t layer, int64_t number)
{
    const proa_params *stack = &b->out[row->stack];
    wanted w = want_tensor(b, row, layer, number);
    if (row->flags & PROA_UNUSED) return skip_tensor(b, w.name), PROA_OK;
    const proa_weights_tensor *t = find_or_make(b, &w);
    if (!t) return row->flags & PROA_IF(PRESENT) ? PROA_OK : fail_missing(b, &w);
    if (t->final && row->load == PROA_LOAD_HEAD_VALUES) t = find_values(b, &w);
    if (!t) return fail_missing(b, &w);
    if (t->final) want_final(b, &w);
    else if (row->load == PROA_LOAD_GROUPED) PROA_TRY(want_groups(b, &w, t));
    int64_t at = has_placeholders(row->name, 1) ? layer : stack->layers;
    int64_t expert = row->flags & PROA_PER_EXPERT ? number : 0;
    return bind_parts(b, &w, t, proa_params_at(stack, at, row->slot), expert);
}

/* Whether the tensor belongs to a layer after the last one that the configuration counts, or to an empty one. */
static bool is_unused_layer(const binder *b, const char *name)
{
    const char *at = strstr(name, "layers.");
    int64_t layer = at ? strtoll(at + 7, NULL, 10) : -1;
    if (layer >= 0 && layer < b->c->layers) return proa_config_is_empty(b->c, layer);
    return layer >= b->c->layers && layer < b->c->layers + b->c->unused_layers;
}

/* Whether it is such a tensor as one with the language in its name, of another language. */
static bool is_of_language(const binder *b, const char *name)
{
    for (const proa_name *row = b->arch->names; row->name; row++) {
        const char *at = strstr(row->name, PROA_LANGUAGE), *begin = strstr(row->name, "%d.");
        char before[PROA_TENSOR_NAME_MAX];
        if (!at || !begin) continue;
        snprintf(before, sizeof before, "%.*s", (int)(at - begin - 2), begin + 2);
        bool alike = strstr(name, before) != NULL;
        if (alike && proa_str_ends(proa_str_c(name), proa_str_c(at + strlen(PROA_LANGUAGE)))) return true;
    }
    return false;
}

static bool is_ignored(const binder *b, const char *name)
{
    if (is_unused_layer(b, name) || has_ignored_end(b->arch, name) || is_of_language(b, name)) return true;
    for (const char *const *part = b->arch->unused_parts; part && *part; part++)
        if (proa_str_starts(proa_str_c(name), proa_str_c(*part))) return true;
    return false;
}

/* A second name of a tensor that is bound: torch saves tied weights under each of their names. */
static bool is_second_name(const binder *b, const proa_weights_tensor *t)
{
    const proa_tensor_source *s = &t->source;
    for (int64_t i = 0; i < proa_weights_count(b->weights); i++) {
        const proa_tensor_source *other = &proa_weights_at(b->weights, i)->source;
        if (b->used[i] && s->encoding == other->encoding && memcmp(&s->view, &other->view, sizeof s->view) == 0)
            return true;
    }
    return false;
}

/* The table of tokens, if the row has one and the checkpoint holds it under its own name. */
static const proa_weights_tensor *find_table(const binder *b)
{
    for (const proa_name *row = b->arch->names; row->name; row++)
        if (row->slot == PROA_SLOT_TOKENS && row->role == PROA_ROLE_TABLE) return find_tensor(b, row->name);
    return NULL;
}

/* Copies of the embedding need not be read, unless they are none: stacks with embeddings of their own. A head is not
 * read either where the row has none: a checkpoint of another class of the model. */
static proa_status check_copy(const binder *b, const proa_weights_tensor *t, const proa_weights_tensor *table)
{
    if (has_head_end(t->name) && !find_head(b->arch, PROA_IF(TIED) | PROA_IF(UNTIED))) return PROA_OK;
    if (!table || !has_ignored_end(b->arch, t->name) || !is_plain(t) || !is_plain(table)) return PROA_OK;
    if (!has_shape_of(t, table) || is_copy(t, table)) return PROA_OK;
    return PROA_FAIL(b->err, UNSUPPORTED,
                     "tensor '%s' differs from '%s': embeddings of their own are not supported", t->name,
                     table->name);
}

/* A tensor that is bound to no slot means that the row does not describe this model: its output would be silently
 * wrong. */
static proa_status check_extra(const binder *b)
{
    const proa_weights_tensor *table = find_table(b);
    for (int64_t i = 0; i < proa_weights_count(b->weights); i++) {
        const proa_weights_tensor *t = proa_weights_at(b->weights, i);
        char shape[64];
        if (!b->used[i]) PROA_TRY(check_copy(b, t, table));
        if (b->used[i] || is_ignored(b, t->name) || is_second_name(b, t)) continue;
        return PROA_FAIL(b->err, INVALID, "tensor '%s' %s is extra: a %s of this configuration has none", t->name,
                         proa_shape_text(shape, t->source.view.rank, t->source.view.shape), b->arch->name);
    }
    return PROA_OK;
}

static proa_status bind_row(const binder *b, const proa_name *row)
{
    int64_t layers = has_placeholders(row->name, 1) ? b->out[row->stack].layers : 1;
    int64_t numbers = has_placeholders(row->name, 2) ? proa_name_copies(row, b->c) : 1;
    for (int64_t i = 0; i < layers; i++) {
        if (!proa_name_applies(row, b->c, has_placeholders(row->name, 1) ? i : PROA_SOME_LAYER)) continue;
        for (int64_t n = 0; n < numbers; n++) PROA_TRY(bind_one(b, row, i, n));
    }
    return PROA_OK;
}

static int by_expert(const void *a, const void *b)
{
    const proa_weight_part *x = a, *y = b;
    return x->expert != y->expert ? x->expert - y->expert : x->place - y->place;
}

/* The rows of the map bind one tensor of all experts after the other; the parts of an expert belong together. */
static void sort_experts(proa_params *p)
{
    for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) {
        proa_param *param = &p->param[i];
        if (!param->experts) continue;
        PROA_ASSERT(param->parts % param->experts == 0);
        qsort(param->part, (size_t)param->parts, sizeof *param->part, by_expert);
    }
}

proa_status proa_bind(proa_params out[PROA_STACK_COUNT], const proa_arch *arch, proa_config *c,
                      const proa_weights *weights, proa_arena *arena, proa_err *err)
{
    binder b = {.out = out, .arch = arch, .c = c, .weights = weights, .arena = arena, .err = err};
    b.used = PROA_ARENA_NEW(arena, bool, weights ? proa_weights_count(weights) : 0);
    settle_head(&b, c);
    out[PROA_STACK_DECODER].layers = c->layers;
    out[PROA_STACK_ENCODER].layers = c->encoder_layers;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        out[s].param = PROA_ARENA_NEW(arena, proa_param, (out[s].layers + 1) * PROA_SLOT_COUNT);
    find_expert_order(&b, c);
    find_expert_names(&b, c);
    for (const proa_name *row = arch->names; row->name; row++) PROA_TRY(bind_row(&b, row));
    for (int s = 0; s < PROA_STACK_COUNT; s++) sort_experts(&out[s]);
    return weights ? check_extra(&b) : PROA_OK;
}
