/* SPDX-License-Identifier: Apache-2.0
 * test_outfile.c - files that are continued: after a cancel, a kill -9, a full disk, damage; other jobs are refused. */
#include "convert/outfile.h"

#include "base/file.h"
#include "base/limits.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 7, CHUNK = 1000 };

static char folder[] = "/tmp/proa-outfile-XXXXXX", path[PROA_PATH_MAX];

/* Byte i of item n. */
static char byte_of(int64_t n, int64_t i)
{
    return (char)(n * 31 + i * 7 + i / 251);
}

typedef struct scene {
    int64_t calls, kill_at; /* the process is killed in that call of fill; 0: never */
    int64_t stop_after;     /* progress says stop after so many calls; 0: never */
    int64_t steps, done[ITEMS];
} scene;

static void fill_piece(void *context, int64_t item, int64_t from, int64_t bytes, void *out)
{
    scene *s = context;
    if (++s->calls == s->kill_at) raise(SIGKILL);
    for (int64_t i = 0; i < bytes; i++) ((char *)out)[i] = byte_of(item, from + i);
}

static void item_done(void *context, int64_t item)
{
    ((scene *)context)->done[item]++;
}

static bool on_progress(void *context, int64_t done, int64_t total)
{
    scene *s = context;
    assert_true(done >= 0 && done <= total);
    return s->stop_after == 0 || s->steps++ < s->stop_after;
}

/* Items of different sizes and units, with gaps, one of them empty and one larger than a chunk. */
static const proa_outfile_item items[ITEMS] = {{100, 64, 8},    {164, 0, 1},    {192, 3400, 34}, {3600, 1, 1},
                                               {4096, 2500, 1}, {6600, 300, 3}, {7000, 900, 900}};
enum { BYTES = 8192 };

static proa_status write_as(scene *s, uint64_t key, bool overwrite, proa_err *err)
{
    static const char header[] = "header";
    proa_pool *pool = proa_pool_new(1);
    proa_convert_job job = {.overwrite = overwrite, .pool = pool, .progress = on_progress, .context = s};
    proa_convert_progress progress = {.total = BYTES};
    proa_outfile f = {.path = path,
                      .header = {header, sizeof header},
                      .items = items,
                      .count = ITEMS,
                      .bytes = BYTES,
                      .key = key,
                      .fill = fill_piece,
                      .item_done = item_done,
                      .context = s,
                      .chunk_bytes = CHUNK};
    proa_status status = proa_outfile_write(&f, &job, &progress, err);
    proa_pool_free(pool);
    return status;
}

static void check_file(void)
{
    proa_buf have;
    char want[BYTES] = "header";
    for (int64_t n = 0; n < ITEMS; n++)
        for (int64_t i = 0; i < items[n].bytes; i++) want[items[n].offset + i] = byte_of(n, i);
    assert_int_equal(proa_file_read(&have, path, BYTES, NULL), PROA_OK);
    assert_int_equal(have.len, BYTES);
    assert_memory_equal(have.ptr, want, BYTES);
    proa_buf_release(&have);
}

/* Nothing but the file is left. */
static void check_clean(void)
{
    char other[PROA_PATH_MAX + 16];
    snprintf(other, sizeof other, "%s.partial", path);
    assert_int_equal(access(other, F_OK), -1);
    snprintf(other, sizeof other, "%s.journal", path);
    assert_int_equal(access(other, F_OK), -1);
    unlink(path);
}

static void undisturbed(void **state)
{
    scene s = {.calls = 0};
    proa_err err = {.status = PROA_OK};
    (void)state;
    assert_int_equal(write_as(&s, 1, false, &err), PROA_OK);
    for (int i = 0; i < ITEMS; i++) assert_int_equal(s.done[i], 1);
    check_file();
    check_clean();
}

/* Stopped after each possible number of chunks, and continued. */
static void cancelled_and_continued(void **state)
{
    char journal[PROA_PATH_MAX + 16];
    (void)state;
    for (int64_t after = 1; after < 20; after++) {
        proa_err err = {.status = PROA_OK};
        scene first = {.stop_after = after}, second = {.calls = 0};
        proa_status status = write_as(&first, 1, false, &err);
        if (status == PROA_OK) {
            assert_true(after > 8); /* 8192 bytes in chunks of at most 1000 */
            check_clean();
            return;
        }
        assert_int_equal(status, PROA_CANCELLED);
        assert_non_null(strstr(err.text, "the same command continues"));
        snprintf(journal, sizeof journal, "%s.journal", path);
        assert_true(proa_file_exists(journal) && !proa_file_exists(path));
        assert_int_equal(write_as(&second, 1, false, NULL), PROA_OK);
        check_file();
        check_clean();
    }
    fail();
}

