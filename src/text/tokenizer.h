/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.h - text to token ids and back, as the files of a Hugging Face folder say.
 * Owner:   proa_tokenizer_open* give a tokenizer that proa_tokenizer_free releases; nothing of it outlives it.
 * Threads: a tokenizer never changes after open: many threads may encode and decode with it at once.
 * Way in:  proa_tokenizer_open, proa_tokenizer_encode, and proa_detok_push for a stream of ids. */
#ifndef PROA_TEXT_TOKENIZER_H
#define PROA_TEXT_TOKENIZER_H

#include "base/files.h"
#include "base/status.h"
#include "base/str.h"

typedef struct proa_tokenizer proa_tokenizer;

/* A list of ids that grows. Zero it ({0}) before the first use; what encode writes is appended. */
typedef struct proa_ids {
    int32_t *ptr;
    int64_t len, cap;
} proa_ids;

void proa_ids_push(proa_ids *ids, int32_t id);
void proa_ids_clear(proa_ids *ids); /* len 0, memory kept */
void proa_ids_release(proa_ids *ids);

/* Looks in a model folder for tokenizer.json, then a SentencePiece model (spiece.model, tokenizer.model,
 * sentencepiece.bpe.model, or the only *.model) or tiktoken's ranks under such a name or as the only *.tiktoken,
 * then vocab.txt (WordPiece), then vocab.json with merges.txt (byte-level BPE). All but the first read
 * tokenizer_config.json, special_tokens_map.json and added_tokens.json for special tokens, add_bos_token,
 * add_eos_token and do_lower_case; config.json says the class if none of these does. NOT_FOUND when the folder has
 * none of them; INVALID, with the file's name, when the file is broken. The sections `truncation` and `padding` of
 * tokenizer.json are ignored: a caller cuts and batches. */
PROA_MUST_CHECK proa_status proa_tokenizer_open(proa_tokenizer **out, const char *folder, proa_err *err);
/* The same for the files of a model, some of which may be texts that its checkpoint gives. */
PROA_MUST_CHECK proa_status proa_tokenizer_open_files(proa_tokenizer **out, const proa_files *files,
                                                      proa_err *err);
/* The same from memory; `what` names the text in errors. The bytes are not needed after the call. */
PROA_MUST_CHECK proa_status proa_tokenizer_open_json(proa_tokenizer **out, proa_str json, const char *what,
                                                     proa_err *err);
/* A SentencePiece model. Special tokens to add: none (SentencePiece itself adds none). */
PROA_MUST_CHECK proa_status proa_tokenizer_open_spm(proa_tokenizer **out, const void *bytes, size_t len,
                                                    const char *what, proa_err *err);
void proa_tokenizer_free(proa_tokenizer *tok); /* NULL is fine */

/* Ids are 0 <= id < vocab, added tokens included; there may be holes. */
int32_t proa_tokenizer_vocab(const proa_tokenizer *tok);
/* Resident bytes that the tokenizer holds, for the memory plan. */
int64_t proa_tokenizer_bytes(const proa_tokenizer *tok);
/* The piece as the vocabulary has it ("\xe2\x96\x81the", "##ing", "<0x0A>"); empty for a hole or an id outside. */
proa_str proa_tokenizer_token(const proa_tokenizer *tok, int32_t id);
bool proa_tokenizer_find(const proa_tokenizer *tok, proa_str piece, int32_t *id);
/* Whether skip_special leaves the id out. */
bool proa_tokenizer_is_special(const proa_tokenizer *tok, int32_t id);

/* Appends the ids of text. Bytes that are not UTF-8 count as U+FFFD, one for each maximal subpart (Unicode 3.9,
 * as Python's errors="replace"). add_special runs the post-processor's template ("<s> ... </s>").
 * LIMIT when text is longer than PROA_TEXT_BYTES_MAX; INVALID when the model has no token for a piece and no
 * unknown token either. On failure *out is as long as before. */
PROA_MUST_CHECK proa_status proa_tokenizer_encode(const proa_tokenizer *tok, proa_str text, bool add_special,
                                                  proa_ids *out, proa_err *err);
/* The same with the type of each id, as the template says: 0, but XLNet's has 2 for the last token. */
PROA_MUST_CHECK proa_status proa_tokenizer_encode_types(const proa_tokenizer *tok, proa_str text,
                                                        bool add_special, proa_ids *out, proa_ids *type_ids,
                                                        proa_err *err);
/* Two texts as one sequence ("[CLS] a [SEP] b [SEP]"). type_ids (may be NULL) gets the type of each id, most often 0 or
 * 1. */
PROA_MUST_CHECK proa_status proa_tokenizer_encode_pair(const proa_tokenizer *tok, proa_str a, proa_str b,
                                                       bool add_special, proa_ids *out, proa_ids *type_ids,
                                                       proa_err *err);

/* Appends the text of ids[0..n). Ids without a token are skipped. The text is valid UTF-8: bytes that make no
 * character become U+FFFD. */
PROA_MUST_CHECK proa_status proa_tokenizer_decode(const proa_tokenizer *tok, const int32_t *ids, int64_t n,
                                                  bool skip_special, proa_buf *out, proa_err *err);

/* The streaming detokeniser: ids go in one by one, whole characters come out. The concatenation of all that
 * push and flush append is what proa_tokenizer_decode gives for all the ids. One stream, one thread; it borrows
 * the tokenizer. Memory is taken in new and grows only when one held-back character run outgrows it. */
typedef struct proa_detok proa_detok;
proa_detok *proa_detok_new(const proa_tokenizer *tok, bool skip_special);
/* These special tokens are not skipped. The list is borrowed. */
void proa_detok_show(proa_detok *detok, const int32_t *ids, int64_t count);
void proa_detok_free(proa_detok *detok);  /* NULL is fine */
void proa_detok_reset(proa_detok *detok); /* as new, memory kept */
PROA_MUST_CHECK proa_status proa_detok_push(proa_detok *detok, int32_t id, proa_buf *out, proa_err *err);
/* End of the stream: what was held back comes out, incomplete bytes as U+FFFD. */
PROA_MUST_CHECK proa_status proa_detok_flush(proa_detok *detok, proa_buf *out, proa_err *err);

#endif
