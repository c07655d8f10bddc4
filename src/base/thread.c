/* SPDX-License-Identifier: Apache-2.0
 * thread.c - the thread pool: work stealing over chunks, spinning and sleeping; conditions with time-outs. */
#include "base/thread.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/placement.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How long a thread spins before it sleeps: longer than the gap between two kernels, and short enough to
 * waste little. The time is taken from the clock, because one pause instruction takes 10 to 140 cycles
 * depending on the CPU. The thread does not yield while it spins: since version 6.18 Linux takes the rest
 * of the time slice from a thread that yields, and a pool that yields makes no progress next to other busy
 * processes. */
#define SPIN_NS           50000
#define SPINS_CLOCK       64 /* spins between two readings of the clock */

/* Chunks of a job for each thread. More chunks would cost more than they gain in balance. */
#define CHUNKS_PER_THREAD 4

/* A worker that loses its CPU in the middle of a chunk delays its job by a time slice. If the caller spends
 * much of its time waiting for such a worker, one worker fewer is faster: the pool leaves a worker out for
 * a while, and for longer each time this happens again. */
#define WINDOW_NS         100000000 /* over which the caller's lost time is summed */
#define LOST_FRACTION     8         /* more than 1/8 of the window is too much */
#define SHRINK_NS         25000000  /* the first time; doubled each time up to */
#define SHRINK_MAX        400000000

typedef struct proa_pool_worker {
    /* The worker's own chunks that no thread has taken yet, [next, end): next + (end << 32). */
    PROA_ALIGNED(64) atomic_ullong chunks;
    atomic_bool busy; /* runs chunks of the job */
    proa_pool *pool;
    int index;
    clockid_t clock; /* of its CPU time */
} proa_pool_worker;

/* How many threads are active, and the statistics behind that. Only the caller uses it. */
typedef struct pool_size {
    int threads;
    int64_t window_ns, lost_ns;  /* start of the window; time that the caller lost in it */
    int64_t until_ns, shrink_ns; /* when a worker may return; how long the last one was left out */
} pool_size;

struct proa_pool {
    int threads;
    pool_size size;
    pthread_t *handles;         /* [threads - 1] */
    proa_pool_worker *workers;  /* [threads] */
    proa_placement *placements; /* [threads] */
    /* The job. Worker 0 writes it before it hands out the chunks; threads that hold a chunk read it. It
     * does not change until all chunks are done. */
    proa_task_fn *fn;
    void *arg;
    int64_t grains, items, grain, chunks;
    /* The job counter. Its lowest byte is the number of workers beside worker 0 that the job has. Workers
     * wait for it to change. */
    PROA_ALIGNED(64) atomic_uint generation;
    PROA_ALIGNED(64) atomic_uint pending_chunks; /* chunks of the job that are not done */
    PROA_ALIGNED(64)
    atomic_ullong sleeping[PROA_THREADS_MAX / 64]; /* one bit for each worker that waits in the kernel */
    atomic_bool caller_sleeping;                   /* worker 0 waits in the kernel */
    atomic_bool stop;
};

/* bits: selects the waiters that a later wake with one of these bits wakes. */
static void futex_wait(void *word, uint32_t value, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, NULL, NULL, bits);
}

static void futex_wake(void *word, uint32_t bits)
{
    syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits);
}

