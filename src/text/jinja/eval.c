/* SPDX-License-Identifier: Apache-2.0
 * eval.c - expressions, one function for each kind of node. */
#include "text/jinja/run.h"

#include "base/limits.h"
#include <string.h>

bool proa_j_nest(proa_jrun *run)
{
    if (++run->depth > PROA_TEMPLATE_NEST_MAX)
        proa_j_fail(run, PROA_LIMIT, "calls and expressions nested deeper than %d", PROA_TEMPLATE_NEST_MAX);
    return proa_j_charge(run, 1);
}

static proa_jval eval_const(proa_jrun *run, const proa_jnode *node)
{
    PROA_UNUSED(run);
    return node->value;
}

static proa_jval eval_name(proa_jrun *run, const proa_jnode *node)
{
    return proa_j_lookup(run, node->symbol);
}

static proa_jval eval_attr(proa_jrun *run, const proa_jnode *node)
{
    return proa_j_attr(run, proa_j_eval(run, node->a), proa_j_text(node->value));
}

static proa_jval eval_item(proa_jrun *run, const proa_jnode *node)
{
    proa_jval object = proa_j_eval(run, node->a);
    return proa_j_item(run, object, proa_j_eval(run, node->b));
}

static proa_jval eval_slice(proa_jrun *run, const proa_jnode *node)
{
    proa_jval object = proa_j_eval(run, node->a), bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = node->list.list[i] ? proa_j_eval(run, node->list.list[i]) : proa_j_none();
    return proa_j_slice(run, object, bounds);
}

/* ---- calls ---- */

typedef struct args {
    proa_jval list; /* by position */
    proa_jnamed *named;
    int32_t count, cap;
} args;

static void add_named(proa_jrun *run, args *a, proa_str name, proa_jval value)
{
    if (a->count == a->cap) {
        int32_t cap = a->cap ? a->cap * 2 : 4;
        proa_jnamed *more = proa_j_alloc(run, (size_t)cap * sizeof *more);
        if (!more) return;
        if (a->count) memcpy(more, a->named, (size_t)a->count * sizeof *more);
        a->named = more;
        a->cap = cap;
    }
    a->named[a->count++] = (proa_jnamed){name, value};
}

static void add_stars(proa_jrun *run, args *a, proa_jval value, int stars)
{
    proa_jval item;
    proa_jiter it;
    if (stars == 2 && value.kind != PROA_J_DICT) {
        proa_j_fail(run, PROA_INVALID, "argument after ** must be a mapping, not %s", proa_j_type_name(value));
        return;
    }
    if (stars == 2) {
        for (int64_t i = 0; i < value.dict->len && !run->failed; i++)
            add_named(run, a, proa_j_text(proa_j_str(run, value.dict->entries[i].key)),
                      value.dict->entries[i].value);
        return;
    }
    if (!proa_j_iter(run, &it, value)) return;
    while (proa_j_next(run, &it, &item)) proa_j_push(run, a->list, item);
}

void proa_j_eval_args(proa_jrun *run, const proa_jnode *node, proa_jcall *call)
{
    *call = (proa_jcall){.count = 0};
    if (node->args_count == 0) return;
    args a = {.list = proa_j_list(run, PROA_J_LIST, node->args_count)};
    for (int32_t i = 0; i < node->args_count && !run->failed; i++) {
        const proa_jargument *arg = &node->args[i];
        proa_jval value = proa_j_eval(run, arg->value);
        if (arg->stars) add_stars(run, &a, value, arg->stars);
        else if (arg->name.len) add_named(run, &a, arg->name, value);
        else proa_j_push(run, a.list, value);
    }
    *call = (proa_jcall){a.list.seq->items, (int32_t)a.list.seq->len, a.named, a.count};
}

