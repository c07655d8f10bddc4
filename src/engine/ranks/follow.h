/* SPDX-License-Identifier: Apache-2.0
 * follow.h - the process of a rank above 0 (`proa rank`, which rank 0 starts).
 * Threads: main's. */
#ifndef PROA_ENGINE_FOLLOW_H
#define PROA_ENGINE_FOLLOW_H

#include "base/status.h"

/* Opens what rank 0 says, whose descriptors this process has inherited (comm/child.h), and follows it until the group
 * ends. UNSUPPORTED if there are no such descriptors; UNAVAILABLE if the group ends before its time. */
PROA_MUST_CHECK proa_status proa_rank_follow(proa_err *err);

#endif
