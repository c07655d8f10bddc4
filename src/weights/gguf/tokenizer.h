/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.h - the tokenizer of a GGUF file, and the files of a Hugging Face folder that it becomes: byte-level BPE
 *               and WordPiece a tokenizer.json, SentencePiece's two models a tokenizer.model. text/ reads these as
 *               any other, so there is one reader for all.
 * Owner:   proa_gguf_vocab is in the checkpoint's arena; its values point into the file.
 * Way in:  proa_gguf_add_tokenizer, once for each checkpoint. */
#ifndef PROA_WEIGHTS_GGUF_TOKENIZER_H
#define PROA_WEIGHTS_GGUF_TOKENIZER_H

#include "weights/gguf/metadata.h"
#include "weights/gguf/pretokenizers.h"
#include "weights/parts.h"

/* Types of tokens: the numbers of tokenizer.ggml.token_type, which are SentencePiece's. */
enum proa_gguf_token_type {
    PROA_GGUF_TOKEN_NORMAL = 1,
    PROA_GGUF_TOKEN_UNKNOWN,
    PROA_GGUF_TOKEN_CONTROL,
    PROA_GGUF_TOKEN_USER,
    PROA_GGUF_TOKEN_UNUSED,
    PROA_GGUF_TOKEN_BYTE
};

/* Special tokens. enum, key (tokenizer.ggml.KEY_token_id), member of tokenizer_config.json */
#define PROA_GGUF_SPECIAL_LIST(S)                                                                            \
    S(BOS, "bos", "bos_token")                                                                               \
    S(EOS, "eos", "eos_token")                                                                               \
    S(UNK, "unknown", "unk_token")                                                                           \
    S(SEP, "seperator", "sep_token") /* as the format spells it */                                           \
    S(PAD, "padding", "pad_token")                                                                           \
    S(CLS, "cls", "cls_token")                                                                               \
    S(MASK, "mask", "mask_token")

typedef enum proa_gguf_special {
#define PROA_GGUF_SPECIAL_ENUM(name, key, member) PROA_GGUF_##name,
    PROA_GGUF_SPECIAL_LIST(PROA_GGUF_SPECIAL_ENUM)
#undef PROA_GGUF_SPECIAL_ENUM
        PROA_GGUF_SPECIAL_COUNT
} proa_gguf_special;

typedef struct proa_gguf_vocab {
    const proa_gguf *g;
    const proa_weights *w;
    int32_t file; /* whose map the values are in */
    proa_str model;
    const proa_gguf_value *tokens, *scores, *types, *merges; /* NULL: absent */
    const proa_gguf_value *charsmap;
    int64_t count;                             /* of tokens */
    proa_str special[PROA_GGUF_SPECIAL_COUNT]; /* texts; ptr NULL: none */
    int64_t special_id[PROA_GGUF_SPECIAL_COUNT];
    bool add_bos, add_eos, add_sep; /* around a text */
    bool space_prefix, squeeze, lowercase;
    const proa_gguf_pretokenizer *pre; /* of BPE */
} proa_gguf_vocab;

/* Walks over the tokens: text and type of the next one. Zero it with .v set. A token without a text is called
 * "[EMPTY_ID]", as llama.cpp does. */
typedef struct proa_gguf_token_walk {
    const proa_gguf_vocab *v;
    int64_t id; /* of the token that was given out */
    proa_str text;
    int64_t type;
    /* private */
    int64_t next;
    const unsigned char *at;
    char empty[32];
} proa_gguf_token_walk;
bool proa_gguf_next_token(proa_gguf_token_walk *walk); /* token_walk.c */

/* Adds the texts tokenizer.json or tokenizer.model, and tokenizer_config.json. Nothing if the file has no tokenizer.
 * The large texts are written when they are read, from the file, which must still be mapped then. */
PROA_MUST_CHECK proa_status proa_gguf_add_tokenizer(proa_weights *w, const proa_gguf *g, int32_t file,
                                                    proa_err *err);

/* tokenizer_json.c, tokenizer_spm.c: the large texts. */
void proa_gguf_write_bpe(proa_buf *out, const proa_gguf_vocab *v);
void proa_gguf_write_splits(proa_buf *out, const proa_gguf_pretokenizer *pre); /* ,"pre_tokenizer": {...} */
void proa_gguf_write_wordpiece(proa_buf *out, const proa_gguf_vocab *v);
void proa_gguf_write_spm(proa_buf *out, const proa_gguf_vocab *v, bool unigram);

#endif
