/* SPDX-License-Identifier: Apache-2.0
 * sched.h - inside the schedulers: their common part, the kinds, and the crew that works for them.
 * Owner:   a scheduler owns its seats, one for each instance, and the threads that work there.
 * Threads: what the lock guards is said; counters are atomic. No callback is called with the lock held.
 * Way in:  proa_scheduler_kind, then crew.c for how requests come to instances. */
#ifndef PROA_SERVE_SCHED_H
#define PROA_SERVE_SCHED_H

#include "serve/sched/queue.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include "serve/sched/alarm.h"
#include <pthread.h>

typedef struct proa_order proa_order; /* order.h */
typedef struct proa_seat proa_seat;

typedef struct proa_scheduler_kind {
    const char *name;
    proa_status (*open)(proa_scheduler *s, proa_err *err);
    void (*close)(proa_scheduler *s); /* nothing waits, no thread runs; also after an open that failed */
    /* r is held and its times are set. On failure nothing remains of it. */
    proa_status (*enqueue)(proa_scheduler *s, proa_infer *r, proa_err *err);
    /* Under the lock: what a free instance executes now. Takes up to seat->cap requests out of the queue into
     * seat->batch and returns how many; with `look` it only says how many it would take. 0: nothing now, and *again_ns
     * may be set to when to ask again without a new request. What must end without execution goes to proa_crew_end. */
    int (*take)(proa_scheduler *s, proa_seat *seat, int64_t now_ns, bool look, int64_t *again_ns);
    /* Optional. Before execute, without the lock: completes the requests of a batch (controls, states). */
    void (*prepare)(proa_scheduler *s, proa_seat *seat, int count);
    /* Optional. A reply came; false: the request was the scheduler's own or is kept, nobody hears of it. */
    bool (*replied)(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final);
    /* The alarm goes off: ends what has waited too long; returns when to fire next. NULL: proa_crew_expire. */
    int64_t (*expire)(proa_scheduler *s, int64_t now_ns);
    bool (*admits)(const proa_infer *r); /* optional: also while it stops (a sequence goes on) */
} proa_scheduler_kind;

extern const proa_scheduler_kind proa_sched_direct, proa_sched_dynamic, proa_sched_sequence,
    proa_sched_ensemble, proa_sched_own;

/* An instance and who works on it. */
struct proa_seat {
    PROA_ALIGNED(64) atomic_bool taken; /* somebody executes here */
    int index;
    proa_scheduler *scheduler;
    proa_instance *instance;
    proa_infer **batch; /* [cap]: what is executed now */
    int cap;
    pthread_t thread;
    bool has_thread, has_rate; /* the rate limiter knows the instance */
};

struct proa_scheduler {
    const proa_scheduler_kind *kind;
    proa_model *model;
    void *state;        /* the kind's */
    bool cached;        /* replies may come from the cache */
    bool reshapes;      /* an output has another shape on the wire */
    bool on_caller;     /* INLINE: callers execute, and one thread helps out; else each seat has a thread */
    int64_t brief_rows; /* on_caller: when more rows wait, they are the helper's */
    bool pinned;        /* what waits belongs to certain seats */
    const char *expired_text; /* of a request whose time is over, if not the usual */
    bool eager;        /* a request that finds an instance free and nothing waiting runs at once, alone */
    proa_order *order; /* replies leave in the order of the requests; NULL: as they come */
    proa_alarm alarm;
    atomic_bool stopping;
    PROA_ALIGNED(64) atomic_llong busy; /* calls inside, and requests whose final reply has not come */
    atomic_llong waiting;               /* not yet executing: those of the queue */
    /* the crew */
    pthread_mutex_t lock; /* of what follows, and of what the kind says */
    pthread_cond_t wake;  /* there may be something to take */
    proa_queue queue;
    proa_infer *ended, **ended_last; /* taken out without execution, linked by next: CANCELLED or expired */
    int idle;                        /* threads that wait */
    int64_t wake_rows; /* a push of fewer queued rows need not wake those who wait for a batch */
    uint64_t pushes;
    bool called; /* the helper is to look */
    bool leave;  /* threads go home */
    proa_seat *seats;
    int seats_count;
    pthread_t helper;
    bool has_helper;
};

/* ---- scheduler.c ---- */

/* "Server is stopping, ..." */
proa_status proa_scheduler_refuse(const proa_infer *r, proa_err *err);
proa_status proa_infer_refuse_cancelled(proa_infer *r, proa_err *err);
/* Takes the scheduler's watch back from a request that is refused. The watcher sets ticket.heard last: if a cancel has
 * called it, this waits until it is through, since the request is no longer the scheduler's on return. */
void proa_scheduler_unwatch(proa_infer *r);
/* The request has ended: counts it out. Just before its final reply is delivered. */
void proa_scheduler_ended(proa_scheduler *s);
/* Ends r, which is in no queue any more, with an error that the scheduler found. */
void proa_scheduler_fail(proa_infer *r, const proa_err *err, proa_fail_reason reason);
void proa_scheduler_cancelled(proa_infer *r);

/* ---- crew.c ---- */

proa_status proa_crew_open(proa_scheduler *s, int cap, proa_err *err); /* cap: requests of one execution */
void proa_crew_close(proa_scheduler *s);                               /* threads end, the queue is empty */
/* Runs r now on a free instance (eager), or queues it. */
proa_status proa_crew_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err);
/* Something may be taken now: whoever is free looks. Without the lock. */
void proa_crew_wake(proa_scheduler *s);
void proa_crew_call(proa_scheduler *s); /* ... but only the crew's own threads */
/* ... for take and expire, under the lock: */
void proa_crew_pushed(proa_scheduler *s); /* one more waits, in the kind's own queue */
/* Takes r out of the queue, to be executed; false: it is cancelled, and ends. */
bool proa_crew_pick(proa_scheduler *s, proa_infer *r);
/* False: r's time in the queue is over; it ends or has moved back (look for the next one before). */
bool proa_crew_keep(proa_scheduler *s, proa_infer *r, int64_t now_ns);
/* r, in no queue any more, ends when the lock has been left: CANCELLED, or expired. */
void proa_crew_end(proa_scheduler *s, proa_infer *r);
void proa_crew_end_all(proa_scheduler *s);                   /* without the lock */
int64_t proa_crew_expire(proa_scheduler *s, int64_t now_ns); /* s->queue's time-outs */
bool proa_crew_is_here(void); /* is this an instance's thread, which may wait? */
/* Executes seat->batch[0..count), whose times.compute_start becomes now_ns. */
void proa_crew_execute(proa_seat *seat, int count, int64_t now_ns);

#endif
