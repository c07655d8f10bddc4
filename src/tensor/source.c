/* SPDX-License-Identifier: Apache-2.0
 * source.c - reads rows of a source, and walks through sources as plain matrices. */
#include "tensor/source.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/encoding.h"
#include "tensor/scaled.h"
#include <math.h>

/* Bytes that proa_tensor_source_next decodes at a time. */
enum { DECODED_BYTES = 16 << 20 };

proa_tensor_source proa_tensor_source_of(proa_view plain)
{
    return (proa_tensor_source){.view = plain};
}

int64_t proa_tensor_source_rows(const proa_tensor_source *s)
{
    const int64_t *n = s->order.count;
    return n[0] ? n[0] * n[1] * n[2] : s->view.shape[0];
}

int64_t proa_tensor_source_cols(const proa_tensor_source *s)
{
    return s->view.shape[1];
}

int64_t proa_tensor_source_bytes(const proa_tensor_source *s)
{
    int64_t last = s->view.rank - 1, span = 1;
    if (proa_view_count(s->view) == 0 || proa_encoding_is_computed(s->encoding)) return 0;
    if (!proa_encoding_is_readable(s->encoding)) return 0;
    if (s->encoding == PROA_ENCODING_PIECES || s->encoding == PROA_ENCODING_LOW_RANK)
        return proa_view_count(s->view) * proa_dtype_bytes(s->view.dtype);
    if (s->encoding == PROA_ENCODING_SCALED)
        return proa_scaled_bytes(s->scaled->kind, proa_view_count(s->view));
    if (s->encoding != PROA_ENCODING_PLAIN)
        return proa_encoding_row_bytes(s->encoding, proa_view_count(s->view));
    for (int i = 0; i <= last; i++) span += (s->view.shape[i] - 1) * s->view.stride[i];
    return span * proa_dtype_bytes(s->view.dtype);
}

bool proa_tensor_source_is_float(const proa_tensor_source *s)
{
    return s->encoding == PROA_ENCODING_PLAIN || s->encoding == PROA_ENCODING_PIECES ||
           s->encoding == PROA_ENCODING_LOW_RANK || s->encoding == PROA_ENCODING_PACKED;
}

bool proa_tensor_source_is_plain(const proa_tensor_source *s)
{
    return s->encoding == PROA_ENCODING_PLAIN && s->order.count[0] == 0 && s->col_order.count[0] == 0 &&
           !proa_tensor_source_is_changed(s);
}

bool proa_tensor_source_is_turned(const proa_tensor_source *s)
{
    bool blocks = !proa_tensor_source_is_float(s) && !proa_encoding_is_computed(s->encoding);
    return blocks && s->view.rank == 2 && s->view.stride[1] != 1;
}

proa_tensor_source proa_tensor_source_rows_of(const proa_tensor_source *s, int64_t first, int64_t count)
{
    proa_tensor_source rows = *s;
    if (s->encoding == PROA_ENCODING_PLAIN) {
        rows.view = proa_view_rows(s->view, first, first + count);
        return rows;
    }
    PROA_DASSERT(s->order.count[0] == 0 && !s->factor && !proa_tensor_source_is_turned(s));
    rows.view.shape[0] = count;
    if (s->encoding == PROA_ENCODING_SCALED) rows.first_row += first;
    else
        rows.view.data = (char *)s->view.data + first * proa_encoding_row_bytes(s->encoding, s->view.shape[1]);
    return rows;
}

/* One scale for a whole row is that of each part of it. */
int64_t proa_tensor_source_col_block(const proa_tensor_source *s)
{
    if (s->encoding == PROA_ENCODING_PACKED) return proa_max64(1, s->col_block);
    if (s->encoding != PROA_ENCODING_SCALED) return proa_max64(1, proa_encoding_numbers(s->encoding));
    bool whole = s->scaled->col_group >= proa_tensor_source_cols(s);
    return whole ? s->scaled->code.cols : s->scaled->col_group;
}

proa_tensor_source proa_tensor_source_cols_of(const proa_tensor_source *s, int64_t first, int64_t count)
{
    proa_tensor_source cols = *s;
    PROA_DASSERT(first + count <= s->view.shape[1] && !proa_encoding_is_computed(s->encoding));
    if (s->encoding == PROA_ENCODING_PLAIN && s->col_order.count[0] == 0) {
        cols.view = proa_view_cols(s->view, first, first + count);
        return cols;
    }
    cols.first_col += first;
    cols.view.shape[1] = count;
    return cols;
}

