/* SPDX-License-Identifier: Apache-2.0
 * The pool: each item once, the static split, many small jobs, sleep and wake. Clean under the thread sanitiser. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/limits.h"
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <cmocka.h>

#define ITEMS 1000

typedef struct record {
    int times[ITEMS]; /* plain: each item belongs to one worker */
    int worker[ITEMS];
    int64_t begin[PROA_THREADS_MAX], end[PROA_THREADS_MAX]; /* of each worker */
    atomic_int calls;
} record;

static void note(void *arg, int64_t begin, int64_t end, int worker)
{
    record *r = arg;
    atomic_fetch_add(&r->calls, 1);
    r->begin[worker] = begin;
    r->end[worker] = end;
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
                proa_pool_run(pool, items, grains[g], note, &r);
                check_once(&r, items, 1);
                for (int w = 0; w < n; w++) {
                    assert_true(r.begin[w] % grain == 0);
                    assert_true(r.end[w] % grain == 0 || r.end[w] == items);
                }
                if (items < 2 * grain) assert_true(atomic_load(&r.calls) == (items > 0));
            }
        proa_pool_free(pool);
    }
    (void)state;
}

/* The same worker has the same items each time, in rising order, and none has much more than its share. */
static void test_static_split(void **state)
{
    static record r, again;
    proa_pool *pool = proa_pool_new(4);
    int n = proa_pool_threads(pool);
    proa_pool_run(pool, ITEMS, 8, note, &r);
    for (int round = 0; round < 100; round++) {
        memset(&again, 0, sizeof again);
        proa_pool_run(pool, ITEMS, 8, note, &again);
        assert_memory_equal(r.worker, again.worker, sizeof r.worker);
    }
    for (int i = 1; i < ITEMS; i++) assert_true(r.worker[i - 1] <= r.worker[i]);
    for (int w = 0; w < n; w++) assert_in_range(r.end[w] - r.begin[w], ITEMS / n - 16, ITEMS / n + 16);
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

static void sleep_us(int us)
{
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
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

static char folder[] = "/tmp/proa-quota-XXXXXX";

static void put(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
}

/* What the kernel writes into these files: docker's --cpus 2, 1.5 and 0.25, no limit; nonsense is no limit either. */
static void test_quota(void **state)
{
    static const struct {
        const char *text;
        int cpus;
    } two[] = {{"200000 100000\n", 2},
               {"150000 100000\n", 2},
               {"25000 100000\n", 1},
               {"max 100000\n", 0},
               {"", 0},
               {"200000", 0},
               {"-5 100000\n", 0},
               {"200000 0\n", 0},
               {"9000000000000 1\n", PROA_THREADS_MAX}};
    char path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(proa_cpu_quota(folder), 0);
    for (size_t i = 0; i < PROA_COUNT(two); i++) {
        put("cpu.max", two[i].text);
        assert_int_equal(proa_cpu_quota(folder), two[i].cpus);
    }
    drop("cpu.max");
    snprintf(path, sizeof path, "%s/cpu", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    put("cpu/cpu.cfs_quota_us", "300000\n");
    assert_int_equal(proa_cpu_quota(folder), 0); /* of which period? */
    put("cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(proa_cpu_quota(folder), 3);
    put("cpu/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(proa_cpu_quota(folder), 0);
    drop("cpu/cpu.cfs_quota_us"), drop("cpu/cpu.cfs_period_us"), drop("cpu"), drop("");
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_item_once),
        cmocka_unit_test(test_static_split),
        cmocka_unit_test(test_many_small_jobs),
        cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_few_workers),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
