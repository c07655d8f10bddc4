/* SPDX-License-Identifier: Apache-2.0
 * control.h - loading and unloading a model for a client of either protocol, on a thread that may block.
 * Owner:   the caller of proa_model_control_new, until proa_model_control_start has succeeded; then it frees itself
 *          after `answer`. When the client disconnects, `client` is set to NULL: what was begun is still carried out,
 *          as in Triton.
 * Threads: built and answered on the loop's thread; the operation itself runs on one of api->loaders.
 * Way in:  proa_model_control_new, the fields, proa_model_control_add_file, proa_model_control_start. */
#ifndef PROA_API_CONTROL_H
#define PROA_API_CONTROL_H

#include "api/internal.h"

typedef struct proa_model_control {
    proa_work_item work; /* first */
    proa_api *api;
    proa_arena arena; /* of all texts */
    bool load;        /* else unload */
    bool dependents;  /* of unload: also the models that only this one needs */
    const char *model;
    const char *adapter; /* not NULL: of an adapter of the model, whose name may be "" */
    const char *path;    /* of load of an adapter */
    const char *config;  /* of load: JSON in place of the file; NULL: none */
    proa_model_file *files;
    int files_count, files_cap;
    proa_buffer *message; /* the memory that `files` point into, dropped at the end; NULL: they are in the arena */
    void *client;         /* the call or the exchange to answer; NULL: it has disconnected */
    /* On the loop, only if client is not NULL: err->status PROA_OK is success. */
    void (*answer)(struct proa_model_control *c, const proa_err *err);
    proa_err err;
} proa_model_control;

proa_model_control *proa_model_control_new(proa_api *api, bool load);
void proa_model_control_free(proa_model_control *c);
void proa_model_control_add_file(proa_model_control *c, proa_str path,
                                 proa_str bytes); /* of a load; both slices are kept */
/* UNAVAILABLE when too many operations wait; then c is still the caller's. */
PROA_MUST_CHECK proa_status proa_model_control_start(proa_model_control *c, proa_loop *loop, proa_err *err);

#endif
