/* SPDX-License-Identifier: Apache-2.0
 * pause.h - what the backends for tests and examples share: waiting that heeds a cancel, parameters that are numbers,
 * checks of a configuration with Triton's texts.
 * Threads: none of its own. */
#ifndef PROA_BACKENDS_PAUSE_H
#define PROA_BACKENDS_PAUSE_H

#include "serve/backend.h"

/* Sleeps; ends early when all requests are cancelled (it looks every few ms). count 0: it sleeps it out. */
void proa_pause_ns(proa_infer *const *requests, int count, int64_t ns);
/* Ends r with CANCELLED if it is cancelled; true if it did. */
bool proa_end_cancelled(proa_infer *r);
/* A final reply of INVALID or whatever err says, made from the arguments. */
void proa_end_with(proa_infer *r, proa_status status, const char *fmt, ...) PROA_PRINTF(3, 4);

/* *value stays if the parameter is absent; INVALID if it is no number in [0, max]. */
proa_status proa_parameter_number(int64_t *value, const proa_model *model, const char *key, int64_t max,
                                  proa_err *err);
bool proa_parameter_true(const proa_model *model, const char *key); /* "true" */

/* "[-1,16]" in text[PROA_DIMS_TEXT]. */
#define PROA_DIMS_TEXT 400
const char *proa_dims_text(char *text, const int64_t *shape, size_t rank);

#endif
