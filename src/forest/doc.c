/* SPDX-License-Identifier: Apache-2.0
 * doc.c - JSON and UBJSON, pulled value by value: a model's file is read once, and no tree of it is kept.
 * JSON: RFC 8259 with NaN and Infinity, which XGBoost writes; what is skipped is checked for its brackets only.
 * UBJSON: draft 12 (ubjson.org): big-endian; '$' with a type only before numbers. */
#include "forest/readers.h"

#include <string.h>

#include "base/limits.h"

#define FAIL_DOC(d, status, fmt, ...)                                                                        \
    PROA_FAIL((d)->err, status, "byte %lld: " fmt, (long long)((d)->ptr - (d)->start), __VA_ARGS__)

void proa_doc_init(proa_doc *d, proa_str text, bool ubj, proa_err *err)
{
    *d = (proa_doc){.start = text.ptr, .ptr = text.ptr, .end = text.ptr + text.len, .ubj = ubj, .err = err};
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Skips white space (JSON) and no-ops (UBJSON), and returns the first byte of what follows; 0 at the end.
 * */
static char peek_char(proa_doc *d)
{
    while (d->ptr < d->end && (d->ubj ? *d->ptr == 'N' : is_space(*d->ptr))) d->ptr++;
    return d->ptr < d->end ? *d->ptr : '\0';
}

static proa_status fail_expected(const proa_doc *d, const char *expected)
{
    char shown[2] = {0};
    if (d->ptr >= d->end) return FAIL_DOC(d, CORRUPT, "the file ends where %s should be", expected);
    proa_forest_name(shown, sizeof shown, (proa_str){d->ptr, 1});
    return FAIL_DOC(d, CORRUPT, "'%s' where %s should be", shown, expected);
}

/* ---- UBJSON's numbers ---- */

/* Bytes of a number of that type; 0 if it is none. */
static int type_bytes(char type)
{
    switch (type) {
    case 'i':
    case 'U':
    case 'C': return 1;
    case 'I': return 2;
    case 'l':
    case 'd': return 4;
    case 'L':
    case 'D': return 8;
    default: return 0;
    }
}

static double typed_number(char type, const char *p)
{
    uint64_t bits = 0;
    float f;
    double v;
    uint32_t word;
    for (int i = 0; i < type_bytes(type); i++) bits = bits << 8 | (unsigned char)p[i];
    switch (type) {
    case 'i': return (int8_t)bits;
    case 'I': return (int16_t)bits;
    case 'l': return (int32_t)bits;
    case 'L': return (double)(int64_t)bits;
    case 'd':
        word = (uint32_t)bits;
        memcpy(&f, &word, sizeof f);
        return (double)f;
    case 'D': memcpy(&v, &bits, sizeof v); return v;
    default: return (double)bits; /* U and C */
    }
}

static proa_status take_typed(proa_doc *d, char type, double *out)
{
    int bytes = type_bytes(type);
    if (bytes == 0) return fail_expected(d, "a number");
    if (d->end - d->ptr < 1 + bytes)
        return FAIL_DOC(d, CORRUPT, "the file ends within a number of type '%c'", type);
    *out = typed_number(type, d->ptr + 1);
    d->ptr += 1 + bytes;
    return PROA_OK;
}

/* Reads a count of items of at least `each` bytes; refused if they do not fit into the file. */
static proa_status take_count(proa_doc *d, int each, int64_t *out)
{
    double v = 0;
    char type = d->ptr < d->end ? *d->ptr : '\0';
    if (!strchr("iUIlL", type) || type == '\0') return fail_expected(d, "a length");
    PROA_TRY(take_typed(d, type, &v));
    int64_t most = (d->end - d->ptr) / each;
    if (v < 0 || v > (double)most)
        return FAIL_DOC(d, CORRUPT, "a length of %.0f, %lld bytes are left", v, (long long)(d->end - d->ptr));
    *out = (int64_t)v;
    return PROA_OK;
}

static proa_status take_ubj_str(proa_doc *d, proa_str *out)
{
    int64_t len = 0;
    PROA_TRY(take_count(d, 1, &len));
    *out = (proa_str){d->ptr, (size_t)len};
    d->ptr += len;
    return PROA_OK;
}

/* ---- JSON's strings and words ---- */

static proa_status take_json_str(proa_doc *d, proa_str *out)
{
    const char *p = d->ptr + 1;
    for (; p < d->end && *p != '"'; p++)
        if (*p == '\\' && p + 1 < d->end) p++;
    if (p >= d->end) return FAIL_DOC(d, CORRUPT, "%s", "a string without an end");
    *out = (proa_str){d->ptr + 1, (size_t)(p - d->ptr - 1)};
    d->ptr = p + 1;
    return PROA_OK;
}

static bool take_word(proa_doc *d, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(d->end - d->ptr) < len || memcmp(d->ptr, word, len) != 0) return false;
    d->ptr += len;
    return true;
}

