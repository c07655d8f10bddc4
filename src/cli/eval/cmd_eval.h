/* SPDX-License-Identifier: Apache-2.0
 * cmd_eval.h - the options of `proa eval` and its four measures: each prints its own result.
 * Owner:   eval_command in cmd_eval.c. */
#ifndef PROA_CLI_EVAL_CMD_EVAL_H
#define PROA_CLI_EVAL_CMD_EVAL_H

#include "cli/output.h"
#include "cli/session.h"

typedef struct proa_eval {
    proa_common common; /* first: see session.h */
    const char *data, *source, *target, *prefix, *output, *labels, *golden, *early;
    int64_t window, beams, max_tokens, limit;
    double length_penalty, threshold, tolerance;
} proa_eval;

/* Perplexity of a text (text.c). */
PROA_MUST_CHECK proa_status proa_eval_text(proa_session *s, const proa_eval *e, proa_output *out, proa_err *err);
/* BLEU of translations (tasks.c). */
PROA_MUST_CHECK proa_status proa_eval_translate(proa_session *s, const proa_eval *e, proa_output *out,
                                                proa_err *err);
/* Accuracy of an encoder's head (tasks.c). */
PROA_MUST_CHECK proa_status proa_eval_labels(proa_session *s, const proa_eval *e, proa_output *out,
                                             proa_err *err);
/* Difference from the outputs of a reference implementation (golden.c). *passed: all were within the
 * tolerance. */
PROA_MUST_CHECK proa_status proa_eval_golden(proa_session *s, const proa_eval *e, proa_output *out,
                                             bool *passed, proa_err *err);

/* Sum of -ln p of ids[1..count) in one forward pass, and optionally each of them to nll[count - 1]. */
PROA_MUST_CHECK proa_status proa_sequence_nll(proa_engine *engine, const int32_t *ids, int64_t count,
                                              double *sum, double *nll, proa_err *err);

#endif
