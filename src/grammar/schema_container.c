/* SPDX-License-Identifier: Apache-2.0
 * schema_container.c - objects and arrays of a schema. The members of an object come in the order of its schema. */
#include "grammar/schema_inner.h"

#include "base/limits.h"
#include "grammar/regex.h"
#include <string.h>

/* ---- objects ---- */

typedef struct member {
    const proa_expr *pair; /* "name": value */
    bool required;
} member;

typedef struct object {
    proa_str *names; /* [count] in order */
    member *members;
    int32_t count;
    const proa_expr *additional; /* "any other name": value; NULL: none */
    int64_t most;                /* members in all; -1: any number */
    bool one;                    /* at least one */
} object;

static bool has_name(const object *o, proa_str name)
{
    for (int32_t i = 0; i < o->count; i++)
        if (proa_str_eq(o->names[i], name)) return true;
    return false;
}

static void collect_names(proa_schema *s, const proa_all *all, object *o)
{
    int64_t most = 0;
    for (int32_t i = 0; i < all->count; i++)
        most += proa_json_len(proa_json_get(all->list[i], "properties")) +
                proa_json_len(proa_json_get(all->list[i], "required"));
    o->names = PROA_ARENA_NEW(&s->rules->arena, proa_str, most);
    o->members = PROA_ARENA_NEW(&s->rules->arena, member, most);
    for (int32_t i = 0; i < all->count; i++)
        for (proa_json_iter it = proa_json_begin(proa_json_get(all->list[i], "properties")); proa_json_next(&it);)
            if (!has_name(o, it.key)) o->names[o->count++] = it.key;
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *list = proa_json_get(all->list[i], "required");
        for (int64_t k = 0; k < proa_json_len(list); k++) {
            proa_str name = proa_json_str(proa_json_at(list, k));
            if (!has_name(o, name)) o->names[o->count++] = name;
        }
    }
}

static bool is_required(const proa_all *all, proa_str name)
{
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *list = proa_json_get(all->list[i], "required");
        for (int64_t k = 0; k < proa_json_len(list); k++)
            if (proa_str_eq(proa_json_str(proa_json_at(list, k)), name)) return true;
    }
    return false;
}

/* null as a schema is an error, and absent is not. */
static bool member_of(const proa_json *members, proa_str name, const proa_json **out)
{
    for (proa_json_iter it = proa_json_begin(members); proa_json_next(&it);)
        if (proa_str_eq(it.key, name)) return *out = it.value, true;
    return false;
}

/* All schemas for the member of this name: those of properties, and additionalProperties where it is none of them. */
static proa_status read_member(proa_schema *s, const proa_all *all, proa_str name, const proa_path *path,
                               const proa_expr **out)
{
    proa_all value = {.count = 0};
    bool never = false;
    const proa_path inner = {path, "properties", name, -1};
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *schema = NULL;
        if (!member_of(proa_json_get(all->list[i], "properties"), name, &schema))
            schema = proa_json_get(all->list[i], "additionalProperties");
        else if (!schema) return proa_schema_refuse(s, &inner, "a schema must be an object, true or false");
        if (schema) PROA_TRY(proa_all_add(s, &value, schema, &never, &inner));
    }
    if (never) return *out = proa_expr_never(s->rules), PROA_OK;
    return proa_schema_all(s, &value, &inner, out);
}

/* One plain character with which none of the names goes on. Where a name goes on with one beyond ASCII, none beyond
 * ASCII is allowed. */
static const proa_expr *other_character(proa_rules *r, const bool taken[129])
{
    proa_range gaps[128 + 2];
    int32_t count = 0, from = 0x20;
    for (int32_t c = 0x20; c <= 128; c++) {
        if (c < 128 && !taken[c]) continue;
        if (c > from) gaps[count++] = (proa_range){from, c - 1};
        from = c + 1;
    }
    if (!taken[128]) gaps[count++] = (proa_range){128, 0x10FFFF};
    return proa_expr_class(r, gaps, count, false);
}

static const proa_expr *other_name(proa_schema *s, const object *o, size_t depth, const bool *among);

