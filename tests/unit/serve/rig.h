/* SPDX-License-Identifier: Apache-2.0
 * rig.h - for tests of schedulers: a model made by hand around a backend of the test, requests with a sink that
 * remembers.
 * Owner: a rig is on the test's stack; rig_close frees all. Threads: an answer may be awaited while others make it. */
#ifndef PROA_TESTS_SERVE_RIG_H
#define PROA_TESTS_SERVE_RIG_H

#include "base/clock.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

typedef struct rig {
    proa_served_model model;
    Inference__ModelConfig config;
    proa_io inputs[2], output;
    int inputs_count;
    const Inference__ModelInstanceGroup *group; /* of all instances, or NULL */
} rig;

/* What came back for one request. */
typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int replies;
    bool done;
    int order;     /* of the final replies of this program */
    int64_t at_ns; /* of the final reply */
    pthread_t thread;
    proa_status status;
    char text[128];
    int64_t value; /* first element of output "OUT" of the last reply that had one */
    int32_t outputs_count;
    int64_t shape[16];
    int32_t rank;
    proa_reply *last; /* kept for a look, freed by answer_free */
    proa_infer *request;
} answer;

static atomic_int rig_order;

static inline void rig_on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    answer *a = r->user;
    pthread_mutex_lock(&a->lock);
    if (reply) {
        const proa_tensor *t = reply->error.status == PROA_OK ? proa_reply_output(reply, "OUT") : NULL;
        a->replies++;
        a->status = reply->error.status;
        snprintf(a->text, sizeof a->text, "%.120s", reply->error.status == PROA_OK ? "" : reply->error.text);
        if (t && t->bytes >= 8 && !proa_tensor_device(t)) memcpy(&a->value, t->data, 8);
        if (t) {
            a->rank = t->rank;
            memcpy(a->shape, t->shape, sizeof a->shape);
        }
        a->outputs_count = reply->outputs_count;
        proa_reply_free(a->last);
        a->last = reply;
    }
    if (final) {
        a->order = atomic_fetch_add(&rig_order, 1);
        a->at_ns = proa_clock_ns();
        a->thread = pthread_self();
        a->done = true;
    }
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
}

static inline void rig_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

static inline void rig_config(rig *g, const char *name)
{
    memset(g, 0, sizeof *g);
    inference__model_config__init(&g->config);
    g->config.name = (char *)name;
    g->inputs[0] = (proa_io){
        .name = "IN", .type = PROA_TYPE_INT64, .rank = 1, .shape = {-1}, .inner_rank = 1, .inner = {-1}};
    g->output = g->inputs[0];
    g->inputs_count = 1;
    g->output.name = "OUT";
}

/* g->config and g->inputs are set; batch_max as in the configuration. */
static inline proa_status rig_open(rig *g, const proa_backend *backend, int instances, proa_err *err)
{
    proa_served_model *m = &g->model;
    m->backend = backend;
    m->flags = backend->flags;
    m->name = g->config.name;
    m->version = 1;
    m->config = &g->config;
    m->batch_max = g->config.max_batch_size;
    m->decoupled = g->config.model_transaction_policy && g->config.model_transaction_policy->decoupled;
    proa_arena_init(&m->arena);
    m->inputs = g->inputs;
    m->outputs = &g->output;
    m->inputs_count = g->inputs_count;
    m->outputs_count = m->required_count = 1;
    m->instances = calloc((size_t)instances, sizeof *m->instances);
    m->instances_count = instances;
    for (int i = 0; i < instances; i++) {
        m->instances[i] = (proa_instance){
            .model = m, .name = (char *)"i", .device = -1, .index = i, .group = g->group};
        if (backend->instance_open)
            assert_int_equal(backend->instance_open(&m->instances[i].state, NULL, &m->instances[i], err),
                             PROA_OK);
    }
    m->stats = proa_stats_new();
    atomic_init(&m->refs, 1);
    atomic_init(&m->state_now, PROA_STATE_READY);
    return proa_scheduler_new(&m->scheduler, m, err);
}

