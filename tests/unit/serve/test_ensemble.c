/* SPDX-License-Identifier: Apache-2.0
 * test_ensemble.c - ensembles on a server with a repository of its own: data flow, branches side by side, tensors by
 * reference, decoupled steps, back-pressure, errors, cancels, time-outs, statistics. */
#include "repo.h"
#include "rig.h"

/* ---- the models ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    int inside, most, executed, cancelled;
    const char *last_data;
    proa_infer *held[64];
    int held_count;
} now = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static gate door = GATE_CLOSED;

static void count(int *what, int by)
{
    pthread_mutex_lock(&now.lock);
    *what += by;
    if (now.inside > now.most) now.most = now.inside;
    pthread_cond_broadcast(&now.change);
    pthread_mutex_unlock(&now.lock);
}

static bool await(const int *what, int value)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 20;
    int failed = 0;
    pthread_mutex_lock(&now.lock);
    while (*what < value && !failed) failed = pthread_cond_timedwait(&now.change, &now.lock, &t);
    pthread_mutex_unlock(&now.lock);
    return !failed;
}

static int64_t first_of(const proa_infer *r, const char *name)
{
    const proa_tensor *t = proa_infer_input(r, name);
    int64_t v = -1;
    if (t && t->bytes >= 8) memcpy(&v, t->data, 8);
    return v;
}

static void reply_number(proa_infer *r, int64_t value, bool final)
{
    proa_reply *reply = proa_reply_new(r);
    const proa_tensor *in = proa_infer_input(r, "IN");
    int64_t shape[2] = {1, 1};
    void *data;
    proa_reply_add_array(reply, "OUT", PROA_TYPE_INT64, shape, in ? in->rank : 1, &data);
    memcpy(data, &value, 8);
    proa_infer_reply(r, reply, final);
}

/* OUT is IN, by reference. */
static void execute_pass(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        count(&now.executed, 1);
        rig_echo(requests[i]);
    }
}

/* OUT is IN + 1, when two are inside at the same time (or 20 s have passed). */
static void execute_meet(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        count(&now.executed, 1);
        count(&now.inside, 1);
        await(&now.most, 2);
        count(&now.inside, -1);
        reply_number(requests[i], first_of(requests[i], "IN") + 1, true);
    }
}

/* OUT is A + B; what is not given counts 1000. */
static void execute_add(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        int64_t a = first_of(requests[i], "A"), b = first_of(requests[i], "B");
        reply_number(requests[i], (a < 0 ? 1000 : a) + (b < 0 ? 1000 : b), true);
    }
}

static void execute_fail(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        proa_err err = {0};
        PROA_FAIL(&err, INTERNAL, "it broke");
        proa_infer_fail(requests[i], &err);
    }
}

/* ... when another one is at work. */
static void execute_fail_late(void *state, proa_infer *const *requests, int n)
{
    await(&now.inside, 1);
    execute_fail(state, requests, n);
}

/* Waits for its cancel. */
static void hold_cancelled(proa_infer *r)
{
    proa_err err = {0};
    count(&now.cancelled, 1);
    PROA_FAIL(&err, CANCELLED, "told so");
    proa_infer_fail(r, &err);
}

static void execute_hold(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        proa_infer *r = requests[i];
        proa_infer_hold(r);
        proa_infer_watch(r, hold_cancelled);
        count(&now.inside, 1);
        proa_infer_drop(r);
    }
}

static void execute_door(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        count(&now.executed, 1);
        gate_pass(&door);
        rig_echo(requests[i]);
    }
}

/* IN = n: n replies 0..n-1. The last is final if n is even, else the end comes by itself. */
static void execute_drip(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        proa_infer *r = requests[i];
        int64_t all = first_of(r, "IN");
        for (int64_t k = 0; k < all; k++) {
            count(&now.executed, 1);
            reply_number(r, k, k == all - 1 && all % 2 == 0);
        }
        if (all % 2 || all == 0) proa_infer_reply(r, NULL, true);
    }
}

