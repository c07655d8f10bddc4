/* SPDX-License-Identifier: Apache-2.0
 * graph.h - inside serve: an ensemble as a data-flow graph, compiled once at load: steps (models), tensors between
 * them, and which of them live once for a request and which once for each reply of a decoupled model. Each tensor has
 * a label: 0 for those of the request; a decoupled step opens a new label, whose tensors exist once for each of its
 * replies (a scope). All inputs of a step have one label; it runs once in each scope of it.
 * Owner:   all of it is in the ensemble's model->arena. Threads: read only. */
#ifndef PROA_SERVE_SCHED_GRAPH_H
#define PROA_SERVE_SCHED_GRAPH_H

#include "serve/models/model.h"

typedef struct proa_graph_edge {
    const char *name; /* of the step's model */
    int tensor;
} proa_graph_edge;

typedef struct proa_graph_tensor {
    const char *name;
    int producer; /* a step, or -1: an input of the ensemble */
    int label, slot;
    int *consumers; /* steps, one entry for each of their inputs */
    int consumers_count;
} proa_graph_tensor;

typedef struct proa_graph_step {
    const char *model;
    int64_t version;
    bool decoupled;
    bool on_caller; /* executes on the caller's thread; other steps are started first */
    int label, out_label;
    int place; /* among the steps of its label */
    proa_graph_edge *inputs, *outputs;
    int inputs_count, outputs_count;
    const char **output_names; /* the outputs that its call requests */
} proa_graph_step;

typedef struct proa_graph_label {
    int values, steps; /* tensors and steps of a scope */
    int *missing;      /* [steps]: inputs that a step waits for */
} proa_graph_label;

typedef struct proa_graph {
    proa_graph_tensor *tensors;
    proa_graph_step *steps;
    proa_graph_label *labels;
    int tensors_count, steps_count, labels_count;
    int *inputs;   /* [model->inputs_count]: the tensor of an input */
    int *outputs;  /* [model->outputs_count] */
    int out_label; /* of all outputs */
    bool **needs;  /* [model->outputs_count][steps]: what must run for an output */
} proa_graph;

/* The models of the steps are loaded. The configuration was checked (config/config.h); remaining faults are INVALID. */
PROA_MUST_CHECK proa_status proa_graph_compile(proa_graph **out, proa_served_model *ensemble, proa_err *err);

#endif
