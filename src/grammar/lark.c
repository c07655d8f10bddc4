/* SPDX-License-Identifier: Apache-2.0
 * lark.c - Lark's form of a grammar. What is ignored may follow each terminal of a rule, and stand before the first.
 * Two elements are llguidance's: %json {..}, a text of this schema, and <[7]>, the special token with the id 7. */
#include "grammar/ebnf_inner.h"

#include "base/limits.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/vocab.h"
#include <string.h>

/* The terminals of lark/grammars/common.lark, as regular expressions. */
static const struct {
    const char *name, *regex;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\.[0-9]+(?:[eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"}};

static proa_status read_choice(proa_ebnf *r, const proa_expr **out);

static void skip_space(proa_ebnf *r, bool lines)
{
    while (r->at < r->text.len) {
        char c = proa_ebnf_peek(r);
        bool comment = (c == '/' && r->at + 1 < r->text.len && r->text.ptr[r->at + 1] == '/') || c == '#';
        if (comment)
            while (r->at < r->text.len && r->text.ptr[r->at] != '\n') r->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) r->at++;
        else return;
    }
}

static bool is_terminal_name(proa_str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] != '_' && !(name.ptr[i] >= '0' && name.ptr[i] <= '9'))
            return name.ptr[i] >= 'A' && name.ptr[i] <= 'Z';
    return false;
}

/* A terminal in a rule, followed by anything that the grammar ignores. */
static const proa_expr *as_terminal(proa_ebnf *r, const proa_expr *e)
{
    return r->ignored && !r->in_terminal ? proa_expr_seq2(r->rules, e, r->ignored) : e;
}

/* After the slash. */
static proa_status read_expression(proa_ebnf *r, const proa_expr **out)
{
    size_t from = r->at;
    proa_regex_options o = {.mode = PROA_REGEX_TEXT, .whole = true};
    while (r->at < r->text.len && proa_ebnf_peek(r) != '/' && proa_ebnf_peek(r) != '\n')
        r->at += proa_ebnf_peek(r) == '\\' && r->at + 1 < r->text.len ? 2 : 1;
    proa_str text = {r->text.ptr + from, r->at - from};
    if (!proa_ebnf_take(r, "/")) return proa_ebnf_fail(r, "a regular expression without its closing '/'");
    for (;; r->at++) {
        char flag = proa_ebnf_peek(r);
        if (flag == 'i') o.ignore_case = true;
        else if (flag == 's') o.dot_all = true;
        else if (flag == 'm' || flag == 'l' || flag == 'u' || flag == 'x')
            return proa_ebnf_fail(r, "a flag of a regular expression that is not supported (i and s are)");
        else break;
    }
    return proa_regex_read(r->rules, text, &o, out, r->err);
}

/* "a".."z" */
static proa_status read_text(proa_ebnf *r, const proa_expr **out)
{
    bool ignore_case;
    int32_t lo = 0, hi = 0;
    proa_ebnf ahead = *r;
    if (proa_ebnf_peek(r) != '"' && proa_ebnf_char(&ahead, &lo) == PROA_OK && proa_ebnf_take(&ahead, "\"..\"")) {
        *r = ahead;
        PROA_TRY(proa_ebnf_char(r, &hi));
        if (!proa_ebnf_take(r, "\"") || hi < lo) return proa_ebnf_fail(r, "a wrong range of characters");
        const proa_range range = {lo, hi};
        *out = proa_expr_class(r->rules, &range, 1, false);
        return PROA_OK;
    }
    return proa_ebnf_literal(r, &ignore_case, out);
}

static proa_status read_group(proa_ebnf *r, const char *end, const proa_expr **out)
{
    PROA_TRY(proa_ebnf_enter(r));
    PROA_TRY(read_choice(r, out));
    skip_space(r, true);
    if (!proa_ebnf_take(r, end)) return proa_ebnf_fail(r, "a group that is not closed");
    r->depth--;
    return PROA_OK;
}

/* The end of the JSON object that begins at r->at; 0: it is not closed. */
static size_t end_of_object(const proa_ebnf *r)
{
    int64_t depth = 0;
    bool string = false;
    for (size_t i = r->at; i < r->text.len; i++) {
        char c = r->text.ptr[i];
        if (string && c == '\\') i++;
        else if (c == '"') string = !string;
        else if (!string && (c == '{' || c == '[')) depth++;
        else if (!string && (c == '}' || c == ']') && --depth == 0) return i + 1;
    }
    return 0;
}

/* After %json. Errors of the schema name the rule. Its own rules get names that no rule of the grammar has. */
static proa_status read_schema(proa_ebnf *r, const proa_expr **out)
{
    int32_t rule = 0, first = r->rules->count;
    skip_space(r, true);
    size_t end = proa_ebnf_peek(r) == '{' ? end_of_object(r) : 0;
    if (end == 0) return proa_ebnf_fail(r, "an object is expected after %json");
    proa_str text = {r->text.ptr + r->at, end - r->at};
    proa_status status = proa_schema_read(r->rules, text, &rule, r->err);
    if (status != PROA_OK) {
        proa_err_prefix(r->err, "rule '%s'", r->rules->rule[r->defining].name);
        return status;
    }
    for (int32_t i = first; i < r->rules->count; i++)
        r->rules->rule[i].name = proa_arena_printf(&r->rules->arena, "%%json %s", r->rules->rule[i].name);
    r->at = end;
    *out = proa_expr_rule(r->rules, rule);
    return PROA_OK;
}

