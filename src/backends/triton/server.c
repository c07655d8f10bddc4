/* SPDX-License-Identifier: Apache-2.0
 * server.c - what a backend of Triton may ask of the server: which models are ready, how they respond, and to load and
 * unload them. */
#include "backends/triton/abi.h"

#include "base/alloc.h"
#include "serve/server.h"
#include <string.h>

enum { ONE_TO_ONE = 1, DECOUPLED = 2 };

/* A model that is not there is not ready, which is no error. */
TRITONSERVER_Error *TRITONSERVER_ServerModelIsReady(proa_server *server, const char *name, int64_t version,
                                                    bool *ready)
{
    proa_err ignored = {0};
    *ready = proa_server_model_ready(server, name, version, &ignored) == PROA_OK;
    return NULL;
}

/* *more is not used by any flag. */
TRITONSERVER_Error *TRITONSERVER_ServerModelTransactionProperties(proa_server *server, const char *name,
                                                                  int64_t version, uint32_t *flags, void **more)
{
    proa_err err = {0};
    bool decoupled;
    if (more) *more = NULL;
    if (proa_server_model_decoupled(server, name, version, &decoupled, &err) != PROA_OK)
        return proa_triton_error_of(&err);
    *flags = decoupled ? DECOUPLED : ONE_TO_ONE;
    return NULL;
}

/* "config" is the configuration as JSON; a parameter of bytes, "file:PATH", brings a file. */
TRITONSERVER_Error *TRITONSERVER_ServerLoadModelWithParameters(proa_server *server, const char *name,
                                                               const TRITONSERVER_Parameter **parameters,
                                                               uint64_t count)
{
    proa_model_file *files = proa_calloc(count ? (size_t)count : 1, sizeof *files);
    TRITONSERVER_Error *error = NULL;
    const char *config = NULL;
    int files_count = 0;
    proa_err err = {0};
    for (uint64_t i = 0; i < count && !error; i++) {
        const TRITONSERVER_Parameter *p = parameters[i];
        if (p->type == PROA_TRITON_BYTES)
            files[files_count++] = (proa_model_file){proa_str_c(p->name), {p->value.bytes, p->bytes}};
        else if (p->type == PROA_TRITON_STRING && strcmp(p->name, "config") == 0) config = p->text;
        else
            error = proa_triton_error(PROA_TRITON_INVALID_ARG,
                                      "unexpected parameter '%s' of a load of model '%s'", p->name, name);
    }
    if (!error && proa_server_load(server, name, config, files, files_count, &err) != PROA_OK)
        error = proa_triton_error_of(&err);
    free(files);
    return error;
}

static TRITONSERVER_Error *unload_model(proa_server *server, const char *name, bool dependents)
{
    proa_err err = {0};
    return proa_server_unload(server, name, dependents, &err) == PROA_OK ? NULL : proa_triton_error_of(&err);
}

TRITONSERVER_Error *TRITONSERVER_ServerUnloadModel(proa_server *server, const char *name)
{
    return unload_model(server, name, false);
}

TRITONSERVER_Error *TRITONSERVER_ServerUnloadModelAndDependents(proa_server *server, const char *name)
{
    return unload_model(server, name, true);
}
