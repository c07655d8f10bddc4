/* SPDX-License-Identifier: Apache-2.0
 * automaton.h - the compiled form of a grammar: one finite automaton over bytes and calls for each rule, which together
 *            are a pushdown automaton.
 * Owner:   proa_automaton_build/release.
 * Threads: it never changes after build: any number may read it.
 *
 * No rule matches the empty text: where an expression may be empty its callers have a way around the call. So each call
 * consumes at least one byte, a stack is popped only right after a byte, and a grammar without left recursion needs
 * finitely many pushes before the next byte. */
#ifndef PROA_GRAMMAR_AUTOMATON_H
#define PROA_GRAMMAR_AUTOMATON_H

#include "grammar/expr.h"

typedef struct proa_byte_edge {
    uint8_t lo, hi;
    int32_t to; /* state */
} proa_byte_edge;

typedef struct proa_call_edge {
    int32_t machine; /* called */
    int32_t to;      /* state after its end */
} proa_call_edge;

typedef struct proa_gstate {
    int32_t bytes, calls; /* first edges */
    int32_t bytes_count, calls_count;
    bool accepts;
    /* the only state of a counted machine, which matches `body` min to max times: its frames carry a count. -1: none */
    int32_t body;
    int32_t min, max;
} proa_gstate;

typedef struct proa_machine {
    int32_t start;     /* state; no edge leads back to it */
    uint64_t first[4]; /* bytes with which a match can begin, one bit each */
    const char *name;
} proa_machine;

typedef struct proa_automaton {
    proa_gstate *states;
    proa_byte_edge *bytes;
    proa_call_edge *calls;
    proa_machine *machines;
    int32_t states_count, bytes_count, calls_count, machines_count;
    int32_t states_cap, bytes_cap, calls_cap, machines_cap;
    int32_t root;     /* machine */
    bool root_empty;  /* the empty text matches too */
    proa_arena arena; /* names */
} proa_automaton;

/* Compiles; the rules may be released afterwards. INVALID: a rule without a body, left recursion, a rule that no finite
 * text matches (each names the rule). LIMIT: more states than PROA_GRAMMAR_STATES_MAX. */
PROA_MUST_CHECK proa_status proa_automaton_build(proa_automaton *a, const proa_rules *rules, proa_err *err);
void proa_automaton_release(proa_automaton *a);

static inline bool proa_machine_begins(const proa_machine *m, uint8_t byte)
{
    return m->first[byte >> 6] >> (byte & 63) & 1;
}

#endif
