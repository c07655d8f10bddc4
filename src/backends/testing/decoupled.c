/* SPDX-License-Identifier: Apache-2.0
 * decoupled.c - the backends `repeat` and `square`: any number of replies to one request, as the Triton
 * backends of these names send them. A request whose replies take time has its own thread, so that the
 * instance is free for the next. */
#include "backends/backends.h"
#include "backends/common.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <ctype.h>
#include <pthread.h>
#include <string.h>

#define REPLIES_MAX (1 << 20) /* of one request: replies for a slow reader wait in memory */

/* ---- the threads of an instance, which is closed when the last one has ended ---- */

typedef struct wait_group {
    pthread_mutex_t lock;
    pthread_cond_t empty;
    int running;
} wait_group;

typedef struct task {
    wait_group *in;
    void (*produce)(void *instance_state, proa_infer *r);
    void *instance_state;
    proa_infer *r;
} task;

static void group_init(wait_group *g)
{
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->empty, NULL);
}

static void group_release(wait_group *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->running) pthread_cond_wait(&g->empty, &g->lock);
    pthread_mutex_unlock(&g->lock);
    pthread_cond_destroy(&g->empty);
    pthread_mutex_destroy(&g->lock);
}

static void *run_task(void *arg)
{
    task t = *(task *)arg;
    free(arg);
    t.produce(t.instance_state, t.r);
    pthread_mutex_lock(&t.in->lock);
    if (--t.in->running == 0) pthread_cond_broadcast(&t.in->empty);
    pthread_mutex_unlock(&t.in->lock);
    return NULL;
}

/* Runs on a new thread, or on the caller's if none can be created. */
static void run_in_group(wait_group *g, void (*produce)(void *, proa_infer *), void *instance_state,
                         proa_infer *r)
{
    pthread_t thread;
    task *t = proa_malloc(sizeof *t);
    *t = (task){g, produce, instance_state, r};
    pthread_mutex_lock(&g->lock);
    g->running++;
    pthread_mutex_unlock(&g->lock);
    if (pthread_create(&thread, NULL, run_task, t) == 0) pthread_detach(thread);
    else run_task(t);
}

/* ---- checks of the configuration ---- */

typedef struct wanted {
    const char *name, *order;
    proa_type type;
} wanted;

static proa_status check_tensor(const wanted *w, const char *kind, const char *name, Inference__DataType type,
                                proa_err *err)
{
    if (strcmp(name, w->name) != 0)
        return PROA_FAIL(err, INVALID, "expected %s %s tensor name to be %s, got %s", w->order, kind, w->name,
                         name);
    if ((proa_type)type != w->type)
        return PROA_FAIL(err, INVALID, "expected %s datatype to be %s, got %s", w->name,
                         proa_type_name(w->type), proa_type_config_name((proa_type)type));
    return PROA_OK;
}

static proa_status check_tensors(const Inference__ModelConfig *c, const wanted *ins, size_t n_ins,
                                 const wanted *outs, size_t n_outs, proa_err *err)
{
    if (c->n_input != n_ins)
        return PROA_FAIL(err, INVALID, "expected %zu input%s, got %zu", n_ins, n_ins == 1 ? "" : "s", c->n_input);
    if (c->n_output != n_outs)
        return PROA_FAIL(err, INVALID, "expected %zu output%s, got %zu", n_outs, n_outs == 1 ? "" : "s",
                         c->n_output);
    for (size_t i = 0; i < n_ins; i++)
        PROA_TRY(check_tensor(&ins[i], "input", c->input[i]->name, c->input[i]->data_type, err));
    for (size_t i = 0; i < n_outs; i++)
        PROA_TRY(check_tensor(&outs[i], "output", c->output[i]->name, c->output[i]->data_type, err));
    return PROA_OK;
}

static proa_status check_one(const char *name, const int64_t *dims, size_t n, proa_err *err)
{
    char text[PROA_DIMS_TEXT];
    if (n == 1 && dims[0] == 1) return PROA_OK;
    return PROA_FAIL(err, INVALID, "expected %s shape to be [1], got %s", name, proa_dims_text(text, dims, n));
}

/* ---- repeat: IN[i] as OUT and i as IDX, each after DELAY[i] ms; the instance is taken for WAIT ms ---- */

