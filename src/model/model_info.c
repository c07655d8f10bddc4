/* SPDX-License-Identifier: Apache-2.0
 * model_info.c - what others ask of a prepared model: its weights one by one, sizes of states and rows, its outputs. */
#include "model/model.h"

#include "base/checked.h"

bool proa_model_next_weight(const proa_model *m, proa_weight_walk *walk)
{
    for (; walk->stack < PROA_STACK_COUNT; walk->stack++, walk->next = 0) {
        const proa_params *p = &m->params[walk->stack];
        while (walk->next < (p->layers + 1) * PROA_SLOT_COUNT) {
            int64_t i = walk->next++;
            walk->layer = i / PROA_SLOT_COUNT, walk->slot = (proa_weight_slot)(i % PROA_SLOT_COUNT);
            walk->param = &p->param[i];
            if (proa_param_has_memory(walk->param)) return true;
        }
    }
    return false;
}

int64_t proa_model_state(const proa_model *m)
{
    return m->recurring * proa_config_layer_state(&m->config);
}

bool proa_model_wants_lengths(const proa_model *m)
{
    return proa_rope_by_length(&m->config.rope) || proa_rope_by_length(&m->config.local_rope);
}

bool proa_model_has_pool(const proa_model *m)
{
    return m->pooled;
}

int64_t proa_model_hidden_width(const proa_model *m)
{
    return m->plan.width[proa_plan_hidden(&m->plan)];
}

bool proa_model_sends_encoder_outputs(const proa_model *m)
{
    return m->plan.headless || proa_arch_has_one_row(m->arch);
}

int32_t proa_model_encoder_passes(const proa_model *m)
{
    return (int32_t)proa_min64(m->plan.part.stages + 1, PROA_STEPS_MAX);
}
