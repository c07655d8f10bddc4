/* SPDX-License-Identifier: Apache-2.0
 * test_onnx_device.c - inputs and outputs in the memory of a GPU, with functions in place of ONNX Runtime's and the
 * GPUs of tests/fake_gpu, whose memory the host cannot read: what is bound where, what is copied and released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/onnx/device.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct OrtMemoryInfo {
    bool gpu;
};
struct OrtAllocator {
    int unused;
};
struct OrtValue {
    bool gpu;
    proa_buffer *own; /* of an output */
    char *data;
    size_t bytes;
    int64_t shape[4];
    size_t rank;
};
struct OrtTensorTypeAndShapeInfo {
    const OrtValue *value;
};
struct OrtIoBinding {
    char log[256];
    bool gpu[4];
    int outputs, outputs_given;
};

static OrtMemoryInfo host_info = {false}, gpu_info = {true};
static OrtAllocator host_allocator;
static OrtIoBinding binding;
static int values_alive, arrays, infos;
static proa_onnx_device device;    /* GPU 0 */
static proa_gpu_stream streams[2]; /* of both GPUs */

static OrtStatus *make_info(const char *name, int allocator, int gpu, int memory, OrtMemoryInfo **out)
{
    (void)allocator, (void)memory;
    assert_string_equal(name, "Cuda");
    assert_int_equal(gpu, 0);
    *out = &gpu_info;
    infos++;
    return NULL;
}

static void release_memory(OrtMemoryInfo *info)
{
    assert_ptr_equal(info, &gpu_info);
    infos--;
}

static OrtStatus *make_value(const OrtMemoryInfo *info, void *data, size_t bytes, const int64_t *shape,
                             size_t rank, int type, OrtValue **out)
{
    (void)type;
    *out = calloc(1, sizeof **out);
    **out = (OrtValue){.gpu = info->gpu, .data = data, .bytes = bytes, .rank = rank};
    memcpy((*out)->shape, shape, rank * sizeof *shape);
    values_alive++;
    return NULL;
}

static void release_value(OrtValue *value)
{
    proa_buffer_drop(value->own);
    free(value);
    values_alive--;
}

static OrtStatus *value_data(OrtValue *value, void **out)
{
    *out = value->data;
    return NULL;
}

static OrtStatus *value_kind(const OrtValue *value, int *kind)
{
    (void)value;
    *kind = ORT_KIND_TENSOR;
    return NULL;
}

static OrtStatus *value_info(const OrtValue *value, OrtTensorTypeAndShapeInfo **out)
{
    *out = calloc(1, sizeof **out);
    (*out)->value = value;
    return NULL;
}

static void release_info(OrtTensorTypeAndShapeInfo *info)
{
    free(info);
}

static OrtStatus *info_type(const OrtTensorTypeAndShapeInfo *info, int *type)
{
    (void)info;
    *type = 1;
    return NULL;
}

static OrtStatus *info_rank(const OrtTensorTypeAndShapeInfo *info, size_t *rank)
{
    *rank = info->value->rank;
    return NULL;
}

static OrtStatus *info_shape(const OrtTensorTypeAndShapeInfo *info, int64_t *shape, size_t rank)
{
    memcpy(shape, info->value->shape, rank * sizeof *shape);
    return NULL;
}

static OrtStatus *open_binding(OrtSession *session, OrtIoBinding **out)
{
    (void)session;
    binding = (OrtIoBinding){.outputs_given = -1};
    *out = &binding;
    return NULL;
}

static void close_binding(OrtIoBinding *b)
{
    strcat(b->log, "close");
}

static OrtStatus *bind_input(OrtIoBinding *b, const char *name, const OrtValue *value)
{
    snprintf(b->log + strlen(b->log), 64, "in %s %s, ", name, value->gpu ? "gpu" : "host");
    return NULL;
}

static OrtStatus *bind_output(OrtIoBinding *b, const char *name, const OrtMemoryInfo *info)
{
    snprintf(b->log + strlen(b->log), 64, "out %s %s, ", name, info->gpu ? "gpu" : "host");
    b->gpu[b->outputs++] = info->gpu;
    return NULL;
}

static OrtStatus *synchronise(OrtIoBinding *b)
{
    strcat(b->log, "sync, ");
    return NULL;
}

static OrtStatus *run_binding(OrtSession *session, const OrtRunOptions *options, const OrtIoBinding *b)
{
    (void)session, (void)options, (void)b;
    strcat(binding.log, "run, ");
    return NULL;
}

/* Two floats each, in the memory that they are bound to. */
static OrtStatus *bound_outputs(const OrtIoBinding *b, OrtAllocator *allocator, OrtValue ***out, size_t *count)
{
    const int64_t shape[] = {2};
    (void)allocator;
    *count = (size_t)(binding.outputs_given >= 0 ? binding.outputs_given : b->outputs);
    *out = calloc(*count + 1, sizeof **out);
    arrays++;
    for (size_t i = 0; i < *count; i++) {
        proa_buffer *bytes = NULL;
        if (b->gpu[i])
            assert_int_equal(proa_gpu_upload(&streams[0], &bytes, (float[]){5, 6}, 8, NULL), PROA_OK);
        else bytes = proa_buffer_new(8);
        make_value(b->gpu[i] ? &gpu_info : &host_info, bytes->data, 8, shape, 1, 1, &(*out)[i]);
        (*out)[i]->own = bytes;
    }
    return NULL;
}

