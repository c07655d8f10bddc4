/* SPDX-License-Identifier: Apache-2.0
 * test_checkpoints.c - one model in several forms of checkpoint gives bitwise the same logits: tests/golden/checkpoint/
 * MODEL/FORM, where the form `safetensors` is the one that the others are compared with. */
#include "engine_test.h"

#include <dirent.h>
#include <stdio.h>

#define ROOT PROA_SOURCE_DIR "/tests/golden/checkpoint"

static const int32_t prompt[] = {1, 17, 5, 42, 9, 3, 60, 22, 8, 31, 13};

/* Logits of every position of the prompt, with the weights as the checkpoint has them. */
static outcome logits_of(const char *path)
{
    outcome o = {0};
    proa_err err = {.status = PROA_OK};
    proa_engine *engine = NULL;
    proa_engine_options options = {.threads = 1};
    if (proa_engine_open(&engine, path, &options, &err)) fail_msg("%s", err.text);
    proa_info info;
    proa_engine_info(engine, &info);
    bool both = info.kind == PROA_KIND_ENCODER_DECODER;
    run_request(engine,
                (proa_request){.task = PROA_TASK_ROWS,
                               .ids = prompt,
                               .ids_count = PROA_COUNT(prompt),
                               .decoder_ids = both ? prompt : NULL,
                               .decoder_ids_count = both ? 5 : 0},
                &o);
    assert_int_equal(o.finish, PROA_FINISH_END);
    assert_true(o.rows_count > 0);
    proa_engine_close(engine);
    return o;
}

static void test_model(void **state)
{
    const char *model = *state;
    char path[1024];
    int forms = 0;
    snprintf(path, sizeof path, ROOT "/%s/safetensors", model);
    outcome want = logits_of(path);
    snprintf(path, sizeof path, ROOT "/%s", model);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, "safetensors") == 0) continue;
        snprintf(path, sizeof path, ROOT "/%s/%s", model, e->d_name);
        outcome have = logits_of(path);
        assert_int_equal(have.rows_count, want.rows_count);
        assert_int_equal(have.columns, want.columns);
        if (memcmp(have.rows, want.rows, (size_t)(want.rows_count * want.columns) * sizeof *want.rows) != 0)
            fail_msg("%s: its logits differ from those of safetensors", path);
        outcome_release(&have);
        forms++;
    }
    closedir(dir);
    outcome_release(&want);
    assert_true(forms > 0);
}

int main(void)
{
    static char names[32][64];
    struct CMUnitTest tests[32];
    int count = 0;
    DIR *dir = opendir(ROOT);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL && count < 32;) {
        if (e->d_name[0] == '.') continue;
        snprintf(names[count], sizeof names[count], "%s", e->d_name);
        tests[count] = (struct CMUnitTest){names[count], test_model, NULL, NULL, names[count]};
        count++;
    }
    if (dir) closedir(dir);
    return count ? _cmocka_run_group_tests("checkpoints", tests, (size_t)count, NULL, NULL) : 1;
}
