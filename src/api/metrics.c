/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - the /metrics page, and the load header of generate. */
#include "api/http/v2.h"

#include "base/limits.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { METRICS_BYTES_MAX = 256 << 20 };

/* ---- the api's own families ---- */

static void put_family(proa_buf *out, const char *name, const char *kind, const char *help)
{
    proa_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static void of_ports(proa_buf *out, const proa_api *api, const char *name,
                     int64_t (*value)(const proa_listener *))
{
    static const char *const names[PROA_FRONTEND_COUNT] = {"http", "grpc", "metrics"};
    for (int i = 0; i < api->endpoints_count; i++) {
        const proa_endpoint *endpoint = &api->endpoints[i];
        int frontend = 0;
        while (!endpoint->frontends[frontend]) frontend++;
        proa_buf_printf(out, "%s{face=\"%s\"} %" PRId64 "\n", name, names[frontend], value(endpoint->listener));
    }
}

static void put_connections(proa_buf *out, const proa_api *api)
{
    put_family(out, "proa_connections", "gauge",
               "Number of connections that are open, by the first protocol of their port");
    of_ports(out, api, "proa_connections", proa_listener_connections);
    put_family(out, "proa_connections_refused_total", "counter",
               "Number of connections for which their port had no room");
    of_ports(out, api, "proa_connections_refused_total", proa_listener_refused);
}

static void print_traffic(proa_buf *out)
{
    uint64_t in, sent, answers[6];
    proa_thread_counters_sum(&in, &sent, answers);
    put_family(out, "proa_http_answers_total", "counter",
               "Number of HTTP answers by the first digit of their status");
    for (int i = 1; i < 6; i++)
        proa_buf_printf(out, "proa_http_answers_total{status=\"%dxx\"} %" PRIu64 "\n", i, answers[i]);
    put_family(out, "proa_http_request_body_bytes_total", "counter", "Bytes of HTTP request bodies");
    proa_buf_printf(out, "proa_http_request_body_bytes_total %" PRIu64 "\n", in);
    put_family(out, "proa_http_answer_body_bytes_total", "counter",
               "Bytes of whole HTTP answers, without their heads");
    proa_buf_printf(out, "proa_http_answer_body_bytes_total %" PRIu64 "\n", sent);
    put_family(out, "proa_tensor_copied_bytes_total", "counter",
               "Bytes copied from one tensor into another (by ensembles: none)");
    proa_buf_printf(out, "proa_tensor_copied_bytes_total %" PRIu64 "\n", proa_copies_count());
    proa_device_copies copies = proa_device_copies_count();
    put_family(out, "proa_host_copies_total", "counter",
               "Number of tensors copied from a device to the host (between steps on one device: none)");
    proa_buf_printf(out, "proa_host_copies_total %" PRIu64 "\n", copies.to_host);
    put_family(out, "proa_host_copied_bytes_total", "counter", "Bytes of these tensors");
    proa_buf_printf(out, "proa_host_copied_bytes_total %" PRIu64 "\n", copies.to_host_bytes);
    put_family(out, "proa_device_copies_total", "counter",
               "Number of tensors copied from the host's memory to a device");
    proa_buf_printf(out, "proa_device_copies_total %" PRIu64 "\n", copies.to_device);
    put_family(out, "proa_device_copied_bytes_total", "counter", "Bytes of these tensors");
    proa_buf_printf(out, "proa_device_copied_bytes_total %" PRIu64 "\n", copies.to_device_bytes);
    put_family(out, "proa_requests_in_flight", "gauge",
               "Number of inference requests that have not got their last reply");
    proa_buf_printf(out, "proa_requests_in_flight %" PRId64 "\n", proa_sinks_live());
}

static void put_traces(proa_buf *out, const proa_api *api)
{
    proa_telemetry_counts c;
    if (!proa_settings_traces(api->settings, &c)) return;
    put_family(out, "proa_trace_spans_exported_total", "counter",
               "Number of spans of traces that were written to a file or sent to a collector");
    proa_buf_printf(out, "proa_trace_spans_exported_total %" PRIu64 "\n", c.exported);
    put_family(
        out, "proa_trace_spans_dropped_total", "counter",
        "Number of spans of traces that were lost: the queue was full, or they could not be written or sent");
    proa_buf_printf(out, "proa_trace_spans_dropped_total %" PRIu64 "\n", c.dropped);
    put_family(out, "proa_trace_exports_failed_total", "counter",
               "Number of batches of spans that a collector did not take");
    proa_buf_printf(out, "proa_trace_exports_failed_total %" PRIu64 "\n", c.failed_exports);
}

bool proa_metrics_frontend(proa_api *api, proa_http_exchange *x)
{
    static const char head[] = "Content-Type: text/plain; charset=utf-8\r\n";
    proa_buf out;
    if (!proa_str_is(x->path, "/metrics") && !proa_str_is(x->path, "/metrics/")) return false;
    if (!proa_str_is(x->method, "GET")) {
        proa_http_respond(x, 405, proa_str_c("Content-Type: text/plain\r\n"), (proa_http_body){0});
        return true;
    }
    proa_buf_init(&out, METRICS_BYTES_MAX);
    proa_server_metrics(api->server, &out);
    put_connections(&out, api);
    print_traffic(&out);
    put_traces(&out, api);
    struct iovec iov = {out.ptr, out.len};
    proa_http_respond(x, 200, (proa_str){head, sizeof head - 1},
                      (proa_http_body){.iov = &iov, .count = 1, .release = free, .arg = out.ptr});
    return true;
}

/* ---- the load of the key and value pages in a header of generate (ORCA) ---- */

/* The value with kv_cache_block_type="TYPE" in that family, of the last model that has it (as Triton); -1 if none. */
static double block_metric(const char *metrics, const char *type)
{
    static const char name[] = "nv_trt_llm_kv_cache_block_metrics{";
    char label[64];
    double value = -1;
    snprintf(label, sizeof label, "kv_cache_block_type=\"%s\"", type);
    for (const char *line = metrics; (line = strstr(line, name)) != NULL; line++) {
        const char *end = strchr(line, '\n'), *close = strchr(line, '}'), *found = strstr(line, label);
        if (!close || (end && close > end) || !found || found > close) continue;
        value = strtod(close + 1, NULL);
    }
    return value;
}

char *proa_v2_load_header(proa_server *server, proa_str format, proa_arena *arena)
{
    static char none[1];
    bool json = proa_str_is(format, "json");
    if (!json && !proa_str_is(format, "text")) return none;
    proa_buf metrics;
    proa_buf_init(&metrics, METRICS_BYTES_MAX);
    proa_server_metrics(server, &metrics);
    const char *text = proa_buf_view(&metrics).ptr;
    double used = block_metric(text, "used"), max = block_metric(text, "max"),
           tokens = block_metric(text, "tokens_per");
    proa_buf_release(&metrics);
    if (used < 0 || max < 0 || tokens < 0) return none;
    double share = max > 0 ? used / max : 0;
    if (json)
        return proa_arena_printf(
            arena,
            "endpoint-load-metrics: JSON {\"named_metrics\":{\"kv_cache_utilization\":%.17g,"
            "\"max_token_capacity\":%.0f}}\r\n",
            share, max * tokens);
    return proa_arena_printf(arena,
                             "endpoint-load-metrics: TEXT named_metrics.kv_cache_utilization=%f, "
                             "named_metrics.max_token_capacity=%.0f\r\n",
                             share, max * tokens);
}
