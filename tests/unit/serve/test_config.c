/* SPDX-License-Identifier: Apache-2.0
 * test_config.c - configurations: a case for each message that a wrong one gets (Triton's texts), what defaults are
 * filled in, how the backend is found, what --set fills. */
#include "base/file.h"
#include "base/limits.h"
#include "proto/pbtxt.h"
#include "serve/config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#define TENSORS                                                                                              \
    "input { name: \"I\" data_type: TYPE_FP32 dims: 4 } output { name: \"O\" data_type: TYPE_FP32 dims: 4 }"
#define MODEL "name: \"m\" backend: \"b\" "

static proa_arena arena;

static int setup(void **state)
{
    (void)state;
    proa_arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    proa_arena_release(&arena);
    return 0;
}

static Inference__ModelConfig *parsed(const char *text)
{
    ProtobufCMessage *m = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_pbtxt_parse(&m, &inference__model_config__descriptor, proa_str_c(text), "t", &arena, &err) != PROA_OK)
        fail_msg("%s: %s", text, err.text);
    return (Inference__ModelConfig *)m;
}

static const proa_config_options cpu = {.gpus = -1}, gpu2 = {.gpus = 2}, gpu0 = {.gpus = 0},
                                 uncounted = {.gpus = PROA_GPUS_UNCOUNTED};

static void finish_says(const char *text, const proa_config_options *o, proa_status status, const char *want)
{
    proa_err err = {.status = PROA_OK};
    proa_status got = proa_config_finish(parsed(text), o, &arena, &err);
    if (got != status || strcmp(err.text, want) != 0)
        fail_msg("%s\n gives %d '%s'\n not '%s'", text, got, err.text, want);
}

static const char *const model_cases[][2] = {
    {"backend: \"b\"", "model configuration must specify 'name'"},
    {"name: \"m\"", "unexpected platform type '' for m"},
    {"name: \"m\" platform: \"p\"", "unexpected platform type 'p' for m"},
    {"name: \"m\" platform: \"ensemble\" backend: \"b\"",
     "Ensemble model 'm' must have platform type 'ensemble' and empty backend type"},
    {"name: \"m\" platform: \"tensorrt_plan\" backend: \"onnxruntime\"",
     "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime"},
    {MODEL "max_batch_size: -1", "'max_batch_size' must be non-negative value for m"},
    {"name: \"m\" platform: \"ensemble\"",
     "ensemble scheduling must be set for ensemble m whose platform is ensemble"},
    {MODEL "max_batch_size: 4 dynamic_batching { preferred_batch_size: 0 }",
     "dynamic batching preferred size must be positive for m"},
    {MODEL "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 4, 5 ] }",
     "dynamic batching preferred size must be <= max batch size for m"},
    {MODEL "dynamic_batching { priority_levels: 3 }", "default priority level must be in range [1, 3] for m"},
    {MODEL "dynamic_batching { priority_levels: 3 default_priority_level: 4 }",
     "default priority level must be in range [1, 3] for m"},
    {MODEL "dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 4 "
           "value {} } }",
     "priority queue policy must have priority level in range [1, 3] for m"},
    {MODEL "dynamic_batching { priority_levels: 3 default_priority_level: 1 priority_queue_policy { key: 0 "
           "value {} } }",
     "priority queue policy must have priority level in range [1, 3] for m"},
    {MODEL "dynamic_batching { priority_levels: 2 default_priority_level: 1 preserve_ordering: true }",
     "Only one priority level is allowed when 'preserve_ordering' is true for m"},
    {MODEL "dynamic_batching { preserve_ordering: true default_queue_policy { timeout_action: DELAY "
           "default_timeout_microseconds: 1 } }",
     "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"},
    {MODEL "dynamic_batching { preserve_ordering: true priority_queue_policy { key: 1 value { "
           "timeout_action: DELAY "
           "default_timeout_microseconds: 1 } } }",
     "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"},
    {MODEL "response_cache { enable: true } sequence_batching {}",
     "Response Cache does not currently support model m with sequence batching scheduler. Please disable the "
     "response "
     "cache."},
    {MODEL "response_cache { enable: true } model_transaction_policy { decoupled: true }",
     "Response Cache does not currently support model m with 'decoupled' transaction policy. Please disable "
     "the response "
     "cache."},
    {MODEL "metric_tags { key: \"a\\\"} 1\\nb\" value: \"x\" }",
     "metric tag 'a\"} 1?b' for m is no name of a label: letters, digits and underscores are"},
    {MODEL "metric_tags { key: \"cost-center\" value: \"x\" }",
     "metric tag 'cost-center' for m is no name of a label: letters, digits and underscores are"},
    {MODEL "model_metrics { metric_control {} }", "metric control must specify 'metric_identifier'"},
    {MODEL "model_metrics { metric_control { metric_identifier {} } }",
     "metric identifier must specify non-empty 'family'"},
    {MODEL "model_metrics { metric_control { metric_identifier { family: \"f\" } } }",
     "metric control must specify 'histogram_options'"},
    {MODEL "model_metrics { metric_control { metric_identifier { family: \"f\" } histogram_options {} } }",
     "histogram options must specify non-empty 'buckets'"},
};

