/* SPDX-License-Identifier: Apache-2.0
 * reference.c - every op as a textbook states it. Sums are double and rounded once at the end, except in linear,
 * whose sums are the promised chain of f32 fused multiply-adds over k, so that f32, bf16 and f16 products agree
 * with the vector tables bit for bit. Slow is fine here, doubtful is not. */
#include "kernels/reference.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/groups.h"
#include "kernels/coded.h"
#include "kernels/quant.h"
#include <math.h>
#include <string.h>

/* ---- elements of views ---- */

static float *at_row(proa_view v, int64_t i, int64_t j)
{
    return proa_view_f32(v) + i * v.stride[0] + j * v.stride[1];
}

static float *at_plane(proa_view v, int64_t i, int64_t j, int64_t k)
{
    return proa_view_f32(v) + i * v.stride[0] + j * v.stride[1] + k * v.stride[2];
}

/* Element at a flat index of any floating memory. */
static float load_element(const void *data, proa_dtype dtype, int64_t index)
{
    float f;
    proa_to_f32(&f, (const char *)data + index * proa_dtype_bytes(dtype), dtype, 1);
    return f;
}

/* n elements from a flat index on, in f32: in place, or converted into row. */
static const float *load_row(float *row, const void *data, proa_dtype dtype, int64_t index, int64_t n)
{
    if (dtype == PROA_DTYPE_F32) return (const float *)data + index;
    proa_to_f32(row, (const char *)data + index * proa_dtype_bytes(dtype), dtype, n);
    return row;
}

/* A rank 2 view as rank 3 with one head; rank 3 as it is. */
static proa_view as_heads(proa_view v)
{
    return v.rank == 3 ? v : proa_view_heads(v, 1);
}

/* ---- embed, gather, add ---- */

static void reference_embed(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale,
                            bool accumulate)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[1]; j++) {
            float v = scale *
                      load_element(table.data, table.dtype, ids[t] * table.stride[0] + j * table.stride[1]);
            *at_row(y, t, j) = accumulate ? *at_row(y, t, j) + v : v;
        }
}

static void reference_gather(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < y.shape[0]; i++)
        for (int64_t j = 0; j < y.shape[1]; j++) *at_row(y, i, j) = *at_row(x, rows[i], j);
}

/* Work on the rows of spans, shared among workers by columns. */
typedef struct span_job {
    proa_view y, x;
    const proa_spans *spans;
    int64_t width; /* of unfold */
} span_job;

static void unfold_row(const span_job *job, const proa_span *span, int64_t i, int64_t begin, int64_t end)
{
    for (int64_t s = 0; s < job->width; s++) {
        int64_t from = i + s - (job->width - 1) / 2;
        bool there = from >= 0 && from < span->rows;
        for (int64_t k = begin; k < end; k++)
            *at_row(job->y, span->row + i, k * job->width + s) = there ? *at_row(job->x, span->row + from, k)
                                                                       : 0.0f;
    }
}

static void unfold_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const span_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++)
        for (int64_t i = 0; i < job->spans->span[s].rows; i++)
            unfold_row(job, &job->spans->span[s], i, begin, end);
}

static void reference_unfold(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans, int64_t width)
{
    span_job job = {y, x, spans, width};
    proa_pool_run(c->pool, x.shape[1], 64, unfold_columns, &job);
}

static void mean_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const span_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++) {
        const proa_span *span = &job->spans->span[s];
        for (int64_t k = begin; k < end && span->rows > 0; k++) {
            double sum = 0;
            for (int64_t i = 0; i < span->rows; i++) sum += (double)*at_row(job->x, span->row + i, k);
            *at_row(job->y, span->row, k) = (float)(sum / (double)span->rows);
        }
    }
}

static void span_mean(proa_ctx *c, proa_view y, proa_view x, const proa_spans *spans)
{
    span_job job = {y, x, spans, 1};
    proa_pool_run(c->pool, x.shape[1], 64, mean_columns, &job);
}

