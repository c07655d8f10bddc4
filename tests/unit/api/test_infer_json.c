/* SPDX-License-Identifier: Apache-2.0
 * test_infer_json.c - requests and replies of inference as JSON with blobs: order of members, where tensors point,
 * every rule with its text, the order of keys of a reply, and floats that read back as themselves. */
#include "api/http/infer_json.h"
#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static proa_err err;
static proa_infer *r;
static proa_infer_text text;
static proa_buffer *body;

static void nothing(void *arg)
{
    (void)arg;
}

static proa_status region(void *arg, const char *name, uint64_t offset, uint64_t bytes, proa_buffer **out,
                          proa_err *e)
{
    static char memory[64];
    (void)arg;
    if (strcmp(name, "shm") != 0)
        return PROA_FAIL(e, NOT_FOUND, "Unable to find shared memory region: '%s'", name);
    *out = proa_buffer_wrap(memory + offset, bytes, nothing, NULL);
    return PROA_OK;
}

static void done(void)
{
    proa_infer_drop(r);
    proa_buffer_drop(body);
    r = NULL, body = NULL;
}

/* Reads JSON with blobs behind it. */
static proa_status read_as(const char *json, const char *blobs, size_t blobs_len, bool strict)
{
    static char memory[4096];
    size_t len = strlen(json);
    assert_true(len + blobs_len < sizeof memory);
    if (r) done();
    memcpy(memory, json, len);
    if (blobs_len) memcpy(memory + len, blobs, blobs_len);
    memory[len + blobs_len] = 0;
    proa_err_clear(&err);
    r = proa_infer_new();
    r->model_name = "M";
    body = proa_buffer_wrap(memory, len + blobs_len, nothing, NULL);
    text = (proa_infer_text){.json = {memory, len},
                             .blobs = {memory + len, blobs_len},
                             .body = body,
                             .strict = strict,
                             .bytes_max = 1 << 20,
                             .region = region};
    return proa_infer_json_read(&text, r, &err);
}

static void ok(const char *json, const char *blobs, size_t blobs_len)
{
    if (read_as(json, blobs, blobs_len, false) != PROA_OK) fail_msg("%s: %s", json, err.text);
}

static void refused(const char *json, proa_status status, const char *want)
{
    assert_int_equal(read_as(json, NULL, 0, false), status);
    assert_string_equal(err.text, want);
}

static void test_blobs_lie_in_the_body(void **state)
{
    ok("{\"id\":\"7\",\"inputs\":[{\"name\":\"A\",\"shape\":[1,2],\"datatype\":\"FP32\",\"parameters\":{"
       "\"binary_data_size\":8}},"
       "{\"name\":\"B\",\"shape\":[3],\"datatype\":\"UINT8\",\"parameters\":{\"binary_data_size\":3}},"
       "{\"name\":\"Z\",\"shape\":[0],\"datatype\":\"UINT8\",\"parameters\":{\"binary_data_size\":0}}],"
       "\"outputs\":[{\"name\":\"O\",\"parameters\":{\"binary_data\":true}},{\"name\":\"C\",\"parameters\":{"
       "\"classification\":3}}]}",
       "\0\0\x80\x3f\0\0\0\x40xyz", 11);
    assert_string_equal(r->id, "7");
    assert_int_equal(r->inputs_count, 3);
    const proa_tensor *a = proa_infer_input(r, "A"), *b = proa_infer_input(r, "B"),
                      *z = proa_infer_input(r, "Z");
    assert_ptr_equal(a->data, text.json.ptr + text.json.len);
    assert_ptr_equal(b->data, a->data + 8);
    assert_ptr_equal(a->buffer, body);
    assert_int_equal(atomic_load(&body->refs), 3);
    assert_int_equal(a->type, PROA_TYPE_FP32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 2);
    assert_null(z->buffer);
    assert_int_equal(z->bytes, 0);
    assert_int_equal(text.wants_count, 2);
    assert_true(text.wants[0].binary);
    assert_int_equal(text.wants[1].classes, 3);
    assert_false(text.wants[1].binary);
    assert_string_equal(r->outputs[1], "C");
    assert_false(text.binary_default);
    done();
    (void)state;
}

