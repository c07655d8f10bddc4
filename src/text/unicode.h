/* SPDX-License-Identifier: Apache-2.0
 * unicode.h - character classes as the tokenizers library sees them, and UTF-8 repair.
 * Categories come from utf8proc; where Rust's or Oniguruma's tables differ in meaning (not in age), the comment
 * says which one is followed. */
#ifndef PROA_TEXT_UNICODE_H
#define PROA_TEXT_UNICODE_H

#include "base/str.h"

#define PROA_REPLACEMENT     "\xEF\xBF\xBD" /* U+FFFD */
#define PROA_REPLACEMENT_LEN 3

bool proa_char_is_space(int32_t c);      /* Unicode White_Space (Rust's char::is_whitespace) */
bool proa_char_is_numeric(int32_t c);    /* Nd, Nl, No */
bool proa_char_is_punct(int32_t c);      /* ASCII punctuation and symbols, or P* */
bool proa_char_is_mark(int32_t c);       /* Mn, Mc, Me */
bool proa_char_is_nonspacing(int32_t c); /* Mn */
bool proa_char_is_other(int32_t c);      /* Cc, Cf, Co: what BertNormalizer calls a control character */
bool proa_char_is_word(int32_t c);       /* \w of Rust's regex: Alphabetic, M, Nd, Pc, the two joiners */
bool proa_char_is_han(int32_t c);        /* the CJK blocks that BERT puts spaces around */

/* One character of valid UTF-8; returns its length. s.len > 0. */
int proa_char_next(proa_str s, int32_t *c);
/* The start of the last character of valid UTF-8; s.len > 0. */
size_t proa_char_last(proa_str s);
/* A number for each script, 0 for none: as the pre-tokenizer UnicodeScripts sees them (tools/unicode_scripts.py). */
int proa_char_script(int32_t c);
bool proa_buf_code_point(proa_buf *buf, int32_t c);

/* How many of the bytes one U+FFFD stands for: the maximal subpart of an ill-formed sequence (Unicode
 * 3.9, table 3-8; what Python's errors="replace" and Rust's from_utf8_lossy do). *cut is set when the bytes end
 * before the sequence could be judged: more bytes might make it a character. They are not well formed, len > 0. */
size_t proa_utf8_subpart(const char *bytes, size_t len, bool *cut);
/* Appends s with every ill-formed subpart replaced. */
bool proa_utf8_repair(proa_buf *out, proa_str s);

/* GPT-2's bytes as printable characters: 0x21..0x7E, 0xA1..0xAC, 0xAE..0xFF stand for themselves, the other 68
 * bytes, in order, for U+0100.. */
int32_t proa_byte_to_char(unsigned char byte);
int proa_char_to_byte(int32_t c); /* -1 if c stands for no byte */

#endif
