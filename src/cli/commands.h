/* SPDX-License-Identifier: Apache-2.0
 * commands.h - the commands that main.c dispatches to, one cmd_NAME.c each. */
#ifndef PROA_CLI_COMMANDS_H
#define PROA_CLI_COMMANDS_H

#include "cli/args.h"

extern const proa_command proa_cmd_run, proa_cmd_serve, proa_cmd_client, proa_cmd_eval, proa_cmd_bench,
    proa_cmd_explain, proa_cmd_inspect, proa_cmd_convert, proa_cmd_tune, proa_cmd_pull, proa_cmd_chat,
    proa_cmd_top, proa_cmd_version;

/* `proa help models`, `proa help heads`: argv after these words; returns the exit status. */
int proa_models_help_command(int argc, char **argv);
int proa_heads_help_command(int argc, char **argv);
/* `proa rank`: one rank of a model whose rank 0 is the process that has started this one (comm/child.h). */
int proa_rank_command(void);
/* The help of commands as JSON, for the manual pages and the documentation (tools/docs). Returns the exit status. */
int proa_help_json(const proa_command *const *commands, size_t count);

#endif
