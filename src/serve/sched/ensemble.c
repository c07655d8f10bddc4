/* SPDX-License-Identifier: Apache-2.0
 * Ensembles: a request's tensors go through the graph of graph.h, by reference. A step starts as soon as its inputs are
 * there; several that are ready run side by side (those that run on the caller's thread come last). A decoupled step
 * opens a scope for each of its replies; replies of the ensemble leave in the order of these scopes.
 * A step that fails makes the ensemble fail: the others are cancelled, and when all have ended the error is told. */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/sched/ensemble.h"
#include <string.h>

/* ---- scopes and tensors ---- */

static void scope_unref(proa_scope *scope, const proa_graph *g)
{
    if (--scope->refs > 0) return;
    for (int i = 0; i < g->labels[scope->label].values; i++) proa_tensor_release(&scope->values[i].tensor);
    proa_reply_free(scope->reply);
    if (scope->own) free(scope);
}

static size_t scope_bytes(const proa_graph_label *l)
{
    return sizeof(proa_scope) + (size_t)l->values * sizeof(proa_value) + (size_t)l->steps * sizeof(proa_due);
}

/* memory is zeroed. One reference. */
static proa_scope *scope_init(void *memory, proa_run *run, int label)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_infer *r = run->request;
    proa_scope *scope = memory;
    scope->label = label;
    scope->refs = 1;
    scope->values = (proa_value *)(scope + 1);
    scope->dues = (proa_due *)(scope->values + g->labels[label].values);
    for (int i = 0; i < g->labels[label].steps; i++) scope->dues[i].missing = g->labels[label].missing[i];
    if (label != g->out_label) return scope;
    scope->outputs_missing = r->outputs_count ? r->outputs_count : r->model->outputs_count;
    scope->refs++;
    if (run->out_last) run->out_last->next = scope;
    else run->out_first = scope;
    run->out_last = scope;
    return scope;
}

static bool needed(const proa_run *run, int step)
{
    return !run->needed || run->needed[step];
}

static void push_due(proa_run *run, proa_scope *scope, int step)
{
    const proa_graph_step *s = &run->ensemble->graph->steps[step];
    proa_due *d = &scope->dues[s->place];
    if (--d->missing > 0) return;
    d->scope = scope;
    d->step = step;
    d->next = NULL;
    scope->refs++;
    *run->due_last[s->brief] = d;
    run->due_last[s->brief] = &d->next;
}

static proa_due *pop_due(proa_run *run)
{
    for (int brief = 0; brief < 2; brief++) {
        proa_due *d = run->due[brief];
        if (!d) continue;
        run->due[brief] = d->next;
        if (!d->next) run->due_last[brief] = &run->due[brief];
        return d;
    }
    return NULL;
}

/* How many outputs that the client wants is this tensor? Known configurations list one output twice. */
static int wanted(const proa_run *run, int tensor)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_model *m = run->request->model;
    int count = 0;
    for (int i = 0; i < m->outputs_count; i++)
        count += g->outputs[i] == tensor && proa_infer_wants(run->request, m->outputs[i].name);
    return run->request->outputs_count && count ? 1 : count;
}

static void make_reply(proa_run *run, proa_scope *scope)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_model *m = run->request->model;
    scope->reply = proa_reply_new(run->request);
    for (int i = 0; i < m->outputs_count; i++) {
        proa_value *v = &scope->values[g->tensors[g->outputs[i]].slot];
        if (!proa_infer_wants(run->request, m->outputs[i].name) || !v->tensor.name) continue;
        if (proa_reply_output(scope->reply, m->outputs[i].name)) continue;
        proa_tensor *t = proa_reply_add(scope->reply, m->outputs[i].name);
        const char *name = t->name;
        proa_tensor_share(t, &v->tensor);
        t->name = name;
        proa_value_fit(t, v, &m->outputs[i], m->batch_max > 0);
    }
}

/* Takes the scope of a failure, and those behind it, out of the order of the replies. False: it is not there. */
static bool cut_order(proa_run *run, const proa_scope *scope)
{
    proa_scope **at = &run->out_first, *last = NULL;
    while (*at && *at != scope) {
        last = *at;
        at = &last->next;
    }
    proa_scope *gone = *at;
    if (!gone) return false;
    *at = NULL;
    run->out_last = last;
    while (gone) {
        proa_scope *next = gone->next;
        gone->late = true;
        scope_unref(gone, run->ensemble->graph);
        gone = next;
    }
    return true;
}

/* Does work for this scope still make sense? After a failure, only for replies that come before it. */
static bool goes_on(const proa_run *run, const proa_scope *scope)
{
    if (!run->error) return true;
    return run->drains && scope->label == run->ensemble->graph->out_label && !scope->late;
}

