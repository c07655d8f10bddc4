/* SPDX-License-Identifier: Apache-2.0
 * parse_expr.c - expressions, with Jinja's order of operators: or, and, not, comparisons, + -, ~, * / // %, **,
 * signs, then what follows a value (.x [x] (x)), filters and tests. */
#include "text/jinja/code.h"

#include "text/jinja/run.h"
#include <string.h>

static proa_jnode *parse_or(proa_jparser *p);
static proa_jnode *parse_unary(proa_jparser *p, bool with_filter);

static void add_argument(proa_jparser *p, proa_jnode *call, proa_jargument arg)
{
    if ((call->args_count & (call->args_count - 1)) == 0) { /* room doubles at each power of two */
        proa_jargument *more = PROA_ARENA_NEW(&p->code->arena, proa_jargument, call->args_count * 2 + 1);
        if (call->args_count) memcpy(more, call->args, (size_t)call->args_count * sizeof *more);
        call->args = more;
    }
    call->args[call->args_count++] = arg;
}

/* The next argument of a call; `seen` has bit 1 for a name, 2 for *, 4 for ** among those before. */
static void parse_argument(proa_jparser *p, proa_jnode *call, int *seen)
{
    proa_jargument arg = {.name = {"", 0}};
    bool bad = false;
    if (proa_j_skip(p, PROA_T_MUL)) {
        arg.stars = 1;
        bad = (*seen & 6) != 0;
        *seen |= 2;
    } else if (proa_j_skip(p, PROA_T_POW)) {
        arg.stars = 2;
        bad = (*seen & 4) != 0;
        *seen |= 4;
    } else if (proa_j_at(p, PROA_T_NAME) && p->at[1].type == PROA_T_ASSIGN) {
        arg.name = proa_j_text(p->at->value);
        p->at += 2;
        bad = (*seen & 4) != 0;
        *seen |= 1;
    } else bad = *seen != 0;
    if (bad) proa_j_parse_fail(p, p->at->line, "invalid syntax for function call expression");
    arg.value = proa_j_parse_expression(p, true);
    add_argument(p, call, arg);
}

static void parse_arguments(proa_jparser *p, proa_jnode *call)
{
    int seen = 0;
    proa_j_expect(p, PROA_T_LPAREN);
    while (!p->failed && !proa_j_at(p, PROA_T_RPAREN)) {
        if (call->args_count > 0) proa_j_expect(p, PROA_T_COMMA);
        if (proa_j_at(p, PROA_T_RPAREN)) break;
        parse_argument(p, call, &seen);
    }
    proa_j_expect(p, PROA_T_RPAREN);
}

static proa_jnode *parse_call(proa_jparser *p, proa_jnode *callee)
{
    proa_jnode *call = proa_j_node(p, PROA_N_CALL);
    call->a = callee;
    parse_arguments(p, call);
    return call;
}

static proa_jnode *constant_node(proa_jparser *p, proa_jval value)
{
    proa_jnode *node = proa_j_node(p, PROA_N_CONST);
    node->value = value;
    return node;
}

/* Adjacent strings are one. */
static proa_jnode *parse_string(proa_jparser *p)
{
    proa_jnode *node = constant_node(p, p->at->value);
    proa_buf buf;
    if (p->at[1].type != PROA_T_STRING) {
        p->at++;
        return node;
    }
    proa_buf_init(&buf, SIZE_MAX / 2);
    for (; p->at->type == PROA_T_STRING; p->at++) proa_buf_str(&buf, proa_j_text(p->at->value));
    proa_str joined = {proa_arena_strdup(&p->code->arena, proa_buf_view(&buf)), buf.len};
    node->value = proa_j_view(joined);
    proa_buf_release(&buf);
    return node;
}

static proa_jnode *parse_list(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_LIST);
    proa_j_expect(p, PROA_T_LBRACKET);
    while (!p->failed && !proa_j_at(p, PROA_T_RBRACKET)) {
        if (node->list.count > 0) proa_j_expect(p, PROA_T_COMMA);
        if (proa_j_at(p, PROA_T_RBRACKET)) break;
        proa_j_add(p, &node->list, proa_j_parse_expression(p, true));
    }
    proa_j_expect(p, PROA_T_RBRACKET);
    return node;
}

