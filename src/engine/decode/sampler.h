/* SPDX-License-Identifier: Apache-2.0
 * sampler.h - samples one token from a row of logits: temperature, top-k, top-p, min-p and typical-p in the meaning and
 *             order of the request's style, then a random draw; or greedy. Many rows at once on a thread pool.
 * Owner:   the caller owns the scratch. Threads: one row at a time on one scratch; no other state.
 * Way in:  proa_sampler_init once for each worker, proa_sampler_choose_rows for the rows of a step. What comes before
 *          (penalties, bans) is logits_processor.h. */
#ifndef PROA_ENGINE_DECODE_SAMPLER_H
#define PROA_ENGINE_DECODE_SAMPLER_H

#include "base/status.h"
#include "base/thread.h"
#include "engine/decode/logits_processor.h"
#include "kernels/ops.h"
#include "proa/proa.h"

#define PROA_SAMPLER_BINS 2048

/* Candidates of a row while it is sampled: the tokens that no filter has dropped yet, by rising id. */
typedef struct proa_sampler_scratch {
    int64_t vocab; /* longest row */
    float *value;  /* [vocab] logits / temperature */
    float *weight; /* [vocab] exp(value - largest value), not normalised */
    int32_t *id;   /* [vocab] */
    double *bins;  /* [PROA_SAMPLER_BINS] histogram of the selection; sums of blocks in pick */
    float largest; /* of the last row that was filtered */
    proa_ctx ctx;  /* for top_k, on a pool of this thread alone */
} proa_sampler_scratch;

typedef struct proa_sample {
    int32_t id;
    float logprob; /* log softmax(raw logits)[id]; 0 unless options->logprobs */
} proa_sample;

/* 1 <= vocab <= PROA_VOCAB_MAX: 12 bytes a token. */
void proa_sampler_init(proa_sampler_scratch *s, int64_t vocab);
void proa_sampler_release(proa_sampler_scratch *s);
int64_t proa_sampler_bytes(int64_t vocab); /* what init takes, for the plan */

/* Whether the options select the likeliest token. hf: temperature is 0. ft, trtllm: top_k is 0 or 1 and top_p is 0,
 * or top_k is 1 (there the temperature only scales; logits_processor.h does that). */
bool proa_sampler_greedy(const proa_options *options);

/* One row of logits, of which a token is sampled. */
typedef struct proa_sampler_row {
    const float *logits;  /* [vocab], after proa_logits_processor_apply */
    const float *raw;     /* [vocab] as the model gave them, for log-probabilities; NULL: logits are that */
    int64_t position;     /* in the sequence of the token to be chosen, prompt included */
    proa_history history; /* zero: nothing was generated */
    const proa_options *options; /* but for these two, which may differ between sequences that share the options */
    uint64_t seed;
    bool logprobs;
    bool race;         /* drawn by proa_sampler_race, not by proa_sampler_pick */
    proa_sample out;   /* set, */
    proa_logprob *top; /* [options->top_logprobs] set; may be NULL */
    float *scores; /* [vocab] set: logits over the temperature, -infinity for tokens that a filter dropped; may be
                           NULL, or `logits` itself */
    proa_status status; /* and this one */
    proa_err *err;      /* may be NULL; not shared between rows */
} proa_sampler_row;

/* Samples the token of a row of [vocab] logits, vocab <= s->vocab. Reads style, temperature, top_k, top_p and its
 * decay, min_p, typical_p, epsilon_cutoff and eta_cutoff of the options.
 *   greedy          the first index of the largest logit; all other options are ignored
 *   style hf        x = logits / temperature
 *                   top_k > 0: drops x below the k-th largest; ties with it stay
 *                   top_p < 1: in rising order of softmax(x), drops tokens while the running sum is <= 1 - top_p,
 *                   but never the last; among equal ones the lower id is dropped first. So 0, if given, leaves one; a 0
 *                   that was not given is 1
 *                   min_p > 0: drops what is less than min_p times as likely as the likeliest
 *                   0 < typical_p < 1: see keep_typical in filter.c; epsilon_cutoff, eta_cutoff: see keep_likely
 *                   draws from softmax of the remaining candidates
 *   ft, trtllm      x = logits, which logits_processor.c has divided by the temperature
 *                   top_k > 0: exactly k stay, of ties the lower ids; top_p is then measured within these
 *                   0 < top_p < 1: in falling order, up to the token at which the running sum reaches top_p; that
 *                   one weighs only what was missing, because FasterTransformer's and TensorRT-LLM's kernels draw
 *                   uniformly from (0, top_p * sum] along that order
 *                   then min_p, typical_p and the cutoffs as above
 * top_p decays as proa_sampler_top_p says.
 * The random number depends on (seed, position) alone: the same seed gives the same tokens whatever else is in the
 * batch. Different sequences of one request need different seeds (proa_seed_of) to differ.
 * A temperature so small that logits / temperature overflows is greedy, its limit.
 * INTERNAL, "logits are not numbers ...", if a logit is NaN or +infinity, or all are -infinity (single ones may be).
 * No allocation. */
