/* SPDX-License-Identifier: Apache-2.0
 * work.c - worker threads for what would block a loop, and the hand-over of requests to them. */
#include "net/work.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/thread.h"
#include <stdatomic.h>

/* Threads start when work waits and none is idle, and stay until the end. */
struct proa_workers {
    pthread_mutex_t lock;
    pthread_cond_t work_ready;
    proa_work_item *first, **last; /* waiting, oldest first */
    pthread_t *threads;
    int threads_max, waiting_max;
    int count, idle, waiting;
    void (*at_end)(void);
    bool used; /* since the memory was last trimmed */
    bool stopping;
};

/* ---- threads ---- */

static void post_done(proa_loop_task *task)
{
    proa_work_item *work = (proa_work_item *)task; /* its first member */
    if (proa_handoff_pending(work->handoff)) {
        proa_handoff_wait(work->handoff, task);
        return;
    }
    proa_handoff_drop(work->handoff);
    work->done(work);
}

/* Under the lock. When all threads have been idle for a while after some work, one of them gives the memory of freed
 * requests back to the system: the C library keeps it otherwise. */
static void wait_for_work(proa_workers *w)
{
    if (!w->used || w->idle < w->count) {
        pthread_cond_wait(&w->work_ready, &w->lock);
        return;
    }
    if (!proa_cond_wait_ms(&w->work_ready, &w->lock, PROA_TRIM_MS) || !w->used) return;
    w->used = false;
    pthread_mutex_unlock(&w->lock);
    proa_memory_trim();
    pthread_mutex_lock(&w->lock);
}

static proa_work_item *next_work(proa_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->idle++;
    while (!w->first && !w->stopping) wait_for_work(w);
    w->idle--;
    proa_work_item *work = w->first;
    if (work) {
        w->used = true;
        w->waiting--;
        w->first = work->next;
        if (!w->first) w->last = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return work;
}

static void *worker_main(void *arg)
{
    proa_workers *w = arg;
    for (proa_work_item *work; (work = next_work(w)) != NULL;) {
        work->run(work);
        work->task.run = post_done;
        proa_loop_post(work->loop, &work->task); /* from here on it belongs to the loop */
    }
    if (w->at_end) w->at_end();
    return NULL;
}

proa_workers *proa_workers_new(int threads, int waiting, void (*at_end)(void))
{
    proa_workers *w = proa_calloc(1, sizeof *w);
    w->threads = proa_calloc((size_t)threads, sizeof *w->threads);
    w->threads_max = threads;
    w->waiting_max = waiting;
    w->at_end = at_end;
    pthread_mutex_init(&w->lock, NULL);
    proa_cond_init(&w->work_ready);
    w->last = &w->first;
    return w;
}

void proa_workers_end(proa_workers *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->work_ready);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->count; i++) pthread_join(w->threads[i], NULL);
    w->count = 0;
}

void proa_workers_free(proa_workers *w)
{
    if (!w) return;
    pthread_cond_destroy(&w->work_ready);
    pthread_mutex_destroy(&w->lock);
    free(w->threads);
    free(w);
}

/* Under the lock. Starts a thread only if none is idle. False: there is no thread at all. */
static bool append_work(proa_workers *w, proa_work_item *work)
{
    if (w->waiting + 1 > w->idle && w->count < w->threads_max)
        w->count += pthread_create(&w->threads[w->count], NULL, worker_main, w) == 0;
    if (w->count == 0) return false; /* it would wait for ever */
    work->next = NULL;
    work->handoff = proa_handoff_current();
    *w->last = work;
    w->last = &work->next;
    w->waiting++;
    pthread_cond_signal(&w->work_ready);
    return true;
}

bool proa_workers_start(proa_workers *w, proa_work_item *work)
{
    pthread_mutex_lock(&w->lock);
    bool taken = !w->stopping && w->waiting < w->waiting_max && append_work(w, work);
    pthread_mutex_unlock(&w->lock);
    return taken;
}

/* ---- handoffs ---- */

struct proa_handoff {
    atomic_int refs;
    bool out; /* the loop's, as are the tasks */
    proa_loop_task *waiting, **last;
};

static _Thread_local proa_handoff *current_handoff;

proa_handoff *proa_handoff_new(void)
{
    proa_handoff *handoff = proa_calloc(1, sizeof *handoff);
    atomic_init(&handoff->refs, 1);
    handoff->out = true;
    handoff->last = &handoff->waiting;
    return handoff;
}

void proa_handoff_enter(proa_handoff *handoff)
{
    current_handoff = handoff;
}

void proa_handoff_leave(void)
{
    current_handoff = NULL;
}

proa_handoff *proa_handoff_current(void)
{
    if (PROA_UNLIKELY(current_handoff != NULL)) atomic_fetch_add(&current_handoff->refs, 1);
    return current_handoff;
}

bool proa_handoff_pending(const proa_handoff *handoff)
{
    return handoff && handoff->out;
}

void proa_handoff_wait(proa_handoff *handoff, proa_loop_task *task)
{
    task->next = NULL;
    *handoff->last = task;
    handoff->last = &task->next;
}

void proa_handoff_finish(proa_handoff *handoff)
{
    handoff->out = false;
}

void proa_handoff_run_waiting(proa_handoff *handoff)
{
    proa_loop_task *first = handoff->waiting;
    handoff->waiting = NULL;
    handoff->last = &handoff->waiting;
    while (first) {
        proa_loop_task *task = first;
        first = task->next; /* run may free the task */
        task->run(task);
    }
}

void proa_handoff_drop(proa_handoff *handoff)
{
    if (handoff && atomic_fetch_sub(&handoff->refs, 1) == 1) free(handoff);
}
