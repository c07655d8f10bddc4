/* SPDX-License-Identifier: Apache-2.0
 * python.h - inside the backend `python`: models, their instances, and what passes between server and stub process.
 * Owner:   a model holds its settings and metric families, an instance its process and the requests that are in it.
 * Threads: an instance has a thread that starts its process, reads what it says and starts it anew (instance.c);
 *          all replies come from there. execute waits on the scheduler's thread. */
#ifndef PROA_BACKENDS_PYTHON_PYTHON_H
#define PROA_BACKENDS_PYTHON_PYTHON_H

#include "base/json.h"
#include "python/process.h"
#include "serve/server.h"
#include <pthread.h>

typedef struct proa_pyfamilies proa_pyfamilies; /* metrics.c */
typedef struct proa_pyinstance proa_pyinstance;

/* What a stub process is started with. */
typedef struct proa_pysettings {
    struct proa_pyenv *env; /* interpreter and variables */
    int64_t memory_bytes;   /* that a process may take; 0: any */
    int64_t keep_bytes;     /* of shared memory */
    int64_t start_ms;       /* until the interpreter must run */
    int64_t execute_ms;     /* that execute may take; 0: any */
} proa_pysettings;

typedef struct proa_pymodel {
    proa_served_model *model;
    proa_server *server;
    const Inference__ModelConfig *config;
    proa_pysettings settings;
    char *file;        /* model.py */
    char *config_json; /* as models see it */
    bool decoupled, iterative;
    bool strict_outputs; /* outputs must agree with the configuration */
    atomic_bool warned;  /* of one that does not */
    proa_pyfamilies *families;
    pthread_mutex_t lock; /* of the list */
    proa_pyinstance *instances;
    atomic_ullong bytes_in, bytes_out, bytes_passed, starts;
} proa_pymodel;

/* ---- messages.c: payloads ---- */

/* Writes a payload: *at is its block, of which the caller has one hold and the stub another. False: no room. */
bool proa_pywire_write(proa_pyarena *a, proa_str head, const proa_tensor *tensors, int count, uint64_t *at,
                       uint64_t *bytes);
/* Writes a payload and sends it with m. False: no room. */
bool proa_pywire_send(proa_pyprocess *p, proa_python_message m, proa_str head, const proa_tensor *tensors,
                      int count);
/* The head of a REQUEST: "" if all of it is default. */
void proa_pywire_request_head(proa_buf *out, const proa_infer *r);
/* The head of a REPLY; reply may be NULL. */
void proa_pywire_reply_head(proa_buf *out, const proa_reply *reply);

/* A payload of the stub's. Tensors that are taken out of it hold it; proa_pywire_close ends the reader's own hold. */
typedef struct proa_pywire {
    proa_pyview *view;
    proa_pyarena *arena; /* for tensors that lie in ours; NULL: there must be none */
    uint64_t inputs;     /* the block of the request that is answered, in ours */
    uint64_t at, bytes;
    const char *data;
    uint32_t head_bytes, tensors;
    proa_buffer *own, *peer;
    uint64_t written, passed; /* bytes of tensors: in the stub's memory, in ours */
} proa_pywire;
/* INVALID if the message does not describe a payload: then the stub is not to be trusted, and nothing is to
 * be closed. */
PROA_MUST_CHECK proa_status proa_pywire_open(proa_pywire *w, proa_pyview *view, const proa_python_message *m,
                                             proa_err *err);
void proa_pywire_close(proa_pywire *w);
/* *head is NULL if there is none. */
PROA_MUST_CHECK proa_status proa_pywire_head(proa_json **head, const proa_pywire *w, proa_err *err);
/* Fills t but for its name, which goes to *name (in the stub's memory). */
PROA_MUST_CHECK proa_status proa_pywire_tensor(proa_tensor *t, proa_str *name, proa_pywire *w, uint32_t index,
                                               proa_err *err);
/* Parameters of a JSON object, added by add(to, name). INVALID for what is no bool, number or string. */
PROA_MUST_CHECK proa_status proa_pywire_params(const proa_json *object,
                                               proa_infer_param *(*add)(void *to, proa_str name), void *to,
                                               proa_arena *arena, proa_err *err);
