/* SPDX-License-Identifier: Apache-2.0
 * error.c - errors in OpenAI's form, with its types and codes. */
#include "api/openai/openai.h"

#include "base/long_text.h"
#include <stdarg.h>
#include <string.h>

bool proa_oai_bad(proa_oai_error *e, const char *param, const char *fmt, ...)
{
    va_list args;
    e->status = 400;
    e->type = "invalid_request_error";
    e->param = param;
    e->code = NULL;
    e->whole = 0;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return false;
}

void proa_oai_error_of(proa_oai_error *e, const proa_err *err)
{
    *e = (proa_oai_error){.status = proa_status_http(err->status), .type = "server_error", .whole = err->whole};
    snprintf(e->text, sizeof e->text, "%s", err->text);
    switch (err->status) {
    case PROA_INVALID:
    case PROA_LIMIT:
    case PROA_UNSUPPORTED:
        e->status = 400;
        e->type = "invalid_request_error";
        break;
    case PROA_NOT_FOUND:
        e->type = "invalid_request_error";
        e->code = "model_not_found";
        break;
    case PROA_UNAVAILABLE:
        e->code = "service_unavailable";
        if (!proa_http_overloaded(err)) break;
        e->status = 429;
        e->type = "requests";
        e->code = "rate_limit_exceeded";
        break;
    case PROA_DEADLINE: e->code = "timeout"; break;
    default: break;
    }
}

void proa_oai_error_json(proa_buf *out, const proa_oai_error *e)
{
    char *whole = proa_long_text_copy(e->whole);
    proa_buf_str(out, proa_str_c("{\"error\":{\"message\":"));
    proa_buf_json_str(out, proa_str_c(whole ? whole : e->text));
    free(whole);
    proa_buf_printf(out, ",\"type\":\"%s\",\"param\":", e->type);
    if (e->param) proa_buf_json_str(out, proa_str_c(e->param));
    else proa_buf_str(out, proa_str_c("null"));
    if (e->code) proa_buf_printf(out, ",\"code\":\"%s\"}}", e->code);
    else proa_buf_str(out, proa_str_c(",\"code\":null}}"));
}

void proa_oai_fail(proa_http_exchange *x, const proa_oai_form *form, const proa_oai_error *e)
{
    proa_buf body;
    proa_buf_init(&body, PROA_ERR_JSON_MAX);
    form->put_error(&body, e);
    struct iovec iov = {body.ptr, body.len};
    const char *headers = e->status == 429 || e->status == 503
                              ? "Content-Type: application/json\r\nRetry-After: 1\r\n"
                              : "Content-Type: application/json\r\n";
    proa_http_respond(x, e->status, proa_str_c(headers), (proa_http_body){.iov = &iov, .count = 1});
    proa_buf_release(&body);
}
