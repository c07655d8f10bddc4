/* SPDX-License-Identifier: Apache-2.0
 * request_rows.h - rows of a request in memory of its caller, and encoder outputs there. Private to src/engine.
 * Owner:   the memory is the caller's, on the host or a GPU, and stays valid until DONE.
 * Threads: check: any. Everything else: the stepping thread. */
#ifndef PROA_ENGINE_REQUEST_ROWS_H
#define PROA_ENGINE_REQUEST_ROWS_H

#include "base/status.h"
#include "engine/speculate/proposer.h"

/* Of a request that is submitted: INVALID or UNSUPPORTED if its memory is not where the model can write it, or it has
 * no such rows. */
PROA_MUST_CHECK proa_status proa_request_rows_check(const proa_engine *e, const proa_request *r, proa_err *err);
/* Before the first row is written or read, and before DONE: orders the device's work after, and before, that of the
 * caller's streams. */
void proa_request_rows_begin(proa_engine *e, const proa_engine_request *req);
void proa_request_rows_end(proa_engine *e, const proa_engine_request *req);
/* Where the row [vocab] of a step and a sequence or beam goes; rows: one of req->rows. NULL: nowhere. */
float *proa_request_row(const proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                        int32_t sequence);
/* Writes a row of the host there. values NULL: nothing is written. */
void proa_request_row_put(proa_engine *e, const proa_engine_request *req, float *rows, int64_t step,
                          int32_t sequence, const float *values);

#endif
