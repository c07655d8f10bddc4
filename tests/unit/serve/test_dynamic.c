/* SPDX-License-Identifier: Apache-2.0
 * test_dynamic.c - dynamic batching: which batches form, and when; priorities, time-outs, sizes of queues, order;
 * batch_input and batch_output. */
#include "rig.h"

#include "serve/sched/form.h"

static gate door = GATE_CLOSED;
static struct {
    pthread_mutex_t lock;
    int count;
    int requests[256];
    int64_t rows[256], first[256], at_ns[256];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note(proa_infer *const *requests, int count)
{
    pthread_mutex_lock(&seen.lock);
    int at = seen.count++;
    if (at < 0) {
        pthread_mutex_unlock(&seen.lock);
        return;
    }
    int64_t rows = 0;
    for (int i = 0; i < count; i++) rows += requests[i]->batch;
    seen.requests[at] = count;
    seen.rows[at] = rows;
    memcpy(&seen.first[at], proa_infer_input(requests[0], "IN")->data, 8);
    seen.at_ns[at] = proa_clock_ns();
    pthread_mutex_unlock(&seen.lock);
}

static void execute(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    note(requests, count);
    gate_pass(&door);
    for (int i = 0; i < count; i++) rig_echo(requests[i]);
}

/* The last request of a batch is answered first. */
static void execute_backwards(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    note(requests, count);
    gate_pass(&door);
    for (int i = count - 1; i >= 0; i--) rig_echo(requests[i]);
}

static const proa_backend threaded = {.name = "t", .execute = execute};
static const proa_backend backwards = {.name = "t", .execute = execute_backwards};
static const proa_backend on_caller = {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute};

typedef struct setup {
    rig g;
    Inference__ModelDynamicBatching dynamic;
    Inference__ModelQueuePolicy policy, other;
    Inference__ModelDynamicBatching__PriorityQueuePolicyEntry entry, *entries[1];
    int32_t preferred[4];
} setup;

static void begin(setup *s, int max)
{
    memset(s, 0, sizeof *s);
    rig_config(&s->g, "m");
    s->g.inputs[0] = s->g.output = (proa_io){
        .name = "IN", .type = PROA_TYPE_INT64, .rank = 2, .shape = {-1, -1}, .inner_rank = 2, .inner = {-1, -1}};
    s->g.output.name = "OUT";
    inference__model_dynamic_batching__init(&s->dynamic);
    inference__model_queue_policy__init(&s->policy);
    inference__model_queue_policy__init(&s->other);
    inference__model_dynamic_batching__priority_queue_policy_entry__init(&s->entry);
    s->entries[0] = &s->entry;
    s->g.config.max_batch_size = max;
    s->g.config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    s->g.config.dynamic_batching = &s->dynamic;
    s->dynamic.default_queue_policy = &s->policy;
    s->dynamic.preferred_batch_size = s->preferred;
    seen.count = 0;
    gate_set(&door, false, 0);
}

static void prefer(setup *s, int a, int b)
{
    s->preferred[0] = a;
    s->preferred[1] = b;
    s->dynamic.n_preferred_batch_size = b ? 2 : 1;
}

static void open_it(setup *s, const proa_backend *backend, int instances)
{
    assert_int_equal(rig_open(&s->g, backend, instances, NULL), PROA_OK);
}

static void send(setup *s, answer *a, int64_t value, int64_t rows, int64_t elements)
{
    assert_int_equal(rig_send(&s->g, a, rig_request(&s->g, value, rows, elements), NULL), PROA_OK);
}

/* Keeps the only instance waiting at the gate, so that later requests queue. */
static void occupy(setup *s, answer *a)
{
    send(s, a, -1, 1, 1);
    gate_await(&door, 1);
}

static void finish(setup *s, answer *a, int count)
{
    gate_set(&door, true, 0);
    for (int i = 0; i < count; i++) {
        assert_true(answer_wait(&a[i]));
        answer_free(&a[i]);
    }
    rig_close(&s->g);
}

static void test_takes_what_is_there(void **state)
{
    setup s;
    answer a[8];
    begin(&s, 8);
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 1; i < 6; i++) send(&s, &a[i], i, 1, 3);
    assert_int_equal(proa_scheduler_pending(s.g.model.scheduler), 5);
    finish(&s, a, 6);
    assert_int_equal(seen.count, 2); /* the five together */
    assert_int_equal(seen.requests[1], 5);
    (void)state;
}

