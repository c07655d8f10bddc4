/* SPDX-License-Identifier: Apache-2.0
 * gptq.c - GPTQ: the factor of the inverse Hessian, rounding with error feedback, and coordinate descent. */
#include "convert/calibrate/gptq.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DAMPING 0.01 /* of the mean of H's diagonal, added to the diagonal; as in GPTQ */

/* ---- the factor ---- */

/* With H = R R^T, R upper triangular, the inverse of H is U^T U with U = R^-1, which is upper triangular too. */
typedef struct factor_job {
    double *r; /* [K][K]: H, then R, then U */
    int64_t K, k;
    float *out;
} factor_job;

/* Rows [begin, end) of H lose what column k of R explains. Only columns up to the row's own count (the lower half). */
static void update_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const factor_job *f = arg;
    const double *column = f->r + f->k * f->K; /* row k of the lower half is column k of R */
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++) {
        double a = column[i], *row = f->r + i * f->K;
        for (int64_t j = 0; j <= i; j++) row[j] -= a * column[j];
    }
}

/* H in the lower half becomes R^T: row k holds column k of R. */
static void factor_matrix(factor_job *f, proa_pool *pool)
{
    for (f->k = f->K - 1; f->k >= 0; f->k--) {
        double *row = f->r + f->k * f->K;
        double root = sqrt(row[f->k] > 1e-30 ? row[f->k] : 1e-30);
        for (int64_t j = 0; j < f->k; j++) row[j] /= root;
        row[f->k] = root;
        proa_pool_run(pool, f->k, 64, update_rows, f);
    }
}

/* Row i of U = R^-1 by substitution: U R = 1. U[i][j] = (1(i,j) - sum over i <= k < j of U[i][k] R[k][j]) / R[j][j],
 * and R[k][j] is r[j][k]. */
static void invert_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const factor_job *f = arg;
    int64_t K = f->K;
    double *u = proa_malloc((size_t)K * sizeof *u);
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++) {
        u[i] = 1 / f->r[i * K + i];
        for (int64_t j = i + 1; j < K; j++) {
            const double *row = f->r + j * K;
            double sum[4] = {0};
            int64_t k = i;
            for (; k + 4 <= j; k += 4)
                for (int l = 0; l < 4; l++) sum[l] += u[k + l] * row[k + l];
            for (; k < j; k++) sum[0] += u[k] * row[k];
            u[j] = -(sum[0] + sum[1] + sum[2] + sum[3]) / row[j];
        }
        float *out = f->out + i * K;
        memset(out, 0, (size_t)i * sizeof *out);
        for (int64_t j = i; j < K; j++) out[j] = (float)u[j];
    }
    free(u);
}

typedef struct input_weight {
    float weight;
    int32_t input;
} input_weight;

static int by_weight(const void *a, const void *b)
{
    const input_weight *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->input - y->input;
}

static void order_inputs(proa_gptq_inputs *in, const float *hessian)
{
    int64_t K = in->K;
    input_weight *list = proa_malloc((size_t)K * sizeof *list);
    for (int64_t k = 0; k < K; k++) {
        in->weight[k] = hessian[k * K + k];
        list[k] = (input_weight){in->weight[k], (int32_t)k};
    }
    qsort(list, (size_t)K, sizeof *list, by_weight);
    for (int64_t k = 0; k < K; k++) in->order[k] = list[k].input;
    free(list);
}

void proa_gptq_factor(proa_gptq_inputs *out, float *hessian, int64_t K, proa_pool *pool)
{
    double mean = 0;
    proa_gptq_unknown(out, K);
    for (int64_t k = 0; k < K; k++) mean += (double)hessian[k * K + k] / (double)K;
    if (!(mean > 0) || !isfinite(mean)) { /* no input was seen, or none that can be used */
        free(hessian);
        return;
    }
    for (int64_t k = 0; k < K; k++) hessian[k * K + k] += (float)(DAMPING * mean);
    order_inputs(out, hessian);
    out->hessian = hessian;
    out->factor = proa_malloc((size_t)(K * K) * sizeof *out->factor);
    factor_job f = {.r = proa_malloc((size_t)(K * K) * sizeof *f.r), .K = K, .out = out->factor};
    for (int64_t i = 0; i < K; i++)
        for (int64_t j = 0; j <= i; j++)
            f.r[i * K + j] = (double)hessian[(int64_t)out->order[i] * K + out->order[j]];
    factor_matrix(&f, pool);
    proa_pool_run(pool, K, 16, invert_rows, &f);
    free(f.r);
}

void proa_gptq_unknown(proa_gptq_inputs *out, int64_t K)
{
    *out = (proa_gptq_inputs){.K = K};
    out->order = proa_malloc((size_t)K * sizeof *out->order);
    out->weight = proa_malloc((size_t)K * sizeof *out->weight);
    for (int64_t k = 0; k < K; k++) out->order[k] = (int32_t)k, out->weight[k] = 1;
}

void proa_gptq_release(proa_gptq_inputs *in)
{
    free(in->order);
    free(in->weight);
    free(in->factor);
    free(in->hessian);
    *in = (proa_gptq_inputs){.K = 0};
}

/* ---- error feedback ---- */

enum { ROWS = 8 }; /* rows that share a walk over the factor */

typedef struct round_job {
    const proa_codes *m;
    const proa_gptq_inputs *in;
    int sweeps;
} round_job;

