/* SPDX-License-Identifier: Apache-2.0
 * v2.c - the routes of KServe v2: takes a path apart and calls the handler of its route. */
#include "api/http/v2.h"

#include <string.h>

typedef struct v2_route {
    const char *kind;
    proa_category category;
    proa_v2_handler *get, *post;
} v2_route;

/* After /v2/models/NAME[/versions/V]; the most frequent first. */
static const v2_route model_routes[] = {
    {"/infer", PROA_CATEGORY_INFERENCE, NULL, proa_v2_infer},
    {"", PROA_CATEGORY_METADATA, proa_v2_metadata, NULL},
    {"/ready", PROA_CATEGORY_HEALTH, proa_v2_model_ready, NULL},
    {"/config", PROA_CATEGORY_MODEL_CONFIG, proa_v2_config, NULL},
    {"/stats", PROA_CATEGORY_STATISTICS, proa_v2_stats, NULL},
    {"/generate", PROA_CATEGORY_INFERENCE, NULL, proa_v2_generate},
    {"/generate_stream", PROA_CATEGORY_INFERENCE, NULL, proa_v2_generate_stream},
    {"/trace/setting", PROA_CATEGORY_TRACE, proa_v2_trace_get, proa_v2_trace_set},
};

static const v2_route server_routes[] = {
    {"/v2", PROA_CATEGORY_METADATA, proa_v2_server_metadata, NULL},
    {"/v2/health/live", PROA_CATEGORY_HEALTH, proa_v2_live, NULL},
    {"/v2/health/ready", PROA_CATEGORY_HEALTH, proa_v2_ready, NULL},
    {"/v2/models/stats", PROA_CATEGORY_STATISTICS, proa_v2_stats, NULL},
    {"/v2/logging", PROA_CATEGORY_LOGGING, proa_v2_logging_get, proa_v2_logging_set},
    {"/v2/trace/setting", PROA_CATEGORY_TRACE, proa_v2_trace_get, proa_v2_trace_set},
};

static const v2_route shm_routes[] = {
    {"/status", PROA_CATEGORY_SHARED_MEMORY, proa_v2_shm_status, NULL},
    {"/register", PROA_CATEGORY_SHARED_MEMORY, NULL, proa_v2_shm_register},
    {"/unregister", PROA_CATEGORY_SHARED_MEMORY, NULL, proa_v2_shm_unregister},
};

static const v2_route cuda_routes[] = {
    {"/status", PROA_CATEGORY_SHARED_MEMORY, proa_v2_cuda_status, NULL},
    {"/register", PROA_CATEGORY_SHARED_MEMORY, NULL, proa_v2_cuda_register},
    {"/unregister", PROA_CATEGORY_SHARED_MEMORY, NULL, proa_v2_cuda_unregister},
};

static const v2_route index_route = {"/index", PROA_CATEGORY_MODEL_REPOSITORY, NULL, proa_v2_index};
static const v2_route control_routes[] = {
    {"/load", PROA_CATEGORY_MODEL_REPOSITORY, NULL, proa_v2_load},
    {"/unload", PROA_CATEGORY_MODEL_REPOSITORY, NULL, proa_v2_unload},
};

static const v2_route *find_route(const v2_route *routes, size_t count, proa_str kind)
{
    for (size_t i = 0; i < count; i++)
        if (proa_str_is(kind, routes[i].kind)) return &routes[i];
    return NULL;
}

