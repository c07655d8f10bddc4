/* SPDX-License-Identifier: Apache-2.0
 * engine_own.h - Proa's own contract: what a request asked for beside options, and the replies. */
#ifndef PROA_BACKENDS_ENGINE_OWN_H
#define PROA_BACKENDS_ENGINE_OWN_H

#include "backends/llm/llm.h"

typedef enum proa_own_task {
    PROA_OWN_GENERATE,
    PROA_OWN_SCORE,
    PROA_OWN_ROWS,
    PROA_OWN_EMBED,
    PROA_OWN_CLASSIFY
} proa_own_task;
typedef enum proa_pooling {
    PROA_POOLING_MEAN,
    PROA_POOLING_CLS,
    PROA_POOLING_POOLER,
    PROA_POOLING_LAST
} proa_pooling;

typedef struct proa_own { /* call->own */
    proa_own_task task;
    proa_pooling pooling;
    bool normalize;
    int64_t start_tokens; /* of the decoder's prompt, counted as the engine does; 0 for decoders */
} proa_own;

/* proa_contract's functions; engine's thread. */
void proa_own_tell(proa_call *call, proa_prompt *p, proa_said *said, int32_t count, bool final);
void proa_own_end(proa_call *call);

#endif
