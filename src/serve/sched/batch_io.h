/* SPDX-License-Identifier: Apache-2.0
 * batch_io.h - batch_input and batch_output of config.pbtxt: tensors that describe a ragged batch, and one
 * output of a whole batch that is cut into the requests' own.
 * A batch_input becomes an input of the batch's first request, with the name target_name; ragged inputs are in their
 * requests one after the other.
 * Threads: that of execute. */
#ifndef PROA_SERVE_SCHED_BATCH_IO_H
#define PROA_SERVE_SCHED_BATCH_IO_H

#include "serve/models/model.h"

/* The scheduler calls it before execute. */
void proa_batch_inputs_add(const proa_served_model *model, proa_infer *const *requests, int count);

#endif
