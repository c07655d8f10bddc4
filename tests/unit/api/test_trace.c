/* SPDX-License-Identifier: Apache-2.0
 * test_trace.c - traces: which requests are sampled, what a trace says, one file or numbered ones, and that they are
 * whole JSON; W3C's trace context. */
#include "api/trace.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "serve/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static proa_api api;
static char file[64];

static void open_settings(unsigned level, int64_t rate, int64_t count, int64_t frequency)
{
    static proa_api_options o;
    o.trace = (proa_trace_options){
        .level = level, .rate = rate, .count = count, .log_frequency = frequency, .to = {.file = file}};
    unlink(file);
    assert_int_equal(proa_settings_new(&api.settings, &o, NULL), PROA_OK);
}

static void take_reply(proa_infer *r, proa_reply *reply, bool final)
{
    (void)r, (void) final;
    proa_reply_free(reply);
}

/* As a front end and a scheduler do it. parent: the request is a step of that one; NULL: a client's. */
static proa_infer *begin_request(const char *model, const char *id, const proa_infer *parent)
{
    proa_infer *r = proa_infer_new();
    r->model_name = model;
    r->id = id;
    r->on_reply = take_reply;
    if (parent) proa_trace_add(parent, r);
    else if (proa_trace_on()) {
        r->origin = PROA_ARENA_NEW(&r->arena, proa_trace_origin, 1);
        r->origin->received_ns = 50;
        r->origin->read_ns = 60;
        proa_trace_sample(r);
    }
    r->times = (proa_infer_times){
        .received = 100, .queued = 200, .compute_start = 300, .compute_end = 400, .ended = INT64_MAX};
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("IN"));
    t->type = PROA_TYPE_INT32, t->rank = 2, t->shape[0] = 1, t->shape[1] = 2;
    t->buffer = proa_buffer_new(8);
    memcpy(t->buffer->data, (int32_t[]){7, -8}, 8);
    t->data = t->buffer->data, t->bytes = 8;
    return r;
}

static void end_request(proa_infer *r)
{
    static const int64_t shape[] = {1};
    void *data;
    proa_reply *reply = proa_reply_new(r);
    proa_reply_add_array(reply, "OUT", PROA_TYPE_FP32, shape, 1, &data);
    memcpy(data, (float[]){0.5F}, 4);
    proa_infer_hold(r);
    proa_infer_deliver(r, reply, true);
    proa_infer_drop(r);
}

static void requests(int count, const char *model)
{
    for (int i = 0; i < count; i++) end_request(begin_request(model, i == 0 ? "a\"b" : "", NULL));
}

/* The elements of a file; -1 if there is none. */
static int64_t read_file(proa_json **root, const char *path)
{
    *root = NULL;
    if (!proa_file_exists(path)) return -1;
    assert_int_equal(proa_json_load(root, path, 8 << 20, NULL), PROA_OK);
    return proa_json_len(*root);
}

static void elements(const char *path, int64_t want)
{
    proa_json *root;
    assert_int_equal(read_file(&root, path), want);
    proa_json_free(root);
    unlink(path);
}

static const proa_json *entry_with(const proa_json *root, int64_t at, const char *member)
{
    const proa_json *value = proa_json_get(proa_json_at(root, at), member);
    assert_non_null(value);
    return value;
}

static void expect_time(const proa_json *root, int64_t at, const char *name, int64_t ns)
{
    const proa_json *times = entry_with(root, at, "timestamps");
    assert_int_equal(proa_json_len(times), 1);
    assert_true(proa_str_is(proa_json_str(proa_json_get(proa_json_at(times, 0), "name")), name));
    if (ns) assert_int_equal(proa_json_int(proa_json_get(proa_json_at(times, 0), "ns")), ns);
}

static void test_what_a_trace_says(void **state)
{
    static const char *const names[] = {"HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE",
                                        "REQUEST_START",   "QUEUE_START",   "COMPUTE_START",
                                        "COMPUTE_END",     "REQUEST_END"};
    static const int64_t want[] = {50, 60, 0, 0, 200, 300, 400, INT64_MAX};
    proa_json *root;
    open_settings(PROA_TRACE_TIMESTAMPS | PROA_TRACE_TENSORS, 1, 0, 0);
    assert_true(proa_trace_on());
    assert_true(proa_trace_shows_tensors());
    requests(1, "m");
    proa_settings_free(api.settings);
    assert_false(proa_trace_on());
    assert_int_equal(read_file(&root, file), 11);
    assert_true(proa_str_is(proa_json_str(entry_with(root, 0, "model_name")), "m"));
    assert_true(proa_str_is(proa_json_str(entry_with(root, 0, "request_id")), "a\"b"));
    assert_int_equal(proa_json_int(entry_with(root, 0, "model_version")), -1);
    for (int i = 0; i < 8; i++) expect_time(root, 1 + i, names[i], want[i]);
    const proa_json *in = entry_with(root, 9, "tensor");
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "data")), "7,-8"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "shape")), "1,2"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "dtype")), "INT32"));
    assert_true(proa_str_is(proa_json_str(entry_with(root, 10, "activity")), "TENSOR_BACKEND_OUTPUT"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(entry_with(root, 10, "tensor"), "data")), "0.5"));
    proa_json_free(root);
    unlink(file);
    (void)state;
}

