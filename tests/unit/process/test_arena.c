/* SPDX-License-Identifier: Apache-2.0
 * test_arena.c - shared memory with one owner: blocks, the ring that returns them, what a hostile peer
 * can write. */
#include "process/arena.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants those above it */
#include <cmocka.h>

#define BYTES ((size_t)64 << 20)
#define KEEP  ((size_t)1 << 20)
#define BEGIN PROA_CHANNEL_DATA_BEGIN

typedef _Atomic(uint64_t) word;

/* The other side's mapping of the same memory. */
static char *map(int fd)
{
    char *base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    return base;
}

/* Gives a block back as a stub does; false while the ring is full. */
static bool push(char *base, int *next, uint64_t at)
{
    word *ring = (word *)(void *)base;
    if (atomic_load(&ring[*next])) return false;
    atomic_store(&ring[*next], at);
    *next = (*next + 1) % PROA_CHANNEL_RING;
    return true;
}

static proa_shared_arena *arena(void)
{
    proa_shared_arena *a;
    proa_err err = {0};
    assert_int_equal(proa_shared_arena_new(&a, BYTES, KEEP, &err), PROA_OK);
    return a;
}

static void test_first_fit(void **state)
{
    proa_shared_arena *a = arena();
    char *theirs = map(proa_shared_arena_fd(a));
    int next = 0;
    (void)state;
    uint64_t one = proa_shared_arena_alloc(a, 100), two = proa_shared_arena_alloc(a, 64),
             three = proa_shared_arena_alloc(a, 1);
    assert_int_equal(one, BEGIN);
    assert_int_equal(two, BEGIN + 128);
    assert_int_equal(three, BEGIN + 192);
    assert_int_equal(proa_shared_arena_used(a), 256);
    memcpy(proa_shared_arena_at(a, two), "seen", 5);
    assert_string_equal(theirs + two, "seen");
    proa_shared_arena_release_block(a, one); /* the stub still has it */
    assert_int_equal(proa_shared_arena_alloc(a, 64), BEGIN + 256);
    assert_true(push(theirs, &next, one));
    assert_int_equal(proa_shared_arena_alloc(a, 64), BEGIN);
    assert_int_equal(proa_shared_arena_alloc(a, 128), BEGIN + 320); /* 64 are left of the gap */
    assert_int_equal(proa_shared_arena_alloc(a, 64), BEGIN + 64);
    munmap(theirs, BYTES);
    proa_shared_arena_release(a);
}

static void test_holders(void **state)
{
    proa_shared_arena *a = arena();
    char *theirs = map(proa_shared_arena_fd(a));
    int next = 0;
    (void)state;
    uint64_t at = proa_shared_arena_alloc(a, 4096);
    proa_shared_arena_retain_block(a, at);
    assert_true(push(theirs, &next, at));
    proa_shared_arena_release_block(a, at);
    assert_int_equal(proa_shared_arena_used(a), 4096);
    assert_true(proa_shared_arena_contains(a, at, at + 4000, 96));
    assert_false(proa_shared_arena_contains(a, at, at + 4000, 97));
    assert_false(proa_shared_arena_contains(a, at, at - 64, 64));
    assert_false(proa_shared_arena_contains(a, at, at + 64, UINT64_MAX));
    assert_false(proa_shared_arena_contains(a, at + 64, at + 64, 1));
    proa_shared_arena_release_block(a, at);
    assert_int_equal(proa_shared_arena_used(a), 0);
    at = proa_shared_arena_alloc(a, 64);
    proa_shared_arena_cancel_send(a, at);
    proa_shared_arena_release_block(a, at);
    assert_int_equal(proa_shared_arena_used(a), 0);
    munmap(theirs, BYTES);
    proa_shared_arena_release(a);
}

static void test_what_is_no_block_is_not_given_back(void **state)
{
    proa_shared_arena *a = arena();
    char *theirs = map(proa_shared_arena_fd(a));
    int next = 0;
    (void)state;
    uint64_t at = proa_shared_arena_alloc(a, 256);
    const uint64_t wild[] = {1, at + 64, UINT64_MAX, at - 64, at, at, at};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) assert_true(push(theirs, &next, wild[i]));
    assert_int_equal(proa_shared_arena_used(a), 256); /* ours still */
    proa_shared_arena_release_block(a, at);
    assert_int_equal(proa_shared_arena_used(a), 0);
    memset(theirs, 0xff, PROA_CHANNEL_DATA_BEGIN); /* the whole ring */
    assert_int_equal(proa_shared_arena_alloc(a, 64), BEGIN);
    munmap(theirs, BYTES);
    proa_shared_arena_release(a);
}

