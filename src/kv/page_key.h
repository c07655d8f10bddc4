/* SPDX-License-Identifier: Apache-2.0
 * page_key.h - the key of a page's contents outside of the tree: SHA-256 over everything that decides them, as for
 * vLLM's block hashes. The key of a page is computed from the key of the page before it and its own tokens, that of
 * the first page from the namespace. So pages with equal keys have equal tokens from the beginning of the sequence on,
 * and no client can make a prompt whose pages have the keys of another prompt. */
#ifndef PROA_KV_PAGE_KEY_H
#define PROA_KV_PAGE_KEY_H

#include "kv/sha256.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct proa_page_key {
    unsigned char bytes[PROA_SHA256_BYTES];
} proa_page_key;

/* What the lower levels know of a page. */
typedef struct proa_page_name {
    proa_page_key key;
    const int32_t *ids; /* [count] its own tokens */
    int32_t count;
    int32_t depth; /* pages before it */
} proa_page_name;

/* The key of a namespace's bytes. */
proa_page_key proa_page_key_of(const void *bytes, size_t len);
/* The key of the page with these `count` tokens that follows the page with key `before`. For the first page of a
 * sequence `before` is the key of the namespace, and root is its tree (proa_prefix_root); for others root is 0. */
proa_page_key proa_page_key_next(const proa_page_key *before, int32_t root, const int32_t *ids, int64_t count);
bool proa_page_key_equal(const proa_page_key *a, const proa_page_key *b);

#endif
