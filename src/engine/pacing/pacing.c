/* SPDX-License-Identifier: Apache-2.0
 * pacing.c - times of passes, and what a row of a prompt costs. */
#include "engine/pacing/pacing.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"

void proa_pacing_init(proa_engine *e)
{
    const proa_model *m = e->model;
    /* scores and sums of a row with one token, in all layers, against its products with all weights */
    proa_layer_range layers = m->plan.layers[PROA_STACK_DECODER];
    double pair = proa_config_pair_ops(&m->config, layers.first, layers.end);
    e->pacing.budget = (proa_prompt_budget){.most = e->sizes.prompt_rows, .slowdown = e->sizes.prompt_slowdown};
    e->pacing.pair_work = pair / (2 * (double)proa_max64(1, m->plan.parameters));
}

void proa_pacing_pass_ended(proa_engine *e, const proa_step_shape *shape, int64_t begin_ns)
{
    proa_prompt_pacing *p = &e->pacing;
    int64_t now = proa_clock_ns(), begin = proa_max64(begin_ns, p->last_end_ns); /* passes run one after the other */
    p->last_end_ns = now;
    if (shape && !e->encoder.count) proa_step_time_add(&p->times, shape, (double)(now - begin));
}
