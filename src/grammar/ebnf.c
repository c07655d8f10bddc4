/* SPDX-License-Identifier: Apache-2.0
 * ebnf.c - GBNF, and the choice between the two forms. */
#include "grammar/ebnf.h"

#include "grammar/ebnf_inner.h"
#include "base/limits.h"
#include <string.h>

/* ---- what both forms share ---- */

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

/* ---- GBNF ---- */

static proa_status read_choice(proa_ebnf *r, bool nested, const proa_expr **out);

/* Spaces and comments; line ends too where a rule cannot end. */
static void skip_space(proa_ebnf *r, bool lines)
{
    while (r->at < r->text.len) {
        char c = proa_ebnf_peek(r);
        if (c == '#')
            while (r->at < r->text.len && r->text.ptr[r->at] != '\n') r->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) r->at++;
        else return;
    }
}

static proa_status read_class(proa_ebnf *r, const proa_expr **out)
{
    proa_range *ranges = NULL;
    int32_t count = 0, cap = 0;
    bool negated = proa_ebnf_take(r, "^");
    while (!proa_ebnf_take(r, "]")) {
        int32_t lo = 0;
        PROA_TRY(proa_ebnf_char(r, &lo));
        int32_t hi = lo;
        if (proa_ebnf_peek(r) == '-' && r->at + 1 < r->text.len && r->text.ptr[r->at + 1] != ']') {
            r->at++;
            PROA_TRY(proa_ebnf_char(r, &hi));
        }
        if (hi < lo) return proa_ebnf_fail(r, "a range that is out of order");
        if (count == cap) {
            proa_range *grown = PROA_ARENA_NEW(&r->rules->arena, proa_range, 2 * cap + 8);
            if (count) memcpy(grown, ranges, (size_t)count * sizeof *grown);
            ranges = grown;
            cap = 2 * cap + 8;
        }
        ranges[count++] = (proa_range){lo, hi};
    }
    *out = proa_expr_class(r->rules, ranges, count, negated);
    return PROA_OK;
}

static proa_status read_item(proa_ebnf *r, bool nested, const proa_expr **out)
{
    bool ignore_case;
    if (proa_ebnf_take(r, "\"")) return proa_ebnf_literal(r, &ignore_case, out);
    if (proa_ebnf_take(r, "[")) return read_class(r, out);
    if (proa_ebnf_take(r, ".")) return *out = proa_expr_class(r->rules, NULL, 0, true), PROA_OK;
    if (proa_ebnf_take(r, "(")) {
        PROA_TRY(proa_ebnf_enter(r));
        skip_space(r, true);
        PROA_TRY(read_choice(r, true, out));
        skip_space(r, true);
        if (!proa_ebnf_take(r, ")")) return proa_ebnf_fail(r, "a group without ')'");
        r->depth--;
        return PROA_OK;
    }
    PROA_UNUSED(nested);
    proa_str name = proa_ebnf_name(r);
    if (name.len == 0) return proa_ebnf_fail(r, "a rule, a literal or a class is expected");
    *out = proa_expr_rule(r->rules, proa_ebnf_rule(r, name));
    return PROA_OK;
}

static proa_status read_repeated(proa_ebnf *r, bool nested, const proa_expr **out)
{
    PROA_TRY(read_item(r, nested, out));
    for (int times = 0; times < 8; times++) {
        int32_t min = 0, max = -1;
        skip_space(r, nested);
        if (proa_ebnf_take(r, "*")) min = 0;
        else if (proa_ebnf_take(r, "+")) min = 1;
        else if (proa_ebnf_take(r, "?")) max = 1;
        else if (proa_ebnf_take(r, "{")) {
            bool found = proa_ebnf_number(r, &min);
            max = min;
            if (proa_ebnf_take(r, ",") && !proa_ebnf_number(r, &max)) max = -1;
            if (!found || !proa_ebnf_take(r, "}")) return proa_ebnf_fail(r, "wrong bounds of a repetition");
        } else return PROA_OK;
        PROA_TRY(proa_ebnf_repeat(r, out, min, max));
    }
    return proa_ebnf_fail(r, "too many repetitions of one another");
}

/* Whether a new rule begins here, which ends the one before. */
static bool at_definition(const proa_ebnf *r)
{
    proa_ebnf ahead = *r;
    proa_str name = proa_ebnf_name(&ahead);
    skip_space(&ahead, false);
    return name.len && proa_ebnf_take(&ahead, "::=");
}

static proa_status read_sequence(proa_ebnf *r, bool nested, const proa_expr **out)
{
    proa_expr_items items = {0};
    for (;;) {
        const proa_expr *item = NULL;
        skip_space(r, nested);
        char c = proa_ebnf_peek(r);
        if (c == '\n' || c == '\r') { /* a rule may go on in the next line with | */
            proa_ebnf ahead = *r;
            skip_space(&ahead, true);
            if (proa_ebnf_peek(&ahead) == '|') *r = ahead;
            break;
        }
        if (r->at >= r->text.len || c == '|' || c == ')') break;
        PROA_TRY(read_repeated(r, nested, &item));
        PROA_TRY(proa_rules_check(r->rules, r->err));
        proa_expr_push(r->rules, &items, item);
    }
    *out = proa_expr_list(r->rules, PROA_EXPR_SEQ, items.ptr, items.count);
    return PROA_OK;
}

static proa_status read_choice(proa_ebnf *r, bool nested, const proa_expr **out)
{
    proa_expr_items items = {0};
    do {
        const proa_expr *item = NULL;
        skip_space(r, true);
        PROA_TRY(read_sequence(r, nested, &item));
        proa_expr_push(r->rules, &items, item);
    } while (proa_ebnf_take(r, "|"));
    *out = proa_expr_list(r->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

static proa_status read_gbnf(proa_ebnf *r)
{
    int32_t root = proa_ebnf_rule(r, proa_str_c("root"));
    r->rules->root = root;
    for (skip_space(r, true); r->at < r->text.len; skip_space(r, true)) {
        const proa_expr *body = NULL;
        if (!at_definition(r)) return proa_ebnf_fail(r, "a rule is expected: name ::= ...");
        int32_t rule = proa_ebnf_rule(r, proa_ebnf_name(r));
        skip_space(r, false);
        proa_ebnf_take(r, "::=");
        if (r->rules->rule[rule].body) return proa_ebnf_fail(r, "a rule that is defined twice");
        PROA_TRY(read_choice(r, false, &body));
        if (proa_ebnf_peek(r) == ')') return proa_ebnf_fail(r, "a ')' without a group");
        r->rules->rule[rule].body = body;
    }
    return PROA_OK;
}

proa_status proa_ebnf_read(proa_rules *rules, proa_str text, proa_err *err)
{
    proa_ebnf r = {.rules = rules, .text = text, .err = err};
    if (!proa_utf8_valid(text)) return PROA_FAIL(err, INVALID, "the grammar is not UTF-8");
    proa_ebnf first = {.text = text, .gbnf = true}; /* texts further down may have ::=, too */
    skip_space(&first, true);
    r.gbnf = at_definition(&first);
    return r.gbnf ? read_gbnf(&r) : proa_lark_read(&r);
}
