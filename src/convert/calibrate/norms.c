/* SPDX-License-Identifier: Apache-2.0
 * norms.c - which norm makes the inputs of a weight slot, and moving scales from it into the matrices. */
#include "base/alloc.h"
#include "base/checked.h"
#include "convert/calibrate/session.h"
#include "convert/calibrate/smooth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ROWS = 64 }; /* of all matrices of a norm, whose error is measured */

/* ---- the norm ---- */

static bool is_product(const proa_step *step)
{
    return step->op == PROA_STEP_LINEAR || step->op == PROA_STEP_LINEAR_GATED;
}

static bool is_norm_to_copy(const proa_step *step)
{
    return step->op == PROA_STEP_NORM && step->out == PROA_REG_N && step->in != PROA_REG_N &&
           !(step->flags & PROA_ADD);
}

/* The norm of the layer's program whose output only the products of this slot read. */
static bool find_norm(const proa_calibrate_session *s, const proa_input_stats *st, proa_weight_slot *norm)
{
    const proa_convert_tensors *t = s->tensors;
    int64_t layer = st->index / PROA_SLOT_COUNT, slot = st->index % PROA_SLOT_COUNT;
    const proa_step *writer = NULL;
    bool found = false, alone = true;
    for (const proa_step *step = t->arch->stacks[st->stack].layer; step->op != PROA_STEP_END; step++) {
        if (!proa_step_applies(step, &t->config, layer)) continue;
        if (is_norm_to_copy(step)) {
            if (found) break;
            writer = step, alone = true;
        } else if (step->in == PROA_REG_N || step->out == PROA_REG_N) {
            bool own = is_product(step) && step->in == PROA_REG_N && step->out != PROA_REG_N;
            found |= own && step->w == (proa_weight_slot)slot;
            alone &= own && step->w == (proa_weight_slot)slot;
        }
    }
    if (!found || !alone || !writer) return false;
    *norm = writer->w;
    return true;
}

/* The tensor of a slot of the layer, if it is all of the slot and used nowhere else; NULL if not. */
static proa_convert_tensor *find_vector(const proa_calibrate_session *s, const proa_param *param)
{
    proa_convert_tensor *found = NULL;
    const proa_weights_tensor *tensor = param->parts == 1 ? param->part[0].tensor : NULL;
    int64_t uses = 0;
    for (int st = 0; st < PROA_STACK_COUNT; st++) {
        const proa_params *p = &s->tensors->params[st];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++)
            for (int32_t k = 0; k < p->param[i].parts; k++) uses += p->param[i].part[k].tensor == tensor;
    }
    for (int64_t i = 0; tensor && uses == 1 && i < s->tensors->count; i++) {
        proa_convert_tensor *t = &s->tensors->at[i];
        if (t->count > 0 && t->rank == 1 && t->whole_count == 1 && t->whole[0] == tensor) found = t;
    }
    return found;
}

typedef struct norm_tensors {
    proa_convert_tensor *weight, *bias; /* bias NULL: it has none */
    float plus;                         /* what the model adds to the stored weights */
} norm_tensors;

/* Whether stats i come from a norm that can take scales. */
static bool find_tensors(const proa_calibrate_session *s, const proa_input_stats *st, norm_tensors *out)
{
    proa_weight_slot slot;
    const proa_params *p = &s->tensors->params[st->stack];
    if (!find_norm(s, st, &slot)) return false;
    int64_t layer = st->index / PROA_SLOT_COUNT;
    const proa_param *weight = proa_params_at(p, layer, slot), *bias = proa_params_at(p, layer, slot + 1);
    *out = (norm_tensors){.weight = find_vector(s, weight)};
    if (!out->weight || out->weight->count != st->K) return false;
    out->plus = weight->part[0].row->flags & PROA_PLUS_ONE ? 1.0f : 0.0f;
    if (bias->parts == 0) return true;
    out->bias = find_vector(s, bias);
    return out->bias && out->bias->count == st->K;
}

/* All matrices of the slot are quantised: one that is not would read inputs that were divided. */
static bool all_are_targets(const proa_calibrate_session *s, int64_t i)
{
    const proa_input_stats *st = &s->stats[i];
    const proa_param *p = &s->tensors->params[st->stack].param[st->index];
    int64_t rows = 0;
    for (int64_t t = 0; t < s->targets; t++)
        if (s->target[t].stats == i) rows += s->target[t].N;
    return rows == p->rows && p->experts == 0;
}

