/* SPDX-License-Identifier: Apache-2.0
 * simple.c - the backends `identity` and `add_sub`: Triton's identity backend and its example models
 * simple, simple_string and so on. */
#include "backends/backends.h"
#include "backends/common.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "tensor/dtype.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#define DELAY_MS_MAX 3600000

/* ---- identity: OUTPUTn is INPUTn, by reference ---- */

/* An output and the input that it copies. */
typedef struct pair {
    const char *output, *input;
    proa_type type;
    int64_t dims[PROA_SERVE_RANK_MAX]; /* the shape of a row of zeros if an optional input is absent; open dimensions
                                          are 1 */
    int32_t rank;
    bool optional;
} pair;

typedef struct identity {
    pair *pairs;
    int count;
    bool batched, example_parameters;
    int64_t delay_ms, multiplier;
} identity;

typedef struct identity_instance {
    const identity *model;
    int64_t delay_ms;
} identity_instance;

static bool same_shape(const int64_t *a, size_t a_rank, const int64_t *b, size_t b_rank)
{
    return proa_shape_equal(a, (int32_t)a_rank, b, (int32_t)b_rank);
}

/* The shape that the backend sees: reshape, or else dims. */
#define SEEN(io, rank)                                                                                       \
    ((rank) = (io)->reshape ? (io)->reshape->n_shape : (io)->n_dims,                                         \
     (io)->reshape ? (io)->reshape->shape : (io)->dims)

static proa_status check_pair(const Inference__ModelInput *in, const Inference__ModelOutput *out, proa_err *err)
{
    char a[PROA_DIMS_TEXT], b[PROA_DIMS_TEXT];
    size_t in_rank, out_rank;
    const int64_t *in_shape = SEEN(in, in_rank), *out_shape = SEEN(out, out_rank);
    if (in->data_type != out->data_type)
        return PROA_FAIL(err, INVALID, "expected input and output datatype to match, got %s and %s",
                         proa_type_config_name((proa_type)in->data_type),
                         proa_type_config_name((proa_type)out->data_type));
    if (!same_shape(in_shape, in_rank, out_shape, out_rank))
        return PROA_FAIL(err, INVALID, "expected input and output shape to match, got %s and %s",
                         proa_dims_text(a, in_shape, in_rank), proa_dims_text(b, out_shape, out_rank));
    return PROA_OK;
}

static const Inference__ModelInput *input_for(const Inference__ModelConfig *c, const char *output)
{
    for (size_t i = 0; i < c->n_input; i++)
        if (strcmp(c->input[i]->name + strlen("INPUT"), output + strlen("OUTPUT")) == 0) return c->input[i];
    return NULL;
}

static proa_status check_names(const Inference__ModelConfig *c, proa_err *err)
{
    if (c->n_input != c->n_output)
        return PROA_FAIL(err, INVALID, "model configuration must have equal input/output pairs");
    for (size_t i = 0; i < c->n_input; i++) {
        if (strncmp(c->input[i]->name, "INPUT", strlen("INPUT")) != 0)
            return PROA_FAIL(err, INVALID, "expected input name to follow INPUT<index> pattern, got '%s'",
                             c->input[i]->name);
        if (strncmp(c->output[i]->name, "OUTPUT", strlen("OUTPUT")) != 0)
            return PROA_FAIL(err, INVALID, "expected output name to follow OUTPUT<index> pattern, got '%s'",
                             c->output[i]->name);
    }
    return PROA_OK;
}

static proa_status make_pairs(identity *m, const Inference__ModelConfig *c, proa_err *err)
{
    for (size_t i = 0; i < c->n_output; i++) {
        pair *p = &m->pairs[m->count++];
        const Inference__ModelInput *in = input_for(c, c->output[i]->name);
        size_t rank;
        if (!in) return PROA_FAIL(err, INVALID, "expected input and output indices to match");
        PROA_TRY(check_pair(in, c->output[i], err));
        const int64_t *dims = SEEN(in, rank);
        *p = (pair){c->output[i]->name, in->name, (proa_type)in->data_type, {0}, (int32_t)rank, in->optional};
        for (size_t d = 0; d < rank; d++) p->dims[d] = dims[d] == -1 ? 1 : dims[d];
    }
    return PROA_OK;
}

static void identity_close(void *state)
{
    identity *m = state;
    free(m->pairs);
    free(m);
}

