/* SPDX-License-Identifier: Apache-2.0
 * test_infer_pb.c - the hand decoder of ModelInferRequest and the writer of ModelInferResponse, with protobuf-c as
 * the other side. */
#include "api/grpc/infer_pb.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "proto/grpc_service.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

typedef Inference__ModelInferRequest request;
typedef Inference__ModelInferRequest__InferInputTensor input;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor output;
typedef Inference__InferTensorContents contents;

#define S(text) ((char *)(uintptr_t)(text)) /* protobuf-c's structs are not const */

/* ---- a request by protobuf-c, read by hand ---- */

static proa_arena arena; /* of the messages of one test */
static proa_infer *r;
static proa_infer_pb m;
static proa_err err;
static char region_bytes[64];
static int regions;

static int setup(void **state)
{
    (void)state;
    proa_arena_init(&arena);
    return 0;
}

static void drop_request(void)
{
    proa_infer_pb_release(&m);
    proa_infer_drop(r);
    r = NULL;
}

static int teardown(void **state)
{
    (void)state;
    drop_request();
    proa_arena_release(&arena);
    assert_int_equal(regions, 0);
    return 0;
}

static void region_gone(void *arg)
{
    (void)arg;
    regions--;
}

static proa_status find_region(void *arg, const char *name, uint64_t offset, uint64_t bytes,
                               proa_buffer **out, proa_err *e)
{
    (void)arg;
    if (strcmp(name, "region") != 0)
        return PROA_FAIL(e, NOT_FOUND, "Unable to find shared memory region: '%s'", name);
    if (offset > 64 || bytes > 64 - offset) return PROA_FAIL(e, INVALID, "out of it");
    *out = proa_buffer_wrap(region_bytes + offset, bytes, region_gone, NULL);
    regions++;
    return PROA_OK;
}

static proa_status read_bytes(const void *bytes, size_t len)
{
    drop_request();
    err = (proa_err){.status = PROA_OK};
    r = proa_infer_new();
    char *copy = proa_malloc(len); /* exactly so long, for the address sanitiser */
    if (len) memcpy(copy, bytes, len);
    m = (proa_infer_pb){
        .bytes = {copy, len}, .body = proa_buffer_wrap(copy, len, free, copy), .region = find_region};
    proa_status status = proa_infer_pb_scan(&m, r, &err);
    if (status == PROA_OK) status = proa_infer_pb_fill(&m, r, &err);
    proa_buffer_drop(m.body);
    assert_int_equal(status, err.status);
    return status;
}

static proa_status read_message(const request *q)
{
    size_t len = inference__model_infer_request__get_packed_size(q);
    uint8_t *bytes = proa_arena_alloc(&arena, len + 1);
    inference__model_infer_request__pack(q, bytes);
    return read_bytes(bytes, len);
}

static void assert_refused(const request *q, proa_status status, const char *text)
{
    assert_int_equal(read_message(q), status);
    assert_string_equal(err.text, text);
}

static request *request_new(const char *model)
{
    request *q = PROA_ARENA_NEW(&arena, request, 1);
    inference__model_infer_request__init(q);
    q->model_name = S(model);
    q->inputs = PROA_ARENA_NEW(&arena, input *, 40);
    q->outputs = PROA_ARENA_NEW(&arena, output *, 40);
    q->raw_input_contents = PROA_ARENA_NEW(&arena, ProtobufCBinaryData, 40);
    q->parameters = PROA_ARENA_NEW(&arena, Inference__ModelInferRequest__ParametersEntry *, 40);
    return q;
}

static input *add_input(request *q, const char *name, const char *datatype, int64_t a, int64_t b)
{
    input *in = PROA_ARENA_NEW(&arena, input, 1);
    inference__model_infer_request__infer_input_tensor__init(in);
    in->name = S(name);
    in->datatype = S(datatype);
    in->shape = PROA_ARENA_NEW(&arena, int64_t, 32);
    in->shape[0] = a;
    in->shape[1] = b;
    in->n_shape = 2;
    in->parameters = PROA_ARENA_NEW(&arena, Inference__ModelInferRequest__InferInputTensor__ParametersEntry *, 8);
    q->inputs[q->n_inputs++] = in;
    return in;
}

