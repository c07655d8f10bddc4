/* SPDX-License-Identifier: Apache-2.0
 * golden.h - what a comparison with reference outputs found: filled by golden.c, judged and printed by
 * golden_print.c, with the likelihoods of golden_nll.c.
 * Owner:   proa_eval_golden. */
#ifndef PROA_CLI_EVAL_GOLDEN_H
#define PROA_CLI_EVAL_GOLDEN_H

#include "base/json.h"
#include "cli/eval/cmd_eval.h"
#include "cli/output.h"

typedef struct proa_golden_case {
    int32_t *ids; /* the prompt */
    int64_t ids_count;
    bool prompt_differs; /* our tokenizer gives other ids */
    bool text_differs;   /* same tokens, other text */
    bool has_rows;
    double diff, largest; /* largest difference of any compared value; largest absolute value of the reference */
    int64_t greedy_count, greedy_same; /* compared; equal from the start */
    int32_t greedy_want, greedy_got;   /* where they part */
    double gap;                        /* between the two best logits there */
    bool has_logprobs;
    double logprob_diff;
    int64_t beams, beams_same; /* hypotheses */
    bool has_scores;
    double score_diff;
} proa_golden_case;

typedef struct proa_golden_nll_item {
    int64_t doc, tokens;
    double want, got;  /* mean over the predicted tokens */
    double first_diff; /* largest difference of the single values that the reference has */
    bool tokens_differ;
} proa_golden_nll_item;

typedef struct proa_golden {
    proa_session *session;
    const proa_eval *eval;
    int32_t cut_tokens; /* where the reference's beam search was cut; 0: every hypothesis ended by itself */
    int32_t longest;    /* longest hypothesis of all cases, in tokens */
    proa_golden_case *cases;
    int64_t count;
    proa_golden_nll_item *nll;
    int64_t nll_count, nll_skipped; /* skipped: the text was not given with --data */
} proa_golden;

/* Compares the means over parts of the text that --data gives; without it they are counted as skipped. */
PROA_MUST_CHECK proa_status proa_golden_nll(proa_golden *g, const proa_json *nll, proa_err *err);
/* Prints the table or the JSON object; true if every case is within the tolerance and all tokens are the same. */
bool proa_golden_print(const proa_golden *g, proa_output *out);

#endif
