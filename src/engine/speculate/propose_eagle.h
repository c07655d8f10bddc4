/* SPDX-License-Identifier: Apache-2.0
 * propose_eagle.h - EAGLE heads (model/heads/eagle.h) as a proposer. Private to src/engine.
 *
 * The head has keys and values of its own in the pages of the sequence (proa_kv_pages.attached), as a draft model has.
 * Its row i needs the target's hidden state of token i and the id of token i + 1, so it is a token behind the target:
 *
 *   0                   draft_length            length           known
 *   |== run by the head ==|== states are kept ==|== run next ==|
 *
 *   prompts      each chunk that the target runs is run by the head too, but for a last row whose next token is not
 *                known yet; so cached pages hold both. The last row of a page that is cached saw the token that
 *                followed there, which may be another one where the page is reused: a draft is no worse for it.
 *   generated    states are kept pass by pass, and the rows that lack are run before tokens are drafted
 *
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_SPECULATE_PROPOSE_EAGLE_H
#define PROA_ENGINE_SPECULATE_PROPOSE_EAGLE_H

#include "base/status.h"
#include "engine/speculate/proposer.h"

typedef struct proa_eagle_proposer proa_eagle_proposer;

/* The states of a sequence that the head has not run: of tokens draft_length, draft_length + 1, ... */
enum { PROA_EAGLE_STATES = 96 }; /* more than a tree has nodes */
typedef struct proa_eagle_states {
    int64_t pass;                  /* number of the first state of the pass that verifies its draft */
    int32_t count;                 /* of at */
    int64_t at[PROA_EAGLE_STATES]; /* numbers of the states */
} proa_eagle_states;

/* Reads the configuration of the heads in the folder, and takes no memory for it yet. Called when the model was
 * prepared. INVALID, naming the option draft-model, if they are not heads of this model. */
PROA_MUST_CHECK proa_status proa_eagle_proposer_prepare(proa_engine *e, const char *folder, proa_err *err);
/* Takes the memory: after the model's pages. */
PROA_MUST_CHECK proa_status proa_eagle_proposer_load(proa_engine *e, proa_progress_fn *progress, void *arg,
                                                     proa_err *err);
void proa_eagle_proposer_free(proa_engine *e); /* of an engine without one, too; before the model's pages */
/* At submit: memory for the states of the request's sequences, whichever proposer it has. */
void proa_eagle_proposer_admit(const proa_engine *e, proa_engine_request *req);
/* The sequence goes on from the pages of the one that ran the prompt; or its pages were dropped (leader NULL). */
void proa_eagle_proposer_fork(proa_seq *seq, const proa_seq *leader);
/* Tokens of the sequence from its begin on whose pages may be shared: those that the head has run. */
int64_t proa_eagle_proposer_tokens(const proa_engine *e, const proa_seq *seq);

extern const proa_proposer proa_propose_eagle;

#endif
