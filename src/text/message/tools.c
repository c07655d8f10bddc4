/* SPDX-License-Identifier: Apache-2.0
 * tools.c - what parsers need to know of the tools of a request. */
#include "text/message/parser.h"

typedef struct tool_parameter {
    proa_str name;
    bool text, nullable;
} tool_parameter;

typedef struct tool {
    proa_str name;
    tool_parameter *parameters;
    int64_t count;
} tool;

struct proa_toolset {
    tool *tools;
    int64_t count;
};

static proa_str copy_str(proa_arena *arena, proa_str s)
{
    return (proa_str){proa_arena_strdup(arena, s), s.len};
}

static bool all_texts(const proa_json *values)
{
    for (int64_t i = 0; i < proa_json_len(values); i++)
        if (proa_json_kind(proa_json_at(values, i)) != PROA_JSON_STRING) return false;
    return true;
}

/* By its schema: the type string, alone or together with null; without a type, values that are all texts. */
static void read_type(tool_parameter *to, const proa_json *schema)
{
    const proa_json *type = proa_json_get(schema, "type"), *values = proa_json_get(schema, "enum");
    bool open = !proa_json_get(schema, "anyOf") && !proa_json_get(schema, "oneOf") &&
                !proa_json_get(schema, "$ref");
    to->text = proa_json_kind(type) == PROA_JSON_STRING ? proa_str_is(proa_json_str(type), "string")
                                                        : !type && open && all_texts(values);
    if (proa_json_kind(type) != PROA_JSON_ARRAY) return;
    bool others = false;
    for (int64_t i = 0; i < proa_json_len(type); i++) {
        proa_str one = proa_json_str(proa_json_at(type, i));
        bool text = proa_str_is(one, "string"), null = proa_str_is(one, "null");
        to->text |= text;
        to->nullable |= null;
        others |= !text && !null;
    }
    if (others) to->text = false;
}

static void read_tool(tool *to, proa_arena *arena, const proa_json *function)
{
    const proa_json *properties = proa_json_get(proa_json_get(function, "parameters"), "properties");
    if (proa_json_kind(properties) != PROA_JSON_OBJECT) properties = NULL;
    to->name = copy_str(arena, proa_json_str(proa_json_get(function, "name")));
    to->parameters = PROA_ARENA_NEW(arena, tool_parameter, proa_json_len(properties));
    for (proa_json_iter it = proa_json_begin(properties); properties && proa_json_next(&it);) {
        tool_parameter *one = &to->parameters[to->count++];
        one->name = copy_str(arena, it.key);
        read_type(one, it.value);
    }
}

proa_toolset *proa_toolset_new(proa_arena *arena, const proa_json *tools)
{
    proa_toolset *set = PROA_ARENA_NEW(arena, proa_toolset, 1);
    if (proa_json_kind(tools) != PROA_JSON_ARRAY) return set;
    set->tools = PROA_ARENA_NEW(arena, tool, proa_json_len(tools));
    set->count = proa_json_len(tools);
    for (int64_t i = 0; i < set->count; i++)
        read_tool(&set->tools[i], arena, proa_json_get(proa_json_at(tools, i), "function"));
    return set;
}

static const tool *find_tool(const proa_toolset *set, proa_str name)
{
    for (int64_t i = 0; set && i < set->count; i++)
        if (proa_str_eq(set->tools[i].name, name)) return &set->tools[i];
    return NULL;
}

bool proa_toolset_has(const proa_toolset *tools, proa_str function)
{
    return find_tool(tools, function) != NULL;
}

bool proa_toolset_is_text(const proa_toolset *tools, proa_str function, proa_str parameter, bool *nullable)
{
    const tool *t = find_tool(tools, function);
    *nullable = false;
    for (int64_t i = 0; t && i < t->count; i++) {
        if (!proa_str_eq(t->parameters[i].name, parameter)) continue;
        *nullable = t->parameters[i].nullable;
        return t->parameters[i].text;
    }
    return true;
}
