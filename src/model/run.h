/* SPDX-License-Identifier: Apache-2.0
 * run.h - the head and the pooler, run over rows of the last pass, and what each rank does for a call of model.h.
 * Private
 *         to src/model.
 * Threads: the thread of the rank. Views that are returned belong to the model. */
#ifndef PROA_MODEL_RUN_H
#define PROA_MODEL_RUN_H

#include "model/ranks/call.h"

/* Copies the rows of x as f32 to `to`, memory where the model runs. No effect if `to` is NULL. */
void proa_run_copy_rows(proa_model *m, float *to, proa_view x);
/* Runs the head or the pooler over `count` rows of the last pass, at most plan.device_head_rows; only in the last
 * stage of a pipeline. rows: on the device (proa_staging_rows). Returns register OUT, [count, outputs] f32 on the
 * device, valid until the next program runs. */
proa_view proa_run_head(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count);
/* Copies the residual stream of rows of the last pass to `to` [count, hidden], where the model runs. */
void proa_run_copy_stream(proa_model *m, proa_view to, const int32_t *rows, int64_t count);
/* Computes what the last product of the head would read for these rows: [count, proa_model_hidden_width] on the device.
 * Only in the last stage of a pipeline. */
proa_view proa_run_hidden(proa_model *m, const int32_t *rows, int64_t count);

/* What a rank does for a call of model.h, by the kind of the call (ranks/call.h). sample.c has proa_run_sample and
 * proa_run_top_k, model.c has proa_run_load. */
void proa_run_encode(proa_model *m, proa_rank_call *call);
void proa_run_decode(proa_model *m, proa_rank_call *call);
/* Writes those of this rank's heads and layers, in order with the passes. At most rows_max rows. */
void proa_run_append(proa_model *m, const proa_rank_call *call);
void proa_run_output_head(proa_model *m, proa_rank_call *call);
void proa_run_send_outputs(proa_model *m, proa_rank_call *call);
void proa_run_sample(proa_model *m, proa_rank_call *call);
/* staging/sample.c. After a failure the last stage of a pipeline of processes sends nothing. */
proa_status proa_run_sampled(proa_model *m, const proa_rank_call *call, proa_err *err);
proa_status proa_run_encoded(proa_model *m, const proa_rank_call *call, proa_err *err);
void proa_run_top_k(proa_model *m, proa_rank_call *call);
PROA_MUST_CHECK proa_status proa_run_load(proa_model *m, proa_rank_call *call, proa_err *err);

#endif
