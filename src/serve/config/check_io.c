/* SPDX-License-Identifier: Apache-2.0
 * check_io.c - checks inputs, outputs, batch inputs and batch outputs. */
#include "base/limits.h"
#include "proto/message.h"
#include "serve/config/check.h"
#include <string.h>

/* An input or an output, as far as the same rules hold. */
typedef struct tensor_rule {
    const char *kind; /* "input" */
    const char *name;
    Inference__DataType type;
    const int64_t *dims;
    size_t dims_count;
    const Inference__ModelTensorReshape *reshape;
    bool shape_tensor, non_linear;
    const Inference__ModelConfig *config;
    proa_err *err;
} tensor_rule;

#define TENSOR_FAIL(t, text)                                                                                 \
    PROA_FAIL((t)->err, INVALID, "model %s '%s' " text " for %s", (t)->kind, (t)->name, (t)->config->name)

static bool dims_fit(const int64_t *dims, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (dims[i] < 1 && dims[i] != -1) return false;
    return true;
}

/* Elements of a shape: 0 if it is empty, -1 if it has a variable dimension (later dimensions do not count). */
static proa_status count_elements(const tensor_rule *t, const char *what, const int64_t *dims, size_t count,
                                  int64_t *elements)
{
    *elements = count > 0;
    for (size_t i = 0; i < count; i++) {
        if (dims[i] == -1) {
            *elements = -1;
            return PROA_OK;
        }
        if (__builtin_mul_overflow(*elements, dims[i], elements))
            return PROA_FAIL(t->err, INVALID,
                             "element count for tensor '%s %s' exceeds maximum size of %lld for %s", t->name,
                             what, (long long)INT64_MAX, t->config->name);
    }
    return PROA_OK;
}

/* Elements between the variable dimensions: how many there are, and the product of each stretch (saturated). */
static size_t count_stretches(const int64_t *dims, size_t count, int64_t *products)
{
    size_t n = 0;
    products[0] = 1;
    for (size_t i = 0; i < count; i++) {
        if (dims[i] == -1) products[++n] = 1;
        else if (__builtin_mul_overflow(products[n], dims[i], &products[n])) products[n] = INT64_MAX;
    }
    return n + 1;
}

static proa_status check_reshape(const tensor_rule *t)
{
    int64_t elements, reshaped, of_dims[PROA_SERVE_RANK_MAX + 1], of_reshape[PROA_SERVE_RANK_MAX + 1];
    const int64_t *shape = t->reshape->shape;
    size_t count = t->reshape->n_shape;
    if (!dims_fit(shape, count))
        return TENSOR_FAIL(
            t, "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension");
    PROA_TRY(count_elements(t, "dims", t->dims, t->dims_count, &elements));
    PROA_TRY(count_elements(t, "reshape", shape, count, &reshaped));
    if (elements != reshaped && (reshaped != 0 || elements != 1)) /* an empty reshape stands for one element */
        return TENSOR_FAIL(t, "has different size for dims and reshape");
    if (elements != -1) return PROA_OK;
    size_t n = count_stretches(t->dims, t->dims_count, of_dims);
    if (n != count_stretches(shape, count, of_reshape))
        return TENSOR_FAIL(t, "has different number of variable-size dimensions for dims and reshape");
    if (memcmp(of_dims, of_reshape, n * sizeof of_dims[0]) != 0)
        return TENSOR_FAIL(t, "has different size for dims and reshape");
    return PROA_OK;
}

static proa_status check_shape(const tensor_rule *t)
{
    size_t most = PROA_SERVE_RANK_MAX - (t->config->max_batch_size > 0);
    if (!t->name[0])
        return PROA_FAIL(t->err, INVALID, "model %s must specify 'name' for %s", t->kind, t->config->name);
    if (t->type == INFERENCE__DATA_TYPE__TYPE_INVALID) return TENSOR_FAIL(t, "must specify 'data_type'");
    if (!proa_enum_name(&inference__data_type__descriptor, (int)t->type))
        return TENSOR_FAIL(t, "has an unknown 'data_type'");
    if (t->dims_count == 0) return TENSOR_FAIL(t, "must specify 'dims'");
    if (t->dims_count > most || (t->reshape && t->reshape->n_shape > most))
        return TENSOR_FAIL(t, "has more dimensions than are supported");
    if (t->reshape && t->reshape->n_shape == 0 && t->config->max_batch_size == 0)
        return TENSOR_FAIL(
            t, "cannot have empty reshape for non-batching model as scalar tensors are not supported");
    if (!dims_fit(t->dims, t->dims_count))
        return TENSOR_FAIL(t, "dimension must be integer >= 1, or -1 to indicate a variable-size dimension");
    return t->reshape ? check_reshape(t) : PROA_OK;
}

