/* SPDX-License-Identifier: Apache-2.0
 * test_sequence.c - sequences: places and the backlog, both strategies, control tensors, states, idle sequences,
 * time-outs, cancels, and requests that come again. The test's model adds up what a sequence brings. */
#include "rig.h"

#include <sys/stat.h>
#include <unistd.h>

enum { MAX = 64 };

static gate door = GATE_CLOSED;
/* What each execution saw, row by row. */
static struct {
    pthread_mutex_t lock;
    int batches, rows[MAX];
    int ready[MAX][8], start[MAX][8], end[MAX][8];
    int64_t id[MAX][8], value[MAX][8];
    int instance[MAX];
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int instance_index[8];

static proa_status instance_open(void **state, void *model_state, const proa_instance *instance, proa_err *err)
{
    (void)model_state, (void)err;
    instance_index[instance->index] = instance->index;
    *state = &instance_index[instance->index];
    return PROA_OK;
}

static int64_t number(const proa_infer *r, const char *name)
{
    const proa_tensor *t = proa_infer_input(r, name);
    int64_t wide = 0;
    int32_t narrow = 0;
    float real;
    if (!t) return -1;
    if (t->type == PROA_TYPE_FP32) {
        memcpy(&real, t->data, 4);
        return (int64_t)real;
    }
    if (t->bytes == 1) return t->data[0];
    if (t->bytes == 4) memcpy(&narrow, t->data, 4);
    if (t->bytes >= 8) memcpy(&wide, t->data, 8);
    return t->bytes == 4 ? narrow : wide;
}

static void note(void *state, proa_infer *const *requests, int count)
{
    pthread_mutex_lock(&seen.lock);
    int at = seen.batches++;
    assert_true(at < MAX && count <= 8);
    seen.rows[at] = count;
    seen.instance[at] = *(int *)state;
    for (int i = 0; i < count; i++) {
        seen.ready[at][i] = (int)number(requests[i], "READY");
        seen.start[at][i] = (int)number(requests[i], "START");
        seen.end[at][i] = (int)number(requests[i], "END");
        seen.id[at][i] = number(requests[i], "CORRID");
        seen.value[at][i] = number(requests[i], "IN");
    }
    pthread_mutex_unlock(&seen.lock);
}

static void execute(void *state, proa_infer *const *requests, int count)
{
    note(state, requests, count);
    gate_pass(&door);
    for (int i = 0; i < count; i++) rig_echo(requests[i]);
}

/* OUT is what has come so far; the sum itself is a state. */
static void execute_sum(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    for (int i = 0; i < count; i++) {
        proa_reply *reply = proa_reply_new(requests[i]);
        const proa_tensor *before = proa_infer_input(requests[i], "SUM_IN");
        int64_t sum = number(requests[i], "SUM_IN") + number(requests[i], "IN");
        void *data;
        assert_non_null(before);
        proa_reply_add_array(reply, "SUM_OUT", PROA_TYPE_INT64, before->shape, before->rank, &data);
        memcpy(data, &sum, 8);
        proa_reply_add_array(reply, "OUT", PROA_TYPE_INT64, before->shape, before->rank, &data);
        memcpy(data, &sum, 8);
        proa_infer_reply(requests[i], reply, true);
    }
}

static const proa_backend threaded = {.name = "t", .instance_open = instance_open, .execute = execute};
static const proa_backend inlined = {
    .name = "t", .flags = PROA_BACKEND_INLINE, .instance_open = instance_open, .execute = execute};
static const proa_backend sums = {.name = "t", .flags = PROA_BACKEND_INLINE, .execute = execute_sum};

typedef Inference__ModelSequenceBatching batching;

typedef struct setup {
    rig g;
    batching sequence;
    Inference__ModelSequenceBatching__StrategyDirect direct;
    Inference__ModelSequenceBatching__StrategyOldest oldest;
    Inference__ModelSequenceBatching__ControlInput inputs[4], *inputs_at[4];
    Inference__ModelSequenceBatching__Control controls[4], *controls_at[4][1];
    Inference__ModelSequenceBatching__State state, *state_at[1];
    Inference__ModelSequenceBatching__InitialState initial, *initial_at[1];
} setup;

static int32_t int_values[2] = {0, 1};
static float real_values[2] = {0, 1};
static protobuf_c_boolean bool_values[2] = {0, 1};

static void add_control(setup *s, int at, const char *name, Inference__ModelSequenceBatching__Control__Kind kind)
{
    inference__model_sequence_batching__control_input__init(&s->inputs[at]);
    inference__model_sequence_batching__control__init(&s->controls[at]);
    s->inputs_at[at] = &s->inputs[at];
    s->controls_at[at][0] = &s->controls[at];
    s->inputs[at].name = (char *)name;
    s->inputs[at].control = s->controls_at[at];
    s->inputs[at].n_control = 1;
    s->controls[at].kind = kind;
}

/* START int32, READY fp32, END bool, CORRID as said. */
static void begin(setup *s, int max, proa_type id)
{
    memset(s, 0, sizeof *s);
    rig_config(&s->g, "m");
    if (max)
        s->g.inputs[0] = s->g.output = (proa_io){
            .name = "IN", .type = PROA_TYPE_INT64, .rank = 2, .shape = {-1, -1}, .inner_rank = 2, .inner = {-1, -1}};
    s->g.output.name = "OUT";
    inference__model_sequence_batching__init(&s->sequence);
    inference__model_sequence_batching__strategy_direct__init(&s->direct);
    inference__model_sequence_batching__strategy_oldest__init(&s->oldest);
    add_control(s, 0, "START", INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_START);
    add_control(s, 1, "READY", INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_READY);
    add_control(s, 2, "END", INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_END);
    add_control(s, 3, "CORRID", INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID);
    s->controls[0].int32_false_true = int_values;
    s->controls[0].n_int32_false_true = 2;
    s->controls[1].fp32_false_true = real_values;
    s->controls[1].n_fp32_false_true = 2;
    s->controls[2].bool_false_true = bool_values;
    s->controls[2].n_bool_false_true = 2;
    s->controls[3].data_type = (Inference__DataType)id;
    s->sequence.control_input = s->inputs_at;
    s->sequence.n_control_input = 4;
    s->sequence.max_sequence_idle_microseconds = 60000000;
    s->g.config.max_batch_size = max;
    s->g.config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    s->g.config.sequence_batching = &s->sequence;
    s->sequence.strategy_choice_case = INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_DIRECT;
    s->sequence.direct = &s->direct;
    seen.batches = 0;
    gate_set(&door, true, 0);
}

static void use_oldest(setup *s, int candidates)
{
    s->sequence.strategy_choice_case = INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST;
    s->sequence.oldest = &s->oldest;
    s->oldest.max_candidate_sequences = candidates;
}

static void open_it(setup *s, const proa_backend *backend, int instances)
{
    assert_int_equal(rig_open(&s->g, backend, instances, NULL), PROA_OK);
}

enum { START = 1, END = 2 };

static proa_infer *request(setup *s, uint64_t id, int flags, int64_t value)
{
    proa_infer *r = rig_request(&s->g, value, s->g.config.max_batch_size ? 1 : 0, 1);
    r->sequence_id = id;
    r->sequence_start = flags & START;
    r->sequence_end = flags & END;
    return r;
}

static void send(setup *s, answer *a, uint64_t id, int flags, int64_t value)
{
    assert_int_equal(rig_send(&s->g, a, request(s, id, flags, value), NULL), PROA_OK);
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

static void test_refusals(void **state)
{
    setup s;
    answer a;
    proa_err err = {0};
    begin(&s, 4, PROA_TYPE_UINT64);
    open_it(&s, &inlined, 1);
    assert_int_equal(rig_send(&s.g, &a, request(&s, 5, 0, 1), &err), PROA_INVALID);
    assert_string_equal(
        err.text, "inference request for sequence 5 to model 'm' must specify the START flag on the first "
                  "request of the sequence");
    answer_free(&a);
    proa_err_clear(&err);
    proa_infer *r = request(&s, 0, 0, 1);
    r->sequence_name = "mine";
    assert_int_equal(rig_send(&s.g, &a, r, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "inference request for sequence mine to model 'm' must specify the START flag on the "
                        "first request of the sequence");
    answer_free(&a);
    proa_err_clear(&err);
    assert_int_equal(rig_send(&s.g, &a, request(&s, 0, START, 1), &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "inference request to model 'm' must specify a non-zero or non-empty correlation ID");
    answer_free(&a);
    proa_err_clear(&err);
    r = rig_request(&s.g, 1, 2, 1);
    r->sequence_id = 1;
    r->sequence_start = true;
    assert_int_equal(rig_send(&s.g, &a, r, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "inference request to model 'm' must specify batch-size 1 due to requirements of "
                        "sequence batcher");
    answer_free(&a);
    /* after END the id is free: no START, no sequence */
    answer b[2];
    send(&s, &b[0], 7, START, 1);
    send(&s, &b[1], 7, END, 1);
    proa_err_clear(&err);
    assert_int_equal(rig_send(&s.g, &a, request(&s, 7, 0, 1), &err), PROA_INVALID);
    answer_free(&a);
    finish(&s, b, 2);
    (void)state;
}

static void test_controls(void **state)
{
    setup s;
    answer a[3];
    begin(&s, 0, PROA_TYPE_INT32);
    open_it(&s, &inlined, 1);
    send(&s, &a[0], 42, START, 10);
    send(&s, &a[1], 42, 0, 11);
    send(&s, &a[2], 42, END, 12);
    for (int i = 0; i < 3; i++) assert_true(answer_wait(&a[i])); /* the helper may have executed them */
    assert_int_equal(seen.batches, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(seen.rows[i], 1);
        assert_int_equal(seen.start[i][0], i == 0);
        assert_int_equal(seen.end[i][0], i == 2);
        assert_int_equal(seen.ready[i][0], 1);
        assert_int_equal(seen.id[i][0], 42);
        assert_int_equal(seen.value[i][0], 10 + i);
    }
    finish(&s, a, 3);

    begin(&s, 4, PROA_TYPE_BYTES);
    open_it(&s, &inlined, 1);
    proa_infer *r = request(&s, 0, START | END, 1);
    r->sequence_name = "abcd";
    assert_int_equal(rig_send(&s.g, &a[0], r, NULL), PROA_OK);
    assert_true(answer_wait(&a[0]));
    const proa_tensor *t = proa_infer_input(r, "CORRID");
    assert_int_equal(t->bytes, 8);
    assert_memory_equal(t->data, "\4\0\0\0abcd", 8);
    assert_int_equal(t->rank, 2);
    finish(&s, a, 1);
    (void)state;
}

/* Three sequences on two rows: the third waits for a place; a row without a request has a filler. */
static void test_direct_rows_and_backlog(void **state)
{
    setup s;
    answer a[8];
    begin(&s, 2, PROA_TYPE_UINT64);
    open_it(&s, &threaded, 1);
    gate_set(&door, false, 0);
    send(&s, &a[0], 1, START, 10); /* row 0, executed alone */
    gate_await(&door, 1);
    send(&s, &a[1], 2, START, 20); /* row 1 */
    send(&s, &a[2], 3, START, 30); /* backlog */
    send(&s, &a[3], 3, END, 31);
    send(&s, &a[4], 2, 0, 21);
    send(&s, &a[5], 2, END, 22);
    assert_int_equal(proa_scheduler_pending(s.g.model.scheduler), 5);
    gate_set(&door, true, 0);
    for (int i = 0; i < 6; i++) assert_true(answer_wait(&a[i]));
    /* 10 | -,20 | -,21 | -,22 | -,30 | -,31 : sequence 1 keeps row 0 */
    assert_int_equal(seen.batches, 6);
    const int64_t want[] = {10, 20, 21, 22, 30, 31};
    for (int i = 0; i < 6; i++) {
        int row = i ? 1 : 0;
        assert_int_equal(seen.rows[i], row + 1);
        assert_int_equal(seen.value[i][row], want[i]);
        assert_int_equal(seen.ready[i][row], 1);
        if (row) assert_int_equal(seen.ready[i][0], 0);
        if (row) assert_int_equal(seen.start[i][0], 0);
        if (row) assert_int_equal(seen.id[i][0], 0);
    }
    send(&s, &a[6], 1, END, 11);
    assert_true(answer_wait(&a[6]));
    assert_int_equal(seen.rows[6], 1);
    proa_stats_sums *sum = malloc(sizeof *sum);
    proa_stats_read(s.g.model.stats, sum);
    assert_int_equal(sum->inferences, 7); /* fillers do not count */
    assert_int_equal(sum->executions, 7);
    free(sum);
    finish(&s, a, 7);
    (void)state;
}

static void test_direct_rows_together(void **state)
{
    setup s;
    answer a[4];
    begin(&s, 4, PROA_TYPE_UINT64);
    s.direct.max_queue_delay_microseconds = 3600000000ull;
    s.direct.minimum_slot_utilization = 0.75f;
    open_it(&s, &threaded, 1);
    for (int i = 0; i < 2; i++) send(&s, &a[i], (uint64_t)i + 1, START, i);
    rig_sleep_ms(10);
    assert_int_equal(seen.batches, 0); /* half of the rows: wait */
    send(&s, &a[2], 3, START, 2);
    for (int i = 0; i < 3; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(seen.batches, 1);
    assert_int_equal(seen.rows[0], 3);
    finish(&s, a, 3);

    begin(&s, 4, PROA_TYPE_UINT64);
    s.direct.max_queue_delay_microseconds = 30000;
    s.direct.minimum_slot_utilization = 1;
    open_it(&s, &threaded, 1);
    int64_t now = proa_clock_ns();
    for (int i = 0; i < 2; i++) send(&s, &a[i], (uint64_t)i + 1, START, i);
    for (int i = 0; i < 2; i++) assert_true(answer_wait(&a[i]));
    assert_true(a[0].at_ns - now >= 30000000);
    assert_int_equal(seen.batches, 1);
    finish(&s, a, 2);
    (void)state;
}

static void test_sequences_stay_at_their_instance(void **state)
{
    const proa_backend *backends[] = {&threaded, &inlined};
    for (int b = 0; b < 2; b++) {
        setup s;
        answer a[30];
        begin(&s, 1, PROA_TYPE_UINT64);
        open_it(&s, backends[b], 3);
        for (int i = 0; i < 30; i++) {
            send(&s, &a[i], (uint64_t)(i % 3) + 1, i < 3 ? START : i >= 27 ? END : 0, i);
            if (i % 7 == 0) assert_true(answer_wait(&a[i]));
        }
        for (int i = 0; i < 30; i++) assert_true(answer_wait(&a[i]));
        assert_int_equal(seen.batches, 30);
        int home[4] = {-1, -1, -1, -1};
        int64_t last[4] = {-1, -1, -1, -1};
        for (int i = 0; i < 30; i++) {
            int64_t id = seen.id[i][0];
            if (home[id] < 0) home[id] = seen.instance[i];
            assert_int_equal(home[id], seen.instance[i]);
            assert_true(seen.value[i][0] > last[id]);
            last[id] = seen.value[i][0];
        }
        assert_true(home[1] != home[2] && home[2] != home[3] && home[1] != home[3]);
        finish(&s, a, 30);
    }
    (void)state;
}

static void test_oldest(void **state)
{
    setup s;
    answer a[8];
    begin(&s, 4, PROA_TYPE_UINT64);
    use_oldest(&s, 3);
    open_it(&s, &threaded, 1);
    gate_set(&door, false, 0);
    send(&s, &a[0], 1, START, 10);
    gate_await(&door, 1);
    send(&s, &a[1], 1, END, 11);
    send(&s, &a[2], 2, START | END, 20);
    send(&s, &a[3], 3, START, 30);
    send(&s, &a[4], 4, START | END, 40); /* no place: backlog */
    gate_set(&door, true, 0);
    for (int i = 0; i < 5; i++) assert_true(answer_wait(&a[i]));
    /* 10 | 11,20,30 | 40: one request of a sequence at a time, no fillers */
    assert_int_equal(seen.batches, 3);
    assert_int_equal(seen.rows[1], 3);
    for (int i = 0; i < 3; i++) {
        const int64_t want[] = {11, 20, 30};
        assert_int_equal(seen.value[1][i], want[i]);
        assert_int_equal(seen.ready[1][i], 1);
    }
    assert_int_equal(seen.value[2][0], 40);
    finish(&s, a, 5);

    begin(&s, 4, PROA_TYPE_UINT64);
    use_oldest(&s, 4);
    int32_t preferred[] = {2};
    s.oldest.preferred_batch_size = preferred;
    s.oldest.n_preferred_batch_size = 1;
    s.oldest.max_queue_delay_microseconds = 3600000000ull;
    open_it(&s, &threaded, 1);
    send(&s, &a[0], 1, START | END, 10);
    rig_sleep_ms(5);
    assert_int_equal(seen.batches, 0);
    send(&s, &a[1], 2, START | END, 20);
    for (int i = 0; i < 2; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(seen.batches, 1);
    finish(&s, a, 2);
    (void)state;
}

static void test_idle_sequences_end(void **state)
{
    setup s;
    answer a[3], gone;
    begin(&s, 1, PROA_TYPE_UINT64);
    s.sequence.max_sequence_idle_microseconds = 500000;
    open_it(&s, &inlined, 1);
    send(&s, &a[0], 1, START, 1);
    send(&s, &a[1], 2, START | END, 2); /* waits for the one place */
    assert_false(answer_is_done(&a[1]));
    assert_true(answer_wait(&a[1])); /* 1 was idle */
    assert_true(a[1].at_ns - a[0].at_ns >= 499000000);
    assert_int_equal(rig_send(&s.g, &gone, request(&s, 1, 0, 3), NULL), PROA_INVALID);
    answer_free(&gone);
    send(&s, &a[2], 1, START | END, 4);
    finish(&s, a, 3);
    (void)state;
}

static void test_backlog_timeout(void **state)
{
    setup s;
    answer a[4], gone;
    begin(&s, 1, PROA_TYPE_UINT64);
    open_it(&s, &threaded, 1);
    send(&s, &a[0], 1, START, 1);
    assert_true(answer_wait(&a[0]));
    proa_infer *r = request(&s, 2, START, 2);
    r->timeout_us = 500000;
    int64_t now = proa_clock_ns();
    assert_int_equal(rig_send(&s.g, &a[1], r, NULL), PROA_OK);
    send(&s, &a[2], 2, 0, 3); /* goes with it */
    for (int i = 1; i < 3; i++) {
        assert_true(answer_wait(&a[i]));
        assert_int_equal(a[i].status, PROA_UNAVAILABLE);
        assert_string_equal(a[i].text, "timeout of the corresponding sequence has been expired");
    }
    assert_true(a[1].at_ns - now >= 500000000);
    assert_int_equal(rig_send(&s.g, &gone, request(&s, 2, 0, 3), NULL), PROA_INVALID);
    answer_free(&gone);
    send(&s, &a[3], 1, END, 4);
    finish(&s, a, 4);
    (void)state;
}

static void test_cancel_takes_the_sequence(void **state)
{
    setup s;
    answer a[6];
    begin(&s, 1, PROA_TYPE_UINT64);
    open_it(&s, &threaded, 1);
    gate_set(&door, false, 0);
    send(&s, &a[0], 1, START, 10);
    gate_await(&door, 1);
    send(&s, &a[1], 1, 0, 11);
    send(&s, &a[2], 1, 0, 12);
    send(&s, &a[3], 2, START, 20); /* backlog */
    send(&s, &a[4], 2, END, 21);
    proa_infer_cancel(a[2].request);
    assert_true(answer_is_done(&a[1]) && answer_is_done(&a[2]));
    assert_int_equal(a[1].status, PROA_CANCELLED);
    assert_int_equal(a[2].status, PROA_CANCELLED);
    assert_false(answer_is_done(&a[0]));
    gate_set(&door, true, 0);
    for (int i = 0; i < 5; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(a[0].status, PROA_OK);
    assert_int_equal(a[3].status, PROA_OK); /* the place is free */
    assert_int_equal(a[4].status, PROA_OK);
    answer gone;
    assert_int_equal(rig_send(&s.g, &gone, request(&s, 1, 0, 3), NULL), PROA_INVALID);
    answer_free(&gone);
    /* a whole sequence in the backlog */
    send(&s, &a[5], 3, START, 1);
    assert_true(answer_wait(&a[5]));
    answer b;
    send(&s, &b, 4, START, 1);
    proa_infer_cancel(b.request);
    assert_true(answer_is_done(&b));
    assert_int_equal(proa_scheduler_pending(s.g.model.scheduler), 0);
    answer_free(&b);
    finish(&s, a, 6);
    (void)state;
}

static void test_a_new_start_ends_the_old_sequence(void **state)
{
    setup s;
    answer a[4];
    begin(&s, 1, PROA_TYPE_UINT64);
    open_it(&s, &inlined, 1);
    send(&s, &a[0], 1, START, 10);
    send(&s, &a[1], 1, START, 11);
    send(&s, &a[2], 1, END, 12);
    for (int i = 0; i < 3; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(seen.start[1][0], 1);
    send(&s, &a[3], 9, START | END, 13); /* the place is free again, once */
    assert_true(answer_wait(&a[3]));
    finish(&s, a, 4);
    (void)state;
}

static void test_stop_lets_sequences_end(void **state)
{
    setup s;
    answer a[2], refused;
    begin(&s, 1, PROA_TYPE_UINT64);
    open_it(&s, &inlined, 1);
    send(&s, &a[0], 1, START, 10);
    proa_scheduler_stop(s.g.model.scheduler);
    assert_int_equal(rig_send(&s.g, &refused, request(&s, 2, START, 1), NULL), PROA_UNAVAILABLE);
    answer_free(&refused);
    send(&s, &a[1], 1, END, 11);
    finish(&s, a, 2);
    (void)state;
}

/* ---- states ---- */

static void add_state(setup *s, int64_t *dims, size_t n_dims)
{
    inference__model_sequence_batching__state__init(&s->state);
    inference__model_sequence_batching__initial_state__init(&s->initial);
    s->state_at[0] = &s->state;
    s->initial_at[0] = &s->initial;
    s->state.input_name = (char *)"SUM_IN";
    s->state.output_name = (char *)"SUM_OUT";
    s->state.data_type = INFERENCE__DATA_TYPE__TYPE_INT64;
    s->state.dims = dims;
    s->state.n_dims = n_dims;
    s->sequence.state = s->state_at;
    s->sequence.n_state = 1;
}

static void test_states(void **state)
{
    static int64_t dims[] = {-1};
    setup s;
    answer a[6];
    const uint64_t ids[] = {1, 2, 1, 2, 1, 2};
    const int64_t values[] = {1, 100, 2, 200, 3, 300}, want[] = {1, 100, 3, 300, 6, 600};
    begin(&s, 4, PROA_TYPE_UINT64);
    add_state(&s, dims, 1);
    open_it(&s, &sums, 1);
    for (int i = 0; i < 6; i++) {
        send(&s, &a[i], ids[i], i < 2 ? START : i >= 4 ? END : 0, values[i]);
        assert_true(answer_wait(&a[i]));
        assert_int_equal(a[i].value, want[i]);
        assert_int_equal(a[i].outputs_count, 1); /* the state is not the client's */
    }
    finish(&s, a, 6);
    (void)state;
}

static void test_first_state_from_a_file(void **state)
{
    static int64_t dims[] = {1};
    char folder[] = "/tmp/proa_sequence_XXXXXX", path[256];
    int64_t first = 1000;
    proa_err err = {0};
    setup s;
    answer a[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/initial_state", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/initial_state/first", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&first, 1, 8, f), 8);
    fclose(f);
    begin(&s, 0, PROA_TYPE_UINT64);
    add_state(&s, dims, 1);
    s.g.model.path = folder;
    s.state.initial_state = s.initial_at;
    s.state.n_initial_state = 1;
    s.initial.data_type = INFERENCE__DATA_TYPE__TYPE_INT64;
    s.initial.dims = dims;
    s.initial.n_dims = 1;
    s.initial.state_data_case = INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE;
    s.initial.data_file = (char *)"first";
    open_it(&s, &sums, 1);
    send(&s, &a[0], 1, START, 1);
    send(&s, &a[1], 1, END, 1);
    for (int i = 0; i < 2; i++) assert_true(answer_wait(&a[i]));
    assert_int_equal(a[0].value, 1001);
    assert_int_equal(a[1].value, 1002);
    finish(&s, a, 2);

    static int64_t more[] = {2};
    begin(&s, 0, PROA_TYPE_UINT64);
    add_state(&s, more, 1);
    s.g.model.path = folder;
    s.state.initial_state = s.initial_at;
    s.state.n_initial_state = 1;
    s.initial.dims = more;
    s.initial.n_dims = 1;
    s.initial.state_data_case = INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE;
    s.initial.data_file = (char *)"first";
    assert_int_equal(rig_open(&s.g, &sums, 1, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "initial_state setting expects 16 bytes, but the data provided from first only has 8 "
                        "bytes.");
    rig_close(&s.g);
    unlink(path);
    snprintf(path, sizeof path, "%s/initial_state", folder);
    rmdir(path);
    rmdir(folder);
    (void)state;
}

/* ---- requests that come again ---- */

static void execute_again(void *state, proa_infer *const *requests, int count)
{
    note(state, requests, count);
    for (int i = 0; i < count; i++) {
        /* as many rounds as IN says: they are counted in the request's work */
        intptr_t rounds = (intptr_t)requests[i]->work + 1;
        requests[i]->work = (void *)rounds;
        if (rounds < number(requests[i], "IN")) proa_infer_reschedule(requests[i]);
        else rig_echo(requests[i]);
    }
}

static void test_iterative(void **state)
{
    static const proa_backend again = {.name = "t", .instance_open = instance_open, .execute = execute_again};
    static const proa_backend again_inline = {
        .name = "t", .flags = PROA_BACKEND_INLINE, .instance_open = instance_open, .execute = execute_again};
    for (int how = 0; how < 3; how++) {
        setup s;
        answer a[3];
        begin(&s, 4, PROA_TYPE_UINT64);
        s.sequence.iterative_sequence = true;
        if (how == 1) use_oldest(&s, 4);
        open_it(&s, how == 2 ? &again_inline : &again, 1);
        for (int i = 0; i < 3; i++) send(&s, &a[i], 0, 0, 2 + i);
        for (int i = 0; i < 3; i++) {
            assert_true(answer_wait(&a[i]));
            assert_int_equal(a[i].status, PROA_OK);
            assert_int_equal(a[i].value, 2 + i);
        }
        int rounds = 0, starts = 0;
        for (int b = 0; b < seen.batches; b++)
            for (int i = 0; i < seen.rows[b]; i++) {
                rounds += seen.ready[b][i];
                starts += seen.start[b][i];
                assert_int_equal(seen.end[b][i], 0);
            }
        assert_int_equal(rounds, 2 + 3 + 4);
        assert_int_equal(starts, 3);
        finish(&s, a, 3);
    }
    /* a request by itself is not of a client's sequence, whatever number that has */
    setup own;
    answer b[5];
    begin(&own, 4, PROA_TYPE_UINT64);
    own.sequence.iterative_sequence = true;
    open_it(&own, &again, 1);
    for (int i = 0; i < 2; i++) {
        send(&own, &b[i], (uint64_t)i + 1, START, 1);
        assert_true(answer_wait(&b[i]));
        send(&own, &b[2], 0, 0, 1);
        assert_true(answer_wait(&b[2]));
        answer_free(&b[2]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_send(&own.g, &b[2 + i], request(&own, (uint64_t)i + 1, END, 1), NULL), PROA_OK);
        assert_true(answer_wait(&b[2 + i]));
        assert_int_equal(b[2 + i].status, PROA_OK);
    }
    finish(&own, b, 4);
    /* elsewhere it is an error */
    setup s;
    answer a;
    begin(&s, 4, PROA_TYPE_UINT64);
    open_it(&s, &again, 1);
    send(&s, &a, 1, START | END, 5);
    assert_true(answer_wait(&a));
    assert_int_equal(a.status, PROA_INTERNAL);
    finish(&s, &a, 1);
    (void)state;
}

/* Many sequences from several threads over few places: each sum is right. */
static void *add_up(void *arg)
{
    static atomic_uint_fast64_t next_id = 1000;
    setup *s = arg;
    intptr_t wrong = 0;
    for (int round = 0; round < 50; round++) {
        uint64_t id = atomic_fetch_add(&next_id, 1);
        int64_t sum = 0;
        for (int i = 0; i < 6; i++) {
            answer a;
            int64_t value = (int64_t)(id % 97) + i;
            sum += value;
            if (rig_send(&s->g, &a,
                         request(s, id,
                                 i == 0   ? START
                                 : i == 5 ? END
                                          : 0,
                                 value),
                         NULL) != PROA_OK ||
                !answer_wait(&a) || a.value != sum)
                wrong++;
            answer_free(&a);
        }
    }
    return (void *)wrong;
}

static void test_many_threads(void **state)
{
    static int64_t dims[] = {1};
    static const proa_backend sums_threaded = {.name = "t", .execute = execute_sum};
    const proa_backend *backends[] = {&sums_threaded, &sums};
    for (int how = 0; how < 4; how++) {
        setup s;
        pthread_t threads[4];
        void *wrong;
        begin(&s, 2, PROA_TYPE_UINT64);
        add_state(&s, dims, 1);
        if (how / 2) use_oldest(&s, 2);
        open_it(&s, backends[how % 2], 1);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, add_up, &s);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
        assert_int_equal(proa_scheduler_pending(s.g.model.scheduler), 0);
        rig_close(&s.g);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_direct_rows_and_backlog),
        cmocka_unit_test(test_direct_rows_together),
        cmocka_unit_test(test_sequences_stay_at_their_instance),
        cmocka_unit_test(test_oldest),
        cmocka_unit_test(test_idle_sequences_end),
        cmocka_unit_test(test_backlog_timeout),
        cmocka_unit_test(test_cancel_takes_the_sequence),
        cmocka_unit_test(test_a_new_start_ends_the_old_sequence),
        cmocka_unit_test(test_stop_lets_sequences_end),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_first_state_from_a_file),
        cmocka_unit_test(test_iterative),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
