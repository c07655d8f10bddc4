/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
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
    int64_t chunks, items, grain;
    /* Counts jobs, and says in its lowest byte how many workers beside worker 0 the job has: a worker that has no part in it
     * must not look at the job, since nobody waits for it. Workers wait for the word to change. */
    PROA_ALIGNED(64) atomic_ullong turn;
    PROA_ALIGNED(64) atomic_int pending; /* workers that still work on this job */
    PROA_ALIGNED(64)
    atomic_ullong asleep[PROA_THREADS_MAX / 64]; /* a bit for each worker that waits in the kernel */
    atomic_bool caller_asleep;                   /* and worker 0 */
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

/* bits: who is woken later by a wake that names one of them. */
static void futex_wait(void *word, uint32_t value, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, NULL, NULL, bits);
}

static void futex_wake(void *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

/* Whole numbers at the start of a file, to out; how many there are. "max" of cpu.max is none. */
static int read_numbers(const char *folder, const char *name, long long out[2])
{
    char path[PROA_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = n < (int)sizeof path ? fopen(path, "re") : NULL;
    if (!f) return 0;
    n = fscanf(f, "%lld %lld", &out[0], &out[1]);
    fclose(f);
    return n;
}

int proa_cpu_quota(const char *folder)
{
    long long v[2] = {0, 0}, period[2] = {0, 0};
    if (read_numbers(folder, "cpu.max", v) != 2) { /* microseconds of CPU in a period of so many */
        if (read_numbers(folder, "cpu/cpu.cfs_quota_us", v) < 1) return 0;
        if (read_numbers(folder, "cpu/cpu.cfs_period_us", period) < 1) return 0;
        v[1] = period[0];
    }
    if (v[0] < 1 || v[1] < 1) return 0; /* -1: no limit */
    return (int)proa_min64(PROA_THREADS_MAX, proa_ceil_div(v[0], v[1]));
}

/* More threads than the share is worth would spend it waiting for each other, and then all stand still to the end of the
 * period. */
int proa_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set), quota = proa_cpu_quota("/sys/fs/cgroup");
    if (quota > 0 && quota < n) n = quota;
    return n < 1 ? 1 : n > PROA_THREADS_MAX ? PROA_THREADS_MAX : n;
}

static void run_share(const proa_pool *pool, int worker, int workers)
{
    int64_t begin = pool->chunks * worker / workers * pool->grain;
    int64_t end = pool->chunks * (worker + 1) / workers * pool->grain;
    end = proa_min64(end, pool->items);
    if (begin < end) pool->fn(pool->arg, begin, end, worker);
}

/* Whether to spin on; called each time round. */
static bool spin_on(int64_t *end, int *round)
{
    pause_cpu();
    if (++*round % SPINS_CLOCK != 0) return true;
    int64_t now = proa_clock_ns();
    if (*end == 0) *end = now + SPIN_NS;
    else if (now >= *end) return false;
    sched_yield(); /* whom we wait for may want this very CPU: 3 us a job instead of 100 us then */
    return true;
}

static uint64_t bit_of(int index)
{
    return UINT64_C(1) << (index % 64);
}

/* Wakes by the lower half of the turn, which comes round after 2^24 jobs, and by the index modulo 32. */
static void sleep_on_turn(proa_pool *pool, int index, uint64_t seen)
{
    atomic_ullong *asleep = &pool->asleep[index / 64];
    atomic_fetch_or(asleep, bit_of(index)); /* sequentially consistent, as the caller's pair in start_workers */
    if (atomic_load(&pool->turn) == seen) futex_wait(&pool->turn, (uint32_t)seen, 1u << (index % 32));
    atomic_fetch_and(asleep, ~bit_of(index));
}

static uint64_t wait_for_turn(proa_pool *pool, int index, uint64_t seen)
{
    int64_t end = 0;
    int round = 0;
    uint64_t turn;
    while ((turn = atomic_load_explicit(&pool->turn, memory_order_acquire)) == seen)
        if (!spin_on(&end, &round)) sleep_on_turn(pool, index, seen), end = 0;
    return turn;
}

/* The caller waits until no worker is on its job. */
static void wait_for_workers(proa_pool *pool)
{
    int64_t end = 0;
    int left, before = 0, round = 0;
    while ((left = atomic_load_explicit(&pool->pending, memory_order_acquire)) != 0) {
        if (left != before) before = left, end = 0; /* one is done: the others will be soon */
        if (spin_on(&end, &round)) continue;
        atomic_store(&pool->caller_asleep, true); /* before the next look at pending; the last worker the other way */
        while ((left = atomic_load(&pool->pending)) != 0) futex_wait(&pool->pending, (uint32_t)left, 1);
        atomic_store_explicit(&pool->caller_asleep, false, memory_order_relaxed);
    }
}

static void *worker_main(void *arg)
{
    struct proa_worker *w = arg;
    proa_pool *pool = w->pool;
    for (uint64_t seen = 0;;) {
        seen = wait_for_turn(pool, w->index, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        int workers = (int)(seen & 255) + 1;
        if (w->index >= workers) continue;
        run_share(pool, w->index, workers);
        if (atomic_fetch_sub(&pool->pending, 1) == 1 && atomic_load(&pool->caller_asleep))
            futex_wake(&pool->pending, 1);
    }
}

/* Workers 1 to others begin; those of them that sleep are woken. */
static void start_workers(proa_pool *pool, int others)
{
    uint64_t before = atomic_load_explicit(&pool->turn, memory_order_relaxed);
    uint32_t bits = 0;
    atomic_store(&pool->turn, (before | 255) + 1 + (uint64_t)others); /* sequentially consistent: pairs with `asleep` */
    for (int first = 0; first <= others; first += 64) {
        uint64_t here = others - first >= 63 ? ~UINT64_C(0) : (bit_of(others - first) << 1) - 1;
        uint64_t sleepers = atomic_load(&pool->asleep[first / 64]) & here;
        bits |= (uint32_t)sleepers | (uint32_t)(sleepers >> 32);
    }
    if (bits) futex_wake(&pool->turn, bits);
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
    start_workers(pool, pool->threads - 1);
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
    pool->chunks = proa_ceil_div(items, grain);
    int workers = (int)proa_min64(pool->threads, pool->chunks);
    atomic_store_explicit(&pool->pending, workers - 1, memory_order_relaxed);
    start_workers(pool, workers - 1);
    run_share(pool, 0, workers);
    wait_for_workers(pool);
}

/* ---- conditions ---- */

void proa_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

bool proa_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + ms * 1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return pthread_cond_timedwait(cond, lock, &until) == ETIMEDOUT;
}
