/* SPDX-License-Identifier: Apache-2.0
 * schema.c - reads a schema: from lists of schemas that hold together (schema_all.c) to expressions, by types,
 * combinations and references. */
#include "grammar/schema.h"

#include "grammar/schema_inner.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "grammar/regex.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A member of the whole schema that is not part of it, as in llguidance. */
#define GUIDANCE "x-guidance"

static bool is_reference(const proa_json *schema)
{
    return proa_schema_says_only(schema, "$ref");
}

/* ---- types ---- */

static int type_bit(proa_str name)
{
    static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
    for (int i = 0; i < (int)PROA_COUNT(names); i++)
        if (proa_str_is(name, names[i])) return i == 3 ? PROA_TYPES_NUMBERS | PROA_TYPES_INTEGERS : 1 << i;
    return 0;
}

static proa_status types_of_one(const proa_schema *s, const proa_json *type, int *out, const proa_path *path)
{
    bool list = proa_json_kind(type) == PROA_JSON_ARRAY;
    *out = 0;
    for (int64_t i = 0; i < (list ? proa_json_len(type) : 1); i++) {
        proa_str name = proa_json_str(list ? proa_json_at(type, i) : type);
        int bit = type_bit(name);
        if (!bit) return proa_schema_refuse(s, path, "the type '%.40s' is unknown", name.len ? name.ptr : "");
        *out |= bit;
    }
    return PROA_OK;
}

