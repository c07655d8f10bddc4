/* SPDX-License-Identifier: Apache-2.0
 * test_sink.c - replies from other threads reach the loop in order, the final one once, and the sink may be freed by
 * it while the thread that made it is still on its way out. For the thread sanitiser. */
#include "api/internal.h"
#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

typedef struct request {
    proa_sink sink; /* first */
    int64_t seen, count;
    bool null_final, cancel_at_first;
    bool large; /* every third reply is so large that a worker prepares it */
    int64_t prepared, on_worker;
    atomic_int *left;
    proa_loop *loop;
} request;

static pthread_t loop_id;

static proa_reply *make_reply(proa_infer *r, int64_t n)
{
    proa_reply *reply = proa_reply_new(r);
    reply->model_version = n;
    return reply;
}

static void prepare(proa_sink *sink, proa_reply *reply)
{
    request *q = (request *)sink;
    assert_int_equal(reply->model_version, q->prepared++); /* one at a time, in order */
    q->on_worker += !pthread_equal(pthread_self(), loop_id);
}

static void on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    request *q = (request *)sink;
    assert_true(pthread_equal(pthread_self(), loop_id));
    if (reply && q->large) assert_int_equal(q->prepared, reply->model_version + 1);
    if (reply) assert_int_equal(reply->model_version, q->seen++);
    else assert_true(final && q->null_final);
    proa_reply_free(reply);
    if (!final) return;
    assert_int_equal(q->seen, q->count);
    if (q->large) assert_int_equal(q->on_worker, (q->count + 2) / 3);
    if (atomic_fetch_sub(q->left, 1) == 1) proa_loop_stop(q->loop);
    memset(q, 0x55, sizeof *q);
    free(q);
}

static void *make_replies(void *arg)
{
    proa_infer *r = arg;
    request *q = r->user;
    int64_t count = q->count;
    bool null_final = q->null_final, large = q->large;
    for (int64_t i = 0; i < count; i++) {
        bool final = !null_final && i == count - 1;
        proa_reply *reply = make_reply(r, i);
        if (large && i % 3 == 0)
            proa_reply_add_array(reply, "x", PROA_TYPE_UINT8, (const int64_t[]){PROA_WORKER_BYTES_MIN}, 1,
                                 &(void *){NULL});
        r->on_reply(r, reply, final);
        if (i % 7 == 3) sched_yield();
    }
    if (null_final) r->on_reply(r, NULL, true);
    proa_infer_drop(r); /* the scheduler's reference */
    return NULL;
}

static void *run_loop(void *arg)
{
    proa_thread_counters_use(1);
    proa_loop_run(arg);
    return NULL;
}

typedef struct starter {
    proa_loop_task task;
    proa_loop *loop;
    atomic_int *left;
    pthread_t threads[64];
    int count;
    proa_workers *workers; /* not NULL: they prepare replies */
} starter;

static void start(proa_loop_task *task)
{
    starter *s = (starter *)task;
    loop_id = pthread_self();
    for (int i = 0; i < s->count; i++) {
        proa_infer *r = proa_infer_new();
        request *q = proa_calloc(1, sizeof *q);
        q->count = 1 + i * 13 % 200;
        q->null_final = i % 3 == 0;
        q->left = s->left;
        q->loop = s->loop;
        proa_sink_init(&q->sink, s->loop, r, on_reply);
        q->large = s->workers != NULL;
        if (s->workers) proa_sink_prepare_with(&q->sink, s->workers, prepare);
        assert_int_equal(pthread_create(&s->threads[i], NULL, make_replies, proa_infer_hold(r)), 0);
    }
}

static void run_many(int count, proa_workers *workers)
{
    proa_loop *loop;
    atomic_int left = count;
    pthread_t thread;
    starter s = {.task = {.run = start}, .left = &left, .count = count, .workers = workers};
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    s.loop = loop;
    proa_loop_post(loop, &s.task);
    assert_int_equal(pthread_create(&thread, NULL, run_loop, loop), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < s.count; i++) pthread_join(s.threads[i], NULL);
    assert_int_equal(proa_sinks_live(), 0);
    proa_workers_end(workers);
    proa_loop_free(loop);
    proa_workers_free(workers);
}

static void test_order_from_many_threads(void **state)
{
    run_many(64, NULL);
    (void)state;
}

static void test_large_replies_are_prepared_on_workers(void **state)
{
    run_many(16, proa_workers_new(3, 1000, NULL));
    (void)state;
}

/* ---- on the loop's own thread ---- */

typedef struct inline_request {
    proa_sink sink;
    int replies;
    bool final, inside;
} inline_request;

/* The first reply makes the request end from inside: the end has to wait until the call has returned. */
static void reenters(proa_sink *sink, proa_reply *reply, bool final)
{
    inline_request *q = (inline_request *)sink;
    assert_false(q->inside);
    q->inside = true;
    proa_reply_free(reply);
    q->replies++;
    q->final = final;
    if (q->replies == 1) sink->infer->on_reply(sink->infer, make_reply(sink->infer, 1), true);
    assert_int_equal(q->replies, final ? 2 : 1);
    q->inside = false;
    if (final) proa_loop_stop(sink->loop);
}

typedef struct inline_task {
    proa_loop_task task;
    proa_loop *loop;
    inline_request *q;
    int at_once;
} inline_task;

static void give_first(proa_loop_task *task)
{
    inline_task *t = (inline_task *)task;
    proa_infer *r = proa_infer_new();
    proa_sink_init(&t->q->sink, t->loop, r, reenters);
    r->on_reply(r, make_reply(r, 0), false);
    t->at_once = t->q->replies;
    assert_int_equal(proa_sinks_live(), 1);
}

static void test_at_once_on_the_loop(void **state)
{
    inline_request q = {.replies = 0};
    inline_task t = {.task = {.run = give_first}, .q = &q};
    assert_int_equal(proa_loop_new(&t.loop, NULL), PROA_OK);
    proa_loop_post(t.loop, &t.task);
    proa_loop_run(t.loop);
    proa_loop_free(t.loop);
    assert_int_equal(t.at_once, 1);
    assert_int_equal(q.replies, 2);
    assert_true(q.final);
    assert_int_equal(proa_sinks_live(), 0);
    (void)state;
}

static void test_abandon(void **state)
{
    proa_loop *loop;
    proa_sink sink;
    proa_infer *r = proa_infer_new();
    assert_int_equal(proa_loop_new(&loop, NULL), PROA_OK);
    proa_sink_init(&sink, loop, r, reenters);
    assert_int_equal(proa_sinks_live(), 1);
    proa_sink_abandon(&sink);
    assert_int_equal(proa_sinks_live(), 0);
    proa_loop_free(loop);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_from_many_threads),
        cmocka_unit_test(test_large_replies_are_prepared_on_workers),
        cmocka_unit_test(test_at_once_on_the_loop),
        cmocka_unit_test(test_abandon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
