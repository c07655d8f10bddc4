/* SPDX-License-Identifier: Apache-2.0
 * describe.h - what an opened tokenizer is made of, for programs that write it in another form (GGUF).
 * Owner:   the tokenizer owns what is pointed to, but for the merges, which are the caller's arena's.
 * Threads: as tokenizer.h.
 * Way in:  proa_tokenizer_describe, then pieces by id, and merges. */
#ifndef PROA_TEXT_DESCRIBE_H
#define PROA_TEXT_DESCRIBE_H

#include "base/arena.h"
#include "text/tokenizer.h"

typedef enum proa_tokenizer_kind {
    PROA_TOKENIZER_BPE,
    PROA_TOKENIZER_WORDPIECE,
    PROA_TOKENIZER_WORDLEVEL,
    PROA_TOKENIZER_UNIGRAM, /* of tokenizer.json or SentencePiece */
    PROA_TOKENIZER_SPM_BPE  /* SentencePiece: merges are implied by scores */
} proa_tokenizer_kind;

/* Types of pieces; the numbers are those of SentencePiece's file format. */
typedef enum proa_piece_type {
    PROA_PIECE_NORMAL = 1,
    PROA_PIECE_UNKNOWN,
    PROA_PIECE_CONTROL,
    PROA_PIECE_USER,
    PROA_PIECE_UNUSED, /* also ids without a piece */
    PROA_PIECE_BYTE
} proa_piece_type;

typedef struct proa_tokenizer_parts {
    proa_tokenizer_kind kind;
    int32_t unk; /* -1: none */
    bool byte_fallback, ignore_merges;
    /* the special tokens that surround a text */
    const int32_t *before, *after;
    int32_t before_count, after_count;
    /* what normalizers and pre-tokenizers do to a text */
    bool byte_level;   /* bytes become GPT-2's characters */
    bool space_prefix; /* a space is put in front */
    bool squeeze;      /* of several spaces one is left */
    bool lowercase;
    bool has_charsmap;
} proa_tokenizer_parts;

/* UNSUPPORTED if more than one list of tokens surrounds a text. */
PROA_MUST_CHECK proa_status proa_tokenizer_describe(proa_tokenizer_parts *out, const proa_tokenizer *tok,
                                                    proa_err *err);
proa_piece_type proa_tokenizer_piece_type(const proa_tokenizer *tok, int32_t id);
double proa_tokenizer_score(const proa_tokenizer *tok, int32_t id); /* of unigram and SentencePiece's BPE; else 0 */
/* SentencePiece's precompiled rules as its file has them, appended to out. */
void proa_tokenizer_charsmap(const proa_tokenizer *tok, proa_buf *out);

/* The rules of BPE in order: pieces left and right become piece id. */
typedef struct proa_merge_rule {
    int32_t left, right, id;
} proa_merge_rule;
int64_t proa_tokenizer_merges(const proa_tokenizer *tok, proa_arena *arena, proa_merge_rule **out);

/* Appends what the model would be given: the text after normalizers and pre-tokenizers, each piece followed by the byte
 * 0xFF. Added tokens in the text are not found. */
PROA_MUST_CHECK proa_status proa_tokenizer_pieces(const proa_tokenizer *tok, proa_str text, proa_buf *out,
                                                  proa_err *err);

#endif