/* IN = n: n replies 0..n-1, an error, one reply more. */
static void execute_drip_break(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        proa_infer *r = requests[i];
        int64_t all = first_of(r, "IN");
        for (int64_t k = 0; k < all; k++) reply_number(r, k, false);
        proa_reply *reply = proa_reply_new(r);
        PROA_FAIL(&reply->error, INTERNAL, "it broke on the way");
        proa_infer_reply(r, reply, false);
        reply_number(r, all, true);
    }
}

/* 3 fails at once, what is below takes its time. */
static void execute_picky(void *state, proa_infer *const *requests, int n)
{
    for (int i = 0; i < n; i++) {
        int64_t value = first_of(requests[i], "IN");
        if (value < 3) rig_sleep_ms(5);
        if (value == 3) execute_fail(state, &requests[i], 1);
        else rig_echo(requests[i]);
    }
}

/* Odd numbers take longer than even ones. */
static void execute_uneven(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        if (first_of(requests[i], "IN") % 2) rig_sleep_ms(3);
        rig_echo(requests[i]);
    }
}

/* No output; or no reply at all. */
static void execute_mute(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    for (int i = 0; i < n; i++) {
        bool silent = first_of(requests[i], "IN") == 13;
        proa_infer_reply(requests[i], silent ? NULL : proa_reply_new(requests[i]), true);
    }
}

/* Keeps requests until they are released; how many it has at the same time is `most`. */
static void execute_keep(void *state, proa_infer *const *requests, int n)
{
    (void)state;
    pthread_mutex_lock(&now.lock);
    for (int i = 0; i < n; i++) now.held[now.held_count++] = requests[i];
    pthread_mutex_unlock(&now.lock);
    count(&now.inside, n);
}

static bool release_one(void)
{
    pthread_mutex_lock(&now.lock);
    proa_infer *r = now.held_count ? now.held[0] : NULL;
    if (r) memmove(now.held, now.held + 1, (size_t)--now.held_count * sizeof(proa_infer *));
    pthread_mutex_unlock(&now.lock);
    if (!r) return false;
    count(&now.inside, -1);
    rig_echo(r);
    return true;
}

#define BACKEND(id, flag)                                                                                    \
    static const proa_backend backend_##id = {.name = #id, .flags = (flag), .execute = execute_##id}
BACKEND(pass, PROA_BACKEND_INLINE);
BACKEND(meet, 0);
BACKEND(add, PROA_BACKEND_INLINE);
BACKEND(fail, PROA_BACKEND_INLINE);
BACKEND(fail_late, 0);
BACKEND(hold, 0);
BACKEND(door, 0);
BACKEND(drip, 0);
BACKEND(drip_break, 0);
BACKEND(picky, 0);
BACKEND(uneven, 0);
BACKEND(mute, PROA_BACKEND_INLINE);
BACKEND(keep, PROA_BACKEND_OWN_QUEUE);
static const proa_backend *const backends[] = {
    &backend_pass,      &backend_meet,       &backend_add,    &backend_fail, &backend_hold,
    &backend_door,      &backend_drip,       &backend_uneven, &backend_mute, &backend_keep,
    &backend_fail_late, &backend_drip_break, &backend_picky,  NULL};

/* ---- the repository ---- */

static char folder[PROA_PATH_MAX];
static proa_server *server;

#define NUMBER "data_type: TYPE_INT64 dims: [ -1 ]"

static void add_model(const char *name, const char *backend, const char *inputs, const char *more)
{
    char file[256];
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file, "backend: \"%s\"\n%s\noutput { name: \"OUT\" " NUMBER " }\n%s", backend, inputs,
               more);
    snprintf(file, sizeof file, "%s/1/x", name);
    repo_write(folder, file, "x");
}

#define IN     "input { name: \"IN\" " NUMBER " }"
#define CPU(n) "instance_group { kind: KIND_CPU count: " #n " }"

