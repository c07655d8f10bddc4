/* SPDX-License-Identifier: Apache-2.0
 * ebnf.h - reads grammars in llama.cpp's GBNF and in Lark's form.
 *
 * GBNF: name ::= alternatives; "text", [class], . (any code point), (groups), * + ? {n} {n,} {n,m}, # comments; the
 * rule root is matched. Lark: rule: alternatives, TERMINAL: alternatives; "text", "text"i, /expression/ with the flags
 * i and s, "a".."z", (groups), [optional], * + ? ~n ~n..m, -> alias, %ignore, %import common.NAME, // comments; the
 * rule start is matched; %json {schema}, and <[7]> for the special token 7. Terminals are not matched greedily as
 * Lark's lexer does: every way to read the text counts. Templates, %declare, %override and %extend are refused. */
#ifndef PROA_GRAMMAR_EBNF_H
#define PROA_GRAMMAR_EBNF_H

#include "grammar/expr.h"

/* Sets the root. INVALID, UNSUPPORTED or LIMIT with the line. */
PROA_MUST_CHECK proa_status proa_ebnf_read(proa_rules *rules, proa_str text, proa_err *err);

#endif
