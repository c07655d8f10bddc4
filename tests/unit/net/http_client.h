/* SPDX-License-Identifier: Apache-2.0
 * http_client.h - a small blocking HTTP client for the tests: it reads one answer after the other. */
#ifndef PROA_TEST_HTTP_CLIENT_H
#define PROA_TEST_HTTP_CLIENT_H

#include "net_helper.h"

typedef struct client {
    int fd;
    char *wait; /* bytes that were read ahead */
    size_t wait_len, wait_cap;
    char head[2048];
    int status;
    char *body; /* with a NUL */
    size_t body_len, body_cap;
} client;

static inline client client_open(int port)
{
    return (client){.fd = dial(port)};
}

static inline void client_trim(client *c)
{
    free(c->wait);
    free(c->body);
    c->wait = c->body = NULL;
    c->wait_len = c->wait_cap = c->body_len = c->body_cap = 0;
}

static inline void client_close(client *c)
{
    client_trim(c);
    close(c->fd);
}

static inline void client_send(client *c, const char *text)
{
    send_str(c->fd, text);
}

static inline bool client_more(client *c)
{
    if (c->wait_cap - c->wait_len < 4096) c->wait = realloc(c->wait, c->wait_cap = 2 * c->wait_cap + 8192);
    ssize_t n = recv(c->fd, c->wait + c->wait_len, c->wait_cap - c->wait_len, 0);
    if (n < 0 && errno != ECONNRESET) fail_msg("recv: %s", strerror(errno));
    if (n > 0) c->wait_len += (size_t)n;
    return n > 0;
}

static inline void client_drop(client *c, size_t n)
{
    c->wait_len -= n;
    memmove(c->wait, c->wait + n, c->wait_len);
}

/* Up to and with the text; returns its length, or fails at the end of the connection. */
static inline size_t client_until(client *c, const char *text)
{
    for (;;) {
        const char *at = c->wait_len ? memmem(c->wait, c->wait_len, text, strlen(text)) : NULL;
        if (at) return (size_t)(at - c->wait) + strlen(text);
        if (!client_more(c))
            fail_msg("the connection ended after: %.*s", (int)c->wait_len, c->wait ? c->wait : "");
    }
}

static inline void client_expect_head(client *c, int status)
{
    size_t n = client_until(c, "\r\n\r\n");
    assert_true(n < sizeof c->head);
    memcpy(c->head, c->wait, n);
    c->head[n] = '\0';
    client_drop(c, n);
    assert_int_equal(strncmp(c->head, "HTTP/1.1 ", 9), 0);
    c->status = (int)strtol(c->head + 9, NULL, 10);
    if (status && c->status != status) fail_msg("%d instead of %d", c->status, status);
}

static inline void client_body(client *c, size_t n)
{
    if (c->body_cap < c->body_len + n + 1)
        c->body = realloc(c->body, c->body_cap = 2 * (c->body_len + n) + 1);
    size_t have = n < c->wait_len ? n : c->wait_len;
    if (have) memcpy(c->body + c->body_len, c->wait, have);
    if (have) client_drop(c, have);
    recv_all(c->fd, c->body + c->body_len + have, n - have);
    c->body_len += n;
    c->body[c->body_len] = '\0';
}

static inline void client_chunks(client *c)
{
    for (;;) {
        size_t line = client_until(c, "\r\n"), n = strtoul(c->wait, NULL, 16);
        client_drop(c, line);
        client_body(c, n + 2);
        assert_memory_equal(c->body + c->body_len - 2, "\r\n", 2);
        c->body_len -= 2;
        if (n == 0) return;
    }
}

/* One answer with its body. */
static inline void client_read(client *c)
{
    client_expect_head(c, 0);
    c->body_len = 0;
    client_body(c, 0);
    const char *length = strstr(c->head, "Content-Length: ");
    if (length) client_body(c, strtoul(length + 16, NULL, 10));
    else if (strstr(c->head, "Transfer-Encoding: chunked\r\n")) client_chunks(c);
}

static inline void client_expect(client *c, int status, const char *body)
{
    client_read(c);
    if (c->status != status) fail_msg("%d instead of %d: %s", c->status, status, c->body);
    assert_string_equal(c->body, body);
    assert_int_equal(c->body_len, strlen(body));
}

static inline size_t client_rest(client *c, char *bytes, size_t cap)
{
    size_t len = c->wait_len;
    assert_true(len < cap);
    memcpy(bytes, c->wait, len);
    c->wait_len = 0;
    return len + recv_end(c->fd, bytes + len, cap - len);
}

/* Nothing more, and the end. Closes. */
static inline void client_expect_end(client *c)
{
    if (c->wait_len > 0) fail_msg("more came: %.*s", (int)c->wait_len, c->wait);
    if (client_more(c)) fail_msg("more came: %.*s", (int)c->wait_len, c->wait);
    client_close(c);
}

#endif
