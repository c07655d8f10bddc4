/* SPDX-License-Identifier: Apache-2.0
 * lex.c - the text of a template as tokens, with trim_blocks and lstrip_blocks on, as transformers sets them.
 * Limits:  PROA_TEMPLATE_BYTES_MAX is the caller's. */
#include "text/jinja/code.h"

#include "text/unicode.h"
#include <errno.h>
#include <string.h>

typedef struct lexer {
    proa_arena *arena;
    proa_str src;
    size_t at;
    int32_t line;
    size_t counted;     /* up to where lines were counted */
    bool line_starting; /* the last tag ended with a line feed, or none came yet */
    proa_jtoken *tokens;
    int64_t count, cap;
    char stack[128]; /* brackets that are open within a tag */
    int depth;
    proa_err *err;
    proa_status status;
} lexer;

/* What Python's \s and str.isspace match: White_Space and the four separators of ASCII. */
static bool is_space(int32_t c)
{
    return (c >= 0x1C && c <= 0x1F) || proa_char_is_space(c);
}

static int32_t line_at(lexer *lx, size_t at)
{
    for (; lx->counted < at; lx->counted++) lx->line += lx->src.ptr[lx->counted] == '\n';
    return lx->line;
}

static void fail_at(lexer *lx, size_t at, const char *what)
{
    if (lx->status == PROA_OK)
        lx->status = PROA_FAIL(lx->err, INVALID, "line %d: %s", (int)line_at(lx, at), what);
}

static void emit_token(lexer *lx, proa_jtype type, size_t at, proa_jval value)
{
    if (lx->count == lx->cap) {
        int64_t cap = lx->cap ? lx->cap * 2 : 64;
        proa_jtoken *more = PROA_ARENA_NEW(lx->arena, proa_jtoken, cap);
        if (lx->count) memcpy(more, lx->tokens, (size_t)lx->count * sizeof *more);
        lx->tokens = more;
        lx->cap = cap;
    }
    lx->tokens[lx->count++] = (proa_jtoken){type, line_at(lx, at), value};
}

static bool has_text(const lexer *lx, size_t at, const char *text)
{
    size_t n = strlen(text);
    return lx->src.len - at >= n && memcmp(lx->src.ptr + at, text, n) == 0;
}

static size_t skip_space(const lexer *lx, size_t at)
{
    int32_t c;
    while (at < lx->src.len) {
        int n = proa_char_next((proa_str){lx->src.ptr + at, lx->src.len - at}, &c);
        if (!is_space(c)) break;
        at += (size_t)n;
    }
    return at;
}

/* The length of s without white space at its end. */
static size_t strip_end(proa_str s)
{
    int32_t c;
    while (s.len > 0) {
        size_t last = proa_char_last(s);
        proa_char_next((proa_str){s.ptr + last, s.len - last}, &c);
        if (!is_space(c)) break;
        s.len = last;
    }
    return s.len;
}

/* The text between `from` and a tag at `to`, cut as the tag's sign says, or as lstrip_blocks does where `lstrip`. */
static void emit_data(lexer *lx, size_t from, size_t to, char sign, bool lstrip)
{
    proa_str text = {lx->src.ptr + from, to - from};
    if (sign == '-') text.len = strip_end(text);
    else if (sign != '+' && lstrip) {
        const char *feed = memrchr(text.ptr, '\n', text.len);
        size_t start = feed ? (size_t)(feed - text.ptr) + 1 : 0;
        size_t kept = strip_end(text);
        if ((start > 0 || lx->line_starting) && kept <= start) text.len = start;
    }
    if (text.len > 0) emit_token(lx, PROA_T_DATA, from, proa_j_view(text));
}

/* If the end of a tag (`close`, "%}") is at `at`: the position after it, its sign and what the sign strips. Else 0. */
static size_t tag_end(const lexer *lx, size_t at, const char *close, bool plus, bool trim)
{
    if (plus && has_text(lx, at, "+") && has_text(lx, at + 1, close)) return at + 3;
    if (has_text(lx, at, "-") && has_text(lx, at + 1, close)) return skip_space(lx, at + 3);
    if (!has_text(lx, at, close)) return 0;
    at += 2;
    return trim && has_text(lx, at, "\n") ? at + 1 : at;
}

static void tag_done(lexer *lx, size_t end)
{
    lx->at = end;
    lx->line_starting = lx->src.ptr[end - 1] == '\n';
}

