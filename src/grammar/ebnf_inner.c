/* SPDX-License-Identifier: Apache-2.0
 * ebnf_inner.c - what GBNF and Lark's form share: names, numbers, characters and literals, repetitions. */
#include "grammar/ebnf_inner.h"

#include "base/limits.h"
#include <string.h>

proa_status proa_ebnf_fail(const proa_ebnf *r, const char *what)
{
    int64_t line = 1;
    for (size_t i = 0; i < r->at && i < r->text.len; i++) line += r->text.ptr[i] == '\n';
    return PROA_FAIL(r->err, INVALID, "line %lld: %s", (long long)line, what);
}

char proa_ebnf_peek(const proa_ebnf *r)
{
    return r->at < r->text.len ? r->text.ptr[r->at] : '\0';
}

bool proa_ebnf_take(proa_ebnf *r, const char *text)
{
    size_t n = strlen(text);
    if (r->text.len - r->at < n || memcmp(r->text.ptr + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

static bool is_name_char(char c, bool gbnf)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    return letter || (c == '-' && gbnf);
}

proa_str proa_ebnf_name(proa_ebnf *r)
{
    size_t from = r->at;
    while (r->at < r->text.len && is_name_char(r->text.ptr[r->at], r->gbnf)) r->at++;
    return (proa_str){r->text.ptr + from, r->at - from};
}

bool proa_ebnf_number(proa_ebnf *r, int32_t *out)
{
    int64_t value = 0;
    size_t from = r->at;
    for (; proa_ebnf_peek(r) >= '0' && proa_ebnf_peek(r) <= '9'; r->at++)
        if (value <= PROA_GRAMMAR_REPEAT_MAX) value = 10 * value + (proa_ebnf_peek(r) - '0');
    *out = (int32_t)(value > PROA_GRAMMAR_REPEAT_MAX ? PROA_GRAMMAR_REPEAT_MAX + 1 : value);
    return r->at > from;
}

proa_status proa_ebnf_repeat(proa_ebnf *r, const proa_expr **e, int32_t min, int32_t max)
{
    if (min > PROA_GRAMMAR_REPEAT_MAX || max > PROA_GRAMMAR_REPEAT_MAX || (max >= 0 && max < min))
        return proa_ebnf_fail(r, "a repetition whose bounds are out of order or too large");
    *e = proa_expr_repeat(r->rules, *e, min, max);
    return PROA_OK;
}

int32_t proa_ebnf_rule(proa_ebnf *r, proa_str name)
{
    for (int32_t i = 0; i < r->rules->count; i++)
        if (proa_str_is(name, r->rules->rule[i].name)) return i;
    return proa_rules_add(r->rules, name);
}

static bool read_hex(proa_ebnf *r, int digits, int32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int d = proa_hex_digit(proa_ebnf_peek(r));
        if (d < 0) return false;
        value = 16 * value + (uint32_t)d;
    }
    *out = value > 0x10FFFF ? -1 : (int32_t)value;
    return true;
}

static bool is_code_point(int32_t c)
{
    return c >= 0 && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
}

/* The character after a backslash: a code point by number, a control character, or itself. False: it is wrong. */
static bool read_escape(proa_ebnf *r, char c, int32_t *out)
{
    static const char escapes[] = "n\nt\tr\rf\fv\vb\b";
    if (c == 'x') return read_hex(r, 2, out);
    if (c == 'u') return read_hex(r, 4, out);
    if (c == 'U') return read_hex(r, 8, out);
    *out = (uint8_t)c;
    for (const char *p = escapes; *p; p += 2)
        if (*p == c) *out = (uint8_t)p[1];
    return (uint8_t)c < 128;
}

proa_status proa_ebnf_char(proa_ebnf *r, int32_t *out)
{
    if (r->at >= r->text.len) return proa_ebnf_fail(r, "the text ends within a literal");
    if (!proa_ebnf_take(r, "\\")) {
        int n = proa_utf8_decode(r->text.ptr + r->at, r->text.len - r->at, out);
        r->at += n ? (size_t)n : 1;
        return PROA_OK;
    }
    char c = proa_ebnf_peek(r);
    if (r->at >= r->text.len) return proa_ebnf_fail(r, "the text ends within a literal");
    r->at++;
    if (read_escape(r, c, out) && is_code_point(*out)) return PROA_OK;
    return proa_ebnf_fail(r, "a wrong escape");
}

/* After the quote. */
proa_status proa_ebnf_literal(proa_ebnf *r, bool *ignore_case, const proa_expr **out)
{
    proa_expr_items items = {0};
    int32_t c = 0;
    size_t from = r->at;
    while (!proa_ebnf_take(r, "\"")) { /* to find the flag after it */
        PROA_TRY(proa_ebnf_char(r, &c));
        if (c == '\n' && r->text.ptr[r->at - 1] == '\n')
            return proa_ebnf_fail(r, "a literal without its closing quote");
    }
    *ignore_case = !r->gbnf && proa_ebnf_peek(r) == 'i' && proa_ebnf_take(r, "i");
    size_t end = r->at;
    r->at = from;
    while (!proa_ebnf_take(r, "\"")) {
        char utf8[4];
        PROA_TRY(proa_ebnf_char(r, &c));
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        const proa_range both[] = {{c | 32, c | 32}, {c & ~32, c & ~32}};
        if (*ignore_case && letter)
            proa_expr_push(r->rules, &items, proa_expr_class(r->rules, both, 2, false));
        else
            proa_expr_push(r->rules, &items,
                           proa_expr_bytes(r->rules, (proa_str){utf8, (size_t)proa_utf8_encode(c, utf8)}));
    }
    r->at = end;
    *out = proa_expr_list(r->rules, PROA_EXPR_SEQ, items.ptr, items.count);
    return PROA_OK;
}

proa_status proa_ebnf_enter(proa_ebnf *r)
{
    PROA_TRY(proa_rules_check(r->rules, r->err));
    if (++r->depth <= PROA_GRAMMAR_DEPTH_MAX) return PROA_OK;
    return PROA_FAIL(r->err, LIMIT, "groups nest deeper than %d", PROA_GRAMMAR_DEPTH_MAX);
}
