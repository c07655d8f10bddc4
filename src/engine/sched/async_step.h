/* SPDX-License-Identifier: Apache-2.0
 * async_step.h - steps whose tokens are sampled where the model runs, and that the host receives later. Private to
 * src/engine.
 * Owner:   the engine, which allocates the arrays when it opens. Threads: the stepping thread, but for
 *          proa_async_step_prepare. */
#ifndef PROA_ENGINE_SCHED_ASYNC_STEP_H
#define PROA_ENGINE_SCHED_ASYNC_STEP_H

#include "engine/sched/inflight.h"

/* Where tokens are sampled, if all of a step's can be sampled there, and when the host receives them. */
typedef enum proa_sample_mode {
    PROA_SAMPLE_HOST,   /* on the host */
    PROA_SAMPLE_DEVICE, /* on the device; received before the next step is submitted */
    PROA_SAMPLE_ASYNC,  /* on the device; received after the next step was submitted */
    PROA_SAMPLE_STAGES  /* in the last stage of a pipeline; steps of other sequences run meanwhile */
} proa_sample_mode;

/* Steps in flight, and the parameters of the step that is submitted next. Arrays are [sampled_rows] unless they say
 * otherwise. */
typedef struct proa_async_steps {
    proa_sample_mode mode;
    proa_inflight_step step[PROA_STEPS_MAX]; /* the oldest one first */
    int32_t count, most;                     /* of step: how many are in flight, and may be */
    int32_t groups; /* PROA_SAMPLE_STAGES: the number of steps into which decoding sequences are divided */
    bool follows;   /* the step that is built takes sequences whose tokens the oldest one in flight samples */
    bool waits; /* a pass was submitted whose sampling is to follow, once the host knows the tokens before it */
    bool untimed;    /* the end of the pass that was submitted last will not be observed */
    int64_t pass_ns; /* when that pass was submitted */

    /* sampling */
    proa_sample_params *sample_params;
    bool any_random; /* not all rows are greedy */

    /* logits processors, as entries that the device applies; memory is touched only where it is used */
    proa_logits_row *row_processors;
    proa_logits_entry *entries; /* [PROA_LOGITS_ENTRIES_MAX] */
    int64_t entries_count;      /* of this step */
    int64_t entries_reserved;   /* that running requests can come to need */
    int32_t *last_sampled_at;   /* a row's last token, as proa_seq.sampled_at */
    bool any_processed;

    /* masks of constrained rows */
    uint32_t *masks;            /* [sampled_rows][words of a row]; touched only where it is used */
    int32_t *mask_of;           /* the mask of each row, -1: none */
    proa_logits_job *mask_jobs; /* what each mask is made from */
    int64_t masks_count;        /* of this step */

    /* rows for the caller's memory */
    float **raw_to, **scores_to; /* where a row goes (proa_request_rows); NULL: nowhere */
    proa_beam_rows *search_to;   /* [sampled_rows / 2 + 1] the same of a beam step's rows */
    bool any_rows;
} proa_async_steps;

/* When the engine opens: sets the mode, and how many steps may be in flight. */
void proa_async_steps_init(proa_engine *e);
/* At submit, on the caller's thread: sets samples_on_device, sample_params and entries. */
void proa_async_step_prepare(const proa_engine *e, proa_engine_request *req);
/* At admission: reserves room for the request's logits processor entries. If there is none, the host samples its
 * tokens. */
void proa_async_step_reserve(proa_engine *e, proa_engine_request *req);
/* After the decoder pass: submits the sampling of all rows that can be sampled on the device, and removes them from
 * step.logits_requests. If a mask of a row depends on a token that only the device knows, sampling waits
 * (async.waits) until this is called again, after the step before was completed. */
void proa_async_step_submit(proa_engine *e);
/* Waits for the oldest in-flight step and gives its tokens to their requests. */
void proa_async_step_complete(proa_engine *e);

#endif
