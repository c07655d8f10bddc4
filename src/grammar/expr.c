/* SPDX-License-Identifier: Apache-2.0
 * expr.c - expressions and rules of a grammar under construction. */
#include "grammar/expr.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

enum { CODE_POINT_MAX = 0x10FFFF, SURROGATE_MIN = 0xD800, SURROGATE_MAX = 0xDFFF };

void proa_rules_init(proa_rules *r)
{
    *r = (proa_rules){0};
    proa_arena_init(&r->arena);
}

void proa_rules_release(proa_rules *r)
{
    proa_arena_release(&r->arena);
    free(r->rule);
    *r = (proa_rules){0};
}

int32_t proa_rules_add(proa_rules *r, proa_str name)
{
    if (r->count == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->rule = proa_realloc(r->rule, (size_t)r->cap * sizeof *r->rule);
    }
    r->rule[r->count] = (proa_grammar_rule){proa_arena_strdup(&r->arena, name), NULL};
    return r->count++;
}

proa_status proa_rules_check(const proa_rules *r, proa_err *err)
{
    if (r->count > PROA_GRAMMAR_RULES_MAX)
        return PROA_FAIL(err, LIMIT, "the grammar has more than %d rules", PROA_GRAMMAR_RULES_MAX);
    if (r->nodes > PROA_GRAMMAR_NODES_MAX)
        return PROA_FAIL(err, LIMIT, "the grammar has more than %d expressions", PROA_GRAMMAR_NODES_MAX);
    return PROA_OK;
}

static proa_expr *new_expr(proa_rules *r, proa_expr_kind kind)
{
    proa_expr *e = PROA_ARENA_NEW(&r->arena, proa_expr, 1);
    e->kind = kind;
    e->size = 1;
    r->nodes++;
    return e;
}

const proa_expr *proa_expr_never(proa_rules *r)
{
    return new_expr(r, PROA_EXPR_NEVER);
}

const proa_expr *proa_expr_bytes(proa_rules *r, proa_str bytes)
{
    proa_expr *e = new_expr(r, PROA_EXPR_BYTES);
    e->bytes = (proa_str){proa_arena_strdup(&r->arena, bytes), bytes.len};
    e->size = (int64_t)bytes.len + 1;
    return e;
}

const proa_expr *proa_expr_text(proa_rules *r, const char *text)
{
    return proa_expr_bytes(r, proa_str_c(text));
}

const proa_expr *proa_expr_empty(proa_rules *r)
{
    return proa_expr_text(r, "");
}

