/* SPDX-License-Identifier: Apache-2.0
 * linear.c - packs weights, and multiplies by them. A packed weight has rows [N][K] of the format's element; int8 rows
 * are followed by their scales [N]. Formats that only devices quantise to are kept as the f32 numbers that their codes
 * stand for. Sums are the promised chain of f32 fused multiply-adds over k (weight.h), so that f32, bf16 and f16 have
 * the same bits in every table. */
#include "kernels/reference/reference.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/groups.h"
#include "kernels/quant.h"
#include "kernels/reference/view_at.h"
#include <math.h>
#include <string.h>

static bool is_widened(proa_wfmt format)
{
    return format == PROA_WFMT_F32 || format == PROA_WFMT_I8W || format == PROA_WFMT_FP8 ||
           proa_wfmt_is_coded(format);
}

static int64_t element_bytes(proa_wfmt format)
{
    return is_widened(format) ? 4 : format == PROA_WFMT_I8 ? 1 : 2;
}

static bool has_scales_of_rows(proa_wfmt format)
{
    return format == PROA_WFMT_I8 || format == PROA_WFMT_I8W || format == PROA_WFMT_FP8;
}

static int64_t scales_at(int64_t N, int64_t K)
{
    return proa_round_up(N * K, 64);
}

int64_t proa_pack_bytes_reference(proa_wfmt format, int64_t N, int64_t K)
{
    if (proa_wfmt_is_grouped(format)) return proa_reference_group_bytes(N, K);
    return format == PROA_WFMT_I8 ? scales_at(N, K) + 4 * N : proa_round_up(N * K * element_bytes(format), 64);
}

/* Numbers of a row, and all that have one scale with them, of other ranks too. */
typedef struct whole_row {
    const float *own, *all;
    int64_t count; /* of all */
} whole_row;

static void pack_i8_row(const proa_weight *w, int64_t n, const whole_row *whole)
{
    int8_t *q = (int8_t *)w->data + n * w->K;
    const float *row = whole->own;
    int finite;
    float largest = proa_i8_largest(whole->all, whole->count, 1, &finite);
    float scale = proa_i8_scale(largest, finite);
    for (int64_t k = 0; k < w->K; k++) q[k] = proa_i8_round(row[k], scale);
    ((float *)(void *)((char *)w->data + scales_at(w->N, w->K)))[n] = scale;
}

/* Rows of int8 and e4m3: the number of the largest magnitude, and whether all are finite. Groups of int4 likewise. */
static float extreme_value(const float *v, int64_t n, int *finite)
{
    float best = 0.0f;
    *finite = 1;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(v[i]) < INFINITY)) *finite = 0;
        else if (fabsf(v[i]) > fabsf(best)) best = v[i];
    }
    return best;
}

/* Each number becomes what its quantised form stands for. */
static void round_numbers(proa_wfmt format, float *v, int64_t n, const float *all, int64_t count)
{
    int finite;
    float most = extreme_value(all, count, &finite), scale;
    if (format == PROA_WFMT_I4) {
        scale = proa_f16_to_f32(proa_f32_to_f16(finite ? proa_i4_best_scale(v, n, most) : NAN));
        for (int64_t i = 0; i < n; i++) v[i] = (float)proa_i4_round(v[i], scale) * scale;
    } else if (format == PROA_WFMT_FP8) {
        scale = proa_fp8_scale(fabsf(most), finite);
        for (int64_t i = 0; i < n; i++) v[i] = proa_fp8_to_f32(proa_fp8_round(v[i], scale)) * scale;
    } else {
        scale = proa_i8_scale(fabsf(most), finite);
        for (int64_t i = 0; i < n; i++) v[i] = (float)proa_i8_round(v[i], scale) * scale;
    }
}

