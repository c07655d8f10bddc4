/* SPDX-License-Identifier: Apache-2.0
 * process_logits.h - rows of logits that the host processes: tokens, candidates or rows of a request from them.
 * Private to src/engine.
 * Owner:   the engine, which allocates the buffers when it opens. Threads: the stepping thread; rows are sampled on all
 *          threads of the pool at once.
 * Way in:  proa_fetch_logits after a pass was submitted, then proa_process_logits. */
#ifndef PROA_ENGINE_SCHED_PROCESS_LOGITS_H
#define PROA_ENGINE_SCHED_PROCESS_LOGITS_H

#include "engine/decode/sampler.h"
#include "engine/sched/batch.h"

/* One token to be sampled on the host from a row of logits. Many are sampled at once, spread over the thread pool. */
typedef struct proa_draw {
    proa_seq *seq;
    int64_t position;          /* of the token to be sampled, in its sequence */
    int32_t node;              /* of the row, as in proa_logits_request */
    const float *raw, *hidden; /* [vocab] the head's row, and [hidden width] its input */
    const proa_logprob *top;   /* [top_logprobs] the likeliest tokens, if the request wants them */
    const float *scores;       /* [vocab] the row that the token was chosen by, likewise */
    proa_err err;              /* why it could not be sampled */
} proa_draw;

/* Logits on the host, at most PROA_HEAD_ROWS rows at once. */
typedef struct proa_head_buffers {
    proa_fetched_logits fetched;
    int64_t first_row; /* of the head's rows: the first one of the request that is processed */
    proa_logprob *top; /* [PROA_HEAD_ROWS][PROA_TOP_LOGPROBS_MAX] of the rows that are sampled; touched if wanted */
    proa_draw draws[PROA_HEAD_ROWS];
    proa_sampler_row draw_rows[PROA_HEAD_ROWS];
    int64_t draw_count;
    /* [PROA_HEAD_ROWS][vocab] copies that logits processors change; touched only where a row itself must stay */
    float *processed_logits;
    proa_logits_job processing[PROA_HEAD_ROWS]; /* of the draw_rows that have processors */
    int64_t processing_count;
    float lse[PROA_HEAD_ROWS]; /* log of the sum of exp of each row: a logit less it is a log-probability */
    int32_t *top_ids;          /* [PROA_HEAD_ROWS][PROA_TOP_MAX] the likeliest tokens of each row, */
    float *top_logits;         /* and their logits */
    float prompt_logprobs[PROA_HEAD_ROWS];
} proa_head_buffers;

/* Runs the head over the rows of step.logits_requests, all groups but the last of which are processed at once; the last
 * one stays fetched, so that the next pass can be submitted before the host processes it. */
void proa_fetch_logits(proa_engine *e);
/* Gives each request of the fetched rows its tokens, candidates or rows; sets req->ending. */
void proa_process_logits(proa_engine *e);
/* Makes e->head.draw_rows[i] from the logits of the row before the sequence's token at this position. i: below
 * PROA_HEAD_ROWS. Tokens before that position are known or drafted, and stay so until the rows are sampled. Logits
 * processors, if the request has any, write to `processed`, which may be raw. */
void proa_sampler_row_make(proa_engine *e, int64_t i, proa_seq *seq, int64_t position, const float *raw,
                           float *processed);
/* Runs the logits processors of the first `count` of these rows, which have `vocab` columns, and samples them. */
void proa_sampler_rows_run(proa_engine *e, int64_t count, int64_t vocab);
/* The error of a sequence whose token at this position could not be sampled: `why`, or what its constraint says. */
void proa_fail_sampling(const proa_seq *seq, int64_t position, const proa_err *why);
/* Emits a sequence's next token, and ends the sequence if it was the last one. The token counts as known already. */
void proa_append_token(proa_engine *e, const proa_draw *draw, const proa_sample *sample);
/* One step of the beam search from search.ids and search.logprobs. False: the search has ended. Otherwise search.token
 * and search.parent say how each beam goes on. */
bool proa_advance_beams(proa_engine *e, proa_engine_request *req);

#endif