static inline void rig_close(rig *g)
{
    proa_served_model *m = &g->model;
    if (m->scheduler) proa_scheduler_stop(m->scheduler);
    for (int i = 0; atomic_load(&m->refs) > 1; i++) {
        assert_true(i < 20000);
        rig_sleep_ms(1);
    }
    proa_scheduler_free(m->scheduler);
    for (int i = 0; i < m->instances_count; i++)
        if (m->backend->instance_close) m->backend->instance_close(m->instances[i].state);
    free(m->instances);
    proa_stats_free(m->stats);
    proa_arena_release(&m->arena);
}

/* A request with one INT64 input "IN" of `elements` elements, all `value`; rows > 0: with that batch dimension. */
static inline proa_infer *rig_request(rig *g, int64_t value, int64_t rows, int64_t elements)
{
    proa_infer *r = proa_infer_new();
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("IN"));
    int64_t n = (rows ? rows : 1) * elements;
    t->type = PROA_TYPE_INT64;
    t->rank = rows ? 2 : 1;
    t->shape[0] = rows ? rows : elements;
    if (rows) t->shape[1] = elements;
    t->bytes = (size_t)n * 8;
    t->buffer = proa_buffer_new(t->bytes);
    t->data = t->buffer->data;
    for (int64_t i = 0; i < n; i++) memcpy(t->buffer->data + i * 8, &value, 8);
    r->model = proa_served_model_hold(&g->model);
    r->model_name = g->model.name;
    r->batch = rows ? rows : 1;
    r->on_reply = rig_on_reply;
    return r;
}

static inline void answer_init(answer *a, proa_infer *r)
{
    pthread_condattr_t attr;
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->change, &attr);
    pthread_condattr_destroy(&attr);
    a->request = r;
    r->user = a;
}

static inline void answer_free(answer *a)
{
    proa_infer_drop(a->request);
    proa_reply_free(a->last);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
}

/* Sends it; the answer keeps the caller's reference for cancels. */
static inline proa_status rig_send(rig *g, answer *a, proa_infer *r, proa_err *err)
{
    answer_init(a, r);
    return proa_scheduler_enqueue(g->model.scheduler, r, err);
}

/* Waits until the final reply has come, or at least `replies`; false after ms. */
static inline bool answer_wait_for(answer *a, int replies, int ms)
{
    int64_t until = proa_clock_ns() + (int64_t)ms * 1000000;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int failed = 0;
    pthread_mutex_lock(&a->lock);
    while (!a->done && a->replies < replies && !failed)
        failed = pthread_cond_timedwait(&a->change, &a->lock, &t);
    bool there = a->done || a->replies >= replies;
    pthread_mutex_unlock(&a->lock);
    return there;
}

static inline bool answer_wait(answer *a)
{
    return answer_wait_for(a, INT32_MAX, 20000);
}

static inline bool answer_is_done(answer *a)
{
    pthread_mutex_lock(&a->lock);
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    return done;
}

/* The usual answer of a test's backend: OUT is IN. */
static inline void rig_echo(proa_infer *r)
{
    proa_reply *reply = proa_reply_new(r);
    proa_tensor *t = proa_reply_add(reply, "OUT");
    const char *name = t->name;
    proa_tensor_share(t, proa_infer_input(r, "IN"));
    t->name = name;
    proa_infer_reply(r, reply, true);
}

/* A gate at which executions wait. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool open;
    int waiting, passes; /* passes: so many may pass a closed gate */
} gate;

#define GATE_CLOSED                                                                                          \
    {                                                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER                                \
    }

static inline void gate_pass(gate *d)
{
    pthread_mutex_lock(&d->lock);
    d->waiting++;
    pthread_cond_broadcast(&d->change);
    while (!d->open && d->passes == 0) pthread_cond_wait(&d->change, &d->lock);
    if (!d->open) d->passes--;
    d->waiting--;
    pthread_mutex_unlock(&d->lock);
}

static inline void gate_set(gate *d, bool open, int passes)
{
    pthread_mutex_lock(&d->lock);
    d->open = open;
    d->passes = passes;
    pthread_cond_broadcast(&d->change);
    pthread_mutex_unlock(&d->lock);
}

static inline void gate_await(gate *d, int waiting)
{
    pthread_mutex_lock(&d->lock);
    while (d->waiting < waiting) pthread_cond_wait(&d->change, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

#endif
