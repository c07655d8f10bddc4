/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_session.c - logits of a session are, to the bit, those of the engine's own passes, whatever was
 * forked, reordered or cut before; sessions and requests share an engine; pages return; tensors on a GPU; what is
 * refused. */
#include "engine_test.h"

#include "base/checked.h"
#include "kernels/device.h"

#include <pthread.h>

enum { TOKENS = 96, SEQUENCES = 4, VOCAB_MAX = 4096 };

static float rows[SEQUENCES][VOCAB_MAX];

static proa_decoder_session *session_or_fail(proa_engine *engine, int32_t sequences)
{
    proa_decoder_session *session;
    proa_err err = {.status = PROA_OK};
    const proa_decoder_session_options options = {.sequences = sequences};
    if (proa_decoder_session_open(&session, engine, &options, &err) != PROA_OK) fail_msg("%s", err.text);
    return session;
}

static void refuse(proa_status got, proa_status expected, const proa_err *err, const char *text)
{
    if (got != expected || !strstr(err->text, text))
        fail_msg("%d '%s', expected '%s'", (int)got, err->text, text);
}

static int32_t outputs_of(const proa_engine *engine)
{
    proa_info info;
    proa_engine_info(engine, &info);
    assert_true(info.outputs <= VOCAB_MAX);
    return info.outputs;
}

static void step_or_fail(proa_decoder_session *s, int32_t sequence, const int32_t *ids, int64_t count,
                         float *logits)
{
    proa_err err = {.status = PROA_OK};
    const proa_decoder_session_input in = {.sequence = sequence, .ids = ids, .count = count};
    const proa_decoder_session_output out = {.logits = logits};
    if (proa_decoder_session_step(s, &in, 1, &out, &err) != PROA_OK) fail_msg("%s", err.text);
}

