/* SPDX-License-Identifier: Apache-2.0
 * pieces.h - the bytes that each token of a vocabulary adds to a text, for log-probabilities token by token.
 * Owner:   proa_pieces_new/free; it borrows the tokenizer.
 * Threads: any; the table is made at the first question. */
#ifndef PROA_BACKENDS_PIECES_H
#define PROA_BACKENDS_PIECES_H

#include "text/tokenizer.h"

typedef struct proa_pieces proa_pieces;

proa_pieces *proa_pieces_new(const proa_tokenizer *tok);
void proa_pieces_free(proa_pieces *pieces); /* NULL is fine */
/* What the token adds in the middle of a text: " the"; of byte tokens the byte, which need not be a character. Empty for
 * ids outside. */
proa_str proa_pieces_of(proa_pieces *pieces, int32_t id);

#endif
