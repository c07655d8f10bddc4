/* SPDX-License-Identifier: Apache-2.0
 * word_lists.h - FasterTransformer's and TensorRT-LLM's lists of words: a tensor [2, N] of which row 0 holds the
 * token ids of all words, one after the other, padded with 0, and row 1 where each word ends, padded with -1. */
#ifndef PROA_BACKENDS_TENSORS_WORD_LISTS_H
#define PROA_BACKENDS_TENSORS_WORD_LISTS_H

#include "backends/tensors/tensor_read.h"
#include "proa/proa.h"
#include "text/tokenizer.h"

/* Reads the words of a row, of a tensor [rows, 2, N] of integers ([2, N] if rows is 1). INVALID: ends that fall or
 * point outside. Empty words are left out. */
PROA_MUST_CHECK proa_status proa_words_read(proa_words *out, proa_tensor_row in, proa_arena *arena,
                                            proa_err *err);
/* Writes words to one row of such a tensor: to[2 * width]. ends may be longer than the words; ids.len <= width. */
void proa_words_write(int32_t *to, int64_t width, const proa_ids *ids, const proa_ids *ends);

#endif