/* scope: where it happened; NULL: the client has left, nobody wants what is under way. */
static void fail(proa_run *run, const proa_scope *scope, proa_status status, const char *text)
{
    bool drains = scope && run->request->model->decoupled && (!run->error || run->drains);
    bool cut = drains && cut_order(run, scope);
    if (cut || drains != run->drains) run->told = false;
    run->drains = drains;
    if (run->error) return;
    run->error = PROA_ARENA_NEW(&run->request->arena, proa_err, 1);
    proa_err_set(run->error, status, __FILE__, __LINE__, "in ensemble '%s', %s", run->request->model->name, text);
}

static void fail_as(proa_run *run, const proa_scope *scope, const proa_err *why)
{
    if (run->error) return;
    char *text = proa_err_whole_text(why);
    fail(run, scope, why->status, text);
    free(text);
}

/* A tensor has come (from: NULL, it will not come). batch: see proa_value. */
static void put(proa_run *run, proa_scope *scope, int tensor, const proa_tensor *from, int64_t batch)
{
    const proa_graph_tensor *t = &run->ensemble->graph->tensors[tensor];
    proa_value *v = &scope->values[t->slot];
    if (v->came) { /* its model is not decoupled, as the ensemble knows it */
        fail(run, scope, PROA_INTERNAL, "a step sent more than one reply");
        return;
    }
    v->came = true;
    v->batch = batch;
    if (from) {
        proa_tensor_share(&v->tensor, from);
        v->tensor.name = t->name;
    }
    int outputs = wanted(run, tensor);
    for (int i = 0; i < t->consumers_count; i++) v->uses += needed(run, t->consumers[i]);
    v->uses += outputs > 0;
    for (int i = 0; i < t->consumers_count; i++)
        if (needed(run, t->consumers[i])) push_due(run, scope, t->consumers[i]);
    if (outputs && (scope->outputs_missing -= outputs) == 0) make_reply(run, scope);
    if (v->uses == 0) proa_tensor_release(&v->tensor);
}

/* ---- the end ---- */

static void drop_models(proa_run *run)
{
    for (int i = 0; i < run->ensemble->graph->steps_count; i++)
        if (run->models[i]) proa_model_drop(run->models[i]);
}

/* The steps' times, in sum, as if one after the other: what of it was computing, what moving tensors. */
static void set_times(proa_run *run)
{
    proa_infer_times *t = &run->request->times;
    t->input_end = t->compute_start + run->input_ns;
    t->output_start = t->input_end + run->infer_ns;
    t->compute_end = t->output_start + run->output_ns;
}

static proa_reply *pop_reply(proa_run *run)
{
    proa_scope *scope = run->out_first;
    proa_reply *reply = scope->reply;
    scope->reply = NULL;
    run->out_first = scope->next;
    if (!run->out_first) run->out_last = NULL;
    scope_unref(scope, run->ensemble->graph);
    return reply;
}

static void reply_last(proa_infer *r, proa_reply *reply)
{
    proa_err err = {0};
    if (reply || r->model->decoupled) {
        proa_infer_reply(r, reply, true);
        return;
    }
    PROA_FAIL(&err, INVALID,
              "in ensemble '%s', [request id: %s] unexpected deadlock, at least one output is not set while "
              "no more "
              "ensemble steps can be made",
              r->model->name, proa_infer_log_id(r));
    proa_scheduler_fail(r, &err, PROA_FAIL_OTHER);
}

/* No step runs, none is due. With the lock, which is left. After the last reply the run is gone. */
static void finish(proa_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    proa_infer *r = run->request;
    proa_reply *last = NULL;
    run->finished = true;
    for (proa_due *d; (d = pop_due(run)) != NULL;) scope_unref(d->scope, g);
    scope_unref(run->root, g);
    pthread_mutex_unlock(&run->lock);
    while (run->out_first) {
        proa_reply *reply = pop_reply(run);
        bool wanted = !run->error || run->drains;
        if (!wanted) proa_reply_free(reply);
        if (!reply || !wanted) continue;
        if (last) proa_infer_reply(r, last, false);
        last = reply;
    }
    drop_models(run);
    set_times(run);
    if (run->error) {
        proa_err err = *run->error;
        if (last) proa_infer_reply(r, last, false);
        proa_scheduler_fail(r, &err, err.status == PROA_CANCELLED ? PROA_FAIL_CANCELED : PROA_FAIL_OTHER);
        return;
    }
    r->ticket.rows = r->batch > 0 ? r->batch : 1;
    reply_last(r, last);
}

