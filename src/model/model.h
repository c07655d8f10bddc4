/* SPDX-License-Identifier: Apache-2.0
 * model.h - a model in memory, and one pass of its program over a batch of rows.
 * Owner:   proa_model_prepare/free. Pool, device and KV pages are the caller's; pool and device must outlive the model.
 * Threads: one pass at a time (the stepping thread).
 * Way in:  proa_model_prepare (reads and plans, takes nothing large), proa_model_load, then proa_model_encode,
 *          proa_model_decode and proa_model_head. */
#ifndef PROA_MODEL_MODEL_H
#define PROA_MODEL_MODEL_H

#include "kernels/device.h"
#include "model/plan.h"

/* How the numbers of low-rank adapters are kept beside matrices in FP8, for products of some dozens of rows. */
typedef enum proa_lora_type {
    PROA_LORA_AUTO,  /* as e4m3 where the device multiplies them so, which halves their bytes */
    PROA_LORA_EXACT, /* as beside other matrices: in 16 bits */
    PROA_LORA_FP8,   /* as e4m3; a model without matrices in FP8 is refused */
} proa_lora_type;

typedef struct proa_model_options {
    const proa_arch *arch; /* the row of the architecture; NULL: as config.json says, and it is a model by itself */
    const char *dtype;    /* "auto", "exact", "f32", "bf16", "f16" */
    const char *quant;    /* "none", "int8", on a GPU also "fp8", "int4" */
    int64_t rows_max;     /* rows of the widest step */
    int64_t encoder_rows; /* the same of an encoder-only model, if that is more */
    int64_t head_rows;    /* rows of logits that are copied to the host at once */
    int64_t sampled_rows; /* rows that a device samples in one step */
    int64_t device_head_rows; /* rows of logits that a device makes at once when it samples them, if that is more */
    const char *kv_dtype; /* of keys and values: "auto", "f32", "bf16", "f16", "fp8" (GPU); NULL: auto */
    /* embedding tables and packed weights are copied into the model's memory, its files are unmapped after the load */
    bool detach;
    int32_t lora_slots; /* adapters that a batch can have at one time; 0: none */
    int32_t lora_rank;  /* the largest rank of one */
    proa_lora_type lora_type;
    /* which part of the model, of how many (ranks/ranks.h); ranks 0 or 1: all of it. Rank stage * (ranks / stages) + i
     * is the i-th of its stage; stages 0: one */
    int32_t rank, ranks, stages;
    bool whole_experts; /* the ranks of a stage have different experts, not parts of each (ranks/shard.h) */
    bool packed_part;   /* it must be packed for this rank of this number (repack.h) */
    bool whole_sums; /* ranks make whole sums of some columns, not terms of all: the bits are those of one rank */
} proa_model_options;

/* Input embeddings of rows [row, row + count), in place of the embeddings of their ids. */
typedef struct proa_inputs_embeds {
    int64_t row, count;
    const float *values; /* [count][width], the host's or, with on_device, where the model runs */
    bool on_device;
    /* In place of rows of the table of tokens: positions, types and norm are applied to them. False: in place of all
     * that the model's embedding makes. */
    bool of_table;
} proa_inputs_embeds;

/* Beams whose last step (proa_model_sample) the host has not received: the spans [span, span + beams), one row
 * each. Their page tables in the batch are those before that step; the device reorders them. */
typedef struct proa_pending_beams {
    int32_t span, beams;
    int32_t sampled_at; /* index of the first beam's token among the ids sampled last */
} proa_pending_beams;