static void add_raw(request *q, const void *bytes, size_t len)
{
    q->raw_input_contents[q->n_raw_input_contents++] = (ProtobufCBinaryData){
        .len = len, .data = (uint8_t *)(uintptr_t)bytes};
}

static Inference__InferParameter *param_new(Inference__InferParameter__ParameterChoiceCase kind)
{
    Inference__InferParameter *p = PROA_ARENA_NEW(&arena, Inference__InferParameter, 1);
    inference__infer_parameter__init(p);
    p->parameter_choice_case = kind;
    return p;
}

static Inference__InferParameter *add_param(request *q, const char *key, int kind)
{
    Inference__ModelInferRequest__ParametersEntry *e = PROA_ARENA_NEW(
        &arena, Inference__ModelInferRequest__ParametersEntry, 1);
    inference__model_infer_request__parameters_entry__init(e);
    e->key = S(key);
    e->value = param_new((Inference__InferParameter__ParameterChoiceCase)kind);
    q->parameters[q->n_parameters++] = e;
    return e->value;
}

static Inference__InferParameter *input_param(input *in, const char *key, int kind)
{
    Inference__ModelInferRequest__InferInputTensor__ParametersEntry *e = PROA_ARENA_NEW(
        &arena, Inference__ModelInferRequest__InferInputTensor__ParametersEntry, 1);
    inference__model_infer_request__infer_input_tensor__parameters_entry__init(e);
    e->key = S(key);
    e->value = param_new((Inference__InferParameter__ParameterChoiceCase)kind);
    in->parameters[in->n_parameters++] = e;
    return e->value;
}

static output *add_output(request *q, const char *name)
{
    output *out = PROA_ARENA_NEW(&arena, output, 1);
    inference__model_infer_request__infer_requested_output_tensor__init(out);
    out->name = S(name);
    out->parameters = PROA_ARENA_NEW(
        &arena, Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry *, 8);
    q->outputs[q->n_outputs++] = out;
    return out;
}

static Inference__InferParameter *output_param(output *out, const char *key, int kind)
{
    Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry *e = PROA_ARENA_NEW(
        &arena, Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry, 1);
    inference__model_infer_request__infer_requested_output_tensor__parameters_entry__init(e);
    e->key = S(key);
    e->value = param_new((Inference__InferParameter__ParameterChoiceCase)kind);
    out->parameters[out->n_parameters++] = e;
    return e->value;
}

static contents *contents_of(input *in)
{
    in->contents = PROA_ARENA_NEW(&arena, contents, 1);
    inference__infer_tensor_contents__init(in->contents);
    return in->contents;
}

enum {
    BOOL = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM,
    INT = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM,
    STRING = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM,
    DOUBLE = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM,
    UINT = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM,
    NONE = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET
};

static void assert_data(int at, const void *bytes, size_t len)
{
    assert_int_equal(r->inputs[at].bytes, len);
    if (len) assert_memory_equal(r->inputs[at].data, bytes, len);
    else assert_null(r->inputs[at].buffer);
}

/* ---- what a request may hold ---- */

