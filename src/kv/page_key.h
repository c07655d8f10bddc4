/* SPDX-License-Identifier: Apache-2.0
 * page_key.h - a name of a page's contents that holds outside of the tree: SHA-256 of everything that decides about
 * them. The key of a page comes from that of the page before it and from its own tokens, and the first key of a
 * sequence from its namespace. So pages with equal keys have equal tokens from the beginning on, and no client can make
 * a prompt whose pages pass for another's (vLLM names blocks in the same way). */
#ifndef PROA_KV_PAGE_KEY_H
#define PROA_KV_PAGE_KEY_H

#include "kv/sha256.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct proa_page_key {
    unsigned char bytes[PROA_SHA256_BYTES];
} proa_page_key;

/* A page as the lower levels know it. */
typedef struct proa_page_name {
    proa_page_key key;
    const int32_t *ids; /* [count] its own tokens */
    int32_t count;
    int32_t depth; /* pages before it */
} proa_page_name;

/* The key of a namespace's bytes. */
proa_page_key proa_page_key_of(const void *bytes, size_t len);
/* The key of the page of `count` tokens after `before`: the page before it, or the namespace. root: of which of a
 * namespace's sequences the page is the first one (proa_prefix_root); 0: it is not the first. */
proa_page_key proa_page_key_next(const proa_page_key *before, int32_t root, const int32_t *ids, int64_t count);
bool proa_page_key_equal(const proa_page_key *a, const proa_page_key *b);

#endif
