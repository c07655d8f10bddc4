/* SPDX-License-Identifier: Apache-2.0
 * wakeup.c - the list of wake-ups that a thread has deferred to the end of its batch. */
#include "base/wakeup.h"

#include "base/compiler.h"
#include "base/limits.h"
#include <stdbool.h>

typedef struct deferred_wakeup {
    proa_wakeup_fn *wake;
    void *arg;
} deferred_wakeup;

static _Thread_local struct {
    int depth, count;
    deferred_wakeup list[PROA_WAKEUPS_MAX];
} batch;

void proa_wakeups_begin(void)
{
    batch.depth++;
}

void proa_wakeups_end(void)
{
    PROA_ASSERT(batch.depth > 0);
    if (--batch.depth > 0) return;
    for (int i = 0; i < batch.count; i++) batch.list[i].wake(batch.list[i].arg);
    batch.count = 0;
}

proa_wakeup proa_wakeup_defer(proa_wakeup_fn *wake, void *arg)
{
    if (!batch.depth) return PROA_WAKEUP_NOW;
    for (int i = 0; i < batch.count; i++)
        if (batch.list[i].wake == wake && batch.list[i].arg == arg) return PROA_WAKEUP_LISTED;
    if (batch.count == PROA_WAKEUPS_MAX) return PROA_WAKEUP_NOW;
    batch.list[batch.count++] = (deferred_wakeup){wake, arg};
    return PROA_WAKEUP_ADDED;
}
