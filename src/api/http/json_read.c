/* SPDX-License-Identifier: Apache-2.0
 * json_read.c - a pull reader for JSON with the grammar and the error texts of RapidJSON. */
#include "api/http/json_read.h"

#include "base/limits.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void proa_jread_init(proa_jread *j, proa_str text, proa_arena *arena, bool strict, size_t bytes_max)
{
    *j = (proa_jread){.at = text.ptr,
                      .begin = text.ptr,
                      .end = text.ptr + text.len,
                      .arena = arena,
                      .bad = strict ? PROA_INTERNAL : PROA_INVALID,
                      .truncate = strict,
                      .tensor_bytes_max = bytes_max};
}

proa_status proa_jread_fail(const proa_jread *j, const char *what, proa_err *err)
{
    return proa_err_set(err, j->bad, __FILE__, __LINE__, "failed to parse the request JSON buffer: %s at %zu",
                        what, (size_t)(j->at - j->begin));
}

static inline int next_byte(proa_jread *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
    return j->at < j->end ? (unsigned char)*j->at : -1;
}

proa_jread_kind proa_jread_peek(proa_jread *j)
{
    switch (next_byte(j)) {
    case -1: return PROA_JREAD_END;
    case 'n': return PROA_JREAD_NULL;
    case 't':
    case 'f': return PROA_JREAD_BOOL;
    case '"': return PROA_JREAD_STRING;
    case '[': return PROA_JREAD_ARRAY;
    case '{': return PROA_JREAD_OBJECT;
    case '-':
    case 'N':
    case 'I':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return PROA_JREAD_NUMBER;
    default: return PROA_JREAD_OTHER;
    }
}

static bool read_literal(proa_jread *j, const char *word, size_t len)
{
    if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0) return false;
    j->at += len;
    return true;
}

/* ---- strings ---- */

static int read_hex4(const char *at, const char *end)
{
    int value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = proa_hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* at: after "\u". Returns the bytes written to out, or 0 with *why. */
static int decode_u(proa_jread *j, char *out, const char **why)
{
    int high = read_hex4(j->at, j->end), low;
    *why = "Incorrect hex digit after \\u escape in string.";
    if (high < 0) return 0;
    j->at += 4;
    if (high < 0xd800 || high > 0xdfff) return proa_utf8_encode(high, out);
    *why = "The surrogate pair in string is invalid.";
    if (high > 0xdbff || !read_literal(j, "\\u", 2)) return 0;
    low = read_hex4(j->at, j->end);
    if (low < 0xdc00 || low > 0xdfff) return 0;
    j->at += 4;
    return proa_utf8_encode(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), out);
}

/* at: after the backslash. */
static int decode_escape(proa_jread *j, char *out, const char **why)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    *why = "Invalid escape character in string.";
    if (j->at == j->end) return 0;
    char c = *j->at++;
    if (c == 'u') return decode_u(j, out, why);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return 0;
    *out = to[found - from];
    return 1;
}

/* A string with escapes never grows when it is decoded: "\u0800" has 6 bytes and becomes 3. Its raw length is the
 * room. */
static proa_status decode_string(proa_jread *j, const char *raw, size_t raw_len, proa_str *out, proa_err *err)
{
    char *text = proa_arena_alloc(j->arena, raw_len + 1);
    size_t len = 0;
    const char *stop = raw + raw_len;
    for (j->at = raw; j->at < stop;) {
        const char *why;
        if (*j->at != '\\') {
            text[len++] = *j->at++;
            continue;
        }
        j->at++;
        int n = decode_escape(j, text + len, &why);
        if (!n) return proa_jread_fail(j, why, err);
        len += (size_t)n;
    }
    j->at = stop + 1;
    *out = (proa_str){text, len};
    return PROA_OK;
}

/* Skips bytes that mean themselves, eight at a time: all but quotes, backslashes and control characters. The
 * lowest flag of a word is exact; those above it may be wrong, since borrows go upward. */
static const char *skip_plain(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101U;
    while (end - at >= 8) {
        uint64_t v;
        memcpy(&v, at, sizeof v);
        uint64_t quote = v ^ ones * '"', back = v ^ ones * '\\';
        uint64_t flags = ((quote - ones) & ~quote) | ((back - ones) & ~back) | ((v - ones * 0x20) & ~v);
        flags &= ones << 7;
        if (flags) return at + (__builtin_ctzll(flags) >> 3);
        at += 8;
    }
    return at;
}

