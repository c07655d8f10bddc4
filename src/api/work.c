/* SPDX-License-Identifier: Apache-2.0 */
#include "api/inside.h"

#include "base/alloc.h"
#include "base/limits.h"

/* Threads start when work waits and none is idle, and stay until the end. */
struct proa_workers {
    pthread_mutex_t lock;
    pthread_cond_t came;
    proa_work *first, **last; /* waiting, oldest first */
    pthread_t threads[PROA_WORK_THREADS_MAX];
    int count, idle, waiting;
    bool stopping;
};

static void posted_back(proa_loop_task *task)
{
    proa_work *work = (proa_work *)task; /* its first member */
    work->done(work);
}

static proa_work *next_work(proa_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->idle++;
    while (!w->first && !w->stopping) pthread_cond_wait(&w->came, &w->lock);
    w->idle--;
    proa_work *work = w->first;
    if (work) {
        w->waiting--;
        w->first = work->next;
        if (!w->first) w->last = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return work;
}

static void *work_thread(void *arg)
{
    proa_workers *w = arg;
    for (proa_work *work; (work = next_work(w)) != NULL;) {
        work->run(work);
        work->task.run = posted_back;
        proa_loop_post(work->loop, &work->task); /* now it is the loop's */
    }
    return NULL;
}

proa_workers *proa_workers_new(void)
{
    proa_workers *w = proa_calloc(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    w->last = &w->first;
    return w;
}

void proa_workers_free(proa_workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->came);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->count; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->came);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* Under the lock. A thread only where none is idle for it. */
static void append(proa_workers *w, proa_work *work)
{
    work->next = NULL;
    *w->last = work;
    w->last = &work->next;
    if (++w->waiting > w->idle && w->count < PROA_WORK_THREADS_MAX) {
        bool started = pthread_create(&w->threads[w->count], NULL, work_thread, w) == 0;
        w->count += started;
        PROA_ASSERT(w->count > 0); /* without any thread the work would wait for ever */
    }
    pthread_cond_signal(&w->came);
}

proa_status proa_work_start(proa_api *api, proa_work *work, proa_err *err)
{
    proa_workers *w = api->workers;
    pthread_mutex_lock(&w->lock);
    bool room = w->waiting < PROA_WORK_WAITING_MAX;
    if (room) append(w, work);
    pthread_mutex_unlock(&w->lock);
    if (room) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "Exceeds maximum queue size: %d model loads and unloads wait already",
                     PROA_WORK_WAITING_MAX);
}
