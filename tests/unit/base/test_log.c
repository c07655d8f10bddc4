/* SPDX-License-Identifier: Apache-2.0
 * test_log.c - forms, levels, and that outside text cannot forge a line. */
#include "base/compiler.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels), cmocka_unit_test(test_forged),
                                       cmocka_unit_test(test_bad_file)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
