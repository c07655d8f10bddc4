/* SPDX-License-Identifier: Apache-2.0
 * tensor.c - data types, reference-counted buffers, shapes, and the length framing of BYTES tensors. */
#include "serve/tensor.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "serve/recycle.h"
#include <string.h>

#define HEAD_BYTES ((size_t)64) /* of a buffer whose data follows it: a cache line */

_Static_assert(sizeof(proa_buffer) <= HEAD_BYTES, "the head of a buffer is a cache line");

static const struct {
    const char *wire, *config;
    size_t wire_len;
    int64_t bytes;
} types[PROA_TYPE_COUNT] = {
#define ROW(name, text, st, bytes, floating, wire, number)                                                   \
    [number] = {#wire, "TYPE_" #wire, sizeof(#wire) - 1, bytes},
    [PROA_TYPE_INVALID] = {"<invalid>", "TYPE_INVALID", 9, 0}, PROA_TYPE_LIST(ROW)
#undef ROW
};

static atomic_uint_fast64_t copied;

static bool is_known(proa_type type)
{
    return (unsigned)type < PROA_TYPE_COUNT;
}

const char *proa_type_name(proa_type type)
{
    return types[is_known(type) ? type : PROA_TYPE_INVALID].wire;
}

const char *proa_type_config_name(proa_type type)
{
    if (type == PROA_TYPE_BYTES) return "TYPE_STRING"; /* the one type that has two names */
    return types[is_known(type) ? type : PROA_TYPE_INVALID].config;
}

int64_t proa_type_bytes(proa_type type)
{
    return is_known(type) ? types[type].bytes : 0;
}

proa_type proa_type_find(proa_str name)
{
    for (int t = PROA_TYPE_INVALID + 1; t < PROA_TYPE_COUNT; t++)
        if (name.len == types[t].wire_len && memcmp(name.ptr, types[t].wire, name.len) == 0)
            return (proa_type)t;
    return PROA_TYPE_INVALID;
}

/* ---- buffers ---- */

/* The recycler that a buffer with its own bytes is taken from; COUNT: the system allocator. */
static proa_recycle_kind kind_for(size_t bytes)
{
    if (bytes <= proa_recycle_bytes(PROA_RECYCLE_BUFFER) - HEAD_BYTES) return PROA_RECYCLE_BUFFER;
    if (bytes <= proa_recycle_bytes(PROA_RECYCLE_BUFFER4) - HEAD_BYTES) return PROA_RECYCLE_BUFFER4;
    return PROA_RECYCLE_COUNT;
}

static proa_buffer *buffer_init(proa_buffer *b, proa_recycle_kind kind, size_t bytes)
{
    b->data = (char *)b + HEAD_BYTES;
    b->bytes = bytes;
    b->free_data = NULL;
    b->memory = NULL;
    b->arg = (void *)(uintptr_t)kind; /* the way back, whatever becomes of `bytes` */
    atomic_init(&b->refs, 1);
    return b;
}

proa_buffer *proa_buffer_new(size_t bytes)
{
    proa_recycle_kind kind = kind_for(bytes);
    PROA_ASSERT(bytes <= SIZE_MAX / 2);
    return buffer_init(kind < PROA_RECYCLE_COUNT ? proa_recycle_take(kind)
                                                 : proa_malloc_aligned(HEAD_BYTES + bytes),
                       kind, bytes);
}

/* From this size on, running out of memory is the request's failure; below, the reserve serves (base/alloc.h). */
#define LARGE_BYTES ((size_t)1 << 20)

static proa_buffer_source *buffer_source; /* NULL: none */
static size_t source_least;

void proa_buffer_set_source(proa_buffer_source *source, size_t least)
{
    buffer_source = source;
    source_least = least;
}

proa_status proa_buffer_try(proa_buffer **out, size_t bytes, proa_err *err)
{
    *out = PROA_UNLIKELY(buffer_source && bytes >= source_least) ? buffer_source(bytes) : NULL;
    if (*out) return PROA_OK;
    if (bytes < LARGE_BYTES) {
        *out = proa_buffer_new(bytes);
        return PROA_OK;
    }
    proa_buffer *b = bytes <= SIZE_MAX / 2 ? proa_malloc_aligned_try(HEAD_BYTES + bytes) : NULL;
    if (!b) return PROA_FAIL(err, NO_MEMORY, "not enough memory for a tensor of %zu bytes", bytes);
    *out = buffer_init(b, PROA_RECYCLE_COUNT, bytes);
    return PROA_OK;
}

proa_buffer *proa_buffer_wrap(void *data, size_t bytes, void (*free_data)(void *arg), void *arg)
{
    return proa_buffer_wrap_memory(NULL, data, bytes, free_data, arg);
}

proa_buffer *proa_buffer_wrap_memory(const proa_device_memory *memory, void *data, size_t bytes,
                                     void (*free_data)(void *arg), void *arg)
{
    PROA_ASSERT(free_data);
    proa_buffer *b = proa_recycle_take(PROA_RECYCLE_HEAD);
    b->data = data;
    b->bytes = bytes;
    b->free_data = free_data;
    b->arg = arg;
    b->memory = memory;
    atomic_init(&b->refs, 1);
    return b;
}

proa_buffer *proa_buffer_hold(proa_buffer *buffer)
{
    if (buffer) atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
    return buffer;
}

static void buffer_free(proa_buffer *b)
{
    if (b->free_data) {
        b->free_data(b->arg);
        proa_recycle_give(PROA_RECYCLE_HEAD, b);
        return;
    }
    proa_recycle_kind kind = (proa_recycle_kind)(uintptr_t)b->arg;
    if (kind < PROA_RECYCLE_COUNT) proa_recycle_give(kind, b);
    else free(b);
}

void proa_buffer_drop(proa_buffer *buffer)
{
    if (!buffer) return;
    /* the only holder needs no atomic subtraction: no other thread can take a reference any more */
    if (atomic_load_explicit(&buffer->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) == 1)
        buffer_free(buffer);
}

/* ---- shapes ---- */

int64_t proa_shape_elements(const int64_t *shape, int32_t rank)
{
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        if (!proa_mul(n, shape[i], &n)) return -1;
    return n;
}

bool proa_shape_equal(const int64_t *a, int32_t a_rank, const int64_t *b, int32_t b_rank)
{
    return a_rank == b_rank && (a_rank == 0 || memcmp(a, b, (size_t)a_rank * sizeof *a) == 0);
}

void proa_shape_print(proa_buf *out, const int64_t *shape, int32_t rank)
{
    proa_buf_char(out, '[');
    for (int32_t i = 0; i < rank; i++) proa_buf_printf(out, "%s%lld", i ? "," : "", (long long)shape[i]);
    proa_buf_char(out, ']');
}

/* ---- tensors ---- */

void proa_tensor_share(proa_tensor *dst, const proa_tensor *src)
{
    *dst = *src;
    proa_buffer_hold(dst->buffer);
}

void proa_tensor_reshape(proa_tensor *t, const int64_t *from, int32_t from_rank, const int64_t *to,
                         int32_t to_rank, bool batched)
{
    int64_t shape[PROA_COUNT(t->shape)];
    int32_t open = batched; /* the next dimension of `from` to look at */
    if (batched) shape[0] = t->shape[0];
    for (int32_t i = batched; i < to_rank; i++) {
        shape[i] = to[i];
        if (shape[i] != -1) continue;
        while (open < from_rank && from[open] != -1) open++;
        shape[i] = open < from_rank ? t->shape[open++] : 1;
    }
    memcpy(t->shape, shape, (size_t)to_rank * sizeof *shape);
    t->rank = to_rank;
}

void proa_tensor_release(proa_tensor *tensor)
{
    proa_buffer_drop(tensor->buffer);
    tensor->buffer = NULL;
    tensor->data = NULL;
    tensor->bytes = 0;
}

bool proa_tensor_next_string(const proa_tensor *tensor, size_t *at, proa_str *element)
{
    size_t left = tensor->bytes - *at;
    uint32_t len;
    if (*at > tensor->bytes || left < sizeof len) return false;
    memcpy(&len, tensor->data + *at, sizeof len);
    if (len > left - sizeof len) return false;
    *element = (proa_str){tensor->data + *at + sizeof len, len};
    *at += sizeof len + len;
    return true;
}

bool proa_tensor_strings_fit(const proa_tensor *tensor, int64_t elements, int64_t *found)
{
    size_t at = 0;
    proa_str s;
    int64_t n = 0;
    while (proa_tensor_next_string(tensor, &at, &s)) n++;
    if (found) *found = n;
    return n == elements && at == tensor->bytes;
}

/* ---- devices ---- */

static atomic_uint_fast64_t device_copies[2], device_copy_bytes[2]; /* [1]: to the host */

void proa_device_copies_add(bool to_host, size_t bytes)
{
    atomic_fetch_add_explicit(&device_copies[to_host], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&device_copy_bytes[to_host], bytes, memory_order_relaxed);
}

proa_device_copies proa_device_copies_count(void)
{
    return (proa_device_copies){atomic_load(&device_copies[1]), atomic_load(&device_copy_bytes[1]),
                                atomic_load(&device_copies[0]), atomic_load(&device_copy_bytes[0])};
}

void proa_device_copies_merge(const proa_device_copies *more)
{
    atomic_fetch_add_explicit(&device_copies[1], more->to_host, memory_order_relaxed);
    atomic_fetch_add_explicit(&device_copy_bytes[1], more->to_host_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&device_copies[0], more->to_device, memory_order_relaxed);
    atomic_fetch_add_explicit(&device_copy_bytes[0], more->to_device_bytes, memory_order_relaxed);
}

proa_status proa_tensor_to_host(proa_tensor *t, proa_err *err)
{
    const proa_device_memory *memory = proa_tensor_device(t);
    proa_buffer *copy;
    if (PROA_LIKELY(!memory)) return PROA_OK;
    PROA_TRY(proa_buffer_try(&copy, t->bytes, err));
    proa_status status = memory->read(memory, copy->data, t->data, t->bytes, err);
    if (status != PROA_OK) return proa_buffer_drop(copy), status;
    proa_device_copies_add(true, t->bytes);
    proa_buffer_drop(t->buffer);
    t->buffer = copy;
    t->data = copy->data;
    return PROA_OK;
}

proa_status proa_tensor_copy_to(proa_buffer *to, const proa_tensor *t, proa_err *err)
{
    proa_tensor host;
    PROA_DASSERT(to->bytes >= t->bytes);
    if (!t->bytes) return PROA_OK;
    if (proa_tensor_is_on(t, to->memory))
        return to->memory->copy(to->memory, to->data, t->data, t->bytes, err);
    proa_tensor_share(&host, t);
    proa_status status = proa_tensor_to_host(&host, err);
    if (status == PROA_OK && to->memory) {
        status = to->memory->write(to->memory, to->data, host.data, host.bytes, err);
        proa_device_copies_add(false, host.bytes);
    } else if (status == PROA_OK) {
        memmove(to->data, host.data, host.bytes); /* an identity may answer from the same region */
        proa_copies_add(host.bytes);
    }
    proa_tensor_release(&host);
    return status;
}

void proa_copies_add(size_t bytes)
{
    atomic_fetch_add_explicit(&copied, bytes, memory_order_relaxed);
}

uint64_t proa_copies_count(void)
{
    return atomic_load_explicit(&copied, memory_order_relaxed);
}
