/* SPDX-License-Identifier: Apache-2.0
 * vec_rows.h - the ops that work row by row: embed, gather, add, norms, activations. Written in simd_*.h; included by
 * vec_avx2.c and vec_avx512.c. Rows are spread over the pool; a row is worked on in one fixed order. */
#ifndef PROA_KERNELS_CPU_VEC_ROWS_H
#define PROA_KERNELS_CPU_VEC_ROWS_H

#include "base/checked.h"
#include "kernels/ops.h"
#include <math.h>

/* Elements below which a share is not worth another thread: about 5 us. */
#define VEC_SHARE 16384

/* Arguments of any of these ops; each uses what it needs. */
typedef struct vec_job {
    proa_view y, a, b, w;
    const int32_t *ids;
    float factor;         /* scale, eps, cap or limit */
    int64_t first, width; /* of groups */
    proa_act act;
    bool accumulate;
} vec_job;

static void run_rows(proa_ctx *c, int64_t rows, int64_t cols, proa_task_fn *fn, vec_job *job)
{
    proa_pool_run(c->pool, rows, proa_max64(1, VEC_SHARE / proa_max64(cols, 1)), fn, job);
}

/* Row r of [T,d], or of [T,H,d] counted over T and H. */
static float *row_at(proa_view v, int64_t r)
{
    if (v.rank < 3) return proa_view_f32(v) + r * v.stride[0];
    return proa_view_f32(v) + r / v.shape[1] * v.stride[0] + r % v.shape[1] * v.stride[1];
}

static int64_t row_count(proa_view v)
{
    return v.rank < 3 ? v.shape[0] : v.shape[0] * v.shape[1];
}

static int64_t row_length(proa_view v)
{
    return v.shape[v.rank - 1];
}

/* ---- embed, gather, add ---- */

V_INLINE void embed_row(float *y, const void *row, proa_dtype dtype, int64_t d, float scale, bool accumulate)
{
    vf s = v_set1(scale);
    int64_t j = 0;
    for (; j + V_WIDTH <= d; j += V_WIDTH) {
        vf old = accumulate ? v_load(y + j) : v_zero();
        v_store(y + j, v_fma(s, v_load_as(row, dtype, j), old));
    }
    if (j == d) return;
    vf old = accumulate ? v_load_n(y + j, d - j) : v_zero();
    v_store_n(y + j, v_fma(s, v_load_as_n(row, dtype, j, d - j), old), d - j);
}

static void embed_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y), bytes = job->a.stride[0] * proa_dtype_bytes(job->a.dtype);
    for (int64_t t = begin; t < end; t++) {
        int64_t id = job->ids[t] < job->a.shape[0] ? job->ids[t] : 0;
        const void *row = (const char *)job->a.data + id * bytes;
        float *y = row_at(job->y, t);
        switch (job->a.dtype) {
        case PROA_DTYPE_F32: embed_row(y, row, PROA_DTYPE_F32, d, job->factor, job->accumulate); break;
        case PROA_DTYPE_BF16: embed_row(y, row, PROA_DTYPE_BF16, d, job->factor, job->accumulate); break;
        default: embed_row(y, row, PROA_DTYPE_F16, d, job->factor, job->accumulate); break;
        }
    }
}

static void embed_op(proa_ctx *c, proa_view y, proa_view table, const int32_t *ids, float scale, bool accumulate)
{
    vec_job job = {.y = y, .a = table, .ids = ids, .factor = scale, .accumulate = accumulate};
    run_rows(c, row_count(y), row_length(y), embed_rows, &job);
}

static void gather_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    for (int64_t i = begin; i < end; i++)
        memcpy(row_at(job->y, i), row_at(job->a, job->ids[i]), (size_t)row_length(job->y) * sizeof(float));
}

static void gather_op(proa_ctx *c, proa_view y, proa_view x, const int32_t *rows)
{
    vec_job job = {.y = y, .a = x, .ids = rows};
    run_rows(c, row_count(y), row_length(y), gather_rows, &job);
}

