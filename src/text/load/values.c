/* SPDX-License-Identifier: Apache-2.0
 * values.c - values of tokenizer.json that several sections have: texts, characters, patterns, behaviours;
 * lines of older files. */
#include "base/limits.h"
#include "text/load/load.h"
#include "text/unicode.h"
#include <string.h>

/* ---- NUL in keys ---- */

/* json-c ends a key at a NUL, and vocabularies do have the piece "\\u0000". So each \\u0000 is written as the
 * noncharacter U+10FFFF before parsing, and read back by proa_load_text. */
#define NUL_MARK     "\xF4\x8F\xBF\xBF"
#define NUL_MARK_LEN 4

bool proa_json_mark_nul(proa_buf *out, proa_str json)
{
    static const char escape[] = "\\u0000";
    if (!memmem(json.ptr, json.len, escape, 6)) return false;
    for (size_t i = 0; i < json.len;) {
        size_t n = json.ptr[i] == '\\' && i + 1 < json.len ? 2 : 1;
        bool nul = n == 2 && json.len - i >= 6 && memcmp(json.ptr + i, escape, 6) == 0;
        if (nul) proa_buf_append(out, NUL_MARK, NUL_MARK_LEN);
        else proa_buf_append(out, json.ptr + i, n);
        i += nul ? 6 : n;
    }
    return true;
}

proa_str proa_load_text(proa_loader *ld, proa_str s)
{
    if (!ld->nul_marked || !s.len || !memmem(s.ptr, s.len, NUL_MARK, NUL_MARK_LEN)) return s;
    char *copy = proa_arena_strdup(&ld->tok->arena, s);
    size_t n = 0;
    for (size_t i = 0; i < s.len; n++) {
        bool mark = s.len - i >= NUL_MARK_LEN && memcmp(s.ptr + i, NUL_MARK, NUL_MARK_LEN) == 0;
        copy[n] = mark ? '\0' : s.ptr[i];
        i += mark ? NUL_MARK_LEN : 1;
    }
    return (proa_str){copy, n};
}

/* ---- helpers of load.h ---- */

proa_status proa_load_member(proa_loader *ld, const proa_json *j, const char *key, proa_str *out, proa_err *err)
{
    proa_str s = {NULL, 0};
    PROA_TRY(proa_json_get_str(&s, j, key, err));
    if (!s.ptr) return PROA_FAIL(err, INVALID, "'%s' is missing", key);
    s = proa_load_text(ld, s);
    *out = (proa_str){proa_arena_strdup(&ld->tok->arena, s), s.len};
    return PROA_OK;
}

proa_status proa_load_char(const proa_json *j, const char *key, int32_t *out, proa_err *err)
{
    proa_str s = {NULL, 0};
    PROA_TRY(proa_json_get_str(&s, j, key, err));
    if (!s.ptr) return PROA_OK;
    if (s.len == 0 || (size_t)proa_char_next(s, out) != s.len)
        return PROA_FAIL(err, INVALID, "'%s' has %zu bytes, one character is needed", key, s.len);
    return PROA_OK;
}

static void free_regex(void *regex)
{
    proa_regex_free(regex);
}

proa_status proa_load_regex(proa_loader *ld, proa_str pattern, proa_regex **out, proa_err *err)
{
    PROA_TRY(proa_regex_new(out, pattern, err));
    proa_arena_defer(&ld->tok->arena, free_regex, *out);
    return PROA_OK;
}

proa_status proa_load_pattern(proa_loader *ld, const proa_json *j, proa_text_step *step, proa_err *err)
{
    const proa_json *p = proa_json_get(j, "pattern");
    if (proa_json_kind(p) == PROA_JSON_STRING) return proa_load_member(ld, j, "pattern", &step->pattern, err);
    if (proa_json_get(p, "String")) return proa_load_member(ld, p, "String", &step->pattern, err);
    if (!proa_json_get(p, "Regex")) return PROA_FAIL(err, INVALID, "'pattern' has neither String nor Regex");
    PROA_TRY(proa_load_member(ld, p, "Regex", &step->pattern, err));
    return proa_load_regex(ld, step->pattern, &step->regex, err);
}

proa_status proa_load_behavior(const proa_json *j, proa_behavior *out, proa_err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    proa_str s = {NULL, 0};
    PROA_TRY(proa_json_get_str(&s, j, "behavior", err));
    if (!s.ptr) return PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_is(s, names[i])) {
            *out = (proa_behavior)i;
            return PROA_OK;
        }
    return PROA_FAIL(err, INVALID,
                     "'behavior' is '%.*s', allowed are Removed, Isolated, MergedWithPrevious, "
                     "MergedWithNext, Contiguous",
                     s.len > 40 ? 40 : (int)s.len, s.ptr);
}

proa_status proa_load_prepend(const proa_json *j, proa_prepend *out, proa_err *err)
{
    proa_str s = {NULL, 0};
    bool prefix = true;
    *out = PROA_PREPEND_ALWAYS;
    PROA_TRY(proa_json_get_str(&s, j, "prepend_scheme", err));
    PROA_TRY(proa_json_get_bool(&prefix, j, "add_prefix_space", err));
    if (s.ptr && proa_str_is(s, "never")) *out = PROA_PREPEND_NEVER;
    else if (s.ptr && proa_str_is(s, "first")) *out = PROA_PREPEND_FIRST;
    else if (s.ptr && !proa_str_is(s, "always"))
        return PROA_FAIL(err, INVALID, "'prepend_scheme' is '%.*s', allowed are always, first, never",
                         s.len > 40 ? 40 : (int)s.len, s.ptr);
    if (!prefix && s.ptr && *out != PROA_PREPEND_NEVER)
        return PROA_FAIL(err, INVALID, "'add_prefix_space' is false, but 'prepend_scheme' is not never");
    if (!prefix) *out = PROA_PREPEND_NEVER;
    return PROA_OK;
}

proa_status proa_text_step_spans(const proa_text_step *step, proa_str text, proa_text_spans *out, proa_err *err)
{
    if (step->regex) return proa_regex_spans(step->regex, text, out, err);
    proa_literal_spans(step->pattern, text, out);
    return PROA_OK;
}

bool proa_next_line(proa_str *rest, proa_str *line)
{
    if (!proa_str_next_line(rest, line)) return false;
    if (line->len && line->ptr[line->len - 1] == '\r') line->len--;
    return true;
}
