/* SPDX-License-Identifier: Apache-2.0
 * triton_agent.c - a repository agent of Triton for tests, written against its binary interface without its headers.
 * Parameters: "log": a file to which it appends a line for each call; "move": it loads from a copy of the model, where
 * the file 1/sealed is named 1/opened; "fail": the action that returns an error; "late": an action in which it tries
 * to move the model. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct error error;
typedef struct object object; /* an agent, a model of it, a message */

#define EXPORT __attribute__((visibility("default")))
extern error *TRITONSERVER_ErrorNew(int code, const char *text);
extern void TRITONSERVER_ErrorDelete(error *e);
extern const char *TRITONSERVER_ErrorMessage(error *e);
extern error *TRITONSERVER_MessageSerializeToJson(object *message, const char **json, size_t *bytes);
extern error *TRITONSERVER_MessageDelete(object *message);
extern error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor);
extern error *TRITONREPOAGENT_ModelRepositoryLocation(object *agent, object *model, int *type,
                                                      const char **location);
extern error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(object *agent, object *model, int type,
                                                             const char **location);
extern error *TRITONREPOAGENT_ModelRepositoryLocationRelease(object *agent, object *model, const char *location);
extern error *TRITONREPOAGENT_ModelRepositoryUpdate(object *agent, object *model, int type, const char *location);
extern error *TRITONREPOAGENT_ModelParameterCount(object *agent, object *model, uint32_t *count);
extern error *TRITONREPOAGENT_ModelParameter(object *agent, object *model, uint32_t i, const char **name,
                                             const char **value);
extern error *TRITONREPOAGENT_ModelConfig(object *agent, object *model, uint32_t version, object **message);
extern error *TRITONREPOAGENT_ModelState(object *model, void **state);
extern error *TRITONREPOAGENT_ModelSetState(object *model, void *state);
extern error *TRITONREPOAGENT_State(object *agent, void **state);
extern error *TRITONREPOAGENT_SetState(object *agent, void *state);

EXPORT error *TRITONREPOAGENT_Initialize(object *agent);
EXPORT error *TRITONREPOAGENT_ModelInitialize(object *agent, object *model);
EXPORT error *TRITONREPOAGENT_ModelFinalize(object *agent, object *model);
EXPORT error *TRITONREPOAGENT_ModelAction(object *agent, object *model, int action);

static const char *const actions[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"};

/* "" if it is not given; an index that is out of range must be an error. */
static const char *parameter(object *agent, object *model, const char *wanted)
{
    const char *name, *value;
    uint32_t count = 0;
    TRITONREPOAGENT_ModelParameterCount(agent, model, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value)) return "";
        if (strcmp(name, wanted) == 0) return value;
    }
    error *e = TRITONREPOAGENT_ModelParameter(agent, model, count, &name, &value);
    if (!e) abort();
    TRITONSERVER_ErrorDelete(e);
    return "";
}

static void write_line(object *agent, object *model, const char *what, const char *more)
{
    FILE *log = fopen(parameter(agent, model, "log"), "a");
    if (!log) return;
    fprintf(log, "%s %s%s%s\n", parameter(agent, model, "name"), what, *more ? " " : "", more);
    fclose(log);
}

/* Deletes an error and returns its text, until the next one. */
static const char *text_of(error *e)
{
    static char text[512];
    snprintf(text, sizeof text, "%s", e ? TRITONSERVER_ErrorMessage(e) : "done");
    if (e) TRITONSERVER_ErrorDelete(e);
    return text;
}

error *TRITONREPOAGENT_Initialize(object *agent)
{
    static int models;
    uint32_t major = 9, minor = 9;
    TRITONREPOAGENT_ApiVersion(&major, &minor);
    if (major != 0 || minor < 1) return TRITONSERVER_ErrorNew(3, "another version");
    return TRITONREPOAGENT_SetState(agent, &models);
}

error *TRITONREPOAGENT_ModelInitialize(object *agent, object *model)
{
    int *models;
    TRITONREPOAGENT_State(agent, (void **)&models);
    ++*models;
    char *state = malloc(16);
    snprintf(state, 16, "model");
    write_line(agent, model, "initialize", "");
    return TRITONREPOAGENT_ModelSetState(model, state);
}

error *TRITONREPOAGENT_ModelFinalize(object *agent, object *model)
{
    char *state;
    TRITONREPOAGENT_ModelState(model, (void **)&state);
    write_line(agent, model, "finalize", state);
    free(state);
    return NULL;
}

/* The model in a folder of its own. */
static error *move_model(object *agent, object *model, const char *from)
{
    char command[4096];
    const char *to, *again;
    error *e = TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, model, 0, &to);
    if (!e) e = TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, model, 0, &again);
    if (e) return e;
    write_line(agent, model, "acquired again", strcmp(to, again) == 0 ? "the same" : "another");
    snprintf(command, sizeof command, "cp -r '%s'/. '%s' && mv '%s/1/sealed' '%s/1/opened'", from, to, to, to);
    if (system(command) != 0) return TRITONSERVER_ErrorNew(1, "cannot copy the model");
    return TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, 0, to);
}

static error *on_load(object *agent, object *model)
{
    int type = -1;
    const char *from, *json;
    size_t bytes = 0;
    object *config;
    error *e = TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &from);
    if (!e) e = TRITONREPOAGENT_ModelConfig(agent, model, 1, &config);
    if (e) return e;
    TRITONSERVER_MessageSerializeToJson(config, &json, &bytes);
    write_line(agent, model, "config", bytes > 2 && json[0] == '{' ? "an object" : "nothing");
    TRITONSERVER_MessageDelete(config);
    write_line(agent, model, "config of version 2",
               text_of(TRITONREPOAGENT_ModelConfig(agent, model, 2, &config)));
    write_line(agent, model, "release of nothing",
               text_of(TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, "/nowhere")));
    return *parameter(agent, model, "move") ? move_model(agent, model, from) : NULL;
}

error *TRITONREPOAGENT_ModelAction(object *agent, object *model, int action)
{
    const char *name = action >= 0 && action < 5 ? actions[action] : "?";
    write_line(agent, model, name, "");
    if (strcmp(parameter(agent, model, "fail"), name) == 0)
        return TRITONSERVER_ErrorNew(3, "the agent refuses");
    if (strcmp(parameter(agent, model, "late"), name) == 0)
        write_line(agent, model, "late", text_of(TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, 0, "/tmp")));
    return action == 0 ? on_load(agent, model) : NULL;
}