static void pack_widened_row(const proa_weight *w, int64_t n, const whole_row *row)
{
    float *out = (float *)w->data + n * w->K;
    memcpy(out, row->own, (size_t)w->K * sizeof *out);
    if (has_scales_of_rows(w->format)) round_numbers(w->format, out, w->K, row->all, row->count);
    for (int64_t k = 0; k < w->K && w->format == PROA_WFMT_I4; k += PROA_I4_GROUP) {
        int64_t count = proa_min64(PROA_I4_GROUP, w->K - k);
        round_numbers(w->format, out + k, count, row->own + k, count);
    }
}

static void pack_row(const proa_weight *w, int64_t n, const whole_row *row)
{
    if (w->format == PROA_WFMT_I8) {
        pack_i8_row(w, n, row);
        return;
    }
    if (is_widened(w->format)) {
        pack_widened_row(w, n, row);
        return;
    }
    proa_dtype dtype = w->format == PROA_WFMT_F16 ? PROA_DTYPE_F16 : PROA_DTYPE_BF16;
    proa_from_f32((char *)w->data + n * w->K * element_bytes(w->format), dtype, row->own, w->K);
}

void proa_reference_copy(proa_pool *pool, proa_weight *to, const proa_weight *from, const proa_packed_rect *rect)
{
    PROA_UNUSED(pool);
    proa_packed_rect r = *rect;
    int64_t size = element_bytes(to->format), to_ld = to->K, from_ld = from->K;
    if (proa_wfmt_is_grouped(to->format)) {
        size = (int64_t)sizeof(proa_quant_group), to_ld = proa_group_count(to_ld),
        from_ld = proa_group_count(from_ld);
        r.cols = proa_group_count(r.cols), r.to_col /= PROA_GROUP, r.from_col /= PROA_GROUP;
    }
    proa_copy_rows(to->data, to_ld * size, from->data, from_ld * size, size, &r);
    if (to->format != PROA_WFMT_I8) return;
    r.cols = 1, r.to_col = r.from_col = 0; /* each part of a row has its scale */
    proa_copy_rows((char *)to->data + scales_at(to->N, to->K), 4,
                   (char *)from->data + scales_at(from->N, from->K), 4, 4, &r);
}

float proa_reference_row_scale(const proa_weight *w, int64_t row)
{
    return ((const float *)(const void *)((const char *)w->data + scales_at(w->N, w->K)))[row];
}

void proa_pack_reference(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    PROA_UNUSED(c);
    int64_t n = 0;
    bool coded = proa_coded_is_kept(w->format, sources, count);
    if (proa_group_order(w)) proa_coded_order(proa_group_order(w), &sources[0]);
    bool whole = has_scales_of_rows(w->format);
    int64_t before = whole ? sources[0].cols_before : 0, behind = whole ? sources[0].cols_behind : 0;
    int64_t cols = before + w->K + behind;
    float *numbers = proa_malloc((size_t)proa_max64(cols, 1) * sizeof *numbers);
    for (int i = 0; i < count; i++)
        for (int64_t row = 0; row < proa_tensor_source_rows(&sources[i]); row++) {
            if (proa_wfmt_is_grouped(w->format)) {
                proa_reference_pack_groups(w, n++, &sources[i], row);
                continue;
            }
            if (coded) {
                proa_reference_pack_coded(w, n++, &sources[i], row);
                continue;
            }
            proa_tensor_source_read(&sources[i], row, -before, cols, numbers);
            pack_row(w, n++, &(whole_row){numbers + before, numbers, cols});
        }
    PROA_ASSERT(n == w->N);
    free(numbers);
}

enum { ROW_PIECE = 64 }; /* numbers of a row that are widened at a time */

/* sum + the products of a and v, in rising order, each step one fused multiply-add. The sum stays in a register. */
static float add_products(float sum, const float *a, const float *v, int64_t count)
{
    for (int64_t j = 0; j < count; j++) sum = fmaf(a[j], v[j], sum);
    return sum;
}