/* The types for which some keyword says something; without a type the value is one of these. */
static int types_of_keywords(const proa_all *all)
{
    static const char *const object[] = {
        "properties",    "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties", NULL};
    static const char *const array[] = {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", NULL};
    static const char *const string[] = {"pattern", "format", "minLength", "maxLength", NULL};
    static const char *const number[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                         "exclusiveMaximum", "multipleOf", NULL};
    int types = 0;
    if (proa_all_any(all, object)) types |= PROA_TYPES_OBJECTS;
    if (proa_all_any(all, array)) types |= PROA_TYPES_ARRAYS;
    if (proa_all_any(all, string)) types |= PROA_TYPES_STRINGS;
    if (proa_all_any(all, number)) types |= PROA_TYPES_NUMBERS | PROA_TYPES_INTEGERS;
    return types ? types : PROA_TYPES_ALL;
}

static proa_status types_of_all(const proa_schema *s, const proa_all *all, int *out, const proa_path *path)
{
    bool given = false;
    *out = PROA_TYPES_ALL;
    for (int32_t i = 0; i < all->count; i++) {
        int types = 0;
        const proa_json *type = proa_json_get(all->list[i], "type");
        if (!type) continue;
        PROA_TRY(types_of_one(s, type, &types, path));
        *out &= types;
        given = true;
    }
    if (!given && !proa_all_any(all, (const char *const[]){"enum", "const", NULL}))
        *out = types_of_keywords(all);
    return PROA_OK;
}

/* ---- combinations ---- */

/* Whether no value can match both branches of a oneOf: their types differ, or a required property (or they themselves)
 * has constants that differ. */
static bool constants_differ(const proa_json *a, const proa_json *b)
{
    const proa_json *x = proa_json_get(a, "enum"), *y = proa_json_get(b, "enum");
    bool fixed_a = proa_has_member(a, "const"), fixed_b = proa_has_member(b, "const");
    if (!(x || fixed_a) || !(y || fixed_b)) return false;
    for (int64_t i = 0; i < (fixed_a ? 1 : proa_json_len(x)); i++)
        if (proa_value_in_schema(b, fixed_a ? proa_json_get(a, "const") : proa_json_at(x, i))) return false;
    return true;
}

static bool is_required(const proa_json *schema, proa_str name)
{
    const proa_json *list = proa_json_get(schema, "required");
    for (int64_t i = 0; i < proa_json_len(list); i++)
        if (proa_str_eq(proa_json_str(proa_json_at(list, i)), name)) return true;
    return false;
}

/* Whether a property that both require has constants that differ. */
static bool required_differ(const proa_json *a, const proa_json *b)
{
    const proa_json *of_b = proa_json_get(b, "properties");
    for (proa_json_iter it = proa_json_begin(proa_json_get(a, "properties")); proa_json_next(&it);) {
        const proa_json *other = of_b ? proa_json_get(of_b, it.key.ptr) : NULL;
        if (other && is_required(a, it.key) && is_required(b, it.key) && constants_differ(it.value, other))
            return true;
    }
    return false;
}

/* The schema, or what its $ref names. Cycles of references end at the depth. */
static const proa_json *follow_refs(const proa_schema *s, const proa_json *schema, const proa_path *path)
{
    for (int i = 0; i < PROA_GRAMMAR_DEPTH_MAX && proa_json_get(schema, "$ref"); i++)
        if (proa_schema_resolve(s, schema, &schema, path) != PROA_OK) break;
    return schema;
}

static bool branches_differ(const proa_schema *s, const proa_json *a, const proa_json *b, const proa_path *path)
{
    int x = 0, y = 0;
    a = follow_refs(s, a, path);
    b = follow_refs(s, b, path);
    const proa_json *type_a = proa_json_get(a, "type"), *type_b = proa_json_get(b, "type");
    if (type_a && types_of_one(s, type_a, &x, path) != PROA_OK) return true;
    if (type_b && types_of_one(s, type_b, &y, path) != PROA_OK) return true;
    if (x && y && !(x & y)) return true;
    if (constants_differ(a, b)) return true;
    return x == PROA_TYPES_OBJECTS && y == PROA_TYPES_OBJECTS && required_differ(a, b);
}

static proa_status check_one_of(const proa_schema *s, const proa_json *list, const proa_path *path)
{
    for (int64_t i = 0; i < proa_json_len(list); i++)
        for (int64_t k = 0; k < i; k++)
            if (!branches_differ(s, proa_json_at(list, k), proa_json_at(list, i), path))
                return proa_schema_refuse(
                    s, path,
                    "'oneOf': branches %lld and %lld might both match (use 'anyOf', or give "
                    "them types or required constants that differ)",
                    (long long)k, (long long)i);
    return PROA_OK;
}

/* The list with each branch of one anyOf or oneOf in turn. */
static proa_status read_branches(proa_schema *s, const proa_all *all, int32_t owner, const char *keyword,
                                 const proa_path *path, const proa_expr **out)
{
    const proa_json *list = proa_json_get(all->list[owner], keyword);
    proa_expr_items items = {0};
    if (proa_json_kind(list) != PROA_JSON_ARRAY)
        return proa_schema_refuse(s, path, "'%s' is no list", keyword);
    if (keyword[0] == 'o') PROA_TRY(check_one_of(s, list, path));
    for (int64_t i = 0; i < proa_json_len(list); i++) {
        const proa_path inner = {path, keyword, {"", 0}, i};
        proa_all branch = *all;
        const proa_expr *e = NULL;
        bool never = false;
        branch.chosen[owner] = true;
        if (all->roots == 1 && proa_schema_says_only(all->list[0], keyword)) branch.count = branch.roots = 0;
        PROA_TRY(proa_all_add(s, &branch, proa_json_at(list, i), &never, &inner));
        if (never) continue;
        PROA_TRY(proa_schema_all(s, &branch, &inner, &e));
        proa_expr_push(s->rules, &items, e);
    }
    *out = proa_expr_list(s->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

/* ---- values ---- */

static int32_t *find_ref(proa_schema *s, const proa_json *target)
{
    for (int32_t i = 0; i < s->refs_count; i++)
        if (s->refs[i].schema == target) return &s->refs[i].rule;
    return NULL;
}

static proa_status read_one(proa_schema *s, const proa_json *schema, const proa_path *path, const proa_expr **out)
{
    proa_all all = {.count = 0};
    bool never = false;
    PROA_TRY(proa_all_add(s, &all, schema, &never, path));
    if (never) return *out = proa_expr_never(s->rules), PROA_OK;
    return proa_schema_all(s, &all, path, out);
}

/* The rule of a reference's target; made at its first use, so that it may refer to itself. */
static proa_status read_reference(proa_schema *s, const proa_json *schema, const proa_path *path,
                                  const proa_expr **out)
{
    const proa_json *target = NULL;
    PROA_TRY(proa_schema_resolve(s, schema, &target, path));
    int32_t *known = find_ref(s, target), rule;
    if (known) return *out = proa_expr_rule(s->rules, *known), PROA_OK;
    if (s->refs_count == s->refs_cap) {
        s->refs_cap = s->refs_cap ? 2 * s->refs_cap : 16;
        s->refs = proa_realloc(s->refs, (size_t)s->refs_cap * sizeof *s->refs);
    }
    rule = proa_rules_add(s->rules, proa_json_str(proa_json_get(schema, "$ref")));
    s->refs[s->refs_count++] = (proa_known_ref){target, rule};
    const proa_expr *body = NULL;
    if (is_reference(target)) PROA_TRY(read_reference(s, target, path, &body));
    else PROA_TRY(read_one(s, target, path, &body));
    s->rules->rule[rule].body = body;
    *out = proa_expr_rule(s->rules, rule);
    return PROA_OK;
}

static proa_status read_types(proa_schema *s, const proa_all *all, int types, const proa_path *path,
                              const proa_expr **out)
{
    proa_expr_items items = {0};
    const proa_expr *e = NULL;
    if (types & PROA_TYPES_OBJECTS) {
        PROA_TRY(proa_schema_object(s, all, path, &e));
        proa_expr_push(s->rules, &items, e);
    }
    if (types & PROA_TYPES_ARRAYS) {
        PROA_TRY(proa_schema_array(s, all, path, &e));
        proa_expr_push(s->rules, &items, e);
    }
    if (types & PROA_TYPES_STRINGS) {
        PROA_TRY(proa_schema_string(s, all, path, &e));
        proa_expr_push(s->rules, &items, e);
    }
    if (types & (PROA_TYPES_NUMBERS | PROA_TYPES_INTEGERS)) {
        PROA_TRY(proa_schema_number(s, all, !(types & PROA_TYPES_NUMBERS), path, &e));
        proa_expr_push(s->rules, &items, e);
    }
    if (types & PROA_TYPES_BOOLS) {
        proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "true"));
        proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "false"));
    }
    if (types & PROA_TYPES_NULLS) proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "null"));
    *out = proa_expr_list(s->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}