static void test_raw(void **state)
{
    (void)state;
    request *q = request_new("identity");
    float values[16] = {1.5F, -2};
    q->model_version = S("3");
    q->id = S("abc");
    add_input(q, "A", "FP32", 1, 16);
    add_input(q, "B", "BYTES", -1, INT64_MAX);
    add_input(q, "C", "no such", 0, INT64_MIN);
    add_raw(q, values, sizeof values);
    add_raw(q, "\2\0\0\0hi", 6);
    add_raw(q, "", 0);
    add_raw(q, "more than inputs", 16);
    add_output(q, "X");
    add_output(q, "Y");
    assert_int_equal(read_message(q), PROA_OK);
    assert_string_equal(r->model_name, "identity");
    assert_string_equal(r->id, "abc");
    assert_true(proa_str_is(m.version, "3"));
    assert_int_equal(r->inputs_count, 3);
    assert_string_equal(r->inputs[0].name, "A");
    assert_int_equal(r->inputs[0].type, PROA_TYPE_FP32);
    assert_int_equal(r->inputs[0].rank, 2);
    assert_int_equal(r->inputs[0].shape[1], 16);
    assert_data(0, values, sizeof values);
    assert_int_equal(r->inputs[1].type, PROA_TYPE_BYTES);
    assert_true(r->inputs[1].shape[0] == -1 && r->inputs[1].shape[1] == INT64_MAX);
    assert_data(1, "\2\0\0\0hi", 6);
    assert_int_equal(r->inputs[2].type, PROA_TYPE_INVALID);
    assert_true(r->inputs[2].shape[1] == INT64_MIN);
    assert_data(2, "", 0);
    /* no copy: both lie in one and the same buffer */
    assert_ptr_equal(r->inputs[0].buffer, r->inputs[1].buffer);
    assert_int_equal(r->outputs_count, 2);
    assert_string_equal(r->outputs[1], "Y");
    assert_int_equal(m.wants_count, 0);
}

static void test_missing_data(void **state)
{
    (void)state;
    request *q = request_new("m");
    add_input(q, "A", "FP32", 1, 1);
    add_input(q, "B", "FP32", 1, 1);
    add_raw(q, "1234", 4);
    assert_refused(q, PROA_INVALID, "unable to find data for input tensor 'B' for model 'm' in request.");
    contents_of(q->inputs[0]);
    assert_refused(
        q, PROA_INVALID,
        "contents field must not be specified when using raw_input_contents for 'A' for model 'm'");
}

static void test_typed(void **state)
{
    (void)state;
    request *q = request_new("m");
    protobuf_c_boolean bools[] = {1, 0, 1};
    int32_t ints[] = {-1, 2, 300};
    int64_t int64s[] = {INT64_MIN, -1, INT64_MAX};
    uint32_t uints[] = {1, 255, 65537};
    uint64_t uint64s[] = {0, 1, UINT64_MAX};
    float fp32s[] = {0.1F, -2, 3};
    double fp64s[] = {0.1, -2, 3};
    ProtobufCBinaryData strings[] = {
        {2, (uint8_t *)(uintptr_t) "ab"}, {0, NULL}, {1, (uint8_t *)(uintptr_t) "\0"}};
    static const char *const types[] = {"BOOL",   "INT8",   "INT16",  "INT32", "INT64", "UINT8",
                                        "UINT16", "UINT32", "UINT64", "FP32",  "FP64",  "BYTES"};
    for (size_t i = 0; i < PROA_COUNT(types); i++) {
        contents *c = contents_of(add_input(q, types[i], types[i], 1, 3));
        if (i == 0) c->n_bool_contents = 3, c->bool_contents = bools;
        else if (i < 4) c->n_int_contents = 3, c->int_contents = ints;
        else if (i < 5) c->n_int64_contents = 3, c->int64_contents = int64s;
        else if (i < 8) c->n_uint_contents = 3, c->uint_contents = uints;
        else if (i < 9) c->n_uint64_contents = 3, c->uint64_contents = uint64s;
        else if (i < 10) c->n_fp32_contents = 3, c->fp32_contents = fp32s;
        else if (i < 11) c->n_fp64_contents = 3, c->fp64_contents = fp64s;
        else c->n_bytes_contents = 3, c->bytes_contents = strings;
    }
    assert_int_equal(read_message(q), PROA_OK);
    assert_data(0, "\1\0\1", 3);
    assert_data(1, (int8_t[]){-1, 2, 44}, 3); /* the lower bytes, as Triton */
    assert_data(2, (int16_t[]){-1, 2, 300}, 6);
    assert_data(3, ints, sizeof ints);
    assert_data(4, int64s, sizeof int64s);
    assert_data(5, (uint8_t[]){1, 255, 1}, 3);
    assert_data(6, (uint16_t[]){1, 255, 1}, 6);
    assert_data(7, uints, sizeof uints);
    assert_data(8, uint64s, sizeof uint64s);
    assert_data(9, fp32s, sizeof fp32s);
    assert_data(10, fp64s, sizeof fp64s);
    assert_data(11, "\2\0\0\0ab\0\0\0\0\1\0\0\0\0", 15);
    assert_ptr_equal(r->inputs[9].buffer, r->inputs[10].buffer); /* floats stay in the message */
}

