/* SPDX-License-Identifier: Apache-2.0
 * How requests come to instances. Either each seat has a thread that takes from the queue, or (INLINE backends) whoever
 * brings a request takes a free seat and executes there; what finds no seat waits, and who leaves a seat takes of what
 * waits, a few requests long. The rest goes to a helper thread, so that a loop's thread is not kept.
 *
 * A request is not forgotten between those who see no free seat and those who see an empty queue: `waiting` is raised
 * before seats are tried, and a seat is freed before `waiting` is read, both in one order for all (seq_cst). */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/rate.h"
#include "serve/sched/sched.h"
#include <string.h>
#include <time.h>

#define DRAIN_MAX 4 /* executions that a caller makes for others after its own */

/* ---- in and out of the queue ---- */

static void on_cancel(proa_infer *r)
{
    proa_scheduler *s = r->model->scheduler;
    pthread_mutex_lock(&s->lock);
    bool ours = r->ticket.queued;
    if (ours) {
        proa_queue_remove(&s->queue, r);
        atomic_fetch_sub(&s->waiting, 1);
    }
    pthread_mutex_unlock(&s->lock);
    if (ours) proa_scheduler_cancelled(r);
    atomic_store(&r->ticket.heard, true);
}

void proa_crew_pushed(proa_scheduler *s)
{
    s->pushes++;
    atomic_fetch_add(&s->waiting, 1);
    if (s->on_caller || !s->idle) return;
    if (s->pinned) pthread_cond_broadcast(&s->wake);
    else if (s->queue.rows >= s->wake_rows) pthread_cond_signal(&s->wake);
}

/* The watch is set before the request can be taken: later it could replace the backend's. A cancel that comes between
 * the two finds it in no queue; then it is seen here. */
static proa_status push(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    proa_infer_watch(r, on_cancel);
    pthread_mutex_lock(&s->lock);
    proa_status status = proa_infer_cancelled(r) ? proa_infer_refuse_cancelled(r, err)
                                                 : proa_queue_push(&s->queue, r, err);
    if (status == PROA_OK) proa_crew_pushed(s);
    int64_t expires_ns = s->queue.expires_ns; /* from here on r may be gone */
    pthread_mutex_unlock(&s->lock);
    if (status != PROA_OK) proa_scheduler_unwatch(r);
    else if (expires_ns != PROA_ALARM_NEVER) proa_alarm_before(&s->alarm, expires_ns);
    return status;
}

bool proa_crew_pick(proa_scheduler *s, proa_infer *r)
{
    proa_queue_remove(&s->queue, r);
    atomic_fetch_sub(&s->waiting, 1);
    proa_infer_watch(r, NULL);
    if (!proa_infer_cancelled(r)) return true;
    proa_crew_end(s, r);
    return false;
}

bool proa_crew_keep(proa_scheduler *s, proa_infer *r, int64_t now_ns)
{
    bool rejected;
    if (proa_queue_keep(&s->queue, r, now_ns, &rejected)) return true;
    if (!rejected) return false;
    atomic_fetch_sub(&s->waiting, 1);
    proa_crew_end(s, r);
    return false;
}

/* ---- ending without execution ---- */

void proa_crew_end(proa_scheduler *s, proa_infer *r)
{
    r->next = NULL;
    *s->ended_last = r;
    s->ended_last = &r->next;
}

void proa_crew_end_all(proa_scheduler *s)
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
        else proa_queue_expired(r, &err);
        proa_scheduler_fail(r, &err, PROA_FAIL_REJECTED);
    }
}

int64_t proa_crew_expire(proa_scheduler *s, int64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    for (proa_infer *r = proa_queue_expire(&s->queue, now_ns), *next; r; r = next) {
        next = r->next;
        atomic_fetch_sub(&s->waiting, 1);
        proa_crew_end(s, r);
    }
    int64_t next = s->queue.expires_ns;
    pthread_mutex_unlock(&s->lock);
    proa_crew_end_all(s);
    return next;
}

/* ---- executing ---- */

void proa_crew_execute(proa_seat *seat, int count, int64_t now_ns)
{
    proa_scheduler *s = seat->scheduler;
    int64_t rows = 0;
    proa_infer *first = NULL;
    for (int i = count - 1; i >= 0; i--) {
        proa_infer *r = seat->batch[i];
        r->times.compute_start = now_ns;
        if (r->ticket.filler) continue;
        rows += r->batch > 0 ? r->batch : 1;
        first = r;
    }
    first->ticket.rows = rows;
    if (s->kind->prepare) s->kind->prepare(s, seat, count);
    s->model->backend->execute(seat->instance->state, seat->batch, count);
}

