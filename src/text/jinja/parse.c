/* SPDX-License-Identifier: Apache-2.0
 * parse.c - statements: what stands in {% %}, and the text between. */
#include "text/jinja/code.h"

#include "base/limits.h"

static void parse_until(proa_jparser *p, proa_jbody *body, const char *const *ends);

static bool at_end(const proa_jparser *p, const char *const *ends)
{
    for (; *ends; ends++)
        if (proa_j_at_name(p, *ends)) return true;
    return false;
}

/* The body of a block up to the tag of one of `ends`, whose name is the next token then. */
static void parse_body(proa_jparser *p, proa_jbody *body, const char *const *ends)
{
    proa_j_skip(p, PROA_T_COLON);
    proa_j_expect(p, PROA_T_BLOCK_END);
    if (proa_j_enter(p)) parse_until(p, body, ends);
    p->depth--;
}

static void parse_whole_body(proa_jparser *p, proa_jbody *body, const char *end)
{
    parse_body(p, body, (const char *const[]){end, NULL});
    proa_j_skip_name(p, end);
}

static proa_jnode *parse_for(proa_jparser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    proa_jnode *node = proa_j_node(p, PROA_N_FOR);
    p->at++;
    node->a = proa_j_parse_target(p, "in", false);
    if (!proa_j_skip_name(p, "in")) proa_j_parse_fail(p, p->at->line, "expected 'in'");
    node->b = proa_j_parse_tuple(p, false, "recursive");
    if (proa_j_skip_name(p, "if")) node->c = proa_j_parse_expression(p, true);
    node->flag = proa_j_skip_name(p, "recursive");
    p->loops++;
    parse_body(p, &node->body, ends);
    p->loops--;
    if (proa_j_skip_name(p, "else")) parse_whole_body(p, &node->other, "endfor");
    else proa_j_skip_name(p, "endfor");
    return node;
}

static proa_jnode *parse_if(proa_jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    proa_jnode *node = proa_j_node(p, PROA_N_IF);
    proa_jbody bodies[2] = {{0}};
    p->ifs++;
    do {
        p->at += !p->failed; /* if, elif */
        proa_j_add(p, &node->list, proa_j_parse_tuple(p, false, NULL));
        proa_jnode *branch = proa_j_node(p, PROA_N_IF);
        parse_body(p, &branch->body, ends);
        proa_j_add(p, &bodies[0], branch);
    } while (!p->failed && proa_j_at_name(p, "elif"));
    if (proa_j_skip_name(p, "else")) parse_whole_body(p, &node->other, "endif");
    else proa_j_skip_name(p, "endif");
    p->ifs--;
    node->bodies = PROA_ARENA_NEW(&p->code->arena, proa_jbody, node->list.count);
    for (int32_t i = 0; i < node->list.count; i++) node->bodies[i] = bodies[0].list[i]->body;
    return node;
}

static proa_jnode *parse_set(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_SET);
    p->at++;
    node->a = proa_j_parse_target(p, NULL, true);
    if (proa_j_skip(p, PROA_T_ASSIGN)) {
        node->b = proa_j_parse_tuple(p, true, NULL);
        return node;
    }
    node->type = PROA_N_SETBLOCK;
    node->b = proa_j_parse_filters(p, NULL, false);
    parse_whole_body(p, &node->body, "endset");
    return node;
}

static void parse_signature(proa_jparser *p, proa_jmacro_code *macro)
{
    proa_jbody defaults = {0};
    bool optional = false;
    proa_j_expect(p, PROA_T_LPAREN);
    int32_t *params = PROA_ARENA_NEW(&p->code->arena, int32_t, PROA_TEMPLATE_PARAMS_MAX);
    while (!p->failed && !proa_j_at(p, PROA_T_RPAREN)) {
        if (macro->count > 0) proa_j_expect(p, PROA_T_COMMA);
        if (macro->count == PROA_TEMPLATE_PARAMS_MAX) {
            proa_j_parse_fail(p, p->at->line, "a macro of more than %d parameters", PROA_TEMPLATE_PARAMS_MAX);
            break;
        }
        params[macro->count++] = proa_j_symbol(p->code, proa_j_expect_name(p));
        bool has = proa_j_skip(p, PROA_T_ASSIGN);
        if (optional && !has)
            proa_j_parse_fail(p, p->at->line, "non-default argument follows default argument");
        optional = has;
        proa_j_add(p, &defaults, has ? proa_j_parse_expression(p, true) : NULL);
    }
    proa_j_expect(p, PROA_T_RPAREN);
    macro->params = params;
    macro->defaults = defaults.list;
}

static proa_jmacro_code *new_macro(proa_jparser *p, proa_str name)
{
    proa_jmacro_code *macro = PROA_ARENA_NEW(&p->code->arena, proa_jmacro_code, 1);
    macro->name = name;
    macro->varargs = macro->kwargs = macro->caller = -1;
    return macro;
}

static void parse_macro_body(proa_jparser *p, proa_jmacro_code *macro, const char *end)
{
    proa_jmacro_code *outer = p->macro;
    int32_t loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    parse_whole_body(p, &macro->body, end);
    p->macro = outer;
    p->loops = loops;
}

static proa_jnode *parse_macro(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_MACRO);
    p->at++;
    proa_str name = proa_j_expect_name(p);
    node->symbol = proa_j_symbol(p->code, name);
    node->macro = new_macro(p, name);
    proa_jmacro_code *outer = p->macro;
    p->macro = node->macro; /* a default may name caller too */
    parse_signature(p, node->macro);
    p->macro = outer;
    parse_macro_body(p, node->macro, "endmacro");
    return node;
}

