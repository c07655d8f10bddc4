/* SPDX-License-Identifier: Apache-2.0
 * schema_all.c - lists of schemas that hold together: what a schema, its $ref and its allOf add to one, what the list
 * says about a keyword; errors with the path to a schema. */
#include "grammar/schema_inner.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

static void print_path(proa_buf *out, const proa_path *path)
{
    if (!path) return;
    print_path(out, path->up);
    if (path->keyword) proa_buf_printf(out, "/%s", path->keyword);
    if (path->name.len) proa_buf_printf(out, "/%.*s", (int)path->name.len, path->name.ptr);
    if (path->index >= 0) proa_buf_printf(out, "/%lld", (long long)path->index);
}

proa_status proa_schema_refuse(const proa_schema *s, const proa_path *path, const char *fmt, ...)
{
    proa_buf where;
    va_list args;
    char text[256];
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    proa_buf_init(&where, 256);
    proa_buf_char(&where, '#');
    print_path(&where, path);
    proa_status status = PROA_FAIL(s->err, UNSUPPORTED, "at %s: %s", where.ptr, text);
    proa_buf_release(&where);
    return status;
}

/* ---- keywords ---- */

static const char *const keywords[] = {
    "type", "enum", "const", "properties", "required", "additionalProperties", "unevaluatedProperties",
    "patternProperties", "minProperties", "maxProperties", "items", "prefixItems", "minItems", "maxItems",
    "uniqueItems", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "pattern", "format",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    /* say nothing about what is valid */
    "title", "description", "default", "example", "examples", "$schema", "$id", "id", "$comment", "deprecated",
    "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator", "externalDocs", "strict"};

static proa_status check_keywords(const proa_schema *s, const proa_json *schema, const proa_path *path)
{
    for (proa_json_iter it = proa_json_begin(schema); proa_json_next(&it);) {
        bool known = it.key.len > 1 && memcmp(it.key.ptr, "x-", 2) == 0;
        for (size_t i = 0; i < PROA_COUNT(keywords) && !known; i++) known = proa_str_is(it.key, keywords[i]);
        if (!known)
            return proa_schema_refuse(s, path, "the keyword '%.*s' is not supported", (int)(it.key.len & 63),
                                      it.key.ptr);
    }
    return PROA_OK;
}

const proa_json *proa_all_first(const proa_all *all, const char *key)
{
    for (int32_t i = 0; i < all->count; i++)
        if (proa_json_get(all->list[i], key)) return proa_json_get(all->list[i], key);
    return NULL;
}

const char *proa_all_any(const proa_all *all, const char *const *names)
{
    for (; *names; names++)
        if (proa_all_first(all, *names)) return *names;
    return NULL;
}

proa_status proa_all_bound(const proa_schema *s, const proa_all *all, const char *key, bool least,
                           int64_t *out, const proa_path *path)
{
    *out = -1;
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *j = proa_json_get(all->list[i], key);
        double value = proa_json_double(j);
        if (!j) continue;
        bool number = proa_json_kind(j) == PROA_JSON_INT || proa_json_kind(j) == PROA_JSON_DOUBLE;
        if (!number || !(value >= 0 && value <= PROA_GRAMMAR_REPEAT_MAX) || value != (double)(int64_t)value)
            return proa_schema_refuse(s, path, "'%s' must be an integer from 0 to %d", key,
                                      PROA_GRAMMAR_REPEAT_MAX);
        int64_t v = (int64_t)value;
        if (*out < 0 || (least ? v < *out : v > *out)) *out = v;
    }
    return PROA_OK;
}

/* ---- references ---- */

/* One step of a JSON pointer, with ~0, ~1 and %XX decoded in place. */
static proa_str pointer_step(proa_arena *arena, proa_str *rest)
{
    size_t n = 0, to = 0;
    while (n < rest->len && rest->ptr[n] != '/') n++;
    char *text = proa_arena_strdup(arena, (proa_str){rest->ptr, n});
    *rest = (proa_str){rest->ptr + n + (n < rest->len), rest->len - n - (n < rest->len)};
    for (size_t i = 0; i < n; i++, to++) {
        text[to] = text[i];
        if (text[i] == '~' && i + 1 < n) text[to] = text[++i] == '1' ? '/' : '~';
        else if (text[i] == '%' && i + 2 < n && proa_hex_digit(text[i + 1]) >= 0 &&
                 proa_hex_digit(text[i + 2]) >= 0) {
            text[to] = (char)(16 * proa_hex_digit(text[i + 1]) + proa_hex_digit(text[i + 2]));
            i += 2;
        }
    }
    text[to] = '\0';
    return (proa_str){text, to};
}

