/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.h - the options of `proa run`, shared by its parts: one prompt (cmd_run.c), scores of a given text
 *             (run_score.c) and a file of either (run_file.c).
 * Owner:   run_command in cmd_run.c. */
#ifndef PROA_CLI_CMD_RUN_H
#define PROA_CLI_CMD_RUN_H

#include "cli/decoding.h"
#include "cli/output.h"
#include "cli/print.h"
#include "cli/session.h"

typedef struct proa_run {
    proa_common common; /* first: see session.h */
    const char *prompt, *ids_text, *decoder_ids_text, *input, *output;
    const char *score; /* NULL: generate; "": score what is given as prompt or input; else the text itself */
    bool logits, no_stream, verbose;
    proa_decoding decoding;
    int32_t *ids, *decoder_ids; /* parsed; freed by run_command */
} proa_run;

/* What was given, with the command's own defaults for this kind of model. */
proa_options proa_run_options(const proa_run *run, const proa_info *info);
/* What of a result is to be printed; sets in *options what that takes. */
proa_show proa_run_show(proa_options *options, bool json);
/* Whether the tokens' log-probabilities come of one more pass: they are told at the end of the search only. */
bool proa_run_rescores(const proa_options *options);
/* Options that this program cannot tell the results of. INVALID names both. */
PROA_MUST_CHECK proa_status proa_run_check(const proa_options *options, bool json_or_single, proa_err *err);
/* Options of a pass that gives the outputs of its input, and no tokens (an encoder's, --logits): INVALID if there are any,
 * all being about tokens. */
PROA_MUST_CHECK proa_status proa_run_check_rows(const proa_options *options, const proa_info *info,
                                                proa_err *err);

/* Works through run->input, a line a prompt or a JSON object, and writes a line each in the same order. A line that
 * fails leaves an empty line ({"error":...} with --json), and the whole then fails at its end with the count and the
 * first reason. */
PROA_MUST_CHECK proa_status proa_run_file(proa_session *session, const proa_run *run, proa_out *out,
                                          proa_err *err);

/* Makes a request of PROA_TASK_SCORE. text: what is scored, for encoder-decoders the target; NULL: the request's own
 * prompt, for encoder-decoders its decoder ids. *hold is the caller's to free afterwards. */
PROA_MUST_CHECK proa_status proa_score_request(const proa_session *session, proa_request *request,
                                               const proa_str *text, proa_show *show, int32_t **hold,
                                               proa_err *err);
PROA_MUST_CHECK proa_status proa_run_score(proa_session *session, proa_run *run, proa_request *request,
                                           proa_out *out, proa_err *err);
/* What was loaded, on standard error. */
void proa_run_describe(const proa_session *session);

#endif