static const char *const sequence_cases[][2] = {
    {"control_input {}", "sequence batching control tensor must have a name for m"},
    {"control_input { name: \"A\" } control_input { name: \"A\" }",
     "sequence batching control tensor 'A' is specified for multiple control kinds for m"},
    {"control_input { name: \"A\" control { int32_false_true: [0, 1] } } control_input { name: \"B\" control "
     "{ "
     "int32_false_true: [0, 1] } }",
     "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m"},
    {"control_input { name: \"A\" control { kind: CONTROL_SEQUENCE_READY } }",
     "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
     "CONTROL_SEQUENCE_READY for m"},
    {"control_input { name: \"A\" control { kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1] "
     "bool_false_true: [0, 1] "
     "} }",
     "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
     "'bool_false_true' for "
     "CONTROL_SEQUENCE_END for m"},
    {"control_input { name: \"A\" control { int32_false_true: 1 } }",
     "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START "
     "for m"},
    {"control_input { name: \"A\" control { fp32_false_true: [1, 2, 3] } }",
     "sequence batching control 'fp32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for "
     "m"},
    {"control_input { name: \"A\" control { bool_false_true: 1 } }",
     "sequence batching control 'bool_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for "
     "m"},
    {"control_input { name: \"A\" control { kind: CONTROL_SEQUENCE_CORRID int32_false_true: [0, 1] } }",
     "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' "
     "for "
     "CONTROL_SEQUENCE_CORRID for m"},
    {"control_input { name: \"A\" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }",
     "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, "
     "TYPE_INT64, "
     "TYPE_UINT32, TYPE_INT32 and TYPE_STRING"},
    {"oldest { preferred_batch_size: -1 }", "sequence batching preferred batch size must be positive for m"},
    {"oldest { preferred_batch_size: 9 }",
     "sequence batching preferred batch size must be <= max batch size for m"},
    {"direct { minimum_slot_utilization: 1.5 }",
     "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
    {"direct { minimum_slot_utilization: -1 }",
     "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
    {"direct { minimum_slot_utilization: nan }",
     "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
    {"state { input_name: \"S\" initial_state {} initial_state {} }",
     "initial_state field for state input 'S' must contain exactly one or zero element. Found '2' elements."},
    {"state { input_name: \"S\" } state { input_name: \"S\" }",
     "State input name 'S' specified more than once."},
    {"state { input_name: \"S\" data_type: TYPE_FP32 initial_state { data_type: TYPE_INT32 } }",
     "The data type used for 'initial_state' field of state 'S' does not match the state data type."},
    {"state { input_name: \"S\" initial_state {} }",
     "Field 'name' must be set when using initial_state for state input 'S'."},
    {"state { input_name: \"S\" dims: [1, 2] initial_state { name: \"z\" dims: 1 } }",
     "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
     "'S'. 1 != 2"},
    {"state { input_name: \"S\" dims: -1 initial_state { name: \"z\" dims: -1 } }",
     "'initial_state' field for state input name 'S' contains variable dimensions."},
    {"state { input_name: \"S\" dims: 3 initial_state { name: \"z\" dims: 4 } }",
     "'initial_state' dim for input name 'S' doesn't match 'state' dim description. 4 != 3"},
    {"state { input_name: \"S\" dims: 3 initial_state { name: \"z\" dims: 3 } }",
     "initial_state setting expects state'S' to have state_data set"},
};

static const char *const io_cases[][2] = {
    {"input {}", "model input must specify 'name' for m"},
    {"output {}", "model output must specify 'name' for m"},
    {"input { name: \"I\" }", "model input 'I' must specify 'data_type' for m"},
    {"input { name: \"I\" data_type: 77 }", "model input 'I' has an unknown 'data_type' for m"},
    {"output { name: \"O\" data_type: TYPE_FP32 }", "model output 'O' must specify 'dims' for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 1 reshape {} }",
     "model input 'I' cannot have empty reshape for non-batching model as scalar tensors are not supported "
     "for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 0 }",
     "model input 'I' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m"},
    {"output { name: \"O\" data_type: TYPE_FP32 dims: [ 1, -2 ] }",
     "model output 'O' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 1 reshape { shape: 0 } }",
     "model input 'I' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension "
     "for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: 5 } }",
     "model input 'I' has different size for dims and reshape for m"},
    {"max_batch_size: 1 input { name: \"I\" data_type: TYPE_FP32 dims: 2 reshape {} }",
     "model input 'I' has different size for dims and reshape for m"},
    {"output { name: \"O\" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1, 2 ] } }",
     "model output 'O' has different size for dims and reshape for m"},
    {"output { name: \"O\" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1, -1 ] } }",
     "model output 'O' has different number of variable-size dimensions for dims and reshape for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: [ 4294967296, 4294967296 ] reshape { shape: 1 } }",
     "element count for tensor 'I dims' exceeds maximum size of 9223372036854775807 for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] }",
     "model input 'I' has more dimensions than are supported for m"},
    {"max_batch_size: 1 input { name: \"I\" data_type: TYPE_FP32 dims: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] }",
     "model input 'I' has more dimensions than are supported for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 3 format: FORMAT_NCHW }",
     "model input NHWC/NCHW require 3 dims for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 3 is_shape_tensor: true }",
     "shape tensors are only supported for TensorRT platform for m"},
    {"output { name: \"O\" data_type: TYPE_FP32 dims: 3 is_shape_tensor: true }",
     "shape tensors are only supported for TensorRT platform for m"},
    {"input { name: \"I\" data_type: TYPE_FP32 dims: 3 is_non_linear_format_io: true }",
     "Non-linear IO format is only supported for the TensorRT platform for m"},
    {TENSORS "batch_input { kind: BATCH_ITEM_SHAPE }",
     "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0 for m"},
    {TENSORS "batch_input { kind: 99 }", "unknown batch input kind '99' for m"},
    {TENSORS "batch_input { source_input: \"I\" data_type: TYPE_INT64 }",
     "batch input data type must be TYPE_INT32 or TYPE_FP32 for m"},
    {TENSORS "batch_input { source_input: \"X\" data_type: TYPE_FP32 }",
     "unknown source input name 'X' for m"},
    {TENSORS "batch_output { source_input: [ \"I\", \"I\" ] }",
     "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 2 for m"},
    {TENSORS "batch_output { kind: 99 }", "unknown batch output kind '99' for m"},
    {TENSORS "batch_output { source_input: \"X\" }", "unknown source input name 'X' for m"},
    {TENSORS "batch_output { source_input: \"I\" target_name: \"X\" }",
     "unknown target output name 'X' for m"},
    {TENSORS "batch_output { source_input: \"I\" target_name: [ \"O\", \"O\" ] }",
     "target output name 'O' can only be specified once for m"},
};

static void test_messages(void **state)
{
    char text[4096];
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(model_cases); i++)
        finish_says(model_cases[i][0], &cpu, PROA_INVALID, model_cases[i][1]);
    for (size_t i = 0; i < PROA_COUNT(sequence_cases); i++) {
        snprintf(text, sizeof text, MODEL "max_batch_size: 8 sequence_batching { %s }", sequence_cases[i][0]);
        finish_says(text, &cpu, PROA_INVALID, sequence_cases[i][1]);
    }
    for (size_t i = 0; i < PROA_COUNT(io_cases); i++) {
        snprintf(text, sizeof text, MODEL "%s", io_cases[i][0]);
        finish_says(text, &cpu, PROA_INVALID, io_cases[i][1]);
    }
    finish_says("name: \"m\" platform: \"tensorrt_plan\" backend: \"tensorrt\" input { name: \"I\" "
                "data_type: TYPE_FP32 "
                "dims: 3 is_non_linear_format_io: true }",
                &cpu, PROA_INVALID, "Non-linear IO format input requires 3 dims for m");
}

/* What neither gRPC nor Prometheus can tell: a folder may have any name, and tags of any length may be given. */
static void test_names_that_are_told(void **state)
{
    Inference__ModelConfig *c = parsed(MODEL "version_policy { all {} }");
    Inference__ModelConfig__MetricTagsEntry tag = INFERENCE__MODEL_CONFIG__METRIC_TAGS_ENTRY__INIT, *tags = &tag;
    static char name[] = "caf\xE9", key[] = "key", value[40000];
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_config_check(c, &err), PROA_OK);
    memset(value, 'v', sizeof value - 1);
    tag.key = key;
    tag.value = value;
    c->n_metric_tags = 1;
    c->metric_tags = &tags;
    assert_int_equal(proa_config_check(c, &err), PROA_LIMIT);
    proa_err_clear(&err);
    value[1000] = 0;
    assert_int_equal(proa_config_check(c, &err), PROA_OK);
    c->name = name;
    assert_int_equal(proa_config_check(c, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "not UTF-8"));
    (void)state;
}

static void test_groups(void **state)
{
    static const struct {
        const char *text;
        const proa_config_options *options;
        const char *want;
    } cases[] = {
        {"kind: KIND_MODEL gpus: 0", &gpu2,
         "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs"},
        {"kind: KIND_CPU gpus: 0", &gpu2,
         "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"},
        {"gpus: 7", &gpu2, "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"},
        {"kind: KIND_GPU", &cpu,
         "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs"},
        {"kind: KIND_GPU", &gpu0, "instance group m_0 of model m has kind KIND_GPU but no GPUs are available"},
        {"kind: KIND_GPU gpus: [ 1, 2 ]", &gpu2,
         "instance group m_0 of model m specifies invalid or unsupported gpu id 2. GPUs with at least the "
         "minimum "
         "required CUDA compute compatibility of 6.000000 are: 0, 1"},
        {"kind: KIND_GPU gpus: -1", &gpu2,
         "instance group m_0 of model m specifies invalid or unsupported gpu id -1. GPUs with at least the "
         "minimum "
         "required CUDA compute compatibility of 6.000000 are: 0, 1"},
        {"profile: \"0\"", &cpu,
         "instance group m_0 of model m and platform specifies profile field which is only supported for "
         "TensorRT "
         "models"},
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        snprintf(text, sizeof text, MODEL TENSORS "instance_group { %s }", cases[i].text);
        finish_says(text, cases[i].options, PROA_INVALID, cases[i].want);
    }
    finish_says(
        "name: \"m\" platform: \"tensorrt_plan\" backend: \"tensorrt\" instance_group { profile: \"-1\" }",
        &cpu, PROA_INVALID,
        "instance group m_0 of model m and platform tensorrt_plan specifies invalid profile -1. The field "
        "should "
        "contain the string representation of a non-negative integer.");
    finish_says(MODEL "instance_group { count: 1000 } instance_group { count: 2000000000 }", &cpu, PROA_LIMIT,
                "the instance groups of m ask for more than 1024 instances");
    /* what only an unfinished configuration can lack */
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_config_check(parsed(MODEL), &err), PROA_INVALID);
    assert_string_equal(err.text, "must specify 'version policy' for m");
    proa_err_clear(&err);
    assert_int_equal(proa_config_check_groups(parsed(MODEL), &cpu, &err), PROA_INVALID);
    assert_string_equal(err.text, "must specify one or more 'instance group's for m");
    proa_err_clear(&err);
    assert_int_equal(proa_config_check_groups(parsed(MODEL "instance_group {name: \"g\"}"), &cpu, &err),
                     PROA_INTERNAL);
    assert_string_equal(err.text, "instance group g of model m has unexpected kind KIND_AUTO");
    proa_err_clear(&err);
    assert_int_equal(
        proa_config_check_groups(parsed(MODEL "instance_group {name: \"g\" kind: KIND_GPU}"), &gpu2, &err),
        PROA_INVALID);
    assert_string_equal(err.text, "instance group g of model m has kind KIND_GPU but specifies no GPUs");
}

