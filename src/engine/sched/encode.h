/* SPDX-License-Identifier: Apache-2.0
 * encode.h - passes of the encoder (T5, BERT), submitted and completed like steps. Private to src/engine.
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_SCHED_ENCODE_H
#define PROA_ENGINE_SCHED_ENCODE_H

#include "proa/proa.h"

/* Submits a pass over waiting inputs (a second one when many rows wait on a device), and completes the oldest pass. */
void proa_encode_step(proa_engine *e);

#endif
