/* SPDX-License-Identifier: Apache-2.0
 * expr.h - a grammar as its front ends build it: rules, each an expression over code points and other rules.
 * Owner:   expressions are memory of the proa_rules that made them, until proa_rules_release.
 * Threads: one grammar, one thread.
 * Way in:  proa_rules_init, proa_rules_add for each rule, proa_expr_* for the bodies, then proa_automaton_build. */
#ifndef PROA_GRAMMAR_EXPR_H
#define PROA_GRAMMAR_EXPR_H

#include "base/arena.h"
#include "base/status.h"

typedef enum proa_expr_kind {
    PROA_EXPR_NEVER,  /* matches nothing */
    PROA_EXPR_BYTES,  /* these bytes; none: the empty text */
    PROA_EXPR_CLASS,  /* one code point of a set, as UTF-8 */
    PROA_EXPR_SEQ,    /* items one after the other */
    PROA_EXPR_ALT,    /* one of the items */
    PROA_EXPR_REPEAT, /* items[0], min to max times */
    PROA_EXPR_RULE    /* what the rule matches */
} proa_expr_kind;

/* A set of code points: ranges in ascending order that do not touch. */
typedef struct proa_range {
    int32_t lo, hi; /* inclusive */
} proa_range;

typedef struct proa_expr proa_expr;
struct proa_expr {
    proa_expr_kind kind;
    int32_t count;    /* of items or ranges */
    int32_t min, max; /* of a repetition; max -1: without end */
    int32_t rule;     /* index of a rule */
    proa_str bytes;
    const proa_range *ranges;
    const proa_expr **items;
    int64_t size; /* about the states that it becomes; rules count as one */
};

typedef struct proa_grammar_rule {
    const char *name;      /* for errors */
    const proa_expr *body; /* NULL: not defined yet */
} proa_grammar_rule;

typedef struct proa_rules {
    proa_arena arena;
    proa_grammar_rule *rule;
    int32_t count, cap, root; /* root: the rule that a whole text must match; 0 unless it is set */
    int64_t nodes;            /* expressions so far */
} proa_rules;

void proa_rules_init(proa_rules *r);
void proa_rules_release(proa_rules *r);
/* A new rule without a body; its index. The name is copied. */
int32_t proa_rules_add(proa_rules *r, proa_str name);
/* LIMIT when there are more rules or expressions than the limits allow. Front ends call it while they read. */
PROA_MUST_CHECK proa_status proa_rules_check(const proa_rules *r, proa_err *err);

/* Constructors. Bytes and ranges are copied. Sequences and alternatives of one item are that item. */
const proa_expr *proa_expr_never(proa_rules *r);
const proa_expr *proa_expr_bytes(proa_rules *r, proa_str bytes);
const proa_expr *proa_expr_text(proa_rules *r, const char *text);
const proa_expr *proa_expr_empty(proa_rules *r);
/* ranges in any order; they may overlap. Surrogates and what is above U+10FFFF are left out. */
const proa_expr *proa_expr_class(proa_rules *r, const proa_range *ranges, int32_t count, bool negated);
const proa_expr *proa_expr_list(proa_rules *r, proa_expr_kind kind, const proa_expr *const *items, int32_t count);
const proa_expr *proa_expr_seq2(proa_rules *r, const proa_expr *a, const proa_expr *b);
const proa_expr *proa_expr_alt2(proa_rules *r, const proa_expr *a, const proa_expr *b);
const proa_expr *proa_expr_repeat(proa_rules *r, const proa_expr *item, int32_t min, int32_t max);
const proa_expr *proa_expr_optional(proa_rules *r, const proa_expr *item);
const proa_expr *proa_expr_rule(proa_rules *r, int32_t rule);
/* A new rule with this body, and a reference to it: the states of a long expression are then shared by its uses. */
const proa_expr *proa_expr_shared(proa_rules *r, const char *name, const proa_expr *body);

/* A list of expressions that grows, for readers. Zero it before the first use; memory is the grammar's. */
typedef struct proa_expr_items {
    const proa_expr **ptr;
    int32_t count, cap;
} proa_expr_items;
void proa_expr_push(proa_rules *r, proa_expr_items *list, const proa_expr *item);

#endif
