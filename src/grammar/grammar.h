/* SPDX-License-Identifier: Apache-2.0
 * grammar.h - grammars of constrained output: compiled from what a request gives, and kept for the next request.
 * Owner:   proa_grammars_new/free; a matcher that proa_grammars_get gives is a reference of the caller's.
 * Threads: any.
 * Way in:  proa_grammars_get. */
#ifndef PROA_GRAMMAR_GRAMMAR_H
#define PROA_GRAMMAR_GRAMMAR_H

#include "grammar/matcher.h"

typedef enum proa_grammar_kind {
    PROA_GRAMMAR_JSON_SCHEMA,
    PROA_GRAMMAR_JSON_OBJECT, /* any object; no text */
    PROA_GRAMMAR_REGEX,
    PROA_GRAMMAR_EBNF, /* GBNF if the first rule is defined by ::=, else Lark's form */
    PROA_GRAMMAR_CHOICE
} proa_grammar_kind;

typedef struct proa_grammar_source {
    proa_grammar_kind kind;
    proa_str text;
    const char *const *choices; /* [choices_count] of kind CHOICE */
    int32_t choices_count;
} proa_grammar_source;

/* INVALID, UNSUPPORTED or LIMIT, with the place in the text. The automaton is the caller's. */
PROA_MUST_CHECK proa_status proa_grammar_compile(proa_automaton *a, const proa_grammar_source *source,
                                                 proa_err *err);

typedef struct proa_grammars proa_grammars;
/* Makes the vocabulary when the first grammar needs it. It then belongs to the grammars. */
typedef proa_token_trie *proa_token_trie_fn(void *arg);
proa_grammars *proa_grammars_new(proa_token_trie_fn *vocab, void *arg);
void proa_grammars_free(proa_grammars *g); /* NULL is fine; no matcher may be in use any more */
/* The matcher of a source: one that was compiled before, of the last PROA_GRAMMAR_CACHE_MAX, or a new one. */
PROA_MUST_CHECK proa_status proa_grammars_get(proa_grammars *g, const proa_grammar_source *source,
                                              proa_matcher **out, proa_err *err);

#endif
