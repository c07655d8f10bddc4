/* SPDX-License-Identifier: Apache-2.0
 * internal.h - for the files of this folder only: the struct of the api, its endpoints, the counters of each thread.
 * Owner:   api.c makes and frees all of it.
 * Threads: read only once the loops run, unless stated. */
#ifndef PROA_API_INTERNAL_H
#define PROA_API_INTERNAL_H

#include "api/frontend.h"
#include "base/limits.h"
#include <pthread.h>

/* What a loop's thread counts for itself; summed for /metrics. Written by its own thread only. */
typedef struct proa_thread_counters {
    PROA_ALIGNED(64)
    atomic_llong sinks; /* may be lowered in another thread's counters: only the sum means something */
    atomic_ullong bytes_in, bytes_out;
    atomic_ullong answers[6]; /* by the first digit of the status */
} proa_thread_counters;
bool proa_thread_counters_is_shared(void); /* does the calling thread use counters 0, which workers and other threads
                                              share? */
proa_thread_counters *proa_thread_counters_get(void); /* of the calling thread; threads without their own share number
                                                         0 */

typedef struct proa_rule { /* of one category in one protocol */
    const char *key;       /* as given, for the error text; NULL: open to all */
    const char *header;    /* in lower case */
    proa_str value;
} proa_rule;

typedef enum proa_frontend {
    PROA_FRONTEND_HTTP,
    PROA_FRONTEND_GRPC,
    PROA_FRONTEND_METRICS,
    PROA_FRONTEND_COUNT
} proa_frontend;

typedef struct proa_endpoint { /* one listening port and the front ends on it */
    proa_api *api;
    proa_listener *listener;
    proa_tls *tls;
    bool frontends[PROA_FRONTEND_COUNT];
    proa_http_server http;
    proa_grpc_server grpc;
} proa_endpoint;

typedef struct proa_settings proa_settings; /* settings.c */
typedef struct proa_forward proa_forward;   /* params.c */

typedef struct proa_loop_thread {
    proa_loop *loop;
    pthread_t thread;
    int counters;
    bool running;
} proa_loop_thread;

struct proa_api {
    proa_server *server;
    proa_api_options options; /* strings in the arena */
    proa_arena arena;
    proa_loop_thread loops[PROA_LOOPS_MAX];
    int loops_count;
    proa_endpoint endpoints[PROA_FRONTEND_COUNT];
    int endpoints_count;
    proa_endpoint *endpoint_of[PROA_FRONTEND_COUNT]; /* NULL: front end not enabled */
    proa_rule rules[2][PROA_CATEGORY_COUNT];         /* [HTTP], [GRPC] */
    proa_forward *forward[2];                        /* NULL: none */
    proa_workers *loaders;                           /* of loads and unloads */
    proa_workers *workers;                           /* of large requests and answers */
    proa_settings *settings;
    struct proa_response_store *responses; /* of OpenAI's API */
    const char *machine;                   /* its host name; "" if it has none */
};

/* access.c: fills api->rules from the options. */
void proa_access_init(proa_api *api);
/* origin.c: protects control routes from web pages that send requests through a user's browser. */
void proa_origin_init(proa_api *api); /* fills api->machine */
bool proa_category_controls(proa_category category);
/* Why a request for a control route is refused, in its arena, and with which status (403, 415); NULL: it is not. */
const char *proa_http_control_refusal(const proa_api *api, const proa_http_exchange *x, int *status);
/* The same for a gRPC call. Browsers cannot choose the name that a call goes to without a certificate: Origin is
 * enough. */
const char *proa_grpc_control_refusal(const proa_api *api, const proa_grpc_call *call);
/* settings.c */
/* On failure *out holds what proa_settings_free must release. */
proa_status proa_settings_new(proa_settings **out, const proa_api_options *options, proa_err *err);
void proa_settings_free(proa_settings *settings); /* NULL is fine */
/* False: the server cannot trace, as it was started. */
bool proa_settings_traces(const proa_settings *settings, proa_telemetry_counts *counts);
/* params.c: a pattern that does not compile is INVALID. */
proa_status proa_forward_new(proa_forward **out, const char *pattern, proa_err *err);
void proa_forward_free(proa_forward *forward); /* NULL is fine */
/* router.c: the callbacks of an endpoint's HTTP server; arg is the endpoint. */
void proa_route(proa_http_exchange *x, void *arg);
bool proa_route_is_long(const proa_http_exchange *x, void *arg);
bool proa_route_may_use_reserve(const proa_http_exchange *x, void *arg);
int64_t proa_route_body_limit(const proa_http_exchange *x, void *arg);
void proa_route_answer(int status, size_t bytes, void *arg);
void proa_route_error_body(proa_buf *out, int status, const char *text, void *arg);
/* sink.c: chooses the counters of the calling thread. */
void proa_thread_counters_use(int counters);
/* The sums over all threads of the process. */
void proa_thread_counters_sum(uint64_t *bytes_in, uint64_t *bytes_out, uint64_t answers[6]);

#endif
