/* SPDX-License-Identifier: Apache-2.0
 * test_simple.c - the backends for tests and examples, through a server on tests/repository and on
 * models made here. */
#include "../serve/repo.h"
#include "backends/backends.h"
#include "base/log.h"

static proa_server *server;

static int set_up(void **state)
{
    const char *const folders[] = {PROA_SOURCE_DIR "/tests/repository"}, *const all[] = {"*"};
    proa_server_options o = {.repositories = folders,
                             .repositories_count = 1,
                             .backends = proa_backends,
                             .control = PROA_CONTROL_EXPLICIT,
                             .load_models = all,
                             .load_models_count = 1,
                             .exit_on_error = true};
    proa_err err = {0};
    (void)state;
    if (proa_server_new(&server, &o, &err) != PROA_OK) fprintf(stderr, "%s\n", err.text);
    return server == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    bool stopped = proa_server_stop(server, 10000);
    proa_server_free(server);
    return !stopped;
}

/* ---- a request and all its replies ---- */

typedef struct talk {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool done;
    proa_infer *r;
    proa_reply *replies[64];
    int count;
    int64_t begin_ns, at_ns[64];
    char refused[400];
} talk;

static void on_reply(proa_infer *r, proa_reply *reply, bool final)
{
    talk *t = r->user;
    pthread_mutex_lock(&t->lock);
    if (reply && t->count < 64) {
        t->at_ns[t->count] = proa_clock_ns() - t->begin_ns;
        t->replies[t->count++] = reply;
    }
    if (final) proa_infer_drop(r);
    t->done = final;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

static void talk_new(talk *t, const char *model)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    t->r = proa_infer_new();
    t->r->model_name = model;
    t->r->on_reply = on_reply;
    t->r->user = t;
}

static void talk_input(talk *t, const char *name, proa_type type, const int64_t *shape, int rank,
                       const void *data, size_t bytes)
{
    proa_tensor *in = proa_infer_add_input(t->r, proa_str_c(name));
    in->type = type;
    in->rank = rank;
    memcpy(in->shape, shape, (size_t)rank * sizeof *shape);
    in->bytes = bytes;
    if (!bytes) return;
    in->buffer = proa_buffer_new(bytes);
    in->data = memcpy(in->buffer->data, data, bytes);
}
#define DIMS(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t))

static void talk_send(talk *t)
{
    proa_err err = {0};
    t->begin_ns = proa_clock_ns();
    if (proa_server_infer(server, t->r, &err) == PROA_OK) return;
    snprintf(t->refused, sizeof t->refused, "%.390s", err.text);
    proa_infer_drop(t->r);
    t->done = true;
}

static void talk_wait(talk *t)
{
    pthread_mutex_lock(&t->lock);
    while (!t->done) pthread_cond_wait(&t->wake, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static void talk_end(talk *t)
{
    for (int i = 0; i < t->count; i++) proa_reply_free(t->replies[i]);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
}

static const proa_tensor *output(const talk *t, int reply, const char *name)
{
    if (t->refused[0]) fail_msg("%s", t->refused);
    assert_true(t->count > reply);
    if (t->replies[reply]->error.status != PROA_OK) fail_msg("%s", t->replies[reply]->error.text);
    const proa_tensor *out = proa_reply_output(t->replies[reply], name);
    assert_non_null(out);
    return out;
}

static int32_t number(const proa_tensor *t, int i)
{
    int32_t value;
    memcpy(&value, t->data + 4 * i, 4);
    return value;
}

/* ---- identity ---- */

static void test_identity(void **state)
{
    static const struct {
        const char *model;
        proa_type type;
    } all[] = {{"identity_bool", PROA_TYPE_BOOL},     {"identity_uint8", PROA_TYPE_UINT8},
               {"identity_uint16", PROA_TYPE_UINT16}, {"identity_uint32", PROA_TYPE_UINT32},
               {"identity_uint64", PROA_TYPE_UINT64}, {"identity_int8", PROA_TYPE_INT8},
               {"identity_int16", PROA_TYPE_INT16},   {"identity_int32", PROA_TYPE_INT32},
               {"identity_int64", PROA_TYPE_INT64},   {"identity_fp16", PROA_TYPE_FP16},
               {"identity_fp32", PROA_TYPE_FP32},     {"identity_fp64", PROA_TYPE_FP64},
               {"identity_bf16", PROA_TYPE_BF16}};
    char data[64];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7);
    for (size_t i = 0; i < PROA_COUNT(all); i++) {
        talk t;
        size_t size = (size_t)proa_type_bytes(all[i].type);
        uint64_t copies = proa_copies_count();
        talk_new(&t, all[i].model);
        talk_input(&t, "INPUT0", all[i].type, DIMS(2, 3), data, 6 * size);
        const char *in = t.r->inputs[0].data;
        talk_send(&t);
        talk_wait(&t);
        const proa_tensor *out = output(&t, 0, "OUTPUT0");
        assert_int_equal(out->type, all[i].type);
        assert_true(proa_shape_equal(out->shape, out->rank, DIMS(2, 3)));
        assert_ptr_equal(out->data, in); /* the very bytes */
        assert_memory_equal(out->data, data, 6 * size);
        assert_int_equal(proa_copies_count(), copies);
        talk_end(&t);
    }
    talk t;
    talk_new(&t, "simple_identity");
    talk_input(&t, "INPUT0", PROA_TYPE_BYTES, DIMS(1, 2), "\2\0\0\0\xff\0\0\0\0\0", 10);
    talk_send(&t);
    talk_wait(&t);
    assert_memory_equal(output(&t, 0, "OUTPUT0")->data, "\2\0\0\0\xff\0\0\0\0\0", 10);
    talk_end(&t);
    (void)state;
}

/* 16 MiB through three of them: the same bytes come out. */
static void test_identity_ensemble(void **state)
{
    const size_t size = (size_t)16 << 20;
    char *data = proa_calloc(1, size);
    uint64_t copies = proa_copies_count();
    talk t;
    talk_new(&t, "ensemble_identity");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(1, 4 << 20), data, size);
    const char *in = t.r->inputs[0].data;
    talk_send(&t);
    talk_wait(&t);
    assert_ptr_equal(output(&t, 0, "OUTPUT0")->data, in);
    assert_int_equal(proa_copies_count(), copies);
    talk_end(&t);
    free(data);
    (void)state;
}

