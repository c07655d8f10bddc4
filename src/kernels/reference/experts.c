/* SPDX-License-Identifier: Apache-2.0
 * experts.c - route, experts, heads_linear and sigmoid_mul (op_experts.h). Every table of the host uses this route: its
 * work is small beside that of the experts. */
#include "kernels/reference/reference.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

/* ---- route ---- */

/* The scores of one row while its experts are chosen. */
typedef struct routing {
    const proa_router *r;
    const float *scores; /* [E] */
    int64_t experts;
    double p[PROA_EXPERTS_MAX];
    float key[PROA_EXPERTS_MAX]; /* by which experts are ranked; -infinity: not to be chosen */
} routing;

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* The expert with the largest key among [begin, end) that are not in ids[0, n); -1: none. */
static int32_t best_of(const float *key, int64_t begin, int64_t end, const int32_t *ids, int64_t n)
{
    int64_t best = -1;
    for (int64_t e = begin; e < end; e++) {
        bool taken = false;
        for (int64_t i = 0; i < n; i++) taken = taken || ids[i] == e;
        if (!taken && (best < 0 || key[e] > key[best])) best = e;
    }
    return (int32_t)best;
}

/* p = softmax or sigmoid. Softmax alone ranks as the scores do, which have no rounding of their own. */
static void find_probabilities(routing *s)
{
    double largest = (double)-INFINITY, sum = 0;
    bool sigmoid = s->r->kind == PROA_ROUTER_SIGMOID;
    for (int64_t e = 0; e < s->experts; e++) largest = fmax(largest, (double)s->scores[e]);
    for (int64_t e = 0; e < s->experts; e++) {
        double x = (double)s->scores[e];
        s->p[e] = sigmoid ? 1 / (1 + exp(-x)) : exp(x - largest);
        sum += s->p[e];
    }
    for (int64_t e = 0; e < s->experts; e++) {
        if (!sigmoid) s->p[e] /= sum;
        s->key[e] = s->r->correction || s->r->groups > 0 || sigmoid ? (float)s->p[e] : s->scores[e];
        if (s->r->correction) s->key[e] += s->r->correction[e];
    }
}

static float group_score(const routing *s, int64_t begin, int64_t end)
{
    int32_t best[2];
    float sum = 0;
    for (int n = 0; n < s->r->group_best && begin + n < end; n++) {
        best[n] = best_of(s->key, begin, end, best, n);
        sum += s->key[best[n]];
    }
    return sum;
}

/* Experts outside the best groups are not to be chosen. */
static void limit_groups(routing *s)
{
    int64_t groups = s->r->groups, each = s->experts / groups;
    float score[PROA_EXPERTS_MAX];
    int32_t kept[PROA_EXPERTS_MAX];
    for (int64_t g = 0; g < groups; g++) score[g] = group_score(s, g * each, (g + 1) * each);
    for (int32_t n = 0; n < s->r->chosen_groups; n++) kept[n] = best_of(score, 0, groups, kept, n);
    for (int64_t g = 0; g < groups; g++) {
        bool keeps = false;
        for (int32_t n = 0; n < s->r->chosen_groups; n++) keeps = keeps || kept[n] == g;
        for (int64_t e = g * each; e < (g + 1) * each && !keeps; e++) s->key[e] = -INFINITY;
    }
}

static void choose_best(routing *s, float *weights, int32_t *ids)
{
    const proa_router *r = s->r;
    double sum = 0, scale = r->scale == 0.0f ? 1 : (double)r->scale;
    find_probabilities(s);
    if (r->groups > 0) limit_groups(s);
    for (int32_t i = 0; i < r->chosen; i++) {
        ids[i] = best_of(s->key, 0, s->experts, ids, i);
        sum += s->p[ids[i]];
    }
    for (int32_t i = 0; i < r->chosen; i++) {
        double p = r->renormalise ? s->p[ids[i]] / (sum + 1e-20) : s->p[ids[i]];
        weights[i] = (float)(p * scale * (r->scales ? (double)r->scales[ids[i]] : 1));
    }
}

/* One round of sparsemixer: the weight of expert `best` among those that are not in ids[0, n). */
static float mixer_weight(const routing *s, int32_t best, const int32_t *ids, int64_t n)
{
    double largest = (double)s->scores[best], sum = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        double x = (double)s->scores[e];
        bool taken = false;
        for (int64_t i = 0; i < n; i++) taken = taken || ids[i] == e;
        if (taken || (largest - x) / fmax(fabs(x), largest) > 2 * (double)s->r->jitter) continue;
        sum += exp(x - largest);
    }
    return (float)((s->r->scale == 0.0f ? 1 : (double)s->r->scale) / sum);
}

static void choose_mixed(const routing *s, float *weights, int32_t *ids)
{
    for (int32_t i = 0; i < s->r->chosen; i++) {
        ids[i] = best_of(s->scores, 0, s->experts, ids, i);
        weights[i] = mixer_weight(s, ids[i], ids, i);
    }
}

typedef struct route_job {
    proa_view weights, scores;
    int32_t *ids;
    const proa_router *r;
} route_job;

static void route_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const route_job *job = arg;
    routing s = {.r = job->r, .experts = job->scores.shape[1]};
    for (int64_t t = begin; t < end; t++) {
        float *weights = proa_view_f32(job->weights) + t * job->weights.stride[0];
        int32_t *ids = job->ids + t * s.r->chosen;
        s.scores = proa_view_f32(job->scores) + t * job->scores.stride[0];
        if (!all_finite(s.scores, s.experts)) {
            for (int32_t i = 0; i < s.r->chosen; i++) weights[i] = NAN, ids[i] = i;
        } else if (s.r->kind == PROA_ROUTER_SPARSEMIXER) choose_mixed(&s, weights, ids);
        else choose_best(&s, weights, ids);
    }
}

