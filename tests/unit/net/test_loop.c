/* SPDX-License-Identifier: Apache-2.0
 * test_loop.c - a loop: tasks from many threads in order, wake-ups, timers, late tasks; the wheel of deadlines; the
 * lists of blocks. */
#include "net_helper.h"

#include "base/wakeup.h"
#include "net/block.h"
#include "net/wheel.h"

#define POSTERS 4
#define TASKS   20000

typedef struct numbered {
    proa_loop_task task;
    int poster, number;
} numbered;

static int last_of[POSTERS];
static atomic_int tasks_run;

static void run_numbered(proa_loop_task *task)
{
    numbered *n = (numbered *)task;
    assert_int_equal(n->number, last_of[n->poster] + 1);
    last_of[n->poster] = n->number;
    free(n); /* it is ours from here on */
    atomic_fetch_add(&tasks_run, 1);
}

typedef struct poster {
    proa_loop *loop;
    int index;
} poster;

static void *post_all(void *arg)
{
    const poster *p = arg;
    bool batched = p->index % 2; /* half of the threads wake the loop at the end of each ten tasks */
    for (int i = 1; i <= TASKS; i++) {
        if (batched && i % 10 == 1) proa_wakeups_begin();
        numbered *n = calloc(1, sizeof *n);
        *n = (numbered){.task.run = run_numbered, .poster = p->index, .number = i};
        assert_false(proa_loop_is_current(p->loop));
        proa_loop_post(p->loop, &n->task);
        if (batched && i % 10 == 0) proa_wakeups_end();
        if (i % 1000 == 0) sleep_ms(1); /* so that the loop falls asleep in between */
    }
    return NULL;
}

static void test_post(void **state)
{
    proa_loop *loop;
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    pthread_t thread, posters[POSTERS];
    poster args[POSTERS];
    pthread_create(&thread, NULL, house_thread, loop);
    for (int i = 0; i < POSTERS; i++) {
        args[i] = (poster){loop, i};
        pthread_create(&posters[i], NULL, post_all, &args[i]);
    }
    for (int i = 0; i < POSTERS; i++) pthread_join(posters[i], NULL);
    wait_int(&tasks_run, POSTERS * TASKS);
    proa_loop_stop(loop);
    pthread_join(thread, NULL);
    proa_loop_free(loop);
    (void)state;
}

static atomic_bool free_began;

static void *free_loop(void *arg)
{
    proa_loop *loop = arg;
    atomic_store(&free_began, true);
    proa_loop_free(loop);
    return NULL;
}

/* A loop that a batch will still wake is freed only after that. */
static void test_free_during_a_batch(void **state)
{
    proa_loop *loop;
    pthread_t thread;
    numbered *n = calloc(1, sizeof *n);
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    last_of[0] = 0;
    *n = (numbered){.task.run = run_numbered, .number = 1};
    atomic_store(&tasks_run, 0);
    proa_wakeups_begin();
    proa_loop_post(loop, &n->task);
    pthread_create(&thread, NULL, free_loop, loop);
    while (!atomic_load(&free_began)) sleep_ms(1);
    sleep_ms(20);
    assert_int_equal(atomic_load(&tasks_run), 0); /* free runs what was posted, once it may */
    proa_wakeups_end();
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&tasks_run), 1);
    (void)state;
}

typedef struct chain {
    proa_loop_task task;
    proa_loop *loop;
    int left;
    int late_left;
    bool stopped; /* the rest runs inside proa_loop_free */
} chain;

static void run_chain(proa_loop_task *task)
{
    chain *c = (chain *)task;
    assert_int_equal(proa_loop_is_current(c->loop), !c->stopped);
    assert_true(proa_loop_now_ns(c->loop) > 0);
    if (c->left > 0) {
        c->left--;
        proa_loop_post(c->loop, &c->task); /* posts itself again from inside */
    } else if (c->late_left > 0) {
        c->late_left--;
        proa_loop_late(c->loop, &c->task);
    } else {
        proa_loop_stop(c->loop);
    }
}

static void test_own_thread(void **state)
{
    proa_loop *loop;
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    assert_false(proa_loop_is_current(loop));
    chain c = {.task.run = run_chain, .loop = loop, .left = 100, .late_left = 100};
    proa_loop_post(loop, &c.task);
    proa_loop_run(loop);
    assert_int_equal(c.left + c.late_left, 0);
    assert_false(proa_loop_is_current(loop));
    proa_loop_stop(loop); /* before run: run returns at once */
    proa_loop_run(loop);
    /* what is posted and not run is run by free, and what that posts too */
    c.left = 3;
    c.stopped = true;
    proa_loop_post(loop, &c.task);
    proa_loop_free(loop);
    assert_int_equal(c.left, 0);
    proa_loop_free(NULL);
    (void)state;
}

typedef struct clockwork {
    proa_timer a, b, c;
    int64_t start_ns;
    int fired_a, fired_b;
} clockwork;

