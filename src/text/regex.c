/* SPDX-License-Identifier: Apache-2.0
 * regex.c - translates Oniguruma patterns to PCRE2 and finds their matches. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "text/unicode.h"
#include <pcre2.h>
#include <string.h>

struct proa_regex {
    pcre2_code *code;
    pcre2_match_context *context;
};

/* ---- from Oniguruma's syntax to PCRE2's ---- */

#define WORD_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside of classes Oniguruma uses a separate table for Latin-1, in which superscripts and fractions are
 * word characters. */
#define WORD       "[" WORD_CLASS "\\xB2\\xB3\\xB9\\xBC-\\xBE]"
#define NOT_WORD   "[^" WORD_CLASS "\\xB2\\xB3\\xB9\\xBC-\\xBE]"
#define HEX_CLASS  "0-9a-fA-F"

typedef struct translation {
    proa_str in;
    size_t at;
    proa_buf out;
    int depth;     /* of nested classes */
    bool not_word; /* the current class contains \W */
    proa_err *err;
} translation;

/* General categories have long names in Oniguruma only. */
static const char *const category_names[][2] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"casedletter", "L&"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
    {"alpha", "Alphabetic"},
    {"digit", "Nd"},
    {"space", "White_Space"},
    {"upper", "Uppercase"},
    {"lower", "Lowercase"},
    {"punct", "P"},
    {"cntrl", "Cc"},
};

static bool pattern_compiles(const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                                  &at, NULL);
    pcre2_code_free(c);
    return c != NULL;
}

