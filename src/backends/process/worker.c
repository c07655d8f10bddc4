/* SPDX-License-Identifier: Apache-2.0
 * worker.c - a worker as its parts see it: the process, the requests in it, readiness; the models that have workers. */
#include "backends/process/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/trace.h"
#include <errno.h>
#include <string.h>

#define READY_NS      (5 * (int64_t)1000000000) /* limit of is_ready() */
#define READY_WAIT_MS 100 /* how long a caller waits for is_ready(); after that the last answer counts */

proa_worker *proa_worker_next(const proa_worker *w)
{
    return w->next;
}

proa_worker_model *proa_worker_model_of(const proa_worker *w)
{
    return w->model;
}

proa_devices *proa_worker_devices(const proa_worker *w)
{
    return w->devices;
}

proa_status proa_worker_not_healthy(const proa_worker *w, proa_status status, const char *how, proa_err *err)
{
    return proa_err_set(err, status, __FILE__, __LINE__, "%s '%s' is not healthy.%s%s",
                        w->model->settings.kind->process, w->name, how && *how ? " It " : "", how ? how : "");
}

bool proa_worker_has_devices(const proa_worker_instance *i)
{
    pthread_mutex_lock(&i->worker->lock);
    bool takes = i->takes_devices;
    pthread_mutex_unlock(&i->worker->lock);
    return takes;
}

bool proa_worker_is_closing(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool closing = w->closing;
    pthread_mutex_unlock(&w->lock);
    return closing;
}

