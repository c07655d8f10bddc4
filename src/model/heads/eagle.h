/* SPDX-License-Identifier: Apache-2.0
 * eagle.h - EAGLE draft heads (Li et al. 2024, 2025): a small decoder (arch/arch_eagle.c) that reads hidden states of
 * the model, its target. Row i of it has token i + 1 and the target's state of token i; its output guesses token i + 2,
 * and its own residual stream stands for the state of token i + 1, so that it can go on from its own guesses.
 *
 * A checkpoint is a folder with a config.json and the tensors fc.weight and layers.0.* (EAGLE-1, EAGLE-2) or midlayer.*
 * (EAGLE-3), in any form that weights/ reads. What it shares with the target is not copied, but for a last product of
 * the target that is divided among ranks: the head runs in rank 0, as a whole.
 *
 * States are kept in two lists where the model runs: those of the target, and those that the head made itself.
 *
 * Owner:   proa_eagle_prepare/free. The target is the caller's and outlives the heads.
 * Threads: the target's.
 * Way in:  proa_eagle_find, proa_eagle_prepare, proa_eagle_load; proa_eagle_keep after a pass of the target,
 *          proa_eagle_decode for a pass of the head, proa_eagle_top_k and proa_eagle_keep_own after it. */
#ifndef PROA_MODEL_HEADS_EAGLE_H
#define PROA_MODEL_HEADS_EAGLE_H

#include "model/model.h"

typedef struct proa_eagle {
    proa_model *target;        /* the caller's */
    proa_model *model;         /* the head */
    int64_t kept_max, own_max; /* states in the two lists */
    int64_t bytes; /* of the states, and of `whole`; the head's own weights are those of its plan */
    /* private */
    /* Rank 0 has a part of the target's last product, or none, and the head has none of its own: the target as one
     * model, of which only that product is loaded. NULL: it is not so. */
    proa_model *whole;
    int64_t whole_at; /* where that product is in the memory */
    bool fused;       /* states are those of several layers (EAGLE-3) */
    int64_t width;    /* of a state of the target */
    int32_t *ids;     /* [outputs] the target's ids of the head's; NULL: they are the same */
    proa_dtype dtype; /* of the states */
    float *sums;      /* [head_rows] on the host */
    char *memory;
    proa_view taps, kept, own; /* [rows_max of the target][width], [kept_max][width], [own_max][hidden] */
    int64_t own_first;         /* of its own states in the view that has them */
} proa_eagle;

/* The row of the architecture of the heads in a folder; NULL: it has none. Reads headers only. */
const proa_arch *proa_eagle_find(const char *folder);
typedef struct proa_eagle_options {
    const proa_model_options *model; /* the target's */
    int64_t kept_max, own_max;       /* states of the target, and of the heads themselves, that can be kept */
} proa_eagle_options;
/* Reads the configuration and plans the memory; takes none of it. INVALID, naming the key or the tensor with its value,
 * if they are not heads of this model. */
PROA_MUST_CHECK proa_status proa_eagle_prepare(proa_eagle **out, const char *folder, proa_model *target,
                                               const proa_eagle_options *options, proa_err *err);
/* Takes the memory and packs the weights: after those of the target, and before its first pass. */
PROA_MUST_CHECK proa_status proa_eagle_load(proa_eagle *h, proa_progress_fn *progress, void *arg, proa_err *err);
void proa_eagle_free(proa_eagle *h); /* NULL is fine */

/* Keeps the states of rows of the target's last pass as numbers at, at + 1, ... Returns at once. */
void proa_eagle_keep(proa_eagle *h, int64_t at, const int32_t *rows, int64_t count);
/* A pass of the head; batch->state_rows: numbers of kept states, or with `own` of its own ones. */
void proa_eagle_decode(proa_eagle *h, const proa_kv *kv, const proa_batch *batch, bool own);
/* Keeps what rows of the head's last pass stand for, as its own states at, at + 1, ... */
void proa_eagle_keep_own(proa_eagle *h, int64_t at, const int32_t *rows, int64_t count);
/* The k likeliest tokens after rows of the head's last pass, ids of the target, with the logarithms of their
 * probabilities: [count][k]. 1 <= k <= proa_eagle_outputs. Waits. */
void proa_eagle_top_k(proa_eagle *h, const int32_t *rows, int64_t count, int32_t k, int32_t *ids,
                      float *logprobs);
int64_t proa_eagle_outputs(const proa_eagle *h); /* tokens that it can guess */

#endif