static void add_ensemble(const char *name, const char *inputs, const char *outputs, const char *steps)
{
    char file[256];
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file, "platform: \"ensemble\"\n%s\n%s\nensemble_scheduling { %s }", inputs, outputs,
               steps);
    snprintf(file, sizeof file, "%s/1/x", name);
    repo_write(folder, file, "x");
}

#define STEP(model, from, to)                                                                                \
    "step { model_name: \"" model "\" model_version: -1 input_map { key: \"IN\" value: \"" from              \
    "\" } output_map { key: \"OUT\" value: \"" to "\" } }\n"
#define ADD(a, b, to)                                                                                        \
    "step { model_name: \"add\" model_version: -1 input_map { key: \"A\" value: \"" a                        \
    "\" } input_map { key: \"B\" value: \"" b "\" } output_map { key: \"OUT\" value: \"" to "\" } }\n"
#define OUT "output { name: \"OUT\" " NUMBER " }"

static void write_models(void)
{
    add_model("pass", "pass", IN, CPU(1));
    add_model("meet", "meet", IN, CPU(2));
    add_model("fail", "fail", IN, CPU(1));
    add_model("fail_late", "fail_late", IN, CPU(1));
    add_model("hold", "hold", IN, CPU(2));
    add_model("door", "door", IN, CPU(1));
    add_model("uneven", "uneven", IN, CPU(3));
    add_model("picky", "picky", IN, CPU(4));
    add_model("drip_break", "drip_break", IN, CPU(1) "model_transaction_policy { decoupled: true }");
    add_model("mute", "mute", IN, CPU(1));
    add_model("keep", "keep", IN, CPU(1));
    add_model("drip", "drip", IN, CPU(1) "model_transaction_policy { decoupled: true }");
    add_model("add", "add",
              "input { name: \"A\" " NUMBER " optional: true } input { name: \"B\" " NUMBER
              " optional: true }",
              CPU(1));
    add_model("batched", "pass", IN, "max_batch_size: 4 " CPU(1));
}

static void write_ensembles(void)
{
    add_ensemble("chain", IN, OUT, STEP("pass", "IN", "t1") STEP("pass", "t1", "t2") STEP("pass", "t2", "OUT"));
    add_ensemble("diamond", IN, OUT,
                 STEP("pass", "IN", "t0") STEP("meet", "t0", "t1") STEP("meet", "t0", "t2")
                     ADD("t1", "t2", "OUT"));
    add_ensemble("two", IN, "output { name: \"OUT\" " NUMBER " } output { name: \"OTHER\" " NUMBER " }",
                 STEP("pass", "IN", "OUT") STEP("door", "IN", "t1") STEP("door", "t1", "OTHER"));
    add_ensemble("broken", IN, OUT,
                 STEP("hold", "IN", "t1") STEP("fail_late", "IN", "t2") ADD("t1", "t2", "OUT"));
    add_ensemble("held", IN, OUT, STEP("hold", "IN", "t1") STEP("hold", "IN", "t2") ADD("t1", "t2", "OUT"));
    add_ensemble("drips", IN, OUT, STEP("drip", "IN", "t1") STEP("uneven", "t1", "OUT"));
    add_ensemble("claims", IN " model_transaction_policy { decoupled: true }", OUT, STEP("pass", "IN", "OUT"));
    add_ensemble("drips_fail", IN, OUT, STEP("drip", "IN", "t1") STEP("fail", "t1", "OUT"));
    add_ensemble("drips_break", IN, OUT, STEP("drip_break", "IN", "t1") STEP("uneven", "t1", "OUT"));
    add_ensemble("drips_break_door", IN, OUT, STEP("drip_break", "IN", "t1") STEP("door", "t1", "OUT"));
    add_ensemble("drips_picky", IN, OUT, STEP("drip", "IN", "t1") STEP("picky", "t1", "OUT"));
    add_ensemble("drips_twice", IN, OUT,
                 STEP("drip", "IN", "t1") STEP("pass", "t1", "t2") STEP("drip", "t2", "t3")
                     STEP("pass", "t3", "OUT"));
    add_ensemble("limited", IN, OUT,
                 STEP("drip", "IN", "t1") STEP("keep", "t1", "OUT") "max_inflight_requests: 3");
    add_ensemble("limited_pass", IN, OUT,
                 STEP("drip", "IN", "t1") STEP("pass", "t1", "OUT") "max_inflight_requests: 2");
    add_ensemble("optional", "input { name: \"X\" " NUMBER " } input { name: \"Y\" " NUMBER " optional: true }",
                 OUT, ADD("X", "Y", "OUT"));
    add_ensemble("muted", IN, OUT, STEP("mute", "IN", "t1") ADD("t1", "IN", "OUT"));
    add_ensemble("behind", IN, OUT, STEP("pass", "IN", "t1") STEP("door", "t1", "OUT"));
    add_ensemble("nested", IN, OUT, STEP("chain", "IN", "t1") STEP("diamond", "t1", "OUT"));
    add_ensemble("mixed", IN, OUT, STEP("batched", "IN", "t1") STEP("pass", "t1", "OUT"));
    add_ensemble("listed_twice", IN, OUT " " OUT, STEP("pass", "IN", "OUT"));
    add_ensemble("shared", IN, "output { name: \"OUT\" " NUMBER " } output { name: \"MID\" " NUMBER " }",
                 STEP("pass", "IN", "MID") ADD("MID", "MID", "OUT"));
}