/* Takes one of a worker's chunks; false: none is left. */
static bool take_chunk(proa_pool_worker *owner, uint32_t *chunk)
{
    unsigned long long chunks = atomic_load_explicit(&owner->chunks, memory_order_relaxed);
    do {
        *chunk = (uint32_t)chunks;
        if (*chunk >= chunks >> 32) return false;
    } while (!atomic_compare_exchange_weak_explicit(&owner->chunks, &chunks, chunks + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

static void run_chunk(const proa_pool *pool, int64_t chunk, int worker)
{
    int64_t begin = pool->grains * chunk / pool->chunks * pool->grain;
    int64_t end = pool->grains * (chunk + 1) / pool->chunks * pool->grain;
    pool->fn(pool->arg, begin, proa_min64(end, pool->items), worker);
}

/* Subtracts `count` finished chunks, and wakes the caller after the last one. */
static void finish_chunks(proa_pool *pool, unsigned count)
{
    if (count && atomic_fetch_sub(&pool->pending_chunks, count) == count && atomic_load(&pool->caller_sleeping))
        futex_wake(&pool->pending_chunks, 1);
}

/* Whether to continue spinning; called once per iteration. */
static bool keep_spinning(int64_t *end, int *round)
{
    PROA_PAUSE();
    if (++*round % SPINS_CLOCK != 0) return true;
    int64_t now = proa_clock_ns();
    if (*end == 0) *end = now + SPIN_NS;
    else if (now >= *end) return false;
    return true;
}

static uint64_t bit_of(int index)
{
    return UINT64_C(1) << (index % 64);
}

/* The job counter wraps after 2^24 jobs. Wakes select workers by the index modulo 32. */
static void sleep_until_job(proa_pool *pool, int index, uint32_t seen)
{
    atomic_ullong *sleeping = &pool->sleeping[index / 64];
    atomic_fetch_or(sleeping, bit_of(index)); /* sequentially consistent: pairs with start_workers */
    if (atomic_load(&pool->generation) == seen) futex_wait(&pool->generation, seen, 1u << (index % 32));
    atomic_fetch_and(sleeping, ~bit_of(index));
}

static uint32_t wait_for_job(proa_pool *pool, int index, uint32_t seen)
{
    int64_t end = 0;
    int round = 0;
    uint32_t generation;
    while ((generation = atomic_load_explicit(&pool->generation, memory_order_acquire)) == seen)
        if (!keep_spinning(&end, &round)) sleep_until_job(pool, index, seen), end = 0;
    return generation;
}

static void record_lost_time(pool_size *s, int64_t lost, int64_t now)
{
    if (now - s->window_ns > WINDOW_NS) s->window_ns = now, s->lost_ns = 0;
    s->lost_ns += lost;
    if (s->lost_ns < WINDOW_NS / LOST_FRACTION || s->threads == 1) return;
    bool again = now - s->until_ns < WINDOW_NS;
    s->shrink_ns = again ? proa_min64(2 * s->shrink_ns, SHRINK_MAX) : SHRINK_NS;
    s->threads--;
    s->until_ns = now + s->shrink_ns;
    s->window_ns = 0;
}

/* One worker returns when its time is over, the next one a window later. */
static int active_threads(pool_size *s, int threads)
{
    if (s->threads == threads) return threads;
    int64_t now = proa_clock_ns();
    if (now >= s->until_ns) s->threads++, s->until_ns = now + (s->threads < threads ? WINDOW_NS : 0);
    return s->threads;
}

typedef struct worker_set {
    uint64_t bits[PROA_THREADS_MAX / 64];
} worker_set;

static worker_set busy_workers(const proa_pool *pool)
{
    worker_set set = {{0}};
    for (int i = 1; i < pool->threads; i++)
        if (atomic_load_explicit(&pool->workers[i].busy, memory_order_relaxed)) set.bits[i / 64] |= bit_of(i);
    return set;
}

/* CPU time that these workers have used so far. */
static int64_t cpu_ns_of(const proa_pool *pool, const worker_set *set)
{
    int64_t sum = 0;
    for (int i = 1; i < pool->threads; i++) {
        struct timespec t;
        if (!(set->bits[i / 64] & bit_of(i)) || clock_gettime(pool->workers[i].clock, &t) != 0) continue;
        sum += t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
    }
    return sum;
}

/* The caller's lost time is the time it sleeps minus the CPU time of the workers: that long they waited for
 * a CPU. */
static void sleep_until_done(proa_pool *pool)
{
    const worker_set set = busy_workers(pool);
    int64_t begin = proa_clock_ns(), cpu = cpu_ns_of(pool, &set);
    unsigned left;
    atomic_store(&pool->caller_sleeping,
                 true); /* set before pending_chunks is read again; the last worker does these in the opposite order */
    while ((left = atomic_load(&pool->pending_chunks)) != 0) futex_wait(&pool->pending_chunks, left, 1);
    atomic_store_explicit(&pool->caller_sleeping, false, memory_order_relaxed);
    int64_t now = proa_clock_ns();
    record_lost_time(&pool->size, proa_max64(0, now - begin - (cpu_ns_of(pool, &set) - cpu)), now);
}

/* Waits until the chunks that workers have taken are done. */
static void wait_until_done(proa_pool *pool)
{
    int64_t end = 0;
    unsigned left, before = 0;
    int round = 0;
    while ((left = atomic_load_explicit(&pool->pending_chunks, memory_order_acquire)) != 0) {
        if (left != before) before = left, end = 0; /* a chunk was finished: the others will be soon */
        if (!keep_spinning(&end, &round)) sleep_until_done(pool);
    }
}

/* Runs chunks while there are any: first the worker's own, then those of other workers. */
static void run_chunks(proa_pool *pool, int worker, int workers)
{
    uint32_t chunk;
    for (int i = 0; i < workers; i++) {
        unsigned count = 0;
        while (take_chunk(&pool->workers[(worker + i) % workers], &chunk)) {
            run_chunk(pool, chunk, worker);
            count++;
            if (!proa_placement_should_yield(&pool->placements[worker], proa_clock_ns())) continue;
            finish_chunks(pool, count);
            count = 0;
            proa_placement_yield(pool->placements, worker, workers);
        }
        finish_chunks(pool, count); /* before it searches the other workers' chunks, which takes a while with many
                                       workers */
        if (atomic_load_explicit(&pool->pending_chunks, memory_order_relaxed) == 0) return;
    }
}

static void *worker_main(void *arg)
{
    proa_pool_worker *w = arg;
    proa_pool *pool = w->pool;
    for (uint32_t seen = 0;;) {
        seen = wait_for_job(pool, w->index, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        int workers = (int)(seen & 255) + 1;
        if (w->index >= workers) continue;
        atomic_store_explicit(&w->busy, true, memory_order_relaxed);
        run_chunks(pool, w->index, workers);
        atomic_store_explicit(&w->busy, false, memory_order_relaxed);
    }
}

/* Starts workers 1 to `others`, and wakes those that sleep. */
static void start_workers(proa_pool *pool, int others)
{
    uint32_t before = atomic_load_explicit(&pool->generation, memory_order_relaxed), bits = 0;
    atomic_store(&pool->generation,
                 (before | 255) + 1 + (uint32_t)others); /* sequentially consistent: pairs with `sleeping` */
    for (int first = 0; first <= others; first += 64) {
        uint64_t in_word = others - first >= 63 ? ~UINT64_C(0) : (bit_of(others - first) << 1) - 1;
        uint64_t sleepers = atomic_load(&pool->sleeping[first / 64]) & in_word;
        bits |= (uint32_t)sleepers | (uint32_t)(sleepers >> 32);
    }
    if (bits) futex_wake(&pool->generation, bits);
}

proa_pool *proa_pool_new(int threads)
{
    if (threads <= 0) threads = proa_cpu_count();
    if (threads > PROA_THREADS_MAX) threads = PROA_THREADS_MAX;
    proa_pool *pool = aligned_alloc(64, sizeof *pool); /* both sizes are multiples of 64 */
    PROA_ASSERT(pool);
    *pool = (proa_pool){.threads = 1};
    pool->handles = proa_calloc((size_t)threads, sizeof *pool->handles);
    pool->workers = aligned_alloc(64, (size_t)threads * sizeof *pool->workers);
    PROA_ASSERT(pool->workers);
    pool->placements = aligned_alloc(64, (size_t)threads * sizeof *pool->placements);
    PROA_ASSERT(pool->placements);
    for (int i = 0; i < threads; i++) pool->placements[i] = (proa_placement){.last_move_ns = 0};
    for (int i = 0; i < threads; i++) pool->workers[i] = (proa_pool_worker){.pool = pool, .index = i};
    /* If the system refuses a thread the pool is smaller; results do not depend on the number of
     * threads. */
    for (int i = 1; i < threads; i++) {
        if (pthread_create(&pool->handles[i - 1], NULL, worker_main, &pool->workers[i]) != 0) break;
        if (pthread_getcpuclockid(pool->handles[i - 1], &pool->workers[i].clock) != 0)
            pool->workers[i].clock = CLOCK_MONOTONIC; /* counts as always busy, so the pool does not shrink */
        pool->threads++;
    }
    pool->size.threads = pool->threads;
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
    free(pool->placements);
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
    int threads = active_threads(&pool->size, pool->threads);
    if (threads == 1 || items < 2 * grain) {
        fn(arg, 0, items, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain;
    pool->grains = proa_ceil_div(items, grain);
    int workers = (int)proa_min64(threads, pool->grains);
    pool->chunks = proa_min64(pool->grains, CHUNKS_PER_THREAD * workers);
    atomic_store_explicit(&pool->pending_chunks, (unsigned)pool->chunks, memory_order_relaxed);
    for (int w = 0; w < workers; w++) {
        uint64_t next = (uint64_t)(pool->chunks * w / workers),
                 end = (uint64_t)(pool->chunks * (w + 1) / workers);
        atomic_store_explicit(&pool->workers[w].chunks, next | end << 32, memory_order_release);
    }
    start_workers(pool, workers - 1);
    run_chunks(pool, 0, workers);
    wait_until_done(pool);
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
