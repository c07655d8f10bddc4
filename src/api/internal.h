/* SPDX-License-Identifier: Apache-2.0
 * inside.h - what the files of this folder share and nobody else sees: the api itself, its ports, what each loop counts.
 * Owner:   api.c makes and frees all of it.
 * Threads: read only once the loops run, unless said. */
#ifndef PROA_API_INSIDE_H
#define PROA_API_INSIDE_H

#include "api/frontend.h"
#include "base/limits.h"
#include <pthread.h>

/* What a loop's thread counts for itself; summed for /metrics. Written by its own thread only. */
typedef struct proa_lane {
    PROA_ALIGNED(64) atomic_llong sinks; /* may be lowered by another lane's thread: the sum is what counts */
    atomic_ullong bytes_in, bytes_out;
    atomic_ullong answers[6]; /* by the first digit of the status */
} proa_lane;
bool proa_lane_shared(void);     /* the calling thread's is lane 0, which workers and others share */
proa_lane *proa_lane_here(void); /* of the calling thread; threads without one share lane 0 */

typedef struct proa_rule { /* of one category at one face */
    const char *key;       /* as it was given, for the text; NULL: open */
    const char *header;    /* in lower case, as it is looked for */
    proa_str value;
} proa_rule;

typedef enum proa_face { PROA_FACE_HTTP, PROA_FACE_GRPC, PROA_FACE_METRICS, PROA_FACE_COUNT } proa_face;

typedef struct proa_door { /* one listening port and the faces behind it */
    proa_api *api;
    proa_listener *listener;
    proa_tls *tls;
    bool faces[PROA_FACE_COUNT];
    proa_http_server http;
    proa_grpc_server grpc;
} proa_door;

typedef struct proa_settings proa_settings; /* settings.c */
typedef struct proa_forward proa_forward;   /* params.c */

typedef struct proa_loop_thread {
    proa_loop *loop;
    pthread_t thread;
    int lane;
    bool running;
} proa_loop_thread;

struct proa_api {
    proa_server *server;
    proa_api_options options; /* strings in the arena */
    proa_arena arena;
    proa_loop_thread loops[PROA_LOOPS_MAX];
    int loops_count;
    proa_door doors[PROA_FACE_COUNT];
    int doors_count;
    proa_door *door_of[PROA_FACE_COUNT];     /* NULL: face not allowed */
    proa_rule rules[2][PROA_CATEGORY_COUNT]; /* [HTTP], [GRPC] */
    proa_forward *forward[2];                /* NULL: none */
    proa_workers *loaders;                   /* of loads and unloads */
    proa_workers *workers;                   /* of large requests and answers */
    proa_settings *settings;
    const char *machine; /* its host name; "" if it has none */
};

/* access.c: fills api->rules from the options. */
void proa_access_init(proa_api *api);
/* origin.c: what a web page must not reach through its reader's browser. */
void proa_origin_init(proa_api *api); /* fills api->machine */
bool proa_category_controls(proa_category category);
/* Why a request for a control route is refused, in its arena, and with which status (403, 415); NULL: it is not. */
const char *proa_http_control_refusal(const proa_api *api, const proa_http_exchange *x, int *status);
/* The same of a call. Browsers cannot choose the name that a call goes to without a certificate: Origin is enough. */
const char *proa_grpc_control_refusal(const proa_api *api, const proa_grpc_call *call);
/* settings.c */
proa_settings *proa_settings_new(const proa_api_options *options);
void proa_settings_free(proa_settings *settings); /* NULL is fine */
/* params.c: a pattern that does not compile is INVALID. */
proa_status proa_forward_new(proa_forward **out, const char *pattern, proa_err *err);
void proa_forward_free(proa_forward *forward); /* NULL is fine */
/* router.c: what a door's HTTP server calls; arg is the door. */
void proa_route(proa_http_exchange *x, void *arg);
bool proa_route_is_long(const proa_http_exchange *x, void *arg);
bool proa_route_may_use_reserve(const proa_http_exchange *x, void *arg);
int64_t proa_route_body_limit(const proa_http_exchange *x, void *arg);
void proa_route_answer(int status, size_t bytes, void *arg);
void proa_route_error_body(proa_buf *out, int status, const char *text, void *arg);
/* sink.c: which lane the calling thread counts in from now on. */
void proa_lane_take(int lane);
/* The sum over all lanes; the lanes are the process's. */
void proa_lanes_sum(uint64_t *bytes_in, uint64_t *bytes_out, uint64_t answers[6]);

#endif
