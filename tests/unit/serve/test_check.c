/* SPDX-License-Identifier: Apache-2.0
 * test_check.c - each text with which a request is refused, byte for byte as Triton writes it, and what is let
 * through. */
#include "base/limits.h"
#include "serve/models/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define NOTE                                                                                                 \
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "          \
    "prepended "                                                                                             \
    "to each input shape. If you want to specify the full shape including the batch dim in your input dims " \
    "config, try setting max_batch_size to zero. See the model configuration docs for more info on "         \
    "max_batch_size."

static proa_io ios[8], outs[2];
static proa_served_model model;

/* A model M with batch_max and the inputs of `spec`: "a FP32 -1,16; b? BYTES -1,1" (? is optional). */
static void make(int batch_max, const char *spec)
{
    memset(ios, 0, sizeof ios);
    outs[0] = (proa_io){.name = "OUT0"};
    outs[1] = (proa_io){.name = "OUT1"};
    model = (proa_served_model){
        .name = "M", .batch_max = batch_max, .inputs = ios, .outputs = outs, .outputs_count = 2};
    static char text[256];
    snprintf(text, sizeof text, "%s", spec);
    char *save = NULL;
    for (char *part = strtok_r(text, ";", &save); part; part = strtok_r(NULL, ";", &save)) {
        proa_io *io = &ios[model.inputs_count++];
        char *inner = NULL, *name = strtok_r(part, " ", &inner), *type = strtok_r(NULL, " ", &inner);
        io->optional = name[strlen(name) - 1] == '?';
        if (io->optional) name[strlen(name) - 1] = 0;
        model.required_count += !io->optional;
        io->name = name;
        io->type = proa_type_find(proa_str_c(type));
        char *dims = strtok_r(NULL, " ", &inner), *more = NULL;
        for (char *d = dims ? strtok_r(dims, ",", &more) : NULL; d; d = strtok_r(NULL, ",", &more))
            io->shape[io->rank++] = strtoll(d, NULL, 10);
        memcpy(io->inner, io->shape, sizeof io->inner);
        io->inner_rank = io->rank;
    }
}

static void free_nothing(void *arg)
{
    (void)arg;
}

static char zeros[4096];

/* Adds an input with that many zero bytes. */
static void input(proa_infer *r, const char *name, proa_type type, size_t bytes, int rank, const int64_t *shape)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    t->type = type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = bytes;
    if (bytes) t->buffer = proa_buffer_wrap(zeros, bytes, free_nothing, NULL);
    t->data = bytes ? zeros : NULL;
}
#define SHAPE(...)                                                                                           \
    (int)(sizeof(int64_t[]){__VA_ARGS__} / sizeof(int64_t)), (const int64_t[])                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* Checks and drops r; text NULL: it must pass. */
static void expect(proa_infer *r, const char *text)
{
    proa_err err = {0};
    proa_status status = proa_infer_check(&model, r, &err);
    if (text) {
        assert_string_equal(err.text, text);
        assert_int_equal(status, PROA_INVALID);
    } else if (status != PROA_OK) {
        fail_msg("refused: %s", err.text);
    }
    proa_infer_drop(r);
}

static void test_count(void **state)
{
    make(8, "a FP32 -1,16;b FP32 -1,16");
    proa_infer *r = proa_infer_new();
    expect(
        r,
        "[request id: <id_unknown>] expected 2 inputs but got 0 inputs for model 'M'. Got input(s) [], but "
        "missing required input(s) ['a','b']. Please provide all required input(s).");
    r = proa_infer_new();
    r->id = "7";
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    expect(
        r,
        "[request id: 7] expected 2 inputs but got 1 inputs for model 'M'. Got input(s) ['a'], but missing "
        "required input(s) ['b']. Please provide all required input(s).");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    input(r, "c", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    expect(r, "[request id: <id_unknown>] expected 2 inputs but got 3 inputs for model 'M'. Got input(s) "
              "['a','b','c'], but missing required input(s) ]. Please provide all required input(s).");
    make(0, "a FP32 16;b? FP32 16;c? FP32 16");
    r = proa_infer_new();
    expect(r, "[request id: <id_unknown>] expected number of inputs between 1 and 3 but got 0 inputs for "
              "model 'M'. "
              "Got input(s) [], but missing required input(s) ['a']. Please provide all required input(s).");
    r = proa_infer_new(); /* the count is right, but not the required one is there */
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r,
           "[request id: <id_unknown>] expected number of inputs between 1 and 3 but got 1 inputs for model "
           "'M'. "
           "Got input(s) ['b'], but missing required input(s) ['a']. Please provide all required input(s).");
    r = proa_infer_new();
    input(r, "c", PROA_TYPE_FP32, 64, SHAPE(16));
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, NULL);
    (void)state;
}

