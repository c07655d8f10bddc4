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
 * clock, since one pause takes from 10 to 140 cycles by CPU. It does not yield meanwhile: since 6.18 Linux takes the rest of
 * the time slice for that, and beside other busy processes a pool that yields stands still. */
#define SPIN_NS     50000
#define SPINS_CLOCK 64 /* looks between two readings of the clock */

/* Of each job a thread has so many pieces of its own. More would cost more than they even out. */
#define PIECES_EACH 4

/* A worker that loses its CPU in the middle of a piece holds its job up for a time slice of somebody else. Where the caller waits
 * so for much of its time, one worker fewer is quicker: it is left out for a while, and longer each time that it turns out again. */
#define WINDOW_NS   100000000 /* in which the caller's lost time adds up */
#define LOST_SHARE  8         /* more than this part of it is too much */
#define SHRINK_NS   25000000  /* the first time, doubled up to */
#define SHRINK_MAX  400000000

typedef struct proa_worker {
    /* Its own pieces that nobody has taken yet, [next, end): next + (end << 32). */
    PROA_ALIGNED(64) atomic_ullong pieces;
    atomic_bool works; /* on pieces of the job */
    proa_pool *pool;
    int index;
    clockid_t clock; /* of its CPU time */
} proa_worker;

/* How many of the threads work, and why; the caller's own. */
typedef struct pool_size {
    int threads;
    int64_t window_ns, lost_ns;  /* when the window began, and what the caller has lost in it */
    int64_t until_ns, shrink_ns; /* when a worker may come back; how long the last one was left out */
} pool_size;

