/* SPDX-License-Identifier: Apache-2.0
 * exec.c - statements, scopes, macros; a rendering from its beginning to its end.
 * Scopes are Jinja's: each turn of a loop, a macro, with, and blocks that make text have one of their own; if
 * has none. */
#include "text/jinja/run.h"

#include "base/limits.h"
#include <string.h>

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static flow exec_body(proa_jrun *run, const proa_jbody *body);

/* ---- scopes ---- */

proa_jframe *proa_j_frame(proa_jrun *run, proa_jframe *outer)
{
    static proa_jframe none; /* used when memory has run out; never written to */
    proa_jframe *frame = proa_j_alloc(run, sizeof *frame);
    if (!frame) return &none;
    frame->outer = outer;
    return frame;
}

void proa_j_assign(proa_jrun *run, proa_jframe *frame, int32_t symbol, proa_jval value)
{
    if (run->failed) return;
    for (int32_t i = 0; i < frame->count; i++)
        if (frame->slots[i].symbol == symbol) {
            frame->slots[i].value = value;
            return;
        }
    if (frame->count == frame->cap) {
        int32_t cap = frame->cap ? frame->cap * 2 : 4;
        proa_jslot *more = proa_j_alloc(run, (size_t)cap * sizeof *more);
        if (!more) return;
        if (frame->count) memcpy(more, frame->slots, (size_t)frame->count * sizeof *more);
        frame->slots = more;
        frame->cap = cap;
    }
    frame->slots[frame->count++] = (proa_jslot){symbol, value};
}

static bool from_input(proa_jrun *run, const proa_jinput *input, proa_str name, proa_jval *value)
{
    if (input->name) {
        if (!proa_str_is(name, input->name)) return false;
        *value = input->make ? input->make(run, input->json) : proa_j_from_json(run, input->json);
        return true;
    }
    for (proa_json_iter it = proa_json_begin(input->json); proa_json_next(&it);)
        if (proa_str_eq(it.key, name)) {
            *value = proa_j_from_json(run, it.value);
            return true;
        }
    return false;
}

/* A variable of the inputs, or a function of Jinja's, or undefined. */
static proa_jval lookup_global(proa_jrun *run, int32_t symbol)
{
    proa_str name = run->code->names[symbol];
    const proa_jfunction *row = proa_j_function_find(proa_j_globals, name);
    proa_jval value;
    for (int i = 0; i < run->inputs_count; i++)
        if (from_input(run, &run->inputs[i], name, &value)) return value;
    if (!row) return proa_j_undefined(PROA_J_UNDEF_NAME, name);
    proa_jbound *bound = proa_j_alloc(run, sizeof *bound);
    if (!bound) return proa_j_none();
    bound->row = row;
    return (proa_jval){.kind = PROA_J_FUNCTION, .bound = bound};
}

proa_jval proa_j_lookup(proa_jrun *run, int32_t symbol)
{
    for (const proa_jframe *frame = run->frame; frame; frame = frame->outer)
        for (int32_t i = 0; i < frame->count; i++)
            if (frame->slots[i].symbol == symbol) return frame->slots[i].value;
    if (run->globals[symbol].kind == PROA_J_ABSENT) run->globals[symbol] = lookup_global(run, symbol);
    return run->globals[symbol];
}

/* ---- targets ---- */

static void assign_namespace(proa_jrun *run, const proa_jnode *target, proa_jval value)
{
    proa_jval ns = proa_j_lookup(run, target->symbol);
    if (ns.kind != PROA_J_NAMESPACE) {
        proa_j_fail(run, PROA_INVALID, "cannot assign attribute on non-namespace object");
        return;
    }
    if (target->value.s[0] == '_')
        proa_j_fail(run, PROA_INVALID, "a namespace takes no attribute that begins with an underscore");
    proa_j_put(run, ns, target->value, value);
}