struct timespec proa_worker_time_in(int64_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t ns = t.tv_nsec + ms * 1000000;
    return (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* ---- the process, shared ---- */

proa_process *proa_worker_hold_process(proa_worker *w, uint64_t number)
{
    pthread_mutex_lock(&w->lock);
    proa_process *p = w->process && (number == w->number || (!number && w->state == PROA_WORKER_UP)) ? w->process
                                                                                                     : NULL;
    w->users += p != NULL;
    pthread_mutex_unlock(&w->lock);
    return p;
}

void proa_worker_unhold_process(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (--w->users == 0) pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void proa_worker_begin(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->pending_calls++;
    pthread_mutex_unlock(&w->lock);
}

void proa_worker_end(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (--w->pending_calls == 0) pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* An answer is leased memory, which the process writes; what a reply has may be read by others. */
static proa_status send_payload(proa_worker *w, proa_process *p, proa_channel_message m,
                                const proa_payload_content *c, proa_err *err)
{
    proa_exports exports = {.places = NULL};
    proa_payload_content exported = *c;
    bool writes = m.kind == PROA_CHANNEL_REPLY && w->model->settings.kind->writes_inputs;
    PROA_TRY(proa_devices_export(w->devices, &exports, c->tensors, c->count, writes, err));
    exported.exports = exports.places ? &exports : NULL;
    bool sent = proa_payload_send(p, m, &exported);
    proa_exports_release(w->devices, &exports, c->count);
    if (sent) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "no room in the memory that is shared with the process");
}

static void send_error(proa_process *p, proa_channel_message m, const proa_err *err)
{
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    proa_payload_error_head(&head, err);
    proa_payload_send(p, m, &(proa_payload_content){.head = proa_buf_view(&head)});
    proa_buf_release(&head);
}

void proa_worker_send(proa_worker *w, uint64_t process, proa_channel_message m, const proa_payload_content *c)
{
    proa_process *p = proa_worker_hold_process(w, process);
    proa_err err = {0};
    if (!p) return;
    if (!c->head.len && !c->count) proa_process_send(p, &m, 1);
    else if (send_payload(w, p, m, c, &err) != PROA_OK) send_error(p, m, &err);
    proa_worker_unhold_process(w);
}

bool proa_worker_read_use(proa_worker *w, const char **name, proa_process_use *use)
{
    const proa_process *p = proa_worker_hold_process(w, 0);
    *name = w->name;
    if (!p) return false;
    proa_process_read_use(p, use);
    proa_worker_unhold_process(w);
    return true;
}

/* ---- requests in the process ---- */

/* Under the lock. */
proa_worker_slot *proa_worker_find_slot(proa_worker *w, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    return id && index < w->slots_count && w->slots[index].id == id ? &w->slots[index] : NULL;
}

const proa_worker_instance *proa_worker_executes(proa_worker *w, uint64_t id,
                                                 void (*each)(void *to, const proa_infer *r), void *to)
{
    pthread_mutex_lock(&w->lock);
    const proa_worker_slot *s = proa_worker_find_slot(w, id);
    const proa_worker_instance *i = s ? s->executes : NULL;
    for (uint32_t k = 0; i && k < w->slots_count; k++)
        if (w->slots[k].id && w->slots[k].executes == i) each(to, w->slots[k].r);
    pthread_mutex_unlock(&w->lock);
    return i;
}

void proa_worker_trace(proa_worker *w, uint64_t id, proa_infer *child)
{
    pthread_mutex_lock(&w->lock);
    const proa_worker_slot *s = proa_worker_find_slot(w, id);
    if (s) proa_trace_add(s->r, child);
    pthread_mutex_unlock(&w->lock);
}

static void note_cancel(void *all, const proa_infer *r)
{
    if (!proa_infer_cancelled(r)) *(bool *)all = false;
}

bool proa_worker_all_cancelled(proa_worker *w, uint64_t id)
{
    bool all = true;
    return proa_worker_executes(w, id, note_cancel, &all) && all;
}

uint64_t proa_worker_add_slot(proa_worker_instance *i, proa_infer *r, uint64_t at)
{
    proa_worker *w = i->worker;
    uint32_t index = w->slots_free;
    while (index < w->slots_count && w->slots[index].id) index++;
    w->slots_free = index + 1;
    if (index == w->slots_cap) {
        w->slots_cap = w->slots_cap ? 2 * w->slots_cap : 16;
        w->slots = proa_realloc(w->slots, w->slots_cap * sizeof *w->slots);
    }
    if (index == w->slots_count) w->slots_count++;
    uint64_t id = (++w->running << 32) | index;
    w->slots[index] = (proa_worker_slot){.id = id, .r = r, .at = at, .executes = i};
    w->live++;
    return id;
}

void proa_worker_free_slot(proa_worker *w, proa_worker_slot *s)
{
    s->id = 0;
    w->live--;
    if ((uint32_t)(s - w->slots) < w->slots_free) w->slots_free = (uint32_t)(s - w->slots);
    while (w->slots_count && !w->slots[w->slots_count - 1].id) w->slots_count--;
}

/* Removes one request: any, or one of an execution. */
static bool take_slot(proa_worker *w, const proa_worker_instance *execution, proa_worker_slot *out)
{
    bool found = false;
    pthread_mutex_lock(&w->lock);
    for (uint32_t k = 0; k < w->slots_count && !found; k++) {
        proa_worker_slot *s = &w->slots[k];
        if (!s->id || (execution && s->executes != execution)) continue;
        *out = *s;
        proa_worker_free_slot(w, s);
        found = true;
    }
    pthread_mutex_unlock(&w->lock);
    return found;
}

void proa_worker_fail(proa_worker *w, proa_process *p, const proa_worker_instance *execution, const proa_err *err)
{
    proa_worker_slot s;
    while (take_slot(w, execution, &s)) {
        proa_shared_arena_release_block(proa_process_arena(p), s.at);
        proa_infer_fail(s.r, err);
    }
}

void proa_worker_executed(proa_worker_instance *i)
{
    i->worker->executing -= i->executing;
    i->executing = false;
    pthread_cond_broadcast(&i->worker->changed);
}

/* ---- readiness ---- */

/* Sends a readiness check unless one is pending. The lock is held. */
static void send_ready_check(proa_worker *w)
{
    proa_channel_message m = {.kind = PROA_CHANNEL_READY};
    if (w->ready_pending) return;
    w->ready_pending = proa_process_send(w->process, &m, 1);
    w->ready_sent_ns = proa_clock_ns();
}

static void wait_ready(proa_worker *w)
{
    struct timespec until = proa_worker_time_in(READY_WAIT_MS);
    while (w->ready_pending && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT) {
    }
}

static bool is_ready(proa_worker *w, proa_err *reason)
{
    pthread_mutex_lock(&w->lock);
    bool ready = w->state == PROA_WORKER_UP;
    if (!ready) {
        if (w->why.status != PROA_OK) *reason = w->why;
        else proa_worker_not_healthy(w, PROA_UNAVAILABLE, NULL, reason);
    } else if (w->checks_ready) {
        bool pending = w->ready_pending; /* if so, and while it executes, the last answer counts: the caller may be an
                                            event loop */
        send_ready_check(w);
        if (!pending && !w->executing) wait_ready(w);
        bool slow = w->ready_pending && proa_clock_ns() - w->ready_sent_ns > READY_NS && !w->executing;
        ready = w->state == PROA_WORKER_UP && w->is_ready && !slow;
        if (!ready && w->not_ready.status != PROA_OK) *reason = w->not_ready;
        else if (!ready) PROA_FAIL(reason, UNAVAILABLE, "Model is not ready: is_ready() says so");
    }
    pthread_mutex_unlock(&w->lock);
    return ready;
}

/* ---- models ---- */

proa_status proa_worker_setting(int64_t *value, const proa_server *server, const char *backend,
                                const char *key, int64_t max, proa_err *err)
{
    const char *text = proa_backend_setting(server, backend, key);
    char *end;
    if (!text) return PROA_OK;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || number < 0 || number > max)
        return PROA_FAIL(err, INVALID,
                         "backend configuration '%s' of %s must be a number from 0 to %lld, got '%s'", key,
                         backend, (long long)max, text);
    *value = number;
    return PROA_OK;
}

void proa_worker_model_init(proa_worker_model *m, proa_served_model *model)
{
    m->model = model;
    m->server = proa_served_model_server(model);
    m->config = proa_served_model_config(model);
    m->decoupled = m->config->model_transaction_policy && m->config->model_transaction_policy->decoupled;
    pthread_mutex_init(&m->lock, NULL);
}

void proa_worker_model_release(proa_worker_model *m)
{
    pthread_mutex_destroy(&m->lock);
    free(m->config_json);
    free(m->file);
}

bool proa_worker_takes_devices(const proa_worker_model *m)
{
    for (const proa_worker *w = m->workers; w; w = w->next)
        for (const proa_worker_instance *i = w->instances; i; i = i->next)
            if (proa_worker_has_devices(i)) return true;
    return false;
}

int proa_worker_count_instances(proa_worker_model *m)
{
    int count = 0;
    pthread_mutex_lock(&m->lock);
    for (const proa_worker *w = m->workers; w; w = w->next) count += w->count;
    pthread_mutex_unlock(&m->lock);
    return count;
}

bool proa_worker_all_ready(proa_worker_model *m, proa_err *reason)
{
    bool all = true;
    pthread_mutex_lock(&m->lock);
    for (proa_worker *w = m->workers; w && all; w = w->next) all = is_ready(w, reason);
    pthread_mutex_unlock(&m->lock);
    return all;
}
