/* SPDX-License-Identifier: Apache-2.0
 * repack.c - finds in the parts of a packed folder the rows and columns of a rank's weights. */
#include "model/ranks/repack.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/coded.h"
#include "model/relative.h"
#include "weights/packed.h"
#include <math.h>
#include <string.h>

struct proa_packed_parts {
    int32_t count;
    proa_model *part[PROA_RANKS_MAX];
};

/* One weight: of this rank, or of a part. */
typedef struct placed_weight {
    const proa_param *param;
    char *data;
    int64_t matrices,
        first; /* of experts or heads, of positions if it is projected; first: among those of all ranks */
    int64_t rows, cols; /* of one matrix */
} placed_weight;

/* Rows and columns of one matrix that a part has, by where they are in both. */
typedef struct piece {
    const proa_model *from;
    placed_weight source;
    int64_t matrix; /* of the source */
    proa_packed_rect rect;
} piece;

typedef struct repacker {
    proa_model *m;
    const char *path;
    const proa_weight_walk *at;
    placed_weight to;
    proa_copy_packed_fn *copy; /* NULL: it only checks */
    proa_row_scale_fn *row_scale;
    proa_err *err;
} repacker;

static placed_weight place_weight(const proa_model *m, const proa_param *param, char *data)
{
    placed_weight w = {.param = param, .data = data, .rows = param->rows, .cols = proa_max64(param->cols, 1)};
    w.matrices = proa_max64(param->experts, 1), w.first = param->cut.matrix;
    if (param->projected) w.matrices = proa_relative_rows(&m->config), w.first = 0, w.cols = 1;
    return w;
}

/* ---- where a row or a column is ---- */

/* The row of the whole weight that is row `row` of this one, and how many follow each other from there on. */
static int64_t whole_row(const placed_weight *w, int64_t row, int64_t *count)
{
    const proa_param_cut *cut = &w->param->cut;
    *count = w->rows - row;
    for (int32_t i = 0; i < cut->ranges; row -= cut->rows[i++])
        if (row < cut->rows[i]) return *count = cut->rows[i] - row, cut->row[i] + row;
    return row;
}

/* The row of this weight that is row `whole` of the whole one. False: the part has no such row. */
static bool own_row(const placed_weight *w, int64_t whole, int64_t *row, int64_t *count)
{
    const proa_param_cut *cut = &w->param->cut;
    *row = whole, *count = w->rows - whole;
    int64_t before = 0;
    for (int32_t i = 0; i < cut->ranges; before += cut->rows[i++]) {
        *row = before + whole - cut->row[i], *count = cut->row[i] + cut->rows[i] - whole;
        if (whole >= cut->row[i] && *count > 0) return true;
    }
    return cut->ranges == 0 && *count > 0;
}

/* The weight in part i. False: the part has not this one of its matrices, which is *own there. */
static bool weight_of_part(const repacker *r, int32_t i, int64_t matrix, placed_weight *w, int64_t *own)
{
    const proa_model *m = r->m->parts->part[i];
    const proa_param *param = proa_params_at(&m->params[r->at->stack], r->at->layer, r->at->slot);
    if (!param->parts) return false;
    *w = place_weight(m, param, (char *)(uintptr_t)m->packed->block + param->block_at);
    *own = r->to.first + matrix - w->first;
    return *own >= 0 && *own < w->matrices;
}

/* The largest piece from a place on, of the first part that has it; its rows and columns are at most those given. */
static bool find_piece(const repacker *r, piece *out, int64_t matrix, int64_t row, int64_t rows, int64_t col)
{
    int64_t whole_col = r->to.param->cut.col + col, follow, whole = whole_row(&r->to, row, &follow);
    rows = proa_min64(rows, follow);
    for (int32_t i = 0; i < r->m->parts->count; i++) {
        placed_weight w;
        int64_t own, count, own_matrix;
        if (!weight_of_part(r, i, matrix, &w, &own_matrix)) continue;
        int64_t own_col = whole_col - w.param->cut.col;
        if (own_col < 0 || own_col >= w.cols || !own_row(&w, whole, &own, &count)) continue;
        *out = (piece){.from = r->m->parts->part[i], .source = w, .matrix = own_matrix};
        out->rect = (proa_packed_rect){.rows = proa_min64(rows, count),
                                       .cols = proa_min64(r->to.cols - col, w.cols - own_col),
                                       .to_row = row,
                                       .to_col = col,
                                       .from_row = own,
                                       .from_col = own_col};
        return true;
    }
    return false;
}

/* ---- what can be copied ---- */

