/* SPDX-License-Identifier: Apache-2.0
 * test_trace.c - traces: which requests are sampled, what a trace says, one file or numbered ones, and that they are
 * whole JSON. */
#include "api/trace.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

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
        .file = file, .level = level, .rate = rate, .count = count, .log_frequency = frequency};
    unlink(file);
    api.settings = proa_settings_new(&o);
}

static void requests(int count, const char *model)
{
    for (int i = 0; i < count; i++) {
        void *data;
        proa_infer *r = proa_infer_new();
        r->model_name = model;
        r->id = i == 0 ? "a\"b" : "";
        r->times = (proa_infer_times){.received = 100, .queued = 200, .compute_start = 300, .compute_end = 400};
        proa_tensor *t = proa_infer_add_input(r, proa_str_c("IN"));
        t->type = PROA_TYPE_INT32, t->rank = 2, t->shape[0] = 1, t->shape[1] = 2;
        t->buffer = proa_buffer_new(8);
        memcpy(t->buffer->data, (int32_t[]){7, -8}, 8);
        t->data = t->buffer->data, t->bytes = 8;
        proa_reply *reply = proa_reply_new(r);
        reply->model_version = 3;
        static const int64_t shape[] = {1};
        proa_reply_add_array(reply, "OUT", PROA_TYPE_FP32, shape, 1, &data);
        memcpy(data, (float[]){0.5F}, 4);
        if (proa_trace_on()) proa_trace_note(r, reply);
        proa_reply_free(reply);
        proa_infer_drop(r);
    }
}

/* The elements of a file; -1 if there is none. */
static int64_t read_file(proa_json **root, const char *path)
{
    *root = NULL;
    if (!proa_file_exists(path)) return -1;
    assert_int_equal(proa_json_load(root, path, 1 << 20, NULL), PROA_OK);
    return proa_json_len(*root);
}

static void elements(const char *path, int64_t want)
{
    proa_json *root;
    assert_int_equal(read_file(&root, path), want);
    proa_json_free(root);
    unlink(path);
}

static void test_what_a_trace_says(void **state)
{
    proa_json *root;
    open_settings(PROA_TRACE_TIMESTAMPS | PROA_TRACE_TENSORS, 1, 0, 0);
    assert_true(proa_trace_on());
    requests(1, "m");
    proa_settings_free(api.settings);
    assert_false(proa_trace_on());
    assert_int_equal(read_file(&root, file), 4);
    const proa_json *head = proa_json_at(root, 0),
                    *times = proa_json_get(proa_json_at(root, 1), "timestamps");
    assert_true(proa_str_is(proa_json_str(proa_json_get(head, "model_name")), "m"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(head, "request_id")), "a\"b"));
    assert_int_equal(proa_json_int(proa_json_get(head, "model_version")), 3);
    assert_int_equal(proa_json_len(times), 5); /* those that were reached, and the end */
    assert_true(proa_str_is(proa_json_str(proa_json_get(proa_json_at(times, 1), "name")), "QUEUE_START"));
    assert_int_equal(proa_json_int(proa_json_get(proa_json_at(times, 1), "ns")), 200);
    const proa_json *in = proa_json_get(proa_json_at(root, 2), "tensor");
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "data")), "7,-8"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "shape")), "1,2"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(in, "dtype")), "INT32"));
    const proa_json *out = proa_json_at(root, 3);
    assert_true(proa_str_is(proa_json_str(proa_json_get(out, "activity")), "TENSOR_BACKEND_OUTPUT"));
    assert_true(proa_str_is(proa_json_str(proa_json_get(proa_json_get(out, "tensor"), "data")), "0.5"));
    proa_json_free(root);
    unlink(file);
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
    elements(file, 6); /* three traces of two elements */
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
        elements(path, i < 2 ? 4 : 2);
    }
    (void)state;
}

/* More than is kept back: pieces of one file make one list. */
static void test_large_file(void **state)
{
    open_settings(PROA_TRACE_TIMESTAMPS, 1, 0, 0);
    requests(2000, "m");
    proa_settings_free(api.settings);
    elements(file, 4000);
    (void)state;
}

static void test_a_file_that_cannot_be(void **state)
{
    proa_api_options o = {.trace = {.file = "/no/such/folder/t", .level = PROA_TRACE_TIMESTAMPS, .rate = 1}};
    api.settings = proa_settings_new(&o);
    requests(3, "m");
    proa_settings_free(api.settings);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_trace_says),  cmocka_unit_test(test_rate_and_count),
        cmocka_unit_test(test_off_writes_nothing), cmocka_unit_test(test_numbered_files),
        cmocka_unit_test(test_large_file),         cmocka_unit_test(test_a_file_that_cannot_be),
    };
    snprintf(file, sizeof file, "/tmp/proa-test-trace-%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
