/* SPDX-License-Identifier: Apache-2.0
 * Whole HTTP requests through the real routes and handlers, to small models. The first byte says how the body is
 * framed; the rest is a request as it is sent, from its first line on. What is framed here ends the connection after
 * the answer. */
#include "fuzz.h"
#include "service.h"

enum { FRAMED = 1, CHUNKED = 2, WAIT_MS = 25 };

static const char *const models[] = {"tests/repository/simple",          "tests/repository/simple_string",
                                     "tests/repository/simple_sequence", "tests/repository/identity_fp32",
                                     "tests/repository/identity_bytes",  "tests/repository/identity_bool",
                                     "tests/repository/identity_fp16",   "tests/repository/identity_nobatch",
                                     "tests/repository/repeat_int32",    "tests/repository/square_int32"};

static void put_chunks(proa_buf *out, proa_str body, size_t each)
{
    while (body.len) {
        size_t n = body.len < each ? body.len : each;
        proa_buf_printf(out, "%zx\r\n", n);
        proa_buf_append(out, body.ptr, n);
        proa_buf_printf(out, "\r\n");
        body = (proa_str){body.ptr + n, body.len - n};
    }
    proa_buf_printf(out, "0\r\n\r\n");
}

/* The first line, what ends the connection and frames the body, the other lines, the body. */
static void put_framed(proa_buf *out, proa_str request, unsigned flags)
{
    const char *line = request.len ? memmem(request.ptr, request.len, "\r\n", 2) : NULL;
    const char *head = request.len ? memmem(request.ptr, request.len, "\r\n\r\n", 4) : NULL;
    proa_str body = {"", 0};
    if (head) body = (proa_str){head + 4, request.len - (size_t)(head + 4 - request.ptr)};
    size_t first = line ? (size_t)(line - request.ptr) : request.len;
    proa_buf_append(out, request.ptr, first);
    proa_buf_printf(out, "\r\nConnection: close\r\n");
    if (flags & CHUNKED) proa_buf_printf(out, "Transfer-Encoding: chunked\r\n");
    else if (body.len) proa_buf_printf(out, "Content-Length: %zu\r\n", body.len);
    if (head && head > line) proa_buf_append(out, line + 2, (size_t)(head - line));
    else if (!head && line)
        proa_buf_append(out, line + 2, request.len - first - 2), proa_buf_printf(out, "\r\n");
    proa_buf_printf(out, "\r\n");
    if (flags & CHUNKED) put_chunks(out, body, 1 + (flags >> 2) * 7);
    else proa_buf_append(out, body.ptr, body.len);
}

SERVICE_AT_START(models)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_buf request, answer;
    if (size < 2) return 0;
    proa_str given = {(const char *)data + 1, size - 1};
    service_open(models, PROA_COUNT(models));
    proa_buf_init(&request, (size_t)1 << 20);
    proa_buf_init(&answer, SERVICE_ANSWER_MAX);
    if (data[0] & FRAMED) put_framed(&request, given, data[0]);
    else proa_buf_str(&request, given);
    service_http(proa_buf_view(&request), !(data[0] & FRAMED), &answer, WAIT_MS);
    proa_buf_release(&request);
    proa_buf_release(&answer);
    return 0;
}
