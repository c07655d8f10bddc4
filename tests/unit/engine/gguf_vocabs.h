/* SPDX-License-Identifier: Apache-2.0
 * gguf_vocabs.h - a test for each vocabulary in a folder: NAME.gguf with its texts, NAME.gguf.inp. */
#ifndef GGUF_VOCABS_H
#define GGUF_VOCABS_H

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GGUF_VOCABS_MAX = 64 };
#define GGUF_VOCAB_SEPARATOR "\n__ggml_vocab_test__\n" /* between the texts of a NAME.gguf.inp */

/* Adds tests to tests[count .. GGUF_VOCABS_MAX), whose state is the path of the .gguf file. Returns the new count. */
static int gguf_vocabs_add(struct CMUnitTest *tests, int count, const char *folder, CMUnitTestFunction check)
{
    char path[PROA_PATH_MAX];
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        proa_str name = proa_str_c(entries[i]->d_name);
        snprintf(path, sizeof path, "%s/%s.inp", folder, entries[i]->d_name);
        if (count < GGUF_VOCABS_MAX && proa_str_ends(name, proa_str_c(".gguf")) && proa_file_exists(path)) {
            char *file = proa_malloc(strlen(path) + 1);
            strcpy(file, path);
            file[strlen(file) - 4] = 0;
            tests[count++] = (struct CMUnitTest){.name = file, .test_func = check, .initial_state = file};
        }
        free(entries[i]);
    }
    free(entries);
    return count;
}

/* Runs check for each vocabulary of tests/golden/gguf and of the folder in argv[1] or PROA_GGUF_VOCABS. Returns the
 * exit status. */
static int gguf_vocabs_run(const char *group, int argc, char **argv, CMUnitTestFunction check)
{
    struct CMUnitTest tests[GGUF_VOCABS_MAX] = {0};
    const char *more = argc > 1 ? argv[1] : getenv("PROA_GGUF_VOCABS");
    int count = gguf_vocabs_add(tests, 0, PROA_SOURCE_DIR "/tests/golden/gguf", check);
    if (more) count = gguf_vocabs_add(tests, count, more, check);
    else printf("llama.cpp's vocabularies are not tested: PROA_GGUF_VOCABS names no folder\n");
    if (count == 0) return fprintf(stderr, "no vocabularies\n"), 1;
    int failed = _cmocka_run_group_tests(group, tests, (size_t)count, NULL, NULL);
    for (int i = 0; i < count; i++) free((void *)(uintptr_t)tests[i].name);
    return failed;
}

#endif