/* The place of the named parameter, or -1. */
static int param_index(const char *params, proa_str name)
{
    int index = 0;
    for (const char *at = params; *at; index++) {
        size_t n = strcspn(at, " ");
        if (n == name.len && memcmp(at, name.ptr, n) == 0) return index;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static int params_count(const char *params)
{
    int count = *params != '\0';
    for (; *params; params++) count += *params == ' ';
    return count;
}

static void bind_target(proa_jrun *run, const proa_jfunction *row, const proa_jcall *call, proa_jval *bound)
{
    int count = params_count(row->params), given = 0;
    if (call->count > count)
        proa_j_fail(run, PROA_INVALID, "%s() takes at most %d arguments (%d given)", row->name, count,
                    (int)call->count);
    for (int i = 0; i < count && i < call->count; i++) bound[i] = call->pos[i];
    for (int32_t i = 0; i < call->named_count; i++) {
        proa_str name = call->named[i].name;
        int at = param_index(row->params, name);
        if (at < 0 || bound[at].kind != PROA_J_ABSENT) {
            proa_j_fail(run, PROA_INVALID, "%s() got an unexpected or repeated argument '%.*s'", row->name,
                        (int)name.len, name.ptr);
            return;
        }
        bound[at] = call->named[i].value;
    }
    for (int i = 0; i < row->needed; i++) given += bound[i].kind != PROA_J_ABSENT;
    if (given < row->needed) proa_j_fail(run, PROA_INVALID, "%s() misses an argument", row->name);
}

/* What is done with a text mostly goes over all of it, and over the texts among the arguments. */
static void charge_texts(proa_jrun *run, proa_jval self, const proa_jval bound[PROA_J_ARGS_MAX])
{
    size_t bytes = proa_j_text(self).len;
    for (int i = 0; i < PROA_J_ARGS_MAX; i++) bytes += proa_j_text(bound[i]).len;
    proa_j_charge_text(run, bytes);
}

proa_jval proa_j_apply(proa_jrun *run, const proa_jfunction *row, proa_jval self, const proa_jcall *call)
{
    proa_jval bound[PROA_J_ARGS_MAX] = {{.kind = PROA_J_ABSENT}};
    if (row->params) bind_target(run, row, call, bound);
    charge_texts(run, self, bound);
    if (run->failed) return proa_j_none();
    proa_jval v = row->fn(run, self, bound, call);
    bool made = v.kind == PROA_J_ITERATOR && (self.kind != PROA_J_ITERATOR || v.seq != self.seq);
    return made ? proa_j_lazily(run, v) : v;
}

proa_jval proa_j_call(proa_jrun *run, proa_jval callee, const proa_jcall *call)
{
    if (run->failed || proa_j_fail_undefined(run, callee)) return proa_j_none();
    if (callee.kind == PROA_J_MACRO)
        return proa_j_call_macro(run, callee.macro, call, (proa_jval){.kind = PROA_J_ABSENT});
    if (callee.kind == PROA_J_LOOP && call->count == 1)
        return proa_j_call_loop(run, callee.loop, call->pos[0]);
    if (callee.kind >= PROA_J_FUNCTION && callee.kind != PROA_J_LOOP)
        return proa_j_apply(run, callee.bound->row, callee.bound->self, call);
    proa_j_fail(run, PROA_INVALID, "'%s' object is not callable", proa_j_type_name(callee));
    return proa_j_none();
}

static proa_jval eval_call(proa_jrun *run, const proa_jnode *node)
{
    proa_jcall call;
    proa_jval callee = proa_j_eval(run, node->a);
    proa_j_eval_args(run, node, &call);
    run->line = node->line;
    return proa_j_call(run, callee, &call);
}

static proa_jval eval_function(proa_jrun *run, const proa_jnode *node)
{
    proa_jcall call;
    proa_jval self = proa_j_eval(run, node->a);
    proa_j_eval_args(run, node, &call);
    run->line = node->line;
    if (node->function) return proa_j_apply(run, node->function, self, &call);
    proa_j_fail(run, PROA_INVALID, "No %s named '%.*s' found.", node->type == PROA_N_TEST ? "test" : "filter",
                (int)node->value.len, node->value.s);
    return proa_j_none();
}

/* ---- operators ---- */

static proa_jval eval_not(proa_jrun *run, const proa_jnode *node)
{
    return proa_j_bool(!proa_j_truth(proa_j_eval(run, node->a)));
}

static proa_jval eval_sign(proa_jrun *run, const proa_jnode *node)
{
    return proa_j_negate(run, proa_j_eval(run, node->a), node->type == PROA_N_NEG);
}

/* The operand that decides, as in Python. */
static proa_jval eval_and_or(proa_jrun *run, const proa_jnode *node)
{
    proa_jval v = proa_j_none();
    for (int32_t i = 0; i < node->list.count && !run->failed; i++) {
        v = proa_j_eval(run, node->list.list[i]);
        if (proa_j_truth(v) == (node->type == PROA_N_OR)) break;
    }
    return v;
}

static proa_jval eval_math(proa_jrun *run, const proa_jnode *node)
{
    proa_jval v = proa_j_eval(run, node->list.list[0]);
    for (int32_t i = 1; i < node->list.count && !run->failed; i++) {
        proa_jval right = proa_j_eval(run, node->list.list[i]);
        run->line = node->line;
        if (!run->failed) v = proa_j_math(run, node->ops[i], v, right);
    }
    return v;
}

static proa_jval eval_concat(proa_jrun *run, const proa_jnode *node)
{
    proa_jval parts = proa_j_list(run, PROA_J_LIST, node->list.count);
    size_t total = 0, at = 0;
    for (int32_t i = 0; i < node->list.count && !run->failed; i++) {
        proa_jval part = proa_j_str(run, proa_j_eval(run, node->list.list[i]));
        proa_j_push(run, parts, part);
        total += part.len;
    }
    char *text = run->failed ? NULL : proa_j_alloc(run, total + 1);
    if (!text) return proa_j_none();
    for (int64_t i = 0; i < parts.seq->len; i++) {
        memcpy(text + at, parts.seq->items[i].s, parts.seq->items[i].len);
        at += parts.seq->items[i].len;
    }
    return proa_j_view((proa_str){text, total});
}

static bool comparison_holds(proa_jrun *run, int op, proa_jval a, proa_jval b)
{
    int order;
    switch (op) {
    case PROA_T_EQ: return proa_j_equal(run, a, b);
    case PROA_T_NE: return !proa_j_equal(run, a, b);
    case PROA_J_IN: return proa_j_contains(run, b, a);
    case PROA_J_NOT_IN: return !proa_j_contains(run, b, a);
    case PROA_T_LT: return proa_j_compare(run, a, b, "<") < 0;
    case PROA_T_LE: return proa_j_compare(run, a, b, "<=") <= 0;
    case PROA_T_GT: order = proa_j_compare(run, a, b, ">"); break;
    default: order = proa_j_compare(run, a, b, ">=") + 1; /* >= 0 is > 0 for one more */
    }
    return order > 0 && order < 2 + (op == PROA_T_GE); /* 2 stands for NaN */
}

static proa_jval eval_compare(proa_jrun *run, const proa_jnode *node)
{
    proa_jval left = proa_j_eval(run, node->list.list[0]), right;
    for (int32_t i = 1; i < node->list.count && !run->failed; i++) {
        right = proa_j_eval(run, node->list.list[i]);
        run->line = node->line;
        if (run->failed || !comparison_holds(run, node->ops[i], left, right)) return proa_j_bool(false);
        left = right;
    }
    return proa_j_bool(true);
}

static proa_jval eval_cond(proa_jrun *run, const proa_jnode *node)
{
    static const char otherwise[] =
        "the inline if-expression evaluated to false and no else section was defined.";
    if (proa_j_truth(proa_j_eval(run, node->b))) return proa_j_eval(run, node->a);
    if (node->c) return proa_j_eval(run, node->c);
    return proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c(otherwise));
}

/* ---- literals ---- */

static proa_jval eval_list(proa_jrun *run, const proa_jnode *node)
{
    proa_jval_kind kind = node->type == PROA_N_TUPLE ? PROA_J_TUPLE : PROA_J_LIST;
    proa_jval v = proa_j_list(run, kind, node->list.count);
    for (int32_t i = 0; i < node->list.count && !run->failed; i++)
        proa_j_push(run, v, proa_j_eval(run, node->list.list[i]));
    return v;
}

static proa_jval eval_dict(proa_jrun *run, const proa_jnode *node)
{
    proa_jval v = proa_j_dict(run, PROA_J_DICT, node->list.count / 2);
    for (int32_t i = 0; i + 1 < node->list.count && !run->failed; i += 2) {
        proa_jval key = proa_j_eval(run, node->list.list[i]);
        proa_j_put(run, v, key, proa_j_eval(run, node->list.list[i + 1]));
    }
    return v;
}

proa_jval proa_j_eval(proa_jrun *run, const proa_jnode *node)
{
    static proa_jval (*const kinds[])(proa_jrun *, const proa_jnode *) = {
        [PROA_N_CONST] = eval_const,     [PROA_N_NAME] = eval_name,     [PROA_N_ATTR] = eval_attr,
        [PROA_N_ITEM] = eval_item,       [PROA_N_SLICE] = eval_slice,   [PROA_N_CALL] = eval_call,
        [PROA_N_FILTER] = eval_function, [PROA_N_TEST] = eval_function, [PROA_N_NOT] = eval_not,
        [PROA_N_NEG] = eval_sign,        [PROA_N_POS] = eval_sign,      [PROA_N_AND] = eval_and_or,
        [PROA_N_OR] = eval_and_or,       [PROA_N_MATH] = eval_math,     [PROA_N_CONCAT] = eval_concat,
        [PROA_N_COMPARE] = eval_compare, [PROA_N_COND] = eval_cond,     [PROA_N_LIST] = eval_list,
        [PROA_N_TUPLE] = eval_list,      [PROA_N_DICT] = eval_dict,
    };
    proa_jval v = proa_j_none();
    run->line = node->line;
    if (proa_j_nest(run) && node->type < PROA_COUNT(kinds)) v = kinds[node->type](run, node);
    run->depth--;
    return v;
}
