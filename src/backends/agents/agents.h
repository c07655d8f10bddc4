/* SPDX-License-Identifier: Apache-2.0
 * agents.h - the table of all repository agents that are built in.
 * Way in:  proa_repository_agents, given to proa_server_new by the program. */
#ifndef PROA_BACKENDS_AGENTS_AGENTS_H
#define PROA_BACKENDS_AGENTS_AGENTS_H

#include "serve/server.h"

extern const proa_repository_agent proa_agent_checksum; /* checksum.c */

/* NULL-terminated. */
extern const proa_repository_agent *const proa_repository_agents[];

#endif
