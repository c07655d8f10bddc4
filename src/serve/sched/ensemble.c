/* SPDX-License-Identifier: Apache-2.0
 * ensemble.c - runs a request through an ensemble's graph: tensors between steps, replies, failures. Tensors travel
 * through the graph of graph.h by reference. A step starts as soon as its inputs have arrived; steps that are ready
 * run in parallel (those that execute on the caller's thread are started last). A decoupled step opens a new scope for
 * each of its replies, and the ensemble's replies leave in the order of these scopes. When a step fails, the ensemble
 * fails: the other calls are cancelled, and the error is returned when all have ended. */
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
    if (scope->allocated) free(scope);
}

static size_t scope_bytes(const proa_graph_label *l)
{
    return sizeof(proa_scope) + (size_t)l->values * sizeof(proa_ensemble_value) +
           (size_t)l->steps * sizeof(proa_ready_step);
}

/* memory is zeroed. One reference. */
static proa_scope *scope_init(void *memory, proa_ensemble_run *run, int label)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_infer *r = run->request;
    proa_scope *scope = memory;
    scope->label = label;
    scope->refs = 1;
    scope->values = (proa_ensemble_value *)(scope + 1);
    scope->step_states = (proa_ready_step *)(scope->values + g->labels[label].values);
    for (int i = 0; i < g->labels[label].steps; i++)
        scope->step_states[i].missing = g->labels[label].missing[i];
    if (label != g->out_label) return scope;
    scope->outputs_missing = r->outputs_count ? r->outputs_count : r->model->outputs_count;
    scope->refs++;
    if (run->out_last) run->out_last->next = scope;
    else run->out_first = scope;
    run->out_last = scope;
    return scope;
}

static bool step_needed(const proa_ensemble_run *run, int step)
{
    return !run->needed || run->needed[step];
}

static void input_arrived(proa_ensemble_run *run, proa_scope *scope, int step)
{
    const proa_graph_step *s = &run->ensemble->graph->steps[step];
    proa_ready_step *d = &scope->step_states[s->place];
    if (--d->missing > 0) return;
    d->scope = scope;
    d->step = step;
    d->next = NULL;
    scope->refs++;
    *run->ready_last[s->on_caller] = d;
    run->ready_last[s->on_caller] = &d->next;
}

static proa_ready_step *pop_ready(proa_ensemble_run *run)
{
    for (int on_caller = 0; on_caller < 2; on_caller++) {
        proa_ready_step *d = run->ready[on_caller];
        if (!d) continue;
        run->ready[on_caller] = d->next;
        if (!d->next) run->ready_last[on_caller] = &run->ready[on_caller];
        return d;
    }
    return NULL;
}

/* How many requested outputs is this tensor? Some configurations list one output twice. */
static int count_wanted(const proa_ensemble_run *run, int tensor)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_served_model *m = run->request->model;
    int count = 0;
    for (int i = 0; i < m->outputs_count; i++)
        count += g->outputs[i] == tensor && proa_infer_wants(run->request, m->outputs[i].name);
    return run->request->outputs_count && count ? 1 : count;
}

static void make_reply(proa_ensemble_run *run, proa_scope *scope)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_served_model *m = run->request->model;
    scope->reply = proa_reply_new(run->request);
    for (int i = 0; i < m->outputs_count; i++) {
        proa_ensemble_value *v = &scope->values[g->tensors[g->outputs[i]].slot];
        if (!proa_infer_wants(run->request, m->outputs[i].name) || !v->tensor.name) continue;
        if (proa_reply_output(scope->reply, m->outputs[i].name)) continue;
        proa_tensor *t = proa_reply_add(scope->reply, m->outputs[i].name);
        const char *name = t->name;
        proa_tensor_share(t, &v->tensor);
        t->name = name;
        proa_ensemble_value_fit(t, v, &m->outputs[i], m->batch_max > 0);
    }
}

/* Removes the scope of a failure, and those after it, from the order of the replies. False: it is not in it. */
static bool cut_order(proa_ensemble_run *run, const proa_scope *scope)
{
    proa_scope **at = &run->out_first, *last = NULL;
    while (*at && *at != scope) {
        last = *at;
        at = &last->next;
    }
    proa_scope *dropped = *at;
    if (!dropped) return false;
    *at = NULL;
    run->out_last = last;
    while (dropped) {
        proa_scope *next = dropped->next;
        dropped->after_failure = true;
        scope_unref(dropped, run->ensemble->graph);
        dropped = next;
    }
    return true;
}

