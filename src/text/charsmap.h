/* SPDX-License-Identifier: Apache-2.0
 * charsmap.h - SentencePiece's precompiled normalisation rules.
 * The blob: u32 bytes of the trie, a Darts double array (u32 units), then the replacements, each ended by NUL;
 * a trie value is an offset among them. Format: Darts-clone (Yata 2008) and sentencepiece's normalizer.
 * Owner: the arena of proa_charsmap_new.  Threads: read-only. Every index of the trie is checked when used. */
#ifndef PROA_TEXT_CHARSMAP_H
#define PROA_TEXT_CHARSMAP_H

#include "base/arena.h"
#include "base/status.h"

typedef struct proa_charsmap {
    uint32_t *units;
    int64_t unit_count;
    char *texts; /* NUL at the end */
    int64_t text_bytes;
} proa_charsmap;

/* CORRUPT when sizes do not fit, or a replacement is not UTF-8. The blob is copied. */
PROA_MUST_CHECK proa_status proa_charsmap_new(proa_charsmap **out, proa_arena *arena, const void *blob,
                                              size_t len, proa_err *err);
PROA_MUST_CHECK proa_status proa_charsmap_new_base64(proa_charsmap **out, proa_arena *arena, proa_str base64,
                                                     proa_err *err);
/* The rule for a prefix of s: the longest such prefix, or the shortest (which is what the tokenizers library
 * takes). Returns its length and its replacement; 0 if there is none. */
size_t proa_charsmap_find(const proa_charsmap *map, proa_str s, bool longest, proa_str *replacement);
/* Applies the rules to all of s as the tokenizers library does: graphemes of less than 6 bytes are looked
 * up whole, others character by character. *zero as in pipeline.h. */
void proa_charsmap_apply(const proa_charsmap *map, proa_str s, size_t *zero, proa_buf *out);

#endif
