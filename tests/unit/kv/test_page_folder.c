/* SPDX-License-Identifier: Apache-2.0
 * test_page_folder.c - pages as files: written, found by later processes and by others, refused if anything about them
 * is wrong, and deleted where there are too many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "kv/page_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IMAGE = 3000, FILE_BYTES = PROA_PAGE_HEAD_BYTES + IMAGE };

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/proa-pages-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static proa_page_format format_of(unsigned char model)
{
    proa_page_format f = {
        .dtype = PROA_DTYPE_BF16, .layers = 3, .kv_heads = 2, .head_dim = 4, .image_bytes = IMAGE};
    memset(f.fingerprint, model, sizeof f.fingerprint);
    return f;
}

/* The folder has room for so many files of it. */
static proa_page_folder *open_folder(unsigned char model, int64_t files)
{
    proa_page_folder *f;
    proa_err err = {.status = PROA_OK};
    proa_page_format format = format_of(model);
    if (proa_page_folder_open(&f, dir, &format, files * FILE_BYTES, &err) != PROA_OK)
        fail_msg("%s", err.text);
    return f;
}

static int32_t ids[256][PROA_PAGE_TOKENS];

static proa_page_name name_of(int page)
{
    for (int i = 0; i < PROA_PAGE_TOKENS; i++) ids[page][i] = page + i;
    proa_page_key start = proa_page_key_of("space", 5);
    return (proa_page_name){proa_page_key_next(&start, -1, ids[page], PROA_PAGE_TOKENS), ids[page],
                            PROA_PAGE_TOKENS, 7};
}

static void fill(char *image, int page)
{
    for (int i = 0; i < IMAGE; i++) image[i] = (char)(page * 3 + i * 7);
}

/* Does one job, and returns its status. */
static proa_status run_job(proa_page_folder *f, int page, char *image, bool writes)
{
    proa_page_job job = {.name = name_of(page), .image = image, .writes = writes, .tag = page}, *done;
    proa_page_folder_submit(f, &job);
    while (!(done = proa_page_folder_finished(f))) proa_page_folder_wait(f, 1000);
    assert_ptr_equal(done, &job);
    assert_int_equal(done->tag, page);
    return done->status;
}

static void write_page(proa_page_folder *f, int page)
{
    char image[IMAGE];
    fill(image, page);
    assert_int_equal(run_job(f, page, image, true), PROA_OK);
}

static bool has(proa_page_folder *f, int page)
{
    proa_page_name name = name_of(page);
    return proa_page_folder_has(f, &name.key);
}

static void read_page(proa_page_folder *f, int page)
{
    char image[IMAGE] = {0}, wanted[IMAGE];
    fill(wanted, page);
    assert_true(has(f, page));
    assert_int_equal(run_job(f, page, image, false), PROA_OK);
    assert_memory_equal(image, wanted, IMAGE);
}

/* The path of the only file whose name begins so; "" if there is none. */
static void find_file(char path[512], const char *begin)
{
    struct dirent *entry;
    DIR *d = opendir(dir);
    path[0] = '\0';
    while ((entry = readdir(d)))
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, begin, strlen(begin)) == 0)
            snprintf(path, 512, "%s/%s", dir, entry->d_name);
    closedir(d);
}

static int count_files(void)
{
    int count = 0;
    struct dirent *entry;
    DIR *d = opendir(dir);
    while ((entry = readdir(d))) count += entry->d_name[0] != '.' || strncmp(entry->d_name, ".proa", 5) == 0;
    closedir(d);
    return count;
}

static void pages_outlive_the_process(void **state)
{
    (void)state;
    proa_page_folder *f = open_folder(1, 10);
    assert_false(has(f, 1));
    for (int i = 1; i <= 3; i++) write_page(f, i);
    write_page(f, 2); /* again */
    assert_int_equal(proa_page_folder_pages(f), 3);
    read_page(f, 2);
    proa_page_folder_close(f);
    f = open_folder(1, 10);
    assert_int_equal(proa_page_folder_pages(f), 3);
    for (int i = 3; i >= 1; i--) read_page(f, i);
    proa_page_folder *other = open_folder(2, 10); /* another model in the same folder */
    assert_int_equal(proa_page_folder_pages(other), 0);
    assert_false(has(other, 1));
    write_page(other, 1);
    read_page(other, 1), read_page(f, 1);
    assert_int_equal(count_files(), 4);
    proa_page_folder_close(other);
    proa_page_folder_close(f);
}

