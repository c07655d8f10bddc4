/* SPDX-License-Identifier: Apache-2.0
 * step_call.c - the calls of an ensemble's steps: builds their requests and limits how many are in flight. */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/sched/ensemble.h"
#include "serve/trace.h"
#include <sched.h>
#include <string.h>
#include <time.h>

#define THROTTLE_NS                                                                                          \
    ((int64_t)10000000000) /* at most: a step could be queued behind the one that it waits for */

/* ---- inputs of a step ---- */

/* Do the dimensions after the batch dimension fit the model? */
static bool dims_match(const proa_io *io, bool batched, const int64_t *shape, int32_t rank)
{
    if (rank != io->rank - batched) return false;
    for (int32_t i = 0; i < rank; i++)
        if (io->shape[i + batched] != -1 && io->shape[i + batched] != shape[i]) return false;
    return true;
}

/* The FIL backend's replies leave out dimensions of 1; this adds them again. */
static void add_ones(proa_tensor *t, const proa_io *io)
{
    int32_t rank = 1;
    if (t->rank != 1) return;
    for (; rank < io->rank && io->shape[rank] == 1; rank++) t->shape[rank] = 1;
    if (rank == io->rank) t->rank = rank;
}

void proa_ensemble_value_fit(proa_tensor *t, const proa_ensemble_value *value, const proa_io *io, bool batched)
{
    if (!io) return;
    if (batched && value->batch) add_ones(t, io);
    if (batched == (value->batch != 0)) return;
    if (batched && dims_match(io, true, t->shape, t->rank) && t->rank < (int32_t)PROA_COUNT(t->shape)) {
        memmove(t->shape + 1, t->shape, (size_t)t->rank * sizeof *t->shape);
        t->shape[0] = 1;
        t->rank++;
    } else if (!batched && value->batch == 1 && t->rank > 0 && !dims_match(io, false, t->shape, t->rank)) {
        t->rank--;
        memmove(t->shape, t->shape + 1, (size_t)t->rank * sizeof *t->shape);
    }
}

static void add_inputs(proa_infer *r, const proa_ensemble_run *run, const proa_ready_step *ready)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_graph_step *step = &g->steps[ready->step];
    const proa_served_model *m = run->models[ready->step];
    r->inputs = PROA_ARENA_NEW(&r->arena, proa_tensor, step->inputs_count);
    r->inputs_cap = step->inputs_count;
    for (int i = 0; i < step->inputs_count; i++) {
        const proa_graph_edge *edge = &step->inputs[i];
        proa_ensemble_value *v = &ready->scope->values[g->tensors[edge->tensor].slot];
        v->uses--;
        if (!v->tensor.name) continue;
        proa_tensor *t = &r->inputs[r->inputs_count++];
        if (v->uses) {
            proa_tensor_share(t, &v->tensor);
        } else { /* the last use: the reference moves to the request */
            *t = v->tensor;
            v->tensor.buffer = NULL;
        }
        t->name = edge->name;
        proa_ensemble_value_fit(t, v, proa_served_model_input(m, edge->name), m->batch_max > 0);
    }
}

proa_step_call *proa_step_call_new(proa_ensemble_run *run, proa_ready_step *ready)
{
    const proa_infer *parent = run->request;
    const proa_graph_step *step = &run->ensemble->graph->steps[ready->step];
    proa_infer *r = proa_infer_new();
    proa_step_call *call = PROA_ARENA_NEW(&r->arena, proa_step_call, 1);
    *call = (proa_step_call){.run = run, .scope = ready->scope, .request = r, .step = ready->step};
    if (*parent->id) r->id = proa_arena_strdup(&r->arena, proa_str_c(parent->id));
    r->model_name = step->model;
    r->model_version = step->version;
    r->model = proa_served_model_hold(run->models[ready->step]);
    r->params = parent->params; /* they live until the ensemble's reply, and are read-only */
    r->params_count = r->params_cap = parent->params_count;
    r->outputs = step->output_names;
    r->outputs_count = r->outputs_cap = step->outputs_count;
    r->sequence_id = parent->sequence_id;
    r->sequence_name = parent->sequence_name;
    r->sequence_start = parent->sequence_start;
    r->sequence_end = parent->sequence_end;
    r->client = parent->client; /* as long as the parameters */
    r->priority = parent->priority;
    r->timeout_us = parent->timeout_us;
    r->deadline_ns = parent->deadline_ns;
    r->silent = parent->silent;
    r->inner = true;
    r->device_replies = true; /* the next step may be on the same device; else check.c copies its inputs */
    r->on_reply = run->ensemble->on_reply;
    r->user = call;
    add_inputs(r, run, ready);
    if (PROA_UNLIKELY(parent->trace != NULL)) proa_trace_add(parent, r);
    return call;
}

/* ---- starting ---- */

static proa_status check_and_enqueue(proa_infer *r, proa_err *err)
{
    PROA_TRY(proa_infer_check(r->model, r, err));
    return proa_scheduler_enqueue(r->model->scheduler, r, err);
}

static void submit_call(proa_step_call *call)
{
    proa_err err = {0};
    if (check_and_enqueue(call->request, &err) != PROA_OK) call->run->ensemble->on_failure(call, &err);
}