static proa_status repeat_open(void **state, proa_served_model *model, proa_err *err)
{
    static const wanted ins[] = {{"IN", "first", PROA_TYPE_INT32},
                                 {"DELAY", "second", PROA_TYPE_UINT32},
                                 {"WAIT", "third", PROA_TYPE_UINT32}};
    static const wanted outs[] = {{"OUT", "first", PROA_TYPE_INT32}, {"IDX", "second", PROA_TYPE_UINT32}};
    const Inference__ModelConfig *c = proa_served_model_config(model);
    char a[PROA_DIMS_TEXT], b[PROA_DIMS_TEXT];
    (void)state;
    if (c->max_batch_size != 0)
        return PROA_FAIL(err, INVALID, "repeat backend only supports models with max_batch_size == 0");
    PROA_TRY(check_tensors(c, ins, PROA_COUNT(ins), outs, PROA_COUNT(outs), err));
    const Inference__ModelInput *in = c->input[0], *delay = c->input[1];
    if (in->n_dims != 1)
        return PROA_FAIL(err, INVALID, "expected IN shape to have one dimension, got %s",
                         proa_dims_text(a, in->dims, in->n_dims));
    if (delay->n_dims != 1 || delay->dims[0] != in->dims[0])
        return PROA_FAIL(err, INVALID, "expected IN and DELAY shape to match, got %s and %s",
                         proa_dims_text(a, in->dims, in->n_dims), proa_dims_text(b, delay->dims, delay->n_dims));
    PROA_TRY(check_one("WAIT", c->input[2]->dims, c->input[2]->n_dims, err));
    PROA_TRY(check_one("OUT", c->output[0]->dims, c->output[0]->n_dims, err));
    return check_one("IDX", c->output[1]->dims, c->output[1]->n_dims, err);
}

static proa_status open_instance(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    wait_group *threads = proa_calloc(1, sizeof *threads);
    (void)model_state;
    (void)instance;
    (void)err;
    group_init(threads);
    *state = threads;
    return PROA_OK;
}

static void close_instance(void *state)
{
    group_release(state);
    free(state);
}

static uint32_t number_at(const proa_tensor *t, int64_t i)
{
    uint32_t value;
    memcpy(&value, t->data + i * (int64_t)sizeof value, sizeof value);
    return value;
}

static void add_number(proa_reply *reply, const proa_infer *r, const char *name, proa_type type, int32_t rank,
                       uint32_t value)
{
    static const int64_t ones[] = {1, 1};
    void *data;
    if (!proa_infer_wants(r, name)) return;
    proa_reply_add_array(reply, name, type, ones, rank, &data);
    memcpy(data, &value, sizeof value);
}

static void repeat_produce(void *instance_state, proa_infer *r)
{
    const proa_tensor *in = proa_infer_input(r, "IN"), *delay = proa_infer_input(r, "DELAY");
    (void)instance_state;
    for (int64_t i = 0; i < in->shape[0]; i++) {
        proa_backend_sleep(&r, 1, (int64_t)number_at(delay, i) * 1000000);
        if (proa_backend_end_if_cancelled(r)) return;
        proa_reply *reply = proa_reply_new(r);
        add_number(reply, r, "OUT", PROA_TYPE_INT32, 1, number_at(in, i));
        add_number(reply, r, "IDX", PROA_TYPE_UINT32, 1, (uint32_t)i);
        proa_infer_reply(r, reply, false);
    }
    proa_infer_reply(r, NULL, true);
}

static bool all_zero(const proa_tensor *t)
{
    for (size_t i = 0; i < t->bytes; i++)
        if (t->data[i]) return false;
    return true;
}

static void repeat_one(wait_group *threads, proa_infer *r)
{
    const proa_tensor *in = proa_infer_input(r, "IN"), *delay = proa_infer_input(r, "DELAY"),
                      *wait = proa_infer_input(r, "WAIT");
    char a[PROA_DIMS_TEXT], b[PROA_DIMS_TEXT];
    if (!proa_shape_equal(in->shape, in->rank, delay->shape, delay->rank)) {
        proa_backend_fail(r, PROA_INVALID, "expected IN and DELAY shape to match, got %s and %s",
                          proa_dims_text(a, in->shape, (size_t)in->rank),
                          proa_dims_text(b, delay->shape, (size_t)delay->rank));
        return;
    }
    if (in->shape[0] > REPLIES_MAX) {
        proa_backend_fail(r, PROA_INVALID, "more than %d replies", REPLIES_MAX);
        return;
    }
    int64_t wait_ns = (int64_t)number_at(wait, 0) * 1000000;
    if (wait_ns) proa_infer_hold(r); /* checked for a cancel below */
    if (all_zero(delay)) repeat_produce(threads, r);
    else run_in_group(threads, repeat_produce, threads, r);
    if (!wait_ns) return;
    proa_backend_sleep(&r, 1, wait_ns);
    proa_infer_drop(r);
}

static void repeat_execute(void *instance_state, proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++) repeat_one(instance_state, requests[i]);
}