static void test_whole_requests_up_to_the_maximum(void **state)
{
    setup s;
    answer a[8];
    begin(&s, 8);
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    const int64_t rows[] = {3, 4, 2, 8, 1}; /* 3+4 (2 would make 9) | 2 (8 would make 10) | 8 | 1 */
    for (int i = 0; i < 5; i++) send(&s, &a[i + 1], i, rows[i], 3);
    finish(&s, a, 6);
    assert_int_equal(seen.count, 5);
    const int64_t want[] = {7, 2, 8, 1};
    for (int i = 0; i < 4; i++) assert_int_equal(seen.rows[i + 1], want[i]);
    (void)state;
}

static void test_preferred_sizes(void **state)
{
    setup s;
    answer a[12];
    begin(&s, 8);
    prefer(&s, 2, 4);
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 1; i < 8; i++) send(&s, &a[i], i, 1, 3); /* seven: 4, then 2, then 1 */
    finish(&s, a, 8);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.rows[1], 4);
    assert_int_equal(seen.rows[2], 2);
    assert_int_equal(seen.rows[3], 1);
    (void)state;
}

static void test_delay(void **state)
{
    setup s;
    answer a[8];
    begin(&s, 8);
    prefer(&s, 4, 0);
    s.dynamic.max_queue_delay_microseconds = 500000;
    open_it(&s, &threaded, 2);
    gate_set(&door, true, 0);
    int64_t start = proa_clock_ns();
    for (int i = 0; i < 4; i++) send(&s, &a[i], i, 1, 3); /* a preferred size: at once */
    for (int i = 0; i < 4; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.rows[0], 4);
    assert_true(seen.at_ns[0] - start < 500000000);
    int64_t again = proa_clock_ns();
    for (int i = 4; i < 7; i++) send(&s, &a[i], i, 1, 3); /* three: when the oldest has waited */
    for (int i = 4; i < 7; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.rows[1], 3);
    assert_true(seen.at_ns[1] - again >= 500000000);
    finish(&s, a, 7);
    (void)state;
}

static void test_delay_inline(void **state)
{
    setup s;
    answer a[7];
    begin(&s, 8);
    prefer(&s, 4, 0);
    s.dynamic.max_queue_delay_microseconds = 30000;
    open_it(&s, &on_caller, 1);
    gate_set(&door, true, 0);
    for (int i = 0; i < 4; i++) send(&s, &a[i], i, 1, 3);
    for (int i = 0; i < 4; i++) assert_true(answer_wait(&a[i]));
    int64_t again = proa_clock_ns();
    for (int i = 4; i < 7; i++) send(&s, &a[i], i, 1, 3);
    for (int i = 4; i < 7; i++) assert_true(answer_wait(&a[i])); /* the helper executes it */
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.rows[0], 4);
    assert_int_equal(seen.rows[1], 3);
    assert_true(seen.at_ns[1] - again >= 30000000);
    finish(&s, a, 7);
    (void)state;
}

static void test_stop_does_not_wait_for_company(void **state)
{
    setup s;
    answer a;
    begin(&s, 8);
    s.dynamic.max_queue_delay_microseconds = 3600000000ull;
    open_it(&s, &threaded, 1);
    gate_set(&door, true, 0);
    send(&s, &a, 1, 1, 1);
    rig_sleep_ms(5);
    assert_false(answer_is_done(&a));
    proa_scheduler_stop(s.g.model.scheduler);
    finish(&s, &a, 1);
    assert_int_equal(seen.count, 1);
    (void)state;
}

