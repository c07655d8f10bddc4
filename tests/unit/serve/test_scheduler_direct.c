/* SPDX-License-Identifier: Apache-2.0
 * test_scheduler_direct.c - the direct scheduler, inline and with threads, and backends that queue themselves. */
#include "rig.h"

static gate door = GATE_CLOSED;
static atomic_int inside[8], most_inside, executed;
static _Thread_local int executed_here;

static proa_status instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    (void)model_state, (void)err;
    *state = &inside[instance->index];
    return PROA_OK;
}

static void instance_close(void *state)
{
    (void)state;
}

/* Never two at a time on one instance, whichever thread executes. */
static void enter(void *state)
{
    atomic_int *mine = state;
    assert_int_equal(atomic_fetch_add(mine, 1), 0);
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += atomic_load(&inside[i]);
    for (int most = atomic_load(&most_inside);
         sum > most && !atomic_compare_exchange_weak(&most_inside, &most, sum);) {
    }
    atomic_fetch_add(&executed, 1);
    executed_here++;
}

static void leave(void *state)
{
    assert_int_equal(atomic_fetch_sub((atomic_int *)state, 1), 1);
}

static void execute_echo(void *state, proa_infer *const *requests, int count)
{
    assert_int_equal(count, 1);
    enter(state);
    leave(state);
    rig_echo(requests[0]);
}

static void execute_at_door(void *state, proa_infer *const *requests, int count)
{
    assert_int_equal(count, 1);
    enter(state);
    gate_pass(&door);
    leave(state);
    rig_echo(requests[0]);
}

static const proa_backend inline_echo = {.name = "t",
                                         .flags = PROA_BACKEND_INLINE,
                                         .instance_open = instance_open,
                                         .instance_close = instance_close,
                                         .execute = execute_echo};
static const proa_backend inline_door = {.name = "t",
                                         .flags = PROA_BACKEND_INLINE,
                                         .instance_open = instance_open,
                                         .instance_close = instance_close,
                                         .execute = execute_at_door};
static const proa_backend threaded_door = {
    .name = "t", .instance_open = instance_open, .instance_close = instance_close, .execute = execute_at_door};

static void open_rig(rig *g, const proa_backend *backend, int instances)
{
    rig_config(g, "m");
    atomic_store(&executed, 0);
    atomic_store(&most_inside, 0);
    assert_int_equal(rig_open(g, backend, instances, NULL), PROA_OK);
}

static void test_inline_runs_on_the_caller(void **state)
{
    rig g;
    answer a;
    open_rig(&g, &inline_echo, 1);
    assert_int_equal(rig_send(&g, &a, rig_request(&g, 7, 0, 3), NULL), PROA_OK);
    assert_true(a.done); /* before enqueue returned */
    assert_true(pthread_equal(a.thread, pthread_self()));
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 7);
    assert_int_equal(a.replies, 1);
    answer_free(&a);
    rig_close(&g);
    (void)state;
}

static void test_instances_work_side_by_side(void **state)
{
    rig g;
    answer a[5];
    open_rig(&g, &threaded_door, 3);
    gate_set(&door, false, 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    gate_await(&door, 3);
    rig_sleep_ms(5);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 2);
    assert_int_equal(atomic_load(&executed), 3);
    gate_set(&door, true, 0);
    for (int i = 0; i < 5; i++) {
        assert_true(answer_wait(&a[i]));
        assert_int_equal(a[i].value, i);
        assert_false(pthread_equal(a[i].thread, pthread_self()));
    }
    assert_int_equal(atomic_load(&most_inside), 3);
    for (int i = 0; i < 5; i++) answer_free(&a[i]);
    rig_close(&g);
    (void)state;
}

