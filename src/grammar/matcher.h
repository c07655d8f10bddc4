/* SPDX-License-Identifier: Apache-2.0
 * matcher.h - which tokens may follow a text, for one grammar and one vocabulary.
 * Owner:   proa_matcher_new gives one reference; proa_matcher_retain and _release count. It owns its automaton and
 *          borrows the vocabulary.
 * Threads: any; calls on one matcher take turns (a lock).
 * Way in:  proa_matcher_mask, the mask after the tokens of a sequence.
 *
 * A configuration is the set of stacks that the pushdown automaton can have after some bytes. Configurations and their
 * successors by byte are made when they are first needed and kept, so that the automaton becomes a deterministic one of
 * those configurations that occur. Masks are kept too: for a configuration, and for the top of a stack alone (the
 * tokens that do not depend on what is below, and the places in the vocabulary's tree where the top frame may end: the
 * division of XGrammar, Dong et al. 2024). */
#ifndef PROA_GRAMMAR_MATCHER_H
#define PROA_GRAMMAR_MATCHER_H

#include "grammar/automaton.h"
#include "grammar/vocab.h"

typedef struct proa_matcher proa_matcher;

/* Takes the automaton over, which is empty afterwards. */
proa_matcher *proa_matcher_new(proa_automaton *a, const proa_token_trie *v);
proa_matcher *proa_matcher_retain(proa_matcher *m);
void proa_matcher_release(proa_matcher *m);        /* NULL is fine */
int32_t proa_matcher_words(const proa_matcher *m); /* of a mask: vocabulary / 32, rounded up */

/* Where a sequence stands. It is computed from its tokens; `places` (proa_matcher_place, zeroed before the first use)
 * remember earlier results, so that a call for one more token costs one token. Beams and forks may share them. */
enum { PROA_PLACES = 64 };
typedef struct proa_matcher_place {
    uint64_t hash;
    int64_t count;
    int32_t config;
    uint32_t epoch;
} proa_matcher_place;

/* mask[words]: bit t is set if token t may follow these tokens; *ends: whether the text may end here. LIMIT: the
 * grammar is so ambiguous that its state does not fit; INVALID: the tokens do not follow the grammar. mask NULL: only
 * *ends is wanted. */
PROA_MUST_CHECK proa_status proa_matcher_mask(proa_matcher *m, proa_matcher_place places[PROA_PLACES],
                                              const int32_t *tokens, int64_t count, uint32_t *mask,
                                              bool *ends, proa_err *err);
/* Whether a whole text matches, and whether it is the beginning of one that does. */
bool proa_matcher_accepts(proa_matcher *m, proa_str text, bool *is_prefix);

#endif
