/* SPDX-License-Identifier: Apache-2.0
 * console.c - the console at / with its files, and the data that it fetches: /figures and /figures/requests. It loads
 * nothing from other hosts. */
#include "api/console/files.h"
#include "api/console/recent.h"
#include "api/internal.h"
#include "base/alloc.h"
#include "base/clock.h"

/* The page may run, style and fetch only what this server serves, and may not be framed. */
#define SAFETY                                                                                               \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "                           \
    "require-trusted-types-for 'script'; trusted-types 'none'\r\n"                                           \
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n"

static const struct {
    const char *end, *headers;
} types[] = {
    {".html", "Content-Type: text/html; charset=utf-8\r\n" SAFETY},
    {".css", "Content-Type: text/css; charset=utf-8\r\n" SAFETY},
    {".js", "Content-Type: text/javascript; charset=utf-8\r\n" SAFETY},
};

/* ---- figures ---- */

static void put_numbers(proa_buf *out)
{
    uint64_t in, sent, answers[6], all = 0;
    proa_thread_counters_sum(&in, &sent, answers);
    for (int i = 1; i < 6; i++) all += answers[i];
    proa_buf_printf(
        out, "\"in_flight\":%lld,\"answers\":%llu,\"errors\":%llu,\"bytes_in\":%llu,\"bytes_out\":%llu",
        (long long)proa_sinks_live(), (unsigned long long)all, (unsigned long long)(answers[4] + answers[5]),
        (unsigned long long)in, (unsigned long long)sent);
}

static void answer_figures(proa_api *api, proa_http_exchange *x)
{
    static const char *const controls[] = {
        [PROA_CONTROL_NONE] = "none", [PROA_CONTROL_POLL] = "poll", [PROA_CONTROL_EXPLICIT] = "explicit"};
    proa_buf body, models;
    proa_buf_init(&body, (size_t)PROA_FIGURES_BYTES_MAX);
    proa_buf_init(&models, (size_t)PROA_FIGURES_BYTES_MAX);
    proa_buf_printf(&body, "{\"version\":\"%s\",\"time_ms\":%lld,\"control\":\"%s\",", PROA_VERSION,
                    (long long)(proa_clock_ns() / 1000000), controls[proa_server_control(proa_api_server(api))]);
    put_numbers(&body);
    proa_buf_str(&body, proa_str_c(",\"gpus\":"));
    proa_server_gpus(proa_api_server(api), &body);
    proa_buf_str(&body, proa_str_c(",\"models\":"));
    proa_server_figures(proa_api_server(api), &models);
    proa_buf_str(&body, proa_buf_view(&models));
    proa_buf_char(&body, '}');
    proa_http_json(x, 200, &body);
    proa_buf_release(&models);
    proa_buf_release(&body);
}

/* ---- recent requests ---- */

/* The query is empty or `since=NUMBER`. */
static proa_status read_since(proa_str query, uint64_t *since, proa_err *err)
{
    static const proa_str name = {"since=", 6};
    *since = 0;
    if (!query.len) return PROA_OK;
    size_t digits = query.len - name.len;
    if (!proa_str_starts(query, name) || !digits || digits > 18)
        return PROA_FAIL(err, INVALID, "the query is '%.*s', must be since=NUMBER with at most 18 digits",
                         (int)(query.len < 64 ? query.len : 64), query.ptr);
    for (size_t i = name.len; i < query.len; i++) {
        if (query.ptr[i] < '0' || query.ptr[i] > '9')
            return PROA_FAIL(err, INVALID, "'since' is '%.*s', must be a number", (int)digits,
                             query.ptr + name.len);
        *since = *since * 10 + (uint64_t)(query.ptr[i] - '0');
    }
    return PROA_OK;
}

static void answer_requests(proa_api *api, proa_http_exchange *x)
{
    uint64_t since;
    proa_err err = {.status = PROA_OK};
    proa_buf body;
    if (read_since(x->query, &since, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_recent_request *list = proa_calloc(PROA_RECENT_REQUESTS_MAX, sizeof *list);
    int count = proa_recent_read(list, PROA_RECENT_REQUESTS_MAX, since);
    proa_buf_init(&body, (size_t)PROA_FIGURES_BYTES_MAX);
    proa_buf_printf(&body, "{\"last\":%llu,\"kept\":%d,\"requests\":",
                    (unsigned long long)(count ? list[count - 1].number : proa_recent_last(since)),
                    PROA_RECENT_REQUESTS_MAX);
    proa_recent_json(&body, list, count);
    proa_buf_char(&body, '}');
    proa_http_json(x, 200, &body);
    proa_buf_release(&body);
    free(list);
}

/* ---- files ---- */

static const proa_console_file *find_file(proa_str path)
{
    static const proa_str folder = {"/console/", 9};
    proa_str name = proa_str_c("index.html");
    if (proa_str_starts(path, folder)) name = (proa_str){path.ptr + folder.len, path.len - folder.len};
    else if (!proa_str_is(path, "/")) return NULL;
    for (int i = 0; i < proa_console_files_count; i++)
        if (proa_str_is(name, proa_console_files[i].name)) return &proa_console_files[i];
    return NULL;
}

static const char *headers_of(const proa_console_file *file)
{
    size_t i = 0;
    while (i + 1 < PROA_COUNT(types) && !proa_str_ends(proa_str_c(file->name), proa_str_c(types[i].end))) i++;
    return types[i].headers;
}

static void release_nothing(void *arg)
{
    PROA_UNUSED(arg);
}

/* ---- routes ---- */

static bool answer_data(proa_api *api, proa_http_exchange *x)
{
    bool requests = proa_str_is(x->path, "/figures/requests");
    if (!requests && !proa_str_is(x->path, "/figures")) return false;
    if (!proa_http_allowed(api, x, PROA_CATEGORY_STATISTICS)) return true;
    if (requests) answer_requests(api, x);
    else answer_figures(api, x);
    return true;
}

bool proa_console(proa_api *api, proa_http_exchange *x)
{
    if (!proa_str_is(x->method, "GET") && !proa_str_is(x->method, "HEAD")) return false;
    if (answer_data(api, x)) return true;
    const proa_console_file *file = find_file(x->path);
    if (!file) return false;
    struct iovec iov = {(void *)(uintptr_t)file->bytes, file->len};
    proa_http_respond(x, 200, proa_str_c(headers_of(file)),
                      (proa_http_body){.iov = &iov, .count = 1, .release = release_nothing});
    return true;
}
