/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the text of a grammar: the first byte chooses the front end. What compiles is walked: a token of a mask
 * must keep the text the beginning of one that matches, and where a mask is empty the text must be whole. */
#include "fuzz.h"

#include "base/limits.h"
#include "grammar/grammar.h"
#include <stdio.h>
#include <string.h>

enum { STEPS = 24 };

static proa_token_trie *vocab;

static void make_vocab(void)
{
    static const char *const longer[] = {"\",", "\":", "{\"", "true",     "null",
                                         "  ",  "ab",  "12",  "\xC3\xA9", "]}"};
    static char single[256], special[PROA_TOKEN_SPECIAL_BYTES];
    proa_str bytes[256 + PROA_COUNT(longer)];
    for (int i = 0; i < 255; i++) single[i] = (char)i, bytes[i] = (proa_str){&single[i], 1};
    bytes[255] = proa_token_special(special, 7); /* a text has no byte 255 */
    for (size_t i = 0; i < PROA_COUNT(longer); i++) bytes[256 + i] = proa_str_c(longer[i]);
    vocab = proa_token_trie_new(bytes, (int32_t)PROA_COUNT(bytes));
}

static int32_t choose_token(const uint32_t *mask, int32_t words, uint32_t random)
{
    int32_t n = 0, wanted;
    for (int32_t i = 0; i < words; i++) n += PROA_POPCOUNT32(mask[i]);
    if (n == 0) return -1;
    wanted = (int32_t)(random % (uint32_t)n);
    for (int32_t t = 0;; t++)
        if (mask[t >> 5] >> (t & 31) & 1 && wanted-- == 0) return t;
}

static void walk_masks(proa_matcher *m, uint32_t seed)
{
    proa_matcher_place places[PROA_PLACES] = {{0}};
    int32_t tokens[STEPS];
    uint32_t mask[16];
    char text[STEPS * 8];
    size_t len = 0;
    for (int64_t count = 0; count < STEPS; count++) {
        bool ends = false, prefix = false;
        if (proa_matcher_mask(m, places, tokens, count, mask, &ends, NULL) != PROA_OK) return; /* a limit */
        seed = seed * 1664525U + 1013904223U;
        tokens[count] = choose_token(mask, proa_matcher_words(m), seed >> 8);
        if (tokens[count] < 0) {
            PROA_ASSERT(ends);
            return;
        }
        proa_str bytes = proa_token_trie_bytes(vocab, tokens[count]);
        memcpy(text + len, bytes.ptr, bytes.len);
        len += bytes.len;
        proa_matcher_accepts(m, (proa_str){text, len}, &prefix);
        /* or it is too ambiguous from here on */
        PROA_ASSERT(prefix || proa_matcher_mask(m, places, tokens, count + 1, NULL, &ends, NULL) == PROA_LIMIT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const proa_grammar_kind kinds[] = {PROA_GRAMMAR_JSON_SCHEMA, PROA_GRAMMAR_REGEX, PROA_GRAMMAR_EBNF};
    proa_automaton a;
    proa_err err = {.status = PROA_OK};
    if (size < 1) return 0;
    if (!vocab) make_vocab();
    proa_grammar_source source = {.kind = kinds[data[0] % 3], .text = {(const char *)data + 1, size - 1}};
    proa_status status = proa_grammar_compile(&a, &source, &err);
    PROA_ASSERT(status == err.status);
    if (status != PROA_OK) {
        PROA_ASSERT(strlen(err.text) > 0);
        return 0;
    }
    proa_matcher *m = proa_matcher_new(&a, vocab);
    for (uint32_t i = 0; i < 3; i++) walk_masks(m, (uint32_t)size + i);
    proa_matcher_release(m);
    return 0;
}
