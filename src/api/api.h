/* SPDX-License-Identifier: Apache-2.0
 * api.h - the protocols of a server: HTTP (KServe v2, generate, OpenAI, the page), gRPC and metrics on their ports.
 * Owner:   proa_api_open/close; the server core is the caller's and outlives it.
 * Threads: open, drain and close by one thread; the loops are threads of the api's own.
 * Way in:  proa_api_open; a front end is one function that takes an exchange or a call (frontend.h). */
#ifndef PROA_API_API_H
#define PROA_API_API_H

#include "serve/server.h"
#include "telemetry/telemetry.h"

typedef struct proa_api proa_api;

/* The categories of restricted access; names are Triton's. */
#define PROA_CATEGORY_LIST(X)                                                                                \
    X(HEALTH, "health")                                                                                      \
    X(METADATA, "metadata")                                                                                  \
    X(INFERENCE, "inference")                                                                                \
    X(SHARED_MEMORY, "shared-memory")                                                                        \
    X(MODEL_CONFIG, "model-config")                                                                          \
    X(MODEL_REPOSITORY, "model-repository")                                                                  \
    X(STATISTICS, "statistics")                                                                              \
    X(TRACE, "trace")                                                                                        \
    X(LOGGING, "logging")

typedef enum proa_category {
#define PROA_CATEGORY_ENUM(name, text) PROA_CATEGORY_##name,
    PROA_CATEGORY_LIST(PROA_CATEGORY_ENUM)
#undef PROA_CATEGORY_ENUM
        PROA_CATEGORY_COUNT
} proa_category;

typedef struct proa_restriction { /* one --http-restricted-api or --grpc-restricted-protocol for one category */
    proa_category category;
    const char *key, *value; /* the header that must come, and its value */
} proa_restriction;

typedef struct proa_port {
    bool allow;
    const char *address; /* "0.0.0.0" */
    int port;            /* several front ends may share a port; 0: any free one */
    bool reuse;
    const char *cert, *key, *client_ca; /* TLS: PEM files; NULL: none */
    const proa_restriction *restrictions;
    int restrictions_count;
    const char *forward_pattern; /* headers whose names match this expression become request parameters; NULL: none */
} proa_port;

typedef struct proa_trace_options { /* --trace-config: initial values of /v2/trace/setting */
    unsigned level;                 /* PROA_TRACE_TIMESTAMPS, PROA_TRACE_TENSORS; 0: OFF */
    int64_t rate;          /* one request of this many; 0: 1000; -1: only those that come with a context */
    int64_t count;         /* requests in all; 0: -1, no limit */
    int64_t log_frequency; /* traces of one file, FILE.0, FILE.1, ...; 0: all in FILE, when the server ends */
    proa_telemetry_options to;
} proa_trace_options;

#define PROA_CLIENT_HEADER "x-client-id"

typedef struct proa_api_options {
    proa_port http, grpc, metrics;
    int threads;            /* event loops; 0: 1 for up to 2 CPUs, else half of them, at most 8 */
    int64_t http_max_input; /* 0: PROA_HTTP_BODY_MAX */
    bool allow_client_shm;
    bool allow_adapters;         /* clients may load and unload adapters */
    bool strict_triton;          /* statuses as Triton has them where ours are better (docs/server.md) */
    const char *const *api_keys; /* bearer tokens; none: everybody may */
    int api_keys_count;
    const char *client_header; /* its value and the API key say who sends a request; NULL: PROA_CLIENT_HEADER; "":
                                  the key alone does */
    /* Control routes take requests of the server's own origin and names only, and of these: "https://ui.example" (its
     * host counts as a name too), "triton"; "*" is any. */
    const char *const *allow_origins, *const *allow_hosts;
    int allow_origins_count, allow_hosts_count;
    int64_t grpc_keepalive_ms, grpc_keepalive_timeout_ms, grpc_age_ms, grpc_grace_ms;
    int grpc_compression;     /* 0..3 */
    proa_trace_options trace; /* the log's settings are those of base/log.h */
} proa_api_options;

/* Whether the ports are free and the certificates readable, before models are loaded for them; in the words of
 * proa_api_open, which can still fail. Nothing stays open. */
PROA_MUST_CHECK proa_status proa_api_check(const proa_api_options *options, proa_err *err);
/* Listens; the loops run until proa_api_close. For port 0 the kernel chooses one: proa_api_http_port and its like. */
PROA_MUST_CHECK proa_status proa_api_open(proa_api **out, proa_server *server,
                                          const proa_api_options *options, proa_err *err);
int proa_api_http_port(const proa_api *api);
int proa_api_grpc_port(const proa_api *api);
int proa_api_metrics_port(const proa_api *api);
/* No new connections and exchanges; running ones continue. True when all have ended within timeout_ms. */
bool proa_api_drain(proa_api *api, int64_t timeout_ms);
void proa_api_close(proa_api *api); /* NULL is fine */

#endif