/* A configuration finished and printed: "a" must come out as "b". */
static void becomes(const char *text, const proa_config_options *o, const char *want)
{
    proa_buf out;
    proa_err err = {.status = PROA_OK};
    Inference__ModelConfig *c = parsed(text);
    proa_buf_init(&out, (size_t)PROA_MIB);
    if (proa_config_finish(c, o, &arena, &err) != PROA_OK) fail_msg("%s: %s", text, err.text);
    assert_true(proa_pbtxt_print(&out, &c->base));
    assert_string_equal(out.ptr, want);
    /* and once more changes nothing */
    proa_buf_clear(&out);
    assert_int_equal(proa_config_finish(c, o, &arena, &err), PROA_OK);
    assert_true(proa_pbtxt_print(&out, &c->base));
    assert_string_equal(out.ptr, want);
    proa_buf_release(&out);
}

#define LATEST "version_policy {\n  latest {\n    num_versions: 1\n  }\n}\n"
#define PINNED                                                                                               \
    "optimization {\n  input_pinned_memory {\n    enable: true\n  }\n  output_pinned_memory {\n    enable: " \
    "true\n  }\n}\n"
#define BACKEND "backend: \"b\"\n"

static void test_defaults(void **state)
{
    (void)state;
    becomes(MODEL, &cpu,
            "name: \"m\"\n" LATEST
            "instance_group {\n  name: \"m\"\n  count: 1\n  kind: KIND_CPU\n}\n" PINNED BACKEND);
    becomes(MODEL, &gpu2,
            "name: \"m\"\n" LATEST
            "instance_group {\n  name: \"m\"\n  count: 1\n  gpus: [ 0, 1 ]\n  kind: KIND_GPU\n}\n" PINNED BACKEND);
    /* not counted: the backend finds out */
    becomes(MODEL "instance_group [ { kind: KIND_GPU }, { kind: KIND_GPU gpus: 7 }, { count: 2 } ]", &uncounted,
            "name: \"m\"\n" LATEST
            "instance_group {\n  name: \"m_0\"\n  count: 1\n  gpus: [ 0 ]\n  kind: KIND_GPU\n}\n"
            "instance_group {\n  name: \"m_1\"\n  count: 1\n  gpus: [ 7 ]\n  kind: KIND_GPU\n}\n"
            "instance_group {\n  name: \"m_2\"\n  count: 2\n  kind: KIND_CPU\n}\n" PINNED BACKEND);
    becomes(MODEL "instance_group [ { count: 3 }, { gpus: 1 }, { kind: KIND_MODEL name: \"x\" } ]", &gpu2,
            "name: \"m\"\n" LATEST
            "instance_group {\n  name: \"m_0\"\n  count: 3\n  gpus: [ 0, 1 ]\n  kind: KIND_GPU\n}\n"
            "instance_group {\n  name: \"m_1\"\n  count: 1\n  gpus: [ 1 ]\n  kind: KIND_GPU\n}\n"
            "instance_group {\n  name: \"x\"\n  count: 1\n  kind: KIND_MODEL\n}\n" PINNED BACKEND);
    becomes(
        MODEL
        "max_batch_size: 8 dynamic_batching {} version_policy { all {} } instance_group { kind: KIND_CPU } "
        "optimization { input_pinned_memory { } graph { level: 1 } }",
        &gpu2,
        "name: \"m\"\nversion_policy {\n  all {\n  }\n}\nmax_batch_size: 8\n"
        "instance_group {\n  name: \"m_0\"\n  count: 1\n  kind: KIND_CPU\n}\ndynamic_batching {\n"
        "  preferred_batch_size: [ 8 ]\n}\noptimization {\n  graph {\n    level: 1\n  }\n  "
        "input_pinned_memory {\n  }\n"
        "  output_pinned_memory {\n    enable: true\n  }\n}\n" BACKEND);
    becomes("name: \"m\" backend: \"onnxruntime\" platform: \"onnxruntime_onnx\" max_batch_size: 2 "
            "sequence_batching { oldest {} }",
            &gpu0,
            "name: \"m\"\nplatform: \"onnxruntime_onnx\"\n" LATEST
            "max_batch_size: 2\ninstance_group {\n  name: \"m\"\n  count: 2\n  kind: KIND_CPU\n}\n" PINNED
            "sequence_batching {\n  max_sequence_idle_microseconds: 1000000\n  oldest {\n    "
            "preferred_batch_size: [ 2 ]\n"
            "  }\n}\nbackend: \"onnxruntime\"\n");
    /* dims and reshape that go together */
    becomes(
        MODEL "max_batch_size: 1 input { name: \"I\" data_type: TYPE_FP32 dims: [ 2, 4, -1, 6 ] reshape { "
              "shape: [ 8, "
              "-1, 1, 6 ] } } input { name: \"J\" data_type: TYPE_FP32 dims: 1 reshape {} } instance_group { "
              "count: 1 }",
        &cpu,
        "name: \"m\"\n" LATEST "max_batch_size: 1\n"
        "input {\n  name: \"I\"\n  data_type: TYPE_FP32\n  dims: [ 2, 4, -1, 6 ]\n  reshape {\n    shape: [ "
        "8, -1, 1, "
        "6 ]\n  }\n}\ninput {\n  name: \"J\"\n  data_type: TYPE_FP32\n  dims: [ 1 ]\n  reshape {\n  }\n}\n"
        "instance_group {\n  name: \"m_0\"\n  count: 1\n  kind: KIND_CPU\n}\n" PINNED BACKEND);
}

