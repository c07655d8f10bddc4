/* SPDX-License-Identifier: Apache-2.0
 * batch_io.c - the batch_input tensors of a ragged batch, and batch outputs that are cut into the requests' own. */
#include "serve/sched/batch_io.h"

#include "base/checked.h"
#include <string.h>

/* The elements that a request brings of a source input; without its batch dimension where the model has one and the
 * whole is asked for an item. */
static int64_t elements_of(const proa_infer *r, const char *source)
{
    const proa_tensor *t = proa_infer_input(r, source);
    int64_t n = t ? proa_shape_elements(t->shape, t->rank) : 0;
    return n > 0 ? n : 0;
}

static void put_element(char *data, proa_type type, int64_t at, int64_t value)
{
    if (type == PROA_TYPE_FP32) {
        float f = (float)value;
        memcpy(data + at * 4, &f, 4);
    } else {
        int32_t i = (int32_t)value;
        memcpy(data + at * 4, &i, 4);
    }
}

static proa_tensor *add_tensor(const Inference__BatchInput *b, proa_infer *first, size_t target, int64_t d0,
                               int64_t d1)
{
    proa_tensor *t = proa_infer_add_input(first, proa_str_c(b->target_name[target]));
    if (!t) return NULL;
    t->type = (proa_type)b->data_type;
    t->rank = d1 < 0 ? 1 : 2;
    t->shape[0] = d0;
    t->shape[1] = d1;
    t->bytes = (size_t)(d0 * (d1 < 0 ? 1 : d1)) * 4;
    t->buffer = t->bytes ? proa_buffer_new(t->bytes) : NULL;
    t->data = t->buffer ? t->buffer->data : NULL;
    return t;
}

/* Counts of elements, one for each request; or their sums so far, with or without the zero before the first. */
static void add_counts(const Inference__BatchInput *b, size_t target, proa_infer *const *requests, int count)
{
    bool sum = b->kind != INFERENCE__BATCH_INPUT__KIND__BATCH_ELEMENT_COUNT;
    bool zero = b->kind == INFERENCE__BATCH_INPUT__KIND__BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO;
    proa_tensor *t = add_tensor(b, requests[0], target, count + zero, -1);
    if (!t) return;
    int64_t total = 0;
    if (zero) put_element(t->buffer->data, t->type, 0, 0);
    for (int i = 0; i < count; i++) {
        int64_t n = elements_of(requests[i], b->source_input[0]);
        total += n;
        put_element(t->buffer->data, t->type, i + zero, sum ? total : n);
    }
}

/* Its shape is the largest count; its contents do not matter. */
static void add_max_as_shape(const Inference__BatchInput *b, size_t target, proa_infer *const *requests, int count)
{
    int64_t max = 0;
    for (int i = 0; i < count; i++) {
        int64_t n = elements_of(requests[i], b->source_input[0]);
        if (n > max) max = n;
    }
    proa_tensor *t = add_tensor(b, requests[0], target, max, -1);
    if (t && t->bytes) memset(t->buffer->data, 0, t->bytes);
}

/* The shape of each item without its batch dimension: [items, rank], or all in a row. An item is a row of a request. */
static void add_shapes(const Inference__BatchInput *b, size_t target, proa_infer *const *requests, int count)
{
    const proa_tensor *first = proa_infer_input(requests[0], b->source_input[0]);
    int64_t rank = first && first->rank > 0 ? first->rank - 1 : 0, items = 0, at = 0;
    for (int i = 0; i < count; i++) items += requests[i]->batch;
    bool flat = b->kind == INFERENCE__BATCH_INPUT__KIND__BATCH_ITEM_SHAPE_FLATTEN;
    proa_tensor *t = add_tensor(b, requests[0], target, flat ? items * rank : items, flat ? -1 : rank);
    if (!t || !t->bytes) return;
    for (int i = 0; i < count; i++) {
        const proa_tensor *source = proa_infer_input(requests[i], b->source_input[0]);
        for (int64_t row = 0; row < requests[i]->batch; row++)
            for (int64_t d = 0; d < rank; d++)
                put_element(t->buffer->data, t->type, at++, source ? source->shape[d + 1] : 0);
    }
}

