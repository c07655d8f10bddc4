/* SPDX-License-Identifier: Apache-2.0
 * nccl.h - NCCL, NVIDIA's collectives between GPUs of one host or of several. The library libnccl.so.2 is opened when
 * it is needed, by its binary interface: nothing of it is needed to build. Memory and streams are CUDA's.
 * Owner:   proa_nccl_join/close.
 * Threads: the thread of the rank; stop, stopped and submitted from any.
 * Way in:  proa_nccl_open in all ranks, proa_nccl_make_id in one of them, proa_nccl_join in all. */
#ifndef PROA_KERNELS_NCCL_H
#define PROA_KERNELS_NCCL_H

#include "base/status.h"
#include "tensor/dtype.h"
#include <stdbool.h>

/* PROA_NCCL names another file in place of libnccl.so.2. */
#define PROA_NCCL_LIBRARY "libnccl.so.2"
enum { PROA_NCCL_ID_BYTES = 128 };

typedef struct proa_nccl_comm proa_nccl_comm;
typedef bool proa_nccl_stop_fn(void *arg);

/* Opens the library, once for the process. *version: 10000 major + 100 minor + patch, as NCCL counts. UNSUPPORTED says
 * what to install, or which version is needed. */
PROA_MUST_CHECK proa_status proa_nccl_open(int32_t *version, proa_err *err);
/* What all ranks of a group must have to find each other. */
PROA_MUST_CHECK proa_status proa_nccl_make_id(char id[PROA_NCCL_ID_BYTES], proa_err *err);
/* A rank of a group. */
typedef struct proa_nccl_place {
    const char *id; /* [PROA_NCCL_ID_BYTES] of the group */
    int32_t rank, ranks;
} proa_nccl_place;
/* Returns when all ranks of the group have joined with the same id. The current GPU of this thread is the rank's.
 * UNAVAILABLE with NCCL's reason, if a rank does not come within PROA_RANK_START_MS, or once is_stopped(arg). */
PROA_MUST_CHECK proa_status proa_nccl_join(proa_nccl_comm **out, proa_nccl_place place,
                                           proa_nccl_stop_fn *is_stopped, void *arg, proa_err *err);

/* From now on the comm is stopped when none of the calls that were submitted ends for wait_ms, because another rank's
 * GPU, or what is between, hangs without an error. *ended: how many have, which the GPU counts there; it lives as long
 * as the comm. A call of the host that waits for other ranks has the same limit. */
void proa_nccl_watch(proa_nccl_comm *c, const volatile uint32_t *ended, int32_t wait_ms);
/* The GPU will make so many more calls: a call below, or a recording with some that is launched. */
void proa_nccl_submitted(proa_nccl_comm *c, uint32_t calls);

/* In order with the kernels of the stream, which may be recorded. A call that fails stops the comm. */
/* y[i] = the sum of x[i] of all ranks, added in that type: f32, f16 or bf16. y may be x. */
void proa_nccl_all_reduce(proa_nccl_comm *c, void *y, const void *x, int64_t count, proa_dtype dtype,
                          void *stream);
/* y: the bytes of all ranks, one rank's after the other's. */
void proa_nccl_all_gather(proa_nccl_comm *c, void *y, const void *x, int64_t bytes, void *stream);
void proa_nccl_send(proa_nccl_comm *c, const void *x, int64_t bytes, int32_t to, void *stream);
void proa_nccl_recv(proa_nccl_comm *c, void *y, int64_t bytes, int32_t from, void *stream);

/* Kernels of this comm that run end, and later calls do nothing (ncclCommAbort, in a thread of the comm). */
void proa_nccl_stop(proa_nccl_comm *c);
/* It was stopped, NCCL has failed, or a call has taken too long. */
bool proa_nccl_stopped(proa_nccl_comm *c);
/* All kernels have ended, and no recording has one. Waits for the other ranks for a short time. NULL is fine. */
void proa_nccl_close(proa_nccl_comm *c);

#endif