static OrtStatus *free_array(OrtAllocator *allocator, void *data)
{
    (void)allocator;
    free(data);
    arrays--;
    return NULL;
}

static const proa_ort ort = {.allocator = &host_allocator,
                             .host = &host_info,
                             .CreateTensorWithDataAsOrtValue = make_value,
                             .CreateMemoryInfo = make_info,
                             .ReleaseMemoryInfo = release_memory,
                             .ReleaseValue = release_value,
                             .GetTensorMutableData = value_data,
                             .GetValueType = value_kind,
                             .GetTensorTypeAndShape = value_info,
                             .ReleaseTensorTypeAndShapeInfo = release_info,
                             .GetTensorElementType = info_type,
                             .GetDimensionsCount = info_rank,
                             .GetDimensions = info_shape,
                             .CreateIoBinding = open_binding,
                             .ReleaseIoBinding = close_binding,
                             .BindInput = bind_input,
                             .BindOutputToDevice = bind_output,
                             .SynchronizeBoundInputs = synchronise,
                             .SynchronizeBoundOutputs = synchronise,
                             .RunWithBinding = run_binding,
                             .GetBoundOutputValues = bound_outputs,
                             .AllocatorFree = free_array};

/* ---- inputs ---- */

static const proa_onnx_tensor x = {.name = "X", .type = PROA_TYPE_FP32, .onnx_type = 1, .rank = 1, .dims = {-1}};

/* The memory of GPU 0 as the library of a backend describes it: not to be read through the host. */
static const proa_device_memory of_library = {.name = "a library's", .gpu = 0};

/* A request with the input X of two floats, in the memory of GPU `gpu`; -1: of the host. */
static proa_infer *make_request(int gpu, float a, float b)
{
    proa_infer *r = proa_infer_new();
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("X"));
    const float data[] = {a, b};
    t->type = PROA_TYPE_FP32, t->rank = 1, t->shape[0] = 2, t->bytes = sizeof data;
    if (gpu < 0) memcpy((t->buffer = proa_buffer_new(sizeof data))->data, data, sizeof data);
    else assert_int_equal(proa_gpu_upload(&streams[gpu], &t->buffer, data, sizeof data, NULL), PROA_OK);
    t->data = t->buffer->data;
    return r;
}

/* The floats of a value, read as its memory allows. */
static void check_floats(const OrtValue *value, const float *want, size_t count)
{
    float have[8];
    assert_int_equal(value->bytes, count * sizeof *want);
    if (!value->gpu) memcpy(have, value->data, value->bytes);
    else assert_int_equal(device.memory->read(device.memory, have, value->data, value->bytes, NULL), PROA_OK);
    assert_memory_equal(have, want, value->bytes);
}

static uint64_t to_host(void)
{
    return proa_device_copies_count().to_host;
}

static OrtValue *join(proa_onnx_device *on, proa_infer **requests, int count, proa_buffer **held)
{
    OrtValue *value = NULL;
    proa_err err = {0};
    proa_onnx_batch batch = {.as = &x, .requests = requests, .count = count};
    assert_int_equal(proa_onnx_join(&value, held, &ort, on, &batch, &err), PROA_OK);
    assert_int_equal(value->shape[0], 2 * count);
    return value;
}

static void end_join(OrtValue *value, proa_buffer *held, proa_infer **requests, int count)
{
    release_value(value);
    proa_buffer_drop(held);
    for (int i = 0; i < count; i++) proa_infer_drop(requests[i]);
    assert_int_equal(values_alive, 0);
}

static void test_one_part_is_bound_where_it_is(void **state)
{
    proa_buffer *held;
    uint64_t before = to_host();
    proa_infer *r = make_request(0, 1, 2);
    (void)state;
    OrtValue *value = join(&device, &r, 1, &held);
    assert_true(value->gpu && value->data == r->inputs[0].data && !held);
    assert_int_equal(to_host(), before);
    end_join(value, held, &r, 1);
}

static void test_parts_are_joined_within_the_device(void **state)
{
    proa_buffer *held;
    uint64_t before = to_host();
    proa_infer *r[] = {make_request(0, 1, 2), make_request(0, 3, 4)};
    (void)state;
    r[1]->inputs[0].buffer->memory = &of_library;
    OrtValue *value = join(&device, r, 2, &held);
    assert_true(value->gpu && held && held->memory == device.memory);
    check_floats(value, (float[]){1, 2, 3, 4}, 4);
    assert_int_equal(to_host(), before);
    end_join(value, held, r, 2);
}