static void test_members_in_any_order(void **state)
{
    ok("{\"outputs\":[],\"other\":{\"x\":[1,{}]},\"inputs\":[{\"data\":[[1,2],[3,4]],\"extra\":null,"
       "\"parameters\":{\"k\":1},"
       "\"datatype\":\"INT32\",\"name\":\"A\",\"shape\":[2,2]}],\"parameters\":{\"binary_data_output\":true,"
       "\"sequence_id\":5,"
       "\"sequence_start\":true,\"priority\":2,\"timeout\":1000,\"mine\":\"x\",\"n\":-3,\"f\":0.5,\"b\":"
       "false,"
       "\"u\":18446744073709551615},\"id\":\"\"}",
       NULL, 0);
    static const int32_t want[] = {1, 2, 3, 4};
    assert_memory_equal(proa_infer_input(r, "A")->data, want, sizeof want);
    assert_true(text.binary_default);
    assert_int_equal(r->sequence_id, 5);
    assert_true(r->sequence_start && !r->sequence_end);
    assert_int_equal(r->priority, 2);
    assert_int_equal(r->timeout_us, 1000);
    assert_int_equal(r->params_count, 5);
    assert_int_equal(proa_infer_find_param(r, "n")->i, -3);
    assert_true(proa_str_is(proa_infer_find_param(r, "mine")->s, "x"));
    assert_true(proa_infer_find_param(r, "f")->d == 0.5);
    assert_int_equal(proa_infer_find_param(r, "b")->kind, PROA_PARAM_BOOL);
    assert_int_equal(proa_infer_find_param(r, "u")->kind, PROA_PARAM_UINT);
    done();
    (void)state;
}

static void test_string_sequence_and_regions(void **state)
{
    ok("{\"parameters\":{\"sequence_id\":\"abc\"},\"inputs\":[{\"name\":\"A\",\"shape\":[4],\"datatype\":"
       "\"UINT8\",\"parameters\":"
       "{\"shared_memory_region\":\"shm\",\"shared_memory_offset\":8,\"shared_memory_byte_size\":4}}],"
       "\"outputs\":[{\"name\":\"O\",\"parameters\":{\"shared_memory_region\":\"out\",\"shared_memory_byte_"
       "size\":16}}]}",
       NULL, 0);
    assert_string_equal(r->sequence_name, "abc");
    assert_int_equal(r->sequence_id, 0);
    assert_int_equal(r->inputs[0].bytes, 4);
    assert_string_equal(text.wants[0].shm_region, "out");
    assert_int_equal(text.wants[0].shm_bytes, 16);
    done();
    (void)state;
}

#define ONE "\"name\":\"A\",\"shape\":[1],\"datatype\":\"INT32\""
#define ONLY                                                                                                 \
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "          \
    "'shared_memory_region' in 'parameters'. But"
#define NO_MEMBER(what, name)                                                                                \
    "Unable to parse '" what "': attempt to access non-existing object member '" name "'"

