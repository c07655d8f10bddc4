/* SPDX-License-Identifier: Apache-2.0
 * str.c - string slices, growing buffers, UTF-8 and edit distance. */
#include "base/str.h"

#include "base/alloc.h"
#include <stdarg.h>
#include <string.h>

proa_str proa_str_c(const char *s)
{
    return (proa_str){s ? s : "", s ? strlen(s) : 0};
}

bool proa_str_eq(proa_str a, proa_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool proa_str_is(proa_str a, const char *b)
{
    return proa_str_eq(a, proa_str_c(b));
}

bool proa_str_has_nul(proa_str s)
{
    return s.len && memchr(s.ptr, 0, s.len);
}

bool proa_str_starts(proa_str s, proa_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

bool proa_str_ends(proa_str s, proa_str suffix)
{
    return s.len >= suffix.len &&
           (suffix.len == 0 || memcmp(s.ptr + s.len - suffix.len, suffix.ptr, suffix.len) == 0);
}

bool proa_str_next_line(proa_str *rest, proa_str *line)
{
    if (rest->len == 0) return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    *line = (proa_str){rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = line->len + (end != NULL);
    *rest = (proa_str){rest->ptr + used, rest->len - used};
    return true;
}

uint64_t proa_str_hash(proa_str s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.len; i++) h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

/* Above this size a refused allocation makes the buffer full, as if it had reached its maximum. */
#define BIG_BYTES ((size_t)1 << 20)

void proa_buf_init(proa_buf *buf, size_t bytes_max)
{
    *buf = (proa_buf){.bytes_max = bytes_max};
}

void proa_buf_release(proa_buf *buf)
{
    free(buf->ptr);
    buf->ptr = NULL;
    buf->len = buf->cap = 0;
}

void proa_buf_clear(proa_buf *buf)
{
    buf->len = 0;
    buf->full = false;
    if (buf->ptr) buf->ptr[0] = '\0';
}

bool proa_buf_reserve(proa_buf *buf, size_t more)
{
    if (more > buf->bytes_max || buf->len > buf->bytes_max - more) {
        buf->full = true;
        return false;
    }
    size_t need = buf->len + more + 1;
    if (need <= buf->cap) return true;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need) cap *= 2;
    if (cap > buf->bytes_max && buf->bytes_max < SIZE_MAX) cap = buf->bytes_max + 1; /* its maximum */
    char *grown = cap > BIG_BYTES ? proa_realloc_try(buf->ptr, cap) : proa_realloc(buf->ptr, cap);
    if (!grown) {
        buf->full = true;
        return false;
    }
    buf->ptr = grown;
    buf->cap = cap;
    buf->ptr[buf->len] = '\0';
    return true;
}

bool proa_buf_append(proa_buf *buf, const void *bytes, size_t len)
{
    if (!proa_buf_reserve(buf, len)) return false;
    if (len) memcpy(buf->ptr + buf->len, bytes, len);
    buf->len += len;
    buf->ptr[buf->len] = '\0';
    return true;
}

bool proa_buf_str(proa_buf *buf, proa_str s)
{
    return proa_buf_append(buf, s.ptr, s.len);
}

bool proa_buf_char(proa_buf *buf, char c)
{
    return proa_buf_append(buf, &c, 1);
}

bool proa_buf_printf(proa_buf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    bool ok = n >= 0 && proa_buf_reserve(buf, (size_t)n);
    if (ok) {
        vsnprintf(buf->ptr + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

static bool json_char(proa_buf *buf, const char *s, int len, int32_t cp)
{
    switch (cp) {
    case '"': return proa_buf_append(buf, "\\\"", 2);
    case '\\': return proa_buf_append(buf, "\\\\", 2);
    case '\n': return proa_buf_append(buf, "\\n", 2);
    case '\r': return proa_buf_append(buf, "\\r", 2);
    case '\t': return proa_buf_append(buf, "\\t", 2);
    default: break;
    }
    if (cp < 0x20 || cp == 0x7f) return proa_buf_printf(buf, "\\u%04x", (unsigned)cp);
    return proa_buf_append(buf, s, (size_t)len);
}

/* Length of the prefix of s that is printable ASCII and needs no escape in JSON. */
static size_t plain_run(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && s[n] >= 0x20 && s[n] < 0x7f && s[n] != '"' && s[n] != '\\') n++;
    return n;
}

bool proa_buf_json_str(proa_buf *buf, proa_str s)
{
    bool ok = proa_buf_char(buf, '"');
    for (size_t i = 0; i < s.len && ok;) {
        int32_t cp = 0;
        size_t run = plain_run(s.ptr + i, s.len - i);
        if (run) {
            ok = proa_buf_append(buf, s.ptr + i, run);
            i += run;
            continue;
        }
        int n = proa_utf8_decode(s.ptr + i, s.len - i, &cp);
        ok = n ? json_char(buf, s.ptr + i, n, cp) : proa_buf_append(buf, "\xEF\xBF\xBD", 3);
        i += n ? (size_t)n : 1;
    }
    return ok && proa_buf_char(buf, '"');
}

proa_str proa_buf_view(const proa_buf *buf)
{
    return (proa_str){buf->ptr ? buf->ptr : "", buf->len};
}

char *proa_str_copy(proa_str s)
{
    char *text = proa_malloc(s.len + 1);
    if (s.len) memcpy(text, s.ptr, s.len);
    text[s.len] = 0;
    return text;
}

int proa_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int proa_base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

void proa_base64_group(char out[4], const char *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = 0;
    for (size_t i = 0; i < 3; i++) group = group << 8 | (i < count ? (unsigned char)bytes[i] : 0);
    for (size_t i = 0; i < 4; i++) out[i] = i <= count ? digits[group >> (18 - 6 * i) & 63] : '=';
}

bool proa_buf_base64(proa_buf *buf, proa_str bytes)
{
    bool ok = true;
    for (size_t i = 0; i < bytes.len && ok; i += 3) {
        char four[4];
        proa_base64_group(four, bytes.ptr + i, bytes.len - i < 3 ? bytes.len - i : 3);
        ok = proa_buf_append(buf, four, sizeof four);
    }
    return ok;
}

int64_t proa_utf8_count(proa_str s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

static bool is_tail(const unsigned char *s, int n)
{
    for (int i = 1; i <= n; i++)
        if ((s[i] & 0xC0) != 0x80) return false;
    return true;
}

int proa_utf8_decode(const char *text, size_t len, int32_t *code_point)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return *code_point = s[0], 1;
    if (s[0] < 0xC2 || s[0] > 0xF4) return 0;
    int more = s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : 3;
    if (len < (size_t)more + 1 || !is_tail(s, more)) return 0;
    int32_t cp = s[0] & (0x3F >> more);
    for (int i = 1; i <= more; i++) cp = (cp << 6) | (s[i] & 0x3F);
    static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (cp < least[more] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) return 0;
    *code_point = cp;
    return more + 1;
}

int proa_utf8_encode(int32_t cp, char out[4])
{
    PROA_DASSERT(cp >= 0 && cp <= 0x10FFFF);
    if (cp < 0x80) return out[0] = (char)cp, 1;
    int more = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    static const unsigned lead[] = {0, 0xC0, 0xE0, 0xF0};
    out[0] = (char)(lead[more] | (unsigned)cp >> (6 * more));
    for (int i = 1; i <= more; i++) out[i] = (char)(0x80 | ((unsigned)cp >> (6 * (more - i)) & 0x3F));
    return more + 1;
}

bool proa_utf8_valid(proa_str s)
{
    for (size_t i = 0; i < s.len;) {
        int32_t cp;
        int n = proa_utf8_decode(s.ptr + i, s.len - i, &cp);
        if (!n) return false;
        i += (size_t)n;
    }
    return true;
}

int proa_str_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    int m = (int)strnlen(a, LONGEST), n = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= m; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < skip ? change : skip;
        }
    }
    return row[n];
}