/* ---- ensembles ---- */

#define STEP(model, in, out)                                                                                 \
    "step { model_name: \"" model "\" input_map { key: \"I\" value: \"" in                                   \
    "\" } output_map { key: \"O\" value: \"" out "\" } } "
#define SCHEDULED(kind, steps) kind " " TENSORS " ensemble_scheduling { " steps " } "
#define ENSEMBLE(steps)        SCHEDULED("name: \"e\" platform: \"ensemble\"", steps)

static void test_ensemble_messages(void **state)
{
    static const char *const cases[][2] = {
        {MODEL "ensemble_scheduling { }",
         "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble"},
        {ENSEMBLE(STEP("a", "I", "O")) "instance_group {}",
         "instance group should not be specified for ensemble 'e'"},
        {ENSEMBLE(STEP("a", "I", "O")) "optimization {}",
         "optimization should not be specified for ensemble 'e'"},
        {ENSEMBLE(STEP("a", "I", "O")) "model_warmup {}",
         "model_warmup can not be specified for ensemble 'e'"},
        {ENSEMBLE(""), "must specify 'step' for ensemble 'e'"},
        {ENSEMBLE(STEP("a", "I", "O") "step {}"), "must specify 'model_name' in step 1 of ensemble 'e'"},
        {ENSEMBLE("step { model_name: \"a\" }"), "must specify 'input_map' in step 0 of ensemble 'e'"},
        {ENSEMBLE("step { model_name: \"a\" input_map { key: \"I\" value: \"I\" } }"),
         "must specify 'output_map' in step 0 of ensemble 'e'"},
        {ENSEMBLE(STEP("a", "I", "O") STEP("b", "I", "O")),
         "ensemble tensor 'O' can appear in an output map only once for ensemble 'e' step 1"},
        {ENSEMBLE(STEP("a", "x", "O")), "ensemble input 'I' for ensemble e' is not used"},
        {ENSEMBLE(STEP("a", "I", "x")), "ensemble output 'O' for ensemble e' is not used"},
        {ENSEMBLE(STEP("a", "O", "x") STEP("b", "I", "y")), "output 'O' for ensemble 'e' is not written"},
        {ENSEMBLE(STEP("a", "I", "x") STEP("b", "y", "z") STEP("c", "z", "O")),
         "output 'O' for ensemble 'e' is not written: at least one of its depending tensors, 'y', is not "
         "connected"},
        {ENSEMBLE(STEP("a", "I", "w") STEP("b", "x", "y") STEP("c", "y", "x") STEP("d", "y", "O")),
         "output 'O' for ensemble 'e' is not written: at least one of its depending tensors, 'x', is not "
         "connected"},
        {ENSEMBLE(STEP("a", "I", "O") STEP("b", "I", "x")), "ensemble tensor 'x' is unused in ensemble 'e'"},
        {ENSEMBLE(STEP("a", "I", "O") STEP("b", "x", "y") STEP("c", "y", "z")),
         "ensemble tensor 'y' is unused in ensemble 'e'"},
    };
    proa_err err = {.status = PROA_OK};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) finish_says(cases[i][0], &cpu, PROA_INVALID, cases[i][1]);
    /* steps in reverse order, and a tensor that goes two ways */
    assert_int_equal(
        proa_config_finish(parsed(ENSEMBLE("step { model_name: \"c\" input_map { key: \"I\" value: \"x\" } "
                                           "input_map { key: \"J\" value: "
                                           "\"y\" } output_map { key: \"O\" value: \"O\" } }" STEP("b", "x", "y")
                                               STEP("a", "I", "x"))),
                           &cpu, &arena, &err),
        PROA_OK);
}

