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

/* ---- the memory manager: one pool for each GPU, as in Triton ----
 * Its Python backend relies on that. It takes memory to be of the pool if both begin at the same address (CUDA's
 * attribute RANGE_START_ADDR), and copies an output to where it was wanted only from memory that is. */

#define POOL_BYTES ((uint64_t)64 << 20) /* Triton's default of --cuda-memory-pool-byte-size */
#define POOL_ALIGN ((uint64_t)512)

/* What a backend has of a pool. */
typedef struct pool_block {
    struct pool_block *next; /* behind it in the pool */
    uint64_t at, bytes;
} pool_block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    proa_buffer *memory; /* taken with the first block; stays until the program ends */
    pool_block *blocks;
} pools[PROA_GPUS_MAX]; /* under the lock */

static proa_status open_pool(int64_t gpu, proa_err *err)
{
    if (gpu < 0 || gpu >= PROA_GPUS_MAX)
        return PROA_FAIL(err, INVALID, "there is no GPU %lld", (long long)gpu);
    return pools[gpu].memory ? PROA_OK : proa_gpu_buffer_on(gpu, &pools[gpu].memory, POOL_BYTES, err);
}

/* In the first gap that is large enough; NULL: there is none. */
static void *take_block(int64_t gpu, uint64_t bytes)
{
    uint64_t at = 0;
    pool_block **link = &pools[gpu].blocks;
    if (bytes > POOL_BYTES) return NULL;
    bytes = (bytes + !bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    for (; *link && (*link)->at - at < bytes; link = &(*link)->next) at = (*link)->at + (*link)->bytes;
    if (POOL_BYTES - at < bytes) return NULL;
    pool_block *b = proa_calloc(1, sizeof *b);
    *b = (pool_block){*link, at, bytes};
    *link = b;
    return pools[gpu].memory->data + at;
}

static TRITONSERVER_Error *take_gpu(void **buffer, int64_t gpu, uint64_t bytes)
{
    proa_err err = {0};
    pthread_mutex_lock(&lock);
    proa_status status = open_pool(gpu, &err);
    *buffer = status == PROA_OK ? take_block(gpu, bytes) : NULL;
    pthread_mutex_unlock(&lock);
    if (*buffer) return NULL;
    if (status == PROA_OK)
        (void)PROA_FAIL(&err, UNAVAILABLE, "the pool of GPU %lld has no %llu bytes left, of %llu",
                        (long long)gpu, (unsigned long long)bytes, (unsigned long long)POOL_BYTES);
    return proa_triton_error(PROA_TRITON_UNAVAILABLE, "%s", err.text);
}

/* False: it is no block of the pool. */
static bool give_back(int64_t gpu, const char *buffer)
{
    if (gpu < 0 || gpu >= PROA_GPUS_MAX) return false;
    pthread_mutex_lock(&lock);
    pool_block **link = &pools[gpu].blocks;
    while (*link && pools[gpu].memory->data + (*link)->at != buffer) link = &(*link)->next;
    pool_block *b = *link;
    if (b) *link = b->next;
    pthread_mutex_unlock(&lock);
    free(b);
    return b != NULL;
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
    if (memory_type != PROA_TRITON_GPU_MEMORY) free(buffer);
    else if (!give_back(memory_id, buffer))
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "the buffer is not one of the memory manager's");
    return NULL;
}