static int open_all(void **state)
{
    proa_err err = {0};
    const char *const folders[] = {folder};
    proa_server_options o = {.repositories = folders, .repositories_count = 1, .backends = backends};
    (void)state;
    repo_make(folder);
    write_models();
    write_ensembles();
    if (proa_server_new(&server, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_server_ready(server, &err) != PROA_OK) fail_msg("%s: %s", err.text, repo_index(server));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    bool stopped = proa_server_stop(server, 10000);
    proa_server_free(server);
    repo_remove(folder);
    return stopped ? 0 : -1;
}

static int reset(void **state)
{
    (void)state;
    now.inside = now.most = now.executed = now.cancelled = now.held_count = 0;
    gate_set(&door, false, 0);
    return 0;
}

/* ---- requests ---- */

static void add_number(proa_infer *r, const char *name, int64_t value, int64_t elements)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    t->type = PROA_TYPE_INT64;
    t->rank = 1;
    t->shape[0] = elements;
    t->bytes = (size_t)elements * 8;
    t->buffer = proa_buffer_new(t->bytes);
    memset(t->buffer->data, 0, t->bytes);
    memcpy(t->buffer->data, &value, 8);
    t->data = t->buffer->data;
}

static proa_infer *request(const char *model, const char *input, int64_t value)
{
    proa_infer *r = proa_infer_new();
    r->model_name = model;
    r->on_reply = rig_on_reply;
    if (input) add_number(r, input, value, 1);
    return r;
}

static void send(answer *a, proa_infer *r)
{
    proa_err err = {0};
    answer_init(a, r);
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void ask(answer *a, const char *model, int64_t value)
{
    send(a, request(model, "IN", value));
    assert_true(answer_wait(a));
}

/* ---- tests ---- */

static void test_a_chain_copies_nothing(void **state)
{
    answer a;
    uint64_t before = proa_copies_count();
    proa_infer *r = request("chain", NULL, 0);
    add_number(r, "IN", 77, (16 << 20) / 8);
    const char *data = r->inputs[0].data;
    send(&a, r);
    assert_true(answer_wait(&a));
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 77);
    assert_ptr_equal(proa_reply_output(a.last, "OUT")->data, data);
    assert_int_equal(proa_copies_count() - before, 0);
    assert_int_equal(now.executed, 3);
    assert_true(pthread_equal(a.thread, pthread_self())); /* all of it inline */
    answer_free(&a);
    (void)state;
}

static void test_branches_side_by_side(void **state)
{
    answer a;
    ask(&a, "diamond", 10);
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 22);
    assert_int_equal(now.most, 2);
    answer_free(&a);
    (void)state;
}

