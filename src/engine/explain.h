/* SPDX-License-Identifier: Apache-2.0
 * explain.h - what a model would do and take, without doing or taking it: the program with shapes, the memory plan,
 * and the floor that a bandwidth allows. */
#ifndef PROA_ENGINE_EXPLAIN_H
#define PROA_ENGINE_EXPLAIN_H

#include "engine/memory.h"

/* Appends the explanation of the model in a folder, as a table or as one JSON object. bandwidth in bytes/s, 0: not
 * measured (no floor is printed). Errors as proa_engine_open's, but for memory: what does not fit is said, not
 * refused. */
PROA_MUST_CHECK proa_status proa_explain(proa_buf *out, const char *path, const proa_engine_options *options,
                                         double bandwidth, bool json, proa_err *err);

#endif