static char sign_at(const lexer *lx, size_t at)
{
    return at < lx->src.len && (lx->src.ptr[at] == '-' || lx->src.ptr[at] == '+') ? lx->src.ptr[at] : '\0';
}

static void lex_comment(lexer *lx, size_t open)
{
    size_t end = 0;
    for (size_t at = open; at + 1 < lx->src.len; at++) {
        end = tag_end(lx, at, "#}", true, true);
        if (end) break;
    }
    if (end) tag_done(lx, end);
    else fail_at(lx, open, "Missing end of comment tag");
}

/* If the block at `at` (which is after "{%" and a sign) is "raw %}", the position after it; otherwise 0. */
static size_t raw_begin(const lexer *lx, size_t at)
{
    at = skip_space(lx, at);
    if (!has_text(lx, at, "raw")) return 0;
    return tag_end(lx, skip_space(lx, at + 3), "%}", false, false);
}

static size_t raw_end(const lexer *lx, size_t at)
{
    at = skip_space(lx, at + 2 + (sign_at(lx, at + 2) != 0));
    if (!has_text(lx, at, "endraw")) return 0;
    return tag_end(lx, skip_space(lx, at + 6), "%}", true, true);
}

static void lex_raw(lexer *lx, size_t from)
{
    lx->line_starting = lx->src.ptr[from - 1] == '\n';
    for (size_t at = from; at < lx->src.len; at++) {
        size_t end = has_text(lx, at, "{%") ? raw_end(lx, at) : 0;
        if (!end) continue;
        emit_data(lx, from, at, sign_at(lx, at + 2), true);
        tag_done(lx, end);
        return;
    }
    fail_at(lx, from, "Missing end of raw directive");
}

/* ---- inside a tag ---- */

static size_t count_digits(const lexer *lx, size_t at, bool hex)
{
    for (; at < lx->src.len; at++) {
        char c = lx->src.ptr[at];
        bool is = (c >= '0' && c <= '9') || (hex && ((c | 32) >= 'a' && (c | 32) <= 'f'));
        if (!is && !(c == '_' && at + 1 < lx->src.len && lx->src.ptr[at + 1] != '_')) break;
    }
    return at > 0 && lx->src.ptr[at - 1] == '_' ? at - 1 : at;
}

/* The number without its underscores. */
static void copy_number(char out[64], const lexer *lx, size_t from, size_t to)
{
    int n = 0;
    for (; from < to && n < 63; from++)
        if (lx->src.ptr[from] != '_') out[n++] = lx->src.ptr[from];
    out[n] = '\0';
}

static void lex_int(lexer *lx, size_t from, size_t to, int base)
{
    char text[64];
    copy_number(text, lx, from, to);
    errno = 0;
    int64_t value = strtoll(text, NULL, base);
    if (errno || to - from > 60) fail_at(lx, from, "an integer beyond 64 bits");
    if (base == 10 && text[0] == '0' && strspn(text, "0") != strlen(text))
        fail_at(lx, from, "an integer must not begin with 0");
    emit_token(lx, PROA_T_INT, from, proa_j_int(value));
    lx->at = to;
}

static size_t fraction_end(const lexer *lx, size_t at)
{
    size_t end = at < lx->src.len && lx->src.ptr[at] == '.' ? count_digits(lx, at + 1, false) : at;
    return end > at + 1 ? end : at;
}

static size_t exponent_end(const lexer *lx, size_t at)
{
    if (at >= lx->src.len || (lx->src.ptr[at] | 32) != 'e') return at;
    size_t from = at + 1 + (sign_at(lx, at + 1) != 0), end = count_digits(lx, from, false);
    return end > from ? end : at;
}

static void lex_number(lexer *lx)
{
    size_t from = lx->at;
    char next = from + 1 < lx->src.len ? (char)(lx->src.ptr[from + 1] | 32) : '\0', text[64];
    bool after_dot = from > 0 && lx->src.ptr[from - 1] == '.';
    int base = next == 'x' ? 16 : next == 'o' ? 8 : next == 'b' ? 2 : 10;
    if (lx->src.ptr[from] == '0' && base != 10 && count_digits(lx, from + 2, base == 16) > from + 2) {
        size_t end = count_digits(lx, from + 2, base == 16);
        lex_int(lx, from + 2, end, base);
        return;
    }
    size_t whole = count_digits(lx, from, false), end = exponent_end(lx, fraction_end(lx, whole));
    if (after_dot || end == whole) {
        lex_int(lx, from, whole, 10);
        return;
    }
    copy_number(text, lx, from, end);
    if (end - from > 60) fail_at(lx, from, "a number of more than 60 characters");
    emit_token(lx, PROA_T_FLOAT, from, proa_j_float(strtod(text, NULL)));
    lx->at = end;
}

