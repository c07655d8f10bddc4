/* SPDX-License-Identifier: Apache-2.0
 * job.h - work of callers between two steps. Private to src/engine.
 * Owner:   a job is on the stack of the thread that waits for it. Threads: each function names its own. */
#ifndef PROA_ENGINE_SCHED_JOB_H
#define PROA_ENGINE_SCHED_JOB_H

#include "base/status.h"
#include "proa/proa.h"

typedef struct proa_engine_shared proa_engine_shared;

/* A function that another thread has the stepping thread run between two steps. Under shared.lock. */
typedef struct proa_engine_job {
    void (*run)(void *arg);
    void *arg;
    bool done;
    struct proa_engine_job *next;
} proa_engine_job;

/* Has the engine's thread run run(arg) while nothing is in flight, and returns after it. done false: the engine has no
 * thread, and the caller runs it (proa_sched_run_job does both). INVALID on the stepping thread itself, that is in a
 * callback. Any thread. */
PROA_MUST_CHECK proa_status proa_jobs_hand_over(proa_engine *e, void (*run)(void *arg), void *arg, bool *done,
                                                proa_err *err);
/* When the engine opens, and when it closes. */
void proa_jobs_init(proa_engine_shared *shared);
void proa_jobs_release(proa_engine_shared *shared);

/* The stepping thread. Whether jobs wait: no further pass is submitted ahead. */
bool proa_jobs_wait(const proa_engine *e);
/* This thread runs a step of an engine, whose callbacks may not call proa_sched_run_job; NULL: none any more. Returns
 * what it ran before. */
const proa_engine *proa_jobs_enter(const proa_engine *e);
/* Once a step: runs jobs that wait, if nothing is in flight. True: there were some. */
bool proa_jobs_step(proa_engine *e);

#endif
