/* SPDX-License-Identifier: Apache-2.0
 * sched.h - inside the schedulers: their common part, the kinds, and the executor.
 * Owner:   a scheduler owns its instance slots, one for each instance, and their threads.
 * Threads: fields that the lock guards are marked; counters are atomic. No callback is called with the lock held.
 * Way in:  proa_scheduler_kind, then executor.c for how requests reach instances. */
#ifndef PROA_SERVE_SCHED_H
#define PROA_SERVE_SCHED_H

#include "serve/sched/queue.h"
#include "serve/scheduler.h"
#include "serve/stats/stats.h"
#include "serve/sched/alarm.h"
#include <pthread.h>

typedef struct proa_order proa_order; /* order.h */
typedef struct proa_instance_slot proa_instance_slot;

typedef struct proa_scheduler_kind {
    const char *name;
    proa_status (*open)(proa_scheduler *s, proa_err *err);
    void (*close)(proa_scheduler *s); /* nothing waits, no thread runs; also after an open that failed */
    /* r is held and its times are set. On failure nothing remains of it. */
    proa_status (*enqueue)(proa_scheduler *s, proa_infer *r, proa_err *err);
    /* Under the lock: the batch that a free instance executes now. Takes up to slot->cap requests out of the queue
     * into slot->batch and returns how many; with `peek` it only returns how many it would take. 0: nothing now;
     * *again_ns may be set to when to try again without a new request. Requests that end without execution go to
     * proa_executor_end. */
    int (*take)(proa_scheduler *s, proa_instance_slot *slot, int64_t now_ns, bool peek, int64_t *again_ns);
    /* Optional. Before execute, without the lock: completes the requests of a batch (controls, states). */
    void (*prepare)(proa_scheduler *s, proa_instance_slot *slot, int count);
    /* Optional. A reply arrived; false: it is not delivered (the request was the scheduler's own, or is scheduled
     * again). */
    bool (*replied)(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final);
    /* The alarm fires: ends requests that have waited too long; returns when to fire next. NULL:
     * proa_executor_expire. */
    int64_t (*expire)(proa_scheduler *s, int64_t now_ns);
    bool (*admits)(const proa_infer *r); /* optional: accepts r even while stopping (a sequence continues) */
} proa_scheduler_kind;

extern const proa_scheduler_kind proa_sched_direct, proa_sched_dynamic, proa_sched_sequence,
    proa_sched_ensemble, proa_sched_own;

/* An instance, and the thread and batch that execute on it. */
struct proa_instance_slot {
    PROA_ALIGNED(64) atomic_bool taken; /* a thread executes here */
    int index;
    proa_scheduler *scheduler;
    proa_instance *instance;
    proa_infer **batch; /* [cap]: the batch in execution */
    int cap;
    pthread_t thread;
    bool has_thread, has_rate; /* the rate limiter knows the instance */
};

struct proa_scheduler {
    const proa_scheduler_kind *kind;
    proa_served_model *model;
    void *state;   /* the kind's */
    bool cached;   /* replies may come from the cache */
    bool reshapes; /* an output has another shape on the wire */
    bool on_caller; /* INLINE: callers execute, and a helper thread takes the rest; else each slot has a thread */
    int64_t inline_rows_max;  /* on_caller: when more rows wait, they are the helper's */
    bool pinned;              /* waiting requests belong to certain slots */
    const char *expired_text; /* error text of a request that has timed out; NULL: the usual */
    bool eager;        /* a request that finds an instance free and nothing waiting runs at once, alone */
    proa_order *order; /* replies are delivered in the order of the requests; NULL: as they arrive */
    proa_alarm alarm;
    atomic_bool stopping;
    PROA_ALIGNED(64) atomic_llong busy; /* calls inside, and requests without their final reply */
    atomic_llong waiting;               /* not yet executing: those of the queue */
    /* the executor */
    pthread_mutex_t lock; /* guards what follows, and the kind's state */
    pthread_cond_t wake;  /* a batch may be ready */
    proa_sched_queue queue;
    proa_infer *ended, **ended_last; /* taken out without execution, linked by next: CANCELLED or expired */
    int idle;                        /* threads that wait */
    int64_t wake_rows; /* with fewer queued rows a push does not wake threads that wait for a batch */
    uint64_t pushes;
    bool notified;     /* the helper must look at the queue */
    bool stop_threads; /* threads must end */
    proa_instance_slot *slots;
    int slots_count;
    pthread_t helper;
    bool has_helper;
};

/* ---- scheduler.c ---- */

/* What proa_infer_reply calls for each reply before the sink gets it, and with final before the references are dropped:
 * statistics, order (preserve_ordering), output reshape, cache insertion, ensemble bookkeeping. Returns false if the
 * scheduler keeps the reply and delivers it itself later (proa_infer_deliver). */
bool proa_scheduler_replied(proa_scheduler *s, proa_infer *r, proa_reply *reply, bool final);

/* The request has ended: counts it out. Just before its final reply is delivered. */
static inline void proa_scheduler_ended(proa_scheduler *s)
{
    atomic_fetch_sub(&s->busy, 1);
}

/* ---- refuse.c ---- */

/* CANCELLED: what a request is refused with that is cancelled before it is queued. */
proa_status proa_infer_refuse_cancelled(proa_infer *r, proa_err *err);
/* Takes the scheduler's watch back from a request that is refused. The watcher sets ticket.cancel_handled last: if a
 * cancel has called it, this waits until it has returned, because the request is no longer the scheduler's on
 * return. */
void proa_scheduler_unwatch(proa_infer *r);
/* Ends r, which is in no queue any more, with an error that the scheduler found. */
void proa_scheduler_fail(proa_infer *r, const proa_err *err, proa_fail_reason reason);
void proa_scheduler_cancelled(proa_infer *r); /* the same, with CANCELLED */

/* ---- executor.c ---- */

proa_status proa_executor_open(proa_scheduler *s, int cap, proa_err *err); /* cap: requests of one execution */
void proa_executor_close(proa_scheduler *s); /* threads end, the queue is empty */
/* Runs r now on a free instance (eager), or queues it. */
proa_status proa_executor_enqueue(proa_scheduler *s, proa_infer *r, proa_err *err);
/* A batch may be ready now: free threads look at the queue. Without the lock. */
void proa_executor_wake(proa_scheduler *s);
void proa_executor_notify(proa_scheduler *s); /* ... but only the scheduler's own threads */
/* ... for take and expire, under the lock: */
void proa_executor_pushed(proa_scheduler *s); /* one more waits, in the kind's own queue */
/* Takes r out of the queue, to be executed; false: it is cancelled, and ends. */
bool proa_executor_dequeue(proa_scheduler *s, proa_infer *r);
/* False: r's time in the queue is over; it ends or has moved back (look for the next one before). */
bool proa_executor_check(proa_scheduler *s, proa_infer *r, int64_t now_ns);
/* r, which is in no queue any more, ends after the lock was released: CANCELLED, or timed out. */
void proa_executor_end(proa_scheduler *s, proa_infer *r);
void proa_executor_end_all(proa_scheduler *s);                   /* without the lock */
int64_t proa_executor_expire(proa_scheduler *s, int64_t now_ns); /* s->queue's time-outs */
bool proa_executor_on_instance_thread(void); /* is this an instance's thread, which may wait? */

#endif
