/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - the memory of GPUs for tensors, and streams. Memory that is given back is kept for the next tensor, since
 * taking it from the driver costs more than most kernels. Nobody uses it any more then: whoever has launched kernels
 * on a buffer waits for them before dropping it (serve/tensor.h). */
#include "backends/gpu/gpu.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/ipc.h"
#include <limits.h>
#include <string.h>

/* Blocks are powers of two, from 256 bytes to 1 GiB; a larger one is not kept. */
#define CLASS_FIRST 8
#define CLASSES     23

typedef struct proa_gpu_block block;

struct proa_gpu_block {
    block *next;
    proa_gpu *gpu;
    void *data;
    int64_t bytes;
    int class; /* CLASSES: not kept */
    int opened; /* other processes that have it open: until it is 0, the memory is not given back to the driver */
    bool retired;    /* no tensor will have it again: freed when it is open nowhere */
    uint64_t number; /* of its exported memory; 0: it was never exported */
    char handle[PROA_IPC_HANDLE_BYTES];
};

struct proa_gpu {
    proa_device_memory memory; /* first: what buffers point to */
    pthread_mutex_t lock;      /* guards what follows */
    proa_device *device;       /* takes memory, and copies to the host; NULL: not open yet */
    block *kept[CLASSES];
    int64_t kept_bytes;
    uint64_t exported; /* blocks so far */
    char name[16];
};

static proa_gpu gpus[PROA_GPUS_MAX];
static pthread_once_t gpus_once = PTHREAD_ONCE_INIT;

/* Waits for all kernels and copies. Not device->check, which also gives back the staging memory of large uploads: the
 * next request needs it again. */
static proa_status wait_for(proa_device *d, proa_err *err)
{
    char nothing[1] = {0};
    d->send(d, nothing, nothing, 0, 0);
    d->sent(d, 0);
    return d->failed(d, err);
}

static proa_status read_memory(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    proa_gpu *g = &gpus[memory->gpu];
    pthread_mutex_lock(&g->lock);
    g->device->download(g->device, to, from, (int64_t)bytes);
    proa_status status = g->device->failed(g->device, err);
    pthread_mutex_unlock(&g->lock);
    return status;
}

static proa_status write_memory(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                                proa_err *err)
{
    proa_gpu *g = &gpus[memory->gpu];
    pthread_mutex_lock(&g->lock);
    g->device->upload(g->device, to, from, (int64_t)bytes);
    proa_status status = wait_for(g->device, err);
    pthread_mutex_unlock(&g->lock);
    return status;
}

static proa_status copy_memory(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    const proa_blocks all = {.bytes = (int64_t)bytes, .count = {1, 1}};
    proa_gpu *g = &gpus[memory->gpu];
    pthread_mutex_lock(&g->lock);
    g->device->copy(g->device, to, from, &all);
    proa_status status = wait_for(g->device, err);
    pthread_mutex_unlock(&g->lock);
    return status;
}

static void init_gpus(void)
{
    for (int i = 0; i < PROA_GPUS_MAX; i++) {
        snprintf(gpus[i].name, sizeof gpus[i].name, "cuda:%d", i);
        gpus[i].memory = (proa_device_memory){
            .name = gpus[i].name, .gpu = i, .read = read_memory, .write = write_memory, .copy = copy_memory};
        pthread_mutex_init(&gpus[i].lock, NULL);
    }
}