/* The character, and then a text that is none of the names that go on so. */
static const proa_expr *other_rest(proa_schema *s, const object *o, size_t depth, const bool *among, char c)
{
    const char text[2] = {c, '\0'};
    bool *below = PROA_ARENA_NEW(&s->rules->arena, bool, o->count);
    for (int32_t i = 0; i < o->count; i++)
        below[i] = among[i] && o->names[i].len > depth && o->names[i].ptr[depth] == c;
    return proa_expr_seq2(s->rules, proa_expr_text(s->rules, text), other_name(s, o, depth + 1, below));
}

/* A string without escapes that is none of the names: the first place where it differs from each is written out. What
 * shares more than 64 bytes with a name is left out. */
static const proa_expr *other_name(proa_schema *s, const object *o, size_t depth, const bool *among)
{
    proa_rules *r = s->rules;
    static const proa_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    const proa_expr *rest = proa_expr_repeat(r, proa_expr_class(r, plain, 3, false), 0, -1);
    proa_expr_items items = {0};
    bool ends = true, taken[129] = {['"'] = true, ['\\'] = true};
    for (int32_t i = 0; i < o->count; i++) {
        if (!among[i]) continue;
        if (o->names[i].len == depth) ends = false;
        else taken[(uint8_t)o->names[i].ptr[depth] < 128 ? o->names[i].ptr[depth] : 128] = true;
    }
    if (ends) proa_expr_push(r, &items, proa_expr_empty(r));
    proa_expr_push(r, &items, proa_expr_seq2(r, other_character(r, taken), rest));
    for (char c = 0x20; c < 127 && depth < 64; c++)
        if (taken[(int)c] && c != '"' && c != '\\')
            proa_expr_push(r, &items, other_rest(s, o, depth, among, c));
    return proa_expr_list(r, PROA_EXPR_ALT, items.ptr, items.count);
}

static const proa_expr *make_pair(proa_schema *s, const proa_expr *name, const proa_expr *value)
{
    const proa_expr *parts[] = {name, proa_schema_spaced(s, ":"), value};
    return proa_expr_list(s->rules, PROA_EXPR_SEQ, parts, 3);
}

static const proa_expr *quoted_expr(proa_schema *s, const proa_expr *text)
{
    const proa_expr *quote = proa_expr_text(s->rules, "\""), *parts[] = {quote, text, quote};
    return proa_expr_list(s->rules, PROA_EXPR_SEQ, parts, 3);
}

/* patternProperties: one pattern, and no other names. */
static proa_status read_patterns(proa_schema *s, const proa_all *all, object *o, const proa_path *path)
{
    const proa_json *patterns = proa_all_first(all, "patternProperties");
    const proa_regex_options options = {.mode = PROA_REGEX_JSON};
    const proa_expr *name = NULL, *value = NULL;
    proa_json_iter it = proa_json_begin(patterns);
    const proa_json *others = proa_all_first(all, "additionalProperties");
    bool closed = !others || (proa_json_kind(others) == PROA_JSON_BOOL && !proa_json_bool(others));
    if (o->count || all->count > 1 || proa_json_len(patterns) != 1 || !closed)
        return proa_schema_refuse(
            s, path, "'patternProperties' is supported with one pattern, beside no other properties");
    if (!proa_json_next(&it)) return PROA_OK;
    const proa_path inner = {path, "patternProperties", it.key, -1};
    proa_all one = {.count = 0};
    bool never = false;
    if (proa_regex_read(s->rules, it.key, &options, &name, s->err) != PROA_OK)
        return proa_err_prefix(s->err, "'patternProperties'"), s->err ? s->err->status : PROA_INVALID;
    PROA_TRY(proa_all_add(s, &one, it.value, &never, &inner));
    if (never) return PROA_OK;
    PROA_TRY(proa_schema_all(s, &one, &inner, &value));
    o->additional = make_pair(s, quoted_expr(s, name), value);
    return PROA_OK;
}

