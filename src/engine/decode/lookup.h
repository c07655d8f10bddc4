/* SPDX-License-Identifier: Apache-2.0
 * lookup.h - prompt lookup (Saxena 2023): drafts are what followed the last tokens where they occurred before.
 * Owner:   proa_lookup owns its arrays. Threads: any, one at a time on one object.
 * Way in:  proa_lookup_init; proa_lookup_append and proa_lookup_find as the text grows; proa_lookup_chances before a
 *          draft, proa_lookup_copy for its tokens.
 *
 * A chain of hashed pairs of tokens finds the places, so the time of a search does not grow with the text: the text
 * "a b c a b" has for its last pair (a, b) the entry newest = 4, and earlier[4] = 1, the pair's place before. */
#ifndef PROA_ENGINE_DECODE_LOOKUP_H
#define PROA_ENGINE_DECODE_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens that have to be equal, and that are compared at most. */
enum { PROA_LOOKUP_LEAST = 2, PROA_LOOKUP_MOST = 8 };

typedef struct proa_lookup {
    int32_t *text;    /* [capacity] */
    int32_t *earlier; /* [capacity] the place before of the pair of tokens that ends here; -1: there is none */
    int32_t *newest;  /* [slots] by hash: the last place of a pair that has a place after it; -1: none */
    int64_t count, capacity, slots;
    int64_t at;     /* the match: the tokens that end with text[at] are those that end the text, */
    int32_t length; /* how many they are; 0: there is no match */
} proa_lookup;

void proa_lookup_init(proa_lookup *l, int64_t capacity);
void proa_lookup_release(proa_lookup *l); /* of a zero one, too */
void proa_lookup_append(proa_lookup *l, const int32_t *ids, int64_t count);
/* Sets the match: the longest of the last PROA_LOOKUP_WALK places, of equals the last one. */
void proa_lookup_find(proa_lookup *l);
/* The guess for the next token; -1: there is none. */
int32_t proa_lookup_guess(const proa_lookup *l);
/* Copies the tokens after the match, at most `size`; returns how many. */
int32_t proa_lookup_copy(const proa_lookup *l, int32_t *ids, int32_t size);

/* How often guesses are right, by the number of equal tokens before them: those of the match, and the guesses before
 * them that were right. */
typedef struct proa_lookup_rates {
    float right[PROA_LOOKUP_MOST + 1];
    int32_t seen[PROA_LOOKUP_MOST + 1]; /* guesses; the first ones have more weight */
} proa_lookup_rates;

void proa_lookup_rates_init(proa_lookup_rates *r);
/* A guess was right, or not. The match had that many tokens before it. */
void proa_lookup_learn(proa_lookup_rates *r, int32_t length, bool right);
/* The chances that the tokens after the match are right, each together with those before it, at most `size`. The first
 * `unknown` (0 or 1) of them stand for tokens in flight, which cannot be drafted: the chances are those of the tokens
 * after. luck: how much more often than others this sequence's guesses are right. Returns how many. */
int32_t proa_lookup_chances(const proa_lookup *l, const proa_lookup_rates *r, float luck, int32_t unknown,
                            float *chances, int32_t size);

#endif
