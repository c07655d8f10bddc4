/* SPDX-License-Identifier: Apache-2.0
 * model.h - a model in memory, and one pass of its program over a ragged batch.
 * Owner:   proa_model_prepare/free. Pool and device are the caller's and must outlive it; keys and values are the caller's.
 * Threads: one pass at a time (the stepping thread).
 * Way in:  proa_model_prepare (reads and plans, takes nothing large), proa_model_load, then proa_model_encode,
 *          proa_model_decode and proa_model_head. */
#ifndef PROA_MODEL_MODEL_H
#define PROA_MODEL_MODEL_H

#include "kernels/device.h"
#include "model/plan.h"

typedef struct proa_model_options {
    const char *dtype;    /* "auto", "f32", "bf16", "f16" */
    const char *quant;    /* "none", "int8", on a GPU also "fp8", "int4" */
    int64_t rows_max;     /* rows of the widest step */
    int64_t head_rows;    /* rows of logits that are fetched at once */
    int64_t chosen_rows;  /* sequences of which a device chooses tokens in one step */
    int64_t best_rows;    /* rows of which a device chooses tokens at once, where that is more */
    const char *kv_dtype; /* of keys and values: "auto", "f32", "bf16", "f16", "fp8" (GPU); NULL: auto */
    bool detach; /* embedding tables are copied into the model's memory, and its files are unmapped after the load */
} proa_model_options;

/* Rows [row, row + count) that come as vectors of the model's width, in place of what their ids embed to. */
typedef struct proa_given {
    int64_t row, count;
    const float *values; /* [count][hidden], the host's */
} proa_given;

/* The spans [span, span + beams), of a row each, are of a beam search whose step (proa_model_choose) the host does not know
 * yet: their page tables are those of the beams before, and follow on the device. */
typedef struct proa_pending {
    int32_t span, beams;
    int32_t from; /* the first beam's place among the last chosen */
} proa_pending;

/* A step's rows. Arrays belong to the caller and hold for the pass. */
typedef struct proa_batch {
    int64_t rows;
    const int32_t *ids, *positions; /* [rows] */
    const int32_t *from; /* [rows] which of the last chosen ids (proa_model_choose) a row runs, in place of its own; -1: none.
                            NULL: none of them */
    const proa_pending *pending; /* [pending_count], of self */
    int64_t pending_count;
    const int32_t *types;    /* [rows] token types (BERT); NULL: all 0 */
    proa_spans self;         /* whose rows, and their own contexts, this step's tokens included */
    proa_spans cross;        /* the same rows, with the encoder's contexts (encoder-decoder, decoding) */
    const proa_given *given; /* of an encoder's step: [given_count] */
    int64_t given_count;
} proa_batch;

typedef struct proa_stage proa_stage; /* the step's arrays on their way to a device */

typedef struct proa_model {
    const proa_arch *arch;
    proa_config config;
    proa_params params[PROA_STACK_COUNT];
    proa_plan plan;
    proa_wfmt format;
    proa_dtype checkpoint, kv_dtype;
    int32_t kv_layers;   /* layers of the page pool: decoder layers, or 1 for an encoder's scratch */
    proa_device *device; /* the caller's */
    proa_ctx ctx;        /* where the model runs */
    proa_ctx host;       /* the CPU's table, for what is done with logits once they are here */
    proa_weights *weights;
    bool own_tables; /* embedding tables are in weight_memory, not read where the file is mapped */
    proa_arena arena;
    bool hidden_wanted; /* proa_model_hidden will be asked: on a GPU its rows are fetched with the head's */
    int32_t harvest_ticket; /* proa_model_harvest will be asked behind the next pass, with this one; -1: it will not */
    int64_t rows_sent; /* rows of the last pass that are on their way already */
    /* after proa_model_load */
    char *weight_memory, *activations;
    float *inv_freq, *alibi;       /* alibi: [heads] slopes */
    proa_stage *stage;             /* stage.h */
    proa_dtype stream;             /* of register X since the last pass */
    struct proa_step_trace *trace; /* trace.h; NULL: nobody asked */
} proa_model;

/* Reads config.json and generation_config.json, finds the row, maps the weights, binds and plans. path: a folder.
 * Errors name the file, the key or the tensor. */
PROA_MUST_CHECK proa_status proa_model_prepare(proa_model **out, const char *path,
                                               const proa_model_options *options, proa_device *device,
                                               proa_pool *pool, proa_err *err);
/* Takes the memory and packs the weights. NO_MEMORY with the sum. progress may be NULL. */
PROA_MUST_CHECK proa_status proa_model_load(proa_model *m, proa_progress_fn *progress, void *arg, proa_err *err);
void proa_model_free(proa_model *m); /* NULL is fine */
/* What the kernels' scratch must be made for. */
proa_ctx_need proa_model_need(const proa_model *m);

