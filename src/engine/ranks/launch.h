/* SPDX-License-Identifier: Apache-2.0
 * launch.h - ranks that mpirun has started, on one host or several: each process runs the same command line, rank 0
 * does what it says, and the others follow the models that rank 0 opens.
 * Threads: main's, before and after a command. */
#ifndef PROA_ENGINE_LAUNCH_H
#define PROA_ENGINE_LAUNCH_H

#include "base/status.h"
#include <stdbool.h>

/* If this process was started by MPI with others, opens it. *followed: this is a rank above 0, which has done its work;
 * the result is that of the process. UNSUPPORTED if MPI cannot be opened. Not started by MPI: nothing. */
PROA_MUST_CHECK proa_status proa_launch_begin(bool *followed, proa_err *err);
/* Rank 0: the other ranks end. */
void proa_launch_end(void);

#endif
