/* SPDX-License-Identifier: Apache-2.0
 * python.h - inside the backend `python`: models, their instances, and the messages between server and stub process.
 * Owner:   a model owns its settings and metric families, an instance its process and the requests that it executes.
 * Threads: an instance has a thread that starts its process, reads its messages and restarts it when it dies
 *          (instance.c); all replies are sent by that thread. execute waits on the scheduler's thread. */
#ifndef PROA_BACKENDS_PYTHON_PYTHON_H
#define PROA_BACKENDS_PYTHON_PYTHON_H

#include "base/json.h"
#include "python/process.h"
#include "serve/server.h"
#include <pthread.h>

typedef struct proa_pyfamilies proa_pyfamilies; /* metrics.c */
typedef struct proa_pyinstance proa_pyinstance;

/* Settings of a stub process. */
typedef struct proa_pysettings {
    struct proa_pyenv *env; /* interpreter and variables */
    int64_t memory_bytes;   /* limit of a process; 0: none */
    int64_t keep_bytes;     /* shared memory that is kept when it is free */
    int64_t start_ms;       /* time-out of the interpreter's start */
    int64_t execute_ms;     /* time-out of one execute; 0: none */
} proa_pysettings;

typedef struct proa_pymodel {
    proa_served_model *model;
    proa_server *server;
    const Inference__ModelConfig *config;
    proa_pysettings settings;
    char *file;        /* model.py */
    char *config_json; /* model_config, as initialize receives it */
    bool decoupled, iterative;
    bool strict_outputs; /* an output that disagrees with the configuration is an error; else the first is logged */
    atomic_bool warned; /* such an output has been logged */
    proa_pyfamilies *families;
    pthread_mutex_t lock; /* guards the list of instances */
    proa_pyinstance *instances;
    atomic_ullong bytes_in, bytes_out, bytes_passed, starts;
} proa_pymodel;

/* ---- messages.c: payloads ---- */

/* Writes a payload into shared memory. *at is its block; the caller and the stub have one reference each. False: the
 * arena is full. */
bool proa_pywire_write(proa_pyarena *a, proa_str head, const proa_tensor *tensors, int count, uint64_t *at,
                       uint64_t *bytes);
/* Writes a payload and sends it with message m. False: the arena is full. */
bool proa_pywire_send(proa_pyprocess *p, proa_python_message m, proa_str head, const proa_tensor *tensors,
                      int count);
/* The head of a REQUEST: "" if all of it is default. */
void proa_pywire_request_head(proa_buf *out, const proa_infer *r);
/* The head of a REPLY; reply may be NULL. */
void proa_pywire_reply_head(proa_buf *out, const proa_reply *reply);

/* A payload that the stub wrote. Tensors that are read from it keep it alive; proa_pywire_close drops the reader's own
 * reference. */
typedef struct proa_pywire {
    proa_pyview *view;
    proa_pyarena *arena; /* the server's, for tensors that are in it; NULL: there must be none */
    uint64_t inputs;     /* block of the answered request, in the server's arena */
    uint64_t at, bytes;
    const char *data;
    uint32_t head_bytes, tensors;
    proa_buffer *own, *peer;
    uint64_t written, passed; /* bytes of tensors in the stub's memory, and in the server's */
} proa_pywire;
/* INVALID if the message does not describe a payload. The stub then breaks the protocol, and there is nothing to
 * close. */
PROA_MUST_CHECK proa_status proa_pywire_open(proa_pywire *w, proa_pyview *view, const proa_python_message *m,
                                             proa_err *err);
void proa_pywire_close(proa_pywire *w);
/* The payload's JSON; *head is NULL if it has none. */
PROA_MUST_CHECK proa_status proa_pywire_head(proa_json **head, const proa_pywire *w, proa_err *err);
/* Fills t but for its name, which goes to *name (in the stub's memory). */
PROA_MUST_CHECK proa_status proa_pywire_tensor(proa_tensor *t, proa_str *name, proa_pywire *w, uint32_t index,
                                               proa_err *err);
/* Adds the members of a JSON object as parameters, each made by add(to, name). INVALID if a member is no bool, number
 * or string. */
PROA_MUST_CHECK proa_status proa_pywire_params(const proa_json *object,
                                               proa_infer_param *(*add)(void *to, proa_str name), void *to,
                                               proa_arena *arena, proa_err *err);