typedef struct repository {
    const Inference__ModelConfig *models[8];
    int count;
} repository;

static const Inference__ModelConfig *lookup(void *arg, const char *name)
{
    const repository *r = arg;
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->models[i]->name, name) == 0) return r->models[i];
    return NULL;
}

#define A                                                                                                    \
    "name: \"a\" max_batch_size: 4 input { name: \"I\" data_type: TYPE_FP32 dims: 4 } "                      \
    "output { name: \"O\" data_type: TYPE_FP32 dims: 4 } "

static void flow_says(const char *ensemble, const char *a, const char *b, const char *want, bool want_decoupled)
{
    proa_err err = {.status = PROA_OK};
    bool decoupled = false;
    repository r = {{parsed(a), parsed(b)}, 2};
    proa_status status = proa_ensemble_check_flow(parsed(ensemble), lookup, &r, &decoupled, &err);
    if (strcmp(err.text, want) != 0) fail_msg("%s\n gives '%s'\n not '%s'", ensemble, err.text, want);
    assert_int_equal(status, want[0] ? PROA_INVALID : PROA_OK);
    assert_int_equal(decoupled && status == PROA_OK, want_decoupled);
}

static void test_flow(void **state)
{
    static const char b[] = "name: \"b\" input { name: \"I\" data_type: TYPE_FP32 dims: [ -1, 4 ] } "
                            "input { name: \"J\" data_type: TYPE_FP32 dims: 9 optional: true } "
                            "output { name: \"O\" data_type: TYPE_FP32 dims: [ -1, 4 ] } "
                            "output { name: \"P\" data_type: TYPE_INT8 dims: [ 1 ] }";
    static const char two[] = "max_batch_size: 4 " ENSEMBLE(STEP("a", "I", "x") STEP("b", "x", "O"));
    (void)state;
    flow_says(two, A, b, "", false);
    flow_says(two, A "model_transaction_policy { decoupled: true }", b, "", true);
    flow_says(
        ENSEMBLE(
            "step { model_name: \"a\" input_map { key: \"X\" value: \"I\" } output_map { key: \"O\" value: "
            "\"O\" } }"),
        A, b, "in ensemble e, ensemble tensor I is mapping to non-existing input X in model a", false);
    flow_says(
        ENSEMBLE(
            "step { model_name: \"a\" input_map { key: \"I\" value: \"I\" } output_map { key: \"X\" value: "
            "\"O\" } }"),
        A, b, "in ensemble e, ensemble tensor O is mapped from non-existing output X in model a", false);
    flow_says(ENSEMBLE(STEP("a", "I", "O")), A "input { name: \"J\" data_type: TYPE_FP32 dims: 4 }", b,
              "in ensemble e, input J in model a is not mapped to any ensemble tensors", false);
    flow_says(ENSEMBLE(STEP("a", "I", "O")), A "output { name: \"O\" data_type: TYPE_FP32 dims: 4 }", b,
              "in ensemble e, multiple outputs in model a are mapped to the same ensemble tensor O", false);
    flow_says("max_batch_size: 8 " ENSEMBLE(STEP("a", "I", "O")), A, b,
              "ensemble e allows maximum batch size 8, but it contains model a which only allows maximum "
              "batch size to be "
              "4",
              false);
    flow_says(
        ENSEMBLE(STEP("a", "I", "x") STEP("b", "x", "O")),
        "name: \"a\" input { name: \"I\" data_type: TYPE_INT32 dims: 4 } output { name: \"O\" data_type: "
        "TYPE_INT32 "
        "dims: 4 }",
        b,
        "in ensemble e, ensemble tensor I: inconsistent data type: TYPE_FP32 is inferred from model e while "
        "TYPE_INT32 is inferred from model a",
        false);
    flow_says("max_batch_size: 1 " ENSEMBLE(STEP("a", "I", "x") STEP("b", "x", "O")), A,
              "name: \"b\" max_batch_size: 1 input { name: \"I\" data_type: TYPE_FP32 dims: [ 4, 4 ] } "
              "output { name: \"O\" data_type: TYPE_FP32 dims: 4 }",
              "in ensemble e, ensemble tensor x: inconsistent shape: [-1,4] is inferred from model a while "
              "[-1,4,4] is "
              "inferred from model b",
              false);
    flow_says("name: \"e\" platform: \"ensemble\" input { name: \"I\" data_type: TYPE_FP32 dims: 4 } "
              "output { name: \"O\" data_type: TYPE_FP32 dims: 4 } output { name: \"Q\" data_type: TYPE_FP32 "
              "dims: 4 } "
              "ensemble_scheduling { " STEP("a", "I", "O") STEP("a", "I", "Q") "}",
              A "model_transaction_policy { decoupled: true }", b,
              "in ensemble e, step of model 'e' receives inputs originated from different decoupled models",
              false);
    flow_says(ENSEMBLE(STEP("a", "I", "x")
                           STEP("a", "I", "y") "step { model_name: \"c\" input_map { key: \"I\" value: "
                                               "\"x\" } input_map { key: \"J\" value: \"y\" } output_map "
                                               "{ key: \"O\" value: \"O\" } }"),
              A "model_transaction_policy { decoupled: true }",
              "name: \"c\" max_batch_size: 4 input { name: \"I\" data_type: TYPE_FP32 dims: 4 } input { "
              "name: \"J\" "
              "data_type: TYPE_FP32 dims: 4 } output { name: \"O\" data_type: TYPE_FP32 dims: 4 }",
              "in ensemble e, step of model 'c' receives inputs originated from different decoupled models",
              false);
    flow_says(ENSEMBLE(STEP("z", "I", "x") STEP("b", "x", "y") STEP("q", "y", "v") STEP("z", "v", "O")), A, b,
              "ensemble e contains models that are not available or ambiguous: q, z", false);
}

