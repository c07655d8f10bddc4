/* SPDX-License-Identifier: Apache-2.0
 * device.c - tensors in the memory of a GPU: copies by CUDA's driver, which is opened when the first model runs on a
 * GPU, and runs whose inputs and outputs are bound to that memory. */
#include "backends/onnx/device.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* ---- the driver ---- */

typedef unsigned long long device_address;

typedef struct cuda_driver {
    int (*cuInit)(unsigned flags);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuCtxPopCurrent_v2)(void **context);
    int (*cuMemcpyDtoH_v2)(void *to, device_address from, size_t bytes);
    int (*cuMemcpyDtoD_v2)(device_address to, device_address from, size_t bytes);
} cuda_driver;

/* The memory of a GPU; `context` is the one that ONNX Runtime and every other user of CUDA's runtime has too. */
typedef struct gpu_memory {
    proa_device_memory memory; /* first: the tensors' pointer to it is one to this */
    void *context;
    char name[16];
    struct gpu_memory *next;
} gpu_memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_driver driver; /* set once, under the lock */
static bool driver_open;
static gpu_memory *memories; /* under the lock; entries stay */

static bool find_symbol(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static proa_status open_driver(proa_err *err)
{
    void *handle = driver_open ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver_open) return PROA_OK;
    if (!handle) return PROA_FAIL(err, UNAVAILABLE, "no CUDA driver: %s", dlerror());
    bool all = find_symbol(handle, "cuInit", &driver.cuInit) &&
               find_symbol(handle, "cuDeviceGet", &driver.cuDeviceGet) &&
               find_symbol(handle, "cuDevicePrimaryCtxRetain", &driver.cuDevicePrimaryCtxRetain) &&
               find_symbol(handle, "cuCtxPushCurrent_v2", &driver.cuCtxPushCurrent_v2) &&
               find_symbol(handle, "cuCtxPopCurrent_v2", &driver.cuCtxPopCurrent_v2) &&
               find_symbol(handle, "cuMemcpyDtoH_v2", &driver.cuMemcpyDtoH_v2) &&
               find_symbol(handle, "cuMemcpyDtoD_v2", &driver.cuMemcpyDtoD_v2);
    if (!all) return PROA_FAIL(err, UNAVAILABLE, "the CUDA driver is too old");
    int code = driver.cuInit(0);
    if (code) return PROA_FAIL(err, UNAVAILABLE, "the CUDA driver cannot be initialised: error %d", code);
    driver_open = true;
    return PROA_OK;
}

/* One copy with the GPU's context current. Blocking: the bytes have arrived when it returns. */
static proa_status copy_bytes(const gpu_memory *g, void *host, device_address to, device_address from,
                              size_t bytes, proa_err *err)
{
    void *before;
    int code = driver.cuCtxPushCurrent_v2(g->context);
    if (!code) {
        code = host ? driver.cuMemcpyDtoH_v2(host, from, bytes) : driver.cuMemcpyDtoD_v2(to, from, bytes);
        (void)driver.cuCtxPopCurrent_v2(&before);
    }
    return code ? PROA_FAIL(err, INTERNAL, "copying %zu bytes from %s failed: CUDA error %d", bytes, g->name, code)
                : PROA_OK;
}

static proa_status read_memory(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    return copy_bytes((const gpu_memory *)(const void *)memory, to, 0, (device_address)(uintptr_t)from, bytes,
                      err);
}

static proa_status open_memory(gpu_memory **out, int gpu, proa_err *err)
{
    int device, code;
    gpu_memory *g = proa_calloc(1, sizeof *g);
    *g = (gpu_memory){.memory = {.name = g->name, .gpu = gpu, .read = read_memory}, .next = memories};
    snprintf(g->name, sizeof g->name, "cuda:%d", gpu);
    code = driver.cuDeviceGet(&device, gpu);
    if (!code) code = driver.cuDevicePrimaryCtxRetain(&g->context, device);
    if (code) {
        free(g);
        return PROA_FAIL(err, UNAVAILABLE, "GPU %d cannot be used: CUDA error %d", gpu, code);
    }
    *out = memories = g;
    return PROA_OK;
}

/* The memory of a GPU, the same for every caller. */
static proa_status find_memory(gpu_memory **out, int gpu, proa_err *err)
{
    pthread_mutex_lock(&lock);
    proa_status status = open_driver(err);
    for (*out = memories; *out && (*out)->memory.gpu != gpu;) *out = (*out)->next;
    if (status == PROA_OK && !*out) status = open_memory(out, gpu, err);
    pthread_mutex_unlock(&lock);
    return status;
}

static proa_status copy_within(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    return copy_bytes((const gpu_memory *)(const void *)memory, NULL, (device_address)(uintptr_t)to,
                      (device_address)(uintptr_t)from, bytes, err);
}