/* ---- driving ---- */

/* After a failure: cancels the legs that nobody needs. With the lock, which is left meanwhile. */
static void tell_legs(proa_run *run)
{
    int count = 0;
    run->told = true;
    for (proa_leg *c = run->legs; c; c = c->next) count++;
    proa_leg **legs = proa_calloc((size_t)count + 1, sizeof(proa_leg *));
    count = 0;
    for (proa_leg *c = run->legs; c; c = c->next) {
        if (goes_on(run, c->scope)) continue;
        proa_infer_hold(c->request);
        legs[count++] = c;
    }
    pthread_mutex_unlock(&run->lock);
    for (int i = 0; i < count; i++) {
        proa_infer *step = legs[i]->request;
        proa_leg_cancel(legs[i]);
        proa_infer_drop(step);
    }
    free(legs);
    pthread_mutex_lock(&run->lock);
}

static void start_step(proa_run *run, proa_due *d)
{
    proa_leg *leg = proa_leg_new(run, d); /* takes over the due's reference of the scope */
    leg->next = run->legs;
    if (run->legs) run->legs->prev = leg;
    run->legs = leg;
    run->inflight++;
    atomic_fetch_add(&run->ensemble->scheduler->busy, 1); /* the leg's end looks at the ensemble after the run's */
    pthread_mutex_unlock(&run->lock);
    proa_leg_start(leg);
    pthread_mutex_lock(&run->lock);
}

/* One thing to do, if there is one. With the lock, which may be left meanwhile. */
static bool drive_once(proa_run *run)
{
    if (run->error && !run->told) {
        tell_legs(run);
        return true;
    }
    proa_due *d = pop_due(run);
    if (d && !goes_on(run, d->scope)) {
        scope_unref(d->scope, run->ensemble->graph);
        return true;
    }
    if (d) {
        start_step(run, d);
        return true;
    }
    /* The last reply goes with the end, so it waits for that. */
    if (run->inflight == 0 || !run->request->model->decoupled || (run->error && !run->drains)) return false;
    if (!run->out_first || !run->out_first->reply) return false;
    proa_reply *reply = pop_reply(run);
    pthread_mutex_unlock(&run->lock);
    proa_infer_reply(run->request, reply, false);
    pthread_mutex_lock(&run->lock);
    return true;
}

/* With the lock, which is left. */
static void drive(proa_run *run)
{
    if (run->driven || run->finished) {
        pthread_mutex_unlock(&run->lock);
        return;
    }
    run->driven = true;
    while (drive_once(run)) {
    }
    run->driven = false;
    if (run->inflight == 0) finish(run);
    else pthread_mutex_unlock(&run->lock);
}

/* ---- what comes back from steps ---- */

static void accept(proa_run *run, proa_leg *leg, const proa_reply *reply)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_graph_step *step = &g->steps[leg->step];
    int64_t batch = leg->request->model->batch_max > 0 ? leg->request->batch : 0;
    proa_scope *scope = leg->scope;
    if (step->decoupled) {
        scope = scope_init(proa_calloc(1, scope_bytes(&g->labels[step->out_label])), run, step->out_label);
        scope->own = true;
    }
    for (int i = 0; i < step->outputs_count; i++)
        put(run, scope, step->outputs[i].tensor, proa_reply_output(reply, step->outputs[i].name), batch);
    if (step->decoupled) scope_unref(scope, g);
}

/* With the lock: the leg is no longer the run's. */
static void end_leg(proa_run *run, proa_leg *leg)
{
    if (leg->prev) leg->prev->next = leg->next;
    else run->legs = leg->next;
    if (leg->next) leg->next->prev = leg->prev;
    run->inflight--;
    scope_unref(leg->scope, run->ensemble->graph);
}

static void add_times(proa_run *run, const proa_infer_times *t)
{
    proa_infer_parts p = proa_infer_parts_of(t);
    run->input_ns += p.input;
    run->infer_ns += p.infer;
    run->output_ns += p.output;
}

/* Without the lock; the run may be gone. */
static void release_leg(proa_ensemble *e, int step, proa_infer *request)
{
    proa_leg_ended(e, step);
    proa_infer_drop(request);
    atomic_fetch_sub(&e->scheduler->busy, 1);
}

void proa_run_reply(proa_infer *step, proa_reply *reply, bool final)
{
    proa_leg *leg = step->user;
    proa_run *run = leg->run;
    proa_ensemble *e = run->ensemble;
    int index = leg->step;
    pthread_mutex_lock(&run->lock);
    if (reply && reply->error.status != PROA_OK) fail_as(run, leg->scope, &reply->error);
    else if (reply && goes_on(run, leg->scope)) accept(run, leg, reply);
    if (final) {
        add_times(run, &step->times);
        end_leg(run, leg);
    }
    drive(run);
    proa_reply_free(reply);
    if (final) release_leg(e, index, step);
    else proa_leg_hold_back(e, step, index);
}