/* An optional input that is left out comes back as zeros, if its output is wanted. */
static void test_identity_optional(void **state)
{
    talk t;
    talk_new(&t, "identity_nobatch");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(1, 2), "12345678", 8);
    talk_send(&t);
    talk_wait(&t);
    assert_memory_equal(output(&t, 0, "OUTPUT0")->data, "12345678", 8);
    const proa_tensor *zero = output(&t, 0, "OUTPUT1");
    assert_int_equal(zero->type, PROA_TYPE_BYTES);
    assert_int_equal(zero->bytes, 4);
    assert_true(proa_tensor_strings_fit(zero, 1, NULL));
    talk_end(&t);
    talk_new(&t, "identity_nobatch");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(0, 2), NULL, 0);
    proa_infer_add_output(t.r, proa_str_c("OUTPUT0"));
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(output(&t, 0, "OUTPUT0")->bytes, 0);
    assert_null(proa_reply_output(t.replies[0], "OUTPUT1"));
    talk_end(&t);
    (void)state;
}

/* How long a request lasted that was cancelled 10 ms after it began. */
static int64_t cancelled_after_ns(void)
{
    talk t;
    talk_new(&t, "identity_slow");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(1, 1), "1234", 4);
    proa_infer *r = proa_infer_hold(t.r);
    talk_send(&t);
    tell_sleep_ms(10);
    proa_infer_cancel(r);
    talk_wait(&t);
    proa_infer_drop(r);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.replies[0]->error.status, PROA_CANCELLED);
    int64_t lasted = t.at_ns[0];
    talk_end(&t);
    return lasted;
}

static void test_identity_slow(void **state)
{
    enum { ATTEMPTS = 20, WHOLE_NS = 195000000 }; /* a busy machine may wake a thread late */
    talk t;
    talk_new(&t, "identity_slow");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(1, 1), "1234", 4);
    talk_send(&t);
    assert_int_equal(t.count, 0); /* not on this thread */
    talk_wait(&t);
    assert_true(t.at_ns[0] >= WHOLE_NS);
    output(&t, 0, "OUTPUT0");
    talk_end(&t);
    /* a cancel ends it while it waits */
    int attempts = 1;
    while (cancelled_after_ns() >= WHOLE_NS && attempts < ATTEMPTS) attempts++;
    assert_true(attempts < ATTEMPTS);
    (void)state;
}

/* ---- add_sub ---- */

