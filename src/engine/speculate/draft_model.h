/* SPDX-License-Identifier: Apache-2.0
 * draft_model.h - a smaller model that drafts tokens for the engine's model, its target. Private to src/engine.
 *
 * It runs on the same device over the same page tables: page i of its own pool (proa_kv_pages.attached) holds its keys
 * and values of the tokens whose target's ones are in page i. So admission, preemption, copies and the prefix tree have
 * no second set of books. What it has computed of a sequence is [0, draft_length):
 *
 *   prompts      each chunk that the target runs is run by the draft model too, so cached pages hold both
 *   generated    rows [draft_length, known) before tokens are drafted, then one row for each draft token but the last
 *
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_SPECULATE_DRAFT_MODEL_H
#define PROA_ENGINE_SPECULATE_DRAFT_MODEL_H

#include "engine/speculate/proposer.h"
#include "engine/memory.h"

typedef struct proa_draft_model proa_draft_model;

/* Reads the configuration of the model in the folder, and takes no memory for it yet. Called when the target was
 * prepared and its tokenizer opened. INVALID, naming the option draft-model, if it is not a decoder with the same
 * vocabulary. */
PROA_MUST_CHECK proa_status proa_draft_model_prepare(proa_engine *e, const char *path, proa_err *err);
/* Takes the memory: after the target's pages. */
PROA_MUST_CHECK proa_status proa_draft_model_load(proa_engine *e, proa_progress_fn *progress, void *arg,
                                                  proa_err *err);
void proa_draft_model_free(proa_engine *e); /* of an engine without one, too; before the target's pages */
/* Tokens of the sequence from its begin on whose pages may be shared: those that the draft model has run. */
int64_t proa_draft_model_tokens(const proa_engine *e, const proa_seq *seq);

extern const proa_proposer proa_propose_draft;

#endif
