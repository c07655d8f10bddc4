/* SPDX-License-Identifier: Apache-2.0
 * options.h - one table of everything that a request can set: name, kind, range, default, help, and what
 *             FasterTransformer, TensorRT-LLM, OpenAI and transformers call it. Checking, the command line's options
 *             and help, JSON lines and docs/decoding.md all read this table.
 * Way in:  proa_option_rows; proa_options_check at submit; proa_options_set from text; proa_options_read_json. */
#ifndef PROA_OPTIONS_OPTIONS_H
#define PROA_OPTIONS_OPTIONS_H

#include "base/arena.h"
#include "base/json.h"
#include "proa/proa.h"

typedef enum proa_option_kind {
    PROA_OPTION_KIND_INT,
    PROA_OPTION_KIND_FLOAT,
    PROA_OPTION_KIND_U64,
    PROA_OPTION_KIND_BOOL,
    PROA_OPTION_KIND_STYLE,         /* hf, ft, trtllm */
    PROA_OPTION_KIND_EARLY,         /* false, true, never */
    PROA_OPTION_KIND_IDS,           /* end_ids: a list of token ids */
    PROA_OPTION_KIND_WORDS,         /* lists of token sequences */
    PROA_OPTION_KIND_STRINGS,       /* list of texts */
    PROA_OPTION_KIND_BIAS,          /* {"id": value, ...} */
    PROA_OPTION_KIND_TOKENS,        /* a list of token ids */
    PROA_OPTION_KIND_SEQUENCE_BIAS, /* [[[ids], value], ...] */
    PROA_OPTION_KIND_TEXT           /* a text; what is another kind of JSON is taken as its text */
} proa_option_kind;

typedef struct proa_option_row {
    proa_option option;
    const char *name; /* "top_p"; the command line's is --top-p */
    proa_option_kind kind;
    size_t offset;    /* in proa_options */
    double min, max;  /* of numbers, inclusive */
    bool min_open;    /* min itself is excluded */
    double fallback;  /* what zero means where neither the request nor the model gives a value */
    const char *help; /* one line, lower case */
    /* What others call it; "" when they have no name. OpenAI's API also takes our name as an extension where openai is
     * "", and does not take the option at all where it is NULL. */
    const char *ft, *trtllm, *openai, *hf;
    const char *generation_config; /* the key of generation_config.json, or "" */
} proa_option_row;

/* [PROA_OPTION_COUNT], in the order of the enum. */
extern const proa_option_row proa_option_rows[];

/* By name, with - or _. NULL if there is none; *nearest (may be NULL) is then the closest name, NULL if
 * none is close. */
const proa_option_row *proa_option_find(proa_str name, const char **nearest);
/* INVALID: "unknown option 'temprature' (did you mean 'temperature'?)"; nearest may be NULL. */
PROA_MUST_CHECK proa_status proa_option_unknown(proa_str name, const char *nearest, proa_err *err);
/* The field of a row; its value as a number (0 for lists and switches); whether a value, rounded to the field's type,
 * is in the row's range (NaN never is), and the INVALID that says it is not. */
void *proa_option_field(const proa_options *o, const proa_option_row *row);
double proa_option_number(const proa_options *o, const proa_option_row *row);
bool proa_option_in_range(const proa_option_row *row, double value);
proa_status proa_option_out_of_range(const proa_option_row *row, double value, proa_err *err);
/* Sets one option from text: "0.9", "true", "never"; lists: "1,2,3" for ids, JSON for words ([[5,6],[7]]), strings
 * (["a","b"] or one plain text, appended), biases ({"5":-100}) and biases of sequences ([[[5,6],-1]]). Lists go to
 * the arena, as texts do. Marks it as given. */
PROA_MUST_CHECK proa_status proa_options_set(proa_options *o, const proa_option_row *row, proa_str value,
                                             proa_arena *arena, proa_err *err);
/* Sets one option from a number, whichever way a protocol has it (a switch: 0 or 1; end_ids: one id, or -1 for none).
 * Marks it as given. */
PROA_MUST_CHECK proa_status proa_option_set_number(proa_options *o, const proa_option_row *row, double value,
                                                   proa_err *err);
/* Adds one text, taken unchanged, to a list of texts; the list moves to the arena. Marks it as given. */
PROA_MUST_CHECK proa_status proa_option_add_string(proa_options *o, const proa_option_row *row, proa_str text,
                                                   proa_arena *arena, proa_err *err);
/* Sets every member of a JSON object that is an option's name; members with other names are left to the caller, or
 * refused (INVALID, with the closest name) when strict. */
PROA_MUST_CHECK proa_status proa_options_read_json(proa_options *o, const proa_json *object, bool strict,
                                                   proa_arena *arena, proa_err *err);
/* Sets one option from the value of a member. Marks it as given. */
PROA_MUST_CHECK proa_status proa_option_read_json(proa_options *o, const proa_option_row *row,
                                                  const proa_json *value, proa_arena *arena, proa_err *err);
/* Ranges, then contradictions: one INVALID naming the field, its value and its range. end ids and words are checked
 * against the vocabulary. */
PROA_MUST_CHECK proa_status proa_options_check(const proa_options *o, int64_t vocab, int64_t sequences_max,
                                               proa_err *err);
/* Puts defaults where fields are zero and not given: first `defaults` (the model's, may be NULL; what is zero there
 * and given counts too), then the table's. All options are marked in `given` then, but a temperature that was not
 * given. Lists of the defaults stay where they are. */
void proa_options_resolve(proa_options *o, const proa_options *defaults);
/* Whether a grammar constrains the output: json_schema, json_object, regex, grammar or choice. */
bool proa_options_constrain(const proa_options *o);
/* A deep copy of all lists into the arena. */
void proa_options_copy(proa_options *o, const proa_options *from, proa_arena *arena);

#endif
