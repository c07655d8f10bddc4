/* SPDX-License-Identifier: Apache-2.0
 * comms.h - what the processes of ranks exchange, through files in memory, by MPI, or between their GPUs: all ranks,
 * those of a stage, and those of the other stages with the same part of their layers.
 * Owner:   the caller closes comms after the model was freed. Threads: the rank's. */
#ifndef PROA_ENGINE_COMMS_H
#define PROA_ENGINE_COMMS_H

#include "comm/mpi/mpi.h"
#include "model/ranks/ranks.h"

/* Of one rank. Where one of the groups is all ranks, it is `all`; files that are not needed are -1. */
enum { PROA_RANK_FILE_ALL, PROA_RANK_FILE_STAGE, PROA_RANK_FILE_PIPE, PROA_RANK_FILES };

/* The files of all ranks: fds [ranks][PROA_RANK_FILES]. Several ranks have the same; proa_rank_files_close. */
PROA_MUST_CHECK proa_status proa_rank_files_make(int (*fds)[PROA_RANK_FILES], int32_t ranks, int32_t stages,
                                                 proa_err *err);
void proa_rank_files_close(int (*fds)[PROA_RANK_FILES], int32_t ranks, int32_t stages);
/* Opens those of one rank. */
PROA_MUST_CHECK proa_status proa_rank_comms_open(proa_rank_comms *c, const int fds[PROA_RANK_FILES],
                                                 int32_t rank, int32_t ranks, int32_t stages, proa_err *err);
/* The same by MPI, among all its ranks, which call it in the same order. */
PROA_MUST_CHECK proa_status proa_rank_comms_open_mpi(proa_rank_comms *c, const proa_mpi *mpi, int32_t stages,
                                                     proa_err *err);
/* A group of MPI has failed: its ranks do not listen any more. Whether one has. */
void proa_rank_comms_mpi_fail(void);
bool proa_rank_comms_mpi_failed(void);
/* All ranks call it: what those of a stage, and of a pipeline, exchange goes between the devices from now on
 * (kernels/connect.h); `control` stays. Nothing changes on the CPU. */
PROA_MUST_CHECK proa_status proa_rank_comms_connect(proa_rank_comms *c, proa_device *d, int32_t stages,
                                                    proa_err *err);
/* Whether what they exchange was stopped: by this rank or another one, or because it has failed. Not for `control`.
 * Any thread. */
bool proa_rank_comms_stopped(const proa_rank_comms *c);
void proa_rank_comms_stop(const proa_rank_comms *c); /* any thread, also while another one connects */
void proa_rank_comms_close(proa_rank_comms *c);

#endif
