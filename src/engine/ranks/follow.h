/* SPDX-License-Identifier: Apache-2.0
 * follow.h - the process of a rank above 0 (`proa rank`, which rank 0 starts).
 * Threads: main's; with MPI a thread for each model. */
#ifndef PROA_ENGINE_FOLLOW_H
#define PROA_ENGINE_FOLLOW_H

#include "engine/ranks/comms.h"

/* Opens what rank 0 says, whose descriptors this process has inherited (comm/child.h), and follows it until the group
 * ends. UNSUPPORTED if there are no such descriptors; UNAVAILABLE if the group ends before its time. */
PROA_MUST_CHECK proa_status proa_rank_follow(proa_err *err);
/* The same in a process of MPI (launch.h), with a link to rank 0 and what all have opened; both become this function's.
 * If rank 0 is lost, the process ends at once. */
PROA_MUST_CHECK proa_status proa_rank_follow_link(int link, const proa_rank_comms *comms, proa_err *err);

#endif
