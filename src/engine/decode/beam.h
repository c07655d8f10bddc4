/* SPDX-License-Identifier: Apache-2.0
 * beam.h - the bookkeeping of one request's beam search, in the meaning of transformers, FasterTransformer or
 *          TensorRT-LLM. It knows tokens and log-probabilities, no model, no pages.
 * Owner:   the caller, from proa_beam_new to proa_beam_free. Threads: one at a time.
 * Way in:  proa_beam_new; after each forward pass proa_beam_advance, and the caller reorders its pages by parent;
 *          when there is no more, proa_beam_finish and proa_beam_get.
 *
 * The styles. K beams, V tokens, L = tokens generated so far, the step's own included; s = f32 sum of a sequence's
 * log-probabilities; C = max(2, 1 + end_ids_count) * K candidates, best first; a = length_penalty. Steps are in f32
 * in the order of the originals. Among equals the lower flat index is first: hf beam * V + token, the others
 * beam * C + rank in the beam's list, and a lower place among the finished.
 *
 * hf (transformers 5.17, _beam_search):
 *   candidates  the best C of all K*V continuations by s
 *   ended       candidates whose token is an end id, and all of them when L == max_new
 *   running     the K best candidates after -1e9 was added to the ended ones
 *   finished    those of the first K candidates that ended compete with score s / L^a for K places
 *   over when   all candidates ended; or early TRUE and K finished; or no running beam can win, which is so when K are
 *               finished and s_best / H^a <= the worst finished score, H = L, but max_new with NEVER and a > 0
 *
 * hf, sampled (transformers' do_sample with num_beams, `_get_top_k_continuations`): the candidates are C continuations
 *   drawn without replacement from softmax(s), in the order of s. The caller draws a Gumbel number for each token
 *   (proa_sampler_candidates), and the C with the largest s + number are such a sample.
 *
 * hf with groups > 1 (transformers 4.56, _group_beam_search, BeamSearchScorer, HammingDiversityLogitsProcessor;
 * arXiv 1610.02424): groups of Q = K / groups beams take turns in a step. In group g a token's log-probability is
 * lessened by diversity_penalty for each beam of groups 0..g-1 that chose it in this step; C has Q for K. Candidates
 * are walked best first: one that ends enters the group's Q finished places by s / L^a (in f64) if it is among the
 * first Q, the others run on until there are Q. A group is done as above (TRUE: Q finished; else when the worst
 * finished score >= s_best / H^a); a group that is done counts as choosing pad_id. Over when all are done, or at
 * max_new, where the running beams of groups not done compete for their places. Results: those of all groups by
 * score, among equals the later one. (The penalty is subtracted from what the caller gives, so after all other logits
 * steps; transformers has it before a repetition penalty, which matters if both are requested. And where it writes the
 * first end id at the end of each finished sequence, here is the one that came.)
 *
 * ft (FasterTransformer df4a753, online_softmax_beamsearch_kernels.cu): each beam gives its best C; the key of
 * candidate r of a beam is c / N^a + diversity_rate * (r mod K) (arXiv 1611.08562), c = s + log-probability, no
 * division if a is 0 or N is 1.
 *   without pool  (its decoder-only models, and its OpenNMT "Decoding") the K best by key run on, ended or not; a beam
 *                 that has ended offers its end token with log-probability 0 and nothing else. N = prompt_tokens - 1 +
 *                 L, or, once beam 0 has ended, the same with the length of beam 0: the kernel reads beam 0 for all
 *                 (for a batch of one; in larger batches it reads other sentences' beams, which is not copied). So
 *                 without a diversity rate the penalty cannot change the order. Over when all have ended. Results:
 *                 the beams as they stand, not sorted again, score s / N^a, each with its own length.
 *   with pool     (its T5 and BART) N = L. The best C by key are walked best first: one that ends enters the pool of
 *                 K with its key as score if its rank is < K; into a full pool it replaces the worst unless it is
 *                 worse, which ends the walk; the others run on until there are K. Over when the pool is full (`early`
 *                 is not read: the original's is always true) or at max_new, where the running beams enter beside the
 *                 pool with c / L^a. Results by score.
 * trtllm (TensorRT-LLM, beamSearchKernelsTemplate.h of 2025): like ft with pool, but the key is c + diversity_rate *
 *   beam, the pool's score c / L^a without diversity, and `early`: TRUE over when the pool is full; FALSE and NEVER
 *   over when it is full and its worst score >= key_best / H^a, H as above; a worse ended candidate is passed over. Two
 *   readings, where the original has two kernels: above 8 beams it also adds the diversity term to s, here it only
 *   ranks at every width; with "never" it ends the walk at a worse ended candidate and leaves beams unset, here the
 *   walk goes on.
 * One beam is greedy in all styles (but with NEVER, which looks beyond the end token). FasterTransformer takes 64
 * beams, TensorRT-LLM 1024, here it is PROA_BEAMS_MAX. Both know one end id only; several are the natural extension (C
 * as in hf). */
