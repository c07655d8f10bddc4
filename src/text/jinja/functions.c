/* SPDX-License-Identifier: Apache-2.0
 * functions.c - the functions that every template may call: Jinja's own and the two that transformers adds. */
#include "text/jinja/run.h"

#include <time.h>

#define FUNCTION(name)                                                                                       \
    static proa_jval name(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call)

#define RANGE_MAX 100000 /* the sandbox's MAX_RANGE */

FUNCTION(g_range)
{
    PROA_UNUSED(self);
    PROA_UNUSED(call);
    bool one = !proa_j_given(args[1]);
    int64_t from = one ? 0 : proa_j_int_arg(run, args[0], 0), to = proa_j_int_arg(run, args[one ? 0 : 1], 0);
    int64_t step = proa_j_int_arg(run, args[2], 1), count = 0;
    if (step == 0) proa_j_fail(run, PROA_INVALID, "range() arg 3 must not be zero");
    proa_jval v = proa_j_list(run, PROA_J_RANGE, 0);
    for (int64_t at = from; (step > 0 ? at < to : at > to) && !run->failed;) {
        if (++count > RANGE_MAX)
            proa_j_fail(run, PROA_INVALID,
                        "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MAX);
        proa_j_push(run, v, proa_j_int(at));
        if (__builtin_add_overflow(at, step, &at)) break;
    }
    return v;
}

static void put_pair(proa_jrun *run, proa_jval dict, proa_jval item)
{
    proa_jval pair = proa_j_is_seq(item) ? item : proa_j_to_list(run, item);
    if (pair.seq->len != 2) proa_j_fail(run, PROA_INVALID, "dict() takes pairs");
    else proa_j_put(run, dict, pair.seq->items[0], pair.seq->items[1]);
}

/* The members of a mapping, or pairs. Members are not looked for by their key: a NaN key would not be found. */
static void put_members(proa_jrun *run, proa_jval dict, proa_jval from)
{
    proa_jval item;
    proa_jiter it;
    if (from.kind == PROA_J_DICT) {
        for (int64_t i = 0; i < from.dict->len && proa_j_charge(run, 1); i++)
            proa_j_put(run, dict, from.dict->entries[i].key, from.dict->entries[i].value);
        return;
    }
    if (!proa_j_iter(run, &it, from)) return;
    while (proa_j_next(run, &it, &item)) put_pair(run, dict, item);
}

/* dict(mapping or pairs, name=value, ...), which namespace() takes too. */
static proa_jval make_dict(proa_jrun *run, proa_jval_kind kind, const proa_jcall *call)
{
    proa_jval v = proa_j_dict(run, kind, call->named_count);
    if (call->count > 1)
        proa_j_fail(run, PROA_INVALID, "dict expected at most 1 argument, got %d", (int)call->count);
    if (call->count == 1) put_members(run, v, call->pos[0]);
    for (int32_t i = 0; i < call->named_count; i++)
        proa_j_put(run, v, proa_j_view(call->named[i].name), call->named[i].value);
    return v;
}

FUNCTION(g_dict)
{
    PROA_UNUSED(self);
    PROA_UNUSED(args);
    return make_dict(run, PROA_J_DICT, call);
}

FUNCTION(g_namespace)
{
    PROA_UNUSED(self);
    PROA_UNUSED(args);
    return make_dict(run, PROA_J_NAMESPACE, call);
}

/* The template refuses: its words, up to a NUL, are the whole error. */
FUNCTION(g_raise_exception)
{
    PROA_UNUSED(self);
    PROA_UNUSED(call);
    proa_str text = proa_j_text(proa_j_str(run, args[0]));
    if (run->failed) return self;
    run->failed = run->raised = true;
    if (text.len == 0 || text.ptr[0] == '\0') text = proa_str_c("the chat template refuses this request");
    proa_err_set(&run->err, PROA_INVALID, __FILE__, __LINE__, "%.*s", (int)(text.len < 480 ? text.len : 480),
                 text.ptr);
    return proa_j_none();
}

FUNCTION(g_strftime_now)
{
    PROA_UNUSED(self);
    PROA_UNUSED(call);
    char text[512], form[256];
    struct tm now;
    time_t seconds = time(NULL);
    proa_str format = proa_j_str_arg(run, args[0], "strftime() argument 1");
    if (format.len >= sizeof form)
        proa_j_fail(run, PROA_INVALID, "a time format of more than %zu bytes", sizeof form);
    if (run->failed || format.len == 0) return proa_j_view((proa_str){"", 0});
    snprintf(form, sizeof form, "%.*s", (int)format.len, format.ptr);
    localtime_r(&seconds, &now);
    return proa_j_string(run, (proa_str){text, strftime(text, sizeof text, form, &now)});
}

static proa_jval cycler_or_joiner(proa_jrun *run, proa_jval_kind kind, const proa_jfunction *row, proa_jval items)
{
    proa_jbound *bound = proa_j_alloc(run, sizeof *bound);
    if (!bound) return proa_j_none();
    proa_jval v = {.kind = (uint8_t)kind, .bound = bound};
    *bound = (proa_jbound){.row = row, .self = v, .items = items};
    return v;
}

FUNCTION(g_cycler)
{
    PROA_UNUSED(self);
    PROA_UNUSED(args);
    proa_jval items = proa_j_list(run, PROA_J_LIST, call->count);
    if (call->count == 0) proa_j_fail(run, PROA_INVALID, "at least one item has to be provided");
    for (int32_t i = 0; i < call->count; i++) proa_j_push(run, items, call->pos[i]);
    return cycler_or_joiner(run, PROA_J_CYCLER, proa_j_cycler_methods, items);
}

/* Nothing the first time, then the separator. */
FUNCTION(join_next)
{
    PROA_UNUSED(run);
    PROA_UNUSED(args);
    PROA_UNUSED(call);
    return self.bound->at++ ? self.bound->items : proa_j_view((proa_str){"", 0});
}

FUNCTION(g_joiner)
{
    PROA_UNUSED(self);
    PROA_UNUSED(call);
    static const proa_jfunction next = {"joiner", join_next, "", 0};
    proa_jval by = proa_j_given(args[0]) ? args[0] : proa_j_view(proa_str_c(", "));
    return cycler_or_joiner(run, PROA_J_JOINER, &next, by);
}

const proa_jfunction proa_j_globals[] = {
    {"raise_exception", g_raise_exception, "message", 1},
    {"strftime_now", g_strftime_now, "format", 1},
    {"namespace", g_namespace, NULL, 0},
    {"range", g_range, "start stop step", 1},
    {"dict", g_dict, NULL, 0},
    {"cycler", g_cycler, NULL, 0},
    {"joiner", g_joiner, "sep", 0},
    {.name = NULL},
};
