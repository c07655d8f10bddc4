/* SPDX-License-Identifier: Apache-2.0
 * contract_trtllm.h - inside the backend `tensorrtllm`: what a request has beside options, and the replies. */
#ifndef PROA_BACKENDS_LLM_CONTRACT_TRTLLM_H
#define PROA_BACKENDS_LLM_CONTRACT_TRTLLM_H

#include "backends/llm/contract.h"

typedef struct proa_trtllm_prompt { /* one for each prompt */
    bool exclude_input, log_probs, context_logits, generation_logits, perf_metrics;
} proa_trtllm_prompt;

typedef struct proa_trtllm_request { /* call->contract_data; NULL: a request that stopped another one */
    bool batched;                    /* outputs have a batch dimension */
    proa_trtllm_prompt *prompt;      /* [call->count] */
} proa_trtllm_request;

/* reply_trtllm.c: proa_contract's functions; engine's thread. */
void proa_trtllm_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
void proa_trtllm_end(proa_llm_request *req);

#endif
