/* SPDX-License-Identifier: Apache-2.0
 * grpc.h - a gRPC server over HTTP/2 (nghttp2): calls with messages in and out, deadlines, status and trailers.
 * Follows gRPC over HTTP2 (github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md).
 * Owner:   a call belongs to its connection; it is valid until proa_grpc_finish, or until on_disconnect has returned.
 * Threads: everything on the loop thread of the call, but proa_grpc_free.
 * Way in:  proa_grpc_protocol as proa_listen_options.http2 with a proa_grpc_server as http2_server. */
#ifndef PROA_NET_GRPC_H
#define PROA_NET_GRPC_H

#include "base/arena.h"
#include "net/conn.h"
#include "net/work.h"

/* The codes of gRPC. */
enum {
    PROA_GRPC_OK,
    PROA_GRPC_CANCELLED,
    PROA_GRPC_UNKNOWN,
    PROA_GRPC_INVALID_ARGUMENT,
    PROA_GRPC_DEADLINE_EXCEEDED,
    PROA_GRPC_NOT_FOUND,
    PROA_GRPC_ALREADY_EXISTS,
    PROA_GRPC_PERMISSION_DENIED,
    PROA_GRPC_RESOURCE_EXHAUSTED,
    PROA_GRPC_FAILED_PRECONDITION,
    PROA_GRPC_ABORTED,
    PROA_GRPC_OUT_OF_RANGE,
    PROA_GRPC_UNIMPLEMENTED,
    PROA_GRPC_INTERNAL,
    PROA_GRPC_UNAVAILABLE,
    PROA_GRPC_DATA_LOSS,
    PROA_GRPC_UNAUTHENTICATED
};

typedef struct proa_grpc_header {
    proa_str name, value; /* name in lower case; "-bin" values decoded */
} proa_grpc_header;

typedef struct proa_grpc_call {
    proa_str path; /* "/inference.GRPCInferenceService/ModelInfer" */
    const proa_grpc_header *metadata;
    int metadata_count;
    int64_t deadline_ns; /* on the monotonic clock; 0: none. Passing it ends the call: DEADLINE_EXCEEDED and
                            on_disconnect */
    int64_t start_ns;
    proa_conn *conn;
    proa_arena *arena; /* lives as long as the call */
    /* on_call sets these; NULL ones are not called */
    void *user;
    /* One whole message, decompressed. bytes is valid during the call unless proa_grpc_take keeps it. */
    void (*on_message)(struct proa_grpc_call *call, proa_str bytes);
    void (*on_half_close)(struct proa_grpc_call *call); /* the client sends no more */
    void (*on_drained)(struct proa_grpc_call *call); /* the queue is short again, after proa_grpc_queued was high */
    void (*on_disconnect)(struct proa_grpc_call *call); /* cancelled, deadline passed, connection lost; the last call */
} proa_grpc_call;

typedef struct proa_grpc_server {
    void (*on_call)(proa_grpc_call *call, void *arg); /* metadata is complete; may finish it at once */
    void *arg;
    int64_t message_max;   /* bytes of one message in; 0: PROA_GRPC_MESSAGE_MAX */
    proa_workers *workers; /* decompress and compress large messages; NULL: the loop does */
    int64_t unpacked_max;  /* of a compressed one, unpacked; 0: PROA_UNPACKED_MAX */
    int32_t streams_max;   /* at once on a connection; 0: PROA_GRPC_STREAMS_MAX */
    int64_t keepalive_ms, keepalive_timeout_ms;     /* pings of ours; 0: none, and 20 s */
    int64_t connection_age_ms, connection_grace_ms; /* 0: no limit */
    int compression_level; /* of answers: 0 none, 1 low, 2 medium, 3 high (only if the client takes gzip) */
} proa_grpc_server;

extern const proa_protocol proa_grpc_protocol;

proa_str proa_grpc_get(const proa_grpc_call *call, const char *name); /* first metadata value, or ptr NULL */
/* Inside on_message: keeps the message's memory; the caller frees it with proa_grpc_free. 64-byte aligned. */
void *proa_grpc_take(proa_grpc_call *call);
void proa_grpc_free(void *message); /* any thread */
/* Sends one message, the pieces of iov one after the other. Copied if release is NULL, else kept until release(arg),
 * which may be called before this returns. */
void proa_grpc_send(proa_grpc_call *call, const struct iovec *iov, int count, void (*release)(void *arg),
                    void *arg);
size_t proa_grpc_queued(const proa_grpc_call *call); /* bytes of this call that the peer's windows hold back */
/* Stops and resumes giving messages: the window is not opened meanwhile. */
void proa_grpc_pause(proa_grpc_call *call, bool paused);
/* Ends the call with a gRPC code (0..16); message is percent-encoded here. More metadata for the trailers may follow:
 * names in lower case, "-bin" values as bytes, all copied. */
void proa_grpc_finish(proa_grpc_call *call, int code, proa_str message, const proa_grpc_header *trailers,
                      int count);

#endif