/* ---- seats with threads ---- */

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

/* Takes what a seat executes now; with the lock, which is left while it waits for the instance's resources. Nothing is
 * taken without them: what a look did not find may be there a moment later, since a delay is over. */
static int take(proa_seat *seat, bool *held, int64_t *again)
{
    proa_scheduler *s = seat->scheduler;
    *held = s->model->rate && s->kind->take(s, seat, proa_clock_ns(), true, again) > 0;
    if (s->model->rate && !*held) return 0;
    if (*held) {
        pthread_mutex_unlock(&s->lock);
        proa_rate_acquire(s->model->rate, seat->instance);
        pthread_mutex_lock(&s->lock);
    }
    return s->kind->take(s, seat, proa_clock_ns(), false, again);
}

/* Waits for the next batch of a seat: its size, or 0 to go home. Its resources are held then. */
static int next_batch(proa_seat *seat)
{
    proa_scheduler *s = seat->scheduler;
    int count = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->leave) {
        int64_t again = PROA_ALARM_NEVER;
        bool held;
        count = take(seat, &held, &again);
        bool ended = s->ended != NULL;
        if (count == 0 && !ended && !held) wait_until(s, again);
        if (count > 0 && !ended) break;
        pthread_mutex_unlock(&s->lock);
        if (count == 0 && held) proa_rate_release(s->model->rate, seat->instance);
        if (ended) proa_crew_end_all(s);
        if (count > 0) return count;
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return count;
}

static _Thread_local bool is_seat;

bool proa_crew_is_here(void)
{
    return is_seat;
}

static void *work_at_seat(void *arg)
{
    proa_seat *seat = arg;
    proa_scheduler *s = seat->scheduler;
    is_seat = true;
    for (int count; (count = next_batch(seat)) > 0;) {
        proa_crew_execute(seat, count, proa_clock_ns());
        if (s->model->rate) proa_rate_release(s->model->rate, seat->instance);
    }
    return NULL;
}