static void test_names(void **state)
{
    make(0, "a FP32 16;b FP32 16");
    proa_infer *r = proa_infer_new();
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(16));
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, NULL); /* in any order */
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    input(r, "x", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, "unexpected inference input 'x' for model 'M'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, "[request id: <id_unknown>] input 'a' already exists in request");
    make(0, "a FP32 16");
    r = proa_infer_new();
    proa_infer_add_output(r, proa_str_c("OUT1"));
    proa_infer_add_output(r, proa_str_c("y"));
    expect(r, "unexpected inference output 'y' for model 'M'");
    r = proa_infer_new();
    proa_infer_add_output(r, proa_str_c("OUT1"));
    proa_infer_add_output(r, proa_str_c("OUT1"));
    expect(r, "[request id: <id_unknown>] output 'OUT1' already exists in request");
    r = proa_infer_new();
    proa_infer_add_output(r, proa_str_c("OUT1"));
    proa_infer_add_output(r, proa_str_c("OUT0"));
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, NULL);
    (void)state;
}

static void test_batch(void **state)
{
    make(8, "a FP32 -1,16;b FP32 -1,16");
    proa_infer *r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 128, SHAPE(2, 16));
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    expect(r, "[request id: <id_unknown>] input 'b' batch size does not match other inputs for 'M'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, 0, (const int64_t[]){0});
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(1, 16));
    expect(r, "[request id: <id_unknown>] input 'a' has no shape but model requires batch dimension for 'M'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 576, SHAPE(9, 16));
    input(r, "b", PROA_TYPE_FP32, 576, SHAPE(9, 16));
    expect(r, "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'M'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(-1, 16));
    input(r, "b", PROA_TYPE_FP32, 64, SHAPE(-1, 16));
    expect(r, "[request id: <id_unknown>] inference request batch-size must be <= 8 for 'M'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 0, SHAPE(0, 16));
    input(r, "b", PROA_TYPE_FP32, 0, SHAPE(0, 16));
    expect(r, "[request id: <id_unknown>] input byte size mismatch for input 'a' for model 'M'. Expected 64, "
              "got 0");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 512, SHAPE(8, 16));
    input(r, "b", PROA_TYPE_FP32, 512, SHAPE(8, 16));
    proa_err err = {0};
    assert_int_equal(proa_infer_check(&model, r, &err), PROA_OK);
    assert_int_equal(r->batch, 8);
    proa_infer_drop(r);
    (void)state;
}

static void test_type_and_shape(void **state)
{
    make(8, "a FP32 -1,16");
    proa_infer *r = proa_infer_new();
    input(r, "a", PROA_TYPE_INT32, 64, SHAPE(1, 16));
    expect(
        r,
        "[request id: <id_unknown>] inference input 'a' data-type is 'INT32', but model 'M' expects 'FP32'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 68, SHAPE(1, 17));
    expect(r, "[request id: <id_unknown>] unexpected shape for input 'a' for model 'M'. Expected [-1,16], "
              "got [1,17]. " NOTE);
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(1, 4, 4));
    expect(r,
           "[request id: <id_unknown>] unexpected shape for input 'a' for model 'M'. Expected [-1,16], got "
           "[1,4,4]. " NOTE);
    make(0, "a FP32 -1,16");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(16));
    expect(r, "[request id: <id_unknown>] unexpected shape for input 'a' for model 'M'. Expected [-1,16], "
              "got [16]. ");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(-1, 16));
    expect(r, "[request id: <id_unknown>] All input dimensions should be specified for input 'a' for model "
              "'M', got "
              "[-1,16]");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE(-2, 16));
    expect(r, "tensor 'a' contains an invalid dimension [-2,16]");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 0, SHAPE(0, 16)); /* a tensor without elements is a tensor */
    expect(r, NULL);
    make(0, "a FP32 -1,-1");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE((int64_t)1 << 40, (int64_t)1 << 40));
    expect(r, "byte size for tensor 'a' exceeds maximum size of 9223372036854775807");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 64, SHAPE((int64_t)1 << 31, (int64_t)1 << 31));
    expect(r, "byte size for tensor 'a' exceeds maximum size of 9223372036854775807");
    (void)state;
}