static void test_shapes_join_only_when_equal(void **state)
{
    setup s;
    answer a[8];
    const int64_t elements[] = {3, 3, 5, 5, 3};
    begin(&s, 8);
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 0; i < 5; i++) send(&s, &a[i + 1], i, 1, elements[i]);
    finish(&s, a, 6);
    assert_int_equal(seen.count, 4);
    assert_int_equal(seen.rows[1], 2);
    assert_int_equal(seen.rows[2], 2);
    assert_int_equal(seen.rows[3], 1);

    begin(&s, 8);
    s.g.inputs[0].ragged = true;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 0; i < 5; i++) send(&s, &a[i + 1], i, 1, elements[i]);
    finish(&s, a, 6);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.rows[1], 5);
    (void)state;
}

static void test_optional_inputs_join_only_with_their_like(void **state)
{
    setup s;
    answer a[5];
    begin(&s, 8);
    s.g.inputs[1] = s.g.inputs[0];
    s.g.inputs[1].name = "MORE";
    s.g.inputs[1].optional = true;
    s.g.inputs_count = 2;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 1; i < 5; i++) {
        proa_infer *r = rig_request(&s.g, i, 1, 3);
        if (i > 2) proa_tensor_share(proa_infer_add_input(r, proa_str_c("MORE")), &r->inputs[0]);
        if (i > 2) r->inputs[1].name = "MORE";
        assert_int_equal(rig_send(&s.g, &a[i], r, NULL), PROA_OK);
    }
    finish(&s, a, 5);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.rows[1], 2);
    assert_int_equal(seen.rows[2], 2);
    (void)state;
}

static void test_priorities(void **state)
{
    setup s;
    answer a[7];
    const uint64_t priority[] = {3, 0, 1, 2, 1, 99}; /* 0 and 99 take the default: 2 */
    begin(&s, 1);
    s.dynamic.priority_levels = 3;
    s.dynamic.default_priority_level = 2;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 0; i < 6; i++) {
        proa_infer *r = rig_request(&s.g, i, 1, 1);
        r->priority = priority[i];
        assert_int_equal(rig_send(&s.g, &a[i + 1], r, NULL), PROA_OK);
    }
    finish(&s, a, 7);
    const int64_t want[] = {2, 4, 1, 3, 5, 0};
    for (int i = 0; i < 6; i++) assert_int_equal(seen.first[i + 1], want[i]);
    (void)state;
}

static void test_queue_size(void **state)
{
    setup s;
    answer a[4], refused;
    proa_err err = {0};
    proa_stats_sums *sums = malloc(sizeof *sums);
    begin(&s, 1);
    s.policy.max_queue_size = 2;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    for (int i = 1; i < 3; i++) send(&s, &a[i], i, 1, 1);
    proa_infer *r = rig_request(&s.g, 9, 1, 1);
    r->id = "me";
    assert_int_equal(rig_send(&s.g, &refused, r, &err), PROA_UNAVAILABLE);
    assert_string_equal(err.text, "[request id: me] Exceeds maximum queue size");
    assert_int_equal(refused.replies, 0);
    proa_infer_cancel(a[1].request); /* makes room */
    send(&s, &a[3], 3, 1, 1);
    proa_stats_read(s.g.model.stats, sums);
    assert_int_equal(sums->failures[PROA_FAIL_REJECTED], 1);
    answer_free(&refused);
    free(sums);
    finish(&s, a, 4);
    (void)state;
}

static void test_timeout_rejects(void **state)
{
    setup s;
    answer a[4];
    begin(&s, 1);
    s.policy.default_timeout_microseconds = 1000000; /* of the one that occupies, too */
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    int64_t start = proa_clock_ns();
    for (int i = 1; i < 4; i++) {
        proa_infer *r = rig_request(&s.g, i, 1, 1);
        r->timeout_us = i == 1 ? 10000 : i == 2 ? 10000000 : 0; /* shorter counts, longer does not */
        assert_int_equal(rig_send(&s.g, &a[i], r, NULL), PROA_OK);
    }
    for (int i = 1; i < 4; i++) {
        assert_true(answer_wait(&a[i]));
        assert_int_equal(a[i].status, PROA_UNAVAILABLE);
        assert_string_equal(a[i].text, "Request timeout expired");
        assert_true(a[i].at_ns - start >= (i == 1 ? 10000000 : 1000000000));
        assert_true(a[i].at_ns - start < 9000000000);
    }
    assert_true(a[1].at_ns < a[2].at_ns);
    finish(&s, a, 4);
    assert_int_equal(seen.count, 1);
    (void)state;
}

