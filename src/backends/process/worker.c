/* SPDX-License-Identifier: Apache-2.0
 * worker.c - a worker: its requests, execute, readiness; the models that have workers. */
#include "backends/process/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "serve/trace.h"
#include <errno.h>
#include <string.h>

#define PAUSE_WAIT_MS 1000                      /* how long requests wait for a restart before they fail */
#define START_WAIT_MS 10000                     /* the same once the process has started to load */
#define READY_NS      (5 * (int64_t)1000000000) /* limit of is_ready() */
#define READY_WAIT_MS 100 /* how long a caller waits for is_ready(); after that the last answer counts */

/* A request that is in the process. */

proa_worker *proa_worker_next(const proa_worker *i)
{
    return i->next;
}

proa_worker_model *proa_worker_model_of(const proa_worker *i)
{
    return i->model;
}

proa_devices *proa_worker_devices(const proa_worker *i)
{
    return i->devices;
}

static bool is_up(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    bool up = i->state == PROA_WORKER_UP;
    pthread_mutex_unlock(&i->lock);
    return up;
}

proa_status proa_worker_not_healthy(const proa_worker *i, proa_status status, const char *how, proa_err *err)
{
    return proa_err_set(err, status, __FILE__, __LINE__, "%s '%s' is not healthy.%s%s",
                        i->model->settings.kind->process, i->name, how && *how ? " It " : "", how ? how : "");
}

