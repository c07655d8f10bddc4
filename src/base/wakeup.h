/* SPDX-License-Identifier: Apache-2.0
 * wakeup.h - wake-ups of other threads, collected while a thread hands over work and run once at the end.
 * The engine emits the tokens of all sequences after each step. An event loop that is woken by the first of them would
 * take one token, send it, sleep again and have to be woken for the next. So a thread that hands over work many times
 * in a row begins a batch, and wakes each receiver once when the batch ends.
 * Owner:   what a wake-up's argument points to is the caller's and lives until the batch has ended.
 * Threads: each thread has a batch of its own. */
#ifndef PROA_BASE_WAKEUP_H
#define PROA_BASE_WAKEUP_H

typedef void proa_wakeup_fn(void *arg);

/* Between begin and end this thread's deferred wake-ups are collected; end runs each of them once, on this thread.
 * Batches nest: the outermost end runs them. Keep a batch short, since receivers sleep until it ends. */
void proa_wakeups_begin(void);
void proa_wakeups_end(void);

typedef enum proa_wakeup {
    PROA_WAKEUP_NOW, /* there is no batch, or it has PROA_WAKEUPS_MAX wake-ups: the caller must wake at once */
    PROA_WAKEUP_ADDED, /* wake(arg) will run at the end of the batch */
    PROA_WAKEUP_LISTED /* as ADDED, but an earlier call has added it */
} proa_wakeup;
/* Adds wake(arg) to this thread's batch, unless the batch has it already. */
proa_wakeup proa_wakeup_defer(proa_wakeup_fn *wake, void *arg);

#endif
