/* SPDX-License-Identifier: Apache-2.0
 * compress.c - gzip and deflate of whole bodies, with a limit on the output. */
#include "net/compress.h"

#include <string.h>
#include <strings.h>
#include <zlib.h>

#define OUT_BYTES_MIN ((size_t)4096)

static const char *const names[PROA_CODING_COUNT] = {
    [PROA_CODING_IDENTITY] = "identity", [PROA_CODING_GZIP] = "gzip", [PROA_CODING_DEFLATE] = "deflate"};

const char *proa_coding_name(proa_coding coding)
{
    return names[coding];
}

static bool same_word(proa_str a, const char *b)
{
    return a.len == strlen(b) && strncasecmp(a.ptr, b, a.len) == 0;
}

bool proa_coding_find(proa_coding *coding, proa_str name)
{
    *coding = PROA_CODING_IDENTITY;
    if (name.len == 0) return true;
    if (same_word(name, "x-gzip")) return *coding = PROA_CODING_GZIP, true; /* RFC 9110 8.4.1.3 */
    for (int i = 0; i < PROA_CODING_COUNT; i++)
        if (same_word(name, names[i])) return *coding = (proa_coding)i, true;
    return false;
}

/* ---- Accept-Encoding ---- */

static proa_str trim_spaces(proa_str s)
{
    while (s.len && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) s.ptr++, s.len--;
    while (s.len && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) s.len--;
    return s;
}

/* Cuts off the part before the separator. */
static proa_str next_part(proa_str *rest, char separator)
{
    const char *end = rest->len ? memchr(rest->ptr, separator, rest->len) : NULL;
    proa_str part = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t skip = part.len + (end != NULL);
    *rest = (proa_str){rest->len ? rest->ptr + skip : rest->ptr, rest->len - skip};
    return trim_spaces(part);
}

/* "0.75" in thousandths; -1 unless it is 0 to 1 with up to three decimals. */
static int parse_thousandths(proa_str s)
{
    if (s.len < 1 || s.len > 5 || (s.ptr[0] != '0' && s.ptr[0] != '1') || (s.len > 1 && s.ptr[1] != '.'))
        return -1;
    int q = (s.ptr[0] - '0') * 1000;
    for (size_t i = 2, unit = 100; i < s.len; i++, unit /= 10) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return -1;
        q += (s.ptr[i] - '0') * (int)unit;
    }
    return q <= 1000 ? q : -1;
}

/* The q of a coding's parameters; one that cannot be read refuses the coding. */
static int parse_quality(proa_str parameters)
{
    int q = 1000;
    while (parameters.len) {
        proa_str p = next_part(&parameters, ';');
        if (p.len >= 2 && (p.ptr[0] == 'q' || p.ptr[0] == 'Q') && p.ptr[1] == '=')
            q = parse_thousandths((proa_str){p.ptr + 2, p.len - 2});
    }
    return q;
}

proa_coding proa_coding_accept(proa_str accept_encoding)
{
    proa_coding best = PROA_CODING_IDENTITY;
    int best_q = 0; /* of equal ones the first that is named wins; "*" promises nothing that identity does not keep */
    while (accept_encoding.len) {
        proa_str rest = next_part(&accept_encoding, ',');
        proa_str name = next_part(&rest, ';');
        proa_coding coding;
        if (name.len == 0 || !proa_coding_find(&coding, name)) continue;
        int q = parse_quality(rest);
        if (q > best_q) best_q = q, best = coding;
    }
    return best;
}

/* ---- both ways ---- */

/* The window that holds len bytes: a small message does not pay for clearing tables of 256 KiB. */
static int window_bits(size_t len)
{
    int bits = 9;
    while (bits < MAX_WBITS && ((size_t)1 << bits) < len) bits++;
    return bits;
}

/* zlib counts in 32 bits: a longer input is given piece by piece. */
static void feed_input(z_stream *z, const char **bytes, size_t *left)
{
    if (z->avail_in || !*left) return;
    uInt n = *left > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uInt)*left;
    z->next_in = (Bytef *)(uintptr_t)*bytes; /* zlib does not write there */
    z->avail_in = n;
    *bytes += n;
    *left -= n;
}

/* Room at the end of out, at most `most` bytes (> 0). False if out is at its maximum. */
static bool give_room(z_stream *z, proa_buf *out, size_t most)
{
    size_t free_bytes = out->bytes_max - out->len; /* a buffer may have more memory than it may use */
    if (most > free_bytes) most = free_bytes;
    size_t room = out->cap > out->len + 1 ? out->cap - out->len - 1 : 0;
    if (room == 0) {
        room = out->len > OUT_BYTES_MIN ? out->len : OUT_BYTES_MIN;
        if (room > most) room = most;
        if (room == 0 || !proa_buf_reserve(out, room)) return false;
    }
    if (room > most) room = most;
    if (room == 0) return false;
    if (room > UINT32_MAX / 2) room = UINT32_MAX / 2;
    z->next_out = (Bytef *)(out->ptr + out->len);
    z->avail_out = (uInt)room;
    return true;
}

static void take_output(z_stream *z, proa_buf *out)
{
    out->len = (size_t)((char *)z->next_out - out->ptr);
    out->ptr[out->len] = '\0';
}

