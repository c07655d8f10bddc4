/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long a thread spins before it sleeps: longer than the gap between two kernels, and little to waste. By the
 * clock, since one pause takes from 10 to 140 cycles by CPU. */
#define SPIN_NS     50000
#define SPINS_CLOCK 64 /* looks between two readings of the clock */

struct proa_pool {
    int threads;
    pthread_t *handles; /* [threads - 1] */
    struct proa_worker *workers;
    /* the job: written by worker 0 before `turn` moves on */
    proa_task_fn *fn;
    void *arg;
    int64_t items, grain;
    PROA_ALIGNED(64) atomic_int turn;    /* counts jobs; workers wait for it to change */
    PROA_ALIGNED(64) atomic_int pending; /* workers that still work on this job */
    PROA_ALIGNED(64) atomic_int asleep;  /* workers that wait in the kernel */
    atomic_bool caller_asleep;           /* and worker 0 */
    atomic_bool stop;
};
struct proa_worker {
    proa_pool *pool;
    int index;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(atomic_int *word, int value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(atomic_int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int proa_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > PROA_THREADS_MAX ? PROA_THREADS_MAX : n;
}

static void run_share(const proa_pool *pool, int worker)
{
    int64_t chunks = proa_ceil_div(pool->items, pool->grain);
    int64_t begin = chunks * worker / pool->threads * pool->grain;
    int64_t end = chunks * (worker + 1) / pool->threads * pool->grain;
    end = proa_min64(end, pool->items);
    if (begin < end) pool->fn(pool->arg, begin, end, worker);
}

/* True as soon as *word is not value; false after SPIN_NS. */
static bool spin_while(const atomic_int *word, int value)
{
    int64_t end = 0;
    for (int i = 1; atomic_load_explicit(word, memory_order_acquire) == value; i++) {
        pause_cpu();
        if (i % SPINS_CLOCK != 0) continue;
        int64_t now = proa_clock_ns();
        if (end == 0) end = now + SPIN_NS;
        else if (now >= end) return false;
        sched_yield(); /* whom we wait for may want this very CPU: 3 us a job instead of 100 us then */
    }
    return true;
}

static int wait_for_turn(proa_pool *pool, int seen)
{
    int turn;
    if (spin_while(&pool->turn, seen)) return atomic_load_explicit(&pool->turn, memory_order_acquire);
    atomic_fetch_add(&pool->asleep, 1); /* sequentially consistent, as the caller's pair in proa_pool_run */
    while ((turn = atomic_load(&pool->turn)) == seen) futex_wait(&pool->turn, seen);
    atomic_fetch_sub(&pool->asleep, 1);
    return turn;
}

/* The caller waits until no worker is on its job. */
static void wait_for_workers(proa_pool *pool)
{
    int left;
    while ((left = atomic_load_explicit(&pool->pending, memory_order_acquire)) != 0) {
        if (spin_while(&pool->pending, left)) continue; /* it fell */
        atomic_store(&pool->caller_asleep, true); /* before the next look at pending; the last worker the other way */
        while ((left = atomic_load(&pool->pending)) != 0) futex_wait(&pool->pending, left);
        atomic_store_explicit(&pool->caller_asleep, false, memory_order_relaxed);
    }
}

static void *worker_main(void *arg)
{
    struct proa_worker *w = arg;
    proa_pool *pool = w->pool;
    for (int seen = 0;;) {
        seen = wait_for_turn(pool, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        run_share(pool, w->index);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_asleep))
            futex_wake_all(&pool->pending);
    }
}

proa_pool *proa_pool_new(int threads)
{
    if (threads <= 0) threads = proa_cpu_count();
    if (threads > PROA_THREADS_MAX) threads = PROA_THREADS_MAX;
    size_t bytes = ((sizeof(proa_pool) + 63) / 64) * 64;
    proa_pool *pool = aligned_alloc(64, bytes);
    PROA_ASSERT(pool);
    *pool = (proa_pool){.threads = 1};
    pool->handles = proa_calloc((size_t)threads, sizeof *pool->handles);
    pool->workers = proa_calloc((size_t)threads, sizeof *pool->workers);
    /* A machine that refuses a thread gets a smaller pool, not a failure: results do not depend on the count. */
    for (int i = 1; i < threads; i++) {
        pool->workers[i] = (struct proa_worker){pool, i};
        if (pthread_create(&pool->handles[i - 1], NULL, worker_main, &pool->workers[i]) != 0) break;
        pool->threads++;
    }
    return pool;
}

void proa_pool_free(proa_pool *pool)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->turn, 1);
    futex_wake_all(&pool->turn);
    for (int i = 1; i < pool->threads; i++) pthread_join(pool->handles[i - 1], NULL);
    free(pool->handles);
    free(pool->workers);
    free(pool);
}

int proa_pool_threads(const proa_pool *pool)
{
    return pool->threads;
}

void proa_pool_run(proa_pool *pool, int64_t items, int64_t grain, proa_task_fn *fn, void *arg)
{
    if (items <= 0) return;
    if (grain < 1) grain = 1;
    if (pool->threads == 1 || items < 2 * grain) {
        fn(arg, 0, items, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain;
    atomic_store_explicit(&pool->pending, pool->threads - 1, memory_order_relaxed);
    atomic_fetch_add(&pool->turn, 1); /* sequentially consistent: pairs with `asleep` */
    if (atomic_load(&pool->asleep) > 0) futex_wake_all(&pool->turn);
    run_share(pool, 0);
    wait_for_workers(pool);
}
