/* SPDX-License-Identifier: Apache-2.0
 * readers.h - what the readers share: a forest that grows tree by tree, numbers in text, and XGBoost's two notations.
 * Owner:   a reader has one builder; what it holds goes to the forest, or with proa_forest_drop.
 * Threads: one file, one thread.
 * Way in:  proa_forest_begin; a draft for each tree, then proa_forest_add; proa_forest_finish. */
#ifndef PROA_FOREST_READERS_H
#define PROA_FOREST_READERS_H

#include "forest/forest.h"

/* ---- a forest while it grows (build.c) ---- */

typedef struct proa_forest_builder {
    proa_forest *f;
    int64_t node_cap, cover_cap, tree_cap, set_cap, word_cap, vector_cap; /* vector_cap counts values */
    int64_t linear_leaf_cap, term_cap, slope_cap;
    bool has_cover;          /* of all trees so far */
    proa_forest_node *draft; /* one tree with the node numbers of its file; feature -1 is a leaf */
    double *draft_cover;     /* negative: not known */
    int64_t draft_cap;
    proa_err *err;
} proa_forest_builder;

void proa_forest_begin(proa_forest_builder *b, proa_forest_format format, proa_forest_family family,
                       proa_err *err);
void proa_forest_drop(proa_forest_builder *b);
/* Prepares a draft of that many nodes, all of them leaves of 0 without cover. LIMIT if it is too large. */
PROA_MUST_CHECK proa_status proa_forest_draft(proa_forest_builder *b, int64_t nodes);
/* Appends what is reached from the draft's root, in the forest's order; the rest is dropped (XGBoost leaves
 * pruned nodes in the file). CORRUPT if that is no tree. */
PROA_MUST_CHECK proa_status proa_forest_add(proa_forest_builder *b, int64_t nodes, int32_t output,
                                            int32_t stride);
/* A set of that many words, all 0, to be filled at proa_forest_words(b). */
PROA_MUST_CHECK proa_status proa_forest_add_set(proa_forest_builder *b, int64_t words, int32_t *set);
uint32_t *proa_forest_words(proa_forest_builder *b, int32_t set);
/* A leaf's vector: leaf_size values, to be filled. leaf_size must be known by now. */
PROA_MUST_CHECK proa_status proa_forest_add_vector(proa_forest_builder *b, int32_t *vector, double **values);
/* A linear leaf of that many terms, to be filled at f->terms and f->slopes from the line's `first` on. */
PROA_MUST_CHECK proa_status proa_forest_add_linear_leaf(proa_forest_builder *b, double constant,
                                                        int64_t terms, int32_t *line);
/* Sets targets and classes of a row, with base scores of 0 and divisors of 1. */
PROA_MUST_CHECK proa_status proa_forest_outputs(proa_forest_builder *b, int64_t targets, int64_t classes);
/* Checks everything and hands the forest over; drops it on failure. */
PROA_MUST_CHECK proa_status proa_forest_finish(proa_forest_builder *b, proa_forest **out);
/* Copies up to size - 1 bytes; unprintable bytes become '?'. */
void proa_forest_name(char *out, size_t size, proa_str from);

/* ---- numbers in text (number.c) ---- */

/* Reads a number at *p and moves past it; false if there is none. Decimal, with exponent, NaN and
 * infinities in any case. `as_float` rounds to float once, not first to double. Nothing at or after `end`
 * is read. */
bool proa_forest_number(const char **p, const char *end, bool as_float, double *out);

/* Numbers of one array; kept from tree to tree. */
typedef struct proa_forest_numbers {
    double *v;
    int64_t count, cap;
} proa_forest_numbers;

void proa_forest_numbers_reserve(proa_forest_numbers *n, int64_t cap);
void proa_forest_numbers_push(proa_forest_numbers *n, double v);
void proa_forest_numbers_release(proa_forest_numbers *n);
/* v[i] as an integer in [min, max]; INVALID names what. */
PROA_MUST_CHECK proa_status proa_forest_integer(double v, int64_t min, int64_t max, const char *what,
                                                int64_t *out, proa_err *err);

/* ---- JSON and UBJSON, pulled value by value (doc.c) ---- */

typedef struct proa_doc {
    const char *start, *ptr, *end;
    bool ubj;
    int depth;
    proa_err *err;
} proa_doc;

/* An object or array that is being read. */
typedef struct proa_doc_scope {
    int64_t left; /* UBJSON with a count: items to come; else -1 */
    char close;   /* the closing bracket */
    bool started;
} proa_doc_scope;

void proa_doc_init(proa_doc *d, proa_str text, bool ubj, proa_err *err);
PROA_MUST_CHECK proa_status proa_doc_object(proa_doc *d, proa_doc_scope *scope);
PROA_MUST_CHECK proa_status proa_doc_array(proa_doc *d, proa_doc_scope *scope);
/* Moves to the next member or item, whose value must be read next; *more is false after the last. `key`:
 * NULL in arrays. Keys and strings are the bytes between the quotes; escapes of JSON are not decoded. */
PROA_MUST_CHECK proa_status proa_doc_next(proa_doc *d, proa_doc_scope *scope, proa_str *key, bool *more);
PROA_MUST_CHECK proa_status proa_doc_str(proa_doc *d, proa_str *out);
/* A number, or true and false as 1 and 0. */
PROA_MUST_CHECK proa_status proa_doc_num(proa_doc *d, bool as_float, double *out);
/* An array of numbers; replaces the contents of `out`. */
PROA_MUST_CHECK proa_status proa_doc_nums(proa_doc *d, bool as_float, proa_forest_numbers *out);
PROA_MUST_CHECK proa_status proa_doc_skip(proa_doc *d);
/* Nothing but white space may follow the document. */
PROA_MUST_CHECK proa_status proa_doc_end(proa_doc *d);

/* ---- the readers: each takes a whole file ---- */

PROA_MUST_CHECK proa_status proa_forest_read_xgboost(proa_forest **out, proa_str bytes, bool ubj, proa_err *err);
PROA_MUST_CHECK proa_status proa_forest_read_lightgbm(proa_forest **out, proa_str bytes, proa_err *err);
PROA_MUST_CHECK proa_status proa_forest_read_treelite(proa_forest **out, proa_str bytes, proa_err *err);

#endif
