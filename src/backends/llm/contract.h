/* SPDX-License-Identifier: Apache-2.0
 * contract.h - a contract: how the tensors of a request become typed generations, and how outputs become replies. The
 *              backends engine, fastertransformer and tensorrtllm differ in theirs. Private to src/backends.
 * Owner:   contracts are static tables.
 * Threads: `read` and `check` run on the thread that reads the request, `emit` and `end` on the engine's. */
#ifndef PROA_BACKENDS_LLM_CONTRACT_H
#define PROA_BACKENDS_LLM_CONTRACT_H

#include "backends/common.h"
#include "backends/llm/request.h"
#include "backends/tensors/io_table.h"
#include "backends/tensors/tensor_read.h"

struct proa_contract {
    /* Reads the contract's own settings; NULL: there are none. */
    proa_status (*open)(proa_llm_model *s, proa_err *err);
    /* Makes the generations of a request that consists of tensors (proa_llm_add_generations), and sets its delivery. */
    proa_status (*read)(proa_llm_request *req, proa_err *err);
    /* Refuses a generation whose options exclude each other or that the model does not support. NULL: nothing to
     * check. */
    proa_status (*check)(const proa_llm_request *req, const proa_generation *g, proa_err *err);
    /* For an encoder whose reply may stay on a GPU: which rows `end` takes from there. NULL: none. */
    proa_llm_place (*places)(const proa_llm_request *req);
    bool bundles_beams; /* the beams of a prompt come in one reply */
    /* For all deliveries but ALL: replies with what these `count` sequences have; one, unless beams are bundled. They
     * are cleared afterwards, except with SNAPSHOTS. */
    void (*emit)(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final);
    /* All prompts are done: sends the one and final reply. */
    void (*end)(proa_llm_request *req);
};

/* What the tables of the backends of this folder (proa_backend) have in common. They differ in the contract that their
 * model_open takes, in how they complete a configuration and in metrics. */
#define PROA_LLM_BACKEND_CALLS                                                                               \
    .model_close = proa_llm_model_close, .instance_open = proa_shared_instance_open,                         \
    .instance_close = proa_shared_instance_close, .execute = proa_llm_execute, .ready = proa_llm_ready,      \
    .figures = proa_llm_figures, .load_adapter = proa_llm_load_adapter,                                      \
    .unload_adapter = proa_llm_unload_adapter, .adapters = proa_llm_adapters

/* ---- request.c: for contracts ---- */

/* Makes the generations of a request, zeroed: one for each row of the batch. */
proa_generation *proa_llm_add_generations(proa_llm_request *req, int64_t count);
/* Cancels the other live requests with the same id; they end with what they have generated. Returns how many. */
int proa_llm_stop_others(const proa_llm_request *self);
/* Sends a reply. With `final` the request is over and must not be touched any more. */
void proa_llm_reply(proa_llm_request *req, proa_reply *reply, bool final);
/* Tokens of a sequence without the end token that ended it. */
int64_t proa_llm_visible_tokens(const proa_llm_output *output);

/* ---- options.c ---- */

/* Sets an option from the tensor of its name, for one row of the batch. An empty tensor leaves the option as it is. */
proa_status proa_option_read(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                             proa_arena *arena, proa_err *err);

#endif
