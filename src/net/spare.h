/* SPDX-License-Identifier: Apache-2.0
 * spare.h - descriptors that are held in reserve: where the process has no more, one is closed and a connection
 * accepted in its place, so that health and metrics still answer.
 * Owner:   a listener has one reserve for each of its loops.
 * Threads: a reserve is its loop's. All reserves share a lock: what one closes must not go to the accept of another. */
#ifndef PROA_NET_SPARE_H
#define PROA_NET_SPARE_H

#include "base/compiler.h"
#include "base/limits.h"
#include <stdbool.h>

typedef struct proa_spare {
    int fds[PROA_SPARE_DESCRIPTORS]; /* open for nothing but to be closed where accept finds no descriptor */
    int count;
    bool in_use; /* between open and close */
} proa_spare;

void proa_spare_open(proa_spare *spare);
void proa_spare_close(proa_spare *spare); /* also of one that was never opened */
/* True if it has all its descriptors, or has them again now. */
bool proa_spare_refill(proa_spare *spare);
/* Closes the socket of a connection that has ended, and refills the reserve. */
void proa_spare_end(proa_spare *spare, int fd);
/* Both return a socket that does not block, or -1 with errno: EAGAIN if no connection waits. The second one gives a
 * descriptor of the reserve away for it; it has one. */
int proa_spare_accept(int listening_fd);
int proa_spare_accept_instead(proa_spare *spare, int listening_fd);

#endif