static proa_status identity_settings(identity *m, proa_served_model *model, proa_err *err)
{
    int64_t creation_secs = 0;
    PROA_TRY(proa_parameter_number(&m->delay_ms, model, "execute_delay_ms", DELAY_MS_MAX, err));
    PROA_TRY(proa_parameter_number(&m->multiplier, model, "instance_wise_delay_multiplier", 1000, err));
    PROA_TRY(proa_parameter_number(&creation_secs, model, "creation_delay_sec", 3600, err));
    m->example_parameters = proa_parameter_true(model, "example_parameters");
    if (m->delay_ms) proa_served_model_set_long(model);
    if (creation_secs) proa_backend_sleep(NULL, 0, creation_secs * 1000000000);
    return PROA_OK;
}

static proa_status identity_open(void **state, proa_served_model *model, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(model);
    PROA_TRY(check_names(c, err));
    identity *m = proa_calloc(1, sizeof *m);
    m->pairs = proa_calloc(c->n_output, sizeof *m->pairs);
    m->batched = c->max_batch_size > 0;
    proa_status status = make_pairs(m, c, err);
    if (status == PROA_OK) status = identity_settings(m, model, err);
    if (status != PROA_OK) identity_close(m);
    else *state = m;
    return status;
}

static proa_status identity_instance_open(void **state, void *model_state, const proa_instance *instance,
                                          proa_err *err)
{
    identity_instance *i = proa_calloc(1, sizeof *i);
    const identity *m = model_state;
    const char *number = strrchr(proa_instance_name(instance), '_');
    int64_t factor = m->multiplier * (number ? (int64_t)strtoll(number + 1, NULL, 10) : 0);
    (void)err;
    i->model = m;
    i->delay_ms = m->delay_ms * (factor > 1 ? factor : 1);
    *state = i;
    return PROA_OK;
}

static void add_zeros(proa_reply *reply, const pair *p, const identity *m, int64_t batch)
{
    int64_t shape[PROA_SERVE_RANK_MAX], elements;
    int32_t rank = p->rank + m->batched;
    size_t bytes;
    shape[0] = batch;
    if (p->rank) memcpy(shape + m->batched, p->dims, (size_t)p->rank * sizeof *shape);
    elements = proa_shape_elements(shape, rank);
    bytes = (size_t)elements *
            (p->type == PROA_TYPE_BYTES ? sizeof(uint32_t) : (size_t)proa_type_bytes(p->type));
    proa_tensor *t = proa_reply_add(reply, p->output);
    t->type = p->type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    if (!bytes) return;
    t->buffer = proa_buffer_new(bytes);
    t->data = memset(t->buffer->data, 0, bytes);
    t->bytes = bytes;
}

static void add_output(proa_reply *reply, const pair *p, const identity *m, const proa_infer *r)
{
    const proa_tensor *in = proa_infer_input(r, p->input);
    if (in) {
        proa_tensor *out = proa_reply_add(reply, p->output);
        const char *name = out->name;
        proa_tensor_share(out, in);
        out->name = name;
    } else {
        add_zeros(reply, p, m, r->batch);
    }
}

static void add_parameters(proa_reply *reply)
{
    proa_infer_param *p = proa_reply_add_param(reply, "param0");
    p->kind = PROA_PARAM_STRING;
    p->s = proa_str_c("an example string parameter");
    p = proa_reply_add_param(reply, "param1");
    p->kind = PROA_PARAM_INT;
    p->i = 42;
    p = proa_reply_add_param(reply, "param2");
    p->kind = PROA_PARAM_BOOL;
    p->b = false;
}

static void identity_answer(const identity *m, proa_infer *r)
{
    proa_reply *reply = proa_reply_new(r);
    for (int i = 0; i < m->count; i++)
        if (proa_infer_wants(r, m->pairs[i].output)) add_output(reply, &m->pairs[i], m, r);
    if (m->example_parameters) add_parameters(reply);
    proa_infer_reply(r, reply, true);
}

static void identity_execute(void *instance_state, proa_infer *const *requests, int count)
{
    const identity_instance *i = instance_state;
    if (i->delay_ms) proa_backend_sleep(requests, count, i->delay_ms * 1000000);
    for (int k = 0; k < count; k++)
        if (!(i->delay_ms && proa_backend_end_if_cancelled(requests[k])))
            identity_answer(i->model, requests[k]);
}