void proa_route_reference(proa_ctx *c, proa_view weights, int32_t *ids, proa_view scores, const proa_router *r)
{
    route_job job = {weights, scores, ids, r};
    PROA_DASSERT(r->chosen >= 1 && r->chosen <= scores.shape[1] && scores.shape[1] <= PROA_EXPERTS_MAX);
    proa_pool_run(c->pool, scores.shape[0], 8, route_rows, &job);
}

/* ---- experts ---- */

static proa_weight expert_weight(const proa_weight *w, int64_t expert)
{
    proa_weight one = *w;
    one.data = (char *)w->data + expert * w->stride;
    one.experts = one.stride = 0;
    return one;
}

/* h = the activation of v, in place in the first columns of v. */
static void activate_rows(const proa_experts *e, proa_view v, int64_t F)
{
    float *g = proa_view_f32(v), *u = g + F;
    for (int64_t f = 0; f < F; f++) {
        float gate = g[f], up = e->gated ? u[f] : 1.0f;
        if (e->gated && e->limit > 0) {
            gate = gate > e->limit ? e->limit : gate; /* NaN stays NaN */
            up = up > e->limit ? e->limit : up < -e->limit ? -e->limit : up;
        }
        g[f] = proa_act_reference(e->act, gate) * (e->gated ? up + e->offset : 1.0f);
    }
}

/* v = weight * v + bias; bias may be NULL. */
static void weigh_sums(proa_view v, float weight, const float *bias)
{
    for (int64_t n = 0; n < v.shape[1]; n++)
        proa_view_f32(v)[n] = weight * proa_view_f32(v)[n] + (bias ? bias[n] : 0.0f);
}

/* out [1,N] of one expert for one row; v [1,2F] is room for its FFN. weight: that of the expert. */
static void run_expert(proa_ctx *c, proa_view out, proa_view v, proa_view x, float weight, int64_t expert,
                       const proa_experts *e)
{
    int64_t F = e->down->K;
    proa_weight up = expert_weight(e->up, expert), down = expert_weight(e->down, expert);
    const float *up_bias = e->up_bias ? e->up_bias + expert * up.N : NULL;
    proa_epilogue of_up = {.bias = e->scales_inputs ? NULL : up_bias};
    proa_epilogue of_down = {.bias = e->down_bias ? e->down_bias + expert * down.N : NULL};
    c->ops->linear(c, v, x, &up, &of_up);
    if (e->scales_inputs) weigh_sums(v, weight, up_bias);
    activate_rows(e, v, F);
    c->ops->linear(c, out, proa_view_cols(v, 0, F), &down, &of_down);
}

void proa_experts_reference(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                            const proa_experts *e)
{
    int64_t N = e->down->N, k = weights.shape[1];
    float *scratch = c->scratch; /* the plain linear needs none */
    proa_view v = proa_view_2d(scratch, PROA_DTYPE_F32, 1, e->up->N);
    proa_view out = proa_view_2d(scratch + e->up->N, PROA_DTYPE_F32, 1, N);
    PROA_ASSERT((e->up->N + N) * 4 <= c->scratch_bytes); /* proa_ctx_need was too small */
    for (int64_t t = 0; t < y.shape[0]; t++) {
        float *to = proa_view_f32(y) + t * y.stride[0];
        const float *weight = proa_view_f32(weights) + t * weights.stride[0];
        const float *residual = e->residual.rank ? proa_view_f32(e->residual) + t * e->residual.stride[0] : NULL;
        for (int64_t n = 0; n < N; n++)
            to[n] = (residual ? residual[n] : 0.0f) + (e->bias ? e->bias[n] : 0.0f);
        for (int64_t j = 0; j < k; j++) {
            int64_t place = proa_expert_place(e, ids[t * k + j]);
            float factor = e->scales_inputs ? 1.0f : weight[j];
            if (place == e->up->experts) continue;
            run_expert(c, out, v, proa_view_rows(x, t, t + 1), weight[j], place, e);
            for (int64_t n = 0; n < N; n++) to[n] += factor * proa_view_f32(out)[n];
        }
    }
}

/* ---- one matrix for each head ---- */

/* Columns [first, first + count) of a head, as rows. */
static proa_view head_columns(proa_view v, int64_t head, int64_t first, int64_t count)
{
    proa_view out = proa_view_2d(proa_view_f32(v) + head * v.stride[1] + first, PROA_DTYPE_F32, v.shape[0],
                                 count);
    out.stride[0] = v.stride[0];
    return out;
}

/* By the linear of the context's table. */
void proa_heads_linear_reference(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, int64_t kept)
{
    const proa_epilogue plain = {0};
    for (int64_t h = 0; h < x.shape[1]; h++) {
        proa_weight one = expert_weight(w, h);
        proa_view from = head_columns(x, h, w->K, kept), to = head_columns(y, h, 0, kept);
        c->ops->linear(c, head_columns(y, h, kept, w->N), head_columns(x, h, 0, w->K), &one, &plain);
        for (int64_t t = 0; t < x.shape[0]; t++)
            memcpy(proa_view_f32(to) + t * to.stride[0], proa_view_f32(from) + t * from.stride[0],
                   (size_t)kept * sizeof(float));
    }
}

void proa_sigmoid_mul_reference(proa_ctx *c, proa_view x, proa_view gate)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        float *row = proa_view_f32(x) + t * x.stride[0], factor = 0;
        const float *g = proa_view_f32(gate) + t * gate.stride[0];
        for (int64_t j = 0; j < x.shape[1]; j++) {
            if (j < gate.shape[1]) factor = (float)(1 / (1 + exp(-(double)g[j])));
            row[j] *= factor;
        }
    }
}
