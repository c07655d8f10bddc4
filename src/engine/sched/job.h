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

/* Runs run(arg) while nothing is in flight, on the engine's thread if there is one, else on this one, and returns after
 * it. INVALID on the engine's thread itself, that is in a callback. Any thread. */
PROA_MUST_CHECK proa_status proa_engine_job_run(proa_engine *e, void (*run)(void *arg), void *arg, proa_err *err);
/* When the engine opens, and when it closes. */
void proa_jobs_init(proa_engine_shared *shared);
void proa_jobs_release(proa_engine_shared *shared);

/* The stepping thread. Whether a pass was submitted whose results have not arrived. */
bool proa_jobs_in_flight(const proa_engine *e);
/* Whether jobs wait: no further pass is submitted ahead. */
bool proa_jobs_wait(const proa_engine *e);
/* This thread runs a step of an engine, whose callbacks may not call proa_engine_job_run; NULL: none any more. Returns
 * what it ran before. */
const proa_engine *proa_jobs_enter(const proa_engine *e);
/* Once a step: runs jobs that wait, if nothing is in flight. True: there were some. */
bool proa_jobs_step(proa_engine *e);

#endif
