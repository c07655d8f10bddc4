/* SPDX-License-Identifier: Apache-2.0
 * nfa.h - one rule as a nondeterministic automaton (Thompson 1968), the step between expressions and machines.
 * Owner:   the caller, who zeroes it and releases it; it is reused from rule to rule by proa_nfa_clear. */
#ifndef PROA_GRAMMAR_NFA_H
#define PROA_GRAMMAR_NFA_H

#include "grammar/analyze.h"

typedef enum proa_nfa_edge_kind { PROA_NFA_EMPTY, PROA_NFA_BYTES, PROA_NFA_CALL } proa_nfa_edge_kind;

typedef struct proa_nfa_edge {
    proa_nfa_edge_kind kind;
    uint8_t lo, hi;
    int32_t machine;  /* of a call */
    int32_t to, next; /* next edge of the same state, -1: none */
} proa_nfa_edge;

/* The machine of a counted repetition; NULL never. Called while an NFA is built. */
typedef int32_t proa_counted_fn(void *arg, const proa_expr *repeat);

typedef struct proa_nfa {
    int32_t *first; /* [states] first edge, -1: none */
    proa_nfa_edge *edges;
    int32_t states, edges_count, states_cap, edges_cap;
    const proa_rules *rules;
    const proa_rule_facts *facts;
    proa_counted_fn *counted;
    void *arg;
} proa_nfa;

enum { PROA_NFA_START = 0, PROA_NFA_FINAL = 1 }; /* no edge leads to the start */

void proa_nfa_clear(proa_nfa *n); /* the two states above and no edge */
void proa_nfa_release(proa_nfa *n);
/* Adds e between two states. LIMIT beyond PROA_GRAMMAR_STATES_MAX. */
PROA_MUST_CHECK proa_status proa_nfa_add(proa_nfa *n, const proa_expr *e, int32_t from, int32_t to,
                                         proa_err *err);

#endif
