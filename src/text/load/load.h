/* SPDX-License-Identifier: Apache-2.0
 * load.h - helpers that the step parsers share; internal to this folder. */
#ifndef PROA_TEXT_LOAD_LOAD_H
#define PROA_TEXT_LOAD_LOAD_H

#include "text/pipeline.h"

/* Copies the document with each escaped NUL marked, as json-c cannot hold one in a key; false: there is none. */
bool proa_json_mark_nul(proa_buf *out, proa_str json);
/* A string or key of such a document with its NULs back. */
proa_str proa_load_text(proa_loader *ld, proa_str s);
/* A string member copied to the tokenizer's arena. INVALID when it is absent or no string. */
PROA_MUST_CHECK proa_status proa_load_member(proa_loader *ld, const proa_json *j, const char *key,
                                             proa_str *out, proa_err *err);
/* A member that is one character; *out is left alone when it is absent. */
PROA_MUST_CHECK proa_status proa_load_char(const proa_json *j, const char *key, int32_t *out, proa_err *err);
/* "pattern": {"String": s} or {"Regex": r}, or s itself. */
PROA_MUST_CHECK proa_status proa_load_pattern(proa_loader *ld, const proa_json *j, proa_text_step *step,
                                              proa_err *err);
PROA_MUST_CHECK proa_status proa_load_behavior(const proa_json *j, proa_behavior *out, proa_err *err);
/* "prepend_scheme", or "add_prefix_space" of older files. */
PROA_MUST_CHECK proa_status proa_load_prepend(const proa_json *j, proa_prepend *out, proa_err *err);
/* A regular expression that the tokenizer's arena releases. */
PROA_MUST_CHECK proa_status proa_load_regex(proa_loader *ld, proa_str pattern, proa_regex **out, proa_err *err);
/* The matches of a step's pattern in text. */
PROA_MUST_CHECK proa_status proa_text_step_spans(const proa_text_step *step, proa_str text,
                                                 proa_text_spans *out, proa_err *err);

/* What tokenizer_config.json says. If it has no added_tokens_decoder, special_tokens_map.json and added_tokens.json
 * are part of it, as older folders have them; if it has no tokenizer_class, config.json's tokenizer_class or model_type
 * says it. NULL if there is none of these files; the caller frees it. */
PROA_MUST_CHECK proa_status proa_tokenizer_config_read(proa_json **out, const proa_files *files, proa_err *err);
/* tokenizer_config.json: a token that is a string or an object with `content`; the empty slice if it is absent. */
proa_str proa_config_token(const proa_json *config, const char *key);
/* Whether to put a token before or after each text: the flag, or what the tokenizer's class does without it. */
bool proa_config_adds(const proa_json *config, const char *flag, const char *const *classes);

/* The id that a key of added_tokens_decoder is. */
PROA_MUST_CHECK proa_status proa_config_id(int64_t *id, proa_str key, proa_err *err);

/* The next line of *rest without its end; false when there is none. */
bool proa_next_line(proa_str *rest, proa_str *line);

/* Append a tokenizer.json for files of other forms; config: proa_tokenizer_config_read, may be NULL.
 * vocab.txt: BERT's, one piece a line, the id is the line. */
PROA_MUST_CHECK proa_status proa_wordpiece_write(proa_buf *out, proa_str lines, const proa_json *config,
                                                 proa_err *err);
/* vocab.txt of EsmTokenizer: pieces (amino acids) that are found wherever they are in a text. */
PROA_MUST_CHECK proa_status proa_residues_write(proa_buf *out, proa_str lines, const proa_json *config,
                                                proa_err *err);
/* vocab.json with merges.txt: byte-level BPE, whose class says what surrounds a text (GPT-2 without a class). */
PROA_MUST_CHECK proa_status proa_byte_bpe_write(proa_buf *out, proa_str vocab, proa_str merges,
                                                const proa_json *config, proa_err *err);
/* ByT5, which has no file: its tokens are bytes. */
PROA_MUST_CHECK proa_status proa_bytes_write(proa_buf *out, const proa_json *config, proa_err *err);

/* subword-nmt's codes with the vocabulary that they are for. INVALID when a line is broken or <unk> is missing. */
PROA_MUST_CHECK proa_status proa_bpe_codes_write(proa_buf *out, proa_str lines, const proa_piece_list *list,
                                                 proa_err *err);

/* How fairseq's dictionary numbers the pieces of a SentencePiece model for the class of a tokenizer; NULL: the class
 * has no such order. config may be NULL. */
typedef struct proa_fairseq proa_fairseq;
const proa_fairseq *proa_fairseq_of(const proa_json *config);
/* The names by id. file: the pieces of the .model file; listed: those of vocab.json, or NULL. The names are of these
 * lists or of the arena. NOT_FOUND when the class needs vocab.json and there is none. */
PROA_MUST_CHECK proa_status proa_fairseq_list(proa_piece_list *out, const proa_fairseq *order,
                                              const proa_piece_list *file, const proa_piece_list *listed,
                                              proa_arena *arena, proa_err *err);
int64_t proa_fairseq_added_max(const proa_fairseq *order); /* tokens that proa_fairseq_finish adds at most */
/* Adds the special tokens that tokenizer_config.json lacks, and sets what surrounds a text. INVALID when src_lang is
 * no language of the tokenizer. */
PROA_MUST_CHECK proa_status proa_fairseq_finish(proa_tokenizer *tok, const proa_fairseq *order,
                                                const proa_json *config, proa_err *err);

/* Whether a file begins as one of tiktoken: a token in base64 and a rank. No SentencePiece model does. */
bool proa_tiktoken_is(proa_str bytes);
/* Appends a tokenizer.json for tiktoken's lines. name: the file's, which says the encoding unless the configuration
 * (or NULL) does. UNSUPPORTED when neither does; INVALID when a line is broken, or a byte has no token. */
PROA_MUST_CHECK proa_status proa_tiktoken_write(proa_buf *out, proa_str lines, const char *name,
                                                const proa_json *config, proa_err *err);

#endif
