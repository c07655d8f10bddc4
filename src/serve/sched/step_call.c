/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/sched/ensemble.h"
#include <sched.h>
#include <string.h>
#include <time.h>

#define HOLD_BACK_NS                                                                                         \
    ((int64_t)10000000000) /* at most: a step could stand behind the one that it holds back */

/* ---- what a step gets ---- */

/* The dimensions behind the batch dimension, as the model wants them? */
static bool dims_match(const proa_io *io, bool batched, const int64_t *shape, int32_t rank)
{
    if (rank != io->rank - batched) return false;
    for (int32_t i = 0; i < rank; i++)
        if (io->shape[i + batched] != -1 && io->shape[i + batched] != shape[i]) return false;
    return true;
}

/* A forest's replies leave out dimensions of 1; here they come back. */
static void add_ones(proa_tensor *t, const proa_io *io)
{
    int32_t rank = 1;
    if (t->rank != 1) return;
    for (; rank < io->rank && io->shape[rank] == 1; rank++) t->shape[rank] = 1;
    if (rank == io->rank) t->rank = rank;
}

void proa_value_fit(proa_tensor *t, const proa_value *value, const proa_io *io, bool batched)
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

static void add_inputs(proa_infer *r, const proa_run *run, const proa_due *due)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_graph_step *step = &g->steps[due->step];
    const proa_model *m = run->models[due->step];
    r->inputs = PROA_ARENA_NEW(&r->arena, proa_tensor, step->inputs_count);
    r->inputs_cap = step->inputs_count;
    for (int i = 0; i < step->inputs_count; i++) {
        const proa_graph_edge *edge = &step->inputs[i];
        proa_value *v = &due->scope->values[g->tensors[edge->tensor].slot];
        v->uses--;
        if (!v->tensor.name) continue;
        proa_tensor *t = &r->inputs[r->inputs_count++];
        if (v->uses) {
            proa_tensor_share(t, &v->tensor);
        } else { /* nobody else will ask for it: it moves on */
            *t = v->tensor;
            v->tensor.buffer = NULL;
        }
        t->name = edge->name;
        proa_value_fit(t, v, proa_model_input(m, edge->name), m->batch_max > 0);
    }
}

proa_leg *proa_leg_new(proa_run *run, proa_due *due)
{
    const proa_infer *whole = run->request;
    const proa_graph_step *step = &run->ensemble->graph->steps[due->step];
    proa_infer *r = proa_infer_new();
    proa_leg *leg = PROA_ARENA_NEW(&r->arena, proa_leg, 1);
    *leg = (proa_leg){.run = run, .scope = due->scope, .request = r, .step = due->step};
    if (*whole->id) r->id = proa_arena_strdup(&r->arena, proa_str_c(whole->id));
    r->model_name = step->model;
    r->model_version = step->version;
    r->model = proa_model_hold(run->models[due->step]);
    r->params = whole->params; /* they live until the ensemble's reply, and nobody adds to them */
    r->params_count = r->params_cap = whole->params_count;
    r->outputs = step->output_names;
    r->outputs_count = r->outputs_cap = step->outputs_count;
    r->sequence_id = whole->sequence_id;
    r->sequence_name = whole->sequence_name;
    r->sequence_start = whole->sequence_start;
    r->sequence_end = whole->sequence_end;
    r->priority = whole->priority;
    r->timeout_us = whole->timeout_us;
    r->deadline_ns = whole->deadline_ns;
    r->silent = whole->silent;
    r->inner = true;
    r->on_reply = proa_run_reply;
    r->user = leg;
    add_inputs(r, run, due);
    return leg;
}

/* ---- starting ---- */

static proa_status start(proa_infer *r, proa_err *err)
{
    PROA_TRY(proa_infer_check(r->model, r, err));
    return proa_scheduler_enqueue(r->model->scheduler, r, err);
}

static void launch(proa_leg *leg)
{
    proa_err err = {0};
    if (start(leg->request, &err) != PROA_OK) proa_leg_failed(leg, &err);
}

/* Starts those who wait while there is room. One thread at a time: a step that ends while it is started makes room, and
 * must not start the next one from within. */
