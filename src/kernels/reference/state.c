/* SPDX-License-Identifier: Apache-2.0
 * state.c - the ops of layers with a recurrent state (op_state.h): a causal convolution, the gated delta rule,
 * the recurrence of Mamba. */
#include "kernels/reference/reference.h"

#include "base/checked.h"
#include "kernels/reference/view_at.h"
#include "kernels/state_heads.h"
#include <math.h>
#include <string.h>

/* ---- conv_state ---- */

enum { CONV_COLUMNS = 64 };

typedef struct conv_job {
    proa_view y, x;
    const proa_conv *conv;
    const proa_layer_state *state;
    const proa_spans *spans;
} conv_job;

/* Columns [begin, begin + n) of row i of the span, of which rows -1, -2, ... are those that the state keeps. */
static const float *conv_input(const conv_job *job, const proa_span *span, int64_t i, int64_t begin)
{
    static const float zeros[CONV_COLUMNS];
    const float *kept = job->state->base + span->state * job->state->stride;
    if (i >= 0) return at_row(job->x, span->row + i, begin);
    return proa_span_continues(span) ? kept + (job->conv->taps - 1 + i) * job->x.shape[1] + begin : zeros;
}

static void conv_row(const conv_job *job, const proa_span *span, int64_t i, int64_t begin, int64_t n)
{
    const proa_conv *c = job->conv;
    double sum[CONV_COLUMNS] = {0};
    float *y = at_row(job->y, span->row + i, begin);
    for (int64_t k = 0; k < c->taps; k++) {
        const float *x = conv_input(job, span, i - (c->taps - 1) + k, begin);
        for (int64_t j = 0; j < n; j++) sum[j] += (double)c->w[(begin + j) * c->taps + k] * (double)x[j];
    }
    for (int64_t j = 0; j < n; j++) {
        double bias = c->bias ? (double)c->bias[begin + j] : 0;
        y[j] = proa_act_reference(c->act, (float)(sum[j] + bias));
    }
}

/* The rows that the state keeps may be some that it has: rising numbers are copied first. */
static void keep_rows(const conv_job *job, const proa_span *span, int64_t begin, int64_t n)
{
    float *kept = job->state->base + span->state * job->state->stride + begin;
    int64_t before = job->conv->taps - 1;
    for (int64_t k = 0; k < before; k++) {
        const float *x = conv_input(job, span, span->rows - before + k, begin);
        memmove(kept + k * job->x.shape[1], x, (size_t)n * sizeof *x);
    }
}

static void conv_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const conv_job *job = arg;
    for (int64_t s = 0; s < job->spans->count; s++) {
        const proa_span *span = &job->spans->span[s];
        for (int64_t at = begin; at < end && span->rows > 0; at += CONV_COLUMNS) {
            int64_t n = proa_min64(CONV_COLUMNS, end - at);
            for (int64_t i = 0; i < span->rows; i++) conv_row(job, span, i, at, n);
            keep_rows(job, span, at, n);
        }
    }
}

void proa_conv_state_reference(proa_ctx *c, proa_view y, proa_view x, const proa_conv *conv,
                               const proa_layer_state *state, const proa_spans *spans)
{
    conv_job job = {y, x, conv, state, spans};
    proa_pool_run(c->pool, x.shape[1], CONV_COLUMNS, conv_columns, &job);
}

/* ---- gated_delta, in f32: its sums have as many terms as a key has numbers ---- */

/* out = scale * x / |x| */
static void divide_by_norm(float *out, const float *x, int64_t n, double scale)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double factor = scale / sqrt(sum + 1e-6);
    for (int64_t i = 0; i < n; i++) out[i] = (float)((double)x[i] * factor);
}

/* The decay by number i of a row's rates. */
static float delta_decay(const proa_delta *d, const float *a, int64_t h, int64_t i)
{
    return (float)exp(proa_delta_log_decay(d, h, (double)a[i] + (double)d->bias[i]));
}

/* One row of head h: its state S [dk][dv] decays, takes the difference between v and what it gives for k, and gives y
 * for q. */
