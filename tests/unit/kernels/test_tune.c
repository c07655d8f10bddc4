/* SPDX-License-Identifier: Apache-2.0
 * test_tune.c - the file of timed algorithms: buckets, what is read back, what is refused, where it lies, how it is
 * written. */
#include "kernels/tune.h"

#include "base/file.h"
#include "base/limits.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define IDENTITY "card; 9.0; driver 1; cublasLt 2; plug-in 3"
#define HEAD     "proa tune 1\n" IDENTITY "\n"
#define KEY      "128 4096 4096 4096 4096 4096 0 2 2 0 4 1"
#define WORDS                                                                                                \
    " 0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005 0000000000000006" \
    " 0000000000000007 fedcba9876543210"

static void test_buckets(void **state)
{
    PROA_UNUSED(state);
    static const int64_t rows[][2] = {{1, 1},    {2, 2},   {3, 3},     {4, 4},       {5, 6},
                                      {6, 6},    {7, 8},   {9, 12},    {12, 12},     {13, 16},
                                      {97, 128}, {96, 96}, {129, 192}, {1900, 2048}, {2049, 3072}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) assert_int_equal(proa_tune_bucket(rows[i][0]), rows[i][1]);
    for (int64_t n = 1; n < 5000; n++) {
        int64_t bucket = proa_tune_bucket(n);
        assert_true(bucket >= n && bucket <= n + n / 2 && proa_tune_bucket(bucket) == bucket);
    }
}

static void test_reads_what_it_prints(void **state)
{
    PROA_UNUSED(state);
    proa_tune t, again;
    proa_buf text;
    proa_tune_init(&t, IDENTITY "\n");
    assert_string_equal(t.identity, IDENTITY); /* one line, whatever the device calls itself */
    assert_int_equal(proa_tune_parse(&t, proa_str_c(HEAD KEY WORDS " 12.5 14.25\n"), NULL), PROA_OK);
    assert_int_equal(t.count, 1);
    proa_tune_entry other = t.entry[0];
    other.key[0] = 192, other.us = 0;
    proa_tune_put(&t, &other);
    other.us = 3;
    proa_tune_put(&t, &other); /* in place of the one before */
    proa_buf_init(&text, 4096);
    assert_true(proa_tune_print(&text, &t));
    proa_tune_init(&again, IDENTITY);
    assert_int_equal(proa_tune_parse(&again, proa_buf_view(&text), NULL), PROA_OK);
    assert_int_equal(again.count, 2);
    for (int i = 0; i < 2; i++) {
        const proa_tune_entry *e = proa_tune_find(&again, t.entry[i].key);
        assert_non_null(e);
        assert_memory_equal(e->algorithm, t.entry[i].algorithm, sizeof e->algorithm);
        assert_true(e->us == t.entry[i].us && e->first_us == 14.25f);
    }
    assert_true(again.entry[0].algorithm[7] == 0xfedcba9876543210u);
    other.key[1]++;
    assert_null(proa_tune_find(&again, other.key));
    /* what is known stays: it was timed later than what the file says */
    again.entry[0].us = 1;
    assert_int_equal(proa_tune_parse(&again, proa_buf_view(&text), NULL), PROA_OK);
    assert_true(again.count == 2 && again.entry[0].us == 1);
    proa_buf_release(&text);
    proa_tune_release(&t);
    proa_tune_release(&again);
}

static void test_refuses(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *text, *why;
        proa_status status;
    } wrong[] = {
        {"", "line 1 is not", PROA_CORRUPT},
        {"proa tune 2\n" IDENTITY "\n", "line 1 is not", PROA_CORRUPT},
        {"proa tune 1\ncard; 9.0; driver 2; cublasLt 2; plug-in 3\n",
         "line 2: it was timed on something else", PROA_INVALID},
        {HEAD "x\n", "line 3: a product is 12", PROA_CORRUPT},
        {HEAD "\n", "line 3: a product is 12", PROA_CORRUPT},
        {HEAD "-128 4096 4096 4096 4096 4096 0 2 2 0 4 1" WORDS " 1 1\n", "a product is 12", PROA_CORRUPT},
        {HEAD "9999999999999999 4096 4096 4096 4096 4096 0 2 2 0 4 1" WORDS " 1 1\n", "a product is 12",
         PROA_CORRUPT},
        {HEAD "127 4096 4096 4096 4096 4096 0 2 2 0 4 1" WORDS " 1 1\n", "no bucket", PROA_CORRUPT},
        {HEAD "0 4096 4096 4096 4096 4096 0 2 2 0 4 1" WORDS " 1 1\n", "no bucket", PROA_CORRUPT},
        {HEAD KEY " 1 2 3 4 5 6 7 8 1 1\n", "8 words", PROA_CORRUPT},
        {HEAD KEY WORDS "\n", "two times", PROA_CORRUPT},
        {HEAD KEY WORDS " 1 0\n", "two times", PROA_CORRUPT},
        {HEAD KEY WORDS " 1 nan\n", "two times", PROA_CORRUPT},
        {HEAD KEY WORDS " 1 99999999999999999999\n", "two times", PROA_CORRUPT},
        {HEAD KEY WORDS " 1 1 1\n", "more after", PROA_CORRUPT},
        {HEAD KEY WORDS " 1 1\n" KEY WORDS " 1 1\n", "line 4: this product was there before", PROA_CORRUPT},
    };
    for (size_t i = 0; i < PROA_COUNT(wrong); i++) {
        proa_tune t;
        proa_err err = {.status = PROA_OK};
        proa_tune_init(&t, IDENTITY);
        assert_int_equal(proa_tune_parse(&t, proa_str_c(wrong[i].text), &err), wrong[i].status);
        if (!strstr(err.text, wrong[i].why)) fail_msg("%zu: %s", i, err.text);
        assert_int_equal(t.count, 0);
        proa_tune_release(&t);
    }
}