const proa_backend proa_backend_repeat = {
    .name = "repeat",
    .model_open = repeat_open,
    .instance_open = open_instance,
    .instance_close = close_instance,
    .execute = repeat_execute,
};

/* ---- square: IN = n gives n replies with OUT = n ---- */

typedef struct square {
    int64_t infer_ns, output_ns, cancel_ns, fails, empties;
} square;

typedef struct square_instance {
    wait_group threads; /* first: close_instance */
    const square *model;
} square_instance;

/* As in Triton's backend, text that is no number counts as absent. */
static int64_t number_or_zero(const proa_served_model *model, const char *key)
{
    int64_t value = 0;
    if (proa_parameter_number(&value, model, key, (int64_t)3600 * 1000000000, NULL) != PROA_OK) return 0;
    return value;
}

static proa_status square_open(void **state, proa_served_model *model, proa_err *err)
{
    static const wanted in = {"IN", "first", PROA_TYPE_INT32}, out = {"OUT", "first", PROA_TYPE_INT32};
    const Inference__ModelConfig *c = proa_served_model_config(model);
    PROA_TRY(check_tensors(c, &in, 1, &out, 1, err));
    PROA_TRY(check_one("IN", c->input[0]->dims, c->input[0]->n_dims, err));
    PROA_TRY(check_one("OUT", c->output[0]->dims, c->output[0]->n_dims, err));
    square *m = proa_calloc(1, sizeof *m);
    m->infer_ns = number_or_zero(model, "CUSTOM_INFER_DELAY_NS");
    m->output_ns = number_or_zero(model, "CUSTOM_OUTPUT_DELAY_NS");
    m->cancel_ns = number_or_zero(model, "CUSTOM_CANCEL_DELAY_NS");
    m->fails = number_or_zero(model, "CUSTOM_FAIL_COUNT");
    m->empties = number_or_zero(model, "CUSTOM_EMPTY_COUNT");
    *state = m;
    return PROA_OK;
}

static proa_status square_instance_open(void **state, void *model_state, const proa_instance *instance,
                                        proa_err *err)
{
    square_instance *i = proa_calloc(1, sizeof *i);
    (void)instance;
    (void)err;
    group_init(&i->threads);
    i->model = model_state;
    *state = i;
    return PROA_OK;
}

/* The last `empties` of n replies are not sent, and the `fails` before them are errors. */
static void square_reply(const square *m, proa_infer *r, int64_t i, int64_t n, int32_t rank)
{
    if (i + m->empties >= n) return;
    proa_reply *reply = proa_reply_new(r);
    add_number(reply, r, "OUT", PROA_TYPE_INT32, rank, (uint32_t)n);
    proa_backend_sleep(&r, 1, m->output_ns);
    if (i + m->fails + m->empties >= n) (void)PROA_FAIL(&reply->error, INTERNAL, "simulated failure");
    proa_infer_reply(r, reply, false);
}

static void square_produce(void *instance_state, proa_infer *r)
{
    const square_instance *instance = instance_state;
    const proa_tensor *in = proa_infer_input(r, "IN");
    int64_t n = (int32_t)number_at(in, 0);
    int32_t rank = in->rank;
    for (int64_t i = 0; i < n; i++) {
        proa_backend_sleep(&r, 1, instance->model->infer_ns);
        if (proa_infer_cancelled(r)) {
            proa_backend_sleep(NULL, 0, instance->model->cancel_ns);
            proa_backend_end_if_cancelled(r);
            return;
        }
        square_reply(instance->model, r, i, n, rank);
    }
    proa_infer_reply(r, NULL, true);
}

static void square_one(square_instance *instance, proa_infer *r)
{
    const proa_tensor *in = proa_infer_input(r, "IN");
    int32_t n;
    if (in->rank > 2 || (in->rank == 2 && in->shape[0] != 1)) {
        proa_backend_fail(r, PROA_INVALID, "unexpected shape for IN input");
        return;
    }
    n = (int32_t)number_at(in, 0);
    if (n < 0 || n > REPLIES_MAX)
        proa_backend_fail(r, PROA_INVALID, "IN must be from 0 to %d, got %d", REPLIES_MAX, (int)n);
    else if (instance->model->infer_ns || instance->model->output_ns)
        run_in_group(&instance->threads, square_produce, instance, r);
    else square_produce(instance, r);
}

static void square_execute(void *instance_state, proa_infer *const *requests, int count)
{
    for (int i = 0; i < count; i++) square_one(instance_state, requests[i]);
}

const proa_backend proa_backend_square = {
    .name = "square",
    .model_open = square_open,
    .model_close = free,
    .instance_open = square_instance_open,
    .instance_close = close_instance,
    .execute = square_execute,
};
