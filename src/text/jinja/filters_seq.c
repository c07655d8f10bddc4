/* SPDX-License-Identifier: Apache-2.0
 * filters_seq.c - filters that walk over a sequence. What is lazy in Jinja is made at once here, but still is an
 * iterator: it has no length, is always true and can be walked once. */
#include "text/jinja/filters.h"

#include "text/unicode.h"
#include <string.h>

#define SEQ_FILTER(name)                                                                                     \
    proa_jval name(proa_jrun *run, proa_jval self, const proa_jval *args, const proa_jcall *call)

static proa_jval undefined_value(const char *text)
{
    return proa_j_undefined(PROA_J_UNDEF_TEXT, proa_str_c(text));
}

/* A key for sorting and comparing: the attribute, in lower case unless `exact`. */
static proa_jval key_of(proa_jrun *run, proa_jval item, proa_jval attribute, bool exact)
{
    proa_jval key = proa_j_path(run, item, attribute);
    return exact || key.kind != PROA_J_STRING ? key : proa_j_lower(run, proa_j_text(key));
}

SEQ_FILTER(proa_f_join)
{
    PROA_UNUSED(call);
    proa_str by = proa_j_given(args[0]) ? proa_j_text(proa_j_str(run, args[0])) : (proa_str){"", 0};
    proa_jval item;
    proa_jiter it;
    proa_buf out;
    if (!proa_j_iter(run, &it, self)) return self;
    proa_buf_init(&out, (size_t)1 << 30);
    for (int64_t i = 0; proa_j_next(run, &it, &item); i++) {
        if (i > 0) proa_buf_str(&out, by);
        proa_j_print(run, &out, proa_j_path(run, item, args[1]));
    }
    proa_jval v = proa_j_take(run, &out, 0);
    proa_buf_release(&out);
    return v;
}

SEQ_FILTER(proa_f_first)
{
    FILTER_UNUSED;
    proa_jval item;
    proa_jiter it;
    if (!proa_j_iter(run, &it, self)) return self;
    return proa_j_next(run, &it, &item) ? item : undefined_value("No first item, sequence was empty.");
}

SEQ_FILTER(proa_f_last)
{
    FILTER_UNUSED;
    if (self.kind == PROA_J_ITERATOR || !proa_j_can_iter(self)) {
        proa_j_fail(run, PROA_INVALID, "'%s' object is not reversible", proa_j_type_name(self));
        return self;
    }
    proa_jseq *seq = proa_j_to_list(run, self).seq;
    return seq->len > 0 ? seq->items[seq->len - 1] : undefined_value("No last item, sequence was empty.");
}

SEQ_FILTER(proa_f_list)
{
    FILTER_UNUSED;
    return proa_j_to_list(run, self);
}

SEQ_FILTER(proa_f_reverse)
{
    FILTER_UNUSED;
    bool text = self.kind == PROA_J_STRING;
    proa_jval list = proa_j_to_list(run, self);
    proa_jval back = proa_j_list(run, self.kind == PROA_J_ITERATOR ? PROA_J_LIST : PROA_J_ITERATOR,
                                 list.seq->len);
    if (text) proa_buf_clear(&run->scratch);
    for (int64_t i = list.seq->len; i-- > 0 && !run->failed;) {
        if (text) proa_buf_str(&run->scratch, proa_j_text(list.seq->items[i]));
        else proa_j_push(run, back, list.seq->items[i]);
    }
    if (run->failed) return proa_j_none();
    return text ? proa_j_take(run, &run->scratch, 0) : back;
}

SEQ_FILTER(proa_f_items)
{
    const proa_jfunction *items = proa_j_function_find(proa_j_dict_methods, proa_str_c("items"));
    if (self.kind != PROA_J_DICT && self.kind != PROA_J_UNDEFINED)
        proa_j_fail(run, PROA_INVALID, "Can only get item pairs from a mapping.");
    if (self.kind != PROA_J_DICT) return proa_j_list(run, PROA_J_ITERATOR, 0);
    proa_jval list = items->fn(run, self, args, call);
    list.kind = PROA_J_ITERATOR;
    return list;
}

/* ---- map, select and kin ---- */

/* The arguments after the first `off`. */
static proa_jcall rest_of(const proa_jcall *call, int32_t off)
{
    proa_jcall rest = *call;
    if (off > rest.count) off = rest.count;
    rest.pos = off ? rest.pos + off : rest.pos;
    rest.count -= off;
    return rest;
}

