/* SPDX-License-Identifier: Apache-2.0
 * test_work.c - workers: how many wait, the order, the end; handoffs: what comes for a request that a worker has
 * waits until it is back. */
#include "net_helper.h"

#include "net/work.h"

static atomic_int started;

typedef struct job {
    proa_work_item work; /* first */
    pthread_mutex_t *gate;
    proa_handoff *offloaded; /* the worker has this while it runs */
    struct job *second;
    proa_workers *workers;
    int *order;
    int place; /* in which it came back */
} job;

static void run_job(proa_work_item *work)
{
    job *j = (job *)work;
    assert_false(proa_loop_is_current(work->loop));
    if (j->gate) {
        atomic_store(&started, 1);
        pthread_mutex_lock(j->gate);
        pthread_mutex_unlock(j->gate);
    }
    if (!j->second) return;
    proa_handoff_enter(j->offloaded);
    proa_handoff *handoff = proa_handoff_current();
    assert_ptr_equal(handoff, j->offloaded);
    proa_handoff_drop(handoff);
    assert_true(proa_workers_start(j->workers, &j->second->work));
    atomic_store(&started, 1);
    proa_handoff_leave();
    assert_null(proa_handoff_current());
    sleep_ms(20); /* the second is back before, and waits */
}

static void done_job(proa_work_item *work)
{
    job *j = (job *)work;
    if (j->offloaded) proa_handoff_finish(j->offloaded);
    j->place = ++*j->order;
    if (j->offloaded) proa_handoff_run_waiting(j->offloaded);
}

static job make(proa_loop *loop, int *order)
{
    return (job){.work = {.loop = loop, .run = run_job, .done = done_job}, .order = order};
}

static void test_waiting(void **state)
{
    proa_loop *loop;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    job jobs[4];
    int order = 0;
    (void)state;
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    proa_workers *workers = proa_workers_new(1, 2, NULL);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 4; i++) jobs[i] = make(loop, &order);
    jobs[0].gate = &gate;
    assert_true(proa_workers_start(workers, &jobs[0].work));
    wait_int(&started, 1); /* the only thread has it */
    for (int i = 1; i < 3; i++) assert_true(proa_workers_start(workers, &jobs[i].work));
    assert_false(proa_workers_start(workers, &jobs[3].work));
    pthread_mutex_unlock(&gate);
    proa_workers_end(workers); /* what waits is run */
    assert_false(proa_workers_start(workers, &jobs[3].work));
    proa_loop_free(loop); /* and comes back */
    proa_workers_free(workers);
    for (int i = 0; i < 4; i++) assert_int_equal(jobs[i].place, i < 3 ? i + 1 : 0);
}

static void test_handoff(void **state)
{
    proa_loop *loop;
    int order = 0;
    (void)state;
    atomic_store(&started, 0);
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    proa_workers *workers = proa_workers_new(2, 8, NULL);
    job second = make(loop, &order), first = make(loop, &order);
    first.second = &second;
    first.workers = workers;
    first.offloaded = proa_handoff_new();
    assert_true(proa_handoff_pending(first.offloaded));
    assert_false(proa_handoff_pending(NULL));
    assert_true(proa_workers_start(workers, &first.work));
    pthread_t thread;
    pthread_create(&thread, NULL, house_thread, loop);
    wait_int(&started, 1);
    proa_workers_end(workers);
    proa_loop_stop(loop);
    pthread_join(thread, NULL);
    proa_loop_free(loop);
    proa_workers_free(workers);
    assert_int_equal(first.place, 1); /* the work that it began ends after it */
    assert_int_equal(second.place, 2);
    assert_false(proa_handoff_pending(first.offloaded));
    proa_handoff_drop(first.offloaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waiting), cmocka_unit_test(test_handoff)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
