/* SPDX-License-Identifier: Apache-2.0
 * server.h - the server core: a repository of models and inference on them. It knows no HTTP and no transformer.
 *
 *     proa_server_options o = {.repositories = paths, .repositories_count = 1, .backends = proa_backends};
 *     proa_server_new(&server, &o, &err);      // loads the models of the control mode
 *     proa_server_infer(server, request, &err);
 *     proa_server_stop(server, 30000);         // drains
 *     proa_server_free(server);
 *
 * Threads: all functions from any thread, but new, stop and free.
 * Errors:  texts and codes are Triton's (reference: triton-inference-server/core). */
#ifndef PROA_SERVE_SERVER_H
#define PROA_SERVE_SERVER_H

#include "base/log.h"
#include "proto/grpc_service.pb-c.h"
#include "serve/backend.h"

typedef struct proa_server proa_server;

typedef enum proa_control { PROA_CONTROL_NONE, PROA_CONTROL_POLL, PROA_CONTROL_EXPLICIT } proa_control;

typedef struct proa_setting { /* --backend-config python,key=value; --set name=value with backend NULL */
    const char *backend, *key, *value;
} proa_setting;

/* Repositories that are not on this machine, which these functions keep as folders of it (hub/cloud/cloud.h). */
typedef struct proa_remote_ops {
    bool (*is_address)(const char *text);
    /* Opens and lists; close it. */
    proa_status (*open)(void **remote, const char *address, void *arg, proa_err *err);
    void (*close)(void *remote);
    const char *(*folder)(void *remote); /* of folders or links to them, which have the models' names */
    const char *(*single)(void *remote); /* the address is one model, of this name; NULL: a repository */
    /* Brings the names of the models up to date. After a failure all is as before. */
    proa_status (*list)(void *remote, proa_err *err);
    /* Brings the files of a model up to date, as the last list saw them or, with `relist`, as they are now. */
    proa_status (*fetch)(void *remote, const char *model, bool relist, proa_err *err);
} proa_remote_ops;

/* What has become of a model that an agent has seen. */
typedef enum proa_agent_event {
    PROA_AGENT_LOADED,      /* all its versions serve */
    PROA_AGENT_LOAD_FAILED, /* what served before goes on serving */
    PROA_AGENT_UNLOADS,     /* no request is left, and its last version is about to be closed */
    PROA_AGENT_UNLOADED
} proa_agent_event;

/* Looks at a model before it loads, as model_repository_agents of its configuration asks. Functions are called by any
 * thread, for one model one at a time. */
typedef struct proa_repository_agent proa_repository_agent;
struct proa_repository_agent {
    const char *name;
    /* folder: the model's, with its versions. A failure refuses the load. *state: for the functions below, NULL before.
     * *moved, NULL before: the folder to load from in place of this one; the agent's until `close`. */
    proa_status (*before_load)(void **state, const char **moved, const proa_repository_agent *self,
                               const char *folder, const Inference__ModelConfig *config,
                               const Inference__ModelRepositoryAgents__Agent *agent, proa_err *err);
    void (*event)(void *state, proa_agent_event event); /* NULL: it need not know */
    void (*close)(void *state); /* nothing of the model is left. NULL: nothing to do */
};

typedef struct proa_model_file { /* a load that brings its files: "file:1/model.bin" */
    proa_str path, bytes;
} proa_model_file;

/* Where the models are that a process does not host itself (hosted.h): the server that has started it. All functions
 * from any thread; errors are those of the functions of that server. */
typedef struct proa_upstream {
    proa_status (*find)(const char *name, int64_t version, bool *decoupled, proa_err *err);
    proa_status (*infer)(proa_infer *r, proa_err *err); /* as proa_server_infer */
    proa_status (*ready)(const char *name, int64_t version, proa_err *err);
    proa_status (*load)(const char *name, const char *config_json, const proa_model_file *files,
                        int files_count, proa_err *err);
    proa_status (*unload)(const char *name, bool dependents, proa_err *err);
} proa_upstream;

