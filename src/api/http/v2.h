/* SPDX-License-Identifier: Apache-2.0
 * v2.h - inside api: the REST routes of KServe v2 and Triton's extensions, a file for each group.
 * Threads: all on the loop's thread of the exchange.
 * Way in:  proa_http_v2 (v2.c) takes a path apart and calls one of these. */
#ifndef PROA_API_HTTP_V2_H
#define PROA_API_HTTP_V2_H

#include "api/http/infer_json.h"
#include "api/internal.h"

/* What the path names; "" or empty where it names none. NUL-terminated and percent-decoded in the exchange's arena. */
typedef struct proa_v2_path {
    const char *model;
    proa_str version;
    const char *region, *repository; /* of shared memory; of the repository routes */
} proa_v2_path;

typedef void proa_v2_handler(proa_api *api, proa_http_exchange *x, const proa_v2_path *path);

/* v2_models.c */
proa_v2_handler proa_v2_server_metadata, proa_v2_live, proa_v2_ready, proa_v2_metadata, proa_v2_model_ready,
    proa_v2_config, proa_v2_stats;
/* v2_control.c */
proa_v2_handler proa_v2_index, proa_v2_load, proa_v2_unload;
/* v2_shm.c */
proa_v2_handler proa_v2_shm_status, proa_v2_shm_register, proa_v2_shm_unregister, proa_v2_cuda_status,
    proa_v2_cuda_register, proa_v2_cuda_unregister;
/* v2_settings.c */
proa_v2_handler proa_v2_trace_get, proa_v2_trace_set, proa_v2_logging_get, proa_v2_logging_set;
/* v2_infer.c, generate.c */
proa_v2_handler proa_v2_infer, proa_v2_generate, proa_v2_generate_stream;

/* 200 without a body. */
void proa_v2_done(proa_http_exchange *x);
/* A reader over the body; false if that is empty. */
bool proa_v2_body(proa_api *api, proa_http_exchange *x, proa_jread *j);
/* v2_raw.c: the whole of `body` is the one input that the model has. INVALID where Triton cannot deduce it. */
proa_status proa_v2_raw_input(proa_infer *r, proa_buffer *body, proa_str bytes, proa_err *err);
/* All headers of x that the pattern of the port names, into parameters of r. */
proa_status proa_v2_forward(proa_api *api, proa_http_exchange *x, proa_infer *r, proa_err *err);
/* metrics.c: "endpoint-load-metrics: ..." with its line end, in the format that the client requests ("text", "json");
 * else "". Valid as long as the arena. */
char *proa_v2_load_header(proa_server *server, proa_str format, proa_arena *arena);
/* Free lists of the calling thread, at its end: v2_infer.c. */
void proa_v2_infer_trim(void);

#endif