static void test_one_instance_keeps_the_order(void **state)
{
    rig g;
    answer a[20];
    open_rig(&g, &threaded_door, 1);
    gate_set(&door, false, 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    gate_set(&door, true, 0);
    for (int i = 0; i < 20; i++) assert_true(answer_wait(&a[i]));
    for (int i = 1; i < 20; i++) assert_true(a[i].order > a[i - 1].order);
    for (int i = 0; i < 20; i++) answer_free(&a[i]);
    rig_close(&g);
    (void)state;
}

typedef struct sender {
    rig *g;
    int count, wrong, here;
} sender;

static void *send_many(void *arg)
{
    sender *s = arg;
    for (int i = 0; i < s->count; i++) {
        answer a;
        if (rig_send(s->g, &a, rig_request(s->g, i, 0, 4), NULL) != PROA_OK || !answer_wait(&a) || a.value != i)
            s->wrong++;
        answer_free(&a);
    }
    s->here = executed_here;
    return NULL;
}

static void test_inline_under_contention(void **state)
{
    enum { THREADS = 4, EACH = 5000 };
    rig g;
    pthread_t threads[THREADS];
    sender senders[THREADS];
    proa_stats_sums *sums = malloc(sizeof *sums);
    open_rig(&g, &inline_echo, 2);
    for (int i = 0; i < THREADS; i++) {
        senders[i] = (sender){&g, EACH, 0, 0};
        pthread_create(&threads[i], NULL, send_many, &senders[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) assert_int_equal(senders[i].wrong, 0);
    assert_int_equal(atomic_load(&executed), THREADS * EACH);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 0);
    assert_true(atomic_load(&most_inside) <= 2);
    proa_stats_read(g.model.stats, sums);
    assert_int_equal(sums->success.count, THREADS * EACH);
    assert_int_equal(sums->executions, THREADS * EACH);
    free(sums);
    rig_close(&g);
    (void)state;
}

/* One caller waits at the gate; others leave their requests in the queue. It executes some of them, the helper the
 * rest. */
static void test_a_caller_is_not_kept(void **state)
{
    enum { COUNT = 40 };
    rig g;
    answer a[COUNT];
    pthread_t thread;
    open_rig(&g, &inline_door, 1);
    sender first = {&g, 1, 0, 0};
    gate_set(&door, false, 0);
    pthread_create(&thread, NULL, send_many, &first);
    gate_await(&door, 1);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), COUNT);
    assert_int_equal(atomic_load(&executed), 1);
    gate_set(&door, true, 0);
    pthread_join(thread, NULL);
    assert_int_equal(first.wrong, 0);
    assert_true(first.here <= 5);
    for (int i = 0; i < COUNT; i++) assert_true(answer_wait(&a[i]));
    for (int i = 1; i < COUNT; i++) assert_true(a[i].order > a[i - 1].order);
    for (int i = 0; i < COUNT; i++) answer_free(&a[i]);
    rig_close(&g);
    (void)state;
}

static void test_cancel_in_the_queue(void **state)
{
    rig g;
    answer a[3];
    proa_stats_sums *sums = malloc(sizeof *sums);
    open_rig(&g, &threaded_door, 1);
    gate_set(&door, false, 0);
    assert_int_equal(rig_send(&g, &a[0], rig_request(&g, 0, 0, 1), NULL), PROA_OK);
    gate_await(&door, 1);
    for (int i = 1; i < 3; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    proa_infer_cancel(a[1].request);
    assert_true(a[1].done); /* at once, by the thread that cancelled */
    assert_int_equal(a[1].status, PROA_CANCELLED);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 1);
    proa_infer_cancel(a[1].request); /* again: nothing */
    gate_set(&door, true, 0);
    assert_true(answer_wait(&a[0]) && answer_wait(&a[2]));
    assert_int_equal(a[2].status, PROA_OK);
    assert_int_equal(atomic_load(&executed), 2);
    proa_infer_cancel(a[2].request); /* after the end: nothing */
    proa_stats_read(g.model.stats, sums);
    assert_int_equal(sums->failures[PROA_FAIL_CANCELED], 1);
    assert_int_equal(sums->fail.count, 1);
    assert_int_equal(sums->success.count, 2);
    /* cancelled before it is sent */
    answer late;
    proa_err err = {0};
    proa_infer *r = rig_request(&g, 9, 0, 1);
    proa_infer_cancel(r);
    assert_int_equal(rig_send(&g, &late, r, &err), PROA_CANCELLED);
    assert_int_equal(late.replies, 0);
    answer_free(&late);
    for (int i = 0; i < 3; i++) answer_free(&a[i]);
    free(sums);
    rig_close(&g);
    (void)state;
}

/* A cancel from another thread at any moment: one final reply, always. */
static void *cancel_later(void *arg)
{
    proa_infer *r = arg;
    for (volatile int spin = (int)(proa_clock_ns() % 20000); spin > 0; spin--) {
    }
    proa_infer_cancel(r);
    proa_infer_drop(r);
    return NULL;
}

