/* SPDX-License-Identifier: Apache-2.0
 * generation_read.h - the names that a generation's settings and options have in a request (contract of the backend
 * `engine`, src/backends/llm/README.md). A protocol that reads JSON and the backend that reads tensors both use it, so
 * that a name means the same and fails with the same text.
 * Owner:   lists of options are in the arena that the caller gives.
 * Threads: none of its own; the table of names is made once.
 * Way in:  proa_generation_read_settings, then proa_option_by_alias and a setter for each input that is an option. */
#ifndef PROA_SERVE_GENERATION_READ_H
#define PROA_SERVE_GENERATION_READ_H

#include "options/options.h"
#include "serve/infer.h"

/* [task], up to the ones without a model: what requests of tensors may name ends with "classify". */
extern const char *const proa_generation_task_names[];
const char *proa_generated_finish_name(proa_finish finish); /* "stop", "length", "cancelled", "error", "" */

/* Looks up the inputs of a request by name. text: NULL ptr if there is none; flag: false if there is none. */
typedef struct proa_generation_inputs {
    proa_str (*text)(const void *arg, const char *name);
    bool (*flag)(const void *arg, const char *name, bool *value);
    const void *arg;
} proa_generation_inputs;

/* Task (PROA_GENERATION_DEFAULT if the request names none), pooling, stream, echo and normalize, from inputs or else
 * from parameters of r; the session from its sequence. With `options` also the JSON of `options`, and then the
 * parameters that name options: what is an input of its own is set afterwards by the caller. INVALID, UNSUPPORTED with
 * the name of the setting. */
PROA_MUST_CHECK proa_status proa_generation_read_settings(proa_generation *g, const proa_infer *r,
                                                          const proa_generation_inputs *inputs, bool options,
                                                          proa_arena *arena, proa_err *err);

/* ---- generation_options.c ---- */

/* The option that an input or parameter of this name means, by any engine's name; NULL: none. */
const proa_option_row *proa_option_by_alias(const char *name);
/* Setters beside proa_option_set_number. Each marks the option as given. Texts: lists of words, strings and biases, or
 * any value as text; for options that take words, a text that is no JSON list is a string. Empty ones are left out. */
/* An option that is a text from an integer, in decimal: lora_task_id 7 is the adapter "7". */
proa_status proa_option_set_integer_text(proa_options *o, const proa_option_row *row, int64_t value,
                                         proa_arena *arena, proa_err *err);
void proa_option_set_seed(proa_options *o, const proa_option_row *row, uint64_t seed);
PROA_MUST_CHECK proa_status proa_option_set_ids(proa_options *o, const proa_option_row *row, const int32_t *ids,
                                                int64_t count, proa_arena *arena, proa_err *err);
PROA_MUST_CHECK proa_status proa_option_set_texts(proa_options *o, const proa_option_row *row,
                                                  const proa_str *list, int64_t count, proa_arena *arena,
                                                  proa_err *err);
/* guided_decoding_guide_type and guided_decoding_guide of TensorRT-LLM as an option; both empty: none. */
PROA_MUST_CHECK proa_status proa_options_set_guide(proa_options *o, proa_str type, proa_str guide,
                                                   proa_arena *arena, proa_err *err);
/* All parameters that name options; a name one slip away is INVALID, what cannot be done UNSUPPORTED. `known` (NULL-
 * terminated) are names that the caller reads itself. */
PROA_MUST_CHECK proa_status proa_options_read_params(proa_options *o, const proa_infer *r,
                                                     const char *const *known, proa_arena *arena, proa_err *err);

#endif