static proa_jnode *parse_dict(proa_jparser *p)
{
    proa_jnode *node = proa_j_node(p, PROA_N_DICT);
    proa_j_expect(p, PROA_T_LBRACE);
    while (!p->failed && !proa_j_at(p, PROA_T_RBRACE)) {
        if (node->list.count > 0) proa_j_expect(p, PROA_T_COMMA);
        if (proa_j_at(p, PROA_T_RBRACE)) break;
        proa_j_add(p, &node->list, proa_j_parse_expression(p, true));
        proa_j_expect(p, PROA_T_COLON);
        proa_j_add(p, &node->list, proa_j_parse_expression(p, true));
    }
    proa_j_expect(p, PROA_T_RBRACE);
    return node;
}

/* A macro learns which of its hidden names its body uses. */
static void note_name(proa_jparser *p, proa_str name, int32_t symbol)
{
    if (!p->macro) return;
    if (proa_str_is(name, "varargs")) p->macro->varargs = symbol;
    if (proa_str_is(name, "kwargs")) p->macro->kwargs = symbol;
    if (proa_str_is(name, "caller")) p->macro->caller = symbol;
}

static proa_jnode *parse_name(proa_jparser *p)
{
    static const struct {
        const char *name;
        int what; /* -1: none */
    } constants[] = {{"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", -1}, {"None", -1}};
    proa_str name = proa_j_text(p->at->value);
    for (size_t i = 0; i < PROA_COUNT(constants); i++)
        if (proa_str_is(name, constants[i].name)) {
            proa_jnode *node = constant_node(p, constants[i].what < 0 ? proa_j_none()
                                                                      : proa_j_bool(constants[i].what));
            p->at++;
            return node;
        }
    proa_jnode *node = proa_j_node(p, PROA_N_NAME);
    node->symbol = proa_j_symbol(p->code, name);
    node->value = p->at->value;
    note_name(p, name, node->symbol);
    p->at++;
    return node;
}

static proa_jnode *parse_parens(proa_jparser *p)
{
    proa_j_expect(p, PROA_T_LPAREN);
    proa_jnode *node;
    if (proa_j_at(p, PROA_T_RPAREN)) node = proa_j_node(p, PROA_N_TUPLE);
    else node = proa_j_parse_tuple(p, true, NULL);
    proa_j_expect(p, PROA_T_RPAREN);
    return node;
}

static proa_jnode *parse_primary(proa_jparser *p)
{
    char text[64];
    proa_jnode *node;
    switch (p->at->type) {
    case PROA_T_NAME: return parse_name(p);
    case PROA_T_STRING: return parse_string(p);
    case PROA_T_INT:
    case PROA_T_FLOAT: node = constant_node(p, p->at->value); break;
    case PROA_T_LPAREN: return parse_parens(p);
    case PROA_T_LBRACKET: return parse_list(p);
    case PROA_T_LBRACE: return parse_dict(p);
    default:
        proa_j_parse_fail(p, p->at->line, "unexpected '%s'", proa_j_token_text(p->at, text));
        return constant_node(p, proa_j_none());
    }
    p->at++;
    return node;
}

/* One bound of a slice, or NULL where it is left out. */
static proa_jnode *parse_bound(proa_jparser *p)
{
    if (proa_j_at(p, PROA_T_COLON) || proa_j_at(p, PROA_T_RBRACKET) || proa_j_at(p, PROA_T_COMMA))
        return NULL;
    return proa_j_parse_expression(p, true);
}

static proa_jnode *parse_slice(proa_jparser *p, proa_jnode *object, proa_jnode *first)
{
    proa_jnode *node = proa_j_node(p, PROA_N_SLICE);
    node->a = object;
    proa_j_add(p, &node->list, first);
    proa_j_expect(p, PROA_T_COLON);
    proa_j_add(p, &node->list, parse_bound(p));
    proa_j_add(p, &node->list, proa_j_skip(p, PROA_T_COLON) ? parse_bound(p) : NULL);
    return node;
}

static proa_jnode *parse_item(proa_jparser *p, proa_jnode *object)
{
    proa_jnode *node = proa_j_node(p, PROA_N_ITEM), *first;
    proa_j_expect(p, PROA_T_LBRACKET);
    node->a = object;
    first = parse_bound(p);
    if (proa_j_at(p, PROA_T_COLON)) node = parse_slice(p, object, first);
    else if (first) node->b = first;
    else proa_j_parse_fail(p, p->at->line, "expected an expression in '[]'");
    if (proa_j_at(p, PROA_T_COMMA))
        proa_j_parse_fail(p, p->at->line, "indices of several parts are not known");
    proa_j_expect(p, PROA_T_RBRACKET);
    return node;
}