const proa_backend proa_backend_identity = {
    .name = "identity",
    .flags = PROA_BACKEND_INLINE,
    .model_open = identity_open,
    .model_close = identity_close,
    .instance_open = identity_instance_open,
    .instance_close = free,
    .execute = identity_execute,
};

/* ---- add_sub: OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1 ---- */

/* Integers wrap around; the bytes of a tensor may be unaligned, so they are copied. */
#define ADD_SUB(name, type, wide)                                                                            \
    static void name(char *sum, char *difference, const char *a, const char *b, int64_t n)                   \
    {                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            type x, y;                                                                                       \
            memcpy(&x, a + (size_t)i * sizeof x, sizeof x);                                                  \
            memcpy(&y, b + (size_t)i * sizeof y, sizeof y);                                                  \
            type s = (type)((wide)x + (wide)y), d = (type)((wide)x - (wide)y);                               \
            if (sum) memcpy(sum + (size_t)i * sizeof s, &s, sizeof s);                                       \
            if (difference) memcpy(difference + (size_t)i * sizeof d, &d, sizeof d);                         \
        }                                                                                                    \
    }
ADD_SUB(add_sub_8, uint8_t, uint32_t)
ADD_SUB(add_sub_16, uint16_t, uint32_t)
ADD_SUB(add_sub_32, uint32_t, uint32_t)
ADD_SUB(add_sub_64, uint64_t, uint64_t)
ADD_SUB(add_sub_f32, float, float)
ADD_SUB(add_sub_f64, double, double)

#define ADD_SUB_HALF(name, to_f32, from_f32)                                                                 \
    static void name(char *sum, char *difference, const char *a, const char *b, int64_t n)                   \
    {                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            uint16_t x, y;                                                                                   \
            memcpy(&x, a + 2 * i, 2);                                                                        \
            memcpy(&y, b + 2 * i, 2);                                                                        \
            uint16_t s = from_f32(to_f32(x) + to_f32(y)), d = from_f32(to_f32(x) - to_f32(y));               \
            if (sum) memcpy(sum + 2 * i, &s, 2);                                                             \
            if (difference) memcpy(difference + 2 * i, &d, 2);                                               \
        }                                                                                                    \
    }
ADD_SUB_HALF(add_sub_f16, proa_f16_to_f32, proa_f32_to_f16)
ADD_SUB_HALF(add_sub_bf16, proa_bf16_to_f32, proa_f32_to_bf16)

typedef void add_sub_fn(char *sum, char *difference, const char *a, const char *b, int64_t n);
static add_sub_fn *const add_sub_of[PROA_TYPE_COUNT] = {
    [PROA_TYPE_UINT8] = add_sub_8,   [PROA_TYPE_UINT16] = add_sub_16, [PROA_TYPE_UINT32] = add_sub_32,
    [PROA_TYPE_UINT64] = add_sub_64, [PROA_TYPE_INT8] = add_sub_8,    [PROA_TYPE_INT16] = add_sub_16,
    [PROA_TYPE_INT32] = add_sub_32,  [PROA_TYPE_INT64] = add_sub_64,  [PROA_TYPE_FP16] = add_sub_f16,
    [PROA_TYPE_FP32] = add_sub_f32,  [PROA_TYPE_FP64] = add_sub_f64,  [PROA_TYPE_BF16] = add_sub_bf16,
};

static proa_status add_sub_open(void **state, proa_served_model *model, proa_err *err)
{
    const Inference__ModelConfig *c = proa_served_model_config(model);
    static const char *const ins[] = {"INPUT0", "INPUT1"}, *const outs[] = {"OUTPUT0", "OUTPUT1"};
    (void)state;
    if (c->n_input != 2 || c->n_output != 2)
        return PROA_FAIL(err, INVALID, "add_sub needs two inputs and two outputs, got %zu and %zu",
                         c->n_input, c->n_output);
    Inference__DataType type = c->input[0]->data_type;
    for (int i = 0; i < 2; i++) {
        if (strcmp(c->input[i]->name, ins[i]) != 0 || strcmp(c->output[i]->name, outs[i]) != 0)
            return PROA_FAIL(err, INVALID, "add_sub needs INPUT0, INPUT1, OUTPUT0 and OUTPUT1 in this order");
        if (c->input[i]->data_type != type || c->output[i]->data_type != type)
            return PROA_FAIL(err, INVALID, "add_sub needs one type for all its tensors");
    }
    if (!add_sub_of[type] && type != INFERENCE__DATA_TYPE__TYPE_STRING)
        return PROA_FAIL(err, INVALID, "add_sub cannot add %s", proa_type_config_name((proa_type)type));
    return PROA_OK;
}