static bool is_name(const lexer *lx, size_t at, bool first, int *n)
{
    int32_t c;
    if (at >= lx->src.len) return false;
    *n = proa_char_next((proa_str){lx->src.ptr + at, lx->src.len - at}, &c);
    bool digit = c >= '0' && c <= '9', letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (c < 0x80) return letter || c == '_' || (digit && !first);
    return proa_char_is_word(c);
}

static void lex_name(lexer *lx)
{
    size_t from = lx->at;
    int n;
    while (is_name(lx, lx->at, lx->at == from, &n)) lx->at += (size_t)n;
    emit_token(lx, PROA_T_NAME, from, proa_j_view((proa_str){lx->src.ptr + from, lx->at - from}));
}

/* A code point of `n` digits of the given base after an escape; -1 if they are not there. */
static int32_t escape_number(proa_str s, size_t *at, int n, int base)
{
    char text[12] = "";
    if (s.len - *at < (size_t)n) return -1;
    memcpy(text, s.ptr + *at, (size_t)n);
    char *end;
    long value = strtol(text, &end, base);
    if (end != text + n || text[0] == '-' || text[0] == '+' || text[0] == ' ') return -1;
    *at += (size_t)n;
    return value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ? -1 : (int32_t)value;
}

static int32_t read_octal(proa_str s, size_t *at)
{
    int32_t value = 0;
    for (int i = 0; i < 3 && *at < s.len && s.ptr[*at] >= '0' && s.ptr[*at] <= '7'; i++)
        value = value * 8 + (s.ptr[(*at)++] - '0');
    return value;
}