static void assign_target(proa_jrun *run, const proa_jnode *target, proa_jval value)
{
    if (run->failed) return;
    if (target->type == PROA_N_NAME) proa_j_assign(run, run->frame, target->symbol, value);
    else if (target->type == PROA_N_NSREF) assign_namespace(run, target, value);
    else {
        int32_t want = target->list.count;
        proa_jval list = proa_j_is_seq(value) ? value : proa_j_to_list(run, value);
        if (!run->failed && list.seq->len != want)
            proa_j_fail(run, PROA_INVALID, "%lld values to unpack, %d expected", (long long)list.seq->len, want);
        for (int32_t i = 0; i < want && !run->failed; i++)
            assign_target(run, target->list.list[i], list.seq->items[i]);
    }
}

/* ---- text that is caught instead of written ---- */

static proa_jval capture_body(proa_jrun *run, const proa_jbody *body, flow *after)
{
    size_t from = run->out->len;
    *after = exec_body(run, body);
    return proa_j_take(run, run->out, from);
}

static void enter_scope(proa_jrun *run)
{
    run->frame = proa_j_frame(run, run->frame);
}

static void leave_scope(proa_jrun *run)
{
    if (run->frame->outer) run->frame = run->frame->outer;
}

/* Renders a body in its own scope and returns the text. */
static proa_jval capture_scope(proa_jrun *run, const proa_jbody *body)
{
    flow after;
    proa_jframe *outer = run->frame;
    enter_scope(run);
    proa_jval text = capture_body(run, body, &after);
    run->frame = outer;
    return text;
}

/* ---- loops ---- */

/* The items that pass the loop's condition. */
static proa_jseq *loop_items(proa_jrun *run, const proa_jnode *node, proa_jval over)
{
    proa_jval all = over, passed, item;
    proa_jiter it;
    if (!proa_j_is_seq(over) || node->c) all = proa_j_to_list(run, over);
    if (!node->c) return all.seq;
    passed = proa_j_list(run, PROA_J_LIST, 0);
    if (!proa_j_iter(run, &it, all)) return passed.seq;
    while (proa_j_next(run, &it, &item)) {
        proa_jframe *outer = run->frame;
        enter_scope(run);
        assign_target(run, node->a, item);
        bool pass = proa_j_truth(proa_j_eval(run, node->c));
        run->frame = outer;
        if (pass) proa_j_push(run, passed, item);
    }
    return passed.seq;
}

static void run_loop(proa_jrun *run, proa_jloop *loop)
{
    proa_jframe *outer = run->frame, *frame = NULL;
    flow after = FLOW_ON;
    for (loop->at = 0; loop->at < loop->items->len && after != FLOW_BREAK && proa_j_charge(run, 1); loop->at++) {
        if (!frame || frame->kept) frame = proa_j_frame(run, outer);
        frame->count = 0;
        run->frame = frame;
        proa_j_assign(run, frame, run->code->loop, (proa_jval){.kind = PROA_J_LOOP, .loop = loop});
        assign_target(run, loop->node->a, loop->items->items[loop->at]);
        after = exec_body(run, &loop->node->body);
    }
    run->frame = outer;
    if (loop->items->len > 0) return;
    if (loop->node->other.count == 0) return;
    enter_scope(run);
    exec_body(run, &loop->node->other);
    leave_scope(run);
    run->frame = outer;
}

static void begin_loop(proa_jrun *run, const proa_jnode *node, proa_jval over, int64_t depth)
{
    proa_jloop *loop = proa_j_alloc(run, sizeof *loop);
    if (!loop) return;
    *loop = (proa_jloop){.node = node, .frame = run->frame, .depth = depth};
    loop->items = loop_items(run, node, over);
    if (!run->failed) run_loop(run, loop);
}

static flow exec_for(proa_jrun *run, const proa_jnode *node)
{
    begin_loop(run, node, proa_j_eval(run, node->b), 0);
    return FLOW_ON;
}

