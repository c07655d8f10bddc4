/* SPDX-License-Identifier: Apache-2.0
 * output.h - events to a request's callback: tokens with their text, rows, the end with its results. Private to
 * src/engine.
 * Owner:   what an event points to is valid during the callback only. Threads: the stepping thread, no lock held. */
#ifndef PROA_ENGINE_SCHED_OUTPUT_H
#define PROA_ENGINE_SCHED_OUTPUT_H

#include "engine/sched/process_logits.h"

/* BEGIN: it was admitted. */
void proa_emit_begin(proa_engine_request *req);
/* TOKEN: makes the token's text and applies the stop rules; sets seq->finish when the sequence ends. */
void proa_emit_token(const proa_draw *draw, const proa_sample *sample);
/* ROWS: rows [count][columns] of the input from row `first` on, or pooled [columns]; the other is NULL. */
void proa_emit_rows(proa_engine_request *req, const float *rows, const float *pooled, int64_t first,
                    int64_t count, int64_t columns);
/* SCORES: a row [columns] of a beam in this step, raw or as it was chosen by; NULL: it is not wanted. */
void proa_emit_scores(proa_engine_request *req, int64_t beam, const float *logits, const float *scores,
                      int64_t columns);
/* PROMPT: log-probabilities of the prompt's tokens [first, first + count). */
void proa_emit_prompt(proa_engine_request *req, const float *logprobs, int64_t first, int64_t count);
/* DONE, then frees the request, which is in no list any more and holds no pages. error: NULL, or why it failed. */
void proa_emit_done(proa_engine *e, proa_engine_request *req, proa_finish finish, const proa_err *error);

#endif
