/* SPDX-License-Identifier: Apache-2.0
 * http1.c - the HTTP/1.1 parser: bytes in, events out, no input or output of its own. */
#include "net/http1.h"

#include <stddef.h>
#include <string.h>

enum { REQUEST_LINE, FIELDS, BODY, CHUNK_LINE, CHUNK_DATA, CHUNK_END, TRAILERS, COMPLETE, BROKEN };

#define LENGTH_DIGITS_MAX 18 /* of a Content-Length: more do not fit into 63 bits */
#define SIZE_DIGITS_MAX   15 /* of a chunk's size, hexadecimal */

/* Which of the first 128 characters belong to a class. */
typedef struct char_set {
    uint64_t low, high;
} char_set;
static const char_set token_set = {0x3ff6cfa00000000, 0x57ffffffc7fffffe}; /* tchar of RFC 9110 */
static const char_set host_set = {0x2fff7ff200000000, 0x47fffffeaffffffe}; /* uri-host and port, of RFC 3986 */

static inline bool in_set(char_set set, unsigned char c)
{
    uint64_t half = c & 64 ? set.high : set.low;
    return c < 128 && (half >> (c & 63) & 1);
}

static bool all_in(char_set set, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!in_set(set, (unsigned char)bytes[i])) return false;
    return true;
}

/* Visible, blank, tab, or beyond ASCII. Written so that the compiler makes vectors of it. */
static bool is_text(const char *bytes, size_t len)
{
    unsigned bad = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bad |= (unsigned)(c < ' ' && c != '\t') | (unsigned)(c == 0x7f);
    }
    return !bad;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static proa_str trim_spaces(proa_str s)
{
    while (s.len && is_blank(s.ptr[0])) s = (proa_str){s.ptr + 1, s.len - 1};
    while (s.len && is_blank(s.ptr[s.len - 1])) s.len--;
    return s;
}

static inline char lower_of(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool proa_http1_is(proa_str text, const char *lower)
{
    for (size_t i = 0; i < text.len; i++)
        if (lower_of(text.ptr[i]) != lower[i] || !lower[i]) return false;
    return lower[text.len] == '\0';
}

bool proa_http1_has(proa_str list, const char *lower)
{
    while (list.len > 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.ptr) : list.len;
        if (proa_http1_is(trim_spaces((proa_str){list.ptr, len}), lower)) return true;
        len += comma != NULL;
        list = (proa_str){list.ptr + len, list.len - len};
    }
    return false;
}

/* ---- targets ---- */

/* The part after "http://host". */
static bool strip_authority(proa_str *target)
{
    proa_str t = *target;
    size_t skip = t.len > 7 && proa_http1_is((proa_str){t.ptr, 7}, "http://")    ? 7
                  : t.len > 8 && proa_http1_is((proa_str){t.ptr, 8}, "https://") ? 8
                                                                                 : 0;
    size_t at = skip;
    while (at < t.len && t.ptr[at] != '/' && t.ptr[at] != '?') at++;
    *target = (proa_str){t.ptr + at, t.len - at};
    return at > skip && skip > 0;
}

bool proa_http1_split(proa_str target, proa_str *path, proa_str *query)
{
    *query = (proa_str){0};
    *path = target;
    if (proa_str_is(target, "*")) return true;
    bool origin = target.len > 0 && target.ptr[0] == '/';
    if (!origin && !strip_authority(&target)) return false;
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    *path = (proa_str){target.ptr, mark ? (size_t)(mark - target.ptr) : target.len};
    if (mark) *query = (proa_str){mark + 1, target.len - path->len - 1};
    if (path->len == 0) *path = proa_str_c("/");
    return true;
}

/* ---- the head ---- */

void proa_http1_init(proa_http1 *c)
{
    memset(c, 0, offsetof(proa_http1, fields));
    c->content_length = -1;
    c->body_max = INT64_MAX;
}

static proa_http1_event bad_request(proa_http1 *c, int status, const char *why)
{
    c->state = BROKEN;
    c->status = status;
    c->why = why;
    return PROA_HTTP1_BAD;
}

static proa_http1_span span_of(const char *base, const char *begin, const char *end)
{
    return (proa_http1_span){(uint32_t)(begin - base), (uint32_t)(end - begin)};
}

