/* SPDX-License-Identifier: Apache-2.0
 * access.c - who may call what: restricted categories and API keys, for both protocols. */
#include "api/internal.h"

#include <ctype.h>
#include <string.h>

enum { GRPC_PERMISSION_DENIED = 7, GRPC_UNAVAILABLE = 14, GRPC_UNAUTHENTICATED = 16 };

static const char *lower_name(proa_arena *arena, const char *prefix, const char *text)
{
    char *out = proa_arena_printf(arena, "%s%s", prefix, text);
    for (char *c = out; *c; c++) *c = (char)tolower((unsigned char)*c);
    return out;
}

static void init_rules(proa_api *api, proa_rule *rules, const proa_port *port, const char *prefix)
{
    for (int i = 0; i < port->restrictions_count; i++) {
        const proa_restriction *r = &port->restrictions[i];
        rules[r->category] = (proa_rule){
            .key = r->key, .header = lower_name(&api->arena, prefix, r->key), .value = proa_str_c(r->value)};
    }
}

void proa_access_init(proa_api *api)
{
    const char *header = api->options.client_header;
    api->options.client_header = lower_name(&api->arena, "", header ? header : PROA_CLIENT_HEADER);
    init_rules(api, api->rules[PROA_FRONTEND_HTTP], &api->options.http, "");
    init_rules(api, api->rules[PROA_FRONTEND_GRPC], &api->options.grpc, "triton-grpc-protocol-");
    proa_origin_init(api);
}

/* In constant time: it does not reveal where the first difference is. */
static bool same_secret(proa_str given, proa_str secret)
{
    volatile unsigned char differs = given.len != secret.len;
    for (size_t i = 0; i < given.len; i++)
        differs |= (unsigned char)(given.ptr[i] ^ (i < secret.len ? secret.ptr[i] : 0));
    return !differs;
}

/* The token of "Bearer TOKEN"; the scheme in any case. */
static proa_str bearer_token(proa_str authorization)
{
    static const char scheme[] = "bearer ";
    size_t n = sizeof scheme - 1;
    if (authorization.len < n || strncasecmp(authorization.ptr, scheme, n) != 0) return (proa_str){NULL, 0};
    while (n < authorization.len && authorization.ptr[n] == ' ') n++;
    return (proa_str){authorization.ptr + n, authorization.len - n};
}

/* Liveness and readiness probes usually carry no token, so health needs none. */
static bool has_key(const proa_api *api, proa_str token, proa_category category)
{
    if (!api->options.api_keys_count || category == PROA_CATEGORY_HEALTH) return true;
    bool found = false;
    for (int i = 0; i < api->options.api_keys_count; i++)
        found |= token.len > 0 && same_secret(token, proa_str_c(api->options.api_keys[i]));
    return found;
}

/* The key of an HTTP request: a bearer token, or Anthropic's header. */
static bool has_http_key(const proa_api *api, const proa_http_exchange *x, proa_category category)
{
    return has_key(api, bearer_token(proa_http_get(x, "authorization")), category) ||
           has_key(api, proa_http_get(x, "x-api-key"), category);
}

/* ---- who sent a request ---- */

/* A client of a key is another one than that of another key with the same header. */
static const char *client_name(proa_str key, proa_str header, proa_arena *arena)
{
    if (!key.len && !header.len) return NULL;
    unsigned long long k = key.len ? proa_str_hash(key) : 0, h = header.len ? proa_str_hash(header) : 0;
    return proa_arena_printf(arena, "%016llx-%016llx", k, h);
}

const char *proa_http_client(const proa_api *api, const proa_http_exchange *x, proa_arena *arena)
{
    const char *header = api->options.client_header;
    proa_str key = bearer_token(proa_http_get(x, "authorization"));
    if (!key.len) key = proa_http_get(x, "x-api-key");
    return client_name(key, *header ? proa_http_get(x, header) : (proa_str){NULL, 0}, arena);
}

