/* SPDX-License-Identifier: Apache-2.0
 * traffic.h - how many bytes the ranks of a model exchange in a pass, from the programs of a rank: for estimates before
 * there are any ranks. */
#ifndef PROA_MODEL_TRAFFIC_H
#define PROA_MODEL_TRAFFIC_H

#include "model/model.h"

/* Of a pass of the stack that generates, or of the encoder of a model that has no other. Bytes are those that a rank
 * sends to one other rank. */
typedef struct proa_rank_traffic {
    int64_t sums; /* all_reduce steps of a pass in the layers of this rank: each is one wait for the others */
    int64_t sum_bytes;    /* terms of all these sums, for a row: to each other rank of the stage */
    int64_t stage_bytes;  /* for a row, to the next stage; 0: there is none */
    int64_t output_bytes; /* logits for a row whose token is wanted: to each other rank of the last stage */
} proa_rank_traffic;

/* m: prepared as the rank. */
proa_rank_traffic proa_rank_traffic_of(const proa_model *m);

#endif