static void test_typed_wrongly(void **state)
{
    (void)state;
    request *q = request_new("m");
    int32_t ints[] = {1};
    float fp32s[] = {1};
    contents *c = contents_of(add_input(q, "A", "FP16", 1, 1));
    assert_int_equal(read_message(q), PROA_OK); /* contents without any: no bytes */
    assert_data(0, "", 0);
    c->n_int_contents = 1, c->int_contents = ints;
    assert_refused(
        q, PROA_INVALID,
        "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'INT32', expected "
        "datatype 'FP16'");
    q->inputs[0]->datatype = S("INT32");
    c->n_fp32_contents = 1, c->fp32_contents = fp32s;
    assert_refused(
        q, PROA_INVALID,
        "unexpected explicit tensor data for input tensor 'A' for model 'm', binary data was already "
        "supplied.");
    q->inputs[0]->datatype = S("UINT8"); /* which uint_contents would carry */
    c->n_fp32_contents = 0;
    assert_refused(
        q, PROA_INVALID,
        "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'INT32', expected "
        "datatype 'UINT8'");
}

/* Elements one by one and in several packed pieces: allowed, and protobuf-c does not write them so. */
static void test_unpacked(void **state)
{
    (void)state;
    static const char wire[] = "\x0a\1m"
                               "\x2a\x1a" /* an input of 26 bytes */
                               "\x0a\1A\x12\4FP32"
                               "\x18\1\x18\3" /* shape, not packed */
                               "\x2a\x0b"     /* contents: one alone, one in a packed piece */
                               "\x35\0\0\x80\x3f"
                               "\x32\4\0\0\0\x40";
    assert_int_equal(read_bytes(wire, sizeof wire - 1), PROA_OK);
    assert_int_equal(r->inputs[0].rank, 2);
    assert_int_equal(r->inputs[0].shape[1], 3);
    assert_data(0, (float[]){1, 2}, 8);
}

static void test_params(void **state)
{
    (void)state;
    request *q = request_new("m");
    add_param(q, "sequence_id", INT)->int64_param = 42;
    add_param(q, "sequence_start", BOOL)->bool_param = 1;
    add_param(q, "sequence_end", BOOL)->bool_param = 0;
    add_param(q, "priority", UINT)->uint64_param = 7;
    add_param(q, "timeout", INT)->int64_param = 1000;
    add_param(q, "triton_enable_empty_final_response", BOOL)->bool_param = 1;
    add_param(q, "own_double", DOUBLE)->double_param = 0.5;
    add_param(q, "own_string", STRING)->string_param = S("text");
    add_param(q, "own_int", INT)->int64_param = -1;
    add_param(q, "own_bool", BOOL)->bool_param = 1;
    assert_int_equal(read_message(q), PROA_OK);
    assert_int_equal(r->sequence_id, 42);
    assert_true(r->sequence_start && !r->sequence_end && m.empty_final);
    assert_int_equal(r->priority, 7);
    assert_int_equal(r->timeout_us, 1000);
    assert_int_equal(r->params_count, 4);
    assert_true(proa_infer_find_param(r, "own_double")->d > 0.4);
    assert_string_equal(proa_infer_find_param(r, "own_string")->s.ptr, "text");
    assert_int_equal(proa_infer_find_param(r, "own_int")->i, -1);
    assert_int_equal(proa_infer_find_param(r, "own_bool")->kind, PROA_PARAM_BOOL);
}

