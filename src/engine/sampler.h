/* SPDX-License-Identifier: Apache-2.0
 * sampler.h - one token from a row of logits, with the meaning and the order of transformers' logits warpers:
 *             temperature, top-k, top-p, then a draw; or greedy.
 * Owner:   the caller owns the scratch. Threads: one row at a time on one scratch; no other state.
 * Way in:  proa_sampler_init once, proa_sampler_check for a request's options, proa_sampler_choose for each row. */
#ifndef PROA_ENGINE_SAMPLER_H
#define PROA_ENGINE_SAMPLER_H

#include "base/status.h"
#include "proa/proa.h"

#define PROA_SAMPLER_BINS 2048

/* Candidates of a row while it is sampled: those tokens that no step has dropped yet, in rising order of id. */
typedef struct proa_sampler_scratch {
    int64_t vocab; /* longest row */
    float *value;  /* [vocab] logits / temperature */
    float *weight; /* [vocab] exp(value - largest value), not normalised */
    int32_t *id;   /* [vocab] */
    double *bins;  /* [PROA_SAMPLER_BINS] histogram of the selection */
} proa_sampler_scratch;

typedef struct proa_sample {
    int32_t id;
    float logprob; /* log softmax(logits)[id], of the logits as they came; 0 unless options->logprobs */
} proa_sample;

/* 1 <= vocab <= PROA_VOCAB_MAX: 12 bytes a token. */
void proa_sampler_init(proa_sampler_scratch *s, int64_t vocab);
void proa_sampler_release(proa_sampler_scratch *s);
int64_t proa_sampler_bytes(int64_t vocab); /* what init takes, for the plan */

/* INVALID with the value and the range unless temperature is finite and >= 0, top_k >= 0 and 0 <= top_p <= 1. */
PROA_MUST_CHECK proa_status proa_sampler_check(const proa_options *options, proa_err *err);

/* Chooses the token that stands at `position` of its sequence from logits[vocab] (vocab <= s->vocab), which are not
 * changed. Reads temperature, top_k, top_p, seed and logprobs of options.
 *   temperature 0   the first index of the largest logit; top_k, top_p and seed play no part
 *   otherwise       x = logits / temperature
 *                   top_k > 0: drops x below the k-th largest; ties with it stay
 *                   0 < top_p < 1: in rising order of softmax(x), drops tokens while the running sum is <= 1 - top_p,
 *                   but never the last; among equal ones the lower id is dropped first
 *                   draws from softmax of what is left
 * The random number depends on (seed, position) alone: the same seed gives the same tokens whatever else is in the
 * batch. position is the index in the sequence of the token to be chosen, prompt included; different sequences of
 * one request that shall differ need different seeds.
 * A temperature so small that logits / temperature overflows is greedy, its limit.
 * INTERNAL, "logits are not numbers ...", if a logit is NaN or +infinity, or all are -infinity (single ones may be).
 * No allocation. */
PROA_MUST_CHECK proa_status proa_sampler_choose(proa_sampler_scratch *s, proa_sample *out,
                                                const float *logits, int64_t vocab, int64_t position,
                                                const proa_options *options, proa_err *err);

/* The steps, each on its own. */

/* First index of the largest of x[n], n > 0; NaN counts as the smallest. *largest (may be NULL) gets the value, or
 * NaN if any x is NaN. */
int64_t proa_sampler_argmax(float *largest, const float *x, int64_t n);
/* log softmax(x)[id] = x[id] - max - log(sum(exp(x - max))), the sum in f64 and in fixed order. */
float proa_sampler_logprob(const float *x, int64_t n, int64_t id);
/* Temperature (> 0), top-k and top-p of the options: leaves the candidates in s->id and s->weight, in rising order of
 * id, and returns how many. The probability of each is its weight over the sum of weights. logits are numbers. */
int64_t proa_sampler_filter(proa_sampler_scratch *s, const float *logits, int64_t vocab,
                            const proa_options *options);
/* The candidate at which the running sum of weights first exceeds u times their sum, 0 <= u < 1. */
int32_t proa_sampler_pick(const proa_sampler_scratch *s, int64_t count, double u);
/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011). */
void proa_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
/* Uniform in [0,1), a multiple of 2^-53: the upper 53 bits of out[0] * 2^32 + out[1] of Philox with
 * key = (low, high half of seed) and counter = (low, high half of position, 0, 0). */
double proa_sampler_uniform(uint64_t seed, int64_t position);

#endif
