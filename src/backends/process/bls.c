/* SPDX-License-Identifier: Apache-2.0
 * bls.c - requests that a model makes of other models: out of shared memory into the server, replies back into it. */
#include "backends/process/calls.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

/* An instance whose execute waits for a call. The pointers are only compared, never followed. */
typedef struct waiter {
    const proa_served_model *model;
    const proa_worker_instance *instance;
    int instances; /* that the model has */
} waiter;

#define NOWHERE INT64_MIN
#define ON_HOST ((int64_t)-1)

typedef struct call {
    proa_bls *in;
    struct call *prev, *next;
    uint64_t process, id;
    uint64_t parent; /* a request of the execution that makes the call; 0: none does */
    uint64_t traced; /* the request whose trace the call belongs to; 0: none */
    proa_infer *r;
    bool decoupled;
    int64_t gpu;     /* where outputs are to be; NOWHERE: where they are */
    waiter *waiters; /* the instances that wait for this call, if it has a parent; in r's arena */
    int waiters_count, waiters_cap;
} call;

struct proa_bls {
    proa_worker *worker;
    pthread_mutex_t lock; /* of the list */
    call *calls;
};

proa_bls *proa_bls_new(proa_worker *worker)
{
    proa_bls *b = proa_calloc(1, sizeof *b);
    b->worker = worker;
    pthread_mutex_init(&b->lock, NULL);
    return b;
}

void proa_bls_free(proa_bls *b)
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
    proa_worker_begin(c->in->worker);
}

static void leave_calls(call *c)
{
    proa_worker *worker = c->in->worker;
    pthread_mutex_lock(&c->in->lock);
    if (c->prev) c->prev->next = c->next;
    else c->in->calls = c->next;
    if (c->next) c->next->prev = c->prev;
    pthread_mutex_unlock(&c->in->lock);
    free(c);
    proa_worker_end(worker); /* must be last: the worker may be freed afterwards */
}

static void send_error(proa_worker *worker, uint64_t process, uint64_t id, const proa_err *err)
{
    proa_reply reply = {.error = *err};
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_payload_reply_head(&head, &reply);
    proa_worker_send(worker, process,
                     (proa_channel_message){.kind = PROA_CHANNEL_REPLY, .flags = PROA_CHANNEL_FINAL, .id = id},
                     &(proa_payload_content){.head = proa_buf_view(&head)});
    proa_buf_release(&head);
}

/* The caller prefers outputs in the memory of a GPU. */
static proa_status move_output(proa_tensor *t, int64_t gpu, proa_err *err)
{
    const proa_device_memory *own = proa_tensor_device(t);
    proa_buffer *to;
    if (gpu < 0 || !t->bytes || t->type == PROA_TYPE_BYTES || (own && own->gpu == gpu)) return PROA_OK;
    PROA_TRY(proa_gpu_buffer_on(gpu, &to, t->bytes, err));
    proa_status status = proa_tensor_copy_to(to, t, err);
    if (status != PROA_OK) return proa_buffer_drop(to), status;
    proa_buffer_drop(t->buffer);
    t->buffer = to;
    t->data = to->data;
    return PROA_OK;
}

static void move_outputs(const call *c, proa_reply *reply)
{
    for (int32_t k = 0; k < reply->outputs_count && reply->error.status == PROA_OK; k++) {
        reply->error.status = move_output(&reply->outputs[k], c->gpu, &reply->error);
        if (!proa_tensor_device(&reply->outputs[k])) proa_copies_add(reply->outputs[k].bytes);
    }
}

