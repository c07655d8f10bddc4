/* SPDX-License-Identifier: Apache-2.0
 * loop_inner.h - the inside of a loop, for the files that make connections on it.
 * Owner:   loop.c.
 * Threads: the loop's, but for posted, sleeping, stop and deferred. */
#ifndef PROA_NET_LOOP_INNER_H
#define PROA_NET_LOOP_INNER_H

#include "net/loop.h"
#include "net/wheel.h"
#include <stdatomic.h>

enum {
    PROA_LOOP_SCRATCH = 64 << 10
}; /* bytes of one read; a buffer that all connections of the loop share */

struct proa_loop {
    struct event_base *base;
    _Atomic(proa_loop_task *) posted; /* a stack; the newest first */
    atomic_bool sleeping;             /* or about to: the thread that clears it must write to wake_fd */
    atomic_bool stop;
    atomic_int deferred; /* wake-ups that threads still owe (base/thread.h); proa_loop_free waits for them */
    int wake_fd;
    struct event *wake_event, *sweep_event;
    bool sweeping;        /* sweep_event runs: there are deadlines */
    proa_loop_task *late; /* for the end of this turn, oldest first */
    proa_loop_task **late_end;
    int64_t now_ns; /* 0: not read in this turn */
    proa_wheel wheel;
    /* spare exchanges of http_exchange.c; the loop can only free them */
    void *spare;
    int spare_count;
    void (*release_spare)(void *spare);
    char *scratch; /* [PROA_LOOP_SCRATCH] */
};

/* At the start of each event's function: from here on no thread needs to wake the loop. */
static inline void proa_loop_awake(proa_loop *loop)
{
    if (atomic_load_explicit(&loop->sleeping, memory_order_relaxed)) atomic_store(&loop->sleeping, false);
}

/* Sets a deadline and sees to it that the wheel is swept. INT64_MAX: none. */
void proa_loop_deadline(proa_loop *loop, proa_deadline *deadline, int64_t at_ns);
/* Runs posted tasks on the calling thread; for a loop that does not run. */
void proa_loop_run_posted(proa_loop *loop);
/* Runs the late tasks that are queued now. */
void proa_loop_run_late(proa_loop *loop);

#endif