static void test_refusals(void **state)
{
    static const struct {
        const char *json, *want;
    } bad[] = {
        {"", "failed to parse the request JSON buffer: The document is empty. at 0"},
        {"{}", NO_MEMBER("inputs", "inputs")},
        {"[]", NO_MEMBER("inputs", "inputs")},
        {"{\"inputs\":{}}", "Unable to parse 'inputs': attempt to access JSON non-array as array"},
        {"{\"inputs\":[3]}", "Unable to parse 'inputs': attempt to access JSON non-object as object"},
        {"{\"inputs\":[{}]}", NO_MEMBER("name", "name")},
        {"{\"inputs\":[{\"name\":\"A\"}]}", NO_MEMBER("datatype", "datatype")},
        {"{\"inputs\":[{\"name\":\"A\",\"datatype\":\"INT32\"}]}", NO_MEMBER("shape", "shape")},
        {"{\"inputs\":[{\"name\":1}]}",
         "Unable to parse 'name': attempt to access JSON non-string as string"},
        {"{\"inputs\":[{\"shape\":[-1]}]}",
         "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"},
        {"{\"inputs\":[{" ONE "}]}", ONLY " no field is set"},
        {"{\"inputs\":[{" ONE ",\"data\":[1],\"parameters\":{\"binary_data_size\":4}}]}",
         ONLY " set 'data' 'binary_data_size'"},
        {"{\"inputs\":[{" ONE ",\"data\":[1],\"parameters\":{\"shared_memory_region\":\"r\"}}]}",
         ONLY " set 'data' 'shared_memory_region'"},
        {"{\"inputs\":[{" ONE ",\"data\":3}]}",
         "Unable to parse 'data': attempt to access JSON non-array as array"},
        {"{\"inputs\":[{" ONE ",\"data\":[1],\"data\":[1]}]}", "JSON member 'data' is given twice"},
        {"{\"inputs\":[],\"inputs\":[]}", "JSON member 'inputs' is given twice"},
        {"{\"inputs\":[{" ONE ",\"parameters\":{\"binary_data_size\":4}}]}",
         "unexpected size for input 'A', expecting 4 additional bytes for model 'M'"},
        {"{\"inputs\":[{" ONE ",\"parameters\":{\"binary_data_size\":-4}}]}",
         "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as "
         "unsigned-integer"},
        {"{\"inputs\":[{\"name\":\"A\",\"shape\":[4294967296,4294967296],\"datatype\":\"INT8\",\"data\":[1]}]"
         "}",
         "invalid shape for input 'A': shape [4294967296,4294967296] causes total element count to exceed "
         "maximum size of "
         "9223372036854775807"},
        {"{\"inputs\":[],\"id\":3}", "Unable to parse 'id': attempt to access JSON non-string as string"},
        {"{\"inputs\":[],\"parameters\":{\"triton_x\":1}}",
         "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."},
        {"{\"inputs\":[],\"parameters\":{\"x\":[]}}",
         "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'."},
        {"{\"inputs\":[],\"parameters\":{\"sequence_id\":-1}}",
         "Unable to parse 'sequence_id': attempt to access JSON non-string as string"},
        {"{\"inputs\":[],\"parameters\":{\"sequence_start\":1}}",
         "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean"},
        {"{\"inputs\":[],\"parameters\":{\"timeout\":\"1\"}}",
         "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer"},
        {"{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{\"shared_memory_region\":\"r\","
         "\"classification\":1}}]}",
         "Output can't set both 'shared_memory_region' and 'classification'"},
        {"{\"inputs\":[],\"outputs\":[{\"name\":\"O\",\"parameters\":{\"shared_memory_region\":\"r\","
         "\"binary_data\":true}}]}",
         "Output can't set both 'shared_memory_region' and 'binary_data'"},
        {"{\"inputs\":[],\"outputs\":[{}]}", NO_MEMBER("name", "name")},
        {"{\"inputs\":[]} x",
         "failed to parse the request JSON buffer: The document root must not be followed by other "
         "values. at 14"},
    };
    for (size_t i = 0; i < PROA_COUNT(bad); i++) refused(bad[i].json, PROA_INVALID, bad[i].want);
    refused("{\"inputs\":[{" ONE ",\"parameters\":{\"shared_memory_region\":\"none\"}}]}", PROA_NOT_FOUND,
            "Unable to find shared memory region: 'none'");
    assert_int_equal(read_as("{\"inputs\":[]}", "abc", 3, false), PROA_INVALID);
    assert_string_equal(err.text, "unexpected additional input data for model 'M'");
    refused("{\"inputs\":[{" ONE ",\"data\":[1]},{" ONE ",\"data\":[1]}],\"id\":\"7\"}", PROA_INVALID,
            "[request id: 7] input 'A' already exists in request");
    assert_int_equal(read_as("{", NULL, 0, true), PROA_INTERNAL);
    done();
    (void)state;
}