static void reference_add(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[1]; j++) *at_row(y, t, j) = *at_row(a, t, j) + *at_row(b, t, j);
}

/* ---- norms ---- */

static void rms_norm_row(float *y, const float *x, const float *w, int64_t d, float eps)
{
    double squares = 0;
    for (int64_t j = 0; j < d; j++) squares += (double)x[j] * (double)x[j];
    float mean = (float)(squares / (double)d); /* infinity where an f32 model has it too */
    double inverse = 1.0 / sqrt((double)mean + (double)eps);
    for (int64_t j = 0; j < d; j++) y[j] = (float)((double)x[j] * inverse * (double)w[j]);
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    PROA_UNUSED(c);
    y = as_heads(y), x = as_heads(x);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            rms_norm_row(at_plane(y, t, h, 0), at_plane(x, t, h, 0), proa_norm_weights(w, h), x.shape[2], eps);
}

static void layer_norm_row(float *y, const float *x, const float *w, const float *b, int64_t d, float eps)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)x[j];
    double mean = sum / (double)d;
    for (int64_t j = 0; j < d; j++) squares += ((double)x[j] - mean) * ((double)x[j] - mean);
    float variance = (float)(squares / (double)d);
    double inverse = 1.0 / sqrt((double)variance + (double)eps);
    for (int64_t j = 0; j < d; j++)
        y[j] = (float)(((double)x[j] - mean) * inverse * (double)w[j] + (b ? (double)b[j] : 0.0));
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    PROA_UNUSED(c);
    y = as_heads(y), x = as_heads(x);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            layer_norm_row(at_plane(y, t, h, 0), at_plane(x, t, h, 0), proa_norm_weights(w, h),
                           proa_norm_weights(b, h), x.shape[2], eps);
}

/* ---- activations ---- */

float proa_act_reference(proa_act act, float xf)
{
    double x = (double)xf;
    switch (act) {
    case PROA_ACT_RELU:
        return xf < 0.0f ? 0.0f : xf; /* NaN stays NaN */
    /* 1 + erf(z) = erfc(-z) and (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), without their cancellation for z, u < 0 */
    case PROA_ACT_GELU: return (float)(0.5 * x * erfc(-x * 0.70710678118654752440));
    case PROA_ACT_GELU_TANH:
        return (float)(x / (1.0 + exp(-2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))));
    case PROA_ACT_QUICK_GELU: return (float)(x / (1.0 + exp(-1.702 * x)));
    case PROA_ACT_SILU: return (float)(x / (1.0 + exp(-x)));
    case PROA_ACT_TANH: return (float)tanh(x);
    case PROA_ACT_RELU2: return xf < 0.0f ? 0.0f : (float)(x * x);
    case PROA_ACT_NONE:
    case PROA_ACT_COUNT: break;
    }
    return xf;
}

static void act_in_place(proa_ctx *c, proa_view x, proa_act act)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) *at_row(x, t, j) = proa_act_reference(act, *at_row(x, t, j));
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[1]; j++)
            *at_row(y, t, j) = proa_act_reference(act, *at_row(gate, t, j)) * *at_row(up, t, j);
}

static void soft_cap(proa_ctx *c, proa_view x, float cap)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++)
            *at_row(x, t, j) = (float)((double)cap * tanh((double)*at_row(x, t, j) / (double)cap));
}

static void reference_clip(proa_ctx *c, proa_view x, float limit)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) {
            float *v = at_row(x, t, j);
            if (*v < -limit) *v = -limit;
            if (*v > limit) *v = limit;
        }
}

static void reference_scale(proa_ctx *c, proa_view y, proa_view x, float factor)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t j = 0; j < x.shape[1]; j++) *at_row(y, t, j) = factor * *at_row(x, t, j);
}

/* ---- linear: weights are kept as rows [N][K] of the format's element; int8 is followed by its scales [N].
 * Formats that only devices quantise to are stored as f32 numbers. ---- */