static void test_cancel_at_any_moment(void **state)
{
    rig g;
    open_rig(&g, &threaded_door, 1);
    gate_set(&door, true, 0);
    for (int i = 0; i < 300; i++) {
        answer a;
        pthread_t thread;
        proa_infer *r = rig_request(&g, i, 0, 1);
        pthread_create(&thread, NULL, cancel_later, proa_infer_hold(r));
        proa_status sent = rig_send(&g, &a, r, NULL);
        if (sent == PROA_OK) {
            assert_true(answer_wait(&a));
            assert_true(a.status == PROA_OK || a.status == PROA_CANCELLED);
            assert_int_equal(a.replies, 1);
        } else {
            assert_int_equal(sent, PROA_CANCELLED);
        }
        pthread_join(thread, NULL);
        answer_free(&a);
    }
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 0);
    rig_close(&g);
    (void)state;
}

static void test_timeouts(void **state)
{
    rig g;
    answer a[4];
    proa_stats_sums *sums = malloc(sizeof *sums);
    open_rig(&g, &threaded_door, 1);
    gate_set(&door, false, 0);
    int64_t start = proa_clock_ns();
    for (int i = 0; i < 4; i++) {
        proa_infer *r = rig_request(&g, i, 0, 1);
        if (i == 1) r->timeout_us = 20000;
        if (i == 2) r->deadline_ns = start + 40000000;
        assert_int_equal(rig_send(&g, &a[i], r, NULL), PROA_OK);
        if (i == 0) gate_await(&door, 1);
    }
    assert_true(answer_wait(&a[1]) && answer_wait(&a[2]));
    assert_false(answer_is_done(&a[0]) || answer_is_done(&a[3]));
    assert_int_equal(a[1].status, PROA_UNAVAILABLE);
    assert_string_equal(a[1].text, "Request timeout expired");
    assert_int_equal(a[2].status, PROA_DEADLINE);
    assert_true(a[1].at_ns - start >= 20000000 && a[2].at_ns - start >= 40000000);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 1);
    gate_set(&door, true, 0);
    assert_true(answer_wait(&a[3]));
    assert_int_equal(a[3].status, PROA_OK);
    proa_stats_read(g.model.stats, sums);
    assert_int_equal(sums->failures[PROA_FAIL_REJECTED], 2);
    for (int i = 0; i < 4; i++) answer_free(&a[i]);
    free(sums);
    rig_close(&g);
    (void)state;
}

