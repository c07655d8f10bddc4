/* SPDX-License-Identifier: Apache-2.0
 * cmd_eval.c - `proa eval`: its options and the choice of the measure. */
#include "cli/eval/cmd_eval.h"

#include "base/limits.h"
#include "cli/commands.h"
#include <string.h>

#define AT(field) offsetof(proa_eval, field)
static const proa_arg eval_rows[] = {
    PROA_MODEL_ARG,
    {"data", PROA_ARG_TEXT, AT(data), 0, 0, "FILE", NULL, "text file: measure its perplexity"},
    {"window", PROA_ARG_INT, AT(window), 0, PROA_CONTEXT_MAX, "N", "0",
     "tokens of one window; 0: the model's context"},
    {"source", PROA_ARG_TEXT, AT(source), 0, 0, "FILE", NULL, "sentences to translate, one per line"},
    {"target", PROA_ARG_TEXT, AT(target), 0, 0, "FILE", NULL,
     "reference translations of --source: measure BLEU with sacrebleu's defaults"},
    {"prefix", PROA_ARG_TEXT, AT(prefix), 0, 0, "TEXT", "", "text put before each sentence"},
    {"output", PROA_ARG_TEXT, AT(output), 0, 0, "FILE", NULL, "file for the translations or scores, one per line"},
    {"beams", PROA_ARG_INT, AT(beams), 1, PROA_BEAMS_MAX, "N", "1", "beam search with N beams"},
    {"length-penalty", PROA_ARG_REAL, AT(length_penalty), -100, 100, "X", "1",
     "beam score: sum of log-probabilities / length^X"},
    {"early-stopping", PROA_ARG_CHOICE, AT(early), 0, 0, "false|true|never", "false",
     "when a beam search ends, as in transformers"},
    {"max-tokens", PROA_ARG_INT, AT(max_tokens), 0, PROA_CONTEXT_MAX, "N", "0",
     "most tokens of a translation; 0: twice the input, or 64"},
    {"labels", PROA_ARG_TEXT, AT(labels), 0, 0, "FILE", NULL,
     "tab-separated file, label first, text last: measure accuracy"},
    {"threshold", PROA_ARG_REAL, AT(threshold), -1000, 1000, "X", "0.5",
     "regression scores above X count as label 1"},
    {"golden", PROA_ARG_TEXT, AT(golden), 0, 0, "PATH", NULL,
     "reference outputs: a folder with golden.json, or a .json file"},
    {"tolerance", PROA_ARG_REAL, AT(tolerance), 0, 1000, "X", "1e-4",
     "for --golden: largest accepted difference, relative to the largest logit"},
    {"limit", PROA_ARG_INT, AT(limit), 0, INT32_MAX, "N", "0", "only the first N lines or windows; 0: all"},
};
#undef AT
static const proa_arg_table eval_args = PROA_ARG_TABLE(
    "options (one of --data, --source, --labels, --golden; files may end in .gz)", eval_rows);

static int check_settings(const proa_eval *e)
{
    bool translate = e->source || e->target;
    int measures = (e->golden != NULL) + translate + (e->labels != NULL) + (e->data && !e->golden);
    if (measures != 1)
        return proa_cli_fail(PROA_EXIT_USAGE,
                             "give one of --data, --source with --target, --labels and --golden");
    if (translate && !(e->source && e->target))
        return proa_cli_fail(PROA_EXIT_USAGE, "--source and --target go together");
    if (e->output && (e->data || e->golden))
        return proa_cli_fail(PROA_EXIT_USAGE, "--output goes with --source or --labels");
    return -1;
}

static proa_status measure_tasks(proa_session *s, const proa_eval *e, proa_output *out, bool *passed,
                                 proa_err *err)
{
    *passed = true;
    if (e->golden) return proa_eval_golden(s, e, out, passed, err);
    if (e->source) return proa_eval_translate(s, e, out, err);
    if (e->labels) return proa_eval_labels(s, e, out, err);
    return proa_eval_text(s, e, out, err);
}

static proa_status open_and_measure(const proa_eval *e, bool *passed, proa_err *err)
{
    proa_engine_options options;
    proa_session session;
    proa_output out;
    PROA_TRY(proa_session_options(&options, &e->common, err));
    proa_session_room(&options, e->beams, e->max_tokens, !e->golden);
    PROA_TRY(proa_session_open(&session, &e->common, &options, err));
    proa_status status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) status = measure_tasks(&session, e, &out, passed, err);
    /* the results are printed even if closing fails; the first error is reported */
    proa_status closed = proa_output_close(&out, err);
    proa_session_close(&session);
    return status != PROA_OK ? status : closed;
}

static int eval_command(const proa_command *self, int argc, char **argv)
{
    proa_eval e = {.data = NULL};
    int exit_status = proa_args_parse(self, &e, argc, argv);
    if (exit_status < 0) exit_status = check_settings(&e);
    if (exit_status >= 0) return exit_status;
    proa_err err = {0};
    bool passed = false;
    proa_interrupt_watch();
    if (open_and_measure(&e, &passed, &err) != PROA_OK) return proa_cli_fail_err(&err);
    return passed ? PROA_EXIT_OK
                  : proa_cli_fail(PROA_EXIT_FAILED, "'%s' differs from '%s'", e.common.model, e.golden);
}

static const proa_arg_table *const eval_tables[] = {&eval_args, &proa_engine_args, &proa_common_args, NULL};
const proa_command proa_cmd_eval = {
    .name = "eval",
    .summary = "measure quality: perplexity, BLEU, accuracy, difference from reference outputs",
    .examples =
        "  proa eval models/classics-10m --data book.txt\n"
        "  proa eval models/m30k-t5 --source en.gz --target de.gz --prefix \"translate English to German: \" "
        "--beams 4\n"
        "  proa eval models/polarity-bert --labels reviews.tsv\n"
        "  proa eval tests/golden/arch/llama --golden tests/golden/arch/llama\n"
        "  proa eval models/classics-10m --golden tests/golden/trained/classics-10m.json --data book.txt\n",
    .tables = eval_tables,
    .run = eval_command,
};
