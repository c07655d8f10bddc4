/* SPDX-License-Identifier: Apache-2.0
 * link.c - frames on stream sockets, and a thread that reads them and sends heartbeats. */
#include "comm/link.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/limits.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEARTBEAT_MS = 1000, MS_NS = 1000000 };

typedef struct frame_head {
    uint32_t kind, size;
} frame_head;

/* ---- one frame ---- */

static int64_t now_ms(void)
{
    return proa_clock_ns() / MS_NS;
}

/* Waits until the socket can be read or written. */
static proa_status wait_for_socket(int fd, short events, int64_t until_ms, proa_err *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        int64_t left = proa_max64(0, until_ms - now_ms());
        int n = poll(&p, 1, (int)left);
        if (n > 0) return PROA_OK;
        if (n == 0) return PROA_FAIL(err, UNAVAILABLE, "no answer in time");
        if (errno != EINTR) return PROA_FAIL(err, IO, "cannot wait for a socket: %s", strerror(errno));
    }
}

static proa_status send_all(int fd, const void *bytes, size_t size, int64_t until_ms, proa_err *err)
{
    const char *at = bytes;
    while (size) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) at += n, size -= (size_t)n;
        else if (errno == EAGAIN) PROA_TRY(wait_for_socket(fd, POLLOUT, until_ms, err));
        else if (errno != EINTR) return PROA_FAIL(err, UNAVAILABLE, "the connection has ended");
    }
    return PROA_OK;
}

static proa_status receive_all(int fd, void *bytes, size_t size, int64_t until_ms, proa_err *err)
{
    char *at = bytes;
    while (size) {
        ssize_t n = recv(fd, at, size, MSG_DONTWAIT);
        if (n > 0) at += n, size -= (size_t)n;
        else if (n == 0) return PROA_FAIL(err, UNAVAILABLE, "the connection has ended");
        else if (errno == EAGAIN) PROA_TRY(wait_for_socket(fd, POLLIN, until_ms, err));
        else if (errno != EINTR) return PROA_FAIL(err, UNAVAILABLE, "the connection has ended");
    }
    return PROA_OK;
}

proa_status proa_link_send(int fd, uint32_t kind, const void *bytes, int64_t size, proa_err *err)
{
    frame_head head = {kind, (uint32_t)size};
    int64_t until = now_ms() + PROA_RANK_SILENCE_MS;
    PROA_ASSERT(size >= 0 && size <= PROA_RANK_FRAME_MAX);
    PROA_TRY(send_all(fd, &head, sizeof head, until, err));
    return send_all(fd, bytes, (size_t)size, until, err);
}

proa_status proa_link_receive(int fd, proa_link_frame *frame, int64_t timeout_ms, proa_err *err)
{
    frame_head head;
    int64_t until = now_ms() + timeout_ms;
    do {
        PROA_TRY(receive_all(fd, &head, sizeof head, until, err));
    } while (head.kind == PROA_FRAME_HEARTBEAT && head.size == 0);
    if (head.kind != frame->kind)
        return PROA_FAIL(err, CORRUPT, "a frame of kind %u in place of %u", head.kind, frame->kind);
    if (head.size > frame->room)
        return PROA_FAIL(err, CORRUPT, "a frame of %u bytes, must be 0 to %lld", head.size,
                         (long long)frame->room);
    frame->size = head.size;
    return receive_all(fd, frame->bytes, head.size, until, err);
}

/* ---- many links ---- */

typedef struct link_state {
    int fd;           /* -1: it is lost */
    int64_t heard_ms; /* when its last bytes came */
    char *bytes;      /* [PROA_RANK_FRAME_MAX + a head] what has come of a frame */
    int64_t count;
} link_state;

struct proa_links {
    int32_t count;
    proa_link_events events;
    pthread_t thread;
    bool runs;
    int wake;             /* eventfd: the thread ends */
    pthread_mutex_t lock; /* of sending, and of closing a socket */
    link_state link[PROA_RANKS_MAX];
};

static void lose_link(proa_links *l, int32_t i, const char *why)
{
    pthread_mutex_lock(&l->lock);
    int fd = l->link[i].fd;
    l->link[i].fd = -1;
    if (fd >= 0) close(fd);
    pthread_mutex_unlock(&l->lock);
    if (fd >= 0) l->events.lost(l->events.arg, i, why);
}

