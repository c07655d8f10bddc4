/* SPDX-License-Identifier: Apache-2.0
 * tune.h - what the files of `proa tune` share.
 * Owner:   cmd_tune.c. */
#ifndef PROA_CLI_TUNE_H
#define PROA_CLI_TUNE_H

#include "cli/session.h"

typedef struct proa_tuner {
    proa_common common; /* first: see session.h */
    int64_t rows;
    bool again;
} proa_tuner;

/* Times the model's products at each level of instructions that this CPU has, and prints them. Nothing is kept: the widest
 * level is taken whatever it says. */
PROA_MUST_CHECK proa_status proa_tune_cpu(const proa_tuner *t, proa_err *err);

#endif