static const proa_jfunction *named_row(proa_jrun *run, const proa_jfunction *table, proa_jval name,
                                       const char *what)
{
    proa_str text = proa_j_str_arg(run, name, "the name");
    const proa_jfunction *row = proa_j_function_find(table, text);
    if (!row) proa_j_fail(run, PROA_INVALID, "No %s named '%.*s'.", what, (int)text.len, text.ptr);
    return row;
}

static proa_jval named_arg(const proa_jcall *call, const char *name)
{
    for (int32_t i = 0; i < call->named_count; i++)
        if (proa_str_is(call->named[i].name, name)) return call->named[i].value;
    return (proa_jval){.kind = PROA_J_ABSENT};
}

static proa_jval map_attribute(proa_jrun *run, proa_jval item, const proa_jcall *call)
{
    proa_jval v = proa_j_path(run, item, named_arg(call, "attribute")),
              otherwise = named_arg(call, "default");
    return v.kind == PROA_J_UNDEFINED && otherwise.kind > PROA_J_NONE ? otherwise : v;
}

SEQ_FILTER(proa_f_map)
{
    PROA_UNUSED(args);
    proa_jval out = proa_j_list(run, PROA_J_ITERATOR, 4), item;
    proa_jiter it;
    proa_jcall rest = rest_of(call, 1);
    const proa_jfunction *filter = NULL;
    bool attribute = call->count == 0 && proa_j_given(named_arg(call, "attribute"));
    if (!proa_j_truth(self)) return out;
    if (call->count > 0) filter = named_row(run, proa_j_filters, call->pos[0], "filter");
    else if (!attribute) proa_j_fail(run, PROA_INVALID, "map requires a filter argument");
    if (run->failed || !proa_j_iter(run, &it, self)) return out;
    while (proa_j_next(run, &it, &item))
        proa_j_push(run, out,
                    attribute ? map_attribute(run, item, call) : proa_j_apply(run, filter, item, &rest));
    return out;
}

static proa_jval pick_items(proa_jrun *run, proa_jval self, const proa_jcall *call, bool keep, bool by_attr)
{
    proa_jval out = proa_j_list(run, PROA_J_ITERATOR, 4), item, attribute = {.kind = PROA_J_ABSENT};
    proa_jiter it;
    int32_t off = by_attr;
    proa_jcall rest = rest_of(call, off + 1);
    const proa_jfunction *test = NULL;
    if (!proa_j_truth(self)) return out;
    if (by_attr && call->count == 0) proa_j_fail(run, PROA_INVALID, "Missing parameter for attribute name");
    else if (by_attr) attribute = call->pos[0];
    if (call->count > off) test = named_row(run, proa_j_tests, call->pos[off], "test");
    if (run->failed || !proa_j_iter(run, &it, self)) return out;
    while (proa_j_next(run, &it, &item)) {
        proa_jval v = by_attr ? proa_j_path(run, item, attribute) : item;
        if (test) v = proa_j_apply(run, test, v, &rest);
        if (proa_j_truth(v) == keep) proa_j_push(run, out, item);
    }
    return out;
}

SEQ_FILTER(proa_f_select)
{
    PROA_UNUSED(args);
    return pick_items(run, self, call, true, false);
}

SEQ_FILTER(proa_f_reject)
{
    PROA_UNUSED(args);
    return pick_items(run, self, call, false, false);
}

SEQ_FILTER(proa_f_selectattr)
{
    PROA_UNUSED(args);
    return pick_items(run, self, call, true, true);
}

SEQ_FILTER(proa_f_rejectattr)
{
    PROA_UNUSED(args);
    return pick_items(run, self, call, false, true);
}

/* ---- order ---- */

typedef struct sorting {
    proa_jval *items, *keys, *items2, *keys2; /* two of each: merged from one to the other */
    bool reverse, listed;                     /* listed: keys are compared as members of lists */
} sorting;

/* Equal, of a kind that has no order: Python compares such keys within a list and does not ask for their order. */
static bool are_alike(proa_jrun *run, proa_jval a, proa_jval b)
{
    bool ordered = proa_j_is_number(a) || a.kind == PROA_J_STRING;
    return !ordered && proa_j_equal(run, a, b);
}