static bool is_same_kind(const proa_param *a, const proa_param *b)
{
    if (a->role != b->role || a->projected != b->projected) return false;
    if (a->role == PROA_ROLE_TABLE) return a->table.dtype == b->table.dtype;
    return !proa_param_is_matrix(a) ||
           (a->matrix.format == b->matrix.format && a->matrix.permuted == b->matrix.permuted);
}

/* Columns that are rounded with one scale, or one order of inputs, stay together. */
static bool keeps_groups(const placed_weight *to, const piece *p)
{
    const proa_weight *w = &to->param->matrix;
    const proa_packed_rect *r = &p->rect;
    bool ends = r->to_col + r->cols == to->cols && r->from_col + r->cols == p->source.cols;
    if (!proa_param_is_matrix(to->param)) return true;
    int64_t group = w->permuted ? 0 : proa_wfmt_group(w->format);
    if (group == 0) return r->to_col == 0 && r->from_col == 0 && ends;
    return r->to_col % group == 0 && r->from_col % group == 0 && (r->cols % group == 0 || ends);
}

static proa_weight one_matrix(const placed_weight *w, int64_t matrix)
{
    proa_weight one = w->param->matrix;
    one.data = w->data + matrix * one.stride, one.experts = 0;
    return one;
}

/* Whether the rows of a piece have one scale in all parts that have columns of them: they are rounded as a whole. Older
 * versions rounded what each part has. */
static bool has_scales_of_rows(const repacker *r, const piece *p, int64_t matrix)
{
    const proa_weight *format = &r->to.param->matrix;
    if (!r->row_scale || format->permuted || proa_wfmt_group(format->format) != 0) return false;
    const proa_weight source = one_matrix(&p->source, p->matrix);
    for (int32_t i = 0; i < r->m->parts->count; i++) {
        placed_weight w;
        int64_t own_matrix, own, follow;
        if (!weight_of_part(r, i, matrix, &w, &own_matrix)) continue;
        const proa_weight part = one_matrix(&w, own_matrix);
        for (int64_t k = 0; k < p->rect.rows; k++) {
            int64_t whole = whole_row(&r->to, p->rect.to_row + k, &follow);
            if (!own_row(&w, whole, &own, &follow)) continue;
            float a = r->row_scale(&part, own), b = r->row_scale(&source, p->rect.from_row + k);
            if (a != b && !(isnan(a) && isnan(b))) return false; /* NaN is a scale, too */
        }
    }
    return true;
}

static proa_status check_piece(const repacker *r, const piece *p, int64_t matrix)
{
    const proa_packed_file *file = p->from->packed;
    if (!is_same_kind(r->to.param, p->source.param))
        return PROA_FAIL(r->err, CORRUPT, "'%.200s': '%s' of layer %lld is not the same in all parts",
                         r->path, proa_slot_name(r->at->slot), (long long)r->at->layer);
    if (keeps_groups(&r->to, p) || has_scales_of_rows(r, p, matrix)) return PROA_OK;
    return PROA_FAIL(
        r->err, UNSUPPORTED,
        "'%.200s' is packed with --ranks %d and cannot be read with --tp %d: in '%s' of layer %lld (%s) "
        "numbers with one scale would be parted or joined. Run it with --tp %d, or pack the model with "
        "--ranks %d",
        r->path, file->ranks, r->m->plan.part.tensors, proa_slot_name(r->at->slot), (long long)r->at->layer,
        proa_wfmt_name(r->to.param->matrix.format), file->ranks, r->m->plan.part.tensors);
}

/* ---- copying ---- */

static int64_t number_bytes(const proa_param *param)
{
    return param->role == PROA_ROLE_TABLE ? proa_dtype_bytes(param->table.dtype) : (int64_t)sizeof(float);
}

/* Vectors, tables and projected positions: rows of numbers without gaps. */
static void copy_numbers(const placed_weight *to, const piece *p, int64_t matrix)
{
    const proa_packed_rect *r = &p->rect;
    int64_t bytes = number_bytes(to->param);
    for (int64_t i = 0; i < r->rows; i++) {
        int64_t at = (matrix * to->rows + r->to_row + i) * to->cols + r->to_col;
        int64_t from = (p->matrix * p->source.rows + r->from_row + i) * p->source.cols + r->from_col;
        memcpy(to->data + at * bytes, p->source.data + from * bytes, (size_t)(r->cols * bytes));
    }
}

static void copy_matrix(const repacker *r, const piece *p, int64_t matrix)
{
    proa_weight to = one_matrix(&r->to, matrix), from = one_matrix(&p->source, p->matrix);
    r->copy(r->m->ctx.pool, &to, &from, &p->rect);
    if (to.permuted)
        memcpy((int32_t *)(uintptr_t)proa_coded_order_of(&to), proa_coded_order_of(&from),
               (size_t)to.K * sizeof(int32_t));
}

