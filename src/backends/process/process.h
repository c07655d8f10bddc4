/* SPDX-License-Identifier: Apache-2.0
 * process.h - models whose instances are in worker processes: the workers, and the messages between server and process.
 *          Python models (../python) and isolated backends (../isolate) are made of it.
 * Owner:   a model owns its settings and metric families, a worker its process and the requests that it executes. A
 *          worker belongs to its instances.
 * Threads: a worker has a thread that starts its process, reads its messages and restarts it when it dies
 *          (lifecycle.c); all replies are sent by that thread. execute waits on the scheduler's thread. */
#ifndef PROA_BACKENDS_PROCESS_PROCESS_H
#define PROA_BACKENDS_PROCESS_PROCESS_H

#include "backends/gpu/gpu.h"
#include "base/json.h"
#include "process/process.h"
#include "serve/server.h"
#include <pthread.h>

typedef struct proa_families proa_families; /* families.c */
typedef struct proa_devices proa_devices;   /* devices.c */
typedef struct proa_worker proa_worker;     /* a process, and processes in its place after a crash */
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

typedef struct proa_worker_model {
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
    atomic_ullong bytes_in, bytes_out, bytes_passed, starts;
} proa_worker_model;

/* ---- devices.c: memory of GPUs that a process uses ---- */

/* The tensors of a payload that are on a GPU, as the process opens them, or as it names them. */
typedef struct proa_exports {
    proa_channel_device *places; /* [count] */
    proa_buffer **held; /* [count]; NULL: tensor i is on the host. What the payload has taken is NULL again */
    uint64_t *leases;   /* [count], of a process: the numbers of its leases; 0: tensor i is on the host */
} proa_exports;

proa_devices *proa_devices_new(void);
void proa_devices_free(proa_devices *d);
/* The process has ended: it has nothing open and no leases. */
void proa_devices_clear(proa_devices *d);
/* Fills *e, which is zeroed if no tensor is on a GPU; proa_exports_release follows. writable: the process may write the
 * tensors, so one that others read is copied on its GPU. */
PROA_MUST_CHECK proa_status proa_devices_export(proa_devices *d, proa_exports *e, const proa_tensor *tensors,
                                                int count, bool writable, proa_err *err);
/* Frees it, and takes back what no payload has taken. */
void proa_exports_release(proa_devices *d, proa_exports *e, int count);
/* The process has closed the memory of that number, after it has seen it in `seen` places. */
void proa_devices_closed(proa_devices *d, uint64_t memory, int64_t seen);
/* Leases memory to the process for one of its outputs: a tensor of `bytes` bytes, and the number of the lease. */
PROA_MUST_CHECK proa_status proa_devices_lease(proa_devices *d, proa_tensor *t, uint64_t *number, int64_t gpu,
                                               uint64_t bytes, proa_err *err);
/* Ends the lease of that number and gives its memory, of so many bytes or more, to the caller; NULL: there is none. */
proa_buffer *proa_devices_take_lease(proa_devices *d, uint64_t number, uint64_t bytes);

void proa_devices_return_lease(proa_devices *d, uint64_t number); /* it will not be used */

/* ---- payload.c ---- */

/* What a payload is written from. */
typedef struct proa_payload_content {
    proa_str head;
    const proa_tensor *tensors; /* [count] */
    int count;
    proa_exports *exports; /* of the tensors; NULL: all are on the host */
} proa_payload_content;
/* Writes a payload into shared memory. *at is its block; the caller and the process have one reference each. False: the
 * arena is full. */
bool proa_payload_write(proa_shared_arena *a, const proa_payload_content *c, uint64_t *at, uint64_t *bytes);
/* Writes a payload and sends it with message m. False: the arena is full. */
bool proa_payload_send(proa_process *p, proa_channel_message m, const proa_payload_content *c);
/* The head of a REQUEST: "" if all of it is default. */
void proa_payload_request_head(proa_buf *out, const proa_infer *r);
/* The head of an answer that is an error. */
void proa_payload_error_head(proa_buf *out, const proa_err *err);
/* The head of a RESPONSE of a process that is written in C; reply may be NULL. It has what the backend has reported of
 * the request: times, and with `final` the activities of its trace; and the copies between GPUs and the host since the
 * response before. "" if there is nothing to say. */
void proa_payload_response_head(proa_buf *out, const proa_reply *reply, const proa_infer *r, bool final,
                                const proa_device_copies *copies);
/* The head of a REPLY; reply may be NULL. */
void proa_payload_reply_head(proa_buf *out, const proa_reply *reply);

/* A payload that the process wrote. Tensors that are read from it keep it alive; proa_payload_close drops the reader's
 * own reference. */
typedef struct proa_payload proa_payload;
/* In a process: the memory of a tensor on a GPU. *out drops `holder` with its last reference. */
typedef proa_status proa_device_open_fn(proa_buffer **out, const char **data, const proa_channel_device *place,
                                        uint64_t bytes, proa_buffer *holder, proa_err *err);
