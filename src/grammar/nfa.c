/* SPDX-License-Identifier: Apache-2.0
 * nfa.c - expressions become states and edges; a code point becomes the bytes of its UTF-8. */
#include "grammar/nfa.h"

#include "base/alloc.h"
#include "base/limits.h"
#include <stdlib.h>

static int32_t new_state(proa_nfa *n)
{
    if (n->states == n->states_cap) {
        n->states_cap = n->states_cap ? 2 * n->states_cap : 256;
        n->first = proa_realloc(n->first, (size_t)n->states_cap * sizeof *n->first);
    }
    n->first[n->states] = -1;
    return n->states++;
}

static void add_edge(proa_nfa *n, int32_t from, proa_nfa_edge edge)
{
    if (n->edges_count == n->edges_cap) {
        n->edges_cap = n->edges_cap ? 2 * n->edges_cap : 256;
        n->edges = proa_realloc(n->edges, (size_t)n->edges_cap * sizeof *n->edges);
    }
    edge.next = n->first[from];
    n->edges[n->edges_count] = edge;
    n->first[from] = n->edges_count++;
}

static void add_empty(proa_nfa *n, int32_t from, int32_t to)
{
    if (from != to) add_edge(n, from, (proa_nfa_edge){.kind = PROA_NFA_EMPTY, .to = to});
}

static void add_bytes(proa_nfa *n, int32_t from, int lo, int hi, int32_t to)
{
    add_edge(n, from, (proa_nfa_edge){.kind = PROA_NFA_BYTES, .lo = (uint8_t)lo, .hi = (uint8_t)hi, .to = to});
}

void proa_nfa_clear(proa_nfa *n)
{
    n->states = n->edges_count = 0;
    new_state(n);
    new_state(n);
}

void proa_nfa_release(proa_nfa *n)
{
    free(n->first);
    free(n->edges);
}

/* ---- code points ---- */

/* States from which 1, 2 or 3 arbitrary continuation bytes lead to `to`; made when they are needed. */
typedef struct utf8_tails {
    int32_t to, state[4];
} utf8_tails;

static int32_t tail_state(proa_nfa *n, utf8_tails *t, int bytes)
{
    if (bytes == 0) return t->to;
    if (t->state[bytes] < 0) {
        int32_t next = tail_state(n, t, bytes - 1);
        t->state[bytes] = new_state(n);
        add_bytes(n, t->state[bytes], 0x80, 0xBF, next);
    }
    return t->state[bytes];
}

/* Sequences of exactly n bytes between lo and hi, byte by byte; both have the same n. */
static void add_between(proa_nfa *nfa, utf8_tails *t, int32_t from, const uint8_t *lo, const uint8_t *hi, int n)
{
    static const uint8_t least[4] = {0x80, 0x80, 0x80, 0x80}, most[4] = {0xBF, 0xBF, 0xBF, 0xBF};
    int first = lo[0], last = hi[0];
    if (n == 1) {
        add_bytes(nfa, from, first, last, t->to);
        return;
    }
    if (first == last) {
        int32_t next = new_state(nfa);
        add_bytes(nfa, from, first, first, next);
        add_between(nfa, t, next, lo + 1, hi + 1, n - 1);
        return;
    }
    bool whole_first = true, whole_last = true;
    for (int i = 1; i < n; i++) whole_first &= lo[i] == 0x80, whole_last &= hi[i] == 0xBF;
    if (!whole_first) {
        int32_t next = new_state(nfa);
        add_bytes(nfa, from, first, first, next);
        add_between(nfa, t, next, lo + 1, most, n - 1);
        first++;
    }
    if (!whole_last) {
        int32_t next = new_state(nfa);
        add_bytes(nfa, from, last, last, next);
        add_between(nfa, t, next, least, hi + 1, n - 1);
        last--;
    }
    if (first <= last) add_bytes(nfa, from, first, last, tail_state(nfa, t, n - 1));
}

