/* SPDX-License-Identifier: Apache-2.0
 * engine_trtllm.h - inside the backend `tensorrtllm`: what a request asks for beside options, and the replies. */
#ifndef PROA_BACKENDS_ENGINE_TRTLLM_H
#define PROA_BACKENDS_ENGINE_TRTLLM_H

#include "backends/llm/llm.h"

typedef struct proa_trtllm_prompt { /* one for each prompt */
    bool exclude_input, log_probs, context_logits, generation_logits, perf_metrics;
} proa_trtllm_prompt;

typedef struct proa_trtllm_call { /* call->own; NULL: a request that stopped another one */
    bool batched;                 /* outputs have a batch dimension */
    proa_trtllm_prompt *prompt;   /* [call->count] */
} proa_trtllm_call;

/* engine_trtllm_reply.c: proa_contract's functions; engine's thread. */
void proa_trtllm_tell(proa_call *call, proa_prompt *p, proa_said *said, int32_t count, bool final);
void proa_trtllm_end(proa_call *call);

#endif