struct proa_payload {
    proa_shared_view *view;
    proa_shared_arena *arena;         /* the server's, for tensors that are in it; NULL: there must be none */
    uint64_t inputs;                  /* block of the answered request, in the server's arena */
    proa_infer *answered;             /* that request; NULL: the payload answers none */
    proa_devices *devices;            /* what the process has of GPUs; NULL: nothing */
    proa_device_open_fn *open_device; /* the reader is a process; NULL: the server, to which no memory is sent */
    uint64_t at, bytes;
    const char *data;
    uint32_t head_bytes, tensors;
    proa_buffer *own, *peer;
    uint64_t written, passed; /* bytes of tensors in the process's memory, and in the server's */
};
/* INVALID if the message does not describe a payload. The process then breaks the protocol, and there is nothing to
 * close. */
PROA_MUST_CHECK proa_status proa_payload_open(proa_payload *w, proa_shared_view *view,
                                              const proa_channel_message *m, proa_err *err);
void proa_payload_close(proa_payload *w);
/* The payload's JSON; *head is NULL if it has none. */
PROA_MUST_CHECK proa_status proa_payload_head(proa_json **head, const proa_payload *w, proa_err *err);
/* Fills t but for its name, which goes to *name (in the process's memory). */
PROA_MUST_CHECK proa_status proa_payload_tensor(proa_tensor *t, proa_str *name, proa_payload *w,
                                                uint32_t index, proa_err *err);
/* Adds the members of a JSON object as parameters, each made by add(to, name). INVALID if a member is no bool, number
 * or string. */
PROA_MUST_CHECK proa_status proa_payload_params(const proa_json *object,
                                                proa_infer_param *(*add)(void *to, proa_str name), void *to,
                                                proa_arena *arena, proa_err *err);
/* Fills a request from the head of a REQUEST or an INFER (but for the model), and from its tensors. */
PROA_MUST_CHECK proa_status proa_payload_request(proa_infer *r, const proa_json *head, proa_err *err);
PROA_MUST_CHECK proa_status proa_payload_inputs(proa_infer *r, proa_payload *w, proa_err *err);
/* Copies the error of a head, {"error","code"}, to *err; false if it has none. */
bool proa_payload_error(const proa_json *head, proa_err *err);
/* Makes the reply of a RESPONSE message. Outputs have the type and shape that the model gave them; those that the
 * configuration lacks are dropped. With model->strict_outputs a disagreement with the configuration is the reply's
 * error. NULL, with PROA_OK, if the message has none. INVALID if it breaks the protocol. */
PROA_MUST_CHECK proa_status proa_payload_reply(proa_reply **out, proa_payload *w, proa_worker_model *model,
                                               proa_infer *r, proa_err *err);

/* ---- worker.c, events.c, lifecycle.c ---- */

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
/* Starts a process, sends OPEN with that mode and ends the process after the answer: *head, to be freed. file, args: as
 * in proa_worker_model; NULL: none. Python's mode "complete" runs auto_complete_config. */
PROA_MUST_CHECK proa_status proa_worker_ask(proa_json **head, const proa_worker_settings *settings,
                                            const char *mode, const char *name, const char *file,
                                            const char *args, proa_err *err);
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

/* ---- calls.c: calls of a model to the server ---- */

/* Handles a CALL or a POST; INVALID for any other message. */
PROA_MUST_CHECK proa_status proa_calls_handle(proa_worker *worker, uint64_t process,
                                              const proa_channel_message *m, proa_payload *w, proa_err *err);

/* The same for a process that is only asked (proa_worker_ask): its log lines are written, its calls are refused. */
PROA_MUST_CHECK proa_status proa_calls_handle_alone(proa_process *p, const proa_channel_message *m,
                                                    proa_err *err);

/* ---- bls.c: calls of other models ---- */

typedef struct proa_bls proa_bls; /* a worker's calls */
proa_bls *proa_bls_new(proa_worker *worker);
void proa_bls_free(proa_bls *b); /* after the last call has ended */
PROA_MUST_CHECK proa_status proa_bls_handle(proa_bls *b, uint64_t process, const proa_channel_message *m,
                                            proa_payload *w, proa_err *err);
void proa_bls_cancel(proa_bls *b, uint64_t id);
/* Cancels the calls whose requests are all cancelled. */
void proa_bls_check_cancelled(proa_bls *b);
void proa_bls_cancel_all(proa_bls *b); /* their process has died: further replies are dropped */

/* ---- families.c: metric families and metrics of models ---- */

proa_families *proa_families_new(void);
void proa_families_free(proa_families *f);
/* Handles a call on metrics: "family", "metric" and "metric_do" write the members of a JSON object to *answer, the two
 * other kinds write nothing. */
PROA_MUST_CHECK proa_status proa_families_call(proa_families *f, const char *kind, const proa_json *head,
                                               proa_buf *answer, proa_err *err);
/* "metric_do" without JSON. op: "increment", "set", "observe" or "value". *now: the value, of a histogram the sum. */
PROA_MUST_CHECK proa_status proa_families_update(proa_families *f, int64_t metric, const char *op,
                                                 double value, double *now, proa_err *err);
void proa_families_print(proa_families *f, proa_buf *out);

#endif
