/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/model.h"

#include <string.h>

static const proa_io *find_io(const proa_io *ios, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(ios[i].name, name) == 0) return &ios[i];
    return NULL;
}

const proa_io *proa_model_input(const proa_model *model, const char *name)
{
    return find_io(model->inputs, model->inputs_count, name);
}

const proa_io *proa_model_output(const proa_model *model, const char *name)
{
    return find_io(model->outputs, model->outputs_count, name);
}

proa_model *proa_model_hold(proa_model *model)
{
    atomic_fetch_add_explicit(&model->refs, 1, memory_order_relaxed);
    return model;
}

void proa_model_drop(proa_model *model)
{
    atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel);
}

void proa_model_runs_long(proa_model *model)
{
    model->flags &= ~(unsigned)PROA_BACKEND_INLINE;
}