static int32_t largest_of(const float *row, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void greedy_steps_are_the_engine_s(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_decoder_session *s = session_or_fail(engine, 1);
    int32_t ids[TOKENS], n = outputs_of(engine);
    outcome o = {.done = false};
    for (int32_t i = 0; i < 70; i++) ids[i] = 3 + i % 90;
    proa_request r = {.ids = ids, .ids_count = 70, .options = {.max_tokens = 20, .ignore_eos = true}};
    run_request(engine, r, &o);
    step_or_fail(s, 0, ids, 70, rows[0]);
    for (int i = 0; i < 20; i++) {
        int32_t id = largest_of(rows[0], n);
        assert_int_equal(id, o.ids[i]);
        step_or_fail(s, 0, &id, 1, rows[0]);
    }
    assert_int_equal(proa_decoder_session_length(s, 0), 90);
    proa_decoder_session_close(s);
    outcome_release(&o);
    proa_engine_close(engine);
}

static uint32_t random_state = 4711;
static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

/* What each sequence of a session has, kept beside it. */
typedef struct told {
    int32_t ids[TOKENS];
    int64_t count;
} told;

/* New tokens for some of the sequences in one step; each row must be that of a session that runs the whole. */
static void step_some(proa_engine *engine, proa_decoder_session *s, told *t)
{
    proa_decoder_session_input in[SEQUENCES];
    int32_t count = 0, n = outputs_of(engine);
    for (int32_t i = 0; i < SEQUENCES; i++) {
        int64_t more = next_random(4) ? 1 : 1 + next_random(40);
        if (next_random(4) == 0 || t[i].count + more > TOKENS) continue;
        for (int64_t k = 0; k < more; k++) t[i].ids[t[i].count + k] = 3 + (int32_t)next_random(90);
        in[count++] = (proa_decoder_session_input){.sequence = i, .ids = t[i].ids + t[i].count, .count = more};
        t[i].count += more;
    }
    if (!count) return;
    proa_err err = {.status = PROA_OK};
    float *flat = malloc((size_t)count * (size_t)n * sizeof *flat);
    const proa_decoder_session_output out = {.logits = flat};
    if (proa_decoder_session_step(s, in, count, &out, &err) != PROA_OK) fail_msg("%s", err.text);
    int32_t checked = (int32_t)next_random((uint32_t)count);
    proa_decoder_session *whole = session_or_fail(engine, 1);
    const told *one = &t[in[checked].sequence];
    step_or_fail(whole, 0, one->ids, one->count, rows[0]);
    assert_same_floats(flat + (int64_t)checked * n, rows[0], n);
    proa_decoder_session_close(whole);
    free(flat);
}

static void reorder_some(proa_decoder_session *s, told *t)
{
    int32_t parents[SEQUENCES], count = 1 + (int32_t)next_random(SEQUENCES);
    told old[SEQUENCES];
    memcpy(old, t, sizeof old);
    for (int32_t i = 0; i < count; i++) {
        parents[i] = (int32_t)next_random(SEQUENCES);
        t[i] = old[parents[i]];
    }
    assert_int_equal(proa_decoder_session_reorder(s, parents, count, NULL), PROA_OK);
}

static void change_one(proa_decoder_session *s, told *t)
{
    int32_t from = (int32_t)next_random(SEQUENCES), to = (int32_t)next_random(SEQUENCES);
    if (next_random(3)) {
        assert_int_equal(proa_decoder_session_fork(s, from, to, NULL), PROA_OK);
        t[to] = t[from];
        return;
    }
    t[from].count = next_random((uint32_t)t[from].count + 1);
    assert_int_equal(proa_decoder_session_truncate(s, from, t[from].count, NULL), PROA_OK);
}

static int64_t pages_used(proa_engine *engine)
{
    proa_stats stats;
    proa_engine_step(engine); /* publishes them */
    proa_engine_stats(engine, &stats);
    return stats.pages_used;
}

static void random_forks_keep_every_bit(void **state)
{
    const proa_engine_options options = {.step_tokens = 32, .kv_tokens = 4096};
    proa_engine *engine = open_or_fail(*state, &options);
    proa_decoder_session *s = session_or_fail(engine, SEQUENCES);
    static told t[SEQUENCES];
    memset(t, 0, sizeof t);
    for (int round = 0; round < PART_OF(150, 30); round++) {
        step_some(engine, s, t);
        if (round % 2) reorder_some(s, t);
        else change_one(s, t);
        for (int32_t i = 0; i < SEQUENCES; i++)
            assert_int_equal(proa_decoder_session_length(s, i), t[i].count);
    }
    assert_true(pages_used(engine) > 0);
    proa_decoder_session_close(s);
    assert_int_equal(pages_used(engine), 0);
    proa_engine_close(engine);
}

static void all_rows_and_hidden_states(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_decoder_session *s = session_or_fail(engine, 1);
    proa_info info;
    int32_t ids[5] = {5, 9, 13, 17, 21}, n = outputs_of(engine);
    proa_engine_info(engine, &info);
    float *all = malloc((size_t)(5 * n) * sizeof *all),
          *hidden = malloc((size_t)(5 * info.hidden) * sizeof *all);
    const proa_decoder_session_input in = {.ids = ids, .count = 5};
    assert_int_equal(
        proa_decoder_session_step(
            s, &in, 1, &(proa_decoder_session_output){.logits = all, .hidden = hidden, .all_rows = true}, NULL),
        PROA_OK);
    outcome o = {.done = false};
    run_request(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = 5}, &o);
    assert_same_floats(all, o.rows, 5 * n);
    for (int32_t i = 0; i < info.hidden; i++) assert_true(isfinite(hidden[4 * info.hidden + i]));
    free(all), free(hidden);
    outcome_release(&o);
    proa_decoder_session_close(s);
    proa_engine_close(engine);
}

/* ---- encoder memory ---- */

