/* SPDX-License-Identifier: Apache-2.0
 * http1_trace.h - what the codec makes of a stream of requests, as text: for its unit test and its fuzz target. */
#ifndef PROA_TEST_HTTP1_TRACE_H
#define PROA_TEST_HTTP1_TRACE_H

#include "net/http1.h"

#include <stdlib.h>
#include <string.h>

/* Reads a stream whose bytes come in portions, as a connection would: what was not consumed comes again. */
typedef struct trace {
    proa_http1 codec;
    proa_buf text; /* "HEAD GET /a 1.1 keep {host: x} DATA[abc] END\n" */
    char *wait;    /* exactly as many bytes as there are, so that a sanitiser sees each one read beyond */
    size_t wait_len;
    bool in_data, broken;
} trace;

static inline void trace_open(trace *t)
{
    *t = (trace){0};
    proa_buf_init(&t->text, 1 << 24);
    proa_http1_init(&t->codec);
}

static inline void trace_close(trace *t)
{
    proa_buf_release(&t->text);
    free(t->wait);
}

static inline void trace_span(trace *t, const char *base, proa_http1_span s)
{
    proa_buf_append(&t->text, base + s.at, s.len);
}

static inline void trace_head(trace *t, const char *base)
{
    const proa_http1 *c = &t->codec;
    proa_buf_str(&t->text, proa_str_c("HEAD "));
    trace_span(t, base, c->method);
    proa_buf_char(&t->text, ' ');
    trace_span(t, base, c->target);
    proa_buf_printf(&t->text, " 1.%d%s%s%s", c->minor, c->keep_alive ? " keep" : "",
                    c->chunked ? " chunked" : "", c->expect_continue ? " expect" : "");
    if (c->content_length >= 0) proa_buf_printf(&t->text, " cl=%lld", (long long)c->content_length);
    for (int i = 0; i < c->fields_count; i++) {
        proa_buf_str(&t->text, proa_str_c(" {"));
        trace_span(t, base, c->fields[i].name);
        proa_buf_str(&t->text, proa_str_c(": "));
        trace_span(t, base, c->fields[i].value);
        proa_buf_char(&t->text, '}');
    }
}

static inline void trace_event(trace *t, proa_http1_event event, const char *base)
{
    if (event == PROA_HTTP1_DATA && !t->in_data) proa_buf_str(&t->text, proa_str_c(" DATA["));
    if (event == PROA_HTTP1_DATA) proa_buf_str(&t->text, t->codec.data);
    else if (event != PROA_HTTP1_MORE && t->in_data) proa_buf_char(&t->text, ']');
    if (event != PROA_HTTP1_MORE) t->in_data = event == PROA_HTTP1_DATA;
    if (event == PROA_HTTP1_HEAD) trace_head(t, base);
    if (event == PROA_HTTP1_END) proa_buf_str(&t->text, proa_str_c(" END\n"));
    if (event == PROA_HTTP1_BAD) proa_buf_printf(&t->text, "BAD %d %s\n", t->codec.status, t->codec.why);
}

static inline void trace_feed(trace *t, const char *bytes, size_t len, int64_t body_max)
{
    char *all = malloc(t->wait_len + len + 1);
    if (t->wait_len) memcpy(all, t->wait, t->wait_len);
    if (len) memcpy(all + t->wait_len, bytes, len);
    size_t all_len = t->wait_len + len, at = 0, used;
    proa_http1_event event = PROA_HTTP1_MORE;
    while (!t->broken) {
        event = proa_http1_next(&t->codec, all + at, all_len - at, &used);
        trace_event(t, event, all + at);
        at += used;
        if (event == PROA_HTTP1_HEAD) t->codec.body_max = body_max;
        if (event == PROA_HTTP1_END) proa_http1_init(&t->codec);
        t->broken = event == PROA_HTTP1_BAD;
        if (event == PROA_HTTP1_MORE || (event == PROA_HTTP1_END && at == all_len)) break;
    }
    free(t->wait);
    t->wait_len = t->broken ? 0 : all_len - at;
    t->wait = malloc(t->wait_len ? t->wait_len : 1);
    if (t->wait_len) memcpy(t->wait, all + at, t->wait_len);
    free(all);
}

#endif
