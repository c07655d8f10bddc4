/* SPDX-License-Identifier: Apache-2.0
 * comm.h - collectives between the ranks of a model, and messages from one to another. A rank is a part of a model with
 * a device of its own; all ranks of a group call the same collectives in the same order, with the same shapes. Views
 * are in the memory of the rank's device; on a GPU a call is in order with the kernels of that rank. Names are those of
 * MPI and NCCL.
 * Owner:   one proa_comm for each rank, closed by it. The last one to be closed frees what they share.
 * Threads: the thread of the rank; stop from any thread.
 * Way in:  proa_comm_open_threads for ranks that are threads of this process, proa_comm_open_shared for processes of
 *          one host. */
#ifndef PROA_COMM_COMM_H
#define PROA_COMM_COMM_H

#include "base/status.h"
#include "tensor/view.h"

#define PROA_COMM_KEPT       8
#define PROA_COMM_KEPT_BYTES (64 << 10)

typedef struct proa_comm proa_comm;
struct proa_comm {
    int32_t rank, ranks; /* 0 <= rank < ranks */
    /* y[t,i] = residual[t,i] + the sum of x[t,i] of all ranks, added in the order of the ranks in f32: all get the same
     * bits. x [T,d]; y and residual likewise; y may be the residual or x, which may be overwritten. A residual without
     * axes (residual.rank 0): none. The rows of each follow each other. 16 bits (kernels/ops.def): x; y with residual;
     * each by itself. */
    void (*all_reduce)(proa_comm *c, proa_view y, proa_view x, proa_view residual);
    /* y[t, r * d + i] = x[t,i] of rank r, of those columns that y [T,D] has. x [T,d] has one shape in all ranks. */
    void (*gather_columns)(proa_comm *c, proa_view y, proa_view x);
    /* Rows of x [T,d], of any type, go to rank `to`, which receives as many into y [T,d] of that type. The rows of each
     * follow each other. send may return before the other rank receives: what two ranks send each other arrives in the
     * order of the calls. On the host, PROA_COMM_KEPT messages of at most PROA_COMM_KEPT_BYTES are sent without waiting
     * for the receiver. */
    void (*send)(proa_comm *c, proa_view x, int32_t to);
    void (*recv)(proa_comm *c, proa_view y, int32_t from);
    void (*close)(proa_comm *c);
    /* The bytes of rank `root` in all ranks; memory of the host. NULL: not by these collectives. */
    void (*broadcast)(proa_comm *c, void *bytes, int64_t size, int32_t root);
    /* All ranks of the group return from what they wait for, and wait for nothing any more: the results of this and of
     * all later calls are undefined. NULL: the ranks are threads, which do not fail one by one. */
    void (*stop)(proa_comm *c);
    bool (*stopped)(proa_comm *c);
};

/* out[ranks], for threads of this process. ranks: 1..PROA_RANKS_MAX. NO_MEMORY names the number of bytes. */
PROA_MUST_CHECK proa_status proa_comm_open_threads(proa_comm **out, int32_t ranks, proa_err *err);
/* For processes of one host: all open the same file, of proa_comm_shared_file, which stays the caller's. Errors as
 * above; CORRUPT if the file is of another number of ranks. */
PROA_MUST_CHECK proa_status proa_comm_open_shared(proa_comm **out, int fd, int32_t rank, int32_t ranks,
                                                  proa_err *err);
/* A file without a name, in memory (memfd_create(2)). */
PROA_MUST_CHECK proa_status proa_comm_shared_file(int *fd, int32_t ranks, proa_err *err);
void proa_comm_close(proa_comm *c); /* NULL is fine */

#endif
