/* SPDX-License-Identifier: Apache-2.0
 * repoagent.h - repository agents that were compiled for Triton: the objects behind the handles that they get.
 * Owner:   an agent stays until the program ends. A model of it lives from the load until nothing is left of the model,
 *          and so does the folder that it has acquired. */
#ifndef PROA_BACKENDS_TRITON_REPOAGENT_H
#define PROA_BACKENDS_TRITON_REPOAGENT_H

#include "backends/triton/abi.h"
#include "base/arena.h"
#include "serve/server.h"

#define PROA_ACTION_LIST(X) X(LOAD) X(LOAD_COMPLETE) X(LOAD_FAIL) X(UNLOAD) X(UNLOAD_COMPLETE)
typedef enum proa_agent_action {
#define PROA_ACTION_ENUM(name) PROA_ACTION_##name,
    PROA_ACTION_LIST(PROA_ACTION_ENUM)
#undef PROA_ACTION_ENUM
} proa_agent_action;

struct TRITONREPOAGENT_Agent {
    proa_repository_agent agent; /* the first member: agent_of */
    char *name;
    void *handle; /* of dlopen */
    void *state;  /* the library's */
    proa_triton_agent_fn *initialize;
    proa_triton_agent_model_fn *model_initialize, *model_finalize;
    proa_triton_action_fn *action;
    TRITONREPOAGENT_Agent *next;
};

struct TRITONREPOAGENT_AgentModel {
    TRITONREPOAGENT_Agent *agent;
    proa_arena arena;
    void *state; /* the library's */
    proa_agent_action action;
    bool initialized;
    const char *folder;       /* where the model is: in `arena` */
    const char *const *names; /* of parameters, as values; [count] */
    const char *const *values;
    uint32_t count;
    TRITONSERVER_Message *config;
    char *acquired; /* a folder that was made for the library; NULL: none */
};

/* ---- agent_calls.c ---- */

const char *proa_agent_action_name(proa_agent_action action); /* as in Triton's header */
void proa_agent_remove_acquired(TRITONREPOAGENT_AgentModel *m); /* the folder that was made for it, if there is one */

#endif
