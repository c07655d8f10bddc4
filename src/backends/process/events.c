/* SPDX-License-Identifier: Apache-2.0
 * events.c - messages from a process to its instance; cancels and time limits on their way to the process. */
#include "backends/process/worker.h"
#include "base/clock.h"

#define TICK_MS                                                                                              \
    20 /* time between two checks for cancels and time limits, while requests are in the process */
#define IDLE_MS 200 /* the same while there are none */

/* ---- what the process says, on the instance's thread ---- */

static void deliver_reply(proa_worker *i, proa_worker_slot *s, proa_reply *reply, const proa_channel_message *m)
{
    bool final = m->flags & PROA_CHANNEL_FINAL;
    proa_err err = {0};
    if (final && (m->flags & PROA_CHANNEL_RESCHEDULE)) {
        proa_reply_free(reply);
        if (i->model->iterative) {
            proa_infer_reschedule(s->r);
            return;
        }
        PROA_FAIL(&err, INTERNAL, "%s '%s' asked for a request once more, but has no iterative_sequence",
                  i->model->settings.kind->model, i->model->config->name);
        proa_infer_fail(s->r, &err);
    } else if (!reply && !i->model->decoupled) {
        PROA_FAIL(&err, INTERNAL, "%s '%s' ended a request without a response",
                  i->model->settings.kind->model, i->model->config->name);
        proa_infer_fail(s->r, &err);
    } else {
        proa_infer_reply(s->r, reply, final);
    }
}

static proa_status on_response(proa_worker *i, proa_process *p, proa_channel_message *m, proa_err *err)
{
    proa_payload w = {0};
    proa_reply *reply = NULL;
    if (!i->model->decoupled) m->flags |= PROA_CHANNEL_FINAL;
    if (m->bytes) PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
    pthread_mutex_lock(&i->lock);
    proa_worker_slot *found = proa_worker_find_slot(i, m->id), s = found ? *found : (proa_worker_slot){0};
    pthread_mutex_unlock(&i->lock);
    proa_status status = PROA_OK;
    if (found && m->bytes) { /* only this thread ends requests, so s.r stays valid */
        w.arena = proa_process_arena(p);
        w.inputs = s.at;
        w.answered = s.r;
        w.devices = i->devices;
        status = proa_payload_reply(&reply, &w, i->model, s.r, err);
        atomic_fetch_add_explicit(&i->model->bytes_out, w.written, memory_order_relaxed);
        atomic_fetch_add_explicit(&i->model->bytes_passed, w.passed, memory_order_relaxed);
    }
    if (m->bytes) proa_payload_close(&w);
    if (status != PROA_OK || !found) return status;
    if (m->flags & PROA_CHANNEL_FINAL) {
        pthread_mutex_lock(&i->lock);
        proa_worker_free_slot(i, proa_worker_find_slot(i, m->id));
        pthread_mutex_unlock(&i->lock);
        proa_shared_arena_release_block(proa_process_arena(p), s.at);
    } else if (!reply) {
        return PROA_OK; /* neither a reply nor final */
    }
    deliver_reply(i, &s, reply, m);
    return PROA_OK;
}

/* execute has ended. Its exception is the error of all requests that have no final reply. */
static proa_status on_done(proa_worker *i, proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_payload w;
    proa_json *head = NULL;
    proa_err failure = {0};
    if (m->bytes) {
        PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
        proa_status status = proa_payload_head(&head, &w, err);
        proa_payload_close(&w);
        PROA_TRY(status);
        if (proa_payload_error(head, &failure)) proa_worker_fail(i, p, true, &failure);
        proa_json_free(head);
    }
    pthread_mutex_lock(&i->lock);
    for (uint32_t k = 0; k < i->slots_count; k++) i->slots[k].batch = false;
    i->executing = false;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    return PROA_OK;
}

