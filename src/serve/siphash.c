/* SPDX-License-Identifier: Apache-2.0
 * siphash.c - SipHash-1-3 with a result of 128 bits. */
#include "serve/siphash.h"

#include <string.h>

static uint64_t rotate_left(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[3];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[2] = rotate_left(v[2], 32);
}

static void add_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

void proa_siphash_init(proa_siphash *h, const uint64_t key[2])
{
    h->v[0] = key[0] ^ 0x736f6d6570736575u;
    h->v[1] = key[1] ^ 0x646f72616e646f6du ^ 0xee; /* 0xee: a result of 128 bits */
    h->v[2] = key[0] ^ 0x6c7967656e657261u;
    h->v[3] = key[1] ^ 0x7465646279746573u;
    h->bytes = 0;
}

void proa_siphash_add(proa_siphash *h, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    size_t at = h->bytes % 8;
    uint64_t word;
    h->bytes += len;
    if (at) {
        size_t fill = 8 - at < len ? 8 - at : len;
        memcpy(h->rest + at, p, fill);
        if (at + fill < 8) return;
        memcpy(&word, h->rest, 8);
        add_word(h->v, word);
        p += fill;
        len -= fill;
    }
    uint64_t v[4] = {h->v[0], h->v[1], h->v[2], h->v[3]}; /* in registers */
    for (; len >= 8; p += 8, len -= 8) {
        memcpy(&word, p, 8);
        add_word(v, word);
    }
    memcpy(h->v, v, sizeof v);
    if (len) memcpy(h->rest, p, len);
}

void proa_siphash_end(proa_siphash *h, uint64_t out[2])
{
    uint64_t last = h->bytes << 56;
    for (size_t i = 0; i < h->bytes % 8; i++) last |= (uint64_t)h->rest[i] << 8 * i;
    add_word(h->v, last);
    h->v[2] ^= 0xee;
    for (int i = 0; i < 3; i++) sip_round(h->v);
    out[0] = h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
    h->v[1] ^= 0xdd;
    for (int i = 0; i < 3; i++) sip_round(h->v);
    out[1] = h->v[0] ^ h->v[1] ^ h->v[2] ^ h->v[3];
}
