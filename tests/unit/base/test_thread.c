/* SPDX-License-Identifier: Apache-2.0
 * test_thread.c - the pool: each item once, work stealing, threads that are kept off their CPU, many
 * small jobs, sleep and wake. Clean under the thread sanitizer. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/thread.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define ITEMS 1000

typedef struct record {
    int times[ITEMS]; /* plain: each item belongs to one worker */
    int worker[ITEMS];
    int64_t grain, items;
    atomic_int calls, odd; /* odd: ranges that are no multiples of grain */
} record;

static void note(void *arg, int64_t begin, int64_t end, int worker)
{
    record *r = arg;
    atomic_fetch_add(&r->calls, 1);
    if (r->grain && (begin % r->grain || (end % r->grain && end != r->items))) atomic_fetch_add(&r->odd, 1);
    for (int64_t i = begin; i < end; i++) r->times[i]++, r->worker[i] = worker;
}

static void check_once(const record *r, int64_t items, int times)
{
    for (int64_t i = 0; i < ITEMS; i++) assert_int_equal(r->times[i], i < items ? times : 0);
}

static void test_each_item_once(void **state)
{
    static record r;
    static const int64_t grains[] = {-1, 0, 1, 3, 16, 64, 999, 5000};
    for (int threads = 1; threads <= 8; threads++) {
        proa_pool *pool = proa_pool_new(threads);
        int n = proa_pool_threads(pool);
        assert_in_range(n, 1, threads);
        for (int64_t items = 0; items <= ITEMS; items += items < 40 ? 1 : 96)
            for (size_t g = 0; g < PROA_COUNT(grains); g++) {
                int64_t grain = grains[g] < 1 ? 1 : grains[g];
                memset(&r, 0, sizeof r);
                r.grain = grain, r.items = items;
                proa_pool_run(pool, items, grains[g], note, &r);
                check_once(&r, items, 1);
                assert_int_equal(atomic_load(&r.odd), 0);
                if (items < 2 * grain) assert_true(atomic_load(&r.calls) == (items > 0));
            }
        proa_pool_free(pool);
    }
    (void)state;
}

static void sleep_us(int us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
}

/* Until the count is there, or five seconds are over. */
static void wait_for_count(atomic_int *count, int wanted)
{
    for (int i = 0; i < 50000 && atomic_load(count) < wanted; i++) sleep_us(100);
}

typedef struct taking_over {
    record r;
    atomic_int done; /* items */
    atomic_bool held;
} taking_over;

/* The first piece of worker 1 lasts until all other items are done. */
static void hold_first(void *arg, int64_t begin, int64_t end, int worker)
{
    taking_over *t = arg;
    if (worker == 1 && !atomic_exchange(&t->held, true)) wait_for_count(&t->done, ITEMS - (int)(end - begin));
    else if (worker == 0 && begin == 0) sleep_us(2000); /* until worker 1 has begun */
    note(&t->r, begin, end, worker);
    atomic_fetch_add(&t->done, (int)(end - begin));
}

/* A thread that holds a piece keeps nobody from the pieces that it would have had next. */
static void test_pieces_are_taken_over(void **state)
{
    static taking_over t;
    proa_pool *pool = proa_pool_new(2);
    if (proa_pool_threads(pool) == 2) {
        int64_t begin = proa_clock_ns();
        proa_pool_run(pool, ITEMS, 1, hold_first, &t);
        check_once(&t.r, ITEMS, 1);
        assert_true(proa_clock_ns() - begin < 4000000000);
    }
    proa_pool_free(pool);
    (void)state;
}

static int stopped[2]; /* a pipe */
static atomic_bool is_stopped;

static void stop_here(int signal)
{
    char byte;
    (void)signal;
    atomic_store(&is_stopped, true);
    if (read(stopped[0], &byte, 1) != 1) abort();
}

/* The process's thread that is not this one. */
static int other_thread(void)
{
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    assert_non_null(tasks);
    while ((entry = readdir(tasks)))
        if (*entry->d_name != '.' && strtol(entry->d_name, NULL, 10) != syscall(SYS_gettid))
            found = (int)strtol(entry->d_name, NULL, 10);
    closedir(tasks);
    return found;
}

