/* SPDX-License-Identifier: Apache-2.0
 * agent_calls.c - the functions that a repository agent calls (TRITONREPOAGENT_*). */
#include "backends/triton/repoagent.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include <errno.h>
#include <string.h>

enum { API_MAJOR = 0, API_MINOR = 1 };
enum { IN_FILES = 0 }; /* TRITONREPOAGENT_ARTIFACT_FILESYSTEM: repositories in the cloud have been fetched */

const char *proa_agent_action_name(proa_agent_action action)
{
    static const char *const names[] = {
#define ACTION_NAME(name) "TRITONREPOAGENT_ACTION_" #name,
        PROA_ACTION_LIST(ACTION_NAME)
#undef ACTION_NAME
    };
    return names[action];
}

void proa_agent_remove_acquired(TRITONREPOAGENT_AgentModel *m)
{
    if (m->acquired) proa_dir_remove(m->acquired);
    free(m->acquired);
    m->acquired = NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor)
{
    *major = API_MAJOR, *minor = API_MINOR;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(TRITONREPOAGENT_Agent *agent,
                                                            TRITONREPOAGENT_AgentModel *model, int *type,
                                                            const char **location)
{
    (void)agent;
    *type = IN_FILES;
    *location = model->folder;
    return NULL;
}

static TRITONSERVER_Error *refuse_type(int type)
{
    return proa_triton_error(PROA_TRITON_UNSUPPORTED,
                             "artifact type %d is not supported, only TRITONREPOAGENT_ARTIFACT_FILESYSTEM",
                             type);
}

/* An agent that acquires again gets the same folder, as in Triton. */
TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(TRITONREPOAGENT_Agent *agent,
                                                                   TRITONREPOAGENT_AgentModel *model,
                                                                   int type, const char **location)
{
    const char *tmp = getenv("TMPDIR");
    char folder[PROA_PATH_MAX];
    (void)agent;
    if (type != IN_FILES) return refuse_type(type);
    if (!model->acquired) {
        snprintf(folder, sizeof folder, "%s/proa-agent-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        if (!mkdtemp(folder))
            return proa_triton_error(PROA_TRITON_INTERNAL, "cannot make a folder for an agent: %s",
                                     strerror(errno));
        model->acquired = proa_strdup(folder);
    }
    *location = model->acquired;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(TRITONREPOAGENT_Agent *agent,
                                                                   TRITONREPOAGENT_AgentModel *model,
                                                                   const char *location)
{
    (void)agent;
    if (!model->acquired)
        return proa_triton_error(PROA_TRITON_UNAVAILABLE, "No mutable location to be deleted");
    if (strcmp(model->acquired, location) != 0)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "location '%s' has not been acquired", location);
    proa_agent_remove_acquired(model);
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(TRITONREPOAGENT_Agent *agent,
                                                          TRITONREPOAGENT_AgentModel *model, int type,
                                                          const char *location)
{
    (void)agent;
    if (type != IN_FILES) return refuse_type(type);
    if (model->action != PROA_ACTION_LOAD)
        return proa_triton_error(
            PROA_TRITON_INVALID_ARG,
            "location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is %s",
            proa_agent_action_name(model->action));
    model->folder = proa_arena_strdup(&model->arena, proa_str_c(location));
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelParameterCount(TRITONREPOAGENT_Agent *agent,
                                                        TRITONREPOAGENT_AgentModel *model, uint32_t *count)
{
    (void)agent;
    *count = model->count;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelParameter(TRITONREPOAGENT_Agent *agent,
                                                   TRITONREPOAGENT_AgentModel *model, uint32_t index,
                                                   const char **name, const char **value)
{
    (void)agent;
    if (index >= model->count)
        return proa_triton_error(PROA_TRITON_INVALID_ARG, "index out of range for model parameters");
    *name = model->names[index];
    *value = model->values[index];
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelConfig(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model,
                                                uint32_t config_version, TRITONSERVER_Message **config)
{
    (void)agent;
    if (config_version != 1)
        return proa_triton_error(PROA_TRITON_UNSUPPORTED,
                                 "model configuration version %u not supported, supported versions are: 1",
                                 config_version);
    *config = proa_triton_message(model->config->json, model->config->bytes);
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state)
{
    *state = model->state;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state)
{
    model->state = state;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent, void **state)
{
    *state = agent->state;
    return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent, void *state)
{
    agent->state = state;
    return NULL;
}
