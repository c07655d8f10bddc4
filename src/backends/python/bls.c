/* SPDX-License-Identifier: Apache-2.0
 * bls.c - requests that a model makes of other models: out of shared memory into the server, replies back into it. */
#include "backends/python/python.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

/* An instance whose execute waits for a call. The pointers are only compared, never followed. */
typedef struct waiter {
    const proa_served_model *model;
    const proa_pyinstance *instance;
    int instances; /* that the model has */
} waiter;

typedef struct call {
    proa_pybls *in;
    struct call *prev, *next;
    uint64_t process, id;
    uint64_t parent; /* a request of the execution that makes the call; 0: none does */
    uint64_t traced; /* the request whose trace the call belongs to; 0: none */
    proa_infer *r;
    bool decoupled;
    waiter *waiters; /* the instances that wait for this call, if it has a parent; in r's arena */
    int waiters_count, waiters_cap;
} call;

struct proa_pybls {
    proa_pyinstance *instance;
    pthread_mutex_t lock; /* of the list */
    call *calls;
};

proa_pybls *proa_pybls_new(proa_pyinstance *i)
{
    proa_pybls *b = proa_calloc(1, sizeof *b);
    b->instance = i;
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

void proa_pybls_free(proa_pybls *b)
{
    PROA_ASSERT(!b->calls);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

static void join_calls(call *c)
{
    pthread_mutex_lock(&c->in->lock);
    c->next = c->in->calls;
    if (c->next) c->next->prev = c;
    c->in->calls = c;
    pthread_mutex_unlock(&c->in->lock);
    proa_pyinstance_begin(c->in->instance);
}

static void leave_calls(call *c)
{
    proa_pyinstance *i = c->in->instance;
    pthread_mutex_lock(&c->in->lock);
    if (c->prev) c->prev->next = c->next;
    else c->in->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    pthread_mutex_unlock(&c->in->lock);
    free(c);
    proa_pyinstance_end(i); /* must be last: the instance may be freed afterwards */
}

static void send_error(proa_pyinstance *i, uint64_t process, uint64_t id, const proa_err *err)
{
    proa_reply reply = {.error = *err};
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_PYTHON_HEAD_MAX);
    proa_pywire_reply_head(&head, &reply);
    proa_pyinstance_send(i, process, PROA_PYTHON_REPLY, PROA_PYTHON_FINAL, id, proa_buf_view(&head), NULL, 0);
    proa_buf_release(&head);
}

/* A reply of the other model, on whatever thread made it. */
static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    call *c = r->user;
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_PYTHON_HEAD_MAX);
    proa_pywire_reply_head(&head, reply);
    bool good = reply && reply->error.status == PROA_OK;
    for (int32_t k = 0; good && k < reply->outputs_count; k++) proa_copies_add(reply->outputs[k].bytes);
    proa_pyinstance_send(c->in->instance, c->process, PROA_PYTHON_REPLY, final ? PROA_PYTHON_FINAL : 0, c->id,
                         proa_buf_view(&head), good ? reply->outputs : NULL, good ? reply->outputs_count : 0);
    proa_buf_release(&head);
    proa_reply_free(reply);
    if (!final) return;
    leave_calls(c);
    proa_infer_drop(r);
}

/* ---- who waits for whom ---- */

static void add_waiter(call *c, const waiter *w)
{
    for (int k = 0; k < c->waiters_count; k++)
        if (c->waiters[k].instance == w->instance) return;
    if (c->waiters_count == c->waiters_cap) {
        waiter *old = c->waiters;
        c->waiters_cap = c->waiters_cap ? 2 * c->waiters_cap : 4;
        c->waiters = PROA_ARENA_NEW(&c->r->arena, waiter, c->waiters_cap);
        if (old) memcpy(c->waiters, old, (size_t)c->waiters_count * sizeof *old);
    }
    c->waiters[c->waiters_count++] = *w;
}

/* `request` is executed by the instance that makes the call: a request that waits for it also waits for
 * the call. Such a request ends only on the instance's thread, which is this one, so the call that made it
 * still exists. */