static void test_add_sub(void **state)
{
    talk t;
    int32_t a[16], b[16];
    for (int i = 0; i < 16; i++) {
        a[i] = i == 15 ? INT32_MAX : i;
        b[i] = 1;
    }
    talk_new(&t, "simple");
    talk_input(&t, "INPUT0", PROA_TYPE_INT32, DIMS(1, 16), a, 64);
    talk_input(&t, "INPUT1", PROA_TYPE_INT32, DIMS(1, 16), b, 64);
    talk_send(&t);
    talk_wait(&t);
    for (int i = 0; i < 15; i++) {
        assert_int_equal(number(output(&t, 0, "OUTPUT0"), i), i + 1);
        assert_int_equal(number(output(&t, 0, "OUTPUT1"), i), i - 1);
    }
    assert_int_equal(number(output(&t, 0, "OUTPUT0"), 15), INT32_MIN);
    talk_end(&t);
    talk_new(&t, "simple_int8");
    talk_input(&t, "INPUT0", PROA_TYPE_INT8, DIMS(1, 16), "\x7f\x80\1\2\3\4\5\6\7\1\1\1\1\1\1\1", 16);
    talk_input(&t, "INPUT1", PROA_TYPE_INT8, DIMS(1, 16), "\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1", 16);
    proa_infer_add_output(t.r, proa_str_c("OUTPUT1"));
    talk_send(&t);
    talk_wait(&t);
    assert_memory_equal(output(&t, 0, "OUTPUT1")->data, "\x7e\x7f\0\1", 4);
    assert_null(proa_reply_output(t.replies[0], "OUTPUT0"));
    talk_end(&t);
    float x[16], y[16], sum;
    for (int i = 0; i < 16; i++) x[i] = y[i] = 0.25F * (float)i;
    talk_new(&t, "simple_fp32");
    talk_input(&t, "INPUT0", PROA_TYPE_FP32, DIMS(1, 16), x, 64);
    talk_input(&t, "INPUT1", PROA_TYPE_FP32, DIMS(1, 16), y, 64);
    talk_send(&t);
    talk_wait(&t);
    memcpy(&sum, output(&t, 0, "OUTPUT0")->data + 4 * 3, 4);
    assert_true(sum == 1.5F);
    talk_end(&t);
    (void)state;
}

static size_t strings(char *to, const char *const *words, int count)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        uint32_t n = (uint32_t)strlen(words[i]);
        memcpy(to + at, &n, 4);
        memcpy(to + at + 4, words[i], n);
        at += 4 + n;
    }
    return at;
}

static void test_add_sub_strings(void **state)
{
    talk t;
    char a[256], b[256];
    const char *words[16], *ones[16];
    for (int i = 0; i < 16; i++) {
        words[i] = i == 3 ? "-100" : "41";
        ones[i] = "1";
    }
    size_t n = strings(a, words, 16), m = strings(b, ones, 16);
    talk_new(&t, "simple_string");
    talk_input(&t, "INPUT0", PROA_TYPE_BYTES, DIMS(1, 16), a, n);
    talk_input(&t, "INPUT1", PROA_TYPE_BYTES, DIMS(1, 16), b, m);
    talk_send(&t);
    talk_wait(&t);
    const proa_tensor *sum = output(&t, 0, "OUTPUT0");
    size_t at = 0;
    proa_str s;
    assert_true(proa_shape_equal(sum->shape, sum->rank, DIMS(1, 16)));
    for (int i = 0; i < 16; i++) {
        assert_true(proa_tensor_next_string(sum, &at, &s));
        assert_true(proa_str_is(s, i == 3 ? "-99" : "42"));
    }
    talk_end(&t);
    words[7] = "4x";
    n = strings(a, words, 16);
    talk_new(&t, "simple_string");
    talk_input(&t, "INPUT0", PROA_TYPE_BYTES, DIMS(1, 16), a, n);
    talk_input(&t, "INPUT1", PROA_TYPE_BYTES, DIMS(1, 16), b, m);
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(t.replies[0]->error.status, PROA_INVALID);
    assert_string_equal(t.replies[0]->error.text, "add_sub needs strings that are integers");
    talk_end(&t);
    (void)state;
}

/* ---- decoupled ---- */

static void repeat(talk *t, int count, const uint32_t *delays, uint32_t wait)
{
    const int32_t in[] = {70, 71, 72, 73};
    talk_new(t, "repeat_int32");
    talk_input(t, "IN", PROA_TYPE_INT32, (const int64_t[]){count}, 1, in, 4 * (size_t)count);
    talk_input(t, "DELAY", PROA_TYPE_UINT32, (const int64_t[]){count}, 1, delays, 4 * (size_t)count);
    talk_input(t, "WAIT", PROA_TYPE_UINT32, DIMS(1), &wait, 4);
}

