/* SPDX-License-Identifier: Apache-2.0
 * stage.h - a step's arrays on their way to a device, and its results on their way back. On the host little moves.
 * Owner:   the model.
 * Threads: the stepping thread. */
#ifndef PROA_MODEL_STAGE_H
#define PROA_MODEL_STAGE_H

#include "model/model.h"

/* Takes the memory on both sides. */
PROA_MUST_CHECK proa_status proa_stage_make(proa_model *m, proa_err *err);
void proa_stage_free(proa_model *m);
/* Copies ids, positions, types, spans and the pages that they use in one piece, and makes *there of it. Returns there,
 * or on the host batch itself, unless there are ids or pages in it that the host does not know. The spans' context_max is
 * rounded up so that few different ones come. kv: of the pass. */
const proa_batch *proa_stage_batch(proa_model *m, const proa_kv *kv, const proa_batch *batch, proa_batch *there);
/* The same of rows, at most rows_max, that the head gathers. */
const int32_t *proa_stage_rows(proa_model *m, const int32_t *rows, int64_t count);
const int32_t *proa_stage_all_rows(const proa_model *m); /* 0, 1, 2, ... */
/* The head's output where the host can read it, and with m->hidden_wanted what the head read. */
proa_view proa_stage_fetch(proa_model *m, proa_view out, proa_view hidden);
/* What proa_model_harvested gives for that ticket: begins anew; then answers of inputs [at, ...), by the pooler or the head, and
 * rows [first, ...) of the pass, f32, are sent behind what was asked of the device so far. Many rows go beside what follows,
 * which asks after_sent before it writes them. */
void proa_stage_harvest(proa_model *m, int ticket);
void proa_stage_send_inputs(proa_model *m, proa_view out, int64_t at, bool pooled, int ticket);
void proa_stage_send_rows(proa_model *m, proa_view out, int64_t first, int ticket);
/* The same on the host, all of them: where they are, or kept if another pass may come before they are read. */
void proa_stage_keep_rows(proa_model *m, proa_view out, bool keep, int ticket);
/* Tokens that the device chooses: how, and the searches that it makes a step of, where the model runs; where all goes that
 * they give, and sending that to the host. ticket: 0 or 1. */
const proa_choice *proa_stage_choices(proa_model *m, const proa_choice *how, int64_t count);
/* What is done to rows before, and their last tokens; rows NULL: nothing. */
typedef struct proa_edits_there {
    const proa_edits *rows;
    const proa_edit *pairs;
    const int32_t *last;
} proa_edits_there;
proa_edits_there proa_stage_edits(proa_model *m, const proa_asked *asked);
const proa_search *proa_stage_searches(proa_model *m, const proa_search *search, int64_t count);
proa_told proa_stage_told(proa_model *m, const proa_asked *asked, int ticket);
void proa_stage_send(proa_model *m, int ticket);
/* Where the k likeliest of some rows go, one behind the other, and fetching all three. */
typedef struct proa_top {
    int32_t *ids;
    float *logits, *sums;
} proa_top;
proa_top proa_stage_top(proa_model *m, int64_t count, int64_t k);
void proa_stage_fetch_top(proa_model *m, int64_t count, int64_t k, int32_t *ids, float *logits, float *sums);
const float *proa_stage_hidden(const proa_model *m, proa_view hidden, int64_t row);

#endif
