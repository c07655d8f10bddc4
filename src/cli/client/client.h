/* SPDX-License-Identifier: Apache-2.0
 * client.h - inside `proa client`: one request to a server that speaks KServe v2, gRPC or OpenAI's API.
 * Owner:   the caller; what is parsed is in its arena.
 * Threads: main's; calls block up to the time-out of the target.
 * Way in:  cmd_client.c. */
#ifndef PROA_CLI_CLIENT_CLIENT_H
#define PROA_CLI_CLIENT_CLIENT_H

#include "cli/args.h"
#include "serve/infer.h"

typedef struct proa_target {
    char host[256];  /* or the path of a Unix socket */
    int port;        /* 0: a Unix socket */
    bool port_given; /* by the URL; else the port is that of its scheme */
    bool tls;
    const char *api_key, *ca; /* ca: PEM file to check the server's certificate with; NULL: the system's */
    int timeout_ms;           /* of connecting, and of each read and write */
} proa_target;

/* "http://host:8000", "https://...", "grpc://host:8001", "grpcs://...", "unix:/path"; grpc says which it was. */
proa_status proa_target_parse(proa_target *target, bool *grpc, const char *url, proa_err *err);

/* A connection, with or without TLS. */
typedef struct proa_wire proa_wire;
proa_status proa_wire_open(proa_wire **out, const proa_target *target, bool http2, proa_err *err);
void proa_wire_close(proa_wire *wire); /* NULL is fine */
proa_status proa_wire_write(proa_wire *wire, const char *bytes, size_t len, proa_err *err);
/* *got is 0 at the end of the stream. */
proa_status proa_wire_read(proa_wire *wire, char *bytes, size_t cap, size_t *got, proa_err *err);

/* One HTTP/1.1 exchange. on_body gets the body's bytes as they come (chunks are undone). */
typedef proa_status proa_body_fn(void *arg, int status, proa_str bytes, proa_err *err);
proa_status proa_client_http(const proa_target *target, const char *method, const char *path, proa_str body,
                             proa_body_fn *on_body, void *arg, proa_err *err);
/* Hands over the data of each complete server-sent event, but for [DONE], and removes it from buf. */
typedef proa_status proa_data_fn(void *arg, proa_str data, proa_err *err);
proa_status proa_client_events(proa_buf *buf, proa_data_fn *on_event, void *arg, proa_err *err);
/* One ModelInfer, or with `stream` one ModelStreamInfer: on_reply gets each answer as a reply. */
typedef proa_status proa_grpc_reply_fn(void *arg, const proa_reply *reply, proa_err *err);
proa_status proa_client_grpc(const proa_target *target, const proa_infer *request, bool stream,
                             proa_grpc_reply_fn *on_reply, void *arg, proa_err *err);

/* "NAME=TYPE[2,3]:1,2,3,4,5,6" into an input of the request; without a shape it is [count]. */
proa_status proa_client_input(proa_infer *request, const char *text, proa_err *err);
/* "key=value": a number, true, false, or a string. */
proa_status proa_client_param(proa_infer *request, const char *text, proa_err *err);

#endif