static void test_repeat(void **state)
{
    talk t, u;
    const uint32_t none[] = {0, 0, 0, 0}, some[] = {0, 600, 0, 30};
    repeat(&t, 4, none, 0);
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(t.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(number(output(&t, i, "OUT"), 0), 70 + i);
        assert_int_equal(number(output(&t, i, "IDX"), 0), i);
    }
    talk_end(&t);
    repeat(&t, 4, some, 0);
    repeat(&u, 1, none, 0);
    talk_send(&t);
    talk_send(&u); /* the instance is free while t's replies take their time */
    talk_wait(&u);
    talk_wait(&t);
    assert_true(u.at_ns[0] < 500000000);
    assert_int_equal(t.count, 4);
    assert_true(t.at_ns[1] >= 598000000 && t.at_ns[3] >= 628000000);
    talk_end(&t);
    talk_end(&u);
    repeat(&t, 0, none, 0);
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(t.count, 0);
    talk_end(&t);
    (void)state;
}

static void test_repeat_errors(void **state)
{
    talk t;
    const uint32_t long_ones[] = {5, 20000, 20000, 20000};
    const int32_t in[] = {1, 2};
    const uint32_t zero = 0;
    talk_new(&t, "repeat_int32");
    talk_input(&t, "IN", PROA_TYPE_INT32, DIMS(2), in, 8);
    talk_input(&t, "DELAY", PROA_TYPE_UINT32, DIMS(1), &zero, 4);
    talk_input(&t, "WAIT", PROA_TYPE_UINT32, DIMS(1), &zero, 4);
    talk_send(&t);
    talk_wait(&t);
    assert_string_equal(t.replies[0]->error.text, "expected IN and DELAY shape to match, got [2] and [1]");
    talk_end(&t);
    repeat(&t, 4, long_ones, 0);
    proa_infer *r = proa_infer_hold(t.r);
    talk_send(&t);
    tell_sleep_ms(40);
    proa_infer_cancel(r);
    talk_wait(&t);
    proa_infer_drop(r);
    assert_int_equal(t.count, 2); /* the first, and the end */
    assert_int_equal(t.replies[1]->error.status, PROA_CANCELLED);
    assert_true(t.at_ns[1] < 15000000000);
    talk_end(&t);
    (void)state;
}