/* One escape as Python's "unicode-escape" reads it; s.ptr[*at] is the character after the backslash. False: broken. */
static bool unescape_char(proa_str s, size_t *at, proa_buf *out)
{
    static const char letters[] = "\\'\"abfnrtv", bytes[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.ptr[*at];
    const char *found = c ? strchr(letters, c) : NULL;
    int32_t code = 0;
    if (c >= '0' && c <= '7') {
        code = read_octal(s, at);
        return proa_buf_code_point(out, code);
    }
    ++*at;
    if (found) return proa_buf_char(out, bytes[found - letters]);
    if (c == '\n') return true;
    if (c == 'N') return false;
    if (c != 'x' && c != 'u' && c != 'U') return proa_buf_char(out, '\\') && proa_buf_char(out, c);
    code = escape_number(s, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    return code >= 0 && proa_buf_code_point(out, code);
}

static proa_jval unquote_string(lexer *lx, size_t from, proa_str inner)
{
    proa_buf buf;
    if (!memchr(inner.ptr, '\\', inner.len)) return proa_j_view(inner);
    proa_buf_init(&buf, inner.len * 2 + 8);
    for (size_t at = 0; at < inner.len;) {
        if (inner.ptr[at] != '\\') {
            proa_buf_char(&buf, inner.ptr[at++]);
            continue;
        }
        at++;
        if (at >= inner.len || !unescape_char(inner, &at, &buf)) {
            fail_at(lx, from, "a string with an escape that stands for no character");
            break;
        }
    }
    proa_str text = {proa_arena_strdup(lx->arena, proa_buf_view(&buf)), buf.len};
    proa_buf_release(&buf);
    return proa_j_view(text);
}

static void lex_string(lexer *lx)
{
    size_t from = lx->at, at = from + 1;
    char quote = lx->src.ptr[from];
    while (at < lx->src.len && lx->src.ptr[at] != quote) at += lx->src.ptr[at] == '\\' ? 2 : 1;
    if (at >= lx->src.len) {
        fail_at(lx, from, "a string without an end");
        return;
    }
    emit_token(lx, PROA_T_STRING, from,
               unquote_string(lx, from, (proa_str){lx->src.ptr + from + 1, at - from - 1}));
    lx->at = at + 1;
}

static void balance_bracket(lexer *lx, char c)
{
    static const char open[] = "([{", close[] = ")]}";
    char text[80];
    if (strchr(open, c)) {
        if (lx->depth == (int)sizeof lx->stack) fail_at(lx, lx->at, "too many open brackets");
        else lx->stack[lx->depth++] = close[strchr(open, c) - open];
    } else if (strchr(close, c)) {
        snprintf(text, sizeof text, lx->depth ? "unexpected '%c', expected '%c'" : "unexpected '%c'", c,
                 lx->depth ? lx->stack[lx->depth - 1] : ' ');
        if (lx->depth == 0 || lx->stack[--lx->depth] != c) fail_at(lx, lx->at, text);
    }
}

static void lex_operator(lexer *lx)
{
    static const struct {
        const char *text;
        proa_jtype type;
    } operators[] = {
#define PROA_J_ROW(name, text) {text, PROA_T_##name},
        PROA_J_OPERATORS(PROA_J_ROW)
#undef PROA_J_ROW
    };
    for (size_t i = 0; i < PROA_COUNT(operators); i++) {
        if (!has_text(lx, lx->at, operators[i].text)) continue;
        balance_bracket(lx, operators[i].text[0]);
        emit_token(lx, operators[i].type, lx->at, proa_j_view(proa_str_c(operators[i].text)));
        lx->at += strlen(operators[i].text);
        return;
    }
    char text[64];
    int32_t c;
    int n = proa_char_next((proa_str){lx->src.ptr + lx->at, lx->src.len - lx->at}, &c);
    snprintf(text, sizeof text, "unexpected character '%.*s'", n, lx->src.ptr + lx->at);
    fail_at(lx, lx->at, text);
}

static void lex_tag(lexer *lx, bool block)
{
    size_t opened = lx->at, end;
    int n;
    emit_token(lx, block ? PROA_T_BLOCK_BEGIN : PROA_T_VAR_BEGIN, lx->at, proa_j_none());
    lx->depth = 0;
    while (lx->status == PROA_OK) {
        lx->at = skip_space(lx, lx->at);
        if (lx->at >= lx->src.len) {
            fail_at(lx, opened, block ? "a tag '{%' without '%}'" : "a tag '{{' without '}}'");
            return;
        }
        end = lx->depth > 0 ? 0 : tag_end(lx, lx->at, block ? "%}" : "}}", block, block);
        char c = lx->src.ptr[lx->at];
        if (end) {
            emit_token(lx, block ? PROA_T_BLOCK_END : PROA_T_VAR_END, lx->at, proa_j_none());
            tag_done(lx, end);
            return;
        }
        if (c >= '0' && c <= '9') lex_number(lx);
        else if (is_name(lx, lx->at, true, &n)) lex_name(lx);
        else if (c == '\'' || c == '"') lex_string(lx);
        else lex_operator(lx);
    }
}

/* The place of the next tag, or the end. */
static size_t find_tag(const lexer *lx)
{
    for (size_t at = lx->at; at + 1 < lx->src.len; at++) {
        const char *brace = memchr(lx->src.ptr + at, '{', lx->src.len - at - 1);
        if (!brace) break;
        at = (size_t)(brace - lx->src.ptr);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#') return at;
    }
    return lx->src.len;
}

static void lex_next(lexer *lx)
{
    size_t from = lx->at, tag = find_tag(lx);
    if (tag == lx->src.len) {
        emit_data(lx, from, tag, '+', false);
        lx->at = tag;
        return;
    }
    char kind = lx->src.ptr[tag + 1], sign = sign_at(lx, tag + 2);
    emit_data(lx, from, tag, sign, kind != '{');
    lx->at = tag + 2 + (sign != 0);
    size_t raw = kind == '%' ? raw_begin(lx, lx->at) : 0;
    if (kind == '#') lex_comment(lx, lx->at);
    else if (raw) lex_raw(lx, raw);
    else lex_tag(lx, kind == '%');
}

/* Line ends become \n, and one at the very end goes. */
static proa_str normal_lines(proa_arena *arena, proa_str source)
{
    char *copy = proa_arena_alloc(arena, source.len + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        if (source.ptr[i] == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n') continue;
        copy[n++] = source.ptr[i] == '\r' ? '\n' : source.ptr[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    return (proa_str){copy, n};
}

proa_status proa_j_lex(proa_jtoken **out, proa_arena *arena, proa_str source, proa_err *err)
{
    lexer lx = {.arena = arena, .line = 1, .line_starting = true, .err = err};
    *out = NULL;
    if (!proa_utf8_valid(source)) return PROA_FAIL(err, INVALID, "the template is not UTF-8");
    lx.src = normal_lines(arena, source);
    while (lx.at < lx.src.len && lx.status == PROA_OK) lex_next(&lx);
    emit_token(&lx, PROA_T_EOF, lx.src.len, proa_j_none());
    *out = lx.tokens;
    return lx.status;
}
