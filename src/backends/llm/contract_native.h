/* SPDX-License-Identifier: Apache-2.0
 * contract_native.h - Proa's own contract: what a request has beside options, and the replies. */
#ifndef PROA_BACKENDS_LLM_CONTRACT_NATIVE_H
#define PROA_BACKENDS_LLM_CONTRACT_NATIVE_H

#include "backends/llm/llm.h"

typedef enum proa_native_task {
    PROA_NATIVE_GENERATE,
    PROA_NATIVE_SCORE,
    PROA_NATIVE_ROWS,
    PROA_NATIVE_EMBED,
    PROA_NATIVE_CLASSIFY
} proa_native_task;
typedef enum proa_pooling {
    PROA_POOLING_MEAN,
    PROA_POOLING_CLS,
    PROA_POOLING_POOLER,
    PROA_POOLING_LAST
} proa_pooling;

typedef struct proa_native_request { /* call->contract_data */
    proa_native_task task;
    proa_pooling pooling;
    bool normalize;
    int64_t start_tokens; /* of the decoder's prompt, counted as the engine does; 0 for decoders */
} proa_native_request;

/* proa_contract's functions; engine's thread. */
void proa_native_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
void proa_native_end(proa_llm_request *req);

#endif
