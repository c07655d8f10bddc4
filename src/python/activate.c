/* SPDX-License-Identifier: Apache-2.0
 * activate.c - environment variables, and the activation scripts of conda packages. */
#include "python/activate.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- the list ---- */

/* The index of "NAME=..." in a list that ends with NULL; the length of the list if it is not there. */
static int find_name(char *const *items, const char *text)
{
    size_t n = strcspn(text, "=") + 1;
    int i = 0;
    for (; items && items[i]; i++)
        if (strncmp(items[i], text, n) == 0) break;
    return i;
}

static void put_variable(proa_envlist *list, char *text)
{
    int i = find_name(list->items, text);
    if (i < list->count) {
        free(list->items[i]);
        list->items[i] = text;
        return;
    }
    if (list->count + 2 > list->cap) {
        list->cap = list->cap ? 2 * list->cap : 16;
        list->items = proa_realloc(list->items, (size_t)list->cap * sizeof *list->items);
    }
    list->items[list->count++] = text;
    list->items[list->count] = NULL;
}

void proa_envlist_set(proa_envlist *list, const char *name, const char *value, const char *more)
{
    size_t bytes = strlen(name) + strlen(value) + strlen(more) + 2;
    char *text = proa_malloc(bytes);
    snprintf(text, bytes, "%s=%s%s", name, value, more);
    put_variable(list, text);
}

void proa_envlist_release(proa_envlist *list)
{
    for (int i = 0; i < list->count; i++) free(list->items[i]);
    free(list->items);
    *list = (proa_envlist){0};
}

/* ---- children ---- */

int proa_child_wait(pid_t child, int64_t limit_ms)
{
    int status;
    for (int64_t waited_ms = 0; waited_ms < limit_ms; waited_ms += 5) {
        pid_t got = waitpid(child, &status, WNOHANG);
        if (got == child) return status;
        if (got < 0 && errno != EINTR) return -1;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return -1;
}

/* ---- the scripts ---- */

/* env by its path: the environment's own PATH may find another program of this name. */
static const char SCRIPT[] = "exec 3>&1 1>&2; for f in \"$1\"/etc/conda/activate.d/*.sh; do if [ -f \"$f\" "
                             "]; then . \"$f\"; fi; done; exec /usr/bin/env -0 >&3";

/* Our environment overridden by the list; the strings are not copied. */
static char **merged_list(const proa_envlist *list)
{
    int n = 0, count = 0;
    while (environ[n]) n++;
    char **all = proa_malloc((size_t)(n + list->count + 1) * sizeof *all);
    for (int i = 0; i < n; i++)
        if (find_name(list->items, environ[i]) == list->count) all[count++] = environ[i];
    for (int i = 0; i < list->count; i++) all[count++] = list->items[i];
    all[count] = NULL;
    return all;
}

static proa_status start_shell(pid_t *child, int *out, const proa_envlist *list, const char *root, proa_err *err)
{
    int ends[2];
    const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash"
                                                       : "/bin/sh"; /* most scripts are written for bash */
    char *argv[] = {(char *)shell, (char *)"-c", (char *)SCRIPT, (char *)"activate", (char *)root, NULL};
    if (pipe2(ends, O_CLOEXEC) != 0) return PROA_FAIL(err, IO, "cannot make a pipe: %s", strerror(errno));
    char **variables = merged_list(list);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    int code = posix_spawn(child, shell, &files, NULL, argv, variables);
    posix_spawn_file_actions_destroy(&files);
    free(variables);
    close(ends[1]);
    *out = ends[0];
    if (code == 0) return PROA_OK;
    close(ends[0]);
    return PROA_FAIL(err, IO, "cannot run '%s': %s", shell, strerror(code));
}

/* Reads fd to its end; false if that takes too long or is too much. */
static bool read_all(proa_buf *text, int fd, int64_t limit_ms)
{
    char part[4096];
    int64_t end_ns = proa_clock_ns() + limit_ms * 1000000;
    for (;;) {
        int64_t left_ms = (end_ns - proa_clock_ns()) / 1000000;
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0) return false;
        int ready = poll(&one, 1, (int)left_ms);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t n = read(fd, part, sizeof part);
        if (n == 0) return true;
        if (n < 0 && errno != EINTR) return false;
        if (n > 0 && !proa_buf_append(text, part, (size_t)n)) return false;
    }
}

/* Variables that the shell itself sets. */
static bool of_the_shell(const char *text)
{
    static const char *const names[] = {"_=", "PWD=", "OLDPWD=", "SHLVL=", "BASH_FUNC_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Adds the NUL-terminated variables of `text` that differ from our own environment. */
static void take_variables(proa_envlist *list, const proa_buf *text)
{
    int n = 0;
    while (environ[n]) n++;
    if (text->len == 0) return;
    for (const char *at = text->ptr, *end = at + text->len; at < end; at += strlen(at) + 1) {
        if (!memchr(at, '\0', (size_t)(end - at))) return;
        if (!strchr(at, '=') || of_the_shell(at)) continue;
        int i = find_name(environ, at);
        if (i < n && strcmp(environ[i], at) == 0 && find_name(list->items, at) == list->count) continue;
        put_variable(list, proa_strdup(at));
    }
}

proa_status proa_activate(proa_envlist *list, const char *root, proa_err *err)
{
    char folder[PROA_PATH_MAX];
    proa_buf text;
    pid_t child;
    int out = -1;
    PROA_TRY(proa_path_join(folder, root, "etc/conda/activate.d", err));
    if (!proa_dir_exists(folder)) return PROA_OK;
    PROA_TRY(start_shell(&child, &out, list, root, err));
    proa_buf_init(&text, (size_t)PROA_ENV_TEXT_MAX);
    bool complete = read_all(&text, out, PROA_ENV_SCRIPTS_MS);
    close(out);
    if (!complete) kill(child, SIGKILL);
    int code = proa_child_wait(child, PROA_ENV_SCRIPTS_MS);
    if (complete && code == 0) take_variables(list, &text);
    proa_buf_release(&text);
    if (complete && code == 0) return PROA_OK;
    return PROA_FAIL(err, INTERNAL, "the scripts in '%s' failed", folder);
}