/* ---- objects and arrays ---- */

static proa_status enter_scope(proa_doc *d, proa_doc_scope *scope, char open, char close, const char *what)
{
    if (peek_char(d) != open) return fail_expected(d, what);
    if (++d->depth > PROA_JSON_DEPTH_MAX)
        return FAIL_DOC(d, LIMIT, "nested deeper than %d", PROA_JSON_DEPTH_MAX);
    d->ptr++;
    *scope = (proa_doc_scope){.left = -1, .close = close};
    if (!d->ubj) return PROA_OK;
    if (d->ptr < d->end && *d->ptr == '$')
        return FAIL_DOC(d, UNSUPPORTED, "%s of one type where values of many are expected", what);
    if (d->ptr >= d->end || *d->ptr != '#') return PROA_OK;
    d->ptr++;
    return take_count(d, 1, &scope->left);
}

proa_status proa_doc_object(proa_doc *d, proa_doc_scope *scope)
{
    return enter_scope(d, scope, '{', '}', "an object");
}

proa_status proa_doc_array(proa_doc *d, proa_doc_scope *scope)
{
    return enter_scope(d, scope, '[', ']', "an array");
}

/* Whether there is another item. Skips the comma before it, or the closing bracket. */
static proa_status take_separator(proa_doc *d, proa_doc_scope *scope, bool *more)
{
    char c = scope->left >= 0 ? '\0' : peek_char(d);
    bool first = !scope->started;
    scope->started = true;
    *more = scope->left >= 0 ? scope->left > 0 : c != scope->close;
    if (scope->left > 0) scope->left--;
    if (!*more) {
        d->depth--;
        if (scope->left < 0) d->ptr++;
        return PROA_OK;
    }
    if (d->ubj || first) return PROA_OK;
    if (c != ',') return fail_expected(d, "a comma");
    d->ptr++;
    return PROA_OK;
}

proa_status proa_doc_next(proa_doc *d, proa_doc_scope *scope, proa_str *key, bool *more)
{
    PROA_TRY(take_separator(d, scope, more));
    if (!*more || !key) return PROA_OK;
    if (d->ubj) {
        peek_char(d);
        return take_ubj_str(d, key);
    }
    if (peek_char(d) != '"') return fail_expected(d, "a key");
    PROA_TRY(take_json_str(d, key));
    if (peek_char(d) != ':') return fail_expected(d, "a colon");
    d->ptr++;
    return PROA_OK;
}

/* ---- values ---- */

proa_status proa_doc_str(proa_doc *d, proa_str *out)
{
    char c = peek_char(d);
    if (c != (d->ubj ? 'S' : '"')) return fail_expected(d, "a string");
    if (!d->ubj) return take_json_str(d, out);
    d->ptr++;
    return take_ubj_str(d, out);
}

proa_status proa_doc_num(proa_doc *d, bool as_float, double *out)
{
    char c = peek_char(d);
    if (d->ubj && (c == 'T' || c == 'F')) {
        d->ptr++;
        *out = c == 'T';
        return PROA_OK;
    }
    if (d->ubj) return take_typed(d, c, out);
    if (c == 't' || c == 'f') {
        *out = c == 't';
        return take_word(d, "true") || take_word(d, "false") ? PROA_OK : fail_expected(d, "a number");
    }
    return proa_forest_number(&d->ptr, d->end, as_float, out) ? PROA_OK : fail_expected(d, "a number");
}

