/* SPDX-License-Identifier: Apache-2.0
 * ranks.h - a model in several ranks (tensor and pipeline parallelism): each is a proa_model with a part of the
 * weights, on a device and in a thread of its own. The caller has rank 0. What it asks of it (model.h) runs in all
 * ranks side by side, and their programs meet in collective steps.
 * Owner:   rank 0 owns the others: proa_model_free. Devices and pools are the caller's.
 * Threads: as model.h; the threads of the other ranks are this file's.
 * Way in:  proa_ranks_prepare in place of proa_model_prepare; then model.h. */
#ifndef PROA_MODEL_RANKS_H
#define PROA_MODEL_RANKS_H

#include "model/model.h"

/* Prepares the parts of a model: rank i runs on device[i] with the threads of pool[i]. With one rank this is
 * proa_model_prepare. options: rank and ranks are set by this function; ranks must be a multiple of
 * its stages. Errors as there; INVALID or UNSUPPORTED names
 * what cannot be divided among so many. */
PROA_MUST_CHECK proa_status proa_ranks_prepare(proa_model **out, const char *path,
                                               const proa_model_options *options, proa_device *const *device,
                                               proa_pool *const *pool, int32_t ranks, proa_err *err);
/* Rank `rank` of the model whose rank 0 is m. */
proa_model *proa_ranks_model(const proa_model *m, int32_t rank);

/* For the functions of model.h: runs a job in all ranks, in this thread for rank 0, and returns when all are done. The
 * other ranks first get what callers set in rank 0 (encoder_ticket, hidden_wanted). */
typedef void proa_rank_job(proa_model *m, void *arg);
void proa_ranks_run(proa_model *m, proa_rank_job *job, void *arg);
/* Ends the threads and frees all ranks but m. */
void proa_ranks_free(proa_model *m);

#endif
