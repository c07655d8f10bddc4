/* SPDX-License-Identifier: Apache-2.0
 * pbtxt_token.h - inside proto: the words of protobuf's text format.
 * Owner:   a lexer holds no memory; tokens point into its text.
 * Way in:  proa_lexer_start gives the first token in ->now, proa_lexer_next the following ones. */
#ifndef PROA_PROTO_PBTXT_TOKEN_H
#define PROA_PROTO_PBTXT_TOKEN_H

#include "base/status.h"
#include "base/str.h"

typedef enum proa_token_kind {
    PROA_TOKEN_END,
    PROA_TOKEN_BAD, /* err says why; stays */
    PROA_TOKEN_NAME,
    PROA_TOKEN_INTEGER, /* 12, 0x1F, 017; never a sign */
    PROA_TOKEN_FLOAT,   /* 1.5, 1e3, 2f */
    PROA_TOKEN_STRING,  /* with its quotes; its escapes are well formed */
    PROA_TOKEN_SYMBOL   /* one character */
} proa_token_kind;

typedef struct proa_token {
    proa_token_kind kind;
    proa_str text;
} proa_token;

typedef struct proa_lexer {
    proa_str text;
    size_t at; /* after `now` */
    proa_token now;
    const char *what; /* names the text in errors */
    proa_err *err;    /* not NULL */
} proa_lexer;

void proa_lexer_start(proa_lexer *l, proa_str text, const char *what, proa_err *err);
void proa_lexer_next(proa_lexer *l);
bool proa_lexer_is(const proa_lexer *l, char symbol);
/* INVALID "WHAT:LINE:COLUMN: ..." at the current token; columns count characters from 1. */
proa_status proa_lexer_fail(proa_lexer *l, const char *fmt, ...) PROA_PRINTF(2, 3) PROA_COLD;
/* Fails with "expected X, found ...", where the found text is truncated. */
proa_status proa_lexer_expected(proa_lexer *l, const char *expected) PROA_COLD;
/* Appends the bytes that a STRING token denotes. */
void proa_token_unescape(proa_buf *out, proa_token string);

#endif