static void test_full(void **state)
{
    proa_shared_arena *a = arena();
    (void)state;
    assert_int_equal(proa_shared_arena_alloc(a, BYTES), 0);
    assert_int_equal(proa_shared_arena_alloc(a, SIZE_MAX), 0);
    assert_int_equal(proa_shared_arena_alloc(a, 0), 0);
    uint64_t all = proa_shared_arena_alloc(a, BYTES - BEGIN);
    assert_int_equal(all, BEGIN);
    assert_int_equal(proa_shared_arena_alloc(a, 1), 0);
    proa_shared_arena_cancel_send(a, all);
    proa_shared_arena_release_block(a, all);
    assert_int_equal(proa_shared_arena_alloc(a, 1), BEGIN);
    proa_shared_arena_release(a);
}

/* A block of this side is shared at its begin, whole, and with one message at a time. The other side opens both
 * memories, as a process does that has inherited them. */
static void test_share(void **state)
{
    proa_shared_arena *a = arena();
    proa_shared_view *theirs;
    (void)state;
    assert_int_equal(proa_shared_view_open(&theirs, dup(proa_shared_arena_fd(a)), NULL), PROA_OK);
    uint64_t at = proa_shared_arena_alloc(a, 1000);
    char *data = proa_shared_arena_at(a, at);
    assert_int_equal(proa_shared_arena_share(a, data, 1000), 0); /* the other side holds it from alloc on */
    proa_shared_arena_cancel_send(a, at);
    assert_int_equal(proa_shared_arena_share(a, data + 64, 100), 0);
    assert_int_equal(proa_shared_arena_share(a, data, 1025), 0);
    assert_int_equal(proa_shared_arena_share(a, &at, 8), 0);
    strcpy(data, "hello");
    assert_int_equal(proa_shared_arena_share(a, data, 1000), at);
    assert_int_equal(proa_shared_arena_share(a, data, 1000), 0);
    proa_shared_arena_release_block(a, at);
    assert_string_equal(proa_shared_view_check(theirs, at, 1000), "hello");
    assert_int_equal(proa_shared_arena_used(a), 1024);
    proa_shared_view_return_block(theirs, at);
    assert_int_equal(proa_shared_arena_used(a), 0);
    proa_shared_view_release(theirs);
    proa_shared_arena_release(a);
}

static void test_what_is_no_arena(void **state)
{
    proa_shared_arena *a;
    proa_shared_view *v;
    proa_err err = {0};
    (void)state;
    assert_int_equal(proa_shared_arena_open(&a, -1, 0, &err), PROA_INVALID);
    assert_string_equal(err.text, "descriptor -1 is no shared memory");
    int fd = open("/dev/null", O_RDWR);
    assert_int_equal(proa_shared_view_open(&v, fd, NULL), PROA_INVALID);
    close(fd);
}

static int64_t resident(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return (int64_t)st.st_blocks * 512;
}

static void test_memory_goes_back_and_nobody_can_shrink_it(void **state)
{
    proa_shared_arena *a = arena();
    (void)state;
    uint64_t at = proa_shared_arena_alloc(a, 16 << 20);
    memset(proa_shared_arena_at(a, at), 1, 16 << 20);
    assert_true(resident(proa_shared_arena_fd(a)) >= 16 << 20);
    proa_shared_arena_cancel_send(a, at);
    proa_shared_arena_release_block(a, at);
    assert_true(resident(proa_shared_arena_fd(a)) <= 2 << 20);
    assert_int_not_equal(ftruncate(proa_shared_arena_fd(a), 4096), 0);
    proa_shared_arena_release(a);
}