/* Jobs that were submitted are done before the folder closes. */
static void closing_waits(void **state)
{
    static char images[20][IMAGE];
    static proa_page_job jobs[20];
    (void)state;
    proa_page_folder *f = open_folder(1, 100);
    for (int i = 0; i < 20; i++) {
        fill(images[i], i);
        jobs[i] = (proa_page_job){.name = name_of(i), .image = images[i], .writes = true};
        proa_page_folder_submit(f, &jobs[i]);
    }
    proa_page_folder_close(f);
    f = open_folder(1, 100);
    for (int i = 0; i < 20; i++) read_page(f, i);
    proa_page_folder_close(f);
}

static void set_age(int page, int seconds)
{
    struct timespec times[2];
    char path[512], digits[8];
    proa_page_name name = name_of(page);
    snprintf(digits, sizeof digits, "0101");
    struct dirent *entry;
    DIR *d = opendir(dir);
    char key[9];
    snprintf(key, sizeof key, "%02x%02x%02x%02x", name.key.bytes[0], name.key.bytes[1], name.key.bytes[2],
             name.key.bytes[3]);
    while ((entry = readdir(d)))
        if (strncmp(entry->d_name + 17, key, 8) == 0)
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
    closedir(d);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void the_oldest_goes_first(void **state)
{
    (void)state;
    proa_page_folder *f = open_folder(1, 10);
    for (int i = 0; i < 10; i++) write_page(f, i), set_age(i, 100 - i);
    read_page(f, 0); /* and is the newest now */
    write_page(f, 10);
    assert_true(has(f, 0) && has(f, 10) && !has(f, 1) && has(f, 9));
    assert_true(count_files() <= 10);
    proa_page_folder_close(f);
    f = open_folder(1, 4); /* a smaller bound holds at once */
    assert_int_equal(count_files(), 3);
    assert_true(has(f, 0) && has(f, 10));
    proa_page_folder_close(f);
}

/* ---- files that are not what they seem ---- */

static void overwrite(const char *path, int64_t at, const void *bytes, size_t len)
{
    int file = open(path, O_WRONLY);
    assert_int_equal(pwrite(file, bytes, len, at), (ssize_t)len);
    close(file);
}

/* Spoils the file of page 1 in one way; the folder must refuse and delete it. */
static void spoil(const char *path, int how)
{
    unsigned char byte = 0x5a;
    char other[600];
    if (how < FILE_BYTES) {
        int file = open(path, O_RDWR);
        assert_int_equal(pread(file, &byte, 1, how), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(file, &byte, 1, how), 1);
        close(file);
        return;
    }
    switch (how - FILE_BYTES) {
    case 0: assert_int_equal(truncate(path, FILE_BYTES - 1), 0); break;
    case 1: assert_int_equal(truncate(path, 0), 0); break;
    case 2: assert_int_equal(truncate(path, FILE_BYTES + 1), 0); break;
    case 3: /* a link to a good file */
        snprintf(other, sizeof other, "%s.good", path);
        assert_int_equal(rename(path, other), 0);
        assert_int_equal(symlink(other, path), 0);
        break;
    case 4: /* a pipe, which would block */
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        break;
    default: overwrite(path, 0, "not a page at all", 17); break;
    }
}

static void spoiled_files_are_refused(void **state)
{
    static const int hows[] = {0,
                               3,
                               8,
                               12,
                               16,
                               40,
                               50,
                               80,
                               90,
                               100,
                               108,
                               112,
                               120,
                               127,
                               128,
                               200,
                               383,
                               384,
                               500,
                               504,
                               511,
                               512,
                               FILE_BYTES - 1,
                               FILE_BYTES,
                               FILE_BYTES + 1,
                               FILE_BYTES + 2,
                               FILE_BYTES + 3,
                               FILE_BYTES + 4,
                               FILE_BYTES + 5};
    (void)state;
    proa_page_folder *f = open_folder(1, 10);
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        char path[512], image[IMAGE];
        write_page(f, 1);
        find_file(path, "0101010101010101-");
        assert_true(path[0]);
        spoil(path, hows[i]);
        proa_status status = run_job(f, 1, image, false);
        if (status != PROA_CORRUPT) fail_msg("spoiled at %d: status %d", hows[i], (int)status);
        assert_false(has(f, 1));
        assert_int_not_equal(access(path, F_OK), 0); /* it is gone */
    }
    write_page(f, 1);
    read_page(f, 1);
    proa_page_folder_close(f);
}

