/* SPDX-License-Identifier: Apache-2.0
 * contrastive.h - the choice of contrastive search: among the k likeliest next tokens the one that is likely and unlike
 *                 all that came before. Su et al. 2022, A Contrastive Framework for Neural Text Generation, arXiv
 *                 2202.06417, eq. 5. It knows probabilities and hidden states, no model, no pages.
 * Owner:   the caller, from proa_contrastive_new to proa_contrastive_free. Threads: one at a time.
 * Way in:  proa_contrastive_new; the prompt's hidden states with proa_contrastive_add; then for each token: run the k
 *          likeliest candidates as k rows that continue the sequence, and proa_contrastive_choose among them.
 *
 *   score(j) = (1 - alpha) p(j) - alpha max_i cos(h(j), h_i)   over all tokens i of the context, prompt included
 *
 * h is the hidden state that the head reads, of the row whose input is that token. The largest score wins, among equals
 * the first. cos is 0 with a vector of zeros, and without a context the maximum is 0. */
#ifndef PROA_ENGINE_DECODE_CONTRASTIVE_H
#define PROA_ENGINE_DECODE_CONTRASTIVE_H

#include "base/status.h"
#include "proa/proa.h"

typedef struct proa_contrastive_options {
    int32_t k;          /* candidates of a step, 1..PROA_BEAMS_MAX */
    float alpha;        /* 0..1; 0 is greedy */
    int64_t hidden;     /* H, 1..PROA_HIDDEN_MAX */
    int64_t tokens_max; /* of prompt and output, 1..PROA_CONTEXT_MAX */
} proa_contrastive_options;

typedef struct proa_contrastive proa_contrastive;

/* INVALID with the value and the range; NO_MEMORY with the sum. On failure *out is NULL. All memory is taken here: 4 H
 * (tokens_max + k) bytes and a little, resident only as far as the context goes. */
PROA_MUST_CHECK proa_status proa_contrastive_new(proa_contrastive **out, const proa_contrastive_options *o,
                                                 proa_err *err);
void proa_contrastive_free(proa_contrastive *c); /* NULL is fine */

/* Appends rows [n][H] to the context, normalised. LIMIT over tokens_max, INTERNAL if a state is not finite; nothing is
 * appended then. No allocation. */
PROA_MUST_CHECK proa_status proa_contrastive_add(proa_contrastive *c, const float *rows, int64_t n,
                                                 proa_err *err);
/* *index is the candidate to take, of probs [k], likeliest first, and hidden [k][H]; its state is appended. Errors as
 * above, INTERNAL also for a probability that is not a number. About k H count multiplications. No allocation. */
PROA_MUST_CHECK proa_status proa_contrastive_choose(proa_contrastive *c, int32_t *index, const float *probs,
                                                    const float *hidden, proa_err *err);

#endif
