/* SPDX-License-Identifier: Apache-2.0
 * pb_wire.h - inside api: the encoding of protobuf, field by field, where building message structs would cost too much.
 * Owner:   slices point into the bytes that are read.
 * Threads: none of its own. */
#ifndef PROA_API_GRPC_PB_WIRE_H
#define PROA_API_GRPC_PB_WIRE_H

#include "base/str.h"
#include <string.h>

enum { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

typedef struct pb_reader {
    const unsigned char *at, *end;
    bool bad; /* the bytes are not protobuf: cut short, a tag of 0, a varint without an end, a group */
} pb_reader;

typedef struct pb_field {
    uint32_t number;
    int type;
    uint64_t u; /* the value; of BYTES the length */
    proa_str bytes;
} pb_field;

static inline pb_reader pb_read(proa_str s)
{
    return (pb_reader){(const unsigned char *)s.ptr, (const unsigned char *)s.ptr + s.len, false};
}

static inline uint64_t pb_fail(pb_reader *r)
{
    r->bad = true;
    r->at = r->end;
    return 0;
}

static inline uint64_t pb_varint(pb_reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        unsigned char byte = *r->at++;
        value |= (uint64_t)(byte & 0x7F) << shift; /* bits beyond 64 are dropped, as everywhere */
        if (byte < 0x80) return value;
    }
    return pb_fail(r);
}

static inline uint64_t pb_fixed(pb_reader *r, size_t bytes)
{
    uint64_t value = 0;
    if ((size_t)(r->end - r->at) < bytes) return pb_fail(r);
    memcpy(&value, r->at, bytes);
    r->at += bytes;
    return value;
}

static inline void pb_bytes(pb_reader *r, pb_field *f)
{
    f->u = pb_varint(r);
    if (f->u > (uint64_t)(r->end - r->at)) {
        pb_fail(r);
        return;
    }
    f->bytes = (proa_str){(const char *)r->at, (size_t)f->u};
    r->at += f->u;
}

/* The next field; false at the end, or if the bytes are bad. */
static inline bool pb_next(pb_reader *r, pb_field *f)
{
    if (r->at == r->end) return false;
    f->bytes = (proa_str){NULL, 0};
    uint64_t tag = pb_varint(r);
    f->number = (uint32_t)(tag >> 3);
    f->type = (int)(tag & 7);
    if (tag > UINT32_MAX || f->number == 0) pb_fail(r);
    else if (f->type == PB_VARINT) f->u = pb_varint(r);
    else if (f->type == PB_BYTES) pb_bytes(r, f);
    else if (f->type == PB_FIXED32) f->u = pb_fixed(r, 4);
    else if (f->type == PB_FIXED64) f->u = pb_fixed(r, 8);
    else pb_fail(r);
    return !r->bad;
}

static inline bool pb_is(const pb_field *f, uint32_t number, int type)
{
    return f->number == number && f->type == type;
}

/* ---- writing: sizes first, then bytes ---- */

static inline size_t pb_varint_size(uint64_t value)
{
    return (size_t)(70 - __builtin_clzll(value | 1)) / 7;
}

/* The size on the wire of a field of `len` bytes whose field number is below 16. */
static inline size_t pb_bytes_size(size_t len)
{
    return 1 + pb_varint_size(len) + len;
}

static inline char *pb_put_varint(char *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (char)(value | 0x80);
        value >>= 7;
    }
    *at++ = (char)value;
    return at;
}

static inline char *pb_put_head(char *at, uint32_t number, size_t len)
{
    *at++ = (char)(number << 3 | PB_BYTES);
    return pb_put_varint(at, len);
}

static inline char *pb_put_bytes(char *at, uint32_t number, proa_str s)
{
    at = pb_put_head(at, number, s.len);
    if (s.len) memcpy(at, s.ptr, s.len);
    return at + s.len;
}

#endif