static proa_status read_all(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    static const char *const combinations[] = {"anyOf", "oneOf"};
    bool found = false;
    int types = 0;
    if (all->roots == 1 && is_reference(all->list[0])) return read_reference(s, all->list[0], path, out);
    for (int32_t i = 0; i < all->count; i++)
        for (int k = 0; k < 2 && !all->chosen[i]; k++)
            if (proa_json_get(all->list[i], combinations[k])) {
                if (k == 0 && proa_json_get(all->list[i], "oneOf"))
                    return proa_schema_refuse(s, path, "'oneOf' beside 'anyOf' is not supported");
                return read_branches(s, all, i, combinations[k], path, out);
            }
    PROA_TRY(types_of_all(s, all, &types, path));
    PROA_TRY(proa_schema_constants(s, all, types, &found, path, out));
    if (found) return PROA_OK;
    bool anything = types == PROA_TYPES_ALL && types_of_keywords(all) == PROA_TYPES_ALL;
    if (anything) return *out = s->value, PROA_OK;
    return read_types(s, all, types, path, out);
}

proa_status proa_schema_all(proa_schema *s, const proa_all *all, const proa_path *path, const proa_expr **out)
{
    if (++s->depth > PROA_GRAMMAR_DEPTH_MAX)
        return proa_schema_refuse(s, path, "schemas nest deeper than %d", PROA_GRAMMAR_DEPTH_MAX);
    PROA_TRY(proa_rules_check(s->rules, s->err));
    PROA_TRY(read_all(s, all, path, out));
    s->depth--;
    return PROA_OK;
}

/* ---- parts that all schemas share ---- */

