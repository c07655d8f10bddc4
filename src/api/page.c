/* SPDX-License-Identifier: Apache-2.0
 * page.c - the status page at / and the data that it fetches each second: /figures. It loads nothing from other
 * hosts. */
#include "api/page.h"

#include "api/internal.h"
#include "base/clock.h"

/* The page may run, style and fetch only what this server serves, and may not be framed. */
#define SAFETY                                                                                               \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " \
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"                         \
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n"

typedef struct file {
    const char *path, *headers;
    const unsigned char *bytes;
    const size_t *len;
} file;

static const file files[] = {
    {"/", "Content-Type: text/html; charset=utf-8\r\n" SAFETY, proa_page_html, &proa_page_html_len},
    {"/page.css", "Content-Type: text/css; charset=utf-8\r\n" SAFETY, proa_page_css, &proa_page_css_len},
    {"/page.js", "Content-Type: text/javascript; charset=utf-8\r\n" SAFETY, proa_page_js, &proa_page_js_len},
};

static void release_nothing(void *arg)
{
    PROA_UNUSED(arg);
}

static void put_numbers(proa_api *api, proa_buf *out)
{
    uint64_t in, sent, answers[6], all = 0;
    proa_thread_counters_sum(&in, &sent, answers);
    for (int i = 1; i < 6; i++) all += answers[i];
    proa_buf_printf(
        out, "\"in_flight\":%lld,\"answers\":%llu,\"errors\":%llu,\"bytes_in\":%llu,\"bytes_out\":%llu",
        (long long)proa_sinks_live(), (unsigned long long)all, (unsigned long long)(answers[4] + answers[5]),
        (unsigned long long)in, (unsigned long long)sent);
    PROA_UNUSED(api);
}

static void answer_figures(proa_api *api, proa_http_exchange *x)
{
    proa_buf body, models;
    if (!proa_http_allowed(api, x, PROA_CATEGORY_STATISTICS)) return;
    proa_buf_init(&body, (size_t)PROA_FIGURES_BYTES_MAX);
    proa_buf_init(&models, (size_t)PROA_FIGURES_BYTES_MAX);
    proa_buf_printf(&body, "{\"version\":\"%s\",\"time_ms\":%lld,", PROA_VERSION,
                    (long long)(proa_clock_ns() / 1000000));
    put_numbers(api, &body);
    proa_buf_str(&body, proa_str_c(",\"models\":"));
    proa_server_figures(proa_api_server(api), &models);
    proa_buf_str(&body, proa_buf_view(&models));
    proa_buf_char(&body, '}');
    proa_http_json(x, 200, &body);
    proa_buf_release(&models);
    proa_buf_release(&body);
}

static const file *find_file(proa_str path)
{
    for (size_t i = 0; i < PROA_COUNT(files); i++)
        if (proa_str_is(path, files[i].path)) return &files[i];
    return NULL;
}

bool proa_page(proa_api *api, proa_http_exchange *x)
{
    bool head = proa_str_is(x->method, "HEAD");
    const file *f = find_file(x->path);
    if (!head && !proa_str_is(x->method, "GET")) return false;
    if (proa_str_is(x->path, "/figures")) {
        answer_figures(api, x);
        return true;
    }
    if (!f) return false;
    struct iovec iov = {(void *)(uintptr_t)f->bytes, *f->len};
    proa_http_respond(x, 200, proa_str_c(f->headers), &iov, 1, release_nothing, NULL);
    return true;
}
