/* SPDX-License-Identifier: Apache-2.0
 * methods.c - the methods of lists, dicts, loops and cyclers that templates may call; and of all tables how a row is
 * found and reads its arguments. */
#include "text/jinja/method.h"

#include <string.h>

const proa_jfunction *proa_j_function_find(const proa_jfunction *table, proa_str name)
{
    for (; table->name; table++)
        if (proa_str_is(name, table->name)) return table;
    return NULL;
}

bool proa_j_given(proa_jval v)
{
    return v.kind != PROA_J_ABSENT;
}

int64_t proa_j_int_arg(proa_jrun *run, proa_jval v, int64_t otherwise)
{
    if (v.kind == PROA_J_ABSENT) return otherwise;
    if (proa_j_is_whole(v)) return proa_j_whole(v);
    if (!proa_j_fail_undefined(run, v))
        proa_j_fail(run, PROA_INVALID, "'%s' object cannot be interpreted as an integer", proa_j_type_name(v));
    return otherwise;
}

proa_str proa_j_str_arg(proa_jrun *run, proa_jval v, const char *what)
{
    if (v.kind != PROA_J_STRING && !run->failed && !proa_j_fail_undefined(run, v))
        proa_j_fail(run, PROA_INVALID, "%s must be str, not %s", what, proa_j_type_name(v));
    return proa_j_text(v);
}

/* ---- lists and tuples ---- */

METHOD(list_count)
{
    PROA_UNUSED(call);
    int64_t n = 0;
    for (int64_t i = 0; i < self.seq->len && !run->failed; i++)
        n += proa_j_equal(run, self.seq->items[i], args[0]);
    return proa_j_int(n);
}

METHOD(list_index)
{
    PROA_UNUSED(call);
    for (int64_t i = 0; i < self.seq->len && !run->failed; i++)
        if (proa_j_equal(run, self.seq->items[i], args[0])) return proa_j_int(i);
    proa_j_fail(run, PROA_INVALID, "the value is not in the list");
    return proa_j_none();
}

METHOD(list_copy)
{
    UNUSED_ARGS;
    return proa_j_to_list(run, self);
}

const proa_jfunction proa_j_list_methods[] = {
    {"count", list_count, "value", 1},
    {"index", list_index, "value", 1},
    {"copy", list_copy, "", 0},
    {.name = NULL},
};

/* ---- dicts ---- */

static proa_jval dict_view(proa_jrun *run, proa_jval self, const char *name, bool keys, bool values)
{
    const proa_jdict *dict = self.dict;
    proa_jval list = proa_j_list(run, PROA_J_VIEW, dict->len);
    if (run->failed) return list;
    list.seq->view = name;
    for (int64_t i = 0; i < dict->len && proa_j_charge(run, 1); i++) {
        const proa_jentry *e = &dict->entries[i];
        proa_j_push(run, list,
                    keys && values ? proa_j_pair(run, e->key, e->value)
                    : keys         ? e->key
                                   : e->value);
    }
    return list;
}

METHOD(dict_items)
{
    UNUSED_ARGS;
    return dict_view(run, self, "dict_items", true, true);
}

METHOD(dict_keys)
{
    UNUSED_ARGS;
    return dict_view(run, self, "dict_keys", true, false);
}

METHOD(dict_values)
{
    UNUSED_ARGS;
    return dict_view(run, self, "dict_values", false, true);
}

METHOD(dict_get)
{
    PROA_UNUSED(call);
    const proa_jval *place = proa_j_find(run, self, args[0]);
    if (place) return *place;
    return proa_j_given(args[1]) ? args[1] : proa_j_none();
}

METHOD(dict_copy)
{
    UNUSED_ARGS;
    proa_jval copy = proa_j_dict(run, PROA_J_DICT, self.dict->len);
    if (run->failed || !proa_j_charge(run, self.dict->len / 16) || self.dict->len == 0) return copy;
    memcpy(copy.dict->entries, self.dict->entries, (size_t)self.dict->len * sizeof(proa_jentry));
    copy.dict->len = self.dict->len;
    return copy;
}

const proa_jfunction proa_j_dict_methods[] = {
    {"items", dict_items, "", 0},   {"get", dict_get, "key default", 1}, {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0}, {"copy", dict_copy, "", 0},          {.name = NULL},
};

/* ---- loops and cyclers ---- */

METHOD(loop_cycle)
{
    PROA_UNUSED(args);
    if (call->count == 0) {
        proa_j_fail(run, PROA_INVALID, "no items for cycling given");
        return proa_j_none();
    }
    return call->pos[self.loop->at % call->count];
}

METHOD(loop_changed)
{
    PROA_UNUSED(args);
    proa_jval now = proa_j_list(run, PROA_J_TUPLE, call->count);
    for (int32_t i = 0; i < call->count; i++) proa_j_push(run, now, call->pos[i]);
    bool same = self.loop->changed.kind != PROA_J_ABSENT && proa_j_equal(run, self.loop->changed, now);
    self.loop->changed = now;
    return proa_j_bool(!same);
}

METHOD(cycler_next)
{
    UNUSED_ARGS;
    proa_jbound *bound = self.bound;
    proa_jval v = bound->items.seq->items[bound->at];
    bound->at = (bound->at + 1) % bound->items.seq->len;
    return v;
}

METHOD(cycler_reset)
{
    UNUSED_ARGS;
    self.bound->at = 0;
    return proa_j_none();
}

const proa_jfunction proa_j_loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0},
    {"changed", loop_changed, NULL, 0},
    {.name = NULL},
};

const proa_jfunction proa_j_cycler_methods[] = {
    {"next", cycler_next, "", 0},
    {"reset", cycler_reset, "", 0},
    {.name = NULL},
};