static proa_http1_event parse_version(proa_http1 *c, const char *text, size_t len)
{
    bool form = len == 8 && memcmp(text, "HTTP/", 5) == 0 && text[6] == '.' && text[5] >= '0' &&
                text[5] <= '9' && text[7] >= '0' && text[7] <= '9';
    if (!form) return bad_request(c, 400, "the request line is malformed");
    if (text[5] != '1') return bad_request(c, 505, "the HTTP version is not supported");
    c->minor = text[7] != '0';
    c->keep_alive = c->minor == 1;
    c->state = FIELDS;
    return PROA_HTTP1_MORE;
}

static proa_http1_event parse_request_line(proa_http1 *c, const char *base, const char *line, size_t len)
{
    const char *end = line + len, *p = line;
    while (p < end && in_set(token_set, (unsigned char)*p)) p++;
    if (p == line || p == end || *p != ' ') return bad_request(c, 400, "the request line is malformed");
    c->method = span_of(base, line, p);
    const char *target = ++p;
    while (p < end && (unsigned char)*p > ' ' && *p != 0x7f) p++;
    if (p == target || p == end || *p != ' ') return bad_request(c, 400, "the request line is malformed");
    c->target = span_of(base, target, p);
    return parse_version(c, p + 1, (size_t)(end - p - 1));
}

static proa_http1_event on_content_length(proa_http1 *c, proa_str value)
{
    int64_t n = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return bad_request(c, 400, "Content-Length is not a number");
        if (i >= LENGTH_DIGITS_MAX) return bad_request(c, 413, "the request body is too large");
        n = n * 10 + (value.ptr[i] - '0');
    }
    if (value.len == 0) return bad_request(c, 400, "Content-Length is not a number");
    if (c->content_length >= 0 && c->content_length != n)
        return bad_request(c, 400, "there are several Content-Lengths");
    c->content_length = n;
    return PROA_HTTP1_MORE;
}

static proa_http1_event on_transfer_encoding(proa_http1 *c, proa_str value)
{
    if (!proa_http1_is(value, "chunked"))
        return bad_request(c, 501, "only the transfer encoding chunked is supported");
    if (c->chunked || c->minor == 0) return bad_request(c, 400, "Transfer-Encoding is misused");
    c->chunked = true;
    return PROA_HTTP1_MORE;
}

static proa_http1_event on_host(proa_http1 *c, proa_str value)
{
    if (c->hosts++ > 0) return bad_request(c, 400, "there are several Host headers");
    return all_in(host_set, value.ptr, value.len) ? PROA_HTTP1_MORE
                                                  : bad_request(c, 400, "the Host header is malformed");
}

static proa_http1_event on_expect(proa_http1 *c, proa_str value)
{
    if (!proa_http1_is(value, "100-continue")) return bad_request(c, 417, "the expectation cannot be met");
    c->expect_continue = c->minor == 1; /* a client of HTTP/1.0 does not know what to do with a 100 */
    return PROA_HTTP1_MORE;
}

static proa_http1_event on_connection(proa_http1 *c, proa_str value)
{
    if (c->minor == 0 && proa_http1_has(value, "keep-alive")) c->keep_alive = true;
    if (proa_http1_has(value, "close")) c->closing = true;
    return PROA_HTTP1_MORE;
}

/* The fields that decide where the request ends, distinguished by length first. */
static proa_http1_event look_at(proa_http1 *c, proa_str name, proa_str value)
{
    switch (name.len) {
    case 4: return proa_http1_is(name, "host") ? on_host(c, value) : PROA_HTTP1_MORE;
    case 6: return proa_http1_is(name, "expect") ? on_expect(c, value) : PROA_HTTP1_MORE;
    case 10: return proa_http1_is(name, "connection") ? on_connection(c, value) : PROA_HTTP1_MORE;
    case 14: return proa_http1_is(name, "content-length") ? on_content_length(c, value) : PROA_HTTP1_MORE;
    case 17:
        return proa_http1_is(name, "transfer-encoding") ? on_transfer_encoding(c, value) : PROA_HTTP1_MORE;
    default: return PROA_HTTP1_MORE;
    }
}

/* A line without its end. False: it is no field; a line that continues the one before (obs-fold) is none either. */
static bool parse_field(const char *line, size_t len, proa_str *name, proa_str *value)
{
    size_t n = 0;
    while (n < len && in_set(token_set, (unsigned char)line[n])) n++;
    if (n == 0 || n == len || line[n] != ':') return false;
    *name = (proa_str){line, n};
    *value = trim_spaces((proa_str){line + n + 1, len - n - 1});
    return is_text(value->ptr, value->len);
}

