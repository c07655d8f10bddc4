/* SPDX-License-Identifier: Apache-2.0
 * agents.c - the repository agents that a model's configuration names, before it loads. */
#include "serve/core.h"
#include <string.h>

static const proa_repository_agent *find_agent(const proa_server *s, const char *name)
{
    const proa_repository_agent *const *agents = s->options.agents;
    while (agents && *agents && strcmp((*agents)->name, name) != 0) agents++;
    return agents ? *agents : NULL;
}

proa_status proa_source_check_agents(const proa_server *s, const proa_source *source, proa_err *err)
{
    const Inference__ModelRepositoryAgents *wanted = source->config->model_repository_agents;
    for (size_t i = 0; wanted && i < wanted->n_agents; i++) {
        const proa_repository_agent *agent = find_agent(s, wanted->agents[i]->name);
        if (!agent)
            return PROA_FAIL(err, INVALID, "unable to find repository agent '%s'", wanted->agents[i]->name);
        PROA_TRY(agent->before_load(source->path, wanted->agents[i], err));
    }
    return PROA_OK;
}
