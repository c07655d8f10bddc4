/* SPDX-License-Identifier: Apache-2.0
 * sha256.h - SHA-256 (FIPS 180-4), for bytes that an attacker may choose: equal hashes must mean equal bytes.
 * Owner:   the caller.  Threads: one at a time for each state. */
#ifndef PROA_KV_SHA256_H
#define PROA_KV_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define PROA_SHA256_BYTES 32

typedef struct proa_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* added so far */
    unsigned char block[64];
} proa_sha256;

void proa_sha256_init(proa_sha256 *s);
void proa_sha256_add(proa_sha256 *s, const void *bytes, size_t len);
void proa_sha256_end(proa_sha256 *s, unsigned char out[PROA_SHA256_BYTES]);

#endif