static void test_nested(void **state)
{
    answer a;
    ask(&a, "nested", 10);
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 22);
    assert_string_equal(a.last->model_name, "nested");
    answer_free(&a);
    (void)state;
}

static void test_only_what_is_needed_runs(void **state)
{
    answer a;
    proa_infer *r = request("two", "IN", 5);
    assert_true(proa_infer_add_output(r, proa_str_c("OUT")));
    send(&a, r);
    assert_true(answer_wait(&a)); /* the gate is closed: no execution waits there */
    assert_int_equal(a.value, 5);
    assert_int_equal(a.outputs_count, 1);
    assert_int_equal(now.executed, 1);
    answer_free(&a);
    gate_set(&door, true, 0);
    ask(&a, "two", 6);
    assert_int_equal(a.outputs_count, 2);
    assert_int_equal(now.executed, 4);
    answer_free(&a);
    ask(&a, "shared", 4);
    assert_int_equal(a.value, 8);
    assert_int_equal(a.outputs_count, 2);
    answer_free(&a);
    (void)state;
}

static void test_a_failure_cancels_the_rest(void **state)
{
    answer a;
    ask(&a, "broken", 1);
    assert_int_equal(a.status, PROA_INTERNAL);
    assert_string_equal(a.text, "in ensemble 'broken', it broke");
    assert_int_equal(a.replies, 1);
    assert_int_equal(now.cancelled, 1);
    answer_free(&a);
    (void)state;
}

static void test_cancel(void **state)
{
    answer a;
    send(&a, request("held", "IN", 1));
    assert_true(await(&now.inside, 2));
    assert_false(answer_is_done(&a));
    proa_infer_cancel(a.request);
    assert_true(answer_wait(&a));
    assert_int_equal(a.status, PROA_CANCELLED);
    assert_int_equal(now.cancelled, 2);
    answer_free(&a);
    /* before it is sent */
    proa_infer *r = request("chain", "IN", 1);
    proa_err err = {0};
    proa_infer_cancel(r);
    answer_init(&a, r);
    assert_int_equal(proa_server_infer(server, r, &err), PROA_CANCELLED);
    answer_free(&a);
    (void)state;
}

static void *cancel_soon(void *arg)
{
    proa_infer *r = arg;
    for (volatile int spin = (int)(proa_clock_ns() % 40000); spin > 0; spin--) {
    }
    proa_infer_cancel(r);
    proa_infer_drop(r);
    return NULL;
}

static void test_cancel_at_any_moment(void **state)
{
    const char *const models[] = {"chain", "drips", "two", "limited_pass", "drips_break"};
    gate_set(&door, true, 0);
    for (int i = 0; i < 200; i++) {
        answer a;
        pthread_t thread;
        proa_infer *r = request(models[i % 5], "IN", 6);
        answer_init(&a, r);
        pthread_create(&thread, NULL, cancel_soon, proa_infer_hold(r));
        if (proa_server_infer(server, r, NULL) == PROA_OK) {
            assert_true(answer_wait(&a));
            assert_true(a.status == PROA_OK || a.status == PROA_CANCELLED ||
                        strcmp(a.text, "in ensemble 'drips_break', it broke on the way") == 0);
        }
        pthread_join(thread, NULL);
        answer_free(&a);
    }
    (void)state;
}

static void test_timeouts_pass_on(void **state)
{
    answer a[2];
    send(&a[0], request("behind", "IN", 1));
    gate_await(&door, 1);
    proa_infer *r = request("behind", "IN", 2);
    r->timeout_us = 10000;
    send(&a[1], r);
    assert_true(answer_wait(&a[1]));
    assert_int_equal(a[1].status, PROA_UNAVAILABLE);
    assert_string_equal(a[1].text, "in ensemble 'behind', Request timeout expired");
    assert_false(answer_is_done(&a[0]));
    gate_set(&door, true, 0);
    assert_true(answer_wait(&a[0]));
    assert_int_equal(a[0].status, PROA_OK);
    answer_free(&a[0]);
    answer_free(&a[1]);
    (void)state;
}

