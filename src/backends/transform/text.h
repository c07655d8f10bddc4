/* SPDX-License-Identifier: Apache-2.0
 * text.h - features of texts: counts, n-grams of a vocabulary, weights of a lexicon, hashed n-grams. The
 * operation text_features of a transform; docs/transform.md defines each feature.
 * Owner:   proa_text_features_close releases what was read from files.
 * Threads: do not change after they were read. */
#ifndef PROA_BACKENDS_TRANSFORM_TEXT_H
#define PROA_BACKENDS_TRANSFORM_TEXT_H

#include "backends/transform/transform.h"

/* The features of one text; row[columns]. Scratch comes from the arena. */
void proa_text_features_row(const proa_text_features *f, proa_str text, float *row, proa_arena *arena);
void proa_text_features_close(proa_text_features *f); /* NULL is fine */

#endif