static proa_jnode *parse_attr(proa_jparser *p, proa_jnode *object)
{
    proa_j_expect(p, PROA_T_DOT);
    bool number = proa_j_at(p, PROA_T_INT);
    proa_jnode *node = proa_j_node(p, number ? PROA_N_ITEM : PROA_N_ATTR);
    node->a = object;
    if (number) node->b = constant_node(p, p->at->value);
    else if (proa_j_at(p, PROA_T_NAME)) node->value = p->at->value;
    else proa_j_parse_fail(p, p->at->line, "expected name or number");
    if (!p->failed) p->at++;
    return node;
}

static proa_jnode *parse_postfix(proa_jparser *p, proa_jnode *node)
{
    while (!p->failed) {
        if (proa_j_at(p, PROA_T_DOT)) node = parse_attr(p, node);
        else if (proa_j_at(p, PROA_T_LBRACKET)) node = parse_item(p, node);
        else if (proa_j_at(p, PROA_T_LPAREN)) node = parse_call(p, node);
        else break;
    }
    return node;
}

/* Name and function of a filter or test: unknown ones are refused here, but within conditions only when they run. */
static proa_jnode *parse_function(proa_jparser *p, proa_jnode_type type)
{
    bool test = type == PROA_N_TEST;
    proa_jnode *node = proa_j_node(p, type);
    proa_str name = proa_j_expect_name(p);
    node->value = proa_j_view(name);
    node->function = proa_j_function_find(test ? proa_j_tests : proa_j_filters, name);
    if (!node->function && !p->ifs)
        proa_j_parse_fail(p, node->line, "No %s named '%.*s'.", test ? "test" : "filter", (int)name.len,
                          name.ptr);
    return node;
}

proa_jnode *proa_j_parse_filters(proa_jparser *p, proa_jnode *node, bool inline_start)
{
    while (!p->failed && (inline_start || proa_j_skip(p, PROA_T_PIPE))) {
        proa_jnode *filter = parse_function(p, PROA_N_FILTER);
        filter->a = node;
        if (proa_j_at(p, PROA_T_LPAREN)) parse_arguments(p, filter);
        node = filter;
        inline_start = false;
    }
    return node;
}

static bool begins_argument(const proa_jparser *p)
{
    switch (p->at->type) {
    case PROA_T_NAME:
        return !proa_j_at_name(p, "else") && !proa_j_at_name(p, "or") && !proa_j_at_name(p, "and");
    case PROA_T_STRING:
    case PROA_T_INT:
    case PROA_T_FLOAT:
    case PROA_T_LBRACKET:
    case PROA_T_LBRACE: return true;
    default: return false;
    }
}

static proa_jnode *parse_test(proa_jparser *p, proa_jnode *value)
{
    proa_j_skip_name(p, "is");
    bool negated = proa_j_skip_name(p, "not");
    proa_jnode *test = parse_function(p, PROA_N_TEST), *not ;
    test->a = value;
    if (proa_j_at(p, PROA_T_LPAREN)) parse_arguments(p, test);
    else if (proa_j_at_name(p, "is"))
        proa_j_parse_fail(p, p->at->line, "You cannot chain multiple tests with is");
    else if (begins_argument(p))
        add_argument(p, test, (proa_jargument){.name = {"", 0}, .value = parse_postfix(p, parse_primary(p))});
    if (!negated) return test;
    not = proa_j_node(p, PROA_N_NOT);
    not ->a = test;
    return not ;
}

static proa_jnode *parse_filter_expr(proa_jparser *p, proa_jnode *node)
{
    while (!p->failed) {
        if (proa_j_at(p, PROA_T_PIPE)) node = proa_j_parse_filters(p, node, false);
        else if (proa_j_at_name(p, "is")) node = parse_test(p, node);
        else if (proa_j_at(p, PROA_T_LPAREN)) node = parse_call(p, node);
        else break;
    }
    return node;
}

