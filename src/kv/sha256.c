/* SPDX-License-Identifier: Apache-2.0
 * sha256.c - SHA-256 as FIPS 180-4 writes it. */
#include "kv/sha256.h"

#include <string.h>

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t read_big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void write_big_endian(unsigned char *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* The message schedule W of a block (6.2.2, step 1). */
static void make_schedule(uint32_t w[64], const unsigned char *block)
{
    for (int i = 0; i < 16; i++) w[i] = read_big_endian(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t low = rotate_right(w[i - 15], 7) ^ rotate_right(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t high = rotate_right(w[i - 2], 17) ^ rotate_right(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + low + w[i - 7] + high;
    }
}

/* Steps 2 to 4: the working variables a to h are v[0] to v[7]. */
static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], v[8];
    make_schedule(w, block);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = rotate_right(v[4], 6) ^ rotate_right(v[4], 11) ^ rotate_right(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t first = v[7] + e + choice + round_constant[i] + w[i];
        uint32_t a = rotate_right(v[0], 2) ^ rotate_right(v[0], 13) ^ rotate_right(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += first;
        v[0] = first + a + majority;
    }
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void proa_sha256_init(proa_sha256 *s)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (proa_sha256){.bytes = 0};
    memcpy(s->state, initial, sizeof initial);
}

void proa_sha256_add(proa_sha256 *s, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    while (len > 0) {
        size_t at = s->bytes % sizeof s->block, n = sizeof s->block - at;
        if (n > len) n = len;
        memcpy(s->block + at, p, n);
        s->bytes += n, p += n, len -= n;
        if (at + n == sizeof s->block) add_block(s->state, s->block);
    }
}

void proa_sha256_end(proa_sha256 *s, unsigned char out[PROA_SHA256_BYTES])
{
    static const unsigned char padding[72] = {0x80};
    uint64_t bits = s->bytes * 8;
    unsigned char length[8];
    write_big_endian(length, (uint32_t)(bits >> 32));
    write_big_endian(length + 4, (uint32_t)bits);
    proa_sha256_add(s, padding, 1 + (119 - s->bytes % 64) % 64);
    proa_sha256_add(s, length, sizeof length);
    for (int i = 0; i < 8; i++) write_big_endian(out + 4 * i, s->state[i]);
}