static bool is_widened(proa_wfmt format)
{
    return format == PROA_WFMT_F32 || format == PROA_WFMT_I8W || format == PROA_WFMT_FP8 ||
           proa_wfmt_is_coded(format);
}

static int64_t element_bytes(proa_wfmt format)
{
    return is_widened(format) ? 4 : format == PROA_WFMT_I8 ? 1 : 2;
}

static int64_t scales_at(int64_t N, int64_t K)
{
    return proa_round_up(N * K, 64);
}

static int64_t pack_bytes(proa_wfmt format, int64_t N, int64_t K)
{
    if (proa_wfmt_is_grouped(format)) return proa_reference_group_bytes(N, K);
    return format == PROA_WFMT_I8 ? scales_at(N, K) + 4 * N : proa_round_up(N * K * element_bytes(format), 64);
}

static void pack_i8_row(const proa_weight *w, int64_t n, const float *row)
{
    int8_t *q = (int8_t *)w->data + n * w->K;
    int finite;
    float largest = proa_i8_largest(row, w->K, 1, &finite);
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
static void round_numbers(proa_wfmt format, float *v, int64_t n)
{
    int finite;
    float most = extreme_value(v, n, &finite), scale;
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

static void pack_widened_row(const proa_weight *w, int64_t n, const float *row)
{
    float *out = (float *)w->data + n * w->K;
    int64_t each = w->format == PROA_WFMT_I4 ? PROA_I4_GROUP : w->K;
    memcpy(out, row, (size_t)w->K * sizeof *out);
    for (int64_t k = 0; k < w->K && w->format != PROA_WFMT_F32; k += each)
        round_numbers(w->format, out + k, proa_min64(each, w->K - k));
}

static void pack_row(const proa_weight *w, int64_t n, const float *row)
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
    proa_from_f32((char *)w->data + n * w->K * element_bytes(w->format), dtype, row, w->K);
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
    r.cols = 1, r.to_col = r.from_col = 0;
    proa_copy_rows((char *)to->data + scales_at(to->N, to->K), 4,
                   (char *)from->data + scales_at(from->N, from->K), 4, 4, &r);
}

static void reference_pack(proa_ctx *c, proa_weight *w, const proa_tensor_source *sources, int count)
{
    PROA_UNUSED(c);
    int64_t n = 0;
    bool coded = proa_coded_is_kept(w->format, sources, count);
    if (proa_group_order(w)) proa_coded_order(proa_group_order(w), &sources[0]);
    float *numbers = proa_malloc((size_t)proa_max64(w->K, 1) * sizeof *numbers);
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
            proa_tensor_source_read(&sources[i], row, 0, w->K, numbers);
            pack_row(w, n++, numbers);
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

static void reference_linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    linear_job job = {y, x, w, e};
    proa_pool_run(c->pool, e->gated ? w->N / 2 : w->N, 16, linear_columns, &job);
}

/* ---- rotary positions ---- */

static void rope_table(proa_ctx *c, proa_view table, const int32_t *pos, const int32_t *length,
                       const proa_rope_freqs *freqs)
{
    PROA_UNUSED(c);
    int64_t half = table.shape[1] / 2;
    for (int64_t t = 0; t < table.shape[0]; t++) {
        int32_t n = length ? length[t] : 0;
        float scale = freqs->long_inv_freq && proa_rope_is_long(freqs, n) ? freqs->long_scale : freqs->scale;
        for (int64_t i = 0; i < half; i++) {
            float angle = (float)pos[t] * proa_rope_freq(freqs, n, i, 2 * half);
            *at_row(table, t, i) = (float)cos((double)angle) * scale;
            *at_row(table, t, half + i) = (float)sin((double)angle) * scale;
        }
    }
}

static void rope_head(float *x, const float *cosines, const float *sines, int64_t half, bool interleaved)
{
    for (int64_t i = 0; i < half; i++) {
        float *p = x + (interleaved ? 2 * i : i), *q = interleaved ? p + 1 : p + half;
        double a = (double)*p, b = (double)*q, cosine = (double)cosines[i], sine = (double)sines[i];
        *p = (float)(a * cosine - b * sine);
        *q = (float)(b * cosine + a * sine);
    }
}

static void reference_rope(proa_ctx *c, proa_view x, proa_view table, bool interleaved)
{
    PROA_UNUSED(c);
    int64_t half = table.shape[1] / 2;
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t h = 0; h < x.shape[1]; h++)
            rope_head(at_plane(x, t, h, 0), at_row(table, t, 0), at_row(table, t, half), half, interleaved);
}

