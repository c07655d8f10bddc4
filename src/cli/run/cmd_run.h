/* SPDX-License-Identifier: Apache-2.0
 * cmd_run.h - the options of `proa run`, shared by its parts: decoding options (options.c), one prompt
 *             (cmd_run.c), scores of a given text (score.c) and a file of either (file.c).
 * Owner:   run_command in cmd_run.c. */
#ifndef PROA_CLI_RUN_CMD_RUN_H
#define PROA_CLI_RUN_CMD_RUN_H

#include "cli/decoding.h"
#include "cli/output.h"
#include "cli/print.h"
#include "cli/session.h"

typedef struct proa_run_settings {
    proa_common common; /* first: see session.h */
    const char *prompt, *pair, *ids_text, *type_ids_text, *decoder_ids_text, *input, *output;
    const char *score; /* NULL: generate; "": score what is given as prompt or input; else the text itself */
    bool logits, no_stream, verbose;
    proa_decoding decoding;
    int32_t *ids, *type_ids, *decoder_ids; /* parsed; freed by run_command */
} proa_run_settings;

/* New tokens of a decoder if neither the user nor the model sets a limit. */
enum { PROA_RUN_TOKENS = 128 };

/* The options that were given, with this command's defaults for the kind of model. */
proa_options proa_run_options(const proa_run_settings *run, const proa_session *s);
/* Which members of a result to print; sets the options that this needs. */
proa_show proa_run_show(proa_options *options, bool json);
/* Whether the tokens' log-probabilities need another pass, because a beam search reports them only as a
 * sum. */
bool proa_run_rescores(const proa_options *options);
/* Refuses options whose results this command cannot print. INVALID names both. */
PROA_MUST_CHECK proa_status proa_run_check(const proa_options *options, bool json_or_single, proa_err *err);
/* Refuses options about tokens for a pass that returns outputs of its input and no tokens (an encoder's,
 * --logits). */
PROA_MUST_CHECK proa_status proa_run_check_rows(const proa_options *options, const proa_info *info,
                                                proa_err *err);

/* Processes run->input, one prompt or JSON object per line, and writes one line each in the same order. A
 * line that fails gives an empty line ({"error":...} with --json), and the command then fails at the end
 * with the count and the first reason. */
PROA_MUST_CHECK proa_status proa_run_file(proa_session *session, const proa_run_settings *run,
                                          proa_output *out, proa_err *err);

/* Makes a request of PROA_TASK_SCORE. text: the text to score, for encoder-decoders the target; NULL: the
 * request's own prompt, for encoder-decoders its decoder ids. The caller frees *hold afterwards. */
PROA_MUST_CHECK proa_status proa_score_request(const proa_session *session, proa_request *request,
                                               const proa_str *text, proa_show *show, int32_t **hold,
                                               proa_err *err);
PROA_MUST_CHECK proa_status proa_run_score(proa_session *session, proa_run_settings *run,
                                           proa_request *request, proa_output *out, proa_err *err);
/* Prints what was loaded to standard error. */
void proa_run_describe(const proa_session *session);

#endif
