/* SPDX-License-Identifier: Apache-2.0
 * job.c - work that callers have done between two steps, while the model runs nothing (proa_decoder_session). */
#include "engine/sched/job.h"

#include "engine/engine.h"

void proa_jobs_init(proa_engine_shared *shared)
{
    shared->jobs_last = &shared->jobs;
    pthread_cond_init(&shared->jobs_done, NULL);
}

void proa_jobs_release(proa_engine_shared *shared)
{
    pthread_cond_destroy(&shared->jobs_done);
}

bool proa_jobs_wait(const proa_engine *e)
{
    return atomic_load_explicit(&e->shared.jobs_wait, memory_order_relaxed);
}

/* The engine whose step this thread runs. */
static _Thread_local const proa_engine *stepping;

const proa_engine *proa_jobs_enter(const proa_engine *e)
{
    const proa_engine *outer = stepping;
    stepping = e;
    return outer;
}

static proa_engine_job *take_job(proa_engine_shared *shared)
{
    pthread_mutex_lock(&shared->lock);
    proa_engine_job *job = shared->jobs;
    if (job) shared->jobs = job->next;
    if (!shared->jobs) shared->jobs_last = &shared->jobs;
    atomic_store_explicit(&shared->jobs_wait, shared->jobs != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&shared->lock);
    return job;
}

bool proa_jobs_step(proa_engine *e)
{
    bool any = false;
    if (!proa_jobs_wait(e) || proa_inflight_any(e)) return false;
    for (proa_engine_job *job; (job = take_job(&e->shared)); any = true) {
        job->run(job->arg);
        pthread_mutex_lock(&e->shared.lock);
        job->done = true; /* its caller may return now: the job is gone */
        pthread_cond_broadcast(&e->shared.jobs_done);
        pthread_mutex_unlock(&e->shared.lock);
    }
    return any;
}

/* On the engine's thread. Under shared.lock. */
static void wait_for_job(proa_engine_shared *shared, proa_engine_job *job)
{
    *shared->jobs_last = job;
    shared->jobs_last = &job->next;
    atomic_store_explicit(&shared->jobs_wait, true, memory_order_relaxed);
    atomic_store_explicit(&shared->work_signalled, true, memory_order_relaxed);
    pthread_cond_signal(&shared->work);
    while (!job->done) pthread_cond_wait(&shared->jobs_done, &shared->lock);
}

proa_status proa_jobs_hand_over(proa_engine *e, void (*run)(void *arg), void *arg, bool *done, proa_err *err)
{
    proa_engine_job job = {.run = run, .arg = arg};
    pthread_mutex_lock(&e->shared.lock);
    bool thread_runs = e->shared.thread_runs && !e->shared.stop;
    bool inside = stepping == e || (thread_runs && pthread_equal(e->shared.thread, pthread_self()));
    if (thread_runs && !inside) wait_for_job(&e->shared, &job);
    pthread_mutex_unlock(&e->shared.lock);
    *done = thread_runs;
    if (inside) return PROA_FAIL(err, INVALID, "a session is used in a callback of its engine");
    return PROA_OK;
}
