/* SPDX-License-Identifier: Apache-2.0
 * test_guard.c - a mapped file that becomes shorter is broken and reads as zeros; a fault elsewhere is still fatal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 4

typedef struct file {
    char path[64];
    int fd;
    long page;
} file;

/* cmocka has handlers of its own for each test; a program has not. */
static void install(void)
{
    static struct sigaction ours;
    static bool known;
    if (!known) {
        signal(SIGBUS, SIG_DFL);
        proa_guards_install();
        sigaction(SIGBUS, NULL, &ours);
        known = true;
    }
    sigaction(SIGBUS, &ours, NULL);
}

static void file_make(file *f)
{
    install();
    f->page = sysconf(_SC_PAGESIZE);
    snprintf(f->path, sizeof f->path, "/tmp/proa-guard-XXXXXX");
    f->fd = mkstemp(f->path);
    assert_true(f->fd >= 0);
    for (long i = 0; i < PAGES * f->page; i++) assert_int_equal(write(f->fd, "x", 1), 1);
}

static void file_remove(const file *f)
{
    close(f->fd);
    unlink(f->path);
}

static void a_shortened_file_reads_as_zeros_and_is_broken(void **state)
{
    file f;
    proa_mmap map;
    proa_err err = {.status = PROA_OK};
    (void)state;
    file_make(&f);
    assert_int_equal(proa_mmap_open(&map, f.path, &err), PROA_OK);
    assert_int_equal(proa_mmap_check(&map, f.path, &err), PROA_OK);
    assert_int_equal(map.ptr[0], 'x');
    assert_int_equal(ftruncate(f.fd, f.page), 0);
    assert_int_equal(map.ptr[0], 'x'); /* this page is still there */
    assert_false(proa_guard_broken(map.guard));
    assert_int_equal(((volatile const unsigned char *)map.ptr)[2 * f.page], 0);
    assert_true(proa_guard_broken(map.guard));
    assert_true(proa_guards_any_broken());
    assert_int_equal(((volatile const unsigned char *)map.ptr)[3 * f.page], 0);
    assert_int_equal(proa_mmap_check(&map, f.path, &err), PROA_IO);
    assert_non_null(strstr(err.text, "was shortened while it was read"));
    proa_mmap_close(&map);
    file_remove(&f);
}

static void a_file_that_is_written_to_is_seen(void **state)
{
    file f;
    proa_mmap map;
    proa_err err = {.status = PROA_OK};
    (void)state;
    file_make(&f);
    assert_int_equal(proa_mmap_open(&map, f.path, &err), PROA_OK);
    usleep(20000); /* the file's time is that of the kernel's tick */
    assert_int_equal(pwrite(f.fd, "y", 1, 5), 1);
    assert_int_equal(proa_mmap_check(&map, f.path, &err), PROA_IO);
    assert_non_null(strstr(err.text, "was written to while it was read"));
    proa_mmap_close(&map);
    file_remove(&f);
}

static void a_file_that_is_replaced_stays_whole(void **state)
{
    file f, other;
    proa_mmap map;
    proa_err err = {.status = PROA_OK};
    (void)state;
    file_make(&f);
    file_make(&other);
    assert_int_equal(proa_mmap_open(&map, f.path, &err), PROA_OK);
    assert_int_equal(rename(other.path, f.path), 0);
    assert_int_equal(map.ptr[PAGES * f.page - 1], 'x');
    assert_int_equal(proa_mmap_check(&map, f.path, &err), PROA_OK);
    proa_mmap_close(&map);
    close(other.fd);
    file_remove(&f);
}

/* More ranges than one chunk of slots has; a slot is used again. */
static void many_ranges(void **state)
{
    enum { COUNT = 200 };
    proa_guard *guard[COUNT];
    static char memory[COUNT];
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) guard[i] = proa_guard_add(&memory[i], 1);
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < i; k++) assert_ptr_not_equal(guard[i], guard[k]);
        for (int i = 0; i < COUNT; i++) proa_guard_remove(guard[i]);
    }
    proa_guard_remove(NULL);
    assert_false(proa_guard_broken(NULL));
}

static void a_fault_elsewhere_ends_the_process(void **state)
{
    file f;
    (void)state;
    file_make(&f);
    pid_t child = fork();
    if (child == 0) {
        volatile char *map = mmap(NULL, (size_t)(PAGES * f.page), PROT_READ, MAP_SHARED, f.fd, 0);
        if (ftruncate(f.fd, 0) != 0) _exit(2);
        _exit(map[0] ? 3 : 4); /* not reached: SIGBUS (a sanitizer reports it and exits with its own status) */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) >= 2 && WEXITSTATUS(status) <= 4);
    file_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shortened_file_reads_as_zeros_and_is_broken),
        cmocka_unit_test(a_file_that_is_written_to_is_seen),
        cmocka_unit_test(a_file_that_is_replaced_stays_whole),
        cmocka_unit_test(many_ranges),
        cmocka_unit_test(a_fault_elsewhere_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
