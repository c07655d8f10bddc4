/* SPDX-License-Identifier: Apache-2.0
 * tensor.h - tensors between protocols, models and the steps of an ensemble: named arrays in KServe v2's wire layout.
 * Little-endian, row-major, dense; an element of BYTES is a 4-byte length and the bytes.
 * The bytes are in host memory, or in that of a device (proa_device_memory): what the host reads has to be there.
 * Owner:   a tensor holds one reference to its buffer; passing a tensor on is taking another reference, never a copy.
 * Threads: reference counts are atomic; the bytes are complete when the tensor is handed on, and not written after.
 *          So it is on a device: a producer waits for its stream before it replies, and so does a consumer before it
 *          ends a request, whose buffers may be freed or used again then. No event travels with a buffer. */
#ifndef PROA_SERVE_TENSOR_H
#define PROA_SERVE_TENSOR_H

#include "base/arena.h"
#include "base/status.h"
#include "tensor/dtype.h"
#include <stdatomic.h>

/* The element types of tensors on the wire, from the list of tensor/dtype.h; values are those of model_config.proto. */
#define PROA_TYPE_LIST(X) PROA_DTYPE_COMMON_LIST(X) PROA_DTYPE_WIRE_ONLY_LIST(X)

typedef enum proa_type {
    PROA_TYPE_INVALID = 0,
#define PROA_TYPE_ENUM(name, text, st, bytes, floating, wire, number) PROA_TYPE_##wire = number,
    PROA_TYPE_LIST(PROA_TYPE_ENUM)
#undef PROA_TYPE_ENUM
        PROA_TYPE_COUNT = 15
} proa_type;

/* The types whose elements are numbers of C. enum, C type, kind: U unsigned, I signed, F float, D double */
#define PROA_TYPE_C_LIST(X)                                                                                  \
    X(UINT8, uint8_t, U)                                                                                     \
    X(UINT16, uint16_t, U)                                                                                   \
    X(UINT32, uint32_t, U)                                                                                   \
    X(UINT64, uint64_t, U)                                                                                   \
    X(INT8, int8_t, I)                                                                                       \
    X(INT16, int16_t, I)                                                                                     \
    X(INT32, int32_t, I)                                                                                     \
    X(INT64, int64_t, I)                                                                                     \
    X(FP32, float, F)                                                                                        \
    X(FP64, double, D)

const char *proa_type_name(proa_type type);        /* "FP32" */
const char *proa_type_config_name(proa_type type); /* "TYPE_FP32" */
int64_t proa_type_bytes(proa_type type);
proa_type proa_type_find(proa_str name); /* by KServe's name; INVALID if there is none */

/* Memory that the host cannot read: a GPU's. Filled by the owner of the device (backends/gpu); lives as long as the
 * program. */
typedef struct proa_device_memory proa_device_memory;
struct proa_device_memory {
    const char *name; /* "cuda:0", for messages */
    int32_t gpu;      /* N of "cuda:N" */
    /* Copies to host memory; returns when the bytes have arrived. Any thread. */
    proa_status (*read)(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                        proa_err *err);
    /* The same from host memory, or (copy) within this memory. */
    proa_status (*write)(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                         proa_err *err);
    proa_status (*copy)(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                        proa_err *err);
};

/* Memory with a count of its holders. */
typedef struct proa_buffer {
    atomic_int refs;
    char *data; /* not to be read by the host if `memory` is set */
    size_t bytes;
    void (*free_data)(void *arg); /* NULL: data is after this struct */
    void *arg;
    const proa_device_memory *memory; /* where data is; NULL: host memory */
} proa_buffer;

proa_buffer *proa_buffer_new(size_t bytes); /* not zeroed, data aligned to 64 bytes; never NULL */
/* The same for a size that a request chooses: NO_MEMORY, and *out NULL, when the system refuses a large one. */
PROA_MUST_CHECK proa_status proa_buffer_try(proa_buffer **out, size_t bytes, proa_err *err);
/* From `least` bytes on, buffers of proa_buffer_try come from `source`, unless it returns NULL. For a process whose
 * replies go into shared memory. Before other threads run. */