proa_jval proa_j_call_loop(proa_jrun *run, const proa_jloop *loop, proa_jval over)
{
    proa_jframe *frame = run->frame;
    size_t from = run->out->len;
    if (!loop->node->flag)
        proa_j_fail(run, PROA_INVALID, "The loop must have the 'recursive' marker to be called recursively.");
    if (++run->macros > PROA_TEMPLATE_DEPTH_MAX)
        proa_j_fail(run, PROA_LIMIT, "loops called deeper than %d", PROA_TEMPLATE_DEPTH_MAX);
    run->frame = loop->frame;
    if (!run->failed) begin_loop(run, loop->node, over, loop->depth + 1);
    run->macros--;
    run->frame = frame;
    return proa_j_take(run, run->out, from);
}

/* ---- macros ---- */

static const proa_jnamed *find_named(const proa_jcall *call, proa_str name)
{
    for (int32_t i = 0; i < call->named_count; i++)
        if (proa_str_eq(call->named[i].name, name)) return &call->named[i];
    return NULL;
}

static void bind_param(proa_jrun *run, const proa_jmacro_code *code, int32_t i, const proa_jcall *call)
{
    proa_str name = run->code->names[code->params[i]];
    const proa_jnamed *named = find_named(call, name);
    proa_jval value;
    if (i < call->count) value = call->pos[i];
    else if (named) value = named->value;
    else if (code->defaults[i]) value = proa_j_eval(run, code->defaults[i]);
    else {
        char *text = proa_arena_printf(&run->arena, "parameter '%.*s' was not provided", (int)name.len, name.ptr);
        value = proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c(text));
    }
    proa_j_assign(run, run->frame, code->params[i], value);
}

static bool is_param(const proa_jrun *run, const proa_jmacro_code *code, int32_t from, proa_str name)
{
    for (int32_t i = from; i < code->count; i++)
        if (proa_str_eq(run->code->names[code->params[i]], name)) return true;
    return false;
}

/* The remaining arguments become varargs and kwargs, or are refused if the macro does not use them. */
static void bind_rest(proa_jrun *run, const proa_jmacro_code *code, const proa_jcall *call, proa_jval *caller)
{
    proa_jval more = proa_j_list(run, PROA_J_TUPLE, 0), named = proa_j_dict(run, PROA_J_DICT, 0);
    for (int32_t i = code->count; i < call->count; i++) proa_j_push(run, more, call->pos[i]);
    for (int32_t i = 0; i < call->named_count; i++) {
        proa_str name = call->named[i].name;
        if (is_param(run, code, call->count, name)) continue;
        if (proa_str_is(name, "caller") && code->caller >= 0) *caller = call->named[i].value;
        else proa_j_put(run, named, proa_j_view(name), call->named[i].value);
    }
    if (code->varargs >= 0) proa_j_assign(run, run->frame, code->varargs, more);
    else if (more.seq->len > 0)
        proa_j_fail(run, PROA_INVALID, "macro '%.*s' takes not more than %d argument(s)", (int)code->name.len,
                    code->name.ptr, (int)code->count);
    if (code->kwargs >= 0) proa_j_assign(run, run->frame, code->kwargs, named);
    else if (named.dict->len > 0)
        proa_j_fail(run, PROA_INVALID, "macro '%.*s' takes no keyword argument '%.*s'", (int)code->name.len,
                    code->name.ptr, (int)named.dict->entries[0].key.len, named.dict->entries[0].key.s);
}

proa_jval proa_j_call_macro(proa_jrun *run, const proa_jmacro *macro, const proa_jcall *call, proa_jval caller)
{
    static const char no_caller[] = "No caller defined";
    const proa_jmacro_code *code = macro->code;
    proa_jframe *frame = run->frame;
    proa_jval text = proa_j_none();
    flow after;
    if (++run->macros > PROA_TEMPLATE_DEPTH_MAX)
        proa_j_fail(run, PROA_LIMIT, "macros called deeper than %d", PROA_TEMPLATE_DEPTH_MAX);
    run->frame = proa_j_frame(run, macro->frame);
    bind_rest(run, code, call, &caller);
    if (caller.kind == PROA_J_ABSENT) caller = proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c(no_caller));
    if (code->caller >= 0) proa_j_assign(run, run->frame, code->caller, caller);
    for (int32_t i = 0; i < code->count && !run->failed; i++) bind_param(run, code, i, call);
    if (!run->failed) text = capture_body(run, &code->body, &after);
    run->frame = frame;
    run->macros--;
    return text;
}

