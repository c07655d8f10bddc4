/* SPDX-License-Identifier: Apache-2.0
 * child.c - starts and ends the processes of ranks. */
#include "comm/child.h"

#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The program to start; one without a slash is sought on PATH. */
static const char *find_program(char room[PROA_PATH_MAX])
{
    const char *named = getenv("PROA_RANK_PROGRAM");
    if (named && *named) return named;
    ssize_t len = readlink("/proc/self/exe", room, PROA_PATH_MAX - 1);
    if (len <= 0) return "proa";
    room[len] = '\0';
    const char *slash = strrchr(room, '/');
    return slash && strcmp(slash + 1, "proa") == 0 ? room : "proa";
}

/* They are first moved to numbers above all of them: each may have the number that another gets, or that of a
 * standard stream, if this process has closed it. */
static int add_descriptors(posix_spawn_file_actions_t *actions, const int *fds, int count)
{
    int away = PROA_CHILD_FDS + count;
    for (int i = 0; i < count; i++)
        if (fds[i] >= away) away = fds[i] + 1;
    int failed = 0;
    for (int i = 0; i < count && !failed; i++)
        if (fds[i] >= 0) failed = posix_spawn_file_actions_adddup2(actions, fds[i], away + i);
    if (!failed) failed = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!failed) failed = posix_spawn_file_actions_adddup2(actions, 2, 1);
    for (int i = 0; i < count && !failed; i++)
        if (fds[i] >= 0) failed = posix_spawn_file_actions_adddup2(actions, away + i, PROA_CHILD_FDS + i);
    if (!failed) failed = posix_spawn_file_actions_addclosefrom_np(actions, PROA_CHILD_FDS + count);
    return failed;
}

/* A group of its own: Ctrl-C on a terminal ends rank 0, and that the others. */
static void set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
}

proa_status proa_child_start(pid_t *pid, const int *fds, int count, proa_err *err)
{
    char room[PROA_PATH_MAX], name[] = "proa", command[] = "rank";
    char *argv[] = {name, command, NULL};
    const char *program = find_program(room);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    set_attributes(&attributes);
    int failed = add_descriptors(&actions, fds, count);
    if (!failed) failed = posix_spawnp(pid, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (!failed) return PROA_OK;
    *pid = 0;
    return PROA_FAIL(err, IO, "cannot start '%s rank': %s", program, strerror(failed));
}

void proa_child_end(pid_t pid)
{
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void proa_child_fate(pid_t pid, char *text, size_t size)
{
    siginfo_t info = {.si_pid = 0};
    *text = '\0';
    if (pid <= 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || !info.si_pid) return;
    bool exited = info.si_code == CLD_EXITED;
    snprintf(text, size, exited ? "ended with status %d" : "was killed by signal %d", info.si_status);
}