static void test_timeout_delays(void **state)
{
    setup s;
    answer a[5];
    begin(&s, 1);
    s.dynamic.priority_levels = 2;
    s.dynamic.default_priority_level = 1;
    s.entry.key = 1;
    s.entry.value = &s.other;
    s.other.timeout_action = INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY;
    s.other.default_timeout_microseconds = 1000000;
    s.dynamic.priority_queue_policy = s.entries;
    s.dynamic.n_priority_queue_policy = 1;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    send(&s, &a[1], 1, 1, 1);
    send(&s, &a[2], 2, 1, 1);
    rig_sleep_ms(1100);
    send(&s, &a[3], 3, 1, 1); /* in time: before those that waited too long */
    proa_infer *low = rig_request(&s.g, 4, 1, 1);
    low->priority = 2;
    assert_int_equal(rig_send(&s.g, &a[4], low, NULL), PROA_OK);
    finish(&s, a, 5);
    const int64_t want[] = {3, 1, 2, 4};
    for (int i = 0; i < 4; i++) assert_int_equal(seen.first[i + 1], want[i]);
    (void)state;
}

static void test_order_is_kept(void **state)
{
    setup s;
    answer a[10];
    for (int keep = 0; keep < 2; keep++) {
        begin(&s, 4);
        s.dynamic.preserve_ordering = keep;
        open_it(&s, &backwards, 2);
        occupy(&s, &a[0]);
        for (int i = 1; i < 9; i++) send(&s, &a[i], i, 1, 1);
        proa_infer_cancel(a[5].request);
        gate_set(&door, true, 0);
        for (int i = 0; i < 9; i++) assert_true(answer_wait(&a[i]));
        assert_int_equal(a[8].status, PROA_OK);
        int inversions = 0;
        for (int i = 1; i < 9; i++) inversions += a[i].order < a[i - 1].order;
        if (keep) assert_int_equal(inversions, 0);
        else assert_true(inversions > 0);
        finish(&s, a, 9);
    }
    (void)state;
}

/* ---- a scheduler that is freed while the last reply is let out, on a thread of the backend's own ---- */

static atomic_bool letting_out, let_out;
static pthread_t own_thread;

static void slow_sink(proa_infer *r, proa_reply *reply, bool final)
{
    (void)r;
    (void) final;
    proa_reply_free(reply);
    atomic_store(&letting_out, true);
    rig_sleep_ms(100);
    atomic_store(&let_out, true);
}

static void *answer_later(void *arg)
{
    rig_echo(arg);
    return NULL;
}

static void execute_on_own_thread(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    assert_int_equal(count, 1);
    assert_int_equal(pthread_create(&own_thread, NULL, answer_later, requests[0]), 0);
}

static void test_order_outlives_its_last_reply(void **state)
{
    static const proa_backend own = {.name = "t", .execute = execute_on_own_thread};
    setup s;
    begin(&s, 1);
    s.dynamic.preserve_ordering = true;
    open_it(&s, &own, 1);
    proa_infer *r = rig_request(&s.g, 1, 1, 1);
    r->on_reply = slow_sink;
    assert_int_equal(proa_scheduler_enqueue(s.g.model.scheduler, r, NULL), PROA_OK);
    while (!atomic_load(&letting_out)) rig_sleep_ms(1);
    proa_scheduler_free(s.g.model.scheduler);
    s.g.model.scheduler = NULL;
    assert_true(atomic_load(&let_out));
    pthread_join(own_thread, NULL);
    proa_infer_drop(r);
    rig_close(&s.g);
    (void)state;
}

static void let_go(void *bytes)
{
    *(int64_t *)bytes = -1;
}

