/* SPDX-License-Identifier: Apache-2.0
 * test_nccl.c - opening NCCL, joining a group, and how a communicator ends when a rank is missing, stops, or fails. The
 * library is tests/fake_nccl, whose ranks are threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"
#include "kernels/nccl.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 5 };

static void fails_to_open(const char *library, const char *says)
{
    proa_err err = {.status = PROA_OK};
    int32_t version = 0;
    setenv("PROA_NCCL", library, 1);
    assert_int_equal(proa_nccl_open(&version, &err), PROA_UNSUPPORTED);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    assert_int_equal(version, 0);
}

/* First: once it is open it stays so. */
static void test_not_there(void **state)
{
    (void)state;
    fails_to_open("/nowhere/libnccl.so.2", "/nowhere/libnccl.so.2: cannot open shared object file");
    fails_to_open("/nowhere/libnccl.so.2", "install NVIDIA's package libnccl2");
    fails_to_open("libm.so.6", "libm.so.6 has no function 'ncclGetVersion': NCCL 2.14 or newer is needed");
    setenv("FAKE_NCCL_VERSION", "21003", 1);
    fails_to_open(PROA_FAKE_NCCL, "is NCCL 2.10.3, 2.14 or newer is needed");
    unsetenv("FAKE_NCCL_VERSION");
}

static void open_fake(void)
{
    proa_err err = {.status = PROA_OK};
    int32_t version = 0;
    setenv("PROA_NCCL", PROA_FAKE_NCCL, 1);
    assert_int_equal(proa_nccl_open(&version, &err), PROA_OK);
    assert_int_equal(version, 22809);
}

static int count_of(const char *name)
{
    void *library = dlopen(PROA_FAKE_NCCL, RTLD_NOW);
    int count = atomic_load((atomic_int *)dlsym(library, name));
    dlclose(library);
    return count;
}

typedef struct rank {
    int32_t number;
    const char *id;
    float x[COUNT], y[COUNT];
    proa_status status;
    pthread_t thread;
} rank;

static void *sum_twice(void *arg)
{
    rank *r = arg;
    proa_nccl_comm *c;
    r->status = proa_nccl_join(&c, (proa_nccl_place){r->id, r->number, RANKS}, NULL, NULL, NULL);
    if (r->status != PROA_OK) return NULL;
    for (int i = 0; i < COUNT; i++) r->x[i] = (float)(r->number + i);
    proa_nccl_all_reduce(c, r->y, r->x, COUNT, PROA_DTYPE_F32, NULL);
    proa_nccl_all_reduce(c, r->y, r->y, COUNT, PROA_DTYPE_F32, NULL);
    if (proa_nccl_stopped(c)) r->status = PROA_INTERNAL;
    proa_nccl_close(c);
    return NULL;
}

static void test_sums(void **state)
{
    char id[PROA_NCCL_ID_BYTES];
    rank ranks[RANKS] = {{0}};
    (void)state;
    open_fake();
    assert_int_equal(proa_nccl_make_id(id, NULL), PROA_OK);
    for (int32_t i = 0; i < RANKS; i++) {
        ranks[i].number = i, ranks[i].id = id;
        pthread_create(&ranks[i].thread, NULL, sum_twice, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].status, PROA_OK);
        for (int k = 0; k < COUNT; k++) assert_true(ranks[i].y[k] == (float)(RANKS * (3 + RANKS * k)));
    }
    assert_int_equal(count_of("fake_nccl_destroyed"), RANKS);
    assert_int_equal(count_of("fake_nccl_aborted"), 0);
}

/* ---- what ends early ---- */

static int64_t stop_at;

static bool is_late(void *arg)
{
    (void)arg;
    return proa_clock_ns() > stop_at;
}

static void test_rank_does_not_come(void **state)
{
    char id[PROA_NCCL_ID_BYTES];
    proa_nccl_comm *c;
    proa_err err = {.status = PROA_OK};
    int aborted = count_of("fake_nccl_aborted");
    (void)state;
    open_fake();
    assert_int_equal(proa_nccl_make_id(id, NULL), PROA_OK);
    stop_at = proa_clock_ns() + 50000000;
    assert_int_equal(proa_nccl_join(&c, (proa_nccl_place){id, 0, 2}, is_late, NULL, &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text, "the other ranks have ended");
    assert_null(c);
    assert_int_equal(count_of("fake_nccl_aborted"), aborted + 1);
    /* what NCCL refuses */
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_nccl_join(&c, (proa_nccl_place){id, 2, 2}, NULL, NULL, &err), PROA_UNAVAILABLE);
    assert_non_null(strstr(err.text, "NCCL: invalid argument"));
}

static void *join_only(void *arg)
{
    rank *r = arg;
    proa_nccl_comm *c = NULL;
    r->status = proa_nccl_join(&c, (proa_nccl_place){r->id, r->number, 2}, NULL, NULL, NULL);
    return c;
}

