/* SPDX-License-Identifier: Apache-2.0
 * service.h - inside api: the RPCs of inference.GRPCInferenceService, a file for each kind.
 * Owner:   a call's memory is its arena; what may outlive the call is marked.
 * Threads: all on the loop's thread of the call.
 * Way in:  proa_grpc_v2 (service.c) finds the method and starts it. */
#ifndef PROA_API_GRPC_SERVICE_H
#define PROA_API_GRPC_SERVICE_H

#include "api/grpc/infer_pb.h"
#include "api/internal.h"

/* An RPC with one small message each way: answers with *out, made in the arena, or fails. */
typedef proa_status proa_rpc_fn(proa_api *api, proa_arena *arena, const ProtobufCMessage *in,
                                ProtobufCMessage **out, proa_err *err);

typedef struct proa_rpc {
    const char *path;
    proa_category category;
    const ProtobufCMessageDescriptor *in; /* of run */
    proa_rpc_fn *run;
    /* Instead of run: sets the callbacks of a call that does more. */
    void (*start)(proa_api *api, proa_grpc_call *call);
} proa_rpc;

/* A table of a kind's methods, ending with path NULL. */
extern const proa_rpc proa_rpc_health[], proa_rpc_models[], proa_rpc_control[];
/* infer.c, stream.c */
void proa_rpc_infer(proa_api *api, proa_grpc_call *call);
void proa_rpc_stream(proa_api *api, proa_grpc_call *call);

/* The message that on_message has now, taken into a buffer. */
proa_buffer *proa_rpc_take(proa_grpc_call *call, size_t len);
/* A message becomes a request. */
typedef struct proa_rpc_read {
    proa_api *api;
    proa_infer *r;
    proa_infer_pb *m;
    bool unary;     /* refuses a model that is decoupled and may not answer such a call */
    bool decoupled; /* set: the model is */
} proa_rpc_read;
/* Fills r from a message: model, inputs, parameters, deadline, forwarded metadata; inputs hold the message's memory. m
 * is to be released also after a failure. */
proa_status proa_rpc_request(proa_rpc_read *read, proa_grpc_call *call, proa_str message, proa_err *err);

/* A large message on a worker: proa_rpc_request, and then proa_server_infer with `sink`. It is in r's arena. */
typedef struct proa_rpc_long {
    proa_work_item work; /* first */
    proa_rpc_read read;  /* its r is held */
    proa_handoff *handoff;
    proa_sink *sink;
    void (*on_reply)(proa_sink *sink, proa_reply *reply, bool final);
    void (*prepare)(proa_sink *sink, proa_reply *reply); /* of replies, where the message wants classes or regions */
    const proa_grpc_header *metadata;                    /* of the call, copied where a pattern needs it */
    int metadata_count;
    proa_status status; /* not PROA_OK: it was refused, and the sink is not in use */
    proa_err err;
    void (*done)(struct proa_rpc_long *l); /* on the loop; replies come after it. Drops what the caller holds of r */
} proa_rpc_long;
bool proa_rpc_is_long(proa_str message);
/* Takes the message that on_message has now. UNAVAILABLE, and done is not called, when too many wait. */
proa_status proa_rpc_start_long(proa_rpc_long *l, proa_grpc_call *call, proa_str message, proa_err *err);

#endif