/* Replies of a decoupled ensemble, as they come. */
typedef struct stream {
    answer a; /* first: rig_on_reply takes the user for one */
    int64_t got[256];
    int count;
} stream;

static void on_stream(proa_infer *r, proa_reply *reply, bool final)
{
    stream *s = r->user;
    const proa_tensor *t = reply ? proa_reply_output(reply, "OUT") : NULL;
    pthread_mutex_lock(&s->a.lock);
    if (t && s->count < 256) memcpy(&s->got[s->count++], t->data, 8);
    pthread_mutex_unlock(&s->a.lock);
    rig_on_reply(r, reply, final);
}

static void send_stream(stream *s, const char *model, int64_t value)
{
    proa_err err = {0};
    proa_infer *r = request(model, "IN", value);
    s->count = 0;
    answer_init(&s->a, r);
    r->on_reply = on_stream;
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void test_decoupled_steps(void **state)
{
    static const int64_t lengths[] = {0, 1, 2, 7, 50};
    assert_transaction(server, "drips", true, false);
    assert_transaction(server, "claims", false, true); /* its steps decide, not its configuration */
    for (int i = 0; i < 5; i++) {
        stream s;
        send_stream(&s, "drips", lengths[i]);
        assert_true(answer_wait(&s.a));
        assert_int_equal(s.a.status, PROA_OK);
        assert_int_equal(s.count, lengths[i]);
        assert_int_equal(s.a.replies, lengths[i]);
        for (int k = 0; k < s.count; k++) assert_int_equal(s.got[k], k); /* though three work on them */
        answer_free(&s.a);
    }
    stream s;
    send_stream(&s, "drips_twice", 5); /* 0: nothing; 1: 0; 2: 0 1; 3: 0 1 2; 4: 0 1 2 3 */
    assert_true(answer_wait(&s.a));
    assert_int_equal(s.count, 10);
    answer_free(&s.a);
    send_stream(&s, "drips_fail", 5);
    assert_true(answer_wait(&s.a));
    assert_int_equal(s.a.status, PROA_INTERNAL);
    assert_string_equal(s.a.text, "in ensemble 'drips_fail', it broke");
    assert_int_equal(s.a.replies, 1);
    answer_free(&s.a);
    (void)state;
}

/* The error of a stream comes behind the answers that were given before it, and nothing behind the error. */
static void test_answers_before_an_error(void **state)
{
    static const int64_t lengths[] = {0, 1, 4, 50};
    for (int i = 0; i < 4; i++) {
        stream s;
        send_stream(&s, "drips_break", lengths[i]);
        assert_true(answer_wait(&s.a));
        assert_int_equal(s.a.status, PROA_INTERNAL);
        assert_string_equal(s.a.text, "in ensemble 'drips_break', it broke on the way");
        assert_int_equal(s.count, lengths[i]);
        assert_int_equal(s.a.replies, lengths[i] + 1);
        for (int k = 0; k < s.count; k++) assert_int_equal(s.got[k], k);
        answer_free(&s.a);
    }
    for (int i = 0; i < 20; i++) { /* a later step fails, while answers before and behind it are under way */
        stream s;
        send_stream(&s, "drips_picky", 8);
        assert_true(answer_wait(&s.a));
        assert_string_equal(s.a.text, "in ensemble 'drips_picky', it broke");
        assert_int_equal(s.a.replies, 4);
        for (int k = 0; k < 3; k++) assert_int_equal(s.got[k], k);
        answer_free(&s.a);
    }
    (void)state;
}

static void test_cancel_behind_an_error(void **state)
{
    stream s;
    send_stream(&s, "drips_break_door", 5);
    gate_await(&door, 1);
    assert_false(answer_is_done(&s.a));
    proa_infer_cancel(s.a.request);
    gate_set(&door, true, 0);
    assert_true(answer_wait(&s.a));
    assert_true(s.count < 5);
    assert_true(s.a.status == PROA_CANCELLED || s.a.status == PROA_INTERNAL);
    answer_free(&s.a);
    (void)state;
}

/* At most three requests are in the second step, and the producer waits. */
static void test_back_pressure(void **state)
{
    stream s;
    send_stream(&s, "limited", 40);
    assert_true(await(&now.inside, 3));
    rig_sleep_ms(30);
    pthread_mutex_lock(&now.lock);
    int inside = now.inside, made = now.executed;
    pthread_mutex_unlock(&now.lock);
    assert_int_equal(inside, 3);
    assert_int_equal(made, 4); /* one more is ready, and the producer is held */
    while (!answer_is_done(&s.a))
        if (!release_one()) rig_sleep_ms(1);
    assert_int_equal(now.most, 3);
    assert_int_equal(s.count, 40);
    for (int k = 0; k < s.count; k++) assert_int_equal(s.got[k], k);
    answer_free(&s.a);
    /* with a cancel while it is held */
    send_stream(&s, "limited", 40);
    assert_true(await(&now.inside, 3));
    proa_infer_cancel(s.a.request);
    for (int i = 0; i < 3; i++) release_one();
    while (!answer_is_done(&s.a))
        if (!release_one()) rig_sleep_ms(1);
    assert_int_equal(s.a.status, PROA_CANCELLED);
    answer_free(&s.a);
    /* inline: room is made while the next one is started */
    send_stream(&s, "limited_pass", 100);
    assert_true(answer_wait(&s.a));
    assert_int_equal(s.count, 100);
    answer_free(&s.a);
    (void)state;
}

/* TensorRT-LLM's own ensemble lists one of its outputs twice. */
static void test_an_output_listed_twice(void **state)
{
    answer a;
    ask(&a, "listed_twice", 10);
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 10);
    assert_int_equal(a.outputs_count, 1);
    answer_free(&a);
    proa_infer *r = request("listed_twice", "IN", 11);
    assert_true(proa_infer_add_output(r, proa_str_c("OUT")));
    send(&a, r);
    assert_true(answer_wait(&a));
    assert_int_equal(a.value, 11);
    answer_free(&a);
    (void)state;
}