static void test_parts_of_several_memories_go_through_the_host(void **state)
{
    proa_buffer *held;
    (void)state;
    for (int other = -1; other < 2; other += 2) { /* the host, another GPU */
        uint64_t before = to_host();
        proa_infer *r[] = {make_request(0, 1, 2), make_request(other, 3, 4)};
        OrtValue *value = join(&device, r, 2, &held);
        assert_false(value->gpu);
        check_floats(value, (float[]){1, 2, 3, 4}, 4);
        assert_int_equal(to_host() - before, other < 0 ? 1 : 2);
        end_join(value, held, r, 2);
    }
}

static void test_on_the_cpu_all_go_to_the_host(void **state)
{
    proa_onnx_device cpu;
    proa_buffer *held;
    proa_infer *r = make_request(0, 1, 2);
    (void)state;
    assert_int_equal(proa_onnx_device_open(&cpu, &ort, -1, NULL), PROA_OK);
    OrtValue *value = join(&cpu, &r, 1, &held);
    assert_false(value->gpu);
    check_floats(value, (float[]){1, 2}, 2);
    end_join(value, held, &r, 1);
    proa_onnx_device_close(&cpu, &ort);
}

/* ---- runs ---- */

static void test_a_run_binds_inputs_and_outputs(void **state)
{
    static const char *const in_names[] = {"X"}, *const out_names[] = {"Y", "S"};
    static const proa_onnx_tensor strings = {.name = "S", .type = PROA_TYPE_BYTES, .onnx_type = 8};
    const proa_onnx_tensor *tensors[] = {&x, &strings};
    OrtValue input = {.gpu = true}, *inputs[] = {&input}, *values[2] = {NULL, NULL};
    proa_onnx_run run = {in_names, inputs, 1, out_names, tensors, values, 2, true};
    proa_err err = {0};
    (void)state;
    assert_int_equal(proa_onnx_device_run(&ort, NULL, NULL, &device, &run, &err), PROA_OK);
    assert_string_equal(binding.log, "in X gpu, out Y gpu, out S host, sync, run, sync, close");
    assert_true(values[0]->gpu && !values[1]->gpu);
    release_value(values[1]);

    proa_tensor t; /* the output keeps its place and its value until it is released */
    assert_int_equal(proa_onnx_tensor_of(&t, &ort, device.memory, &x, values[0], &err), PROA_OK);
    assert_true(proa_tensor_device(&t) == device.memory && t.bytes == 8 && t.shape[0] == 2);
    assert_int_equal(values_alive, 1);
    assert_int_equal(proa_tensor_to_host(&t, &err), PROA_OK);
    assert_memory_equal(t.data, ((float[]){5, 6}), 8);
    proa_tensor_release(&t);
    assert_int_equal(values_alive, 0);

    run.device_outputs = false;
    assert_int_equal(proa_onnx_device_run(&ort, NULL, NULL, &device, &run, &err), PROA_OK);
    assert_string_equal(binding.log, "in X gpu, out Y host, out S host, sync, run, sync, close");
    release_value(values[0]), release_value(values[1]);
    assert_int_equal(arrays, 0);
}

static OrtStatus *run_with_few_outputs(OrtSession *session, const OrtRunOptions *options, const OrtIoBinding *b)
{
    binding.outputs_given = 1;
    return run_binding(session, options, b);
}

static void test_too_few_outputs_are_an_error(void **state)
{
    static const char *const names[] = {"Y", "Z"};
    const proa_onnx_tensor *tensors[] = {&x, &x};
    OrtValue *values[2] = {NULL, NULL};
    const proa_onnx_run run = {names, NULL, 0, names, tensors, values, 2, true};
    proa_ort few = ort;
    proa_err err = {0};
    (void)state;
    few.RunWithBinding = run_with_few_outputs;
    assert_int_equal(proa_onnx_device_run(&few, NULL, NULL, &device, &run, &err), PROA_INTERNAL);
    assert_string_equal(err.text, "onnx runtime gives 1 outputs, 2 are bound");
    assert_true(!values[0] && values_alive == 0 && arrays == 0);
}

static int open_gpus(void **state)
{
    proa_err err = {0};
    (void)state;
    setenv("PROA_CUDA_PLUGIN", PROA_FAKE_GPU, 1);
    proa_status status = proa_onnx_device_open(&device, &ort, 0, &err);
    for (int i = 0; i < 2 && status == PROA_OK; i++) status = proa_gpu_stream_open(&streams[i], i, &err);
    return status == PROA_OK && device.memory ? 0 : -1;
}

static int close_gpus(void **state)
{
    (void)state;
    proa_onnx_device_close(&device, &ort);
    for (int i = 0; i < 2; i++) proa_gpu_stream_close(&streams[i]);
    return infos;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_part_is_bound_where_it_is),
        cmocka_unit_test(test_parts_are_joined_within_the_device),
        cmocka_unit_test(test_parts_of_several_memories_go_through_the_host),
        cmocka_unit_test(test_on_the_cpu_all_go_to_the_host),
        cmocka_unit_test(test_a_run_binds_inputs_and_outputs),
        cmocka_unit_test(test_too_few_outputs_are_an_error),
    };
    return cmocka_run_group_tests(tests, open_gpus, close_gpus);
}
