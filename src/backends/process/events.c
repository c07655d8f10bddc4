/* SPDX-License-Identifier: Apache-2.0
 * events.c - messages from a process to its worker; cancels and time limits on their way to the process. */
#include "backends/process/worker.h"
#include "base/clock.h"

#define TICK_MS                                                                                              \
    20 /* time between two checks for cancels and time limits, while requests are in the process */
#define IDLE_MS 200 /* the same while there are none */

/* ---- what the process says, on the worker's thread ---- */

static void deliver_reply(proa_worker *w, proa_worker_slot *s, proa_reply *reply, const proa_channel_message *m)
{
    bool final = m->flags & PROA_CHANNEL_FINAL;
    proa_err err = {0};
    if (final && (m->flags & PROA_CHANNEL_RESCHEDULE)) {
        proa_reply_free(reply);
        if (w->model->iterative) {
            proa_infer_reschedule(s->r);
            return;
        }
        PROA_FAIL(&err, INTERNAL, "%s '%s' asked for a request once more, but has no iterative_sequence",
                  w->model->settings.kind->model, w->model->config->name);
        proa_infer_fail(s->r, &err);
    } else if (!reply && !w->model->decoupled) {
        PROA_FAIL(&err, INTERNAL, "%s '%s' ended a request without a response",
                  w->model->settings.kind->model, w->model->config->name);
        proa_infer_fail(s->r, &err);
    } else {
        proa_infer_reply(s->r, reply, final);
    }
}

static proa_status on_response(proa_worker *w, proa_process *p, proa_channel_message *m, proa_err *err)
{
    proa_payload body = {0};
    proa_reply *reply = NULL;
    if (!w->model->decoupled) m->flags |= PROA_CHANNEL_FINAL;
    if (m->bytes) PROA_TRY(proa_payload_open(&body, proa_process_view(p), m, err));
    pthread_mutex_lock(&w->lock);
    proa_worker_slot *found = proa_worker_find_slot(w, m->id), s = found ? *found : (proa_worker_slot){0};
    pthread_mutex_unlock(&w->lock);
    proa_status status = PROA_OK;
    if (found && m->bytes) { /* only this thread ends requests, so s.r stays valid */
        body.arena = proa_process_arena(p);
        body.inputs = s.at;
        body.answered = s.r;
        body.devices = w->devices;
        status = proa_payload_reply(&reply, &body, w->model, s.r, err);
        atomic_fetch_add_explicit(&w->model->bytes_out, body.written, memory_order_relaxed);
        atomic_fetch_add_explicit(&w->model->bytes_passed, body.passed, memory_order_relaxed);
    }
    if (m->bytes) proa_payload_close(&body);
    if (status != PROA_OK || !found) return status;
    if (m->flags & PROA_CHANNEL_FINAL) {
        pthread_mutex_lock(&w->lock);
        proa_worker_free_slot(w, proa_worker_find_slot(w, m->id));
        pthread_mutex_unlock(&w->lock);
        proa_shared_arena_release_block(proa_process_arena(p), s.at);
    } else if (!reply) {
        return PROA_OK; /* neither a reply nor final */
    }
    deliver_reply(w, &s, reply, m);
    return PROA_OK;
}

/* NULL: there is none of that number. */
static proa_worker_instance *find_instance(const proa_worker *w, uint64_t number)
{
    proa_worker_instance *i = w->instances;
    while (i && i->number != number) i = i->next;
    return i;
}

/* execute of an instance has ended. Its exception is the error of all its requests that have no final reply. */
static proa_status on_done(proa_worker *w, proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_payload body;
    proa_json *head = NULL;
    proa_err failure = {0};
    proa_worker_instance *i = find_instance(w, m->id);
    if (!i) return PROA_FAIL(err, INVALID, "the process has no instance %llu", (unsigned long long)m->id);
    if (m->bytes) {
        PROA_TRY(proa_payload_open(&body, proa_process_view(p), m, err));
        proa_status status = proa_payload_head(&head, &body, err);
        proa_payload_close(&body);
        PROA_TRY(status);
        if (proa_payload_error(head, &failure)) proa_worker_fail(w, p, i, &failure);
        proa_json_free(head);
    }
    pthread_mutex_lock(&w->lock);
    for (uint32_t k = 0; k < w->slots_count; k++)
        if (w->slots[k].executes == i) w->slots[k].executes = NULL;
    proa_worker_executed(i);
    pthread_mutex_unlock(&w->lock);
    return PROA_OK;
}

