/* SPDX-License-Identifier: Apache-2.0
 * connect.h - collectives between GPUs of which each belongs to a process of its own, on one host or on several. The
 * ranks tell each other over a comm of the host what they have (a card); GPUs of one host then write to each other's
 * memory (CUDA IPC), those of several hosts use NCCL.
 *
 *   PROA_COLLECTIVES=auto   the default: memory where all ranks of the group are on one host and it can be opened
 *   PROA_COLLECTIVES=peer   memory, or an error
 *   PROA_COLLECTIVES=nccl   NCCL everywhere
 *   PROA_COLLECTIVES_WAIT=8 seconds after which a sum or message that does not end counts as a failure
 *
 * Owner:   the comm is the caller's. Threads: that of the rank. */
#ifndef PROA_KERNELS_CONNECT_H
#define PROA_KERNELS_CONNECT_H

#include "kernels/device.h"
#include "kernels/nccl.h"

/* Ranks first, first + step, ... of all, `count` of them. */
typedef struct proa_rank_line {
    int32_t first, step, count;
} proa_rank_line;

/* All ranks of `control`, which has proa_comm.broadcast and stopped, call it at the same time, each with the line of
 * ranks that it belongs to: *out connects those. *waits: a message that is sent may wait for its receiver, however
 * short it is (NCCL); the same in all ranks of the line. control: only used in this call. The comm has stop and
 * stopped; the latter also once a rank has waited for the others too long, or NCCL has failed. UNSUPPORTED, INVALID or
 * UNAVAILABLE names the rank that cannot be connected, in all ranks of its line. */
PROA_MUST_CHECK proa_status proa_device_connect(proa_comm **out, bool *waits, proa_device *d,
                                                proa_comm *control, proa_rank_line line, proa_err *err);
/* How many GPUs this process sees; 0 if there is no plug-in. */
int32_t proa_device_visible(void);

/* ---- for the plug-in ---- */

#define PROA_CUDA_CONNECT "proa_cuda_connect_line"
#define PROA_CUDA_VISIBLE "proa_cuda_visible"
typedef proa_status proa_cuda_connect_fn(proa_comm **out, bool *waits, proa_device *d, proa_comm *control,
                                         proa_rank_line line, proa_err *err);
typedef int32_t proa_cuda_visible_fn(void);

typedef enum proa_collectives {
    PROA_COLLECTIVES_AUTO,
    PROA_COLLECTIVES_PEER,
    PROA_COLLECTIVES_NCCL
} proa_collectives;

/* What a rank says of itself. */
typedef struct proa_gpu_card {
    int32_t status; /* proa_status: of what it has done so far, with the reason */
    char text[256];
    int32_t collectives; /* proa_collectives; that of rank 0 counts */
    int32_t wait_ms;     /* for the others, at most; that of rank 0 counts */
    char host[96];       /* the same for processes that can open each other's memory */
    char gpu[40];        /* its UUID */
    char memory[64];     /* a cudaIpcMemHandle_t */
    char nccl_id[PROA_NCCL_ID_BYTES];
    int32_t nccl;      /* the library's version; 0: it was not opened */
    int64_t nccl_from; /* sums of so many bytes of terms go by NCCL; 0: none. That of rank 0 counts */
} proa_gpu_card;

/* How long a GPU waits for another one. INVALID: PROA_COLLECTIVES_WAIT is no number of seconds; *ms is set all the
 * same. */
PROA_MUST_CHECK proa_status proa_collectives_wait_ms(int32_t *ms, proa_err *err);
/* Fills collectives, wait_ms and host. INVALID: a variable has no such value; the card is filled all the same. */
PROA_MUST_CHECK proa_status proa_gpu_card_make(proa_gpu_card *card, proa_err *err);
/* Notes a failure, for the other ranks; the first one counts. */
void proa_gpu_card_fail(proa_gpu_card *card, proa_status status, const proa_err *err);
/* all [control->ranks] = the cards of all ranks. UNAVAILABLE: control was stopped. */
PROA_MUST_CHECK proa_status proa_gpu_cards_exchange(proa_gpu_card *all, const proa_gpu_card *own,
                                                    proa_comm *control, proa_err *err);
/* The first failure among the ranks of a line. */
PROA_MUST_CHECK proa_status proa_gpu_cards_failed(const proa_gpu_card *all, proa_rank_line line, proa_err *err);
/* *peer: they exchange by memory. INVALID: two have the same GPU, or PROA_COLLECTIVES cannot be followed. */
PROA_MUST_CHECK proa_status proa_gpu_cards_choose(bool *peer, const proa_gpu_card *all, proa_rank_line line,
                                                  proa_err *err);
/* UNSUPPORTED: their libraries differ. */
PROA_MUST_CHECK proa_status proa_gpu_cards_check_nccl(const proa_gpu_card *all, proa_rank_line line,
                                                      proa_err *err);

#endif
