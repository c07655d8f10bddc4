/* SPDX-License-Identifier: Apache-2.0
 * signature.c - the inputs and outputs that a model declares: put into a configuration, compared with one. Rules are
 * those of Triton's onnxruntime backend; where it is stricter without a reason, a note says so. */
#include "backends/common.h"
#include "backends/onnx/onnx.h"
#include "base/log.h"
#include "proto/message.h"
#include "serve/config/config.h"
#include <string.h>

#define BATCH_USUAL 4 /* Triton's default-max-batch-size */

static proa_status fail_unfit(const Inference__ModelConfig *c, const char *kind, const proa_onnx_tensor *t,
                              proa_err *err)
{
    return PROA_FAIL(err, UNSUPPORTED,
                     "unable to load model '%s', %s '%s' of the model %s, which requests of "
                     "inference cannot carry",
                     c->name, kind, t->name, t->unfit);
}

/* ---- completing ---- */

static bool all_open_first(const proa_onnx_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++)
        if (tensors[i].rank == 0 || tensors[i].dims[0] != -1) return false;
    return true;
}

static proa_status complete_batch(Inference__ModelConfig *c, const proa_onnx_io *io, proa_arena *arena,
                                  proa_err *err)
{
    int64_t usual = BATCH_USUAL;
    if (!all_open_first(io->inputs, io->required) || !all_open_first(io->outputs, io->outputs_count)) {
        if (c->max_batch_size == 0) return PROA_OK;
        return PROA_FAIL(err, INVALID,
                         "autofill failed for model '%s': model does not support batching while non-zero "
                         "max_batch_size is specified",
                         c->name);
    }
    PROA_TRY(proa_onnx_setting_number(&usual, proa_completing_server(), "default-max-batch-size", INT32_MAX, err));
    if (c->max_batch_size == 0 && usual > 0) {
        c->max_batch_size = (int32_t)usual;
        PROA_LOG(INFO, "model '%s': max_batch_size is %d, since all its tensors have an open first dimension",
                 c->name, c->max_batch_size);
    }
    if (c->max_batch_size > 1 && c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET)
        proa_message_add(&c->base, "dynamic_batching", arena);
    return PROA_OK;
}

/* Dimensions without the batch's. One that is 0 in the model is open: a configuration cannot have it. */
static int64_t *complete_dims(size_t *count, Inference__ModelTensorReshape **reshape,
                              const proa_onnx_tensor *t, bool batched, proa_arena *arena)
{
    int32_t skip = batched && t->rank > 0;
    int64_t *dims = PROA_ARENA_NEW(arena, int64_t, t->rank + 1);
    *count = (size_t)(t->rank - skip);
    for (size_t i = 0; i < *count; i++)
        dims[i] = t->dims[(size_t)skip + i] == 0 ? -1 : t->dims[(size_t)skip + i];
    if (*count) return dims;
    *count = 1, dims[0] = 1;
    if (batched) {
        *reshape = PROA_ARENA_NEW(arena, Inference__ModelTensorReshape, 1);
        inference__model_tensor_reshape__init(*reshape);
    }
    return dims;
}

static proa_status complete_inputs(Inference__ModelConfig *c, const proa_onnx_io *io, proa_arena *arena,
                                   proa_err *err)
{
    for (int i = 0; i < io->required; i++) {
        const proa_onnx_tensor *t = &io->inputs[i];
        if (t->unfit) return fail_unfit(c, "input", t, err);
        Inference__ModelInput *in = (Inference__ModelInput *)proa_message_add(&c->base, "input", arena);
        in->name = proa_arena_strdup(arena, proa_str_c(t->name));
        in->data_type = (Inference__DataType)t->type;
        in->dims = complete_dims(&in->n_dims, &in->reshape, t, c->max_batch_size > 0, arena);
    }
    return PROA_OK;
}

static proa_status complete_outputs(Inference__ModelConfig *c, const proa_onnx_io *io, proa_arena *arena,
                                    proa_err *err)
{
    for (int i = 0; i < io->outputs_count; i++) {
        const proa_onnx_tensor *t = &io->outputs[i];
        if (t->unfit) return fail_unfit(c, "output", t, err);
        Inference__ModelOutput *out = (Inference__ModelOutput *)proa_message_add(&c->base, "output", arena);
        out->name = proa_arena_strdup(arena, proa_str_c(t->name));
        out->data_type = (Inference__DataType)t->type;
        out->dims = complete_dims(&out->n_dims, &out->reshape, t, c->max_batch_size > 0, arena);
    }
    return PROA_OK;
}

proa_status proa_onnx_complete(Inference__ModelConfig *config, const char *version_path, proa_arena *arena,
                               proa_err *err)
{
    const proa_ort *ort;
    proa_onnx_io io;
    if (config->n_input + config->n_batch_input > 0 && config->n_output > 0) return PROA_OK;
    PROA_TRY(proa_ort_open(&ort, proa_completing_server(), err));
    PROA_TRY(proa_onnx_look(&io, ort, config, version_path, arena, err));
    PROA_TRY(complete_batch(config, &io, arena, err));
    if (!config->n_input) PROA_TRY(complete_inputs(config, &io, arena, err));
    return config->n_output ? PROA_OK : complete_outputs(config, &io, arena, err);
}