static int compare_ranges(const void *a, const void *b)
{
    const proa_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

/* Sorts and merges; returns how many are left. */
static int32_t merge_ranges(proa_range *ranges, int32_t count)
{
    int32_t n = 0;
    if (count) qsort(ranges, (size_t)count, sizeof *ranges, compare_ranges);
    for (int32_t i = 0; i < count; i++) {
        if (ranges[i].hi < ranges[i].lo) continue;
        if (n && ranges[i].lo <= ranges[n - 1].hi + 1) {
            if (ranges[i].hi > ranges[n - 1].hi) ranges[n - 1].hi = ranges[i].hi;
        } else ranges[n++] = ranges[i];
    }
    return n;
}

/* The gaps between `count` ranges; out has room for one more. */
static int32_t negate_ranges(proa_range *out, const proa_range *ranges, int32_t count)
{
    int32_t n = 0, from = 0;
    for (int32_t i = 0; i < count; from = ranges[i++].hi + 1)
        if (ranges[i].lo > from) out[n++] = (proa_range){from, ranges[i].lo - 1};
    if (from <= CODE_POINT_MAX) out[n++] = (proa_range){from, CODE_POINT_MAX};
    return n;
}

/* Leaves surrogates out, which have no UTF-8. out has room for one more. */
static int32_t drop_surrogates(proa_range *out, const proa_range *ranges, int32_t count)
{
    int32_t n = 0;
    for (int32_t i = 0; i < count; i++) {
        proa_range a = {ranges[i].lo, ranges[i].hi}, b = a;
        if (a.hi >= SURROGATE_MIN) a.hi = SURROGATE_MIN - 1;
        if (b.lo <= SURROGATE_MAX) b.lo = SURROGATE_MAX + 1;
        if (b.hi > CODE_POINT_MAX) b.hi = CODE_POINT_MAX;
        if (a.lo <= a.hi) out[n++] = a;
        if (b.lo <= b.hi) out[n++] = b;
    }
    return n;
}

const proa_expr *proa_expr_class(proa_rules *r, const proa_range *ranges, int32_t count, bool negated)
{
    proa_range *sorted = PROA_ARENA_NEW(&r->arena, proa_range, count + 1);
    proa_range *other = PROA_ARENA_NEW(&r->arena, proa_range, count + 2);
    proa_range *valid = PROA_ARENA_NEW(&r->arena, proa_range, count + 4);
    if (count) memcpy(sorted, ranges, (size_t)count * sizeof *ranges);
    int32_t n = merge_ranges(sorted, count);
    if (negated) {
        n = negate_ranges(other, sorted, n);
        sorted = other;
    }
    n = drop_surrogates(valid, sorted, n);
    if (n == 0) return proa_expr_never(r);
    proa_expr *e = new_expr(r, PROA_EXPR_CLASS);
    e->ranges = valid;
    e->count = n;
    e->size = valid[n - 1].hi < 0x80 ? 1 : 2 + n;
    return e;
}

const proa_expr *proa_expr_list(proa_rules *r, proa_expr_kind kind, const proa_expr *const *items, int32_t count)
{
    if (count == 1) return items[0];
    if (count == 0) return kind == PROA_EXPR_SEQ ? proa_expr_empty(r) : proa_expr_never(r);
    proa_expr *e = new_expr(r, kind);
    e->items = PROA_ARENA_NEW(&r->arena, const proa_expr *, count);
    e->count = count;
    for (int32_t i = 0; i < count; i++) e->items[i] = items[i], e->size += items[i]->size;
    r->nodes += count;
    return e;
}

const proa_expr *proa_expr_seq2(proa_rules *r, const proa_expr *a, const proa_expr *b)
{
    return proa_expr_list(r, PROA_EXPR_SEQ, (const proa_expr *[]){a, b}, 2);
}

const proa_expr *proa_expr_alt2(proa_rules *r, const proa_expr *a, const proa_expr *b)
{
    return proa_expr_list(r, PROA_EXPR_ALT, (const proa_expr *[]){a, b}, 2);
}

const proa_expr *proa_expr_repeat(proa_rules *r, const proa_expr *item, int32_t min, int32_t max)
{
    if (max == 0) return proa_expr_empty(r);
    if (min == 1 && max == 1) return item;
    proa_expr *e = new_expr(r, PROA_EXPR_REPEAT);
    e->items = PROA_ARENA_NEW(&r->arena, const proa_expr *, 1);
    e->items[0] = item;
    e->count = 1;
    e->min = min;
    e->max = max;
    e->size = 2 + item->size;
    return e;
}

const proa_expr *proa_expr_optional(proa_rules *r, const proa_expr *item)
{
    return proa_expr_repeat(r, item, 0, 1);
}

const proa_expr *proa_expr_rule(proa_rules *r, int32_t rule)
{
    proa_expr *e = new_expr(r, PROA_EXPR_RULE);
    e->rule = rule;
    return e;
}

const proa_expr *proa_expr_shared(proa_rules *r, const char *name, const proa_expr *body)
{
    int32_t rule = proa_rules_add(r, proa_str_c(name));
    r->rule[rule].body = body;
    return proa_expr_rule(r, rule);
}

void proa_expr_push(proa_rules *r, proa_expr_items *list, const proa_expr *item)
{
    if (list->count == list->cap) {
        int32_t cap = list->cap ? 2 * list->cap : 8;
        const proa_expr **grown = PROA_ARENA_NEW(&r->arena, const proa_expr *, cap);
        for (int32_t i = 0; i < list->count; i++) grown[i] = list->ptr[i];
        list->ptr = grown;
        list->cap = cap;
    }
    list->ptr[list->count++] = item;
}
