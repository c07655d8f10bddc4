/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.h - the options of `proa run`, shared by its two halves: one prompt (cmd_run.c) and a file (run_file.c).
 * Owner:   run_command in cmd_run.c. */
#ifndef PROA_CLI_CMD_RUN_H
#define PROA_CLI_CMD_RUN_H

#include "cli/output.h"
#include "cli/session.h"

typedef struct proa_run {
    proa_common common; /* first: see session.h */
    const char *prompt, *ids_text, *decoder_ids_text, *input, *output, *early, *beam_style;
    int64_t max_tokens; /* -1 until the model is known: its kind's default */
    int64_t top_k, beams;
    double temperature, top_p, length_penalty;
    bool ignore_eos, logprobs, logits, no_stream, verbose;
    int32_t *ids, *decoder_ids; /* parsed; freed by run_command */
} proa_run;

proa_options proa_run_options(const proa_run *run);
/* Works through run->input, a line a prompt, and writes a line each in the same order. A line that fails leaves an
 * empty line ({"error":...} with --json), and the whole then fails at its end with the count and the first reason. */
PROA_MUST_CHECK proa_status proa_run_file(proa_session *session, const proa_run *run, proa_out *out,
                                          proa_err *err);
/* What was loaded, on standard error. */
void proa_run_describe(const proa_session *session);

#endif
