/* SPDX-License-Identifier: Apache-2.0
 * infer_pb.h - inside api: ModelInferRequest to a request of inference, a reply to ModelInferResponse, without message
 * structs between: tensors stay where they are in the message, answers go out from the tensors' buffers.
 * Rules and texts are Triton's (reference/triton.md 1.7).
 * Owner:   inputs hold the buffer of the message; all else is in the request's or the reply's arena.
 * Threads: none of its own.
 * Way in:  proa_infer_pb_scan, proa_infer_pb_fill; proa_reply_pb_write. */
#ifndef PROA_API_GRPC_INFER_PB_H
#define PROA_API_GRPC_INFER_PB_H

#include "serve/infer.h"
#include <sys/uio.h>

typedef struct proa_pb_list { /* of parts of the message */
    proa_str *items;
    int32_t count, cap;
} proa_pb_list;

/* What an output is wanted as, where that is not plain bytes. */
typedef struct proa_pb_want {
    const char *output;
    int64_t classes;     /* K of a classification; 0: none */
    proa_buffer *region; /* of shared memory, held; NULL: none */
    uint64_t region_bytes;
} proa_pb_want;

typedef struct proa_infer_pb {
    proa_str bytes;    /* the message ... */
    proa_buffer *body; /* ... in this buffer; inputs come to hold it */
    /* A region of shared memory: *out is a new reference. */
    proa_status (*region)(void *arg, const char *name, uint64_t offset, uint64_t bytes, proa_buffer **out,
                          proa_err *err);
    void *region_arg;
    /* made by scan */
    proa_str model_name, version, id;
    proa_pb_list params, inputs, outputs, raw;
    /* made by fill */
    bool empty_final; /* triton_enable_empty_final_response */
    proa_pb_want *wants;
    int wants_count;
} proa_infer_pb;

/* Takes the message apart, one level deep, and sets r's model_name and id. INVALID if it is not protobuf. */
proa_status proa_infer_pb_scan(proa_infer_pb *m, proa_infer *r, proa_err *err);
/* Inputs, outputs and parameters into r. On failure r holds a part and is to be dropped. */
proa_status proa_infer_pb_fill(proa_infer_pb *m, proa_infer *r, proa_err *err);
void proa_infer_pb_release(proa_infer_pb *m); /* drops the regions of wants; the rest is r's */

/* Converts outputs as wanted: to classes, or into shared memory (which leaves an entry without bytes). */
proa_status proa_reply_pb_apply(const proa_infer_pb *m, const proa_served_model *model, proa_reply *reply,
                                proa_err *err);
/* Are the outputs in shared memory still readable? A client may have shortened its region. */
proa_status proa_reply_pb_check(const proa_reply *reply, proa_err *err);

typedef enum proa_pb_final { PROA_PB_UNARY, PROA_PB_MORE, PROA_PB_FINAL } proa_pb_final;
typedef struct proa_reply_pb { /* in the reply's arena and its tensors */
    struct iovec *iov;
    int count;
    size_t bytes;
} proa_reply_pb;
/* A reply without error. UNARY: a ModelInferResponse; else a ModelStreamInferResponse with triton_final_response.
 * INVALID if it has more than 2 GiB. */
proa_status proa_reply_pb_write(proa_reply_pb *out, proa_reply *reply, proa_pb_final final, proa_err *err);

/* A ModelStreamInferResponse without tensors: what failed, or the empty final one (error ""). */
typedef struct proa_stream_note {
    proa_str error, id, model_name, model_version;
    bool has_final, final; /* triton_final_response */
} proa_stream_note;
proa_str proa_stream_note_write(proa_arena *arena, const proa_stream_note *note);

#endif
