/* SPDX-License-Identifier: Apache-2.0
 * backend.h - the interface of a backend: a table of functions for one kind of model, and what it may call.
 * Owner:   tables are static; states belong to the backend and are released by its close functions.
 * Threads: model functions one at a time for a model; execute one at a time for an instance, on the instance's thread,
 *          or with PROA_BACKEND_INLINE on whatever thread brings the request. */
#ifndef PROA_SERVE_BACKEND_H
#define PROA_SERVE_BACKEND_H

#include "proa/backend.h" /* the flags are the same for backends that are libraries */
#include "proto/model_config.pb-c.h"
#include "serve/infer.h"

typedef struct proa_instance proa_instance;

/* path: as it was given. */
typedef void proa_see_adapter_fn(void *arg, const char *name, const char *path);

typedef struct proa_backend {
    const char *name; /* config.pbtxt's backend; several tables may share functions */
    unsigned flags;   /* enum proa_backend_flags */
    /* Fills what the configuration leaves open (inputs, outputs, max_batch_size, ...) from the model's files: fields
     * are set in `config`, memory from `arena`. NULL: nothing to fill. */
    proa_status (*complete)(Inference__ModelConfig *config, const char *version_path, proa_arena *arena,
                            proa_err *err);
    /* A version loads: model->config is complete and checked. *state is the backend's. */
    proa_status (*model_open)(void **state, proa_served_model *model, proa_err *err);
    void (*model_close)(void *state); /* no instance is left; all requests have ended */
    proa_status (*instance_open)(void **state, void *model_state, const proa_instance *instance, proa_err *err);
    /* After the last instance_open of a version: waits for work that those have started. NULL: nothing. */
    proa_status (*instances_opened)(void *model_state, proa_err *err);
    void (*instance_close)(void *state);
    /* Each request gets its final reply, now or later (proa_infer_reply). Requests of one call have the same model and,
     * unless ragged, inputs of the same shape but for the batch dimension: their batches make one batch together. */
    void (*execute)(void *instance_state, proa_infer *const *requests, int count);
    /* Can this version answer? NULL: yes. reason is filled when not. */
    bool (*ready)(void *model_state, proa_err *reason);
    /* Appends lines of Prometheus text after Triton's families; labels is `model="m",version="1"`. NULL: none. */
    void (*metrics)(void *model_state, const char *labels, proa_buf *out);
    /* Live figures for /figures: members of a JSON object, `"tokens_per_second":12.5,...`. NULL: none. */
    void (*figures)(void *model_state, proa_buf *out);
    /* Low-rank adapters of a version, by name; any thread. NULL: it takes none. see: called for each, briefly. */
    proa_status (*load_adapter)(void *model_state, const char *name, const char *path, proa_err *err);
    proa_status (*unload_adapter)(void *model_state, const char *name, proa_err *err);
    void (*adapters)(void *model_state, proa_see_adapter_fn *see, void *arg);
} proa_backend;

/* NULL-terminated list of all tables, given to proa_server_new. */
typedef const proa_backend *const proa_backend_list[];

/* What a backend may ask of its model and instance. Strings live as long as the model. */
const Inference__ModelConfig *proa_served_model_config(const proa_served_model *model);
const char *proa_served_model_name(const proa_served_model *model);
int64_t proa_served_model_version(const proa_served_model *model);
const char *proa_served_model_path(const proa_served_model *model); /* the model's folder in the repository */
/* PATH/1; for a Hugging Face folder the folder itself */
const char *proa_served_model_version_path(const proa_served_model *model);
/* A parameter of config.pbtxt: string_value, or NULL if it is absent, empty or still the literal "${...}". */
const char *proa_served_model_parameter(const proa_served_model *model, const char *key);
/* Called in model_open: execute of this version may take long, so PROA_BACKEND_INLINE does not apply to it. */
void proa_served_model_set_long(proa_served_model *model);
/* Called in model_open of an INLINE backend: executions of more rows than this (> 0) take long and run on a thread of
 * the model; smaller ones run on the caller's thread. */
