/* SPDX-License-Identifier: Apache-2.0
 * traffic.c - bytes that ranks exchange, counted from the steps of their programs. */
#include "model/ranks/traffic.h"

static proa_stack_id busiest_stack(const proa_model *m)
{
    return m->arch->kind == PROA_KIND_ENCODER ? PROA_STACK_ENCODER : PROA_STACK_DECODER;
}

/* Terms have the type of the activations (steps/registers.c, part_dtype). */
static int64_t term_bytes(const proa_model *m, proa_reg reg)
{
    proa_dtype dtype = PROA_DTYPE_F32;
    bool large = m->arch->kind != PROA_KIND_DECODER && m->arch->norm == PROA_NORM_RMS;
    bool wide = large || reg == PROA_REG_SQUARES || reg == PROA_REG_MOMENTS_PART;
    if (m->device->activations && !wide) dtype = m->device->activations(m->device, m->formats.main, 1);
    return m->plan.width[reg] * proa_dtype_bytes(dtype);
}

proa_rank_traffic proa_rank_traffic_of(const proa_model *m)
{
    proa_rank_traffic t = {0};
    proa_stack_id stack = busiest_stack(m);
    const proa_plan *plan = &m->plan;
    const proa_program *layer = &plan->program[stack][PROA_SECTION_LAYER];
    for (int64_t i = plan->layers[stack].first; i < plan->layers[stack].end; i++)
        for (const proa_step *s = layer->step; s->op != PROA_STEP_END; s++) {
            if (!proa_step_applies(s, &m->config, i)) continue;
            if (s->op == PROA_STEP_ALL_REDUCE || s->op == PROA_STEP_GATHER_COLUMNS)
                t.sums++, t.sum_bytes += term_bytes(m, s->in);
            if (s->op == PROA_STEP_GATHER_INPUTS) t.sum_bytes += term_bytes(m, PROA_REG_SUM_PART);
        }
    const proa_program *after = &plan->program[stack][PROA_SECTION_AFTER];
    for (const proa_step *s = after->step; s->op != PROA_STEP_END; s++)
        if (s->op == PROA_STEP_SEND) t.stage_bytes += plan->width[s->in] * (int64_t)sizeof(float);
    t.output_bytes = plan->width[PROA_REG_OUT_PART] * (int64_t)sizeof(float);
    return t;
}
