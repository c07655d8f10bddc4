/* SPDX-License-Identifier: Apache-2.0
 * api.c - opening and closing the API: event loops and their threads, listening ports and the front ends behind
 * them. */
#include "api/http/v2.h"
#include "api/responses/responses.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/cpu.h"
#include "net/tls.h"
#include <string.h>
#include <time.h>

static const char *const frontend_names[PROA_FRONTEND_COUNT] = {"HTTP", "gRPC", "metrics"};

/* ---- options ---- */

static void copy_port(proa_arena *arena, proa_port *port, const proa_port *from)
{
    port->address = proa_arena_copy_text(arena, from->address ? from->address : "0.0.0.0");
    port->cert = proa_arena_copy_text(arena, from->cert);
    port->key = proa_arena_copy_text(arena, from->key);
    port->client_ca = proa_arena_copy_text(arena, from->client_ca);
    port->forward_pattern = proa_arena_copy_text(arena, from->forward_pattern);
    proa_restriction *rules = PROA_ARENA_NEW(arena, proa_restriction, from->restrictions_count);
    for (int i = 0; i < from->restrictions_count; i++) {
        const proa_restriction *r = &from->restrictions[i];
        rules[i] = (proa_restriction){r->category, proa_arena_copy_text(arena, r->key),
                                      proa_arena_copy_text(arena, r->value)};
    }
    port->restrictions = rules;
}

static void copy_options(proa_api *api, const proa_api_options *from)
{
    proa_api_options *o = &api->options;
    *o = *from;
    copy_port(&api->arena, &o->http, &from->http);
    copy_port(&api->arena, &o->grpc, &from->grpc);
    copy_port(&api->arena, &o->metrics, &from->metrics);
    o->api_keys = proa_arena_copy_list(&api->arena, from->api_keys, from->api_keys_count);
    o->allow_origins = proa_arena_copy_list(&api->arena, from->allow_origins, from->allow_origins_count);
    o->allow_hosts = proa_arena_copy_list(&api->arena, from->allow_hosts, from->allow_hosts_count);
    if (o->http_max_input <= 0) o->http_max_input = PROA_HTTP_BODY_MAX;
    if (o->threads <= 0) {
        int cpus = proa_cpu_count();
        o->threads = cpus <= 2 ? 1 : cpus / 2 < 8 ? cpus / 2 : 8;
    }
    if (o->threads > PROA_LOOPS_MAX) o->threads = PROA_LOOPS_MAX;
}

static const proa_port *port_of(const proa_api *api, proa_frontend frontend)
{
    const proa_port *const ports[PROA_FRONTEND_COUNT] = {&api->options.http, &api->options.grpc,
                                                         &api->options.metrics};
    return ports[frontend];
}

/* ---- endpoints: front ends with the same port share one ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* A socket in the file system has no port; port 0 is a new one each time. */
static bool same_place(const proa_port *a, const proa_port *b)
{
    if (!same_text(a->address, b->address)) return false;
    return strncmp(a->address, "unix:", 5) == 0 || (a->port && a->port == b->port);
}

static proa_status share_endpoint(proa_endpoint *endpoint, const proa_port *port, proa_frontend frontend,
                                  proa_err *err)
{
    for (int other = 0; other < (int)frontend; other++) {
        if (!endpoint->frontends[other]) continue;
        const proa_port *has = port_of(endpoint->api, (proa_frontend)other);
        if (!same_text(has->cert, port->cert) || !same_text(has->key, port->key) ||
            !same_text(has->client_ca, port->client_ca))
            return PROA_FAIL(err, INVALID, "%s and %s share port %d and must have the same certificates",
                             frontend_names[other], frontend_names[frontend], port->port);
    }
    endpoint->frontends[frontend] = true;
    return PROA_OK;
}

static proa_status plan_endpoints(proa_api *api, proa_err *err)
{
    for (int frontend = 0; frontend < PROA_FRONTEND_COUNT; frontend++) {
        const proa_port *port = port_of(api, (proa_frontend)frontend);
        if (!port->allow) continue;
        proa_endpoint *endpoint = NULL;
        for (int other = 0; other < frontend && !endpoint; other++)
            if (api->endpoint_of[other] && same_place(port_of(api, (proa_frontend)other), port))
                endpoint = api->endpoint_of[other];
        if (!endpoint) {
            endpoint = &api->endpoints[api->endpoints_count++];
            endpoint->api = api;
        }
        api->endpoint_of[frontend] = endpoint;
        PROA_TRY(share_endpoint(endpoint, port, (proa_frontend)frontend, err));
    }
    return PROA_OK;
}

static proa_status open_tls(proa_tls **out, const proa_port *port, proa_err *err)
{
    if (!port->cert) return PROA_OK;
    proa_tls_options o = {.cert = port->cert, .key = port->key, .client_ca = port->client_ca};
    return proa_tls_open(out, &o, err);
}

