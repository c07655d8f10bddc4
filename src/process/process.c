/* SPDX-License-Identifier: Apache-2.0
 * process.c - starts a worker process, exchanges packets with it, and ends it. */
#include "process/process.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "process/regions.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The descriptors that the process inherits, from PROA_PROCESS_FD_SOCKET on. */
enum { FD_SOCKET, FD_ARENA, FD_VIEW, FD_EXTRA, FDS };
#define FD_FIRST PROA_PROCESS_FD_SOCKET

/* A packet that waits until the socket accepts it. */
typedef struct waiting {
    struct waiting *next;
    int count;
    proa_channel_message messages[];
} waiting;

struct proa_process {
    pid_t pid;
    int socket, wake, pidfd;
    proa_shared_arena *arena;
    proa_shared_view *view;
    pthread_mutex_t lock; /* of sending */
    waiting *first, **last;
    bool closed; /* no more is sent */
    bool removes_regions;
    int64_t started; /* seconds of the epoch */
    proa_regions regions;
    int64_t stopped_ns; /* when it was first seen stopped; 0: it was running at the last check */
};

/* ---- the start ---- */

/* Our environment overridden by `more`. The caller frees the array, not the strings. */
static char **make_environment(const char *const *more)
{
    size_t ours = 0, theirs = 0, count = 0;
    while (environ[ours]) ours++;
    while (more && more[theirs]) theirs++;
    char **all = proa_calloc(ours + theirs + 1, sizeof *all);
    for (size_t i = 0; i < ours; i++) {
        bool replaced = false;
        for (size_t k = 0; k < theirs && !replaced; k++) {
            size_t name = strcspn(more[k], "=");
            replaced = strncmp(environ[i], more[k], name) == 0 && environ[i][name] == '=';
        }
        if (!replaced) all[count++] = environ[i];
    }
    for (size_t k = 0; k < theirs; k++) all[count++] = (char *)more[k];
    return all;
}

typedef struct launch {
    const proa_process_options *options;
    char **envp;
    const int *fds; /* `count` of them */
    int count;
    int null;
    pid_t parent;
    volatile int error; /* errno of the call that failed before the program started */
} launch;

static bool arrange_fds(const launch *l)
{
    int moved[FDS];
    for (int i = 0; i < l->count; i++) /* move the descriptors away from the numbers that they get below */
        if ((moved[i] = fcntl(l->fds[i], F_DUPFD, FD_FIRST + FDS)) < 0) return false;
    if (dup2(l->null, 0) < 0 || dup2(2, 1) < 0)
        return false; /* what models print must not go to the server's standard output */
    for (int i = 0; i < l->count; i++)
        if (dup2(moved[i], FD_FIRST + i) < 0) return false;
    syscall(SYS_close_range, (unsigned)(FD_FIRST + l->count), ~0U, 0);
    return true;
}

/* Runs in the child, which shares our memory until it becomes the program: system calls only. */
static void become_program(launch *l)
{
    struct rlimit limit = {(rlim_t)l->options->memory_bytes, (rlim_t)l->options->memory_bytes};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int s = 1; s < SIGRTMIN; s++) sigaction(s, &plain, NULL);
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == l->parent && arrange_fds(l) &&
        (!l->options->memory_bytes || setrlimit(RLIMIT_DATA, &limit) == 0)) {
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve(l->options->program, (char **)(uintptr_t)l->options->argv, l->envp);
    }
    l->error = errno ? errno : ESRCH;
    _exit(127);
}

/* vfork, so that a server with much memory need not copy its page tables; signals are blocked meanwhile. */
static pid_t launch_program(launch *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->parent = getpid();
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): the child makes system calls only */
    if (pid == 0) become_program(l); /* NOLINT(clang-analyzer-unix.Vfork) */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static proa_status spawn_program(proa_process *p, const proa_process_options *o, const int *fds, proa_err *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return PROA_FAIL(err, IO, "cannot open /dev/null: %s", strerror(errno));
    char **envp = make_environment(o->environment);
    launch l = {.options = o, .envp = envp, .fds = fds, .count = fds[FD_EXTRA] < 0 ? FD_EXTRA : FDS, .null = null};
    p->pid = launch_program(&l);
    int failed = p->pid < 0 ? errno : l.error;
    close(null);
    free(envp);
    if (!failed) return PROA_OK;
    if (p->pid > 0) waitpid(p->pid, NULL, 0);
    p->pid = 0;
    return PROA_FAIL(err, IO, "cannot start '%s': %s", o->program, strerror(failed));
}

