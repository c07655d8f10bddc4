/* SPDX-License-Identifier: Apache-2.0
 * thread.h - a pool of workers that split one range at a time; conditions; wake-ups in batches.
 * Owner:   proa_pool_new/free. The thread that calls proa_pool_run is worker 0 and works too.
 * Threads: one proa_pool_run at a time on one pool; not from inside a task.
 * A job is split into chunks of whole grains. Each thread works through its own chunks and then steals chunks
 * that other threads have not started. Which thread gets which items is not deterministic, so a task must
 * compute the same result for an item whatever range and thread it is in; then results do not depend on the
 * number of threads. */
#ifndef PROA_BASE_THREAD_H
#define PROA_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct proa_pool proa_pool;
/* Works on items [begin, end). worker is 0..threads-1: an index into per-worker scratch. */
typedef void proa_task_fn(void *arg, int64_t begin, int64_t end, int worker);

/* threads 1..PROA_THREADS_MAX, 0: as many as this process may run on. Never NULL. */
proa_pool *proa_pool_new(int threads);
void proa_pool_free(proa_pool *pool); /* NULL is fine */
int proa_pool_threads(const proa_pool *pool);

/* Returns when all items are done. Fewer than 2 * grain items run on the caller alone. Ranges are multiples of
 * grain, except the last; a job of few grains uses only the first workers. The caller does not wait for a worker
 * that has not started because another process uses its CPU. Waiting threads spin briefly and then sleep. */
void proa_pool_run(proa_pool *pool, int64_t items, int64_t grain, proa_task_fn *fn, void *arg);

/* Initialises a condition for proa_cond_wait_ms, which uses the monotonic clock. */
void proa_cond_init(pthread_cond_t *cond);
/* Waits for the condition for at most ms milliseconds. True: the time-out has passed. */
bool proa_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ms);

/* CPUs that this process may use: those of the affinity mask, or fewer where its container has a smaller CPU
 * quota (docker run --cpus 2). 1..PROA_THREADS_MAX. */
int proa_cpu_count(void);
/* The CPU quota of the control group whose files are in this folder, in CPUs, rounded up: cpu.max of version 2, or
 * cpu/cpu.cfs_quota_us of version 1. 0: no limit, or no readable file. */
int proa_cpu_quota(const char *folder);

/* ---- wake-ups in batches ----
 * The engine emits the tokens of all sequences after each step. An event loop that is woken by the first of them would
 * take one token, send it and sleep again, and would have to be woken for the next. So a thread that hands over work
 * many times in a row begins a batch, and wakes each receiver once when the batch ends. A batch belongs to its
 * thread. */

typedef void proa_wakeup_fn(void *arg);

/* From begin to end this thread's deferred wake-ups are collected; end runs each of them once. Batches nest: the
 * outermost end runs them. Keep a batch short, since what was handed over waits for its end. */
void proa_wakeups_begin(void);
void proa_wakeups_end(void);
typedef enum proa_wakeup {
    PROA_WAKEUP_NOW,   /* there is no batch, or its list is full: the caller must wake at once */
    PROA_WAKEUP_ADDED, /* wake(arg) will run at the end of the batch */
    PROA_WAKEUP_LISTED /* as ADDED, but an earlier call has added it */
} proa_wakeup;
/* What arg points to must live until the end of the batch. */
proa_wakeup proa_wakeup_defer(proa_wakeup_fn *wake, void *arg);

#endif
