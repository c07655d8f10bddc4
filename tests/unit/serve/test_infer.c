/* SPDX-License-Identifier: Apache-2.0
 * test_infer.c - requests and replies: building, holding, cancelling from other threads, and that small ones cost no
 * malloc. */
#include "base/alloc.h"
#include "base/limits.h"
#include "serve/backend.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define RECYCLES 0
#else
#define RECYCLES 1
#endif

static void test_build(void **state)
{
    proa_infer *r = proa_infer_new();
    char name[32];
    assert_string_equal(r->id, "");
    assert_int_equal(r->model_version, -1);
    assert_true(proa_infer_wants(r, "anything"));
    for (int i = 0; i < PROA_TENSORS_PER_REQUEST_MAX; i++) {
        int n = snprintf(name, sizeof name, "in%d", i);
        proa_tensor *t = proa_infer_add_input(r, (proa_str){name, (size_t)n});
        assert_non_null(t);
        t->rank = i;
        memset(name, '!', sizeof name); /* it was copied */
    }
    assert_null(proa_infer_add_input(r, proa_str_c("one more")));
    assert_int_equal(proa_infer_input(r, "in700")->rank, 700);
    assert_null(proa_infer_input(r, "in7000"));
    assert_true(proa_infer_add_output(r, proa_str_c("a")));
    assert_true(proa_infer_add_output(r, proa_str_c("b")));
    assert_true(proa_infer_wants(r, "b"));
    assert_false(proa_infer_wants(r, "c"));
    for (int i = 0; i < PROA_PARAMS_PER_REQUEST_MAX; i++) {
        int n = snprintf(name, sizeof name, "p%d", i);
        proa_infer_param *p = proa_infer_add_param(r, (proa_str){name, (size_t)n});
        p->kind = PROA_PARAM_INT;
        p->i = i;
    }
    assert_null(proa_infer_add_param(r, proa_str_c("one more")));
    assert_int_equal(proa_infer_find_param(r, "p99")->i, 99);
    assert_null(proa_infer_find_param(r, "p"));
    assert_ptr_equal(proa_infer_hold(r), r);
    proa_infer_drop(r);
    assert_int_equal(proa_infer_find_param(r, "p1")->i, 1);
    proa_infer_drop(r);
    proa_infer_drop(NULL);
    (void)state;
}

static void test_reply(void **state)
{
    proa_infer *r = proa_infer_new();
    r->id = "the id";
    r->model_name = "m";
    r->model_version = 7;
    proa_reply *reply = proa_reply_new(r);
    proa_infer_drop(r); /* the reply lives on */
    assert_string_equal(reply->id, "the id");
    assert_string_equal(reply->model_name, "m");
    assert_int_equal(reply->model_version, 7);
    assert_int_equal(reply->error.status, PROA_OK);
    void *data;
    const int64_t shape[] = {2, 3}, none[] = {0};
    proa_tensor *t = proa_reply_add_array(reply, "x", PROA_TYPE_FP64, shape, 2, &data);
    assert_int_equal(t->bytes, 48);
    memset(data, 0, 48);
    t = proa_reply_add_array(reply, "empty", PROA_TYPE_INT8, none, 1, &data);
    assert_null(data);
    assert_null(t->buffer);
    const proa_str words[] = {{"ab", 2}, {"", 0}, {"c\0d", 3}};
    t = proa_reply_add_strings(reply, "s", words, 3);
    assert_int_equal(t->bytes, 3 * 4 + 5);
    assert_true(proa_tensor_strings_fit(t, 3, NULL));
    assert_memory_equal(t->data, "\2\0\0\0ab\0\0\0\0\3\0\0\0c\0d", 17);
    assert_int_equal(proa_reply_add_strings(reply, "s0", NULL, 0)->bytes, 0);
    assert_int_equal(proa_reply_output(reply, "x")->shape[1], 3);
    assert_null(proa_reply_output(reply, "y"));
    proa_infer_param *p = proa_reply_add_param(reply, "k");
    assert_true(proa_str_is(p->name, "k"));
    proa_reply_free(reply);
    proa_reply_free(NULL);
    (void)state;
}

/* ---- delivery ---- */

typedef struct sink {
    int replies, finals, errors;
    char text[64];
} sink;

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    sink *s = r->user;
    s->finals += final;
    if (!reply) return;
    s->replies++;
    s->errors += reply->error.status != PROA_OK;
    snprintf(s->text, sizeof s->text, "%s", reply->error.text);
    proa_reply_free(reply);
}

static void test_deliver(void **state)
{
    sink s = {0};
    proa_infer *r = proa_infer_new();
    r->on_reply = on_reply;
    r->user = &s;
    proa_infer_hold(r); /* the scheduler's: delivery of the final reply drops it */
    proa_infer_reply(r, proa_reply_new(r), false);
    proa_infer_reply(r, proa_reply_new(r), false);
    proa_infer_reply(r, NULL, true);
    assert_int_equal(s.replies, 2);
    assert_int_equal(s.finals, 1);
    assert_int_equal(atomic_load(&r->refs), 1);
    proa_err err = {0};
    (void)PROA_FAIL(&err, UNAVAILABLE, "no '%s'", "luck");
    proa_infer_hold(r);
    proa_infer_fail(r, &err);
    assert_int_equal(s.errors, 1);
    assert_int_equal(s.finals, 2);
    assert_string_equal(s.text, "no 'luck'");
    proa_infer_drop(r);
    (void)state;
}

