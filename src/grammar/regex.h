/* SPDX-License-Identifier: Apache-2.0
 * regex.h - reads a regular expression into an expression of a grammar.
 *
 * Syntax: literals, ., classes, \d \w \s \D \W \S (ASCII), escapes, groups (also named and non-capturing), |, * + ? and
 * bounds, lazy or not; ^ and $ at the ends of the whole or of its alternatives. Back references, look-around, word
 * boundaries, Unicode properties and possessive repetition are refused with their place. */
#ifndef PROA_GRAMMAR_REGEX_H
#define PROA_GRAMMAR_REGEX_H

#include "grammar/expr.h"

typedef enum proa_regex_mode {
    PROA_REGEX_TEXT, /* the text itself matches */
    PROA_REGEX_JSON  /* the text is inside a JSON string: what matches is written with JSON's escapes */
} proa_regex_mode;

typedef struct proa_regex_options {
    proa_regex_mode mode;
    bool whole; /* the whole text must match, with anchors or without; else a part of it, as JSON schema has it */
    bool ignore_case; /* of ASCII letters */
    bool dot_all;     /* . matches a line end too */
} proa_regex_options;

/* INVALID or LIMIT with the place in the text. */
PROA_MUST_CHECK proa_status proa_regex_read(proa_rules *rules, proa_str text, const proa_regex_options *o,
                                            const proa_expr **out, proa_err *err);
/* Any code point, in the mode's spelling. */
const proa_expr *proa_regex_any(proa_rules *rules, proa_regex_mode mode);

#endif
