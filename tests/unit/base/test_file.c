/* SPDX-License-Identifier: Apache-2.0
 * test_file.c - files read whole and mapped, and paths that are no files. */
#include "base/file.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[PROA_PATH_MAX];
    assert_int_equal(proa_path_join(path, dir, name, NULL), PROA_OK);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/proa_file_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    FILE *f = fopen(in_dir("ten"), "wb");
    fwrite("012345678\0", 1, 10, f);
    fclose(f);
    fclose(fopen(in_dir("empty"), "wb"));
    return mkfifo(in_dir("pipe"), 0600);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(in_dir("ten"));
    unlink(in_dir("empty"));
    unlink(in_dir("pipe"));
    return rmdir(dir);
}

static void read_fails(const char *path, int64_t bytes_max, proa_status want, const char *text)
{
    proa_buf buf;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_file_read(&buf, path, bytes_max, &err), want);
    if (!strstr(err.text, text)) fail_msg("%s", err.text);
    proa_buf_release(&buf);
}

static void test_read(void **state)
{
    proa_buf buf;
    assert_int_equal(proa_file_read(&buf, in_dir("ten"), 10, NULL), PROA_OK);
    assert_int_equal(buf.len, 10);
    assert_memory_equal(buf.ptr, "012345678\0", 11);
    proa_buf_release(&buf);
    assert_int_equal(proa_file_read(&buf, in_dir("empty"), 10, NULL), PROA_OK);
    assert_int_equal(buf.len, 0);
    proa_buf_release(&buf);
    read_fails(in_dir("ten"), 9, PROA_LIMIT, "/ten' has 10 bytes, at most 9 are read");
    read_fails(in_dir("none"), 9, PROA_NOT_FOUND, "/none': no such file");
    read_fails(dir, 9, PROA_INVALID, "not a regular file");
    read_fails(in_dir("pipe"), 9, PROA_INVALID, "not a regular file"); /* and does not wait for a writer */
    read_fails("/dev/zero", 9, PROA_INVALID, "not a regular file");
    read_fails("", 9, PROA_NOT_FOUND, "no such file");
    read_fails(in_dir("ten/x"), 9, PROA_IO, "cannot open '");
    (void)state;
}

static void test_map(void **state)
{
    proa_mmap map;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_mmap_open(&map, in_dir("ten"), &err), PROA_OK);
    assert_int_equal(map.bytes, 10);
    assert_memory_equal(map.ptr, "012345678", 10);
    proa_mmap_drop(&map, map.ptr + 2, 5); /* less than a page: stays */
    proa_mmap_drop(&map, map.ptr, 10);
    assert_memory_equal(map.ptr, "012345678", 10);
    proa_mmap_close(&map);
    assert_null(map.ptr);
    proa_mmap_close(&map);
    assert_int_equal(proa_mmap_open(&map, in_dir("empty"), &err), PROA_OK);
    assert_null(map.ptr);
    assert_int_equal(map.bytes, 0);
    proa_mmap_close(&map);
    assert_int_equal(proa_mmap_open(&map, dir, &err), PROA_INVALID);
    assert_null(map.ptr);
    (void)state;
}

/* Failures must not leave descriptors open. */
static void test_descriptors(void **state)
{
    proa_buf buf;
    proa_mmap map;
    int before = dup(0);
    close(before);
    for (int i = 0; i < 50; i++) {
        proa_status status = proa_file_read(&buf, i % 2 ? dir : in_dir("ten"), i % 3 ? 5 : 10, NULL);
        proa_buf_release(&buf);
        assert_true(status != PROA_OK || i % 6 == 0);
        status = proa_mmap_open(&map, i % 2 ? dir : in_dir("ten"), NULL);
        assert_true(status == PROA_OK || i % 2);
        proa_mmap_close(&map);
    }
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
    (void)state;
}

static void test_paths(void **state)
{
    char out[PROA_PATH_MAX], big[PROA_PATH_MAX + 10];
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_path_join(out, "a", "b", NULL), PROA_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(proa_path_join(out, "a/", "b", NULL), PROA_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(proa_path_join(out, "/", "b", NULL), PROA_OK);
    assert_string_equal(out, "/b");
    assert_int_equal(proa_path_join(out, "", "b", NULL), PROA_OK);
    assert_string_equal(out, "b"); /* not the root */
    memset(big, 'x', sizeof big);
    big[PROA_PATH_MAX - 3] = '\0';
    assert_int_equal(proa_path_join(out, big, "b", NULL), PROA_OK);
    assert_int_equal(strlen(out), PROA_PATH_MAX - 1);
    assert_int_equal(proa_path_join(out, big, "bc", &err), PROA_INVALID);
    assert_memory_equal(err.text, "path too long: 'xxx", 19);
    assert_true(proa_file_exists(in_dir("ten")) && proa_file_exists(in_dir("empty")));
    assert_false(proa_file_exists(dir) || proa_file_exists(in_dir("pipe")) || proa_file_exists(in_dir("none")));
    assert_true(proa_dir_exists(dir));
    assert_false(proa_dir_exists(in_dir("ten")) || proa_dir_exists(""));
    (void)state;
}

static void test_resolve(void **state)
{
    char out[PROA_PATH_MAX], big[PROA_PATH_MAX + 2];
    assert_int_equal(proa_path_resolve(out, "/usr", "bin", NULL), PROA_OK);
    assert_string_equal(out, "/usr/bin");
    assert_int_equal(proa_path_resolve(out, "/usr", "no such/folder", NULL), PROA_OK);
    assert_string_equal(out, "no such/folder"); /* from where the program was started */
    assert_int_equal(proa_path_resolve(out, "/usr", "/etc", NULL), PROA_OK);
    assert_string_equal(out, "/etc");
    assert_int_equal(proa_path_resolve(out, "/m", "$$TRITON_MODEL_DIRECTORY/env", NULL), PROA_OK);
    assert_string_equal(out, "/m/env");
    memset(big, 'x', sizeof big - 1);
    big[0] = '/', big[sizeof big - 1] = 0;
    assert_int_equal(proa_path_resolve(out, "/m", big, NULL), PROA_INVALID);
    assert_int_equal(proa_path_resolve(out, "/m", big + 1, NULL), PROA_INVALID);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),  cmocka_unit_test(test_map),     cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_paths), cmocka_unit_test(test_resolve),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