static void delta_row(const proa_state_job *job, float *S, int64_t row, int64_t h)
{
    const proa_delta *d = job->delta;
    const int64_t dk = d->key_dim, dv = d->value_dim, kh = h / (d->value_heads / d->key_heads);
    const float *q_in = at_row(job->x, row, kh * dk), *k_in = at_row(job->x, row, (d->key_heads + kh) * dk);
    const float *v = at_row(job->x, row, 2 * d->key_heads * dk + h * dv);
    float q[PROA_STATE_DIM_MAX], k[PROA_STATE_DIM_MAX], *y = at_row(job->y, row, h * dv);
    float given[PROA_STATE_DIM_MAX] = {0};
    const float *a = at_row(job->rates, row, d->value_heads);
    const double b = (double)*at_row(job->rates, row, h);
    const float beta = (float)((double)d->beta_scale / (1 + exp(-b)));
    float decay = delta_decay(d, a, h, h);
    divide_by_norm(q, q_in, dk, 1 / sqrt((double)dk));
    divide_by_norm(k, k_in, dk, 1);
    for (int64_t i = 0; i < dk; i++) {
        if (d->by_channel) decay = delta_decay(d, a, h, h * dk + i);
        for (int64_t j = 0; j < dv; j++) {
            S[i * dv + j] *= decay;
            given[j] += S[i * dv + j] * k[i];
        }
    }
    for (int64_t j = 0; j < dv; j++) given[j] = beta * (v[j] - given[j]);
    memset(y, 0, (size_t)dv * sizeof *y);
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) {
            S[i * dv + j] += k[i] * given[j];
            y[j] += S[i * dv + j] * q[i];
        }
}

static void delta_head(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h)
{
    for (int64_t i = 0; i < count; i++) delta_row(job, S, row + i, h);
}

void proa_gated_delta_reference(proa_ctx *c, proa_view y, proa_view x, proa_view rates, const proa_delta *d,
                                const proa_layer_state *state, const proa_spans *spans)
{
    proa_delta_heads(c, y, x, rates, d, state, spans, delta_head);
}

/* ---- selective_scan, in f32: its sums have as many terms as a state has rows ---- */

/* One row of head h: its state S [dk][dv] decays, takes B v, and gives y for C. */
static void scan_row(const proa_state_job *job, float *S, int64_t row, int64_t h)
{
    const proa_state_space *p = job->scan;
    const int64_t dk = p->state_dim, dv = p->value_dim, group = h / (p->heads / p->groups);
    const float *v = at_row(job->x, row, h * dv), *B = at_row(job->params, row, group * dk);
    const float *C = B + p->groups * dk;
    double step = p->bias ? proa_scan_step(p, *at_row(job->rates, row, h), h) : 1;
    float decay = (float)exp(-exp((double)p->rate[h]) * step), taken[PROA_STATE_DIM_MAX];
    float *y = at_row(job->y, row, h * dv);
    for (int64_t j = 0; j < dv; j++) {
        taken[j] = (float)step * v[j];
        y[j] = p->skip ? p->skip[h] * v[j] : 0;
    }
    for (int64_t i = 0; i < dk; i++)
        for (int64_t j = 0; j < dv; j++) {
            S[i * dv + j] = decay * S[i * dv + j] + B[i] * taken[j];
            y[j] += C[i] * S[i * dv + j];
        }
}

/* The same where columns have steps of their own, and numbers of the state decays. */
static void channel_row(const proa_state_job *job, float *S, int64_t row, int64_t h)
{
    const proa_state_space *p = job->scan;
    const int64_t dk = p->state_dim, dv = p->value_dim, group = h / (p->heads / p->groups);
    const float *B = at_row(job->params, row, group * dk), *C = B + p->groups * dk;
    for (int64_t j = 0; j < dv; j++) {
        const int64_t column = h * dv + j;
        const float v = *at_row(job->x, row, column), *rate = p->rate + column * dk;
        const double step = proa_scan_step(p, *at_row(job->rates, row, column), column);
        float y = p->skip[column] * v;
        for (int64_t i = 0; i < dk; i++) {
            const float decay = (float)exp(-exp((double)rate[i]) * step);
            S[i * dv + j] = decay * S[i * dv + j] + B[i] * ((float)step * v);
            y += C[i] * S[i * dv + j];
        }
        *at_row(job->y, row, column) = y;
    }
}

static void scan_head(const proa_state_job *job, float *S, int64_t row, int64_t count, int64_t h)
{
    for (int64_t i = 0; i < count; i++) {
        if (job->scan->by_channel) channel_row(job, S, row + i, h);
        else scan_row(job, S, row + i, h);
    }
}

void proa_selective_scan_reference(proa_ctx *c, proa_view y, proa_view x, proa_view params, proa_view rates,
                                   const proa_state_space *p, const proa_layer_state *state,
                                   const proa_spans *spans)
{
    proa_scan_heads(c, y, x, params, rates, p, state, spans, scan_head);
}