proa_status proa_api_check(const proa_api_options *o, proa_err *err)
{
    const proa_port *ports[] = {&o->http, &o->grpc, &o->metrics};
    for (size_t i = 0; i < PROA_COUNT(ports); i++) {
        if (!ports[i]->allow) continue;
        proa_tls *tls = NULL;
        proa_listen_options at = {.address = ports[i]->address,
                                  .port = ports[i]->port,
                                  .reuse_port = o->http.reuse || o->grpc.reuse}; /* front ends may share a port */
        PROA_TRY(open_tls(&tls, ports[i], err));
        proa_tls_close(tls);
        PROA_TRY(proa_listener_check(&at, err));
    }
    return PROA_OK;
}

static void fill_servers(proa_endpoint *endpoint)
{
    const proa_api_options *o = &endpoint->api->options;
    endpoint->http = (proa_http_server){.on_request = proa_route,
                                        .may_use_reserve = proa_route_may_use_reserve,
                                        .body_limit = proa_route_body_limit,
                                        .is_long = proa_route_is_long,
                                        .workers = endpoint->api->workers,
                                        .arg = endpoint,
                                        .body_max = o->http_max_input,
                                        .error_body = proa_route_error_body,
                                        .on_answer = proa_route_answer};
    endpoint->grpc = (proa_grpc_server){.on_call = proa_grpc_v2,
                                        .arg = endpoint->api,
                                        .workers = endpoint->api->workers,
                                        .unpacked_max = o->http_max_input,
                                        .keepalive_ms = o->grpc_keepalive_ms,
                                        .keepalive_timeout_ms = o->grpc_keepalive_timeout_ms,
                                        .connection_age_ms = o->grpc_age_ms,
                                        .connection_grace_ms = o->grpc_grace_ms,
                                        .compression_level = o->grpc_compression};
}

static proa_status open_endpoint(proa_endpoint *endpoint, proa_err *err)
{
    proa_api *api = endpoint->api;
    const proa_port *port = NULL;
    bool reuse = false;
    for (int frontend = PROA_FRONTEND_COUNT; frontend-- > 0;) {
        if (!endpoint->frontends[frontend]) continue;
        port = port_of(api, (proa_frontend)frontend);
        reuse |= port->reuse;
    }
    fill_servers(endpoint);
    PROA_TRY(open_tls(&endpoint->tls, port, err));
    bool http = endpoint->frontends[PROA_FRONTEND_HTTP] || endpoint->frontends[PROA_FRONTEND_METRICS],
         grpc = endpoint->frontends[PROA_FRONTEND_GRPC];
    proa_listen_options o = {.address = port->address,
                             .port = port->port,
                             .reuse_port = reuse,
                             .tls = endpoint->tls,
                             .http1 = http ? &proa_http_protocol : NULL,
                             .http1_server = &endpoint->http,
                             .http2 = grpc ? &proa_grpc_protocol : NULL,
                             .http2_server = &endpoint->grpc};
    proa_loop *loops[PROA_LOOPS_MAX];
    for (int i = 0; i < api->loops_count; i++) loops[i] = api->loops[i].loop;
    return proa_listener_open(&endpoint->listener, loops, api->loops_count, &o, err);
}

/* ---- threads ---- */

static void *loop_thread(void *arg)
{
    proa_loop_thread *t = arg;
    proa_thread_counters_use(t->counters);
    proa_loop_run(t->loop);
    proa_v2_infer_trim();
    proa_thread_counters_use(0);
    return NULL;
}

static proa_status start_loops(proa_api *api, proa_err *err)
{
    for (int i = 0; i < api->loops_count; i++) {
        proa_loop_thread *t = &api->loops[i];
        int code = pthread_create(&t->thread, NULL, loop_thread, t);
        if (code) return PROA_FAIL(err, NO_MEMORY, "cannot start a thread: %s", strerror(code));
        t->running = true;
    }
    return PROA_OK;
}

static void stop_loops(proa_api *api)
{
    for (int i = 0; i < api->loops_count; i++)
        if (api->loops[i].running) proa_loop_stop(api->loops[i].loop);
    for (int i = 0; i < api->loops_count; i++) {
        if (api->loops[i].running) pthread_join(api->loops[i].thread, NULL);
        api->loops[i].running = false;
    }
}

/* ---- the api ---- */

