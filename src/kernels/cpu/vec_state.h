/* SPDX-License-Identifier: Apache-2.0
 * vec_state.h - the ops of layers with a recurrent state (kernels/op_state.h), written in simd_*.h; included by
 * vec_avx2.c and vec_avx512.c. Lanes are columns, and each sum is a chain in rising order, so neither threads nor the
 * pieces in which a prompt comes change a bit. */
#ifndef PROA_KERNELS_CPU_VEC_STATE_H
#define PROA_KERNELS_CPU_VEC_STATE_H

#include "kernels/cpu/vec_rows.h"
#include "kernels/state_heads.h"

#define STATE_VECTORS 4  /* at once: a piece of a state of 128 rows is then 32 KiB with 16 lanes */
#define DELTA_ROWS    16 /* whose q, k and rates are prepared at once */

/* ---- conv_state ---- */

#define CONV_COLUMNS  (STATE_VECTORS * V_WIDTH)

typedef struct conv_job {
    proa_view y, x;
    const proa_conv *conv;
    const proa_layer_state *state;
    const proa_spans *spans;
} conv_job;

/* The weights and the bias of some columns, each tap's side by side. */
typedef struct conv_weights {
    float w[PROA_CONV_WIDTH_MAX][CONV_COLUMNS], bias[CONV_COLUMNS];
} conv_weights;

static void read_conv_weights(conv_weights *to, const proa_conv *c, int64_t begin, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t k = 0; k < c->taps; k++) to->w[k][j] = c->w[(begin + j) * c->taps + k];
        to->bias[j] = c->bias ? c->bias[begin + j] : 0.0F;
    }
}

/* Columns from `begin` on of row i of the span, of which rows -1, -2, ... are those that the state keeps. */
static const float *conv_row(const conv_job *job, const proa_span *span, int64_t i, int64_t begin)
{
    static const float zeros[CONV_COLUMNS];
    const float *kept = job->state->base + span->state * job->state->stride;
    if (i >= 0) return row_at(job->x, span->row + i) + begin;
    return proa_span_continues(span) ? kept + (job->conv->taps - 1 + i) * job->x.shape[1] + begin : zeros;
}

static void conv_columns(const conv_job *job, const proa_span *span, const conv_weights *w, int64_t begin,
                         int64_t n)
{
    const int64_t taps = job->conv->taps;
    const float *x[PROA_CONV_WIDTH_MAX];
    for (int64_t i = 0; i < span->rows; i++) {
        float *y = row_at(job->y, span->row + i) + begin;
        for (int64_t k = 0; k < taps; k++) x[k] = conv_row(job, span, i - (taps - 1) + k, begin);
        for (int64_t j = 0; j < n; j += V_WIDTH) {
            const int64_t lanes = proa_min64(V_WIDTH, n - j);
            vf sum = v_zero();
            for (int64_t k = 0; k < taps; k++)
                sum = v_fma(v_load(w->w[k] + j), v_load_n(x[k] + j, lanes), sum);
            v_store_n(y + j, v_add(sum, v_load(w->bias + j)), lanes);
        }
        act_row_as(job->conv->act, y, y, NULL, n);
    }
}

/* The rows that the state keeps may be some that it has: rising numbers are copied first. */
static void keep_conv_rows(const conv_job *job, const proa_span *span, int64_t begin, int64_t n)
{
    float *kept = job->state->base + span->state * job->state->stride + begin;
    const int64_t before = job->conv->taps - 1;
    for (int64_t k = 0; k < before; k++)
        memmove(kept + k * job->x.shape[1], conv_row(job, span, span->rows - before + k, begin),
                (size_t)n * sizeof *kept);
}

/* Items are columns. */
static void conv_state_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const conv_job *job = arg;
    conv_weights w = {{{0}}, {0}};
    for (int64_t at = begin; at < end; at += CONV_COLUMNS) {
        const int64_t n = proa_min64(CONV_COLUMNS, end - at);
        read_conv_weights(&w, job->conv, at, n);
        for (int64_t s = 0; s < job->spans->count; s++) {
            if (job->spans->span[s].rows < 1) continue;
            conv_columns(job, &job->spans->span[s], &w, at, n);
            keep_conv_rows(job, &job->spans->span[s], at, n);
        }
    }
}

static void conv_state(proa_ctx *c, proa_view y, proa_view x, const proa_conv *conv,
                       const proa_layer_state *state, const proa_spans *spans)
{
    conv_job job = {y, x, conv, state, spans};
    proa_pool_run(c->pool, x.shape[1], CONV_COLUMNS, conv_state_columns, &job);
}

/* ---- gated_delta ---- */

