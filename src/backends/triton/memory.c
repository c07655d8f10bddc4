/* SPDX-License-Identifier: Apache-2.0
 * memory.c - memory of GPUs for backends of Triton: where inputs are, buffers of outputs, and the memory manager. */
#include "backends/triton/abi.h"

#include "backends/gpu/gpu.h"
#include "base/alloc.h"
#include "base/log.h"

void proa_triton_locate(const proa_tensor *t, int *memory_type, int64_t *memory_id)
{
    const proa_device_memory *memory = proa_tensor_device(t);
    *memory_type = memory ? PROA_TRITON_GPU_MEMORY : PROA_TRITON_CPU;
    *memory_id = memory ? memory->gpu : 0;
}

/* A backend asks for the type that it would like: as in Triton it gets host memory where a GPU has none left. */
static bool take_on_gpu(proa_buffer **out, int64_t memory_id, uint64_t bytes)
{
    static atomic_bool warned;
    proa_err why = {0};
    if (proa_gpu_buffer_on(memory_id, out, bytes, &why) == PROA_OK) return true;
    if (!atomic_exchange(&warned, true))
        PROA_LOG(WARNING, "%s; the output is in host memory. More of this is not logged", why.text);
    return false;
}

proa_status proa_triton_output_memory(proa_buffer **out, const TRITONBACKEND_Output *output, uint64_t bytes,
                                      int memory_type, int64_t memory_id, proa_err *err)
{
    proa_type type = output->reply->outputs[output->index].type;
    bool on_gpu = memory_type == PROA_TRITON_GPU_MEMORY && type != PROA_TYPE_BYTES &&
                  proa_infer_takes_device_outputs(output->infer);
    return on_gpu && take_on_gpu(out, memory_id, bytes) ? PROA_OK : proa_buffer_try(out, bytes, err);
}

/* ---- the memory manager ---- */

/* Memory of a GPU that a backend has. */
typedef struct gpu_allocation {
    struct gpu_allocation *next;
    proa_buffer *buffer;
} gpu_allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpu_allocation *all; /* under the lock */

static TRITONSERVER_Error *take_gpu(void **buffer, int64_t memory_id, uint64_t bytes)
{
    proa_err err = {0};
    gpu_allocation *t = proa_calloc(1, sizeof *t);
    if (proa_gpu_buffer_on(memory_id, &t->buffer, bytes, &err) != PROA_OK) {
        free(t);
        return proa_triton_error(PROA_TRITON_UNAVAILABLE, "%s", err.text);
    }
    pthread_mutex_lock(&lock);
    t->next = all;
    all = t;
    pthread_mutex_unlock(&lock);
    *buffer = t->buffer->data;
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(void *manager, void **buffer, int memory_type,
                                                        int64_t memory_id, uint64_t bytes)
{
    (void)manager;
    if (memory_type == PROA_TRITON_GPU_MEMORY) return take_gpu(buffer, memory_id, bytes);
    if (memory_type != PROA_TRITON_CPU)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED, "memory of type %s is not available to backends",
                                 TRITONSERVER_MemoryTypeString(memory_type));
    *buffer = malloc(bytes ? bytes : 1);
    if (!*buffer)
        return proa_triton_error(PROA_TRITON_UNAVAILABLE, "not enough memory for %llu bytes",
                                 (unsigned long long)bytes);
    return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(void *manager, void *buffer, int memory_type, int64_t memory_id)
{
    (void)manager;
    (void)memory_id;
    if (memory_type != PROA_TRITON_GPU_MEMORY) {
        free(buffer);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    gpu_allocation **at = &all;
    while (*at && (*at)->buffer->data != buffer) at = &(*at)->next;
    gpu_allocation *t = *at;
    if (t) *at = t->next;
    pthread_mutex_unlock(&lock);
    if (!t)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "the buffer is not one of the memory manager's");
    proa_buffer_drop(t->buffer);
    free(t);
    return NULL;
}
