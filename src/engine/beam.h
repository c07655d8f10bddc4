/* SPDX-License-Identifier: Apache-2.0
 * beam.h - the bookkeeping of one request's beam search, with the meaning of transformers 5.17 (_beam_search of
 *          generation/utils.py, one prompt, no sampling). It knows tokens and log-probabilities, no model, no pages.
 * Owner:   the caller, from proa_beam_new to proa_beam_free. Threads: one at a time.
 * Way in:  proa_beam_new; after each forward pass proa_beam_advance, and the caller reorders its pages by parent;
 *          when there is no more, proa_beam_finish and proa_beam_get. */
#ifndef PROA_ENGINE_BEAM_H
#define PROA_ENGINE_BEAM_H

#include "base/status.h"
#include "proa/proa.h"

/* Nothing here has a default: the caller resolves the request's options. */
typedef struct proa_beam_options {
    int32_t beams;        /* K, 1..PROA_BEAMS_MAX */
    int64_t vocab;        /* V, at least max(2, 1 + end_ids_count) */
    int64_t max_new;      /* length limit in new tokens, 1..PROA_CONTEXT_MAX; the end token counts */
    float length_penalty; /* finite */
    proa_early early;
    const int32_t *end_ids; /* copied; count 0 with ignore_eos */
    int32_t end_ids_count;  /* 0..PROA_EOS_MAX */
    int32_t returned;       /* 1..beams; 0: beams */
} proa_beam_options;

typedef struct proa_beam proa_beam;

/* Bytes that such a search takes, for the plan: about 8 K max_new + 4 returned max_new + 8 K M. -1 if the options are
 * out of range. The parts that grow with max_new become resident only as far as the search goes. */
int64_t proa_beam_bytes(const proa_beam_options *o);
/* INVALID with the value and the range; NO_MEMORY with the sum. All memory is taken here. On failure *out is NULL. */
PROA_MUST_CHECK proa_status proa_beam_new(proa_beam **out, const proa_beam_options *o, proa_err *err);
void proa_beam_free(proa_beam *b); /* NULL is fine */

/* M: how many candidates the caller gives for each beam, min(V, max(2, 1 + end_ids_count) * K). */
int64_t proa_beam_candidates(const proa_beam *b);
int32_t proa_beam_width(const proa_beam *b); /* K */

/* One step. tokens [K][M] and logprobs [K][M]: for each running beam its M most likely next tokens, best first (among
 * equals the lower token first), with log softmax of its logits in f32. In the first step all beams stand after the
 * prompt and only row 0 is read; the caller may give that one row alone (the others are dead: score -1e9).
 * Fills parent [K] and token [K]: running beam i of the next step continues beam parent[i] of this step with token[i].
 * *more is false when the search is over; parent and token are then of no use.
 *
 * The step, with L = tokens generated so far, this one included, and s = f32 sum of log-probabilities:
 *   candidates  the best max(2, 1 + end_ids_count) * K of all K*V continuations by s
 *   ended       candidates whose token is an end id, and all of them when L == max_new
 *   running     the K best candidates after -1e9 was added to the ended ones
 *   finished    those of the first K candidates that ended compete with score s / L^length_penalty for K places
 *   over when   all candidates ended; or early TRUE and K finished; or no running beam can win, which is so when K are
 *               finished and s_best / H^length_penalty <= the worst finished score, H = L, but max_new with NEVER and
 *               length_penalty > 0
 * Arithmetic is f32 in the order of torch; among equals, where torch.topk leaves the order open, the lower flat index
 * (beam * V + token) is first.
 * INTERNAL if a log-probability is NaN or +infinity. No allocation. */
PROA_MUST_CHECK proa_status proa_beam_advance(proa_beam *b, bool *more, int32_t *parent, int32_t *token,
                                              const int32_t *tokens, const float *logprobs, proa_err *err);

/* Makes the results and returns how many there are, at most `returned`: the finished hypotheses, best first. After a
 * search that ran to its end there are K of them. If there are none (the caller stopped early, or length_penalty made
 * every score fall below the -1e9 of an empty place), the running beams stand in, scored by their length. Where
 * transformers would return an empty place, there is no result here. No allocation; call it after the last step. */
int32_t proa_beam_finish(proa_beam *b);
/* Result i. ids (end token included, prompt not) live until proa_beam_free; text is NULL. */
proa_beam_result proa_beam_get(const proa_beam *b, int32_t i);

#endif
