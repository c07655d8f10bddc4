/* SPDX-License-Identifier: Apache-2.0
 * hosted.h - one version of a model that another process schedules: this process has instances of it, which execute
 * what they are given. The scheduling server describes the version (proa_hosted_describe), and the hosting process
 * opens it by that description.
 * Owner:   proa_hosted_open/close.
 * Threads: open, ready and close by one thread at a time, and so execute of each instance. Replies come from any
 *          thread.
 * Way in:  proa_hosted_open, proa_hosted_request, proa_hosted_execute. */
#ifndef PROA_SERVE_HOSTED_H
#define PROA_SERVE_HOSTED_H

#include "base/json.h"
#include "serve/server.h"

typedef struct proa_hosted proa_hosted;

/* Appends the description: a JSON object without the configuration. model: the version that is opened or completed. */
void proa_hosted_describe(proa_buf *out, const proa_served_model *model);

typedef struct proa_hosted_instance {
    const char *name;
    int device; /* CUDA device; -1: CPU */
    Inference__ModelInstanceGroup__Kind kind;
} proa_hosted_instance;

typedef struct proa_hosted_options {
    const proa_json *description; /* of proa_hosted_describe; read by open only */
    proa_str config; /* the configuration as JSON; with `complete` as it was read, else the complete one */
    bool complete;   /* only complete the configuration: no instance is opened */
    const proa_hosted_instance *instances; /* [instances_count]; read by open only */
    int instances_count;
    const proa_backend *const *backends; /* as of proa_server_options */
    proa_status (*find_backend)(const proa_backend **out, const char *directory, const char *name,
                                const char *runtime, proa_err *err);
    const proa_upstream *upstream; /* where other models are */
} proa_hosted_options;

/* What the backend cannot do with the model is the error, as at a load. */
PROA_MUST_CHECK proa_status proa_hosted_open(proa_hosted **out, const proa_hosted_options *options,
                                             proa_err *err);
void proa_hosted_close(proa_hosted *h); /* all requests have ended; NULL is fine */
/* The completed configuration as JSON; false if it is too large for `out`. */
bool proa_hosted_config(const proa_hosted *h, proa_buf *out);
bool proa_hosted_checks_ready(const proa_hosted *h); /* does its backend have a readiness check? */
/* The GPU whose tensors that instance takes as inputs; -1: none. */
int proa_hosted_device_inputs(const proa_hosted *h, int instance);
bool proa_hosted_ready(const proa_hosted *h, proa_err *reason);
/* A request of the model with one reference. The caller fills it, sets on_reply, and drops it. */
proa_infer *proa_hosted_request(const proa_hosted *h);
/* The backend takes a reference of each request until its final reply. instance: its index. */
void proa_hosted_execute(const proa_hosted *h, int instance, proa_infer *const *requests, int count);

#endif
