/* SPDX-License-Identifier: Apache-2.0
 * stage.h - a step's arrays on their way to a device, and its results on their way back. On the host nothing moves.
 * Owner:   the model.
 * Threads: the stepping thread. */
#ifndef PROA_MODEL_STAGE_H
#define PROA_MODEL_STAGE_H

#include "model/model.h"

/* Takes the memory on both sides. */
PROA_MUST_CHECK proa_status proa_stage_make(proa_model *m, proa_err *err);
void proa_stage_free(proa_model *m);
/* Copies ids, positions, types, spans and the pages that they use in one piece, and makes *there of it. Returns there,
 * or on the host batch itself. The spans' context_max is rounded up so that few different ones come. */
const proa_batch *proa_stage_batch(proa_model *m, const proa_batch *batch, proa_batch *there);
const int32_t *proa_stage_rows(proa_model *m, const int32_t *rows, int64_t count);
const int32_t *proa_stage_all_rows(const proa_model *m); /* 0, 1, 2, ...: of a head that only gathers */
/* The head's output where the host can read it, and with m->hidden_wanted what the head read. */
proa_view proa_stage_fetch(proa_model *m, proa_view out, proa_view hidden);
/* Where a device puts the best id of each row, its logit and the row's log-sum-exp, and fetching the ids and sums. */
typedef struct proa_best {
    int32_t *ids;
    float *values, *sums;
} proa_best;
proa_best proa_stage_best(proa_model *m);
void proa_stage_best_fetch(proa_model *m, int64_t count, int32_t *ids, float *sums);
const float *proa_stage_hidden(const proa_model *m, proa_view hidden, int64_t row);

#endif
