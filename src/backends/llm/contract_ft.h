/* SPDX-License-Identifier: Apache-2.0
 * contract_ft.h - inside the backend `fastertransformer`: which model, and the replies. */
#ifndef PROA_BACKENDS_LLM_CONTRACT_FT_H
#define PROA_BACKENDS_LLM_CONTRACT_FT_H

#include "backends/llm/contract.h"

typedef enum proa_ft_variant { PROA_FT_GPT, PROA_FT_T5, PROA_FT_T5_ENCODER, PROA_FT_BERT } proa_ft_variant;

typedef struct proa_ft_request { /* call->contract_data */
    int64_t input_width;         /* columns of input_ids */
    int64_t output_width;        /* the longest request_output_len */
    int64_t beams;               /* rows of the output for each prompt */
    bool log_probs;
    int32_t *end_id;     /* [prompts] what outputs are padded with */
    proa_id_list *input; /* [prompts] as the client sent them: a soft prompt is not among the outputs */
} proa_ft_request;

/* reply_ft.c: proa_contract's functions; engine's thread. */
void proa_ft_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
void proa_ft_end(proa_llm_request *req);

#endif