static void fire_a(void *arg)
{
    clockwork *w = arg;
    w->fired_a++;
    proa_timer_release(&w->c);
    proa_timer_start(&w->b, 20);
    proa_timer_start(&w->b, 60); /* anew: only the second counts */
}

static void fire_b(void *arg)
{
    clockwork *w = arg;
    w->fired_b++;
    assert_true(seconds_since(w->start_ns) >= 0.1);
    proa_loop *loop = w->b.loop;
    proa_timer_release(&w->b); /* from inside */
    proa_loop_stop(loop);
}

static void fire_c(void *arg)
{
    (void)arg;
    fail_msg("a released timer fired");
}

static void test_timers(void **state)
{
    clockwork w = {.start_ns = proa_clock_ns()};
    proa_loop *loop;
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    w.a = (proa_timer){.loop = loop, .fire = fire_a, .arg = &w};
    w.b = (proa_timer){.loop = loop, .fire = fire_b, .arg = &w};
    w.c = (proa_timer){.loop = loop, .fire = fire_c, .arg = &w};
    proa_timer_start(&w.c, 60);
    proa_timer_start(&w.a, 45);
    proa_loop_run(loop);
    assert_int_equal(w.fired_a, 1);
    assert_int_equal(w.fired_b, 1);
    proa_timer_release(&w.a);
    proa_timer_release(&w.c);
    proa_timer zero = {0};
    proa_timer_release(&zero);
    proa_loop_free(loop);
    (void)state;
}

/* ---- the wheel ---- */

#define DEADLINES 500

static proa_wheel wheel;
static proa_deadline deadlines[DEADLINES];
static int64_t sweep_ns, passed_ns[DEADLINES];

static void pass(proa_deadline *d)
{
    assert_ptr_equal(d->next, NULL);
    passed_ns[d - deadlines] = sweep_ns;
}

/* Against a plain list, over many turns of the wheel: never early, late by less than a tick and the step. */
static void test_wheel(void **state)
{
    unsigned seed = 7;
    int64_t step = PROA_WHEEL_TICK_NS / 3;
    proa_wheel_init(&wheel, 12345);
    for (int i = 0; i < DEADLINES; i++) deadlines[i] = (proa_deadline){.pass = pass};
    int64_t at[DEADLINES] = {0};
    for (int turn = 0; turn < 4000; turn++) {
        sweep_ns = 12345 + turn * step;
        int i = rand_r(&seed) % DEADLINES;
        int64_t far = (int64_t)(rand_r(&seed) % 1000) * PROA_WHEEL_TICK_NS / 2;
        at[i] = rand_r(&seed) % 5 == 0 ? INT64_MAX : sweep_ns + far;
        passed_ns[i] = 0;
        if (rand_r(&seed) % 7 == 0) proa_deadline_remove(&wheel, &deadlines[i]);
        proa_deadline_set(&wheel, &deadlines[i], at[i]);
        proa_wheel_sweep(&wheel, sweep_ns);
        for (int k = 0; k < DEADLINES; k++) {
            if (at[k] == 0 || at[k] == INT64_MAX) assert_int_equal(passed_ns[k], 0);
            else if (passed_ns[k]) assert_true(passed_ns[k] >= at[k]);
            else assert_true(sweep_ns < at[k] + PROA_WHEEL_TICK_NS + step);
        }
    }
    sweep_ns += 5000 * PROA_WHEEL_TICK_NS; /* a loop that slept */
    proa_wheel_sweep(&wheel, sweep_ns);
    assert_int_equal(wheel.count, 0);
    for (int k = 0; k < DEADLINES; k++)
        if (at[k] != 0 && at[k] != INT64_MAX) assert_true(passed_ns[k] > 0);
    (void)state;
}

/* On a thread with a pool, and on one without. */
static void *use_blocks(void *arg)
{
    static const size_t sizes[] = {1, 256, 257, 4096, 65536, 65537, 200000, (32 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *held[20];
        for (int k = 0; k < 20; k++) {
            held[k] = proa_block_get(sizes[i]);
            assert_int_equal((uintptr_t)held[k] % 64, 0);
            assert_true(proa_block_bytes(held[k]) >= sizes[i]);
            if (sizes[i] < 1 << 20) memset(held[k], 0xAB, proa_block_bytes(held[k]));
        }
        for (int k = 0; k < 20; k++) proa_block_free(held[k]);
    }
    proa_block_free(NULL);
    return arg;
}

static void test_blocks(void **state)
{
    use_blocks(NULL);
    proa_block_pool *pool = proa_block_pool_open();
    use_blocks(NULL);
    use_blocks(NULL);
    void *left = proa_block_get(1000);
    proa_block_pool_close(pool);
    proa_block_free(left); /* outlives the pool */
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_post),       cmocka_unit_test(test_free_during_a_batch),
        cmocka_unit_test(test_own_thread), cmocka_unit_test(test_timers),
        cmocka_unit_test(test_wheel),      cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests_name("net/loop", tests, NULL, NULL);
}