static void add_class(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to)
{
    static const int32_t last_of_length[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    utf8_tails t = {to, {-1, -1, -1, -1}};
    for (int32_t i = 0; i < e->count; i++) {
        int32_t lo = e->ranges[i].lo;
        for (int len = 0; len < 4 && lo <= e->ranges[i].hi; len++) {
            int32_t hi = e->ranges[i].hi < last_of_length[len] ? e->ranges[i].hi : last_of_length[len];
            char a[4], b[4];
            if (lo > hi) continue;
            proa_utf8_encode(lo, a);
            proa_utf8_encode(hi, b);
            add_between(n, &t, from, (const uint8_t *)a, (const uint8_t *)b, len + 1);
            lo = hi + 1;
        }
    }
}

/* ---- expressions ---- */

static void add_call(proa_nfa *n, int32_t from, int32_t machine, int32_t to)
{
    add_edge(n, from, (proa_nfa_edge){.kind = PROA_NFA_CALL, .machine = machine, .to = to});
}

static void add_text(proa_nfa *n, proa_str text, int32_t from, int32_t to)
{
    if (text.len == 0) add_empty(n, from, to);
    for (size_t i = 0; i < text.len; i++) {
        int32_t next = i + 1 == text.len ? to : new_state(n);
        add_bytes(n, from, (uint8_t)text.ptr[i], (uint8_t)text.ptr[i], next);
        from = next;
    }
}

static proa_status add_sequence(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to, proa_err *err)
{
    for (int32_t i = 0; i < e->count; i++) {
        int32_t next = i + 1 == e->count ? to : new_state(n);
        PROA_TRY(proa_nfa_add(n, e->items[i], from, next, err));
        from = next;
    }
    return PROA_OK;
}

/* item* between two states. */
static proa_status add_star(proa_nfa *n, const proa_expr *item, int32_t from, int32_t to, proa_err *err)
{
    int32_t loop = new_state(n);
    add_empty(n, from, loop);
    add_empty(n, loop, to);
    return proa_nfa_add(n, item, loop, loop, err);
}

static proa_status add_counted(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to, proa_err *err)
{
    int32_t end = e->max < 0 ? new_state(n) : to;
    if (proa_expr_is_finite(n->facts, e->items[0])) add_call(n, from, n->counted(n->arg, e), end);
    if (e->min == 0 || proa_expr_may_be_empty(n->facts, e->items[0])) add_empty(n, from, end);
    return e->max < 0 ? add_star(n, e->items[0], end, to, err) : PROA_OK;
}

static proa_status add_repeat(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to, proa_err *err)
{
    if (proa_expr_is_counted(e)) return add_counted(n, e, from, to, err);
    int32_t copies = e->max < 0 ? e->min : e->max;
    for (int32_t i = 0; i < copies; i++) {
        int32_t next = new_state(n);
        if (i >= e->min) add_empty(n, from, to);
        PROA_TRY(proa_nfa_add(n, e->items[0], from, next, err));
        from = next;
    }
    if (e->max < 0) return add_star(n, e->items[0], from, to, err);
    add_empty(n, from, to);
    return PROA_OK;
}

static proa_status add_rule(proa_nfa *n, int32_t rule, int32_t from, int32_t to, proa_err *err)
{
    if (n->facts->inlined[rule]) return proa_nfa_add(n, n->rules->rule[rule].body, from, to, err);
    if (n->facts->finite[rule]) add_call(n, from, rule, to);
    if (n->facts->empty[rule]) add_empty(n, from, to);
    return PROA_OK;
}

proa_status proa_nfa_add(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to, proa_err *err)
{
    if (n->states > PROA_GRAMMAR_STATES_MAX || n->edges_count > PROA_GRAMMAR_STATES_MAX)
        return PROA_FAIL(err, LIMIT, "the grammar needs more than %d states", PROA_GRAMMAR_STATES_MAX);
    switch (e->kind) {
    case PROA_EXPR_NEVER: return PROA_OK;
    case PROA_EXPR_BYTES: return add_text(n, e->bytes, from, to), PROA_OK;
    case PROA_EXPR_CLASS: return add_class(n, e, from, to), PROA_OK;
    case PROA_EXPR_SEQ: return add_sequence(n, e, from, to, err);
    case PROA_EXPR_REPEAT: return add_repeat(n, e, from, to, err);
    case PROA_EXPR_RULE: return add_rule(n, e->rule, from, to, err);
    case PROA_EXPR_ALT:
        for (int32_t i = 0; i < e->count; i++) PROA_TRY(proa_nfa_add(n, e->items[i], from, to, err));
        return PROA_OK;
    }
    return PROA_OK;
}
