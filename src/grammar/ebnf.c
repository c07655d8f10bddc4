/* SPDX-License-Identifier: Apache-2.0
 * ebnf.c - GBNF, and the choice between the two forms. */
#include "grammar/ebnf.h"

#include "grammar/ebnf_inner.h"
#include <string.h>

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
