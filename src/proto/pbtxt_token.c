/* SPDX-License-Identifier: Apache-2.0
 * pbtxt_token.c - the lexer of protobuf's text format. */
#include "proto/pbtxt_token.h"

#include <stdarg.h>
#include <string.h>

static unsigned char peek_char(const proa_lexer *l, size_t ahead)
{
    return l->at + ahead < l->text.len ? (unsigned char)l->text.ptr[l->at + ahead] : 0;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_octal(unsigned char c)
{
    return c >= '0' && c <= '7';
}

static bool is_hex(unsigned char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

static bool is_letter(unsigned char c)
{
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_';
}

static bool is_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_while(proa_lexer *l, bool (*in)(unsigned char))
{
    while (in(peek_char(l, 0))) l->at++;
}

/* Line and column of a place: counted only when something is wrong. */
static void locate_position(const proa_lexer *l, size_t at, int *line, int *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        unsigned char c = (unsigned char)l->text.ptr[i];
        if (c == '\n') ++*line, *column = 1;
        else if ((c & 0xC0) != 0x80) ++*column;
    }
}

proa_status proa_lexer_fail(proa_lexer *l, const char *fmt, ...)
{
    char text[400];
    int line, column;
    va_list args;
    if (l->now.kind == PROA_TOKEN_BAD) return PROA_INVALID;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    locate_position(l, (size_t)(l->now.text.ptr - l->text.ptr), &line, &column);
    return PROA_FAIL(l->err, INVALID, "%s:%d:%d: %s", l->what, line, column, text);
}

proa_status proa_lexer_expected(proa_lexer *l, const char *expected)
{
    enum { SHOWN = 40 };
    proa_str s = l->now.text;
    if (l->now.kind == PROA_TOKEN_END) return proa_lexer_fail(l, "expected %s, found the end", expected);
    return proa_lexer_fail(l, "expected %s, found '%.*s%s'", expected, (int)(s.len < SHOWN ? s.len : SHOWN),
                           s.ptr, s.len > SHOWN ? "..." : "");
}

/* Something that no token may hold: at l->at. */
static void bad_token(proa_lexer *l, const char *why)
{
    l->now = (proa_token){PROA_TOKEN_END, {l->text.ptr + l->at, 0}};
    (void)proa_lexer_fail(l, "%s", why);
    l->now.kind = PROA_TOKEN_BAD;
}

/* Length of the escape whose backslash is at l->at; 0 if it is none. */
static size_t escape_length(const proa_lexer *l)
{
    unsigned char c = peek_char(l, 1);
    size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c && strchr("abfnrtv\\?'\"01234567", c)) return 2; /* further octal digits pass as characters */
    if (c == 'x') return is_hex(peek_char(l, 2)) ? 3 : 0;
    if (digits == 0) return 0;
    for (size_t i = 0; i < digits; i++)
        if (!is_hex(peek_char(l, 2 + i))) return 0;
    /* up to U+10FFFF: 0000.... or 0010.... */
    if (c == 'U' && memcmp(l->text.ptr + l->at + 2, "000", 3) != 0 &&
        memcmp(l->text.ptr + l->at + 2, "0010", 4) != 0)
        return 0;
    return 2 + digits;
}

static void lex_string(proa_lexer *l)
{
    size_t begin = l->at;
    unsigned char quote = peek_char(l, 0);
    for (l->at++; l->at < l->text.len;) {
        unsigned char c = peek_char(l, 0);
        size_t n = c == '\\' ? escape_length(l) : 1;
        if (n == 0 || c == '\0' || c == '\n') {
            bad_token(l, n == 0 ? "invalid escape sequence in a string"
                         : c    ? "a string must end on its line"
                                : "a NUL byte in a string");
            return;
        }
        l->at += n;
        if (c != quote) continue;
        l->now = (proa_token){PROA_TOKEN_STRING, {l->text.ptr + begin, l->at - begin}};
        return;
    }
    l->at = begin;
    bad_token(l, "this string has no end");
}

/* After the digits of a decimal number: fraction, exponent, f. True if there was one of them. */
static bool lex_fraction(proa_lexer *l, bool dot)
{
    bool is_float = dot;
    if (!dot && peek_char(l, 0) == '.') is_float = true, l->at++;
    skip_while(l, is_digit);
    if ((peek_char(l, 0) | 0x20) == 'e') {
        is_float = true;
        l->at += peek_char(l, 1) == '-' || peek_char(l, 1) == '+' ? 2 : 1;
        if (!is_digit(peek_char(l, 0))) bad_token(l, "an exponent needs digits");
        skip_while(l, is_digit);
    }
    if ((peek_char(l, 0) | 0x20) == 'f') is_float = true, l->at++;
    return is_float;
}

static void lex_number(proa_lexer *l)
{
    size_t begin = l->at;
    bool is_float = false, zero = peek_char(l, 0) == '0';
    if (zero && (peek_char(l, 1) | 0x20) == 'x') {
        l->at += 2;
        if (!is_hex(peek_char(l, 0))) bad_token(l, "\"0x\" must be followed by hex digits");
        skip_while(l, is_hex);
    } else if (zero && is_digit(peek_char(l, 1))) {
        skip_while(l, is_octal);
        if (is_digit(peek_char(l, 0))) bad_token(l, "a number with a leading zero must be octal");
    } else {
        bool dot = peek_char(l, 0) == '.';
        l->at += dot;
        skip_while(l, is_digit);
        is_float = lex_fraction(l, dot);
    }
    if (l->now.kind != PROA_TOKEN_BAD && peek_char(l, 0) == '.')
        bad_token(l, "this number has a '.' too many");
    if (l->now.kind != PROA_TOKEN_BAD && is_letter(peek_char(l, 0)))
        bad_token(l, "there must be a space between a number and a name");
    if (l->now.kind == PROA_TOKEN_BAD) return;
    l->now = (proa_token){is_float ? PROA_TOKEN_FLOAT : PROA_TOKEN_INTEGER, {l->text.ptr + begin, l->at - begin}};
}