/* Refused and cancelled requests leave no hole in the order, and who was refused does not keep its bytes there. */
static void test_order_with_refusals(void **state)
{
    setup s;
    int64_t bytes = 3;
    answer a[4], refused;
    begin(&s, 1);
    s.dynamic.preserve_ordering = true;
    s.policy.max_queue_size = 2;
    open_it(&s, &threaded, 1);
    occupy(&s, &a[0]);
    send(&s, &a[1], 1, 1, 1);
    send(&s, &a[2], 2, 1, 1);
    proa_infer *r = rig_request(&s.g, 3, 1, 1);
    proa_buffer_drop(r->inputs[0].buffer);
    r->inputs[0].buffer = proa_buffer_wrap(&bytes, sizeof bytes, let_go, &bytes);
    assert_int_equal(rig_send(&s.g, &refused, r, NULL), PROA_UNAVAILABLE);
    answer_free(&refused);
    assert_int_equal(bytes, -1);
    proa_infer_cancel(a[1].request);
    assert_false(answer_is_done(&a[1])); /* its turn comes after a[0] */
    send(&s, &a[3], 3, 1, 1);
    gate_set(&door, true, 0);
    for (int i = 0; i < 4; i++) assert_true(answer_wait(&a[i]));
    for (int i = 1; i < 4; i++) assert_true(a[i].order > a[i - 1].order);
    assert_int_equal(a[1].status, PROA_CANCELLED);
    finish(&s, a, 4);
    (void)state;
}

static void *send_many(void *arg)
{
    rig *g = arg;
    intptr_t wrong = 0;
    for (int i = 0; i < 2000; i++) {
        answer a;
        if (rig_send(g, &a, rig_request(g, i, 1 + i % 3, 2), NULL) != PROA_OK || !answer_wait(&a) || a.value != i)
            wrong++;
        answer_free(&a);
    }
    return (void *)wrong;
}

static void test_many_threads(void **state)
{
    const proa_backend *backends[] = {&threaded, &on_caller};
    for (int b = 0; b < 2; b++) {
        setup s;
        pthread_t threads[4];
        proa_stats_sums *sums = malloc(sizeof *sums);
        void *wrong;
        begin(&s, 8);
        gate_set(&door, true, 0);
        open_it(&s, backends[b], 2);
        seen.count = -100000; /* not noted */
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, send_many, &s.g);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
        proa_stats_read(s.g.model.stats, sums);
        assert_int_equal(sums->success.count, 8000);
        assert_true(sums->executions <= 8000);
        free(sums);
        rig_close(&s.g);
    }
    (void)state;
}

/* ---- batch_input, batch_output ---- */

static int64_t got[6][16];
static int got_rank[6], got_d0[6];
static const char *const targets[] = {"COUNT", "SUM", "SUM0", "MAX", "SHAPE", "FLAT"};

static void execute_ragged(void *state, proa_infer *const *requests, int count)
{
    proa_reply *replies[3];
    proa_err err = {0};
    proa_tensor whole = {.name = "OUT", .type = PROA_TYPE_INT64, .rank = 1};
    (void)state;
    if (count == 1) {
        gate_pass(&door);
        rig_echo(requests[0]);
        return;
    }
    assert_int_equal(count, 3);
    for (int k = 0; k < 6; k++) {
        const proa_tensor *t = proa_infer_input(requests[0], targets[k]);
        assert_non_null(t);
        got_rank[k] = t->rank;
        got_d0[k] = (int)t->shape[0];
        for (size_t i = 0; i < t->bytes / 4 && i < 16; i++) {
            int32_t v;
            memcpy(&v, t->data + 4 * i, 4);
            got[k][i] = v;
        }
    }
    for (int i = 0; i < 3; i++) {
        replies[i] = proa_reply_new(requests[i]);
        whole.bytes += proa_infer_input(requests[i], "IN")->bytes;
    }
    whole.buffer = proa_buffer_new(whole.bytes);
    whole.data = whole.buffer->data;
    for (int64_t i = 0; i < (int64_t)whole.bytes / 8; i++) memcpy(whole.buffer->data + 8 * i, &i, 8);
    const proa_served_model *m = requests[0]->model;
    const proa_batch_replies out = {requests, replies, 3};
    proa_tensor less = whole;
    less.bytes -= 8;
    assert_int_equal(proa_batch_output_scatter(m, "OUT", &less, &out, &err), PROA_INTERNAL);
    proa_err_clear(&err);
    assert_int_equal(proa_batch_output_scatter(m, "IN", &whole, &out, &err), PROA_INVALID);
    proa_err_clear(&err);
    assert_int_equal(proa_batch_output_scatter(m, "OUT", &whole, &out, &err), PROA_OK);
    proa_buffer_drop(whole.buffer);
    for (int i = 0; i < 3; i++) proa_infer_reply(requests[i], replies[i], true);
}