static proa_status take_piece(const repacker *r, const piece *p, int64_t matrix)
{
    if (!r->copy) return check_piece(r, p, matrix);
    if (proa_param_is_matrix(r->to.param)) copy_matrix(r, p, matrix);
    else copy_numbers(&r->to, p, matrix);
    return PROA_OK;
}

static proa_status fail_missing(const repacker *r, int64_t matrix, int64_t row, int64_t col)
{
    return PROA_FAIL(r->err, CORRUPT,
                     "'%.200s': no part has row %lld, column %lld of matrix %lld of '%s' of layer %lld",
                     r->path, (long long)row, (long long)col, (long long)matrix, proa_slot_name(r->at->slot),
                     (long long)r->at->layer);
}

/* From `row` on, as many rows as the parts of all columns have there. */
static proa_status repack_rows(const repacker *r, int64_t matrix, int64_t row, int64_t *rows)
{
    piece p;
    *rows = r->to.rows - row;
    for (int64_t col = 0; col < r->to.cols; col += p.rect.cols) {
        if (!find_piece(r, &p, matrix, row, *rows, col)) return fail_missing(r, matrix, row, col);
        *rows = p.rect.rows;
    }
    for (int64_t col = 0; col < r->to.cols; col += p.rect.cols) {
        if (!find_piece(r, &p, matrix, row, *rows, col)) return fail_missing(r, matrix, row, col);
        PROA_TRY(take_piece(r, &p, matrix));
    }
    return PROA_OK;
}

static proa_status repack_weight(const repacker *r)
{
    for (int64_t matrix = 0; matrix < r->to.matrices; matrix++)
        for (int64_t row = 0, rows; row < r->to.rows; row += rows)
            PROA_TRY(repack_rows(r, matrix, row, &rows));
    return PROA_OK;
}

void proa_repack_param(proa_model *m, const proa_weight_walk *at, char *to)
{
    proa_err err = {.status = PROA_OK};
    const repacker r = {.m = m,
                        .path = m->path,
                        .at = at,
                        .to = place_weight(m, at->param, to),
                        .copy = proa_copy_packed_find(m->ctx.ops->layout),
                        .err = &err};
    proa_status status = repack_weight(&r);
    PROA_ASSERT(status == PROA_OK); /* proa_repack_open has checked it */
}

/* ---- the parts ---- */

static proa_status open_parts(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    proa_packed_parts *parts = m->parts = proa_calloc(1, sizeof *parts);
    int32_t count = m->packed->ranks;
    for (; parts->count < count; parts->count++) {
        const proa_model_options of_part = {.arch = o->arch,
                                            .dtype = "auto",
                                            .rows_max = 1,
                                            .head_rows = 1,
                                            .sampled_rows = 1,
                                            .rank = parts->count,
                                            .ranks = count,
                                            .packed_part = true};
        PROA_TRY(proa_model_prepare(&parts->part[parts->count], path, &of_part, m->device, m->ctx.pool, err));
    }
    return PROA_OK;
}

proa_status proa_repack_open(proa_model *m, const char *path, const proa_model_options *o, proa_err *err)
{
    proa_weight_walk walk = {.param = NULL};
    if (!proa_copy_packed_find(m->ctx.ops->layout))
        return PROA_FAIL(err, UNSUPPORTED,
                         "'%.200s' is packed with --ranks %d, and this device cannot read it with --tp %d: "
                         "run it with --tp %d",
                         path, m->packed->ranks, m->plan.part.tensors, m->packed->ranks);
    PROA_TRY(open_parts(m, path, o, err));
    while (proa_model_next_weight(m, &walk)) {
        const repacker r = {.m = m,
                            .path = path,
                            .at = &walk,
                            .to = place_weight(m, walk.param, NULL),
                            .row_scale = proa_row_scale_find(m->ctx.ops->layout),
                            .err = err};
        PROA_TRY(repack_weight(&r));
    }
    return PROA_OK;
}

void proa_repack_close(proa_packed_parts *parts)
{
    for (int32_t i = 0; parts && i < parts->count; i++) proa_model_free(parts->part[i]);
    free(parts);
}

proa_status proa_repack_end(proa_model *m, proa_err *err)
{
    for (int32_t i = 0; i < m->parts->count; i++)
        PROA_TRY(proa_weights_check(m->parts->part[i]->weights, err));
    proa_repack_close(m->parts);
    m->parts = NULL;
    return PROA_OK;
}
