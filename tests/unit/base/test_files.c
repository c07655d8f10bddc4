/* SPDX-License-Identifier: Apache-2.0
 * test_files.c - a model's small files: on disk, as made texts, and which of two wins. */
#include "base/file.h"
#include "base/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int set_up(void **state)
{
    char path[PROA_PATH_MAX];
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/proa_files_XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    fputs("{\"from\":\"disk\"}", f);
    return fclose(f);
}

static int tear_down(void **state)
{
    char path[PROA_PATH_MAX];
    (void)state;
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    return rmdir(dir);
}

/* Counts the calls, so that a test can see that nothing is written before it is read. */
static proa_status write_text(const void *arg, proa_buf *out, proa_err *err)
{
    int *calls = *(int *const *)arg;
    if (++*calls > 2) return PROA_FAIL(err, CORRUPT, "written too often");
    proa_buf_str(out, proa_str_c("[1,2,3]"));
    return PROA_OK;
}

static void says(const proa_files *f, const char *want)
{
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_files_json(&json, f, "config.json", 4096, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_true(proa_str_is(proa_json_str(proa_json_get(json, "from")), want));
    proa_json_free(json);
}

static void test_which_wins(void **state)
{
    char name[PROA_PATH_MAX], want[PROA_PATH_MAX];
    const proa_made_file made[] = {{.name = "config.json", .text = proa_str_c("{\"from\":\"made\"}")}};
    proa_files f = proa_files_of(dir);
    (void)state;
    says(&f, "disk");
    f.made = made, f.made_count = 1, f.what = "model.x";
    says(&f, "disk");
    snprintf(want, sizeof want, "%s/config.json", dir);
    assert_string_equal(proa_files_name(name, &f, "config.json"), want);
    f.made_first = true;
    says(&f, "made");
    assert_string_equal(proa_files_name(name, &f, "config.json"), "model.x: config.json");
    f.dir = NULL, f.made_first = false;
    says(&f, "made");
}

static void test_written(void **state)
{
    int calls = 0, *at = &calls;
    const proa_made_file made[] = {{.name = "list.json", .write = write_text, .arg = &at}};
    proa_files f = {.made = made, .made_count = 1, .what = "model.x"};
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf text;
    (void)state;
    assert_true(proa_files_has(&f, "list.json"));
    assert_int_equal(calls, 0);
    assert_int_equal(proa_files_json(&json, &f, "list.json", 4096, &err), PROA_OK);
    assert_int_equal(proa_json_len(json), 3);
    proa_json_free(json);
    assert_int_equal(proa_files_read(&text, &f, "list.json", 3, &err), PROA_LIMIT);
    assert_string_equal(err.text, "'model.x: list.json' is longer than 3 bytes");
    proa_buf_release(&text);
    proa_err_clear(&err);
    assert_int_equal(proa_files_json(&json, &f, "list.json", 4096, &err), PROA_CORRUPT);
    assert_null(json);
}

static void test_missing(void **state)
{
    proa_files f = {.what = "model.x"};
    proa_err err = {.status = PROA_OK};
    proa_buf text;
    (void)state;
    assert_false(proa_files_has(&f, "config.json"));
    assert_int_equal(proa_files_read(&text, &f, "config.json", 3, &err), PROA_NOT_FOUND);
    assert_string_equal(err.text, "model.x has no config.json");
    proa_buf_release(&text);
    f = proa_files_of(dir);
    assert_false(proa_files_has(&f, "other.json"));
    assert_int_equal(proa_files_read(&text, &f, "other.json", 3, NULL), PROA_NOT_FOUND);
    proa_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_wins),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
