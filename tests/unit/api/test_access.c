/* SPDX-License-Identifier: Apache-2.0
 * test_access.c - restricted categories and API keys in both protocols, with the texts and statuses; headers that
 * become parameters; parameters of the protocol. The exchange and the call are stand-ins. */
#include "api/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- stand-ins for net ---- */

static int answered;
static char answer[1024], answer_head[256];

void proa_http_respond(proa_http_exchange *x, int status, proa_str headers, proa_http_body body)
{
    (void)x;
    assert_int_equal(body.count, 1);
    answered = status;
    snprintf(answer, sizeof answer, "%.*s", (int)body.iov->iov_len, (const char *)body.iov->iov_base);
    snprintf(answer_head, sizeof answer_head, "%.*s", (int)headers.len, headers.ptr);
    if (body.release) body.release(body.arg);
}

proa_str proa_http_get(const proa_http_exchange *x, const char *name)
{
    for (int i = 0; i < x->headers_count; i++)
        if (strlen(name) == x->headers[i].name.len &&
            strncasecmp(x->headers[i].name.ptr, name, x->headers[i].name.len) == 0)
            return x->headers[i].value;
    return (proa_str){NULL, 0};
}

void proa_grpc_finish(proa_grpc_call *call, int code, proa_str message, const proa_grpc_header *trailers, int count)
{
    (void)call;
    (void)trailers;
    (void)count;
    answered = code;
    snprintf(answer, sizeof answer, "%.*s", (int)message.len, message.ptr);
}

proa_str proa_grpc_get(const proa_grpc_call *call, const char *name)
{
    for (int i = 0; i < call->metadata_count; i++)
        if (proa_str_is(call->metadata[i].name, name)) return call->metadata[i].value;
    return (proa_str){NULL, 0};
}

/* ---- */

static const proa_restriction http_rules[] = {{PROA_CATEGORY_INFERENCE, "X-Key", "secret"},
                                              {PROA_CATEGORY_HEALTH, "X-Probe", "p"}};
static const proa_restriction grpc_rules[] = {{PROA_CATEGORY_MODEL_REPOSITORY, "Admin", "root"}};
static const char *const keys[] = {"key-one", "key-two"};
static proa_api api;
static proa_arena arena;

static bool http(const char *path, proa_category category, const char *name, const char *value)
{
    proa_http_header header = {proa_str_c(name), proa_str_c(value)};
    proa_http_exchange x = {
        .path = proa_str_c(path), .headers = &header, .headers_count = name != NULL, .arena = &arena};
    answered = 0;
    return proa_http_allowed(&api, &x, category);
}

static bool grpc(proa_category category, const char *name, const char *value)
{
    proa_grpc_header header = {proa_str_c(name), proa_str_c(value)};
    proa_grpc_call call = {.metadata = &header, .metadata_count = name != NULL, .arena = &arena};
    answered = 0;
    return proa_grpc_allowed(&api, &call, category);
}

static void open_api(bool with_keys)
{
    memset(&api, 0, sizeof api);
    proa_arena_init(&api.arena);
    api.options.http = (proa_port){.restrictions = http_rules, .restrictions_count = 2};
    api.options.grpc = (proa_port){.restrictions = grpc_rules, .restrictions_count = 1};
    api.options.api_keys = keys;
    api.options.api_keys_count = with_keys ? 2 : 0;
    proa_access_init(&api);
}

static void test_http_restrictions(void **state)
{
    open_api(false);
    assert_true(http("/v2", PROA_CATEGORY_METADATA, NULL, NULL));
    assert_false(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, NULL, NULL));
    assert_int_equal(answered, 403);
    assert_string_equal(answer, "{\"error\":\"This API is restricted, expecting header 'X-Key'\"}");
    assert_false(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "x-key", "secre"));
    assert_false(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "x-key", "secret2"));
    assert_false(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "x-key", ""));
    assert_false(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "x-probe", "secret"));
    assert_true(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "x-kEy", "secret"));
    assert_false(http("/v2/health/live", PROA_CATEGORY_HEALTH, NULL, NULL));
    assert_true(grpc(PROA_CATEGORY_INFERENCE, NULL, NULL));
    proa_arena_release(&api.arena);
    (void)state;
}

