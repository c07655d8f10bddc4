/* SPDX-License-Identifier: Apache-2.0
 * probe.h - compares a converted model with its source on one prompt.
 * Owner:   a proa_probe belongs to its caller; proa_probe_release frees its numbers.
 * Way in:  proa_probe_run on the source, proa_probe_run on the result, proa_probe_compare. One model at a time is in
 *          memory. */
#ifndef PROA_CLI_CONVERT_PROBE_H
#define PROA_CLI_CONVERT_PROBE_H

#include "base/compiler.h"
#include "proa/proa.h"

/* What a model made of the prompt: the logits of the greedy tokens and the tokens, or the rows of an encoder. */
typedef struct proa_probe {
    float *values;         /* [rows][columns] */
    int64_t rows, columns; /* rows that were made so far */
    int32_t ids[16];       /* of the rows; an encoder has none */
    int64_t tokens;
    bool failed;
    proa_err error; /* of the request */
} proa_probe;

typedef struct proa_probe_result {
    double difference; /* the largest between two logits, as a part of the largest logit; NaN if one has NaN */
    int64_t same, tokens;
} proa_probe_result;

/* Runs a fixed prompt. dtype and quant as in proa_engine_options. */
PROA_MUST_CHECK proa_status proa_probe_run(proa_probe *out, const char *model,
                                           const proa_engine_options *options, proa_err *err);
/* Compares rows as long as the tokens before them are the same. INVALID: outputs of different shapes. */
PROA_MUST_CHECK proa_status proa_probe_compare(proa_probe_result *out, const proa_probe *source,
                                               const proa_probe *result, proa_err *err);
void proa_probe_release(proa_probe *p);

#endif
