/* SPDX-License-Identifier: Apache-2.0
 * trace.h - what happened to a sampled request of a client, and to the requests to other models that it led to.
 *
 * A front end notes where a request came from (proa_trace_origin) and begins its trace before it sends the request.
 * The trace is a list of spans: one for the request itself, and one for each step of an ensemble and each call of a
 * Python model. A span records its times and tensors when the final reply of its request is delivered. A request that
 * is not traced pays one load where it is delivered.
 *
 * Owner:   each request with a span holds one reference, until it is freed. The last one gives the trace to on_done,
 *          which owns it from then on.
 * Threads: spans are added and end on any thread, under the lock of the trace. After on_done one thread has it.
 *
 * The context of a trace (ids, traceparent, tracestate) is that of W3C Trace Context,
 * https://www.w3.org/TR/trace-context. */
#ifndef PROA_SERVE_TRACE_H
#define PROA_SERVE_TRACE_H

#include "base/limits.h"
#include "serve/infer.h"
#include <pthread.h>

enum { PROA_TRACE_TIMESTAMPS = 1, PROA_TRACE_TENSORS = 2 }; /* levels; 0: OFF */

#define PROA_TRACEPARENT_BYTES 56 /* "00-" 32 digits "-" 16 digits "-" 2 digits, and a NUL */

/* Where a request came from. In the arena of the request, and only while tracing is on. */
typedef struct proa_trace_origin {
    bool grpc;
    int64_t received_ns, read_ns;     /* the first byte has arrived; the whole request has */
    proa_str traceparent, tracestate; /* of the client's headers; empty: none */
    const char *operation; /* gen_ai.operation.name of the route: "chat"; NULL: none of a language model */
} proa_trace_origin;

typedef struct proa_trace_context {
    uint8_t trace_id[16], span_id[8]; /* span_id: of the caller */
    uint8_t flags;                    /* bit 0: the caller samples this trace */
} proa_trace_context;

typedef struct proa_trace_tensor {
    struct proa_trace_tensor *next;
    bool output;
    proa_tensor tensor; /* with a reference of its own; the name is in the arena of the trace */
} proa_trace_tensor;

/* What a backend reports of its own (TRITONSERVER_InferenceTraceReportActivity). */
typedef struct proa_trace_activity {
    struct proa_trace_activity *next;
    const char *name;
    int64_t ns;
} proa_trace_activity;

/* What a typed generation asked for. */
typedef struct proa_trace_generation {
    int64_t new_max; /* 0: the model's own limit */
    int64_t n;
    double temperature, top_p;
    int64_t top_k;
    bool stream, temperature_given, top_p_given, top_k_given;
} proa_trace_generation;

typedef struct proa_trace {
    proa_arena arena;
    pthread_mutex_t lock;
    atomic_int refs;
    unsigned level;
    int64_t frequency;        /* of files, when the trace began */
    bool ends_count;          /* it is the last one that the setting's count allows */
    proa_trace_origin origin; /* texts in the arena */
    bool has_parent;          /* `context` came from the client */
    proa_trace_context context;
    int64_t complete_ns;                  /* the final reply has reached the front end; 0: none has */
    int64_t send_start_ns, send_end_ns;   /* of the final answer; 0: nothing was sent */
    struct proa_trace_span *first, *last; /* in the order of their ids; the first one is the client's request */
    int spans;
    void (*on_done)(struct proa_trace *trace, void *arg);
    void *arg;
    struct proa_trace *next; /* of a queue */
} proa_trace;

/* One request to one model. Texts in the arena of the trace. */
typedef struct proa_trace_span {
    proa_trace *trace;
    struct proa_trace_span *next;
    int64_t id, parent; /* of all traces of the process; parent 0: none */
    uint8_t span_id[8];
    const char *model_name, *request_id;
    int64_t model_version; /* -1: no version was found */
    int64_t begun_ns;
    proa_infer_times times;
    bool ensemble; /* its times of computing are those of its steps */
    bool ended;
    const char *error; /* NULL: none */
    proa_infer_usage usage;
    const char *finishes[PROA_TRACE_FINISHES_MAX]; /* why sequences of a typed generation ended */
    int finishes_count;
    const proa_trace_generation *generation; /* NULL: not a typed generation */
    proa_trace_tensor *tensors, *tensors_last;
    proa_trace_activity *activities, *activities_last; /* at most PROA_TRACE_ACTIVITIES_MAX */
    int activities_count;
} proa_trace_span;

/* Begins a trace with the span of r, which has its model's name and origin. Fields that the caller wants to set in the
 * result, it sets before r is sent. */
proa_trace *proa_trace_begin(proa_infer *r, unsigned level, void (*on_done)(proa_trace *, void *), void *arg);
/* Adds a span for `child`, which `parent` led to; nothing if that is not traced. Before the child is sent. */
void proa_trace_add(const proa_infer *parent, proa_infer *child);
/* For proa_infer_deliver and proa_infer_drop: a reply is being delivered; the request is freed. */
void proa_trace_reply(proa_infer *r, const proa_reply *reply, bool final);
void proa_trace_leave(proa_infer *r);
/* For a backend, while it has the request: something happened at that monotonic time. The name is copied. */
void proa_trace_report(proa_trace_span *span, int64_t ns, const char *name);
/* For the front end: the final reply is about to be answered, and was answered, now. */
void proa_trace_sending(proa_infer *r);
void proa_trace_sent(proa_infer *r);
void proa_trace_free(proa_trace *trace); /* by its owner after on_done */

/* Fills *out from a traceparent header; false if it is none, or of version ff, or an id is zero. */
bool proa_trace_context_read(proa_trace_context *out, proa_str traceparent);
/* The traceparent that names a span as the caller. */
void proa_trace_context_print(char out[PROA_TRACEPARENT_BYTES], const proa_trace_span *span);
/* The same as the text that propagators of a model read: {"traceparent":"...","tracestate":"..."}. */
void proa_trace_context_json(proa_buf *out, const proa_trace_span *span);
/* A span id that no other span of the process has. */
void proa_trace_span_id(uint8_t out[8]);

#endif