bool proa_run_has_due(proa_run *run)
{
    pthread_mutex_lock(&run->lock);
    bool due = !run->error && (run->due[0] || run->due[1]);
    pthread_mutex_unlock(&run->lock);
    return due;
}

void proa_leg_failed(proa_leg *leg, const proa_err *err)
{
    proa_run *run = leg->run;
    proa_ensemble *e = run->ensemble;
    proa_infer *request = leg->request;
    int index = leg->step;
    pthread_mutex_lock(&run->lock);
    fail_as(run, leg->scope, err);
    end_leg(run, leg);
    drive(run);
    release_leg(e, index, request);
}

/* ---- the scheduler ---- */

static void on_cancel(proa_infer *r)
{
    proa_run *run = r->ticket.slot;
    pthread_mutex_lock(&run->lock);
    if (!run->finished) fail(run, NULL, PROA_CANCELLED, "Request cancelled");
    drive(run);
}

/* What the requested outputs need; all: NULL. */
static const bool *steps_needed(const proa_graph *g, proa_infer *r)
{
    const proa_model *m = r->model;
    bool *needs, all = true;
    for (int i = 0; i < m->outputs_count; i++) all = all && proa_infer_wants(r, m->outputs[i].name);
    if (all) return NULL;
    needs = PROA_ARENA_NEW(&r->arena, bool, g->steps_count);
    for (int i = 0; i < m->outputs_count; i++)
        for (int s = 0; s < g->steps_count && proa_infer_wants(r, m->outputs[i].name); s++)
            needs[s] = needs[s] || g->needs[i][s];
    return needs;
}

/* The models stay what they are for this request, whatever is loaded meanwhile. */
static void hold_models(proa_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    for (int i = 0; i < g->steps_count && !run->error; i++) {
        proa_err err = {0};
        if (!needed(run, i)) continue;
        if (proa_server_find(run->request->model->server, g->steps[i].model, g->steps[i].version,
                             &run->models[i], &err) != PROA_OK) {
            run->models[i] = NULL;
            fail_as(run, run->root, &err);
        }
    }
}

static proa_run *run_new(proa_ensemble *e, proa_infer *r)
{
    const proa_graph *g = e->graph;
    proa_run *run = PROA_ARENA_NEW(&r->arena, proa_run, 1);
    pthread_mutex_init(&run->lock, NULL); /* never destroyed: a late cancel may still take it, while it holds r */
    run->ensemble = e;
    run->request = r;
    run->models = PROA_ARENA_NEW(&r->arena, proa_model *, g->steps_count);
    run->needed = steps_needed(g, r);
    for (int i = 0; i < 2; i++) run->due_last[i] = &run->due[i];
    run->root = scope_init(proa_arena_alloc(&r->arena, scope_bytes(&g->labels[0])), run, 0);
    return run;
}

static void put_inputs(proa_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    proa_infer *r = run->request;
    const proa_model *m = r->model;
    for (int i = 0; i < m->inputs_count; i++)
        put(run, run->root, g->inputs[i], proa_infer_input(r, m->inputs[i].name),
            m->batch_max > 0 ? r->batch : 0);
}

static proa_status enqueue(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    PROA_UNUSED(err);
    proa_run *run = run_new(s->state, r);
    r->times.compute_start = proa_clock_ns();
    hold_models(run);
    if (!run->error) put_inputs(run);
    r->ticket.slot = run;
    run->driven = true; /* a cancel only notes itself until we drive */
    proa_infer_watch(r, on_cancel);
    pthread_mutex_lock(&run->lock);
    run->driven = false;
    drive(run);
    return PROA_OK;
}

static proa_status open_ensemble(proa_scheduler *s, proa_err *err)
{
    proa_ensemble *e = PROA_ARENA_NEW(&s->model->arena, proa_ensemble, 1);
    e->scheduler = s;
    s->state = e;
    PROA_TRY(proa_graph_compile(&e->graph, s->model, err));
    return proa_limits_open(e, s->model->config->ensemble_scheduling->max_inflight_requests);
}

static void close_ensemble(proa_scheduler *s)
{
    if (s->state) proa_limits_close(s->state);
}

const proa_scheduler_kind proa_sched_ensemble = {
    .name = "ensemble",
    .open = open_ensemble,
    .close = close_ensemble,
    .enqueue = enqueue,
};