static const proa_expr *class_of(proa_rules *r, const char *pairs)
{
    proa_range ranges[16];
    int32_t n = 0;
    for (; pairs[0]; pairs += 2) ranges[n++] = (proa_range){(uint8_t)pairs[0], (uint8_t)pairs[1]};
    return proa_expr_class(r, ranges, n, false);
}

/* Nothing, a space, or a line end with an indentation. */
static const proa_expr *make_space(proa_rules *r)
{
    const proa_expr *indentation = proa_expr_repeat(r, class_of(r, "  \t\t"), 0, 32);
    const proa_expr *line = proa_expr_shared(r, "line end",
                                             proa_expr_seq2(r, proa_expr_text(r, "\n"), indentation));
    return proa_expr_optional(r, proa_expr_alt2(r, proa_expr_text(r, " "), line));
}

static bool is_blank(int32_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether all that the expression matches is JSON's white space. It is no deeper than the reader of regular expressions
 * lets groups nest. */
static bool matches_blanks(const proa_expr *e)
{
    for (size_t i = 0; e->kind == PROA_EXPR_BYTES && i < e->bytes.len; i++)
        if (!is_blank((uint8_t)e->bytes.ptr[i])) return false;
    for (int32_t i = 0; e->kind == PROA_EXPR_CLASS && i < e->count; i++)
        for (int32_t c = e->ranges[i].lo; c <= e->ranges[i].hi; c++)
            if (!is_blank(c)) return false;
    bool has_items = e->kind == PROA_EXPR_SEQ || e->kind == PROA_EXPR_ALT || e->kind == PROA_EXPR_REPEAT;
    for (int32_t i = 0; has_items && i < (e->kind == PROA_EXPR_REPEAT ? 1 : e->count); i++)
        if (!matches_blanks(e->items[i])) return false;
    return true;
}

/* A regular expression for what may stand between tokens. */
static proa_status read_space(proa_schema *s, proa_str pattern)
{
    const proa_regex_options o = {.mode = PROA_REGEX_TEXT, .whole = true};
    const proa_expr *space = NULL;
    proa_status status = proa_regex_read(s->rules, pattern, &o, &space, s->err);
    if (status != PROA_OK) return proa_err_prefix(s->err, "'" GUIDANCE ".whitespace_pattern'"), status;
    if (!matches_blanks(space))
        return PROA_FAIL(s->err, INVALID,
                         "'" GUIDANCE ".whitespace_pattern' matches more than spaces, tabs and line ends");
    s->space = proa_expr_shared(s->rules, "white space", space);
    return PROA_OK;
}

/* What llguidance takes beside a schema. guidance NULL: nothing is given. */
static proa_status read_guidance(proa_schema *s, const proa_json *guidance)
{
    bool flexible = true;
    proa_str pattern = {0};
    proa_json_iter it = proa_json_begin(guidance);
    if (guidance && proa_json_kind(guidance) != PROA_JSON_OBJECT)
        return PROA_FAIL(s->err, INVALID, "'" GUIDANCE "' must be an object");
    while (guidance && proa_json_next(&it))
        if (!proa_str_is(it.key, "whitespace_flexible") && !proa_str_is(it.key, "whitespace_pattern"))
            return PROA_FAIL(s->err, UNSUPPORTED, "'" GUIDANCE ".%.*s' is not supported", (int)it.key.len,
                             it.key.ptr);
    PROA_TRY(proa_json_get_bool(&flexible, guidance, "whitespace_flexible", s->err));
    PROA_TRY(proa_json_get_str(&pattern, guidance, "whitespace_pattern", s->err));
    s->space = flexible ? make_space(s->rules) : proa_expr_empty(s->rules);
    return flexible && pattern.ptr ? read_space(s, pattern) : PROA_OK;
}

/* One character of a string. \u escapes of surrogates are left out: two of them are one character. */
static const proa_expr *make_character(proa_rules *r)
{
    static const proa_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}};
    const proa_expr *hex = class_of(r, "09afAF");
    const proa_expr *most[] = {class_of(r, "09acACefEF"), hex, hex, hex};
    const proa_expr *d[] = {class_of(r, "ddDD"), class_of(r, "07"), hex, hex};
    const proa_expr *code = proa_expr_alt2(r, proa_expr_list(r, PROA_EXPR_SEQ, most, 4),
                                           proa_expr_list(r, PROA_EXPR_SEQ, d, 4));
    const proa_expr *escape = proa_expr_alt2(r, class_of(r, "\"\"\\\\//bbffnnrrtt"),
                                             proa_expr_seq2(r, proa_expr_text(r, "u"), code));
    return proa_expr_alt2(r, proa_expr_class(r, plain, 3, false),
                          proa_expr_seq2(r, proa_expr_text(r, "\\"), escape));
}

