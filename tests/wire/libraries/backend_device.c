/* SPDX-License-Identifier: Apache-2.0
 * backend_device.c - a backend whose tensors are in the memory of a GPU, by the driver's libcuda.so.1 (NVIDIA's, or
 * that of tests/fake_gpu). The model's parameter `do` says what OUT is:
 *     copy    IN, by a copy within the GPU
 *     slow    the same after 5 ms
 *     add     IN + 1
 *     where   the GPU of IN, -1: the host, in all elements
 *     pair    IN + 1, and OUT2 is IN + 2 on GPU 1
 *     die     IN; the process is killed if its first element is 26
 * With the parameter `host_inputs` it takes inputs in host memory only. */
#include "proa/backend.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t pointer; /* CUdeviceptr */

static const proa_backend_host *host;

/* ---- the driver ---- */

static struct {
    int (*init)(unsigned flags);
    int (*device)(int *device, int index);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*synchronize)(void);
    int (*alloc)(pointer *memory, size_t bytes);
    int (*free)(pointer memory);
    int (*to_device)(pointer to, const void *from, size_t bytes);
    int (*to_host)(void *to, pointer from, size_t bytes);
    int (*copy)(pointer to, pointer from, size_t bytes);
} cuda;

static void *contexts[2];

static bool load_cuda(void)
{
    const struct {
        const char *name;
        void *to;
    } all[] = {{"cuInit", &cuda.init},
               {"cuDeviceGet", &cuda.device},
               {"cuDevicePrimaryCtxRetain", &cuda.retain},
               {"cuCtxPushCurrent_v2", &cuda.push},
               {"cuCtxPopCurrent_v2", &cuda.pop},
               {"cuCtxSynchronize", &cuda.synchronize},
               {"cuMemAlloc_v2", &cuda.alloc},
               {"cuMemFree_v2", &cuda.free},
               {"cuMemcpyHtoD_v2", &cuda.to_device},
               {"cuMemcpyDtoH_v2", &cuda.to_host},
               {"cuMemcpyDtoD_v2", &cuda.copy}};
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; driver && i < sizeof all / sizeof *all; i++) {
        void *found = dlsym(driver, all[i].name);
        if (!found) return false;
        memcpy(all[i].to, &found, sizeof found);
    }
    return driver && cuda.init(0) == 0;
}

/* Work of this thread goes to that GPU until leave(). */
static bool enter(int gpu)
{
    int device;
    if (!contexts[gpu] && (cuda.device(&device, gpu) != 0 || cuda.retain(&contexts[gpu], device) != 0))
        return false;
    return cuda.push(contexts[gpu]) == 0;
}

static void leave(void)
{
    void *context;
    cuda.pop(&context);
}

/* ---- memory ---- */

typedef struct block {
    int gpu;
    pointer at;
} block;

static proa_status read_memory(const proa_backend_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    bool read = enter(memory->device) && cuda.to_host(to, (pointer)(uintptr_t)from, bytes) == 0;
    leave();
    return read ? PROA_OK : host->fail(err, PROA_INTERNAL, "the GPU's memory cannot be read");
}

static const proa_backend_memory memories[2] = {{sizeof(proa_backend_memory), "cuda:0", 0, read_memory},
                                                {sizeof(proa_backend_memory), "cuda:1", 1, read_memory}};

static void release(void *arg)
{
    block *b = arg;
    enter(b->gpu);
    cuda.free(b->at);
    leave();
    free(b);
}

static proa_status take(block **out, int gpu, size_t bytes, proa_err *err)
{
    block *b = calloc(1, sizeof *b);
    b->gpu = gpu;
    bool taken = enter(gpu) && cuda.alloc(&b->at, bytes) == 0;
    leave();
    if (!taken) return free(b), host->fail(err, PROA_NO_MEMORY, "the GPU has no memory");
    *out = b;
    return PROA_OK;
}

/* ---- execution ---- */

