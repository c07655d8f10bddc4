/* SPDX-License-Identifier: Apache-2.0
 * encode.h - passes of the encoder (T5, BERT), submitted and completed like steps. Private to src/engine.
 * Owner:   the engine. Threads: the stepping thread. */
#ifndef PROA_ENGINE_SCHED_ENCODE_H
#define PROA_ENGINE_SCHED_ENCODE_H

#include "engine/speculate/proposer.h"

/* An input of an encoder pass. req NULL: the request was detached meanwhile. */
typedef struct proa_encoder_input {
    proa_engine_request *req;
    int64_t row; /* its first row in the pass */
} proa_encoder_input;

/* An encoder pass that was submitted and whose outputs the host has not received. */
typedef struct proa_encoder_pass {
    proa_encoder_input *input; /* [sequences_max], `count` used */
    int64_t count;
    bool wants_outputs; /* the model sends its outputs by itself, */
    int32_t ticket;     /* under this number */
    bool exclusive; /* the host will ask the model for more, so no other pass may be submitted before it completes */
} proa_encoder_pass;

typedef struct proa_encoder_passes {
    proa_encoder_pass pass[2]; /* the older one first */
    int32_t count;             /* 0, 1 or 2 */
} proa_encoder_passes;

bool proa_encode_has_encoder(const proa_engine *e);
/* Submits a pass over waiting inputs (a second one when many rows wait on a device), and completes the oldest pass. */
void proa_encode_step(proa_engine *e);
/* The request ends: passes in flight forget it. */
void proa_encode_detach(proa_engine *e, const proa_engine_request *req);

#endif