/* Rows of a head: q and k divided by their norms, q also by sqrt(dk); the decay and the rate of change. By channel the
 * decays of a row, and k times these. */
typedef struct delta_rows {
    float q[DELTA_ROWS][PROA_STATE_DIM_MAX], k[DELTA_ROWS][PROA_STATE_DIM_MAX];
    float decays[DELTA_ROWS][PROA_STATE_DIM_MAX], k_in[DELTA_ROWS][PROA_STATE_DIM_MAX];
    float decay[DELTA_ROWS], beta[DELTA_ROWS];
    float *y[DELTA_ROWS];
    const float *v[DELTA_ROWS];
    int64_t count;
} delta_rows;

/* out = scale x / |x| */
static void divide_by_norm(float *out, const float *x, int64_t n, double scale)
{
    vf sum = v_zero();
    for (int64_t i = 0; i < n; i += V_WIDTH) {
        vf part = v_load_n(x + i, proa_min64(V_WIDTH, n - i));
        sum = v_fma(part, part, sum);
    }
    vf factor = v_set1((float)(scale / sqrt((double)v_sum(sum) + 1e-6)));
    for (int64_t i = 0; i < n; i += V_WIDTH) {
        const int64_t lanes = proa_min64(V_WIDTH, n - i);
        v_store_n(out + i, v_mul(v_load_n(x + i, lanes), factor), lanes);
    }
}

/* Of a row of head h, whose rates are `a`. */
static void read_delta_channels(float *decays, float *k_in, const float *k, const proa_delta *d,
                                const float *a, int64_t h)
{
    const float *bias = d->bias + h * d->key_dim;
    for (int64_t i = 0; i < d->key_dim; i++) {
        decays[i] = (float)exp(proa_delta_log_decay(d, h, (double)a[h * d->key_dim + i] + (double)bias[i]));
        k_in[i] = k[i] * decays[i];
    }
}

/* Rows [row, row + count) of head h. */
static void read_delta_rows(delta_rows *r, const proa_state_job *job, int64_t row, int64_t count, int64_t h)
{
    const proa_delta *d = job->delta;
    const int64_t dk = d->key_dim, dv = d->value_dim, kh = h / (d->value_heads / d->key_heads);
    r->count = count;
    for (int64_t i = 0; i < count; i++) {
        const float *x = row_at(job->x, row + i), *rates = row_at(job->rates, row + i);
        const float *a = rates + d->value_heads;
        divide_by_norm(r->q[i], x + kh * dk, dk, 1 / sqrt((double)dk));
        divide_by_norm(r->k[i], x + (d->key_heads + kh) * dk, dk, 1);
        r->v[i] = x + 2 * d->key_heads * dk + h * dv;
        r->y[i] = row_at(job->y, row + i) + h * dv;
        r->beta[i] = (float)((double)d->beta_scale / (1 + exp(-(double)rates[h])));
        if (d->by_channel) read_delta_channels(r->decays[i], r->k_in[i], r->k[i], d, a, h);
        else r->decay[i] = (float)exp(proa_delta_log_decay(d, h, (double)a[h] + (double)d->bias[h]));
    }
}

/* Vectors of columns: `count` whole ones, or one of the first `lanes` lanes. */
V_INLINE vf load_lanes(const float *p, int count, int64_t lanes)
{
    return count > 1 ? v_load(p) : v_load_n(p, lanes);
}

V_INLINE void store_lanes(float *p, vf v, int count, int64_t lanes)
{
    if (count > 1) v_store(p, v);
    else v_store_n(p, v, lanes);
}

/* given = k^T S, S [dk] rows of `step`. */
V_INLINE void read_state(vf given[STATE_VECTORS], const float *S, const float *k, int64_t dk, int64_t step,
                         int count, int64_t lanes)
{
    for (int v = 0; v < count; v++) given[v] = v_zero();
    for (int64_t i = 0; i < dk; i++) {
        const vf key = v_set1(k[i]);
        V_UNROLL for (int v = 0; v < count; v++)
            given[v] = v_fma(key, load_lanes(S + i * step + v * V_WIDTH, count, lanes), given[v]);
    }
}

/* What a row reads the state by before it changes it. */
V_INLINE const float *delta_keys(const delta_rows *r, int64_t row, bool by_channel)
{
    return by_channel ? r->k_in[row] : r->k[row];
}