PROA_MUST_CHECK proa_status proa_sampler_choose(proa_sampler_scratch *s, proa_sampler_row *row, int64_t vocab);

/* Checks a row that is sampled on a device by its log-sum-exp: INTERNAL as above, with the same text if all logits are
 * -infinity. Otherwise the row's id is not known: the text names the sum. */
PROA_MUST_CHECK proa_status proa_sampler_check_sum(float sum, int64_t vocab, int64_t position, proa_err *err);

/* Samples each row as proa_sampler_choose does, spread over the pool. s: one scratch for each of the pool's threads. */
void proa_sampler_choose_rows(proa_pool *pool, proa_sampler_scratch *s, proa_sampler_row *rows, int64_t count,
                              int64_t vocab);

/* The most likely tokens of softmax(logits), likeliest first, of equals the lower id: fills top[0..n), n =
 * min(count, vocab) which it returns; entries up to count get id -1 and -infinity. logits hold no NaN. */
int32_t proa_sampler_top(proa_logprob *top, int32_t count, const float *logits, int64_t vocab);

/* The parts, each on its own. */

/* The k largest logits into s->value and s->id, largest first, of equals the lower id; NaN counts as the smallest.
 * 1 <= k <= vocab. */
void proa_sampler_best(proa_sampler_scratch *s, const float *logits, int64_t vocab, int64_t k);
/* log softmax(x)[id] = x[id] - max - log(sum(exp(x - max))), the sum in f64 and in fixed order. */
float proa_sampler_logprob(const float *x, int64_t n, int64_t id);
/* The top_p of the next token: p0 = options->top_p at first and after top_p_reset_id, else max(p * top_p_decay,
 * top_p_min) of the one before, in f32 (Lee et al. 2022, factual nucleus sampling; FasterTransformer's
 * computeToppDecay). In styles ft and trtllm only without top_k, as there. */
float proa_sampler_top_p(const proa_options *options, const proa_history *history);
/* All steps before the draw, for options that are not greedy: leaves the candidates in s->id and s->weight, in
 * rising order of id, and returns how many. The probability of each is its weight over the sum of weights. logits
 * hold no NaN; returns 0 if the largest, which s->largest keeps, is infinite. (filter.c) */
int64_t proa_sampler_filter(proa_sampler_scratch *s, const float *logits, int64_t vocab,
                            const proa_options *options, const proa_history *history);
/* The same steps as numbers for a device, all but the random one (proa_sample_params.uniform, of
 * proa_sampler_uniform): a temperature of 0 for options that are greedy, FLT_MIN for a top_p of 0 that was given.
 * False if a row's numbers alone do not suffice: typical_p, epsilon_cutoff, eta_cutoff, a top_p that decays.
 * (filter.c) */
bool proa_sampler_choice(proa_sample_params *choice, const proa_options *options);
/* The candidate at which the running sum of weights first exceeds u times their sum, 0 <= u < 1. */
int32_t proa_sampler_pick(const proa_sampler_scratch *s, int64_t count, double u);
/* A draw in which every candidate has a random number of its own: the one that comes first in an exponential race, of
 * which candidate id arrives at -log(1 - v) / weight. v in [0,1) depends on (seed, position, id) alone: the upper 53
 * bits of SplitMix64 (Steele, Lea, Flood 2014) of out[0] * 2^32 + out[1] of Philox with counter = (position, 1, 0), at
 * step id + 1. The token has the probability of its weight, as with proa_sampler_pick. Two distributions that are close
 * choose the same token more often in this way: with the sum m of min(p, q), at least m / (2 - m) of the time (Daliri,
 * Musco, Suresh 2025), which is why a draft model is compared by it. */
int32_t proa_sampler_race(const proa_sampler_scratch *s, int64_t count, uint64_t seed, int64_t position);
/* The candidates of a sampled beam, best first: arrays of [count]. */
typedef struct proa_drawn_candidates {
    int32_t *ids;
    float *values, *numbers;
    int64_t count;
} proa_drawn_candidates;
/* Samples the row of a beam: the filters of the options leave candidates, and each gets a Gumbel number of its own,
 * -log(-log(1 - v)), v in (0,1) of (seed, position, id) as in proa_sampler_race. The largest of value + number are a
 * sample without replacement from softmax(value) (Kool, van Hoof, Welling: Stochastic beams and where to find them,
 * 2019). logits[vocab] becomes what is sampled from: logits / temperature, -infinity for tokens that were dropped.
 * Fills *out with the `count` best; if the filters leave fewer, the rest are values of -infinity. Of `row` it reads
 * position, history, options, seed and err. INTERNAL as proa_sampler_choose, but all of a row may be -infinity. */
PROA_MUST_CHECK proa_status proa_sampler_candidates(proa_sampler_scratch *s, const proa_drawn_candidates *out,
                                                    float *logits, int64_t vocab, const proa_sampler_row *row);
/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011). */
void proa_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
/* Uniform in [0,1), a multiple of 2^-53: the upper 53 bits of out[0] * 2^32 + out[1] of Philox with
 * key = (low, high half of seed) and counter = (low, high half of position, 0, 0). */
double proa_sampler_uniform(uint64_t seed, int64_t position);

#endif
