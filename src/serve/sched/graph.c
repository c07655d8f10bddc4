/* SPDX-License-Identifier: Apache-2.0
 * graph.c - compiles an ensemble's configuration to a data-flow graph. */
#include "serve/sched/graph.h"

#include "base/limits.h"
#include <string.h>

enum { UNKNOWN = -1 };

/* The tensor of that name, made if need be. */
static int tensor_of(proa_graph *g, const char *name)
{
    for (int i = 0; i < g->tensors_count; i++)
        if (strcmp(g->tensors[i].name, name) == 0) return i;
    g->tensors[g->tensors_count] = (proa_graph_tensor){.name = name, .producer = -1, .label = UNKNOWN};
    return g->tensors_count++;
}

static void add_step(proa_graph *g, const Inference__ModelEnsembling__Step *from, proa_arena *arena)
{
    int index = g->steps_count++;
    proa_graph_step *s = &g->steps[index];
    s->model = from->model_name;
    s->version = from->model_version ? from->model_version : -1;
    s->label = UNKNOWN;
    s->inputs = PROA_ARENA_NEW(arena, proa_graph_edge, (int64_t)from->n_input_map);
    s->outputs = PROA_ARENA_NEW(arena, proa_graph_edge, (int64_t)from->n_output_map);
    s->output_names = PROA_ARENA_NEW(arena, const char *, (int64_t)from->n_output_map);
    for (size_t i = 0; i < from->n_input_map; i++)
        s->inputs[s->inputs_count++] = (proa_graph_edge){from->input_map[i]->key,
                                                         tensor_of(g, from->input_map[i]->value)};
    for (size_t i = 0; i < from->n_output_map; i++) {
        proa_graph_edge *e = &s->outputs[s->outputs_count];
        *e = (proa_graph_edge){from->output_map[i]->key, tensor_of(g, from->output_map[i]->value)};
        s->output_names[s->outputs_count++] = e->name;
        g->tensors[e->tensor].producer = index;
    }
}

static void add_consumers(proa_graph *g, proa_arena *arena)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->steps_count; i++)
            for (int j = 0; j < g->steps[i].inputs_count; j++) {
                proa_graph_tensor *t = &g->tensors[g->steps[i].inputs[j].tensor];
                if (pass == 1) t->consumers[t->consumers_count] = i;
                t->consumers_count++;
            }
        for (int i = 0; pass == 0 && i < g->tensors_count; i++) {
            g->tensors[i].consumers = PROA_ARENA_NEW(arena, int, g->tensors[i].consumers_count);
            g->tensors[i].consumers_count = 0;
        }
    }
}

static proa_status read_models(proa_graph *g, proa_served_model *ensemble, proa_err *err)
{
    for (int i = 0; i < g->steps_count; i++) {
        proa_graph_step *s = &g->steps[i];
        proa_served_model *m;
        PROA_TRY(proa_server_find(ensemble->server, s->model, s->version, &m, err));
        s->decoupled = m->decoupled;
        s->on_caller = m->backend && (m->flags & PROA_BACKEND_INLINE);
        proa_served_model_drop(m);
    }
    return PROA_OK;
}

/* The label that all inputs of a step have; UNKNOWN while one has none yet. */
static proa_status label_of(const proa_graph *g, const proa_served_model *ensemble, const proa_graph_step *s,
                            int *label, proa_err *err)
{
    *label = s->inputs_count ? UNKNOWN : 0;
    for (int i = 0; i < s->inputs_count; i++)
        if (g->tensors[s->inputs[i].tensor].label == UNKNOWN) return PROA_OK;
    for (int i = 0; i < s->inputs_count; i++) {
        int l = g->tensors[s->inputs[i].tensor].label;
        if (i && l != *label)
            return PROA_FAIL(
                err, INVALID,
                "in ensemble %s, step of model '%s' receives inputs originated from different decoupled "
                "models",
                ensemble->name, s->model);
        *label = l;
    }
    return PROA_OK;
}

/* A pass over all steps; *progress if one got its label. */
static proa_status label_steps(proa_graph *g, const proa_served_model *ensemble, bool *progress, proa_err *err)
{
    *progress = false;
    for (int i = 0; i < g->steps_count; i++) {
        proa_graph_step *s = &g->steps[i];
        if (s->label != UNKNOWN) continue;
        PROA_TRY(label_of(g, ensemble, s, &s->label, err));
        if (s->label == UNKNOWN) continue;
        *progress = true;
        s->out_label = s->decoupled ? g->labels_count++ : s->label;
        for (int j = 0; j < s->outputs_count; j++) g->tensors[s->outputs[j].tensor].label = s->out_label;
    }
    return PROA_OK;
}

