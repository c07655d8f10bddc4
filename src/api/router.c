/* SPDX-License-Identifier: Apache-2.0 */
#include "api/internal.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"

/* A port of its own for metrics answers any other path with 200 and nothing, as Triton's does: probes rely on it. */
static bool metrics_port(proa_door *door, proa_http_exchange *x)
{
    if (proa_metrics_face(door->api, x)) return true;
    proa_http_respond(x, 200, (proa_str){"", 0}, NULL, 0, NULL, NULL);
    return true;
}

static bool dispatch(proa_door *door, proa_http_exchange *x)
{
    proa_api *api = door->api;
    if (!door->faces[PROA_FACE_HTTP]) return metrics_port(door, x);
    if (proa_str_starts(x->path, (proa_str){"/v2", 3})) return proa_http_v2(api, x);
    if (proa_str_starts(x->path, (proa_str){"/v1", 3})) return proa_openai(api, x);
    if (door->faces[PROA_FACE_METRICS] && proa_metrics_face(api, x)) return true;
    return proa_page(api, x);
}

/* A loop's lane is written by its own thread only: no locked instruction is needed. */
static void count(atomic_ullong *counter, uint64_t more)
{
    if (PROA_UNLIKELY(proa_lane_shared())) atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
    else
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                              memory_order_relaxed);
}

void proa_route_answer(int status, size_t bytes, void *arg)
{
    proa_lane *lane = proa_lane_here();
    PROA_UNUSED(arg);
    count(&lane->answers[status >= 100 && status < 600 ? status / 100 : 0], 1);
    count(&lane->bytes_out, bytes);
}

void proa_route(proa_http_exchange *x, void *arg)
{
    static const char body[] = "{\"error\":\"Not Found\"}";
    PROA_LOG(VERBOSE, "HTTP request: %.*s %.*s", (int)x->method.len, x->method.ptr, (int)x->path.len,
             x->path.ptr);
    count(&proa_lane_here()->bytes_in, x->body_len);
    proa_reserve_recover();
    if (dispatch(arg, x)) return;
    struct iovec iov = {(void *)(uintptr_t)body, sizeof body - 1};
    proa_http_respond(x, 404, proa_str_c("Content-Type: application/json\r\n"), &iov, 1, NULL, NULL);
}

static bool is_packed(const proa_http_exchange *x)
{
    proa_str coding = proa_http_get(x, "content-encoding");
    return coding.len > 0 && !proa_str_is(coding, "identity");
}

/* How long it takes follows from the bytes that are looked at one by one: JSON, and what is unpacked. */
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
    const proa_door *door = arg;
    if (!door->faces[PROA_FACE_HTTP] || proa_str_starts(x->path, (proa_str){"/v2/health/", 11})) return true;
    return door->faces[PROA_FACE_METRICS] && proa_str_is(x->path, "/metrics");
}

int64_t proa_route_body_limit(const proa_http_exchange *x, void *arg)
{
    const proa_door *door = arg;
    const proa_api_options *o = &door->api->options;
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
