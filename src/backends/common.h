/* SPDX-License-Identifier: Apache-2.0
 * common.h - helpers of several backends: a sleep that ends when the requests are cancelled, error replies, parameters
 *            that are numbers or flags, shapes as text, instances without a state.
 * Threads: any; no state of its own. */
#ifndef PROA_BACKENDS_COMMON_H
#define PROA_BACKENDS_COMMON_H

#include "serve/backend.h"

/* Sleeps for ns; returns early if all requests are cancelled (checked every few ms). count 0: sleeps the
 * full time. */
void proa_backend_sleep(proa_infer *const *requests, int count, int64_t ns);
/* Sends the final reply CANCELLED if r is cancelled, and returns true. */
bool proa_backend_end_if_cancelled(proa_infer *r);
/* Sends a final reply with an error: the status and the formatted text. */
void proa_backend_fail(proa_infer *r, proa_status status, const char *fmt, ...) PROA_PRINTF(3, 4);

/* Makes a reply of a library an error if the bytes of an output are not those of its type and shape: protocols rely on
 * them. */
void proa_backend_check_outputs(proa_reply *reply);

/* Copies what a backend may complete from a configuration in the same arena; the rest stays. */
void proa_backend_take_completed(Inference__ModelConfig *config, const Inference__ModelConfig *made);

/* *value stays if the parameter is absent; INVALID if it is no number in [0, max]. */
proa_status proa_parameter_number(int64_t *value, const proa_served_model *model, const char *key,
                                  int64_t max, proa_err *err);
bool proa_parameter_true(const proa_served_model *model, const char *key); /* whether it is "true" */
/* A parameter that is true, false, 1, 0, yes, no, ... *out stays if it is absent; INVALID if it is anything else. */
proa_status proa_parameter_flag(bool *out, const proa_served_model *model, const char *key, proa_err *err);

/* "[-1,16]" in text[PROA_DIMS_TEXT]; returns text. */
#define PROA_DIMS_TEXT 400
const char *proa_dims_text(char *text, const int64_t *shape, size_t rank);

/* instance_open and instance_close of backends whose instances have no state of their own: all use the model's. */
proa_status proa_shared_instance_open(void **state, void *model_state, const proa_instance *instance,
                                      proa_err *err);
void proa_shared_instance_close(void *state);

#endif