typedef struct proa_server_options {
    const proa_upstream *upstream; /* of a process that hosts one model; NULL: this server has the models */
    const char *id;                /* "triton" */
    /* Model repositories, or folders that are a model themselves (a Hugging Face folder). */
    const char *const *repositories;
    int repositories_count;
    const proa_remote_ops *remote;              /* for addresses among them; NULL: there are none */
    void *remote_arg;                           /* for its open */
    const proa_backend *const *backends;        /* NULL-terminated */
    const proa_repository_agent *const *agents; /* NULL-terminated; NULL: there are none */
    /* Finds a backend that is not one of these, in backend_directory (or NULL) or beside the program; *out NULL: there
     * is none of this name. `runtime`: the file, where the configuration names one, else "". NULL: only those above. */
    proa_status (*find_backend)(const proa_backend **out, const char *directory, const char *name,
                                const char *runtime, proa_err *err);
    /* Finds an agent in repoagent_directory, before those above; *out NULL: there is none of this name. NULL: only
     * those above. */
    proa_status (*find_agent)(const proa_repository_agent **out, const char *directory, const char *name,
                              proa_err *err);
    /* Opens memory of a GPU that another process has exported: a buffer of `bytes` bytes at the beginning of what the
     * handle names. UNSUPPORTED: there are no GPUs. NULL: the same. */
    proa_status (*open_cuda)(proa_buffer **out, int64_t device, proa_str handle, uint64_t bytes, proa_err *err);
    const char *backend_directory;   /* --backend-directory; NULL: none */
    const char *repoagent_directory; /* --repoagent-directory; NULL: none */
    proa_control control;
    const char *const *load_models; /* explicit: at start; "*" alone: all */
    int load_models_count;
    int poll_secs;      /* 15 */
    bool exit_on_error; /* proa_server_new fails if a model fails to load */
    bool no_strict_readiness;
    bool no_auto_complete;
    bool allow_external_paths; /* configurations of load requests may name paths outside of the repositories */
    bool namespacing;          /* unknown models are INVALID instead of NOT_FOUND */
    const char *config_name;   /* --model-config-name */
    int load_threads, load_retries; /* 4, 0 */
    const proa_setting *settings;   /* --backend-config */
    int settings_count;
    const proa_setting *fills; /* --set: ${key} of config.pbtxt becomes value */
    int fills_count;
    int64_t cache_bytes;               /* response cache; 0: none */
    bool rate_limit;                   /* --rate-limit=execution_count */
    const char *const *rate_resources; /* "R:count[:device]" */
    int rate_resources_count;
    bool histogram_latencies, summary_latencies, no_counter_latencies; /* --metrics-config */
    bool no_gpu_metrics;
    int64_t metrics_interval_ms; /* how often GPUs are read; 0: 2,000 */
} proa_server_options;

/* Options are copied. On failure *out is NULL. Models that fail to load are a failure with exit_on_error only (INTERNAL
 * "failed to load all models: 'NAME': why"); without, the others serve and the index says why these do not. */
PROA_MUST_CHECK proa_status proa_server_new(proa_server **out, const proa_server_options *options, proa_err *err);
/* Refuses new requests, waits for those in flight, unloads. False if timeout_ms passed first. */
bool proa_server_stop(proa_server *server, int64_t timeout_ms);
void proa_server_free(proa_server *server);

proa_control proa_server_control(const proa_server *server);
bool proa_server_live(const proa_server *server);
/* UNAVAILABLE "Server exiting", or not ready (strict: every version that should be ready is, and its backend says
 * so). */
proa_status proa_server_ready(proa_server *server, proa_err *err);
/* OK: ready. NOT_FOUND, UNAVAILABLE with the texts of proa_server_infer; INVALID "Model version not ready". */
proa_status proa_server_model_ready(proa_server *server, const char *name, int64_t version, proa_err *err);

/* Finds the version that the request names and holds it in r->model, unless r->model is one already. For a protocol
 * that must look at the model before it sends the request; the version is then looked up once. */
PROA_MUST_CHECK proa_status proa_server_find_model(proa_server *server, proa_infer *r, proa_err *err);
/* proa_server_find_model; then checks the request against the model's configuration and queues it. On failure nothing
 * was queued and no reply will come. */
PROA_MUST_CHECK proa_status proa_server_infer(proa_server *server, proa_infer *r, proa_err *err);

/* A held version: config stays valid until proa_served_model_drop. */
proa_status proa_server_find(proa_server *server, const char *name, int64_t version, proa_served_model **out,
                             proa_err *err);
/* *decoupled: whether the model sends any number of replies. The errors are those of proa_server_find. */
PROA_MUST_CHECK proa_status proa_server_model_decoupled(proa_server *server, const char *name,
                                                        int64_t version, bool *decoupled, proa_err *err);
/* The same for a version. */
bool proa_served_model_decoupled(const proa_served_model *model);
/* Whether unary calls, which have room for one reply, are allowed. */
bool proa_served_model_unary(const proa_served_model *model);
proa_served_model *proa_served_model_hold(proa_served_model *model); /* once more; returns it */
void proa_served_model_drop(proa_served_model *model);
/* Whether a request may be a typed generation. Not if replies are cached: the cache keeps tensors. */
bool proa_served_model_takes_generation(const proa_served_model *model);
/* Outputs of the head that classifies or rates an input, if the model takes typed generations; 0: no such head. */
int64_t proa_served_model_labels(const proa_served_model *model);
/* Low-rank adapters of a version: calls see for each. It must be brief. */
void proa_served_model_adapters(proa_served_model *model,
                                void (*see)(void *arg, const char *name, const char *path), void *arg);
/* A version with an adapter of that name, held; NULL: none has one. */
proa_served_model *proa_server_find_adapter(proa_server *server, const char *adapter);
/* The version that is served as NAME from a hub's ORG/NAME in the cache of Hugging Face, held; NULL: none. repo:
 * "ORG/NAME". */