/* The new tensor's memory: numbers rounded to its type. */
static void replace_vector(proa_calibrate_session *s, proa_convert_tensor *t, const float *numbers)
{
    void *to = proa_calibrate_new_tensor(s, t->name, t->dtype, 1, t->count, 1);
    if (t->dtype == PROA_DTYPE_F32) memcpy(to, numbers, (size_t)t->count * sizeof *numbers);
    else proa_from_f32(to, t->dtype, numbers, t->count);
    t->count = -1; /* replaced */
}

/* The norm's tensors, divided by the scale. */
static void divide_norm(proa_calibrate_session *s, const norm_tensors *norm, float *scale)
{
    int64_t K = norm->weight->count;
    float *weight = proa_malloc((size_t)(2 * K) * sizeof *weight), *bias = norm->bias ? weight + K : NULL;
    proa_convert_tensor_read_f32(norm->weight, 0, K, weight);
    if (bias) proa_convert_tensor_read_f32(norm->bias, 0, K, bias);
    proa_smooth_norm(weight, bias, norm->plus, norm->weight->dtype, scale, K);
    replace_vector(s, norm->weight, weight);
    if (bias) replace_vector(s, norm->bias, bias);
    free(weight);
}

/* ---- the scales ---- */

/* Rows [rows] of all matrices of stats i, evenly spread over `all`. */
static void read_sample(const proa_calibrate_session *s, int64_t i, float *to, int64_t rows, int64_t all)
{
    int64_t before = 0, n = 0;
    for (int64_t t = 0; t < s->targets; t++) {
        const proa_calibrate_target *target = &s->target[t];
        if (target->stats != i) continue;
        for (; n < rows && n * all / rows < before + target->N; n++)
            proa_convert_tensor_read_f32(target->tensor, (n * all / rows - before) * target->K, target->K,
                                         to + n * target->K);
        before += target->N;
    }
}

static void choose_awq(proa_calibrate_session *s, int64_t i, float *scale)
{
    const proa_input_stats *st = &s->stats[i];
    bool int4 = s->c->kind == PROA_CODES_INT4;
    int64_t all = s->tensors->params[st->stack].param[st->index].rows, rows = proa_min64(all, SAMPLE_ROWS);
    float *numbers = proa_malloc((size_t)((rows + 1) * st->K) * sizeof *numbers), *mean = numbers + rows * st->K;
    proa_smooth_sample sample = {.kind = s->c->kind, .N = rows, .K = st->K, .asymmetric = s->c->asymmetric};
    read_sample(s, i, numbers, rows, all);
    for (int64_t k = 0; k < st->K; k++) mean[k] = st->sum[k] / (float)st->rows;
    sample.group = int4 ? s->c->group : st->K;
    sample.numbers = numbers, sample.hessian = st->hessian, sample.mean = mean;
    proa_smooth_awq(scale, &sample, s->job->pool);
    free(numbers);
}

static void choose_smoothquant(proa_calibrate_session *s, int64_t i, float *scale)
{
    const proa_input_stats *st = &s->stats[i];
    int64_t K = st->K;
    float *row = proa_malloc((size_t)K * sizeof *row), *most = proa_calloc((size_t)K, sizeof *most);
    for (int64_t t = 0; t < s->targets; t++) {
        const proa_calibrate_target *target = &s->target[t];
        for (int64_t n = 0; target->stats == i && n < target->N; n++) {
            proa_convert_tensor_read_f32(target->tensor, n * K, K, row);
            for (int64_t k = 0; k < K; k++) most[k] = fmaxf(most[k], fabsf(row[k]));
        }
    }
    proa_smooth_activations(scale, st->most, most, K);
    free(row);
    free(most);
}

proa_status proa_calibrate_smooth(proa_calibrate_session *s, int64_t i)
{
    proa_input_stats *st = &s->stats[i];
    norm_tensors norm;
    proa_calibrate_method method = s->c->method;
    bool awq = method == PROA_CALIBRATE_AWQ || method == PROA_CALIBRATE_AWQ_GPTQ;
    if ((!awq && method != PROA_CALIBRATE_SMOOTHQUANT) || st->rows <= 0) return PROA_OK;
    if (!all_are_targets(s, i) || !find_tensors(s, st, &norm)) return PROA_OK;
    st->scale = proa_malloc((size_t)st->K * sizeof *st->scale);
    if (awq) choose_awq(s, i, st->scale);
    else choose_smoothquant(s, i, st->scale);
    divide_norm(s, &norm, st->scale);
    for (int64_t k = 0; k < st->K; k++) {
        st->most[k] /= fabsf(st->scale[k]);
        for (int64_t l = 0; l < st->K; l++) st->hessian[k * st->K + l] /= st->scale[k] * st->scale[l];
    }
    return PROA_OK;
}