/* Members of other names: where a schema allows them, or says nothing of members at all. */
static proa_status read_additional(proa_schema *s, const proa_all *all, object *o, const proa_path *path)
{
    proa_all value = {.count = 0};
    bool never = false, given = false;
    const proa_expr *e = s->value;
    const proa_path inner = {path, "additionalProperties", {"", 0}, -1};
    if (proa_all_first(all, "patternProperties")) return read_patterns(s, all, o, path);
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *more = proa_json_get(all->list[i], "additionalProperties");
        const proa_json *rest = proa_json_get(all->list[i], "unevaluatedProperties");
        given = given || more || rest;
        if (more) PROA_TRY(proa_all_add(s, &value, more, &never, &inner));
        if (rest) PROA_TRY(proa_all_add(s, &value, rest, &never, &inner));
    }
    if (never || (!given && o->count)) return PROA_OK;
    if (value.count) PROA_TRY(proa_schema_all(s, &value, &inner, &e));
    bool *among = PROA_ARENA_NEW(&s->rules->arena, bool, o->count);
    for (int32_t i = 0; i < o->count; i++) among[i] = true;
    const proa_expr *name = o->count ? quoted_expr(s, other_name(s, o, 0, among)) : s->string;
    o->additional = proa_expr_shared(s->rules, "member", make_pair(s, name, e));
    return PROA_OK;
}

static proa_status read_counts(proa_schema *s, const proa_all *all, object *o, const proa_path *path)
{
    int64_t least = -1, required = 0;
    PROA_TRY(proa_all_bound(s, all, "minProperties", false, &least, path));
    PROA_TRY(proa_all_bound(s, all, "maxProperties", true, &o->most, path));
    for (int32_t i = 0; i < o->count; i++) required += o->members[i].required;
    bool only_others = o->count == 0 && o->additional;
    o->one = least == 1 && only_others;
    if (least > required && !o->one)
        return proa_schema_refuse(s, path, "'minProperties' %lld is not supported here", (long long)least);
    if (o->most >= o->count && !o->additional) o->most = -1;
    if (o->most >= 0 && !only_others)
        return proa_schema_refuse(s, path, "'maxProperties' %lld is not supported here", (long long)o->most);
    return PROA_OK;
}

static const proa_expr *after_comma(proa_schema *s, const proa_expr *e)
{
    return proa_expr_seq2(s->rules, proa_schema_spaced(s, ","), e);
}

/* Members of other names only. */
static const proa_expr *other_members(proa_schema *s, const object *o)
{
    proa_rules *r = s->rules;
    if (!o->additional || o->most == 0) return proa_expr_empty(r);
    int32_t more = o->most < 0 ? -1 : (int32_t)o->most - 1;
    const proa_expr *e = proa_expr_seq2(r, o->additional,
                                        proa_expr_repeat(r, after_comma(s, o->additional), 0, more));
    return o->one ? e : proa_expr_optional(r, e);
}

/* What may follow from member i on: after an earlier member (after[i]), and at the beginning (*first). Each is a rule,
 * since there are many ways to it where members are optional. */
static const proa_expr *chain_members(proa_schema *s, const object *o)
{
    proa_rules *r = s->rules;
    const proa_expr *after = o->additional ? proa_expr_repeat(r, after_comma(s, o->additional), 0, -1)
                                           : proa_expr_empty(r);
    const proa_expr *first = other_members(s, o);
    for (int32_t i = o->count; i-- > 0;) {
        const proa_expr *pair = o->members[i].pair, *rest = after;
        if (i + 1 < o->count) rest = proa_expr_shared(r, "members", after);
        const proa_expr *with = proa_expr_seq2(r, pair, rest), *next = after_comma(s, with);
        bool required = o->members[i].required;
        first = required ? with : proa_expr_alt2(r, with, first);
        after = required ? next : proa_expr_alt2(r, next, rest);
    }
    return first;
}

static proa_status read_members(proa_schema *s, const proa_all *all, object *o, const proa_path *path)
{
    for (int32_t i = 0; i < o->count; i++) {
        const proa_expr *value = NULL;
        PROA_TRY(read_member(s, all, o->names[i], path, &value));
        o->members[i].pair = make_pair(s, proa_schema_quoted(s, o->names[i]), value);
        o->members[i].required = is_required(all, o->names[i]);
    }
    return PROA_OK;
}

proa_status proa_schema_object(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    object o = {.most = -1};
    proa_rules *r = s->rules;
    collect_names(s, all, &o);
    PROA_TRY(read_members(s, all, &o, path));
    PROA_TRY(read_additional(s, all, &o, path));
    PROA_TRY(read_counts(s, all, &o, path));
    const proa_expr *parts[] = {proa_expr_text(r, "{"), s->space, chain_members(s, &o), s->space,
                                proa_expr_text(r, "}")};
    *out = proa_expr_shared(r, "object", proa_expr_list(r, PROA_EXPR_SEQ, parts, 5));
    return PROA_OK;
}

