/* SPDX-License-Identifier: Apache-2.0
 * processes.h - the processes of ranks 1 and up, as rank 0 has them: started, greeted, watched, and ended together. If
 * one of them dies, hangs or cannot be reached, the group has failed: all waits of its collectives end, and the others
 * are ended too.
 * Owner:   the rank set. Threads: the stepping thread; proa_rank_processes_failed from any. */
#ifndef PROA_ENGINE_PROCESSES_H
#define PROA_ENGINE_PROCESSES_H

#include "engine/ranks/comms.h"
#include "engine/ranks/greeting.h"

typedef struct proa_rank_processes proa_rank_processes;
typedef void proa_rank_notify(void *arg, const proa_err *why);

/* Starts a process for each rank above 0 on this host, or takes those that MPI has started (mpi not NULL), and lets
 * each open its part of the model while the caller opens that of rank 0. open: as for rank 0. notify: called on another
 * thread when the group fails, with the reason. UNAVAILABLE, IO, or INVALID for another version, names the rank. */
PROA_MUST_CHECK proa_status proa_rank_processes_start(proa_rank_processes **out, const proa_rank_open *open,
                                                      const proa_mpi *mpi, proa_rank_notify *notify,
                                                      void *arg, proa_err *err);
/* All ranks have opened the model, and it is that of rank 0, by proa_rank_model_print. Else the first failure. */
PROA_MUST_CHECK proa_status proa_rank_processes_opened(proa_rank_processes *p, uint64_t print, proa_err *err);
/* Waits for the result of a call in all other ranks; status: that of rank 0, which comes first. */
PROA_MUST_CHECK proa_status proa_rank_processes_result(proa_rank_processes *p, proa_status status, proa_err *err);
/* What rank 0 exchanges with the others; closed with the group. */
const proa_rank_comms *proa_rank_processes_comms(const proa_rank_processes *p);
/* proa_rank_comms_connect of rank 0, whose device d is. */
PROA_MUST_CHECK proa_status proa_rank_processes_connect(proa_rank_processes *p, proa_device *d, proa_err *err);
/* Rank 0 begins a call of a step, or has ended it. On a GPU a call that lasts longer than proa_rank_open.wait_ms fails
 * the group: rank 0 waits for the thread of another rank, which hangs. */
void proa_rank_processes_step(proa_rank_processes *p, bool begins);
/* UNAVAILABLE with the reason if the group has failed. */
PROA_MUST_CHECK proa_status proa_rank_processes_failed(proa_rank_processes *p, proa_err *err);
/* The same; a group whose collectives have failed by themselves fails now. */
PROA_MUST_CHECK proa_status proa_rank_processes_check(proa_rank_processes *p, proa_err *err);
/* The processes are about to end, because the model is freed: that is no failure from now on. */
void proa_rank_processes_expect_end(proa_rank_processes *p);
/* Of a group that has failed, or fails now with `why`: ends all processes, and all waits for them. It can only be
 * closed then. */
void proa_rank_processes_end(proa_rank_processes *p, const proa_err *why);
/* Ends all processes that have not ended; NULL is fine. */
void proa_rank_processes_close(proa_rank_processes *p);

#endif
