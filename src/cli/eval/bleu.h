/* SPDX-License-Identifier: Apache-2.0
 * bleu.h - corpus BLEU with the defaults of sacrebleu: 13a tokens, four orders, exponential smoothing, one reference.
 * BLEU: Papineni et al. 2002. 13a: mteval-v13a's rules. Smoothing: method 3 of Chen and Cherry 2014.
 * Owner:   the caller, proa_bleu_release.
 * Way in:  proa_bleu_init, proa_bleu_add for each pair of lines, proa_bleu_score. */
#ifndef PROA_CLI_EVAL_BLEU_H
#define PROA_CLI_EVAL_BLEU_H

#include "base/str.h"

enum { PROA_BLEU_ORDERS = 4 };

typedef struct proa_bleu {
    int64_t correct[PROA_BLEU_ORDERS], total[PROA_BLEU_ORDERS]; /* n-grams: clipped matches, all of the hypotheses */
    int64_t hyp_tokens, ref_tokens;
    proa_buf hyp, ref; /* scratch: the tokens of one pair, each followed by a newline */
} proa_bleu;

typedef struct proa_bleu_result {
    double score;                        /* 0..100 */
    double precisions[PROA_BLEU_ORDERS]; /* percent */
    double brevity;                      /* the penalty, 0..1 */
} proa_bleu_result;

void proa_bleu_init(proa_bleu *bleu);
void proa_bleu_release(proa_bleu *bleu);
void proa_bleu_add(proa_bleu *bleu, proa_str hypothesis, proa_str reference);
proa_bleu_result proa_bleu_score(const proa_bleu *bleu);

/* The 13a tokens of a line, each followed by a newline, appended to out. */
void proa_bleu_tokens(proa_buf *out, proa_str line);

#endif
