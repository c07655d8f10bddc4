/* SPDX-License-Identifier: Apache-2.0
 * child.h - processes for the ranks of this host: the program itself, started once more.
 * Threads: any. */
#ifndef PROA_COMM_CHILD_H
#define PROA_COMM_CHILD_H

#include "base/status.h"
#include <stdbool.h>
#include <sys/types.h>

/* Such a process inherits descriptors from this number on. */
enum { PROA_CHILD_FDS = 3, PROA_CHILD_FDS_MAX = 4 };

/* Starts `proa rank`, with fds [count] as descriptors 3, 4, ... and no others but the standard ones; those that are -1
 * are left out. The program is this one if it is proa; else (a program that uses the library) the one that
 * PROA_RANK_PROGRAM names, or the first on PATH. IO if it cannot be started. */
PROA_MUST_CHECK proa_status proa_child_start(pid_t *pid, const int *fds, int count, proa_err *err);
/* Ends it, unless it has ended, and waits for that. */
void proa_child_end(pid_t pid);
/* How a process has ended: "was killed by signal 9", "ended with status 1"; an empty text: it runs. */
void proa_child_fate(pid_t pid, char *text, size_t size);

#endif
