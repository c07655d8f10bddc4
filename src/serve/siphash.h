/* SPDX-License-Identifier: Apache-2.0
 * siphash.h - inside serve: SipHash-1-3 with 128 bits of result (Aumasson and Bernstein): a keyed hash of bytes.
 * Threads: none of its own. */
#ifndef PROA_SERVE_SIPHASH_H
#define PROA_SERVE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct proa_siphash {
    uint64_t v[4];
    unsigned char rest[8]; /* bytes of a word that is not full */
    uint64_t bytes;        /* hashed so far */
} proa_siphash;

void proa_siphash_init(proa_siphash *h, const uint64_t key[2]);
void proa_siphash_add(proa_siphash *h, const void *bytes, size_t len);
void proa_siphash_end(proa_siphash *h, uint64_t out[2]);

#endif
