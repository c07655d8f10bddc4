/* SPDX-License-Identifier: Apache-2.0
 * link.h - streams between rank 0 and the processes of the other ranks: what is exchanged when they start, results, and
 * heartbeats, by which each side learns within PROA_RANK_SILENCE_MS that the other has died, hangs, or cannot be
 * reached. A frame is a kind and some bytes.
 * Owner:   proa_links_open/close; it owns the sockets.
 * Threads: any; the functions of proa_link_events are called on a thread of the links.
 * Way in:  proa_link_send and proa_link_receive while ranks greet each other, then proa_links_open. */
#ifndef PROA_COMM_LINK_H
#define PROA_COMM_LINK_H

#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

enum { PROA_FRAME_HEARTBEAT, PROA_FRAME_FIRST }; /* kinds from FIRST on are the caller's */

/* A frame to receive. */
typedef struct proa_link_frame {
    uint32_t kind;
    void *bytes;  /* the caller's */
    int64_t room; /* how many it may have */
    int64_t size; /* how many it has, once it is received */
} proa_link_frame;

/* One frame on a socket that is not in proa_links. UNAVAILABLE if the other side has ended, or does not answer before
 * the time limit; CORRUPT if what comes is no frame, is larger than `room`, or has another kind. Heartbeats are passed
 * over. */
PROA_MUST_CHECK proa_status proa_link_send(int fd, uint32_t kind, const void *bytes, int64_t size, proa_err *err);
PROA_MUST_CHECK proa_status proa_link_receive(int fd, proa_link_frame *frame, int64_t timeout_ms, proa_err *err);

typedef struct proa_links proa_links;
typedef struct proa_link_events {
    /* NULL: frames are passed over. */
    void (*received)(void *arg, int32_t link, uint32_t kind, const void *bytes, int64_t size);
    /* The link is closed: nothing else comes of it. why: a clause such as "has not answered for 5 s". */
    void (*lost)(void *arg, int32_t link, const char *why);
    /* About each second: time to look at what only this process sees. NULL: none. */
    void (*beat)(void *arg);
    void *arg;
} proa_link_events;

/* fds [count] become links 0, 1, ...; also if this fails, they are the links'. */
PROA_MUST_CHECK proa_status proa_links_open(proa_links **out, const int *fds, int32_t count,
                                            const proa_link_events *events, proa_err *err);
/* Sends a frame; a link that was lost takes and drops it. */
void proa_links_send(proa_links *l, int32_t link, uint32_t kind, const void *bytes, int64_t size);
/* Closes all links and ends their thread; not from `events`. NULL is fine. */
void proa_links_close(proa_links *l);

#endif