/* Is work for this scope still needed? After a failure, only for replies that come before it. */
static bool still_needed(const proa_ensemble_run *run, const proa_scope *scope)
{
    if (!run->error) return true;
    return run->delivers_earlier && scope->label == run->ensemble->graph->out_label && !scope->after_failure;
}

/* scope: where it happened; NULL: the client has disconnected, so replies in flight are dropped too. */
static void fail_run(proa_ensemble_run *run, const proa_scope *scope, proa_status status, const char *text)
{
    bool delivers_earlier = scope && run->request->model->decoupled && (!run->error || run->delivers_earlier);
    bool cut = delivers_earlier && cut_order(run, scope);
    if (cut || delivers_earlier != run->delivers_earlier) run->cancels_sent = false;
    run->delivers_earlier = delivers_earlier;
    if (run->error) return;
    run->error = PROA_ARENA_NEW(&run->request->arena, proa_err, 1);
    proa_err_set(run->error, status, __FILE__, __LINE__, "in ensemble '%s', %s", run->request->model->name, text);
}

static void fail_run_with(proa_ensemble_run *run, const proa_scope *scope, const proa_err *why)
{
    if (run->error) return;
    char *text = proa_err_whole_text(why);
    fail_run(run, scope, why->status, text);
    free(text);
}

/* A tensor has arrived (from NULL: it will not arrive). batch: see proa_ensemble_value. */
static void put_tensor(proa_ensemble_run *run, proa_scope *scope, int tensor, const proa_tensor *from,
                       int64_t batch)
{
    const proa_graph_tensor *t = &run->ensemble->graph->tensors[tensor];
    proa_ensemble_value *v = &scope->values[t->slot];
    if (v->arrived) { /* the ensemble was compiled with a model that is not decoupled */
        fail_run(run, scope, PROA_INTERNAL, "a step sent more than one reply");
        return;
    }
    v->arrived = true;
    v->batch = batch;
    if (from) {
        proa_tensor_share(&v->tensor, from);
        v->tensor.name = t->name;
    }
    int outputs = count_wanted(run, tensor);
    for (int i = 0; i < t->consumers_count; i++) v->uses += step_needed(run, t->consumers[i]);
    v->uses += outputs > 0;
    for (int i = 0; i < t->consumers_count; i++)
        if (step_needed(run, t->consumers[i])) input_arrived(run, scope, t->consumers[i]);
    if (outputs && (scope->outputs_missing -= outputs) == 0) make_reply(run, scope);
    if (v->uses == 0) proa_tensor_release(&v->tensor);
}

/* ---- the end ---- */

static void drop_models(proa_ensemble_run *run)
{
    for (int i = 0; i < run->ensemble->graph->steps_count; i++)
        if (run->models[i]) proa_served_model_drop(run->models[i]);
}

/* The sums of the steps' times, as if they had run one after the other: input, compute, output. */
static void set_times(proa_ensemble_run *run)
{
    proa_infer_times *t = &run->request->times;
    t->input_end = t->compute_start + run->input_ns;
    t->output_start = t->input_end + run->infer_ns;
    t->compute_end = t->output_start + run->output_ns;
}

static proa_reply *pop_reply(proa_ensemble_run *run)
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