/* ---- checking ---- */

/* One tensor of the configuration. */
typedef struct declared {
    const char *kind, *name; /* "input" */
    proa_type type;
    const int64_t *dims; /* as the model gets it: of reshape if there is one */
    size_t rank;
    bool output;
} declared;

#define REFUSE(c, err, fmt, ...)                                                                             \
    PROA_FAIL(err, INVALID, "unable to load model '%s', " fmt, (c)->name, __VA_ARGS__)

/* An input's open dimension must be open in the model. For outputs either side may leave one open: that says less, but
 * nothing wrong. */
static bool dimension_fits(int64_t declared_dim, int64_t model_dim, bool output)
{
    if (declared_dim == model_dim || model_dim == -1) return true;
    return declared_dim == -1 && (output || model_dim == 0);
}

static proa_status check_dims(const Inference__ModelConfig *c, const declared *d, const proa_onnx_tensor *t,
                              proa_err *err)
{
    char model[PROA_DIMS_TEXT], config[PROA_DIMS_TEXT];
    size_t skip = c->max_batch_size > 0;
    if (t->rank == 0 && !skip) { /* a scalar, or of open rank */
        for (size_t i = 0; i < d->rank; i++)
            if (d->dims[i] != 1 && d->dims[i] != -1)
                return REFUSE(c, err, "%s '%s' is a scalar in the model, its dims must be [1], got %s",
                              d->kind, d->name, proa_dims_text(config, d->dims, d->rank));
        return PROA_OK;
    }
    if (skip && (t->rank == 0 || t->dims[0] != -1))
        return REFUSE(
            c, err, "%s '%s' has the shape %s in the model: max_batch_size %d needs an open first dimension",
            d->kind, d->name, proa_dims_text(model, t->dims, (size_t)t->rank), c->max_batch_size);
    bool fits = d->rank + skip == (size_t)t->rank;
    for (size_t i = 0; fits && i < d->rank; i++)
        fits = dimension_fits(d->dims[i], t->dims[i + skip], d->output);
    if (fits) return PROA_OK;
    return REFUSE(c, err, "%s '%s' has dims %s in the configuration%s, the model has the shape %s", d->kind,
                  d->name, proa_dims_text(config, d->dims, d->rank),
                  skip ? " (after the batch dimension)" : "", proa_dims_text(model, t->dims, (size_t)t->rank));
}

static proa_status check_type(const Inference__ModelConfig *c, const declared *d, const proa_onnx_tensor *t,
                              proa_err *err)
{
    if (t->unfit) return fail_unfit(c, d->kind, t, err);
    if (t->type == d->type) return PROA_OK;
    return REFUSE(c, err, "configuration expects datatype %s for %s '%s', model provides %s",
                  proa_type_config_name(d->type), d->kind, d->name, proa_type_config_name(t->type));
}

static proa_status fail_unknown(const Inference__ModelConfig *c, const declared *d, proa_onnx_tensor *tensors,
                                int count, proa_err *err)
{
    char names[256] = "";
    size_t at = 0;
    for (int i = 0; i < count && at < sizeof names - 1; i++) {
        int len = snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", tensors[i].name);
        at += len > 0 ? (size_t)len : 0;
    }
    return REFUSE(c, err, "the model has no %s '%s', its %ss are: %s", d->kind, d->name, d->kind, names);
}

static proa_status check_ragged(const Inference__ModelConfig *c, const proa_onnx_tensor *t, proa_err *err)
{
    char model[PROA_DIMS_TEXT];
    if (t->rank == 1 && t->dims[0] == -1) return PROA_OK;
    return REFUSE(c, err, "ragged input '%s' must have the shape [-1] in the model, which has %s", t->name,
                  proa_dims_text(model, t->dims, (size_t)t->rank));
}

static proa_status check_input(const Inference__ModelConfig *c, const Inference__ModelInput *in,
                               const proa_onnx_io *io, proa_err *err)
{
    const declared d = {"input",
                        in->name,
                        (proa_type)in->data_type,
                        in->reshape ? in->reshape->shape : in->dims,
                        in->reshape ? in->reshape->n_shape : in->n_dims,
                        false};
    const proa_onnx_tensor *t = proa_onnx_find(io->inputs, io->inputs_count, in->name);
    if (!t) return fail_unknown(c, &d, io->inputs, io->inputs_count, err);
    PROA_TRY(check_type(c, &d, t, err));
    if (in->optional && !t->initializer)
        return REFUSE(c, err, "optional input '%s' must have a value of its own in the model (an initializer)",
                      in->name);
    if (t->initializer && c->max_batch_size > 0)
        return REFUSE(c, err, "input '%s' with a value of its own in the model is not supported with batching",
                      in->name);
    return in->allow_ragged_batch ? check_ragged(c, t, err) : check_dims(c, &d, t, err);
}

