/* SPDX-License-Identifier: Apache-2.0
 * http_body.c - memory of request bodies, counted over all connections. */
#include "net/http_inner.h"

#include "net/block.h"
#include <stdatomic.h>

/* Smaller ones are not counted: a connection has one at a time, so they come to 1.3 GB at most. */
#define COUNTED_BYTES ((size_t)64 << 10)

static atomic_llong inflight;

static long long counted(const char *body)
{
    size_t bytes = proa_block_bytes(body);
    return bytes > COUNTED_BYTES ? (long long)bytes : 0;
}

char *proa_http_body_new(size_t bytes)
{
    char *body = bytes <= PROA_INFLIGHT_BYTES_MAX ? proa_block_get(bytes) : NULL;
    if (!body) return NULL;
    long long count = counted(body);
    if (count == 0) return body;
    if (atomic_fetch_add(&inflight, count) + count <= PROA_INFLIGHT_BYTES_MAX) return body;
    proa_http_body_free(body);
    return NULL;
}

void proa_http_body_free(void *body)
{
    if (!body) return;
    long long count = counted(body);
    if (count) atomic_fetch_sub(&inflight, count);
    proa_block_free(body);
}
