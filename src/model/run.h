/* SPDX-License-Identifier: Apache-2.0
 * run.h - inside model/: a program run over rows of the last pass. */
#ifndef PROA_MODEL_RUN_H
#define PROA_MODEL_RUN_H

#include "model/model.h"

/* Runs the head or the pooler over `count` rows of the last pass, at most plan.device_head_rows. rows: on the device
 * (proa_staging_rows). Returns register OUT, [count, outputs] f32 on the device, valid until the next program runs. */
proa_view proa_run_head(proa_model *m, const proa_program *program, const int32_t *rows, int64_t count);

#endif
