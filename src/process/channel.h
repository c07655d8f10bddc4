/* SPDX-License-Identifier: Apache-2.0
 * channel.h - the protocol between the server and a worker process: packets of fixed messages, payloads in shared
 *             memory. The same in Python: src/python/stub/proa_channel.py. README.md says what each message means.
 *
 *     packet  = 1 to PROA_CHANNEL_PACKET_MAX messages of 40 bytes on a SOCK_SEQPACKET pair; little-endian throughout
 *     payload = a block in the sender's arena; it belongs to the receiver, who gives it back by the arena's ring
 *
 *     payload: u32 head_bytes | u32 tensors | u32 cancelled | u32 0
 *              tensors x { u64 place | u64 at | u64 bytes | u32 type | u32 rank | u32 name_at | u32
 *              name_bytes | i64 shape[16] } head (JSON text; 0 bytes: nothing to say), names, data of the
 *              tensors at multiples of 64
 *     name_at counts from the payload's begin, `at` from the begin of the arena that `place` names.
 *
 * Owner:   the bytes belong to who holds the block; nothing here allocates.
 * Threads: none of its own. What a process sends is checked like any outside input. */
#ifndef PROA_PROCESS_CHANNEL_H
#define PROA_PROCESS_CHANNEL_H

#include "base/limits.h"
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

#define PROA_CHANNEL_PROTOCOL 1 /* an argument of the process, which ends at once if it has another number */

typedef enum proa_channel_kind {
    /* server to process */
    PROA_CHANNEL_OPEN = 1, /* head: what to load (README.md); answered by OPENED */
    PROA_CHANNEL_EXECUTE, /* id: the instance, from 0; number: that many REQUEST follow in this packet; answered by
                             RESPONSEs and DONE */
    PROA_CHANNEL_REQUEST, /* id, payload */
    PROA_CHANNEL_ANSWER,  /* to the CALL of this id: head {"error","code"} or the call's own */
    PROA_CHANNEL_REPLY,   /* to the INFER of this id, FINAL with the last; the payload may be absent then */
    PROA_CHANNEL_READY,   /* is_ready(); answered by READINESS */
    PROA_CHANNEL_CLOSE,   /* finalize(); the process then closes the socket and ends */
    /* process to server */
    PROA_CHANNEL_STARTED = 64, /* the program runs; head {} or {"error"} */
    PROA_CHANNEL_OPENED,       /* head: {} or {"error"}; {"config"} after auto_complete_config */
    PROA_CHANNEL_RESPONSE,     /* id of a REQUEST, FINAL with the last; no payload: only the flag */
    PROA_CHANNEL_DONE, /* execute of instance `id` has ended; head {"error","code"}: what it raised, for all of its
                          requests without a final response */
    PROA_CHANNEL_CALL,  /* id, head {"kind",...}: model control, metrics; answered by ANSWER */
    PROA_CHANNEL_POST,  /* head {"kind",...}: log and others without an answer */
    PROA_CHANNEL_INFER, /* id, head and tensors: a request to another model; answered by one REPLY or more */
    PROA_CHANNEL_INFER_CANCEL, /* id of an INFER */
    PROA_CHANNEL_READINESS     /* head {"ready":bool} or {"error"} */
} proa_channel_kind;

enum proa_channel_flags {
    PROA_CHANNEL_FINAL = 1 << 0,
    PROA_CHANNEL_RESCHEDULE = 1 << 1,     /* RESPONSE, final: the request wants to come once more */
    PROA_CHANNEL_DEVICE_OUTPUTS = 1 << 2, /* REQUEST: outputs may stay in the memory of a GPU */
};

typedef struct proa_channel_message {
    uint32_t kind, flags;
    uint64_t id;
    uint64_t at, bytes; /* the payload's block in the sender's arena; 0, 0: none */
    uint64_t number;
} proa_channel_message;
_Static_assert(sizeof(proa_channel_message) == 40, "part of the protocol");

typedef struct proa_channel_payload {
    uint32_t head_bytes, tensors;
    uint32_t cancelled; /* of a REQUEST: the server sets it to 1 while the process has it */
    uint32_t zero;
} proa_channel_payload;

enum proa_channel_place {
    PROA_CHANNEL_OWN = 0, /* inside this payload's own block */
    PROA_CHANNEL_BLOCK = 2, /* a block of its own of the sender's arena, from its begin; the receiver gives it back */
    PROA_CHANNEL_PEER = 1, /* RESPONSE: inside the block of the very REQUEST that is answered: an input passed on */
    /* In the memory of a GPU, all of which is the server's; `bytes` are the tensor's: */
    PROA_CHANNEL_DEVICE = 3, /* to the process: what is inside the payload's block is a proa_channel_device */
    PROA_CHANNEL_LEASED = 4, /* to the server: `at` is the number of a lease that a CALL "device_memory" gave */
    PROA_CHANNEL_INPUT = 5, /* RESPONSE: all bytes of input `at` (0: the first) of the REQUEST that is answered */
};

/* Where the bytes of a tensor are. A process of Python may write there. It gives the payload's block back when it no
 * longer uses the tensor and the GPU has nothing left to do with it. */
typedef struct proa_channel_device {
    uint64_t memory; /* its number: memory of the same number has the same handle and stays open */
    uint64_t offset; /* of the tensor, from the begin of the memory */
    uint32_t gpu;    /* N of "cuda:N" */
    uint32_t zero;
    char handle[64]; /* a cudaIpcMemHandle_t */
} proa_channel_device;
_Static_assert(sizeof(proa_channel_device) == 88, "part of the protocol");

typedef struct proa_channel_tensor {
    uint64_t place, at, bytes; /* place: proa_channel_place */
    uint32_t type;             /* proa_type: the numbers of model_config.proto */
    uint32_t rank;             /* 0..16 */
    uint32_t name_at, name_bytes;
    int64_t shape[16];
} proa_channel_tensor;
_Static_assert(sizeof(proa_channel_tensor) == 168, "part of the protocol");

/* Messages of a packet: an EXECUTE and PROA_BATCH_REQUESTS_MAX requests, or as many responses and DONE. */
#define PROA_CHANNEL_PACKET_MAX (PROA_BATCH_REQUESTS_MAX + 1)

/* ---- arenas ----
 * A memfd for each direction, written by one side only (but for the ring and `cancelled`): its owner
 * allocates, alone and with bookkeeping of its own, so nothing the other side writes can confuse it. At its
 * begin lies the ring by which the other side gives blocks back: PROA_CHANNEL_RING words; who gives a block
 * back writes its `at` into the next word if that is 0, and keeps it for later if not; the owner takes the
 * words in order and writes 0. Blocks follow, at multiples of 64. */
#define PROA_CHANNEL_RING       8192
#define PROA_CHANNEL_DATA_BEGIN ((uint64_t)PROA_CHANNEL_RING * 8)

#endif