/* Two ranks, of which this is the first. */
static proa_nccl_comm *join_two(proa_nccl_comm **other)
{
    char id[PROA_NCCL_ID_BYTES];
    proa_nccl_comm *c = NULL;
    open_fake();
    assert_int_equal(proa_nccl_make_id(id, NULL), PROA_OK);
    rank second = {.number = 1, .id = id};
    pthread_create(&second.thread, NULL, join_only, &second);
    assert_int_equal(proa_nccl_join(&c, (proa_nccl_place){id, 0, 2}, NULL, NULL, NULL), PROA_OK);
    pthread_join(second.thread, (void **)other);
    assert_non_null(*other);
    return c;
}

static void *stop_soon(void *arg)
{
    usleep(50000);
    proa_nccl_stop(arg);
    return NULL;
}

/* The other rank never calls the sum that this one waits in. */
static void test_stop(void **state)
{
    pthread_t thread;
    float x[COUNT] = {0};
    proa_nccl_comm *other, *c = join_two(&other);
    int aborted = count_of("fake_nccl_aborted");
    (void)state;
    pthread_create(&thread, NULL, stop_soon, c);
    proa_nccl_all_reduce(c, x, x, COUNT, PROA_DTYPE_F32, NULL);
    pthread_join(thread, NULL);
    assert_true(proa_nccl_stopped(c));
    proa_nccl_all_reduce(c, x, x, COUNT, PROA_DTYPE_F32, NULL); /* does nothing */
    proa_nccl_close(c);
    assert_int_equal(count_of("fake_nccl_aborted"), aborted + 1);
    proa_nccl_stop(other);
    proa_nccl_close(other);
    assert_int_equal(count_of("fake_nccl_aborted"), aborted + 2);
}

/* NCCL notices that a rank was lost: the call ends, and so does the comm. */
static void test_failure(void **state)
{
    float x[COUNT] = {0};
    proa_nccl_comm *other, *c = join_two(&other);
    int aborted = count_of("fake_nccl_aborted");
    (void)state;
    setenv("FAKE_NCCL_FAILS", "1", 1);
    proa_nccl_all_reduce(c, x, x, COUNT, PROA_DTYPE_F32, NULL);
    assert_true(proa_nccl_stopped(c));
    unsetenv("FAKE_NCCL_FAILS");
    assert_false(proa_nccl_stopped(other));
    /* of a wrong call */
    proa_nccl_send(other, x, COUNT, 0, NULL);
    assert_true(proa_nccl_stopped(other));
    proa_nccl_close(c);
    proa_nccl_close(other);
    assert_int_equal(count_of("fake_nccl_aborted"), aborted + 2);
}

static bool is_stopped_within(proa_nccl_comm *c, int64_t ms)
{
    for (int64_t begin = proa_clock_ns(); !proa_nccl_stopped(c); usleep(1000))
        if (proa_clock_ns() - begin > ms * 1000000) return false;
    return true;
}

/* A GPU that waits for another one which is silent: NCCL says nothing. */
static void test_silence(void **state)
{
    enum { WAIT_MS = 500 };
    static _Atomic uint32_t ended; /* as the GPU would count */
    proa_nccl_comm *other, *c = join_two(&other);
    (void)state;
    proa_nccl_watch(c, (const volatile uint32_t *)&ended, WAIT_MS);
    assert_false(is_stopped_within(c, 2 * WAIT_MS)); /* nothing was submitted */
    proa_nccl_submitted(c, 5);
    for (int i = 0; i < 4; i++) { /* slow, but it goes on */
        assert_false(is_stopped_within(c, WAIT_MS / 2));
        atomic_fetch_add(&ended, 1);
    }
    assert_false(is_stopped_within(c, WAIT_MS / 2));
    int64_t begin = proa_clock_ns();
    assert_true(is_stopped_within(c, 4 * WAIT_MS));
    assert_true(proa_clock_ns() - begin > WAIT_MS / 4 * 1000000);
    proa_nccl_stop(other);
    proa_nccl_close(c);
    proa_nccl_close(other);
}

/* What is submitted at once has all of the time. */
static void test_first_call(void **state)
{
    static _Atomic uint32_t ended;
    proa_nccl_comm *other, *c = join_two(&other);
    (void)state;
    proa_nccl_submitted(c, 1);
    proa_nccl_watch(c, (const volatile uint32_t *)&ended, 1000);
    assert_false(is_stopped_within(c, 500));
    proa_nccl_stop(other);
    proa_nccl_close(c);
    proa_nccl_close(other);
}

/* The other rank never calls the sum: NCCL's own call does not return, either. */
static void test_silent_call(void **state)
{
    float x[COUNT] = {0};
    proa_nccl_comm *other, *c = join_two(&other);
    (void)state;
    proa_nccl_watch(c, NULL, 200);
    int64_t begin = proa_clock_ns();
    proa_nccl_all_reduce(c, x, x, COUNT, PROA_DTYPE_F32, NULL);
    assert_true(proa_clock_ns() - begin < 5000000000);
    assert_true(proa_nccl_stopped(c));
    proa_nccl_stop(other);
    proa_nccl_close(c);
    proa_nccl_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_rank_does_not_come),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_first_call),
        cmocka_unit_test(test_silent_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
