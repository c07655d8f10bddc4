/* SPDX-License-Identifier: Apache-2.0
 * str.h - slices of bytes, and a growing buffer that knows its maximum.
 * Owner:   a slice owns nothing; a proa_buf owns its bytes until proa_buf_release.
 * Threads: none of its own. */
#ifndef PROA_BASE_STR_H
#define PROA_BASE_STR_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct proa_str {
    const char *ptr; /* not terminated */
    size_t len;
} proa_str;

proa_str proa_str_c(const char *s); /* of a C string; NULL gives the empty slice */
bool proa_str_eq(proa_str a, proa_str b);
bool proa_str_is(proa_str a, const char *b);
bool proa_str_has_nul(proa_str s); /* such a slice has no equal C string */
bool proa_str_starts(proa_str s, proa_str prefix);
bool proa_str_ends(proa_str s, proa_str suffix);
/* Takes the next line out of *rest: without its LF, which the last line need not have. False: *rest is empty. */
bool proa_str_next_line(proa_str *rest, proa_str *line);
uint64_t proa_str_hash(proa_str s); /* FNV-1a with a final mix: the same in each run; not for keys that an adversary
                                       chooses */

/* Bytes that grow up to bytes_max and always end with a NUL that is not counted. Appending beyond the maximum
 * sets `full`, drops the bytes and returns false; the caller may check `full` once at the end. */
typedef struct proa_buf {
    char *ptr;
    size_t len, cap, bytes_max;
    bool full;
} proa_buf;

void proa_buf_init(proa_buf *buf, size_t bytes_max);
void proa_buf_release(proa_buf *buf);
void proa_buf_clear(proa_buf *buf); /* len 0, memory kept */
bool proa_buf_reserve(proa_buf *buf, size_t more);
bool proa_buf_append(proa_buf *buf, const void *bytes, size_t len);
bool proa_buf_str(proa_buf *buf, proa_str s);
bool proa_buf_char(proa_buf *buf, char c);
bool proa_buf_printf(proa_buf *buf, const char *fmt, ...) PROA_PRINTF(2, 3);
/* A JSON string with its quotes: control characters escaped, bytes that are not UTF-8 become U+FFFD. */
bool proa_buf_json_str(proa_buf *buf, proa_str s);
proa_str proa_buf_view(const proa_buf *buf);

char *proa_str_copy(proa_str s); /* on the heap, with a NUL at the end; free it */

int proa_hex_digit(char c); /* 0 to 15; -1: not a hexadecimal digit of either case */

/* Base64 of RFC 4648. */
int proa_base64_digit(char c); /* 0 to 63; -1: none of the alphabet with + and / */
void proa_base64_group(char out[4], const char *bytes, size_t count); /* of 1 to 3 bytes, padded with '=' */
bool proa_buf_base64(proa_buf *buf, proa_str bytes);                  /* appends all groups */

/* UTF-8. Decodes one code point of text[0..len); returns its length in bytes, or 0 if the bytes are not well
 * formed (overlong, surrogate, above U+10FFFF, cut short). len > 0. */
int proa_utf8_decode(const char *text, size_t len, int32_t *code_point);
int proa_utf8_encode(int32_t cp, char out[4]); /* returns the length; valid code points only */
bool proa_utf8_valid(proa_str s);
int64_t proa_utf8_count(proa_str s); /* code points of valid UTF-8 */

/* Edit distance (Levenshtein) capped at 64 characters: for "did you mean". */
int proa_str_distance(const char *a, const char *b);

#endif
