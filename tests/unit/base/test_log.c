/* SPDX-License-Identifier: Apache-2.0
 * test_log.c - forms, levels, and that outside text cannot forge a line. */
#include "base/compiler.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

static char path[] = "/tmp/proa-log-XXXXXX";

static char *written(void)
{
    static char text[8192];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_int_equal(truncate(path, 0), 0);
    return text;
}

static void use(proa_log_format format, int verbose)
{
    proa_log_settings s = {.error = true, .info = true, .verbose = verbose, .format = format};
    snprintf(s.file, sizeof s.file, "%s", path);
    assert_int_equal(proa_log_set(&s, NULL), PROA_OK);
}

static void test_levels(void **state)
{
    PROA_UNUSED(state);
    use(PROA_LOG_DEFAULT, 1);
    PROA_LOG(WARNING, "not written");
    PROA_LOG(VERBOSE, "one");
    proa_log_line(PROA_LOG_VERBOSE + 1, __FILE__, __LINE__, "level two is not");
    char *text = written();
    assert_null(strstr(text, "not"));
    assert_non_null(strstr(text, "test_log.c:"));
    assert_non_null(strstr(text, "] \"one\"\n"));
}

static void test_forged(void **state)
{
    PROA_UNUSED(state);
    use(PROA_LOG_JSON, 0);
    PROA_LOG(INFO, "model '%s'", "x\",\"level\":\"error\r\nE1121");
    char *text = written();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "\"level\":\"info\""));
    assert_null(strstr(text, "\"level\":\"error\""));
    use(PROA_LOG_ISO8601, 0);
    PROA_LOG(ERROR, "bell \a");
    assert_non_null(strstr(written(), "bell \\x07\"\n"));
}

static void test_line_ends(void **state)
{
    PROA_UNUSED(state);
    use(PROA_LOG_DEFAULT, 0);
    PROA_LOG(INFO, "model '%s'", "x\"\nE1121 00:00:00.000000 1 server.c:1] \"forged");
    char *text = written();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_non_null(strstr(text, "x\\\"\\nE1121"));
    proa_log_rows(PROA_LOG_INFO, __FILE__, __LINE__, "a\nb");
    assert_non_null(strstr(written(), "] \"a\nb\"\n"));
}

/* A file at its limit of size loses lines, not the program; the part of a line is ended, and the loss is counted. */
static void test_no_room(void **state)
{
    struct rlimit old, small;
    PROA_UNUSED(state);
    use(PROA_LOG_DEFAULT, 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &small);
    PROA_LOG(INFO, "%0100d", 1);
    PROA_LOG(INFO, "two");
    PROA_LOG(INFO, "three");
    setrlimit(RLIMIT_FSIZE, &old);
    PROA_LOG(INFO, "four");
    char *text = written(), *said = strstr(text, "] \"3 lines of this log could not be written");
    assert_non_null(said);
    assert_non_null(strstr(said, "] \"four\"\n"));
    assert_int_equal(text[100], '\n');
    assert_null(strstr(text, "two"));
}

typedef struct reader {
    int fd;
    char *bytes;
    size_t len, size;
} reader;

/* Reads until the line "after" has come, the end of the pipe, or a full buffer. */
static void *read_to_last_line(void *arg)
{
    reader *r = arg;
    while (r->len < r->size - 1) {
        ssize_t n = read(r->fd, r->bytes + r->len, r->size - 1 - r->len);
        if (n <= 0) break;
        r->len += (size_t)n;
        r->bytes[r->len] = 0;
        if (strstr(r->bytes + (r->len > (size_t)n + 64 ? r->len - (size_t)n - 64 : 0), "] \"after\"\n"))
            break;
    }
    return NULL;
}

/* A pipe that nobody reads holds nobody up; what it took is in order, and the rest is counted. */
static void test_unread_pipe(void **state)
{
    static char got[4 << 20];
    int ends[2];
    PROA_UNUSED(state);
    assert_int_equal(pipe(ends), 0);
    proa_log_settings s = {.info = true, .warning = true};
    snprintf(s.file, sizeof s.file, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(proa_log_set(&s, NULL), PROA_OK);
    proa_log_in_background();
    for (int i = 0; i < 2000; i++)
        PROA_LOG(INFO, "%06d %01000d", i, 0); /* 2 MB: more than the pipe and the queue hold */
    reader r = {.fd = ends[0], .bytes = got, .size = sizeof got};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_to_last_line, &r), 0);
    for (int tries = 0; tries < 10; tries++) proa_log_flush(); /* an empty queue returns at once */
    PROA_LOG(INFO, "after");
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t len = r.len;
    got[len] = 0;
    int count = 0, last = -1;
    for (const char *at = got; (at = strstr(at, "] \"00")); at++, count++) {
        assert_true(atoi(at + 3) > last);
        last = atoi(at + 3);
    }
    assert_in_range(count, 500, 1500);
    int lost = 0, notes = 0;
    for (const char *at = got; (at = strstr(at, " lines of this log")); at++, notes++) {
        const char *number = at;
        while (number[-1] != '"') number--;
        lost += atoi(number);
    }
    assert_true(notes > 0);
    assert_int_equal(lost + count, 2000);
    assert_non_null(strstr(got, "] \"after\"\n"));
    use(PROA_LOG_DEFAULT, 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_bad_file(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {0};
    proa_log_settings s = {.error = true, .file = "/nowhere/at/all"};
    assert_int_equal(proa_log_set(&s, &err), PROA_IO);
    assert_non_null(strstr(err.text, "cannot open '/nowhere/at/all'"));
    proa_log_get(&s);
    assert_string_equal(s.file, path);
}

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels),   cmocka_unit_test(test_forged),
                                       cmocka_unit_test(test_bad_file), cmocka_unit_test(test_line_ends),
                                       cmocka_unit_test(test_no_room),  cmocka_unit_test(test_unread_pipe)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
