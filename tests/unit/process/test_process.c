/* SPDX-License-Identifier: Apache-2.0
 * test_process.c - a stub process and its channel: what it inherits, packets, all ways to end. A shell
 * script stands in for the interpreter. */
#include "base/clock.h"
#include "process/process.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants those above it */
#include <cmocka.h>

static char script[64];
static int extra_fd; /* which the processes of start inherit; 0: none */

static int setup(void **state)
{
    (void)state;
    snprintf(script, sizeof script, "/tmp/proa-test-process-XXXXXX");
    int fd = mkstemp(script);
    if (fd < 0) return -1;
    close(fd);
    return chmod(script, 0700);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(script);
}

static proa_status start(proa_process **p, const char *code, const char *const *environment, proa_err *err)
{
    const char *argv[] = {script, NULL};
    FILE *f = fopen(script, "w");
    fprintf(f, "#!/bin/sh\n%s\n", code);
    fclose(f);
    proa_process_options o = {.program = script,
                              .argv = argv,
                              .environment = environment,
                              .extra_fd = extra_fd,
                              .arena_bytes = 1 << 20,
                              .keep_bytes = 1 << 20};
    return proa_process_start(p, &o, err);
}

static proa_process *run(const char *code)
{
    proa_process *p;
    proa_err err = {0};
    assert_int_equal(start(&p, code, NULL, &err), PROA_OK);
    return p;
}

/* A message of that kind, all else 0, as printf of a shell writes it. */
#define MESSAGE(kind) "printf '\\" kind "\\0\\0\\0%036d' 0 | tr 0 '\\0' >&3\n"

/* The next packet, however long its sender takes. */
static int next(proa_process *p, proa_channel_message *m, int cap)
{
    int count = 0;
    int64_t until = proa_clock_ns() + (int64_t)30 * 1000000000;
    while (!count && proa_clock_ns() < until) count = proa_process_receive(p, m, cap, 20);
    return count;
}

static void expect_end(proa_process *p, int patience_ms, bool well, const char *text)
{
    char how[128];
    bool ended_well = proa_process_end(p, patience_ms, how, sizeof how);
    assert_string_equal(how, text);
    assert_int_equal(ended_well, well);
    proa_process_free(p);
}

static void test_ends(void **state)
{
    proa_channel_message m[4];
    (void)state;
    proa_process *p = run("exit 0");
    assert_int_equal(next(p, m, 4), -1);
    expect_end(p, 5000, true, "ended with exit status 0");
    p = run("exit 3");
    assert_int_equal(next(p, m, 4), -1);
    expect_end(p, 5000, false, "ended with exit status 3");
    p = run("kill -SEGV $$");
    assert_int_equal(next(p, m, 4), -1);
    expect_end(p, 5000, false, "was killed by signal 11 (Segmentation fault)");
    p = run("sleep 60");
    assert_int_equal(proa_process_receive(p, m, 4, 1), 0);
    proa_process_kill(p);
    assert_int_equal(next(p, m, 4), -1);
    expect_end(p, 5000, false, "was killed by signal 9 (Killed)");
    p = run("trap '' TERM; sleep 60 & wait"); /* with a child, and no wish to go */
    expect_end(p, 50, false, "was killed by signal 9 (Killed)");
}

static void test_packets(void **state)
{
    proa_channel_message m[4];
    (void)state;
    proa_process *p = run(MESSAGE("100") "head -c 40 <&3 >&3\nsleep 60");
    assert_int_equal(next(p, m, 4), 1);
    assert_int_equal(m[0].kind, 64);
    assert_int_equal(m[0].at, 0);
    proa_channel_message sent = {.kind = 5, .flags = 6, .id = 7, .at = 8, .bytes = 9, .number = 10};
    assert_true(proa_process_send(p, &sent, 1));
    assert_int_equal(next(p, m, 4), 1);
    assert_memory_equal(m, &sent, sizeof sent);
    expect_end(p, 0, false, "was killed by signal 9 (Killed)");
}

static void test_what_is_no_packet(void **state)
{
    proa_channel_message m[1];
    (void)state;
    proa_process *p = run("printf 'hello' >&3\nsleep 60");
    assert_int_equal(next(p, m, 1), -1);
    expect_end(p, 0, false, "was killed by signal 9 (Killed)");
    p = run("printf '%080d' 0 >&3\nsleep 60"); /* two messages, and room for one */
    assert_int_equal(next(p, m, 1), -1);
    expect_end(p, 0, false, "was killed by signal 9 (Killed)");
}

