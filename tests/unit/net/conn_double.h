/* SPDX-License-Identifier: Apache-2.0
 * conn_double.h - a connection and a loop in memory: what conn.h and loop.h promise a protocol, without sockets, with a
 * clock that the test moves. It replaces conn.c and loop.c at link time: include it once, in the test's only file. */
#ifndef PROA_TESTS_CONN_DOUBLE_H
#define PROA_TESTS_CONN_DOUBLE_H

#include "base/alloc.h"
#include "base/limits.h"
#include "net/conn.h"
#include "net/work.h"
#include <string.h>

enum { DOUBLE_RELEASES = 65536, DOUBLE_TIMERS = 16 };

struct proa_loop {
    int64_t now_ns;
    proa_loop_task *first, **last;
    proa_timer *timers[DOUBLE_TIMERS]; /* running ones */
    int64_t fires_ns[DOUBLE_TIMERS];
};

struct proa_conn {
    proa_loop *loop;
    proa_buf out; /* queued: not yet with the peer */
    struct {
        void (*fn)(void *arg);
        void *arg;
    } * releases;
    int releases_count, writes;
    bool was_high, paused, closing, at_once;
    int64_t deadline_ms, took_ns;
};

static void double_init(proa_loop *loop, proa_conn *conn)
{
    *loop = (proa_loop){.now_ns = 1000000000000};
    loop->last = &loop->first;
    *conn = (proa_conn){.loop = loop};
    conn->releases = proa_calloc(DOUBLE_RELEASES, sizeof *conn->releases);
    proa_buf_init(&conn->out, (size_t)1 << 31);
}

static void double_release_all(proa_conn *conn)
{
    int n = conn->releases_count;
    conn->releases_count = 0;
    for (int i = 0; i < n; i++) conn->releases[i].fn(conn->releases[i].arg);
}

static void double_free(proa_conn *conn)
{
    double_release_all(conn);
    free(conn->releases);
    proa_buf_release(&conn->out);
}

/* The peer has read what was queued. Returns true if `drained` of the protocol is to be called. */
static bool double_taken(proa_conn *conn)
{
    proa_buf_clear(&conn->out);
    double_release_all(conn);
    bool told = conn->was_high;
    conn->was_high = false;
    return told;
}

static bool double_run_tasks(proa_loop *loop)
{
    proa_loop_task *task = loop->first;
    loop->first = NULL;
    loop->last = &loop->first;
    for (proa_loop_task *next, *t = task; t; t = next) {
        next = t->next;
        t->run(t);
    }
    return task != NULL;
}

/* Moves the clock and fires what is due. */
static inline void double_advance(proa_loop *loop, int64_t ms)
{
    loop->now_ns += ms * 1000000;
    for (int i = 0; i < DOUBLE_TIMERS; i++) {
        proa_timer *timer = loop->timers[i];
        if (!timer || loop->fires_ns[i] > loop->now_ns) continue;
        loop->timers[i] = NULL;
        timer->fire(timer->arg);
    }
}

void proa_conn_write(proa_conn *conn, const struct iovec *iov, int count, void (*release)(void *arg), void *arg)
{
    conn->writes++;
    for (int i = 0; i < count; i++) PROA_ASSERT(proa_buf_append(&conn->out, iov[i].iov_base, iov[i].iov_len));
    if (conn->out.len > PROA_CONN_HIGH_BYTES) conn->was_high = true;
    if (!release) return;
    PROA_ASSERT(conn->releases_count < DOUBLE_RELEASES);
    conn->releases[conn->releases_count].fn = release;
    conn->releases[conn->releases_count++].arg = arg;
}

/* So many bytes went out, and more are left. */
static inline void double_take_some(proa_conn *conn, size_t len)
{
    PROA_ASSERT(len < conn->out.len);
    conn->out.len -= len;
    memmove(conn->out.ptr, conn->out.ptr + len, conn->out.len);
    conn->took_ns = conn->loop->now_ns;
}

int64_t proa_conn_last_send_ns(const proa_conn *conn)
{
    return conn->took_ns;
}

size_t proa_conn_queued(const proa_conn *conn)
{
    return conn->out.len;
}

void proa_conn_pause(proa_conn *conn, bool paused)
{
    conn->paused = paused;
}

void proa_conn_close(proa_conn *conn, bool at_once)
{
    conn->closing = true;
    conn->at_once |= at_once;
}

void proa_conn_close_idle(proa_conn *conn)
{
    proa_conn_close(conn, false);
}

void proa_conn_deadline(proa_conn *conn, int64_t ms)
{
    conn->deadline_ms = ms;
}

proa_loop *proa_conn_loop(const proa_conn *conn)
{
    return conn->loop;
}

int64_t proa_loop_now_ns(const proa_loop *loop)
{
    return loop->now_ns;
}

bool proa_workers_start(proa_workers *workers, proa_work_item *work)
{
    PROA_UNUSED(workers);
    PROA_UNUSED(work);
    return false; /* the server names no workers */
}

void proa_loop_late(proa_loop *loop, proa_loop_task *task)
{
    task->next = NULL;
    *loop->last = task;
    loop->last = &task->next;
}

static void stop_timer(proa_timer *timer)
{
    for (int i = 0; i < DOUBLE_TIMERS; i++)
        if (timer->loop->timers[i] == timer) timer->loop->timers[i] = NULL;
}

void proa_timer_start(proa_timer *timer, int64_t ms)
{
    stop_timer(timer);
    int at = 0;
    while (at < DOUBLE_TIMERS && timer->loop->timers[at]) at++;
    PROA_ASSERT(at < DOUBLE_TIMERS);
    timer->loop->timers[at] = timer;
    timer->loop->fires_ns[at] = timer->loop->now_ns + ms * 1000000;
}

void proa_timer_release(proa_timer *timer)
{
    if (timer->loop) stop_timer(timer);
}

#endif