static proa_status on_readiness(proa_worker *i, proa_process *p, const proa_channel_message *m, proa_err *err)
{
    proa_payload w;
    proa_json *head = NULL;
    proa_err why = {0};
    PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
    proa_status status = proa_payload_head(&head, &w, err);
    proa_payload_close(&w);
    PROA_TRY(status);
    bool is_ready = !proa_payload_error(head, &why) && proa_json_bool(proa_json_get(head, "ready"));
    proa_json_free(head);
    pthread_mutex_lock(&i->lock);
    i->ready_pending = false;
    i->is_ready = is_ready;
    i->not_ready = why;
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    return PROA_OK;
}

/* Calls may come at any time, also while a model loads. *other: the message is none of these. */
static proa_status on_call(proa_worker *i, proa_process *p, const proa_channel_message *m, bool *other,
                           proa_err *err)
{
    proa_payload w;
    *other = false;
    if (m->kind == PROA_CHANNEL_INFER_CANCEL) {
        proa_bls_cancel(i->bls, m->id);
        return PROA_OK;
    }
    *other = m->kind != PROA_CHANNEL_CALL && m->kind != PROA_CHANNEL_POST && m->kind != PROA_CHANNEL_INFER;
    if (*other) return PROA_OK;
    PROA_TRY(proa_payload_open(&w, proa_process_view(p), m, err));
    w.devices = i->devices;
    proa_status status = m->kind == PROA_CHANNEL_INFER ? proa_bls_handle(i->bls, i->number, m, &w, err)
                                                       : proa_calls_handle(i, i->number, m, &w, err);
    proa_payload_close(&w);
    return status;
}

proa_status proa_worker_handle(proa_worker *i, proa_process *p, proa_channel_message *m, proa_err *err)
{
    bool other;
    switch (m->kind) {
    case PROA_CHANNEL_RESPONSE: return on_response(i, p, m, err);
    case PROA_CHANNEL_DONE: return on_done(i, p, m, err);
    case PROA_CHANNEL_READINESS: return on_readiness(i, p, m, err);
    default: PROA_TRY(on_call(i, p, m, &other, err));
    }
    return other ? PROA_FAIL(err, INVALID, "the process sent a message of kind %u", m->kind) : PROA_OK;
}

/* compute_infer ends for all requests that a packet answers, before the first of its replies is made. */
void proa_worker_note_outputs(proa_worker *i, const proa_channel_message *messages, int count)
{
    pthread_mutex_lock(&i->lock);
    for (int k = 0; k < count; k++) {
        proa_worker_slot *s = messages[k].kind == PROA_CHANNEL_RESPONSE
                                  ? proa_worker_find_slot(i, messages[k].id)
                                  : NULL;
        if (s) proa_infer_output_begins(&s->r, 1);
    }
    pthread_mutex_unlock(&i->lock);
}

/* ---- cancels and time limits ---- */

static void send_cancels(proa_worker *i, proa_process *p)
{
    for (uint32_t k = 0; k < i->slots_count; k++) {
        proa_worker_slot *s = &i->slots[k];
        if (!s->id || s->cancel_sent || !proa_infer_cancelled(s->r)) continue;
        proa_channel_payload *payload = (proa_channel_payload *)(void *)proa_shared_arena_at(
            proa_process_arena(p), s->at);
        __atomic_store_n(&payload->cancelled, 1, __ATOMIC_RELEASE);
        s->cancel_sent = true;
    }
}

/* How long to wait for the next packet. */
int proa_worker_tick(proa_worker *i, proa_process *p)
{
    pthread_mutex_lock(&i->lock);
    int wait_ms = i->live || i->executing ? TICK_MS : IDLE_MS;
    bool live = i->live;
    if (live) send_cancels(i, p);
    int64_t limit_ns = i->model->settings.execute_ms * 1000000;
    if (limit_ns && i->executing && !i->late && proa_clock_ns() - i->execute_ns > limit_ns) {
        i->late = true;
        proa_process_kill(p);
    }
    pthread_mutex_unlock(&i->lock);
    if (live) proa_bls_check_cancelled(i->bls);
    proa_shared_arena_used(proa_process_arena(p)); /* memory of GPUs that came back is free */
    return wait_ms;
}
