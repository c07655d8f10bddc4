/* SPDX-License-Identifier: Apache-2.0
 * experts.c - the op `experts` by the packed product: the pairs of a row and a chosen expert are sorted by expert, and
 * each expert's rows run through the tiles of linear together. So the weights of a chosen expert are read once for up
 * to PROA_EXPERT_PAIRS pairs, and a step of one row reads just those of its own experts.
 * Every sum is one chain over all of k as in linear, and a row adds its experts in the order of its ids, so neither
 * the grouping nor the cuts change a result. */
#include "kernels/cpu/linear.h"

#include "base/checked.h"
#include <string.h>

#define ROWS_SHARE 4096 /* numbers to copy, cut or add that are worth a second worker */

/* A piece of the rows, and where its pairs are. */
typedef struct experts_job {
    proa_ctx *c;
    const proa_linear_isa *up_isa, *down_isa;
    const proa_experts *e;
    proa_view y, x, weights, residual; /* of the piece */
    const int32_t *ids;                /* [rows * k] */
    int64_t rows, k, pairs;
    int64_t own; /* pairs whose expert this rank has; the others are sorted after them */
    /* in the scratch */
    int64_t *begin;            /* [experts + 2] of each expert's pairs, sorted */
    int64_t *pair;             /* [pairs] in the order of the rows: its place among the sorted */
    int64_t *row;              /* [pairs] sorted: its row */
    proa_linear_group *groups; /* [groups_count] */
    int64_t groups_count;
    char *words, *sums;
    float *outer, *inner; /* [pairs] inputs, then outputs; [pairs] FFN */
} experts_job;

/* Cuts the scratch of proa_ctx_scratch_bytes. */
static void place_buffers(experts_job *job)
{
    const proa_experts *e = job->e;
    int64_t E = e->up->experts, P = job->pairs, tile = PROA_LINEAR_TILE_ROWS;
    int64_t width = proa_max64(e->up->K, e->down->N), inputs = proa_max64(width, e->up->N);
    char *at = job->c->scratch, *end = at + job->c->scratch_bytes / 64 * 64;
    end -= proa_pool_threads(job->c->pool) * PROA_LINEAR_WORKER_BYTES;
    job->sums = end;
    job->outer = (float *)(void *)at, at += proa_round_up(P * width * 4, 64);
    job->inner = (float *)(void *)at, at += proa_round_up(P * e->up->N * 4, 64);
    job->begin = (int64_t *)(void *)at, at += (E + 2) * 8;
    job->pair = (int64_t *)(void *)at, at += P * 8;
    job->row = (int64_t *)(void *)at, at += P * 8;
    job->groups = (proa_linear_group *)(void *)at;
    at += (proa_min64(P, E) + P / PROA_GROUP_ROWS) * (int64_t)sizeof *job->groups;
    job->words = at = (char *)(uintptr_t)proa_round_up((int64_t)(uintptr_t)at, 64);
    at += (P + tile) * (proa_round_up(inputs, 64) * 2 + 64 + 4);
    PROA_ASSERT(at <= end); /* proa_ctx_need was too small */
}

/* Sorts the pairs by expert, and within one by row. */
static void sort_pairs(experts_job *job)
{
    int64_t E = job->e->up->experts;
    memset(job->begin, 0, (size_t)(E + 2) * sizeof *job->begin);
    for (int64_t p = 0; p < job->pairs; p++) job->begin[proa_expert_place(job->e, job->ids[p]) + 1]++;
    for (int64_t e = 0; e <= E; e++) job->begin[e + 1] += job->begin[e];
    for (int64_t p = 0; p < job->pairs; p++) {
        int64_t at = job->begin[proa_expert_place(job->e, job->ids[p])]++;
        job->pair[p] = at, job->row[at] = p / job->k;
    }
    for (int64_t e = E; e > 0; e--) job->begin[e] = job->begin[e - 1];
    job->begin[0] = 0;
    job->own = job->begin[E];
}

/* The rows of each chosen expert, in parts of about the same size. */
static void find_groups(experts_job *job)
{
    job->groups_count = 0;
    for (int64_t e = 0; e < job->e->up->experts; e++) {
        int64_t first = job->begin[e], rows = job->begin[e + 1] - first,
                parts = proa_ceil_div(rows, PROA_GROUP_ROWS);
        for (int64_t i = 0; i < parts; i++) {
            int64_t from = rows * i / parts, to = rows * (i + 1) / parts;
            job->groups[job->groups_count++] = (proa_linear_group){first + from, to - from, e};
        }
    }
}

/* The rows of x by pair. */
static void gather_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const experts_job *job = arg;
    int64_t K = job->x.shape[1];
    for (int64_t p = begin; p < end; p++)
        memcpy(job->outer + p * K, proa_view_f32(job->x) + job->row[p] * job->x.stride[0], (size_t)K * 4);
}

/* Each row's copies times their weights. */
static void scale_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const experts_job *job = arg;
    int64_t K = job->x.shape[1];
    for (int64_t p = begin * job->k; p < end * job->k; p++) {
        float *x = job->outer + job->pair[p] * K;
        float weight = proa_view_f32(job->weights)[p / job->k * job->weights.stride[0] + p % job->k];
        for (int64_t i = 0; job->pair[p] < job->own && i < K; i++) x[i] *= weight;
    }
}

