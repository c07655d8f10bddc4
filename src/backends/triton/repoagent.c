/* SPDX-License-Identifier: Apache-2.0
 * repoagent.c - libraries that were compiled as repository agents of Triton, in terms of the server's agents
 * (serve/server.h). */
#include "backends/triton/repoagent.h"
#include "backends/triton/triton.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "serve/config/config.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define ACTION_ENTRY   "TRITONREPOAGENT_ModelAction" /* what such a library must export */
#define NAME_MAX_BYTES 127

/* ---- a model of an agent ---- */

static void model_close(void *state)
{
    TRITONREPOAGENT_AgentModel *m = state;
    proa_err err = {0};
    if (m->initialized && m->agent->model_finalize &&
        proa_triton_status(m->agent->model_finalize(m->agent, m), &err) != PROA_OK)
        PROA_LOG(ERROR, "repository agent '%s' cannot let a model go: %s", m->agent->name, err.text);
    proa_agent_remove_acquired(m);
    TRITONSERVER_MessageDelete(m->config);
    proa_arena_release(&m->arena);
    free(m);
}

static void copy_parameters(TRITONREPOAGENT_AgentModel *m, const Inference__ModelRepositoryAgents__Agent *from)
{
    const char **names = PROA_ARENA_NEW(&m->arena, const char *, (int64_t)from->n_parameters),
               **values = PROA_ARENA_NEW(&m->arena, const char *, (int64_t)from->n_parameters);
    for (size_t i = 0; i < from->n_parameters; i++) {
        names[i] = proa_arena_strdup(&m->arena, proa_str_c(from->parameters[i]->key));
        values[i] = proa_arena_strdup(&m->arena, proa_str_c(from->parameters[i]->value));
    }
    m->names = names, m->values = values, m->count = (uint32_t)from->n_parameters;
}

static proa_status print_config(TRITONREPOAGENT_AgentModel *m, const Inference__ModelConfig *config, proa_err *err)
{
    proa_buf text;
    proa_buf_init(&text, (size_t)PROA_BACKEND_CONFIG_MAX);
    bool fits = proa_config_print_json(&text, config);
    if (fits) m->config = proa_triton_message(text.ptr, text.len);
    proa_buf_release(&text);
    return fits ? PROA_OK : PROA_FAIL(err, LIMIT, "the configuration is too long");
}

static proa_status run_action(TRITONREPOAGENT_AgentModel *m, proa_agent_action action, proa_err *err)
{
    m->action = action;
    return proa_triton_status(m->agent->action(m->agent, m, (int)action), err);
}

static void model_event(void *state, proa_agent_event event)
{
    static const proa_agent_action actions[] = {[PROA_AGENT_LOADED] = PROA_ACTION_LOAD_COMPLETE,
                                                [PROA_AGENT_LOAD_FAILED] = PROA_ACTION_LOAD_FAIL,
                                                [PROA_AGENT_UNLOADS] = PROA_ACTION_UNLOAD,
                                                [PROA_AGENT_UNLOADED] = PROA_ACTION_UNLOAD_COMPLETE};
    TRITONREPOAGENT_AgentModel *m = state;
    proa_err err = {0};
    if (run_action(m, actions[event], &err) != PROA_OK)
        PROA_LOG(ERROR, "Agent model returns error on %s: %s", proa_agent_action_name(actions[event]), err.text);
}

static proa_status begin_model(TRITONREPOAGENT_AgentModel *m, const Inference__ModelConfig *config, proa_err *err)
{
    PROA_TRY(print_config(m, config, err));
    if (m->agent->model_initialize)
        PROA_TRY(proa_triton_status(m->agent->model_initialize(m->agent, m), err));
    m->initialized = true;
    return run_action(m, PROA_ACTION_LOAD, err);
}

