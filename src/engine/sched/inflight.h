/* SPDX-License-Identifier: Apache-2.0
 * inflight.h - what was submitted to the device and whose results have not arrived, or are yet to be processed.
 * Private to src/engine.
 * Owner:   the engine, which allocates the arrays when it opens. Threads: the stepping thread.
 *
 *   decoder pass, sampled on the device   proa_inflight_step    async_step.c submits and completes it
 *   decoder pass, sampled on the host     proa_fetched_logits   process_logits.c fetches and processes them
 *   encoder pass                          proa_encoder_pass     encode.c submits and completes it
 *
 * A request that ends or is preempted meanwhile is detached from all of them: its results are dropped. */
#ifndef PROA_ENGINE_SCHED_INFLIGHT_H
#define PROA_ENGINE_SCHED_INFLIGHT_H

#include "engine/pacing/step_time.h"
#include "engine/sched/request.h"

/* One row of the pass whose logits are needed. */
typedef struct proa_logits_request {
    proa_seq *seq;
    int32_t row;      /* of the pass */
    int32_t position; /* of the row's token in its sequence: below prompt_count it is a row of the prompt */
    int32_t node;     /* of a tree of draft tokens: 1 + the node; else 0 */
} proa_logits_request;

/* A token that the device samples. seq NULL: its request was detached meanwhile. */
typedef struct proa_pending_token {
    proa_seq *seq;
    int64_t position; /* in its sequence */
    int32_t node;     /* of the row, as in proa_logits_request */
} proa_pending_token;

/* A step that was submitted and whose tokens the host has not received. */
typedef struct proa_inflight_step {
    proa_pending_token *pending_tokens; /* [sampled_rows], `count` used */
    int64_t count;
    proa_beam_params *search;           /* [sampled_rows / 2 + 1] steps of beam searches, `searches` used */
    proa_engine_request **search_owner; /* their requests; NULL: detached */
    int64_t searches;
    int ticket;  /* for proa_model_wait_sampled: its first place in proa_async_steps.step */
    bool logits; /* the sampled tokens' logits come back too, */
    int32_t top; /* and this many of the likeliest tokens of each row */
    /* for its time */
    proa_step_shape shape;      /* of the pass */
    int64_t rows, submitted_ns; /* of the pass, if all of its rows are sampled; else 0 */
    bool timed; /* the end of the pass before was observed, so that the time of this one will be known */
} proa_inflight_step;

/* Rows of logits that the host has, and is yet to process. */
typedef struct proa_fetched_logits {
    proa_logits_request requests[PROA_HEAD_ROWS]; /* seq NULL: detached meanwhile */
    int64_t count;                                /* 0: none */
    proa_view rows;                               /* [count][vocab] */
    /* of a model on the host, whose next pass overwrites its head: [PROA_HEAD_ROWS][vocab] and [..][hidden width]
     * copies; NULL: the head's own rows stay */
    float *logits_copy, *hidden_copy;
} proa_fetched_logits;

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
    bool has_places;    /* some of them to memory of rank 0's device */
    bool exclusive; /* the host will ask the model for more, so no other pass may be submitted before it completes */
} proa_encoder_pass;

typedef struct proa_encoder_passes {
    proa_encoder_pass pass[PROA_STEPS_MAX]; /* the oldest one first */
    int32_t count, most; /* most: proa_model_encoder_passes, or 1 where no pass is submitted ahead */
} proa_encoder_passes;

/* Whether a pass was submitted whose results have not arrived. */
bool proa_inflight_any(const proa_engine *e);
/* The request ends or is preempted: passes in flight and fetched logits forget it. */
void proa_inflight_detach(proa_engine *e, const proa_engine_request *req);

#endif
