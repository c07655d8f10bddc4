/* SPDX-License-Identifier: Apache-2.0
 * logits.h - what a request's options do to a row of logits before a token is chosen: bans, biases and penalties.
 *            A list of small steps, each a function with its formula and source, in the order of the request's style.
 *            (hf's temperature, top-k, top-p and their kin follow in sampler.h.)
 * Owner:   proa_logits_new/free; one for each request, its lists copied. State that follows a sequence (which allowed
 *          word is under way) is computed from the history, so beams and forks need no bookkeeping.
 * Threads: rows of one request one at a time (they share its scratch); different requests side by side.
 * Way in:  proa_logits_new at submit (NULL if the options ask for nothing: then the row is not touched), then
 *          proa_logits_apply for each row. */
#ifndef PROA_ENGINE_LOGITS_H
#define PROA_ENGINE_LOGITS_H

#include "base/status.h"
#include "kernels/ops.h"
#include "proa/proa.h"

/* What the row's sequence has so far: h = prompt + generated. Ids that are no columns of the row are passed over. */
typedef struct proa_history {
    const int32_t *prompt; /* decoder prompt */
    int64_t prompt_count;
    const int32_t *generated;
    int64_t generated_count;
} proa_history;

typedef struct proa_logits proa_logits;

/* options were checked and resolved (proa_options_resolve), banned strings are already among banned_words. *out is
 * NULL when no step is needed. vocab: columns of a row; takes 8 bytes of address space a column, of which only pages
 * with tokens of the history become memory, and what the lists need.
 * INVALID names the option: ids that are no columns, ends that do not rise, and for style ft a repetition penalty
 * together with a presence penalty (FasterTransformer's BaseSamplingLayer::setup refuses that too).
 *
 * Steps in order (l: a logit, h: prompt + generated, a word w of n tokens "is about to come" when the last n-1 tokens
 * of h are its first n-1):
 *   hf, transformers' _get_logits_processor:
 *     logit_bias          l += bias
 *     repetition_penalty  once for each token of h: l < 0 ? l * r : l / r
 *     presence_penalty, frequency_penalty
 *                         tokens generated c > 0 times: l -= frequency * c, then presence (OpenAI; transformers has
 *                         neither, so they stand where vLLM has them: right after repetition)
 *     no_repeat_ngram     -inf for what completes an n-gram of h
 *     banned_words        -inf for the last token of a word about to come, if h has at least n tokens; a word that is
 *                         an end token alone is left out, both as transformers has it
 *     min_tokens          -inf for end tokens while fewer are generated; not with ignore_eos
 *     allowed_words       -inf for all but what continues a word under way, or starts one where all words are whole,
 *                         or (there) ends; words follow each other from the first generated token on. Where
 *                         transformers has prefix_allowed_tokens_fn
 *   ft, FasterTransformer's DynamicDecodeLayer and BaseSamplingLayer:
 *     banned_words        as above, but ids > 0 alone can be banned, and h needs n-1 tokens
 *     no_repeat_ngram     (not in FasterTransformer; where TensorRT-LLM has had it)
 *     logit_bias, temperature T
 *                         l = (l + bias) / (T + 1e-6), if T is not 1 or there is a bias; T = 0 that was not given is 1
 *     repetition_penalty  as above, from the second token of h on
 *     presence_penalty    once for each token of h: l -= presence; likewise
 *     frequency_penalty   (not in FasterTransformer: as trtllm)
 *     min_tokens, allowed_words as above
 *   trtllm, TensorRT-LLM's batchApplyPenalty and ban kernels:
 *     logit_bias          l += bias
 *     temperature T       l /= T + 1e-6, if T is not 1
 *     repetition_penalty  as above
 *     presence_penalty, frequency_penalty
 *                         tokens that stand c > 0 times in h: l -= presence, then frequency * c
 *     min_tokens, no_repeat_ngram, banned_words (ids > 0), allowed_words
 * Where these engines write the lowest finite number for a ban, here it is -inf. */
PROA_MUST_CHECK proa_status proa_logits_new(proa_logits **out, const proa_options *options, int64_t vocab,
                                            proa_err *err);
void proa_logits_free(proa_logits *l); /* NULL is fine */
/* Changes row[vocab] in place; no allocation; O(h + words) but for temperature and allowed_words, which touch the
 * whole row. For beams of style hf the row holds log-probabilities, as transformers has it; otherwise logits. l may
 * be NULL. All may become -inf (the words banned leave nothing): proa_sampler_choose says so. */
void proa_logits_apply(const proa_logits *l, float *row, const proa_history *history);
/* How many pairs proa_logits_edits makes of a history of so many tokens at most; -1: a device cannot do all that the options ask
 * (allowed words, two biases of one token). */
int64_t proa_logits_pairs(const proa_logits *l, int64_t length);
/* The same steps as pairs for a device (edit in ops.def), whose `first` is left open. unknown: the history's last token, a
 * generated one, is the device's to know, and comes behind these. */
void proa_logits_edits(const proa_logits *l, const proa_history *history, bool unknown, proa_edits *row,
                       proa_edit *pairs);
/* Names of the steps in their order, for explain and tests: "banned_words repetition_penalty ...". Empty for NULL. */
void proa_logits_names(const proa_logits *l, char out[512]);

#endif