static void test_cycle(void **state)
{
    static const char own[] = "name: \"e\" platform: \"ensemble\" ensemble_scheduling { " STEP("e", "I", "O") "}";
    static const char ring[] = "name: \"f\" platform: \"ensemble\" ensemble_scheduling { " STEP("a", "I", "x")
        STEP("e", "x", "O") "}";
    static const char to_ring[] = "name: \"g\" platform: \"ensemble\" ensemble_scheduling { " STEP("e", "I",
                                                                                                   "O") "}";
    proa_err err = {.status = PROA_OK};
    const Inference__ModelConfig *e = parsed(ENSEMBLE(STEP("f", "I", "O")));
    repository r = {{e, parsed(ring), parsed(A)}, 3};
    (void)state;
    assert_int_equal(proa_ensemble_check_cycle(parsed(own), lookup, &r, &err), PROA_INVALID);
    assert_string_equal(err.text, "circular dependency between ensembles: e -> ... -> e -> e");
    proa_err_clear(&err);
    assert_int_equal(proa_ensemble_check_cycle(e, lookup, &r, &err), PROA_INVALID);
    assert_string_equal(err.text, "circular dependency between ensembles: e -> ... -> f -> e");
    proa_err_clear(&err);
    assert_int_equal(proa_ensemble_check_cycle(parsed(to_ring), lookup, &r, &err),
                     PROA_OK); /* it is in no ring itself */
    r.count = 1;
    assert_int_equal(proa_ensemble_check_cycle(e, lookup, &r, &err), PROA_OK);
    assert_int_equal(proa_ensemble_check_models(e, lookup, &r, &err), PROA_INVALID);
    assert_string_equal(err.text, "ensemble e contains models that are not available or ambiguous: f");
}

/* ---- files ---- */

static char root[] = "/tmp/proa-config-XXXXXX";