/* ---- keys, values and attention ---- */

/* Flat element index of (position p, head, 0) within the pages of a span, or within its rows. */
static int64_t kv_index(const proa_kv *kv, const proa_spans *spans, const proa_span *span, int64_t p, int64_t head)
{
    if (kv->row) return (span->row + p) * kv->row + head * kv->head_dim;
    int64_t page = spans->pages[span->table + p / PROA_PAGE_TOKENS];
    return ((page * kv->kv_heads + head) * PROA_PAGE_TOKENS + p % PROA_PAGE_TOKENS) * kv->head_dim;
}

static void kv_append(proa_ctx *c, const proa_kv *kv, proa_view k, proa_view v, const proa_spans *spans)
{
    PROA_UNUSED(c);
    for (int64_t s = 0; s < spans->count; s++) {
        const proa_span *span = &spans->span[s];
        for (int64_t i = 0; i < span->rows; i++)
            for (int64_t h = 0; h < kv->kv_heads; h++) {
                int64_t at = kv_index(kv, spans, span, span->context - span->rows + i, h) *
                             proa_dtype_bytes(kv->dtype);
                proa_from_f32((char *)kv->k + at, kv->dtype, at_plane(k, span->row + i, h, 0), kv->head_dim);
                proa_from_f32((char *)kv->v + at, kv->dtype, at_plane(v, span->row + i, h, 0), kv->head_dim);
            }
    }
}

/* Through the context's own table, so that its rope and kv_append are used. */
static void rope_append(proa_ctx *c, proa_view x, proa_view v, proa_view table, bool interleaved,
                        const proa_kv *kv, const proa_spans *spans)
{
    proa_view k = x;
    int64_t heads = x.shape[1] - kv->kv_heads;
    k.data = proa_view_f32(x) + heads * x.stride[1];
    k.shape[1] = kv->kv_heads;
    c->ops->rope(c, x, table, interleaved);
    c->ops->kv_append(c, kv, k, v, spans);
}

typedef struct attend_job {
    proa_view y, q;
    const proa_kv *kv;
    const proa_spans *spans;
    const proa_attention *a;
} attend_job;

/* What proa_relative adds to q.k. from: the head's first number in tables and biases. */
static double relative_terms(const attend_job *job, const float *q, const float *k, int64_t from, int64_t distance)
{
    const proa_relative *r = job->a->relative;
    int64_t at = proa_relative_row(r, distance) * r->stride + from;
    double sum = 0;
    for (int64_t j = 0; j < job->kv->head_dim; j++) {
        double key = (double)k[j], query = (double)q[j];
        if (r->content_bias) sum += (double)r->content_bias[from + j] * key;
        if (r->position_bias) query += (double)r->position_bias[from + j];
        if (r->keys) sum += query * (double)r->keys[at + j];
        if (r->queries) sum += key * (double)r->queries[at + j];
    }
    return sum;
}

/* What proa_relative adds for a key of another segment. */
static double segment_term(const attend_job *job, const float *q, int64_t from)
{
    const proa_relative *r = job->a->relative;
    const float *same = r->segments + from, *other = same + job->q.shape[1] * job->kv->head_dim;
    double sum = 0;
    for (int64_t j = 0; j < job->kv->head_dim; j++)
        sum += ((double)q[j] + (double)r->segment_bias[from + j]) * ((double)other[j] - (double)same[j]);
    return sum;
}

