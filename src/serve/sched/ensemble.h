/* SPDX-License-Identifier: Apache-2.0
 * ensemble.h - inside the schedulers: one request on its way through an ensemble (a run), for ensemble.c, which
 * moves tensors from step to step, and ensemble_leg.c, which makes and starts the steps' requests.
 * Owner:   a run and its first scope lie in the request's arena; scopes of decoupled replies come and go. A leg lies in
 *          the arena of its step's request.
 * Threads: a run under its lock. One thread at a time drives it: it starts steps and delivers replies, without the lock;
 *          who comes meanwhile only notes what came. */
#ifndef PROA_SERVE_SCHED_ENSEMBLE_H
#define PROA_SERVE_SCHED_ENSEMBLE_H

#include "serve/sched/graph.h"
#include "serve/sched/sched.h"

typedef struct proa_run proa_run;
typedef struct proa_scope proa_scope;
typedef struct proa_leg proa_leg;

/* A tensor of the ensemble, while somebody needs it. */
typedef struct proa_value {
    proa_tensor tensor; /* name NULL: the step gave none, or the optional input was not given */
    int64_t batch;      /* rows of the request that made it; 0: its model has no batch dimension */
    int uses;           /* steps that will still take it, and the reply */
    bool came;
} proa_value;

/* A step that runs when nothing is missing any more. */
typedef struct proa_due {
    struct proa_due *next;
    proa_scope *scope;
    int step, missing;
} proa_due;

/* The tensors of one label that belong together: those of the request, or of one reply of a decoupled step. */
struct proa_scope {
    proa_scope *next; /* in the order of the replies, if the outputs are of this label */
    int label;
    int refs; /* steps due and running in it, the place in the order */
    int outputs_missing;
    bool own;          /* malloc'd */
    bool late;         /* its reply is behind the error: nothing more is done for it */
    proa_reply *reply; /* complete, and not yet delivered */
    proa_value *values;
    proa_due *dues; /* [steps of the label] */
};

/* A step's request. */
struct proa_leg {
    proa_leg *prev, *next; /* of the run */
    proa_leg *next_waiting;
    proa_run *run;
    proa_scope *scope;
    proa_infer *request;
    int step;
    bool waiting; /* for room; under the limit's lock */
};

/* max_inflight_requests: legs of one step, of all runs together. */
typedef struct proa_limit {
    pthread_mutex_t lock;
    pthread_cond_t room; /* fewer wait */
    proa_leg *first, *last;
    int waiting;
    uint32_t inflight;
    bool starting; /* somebody starts who waited */
} proa_limit;

typedef struct proa_ensemble {
    proa_scheduler *scheduler;
    proa_graph *graph;
    proa_limit *limits; /* [steps]; NULL: no limit */
    uint32_t inflight_max;
} proa_ensemble;

struct proa_run {
    pthread_mutex_t lock;
    proa_ensemble *ensemble;
    proa_infer *request;
    proa_model **models;             /* [steps] held; NULL: not needed */
    const bool *needed;              /* [steps]; NULL: all */
    proa_due *due[2], **due_last[2]; /* ready to start: those that take long, then brief ones */
    proa_scope *root, *out_first, *out_last;
    proa_leg *legs;
    int inflight;                /* legs that have not ended */
    bool driven, finished, told; /* told: after a failure the legs that nobody needs were cancelled */
    bool drains;     /* after a failure: replies that were under way before it are still delivered */
    proa_err *error; /* the first; NULL: none yet */
    int64_t input_ns, infer_ns, output_ns;
};

/* ---- ensemble.c ---- */

/* A reply of a step; and a step that could not start. */
void proa_run_reply(proa_infer *step, proa_reply *reply, bool final);
bool proa_run_has_due(proa_run *run); /* is a step ready that has not been started? */
void proa_leg_failed(proa_leg *leg, const proa_err *err);

/* ---- ensemble_leg.c ---- */

/* The request of a step from the tensors of its scope; they go to it. Under the run's lock. */
proa_leg *proa_leg_new(proa_run *run, proa_due *due);
/* Starts it, now or when there is room. Without a lock. */
void proa_leg_start(proa_leg *leg);
/* After its final reply: makes room for another. */
void proa_leg_ended(proa_ensemble *e, int step);
/* A leg that waits for room ends CANCELLED; another is told. Without a lock; the caller holds its request. */
void proa_leg_cancel(proa_leg *leg);
/* A decoupled step has sent a reply from an instance's thread: it waits while the steps after it have no room. */
void proa_leg_hold_back(proa_ensemble *e, const proa_infer *request, int step);
/* Batch to no batch and back: t becomes as io wants it; batch is that of the value. Returns whether it fits as it is. */
void proa_value_fit(proa_tensor *t, const proa_value *value, const proa_io *io, bool batched);
proa_status proa_limits_open(proa_ensemble *e, uint32_t inflight_max);
void proa_limits_close(proa_ensemble *e);

#endif