proa_tensor_source proa_tensor_source_whole_rows(const proa_tensor_source *s)
{
    proa_tensor_source whole = *s;
    whole.cols_before = whole.cols_behind = 0;
    whole.view.shape[1] += s->cols_before + s->cols_behind;
    if (s->encoding == PROA_ENCODING_PLAIN && s->col_order.count[0] == 0)
        whole.view.data = (char *)s->view.data -
                          s->cols_before * s->view.stride[1] * proa_dtype_bytes(s->view.dtype);
    else whole.first_col -= s->cols_before;
    return whole;
}

bool proa_tensor_source_is_dense(const proa_tensor_source *s)
{
    return proa_tensor_source_is_plain(s) && proa_view_dense(s->view);
}

/* Matrices of encoded numbers follow each other too. */
proa_tensor_source proa_tensor_source_slice(const proa_tensor_source *all, int64_t i)
{
    proa_tensor_source s = *all;
    int64_t bytes = s.encoding == PROA_ENCODING_PLAIN
                        ? all->view.stride[0] * proa_dtype_bytes(all->view.dtype)
                        : proa_tensor_source_bytes(all) / proa_max64(all->view.shape[0], 1);
    s.view.data = all->view.data ? (char *)all->view.data + i * bytes : NULL;
    s.first_row += i * all->view.shape[all->view.stride[2] == 1 ? 1 : 2];
    s.view.rank = 2;
    for (int axis = 0; axis < 2; axis++)
        s.view.shape[axis] = all->view.shape[axis + 1], s.view.stride[axis] = all->view.stride[axis + 1];
    s.view.shape[2] = 1, s.view.stride[2] = 0;
    return s;
}

static int64_t stored_place(const proa_row_order *o, int64_t row)
{
    if (o->count[0] == 0) return row;
    int64_t c = row % o->count[2], b = row / o->count[2] % o->count[1], a = row / o->count[2] / o->count[1];
    return o->first + a * o->step[0] + b * o->step[1] + c * o->step[2];
}

int64_t proa_tensor_source_row(const proa_tensor_source *s, int64_t row)
{
    return stored_place(&s->order, row);
}

