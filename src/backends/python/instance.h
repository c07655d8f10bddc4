/* SPDX-License-Identifier: Apache-2.0
 * instance.h - inside an instance of the backend `python`: what its three files share.
 * Owner:   the instance; a process belongs to the instance's own thread, the others borrow it.
 * Threads: `lock` guards what the struct says; only the instance's own thread ends requests. */
#ifndef PROA_BACKENDS_PYTHON_INSTANCE_H
#define PROA_BACKENDS_PYTHON_INSTANCE_H

#include "backends/python/python.h"
#include <time.h>

/* A request that is in the process. */
typedef struct proa_pyslot {
    uint64_t id; /* of the message: index and a running number; 0: free */
    proa_infer *r;
    uint64_t at;      /* its payload */
    bool batch;       /* of the execution that is running */
    bool cancel_sent; /* that it is cancelled */
} proa_pyslot;

typedef enum proa_pystate { PROA_PY_DOWN, PROA_PY_UP } proa_pystate;

struct proa_pyinstance {
    proa_pymodel *model;
    proa_pyinstance *next;
    const char *name;
    int device; /* CUDA device, -1: CPU */
    proa_pybls *bls;
    pthread_t thread;
    pthread_mutex_t busy; /* of execute: held while one runs */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    proa_pystate state;
    bool tried, closing; /* the first start has succeeded or failed; no more are wanted */
    proa_err why;        /* of being PROA_PY_DOWN */
    proa_pyprocess *process;
    uint64_t number;   /* of the process: the first is 1 */
    int users;         /* threads that use `process` beside our own */
    int pending_calls; /* calls and loads that have not ended */
    proa_pyslot *slots;
    uint32_t slots_count, slots_cap, live, slots_free; /* no free slot is below slots_free */
    uint64_t running;                                  /* number of requests so far */
    bool executing, late;
    int64_t execute_ns; /* when that began */
    bool checks_ready, ready_pending, is_ready;
    int64_t ready_sent_ns;
    proa_err not_ready;
    proa_python_message *out, *in; /* of execute; of the thread */
};

/* ---- instance.c ---- */

/* INTERNAL or UNAVAILABLE "Stub process 'm_0' is not healthy. It HOW"; how may be NULL. */
proa_status proa_pyinstance_not_healthy(const proa_pyinstance *i, proa_status status, const char *how,
                                        proa_err *err);
struct timespec proa_pyinstance_time_in(int64_t ms); /* from now on, for pthread_cond_timedwait */
/* Under the lock: the request of that number, or NULL; and it is no longer in the process. */
proa_pyslot *proa_pyinstance_slot(proa_pyinstance *i, uint64_t id);
void proa_pyinstance_free_slot(proa_pyinstance *i, proa_pyslot *s);
/* Ends all requests that are in the process, or those of the execution that is running, with err. */
void proa_pyinstance_fail(proa_pyinstance *i, proa_pyprocess *p, bool batch_only, const proa_err *err);
bool proa_pyinstance_is_closing(proa_pyinstance *i);

/* ---- events.c: what a process says ---- */

/* INVALID if it breaks the protocol: then the process must go. */
proa_status proa_pyinstance_handle(proa_pyinstance *i, proa_pyprocess *p, proa_python_message *m, proa_err *err);
/* compute_infer ends for all requests that a packet answers, before the first of its replies is made. */
void proa_pyinstance_note_outputs(proa_pyinstance *i, const proa_python_message *messages, int count);
/* Looks at cancels and time limits; returns how many ms to wait for the next packet. */
int proa_pyinstance_tick(proa_pyinstance *i, proa_pyprocess *p);

/* ---- lifecycle.c: a process from its start to its end ---- */

/* The instance's own thread: starts processes until the instance closes. */
void *proa_pyinstance_supervise(void *instance);

#endif
