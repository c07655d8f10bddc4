/* SPDX-License-Identifier: Apache-2.0
 * check.c - checks a request against the configuration of its model, with Triton's error texts. */
#include "base/checked.h"
#include "base/limits.h"
#include "serve/models/model.h"
#include <string.h>

/* The texts and their order are Triton's (InferenceRequest::Normalize), but for those marked "ours". */

#define BATCH_NOTE                                                                                           \
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "          \
    "prepended "                                                                                             \
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims " \
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "         \
    "max_batch_size."

#define WORDS ((PROA_TENSORS_PER_REQUEST_MAX + 63) / 64)

static const char *id_of(const proa_infer *r)
{
    return *r->id ? r->id : "<id_unknown>";
}

/* A failure with Triton's prefix; fmt is a literal. */
#define REFUSE(r, err, fmt, ...) PROA_FAIL(err, INVALID, "[request id: %s] " fmt, id_of(r), __VA_ARGS__)

static proa_status check_outputs(const proa_served_model *model, const proa_infer *r, proa_err *err)
{
    for (int32_t i = 0; i < r->outputs_count; i++) {
        for (int32_t j = 0; j < i; j++)
            if (strcmp(r->outputs[i], r->outputs[j]) == 0)
                return REFUSE(r, err, "output '%s' already exists in request", r->outputs[i]);
        if (!proa_served_model_output(model, r->outputs[i]))
            return PROA_FAIL(err, INVALID, "unexpected inference output '%s' for model '%s'", r->outputs[i],
                             model->name);
    }
    return PROA_OK;
}

/* ['a','b']; none: as Triton prints it, whose last character is dropped before the bracket closes */
static void names_print(proa_buf *out, const char *const *names, int count, const char *none)
{
    if (count == 0) proa_buf_printf(out, "%s", none);
    for (int i = 0; i < count; i++) proa_buf_printf(out, "%s'%s'", i ? "," : "[", names[i]);
    if (count) proa_buf_char(out, ']');
}

static PROA_COLD proa_status wrong_count(const proa_served_model *model, const proa_infer *r, proa_err *err)
{
    const char *given[PROA_TENSORS_PER_REQUEST_MAX], *missing[PROA_TENSORS_PER_REQUEST_MAX];
    int missing_count = 0;
    proa_buf text;
    for (int32_t i = 0; i < r->inputs_count; i++) given[i] = r->inputs[i].name;
    for (int i = 0; i < model->inputs_count; i++)
        if (!model->inputs[i].optional && !proa_infer_input(r, model->inputs[i].name))
            missing[missing_count++] = model->inputs[i].name;
    proa_buf_init(&text, sizeof err->text);
    if (model->required_count == model->inputs_count)
        proa_buf_printf(&text, "expected %d inputs but", model->inputs_count);
    else
        proa_buf_printf(&text, "expected number of inputs between %d and %d but", model->required_count,
                        model->inputs_count);
    proa_buf_printf(&text, " got %d inputs for model '%s'. Got input(s) ", r->inputs_count, model->name);
    names_print(&text, given, r->inputs_count, "[]");
    proa_buf_printf(&text, ", but missing required input(s) ");
    names_print(&text, missing, missing_count, "]");
    proa_buf_printf(&text, ". Please provide all required input(s).");
    proa_status status = REFUSE(r, err, "%s", text.ptr ? text.ptr : "");
    proa_buf_release(&text);
    return status;
}

/* Finds the configuration of each input. Inputs mostly have the same order, so each search begins after the last
 * hit. */
static proa_status match_inputs(const proa_served_model *model, const proa_infer *r, const proa_io **rows,
                                proa_err *err)
{
    uint64_t seen[WORDS] = {0};
    int at = 0, required = 0, n = model->inputs_count;
    for (int32_t i = 0; i < r->inputs_count; i++) {
        int tried = 0;
        while (tried < n && strcmp(model->inputs[at].name, r->inputs[i].name) != 0) {
            at = at + 1 < n ? at + 1 : 0;
            tried++;
        }
        if (tried == n)
            return PROA_FAIL(err, INVALID, "unexpected inference input '%s' for model '%s'",
                             r->inputs[i].name, model->name);
        if (seen[at / 64] >> (at % 64) & 1)
            return REFUSE(r, err, "input '%s' already exists in request", r->inputs[i].name);
        seen[at / 64] |= (uint64_t)1 << (at % 64);
        rows[i] = &model->inputs[at];
        required += !rows[i]->optional;
        at = at + 1 < n ? at + 1 : 0;
    }
    return required < model->required_count ? wrong_count(model, r, err) : PROA_OK; /* ours: Triton lets it pass */
}

