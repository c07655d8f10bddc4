/* SPDX-License-Identifier: Apache-2.0
 * worker.h - the state of a worker and of its instances, for worker.c and the files above it.
 * Owner:   a worker belongs to its instances and ends with the last one. The process belongs to the worker's own
 *          thread; other threads borrow it (`users`).
 * Threads: the worker's `lock` guards the members below it and those of its instances; only the worker's own thread
 *          ends requests. */
#ifndef PROA_BACKENDS_PROCESS_WORKER_H
#define PROA_BACKENDS_PROCESS_WORKER_H

#include "backends/process/calls.h"
#include "backends/process/process.h"
#include <time.h>

/* A request that the process executes. */
typedef struct proa_worker_slot {
    uint64_t id; /* of its message: slot index and serial number; 0: the slot is free */
    proa_infer *r;
    uint64_t at;                    /* block of its payload */
    proa_worker_instance *executes; /* whose current execution it belongs to; NULL: execute has returned */
    bool cancel_sent;               /* the process knows that it is cancelled */
} proa_worker_slot;

typedef enum proa_worker_state { PROA_WORKER_DOWN, PROA_WORKER_UP } proa_worker_state;

struct proa_worker_instance {
    proa_worker *worker;
    proa_worker_instance *next; /* of the worker */
    const char *name;
    uint64_t number; /* in the process, from 0 */
    int device;      /* CUDA device, -1: CPU */
    Inference__ModelInstanceGroup__Kind kind;
    pthread_mutex_t busy;      /* held during execute */
    proa_channel_message *out; /* execute's buffer */
    /* under the worker's lock: */
    bool takes_devices; /* inputs in the memory of GPUs */
    bool executing;
    int64_t execute_ns; /* start of the current execution */
};

struct proa_worker {
    proa_worker_model *model;
    proa_worker *next;
    const char *name;                        /* of the process */
    proa_worker_instance *instances, **last; /* complete when the thread starts */
    int count;
    proa_bls *bls;
    proa_devices *devices; /* of the process that runs */
    bool started;          /* it has a thread */
    pthread_t thread;
    proa_channel_message *in; /* the thread's buffer */
    pthread_mutex_t lock;     /* guards all members below */
    pthread_cond_t changed;
    proa_worker_state state;
    bool tried, closing; /* the first start has succeeded or failed; the process is not started again */
    proa_err why;        /* PROA_WORKER_DOWN: the reason */
    proa_process *process;
    uint64_t number;   /* of the process; the first one is 1 */
    int users;         /* other threads that use `process` now */
    int pending_calls; /* calls and loads that have not ended */
    proa_worker_slot *slots;
    uint32_t slots_count, slots_cap, live, slots_free; /* no free slot is below slots_free */
    uint64_t running;                 /* requests so far: the serial number of the next slot */
    int open;                         /* instances that have not been closed */
    int executing;                    /* instances that execute */
    const proa_worker_instance *late; /* whose execute took too long, so that the process is being killed; or NULL */
    bool checks_ready, ready_pending, is_ready;
    int64_t ready_sent_ns;
    proa_err not_ready;
};

/* ---- worker.c ---- */

/* INTERNAL or UNAVAILABLE "Stub process 'm_0' is not healthy. It HOW"; how may be NULL. */
proa_status proa_worker_not_healthy(const proa_worker *w, proa_status status, const char *how, proa_err *err);
struct timespec proa_worker_time_in(int64_t ms); /* the time in ms milliseconds, for pthread_cond_timedwait */
/* The process, if it runs (and has that number, unless 0). It is not freed until proa_worker_unhold_process. */
proa_process *proa_worker_hold_process(proa_worker *w, uint64_t number);
void proa_worker_unhold_process(proa_worker *w);
bool proa_worker_has_devices(const proa_worker_instance *i); /* it takes inputs in the memory of GPUs */
/* With the lock held: a slot for a request of the instance's execution, its id; the slot of an id or NULL; and frees a
 * slot whose request has left the process. */
uint64_t proa_worker_add_slot(proa_worker_instance *i, proa_infer *r, uint64_t at);
proa_worker_slot *proa_worker_find_slot(proa_worker *w, uint64_t id);
void proa_worker_free_slot(proa_worker *w, proa_worker_slot *s);
/* Ends all requests of the process with err, or only those of an instance's current execution, if it is not NULL. */
void proa_worker_fail(proa_worker *w, proa_process *p, const proa_worker_instance *execution,
                      const proa_err *err);
bool proa_worker_is_closing(proa_worker *w);
/* With the lock held: the instance executes no longer. */
void proa_worker_executed(proa_worker_instance *i);

/* ---- events.c: messages from the process ---- */

/* INVALID if the message breaks the protocol: the process must then be killed. */
proa_status proa_worker_handle(proa_worker *w, proa_process *p, proa_channel_message *m, proa_err *err);
/* Sets the end of compute_infer for all requests that a packet answers, before their replies are made. */
void proa_worker_note_outputs(proa_worker *w, const proa_channel_message *messages, int count);
/* Handles cancels and time-outs; returns how many ms to wait for the next packet. */
int proa_worker_tick(proa_worker *w, proa_process *p);

/* ---- lifecycle.c: start and end of the process ---- */

/* The worker's own thread: starts processes until the worker closes. */
void *proa_worker_supervise(void *worker);

#endif
