/* SPDX-License-Identifier: Apache-2.0
 * schema_constant.c - enum and const: their values as texts, and which values a schema's constants allow. */
#include "grammar/schema_inner.h"

static int type_of_value(const proa_json *v)
{
    switch (proa_json_kind(v)) {
    case PROA_JSON_NULL: return PROA_TYPES_NULLS;
    case PROA_JSON_BOOL: return PROA_TYPES_BOOLS;
    case PROA_JSON_INT: return PROA_TYPES_INTEGERS;
    case PROA_JSON_DOUBLE: return PROA_TYPES_NUMBERS;
    case PROA_JSON_STRING: return PROA_TYPES_STRINGS;
    case PROA_JSON_ARRAY: return PROA_TYPES_ARRAYS;
    case PROA_JSON_OBJECT: return PROA_TYPES_OBJECTS;
    }
    return 0;
}

/* ---- constants ---- */

const proa_expr *proa_schema_quoted(proa_schema *s, proa_str text)
{
    proa_buf out;
    proa_buf_init(&out, SIZE_MAX / 2);
    proa_buf_json_str(&out, text);
    const proa_expr *e = proa_expr_bytes(s->rules, proa_buf_view(&out));
    proa_buf_release(&out);
    return e;
}

const proa_expr *proa_schema_spaced(proa_schema *s, const char *text)
{
    const proa_expr *parts[] = {s->space, proa_expr_text(s->rules, text), s->space};
    return proa_expr_list(s->rules, PROA_EXPR_SEQ, parts, 3);
}

static const proa_expr *literal_list(proa_schema *s, const proa_json *v)
{
    proa_expr_items items = {0};
    proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "["));
    for (int64_t i = 0; i < proa_json_len(v); i++) {
        proa_expr_push(s->rules, &items, i ? proa_schema_spaced(s, ",") : s->space);
        proa_expr_push(s->rules, &items, proa_schema_literal(s, proa_json_at(v, i)));
    }
    proa_expr_push(s->rules, &items, s->space);
    proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "]"));
    return proa_expr_list(s->rules, PROA_EXPR_SEQ, items.ptr, items.count);
}

static const proa_expr *literal_object(proa_schema *s, const proa_json *v)
{
    proa_expr_items items = {0};
    int64_t i = 0;
    proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "{"));
    for (proa_json_iter it = proa_json_begin(v); proa_json_next(&it); i++) {
        proa_expr_push(s->rules, &items, i ? proa_schema_spaced(s, ",") : s->space);
        proa_expr_push(s->rules, &items, proa_schema_quoted(s, it.key));
        proa_expr_push(s->rules, &items, proa_schema_spaced(s, ":"));
        proa_expr_push(s->rules, &items, proa_schema_literal(s, it.value));
    }
    proa_expr_push(s->rules, &items, s->space);
    proa_expr_push(s->rules, &items, proa_expr_text(s->rules, "}"));
    return proa_expr_list(s->rules, PROA_EXPR_SEQ, items.ptr, items.count);
}

static void print_scalar(proa_buf *out, const proa_json *v)
{
    if (proa_json_kind(v) == PROA_JSON_STRING) proa_buf_json_str(out, proa_json_str(v));
    else if (proa_json_kind(v) == PROA_JSON_NULL) proa_buf_str(out, proa_str_c("null"));
    else proa_json_print(out, v);
    while (out->len && (out->ptr[out->len - 1] == '\n' || out->ptr[out->len - 1] == ' ')) out->len--;
}

const proa_expr *proa_schema_literal(proa_schema *s, const proa_json *v)
{
    proa_buf out;
    if (proa_json_kind(v) == PROA_JSON_ARRAY) return literal_list(s, v);
    if (proa_json_kind(v) == PROA_JSON_OBJECT) return literal_object(s, v);
    proa_buf_init(&out, SIZE_MAX / 2);
    print_scalar(&out, v);
    const proa_expr *e = proa_expr_bytes(s->rules, proa_buf_view(&out));
    proa_buf_release(&out);
    return e;
}

static bool same_text(const proa_json *a, const proa_json *b)
{
    proa_buf x, y;
    proa_buf_init(&x, SIZE_MAX / 2);
    proa_buf_init(&y, SIZE_MAX / 2);
    proa_json_print(&x, a);
    proa_json_print(&y, b);
    bool same = type_of_value(a) == type_of_value(b) && proa_str_eq(proa_buf_view(&x), proa_buf_view(&y));
    proa_buf_release(&x);
    proa_buf_release(&y);
    return same;
}

bool proa_has_member(const proa_json *schema, const char *key)
{
    for (proa_json_iter it = proa_json_begin(schema); proa_json_next(&it);)
        if (proa_str_is(it.key, key)) return true;
    return false;
}

bool proa_value_in_schema(const proa_json *schema, const proa_json *value)
{
    const proa_json *list = proa_json_get(schema, "enum");
    bool found = !list;
    for (int64_t i = 0; i < proa_json_len(list) && !found; i++)
        found = same_text(proa_json_at(list, i), value);
    if (!proa_has_member(schema, "const")) return found;
    return found && same_text(proa_json_get(schema, "const"), value);
}

/* Adds a value if its type is right and no other enum or const excludes it. */
static void add_value(proa_schema *s, const proa_all *all, int types, const proa_json *value,
                      proa_expr_items *items)
{
    bool allowed = types & type_of_value(value);
    for (int32_t i = 0; i < all->count && allowed; i++) allowed = proa_value_in_schema(all->list[i], value);
    if (allowed) proa_expr_push(s->rules, items, proa_schema_literal(s, value));
}

/* enum and const. *found is false if there is none. */
proa_status proa_schema_constants(proa_schema *s, const proa_all *all, int types, bool *found,
                                  const proa_path *path, const proa_expr **out)
{
    static const char *const others[] = {
        "pattern",    "format",      "minLength",        "maxLength",
        "minimum",    "maximum",     "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "properties",  "required",         "additionalProperties",
        "items",      "prefixItems", "minItems",         "maxItems",
        NULL};
    proa_expr_items items = {0};
    const proa_json *list = proa_all_first(all, "enum"), *owner = NULL;
    for (int32_t i = 0; i < all->count && !owner; i++)
        if (proa_has_member(all->list[i], "const")) owner = all->list[i];
    *found = list || owner;
    if (!*found) return PROA_OK;
    const char *other = proa_all_any(all, others);
    if (other) return proa_schema_refuse(s, path, "'%s' beside 'enum' or 'const' is not supported", other);
    if (list && proa_json_kind(list) != PROA_JSON_ARRAY)
        return proa_schema_refuse(s, path, "'enum' is no list");
    if (owner) add_value(s, all, types, proa_json_get(owner, "const"), &items);
    else
        for (int64_t i = 0; i < proa_json_len(list); i++)
            add_value(s, all, types, proa_json_at(list, i), &items);
    *out = proa_expr_list(s->rules, PROA_EXPR_ALT, items.ptr, items.count);
    return PROA_OK;
}
