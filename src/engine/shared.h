/* SPDX-License-Identifier: Apache-2.0
 * shared.h - what threads other than the stepping thread touch of an engine. Private to src/engine.
 * Owner:   the engine. Threads: any, under `lock`; atomics may be read without it. */
#ifndef PROA_ENGINE_SHARED_H
#define PROA_ENGINE_SHARED_H

#include "base/status.h"
#include "engine/sched/handoff.h"
#include "engine/sched/job.h"
#include "engine/sched/queue.h"
#include <pthread.h>
#include <stdatomic.h>

enum { PROA_CLIENT_BUCKETS = 256 };

struct proa_engine_shared {
    pthread_mutex_t lock;

    /* requests on their way in */
    proa_request_list inbox;   /* submitted, not yet seen by the stepping thread */
    proa_request_list held;    /* submitted, and kept back until proa_engine_release (handoff.h) */
    proa_engine_request *live; /* all requests that are not done */
    proa_client_queue *clients[PROA_CLIENT_BUCKETS]; /* all, by a hash of name and priority */
    uint64_t next_id;

    /* the engine's thread */
    pthread_t thread;
    bool thread_runs, stop;
    pthread_cond_t work; /* signalled when a request arrives, or the thread is to stop */
    atomic_bool work_signalled; /* the same as a hint for proa_engine_start's thread, which polls it before it sleeps */

    /* work between two steps (job.h) */
    proa_engine_job *jobs, **jobs_last; /* not done */
    pthread_cond_t jobs_done;           /* signalled when one is */
    atomic_bool jobs_wait; /* there are some, as a hint for the stepping thread, which submits no step ahead then */

    /* pages from and to other engines (handoff.h) */
    proa_kv_handoff *arriving, *returned; /* handoffs to this engine, not yet seen; those from it that have ended */
    atomic_bool handoffs_wait;            /* there are some, as a hint for the stepping thread */

    /* what is known about it outside */
    proa_stats stats;              /* published after each step */
    atomic_uint_fast64_t failures; /* of the device */
    proa_err lost;                 /* why ranks in other processes do not work; status OK: they do */
};

#endif
