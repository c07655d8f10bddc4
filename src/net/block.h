/* SPDX-License-Identifier: Apache-2.0
 * block.h - blocks of memory for messages that come and go by the hundred thousand: a thread that has a pool gets back
 * what was freed on it, by sizes of powers of two; other threads just free.
 * Owner:   a block is its taker's until proa_block_free. A pool lives while somebody holds it open.
 * Threads: get and free from any thread; only those on the thread of a pool reach it. No lock, no atomics. */
#ifndef PROA_NET_BLOCK_H
#define PROA_NET_BLOCK_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct proa_block_pool proa_block_pool;
/* The pool of the calling thread, made at the first open. */
proa_block_pool *proa_block_pool_open(void);
/* The last close frees what the pool keeps. From another thread only when the pool's own does not run any more. */
void proa_block_pool_close(proa_block_pool *pool);

/* At least that many bytes, not zeroed, aligned to 64. NULL if the system has none (a message may claim 2 GiB). */
void *proa_block_get(size_t bytes);
size_t proa_block_bytes(const void *block); /* what it really has */
/* For what a client sends: from now on so many bytes of the block are counted, until it is freed. All threads together
 * may have PROA_INFLIGHT_BYTES_MAX; false beyond that. Who gets a block for a size that was only claimed counts what has
 * come: claims cost a client nothing. */
PROA_MUST_CHECK bool proa_block_count(void *block, size_t bytes);
void proa_block_free(void *block); /* NULL is fine */

#endif
