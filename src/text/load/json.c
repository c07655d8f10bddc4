/* SPDX-License-Identifier: Apache-2.0
 * json.c - reads tokenizer.json, section by section in the order of their dependencies. */
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

/* ---- lists of steps ---- */

typedef struct step_list {
    proa_loader *ld;
    const proa_text_step_kind *kinds;
    const char *list_key; /* where a Sequence keeps its members */
    proa_text_step steps[PROA_PIPELINE_STEPS_MAX];
    int64_t len;
    proa_err *err;
} step_list;

static proa_status add_step(step_list *l, const proa_json *j, proa_str type)
{
    const proa_text_step_kind *kind = l->kinds;
    while (kind->name && !proa_str_is(type, kind->name)) kind++;
    if (!kind->name)
        return PROA_FAIL(l->err, UNSUPPORTED, "type '%.*s' is not known here",
                         type.len > 60 ? 60 : (int)type.len, type.ptr);
    if (++l->ld->steps > PROA_PIPELINE_STEPS_MAX)
        return PROA_FAIL(l->err, LIMIT, "more than %d steps", PROA_PIPELINE_STEPS_MAX);
    proa_text_step *step = &l->steps[l->len++];
    *step = (proa_text_step){.kind = kind};
    proa_status status = kind->parse ? kind->parse(l->ld, j, step, l->err) : PROA_OK;
    if (status != PROA_OK) proa_err_prefix(l->err, "%s", kind->name);
    return status;
}

static proa_status add_steps(step_list *l, const proa_json *j, int depth)
{
    proa_str type = {"", 0};
    if (proa_json_kind(j) != PROA_JSON_OBJECT)
        return PROA_FAIL(l->err, INVALID, "a step is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(j)));
    PROA_TRY(proa_json_get_str(&type, j, "type", l->err));
    if (!proa_str_is(type, "Sequence")) return add_step(l, j, type);
    if (depth > PROA_PIPELINE_DEPTH_MAX)
        return PROA_FAIL(l->err, LIMIT, "Sequence nests deeper than %d", PROA_PIPELINE_DEPTH_MAX);
    const proa_json *members = proa_json_get(j, l->list_key);
    if (proa_json_kind(members) != PROA_JSON_ARRAY)
        return PROA_FAIL(l->err, INVALID, "Sequence has no list '%s'", l->list_key);
    for (int64_t i = 0; i < proa_json_len(members); i++)
        PROA_TRY(add_steps(l, proa_json_at(members, i), depth + 1));
    return PROA_OK;
}

proa_status proa_load_steps(proa_loader *ld, const proa_json *j, const proa_text_step_kind *kinds,
                            const char *list_key, proa_text_steps *out, proa_err *err)
{
    if (proa_json_kind(j) == PROA_JSON_NULL) return PROA_OK;
    step_list *l = proa_arena_alloc(&ld->tok->arena, sizeof *l);
    l->ld = ld, l->kinds = kinds, l->list_key = list_key, l->err = err;
    PROA_TRY(add_steps(l, j, 1));
    out->ptr = l->steps; /* the list stays in the arena: some 40 kB */
    out->len = l->len;
    return PROA_OK;
}

/* ---- the whole ---- */

typedef struct section {
    const char *key, *list_key;
    const proa_text_step_kind *kinds;
} section;

static proa_status load_sections(proa_loader *ld, const proa_json *root, proa_err *err)
{
    const section sections[] = {{"normalizer", "normalizers", proa_normalizers},
                                {"pre_tokenizer", "pretokenizers", proa_pre_tokenizers},
                                {"decoder", "decoders", proa_decoders}};
    proa_text_steps *out[] = {&ld->tok->normalizers, &ld->tok->pre_tokenizers, &ld->tok->decoders};
    for (size_t i = 0; i < PROA_COUNT(sections); i++) {
        const proa_json *j = proa_json_get(root, sections[i].key);
        proa_status status = proa_load_steps(ld, j, sections[i].kinds, sections[i].list_key, out[i], err);
        if (status != PROA_OK) {
            proa_err_prefix(err, "%s", sections[i].key);
            return status;
        }
    }
    return PROA_OK;
}

proa_status proa_load_json(proa_tokenizer *tok, const proa_json *root, bool nul_marked, proa_err *err)
{
    proa_loader ld = {.tok = tok, .nul_marked = nul_marked};
    if (proa_json_kind(root) != PROA_JSON_OBJECT)
        return PROA_FAIL(err, INVALID, "the document is %s, an object is needed",
                         proa_json_kind_name(proa_json_kind(root)));
    PROA_TRY(load_sections(&ld, root, err));
    proa_status status = proa_load_model(&ld, proa_json_get(root, "model"), err);
    if (status != PROA_OK) {
        proa_err_prefix(err, "model");
        return status;
    }
    PROA_TRY(proa_load_added(&ld, proa_json_get(root, "added_tokens"), err));
    status = proa_load_post(&ld, proa_json_get(root, "post_processor"), err);
    if (status != PROA_OK) proa_err_prefix(err, "post_processor");
    return status;
}