/* The rows of one pass. Arrays belong to the caller and must stay valid during the call. */
typedef struct proa_batch {
    int64_t rows;
    const int32_t *ids, *positions; /* [rows] */
    const int32_t *block_positions; /* [rows] second positions (prefix.h); NULL if the model has none */
    const int32_t *lengths; /* [rows] proa_rope_length of each row; NULL if proa_model_wants_lengths is false */
    /* [rows] index of the row's id among the ids sampled last on the device (proa_model_sample), or in device_ids; -1:
     * ids has it. NULL: all -1 */
    const int32_t *sampled_at;
    const int32_t *device_ids; /* the caller's, where the model runs; NULL: those sampled last */
    /* sampled_at counts among the ids of the deferred request of this ticket, whose results may be on their way */
    bool sampled_deferred;
    int32_t sampled_ticket;
    bool overlaps; /* other passes are in the other stages: this one need not keep them busy */
    const proa_pending_beams *pending; /* [pending_count] among the spans of self */
    int64_t pending_count;
    const int32_t *types;       /* [rows] token types (BERT); NULL: all 0 */
    const int32_t *decoder_ids; /* [rows] of an encoder that decodes its input: what the decoder reads; else NULL */
    proa_spans self;            /* the sequence of each row, and its context, this pass's tokens included */
    int64_t prefixes; /* the last so many spans of self are prefixes of prompts: their rows see each other both ways */
    proa_spans cross; /* the same rows with the encoder's contexts (decoder of an encoder-decoder model) */
    const proa_inputs_embeds *inputs_embeds; /* [inputs_embeds_count] in the order of their rows */
    int64_t inputs_embeds_count;
    bool encoded; /* encode: inputs_embeds, of all rows, are outputs of the encoder, whose layers do not run */
    /* of a draft head: hidden states of its target, [n, hidden] or [n, states] where the model runs, and which of them
     * each row has, [rows] */
    proa_view states;
    const int32_t *state_rows;
    const int32_t *lora; /* [self.count] the slot of each span's adapter (lora/lora.h), -1: none; NULL: all -1 */
    /* where the model runs: recurrent states of all slots, [slots][proa_model_state] (proa_span.state of self); NULL:
     * the model has none */
    float *states_memory;
    proa_lora_rows lora_rows; /* the same as groups of rows: made by the pass */
} proa_batch;

typedef struct proa_staging proa_staging; /* staging.h */

/* A matrix that adapters can change: where its numbers are in an image, and the rows of the name map that it is made
 * of, each a piece. */
typedef struct proa_lora_matrix {
    proa_lora layout;
    const proa_name *piece[PROA_LORA_PIECES_MAX];
} proa_lora_matrix;

/* Adapters of a model: lora/lora.h. */
typedef struct proa_lora_store {
    int32_t slots, rank; /* rank: a multiple of 16 once they are planned */
    proa_lora_type type; /* proa_model_options.lora_type */
    proa_dtype dtype;
    proa_lora_matrix **matrix; /* [layers * PROA_SLOT_COUNT] of the whole model; NULL: no adapter changes it */
    int64_t *layer_at;         /* [layers + 1] where the numbers of each layer begin in an image */
    proa_config config;        /* of the whole model */
    int64_t image_bytes;       /* of an adapter of the whole model, */
    int64_t bytes;             /* and of what this rank has of it */
    int64_t columns;           /* the most pieces * rank of a matrix */
    char *memory;              /* on a device, and of a rank: [slots][bytes] */
    char *part;                /* of a rank on a device: [bytes] in host memory, on its way to a slot */
    const char **slot;         /* [slots] where each is; on the host NULL: empty */
    bool *changes; /* [slots][PROA_SLOT_COUNT] weight slots that the adapter in a slot changes in any layer, */
    int32_t *changed; /* [PROA_SLOT_COUNT] and how many adapters change each: products of the others run as without */
    char *sums; /* on a device: what adapters add to one product, [sums_rows][sums_columns] of at most f32 */
    int64_t sums_rows, sums_columns;
    int32_t version; /* of the set of weight slots that any adapter changes */
    /* of the pass: */
    int32_t *count, *order;             /* [slots + 1], [rows_max] */
    int32_t *row_slot;                  /* [rows_max] */
    proa_lora_segment *segment;         /* [proa_lora_segments(rows_max)] */
    int32_t *divided_order;             /* the same by micro-batch */
    proa_lora_segment *divided_segment; /* [proa_lora_segments_max] */
} proa_lora_store;

/* Copies of the residual stream before some layers, of all rows of a decoder's pass, for a draft head. */
typedef struct proa_taps {
    int64_t layer[PROA_TAPS_MAX]; /* the number of layers: behind the last one */
    int32_t count;                /* 0: none */
    proa_view rows;               /* [rows_max, count * hidden] where the model runs; the caller's */
    proa_view sent;               /* private: [device_head_rows, hidden] on their way between stages */
} proa_taps;

typedef struct proa_model proa_model;
typedef struct proa_ranks proa_ranks; /* ranks/ranks.h */

/* Sees the inputs of the matrix products of a model on the host: x [rows, K] f32, before the product is made, on the
 * stepping thread. param: the weight slot, one of model->params[stack]. Products for each expert or head are not
 * seen. */
typedef struct proa_observer {
    void (*see)(void *context, proa_model *m, proa_stack_id stack, const proa_param *param, proa_view x);
    void *context;
} proa_observer;