static void lex_name(proa_lexer *l)
{
    size_t begin = l->at;
    while (is_letter(peek_char(l, 0)) || is_digit(peek_char(l, 0))) l->at++;
    l->now = (proa_token){PROA_TOKEN_NAME, {l->text.ptr + begin, l->at - begin}};
}

static void skip_blank(proa_lexer *l)
{
    for (;;) {
        skip_while(l, is_space);
        if (peek_char(l, 0) != '#') return;
        while (peek_char(l, 0) != '\0' && peek_char(l, 0) != '\n')
            l->at++; /* a NUL is an error in a comment too */
    }
}

void proa_lexer_next(proa_lexer *l)
{
    if (l->now.kind == PROA_TOKEN_BAD) return;
    bool after_name = l->now.kind == PROA_TOKEN_NAME;
    size_t end = l->at;
    skip_blank(l);
    unsigned char c = peek_char(l, 0);
    l->now = (proa_token){PROA_TOKEN_END, {l->text.ptr + l->at, 0}};
    if (l->at == l->text.len) return;
    if (is_letter(c)) lex_name(l);
    else if (c == '"' || c == '\'') lex_string(l);
    else if (is_digit(c) || (c == '.' && is_digit(peek_char(l, 1)))) {
        if (c == '.' && after_name && l->at == end)
            bad_token(l, "there must be a space between a name and a number");
        else lex_number(l);
    } else if (c < 0x20 || c == 0x7F) bad_token(l, "a control character");
    else if (c >= 0x80) bad_token(l, "a character outside ASCII, and outside a string");
    else l->now = (proa_token){PROA_TOKEN_SYMBOL, {l->text.ptr + l->at++, 1}};
}

void proa_lexer_start(proa_lexer *l, proa_str text, const char *what, proa_err *err)
{
    *l = (proa_lexer){.text = {text.ptr ? text.ptr : "", text.len}, .what = what, .err = err};
    l->now.kind = PROA_TOKEN_SYMBOL;
    proa_lexer_next(l);
}

bool proa_lexer_is(const proa_lexer *l, char symbol)
{
    return l->now.kind == PROA_TOKEN_SYMBOL && l->now.text.ptr[0] == symbol;
}

/* Up to `most` digits of base 8 or 16 at s[*at], which moves past them. */
static uint32_t read_digits(proa_str s, size_t *at, int most, unsigned base)
{
    uint32_t value = 0;
    for (; most > 0 && *at < s.len; most--, ++*at) {
        unsigned char c = (unsigned char)s.ptr[*at];
        if (base == 8 ? !is_octal(c) : !is_hex(c)) break;
        value = value * base + (is_digit(c) ? (uint32_t)c - '0' : (c | 0x20u) - 'a' + 10u);
    }
    return value;
}

/* \u or \U, at its digits; two halves of a surrogate pair make one character. */
static void unescape_unicode(proa_buf *out, proa_str s, size_t *at, bool wide)
{
    char utf8[4];
    uint32_t cp = read_digits(s, at, wide ? 8 : 4, 16);
    if (cp >= 0xD800 && cp < 0xDC00 && *at + 5 < s.len && s.ptr[*at] == '\\' && s.ptr[*at + 1] == 'u') {
        size_t behind = *at + 2;
        uint32_t low = read_digits(s, &behind, 4, 16);
        if (low >= 0xDC00 && low < 0xE000) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
            *at = behind;
        }
    }
    /* half a pair becomes bytes that are not UTF-8, which the reader refuses where they matter */
    proa_buf_append(out, utf8, (size_t)proa_utf8_encode((int32_t)cp, utf8));
}

static void unescape_one(proa_buf *out, proa_str s, size_t *at)
{
    static const char from[] = "abfnrtv", to[] = "\a\b\f\n\r\t\v";
    char c = s.ptr[(*at)++];
    const char *known = c ? strchr(from, c) : NULL;
    if (is_octal((unsigned char)c)) {
        --*at;
        proa_buf_char(out, (char)(read_digits(s, at, 3, 8) & 0xFF));
    } else if (c == 'x') proa_buf_char(out, (char)read_digits(s, at, 2, 16));
    else if (c == 'u' || c == 'U') unescape_unicode(out, s, at, c == 'U');
    else proa_buf_char(out, known ? to[known - from] : c);
}

void proa_token_unescape(proa_buf *out, proa_token string)
{
    proa_str s = {string.text.ptr + 1, string.text.len - 2};
    for (size_t at = 0; at < s.len;) {
        const char *slash = memchr(s.ptr + at, '\\', s.len - at);
        size_t plain = slash ? (size_t)(slash - s.ptr) - at : s.len - at;
        proa_buf_append(out, s.ptr + at, plain);
        at += plain;
        if (!slash) return;
        at++;
        unescape_one(out, s, &at);
    }
}