static void encoder_outputs_stand_for_the_input(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_decoder_session *s = session_or_fail(engine, 3);
    proa_info info;
    int32_t ids[9] = {5, 9, 13, 17, 21, 6, 7, 8, 1}, start[2] = {0, 30}, n = outputs_of(engine);
    proa_engine_info(engine, &info);
    if (info.decoder_start_id >= 0) start[0] = info.decoder_start_id;
    float *hidden = malloc((size_t)(9 * info.hidden) * sizeof *hidden);
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_decoder_session_encode(s, &(proa_decoder_session_input){.ids = ids, .count = 9},
                                                 &(proa_decoder_session_output){.hidden = hidden}, &err),
                     PROA_OK);
    const proa_decoder_session_input given = {.sequence = 1, .embeddings = hidden, .count = 9};
    assert_int_equal(proa_decoder_session_set_encoder_outputs(s, &given, &err), PROA_OK);
    const proa_decoder_session_input no_states = {.ids = ids, .count = 9};
    refuse(proa_decoder_session_set_encoder_outputs(s, &no_states, &err), PROA_INVALID, &err,
           "needs encoder outputs");
    assert_int_equal(proa_decoder_session_fork(s, 0, 2, &err), PROA_OK);
    for (int32_t i = 0; i < 3; i++) step_or_fail(s, i, start, 2, rows[i]);
    assert_same_floats(rows[0], rows[1], n);
    assert_same_floats(rows[0], rows[2], n);
    outcome a = {.done = false}, b = {.done = false}, c = {.done = false};
    const proa_options options = {.max_tokens = 12, .logprobs = true, .ignore_eos = true};
    submit_or_fail(engine, (proa_request){.ids = ids, .ids_count = 9, .options = options}, &a);
    submit_or_fail(engine, (proa_request){.encoder_outputs = hidden, .ids_count = 9, .options = options}, &b);
    submit_or_fail(engine, (proa_request){.ids = ids, .ids_count = 8, .options = options}, &c);
    proa_engine_run(engine);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.ids, b.ids, (size_t)a.count * sizeof *a.ids);
    assert_same_logprobs(&a, &b);
    outcome_release(&a), outcome_release(&b), outcome_release(&c);
    free(hidden);
    proa_decoder_session_close(s);
    proa_engine_close(engine);
}

/* ---- beside requests ---- */

typedef struct walker {
    proa_engine *engine;
    int32_t first, last; /* ids */
} walker;

static void *walk(void *arg)
{
    walker *w = arg;
    proa_decoder_session *s = session_or_fail(w->engine, 2);
    int32_t n = outputs_of(w->engine), id = w->first;
    float *row = malloc((size_t)n * sizeof *row);
    for (int i = 0; i < 40; i++) {
        step_or_fail(s, i % 2, &id, 1, row);
        assert_int_equal(proa_decoder_session_fork(s, i % 2, 1 - i % 2, NULL), PROA_OK);
        id = largest_of(row, n);
    }
    w->last = id;
    free(row);
    proa_decoder_session_close(s);
    return NULL;
}