static void test_size(void **state)
{
    make(8, "a FP32 -1,16");
    proa_infer *r = proa_infer_new();
    input(r, "a", PROA_TYPE_FP32, 127, SHAPE(2, 16));
    expect(r, "[request id: <id_unknown>] input byte size mismatch for input 'a' for model 'M'. Expected "
              "128, got 127");
    make(0, "s BYTES -1");
    r = proa_infer_new(); /* zeros: each 4 bytes are an empty string */
    input(r, "s", PROA_TYPE_BYTES, 8, SHAPE(3));
    expect(
        r,
        "[request id: <id_unknown>] expected 3 string elements for inference input 's' for model 'M', got 2");
    r = proa_infer_new();
    input(r, "s", PROA_TYPE_BYTES, 12, SHAPE(2));
    expect(
        r,
        "[request id: <id_unknown>] unexpected number of string elements 3 for inference input 's' for model "
        "'M', expecting 2");
    r = proa_infer_new();
    input(r, "s", PROA_TYPE_BYTES, 6, SHAPE(2));
    expect(r, "[request id: <id_unknown>] incomplete string length indicator for inference input 's' for "
              "model 'M', "
              "expecting 4 bytes but only 2 bytes available. Please make sure the string length indicator is "
              "in one "
              "buffer.");
    r = proa_infer_new();
    input(r, "s", PROA_TYPE_BYTES, 8, SHAPE(2));
    static const char cut[] = "\0\0\0\0\5\0\0\0abc";
    r->inputs[0].data = cut;
    r->inputs[0].bytes = 11;
    expect(r,
           "[request id: <id_unknown>] incomplete string for inference input 's' for model 'M', got 3 bytes");
    r = proa_infer_new();
    input(r, "s", PROA_TYPE_BYTES, 8, SHAPE(-3));
    expect(r, "tensor 's' contains an invalid dimension in shape [-3]");
    r = proa_infer_new();
    input(r, "s", PROA_TYPE_BYTES, 400, SHAPE(100));
    expect(r, NULL);
    (void)state;
}

static void test_reshape(void **state)
{
    make(4, "a FP32 -1,1;b FP32 -1,-1,2,-1");
    ios[0].reshaped = true; /* shape: [] */
    ios[0].inner_rank = 1;
    ios[1].reshaped = true; /* [-1, -1, 2] */
    ios[1].inner_rank = 4;
    memcpy(ios[1].inner, (const int64_t[]){-1, -1, -1, 2}, 32);
    proa_infer *r = proa_infer_new();
    proa_err err = {0};
    input(r, "a", PROA_TYPE_FP32, 12, SHAPE(3, 1));
    input(r, "b", PROA_TYPE_FP32, 3 * 5 * 2 * 7 * 4, SHAPE(3, 5, 2, 7));
    assert_int_equal(proa_infer_check(&model, r, &err), PROA_OK);
    assert_int_equal(r->inputs[0].rank, 1);
    assert_int_equal(r->inputs[0].shape[0], 3);
    assert_int_equal(r->inputs[1].rank, 4);
    assert_memory_equal(r->inputs[1].shape, ((const int64_t[]){3, 5, 7, 2}), 32);
    proa_infer_drop(r);
    (void)state;
}

static void test_sequence_id(void **state)
{
    Inference__ModelSequenceBatching__Control control = INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__INIT;
    Inference__ModelSequenceBatching__Control *controls[] = {&control};
    Inference__ModelSequenceBatching__ControlInput ci = INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL_INPUT__INIT;
    Inference__ModelSequenceBatching__ControlInput *cis[] = {&ci};
    Inference__ModelSequenceBatching batching = INFERENCE__MODEL_SEQUENCE_BATCHING__INIT;
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    static char corrid[] = "CORRID";
    control.kind = INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID;
    control.data_type = INFERENCE__DATA_TYPE__TYPE_UINT64;
    ci.name = corrid;
    ci.n_control = 1;
    ci.control = controls;
    batching.n_control_input = 1;
    batching.control_input = cis;
    config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    config.sequence_batching = &batching;
    make(0, "a INT32 1");
    model.config = &config;
    proa_infer *r = proa_infer_new();
    input(r, "a", PROA_TYPE_INT32, 4, SHAPE(1));
    r->sequence_name = "s";
    expect(
        r,
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'BYTES', but model 'M' "
        "expects 'UINT64'");
    control.data_type = INFERENCE__DATA_TYPE__TYPE_STRING;
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_INT32, 4, SHAPE(1));
    r->sequence_id = 3;
    expect(
        r,
        "[request id: <id_unknown>] sequence batching control 'CORRID' data-type is 'UINT64', but model 'M' "
        "expects 'BYTES'");
    r = proa_infer_new();
    input(r, "a", PROA_TYPE_INT32, 4, SHAPE(1));
    r->sequence_name = "s";
    expect(r, NULL);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),          cmocka_unit_test(test_names), cmocka_unit_test(test_batch),
        cmocka_unit_test(test_type_and_shape), cmocka_unit_test(test_size),  cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_sequence_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