proa_status proa_jread_string(proa_jread *j, proa_str *out, proa_err *err)
{
    const char *raw = j->at + 1, *at = skip_plain(raw, j->end);
    bool escapes = false;
    for (; at < j->end && *at != '"'; at = skip_plain(at + 1, j->end)) {
        if ((unsigned char)*at < 0x20) {
            j->at = at;
            return proa_jread_fail(j, "Invalid encoding in string.", err);
        }
        if (*at != '\\') continue;
        escapes = true;
        if (++at == j->end) break;
    }
    if (at >= j->end) return proa_jread_fail(j, "Missing a closing quotation mark in string.", err);
    if (escapes) return decode_string(j, raw, (size_t)(at - raw), out, err);
    *out = (proa_str){raw, (size_t)(at - raw)};
    j->at = at + 1;
    return PROA_OK;
}

/* ---- numbers ---- */

typedef struct digits {
    uint64_t mantissa; /* the first 19 digits that count */
    int count;         /* of those */
    int64_t exponent;  /* of ten: the number is mantissa * 10^exponent */
    bool lost;         /* more digits than fit, not all zero */
} digits;

static inline bool is_digit(const proa_jread *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

/* Takes digits; each one after the point lowers the exponent. */
static void take_digits(proa_jread *j, digits *n, int64_t shift)
{
    for (; is_digit(j); j->at++) {
        unsigned digit = (unsigned)(*j->at - '0');
        if (n->count < 19) {
            n->mantissa = n->mantissa * 10 + digit;
            n->count += n->mantissa != 0;
            n->exponent += shift;
        } else {
            n->lost |= digit != 0;
            n->exponent += shift + 1;
        }
    }
}

static proa_status take_exponent(proa_jread *j, digits *n, proa_err *err)
{
    int64_t e = 0;
    bool negative = false;
    j->at++;
    if (j->at < j->end && (*j->at == '+' || *j->at == '-')) negative = *j->at++ == '-';
    if (!is_digit(j)) return proa_jread_fail(j, "Miss exponent in number.", err);
    for (; is_digit(j); j->at++)
        if (e < 1000000) e = e * 10 + (*j->at - '0');
    n->exponent += negative ? -e : e;
    return PROA_OK;
}

static const double exact_powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#if LDBL_MANT_DIG == 64
static const long double long_powers[] = {
    1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
    1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};

/* 64 bits hold the mantissa and 10^27 exactly, so one operation rounds once, at the 64th bit. Rounding that to 53 bits
 * is right unless the 11 bits that go are about one half: then the digits decide, and false is returned. */
static bool by_long_double(const digits *n, double *out)
{
    uint64_t bits;
    if (n->exponent < -27 || n->exponent > 27) return false;
    long double value = (long double)n->mantissa;
    if (n->exponent < 0) value /= long_powers[-n->exponent];
    else value *= long_powers[n->exponent];
    memcpy(&bits, &value, sizeof bits);
    *out = (double)value;
    uint64_t tail = bits & 0x7ff;
    return tail < 0x3ff || tail > 0x401;
}
#else
static bool by_long_double(const digits *n, double *out)
{
    (void)n;
    (void)out;
    return false;
}
#endif

static double value_of(const digits *n, const char *text)
{
    double value;
    if (n->mantissa == 0) return 0;
    if (!n->lost) {
        bool small = n->mantissa <= (uint64_t)1 << 53;
        if (small && n->exponent >= 0 && n->exponent <= 22)
            return (double)n->mantissa * exact_powers[n->exponent];
        if (small && n->exponent < 0 && n->exponent >= -22)
            return (double)n->mantissa / exact_powers[-n->exponent];
        if (by_long_double(n, &value)) return value;
    }
    return strtod(text, NULL);
}

static proa_status read_special(proa_jread *j, bool negative, proa_jnumber *out, proa_err *err)
{
    out->kind = PROA_JNUMBER_DOUBLE;
    if (!negative && read_literal(j, "NaN", 3)) out->d = (double)NAN;
    else if (read_literal(j, "Infinity", 8) || read_literal(j, "Inf", 3))
        out->d = negative ? (double)-INFINITY : (double)INFINITY;
    else return proa_jread_fail(j, "Invalid value.", err);
    return PROA_OK;
}

static void set_integer(const digits *n, bool negative, const char *text, proa_jnumber *out)
{
    uint64_t u = n->mantissa;
    bool fits = n->exponent == 0 && !n->lost && u <= (negative ? (uint64_t)1 << 63 : UINT64_MAX);
    if (!fits) { /* 20 digits may still be below 2^64 */
        char *end;
        u = n->count == 19 && n->exponent == 1 && !negative ? strtoull(text, &end, 10) : 0;
        fits = u > (uint64_t)INT64_MAX && u < UINT64_MAX;
        fits |= u == UINT64_MAX && strncmp(text, "18446744073709551615", 20) == 0;
    }
    if (!fits) return;
    if (negative) out->kind = PROA_JNUMBER_INT, out->i = u == (uint64_t)1 << 63 ? INT64_MIN : -(int64_t)u;
    else if (u <= (uint64_t)INT64_MAX) out->kind = PROA_JNUMBER_INT, out->i = (int64_t)u;
    else out->kind = PROA_JNUMBER_UINT, out->u = u;
    out->d = negative ? -(double)u : (double)u;
}

proa_status proa_jread_number(proa_jread *j, proa_jnumber *out, proa_err *err)
{
    digits n = {0};
    bool negative = *j->at == '-', whole = true;
    j->at += negative;
    const char *text = j->at;
    if (!is_digit(j)) return read_special(j, negative, out, err);
    if (*j->at == '0') j->at++; /* a leading zero is a number of its own */
    else take_digits(j, &n, 0);
    if (j->at < j->end && *j->at == '.') {
        whole = false;
        j->at++;
        if (!is_digit(j)) return proa_jread_fail(j, "Miss fraction part in number.", err);
        take_digits(j, &n, -1);
    }
    if (j->at < j->end && (*j->at | 32) == 'e') {
        whole = false;
        PROA_TRY(take_exponent(j, &n, err));
    }
    out->kind = PROA_JNUMBER_DOUBLE;
    if (whole) set_integer(&n, negative, text, out);
    if (out->kind != PROA_JNUMBER_DOUBLE) return PROA_OK;
    double value = value_of(&n, text);
    if (isinf(value)) return proa_jread_fail(j, "Number too big to be stored in double.", err);
    out->d = negative ? -value : value;
    return PROA_OK;
}

proa_status proa_jread_bool(proa_jread *j, bool *out, proa_err *err)
{
    if (read_literal(j, "true", 4)) *out = true;
    else if (read_literal(j, "false", 5)) *out = false;
    else return proa_jread_fail(j, "Invalid value.", err);
    return PROA_OK;
}

/* ---- structure ---- */

void proa_jread_begin(proa_jread *j)
{
    j->at++; /* the bracket, which member and element look back at */
}

static proa_status read_key(proa_jread *j, proa_str *key, proa_err *err)
{
    if (next_byte(j) != '"') return proa_jread_fail(j, "Missing a name for object member.", err);
    PROA_TRY(proa_jread_string(j, key, err));
    if (next_byte(j) != ':') return proa_jread_fail(j, "Missing a colon after a name of object member.", err);
    j->at++;
    return PROA_OK;
}

proa_status proa_jread_member(proa_jread *j, proa_str *key, bool *more, proa_err *err)
{
    bool first = j->at[-1] == '{';
    int c = next_byte(j);
    *more = c != '}';
    if (!*more) {
        j->at++;
        return PROA_OK;
    }
    if (!first) {
        if (c != ',') return proa_jread_fail(j, "Missing a comma or } after an object member.", err);
        j->at++;
    }
    return read_key(j, key, err);
}

proa_status proa_jread_element(proa_jread *j, bool *more, proa_err *err)
{
    bool first = j->at[-1] == '[';
    int c = next_byte(j);
    *more = c != ']';
    if (!*more || !first) {
        if (*more && c != ',') return proa_jread_fail(j, "Missing a comma or ] after an array element.", err);
        j->at++;
    }
    return PROA_OK;
}

static proa_status skip_scalar(proa_jread *j, proa_jread_kind kind, proa_err *err)
{
    proa_str s;
    proa_jnumber n;
    bool b;
    switch (kind) {
    case PROA_JREAD_STRING: return proa_jread_string(j, &s, err);
    case PROA_JREAD_NUMBER: return proa_jread_number(j, &n, err);
    case PROA_JREAD_BOOL: return proa_jread_bool(j, &b, err);
    case PROA_JREAD_NULL:
        if (read_literal(j, "null", 4)) return PROA_OK;
        break;
    default: break;
    }
    return proa_jread_fail(j, "Invalid value.", err);
}

proa_status proa_jread_skip(proa_jread *j, proa_err *err)
{
    char open[PROA_INFER_JSON_DEPTH_MAX];
    int depth = 0;
    bool value = true; /* a value comes next; else a comma or a closing bracket */
    do {
        proa_str key;
        bool more;
        if (value) {
            proa_jread_kind kind = proa_jread_peek(j);
            value = false;
            if (kind != PROA_JREAD_ARRAY && kind != PROA_JREAD_OBJECT) {
                PROA_TRY(skip_scalar(j, kind, err));
                continue;
            }
            if (depth == PROA_INFER_JSON_DEPTH_MAX)
                return PROA_FAIL(err, INVALID, "JSON nesting depth exceeds maximum allowed limit (%d)",
                                 PROA_INFER_JSON_DEPTH_MAX);
            open[depth++] = *j->at;
            proa_jread_begin(j);
        } else {
            if (open[depth - 1] == '{') PROA_TRY(proa_jread_member(j, &key, &more, err));
            else PROA_TRY(proa_jread_element(j, &more, err));
            depth -= !more;
            value = more;
        }
    } while (depth > 0);
    return PROA_OK;
}

proa_status proa_jread_finish(proa_jread *j, proa_err *err)
{
    if (next_byte(j) == -1) return PROA_OK;
    return proa_jread_fail(j, "The document root must not be followed by other values.", err);
}

/* ---- values of a type ---- */

static proa_status wrong_type(const proa_jread *j, const char *what, const char *type, const char *as,
                              proa_err *err)
{
    return proa_err_set(err, j->bad, __FILE__, __LINE__, "%s%sattempt to access JSON non-%s as %s", what,
                        what[0] ? ": " : "", type, as);
}

proa_status proa_jread_expect(proa_jread *j, const char *what, proa_jread_kind kind, proa_err *err)
{
    static const char *const names[] = {"", "null", "boolean", "number", "string", "array", "object", ""};
    proa_jread_kind found = proa_jread_peek(j);
    if (found == kind) return PROA_OK;
    if (found == PROA_JREAD_END || found == PROA_JREAD_OTHER)
        return proa_jread_fail(j, "Invalid value.", err);
    return wrong_type(j, what, names[kind], names[kind], err);
}

proa_status proa_jread_name(proa_jread *j, const char *what, proa_str *out, proa_err *err)
{
    PROA_TRY(proa_jread_expect(j, what, PROA_JREAD_STRING, err));
    PROA_TRY(proa_jread_string(j, out, err));
    if (proa_str_has_nul(*out)) return PROA_FAIL(err, INVALID, "%s: a NUL in the string", what);
    out->ptr = proa_arena_strdup(j->arena, *out);
    return PROA_OK;
}

proa_status proa_jread_uint(proa_jread *j, const char *what, uint64_t *out, proa_err *err)
{
    proa_jnumber n = {.kind = PROA_JNUMBER_DOUBLE};
    proa_jread_kind kind = proa_jread_peek(j);
    if (kind == PROA_JREAD_NUMBER) PROA_TRY(proa_jread_number(j, &n, err));
    else if (kind == PROA_JREAD_END || kind == PROA_JREAD_OTHER)
        return proa_jread_fail(j, "Invalid value.", err);
    if (n.kind == PROA_JNUMBER_DOUBLE || (n.kind == PROA_JNUMBER_INT && n.i < 0))
        return wrong_type(j, what, "unsigned-integer", "unsigned-integer", err);
    *out = n.kind == PROA_JNUMBER_UINT ? n.u : (uint64_t)n.i;
    return PROA_OK;
}

proa_status proa_jread_flag(proa_jread *j, const char *what, bool *out, proa_err *err)
{
    PROA_TRY(proa_jread_expect(j, what, PROA_JREAD_BOOL, err));
    return proa_jread_bool(j, out, err);
}
