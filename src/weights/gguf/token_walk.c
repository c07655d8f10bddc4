/* SPDX-License-Identifier: Apache-2.0
 * token_walk.c - walks over the tokens of a GGUF file's vocabulary. */
#include "weights/gguf/tokenizer.h"

#include <stdio.h>

bool proa_gguf_next_token(proa_gguf_token_walk *walk)
{
    const proa_gguf_vocab *v = walk->v;
    if (walk->next == v->count) return false;
    if (walk->next == 0) walk->at = v->tokens->at;
    walk->id = walk->next++;
    walk->text = proa_gguf_next_str(&walk->at);
    walk->type = PROA_GGUF_TOKEN_NORMAL;
    if (v->types && !proa_gguf_int_at(&walk->type, v->types, walk->id)) walk->type = 0;
    if (walk->type < PROA_GGUF_TOKEN_NORMAL || walk->type > PROA_GGUF_TOKEN_BYTE)
        walk->type = PROA_GGUF_TOKEN_NORMAL;
    if (walk->text.len == 0) {
        int n = snprintf(walk->empty, sizeof walk->empty, "[EMPTY_%lld]", (long long)walk->id);
        walk->text = (proa_str){walk->empty, (size_t)n};
    }
    return true;
}
