/* SPDX-License-Identifier: Apache-2.0
 * thread.h - a pool of workers that split one range at a time.
 * Owner:   proa_pool_new/free. The thread that calls proa_pool_run is worker 0 and works too.
 * Threads: one proa_pool_run at a time on one pool; not from inside a task.
 * A job is cut into pieces of whole grains, each thread begins with its own and then takes those that others have not begun.
 * Which thread has which items is left to chance, so a task must give each item the same result whatever range it is in and
 * whoever works on it: then results do not depend on the threads. */
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

/* Returns when all items are done. Fewer than 2 * grain items run on the caller alone; ranges are multiples of grain (but the
 * last), and a job of few of them is the first workers' alone. A worker that has not begun, since its CPU does something else, is
 * not waited for. Threads that wait spin a moment and then sleep. */
void proa_pool_run(proa_pool *pool, int64_t items, int64_t grain, proa_task_fn *fn, void *arg);

/* A condition whose proa_cond_wait_ms runs on the monotonic clock. */
void proa_cond_init(pthread_cond_t *cond);
/* Waits for the condition, at most so long. True: so long it was. */
bool proa_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ms);

/* CPUs that this process may run on: the affinity mask, or as many as its container's share of time is worth where that is
 * less (docker run --cpus 2). 1..PROA_THREADS_MAX. */
int proa_cpu_count(void);
/* How many CPUs the control group whose files lie in this folder may keep busy, rounded up: cpu.max, or cpu/cpu.cfs_quota_us of
 * version 1. 0: no limit, or none that can be read. */
int proa_cpu_quota(const char *folder);

#endif
