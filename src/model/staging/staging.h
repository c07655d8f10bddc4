/* SPDX-License-Identifier: Apache-2.0
 * staging.h - staging buffers: through them the arrays of a step go to the device and its results come back to the
 * host.
 *             With the model on the host nearly all of them are used in place.
 * Owner:   the model. Threads: the stepping thread.
 * Tickets: results are double buffered; ticket 0 or 1 names the buffer. Deferred tokens have PROA_STEPS_MAX buffers,
 *          outputs of encoders proa_model_encoder_passes. */
#ifndef PROA_MODEL_STAGING_STAGING_H
#define PROA_MODEL_STAGING_STAGING_H

#include "model/model.h"

/* ---- staging.c: the buffers, and the batch ---- */

/* Allocates the buffers on both sides. */
PROA_MUST_CHECK proa_status proa_staging_make(proa_model *m, proa_err *err);
void proa_staging_free(proa_model *m);
/* Uploads ids, positions, types, spans and the page tables that they use in one piece, and describes them in
 * *staged. Returns staged; on the host `batch` itself, unless some of its ids or pages are known to the model
 * only. context_max of the spans is rounded up, so that few different values occur and passes can be replayed. kv:
 * of the pass. */
const proa_batch *proa_staging_batch(proa_model *m, const proa_kv *kv, const proa_batch *batch,
                                     proa_batch *staged);
/* Uploads the numbers of the rows that the head gathers, at most rows_max; returns where the model finds them. */
const int32_t *proa_staging_rows(proa_model *m, const int32_t *rows, int64_t count);
const int32_t *proa_staging_all_rows(const proa_model *m); /* 0, 1, 2, ... */

/* ---- sample.c: what is sampled where the model runs ---- */

/* Each returns where the model finds the array. */
const proa_sample_params *proa_staging_sample_params(proa_model *m, const proa_sample_params *params,
                                                     int64_t count);
const proa_beam_params *proa_staging_beam_params(proa_model *m, const proa_beam_params *params, int64_t count);
/* Logits processors of the rows, and their last tokens; rows NULL: there are none. Must come before
 * proa_staging_sampled, since last tokens are read from what was sampled before. */
typedef struct proa_device_processors {
    const proa_logits_row *rows;
    const proa_logits_entry *entries;
    const int32_t *last;
} proa_device_processors;
proa_device_processors proa_staging_processors(proa_model *m, const proa_sample_request *r);
/* Bytes that the entries and masks of logits processors take on the model's device; 0: on the host, or an encoder. */
int64_t proa_staging_processor_bytes(const proa_model *m);
/* Masks of the rows; mask_of NULL: there are none. */
typedef struct proa_device_masks {
    const uint32_t *masks;
    const int32_t *mask_of;
} proa_device_masks;
proa_device_masks proa_staging_masks(proa_model *m, const proa_sample_request *r);
/* Where the results of this request go, on the device; and the copy to the host, for proa_model_wait_sampled. */
proa_sampled proa_staging_sampled(proa_model *m, const proa_sample_request *r, int ticket);
void proa_staging_send_sampled(proa_model *m, int ticket);
/* In a pipeline of stages: the last stage sends the results to the first one without being asked. The first stage
 * receives them in order, when a pass reads the ids, in proa_model_wait_sampled, or before any other message from
 * there. On devices the host of rank 0 gets them from the host of the last stage, and the first stage gets ids only
 * without proa_model.pipe_waits. False (on the host): the results are too long and must be received now. */
bool proa_staging_defer_sampled(proa_model *m, int ticket);
/* Whether the results of a ticket were deferred on devices. Then a call of all ranks (PROA_CALL_SAMPLED) brings them to
 * the host of rank 0 or, where ranks are threads, of proa_staging_rank_with_results: the first rank of the last stage.
 * */
bool proa_staging_is_deferred(const proa_model *m, int ticket);
int32_t proa_staging_rank_with_results(const proa_model *m);
/* Waits until the results of a ticket are on this host. */
void proa_staging_wait_sampled(proa_model *m, int ticket);
/* The results of a request to m which the host of rank `from` has. */
proa_sampled proa_staging_received(const proa_model *m, const proa_model *from, int ticket);
void proa_staging_receive_sampled(proa_model *m);
/* All results of the request as one row of words, where the model runs. */
proa_view proa_staging_sampled_block(proa_model *m, int ticket);
/* Where the top-k of some rows goes, [count][k], and the copy of all three to the host, which waits. */
typedef struct proa_top_k {
    int32_t *ids;
    float *logits, *sums;
} proa_top_k;
proa_top_k proa_staging_top_k(proa_model *m, int64_t count, int64_t k);
void proa_staging_fetch_top_k(proa_model *m, int64_t count, int64_t k, int32_t *ids, float *logits, float *sums);

/* ---- output.c: logits, hidden states, and the outputs of encoders ---- */

/* The head's output on the host, and with m->hidden_wanted the head's input too. Waits. */
proa_view proa_staging_fetch_logits(proa_model *m, proa_view out, proa_view hidden);
/* Row `row` of the hidden states that were fetched last. */
const float *proa_staging_hidden(const proa_model *m, proa_view hidden, int64_t row);
/* The outputs that proa_model_wait_encoder_outputs returns for a ticket: cleared; then the head's or the pooler's
 * rows of inputs [at, ...), and rows [first, ...) of the pass (f32) are sent, behind the kernels that were
 * launched so far. Many rows are sent unordered: who overwrites them must call wait_copies_on_stream first. */
void proa_staging_outputs_clear(proa_model *m, int ticket);
/* any: false if the host wants none of these rows; then the ticket only says when the pass has ended. */
void proa_staging_outputs_end(proa_model *m, int ticket); /* nothing is sent: the same */
void proa_staging_outputs_send_inputs(proa_model *m, proa_view out, int64_t at, bool any, bool pooled,
                                      int ticket);
void proa_staging_outputs_send_rows(proa_model *m, proa_view out, int64_t first, int ticket);
/* How many inputs and rows the outputs have. All ranks say it: processes send them from the last stage to rank 0. */
void proa_staging_outputs_count(proa_model *m, int64_t inputs, int64_t rows, int ticket);
/* Whether this rank sends outputs to its host: rank 0 or, with outputs_stay, the first rank of the last stage. */
bool proa_staging_sends_outputs(const proa_model *m);
/* Whether those of a ticket stayed with the last stage. Then a call of all ranks (PROA_CALL_ENCODED) brings them to
 * the host of rank 0 or, where ranks are threads, of proa_staging_rank_with_results. */
bool proa_staging_outputs_stay(const proa_model *m, int ticket);
/* Waits until the outputs of a ticket are on this host. */
void proa_staging_wait_outputs(proa_model *m, int ticket);
proa_encoder_outputs proa_staging_outputs(const proa_model *m, int ticket);
/* With the model on the host: all rows, in place, or copied if another pass may run before they are read. */
void proa_staging_outputs_keep_rows(proa_model *m, proa_view out, bool copy, int ticket);

#endif