/* A good file under the name of another page. */
static void renamed_files_are_refused(void **state)
{
    char one[512], two[512], image[IMAGE];
    (void)state;
    proa_page_folder *f = open_folder(1, 10);
    write_page(f, 1);
    find_file(one, "0101010101010101-");
    assert_int_equal(rename(one, "/tmp/proa-page-one"), 0);
    write_page(f, 2);
    find_file(two, "0101010101010101-");
    assert_int_equal(rename("/tmp/proa-page-one", two), 0);
    assert_int_equal(run_job(f, 2, image, false), PROA_CORRUPT);
    assert_int_equal(run_job(f, 3, image, false), PROA_NOT_FOUND);
    proa_page_folder_close(f);
}

static void others_are_left_alone(void **state)
{
    char path[128];
    (void)state;
    proa_page_folder *f = open_folder(1, 3);
    static const char *const names[] = {"notes.txt", "0101010101010101-abc.kv", ".proa-new.tmp"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    for (int i = 0; i < 9; i++) write_page(f, i);
    proa_page_folder_close(f);
    f = open_folder(1, 3);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(access(path, F_OK), 0);
    }
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0); /* what a killed process left long ago */
    proa_page_folder_close(f);
    proa_page_folder_close(open_folder(1, 3));
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- several processes ---- */

static void write_for_ever(unsigned seed)
{
    proa_page_folder *f = open_folder(1, 20);
    for (unsigned i = seed;; i++) write_page(f, (int)(i * 7 % 40));
}

/* Processes that write to one folder are killed at any time: what is there afterwards is whole. */
static void killed_writers_leave_no_broken_file(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        pid_t child[2];
        for (unsigned i = 0; i < 2; i++)
            if ((child[i] = fork()) == 0) write_for_ever(i + (unsigned)round), _exit(1);
        usleep((useconds_t)(20000 + round * 7000));
        for (int i = 0; i < 2; i++) {
            kill(child[i], SIGKILL);
            waitpid(child[i], NULL, 0);
        }
        proa_page_folder *f = open_folder(1, 20);
        int64_t found = 0, all = proa_page_folder_pages(f);
        for (int i = 0; i < 40; i++)
            if (has(f, i)) read_page(f, i), found++;
        assert_true(found > 0 && found == all);
        proa_page_folder_close(f);
    }
}

/* ---- the folder itself ---- */

static void refused(const char *path, int64_t bytes, proa_status status, const char *text)
{
    proa_page_folder *f;
    proa_err err = {.status = PROA_OK};
    proa_page_format format = format_of(1);
    assert_int_equal(proa_page_folder_open(&f, path, &format, bytes, &err), status);
    assert_null(f);
    if (!strstr(err.text, text)) fail_msg("'%s' has no '%s'", err.text, text);
}

static void folders_that_are_refused(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/new", dir);
    refused(path, FILE_BYTES - 1, PROA_INVALID, "option 'prefix-dir-size' is 3511 bytes, one page");
    refused("", FILE_BYTES, PROA_INVALID, "option 'prefix-dir' has 0 bytes");
    refused("/nowhere/at/all", FILE_BYTES, PROA_IO, "--prefix-dir '/nowhere/at/all'");
    refused("/proc/self/exe", FILE_BYTES, PROA_IO, "--prefix-dir '/proc/self/exe'");
    assert_int_equal(chmod(dir, 0777), 0);
    refused(dir, FILE_BYTES, PROA_INVALID, "can be written to by other users");
    assert_int_equal(chmod(dir, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(dir, 4711, 4711), 0);
        refused(dir, FILE_BYTES, PROA_INVALID, "belongs to another user");
        assert_int_equal(chown(dir, 0, 0), 0);
    }
    proa_page_folder *f;
    proa_page_format format = format_of(1);
    assert_int_equal(proa_page_folder_open(&f, path, &format, FILE_BYTES, NULL), PROA_OK); /* it is made */
    proa_page_folder_close(f);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(pages_outlive_the_process), IN_DIR(closing_waits),
        IN_DIR(the_oldest_goes_first),     IN_DIR(spoiled_files_are_refused),
        IN_DIR(renamed_files_are_refused), IN_DIR(others_are_left_alone),
        IN_DIR(folders_that_are_refused),  IN_DIR(killed_writers_leave_no_broken_file)};
    return cmocka_run_group_tests_name("page_folder", tests, NULL, NULL);
}