static void start_waiting(proa_ensemble *e, proa_limit *l)
{
    pthread_mutex_lock(&l->lock);
    bool others = l->starting;
    l->starting = true;
    while (!others && l->first && l->inflight < e->inflight_max) {
        proa_leg *leg = l->first;
        l->first = leg->next_waiting;
        if (!l->first) l->last = NULL;
        leg->waiting = false;
        l->waiting--;
        l->inflight++;
        pthread_cond_broadcast(&l->room);
        pthread_mutex_unlock(&l->lock);
        launch(leg);
        pthread_mutex_lock(&l->lock);
    }
    if (!others) l->starting = false;
    pthread_mutex_unlock(&l->lock);
}

void proa_leg_start(proa_leg *leg)
{
    proa_ensemble *e = leg->run->ensemble;
    proa_limit *l = e->limits ? &e->limits[leg->step] : NULL;
    if (!l) {
        launch(leg);
        return;
    }
    pthread_mutex_lock(&l->lock);
    leg->waiting = true;
    if (l->last) l->last->next_waiting = leg;
    else l->first = leg;
    l->last = leg;
    l->waiting++;
    pthread_mutex_unlock(&l->lock);
    start_waiting(e, l);
}

void proa_leg_ended(proa_ensemble *e, int step)
{
    if (!e->limits) return;
    proa_limit *l = &e->limits[step];
    pthread_mutex_lock(&l->lock);
    l->inflight--;
    pthread_mutex_unlock(&l->lock);
    start_waiting(e, l);
}

/* Takes a leg out of those who wait. False: it was not there. It then counts as started, as one that fails would. */
static bool stop_waiting(proa_limit *l, proa_leg *leg)
{
    pthread_mutex_lock(&l->lock);
    bool was = leg->waiting;
    proa_leg *before = NULL;
    for (proa_leg *c = was ? l->first : NULL; c && c != leg; c = c->next_waiting) before = c;
    if (was) {
        if (before) before->next_waiting = leg->next_waiting;
        else l->first = leg->next_waiting;
        if (l->last == leg) l->last = before;
        leg->waiting = false;
        l->waiting--;
        l->inflight++;
        pthread_cond_broadcast(&l->room);
    }
    pthread_mutex_unlock(&l->lock);
    return was;
}

void proa_leg_cancel(proa_leg *leg)
{
    proa_ensemble *e = leg->run->ensemble;
    proa_err err = {0};
    proa_infer_cancel(leg->request);
    if (!e->limits || !stop_waiting(&e->limits[leg->step], leg)) return;
    PROA_FAIL(&err, CANCELLED, "Request cancelled");
    proa_leg_failed(leg, &err);
}

static void wait_for_room(proa_limit *l, const proa_infer *request, int64_t until_ns)
{
    pthread_mutex_lock(&l->lock);
    for (int64_t now; l->waiting > 0 && (now = proa_clock_ns()) < until_ns && !proa_infer_cancelled(request);) {
        int64_t at = now + 10000000; /* to see a cancel */
        struct timespec t = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
        pthread_cond_timedwait(&l->room, &l->lock, &t);
    }
    pthread_mutex_unlock(&l->lock);
}

void proa_leg_hold_back(proa_ensemble *e, const proa_infer *request, int step)
{
    const proa_graph *g = e->graph;
    const proa_graph_step *s = &g->steps[step];
    if (!e->limits || !proa_crew_is_here()) return;
    int64_t until_ns = proa_clock_ns() + HOLD_BACK_NS;
    /* Another thread drives the run and has not come to start what this reply is for. */
    while (proa_run_has_due(((proa_leg *)request->user)->run) && proa_clock_ns() < until_ns) sched_yield();
    for (int i = 0; i < s->outputs_count; i++) {
        const proa_graph_tensor *t = &g->tensors[s->outputs[i].tensor];
        for (int j = 0; j < t->consumers_count; j++)
            wait_for_room(&e->limits[t->consumers[j]], request, until_ns);
    }
}

proa_status proa_limits_open(proa_ensemble *e, uint32_t inflight_max)
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

void proa_limits_close(proa_ensemble *e)
{
    for (int i = 0; e->limits && i < e->graph->steps_count; i++) {
        pthread_cond_destroy(&e->limits[i].room);
        pthread_mutex_destroy(&e->limits[i].lock);
    }
    free(e->limits);
}
