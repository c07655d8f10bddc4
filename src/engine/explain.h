/* SPDX-License-Identifier: Apache-2.0
 * explain.h - what a model would run and take, without running or taking it: the program with shapes, the memory plan,
 * and the lower bound of a step at a given memory bandwidth. */
#ifndef PROA_ENGINE_EXPLAIN_H
#define PROA_ENGINE_EXPLAIN_H

#include "engine/memory.h"

/* Appends the explanation of the model in a folder, as a table or as one JSON object. bandwidth in bytes/s, 0: not
 * measured (no bound is printed). Errors as proa_engine_open's, except for memory: the output states that the model
 * does not fit. */
PROA_MUST_CHECK proa_status proa_explain(proa_buf *out, const char *path, const proa_engine_options *options,
                                         double bandwidth, bool json, proa_err *err);

#endif
