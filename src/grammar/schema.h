/* SPDX-License-Identifier: Apache-2.0
 * schema.h - reads a JSON schema (draft 2020-12) into a grammar of the JSON texts that it accepts. README.md lists the
 *            keywords, and what is narrower than the draft. */
#ifndef PROA_GRAMMAR_SCHEMA_H
#define PROA_GRAMMAR_SCHEMA_H

#include "grammar/expr.h"

/* Adds the schema's rules; *rule is that of a whole text. UNSUPPORTED names a keyword and its path:
 * "at #/properties/a: the keyword 'not' is not supported". */
PROA_MUST_CHECK proa_status proa_schema_read(proa_rules *rules, proa_str text, int32_t *rule, proa_err *err);

#endif