static void make_file(const char *path, const char *text)
{
    char name[PROA_PATH_MAX];
    snprintf(name, sizeof name, "%s/%s", root, path);
    for (char *slash = strchr(name + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(name, 0700);
        *slash = '/';
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static proa_status load(Inference__ModelConfig **c, const char *name, const proa_config_options *o, proa_err *err)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, name);
    proa_err_clear(err);
    return proa_config_load(c, NULL, &(proa_config_place){name, path, NULL}, o, &arena, err);
}

static void loads_as(const char *name, const char *backend, const char *platform, const char *file)
{
    Inference__ModelConfig *c = NULL;
    proa_err err = {.status = PROA_OK};
    if (load(&c, name, &cpu, &err) != PROA_OK) fail_msg("%s: %s", name, err.text);
    assert_string_equal(c->name, name);
    assert_string_equal(c->backend, backend);
    assert_string_equal(c->platform, platform);
    assert_string_equal(c->default_model_filename, file);
}

static void test_backend(void **state)
{
    Inference__ModelConfig *c = NULL;
    proa_err err = {.status = PROA_OK};
    (void)state;
    make_file("py/1/model.py", "");
    loads_as("py", "python", "", "model.py");
    make_file("onnx/2/model.onnx", "");
    make_file("onnx/03/model.py", ""); /* no version */
    make_file("onnx/10/model.py", ""); /* not the first one */
    loads_as("onnx", "onnxruntime", "onnxruntime_onnx", "model.onnx");
    make_file("onnxdir/1/model.onnx/model.onnx", "");
    loads_as("onnxdir", "onnxruntime", "onnxruntime_onnx", "model.onnx");
    make_file("plan/1/model.plan", "");
    loads_as("plan", "tensorrt", "tensorrt_plan", "model.plan");
    make_file("pt/1/model.pt", "");
    loads_as("pt", "pytorch", "pytorch_libtorch", "model.pt");
    make_file("pt2/1/model.pt2", "");
    loads_as("pt2", "pytorch", "torch_aoti", "model.pt2");
    make_file("xml/1/model.xml", "");
    loads_as("xml", "openvino", "", "model.xml");
    make_file("tf/1/model.savedmodel/x", "");
    loads_as("tf", "tensorflow", "tensorflow_savedmodel", "model.savedmodel");
    make_file("graph/1/model.graphdef", "");
    loads_as("graph", "tensorflow", "tensorflow_graphdef", "model.graphdef");
    make_file("m.identity/1/x", "");
    loads_as("m.identity", "identity", "", "model.identity");
    make_file("hf/config.json", "{}");
    make_file("hf/model.safetensors", "");
    loads_as("hf", "engine", "", "");
    make_file("hf1/1/config.json", "{}");
    make_file("hf1/1/model-00001-of-00002.safetensors", "");
    loads_as("hf1", "engine", "", "");
    make_file("gg/model.gguf", "");
    loads_as("gg", "engine", "", "");
    make_file("gg1/1/model.gguf", "");
    loads_as("gg1", "engine", "", "");
    make_file("named/config.pbtxt", "name: \"named\" backend: \"identity\"");
    loads_as("named", "identity", "", "");
    make_file("platform/config.pbtxt", "platform: \"onnxruntime_onnx\"");
    loads_as("platform", "onnxruntime", "onnxruntime_onnx", "model.onnx");
    make_file("file/config.pbtxt", "default_model_filename: \"model.py\"");
    loads_as("file", "python", "", "model.py");
    make_file("aoti/config.pbtxt", "backend: \"pytorch\" platform: \"torch_aoti\"");
    loads_as("aoti", "pytorch", "torch_aoti", "model.pt2");
    make_file("ens/config.pbtxt", SCHEDULED("backend: \"ensemble\"", STEP("a", "I", "O")));
    loads_as("ens", "", "ensemble", "");
    make_file("ens/config.pbtxt", SCHEDULED("backend: \"ensemble\" platform: \"ensemble\"", STEP("a", "I", "O")));
    loads_as("ens", "", "ensemble", "");
    make_file("ens/config.pbtxt", "backend: \"ensemble\"");
    assert_int_equal(load(&c, "ens", &cpu, &err), PROA_INVALID);
    assert_string_equal(err.text,
                        "ensemble scheduling must be set for ensemble ens whose platform is ensemble");
    make_file("none/1/x", "");
    assert_int_equal(load(&c, "none", &cpu, &err), PROA_INVALID);
    assert_string_equal(
        err.text, "Invalid model name: Could not determine backend for model 'none' with no backend in model "
                  "configuration. Expected model name of the form 'model.<backend_name>'.");
}

static void test_load(void **state)
{
    char want[PROA_PATH_MAX];
    Inference__ModelConfig *c = NULL;
    bool provided = true;
    proa_err err = {.status = PROA_OK};
    proa_config_options strict = {.gpus = -1, .no_auto_complete = true},
                        other = {.gpus = -1, .config_name = "small"};
    (void)state;
    make_file("wrong/config.pbtxt", "name: \"right\" backend: \"identity\"");
    assert_int_equal(load(&c, "wrong", &cpu, &err), PROA_INVALID);
    assert_string_equal(
        err.text,
        "unexpected directory name 'wrong' for model 'right', directory name must equal model name");
    make_file("broken/config.pbtxt", "backend: \"identity\"\nmax_batch: 4");
    assert_int_equal(load(&c, "broken", &cpu, &err), PROA_INVALID);
    snprintf(want, sizeof want,
             "failed to read text proto from %s/broken/config.pbtxt:2:1: no field 'max_batch' in "
             "ModelConfig; did you mean "
             "'max_batch_size'?",
             root);
    assert_string_equal(err.text, want);
    make_file("io/config.pbtxt", "backend: \"identity\" input { }");
    assert_int_equal(load(&c, "io", &cpu, &err), PROA_OK); /* a backend may complete it */
    assert_int_equal(load(&c, "io", &strict, &err), PROA_INVALID);
    assert_string_equal(err.text, "model input must specify 'name' for io");
    make_file("bare.identity/1/x", "");
    assert_int_equal(load(&c, "bare.identity", &strict, &err), PROA_INTERNAL);
    snprintf(want, sizeof want,
             "failed to open text file for read %s/bare.identity/config.pbtxt: No such file or directory", root);
    assert_string_equal(err.text, want);
    snprintf(want, sizeof want, "%s/bare.identity", root);
    proa_err_clear(&err);
    assert_int_equal(proa_config_load(&c, &provided, &(proa_config_place){"bare.identity", want, NULL}, &cpu,
                                      &arena, &err),
                     PROA_OK);
    assert_false(provided);
    assert_int_equal(proa_config_not_provided(c, &err), PROA_NOT_FOUND);
    assert_string_equal(err.text, "model configuration is not provided for model 'bare.identity'");
    make_file("two/config.pbtxt", "backend: \"identity\" max_batch_size: 8");
    assert_int_equal(load(&c, "two", &other, &err), PROA_OK);
    assert_int_equal(c->max_batch_size, 8);
    make_file("two/configs/small.pbtxt", "backend: \"identity\" max_batch_size: 1");
    assert_int_equal(load(&c, "two", &other, &err), PROA_OK);
    assert_int_equal(c->max_batch_size, 1);
}

static proa_status load_json(Inference__ModelConfig **c, bool *provided, const char *json, proa_err *err)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/json", root);
    return proa_config_load(c, provided, &(proa_config_place){"json", path, json}, &cpu, &arena, err);
}