/* The score of the key at position p, stored at `slot`, for the query of head h that stands at position `at`. */
static double score_row(const attend_job *job, const proa_span *span, const float *q, int64_t h, int64_t at,
                        int64_t p, int64_t slot)
{
    const proa_kv *kv = job->kv;
    const proa_attention *a = job->a;
    int64_t heads = job->q.shape[1], base = kv_index(kv, job->spans, span, slot, h / (heads / kv->kv_heads));
    float row[PROA_HEAD_DIM_MAX];
    const float *k = load_row(row, kv->k, kv->dtype, base, kv->head_dim);
    double dot = 0;
    for (int64_t j = 0; j < kv->head_dim; j++) dot += (double)q[j] * (double)k[j];
    if (a->relative) dot += relative_terms(job, q, k, h * kv->head_dim, at - p);
    const int32_t *types = a->relative ? a->relative->types : NULL;
    if (types && types[span->row + at] != types[span->row + p]) dot += segment_term(job, q, h * kv->head_dim);
    double bias = 0;
    if (a->rel_bias) {
        int32_t bucket = proa_rel_bucket((int32_t)(p - at), a->rel_buckets, a->rel_distance,
                                         a->rel_bidirectional);
        bias = (double)a->rel_bias[bucket * heads + h];
    }
    if (a->alibi) bias += (double)a->alibi[h] * (double)(p - at);
    dot *= (double)a->scale;
    if (a->soft_cap > 0) dot = (double)a->soft_cap * tanh(dot / (double)a->soft_cap);
    return dot + bias;
}

/* Scores of a row; those beyond are computed again, since the reference has no scratch. */
enum { SCORES_KEPT = 512 };

/* y = sum_p softmax_p(score_p) v_p over the keys [begin, end), for row i of the span and head h. The first walk finds
 * the largest score, so that no exp overflows. A sink adds exp(sink) to the denominator. */
static void attend_head(const attend_job *job, const proa_span *span, int64_t i, int64_t h)
{
    const proa_kv *kv = job->kv;
    const float *q = at_plane(job->q, span->row + i, h, 0);
    float *y = at_plane(job->y, span->row + i, h, 0);
    int64_t at = proa_tree_position(job->spans, span, i), begin = 0, end = span->context;
    int64_t window = job->a->window, first = proa_tree_first(span);
    uint64_t seen = proa_tree_seen(job->spans, span, i);
    if (job->a->causal) end = at + 1;
    if (window > 0) begin = proa_max64(0, at + 1 - window), end = proa_min64(end, at + window);
    int64_t kv_head = h / (job->q.shape[1] / kv->kv_heads);
    double largest = (double)-INFINITY, sum = 0, out[PROA_HEAD_DIM_MAX] = {0}, kept[SCORES_KEPT];
    for (int64_t p = begin; p < end; p++) {
        double s = score_row(job, span, q, h, at, p, proa_tree_slot(first, seen, p));
        if (p - begin < SCORES_KEPT) kept[p - begin] = s;
        if (s > largest || isnan(s)) largest = s;
    }
    for (int64_t p = begin; p < end; p++) {
        int64_t slot = proa_tree_slot(first, seen, p);
        double s = p - begin < SCORES_KEPT ? kept[p - begin] : score_row(job, span, q, h, at, p, slot);
        double weight = exp(s - largest);
        float row[PROA_HEAD_DIM_MAX];
        const float *v = load_row(row, kv->v, kv->dtype, kv_index(kv, job->spans, span, slot, kv_head),
                                  kv->head_dim);
        sum += weight;
        for (int64_t j = 0; j < kv->head_dim; j++) out[j] += weight * (double)v[j];
    }
    if (job->a->sinks) sum += exp((double)job->a->sinks[h] - largest);
    for (int64_t j = 0; j < kv->head_dim; j++) y[j] = begin < end ? (float)(out[j] / sum) : 0.0f;
}