static proa_status open_parts(proa_api *api, proa_err *err)
{
    const proa_api_options *o = &api->options;
    if (o->http.forward_pattern)
        PROA_TRY(proa_forward_new(&api->forward[PROA_FRONTEND_HTTP], o->http.forward_pattern, err));
    if (o->grpc.forward_pattern)
        PROA_TRY(proa_forward_new(&api->forward[PROA_FRONTEND_GRPC], o->grpc.forward_pattern, err));
    proa_access_init(api);
    for (; api->loops_count < o->threads; api->loops_count++) {
        proa_loop_thread *t = &api->loops[api->loops_count];
        t->counters = api->loops_count + 1;
        PROA_TRY(proa_loop_new(&t->loop, err));
    }
    PROA_TRY(plan_endpoints(api, err));
    for (int i = 0; i < api->endpoints_count; i++) PROA_TRY(open_endpoint(&api->endpoints[i], err));
    return start_loops(api, err);
}

proa_status proa_api_open(proa_api **out, proa_server *server, const proa_api_options *options, proa_err *err)
{
    proa_api *api = proa_calloc(1, sizeof *api);
    *out = NULL;
    proa_arena_init(&api->arena);
    api->server = server;
    copy_options(api, options);
    int cpus = proa_cpu_count();
    api->loaders = proa_workers_new(PROA_WORK_THREADS_MAX, PROA_WORK_WAITING_MAX, NULL);
    api->workers = proa_workers_new(cpus < 2                         ? 2
                                    : cpus < PROA_WORKER_THREADS_MAX ? cpus
                                                                     : PROA_WORKER_THREADS_MAX,
                                    PROA_WORKER_WAITING_MAX, proa_v2_infer_trim);
    proa_status status = proa_settings_new(&api->settings, &api->options, err);
    api->responses = proa_response_store_new(PROA_RESPONSES_KEEP_MS);
    if (status == PROA_OK) status = open_parts(api, err);
    if (status != PROA_OK) {
        proa_api_close(api);
        return status;
    }
    *out = api;
    return PROA_OK;
}

static int frontend_port(const proa_api *api, proa_frontend frontend)
{
    return api->endpoint_of[frontend] ? proa_listener_port(api->endpoint_of[frontend]->listener) : -1;
}

proa_response_store *proa_api_responses(const proa_api *api)
{
    return api->responses;
}

int proa_api_http_port(const proa_api *api)
{
    return frontend_port(api, PROA_FRONTEND_HTTP);
}

int proa_api_grpc_port(const proa_api *api)
{
    return frontend_port(api, PROA_FRONTEND_GRPC);
}

int proa_api_metrics_port(const proa_api *api)
{
    return frontend_port(api, PROA_FRONTEND_METRICS);
}

static bool all_drained(const proa_api *api)
{
    for (int i = 0; i < api->endpoints_count; i++)
        if (!proa_listener_drained(api->endpoints[i].listener)) return false;
    return true;
}

static void sleep_ms(void)
{
    struct timespec t = {.tv_nsec = 2000000};
    nanosleep(&t, NULL);
}

bool proa_api_drain(proa_api *api, int64_t timeout_ms)
{
    int64_t end = proa_clock_ns() + timeout_ms * 1000000;
    for (int i = 0; i < api->endpoints_count; i++) proa_listener_drain(api->endpoints[i].listener);
    while (!all_drained(api)) {
        if (proa_clock_ns() >= end) return false;
        sleep_ms();
    }
    return true;
}

/* Requests whose connections have ended were cancelled, and their final replies still reach the loops. False if one
 * does not come: then loops and sinks must stay. */
static bool await_sinks(proa_api *api)
{
    int64_t end = proa_clock_ns() + (int64_t)PROA_CLOSE_MS * 1000000;
    if (proa_sinks_live() == 0) return true;
    if (start_loops(api, NULL) != PROA_OK) return false;
    while (proa_sinks_live() > 0 && proa_clock_ns() < end) sleep_ms();
    stop_loops(api);
    return proa_sinks_live() == 0;
}

void proa_api_close(proa_api *api)
{
    if (!api) return;
    proa_workers_end(api->loaders);
    proa_workers_end(api->workers);
    stop_loops(api);
    for (int i = 0; i < api->endpoints_count; i++) {
        if (api->endpoints[i].listener) proa_listener_close(api->endpoints[i].listener);
        proa_tls_close(api->endpoints[i].tls);
    }
    if (!await_sinks(api)) {
        PROA_LOG(ERROR, "requests did not end within %d s after they were cancelled",
                 (int)(PROA_CLOSE_MS / 1000));
        return; /* a leak at the end of the process is better than a reply into freed memory */
    }
    for (int i = 0; i < api->loops_count; i++) proa_loop_free(api->loops[i].loop);
    proa_workers_free(api->loaders);
    proa_workers_free(api->workers);
    for (int i = 0; i < 2; i++) proa_forward_free(api->forward[i]);
    proa_settings_free(api->settings);
    proa_response_store_free(api->responses);
    proa_arena_release(&api->arena);
    free(api);
}