static void test_wrong_params(void **state)
{
    static const struct {
        const char *key;
        int kind;
        const char *text;
    } cases[] = {
        {"sequence_id", BOOL,
         "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
        {"sequence_id", NONE,
         "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."},
        {"sequence_start", INT, "invalid value type for 'sequence_start' parameter, expected bool_param."},
        {"sequence_end", STRING, "invalid value type for 'sequence_end' parameter, expected bool_param."},
        {"priority", STRING, "invalid value type for 'priority' parameter, expected int64_param or uint64_param."},
        {"triton_enable_empty_final_response", INT,
         "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."},
        {"triton_other", BOOL,
         "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
         "starting with "
         "'triton_' are allowed: triton_enable_empty_final_response"},
        {"own", NONE, "invalid value type for 'own' parameter, expected int64_param, bool_param, or string_param."},
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        request *q = request_new("m");
        Inference__InferParameter *p = add_param(q, cases[i].key, cases[i].kind);
        if (cases[i].kind == STRING) p->string_param = S("text");
        assert_refused(q, PROA_INVALID, cases[i].text);
    }
    request *q = request_new("m");
    add_param(q, "priority", INT)->int64_param = -1;
    assert_refused(q, PROA_INVALID, "invalid value for 'priority', expected value >= 0.");
}

/* ---- shared memory and classes ---- */

static void test_shm_input(void **state)
{
    (void)state;
    request *q = request_new("m");
    memcpy(region_bytes, "0123456789", 10);
    input *a = add_input(q, "A", "UINT8", 1, 4);
    add_input(q, "B", "UINT8", 1, 2);
    add_raw(q, "xy", 2); /* counts over the others */
    input_param(a, "shared_memory_region", STRING)->string_param = S("region");
    assert_refused(
        q, PROA_INVALID,
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor "
        "'A'");
    input_param(a, "shared_memory_byte_size", INT)->int64_param = 4;
    assert_int_equal(read_message(q), PROA_OK);
    assert_data(0, "0123", 4);
    assert_data(1, "xy", 2);
    assert_int_equal(regions, 1);
    Inference__InferParameter *offset = input_param(a, "shared_memory_offset", INT);
    offset->int64_param = 3;
    assert_int_equal(read_message(q), PROA_OK);
    assert_data(0, "3456", 4);
    offset->int64_param = -1;
    assert_int_equal(read_message(q), PROA_INVALID);
    offset->int64_param = 61;
    assert_int_equal(read_message(q), PROA_INVALID);
    offset->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM;
    assert_refused(
        q, PROA_INVALID,
        "invalid value type for 'shared_memory_offset' parameter for tensor 'A', expected int64_param.");
    a->n_parameters = 2;
    contents_of(a);
    assert_refused(
        q, PROA_INVALID,
        "unexpected 'content' provided when using shared memory for input tensor 'A' for model 'm'");
    a->contents = NULL;
    a->parameters[0]->value->string_param = S("other");
    assert_refused(q, PROA_NOT_FOUND, "Unable to find shared memory region: 'other'");
    a->parameters[0]->key = S("unknown");
    assert_refused(
        q, PROA_INVALID,
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter for tensor "
        "'A'");
}

static void test_wants(void **state)
{
    (void)state;
    request *q = request_new("m");
    add_output(q, "plain");
    output *classes = add_output(q, "classes"), *shm = add_output(q, "shm");
    Inference__InferParameter *k = output_param(classes, "classification", INT);
    k->int64_param = 3;
    output_param(shm, "shared_memory_region", STRING)->string_param = S("region");
    output_param(shm, "shared_memory_byte_size", INT)->int64_param = 64;
    assert_int_equal(read_message(q), PROA_OK);
    assert_int_equal(r->outputs_count, 3);
    assert_int_equal(m.wants_count, 2);
    assert_string_equal(m.wants[0].output, "classes");
    assert_int_equal(m.wants[0].classes, 3);
    assert_string_equal(m.wants[1].output, "shm");
    assert_ptr_equal(m.wants[1].region->data, region_bytes);
    k->int64_param = 0;
    assert_refused(q, PROA_INVALID, "invalid value for 'classification' parameter, expected >= 0");
    k->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    assert_refused(q, PROA_INVALID, "invalid value type for 'classification' parameter, expected int64_param");
    output_param(shm, "classification", INT)->int64_param = 1;
    q->outputs[1] = shm;
    q->n_outputs = 2;
    assert_refused(q, PROA_INVALID, "output can't set both 'shared_memory_region' and 'classification'");
}

/* ---- what is not a request ---- */

static void test_malformed(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\x0a", 1},                                        /* no length */
        {"\x0a\5m", 3},                                     /* cut short */
        {"\x02\1m", 3},                                     /* number 0 */
        {"\x0b", 1},                                        /* a group */
        {"\x0a\3m\0x", 5},                                  /* a NUL in a name */
        {"\x0a\2m\xff", 4},                                 /* not UTF-8 */
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\1", 11}, /* a tag without an end */
        {"\x2a\2\x0a\5", 4},                                /* an input cut short */
        {"\x2a\4\x1a\2\x80\x80", 6},                        /* its shape */
        {"\x32\2\x0a\5", 4},                                /* an output */
        {"\x22\2\x0a\5", 4},                                /* a parameter */
        {"\x22\4\x12\2\x1a\5", 6},                          /* its value */
    };
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++)
        assert_int_equal(read_bytes(cases[i].bytes, cases[i].len), PROA_INVALID);
    assert_int_equal(read_bytes("", 0), PROA_OK);
    /* unknown fields, of every kind, and known ones of another kind are passed over */
    assert_int_equal(read_bytes("\x78\1\x79"
                                "12345678"
                                "\x7a\1x\x7d"
                                "1234"
                                "\x08\7",
                                21),
                     PROA_OK);
    request *q = request_new("m");
    input *in = add_input(q, "A", "FP32", 1, 1);
    in->n_shape = 17;
    assert_int_equal(read_message(q), PROA_INVALID);
    in->n_shape = 16;
    add_raw(q, "", 0);
    assert_int_equal(read_message(q), PROA_OK);
    assert_int_equal(r->inputs[0].rank, 16);
}

