/* SPDX-License-Identifier: Apache-2.0
 * timer.h - inside serve: one thread that keeps time for all schedulers (time-outs in queues, idle sequences).
 * Owner:   a timer is its scheduler's; open and close are called once each.
 * Threads: proa_timer_before from any; fire runs on the clock's thread, one timer at a time: it must be brief. */
#ifndef PROA_SERVE_TIMER_H
#define PROA_SERVE_TIMER_H

#include <stdatomic.h>
#include <stdint.h>

#define PROA_TIMER_NEVER INT64_MAX

typedef struct proa_timer {
    _Atomic int64_t at_ns; /* fires then; PROA_TIMER_NEVER: at rest */
    /* Returns when to fire next, or PROA_TIMER_NEVER. It may fire a little late, and without need. */
    int64_t (*fire)(void *arg, int64_t now_ns);
    void *arg;
    struct proa_timer *next;
} proa_timer;

void proa_timer_open(proa_timer *timer, int64_t (*fire)(void *arg, int64_t now_ns), void *arg);
/* fire is not running any more, and will not. A timer that was never opened (zeroed) is fine. */
void proa_timer_close(proa_timer *timer);
/* It fires at at_ns or before. One atomic read if it would anyway. */
void proa_timer_before(proa_timer *timer, int64_t at_ns);

#endif
