/* SPDX-License-Identifier: Apache-2.0
 * work.h - threads for what takes longer than a loop may: large bodies, decompression, loads of models.
 * Owner:   work is a member of the caller's struct, and the workers' from proa_workers_start until done is called.
 * Threads: start from any thread; run on a worker; done on the work's loop.
 * Way in:  proa_workers_new, proa_workers_start. */
#ifndef PROA_NET_WORK_H
#define PROA_NET_WORK_H

#include "net/loop.h"

typedef struct proa_loan proa_loan;
typedef struct proa_workers proa_workers;

typedef struct proa_work {
    proa_loop_task task; /* first */
    proa_loop *loop;
    void (*run)(struct proa_work *work);  /* on a worker */
    void (*done)(struct proa_work *work); /* then on the loop; may free the work */
    struct proa_work *next;
    proa_loan *loan; /* work.c's own: what has to be back before done is called */
} proa_work;

/* At most `threads` threads, started as they are needed; at most `waiting` works wait for them. Each thread calls at_end,
 * unless that is NULL, as its last. */
proa_workers *proa_workers_new(int threads, int waiting, void (*at_end)(void));
/* Runs what still waits, ends the threads, and takes no work from then on. NULL is fine. */
void proa_workers_end(proa_workers *workers);
void proa_workers_free(proa_workers *workers); /* after proa_workers_end, when nobody can start work; NULL is fine */
/* False, and nothing was done, when too many wait or the workers have ended. */
PROA_MUST_CHECK bool proa_workers_start(proa_workers *workers, proa_work *work);

/* ---- loans: a request that a worker handles ----
 * The code that handles a request runs on a worker as it does on the loop: for this time the request is lent, and tasks of
 * the loop that would touch it (replies, works that it began) wait until it is back. */
proa_loan *proa_loan_new(void);            /* lent, one reference */
void proa_loan_enter(proa_loan *loan);     /* on the worker, before the request is handled ... */
void proa_loan_leave(void);                /* ... and after */
proa_loan *proa_loan_here(void);           /* what this worker has, as a new reference; else NULL */
bool proa_loan_out(const proa_loan *loan); /* is it still lent? Loop's thread; NULL is fine: false */
void proa_loan_wait(proa_loan *loan, proa_loop_task *task); /* runs the task when it is back. Loop's thread */
void proa_loan_back(proa_loan *loan);                       /* it is back. Loop's thread */
void proa_loan_run_waiting(proa_loan *loan);                /* after that: what waited. Loop's thread */
void proa_loan_drop(proa_loan *loan);                       /* any thread; NULL is fine */

#endif
