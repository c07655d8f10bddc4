/* SPDX-License-Identifier: Apache-2.0
 * run.h - inside model/: a program run over rows of the last pass, and what each rank does for a call. */
#ifndef PROA_MODEL_RUN_H
#define PROA_MODEL_RUN_H

#include "model/ranks/call.h"

/* Rows of x as f32 to memory where the model runs; NULL: nowhere. */
void proa_run_copy_rows(proa_model *m, float *to, proa_view x);
/* Runs the head or the pooler over `count` rows of the last pass, at most plan.device_head_rows, in the last stage of a
 * pipeline. rows: on the device (proa_staging_rows). Returns register OUT, [count, outputs] f32 on the device, valid
 * until the next program runs. */
proa_view proa_run_head(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count);
/* Writes the keys and values of the one span into its pages, all layers, in order with the passes. values: those of
 * layer l from l * stride on, [span's rows][2 * kv heads * head dim], the host's: the keys of all heads, then the
 * values. At most rows_max rows. */
void proa_run_append(proa_model *m, const proa_kv *kv, const proa_spans *span, const float *values,
                     int64_t stride);
/* Copies the residual stream of rows of the last pass: to [count, hidden], where the model runs. */
void proa_run_copy_stream(proa_model *m, proa_view to, const int32_t *rows, int64_t count);
/* What the last product of the head would read for such rows: [count, proa_model_hidden_width] on the device. Computed
 * in the last stage of a pipeline. */
proa_view proa_run_hidden(proa_model *m, const int32_t *rows, int64_t count);

/* What a rank does for a call of model.h (ranks/call.h), by its kind; sample.c has the last two, model.c the load. */
void proa_run_encode(proa_model *m, proa_rank_call *call);
void proa_run_decode(proa_model *m, proa_rank_call *call);
void proa_run_output_head(proa_model *m, proa_rank_call *call);
void proa_run_send_outputs(proa_model *m, proa_rank_call *call);
void proa_run_sample(proa_model *m, proa_rank_call *call);
/* staging_sample.c. Of what the last stage of processes has after a failure, nothing is sent. */
proa_status proa_run_sampled(proa_model *m, const proa_rank_call *call, proa_err *err);
void proa_run_top_k(proa_model *m, proa_rank_call *call);
PROA_MUST_CHECK proa_status proa_run_load(proa_model *m, proa_rank_call *call, proa_err *err);

#endif
