/* SPDX-License-Identifier: Apache-2.0
 * wheel.h - deadlines of many connections that are nearly always moved before they pass: moving one is a store. A
 * deadline is in a slot whose time is not later than its own. The sweep visits a slot when its time has come, and
 * moves deadlines that were set later since then to their new slots. So deadlines are late by up to
 * PROA_WHEEL_TICK_NS, never early.
 * Owner:   the wheel belongs to a loop, each deadline to its connection.  Threads: the loop's. */
#ifndef PROA_NET_WHEEL_H
#define PROA_NET_WHEEL_H

#include <stdint.h>

#define PROA_WHEEL_TICK_NS (INT64_C(1) << 28) /* 0.27 s */
enum { PROA_WHEEL_SLOTS = 256 };              /* 69 s; a later deadline is visited once a round */

typedef struct proa_deadline {
    struct proa_deadline *prev, *next;            /* NULL: in no slot */
    int64_t at_ns;                                /* INT64_MAX: none */
    int64_t slot_ns;                              /* the moment of the slot that it is in */
    void (*pass)(struct proa_deadline *deadline); /* may free it */
} proa_deadline;

typedef struct proa_wheel {
    proa_deadline slots[PROA_WHEEL_SLOTS]; /* heads of rings */
    int64_t swept_ns;                      /* slots up to this moment are done */
    int count;                             /* deadlines in slots */
} proa_wheel;

void proa_wheel_init(proa_wheel *wheel, int64_t now_ns);
void proa_deadline_set(proa_wheel *wheel, proa_deadline *deadline, int64_t at_ns); /* INT64_MAX: none */
void proa_deadline_remove(proa_wheel *wheel, proa_deadline *deadline);
void proa_wheel_sweep(proa_wheel *wheel, int64_t now_ns); /* calls pass of those before now */

#endif