static bool is_batch_output(const Inference__ModelConfig *c, const char *name)
{
    for (size_t i = 0; i < c->n_batch_output; i++)
        for (size_t j = 0; j < c->batch_output[i]->n_target_name; j++)
            if (strcmp(c->batch_output[i]->target_name[j], name) == 0) return true;
    return false;
}

static proa_status check_output(const Inference__ModelConfig *c, const Inference__ModelOutput *out,
                                const proa_onnx_io *io, proa_err *err)
{
    const declared d = {"output",
                        out->name,
                        (proa_type)out->data_type,
                        out->reshape ? out->reshape->shape : out->dims,
                        out->reshape ? out->reshape->n_shape : out->n_dims,
                        true};
    const proa_onnx_tensor *t = proa_onnx_find(io->outputs, io->outputs_count, out->name);
    if (!t) return fail_unknown(c, &d, io->outputs, io->outputs_count, err);
    PROA_TRY(check_type(c, &d, t, err));
    return is_batch_output(c, out->name) ? PROA_OK : check_dims(c, &d, t, err);
}

/* Is this input of the model fed by the server: a batch input, a sequence's control or state? */
static bool is_fed(const Inference__ModelConfig *c, const char *name)
{
    const Inference__ModelSequenceBatching *s = proa_config_sequence(c);
    for (size_t i = 0; i < c->n_batch_input; i++)
        for (size_t j = 0; j < c->batch_input[i]->n_target_name; j++)
            if (strcmp(c->batch_input[i]->target_name[j], name) == 0) return true;
    for (size_t i = 0; s && i < s->n_control_input; i++)
        if (strcmp(s->control_input[i]->name, name) == 0) return true;
    for (size_t i = 0; s && i < s->n_state; i++)
        if (strcmp(s->state[i]->input_name, name) == 0) return true;
    return false;
}

static proa_type control_type(const Inference__ModelSequenceBatching__Control *k)
{
    if (k->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID)
        return (proa_type)k->data_type;
    if (k->n_int32_false_true) return PROA_TYPE_INT32;
    return k->n_fp32_false_true ? PROA_TYPE_FP32 : PROA_TYPE_BOOL;
}

static proa_status check_control(const Inference__ModelConfig *c,
                                 const Inference__ModelSequenceBatching__ControlInput *control,
                                 const proa_onnx_io *io, proa_err *err)
{
    const proa_onnx_tensor *t = proa_onnx_find(io->inputs, io->inputs_count, control->name);
    if (!t)
        return REFUSE(c, err, "the model has no input '%s', which is a sequence control in the configuration",
                      control->name);
    for (size_t i = 0; i < control->n_control; i++) {
        proa_type type = control_type(control->control[i]);
        if (t->type != type)
            return REFUSE(c, err, "sequence control '%s' has the type %s in the configuration, %s in the model",
                          control->name, proa_type_config_name(type), proa_type_config_name(t->type));
    }
    return PROA_OK;
}

/* Controls and states of sequences are inputs and outputs of the model too. */
static proa_status check_sequence(const Inference__ModelConfig *c, const proa_onnx_io *io, proa_err *err)
{
    const Inference__ModelSequenceBatching *s = proa_config_sequence(c);
    for (size_t i = 0; s && i < s->n_control_input; i++)
        PROA_TRY(check_control(c, s->control_input[i], io, err));
    for (size_t i = 0; s && i < s->n_state; i++) {
        const Inference__ModelSequenceBatching__State *state = s->state[i];
        const declared in = {"input", state->input_name, (proa_type)state->data_type, NULL, 0, false},
                       out = {"output", state->output_name, (proa_type)state->data_type, NULL, 0, true};
        const proa_onnx_tensor *from = proa_onnx_find(io->inputs, io->inputs_count, state->input_name),
                               *to = proa_onnx_find(io->outputs, io->outputs_count, state->output_name);
        if (!from) return fail_unknown(c, &in, io->inputs, io->inputs_count, err);
        if (!to) return fail_unknown(c, &out, io->outputs, io->outputs_count, err);
        PROA_TRY(check_type(c, &in, from, err));
        PROA_TRY(check_type(c, &out, to, err));
    }
    return PROA_OK;
}

proa_status proa_onnx_check(const Inference__ModelConfig *config, const proa_onnx_io *io, proa_err *err)
{
    for (size_t i = 0; i < config->n_input; i++) PROA_TRY(check_input(config, config->input[i], io, err));
    PROA_TRY(check_sequence(config, io, err));
    for (int i = 0; i < io->required; i++)
        if (!proa_config_input(config, io->inputs[i].name) && !is_fed(config, io->inputs[i].name))
            return PROA_FAIL(err, INVALID,
                             "unable to load model '%s', input '%s' of the model is not in the configuration",
                             config->name, io->inputs[i].name);
    for (size_t i = 0; i < config->n_output; i++) PROA_TRY(check_output(config, config->output[i], io, err));
    return PROA_OK;
}