static proa_status check_batch(const proa_served_model *model, proa_infer *r, proa_err *err)
{
    int64_t batch = 0;
    r->batch = 1;
    if (model->batch_max == 0) return PROA_OK;
    for (int32_t i = 0; i < r->inputs_count; i++) {
        const proa_tensor *t = &r->inputs[i];
        if (t->rank == 0)
            return REFUSE(r, err, "input '%s' has no shape but model requires batch dimension for '%s'",
                          t->name, model->name);
        if (batch == 0) batch = t->shape[0];
        else if (batch != t->shape[0])
            return REFUSE(r, err, "input '%s' batch size does not match other inputs for '%s'", t->name,
                          model->name);
    }
    if (batch > model->batch_max || batch < 0)
        return REFUSE(r, err, "inference request batch-size must be <= %lld for '%s'",
                      (long long)model->batch_max, model->name);
    r->batch = batch ? batch : 1;
    return PROA_OK;
}

static const char *shape_text(char *text, size_t size, const int64_t *shape, int32_t rank)
{
    size_t at = 0;
    text[at++] = '[';
    for (int32_t i = 0; i < rank && at < size - 24; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? "," : "", (long long)shape[i]);
    snprintf(text + at, size - at, "]");
    return text;
}

static PROA_COLD proa_status wrong_shape(const proa_served_model *model, const proa_infer *r,
                                         const proa_tensor *t, const proa_io *io, bool unspecified, proa_err *err)
{
    char got[360], want[360];
    shape_text(got, sizeof got, t->shape, t->rank);
    if (unspecified)
        return REFUSE(r, err, "All input dimensions should be specified for input '%s' for model '%s', got %s",
                      t->name, model->name, got);
    return REFUSE(r, err, "unexpected shape for input '%s' for model '%s'. Expected %s, got %s. %s", t->name,
                  model->name, shape_text(want, sizeof want, io->shape, io->rank), got,
                  model->batch_max > 0 ? BATCH_NOTE : "");
}

static proa_status check_shape(const proa_served_model *model, const proa_infer *r, const proa_tensor *t,
                               const proa_io *io, proa_err *err)
{
    if (t->rank != io->rank) return wrong_shape(model, r, t, io, false, err);
    for (int32_t i = model->batch_max > 0; i < t->rank; i++) {
        if (t->shape[i] == -1) return wrong_shape(model, r, t, io, true, err);
        if (t->shape[i] != io->shape[i] && io->shape[i] != -1)
            return wrong_shape(model, r, t, io, false, err);
    }
    return PROA_OK;
}

static proa_status check_strings(const proa_served_model *model, const proa_infer *r, const proa_tensor *t,
                                 int64_t elements, proa_err *err)
{
    size_t at = 0;
    proa_str s;
    int64_t found = 0;
    while (proa_tensor_next_string(t, &at, &s))
        if (++found > elements)
            return REFUSE(
                r, err,
                "unexpected number of string elements %lld for inference input '%s' for model '%s', "
                "expecting %lld",
                (long long)found, t->name, model->name, (long long)elements);
    size_t left = t->bytes - at;
    if (left > 0 && left < sizeof(uint32_t))
        return REFUSE(
            r, err,
            "incomplete string length indicator for inference input '%s' for model '%s', expecting 4 "
            "bytes but only %zu bytes available. Please make sure the string length indicator is in one "
            "buffer.",
            t->name, model->name, left);
    if (left > 0) /* stricter than Triton, which accepts a truncated last element and leaves it to the backends */
        return REFUSE(r, err, "incomplete string for inference input '%s' for model '%s', got %zu bytes",
                      t->name, model->name, left - sizeof(uint32_t));
    if (found != elements)
        return REFUSE(r, err, "expected %lld string elements for inference input '%s' for model '%s', got %lld",
                      (long long)elements, t->name, model->name, (long long)found);
    return PROA_OK;
}

static PROA_COLD proa_status wrong_elements(const proa_tensor *t, proa_err *err)
{
    char shape[360];
    bool text = t->type == PROA_TYPE_BYTES;
    shape_text(shape, sizeof shape, t->shape, t->rank);
    for (int32_t i = 0; i < t->rank; i++)
        if (t->shape[i] < 0)
            return PROA_FAIL(err, INVALID, "tensor '%s' contains an invalid dimension %s%s", t->name,
                             text ? "in shape " : "", shape);
    return PROA_FAIL(err, INVALID, "%s for tensor '%s' exceeds maximum size of %lld",
                     text ? "element count" : "byte size", t->name, (long long)INT64_MAX);
}

