/* SPDX-License-Identifier: Apache-2.0
 * regex.c - regular expressions as a grammar. The syntax is the part of ECMA-262's and Python's that is regular. */
#include "grammar/regex.h"

#include "base/limits.h"
#include <string.h>

typedef struct reader {
    proa_rules *rules;
    proa_str text;
    size_t at;
    proa_regex_mode mode;
    bool ignore_case, dot_all;
    int depth;
    proa_err *err;
} reader;

enum { RANGES_MAX = 512 };

/* A set of code points under construction. */
typedef struct set {
    proa_range ranges[RANGES_MAX];
    int32_t count;
} set;

static proa_status read_choice(reader *r, const proa_expr **out);

static proa_status refuse_syntax(const reader *r, const char *what)
{
    return PROA_FAIL(r->err, INVALID, "regular expression: %s at byte %zu", what, r->at);
}

static bool has_more(const reader *r)
{
    return r->at < r->text.len;
}

static char peek_char(const reader *r)
{
    return has_more(r) ? r->text.ptr[r->at] : '\0';
}

static bool take_char(reader *r, char c)
{
    if (!has_more(r) || r->text.ptr[r->at] != c) return false;
    r->at++;
    return true;
}

static bool take_text(reader *r, const char *text)
{
    size_t n = strlen(text);
    if (r->text.len - r->at < n || memcmp(r->text.ptr + r->at, text, n) != 0) return false;
    r->at += n;
    return true;
}

/* ---- sets of code points ---- */

static void add_range(set *s, int32_t lo, int32_t hi)
{
    if (s->count < RANGES_MAX) s->ranges[s->count++] = (proa_range){lo, hi};
}

static void add_ranges(set *s, const char *pairs)
{
    for (; pairs[0]; pairs += 2) add_range(s, (uint8_t)pairs[0], (uint8_t)pairs[1]);
}

/* \d, \w and \s are ASCII, as with ECMA-262; so every reader of the text agrees on them. */
static bool add_named(set *s, char name)
{
    set other = {.count = 0};
    switch (name) {
    case 'd': add_ranges(s, "09"); return true;
    case 'w': add_ranges(s, "azAZ09__"); return true;
    case 's': add_ranges(s, "\t\r  "); return true;
    case 'D': add_ranges(&other, "09"); break;
    case 'W': add_ranges(&other, "09AZ__az"); break;
    case 'S': add_ranges(&other, "\t\r  "); break;
    default: return false;
    }
    int32_t from = 0;
    for (int32_t i = 0; i < other.count; from = other.ranges[i++].hi + 1)
        if (other.ranges[i].lo > from) add_range(s, from, other.ranges[i].lo - 1);
    add_range(s, from, 0x10FFFF);
    return true;
}

static void add_other_case(set *s)
{
    int32_t n = s->count;
    for (int32_t i = 0; i < n; i++)
        for (int shift = -32; shift <= 32; shift += 64) {
            int32_t first = shift < 0 ? 'a' : 'A', lo = s->ranges[i].lo, hi = s->ranges[i].hi;
            if (lo < first) lo = first;
            if (hi > first + 25) hi = first + 25;
            if (lo <= hi) add_range(s, lo + shift, hi + shift);
        }
}

/* The escaped form within a JSON string of what must be escaped: " \ and control characters. */
static const proa_expr *json_escape(proa_rules *rules, int32_t c)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8];
    for (const char *s = shorts; *s; s += 2)
        if (s[0] == c) return snprintf(text, sizeof text, "\\%c", s[1]), proa_expr_text(rules, text);
    snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    return proa_expr_text(rules, text);
}

