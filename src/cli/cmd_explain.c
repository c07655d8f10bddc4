/* SPDX-License-Identifier: Apache-2.0
 * cmd_explain.c - `proa explain`: prints the program, the memory plan and the time floor of a model. */
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "engine/explain.h"

typedef struct explain_options {
    proa_common common; /* first: see session.h */
    double bandwidth;
    bool no_measure;
} explain_options;

static const proa_arg explain_rows[] = {
    PROA_MODEL_ARG,
    {"bandwidth", PROA_ARG_REAL, offsetof(explain_options, bandwidth), 0, 1000000, "GB/s", "0",
     "read bandwidth for the floor; 0: measure it"},
    {"no-measure", PROA_ARG_FLAG, offsetof(explain_options, no_measure), 0, 0, NULL, NULL,
     "no floor: read nothing but the model's files"},
};
static const proa_arg_table explain_args = PROA_ARG_TABLE("options", explain_rows);

static proa_status write_text(proa_buf *text, proa_err *err)
{
    proa_output out;
    PROA_TRY(proa_output_open(&out, NULL, err));
    proa_output_bytes(&out, text->ptr, text->len);
    if (text->len && text->ptr[text->len - 1] != '\n') proa_output_str(&out, "\n");
    return proa_output_close(&out, err);
}

static proa_status explain_model(const explain_options *o, proa_err *err)
{
    proa_engine_options options;
    double bandwidth = o->bandwidth * 1e9;
    PROA_TRY(proa_session_options(&options, &o->common, err));
    proa_buf text;
    proa_buf_init(&text, (size_t)(64 * PROA_MIB));
    /* first without a measurement, which takes a second, so that errors in the model are reported at once */
    proa_status status = proa_explain(&text, o->common.model, &options, bandwidth, o->common.json, err);
    if (status == PROA_OK && bandwidth == 0 && !o->no_measure) {
        proa_buf_clear(&text);
        bandwidth = proa_session_bandwidth(&o->common);
        status = proa_explain(&text, o->common.model, &options, bandwidth, o->common.json, err);
    }
    if (status == PROA_OK) status = write_text(&text, err);
    proa_buf_release(&text);
    return status;
}

static int explain_command(const proa_command *self, int argc, char **argv)
{
    explain_options o = {.bandwidth = 0};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return explain_model(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const explain_tables[] = {&explain_args, &proa_engine_args, &proa_common_args, NULL};
const proa_command proa_cmd_explain = {
    .name = "explain",
    .summary = "show how a model runs: its program with shapes, its memory plan, the least time per step on "
               "this machine",
    .examples = "  proa explain models/classics-10m\n  proa explain models/m30k-t5 --dtype bf16 --json\n",
    .tables = explain_tables,
    .run = explain_command,
};
