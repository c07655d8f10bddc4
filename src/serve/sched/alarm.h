/* SPDX-License-Identifier: Apache-2.0
 * alarm.h - inside serve: one thread that keeps time for all schedulers (time-outs in queues, idle sequences).
 * Owner:   a alarm is its scheduler's; open and close are called once each.
 * Threads: proa_alarm_before from any; fire runs on the clock's thread, one alarm at a time: it must be brief. */
#ifndef PROA_SERVE_SCHED_ALARM_H
#define PROA_SERVE_SCHED_ALARM_H

#include "base/status.h"
#include <stdatomic.h>
#include <stdint.h>

#define PROA_ALARM_NEVER INT64_MAX

typedef struct proa_alarm {
    _Atomic int64_t at_ns; /* fires then; PROA_ALARM_NEVER: at rest */
    /* Returns when to fire next, or PROA_ALARM_NEVER. It may fire a little late, and without need. */
    int64_t (*fire)(void *arg, int64_t now_ns);
    void *arg;
    struct proa_alarm *next;
} proa_alarm;

/* NO_MEMORY if the thread that keeps time, which the first alarm starts, cannot be made; the next one tries again. */
PROA_MUST_CHECK proa_status proa_alarm_open(proa_alarm *alarm, int64_t (*fire)(void *arg, int64_t now_ns),
                                            void *arg, proa_err *err);
/* fire is not running any more, and will not. A alarm that was never opened (zeroed) is fine. */
void proa_alarm_close(proa_alarm *alarm);
/* It fires at at_ns or before. One atomic read if it would anyway. */
void proa_alarm_before(proa_alarm *alarm, int64_t at_ns);

#endif