static bool parse_integer(int64_t *value, proa_str s)
{
    char text[32], *end;
    if (s.len == 0 || s.len >= sizeof text) return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end == text + s.len;
}

/* Sums and differences of the integers that two tensors of strings hold; the strings are in the reply's arena. */
static bool add_strings(proa_reply *reply, const proa_tensor *a, const proa_tensor *b, proa_str *sum,
                        proa_str *difference, int64_t n)
{
    size_t at = 0, bt = 0;
    for (int64_t i = 0; i < n; i++) {
        proa_str s, t;
        int64_t x, y, results[2];
        if (!proa_tensor_next_string(a, &at, &s) || !proa_tensor_next_string(b, &bt, &t) ||
            !parse_integer(&x, s) || !parse_integer(&y, t))
            return false;
        results[0] = (int64_t)((uint64_t)x + (uint64_t)y);
        results[1] = (int64_t)((uint64_t)x - (uint64_t)y);
        sum[i] = proa_str_c(proa_arena_printf(&reply->arena, "%lld", (long long)results[0]));
        difference[i] = proa_str_c(proa_arena_printf(&reply->arena, "%lld", (long long)results[1]));
    }
    return true;
}

static void add_string_output(proa_reply *reply, const char *name, const proa_str *strings, int64_t n,
                              const proa_tensor *like)
{
    proa_tensor *t = proa_reply_add_strings(reply, name, strings, n);
    t->rank = like->rank;
    memcpy(t->shape, like->shape, sizeof t->shape);
}

static void answer_strings(proa_infer *r, const proa_tensor *a, const proa_tensor *b, int64_t n)
{
    proa_reply *reply = proa_reply_new(r);
    proa_str *sum = PROA_ARENA_NEW(&reply->arena, proa_str, n),
             *difference = PROA_ARENA_NEW(&reply->arena, proa_str, n);
    if (!add_strings(reply, a, b, sum, difference, n)) {
        proa_reply_free(reply);
        proa_backend_fail(r, PROA_INVALID, "add_sub needs strings that are integers");
        return;
    }
    if (proa_infer_wants(r, "OUTPUT0")) add_string_output(reply, "OUTPUT0", sum, n, a);
    if (proa_infer_wants(r, "OUTPUT1")) add_string_output(reply, "OUTPUT1", difference, n, a);
    proa_infer_reply(r, reply, true);
}

static void answer_numbers(proa_infer *r, const proa_tensor *a, const proa_tensor *b, int64_t n)
{
    proa_reply *reply = proa_reply_new(r);
    void *sum = NULL, *difference = NULL;
    if (proa_infer_wants(r, "OUTPUT0"))
        proa_reply_add_array(reply, "OUTPUT0", a->type, a->shape, a->rank, &sum);
    if (proa_infer_wants(r, "OUTPUT1"))
        proa_reply_add_array(reply, "OUTPUT1", a->type, a->shape, a->rank, &difference);
    if (n) add_sub_of[a->type](sum, difference, a->data, b->data, n);
    proa_infer_reply(r, reply, true);
}

static void add_sub_execute(void *instance_state, proa_infer *const *requests, int count)
{
    (void)instance_state;
    for (int i = 0; i < count; i++) {
        proa_infer *r = requests[i];
        const proa_tensor *a = proa_infer_input(r, "INPUT0"), *b = proa_infer_input(r, "INPUT1");
        if (!a || !b || !proa_shape_equal(a->shape, a->rank, b->shape, b->rank)) {
            proa_backend_fail(r, PROA_INVALID, "add_sub needs INPUT0 and INPUT1 of one shape");
            continue;
        }
        int64_t n = proa_shape_elements(a->shape, a->rank);
        if (a->type == PROA_TYPE_BYTES) answer_strings(r, a, b, n);
        else answer_numbers(r, a, b, n);
    }
}

const proa_backend proa_backend_add_sub = {
    .name = "add_sub",
    .flags = PROA_BACKEND_INLINE,
    .model_open = add_sub_open,
    .execute = add_sub_execute,
};
