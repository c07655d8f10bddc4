/* SPDX-License-Identifier: Apache-2.0
 * inputs.c - sums over the inputs of the products while a text runs: X^T X, magnitudes and the largest ones. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "convert/calibrate/session.h"
#include "kernels/ops.h"

#include <math.h>
#include <stdlib.h>

static void add_magnitudes(proa_input_stats *st, proa_view x)
{
    for (int64_t t = 0; t < x.shape[0]; t++) {
        const float *row = (const float *)x.data + t * x.stride[0];
        for (int64_t k = 0; k < st->K; k++) {
            float a = fabsf(row[k]);
            st->sum[k] += a;
            st->most[k] = a > st->most[k] ? a : st->most[k];
        }
    }
}

/* hessian += x^T x by the kernels' own product: y = x^T W^T + y with W = x^T. */
static proa_status add_product(proa_input_stats *st, proa_ctx *model_ctx, proa_view x)
{
    int64_t T = x.shape[0], K = st->K;
    proa_ctx ctx;
    proa_ctx_need need = {.rows = K, .inputs = T, .heads = 1, .head_dim = 1};
    PROA_TRY(proa_ctx_init(&ctx, model_ctx->ops, model_ctx->pool, &need, NULL));
    float *turned = proa_malloc_aligned((size_t)(K * T) * sizeof *turned + 64);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < K; k++) turned[k * T + t] = ((const float *)x.data)[t * x.stride[0] + k];
    proa_weight w = {.format = PROA_WFMT_F32, .N = K, .K = T};
    w.bytes = ctx.ops->pack_bytes(w.format, K, T);
    w.data = proa_malloc_aligned((size_t)w.bytes);
    proa_view view = proa_view_2d(turned, PROA_DTYPE_F32, K, T);
    proa_tensor_source source = proa_tensor_source_of(view);
    proa_view y = proa_view_2d(st->hessian, PROA_DTYPE_F32, K, K);
    proa_epilogue e = {.residual = y};
    ctx.ops->pack(&ctx, &w, &source, 1);
    ctx.ops->linear(&ctx, y, view, &w, &e);
    free(w.data);
    free(turned);
    proa_ctx_release(&ctx);
    return PROA_OK;
}

static void observe_input(void *context, proa_model *m, proa_stack_id stack, const proa_param *p, proa_view x)
{
    proa_calibrate_session *s = context;
    int64_t index = p - m->params[stack].param;
    for (int64_t i = s->first; i < s->end; i++) {
        proa_input_stats *st = &s->stats[i];
        if (st->stack != stack || st->index != index || st->K != x.shape[1] || x.shape[0] == 0) continue;
        if (st->rows < 0) continue;
        add_magnitudes(st, x);
        st->rows = add_product(st, &m->ctx, x) == PROA_OK ? st->rows + x.shape[0] : -1;
    }
}

static void choose_next(proa_calibrate_session *s)
{
    int64_t bytes = 0;
    s->first = s->end;
    while (s->end < s->stats_count) {
        proa_input_stats *st = &s->stats[s->end];
        int64_t more = st->K * st->K * (int64_t)sizeof *st->hessian;
        if (s->end > s->first && bytes + more > PROA_HESSIAN_BYTES_MAX) break;
        st->hessian = proa_calloc((size_t)(st->K * st->K), sizeof *st->hessian);
        st->sum = proa_calloc((size_t)st->K, sizeof *st->sum);
        st->most = proa_calloc((size_t)st->K, sizeof *st->most);
        bytes += more, s->end++;
    }
}

proa_status proa_calibrate_gather(proa_calibrate_session *s)
{
    proa_observer observer = {observe_input, s};
    choose_next(s);
    PROA_TRY(s->c->run(s->c->context, &observer, s->err));
    for (int64_t i = s->first; i < s->end; i++)
        if (s->stats[i].rows < 0)
            return PROA_FAIL(s->err, NO_MEMORY, "no memory for the products of --calibrate");
    return PROA_OK;
}

void proa_input_stats_release(proa_input_stats *st)
{
    free(st->hessian);
    free(st->sum);
    free(st->most);
    free(st->scale);
    proa_gptq_release(&st->inputs);
    st->hessian = st->sum = st->most = st->scale = NULL;
}
