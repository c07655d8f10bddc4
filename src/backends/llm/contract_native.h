/* SPDX-License-Identifier: Apache-2.0
 * contract_native.h - inside the backend `engine`: the replies of Proa's own contract. */
#ifndef PROA_BACKENDS_LLM_CONTRACT_NATIVE_H
#define PROA_BACKENDS_LLM_CONTRACT_NATIVE_H

#include "backends/llm/contract.h"

proa_llm_place proa_native_places(const proa_llm_request *req); /* proa_contract's, the caller's thread */
/* The same, the engine's thread. */
void proa_native_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
void proa_native_end(proa_llm_request *req);

#endif
