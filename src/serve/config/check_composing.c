/* SPDX-License-Identifier: Apache-2.0
 * check_composing.c - checks an ensemble against the configurations of its models. */
#include "base/alloc.h"
#include "base/map.h"
#include "proto/message.h"
#include "serve/config/config.h"
#include <string.h>

typedef Inference__ModelEnsembling__Step step;

/* ---- missing models and cycles ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

proa_status proa_ensemble_check_models(const Inference__ModelConfig *ensemble, proa_config_lookup *lookup,
                                       void *arg, proa_err *err)
{
    const Inference__ModelEnsembling *e = proa_config_ensemble(ensemble);
    if (!e || e->n_step == 0) return PROA_OK;
    const char **missing = proa_calloc(e->n_step, sizeof *missing);
    size_t count = 0;
    for (size_t i = 0; i < e->n_step; i++)
        if (!lookup(arg, e->step[i]->model_name)) missing[count++] = e->step[i]->model_name;
    qsort(missing, count, sizeof *missing, by_name);
    proa_buf list;
    proa_buf_init(&list, 400); /* an error text has room for no more */
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(missing[i], missing[i - 1]) != 0)
            proa_buf_printf(&list, "%s%s", i ? ", " : "", missing[i]);
    proa_status status = PROA_OK;
    if (count)
        status = PROA_FAIL(err, INVALID, "ensemble %s contains models that are not available or ambiguous: %s",
                           ensemble->name, list.ptr ? list.ptr : "");
    proa_buf_release(&list);
    free(missing);
    return status;
}

typedef struct walk {
    const Inference__ModelConfig *start;
    proa_config_lookup *lookup;
    void *arg;
    proa_map seen;
    const Inference__ModelConfig **queue; /* ensembles that are reached and not yet looked into */
    size_t begin, end, cap;
} walk;

static void reach_model(walk *w, const Inference__ModelConfig *c)
{
    if (!proa_config_ensemble(c) || !proa_map_put(&w->seen, proa_str_c(c->name), 0)) return;
    if (w->end == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 16;
        w->queue = proa_realloc((void *)w->queue, w->cap * sizeof(void *));
    }
    w->queue[w->end++] = c;
}

proa_status proa_ensemble_check_cycle(const Inference__ModelConfig *ensemble, proa_config_lookup *lookup,
                                      void *arg, proa_err *err)
{
    walk w = {.start = ensemble, .lookup = lookup, .arg = arg};
    proa_status status = PROA_OK;
    proa_map_init(&w.seen, 16);
    reach_model(&w, ensemble);
    while (w.begin < w.end && status == PROA_OK) {
        const Inference__ModelConfig *now = w.queue[w.begin++];
        const Inference__ModelEnsembling *e = proa_config_ensemble(now);
        for (size_t i = 0; i < e->n_step && status == PROA_OK; i++) {
            const char *name = e->step[i]->model_name;
            const Inference__ModelConfig *next = lookup(arg, name);
            if (strcmp(name, ensemble->name) == 0)
                status = PROA_FAIL(err, INVALID, "circular dependency between ensembles: %s -> ... -> %s -> %s",
                                   name, now->name, name);
            else if (next) reach_model(&w, next);
        }
    }
    proa_map_release(&w.seen);
    free((void *)w.queue);
    return status;
}

/* ---- tensors between the steps ---- */

/* A tensor of the ensemble: its type and shape are those of the first model that uses it. */
typedef struct node {
    const char *model; /* that they are inferred from */
    Inference__DataType type;
    const int64_t *dims;
    size_t dims_count;
    bool batched;
    int label; /* which decoupled model it comes from; 0: none */
    bool visited;
} node;

typedef struct flow {
    const Inference__ModelConfig *config;
    const Inference__ModelEnsembling *ensemble;
    proa_map names;
    node *nodes;
    int count;
    proa_err *err;
} flow;

static bool dims_agree(const int64_t *a, size_t a_count, const int64_t *b, size_t b_count)
{
    if (a_count != b_count) return false;
    for (size_t i = 0; i < a_count; i++)
        if (a[i] != b[i] && a[i] != -1 && b[i] != -1) return false;
    return true;
}

/* With the batch dimension, if there is one, in front. */
static bool full_dims_agree(const node *a, const node *b)
{
    if (a->batched == b->batched) return dims_agree(a->dims, a->dims_count, b->dims, b->dims_count);
    const node *batched = a->batched ? a : b, *other = a->batched ? b : a;
    return other->dims_count > 0 && /* a batch dimension is variable: it agrees with any */
           dims_agree(batched->dims, batched->dims_count, other->dims + 1, other->dims_count - 1);
}

static void print_dims(char *out, size_t size, const node *n)
{
    size_t used = 0;
    snprintf(out, size, "[%s", n->batched ? "-1" : "");
    for (size_t i = 0; i < n->dims_count && used < size; i++) {
        used = strlen(out);
        snprintf(out + used, size - used, "%s%lld", i || n->batched ? "," : "", (long long)n->dims[i]);
    }
    used = strlen(out);
    snprintf(out + used, size - used, "]");
}

