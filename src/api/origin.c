/* SPDX-License-Identifier: Apache-2.0
 * origin.c - which requests may reach the control routes. A web page can make its reader's browser send requests here:
 * across origins, which the browser marks with Origin, or under a name of the page's own that resolves to this server
 * (DNS rebinding), which shows in Host. */
#include "api/internal.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SHOWN_MAX 120 /* characters of a header in an error text */

bool proa_category_controls(proa_category category)
{
    return category == PROA_CATEGORY_MODEL_REPOSITORY || category == PROA_CATEGORY_SHARED_MEMORY ||
           category == PROA_CATEGORY_TRACE || category == PROA_CATEGORY_LOGGING;
}

void proa_origin_init(proa_api *api)
{
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0) name[0] = 0;
    api->machine = proa_arena_strdup(&api->arena, proa_str_c(name));
}

static bool same_name(proa_str a, proa_str b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

/* "host:port" of "scheme://host:port"; empty if it has no such form ("null"). */
static proa_str authority_of(proa_str origin)
{
    static const char mark[] = "://";
    const char *at = origin.len ? memmem(origin.ptr, origin.len, mark, sizeof mark - 1) : NULL;
    if (!at) return (proa_str){"", 0};
    at += sizeof mark - 1;
    return (proa_str){at, origin.len - (size_t)(at - origin.ptr)};
}

/* The name without port, brackets and the dot of a fully qualified name. */
static proa_str host_of(proa_str authority)
{
    proa_str name = authority;
    if (name.len && name.ptr[0] == '[') {
        const char *end = memchr(name.ptr, ']', name.len);
        return (proa_str){name.ptr + 1, end ? (size_t)(end - name.ptr) - 1 : 0};
    }
    const char *colon = name.len ? memchr(name.ptr, ':', name.len) : NULL;
    if (colon) name.len = (size_t)(colon - name.ptr);
    if (name.len && name.ptr[name.len - 1] == '.') name.len--;
    return name;
}

/* No page can make a name of its own out of an address. */
static bool is_address(proa_str name)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (name.len >= sizeof text) return false;
    memcpy(text, name.ptr, name.len);
    text[name.len] = 0;
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

static bool is_loopback(proa_str name)
{
    proa_str local = proa_str_c("localhost"), below = proa_str_c(".localhost");
    if (same_name(name, local)) return true;
    return name.len > below.len && same_name((proa_str){name.ptr + name.len - below.len, below.len}, below);
}

/* The machine's name, whole or without its domain. */
static bool is_machine(const proa_api *api, proa_str name)
{
    proa_str machine = proa_str_c(api->machine ? api->machine : "");
    return machine.len &&
           (same_name(name, machine) || same_name(name, (proa_str){machine.ptr, strcspn(machine.ptr, ".")}));
}

static bool own_host(const proa_api *api, proa_str name)
{
    const proa_api_options *o = &api->options;
    if (is_address(name) || is_loopback(name) || is_machine(api, name)) return true;
    if (o->http.address && same_name(name, proa_str_c(o->http.address))) return true;
    for (int i = 0; i < o->allow_hosts_count; i++) {
        proa_str allowed = proa_str_c(o->allow_hosts[i]);
        if (proa_str_is(allowed, "*") || same_name(name, host_of(allowed))) return true;
    }
    for (int i = 0; i < o->allow_origins_count; i++)
        if (same_name(name, host_of(authority_of(proa_str_c(o->allow_origins[i]))))) return true;
    return false;
}

static bool listed_origin(const proa_api *api, proa_str origin)
{
    const proa_api_options *o = &api->options;
    for (int i = 0; i < o->allow_origins_count; i++) {
        proa_str allowed = proa_str_c(o->allow_origins[i]);
        if (proa_str_is(allowed, "*") || same_name(origin, allowed)) return true;
    }
    return false;
}

static int shown_length(proa_str s)
{
    return (int)(s.len < SHOWN_MAX ? s.len : SHOWN_MAX);
}

static const char *refuse_origin(proa_arena *arena, proa_str origin)
{
    return proa_arena_printf(arena,
                             "Origin '%.*s' is not allowed on control routes: it is neither the server's own "
                             "nor given by --allow-origin",
                             shown_length(origin), origin.ptr);
}

/* libcurl, and so Triton's C++ client, calls any body a form; tritonclient gives no type. A page's form looks the same
 * but for the headers of its browser. */
static bool right_type(const proa_http_exchange *x, proa_str type)
{
    proa_str media = {type.ptr, 0};
    while (media.len < type.len && !strchr("; \t", type.ptr[media.len])) media.len++;
    if (same_name(media, proa_str_c("application/json"))) return true;
    if (media.len && !same_name(media, proa_str_c("application/x-www-form-urlencoded"))) return false;
    return !proa_http_get(x, "origin").ptr && !proa_http_get(x, "sec-fetch-site").ptr;
}

const char *proa_http_control_refusal(const proa_api *api, const proa_http_exchange *x, int *status)
{
    proa_str host = proa_http_get(x, "host"), origin = proa_http_get(x, "origin"),
             type = proa_http_get(x, "content-type");
    *status = 403;
    if (origin.ptr && !listed_origin(api, origin)) {
        proa_str authority = authority_of(origin);
        if (!authority.len || !same_name(authority, host)) return refuse_origin(x->arena, origin);
    }
    if (host.len && !own_host(api, host_of(host))) /* HTTP/1.0 may have none; browsers always send it */
        return proa_arena_printf(x->arena,
                                 "Host '%.*s' is not allowed on control routes: it is neither a name of the "
                                 "server nor given by --allow-host",
                                 shown_length(host), host.ptr);
    if (x->body_len == 0 || right_type(x, type)) return NULL;
    *status = 415;
    return proa_arena_printf(x->arena, "the body of a control request must be application/json, got '%.*s'",
                             shown_length(type), type.ptr ? type.ptr : "");
}

const char *proa_grpc_control_refusal(const proa_api *api, const proa_grpc_call *call)
{
    proa_str origin = proa_grpc_get(call, "origin");
    return !origin.ptr || listed_origin(api, origin) ? NULL : refuse_origin(call->arena, origin);
}