static proa_status open_parts(proa_process *p, const proa_process_options *o, int *fds, proa_err *err)
{
    int pair[2], room = 1 << 20;
    PROA_TRY(proa_shared_arena_new(&p->arena, (size_t)o->arena_bytes, (size_t)o->keep_bytes, err));
    PROA_TRY(proa_shared_view_new(&p->view, (size_t)o->arena_bytes, err));
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return PROA_FAIL(err, IO, "cannot make a socket: %s", strerror(errno));
    p->socket = pair[0];
    fds[FD_SOCKET] = pair[1];
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    fds[FD_ARENA] = proa_shared_arena_fd(p->arena);
    fds[FD_VIEW] = proa_shared_view_fd(p->view);
    return PROA_OK;
}

proa_status proa_process_start(proa_process **out, const proa_process_options *options, proa_err *err)
{
    int fds[FDS] = {-1, -1, -1, options->extra_fd > 0 ? options->extra_fd : -1};
    proa_process *p = proa_calloc(1, sizeof *p);
    p->socket = p->wake = p->pidfd = -1;
    p->last = &p->first;
    p->removes_regions = options->removes_regions;
    p->started = (int64_t)time(NULL);
    pthread_mutex_init(&p->lock, NULL);
    proa_status status = open_parts(p, options, fds, err);
    if (status == PROA_OK) status = spawn_program(p, options, fds, err);
    if (fds[FD_SOCKET] >= 0) close(fds[FD_SOCKET]);
    if (status == PROA_OK)
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0); /* -1: only the socket reports the end */
    if (status != PROA_OK) proa_process_free(p);
    *out = status == PROA_OK ? p : NULL;
    return status;
}

proa_shared_arena *proa_process_arena(const proa_process *p)
{
    return p->arena;
}

proa_shared_view *proa_process_view(const proa_process *p)
{
    return p->view;
}

/* ---- packets ---- */