struct proa_pool {
    int threads;
    pool_size size;
    pthread_t *handles;   /* [threads - 1] */
    proa_worker *workers; /* [threads] */
    /* The job: written by worker 0 before it deals the pieces, read by threads that have taken one: it stays until that is done. */
    proa_task_fn *fn;
    void *arg;
    int64_t chunks, items, grain, pieces;
    /* Counts jobs, and says in its lowest byte how many workers beside worker 0 the job has. Workers wait for the word to
     * change. */
    PROA_ALIGNED(64) atomic_uint turn;
    PROA_ALIGNED(64) atomic_uint undone; /* pieces of the job */
    PROA_ALIGNED(64)
    atomic_ullong asleep[PROA_THREADS_MAX / 64]; /* a bit for each worker that waits in the kernel */
    atomic_bool caller_asleep;                   /* and worker 0 */
    atomic_bool stop;
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

/* Takes one of a worker's pieces; false: none is left. */
static bool take_piece(proa_worker *owner, uint32_t *piece)
{
    unsigned long long pieces = atomic_load_explicit(&owner->pieces, memory_order_relaxed);
    do {
        *piece = (uint32_t)pieces;
        if (*piece >= pieces >> 32) return false;
    } while (!atomic_compare_exchange_weak_explicit(&owner->pieces, &pieces, pieces + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    return true;
}

static void run_piece(const proa_pool *pool, int64_t piece, int worker)
{
    int64_t begin = pool->chunks * piece / pool->pieces * pool->grain;
    int64_t end = pool->chunks * (piece + 1) / pool->pieces * pool->grain;
    pool->fn(pool->arg, begin, proa_min64(end, pool->items), worker);
}

/* Takes `count` pieces off those that are undone, and wakes the caller after the last. */
static void count_done(proa_pool *pool, unsigned count)
{
    if (count && atomic_fetch_sub(&pool->undone, count) == count && atomic_load(&pool->caller_asleep))
        futex_wake(&pool->undone, 1);
}

/* Whether to spin on; called each time round. */
static bool spin_on(int64_t *end, int *round)
{
    pause_cpu();
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

/* The turn comes round after 2^24 jobs; wakes are by the index modulo 32. */
static void sleep_on_turn(proa_pool *pool, int index, uint32_t seen)
{
    atomic_ullong *asleep = &pool->asleep[index / 64];
    atomic_fetch_or(asleep, bit_of(index)); /* sequentially consistent, as the caller's pair in start_workers */
    if (atomic_load(&pool->turn) == seen) futex_wait(&pool->turn, seen, 1u << (index % 32));
    atomic_fetch_and(asleep, ~bit_of(index));
}

static uint32_t wait_for_turn(proa_pool *pool, int index, uint32_t seen)
{
    int64_t end = 0;
    int round = 0;
    uint32_t turn;
    while ((turn = atomic_load_explicit(&pool->turn, memory_order_acquire)) == seen)
        if (!spin_on(&end, &round)) sleep_on_turn(pool, index, seen), end = 0;
    return turn;
}

static void note_lost(pool_size *s, int64_t lost, int64_t now)
{
    if (now - s->window_ns > WINDOW_NS) s->window_ns = now, s->lost_ns = 0;
    s->lost_ns += lost;
    if (s->lost_ns < WINDOW_NS / LOST_SHARE || s->threads == 1) return;
    bool again = now - s->until_ns < WINDOW_NS;
    s->shrink_ns = again ? proa_min64(2 * s->shrink_ns, SHRINK_MAX) : SHRINK_NS;
    s->threads--;
    s->until_ns = now + s->shrink_ns;
    s->window_ns = 0;
}

/* One worker comes back when its time is over, the next one a window later. */
static int threads_now(pool_size *s, int threads)
{
    if (s->threads == threads) return threads;
    int64_t now = proa_clock_ns();
    if (now >= s->until_ns) s->threads++, s->until_ns = now + (s->threads < threads ? WINDOW_NS : 0);
    return s->threads;
}

typedef struct worker_set {
    uint64_t bits[PROA_THREADS_MAX / 64];
} worker_set;

static worker_set workers_at_work(const proa_pool *pool)
{
    worker_set set = {{0}};
    for (int i = 1; i < pool->threads; i++)
        if (atomic_load_explicit(&pool->workers[i].works, memory_order_relaxed))
            set.bits[i / 64] |= bit_of(i);
    return set;
}

/* The CPU time that these workers have used so far. */
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

/* What the caller sleeps longer than the workers work is lost: they wait for a CPU. */
static void sleep_on_pieces(proa_pool *pool)
{
    const worker_set set = workers_at_work(pool);
    int64_t begin = proa_clock_ns(), cpu = cpu_ns_of(pool, &set);
    unsigned left;
    atomic_store(&pool->caller_asleep, true); /* before the next look at undone; the last worker the other way */
    while ((left = atomic_load(&pool->undone)) != 0) futex_wait(&pool->undone, left, 1);
    atomic_store_explicit(&pool->caller_asleep, false, memory_order_relaxed);
    int64_t now = proa_clock_ns();
    note_lost(&pool->size, proa_max64(0, now - begin - (cpu_ns_of(pool, &set) - cpu)), now);
}

/* The caller waits until the pieces that workers have taken are done. */
static void wait_for_pieces(proa_pool *pool)
{
    int64_t end = 0;
    unsigned left, before = 0;
    int round = 0;
    while ((left = atomic_load_explicit(&pool->undone, memory_order_acquire)) != 0) {
        if (left != before) before = left, end = 0; /* one is done: the others will be soon */
        if (!spin_on(&end, &round)) sleep_on_pieces(pool);
    }
}

/* Runs pieces while there are any: first the worker's own, then those of the others. */
static void run_pieces(proa_pool *pool, int worker, int workers)
{
    uint32_t piece;
    for (int i = 0; i < workers; i++) {
        unsigned count = 0;
        for (; take_piece(&pool->workers[(worker + i) % workers], &piece); count++)
            run_piece(pool, piece, worker);
        count_done(pool, count); /* before it looks at the others', which takes a while where they are many */
        if (atomic_load_explicit(&pool->undone, memory_order_relaxed) == 0) return;
    }
}

static void *worker_main(void *arg)
{
    proa_worker *w = arg;
    proa_pool *pool = w->pool;
    for (uint32_t seen = 0;;) {
        seen = wait_for_turn(pool, w->index, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
        int workers = (int)(seen & 255) + 1;
        if (w->index >= workers) continue;
        atomic_store_explicit(&w->works, true, memory_order_relaxed);
        run_pieces(pool, w->index, workers);
        atomic_store_explicit(&w->works, false, memory_order_relaxed);
    }
}

/* Workers 1 to others begin; those of them that sleep are woken. */
static void start_workers(proa_pool *pool, int others)
{
    uint32_t before = atomic_load_explicit(&pool->turn, memory_order_relaxed), bits = 0;
    atomic_store(&pool->turn, (before | 255) + 1 + (uint32_t)others); /* sequentially consistent: pairs with `asleep` */
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
    proa_pool *pool = aligned_alloc(64, sizeof *pool); /* both sizes are multiples of 64 */
    PROA_ASSERT(pool);
    *pool = (proa_pool){.threads = 1};
    pool->handles = proa_calloc((size_t)threads, sizeof *pool->handles);
    pool->workers = aligned_alloc(64, (size_t)threads * sizeof *pool->workers);
    PROA_ASSERT(pool->workers);
    for (int i = 0; i < threads; i++) pool->workers[i] = (proa_worker){.pool = pool, .index = i};
    /* A machine that refuses a thread gets a smaller pool, not a failure: results do not depend on the count. */
    for (int i = 1; i < threads; i++) {
        if (pthread_create(&pool->handles[i - 1], NULL, worker_main, &pool->workers[i]) != 0) break;
        if (pthread_getcpuclockid(pool->handles[i - 1], &pool->workers[i].clock) != 0)
            pool->workers[i].clock = CLOCK_MONOTONIC; /* always at work: the pool does not shrink for it */
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
    int threads = threads_now(&pool->size, pool->threads);
    if (threads == 1 || items < 2 * grain) {
        fn(arg, 0, items, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->items = items;
    pool->grain = grain;
    pool->chunks = proa_ceil_div(items, grain);
    int workers = (int)proa_min64(threads, pool->chunks);
    pool->pieces = proa_min64(pool->chunks, PIECES_EACH * workers);
    atomic_store_explicit(&pool->undone, (unsigned)pool->pieces, memory_order_relaxed);
    for (int w = 0; w < workers; w++) {
        uint64_t next = (uint64_t)(pool->pieces * w / workers),
                 end = (uint64_t)(pool->pieces * (w + 1) / workers);
        atomic_store_explicit(&pool->workers[w].pieces, next | end << 32, memory_order_release);
    }
    start_workers(pool, workers - 1);
    run_pieces(pool, 0, workers);
    wait_for_pieces(pool);
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