/* A step may outlive the request that led to it; the trace then waits for it. */
static void test_steps(void **state)
{
    proa_json *root;
    open_settings(PROA_TRACE_TENSORS, 1, 0, 0);
    proa_infer *parent = begin_request("ensemble", "", NULL), *refused = begin_request("b", "", parent),
               *step = begin_request("a", "", parent);
    proa_infer_drop(refused);
    end_request(parent);
    end_request(step);
    proa_settings_free(api.settings);
    assert_int_equal(read_file(&root, file), 7); /* three heads, two times two tensors */
    int64_t id = proa_json_int(entry_with(root, 0, "id"));
    assert_null(proa_json_get(proa_json_at(root, 0), "parent_id"));
    assert_int_equal(proa_json_int(entry_with(root, 3, "parent_id")), id);
    assert_int_equal(proa_json_int(entry_with(root, 4, "parent_id")), id);
    assert_true(proa_str_is(proa_json_str(entry_with(root, 4, "model_name")), "a"));
    proa_json_free(root);
    unlink(file);
    (void)state;
}

/* A request that ends after the server's api is closed is lost, and nothing else. */
static void test_late_request(void **state)
{
    open_settings(PROA_TRACE_TIMESTAMPS, 1, 0, 0);
    requests(1, "m");
    proa_infer *late = begin_request("m", "", NULL);
    proa_settings_free(api.settings);
    end_request(late);
    elements(file, 9);
    (void)state;
}

static void test_contexts(void **state)
{
    static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    static const char *const bad[] = {"",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                                      "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                      "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                      "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                      "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                                      "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
                                      "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
    proa_trace_context c;
    assert_true(proa_trace_context_read(&c, proa_str_c(good)));
    assert_int_equal(c.trace_id[0], 0x0a);
    assert_int_equal(c.trace_id[15], 0x9c);
    assert_int_equal(c.span_id[7], 0x31);
    assert_int_equal(c.flags, 1);
    assert_true(proa_trace_context_read(
        &c, proa_str_c("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more")));
    assert_int_equal(c.flags, 0);
    for (size_t i = 0; i < PROA_COUNT(bad); i++)
        assert_false(proa_trace_context_read(&c, proa_str_c(bad[i])));
    char out[PROA_TRACEPARENT_BYTES];
    proa_trace trace = {.refs = 1};
    proa_trace_span span = {.trace = &trace, .span_id = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}};
    assert_true(proa_trace_context_read(&trace.context, proa_str_c(good)));
    proa_trace_context_print(out, &span);
    assert_string_equal(out, good);
    (void)state;
}

static void test_rate_and_count(void **state)
{
    open_settings(PROA_TRACE_TIMESTAMPS, 10, 3, 0);
    requests(25, "m");
    Inference__TraceSettingResponse *left;
    proa_arena arena;
    proa_arena_init(&arena);
    assert_int_equal(proa_trace_get(&api, "", &left, &arena, NULL), PROA_OK);
    assert_string_equal(left->settings[2]->key, "trace_count");
    assert_string_equal(left->settings[2]->value->value[0], "1");
    proa_arena_release(&arena);
    requests(75, "m");
    proa_settings_free(api.settings);
    assert_false(proa_file_exists(file));
    char path[80];
    snprintf(path, sizeof path, "%s.0", file); /* as Triton does when the count is used up */
    elements(path, 27);                        /* three traces of nine elements */
    (void)state;
}

static void test_off_writes_nothing(void **state)
{
    open_settings(0, 1, 0, 0);
    assert_false(proa_trace_on());
    requests(3, "m");
    proa_settings_free(api.settings);
    assert_false(proa_file_exists(file));
    (void)state;
}

static void test_numbered_files(void **state)
{
    char path[80];
    open_settings(PROA_TRACE_TIMESTAMPS, 1, 0, 2);
    requests(5, "m");
    proa_settings_free(api.settings);
    assert_false(proa_file_exists(file));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s.%d", file, i);
        elements(path, i < 2 ? 18 : 9);
    }
    (void)state;
}

/* More than is kept back: pieces of one file make one list. */
static void test_large_file(void **state)
{
    open_settings(PROA_TRACE_TIMESTAMPS, 1, 0, 0);
    requests(2000, "m");
    proa_settings_free(api.settings);
    elements(file, 18000);
    (void)state;
}

static void test_a_file_that_cannot_be(void **state)
{
    proa_api_options o = {
        .trace = {.level = PROA_TRACE_TIMESTAMPS, .rate = 1, .to = {.file = "/no/such/folder/t"}}};
    assert_int_equal(proa_settings_new(&api.settings, &o, NULL), PROA_OK);
    requests(3, "m");
    proa_settings_free(api.settings);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_trace_says),
        cmocka_unit_test(test_rate_and_count),
        cmocka_unit_test(test_off_writes_nothing),
        cmocka_unit_test(test_numbered_files),
        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_a_file_that_cannot_be),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_late_request),
        cmocka_unit_test(test_contexts),
    };
    snprintf(file, sizeof file, "/tmp/proa-test-trace-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