static void test_grpc_restrictions(void **state)
{
    open_api(false);
    assert_false(grpc(PROA_CATEGORY_MODEL_REPOSITORY, NULL, NULL));
    assert_int_equal(answered, 14);
    assert_string_equal(answer, "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin'");
    assert_false(grpc(PROA_CATEGORY_MODEL_REPOSITORY, "admin", "root"));
    assert_true(grpc(PROA_CATEGORY_MODEL_REPOSITORY, "triton-grpc-protocol-admin", "root"));
    proa_arena_release(&api.arena);
    (void)state;
}

static void test_keys(void **state)
{
    open_api(true);
    assert_false(http("/v2", PROA_CATEGORY_METADATA, NULL, NULL));
    assert_int_equal(answered, 401);
    assert_non_null(strstr(answer_head, "WWW-Authenticate: Bearer\r\n"));
    assert_non_null(strstr(answer, "{\"error\":\"missing or wrong API key"));
    assert_false(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "Bearer key-on"));
    assert_false(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "Bearer key-onex"));
    assert_false(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "Bearer "));
    assert_false(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "key-one"));
    assert_false(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "Basic key-one"));
    assert_true(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "Bearer key-one"));
    assert_true(http("/v2", PROA_CATEGORY_METADATA, "Authorization", "bearer  key-two"));
    assert_true(http("/v2/health/ready", PROA_CATEGORY_HEALTH, "x-probe", "p")); /* probes carry no token */
    assert_false(http("/v1/models", PROA_CATEGORY_METADATA, NULL, NULL));
    assert_non_null(strstr(answer, "\"code\":\"invalid_api_key\""));
    assert_false(grpc(PROA_CATEGORY_METADATA, NULL, NULL));
    assert_int_equal(answered, 16);
    assert_true(grpc(PROA_CATEGORY_METADATA, "authorization", "Bearer key-two"));
    assert_true(grpc(PROA_CATEGORY_HEALTH, NULL, NULL));
    proa_arena_release(&api.arena);
    (void)state;
}

/* Status of a request for a control route with these headers ("Name: value", NULL at the end); 0: allowed. */
static int control(size_t body_len, ...)
{
    proa_http_header headers[8];
    proa_http_exchange x = {
        .path = proa_str_c("/v2/logging"), .headers = headers, .body_len = body_len, .arena = &arena};
    va_list list;
    va_start(list, body_len);
    for (const char *line; (line = va_arg(list, const char *)) != NULL;) {
        const char *colon = strstr(line, ": ");
        headers[x.headers_count++] = (proa_http_header){{line, (size_t)(colon - line)}, proa_str_c(colon + 2)};
    }
    va_end(list);
    answered = 0;
    bool allowed = proa_http_allowed(&api, &x, PROA_CATEGORY_LOGGING);
    assert_true(allowed == (answered == 0));
    return answered;
}

static void open_named(const char *const *origins, int origins_count, const char *const *hosts, int hosts_count)
{
    memset(&api, 0, sizeof api);
    proa_arena_init(&api.arena);
    api.options.http.address = "proa.internal";
    api.options.allow_origins = origins, api.options.allow_origins_count = origins_count;
    api.options.allow_hosts = hosts, api.options.allow_hosts_count = hosts_count;
    proa_access_init(&api);
    api.machine = "worker7.example.org";
}

