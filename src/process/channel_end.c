/* SPDX-License-Identifier: Apache-2.0
 * channel_end.c - a worker process's socket and shared memory. */
#include "process/channel_end.h"

#include "base/alloc.h"
#include "process/process.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

struct proa_channel {
    int socket;
    proa_shared_arena *arena;
    proa_shared_view *view;
};

/* The names of the descriptors are the server's: its arena is our view. */
proa_status proa_channel_open(proa_channel **out, size_t keep, proa_err *err)
{
    proa_channel *e = proa_calloc(1, sizeof *e);
    e->socket = PROA_PROCESS_FD_SOCKET;
    *out = NULL;
    for (int fd = PROA_PROCESS_FD_SOCKET; fd <= PROA_PROCESS_FD_VIEW; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    proa_status status = proa_shared_arena_open(&e->arena, PROA_PROCESS_FD_VIEW, keep, err);
    if (status == PROA_OK) status = proa_shared_view_open(&e->view, PROA_PROCESS_FD_ARENA, err);
    if (status == PROA_OK) {
        *out = e;
        return PROA_OK;
    }
    proa_shared_arena_release(e->arena);
    free(e);
    return status;
}

proa_shared_arena *proa_channel_arena(const proa_channel *e)
{
    return e->arena;
}

proa_shared_view *proa_channel_view(const proa_channel *e)
{
    return e->view;
}

bool proa_channel_send(proa_channel *e, const proa_channel_message *messages, int count)
{
    for (;;) {
        if (send(e->socket, messages, (size_t)count * sizeof *messages, MSG_NOSIGNAL) >= 0) return true;
        if (errno != EINTR && errno != ENOBUFS) return false;
    }
}

int proa_channel_receive(proa_channel *e, proa_channel_message *messages, int cap, int timeout_ms)
{
    struct pollfd one = {.fd = e->socket, .events = POLLIN};
    if (poll(&one, 1, timeout_ms) <= 0) return 0; /* the time is over, or a signal came */
    struct iovec part = {messages, (size_t)cap * sizeof *messages};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t got = recvmsg(e->socket, &head, MSG_DONTWAIT);
    if (got < 0) return errno == EINTR || errno == EAGAIN ? 0 : -1;
    if (got == 0 || (size_t)got % sizeof *messages || (head.msg_flags & MSG_TRUNC)) return -1;
    return (int)((size_t)got / sizeof *messages);
}

void proa_channel_shutdown(proa_channel *e)
{
    (void)shutdown(e->socket, SHUT_RDWR);
}
