/* SPDX-License-Identifier: Apache-2.0
 * prefix_levels.h - opens the levels of an engine's prefix cache: the tree of the pool, memory of the host, a folder.
 * Owner:   the engine. Threads: the thread that opens it. */
#ifndef PROA_ENGINE_PREFIX_LEVELS_H
#define PROA_ENGINE_PREFIX_LEVELS_H

#include "base/status.h"
#include "proa/proa.h"

/* After proa_kv_pages_init. What it made is released by proa_engine_close, on failure, too. */
PROA_MUST_CHECK proa_status proa_prefix_levels_open(proa_engine *e, const proa_engine_options *o, proa_err *err);

#endif