/* After <[ */
static proa_status read_special(proa_ebnf *r, const proa_expr **out)
{
    int64_t id = 0;
    size_t from = r->at;
    char bytes[PROA_TOKEN_SPECIAL_BYTES];
    for (; proa_ebnf_peek(r) >= '0' && proa_ebnf_peek(r) <= '9' && id <= PROA_VOCAB_MAX; r->at++)
        id = 10 * id + (proa_ebnf_peek(r) - '0');
    if (r->at == from || id > PROA_VOCAB_MAX || !proa_ebnf_take(r, "]>"))
        return proa_ebnf_fail(r, "a token id is expected: <[7]>");
    *out = proa_expr_bytes(r->rules, proa_token_special(bytes, (int32_t)id));
    return PROA_OK;
}

static proa_status read_item(proa_ebnf *r, const proa_expr **out)
{
    if (proa_ebnf_take(r, "%json")) return read_schema(r, out);
    if (proa_ebnf_take(r, "<[")) return read_special(r, out);
    if (proa_ebnf_take(r, "(")) return read_group(r, ")", out);
    if (proa_ebnf_take(r, "[")) {
        PROA_TRY(read_group(r, "]", out));
        *out = proa_expr_optional(r->rules, *out);
        return PROA_OK;
    }
    if (proa_ebnf_take(r, "\"")) PROA_TRY(read_text(r, out));
    else if (proa_ebnf_take(r, "/")) PROA_TRY(read_expression(r, out));
    else {
        proa_str name = proa_ebnf_name(r);
        if (name.len == 0)
            return proa_ebnf_fail(r, "a rule, a terminal, a text or an expression is expected");
        if (proa_ebnf_peek(r) == '{') return proa_ebnf_fail(r, "templates are not supported");
        *out = proa_expr_rule(r->rules, proa_ebnf_rule(r, name));
        if (!is_terminal_name(name)) return PROA_OK;
    }
    *out = as_terminal(r, *out);
    return PROA_OK;
}

static proa_status read_repeated(proa_ebnf *r, const proa_expr **out)
{
    PROA_TRY(read_item(r, out));
    for (int times = 0; times < 8; times++) {
        int32_t min = 0, max = -1;
        skip_space(r, false);
        if (proa_ebnf_take(r, "*")) min = 0;
        else if (proa_ebnf_take(r, "+")) min = 1;
        else if (proa_ebnf_take(r, "?")) max = 1;
        else if (proa_ebnf_take(r, "~")) {
            skip_space(r, false);
            if (!proa_ebnf_number(r, &min)) return proa_ebnf_fail(r, "a number is expected after ~");
            max = min;
            skip_space(r, false);
            if (proa_ebnf_take(r, "..") && !proa_ebnf_number(r, &max))
                return proa_ebnf_fail(r, "a number is expected after ..");
        } else return PROA_OK;
        PROA_TRY(proa_ebnf_repeat(r, out, min, max));
    }
    return proa_ebnf_fail(r, "too many repetitions of one another");
}

/* A line end ends the rule, unless the next line goes on with | */
static bool at_end(proa_ebnf *r)
{
    skip_space(r, false);
    char c = proa_ebnf_peek(r);
    if (c == '\n' || c == '\r') {
        proa_ebnf ahead = *r;
        skip_space(&ahead, true);
        bool goes_on = proa_ebnf_peek(&ahead) == '|' || (r->depth > 0 && ahead.at < ahead.text.len);
        if (!goes_on) return true;
        *r = ahead;
        c = proa_ebnf_peek(r);
    }
    return r->at >= r->text.len || c == '|' || c == ')' || c == ']';
}

static proa_status read_sequence(proa_ebnf *r, const proa_expr **out)
{
    proa_expr_items items = {0};
    while (!at_end(r)) {
        const proa_expr *item = NULL;
        if (proa_ebnf_take(r, "->")) { /* an alias names a node of the tree: nothing for us */
            skip_space(r, false);
            proa_ebnf_name(r);
            continue;
        }
        PROA_TRY(read_repeated(r, &item));
        PROA_TRY(proa_rules_check(r->rules, r->err));
        proa_expr_push(r->rules, &items, item);
    }
    *out = proa_expr_list(r->rules, PROA_EXPR_SEQ, items.ptr, items.count);
    return PROA_OK;
}