proa_status proa_onnx_device_open(proa_onnx_device *d, const proa_ort *ort, const OrtSession *session,
                                  int gpu, proa_err *err)
{
    gpu_memory *memory;
    *d = (proa_onnx_device){.copy = copy_within};
    PROA_TRY(find_memory(&memory, gpu, err));
    d->memory = &memory->memory;
    PROA_TRY(proa_ort_check(
        ort, ort->CreateMemoryInfo("Cuda", ORT_ARENA_ALLOCATOR, gpu, ORT_MEMORY_DEFAULT, &d->info), err));
    return proa_ort_check(ort, ort->CreateAllocator(session, d->info, &d->allocator), err);
}

void proa_onnx_device_close(proa_onnx_device *d, const proa_ort *ort)
{
    if (d->allocator) ort->ReleaseAllocator(d->allocator);
    if (d->info) ort->ReleaseMemoryInfo(d->info);
    *d = (proa_onnx_device){0};
}

/* ---- inputs ---- */

bool proa_onnx_device_holds(const proa_onnx_device *d, const proa_tensor *t)
{
    const proa_device_memory *memory = proa_tensor_device(t);
    return d && d->memory && memory && memory->gpu == d->memory->gpu;
}

proa_status proa_onnx_device_join(OrtValue **out, const proa_ort *ort, const proa_onnx_device *d,
                                  const proa_tensor *const *parts, int count, const int64_t *shape,
                                  int32_t rank, int onnx_type, proa_err *err)
{
    void *data = NULL;
    size_t at = 0;
    if (count == 1)
        return proa_ort_check(ort,
                              ort->CreateTensorWithDataAsOrtValue(d->info, (void *)(uintptr_t)parts[0]->data,
                                                                  parts[0]->bytes, shape, (size_t)rank,
                                                                  onnx_type, out),
                              err);
    PROA_TRY(proa_ort_check(ort, ort->CreateTensorAsOrtValue(d->allocator, shape, (size_t)rank, onnx_type, out),
                            err));
    PROA_TRY(proa_ort_check(ort, ort->GetTensorMutableData(*out, &data), err));
    for (int i = 0; i < count; at += parts[i]->bytes, i++)
        if (parts[i]->bytes)
            PROA_TRY(d->copy(d->memory, (char *)data + at, parts[i]->data, parts[i]->bytes, err));
    return PROA_OK;
}

/* ---- a run ---- */

static proa_status bind_all(OrtIoBinding *binding, const proa_ort *ort, const proa_onnx_device *d,
                            const proa_onnx_run *run, proa_err *err)
{
    for (int i = 0; i < run->inputs_count; i++)
        PROA_TRY(proa_ort_check(ort, ort->BindInput(binding, run->input_names[i], run->inputs[i]), err));
    for (int i = 0; i < run->outputs_count; i++) {
        bool strings = run->tensors[i]->type == PROA_TYPE_BYTES;
        const OrtMemoryInfo *where = run->device_outputs && !strings ? d->info : ort->host;
        PROA_TRY(proa_ort_check(ort, ort->BindOutputToDevice(binding, run->output_names[i], where), err));
    }
    return PROA_OK;
}

/* The library gives outputs in the order of their binding, in an array of its allocator. */
static proa_status take_outputs(OrtIoBinding *binding, const proa_ort *ort, const proa_onnx_run *run,
                                proa_err *err)
{
    OrtValue **values = NULL;
    size_t count = 0;
    PROA_TRY(proa_ort_check(ort, ort->GetBoundOutputValues(binding, ort->allocator, &values, &count), err));
    bool fits = count == (size_t)run->outputs_count;
    for (size_t i = 0; i < count; i++) {
        if (fits) run->values[i] = values[i];
        else ort->ReleaseValue(values[i]);
    }
    if (values) PROA_TRY(proa_ort_check(ort, ort->AllocatorFree(ort->allocator, values), err));
    return fits ? PROA_OK
                : PROA_FAIL(err, INTERNAL, "onnx runtime gives %zu outputs, %d are bound", count,
                            run->outputs_count);
}

proa_status proa_onnx_device_run(const proa_ort *ort, OrtSession *session, const OrtRunOptions *options,
                                 const proa_onnx_device *d, const proa_onnx_run *run, proa_err *err)
{
    OrtIoBinding *binding = NULL;
    proa_status status;
    PROA_TRY(proa_ort_check(ort, ort->CreateIoBinding(session, &binding), err));
    PROA_TRY_OUT(bind_all(binding, ort, d, run, err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->SynchronizeBoundInputs(binding), err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->RunWithBinding(session, options, binding), err));
    PROA_TRY_OUT(proa_ort_check(ort, ort->SynchronizeBoundOutputs(binding), err));
    status = take_outputs(binding, ort, run, err);
out:
    ort->ReleaseIoBinding(binding);
    return status;
}