static void test_what_is_not_there(void **state)
{
    answer a;
    send(&a, request("optional", "X", 5));
    assert_true(answer_wait(&a));
    assert_int_equal(a.value, 1005);
    answer_free(&a);
    proa_infer *r = request("optional", "X", 5);
    add_number(r, "Y", 6, 1);
    send(&a, r);
    assert_true(answer_wait(&a));
    assert_int_equal(a.value, 11);
    answer_free(&a);
    ask(&a, "muted", 3); /* the first step gives nothing: an optional input of the second */
    assert_int_equal(a.value, 1003);
    answer_free(&a);
    r = request("muted", "IN", 13); /* no reply at all */
    r->id = "r1";
    send(&a, r);
    assert_true(answer_wait(&a));
    assert_int_equal(a.status, PROA_INVALID);
    assert_string_equal(
        a.last->error.text,
        "in ensemble 'muted', [request id: r1] unexpected deadlock, at least one output is not set "
        "while no more ensemble steps can be made");
    answer_free(&a);
    (void)state;
}

/* A model with a batch dimension between two without. */
static void test_batch_and_no_batch(void **state)
{
    answer a;
    ask(&a, "mixed", 9);
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 9);
    assert_int_equal(a.rank, 1);
    answer_free(&a);
    (void)state;
}

static const Inference__ModelStatistics *stats_of(const char *model, proa_arena *arena)
{
    Inference__ModelStatisticsResponse *m;
    assert_int_equal(proa_server_statistics(server, model, -1, &m, arena, NULL), PROA_OK);
    assert_int_equal(m->n_model_stats, 1);
    return m->model_stats[0];
}

