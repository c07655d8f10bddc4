/* SPDX-License-Identifier: Apache-2.0
 * parse_tree.c - what both halves of the parser share: takes tokens, makes the nodes of the tree. */
#include "text/jinja/code.h"

#include "base/limits.h"
#include <stdarg.h>
#include <string.h>

void proa_j_parse_fail(proa_jparser *p, int32_t line, const char *fmt, ...)
{
    char text[400];
    va_list args;
    if (p->failed) return;
    p->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    proa_err_set(p->err, PROA_INVALID, __FILE__, __LINE__, "line %d: %s", (int)line, text);
}

bool proa_j_enter(proa_jparser *p)
{
    if (++p->depth > PROA_TEMPLATE_DEPTH_MAX)
        proa_j_parse_fail(p, p->at->line, "nested deeper than %d", PROA_TEMPLATE_DEPTH_MAX);
    return !p->failed;
}

bool proa_j_at(const proa_jparser *p, proa_jtype type)
{
    return p->at->type == type;
}

bool proa_j_at_name(const proa_jparser *p, const char *name)
{
    return p->at->type == PROA_T_NAME && proa_str_is(proa_j_text(p->at->value), name);
}

bool proa_j_skip(proa_jparser *p, proa_jtype type)
{
    if (p->failed || p->at->type != type) return false;
    p->at++;
    return true;
}

bool proa_j_skip_name(proa_jparser *p, const char *name)
{
    if (p->failed || !proa_j_at_name(p, name)) return false;
    p->at++;
    return true;
}

static const char *type_text(proa_jtype type)
{
    static const char *const texts[] = {
        [PROA_T_EOF] = "end of template", [PROA_T_DATA] = "text",
        [PROA_T_VAR_BEGIN] = "{{",        [PROA_T_VAR_END] = "end of print statement",
        [PROA_T_BLOCK_BEGIN] = "{%",      [PROA_T_BLOCK_END] = "end of statement block",
        [PROA_T_NAME] = "name",           [PROA_T_STRING] = "string",
        [PROA_T_INT] = "integer",         [PROA_T_FLOAT] = "float",
#define PROA_J_TEXT(name, text) [PROA_T_##name] = text,
        PROA_J_OPERATORS(PROA_J_TEXT)
#undef PROA_J_TEXT
    };
    return texts[type];
}

const char *proa_j_token_text(const proa_jtoken *token, char out[64])
{
    proa_str s = proa_j_text(token->value);
    if (token->type == PROA_T_NAME || token->type == PROA_T_STRING)
        snprintf(out, 64, "%.*s", (int)(s.len < 60 ? s.len : 60), s.ptr);
    else snprintf(out, 64, "%s", type_text(token->type));
    return out;
}

void proa_j_expect(proa_jparser *p, proa_jtype type)
{
    char text[64];
    if (p->failed || proa_j_skip(p, type)) return;
    proa_j_parse_fail(p, p->at->line, "expected token '%s', got '%s'", type_text(type),
                      proa_j_token_text(p->at, text));
}

proa_str proa_j_expect_name(proa_jparser *p)
{
    proa_str name = proa_j_text(p->at->value);
    if (!proa_j_at(p, PROA_T_NAME)) name = (proa_str){"", 0};
    proa_j_expect(p, PROA_T_NAME);
    return name;
}

proa_jnode *proa_j_node(proa_jparser *p, proa_jnode_type type)
{
    proa_jnode *node = PROA_ARENA_NEW(&p->code->arena, proa_jnode, 1);
    node->type = (uint8_t)type;
    node->line = p->at->line;
    return node;
}

void proa_j_add(proa_jparser *p, proa_jbody *body, proa_jnode *node)
{
    if ((body->count & (body->count - 1)) == 0) { /* room doubles at each power of two */
        proa_jnode **more = PROA_ARENA_NEW(&p->code->arena, proa_jnode *, body->count * 2 + 1);
        if (body->count) memcpy(more, body->list, (size_t)body->count * sizeof(proa_jnode *));
        body->list = more;
    }
    body->list[body->count++] = node;
}

int32_t proa_j_symbol(proa_jcode *code, proa_str name)
{
    int32_t symbol;
    if (proa_map_find(&code->symbols, name, &symbol)) return symbol;
    if (code->count == code->cap) {
        code->cap = code->cap ? code->cap * 2 : 32;
        proa_str *more = PROA_ARENA_NEW(&code->arena, proa_str, code->cap);
        if (code->count) memcpy(more, code->names, (size_t)code->count * sizeof *more);
        code->names = more;
    }
    code->names[code->count] = name;
    proa_map_put(&code->symbols, name, code->count);
    return code->count++;
}
