/* SPDX-License-Identifier: Apache-2.0
 * ensemble.h - inside the schedulers: the run of one request through an ensemble. ensemble.c moves tensors from step
 * to step; step_call.c builds and starts the calls of the steps.
 * Owner:   a run and its first scope are in the request's arena; scopes of decoupled replies are allocated one by one.
 *          A call is in the arena of its own request.
 * Threads: a run is guarded by its lock. One thread at a time drives it: it starts steps and delivers replies without
 *          the lock; other threads only record what has arrived. */
#ifndef PROA_SERVE_SCHED_ENSEMBLE_H
#define PROA_SERVE_SCHED_ENSEMBLE_H

#include "serve/sched/graph.h"
#include "serve/sched/sched.h"

typedef struct proa_ensemble_run proa_ensemble_run;
typedef struct proa_scope proa_scope;
typedef struct proa_step_call proa_step_call;

/* A tensor of the ensemble, as long as it is needed. */
typedef struct proa_ensemble_value {
    proa_tensor tensor; /* name NULL: the step has not returned it, or the optional input was not given */
    int64_t batch;      /* rows of the request that made it; 0: its model has no batch dimension */
    int uses;           /* steps that still need it, and the reply */
    bool arrived;
} proa_ensemble_value;

/* A step of a scope: it is ready when no input is missing. */
typedef struct proa_ready_step {
    struct proa_ready_step *next;
    proa_scope *scope;
    int step, missing;
} proa_ready_step;

/* The tensors of one label that belong together: those of the request, or of one reply of a decoupled step. */
struct proa_scope {
    proa_scope *next; /* in the order of the replies, if the outputs are of this label */
    int label;
    int refs; /* steps ready and running in it, the place in the order of replies */
    int outputs_missing;
    bool allocated;     /* malloc'd */
    bool after_failure; /* its reply comes after the error: no more work is done for it */
    proa_reply *reply;  /* complete, and not yet delivered */
    proa_ensemble_value *values;
    proa_ready_step *step_states; /* [steps of the label] */
};

/* One call of a step's model. */
struct proa_step_call {
    proa_step_call *prev, *next; /* of the run */
    proa_step_call *next_waiting;
    proa_ensemble_run *run;
    proa_scope *scope;
    proa_infer *request;
    int step;
    bool waiting; /* for the limit; under its lock */
};

/* max_inflight_requests: calls of one step in all runs together. */
typedef struct proa_step_limit {
    pthread_mutex_t lock;
    pthread_cond_t room; /* fewer wait */
    proa_step_call *first, *last;
    int waiting;
    uint32_t inflight;
    bool starting; /* a thread starts waiting calls */
} proa_step_limit;

typedef struct proa_ensemble {
    proa_scheduler *scheduler;
    proa_graph *graph;
    proa_step_limit *limits; /* [steps]; NULL: no limit */
    uint32_t inflight_max;
    proa_reply_fn *on_reply;                                       /* of a call; its user is the call */
    void (*on_failure)(proa_step_call *call, const proa_err *err); /* of a call that could not start: its end */
} proa_ensemble;

struct proa_ensemble_run {
    pthread_mutex_t lock;
    proa_ensemble *ensemble;
    proa_infer *request;
    proa_served_model **models; /* [steps] held; NULL: not needed */
    const bool *needed;         /* [steps]; NULL: all */
    proa_ready_step *ready[2],
        **ready_last[2]; /* ready to start: [0] those that take long, [1] those that run on the caller */
    proa_scope *root, *out_first, *out_last;
    proa_step_call *calls;
    int inflight; /* calls that have not ended */
    bool driven, finished,
        cancels_sent;      /* cancels_sent: after a failure the calls that are not needed were cancelled */
    bool delivers_earlier; /* after a failure: replies that were under way before it are still delivered */
    proa_err *error;       /* the first; NULL: none yet */
    int64_t input_ns, infer_ns, output_ns;
};

/* ---- step_call.c ---- */

/* Builds the call of a ready step from the tensors of its scope, which move to it. Under the run's lock. */
proa_step_call *proa_step_call_new(proa_ensemble_run *run, proa_ready_step *ready);
/* Starts it now, or when the limit allows. Without a lock. */
void proa_step_call_start(proa_step_call *call);
/* After its final reply: another call may start. */
void proa_step_call_ended(proa_ensemble *e, int step);
/* A call that waits for the limit ends CANCELLED; a running one is cancelled in its model. Without a lock; the caller
 * holds its request. */
void proa_step_call_cancel(proa_step_call *call);
/* Back-pressure: a decoupled step that has replied from an instance's thread waits while the steps after it are at
 * their limits. */
void proa_step_call_throttle(proa_ensemble *e, const proa_infer *request, int step);
/* Adds or removes the batch dimension, so that t fits io. `batched`: does the model of io have one? */
void proa_ensemble_value_fit(proa_tensor *t, const proa_ensemble_value *value, const proa_io *io, bool batched);
proa_status proa_step_limits_open(proa_ensemble *e, uint32_t inflight_max);
void proa_step_limits_close(proa_ensemble *e);

#endif
