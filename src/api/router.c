/* SPDX-License-Identifier: Apache-2.0
 * router.c - which front end a path belongs to, and what an HTTP server of net asks about a request. */
#include "api/internal.h"

#include "base/alloc.h"
#include "base/reserve.h"
#include "base/limits.h"
#include "base/log.h"

/* A port of its own for metrics answers any other path with 200 and nothing, as Triton's does: probes rely on it. */
static bool metrics_port(proa_endpoint *endpoint, proa_http_exchange *x)
{
    if (proa_metrics_frontend(endpoint->api, x)) return true;
    proa_http_respond(x, 200, (proa_str){"", 0}, (proa_http_body){0});
    return true;
}

static bool dispatch_exchange(proa_endpoint *endpoint, proa_http_exchange *x)
{
    proa_api *api = endpoint->api;
    if (!endpoint->frontends[PROA_FRONTEND_HTTP]) return metrics_port(endpoint, x);
    if (proa_str_starts(x->path, (proa_str){"/v2", 3}) && !proa_str_is(x->path, "/v2/rerank"))
        return proa_http_v2(api, x);
    if (proa_str_starts(x->path, (proa_str){"/v1", 3})) return proa_openai(api, x);
    if (proa_openai_other(api, x)) return true;
    if (endpoint->frontends[PROA_FRONTEND_METRICS] && proa_metrics_frontend(api, x)) return true;
    return proa_console(api, x);
}

/* The counters of a loop are written by its own thread only: no locked instruction is needed. */
static void count_more(atomic_ullong *counter, uint64_t more)
{
    if (PROA_UNLIKELY(proa_thread_counters_is_shared()))
        atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
    else
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                              memory_order_relaxed);
}

void proa_route_answer(int status, size_t bytes, void *arg)
{
    proa_thread_counters *counters = proa_thread_counters_get();
    PROA_UNUSED(arg);
    count_more(&counters->answers[status >= 100 && status < 600 ? status / 100 : 0], 1);
    count_more(&counters->bytes_out, bytes);
}

void proa_route(proa_http_exchange *x, void *arg)
{
    static const char body[] = "{\"error\":\"Not Found\"}";
    PROA_LOG(VERBOSE, "HTTP request: %.*s %.*s", (int)x->method.len, x->method.ptr, (int)x->path.len,
             x->path.ptr);
    count_more(&proa_thread_counters_get()->bytes_in, x->body_len);
    proa_reserve_recover();
    if (dispatch_exchange(arg, x)) return;
    struct iovec iov = {(void *)(uintptr_t)body, sizeof body - 1};
    proa_http_respond(x, 404, proa_str_c("Content-Type: application/json\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1});
}

static bool is_packed(const proa_http_exchange *x)
{
    proa_str coding = proa_http_get(x, "content-encoding");
    return coding.len > 0 && !proa_str_is(coding, "identity");
}

/* The time depends on the bytes that are read one by one: JSON, and compressed data. */
bool proa_route_is_long(const proa_http_exchange *x, void *arg)
{
    PROA_UNUSED(arg);
    proa_str json = proa_http_get(x, "inference-header-content-length");
    if (is_packed(x)) return true;
    if (!proa_str_starts(x->path, (proa_str){"/v2/models/", 11}))
        return x->body_len >= PROA_WORKER_TREE_BYTES_MIN;
    if (json.len > 0 && json.len < sizeof "65535" && proa_str_ends(x->path, (proa_str){"/infer", 6}))
        return x->body_len >= PROA_WORKER_BLOB_BYTES_MIN;
    return x->body_len >= PROA_WORKER_BYTES_MIN;
}

/* Liveness, readiness, and all of the metrics' own port. */
bool proa_route_may_use_reserve(const proa_http_exchange *x, void *arg)
{
    const proa_endpoint *endpoint = arg;
    if (!endpoint->frontends[PROA_FRONTEND_HTTP] || proa_str_starts(x->path, (proa_str){"/v2/health/", 11}))
        return true;
    return endpoint->frontends[PROA_FRONTEND_METRICS] && proa_str_is(x->path, "/metrics");
}

int64_t proa_route_body_limit(const proa_http_exchange *x, void *arg)
{
    const proa_endpoint *endpoint = arg;
    const proa_api_options *o = &endpoint->api->options;
    PROA_UNUSED(x);
    return o->http_max_input > 0 ? o->http_max_input : PROA_HTTP_BODY_MAX;
}

void proa_route_error_body(proa_buf *out, int status, const char *text, void *arg)
{
    PROA_UNUSED(status);
    PROA_UNUSED(arg);
    proa_buf_printf(out, "{\"error\":");
    proa_buf_json_str(out, proa_str_c(text));
    proa_buf_char(out, '}');
}