/* One pass. kv [kv_layers] is where keys and values lie. Ids and positions were checked by the caller
 * (0 <= id < vocab, position < context). After a pass register X holds the rows that proa_model_head reads.
 * encode: the encoder stack; of an encoder-decoder model it ends by writing the encoder memory of every decoder
 * layer into the pages of batch->self. decode: the decoder stack. */
void proa_model_encode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
void proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
/* The head over rows of the last pass, at most plan.head_rows: [count, outputs], valid until the next call. */
proa_view proa_model_head(proa_model *m, const int32_t *rows, int64_t count);
/* What an encoder gives for the inputs of its last pass, whose first rows these are (at most plan.chosen_rows): what its head and
 * its pooler do with these, or of a head that only gathers all `rows` of the pass. Returns at once; the next pass may be
 * launched before the host has them. again: it may, so the host's own model keeps them elsewhere. ticket: that of
 * m->harvest_ticket, 0 or 1. */
void proa_model_harvest(proa_model *m, const int32_t *firsts, int64_t inputs, int64_t rows, bool again);
typedef struct proa_harvest {
    const float *first, *pooled; /* [inputs][outputs]; NULL: not by this model */
    const float *rows;           /* [rows][outputs], likewise */
} proa_harvest;
/* Waits for it. Valid until the ticket is used again; without `again` until the next pass. */
proa_harvest proa_model_harvested(proa_model *m, int ticket);
/* Whether all that is asked of its encoder's passes comes so; else the host asks proa_model_head for what it needs. */
bool proa_model_harvests(const proa_model *m);
enum { PROA_TOP_MAX = 128 }; /* likeliest tokens of a row that a device finds */
/* What is to be chosen from rows of the last pass: a token of each of the first `count`, as `how` says (choose in ops.def;
 * NULL: the likeliest); then of the rows that each search names the best candidates and from these its next beams (search in
 * ops.def). Tokens stand in one list, the `count` first; searches say in `to` where theirs do, and in `state` where their
 * scores are kept from step to step. At most plan.chosen_rows rows, and as many tokens. */
typedef struct proa_asked {
    const int32_t *rows;
    int64_t count;
    const proa_choice *how;
    const proa_edits *edits; /* [count] what is done to these rows before; NULL: nothing */
    const proa_edit *pairs;  /* [pairs_count], at most PROA_EDIT_PAIRS_MAX */
    int64_t pairs_count;
    const int32_t *last; /* [count] which of the last chosen ids is a row's last token; -1: the host knows it */
    bool logits;         /* the chosen tokens' own are wanted, */
    int32_t top;         /* and the likeliest of each of these rows: 0..PROA_TOP_MAX and the outputs */
    const proa_search *search;
    int64_t searches;
} proa_asked;
/* Done where the model runs. Returns at once: the next pass may run these tokens (proa_batch.from) before the host knows
 * them. ticket: 0 or 1, for proa_model_chosen. */
void proa_model_choose(proa_model *m, const proa_asked *asked, int ticket);
/* What was chosen: the tokens, the rows' log_sum_exp, what else was asked of the `count` rows, and of searches all that they
 * have read and written. */
typedef struct proa_told {
    int32_t *ids;
    float *sums;
    float *logits; /* of the ids, if they were asked for */
    int32_t *top_ids;
    float *top_logits; /* [count][top] the likeliest, largest first */
    proa_lists lists;  /* scores, held: the device's alone; tokens: ids */
} proa_told;
/* Waits for it. Valid until the ticket is used again. */
proa_told proa_model_chosen(proa_model *m, int ticket);
/* The k likeliest of each of these rows (at most plan.head_rows), found where the model runs, and the rows' log_sum_exp:
 * ids and logits [count][k], sums [count]. 1 <= k <= PROA_TOP_MAX and the outputs. */
void proa_model_top(proa_model *m, const int32_t *rows, int64_t count, int64_t k, int32_t *ids, float *logits,
                    float *sums);
/* What the head's last product read in row i of the last call of proa_model_head: [hidden], after the final norm. */
const float *proa_model_hidden(const proa_model *m, int64_t i);
/* Rows [first, first + count) of what the last encode left, to the host: [count][hidden], after the encoder's final norm. */
void proa_model_encoded(const proa_model *m, float *to, int64_t first, int64_t count);
bool proa_model_has_pool(const proa_model *m);
/* Makes [memory, memory + bytes), which must be zero, resident. */
void proa_model_touch(proa_pool *pool, void *memory, int64_t bytes);

#endif
