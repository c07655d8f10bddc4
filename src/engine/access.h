/* SPDX-License-Identifier: Apache-2.0
 * parts.h - what those who build upon the engine inside this program may borrow of it. */
#ifndef PROA_ENGINE_PARTS_H
#define PROA_ENGINE_PARTS_H

#include "proa/proa.h"
#include "text/tokenizer.h"

/* NULL: the model's folder has none. It lives as long as the engine; any thread may use it. */
const proa_tokenizer *proa_engine_tokenizer(const proa_engine *engine);
/* End tokens of the model, as its configuration has them: [*count]. */
const int32_t *proa_engine_end_ids(const proa_engine *engine, int32_t *count);

#endif
