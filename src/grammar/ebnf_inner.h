/* SPDX-License-Identifier: Apache-2.0
 * ebnf_inner.h - the reader that GBNF and Lark's form share. Private to src/grammar. */
#ifndef PROA_GRAMMAR_EBNF_INNER_H
#define PROA_GRAMMAR_EBNF_INNER_H

#include "grammar/expr.h"

typedef struct proa_ebnf {
    proa_rules *rules;
    proa_str text;
    size_t at;
    bool gbnf;
    int depth;
    bool in_terminal;         /* Lark: within the definition of a terminal */
    int32_t defining;         /* Lark: the rule that is being read */
    const proa_expr *ignored; /* Lark: what may stand between terminals; NULL: nothing */
    proa_err *err;
} proa_ebnf;

proa_status proa_ebnf_fail(const proa_ebnf *r, const char *what); /* INVALID with the line */
char proa_ebnf_peek(const proa_ebnf *r);                          /* NUL at the end */
bool proa_ebnf_take(proa_ebnf *r, const char *text);
proa_str proa_ebnf_name(proa_ebnf *r);
bool proa_ebnf_number(proa_ebnf *r, int32_t *out);
int32_t proa_ebnf_rule(proa_ebnf *r, proa_str name); /* by name; a new one if there is none */
PROA_MUST_CHECK proa_status proa_ebnf_repeat(proa_ebnf *r, const proa_expr **e, int32_t min, int32_t max);
PROA_MUST_CHECK proa_status proa_ebnf_char(proa_ebnf *r, int32_t *out); /* or an escape */
/* After the opening quote. *ignore_case: Lark's flag i follows. */
PROA_MUST_CHECK proa_status proa_ebnf_literal(proa_ebnf *r, bool *ignore_case, const proa_expr **out);
PROA_MUST_CHECK proa_status proa_ebnf_enter(proa_ebnf *r); /* a group: counts its depth */

PROA_MUST_CHECK proa_status proa_lark_read(proa_ebnf *r);

#endif