typedef struct given {
    proa_backend_tensor in;
    int gpu; /* -1: the host */
} given;

static void read_input(float *to, const given *g)
{
    if (g->gpu < 0) memcpy(to, g->in.data, g->in.bytes);
    else read_memory(&memories[g->gpu], to, g->in.data, g->in.bytes, NULL);
}

static void fill(float *values, size_t count, const char *what, const given *g, float more)
{
    read_input(values, g);
    if (strcmp(what, "die") == 0 && values[0] == 26) raise(SIGKILL);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(what, "where") == 0) values[i] = (float)g->gpu;
        else if (strcmp(what, "die") != 0) values[i] += more;
    }
}

static void write_output(const block *b, const char *what, const given *g, float more)
{
    enter(b->gpu);
    if (strcmp(what, "slow") == 0) usleep(5000), what = "copy";
    if (g->gpu >= 0 && strcmp(what, "copy") == 0) {
        cuda.copy(b->at, (pointer)(uintptr_t)g->in.data, g->in.bytes);
        cuda.synchronize();
    } else {
        float *values = malloc(g->in.bytes);
        fill(values, g->in.bytes / sizeof *values, what, g, strcmp(what, "copy") == 0 ? 0 : more);
        if (g->gpu < 0) host->count_device_copy(false, g->in.bytes);
        cuda.to_device(b->at, values, g->in.bytes);
        free(values);
    }
    leave();
}

static proa_status add_output(proa_backend_response *response, const char *name, const char *what, int gpu,
                              const given *g, float more, proa_err *err)
{
    block *b;
    proa_status status = take(&b, gpu, g->in.bytes, err);
    if (status != PROA_OK) return status;
    write_output(b, what, g, more);
    return host->response_output_of(response, name, PROA_BACKEND_FP32, g->in.shape, g->in.rank,
                                    (const void *)(uintptr_t)b->at, g->in.bytes, &memories[gpu], release, b,
                                    err);
}

static proa_status compute(const char *what, const proa_backend_request *request,
                           proa_backend_response *response, proa_err *err)
{
    given g;
    if (!host->request_input(request, 0, &g.in)) return host->fail(err, PROA_INVALID, "no input");
    g.gpu = host->request_input_device(request, 0);
    proa_status status = add_output(response, "OUT", what, 0, &g, 1, err);
    if (status == PROA_OK && strcmp(what, "pair") == 0)
        status = add_output(response, "OUT2", what, 1, &g, 2, err);
    return status;
}

static void execute(void *state, proa_backend_request *const *requests, int count)
{
    const char *what = host->model_parameter(state, "do");
    for (int i = 0; i < count; i++) {
        proa_err err = {0};
        proa_backend_response *response = host->response_new(requests[i]);
        proa_status status = compute(what, requests[i], response, &err);
        if (status != PROA_OK) host->response_error(response, status, err.text);
        host->response_send(requests[i], response, true);
    }
}

static proa_status model_open(void **state, proa_backend_model *model, proa_err *err)
{
    *state = model;
    if (!load_cuda()) return host->fail(err, PROA_UNAVAILABLE, "there is no libcuda.so.1");
    if (!host->model_parameter(model, "host_inputs")) host->model_takes_device_inputs(model);
    return PROA_OK;
}

static proa_status instance_open(void **state, void *model_state, const proa_backend_instance *instance,
                                 proa_err *err)
{
    (void)instance;
    (void)err;
    *state = model_state;
    return PROA_OK;
}

static const proa_backend_table table = {
    .bytes = sizeof table,
    .version = PROA_BACKEND_VERSION,
    .flags = PROA_BACKEND_GPU,
    .model_open = model_open,
    .instance_open = instance_open,
    .execute = execute,
};

PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *given, proa_err *err);
PROA_EXPORT const proa_backend_table *proa_backend_entry(const proa_backend_host *given, proa_err *err)
{
    (void)err;
    host = given;
    return &table;
}