static proa_jnode *parse_unary(proa_jparser *p, bool with_filter)
{
    proa_jnode *node;
    if (!proa_j_enter(p)) return constant_node(p, proa_j_none());
    if (proa_j_at(p, PROA_T_SUB) || proa_j_at(p, PROA_T_ADD)) {
        node = proa_j_node(p, proa_j_at(p, PROA_T_SUB) ? PROA_N_NEG : PROA_N_POS);
        p->at++;
        node->a = parse_unary(p, false);
    } else node = parse_primary(p);
    node = parse_postfix(p, node);
    if (with_filter) node = parse_filter_expr(p, node);
    p->depth--;
    return node;
}

/* ---- operators: one node for a run of them on one level, so that long sums do not nest ---- */

static void add_operand(proa_jparser *p, proa_jnode *node, int op, proa_jnode *operand)
{
    uint8_t *ops = proa_arena_alloc(&p->code->arena, (size_t)node->list.count + 1);
    if (node->list.count) memcpy(ops, node->ops, (size_t)node->list.count);
    ops[node->list.count] = (uint8_t)op;
    node->ops = ops;
    proa_j_add(p, &node->list, operand);
}

static proa_jnode *begin_run(proa_jparser *p, proa_jnode_type type, proa_jnode *first)
{
    proa_jnode *node = proa_j_node(p, type);
    add_operand(p, node, 0, first);
    return node;
}

static bool at_one_of(const proa_jparser *p, const proa_jtype *types)
{
    for (; *types != PROA_T_EOF; types++)
        if (proa_j_at(p, *types)) return true;
    return false;
}

static proa_jnode *parse_run(proa_jparser *p, proa_jnode_type type, const proa_jtype *ops,
                             proa_jnode *(*operand)(proa_jparser *p))
{
    proa_jnode *first = operand(p), *node = NULL;
    while (!p->failed && at_one_of(p, ops)) {
        int op = p->at->type;
        if (!node) node = begin_run(p, type, first);
        p->at++;
        add_operand(p, node, op, operand(p));
    }
    return node ? node : first;
}

static proa_jnode *parse_signed(proa_jparser *p)
{
    return parse_unary(p, true);
}

static proa_jnode *parse_pow(proa_jparser *p)
{
    static const proa_jtype ops[] = {PROA_T_POW, PROA_T_EOF};
    return parse_run(p, PROA_N_MATH, ops, parse_signed);
}

static proa_jnode *parse_product(proa_jparser *p)
{
    static const proa_jtype ops[] = {PROA_T_MUL, PROA_T_DIV, PROA_T_FLOORDIV, PROA_T_MOD, PROA_T_EOF};
    return parse_run(p, PROA_N_MATH, ops, parse_pow);
}

static proa_jnode *parse_concat(proa_jparser *p)
{
    static const proa_jtype ops[] = {PROA_T_TILDE, PROA_T_EOF};
    return parse_run(p, PROA_N_CONCAT, ops, parse_product);
}

static proa_jnode *parse_sum(proa_jparser *p)
{
    static const proa_jtype ops[] = {PROA_T_ADD, PROA_T_SUB, PROA_T_EOF};
    return parse_run(p, PROA_N_MATH, ops, parse_concat);
}

/* The comparison that stands next, taken; 0 if there is none. */
static int take_comparison(proa_jparser *p)
{
    static const proa_jtype ops[] = {PROA_T_EQ, PROA_T_NE, PROA_T_LT, PROA_T_LE,
                                     PROA_T_GT, PROA_T_GE, PROA_T_EOF};
    if (at_one_of(p, ops)) return (p->at++)->type;
    if (proa_j_skip_name(p, "in")) return PROA_J_IN;
    if (!proa_j_at_name(p, "not") || p->at[1].type != PROA_T_NAME ||
        !proa_str_is(proa_j_text(p->at[1].value), "in"))
        return 0;
    p->at += 2;
    return PROA_J_NOT_IN;
}

static proa_jnode *parse_compare(proa_jparser *p)
{
    proa_jnode *first = parse_sum(p), *node = NULL;
    int op;
    while (!p->failed && (op = take_comparison(p)) != 0) {
        if (!node) node = begin_run(p, PROA_N_COMPARE, first);
        add_operand(p, node, op, parse_sum(p));
    }
    return node ? node : first;
}

static proa_jnode *parse_not(proa_jparser *p)
{
    if (!proa_j_at_name(p, "not")) return parse_compare(p);
    proa_jnode *node = proa_j_node(p, PROA_N_NOT);
    p->at++;
    if (proa_j_enter(p)) node->a = parse_not(p);
    else node->a = node; /* failed: never run */
    p->depth--;
    return node;
}