/* Rows [row, row + rows); v: [ROWS][K] workspace, in the order of rounding. */
static void feed_back(const round_job *job, int64_t row, int64_t rows, float *v)
{
    const proa_codes *m = job->m;
    const proa_gptq_inputs *in = job->in;
    int64_t K = m->K;
    for (int64_t r = 0; r < rows; r++) {
        proa_codes_scales(m, row + r, in->weight);
        for (int64_t j = 0; j < K; j++) v[r * K + j] = m->numbers[(row + r) * K + in->order[j]];
    }
    for (int64_t j = 0; j < K; j++) {
        const float *u = in->factor ? in->factor + j * K : NULL;
        for (int64_t r = 0; r < rows; r++) {
            float *w = v + r * K, kept = proa_codes_round(m, row + r, in->order[j], w[j]);
            if (!u) continue;
            float error = (w[j] - kept) / u[j];
            for (int64_t l = j + 1; l < K; l++) w[l] -= error * u[l];
        }
    }
}

/* ---- coordinate descent ---- */

/* A row: d = v - w, and H d, which is half of the error's slope. */
typedef struct row_state {
    const proa_codes *m;
    const float *hessian;
    int64_t row;
    float *d, *slope; /* [K] */
} row_state;

static float number_of(const proa_codes *m, int64_t row, int64_t k)
{
    return proa_codes_unit(m, row, k) * m->scales[row * (m->K / m->group) + k / m->group];
}

static void add_scaled(float *restrict to, const float *restrict from, float factor, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Rows [row, row + rows) of d and slope: [rows][K]. */
static void begin_rows(const round_job *job, int64_t row, int64_t rows, float *d, float *slope)
{
    int64_t K = job->m->K;
    memset(slope, 0, (size_t)(rows * K) * sizeof *slope);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++)
            d[r * K + k] = number_of(job->m, row + r, k) - job->m->numbers[(row + r) * K + k];
    for (int64_t k = 0; k < K; k++)
        for (int64_t r = 0; r < rows; r++)
            add_scaled(slope + r * K, job->in->hessian + k * K, d[r * K + k], K);
}

/* Each input takes the code nearest to where its slope would be 0. Returns how many changed. */
static int64_t move_codes(const row_state *s)
{
    int64_t K = s->m->K, moved = 0;
    for (int64_t k = 0; k < K; k++) {
        const float *h = s->hessian + k * K;
        float w = s->m->numbers[s->row * K + k], now = w + s->d[k];
        float next = proa_codes_round(s->m, s->row, k, now - s->slope[k] / h[k]);
        if (next == now || fabsf(next - now) < 1e-6f * fabsf(now)) continue;
        s->d[k] = next - w;
        add_scaled(s->slope, h, next - now, K);
        moved++;
    }
    return moved;
}

/* Each scale of int4 goes to where its slope is 0. */
static void move_scales(const row_state *s, float *change)
{
    const proa_codes *m = s->m;
    int64_t K = m->K, groups = K / m->group;
    for (int64_t g = 0; g < groups; g++) {
        float *scale = &m->scales[s->row * groups + g];
        double slope = 0, curve = 0;
        memset(change, 0, (size_t)K * sizeof *change);
        for (int64_t k = g * m->group; k < (g + 1) * m->group; k++) {
            float q = proa_codes_unit(m, s->row, k);
            slope += (double)q * (double)s->slope[k];
            if (q != 0) add_scaled(change, s->hessian + k * K, q, K);
        }
        for (int64_t k = g * m->group; k < (g + 1) * m->group; k++)
            curve += (double)proa_codes_unit(m, s->row, k) * (double)change[k];
        if (!(curve > 0)) continue;
        float next = proa_codes_round_float(m->scale_dtype, (float)((double)*scale - slope / curve)),
              step = next - *scale;
        if (!(next > 0) || step == 0) continue;
        *scale = next;
        for (int64_t k = g * m->group; k < (g + 1) * m->group; k++)
            s->d[k] += step * proa_codes_unit(m, s->row, k);
        add_scaled(s->slope, change, step, K);
    }
}

static void descend_rows(const round_job *job, int64_t row, int64_t rows, float *work)
{
    int64_t K = job->m->K;
    float *d = work, *slope = work + ROWS * K, *change = slope + ROWS * K;
    begin_rows(job, row, rows, d, slope);
    for (int64_t r = 0; r < rows; r++) {
        row_state s = {job->m, job->in->hessian, row + r, d + r * K, slope + r * K};
        for (int i = 0; i < job->sweeps; i++) {
            int64_t moved = move_codes(&s);
            if (moved == 0) break;
            if (job->m->kind == PROA_CODES_INT4 && i + 1 < job->sweeps) move_scales(&s, change);
        }
    }
}

static void round_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const round_job *job = arg;
    float *work = proa_malloc((size_t)((2 * ROWS + 1) * job->m->K) * sizeof *work);
    PROA_UNUSED(worker);
    for (int64_t row = begin; row < end; row += ROWS) {
        int64_t rows = proa_min64(ROWS, end - row);
        feed_back(job, row, rows, work);
        if (job->in->hessian && job->sweeps > 0) descend_rows(job, row, rows, work);
    }
    free(work);
}

void proa_gptq_round(const proa_codes *m, const proa_gptq_inputs *inputs, int sweeps, proa_pool *pool)
{
    round_job job = {m, inputs, sweeps};
    proa_pool_run(pool, m->N, ROWS, round_task, &job);
}

double proa_gptq_error(const proa_codes *m, const proa_gptq_inputs *in)
{
    double sum = 0;
    int64_t K = m->K;
    float *d = proa_malloc((size_t)(2 * K) * sizeof *d);
    round_job job = {m, in, 0};
    for (int64_t row = 0; in->hessian && row < m->N; row++) {
        begin_rows(&job, row, 1, d, d + K);
        for (int64_t k = 0; k < K; k++) sum += (double)d[k] * (double)d[K + k];
    }
    free(d);
    return sum;
}
