/* SPDX-License-Identifier: Apache-2.0
 * execute.c - execute of an instance, on the scheduler's thread: its requests into the process, and the wait for the
 * end. */
#include "backends/process/worker.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include <errno.h>

#define PAUSE_WAIT_MS 1000  /* how long requests wait for a restart before they fail */
#define START_WAIT_MS 10000 /* the same once the process has started to load */

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

static proa_status write_payload(const proa_worker_instance *i, proa_process *p, proa_infer *r, proa_str head,
                                 proa_channel_message *m, proa_err *err)
{
    const proa_worker *w = i->worker;
    proa_exports exports = {.places = NULL};
    if (!proa_worker_has_devices(i)) PROA_TRY(proa_infer_inputs_to_host(r, err));
    PROA_TRY(proa_devices_export(w->devices, &exports, r->inputs, r->inputs_count,
                                 w->model->settings.kind->writes_inputs, err));
    use_copies(r, &exports);
    const proa_payload_content content = {
        .head = head, .tensors = r->inputs, .count = r->inputs_count, .exports = exports.places ? &exports : NULL};
    bool written = proa_payload_write(proa_process_arena(p), &content, &m->at, &m->bytes);
    proa_exports_release(w->devices, &exports, r->inputs_count);
    if (written) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "no room for the request in the %lld bytes that are shared with %s '%s'",
                     (long long)PROA_PROCESS_ARENA_BYTES, w->model->settings.kind->model,
                     w->model->config->name);
}

static proa_status write_request(const proa_worker_instance *i, proa_process *p, proa_infer *r,
                                 proa_buf *head, proa_channel_message *m, proa_err *err)
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
        atomic_fetch_add_explicit(&i->worker->model->bytes_in, r->inputs[k].bytes, memory_order_relaxed);
        proa_copies_add(r->inputs[k].bytes);
    }
    return PROA_OK;
}

/* Writes the requests; those that do not fit into shared memory fail. The others are moved to the front of
 * `written`. */
static int write_requests(proa_worker_instance *i, proa_process *p, proa_infer *const *requests, int count,
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

static void send_requests(proa_worker_instance *i, proa_process *p, proa_infer **requests, int count)
{
    proa_infer_input_done(requests, count);
    pthread_mutex_lock(&i->worker->lock);
    for (int k = 0; k < count; k++) i->out[k + 1].id = proa_worker_add_slot(i, requests[k], i->out[k + 1].at);
    i->executing = true;
    i->worker->executing++;
    i->execute_ns = proa_clock_ns();
    pthread_mutex_unlock(&i->worker->lock);
    i->out[0] = (proa_channel_message){.kind = PROA_CHANNEL_EXECUTE, .id = i->number, .number = (uint64_t)count};
    proa_process_send(p, i->out, count + 1); /* if this fails the process has ended, which ends its requests */
}

/* False if the process does not run. */
static bool execute_some(proa_worker_instance *i, proa_infer *const *requests, int count)
{
    proa_worker *w = i->worker;
    proa_infer *few[64],
        **written = count <= (int)PROA_COUNT(few) ? few : proa_malloc((size_t)count * sizeof(void *));
    proa_process *p = proa_worker_hold_process(w, 0);
    if (p) {
        int n = write_requests(i, p, requests, count, written);
        if (n) send_requests(i, p, written, n);
        proa_worker_unhold_process(w);
        pthread_mutex_lock(&w->lock);
        while (i->executing) pthread_cond_wait(&w->changed, &w->lock);
        pthread_mutex_unlock(&w->lock);
    }
    if (written != few) free(written);
    return p != NULL;
}

static bool try_execute(proa_worker_instance *i, proa_infer *const *requests, int count)
{
    pthread_mutex_lock(&i->busy);
    bool done = execute_some(i, requests, count);
    pthread_mutex_unlock(&i->busy);
    return done;
}

static bool is_up(proa_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool up = w->state == PROA_WORKER_UP;
    pthread_mutex_unlock(&w->lock);
    return up;
}

/* An instance of another process that runs; NULL: there is none, or requests depend on the instance. */
static proa_worker_instance *find_other(const proa_worker *w)
{
    proa_worker *other = NULL;
    if (w->model->config->sequence_batching) return NULL;
    pthread_mutex_lock(&w->model->lock);
    for (other = w->model->workers; other && (other == w || !is_up(other));) other = other->next;
    pthread_mutex_unlock(&w->model->lock);
    return other ? other->instances : NULL;
}

/* The process is being restarted. Another process executes the requests, if it may; otherwise they wait a short time.
 * So one request that crashes the process delays the others but does not fail them. */
static void execute_elsewhere(proa_worker_instance *i, proa_infer *const *requests, int count)
{
    proa_err err = {0};
    proa_worker *w = i->worker;
    proa_worker_instance *other = find_other(w);
    if (other && try_execute(other, requests, count)) return;
    const struct timespec pause = proa_worker_time_in(PAUSE_WAIT_MS), start = proa_worker_time_in(START_WAIT_MS);
    pthread_mutex_lock(&w->lock);
    while (w->state != PROA_WORKER_UP &&
           pthread_cond_timedwait(&w->changed, &w->lock, w->process ? &start : &pause) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&w->lock);
    if (try_execute(i, requests, count)) return;
    proa_worker_not_healthy(w, PROA_UNAVAILABLE, "is being started again", &err);
    for (int k = 0; k < count; k++) proa_infer_fail(requests[k], &err);
}

void proa_worker_execute(proa_worker_instance *i, proa_infer *const *requests, int count)
{
    for (int from = 0; from < count; from += PROA_BATCH_REQUESTS_MAX) {
        int some = count - from < PROA_BATCH_REQUESTS_MAX ? count - from : PROA_BATCH_REQUESTS_MAX;
        if (!try_execute(i, requests + from, some)) execute_elsewhere(i, requests + from, some);
    }
}