static void test_control_hosts(void **state)
{
    static const char *const own[] = {"localhost",    "localhost:8000",  "LOCALHOST.",
                                      "a.localhost",  "127.0.0.1:1",     "10.0.0.3",
                                      "[::1]:8000",   "[fe80::1]",       "worker7",
                                      "worker7:8000", "proa.internal:1", "worker7.example.org"};
    static const char *const others[] = {"evil.example",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "xlocalhost",
                                         "worker7.evil.example",
                                         "worker",
                                         "[::1",
                                         "[evil.example]",
                                         ":8000",
                                         "999.0.0.1",
                                         "example.org"};
    open_named(NULL, 0, NULL, 0);
    for (size_t i = 0; i < PROA_COUNT(own); i++)
        assert_int_equal(control(0, proa_arena_printf(&arena, "Host: %s", own[i]), NULL), 0);
    for (size_t i = 0; i < PROA_COUNT(others); i++)
        assert_int_equal(control(0, proa_arena_printf(&arena, "Host: %s", others[i]), NULL), 403);
    assert_int_equal(control(0, NULL), 0); /* HTTP/1.0 */
    assert_true(http("/v2/models/m/infer", PROA_CATEGORY_INFERENCE, "Host", "evil.example"));
    proa_arena_release(&api.arena);
    (void)state;
}

static void test_control_origins(void **state)
{
    static const char *const origins[] = {"https://ui.example"}, *const hosts[] = {"triton"}, *const any[] = {"*"};
    open_named(origins, 1, hosts, 1);
    assert_int_equal(control(0, "Host: localhost:8000", "Origin: http://localhost:8000", NULL), 0);
    assert_int_equal(control(0, "Host: localhost:8000", "Origin: http://localhost:8001", NULL), 403);
    assert_int_equal(control(0, "Host: localhost:8000", "Origin: http://evil.example", NULL), 403);
    assert_string_equal(answer,
                        "{\"error\":\"Origin 'http://evil.example' is not allowed on control routes: it is "
                        "neither the server's own nor given by --allow-origin\"}");
    assert_int_equal(control(0, "Host: evil.example", "Origin: http://evil.example", NULL), 403);
    assert_int_equal(control(0, "Host: localhost", "Origin: null", NULL), 403);
    assert_int_equal(control(0, "Host: localhost", "Origin: ", NULL), 403);
    assert_int_equal(control(0, "Host: localhost", "Origin: http://", NULL), 403);
    assert_int_equal(control(0, "Host: localhost", "Origin: https://ui.example", NULL), 0);
    assert_int_equal(control(0, "Host: ui.example", "Origin: https://ui.example", NULL), 0);
    assert_int_equal(control(0, "Host: triton:8000", NULL), 0);
    assert_true(grpc(PROA_CATEGORY_LOGGING, "origin", "https://ui.example"));
    assert_true(grpc(PROA_CATEGORY_INFERENCE, "origin", "http://evil.example"));
    assert_false(grpc(PROA_CATEGORY_MODEL_REPOSITORY, "origin", "http://evil.example"));
    assert_int_equal(answered, 7);
    proa_arena_release(&api.arena);
    open_named(any, 1, any, 1);
    assert_int_equal(control(0, "Host: evil.example", "Origin: null", NULL), 0);
    proa_arena_release(&api.arena);
    (void)state;
}

static void test_control_types(void **state)
{
    open_named(NULL, 0, NULL, 0);
    assert_int_equal(control(2, "Content-Type: application/JSON ; charset=utf-8", "Origin: http://localhost",
                             "Host: localhost", NULL),
                     0);
    assert_int_equal(control(2, "Content-Type: text/plain", NULL), 415);
    assert_int_equal(control(0, "Content-Type: text/plain", NULL), 0);
    assert_int_equal(control(2, NULL), 0);
    assert_int_equal(control(2, "Sec-Fetch-Site: same-origin", NULL), 415);
    assert_int_equal(control(2, "Content-Type: application/x-www-form-urlencoded", NULL), 0);
    assert_int_equal(
        control(2, "Content-Type: application/x-www-form-urlencoded", "Sec-Fetch-Site: none", NULL), 415);
    proa_arena_release(&api.arena);
    (void)state;
}