static proa_status set_labels(proa_graph *g, const proa_served_model *ensemble, proa_err *err)
{
    bool progress = true;
    g->labels_count = 1;
    for (int i = 0; i < ensemble->inputs_count; i++) g->tensors[g->inputs[i]].label = 0;
    while (progress) PROA_TRY(label_steps(g, ensemble, &progress, err));
    for (int i = 0; i < g->tensors_count; i++)
        if (g->tensors[i].label == UNKNOWN)
            return PROA_FAIL(err, INVALID, "in ensemble %s, ensemble tensor %s can never be made",
                             ensemble->name, g->tensors[i].name);
    for (int i = 0; i < ensemble->outputs_count; i++) {
        int label = g->tensors[g->outputs[i]].label;
        if (i && label != g->out_label)
            return PROA_FAIL(
                err, INVALID,
                "in ensemble %s, step of model '%s' receives inputs originated from different decoupled "
                "models",
                ensemble->name, ensemble->name);
        g->out_label = label;
    }
    return PROA_OK;
}

static void set_places(proa_graph *g, proa_arena *arena)
{
    g->labels = PROA_ARENA_NEW(arena, proa_graph_label, g->labels_count);
    for (int i = 0; i < g->tensors_count; i++) g->tensors[i].slot = g->labels[g->tensors[i].label].values++;
    for (int i = 0; i < g->steps_count; i++) g->steps[i].place = g->labels[g->steps[i].label].steps++;
    for (int l = 0; l < g->labels_count; l++)
        g->labels[l].missing = PROA_ARENA_NEW(arena, int, g->labels[l].steps);
    for (int i = 0; i < g->steps_count; i++)
        g->labels[g->steps[i].label].missing[g->steps[i].place] = g->steps[i].inputs_count;
}

/* All steps before a tensor. */
static void mark_needs(const proa_graph *g, int tensor, bool *needs)
{
    int producer = g->tensors[tensor].producer;
    if (producer < 0 || needs[producer]) return;
    needs[producer] = true;
    for (int i = 0; i < g->steps[producer].inputs_count; i++)
        mark_needs(g, g->steps[producer].inputs[i].tensor, needs);
}

proa_status proa_graph_compile(proa_graph **out, proa_served_model *ensemble, proa_err *err)
{
    const Inference__ModelEnsembling *e = ensemble->config->ensemble_scheduling;
    proa_arena *arena = &ensemble->arena;
    proa_graph *g = PROA_ARENA_NEW(arena, proa_graph, 1);
    int64_t most = ensemble->inputs_count + ensemble->outputs_count;
    if (e->n_step > PROA_ENSEMBLE_STEPS_MAX)
        return PROA_FAIL(err, LIMIT, "ensemble '%s' has more than %d steps", ensemble->name,
                         PROA_ENSEMBLE_STEPS_MAX);
    for (size_t i = 0; i < e->n_step; i++)
        most += (int64_t)(e->step[i]->n_input_map + e->step[i]->n_output_map);
    g->tensors = PROA_ARENA_NEW(arena, proa_graph_tensor, most);
    g->steps = PROA_ARENA_NEW(arena, proa_graph_step, (int64_t)e->n_step);
    g->inputs = PROA_ARENA_NEW(arena, int, ensemble->inputs_count);
    g->outputs = PROA_ARENA_NEW(arena, int, ensemble->outputs_count);
    for (int i = 0; i < ensemble->inputs_count; i++) g->inputs[i] = tensor_of(g, ensemble->inputs[i].name);
    for (size_t i = 0; i < e->n_step; i++) add_step(g, e->step[i], arena);
    for (int i = 0; i < ensemble->outputs_count; i++) g->outputs[i] = tensor_of(g, ensemble->outputs[i].name);
    PROA_TRY(read_models(g, ensemble, err));
    PROA_TRY(set_labels(g, ensemble, err));
    add_consumers(g, arena);
    set_places(g, arena);
    g->needs = PROA_ARENA_NEW(arena, bool *, ensemble->outputs_count);
    for (int i = 0; i < ensemble->outputs_count; i++) {
        g->needs[i] = PROA_ARENA_NEW(arena, bool, g->steps_count);
        mark_needs(g, g->outputs[i], g->needs[i]);
    }
    *out = g;
    return PROA_OK;
}