const char *proa_grpc_client(const proa_api *api, const proa_grpc_call *call, proa_arena *arena)
{
    const char *header = api->options.client_header;
    return client_name(bearer_token(proa_grpc_get(call, "authorization")),
                       *header ? proa_grpc_get(call, header) : (proa_str){NULL, 0}, arena);
}

/* ---- who may ---- */

static void refuse_http(proa_http_exchange *x, int status, const char *extra, const char *text)
{
    bool openai = proa_str_starts(x->path, proa_str_c("/v1/"));
    proa_buf body;
    proa_buf_init(&body, (size_t)64 << 10);
    if (proa_str_starts(x->path, proa_str_c("/v1/messages"))) {
        proa_buf_printf(&body, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                        status == 401 ? "authentication_error" : "permission_error");
        proa_buf_json_str(&body, proa_str_c(text));
        proa_buf_printf(&body, "}}");
    } else if (openai) {
        proa_buf_printf(&body, "{\"error\":{\"message\":");
        proa_buf_json_str(&body, proa_str_c(text));
        proa_buf_printf(&body, ",\"type\":\"invalid_request_error\",\"param\":null,\"code\":%s}}",
                        status == 401 ? "\"invalid_api_key\"" : "null");
    } else {
        proa_buf_printf(&body, "{\"error\":");
        proa_buf_json_str(&body, proa_str_c(text));
        proa_buf_char(&body, '}');
    }
    char headers[128];
    int n = snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s", extra);
    struct iovec iov = {body.ptr, body.len};
    proa_http_respond(x, status, (proa_str){headers, (size_t)n}, (proa_http_body){.iov = &iov, .count = 1});
    proa_buf_release(&body);
}

bool proa_http_allowed(proa_api *api, proa_http_exchange *x, proa_category category)
{
    const proa_rule *rule = &api->rules[PROA_FRONTEND_HTTP][category];
    int status;
    const char *refusal = proa_category_controls(category) ? proa_http_control_refusal(api, x, &status) : NULL;
    if (refusal) {
        refuse_http(x, status, "", refusal);
        return false;
    }
    if (PROA_UNLIKELY(rule->key && !same_secret(proa_http_get(x, rule->header), rule->value))) {
        refuse_http(x, 403, "",
                    proa_arena_printf(x->arena, "This API is restricted, expecting header '%s'", rule->key));
        return false;
    }
    if (PROA_LIKELY(!api->options.api_keys_count)) return true;
    if (has_http_key(api, x, category)) return true;
    refuse_http(x, 401, "WWW-Authenticate: Bearer\r\n",
                "missing or wrong API key, expecting header 'Authorization: Bearer KEY'");
    return false;
}

bool proa_grpc_allowed(proa_api *api, proa_grpc_call *call, proa_category category)
{
    const proa_rule *rule = &api->rules[PROA_FRONTEND_GRPC][category];
    const char *refusal = proa_category_controls(category) ? proa_grpc_control_refusal(api, call) : NULL;
    if (refusal) {
        proa_grpc_finish(call, GRPC_PERMISSION_DENIED, proa_str_c(refusal), NULL, 0);
        return false;
    }
    if (PROA_UNLIKELY(rule->key && !same_secret(proa_grpc_get(call, rule->header), rule->value))) {
        const char *text = proa_arena_printf(
            call->arena, "This protocol is restricted, expecting header 'triton-grpc-protocol-%s'", rule->key);
        proa_grpc_finish(call, GRPC_UNAVAILABLE, proa_str_c(text), NULL, 0);
        return false;
    }
    if (PROA_LIKELY(!api->options.api_keys_count)) return true;
    if (has_key(api, bearer_token(proa_grpc_get(call, "authorization")), category)) return true;
    proa_grpc_finish(call, GRPC_UNAUTHENTICATED,
                     proa_str_c("missing or wrong API key, expecting metadata 'authorization: Bearer KEY'"),
                     NULL, 0);
    return false;
}