static proa_jval make_macro(proa_jrun *run, const proa_jmacro_code *code)
{
    proa_jmacro *macro = proa_j_alloc(run, sizeof *macro);
    if (!macro) return proa_j_none();
    *macro = (proa_jmacro){code, run->frame};
    for (proa_jframe *frame = run->frame; frame && !frame->kept && !run->failed; frame = frame->outer)
        frame->kept = true;
    return (proa_jval){.kind = PROA_J_MACRO, .macro = macro};
}

static flow exec_macro(proa_jrun *run, const proa_jnode *node)
{
    proa_j_assign(run, run->frame, node->symbol, make_macro(run, node->macro));
    return FLOW_ON;
}

static flow exec_call_block(proa_jrun *run, const proa_jnode *node)
{
    proa_jcall call;
    proa_jval callee = proa_j_eval(run, node->a->a), caller, text;
    proa_j_eval_args(run, node->a, &call);
    run->line = node->line;
    caller = make_macro(run, node->macro);
    if (run->failed || proa_j_fail_undefined(run, callee)) return FLOW_ON;
    if (callee.kind == PROA_J_MACRO && callee.macro->code->caller < 0)
        proa_j_fail(run, PROA_INVALID, "macro '%.*s' takes no keyword argument 'caller'",
                    (int)callee.macro->code->name.len, callee.macro->code->name.ptr);
    if (callee.kind == PROA_J_MACRO) text = proa_j_call_macro(run, callee.macro, &call, caller);
    else text = proa_j_call(run, callee, &call);
    proa_j_print(run, run->out, text);
    return FLOW_ON;
}

/* ---- the other statements ---- */

static flow exec_text(proa_jrun *run, const proa_jnode *node)
{
    proa_j_print(run, run->out, node->value);
    return FLOW_ON;
}

static flow exec_print(proa_jrun *run, const proa_jnode *node)
{
    proa_jval v = proa_j_eval(run, node->a);
    if (!run->failed) proa_j_print(run, run->out, v);
    return FLOW_ON;
}

static flow exec_if(proa_jrun *run, const proa_jnode *node)
{
    for (int32_t i = 0; i < node->list.count && !run->failed; i++)
        if (proa_j_truth(proa_j_eval(run, node->list.list[i]))) return exec_body(run, &node->bodies[i]);
    return exec_body(run, &node->other);
}

static flow exec_set(proa_jrun *run, const proa_jnode *node)
{
    proa_jval value = proa_j_eval(run, node->b);
    run->line = node->line;
    assign_target(run, node->a, value);
    return FLOW_ON;
}

/* The filters of a block: the innermost gets the text. */
static proa_jval filter_text(proa_jrun *run, const proa_jnode *filter, proa_jval text)
{
    proa_jcall call;
    if (!filter) return text;
    if (proa_j_nest(run)) text = filter_text(run, filter->a, text);
    run->depth--;
    if (run->failed) return text;
    run->line = filter->line;
    proa_j_eval_args(run, filter, &call);
    if (!run->failed && filter->function) return proa_j_apply(run, filter->function, text, &call);
    proa_j_fail(run, PROA_INVALID, "No filter named '%.*s' found.", (int)filter->value.len, filter->value.s);
    return text;
}

static flow exec_set_block(proa_jrun *run, const proa_jnode *node)
{
    proa_jval text = filter_text(run, node->b, capture_scope(run, &node->body));
    assign_target(run, node->a, text);
    return FLOW_ON;
}