static void add_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    for (int64_t t = begin; t < end; t++) {
        float *y = row_at(job->y, t);
        const float *a = row_at(job->a, t), *b = row_at(job->b, t);
        int64_t j = 0;
        for (; j + V_WIDTH <= d; j += V_WIDTH) v_store(y + j, v_add(v_load(a + j), v_load(b + j)));
        if (j < d) v_store_n(y + j, v_add(v_load_n(a + j, d - j), v_load_n(b + j, d - j)), d - j);
    }
}

static void add_op(proa_ctx *c, proa_view y, proa_view a, proa_view b)
{
    vec_job job = {.y = y, .a = a, .b = b};
    run_rows(c, row_count(y), row_length(y), add_rows, &job);
}

/* ---- norms ---- */

/* Sum of (x - mean)^2 / of, or of x / of; the division comes first so that the sum overflows only where the mean does.
 * Four chains, since one addition waits for the last. */
V_INLINE float part_of_mean(const float *x, int64_t d, int64_t of, float mean, bool squares)
{
    vf sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()}, share = v_set1(1.0f / (float)of), m = v_set1(mean);
    int64_t j = 0;
    for (; j + 4 * V_WIDTH <= d; j += 4 * V_WIDTH) V_UNROLL for (int i = 0; i < 4; i++)
        {
            vf v = v_sub(v_load(x + j + i * V_WIDTH), m);
            sum[i] = v_fma(v_mul(v, share), squares ? v : v_set1(1.0f), sum[i]);
        }
    for (; j < d; j += V_WIDTH) {
        int64_t n = proa_min64(V_WIDTH, d - j);
        vf v = v_select(v_first(n), v_sub(v_load_n(x + j, n), m), v_zero());
        sum[0] = v_fma(v_mul(v, share), squares ? v : v_set1(1.0f), sum[0]);
    }
    return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

V_INLINE float mean_of(const float *x, int64_t d, float mean, bool squares)
{
    return part_of_mean(x, d, d, mean, squares);
}

/* y = x * inverse * w; y may be x. */
V_INLINE void scale_by_weights(float *y, const float *x, const float *w, int64_t d, float factor)
{
    vf inverse = v_set1(factor);
    int64_t j = 0;
    for (; j + V_WIDTH <= d; j += V_WIDTH)
        v_store(y + j, v_mul(v_mul(v_load(x + j), inverse), v_load(w + j)));
    if (j < d) v_store_n(y + j, v_mul(v_mul(v_load_n(x + j, d - j), inverse), v_load_n(w + j, d - j)), d - j);
}

static void rms_norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->a), heads = job->a.rank == 3 ? job->a.shape[1] : 1;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_at(job->a, r), *w = proa_norm_weights(job->w, r % heads);
        float inverse = 1.0f / sqrtf(mean_of(x, d, 0.0f, true) + job->factor);
        scale_by_weights(row_at(job->y, r), x, w, d, inverse);
    }
}

static void rms_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, float eps)
{
    vec_job job = {.y = y, .a = x, .w = w, .factor = eps};
    run_rows(c, row_count(x), row_length(x), rms_norm_rows, &job);
}

static void group_squares_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->a), width = job->width;
    for (int64_t r = begin; r < end; r++)
        for (int64_t g = 0; g < row_length(job->y); g++) {
            int64_t from = proa_max64(g * width - job->first, 0),
                    to = proa_min64((g + 1) * width - job->first, d);
            float *m = row_at(job->y, r) + g;
            *m = from < to ? part_of_mean(row_at(job->a, r) + from, to - from, width, 0.0f, true) : 0.0f;
        }
}

static void group_squares(proa_ctx *c, proa_view m, proa_view x, int64_t first, int64_t width)
{
    vec_job job = {.y = m, .a = x, .first = first, .width = width};
    run_rows(c, row_count(x), row_length(x), group_squares_rows, &job);
}

static void group_scale_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0, n; j < d; j += n) {
            int64_t group = (job->first + j) / job->width;
            float *x = row_at(job->y, r) + j, inverse = 1.0f / sqrtf(row_at(job->a, r)[group] + job->factor);
            n = proa_min64((group + 1) * job->width - job->first, d) - j;
            scale_by_weights(x, x, proa_view_f32(job->w) + j, n, inverse);
        }
}