static const proa_expr *json_class(proa_rules *rules, const proa_expr *e)
{
    proa_expr_items items = {0};
    set plain = {.count = 0};
    static const proa_range free_of_escapes[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    for (int32_t i = 0; i < e->count; i++) {
        for (size_t k = 0; k < PROA_COUNT(free_of_escapes); k++) {
            int32_t lo = e->ranges[i].lo, hi = e->ranges[i].hi;
            if (lo < free_of_escapes[k].lo) lo = free_of_escapes[k].lo;
            if (hi > free_of_escapes[k].hi) hi = free_of_escapes[k].hi;
            if (lo <= hi) add_range(&plain, lo, hi);
        }
        for (int32_t c = e->ranges[i].lo; c <= e->ranges[i].hi && c <= '\\'; c++)
            if (c < 0x20 || c == '"' || c == '\\') proa_expr_push(rules, &items, json_escape(rules, c));
    }
    if (plain.count) proa_expr_push(rules, &items, proa_expr_class(rules, plain.ranges, plain.count, false));
    return proa_expr_list(rules, PROA_EXPR_ALT, items.ptr, items.count);
}

static const proa_expr *class_of(reader *r, set *s, bool negated)
{
    if (r->ignore_case) add_other_case(s);
    const proa_expr *e = proa_expr_class(r->rules, s->ranges, s->count, negated);
    return r->mode == PROA_REGEX_JSON && e->kind == PROA_EXPR_CLASS ? json_class(r->rules, e) : e;
}

const proa_expr *proa_regex_any(proa_rules *rules, proa_regex_mode mode)
{
    const proa_expr *e = proa_expr_class(rules, NULL, 0, true);
    return mode == PROA_REGEX_JSON ? json_class(rules, e) : e;
}

/* ---- escapes ---- */

static proa_status read_hex(reader *r, int digits, int32_t *out)
{
    int32_t value = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        int digit = has_more(r) ? proa_hex_digit(r->text.ptr[r->at]) : -1;
        if (digit < 0) return refuse_syntax(r, "a hexadecimal digit is missing");
        value = 16 * value + digit;
    }
    *out = value;
    return PROA_OK;
}

static proa_status read_braced_hex(reader *r, int32_t *out)
{
    int32_t value = 0;
    for (; has_more(r) && peek_char(r) != '}'; r->at++) {
        int digit = proa_hex_digit(peek_char(r));
        if (digit < 0 || value > 0x10FFFF) return refuse_syntax(r, "a wrong code point");
        value = 16 * value + digit;
    }
    if (!take_char(r, '}') || value > 0x10FFFF) return refuse_syntax(r, "a wrong code point");
    *out = value;
    return PROA_OK;
}

static proa_status read_unicode(reader *r, int32_t *out)
{
    int32_t low = 0;
    if (take_char(r, '{')) return read_braced_hex(r, out);
    PROA_TRY(read_hex(r, 4, out));
    if (*out < 0xD800 || *out > 0xDBFF) return PROA_OK;
    if (!take_text(r, "\\u")) return refuse_syntax(r, "half of a surrogate pair");
    PROA_TRY(read_hex(r, 4, &low));
    if (low < 0xDC00 || low > 0xDFFF) return refuse_syntax(r, "half of a surrogate pair");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return PROA_OK;
}

/* What is wrong with an escaped letter or digit that is no known escape; NULL: nothing. */
static const char *refused_escape(char c)
{
    if ((c >= '1' && c <= '9') || c == 'k') return "a back reference, which is not regular,";
    if (c == 'b' || c == 'B') return "a word boundary, which is not supported,";
    if (c == 'p' || c == 'P') return "a Unicode property, which is not supported,";
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return "an unknown escape";
    return NULL;
}

/* After a backslash: one code point, or a class (*named). */
static proa_status read_escape(reader *r, set *s, int32_t *code, bool *named)
{
    static const char controls[] = "n\nt\tr\rf\fv\v0\0"; /* pairs, and the end */
    char c = peek_char(r);
    *named = false;
    if (!has_more(r)) return refuse_syntax(r, "a backslash at the end");
    r->at++;
    if (add_named(s, c)) return *named = true, PROA_OK;
    if (c == 'x') return read_hex(r, 2, code);
    if (c == 'u') return read_unicode(r, code);
    for (const char *p = controls; *p; p += 2)
        if (*p == c) return *code = (uint8_t)p[1], PROA_OK;
    const char *why = refused_escape(c);
    if (why) return refuse_syntax(r, why);
    *code = (uint8_t)c;
    if ((uint8_t)c < 0x80) return PROA_OK;
    r->at--; /* an escaped character beyond ASCII */
    int len = proa_utf8_decode(r->text.ptr + r->at, r->text.len - r->at, code);
    r->at += (size_t)len;
    return PROA_OK;
}

static int32_t take_code_point(reader *r)
{
    int32_t code = 0;
    int len = proa_utf8_decode(r->text.ptr + r->at, r->text.len - r->at, &code);
    r->at += len ? (size_t)len : 1;
    return code;
}

/* ---- classes ---- */

static proa_status read_member(reader *r, set *s, int32_t *code, bool *named)
{
    *named = false;
    if (take_char(r, '\\')) {
        if (take_char(r, 'b')) return *code = '\b', PROA_OK;
        return read_escape(r, s, code, named);
    }
    if (!has_more(r)) return refuse_syntax(r, "a class without ']'");
    if (peek_char(r) == '[' && r->at + 1 < r->text.len && r->text.ptr[r->at + 1] == ':')
        return refuse_syntax(r, "a POSIX class, which is not supported,");
    *code = take_code_point(r);
    return PROA_OK;
}

