/* SPDX-License-Identifier: Apache-2.0
 * propose_medusa.h - Medusa heads as a proposer. Private to src/engine.
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_SPECULATE_PROPOSE_MEDUSA_H
#define PROA_ENGINE_SPECULATE_PROPOSE_MEDUSA_H

#include "engine/decode/draft_tree.h"
#include "engine/speculate/proposer.h"
#include "model/heads/medusa.h"

typedef struct proa_medusa_proposer proa_medusa_proposer;

/* Reads the headers of the heads in the folder, and takes no memory yet. Called when the model was prepared. INVALID,
 * naming the file and the tensor, if they are not heads of this model. */
PROA_MUST_CHECK proa_status proa_medusa_proposer_prepare(proa_engine *e, const char *folder, proa_err *err);
/* Takes the memory: after the model's. */
PROA_MUST_CHECK proa_status proa_medusa_proposer_load(proa_engine *e, proa_err *err);
void proa_medusa_proposer_free(proa_engine *e); /* of an engine without heads, too; before the model */

extern const proa_proposer proa_propose_medusa;

#endif