static flow exec_filter_block(proa_jrun *run, const proa_jnode *node)
{
    proa_jval text = filter_text(run, node->a, capture_scope(run, &node->body));
    if (!run->failed) proa_j_print(run, run->out, text);
    return FLOW_ON;
}

/* All values are evaluated in the outer scope before the first is bound. */
static flow exec_with(proa_jrun *run, const proa_jnode *node)
{
    proa_jframe *outer = run->frame;
    int32_t count = node->list.count;
    proa_jval values = proa_j_list(run, PROA_J_LIST, count / 2);
    flow after = FLOW_ON;
    for (int32_t i = 1; i < count; i += 2) proa_j_push(run, values, proa_j_eval(run, node->list.list[i]));
    if (run->failed) return after;
    enter_scope(run);
    for (int32_t i = 0; i + 1 < count; i += 2)
        assign_target(run, node->list.list[i], values.seq->items[i / 2]);
    if (!run->failed) after = exec_body(run, &node->body);
    run->frame = outer;
    return after;
}

static flow exec_scope(proa_jrun *run, const proa_jnode *node)
{
    proa_jframe *outer = run->frame;
    enter_scope(run);
    flow after = exec_body(run, &node->body);
    run->frame = outer;
    return after;
}

static flow exec_jump(proa_jrun *run, const proa_jnode *node)
{
    PROA_UNUSED(run);
    return node->type == PROA_N_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
}

static flow exec_body(proa_jrun *run, const proa_jbody *body)
{
    static flow (*const kinds[])(proa_jrun *, const proa_jnode *) = {
        [PROA_N_TEXT] = exec_text,
        [PROA_N_PRINT] = exec_print,
        [PROA_N_FOR] = exec_for,
        [PROA_N_IF] = exec_if,
        [PROA_N_SET] = exec_set,
        [PROA_N_SETBLOCK] = exec_set_block,
        [PROA_N_MACRO] = exec_macro,
        [PROA_N_CALLBLOCK] = exec_call_block,
        [PROA_N_FILTERBLOCK] = exec_filter_block,
        [PROA_N_WITH] = exec_with,
        [PROA_N_SCOPE] = exec_scope,
        [PROA_N_BREAK] = exec_jump,
        [PROA_N_CONTINUE] = exec_jump,
    };
    flow after = FLOW_ON;
    proa_j_nest(run);
    for (int32_t i = 0; i < body->count && after == FLOW_ON && proa_j_charge(run, 1); i++) {
        run->line = body->list[i]->line;
        after = kinds[body->list[i]->type](run, body->list[i]);
    }
    run->depth--;
    return after;
}

void proa_j_exec(proa_jrun *run, const proa_jbody *body)
{
    exec_body(run, body);
}

proa_status proa_j_run(const proa_jcode *code, const proa_jinput *inputs, int count, proa_buf *out, proa_err *err)
{
    proa_jrun run = {.code = code, .inputs = inputs, .inputs_count = count, .out = out, .line = 1};
    size_t from = out->len;
    proa_arena_init(&run.arena);
    proa_buf_init(&run.scratch, (size_t)PROA_TEMPLATE_MEMORY_MAX);
    run.globals = proa_j_alloc(&run, (size_t)code->count * sizeof *run.globals);
    run.frame = proa_j_frame(&run, NULL);
    proa_j_exec(&run, &code->body);
    if (out->full) proa_j_fail(&run, PROA_LIMIT, "a text of more than %zu bytes", out->bytes_max);
    proa_status status = run.failed ? run.err.status : PROA_OK;
    if (run.failed && out->ptr) {
        out->len = from;
        out->ptr[from] = '\0';
    }
    if (run.failed) proa_err_set(err, status, run.err.file, run.err.line, "%s", run.err.text);
    proa_buf_release(&run.scratch);
    proa_arena_release(&run.arena);
    return status;
}