static void merge_runs(proa_jrun *run, sorting *s, int64_t from, int64_t mid, int64_t to)
{
    int64_t a = from, b = mid;
    for (int64_t i = from; i < to; i++) {
        bool right = a == mid;
        if (!right && b < to && !run->failed && !(s->listed && are_alike(run, s->keys[a], s->keys[b]))) {
            int order = s->reverse ? proa_j_compare(run, s->keys[a], s->keys[b], "<")
                                   : proa_j_compare(run, s->keys[b], s->keys[a], "<");
            right = order < 0; /* equal ones keep their order, also in reverse */
        }
        int64_t k = right ? b++ : a++;
        s->items2[i] = s->items[k];
        s->keys2[i] = s->keys[k];
    }
    memcpy(s->items + from, s->items2 + from, (size_t)(to - from) * sizeof(proa_jval));
    memcpy(s->keys + from, s->keys2 + from, (size_t)(to - from) * sizeof(proa_jval));
}

/* Stable; keys are those of the items. */
static void sort_by(proa_jrun *run, proa_jseq *list, proa_jseq *keys, bool reverse, bool listed)
{
    int64_t n = list->len;
    size_t bytes = (size_t)(n + 1) * sizeof(proa_jval);
    sorting s = {list->items, keys->items, proa_j_alloc(run, bytes), proa_j_alloc(run, bytes),
                 reverse,     listed};
    if (run->failed || keys->len != n) return;
    for (int64_t width = 1; width < n && !run->failed; width *= 2)
        for (int64_t from = 0; from + width < n; from += 2 * width)
            merge_runs(run, &s, from, from + width, from + 2 * width < n ? from + 2 * width : n);
}

/* "a,b.c" gives a list of both, as Jinja's sort has it. */
static proa_jval sort_key(proa_jrun *run, proa_jval item, proa_jval attribute, bool exact)
{
    proa_str rest = proa_j_text(attribute);
    if (attribute.kind != PROA_J_STRING || !memchr(rest.ptr, ',', rest.len))
        return key_of(run, item, attribute, exact);
    proa_jval keys = proa_j_list(run, PROA_J_LIST, 2);
    for (bool more = true; more && !run->failed;) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        proa_str one = {rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len};
        proa_j_push(run, keys, key_of(run, item, proa_j_view(one), exact));
        more = comma != NULL;
        if (more) rest = (proa_str){comma + 1, rest.len - one.len - 1};
    }
    return keys;
}

static proa_jval sorted_list(proa_jrun *run, proa_jval self, proa_jval attribute, bool exact, bool reverse)
{
    proa_jval list = proa_j_to_list(run, self), keys = proa_j_list(run, PROA_J_LIST, list.seq->len);
    for (int64_t i = 0; i < list.seq->len && !run->failed; i++)
        proa_j_push(run, keys, sort_key(run, list.seq->items[i], attribute, exact));
    sort_by(run, list.seq, keys.seq, reverse, attribute.kind != PROA_J_INT);
    return list;
}

SEQ_FILTER(proa_f_sort)
{
    PROA_UNUSED(call);
    return sorted_list(run, self, args[2], proa_j_truth(args[1]), proa_j_truth(args[0]));
}

SEQ_FILTER(proa_f_dictsort)
{
    bool by_value = proa_str_is(proa_j_text(args[1]), "value");
    proa_jval pairs = proa_f_items(run, self, args, call);
    if (proa_j_given(args[1]) && !by_value && !proa_str_is(proa_j_text(args[1]), "key"))
        proa_j_fail(run, PROA_INVALID, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == PROA_J_UNDEFINED) proa_j_fail_undefined(run, self);
    return sorted_list(run, pairs, proa_j_int(by_value), proa_j_truth(args[0]), proa_j_truth(args[2]));
}

SEQ_FILTER(proa_f_unique)
{
    PROA_UNUSED(call);
    proa_jval out = proa_j_list(run, PROA_J_ITERATOR, 4), item, seen = proa_j_dict(run, PROA_J_DICT, 4);
    proa_jiter it;
    if (!proa_j_iter(run, &it, self)) return out;
    while (proa_j_next(run, &it, &item)) {
        proa_jval key = key_of(run, item, args[1], proa_j_truth(args[0]));
        if (proa_j_find(run, seen, key)) continue;
        proa_j_put(run, seen, key, proa_j_none());
        proa_j_push(run, out, item);
    }
    return out;
}

static proa_jval group_value(proa_jrun *run, proa_jval item, const proa_jval *args)
{
    proa_jval v = proa_j_path(run, item, args[0]);
    return v.kind == PROA_J_UNDEFINED && args[1].kind > PROA_J_NONE ? args[1] : v;
}