/* What act_mul does not: both parts of a gated FFN cut at the limit, and the offset of the second. */
static void limit_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const experts_job *job = arg;
    int64_t F = job->e->down->K;
    float limit = job->e->limit, offset = job->e->offset;
    for (int64_t p = begin; p < end; p++) {
        float *g = job->inner + p * 2 * F, *u = g + F;
        for (int64_t f = 0; limit > 0 && f < F; f++) {
            g[f] = g[f] > limit ? limit : g[f]; /* NaN stays NaN */
            u[f] = u[f] > limit ? limit : u[f] < -limit ? -limit : u[f];
        }
        for (int64_t f = 0; f < F; f++) u[f] += offset;
    }
}

static int64_t rows_grain(int64_t width)
{
    return proa_ceil_div(ROWS_SHARE, proa_max64(1, width));
}

/* The activation, in place in the first columns. */
static void activate_rows(experts_job *job, proa_view v)
{
    const proa_experts *e = job->e;
    proa_ctx *c = job->c;
    int64_t F = e->down->K;
    if (!e->gated) return; /* the product has done it */
    if (e->limit > 0 || e->offset != 0) proa_pool_run(c->pool, job->own, rows_grain(2 * F), limit_rows, job);
    c->ops->act_mul(c, proa_view_cols(v, 0, F), proa_view_cols(v, 0, F), proa_view_cols(v, F, 2 * F), e->act);
}

static void add_outputs(void *arg, int64_t begin, int64_t end, int worker)
{
    PROA_UNUSED(worker);
    const experts_job *job = arg;
    int64_t N = job->y.shape[1];
    const float *bias = job->e->bias;
    for (int64_t t = begin; t < end; t++) {
        float *to = proa_view_f32(job->y) + t * job->y.stride[0];
        const float *weight = proa_view_f32(job->weights) + t * job->weights.stride[0];
        if (!job->residual.rank) memset(to, 0, (size_t)N * sizeof *to);
        else memmove(to, proa_view_f32(job->residual) + t * job->residual.stride[0], (size_t)N * sizeof *to);
        for (int64_t n = 0; bias && n < N; n++) to[n] += bias[n];
        for (int64_t j = 0; j < job->k; j++) {
            int64_t place = job->pair[t * job->k + j];
            const float *out = job->outer + place * N, factor = job->e->scales_inputs ? 1 : weight[j];
            if (place >= job->own) continue;
            for (int64_t n = 0; n < N; n++) to[n] += factor * out[n];
        }
    }
}

static void run_piece(experts_job *job)
{
    const proa_experts *e = job->e;
    proa_ctx *c = job->c;
    proa_epilogue of_up = {.act = e->gated ? PROA_ACT_NONE : e->act, .bias = e->up_bias};
    proa_epilogue of_down = {.bias = e->down_bias};
    sort_pairs(job);
    find_groups(job);
    proa_view in = proa_view_2d(job->outer, PROA_DTYPE_F32, job->own, e->up->K);
    proa_view out = proa_view_2d(job->outer, PROA_DTYPE_F32, job->own, e->down->N);
    proa_view v = proa_view_2d(job->inner, PROA_DTYPE_F32, job->own, e->up->N);
    proa_pool_run(c->pool, job->own, rows_grain(e->up->K), gather_rows, job);
    if (e->scales_inputs) proa_pool_run(c->pool, job->rows, rows_grain(job->k * e->up->K), scale_rows, job);
    proa_linear_run_grouped(c, v, in, e->up, &of_up, job->groups, job->groups_count, job->words, job->sums,
                            job->up_isa);
    activate_rows(job, v);
    proa_linear_run_grouped(c, out, proa_view_cols(v, 0, e->down->K), e->down, &of_down, job->groups,
                            job->groups_count, job->words, job->sums, job->down_isa);
    proa_pool_run(c->pool, job->rows, rows_grain(job->k * e->down->N), add_outputs, job);
}

void proa_experts_run(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                      const proa_experts *e, const proa_linear_isa *up_isa, const proa_linear_isa *down_isa)
{
    int64_t k = weights.shape[1], piece = proa_expert_pairs(y.shape[0], k) / k;
    PROA_DASSERT(e->up->K == x.shape[1] && e->down->N == y.shape[1] && e->up->N == e->down->K * (1 + e->gated));
    for (int64_t t = 0; t < y.shape[0]; t += piece) {
        int64_t end = proa_min64(y.shape[0], t + piece);
        experts_job job = {
            .c = c, .up_isa = up_isa, .down_isa = down_isa, .e = e, .ids = ids + t * k, .rows = end - t, .k = k};
        job.pairs = job.rows * k;
        job.y = proa_view_rows(y, t, end), job.x = proa_view_rows(x, t, end);
        job.weights = proa_view_rows(weights, t, end);
        if (e->residual.rank) job.residual = proa_view_rows(e->residual, t, end);
        place_buffers(&job);
        run_piece(&job);
    }
}
