/* SPDX-License-Identifier: Apache-2.0
 * process.h - one stub process: its start, packets out and in, its end.
 * Owner:   proa_pyprocess_start/free. Its arena and view are counted: they may outlive it.
 * Threads: start, receive, end and free by one thread, which must live as long as the process does: the
 *          kernel kills the stub when that thread ends (PR_SET_PDEATHSIG), however it ends. send, wake and
 *          kill from any thread.
 * Way in:  start, send OPEN, receive until it says -1, end, free. */
#ifndef PROA_PYTHON_PROCESS_H
#define PROA_PYTHON_PROCESS_H

#include "python/arena.h"

typedef struct proa_pyprocess proa_pyprocess;

typedef struct proa_pyprocess_options {
    const char *name;               /* for the process list and messages: the instance's */
    const char *python;             /* path of the interpreter */
    const char *const *environment; /* NULL-terminated "NAME=value" beside our own environment, winning; NULL: none */
    int64_t memory_bytes;           /* private memory that it may take (RLIMIT_DATA); 0: any */
    int64_t arena_bytes, keep_bytes; /* of each arena; memory that an arena keeps though it is free */
} proa_pyprocess_options;

PROA_MUST_CHECK proa_status proa_pyprocess_start(proa_pyprocess **out, const proa_pyprocess_options *options,
                                                 proa_err *err);
typedef struct proa_pyprocess_use {
    int64_t memory_bytes; /* resident, shared memory included */
    double cpu_s;         /* user and system time */
} proa_pyprocess_use;
/* What the process uses, of /proc; zeros once it has ended. */
void proa_pyprocess_read_use(const proa_pyprocess *p, proa_pyprocess_use *use);
proa_pyarena *proa_pyprocess_arena(const proa_pyprocess *p);
proa_pyview *proa_pyprocess_view(const proa_pyprocess *p);
/* One packet; never blocks: what the socket does not take waits. False if the stub is gone. */
bool proa_pyprocess_send(proa_pyprocess *p, const proa_python_message *messages, int count);
/* The messages of the next packet, at most `cap`: their number; 0 after timeout_ms (-1: none) or a wake; -1:
 * the stub has ended, or what came is no packet. */
int proa_pyprocess_receive(proa_pyprocess *p, proa_python_message *messages, int cap, int timeout_ms);
void proa_pyprocess_wake(proa_pyprocess *p);
/* For how long looks have found it stopped (SIGSTOP), the first of them at 0 and the last being this one;
 * else 0. A debugger's stops do not count. */
int64_t proa_pyprocess_stopped_ms(proa_pyprocess *p);
void proa_pyprocess_kill(proa_pyprocess *p);
/* Gives it patience_ms to end by itself, kills it and its children if it does not, and waits. *how is filled with
 * "ended with exit status 3" or "was killed by signal 11 (Segmentation fault)". True: exit status 0. */
bool proa_pyprocess_end(proa_pyprocess *p, int patience_ms, char *how, size_t how_bytes);
void proa_pyprocess_free(proa_pyprocess *p); /* after end */

#endif