static proa_status read_choice(proa_ebnf *r, const proa_expr **out)
{
    proa_expr_items items = {0};
    do {
        const proa_expr *item = NULL;
        skip_space(r, r->depth > 0);
        PROA_TRY(read_sequence(r, &item));
        proa_expr_push(r->rules, &items, item);
    } while (proa_ebnf_take(r, "|"));
    *out = proa_expr_list(r->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

/* ---- directives ---- */

static proa_status import_one(proa_ebnf *r, proa_str name, proa_str as)
{
    const proa_regex_options o = {.mode = PROA_REGEX_TEXT, .whole = true};
    int32_t rule = proa_ebnf_rule(r, as.len ? as : name);
    for (size_t i = 0; i < PROA_COUNT(common); i++)
        if (proa_str_is(name, common[i].name))
            return proa_regex_read(r->rules, proa_str_c(common[i].regex), &o, &r->rules->rule[rule].body, r->err);
    return proa_ebnf_fail(r, "%import of a terminal that common does not have");
}

/* %import common.NAME, %import common.NAME -> OTHER, %import common (A, B) */
static proa_status read_import(proa_ebnf *r)
{
    proa_str as = {"", 0};
    skip_space(r, false);
    if (!proa_ebnf_take(r, "common")) return proa_ebnf_fail(r, "%import is supported from common only");
    if (proa_ebnf_take(r, ".")) {
        proa_str name = proa_ebnf_name(r);
        skip_space(r, false);
        if (proa_ebnf_take(r, "->")) skip_space(r, false), as = proa_ebnf_name(r);
        return import_one(r, name, as);
    }
    skip_space(r, false);
    if (!proa_ebnf_take(r, "(")) return proa_ebnf_fail(r, "a wrong %import");
    do {
        skip_space(r, true);
        PROA_TRY(import_one(r, proa_ebnf_name(r), as));
        skip_space(r, true);
    } while (proa_ebnf_take(r, ","));
    return proa_ebnf_take(r, ")") ? PROA_OK : proa_ebnf_fail(r, "a wrong %import");
}

/* All %ignore lines, before the rules are read: ignored = (a | b)* as a rule. */
static proa_status find_ignored(const proa_ebnf *whole)
{
    proa_ebnf r = *whole;
    proa_expr_items items = {0};
    r.in_terminal = true;
    for (r.at = 0; r.at < r.text.len; r.at++) {
        bool begins = r.at == 0 || r.text.ptr[r.at - 1] == '\n';
        const proa_expr *e = NULL;
        if (!begins || !proa_ebnf_take(&r, "%ignore")) continue;
        PROA_TRY(read_choice(&r, &e));
        proa_expr_push(r.rules, &items, e);
    }
    if (items.count == 0) return PROA_OK;
    const proa_expr *any = proa_expr_list(r.rules, PROA_EXPR_ALT, items.ptr, items.count);
    int32_t rule = proa_ebnf_rule(&r, proa_str_c("%ignore"));
    r.rules->rule[rule].body = proa_expr_repeat(r.rules, any, 0, -1);
    return PROA_OK;
}

static proa_status read_directive(proa_ebnf *r)
{
    const proa_expr *e = NULL;
    if (proa_ebnf_take(r, "%import")) return read_import(r);
    if (!proa_ebnf_take(r, "%ignore")) return proa_ebnf_fail(r, "a directive that is not supported");
    r->in_terminal = true; /* it has been read */
    proa_status status = read_choice(r, &e);
    r->in_terminal = false;
    return status;
}

static proa_status read_definition(proa_ebnf *r)
{
    const proa_expr *body = NULL;
    int32_t priority;
    if (proa_ebnf_peek(r) == '?' || proa_ebnf_peek(r) == '!') r->at++;
    proa_str name = proa_ebnf_name(r);
    if (name.len && proa_ebnf_take(r, ".")) proa_ebnf_number(r, &priority);
    skip_space(r, false);
    if (name.len == 0 || !proa_ebnf_take(r, ":")) return proa_ebnf_fail(r, "a rule is expected: name: ...");
    r->in_terminal = is_terminal_name(name);
    int32_t rule = r->defining = proa_ebnf_rule(r, name);
    if (r->rules->rule[rule].body) return proa_ebnf_fail(r, "a rule that is defined twice");
    PROA_TRY(read_choice(r, &body));
    if (!at_end(r) || proa_ebnf_peek(r) == ')' || proa_ebnf_peek(r) == ']')
        return proa_ebnf_fail(r, "a group that was not opened");
    r->rules->rule[rule].body = body;
    r->in_terminal = false;
    return PROA_OK;
}

proa_status proa_lark_read(proa_ebnf *r)
{
    proa_rules *rules = r->rules;
    int32_t root = proa_rules_add(rules, proa_str_c("the whole text")),
            start = proa_ebnf_rule(r, proa_str_c("start"));
    rules->root = root;
    PROA_TRY(find_ignored(r));
    for (int32_t i = 0; i < rules->count; i++)
        if (strcmp(rules->rule[i].name, "%ignore") == 0) r->ignored = proa_expr_rule(rules, i);
    for (skip_space(r, true); r->at < r->text.len; skip_space(r, true)) {
        if (proa_ebnf_peek(r) == '%') PROA_TRY(read_directive(r));
        else PROA_TRY(read_definition(r));
    }
    const proa_expr *text = proa_expr_rule(rules, start);
    rules->rule[root].body = r->ignored ? proa_expr_seq2(rules, r->ignored, text) : text;
    return PROA_OK;
}
