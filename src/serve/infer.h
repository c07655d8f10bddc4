/* SPDX-License-Identifier: Apache-2.0
 * infer.h - a request of inference and its replies: named tensors, parameters, a sink.
 *
 *     proa_infer *r = proa_infer_new();
 *     ...name, inputs, on_reply...
 *     proa_status s = proa_server_infer(server, r, &err);   // server.h; on failure nothing was queued, r stays ours
 *     ...on_reply(r, reply, final) is called once or many times, from any thread...
 *     proa_infer_drop(r);
 *
 * Owner:   proa_infer_new gives one reference. The scheduler holds another from acceptance until the final reply has
 *          been delivered. A reply belongs to whom it was delivered to: proa_reply_free.
 * Threads: built by one thread; after acceptance the fields are read only, but for cancel, which any thread may
 * call. */
#ifndef PROA_SERVE_INFER_H
#define PROA_SERVE_INFER_H

#include "serve/generation.h"
#include "serve/tensor.h"

typedef struct proa_infer proa_infer;
typedef struct proa_reply proa_reply;
typedef struct proa_served_model proa_served_model;

typedef enum proa_infer_param_kind {
    PROA_PARAM_BOOL,
    PROA_PARAM_INT,
    PROA_PARAM_UINT,
    PROA_PARAM_DOUBLE,
    PROA_PARAM_STRING
} proa_infer_param_kind;
typedef struct proa_infer_param {
    proa_str name;
    proa_infer_param_kind kind;
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double d;
        proa_str s; /* NUL-terminated too */
    };
} proa_infer_param;

/* Times on the monotonic clock, ns; 0: not reached. Those of computing are, for an ensemble, its start and from there
 * on the sums of its steps, so compute_end may lie after the end. */
typedef struct proa_infer_times {
    int64_t received, queued, compute_start, input_end, output_start, compute_end, ended;
} proa_infer_times;

/* What a language model did for a request: set by its backend before the final reply, 0 by all others. */
typedef struct proa_infer_usage {
    int64_t prompt_tokens, cached_tokens; /* of all prompts; of these, found in the prefix cache */
    int64_t new_tokens;                   /* of all sequences */
    int64_t sequences;                    /* that were generated: prompts times n */
    int64_t first_token_ns;               /* of the first of them, on the monotonic clock; 0: none came */
} proa_infer_usage;

/* The scheduler's own state of a request, from acceptance to its final reply. */
typedef struct proa_ticket {
    proa_infer *prev;           /* of a queue, beside proa_infer.next */
    uint64_t level;             /* of priority, as queued */
    int64_t expires_ns;         /* leaves the queue then; 0: never */
    int64_t rows;               /* on the first request of an execution: the rows of all its requests */
    int64_t first_ns;           /* when its first reply arrived */
    int64_t last_ns;            /* when its last reply arrived */
    void *slot;                 /* of a sequence, or the scheduler's own */
    void *order;                /* its place where replies keep the order of the requests */
    void *cache_inflight;       /* of the cache: equal requests wait for this one */
    int64_t lookup_ns;          /* time spent in the cache lookup */
    int32_t replies;            /* delivered so far */
    uint8_t reason;             /* proa_fail_reason + 1, if the scheduler made it fail */
    bool queued, timed_out;     /* in a queue; past its time-out and moved back (DELAY) */
    bool expired;               /* its time was over while the backend had it in its queue */
    bool deadline;              /* expires_ns is the protocol's deadline, not a time-out of the queue */
    bool failed;                /* a reply had an error */
    atomic_bool cancel_handled; /* the scheduler's watcher has been called, and has returned */
    bool filler;                /* fills an empty row of a sequence batch: its reply is dropped */
} proa_ticket;

/* A reply arrives. `final`: no more will come, and this may be NULL (a decoupled model that ends without another
 * reply). Called from the thread that made it: an instance's, the engine's, or the caller of proa_server_infer itself
 * before that returns. Must not block. */
typedef void proa_reply_fn(proa_infer *r, proa_reply *reply, bool final);

struct proa_infer {
    proa_arena arena; /* everything of the request may be allocated in it */
    const char *id;   /* "" if none */
    const char *model_name;
    int64_t model_version; /* -1: the version policy's choice */
    proa_tensor *inputs;   /* in any order; proa_infer_input finds one */
    int32_t inputs_count, inputs_cap;
    const char **outputs; /* requested names; none: all */
    int32_t outputs_count, outputs_cap;
    proa_infer_param *params; /* custom ones: those of the protocol are in the fields below */
    int32_t params_count, params_cap;
    proa_generation *generation; /* in place of inputs, outputs and params; NULL: the request is made of those */
    uint64_t sequence_id;        /* 0: none; */
    const char *sequence_name; /* of a string id; NULL: none */
    bool sequence_start, sequence_end;
    const char *client; /* who sent it, in the arena: clients of a language model take turns; NULL: not known */
    uint64_t priority;   /* 0: the model's default */
    uint64_t timeout_us; /* 0: none */
    int64_t deadline_ns; /* of the protocol (gRPC), on the monotonic clock; 0: none */
    proa_reply_fn *on_reply;
    void *user;          /* the sink's */
    bool silent;         /* a warm-up: in no statistics */
    bool device_replies; /* on_reply takes outputs in the memory of a device; else they are copied to the host */
    bool inner; /* part of a request that was accepted (a step of an ensemble): a scheduler that stops takes it */