static proa_http1_event take_field(proa_http1 *c, const char *base, const char *line, size_t len)
{
    proa_str name, value;
    if (!parse_field(line, len, &name, &value)) return bad_request(c, 400, "a header line is malformed");
    if (c->fields_count == PROA_HTTP_HEADERS_MAX) return bad_request(c, 431, "there are too many headers");
    c->fields[c->fields_count++] = (proa_http1_field){span_of(base, name.ptr, name.ptr + name.len),
                                                      span_of(base, value.ptr, value.ptr + value.len)};
    return look_at(c, name, value);
}

static proa_http1_event finish_head(proa_http1 *c)
{
    if (c->minor == 1 && c->hosts == 0) return bad_request(c, 400, "the Host header is missing");
    if (c->chunked && c->content_length >= 0)
        return bad_request(c, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (c->closing) c->keep_alive = false;
    c->remaining = c->content_length > 0 ? c->content_length : 0;
    c->body_bytes = c->remaining;
    c->state = c->chunked ? CHUNK_LINE : c->remaining > 0 ? BODY : COMPLETE;
    c->line = c->scan = 0;
    return PROA_HTTP1_HEAD;
}

/* One line of the head, without its end. A client may send one empty line before its request (RFC 9112, 2.2). */
static proa_http1_event take_line(proa_http1 *c, const char *base, const char *line, size_t len)
{
    if (c->state == FIELDS) return len == 0 ? finish_head(c) : take_field(c, base, line, len);
    if (len == 0 && line == base) return PROA_HTTP1_MORE;
    return parse_request_line(c, base, line, len);
}

/* The line has that many bytes so far, or in all. */
static proa_http1_event check_sizes(proa_http1 *c, size_t line_bytes, size_t head_bytes)
{
    if (c->state == REQUEST_LINE && line_bytes > PROA_HTTP_LINE_BYTES_MAX)
        return bad_request(c, 414, "the URI is too long");
    if (head_bytes > PROA_HTTP_HEAD_BYTES_MAX) return bad_request(c, 431, "the headers are too large");
    return PROA_HTTP1_MORE;
}

/* What cannot begin a request (TLS, say) is refused without waiting for the end of a line. */
static bool may_begin(char first)
{
    return in_set(token_set, (unsigned char)first) || first == '\r' || first == '\n';
}

/* Reads the request line and the headers, line by line. c->line is where the current line begins; bytes before c->scan
 * have been searched for its end, so that no byte is searched twice. */
static proa_http1_event next_head(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    if (len > 0 && !may_begin(bytes[0])) return bad_request(c, 400, "the request line is malformed");
    for (;;) {
        const char *end = c->scan < len ? memchr(bytes + c->scan, '\n', len - c->scan) : NULL;
        size_t stop = end ? (size_t)(end - bytes) + 1 : len;
        if (check_sizes(c, stop - c->line, stop) == PROA_HTTP1_BAD) return PROA_HTTP1_BAD;
        c->scan = (uint32_t)stop;
        if (!end) return PROA_HTTP1_MORE;
        if (stop - c->line < 2 || end[-1] != '\r')
            return bad_request(c, 400, "a line does not end with CR LF");
        proa_http1_event event = take_line(c, bytes, bytes + c->line, stop - c->line - 2);
        if (event == PROA_HTTP1_HEAD) *used = stop;
        if (event != PROA_HTTP1_MORE) return event;
        c->line = (uint32_t)stop;
    }
}

/* ---- the body ---- */

static proa_http1_event give_data(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    size_t n = (int64_t)len < c->remaining ? len : (size_t)c->remaining;
    if (n == 0) return PROA_HTTP1_MORE;
    c->data = (proa_str){bytes, n};
    *used = n;
    proa_http1_took(c, (int64_t)n);
    return PROA_HTTP1_DATA;
}

/* "1f" or "1f;name=value", without the end of the line. Returns -1 if it is neither. */
static int64_t parse_size(const char *line, size_t len)
{
    int64_t size = 0;
    size_t n = 0;
    for (; n < len && proa_hex_digit(line[n]) >= 0; n++) {
        if (n == SIZE_DIGITS_MAX) return -1;
        size = size * 16 + proa_hex_digit(line[n]);
    }
    if (n == 0) return -1;
    proa_str rest = trim_spaces((proa_str){line + n, len - n});
    if (rest.len == 0) return n == len ? size : -1;
    return rest.ptr[0] == ';' && is_text(rest.ptr, rest.len) ? size : -1;
}

static proa_http1_event start_chunk(proa_http1 *c, int64_t size)
{
    if (size < 0) return bad_request(c, 400, "a chunk's size is malformed");
    if (size == 0) {
        c->state = TRAILERS;
        return PROA_HTTP1_MORE;
    }
    if (++c->chunks > PROA_HTTP_CHUNKS_MAX)
        return bad_request(c, 400, "the request body has too many chunks");
    if (size > c->body_max - c->body_bytes) return bad_request(c, 413, "the request body is too large");
    c->body_bytes += size;
    c->remaining = size;
    c->state = CHUNK_DATA;
    return PROA_HTTP1_MORE;
}

static proa_http1_event next_chunk_line(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    size_t look = len < PROA_HTTP_CHUNK_LINE_MAX ? len : PROA_HTTP_CHUNK_LINE_MAX;
    const char *end = look ? memchr(bytes, '\n', look) : NULL;
    if (!end)
        return look < PROA_HTTP_CHUNK_LINE_MAX ? PROA_HTTP1_MORE
                                               : bad_request(c, 400, "a chunk's line is too long");
    if (end == bytes || end[-1] != '\r') return bad_request(c, 400, "a chunk's size is malformed");
    *used = (size_t)(end - bytes) + 1;
    return start_chunk(c, parse_size(bytes, *used - 2));
}

static proa_http1_event next_chunk_end(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    if ((len > 0 && bytes[0] != '\r') || (len > 1 && bytes[1] != '\n'))
        return bad_request(c, 400, "a chunk does not end where its size says");
    if (len < 2) return PROA_HTTP1_MORE;
    *used = 2;
    c->state = CHUNK_LINE;
    return PROA_HTTP1_MORE;
}

/* Trailers are checked and dropped: they come too late to change the meaning of a request. */
static proa_http1_event next_trailer(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    const char *end = c->scan < len ? memchr(bytes + c->scan, '\n', len - c->scan) : NULL;
    size_t stop = end ? (size_t)(end - bytes) + 1 : len;
    if (c->trailer_bytes + (int64_t)stop > PROA_HTTP_HEAD_BYTES_MAX)
        return bad_request(c, 431, "the trailers are too large");
    c->scan = (uint32_t)stop;
    if (!end) return PROA_HTTP1_MORE;
    proa_str name, value;
    if (stop < 2 || end[-1] != '\r') return bad_request(c, 400, "a line does not end with CR LF");
    if (stop == 2) c->state = COMPLETE;
    else if (!parse_field(bytes, stop - 2, &name, &value))
        return bad_request(c, 400, "a trailer is malformed");
    c->trailer_bytes += (int64_t)stop;
    c->scan = 0;
    *used = stop;
    return PROA_HTTP1_MORE;
}

int64_t proa_http1_wanted(const proa_http1 *c)
{
    return c->state == BODY || c->state == CHUNK_DATA ? c->remaining : 0;
}

void proa_http1_took(proa_http1 *c, int64_t bytes)
{
    c->remaining -= bytes;
    if (c->remaining == 0) c->state = c->state == BODY ? COMPLETE : CHUNK_END;
}

/* One step; MORE with something used means: look again. */
static proa_http1_event parse_step(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    switch (c->state) {
    case REQUEST_LINE:
    case FIELDS: return next_head(c, bytes, len, used);
    case BODY:
    case CHUNK_DATA: return give_data(c, bytes, len, used);
    case CHUNK_LINE: return next_chunk_line(c, bytes, len, used);
    case CHUNK_END: return next_chunk_end(c, bytes, len, used);
    case TRAILERS: return next_trailer(c, bytes, len, used);
    case COMPLETE: return PROA_HTTP1_END;
    default: return PROA_HTTP1_BAD;
    }
}

proa_http1_event proa_http1_next(proa_http1 *c, const char *bytes, size_t len, size_t *used)
{
    *used = 0;
    for (;;) {
        size_t n = 0;
        proa_http1_event event = parse_step(c, bytes + *used, len - *used, &n);
        *used += n;
        bool again = event == PROA_HTTP1_MORE && n > 0;
        if (!again) return event;
    }
}