static void add_callers(void *made, const proa_infer *request)
{
    if (request->on_reply != on_reply) return;
    const call *above = request->user;
    for (int k = 0; k < above->waiters_count; k++) add_waiter(made, &above->waiters[k]);
}

static void find_waiters(call *c)
{
    proa_pyinstance *i = c->in->instance;
    proa_pymodel *m = proa_pyinstance_model(i);
    waiter own = {.model = m->model, .instance = i};
    if (!proa_pyinstance_executes(i, c->parent, add_callers, c)) {
        c->parent = 0;
        return;
    }
    pthread_mutex_lock(&m->lock);
    for (const proa_pyinstance *one = m->instances; one; one = proa_pyinstance_next(one)) own.instances++;
    pthread_mutex_unlock(&m->lock);
    add_waiter(c, &own);
}

/* Refuses a call that only its own callers could execute: it would never end. */
static proa_status check_cycle(const call *c, proa_err *err)
{
    int waiting = 0, instances = 0;
    for (int k = 0; k < c->waiters_count; k++) {
        if (c->waiters[k].model != c->r->model) continue;
        instances = c->waiters[k].instances;
        waiting++;
    }
    if (waiting == 0 || waiting < instances) return PROA_OK;
    return PROA_FAIL(err, INVALID, "model '%s' is called while all its instances (%d) wait for that call",
                     c->r->model_name, instances);
}

/* ---- the request ---- */

static proa_infer_param *add_param(void *r, proa_str name)
{
    return proa_infer_add_param(r, name);
}

static proa_status take_inputs(proa_infer *r, proa_pywire *w, proa_err *err)
{
    for (uint32_t k = 0; k < w->tensors; k++) {
        proa_tensor t = {0};
        proa_str name;
        PROA_TRY(proa_pywire_tensor(&t, &name, w, k, err));
        proa_tensor *to = proa_infer_add_input(r, name);
        if (!to) {
            proa_tensor_release(&t);
            return PROA_FAIL(err, LIMIT, "more than %d inputs", PROA_TENSORS_PER_REQUEST_MAX);
        }
        t.name = to->name;
        *to = t;
    }
    return PROA_OK;
}

static void take_sequence(proa_infer *r, const proa_json *head)
{
    const proa_json *id = proa_json_get(head, "correlation_id");
    int64_t flags = proa_json_int(proa_json_get(head, "flags"));
    if (proa_json_kind(id) == PROA_JSON_STRING)
        r->sequence_name = proa_arena_strdup(&r->arena, proa_json_str(id));
    else r->sequence_id = proa_json_uint(id);
    r->sequence_start = flags & 1;
    r->sequence_end = flags & 2;
}

static proa_status take_head(proa_infer *r, const proa_json *head, proa_err *err)
{
    const proa_json *outputs = proa_json_get(head, "outputs"), *version = proa_json_get(head, "version");
    if (proa_str_has_nul(proa_json_str(proa_json_get(head, "model"))))
        return PROA_FAIL(err, INVALID, "the model's name has a NUL byte");
    r->model_name = proa_arena_strdup(&r->arena, proa_json_str(proa_json_get(head, "model")));
    r->model_version = version ? proa_json_int(version) : -1;
    r->id = proa_arena_strdup(&r->arena, proa_json_str(proa_json_get(head, "id")));
    r->timeout_us = proa_json_uint(proa_json_get(head, "timeout"));
    r->priority = proa_json_uint(proa_json_get(head, "priority"));
    take_sequence(r, head);
    for (int64_t k = 0; k < proa_json_len(outputs); k++)
        if (!proa_infer_add_output(r, proa_json_str(proa_json_at(outputs, k))))
            return PROA_FAIL(err, LIMIT, "more than %d requested outputs", PROA_TENSORS_PER_REQUEST_MAX);
    return proa_pywire_params(proa_json_get(head, "parameters"), add_param, r, &r->arena, err);
}