    struct proa_trace_origin *origin; /* serve/trace.h; NULL: tracing is off, or no client sent it */
    struct proa_trace_span *trace;    /* NULL: not traced */

    /* the schedulers' */
    atomic_int refs;
    atomic_bool cancelled;
    _Atomic(void (*)(proa_infer *r)) on_cancel; /* set by the current holder of the request: proa_infer_watch */
    proa_served_model *model; /* a held version, set at acceptance or by the caller before */
    int64_t batch;            /* rows of the batch dimension; 1 without one */
    proa_infer_times times;
    proa_infer_usage usage;
    proa_infer *next; /* of a queue */
    void *work;       /* scheduler's or backend's, while it has the request */
    uint64_t cache_key[2];
    proa_ticket ticket;
};

proa_infer *proa_infer_new(void);
proa_infer *proa_infer_hold(proa_infer *r);
void proa_infer_drop(proa_infer *r); /* the last one releases tensors and arena; NULL is fine */
/* A new input with its name copied, zeroed otherwise; NULL if there are PROA_TENSORS_PER_REQUEST_MAX. The array moves
 * when it grows: the pointer is good until the next add. So with params and outputs, and in a reply. */
proa_tensor *proa_infer_add_input(proa_infer *r, proa_str name);
const proa_tensor *proa_infer_input(const proa_infer *r, const char *name); /* or NULL */
proa_infer_param *proa_infer_add_param(proa_infer *r, proa_str name);       /* NULL if there are too many */
const proa_infer_param *proa_infer_find_param(const proa_infer *r, const char *name); /* or NULL */
/* Requests an output by name, copied; false if there are too many. */
bool proa_infer_add_output(proa_infer *r, proa_str name);
bool proa_infer_wants(const proa_infer *r, const char *output); /* is this output requested? */
/* Makes r a typed generation, zeroed; for models that take them (server.h) and a request without inputs. */
proa_generation *proa_infer_generate(proa_infer *r);
void proa_infer_free_chat(proa_infer *r); /* the tree of a chat, which its reader needs no longer; none is fine */

/* The client has disconnected or given up: a queued request ends with CANCELLED at once, of a running one the backend
 * is notified. Any thread, any number of times. */
void proa_infer_cancel(proa_infer *r);
bool proa_infer_cancelled(const proa_infer *r);
/* The current holder of the request is notified of a cancel: on_cancel(r) is called at most once, on the cancelling
 * thread; at once if it is cancelled already. NULL takes the watch back; that returns false if the callback was called
 * or is being called: then it may still run, and what it uses must outlive it. */
bool proa_infer_watch(proa_infer *r, void (*on_cancel)(proa_infer *r));

/* For backends that take inputs in the memory of devices (backend.h), on an instance that has none: copies them to the
 * host, and counts them. */
PROA_MUST_CHECK proa_status proa_infer_inputs_to_host(proa_infer *r, proa_err *err);

/* ---- replies ---- */

struct proa_reply {
    proa_arena arena;
    proa_err error; /* status PROA_OK: none; else outputs are not looked at */
    const char *model_name;
    int64_t model_version;
    const char *id; /* the request's */
    proa_tensor *outputs;
    int32_t outputs_count, outputs_cap;
    proa_infer_param *params;
    int32_t params_count, params_cap;
    const proa_generated *generated; /* of a typed generation, in place of outputs; NULL otherwise */
    proa_reply *next;                /* of a queue of the sink */
};

proa_reply *proa_reply_new(const proa_infer *r);
void proa_reply_free(proa_reply *reply);                          /* NULL is fine */
proa_tensor *proa_reply_add(proa_reply *reply, const char *name); /* name is copied; zeroed otherwise */
/* The same with a new buffer of the size that type and shape say (not for BYTES); *data is where to write. */
proa_tensor *proa_reply_add_array(proa_reply *reply, const char *name, proa_type type, const int64_t *shape,
                                  int32_t rank, void **data);
/* BYTES from strings, shape [count] unless the caller sets another. */
proa_tensor *proa_reply_add_strings(proa_reply *reply, const char *name, const proa_str *strings, int64_t count);
const proa_tensor *proa_reply_output(const proa_reply *reply, const char *name);
proa_infer_param *proa_reply_add_param(proa_reply *reply, const char *name);

/* For backends: hands a reply to the request's sink, and with `final` ends the request (statistics, references). reply
 * may be NULL only with final. After the final one the request must not be touched. */
void proa_infer_reply(proa_infer *r, proa_reply *reply, bool final);
/* For schedulers, of a reply that they kept: to the sink; with final it then drops the scheduler's reference. */
void proa_infer_deliver(proa_infer *r, proa_reply *reply, bool final);
/* Do outputs in the memory of a device stay there? Else proa_infer_reply copies them to the host. */
bool proa_infer_takes_device_outputs(const proa_infer *r);
/* A final reply with an error. */
void proa_infer_fail(proa_infer *r, const proa_err *err);

#endif
