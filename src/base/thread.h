/* SPDX-License-Identifier: Apache-2.0
 * thread.h - a pool of workers that split one range at a time; conditions with time-outs.
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

/* threads 1..PROA_THREADS_MAX, 0: proa_cpu_count(). Never NULL. */
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

#endif
