/* SPDX-License-Identifier: Apache-2.0
 * logits_processor.h - what a request's options do to a row of logits before a token is sampled: bans, biases and
 *            penalties. Each processor is a function with its formula and source; they run in the order of the
 *            request's style. (Temperature, top-k, top-p, ... of style hf are in sampler.h.)
 * Owner:   proa_logits_processor_new/free; one for each request. Lists are copied. State that belongs to a sequence
 *          (which allowed word has begun) is computed from the history, so beams and forks need no bookkeeping.
 * Threads: rows of one request one at a time (they share its scratch); different requests side by side.
 * Way in:  proa_logits_processor_new at submit (NULL if the options change no logits), then
 *          proa_logits_processor_apply for each row, or proa_logits_jobs_run for all rows of a step. */
#ifndef PROA_ENGINE_DECODE_LOGITS_PROCESSOR_H
#define PROA_ENGINE_DECODE_LOGITS_PROCESSOR_H

#include "base/status.h"
#include "base/thread.h"
#include "grammar/matcher.h"
#include "kernels/ops.h"
#include "proa/proa.h"

/* The tokens of a row's sequence so far: h = prompt + generated. Ids that are not columns of the row are skipped. */
typedef struct proa_history {
    const int32_t *prompt; /* decoder prompt */
    int64_t prompt_count;
    const int32_t *generated;
    int64_t generated_count;
    const int32_t *source; /* the encoder's input; without an encoder the prompt. NULL: not known */
    int64_t source_count;
} proa_history;

typedef struct proa_logits_processor proa_logits_processor;

/* options were checked and resolved (proa_options_resolve); banned strings are already among banned_words. *out is NULL
 * if no processor is needed. vocab: columns of a row. Takes 8 bytes of address space per column, of which only pages
 * with tokens of the history become resident, and copies of the lists.
 * INVALID names the option: ids outside of the vocabulary, empty words, and for style ft a repetition penalty together
 * with a presence penalty (FasterTransformer's BaseSamplingLayer::setup refuses that too).
 *
 * Processors in order (l: a logit, h: prompt + generated, a word w of n tokens "is about to come" when the last n-1
 * tokens of h are its first n-1):
 *   hf, transformers' _get_logits_processor:
 *     logit_bias          l += bias
 *     sequence_bias       l += bias for the last token of a word about to come, if h has at least n tokens, or n is 1
 *     encoder_repetition_penalty
 *                         once for each token of the source: l < 0 ? l / r : l * r
 *     repetition_penalty  once for each token of h: l < 0 ? l * r : l / r
 *     presence_penalty, frequency_penalty
 *                         tokens generated c > 0 times: l -= frequency * c, then presence (OpenAI; transformers has
 *                         neither, so they stand where vLLM has them: right after repetition)
 *     no_repeat_ngram     -inf for tokens that would complete an n-gram of h
 *     encoder_no_repeat_ngram
 *                         -inf for tokens that would complete an n-gram of the source
 *     banned_words        -inf for the last token of a word about to come, if h has at least n tokens; a word that
 *                         consists of an end token is skipped; both as in transformers
 *     min_tokens          -inf for end tokens while fewer are generated; not with ignore_eos
 *     allowed_words       -inf for all tokens but those that continue a word, or, where all words are complete, start
 *                         one or end the sequence. The generated text is a series of such words. In the place of
 *                         transformers' prefix_allowed_tokens_fn
 *     grammar             -inf for tokens that json_schema, json_object, regex, grammar or choice does not allow next,
 *                         and for end tokens where the text may not end; in the place of allowed_words, in all styles
 *     forced_tokens       of the token after a prompt of one and of the last that max_tokens allows: forced_bos_id or
 *                         forced_eos_id gets 0, all others -inf. In all styles
 *     exponential_decay   end tokens, after `start` new tokens: l += |l| (factor^(new tokens - start) - 1)
 *     suppress_tokens, begin_suppress_tokens
 *                         -inf for these; the second for the first free new token only
 *     renormalize_logits  l -= log(sum(exp(l)))
 *                         The seven options that transformers alone has stand at the same places in all styles
 *   ft, FasterTransformer's DynamicDecodeLayer and BaseSamplingLayer:
 *     banned_words        as above, but ids > 0 alone can be banned, and h needs n-1 tokens
 *     no_repeat_ngram     (not in FasterTransformer; in the place where TensorRT-LLM had it)
 *     logit_bias, temperature T
 *                         l = (l + bias) / (T + 1e-6), if T is not 1 or there is a bias; T = 0 that was not given is 1
 *     repetition_penalty  as above, from the second token of h on
 *     presence_penalty    once for each token of h: l -= presence, from the second token of h on
 *     frequency_penalty   (not in FasterTransformer: as trtllm)
 *     min_tokens, allowed_words as above
 *   trtllm, TensorRT-LLM's batchApplyPenalty and ban kernels:
 *     logit_bias          l += bias
 *     temperature T       l /= T + 1e-6, if T is not 1
 *     repetition_penalty  as above
 *     presence_penalty, frequency_penalty
 *                         tokens that stand c > 0 times in h: l -= presence, then frequency * c
 *     min_tokens, no_repeat_ngram, banned_words (ids > 0), allowed_words
 * For a ban these engines write the lowest finite number; Proa writes -inf. */
