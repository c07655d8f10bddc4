/* SPDX-License-Identifier: Apache-2.0
 * channel_end.h - the worker process's end of the channel, for processes that are written in C.
 * Owner:   proa_channel_open; it lasts until the process ends.
 * Threads: receive by one thread; send from any.
 * Way in:  proa_channel_open first, before any other thread runs. */
#ifndef PROA_PROCESS_CHANNEL_END_H
#define PROA_PROCESS_CHANNEL_END_H

#include "process/arena.h"

typedef struct proa_channel proa_channel;

/* Takes the descriptors of enum proa_process_fds. INVALID: the process has not inherited them. */
PROA_MUST_CHECK proa_status proa_channel_open(proa_channel **out, size_t keep, proa_err *err);
proa_shared_arena *proa_channel_arena(const proa_channel *e); /* what this process sends */
proa_shared_view *proa_channel_view(const proa_channel *e);   /* what the server sends */
/* One packet; waits while the socket is full. False: the server is gone. */
bool proa_channel_send(proa_channel *e, const proa_channel_message *messages, int count);
/* The messages of the next packet, at most `cap`: their number; 0 after timeout_ms (-1: no limit); -1: the server is
 * gone. */
int proa_channel_receive(proa_channel *e, proa_channel_message *messages, int cap, int timeout_ms);
/* Ends the channel: the server sees that this process has ended. */
void proa_channel_shutdown(proa_channel *e);

#endif