static void test_forwarding(void **state)
{
    proa_err err = {.status = PROA_OK};
    memset(&api, 0, sizeof api);
    proa_infer *r = proa_infer_new();
    proa_str name = proa_str_c("X-My-Header"), value = proa_str_c("v");
    assert_int_equal(proa_infer_forward(&api, false, r, name, value, &err), PROA_OK);
    assert_int_equal(r->params_count, 0);
    assert_int_equal(proa_forward_new(&api.forward[0], "^x-my-|timeout", &err), PROA_OK);
    assert_int_equal(proa_infer_forward(&api, false, r, name, value, &err), PROA_OK);
    assert_int_equal(proa_infer_forward(&api, false, r, proa_str_c("other-x-my-"), value, &err), PROA_OK);
    assert_int_equal(proa_infer_forward(&api, true, r, name, value, &err),
                     PROA_OK); /* the other protocol has no pattern */
    assert_int_equal(r->params_count, 1);
    assert_true(proa_str_is(proa_infer_find_param(r, "X-My-Header")->s, "v"));
    assert_int_equal(proa_infer_forward(&api, false, r, proa_str_c("timeout"), value, &err), PROA_INVALID);
    assert_string_equal(err.text, "Header 'timeout' is reserved for Triton usage and cannot be forwarded.");
    proa_forward_free(api.forward[0]);
    proa_err_clear(&err);
    assert_int_equal(proa_forward_new(&api.forward[0], "(", &err), PROA_INVALID);
    assert_null(api.forward[0]);
    assert_non_null(strstr(err.text, "header forward pattern '('"));
    proa_infer_drop(r);
    (void)state;
}

static void set(proa_infer *r, const char *name, proa_infer_param p, const char *refusal)
{
    proa_err err = {.status = PROA_OK};
    p.name = proa_str_c(name);
    proa_status status = proa_infer_set_param(r, &p, &err);
    assert_int_equal(status, refusal ? PROA_INVALID : PROA_OK);
    if (refusal) assert_string_equal(err.text, refusal);
}

#define INT(v)    ((proa_infer_param){.kind = PROA_PARAM_INT, .i = (v)})
#define UINT(v)   ((proa_infer_param){.kind = PROA_PARAM_UINT, .u = (v)})
#define BOOL(v)   ((proa_infer_param){.kind = PROA_PARAM_BOOL, .b = (v)})
#define STRING(v) ((proa_infer_param){.kind = PROA_PARAM_STRING, .s = proa_str_c(v)})

static void test_parameters(void **state)
{
    proa_infer *r = proa_infer_new();
    set(r, "sequence_id", STRING("abc"), NULL);
    assert_string_equal(r->sequence_name, "abc");
    set(r, "sequence_id", STRING(""), NULL);
    assert_null(r->sequence_name);
    set(r, "sequence_id", UINT(UINT64_MAX), NULL);
    assert_true(r->sequence_id == UINT64_MAX);
    set(r, "sequence_id", INT(9), NULL);
    assert_int_equal(r->sequence_id, 9);
    set(r, "sequence_id", BOOL(true),
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.");
    set(r, "sequence_start", BOOL(true), NULL);
    set(r, "sequence_end", INT(1), "invalid value type for 'sequence_end' parameter, expected bool_param.");
    set(r, "priority", INT(3), NULL);
    set(r, "priority", STRING("3"),
        "invalid value type for 'priority' parameter, expected int64_param or uint64_param.");
    set(r, "timeout", UINT(5), NULL);
    set(r, "timeout", INT(-5),
        "invalid value type for 'timeout' parameter, expected int64_param or uint64_param.");
    set(r, "triton_x", INT(1),
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.");
    set(r, "mine", STRING("text"), NULL);
    assert_true(r->sequence_start);
    assert_int_equal(r->priority, 3);
    assert_int_equal(r->timeout_us, 5);
    assert_int_equal(r->params_count, 1);
    assert_string_equal(r->params[0].s.ptr, "text"); /* copied, with a NUL */
    proa_infer_drop(r);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_restrictions),
        cmocka_unit_test(test_grpc_restrictions),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_control_hosts),
        cmocka_unit_test(test_control_origins),
        cmocka_unit_test(test_control_types),
        cmocka_unit_test(test_forwarding),
        cmocka_unit_test(test_parameters),
    };
    proa_arena_init(&arena);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    proa_arena_release(&arena);
    return failed;
}
