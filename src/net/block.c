/* SPDX-License-Identifier: Apache-2.0
 * block.c - free lists of memory blocks per thread, and the count of bytes that clients have in flight. */
#include "net/block.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <stdatomic.h>

enum {
    SMALLEST_BITS = 8,
    LARGEST_BITS = 25,
    CLASSES = LARGEST_BITS - SMALLEST_BITS + 1
}; /* 256 B to 32 MiB */
#define NO_CLASS (-1)

/* The header of a block, in the 64 bytes before the address that the caller gets. */
typedef struct block_head {
    struct block_head *next; /* while it is in a pool */
    size_t bytes;            /* usable by the caller */
    int class;
    size_t counted; /* of them */
} block_head;
#define HEAD_BYTES  ((size_t)64)

/* From this size on a block is a message, which can be refused; below, the reserve serves (base/alloc.h). */
#define LARGE_BYTES ((size_t)1 << 20)

struct proa_block_pool {
    block_head *free[CLASSES];
    size_t bytes; /* in all lists */
    int opened;
};
static _Thread_local proa_block_pool *own;
static atomic_llong in_flight; /* bytes of counted blocks */

proa_block_pool *proa_block_pool_open(void)
{
    if (!own) own = proa_calloc(1, sizeof *own);
    own->opened++;
    return own;
}

void proa_block_pool_close(proa_block_pool *pool)
{
    if (--pool->opened > 0) return;
    for (int i = 0; i < CLASSES; i++)
        for (block_head *b = pool->free[i], *next; b; b = next) {
            next = b->next;
            free(b);
        }
    if (own == pool) own = NULL;
    free(pool);
}

static int class_of(size_t bytes)
{
    if (bytes > (size_t)1 << LARGEST_BITS) return NO_CLASS;
    if (bytes <= (size_t)1 << SMALLEST_BITS) return 0;
    return 64 - __builtin_clzll((unsigned long long)bytes - 1) - SMALLEST_BITS;
}

static size_t class_bytes(int class)
{
    return (size_t)1 << (class + SMALLEST_BITS);
}

static void *block_new(size_t bytes, int class)
{
    size_t size = class == NO_CLASS ? (bytes + HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES : class_bytes(class);
    block_head *head = size < LARGE_BYTES ? proa_malloc_aligned(HEAD_BYTES + size)
                                          : proa_malloc_aligned_try(HEAD_BYTES + size);
    if (!head) return NULL;
    *head = (block_head){.bytes = size, .class = class};
    return (char *)head + HEAD_BYTES;
}

void *proa_block_get(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    int class = class_of(bytes);
    block_head *head = own && class != NO_CLASS ? own->free[class] : NULL;
    if (!head) return block_new(bytes, class);
    own->free[class] = head->next;
    own->bytes -= class_bytes(class);
    return (char *)head + HEAD_BYTES;
}

size_t proa_block_bytes(const void *block)
{
    return ((const block_head *)((const char *)block - HEAD_BYTES))->bytes;
}

bool proa_block_count(void *block, size_t bytes)
{
    block_head *head = (block_head *)((char *)block - HEAD_BYTES);
    if (bytes <= head->counted) return true;
    long long more = (long long)(bytes - head->counted);
    if (atomic_fetch_add_explicit(&in_flight, more, memory_order_relaxed) + more > PROA_INFLIGHT_BYTES_MAX) {
        atomic_fetch_sub_explicit(&in_flight, more, memory_order_relaxed);
        return false;
    }
    head->counted = bytes;
    return true;
}

proa_status proa_block_hold(proa_arena *arena, size_t bytes, proa_err *err)
{
    if (bytes < PROA_INFLIGHT_COUNTED_MIN) return PROA_OK;
    void *block = proa_block_get(1);
    if (!proa_block_count(block, bytes)) {
        proa_block_free(block);
        return PROA_FAIL(err, UNAVAILABLE, "%s", PROA_INFLIGHT_FULL);
    }
    proa_arena_defer(arena, proa_block_free, block);
    return PROA_OK;
}

void proa_block_free(void *block)
{
    if (!block) return;
    block_head *head = (block_head *)((char *)block - HEAD_BYTES);
    if (head->counted) atomic_fetch_sub_explicit(&in_flight, (long long)head->counted, memory_order_relaxed);
    head->counted = 0;
    if (!own || head->class == NO_CLASS || own->bytes + class_bytes(head->class) > PROA_BLOCK_POOL_BYTES) {
        free(head);
        return;
    }
    head->next = own->free[head->class];
    own->free[head->class] = head;
    own->bytes += class_bytes(head->class);
}