/* Copies the error of a head, {"error","code"}, to *err; false if it has none. */
bool proa_pywire_error(const proa_json *head, proa_err *err);
/* Makes the reply of a RESPONSE message. Outputs have the type and shape that the model gave them; those that the
 * configuration lacks are dropped. With model->strict_outputs a disagreement with the configuration is the reply's
 * error. INVALID if the message breaks the protocol. */
PROA_MUST_CHECK proa_status proa_pywire_reply(proa_reply **out, proa_pywire *w, proa_pymodel *model,
                                              const proa_infer *r, proa_err *err);

/* ---- instance.c, events.c, lifecycle.c ---- */

/* Starts the process; does not wait until it runs. */
PROA_MUST_CHECK proa_status proa_pyinstance_open(proa_pyinstance **out, proa_pymodel *model,
                                                 const proa_instance *instance, proa_err *err);
/* Waits until the model's initialize has returned or failed. */
PROA_MUST_CHECK proa_status proa_pyinstance_wait_opened(proa_pyinstance *i, proa_err *err);
void proa_pyinstance_close(proa_pyinstance *i);
void proa_pyinstance_execute(proa_pyinstance *i, proa_infer *const *requests, int count);
bool proa_pyinstance_ready(proa_pyinstance *i, proa_err *reason);
/* Whether its process runs; if so, *name is the instance's and *use what the process uses. */
bool proa_pyinstance_read_use(proa_pyinstance *i, const char **name, proa_pyprocess_use *use);
proa_pyinstance *proa_pyinstance_next(const proa_pyinstance *i); /* of the model's list */
proa_pymodel *proa_pyinstance_model(const proa_pyinstance *i);
/* Runs auto_complete_config in a process of its own: the configuration as JSON text, to be freed. */
PROA_MUST_CHECK proa_status proa_pyinstance_complete(char **config_json, const proa_pysettings *settings,
                                                     const char *name, const char *file, const char *args,
                                                     proa_err *err);
/* Sends a message with a payload to the process of that number, if it still runs; from any thread. kind: ANSWER or
 * REPLY. */
void proa_pyinstance_send(proa_pyinstance *i, uint64_t process, uint32_t kind, uint32_t flags, uint64_t id,
                          proa_str head, const proa_tensor *tensors, int count);
/* Work that the instance waits for before it closes. */
void proa_pyinstance_begin(proa_pyinstance *i);
void proa_pyinstance_end(proa_pyinstance *i);
/* Whether the request of this id is being executed. If so, calls each(to, r) for every request that is, under the
 * instance's lock. */
bool proa_pyinstance_executes(proa_pyinstance *i, uint64_t id, void (*each)(void *to, const proa_infer *r),
                              void *to);
/* `child` belongs to the trace of the request of this id, if that is in the process and traced. */
void proa_pyinstance_trace(proa_pyinstance *i, uint64_t id, proa_infer *child);
/* Whether it is being executed, and it and all others of that execution are cancelled. */
bool proa_pyinstance_all_cancelled(proa_pyinstance *i, uint64_t id);

/* ---- calls.c: calls of a model to the server ---- */

/* Handles a CALL or a POST; INVALID for any other message. */
PROA_MUST_CHECK proa_status proa_pycalls_handle(proa_pyinstance *i, uint64_t process,
                                                const proa_python_message *m, proa_pywire *w, proa_err *err);

/* ---- bls.c: calls of other models ---- */

typedef struct proa_pybls proa_pybls; /* an instance's calls */
proa_pybls *proa_pybls_new(proa_pyinstance *i);
void proa_pybls_free(proa_pybls *b); /* after the last call has ended */
PROA_MUST_CHECK proa_status proa_pybls_handle(proa_pybls *b, uint64_t process, const proa_python_message *m,
                                              proa_pywire *w, proa_err *err);
void proa_pybls_cancel(proa_pybls *b, uint64_t id);
/* Cancels the calls whose requests are all cancelled. */
void proa_pybls_check_cancelled(proa_pybls *b);
void proa_pybls_cancel_all(proa_pybls *b); /* their process has died: further replies are dropped */

/* ---- metrics.c: metric families and metrics of models ---- */

proa_pyfamilies *proa_pyfamilies_new(void);
void proa_pyfamilies_free(proa_pyfamilies *f);
/* Handles a call on metrics: "family", "metric" and "metric_do" write the members of a JSON object to *answer, the two
 * other kinds write nothing. */
PROA_MUST_CHECK proa_status proa_pyfamilies_call(proa_pyfamilies *f, const char *kind, const proa_json *head,
                                                 proa_buf *answer, proa_err *err);
void proa_pyfamilies_print(proa_pyfamilies *f, proa_buf *out);

#endif
