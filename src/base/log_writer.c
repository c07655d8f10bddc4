/* SPDX-License-Identifier: Apache-2.0
 * log_writer.c - the thread that writes log lines where a write may block. */
#include "base/log_writer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct entry {
    struct entry *next;
    int fd;
    size_t len; /* 0: fd is to be closed */
    char bytes[];
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t line_queued = PTHREAD_COND_INITIALIZER;
static entry *head, **tail = &head;
static size_t queued; /* bytes of lines that wait or are being written */
static bool started;  /* the thread was started; it runs as long as the process */

/* Another process may have made the descriptor non-blocking: then the thread waits until it is writable.
 * Any other error loses the line. */
static void write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd one = {.fd = fd, .events = POLLOUT};
            poll(&one, 1, 1000);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        bytes += n;
        len -= (size_t)n;
    }
}

static void *write_for_ever(void *arg)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!head) pthread_cond_wait(&line_queued, &lock);
        entry *e = head;
        head = e->next;
        if (!head) tail = &head;
        pthread_mutex_unlock(&lock);
        if (e->len) write_all(e->fd, e->bytes, e->len);
        else close(e->fd);
        pthread_mutex_lock(&lock);
        queued -= e->len;
        free(e);
    }
    return arg;
}

/* The thread blocks all signals: the program handles them. The lock is held. */
static bool start_writer(void)
{
    pthread_t thread;
    sigset_t all, old;
    if (started) return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    started = pthread_create(&thread, NULL, write_for_ever, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!started) return false;
    pthread_setname_np(thread, "proa-log");
    pthread_detach(thread);
    return true;
}

static void append_line(int fd, const char *line, size_t len)
{
    entry *e = proa_malloc(sizeof *e + len);
    *e = (entry){.fd = fd, .len = len};
    if (len) memcpy(e->bytes, line, len);
    *tail = e;
    tail = &e->next;
    queued += len;
    pthread_cond_signal(&line_queued);
}

bool proa_log_writer_put(int fd, const char *line, size_t len)
{
    pthread_mutex_lock(&lock);
    bool runs = start_writer(), has_room = queued + len <= (size_t)PROA_LOG_QUEUED_MAX;
    if (runs && has_room && len) append_line(fd, line, len);
    pthread_mutex_unlock(&lock);
    if (!runs) write_all(fd, line, len);
    return !runs || has_room;
}

void proa_log_writer_close(int fd)
{
    pthread_mutex_lock(&lock);
    bool runs = start_writer();
    if (runs) append_line(fd, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (!runs) close(fd);
}

void proa_log_writer_flush(int64_t timeout_ms)
{
    int64_t end_ns = proa_clock_ns() + timeout_ms * 1000000;
    struct timespec nap = {.tv_nsec = 1000000};
    for (;;) {
        pthread_mutex_lock(&lock);
        bool empty = queued == 0 && !head;
        pthread_mutex_unlock(&lock);
        if (empty || proa_clock_ns() >= end_ns) return;
        nanosleep(&nap, NULL);
    }
}