/* S = decay S + k change^T; y = q^T S, and for the row behind it given = next^T S. */
V_INLINE void change_state(vf y[STATE_VECTORS], vf given[STATE_VECTORS], float *S, const delta_rows *r,
                           int64_t row, const vf change[STATE_VECTORS], int64_t dk, int64_t step, int count,
                           int64_t lanes, bool by_channel)
{
    const float *q = r->q[row], *k = r->k[row];
    const float *next = delta_keys(r, row + 1 < r->count ? row + 1 : row, by_channel);
    vf decay = v_set1(by_channel ? 0.0F : r->decay[row]);
    for (int v = 0; v < count; v++) y[v] = given[v] = v_zero();
    for (int64_t i = 0; i < dk; i++) {
        const vf key = v_set1(k[i]), query = v_set1(q[i]), after = v_set1(next[i]);
        if (by_channel) decay = v_set1(r->decays[row][i]);
        V_UNROLL for (int v = 0; v < count; v++)
        {
            float *at = S + i * step + v * V_WIDTH;
            const vf state = v_fma(key, change[v], v_mul(decay, load_lanes(at, count, lanes)));
            store_lanes(at, state, count, lanes);
            y[v] = v_fma(query, state, y[v]);
            given[v] = v_fma(after, state, given[v]);
        }
    }
}

/* The rows, of `count` vectors of columns from `column` on. A pass over S for each row, and one before the first. */
V_INLINE void delta_columns(const delta_rows *r, float *S, int64_t column, int64_t dk, int64_t dv, int count,
                            int64_t lanes, bool by_channel)
{
    vf given[STATE_VECTORS], change[STATE_VECTORS], y[STATE_VECTORS];
    read_state(given, S + column, delta_keys(r, 0, by_channel), dk, dv, count, lanes);
    for (int64_t row = 0; row < r->count; row++) {
        const vf decay = v_set1(by_channel ? 1.0F : r->decay[row]), beta = v_set1(r->beta[row]);
        for (int v = 0; v < count; v++) {
            const vf value = load_lanes(r->v[row] + column + v * V_WIDTH, count, lanes);
            change[v] = v_mul(beta, v_fnma(decay, given[v], value));
        }
        change_state(y, given, S + column, r, row, change, dk, dv, count, lanes, by_channel);
        for (int v = 0; v < count; v++) store_lanes(r->y[row] + column + v * V_WIDTH, y[v], count, lanes);
    }
}

V_INLINE void delta_state(const delta_rows *r, float *S, int64_t dk, int64_t dv, bool by_channel)
{
    int64_t at = 0;
    for (; at + STATE_VECTORS * V_WIDTH <= dv; at += STATE_VECTORS * V_WIDTH)
        delta_columns(r, S, at, dk, dv, STATE_VECTORS, V_WIDTH, by_channel);
    for (; at < dv; at += V_WIDTH)
        delta_columns(r, S, at, dk, dv, 1, proa_min64(V_WIDTH, dv - at), by_channel);
}

static void delta_head(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h)
{
    delta_rows rows;
    for (int64_t i = 0; i < count; i += DELTA_ROWS) {
        read_delta_rows(&rows, job, row + i, proa_min64(DELTA_ROWS, count - i), h);
        if (job->delta->by_channel) delta_state(&rows, S, job->delta->key_dim, job->delta->value_dim, true);
        else delta_state(&rows, S, job->delta->key_dim, job->delta->value_dim, false);
    }
}

static void gated_delta(proa_ctx *c, proa_view y, proa_view x, proa_view rates, const proa_delta *d,
                        const proa_layer_state *state, const proa_spans *spans)
{
    proa_delta_heads(c, y, x, rates, d, state, spans, delta_head);
}

/* ---- selective_scan ---- */

/* A row of a head: B and C of its group. */
typedef struct scan_row {
    const float *v, *B, *C;
    float *y;
    float step, decay, skip;
} scan_row;

static scan_row read_scan_row(const proa_state_job *job, int64_t row, int64_t h)
{
    const proa_state_space *p = job->scan;
    const int64_t group = h / (p->heads / p->groups);
    const float *x = row_at(job->x, row), *B = row_at(job->params, row) + group * p->state_dim;
    const double step = p->bias ? proa_scan_step(p, row_at(job->rates, row)[h], h) : 1;
    return (scan_row){.v = x + h * p->value_dim,
                      .B = B,
                      .C = B + p->groups * p->state_dim,
                      .y = row_at(job->y, row) + h * p->value_dim,
                      .step = (float)step,
                      .decay = (float)exp(-exp((double)p->rate[h]) * step),
                      .skip = p->skip ? p->skip[h] : 0};
}