proa_served_model *proa_server_find_repo(proa_server *server, const char *repo);
/* Loads an adapter from a folder into the newest version of a model; blocks. model "": the only one that takes
 * adapters. Errors of proa_server_find, of the engine; UNSUPPORTED if the model takes none; INVALID if it must be
 * named. */
PROA_MUST_CHECK proa_status proa_server_load_adapter(proa_server *server, const char *model,
                                                     const char *adapter, const char *path, proa_err *err);
/* model "": the one that has it. Requests that use it go on. */
PROA_MUST_CHECK proa_status proa_server_unload_adapter(proa_server *server, const char *model,
                                                       const char *adapter, proa_err *err);
/* The label of class `index` of an output, or NULL (label_filename). */
const char *proa_served_model_label(const proa_served_model *model, const char *output, int64_t index);
/* "3", "-1" for "" ; INVALID with Triton's text. */
proa_status proa_version_parse(int64_t *version, proa_str text, proa_err *err);

/* What the protocols report, as their messages; all memory from the arena. HTTP and gRPC print the same messages. */
void proa_server_metadata(proa_server *server, Inference__ServerMetadataResponse **out, proa_arena *arena);
proa_status proa_server_model_metadata(proa_server *server, const char *name, int64_t version,
                                       Inference__ModelMetadataResponse **out, proa_arena *arena, proa_err *err);
proa_status proa_server_model_config(proa_server *server, const char *name, int64_t version,
                                     Inference__ModelConfigResponse **out, proa_arena *arena, proa_err *err);
/* name "" : all models. */
proa_status proa_server_statistics(proa_server *server, const char *name, int64_t version,
                                   Inference__ModelStatisticsResponse **out, proa_arena *arena, proa_err *err);
proa_status proa_server_index(proa_server *server, bool ready_only, Inference__RepositoryIndexResponse **out,
                              proa_arena *arena, proa_err *err);
/* Prometheus text of the families of the core (nv_*) and of the backends. */
void proa_server_metrics(proa_server *server, proa_buf *out);
/* For the page: a JSON array of the machine's GPUs with uuid, name, utilization, memory, power. */
void proa_server_gpus(proa_server *server, proa_buf *out);
/* For the page: a JSON array of models with state, requests, queue, figures. */
void proa_server_figures(proa_server *server, proa_buf *out);

/* Load blocks until the model is loaded, unload until it no longer serves: call them from a thread that may block
 * (proa_work_start of api/frontend.h). Requests in flight at an unload continue; the index reports UNLOADING until
 * they have ended. Loads of different models run in parallel. Loading an ensemble loads the models of its steps; the
 * ensemble is reloaded when they change, and unavailable while one is missing. Nothing happens if the loaded version
 * equals the folder's contents. config_json NULL: the repository's; files: in place of the folder, and only with
 * config_json. UNAVAILABLE unless the control mode is explicit; INVALID or INTERNAL with Triton's texts. */
proa_status proa_server_load(proa_server *server, const char *name, const char *config_json,
                             const proa_model_file *files, int files_count, proa_err *err);
proa_status proa_server_unload(proa_server *server, const char *name, bool unload_dependents, proa_err *err);
/* Called in poll mode every poll_secs by a thread of the server itself; public for tests. */
void proa_server_poll(proa_server *server);

/* ---- shared memory regions, used by both protocols: of the system, and CUDA's, which share their names ---- */
proa_status proa_shm_register(proa_server *server, const char *name, const char *key, uint64_t offset,
                              uint64_t bytes, proa_err *err);
proa_status proa_shm_unregister(proa_server *server, const char *name, proa_err *err); /* "" : all */
proa_status proa_shm_status(proa_server *server, const char *name,
                            Inference__SystemSharedMemoryStatusResponse **out, proa_arena *arena, proa_err *err);
/* The same for memory of a GPU. handle: a cudaIpcMemHandle_t of 64 bytes. */
proa_status proa_shm_register_cuda(proa_server *server, const char *name, proa_str handle, int64_t device,
                                   uint64_t bytes, proa_err *err);
proa_status proa_shm_unregister_cuda(proa_server *server, const char *name, proa_err *err); /* "" : all */
proa_status proa_shm_status_cuda(proa_server *server, const char *name,
                                 Inference__CudaSharedMemoryStatusResponse **out, proa_arena *arena,
                                 proa_err *err);
/* INVALID if the buffer is one of a region that its client has shortened since, and a page that is gone was read or
 * written: what was read there is zeros, and what was written is lost. Any other buffer (NULL too) is fine. */
proa_status proa_shm_check(const proa_buffer *buffer, proa_err *err);
/* The same before the bytes [data, data + bytes) of the buffer leave for a client: looks at each of their pages. */
proa_status proa_shm_check_bytes(const proa_buffer *buffer, const char *data, size_t bytes, proa_err *err);
/* A buffer over [offset, offset + bytes) of a region; it keeps the mapping alive. INVALID once it was shortened. */
proa_status proa_shm_buffer(proa_server *server, const char *region, uint64_t offset, uint64_t bytes,
                            proa_buffer **out, proa_err *err);

#endif
