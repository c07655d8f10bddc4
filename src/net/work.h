/* SPDX-License-Identifier: Apache-2.0
 * work.h - threads for what takes longer than a loop may: large bodies, decompression, loads of models.
 * Owner:   work is a member of the caller's struct, and the workers' from proa_workers_start until done is called.
 * Threads: start from any thread; run on a worker; done on the work's loop.
 * Way in:  proa_workers_new, proa_workers_start. */
#ifndef PROA_NET_WORK_H
#define PROA_NET_WORK_H

#include "net/loop.h"

typedef struct proa_handoff proa_handoff;
typedef struct proa_workers proa_workers;

typedef struct proa_work_item {
    proa_loop_task task; /* first */
    proa_loop *loop;
    void (*run)(struct proa_work_item *work);  /* on a worker */
    void (*done)(struct proa_work_item *work); /* then on the loop; may free the work */
    struct proa_work_item *next;
    proa_handoff *handoff; /* work.c's own: done is called only after this handoff has ended */
} proa_work_item;

/* At most `threads` threads, started as they are needed; at most `waiting` works wait for them. Each thread calls
 * at_end, unless that is NULL, as its last. */
proa_workers *proa_workers_new(int threads, int waiting, void (*at_end)(void));
/* Runs waiting work, ends the threads, and accepts no work from then on. NULL is fine. */
void proa_workers_end(proa_workers *workers);
void proa_workers_free(proa_workers *workers); /* after proa_workers_end, when no thread can start work; NULL is fine */
/* False, and nothing was done, when too many wait or the workers have ended. */
PROA_MUST_CHECK bool proa_workers_start(proa_workers *workers, proa_work_item *work);

/* ---- handoffs: a request that a worker handles ---- The code that handles a request runs on a worker as it does on
 * the loop: for this time the request is offloaded, and tasks of the loop that would touch it (replies, works that it
 * began) wait until it is back. */
proa_handoff *proa_handoff_new(void);           /* offloaded, one reference */
void proa_handoff_enter(proa_handoff *handoff); /* on the worker, before the request is handled ... */
void proa_handoff_leave(void);                  /* ... and after */
proa_handoff *proa_handoff_current(void); /* the one entered on this thread, as a new reference; NULL: none */
bool proa_handoff_pending(const proa_handoff *handoff); /* is it still offloaded? Loop's thread; NULL is fine: false */
void proa_handoff_wait(proa_handoff *handoff, proa_loop_task *task); /* runs the task when it is back. Loop's thread */
void proa_handoff_finish(proa_handoff *handoff);                     /* it is back. Loop's thread */
void proa_handoff_run_waiting(proa_handoff *handoff); /* after finish: the tasks that waited. Loop's thread */
void proa_handoff_drop(proa_handoff *handoff);        /* any thread; NULL is fine */

#endif
