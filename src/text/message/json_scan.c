/* SPDX-License-Identifier: Apache-2.0
 * json_scan.c - checks a JSON value byte by byte (RFC 8259), without a tree: arguments are passed on while they are
 * valid so far. */
#include "base/limits.h"
#include "text/message/parser.h"

#include <string.h>

enum {
    VALUE,       /* a value must come */
    FIRST_VALUE, /* a value or ] */
    FIRST_KEY,   /* a key or } */
    KEY,
    COLON,
    AFTER, /* , or the end of the container */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS, /* numbers, from here on */
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    EXPONENT,
    SIGN,
    POWER
};

void proa_json_scan_begin(proa_json_scan *s)
{
    *s = (proa_json_scan){.state = VALUE};
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static proa_scan end_value(proa_json_scan *s)
{
    s->state = AFTER;
    return s->depth == 0 ? PROA_SCAN_DONE : PROA_SCAN_MORE;
}

static proa_scan open_container(proa_json_scan *s, bool array)
{
    if (s->depth >= PROA_JSON_DEPTH_MAX) return PROA_SCAN_BAD;
    uint64_t bit = (uint64_t)1 << s->depth++;
    s->arrays = array ? s->arrays | bit : s->arrays & ~bit;
    s->state = array ? FIRST_VALUE : FIRST_KEY;
    return PROA_SCAN_MORE;
}

static bool in_array(const proa_json_scan *s)
{
    return s->arrays >> (s->depth - 1) & 1;
}

static proa_scan begin_literal(proa_json_scan *s, const char *rest)
{
    s->state = LITERAL;
    s->literal = rest;
    s->left = (int)strlen(rest);
    return PROA_SCAN_MORE;
}

static proa_scan begin_value(proa_json_scan *s, char c)
{
    switch (c) {
    case '{': return open_container(s, false);
    case '[': return open_container(s, true);
    case '"': s->state = STRING, s->key = false; return PROA_SCAN_MORE;
    case 't': return begin_literal(s, &"true"[1]);
    case 'f': return begin_literal(s, &"false"[1]);
    case 'n': return begin_literal(s, &"null"[1]);
    case '-': s->state = MINUS; return PROA_SCAN_MORE;
    case '0': s->state = ZERO; return PROA_SCAN_MORE;
    default:
        if (!is_digit(c)) return PROA_SCAN_BAD;
        s->state = DIGITS;
        return PROA_SCAN_MORE;
    }
}

static proa_scan begin_key(proa_json_scan *s, char c)
{
    if (c != '"') return PROA_SCAN_BAD;
    s->state = STRING;
    s->key = true;
    return PROA_SCAN_MORE;
}

static proa_scan close_container(proa_json_scan *s)
{
    s->depth--;
    return end_value(s);
}

static proa_scan after_value(proa_json_scan *s, char c)
{
    bool array = in_array(s);
    if (c == (array ? ']' : '}')) return close_container(s);
    if (c != ',') return PROA_SCAN_BAD;
    s->state = array ? VALUE : KEY;
    return PROA_SCAN_MORE;
}

static proa_scan string_byte(proa_json_scan *s, char c)
{
    if ((unsigned char)c < 0x20) return PROA_SCAN_BAD;
    if (c == '\\') s->state = ESCAPE;
    if (c != '"') return PROA_SCAN_MORE;
    if (!s->key) return end_value(s);
    s->state = COLON;
    return PROA_SCAN_MORE;
}

static proa_scan escape_byte(proa_json_scan *s, char c)
{
    if (c == '\0' || !strchr("\"\\/bfnrtu", c)) return PROA_SCAN_BAD;
    s->state = c == 'u' ? HEX : STRING;
    s->left = 4;
    return PROA_SCAN_MORE;
}

static proa_scan hex_byte(proa_json_scan *s, char c)
{
    if (!is_hex(c)) return PROA_SCAN_BAD;
    if (--s->left == 0) s->state = STRING;
    return PROA_SCAN_MORE;
}

static proa_scan literal_byte(proa_json_scan *s, char c)
{
    if (c != *s->literal) return PROA_SCAN_BAD;
    s->literal++;
    return --s->left == 0 ? end_value(s) : PROA_SCAN_MORE;
}

/* The state of a number after one more byte; 0: the byte is not of the number. */
static int next_of_number(int state, char c)
{
    /* by state: after a digit, the point, an e, a sign */
    static const int next[][4] = {[MINUS] = {DIGITS, 0, 0, 0},
                                  [ZERO] = {0, POINT, EXPONENT, 0},
                                  [DIGITS] = {DIGITS, POINT, EXPONENT, 0},
                                  [POINT] = {FRACTION, 0, 0, 0},
                                  [FRACTION] = {FRACTION, 0, EXPONENT, 0},
                                  [EXPONENT] = {POWER, 0, 0, SIGN},
                                  [SIGN] = {POWER, 0, 0, 0},
                                  [POWER] = {POWER, 0, 0, 0}};
    if (state == MINUS && c == '0') return ZERO;
    if (is_digit(c)) return next[state][0];
    if (c == '.') return next[state][1];
    if (c == 'e' || c == 'E') return next[state][2];
    return c == '+' || c == '-' ? next[state][3] : 0;
}

static proa_scan number_byte(proa_json_scan *s, char c)
{
    int next = next_of_number(s->state, c);
    bool complete = s->state == ZERO || s->state == DIGITS || s->state == FRACTION || s->state == POWER;
    if (next) {
        s->state = next;
        return PROA_SCAN_MORE;
    }
    if (!complete) return PROA_SCAN_BAD;
    if (s->depth == 0) return PROA_SCAN_BEFORE;
    s->state = AFTER;
    return is_space(c) ? PROA_SCAN_MORE : after_value(s, c);
}

proa_scan proa_json_scan_byte(proa_json_scan *s, char c)
{
    if (s->state <= AFTER && is_space(c)) return PROA_SCAN_MORE;
    switch (s->state) {
    case VALUE: return begin_value(s, c);
    case FIRST_VALUE: return c == ']' ? close_container(s) : begin_value(s, c);
    case FIRST_KEY: return c == '}' ? close_container(s) : begin_key(s, c);
    case KEY: return begin_key(s, c);
    case COLON:
        if (c != ':') return PROA_SCAN_BAD;
        s->state = VALUE;
        return PROA_SCAN_MORE;
    case AFTER: return s->depth == 0 ? PROA_SCAN_BAD : after_value(s, c);
    case STRING: return string_byte(s, c);
    case ESCAPE: return escape_byte(s, c);
    case HEX: return hex_byte(s, c);
    case LITERAL: return literal_byte(s, c);
    default: return number_byte(s, c);
    }
}