/* \p{Name}: a script means Script here, while PCRE2 takes Script_Extensions by default. */
static void property_name(translation *t, proa_str name)
{
    char key[64], probe[96];
    size_t n = 0;
    for (size_t i = 0; i < name.len && n + 1 < sizeof key; i++) {
        char c = name.ptr[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        key[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    key[n] = 0;
    for (size_t i = 0; i < PROA_COUNT(category_names); i++)
        if (strcmp(key, category_names[i][0]) == 0) {
            proa_buf_str(&t->out, proa_str_c(category_names[i][1]));
            return;
        }
    snprintf(probe, sizeof probe, "\\p{sc:%.*s}", (int)(name.len < 64 ? name.len : 64), name.ptr);
    if (name.len > 2 && name.len < 64 && pattern_compiles(probe)) proa_buf_str(&t->out, proa_str_c("sc:"));
    proa_buf_str(&t->out, name);
}

static bool translate_property(translation *t, bool negated)
{
    if (t->at >= t->in.len || t->in.ptr[t->at] != '{') return false; /* \pL: the same in both */
    const char *open = t->in.ptr + t->at + 1, *close = memchr(open, '}', t->in.len - t->at - 1);
    if (!close) return false;
    proa_str name = {open, (size_t)(close - open)};
    t->at += name.len + 2;
    if (name.len && name.ptr[0] == '^') {
        negated = !negated;
        name.ptr++, name.len--;
    }
    proa_buf_str(&t->out, proa_str_c(negated ? "\\P{" : "\\p{"));
    property_name(t, name);
    proa_buf_char(&t->out, '}');
    return true;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool unicode_escape(translation *t)
{
    if (t->at + 4 > t->in.len) return false;
    for (size_t i = 0; i < 4; i++)
        if (!is_hex(t->in.ptr[t->at + i])) return false;
    proa_buf_printf(&t->out, "\\x{%.4s}", t->in.ptr + t->at);
    t->at += 4;
    return true;
}

/* Escapes that mean something else in PCRE2: outside of a class, and within one ("": as PCRE2 has it). */
static const struct {
    char name;
    const char *outside, *within;
} escapes[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'w', WORD, WORD_CLASS},
    {'W', NOT_WORD, ""},
    {'b', "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))", ""},
    {'B', "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))", ""},
    {'h', "[" HEX_CLASS "]", HEX_CLASS},
    {'H', "[^" HEX_CLASS "]", "\\x00-/:-@G-`g-\\x{10FFFF}"},
};

/* Translates one escape; `at` is the character after the backslash. */
static void translate_escape(translation *t, bool in_class)
{
    char c = t->at < t->in.len ? t->in.ptr[t->at++] : '\0';
    for (size_t i = 0; i < PROA_COUNT(escapes); i++) {
        const char *s = in_class ? escapes[i].within : escapes[i].outside;
        if (escapes[i].name != c || !*s) continue;
        proa_buf_str(&t->out, proa_str_c(s));
        return;
    }
    if (in_class && c == 'W') { /* not expressible within a class in PCRE2: see outer_class */
        t->not_word = true;
        return;
    }
    if ((c == 'p' || c == 'P') && translate_property(t, c == 'P')) return;
    if (c == 'u' && unicode_escape(t)) return;
    proa_buf_char(&t->out, '\\');
    if (c) proa_buf_char(&t->out, c);
}

/* (?m) is "dot matches newline" in Oniguruma: PCRE2's s. */
static void group_options(translation *t)
{
    while (t->at < t->in.len) {
        char c = t->in.ptr[t->at];
        if (c != 'i' && c != 'm' && c != 'x' && c != 's' && c != '-') return;
        proa_buf_char(&t->out, c == 'm' ? 's' : c);
        t->at++;
    }
}

/* [:name:] within a class: Unicode's meaning, where PCRE2's is Perl's. `at` stands on the first colon. */
static void posix_class(translation *t)
{
    static const char *const names[][2] = {
        {":alpha:]", "\\p{Alphabetic}"}, {":alnum:]", "\\p{Alphabetic}\\p{Nd}"},
        {":punct:]", "\\p{P}\\p{S}"},    {":space:]", "\\p{White_Space}"},
        {":word:]", WORD_CLASS},         {":digit:]", "\\p{Nd}"},
        {":upper:]", "\\p{Uppercase}"},  {":lower:]", "\\p{Lowercase}"},
    };
    proa_str rest = {t->in.ptr + t->at, t->in.len - t->at};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_starts(rest, proa_str_c(names[i][0]))) {
            proa_buf_str(&t->out, proa_str_c(names[i][1]));
            t->at += strlen(names[i][0]);
            return;
        }
    const char *end = memmem(rest.ptr, rest.len, ":]", 2);
    size_t n = end ? (size_t)(end - rest.ptr) + 2 : 0;
    proa_buf_char(&t->out, '[');
    proa_buf_append(&t->out, rest.ptr, n);
    t->at += n;
}

static proa_status class_text(translation *t, bool *negated);

/* A class inside a class. Only what PCRE2 10.42 can say: a plain one is spliced in; a negated one must be the
 * whole operand, and then turns it around. */
static proa_status nested_class(translation *t, bool *operand_negated)
{
    bool negated = false;
    if (++t->depth > 8) return PROA_FAIL(t->err, LIMIT, "regular expression nests classes deeper than 8");
    PROA_TRY(class_text(t, &negated));
    t->depth--;
    if (!negated) return PROA_OK;
    bool ends = t->at < t->in.len && (t->in.ptr[t->at] == ']' || t->in.ptr[t->at] == '&');
    if (*operand_negated || !ends)
        return PROA_FAIL(t->err, UNSUPPORTED, "regular expression has a negated class within a class");
    *operand_negated = true;
    return PROA_OK;
}

/* Items of one operand, up to "]" or "&&". */
static proa_status class_items(translation *t, bool *negated)
{
    size_t start = t->out.len;
    bool first = true;
    for (; t->at < t->in.len; first = false) {
        char c = t->in.ptr[t->at++];
        bool more = t->at < t->in.len;
        if (c == ']' && !first) return PROA_OK;
        if (c == '&' && more && t->in.ptr[t->at] == '&') return PROA_OK;
        if (c == '\\') {
            translate_escape(t, true);
        } else if (c == '[' && more && t->in.ptr[t->at] == ':') {
            posix_class(t);
        } else if (c == '[') {
            bool alone = t->out.len == start;
            bool flip = false;
            PROA_TRY(nested_class(t, &flip));
            if (flip && !alone)
                return PROA_FAIL(t->err, UNSUPPORTED, "regular expression has a negated class within a class");
            *negated ^= flip;
        } else {
            proa_buf_char(&t->out, c);
        }
    }
    return PROA_FAIL(t->err, INVALID, "regular expression: missing ']'");
}

/* A class after its "[": writes its items without brackets and says whether it is negated; with && it writes
 * the whole as a group of look-aheads, which only works outside of other classes. */
static proa_status class_text(translation *t, bool *negated)
{
    if (t->at < t->in.len && t->in.ptr[t->at] == '^') {
        *negated = true;
        t->at++;
    }
    PROA_TRY(class_items(t, negated));
    if (t->in.ptr[t->at - 1] != ']')
        return PROA_FAIL(t->err, UNSUPPORTED, "regular expression has && within a nested class");
    return PROA_OK;
}

/* One operand of a class: what is written to out from `start` on, as a group that matches one character. */
static void put_operand(translation *t, size_t start, bool negated, proa_buf *out)
{
    proa_str items = {t->out.ptr + start, t->out.len - start};
    const char *caret = negated ? "^" : "";
    if (t->not_word && items.len)
        proa_buf_printf(out, negated ? "(?:(?![%.*s])[" : "(?:[%.*s]|[^", (int)items.len, items.ptr);
    else if (t->not_word) proa_buf_str(out, proa_str_c(negated ? "(?:[" : "(?:[^"));
    if (t->not_word) proa_buf_str(out, proa_str_c(WORD_CLASS "])"));
    else proa_buf_printf(out, "[%s%.*s]", caret, (int)items.len, items.ptr);
    t->not_word = false;
    t->out.len = start;
}

/* [A&&B] at the outermost level becomes (?:(?=[A])[B]), [^A&&B] becomes (?:(?!(?=[A])[B])(?s:.)). */
static proa_status outer_class(translation *t)
{
    bool not_all = t->at < t->in.len && t->in.ptr[t->at] == '^';
    if (not_all) t->at++;
    size_t start = t->out.len;
    proa_buf done;
    proa_buf_init(&done, 4 * (size_t)PROA_REGEX_BYTES_MAX);
    proa_status status = PROA_OK;
    bool more = true, any = false;
    while (more) {
        bool negated = false;
        PROA_TRY_OUT(class_items(t, &negated));
        more = t->in.ptr[t->at - 1] == '&';
        if (more) t->at++;
        if (more) proa_buf_str(&done, proa_str_c("(?="));
        put_operand(t, start, negated != (not_all && !more && !any), &done);
        if (more) proa_buf_char(&done, ')');
        any |= more;
    }
    if (any) proa_buf_str(&t->out, proa_str_c(not_all ? "(?:(?!" : "(?:"));
    proa_buf_str(&t->out, proa_buf_view(&done));
    if (any) proa_buf_str(&t->out, proa_str_c(not_all ? ")(?s:.))" : ")"));
out:
    proa_buf_release(&done);
    return status;
}

static proa_status translate_pattern(translation *t)
{
    while (t->at < t->in.len) {
        char c = t->in.ptr[t->at++];
        if (c == '\\') {
            translate_escape(t, false);
        } else if (c == '[') {
            PROA_TRY(outer_class(t));
        } else {
            proa_buf_char(&t->out, c);
            if (c == '(' && t->at < t->in.len && t->in.ptr[t->at] == '?') {
                proa_buf_char(&t->out, '?');
                t->at++;
                group_options(t);
            }
        }
    }
    if (t->out.full) return PROA_FAIL(t->err, LIMIT, "regular expression is too long after translation");
    return PROA_OK;
}

/* ---- compiling and matching ---- */

static proa_status compile_pattern(proa_regex *re, proa_str text, proa_err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    re->code = pcre2_compile((PCRE2_SPTR)text.ptr, text.len, options, &code, &at, NULL);
    if (!re->code) {
        char message[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        return PROA_FAIL(err, INVALID, "regular expression: %s at byte %zu of '%.*s'", message, at,
                         text.len > 80 ? 80 : (int)text.len, text.ptr);
    }
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs */
    re->context = pcre2_match_context_create(NULL);
    PROA_ASSERT(re->context);
    pcre2_set_match_limit(re->context, PROA_REGEX_STEPS_MAX);
    pcre2_set_heap_limit(re->context, 64 << 10); /* KiB */
    return PROA_OK;
}

proa_status proa_regex_new(proa_regex **out, proa_str pattern, proa_err *err)
{
    if (pattern.len > PROA_REGEX_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "regular expression has %zu bytes, at most %d are allowed", pattern.len,
                         PROA_REGEX_BYTES_MAX);
    translation t = {.in = pattern, .err = err};
    proa_buf_init(&t.out, 4 * (size_t)PROA_REGEX_BYTES_MAX);
    proa_buf_reserve(&t.out, pattern.len + 1);
    proa_regex *re = proa_calloc(1, sizeof *re);
    proa_status status = translate_pattern(&t);
    if (status == PROA_OK) status = compile_pattern(re, proa_buf_view(&t.out), err);
    proa_buf_release(&t.out);
    if (status == PROA_OK) *out = re;
    else proa_regex_free(re);
    return status;
}

void proa_regex_free(proa_regex *re)
{
    if (!re) return;
    pcre2_code_free(re->code);
    pcre2_match_context_free(re->context);
    free(re);
}

void proa_text_spans_push(proa_text_spans *s, size_t from, size_t to, bool match)
{
    if (s->len == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->ptr = proa_realloc(s->ptr, (size_t)s->cap * sizeof *s->ptr);
    }
    s->ptr[s->len++] = (proa_text_span){(int32_t)from, (int32_t)to, match};
}

void proa_text_spans_release(proa_text_spans *s)
{
    free(s->ptr);
    *s = (proa_text_spans){0};
}

static int match_at(const proa_regex *re, proa_str text, size_t at, pcre2_match_data *data)
{
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(re->code, (PCRE2_SPTR)text.ptr, text.len, at, options, data, re->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's stack is on the heap, and limited */
        rc = pcre2_match(re->code, (PCRE2_SPTR)text.ptr, text.len, at, options | PCRE2_NO_JIT, data, re->context);
    return rc;
}

/* As find_iter of the onig crate: an empty match directly after the last match does not count. */
static proa_status find_all(const proa_regex *re, proa_str text, pcre2_match_data *data, proa_text_spans *out,
                            proa_err *err)
{
    size_t at = 0, last = SIZE_MAX, done = 0;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(data);
    while (at <= text.len) {
        int rc = match_at(re, text, at, data);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0 || found[0] < done || found[1] < found[0])
            return PROA_FAIL(err, LIMIT,
                             "regular expression needs too much time or memory for this text (code %d)", rc);
        if (found[0] == found[1] && found[1] == last) {
            at++;
            while (at < text.len && ((unsigned char)text.ptr[at] & 0xC0) == 0x80) at++;
            continue;
        }
        if (found[0] > done) proa_text_spans_push(out, done, found[0], false);
        proa_text_spans_push(out, found[0], found[1], true);
        at = last = done = found[1];
    }
    if (done < text.len) proa_text_spans_push(out, done, text.len, false);
    return PROA_OK;
}

proa_status proa_regex_spans(const proa_regex *re, proa_str text, proa_text_spans *out, proa_err *err)
{
    if (text.len == 0) {
        proa_text_spans_push(out, 0, 0, false);
        return PROA_OK;
    }
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    PROA_ASSERT(data);
    proa_status status = find_all(re, text, data, out, err);
    pcre2_match_data_free(data);
    return status;
}

void proa_literal_spans(proa_str needle, proa_str text, proa_text_spans *out)
{
    size_t done = 0;
    while (needle.len && done < text.len) {
        const char *hit = memmem(text.ptr + done, text.len - done, needle.ptr, needle.len);
        if (!hit) break;
        size_t from = (size_t)(hit - text.ptr);
        if (from > done) proa_text_spans_push(out, done, from, false);
        proa_text_spans_push(out, from, from + needle.len, true);
        done = from + needle.len;
    }
    if (done < text.len || text.len == 0) proa_text_spans_push(out, done, text.len, false);
}
