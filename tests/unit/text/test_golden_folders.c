/* SPDX-License-Identifier: Apache-2.0
 * test_golden_folders.c - tokenizers of folders without a tokenizer.json against the programs that the files are of:
 * each folder of tests/golden/tokenizers has the files and a golden.txt (format: tools/golden_text.py; made by
 * tools/golden_tokenizers.py). */
#include "base/file.h"

#include "golden_line.h"
#include <dirent.h>
#include <stdlib.h>

static int check_folder(const char *name)
{
    char path[PROA_PATH_MAX];
    proa_buf golden;
    proa_err err = {0};
    proa_tokenizer *tok = NULL;
    int lines = 0;
    snprintf(path, sizeof path, "%s/tests/golden/tokenizers/%s", PROA_SOURCE_DIR, name);
    if (proa_tokenizer_open(&tok, path, &err) != PROA_OK) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/tests/golden/tokenizers/%s/golden.txt", PROA_SOURCE_DIR, name);
    if (proa_file_read(&golden, path, PROA_MIB, &err) != PROA_OK) fail_msg("%s", err.text);
    char *rest = golden.ptr;
    assert_int_equal(*strsep(&rest, "\n"), '#');
    for (char *line; (line = strsep(&rest, "\n")) && *line; lines++) {
        char *text = strsep(&line, "\t");
        proa_str s = {text, unescape(text)};
        assert_non_null(line);
        check_line(tok, s, line, name);
    }
    proa_buf_release(&golden);
    proa_tokenizer_free(tok);
    return lines;
}

static void folders(void **state)
{
    DIR *dir = opendir(PROA_SOURCE_DIR "/tests/golden/tokenizers");
    int found = 0;
    PROA_UNUSED(state);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        assert_true(check_folder(e->d_name) >= 100);
        found++;
    }
    closedir(dir);
    assert_true(found >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
