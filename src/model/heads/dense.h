/* SPDX-License-Identifier: Apache-2.0
 * dense.h - a dense layer that a folder of sentence-transformers has behind the pooling: y = act(W x + b), on the host.
 * Owner:   weights live in the caller's arena.
 * Way in:  proa_dense_open, then proa_dense_apply. */
#ifndef PROA_MODEL_HEADS_DENSE_H
#define PROA_MODEL_HEADS_DENSE_H

#include "base/arena.h"
#include "base/json.h"

typedef enum proa_dense_act { PROA_DENSE_PLAIN, PROA_DENSE_TANH, PROA_DENSE_RELU } proa_dense_act;

typedef struct proa_dense {
    int64_t inputs, outputs;
    float *weight; /* [outputs, inputs] */
    float *bias;   /* [outputs]; NULL: none */
    proa_dense_act act;
} proa_dense;

/* Reads linear.weight and linear.bias of the folder's checkpoint. config: the folder's config.json. UNSUPPORTED: its
 * activation is none of those above. */
PROA_MUST_CHECK proa_status proa_dense_open(proa_dense *out, const char *folder, const proa_json *config,
                                            proa_arena *arena, proa_err *err);
void proa_dense_apply(const proa_dense *d, float *y, const float *x);

#endif
