/* SPDX-License-Identifier: Apache-2.0
 * dense.c - reads a dense layer of sentence-transformers, and computes it for one vector. */
#include "model/heads/dense.h"

#include "base/limits.h"
#include "weights/weights.h"
#include <math.h>

/* "torch.nn.modules.activation.Tanh". */
static proa_status read_act(proa_dense *d, const proa_json *config, proa_err *err)
{
    static const struct {
        const char *ending;
        proa_dense_act act;
    } acts[] = {{".Identity", PROA_DENSE_PLAIN}, {".Tanh", PROA_DENSE_TANH}, {".ReLU", PROA_DENSE_RELU}};
    proa_str name = {".Tanh", 5};
    PROA_TRY(proa_json_get_str(&name, config, "activation_function", err));
    for (size_t i = 0; i < PROA_COUNT(acts); i++)
        if (proa_str_ends(name, proa_str_c(acts[i].ending))) return d->act = acts[i].act, PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "'activation_function' '%.*s' is not supported", (int)name.len, name.ptr);
}

/* cols 0: a vector. */
static proa_status read_floats(float **out, const proa_weights *w, const char *name, int64_t rows,
                               int64_t cols, proa_arena *arena, proa_err *err)
{
    const proa_weights_tensor *t = proa_weights_find(w, name);
    int32_t rank = cols > 0 ? 2 : 1;
    if (!t) return PROA_FAIL(err, INVALID, "tensor '%s' is missing", name);
    proa_tensor_source source = t->source;
    proa_view *v = &source.view;
    if (v->rank != rank || v->shape[0] != rows || (cols > 0 && v->shape[1] != cols))
        return PROA_FAIL(err, INVALID, "tensor '%s' has another shape than its configuration says", name);
    if (!proa_tensor_source_is_float(&source))
        return PROA_FAIL(err, UNSUPPORTED, "tensor '%s' is %s", name, proa_dtype_name(v->dtype));
    if (cols == 0) v->rank = 2, v->shape[1] = 1, v->stride[1] = 1, cols = 1;
    *out = PROA_ARENA_NEW(arena, float, rows *cols);
    for (int64_t i = 0; i < rows; i++) proa_tensor_source_read(&source, i, 0, cols, *out + i * cols);
    return PROA_OK;
}

static proa_status read_weights(proa_dense *d, const char *folder, bool biased, proa_arena *arena, proa_err *err)
{
    proa_weights *w = NULL;
    PROA_TRY(proa_weights_open(&w, folder, err));
    proa_status status = read_floats(&d->weight, w, "linear.weight", d->outputs, d->inputs, arena, err);
    if (status == PROA_OK && biased)
        status = read_floats(&d->bias, w, "linear.bias", d->outputs, 0, arena, err);
    proa_weights_close(w);
    return status;
}

proa_status proa_dense_open(proa_dense *out, const char *folder, const proa_json *config, proa_arena *arena,
                            proa_err *err)
{
    bool biased = true;
    *out = (proa_dense){0};
    PROA_TRY(proa_json_get_int(&out->inputs, config, "in_features", 1, PROA_HIDDEN_MAX, err));
    PROA_TRY(proa_json_get_int(&out->outputs, config, "out_features", 1, PROA_HIDDEN_MAX, err));
    if (out->inputs == 0 || out->outputs == 0)
        return PROA_FAIL(err, INVALID, "'in_features' or 'out_features' is missing");
    if (out->inputs * out->outputs > PROA_DENSE_WEIGHTS_MAX)
        return PROA_FAIL(err, LIMIT, "a dense layer of %lld by %lld has more than %d weights",
                         (long long)out->outputs, (long long)out->inputs, PROA_DENSE_WEIGHTS_MAX);
    PROA_TRY(proa_json_get_bool(&biased, config, "bias", err));
    PROA_TRY(read_act(out, config, err));
    return read_weights(out, folder, biased, arena, err);
}

void proa_dense_apply(const proa_dense *d, float *y, const float *x)
{
    for (int64_t i = 0; i < d->outputs; i++) {
        double sum = d->bias ? (double)d->bias[i] : 0;
        for (int64_t k = 0; k < d->inputs; k++) sum += (double)d->weight[i * d->inputs + k] * (double)x[k];
        if (d->act == PROA_DENSE_TANH) sum = tanh(sum);
        if (d->act == PROA_DENSE_RELU && sum < 0) sum = 0;
        y[i] = (float)sum;
    }
}
