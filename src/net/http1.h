/* SPDX-License-Identifier: Apache-2.0
 * http1.h - HTTP/1.1 requests (RFC 9112) as a codec: bytes in, events out, no input or output, no memory of its own.
 * Strict where leniency lets two parsers disagree: lines end with CR LF, no folded lines, no white space before a
 * colon,
 *   not both Content-Length and Transfer-Encoding, one Host.
 * Owner:   the caller's struct, for one request at a time; about 2 KB.
 * Threads: none of its own.
 * Way in:  proa_http1_init, then proa_http1_next until END or BAD. */
#ifndef PROA_NET_HTTP1_H
#define PROA_NET_HTTP1_H

#include "base/limits.h"
#include "base/str.h"

typedef enum proa_http1_event {
    PROA_HTTP1_MORE, /* nothing until there are more bytes */
    PROA_HTTP1_HEAD, /* the head is complete: method to expect_continue are valid */
    PROA_HTTP1_DATA, /* data: a piece of the body */
    PROA_HTTP1_END,  /* the request is complete */
    PROA_HTTP1_BAD   /* status and why; the connection cannot be read any further */
} proa_http1_event;

typedef struct proa_http1_span {
    uint32_t at, len; /* offset from the first byte of the request */
} proa_http1_span;
typedef struct proa_http1_field {
    proa_http1_span name, value; /* value without white space around */
} proa_http1_field;

typedef struct proa_http1 {
    proa_http1_span method, target;
    int minor; /* HTTP/1.minor: 0 or 1 */
    int fields_count;
    int64_t content_length; /* -1: not given */
    bool chunked, keep_alive, expect_continue;
    int64_t body_max; /* the caller may set it at HEAD; a body with more bytes is BAD, 413 */
    proa_str data;
    int status; /* to answer a BAD request with: 400, 413, 414, 417, 431, 501, 505 */
    const char *why;
    /* the codec's own */
    int state;
    uint32_t line, scan; /* start of the current line, and how far it was searched for its end */
    bool closing;
    int hosts, chunks;
    int64_t remaining, body_bytes, trailer_bytes;
    proa_http1_field fields[PROA_HTTP_HEADERS_MAX];
} proa_http1;

void proa_http1_init(proa_http1 *codec);
/* Looks at bytes[0, len), which begin with the first byte not consumed so far; *used of them are consumed. While the
 * head is incomplete nothing is, so that a head is contiguous when it is reported: the same bytes must be passed again,
 * with more after them. Call again, also with len 0, until it returns MORE, END or BAD. */
proa_http1_event proa_http1_next(proa_http1 *codec, const char *bytes, size_t len, size_t *used);

/* Bytes of the body that come next without anything between them; 0: none, or not known yet. */
int64_t proa_http1_wanted(const proa_http1 *codec);
/* So many of these were read past the codec, straight to where they belong. */
void proa_http1_took(proa_http1 *codec, int64_t bytes);

/* Do they say the same, case aside? lower is in lower case. */
bool proa_http1_is(proa_str text, const char *lower);
/* Is the word in the comma-separated list? lower is in lower case. */
bool proa_http1_has(proa_str list, const char *lower);
/* Splits an origin-form or absolute-form target, or "*". False: it has none of these forms. */
bool proa_http1_split(proa_str target, proa_str *path, proa_str *query);

#endif