static proa_status on_readiness(proa_worker *w, proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_payload body;
    proa_json *head = NULL;
    proa_err why = {0};
    PROA_TRY(proa_payload_open(&body, proa_process_view(p), m, err));
    proa_status status = proa_payload_head(&head, &body, err);
    proa_payload_close(&body);
    PROA_TRY(status);
    bool is_ready = !proa_payload_error(head, &why) && proa_json_bool(proa_json_get(head, "ready"));
    proa_json_free(head);
    pthread_mutex_lock(&w->lock);
    w->ready_pending = false;
    w->is_ready = is_ready;
    w->not_ready = why;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return PROA_OK;
}

/* Calls may come at any time, also while a model loads. *other: the message is none of these. */
static proa_status on_call(proa_worker *w, proa_process *p, const proa_channel_message *m, bool *other,
                           proa_err *err)
{
    proa_payload body;
    *other = false;
    if (m->kind == PROA_CHANNEL_INFER_CANCEL) {
        proa_bls_cancel(w->bls, m->id);
        return PROA_OK;
    }
    *other = m->kind != PROA_CHANNEL_CALL && m->kind != PROA_CHANNEL_POST && m->kind != PROA_CHANNEL_INFER;
    if (*other) return PROA_OK;
    PROA_TRY(proa_payload_open(&body, proa_process_view(p), m, err));
    body.devices = w->devices;
    proa_status status = m->kind == PROA_CHANNEL_INFER ? proa_bls_handle(w->bls, w->number, m, &body, err)
                                                       : proa_calls_handle(w, w->number, m, &body, err);
    proa_payload_close(&body);
    return status;
}

proa_status proa_worker_handle(proa_worker *w, proa_process *p, proa_channel_message *m, proa_err *err)
{
    bool other;
    switch (m->kind) {
    case PROA_CHANNEL_RESPONSE: return on_response(w, p, m, err);
    case PROA_CHANNEL_DONE: return on_done(w, p, m, err);
    case PROA_CHANNEL_READINESS: return on_readiness(w, p, m, err);
    default: PROA_TRY(on_call(w, p, m, &other, err));
    }
    return other ? PROA_FAIL(err, INVALID, "the process sent a message of kind %u", m->kind) : PROA_OK;
}

/* compute_infer ends for all requests that a packet answers, before the first of its replies is made. */
void proa_worker_note_outputs(proa_worker *w, const proa_channel_message *messages, int count)
{
    pthread_mutex_lock(&w->lock);
    for (int k = 0; k < count; k++) {
        proa_worker_slot *s = messages[k].kind == PROA_CHANNEL_RESPONSE
                                  ? proa_worker_find_slot(w, messages[k].id)
                                  : NULL;
        if (s) proa_infer_output_begins(&s->r, 1);
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- cancels and time limits ---- */

static void send_cancels(proa_worker *w, proa_process *p)
{
    for (uint32_t k = 0; k < w->slots_count; k++) {
        proa_worker_slot *s = &w->slots[k];
        if (!s->id || s->cancel_sent || !proa_infer_cancelled(s->r)) continue;
        proa_channel_payload *payload = (proa_channel_payload *)(void *)proa_shared_arena_at(
            proa_process_arena(p), s->at);
        __atomic_store_n(&payload->cancelled, 1, __ATOMIC_RELEASE);
        s->cancel_sent = true;
    }
}

/* Under the lock: the instance whose execute takes too long; NULL: none does. */
static const proa_worker_instance *find_late(const proa_worker *w)
{
    int64_t limit_ns = w->model->settings.execute_ms * 1000000;
    if (!limit_ns || !w->executing) return NULL;
    const proa_worker_instance *i = w->instances;
    int64_t now = proa_clock_ns();
    while (i && !(i->executing && now - i->execute_ns > limit_ns)) i = i->next;
    return i;
}

/* How long to wait for the next packet. */
int proa_worker_tick(proa_worker *w, proa_process *p)
{
    pthread_mutex_lock(&w->lock);
    int wait_ms = w->live || w->executing ? TICK_MS : IDLE_MS;
    bool live = w->live;
    if (live) send_cancels(w, p);
    if (!w->late && (w->late = find_late(w))) proa_process_kill(p);
    pthread_mutex_unlock(&w->lock);
    if (live) proa_bls_check_cancelled(w->bls);
    proa_shared_arena_used(proa_process_arena(p)); /* memory of GPUs that came back is free */
    return wait_ms;
}