static void add_input(const Inference__BatchInput *b, size_t target, proa_infer *const *requests, int count)
{
    switch (b->kind) {
    case INFERENCE__BATCH_INPUT__KIND__BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
        add_max_as_shape(b, target, requests, count);
        break;
    case INFERENCE__BATCH_INPUT__KIND__BATCH_ITEM_SHAPE:
    case INFERENCE__BATCH_INPUT__KIND__BATCH_ITEM_SHAPE_FLATTEN:
        add_shapes(b, target, requests, count);
        break;
    default: add_counts(b, target, requests, count); break;
    }
}

void proa_batch_inputs_add(const proa_served_model *model, proa_infer *const *requests, int count)
{
    for (size_t i = 0; i < model->config->n_batch_input; i++) {
        const Inference__BatchInput *b = model->config->batch_input[i];
        if (b->n_source_input == 0) continue; /* the configuration was checked: there is one */
        for (size_t target = 0; target < b->n_target_name; target++) add_input(b, target, requests, count);
    }
}

/* ---- outputs ---- */

static const char *source_of(const Inference__ModelConfig *config, const char *output)
{
    for (size_t i = 0; i < config->n_batch_output; i++) {
        const Inference__BatchOutput *b = config->batch_output[i];
        for (size_t j = 0; j < b->n_target_name && b->n_source_input; j++)
            if (strcmp(b->target_name[j], output) == 0) return b->source_input[0];
    }
    return NULL;
}

static proa_status part_bytes(const proa_tensor *source, proa_type type, int64_t *bytes, proa_err *err)
{
    int64_t n = source ? proa_shape_elements(source->shape, source->rank) : -1;
    if (n < 0 || proa_type_bytes(type) == 0 || !proa_mul(n, proa_type_bytes(type), bytes))
        return PROA_FAIL(err, INTERNAL, "a part of a batch's output has no size");
    return PROA_OK;
}

proa_status proa_batch_output_scatter(const proa_served_model *model, const char *name,
                                      const proa_tensor *whole, const proa_batch_replies *to, proa_err *err)
{
    const char *source = source_of(model->config, name);
    int64_t at = 0, bytes = 0;
    if (!source)
        return PROA_FAIL(err, INVALID, "output '%s' of model '%s' is no batch_output", name, model->name);
    for (int i = 0; i < to->count; i++) {
        PROA_TRY(part_bytes(proa_infer_input(to->requests[i], source), whole->type, &bytes, err));
        if (bytes > (int64_t)whole->bytes - at)
            return PROA_FAIL(err, INTERNAL, "output '%s' of model '%s' has %zu bytes, too few for its requests",
                             name, model->name, whole->bytes);
        at += bytes;
    }
    if (at != (int64_t)whole->bytes)
        return PROA_FAIL(err, INTERNAL, "output '%s' of model '%s' has %zu bytes, its requests take %lld",
                         name, model->name, whole->bytes, (long long)at);
    at = 0;
    for (int i = 0; i < to->count; i++) {
        const proa_tensor *in = proa_infer_input(to->requests[i], source);
        proa_tensor *t = proa_reply_add(to->replies[i], name);
        PROA_TRY(part_bytes(in, whole->type, &bytes, err));
        t->type = whole->type;
        t->rank = in->rank;
        memcpy(t->shape, in->shape, sizeof t->shape);
        t->bytes = (size_t)bytes;
        t->buffer = bytes ? proa_buffer_hold(whole->buffer) : NULL;
        t->data = bytes ? whole->data + at : NULL;
        at += bytes;
    }
    return PROA_OK;
}