static void read_plain(const proa_view *v, int64_t row, int64_t col, int64_t n, float *out)
{
    int64_t bytes = proa_dtype_bytes(v->dtype);
    const char *at = (const char *)v->data + (row * v->stride[0] + col * v->stride[1]) * bytes;
    if (v->stride[1] == 1) {
        proa_to_f32(out, at, v->dtype, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) proa_to_f32(&out[i], at + i * v->stride[1] * bytes, v->dtype, 1);
}

static const proa_tensor_piece *find_piece(const proa_tensor_pieces *t, int64_t row, int64_t col)
{
    const proa_tensor_piece *p = t->piece;
    while (row < p->row || row >= p->row + p->view.shape[0] || col < p->col || col >= p->col + p->view.shape[1]) {
        p++;
        PROA_DASSERT(p < t->piece + t->count);
    }
    return p;
}

/* Along a row of the whole matrix, or along a column where v is its transpose: as far as each piece goes. */
static void read_pieces(const proa_view *v, int64_t row, int64_t col, int64_t n, float *out)
{
    const proa_tensor_pieces *t = v->data;
    while (n > 0) {
        int64_t at = row * v->stride[0] + col * v->stride[1], r = at / t->cols, c = at % t->cols;
        const proa_tensor_piece *p = find_piece(t, r, c);
        bool along = v->stride[1] == 1;
        int64_t left = along ? p->col + p->view.shape[1] - c : p->row + p->view.shape[0] - r;
        int64_t taken = proa_min64(n, left);
        proa_view turned = proa_view_transpose(p->view);
        if (along) read_plain(&p->view, r - p->row, c - p->col, taken, out);
        else read_plain(&turned, c - p->col, r - p->row, taken, out);
        col += taken, n -= taken, out += taken;
    }
}

/* Some columns at a time. */
static void read_low_rank(const proa_low_rank_sum *sum, int64_t row, int64_t col, int64_t n, float *out)
{
    float right[256], left;
    read_plain(&sum->base, row, col, n, out);
    for (int64_t r = 0; r < sum->right.shape[0]; r++) {
        read_plain(&sum->left, row, r, 1, &left);
        for (int64_t at = 0, count; at < n; at += count) {
            count = proa_min64(n - at, (int64_t)PROA_COUNT(right));
            read_plain(&sum->right, r, col + at, count, right);
            for (int64_t i = 0; i < count; i++) out[at + i] += sum->scale * left * right[i];
        }
    }
}

/* The numbers of a whole stored row of blocks. */
static int64_t stored_cols(const proa_tensor_source *s)
{
    return proa_tensor_source_is_turned(s) ? s->view.stride[1] : s->view.stride[0];
}

/* Numbers [col, col + n) of a stored row of blocks. */
static void read_blocks(const proa_tensor_source *s, int64_t row, int64_t col, int64_t n, float *out)
{
    if (s->encoding == PROA_ENCODING_SCALED) {
        proa_scaled_read(out, s->scaled, s->first_row + row, col, n);
        return;
    }
    int64_t bytes = proa_encoding_row_bytes(s->encoding, stored_cols(s));
    proa_encoding_decode(out, s->encoding, (const char *)s->view.data + row * bytes, col, n);
}

/* Numbers (pos, col + i) of the sinusoids [positions, d], or ones, or zeros. */
static void make_numbers(proa_encoding form, int64_t d, int64_t pos, int64_t col, int64_t n, float *out)
{
    if (form == PROA_ENCODING_ONES || form == PROA_ENCODING_ZEROS) {
        for (int64_t i = 0; i < n; i++) out[i] = form == PROA_ENCODING_ONES ? 1 : 0;
        return;
    }
    bool pairs = form == PROA_ENCODING_SINUSOID_PAIRS, ends = form == PROA_ENCODING_SINUSOID_ENDS;
    int64_t sines = ends ? d / 2 : (d + 1) / 2;
    for (int64_t c = col; c < col + n; c++) {
        if (ends && c >= 2 * sines) {
            *out++ = 0;
            continue;
        }
        int64_t i = pairs ? c / 2 : c % sines;
        double exponent = (double)(2 * i) / (double)d;
        if (ends) exponent = sines > 1 ? (double)i / (double)(sines - 1) : 0;
        double angle = (double)pos / pow(10000, exponent);
        bool sine = pairs ? c % 2 == 0 : c < sines;
        *out++ = (float)(sine ? sin(angle) : cos(angle));
    }
}

/* Numbers [col, col + n) of a stored row, counted from its first one. */
static void read_stored(const proa_tensor_source *s, int64_t stored, int64_t col, int64_t n, float *out)
{
    if (s->encoding == PROA_ENCODING_PLAIN) read_plain(&s->view, stored, col, n, out);
    else if (s->encoding == PROA_ENCODING_PIECES) read_pieces(&s->view, stored, col, n, out);
    else if (s->encoding == PROA_ENCODING_LOW_RANK) read_low_rank(s->view.data, stored, col, n, out);
    else if (s->encoding == PROA_ENCODING_MADE) read_plain(&s->view, stored, col, n, out);
    else if (proa_encoding_is_computed(s->encoding))
        make_numbers(s->encoding, s->view.shape[1], stored, col, n, out);
    else if (proa_tensor_source_is_turned(s))
        for (int64_t i = 0; i < n; i++) read_blocks(s, col + i, stored, 1, &out[i]);
    else read_blocks(s, stored, col, n, out);
}

void proa_tensor_source_read(const proa_tensor_source *s, int64_t row, int64_t col, int64_t n, float *out)
{
    int64_t stored = proa_tensor_source_row(s, row), run = s->col_order.count[0] ? s->col_order.count[2] : 0;
    PROA_DASSERT(stored < s->view.shape[0] && col >= -s->cols_before &&
                 col + n <= s->view.shape[1] + s->cols_behind);
    PROA_DASSERT(proa_encoding_is_readable(s->encoding));
    for (int64_t i = 0, taken, at; i < n; i += taken) {
        at = s->first_col + col + i;
        taken = run ? proa_min64(n - i, run - at % run) : n - i;
        read_stored(s, stored, stored_place(&s->col_order, at), taken, out + i);
    }
    for (int64_t i = 0; s->negated_exp && i < n; i++) out[i] = (float)log(-(double)out[i]);
    for (int64_t i = 0; s->factor && i < n; i++) out[i] *= s->factor[stored];
    for (int64_t i = 0; s->plus != 0.0f && i < n; i++) out[i] += s->plus;
    for (int64_t i = 0; s->ternary > 0.0f && i < n; i++)
        out[i] = fmaxf(-1.0f, fminf(1.0f, rintf(out[i] * s->ternary))) / s->ternary;
}

bool proa_tensor_source_codes(const proa_tensor_source *s, int64_t row, int64_t col, proa_code_group *group)
{
    if (proa_tensor_source_is_float(s) || proa_tensor_source_is_changed(s)) return false;
    if (proa_encoding_is_computed(s->encoding) || proa_tensor_source_is_turned(s)) return false;
    if (!proa_tensor_source_keeps_groups(s)) return false;
    col = stored_place(&s->col_order, col + s->first_col);
    if (s->encoding == PROA_ENCODING_SCALED)
        return proa_scaled_read_codes(group, s->scaled, s->first_row + proa_tensor_source_row(s, row), col);
    int64_t bytes = proa_encoding_row_bytes(s->encoding, stored_cols(s));
    const char *data = (const char *)s->view.data + proa_tensor_source_row(s, row) * bytes;
    return proa_encoding_codes(group, s->encoding, data, col);
}

bool proa_tensor_source_bytes_of(const proa_tensor_source *s, proa_code_kind kind, int64_t row, int64_t col,
                                 int64_t n, uint8_t *code, float *scale)
{
    if (s->encoding != PROA_ENCODING_SCALED || proa_tensor_source_is_changed(s)) return false;
    if (proa_tensor_source_is_turned(s) || s->col_order.count[0]) return false;
    return proa_scaled_read_bytes(code, scale, s->scaled, kind, s->first_row + proa_tensor_source_row(s, row),
                                  s->first_col + col, n);
}

/* Whether rows can be given out where they are stored: as a view with strides. */
static bool is_viewable(const proa_tensor_source *s)
{
    proa_dtype d = s->view.dtype;
    bool known = d == PROA_DTYPE_F32 || d == PROA_DTYPE_F16 || d == PROA_DTYPE_BF16;
    bool in_place = s->col_order.count[0] == 0 && !proa_tensor_source_is_changed(s);
    return s->encoding == PROA_ENCODING_PLAIN && in_place && known;
}

/* *view: the rows from `row` on that are at equal distances in memory. Returns their number. */
static int64_t view_rows(const proa_tensor_source *s, int64_t row, proa_view *view)
{
    *view = s->view;
    if (s->order.count[0] == 0) return s->view.shape[0];
    const proa_row_order *o = &s->order;
    int64_t n = o->count[2] - row % o->count[2];
    view->data = (char *)s->view.data +
                 proa_tensor_source_row(s, row) * s->view.stride[0] * proa_dtype_bytes(s->view.dtype);
    view->shape[0] = n;
    view->stride[0] = s->view.stride[0] * o->step[2];
    return n;
}

static int64_t decode_rows(proa_tensor_source_walk *w, const proa_tensor_source *s, proa_view *view)
{
    int64_t cols = proa_tensor_source_cols(s), most = proa_max64(1, DECODED_BYTES / proa_max64(4 * cols, 4));
    int64_t n = proa_min64(most, proa_tensor_source_rows(s) - w->row);
    w->decoded = proa_realloc(w->decoded, (size_t)proa_max64(n * cols, 1) * sizeof *w->decoded);
    for (int64_t i = 0; i < n; i++) proa_tensor_source_read(s, w->row + i, 0, cols, w->decoded + i * cols);
    *view = proa_view_2d(w->decoded, PROA_DTYPE_F32, n, cols);
    return n;
}

bool proa_tensor_source_next(proa_tensor_source_walk *w, proa_view *view)
{
    while (w->at < w->count && w->row == proa_tensor_source_rows(&w->source[w->at])) w->at++, w->row = 0;
    if (w->at == w->count) {
        free(w->decoded);
        w->decoded = NULL;
        return false;
    }
    const proa_tensor_source *s = &w->source[w->at];
    w->row += is_viewable(s) ? view_rows(s, w->row, view) : decode_rows(w, s, view);
    return true;
}

void proa_source_span_read(const proa_source_span *s, float *numbers)
{
    if (!s->order) {
        proa_tensor_source_read(s->source, s->row, s->k, s->n, numbers);
        return;
    }
    for (int64_t i = 0; i < s->n; i++)
        proa_tensor_source_read(s->source, s->row, s->order[s->k + i], 1, &numbers[i]);
}