static const char *type_name(Inference__DataType type)
{
    const char *name = proa_enum_name(&inference__data_type__descriptor, (int)type);
    return name ? name : "";
}

static proa_status check_agree(const flow *f, const char *tensor, const node *a, const node *b)
{
    char a_dims[160], b_dims[160];
    if (a->type != b->type)
        return PROA_FAIL(
            f->err, INVALID,
            "in ensemble %s, ensemble tensor %s: inconsistent data type: %s is inferred from model %s while "
            "%s is inferred from model %s",
            f->config->name, tensor, type_name(a->type), a->model, type_name(b->type), b->model);
    if (dims_agree(a->dims, a->dims_count, b->dims, b->dims_count) || full_dims_agree(a, b)) return PROA_OK;
    print_dims(a_dims, sizeof a_dims, a);
    print_dims(b_dims, sizeof b_dims, b);
    return PROA_FAIL(
        f->err, INVALID,
        "in ensemble %s, ensemble tensor %s: inconsistent shape: %s is inferred from model %s while %s is "
        "inferred from model %s",
        f->config->name, tensor, a_dims, a->model, b_dims, b->model);
}

static node *find_node(const flow *f, const char *tensor)
{
    int32_t at;
    return proa_map_find(&f->names, proa_str_c(tensor), &at) ? &f->nodes[at] : NULL;
}

/* Compares the tensor with what is known of node `n`, or records it there if nothing is. */
static proa_status meet_node(flow *f, const char *tensor, node n, node **out)
{
    *out = find_node(f, tensor);
    if (*out) return check_agree(f, tensor, *out, &n);
    proa_map_put(&f->names, proa_str_c(tensor), f->count);
    f->nodes[f->count] = n;
    *out = &f->nodes[f->count++];
    return PROA_OK;
}

static node input_node(const Inference__ModelConfig *c, const Inference__ModelInput *in, bool reshaped)
{
    const Inference__ModelTensorReshape *r = reshaped ? in->reshape : NULL;
    return (node){
        c->name, in->data_type, r ? r->shape : in->dims, r ? r->n_shape : in->n_dims, c->max_batch_size > 0,
        0,       false};
}

static node output_node(const Inference__ModelConfig *c, const Inference__ModelOutput *out, bool reshaped)
{
    const Inference__ModelTensorReshape *r = reshaped ? out->reshape : NULL;
    return (node){c->name,
                  out->data_type,
                  r ? r->shape : out->dims,
                  r ? r->n_shape : out->n_dims,
                  c->max_batch_size > 0,
                  0,
                  false};
}

static int outputs_named(const Inference__ModelConfig *c, const char *name)
{
    int count = 0;
    for (size_t i = 0; i < c->n_output; i++) count += strcmp(c->output[i]->name, name) == 0;
    return count;
}

static bool maps_input(const step *s, const char *name)
{
    for (size_t i = 0; i < s->n_input_map; i++)
        if (strcmp(s->input_map[i]->key, name) == 0) return true;
    return false;
}

static proa_status meet_inputs(flow *f, const step *s, const Inference__ModelConfig *model)
{
    node *n;
    for (size_t i = 0; i < s->n_input_map; i++)
        if (!proa_config_input(model, s->input_map[i]->key))
            return PROA_FAIL(
                f->err, INVALID,
                "in ensemble %s, ensemble tensor %s is mapping to non-existing input %s in model %s",
                f->config->name, s->input_map[i]->value, s->input_map[i]->key, s->model_name);
    for (size_t i = 0; i < model->n_input; i++)
        if (!model->input[i]->optional && !maps_input(s, model->input[i]->name))
            return PROA_FAIL(f->err, INVALID,
                             "in ensemble %s, input %s in model %s is not mapped to any ensemble tensors",
                             f->config->name, model->input[i]->name, s->model_name);
    for (size_t i = 0; i < s->n_input_map; i++) {
        const Inference__ModelInput *in = proa_config_input(model, s->input_map[i]->key);
        PROA_TRY(meet_node(f, s->input_map[i]->value, input_node(model, in, false), &n));
    }
    return PROA_OK;
}

static proa_status meet_outputs(flow *f, const step *s, const Inference__ModelConfig *model)
{
    for (size_t i = 0; i < s->n_output_map; i++) {
        const char *tensor = s->output_map[i]->value;
        const Inference__ModelOutput *out = proa_config_output(model, s->output_map[i]->key);
        node *n = NULL;
        if (!out)
            return PROA_FAIL(
                f->err, INVALID,
                "in ensemble %s, ensemble tensor %s is mapped from non-existing output %s in model %s",
                f->config->name, tensor, s->output_map[i]->key, s->model_name);
        if (outputs_named(model, out->name) > 1)
            return PROA_FAIL(
                f->err, INVALID,
                "in ensemble %s, multiple outputs in model %s are mapped to the same ensemble tensor %s",
                f->config->name, s->model_name, tensor);
        PROA_TRY(meet_node(f, tensor, output_node(model, out, false), &n));
    }
    return PROA_OK;
}