/* A worker that has not begun, here since a signal's handler keeps it, is not waited for. */
static void test_nobody_waits_for_who_has_not_begun(void **state)
{
    static record r;
    struct sigaction action = {.sa_handler = stop_here, .sa_flags = SA_RESTART}, before;
    assert_int_equal(pipe(stopped), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    proa_pool *pool = proa_pool_new(2);
    if (proa_pool_threads(pool) == 2) {
        assert_int_equal(syscall(SYS_tgkill, getpid(), other_thread(), SIGUSR1), 0);
        for (int i = 0; i < 1000 && !atomic_load(&is_stopped); i++) sleep_us(1000);
        bool in_time = atomic_load(&is_stopped); /* the thread sanitiser holds signals back */
        for (int i = 0; i < 50; i++) proa_pool_run(pool, ITEMS, 1, note, &r); /* would not return */
        check_once(&r, ITEMS, 50);
        for (int i = 0; i < ITEMS && in_time; i++) assert_int_equal(r.worker[i], 0);
        assert_int_equal(write(stopped[1], "x", 1), 1);
    }
    proa_pool_free(pool);
    sigaction(SIGUSR1, &before, NULL);
    close(stopped[0]), close(stopped[1]);
    (void)state;
}

/* Worker 1 is away from its CPU for 5 ms of each piece. */
static void away(void *arg, int64_t begin, int64_t end, int worker)
{
    if (worker == 1) sleep_us(5000);
    else sleep_us(100);
    note(arg, begin, end, worker);
}

static bool alone(proa_pool *pool, proa_task_fn *fn, record *r)
{
    memset(r, 0, sizeof *r);
    proa_pool_run(pool, ITEMS, 1, fn, r);
    check_once(r, ITEMS, 1);
    return atomic_load(&r->calls) == 1;
}

/* A pool whose caller often sleeps until a worker has its CPU again goes on with fewer, and tries again. */
static void test_shrinks_for_a_while(void **state)
{
    static record r;
    proa_pool *pool = proa_pool_new(2);
    bool small = false, whole = false;
    for (int i = 0; i < 500 && !small; i++) small = alone(pool, away, &r);
    for (int i = 0; i < 5000 && !whole; i++) sleep_us(1000), whole = !alone(pool, note, &r);
    if (proa_pool_threads(pool) == 2) assert_true(small && whole);
    proa_pool_free(pool);
    (void)state;
}

/* What one job wrote the next one reads, though other threads wrote it. */
static void shift(void *arg, int64_t begin, int64_t end, int worker)
{
    int(*rows)[64] = arg;
    int from = rows[2][0] & 1;
    (void)worker;
    for (int64_t i = begin; i < end; i++) rows[!from][i] = rows[from][(i + 1) % 64] + 1;
}

static void test_many_small_jobs(void **state)
{
    enum { JOBS = 100000 };
    for (int threads = 2; threads <= 8; threads *= 2) {
        int rows[3][64] = {{0}};
        proa_pool *pool = proa_pool_new(threads);
        int64_t start = proa_clock_ns();
        for (int job = 0; job < JOBS; job++) {
            rows[2][0] = job;
            proa_pool_run(pool, 64, 1, shift, rows);
        }
        print_message("%d threads: %.2f us a job\n", threads, (double)(proa_clock_ns() - start) * 1e-3 / JOBS);
        for (int i = 0; i < 64; i++) assert_int_equal(rows[JOBS & 1][i], JOBS);
        proa_pool_free(pool);
    }
    (void)state;
}

/* Jobs for fewer workers than there are, now and then late: who has no part in one keeps away from it. */
static void test_few_workers(void **state)
{
    enum { JOBS = 8000 };
    static record r;
    proa_pool *pool = proa_pool_new(6);
    memset(&r, 0, sizeof r);
    int times[ITEMS] = {0};
    for (int job = 0; job < JOBS; job++) {
        int items = 1 + job * 7 % 11;
        proa_pool_run(pool, items, 1, note, &r);
        for (int i = 0; i < items; i++) times[i]++;
        if (job % 512 == 0) sleep_us(120); /* longer than they spin */
    }
    assert_memory_equal(r.times, times, sizeof times);
    proa_pool_free(pool);
    (void)state;
}

static void slow_worker(void *arg, int64_t begin, int64_t end, int worker)
{
    if (worker > 0) sleep_us(300); /* longer than the caller spins: it sleeps and is woken */
    note(arg, begin, end, worker);
}

static void test_sleep_and_wake(void **state)
{
    static record r;
    proa_pool *pool = proa_pool_new(3);
    for (int i = 0; i < 200; i++) {
        proa_pool_run(pool, ITEMS, 1, i % 2 ? slow_worker : note, &r);
        if (i % 3 == 0) sleep_us(300); /* longer than the workers spin */
        if (i % 3 == 1) sleep_us(50);  /* about as long: the race between falling asleep and the next job */
    }
    check_once(&r, ITEMS, 200);
    proa_pool_free(pool);
    (void)state;
}

static void test_idle_costs_nothing(void **state)
{
    static record r;
    struct timespec before, after;
    proa_pool *pool = proa_pool_new(4);
    proa_pool_run(pool, ITEMS, 1, note, &r);
    sleep_us(50000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_us(200000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t ns = (int64_t)(after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    assert_true(ns < 50000000); /* four threads that spin would take 200 to 800 ms */
    proa_pool_free(pool);
    (void)state;
}

static void test_ends(void **state)
{
    proa_pool_free(NULL);
    for (int i = 0; i < 50; i++)
        proa_pool_free(proa_pool_new(1 + i % 8)); /* ended before they did anything */
    proa_pool *pool = proa_pool_new(0);
    assert_int_equal(proa_pool_threads(pool), proa_cpu_count());
    proa_pool_free(pool);
    assert_in_range(proa_cpu_count(), 1, PROA_THREADS_MAX);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_item_once),
        cmocka_unit_test(test_pieces_are_taken_over),
        cmocka_unit_test(test_nobody_waits_for_who_has_not_begun),
        cmocka_unit_test(test_shrinks_for_a_while),
        cmocka_unit_test(test_many_small_jobs),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_few_workers),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