#ifndef PROA_ENGINE_DECODE_BEAM_H
#define PROA_ENGINE_DECODE_BEAM_H

#include "base/status.h"
#include "kernels/ops.h"
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
    proa_style style;
    bool sampled;            /* hf without groups */
    int32_t groups;          /* hf: divides beams; 0 is 1. Others: 0 or 1 */
    float diversity_penalty; /* groups: 0..1e6 */
    int32_t pad_id;          /* groups: 0..vocab-1; -1: the first end id, as generate() has it */
    float diversity_rate;    /* ft, trtllm: -1e6..1e6 */
    bool pool;               /* ft */
    int64_t prompt_tokens;   /* ft without pool: tokens before the first new one, 1..PROA_CONTEXT_MAX */
} proa_beam_options;

typedef struct proa_beam proa_beam;

/* Bytes that such a search takes, for the plan: about 8 K max_new + 8 returned max_new + 210 K. -1 if the options are
 * out of range. The parts that grow with max_new become resident only as far as the search goes. */
int64_t proa_beam_bytes(const proa_beam_options *o);
/* INVALID with the value and the range; NO_MEMORY with the sum. All memory is taken here. On failure *out is NULL. */
PROA_MUST_CHECK proa_status proa_beam_new(proa_beam **out, const proa_beam_options *o, proa_err *err);
void proa_beam_free(proa_beam *b); /* NULL is fine */

/* M: how many candidates the caller gives for each beam: min(V, C); with groups min(V, C + K - Q), so that the list is
 * long enough whichever K - Q tokens the groups before have chosen. */
int64_t proa_beam_candidates(const proa_beam *b);

/* The candidates of a step: for each running beam its M most likely next tokens, best first, of equal ones the lower
 * token first. In the first step all beams stand after the prompt, and only row 0 is read, which may be the only one.
 * Rows of ft beams that have ended and of groups that are done are not read, but must exist. */
typedef struct proa_beam_candidate_rows {
    const int32_t *tokens; /* [K][M] */
    const float *logprobs; /* [K][M] log softmax of the logits; ft, trtllm: after penalties and temperature */
    const float *numbers; /* [K][M] Gumbel numbers of a sampled search, whose rows are ordered by logprob + number; else
                             NULL */
} proa_beam_candidate_rows;

/* Makes one step. Fills parent [K] and token [K]: running beam i of the next step continues beam parent[i] of this step
 * with token[i]. *more is false when the search is over; parent and token then mean nothing.
 * INTERNAL if a log-probability is NaN or +infinity. With -infinity a beam ends; when all have ended, the search is
 * over. No allocation. */
PROA_MUST_CHECK proa_status proa_beam_advance(proa_beam *b, bool *more, int32_t *parent, int32_t *token,
                                              const proa_beam_candidate_rows *rows, proa_err *err);

/* What the next step needs to be made on a device (beam_step in decode.def) so that beams, tokens and scores are
 * those of proa_beam_advance; length counts that step. Left open: rows, row, at, state, to. False if it cannot:
 * more than PROA_DEVICE_BEAMS_MAX beams, too many candidates (of a group), or a sampled search. */
bool proa_beam_search(const proa_beam *b, int64_t length, proa_beam_params *s);

/* Makes the results and returns how many there are, at most `returned`, best first. After a search that ran to its end
 * there are K of them. If the caller stops early, the running beams take part as they do at max_new; hf without groups
 * has them stand in if nothing is finished (or length_penalty made every score fall below the -1e9 of an empty place),
 * scored by their length. Where transformers would return an empty place, and of beams that never came to life, there
 * is no result here. No allocation; call it after the last step. */
int32_t proa_beam_finish(proa_beam *b);
/* Result i. ids (end token included, prompt not) live until proa_beam_free; text is NULL. logprob_sum is the f64 sum of
 * the given log-probabilities, without diversity; finish is END after an end id, else LENGTH. */
proa_beam_result proa_beam_get(const proa_beam *b, int32_t i);

#endif
