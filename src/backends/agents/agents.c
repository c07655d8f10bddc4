/* SPDX-License-Identifier: Apache-2.0
 * agents.c - the table of all built-in repository agents. */
#include "backends/agents/agents.h"

const proa_repository_agent *const proa_repository_agents[] = {&proa_agent_checksum, NULL};