static void group_scale(proa_ctx *c, proa_view x, proa_view m, proa_view w, int64_t first, int64_t width,
                        float eps)
{
    vec_job job = {.y = x, .a = m, .w = w, .first = first, .width = width, .factor = eps};
    run_rows(c, row_count(x), row_length(x), group_scale_rows, &job);
}

static void layer_norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->a), heads = job->a.rank == 3 ? job->a.shape[1] : 1;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_at(job->a, r), *w = proa_norm_weights(job->w, r % heads),
                    *b = proa_norm_weights(job->b, r % heads);
        float *y = row_at(job->y, r), mean = mean_of(x, d, 0.0f, false);
        vf m = v_set1(mean), inverse = v_set1(1.0f / sqrtf(mean_of(x, d, mean, true) + job->factor));
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            vf scaled = v_mul(v_sub(v_load_n(x + j, n), m), inverse);
            v_store_n(y + j, v_fma(scaled, v_load_n(w + j, n), b ? v_load_n(b + j, n) : v_zero()), n);
        }
    }
}

static void layer_norm(proa_ctx *c, proa_view y, proa_view x, proa_view w, proa_view b, float eps)
{
    vec_job job = {.y = y, .a = x, .b = b, .w = w, .factor = eps};
    run_rows(c, row_count(x), row_length(x), layer_norm_rows, &job);
}

/* ---- activations ---- */

/* y = act(x) * up, or act(x) where up is NULL. act is a constant, so that its branches and constants leave the loop. */
V_INLINE void act_row(float *y, const float *x, const float *up, int64_t d, proa_act act)
{
    int64_t j = 0;
    for (; j + V_WIDTH <= d; j += V_WIDTH) {
        vf v = v_act(act, v_load(x + j));
        v_store(y + j, up ? v_mul(v, v_load(up + j)) : v);
    }
    if (j == d) return;
    vf v = v_act(act, v_load_n(x + j, d - j));
    v_store_n(y + j, up ? v_mul(v, v_load_n(up + j, d - j)) : v, d - j);
}

static void act_row_as(proa_act act, float *y, const float *x, const float *up, int64_t d)
{
    switch (act) {
#define CASE(name, text)                                                                                     \
    case PROA_ACT_##name: act_row(y, x, up, d, PROA_ACT_##name); break;
        PROA_ACT_LIST(CASE)
#undef CASE
    case PROA_ACT_COUNT: break;
    }
}

static void act_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    for (int64_t t = begin; t < end; t++) {
        float *y = row_at(job->y, t);
        const float *x = row_at(job->a, t), *up = job->b.rank ? row_at(job->b, t) : NULL;
        act_row_as(job->act, y, x, up, d);
    }
}

static void act_in_place(proa_ctx *c, proa_view x, proa_act act)
{
    vec_job job = {.y = x, .a = x, .act = act};
    run_rows(c, row_count(x), row_length(x), act_rows, &job);
}

static void soft_cap_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    vf cap = v_set1(job->factor);
    for (int64_t t = begin; t < end; t++) {
        float *x = row_at(job->y, t);
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            v_store_n(x + j, v_mul(v_tanh(v_div(v_load_n(x + j, n), cap)), cap), n);
        }
    }
}

static void soft_cap(proa_ctx *c, proa_view x, float cap)
{
    vec_job job = {.y = x, .factor = cap};
    run_rows(c, row_count(x), row_length(x), soft_cap_rows, &job);
}

/* The second operand of max and min passes if one is NaN. */
static void clip_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    vf high = v_set1(job->factor), low = v_set1(-job->factor);
    for (int64_t t = begin; t < end; t++) {
        float *x = row_at(job->y, t);
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            v_store_n(x + j, v_min(high, v_max(low, v_load_n(x + j, n))), n);
        }
    }
}