static void wrong_method(proa_http_exchange *x)
{
    static const char body[] = "{\"error\":\"Method Not Allowed\"}";
    struct iovec iov = {(void *)(uintptr_t)body, sizeof body - 1};
    proa_http_respond(x, 405, proa_str_c("Content-Type: application/json\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1});
}

static bool run_route(const v2_route *route, proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    if (!route) return false;
    if (!proa_http_allowed(api, x, route->category)) return true;
    proa_v2_handler *handler = NULL;
    if (proa_str_is(x->method, "POST")) handler = route->post;
    else if (proa_str_is(x->method, "GET")) handler = route->get;
    if (handler) handler(api, x, path);
    else wrong_method(x);
    return true;
}

static proa_str text_behind(proa_str s, size_t n)
{
    return (proa_str){s.ptr + n, s.len - n};
}

/* Cuts off what comes before the next slash, which stays. */
static proa_str next_segment(proa_str *rest)
{
    const char *slash = rest->len ? memchr(rest->ptr, '/', rest->len) : NULL;
    proa_str s = {rest->ptr, slash ? (size_t)(slash - rest->ptr) : rest->len};
    *rest = text_behind(*rest, s.len);
    return s;
}

static bool skip_prefix(proa_str *rest, const char *text)
{
    proa_str p = proa_str_c(text);
    if (!proa_str_starts(*rest, p)) return false;
    *rest = text_behind(*rest, p.len);
    return true;
}

/* rest: after /v2/models/ */
static bool model_path(proa_api *api, proa_http_exchange *x, proa_str rest)
{
    proa_str name = next_segment(&rest);
    proa_v2_path path = {
        .model = name.len ? proa_arena_url_decode(x->arena, name) : NULL, .region = "", .repository = ""};
    if (!path.model) return false;
    if (skip_prefix(&rest, "/versions/")) {
        path.version = next_segment(&rest);
        for (size_t i = 0; i < path.version.len; i++)
            if (path.version.ptr[i] < '0' || path.version.ptr[i] > '9') return false;
        if (!path.version.len) return false;
    }
    const v2_route *route = find_route(model_routes, PROA_COUNT(model_routes), rest);
    if (route && route->category == PROA_CATEGORY_TRACE && path.version.len) return false;
    return run_route(route, api, x, &path);
}

/* rest: after /v2/systemsharedmemory or /v2/cudasharedmemory */
static bool shm_path(proa_api *api, proa_http_exchange *x, proa_str rest, const v2_route *routes)
{
    proa_v2_path path = {.model = "", .region = "", .repository = ""};
    if (skip_prefix(&rest, "/region/")) {
        proa_str name = next_segment(&rest);
        path.region = name.len ? proa_arena_url_decode(x->arena, name) : NULL;
        if (!path.region) return false;
    }
    return run_route(find_route(routes, PROA_COUNT(shm_routes), rest), api, x, &path);
}

/* rest: after /v2/repository. [/REPOSITORY]/index or [/REPOSITORY]/models/NAME/(load|unload) */
static bool repository_path(proa_api *api, proa_http_exchange *x, proa_str rest)
{
    proa_v2_path path = {.model = "", .region = "", .repository = ""};
    proa_str models = proa_str_c("/models/");
    if (!proa_str_is(rest, "/index") && !proa_str_starts(rest, models)) {
        if (!skip_prefix(&rest, "/")) return false;
        proa_str name = next_segment(&rest);
        path.repository = name.len ? proa_arena_url_decode(x->arena, name) : NULL;
        if (!path.repository) return false;
    }
    if (proa_str_is(rest, index_route.kind)) return run_route(&index_route, api, x, &path);
    if (!skip_prefix(&rest, "/models/")) return false;
    proa_str name = next_segment(&rest);
    path.model = name.len ? proa_arena_url_decode(x->arena, name) : NULL;
    if (!path.model) return false;
    return run_route(find_route(control_routes, PROA_COUNT(control_routes), rest), api, x, &path);
}

static void refuse_nul(proa_http_exchange *x)
{
    static const char body[] = "{\"error\":\"a name in the path has a NUL byte (%00)\"}";
    struct iovec iov = {(void *)(uintptr_t)body, sizeof body - 1};
    proa_http_respond(x, 400, proa_str_c("Content-Type: application/json\r\n"),
                      (proa_http_body){.iov = &iov, .count = 1});
}

bool proa_http_v2(proa_api *api, proa_http_exchange *x)
{
    proa_v2_path none = {.model = "", .region = "", .repository = ""};
    proa_str rest = x->path;
    if (PROA_UNLIKELY(memchr(rest.ptr, '%', rest.len) != NULL) && memmem(rest.ptr, rest.len, "%00", 3)) {
        refuse_nul(x);
        return true;
    }
    const v2_route *route = find_route(server_routes, PROA_COUNT(server_routes), rest);
    if (route) return run_route(route, api, x, &none);
    if (skip_prefix(&rest, "/v2/models/")) return model_path(api, x, rest);
    if (skip_prefix(&rest, "/v2/systemsharedmemory")) return shm_path(api, x, rest, shm_routes);
    if (skip_prefix(&rest, "/v2/cudasharedmemory")) return shm_path(api, x, rest, cuda_routes);
    if (skip_prefix(&rest, "/v2/repository")) return repository_path(api, x, rest);
    return false;
}
