/* SPDX-License-Identifier: Apache-2.0
 * process.c - starts a stub process, exchanges packets with it, and ends it. */
#include "python/process.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "python/stub.h"
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
#include <unistd.h>

/* The descriptors that the stub inherits, from 3 on. */
enum { FD_SOCKET, FD_ARENA, FD_VIEW, FD_SOURCES, FDS };
#define FD_FIRST 3

/* A packet that waits until the socket accepts it. */
typedef struct waiting {
    struct waiting *next;
    int count;
    proa_python_message messages[];
} waiting;

struct proa_pyprocess {
    pid_t pid;
    int socket, wake, pidfd;
    proa_pyarena *arena;
    proa_pyview *view;
    pthread_mutex_t lock; /* of sending */
    waiting *first, **last;
    bool closed;        /* no more is sent */
    int64_t stopped_ns; /* when it was first seen stopped; 0: it was running at the last check */
};

/* ---- the start ---- */

/* Reads the sources from descriptor 6 and makes them importable; proa_stub does the rest. */
static const char boot[] =
    "import sys, json, importlib.util\n"
    "class Embedded:\n"
    "    def __init__(self, files): self.files = files\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name in self.files: return importlib.util.spec_from_loader(name, self, origin='<proa>/' + "
    "name + '.py')\n"
    "    def create_module(self, spec): return None\n"
    "    def get_source(self, name): return self.files[name]\n"
    "    def exec_module(self, module):\n"
    "        name = module.__name__\n"
    "        exec(compile(self.files[name], '<proa>/' + name + '.py', 'exec'), module.__dict__)\n"
    "with open(6, 'rb') as file: sys.meta_path.insert(0, Embedded(json.loads(file.read())))\n"
    "if sys.path and sys.path[0] == '': del sys.path[0]\n"
    "import proa_stub\n"
    "proa_stub.main(3, 4, 5, int(sys.argv[1]), int(sys.argv[2]))\n";

static proa_status sources_fd(int *fd, proa_err *err)
{
    proa_buf text;
    proa_status status = PROA_OK;
    proa_buf_init(&text, PROA_PYTHON_SOURCES_MAX);
    proa_buf_char(&text, '{');
    for (const proa_python_file *f = proa_python_files; f->name; f++) {
        if (f != proa_python_files) proa_buf_char(&text, ',');
        proa_buf_json_str(&text, (proa_str){f->name, strcspn(f->name, ".")});
        proa_buf_char(&text, ':');
        proa_buf_json_str(&text, (proa_str){(const char *)f->bytes, f->len});
    }
    proa_buf_char(&text, '}');
    *fd = memfd_create("proa-python-sources", MFD_CLOEXEC);
    if (text.full || *fd < 0 || write(*fd, text.ptr, text.len) != (ssize_t)text.len ||
        lseek(*fd, 0, SEEK_SET) != 0)
        status = PROA_FAIL(err, IO, "cannot hand over the stub's sources: %s", strerror(errno));
    proa_buf_release(&text);
    return status;
}

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
    const proa_pyprocess_options *options;
    char **argv, **envp;
    const int *fds; /* FDS of them */
    int null;
    pid_t parent;
    volatile int error; /* errno of the call that failed before the interpreter started */
} launch;

static bool arrange_fds(const launch *l)
{
    int moved[FDS];
    for (int i = 0; i < FDS; i++) /* move the descriptors away from the numbers that they get below */
        if ((moved[i] = fcntl(l->fds[i], F_DUPFD, FD_FIRST + FDS)) < 0) return false;
    if (dup2(l->null, 0) < 0 || dup2(2, 1) < 0)
        return false; /* what models print must not go to the server's standard output */
    for (int i = 0; i < FDS; i++)
        if (dup2(moved[i], FD_FIRST + i) < 0) return false;
    syscall(SYS_close_range, (unsigned)(FD_FIRST + FDS), ~0U, 0);
    return true;
}

/* Runs in the child, which shares our memory until it becomes the interpreter: system calls only. */
static void become_stub(launch *l)
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
        execve(l->options->python, l->argv, l->envp);
    }
    l->error = errno ? errno : ESRCH;
    _exit(127);
}