PROA_MUST_CHECK proa_status proa_logits_processor_new(proa_logits_processor **out, const proa_options *options,
                                                      int64_t vocab, proa_err *err);
void proa_logits_processor_free(proa_logits_processor *l); /* NULL is fine */
/* The grammar of a request whose options have one, before the first row. Takes the reference. */
void proa_logits_processor_set_grammar(proa_logits_processor *l, proa_matcher *grammar);
/* Changes row[vocab] in place; no allocation; O(h + words) but for temperature and allowed_words, which touch the
 * whole row. For beams of style hf the row holds log-probabilities, as transformers has it; otherwise logits. l may
 * be NULL. If all logits become -inf, proa_sampler_choose returns an error. */
void proa_logits_processor_apply(const proa_logits_processor *l, float *row, const proa_history *history);
/* Whether a mask says which tokens may come next: that of a grammar or of allowed words. */
bool proa_logits_processor_has_mask(const proa_logits_processor *l); /* NULL: false */
/* That mask, for a device (mask_logits in kernels/decode.def): mask[(vocab + 31) / 32]. */
void proa_logits_processor_mask(const proa_logits_processor *l, const proa_history *history, uint32_t *mask);
/* INVALID or LIMIT with the option's name if the grammar or the allowed words let no token follow the history: the
 * vocabulary cannot write what they want. l may be NULL. */
PROA_MUST_CHECK proa_status proa_logits_processor_check(const proa_logits_processor *l,
                                                        const proa_history *history, proa_err *err);
/* One row of a step: what its logits processors are to make. */
typedef struct proa_logits_job {
    const proa_logits_processor *processor; /* not NULL */
    proa_history history;
    const float *raw; /* [vocab] */
    float *row; /* [vocab] a copy of raw, or raw itself, that proa_logits_processor_apply changes; NULL: none */
    uint32_t *mask; /* that of proa_logits_processor_mask; NULL: not wanted */
    bool first;     /* set: of the rows of its request, */
    int32_t next;   /* of which this is the next one; -1: it is the last */
} proa_logits_job;

/* Does all jobs, spread over the pool; rows of one request, wherever they are, one after the other. */
void proa_logits_jobs_run(proa_pool *pool, proa_logits_job *jobs, int64_t count);
/* The most entries that proa_logits_processor_entries makes for a history of `length` tokens, the mask not among them;
 * -1: a device cannot apply all options (two biases of one token, biases of sequences, the encoder's penalties,
 * exponential decay, renormalize_logits). */
int64_t proa_logits_processor_entries_max(const proa_logits_processor *l, int64_t length);
/* The other processors as entries for a device (process_logits in kernels/decode.def); row->first is kept. unknown:
 * one more generated token, known to the device only, follows the history. */
void proa_logits_processor_entries(const proa_logits_processor *l, const proa_history *history, bool unknown,
                                   proa_logits_row *row, proa_logits_entry *entries);
/* Whether some processor changes the row after a prompt and `generated` tokens; NULL: none does. */
bool proa_logits_processor_changes(const proa_logits_processor *l, int64_t prompt_count, int64_t generated);
/* Names of the processors in their order, for tests: "banned_words repetition_penalty ...". Empty for NULL. */
void proa_logits_processor_names(const proa_logits_processor *l, char out[512]);

#endif