typedef proa_buffer *proa_buffer_source(size_t bytes);
void proa_buffer_set_source(proa_buffer_source *source, size_t least);
/* Wraps bytes with another owner; free_data(arg) is called when the last reference is dropped. */
proa_buffer *proa_buffer_wrap(void *data, size_t bytes, void (*free_data)(void *arg), void *arg);
/* The same for bytes of a device. */
proa_buffer *proa_buffer_wrap_memory(const proa_device_memory *memory, void *data, size_t bytes,
                                     void (*free_data)(void *arg), void *arg);
proa_buffer *proa_buffer_hold(proa_buffer *buffer); /* NULL is fine */
void proa_buffer_drop(proa_buffer *buffer);         /* NULL is fine */

typedef struct proa_tensor {
    const char *name; /* NUL-terminated; lives as long as the request, the reply or the model that it belongs to */
    proa_type type;
    int32_t rank; /* 0..PROA_SERVE_RANK_MAX */
    int64_t shape[16];
    proa_buffer *buffer; /* NULL if bytes is 0 */
    const char *data;    /* inside buffer; NULL if bytes is 0 */
    size_t bytes;
} proa_tensor;

/* The device whose memory holds the bytes; NULL: the host's. */
static inline const proa_device_memory *proa_tensor_device(const proa_tensor *t)
{
    return t->buffer ? t->buffer->memory : NULL;
}
/* Is the tensor in memory of this GPU? One GPU can have several descriptions, since a library of a backend brings its
 * own; all code in the process reads and writes the addresses of all of them. */
static inline bool proa_tensor_is_on(const proa_tensor *t, const proa_device_memory *memory)
{
    const proa_device_memory *own = proa_tensor_device(t);
    return own && memory && own->gpu == memory->gpu;
}
/* Puts a copy in host memory in place of bytes on a device, and counts it; on failure t is as before. */
PROA_MUST_CHECK proa_status proa_tensor_to_host(proa_tensor *t, proa_err *err);

/* Copies the bytes of t to the beginning of a buffer, which is not smaller, wherever both are; counts what crosses. */
PROA_MUST_CHECK proa_status proa_tensor_copy_to(proa_buffer *to, const proa_tensor *t, proa_err *err);

/* Product of the shape; -1 if it overflows or a dimension is negative. */
int64_t proa_shape_elements(const int64_t *shape, int32_t rank);
bool proa_shape_equal(const int64_t *a, int32_t a_rank, const int64_t *b, int32_t b_rank);
/* "[-1,16]" */
void proa_shape_print(proa_buf *out, const int64_t *shape, int32_t rank);
/* Makes dst a copy of src that holds its own reference to the buffer. The name is shared. */
void proa_tensor_share(proa_tensor *dst, const proa_tensor *src);
/* Changes the shape by a pair of configured shapes: t->shape, which fits `from`, becomes `to`, where -1 takes the next
 * dimension that `from` leaves open, in order (1 if there is none). With `batched` the first dimension stays. */
void proa_tensor_reshape(proa_tensor *t, const int64_t *from, int32_t from_rank, const int64_t *to,
                         int32_t to_rank, bool batched);
void proa_tensor_release(proa_tensor *tensor);
/* Elements of BYTES: *at walks over tensor->data from 0; false at the end, or if the lengths do not fit. */
bool proa_tensor_next_string(const proa_tensor *tensor, size_t *at, proa_str *element);
/* True if the framing of a BYTES tensor holds exactly `elements` strings; *found says how many there are. */
bool proa_tensor_strings_fit(const proa_tensor *tensor, int64_t elements, int64_t *found);

/* Bytes that were copied from one tensor into another since the start (by the response cache, or for outputs in shared
 * memory). /metrics reports them; a test checks with it that an ensemble of identities copies nothing. */
void proa_copies_add(size_t bytes);
uint64_t proa_copies_count(void);

/* Tensors that were copied between a device and the host since the start, and their bytes. A chain of steps on one
 * device copies its inputs to the device once and its outputs to the host once. /metrics reports them. */
typedef struct proa_device_copies {
    uint64_t to_host, to_host_bytes, to_device, to_device_bytes;
} proa_device_copies;
void proa_device_copies_add(bool to_host, size_t bytes);
proa_device_copies proa_device_copies_count(void);
void proa_device_copies_merge(const proa_device_copies *more); /* those of another process */

#endif
