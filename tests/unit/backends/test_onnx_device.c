/* SPDX-License-Identifier: Apache-2.0
 * test_onnx_device.c - inputs and outputs in the memory of a GPU, with functions in place of ONNX Runtime's and a GPU
 * whose addresses the host cannot read: what is bound where, what is copied, what is released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/onnx/device.h"
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define FAR ((uintptr_t)1 << 62) /* an address of the GPU: that of the bytes, and this bit */

struct OrtMemoryInfo {
    bool gpu;
};
struct OrtAllocator {
    bool gpu;
};
struct OrtValue {
    bool gpu, own;
    char *data;
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
static OrtAllocator host_allocator = {false}, gpu_allocator = {true};
static OrtIoBinding binding;
static int values_alive, reads, copies, arrays;

static void *near(const void *address)
{
    return (void *)((uintptr_t)address & ~FAR);
}

static OrtStatus *make_value(const OrtMemoryInfo *info, void *data, size_t bytes, const int64_t *shape,
                             size_t rank, int type, OrtValue **out)
{
    (void)bytes, (void)type;
    *out = calloc(1, sizeof **out);
    **out = (OrtValue){.gpu = info->gpu, .data = data, .rank = rank};
    memcpy((*out)->shape, shape, rank * sizeof *shape);
    values_alive++;
    return NULL;
}

static OrtStatus *allocate_value(OrtAllocator *allocator, const int64_t *shape, size_t rank, int type,
                                 OrtValue **out)
{
    char *data = calloc(64, 1);
    make_value(allocator->gpu ? &gpu_info : &host_info,
               allocator->gpu ? (void *)((uintptr_t)data | FAR) : data, 64, shape, rank, type, out);
    (*out)->own = true;
    return NULL;
}

static void release_value(OrtValue *value)
{
    if (value->own) free(near(value->data));
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

static OrtStatus *bound_outputs(const OrtIoBinding *b, OrtAllocator *allocator, OrtValue ***out, size_t *count)
{
    const int64_t shape[] = {2};
    (void)allocator;
    *count = (size_t)(binding.outputs_given >= 0 ? binding.outputs_given : b->outputs);
    *out = calloc(*count + 1, sizeof **out);
    arrays++;
    for (size_t i = 0; i < *count; i++)
        allocate_value(b->gpu[i] ? &gpu_allocator : &host_allocator, shape, 1, 1, &(*out)[i]);
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
                             .CreateTensorAsOrtValue = allocate_value,
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

/* ---- the GPUs ---- */

static proa_status read_gpu(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                            proa_err *err)
{
    (void)memory, (void)err;
    memcpy(to, near(from), bytes);
    reads++;
    return PROA_OK;
}

static proa_status copy_gpu(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                            proa_err *err)
{
    (void)memory, (void)err;
    memcpy(near(to), near(from), bytes);
    copies++;
    return PROA_OK;
}

static const proa_device_memory gpus[] = {{"cuda:0", 0, read_gpu}, {"cuda:1", 1, read_gpu}};
static const proa_onnx_device device = {&gpus[0], &gpu_info, &gpu_allocator, copy_gpu};
static const proa_onnx_tensor x = {.name = "X", .type = PROA_TYPE_FP32, .onnx_type = 1, .rank = 1, .dims = {-1}};

static void free_bytes(void *arg)
{
    free(near(arg));
}

/* A request with the input X of two floats, in the memory of GPU `gpu`; -1: of the host. */
static proa_infer *make_request(int gpu, float a, float b)
{
    proa_infer *r = proa_infer_new();
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("X"));
    float *data = malloc(2 * sizeof *data);
    data[0] = a, data[1] = b;
    void *address = gpu < 0 ? (void *)data : (void *)((uintptr_t)data | FAR);
    t->type = PROA_TYPE_FP32, t->rank = 1, t->shape[0] = 2, t->bytes = 8;
    t->buffer = proa_buffer_wrap_memory(gpu < 0 ? NULL : &gpus[gpu], address, 8, free_bytes, address);
    t->data = address;
    return r;
}

static OrtValue *join(proa_infer **requests, int count, void **memory)
{
    OrtValue *value = NULL;
    proa_err err = {0};
    reads = copies = 0;
    assert_int_equal(proa_onnx_join(&value, memory, &ort, &device, &x, false, requests, count, &err), PROA_OK);
    assert_int_equal(value->shape[0], 2 * count);
    return value;
}

static void end_join(OrtValue *value, void *memory, proa_infer **requests, int count)
{
    release_value(value);
    free(memory);
    for (int i = 0; i < count; i++) proa_infer_drop(requests[i]);
    assert_int_equal(values_alive, 0);
}

static void test_one_part_is_bound_where_it_is(void **state)
{
    void *memory;
    proa_infer *r = make_request(0, 1, 2);
    (void)state;
    OrtValue *value = join(&r, 1, &memory);
    assert_true(value->gpu && value->data == r->inputs[0].data && !memory);
    assert_int_equal(reads + copies, 0);
    end_join(value, memory, &r, 1);
}

static void test_parts_are_joined_within_the_device(void **state)
{
    void *memory;
    proa_infer *r[] = {make_request(0, 1, 2), make_request(0, 3, 4)};
    (void)state;
    OrtValue *value = join(r, 2, &memory);
    assert_true(value->gpu && !memory);
    assert_memory_equal(near(value->data), ((float[]){1, 2, 3, 4}), 16);
    assert_int_equal(reads, 0);
    assert_int_equal(copies, 2);
    end_join(value, memory, r, 2);
}

static void test_parts_of_several_memories_go_through_the_host(void **state)
{
    void *memory;
    (void)state;
    for (int other = -1; other < 2; other += 2) { /* the host, another GPU */
        proa_infer *r[] = {make_request(0, 1, 2), make_request(other, 3, 4)};
        OrtValue *value = join(r, 2, &memory);
        assert_false(value->gpu);
        assert_memory_equal(value->data, ((float[]){1, 2, 3, 4}), 16);
        assert_int_equal(reads, other < 0 ? 1 : 2);
        end_join(value, memory, r, 2);
    }
}

static void test_without_a_device_all_go_to_the_host(void **state)
{
    const proa_onnx_device none = {0};
    void *memory;
    OrtValue *value = NULL;
    proa_infer *r = make_request(0, 1, 2);
    (void)state;
    reads = 0;
    assert_int_equal(proa_onnx_join(&value, &memory, &ort, &none, &x, false, &r, 1, NULL), PROA_OK);
    assert_false(value->gpu);
    assert_memory_equal(value->data, ((float[]){1, 2}), 8);
    assert_int_equal(reads, 1);
    end_join(value, memory, &r, 1);
}

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
    assert_int_equal(proa_onnx_tensor_of(&t, &ort, &gpus[0], &x, values[0], &err), PROA_OK);
    assert_true(proa_tensor_device(&t) == &gpus[0] && t.bytes == 8 && t.shape[0] == 2);
    assert_int_equal(values_alive, 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_part_is_bound_where_it_is),
        cmocka_unit_test(test_parts_are_joined_within_the_device),
        cmocka_unit_test(test_parts_of_several_memories_go_through_the_host),
        cmocka_unit_test(test_without_a_device_all_go_to_the_host),
        cmocka_unit_test(test_a_run_binds_inputs_and_outputs),
        cmocka_unit_test(test_too_few_outputs_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