/* S = decay S + B (step v)^T; y = skip v + C^T S, of `count` vectors of columns from `column` on. */
V_INLINE void scan_columns(const scan_row *r, float *S, int64_t column, int64_t dk, int64_t dv, int count,
                           int64_t lanes)
{
    vf taken[STATE_VECTORS], y[STATE_VECTORS];
    const vf decay = v_set1(r->decay);
    for (int v = 0; v < count; v++) {
        const vf value = load_lanes(r->v + column + v * V_WIDTH, count, lanes);
        taken[v] = v_mul(v_set1(r->step), value);
        y[v] = v_mul(v_set1(r->skip), value);
    }
    for (int64_t i = 0; i < dk; i++) {
        const vf in = v_set1(r->B[i]), out = v_set1(r->C[i]);
        V_UNROLL for (int v = 0; v < count; v++)
        {
            float *at = S + i * dv + column + v * V_WIDTH;
            const vf state = v_fma(in, taken[v], v_mul(decay, load_lanes(at, count, lanes)));
            store_lanes(at, state, count, lanes);
            y[v] = v_fma(out, state, y[v]);
        }
    }
    for (int v = 0; v < count; v++) store_lanes(r->y + column + v * V_WIDTH, y[v], count, lanes);
}

static void scan_head(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h)
{
    const int64_t dk = job->scan->state_dim, dv = job->scan->value_dim;
    for (int64_t i = 0; i < count; i++) {
        const scan_row r = read_scan_row(job, row + i, h);
        int64_t at = 0;
        for (; at + STATE_VECTORS * V_WIDTH <= dv; at += STATE_VECTORS * V_WIDTH)
            scan_columns(&r, S, at, dk, dv, STATE_VECTORS, V_WIDTH);
        for (; at < dv; at += V_WIDTH) scan_columns(&r, S, at, dk, dv, 1, proa_min64(V_WIDTH, dv - at));
    }
}

/* V_WIDTH columns of a head or fewer, by channel: weights with 0 behind the last column. */
typedef struct channel_weights {
    float decay[PROA_STATE_DIM_MAX][V_WIDTH], bias[V_WIDTH], skip[V_WIDTH]; /* decay: -exp(A_log) */
    int64_t column, group, lanes;                                           /* column: of all heads */
} channel_weights;

static void read_channel_weights(channel_weights *w, const proa_state_space *p, int64_t h, int64_t at)
{
    w->column = h * p->value_dim + at, w->group = h / (p->heads / p->groups);
    w->lanes = proa_min64(V_WIDTH, p->value_dim - at);
    v_store(w->bias, v_load_n(p->bias + w->column, w->lanes));
    v_store(w->skip, v_load_n(p->skip + w->column, w->lanes));
    for (int64_t i = 0; i < p->state_dim; i++) {
        float rate[V_WIDTH] = {0};
        for (int64_t j = 0; j < w->lanes; j++) rate[j] = p->rate[(w->column + j) * p->state_dim + i];
        v_store(w->decay[i], v_sub(v_zero(), v_exp(v_load(rate))));
    }
}

/* A row of these columns, whose state S has rows of value_dim numbers. */
V_INLINE void scan_channels(const proa_state_job *job, const channel_weights *w, float *S, int64_t row)
{
    const proa_state_space *p = job->scan;
    const int64_t dk = p->state_dim, dv = p->value_dim, lanes = w->lanes;
    const float *B = row_at(job->params, row) + w->group * dk, *C = B + p->groups * dk;
    const vf v = v_load_n(row_at(job->x, row) + w->column, lanes);
    const vf dt = v_load_n(row_at(job->rates, row) + w->column, lanes);
    vf step = v_soft_plus(v_add(dt, v_load(w->bias)));
    step = v_min(v_set1(p->most), v_max(v_set1(p->least), step)); /* which let NaN pass */
    const vf taken = v_mul(step, v);
    vf y = v_mul(v_load(w->skip), v);
    for (int64_t i = 0; i < dk; i++) {
        const vf decay = v_exp(v_mul(step, v_load(w->decay[i])));
        const vf state = v_fma(v_set1(B[i]), taken, v_mul(decay, v_load_n(S + i * dv, lanes)));
        v_store_n(S + i * dv, state, lanes);
        y = v_fma(v_set1(C[i]), state, y);
    }
    v_store_n(row_at(job->y, row) + w->column, y, lanes);
}

static void channel_head(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h)
{
    channel_weights w;
    for (int64_t at = 0; at < job->scan->value_dim; at += V_WIDTH) {
        read_channel_weights(&w, job->scan, h, at);
        for (int64_t i = 0; i < count; i++) scan_channels(job, &w, S + at, row + i);
    }
}

static void selective_scan(proa_ctx *c, proa_view y, proa_view x, proa_view params, proa_view rates,
                           const proa_state_space *p, const proa_layer_state *state, const proa_spans *spans)
{
    proa_scan_heads(c, y, x, params, rates, p, state, spans, p->by_channel ? channel_head : scan_head);
}

#endif
