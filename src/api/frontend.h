/* SPDX-License-Identifier: Apache-2.0
 * frontend.h - what the front ends share: access rules, delivery of replies to a loop, work that may block, settings.
 * Threads: stated at each function. */
#ifndef PROA_API_FRONTEND_H
#define PROA_API_FRONTEND_H

#include "api/api.h"
#include "net/grpc/grpc.h"
#include "net/http.h"

/* ---- the front ends: each handles the paths that are its own; false: not one of them (router.c answers 404) ---- */
bool proa_http_v2(proa_api *api, proa_http_exchange *x);          /* /v2..., http_v2*.c */
bool proa_openai(proa_api *api, proa_http_exchange *x);           /* /v1..., openai */
bool proa_openai_other(proa_api *api, proa_http_exchange *x);     /* /rerank, /v2/rerank, /tokenize, ... */
bool proa_console(proa_api *api, proa_http_exchange *x);          /* /, /console, /figures, console */
bool proa_metrics_frontend(proa_api *api, proa_http_exchange *x); /* /metrics, metrics.c */
void proa_grpc_v2(proa_grpc_call *call, void *api); /* proa_grpc_server.on_call: grpc/service.c and the files it
                                                       names */

proa_server *proa_api_server(const proa_api *api);
size_t proa_api_body_max(const proa_api *api); /* --http-max-input-size, also after decompression */

/* ---- access: loop thread ---- */

/* Answers 403 (415 for the type of a control request, 401 for a missing or wrong bearer token) itself and returns
 * false if this category is closed. */
bool proa_http_allowed(proa_api *api, proa_http_exchange *x, proa_category category);
bool proa_grpc_allowed(proa_api *api, proa_grpc_call *call, proa_category category); /* finishes the call */
/* Who sent a request, for proa_infer.client: by the API key that it carries and the header --client-header. Both are
 * hashed, so that no key is kept or logged. NULL: it carries neither. The text is in `arena`. */
const char *proa_http_client(const proa_api *api, const proa_http_exchange *x, proa_arena *arena);
const char *proa_grpc_client(const proa_api *api, const proa_grpc_call *call, proa_arena *arena);

/* ---- errors ---- */

int proa_grpc_code_of(const proa_err *err);
/* The whole text of an error as a JSON string; out has room for PROA_ERR_JSON_MAX bytes. */
void proa_err_json(proa_buf *out, const proa_err *err);
/* {"error":"..."} with that status; UNAVAILABLE by overload is 429 with Retry-After unless strict_triton. */
void proa_http_fail(proa_api *api, proa_http_exchange *x, const proa_err *err);
void proa_grpc_fail(proa_grpc_call *call, const proa_err *err); /* ends the call with the code and the whole text */
/* The same for a request to a model: what it lacks (503) it soon has again, so the answer has Retry-After. */
void proa_http_fail_request(proa_api *api, proa_http_exchange *x, const proa_err *err);
bool proa_http_overloaded(const proa_err *err); /* refused for too much work: it may be sent again soon */
void proa_http_json(proa_http_exchange *x, int status, proa_buf *body); /* application/json; takes the bytes of body */

/* ---- replies: from any thread to the loop ---- */

/* The first member of a front end's own struct. on_reply runs on the loop: at once if the reply was made there, else
 * by a task. It gets every reply in order; the last with final set. Nothing follows the final one. */
typedef struct proa_sink {
    proa_loop *loop;
    void (*on_reply)(struct proa_sink *sink, proa_reply *reply,
                     bool final); /* owns reply, which may be NULL with final; may free the sink when final */
    proa_infer *infer;
    /* sink.c's own */
    proa_loop_task task;
    proa_handoff *handoff; /* of a request on a worker: its replies wait until it is back on the loop. NULL: it was
                              made on the loop */
    atomic_uintptr_t arrived; /* a stack of replies, newest first; its two lowest bits say how it ends */
    bool draining;
    proa_workers *workers; /* of prepare */
    void (*prepare)(struct proa_sink *sink, proa_reply *reply);
    struct proa_sink_parked *parked; /* a reply that a worker prepares; those after it wait */
    bool drain_again;                /* more arrived meanwhile */
} proa_sink;
/* Makes r->on_reply and r->user the sink's. The caller's reference of r becomes the sink's: it is dropped when the
 * final on_reply has returned. On the loop's thread, or on a worker's that has the request. */
void proa_sink_init(proa_sink *sink, proa_loop *loop, proa_infer *r,
                    void (*on_reply)(proa_sink *sink, proa_reply *reply, bool final));
/* From now on prepare is called for each reply before on_reply gets it: on a worker if the reply has
 * PROA_WORKER_BYTES_MIN bytes or more, else on the loop. Order is kept. prepare writes to the reply and to memory of
 * its own; it must not use the connection, since the client may leave meanwhile. Called before proa_server_infer. */
void proa_sink_prepare_with(proa_sink *sink, proa_workers *workers,
                            void (*prepare)(proa_sink *sink, proa_reply *reply));
size_t proa_reply_bytes(const proa_reply *reply); /* of all outputs */
/* proa_server_infer has failed, so no reply will arrive: drops the reference of r. */
void proa_sink_abandon(proa_sink *sink);
int64_t proa_sinks_live(void); /* between init and final or abandon; any thread */

/* ---- work that may block (loading models): a thread of the api's ---- */

/* UNAVAILABLE where PROA_WORK_WAITING_MAX wait already; then neither function is called and the work still belongs to
 * the caller. */
PROA_MUST_CHECK proa_status proa_work_start(proa_api *api, proa_work_item *work, proa_err *err);

/* ---- settings that HTTP and gRPC read and write; any thread ---- */

/* Trace and logging: JSON in and out as of the REST routes; gRPC translates. model "" is the global one. */
proa_status proa_trace_get(proa_api *api, const char *model, Inference__TraceSettingResponse **out,
                           proa_arena *arena, proa_err *err);
proa_status proa_trace_set(proa_api *api, const char *model, const Inference__TraceSettingRequest *in,
                           proa_err *err);
proa_status proa_logging_get(proa_api *api, Inference__LogSettingsResponse **out, proa_arena *arena,
                             proa_err *err);
proa_status proa_logging_set(proa_api *api, const Inference__LogSettingsRequest *in, proa_err *err);
/* A header or metadata of a request: if its name matches the forward_pattern of that protocol's port it becomes a
 * string parameter of r. INVALID for reserved names. Does nothing, fast, where no pattern is set. */
proa_status proa_infer_forward(const proa_api *api, bool grpc, proa_infer *r, proa_str name, proa_str value,
                               proa_err *err);
/* Protocol parameters by name (sequence_id, sequence_start, sequence_end, priority, timeout) go into the fields of r,
 * others become its params; INVALID for names that begin with triton_. For both protocols. */
proa_status proa_infer_set_param(proa_infer *r, const proa_infer_param *param, proa_err *err);
/* K classes of an output in Triton's form "value:index:label", as a new BYTES tensor. */
proa_status proa_classify(proa_tensor *out, const proa_tensor *output, const proa_served_model *model,
                          int64_t k, bool batched, proa_err *err);

#endif
