/* SPDX-License-Identifier: Apache-2.0
 * agents.c - the repository agents that a model's configuration names: before it loads, and until nothing of it is
 * left. The order of calls is Triton's: that of the configuration before a load and before an unload, the reverse one
 * after them.
 * Owner:   a source holds what its agents know of it; it ends with the last reference to the source. */
#include "base/alloc.h"
#include "serve/core.h"
#include <string.h>

typedef struct agent_run {
    const proa_repository_agent *agent;
    void *state;
} agent_run;

typedef struct proa_agent_runs {
    bool loaded, unloads; /* which events they have received */
    int count;
    agent_run runs[]; /* of those that have agreed to the load */
} proa_agent_runs;

/* ---- events ---- */

static void tell_agents(const proa_agent_runs *a, proa_agent_event event)
{
    for (int i = 0; i < a->count; i++) {
        const agent_run *run = &a->runs[event == PROA_AGENT_UNLOADS ? i : a->count - 1 - i];
        if (run->agent->event) run->agent->event(run->state, event);
    }
}

void proa_agents_unload_begins(proa_source *source)
{
    proa_agent_runs *a = source->agents;
    if (!a || !a->loaded || a->unloads) return;
    a->unloads = true;
    tell_agents(a, PROA_AGENT_UNLOADS);
}

void proa_agents_end(proa_source *source)
{
    proa_agent_runs *a = source->agents;
    if (!a) return;
    proa_agents_unload_begins(source); /* if no version of it has served */
    if (a->loaded) tell_agents(a, PROA_AGENT_UNLOADED);
    for (int i = 0; i < a->count; i++)
        if (a->runs[i].agent->close) a->runs[i].agent->close(a->runs[i].state);
    free(a);
    source->agents = NULL;
}

void proa_agents_load_ended(proa_source *source, bool loaded)
{
    proa_agent_runs *a = source->agents;
    if (!a || a->loaded) return;
    a->loaded = loaded;
    tell_agents(a, loaded ? PROA_AGENT_LOADED : PROA_AGENT_LOAD_FAILED);
    if (!loaded) proa_agents_end(source);
}

/* ---- before a load ---- */

static proa_status find_agent(const proa_repository_agent **out, const proa_server *s, const char *name,
                              proa_err *err)
{
    const proa_server_options *o = &s->options;
    const proa_repository_agent *const *built_in = o->agents;
    *out = NULL;
    if (o->find_agent && o->repoagent_directory)
        PROA_TRY(o->find_agent(out, o->repoagent_directory, name, err));
    if (*out) return PROA_OK;
    while (built_in && *built_in && strcmp((*built_in)->name, name) != 0) built_in++;
    *out = built_in ? *built_in : NULL;
    return *out ? PROA_OK : PROA_FAIL(err, INVALID, "unable to find repository agent '%s'", name);
}

/* Asks the agents one after the other. *folder: the model's, then where the last one that moved it has put it. */
static proa_status ask_all(const proa_server *s, const proa_source *source, const char **folder, proa_err *err)
{
    const Inference__ModelRepositoryAgents *wanted = source->config->model_repository_agents;
    for (size_t i = 0; i < wanted->n_agents; i++) {
        agent_run run = {0};
        const char *moved = NULL;
        PROA_TRY(find_agent(&run.agent, s, wanted->agents[i]->name, err));
        PROA_TRY(run.agent->before_load(&run.state, &moved, run.agent, *folder, source->config,
                                        wanted->agents[i], err));
        source->agents->runs[source->agents->count++] = run;
        if (moved) *folder = moved;
    }
    return PROA_OK;
}

proa_status proa_agents_ask(const char **folder, const proa_server *s, proa_source *source, proa_err *err)
{
    const Inference__ModelRepositoryAgents *wanted = source->config->model_repository_agents;
    proa_agents_end(source); /* of an earlier load */
    *folder = source->path;
    if (!wanted || wanted->n_agents == 0) return PROA_OK;
    if (source->origin) *folder = source->origin;
    source->agents = proa_calloc(1, sizeof(proa_agent_runs) + wanted->n_agents * sizeof(agent_run));
    return ask_all(s, source, folder, err);
}
