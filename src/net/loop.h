/* SPDX-License-Identifier: Apache-2.0
 * loop.h - an event loop: one thread, one libevent base, tasks from other threads, timers.
 * Owner:   proa_loop_new/free; tasks and timers are members of the caller's structs and are not allocated here.
 * Threads: post, stop and here from any thread; all else on the loop's own thread.
 * Way in:  proa_loop_new, then proa_loop_run on the thread that is to be its own. */
#ifndef PROA_NET_LOOP_H
#define PROA_NET_LOOP_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_loop proa_loop;

/* Something to run on the loop's thread. It is the caller's and may be reused or freed from inside run. */
typedef struct proa_loop_task {
    struct proa_loop_task *next;
    void (*run)(struct proa_loop_task *task);
} proa_loop_task;

PROA_MUST_CHECK proa_status proa_loop_new(proa_loop **out, proa_err *err);
void proa_loop_free(proa_loop *loop); /* not running; tasks that were posted and not run are run; NULL is fine */
void proa_loop_run(proa_loop *loop);  /* until proa_loop_stop */
void proa_loop_stop(proa_loop *loop); /* any thread; also before run */

/* Queues a task, in order for each posting thread. Lock-free, and wakes the loop only if it sleeps. */
void proa_loop_post(proa_loop *loop, proa_loop_task *task);
bool proa_loop_is_current(const proa_loop *loop); /* is this the thread that runs it? */
int64_t proa_loop_now_ns(const proa_loop *loop);  /* the monotonic clock as of this turn: cheap */
/* Runs the task on this thread when the events of this turn have been handled. Loop thread only. */
void proa_loop_late(proa_loop *loop, proa_loop_task *task);

typedef struct proa_timer {
    proa_loop *loop;
    void (*fire)(void *arg);
    void *arg;
    struct event *event; /* made at the first start, kept until release */
} proa_timer;
void proa_timer_start(proa_timer *timer, int64_t ms); /* once; a running timer starts anew */
void proa_timer_release(proa_timer *timer);           /* a zeroed timer is fine */

#endif
