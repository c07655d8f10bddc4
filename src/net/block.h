/* SPDX-License-Identifier: Apache-2.0
 * block.h - blocks of memory for messages at high rates: a thread with a pool reuses what was freed on it, by sizes of
 * powers of two; threads without one use malloc and free.
 * Owner:   a block belongs to the caller of proa_block_get until proa_block_free. A pool lives until its last close.
 * Threads: get and free from any thread; only those on the thread of a pool reach it. No lock, no atomics. */
#ifndef PROA_NET_BLOCK_H
#define PROA_NET_BLOCK_H

#include "base/arena.h"
#include "base/status.h"

typedef struct proa_block_pool proa_block_pool;
/* The pool of the calling thread, made at the first open. */
proa_block_pool *proa_block_pool_open(void);
/* The last close frees the pool's blocks. From another thread only when the pool's own thread has ended. */
void proa_block_pool_close(proa_block_pool *pool);

/* At least that many bytes, not zeroed, aligned to 64. NULL if the system has none (a message may claim 2 GiB). */
void *proa_block_get(size_t bytes);
size_t proa_block_bytes(const void *block); /* its real size */
/* For data that a client sends: from now on that many bytes of the block count against PROA_INFLIGHT_BYTES_MAX, the
 * limit of all threads together, until it is freed; false beyond that. For a block of an announced size, count only
 * the bytes that have arrived: an announcement must not use up the limit. */
PROA_MUST_CHECK bool proa_block_count(void *block, size_t bytes);
#define PROA_INFLIGHT_FULL "the server holds too many request bodies"
/* The same for what a request has elsewhere, such as its decompressed body: counted until the arena is released. Less
 * than PROA_INFLIGHT_COUNTED_MIN is not counted. UNAVAILABLE beyond the limit. */
PROA_MUST_CHECK proa_status proa_block_hold(proa_arena *arena, size_t bytes, proa_err *err);
void proa_block_free(void *block); /* NULL is fine */

#endif
