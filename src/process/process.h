/* SPDX-License-Identifier: Apache-2.0
 * process.h - one worker process: its start, packets out and in, its end.
 * Owner:   proa_process_start/free. Its arena and view are counted: they may outlive it.
 * Threads: start, receive, end and free by one thread, which must live as long as the process does: the
 *          kernel kills the process when that thread ends (PR_SET_PDEATHSIG), however it ends. send, wake and
 *          kill from any thread.
 * Way in:  start, send OPEN, receive until it says -1, end, free. */
#ifndef PROA_PROCESS_PROCESS_H
#define PROA_PROCESS_PROCESS_H

#include "process/arena.h"

typedef struct proa_process proa_process;

/* What the process inherits beside standard error, to which its standard output goes too. */
enum proa_process_fds {
    PROA_PROCESS_FD_SOCKET = 3,
    PROA_PROCESS_FD_ARENA, /* the server's: the process reads it */
    PROA_PROCESS_FD_VIEW,  /* its own: the server reads it */
    PROA_PROCESS_FD_EXTRA
};

typedef struct proa_process_options {
    const char *program;     /* path of the executable file */
    const char *const *argv; /* its arguments with argv[0], NULL-terminated */
    const char *const *environment; /* NULL-terminated "NAME=value" beside our own environment, winning; NULL: none */
    int64_t memory_bytes;           /* private memory that it may take (RLIMIT_DATA); 0: any */
    int extra_fd;                   /* inherited as PROA_PROCESS_FD_EXTRA; stays the caller's; 0: none */
    bool removes_regions;           /* what it leaves behind in /dev/shm is removed unless it ends well */
    int64_t arena_bytes, keep_bytes; /* of each arena; memory that an arena keeps though it is free */
} proa_process_options;

PROA_MUST_CHECK proa_status proa_process_start(proa_process **out, const proa_process_options *options,
                                               proa_err *err);
typedef struct proa_process_use {
    int64_t memory_bytes; /* resident, shared memory included */
    double cpu_s;         /* user and system time */
} proa_process_use;
/* What the process uses, of /proc; zeros once it has ended. */
void proa_process_read_use(const proa_process *p, proa_process_use *use);
proa_shared_arena *proa_process_arena(const proa_process *p);
proa_shared_view *proa_process_view(const proa_process *p);
/* One packet; never blocks: what the socket does not take waits. False if the process is gone. */
bool proa_process_send(proa_process *p, const proa_channel_message *messages, int count);
/* The messages of the next packet, at most `cap`: their number; 0 after timeout_ms (-1: none) or a wake; -1:
 * the process has ended, or what came is no packet. */
int proa_process_receive(proa_process *p, proa_channel_message *messages, int cap, int timeout_ms);
void proa_process_wake(proa_process *p);
/* For how long looks have found it stopped (SIGSTOP), the first of them at 0 and the last being this one;
 * else 0. A debugger's stops do not count. */
int64_t proa_process_stopped_ms(proa_process *p);
/* Remembers what the process has in /dev/shm now, for its end; nothing without removes_regions. The thread of start. */
void proa_process_note_regions(proa_process *p);
void proa_process_kill(proa_process *p);
/* Gives it patience_ms to end by itself, kills it and its children if it does not, and waits. *how is filled with
 * "ended with exit status 3" or "was killed by signal 11 (Segmentation fault)". True: exit status 0. */
bool proa_process_end(proa_process *p, int patience_ms, char *how, size_t how_bytes);
void proa_process_free(proa_process *p); /* after end */

#endif