static void test_override(void **state)
{
    Inference__ModelConfig *c = NULL;
    bool provided = false;
    proa_err err = {.status = PROA_OK};
    (void)state;
    make_file("json/config.pbtxt", "backend: \"identity\" max_batch_size: 8");
    assert_int_equal(load_json(&c, &provided, "{\"backend\":\"identity\",\"max_batch_size\":2}", &err), PROA_OK);
    assert_true(provided);
    assert_int_equal(c->max_batch_size, 2);
    assert_int_equal(load_json(&c, NULL, "{\"batch\":2}", &err), PROA_INVALID);
    assert_string_equal(err.text, "Invalid config override: no field 'batch' in ModelConfig");
    proa_err_clear(&err);
    assert_int_equal(load_json(&c, NULL, "{", &err), PROA_INVALID);
    assert_int_equal(err.status, PROA_INVALID);
    assert_int_equal(strncmp(err.text, "Invalid config override: ", 25), 0);
}

static void test_fill(void **state)
{
    static const proa_setting fills[] = {
        {NULL, "a", "old"}, {NULL, "b_1", ""}, {NULL, "A", "upper"}, {NULL, "a", "x y"}};
    static const char *const cases[][2] = {
        {"", ""},
        {"no dollar", "no dollar"},
        {"${a}", "x y"},
        {"$a.$A-${A}", "x y.upper-upper"},
        {"[$b_1${b_1}]", "[]"},
        {"$ab ${ab} $a_", "$ab ${ab} $a_"},
        {"$$a $${a} $$$a", "$a ${a} $x y"},
        {"$ ${ ${} ${a ${1} $1 ${a-b} $", "$ ${ ${} ${a ${1} $1 ${a-b} $"},
        {"\"${a}\" \xc3\xa9${a}", "\"x y\" \xc3\xa9x y"},
    };
    Inference__ModelConfig *c = NULL;
    proa_err err = {.status = PROA_OK};
    (void)state;
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_buf out;
        proa_buf_init(&out, 1000);
        proa_config_fill(&out, proa_str_c(cases[i][0]), fills, (int)PROA_COUNT(fills));
        if (!proa_str_is(proa_buf_view(&out), cases[i][1])) fail_msg("%s gives %s", cases[i][0], out.ptr);
        proa_buf_release(&out);
    }
    make_file("fill/config.pbtxt",
              "backend: \"identity\" max_batch_size: ${size} parameters { key: \"p\" value { "
              "string_value: \"${path}\" } } parameters { key: \"q\" value { string_value: \"v\" } } "
              "parameters { key: \"r\" value { } }");
    static const proa_setting size[] = {{NULL, "size", "16"}};
    proa_config_options o = {.gpus = -1, .fills = size, .fills_count = 1};
    assert_int_equal(load(&c, "fill", &o, &err), PROA_OK);
    assert_int_equal(c->max_batch_size, 16);
    assert_null(proa_config_parameter(c, "p")); /* still a placeholder */
    assert_string_equal(proa_config_parameter(c, "q"), "v");
    assert_null(proa_config_parameter(c, "r"));
    assert_null(proa_config_parameter(c, "s"));
    assert_int_equal(load(&c, "fill", &cpu, &err), PROA_INVALID);
    assert_non_null(
        strstr(err.text, ":1:37: expected an integer, found '$' (--set size=VALUE fills this placeholder)"));
}

static void test_versions(void **state)
{
    int64_t v = -1;
    (void)state;
    assert_true(proa_config_version_folder("12", &v) && v == 12);
    assert_true(proa_config_version_folder("0", &v) && v == 0);
    assert_true(proa_config_version_folder("9223372036854775807", &v) && v == INT64_MAX);
    assert_false(proa_config_version_folder("9223372036854775808", &v));
    assert_false(proa_config_version_folder("", &v));
    assert_false(proa_config_version_folder("01", &v));
    assert_false(proa_config_version_folder("-1", &v));
    assert_false(proa_config_version_folder("1a", &v));
}

static void test_json(void **state)
{
    proa_buf out;
    Inference__ModelConfig *c = parsed(
        MODEL "input { name: \"I\" dims: [ -1, 3 ] } dynamic_batching { "
              "max_queue_delay_microseconds: 100 } instance_group { secondary_devices { "
              "device_id: 7 } }");
    (void)state;
    proa_buf_init(&out, (size_t)PROA_MIB);
    assert_true(proa_config_print_json(&out, c));
    assert_non_null(strstr(out.ptr, "\"dims\":[-1,3]"));
    assert_non_null(strstr(out.ptr, "\"max_queue_delay_microseconds\":100,"));
    assert_non_null(strstr(out.ptr, "\"device_id\":\"7\"")); /* as Triton has it */
    assert_non_null(strstr(out.ptr, "\"metric_tags\":{}"));
    assert_null(strstr(out.ptr, "sequence_batching"));
    proa_buf_release(&out);
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[PROA_PATH_MAX];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_messages),
        TEST(test_groups),
        TEST(test_defaults),
        TEST(test_ensemble_messages),
        TEST(test_flow),
        TEST(test_cycle),
        TEST(test_backend),
        TEST(test_load),
        TEST(test_override),
        TEST(test_fill),
        TEST(test_versions),
        TEST(test_json),
        TEST(test_names_that_are_told),
    };
    return cmocka_run_group_tests_name("config", tests, make_root, remove_root);
}
