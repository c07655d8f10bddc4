/* SPDX-License-Identifier: Apache-2.0
 * frontend.c - what the front ends share: errors as HTTP statuses and gRPC codes, JSON answers, work that may block. */
#include "api/internal.h"

#include "base/limits.h"
#include <string.h>

proa_server *proa_api_server(const proa_api *api)
{
    return api->server;
}

size_t proa_api_body_max(const proa_api *api)
{
    return (size_t)api->options.http_max_input;
}

/* Where Triton's map (http_server.cc, HttpCodeFromError) differs from the table of proa/status.h. */
static int http_status_of(const proa_err *err)
{
    switch (err->status) {
    case PROA_EXISTS:
    case PROA_CANCELLED: return 400;
    default: return proa_status_http(err->status);
    }
}

int proa_grpc_code_of(const proa_err *err)
{
    return proa_status_grpc(err->status);
}

void proa_grpc_fail(proa_grpc_call *call, const proa_err *err)
{
    char *text = proa_err_whole_text(err);
    proa_grpc_finish(call, proa_grpc_code_of(err), proa_str_c(text), NULL, 0);
    free(text);
}

bool proa_http_overloaded(const proa_err *err)
{
    return err->status == PROA_UNAVAILABLE && strstr(err->text, "Exceeds maximum queue size") != NULL;
}

void proa_err_json(proa_buf *out, const proa_err *err)
{
    char *text = proa_err_whole_text(err);
    proa_buf_json_str(out, proa_str_c(text));
    free(text);
}

static void answer_error(proa_api *api, proa_http_exchange *x, const proa_err *err, bool passes)
{
    int status = http_status_of(err);
    if (proa_http_overloaded(err) && !api->options.strict_triton) {
        status = 429;
        passes = true;
    }
    const char *headers = passes ? "Content-Type: application/json\r\nRetry-After: 1\r\n"
                                 : "Content-Type: application/json\r\n";
    proa_buf body;
    proa_buf_init(&body, PROA_ERR_JSON_MAX);
    proa_buf_append(&body, "{\"error\":", 9);
    proa_err_json(&body, err);
    proa_buf_char(&body, '}');
    struct iovec iov = {body.ptr, body.len};
    proa_http_respond(x, status, proa_str_c(headers), (proa_http_body){.iov = &iov, .count = 1});
    proa_buf_release(&body);
}

void proa_http_fail(proa_api *api, proa_http_exchange *x, const proa_err *err)
{
    answer_error(api, x, err, false);
}

void proa_http_fail_request(proa_api *api, proa_http_exchange *x, const proa_err *err)
{
    answer_error(api, x, err, err->status == PROA_UNAVAILABLE && !api->options.strict_triton);
}

proa_status proa_work_start(proa_api *api, proa_work_item *work, proa_err *err)
{
    if (proa_workers_start(api->loaders, work)) return PROA_OK;
    return PROA_FAIL(err, UNAVAILABLE, "Exceeds maximum queue size: %d model loads and unloads wait already",
                     PROA_WORK_WAITING_MAX);
}

void proa_http_json(proa_http_exchange *x, int status, proa_buf *body)
{
    static const char too_large[] = "{\"error\":\"the answer is too large\"}";
    struct iovec iov = {body->ptr, body->len};
    void (*release)(void *) = free;
    void *arg = body->ptr;
    if (body->full) {
        proa_buf_release(body);
        iov = (struct iovec){(void *)(uintptr_t)too_large, sizeof too_large - 1};
        status = 500, release = NULL, arg = NULL;
    }
    proa_http_respond(x, status, proa_str_c("Content-Type: application/json\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1, .release = release, .arg = arg});
    proa_buf_init(body, body->bytes_max);
}
