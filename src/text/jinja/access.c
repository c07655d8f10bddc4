/* SPDX-License-Identifier: Apache-2.0
 * access.c - attributes, items and slices, as the sandbox of Jinja gives them: what would change a list or a dict, and
 * what Python keeps for itself, is "unsafe" and fails when it is used. */
#include "text/jinja/run.h"

#include "text/unicode.h"
#include <string.h>

static proa_jval bind_method(proa_jrun *run, const proa_jfunction *row, proa_jval self)
{
    proa_jbound *bound = proa_j_alloc(run, sizeof *bound);
    if (!bound) return proa_j_none();
    *bound = (proa_jbound){.row = row, .self = self};
    return (proa_jval){.kind = PROA_J_METHOD, .bound = bound};
}

static bool named_in(proa_str name, const char *const *names)
{
    for (; *names; names++)
        if (proa_str_is(name, *names)) return true;
    return false;
}

static bool is_unsafe(proa_jval object, proa_str name)
{
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    if (name.len > 4 && proa_str_starts(name, proa_str_c("__")) && proa_str_ends(name, proa_str_c("__")))
        return true;
    if (object.kind == PROA_J_DICT) return named_in(name, dict);
    return object.kind == PROA_J_LIST && named_in(name, list);
}

static proa_jval loop_attr(const proa_jloop *loop, proa_str name, bool *found)
{
    int64_t at = loop->at, n = loop->items->len;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", at + 1},         {"index0", at}, {"revindex", n - at},
                   {"revindex0", n - at - 1}, {"length", n},  {"depth", loop->depth + 1},
                   {"depth0", loop->depth}};
    *found = true;
    for (size_t i = 0; i < PROA_COUNT(numbers); i++)
        if (proa_str_is(name, numbers[i].name)) return proa_j_int(numbers[i].value);
    if (proa_str_is(name, "first")) return proa_j_bool(at == 0);
    if (proa_str_is(name, "last")) return proa_j_bool(at == n - 1);
    if (proa_str_is(name, "previtem") && at > 0) return loop->items->items[at - 1];
    if (proa_str_is(name, "nextitem") && at < n - 1) return loop->items->items[at + 1];
    if (proa_str_is(name, "previtem"))
        return proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c("there is no previous item"));
    if (proa_str_is(name, "nextitem"))
        return proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c("there is no next item"));
    *found = false;
    return proa_j_none();
}

static proa_jval macro_attr(proa_jrun *run, const proa_jmacro_code *code, proa_str name, bool *found)
{
    proa_jval list;
    *found = true;
    if (proa_str_is(name, "name")) return proa_j_view(code->name);
    if (proa_str_is(name, "arguments")) {
        list = proa_j_list(run, PROA_J_TUPLE, code->count);
        for (int32_t i = 0; i < code->count; i++)
            proa_j_push(run, list, proa_j_view(run->code->names[code->params[i]]));
        return list;
    }
    *found = false;
    return proa_j_none();
}

static const proa_jfunction *methods_of(proa_jval object)
{
    static const proa_jfunction none[] = {{.name = NULL}};
    switch (object.kind) {
    case PROA_J_STRING: return proa_j_str_methods;
    case PROA_J_LIST:
    case PROA_J_TUPLE:
    case PROA_J_RANGE: return proa_j_list_methods;
    case PROA_J_DICT: return proa_j_dict_methods;
    case PROA_J_LOOP: return proa_j_loop_methods;
    case PROA_J_CYCLER: return proa_j_cycler_methods;
    default: return none;
    }
}