static int deflate_some(z_stream *z, proa_buf *out, const char **bytes, size_t *left)
{
    if (!give_room(z, out, SIZE_MAX)) return Z_BUF_ERROR;
    feed_input(z, bytes, left);
    int code = deflate(z, *left ? Z_NO_FLUSH : Z_FINISH);
    take_output(z, out);
    return code == Z_BUF_ERROR ? Z_OK : code;
}

proa_status proa_compress(proa_buf *out, proa_coding coding, int level, const char *bytes, size_t len,
                          proa_err *err)
{
    if (coding == PROA_CODING_IDENTITY) {
        if (proa_buf_append(out, bytes, len)) return PROA_OK;
        return PROA_FAIL(err, LIMIT, "the answer exceeds %zu bytes", out->bytes_max);
    }
    z_stream z = {0};
    int bits = window_bits(len) + (coding == PROA_CODING_GZIP ? 16 : 0);
    level = level < 1 ? 1 : level > 9 ? 9 : level;
    if (deflateInit2(&z, level, Z_DEFLATED, bits, bits % 16 < 12 ? 5 : 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return PROA_FAIL(err, NO_MEMORY, "no memory for compression");
    int code = Z_OK;
    while (code == Z_OK) code = deflate_some(&z, out, &bytes, &len);
    deflateEnd(&z);
    if (code == Z_STREAM_END) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the compressed bytes exceed %zu", out->bytes_max);
}

/* Decompression in progress: the rest of the input and of the output. */
typedef struct inflate_state {
    z_stream z;
    proa_buf *out;
    const char *bytes;
    size_t left, room; /* input not yet given, output still allowed */
} inflate_state;

/* With no room left: is there another byte? Then the result is too long. */
static int inflate_beyond(inflate_state *f)
{
    Bytef more;
    f->z.next_out = &more;
    f->z.avail_out = 1;
    int code = inflate(&f->z, Z_NO_FLUSH);
    if (f->z.avail_out == 0)
        return Z_NEED_DICT; /* used for "too long": preset dictionaries are refused earlier */
    return code;
}

static int inflate_some(inflate_state *f)
{
    feed_input(&f->z, &f->bytes, &f->left);
    if (f->room == 0) return inflate_beyond(f);
    if (!give_room(&f->z, f->out, f->room)) return Z_NEED_DICT;
    uInt given = f->z.avail_out;
    int code = inflate(&f->z, Z_NO_FLUSH);
    f->room -= given - f->z.avail_out;
    take_output(&f->z, f->out);
    return code == Z_NEED_DICT ? Z_DATA_ERROR : code;
}

/* Until the end of a member, an error, or the end of the input (Z_BUF_ERROR). */
static int inflate_member(inflate_state *f)
{
    int code = Z_OK;
    while (code == Z_OK) code = inflate_some(f);
    return code;
}

/* zlib's header is a byte whose low half is 8 and a checksum; no encoder begins a raw stream with such a byte. */
static bool zlib_head(const char *bytes, size_t len)
{
    const unsigned char *b = (const unsigned char *)bytes;
    return len >= 2 && (b[0] & 15) == 8 && (b[0] * 256 + b[1]) % 31 == 0;
}

static int inflate_bits(proa_coding coding, const char *bytes, size_t len)
{
    if (coding == PROA_CODING_GZIP) return MAX_WBITS + 16;
    return zlib_head(bytes, len) ? MAX_WBITS : -MAX_WBITS;
}

static int inflate_all(inflate_state *f, proa_coding coding)
{
    int code = inflate_member(f);
    /* gzip files may follow one another (RFC 1952 2.2) */
    while (code == Z_STREAM_END && coding == PROA_CODING_GZIP && f->z.avail_in + f->left > 0) {
        inflateReset(&f->z);
        code = inflate_member(f);
    }
    return code;
}

proa_status proa_decompress(proa_buf *out, proa_coding coding, const char *bytes, size_t len,
                            size_t bytes_max, proa_err *err)
{
    if (coding == PROA_CODING_IDENTITY) {
        if (len <= bytes_max && proa_buf_append(out, bytes, len)) return PROA_OK;
        return PROA_FAIL(err, LIMIT, "%zu bytes exceed the limit of %zu", len, bytes_max);
    }
    inflate_state f = {.out = out, .bytes = bytes, .left = len, .room = bytes_max};
    if (inflateInit2(&f.z, inflate_bits(coding, bytes, len)) != Z_OK)
        return PROA_FAIL(err, NO_MEMORY, "no memory for decompression");
    int code = inflate_all(&f, coding);
    bool more = f.z.avail_in + f.left > 0;
    inflateEnd(&f.z);
    if (code == Z_STREAM_END && !more) return PROA_OK;
    if (code == Z_STREAM_END) return PROA_FAIL(err, INVALID, "bytes after the end of %s data", names[coding]);
    if (code == Z_NEED_DICT)
        return PROA_FAIL(err, LIMIT, "decompressed %s data exceeds %zu bytes", names[coding], bytes_max);
    if (code == Z_BUF_ERROR) return PROA_FAIL(err, INVALID, "%s data ends too early", names[coding]);
    return PROA_FAIL(err, INVALID, "broken %s data", names[coding]);
}
