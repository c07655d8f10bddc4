/* SPDX-License-Identifier: Apache-2.0
 * http_static.c - a server that answers every request with the same bytes, on one loop: what the network floor costs
 * when nothing stands on it. bench/http.sh compares it with nginx. http_static PORT BYTES. */
#include "net/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reply {
    char *bytes;
    size_t len;
} reply;

static void on_request(proa_http_exchange *x, void *arg)
{
    const reply *r = arg;
    struct iovec iov = {r->bytes, r->len};
    proa_http_respond(x, 200, proa_str_c("Content-Type: text/plain\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1});
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: http_static PORT BYTES\n");
        return 2;
    }
    reply r = {.len = (size_t)strtoul(argv[2], NULL, 10)};
    r.bytes = malloc(r.len + 1);
    if (!r.bytes) return 1;
    memset(r.bytes, 'x', r.len);
    proa_http_server server = {.on_request = on_request, .arg = &r};
    proa_listen_options options = {.address = "127.0.0.1",
                                   .port = (int)strtol(argv[1], NULL, 10),
                                   .http1 = &proa_http_protocol,
                                   .http1_server = &server};
    proa_err err = {0};
    proa_loop *loop = NULL;
    proa_listener *listener = NULL;
    if (proa_loop_new(&loop, &err) != PROA_OK ||
        proa_listener_open(&listener, &loop, 1, &options, &err) != PROA_OK) {
        fprintf(stderr, "http_static: %s\n", err.text);
        return 1;
    }
    proa_loop_run(loop); /* until it is killed */
    return 0;
}
