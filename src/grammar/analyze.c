/* SPDX-License-Identifier: Apache-2.0
 * analyze.c - facts about rules by iteration to a fixed point, and the search for left recursion. */
#include "grammar/analyze.h"

#include "base/limits.h"

enum { INLINE_SIZE = 12, UNROLL_COUNT = 16, UNROLL_SIZE = 64 };

bool proa_expr_is_counted(const proa_expr *e)
{
    int64_t n = e->max < 0 ? e->min : e->max;
    return e->kind == PROA_EXPR_REPEAT && n > 1 && (n > UNROLL_COUNT || n * e->items[0]->size > UNROLL_SIZE);
}

bool proa_expr_may_be_empty(const proa_rule_facts *f, const proa_expr *e)
{
    switch (e->kind) {
    case PROA_EXPR_NEVER:
    case PROA_EXPR_CLASS: return false;
    case PROA_EXPR_BYTES: return e->bytes.len == 0;
    case PROA_EXPR_RULE: return f->empty[e->rule];
    case PROA_EXPR_REPEAT: return e->min == 0 || proa_expr_may_be_empty(f, e->items[0]);
    case PROA_EXPR_SEQ:
        for (int32_t i = 0; i < e->count; i++)
            if (!proa_expr_may_be_empty(f, e->items[i])) return false;
        return true;
    case PROA_EXPR_ALT:
        for (int32_t i = 0; i < e->count; i++)
            if (proa_expr_may_be_empty(f, e->items[i])) return true;
        return false;
    }
    return false;
}

bool proa_expr_is_finite(const proa_rule_facts *f, const proa_expr *e)
{
    switch (e->kind) {
    case PROA_EXPR_NEVER: return false;
    case PROA_EXPR_CLASS:
    case PROA_EXPR_BYTES: return true;
    case PROA_EXPR_RULE: return f->finite[e->rule];
    case PROA_EXPR_REPEAT: return e->min == 0 || proa_expr_is_finite(f, e->items[0]);
    case PROA_EXPR_SEQ:
        for (int32_t i = 0; i < e->count; i++)
            if (!proa_expr_is_finite(f, e->items[i])) return false;
        return true;
    case PROA_EXPR_ALT:
        for (int32_t i = 0; i < e->count; i++)
            if (proa_expr_is_finite(f, e->items[i])) return true;
        return false;
    }
    return false;
}

static bool has_calls(const proa_expr *e)
{
    if (e->kind == PROA_EXPR_RULE || proa_expr_is_counted(e)) return true;
    for (int32_t i = 0; e->items && i < e->count; i++)
        if (has_calls(e->items[i])) return true;
    return false;
}

/* Rules become empty or finite one after the other, until nothing changes. Backwards, since most front ends define a
 * rule after its user. */
static void find_facts(proa_rule_facts *f, const proa_rules *rules)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = rules->count; i-- > 0;) {
            const proa_expr *body = rules->rule[i].body;
            if (!f->empty[i] && proa_expr_may_be_empty(f, body)) f->empty[i] = changed = true;
            if (!f->finite[i] && proa_expr_is_finite(f, body)) f->finite[i] = changed = true;
        }
    }
    for (int32_t i = 0; i < rules->count; i++)
        f->inlined[i] = rules->rule[i].body->size <= INLINE_SIZE && !has_calls(rules->rule[i].body);
}

/* ---- left recursion ---- */

typedef struct search {
    const proa_rules *rules;
    const proa_rule_facts *facts;
    uint8_t *seen; /* of a rule: 0 not yet, 1 on the current path, 2 done */
    int depth;
    proa_err *err;
} search;

static proa_status visit_rule(search *s, int32_t rule);

/* Visits the rules with which a match of e can begin. */
static proa_status visit_left(search *s, const proa_expr *e)
{
    if (e->kind == PROA_EXPR_RULE) return visit_rule(s, e->rule);
    for (int32_t i = 0; e->items && i < e->count; i++) {
        PROA_TRY(visit_left(s, e->items[i]));
        if (e->kind == PROA_EXPR_SEQ && !proa_expr_may_be_empty(s->facts, e->items[i])) break;
    }
    return PROA_OK;
}

static proa_status visit_rule(search *s, int32_t rule)
{
    if (s->seen[rule] == 2) return PROA_OK;
    if (s->seen[rule] == 1)
        return PROA_FAIL(s->err, INVALID, "left recursion: rule '%.60s' can begin with itself",
                         s->rules->rule[rule].name);
    if (++s->depth > PROA_GRAMMAR_LEFT_DEPTH_MAX)
        return PROA_FAIL(s->err, LIMIT, "rule '%.60s': more than %d rules begin with each other",
                         s->rules->rule[rule].name, PROA_GRAMMAR_LEFT_DEPTH_MAX);
    s->seen[rule] = 1;
    PROA_TRY(visit_left(s, s->rules->rule[rule].body));
    s->seen[rule] = 2;
    s->depth--;
    return PROA_OK;
}

proa_status proa_rules_analyze(proa_rule_facts *f, const proa_rules *rules, proa_arena *arena, proa_err *err)
{
    *f = (proa_rule_facts){.empty = PROA_ARENA_NEW(arena, bool, rules->count),
                           .finite = PROA_ARENA_NEW(arena, bool, rules->count),
                           .inlined = PROA_ARENA_NEW(arena, bool, rules->count)};
    search s = {rules, f, PROA_ARENA_NEW(arena, uint8_t, rules->count), 0, err};
    for (int32_t i = 0; i < rules->count; i++)
        if (!rules->rule[i].body)
            return PROA_FAIL(err, INVALID, "rule '%.60s' is not defined", rules->rule[i].name);
    find_facts(f, rules);
    for (int32_t i = 0; i < rules->count; i++) PROA_TRY(visit_rule(&s, i));
    if (f->finite[rules->root]) return PROA_OK;
    return PROA_FAIL(err, INVALID, "rule '%.60s' recurses without end: no finite text matches it",
                     rules->rule[rules->root].name);
}
