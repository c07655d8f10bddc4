/* SPDX-License-Identifier: Apache-2.0
 * step_watch.h - how long the thread of a rank on a GPU has been in one call of a step. Such a call submits work, or
 * waits for the end of it, so one that lasts waits for a GPU or for a thread of another rank that hangs.
 * Threads: noted by that of the rank, read by that of the links. */
#ifndef PROA_ENGINE_STEP_WATCH_H
#define PROA_ENGINE_STEP_WATCH_H

#include "base/clock.h"
#include <stdatomic.h>
#include <stdbool.h>

typedef struct proa_step_watch {
    atomic_llong begin_ns; /* of the call that runs; 0: none runs */
    int64_t limit_ns;      /* 0: none. Steps of a CPU take any time */
} proa_step_watch;

static inline void proa_step_watch_note(proa_step_watch *w, bool begins)
{
    atomic_store(&w->begin_ns, begins ? proa_clock_ns() : 0);
}

static inline bool proa_step_watch_hangs(const proa_step_watch *w)
{
    int64_t begin = atomic_load(&w->begin_ns);
    return begin && w->limit_ns && proa_clock_ns() - begin > w->limit_ns;
}

#endif
