/* SPDX-License-Identifier: Apache-2.0
 * shard.h - the part of a model that one rank has (tensor parallelism; Megatron-LM, Shoeybi et al. 2019): some heads of
 * each attention and recurrent state, some rows of each FFN, some rows of the head. Heads of keys that are fewer
 * than the ranks are in several of them. Sizes that do not divide by the number of ranks give ranks of different sizes.
 */
#ifndef PROA_MODEL_SHARD_H
#define PROA_MODEL_SHARD_H

#include "model/bind.h"
#include "model/plan.h"

/* How a model is divided, and which part is made. */
typedef struct proa_sharding {
    int32_t rank, ranks;
    /* a rank has some of the experts of a mixture, not a part of each (expert parallelism; GShard, Lepikhin et al.
     * 2020) */
    bool whole_experts;
    /* NULL, or ranks make whole sums (collective.h): of weights by columns a rank has rows, of experts all that is
     * before them, and *shares is filled */
    proa_rank_shares *shares;
    proa_arena *arena;
} proa_sharding;

/* Makes of a bound model the part of one rank: the sources of each weight are cut to its rows or columns by
 * proa_slot_split, and *c gets the sizes of the part. UNSUPPORTED names a tensor whose blocks of numbers would be cut,
 * or what there is too little of for so many ranks. */
PROA_MUST_CHECK proa_status proa_shard(proa_params params[PROA_STACK_COUNT], const proa_arch *arch,
                                       proa_config *c, const proa_sharding *how, proa_err *err);

#endif
