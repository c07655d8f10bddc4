/* SPDX-License-Identifier: Apache-2.0
 * cmd_rank.c - `proa rank`: the process of one rank. It has no options: rank 0, which starts it, sends all it needs. */
#include "cli/commands.h"
#include "engine/ranks/follow.h"

int proa_rank_command(void)
{
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_rank_follow(&err);
    if (status == PROA_UNSUPPORTED) return proa_cli_fail(PROA_EXIT_USAGE, "%s", err.text);
    return status == PROA_OK ? PROA_EXIT_OK : PROA_EXIT_FAILED; /* rank 0 has the reason, and reports it */
}
