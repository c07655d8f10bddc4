/* SPDX-License-Identifier: Apache-2.0
 * golden_folders.h - a test for each folder of tests/golden/arch, or of another one. */
#ifndef PROA_TESTS_GOLDEN_FOLDERS_H
#define PROA_TESTS_GOLDEN_FOLDERS_H

#include "golden_rows.h"

#include <dirent.h>

static const char *golden_root = GOLDEN "arch";

/* The path of a folder's checkpoint, and what its golden.json says. The caller frees it. */
static inline proa_json *golden_open(const char *name, char path[PROA_PATH_MAX])
{
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, PROA_PATH_MAX, "%s/%s/golden.json", golden_root, name);
    if (proa_json_load(&json, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    snprintf(path, PROA_PATH_MAX, "%s/%s", golden_root, name);
    return json;
}

static inline int golden_is_folder(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static inline bool golden_is_chosen(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(name, argv[i]) == 0) return true;
    return argc < 3;
}

/* Runs a test for each folder of the one that argv names, or of golden_root; its state is the folder's name. Further
 * arguments are the names of those that run. Returns what main does. */
static inline int golden_run_folders(const char *suite, CMUnitTestFunction test, int argc, char **argv)
{
    struct dirent **folders = NULL;
    if (argc > 1) golden_root = argv[1];
    int count = scandir(golden_root, &folders, golden_is_folder, alphasort), chosen = 0;
    if (count <= 0) return fprintf(stderr, "%d folders in %s\n", count, golden_root), 1;
    struct CMUnitTest *tests = calloc((size_t)count, sizeof *tests);
    if (!tests) return fprintf(stderr, "no memory for %d tests\n", count), 1;
    for (int i = 0; i < count; i++)
        if (golden_is_chosen(folders[i]->d_name, argc, argv))
            tests[chosen++] = (struct CMUnitTest){
                .name = folders[i]->d_name, .test_func = test, .initial_state = folders[i]->d_name};
    int failed = _cmocka_run_group_tests(suite, tests, (size_t)chosen, NULL, NULL);
    for (int i = 0; i < count; i++) free(folders[i]);
    free(folders);
    free(tests);
    return failed;
}

#endif