static void sessions_run_beside_requests(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    walker w[3] = {{engine, 7, 0}, {engine, 7, 0}, {engine, 7, 0}};
    pthread_t thread[2];
    outcome a[6] = {{.done = false}}, alone = {.done = false};
    int32_t ids[3] = {5, 9, 13};
    proa_request r = {.ids = ids, .ids_count = 3, .options = {.max_tokens = 60, .ignore_eos = true}};
    run_request(engine, r, &alone);
    walk(&w[2]);
    assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, walk, &w[i]);
    for (int i = 0; i < 6; i++) submit_or_fail(engine, r, &a[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    proa_engine_stop(engine);
    proa_engine_run(engine);
    for (int i = 0; i < 2; i++) assert_int_equal(w[i].last, w[2].last);
    for (int i = 0; i < 6; i++) {
        assert_memory_equal(a[i].ids, alone.ids, 60 * sizeof *alone.ids);
        outcome_release(&a[i]);
    }
    outcome_release(&alone);
    proa_engine_close(engine);
}

static proa_status inside_status;
static proa_decoder_session *inside_session;
static void step_inside(const proa_event *event)
{
    const int32_t id = 5;
    const proa_decoder_session_input in = {.ids = &id, .count = 1};
    if (event->kind == PROA_EVENT_DONE)
        inside_status = proa_decoder_session_step(inside_session, &in, 1,
                                                  &(proa_decoder_session_output){.logits = NULL}, NULL);
}

/* Whoever steps the engine: a thread of its own, or the caller's. */
static void a_callback_cannot_step(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    int32_t id = 5;
    proa_request r = {.ids = &id, .ids_count = 1, .options = {.max_tokens = 1}, .on_event = step_inside};
    inside_session = session_or_fail(engine, 1);
    for (int i = 0; i < 2; i++) {
        inside_status = PROA_OK;
        if (i == 0) assert_int_equal(proa_engine_start(engine, NULL), PROA_OK);
        assert_int_equal(proa_engine_submit(engine, &r, NULL, NULL), PROA_OK);
        if (i == 0) walk(&(walker){engine, 7, 0}); /* the request most likely ends meanwhile */
        proa_engine_stop(engine);
        proa_engine_run(engine);
        assert_int_equal(inside_status, PROA_INVALID);
    }
    proa_decoder_session_close(inside_session);
    proa_engine_close(engine);
}

/* ---- tensors on a GPU ---- */

/* Memory of the engine's GPU, of a second device object: as a caller's own library has it. */
typedef struct gpu_memory {
    proa_device *device;
    proa_tensor_memory memory;
    float *values;
    int64_t bytes;
} gpu_memory;

/* Closes the engine before it skips the test. */
static gpu_memory gpu_memory_or_skip(proa_engine *engine, int64_t count)
{
    gpu_memory g = {.bytes = count * (int64_t)sizeof(float)};
    proa_info info;
    char name[16];
    proa_engine_info(engine, &info);
    if (info.gpu < 0) {
        proa_engine_close(engine);
        skip();
    }
    snprintf(name, sizeof name, "cuda:%d", info.gpu);
    assert_int_equal(proa_device_open(&g.device, name, NULL), PROA_OK);
    g.values = g.device->alloc(g.device, g.bytes);
    assert_non_null(g.values);
    assert_int_equal(g.device->check(g.device, NULL), PROA_OK);
    g.memory = (proa_tensor_memory){.kind = PROA_MEMORY_CUDA, .gpu = info.gpu};
    return g;
}

static void gpu_memory_release(gpu_memory *g)
{
    g->device->free(g->device, g->values, g->bytes);
    proa_device_close(g->device);
}

/* The first n floats of it, behind the session's kernels. */
static void assert_gpu_floats(const gpu_memory *g, const float *expected, int64_t n)
{
    float *got = malloc((size_t)n * sizeof *got);
    g->device->wait_for_stream(g->device, NULL); /* which waits for the session */
    g->device->download(g->device, got, g->values, n * (int64_t)sizeof *got);
    assert_same_floats(got, expected, n);
    free(got);
}

static void outputs_on_a_gpu_are_those_of_the_host(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_info info;
    proa_engine_info(engine, &info);
    gpu_memory logits = gpu_memory_or_skip(engine, 9 * info.outputs),
               hidden = gpu_memory_or_skip(engine, 9 * info.hidden);
    proa_decoder_session *s = session_or_fail(engine, 2);
    const int32_t ids[9] = {5, 9, 13, 17, 21, 6, 7, 8, 1};
    float *by_host = malloc((size_t)(9 * (info.outputs + info.hidden)) * sizeof *by_host);
    float *hidden_by_host = by_host + 9 * info.outputs;
    const proa_decoder_session_input first = {.ids = ids, .count = 9},
                                     second = {.sequence = 1, .ids = ids, .count = 9};
    const proa_decoder_session_output host = {by_host, hidden_by_host, .all_rows = true},
                                      gpu = {logits.values, hidden.values, true, logits.memory};
    assert_int_equal(proa_decoder_session_step(s, &first, 1, &host, NULL), PROA_OK);
    assert_int_equal(proa_decoder_session_step(s, &second, 1, &gpu, NULL), PROA_OK);
    assert_gpu_floats(&logits, by_host, 9 * info.outputs);
    assert_gpu_floats(&hidden, hidden_by_host, 9 * info.hidden);
    proa_decoder_session_close(s);
    gpu_memory_release(&logits), gpu_memory_release(&hidden);
    free(by_host);
    proa_engine_close(engine);
}

/* Encoder outputs that never left the GPU are as good as those that the encoder has just made. */
static void encoder_outputs_stay_on_a_gpu(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_info info;
    proa_engine_info(engine, &info);
    gpu_memory hidden = gpu_memory_or_skip(engine, 9 * info.hidden);
    proa_decoder_session *s = session_or_fail(engine, 2);
    const int32_t ids[9] = {5, 9, 13, 17, 21, 6, 7, 8, 1}, start[2] = {0, 30};
    const proa_decoder_session_input text = {.ids = ids, .count = 9};
    const proa_decoder_session_output out = {.hidden = hidden.values, .memory = hidden.memory};
    const proa_decoder_session_input given = {1, NULL, hidden.values, 9, hidden.memory};
    assert_int_equal(proa_decoder_session_encode(s, &text, &out, NULL), PROA_OK);
    assert_int_equal(proa_decoder_session_set_encoder_outputs(s, &given, NULL), PROA_OK);
    for (int32_t i = 0; i < 2; i++) step_or_fail(s, i, start, 2, rows[i]);
    assert_same_floats(rows[0], rows[1], info.outputs);
    proa_decoder_session_close(s);
    gpu_memory_release(&hidden);
    proa_engine_close(engine);
}

static void embeddings_on_a_gpu_are_those_of_the_host(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_info info;
    proa_engine_info(engine, &info);
    gpu_memory g = gpu_memory_or_skip(engine, 5 * info.embedding);
    proa_decoder_session *s = session_or_fail(engine, 2);
    float *values = malloc((size_t)(5 * info.embedding) * sizeof *values);
    for (int64_t i = 0; i < 5 * info.embedding; i++) values[i] = (float)next_random(1000) * 0.001f - 0.5f;
    g.device->upload(g.device, g.values, values, g.bytes);
    g.device->make_stream_wait(g.device, NULL);
    const proa_decoder_session_input host = {.embeddings = values, .count = 5},
                                     gpu = {1, NULL, g.values, 5, g.memory};
    const proa_decoder_session_output out[2] = {{.logits = rows[0]}, {.logits = rows[1]}};
    assert_int_equal(proa_decoder_session_step(s, &host, 1, &out[0], NULL), PROA_OK);
    assert_int_equal(proa_decoder_session_step(s, &gpu, 1, &out[1], NULL), PROA_OK);
    assert_same_floats(rows[0], rows[1], info.outputs);
    proa_decoder_session_close(s);
    gpu_memory_release(&g);
    free(values);
    proa_engine_close(engine);
}

/* ---- refusals ---- */

static void memory_of_other_devices_is_refused(void **state)
{
    proa_engine *engine = open_or_fail(*state, NULL);
    proa_decoder_session *s = session_or_fail(engine, 1);
    proa_err e[3] = {{.status = PROA_OK}};
    float values[1] = {0};
    const int32_t id = 5;
    const proa_decoder_session_input good = {.ids = &id, .count = 1};
    const proa_decoder_session_input far = {0, NULL, values, 1, {PROA_MEMORY_CUDA, 97, NULL}};
    const proa_decoder_session_output out = {.logits = rows[0]}, far_out = {rows[0], NULL, false, far.memory};
    const proa_decoder_session_output odd = {rows[0], NULL, false, {(proa_memory_kind)7, 0, NULL}};
    refuse(proa_decoder_session_step(s, &far, 1, &out, &e[0]), PROA_INVALID, &e[0],
           "embeddings: memory of cuda:97");
    refuse(proa_decoder_session_step(s, &good, 1, &far_out, &e[1]), PROA_INVALID, &e[1],
           "outputs: memory of cuda:97");
    refuse(proa_decoder_session_step(s, &good, 1, &odd, &e[2]), PROA_INVALID, &e[2], "'kind' of memory is 7");
    assert_int_equal(proa_decoder_session_length(s, 0), 0);
    proa_decoder_session_close(s);
    proa_engine_close(engine);
}

static void bad_inputs_are_refused(void **state)
{
    proa_engine *engine = open_or_fail(*state, &(proa_engine_options){.sequences_max = 4});
    proa_decoder_session *s, *none;
    proa_err e[12] = {{.status = PROA_OK}};
    const int32_t good[2] = {5, 6}, bad[2] = {5, 1 << 24};
    const proa_decoder_session_output out = {.logits = NULL};
    refuse(proa_decoder_session_open(&none, engine, &(proa_decoder_session_options){.sequences = 5}, &e[0]),
           PROA_LIMIT, &e[0], "'sequences' is 5, must be 1 to 4");
    refuse(proa_decoder_session_open(&none, engine, &(proa_decoder_session_options){.tokens_max = -1}, &e[1]),
           PROA_LIMIT, &e[1], "'tokens_max' is -1");
    assert_int_equal(proa_decoder_session_open(
                         &s, engine, &(proa_decoder_session_options){.sequences = 2, .tokens_max = 8}, NULL),
                     PROA_OK);
    refuse(proa_decoder_session_step(s, &(proa_decoder_session_input){.ids = bad, .count = 2}, 1, &out, &e[2]),
           PROA_INVALID, &e[2], "token id 16777216 at position 1");
    refuse(proa_decoder_session_step(s, &(proa_decoder_session_input){.sequence = 2, .ids = good, .count = 2},
                                     1, &out, &e[3]),
           PROA_INVALID, &e[3], "sequence 2, must be 0 to 1");
    refuse(proa_decoder_session_step(s, &(proa_decoder_session_input){.ids = good, .count = 0}, 1, &out, &e[4]),
           PROA_INVALID, &e[4], "0 tokens");
    refuse(proa_decoder_session_step(s, &(proa_decoder_session_input){.count = 1}, 1, &out, &e[5]),
           PROA_INVALID, &e[5], "either ids or embeddings");
    const proa_decoder_session_input twice[2] = {{.ids = good, .count = 1}, {.ids = good, .count = 1}};
    refuse(proa_decoder_session_step(s, twice, 2, &out, &e[6]), PROA_INVALID, &e[6], "two inputs");
    int32_t nine[9] = {3, 3, 3, 3, 3, 3, 3, 3, 3}, parents[2] = {0, -1};
    refuse(proa_decoder_session_step(s, &(proa_decoder_session_input){.ids = nine, .count = 9}, 1, &out, &e[7]),
           PROA_LIMIT, &e[7], "at most 8");
    refuse(proa_decoder_session_reorder(s, parents, 2, &e[8]), PROA_INVALID, &e[8], "sequence -1");
    refuse(proa_decoder_session_truncate(s, 0, 1, &e[9]), PROA_INVALID, &e[9], "which has 0");
    refuse(proa_decoder_session_encode(s, &twice[0], NULL, &e[10]), PROA_UNSUPPORTED, &e[10], "no encoder");
    assert_int_equal(proa_decoder_session_length(s, 2), -1);
    proa_decoder_session_close(s);
    proa_engine_close(engine);
}

static void too_little_room_is_said_and_nothing_runs(void **state)
{
    const proa_engine_options options = {.kv_tokens = 256, .prefix_cache = "off", .step_tokens = 64};
    proa_engine *engine = open_or_fail(*state, &options);
    proa_decoder_session *s = session_or_fail(engine, 3);
    proa_err err = {.status = PROA_OK};
    int32_t ids[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++) ids[i] = 3 + i % 50;
    for (int32_t i = 0; i < 2; i++) step_or_fail(s, i, ids, 90, rows[i]);
    const proa_decoder_session_input in = {.sequence = 2, .ids = ids, .count = 1};
    refuse(proa_decoder_session_step(s, &in, 1, &(proa_decoder_session_output){.logits = rows[0]}, &err),
           PROA_NO_MEMORY, &err, "kv_tokens");
    assert_int_equal(proa_decoder_session_length(s, 2), 0);
    assert_int_equal(proa_decoder_session_truncate(s, 0, 60, NULL), PROA_OK);
    step_or_fail(s, 2, ids, 64, rows[0]);
    proa_decoder_session_close(s);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(greedy_steps_are_the_engine_s, "llama"),
        ON(greedy_steps_are_the_engine_s, "gpt2"),
        ON(random_forks_keep_every_bit, "llama"),
        ON(random_forks_keep_every_bit, "gptj"),
        ON(all_rows_and_hidden_states, "llama"),
        ON(encoder_outputs_stand_for_the_input, "t5"),
        ON(encoder_outputs_stand_for_the_input, "bart"),
        ON(sessions_run_beside_requests, "llama"),
        ON(a_callback_cannot_step, "llama"),
        ON(outputs_on_a_gpu_are_those_of_the_host, "llama"),
        ON(encoder_outputs_stay_on_a_gpu, "t5"),
        ON(embeddings_on_a_gpu_are_those_of_the_host, "llama"),
        ON(memory_of_other_devices_is_refused, "llama"),
        ON(bad_inputs_are_refused, "llama"),
        ON(too_little_room_is_said_and_nothing_runs, "llama"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
