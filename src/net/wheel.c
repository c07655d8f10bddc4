/* SPDX-License-Identifier: Apache-2.0
 * wheel.c - a timer wheel for the deadlines of connections. */
#include "net/wheel.h"

#include "base/checked.h"
#include <stddef.h>

static proa_deadline *slot_of(proa_wheel *wheel, int64_t at_ns)
{
    return &wheel->slots[(uint64_t)at_ns / (uint64_t)PROA_WHEEL_TICK_NS % PROA_WHEEL_SLOTS];
}

static void link_in(proa_deadline *head, proa_deadline *d)
{
    d->prev = head->prev;
    d->next = head;
    head->prev->next = d;
    head->prev = d;
}

static void link_out(proa_deadline *d)
{
    d->prev->next = d->next;
    d->next->prev = d->prev;
    d->prev = d->next = NULL;
}

void proa_wheel_init(proa_wheel *wheel, int64_t now_ns)
{
    for (int i = 0; i < PROA_WHEEL_SLOTS; i++) {
        proa_deadline *head = &wheel->slots[i];
        head->prev = head->next = head;
    }
    wheel->swept_ns = now_ns / PROA_WHEEL_TICK_NS * PROA_WHEEL_TICK_NS;
    wheel->count = 0;
}

/* Into the slot of its moment, or of the last moment of this turn of the wheel if that is further away. */
static void place_deadline(proa_wheel *wheel, proa_deadline *d)
{
    int64_t last = wheel->swept_ns + (PROA_WHEEL_SLOTS - 1) * PROA_WHEEL_TICK_NS;
    d->slot_ns = proa_max64(wheel->swept_ns, proa_min64(d->at_ns, last));
    link_in(slot_of(wheel, d->slot_ns), d);
}

void proa_deadline_remove(proa_wheel *wheel, proa_deadline *d)
{
    if (!d->next) return;
    link_out(d);
    wheel->count--;
}

void proa_deadline_set(proa_wheel *wheel, proa_deadline *d, int64_t at_ns)
{
    d->at_ns = at_ns;
    if (d->next && at_ns >= d->slot_ns) return; /* the sweep will move it */
    proa_deadline_remove(wheel, d);
    if (at_ns == INT64_MAX) return;
    place_deadline(wheel, d);
    wheel->count++;
}

/* Takes the slot's ring out first, so that a deadline put back into the same slot waits for the next turn. */
static void sweep_slot(proa_wheel *wheel, proa_deadline *head, int64_t now_ns)
{
    proa_deadline ring = {.prev = &ring, .next = &ring};
    while (head->next != head) {
        proa_deadline *d = head->next;
        link_out(d);
        link_in(&ring, d);
    }
    while (ring.next != &ring) {
        proa_deadline *d = ring.next;
        link_out(d);
        if (d->at_ns > now_ns && d->at_ns != INT64_MAX) {
            place_deadline(wheel, d);
            continue;
        }
        wheel->count--;
        if (d->at_ns != INT64_MAX) d->pass(d);
    }
}

void proa_wheel_sweep(proa_wheel *wheel, int64_t now_ns)
{
    /* A loop that slept through a whole turn of the wheel need not go round more than once. */
    int64_t first = now_ns / PROA_WHEEL_TICK_NS * PROA_WHEEL_TICK_NS - PROA_WHEEL_SLOTS * PROA_WHEEL_TICK_NS;
    if (wheel->swept_ns < first) wheel->swept_ns = first;
    while (wheel->swept_ns + PROA_WHEEL_TICK_NS <= now_ns) {
        proa_deadline *head = slot_of(wheel, wheel->swept_ns);
        wheel->swept_ns += PROA_WHEEL_TICK_NS;
        sweep_slot(wheel, head, now_ns);
    }
}