struct proa_model {
    const proa_arch *arch;
    proa_config config;
    proa_params params[PROA_STACK_COUNT];
    proa_plan plan;
    proa_formats formats;
    int32_t number; /* which no other model of this program has */
    /* layers of the page pool: the most decoder layers with attention that a stage has, or 1 for an encoder's scratch;
     * and of a slot of recurrent states: likewise layers that have these */
    int32_t kv_layers, recurring;
    int32_t other_kv_layers; /* of these kv_layers, the last ones: heads of the other shape */
    proa_device *device;     /* the caller's */
    proa_ctx ctx;            /* where the model runs */
    proa_ctx host;           /* kernels of the CPU, for logits on the host */
    proa_weights *weights;
    struct proa_packed_parts *parts; /* of a packed folder for another number of ranks, until the load (repack.h) */
    const struct proa_packed_file *packed; /* what a packed checkpoint says; NULL: proa_model_load packs the weights */
    bool mapped;                           /* weight_memory is in the mapped file */
    bool detach;                           /* proa_model_options.detach */
    bool own_tables; /* embedding tables are in weight_memory, not read where the file is mapped */
    proa_arena arena;
    bool pooled;        /* the model has a pooler, in the last stage */
    bool hidden_wanted; /* proa_model_hidden will be called: on a GPU its rows are copied with the head's */
    /* ticket of the proa_model_send_encoder_outputs that will follow the next pass; -1: none will */
    int32_t encoder_ticket;
    /* Of that pass: the outputs stay with the last stage of a pipeline, on its host, until rank 0 waits for them. Else
     * its rows go to all stages. */
    bool outputs_stay;
    int64_t rows_sent_early; /* rows of the last pass whose copy to the host has begun */
    /* after proa_model_load */
    char *weight_memory, *activations;
    int32_t *relative_row; /* relative.h: [2 * reach + 1] rows of relative_rows, on the device */
    int64_t relative_rows;
    float *relative_positions; /* while the model is loaded: [relative_rows][hidden] on the host */
    float *inv_freq, *alibi;   /* [2][2][rotary_dim / 2] of both ropes, short and long; [heads] slopes */
    proa_rope_freqs rope, local_rope;
    proa_staging *staging;         /* staging.h */
    proa_dtype stream;             /* type of register X since the last pass */
    struct proa_step_trace *trace; /* trace.h; NULL: off */
    const proa_observer *observer; /* the caller's; NULL: none */
    const char *path;              /* as it was given */
    proa_lora_store lora;
    int32_t rank, ranks; /* which part of a model this is (plan.part), of how many; 0 of 1: all of it */
    proa_comm *comm;     /* to the other ranks of the stage; NULL: there are none */
    proa_comm *pipe; /* to the ranks of the other stages that have the same part of their layers; NULL likewise */
    bool pipe_waits; /* a GPU that sends there may wait for the receiver, however short the message is (NCCL) */
    proa_span *cut_spans; /* [2][rows_max + PROA_MICRO_BATCHES_MAX] of the pass (ranks/stage.h); NULL: one stage */
    proa_ranks *group; /* all ranks; NULL: there are no others */
    proa_taps taps;    /* the caller's: which before proa_model_load, memory before the first pass */
    char *states;      /* for taps of a pipeline (ranks/states.h); NULL: none are needed */
};

/* Reads config.json and generation_config.json, finds the row, maps the weights, binds and plans. path: a folder, or a
 * single file of weights that holds the rest or has it in its folder (weights/weights.h).
 * Errors name the file, the key or the tensor. */
PROA_MUST_CHECK proa_status proa_model_prepare(proa_model **out, const char *path,
                                               const proa_model_options *options, proa_device *device,
                                               proa_pool *pool, proa_err *err);
/* Takes the memory and packs the weights. NO_MEMORY with the sum. progress may be NULL. */
PROA_MUST_CHECK proa_status proa_model_load(proa_model *m, proa_progress_fn *progress, void *arg, proa_err *err);
void proa_model_free(proa_model *m); /* NULL is fine */
/* In place of proa_model_load, for files of packed weights: after begin, each weight with memory
 * (proa_model_next_weight) can be packed into `to`, [param->bytes], on the host. */
PROA_MUST_CHECK proa_status proa_model_pack_begin(proa_model *m, proa_err *err);
PROA_MUST_CHECK proa_status proa_model_pack(proa_model *m, proa_param *param, void *to, proa_err *err);

/* Walks through the weights that have memory, in the order in which they are in it. Begin with {.param = NULL}; false:
 * there are no more. */
