/* SPDX-License-Identifier: Apache-2.0
 * schema_inner.h - what the parts of the schema reader share. Private to src/grammar.
 *
 * A value must often match several schemas at once: those of allOf, of $ref and its neighbours, of anyOf and its
 * neighbours. The reader works on such a list, a proa_all; no schema is ever rewritten. */
#ifndef PROA_GRAMMAR_SCHEMA_INNER_H
#define PROA_GRAMMAR_SCHEMA_INNER_H

#include "grammar/expr.h"
#include "base/json.h"

/* The way from the root to a schema, for errors. */
typedef struct proa_path {
    const struct proa_path *up;
    const char *keyword; /* "properties" */
    proa_str name;       /* of a property; empty: none */
    int64_t index;       /* of a list; -1: none */
} proa_path;

typedef struct proa_known_ref {
    const proa_json *schema;
    int32_t rule;
} proa_known_ref;

typedef struct proa_schema {
    proa_rules *rules;
    const proa_json *root;
    proa_known_ref *refs; /* targets of $ref that have a rule */
    int32_t refs_count, refs_cap;
    const proa_expr *space, *string, *character, *value, *integer, *number; /* parts that all schemas share */
    int depth;
    proa_err *err;
} proa_schema;

enum { PROA_ALL_MAX = 64 };
typedef struct proa_all {
    const proa_json *list[PROA_ALL_MAX]; /* objects */
    bool chosen[PROA_ALL_MAX];           /* a branch of its anyOf or oneOf is in the list */
    int32_t count;
    int32_t roots; /* schemas that were added; the others are theirs by $ref and allOf */
} proa_all;

/* Types of values, as bits. Each number is of one of two types; NUMBERS alone are those with a fraction. */
enum {
    PROA_TYPES_NULLS = 1,
    PROA_TYPES_BOOLS = 2,
    PROA_TYPES_INTEGERS = 4,
    PROA_TYPES_NUMBERS = 8,
    PROA_TYPES_STRINGS = 16,
    PROA_TYPES_ARRAYS = 32,
    PROA_TYPES_OBJECTS = 64,
    PROA_TYPES_ALL = 127
};

proa_status proa_schema_refuse(const proa_schema *s, const proa_path *path, const char *fmt, ...)
    PROA_PRINTF(3, 4);
/* Adds a schema. true adds nothing; false sets *never. */
PROA_MUST_CHECK proa_status proa_all_add(proa_schema *s, proa_all *all, const proa_json *schema, bool *never,
                                         const proa_path *path);
/* The schema within the same document that a schema's $ref names. Refuses others, and those that do not exist. */
PROA_MUST_CHECK proa_status proa_schema_resolve(const proa_schema *s, const proa_json *schema,
                                                const proa_json **out, const proa_path *path);
/* Whether the schema says nothing but this keyword; titles, descriptions and the like say nothing. */
bool proa_schema_says_only(const proa_json *schema, const char *keyword);
/* The expression of a value that matches all of them. */
PROA_MUST_CHECK proa_status proa_schema_all(proa_schema *s, const proa_all *all, const proa_path *path,
                                            const proa_expr **out);
/* The member of the first of them that has it; NULL: none has. Whether any has one of the names (NULL ends them). */
const proa_json *proa_all_first(const proa_all *all, const char *key);
const char *proa_all_any(const proa_all *all, const char *const *names);
/* The greatest (or least) of an integer keyword, which is 0 to PROA_GRAMMAR_REPEAT_MAX. -1: none has it. */
PROA_MUST_CHECK proa_status proa_all_bound(const proa_schema *s, const proa_all *all, const char *key,
                                           bool least, int64_t *out, const proa_path *path);

/* Values of enum and const whose type is in `types`. *found is false if there is neither. */
PROA_MUST_CHECK proa_status proa_schema_constants(proa_schema *s, const proa_all *all, int types, bool *found,
                                                  const proa_path *path, const proa_expr **out);
bool proa_has_member(const proa_json *schema, const char *key);             /* null counts */
bool proa_value_in_schema(const proa_json *schema, const proa_json *value); /* its enum and const allow the value */

/* Values of one type. */
PROA_MUST_CHECK proa_status proa_schema_object(proa_schema *s, const proa_all *all, const proa_path *path,
                                               const proa_expr **out);
PROA_MUST_CHECK proa_status proa_schema_array(proa_schema *s, const proa_all *all, const proa_path *path,
                                              const proa_expr **out);
PROA_MUST_CHECK proa_status proa_schema_string(proa_schema *s, const proa_all *all, const proa_path *path,
                                               const proa_expr **out);
PROA_MUST_CHECK proa_status proa_schema_number(proa_schema *s, const proa_all *all, bool integer,
                                               const proa_path *path, const proa_expr **out);
/* The text of a constant. */
const proa_expr *proa_schema_literal(proa_schema *s, const proa_json *value);
const proa_expr *proa_schema_quoted(proa_schema *s, proa_str text); /* a JSON string */
/* space? text space? */
const proa_expr *proa_schema_spaced(proa_schema *s, const char *text);

#endif
