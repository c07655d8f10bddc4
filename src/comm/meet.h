/* SPDX-License-Identifier: Apache-2.0
 * meet.h - how processes of several hosts get a link to rank 0: it listens on a port of its own, and tells the others
 * its addresses and a secret by another way (MPI). They connect and show the secret.
 * Owner:   sockets are the caller's. Threads: any. */
#ifndef PROA_COMM_MEET_H
#define PROA_COMM_MEET_H

#include "base/status.h"
#include <stdint.h>

/* Opens a port that the system chooses. invitation [size]: what proa_meet_join needs. IO with the system's reason. */
PROA_MUST_CHECK proa_status proa_meet_invite(int *fd, char *invitation, int64_t size, proa_err *err);
/* Accepts the ranks 1 to ranks - 1 in any order: link[rank]. UNAVAILABLE, naming one, if not all come in time. A
 * connection without the secret is closed. */
PROA_MUST_CHECK proa_status proa_meet_accept(int fd, const char *invitation, int *link, int32_t ranks,
                                             proa_err *err);
/* Connects to rank 0 by the first of its addresses that answers. */
PROA_MUST_CHECK proa_status proa_meet_join(int *link, const char *invitation, int32_t rank, proa_err *err);

#endif