/* ---- arrays ---- */

static int64_t prefix_length(const proa_all *all)
{
    int64_t most = 0;
    for (int32_t i = 0; i < all->count; i++) {
        int64_t n = proa_json_len(proa_json_get(all->list[i], "prefixItems"));
        if (n > most) most = n;
    }
    return most;
}

/* All schemas of element `index`. *never: there may be no such element. */
static proa_status read_item(proa_schema *s, const proa_all *all, int64_t index, bool *never,
                             const proa_path *path, const proa_expr **out)
{
    proa_all item = {.count = 0};
    const proa_path inner = {path, "items", {"", 0}, index};
    *never = false;
    for (int32_t i = 0; i < all->count; i++) {
        const proa_json *prefix = proa_json_get(all->list[i], "prefixItems");
        const proa_json *schema = index < proa_json_len(prefix) ? proa_json_at(prefix, index)
                                                                : proa_json_get(all->list[i], "items");
        if (schema && proa_json_kind(schema) == PROA_JSON_ARRAY)
            return proa_schema_refuse(s, &inner, "'items' as a list is not supported: use 'prefixItems'");
        if (schema) PROA_TRY(proa_all_add(s, &item, schema, never, &inner));
    }
    return *never ? PROA_OK : proa_schema_all(s, &item, &inner, out);
}

static proa_status check_unique(const proa_schema *s, const proa_all *all, int64_t most, const proa_path *path)
{
    for (int32_t i = 0; i < all->count; i++)
        if (proa_json_bool(proa_json_get(all->list[i], "uniqueItems")) && (most < 0 || most > 1))
            return proa_schema_refuse(s, path, "'uniqueItems' is not supported for more than one item");
    return PROA_OK;
}

/* From element `index` on; the elements of a prefix one by one. */
static proa_status read_elements(proa_schema *s, const proa_all *all, int64_t index, int64_t least,
                                 int64_t most, const proa_path *path, const proa_expr **out)
{
    proa_rules *r = s->rules;
    const proa_expr *item = NULL, *rest = NULL;
    bool never = false, rests = index >= prefix_length(all);
    if (most >= 0 && index >= most) return *out = proa_expr_empty(r), PROA_OK;
    PROA_TRY(read_item(s, all, index, &never, path, &item));
    if (never) return *out = index < least ? proa_expr_never(r) : proa_expr_empty(r), PROA_OK;
    if (rests) {
        int64_t min = least > index + 1 ? least - index - 1 : 0;
        rest = proa_expr_repeat(r, proa_expr_shared(r, "item", after_comma(s, item)), (int32_t)min,
                                most < 0 ? -1 : (int32_t)(most - index - 1));
    } else PROA_TRY(read_elements(s, all, index + 1, least, most, path, &rest));
    const proa_expr *e = proa_expr_seq2(r, index ? after_comma(s, item) : item, rest);
    *out = index < least ? e : proa_expr_optional(r, e);
    return PROA_OK;
}

proa_status proa_schema_array(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    int64_t least = 0, most = -1;
    const proa_expr *elements = NULL;
    proa_rules *r = s->rules;
    PROA_TRY(proa_all_bound(s, all, "minItems", false, &least, path));
    PROA_TRY(proa_all_bound(s, all, "maxItems", true, &most, path));
    PROA_TRY(check_unique(s, all, most, path));
    if (prefix_length(all) > PROA_GRAMMAR_DEPTH_MAX)
        return proa_schema_refuse(s, path, "'prefixItems' has more than %d items", PROA_GRAMMAR_DEPTH_MAX);
    if (most >= 0 && least > most) return *out = proa_expr_never(r), PROA_OK;
    PROA_TRY(read_elements(s, all, 0, least < 0 ? 0 : least, most, path, &elements));
    const proa_expr *parts[] = {proa_expr_text(r, "["), s->space, elements, s->space, proa_expr_text(r, "]")};
    *out = proa_expr_shared(r, "array", proa_expr_list(r, PROA_EXPR_SEQ, parts, 5));
    return PROA_OK;
}