static void test_statistics(void **state)
{
    proa_arena arena;
    answer a;
    proa_arena_init(&arena);
    uint64_t diamonds = stats_of("diamond", &arena)->inference_stats->success->count;
    uint64_t meets = stats_of("meet", &arena)->inference_stats->success->count;
    uint64_t infer_ns = stats_of("diamond", &arena)->inference_stats->compute_infer->ns;
    uint64_t meet_ns = stats_of("meet", &arena)->inference_stats->compute_infer->ns;
    ask(&a, "diamond", 1);
    answer_free(&a);
    const Inference__ModelStatistics *d = stats_of("diamond", &arena), *m = stats_of("meet", &arena);
    assert_int_equal(d->inference_stats->success->count - diamonds, 1);
    assert_int_equal(d->execution_count, d->inference_count);
    assert_int_equal(m->inference_stats->success->count - meets, 2);
    /* the ensemble's time of computing is the steps' in sum */
    assert_true(d->inference_stats->compute_infer->ns - infer_ns >=
                m->inference_stats->compute_infer->ns - meet_ns);
    uint64_t failed = stats_of("broken", &arena)->inference_stats->fail->count;
    ask(&a, "broken", 1);
    answer_free(&a);
    assert_int_equal(stats_of("broken", &arena)->inference_stats->fail->count - failed, 1);
    proa_arena_release(&arena);
    (void)state;
}

static void *ask_many(void *arg)
{
    intptr_t wrong = 0;
    for (int i = 0; i < 300; i++) {
        answer a;
        proa_infer *r = request(i % 3 == 0 ? "drips" : i % 3 == 1 ? "chain" : "two", "IN", 4);
        answer_init(&a, r);
        if (proa_server_infer(server, r, NULL) != PROA_OK || !answer_wait(&a) || a.status != PROA_OK ||
            a.value != (i % 3 == 0 ? 3 : 4) || a.replies != (i % 3 == 0 ? 4 : 1))
            wrong++;
        answer_free(&a);
    }
    (void)arg;
    return (void *)wrong;
}

static void test_many_threads(void **state)
{
    pthread_t threads[4];
    gate_set(&door, true, 0);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_many, NULL);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    (void)state;
}

static void *stop_server(void *arg)
{
    bool *stopped = arg;
    *stopped = proa_server_stop(server, 20000);
    return NULL;
}

/* Last: a server that stops lets an ensemble go on to its end, through steps that have not begun. */
static void test_stop_waits_for_all_steps(void **state)
{
    answer a;
    pthread_t thread;
    bool stopped = false;
    send(&a, request("two", "IN", 8));
    gate_await(&door, 1);
    pthread_create(&thread, NULL, stop_server, &stopped);
    rig_sleep_ms(30);
    gate_set(&door, true, 0);
    assert_true(answer_wait(&a));
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.outputs_count, 2);
    answer_free(&a);
    pthread_join(thread, NULL);
    assert_true(stopped);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_chain_copies_nothing, reset),
        cmocka_unit_test_setup(test_branches_side_by_side, reset),
        cmocka_unit_test_setup(test_nested, reset),
        cmocka_unit_test_setup(test_only_what_is_needed_runs, reset),
        cmocka_unit_test_setup(test_a_failure_cancels_the_rest, reset),
        cmocka_unit_test_setup(test_cancel, reset),
        cmocka_unit_test_setup(test_cancel_at_any_moment, reset),
        cmocka_unit_test_setup(test_timeouts_pass_on, reset),
        cmocka_unit_test_setup(test_decoupled_steps, reset),
        cmocka_unit_test_setup(test_answers_before_an_error, reset),
        cmocka_unit_test_setup(test_cancel_behind_an_error, reset),
        cmocka_unit_test_setup(test_back_pressure, reset),
        cmocka_unit_test_setup(test_an_output_listed_twice, reset),
        cmocka_unit_test_setup(test_what_is_not_there, reset),
        cmocka_unit_test_setup(test_batch_and_no_batch, reset),
        cmocka_unit_test_setup(test_statistics, reset),
        cmocka_unit_test_setup(test_many_threads, reset),
        cmocka_unit_test_setup(test_stop_waits_for_all_steps, reset),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