void proa_served_model_set_inline_rows(proa_served_model *model, int64_t rows);
/* model_open: inputs in the memory of a device are not copied to the host before execute. It then looks at each input's
 * proa_tensor_device, and copies what is on another device than its instance (proa_tensor_to_host). Its outputs may be
 * on a device whether it calls this or not. */
void proa_served_model_set_device_inputs(proa_served_model *model);
/* model_open: this version takes typed generations (generation.h) beside tensors. labels: outputs of its head that
 * classifies or rates an input; 0: it has none. */
void proa_served_model_set_generations(proa_served_model *model, int64_t labels);
struct proa_server *proa_served_model_server(const proa_served_model *model); /* for backends that call other models */
const proa_backend *proa_served_model_backend(const proa_served_model *model); /* its table; NULL: an ensemble */
const char *proa_instance_name(const proa_instance *instance);                 /* "m_0_1" */
int proa_instance_device(const proa_instance *instance);                       /* CUDA device, -1: CPU */
Inference__ModelInstanceGroup__Kind proa_instance_kind(const proa_instance *instance);
/* --backend-config NAME,key=value; NULL if not given. */
const char *proa_backend_setting(const struct proa_server *server, const char *backend, const char *key);
/* Calls see for each setting of a backend and for those of all backends, in the order of the command line. */
void proa_backend_each_setting(const struct proa_server *server, const char *backend,
                               void (*see)(void *arg, const char *key, const char *value), void *arg);
/* Inside `complete`, on its thread: the model, whose configuration is the one that is completed, and its server; NULL
 * elsewhere. */
const proa_served_model *proa_completing_model(void);
const struct proa_server *proa_completing_server(void);
/* The path that parameter `what` of a configuration names, in out[PROA_PATH_MAX] (proa_path_resolve from `folder`).
 * INVALID if the configuration came with a request and the path is not in a repository, unless --allow-external-paths
 * is given. Every parameter that is a path goes through here. model NULL: the one that is being completed. */
PROA_MUST_CHECK proa_status proa_served_model_resolve(char *out, const proa_served_model *model,
                                                      const char *folder, const char *what, const char *path,
                                                      proa_err *err);
/* Has a name of a file, relative to a model's folder, a component ".."? Refused unless proa_served_model_external. */
bool proa_path_climbs(const char *path);
bool proa_served_model_external(const proa_served_model *model); /* --allow-external-paths; NULL as above */

/* Times of the statistics: called by execute if it knows them; otherwise all of its time counts as compute. */
void proa_infer_input_done(proa_infer *const *requests, int count); /* compute_input ends, compute_infer begins */
void proa_infer_output_begins(proa_infer *const *requests, int count); /* compute_infer ends, compute_output begins */

/* The requests of one execution and their replies: replies[i] belongs to requests[i]. */
typedef struct proa_batch_replies {
    proa_infer *const *requests;
    proa_reply *const *replies;
    int count;
} proa_batch_replies;

/* Cuts an output of a whole batch by the shapes of an input, where the configuration has a batch_output of kind
 * BATCH_SCATTER_WITH_INPUT_SHAPE: each request's reply gets its part as output `name`, without a copy. Parts follow
 * each other in `whole`, whose bytes must be theirs in sum. */
proa_status proa_batch_output_scatter(const proa_served_model *model, const char *name,
                                      const proa_tensor *whole, const proa_batch_replies *to, proa_err *err);

/* For backends with their own queue: the request leaves the queue and is computed from now on (its time in the queue
 * ends, it no longer counts as pending). Without, it counts as queued until its final reply. */
void proa_infer_begins(proa_infer *r);
/* For models with iterative_sequence: instead of sending a final reply, execute requests to be called once more with
 * this request, in a later batch (its START control is then false). The request must not be touched after. */
void proa_infer_reschedule(proa_infer *r);

#endif