static proa_status meet_step(flow *f, const step *s, const Inference__ModelConfig *model)
{
    if (model->max_batch_size != 0 && model->max_batch_size < f->config->max_batch_size)
        return PROA_FAIL(
            f->err, INVALID,
            "ensemble %s allows maximum batch size %d, but it contains model %s which only allows maximum "
            "batch size to be %d",
            f->config->name, f->config->max_batch_size, s->model_name, model->max_batch_size);
    PROA_TRY(meet_inputs(f, s, model));
    return meet_outputs(f, s, model);
}

/* Have all inputs of the step been visited? *label: of the decoupled model that they come from, -1: of different
 * ones. */
static bool step_visited(const flow *f, const step *s, int *label)
{
    *label = find_node(f, s->input_map[0]->value)->label;
    for (size_t i = 0; i < s->n_input_map; i++) {
        const node *n = find_node(f, s->input_map[i]->value);
        if (!n->visited) return false;
        if (n->label != *label) *label = -1;
    }
    return true;
}

static proa_status different_streams(const flow *f, const char *model)
{
    return PROA_FAIL(
        f->err, INVALID,
        "in ensemble %s, step of model '%s' receives inputs originated from different decoupled models",
        f->config->name, model);
}

static proa_status visit_step(flow *f, const step *s, const Inference__ModelConfig *model, int label, int *labels)
{
    if (label < 0) return different_streams(f, s->model_name);
    if (model->model_transaction_policy && model->model_transaction_policy->decoupled) label = ++*labels;
    for (size_t i = 0; i < s->n_output_map; i++) {
        node *n = find_node(f, s->output_map[i]->value);
        n->visited = true;
        n->label = label;
    }
    return PROA_OK;
}

/* All outputs belong to one stream of replies. */
static proa_status check_ends(const flow *f)
{
    for (size_t i = 1; i < f->config->n_output; i++)
        if (find_node(f, f->config->output[i]->name)->label != find_node(f, f->config->output[0]->name)->label)
            return different_streams(f, f->config->name);
    return PROA_OK;
}

/* Follows the data from the inputs: each decoupled model makes a stream of its own, and two streams cannot meet. */
static proa_status follow_steps(flow *f, const Inference__ModelConfig *const *models, bool *decoupled)
{
    proa_status status = PROA_OK;
    int labels = 0;
    bool *done = proa_calloc(f->ensemble->n_step, sizeof *done);
    for (size_t i = 0; i < f->config->n_input; i++) find_node(f, f->config->input[i]->name)->visited = true;
    for (bool again = true; again && status == PROA_OK;) {
        again = false;
        for (size_t i = 0; i < f->ensemble->n_step && status == PROA_OK; i++) {
            int label;
            if (done[i] || !step_visited(f, f->ensemble->step[i], &label)) continue;
            status = visit_step(f, f->ensemble->step[i], models[i], label, &labels);
            done[i] = again = true;
        }
    }
    free(done);
    *decoupled = labels > 0;
    return status == PROA_OK ? check_ends(f) : status;
}

static proa_status check_flow(flow *f, const Inference__ModelConfig **models, proa_config_lookup *lookup,
                              void *arg, bool *decoupled)
{
    node *n;
    for (size_t i = 0; i < f->config->n_input; i++)
        PROA_TRY(meet_node(f, f->config->input[i]->name, input_node(f->config, f->config->input[i], true), &n));
    for (size_t i = 0; i < f->config->n_output; i++)
        PROA_TRY(
            meet_node(f, f->config->output[i]->name, output_node(f->config, f->config->output[i], true), &n));
    for (size_t i = 0; i < f->ensemble->n_step; i++) {
        models[i] = lookup(arg, f->ensemble->step[i]->model_name);
        if (!models[i]) return proa_ensemble_check_models(f->config, lookup, arg, f->err);
        PROA_TRY(meet_step(f, f->ensemble->step[i], models[i]));
    }
    return follow_steps(f, models, decoupled);
}

proa_status proa_ensemble_check_flow(const Inference__ModelConfig *ensemble, proa_config_lookup *lookup,
                                     void *arg, bool *decoupled, proa_err *err)
{
    const Inference__ModelEnsembling *e = proa_config_ensemble(ensemble);
    *decoupled = false;
    if (!e) return PROA_OK;
    size_t tensors = ensemble->n_input + ensemble->n_output;
    for (size_t i = 0; i < e->n_step; i++) tensors += e->step[i]->n_input_map + e->step[i]->n_output_map;
    flow f = {.config = ensemble, .ensemble = e, .nodes = proa_calloc(tensors + 1, sizeof(node)), .err = err};
    const Inference__ModelConfig **models = proa_calloc(e->n_step + 1, sizeof(void *));
    proa_map_init(&f.names, (int64_t)tensors);
    proa_status status = check_flow(&f, models, lookup, arg, decoupled);
    proa_map_release(&f.names);
    free((void *)models);
    free(f.nodes);
    return status;
}
