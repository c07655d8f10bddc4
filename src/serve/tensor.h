/* SPDX-License-Identifier: Apache-2.0
 * tensor.h - what travels between faces, models and the steps of an ensemble: named arrays in KServe v2's wire layout.
 * Little-endian, row-major, dense; an element of BYTES is a 4-byte length and the bytes.
 * Owner:   a tensor holds one reference to its buffer; passing a tensor on is taking another reference, never a copy.
 * Threads: reference counts are atomic; the bytes are not written after the tensor was handed on. */
#ifndef PROA_SERVE_TENSOR_H
#define PROA_SERVE_TENSOR_H

#include "base/arena.h"
#include "base/status.h"
#include <stdatomic.h>

/* enum, KServe's name, config.pbtxt's name, bytes of an element (0: it varies); values are those of model_config.proto */
#define PROA_TYPE_LIST(X)                                                                                    \
    X(INVALID, "<invalid>", "TYPE_INVALID", 0)                                                               \
    X(BOOL, "BOOL", "TYPE_BOOL", 1)                                                                          \
    X(UINT8, "UINT8", "TYPE_UINT8", 1)                                                                       \
    X(UINT16, "UINT16", "TYPE_UINT16", 2)                                                                    \
    X(UINT32, "UINT32", "TYPE_UINT32", 4)                                                                    \
    X(UINT64, "UINT64", "TYPE_UINT64", 8)                                                                    \
    X(INT8, "INT8", "TYPE_INT8", 1)                                                                          \
    X(INT16, "INT16", "TYPE_INT16", 2)                                                                       \
    X(INT32, "INT32", "TYPE_INT32", 4)                                                                       \
    X(INT64, "INT64", "TYPE_INT64", 8)                                                                       \
    X(FP16, "FP16", "TYPE_FP16", 2)                                                                          \
    X(FP32, "FP32", "TYPE_FP32", 4)                                                                          \
    X(FP64, "FP64", "TYPE_FP64", 8)                                                                          \
    X(BYTES, "BYTES", "TYPE_STRING", 0)                                                                      \
    X(BF16, "BF16", "TYPE_BF16", 2)

typedef enum proa_type {
#define PROA_TYPE_ENUM(name, wire, config, bytes) PROA_TYPE_##name,
    PROA_TYPE_LIST(PROA_TYPE_ENUM)
#undef PROA_TYPE_ENUM
        PROA_TYPE_COUNT
} proa_type;

const char *proa_type_name(proa_type type);        /* "FP32" */
const char *proa_type_config_name(proa_type type); /* "TYPE_FP32" */
int64_t proa_type_bytes(proa_type type);
proa_type proa_type_find(proa_str name); /* by KServe's name; INVALID if there is none */

/* Memory with a count of its holders. */
typedef struct proa_buffer {
    atomic_int refs;
    char *data;
    size_t bytes;
    void (*free_data)(void *arg); /* NULL: data lies behind this struct */
    void *arg;
} proa_buffer;

proa_buffer *proa_buffer_new(size_t bytes); /* not zeroed, data aligned to 64 bytes; never NULL */
/* The same for a size that a request chooses: NO_MEMORY, and *out NULL, when the system refuses a large one. */
PROA_MUST_CHECK proa_status proa_buffer_try(proa_buffer **out, size_t bytes, proa_err *err);
/* Bytes that somebody else owns; free_data(arg) when the last holder has let go. */
proa_buffer *proa_buffer_wrap(void *data, size_t bytes, void (*free_data)(void *arg), void *arg);
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

/* Product of the shape; -1 if it overflows or a dimension is negative. */
int64_t proa_shape_elements(const int64_t *shape, int32_t rank);
bool proa_shape_equal(const int64_t *a, int32_t a_rank, const int64_t *b, int32_t b_rank);
/* "[-1,16]" */
void proa_shape_print(proa_buf *out, const int64_t *shape, int32_t rank);
/* dst becomes another holder of what src holds. The name is shared too. */
void proa_tensor_share(proa_tensor *dst, const proa_tensor *src);
void proa_tensor_release(proa_tensor *tensor);
/* Elements of BYTES: *at walks over tensor->data from 0; false at the end, or if the lengths do not fit. */
bool proa_tensor_next_string(const proa_tensor *tensor, size_t *at, proa_str *element);
/* True if the framing of a BYTES tensor holds exactly `elements` strings; *found says how many there are. */
bool proa_tensor_strings_fit(const proa_tensor *tensor, int64_t elements, int64_t *found);

/* Bytes that were copied from one tensor into another, since the start: whoever does that (the response cache, outputs into
 * shared memory) adds them. A test sees here that an ensemble of identities copies nothing; /metrics tells it. */
void proa_copies_add(size_t bytes);
uint64_t proa_copies_count(void);

#endif