/* Reads a typed head after "[": "$", a type, "#" and the count. *type is 0 if there is none. */
static proa_status take_typed_head(proa_doc *d, char *type, int64_t *count)
{
    *type = '\0';
    if (!d->ubj || d->end - d->ptr < 4 || d->ptr[0] != '[' || d->ptr[1] != '$') return PROA_OK;
    *type = d->ptr[2];
    if (type_bytes(*type) == 0 || d->ptr[3] != '#') return fail_expected(d, "an array of numbers");
    d->ptr += 4;
    return take_count(d, type_bytes(*type), count);
}

proa_status proa_doc_nums(proa_doc *d, bool as_float, proa_forest_numbers *out)
{
    char type;
    int64_t count = 0;
    double v;
    bool more;
    proa_doc_scope scope;
    out->count = 0;
    peek_char(d);
    PROA_TRY(take_typed_head(d, &type, &count));
    if (type) {
        proa_forest_numbers_reserve(out, count);
        for (int64_t i = 0; i < count; i++, d->ptr += type_bytes(type))
            out->v[i] = typed_number(type, d->ptr);
        out->count = count;
        return PROA_OK;
    }
    PROA_TRY(proa_doc_array(d, &scope));
    for (;;) {
        PROA_TRY(proa_doc_next(d, &scope, NULL, &more));
        if (!more) return PROA_OK;
        PROA_TRY(proa_doc_num(d, as_float, &v));
        proa_forest_numbers_push(out, v);
    }
}

/* ---- skipping what is not read ---- */

/* Skips from a bracket to the matching one. Bit i of `objects`: the bracket at depth i is a brace. */
static proa_status skip_json_brackets(proa_doc *d)
{
    uint64_t objects = 0;
    int depth = 0;
    proa_str text;
    do {
        char c = d->ptr < d->end ? *d->ptr : '\0';
        if (c == '"') {
            PROA_TRY(take_json_str(d, &text));
            continue;
        }
        if (c == '[' || c == '{') {
            if (d->depth + ++depth > PROA_JSON_DEPTH_MAX)
                return FAIL_DOC(d, LIMIT, "nested deeper than %d", PROA_JSON_DEPTH_MAX);
            objects = objects << 1 | (c == '{');
        } else if (c == ']' || c == '}') {
            if ((objects & 1) != (c == '}')) return fail_expected(d, "the other bracket");
            objects >>= 1;
            depth--;
        } else if (d->ptr >= d->end) {
            return fail_expected(d, "a closing bracket");
        }
        d->ptr++;
    } while (depth > 0);
    return PROA_OK;
}

static proa_status skip_json(proa_doc *d)
{
    proa_str text;
    double v;
    char c = peek_char(d);
    if (c == '"') return take_json_str(d, &text);
    if (c == '[' || c == '{') return skip_json_brackets(d);
    if (take_word(d, "null")) return PROA_OK;
    return proa_doc_num(d, false, &v);
}

static proa_status skip_ubj(proa_doc *d);

static proa_status skip_ubj_items(proa_doc *d, bool object)
{
    proa_doc_scope scope;
    proa_str key;
    bool more;
    PROA_TRY(object ? proa_doc_object(d, &scope) : proa_doc_array(d, &scope));
    for (;;) {
        PROA_TRY(proa_doc_next(d, &scope, object ? &key : NULL, &more));
        if (!more) return PROA_OK;
        PROA_TRY(skip_ubj(d));
    }
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as PROA_JSON_DEPTH_MAX */
static proa_status skip_ubj(proa_doc *d)
{
    proa_str text;
    double v;
    char type, c = peek_char(d);
    int64_t count = 0;
    if (c == 'S' || c == 'H') {
        d->ptr++;
        return take_ubj_str(d, &text);
    }
    if (c == 'Z') {
        d->ptr++;
        return PROA_OK;
    }
    if (c != '[' && c != '{') return proa_doc_num(d, false, &v);
    PROA_TRY(take_typed_head(d, &type, &count));
    if (!type) return skip_ubj_items(d, c == '{');
    d->ptr += count * type_bytes(type);
    return PROA_OK;
}

proa_status proa_doc_skip(proa_doc *d)
{
    return d->ubj ? skip_ubj(d) : skip_json(d);
}

proa_status proa_doc_end(proa_doc *d)
{
    peek_char(d);
    return d->ptr == d->end ? PROA_OK : fail_expected(d, "the end");
}