static void attend_heads(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const attend_job *job = arg;
    for (int64_t h = begin; h < end; h++)
        for (int64_t s = 0; s < job->spans->count; s++)
            for (int64_t i = 0; i < job->spans->span[s].rows; i++)
                attend_head(job, &job->spans->span[s], i, h);
}

static void reference_attend(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv,
                             const proa_spans *spans, const proa_attention *a)
{
    attend_job job = {y, q, kv, spans, a};
    proa_pool_run(c->pool, q.shape[1], 1, attend_heads, &job);
}

/* ---- the head's helpers ---- */

static void log_sum_exp(proa_ctx *c, float *out, proa_view x)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        double largest = (double)-INFINITY, sum = 0;
        for (int64_t j = 0; j < x.shape[1]; j++) {
            double v = (double)*at_row(x, t, j);
            if (v > largest || isnan(v)) largest = v;
            if (isnan(v)) break;
        }
        for (int64_t j = 0; j < x.shape[1]; j++) sum += exp((double)*at_row(x, t, j) - largest);
        out[t] = (float)(isinf(largest) ? largest : largest + log(sum));
    }
}

/* Whether (a, at i) stands before (b, at j) in top_k's total order. */
static bool ranks_before(float a, int64_t i, float b, int64_t j)
{
    bool equal = a == b || (isnan(a) && isnan(b));
    if (equal) return i < j;
    return isnan(b) || a > b; /* a is NaN and b is not: the comparison is false, as it must be */
}

static void top_k(proa_ctx *c, proa_view values, int32_t *ids, proa_view x, int64_t k)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t r = 0; r < k; r++) {
            int64_t best = -1, previous = r ? ids[t * k + r - 1] : -1;
            for (int64_t j = 0; j < x.shape[1]; j++) {
                if (previous >= 0 && !ranks_before(*at_row(x, t, previous), previous, *at_row(x, t, j), j))
                    continue;
                if (best < 0 || ranks_before(*at_row(x, t, j), j, *at_row(x, t, best), best)) best = j;
            }
            ids[t * k + r] = (int32_t)best;
            *at_row(values, t, r) = *at_row(x, t, best);
        }
}

static const proa_decode_ops decode_ops = {.sample = proa_sample_reference,
                                           .process_logits = proa_process_logits_reference,
                                           .mask_logits = proa_mask_logits_reference,
                                           .gather_logprobs = proa_gather_logprobs_reference,
                                           .gather_token_ids = proa_gather_token_ids_reference,
                                           .beam_step = proa_beam_step_reference,
                                           .reorder_kv = proa_reorder_kv_reference,
                                           .log_probs = proa_log_probs_reference};

void proa_reference_fill(proa_ops *ops)
{
    *ops = (proa_ops){.name = "generic",
                      .isa = PROA_ISA_GENERIC,
                      .layout = PROA_REFERENCE_LAYOUT,
                      .pack_bytes = pack_bytes,
                      .embed = reference_embed,
                      .rms_norm = rms_norm,
                      .layer_norm = layer_norm,
                      .linear = reference_linear,
                      .pack = reference_pack,
                      .rope_table = rope_table,
                      .rope = reference_rope,
                      .kv_append = kv_append,
                      .rope_append = rope_append,
                      .attend = reference_attend,
                      .act = act_in_place,
                      .act_mul = act_mul,
                      .route = proa_route_reference,
                      .experts = proa_experts_reference,
                      .heads_linear = proa_heads_linear_reference,
                      .sigmoid_mul = proa_sigmoid_mul_reference,
                      .lora = proa_lora_reference,
                      .soft_cap = soft_cap,
                      .clip = reference_clip,
                      .scale = reference_scale,
                      .add = reference_add,
                      .gather = reference_gather,
                      .unfold = reference_unfold,
                      .span_mean = span_mean,
                      .log_sum_exp = log_sum_exp,
                      .top_k = top_k,
                      .linear_lora = proa_linear_lora_reference,
                      .lora_stack = proa_lora_stack_reference,
                      .decode = &decode_ops};
}