static void test_has_a_limit(void **state)
{
    PROA_UNUSED(state);
    proa_tune t;
    proa_tune_init(&t, IDENTITY);
    proa_tune_entry e = {.key = {1}, .us = 1, .first_us = 1};
    for (int64_t i = 0; i < PROA_TUNE_ENTRIES_MAX + 5; i++) e.key[1] = i, proa_tune_put(&t, &e);
    assert_int_equal(t.count, PROA_TUNE_ENTRIES_MAX);
    proa_tune_release(&t);
}

static void test_path(void **state)
{
    PROA_UNUSED(state);
    proa_tune t, other;
    char path[PROA_PATH_MAX], second[PROA_PATH_MAX];
    proa_err err = {.status = PROA_OK};
    proa_tune_init(&t, IDENTITY);
    proa_tune_init(&other, IDENTITY "1");
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored */
    assert_int_equal(proa_tune_path(path, &t, "NVIDIA H200/../x", NULL), PROA_OK);
    assert_ptr_equal(strstr(path, "/home/someone/.cache/proa/tune-NVIDIA-H200----x-"), path);
    assert_null(strchr(path + strlen("/home/someone/.cache/proa/"), '/'));
    assert_int_equal(proa_tune_path(second, &other, "NVIDIA H200/../x", NULL), PROA_OK);
    assert_string_not_equal(path, second);
    setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
    assert_int_equal(proa_tune_path(path, &t, "x", NULL), PROA_OK);
    assert_ptr_equal(strstr(path, "/var/cache/me/proa/tune-x-"), path);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(proa_tune_path(path, &t, "x", &err), PROA_NOT_FOUND);
    assert_non_null(strstr(err.text, "XDG_CACHE_HOME"));
}

static void test_writes_whole_files(void **state)
{
    PROA_UNUSED(state);
    char folder[] = "/tmp/proa-tune-XXXXXX", path[128], spoiled[160];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a/b/tune.txt", folder);
    proa_tune t, again;
    proa_err err = {.status = PROA_OK};
    proa_tune_init(&t, IDENTITY);
    proa_tune_init(&again, IDENTITY);
    assert_int_equal(proa_tune_parse(&t, proa_str_c(HEAD KEY WORDS " 12.5 14.25\n"), NULL), PROA_OK);
    assert_int_equal(proa_tune_read(&again, path, &err), PROA_NOT_FOUND);
    for (int i = 0; i < 2; i++)
        assert_int_equal(proa_tune_write(&t, path, NULL), PROA_OK); /* makes folders; replaces */
    assert_int_equal(proa_tune_read(&again, path, NULL), PROA_OK);
    assert_int_equal(again.count, 1);
    proa_tune_release(&again);
    assert_int_equal(proa_tune_look(&again, path, NULL), PROA_OK);
    assert_true(again.count == 1 && strcmp(again.identity, IDENTITY) == 0);
    snprintf(spoiled, sizeof spoiled, "%s/a/b/spoiled", folder);
    FILE *file = fopen(spoiled, "w");
    assert_non_null(file);
    assert_true(fputs(HEAD "\n", file) >= 0 && fclose(file) == 0);
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_tune_read(&again, spoiled, &err), PROA_CORRUPT);
    assert_non_null(strstr(err.text, "spoiled: line 3"));
    snprintf(spoiled, sizeof spoiled, "%s/tune.txt", path); /* a file stands where a folder should */
    err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_tune_write(&t, spoiled, &err), PROA_IO);
    snprintf(spoiled, sizeof spoiled, "rm -r %s", folder);
    assert_int_equal(system(spoiled), 0); /* NOLINT(cert-env33-c): a folder of our own making */
    proa_tune_release(&t);
    proa_tune_release(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets), cmocka_unit_test(test_reads_what_it_prints),
        cmocka_unit_test(test_refuses), cmocka_unit_test(test_has_a_limit),
        cmocka_unit_test(test_path),    cmocka_unit_test(test_writes_whole_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
