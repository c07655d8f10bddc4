/* SPDX-License-Identifier: Apache-2.0
 * spare.c - the reserve of descriptors, under one lock for all. */
#include "net/spare.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* A descriptor that is closed for a purpose must not go to the accept of another loop. */
static pthread_mutex_t descriptors = PTHREAD_MUTEX_INITIALIZER;

static bool refill_locked(proa_spare *spare)
{
    while (spare->in_use && spare->count < PROA_SPARE_DESCRIPTORS) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return false;
        spare->fds[spare->count++] = fd;
    }
    return true;
}

bool proa_spare_refill(proa_spare *spare)
{
    pthread_mutex_lock(&descriptors);
    bool full = refill_locked(spare);
    pthread_mutex_unlock(&descriptors);
    return full;
}

void proa_spare_open(proa_spare *spare)
{
    spare->in_use = true;
    proa_spare_refill(spare);
}

void proa_spare_close(proa_spare *spare)
{
    spare->in_use = false;
    while (spare->count > 0) close(spare->fds[--spare->count]);
}

void proa_spare_end(proa_spare *spare, int fd)
{
    pthread_mutex_lock(&descriptors);
    close(fd);
    refill_locked(spare);
    pthread_mutex_unlock(&descriptors);
}

int proa_spare_accept(int listening_fd)
{
    pthread_mutex_lock(&descriptors);
    int client = accept4(listening_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), error = errno;
    pthread_mutex_unlock(&descriptors);
    errno = error;
    return client;
}

int proa_spare_accept_instead(proa_spare *spare, int listening_fd)
{
    pthread_mutex_lock(&descriptors);
    close(spare->fds[--spare->count]);
    int client = accept4(listening_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), error = errno;
    if (client < 0) refill_locked(spare);
    pthread_mutex_unlock(&descriptors);
    errno = error;
    return client;
}
