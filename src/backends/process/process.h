/* SPDX-License-Identifier: Apache-2.0
 * process.h - models whose instances are in worker processes: their kind, their settings, and the workers.
 *          Python models (../python) and isolated backends (../isolate) are made of it.
 * Owner:   a model owns its settings and metric families, a worker its process and the requests that it executes. A
 *          worker belongs to its instances.
 * Threads: a worker has a thread that starts its process, reads its messages and restarts it when it dies
 *          (lifecycle.c); all replies are sent by that thread. execute waits on the scheduler's thread. */
#ifndef PROA_BACKENDS_PROCESS_PROCESS_H
#define PROA_BACKENDS_PROCESS_PROCESS_H

#include "backends/process/families.h"
#include "backends/process/payload.h"
#include "base/json.h"
#include "process/process.h"
#include "serve/server.h"
#include <pthread.h>

typedef struct proa_worker proa_worker; /* a process, and processes in its place after a crash */
typedef struct proa_worker_instance proa_worker_instance; /* an instance of a model in such a process */

/* What the workers of a kind have in common, beside the requests. */
typedef struct proa_worker_kind {
    const char *process; /* in messages: "Stub process" of Python, "Backend process" */
    const char *model;   /* "Python model", "model" */
    const char *late;    /* a process that did not start in time */
    /* Starts a process of that name. options: without the program and its arguments. */
    proa_status (*start)(proa_process **out, const void *arg, const char *name,
                         const proa_process_options *options, proa_err *err);
    bool shares; /* one process for all instances of a model; else each instance has one */
    /* The process has compared its outputs with the configuration: they are passed on as they come, with the times that
     * it reports. */
    bool checks_outputs;
    bool writes_inputs;   /* tensors that the process gets it may write, so what others read too is copied */
    bool reports_devices; /* OPENED says whether the process takes inputs in the memory of GPUs; else it does */
    bool closes;          /* a process that is only asked ends by CLOSE too: a library has to be finalized */
} proa_worker_kind;

/* Settings of a worker process. */
typedef struct proa_worker_settings {
    const proa_worker_kind *kind;
    const void *arg;      /* of kind->start: of Python, the environment */
    const char *host;     /* JSON of OPEN's member "host"; NULL: none */
    int64_t memory_bytes; /* limit of a process; 0: none */
    int64_t keep_bytes;   /* shared memory that is kept when it is free */
    int64_t start_ms;     /* time-out of the program's start */
    int64_t finish_ms;    /* of its end, when the model is unloaded */
    int64_t execute_ms;   /* time-out of one execute; 0: none */
} proa_worker_settings;

struct proa_worker_model {
    proa_served_model *model;
    proa_server *server;
    const Inference__ModelConfig *config;
    proa_worker_settings settings;
    char *file;        /* model.py; NULL: none */
    char *config_json; /* model_config, as initialize receives it */
    bool decoupled, iterative;
    bool strict_outputs; /* an output that disagrees with the configuration is an error; else the first is logged */
    atomic_bool warned;      /* such an output has been logged */
    proa_families *families; /* in which its processes create metrics; the backend's */
    pthread_mutex_t lock;    /* guards the list of workers */
    proa_worker *workers;
    /* since the version was opened: bytes of tensors to and from its processes, and of outputs that are the server's
     * own memory; starts of processes */
    atomic_ullong bytes_in, bytes_out, bytes_passed, starts;
};

/* ---- open.c, execute.c, lifecycle.c, worker.c ---- */

/* Adds an instance to a model; its process, of that name, or the one of all instances, of the name of the model, starts
 * with proa_worker_start_all. */
proa_worker_instance *proa_worker_open(proa_worker_model *model, const proa_instance *instance);
/* After the last instance of the model: starts the processes and waits until the model's initialize has returned or
 * failed in each; the first failure. */
PROA_MUST_CHECK proa_status proa_worker_start_all(const proa_worker_model *m, proa_err *err);
/* The last instance of a process ends it. No instance of the model executes any more. */
void proa_worker_close(proa_worker_instance *i);
void proa_worker_execute(proa_worker_instance *i, proa_infer *const *requests, int count);
/* Whether its process runs; if so, *name is the process's and *use what it uses. */
bool proa_worker_read_use(proa_worker *w, const char **name, proa_process_use *use);
proa_worker *proa_worker_next(const proa_worker *w); /* of the model's list */
proa_worker_model *proa_worker_model_of(const proa_worker *w);
proa_devices *proa_worker_devices(const proa_worker *w);
bool proa_worker_takes_devices(const proa_worker_model *m); /* a process of it takes inputs in the memory of GPUs */
int proa_worker_count_instances(proa_worker_model *m);
/* What the message OPEN asks of a process. */
typedef struct proa_worker_question {
    const char *mode; /* "serve" the model; "complete" its configuration (Python's auto_complete_config); "probe" it */
    const char *name; /* of the model or worker, for errors */
    const char *file; /* as proa_worker_model.file; NULL: none */
    const char *args; /* JSON; NULL: none */
} proa_worker_question;
/* Starts a process for one question only, and ends it after the answer: *head, to be freed. */
PROA_MUST_CHECK proa_status proa_worker_ask(proa_json **head, const proa_worker_settings *settings,
                                            const proa_worker_question *question, proa_err *err);
/* A number of --backend-config BACKEND,KEY=N from 0 to max; *value stays if it is absent. */
PROA_MUST_CHECK proa_status proa_worker_setting(int64_t *value, const proa_server *server, const char *backend,
                                                const char *key, int64_t max, proa_err *err);
/* The members that all kinds have, of a zeroed model; the families stay the caller's. */
void proa_worker_model_init(proa_worker_model *m, proa_served_model *model);
void proa_worker_model_release(proa_worker_model *m);
bool proa_worker_all_ready(proa_worker_model *m, proa_err *reason);
/* Sends an ANSWER or a REPLY to the process of that number, if it still runs; from any thread. The worker exports
 * tensors that are on a GPU. */
void proa_worker_send(proa_worker *w, uint64_t process, proa_channel_message m, const proa_payload_content *c);
/* Work that the worker waits for before it closes. */
void proa_worker_begin(proa_worker *w);
void proa_worker_end(proa_worker *w);
/* The instance that executes the request of this id, NULL: none does. If one does, calls each(to, r) for every request
 * of that execution, under the worker's lock. */
const proa_worker_instance *proa_worker_executes(proa_worker *w, uint64_t id,
                                                 void (*each)(void *to, const proa_infer *r), void *to);
/* `child` belongs to the trace of the request of this id, if that is in the process and traced. */
void proa_worker_trace(proa_worker *w, uint64_t id, proa_infer *child);
/* Whether it is being executed, and it and all others of that execution are cancelled. */
bool proa_worker_all_cancelled(proa_worker *w, uint64_t id);

/* ---- metrics.c ---- */

/* Lines of /metrics about the processes of a version and what passes between them and the server, with names that begin
 * with `prefix`. */
void proa_worker_metrics(proa_worker_model *m, const char *prefix, const char *labels, proa_buf *out);

#endif
