/* SPDX-License-Identifier: Apache-2.0
 * comm.h - collectives between GPUs over memory that they see of each other (peer access, CUDA IPC), and between GPUs
 * of several hosts (NCCL).
 * Owner:   as comm/comm.h. Threads: as there. */
#ifndef PROA_KERNELS_CUDA_COMM_COMM_H
#define PROA_KERNELS_CUDA_COMM_COMM_H

#include "kernels/cuda/runtime/cuda.h"

/* proa_device.open_comm: UNSUPPORTED names two GPUs that do not see each other's memory. */
proa_status gpu_open_comm(proa_comm **out, proa_device *const *devices, int32_t ranks, proa_err *err);

/* The memory of one of `ranks` ranks for the others: one allocation, of cudaMalloc. */
proa_status gpu_comm_memory(char **memory, gpu *g, int32_t ranks, proa_err *err);
/* The collectives of a rank of its own process: memory[rank] is its own, the others were opened by CUDA IPC. All of
 * them become the comm's. wait_ms: how long a kernel waits for the others. */
proa_status gpu_comm_of_process(proa_comm **out, gpu *g, char *const *memory, int32_t rank, int32_t ranks,
                                int32_t wait_ms, proa_err *err);
/* Sums of `from` bytes of terms and more go through `large`, which becomes the comm's. */
void gpu_comm_set_large(proa_comm *c, proa_comm *large, int64_t from);

/* Messages of ranks that are threads: none is waited for on a GPU before it was submitted on the other one, else what a
 * thread does meanwhile could need all GPUs to be idle (cuLibraryLoadData, for a kernel of cuBLASLt that comes for the
 * first time). The messages of a recorded pass are submitted each time that it is launched. */
enum { GPU_COMM_RANKS_MAX = 8 };
struct gpu_comm;
struct proa_nccl_comm;
enum { GPU_COMM_NCCL_MAX = 2 }; /* of a rank: that of its stage, and that of its pipeline */
struct gpu_comm_messages {
    gpu_comm *comm; /* NULL: there are none */
    unsigned sent[GPU_COMM_RANKS_MAX], received[GPU_COMM_RANKS_MAX];
    unsigned answers[GPU_COMM_RANKS_MAX]; /* received behind one that was sent: not waited for, they may depend on it */
    /* Calls of NCCL. */
    proa_nccl_comm *nccl[GPU_COMM_NCCL_MAX]; /* NULL: no more */
    unsigned calls[GPU_COMM_NCCL_MAX];
};
/* Those that this thread has recorded since the last call. */
gpu_comm_messages gpu_comm_take_recorded(void);
/* A call of NCCL was recorded. */
void gpu_comm_record_call(proa_nccl_comm *nccl);
/* Before a recorded pass is launched: returns when what it receives was submitted. And after it. */
void gpu_comm_before_launch(const gpu_comm_messages *m);
void gpu_comm_launched(const gpu_comm_messages *m);

/* From how many bytes of terms on sums of so many ranks go by NCCL; 0: none, GPU_COMM_TIMES: that is to be timed
 * (threshold.cu). */
enum { GPU_COMM_TIMES = -1 };
int64_t gpu_comm_large_from(gpu *g, int32_t ranks);
/* All ranks at the same time: times both and keeps the result, which may differ from another rank's. */
int64_t gpu_comm_time_both(gpu *g, proa_comm *peer, proa_comm *nccl);

/* The same table over NCCL (nccl.cu). nccl becomes the comm's, also if this fails. */
proa_status gpu_comm_of_nccl(proa_comm **out, gpu *g, proa_nccl_comm *nccl, int32_t rank, int32_t ranks,
                             int32_t wait_ms, proa_err *err);

#endif