/* An attribute, no item. *found false: there is none of this name. */
static proa_jval find_attribute(proa_jrun *run, proa_jval object, proa_str name, bool *found)
{
    const proa_jval *place;
    const proa_jfunction *row = proa_j_function_find(methods_of(object), name);
    proa_jval v = proa_j_none();
    *found = true;
    if (is_unsafe(object, name)) return proa_j_undefined_in(PROA_J_UNDEF_UNSAFE, object, name);
    if (row && ((object.kind != PROA_J_TUPLE && object.kind != PROA_J_RANGE) || !proa_str_is(name, "copy")))
        return bind_method(run, row, object);
    *found = false;
    if (object.kind == PROA_J_LOOP) v = loop_attr(object.loop, name, found);
    else if (object.kind == PROA_J_MACRO) v = macro_attr(run, object.macro->code, name, found);
    else if (object.kind == PROA_J_CYCLER && proa_str_is(name, "current")) {
        *found = true;
        v = object.bound->items.seq->items[object.bound->at];
    } else if (object.kind == PROA_J_NAMESPACE) {
        place = proa_j_find_str(run, object, name);
        *found = place != NULL;
        if (place) v = *place;
    }
    return v;
}

proa_jval proa_j_attr_only(proa_jrun *run, proa_jval object, proa_str name)
{
    bool found;
    if (proa_j_fail_undefined(run, object)) return proa_j_none();
    proa_jval v = find_attribute(run, object, name, &found);
    return found ? v : proa_j_undefined_in(PROA_J_UNDEF_ATTR, object, name);
}

proa_jval proa_j_attr(proa_jrun *run, proa_jval object, proa_str name)
{
    bool found;
    const proa_jval *place;
    if (run->failed || proa_j_fail_undefined(run, object)) return proa_j_none();
    proa_jval v = find_attribute(run, object, name, &found);
    if (found) return v;
    place = object.kind == PROA_J_DICT ? proa_j_find_str(run, object, name) : NULL;
    return place ? *place : proa_j_undefined_in(PROA_J_UNDEF_ATTR, object, name);
}

static proa_jval char_at(proa_jrun *run, proa_jval text, int64_t i, bool *found)
{
    proa_str s = proa_j_text(text);
    int32_t c;
    if (i < 0) i += proa_utf8_count(s);
    size_t at = i < 0 ? s.len : proa_j_offset(s, i);
    proa_j_charge_text(run, at);
    *found = at < s.len;
    if (!*found) return proa_j_none();
    return proa_j_view((proa_str){s.ptr + at, (size_t)proa_char_next((proa_str){s.ptr + at, s.len - at}, &c)});
}

static proa_jval element_of(proa_jrun *run, proa_jval object, proa_jval key, bool *found)
{
    const proa_jval *place = NULL;
    int64_t i = proa_j_whole(key);
    *found = false;
    if (object.kind == PROA_J_STRING && proa_j_is_whole(key)) return char_at(run, object, i, found);
    if (proa_j_is_seq(object) && proa_j_is_whole(key)) {
        if (i < 0) i += object.seq->len;
        if (i >= 0 && i < object.seq->len) place = &object.seq->items[i];
    } else if (object.kind == PROA_J_DICT && key.kind != PROA_J_LIST && key.kind != PROA_J_DICT)
        place = proa_j_find(run, object, key);
    *found = place != NULL;
    return place ? *place : proa_j_none();
}

proa_jval proa_j_item(proa_jrun *run, proa_jval object, proa_jval key)
{
    bool found;
    if (run->failed || proa_j_fail_undefined(run, object)) return proa_j_none();
    proa_jval v = element_of(run, object, key, &found);
    if (found) return v;
    if (key.kind == PROA_J_STRING) {
        v = find_attribute(run, object, proa_j_text(key), &found);
        return found ? v : proa_j_undefined_in(PROA_J_UNDEF_ATTR, object, proa_j_text(key));
    }
    return proa_j_undefined_in(PROA_J_UNDEF_ITEM, object, proa_j_text(proa_j_repr_of(run, key)));
}

static bool all_digits(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9') return false;
    return s.len > 0 && s.len < 18;
}