/* Killed in each call of fill; the next run makes only what was not written. */
static void killed_and_continued(void **state)
{
    scene all = {.calls = 0};
    (void)state;
    assert_int_equal(write_as(&all, 1, false, NULL), PROA_OK);
    check_clean();
    for (int64_t at = 1; at <= all.calls; at++) {
        pid_t child = fork();
        int how = 0;
        if (child == 0) {
            scene s = {.kill_at = at};
            _exit(write_as(&s, 1, false, NULL) == PROA_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        assert_false(proa_file_exists(path));
        scene rest = {.calls = 0};
        assert_int_equal(write_as(&rest, 1, false, NULL), PROA_OK);
        assert_true(rest.calls + at - 1 <= all.calls + 3); /* at most one chunk again */
        check_file();
        check_clean();
    }
}

static void another_job_is_refused(void **state)
{
    scene s = {.stop_after = 3}, t = {.calls = 0};
    proa_err err = {.status = PROA_OK};
    (void)state;
    assert_int_equal(write_as(&s, 1, false, NULL), PROA_CANCELLED);
    assert_int_equal(write_as(&t, 2, false, &err), PROA_EXISTS);
    assert_non_null(strstr(err.text, "another source or with other options"));
    assert_int_equal(t.calls, 0);
    assert_int_equal(write_as(&t, 2, true, NULL), PROA_OK);
    check_file();
    check_clean();
}

/* A journal that lies, or is cut, is not believed. */
static void damaged_journal(void **state)
{
    char name[PROA_PATH_MAX + 16];
    (void)state;
    for (int64_t at = 0; at < 40; at += 5) {
        scene s = {.stop_after = 4}, t = {.calls = 0};
        snprintf(name, sizeof name, "%s.journal", path);
        assert_int_equal(write_as(&s, 1, false, NULL), PROA_CANCELLED);
        int fd = open(name, O_RDWR);
        char byte = 0;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x55;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        assert_int_equal(write_as(&t, 1, false, NULL), PROA_EXISTS);
        assert_int_equal(write_as(&t, 1, true, NULL), PROA_OK);
        check_file();
        check_clean();
    }
}

/* The file is shorter than its journal says: begun again. */
static void cut_file(void **state)
{
    char name[PROA_PATH_MAX + 16];
    scene s = {.stop_after = 5}, t = {.calls = 0};
    (void)state;
    snprintf(name, sizeof name, "%s.partial", path);
    assert_int_equal(write_as(&s, 1, false, NULL), PROA_CANCELLED);
    assert_int_equal(truncate(name, 10), 0);
    assert_int_equal(write_as(&t, 1, false, NULL), PROA_OK);
    check_file();
    check_clean();
}

static void full_disk(void **state)
{
    proa_err err = {.status = PROA_OK};
    scene s = {.calls = 0};
    char keep[PROA_PATH_MAX];
    (void)state;
    snprintf(keep, sizeof keep, "%s", path);
    snprintf(path, sizeof path, "/dev/full/x"); /* no folder */
    assert_int_equal(write_as(&s, 1, false, &err), PROA_IO);
    assert_non_null(strstr(err.text, "cannot write '/dev/full/x"));
    snprintf(path, sizeof path, "%s", keep);
}

/* A child holds the lock of the journal as a writer does. It writes a byte into the pipe when it has it, and calls
 * `last` after so many milliseconds, before it ends. */
static pid_t hold_journal(int ms, void (*last)(const char *journal))
{
    char name[PROA_PATH_MAX + 16], byte = 0;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    snprintf(name, sizeof name, "%s.journal", path);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(name, O_RDWR | O_CREAT, 0666);
        if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ends[1], &byte, 1) != 1) _exit(1);
        usleep((useconds_t)ms * 1000);
        if (last) last(name);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static void finish_as_writer(const char *journal)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (fd < 0) _exit(1);
    unlink(journal);
}

/* The lock of a killed process lasts a moment longer than the kill. */
static void lock_is_waited_for(void **state)
{
    scene s = {.calls = 0};
    int how;
    (void)state;
    pid_t child = hold_journal(300, NULL);
    assert_int_equal(write_as(&s, 1, false, NULL), PROA_OK);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    check_file();
    check_clean();
}

static void lock_is_held(void **state)
{
    scene s = {.calls = 0}, stopped = {.stop_after = 2};
    proa_err err = {.status = PROA_OK}, cancelled = {.status = PROA_OK};
    (void)state;
    pid_t child = hold_journal(60000, NULL);
    assert_int_equal(write_as(&stopped, 1, false, &cancelled), PROA_CANCELLED);
    assert_int_equal(write_as(&s, 1, false, &err), PROA_IO);
    assert_non_null(strstr(err.text, "another process is writing"));
    assert_int_equal(s.calls, 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(write_as(&s, 1, false, NULL), PROA_OK);
    check_file();
    check_clean();
}

/* The other process finished the file: it is not written once more. */
static void other_writer_finished(void **state)
{
    scene s = {.calls = 0};
    proa_err err = {.status = PROA_OK};
    (void)state;
    pid_t child = hold_journal(200, finish_as_writer);
    assert_int_equal(write_as(&s, 1, false, &err), PROA_EXISTS);
    assert_non_null(strstr(err.text, "another process has written"));
    assert_int_equal(s.calls, 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(proa_file_exists(path));
    check_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed),           cmocka_unit_test(cancelled_and_continued),
        cmocka_unit_test(killed_and_continued),  cmocka_unit_test(another_job_is_refused),
        cmocka_unit_test(damaged_journal),       cmocka_unit_test(cut_file),
        cmocka_unit_test(lock_is_waited_for),    cmocka_unit_test(lock_is_held),
        cmocka_unit_test(other_writer_finished), cmocka_unit_test(full_disk),
    };
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/out.bin", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
