/* SPDX-License-Identifier: Apache-2.0
 * tune.h - what the files of `proa tune` share.
 * Owner:   cmd_tune.c. */
#ifndef PROA_CLI_BENCH_TUNE_H
#define PROA_CLI_BENCH_TUNE_H

#include "cli/session.h"

typedef struct proa_tuner {
    proa_common common; /* first: see session.h */
    int64_t rows;
    bool again;
} proa_tuner;

/* Times the model's products at each instruction set level of this CPU, and prints them. Nothing is stored:
 * the engine always uses the widest level. */
PROA_MUST_CHECK proa_status proa_tune_cpu(const proa_tuner *t, proa_err *err);

#endif