static void test_what_it_inherits(void **state)
{
    const char *const environment[] = {"PROA_TEST_NEW=1", "HOME=/nowhere", NULL};
    proa_channel_message m[1];
    proa_process *p;
    proa_err err = {0};
    /* without close-on-exec, as a library may leave one */
    int extra = dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 200);
    (void)state;
    extra_fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(write(extra_fd, "more", 4), 4);
    assert_int_equal(lseek(extra_fd, 0, SEEK_SET), 0);
    assert_int_equal(start(&p,
                           "[ \"$PROA_TEST_NEW\" = 1 ] || exit 11\n[ \"$HOME\" = /nowhere ] || exit 12\n"
                           "[ -n \"$PATH\" ] || exit 13\n[ -S /proc/self/fd/3 ] || exit 14\n"
                           "[ $(stat -L -c %s /proc/self/fd/4) = 1048576 ] || exit 15\n"
                           "[ $(stat -L -c %s /proc/self/fd/5) = 1048576 ] || exit 16\n"
                           "[ $(cat <&6) = more ] || exit 17\n"
                           "[ ! -e /proc/$$/fd/200 ] || exit 18\n"
                           "exit 0",
                           environment, &err),
                     PROA_OK);
    close(extra);
    close(extra_fd);
    extra_fd = 0;
    assert_int_equal(next(p, m, 1), -1);
    expect_end(p, 5000, true, "ended with exit status 0");
}

static void test_no_interpreter(void **state)
{
    proa_process *p;
    proa_err err = {0};
    const char *argv[] = {"python", NULL};
    proa_process_options o = {.program = "/nowhere/python", .argv = argv, .arena_bytes = 1 << 20};
    (void)state;
    /* Under a sanitiser vfork is fork, and what failed in the child shows as its end. */
    if (proa_process_start(&p, &o, &err) == PROA_OK) expect_end(p, 5000, false, "ended with exit status 127");
    else assert_string_equal(err.text, "cannot start '/nowhere/python': No such file or directory");
}

/* ---- more than the socket takes ---- */

#define SENDERS 4
#define EACH    2000

static void *send_many(void *arg)
{
    proa_process *p = arg;
    proa_channel_message m = {.kind = 5};
    for (int i = 0; i < EACH; i++) assert_true(proa_process_send(p, &m, 1));
    return NULL;
}

static void test_send_never_blocks(void **state)
{
    proa_channel_message m[1];
    pthread_t threads[SENDERS];
    char code[128];
    (void)state;
    snprintf(code, sizeof code, "sleep 0.3\nn=0\nhead -c %d <&3 | wc -c | grep -qx %d || exit 1\nexit 0",
             40 * SENDERS * EACH, 40 * SENDERS * EACH);
    proa_process *p = run(code);
    for (int i = 0; i < SENDERS; i++) pthread_create(&threads[i], NULL, send_many, p);
    assert_int_equal(next(p, m, 1), -1); /* meanwhile this thread sends what waits */
    for (int i = 0; i < SENDERS; i++) pthread_join(threads[i], NULL);
    assert_false(proa_process_send(p, m, 1));
    expect_end(p, 5000, true, "ended with exit status 0");
}

static void *wake_soon(void *arg)
{
    usleep(20000);
    proa_process_wake(arg);
    return NULL;
}

static void test_wake(void **state)
{
    proa_channel_message m[1];
    pthread_t thread;
    (void)state;
    proa_process *p = run("sleep 60");
    int64_t begin = proa_clock_ns();
    pthread_create(&thread, NULL, wake_soon, p);
    assert_int_equal(proa_process_receive(p, m, 1, 30000), 0);
    assert_true(proa_clock_ns() - begin < (int64_t)20 * 1000000000);
    pthread_join(thread, NULL);
    expect_end(p, 0, false, "was killed by signal 9 (Killed)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_packets),
        cmocka_unit_test(test_what_is_no_packet),
        cmocka_unit_test(test_what_it_inherits),
        cmocka_unit_test(test_no_interpreter),
        cmocka_unit_test(test_send_never_blocks),
        cmocka_unit_test(test_wake),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