/* vfork, so that a server with much memory need not copy its page tables; signals are blocked meanwhile. */
static pid_t launch_stub(launch *l)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->parent = getpid();
    pid_t pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): the child makes system calls only */
    if (pid == 0) become_stub(l); /* NOLINT(clang-analyzer-unix.Vfork) */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static proa_status spawn_stub(proa_pyprocess *p, const proa_pyprocess_options *o, const int *fds, proa_err *err)
{
    char parent[16], protocol[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(protocol, sizeof protocol, "%d", PROA_PYTHON_PROTOCOL);
    char unbuffered[] = "-u", command[] = "-c";
    char *argv[] = {(char *)o->python, unbuffered,      command, (char *)boot, parent,
                    protocol,          (char *)o->name, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return PROA_FAIL(err, IO, "cannot open /dev/null: %s", strerror(errno));
    char **envp = make_environment(o->environment);
    launch l = {.options = o, .argv = argv, .envp = envp, .fds = fds, .null = null};
    p->pid = launch_stub(&l);
    int failed = p->pid < 0 ? errno : l.error;
    close(null);
    free(envp);
    if (!failed) return PROA_OK;
    if (p->pid > 0) waitpid(p->pid, NULL, 0);
    p->pid = 0;
    return PROA_FAIL(err, IO, "cannot start '%s': %s", o->python, strerror(failed));
}

static proa_status open_parts(proa_pyprocess *p, const proa_pyprocess_options *o, int *fds, proa_err *err)
{
    int pair[2], room = 1 << 20;
    PROA_TRY(proa_pyarena_new(&p->arena, (size_t)o->arena_bytes, (size_t)o->keep_bytes, err));
    PROA_TRY(proa_pyview_new(&p->view, (size_t)o->arena_bytes, err));
    PROA_TRY(sources_fd(&fds[FD_SOURCES], err));
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return PROA_FAIL(err, IO, "cannot make a socket: %s", strerror(errno));
    p->socket = pair[0];
    fds[FD_SOCKET] = pair[1];
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    fds[FD_ARENA] = proa_pyarena_fd(p->arena);
    fds[FD_VIEW] = proa_pyview_fd(p->view);
    return PROA_OK;
}

proa_status proa_pyprocess_start(proa_pyprocess **out, const proa_pyprocess_options *options, proa_err *err)
{
    int fds[FDS] = {-1, -1, -1, -1};
    proa_pyprocess *p = proa_calloc(1, sizeof *p);
    p->socket = p->wake = p->pidfd = -1;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    proa_status status = open_parts(p, options, fds, err);
    if (status == PROA_OK) status = spawn_stub(p, options, fds, err);
    if (fds[FD_SOCKET] >= 0) close(fds[FD_SOCKET]);
    if (fds[FD_SOURCES] >= 0) close(fds[FD_SOURCES]);
    if (status == PROA_OK)
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0); /* -1: only the socket reports the end */
    if (status != PROA_OK) proa_pyprocess_free(p);
    *out = status == PROA_OK ? p : NULL;
    return status;
}

proa_pyarena *proa_pyprocess_arena(const proa_pyprocess *p)
{
    return p->arena;
}

proa_pyview *proa_pyprocess_view(const proa_pyprocess *p)
{
    return p->view;
}

/* ---- packets ---- */

/* 1: sent; 0: the socket is full; -1: the stub has ended. */
static int try_send(const proa_pyprocess *p, const proa_python_message *messages, int count)
{
    for (;;) {
        if (send(p->socket, messages, (size_t)count * sizeof *messages, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 1;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == ENOBUFS ? 0 : -1;
    }
}

static void send_waiting(proa_pyprocess *p)
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

static void keep_waiting(proa_pyprocess *p, const proa_python_message *messages, int count)
{
    size_t bytes = (size_t)count * sizeof *messages;
    waiting *w = proa_malloc(sizeof *w + bytes);
    w->next = NULL;
    w->count = count;
    memcpy(w->messages, messages, bytes);
    *p->last = w;
    p->last = &w->next;
}

bool proa_pyprocess_send(proa_pyprocess *p, const proa_python_message *messages, int count)
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
    if (wait) proa_pyprocess_wake(p);
    return alive;
}

void proa_pyprocess_wake(proa_pyprocess *p)
{
    uint64_t one = 1;
    if (write(p->wake, &one, sizeof one) < 0) return; /* full: it is awake */
}

/* As proa_pyprocess_receive, without waiting; -2: no packet. */
static int take_packet(const proa_pyprocess *p, proa_python_message *messages, int cap)
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

int proa_pyprocess_receive(proa_pyprocess *p, proa_python_message *messages, int cap, int timeout_ms)
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

int64_t proa_pyprocess_stopped_ms(proa_pyprocess *p)
{
    siginfo_t info = {.si_pid = 0};
    int64_t now = proa_clock_ns();
    bool stopped = waitid(P_PID, (id_t)p->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == p->pid;
    p->stopped_ns = !stopped ? 0 : p->stopped_ns ? p->stopped_ns : now;
    return stopped ? (now - p->stopped_ns) / 1000000 : 0;
}

/* Of /proc/PID/stat: fields 14 and 15 are ticks of user and system time, field 24 is resident pages (proc(5)). Field 2
 * is a name in parentheses, which may hold anything. */
void proa_pyprocess_read_use(const proa_pyprocess *p, proa_pyprocess_use *use)
{
    char path[64], text[1024];
    unsigned long long user = 0, system = 0;
    long long pages = 0;
    *use = (proa_pyprocess_use){0};
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

void proa_pyprocess_kill(proa_pyprocess *p)
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

bool proa_pyprocess_end(proa_pyprocess *p, int patience_ms, char *how, size_t how_bytes)
{
    int64_t until = proa_clock_ns() + (int64_t)patience_ms * 1000000;
    int status = 0;
    pthread_mutex_lock(&p->lock);
    p->closed = true;
    pthread_mutex_unlock(&p->lock);
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (proa_clock_ns() >= until) {
            proa_pyprocess_kill(p);
            while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
            }
            break;
        }
        usleep(1000);
    }
    kill(-p->pid, SIGKILL); /* its own children */
    p->pid = 0;
    say_how(status, how, how_bytes);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void proa_pyprocess_free(proa_pyprocess *p)
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
    proa_pyarena_release(p->arena);
    proa_pyview_release(p->view);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
