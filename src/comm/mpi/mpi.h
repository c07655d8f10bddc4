/* SPDX-License-Identifier: Apache-2.0
 * mpi.h - the processes that mpirun has started, on one host or several. MPI libraries differ in their binary
 * interface, so the calls are in a plug-in, libproa_mpi.so, which is built with the library of the host and opened at
 * run time.
 * Owner:   one world for the process. Threads: any; MPI is opened with MPI_THREAD_MULTIPLE.
 * Way in:  proa_mpi_open, once, when proa_mpi_launched. */
#ifndef PROA_COMM_MPI_H
#define PROA_COMM_MPI_H

#include "comm/comm.h"

/* What rank 0 announces to the others, which wait for it. */
enum { PROA_MPI_TEXT = 512 };

/* What the plug-in exports: one function that fills this table. */
typedef struct proa_mpi {
    int32_t rank, ranks;
    int32_t local; /* among the ranks of this host */
    /* All ranks: rank 0's text in all of them. UNAVAILABLE once the world was stopped. */
    proa_status (*announce)(char text[PROA_MPI_TEXT], proa_err *err);
    /* All ranks, in the order of the announcements: collectives among those that give the same group (>= 0); ranks in
     * the group are in the order of their ranks in the world. */
    proa_status (*open_comm)(proa_comm **out, int32_t group, proa_err *err);
    void (*progress)(void);   /* lets MPI go on with messages that were sent before; any thread */
    void (*end)(bool failed); /* the last call; failed: MPI_Abort, which ends all ranks */
} proa_mpi;

/* Whether this process was started by mpirun, srun or the like, with others. */
bool proa_mpi_launched(void);
/* *out stays valid. UNSUPPORTED with what is missing; the second call returns the first one's result. */
PROA_MUST_CHECK proa_status proa_mpi_open(const proa_mpi **out, proa_err *err);
/* The world that was opened; NULL: none. */
const proa_mpi *proa_mpi_world(void);

#define PROA_MPI_PLUGIN  "libproa_mpi.so"
#define PROA_MPI_ENTRY   "proa_mpi_start"
#define PROA_MPI_VERSION 3
typedef proa_status proa_mpi_start_fn(int version, proa_mpi *out, proa_err *err);

#endif