/* y[i] = the sum over k of x[k] * row n + i of w, in rising order of k, each step one fused multiply-add in f32. */
static void dot_f32(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x)
{
    proa_dtype dtype = is_widened(w->format)        ? PROA_DTYPE_F32
                       : w->format == PROA_WFMT_F16 ? PROA_DTYPE_F16
                                                    : PROA_DTYPE_BF16;
    float a[ROW_PIECE], piece[ROW_PIECE];
    for (int64_t i = 0; i < rows; i++) y[i] = 0.0f;
    for (int64_t k = 0; k < w->K; k += ROW_PIECE) {
        int64_t count = proa_min64(ROW_PIECE, w->K - k);
        for (int64_t j = 0; j < count; j++)
            a[j] = w->format == PROA_WFMT_BF16DOT ? proa_bf16_to_f32(proa_f32_to_bf16(x[k + j])) : x[k + j];
        for (int64_t i = 0; i < rows; i++)
            y[i] = add_products(y[i], a, load_row(piece, w->data, dtype, (n + i) * w->K + k, count), count);
    }
}

static void dot_i8(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x)
{
    const float *scales = (const float *)(const void *)((const char *)w->data + scales_at(w->N, w->K));
    int finite;
    float largest = proa_i8_largest(x, w->K, 1, &finite), sx = proa_i8_scale(largest, finite);
    int32_t sum[PROA_REFERENCE_ROWS] = {0};
    for (int64_t k = 0; k < w->K; k++) {
        const int8_t *column = (const int8_t *)w->data + n * w->K + k, q = proa_i8_round(x[k], sx);
        for (int64_t i = 0; i < rows; i++) sum[i] += q * column[i * w->K];
    }
    for (int64_t i = 0; i < rows; i++) y[i] = (float)sum[i] * (sx * scales[n + i]);
}

/* x with the rows [n, n + rows) of w, at most PROA_REFERENCE_ROWS: what is done to x is done once for all of them. */
static void dot_rows(float *y, const proa_weight *w, int64_t n, int64_t rows, const float *x)
{
    if (proa_wfmt_is_grouped(w->format)) proa_reference_dot_groups(y, w, n, rows, x);
    else if (w->format == PROA_WFMT_I8) dot_i8(y, w, n, rows, x);
    else dot_f32(y, w, n, rows, x);
}

typedef struct linear_job {
    proa_view y, x;
    const proa_weight *w;
    const proa_epilogue *e;
} linear_job;

/* The product's scale and bias. */
static float scaled_sum(const proa_epilogue *e, float sum, int64_t n)
{
    return fmaf(e->alpha == 0.0f ? 1.0f : e->alpha, sum, e->bias ? e->bias[n] : 0.0f);
}

/* y of row t in the columns [n, n + count). */
static void linear_block(const linear_job *job, int64_t t, int64_t n, int64_t count)
{
    const proa_epilogue *e = job->e;
    const int64_t half = job->w->N / 2;
    float value[PROA_REFERENCE_ROWS], factor[PROA_REFERENCE_ROWS];
    dot_rows(value, job->w, n, count, at_row(job->x, t, 0));
    if (e->gated) dot_rows(factor, job->w, half + n, count, at_row(job->x, t, 0));
    for (int64_t i = 0; i < count; i++) {
        float v = proa_act_reference(e->act, scaled_sum(e, value[i], n + i));
        if (e->gated) v *= scaled_sum(e, factor[i], half + n + i);
        *at_row(job->y, t, n + i) = e->residual.rank ? v + *at_row(e->residual, t, n + i) : v;
    }
}

static void linear_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const linear_job *job = arg;
    for (int64_t t = 0; t < job->x.shape[0]; t++)
        for (int64_t n = begin; n < end; n += PROA_REFERENCE_ROWS)
            linear_block(job, t, n, proa_min64(PROA_REFERENCE_ROWS, end - n));
}

void proa_linear_reference(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    linear_job job = {y, x, w, e};
    proa_pool_run(c->pool, e->gated ? w->N / 2 : w->N, 16, linear_columns, &job);
}