typedef struct proa_weight_walk {
    proa_stack_id stack;
    int64_t layer; /* the stack's number of layers: outside of them */
    proa_weight_slot slot;
    proa_param *param;
    int64_t next; /* private */
} proa_weight_walk;
bool proa_model_next_weight(const proa_model *m, proa_weight_walk *walk);
/* The small files that belong to the model (base/files.h), by name: tokenizer.json and its like. They live as long as
 * it; a synthetic model has none. */
const proa_files *proa_model_files(const proa_model *m);
/* For how many ranks a packed folder has parts; 1: it is whole. */
int32_t proa_model_ranks(const char *path);
/* Packs or converts one weight of a prepared model into memory of the caller, param->bytes from a multiple of 64 on:
 * for a model that uses weights of another. */
void proa_model_load_param(proa_model *m, proa_param *param, char *at);
/* Whether a folder holds a model: a config.json, or a checkpoint, which may bring its own configuration. */
bool proa_model_in_folder(const char *dir);
/* The sizes that the kernels' scratch memory must be made for. */
proa_ctx_need proa_model_need(const proa_model *m);

/* f32 numbers of the recurrent state of a sequence in this rank, 0 in none or in all; 0: the model has none. */
int64_t proa_model_state(const proa_model *m);
/* Whether the passes need proa_batch.lengths. */
bool proa_model_wants_lengths(const proa_model *m);
/* One pass over a batch. kv [kv_layers]: the KV pages of each layer, of this rank (others: proa_ranks_set_kv). The
 * caller has checked ids and positions (0 <= id < vocab, position < context). Afterwards register X holds the rows that
 * proa_model_head reads. encode: the encoder stack; in an encoder-decoder model it ends by writing the encoder memory
 * of every decoder layer into the pages of batch->self. decode: the decoder stack. */
void proa_model_encode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
void proa_model_decode(proa_model *m, const proa_kv *kv, const proa_batch *batch);
/* The head over rows of the last pass, at most plan.head_rows: [count, outputs] on the host, valid until the next
 * call. */
proa_view proa_model_head(proa_model *m, const int32_t *rows, int64_t count);
/* The same into memory where the model runs: logits [count, outputs], and what proa_model_hidden returns [count,
 * proa_model_hidden_width], for which hidden_wanted is set; either may be NULL. Does not wait for the device. */
void proa_model_head_to(proa_model *m, const int32_t *rows, int64_t count, float *logits, float *hidden);
/* Memory where the model runs for outputs of an input: the row of the head and that of the pooler [outputs], and the
 * rows of a headless model [count][outputs]; NULL: not wanted. */
typedef struct proa_encoder_place {
    float *head, *pooled, *rows; /* all NULL: the outputs go to the host */
    int64_t first, count;        /* its rows in the pass */
} proa_encoder_place;
/* Sends the outputs of the last encoder pass to the host: those of its head and its pooler for the first rows of
 * the inputs (`firsts`, at most plan.sampled_rows), or all `rows` of the pass if the model is headless. Those of inputs
 * with a place are copied there instead. Returns at once; the next pass may be submitted before the host has them.
 * again: it may be, so a model on the host copies them. The ticket is m->encoder_ticket; it is below
 * proa_model_encoder_passes. With m->outputs_stay no input has a place. */
void proa_model_send_encoder_outputs(proa_model *m, const int32_t *firsts, const proa_encoder_place *places,
                                     int64_t inputs, int64_t rows, bool again);
typedef struct proa_encoder_outputs {
    const float *first, *pooled; /* [inputs][outputs], undefined for those with places; NULL: not by this model */
    const float *rows;           /* [rows][outputs], likewise */
} proa_encoder_outputs;
/* Waits for the outputs, and for those that go to places. Valid until the ticket is used again; without `again` until
 * the next pass. */
proa_encoder_outputs proa_model_wait_encoder_outputs(proa_model *m, int ticket);
/* Whether the model sends all outputs of its encoder that way; otherwise the host calls proa_model_head for what
 * it needs. */
bool proa_model_sends_encoder_outputs(const proa_model *m);
/* How many passes of an encoder-only model may be submitted before the host has the outputs of the first: a stage of a
 * pipeline has one, and one more waits. */
int32_t proa_model_encoder_passes(const proa_model *m);
enum { PROA_TOP_MAX = 128 }; /* largest k of a top-k on a device */
/* Memory where the model runs for the rows of a beam step: [beams][outputs] of f32, in the order of the beams. The one
 * row behind a prompt is that of all beams. */
typedef struct proa_beam_rows {
    float *logits, *logprobs; /* as the model made them, and less their log_sum_exp; NULL: not wanted */
} proa_beam_rows;