static void test_view(void **state)
{
    proa_shared_view *v;
    proa_err err = {0};
    (void)state;
    assert_int_equal(proa_shared_view_new(&v, BYTES, &err), PROA_OK);
    char *theirs = map(proa_shared_view_fd(v));
    word *ring = (word *)(void *)theirs;
    memcpy(theirs + BEGIN + 64, "hello", 6);
    assert_string_equal(proa_shared_view_check(v, BEGIN + 64, 6), "hello");
    assert_non_null(proa_shared_view_check(v, BYTES - 64, 64));
    assert_null(proa_shared_view_check(v, BYTES - 64, 65));
    assert_null(proa_shared_view_check(v, BYTES, 1));
    assert_null(proa_shared_view_check(v, BEGIN, UINT64_MAX));
    assert_null(proa_shared_view_check(v, UINT64_MAX - 63, 64));
    assert_null(proa_shared_view_check(v, BEGIN, 0));
    assert_null(proa_shared_view_check(v, BEGIN + 8, 8)); /* blocks begin at multiples of 64 */
    assert_null(proa_shared_view_check(v, 0, 64));        /* the ring */
    /* More than the ring holds: what does not fit waits, in order. */
    for (uint64_t i = 0; i < PROA_CHANNEL_RING + 100; i++) proa_shared_view_return_block(v, BEGIN + 64 * i);
    for (uint64_t i = 0; i < PROA_CHANNEL_RING; i++) {
        assert_int_equal(atomic_load(&ring[i]), BEGIN + 64 * i);
        atomic_store(&ring[i], 0);
    }
    proa_shared_view_return_block(v, 7);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(atomic_load(&ring[i]), BEGIN + 64 * (PROA_CHANNEL_RING + i));
    assert_int_equal(atomic_load(&ring[100]), 7);
    munmap(theirs, BYTES);
    proa_shared_view_release(v);
}

/* ---- both sides at once ---- */

#define ROUNDS 20000

typedef struct traffic {
    proa_shared_arena *a;
    char *theirs;
    word mailbox; /* a block on its way to the other side */
} traffic;

static void *other_side(void *arg)
{
    traffic *t = arg;
    int next = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t at;
        while (!(at = atomic_exchange_explicit(&t->mailbox, 0, memory_order_acquire))) {
        }
        uint64_t seen;
        memcpy(&seen, t->theirs + at, sizeof seen);
        assert_int_equal(seen, at);
        while (!push(t->theirs, &next, at)) {
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    traffic t = {.a = arena()};
    pthread_t other;
    (void)state;
    t.theirs = map(proa_shared_arena_fd(t.a));
    pthread_create(&other, NULL, other_side, &t);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t at = proa_shared_arena_alloc(t.a, 64 + i % 3000);
        assert_int_not_equal(at, 0);
        memcpy(proa_shared_arena_at(t.a, at), &at, sizeof at);
        while (atomic_load_explicit(&t.mailbox, memory_order_acquire)) {
        }
        atomic_store_explicit(&t.mailbox, at, memory_order_release);
        proa_shared_arena_release_block(t.a, at);
    }
    pthread_join(other, NULL);
    assert_int_equal(proa_shared_arena_used(t.a), 0);
    munmap(t.theirs, BYTES);
    proa_shared_arena_release(t.a);
}

static void count_end(void *count)
{
    ++*(int *)count;
}

/* What hangs on a block ends when neither side holds it, and at the latest with the arena. */
static void test_end_of_a_block(void **state)
{
    proa_shared_arena *a = arena();
    char *theirs = map(proa_shared_arena_fd(a));
    int next = 0, ends[4] = {0};
    (void)state;
    uint64_t at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = proa_shared_arena_alloc(a, 64);
        proa_shared_arena_on_free(a, at[i], count_end, &ends[i]);
    }
    proa_shared_arena_on_free(a, at[0], count_end, &ends[0]);
    proa_shared_arena_release_block(a, at[0]);
    assert_int_equal(ends[0], 0);
    assert_true(push(theirs, &next, at[0]) && push(theirs, &next, at[1]));
    proa_shared_arena_used(a);
    assert_int_equal(ends[0], 2);
    assert_int_equal(ends[1], 0);
    proa_shared_arena_release_block(a, at[1]);
    assert_int_equal(ends[1], 1);
    proa_shared_arena_cancel_send(a, at[2]);
    proa_shared_arena_release_block(a, at[2]);
    assert_int_equal(ends[2], 1);
    proa_shared_arena_release(a);
    assert_int_equal(ends[0] + ends[1] + ends[2], 4);
    assert_int_equal(ends[3], 1);
    munmap(theirs, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_of_a_block),
        cmocka_unit_test(test_first_fit),
        cmocka_unit_test(test_holders),
        cmocka_unit_test(test_what_is_no_block_is_not_given_back),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_what_is_no_arena),
        cmocka_unit_test(test_memory_goes_back_and_nobody_can_shrink_it),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