void proa_crew_call(proa_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->called = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- seats without threads ---- */

/* A free seat, of those behind `after` (NULL: of all). */
static proa_seat *take_seat(proa_scheduler *s, const proa_seat *after)
{
    for (int i = after ? after->index + 1 : 0; i < s->seats_count; i++) {
        proa_seat *seat = &s->seats[i];
        if (!atomic_load_explicit(&seat->taken, memory_order_relaxed) && !atomic_exchange(&seat->taken, true))
            return seat;
    }
    return NULL;
}

static void leave_seat(proa_seat *seat)
{
    atomic_store(&seat->taken, false);
}

typedef enum served { SERVED, NO_SEAT, NOTHING } served;

/* Executes once, at a seat that was taken, unless more than `rows_most` rows wait. NOTHING: *again_ns says when to look
 * again, *pushes what had been pushed. */
static served serve_at(proa_seat *seat, int64_t rows_most, int64_t *again_ns, uint64_t *pushes)
{
    proa_scheduler *s = seat->scheduler;
    int64_t again = PROA_ALARM_NEVER;
    pthread_mutex_lock(&s->lock);
    int64_t now = proa_clock_ns();
    int count = s->queue.rows > rows_most ? 0 : s->kind->take(s, seat, now, false, &again);
    if (again < *again_ns) *again_ns = again;
    bool ended = s->ended != NULL;
    *pushes = s->pushes;
    pthread_mutex_unlock(&s->lock);
    if (count > 0) proa_crew_execute(seat, count, now);
    leave_seat(seat);
    if (ended) proa_crew_end_all(s);
    return count > 0 || ended ? SERVED : NOTHING;
}

/* At any free seat, or where requests belong to seats at each free one until there was something. */
static served serve_once(proa_scheduler *s, int64_t rows_most, int64_t *again_ns, uint64_t *pushes)
{
    proa_seat *seat = NULL;
    served how = NO_SEAT;
    *again_ns = PROA_ALARM_NEVER;
    while (how != SERVED && (seat = take_seat(s, seat)) != NULL) {
        uint64_t seen;
        served here = serve_at(seat, rows_most, again_ns, &seen);
        if (how == NO_SEAT || seen < *pushes) *pushes = seen;
        how = here;
        if (!s->pinned) break;
    }
    return how;
}

/* A caller's share of what waits. */
static void drain(proa_scheduler *s)
{
    for (int i = 0; i < DRAIN_MAX; i++) {
        int64_t again;
        uint64_t pushes;
        if (atomic_load(&s->waiting) == 0) return;
        served how = serve_once(s, s->brief_rows, &again, &pushes);
        if (how == NO_SEAT) return; /* who leaves a seat looks after us */
        if (how == NOTHING) break;
    }
    if (atomic_load(&s->waiting) > 0) proa_crew_call(s);
}

/* Serves what callers leave, and what is taken later. */
static void *help(void *arg)
{
    proa_scheduler *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->leave) {
        int64_t again = PROA_ALARM_NEVER;
        uint64_t pushes = s->pushes;
        served how = NO_SEAT;
        s->called = false;
        pthread_mutex_unlock(&s->lock);
        if (atomic_load(&s->waiting) > 0) how = serve_once(s, INT64_MAX, &again, &pushes);
        pthread_mutex_lock(&s->lock);
        /* Whoever pushed while we had the seat found none. */
        if (how == SERVED || s->called || (how == NOTHING && s->pushes != pushes)) continue;
        if (!s->leave) wait_until(s, again);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the whole ---- */

proa_status proa_crew_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err)
{
    if (!s->on_caller) return push(s, r, err);
    bool at_once = s->eager && r->batch <= s->brief_rows && atomic_load(&s->waiting) == 0;
    proa_seat *seat = at_once ? take_seat(s, NULL) : NULL;
    if (!seat) {
        PROA_TRY(push(s, r, err));
    } else {
        seat->batch[0] = r;
        proa_crew_execute(seat, 1, r->times.queued);
        leave_seat(seat);
    }
    if (atomic_load(&s->waiting) > 0) drain(s);
    return PROA_OK;
}

void proa_crew_wake(proa_scheduler *s)
{
    if (s->on_caller) drain(s);
    else proa_crew_call(s);
}

static proa_status start(pthread_t *thread, void *(*work)(void *), void *arg, const char *name, proa_err *err)
{
    char text[16];
    int failed = pthread_create(thread, NULL, work, arg);
    if (failed)
        return PROA_FAIL(err, NO_MEMORY, "cannot start a thread for '%s': %s", name, strerror(failed));
    snprintf(text, sizeof text, "%s", name);
    pthread_setname_np(*thread, text);
    return PROA_OK;
}

proa_status proa_crew_open(proa_scheduler *s, int cap, proa_err *err)
{
    const proa_model *m = s->model;
    s->on_caller = (m->flags & PROA_BACKEND_INLINE) && !m->rate;
    s->brief_rows = m->brief_rows > 0 ? m->brief_rows : INT64_MAX;
    s->seats = proa_malloc_aligned((size_t)m->instances_count * sizeof *s->seats);
    memset(s->seats, 0, (size_t)m->instances_count * sizeof *s->seats);
    s->seats_count = m->instances_count;
    for (int i = 0; i < s->seats_count; i++) {
        proa_seat *seat = &s->seats[i];
        seat->index = i;
        seat->scheduler = s;
        seat->instance = &m->instances[i];
        seat->cap = cap;
        seat->batch = proa_calloc((size_t)cap, sizeof(proa_infer *));
    }
    for (int i = 0; m->rate && i < s->seats_count; i++) {
        PROA_TRY(proa_rate_add(m->rate, &m->instances[i], err));
        s->seats[i].has_rate = true;
    }
    for (int i = 0; i < s->seats_count && !s->on_caller; i++) {
        PROA_TRY(start(&s->seats[i].thread, work_at_seat, &s->seats[i], m->instances[i].name, err));
        s->seats[i].has_thread = true;
    }
    if (s->on_caller) {
        PROA_TRY(start(&s->helper, help, s, m->name, err));
        s->has_helper = true;
    }
    return PROA_OK;
}

void proa_crew_close(proa_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->leave = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (s->has_helper) pthread_join(s->helper, NULL);
    for (int i = 0; i < s->seats_count; i++) {
        if (s->seats[i].has_thread) pthread_join(s->seats[i].thread, NULL);
        if (s->seats[i].has_rate) proa_rate_remove(s->model->rate, s->seats[i].instance);
        free(s->seats[i].batch);
    }
    free(s->seats);
    s->seats = NULL;
    s->seats_count = 0;
}
