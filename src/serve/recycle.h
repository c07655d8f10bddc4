/* SPDX-License-Identifier: Apache-2.0
 * recycle.h - inside serve: memory of a few fixed sizes that every request needs, kept for the next request.
 * Each thread keeps a short list of its own. What is made on one thread and given back on another travels in batches
 * through a common stash, so that a lock is taken once for PROA_RECYCLE_BATCH objects.
 * Owner:   the taker, until it gives the object back. Threads: any. With AddressSanitizer nothing is kept, so that it
 *          sees each misuse. */
#ifndef PROA_SERVE_RECYCLE_H
#define PROA_SERVE_RECYCLE_H

#include <stddef.h>

#define PROA_RECYCLE_BATCH 32

typedef enum proa_recycle_kind {
    PROA_RECYCLE_INFER,   /* a request with its first arena block */
    PROA_RECYCLE_REPLY,   /* a reply with its first arena block */
    PROA_RECYCLE_HEAD,    /* a proa_buffer over bytes that are not its own */
    PROA_RECYCLE_BUFFER,  /* a proa_buffer with up to 960 bytes */
    PROA_RECYCLE_BUFFER4, /* a proa_buffer with up to 4,032 bytes */
    PROA_RECYCLE_COUNT
} proa_recycle_kind;

size_t proa_recycle_bytes(proa_recycle_kind kind);
void *proa_recycle_take(proa_recycle_kind kind); /* aligned to 64 bytes, not zeroed; never NULL */
void proa_recycle_give(proa_recycle_kind kind, void *object);

#endif
