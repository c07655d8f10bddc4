/* SPDX-License-Identifier: Apache-2.0
 * regex.h - the patterns of Split and Replace, by PCRE2.
 * Patterns are written for Oniguruma (what the tokenizers library links). proa_regex_new translates what differs:
 * \h and \H (hex digits), \s, \w, \b and their negations (Unicode White_Space; Alphabetic, M, Nd, Pc), POSIX
 * classes, (?m) (dot matches all), \uHHHH, long category names, script names (Script, not Script_Extensions), nested
 * classes and `&&`. `^` and `$` match at every line. Not the same: {n,m}+ is possessive here.
 * Owner:   proa_regex_free.  Threads: a compiled pattern may be used by many at once.
 * Limits:  PROA_REGEX_BYTES_MAX, PROA_REGEX_STEPS_MAX. */
#ifndef PROA_TEXT_REGEX_H
#define PROA_TEXT_REGEX_H

#include "base/status.h"
#include "base/str.h"

typedef struct proa_regex proa_regex;
PROA_MUST_CHECK proa_status proa_regex_new(proa_regex **out, proa_str pattern, proa_err *err);
void proa_regex_free(proa_regex *regex); /* NULL is fine */

/* The text split into matches and the text between them, in order, without gaps. Matches may be empty. */
typedef struct proa_text_span {
    int32_t from, to;
    bool match;
} proa_text_span;
typedef struct proa_text_spans {
    proa_text_span *ptr;
    int64_t len, cap;
} proa_text_spans;
void proa_text_spans_push(proa_text_spans *spans, size_t from, size_t to, bool match);
void proa_text_spans_release(proa_text_spans *spans);

/* An empty text gives one span that is no match. LIMIT when the pattern needs too many steps. */
PROA_MUST_CHECK proa_status proa_regex_spans(const proa_regex *regex, proa_str text, proa_text_spans *out,
                                             proa_err *err);
/* The same for a literal string; an empty needle matches nowhere. */
void proa_literal_spans(proa_str needle, proa_str text, proa_text_spans *out);

#endif
