/* SPDX-License-Identifier: Apache-2.0
 * net_helper.h - for the tests of net: a loop on a thread of its own, and a blocking client on loopback. */
#ifndef PROA_TEST_NET_HELPER_H
#define PROA_TEST_NET_HELPER_H

#include "base/clock.h"
#include "net/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

typedef struct house {
    proa_loop *loop;
    proa_listener *listener;
    pthread_t thread;
    int port;
} house;

static inline void *house_thread(void *arg)
{
    proa_loop_run(arg);
    return NULL;
}

static inline void house_open(house *h, proa_listen_options options)
{
    proa_err err = {0};
    *h = (house){0};
    if (!options.address) options.address = "127.0.0.1";
    assert_int_equal(proa_loop_new(&h->loop, &err), PROA_OK);
    if (proa_listener_open(&h->listener, &h->loop, 1, &options, &err) != PROA_OK) fail_msg("%s", err.text);
    h->port = proa_listener_port(h->listener);
    pthread_create(&h->thread, NULL, house_thread, h->loop);
}

static inline void house_close(house *h)
{
    proa_loop_stop(h->loop);
    pthread_join(h->thread, NULL);
    proa_listener_close(h->listener);
    proa_loop_free(h->loop);
}

/* A client's socket; reads and writes give up after 20 s, so that a test fails and does not hang. */
static inline int dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static inline void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) fail_msg("send: %s", strerror(errno));
        bytes += n;
        len -= (size_t)n;
    }
}

static inline void send_str(int fd, const char *text)
{
    send_all(fd, text, strlen(text));
}

/* Reads exactly len bytes. */
static inline void recv_all(int fd, char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = recv(fd, bytes, len, 0);
        if (n <= 0) fail_msg("recv: %s, %zu bytes are missing", n == 0 ? "end" : strerror(errno), len);
        bytes += n;
        len -= (size_t)n;
    }
}

/* Reads until the end (or a reset) into a text with a NUL; returns its length. */
static inline size_t recv_end(int fd, char *text, size_t cap)
{
    size_t len = 0;
    for (;;) {
        ssize_t n = recv(fd, text + len, cap - 1 - len, 0);
        if (n < 0 && errno != ECONNRESET) fail_msg("recv: %s after %zu bytes", strerror(errno), len);
        if (n <= 0) break;
        len += (size_t)n;
        if (len == cap - 1) fail_msg("more than %zu bytes", len);
    }
    text[len] = '\0';
    return len;
}

static inline void sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* Waits up to 20 s for *word to become value. */
static inline void wait_int(atomic_int *word, int value)
{
    for (int i = 0; i < 20000 && atomic_load(word) != value; i++) sleep_ms(1);
    assert_int_equal(atomic_load(word), value);
}

static inline double seconds_since(int64_t start_ns)
{
    return (double)(proa_clock_ns() - start_ns) * 1e-9;
}

#endif