/* The schema that a reference names; NULL: there is none. */
static const proa_json *find_target(const proa_schema *s, proa_str ref)
{
    const proa_json *at = s->root;
    if (ref.len == 1) return at;
    proa_str rest = {ref.ptr + 2, ref.len - 2};
    while (rest.len && at) {
        proa_str step = pointer_step(&s->rules->arena, &rest);
        if (proa_json_kind(at) == PROA_JSON_ARRAY) {
            char *end;
            long i = strtol(step.ptr, &end, 10);
            at = *end || end == step.ptr || i < 0 || i >= proa_json_len(at) ? NULL : proa_json_at(at, i);
        } else at = proa_json_get(at, step.ptr);
    }
    return at;
}

proa_status proa_schema_resolve(const proa_schema *s, const proa_json *schema, const proa_json **out,
                                const proa_path *path)
{
    proa_str ref = proa_json_str(proa_json_get(schema, "$ref"));
    bool local = proa_str_is(ref, "#") || proa_str_starts(ref, proa_str_c("#/"));
    if (!local)
        return proa_schema_refuse(s, path, "'$ref' to '%.80s': only references within the schema are supported",
                                  ref.len ? ref.ptr : "");
    *out = find_target(s, ref);
    if (*out) return PROA_OK;
    return proa_schema_refuse(s, path, "'$ref' to '%.80s', which does not exist", ref.ptr);
}

bool proa_schema_says_only(const proa_json *schema, const char *keyword)
{
    static const char *const notes[] = {"title",    "description", "default",
                                        "examples", "$comment",    "deprecated"};
    if (!proa_json_get(schema, keyword)) return false;
    for (proa_json_iter it = proa_json_begin(schema); proa_json_next(&it);) {
        bool known = proa_str_is(it.key, keyword);
        for (size_t i = 0; i < PROA_COUNT(notes); i++) known = known || proa_str_is(it.key, notes[i]);
        if (!known) return false;
    }
    return true;
}

/* ---- lists of schemas ---- */

static proa_status add_schema(proa_schema *s, proa_all *all, const proa_json *schema, bool *never,
                              const proa_path *path);

static proa_status add_all_of(proa_schema *s, proa_all *all, const proa_json *schema, bool *never,
                              const proa_path *path)
{
    const proa_json *list = proa_json_get(schema, "allOf");
    if (list && proa_json_kind(list) != PROA_JSON_ARRAY)
        return proa_schema_refuse(s, path, "'allOf' is no list");
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        const proa_path inner = {path, "allOf", {"", 0}, i};
        PROA_TRY(add_schema(s, all, proa_json_at(list, i), never, &inner));
    }
    return PROA_OK;
}

static proa_status add_schema(proa_schema *s, proa_all *all, const proa_json *schema, bool *never,
                              const proa_path *path)
{
    const proa_json *target = NULL;
    if (proa_json_kind(schema) == PROA_JSON_BOOL) {
        *never = *never || !proa_json_bool(schema);
        return PROA_OK;
    }
    if (proa_json_kind(schema) != PROA_JSON_OBJECT)
        return proa_schema_refuse(s, path, "a schema must be an object, true or false");
    for (int32_t i = 0; i < all->count; i++)
        if (all->list[i] == schema) return PROA_OK;
    if (all->count == PROA_ALL_MAX)
        return proa_schema_refuse(s, path, "more than %d schemas hold at once", PROA_ALL_MAX);
    PROA_TRY(check_keywords(s, schema, path));
    all->chosen[all->count] = false;
    all->list[all->count++] = schema;
    if (proa_json_get(schema, "$ref")) {
        PROA_TRY(proa_schema_resolve(s, schema, &target, path));
        PROA_TRY(add_schema(s, all, target, never, path));
    }
    return add_all_of(s, all, schema, never, path);
}

/* An allOf of one schema and nothing else is that schema. */
proa_status proa_all_add(proa_schema *s, proa_all *all, const proa_json *schema, bool *never,
                         const proa_path *path)
{
    while (proa_schema_says_only(schema, "allOf") && proa_json_len(proa_json_get(schema, "allOf")) == 1)
        schema = proa_json_at(proa_json_get(schema, "allOf"), 0);
    if (proa_json_kind(schema) == PROA_JSON_OBJECT) all->roots++;
    return add_schema(s, all, schema, never, path);
}