static proa_status read_class(reader *r, const proa_expr **out)
{
    set s = {.count = 0};
    bool negated = take_char(r, '^'), named, first = true;
    for (; first || !take_char(r, ']'); first = false) {
        int32_t lo = 0, hi = 0;
        if (s.count >= RANGES_MAX / 4) return refuse_syntax(r, "a class with too many ranges");
        if (first && take_char(r, ']')) break; /* ECMA-262: the empty class */
        PROA_TRY(read_member(r, &s, &lo, &named));
        if (named) continue;
        hi = lo;
        bool dash = peek_char(r) == '-' && r->at + 1 < r->text.len && r->text.ptr[r->at + 1] != ']';
        if (dash) {
            r->at++;
            PROA_TRY(read_member(r, &s, &hi, &named));
            if (named || hi < lo) return refuse_syntax(r, "a range that is out of order");
        }
        add_range(&s, lo, hi);
    }
    *out = class_of(r, &s, negated);
    return PROA_OK;
}

/* ---- atoms and repetitions ---- */

static const proa_expr *one_code_point(reader *r, int32_t code)
{
    set s = {.ranges = {{code, code}}, .count = 1};
    return class_of(r, &s, false);
}

static const proa_expr *any_but_newline(reader *r)
{
    set s = {.ranges = {{'\n', '\n'}, {'\r', '\r'}}, .count = r->dot_all ? 0 : 2};
    bool ignore_case = r->ignore_case;
    r->ignore_case = false;
    const proa_expr *e = class_of(r, &s, true);
    r->ignore_case = ignore_case;
    return e;
}

static proa_status read_group(reader *r, const proa_expr **out)
{
    if (take_char(r, '?') && !take_char(r, ':')) {
        bool named = take_text(r, "P<") || (peek_char(r) == '<' && r->at + 1 < r->text.len &&
                                            r->text.ptr[r->at + 1] != '=' && r->text.ptr[r->at + 1] != '!');
        if (!named) return refuse_syntax(r, "a look-around or flag group, which is not supported,");
        while (has_more(r) && !take_char(r, '>')) r->at++;
    }
    PROA_TRY(read_choice(r, out));
    if (!take_char(r, ')')) return refuse_syntax(r, "a group without ')'");
    return PROA_OK;
}

static proa_status read_atom(reader *r, const proa_expr **out)
{
    set s = {.count = 0};
    int32_t code = 0;
    bool named = false;
    if (take_char(r, '(')) return read_group(r, out);
    if (take_char(r, '[')) return read_class(r, out);
    if (take_char(r, '.')) return *out = any_but_newline(r), PROA_OK;
    if (peek_char(r) == '^' || peek_char(r) == '$')
        return refuse_syntax(r, "an anchor within the expression");
    if (strchr("*+?", peek_char(r))) return refuse_syntax(r, "a repetition of nothing");
    if (take_char(r, '\\')) PROA_TRY(read_escape(r, &s, &code, &named));
    else code = take_code_point(r);
    *out = named ? class_of(r, &s, false) : one_code_point(r, code);
    return PROA_OK;
}

static bool take_number(reader *r, int32_t *out)
{
    int64_t value = 0;
    size_t from = r->at;
    for (; has_more(r) && peek_char(r) >= '0' && peek_char(r) <= '9'; r->at++)
        if (value < PROA_GRAMMAR_REPEAT_MAX + 1) value = 10 * value + (peek_char(r) - '0');
    *out = (int32_t)(value > PROA_GRAMMAR_REPEAT_MAX ? PROA_GRAMMAR_REPEAT_MAX + 1 : value);
    return r->at > from;
}

/* {n}, {n,} or {n,m}; *found is false if the text is something else. */
static proa_status read_bounds(reader *r, int32_t *min, int32_t *max, bool *found)
{
    size_t from = r->at;
    *found = take_char(r, '{') && take_number(r, min);
    *max = *min;
    if (*found && take_char(r, ',') && !take_number(r, max)) *max = -1;
    if (!*found || !take_char(r, '}')) return *found = false, r->at = from, PROA_OK;
    if (*max >= 0 && *max < *min) return refuse_syntax(r, "a repetition whose maximum is below its minimum");
    if (*min > PROA_GRAMMAR_REPEAT_MAX || *max > PROA_GRAMMAR_REPEAT_MAX)
        return PROA_FAIL(r->err, LIMIT, "regular expression: a repetition of more than %d at byte %zu",
                         PROA_GRAMMAR_REPEAT_MAX, r->at);
    return PROA_OK;
}

