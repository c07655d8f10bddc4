/* SPDX-License-Identifier: Apache-2.0
 * token_bytes.h - the bytes that each token of a vocabulary adds to a text, for log-probabilities token by token.
 * Owner:   proa_token_bytes_new/free; it borrows the tokenizer.
 * Threads: any; the table is made at the first question. */
#ifndef PROA_TEXT_TOKEN_BYTES_H
#define PROA_TEXT_TOKEN_BYTES_H

#include "text/tokenizer.h"

typedef struct proa_token_bytes proa_token_bytes;

proa_token_bytes *proa_token_bytes_new(const proa_tokenizer *tok);
void proa_token_bytes_free(proa_token_bytes *p); /* NULL is fine */
/* The bytes that the token adds in the middle of a text, such as " the". A byte token adds one byte, which need not be
 * a character. Empty for ids outside the vocabulary. */
proa_str proa_token_bytes_of(proa_token_bytes *p, int32_t id);

#endif