/* A batch of zero has, as in Triton, the shape of one row without the batch dimension. */
static proa_status check_size(const proa_served_model *model, const proa_infer *r, const proa_tensor *t,
                              proa_err *err)
{
    int32_t skip = model->batch_max > 0 && t->shape[0] == 0;
    int64_t bytes, elements = proa_shape_elements(t->shape + skip, t->rank - skip);
    if (elements < 0) return wrong_elements(t, err);
    if (t->type == PROA_TYPE_BYTES) return check_strings(model, r, t, elements, err);
    if (!proa_mul(elements, proa_type_bytes(t->type), &bytes)) return wrong_elements(t, err);
    if ((uint64_t)bytes != t->bytes)
        return REFUSE(r, err, "input byte size mismatch for input '%s' for model '%s'. Expected %lld, got %zu",
                      t->name, model->name, (long long)bytes, t->bytes);
    return PROA_OK;
}

static proa_status check_input(const proa_served_model *model, const proa_infer *r, proa_tensor *t,
                               const proa_io *io, proa_err *err)
{
    if (t->type != io->type)
        return REFUSE(r, err, "inference input '%s' data-type is '%s', but model '%s' expects '%s'", t->name,
                      proa_type_name(t->type), model->name, proa_type_name(io->type));
    PROA_TRY(check_shape(model, r, t, io, err));
    if (io->reshaped)
        proa_tensor_reshape(t, io->shape, io->rank, io->inner, io->inner_rank, model->batch_max > 0);
    return check_size(model, r, t, err);
}

/* The control that carries the sequence's id, if the model has one. */
static const Inference__ModelSequenceBatching__Control *id_control(const Inference__ModelConfig *config,
                                                                   const char **name)
{
    const Inference__ModelSequenceBatching *s = config->sequence_batching;
    for (size_t i = 0; i < s->n_control_input; i++)
        for (size_t j = 0; j < s->control_input[i]->n_control; j++)
            if (s->control_input[i]->control[j]->kind ==
                INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID) {
                *name = s->control_input[i]->name;
                return s->control_input[i]->control[j];
            }
    return NULL;
}

static proa_status check_sequence_id(const proa_served_model *model, const proa_infer *r, proa_err *err)
{
    const char *name;
    const Inference__ModelSequenceBatching__Control *control = id_control(model->config, &name);
    if (!control) return PROA_OK;
    proa_type want = (proa_type)control->data_type;
    bool text = r->sequence_name && *r->sequence_name;
    if (text == (want == PROA_TYPE_BYTES)) return PROA_OK;
    return REFUSE(r, err, "sequence batching control '%s' data-type is '%s', but model '%s' expects '%s'",
                  name, text ? "BYTES" : "UINT64", model->name, proa_type_name(want));
}

/* Inputs on a device stay there if the model's backend takes such, or if it is an ensemble, whose steps decide. The
 * host reads the framing of strings and, for the keys of the response cache, all inputs. */
static proa_status inputs_to_host(const proa_served_model *model, proa_infer *r, proa_err *err)
{
    bool takes = (model->device_inputs || !model->backend) && !proa_served_model_uses_cache(model);
    for (int32_t i = 0; i < r->inputs_count; i++)
        if (!takes || r->inputs[i].type == PROA_TYPE_BYTES) PROA_TRY(proa_tensor_to_host(&r->inputs[i], err));
    return PROA_OK;
}

proa_status proa_infer_check(const proa_served_model *model, proa_infer *r, proa_err *err)
{
    const proa_io *few[16], **rows = few;
    PROA_TRY(inputs_to_host(model, r, err));
    if (r->outputs_count) PROA_TRY(check_outputs(model, r, err));
    if (r->inputs_count > model->inputs_count || r->inputs_count < model->required_count)
        return wrong_count(model, r, err);
    if (r->inputs_count > (int32_t)PROA_COUNT(few))
        rows = PROA_ARENA_NEW(&r->arena, const proa_io *, r->inputs_count);
    PROA_TRY(match_inputs(model, r, rows, err));
    PROA_TRY(check_batch(model, r, err));
    for (int32_t i = 0; i < r->inputs_count; i++)
        PROA_TRY(check_input(model, r, &r->inputs[i], rows[i], err));
    if (model->config &&
        model->config->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING)
        PROA_TRY(check_sequence_id(model, r, err));
    return PROA_OK;
}
