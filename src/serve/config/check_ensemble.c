/* SPDX-License-Identifier: Apache-2.0
 * check_ensemble.c - checks ensemble_scheduling on its own: the graph of tensors between the steps. */
#include "base/alloc.h"
#include "base/map.h"
#include "serve/config/check.h"
#include <string.h>

typedef Inference__ModelEnsembling__Step step;

/* A tensor of the ensemble: an input of it or an output of one step; steps read it. */
typedef struct tensor {
    const char *name;
    int producer; /* the step that writes it, or -1 */
    bool read;    /* some step reads it */
    bool ready;   /* all that it depends on leads back to the ensemble's inputs */
    bool seen;
} tensor;

typedef struct graph {
    const Inference__ModelConfig *config;
    const Inference__ModelEnsembling *ensemble;
    proa_map names; /* to an index of tensors */
    tensor *tensors;
    int count;
    proa_err *err;
} graph;

static tensor *find_tensor(const graph *g, const char *name)
{
    int32_t at;
    return proa_map_find(&g->names, proa_str_c(name), &at) ? &g->tensors[at] : NULL;
}

static tensor *add_tensor(graph *g, const char *name)
{
    tensor *t = find_tensor(g, name);
    if (t) return t;
    proa_map_put(&g->names, proa_str_c(name), g->count);
    g->tensors[g->count] = (tensor){.name = name, .producer = -1};
    return &g->tensors[g->count++];
}

static proa_status add_step(graph *g, int at)
{
    const step *s = g->ensemble->step[at];
    const char *missing = !s->model_name[0]      ? "model_name"
                          : s->n_input_map == 0  ? "input_map"
                          : s->n_output_map == 0 ? "output_map"
                                                 : NULL;
    if (missing)
        return PROA_FAIL(g->err, INVALID, "must specify '%s' in step %d of ensemble '%s'", missing, at,
                         g->config->name);
    for (size_t i = 0; i < s->n_output_map; i++) {
        tensor *t = add_tensor(g, s->output_map[i]->value);
        if (t->producer >= 0)
            return PROA_FAIL(
                g->err, INVALID,
                "ensemble tensor '%s' can appear in an output map only once for ensemble '%s' step %d",
                t->name, g->config->name, at);
        t->producer = at;
    }
    for (size_t i = 0; i < s->n_input_map; i++) add_tensor(g, s->input_map[i]->value)->read = true;
    return PROA_OK;
}

static bool step_ready(const graph *g, const step *s)
{
    for (size_t i = 0; i < s->n_input_map; i++)
        if (!find_tensor(g, s->input_map[i]->value)->ready) return false;
    return true;
}

/* What can be computed from the inputs: steps in any order, so until nothing new is ready. Steps stand nearly in order
 * in real files, so a few rounds do. */
static void check_step_flow(graph *g)
{
    bool again = true;
    bool *done = proa_calloc(g->ensemble->n_step, sizeof *done);
    while (again) {
        again = false;
        for (size_t i = 0; i < g->ensemble->n_step; i++) {
            const step *s = g->ensemble->step[i];
            if (done[i] || !step_ready(g, s)) continue;
            for (size_t j = 0; j < s->n_output_map; j++)
                find_tensor(g, s->output_map[j]->value)->ready = true;
            done[i] = again = true;
        }
    }
    free(done);
}

/* From a tensor that is not written up to the first cause: a tensor that nothing writes, or a ring. */
static const tensor *first_cause(const graph *g, const tensor *from)
{
    const tensor *cause = from;
    for (bool found = true; found && cause->producer >= 0;) {
        const step *s = g->ensemble->step[cause->producer];
        found = false;
        for (size_t i = 0; i < s->n_input_map && !found; i++) {
            tensor *t = find_tensor(g, s->input_map[i]->value);
            if (t->ready || t->seen) continue;
            t->seen = found = true;
            cause = t;
        }
    }
    return cause;
}

static proa_status check_output(const graph *g, const char *name)
{
    const tensor *t = find_tensor(g, name);
    if (!t) /* no quote before the name: so does Triton say it, and below */
        return PROA_FAIL(g->err, INVALID, "ensemble output '%s' for ensemble %s' is not used", name,
                         g->config->name);
    if (t->ready) return PROA_OK;
    const tensor *cause = first_cause(g, t);
    if (cause == t)
        return PROA_FAIL(g->err, INVALID, "output '%s' for ensemble '%s' is not written", name, g->config->name);
    return PROA_FAIL(
        g->err, INVALID,
        "output '%s' for ensemble '%s' is not written: at least one of its depending tensors, '%s', is not "
        "connected",
        name, g->config->name, cause->name);
}

static proa_status check_graph(graph *g)
{
    for (size_t i = 0; i < g->ensemble->n_step; i++) PROA_TRY(add_step(g, (int)i));
    for (size_t i = 0; i < g->config->n_input; i++) {
        const char *name = g->config->input[i]->name;
        tensor *t = find_tensor(g, name);
        if (!t)
            return PROA_FAIL(g->err, INVALID, "ensemble input '%s' for ensemble %s' is not used", name,
                             g->config->name);
        t->ready = true;
    }
    check_step_flow(g);
    for (size_t i = 0; i < g->config->n_output; i++) PROA_TRY(check_output(g, g->config->output[i]->name));
    for (int i = 0; i < g->count; i++) {
        const tensor *t = &g->tensors[i];
        if ((!t->ready || !t->read) && !proa_config_output(g->config, t->name))
            return PROA_FAIL(g->err, INVALID, "ensemble tensor '%s' is unused in ensemble '%s'", t->name,
                             g->config->name);
    }
    return PROA_OK;
}

proa_status proa_config_check_ensemble(const Inference__ModelConfig *c, proa_err *err)
{
    enum { STEPS_MAX = 1024, MAPPED_MAX = 65536 }; /* TensorRT-LLM's have 3 steps and 60 names */
    const Inference__ModelEnsembling *e = c->ensemble_scheduling;
    size_t mapped = 0;
    const char *extra = c->n_instance_group ? "instance group should not be"
                        : c->optimization   ? "optimization should not be"
                        : c->n_model_warmup ? "model_warmup can not be"
                                            : NULL;
    if (strcmp(c->platform, "ensemble") != 0)
        return PROA_FAIL(err, INVALID,
                         "ensemble scheduling cannot be set for model '%s' whose platform is not ensemble",
                         c->name);
    if (extra) return PROA_FAIL(err, INVALID, "%s specified for ensemble '%s'", extra, c->name);
    if (e->n_step == 0) return PROA_FAIL(err, INVALID, "must specify 'step' for ensemble '%s'", c->name);
    for (size_t i = 0; i < e->n_step; i++) mapped += e->step[i]->n_input_map + e->step[i]->n_output_map;
    if (e->n_step > STEPS_MAX || mapped > MAPPED_MAX)
        return PROA_FAIL(err, LIMIT, "ensemble '%s' has more than %d steps or %d mapped tensors", c->name,
                         STEPS_MAX, MAPPED_MAX);
    graph g = {.config = c, .ensemble = e, .tensors = proa_calloc(mapped + 1, sizeof(tensor)), .err = err};
    proa_map_init(&g.names, (int64_t)mapped);
    proa_status status = check_graph(&g);
    proa_map_release(&g.names);
    free(g.tensors);
    return status;
}