/* A reply of the other model, on whatever thread made it. */
static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    call *c = r->user;
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    if (reply) move_outputs(c, reply);
    proa_payload_reply_head(&head, reply);
    bool good = reply && reply->error.status == PROA_OK;
    proa_worker_send(c->in->worker, c->process,
                     (proa_channel_message){
                         .kind = PROA_CHANNEL_REPLY, .flags = final ? PROA_CHANNEL_FINAL : 0, .id = c->id},
                     &(proa_payload_content){.head = proa_buf_view(&head),
                                             .tensors = good ? reply->outputs : NULL,
                                             .count = good ? reply->outputs_count : 0});
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
 * the call. Such a request ends only on the worker's thread, which is this one, so the call that made it
 * still exists. */
static void add_callers(void *made, const proa_infer *request)
{
    if (request->on_reply != on_reply) return;
    const call *above = request->user;
    for (int k = 0; k < above->waiters_count; k++) add_waiter(made, &above->waiters[k]);
}

static void find_waiters(call *c)
{
    proa_worker_model *m = proa_worker_model_of(c->in->worker);
    waiter own = {.model = m->model, .instance = proa_worker_executes(c->in->worker, c->parent, add_callers, c)};
    if (!own.instance) {
        c->parent = 0;
        return;
    }
    own.instances = proa_worker_count_instances(m);
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

static proa_status take_head(proa_infer *r, const proa_json *head, proa_err *err)
{
    const proa_json *version = proa_json_get(head, "version");
    if (proa_str_has_nul(proa_json_str(proa_json_get(head, "model"))))
        return PROA_FAIL(err, INVALID, "the model's name has a NUL byte");
    r->model_name = proa_arena_strdup(&r->arena, proa_json_str(proa_json_get(head, "model")));
    r->model_version = version ? proa_json_int(version) : -1;
    return proa_payload_request(r, head, err);
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
static proa_status build_request(proa_infer *r, call *c, proa_payload *w, proa_err *err, proa_err *broken)
{
    proa_json *head;
    PROA_TRY(proa_payload_head(&head, w, broken));
    c->decoupled = proa_json_bool(proa_json_get(head, "decoupled"));
    c->parent = proa_json_uint(proa_json_get(head, "parent"));
    c->traced = proa_json_uint(proa_json_get(head, "trace"));
    const proa_json *memory = proa_json_get(head, "memory");
    c->gpu = memory ? proa_json_int(memory) : NOWHERE;
    proa_status status = take_head(r, head, err);
    proa_json_free(head);
    return status == PROA_OK ? proa_payload_inputs(r, w, broken) : PROA_OK;
}

static proa_status check_call(call *c, proa_server *server, proa_err *err)
{
    PROA_TRY(find_model(server, c->r, c->decoupled, err));
    if (c->parent) find_waiters(c);
    return c->parent ? check_cycle(c, err) : PROA_OK;
}

proa_status proa_bls_handle(proa_bls *b, uint64_t process, const proa_channel_message *m, proa_payload *w,
                            proa_err *err)
{
    proa_server *server = proa_worker_model_of(b->worker)->server;
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
        r->device_replies = c->gpu != ON_HOST;
        if (c->traced) proa_worker_trace(b->worker, c->traced, r);
        join_calls(c);
        if (proa_server_infer(server, r, &why) == PROA_OK) return PROA_OK; /* c and r may be gone */
        leave_calls(c);
    } else {
        free(c);
    }
    send_error(b->worker, process, m->id, &why);
    proa_infer_drop(r);
    return PROA_OK;
}

void proa_bls_check_cancelled(proa_bls *b)
{
    for (;;) {
        proa_infer *r = NULL;
        pthread_mutex_lock(&b->lock);
        for (call *c = b->calls; c && !r; c = c->next)
            if (c->parent && !proa_infer_cancelled(c->r) && proa_worker_all_cancelled(b->worker, c->parent))
                r = proa_infer_hold(c->r);
        pthread_mutex_unlock(&b->lock);
        if (!r) return;
        proa_infer_cancel(r);
        proa_infer_drop(r);
    }
}

void proa_bls_cancel(proa_bls *b, uint64_t id)
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

void proa_bls_cancel_all(proa_bls *b)
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