static void test_too_many(void **state)
{
    (void)state;
    static const char tags[] = {0x22, 0x2a, 0x32, 0x3a};
    char bytes[2 * PROA_TENSORS_PER_REQUEST_MAX + 2];
    for (size_t k = 0; k < sizeof tags; k++) {
        for (size_t i = 0; i < sizeof bytes; i += 2) bytes[i] = tags[k], bytes[i + 1] = 0;
        assert_int_equal(read_bytes(bytes, sizeof bytes), PROA_LIMIT);
    }
}

/* ---- answers ---- */

static proa_reply *reply_new(void)
{
    read_message(request_new("m"));
    r->id = "the id";
    r->model_version = 12345678901;
    proa_reply *reply = proa_reply_new(r);
    void *data;
    proa_reply_add_array(reply, "A", PROA_TYPE_FP32, (int64_t[]){1, 300}, 2, &data);
    memset(data, 1, 1200);
    proa_reply_add_array(reply, "empty", PROA_TYPE_INT8, (int64_t[]){0}, 1, &data);
    proa_str s[] = {{"ab", 2}, {"", 0}};
    proa_reply_add_strings(reply, "S", s, 2);
    proa_reply_add_array(reply, "scalar", PROA_TYPE_UINT8, (int64_t[]){0}, 0, &data);
    *(char *)data = 9;
    proa_infer_param *p = proa_reply_add_param(reply, "double");
    p->kind = PROA_PARAM_DOUBLE, p->d = -0.5;
    p = proa_reply_add_param(reply, "int");
    p->kind = PROA_PARAM_INT, p->i = -7;
    p = proa_reply_add_param(reply, "uint");
    p->kind = PROA_PARAM_UINT, p->u = UINT64_MAX;
    p = proa_reply_add_param(reply, "string");
    p->kind = PROA_PARAM_STRING, p->s = (proa_str){"text", 4};
    p = proa_reply_add_param(reply, "bool");
    p->kind = PROA_PARAM_BOOL, p->b = false;
    return reply;
}

static uint8_t *join(const proa_reply_pb *out)
{
    uint8_t *bytes = proa_arena_alloc(&arena, out->bytes + 1), *at = bytes;
    for (int i = 0; i < out->count; i++) {
        if (out->iov[i].iov_len) memcpy(at, out->iov[i].iov_base, out->iov[i].iov_len);
        at += out->iov[i].iov_len;
    }
    assert_int_equal(at - bytes, out->bytes);
    return bytes;
}