static proa_status open_gpu(proa_gpu **out, int index, proa_err *err)
{
    pthread_once(&gpus_once, init_gpus);
    if (index < 0 || index >= PROA_GPUS_MAX)
        return PROA_FAIL(err, INVALID, "gpu %d is none of 0 to %d", index, PROA_GPUS_MAX - 1);
    proa_gpu *g = *out = &gpus[index];
    pthread_mutex_lock(&g->lock);
    proa_status status = g->device ? PROA_OK : proa_device_open(&g->device, g->name, err);
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* ---- memory ---- */

static int class_of(size_t bytes)
{
    int class = 0;
    while (class < CLASSES && bytes > (size_t)1 << (CLASS_FIRST + class)) class ++;
    return class;
}

/* Under the lock: the memory goes back to the driver, at once or when no other process has it open. */
static void retire_block(block *b)
{
    b->retired = true;
    if (b->opened) return;
    b->gpu->device->free(b->gpu->device, b->data, b->bytes);
    free(b);
}

/* Of the driver. It is cleared in the device's stream, for which nobody else would wait before writing there. */
static void *take_cleared(proa_gpu *g, int64_t bytes)
{
    proa_err ignored = {0};
    void *data = g->device->alloc(g->device, bytes);
    if (!data || wait_for(g->device, &ignored) == PROA_OK) return data;
    g->device->free(g->device, data, bytes);
    return NULL;
}

/* A new block under the lock; when the device has no more memory, what is kept is given back first. */
static void *take_memory(proa_gpu *g, int64_t bytes)
{
    void *data = take_cleared(g, bytes);
    for (int i = 0; !data && i < CLASSES; i++)
        while (g->kept[i]) {
            block *b = g->kept[i];
            g->kept[i] = b->next;
            g->kept_bytes -= b->bytes;
            retire_block(b);
        }
    return data ? data : take_cleared(g, bytes);
}

static block *take_block(proa_gpu *g, size_t bytes)
{
    int class = class_of(bytes);
    pthread_mutex_lock(&g->lock);
    block *b = class < CLASSES ? g->kept[class] : NULL;
    if (b) {
        g->kept[class] = b->next;
        g->kept_bytes -= b->bytes;
    } else {
        int64_t size = class < CLASSES ? (int64_t)1 << (CLASS_FIRST + class) : (int64_t)bytes;
        void *data = take_memory(g, size);
        b = data ? proa_calloc(1, sizeof *b) : NULL;
        if (b) *b = (block){.gpu = g, .data = data, .bytes = size, .class = class};
    }
    pthread_mutex_unlock(&g->lock);
    return b;
}

static void give_block(void *arg)
{
    block *b = arg;
    proa_gpu *g = b->gpu;
    pthread_mutex_lock(&g->lock);
    bool keep = b->class < CLASSES && g->kept_bytes + b->bytes <= PROA_GPU_KEPT_BYTES_MAX;
    if (keep) {
        b->next = g->kept[b->class];
        g->kept[b->class] = b;
        g->kept_bytes += b->bytes;
    } else {
        retire_block(b);
    }
    pthread_mutex_unlock(&g->lock);
}

static proa_status take_buffer(proa_gpu *g, proa_buffer **out, size_t bytes, proa_err *err)
{
    block *b = bytes <= PROA_TRANSFORM_BYTES_MAX * 16 ? take_block(g, bytes) : NULL;
    *out = NULL;
    if (!b) return PROA_FAIL(err, NO_MEMORY, "device '%s' has no %zu bytes for a tensor", g->name, bytes);
    *out = proa_buffer_wrap_memory(&g->memory, b->data, bytes, give_block, b);
    return PROA_OK;
}

proa_status proa_gpu_buffer(proa_gpu_stream *s, proa_buffer **out, size_t bytes, proa_err *err)
{
    return take_buffer(s->gpu, out, bytes, err);
}

proa_status proa_gpu_buffer_on(int64_t index, proa_buffer **out, size_t bytes, proa_err *err)
{
    proa_gpu *g = NULL;
    *out = NULL;
    PROA_TRY(open_gpu(&g, index < 0 || index > INT_MAX ? -1 : (int)index, err));
    return take_buffer(g, out, bytes, err);
}

/* ---- memory for other processes ---- */

/* Is it one of the blocks above, and used by nobody else, so that another process may write there? */
static bool is_own_alone(const proa_buffer *b)
{
    return b->free_data == give_block && atomic_load_explicit(&b->refs, memory_order_acquire) == 1;
}

static proa_status export_block(proa_gpu_export *out, block *b, proa_err *err)
{
    proa_gpu *g = b->gpu;
    proa_status status = PROA_OK;
    pthread_mutex_lock(&g->lock);
    if (!b->number) status = proa_device_export_handle(g->device, b->data, b->handle, err);
    if (status == PROA_OK && !b->number) b->number = ++g->exported * PROA_GPUS_MAX + (uint64_t)g->memory.gpu;
    *out = (proa_gpu_export){.block = b, .number = b->number, .gpu = g->memory.gpu};
    memcpy(out->handle, b->handle, sizeof out->handle);
    pthread_mutex_unlock(&g->lock);
    return status;
}

proa_status proa_gpu_export_buffer(proa_gpu_export *out, const proa_buffer *buffer, proa_err *err)
{
    PROA_ASSERT(buffer->free_data == give_block);
    return export_block(out, buffer->arg, err);
}

proa_status proa_gpu_export_tensor(proa_gpu_export *out, proa_buffer **held, const proa_tensor *t,
                                   bool writable, proa_err *err)
{
    bool own = writable ? is_own_alone(t->buffer) : t->buffer->free_data == give_block;
    *held = NULL;
    if (own) *held = proa_buffer_hold(t->buffer);
    else PROA_TRY(proa_gpu_buffer_on(proa_tensor_device(t)->gpu, held, t->bytes, err));
    proa_status status = own ? PROA_OK : proa_tensor_copy_to(*held, t, err);
    if (status == PROA_OK) status = proa_gpu_export_buffer(out, *held, err);
    if (status == PROA_OK) out->offset = own ? (uint64_t)(t->data - (const char *)out->block->data) : 0;
    if (status != PROA_OK) proa_buffer_drop(*held), *held = NULL;
    return status;
}

void proa_gpu_block_opened(proa_gpu_block *b)
{
    pthread_mutex_lock(&b->gpu->lock);
    b->opened++;
    pthread_mutex_unlock(&b->gpu->lock);
}

void proa_gpu_block_closed(proa_gpu_block *b)
{
    proa_gpu *g = b->gpu;
    pthread_mutex_lock(&g->lock);
    if (--b->opened == 0 && b->retired) retire_block(b);
    pthread_mutex_unlock(&g->lock);
}

/* ---- memory of other processes ---- */

typedef struct opened {
    proa_gpu *gpu;
    void *data;
} opened;

static void close_opened(void *arg)
{
    opened *o = arg;
    proa_device_close_handle(o->gpu->device, o->data);
    free(o);
}

proa_status proa_gpu_open_handle(proa_buffer **out, int64_t device, proa_str handle, uint64_t bytes, proa_err *err)
{
    proa_gpu *g = NULL;
    void *data;
    int64_t have = 0;
    *out = NULL;
    PROA_TRY(open_gpu(&g, device < 0 || device > INT_MAX ? -1 : (int)device, err));
    if (handle.len != PROA_IPC_HANDLE_BYTES)
        return PROA_FAIL(err, INVALID, "the handle has %zu bytes, must have %d", handle.len,
                         PROA_IPC_HANDLE_BYTES);
    PROA_TRY(proa_device_open_handle(g->device, handle.ptr, &data, &have, err));
    if (bytes == 0 || have < 0 || bytes > (uint64_t)have) {
        proa_device_close_handle(g->device, data);
        return PROA_FAIL(err, INVALID, "byte_size is %llu, the memory has %lld bytes",
                         (unsigned long long)bytes, (long long)have);
    }
    opened *o = proa_calloc(1, sizeof *o);
    *o = (opened){g, data};
    *out = proa_buffer_wrap_memory(&g->memory, data, (size_t)bytes, close_opened, o);
    return PROA_OK;
}

/* ---- streams ---- */

proa_status proa_gpu_stream_open(proa_gpu_stream *s, int index, proa_err *err)
{
    *s = (proa_gpu_stream){.gpu = NULL};
    PROA_TRY(open_gpu(&s->gpu, index, err));
    PROA_TRY(proa_device_open(&s->device, s->gpu->name, err));
    s->ctx.device = s->device;
    proa_status status = proa_device_data_ops(&s->ops, s->device, err);
    if (status != PROA_OK) proa_gpu_stream_close(s);
    return status;
}

void proa_gpu_stream_close(proa_gpu_stream *s)
{
    proa_device_close(s->device);
    *s = (proa_gpu_stream){.gpu = NULL};
}

const proa_device_memory *proa_gpu_memory(const proa_gpu_stream *s)
{
    return &s->gpu->memory;
}

/* A thread has a current GPU, to which launches go; each call of a device sets it, but ops do not. */
void proa_gpu_stream_begin(proa_gpu_stream *s)
{
    static const char nothing[1];
    s->device->upload(s->device, NULL, nothing, 0);
}

proa_status proa_gpu_stream_wait(proa_gpu_stream *s, proa_err *err)
{
    return wait_for(s->device, err);
}

/* ---- tensors ---- */

proa_status proa_gpu_upload(proa_gpu_stream *s, proa_buffer **out, const void *from, size_t bytes, proa_err *err)
{
    PROA_TRY(proa_gpu_buffer(s, out, bytes, err));
    if (bytes) s->device->upload(s->device, (*out)->data, from, (int64_t)bytes);
    return PROA_OK;
}

proa_status proa_gpu_input(proa_gpu_stream *s, const proa_tensor *t, proa_buffer **out, const void **data,
                           proa_err *err)
{
    size_t element = (size_t)proa_max64(1, proa_type_bytes(t->type));
    *out = NULL;
    *data = NULL;
    if (proa_tensor_is_on(t, &s->gpu->memory) && (uintptr_t)t->data % element == 0) {
        *out = proa_buffer_hold(t->buffer);
        *data = t->data;
        return PROA_OK;
    }
    proa_tensor host;
    proa_tensor_share(&host, t);
    proa_status status = proa_tensor_to_host(&host, err); /* from another GPU */
    if (status == PROA_OK) status = proa_gpu_upload(s, out, host.data, host.bytes, err);
    if (status == PROA_OK) proa_device_copies_add(false, host.bytes);
    proa_tensor_release(&host);
    if (status == PROA_OK) *data = (*out)->data;
    return status;
}

proa_tensor *proa_gpu_output(proa_reply *reply, const proa_output_spec *spec, proa_buffer *buffer, size_t at)
{
    proa_tensor *t = proa_reply_add(reply, spec->name);
    t->type = spec->type;
    t->rank = spec->rank;
    memcpy(t->shape, spec->shape, (size_t)spec->rank * sizeof *spec->shape);
    t->bytes = (size_t)(proa_shape_elements(spec->shape, spec->rank) * proa_type_bytes(spec->type));
    if (!t->bytes) return t;
    t->buffer = proa_buffer_hold(buffer);
    t->data = buffer->data + at;
    return t;
}

bool proa_config_uses_gpu(const Inference__ModelConfig *config)
{
    for (size_t i = 0; i < config->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *g = config->instance_group[i];
        if (g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU && !g->passive) return true;
    }
    return false;
}
