/* SPDX-License-Identifier: Apache-2.0
 * convert.h - what the files of `proa convert` share. */
#ifndef PROA_CLI_CONVERT_CONVERT_H
#define PROA_CLI_CONVERT_CONVERT_H

#include "cli/convert/probe.h"
#include "cli/session.h"
#include "convert/convert.h"

typedef struct convert_options {
    proa_common common; /* model: the source */
    const char *out, *to, *type, *shard_size, *dtype;
    int64_t ranks;
    bool overwrite, no_probe;
} convert_options;

typedef struct convert_result {
    double seconds; /* of writing */
    bool codes;     /* the source has quantised tensors */
    proa_probe_result probe;
    double bound; /* of probe.difference */
} convert_result;

#endif