static const Inference__InferParameter *param_of(const Inference__ModelInferResponse *response, const char *key)
{
    for (size_t i = 0; i < response->n_parameters; i++)
        if (strcmp(response->parameters[i]->key, key) == 0) return response->parameters[i]->value;
    return NULL;
}

static void assert_response(const Inference__ModelInferResponse *response)
{
    assert_string_equal(response->model_name, "m");
    assert_string_equal(response->model_version, "12345678901");
    assert_string_equal(response->id, "the id");
    assert_int_equal(response->n_outputs, 4);
    assert_int_equal(response->n_raw_output_contents, 4);
    assert_string_equal(response->outputs[0]->name, "A");
    assert_string_equal(response->outputs[0]->datatype, "FP32");
    assert_int_equal(response->outputs[0]->n_shape, 2);
    assert_int_equal(response->outputs[0]->shape[1], 300);
    assert_int_equal(response->raw_output_contents[0].len, 1200);
    assert_int_equal(response->raw_output_contents[0].data[1199], 1);
    assert_int_equal(response->raw_output_contents[1].len, 0);
    assert_int_equal(response->outputs[1]->shape[0], 0);
    assert_int_equal(response->raw_output_contents[2].len, 10);
    assert_memory_equal(response->raw_output_contents[2].data, "\2\0\0\0ab\0\0\0\0", 10);
    assert_string_equal(response->outputs[2]->datatype, "BYTES");
    assert_int_equal(response->outputs[3]->n_shape, 0);
    assert_int_equal(response->raw_output_contents[3].data[0], 9);
    assert_true(param_of(response, "double")->double_param < -0.4);
    assert_int_equal(param_of(response, "int")->int64_param, -7);
    assert_true(param_of(response, "uint")->uint64_param == UINT64_MAX);
    assert_string_equal(param_of(response, "string")->string_param, "text");
    assert_int_equal(param_of(response, "bool")->parameter_choice_case, BOOL);
}

static void test_response(void **state)
{
    (void)state;
    proa_reply_pb out;
    proa_reply *reply = reply_new();
    assert_int_equal(proa_reply_pb_write(&out, reply, PROA_PB_UNARY, &err), PROA_OK);
    Inference__ModelInferResponse *response = inference__model_infer_response__unpack(NULL, out.bytes,
                                                                                      join(&out));
    assert_non_null(response);
    assert_response(response);
    assert_null(param_of(response, "triton_final_response"));
    inference__model_infer_response__free_unpacked(response, NULL);
    proa_reply_free(reply);
}

static void test_stream_response(void **state)
{
    (void)state;
    for (int final = PROA_PB_MORE; final <= PROA_PB_FINAL; final++) {
        proa_reply_pb out;
        proa_reply *reply = reply_new();
        assert_int_equal(proa_reply_pb_write(&out, reply, (proa_pb_final) final, &err), PROA_OK);
        Inference__ModelStreamInferResponse *response = inference__model_stream_infer_response__unpack(
            NULL, out.bytes, join(&out));
        assert_non_null(response);
        assert_string_equal(response->error_message, "");
        assert_response(response->infer_response);
        const Inference__InferParameter *p = param_of(response->infer_response, "triton_final_response");
        assert_int_equal(p->parameter_choice_case, BOOL);
        assert_int_equal(p->bool_param, final == PROA_PB_FINAL);
        inference__model_stream_infer_response__free_unpacked(response, NULL);
        proa_reply_free(reply);
    }
}

static void test_without_outputs(void **state)
{
    (void)state;
    read_message(request_new("m"));
    proa_reply_pb out;
    proa_reply *reply = proa_reply_new(r);
    assert_int_equal(proa_reply_pb_write(&out, reply, PROA_PB_UNARY, &err), PROA_OK);
    Inference__ModelInferResponse *response = inference__model_infer_response__unpack(NULL, out.bytes,
                                                                                      join(&out));
    assert_string_equal(response->model_version, "0");
    assert_string_equal(response->id, "");
    assert_int_equal(response->n_outputs + response->n_parameters, 0);
    inference__model_infer_response__free_unpacked(response, NULL);
    proa_reply_free(reply);
}