/* {"error","code"} of a head; true if there was one. */
bool proa_pywire_error(const proa_json *head, proa_err *err);
/* The reply that a RESPONSE is. Outputs have the type and shape that the model gave them; those that the configuration
 * lacks are dropped. With model->strict_outputs a disagreement with the configuration is the reply's error. INVALID if
 * the message breaks the protocol. */
PROA_MUST_CHECK proa_status proa_pywire_reply(proa_reply **out, proa_pywire *w, proa_pymodel *model,
                                              const proa_infer *r, proa_err *err);

/* ---- instance.c, events.c, lifecycle.c ---- */

/* Begins to start the process. */
PROA_MUST_CHECK proa_status proa_pyinstance_open(proa_pyinstance **out, proa_pymodel *model,
                                                 const proa_instance *instance, proa_err *err);
/* Waits until the model has initialised there, or not. */
PROA_MUST_CHECK proa_status proa_pyinstance_wait_opened(proa_pyinstance *i, proa_err *err);
void proa_pyinstance_close(proa_pyinstance *i);
void proa_pyinstance_execute(proa_pyinstance *i, proa_infer *const *requests, int count);
bool proa_pyinstance_ready(proa_pyinstance *i, proa_err *reason);
proa_pyinstance *proa_pyinstance_next(const proa_pyinstance *i); /* of the model's list */
proa_pymodel *proa_pyinstance_model(const proa_pyinstance *i);
/* Runs auto_complete_config in a process of its own: the configuration as JSON text, to be freed. */
PROA_MUST_CHECK proa_status proa_pyinstance_complete(char **config_json, const proa_pysettings *settings,
                                                     const char *name, const char *file, const char *args,
                                                     proa_err *err);
/* From any thread: a message with a payload to the process of that number, if it still runs. kind ANSWER or REPLY. */
void proa_pyinstance_send(proa_pyinstance *i, uint64_t process, uint32_t kind, uint32_t flags, uint64_t id,
                          proa_str head, const proa_tensor *tensors, int count);
/* Work that the instance waits for before it closes: begun under way, and ended. */
void proa_pyinstance_begin(proa_pyinstance *i);
void proa_pyinstance_end(proa_pyinstance *i);
/* Is the request of this id being executed? Then each(to, r) is called for all that are, under the instance's lock. */
bool proa_pyinstance_executes(proa_pyinstance *i, uint64_t id, void (*each)(void *to, const proa_infer *r),
                              void *to);
/* Is it being executed, and all the others with it are cancelled as it is? */
bool proa_pyinstance_all_cancelled(proa_pyinstance *i, uint64_t id);

/* ---- calls.c: what a model asks of the server ---- */

/* A CALL or a POST; INVALID if it is none. */
PROA_MUST_CHECK proa_status proa_pycalls_handle(proa_pyinstance *i, uint64_t process,
                                                const proa_python_message *m, proa_pywire *w, proa_err *err);

/* ---- bls.c: calls of other models ---- */

typedef struct proa_pybls proa_pybls; /* an instance's calls */
proa_pybls *proa_pybls_new(proa_pyinstance *i);
void proa_pybls_free(proa_pybls *b); /* after the last call has ended */
PROA_MUST_CHECK proa_status proa_pybls_handle(proa_pybls *b, uint64_t process, const proa_python_message *m,
                                              proa_pywire *w, proa_err *err);
void proa_pybls_cancel(proa_pybls *b, uint64_t id);
/* Cancels what is called on behalf of requests that are all cancelled. */
void proa_pybls_check_cancelled(proa_pybls *b);
void proa_pybls_cancel_all(proa_pybls *b); /* their process is gone: what still comes is dropped */

/* ---- metrics.c: families and figures that models make ---- */

proa_pyfamilies *proa_pyfamilies_new(void);
void proa_pyfamilies_free(proa_pyfamilies *f);
/* The answers of "family", "metric", "metric_do" (members of a JSON object), and the two that have none. */
PROA_MUST_CHECK proa_status proa_pyfamilies_call(proa_pyfamilies *f, const char *kind, const proa_json *head,
                                                 proa_buf *answer, proa_err *err);
void proa_pyfamilies_print(proa_pyfamilies *f, proa_buf *out);

#endif