/* What to sample from rows of the last pass. First one token from each of `count` rows; then, for each beam step
 * in `search`, the best candidates of its rows and from these its next beams. The sampled tokens form one list,
 * the `count` single ones first; a beam step says in `to` where its tokens go, and in `state` where its scores are
 * kept from step to step. At most plan.sampled_rows rows, and as many tokens. */
typedef struct proa_sample_request {
    const int32_t *rows; /* of the pass: the `count` single ones, then those of the beam steps */
    int64_t count;
    const proa_sample_params *sample_params; /* [count]; NULL: all greedy */
    const proa_logits_row *row_processors; /* [count] logits processors, applied before sampling; NULL: none */
    const proa_logits_entry *entries;      /* [entries_count] of all row_processors */
    int64_t entries_count;
    /* [count] index of a row's last token among the ids sampled last; -1: the host knows it */
    const int32_t *last_sampled_at;
    /* Tokens that may be sampled: [masks_count][(outputs + 31) / 32], and [count] the mask of each row, -1: all may;
     * applied first. mask_of NULL: there are none. */
    const uint32_t *masks;
    const int32_t *mask_of;
    int64_t masks_count;
    /* [count] where a row goes as the model made it, and as masks and processors left it: [outputs] of f32 where the
     * model runs; an entry or the array NULL: nowhere. Of models with one rank. */
    float *const *raw_to, *const *processed_to;
    const proa_beam_rows *search_to; /* [searches] where the rows of a beam step go; NULL: nowhere. Of one rank */
    bool logits;                     /* return the logits of the `count` sampled tokens, */
    int32_t top; /* and the k likeliest tokens of their rows: 0..PROA_TOP_MAX, at most the outputs */
    const proa_beam_params *search; /* [searches] */
    int64_t searches;
    /* Of a pipeline: the next pass needs none of these tokens, so no stage waits for them. On the host rank 0 receives
     * them in proa_model_wait_sampled; on devices the first stage does where a pass reads them
     * (proa_batch.sampled_deferred; not with pipe_waits), or in proa_model_wait_sampled. The requests in flight have
     * different tickets. */
    bool deferred;
} proa_sample_request;
/* Samples where the model runs. Returns at once: the next pass may use these tokens (proa_batch.sampled_at) before
 * the host has received them. ticket: 0 or 1, if `deferred` up to PROA_STEPS_MAX - 1, for proa_model_wait_sampled. */
void proa_model_sample(proa_model *m, const proa_sample_request *r, int ticket);
/* The results of a sample request, in host memory. */
typedef struct proa_sampled {
    int32_t *ids;          /* all tokens: [count], then those of the beam steps */
    float *sums;           /* [count] log_sum_exp of the rows */
    float *logits;         /* [count] of the ids, if requested */
    int32_t *top_ids;      /* [count][top] the likeliest, */
    float *top_logits;     /* largest first */
    proa_beam_lists lists; /* of the beam steps; scores and hyps stay on the device, tokens are in ids */
} proa_sampled;
/* Waits for the results. Valid until the ticket is used again. */
proa_sampled proa_model_wait_sampled(proa_model *m, int ticket);
/* Top-k of rows of the last pass (at most plan.head_rows), made where the model runs: ids and logits [count][k],
 * and the rows' log_sum_exp, sums [count]. 1 <= k <= PROA_TOP_MAX, at most the outputs. Waits. */
void proa_model_top_k(proa_model *m, const int32_t *rows, int64_t count, int64_t k, int32_t *ids,
                      float *logits, float *sums);
/* Width of what the head's last product reads: the hidden size, or where a projection comes before it (OPT-350m) the
 * embedding's. */
int64_t proa_model_hidden_width(const proa_model *m);
/* That input (after the final norm) for row i of the last call of proa_model_head: [proa_model_hidden_width]. Needs
 * hidden_wanted. */
const float *proa_model_hidden(const proa_model *m, int64_t i);
/* Copies rows [first, first + count) of the last encoder pass to the host: [count][hidden], after the encoder's
 * final norm. */
void proa_model_encoded(const proa_model *m, float *to, int64_t first, int64_t count);
/* The same into memory where the model runs. Does not wait for the device. */
void proa_model_encoded_to(proa_model *m, float *to, int64_t first, int64_t count);
bool proa_model_has_pool(const proa_model *m);
/* Makes [memory, memory + bytes), which must be zero, resident. */
void proa_model_touch(proa_pool *pool, void *memory, int64_t bytes);

#endif