/* Finds the model. decoupled: the call takes any number of replies. */
static proa_status find_model(proa_server *server, proa_infer *r, bool decoupled, proa_err *err)
{
    PROA_TRY(proa_server_find_model(server, r, err));
    if (proa_served_model_unary(r->model) || decoupled) return PROA_OK;
    return PROA_FAIL(
        err, UNSUPPORTED,
        "Model %s is using the decoupled. The current BLS request call doesn't support models using the "
        "decoupled "
        "transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for "
        "decoupled models.'",
        r->model_name);
}

/* Errors of the request become its own error; errors of the message go to `broken`. */
static proa_status build_request(proa_infer *r, call *c, proa_pywire *w, proa_err *err, proa_err *broken)
{
    proa_json *head;
    PROA_TRY(proa_pywire_head(&head, w, broken));
    c->decoupled = proa_json_bool(proa_json_get(head, "decoupled"));
    c->parent = proa_json_uint(proa_json_get(head, "parent"));
    c->traced = proa_json_uint(proa_json_get(head, "trace"));
    proa_status status = take_head(r, head, err);
    proa_json_free(head);
    return status == PROA_OK ? take_inputs(r, w, broken) : PROA_OK;
}

static proa_status check_call(call *c, proa_server *server, proa_err *err)
{
    PROA_TRY(find_model(server, c->r, c->decoupled, err));
    if (c->parent) find_waiters(c);
    return c->parent ? check_cycle(c, err) : PROA_OK;
}

proa_status proa_pybls_handle(proa_pybls *b, uint64_t process, const proa_python_message *m, proa_pywire *w,
                              proa_err *err)
{
    proa_server *server = proa_pyinstance_model(b->instance)->server;
    proa_infer *r = proa_infer_new();
    proa_err why = {0};
    call *c = proa_calloc(1, sizeof *c);
    *c = (call){.in = b, .process = process, .id = m->id, .r = r};
    proa_status status = build_request(r, c, w, &why, err);
    if (status != PROA_OK) {
        free(c);
        proa_infer_drop(r);
        return status;
    }
    if (why.status == PROA_OK) check_call(c, server, &why);
    if (why.status == PROA_OK) {
        r->on_reply = on_reply;
        r->user = c;
        r->inner = true;
        if (c->traced) proa_pyinstance_trace(b->instance, c->traced, r);
        join_calls(c);
        if (proa_server_infer(server, r, &why) == PROA_OK) return PROA_OK; /* c and r may be gone */
        leave_calls(c);
    } else {
        free(c);
    }
    send_error(b->instance, process, m->id, &why);
    proa_infer_drop(r);
    return PROA_OK;
}

void proa_pybls_check_cancelled(proa_pybls *b)
{
    for (;;) {
        proa_infer *r = NULL;
        pthread_mutex_lock(&b->lock);
        for (call *c = b->calls; c && !r; c = c->next)
            if (c->parent && !proa_infer_cancelled(c->r) && proa_pyinstance_all_cancelled(b->instance, c->parent))
                r = proa_infer_hold(c->r);
        pthread_mutex_unlock(&b->lock);
        if (!r) return;
        proa_infer_cancel(r);
        proa_infer_drop(r);
    }
}

void proa_pybls_cancel(proa_pybls *b, uint64_t id)
{
    proa_infer *r = NULL;
    pthread_mutex_lock(&b->lock);
    for (call *c = b->calls; c && !r; c = c->next)
        if (c->id == id) r = proa_infer_hold(c->r);
    pthread_mutex_unlock(&b->lock);
    if (!r) return;
    proa_infer_cancel(r);
    proa_infer_drop(r);
}

void proa_pybls_cancel_all(proa_pybls *b)
{
    for (;;) {
        proa_infer *r = NULL;
        pthread_mutex_lock(&b->lock);
        for (call *c = b->calls; c && !r; c = c->next)
            if (!proa_infer_cancelled(c->r)) r = proa_infer_hold(c->r);
        pthread_mutex_unlock(&b->lock);
        if (!r) return;
        proa_infer_cancel(r);
        proa_infer_drop(r);
    }
}