static void test_square(void **state)
{
    talk t;
    int32_t n = 5;
    talk_new(&t, "square_int32");
    talk_input(&t, "IN", PROA_TYPE_INT32, DIMS(1), &n, 4);
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(t.count, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(number(output(&t, i, "OUT"), 0), 5);
    talk_end(&t);
    n = -1;
    talk_new(&t, "square_int32");
    talk_input(&t, "IN", PROA_TYPE_INT32, DIMS(1), &n, 4);
    talk_send(&t);
    talk_wait(&t);
    assert_int_equal(t.replies[0]->error.status, PROA_INVALID);
    talk_end(&t);
    (void)state;
}

/* ---- sequences ---- */

static int32_t step(const char *model, uint64_t id, const char *name, bool start, bool end, int32_t value)
{
    talk t;
    talk_new(&t, model);
    talk_input(&t, "INPUT", PROA_TYPE_INT32, DIMS(1, 1), &value, 4);
    t.r->sequence_id = id;
    t.r->sequence_name = name;
    t.r->sequence_start = start;
    t.r->sequence_end = end;
    talk_send(&t);
    talk_wait(&t);
    int32_t result = number(output(&t, 0, "OUTPUT"), 0);
    talk_end(&t);
    return result;
}

static void test_sequences(void **state)
{
    assert_int_equal(step("simple_sequence", 7, NULL, true, false, 11), 12);
    assert_int_equal(step("simple_sequence", 8, NULL, true, false, 100), 101);
    assert_int_equal(step("simple_sequence", 7, NULL, false, false, 5), 5);
    assert_int_equal(step("simple_sequence", 7, NULL, false, true, 3), 3);
    assert_int_equal(step("simple_sequence", 8, NULL, false, true, 1), 1);
    assert_int_equal(step("simple_dyna_sequence", 9, NULL, true, false, 4), 5);
    assert_int_equal(step("simple_dyna_sequence", 9, NULL, false, true, 4), 13);
    /* sums, of several sequences at once */
    assert_int_equal(step("custom_dyna_sequence_int32", 1000, NULL, true, false, 1), 1);
    assert_int_equal(step("custom_dyna_sequence_int32", 2000, NULL, true, false, 10), 10);
    assert_int_equal(step("custom_dyna_sequence_int32", 1000, NULL, false, false, 2), 3);
    assert_int_equal(step("custom_dyna_sequence_int32", 2000, NULL, false, false, 20), 30);
    assert_int_equal(step("custom_dyna_sequence_int32", 1000, NULL, false, true, 3), 1006);
    assert_int_equal(step("custom_dyna_sequence_int32", 2000, NULL, false, true, 30), 2060);
    assert_int_equal(step("custom_dyna_sequence_int32", 1000, NULL, true, true, 5), 1005);
    (void)state;
}

/* ---- configurations that these backends refuse ---- */

static void refuses(const char *config, const char *reason)
{
    char folder[PROA_PATH_MAX];
    proa_server *s;
    repo_make(folder);
    repo_write(folder, "m/config.pbtxt", "%s", config);
    repo_write(folder, "m/1/x", "x");
    const char *const folders[] = {folder};
    proa_server_options o = {.repositories = folders, .repositories_count = 1, .backends = proa_backends};
    assert_int_equal(proa_server_new(&s, &o, NULL), PROA_OK);
    char want[512];
    snprintf(want, sizeof want, "m:1:UNAVAILABLE(Invalid argument: %.450s)", reason);
    assert_string_equal(repo_index(s), want);
    assert_true(proa_server_stop(s, 5000));
    proa_server_free(s);
    repo_remove(folder);
}

#define IN(name, type, dims)  "input { name: \"" name "\" data_type: TYPE_" type " dims: [ " dims " ] } "
#define OUT(name, type, dims) "output { name: \"" name "\" data_type: TYPE_" type " dims: [ " dims " ] } "

static void test_refusals(void **state)
{
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1") IN("INPUT1", "FP32", "1")
                OUT("OUTPUT0", "FP32", "1"),
            "model configuration must have equal input/output pairs");
    refuses("backend: \"identity\" " IN("X", "FP32", "1") OUT("OUTPUT0", "FP32", "1"),
            "expected input name to follow INPUT<index> pattern, got 'X'");
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1") OUT("Y", "FP32", "1"),
            "expected output name to follow OUTPUT<index> pattern, got 'Y'");
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1") OUT("OUTPUT1", "FP32", "1"),
            "expected input and output indices to match");
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1") OUT("OUTPUT0", "INT8", "1"),
            "expected input and output datatype to match, got TYPE_FP32 and TYPE_INT8");
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1, -1") OUT("OUTPUT0", "FP32", "2"),
            "expected input and output shape to match, got [1,-1] and [2]");
    refuses("backend: \"identity\" " IN("INPUT0", "FP32", "1")
                OUT("OUTPUT0", "FP32",
                    "1") "parameters { key: \"execute_delay_ms\" value { string_value: \"soon\" } }",
            "parameter 'execute_delay_ms' of model 'm' must be a number from 0 to 3600000, got 'soon'");
    refuses("backend: \"add_sub\" " IN("INPUT0", "BOOL", "1") IN("INPUT1", "BOOL", "1")
                OUT("OUTPUT0", "BOOL", "1") OUT("OUTPUT1", "BOOL", "1"),
            "add_sub cannot add TYPE_BOOL");
    refuses("backend: \"repeat\" max_batch_size: 2 " IN("IN", "INT32", "1") OUT("OUT", "INT32", "1"),
            "repeat backend only supports models with max_batch_size == 0");
    refuses("backend: \"repeat\" " IN("IN", "INT32", "1") OUT("OUT", "INT32", "1"),
            "expected 3 inputs, got 1");
    refuses("backend: \"square\" " IN("IN", "INT64", "1") OUT("OUT", "INT32", "1"),
            "expected IN datatype to be INT32, got TYPE_INT64");
    refuses("backend: \"square\" " IN("IN", "INT32", "2") OUT("OUT", "INT32", "1"),
            "expected IN shape to be [1], got [2]");
    refuses("backend: \"sequence\" " IN("INPUT", "INT32", "1") OUT("OUTPUT", "INT32", "1"),
            "model configuration must have sequence_batching");
    (void)state;
}

int main(void)
{
    proa_log_settings quiet;
    proa_log_get(&quiet);
    quiet.error = quiet.warning = quiet.info = getenv("PROA_TEST_LOG") != NULL;
    (void)proa_log_set(&quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_identity_ensemble),
        cmocka_unit_test(test_identity_optional),
        cmocka_unit_test(test_identity_slow),
        cmocka_unit_test(test_add_sub),
        cmocka_unit_test(test_add_sub_strings),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_repeat_errors),
        cmocka_unit_test(test_square),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