proa_jval proa_j_path(proa_jrun *run, proa_jval object, proa_jval path)
{
    proa_str rest = proa_j_text(path);
    if (path.kind == PROA_J_ABSENT || path.kind == PROA_J_NONE) return object;
    if (path.kind != PROA_J_STRING) return proa_j_item(run, object, path);
    for (bool more = true; more && !run->failed;) {
        const char *dot = memchr(rest.ptr, '.', rest.len);
        proa_str part = {rest.ptr, dot ? (size_t)(dot - rest.ptr) : rest.len};
        more = dot != NULL;
        if (more) rest = (proa_str){dot + 1, rest.len - part.len - 1};
        object = proa_j_item(run, object,
                             all_digits(part) ? proa_j_int(strtoll(part.ptr, NULL, 10)) : proa_j_view(part));
    }
    return object;
}

/* ---- slices ---- */

typedef struct span {
    int64_t from, to, step;
} span;

/* Clamps a bound as Python's slice.indices does; `low` and `high` are its limits. */
static int64_t bound_of(proa_jrun *run, proa_jval v, int64_t n, int64_t otherwise, int64_t low, int64_t high)
{
    if (v.kind == PROA_J_NONE) return otherwise;
    if (!proa_j_is_whole(v)) {
        if (!proa_j_fail_undefined(run, v))
            proa_j_fail(run, PROA_INVALID, "slice indices must be integers or None");
        return otherwise;
    }
    int64_t i = proa_j_whole(v);
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

static span span_of(proa_jrun *run, const proa_jval bounds[3], int64_t n)
{
    span s = {.step = bounds[2].kind == PROA_J_NONE ? 1 : proa_j_whole(bounds[2])};
    if (bounds[2].kind != PROA_J_NONE && !proa_j_is_whole(bounds[2]))
        proa_j_fail(run, PROA_INVALID, "slice indices must be integers or None");
    else if (s.step == 0) proa_j_fail(run, PROA_INVALID, "slice step cannot be zero");
    bool back = s.step < 0;
    s.from = bound_of(run, bounds[0], n, back ? n - 1 : 0, back ? -1 : 0, back ? n - 1 : n);
    s.to = bound_of(run, bounds[1], n, back ? -1 : n, back ? -1 : 0, back ? n - 1 : n);
    if (s.step > n + 1) s.step = n + 1; /* so that no sum overflows */
    if (s.step < -n - 1) s.step = -n - 1;
    return s;
}

static proa_jval slice_text(proa_jrun *run, proa_jval text, span s)
{
    proa_str all = proa_j_text(text);
    if (s.step == 1) {
        if (s.to <= s.from) return proa_j_view((proa_str){"", 0});
        size_t from = proa_j_offset(all, s.from);
        proa_str rest = {all.ptr + from, all.len - from};
        return proa_j_view((proa_str){rest.ptr, proa_j_offset(rest, s.to - s.from)});
    }
    proa_jval chars = proa_j_to_list(run, text);
    proa_buf_clear(&run->scratch);
    for (int64_t i = s.from; (s.step > 0 ? i < s.to : i > s.to) && proa_j_charge(run, 1); i += s.step)
        proa_buf_str(&run->scratch, proa_j_text(chars.seq->items[i]));
    return proa_j_take(run, &run->scratch, 0);
}

proa_jval proa_j_slice(proa_jrun *run, proa_jval object, const proa_jval bounds[3])
{
    if (run->failed || proa_j_fail_undefined(run, object)) return proa_j_none();
    if (object.kind != PROA_J_STRING && !proa_j_is_seq(object)) {
        proa_j_fail(run, PROA_INVALID, "'%s' object is not subscriptable by a slice", proa_j_type_name(object));
        return proa_j_none();
    }
    proa_j_charge_text(run, proa_j_text(object).len);
    span s = span_of(run, bounds, proa_j_len(run, object));
    if (run->failed) return proa_j_none();
    if (object.kind == PROA_J_STRING) return slice_text(run, object, s);
    proa_jval part = proa_j_list(run, object.kind, 0);
    for (int64_t i = s.from; (s.step > 0 ? i < s.to : i > s.to) && proa_j_charge(run, 1); i += s.step)
        proa_j_push(run, part, object.seq->items[i]);
    return part;
}