static void make_numbers(proa_schema *s)
{
    proa_rules *r = s->rules;
    const proa_expr *digit = class_of(r, "09"), *digits = proa_expr_repeat(r, digit, 1, -1);
    const proa_expr *more = proa_expr_seq2(r, class_of(r, "19"), proa_expr_repeat(r, digit, 0, -1));
    const proa_expr *whole = proa_expr_seq2(r, proa_expr_optional(r, proa_expr_text(r, "-")),
                                            proa_expr_alt2(r, proa_expr_text(r, "0"), more));
    const proa_expr *fraction = proa_expr_optional(r, proa_expr_seq2(r, proa_expr_text(r, "."), digits));
    const proa_expr *exponent[] = {class_of(r, "eeEE"), proa_expr_optional(r, class_of(r, "++--")),
                                   proa_expr_repeat(r, digit, 1, 2)};
    const proa_expr *parts[] = {whole, fraction,
                                proa_expr_optional(r, proa_expr_list(r, PROA_EXPR_SEQ, exponent, 3))};
    s->integer = proa_expr_shared(r, "integer", whole);
    s->number = proa_expr_shared(r, "number", proa_expr_list(r, PROA_EXPR_SEQ, parts, 3));
}

static proa_status make_value(proa_schema *s)
{
    const proa_all nothing = {.count = 0};
    const proa_expr *body = NULL;
    int32_t rule = proa_rules_add(s->rules, proa_str_c("value"));
    s->value = proa_expr_rule(s->rules, rule);
    PROA_TRY(read_types(s, &nothing, PROA_TYPES_ALL, NULL, &body));
    s->rules->rule[rule].body = body;
    return PROA_OK;
}

static proa_status read_root(proa_schema *s, const proa_json *guidance, int32_t *rule)
{
    proa_rules *r = s->rules;
    int32_t root = *rule = proa_rules_add(r, proa_str_c("#"));
    const proa_expr *quote = proa_expr_text(r, "\""), *body = NULL;
    PROA_TRY(read_guidance(s, guidance));
    s->character = make_character(r);
    const proa_expr *string[] = {quote, proa_expr_repeat(r, s->character, 0, -1), quote};
    s->string = proa_expr_shared(r, "string", proa_expr_list(r, PROA_EXPR_SEQ, string, 3));
    make_numbers(s);
    PROA_TRY(make_value(s));
    s->refs = proa_malloc(16 * sizeof *s->refs);
    s->refs_cap = 16;
    s->refs[s->refs_count++] = (proa_known_ref){s->root, root};
    if (is_reference(s->root)) PROA_TRY(read_reference(s, s->root, NULL, &body));
    else PROA_TRY(read_one(s, s->root, NULL, &body));
    r->rule[root].body = body;
    return PROA_OK;
}

proa_status proa_schema_read(proa_rules *rules, proa_str text, int32_t *rule, proa_err *err)
{
    proa_json *json = NULL;
    PROA_TRY(proa_json_parse_within(&json, text, PROA_REQUEST_NODES_MAX, "the schema", err));
    proa_schema s = {.rules = rules, .root = json, .err = err};
    proa_json *guidance = proa_json_take(json, GUIDANCE);
    proa_status status = read_root(&s, guidance, rule);
    free(s.refs);
    proa_json_free(guidance);
    proa_json_free(json);
    return status;
}
