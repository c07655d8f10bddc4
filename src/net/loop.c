/* SPDX-License-Identifier: Apache-2.0
 * loop.c - a thread with an event loop: tasks posted by other threads, late tasks, timers. */
#include "net/loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/wakeup.h"
#include "net/block.h"
#include "net/loop_inner.h"
#include <errno.h>
#include <event2/event.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local const proa_loop *loop_of_thread;

/* ---- making ---- */

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(what);
    proa_loop_awake(arg);
    uint64_t count;
    if (read(fd, &count, sizeof count) < 0) return; /* an earlier read has consumed this write too */
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(fd);
    PROA_UNUSED(what);
    proa_loop *loop = arg;
    proa_loop_awake(loop);
    proa_wheel_sweep(&loop->wheel, proa_loop_now_ns(loop));
    if (loop->wheel.count > 0) return;
    event_del(loop->sweep_event);
    loop->sweeping = false;
}

static struct event_base *new_base(void)
{
    struct event_config *config = event_config_new();
    if (!config) return NULL;
    /* Only the loop's thread uses the base; others post tasks. Edge-triggered events and early close need epoll. */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_config_require_features(config, EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static proa_status open_loop(proa_loop *loop, proa_err *err)
{
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->wake_fd < 0) return PROA_FAIL(err, IO, "cannot make an event loop: %s", strerror(errno));
    loop->base = new_base();
    if (!loop->base) return PROA_FAIL(err, IO, "cannot make an event loop: no epoll");
    loop->wake_event = event_new(loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake, loop);
    loop->sweep_event = event_new(loop->base, -1, EV_PERSIST, on_sweep, loop);
    if (!loop->wake_event || !loop->sweep_event || event_add(loop->wake_event, NULL) != 0)
        return PROA_FAIL(err, IO, "cannot make an event loop: no events");
    return PROA_OK;
}

proa_status proa_loop_new(proa_loop **out, proa_err *err)
{
    *out = NULL;
    proa_loop *loop = proa_calloc(1, sizeof *loop);
    loop->wake_fd = -1;
    loop->late_end = &loop->late;
    loop->scratch = proa_malloc(PROA_LOOP_SCRATCH);
    proa_wheel_init(&loop->wheel, proa_clock_ns());
    proa_status status = open_loop(loop, err);
    if (status == PROA_OK) *out = loop;
    else proa_loop_free(loop);
    return status;
}

void proa_loop_free(proa_loop *loop)
{
    if (!loop) return;
    while (atomic_load(&loop->deferred) > 0) sched_yield(); /* a thread is about to end its batch */
    while (atomic_load(&loop->posted) || loop->late) {
        proa_loop_run_posted(loop);
        proa_loop_run_late(loop);
    }
    if (loop->wake_event) event_free(loop->wake_event);
    if (loop->sweep_event) event_free(loop->sweep_event);
    if (loop->base) event_base_free(loop->base);
    if (loop->wake_fd >= 0) close(loop->wake_fd);
    if (loop->release_spare) loop->release_spare(loop->spare);
    free(loop->scratch);
    free(loop);
}

/* ---- running ---- */

void proa_loop_run_posted(proa_loop *loop)
{
    if (!atomic_load_explicit(&loop->posted, memory_order_relaxed)) return;
    proa_loop_task *newest = atomic_exchange(&loop->posted, NULL), *oldest = NULL;
    while (newest) {
        proa_loop_task *task = newest;
        newest = task->next;
        task->next = oldest;
        oldest = task;
    }
    while (oldest) {
        proa_loop_task *task = oldest;
        oldest = task->next; /* run may free the task or post it again */
        task->run(task);
    }
}

void proa_loop_run_late(proa_loop *loop)
{
    proa_loop_task *first = loop->late;
    loop->late = NULL;
    loop->late_end = &loop->late;
    while (first) {
        proa_loop_task *task = first;
        first = task->next;
        task->run(task);
    }
}

void proa_loop_late(proa_loop *loop, proa_loop_task *task)
{
    task->next = NULL;
    *loop->late_end = task;
    loop->late_end = &task->next;
}

/* One turn: wait in epoll, handle its events, run posted tasks, run the late tasks of this turn. */
static void run_turn(proa_loop *loop)
{
    bool idle = !loop->late;
    if (idle) {
        /* First set `sleeping`, then look again: a posting thread does it in the other order. */
        atomic_store(&loop->sleeping, true);
        idle = !atomic_load(&loop->posted) && !atomic_load(&loop->stop);
    }
    loop->now_ns = 0;
    event_base_loop(loop->base, EVLOOP_ONCE | (idle ? 0 : EVLOOP_NONBLOCK));
    proa_loop_awake(loop);
    proa_loop_run_posted(loop);
    proa_loop_run_late(loop);
}

void proa_loop_run(proa_loop *loop)
{
    loop_of_thread = loop;
    proa_block_pool *pool = proa_block_pool_open(); /* memory freed on this thread is reused on it */
    while (!atomic_load(&loop->stop)) run_turn(loop);
    atomic_store(&loop->stop, false);
    proa_block_pool_close(pool);
    loop_of_thread = NULL;
}

static void wake_loop(proa_loop *loop)
{
    if (!atomic_load(&loop->sleeping) || !atomic_exchange(&loop->sleeping, false)) return;
    uint64_t one = 1;
    /* It fails only if the counter is full, and then the loop wakes anyway. */
    if (write(loop->wake_fd, &one, sizeof one) < 0) return;
}

void proa_loop_stop(proa_loop *loop)
{
    atomic_store(&loop->stop, true);
    wake_loop(loop);
}

static void wake_deferred(void *arg)
{
    proa_loop *loop = arg;
    wake_loop(loop);
    atomic_fetch_sub(&loop->deferred, 1);
}

void proa_loop_post(proa_loop *loop, proa_loop_task *task)
{
    proa_wakeup how = proa_wakeup_defer(wake_deferred, loop);
    /* before the task is visible, which may be the last thing that keeps the loop from being freed */
    if (how == PROA_WAKEUP_ADDED) atomic_fetch_add(&loop->deferred, 1);
    proa_loop_task *head = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do {
        task->next = head;
    } while (!atomic_compare_exchange_weak(&loop->posted, &head, task));
    if (how == PROA_WAKEUP_NOW) wake_loop(loop);
}

bool proa_loop_is_current(const proa_loop *loop)
{
    return loop_of_thread == loop;
}

int64_t proa_loop_now_ns(const proa_loop *loop)
{
    /* The reading is kept for the rest of the turn: a cache, of which callers need not know. */
    if (loop->now_ns == 0) ((proa_loop *)loop)->now_ns = proa_clock_ns();
    return loop->now_ns;
}

void proa_loop_deadline(proa_loop *loop, proa_deadline *deadline, int64_t at_ns)
{
    proa_deadline_set(&loop->wheel, deadline, at_ns);
    if (loop->sweeping || loop->wheel.count == 0) return;
    struct timeval tick = {.tv_usec = PROA_WHEEL_TICK_NS / 1000};
    loop->sweeping = event_add(loop->sweep_event, &tick) == 0;
}

/* ---- timers ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    PROA_UNUSED(fd);
    PROA_UNUSED(what);
    proa_timer *timer = arg;
    proa_loop_awake(timer->loop);
    timer->fire(timer->arg); /* may release the timer */
}

void proa_timer_start(proa_timer *timer, int64_t ms)
{
    if (!timer->event) timer->event = evtimer_new(timer->loop->base, on_timer, timer);
    PROA_ASSERT(timer->event);
    if (ms < 0) ms = 0;
    struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(timer->event, &after);
}

void proa_timer_release(proa_timer *timer)
{
    if (timer->event) event_free(timer->event);
    timer->event = NULL;
}