static proa_status before_load(void **state, const char **moved, const proa_repository_agent *self,
                               const char *folder, const Inference__ModelConfig *config,
                               const Inference__ModelRepositoryAgents__Agent *agent, proa_err *err)
{
    TRITONREPOAGENT_AgentModel *m = proa_calloc(1, sizeof *m);
    m->agent = (TRITONREPOAGENT_Agent *)(uintptr_t)self;
    proa_arena_init(&m->arena);
    const char *first = m->folder = proa_arena_strdup(&m->arena, proa_str_c(folder));
    copy_parameters(m, agent);
    proa_status status = begin_model(m, config, err);
    if (status != PROA_OK) {
        if (m->initialized) model_event(m, PROA_AGENT_LOAD_FAILED);
        model_close(m);
        return status;
    }
    *state = m;
    if (m->folder != first) *moved = m->folder;
    return PROA_OK;
}

/* ---- loading ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TRITONREPOAGENT_Agent *agents; /* under the lock; entries stay */

static proa_status check_file(const char *path, proa_err *err)
{
    proa_elf elf;
    PROA_TRY(proa_elf_open(&elf, path, err));
    proa_status status = proa_elf_exports(&elf, ACTION_ENTRY)
                             ? proa_triton_prepare(&elf, path, err)
                             : PROA_FAIL(err, INVALID,
                                         "'%s' is not a repository agent: it does not export " ACTION_ENTRY,
                                         path);
    proa_elf_close(&elf);
    return status;
}

static void agent_free(TRITONREPOAGENT_Agent *a)
{
    if (a->handle) dlclose(a->handle);
    free(a->name);
    free(a);
}

static proa_status open_agent(TRITONREPOAGENT_Agent *a, const char *path, proa_err *err)
{
    a->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!a->handle)
        return PROA_FAIL(err, INVALID, "cannot load repository agent '%s': %s", a->name, dlerror());
    *(void **)&a->initialize = dlsym(a->handle, "TRITONREPOAGENT_Initialize");
    *(void **)&a->model_initialize = dlsym(a->handle, "TRITONREPOAGENT_ModelInitialize");
    *(void **)&a->model_finalize = dlsym(a->handle, "TRITONREPOAGENT_ModelFinalize");
    *(void **)&a->action = dlsym(a->handle, ACTION_ENTRY);
    return a->initialize ? proa_triton_status(a->initialize(a), err) : PROA_OK;
}

static proa_status load_agent(const proa_repository_agent **out, const char *path, const char *name, proa_err *err)
{
    PROA_TRY(check_file(path, err));
    TRITONREPOAGENT_Agent *a = proa_calloc(1, sizeof *a);
    a->name = proa_strdup(name);
    a->agent = (proa_repository_agent){
        .name = a->name, .before_load = before_load, .event = model_event, .close = model_close};
    proa_status status = open_agent(a, path, err);
    if (status != PROA_OK) {
        agent_free(a);
        return status;
    }
    PROA_LOG(INFO, "repository agent '%s' loaded from '%s'", name, path);
    a->next = agents;
    agents = a;
    *out = &a->agent;
    return PROA_OK;
}

proa_status proa_triton_find_agent(const proa_repository_agent **out, const char *directory, const char *name,
                                   proa_err *err)
{
    char folder[PROA_PATH_MAX], path[PROA_PATH_MAX], file[NAME_MAX_BYTES + 64];
    *out = NULL;
    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) > NAME_MAX_BYTES) return PROA_OK;
    snprintf(file, sizeof file, "libtritonrepoagent_%s.so", name);
    PROA_TRY(proa_path_join(folder, directory, name, err));
    PROA_TRY(proa_path_join(path, folder, file, err));
    pthread_mutex_lock(&lock);
    const TRITONREPOAGENT_Agent *a = agents;
    while (a && strcmp(a->name, name) != 0) a = a->next;
    proa_status status = PROA_OK;
    if (a) *out = &a->agent;
    else if (proa_file_exists(path)) status = load_agent(out, path, name, err);
    pthread_mutex_unlock(&lock);
    return status;
}