/* More than a message may have: an error, nothing is sent. The bytes are not read. */
static void test_response_too_large(void **state)
{
    (void)state;
    read_message(request_new("m"));
    proa_reply_pb out;
    proa_reply *reply = proa_reply_new(r);
    proa_tensor *t = proa_reply_add(reply, "A");
    t->bytes = (size_t)INT32_MAX;
    assert_int_equal(proa_reply_pb_write(&out, reply, PROA_PB_UNARY, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, " which exceeds gRPC's byte size limit 2147483647."));
    proa_reply_free(reply);
}

static void test_to_region(void **state)
{
    (void)state;
    request *q = request_new("m");
    output *out = add_output(q, "A");
    output_param(out, "shared_memory_region", STRING)->string_param = S("region");
    Inference__InferParameter *size = output_param(out, "shared_memory_byte_size", INT);
    size->int64_param = 7;
    void *data;
    assert_int_equal(read_message(q), PROA_OK);
    proa_reply *reply = proa_reply_new(r);
    proa_reply_add_array(reply, "A", PROA_TYPE_UINT8, (int64_t[]){8}, 1, &data);
    memcpy(data, "abcdefgh", 8);
    assert_int_equal(proa_reply_pb_apply(&m, NULL, reply, &err), PROA_INTERNAL);
    assert_string_equal(err.text,
                        "shared memory size specified with the request for output 'A' (7 bytes) should be at "
                        "least 8 bytes to hold the results");
    proa_reply_free(reply);
    size->int64_param = 64;
    assert_int_equal(read_message(q), PROA_OK);
    reply = proa_reply_new(r);
    proa_reply_add_array(reply, "A", PROA_TYPE_UINT8, (int64_t[]){8}, 1, &data);
    memcpy(data, "abcdefgh", 8);
    assert_int_equal(proa_reply_pb_apply(&m, NULL, reply, &err), PROA_OK);
    assert_memory_equal(region_bytes, "abcdefgh", 8);
    assert_int_equal(reply->outputs[0].bytes, 0); /* an entry without bytes */
    proa_reply_free(reply);
}

static void test_note(void **state)
{
    (void)state;
    proa_stream_note note = {.error = proa_str_c("it failed"), .id = proa_str_c("7")};
    proa_str bytes = proa_stream_note_write(&arena, &note);
    Inference__ModelStreamInferResponse *response = inference__model_stream_infer_response__unpack(
        NULL, bytes.len, (const uint8_t *)bytes.ptr);
    assert_string_equal(response->error_message, "it failed");
    assert_string_equal(response->infer_response->id, "7");
    assert_int_equal(response->infer_response->n_parameters, 0);
    inference__model_stream_infer_response__free_unpacked(response, NULL);
    note = (proa_stream_note){.error = proa_str_c(""),
                              .id = proa_str_c(""),
                              .model_name = proa_str_c("m"),
                              .has_final = true,
                              .final = true};
    bytes = proa_stream_note_write(&arena, &note);
    response = inference__model_stream_infer_response__unpack(NULL, bytes.len, (const uint8_t *)bytes.ptr);
    assert_string_equal(response->infer_response->model_name, "m");
    assert_true(param_of(response->infer_response, "triton_final_response")->bool_param);
    inference__model_stream_infer_response__free_unpacked(response, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_raw),
        TEST(test_missing_data),
        TEST(test_typed),
        TEST(test_typed_wrongly),
        TEST(test_unpacked),
        TEST(test_params),
        TEST(test_wrong_params),
        TEST(test_shm_input),
        TEST(test_wants),
        TEST(test_malformed),
        TEST(test_too_many),
        TEST(test_response),
        TEST(test_stream_response),
        TEST(test_without_outputs),
        TEST(test_response_too_large),
        TEST(test_to_region),
        TEST(test_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
