/* SPDX-License-Identifier: Apache-2.0
 * greeting.h - what rank 0 and the process of another rank exchange over their link (comm/link.h), in this order:
 *
 *   rank 0 -> rank   HELLO    both sides compare versions
 *   rank -> rank 0   HELLO
 *   rank 0 -> rank   OPEN     the model and how to open it
 *   rank -> rank 0   RESULT   of opening; later of each call that has one (model/ranks/call.h)
 *   rank -> rank 0   SILENT   its GPU does not reach those of the others any more; it ends
 *
 * Owner:   texts of a message belong to it. Threads: any. */
#ifndef PROA_ENGINE_GREETING_H
#define PROA_ENGINE_GREETING_H

#include "comm/link.h"
#include "comm/rank_message.h"
#include "model/model.h"

enum { PROA_FRAME_HELLO = PROA_FRAME_FIRST, PROA_FRAME_OPEN, PROA_FRAME_RESULT, PROA_FRAME_SILENT };

/* The form of calls and frames; counted up when it changes. */
enum { PROA_RANK_PROTOCOL = 7 };

typedef struct proa_rank_hello {
    char magic[8];     /* "proarank" */
    char version[32];  /* of the program */
    uint32_t protocol; /* PROA_RANK_PROTOCOL */
    uint32_t structs;  /* of the sizes of what calls contain: builds that differ in one do not fit */
    int32_t rank, ranks, stages; /* of the receiver; 0 in the answer */
} proa_rank_hello;

void proa_rank_hello_make(proa_rank_hello *hello, int32_t rank, int32_t ranks, int32_t stages);
/* INVALID, naming both versions, if the other side is not the same program. rank: of that side. */
PROA_MUST_CHECK proa_status proa_rank_hello_check(const proa_rank_hello *other, int32_t rank, proa_err *err);

typedef struct proa_rank_open {
    const char *path, *device;
    int32_t threads; /* of this rank */
    int32_t node;    /* the NUMA node on whose CPUs it runs; -1: all */
    int32_t wait_ms; /* of proa_collectives_wait_ms */
    proa_model_options model;
} proa_rank_open;
/* Writes or reads it. */
void proa_rank_open_message(proa_rank_message *m, proa_rank_open *open);

typedef struct proa_rank_result {
    int32_t status; /* proa_status */
    uint64_t model; /* of opening: proa_rank_model_print */
    char text[sizeof((proa_err *)0)->text];
} proa_rank_result;

/* A number that differs, but for accident, if a rank has other files of the model: of its configuration, of the names,
 * types and shapes of its tensors, and of numbers here and there. Of a folder with a part for each rank: without the
 * tensors. */
uint64_t proa_rank_model_print(const proa_model *m);

#endif