/* What only TensorRT has. */
static proa_status check_tensorrt(const tensor_rule *t)
{
    bool tensorrt = strcmp(t->config->platform, "tensorrt_plan") == 0;
    if (t->shape_tensor && !tensorrt)
        return PROA_FAIL(t->err, INVALID, "shape tensors are only supported for TensorRT platform for %s",
                         t->config->name);
    if (!t->non_linear) return PROA_OK;
    if (!tensorrt)
        return PROA_FAIL(t->err, INVALID,
                         "Non-linear IO format is only supported for the TensorRT platform for %s",
                         t->config->name);
    if (t->dims_count != 3)
        return PROA_FAIL(t->err, INVALID, "Non-linear IO format %s requires 3 dims for %s", t->kind,
                         t->config->name);
    return PROA_OK;
}

static proa_status check_input(const Inference__ModelConfig *c, const Inference__ModelInput *in, proa_err *err)
{
    tensor_rule t = {"input",    in->name,    in->data_type,       in->dims,
                     in->n_dims, in->reshape, in->is_shape_tensor, in->is_non_linear_format_io,
                     c,          err};
    PROA_TRY(check_shape(&t));
    bool image = in->format == INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NHWC ||
                 in->format == INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NCHW;
    if (image && in->n_dims != 3)
        return PROA_FAIL(err, INVALID, "model input NHWC/NCHW require 3 dims for %s", c->name);
    return check_tensorrt(&t);
}

static proa_status check_output(const Inference__ModelConfig *c, const Inference__ModelOutput *out, proa_err *err)
{
    tensor_rule t = {"output",    out->name,    out->data_type,       out->dims,
                     out->n_dims, out->reshape, out->is_shape_tensor, out->is_non_linear_format_io,
                     c,           err};
    PROA_TRY(check_shape(&t));
    return check_tensorrt(&t);
}

static bool has_input(const Inference__ModelConfig *c, const char *name)
{
    for (size_t i = 0; i < c->n_input; i++)
        if (strcmp(c->input[i]->name, name) == 0) return true;
    return false;
}

static proa_status check_sources(const Inference__ModelConfig *c, char *const *names, size_t count, proa_err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!has_input(c, names[i]))
            return PROA_FAIL(err, INVALID, "unknown source input name '%s' for %s", names[i], c->name);
    return PROA_OK;
}

static proa_status check_batch_input(const Inference__ModelConfig *c, const Inference__BatchInput *b,
                                     proa_err *err)
{
    const char *kind = proa_enum_name(&inference__batch_input__kind__descriptor, (int)b->kind);
    if (!kind) return PROA_FAIL(err, INVALID, "unknown batch input kind '%d' for %s", (int)b->kind, c->name);
    if (b->n_source_input != 1)
        return PROA_FAIL(err, INVALID, "batch input kind '%s' expects 1 source input, got %zu for %s", kind,
                         b->n_source_input, c->name);
    if (b->data_type != INFERENCE__DATA_TYPE__TYPE_INT32 && b->data_type != INFERENCE__DATA_TYPE__TYPE_FP32)
        return PROA_FAIL(err, INVALID, "batch input data type must be TYPE_INT32 or TYPE_FP32 for %s", c->name);
    return check_sources(c, b->source_input, b->n_source_input, err);
}

static proa_status check_batch_output(const Inference__ModelConfig *c, const Inference__BatchOutput *b,
                                      proa_err *err)
{
    const char *kind = proa_enum_name(&inference__batch_output__kind__descriptor, (int)b->kind);
    if (!kind) return PROA_FAIL(err, INVALID, "unknown batch output kind '%d' for %s", (int)b->kind, c->name);
    if (b->n_source_input != 1)
        return PROA_FAIL(err, INVALID, "batch output kind '%s' expects 1 source input, got %zu for %s", kind,
                         b->n_source_input, c->name);
    PROA_TRY(check_sources(c, b->source_input, b->n_source_input, err));
    for (size_t i = 0; i < b->n_target_name; i++) {
        if (!proa_config_output(c, b->target_name[i]))
            return PROA_FAIL(err, INVALID, "unknown target output name '%s' for %s", b->target_name[i], c->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(b->target_name[i], b->target_name[j]) == 0)
                return PROA_FAIL(err, INVALID, "target output name '%s' can only be specified once for %s",
                                 b->target_name[i], c->name);
    }
    return PROA_OK;
}

proa_status proa_config_check_io(const Inference__ModelConfig *c, proa_err *err)
{
    /* the checks by name look through these lists for each name */
    if (c->n_input > PROA_TENSORS_PER_REQUEST_MAX || c->n_output > PROA_TENSORS_PER_REQUEST_MAX ||
        c->n_batch_input > PROA_TENSORS_PER_REQUEST_MAX || c->n_batch_output > PROA_TENSORS_PER_REQUEST_MAX)
        return PROA_FAIL(err, LIMIT, "%s has more than %d inputs or outputs", c->name,
                         PROA_TENSORS_PER_REQUEST_MAX);
    for (size_t i = 0; i < c->n_input; i++) PROA_TRY(check_input(c, c->input[i], err));
    for (size_t i = 0; i < c->n_output; i++) PROA_TRY(check_output(c, c->output[i], err));
    for (size_t i = 0; i < c->n_batch_input; i++) PROA_TRY(check_batch_input(c, c->batch_input[i], err));
    for (size_t i = 0; i < c->n_batch_output; i++) PROA_TRY(check_batch_output(c, c->batch_output[i], err));
    return PROA_OK;
}