static proa_status read_repeated(reader *r, const proa_expr **out)
{
    PROA_TRY(read_atom(r, out));
    for (int times = 0;; times++) {
        int32_t min = 0, max = -1;
        bool found = true;
        if (take_char(r, '*')) max = -1;
        else if (take_char(r, '+')) min = 1;
        else if (take_char(r, '?')) max = 1;
        else PROA_TRY(read_bounds(r, &min, &max, &found));
        if (!found) return PROA_OK;
        if (times > 3) return refuse_syntax(r, "too many repetitions of one another");
        take_char(r, '?'); /* lazy: the same texts match */
        *out = proa_expr_repeat(r->rules, *out, min, max);
    }
}

static proa_status read_sequence(reader *r, const proa_expr **out)
{
    proa_expr_items items = {0};
    while (has_more(r) && peek_char(r) != '|' && peek_char(r) != ')') {
        const proa_expr *item = NULL;
        bool last = peek_char(r) == '$' && r->at + 1 == r->text.len;
        if (last) break;
        PROA_TRY(read_repeated(r, &item));
        PROA_TRY(proa_rules_check(r->rules, r->err));
        proa_expr_push(r->rules, &items, item);
    }
    *out = proa_expr_list(r->rules, PROA_EXPR_SEQ, items.ptr, items.count);
    return PROA_OK;
}

static proa_status read_choice(reader *r, const proa_expr **out)
{
    proa_expr_items items = {0};
    if (++r->depth > PROA_GRAMMAR_DEPTH_MAX)
        return PROA_FAIL(r->err, LIMIT, "regular expression: groups nest deeper than %d", PROA_GRAMMAR_DEPTH_MAX);
    do {
        const proa_expr *item = NULL;
        PROA_TRY(read_sequence(r, &item));
        proa_expr_push(r->rules, &items, item);
    } while (take_char(r, '|'));
    r->depth--;
    *out = proa_expr_list(r->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

/* Alternatives at the top may have anchors of their own: ^a$|^b$. Each is read as an expression. */
static size_t alternative_end(proa_str text, size_t from)
{
    int depth = 0;
    bool in_class = false;
    for (size_t i = from; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '\\') i++;
        else if (in_class) in_class = c != ']';
        else if (c == '[') in_class = true, i += i + 1 < text.len && text.ptr[i + 1] == '^';
        else if (c == '(') depth++;
        else if (c == ')') depth--;
        else if (c == '|' && depth == 0) return i;
    }
    return text.len;
}

static bool ends_escaped(proa_str text)
{
    size_t n = 0;
    while (n < text.len - 1 && text.ptr[text.len - 2 - n] == '\\') n++;
    return n & 1;
}

static proa_status read_alternative(const proa_regex_options *o, proa_rules *rules, proa_str text,
                                    const proa_expr **out, proa_err *err)
{
    bool begins = text.len && text.ptr[0] == '^';
    bool ends = text.len && text.ptr[text.len - 1] == '$' && !ends_escaped(text);
    reader r = {.rules = rules,
                .text = text,
                .at = begins,
                .mode = o->mode,
                .ignore_case = o->ignore_case,
                .dot_all = o->dot_all,
                .err = err};
    PROA_TRY(read_choice(&r, out));
    if (has_more(&r) && !(ends && r.at + 1 == text.len)) return refuse_syntax(&r, "a ')' without a group");
    if (o->whole) return PROA_OK;
    const proa_expr *any = proa_expr_repeat(rules, proa_regex_any(rules, o->mode), 0, -1);
    if (!begins) *out = proa_expr_seq2(rules, any, *out);
    if (!ends) *out = proa_expr_seq2(rules, *out, any);
    return PROA_OK;
}

proa_status proa_regex_read(proa_rules *rules, proa_str text, const proa_regex_options *o,
                            const proa_expr **out, proa_err *err)
{
    proa_expr_items items = {0};
    if (text.len > PROA_GRAMMAR_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "regular expression: %zu bytes, at most %d are taken", text.len,
                         PROA_GRAMMAR_BYTES_MAX);
    if (!proa_utf8_valid(text)) return PROA_FAIL(err, INVALID, "regular expression: not UTF-8");
    for (size_t from = 0; from <= text.len;) {
        const proa_expr *item = NULL;
        size_t end = alternative_end(text, from);
        PROA_TRY(read_alternative(o, rules, (proa_str){text.ptr + from, end - from}, &item, err));
        proa_expr_push(rules, &items, item);
        from = end + 1;
    }
    *out = proa_expr_list(rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}
