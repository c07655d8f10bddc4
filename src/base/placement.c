/* SPDX-License-Identifier: Apache-2.0
 * placement.c - yields between chunks, and affinity masks that keep the threads of a pool apart. */
#include "base/placement.h"

#include "base/clock.h"

/* Time between two yields. It is shorter than the scheduler tick of 4 ms that most kernels have, so that the
 * thread yields before it is preempted, and long enough that little of the time slice is given away. Measured on
 * two busy CPUs, one of them shared (bench/busy.sh): 0.5 ms 5.2 s, 1 ms 5.0, 2 ms 4.9, 3 ms 4.8, 4 ms 5.6,
 * never 5.8. */
#define YIELD_NS    2000000
/* A yield that takes longer than this let another process run. */
#define SHARED_NS   100000
/* Consecutive yields after which a CPU counts as shared, or as free. */
#define STREAK      3
/* How long an affinity mask stays narrowed, and the least time between two moves of a thread. */
#define CONFINED_NS 100000000
#define MOVE_NS     8000000
/* If every thread shares its CPU with another process, yielding only loses time: the threads stop yielding for
 * this long. Measured with two busy processes on two CPUs: 9.4 s with yields, 6.6 s without. */
#define CROWDED_NS  200000000

bool proa_placement_should_yield(const proa_placement *p, int64_t now)
{
    return now - p->last_yield_ns >= YIELD_NS;
}

static int streak_of(const proa_placement *p)
{
    return atomic_load_explicit(&p->streak, memory_order_relaxed);
}

static void count_yield(proa_placement *p, bool shared)
{
    int streak = streak_of(p);
    streak = shared ? (streak < 0 ? 1 : streak + 1) : (streak > 0 ? -1 : streak - 1);
    if (streak > STREAK) streak = STREAK;
    if (streak < -STREAK) streak = -STREAK;
    atomic_store_explicit(&p->streak, streak, memory_order_relaxed);
}

static void set_mask(proa_placement *p, const cpu_set_t *mask, bool confined)
{
    if (sched_setaffinity(0, sizeof *mask, mask) != 0) return;
    p->confined = confined;
    p->last_move_ns = proa_clock_ns();
    atomic_store_explicit(&p->cpu, sched_getcpu() + 1, memory_order_relaxed);
}

/* Narrows the affinity mask to the CPUs that no thread of a lower index uses, if there are any. */
static void leave_cpu(proa_placement *all, int index, int threads)
{
    proa_placement *p = &all[index];
    if (!p->confined && sched_getaffinity(0, sizeof p->full_mask, &p->full_mask) != 0) return;
    if (CPU_COUNT(&p->full_mask) < threads) return;
    cpu_set_t mask = p->full_mask;
    for (int i = 0; i < index; i++) {
        int cpu = atomic_load_explicit(&all[i].cpu, memory_order_relaxed) - 1;
        if (cpu >= 0) CPU_CLR((size_t)cpu, &mask);
    }
    if (CPU_COUNT(&mask) > 0) set_mask(p, &mask, true);
}

/* The caller's chunks and the serial parts of a step are on the critical path: the caller takes the CPU of a worker
 * whose CPU is not shared. That worker then sees the caller on its CPU and moves away. */
static void take_cpu(proa_placement *all, int threads)
{
    proa_placement *p = &all[0];
    for (int i = threads - 1; i > 0; i--) {
        int cpu = atomic_load_explicit(&all[i].cpu, memory_order_relaxed) - 1;
        if (cpu < 0 || streak_of(&all[i]) > -STREAK) continue;
        cpu_set_t full_mask, mask;
        if (sched_getaffinity(0, sizeof full_mask, &full_mask) != 0 || !CPU_ISSET((size_t)cpu, &full_mask))
            return;
        CPU_ZERO(&mask);
        CPU_SET((size_t)cpu, &mask);
        set_mask(p, &mask, false);
        set_mask(p, &full_mask, false); /* the thread stays on this CPU until the kernel moves it */
        return;
    }
}

static bool cpu_is_taken(const proa_placement *all, int index, int cpu)
{
    for (int i = 0; i < index; i++)
        if (atomic_load_explicit(&all[i].cpu, memory_order_relaxed) == cpu + 1) return true;
    return false;
}

static bool all_shared(const proa_placement *all, int threads)
{
    for (int i = 0; i < threads; i++)
        if (streak_of(&all[i]) < STREAK) return false;
    return true;
}

void proa_placement_yield(proa_placement *all, int index, int threads)
{
    proa_placement *p = &all[index];
    int64_t begin = proa_clock_ns();
    /* After an idle time the thread has only just started: a yield would give nothing. */
    bool paused = begin - p->last_yield_ns > 2 * YIELD_NS;
    if (!paused) sched_yield();
    int64_t now = proa_clock_ns();
    p->last_yield_ns = now;
    int cpu = sched_getcpu();
    atomic_store_explicit(&p->cpu, cpu + 1, memory_order_relaxed);
    if (!paused) count_yield(p, now - begin > SHARED_NS);
    if (all_shared(all, threads)) p->last_yield_ns = now + CROWDED_NS;
    if (now - p->last_move_ns < MOVE_NS) return;
    if (index == 0 && streak_of(p) >= STREAK) take_cpu(all, threads);
    else if (cpu_is_taken(all, index, cpu)) leave_cpu(all, index, threads);
    else if (p->confined && now - p->last_move_ns > CONFINED_NS) set_mask(p, &p->full_mask, false);
}
