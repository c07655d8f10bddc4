/* SPDX-License-Identifier: Apache-2.0
 * pretokenizers.h - the names of tokenizer.ggml.pre, and how each cuts a text before its BPE merges.
 * Facts:   the models' own tokenizer.json files, and llama.cpp's llama-vocab.cpp for which name is which. */
#ifndef PROA_WEIGHTS_GGUF_PRETOKENIZERS_H
#define PROA_WEIGHTS_GGUF_PRETOKENIZERS_H

#include "base/str.h"

enum { PROA_GGUF_SPLITS_MAX = 5 };

typedef struct proa_gguf_pretokenizer {
    const char *name;
    const char *split[PROA_GGUF_SPLITS_MAX]; /* regular expressions that cut one after the other; NULL ends them */
    bool whole;   /* a piece that is a token is not cut by merges (ignore_merges) */
    bool add_bos; /* unless tokenizer.ggml.add_bos_token says otherwise */
    bool raw;     /* pieces are UTF-8 with U+2581 for spaces, not the byte alphabet of GPT-2 */
} proa_gguf_pretokenizer;

/* By name; NULL if it is unknown. The empty name is that of files before there were names. */
const proa_gguf_pretokenizer *proa_gguf_pretokenizer_of(proa_str name);
const proa_gguf_pretokenizer *proa_gguf_pretokenizer_at(size_t i); /* all rows in order; NULL after the last */

#endif