SEQ_FILTER(proa_f_groupby)
{
    PROA_UNUSED(call);
    bool exact = proa_j_truth(args[2]);
    proa_jval list = proa_j_to_list(run, self), keys = proa_j_list(run, PROA_J_LIST, list.seq->len), group = {0};
    proa_jval out = proa_j_list(run, PROA_J_LIST, 4);
    for (int64_t i = 0; i < list.seq->len && !run->failed; i++) {
        proa_jval v = group_value(run, list.seq->items[i], args);
        proa_j_push(run, keys, exact || v.kind != PROA_J_STRING ? v : proa_j_lower(run, proa_j_text(v)));
    }
    sort_by(run, list.seq, keys.seq, false, false);
    for (int64_t i = 0; i < list.seq->len && !run->failed; i++) {
        if (i == 0 || !proa_j_equal(run, keys.seq->items[i - 1], keys.seq->items[i])) {
            group = proa_j_list(run, PROA_J_LIST, 4);
            proa_j_push(run, out, proa_j_pair(run, group_value(run, list.seq->items[i], args), group));
        }
        proa_j_push(run, group, list.seq->items[i]);
    }
    return out;
}

static proa_jval extreme_item(proa_jrun *run, proa_jval self, const proa_jval *args, bool max)
{
    proa_jval best = undefined_value("No aggregated item, sequence was empty."), best_key = best, item;
    proa_jiter it;
    if (!proa_j_iter(run, &it, self)) return best;
    for (int64_t i = 0; proa_j_next(run, &it, &item); i++) {
        proa_jval key = key_of(run, item, args[1], proa_j_truth(args[0]));
        if (i > 0 && proa_j_compare(run, key, best_key, max ? ">" : "<") != (max ? 1 : -1)) continue;
        best = item;
        best_key = key;
    }
    return best;
}

SEQ_FILTER(proa_f_min)
{
    PROA_UNUSED(call);
    return extreme_item(run, self, args, false);
}

SEQ_FILTER(proa_f_max)
{
    PROA_UNUSED(call);
    return extreme_item(run, self, args, true);
}

SEQ_FILTER(proa_f_sum)
{
    PROA_UNUSED(call);
    proa_jval total = proa_j_given(args[1]) ? args[1] : proa_j_int(0), item;
    proa_jiter it;
    if (!proa_j_iter(run, &it, self)) return total;
    while (proa_j_next(run, &it, &item))
        total = proa_j_math(run, PROA_T_ADD, total, proa_j_path(run, item, args[0]));
    return total;
}

/* ---- parts ---- */

SEQ_FILTER(proa_f_batch)
{
    PROA_UNUSED(call);
    int64_t size = proa_j_int_arg(run, args[0], 1);
    proa_jval out = proa_j_list(run, PROA_J_ITERATOR, 4), row = {0}, item;
    proa_jiter it;
    if (!proa_j_iter(run, &it, self)) return out;
    while (proa_j_next(run, &it, &item)) {
        if (out.seq->len == 0 || row.seq->len == size) {
            row = proa_j_list(run, PROA_J_LIST, 4);
            proa_j_push(run, out, row);
        }
        proa_j_push(run, row, item);
    }
    while (args[1].kind > PROA_J_NONE && out.seq->len && row.seq->len < size && proa_j_charge(run, 1))
        proa_j_push(run, row, args[1]);
    return out;
}

SEQ_FILTER(proa_f_slice)
{
    PROA_UNUSED(call);
    int64_t count = proa_j_int_arg(run, args[0], 1), at = 0;
    proa_jval out = proa_j_list(run, PROA_J_ITERATOR, 4);
    proa_jseq *all = proa_j_to_list(run, self).seq;
    if (count <= 0) proa_j_fail(run, PROA_INVALID, "slice needs at least one part");
    for (int64_t i = 0; i < count && proa_j_charge(run, 1); i++) {
        int64_t n = all->len / count + (i < all->len % count);
        proa_jval part = proa_j_list(run, PROA_J_LIST, n + 1);
        for (int64_t k = 0; k < n; k++) proa_j_push(run, part, all->items[at++]);
        if (args[1].kind > PROA_J_NONE && i >= all->len % count && all->len % count)
            proa_j_push(run, part, args[1]);
        proa_j_push(run, out, part);
    }
    return out;
}