void proa_links_send(proa_links *l, int32_t link, uint32_t kind, const void *bytes, int64_t size)
{
    proa_err ignored = {.status = PROA_OK};
    pthread_mutex_lock(&l->lock);
    int fd = l->link[link].fd;
    /* a frame that cannot be sent needs no report: the other side will be silent, which is noticed */
    if (fd >= 0 && proa_link_send(fd, kind, bytes, size, &ignored) != PROA_OK) shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&l->lock);
}

/* Hands over the frames that are complete. False: the bytes that have come are no frame. */
static bool take_frames(proa_links *l, int32_t i)
{
    link_state *s = &l->link[i];
    const int64_t head_bytes = (int64_t)sizeof(frame_head);
    int64_t at = 0;
    while (s->count - at >= head_bytes) {
        frame_head head;
        memcpy(&head, s->bytes + at, sizeof head);
        if (head.size > PROA_RANK_FRAME_MAX) return false;
        if (s->count - at < head_bytes + head.size) break;
        if (head.kind != PROA_FRAME_HEARTBEAT && l->events.received)
            l->events.received(l->events.arg, i, head.kind, s->bytes + at + head_bytes, head.size);
        at += head_bytes + head.size;
    }
    s->count -= at;
    memmove(s->bytes, s->bytes + at, (size_t)s->count);
    return true;
}

static void read_link(proa_links *l, int32_t i)
{
    link_state *s = &l->link[i];
    size_t room = sizeof(frame_head) + PROA_RANK_FRAME_MAX - (size_t)s->count;
    ssize_t n = recv(s->fd, s->bytes + s->count, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        lose_link(l, i, "has ended");
        return;
    }
    s->heard_ms = now_ms();
    s->count += n;
    if (!take_frames(l, i)) lose_link(l, i, "sent what is no frame");
}

static void check_silence(proa_links *l)
{
    char why[64];
    snprintf(why, sizeof why, "has not answered for %d s", PROA_RANK_SILENCE_MS / 1000);
    for (int32_t i = 0; i < l->count; i++)
        if (l->link[i].fd >= 0 && now_ms() - l->link[i].heard_ms > PROA_RANK_SILENCE_MS) lose_link(l, i, why);
}

static void *watch_links(void *arg)
{
    proa_links *l = arg;
    struct pollfd polled[PROA_RANKS_MAX + 1];
    int64_t beat_ms = now_ms();
    for (;;) {
        int64_t left = beat_ms + HEARTBEAT_MS - now_ms();
        if (left <= 0) {
            for (int32_t i = 0; i < l->count; i++) proa_links_send(l, i, PROA_FRAME_HEARTBEAT, NULL, 0);
            if (l->events.beat) l->events.beat(l->events.arg);
            beat_ms = now_ms(), left = HEARTBEAT_MS;
        }
        for (int32_t i = 0; i < l->count; i++)
            polled[i] = (struct pollfd){.fd = l->link[i].fd, .events = POLLIN};
        polled[l->count] = (struct pollfd){.fd = l->wake, .events = POLLIN};
        int n = poll(polled, (nfds_t)l->count + 1, (int)left);
        if (n > 0 && polled[l->count].revents) return NULL;
        for (int32_t i = 0; i < l->count && n > 0; i++)
            if (l->link[i].fd >= 0 && polled[i].revents) read_link(l, i);
        check_silence(l);
    }
}

proa_status proa_links_open(proa_links **out, const int *fds, int32_t count, const proa_link_events *events,
                            proa_err *err)
{
    proa_links *l = proa_calloc(1, sizeof *l);
    PROA_ASSERT(count >= 1 && count <= PROA_RANKS_MAX);
    l->count = count, l->events = *events;
    pthread_mutex_init(&l->lock, NULL);
    for (int32_t i = 0; i < count; i++)
        l->link[i] = (link_state){
            .fd = fds[i], .heard_ms = now_ms(), .bytes = proa_malloc(sizeof(frame_head) + PROA_RANK_FRAME_MAX)};
    l->wake = eventfd(0, EFD_CLOEXEC);
    l->runs = l->wake >= 0 && pthread_create(&l->thread, NULL, watch_links, l) == 0;
    *out = l->runs ? l : NULL;
    if (l->runs) return PROA_OK;
    proa_links_close(l);
    return PROA_FAIL(err, UNAVAILABLE, "cannot start the thread of the links between ranks");
}

void proa_links_close(proa_links *l)
{
    if (!l) return;
    if (l->runs) {
        eventfd_write(l->wake, 1);
        pthread_join(l->thread, NULL);
    }
    for (int32_t i = 0; i < l->count; i++) {
        if (l->link[i].fd >= 0) close(l->link[i].fd);
        free(l->link[i].bytes);
    }
    if (l->wake >= 0) close(l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}
