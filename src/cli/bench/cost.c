/* SPDX-License-Identifier: Apache-2.0
 * cost.c - the least time that a step or a prefill can take at the measured read and multiply rates. */
#include "base/checked.h"
#include "cli/bench/bench.h"

#include <math.h>

/* A multiplication and an addition for each weight; of the experts, only those that were chosen count. */
static double matrix_ops(const proa_params *p, const proa_config *c, int64_t layer, proa_weight_slot slot)
{
    const proa_param *param = proa_params_at(p, layer, slot);
    double times = param->heads ? (double)param->experts : param->experts ? c->router.chosen : 1;
    return proa_param_is_matrix(param) ? 2.0 * (double)param->rows * (double)param->cols * times : 0;
}

static bool of_head(proa_weight_slot slot)
{
    return slot == PROA_SLOT_HEAD || slot == PROA_SLOT_HEAD_DENSE || slot == PROA_SLOT_POOL;
}

static void count_stack(proa_bench_cost *cost, const proa_params *p, const proa_config *c, double *row)
{
    for (int64_t layer = 0; layer <= p->layers; layer++)
        for (int s = 0; s < PROA_SLOT_COUNT; s++) {
            double ops = matrix_ops(p, c, layer, (proa_weight_slot)s);
            if (of_head((proa_weight_slot)s)) cost->head += ops;
            else if (s == PROA_SLOT_CROSS_KV) cost->encoder_row += ops; /* of the encoder's rows */
            else *row += ops;
        }
}

void proa_bench_cost_of(proa_bench_cost *cost, const proa_model *m)
{
    const proa_config *c = &m->config;
    *cost = (proa_bench_cost){.step_bytes = m->plan.step_bytes, .all_bytes = m->plan.matrix_bytes};
    cost->expert_bytes = m->plan.expert_bytes;
    if (c->experts) cost->chosen = (double)c->router.chosen / (double)c->experts;
    count_stack(cost, &m->params[PROA_STACK_DECODER], c, &cost->row);
    count_stack(cost, &m->params[PROA_STACK_ENCODER], c, &cost->encoder_row);
    cost->pair = proa_config_pair_ops(c, 0, c->layers);
    cost->encoder_pair = 4.0 * (double)c->heads * (double)c->head_dim * (double)c->encoder_layers;
    cost->kind = m->arch->kind;
}

/* How many more bytes of experts a batch reads than one row does, if its rows choose independently and evenly. */
static double more_expert_bytes(const proa_bench_cost *c, int64_t batch)
{
    if (c->chosen == 0) return 0;
    double read = 1 - pow(1 - c->chosen, (double)batch); /* the part of the experts that some row has chosen */
    return (double)c->expert_bytes * (read / c->chosen - 1);
}

double proa_bench_step_bytes(const proa_bench *b, int64_t batch)
{
    return (double)b->cost.step_bytes + more_expert_bytes(&b->cost, batch) +
           (double)batch * ((double)b->prompt + (double)b->tokens / 2) * b->token_bytes;
}

/* Ops of a decode step of `batch` sequences when half of the new tokens are in the KV cache. */
static double step_ops(const proa_bench *b, int64_t batch)
{
    const proa_bench_cost *c = &b->cost;
    double context = (double)b->prompt + (double)b->tokens / 2;
    return (double)batch * (c->row + c->head + c->pair * context);
}

/* Ops until every sequence has its first token: all rows of its prompt, and one row of the head. */
static double prompt_ops(const proa_bench *b, int64_t batch)
{
    const proa_bench_cost *c = &b->cost;
    double n = (double)b->prompt;
    if (c->kind == PROA_KIND_DECODER) return (double)batch * (n * c->row + c->head + c->pair * n * n / 2);
    double encoder = n * c->encoder_row + c->encoder_pair * n * n;
    if (c->kind == PROA_KIND_ENCODER) return (double)batch * (encoder + c->head);
    return (double)batch * (encoder + c->row + c->head);
}

/* Reading and multiplying overlap, so the longer of the two is the least time. */
static double floor_s(const proa_bench *b, double bytes, double ops)
{
    double reading = b->bandwidth > 0 ? bytes / b->bandwidth : 0;
    double multiplying = b->matrix_rate > 0 ? ops / b->matrix_rate : 0;
    return reading > multiplying ? reading : multiplying;
}

double proa_bench_step_floor(const proa_bench *b, int64_t batch)
{
    return floor_s(b, proa_bench_step_bytes(b, batch), step_ops(b, batch));
}

double proa_bench_prompt_floor(const proa_bench *b, int64_t batch)
{
    return floor_s(b, (double)b->cost.all_bytes, prompt_ops(b, batch));
}