bool proa_worker_is_closing(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    bool closing = i->closing;
    pthread_mutex_unlock(&i->lock);
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

/* The process, if it runs (and has that number, unless 0). It is not freed until unhold_process. */
static proa_process *hold_process(proa_worker *i, uint64_t number)
{
    pthread_mutex_lock(&i->lock);
    proa_process *p = i->process && (number == i->number || (!number && i->state == PROA_WORKER_UP)) ? i->process
                                                                                                     : NULL;
    i->users += p != NULL;
    pthread_mutex_unlock(&i->lock);
    return p;
}

static void unhold_process(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    if (--i->users == 0) pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

void proa_worker_begin(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    i->pending_calls++;
    pthread_mutex_unlock(&i->lock);
}

void proa_worker_end(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    if (--i->pending_calls == 0) pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
}

/* An answer is leased memory, which the process writes; what a reply has may be read by others. */
static proa_status send_payload(proa_worker *i, proa_process *p, proa_channel_message m,
                                const proa_payload_content *c, proa_err *err)
{
    proa_exports exports = {.places = NULL};
    proa_payload_content exported = *c;
    bool writes = m.kind == PROA_CHANNEL_REPLY && i->model->settings.kind->writes_inputs;
    PROA_TRY(proa_devices_export(i->devices, &exports, c->tensors, c->count, writes, err));
    exported.exports = exports.places ? &exports : NULL;
    bool sent = proa_payload_send(p, m, &exported);
    proa_exports_release(i->devices, &exports, c->count);
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

void proa_worker_send(proa_worker *i, uint64_t process, proa_channel_message m, const proa_payload_content *c)
{
    proa_process *p = hold_process(i, process);
    proa_err err = {0};
    if (!p) return;
    if (!c->head.len && !c->count) proa_process_send(p, &m, 1);
    else if (send_payload(i, p, m, c, &err) != PROA_OK) send_error(p, m, &err);
    unhold_process(i);
}

bool proa_worker_read_use(proa_worker *i, const char **name, proa_process_use *use)
{
    const proa_process *p = hold_process(i, 0);
    *name = i->name;
    if (!p) return false;
    proa_process_read_use(p, use);
    unhold_process(i);
    return true;
}

/* ---- requests in the process ---- */

/* Under the lock. */
proa_worker_slot *proa_worker_find_slot(proa_worker *i, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    return id && index < i->slots_count && i->slots[index].id == id ? &i->slots[index] : NULL;
}

bool proa_worker_executes(proa_worker *i, uint64_t id, void (*each)(void *to, const proa_infer *r), void *to)
{
    pthread_mutex_lock(&i->lock);
    const proa_worker_slot *s = proa_worker_find_slot(i, id);
    bool found = s && s->batch;
    for (uint32_t k = 0; found && k < i->slots_count; k++)
        if (i->slots[k].id && i->slots[k].batch) each(to, i->slots[k].r);
    pthread_mutex_unlock(&i->lock);
    return found;
}

void proa_worker_trace(proa_worker *i, uint64_t id, proa_infer *child)
{
    pthread_mutex_lock(&i->lock);
    const proa_worker_slot *s = proa_worker_find_slot(i, id);
    if (s) proa_trace_add(s->r, child);
    pthread_mutex_unlock(&i->lock);
}

static void note_cancel(void *all, const proa_infer *r)
{
    if (!proa_infer_cancelled(r)) *(bool *)all = false;
}

bool proa_worker_all_cancelled(proa_worker *i, uint64_t id)
{
    bool all = true;
    return proa_worker_executes(i, id, note_cancel, &all) && all;
}

static uint64_t add_slot(proa_worker *i, proa_infer *r, uint64_t at)
{
    uint32_t index = i->slots_free;
    while (index < i->slots_count && i->slots[index].id) index++;
    i->slots_free = index + 1;
    if (index == i->slots_cap) {
        i->slots_cap = i->slots_cap ? 2 * i->slots_cap : 16;
        i->slots = proa_realloc(i->slots, i->slots_cap * sizeof *i->slots);
    }
    if (index == i->slots_count) i->slots_count++;
    uint64_t id = (++i->running << 32) | index;
    i->slots[index] = (proa_worker_slot){.id = id, .r = r, .at = at, .batch = true};
    i->live++;
    return id;
}

void proa_worker_free_slot(proa_worker *i, proa_worker_slot *s)
{
    s->id = 0;
    i->live--;
    if ((uint32_t)(s - i->slots) < i->slots_free) i->slots_free = (uint32_t)(s - i->slots);
    while (i->slots_count && !i->slots[i->slots_count - 1].id) i->slots_count--;
}

/* Removes one request: any, or one of the running execution. */
static bool take_slot(proa_worker *i, bool batch_only, proa_worker_slot *out)
{
    bool found = false;
    pthread_mutex_lock(&i->lock);
    for (uint32_t k = 0; k < i->slots_count && !found; k++) {
        proa_worker_slot *s = &i->slots[k];
        if (!s->id || (batch_only && !s->batch)) continue;
        *out = *s;
        proa_worker_free_slot(i, s);
        found = true;
    }
    pthread_mutex_unlock(&i->lock);
    return found;
}

void proa_worker_fail(proa_worker *i, proa_process *p, bool batch_only, const proa_err *err)
{
    proa_worker_slot s;
    while (take_slot(i, batch_only, &s)) {
        proa_shared_arena_release_block(proa_process_arena(p), s.at);
        proa_infer_fail(s.r, err);
    }
}

/* ---- execute, on the scheduler's thread ---- */

/* An input that was copied on its GPU, since others read it too, is the copy from now on: the process writes there, and
 * may pass it on as an output. */
static void use_copies(proa_infer *r, const proa_exports *exports)
{
    for (int32_t k = 0; exports->held && k < r->inputs_count; k++) {
        proa_tensor *t = &r->inputs[k];
        if (!exports->held[k] || exports->held[k] == t->buffer) continue;
        proa_buffer_drop(t->buffer);
        t->buffer = proa_buffer_hold(exports->held[k]);
        t->data = t->buffer->data;
    }
}

static bool takes_devices(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    bool takes = i->takes_devices;
    pthread_mutex_unlock(&i->lock);
    return takes;
}

static proa_status write_payload(proa_worker *i, proa_process *p, proa_infer *r, proa_str head,
                                 proa_channel_message *m, proa_err *err)
{
    proa_exports exports = {.places = NULL};
    if (!takes_devices(i)) PROA_TRY(proa_infer_inputs_to_host(r, err));
    PROA_TRY(proa_devices_export(i->devices, &exports, r->inputs, r->inputs_count,
                                 i->model->settings.kind->writes_inputs, err));
    use_copies(r, &exports);
    const proa_payload_content content = {
        .head = head, .tensors = r->inputs, .count = r->inputs_count, .exports = exports.places ? &exports : NULL};
    bool written = proa_payload_write(proa_process_arena(p), &content, &m->at, &m->bytes);
    proa_exports_release(i->devices, &exports, r->inputs_count);
    if (written) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "no room for the request in the %lld bytes that are shared with %s '%s'",
                     (long long)PROA_PROCESS_ARENA_BYTES, i->model->settings.kind->model,
                     i->model->config->name);
}

static proa_status write_request(proa_worker *i, proa_process *p, proa_infer *r, proa_buf *head,
                                 proa_channel_message *m, proa_err *err)
{
    proa_buf_clear(head);
    proa_payload_request_head(head, r);
    *m = (proa_channel_message){.kind = PROA_CHANNEL_REQUEST,
                                .flags = proa_infer_takes_device_outputs(r) ? PROA_CHANNEL_DEVICE_OUTPUTS : 0};
    if (head->full)
        return PROA_FAIL(err, NO_MEMORY, "what the request says beside its tensors has more than %lld bytes",
                         (long long)PROA_CHANNEL_HEAD_MAX);
    PROA_TRY(write_payload(i, p, r, proa_buf_view(head), m, err));
    for (int32_t k = 0; k < r->inputs_count; k++) {
        if (proa_tensor_device(&r->inputs[k])) continue;
        atomic_fetch_add_explicit(&i->model->bytes_in, r->inputs[k].bytes, memory_order_relaxed);
        proa_copies_add(r->inputs[k].bytes);
    }
    return PROA_OK;
}

/* Writes the requests; those that do not fit into shared memory fail. The others are moved to the front of
 * `written`. */
static int write_requests(proa_worker *i, proa_process *p, proa_infer *const *requests, int count,
                          proa_infer **written)
{
    int n = 0;
    proa_buf head;
    proa_buf_init(&head, (size_t)PROA_CHANNEL_HEAD_MAX);
    for (int k = 0; k < count; k++) {
        proa_err err = {0};
        if (write_request(i, p, requests[k], &head, &i->out[n + 1], &err) == PROA_OK)
            written[n++] = requests[k];
        else proa_infer_fail(requests[k], &err);
    }
    proa_buf_release(&head);
    return n;
}

static void send_requests(proa_worker *i, proa_process *p, proa_infer **requests, int count)
{
    proa_infer_input_done(requests, count);
    pthread_mutex_lock(&i->lock);
    for (int k = 0; k < count; k++) i->out[k + 1].id = add_slot(i, requests[k], i->out[k + 1].at);
    i->executing = true;
    i->late = false;
    i->execute_ns = proa_clock_ns();
    pthread_mutex_unlock(&i->lock);
    i->out[0] = (proa_channel_message){.kind = PROA_CHANNEL_EXECUTE, .number = (uint64_t)count};
    proa_process_send(p, i->out, count + 1); /* if this fails the process has ended, which ends its requests */
}

/* False if the process does not run. */
static bool execute_some(proa_worker *i, proa_infer *const *requests, int count)
{
    proa_infer *few[64],
        **written = count <= (int)PROA_COUNT(few) ? few : proa_malloc((size_t)count * sizeof(void *));
    proa_process *p = hold_process(i, 0);
    if (p) {
        int n = write_requests(i, p, requests, count, written);
        if (n) send_requests(i, p, written, n);
        unhold_process(i);
        pthread_mutex_lock(&i->lock);
        while (i->executing) pthread_cond_wait(&i->changed, &i->lock);
        pthread_mutex_unlock(&i->lock);
    }
    if (written != few) free(written);
    return p != NULL;
}

static bool try_execute(proa_worker *i, proa_infer *const *requests, int count)
{
    pthread_mutex_lock(&i->busy);
    bool done = execute_some(i, requests, count);
    pthread_mutex_unlock(&i->busy);
    return done;
}

/* The process is being restarted. If requests do not depend on the instance, another instance executes
 * them; otherwise they wait a short time. So one request that crashes the process delays the others but
 * does not fail them. */
static void execute_elsewhere(proa_worker *i, proa_infer *const *requests, int count)
{
    proa_err err = {0};
    proa_worker *other = NULL;
    pthread_mutex_lock(&i->model->lock);
    if (!i->model->config->sequence_batching)
        for (other = i->model->instances; other && (other == i || !is_up(other));) other = other->next;
    pthread_mutex_unlock(&i->model->lock);
    if (other && try_execute(other, requests, count)) return;
    const struct timespec pause = proa_worker_time_in(PAUSE_WAIT_MS), start = proa_worker_time_in(START_WAIT_MS);
    pthread_mutex_lock(&i->lock);
    while (i->state != PROA_WORKER_UP &&
           pthread_cond_timedwait(&i->changed, &i->lock, i->process ? &start : &pause) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&i->lock);
    if (try_execute(i, requests, count)) return;
    proa_worker_not_healthy(i, PROA_UNAVAILABLE, "is being started again", &err);
    for (int k = 0; k < count; k++) proa_infer_fail(requests[k], &err);
}

void proa_worker_execute(proa_worker *i, proa_infer *const *requests, int count)
{
    for (int from = 0; from < count; from += PROA_BATCH_REQUESTS_MAX) {
        int some = count - from < PROA_BATCH_REQUESTS_MAX ? count - from : PROA_BATCH_REQUESTS_MAX;
        if (!try_execute(i, requests + from, some)) execute_elsewhere(i, requests + from, some);
    }
}

/* ---- open, close ---- */

static void instance_free(proa_worker *i)
{
    proa_bls_free(i->bls);
    proa_devices_free(i->devices);
    pthread_cond_destroy(&i->changed);
    pthread_mutex_destroy(&i->lock);
    pthread_mutex_destroy(&i->busy);
    free(i->slots);
    free(i->out);
    free(i->in);
    free(i);
}

static void join_list(proa_worker *i)
{
    pthread_mutex_lock(&i->model->lock);
    i->next = i->model->instances;
    i->model->instances = i;
    pthread_mutex_unlock(&i->model->lock);
}

static void leave_list(proa_worker *i)
{
    pthread_mutex_lock(&i->model->lock);
    for (proa_worker **at = &i->model->instances; *at; at = &(*at)->next)
        if (*at == i) {
            *at = i->next;
            break;
        }
    pthread_mutex_unlock(&i->model->lock);
}

proa_status proa_worker_open(proa_worker **out, proa_worker_model *model, const proa_instance *instance,
                             proa_err *err)
{
    proa_worker *i = proa_calloc(1, sizeof *i);
    i->model = model;
    i->name = proa_instance_name(instance);
    i->device = proa_instance_device(instance);
    i->kind = proa_instance_kind(instance);
    i->bls = proa_bls_new(i);
    i->devices = proa_devices_new();
    i->in = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *i->in);
    i->out = proa_malloc(PROA_CHANNEL_PACKET_MAX * sizeof *i->out);
    pthread_mutex_init(&i->busy, NULL);
    pthread_mutex_init(&i->lock, NULL);
    pthread_cond_init(&i->changed, NULL);
    join_list(i);
    if (pthread_create(&i->thread, NULL, proa_worker_supervise, i) != 0) {
        leave_list(i);
        instance_free(i);
        return PROA_FAIL(err, NO_MEMORY, "cannot start a thread");
    }
    *out = i;
    return PROA_OK;
}

proa_status proa_worker_wait_opened(proa_worker *i, proa_err *err)
{
    pthread_mutex_lock(&i->lock);
    while (!i->tried) pthread_cond_wait(&i->changed, &i->lock);
    proa_status status = i->closing ? i->why.status : PROA_OK;
    if (status != PROA_OK && err) *err = i->why;
    pthread_mutex_unlock(&i->lock);
    return status;
}

void proa_worker_close(proa_worker *i)
{
    pthread_mutex_lock(&i->lock);
    i->closing = true;
    if (i->process) proa_process_wake(i->process);
    pthread_cond_broadcast(&i->changed);
    pthread_mutex_unlock(&i->lock);
    pthread_join(i->thread, NULL);
    pthread_mutex_lock(&i->lock);
    while (i->pending_calls) pthread_cond_wait(&i->changed, &i->lock);
    pthread_mutex_unlock(&i->lock);
    leave_list(i);
    instance_free(i);
}

/* ---- readiness ---- */

/* Sends a readiness check unless one is pending. The lock is held. */
static void send_ready_check(proa_worker *i)
{
    proa_channel_message m = {.kind = PROA_CHANNEL_READY};
    if (i->ready_pending) return;
    i->ready_pending = proa_process_send(i->process, &m, 1);
    i->ready_sent_ns = proa_clock_ns();
}

static void wait_ready(proa_worker *i)
{
    struct timespec until = proa_worker_time_in(READY_WAIT_MS);
    while (i->ready_pending && pthread_cond_timedwait(&i->changed, &i->lock, &until) != ETIMEDOUT) {
    }
}

bool proa_worker_ready(proa_worker *i, proa_err *reason)
{
    pthread_mutex_lock(&i->lock);
    bool ready = i->state == PROA_WORKER_UP;
    if (!ready) {
        if (i->why.status != PROA_OK) *reason = i->why;
        else proa_worker_not_healthy(i, PROA_UNAVAILABLE, NULL, reason);
    } else if (i->checks_ready) {
        bool pending = i->ready_pending; /* if so, and while it executes, the last answer counts: the caller may be an
                                            event loop */
        send_ready_check(i);
        if (!pending && !i->executing) wait_ready(i);
        bool slow = i->ready_pending && proa_clock_ns() - i->ready_sent_ns > READY_NS && !i->executing;
        ready = i->state == PROA_WORKER_UP && i->is_ready && !slow;
        if (!ready && i->not_ready.status != PROA_OK) *reason = i->not_ready;
        else if (!ready) PROA_FAIL(reason, UNAVAILABLE, "Model is not ready: is_ready() says so");
    }
    pthread_mutex_unlock(&i->lock);
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

proa_status proa_worker_wait_all(const proa_worker_model *m, proa_err *err)
{
    for (proa_worker *i = m->instances; i; i = i->next) PROA_TRY(proa_worker_wait_opened(i, err));
    return PROA_OK;
}

bool proa_worker_takes_devices(const proa_worker_model *m)
{
    for (proa_worker *i = m->instances; i; i = i->next)
        if (takes_devices(i)) return true;
    return false;
}

bool proa_worker_all_ready(proa_worker_model *m, proa_err *reason)
{
    bool all = true;
    pthread_mutex_lock(&m->lock);
    for (proa_worker *i = m->instances; i && all; i = i->next) all = proa_worker_ready(i, reason);
    pthread_mutex_unlock(&m->lock);
    return all;
}
