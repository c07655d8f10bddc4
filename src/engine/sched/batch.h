/* SPDX-License-Identifier: Apache-2.0
 * batch.h - the arrays of a pass: which tokens of which sequences are its rows. Private to src/engine.
 * Owner:   the engine, which allocates them when it opens. Threads: the stepping thread.
 * Way in:  proa_batch_build for a decoder's pass; encode.c builds those of an encoder from the same parts. */
#ifndef PROA_ENGINE_SCHED_BATCH_H
#define PROA_ENGINE_SCHED_BATCH_H

#include "engine/sched/inflight.h"

/* The pass that is built, or was submitted last. Arrays are [rows_max] unless they say otherwise. */
typedef struct proa_step_arrays {
    /* rows */
    int64_t rows;                                         /* in use */
    int32_t *ids, *positions, *block_positions, *lengths; /* as proa_batch has them */
    int32_t *types;                                       /* token types of an encoder pass */
    bool any_types;                                       /* some are not 0 */
    int32_t *decoder_ids; /* of encoders that decode their input, else not used */
    int32_t *sampled_at;  /* index of the row's id among those sampled last on the device; -1: `ids` has it */
    bool any_sampled_at;  /* some are not -1 */
    uint64_t *seen;       /* masks of rows of trees */
    bool any_tree;
    bool runs_undone;    /* rows that were undone are those of decoding sequences (proa_seq.undone) */
    int64_t undone_rows; /* how many there are */
    proa_inputs_embeds *inputs_embeds; /* of rows without an id of the vocabulary */
    int64_t inputs_embeds_count;
    bool encoded; /* they are outputs of the encoder (proa_batch) */

    /* spans: rows of one sequence or input, one after the other */
    int64_t spans;    /* in use */
    int64_t prefixes; /* the last of the spans: prefixes of prompts */
    proa_span *self_spans, *cross_spans;
    proa_seq **span_seqs; /* the sequence of each span of a decoder's pass */
    int32_t *lora;        /* the slot of each span's adapter; -1: none */
    bool any_lora;        /* some are not -1 */

    /* a decoder's pass */
    proa_step_shape shape;
    proa_seq **chunks; /* [sequences_max] sequences with prompts to run, in the order of their turns */
    proa_pending_beams *pending; /* beam searches whose last step the host has not received */
    int64_t pending_count;
    proa_logits_request *logits_requests; /* [logits_count] rows whose next token, or whose logits, are wanted */
    int32_t *logits_rows;                 /* their rows, as the head takes them */
    int64_t logits_count;

    proa_encoder_place *places; /* [sequences_max] of the inputs of an encoder pass */
} proa_step_arrays;

/* The parts of which a pass is built. Empty the arrays; begin a span with these rows, whose first one sees `context`
 * tokens of the table before it; add a row to the span. */
void proa_batch_clear(proa_engine *e);
void proa_batch_add_span(proa_engine *e, const proa_page_table *table, int64_t rows, int64_t context,
                         const proa_page_table *cross, int64_t cross_context);
/* The adapter of the span that is begun next. */
void proa_batch_set_adapter(proa_engine *e, const proa_engine_request *req);
/* length: see proa_rope_length */
void proa_batch_add_row(proa_engine *e, int32_t id, int64_t position, int64_t length);
/* The next row will be row `index` of a prompt table. Rows that follow each other in both are uploaded together. */
void proa_batch_add_virtual(proa_engine *e, const proa_prompt_table *table, int64_t index);
/* The arrays as the model takes them; valid until they are changed. */
proa_batch proa_batch_of_step(const proa_engine *e);

/* A decoder's pass: decoding sequences, until there are decode_rows_max rows, then chunks of prompts within the token
 * budget. Their requests have been promised the pages (proa_admission_reserve). */
void proa_batch_build(proa_engine *e, int64_t decode_rows_max);
/* The batch was submitted: its rows are in the pages from now on. */
void proa_batch_advance(proa_engine *e);

#endif
