/* SPDX-License-Identifier: Apache-2.0
 * executor.c - the executor: how requests reach the instances of a model.
 * Threads: an instance slot either has a thread that takes requests from the queue, or (INLINE backends) the thread
 *          that brings a request takes a free slot and executes there. A request that finds no free slot waits in the
 *          queue. A thread that frees a slot executes a few of the waiting requests; the rest goes to a helper thread,
 *          so that a loop's thread is not kept.
 *
 * No request is forgotten between a thread that sees no free slot and one that sees an empty queue: `waiting` is
 * raised before slots are tried, and a slot is freed before `waiting` is read, both in one order for all threads
 * (seq_cst). */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/rate.h"
#include "serve/sched/sched.h"
#include <string.h>
#include <time.h>

#define DRAIN_MAX 4 /* executions that a caller does for waiting requests after its own */

/* ---- in and out of the queue ---- */

static void on_cancel(proa_infer *r)
{
    proa_scheduler *s = r->model->scheduler;
    pthread_mutex_lock(&s->lock);
    bool ours = r->ticket.queued;
    if (ours) {
        proa_sched_queue_remove(&s->queue, r);
        atomic_fetch_sub(&s->waiting, 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (ours) proa_scheduler_cancelled(r);
    atomic_store(&r->ticket.cancel_handled, true);
}

void proa_executor_pushed(proa_scheduler *s)
{
    s->pushes++;
    atomic_fetch_add(&s->waiting, 1);
    if (s->on_caller || !s->idle) return;
    if (s->pinned) pthread_cond_broadcast(&s->wake);
    else if (s->queue.rows >= s->wake_rows) pthread_cond_signal(&s->wake);
}

/* Sets the watch before the request can be taken from the queue: later it could replace the backend's watch. A cancel
 * between the two steps does not find the request in a queue; it is seen here instead. */
static proa_status push_watched(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    proa_infer_watch(r, on_cancel);
    pthread_mutex_lock(&s->lock);
    proa_status status = proa_infer_cancelled(r) ? proa_infer_refuse_cancelled(r, err)
                                                 : proa_sched_queue_push(&s->queue, r, err);
    if (status == PROA_OK) proa_executor_pushed(s);
    int64_t expires_ns = s->queue.expires_ns; /* from here on r may have been freed */
    pthread_mutex_unlock(&s->lock);
    if (status != PROA_OK) proa_scheduler_unwatch(r);
    else if (expires_ns != PROA_ALARM_NEVER) proa_alarm_before(&s->alarm, expires_ns);
    return status;
}

bool proa_executor_dequeue(proa_scheduler *s, proa_infer *r)
{
    proa_sched_queue_remove(&s->queue, r);
    atomic_fetch_sub(&s->waiting, 1);
    proa_infer_watch(r, NULL);
    if (!proa_infer_cancelled(r)) return true;
    proa_executor_end(s, r);
    return false;
}

bool proa_executor_check(proa_scheduler *s, proa_infer *r, int64_t now_ns)
{
    bool rejected;
    if (proa_sched_queue_check(&s->queue, r, now_ns, &rejected)) return true;
    if (!rejected) return false;
    atomic_fetch_sub(&s->waiting, 1);
    proa_executor_end(s, r);
    return false;
}

/* ---- ending without execution ---- */

void proa_executor_end(proa_scheduler *s, proa_infer *r)
{
    r->next = NULL;
    *s->ended_last = r;
    s->ended_last = &r->next;
}

void proa_executor_end_all(proa_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    proa_infer *r = s->ended;
    s->ended = NULL;
    s->ended_last = &s->ended;
    pthread_mutex_unlock(&s->lock);
    for (proa_infer *next; r; r = next) {
        proa_err err = {0};
        next = r->next;
        proa_infer_watch(r, NULL);
        if (proa_infer_cancelled(r) || r->ticket.reason == PROA_FAIL_CANCELED + 1) {
            proa_scheduler_cancelled(r);
            continue;
        }
        if (s->expired_text) PROA_FAIL(&err, UNAVAILABLE, "%s", s->expired_text);
        else proa_sched_queue_expired(r, &err);
        proa_scheduler_fail(r, &err, PROA_FAIL_REJECTED);
    }
}

int64_t proa_executor_expire(proa_scheduler *s, int64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    for (proa_infer *r = proa_sched_queue_expire(&s->queue, now_ns), *next; r; r = next) {
        next = r->next;
        atomic_fetch_sub(&s->waiting, 1);
        proa_executor_end(s, r);
    }
    int64_t next = s->queue.expires_ns;
    pthread_mutex_unlock(&s->lock);
    proa_executor_end_all(s);
    return next;
}

/* ---- executing ---- */

static void execute_batch(proa_instance_slot *slot, int count, int64_t now_ns)
{
    proa_scheduler *s = slot->scheduler;
    int64_t rows = 0;
    proa_infer *first = NULL;
    for (int i = count - 1; i >= 0; i--) {
        proa_infer *r = slot->batch[i];
        r->times.compute_start = now_ns;
        if (r->ticket.filler) continue;
        rows += r->batch > 0 ? r->batch : 1;
        first = r;
    }
    first->ticket.rows = rows;
    if (s->kind->prepare) s->kind->prepare(s, slot, count);
    s->model->backend->execute(slot->instance->state, slot->batch, count);
}

/* ---- instance slots with threads ---- */

static void wait_until(proa_scheduler *s, int64_t at_ns)
{
    s->idle++;
    if (at_ns == PROA_ALARM_NEVER) {
        pthread_cond_wait(&s->wake, &s->lock);
    } else {
        struct timespec t = {.tv_sec = (time_t)(at_ns / 1000000000), .tv_nsec = (long)(at_ns % 1000000000)};
        pthread_cond_timedwait(&s->wake, &s->lock, &t);
    }
    s->idle--;
}

/* Takes the batch that a slot executes now. Called with the lock, which is released while it waits for the instance's
 * resources. Nothing is taken without the resources: a batch that the peek did not find may be ready a moment later,
 * because a delay has passed. */
static int take_work(proa_instance_slot *slot, bool *held, int64_t *again)
{
    proa_scheduler *s = slot->scheduler;
    *held = s->model->rate && s->kind->take(s, slot, proa_clock_ns(), true, again) > 0;
    if (s->model->rate && !*held) return 0;
    if (*held) {
        pthread_mutex_unlock(&s->lock);
        proa_rate_acquire(s->model->rate, slot->instance);
        pthread_mutex_lock(&s->lock);
    }
    return s->kind->take(s, slot, proa_clock_ns(), false, again);
}

/* Waits for the next batch of a slot and returns its size; 0: the thread must end. The instance's resources are held
 * with a batch. */
static int next_batch(proa_instance_slot *slot)
{
    proa_scheduler *s = slot->scheduler;
    int count = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->stop_threads) {
        int64_t again = PROA_ALARM_NEVER;
        bool held;
        count = take_work(slot, &held, &again);
        bool ended = s->ended != NULL;
        if (count == 0 && !ended && !held) wait_until(s, again);
        if (count > 0 && !ended) break;
        pthread_mutex_unlock(&s->lock);
        if (count == 0 && held) proa_rate_release(s->model->rate, slot->instance);
        if (ended) proa_executor_end_all(s);
        if (count > 0) return count;
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return count;
}

static _Thread_local bool is_instance_thread;

bool proa_executor_on_instance_thread(void)
{
    return is_instance_thread;
}

static void *instance_thread(void *arg)
{
    proa_instance_slot *slot = arg;
    proa_scheduler *s = slot->scheduler;
    is_instance_thread = true;
    for (int count; (count = next_batch(slot)) > 0;) {
        execute_batch(slot, count, proa_clock_ns());
        if (s->model->rate) proa_rate_release(s->model->rate, slot->instance);
    }
    return NULL;
}

void proa_executor_notify(proa_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->notified = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- instance slots without threads ---- */

/* Acquires the first free slot that follows `after` (NULL: any); NULL if there is none. */
static proa_instance_slot *acquire_slot(proa_scheduler *s, const proa_instance_slot *after)
{
    for (int i = after ? after->index + 1 : 0; i < s->slots_count; i++) {
        proa_instance_slot *slot = &s->slots[i];
        if (!atomic_load_explicit(&slot->taken, memory_order_relaxed) && !atomic_exchange(&slot->taken, true))
            return slot;
    }
    return NULL;
}

static void release_slot(proa_instance_slot *slot)
{
    atomic_store(&slot->taken, false);
}

typedef enum served { SERVED, NO_SLOT, NOTHING } served;

/* Executes once in an acquired slot, unless more than `rows_most` rows wait. NOTHING: *again_ns is when to look again,
 * *pushes the value of s->pushes then. */
static served serve_slot(proa_instance_slot *slot, int64_t rows_most, int64_t *again_ns, uint64_t *pushes)
{
    proa_scheduler *s = slot->scheduler;
    int64_t again = PROA_ALARM_NEVER;
    pthread_mutex_lock(&s->lock);
    int64_t now = proa_clock_ns();
    int count = s->queue.rows > rows_most ? 0 : s->kind->take(s, slot, now, false, &again);
    if (again < *again_ns) *again_ns = again;
    bool ended = s->ended != NULL;
    *pushes = s->pushes;
    pthread_mutex_unlock(&s->lock);
    if (count > 0) execute_batch(slot, count, now);
    release_slot(slot);
    if (ended) proa_executor_end_all(s);
    return count > 0 || ended ? SERVED : NOTHING;
}

/* Executes in any free slot; if requests are pinned to slots, tries each free slot until one had something. */
static served serve_once(proa_scheduler *s, int64_t rows_most, int64_t *again_ns, uint64_t *pushes)
{
    proa_instance_slot *slot = NULL;
    served how = NO_SLOT;
    *again_ns = PROA_ALARM_NEVER;
    while (how != SERVED && (slot = acquire_slot(s, slot)) != NULL) {
        uint64_t seen;
        served last = serve_slot(slot, rows_most, again_ns, &seen);
        if (how == NO_SLOT || seen < *pushes) *pushes = seen;
        how = last;
        if (!s->pinned) break;
    }
    return how;
}

/* Executes a few of the waiting requests on the caller's thread. */
static void drain_queue(proa_scheduler *s)
{
    for (int i = 0; i < DRAIN_MAX; i++) {
        int64_t again;
        uint64_t pushes;
        if (atomic_load(&s->waiting) == 0) return;
        served how = serve_once(s, s->inline_rows_max, &again, &pushes);
        if (how == NO_SLOT) return; /* the thread that releases a slot looks at the queue after us */
        if (how == NOTHING) break;
    }
    if (atomic_load(&s->waiting) > 0) proa_executor_notify(s);
}

/* Executes what callers leave in the queue, and batches that become ready later. */
static void *helper_thread(void *arg)
{
    proa_scheduler *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop_threads) {
        int64_t again = PROA_ALARM_NEVER;
        uint64_t pushes = s->pushes;
        served how = NO_SLOT;
        s->notified = false;
        pthread_mutex_unlock(&s->lock);
        if (atomic_load(&s->waiting) > 0) how = serve_once(s, INT64_MAX, &again, &pushes);
        pthread_mutex_lock(&s->lock);
        /* A thread that pushed while we held the slot found none free. */
        if (how == SERVED || s->notified || (how == NOTHING && s->pushes != pushes)) continue;
        if (!s->stop_threads) wait_until(s, again);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- open, enqueue, close ---- */

proa_status proa_executor_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    if (!s->on_caller) return push_watched(s, r, err);
    bool at_once = s->eager && r->batch <= s->inline_rows_max && atomic_load(&s->waiting) == 0;
    proa_instance_slot *slot = at_once ? acquire_slot(s, NULL) : NULL;
    if (!slot) {
        PROA_TRY(push_watched(s, r, err));
    } else {
        slot->batch[0] = r;
        execute_batch(slot, 1, r->times.queued);
        release_slot(slot);
    }
    if (atomic_load(&s->waiting) > 0) drain_queue(s);
    return PROA_OK;
}

void proa_executor_wake(proa_scheduler *s)
{
    if (s->on_caller) drain_queue(s);
    else proa_executor_notify(s);
}

static proa_status start_thread(pthread_t *thread, void *(*work)(void *), void *arg, const char *name,
                                proa_err *err)
{
    char text[16];
    int failed = pthread_create(thread, NULL, work, arg);
    if (failed)
        return PROA_FAIL(err, NO_MEMORY, "cannot start a thread for '%s': %s", name, strerror(failed));
    snprintf(text, sizeof text, "%s", name);
    pthread_setname_np(*thread, text);
    return PROA_OK;
}

proa_status proa_executor_open(proa_scheduler *s, int cap, proa_err *err)
{
    const proa_served_model *m = s->model;
    s->on_caller = (m->flags & PROA_BACKEND_INLINE) && !m->rate;
    s->inline_rows_max = m->inline_rows_max > 0 ? m->inline_rows_max : INT64_MAX;
    s->slots = proa_malloc_aligned((size_t)m->instances_count * sizeof *s->slots);
    memset(s->slots, 0, (size_t)m->instances_count * sizeof *s->slots);
    s->slots_count = m->instances_count;
    for (int i = 0; i < s->slots_count; i++) {
        proa_instance_slot *slot = &s->slots[i];
        slot->index = i;
        slot->scheduler = s;
        slot->instance = &m->instances[i];
        slot->cap = cap;
        slot->batch = proa_calloc((size_t)cap, sizeof(proa_infer *));
    }
    for (int i = 0; m->rate && i < s->slots_count; i++) {
        PROA_TRY(proa_rate_add(m->rate, &m->instances[i], err));
        s->slots[i].has_rate = true;
    }
    for (int i = 0; i < s->slots_count && !s->on_caller; i++) {
        PROA_TRY(start_thread(&s->slots[i].thread, instance_thread, &s->slots[i], m->instances[i].name, err));
        s->slots[i].has_thread = true;
    }
    if (s->on_caller) {
        PROA_TRY(start_thread(&s->helper, helper_thread, s, m->name, err));
        s->has_helper = true;
    }
    return PROA_OK;
}

void proa_executor_close(proa_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop_threads = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_helper) pthread_join(s->helper, NULL);
    for (int i = 0; i < s->slots_count; i++) {
        if (s->slots[i].has_thread) pthread_join(s->slots[i].thread, NULL);
        if (s->slots[i].has_rate) proa_rate_remove(s->model->rate, s->slots[i].instance);
        free(s->slots[i].batch);
    }
    free(s->slots);
    s->slots = NULL;
    s->slots_count = 0;
}