static void test_stop(void **state)
{
    rig g;
    answer a[2], refused;
    proa_err err = {0};
    open_rig(&g, &threaded_door, 1);
    gate_set(&door, false, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rig_send(&g, &a[i], rig_request(&g, i, 0, 1), NULL), PROA_OK);
    proa_scheduler_stop(g.model.scheduler);
    assert_int_equal(rig_send(&g, &refused, rig_request(&g, 5, 0, 1), &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text,
                        "[request id: <id_unknown>] Server is stopping, scheduler for model has stopped "
                        "accepting new inference requests");
    gate_set(&door, true, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(answer_wait(&a[i])); /* what waited still runs */
        assert_int_equal(a[i].status, PROA_OK);
        answer_free(&a[i]);
    }
    answer_free(&refused);
    rig_close(&g);
    (void)state;
}

static void execute_error(void *state, proa_infer *const *requests, int count)
{
    proa_err err = {0};
    (void)state, (void)count;
    PROA_FAIL(&err, INTERNAL, "it broke");
    proa_infer_fail(requests[0], &err);
}

static void test_reshape_and_errors(void **state)
{
    static const proa_backend broken = {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute_error};
    rig g;
    answer a;
    proa_stats_sums *sums = malloc(sizeof *sums);
    rig_config(&g, "m");
    g.config.max_batch_size = 8;
    /* on the wire [B,1], in the backend [B] */
    g.output = (proa_io){.name = "OUT",
                         .type = PROA_TYPE_INT64,
                         .rank = 3,
                         .shape = {-1, -1, 1},
                         .inner_rank = 2,
                         .inner = {-1, -1},
                         .reshaped = true};
    assert_int_equal(rig_open(&g, &inline_echo, 1, NULL), PROA_OK);
    assert_int_equal(rig_send(&g, &a, rig_request(&g, 3, 2, 5), NULL), PROA_OK);
    assert_int_equal(a.rank, 3);
    assert_int_equal(a.shape[0], 2);
    assert_int_equal(a.shape[1], 5);
    assert_int_equal(a.shape[2], 1);
    answer_free(&a);
    rig_close(&g);

    open_rig(&g, &broken, 1);
    assert_int_equal(rig_send(&g, &a, rig_request(&g, 3, 0, 1), NULL), PROA_OK);
    assert_int_equal(a.status, PROA_INTERNAL);
    assert_string_equal(a.text, "it broke");
    proa_stats_read(g.model.stats, sums);
    assert_int_equal(sums->failures[PROA_FAIL_BACKEND], 1);
    answer_free(&a);
    free(sums);
    rig_close(&g);
    (void)state;
}

/* ---- a backend with its own queue: it runs one request at a time, and cancels on request ---- */

static struct {
    pthread_mutex_t lock;
    proa_infer *held[16];
    int count;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static proa_infer *own_take(int at)
{
    pthread_mutex_lock(&own.lock);
    proa_infer *r = own.held[at];
    memmove(own.held + at, own.held + at + 1, (size_t)(own.count - at - 1) * sizeof(proa_infer *));
    own.count--;
    pthread_mutex_unlock(&own.lock);
    return r;
}

static void own_cancel(proa_infer *r)
{
    proa_err err = {0};
    int at = -1;
    pthread_mutex_lock(&own.lock);
    for (int i = 0; i < own.count; i++)
        if (own.held[i] == r) at = i;
    pthread_mutex_unlock(&own.lock);
    if (at < 0) return;
    own_take(at);
    PROA_FAIL(&err, CANCELLED, "gave up");
    proa_infer_fail(r, &err);
}

static void execute_own(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    assert_int_equal(count, 1);
    pthread_mutex_lock(&own.lock);
    own.held[own.count++] = requests[0];
    pthread_mutex_unlock(&own.lock);
    proa_infer_watch(requests[0], own_cancel);
}

static void test_own_queue(void **state)
{
    static const proa_backend backend = {.name = "t", .flags = PROA_BACKEND_OWN_QUEUE, .execute = execute_own};
    Inference__ModelDynamicBatching dynamic;
    Inference__ModelQueuePolicy policy;
    rig g;
    answer a[4];
    proa_err err = {0};
    proa_stats_sums *sums = malloc(sizeof *sums);
    rig_config(&g, "m");
    inference__model_dynamic_batching__init(&dynamic);
    inference__model_queue_policy__init(&policy);
    policy.max_queue_size = 2;
    dynamic.default_queue_policy = &policy;
    g.config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    g.config.dynamic_batching = &dynamic;
    assert_int_equal(rig_open(&g, &backend, 1, NULL), PROA_OK);
    assert_int_equal(rig_send(&g, &a[0], rig_request(&g, 0, 0, 1), NULL), PROA_OK);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 1);
    proa_infer *running = own_take(0);
    proa_infer_begins(running);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 0);
    proa_infer *timed = rig_request(&g, 1, 0, 1);
    timed->timeout_us = 500000;
    assert_int_equal(rig_send(&g, &a[1], timed, NULL), PROA_OK);
    assert_int_equal(rig_send(&g, &a[2], rig_request(&g, 2, 0, 1), NULL), PROA_OK);
    assert_int_equal(rig_send(&g, &a[3], rig_request(&g, 3, 0, 1), &err), PROA_UNAVAILABLE); /* two wait already */
    assert_string_equal(err.text, "[request id: <id_unknown>] Exceeds maximum queue size");
    assert_true(answer_wait(&a[1]));
    assert_int_equal(a[1].status, PROA_UNAVAILABLE);
    assert_string_equal(a[1].text, "Request timeout expired");
    proa_infer_cancel(a[2].request);
    assert_true(a[2].done);
    assert_string_equal(a[2].text, "gave up");
    assert_false(answer_is_done(&a[0]));
    proa_infer_watch(running, NULL);
    rig_echo(running);
    assert_true(answer_wait(&a[0]));
    assert_int_equal(a[0].value, 0);
    proa_stats_read(g.model.stats, sums);
    assert_int_equal(sums->success.count, 1);
    assert_int_equal(sums->failures[PROA_FAIL_REJECTED], 2);
    assert_int_equal(sums->failures[PROA_FAIL_CANCELED], 1);
    assert_int_equal(proa_scheduler_pending(g.model.scheduler), 0);
    for (int i = 0; i < 4; i++) answer_free(&a[i]);
    free(sums);
    rig_close(&g);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inline_runs_on_the_caller),
        cmocka_unit_test(test_instances_work_side_by_side),
        cmocka_unit_test(test_one_instance_keeps_the_order),
        cmocka_unit_test(test_inline_under_contention),
        cmocka_unit_test(test_a_caller_is_not_kept),
        cmocka_unit_test(test_cancel_in_the_queue),
        cmocka_unit_test(test_cancel_at_any_moment),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_reshape_and_errors),
        cmocka_unit_test(test_own_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