static void test_times(void **state)
{
    proa_infer *r[2] = {proa_infer_new(), proa_infer_new()};
    proa_infer_input_done(r, 2);
    proa_infer_output_begins(r, 2);
    assert_true(r[1]->times.input_end > 0);
    assert_true(r[0]->times.output_start >= r[0]->times.input_end);
    proa_infer_drop(r[0]);
    proa_infer_drop(r[1]);
    (void)state;
}

static void free_nothing(void *arg)
{
    (void)arg;
}

static void test_no_malloc(void **state)
{
    static char body[64];
    sink s = {0};
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 10) before = proa_alloc_count();
        proa_infer *r = proa_infer_new();
        r->id = "1";
        r->model_name = "m";
        r->on_reply = on_reply;
        r->user = &s;
        for (int k = 0; k < 4; k++) {
            proa_tensor *t = proa_infer_add_input(r, proa_str_c("INPUT0"));
            t->buffer = proa_buffer_wrap(body, sizeof body, free_nothing, NULL);
        }
        void *data;
        const int64_t shape[] = {1, 16};
        proa_reply *reply = proa_reply_new(r);
        proa_reply_add_array(reply, "OUTPUT0", PROA_TYPE_INT32, shape, 2, &data);
        proa_reply_add_array(reply, "OUTPUT1", PROA_TYPE_INT32, shape, 2, &data);
        proa_infer_hold(r);
        proa_infer_reply(r, reply, true);
        proa_infer_drop(r);
    }
    assert_int_equal(s.finals, 1000);
    if (RECYCLES) assert_int_equal(proa_alloc_count() - before, 0);
    (void)state;
}

/* ---- cancel ---- */

static atomic_int called;

static void on_cancel(proa_infer *r)
{
    assert_true(proa_infer_cancelled(r));
    atomic_fetch_add(&called, 1);
}

static void test_cancel(void **state)
{
    atomic_store(&called, 0);
    proa_infer *r = proa_infer_new();
    assert_false(proa_infer_cancelled(r));
    assert_false(proa_infer_watch(r, NULL)); /* nothing to take back */
    assert_true(proa_infer_watch(r, on_cancel));
    assert_true(proa_infer_watch(r, NULL));
    assert_true(proa_infer_watch(r, on_cancel));
    proa_infer_cancel(r);
    proa_infer_cancel(r);
    assert_int_equal(called, 1);
    assert_false(proa_infer_watch(r, NULL));
    assert_false(proa_infer_watch(r, on_cancel)); /* cancelled already: called at once */
    assert_int_equal(called, 2);
    assert_false(proa_infer_watch(r, NULL));
    proa_infer_drop(r);
    (void)state;
}

typedef struct race {
    pthread_barrier_t start;
    proa_infer *r;
} race;

static void *canceller(void *arg)
{
    race *c = arg;
    for (;;) {
        pthread_barrier_wait(&c->start);
        if (!c->r) return NULL;
        proa_infer_cancel(c->r);
        pthread_barrier_wait(&c->start);
    }
}

/* Two cancel while one watches and takes back: the watcher is called once, unless it was taken back first. */
static void test_cancel_races(void **state)
{
    race c;
    pthread_t threads[2];
    int back = 0, heard = 0;
    pthread_barrier_init(&c.start, NULL, 3);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, canceller, &c), 0);
    for (int round = 0; round < 5000; round++) {
        c.r = proa_infer_new();
        atomic_store(&called, 0);
        pthread_barrier_wait(&c.start);
        proa_infer_watch(c.r, on_cancel);
        for (volatile int spin = 0; spin < round % 512;) spin = spin + 1;
        bool taken = proa_infer_watch(c.r, NULL);
        pthread_barrier_wait(&c.start);
        assert_int_equal(called, taken ? 0 : 1);
        *(taken ? &back : &heard) += 1;
        proa_infer_drop(c.r);
    }
    c.r = NULL;
    pthread_barrier_wait(&c.start);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&c.start);
    assert_int_equal(back + heard, 5000);
    (void)state;
}

/* A cancel that comes while the request ends: the canceller's reference keeps it, and no callback runs after the
 * end. */
static void test_cancel_at_the_end(void **state)
{
    race c;
    sink s = {0};
    pthread_t thread;
    pthread_barrier_init(&c.start, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, canceller, &c), 0);
    for (int round = 0; round < 5000; round++) {
        proa_infer *r = c.r = proa_infer_new();
        r->on_reply = on_reply;
        r->user = &s;
        atomic_store(&called, 0);
        proa_infer_hold(r);
        proa_infer_watch(r, on_cancel);
        pthread_barrier_wait(&c.start);
        bool taken = proa_infer_watch(r, NULL);
        proa_infer_reply(r, NULL, true);
        pthread_barrier_wait(&c.start);
        assert_int_equal(called, taken ? 0 : 1);
        proa_infer_drop(r);
    }
    c.r = NULL;
    pthread_barrier_wait(&c.start);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&c.start);
    assert_int_equal(s.finals, 5000);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),        cmocka_unit_test(test_reply),
        cmocka_unit_test(test_deliver),      cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_malloc),    cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_races), cmocka_unit_test(test_cancel_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