static void clip_op(proa_ctx *c, proa_view x, float limit)
{
    vec_job job = {.y = x, .factor = limit};
    run_rows(c, row_count(x), row_length(x), clip_rows, &job);
}

/* exp(m) - 1 - x, m <= 0: from -0.5 on by the series of exp, whose first terms cancel. */
static vf expm1_less(vf m, vf x)
{
    vf series = v_set1(1.0f / 40320);
    const float terms[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2};
    for (int i = 0; i < 6; i++) series = v_fma(series, m, v_set1(terms[i]));
    vf near = v_fma(v_mul(m, m), series, v_sub(m, x));
    vf far = v_sub(v_sub(v_exp(m), v_set1(1)), x);
    return v_select(v_gt(m, v_set1(-0.5f)), near, far);
}

/* The second operand of min passes if one is NaN. */
static void xielu_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    const float *a = job->w.data; /* alpha_p, alpha_n, beta, eps */
    int64_t d = row_length(job->y);
    for (int64_t t = begin; t < end; t++) {
        float *row = row_at(job->y, t);
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            vf x = v_load_n(row + j, n), square = v_mul(v_mul(v_set1(a[0]), x), x);
            vf below = v_mul(v_set1(a[1]), expm1_less(v_min(v_set1(a[3]), x), x));
            vf bent = v_select(v_gt(x, v_zero()), square, below);
            v_store_n(row + j, v_fma(v_set1(a[2]), x, bent), n);
        }
    }
}

static float soft_plus(float x)
{
    return x > 30 ? x : (float)log1p(exp((double)x));
}

static void xielu_op(proa_ctx *c, proa_view x, proa_view a)
{
    const float *v = a.data;
    float made[] = {soft_plus(v[0]), v[2] + soft_plus(v[1]), v[2], v[3]};
    vec_job job = {.y = x, .w = a};
    job.w.data = made;
    run_rows(c, row_count(x), row_length(x), xielu_rows, &job);
}

/* The largest magnitude of a row, at least 1e-5; the second operand of max passes if one is NaN. */
V_INLINE float largest_magnitude(const float *x, int64_t d)
{
    vf largest = v_set1(1e-5f);
    for (int64_t j = 0; j < d; j += V_WIDTH) {
        vf v = v_load_n(x + j, proa_min64(V_WIDTH, d - j));
        largest = v_max(v_max(v, v_sub(v_zero(), v)), largest);
    }
    return v_hmax(largest);
}

static void round_range(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    vf most = v_set1(job->factor), least = v_set1(-job->factor - 1);
    for (int64_t t = begin; t < end; t++) {
        float *row = row_at(job->y, t);
        vf scale = v_set1(job->factor / largest_magnitude(row, d));
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            vf code = v_round(v_mul(v_load_n(row + j, n), scale));
            v_store_n(row + j, v_div(v_max(least, v_min(most, code)), scale), n);
        }
    }
}

static void round_rows(proa_ctx *c, proa_view x, int32_t bits)
{
    vec_job job = {.y = x, .factor = (float)((1 << (bits - 1)) - 1)};
    run_rows(c, row_count(x), row_length(x), round_range, &job);
}

static void scale_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const vec_job *job = arg;
    int64_t d = row_length(job->y);
    vf factor = v_set1(job->factor);
    for (int64_t t = begin; t < end; t++) {
        float *y = row_at(job->y, t);
        const float *x = row_at(job->a, t);
        for (int64_t j = 0; j < d; j += V_WIDTH) {
            int64_t n = proa_min64(V_WIDTH, d - j);
            v_store_n(y + j, v_mul(v_load_n(x + j, n), factor), n);
        }
    }
}

static void scale_op(proa_ctx *c, proa_view y, proa_view x, float factor)
{
    vec_job job = {.y = y, .a = x, .factor = factor};
    run_rows(c, row_count(y), row_length(y), scale_rows, &job);
}

static void act_mul(proa_ctx *c, proa_view y, proa_view gate, proa_view up, proa_act act)
{
    vec_job job = {.y = y, .a = gate, .b = up, .act = act};
    run_rows(c, row_count(y), row_length(y), act_rows, &job);
}

#endif
