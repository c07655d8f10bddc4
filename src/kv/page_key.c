/* SPDX-License-Identifier: Apache-2.0
 * page_key.c - names of pages' contents. */
#include "kv/page_key.h"

#include <string.h>

proa_page_key proa_page_key_of(const void *bytes, size_t len)
{
    proa_sha256 hash;
    proa_page_key key;
    proa_sha256_init(&hash);
    proa_sha256_add(&hash, bytes, len);
    proa_sha256_end(&hash, key.bytes);
    return key;
}

/* Numbers are hashed as this machine stores them: all that Proa runs on are little-endian. */
proa_page_key proa_page_key_next(const proa_page_key *before, int32_t root, const int32_t *ids, int64_t count)
{
    proa_sha256 hash;
    proa_page_key key;
    proa_sha256_init(&hash);
    proa_sha256_add(&hash, before->bytes, sizeof before->bytes);
    proa_sha256_add(&hash, &root, sizeof root);
    proa_sha256_add(&hash, ids, (size_t)count * sizeof *ids);
    proa_sha256_end(&hash, key.bytes);
    return key;
}

bool proa_page_key_equal(const proa_page_key *a, const proa_page_key *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