/* No step runs and none is ready. Called with the lock, which is released. After the last reply the run is freed. */
static void finish_run(proa_ensemble_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    proa_infer *r = run->request;
    proa_reply *last = NULL;
    run->finished = true;
    for (proa_ready_step *d; (d = pop_ready(run)) != NULL;) scope_unref(d->scope, g);
    scope_unref(run->root, g);
    pthread_mutex_unlock(&run->lock);
    while (run->out_first) {
        proa_reply *reply = pop_reply(run);
        bool count_wanted = !run->error || run->delivers_earlier;
        if (!count_wanted) proa_reply_free(reply);
        if (!reply || !count_wanted) continue;
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

/* After a failure: cancels the calls whose replies are not needed. Called with the lock, which is released
 * meanwhile. */
static void cancel_unneeded(proa_ensemble_run *run)
{
    int count = 0;
    run->cancels_sent = true;
    for (proa_step_call *c = run->calls; c; c = c->next) count++;
    proa_step_call **calls = proa_calloc((size_t)count + 1, sizeof(proa_step_call *));
    count = 0;
    for (proa_step_call *c = run->calls; c; c = c->next) {
        if (still_needed(run, c->scope)) continue;
        proa_infer_hold(c->request);
        calls[count++] = c;
    }
    pthread_mutex_unlock(&run->lock);
    for (int i = 0; i < count; i++) {
        proa_infer *step = calls[i]->request;
        proa_step_call_cancel(calls[i]);
        proa_infer_drop(step);
    }
    free(calls);
    pthread_mutex_lock(&run->lock);
}

static void start_step(proa_ensemble_run *run, proa_ready_step *d)
{
    proa_step_call *call = proa_step_call_new(run, d); /* takes over the reference of the scope */
    call->next = run->calls;
    if (run->calls) run->calls->prev = call;
    run->calls = call;
    run->inflight++;
    atomic_fetch_add(&run->ensemble->scheduler->busy,
                     1); /* the end of the call uses the ensemble after the run has ended */
    pthread_mutex_unlock(&run->lock);
    proa_step_call_start(call);
    pthread_mutex_lock(&run->lock);
}

/* Does one piece of work; false if there is none. Called with the lock, which may be released meanwhile. */
static bool drive_once(proa_ensemble_run *run)
{
    if (run->error && !run->cancels_sent) {
        cancel_unneeded(run);
        return true;
    }
    proa_ready_step *d = pop_ready(run);
    if (d && !still_needed(run, d->scope)) {
        scope_unref(d->scope, run->ensemble->graph);
        return true;
    }
    if (d) {
        start_step(run, d);
        return true;
    }
    /* The last reply is delivered with the end of the run, so it waits for that. */
    if (run->inflight == 0 || !run->request->model->decoupled || (run->error && !run->delivers_earlier))
        return false;
    if (!run->out_first || !run->out_first->reply) return false;
    proa_reply *reply = pop_reply(run);
    pthread_mutex_unlock(&run->lock);
    proa_infer_reply(run->request, reply, false);
    pthread_mutex_lock(&run->lock);
    return true;
}

/* Called with the lock, which is released. */
static void drive_run(proa_ensemble_run *run)
{
    if (run->driven || run->finished) {
        pthread_mutex_unlock(&run->lock);
        return;
    }
    run->driven = true;
    while (drive_once(run)) {
    }
    run->driven = false;
    if (run->inflight == 0) finish_run(run);
    else pthread_mutex_unlock(&run->lock);
}

/* ---- replies of steps ---- */

static void accept_reply(proa_ensemble_run *run, proa_step_call *call, const proa_reply *reply)
{
    const proa_graph *g = run->ensemble->graph;
    const proa_graph_step *step = &g->steps[call->step];
    int64_t batch = call->request->model->batch_max > 0 ? call->request->batch : 0;
    proa_scope *scope = call->scope;
    if (step->decoupled) {
        scope = scope_init(proa_calloc(1, scope_bytes(&g->labels[step->out_label])), run, step->out_label);
        scope->allocated = true;
    }
    for (int i = 0; i < step->outputs_count; i++)
        put_tensor(run, scope, step->outputs[i].tensor, proa_reply_output(reply, step->outputs[i].name), batch);
    if (step->decoupled) scope_unref(scope, g);
}

/* With the lock: the call no longer belongs to the run. */
static void unlink_call(proa_ensemble_run *run, proa_step_call *call)
{
    if (call->prev) call->prev->next = call->next;
    else run->calls = call->next;
    if (call->next) call->next->prev = call->prev;
    run->inflight--;
    scope_unref(call->scope, run->ensemble->graph);
}

static void add_times(proa_ensemble_run *run, const proa_infer_times *t)
{
    proa_infer_parts p = proa_infer_parts_of(t);
    run->input_ns += p.input;
    run->infer_ns += p.infer;
    run->output_ns += p.output;
}

/* Without the lock; the run may have been freed. */
static void release_call(proa_ensemble *e, int step, proa_infer *request)
{
    proa_step_call_ended(e, step);
    proa_infer_drop(request);
    atomic_fetch_sub(&e->scheduler->busy, 1);
}

/* A reply of a step. */
static void on_reply(proa_infer *step, proa_reply *reply, bool final)
{
    proa_step_call *call = step->user;
    proa_ensemble_run *run = call->run;
    proa_ensemble *e = run->ensemble;
    int index = call->step;
    pthread_mutex_lock(&run->lock);
    if (reply && reply->error.status != PROA_OK) fail_run_with(run, call->scope, &reply->error);
    else if (reply && still_needed(run, call->scope)) accept_reply(run, call, reply);
    if (final) {
        add_times(run, &step->times);
        unlink_call(run, call);
    }
    drive_run(run);
    proa_reply_free(reply);
    if (final) release_call(e, index, step);
    else proa_step_call_throttle(e, step, index);
}

/* The call could not start. */
static void on_failure(proa_step_call *call, const proa_err *err)
{
    proa_ensemble_run *run = call->run;
    proa_ensemble *e = run->ensemble;
    proa_infer *request = call->request;
    int index = call->step;
    pthread_mutex_lock(&run->lock);
    fail_run_with(run, call->scope, err);
    unlink_call(run, call);
    drive_run(run);
    release_call(e, index, request);
}

/* ---- the scheduler ---- */

static void on_cancel(proa_infer *r)
{
    proa_ensemble_run *run = r->ticket.slot;
    pthread_mutex_lock(&run->lock);
    if (!run->finished) fail_run(run, NULL, PROA_CANCELLED, "Request cancelled");
    drive_run(run);
}

/* The steps that the requested outputs need; NULL: all. */
static const bool *steps_needed(const proa_graph *g, proa_infer *r)
{
    const proa_served_model *m = r->model;
    bool *needs, all = true;
    for (int i = 0; i < m->outputs_count; i++) all = all && proa_infer_wants(r, m->outputs[i].name);
    if (all) return NULL;
    needs = PROA_ARENA_NEW(&r->arena, bool, g->steps_count);
    for (int i = 0; i < m->outputs_count; i++)
        for (int s = 0; s < g->steps_count && proa_infer_wants(r, m->outputs[i].name); s++)
            needs[s] = needs[s] || g->needs[i][s];
    return needs;
}

/* The request uses these versions of the models to its end, whatever is loaded meanwhile. */
static void hold_models(proa_ensemble_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    for (int i = 0; i < g->steps_count && !run->error; i++) {
        proa_err err = {0};
        if (!step_needed(run, i)) continue;
        if (proa_server_find(run->request->model->server, g->steps[i].model, g->steps[i].version,
                             &run->models[i], &err) != PROA_OK) {
            run->models[i] = NULL;
            fail_run_with(run, run->root, &err);
        }
    }
}

static proa_ensemble_run *run_new(proa_ensemble *e, proa_infer *r)
{
    const proa_graph *g = e->graph;
    proa_ensemble_run *run = PROA_ARENA_NEW(&r->arena, proa_ensemble_run, 1);
    pthread_mutex_init(&run->lock, NULL); /* never destroyed: a late cancel may still take it, while it holds r */
    run->ensemble = e;
    run->request = r;
    run->models = PROA_ARENA_NEW(&r->arena, proa_served_model *, g->steps_count);
    run->needed = steps_needed(g, r);
    for (int i = 0; i < 2; i++) run->ready_last[i] = &run->ready[i];
    run->root = scope_init(proa_arena_alloc(&r->arena, scope_bytes(&g->labels[0])), run, 0);
    return run;
}

static void put_inputs(proa_ensemble_run *run)
{
    const proa_graph *g = run->ensemble->graph;
    proa_infer *r = run->request;
    const proa_served_model *m = r->model;
    for (int i = 0; i < m->inputs_count; i++)
        put_tensor(run, run->root, g->inputs[i], proa_infer_input(r, m->inputs[i].name),
                   m->batch_max > 0 ? r->batch : 0);
}

static proa_status enqueue_run(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    PROA_UNUSED(err);
    proa_ensemble_run *run = run_new(s->state, r);
    r->times.compute_start = proa_clock_ns();
    hold_models(run);
    if (!run->error) put_inputs(run);
    r->ticket.slot = run;
    run->driven = true; /* until then a cancel is only recorded */
    proa_infer_watch(r, on_cancel);
    pthread_mutex_lock(&run->lock);
    run->driven = false;
    drive_run(run);
    return PROA_OK;
}

static proa_status open_ensemble(proa_scheduler *s, proa_err *err)
{
    proa_ensemble *e = PROA_ARENA_NEW(&s->model->arena, proa_ensemble, 1);
    e->scheduler = s;
    e->on_reply = on_reply;
    e->on_failure = on_failure;
    s->state = e;
    PROA_TRY(proa_graph_compile(&e->graph, s->model, err));
    return proa_step_limits_open(e, s->model->config->ensemble_scheduling->max_inflight_requests);
}

static void close_ensemble(proa_scheduler *s)
{
    if (s->state) proa_step_limits_close(s->state);
}

const proa_scheduler_kind proa_sched_ensemble = {
    .name = "ensemble",
    .open = open_ensemble,
    .close = close_ensemble,
    .enqueue = enqueue_run,
};