static void test_limits(void **state)
{
    static char json[64 * 1024];
    int n = snprintf(json, sizeof json, "{\"inputs\":[{" ONE ",\"data\":[1]}],\"id\":\"");
    memset(json + n, 'x', 2000);
    snprintf(json + n + 2000, 8, "\"}");
    r = proa_infer_new();
    r->model_name = "M";
    proa_infer_text t = {.json = proa_str_c(json), .bytes_max = 1000};
    proa_err_clear(&err);
    assert_int_equal(proa_infer_json_read(&t, r, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, " bytes exceeds the maximum allowed input size of 1000 bytes. Use "
                                     "--http-max-input-size to increase the limit."));
    proa_infer_drop(r);
    r = NULL;
    refused("{\"inputs\":[{\"name\":\"A\",\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"datatype\":"
            "\"INT8\",\"data\":[1]}]}",
            PROA_LIMIT, "a shape has more than 16 dimensions");
    n = snprintf(json, sizeof json, "{\"inputs\":[");
    done();
    for (int i = 0; i <= PROA_TENSORS_PER_REQUEST_MAX; i++)
        n += snprintf(json + n, sizeof json - (size_t)n,
                      "%s{\"name\":\"\",\"shape\":[0],\"datatype\":\"\",\"data\":[]}", i ? "," : "");
    snprintf(json + n, sizeof json - (size_t)n, "]}");
    r = proa_infer_new();
    r->model_name = "M";
    t = (proa_infer_text){.json = proa_str_c(json), .bytes_max = 1 << 20};
    proa_err_clear(&err);
    assert_int_equal(proa_infer_json_read(&t, r, &err), PROA_LIMIT);
    proa_infer_drop(r);
    r = NULL;
    (void)state;
}

/* ---- replies ---- */

static void test_reply(void **state)
{
    proa_buf out;
    proa_reply_text reply_text = {.json = &out};
    void *data;
    static const int64_t shape[] = {1, 3};
    r = proa_infer_new();
    r->model_name = "M";
    r->id = "a\"b";
    proa_reply *reply = proa_reply_new(r);
    reply->model_version = 3;
    proa_infer_param *p = proa_reply_add_param(reply, "k");
    p->kind = PROA_PARAM_DOUBLE, p->d = 0.25;
    proa_reply_add_array(reply, "F", PROA_TYPE_FP32, shape, 2, &data);
    memcpy(data, (const float[]){1, 0.1F, NAN}, 12);
    proa_reply_add_array(reply, "B", PROA_TYPE_INT8, shape, 2, &data);
    memcpy(data, "\x80\x01\x7f", 3);
    proa_reply_add_strings(reply, "S", (const proa_str[]){{"x\n", 2}, {"\xff", 1}}, 2);
    proa_reply_add_array(reply, "M", PROA_TYPE_BOOL, shape, 2, &data);
    memcpy(data, "\0\1\0", 3);
    static const proa_output_want wants[] = {{.name = "B", .binary = true}, {.name = "M", .shm_region = "r"}};
    proa_buf_init(&out, 1 << 20);
    proa_err_clear(&err);
    assert_int_equal(proa_reply_json_write(&reply_text, reply, wants, 2, false, &err), PROA_OK);
    assert_string_equal(
        out.ptr,
        "{\"id\":\"a\\\"b\",\"model_name\":\"M\",\"model_version\":\"3\",\"parameters\":{\"k\":0.25},"
        "\"outputs\":["
        "{\"name\":\"F\",\"datatype\":\"FP32\",\"shape\":[1,3],\"data\":[1.0,0.1,NaN]},"
        "{\"name\":\"B\",\"datatype\":\"INT8\",\"shape\":[1,3],\"parameters\":{\"binary_data_size\":3}},"
        "{\"name\":\"S\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"x\\n\",\"\xef\xbf\xbd\"]},"
        "{\"name\":\"M\",\"datatype\":\"BOOL\",\"shape\":[1,3]}]}");
    assert_int_equal(reply_text.blobs_count, 1);
    assert_ptr_equal(reply_text.blobs[0], proa_reply_output(reply, "B"));
    proa_buf_clear(&out);
    proa_reply_add_array(reply, "H", PROA_TYPE_FP16, shape, 2, &data);
    assert_int_equal(proa_reply_json_write(&reply_text, reply, wants, 2, false, &err), PROA_INVALID);
    assert_string_equal(
        err.text,
        "sending FP16 data via JSON is not supported. Please use the binary data format for output");
    proa_buf_release(&out);
    proa_reply_free(reply);
    proa_infer_drop(r);
    r = NULL;
    (void)state;
}