static void test_batch_io(void **state)
{
    static const proa_backend ragged = {.name = "t", .execute = execute_ragged};
    static char *source[] = {(char *)"IN"}, *out[] = {(char *)"OUT"};
    Inference__BatchInput in[6], *ins[6];
    Inference__BatchOutput scatter, *scatters[] = {&scatter};
    char *names[6][1];
    setup s;
    answer a[4];
    begin(&s, 8);
    s.g.inputs[0].ragged = true;
    for (int k = 0; k < 6; k++) {
        inference__batch_input__init(&in[k]);
        in[k].kind = (Inference__BatchInput__Kind)k;
        names[k][0] = (char *)targets[k];
        in[k].target_name = names[k];
        in[k].n_target_name = in[k].n_source_input = 1;
        in[k].source_input = source;
        in[k].data_type = INFERENCE__DATA_TYPE__TYPE_INT32;
        ins[k] = &in[k];
    }
    inference__batch_output__init(&scatter);
    scatter.target_name = out;
    scatter.source_input = source;
    scatter.n_target_name = scatter.n_source_input = 1;
    s.g.config.batch_input = ins;
    s.g.config.n_batch_input = 6;
    s.g.config.batch_output = scatters;
    s.g.config.n_batch_output = 1;
    open_it(&s, &ragged, 1);
    occupy(&s, &a[0]);
    send(&s, &a[1], 5, 1, 3);
    send(&s, &a[2], 6, 1, 4);
    send(&s, &a[3], 7, 1, 2);
    gate_set(&door, true, 0);
    for (int i = 0; i < 4; i++) assert_true(answer_wait(&a[i]));
    const int64_t count[] = {3, 4, 2}, sum[] = {3, 7, 9}, sum0[] = {0, 3, 7, 9};
    assert_memory_equal(got[0], count, sizeof count);
    assert_memory_equal(got[1], sum, sizeof sum);
    assert_memory_equal(got[2], sum0, sizeof sum0);
    assert_int_equal(got_d0[3], 4);
    assert_memory_equal(got[4], count, sizeof count);
    assert_int_equal(got_rank[4], 2);
    assert_memory_equal(got[5], count, sizeof count);
    assert_int_equal(got_rank[5], 1);
    assert_int_equal(a[1].value, 0); /* the parts of 0..8 */
    assert_int_equal(a[2].value, 3);
    assert_int_equal(a[3].value, 7);
    assert_int_equal(a[2].shape[1], 4);
    finish(&s, a, 4);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_what_is_there),
        cmocka_unit_test(test_whole_requests_up_to_the_maximum),
        cmocka_unit_test(test_preferred_sizes),
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_delay_inline),
        cmocka_unit_test(test_stop_does_not_wait_for_company),
        cmocka_unit_test(test_shapes_join_only_when_equal),
        cmocka_unit_test(test_optional_inputs_join_only_with_their_like),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_queue_size),
        cmocka_unit_test(test_timeout_rejects),
        cmocka_unit_test(test_timeout_delays),
        cmocka_unit_test(test_order_is_kept),
        cmocka_unit_test(test_order_with_refusals),
        cmocka_unit_test(test_order_outlives_its_last_reply),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_batch_io),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