static proa_jnode *parse_call_block(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_CALLBLOCK);
    p->at++;
    node->macro = new_macro(p, proa_str_c("caller"));
    if (proa_j_at(p, PROA_T_LPAREN)) parse_signature(p, node->macro);
    node->a = proa_j_parse_expression(p, true);
    if (node->a->type != PROA_N_CALL) proa_j_parse_fail(p, node->line, "expected call");
    parse_macro_body(p, node->macro, "endcall");
    return node;
}

static proa_jnode *parse_filter_block(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_FILTERBLOCK);
    p->at++;
    node->a = proa_j_parse_filters(p, NULL, true);
    parse_whole_body(p, &node->body, "endfilter");
    return node;
}

static proa_jnode *parse_with(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_WITH);
    p->at++;
    while (!p->failed && !proa_j_at(p, PROA_T_BLOCK_END)) {
        if (node->list.count > 0) proa_j_expect(p, PROA_T_COMMA);
        proa_j_add(p, &node->list, proa_j_parse_target(p, NULL, false));
        proa_j_expect(p, PROA_T_ASSIGN);
        proa_j_add(p, &node->list, proa_j_parse_expression(p, true));
    }
    parse_whole_body(p, &node->body, "endwith");
    return node;
}

static proa_jnode *parse_generation(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_SCOPE);
    p->at++;
    parse_whole_body(p, &node->body, "endgeneration");
    return node;
}

static proa_jnode *parse_print(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_PRINT);
    p->at++;
    node->a = proa_j_parse_tuple(p, true, NULL);
    return node;
}

static proa_jnode *parse_jump(proa_jparser *p)
{
    bool leave = proa_j_at_name(p, "break");
    proa_jnode *node = proa_j_node(p, leave ? PROA_N_BREAK : PROA_N_CONTINUE);
    if (p->loops == 0)
        proa_j_parse_fail(p, node->line, "'%s' outside of a loop", leave ? "break" : "continue");
    p->at++;
    return node;
}

static proa_jnode *parse_statement(proa_jparser *p)
{
    static const struct {
        const char *tag;
        proa_jnode *(*parse)(proa_jparser *p);
    } tags[] = {{"for", parse_for},         {"if", parse_if},
                {"set", parse_set},         {"macro", parse_macro},
                {"call", parse_call_block}, {"filter", parse_filter_block},
                {"with", parse_with},       {"generation", parse_generation},
                {"print", parse_print},     {"break", parse_jump},
                {"continue", parse_jump}};
    char text[64];
    for (size_t i = 0; i < PROA_COUNT(tags); i++)
        if (proa_j_at_name(p, tags[i].tag)) return tags[i].parse(p);
    if (!proa_j_at(p, PROA_T_NAME)) proa_j_parse_fail(p, p->at->line, "tag name expected");
    proa_j_parse_fail(p, p->at->line, "Encountered unknown tag '%s'.", proa_j_token_text(p->at, text));
    return proa_j_node(p, PROA_N_TEXT);
}

static void parse_piece(proa_jparser *p, proa_jbody *body)
{
    proa_jnode *node;
    if (proa_j_skip(p, PROA_T_VAR_BEGIN)) {
        node = proa_j_node(p, PROA_N_PRINT);
        node->a = proa_j_parse_tuple(p, true, NULL);
        proa_j_expect(p, PROA_T_VAR_END);
    } else {
        node = proa_j_node(p, PROA_N_TEXT);
        node->value = p->at->value;
        proa_j_expect(p, PROA_T_DATA);
    }
    proa_j_add(p, body, node);
}

static void parse_until(proa_jparser *p, proa_jbody *body, const char *const *ends)
{
    int32_t line = p->at->line;
    while (!p->failed && !proa_j_at(p, PROA_T_EOF)) {
        if (!proa_j_skip(p, PROA_T_BLOCK_BEGIN)) {
            parse_piece(p, body);
            continue;
        }
        if (at_end(p, ends)) return;
        proa_jnode *node = parse_statement(p);
        proa_j_add(p, body, node);
        proa_j_expect(p, PROA_T_BLOCK_END);
    }
    if (*ends && !p->failed)
        proa_j_parse_fail(p, line, "Unexpected end of template: '%s' is missing for the block that begins here",
                          ends[1] ? ends[2] ? ends[2] : ends[1] : ends[0]);
}

proa_status proa_j_parse(proa_jcode *code, proa_str source, proa_err *err)
{
    static const char *const no_ends[] = {NULL};
    proa_jtoken *tokens;
    proa_arena_init(&code->arena);
    proa_map_init(&code->symbols, 64);
    if (source.len > (size_t)PROA_TEMPLATE_BYTES_MAX)
        return PROA_FAIL(err, LIMIT, "a template of %zu bytes, at most %lld are read", source.len,
                         (long long)PROA_TEMPLATE_BYTES_MAX);
    PROA_TRY(proa_j_lex(&tokens, &code->arena, source, err));
    proa_jparser p = {.code = code, .at = tokens, .err = err};
    parse_until(&p, &code->body, no_ends);
    code->loop = proa_j_symbol(code, proa_str_c("loop"));
    return p.failed ? PROA_INVALID : PROA_OK;
}

void proa_j_code_release(proa_jcode *code)
{
    proa_map_release(&code->symbols);
    proa_arena_release(&code->arena);
}