/* 1: sent; 0: the socket is full; -1: the process has ended. */
static int try_send(const proa_process *p, const proa_channel_message *messages, int count)
{
    for (;;) {
        if (send(p->socket, messages, (size_t)count * sizeof *messages, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 1;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -1;
    }
}

static void send_waiting(proa_process *p)
{
    waiting *w;
    int sent = 1;
    while ((w = p->first) && (sent = try_send(p, w->messages, w->count)) > 0) {
        p->first = w->next;
        if (!p->first) p->last = &p->first;
        free(w);
    }
    if (sent < 0) p->closed = true;
}

static void keep_waiting(proa_process *p, const proa_channel_message *messages, int count)
{
    size_t bytes = (size_t)count * sizeof *messages;
    waiting *w = proa_malloc(sizeof *w + bytes);
    w->next = NULL;
    w->count = count;
    memcpy(w->messages, messages, bytes);
    *p->last = w;
    p->last = &w->next;
}

bool proa_process_send(proa_process *p, const proa_channel_message *messages, int count)
{
    bool wait = false;
    pthread_mutex_lock(&p->lock);
    if (!p->closed) {
        int sent = p->first ? 0 : try_send(p, messages, count);
        wait = sent == 0;
        if (wait) keep_waiting(p, messages, count);
        p->closed = sent < 0;
    }
    bool alive = !p->closed;
    pthread_mutex_unlock(&p->lock);
    if (wait) proa_process_wake(p);
    return alive;
}

void proa_process_wake(proa_process *p)
{
    uint64_t one = 1;
    if (write(p->wake, &one, sizeof one) < 0) return; /* full: it is awake */
}

/* As proa_process_receive, without waiting; -2: no packet. */
static int take_packet(const proa_process *p, proa_channel_message *messages, int cap)
{
    struct iovec part = {messages, (size_t)cap * sizeof *messages};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t got;
    do got = recvmsg(p->socket, &head, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EAGAIN ? -2 : -1;
    if (got == 0 || (size_t)got % sizeof *messages || (head.msg_flags & MSG_TRUNC)) return -1;
    return (int)((size_t)got / sizeof *messages);
}

int proa_process_receive(proa_process *p, proa_channel_message *messages, int cap, int timeout_ms)
{
    uint64_t count;
    pthread_mutex_lock(&p->lock);
    short events = p->first ? POLLIN | POLLOUT : POLLIN;
    pthread_mutex_unlock(&p->lock);
    struct pollfd fds[] = {{p->socket, events, 0}, {p->wake, POLLIN, 0}, {p->pidfd, POLLIN, 0}};
    if (poll(fds, PROA_COUNT(fds), timeout_ms) <= 0) return 0; /* time is over, or a signal came */
    if (fds[1].revents && read(p->wake, &count, sizeof count) < 0) return 0;
    if (fds[0].revents & POLLOUT) {
        pthread_mutex_lock(&p->lock);
        send_waiting(p);
        pthread_mutex_unlock(&p->lock);
    }
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) {
        int got = take_packet(p, messages, cap);
        if (got != -2) return got;
    }
    return fds[2].revents && !(fds[0].revents & POLLIN) ? -1 : 0; /* ended, and all its packets were read */
}

/* ---- the end ---- */

int64_t proa_process_stopped_ms(proa_process *p)
{
    siginfo_t info = {.si_pid = 0};
    int64_t now = proa_clock_ns();
    bool stopped = waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == p->pid;
    p->stopped_ns = !stopped ? 0 : p->stopped_ns ? p->stopped_ns : now;
    return stopped ? (now - p->stopped_ns) / 1000000 : 0;
}

/* Reads /proc/PID/stat: fields 14 and 15 are ticks of user and system time, field 24 is resident pages (proc(5)). Field
 * 2 is a name in parentheses, which may contain any character. */
void proa_process_read_use(const proa_process *p, proa_process_use *use)
{
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    long long pages = 0;
    *use = (proa_process_use){0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
    FILE *f = fopen(path, "re");
    if (!f) return;
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = 0;
    const char *rest = strrchr(text, ')');
    if (!rest ||
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %*u %*u %lld",
               &user, &system, &pages) != 3)
        return;
    use->cpu_s = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    use->memory_bytes = pages * (int64_t)sysconf(_SC_PAGESIZE);
}

void proa_process_note_regions(proa_process *p)
{
    if (p->removes_regions && p->pid > 0) proa_regions_note(&p->regions, p->pid, p->started);
}

void proa_process_kill(proa_process *p)
{
    if (p->pid > 0) kill(-p->pid, SIGKILL);
    if (p->pid > 0) kill(p->pid, SIGKILL); /* it may not have created its process group yet */
}

static void say_how(int status, char *how, size_t bytes)
{
    if (WIFSIGNALED(status))
        snprintf(how, bytes, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else snprintf(how, bytes, "ended with exit status %d", WEXITSTATUS(status));
}

bool proa_process_end(proa_process *p, int patience_ms, char *how, size_t how_bytes)
{
    int64_t until = proa_clock_ns() + (int64_t)patience_ms * 1000000;
    int status = 0;
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (proa_clock_ns() >= until) {
            proa_process_note_regions(p);
            proa_process_kill(p);
            while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
            }
            break;
        }
        usleep(1000);
    }
    kill(-p->pid, SIGKILL); /* its own children */
    p->pid = 0;
    say_how(status, how, how_bytes);
    bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!well) proa_regions_remove(&p->regions);
    return well;
}

void proa_process_free(proa_process *p)
{
    if (!p) return;
    PROA_ASSERT(p->pid <= 0);
    while (p->first) {
        waiting *w = p->first;
        p->first = w->next;
        free(w);
    }
    if (p->socket >= 0) close(p->socket);
    if (p->wake >= 0) close(p->wake);
    if (p->pidfd >= 0) close(p->pidfd);
    proa_shared_arena_release(p->arena);
    proa_shared_view_release(p->view);
    proa_regions_release(&p->regions);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
