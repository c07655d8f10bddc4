/* SPDX-License-Identifier: Apache-2.0
 * scan.h - one walk over a text: its words in lower case, and counts. Words, sentences and the rest are defined in
 * docs/transform.md; examples/review-pipeline/textfeatures.py says the same in Python.
 * Owner:   the words are in the caller's arena.
 * Threads: none of its own. */
#ifndef PROA_BACKENDS_TRANSFORM_SCAN_H
#define PROA_BACKENDS_TRANSFORM_SCAN_H

#include "base/arena.h"
#include "kernels/text_rows.h"

/* What a character is to the scan: proa_text_kind. */
int32_t proa_text_kind_of_character(int32_t c);

/* All words so far, in lower case, divided by single spaces; the newest is lower[start..end). */
typedef void proa_word_fn(void *arg, const char *lower, size_t start, size_t end);

/* Bytes that are no UTF-8 count as U+FFFD, one for each maximal subpart. on_word may be NULL. */
void proa_text_scan(proa_text_counts *counts, proa_str text, proa_arena *arena, proa_word_fn *on_word, void *arg);

#endif
