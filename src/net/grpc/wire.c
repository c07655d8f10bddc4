/* SPDX-License-Identifier: Apache-2.0
 * wire.c - the small texts of gRPC over HTTP/2: time-outs, percent-encoding, base64. */
#include "net/grpc/wire.h"

#include "base/limits.h"
#include <string.h>
#include <strings.h>

/* ---- time-outs ---- */

static int64_t unit_ns(char unit)
{
    switch (unit) {
    case 'H': return 3600 * (int64_t)1000000000;
    case 'M': return 60 * (int64_t)1000000000;
    case 'S': return 1000000000;
    case 'm': return 1000000;
    case 'u': return 1000;
    case 'n': return 1;
    default: return 0;
    }
}

bool proa_grpc_timeout_parse(proa_str text, int64_t *ns)
{
    if (text.len < 2 || text.len > 9) return false;
    int64_t value = 0, unit = unit_ns(text.ptr[text.len - 1]);
    if (unit == 0) return false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') return false;
        value = value * 10 + (text.ptr[i] - '0');
    }
    *ns = value > INT64_MAX / 2 / unit ? INT64_MAX / 2 : value * unit; /* 99999999H are more than 292 years */
    return true;
}

/* ---- percent-encoding ---- */

static bool is_plain(char c)
{
    return c >= 0x20 && c <= 0x7E && c != '%';
}

proa_str proa_grpc_cut(proa_str text)
{
    size_t len = 0, escaped = 0;
    while (len < text.len && len < PROA_GRPC_TEXT_BYTES_MAX) {
        escaped += is_plain(text.ptr[len]) ? 1 : 3;
        if (escaped > PROA_GRPC_ESCAPED_BYTES_MAX) break;
        len++;
    }
    if (len < text.len)
        while (len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80) len--;
    return (proa_str){text.ptr, len};
}

proa_str proa_grpc_percent_encode(proa_arena *arena, proa_str text)
{
    size_t odd = 0;
    for (size_t i = 0; i < text.len; i++) odd += !is_plain(text.ptr[i]);
    if (odd == 0) return text;
    char *out = proa_arena_alloc(arena, text.len + 2 * odd), *at = out;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (is_plain(text.ptr[i])) *at++ = text.ptr[i];
        else *at++ = '%', *at++ = "0123456789ABCDEF"[c >> 4], *at++ = "0123456789ABCDEF"[c & 15];
    }
    return (proa_str){out, (size_t)(at - out)};
}

/* ---- base64 ---- */

bool proa_base64_decode(proa_arena *arena, proa_str text, proa_str *out)
{
    while (text.len % 4 == 0 && text.len > 0 && text.ptr[text.len - 1] == '=') { /* "=" or "==" of a whole group */
        text.len--;
        if (text.ptr[text.len - 1] == '=') text.len--;
    }
    if (text.len % 4 == 1) return false;
    char *bytes = proa_arena_alloc(arena, text.len / 4 * 3 + 3), *at = bytes;
    uint32_t group = 0;
    for (size_t i = 0; i < text.len; i++) {
        int digit = proa_base64_digit(text.ptr[i]);
        if (digit < 0) return false;
        group = group << 6 | (uint32_t)digit;
        if (i % 4 != 3) continue;
        *at++ = (char)(group >> 16), *at++ = (char)(group >> 8), *at++ = (char)group;
    }
    if (text.len % 4 == 2) *at++ = (char)(group >> 4);
    if (text.len % 4 == 3) *at++ = (char)(group >> 10), *at++ = (char)(group >> 2);
    *out = (proa_str){bytes, (size_t)(at - bytes)};
    return true;
}

proa_str proa_base64_encode(proa_arena *arena, proa_str bytes)
{
    char *out = proa_arena_alloc(arena, bytes.len / 3 * 4 + 4);
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        proa_base64_group(out + len, bytes.ptr + i, n);
        len += n + 1; /* without the padding */
    }
    return (proa_str){out, len};
}

bool proa_grpc_content_type(proa_str value)
{
    static const char name[] = "application/grpc";
    size_t len = sizeof name - 1;
    if (value.len < len || strncasecmp(value.ptr, name, len) != 0) return false;
    return value.len == len || value.ptr[len] == '+' || value.ptr[len] == ';';
}