static proa_jnode *parse_words(proa_jparser *p, proa_jnode_type type, const char *word,
                               proa_jnode *(*operand)(proa_jparser *p))
{
    proa_jnode *first = operand(p), *node = NULL;
    while (!p->failed && proa_j_skip_name(p, word)) {
        if (!node) node = begin_run(p, type, first);
        proa_j_add(p, &node->list, operand(p));
    }
    return node ? node : first;
}

static proa_jnode *parse_and(proa_jparser *p)
{
    return parse_words(p, PROA_N_AND, "and", parse_not);
}

static proa_jnode *parse_or(proa_jparser *p)
{
    return parse_words(p, PROA_N_OR, "or", parse_and);
}

static proa_jnode *parse_condition(proa_jparser *p)
{
    proa_jnode *node = parse_or(p);
    while (!p->failed && proa_j_at_name(p, "if")) {
        proa_jnode *cond = proa_j_node(p, PROA_N_COND);
        p->at++;
        cond->a = node;
        cond->b = parse_or(p);
        if (proa_j_skip_name(p, "else")) cond->c = proa_j_parse_expression(p, true);
        node = cond;
    }
    return node;
}

proa_jnode *proa_j_parse_expression(proa_jparser *p, bool with_condition)
{
    proa_jnode *node;
    if (proa_j_enter(p)) node = with_condition ? parse_condition(p) : parse_or(p);
    else node = constant_node(p, proa_j_none());
    p->depth--;
    return node;
}

static bool tuple_ends(const proa_jparser *p, const char *end)
{
    return proa_j_at(p, PROA_T_VAR_END) || proa_j_at(p, PROA_T_BLOCK_END) || proa_j_at(p, PROA_T_RPAREN) ||
           (end && proa_j_at_name(p, end));
}

proa_jnode *proa_j_parse_tuple(proa_jparser *p, bool with_condition, const char *end)
{
    char text[64];
    if (tuple_ends(p, end))
        proa_j_parse_fail(p, p->at->line, "Expected an expression, got '%s'", proa_j_token_text(p->at, text));
    proa_jnode *first = proa_j_parse_expression(p, with_condition), *tuple;
    if (!proa_j_at(p, PROA_T_COMMA)) return first;
    tuple = proa_j_node(p, PROA_N_TUPLE);
    proa_j_add(p, &tuple->list, first);
    while (!p->failed && proa_j_skip(p, PROA_T_COMMA) && !tuple_ends(p, end))
        proa_j_add(p, &tuple->list, proa_j_parse_expression(p, with_condition));
    return tuple;
}

/* ---- targets ---- */

static proa_jnode *parse_target_name(proa_jparser *p, bool with_ns)
{
    proa_jnode *node = proa_j_node(p, PROA_N_NAME);
    proa_str name = proa_j_expect_name(p);
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < PROA_COUNT(constants); i++)
        if (proa_str_is(name, constants[i])) proa_j_parse_fail(p, node->line, "can't assign to 'const'");
    node->symbol = proa_j_symbol(p->code, name);
    node->value = proa_j_view(name);
    if (with_ns && proa_j_skip(p, PROA_T_DOT)) {
        node->type = PROA_N_NSREF;
        node->value = proa_j_view(proa_j_expect_name(p));
    }
    return node;
}

static proa_jnode *parse_target_part(proa_jparser *p, bool with_ns)
{
    proa_jnode *node;
    if (!proa_j_at(p, PROA_T_LPAREN)) return parse_target_name(p, with_ns);
    p->at++;
    if (proa_j_enter(p)) node = proa_j_parse_target(p, NULL, with_ns);
    else node = proa_j_node(p, PROA_N_TUPLE);
    p->depth--;
    proa_j_expect(p, PROA_T_RPAREN);
    return node;
}

proa_jnode *proa_j_parse_target(proa_jparser *p, const char *end, bool with_ns)
{
    proa_jnode *first = parse_target_part(p, with_ns), *tuple;
    if (!proa_j_at(p, PROA_T_COMMA)) return first;
    tuple = proa_j_node(p, PROA_N_TUPLE);
    proa_j_add(p, &tuple->list, first);
    while (!p->failed && proa_j_skip(p, PROA_T_COMMA) && !tuple_ends(p, end) && !proa_j_at(p, PROA_T_ASSIGN))
        proa_j_add(p, &tuple->list, parse_target_part(p, with_ns));
    return tuple;
}