/* Starts waiting calls while the limit allows. One thread at a time: a call may end while it is being started, and must
 * not start the next one from there (recursion). */
static void start_waiting(proa_ensemble *e, proa_step_limit *l)
{
    pthread_mutex_lock(&l->lock);
    bool others = l->starting;
    l->starting = true;
    while (!others && l->first && l->inflight < e->inflight_max) {
        proa_step_call *call = l->first;
        l->first = call->next_waiting;
        if (!l->first) l->last = NULL;
        call->waiting = false;
        l->waiting--;
        l->inflight++;
        pthread_cond_broadcast(&l->room);
        pthread_mutex_unlock(&l->lock);
        submit_call(call);
        pthread_mutex_lock(&l->lock);
    }
    if (!others) l->starting = false;
    pthread_mutex_unlock(&l->lock);
}

void proa_step_call_start(proa_step_call *call)
{
    proa_ensemble *e = call->run->ensemble;
    proa_step_limit *l = e->limits ? &e->limits[call->step] : NULL;
    if (!l) {
        submit_call(call);
        return;
    }
    pthread_mutex_lock(&l->lock);
    call->waiting = true;
    if (l->last) l->last->next_waiting = call;
    else l->first = call;
    l->last = call;
    l->waiting++;
    pthread_mutex_unlock(&l->lock);
    start_waiting(e, l);
}

void proa_step_call_ended(proa_ensemble *e, int step)
{
    if (!e->limits) return;
    proa_step_limit *l = &e->limits[step];
    pthread_mutex_lock(&l->lock);
    l->inflight--;
    pthread_mutex_unlock(&l->lock);
    start_waiting(e, l);
}

/* Removes a call from the waiting list. False: it was not in it. It then counts as started, like one that fails. */
static bool stop_waiting(proa_step_limit *l, proa_step_call *call)
{
    pthread_mutex_lock(&l->lock);
    bool was = call->waiting;
    proa_step_call *before = NULL;
    for (proa_step_call *c = was ? l->first : NULL; c && c != call; c = c->next_waiting) before = c;
    if (was) {
        if (before) before->next_waiting = call->next_waiting;
        else l->first = call->next_waiting;
        if (l->last == call) l->last = before;
        call->waiting = false;
        l->waiting--;
        l->inflight++;
        pthread_cond_broadcast(&l->room);
    }
    pthread_mutex_unlock(&l->lock);
    return was;
}

void proa_step_call_cancel(proa_step_call *call)
{
    proa_ensemble *e = call->run->ensemble;
    proa_err err = {0};
    proa_infer_cancel(call->request);
    if (!e->limits || !stop_waiting(&e->limits[call->step], call)) return;
    PROA_FAIL(&err, CANCELLED, "Request cancelled");
    e->on_failure(call, &err);
}

static void wait_for_room(proa_step_limit *l, const proa_infer *request, int64_t until_ns)
{
    pthread_mutex_lock(&l->lock);
    for (int64_t now; l->waiting > 0 && (now = proa_clock_ns()) < until_ns && !proa_infer_cancelled(request);) {
        int64_t at = now + 10000000; /* to see a cancel */
        struct timespec t = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
        pthread_cond_timedwait(&l->room, &l->lock, &t);
    }
    pthread_mutex_unlock(&l->lock);
}

/* Is a step ready that has not been started? */
static bool has_ready(proa_ensemble_run *run)
{
    pthread_mutex_lock(&run->lock);
    bool ready = !run->error && (run->ready[0] || run->ready[1]);
    pthread_mutex_unlock(&run->lock);
    return ready;
}

void proa_step_call_throttle(proa_ensemble *e, const proa_infer *request, int step)
{
    const proa_graph *g = e->graph;
    const proa_graph_step *s = &g->steps[step];
    if (!e->limits || !proa_executor_on_instance_thread()) return;
    int64_t until_ns = proa_clock_ns() + THROTTLE_NS;
    /* Another thread drives the run and has not yet started the step that this reply is for. */
    while (has_ready(((proa_step_call *)request->user)->run) && proa_clock_ns() < until_ns) sched_yield();
    for (int i = 0; i < s->outputs_count; i++) {
        const proa_graph_tensor *t = &g->tensors[s->outputs[i].tensor];
        for (int j = 0; j < t->consumers_count; j++)
            wait_for_room(&e->limits[t->consumers[j]], request, until_ns);
    }
}

proa_status proa_step_limits_open(proa_ensemble *e, uint32_t inflight_max)
{
    pthread_condattr_t attr;
    e->inflight_max = inflight_max;
    if (inflight_max == 0) return PROA_OK;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    e->limits = proa_calloc((size_t)e->graph->steps_count, sizeof *e->limits);
    for (int i = 0; i < e->graph->steps_count; i++) {
        pthread_mutex_init(&e->limits[i].lock, NULL);
        pthread_cond_init(&e->limits[i].room, &attr);
    }
    pthread_condattr_destroy(&attr);
    return PROA_OK;
}

void proa_step_limits_close(proa_ensemble *e)
{
    for (int i = 0; e->limits && i < e->graph->steps_count; i++) {
        pthread_cond_destroy(&e->limits[i].room);
        pthread_mutex_destroy(&e->limits[i].lock);
    }
    free(e->limits);
}
