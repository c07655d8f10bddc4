/* SPDX-License-Identifier: Apache-2.0
 * convert.h - what the files of `proa convert` share. */
#ifndef PROA_CLI_CONVERT_CONVERT_H
#define PROA_CLI_CONVERT_CONVERT_H

#include "cli/convert/probe.h"
#include "cli/session.h"
#include "convert/calibrate/calibrate.h"

typedef struct convert_options {
    proa_common common; /* model: the source */
    const char *out, *to, *type, *shard_size, *dtype;
    int64_t ranks;
    bool overwrite, no_probe;
    /* --calibrate */
    const char *calibrate, *method, *prefix;
    int64_t group, calibrate_tokens;
    bool zero_points;
} convert_options;

typedef struct convert_result {
    double seconds; /* of writing */
    bool codes;     /* the source has quantised tensors */
    proa_probe_result probe;
    double bound; /* of probe.difference */
} convert_result;

/* --calibrate: opens the source as an engine on the CPU, reads the text and writes the quantised folder. */
PROA_MUST_CHECK proa_status calibration_write(const convert_options *o, proa_convert_job *job, proa_err *err);

#endif