static void test_wrong_reply(void **state)
{
    proa_buf out;
    proa_tensor t = {
        .name = "T", .type = PROA_TYPE_INT32, .rank = 1, .shape = {3}, .data = "\0\0\0\0\0\0\0\0", .bytes = 8};
    proa_buf_init(&out, 1 << 20);
    proa_err_clear(&err);
    assert_int_equal(proa_tensor_json(&out, &t, false, &err), PROA_INTERNAL);
    assert_string_equal(
        err.text, "Failed to write 'data' field: output tensor shape does not match size of output for 'T'");
    t.type = PROA_TYPE_BYTES;
    proa_err_clear(&err);
    assert_int_equal(proa_tensor_json(&out, &t, false, &err), PROA_INTERNAL);
    assert_string_equal(err.text, "output tensor shape does not match size of output for 'T'");
    proa_buf_release(&out);
    (void)state;
}

static void number_is(double value, bool single, const char *want)
{
    proa_buf out;
    proa_buf_init(&out, 1 << 10);
    if (single) proa_float_json(&out, (float)value);
    else proa_double_json(&out, value);
    assert_string_equal(out.ptr, want);
    proa_buf_release(&out);
}

static void test_numbers(void **state)
{
    number_is(0, true, "0.0");
    number_is(-0.0, true, "-0.0");
    number_is((double)0.1F, true, "0.1");
    number_is(16777216, true, "16777216.0");
    number_is(1e20, true, "100000000000000000000.0");
    number_is((double)1e22F, true, "1e22");
    number_is((double)3.4028235e38F, true, "3.4028235e38");
    number_is((double)1e-45F, true, "1e-45");
    number_is((double)1.5e-7F, true, "1.5e-7");
    number_is((double)-INFINITY, true, "-Infinity");
    number_is(0.1, false, "0.1");
    number_is(0.30000000000000004, false, "0.30000000000000004");
    number_is(123456789012345678.0, false, "123456789012345680.0");
    number_is(1.7976931348623157e308, false, "1.7976931348623157e308");
    number_is(-2.5e-8, false, "-2.5e-8");
    (void)state;
}

static int digits_of(const char *c)
{
    int digits = 0, zeros = 0;
    for (; *c && *c != 'e'; c++) {
        if (*c < '0' || *c > '9') continue;
        if (*c != '0') digits += 1 + (digits ? zeros : 0), zeros = 0;
        else zeros++;
    }
    return digits;
}

/* What is written has at most nine digits and reads back as the same float32, directly and through a double. */
static void test_floats_read_back(void **state)
{
    proa_buf out;
    uint64_t x = 88172645463325252U;
    proa_buf_init(&out, 1 << 10);
    for (int i = 0; i < 300000; i++) {
        float f;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint32_t bits = (uint32_t)x;
        if (i % 7 == 0) bits &= 0xff800000;  /* powers of two */
        if (i % 11 == 0) bits &= 0x807fffff; /* the smallest */
        memcpy(&f, &bits, sizeof f);
        if (!isfinite(f)) continue;
        proa_buf_clear(&out);
        proa_float_json(&out, f);
        assert_true(strtof(out.ptr, NULL) == f && (float)strtod(out.ptr, NULL) == f);
        assert_true(digits_of(out.ptr) <= 9);
    }
    for (int i = 1; i < 100000; i++) { /* five digits stay five digits */
        char want[32];
        proa_buf_clear(&out);
        proa_float_json(&out, (float)i / 1000);
        snprintf(want, sizeof want, "%.3f", i / 1000.0);
        for (char *end = want + strlen(want) - 1; *end == '0' && end[-1] != '.'; end--) *end = 0;
        assert_string_equal(out.ptr, want);
    }
    proa_buf_release(&out);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blobs_lie_in_the_body),
        cmocka_unit_test(test_members_in_any_order),
        cmocka_unit_test(test_string_sequence_and_regions),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_reply),
        cmocka_unit_test(test_wrong_reply),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_floats_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
