/* SPDX-License-Identifier: Apache-2.0
 * medusa.h - Medusa heads (Cai et al. 2024): from the model's last hidden state at a token, head d guesses the token
 * d + 2 places after it; the model's own head gives the next one. With x the input of the model's head
 *   h = x; for each layer: h = h + silu(W h + b); logits = U h.
 *
 * A checkpoint is a folder with medusa_lm_head.safetensors or medusa_lm_head.pt: tensors D.L.linear.weight and
 * D.L.linear.bias of layer L of head D, and D.LAYERS.weight. Published configurations may name fewer heads than the
 * file has; the file counts.
 *
 * Owner:   proa_medusa_prepare/free. The model is the caller's and outlives the heads.
 * Threads: the model's.
 * Way in:  proa_medusa_prepare, proa_medusa_load; proa_medusa_keep after a pass, proa_medusa_top_k before the next. */
#ifndef PROA_MODEL_HEADS_MEDUSA_H
#define PROA_MODEL_HEADS_MEDUSA_H

#include "model/model.h"

typedef struct proa_medusa_head {
    proa_param layer[PROA_MEDUSA_LAYERS_MAX]; /* W [hidden, hidden] */
    proa_param bias[PROA_MEDUSA_LAYERS_MAX];
    proa_param out; /* U [vocab, hidden] */
} proa_medusa_head;

typedef struct proa_medusa {
    proa_model *model; /* the caller's */
    int32_t heads, layers;
    int64_t rows_max;            /* of hidden states that are kept in each of two sets */
    int64_t weight_bytes, bytes; /* of the weights; of everything */
    /* private */
    proa_weights *weights;
    proa_arena arena;
    proa_medusa_head *head; /* [heads] */
    char *memory;
    float *kept;             /* [2][rows_max][hidden] */
    float *states[3];        /* [PROA_MEDUSA_ROWS][hidden] */
    float *logits, *values;  /* [PROA_MEDUSA_ROWS][vocab], [PROA_MEDUSA_ROWS][PROA_MEDUSA_TOP] */
    int32_t *ids, *received; /* [heads][PROA_MEDUSA_ROWS][PROA_MEDUSA_TOP] on the device, and on the host */
} proa_medusa;

enum { PROA_MEDUSA_ROWS = 16, PROA_MEDUSA_TOP = 10 };

bool proa_medusa_in_folder(const char *folder); /* whether it has a file of that name */
/* Reads the headers and plans the memory; takes none of it. rows_max: see there. The errors name the file and the
 * tensor or key; heads of another width or vocabulary than the model's are INVALID. */
PROA_MUST_CHECK proa_status proa_medusa_prepare(proa_medusa **out, const char *folder, proa_model *model,
                                                int64_t rows_max, proa_err *err);
/* Takes the memory and packs the weights, after those of the model. */
PROA_MUST_CHECK proa_status proa_medusa_load(proa_medusa *h, proa_err *err);
void proa_medusa_free(proa_medusa *h); /* NULL is fine */

/* Keeps the hidden states of `count` rows of the model's last pass in a set (0 or 1), from index 0 on. Returns at
 * once. */
void proa_medusa_keep(proa_medusa *h, int32_t set, const int32_t *rows, int64_t count);
/* The k likeliest tokens of the first `heads` heads for each kept state: ids [count][heads][k], likeliest first. at:
 * set * rows_max + index. 1 <= k <= PROA_MEDUSA_TOP. Waits. */
void proa_medusa_top_k(proa_medusa *h, const int32_t *at, int64_t count, int32_t heads, int32_t k, int32_t *ids);

#endif
