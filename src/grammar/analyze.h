/* SPDX-License-Identifier: Apache-2.0
 * analyze.h - what must be known of each rule before a grammar is compiled, and the grammars that are refused. */
#ifndef PROA_GRAMMAR_ANALYZE_H
#define PROA_GRAMMAR_ANALYZE_H

#include "grammar/expr.h"

/* [rules] each. */
typedef struct proa_rule_facts {
    bool *empty;   /* the empty text matches */
    bool *finite;  /* some finite text matches */
    bool *inlined; /* short and without calls: it is copied to where it is used */
} proa_rule_facts;

/* The facts, in memory of the arena. INVALID for a rule without a body, for left recursion and if no finite text
 * matches the root; LIMIT for a chain of more than PROA_GRAMMAR_LEFT_DEPTH_MAX rules that begin with each other. */
PROA_MUST_CHECK proa_status proa_rules_analyze(proa_rule_facts *facts, const proa_rules *rules,
                                               proa_arena *arena, proa_err *err);
bool proa_expr_may_be_empty(const proa_rule_facts *facts, const proa_expr *e);
bool proa_expr_is_finite(const proa_rule_facts *facts, const proa_expr *e);
/* Whether a repetition becomes a machine with a counter, or copies of its item. */
bool proa_expr_is_counted(const proa_expr *e);

#endif
